"""Held-out pairs choose an estimator, or k-means without pairs if none helps."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from time import process_time
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

from inference_lab.clustering import (
    ConstrainedClusterCV,
    MPCKMeans,
    PCKMeans,
    SearchStoppedWarning,
    candidate_choice,
    cluster_cv,
)
from inference_lab.clustering.cluster_cv import candidates_for, default_candidates
from inference_lab.clustering.fit_limit import OutOfTime, check_limit, limited_to
from inference_lab.clustering.held_out_pairs import (
    PairShares,
    choose,
    expected_gains,
    gain,
    pair_folds,
    pair_groups,
    pair_shares,
    standard_error,
)
from inference_lab.clustering.race import Clock, FoldFit, Race, Runner
from inference_lab.clustering.shared_starts import all_starts, few_starts, once, shared_starts
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
    # In the order of the folds: two repetitions of five, then all pairs.
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


def test_prior_gains_are_lower_where_points_are_few() -> None:
    """Each cluster and feature needs six points; a gain that a user names holds everywhere."""
    enough, few = (6 * 3 * 4, 4), (6 * 3 * 4 - 1, 4)
    candidates = default_candidates()
    for candidate in candidates[1:]:
        assert candidate.gain_at(enough, 3) == candidate.prior_gain > 0.0
    safe = [candidate.name for candidate in candidates if candidate.gain_at(few, 3) > 0.0]
    assert safe == ["PCKMeans"]
    assert candidates[0].gain_at(few, 3) == candidates[0].gain_at(enough, 3) == 0.0
    listed = search(candidates=[(one.name, one.estimator) for one in candidates])
    assert [one.gain_at(few, 3) for one in listed._candidates(WINE)] == [
        one.gain_at(few, 3) for one in candidates
    ]
    named = search(prior_gains={"standardised": 0.5})._candidates(WINE)
    assert [one.gain_at(few, 3) for one in named] == [one.gain_at(enough, 3) for one in named]


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
    *fits, last = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in fits] == [name for name, _ in FEW]
    assert all(re.fullmatch(r".*, 3 clusters: first fit [\d.e-]+ s", line) for line in fits)
    assert re.match(r"3 of 5 folds in [\d.]+ s of processor time, at most [\d.]+ s to come", last)


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
    # A candidate has the gains of its name in the list, of the first one, scaled or not.
    gains: dict[str, float] = {}
    for candidate in raw:
        gains.setdefault(candidate.name.removesuffix(", standardised"), candidate.prior_gain)
    assert gains["k-means without pairs"] == 0.0 < gains["TVClust"]
    assert all(candidate.prior_gain == gains[candidate.name] for candidate in scaled)


# ---------------------------------------------------------------------- a race, and its limits


class Slow(PCKMeans):
    """PCKMeans that takes two seconds of processor time in each fit with pairs."""

    def fit(self, X: Any, y: Any = None, **arguments: Any) -> Any:
        end = process_time() + 2.0
        while process_time() < end:
            check_limit()
        return super().fit(X, y, **arguments)


class Worst(PCKMeans):
    """Labels that do not depend on the data, and the number of fits."""

    fits = 0

    def fit(self, X: Any, y: Any = None, **arguments: Any) -> Any:
        type(self).fits += 1
        super().fit(X, y, **arguments)
        self.labels_ = np.arange(len(X)) % 3
        return self


class Interrupted(PCKMeans):
    """PCKMeans that is interrupted in its second fit."""

    fits = 0

    def fit(self, X: Any, y: Any = None, **arguments: Any) -> Any:
        type(self).fits += 1
        if type(self).fits == 2:
            raise KeyboardInterrupt
        return super().fit(X, y, **arguments)


def test_candidates_that_are_far_behind_are_cut() -> None:
    """They are cut within the first repetition, and all fits give the same choice."""
    pairs = sampled(150).fit_params()
    Worst.fits = 0
    model = search(candidates=[*FEW, ("worst", Worst())]).fit(WINE, **pairs)
    assert Worst.fits == 3
    table = model.cv_results_.set_index("candidate")
    assert table.loc["worst", "cut"] == "behind after 3 of 10 folds"
    assert table.loc["worst", "n_fits"] == 3 and table.loc["standardised", "n_fits"] == 10
    assert table.loc["standardised", "cut"] == "" and model.stopped_ == ""
    assert model.best_params_["candidate"] == "standardised"
    # Judged by some pairs only, the candidate is compared on these.
    assert table.loc["worst", "mean_test_score"] < table.loc["raw", "mean_test_score"]
    assert table.loc["worst", "behind_best"] > 0.5


def test_the_race_changes_no_clear_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = sampled(150).fit_params()
    raced = search().fit(WINE, **pairs)
    monkeypatch.setattr(candidate_choice, "_MARGIN_WITHIN", np.inf)
    monkeypatch.setattr(candidate_choice, "_MARGIN_AFTER", np.inf)
    whole = search().fit(WINE, **pairs)
    assert raced.cv_results_["n_fits"].sum() < whole.cv_results_["n_fits"].sum() == 21
    assert (whole.cv_results_["cut"] == "").all()
    assert raced.best_params_ == whole.best_params_
    np.testing.assert_array_equal(raced.labels_, whole.labels_)


def test_numbers_of_clusters_that_are_far_behind_are_cut() -> None:
    X, truth = make_blobs(100, centers=5, cluster_std=1.0, random_state=3)
    pairs = Constraints.sample(truth, 150, np.random.default_rng(0)).fit_params()
    model = ConstrainedClusterCV([2, 5], candidates=FEW[:2], random_state=0).fit(X, **pairs)
    assert model.best_params_["n_clusters"] == 5
    rows = model.cv_results_.set_index(["candidate", "n_clusters"])
    assert rows.loc[("raw", 2), "n_fits"] == 3 < rows.loc[("raw", 5), "n_fits"]


def test_a_time_limit_ends_with_the_best_so_far() -> None:
    """The slow candidate is stopped inside its first fit, the quick ones are compared before."""
    pairs = sampled(100).fit_params()
    limited = search(candidates=[*FEW, ("slow", Slow())], time_limit=4.0, n_repeats=1)
    with pytest.warns(SearchStoppedWarning, match="the limit of 4 s of processor time was spent"):
        model = limited.fit(WINE, **pairs)
    table = model.cv_results_.set_index("candidate")
    assert table.loc["slow", ["n_fits", "cut"]].tolist() == [0, "time limit of 4 s"]
    assert np.isnan(table.loc["slow", "mean_test_score"])
    assert model.stopped_ == "time limit"
    assert model.best_params_["candidate"] == "standardised"
    assert "1 candidate of 4 could not be compared" in model.stop_in_words()


def test_the_first_candidate_is_always_judged() -> None:
    pairs = sampled(60).fit_params()
    with pytest.warns(SearchStoppedWarning):
        model = search(time_limit=1e-9).fit(WINE, **pairs)
    assert model.best_params_["candidate"] == "without pairs"
    assert model.cv_results_["n_fits"].tolist() == [1, 0, 0]
    assert np.isfinite(model.best_score_)


def test_fits_that_would_not_end_in_time_are_not_begun() -> None:
    """A fit of unknown length is expected to take as long as the slowest one."""
    pairs = sampled(60)
    calls: list[tuple[str, float]] = []

    def fit(estimator: Any, points: Any, constraints: Any, out: Any, limit: float) -> FoldFit:
        calls.append((estimator, limit))
        # In another process, whose time counts as well.
        return FoldFit(CLASSES, "", 1.0, 10.0, "elsewhere")

    folds = [np.arange(60) % 5]
    race = Race(WINE, pairs, folds, fit, Clock(64.0))
    runners = [Runner(name, 3, name, True) for name in ("simple", "complex")]
    race.run(runners, lambda runners, done, total: None)
    assert [name for name, _ in calls] == ["simple", "complex", "simple"]
    # The first fit has no limit; the others may take a quarter of it.
    assert [limit for _, limit in calls[:2]] == [np.inf, 16.0]
    assert 12.0 < calls[2][1] <= 14.0
    assert [runner.cut for runner in runners] == ["time limit of 64 s"] * 2


def test_interrupted_searches_end_with_the_best_so_far() -> None:
    pairs = sampled(100).fit_params()
    Interrupted.fits = 0
    with pytest.warns(SearchStoppedWarning, match="the search was interrupted"):
        model = search(candidates=[*FEW[:1], FEW[2], ("late", Interrupted())]).fit(WINE, **pairs)
    assert model.stopped_ == "interrupted"
    assert model.best_params_["candidate"] == "standardised"
    assert model.cv_results_["cut"].tolist() == ["", "interrupted", "interrupted"]
    # Before anything is judged there is no answer.
    Interrupted.fits = 1
    with pytest.raises(KeyboardInterrupt):
        search(candidates=[("late", Interrupted())]).fit(WINE, **pairs)


def test_a_reason_is_given_where_the_best_score_is_not_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pairs = sampled(40).fit_params()
    clear = search(n_repeats=1).fit(WINE, **sampled(150).fit_params())
    assert clear.reason_ == ""
    favoured = search(prior_gains={"without pairs": 9.0}, n_repeats=1)
    behind = favoured.fit(WINE, **pairs).reason_
    assert "on some of the pairs only: in expected gain it was behind after 3 of 5" in behind
    monkeypatch.setattr(candidate_choice, "_MARGIN_WITHIN", np.inf)
    model = favoured.fit(WINE, **pairs)
    assert model.reason_.startswith("standardised has the best score, by 0.")
    assert "without pairs is expected to gain 9.00 and standardised 0.00" in model.reason_
    noise = search(n_repeats=1).fit(WINE, **sampled(60, 0.5, 3).fit_params())
    assert noise.best_params_["candidate"] == "without pairs"
    assert "no score is clearly above chance" in noise.reason_


def test_folds_share_the_starts_without_pairs() -> None:
    """Results do not depend on the fits that share them."""
    pairs = sampled(60)
    apart = []
    for _ in range(2):
        with shared_starts():
            apart.append(PCKMeans(3, random_state=0).fit(WINE, **pairs.fit_params()))
    with shared_starts():
        together = [PCKMeans(3, random_state=0).fit(WINE, **pairs.fit_params()) for _ in range(2)]
    for model in (apart[1], *together):
        np.testing.assert_array_equal(model.labels_, apart[0].labels_)
        assert model.objective_ == apart[0].objective_
    # The final fit has all starts, unless it learns a full metric.
    for model in (PCKMeans(3, random_state=0), MPCKMeans(3, random_state=0)):
        alone = clone(model).fit(WINE, **pairs.fit_params())
        with shared_starts(), all_starts():
            assert clone(model).fit(WINE, **pairs.fit_params()).objective_ == alone.objective_
    with shared_starts():
        assert few_starts(full_metric=False)
        with all_starts():
            assert few_starts(full_metric=True) and not few_starts(full_metric=False)
    assert not few_starts(full_metric=True)


def test_shared_centroids_are_in_the_coordinates_of_the_data() -> None:
    """Points are centred inside of a fit, so a shift of all points changes nothing."""
    pairs = sampled(60).fit_params()
    with shared_starts():
        one = PCKMeans(3, random_state=0).fit(WINE, **pairs)
        other = PCKMeans(3, random_state=0).fit(WINE + 1000.0, **pairs)
    assert other.objective_ == pytest.approx(one.objective_, rel=1e-6)
    assert one.n_iter_ == other.n_iter_


def test_a_result_is_computed_once() -> None:
    calls: list[int] = []

    def compute() -> int:
        calls.append(1)
        return len(calls)

    array = np.arange(3.0)
    assert [once("kind", (array, 3), compute) for _ in range(2)] == [1, 2]
    with shared_starts():
        assert [once("kind", (array.copy(), 3), compute) for _ in range(2)] == [3, 3]
        with shared_starts():
            assert once("kind", (array, 3), compute) == 3
        assert once("kind", (array + 1.0, 3), compute) == 4
        assert once("other", (array, 3), compute) == 5


def test_fits_end_at_the_limit_of_processor_time() -> None:
    with pytest.raises(OutOfTime), limited_to(1e-9):
        PCKMeans(3, random_state=0).fit(WINE, must_link=[(0, 1)])
    with limited_to(1000.0), pytest.raises(OutOfTime), limited_to(1e-9):
        check_limit()
    with limited_to(1000.0):
        check_limit()
    check_limit()


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
