"""Held-out pairs choose an estimator, or k-means without pairs if none helps."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine, make_blobs
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from inference_lab.clustering import ConstrainedClusterCV, PCKMeans, cluster_cv
from inference_lab.clustering.cluster_cv import (
    PairShares,
    candidates_for,
    choose,
    expected_gains,
    gain,
    pair_folds,
    pair_groups,
    pair_shares,
    standard_error,
)
from inference_lab.clustering.supervision import Supervision
from inference_lab.constraints import Constraints, SampleIds

WINE, CLASSES = load_wine(return_X_y=True)
#: Quick candidates; the last is best on wine, whose features differ in scale by a thousand.
FEW = [
    ("without pairs", KMeans(n_init=10)),
    ("raw", PCKMeans()),
    ("standardised", make_pipeline(StandardScaler(), PCKMeans())),
]


def sampled(count: int, wrong: float = 0.0, seed: int = 0) -> Constraints:
    rng = np.random.default_rng(seed)
    return Constraints.sample(CLASSES, count, rng).flip(wrong, rng)


def search(**settings: object) -> ConstrainedClusterCV:
    return ConstrainedClusterCV(3, **{"candidates": FEW, "random_state": 0, **settings})


# ---------------------------------------------------------------------- folds


@pytest.mark.parametrize("count", [12, 60, 120])
def test_no_held_out_pair_follows_from_the_others(count: int) -> None:
    pairs = sampled(count)
    group, n_must = pair_groups(pairs, 5), len(pairs.must_link)
    fold = pair_folds(group, n_must, 5, np.random.default_rng(0))
    sizes = np.bincount(pairs.components())
    assert sizes.max() * (sizes.max() - 1) / 2 < n_must / 5 or count == 120
    for number in range(5):
        out = fold == number
        rest = Constraints(
            pairs.must_link[~out[:n_must]], pairs.cannot_link[~out[n_must:]], n_points=178
        )
        implied = rest.close()
        for out_pairs, implied_pairs in (
            (pairs.must_link[out[:n_must]], implied.must_link),
            (pairs.cannot_link[out[n_must:]], implied.cannot_link),
        ):
            both = set(map(tuple, out_pairs.tolist())) & set(map(tuple, implied_pairs.tolist()))
            # Pairs of a component that would fill a fold are distributed one by one.
            assert not both or count == 120
        # Folds have similar numbers of each kind.
        assert abs(out[:n_must].sum() - n_must / 5) <= 4
        assert abs(out[n_must:].sum() - (count - n_must) / 5) <= 4
    assert (np.bincount(fold, minlength=5) > 0).all()


def test_large_components_are_divided() -> None:
    chain = Constraints([(i, i + 1) for i in range(50)], [(0, 60), (1, 60)], n_points=61)
    group = pair_groups(chain, 5)
    assert np.unique(group[:50]).size == 50
    # Both cannot-links join the same two components; one of the pairs would be too few.
    fold = pair_folds(group, 50, 5, np.random.default_rng(0))
    assert np.bincount(fold[:50]).tolist() == [10] * 5


def test_contradictions_are_held_out_with_their_component() -> None:
    others = [(10 + 2 * i, 11 + 2 * i) for i in range(20)]
    pairs = Constraints(
        [(0, 1), (1, 2), *others], [(0, 2), *[(0, j) for j, _ in others]], n_points=60
    )
    group, n_must = pair_groups(pairs, 2), 22
    (at,) = np.flatnonzero((pairs.cannot_link == (0, 2)).all(axis=1))
    assert group[0] == group[1] == group[n_must + at]
    assert (np.bincount(group) > 1).sum() == 1


def test_no_fit_sees_a_pair_that_judges_it() -> None:
    seen = []

    class Watched(PCKMeans):
        def fit(self, X, y=None, **arguments):
            fitted = super().fit(X, y, **arguments)
            seen.append(self.constraints_)
            return fitted

    pairs = sampled(60)
    search(candidates=[("watched", Watched())], n_repeats=2).fit(WINE, **pairs.fit_params())
    assert len(seen) == 2 * 5 + 1
    assert seen.pop().must_link.tolist() == pairs.must_link.tolist()
    for repeat in (seen[:5], seen[5:]):
        counts = [len(pairs) - len(constraints) for constraints in repeat]
        assert sum(counts) == len(pairs) and min(counts) > 0


# ---------------------------------------------------------------------- score


def test_score_is_youdens_j() -> None:
    shares = PairShares(np.array([1.0, 1.0, 0.0, 1.0]), np.array([1.0, 0.0]), together=0.3)
    assert shares.score == pytest.approx(3 / 4 + 1 / 2 - 1)
    one = PairShares(np.array([1.0, 0.5]), np.empty(0), together=0.25)
    assert one.score == pytest.approx((0.75 - 0.25) / 0.75)
    other = PairShares(np.empty(0), np.array([1.0, 0.5]), together=0.25)
    assert other.score == pytest.approx((0.75 - 0.75) / 0.25)
    # A single cluster keeps every must-link, and is uninformative.
    assert PairShares(np.ones(3), np.empty(0), together=1.0).score == 0.0
    assert PairShares(np.ones(3), np.zeros(3), together=1.0).score == 0.0


@pytest.mark.parametrize("kinds", [("must",), ("cannot",), ("must", "cannot")])
@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.9, 0.1), (0.4, 0.3, 0.3)])
def test_uninformative_labels_score_zero(kinds: tuple[str, ...], shares: tuple) -> None:
    """Check all sizes of clusters and both kinds of pairs."""
    rng = np.random.default_rng(0)
    pairs = sampled(200)
    pairs = Constraints(
        pairs.must_link if "must" in kinds else None,
        pairs.cannot_link if "cannot" in kinds else None,
        n_points=178,
    )
    fold = np.arange(len(pairs)) % 4
    scores = [
        pair_shares([rng.choice(len(shares), 178, p=shares) for _ in range(4)], [fold], pairs).score
        for _ in range(300)
    ]
    assert abs(np.mean(scores)) < 4 * np.std(scores) / np.sqrt(300) + 0.01
    perfect = pair_shares([CLASSES] * 4, [fold], pairs)
    assert perfect.score == pytest.approx(1.0)


def test_standard_error_treats_copies_of_pairs_as_one_group() -> None:
    rng = np.random.default_rng(0)
    must, cannot = (rng.random(n) < 0.8 for n in (200, 300))
    shares = PairShares(must.astype(float), cannot.astype(float), 0.4)
    added = shares.contributions()
    expected = np.sqrt(must.var() / 200 + cannot.var() / 300)
    assert standard_error(added, 200, np.arange(500)) == pytest.approx(expected, rel=0.01)
    # Four copies of each pair carry no more information than one.
    fourfold = PairShares(np.repeat(shares.must, 4), np.repeat(shares.cannot, 4), 0.4)
    error = standard_error(fourfold.contributions(), 800, np.repeat(np.arange(500), 4))
    assert error == pytest.approx(expected, rel=0.01)


def test_the_first_within_a_standard_error_is_chosen() -> None:
    n, group = 100, np.arange(200)
    best = PairShares(np.ones(n), np.ones(n), 0.5)
    # Both lose nine of a hundred pairs; the standard error is 0.029.
    close = PairShares(np.r_[np.zeros(9), np.ones(n - 9)], np.ones(n), 0.5)
    far = PairShares(np.zeros(n), np.ones(n), 0.5)
    assert choose([far, close, best], group) == 2
    # Three of a hundred pairs against two others, with a standard error of 0.022.
    first = PairShares(np.r_[np.zeros(3), np.ones(n - 3)], np.ones(n), 0.5)
    second = PairShares(np.r_[np.ones(n - 2), np.zeros(2)], np.ones(n), 0.5)
    assert choose([far, first, second], group) == 1
    assert choose([None, best, best], group) == 1


def test_expected_gains_weigh_scores_by_their_errors() -> None:
    """They equal the posterior mean on a grid of gains."""
    rng = np.random.default_rng(0)
    for n in (10, 100, 1000):
        first, other = (
            PairShares((rng.random(n) < p).astype(float), (rng.random(n) < p).astype(float), 0.5)
            for p in (0.7, 0.8)
        )
        group = np.arange(2 * n)
        observed, error = gain(other, first, group)
        grid = np.linspace(-3.0, 3.0, 60_001)
        density = norm.pdf(grid, 0.2, 0.1) * norm.pdf(observed, grid, error)
        mean = (grid * density).sum() / density.sum()
        gains = expected_gains([None, first, other], group, [0.0, 0.0, 0.2])
        assert np.isnan(gains[0]) and gains[1] == 0.0
        assert gains[2] == pytest.approx(mean, abs=1e-6)
    # Pairs kept at chance level promise nothing, even if candidates gain elsewhere.
    chance = PairShares(np.tile([0.0, 1.0], 50), np.tile([0.0, 1.0], 50), 0.5)
    better = PairShares(np.tile([0.0, 1.0], 50), np.r_[np.zeros(48), np.ones(52)], 0.5)
    assert expected_gains([chance, better], np.arange(200), [0.0, 0.2]).tolist() == [0.0, 0.0]


def test_prior_gains_decide_with_few_pairs() -> None:
    pairs = sampled(40).fit_params()
    for favourite in ("without pairs", "standardised"):
        model = search(prior_gains={favourite: 9.0}, n_repeats=1).fit(WINE, **pairs)
        assert model.best_params_["candidate"] == favourite
    assert model.cv_results_["expected_gain"].idxmax() == model.best_index_


# ---------------------------------------------------------------------- choice


def test_pairs_choose_the_scale() -> None:
    pairs = sampled(100)
    model = search().fit(WINE, **pairs.fit_params())
    assert model.best_params_ == {"candidate": "standardised", "n_clusters": 3}
    assert adjusted_rand_score(CLASSES, model.labels_) > 0.85
    gain, error = model.gain_
    assert gain > 3 * error > 0
    table = model.cv_results_
    assert list(table["candidate"]) == [name for name, _ in FEW]
    assert table["rank_test_score"][model.best_index_] == 1
    assert table["mean_test_score"][model.best_index_] == model.best_score_
    assert table["mean_test_score"][0] + gain == pytest.approx(model.best_score_)
    assert (table["behind_best"] >= 0).all()
    np.testing.assert_array_equal(model.predict(WINE), model.best_estimator_.predict(WINE))
    assert model.violations_.must_link <= 5


def test_pairs_that_do_not_help_are_not_used() -> None:
    """Half of the answers are wrong; pairs look helpful by chance in less than half of draws."""
    models = [
        search(n_repeats=1).fit(WINE, **sampled(178, 0.5, seed).fit_params()) for seed in range(5)
    ]
    without = [model for model in models if model.best_params_["candidate"] == "without pairs"]
    assert len(without) >= 3
    alone = KMeans(3, n_init=10, random_state=0).fit(WINE).labels_
    for model in without:
        assert adjusted_rand_score(alone, model.labels_) == pytest.approx(1.0)
        assert model.gain_ == (0.0, 0.0)
        assert len(model.constraints_) == 178


def test_number_of_clusters() -> None:
    X, truth = make_blobs(100, centers=5, cluster_std=1.0, random_state=3)
    pairs = Constraints.sample(truth, 100, np.random.default_rng(0))
    model = ConstrainedClusterCV("auto", candidates=FEW[:2], n_repeats=1, random_state=0)
    model.fit(X, **pairs.fit_params())
    assert model.best_params_["n_clusters"] == 5
    assert set(model.cv_results_["n_clusters"]) == set(range(2, 11))
    assert model.labels_.max() == 4
    few = ConstrainedClusterCV([2, 5], candidates=FEW[:2], n_repeats=1, random_state=0)
    assert few.fit(X, **pairs.fit_params()).best_params_["n_clusters"] == 5
    with pytest.raises(ValueError, match="needs pairs that choose among the numbers; 0 were"):
        few.fit(X)


# ---------------------------------------------------------------------- conventions


def test_check_estimator() -> None:
    failed = [
        result["check_name"]
        for result in check_estimator(ConstrainedClusterCV(), on_fail=None, on_skip=None)
        if result["status"] == "failed"
    ]
    assert failed == []


def test_processes_and_seeds_change_nothing() -> None:
    pairs = sampled(60)
    one = search(n_repeats=1).fit(WINE, **pairs.fit_params())
    two = search(n_repeats=1, n_jobs=2).fit(WINE, **pairs.fit_params())
    for a, b in ((one, two), (one, clone(one).fit(WINE, **pairs.fit_params()))):
        np.testing.assert_array_equal(a.labels_, b.labels_)
        dropped = ["mean_fit_time"]
        pd.testing.assert_frame_equal(
            a.cv_results_.drop(columns=dropped), b.cv_results_.drop(columns=dropped)
        )


def test_pairs_come_in_all_forms() -> None:
    pairs = sampled(60)
    names = [f"wine {i}" for i in range(178)]
    quick = search(n_repeats=1, candidates=FEW[1:2])
    one = clone(quick).fit(WINE, **pairs.fit_params())
    for X, arguments in (
        (pd.DataFrame(WINE, index=names), {"pairs": pairs.to_frame(names)}),
        (WINE, pairs.fit_params(sample_ids=names)),
    ):
        other = clone(quick).fit(X, **arguments)
        np.testing.assert_array_equal(one.labels_, other.labels_)
        assert other.constraints_ == pairs
    part = SampleIds(names)[:100]
    inside = quick.fit(WINE[:100], **pairs.fit_params(names) | {"sample_ids": part})
    assert inside.constraints_ == pairs.restrict(np.arange(100), renumber=True)


def test_progress_is_printed_if_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    search(n_repeats=1, verbose=1).fit(WINE, **sampled(40).fit_params())
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and lines[0].startswith("[1/3] without pairs, 3 clusters: score ")


def test_few_pairs() -> None:
    assert search().fit(WINE).best_params_["candidate"] == "without pairs"
    with pytest.warns(UserWarning, match="one pair cannot be held out"):
        assert np.isnan(search().fit(WINE, must_link=[(0, 1)]).best_score_)
    two = search().fit(WINE, must_link=[(0, 1)], cannot_link=[(0, 100)])
    assert len(two.cv_results_) == 3


def test_candidates_that_fail_are_left_out_and_named() -> None:
    contradictory = sampled(100).fit_params()
    contradictory["must_link"] = [(0, 1), (1, 2), (4, 5), (5, 6), (8, 9)]
    contradictory["cannot_link"] = [(0, 2), (4, 6), (0, 100), (1, 101)]
    hard = {"ml_weight": np.inf, "cl_weight": np.inf}
    failing = ("hard", PCKMeans())
    with pytest.warns(UserWarning, match=r"left out: hard \(\w+Error"):
        model = search(candidates=[*FEW[:1], failing]).fit(WINE, **contradictory, **hard)
    assert model.best_params_["candidate"] == "without pairs"
    assert model.cv_results_["failure"][1] != ""
    with pytest.raises(ValueError, match="no candidate could be fitted; hard: "):
        search(candidates=[failing]).fit(WINE, **contradictory, **hard)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"candidates": PCKMeans()}, TypeError, "must be a list of"),
        ({"candidates": [PCKMeans()]}, TypeError, "must be pairs"),
        ({"candidates": [FEW[0], FEW[0]]}, ValueError, "occur twice"),
        ({"n_clusters": "many"}, ValueError, "n_clusters must be auto"),
        ({"n_clusters": 0}, ValueError, "an integer of at least 1"),
        ({"n_clusters": []}, ValueError, "an integer of at least 1"),
        ({"n_splits": 1}, ValueError, "n_splits must be"),
    ],
)
def test_settings_out_of_range(settings: dict, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        search().set_params(**settings).fit(WINE)


def test_standardised_points_are_not_standardised_again() -> None:
    raw, scaled = candidates_for(WINE), candidates_for(StandardScaler().fit_transform(WINE))
    names = [candidate.name for candidate in raw]
    assert [name for name in names if "standardised" not in name][:2] == [
        "k-means without pairs",
        "PCKMeans",
    ]
    assert [candidate.name for candidate in scaled] == list(
        dict.fromkeys(name.removesuffix(", standardised") for name in names)
    )
    assert not any(isinstance(candidate.estimator, Pipeline) for candidate in scaled)
    # A candidate has the gain of its name in the list, scaled or not.
    gains = {candidate.name: candidate.prior_gain for candidate in raw}
    assert gains["k-means without pairs"] == 0.0 < gains["TVClust"]
    assert all(candidate.prior_gain == gains[candidate.name] for candidate in scaled)


# ---------------------------------------------------------------------- large data, other machines


def test_candidates_for_large_data_are_compared_on_a_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster_cv, "sample_size", lambda n_clusters: 40)
    sizes: list[int] = []

    class Sized(PCKMeans):
        def fit(self, X: Any, y: Any = None, **arguments: Any) -> Any:
            sizes.append(len(X))
            return super().fit(X, y, **arguments)

    pairs = sampled(60)
    model = ConstrainedClusterCV(3, candidates=[("sized", Sized())], random_state=0)
    model.fit(WINE, **pairs.fit_params())
    # One repetition of three folds on the sample, then all points and pairs.
    assert sizes == [40] * 3 + [len(WINE)]
    assert model.labels_.size == len(WINE) and len(model.constraints_) == len(pairs)
    assert model.cv_results_.mean_test_score[0] == model.best_score_


def test_few_pairs_are_in_the_sample_of_large_data() -> None:
    rng = np.random.default_rng(0)
    pairs = Constraints([(0, 5_000), (1, 7_000)], [(2, 9_000)], n_points=10_000)
    supervision = Supervision(pairs, np.full(10_000, -1), None)
    rows = supervision.sample(100, rng, pairs_first=True)
    assert rows.size == 100 and len(pairs.restrict(rows)) == 3


def test_an_executor_makes_the_fits() -> None:
    pairs = sampled(40)
    here = search(n_repeats=1).fit(WINE, **pairs.fit_params())
    with ThreadPoolExecutor(2) as executor:
        there = search(n_repeats=1).fit(WINE, **pairs.fit_params(), executor=executor)
    assert (here.labels_ == there.labels_).all()
    columns = ["candidate", "mean_test_score", "expected_gain"]
    assert here.cv_results_[columns].equals(there.cv_results_[columns])
