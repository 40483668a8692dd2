"""Confidences and groups of pairs: log-odds, reliabilities, and their way to the weights."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from inference_lab.clustering import (
    ConstrainedClusterCV,
    ConstrainedGaussianMixture,
    CorrelationClustering,
    HMRFKMeans,
    LogOdds,
    PCKMeans,
    TVClust,
    fit_on_sample,
)
from inference_lab.clustering.cluster_table import no_gain
from inference_lab.clustering.pair_reliability import judged
from inference_lab.clustering.pair_weights import weight_of_odds
from inference_lab.clustering.supervision import supervision_of
from inference_lab.constraints import Constraints
from inference_lab.constraints.pair_answers import SUREST, USUAL_ODDS
from inference_lab.distortions.distortions import SquaredEuclidean

#: Share of right must-links of each group; wrong ones, and all of "chance", are random.
SHARES = {"good": 0.95, "fair": 0.7, "poor": 0.4, "chance": 0.0}


def blobs(seed: int = 0, k: int = 6, size: int = 60):
    """Return overlapping Gaussians and their classes."""
    rng = np.random.default_rng(seed)
    truth = np.repeat(np.arange(k), size)
    return rng.normal(size=(k, 8))[truth] * 2.0 + rng.normal(size=(k * size, 8)), truth


def grouped(truth, rng, count: int = 150):
    """Return must-links of the groups, and right and random cannot-links."""
    rows = []
    for group, share in SHARES.items():
        for number in range(count):
            i = int(rng.integers(len(truth)))
            partners = truth == truth[i] if number < share * count else truth != truth[i]
            if group == "chance":
                partners = np.ones(len(truth), dtype=bool)
            partners[i] = False
            rows.append((i, int(rng.choice(np.flatnonzero(partners))), "must-link", group))
    for group in ("apart", "random"):
        for _ in range(400):
            i = int(rng.integers(len(truth)))
            partners = truth != truth[i] if group == "apart" else np.arange(len(truth)) != i
            rows.append((i, int(rng.choice(np.flatnonzero(partners))), "cannot-link", group))
    return pd.DataFrame(rows, columns=["i", "j", "kind", "group"])


@pytest.fixture(scope="module")
def drawn():
    X, truth = blobs()
    frame = grouped(truth, np.random.default_rng(1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = PCKMeans(6, random_state=0).fit(X, pairs=frame)
    return X, truth, frame, model


def table_of(model, kind):
    table = model.pair_reliability_
    return table[table["kind"] == kind].set_index("group")


def test_reliabilities_of_drawn_groups_are_recovered(drawn):
    must = table_of(drawn[-1], "must-link")
    for group, share in SHARES.items():
        right = share if share else 1.0 / 6.0
        assert must.loc[group, "reliability"] == pytest.approx(right, abs=0.2), group
    assert must["weight"].is_monotonic_decreasing
    assert (must["pairs"] == 150).all()


def test_groups_at_chance_have_no_weight(drawn):
    model = drawn[-1]
    assert table_of(model, "must-link").loc["chance", "weight"] == 0.0
    cannot = table_of(model, "cannot-link")
    assert cannot.loc["apart", "weight"] > 3 * cannot.loc["random", "weight"]


def test_weights_are_those_of_the_groups_in_the_unit_of_the_data(drawn):
    X, _, frame, model = drawn
    unit = weight_of_odds(X - X.mean(axis=0), 6, SquaredEuclidean(), None)
    weight = table_of(model, "must-link")["weight"]
    place = {tuple(pair): at for at, pair in enumerate(model.constraints_.must_link.tolist())}
    pairs = np.sort(frame[["i", "j"]].to_numpy(), axis=1)
    alone = ~pd.DataFrame(pairs).duplicated(keep=False)
    for pair, group, kind in zip(
        pairs[alone].tolist(), frame["group"][alone], frame["kind"][alone], strict=True
    ):
        if kind == "must-link" and weight[group] > 0:
            expected = unit * USUAL_ODDS * weight[group]
            assert model.constraints_.ml_weights[place[tuple(pair)]] == pytest.approx(expected)


def test_kinds_of_a_group_are_judged_apart(drawn):
    X, _, frame, _ = drawn
    one = frame.assign(group="all")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = PCKMeans(6, random_state=0).fit(X, pairs=one).pair_reliability_
    assert table["kind"].tolist() == ["must-link", "cannot-link"]
    assert table["pairs"].tolist() == [600, 800]


def test_groups_are_forgotten_by_the_next_fit(drawn):
    X, _, frame, _ = drawn
    model = PCKMeans(6, random_state=0, n_init=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, pairs=frame)
        assert len(model.pair_reliability_) == 6
        model.fit(X, pairs=frame.drop(columns="group"))
    assert not hasattr(model, "pair_reliability_")


# ---------------------------------------------------------------------- confidences


def frame_of(*rows, columns=("i", "j", "kind", "confidence")):
    return pd.DataFrame(rows, columns=list(columns))


def test_answers_about_one_pair_add_up():
    odds = np.log([9.0, 4.0, 1.5])
    frame = frame_of(
        (0, 1, "must-link", 0.9),
        (1, 0, "must-link", 0.8),
        (2, 3, "must-link", 0.8),
        (2, 3, "cannot-link", 0.9),
        (4, 5, "must-link", 0.6),
        (4, 5, "cannot-link", 0.6),
    )
    c = Constraints.from_frame(frame, range(6))
    assert c.must_link.tolist() == [[0, 1], [4, 5]]
    assert c.cannot_link.tolist() == [[2, 3]]
    assert c.ml_weights * USUAL_ODDS == pytest.approx([odds[0] + odds[1], 0.0])
    assert c.cl_weights * USUAL_ODDS == pytest.approx([odds[0] - odds[1]])


def test_sure_confidences_are_finite_and_even_ones_have_no_weight():
    frame = frame_of((0, 1, "must-link", 1.0), (1, 2, "must-link", 0.5), (0, 2, "cannot-link", 0.2))
    with pytest.warns(UserWarning, match=r"2 pairs of 3 with a confidence of 0\.5 or less"):
        c = Constraints.from_frame(frame, range(3))
    assert c.ml_weights == pytest.approx([np.log(SUREST / (1 - SUREST)) / USUAL_ODDS, 0.0])
    assert c.cl_weights.tolist() == [0.0]


def test_confidences_change_weights_by_their_log_odds():
    X, _ = blobs(k=2, size=10)
    frame = frame_of(
        (0, 1, "must-link", 0.9), (2, 3, "must-link", 0.6), (0, 15, "cannot-link", 0.8)
    )
    supervision, table = judged(X, supervision_of(X, {"pairs": frame}), 2)
    assert table is None
    c = supervision.constraints
    mean = (np.log(9.0) + np.log(1.5)) / 2
    level = (USUAL_ODDS + mean) / 2
    expected = [level + np.log(9.0) - mean, level + np.log(1.5) - mean]
    assert c.ml_weights * USUAL_ODDS == pytest.approx(expected)
    assert c.cl_weights * USUAL_ODDS == pytest.approx([(USUAL_ODDS + np.log(4.0)) / 2])


@pytest.mark.parametrize(
    ("confidence", "error", "match"),
    [
        (0.0, ValueError, "row 0 of pairs .* has no confidence above 0 and up to 1"),
        (1.5, ValueError, "has no confidence"),
        (np.nan, ValueError, "has no confidence"),
        ("high", TypeError, "numbers are needed"),
    ],
)
def test_other_confidences_are_refused(confidence, error, match):
    with pytest.raises(error, match=match):
        PCKMeans(2).fit(np.eye(4), pairs=frame_of((0, 1, "must-link", confidence)))


def test_weights_beside_confidences_are_refused():
    frame = frame_of((0, 1, "must-link", 0.9)).assign(weight=1.0)
    with pytest.raises(ValueError, match="column weight beside confidence or group"):
        PCKMeans(2).fit(np.eye(4), pairs=frame)
    with pytest.raises(ValueError, match="left out where that has weights, confidences or groups"):
        PCKMeans(2).fit(np.eye(4), pairs=frame.drop(columns="weight"), ml_weight=2.0)
    with pytest.raises(ValueError, match="has no group"):
        PCKMeans(2).fit(
            np.eye(4),
            pairs=frame_of((0, 1, "must-link", None), columns=["i", "j", "kind", "group"]),
        )


def test_log_odds_of_arrays_have_the_unit_of_auto():
    X, _ = blobs(k=2, size=20)
    links = [(0, 1), (2, 3)]
    model = PCKMeans(2, random_state=0).fit(X, must_link=links, ml_weight=LogOdds([1.0, 3.0]))
    unit = weight_of_odds(X - X.mean(axis=0), 2, SquaredEuclidean(), None)
    assert model.constraints_.ml_weights == pytest.approx([unit, 3.0 * unit])
    mixture = ConstrainedGaussianMixture(2, random_state=0).fit(
        X, must_link=links, ml_weight=LogOdds([1.0, 3.0])
    )
    assert mixture.constraints_.ml_weights == pytest.approx([1.0, 3.0])
    plain = TVClust(2, random_state=0).fit(X, must_link=links, ml_weight=LogOdds([1.0, 3.0]))
    assert plain.constraints_.ml_weights == pytest.approx([1.0 / USUAL_ODDS, 3.0 / USUAL_ODDS])
    with pytest.raises(ValueError, match="cl_weight must be LogOdds or left out"):
        PCKMeans(2).fit(
            X, must_link=links, cannot_link=links, ml_weight=LogOdds([1, 3]), cl_weight=2.0
        )


# ---------------------------------------------------------------------- ways to a fit


def test_names_of_rows_and_a_pipeline_give_the_same_weights(drawn):
    X, _, frame, _ = drawn
    names = np.array([f"text {row}" for row in range(len(X))])
    named = frame.assign(i=names[frame["i"]], j=names[frame["j"]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = HMRFKMeans(6, random_state=0, n_init=1).fit(X, pairs=frame)
        by_name = HMRFKMeans(6, random_state=0, n_init=1).fit(X, pairs=named, sample_ids=names)
        data = pd.DataFrame(X, index=names).add_prefix("x")
        piped = make_pipeline(
            StandardScaler(with_std=False), HMRFKMeans(6, random_state=0, n_init=1)
        )
        piped.set_output(transform="pandas").fit(data, hmrfkmeans__pairs=named)
    assert by_name.constraints_ == model.constraints_
    pd.testing.assert_frame_equal(by_name.pair_reliability_, model.pair_reliability_)
    assert piped[-1].pair_reliability_["pairs"].tolist() == [150] * 4 + [400] * 2


def test_constraints_with_groups_go_through_files_and_fit_params(drawn, tmp_path):
    X, _, frame, model = drawn
    c = Constraints.from_frame(frame, range(len(X)))
    c.write_csv(tmp_path / "pairs.csv")
    again = Constraints.read_csv(tmp_path / "pairs.csv", len(X))
    assert again == c
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = PCKMeans(6, random_state=0).fit(X, **again.fit_params())
    pd.testing.assert_frame_equal(other.pair_reliability_, model.pair_reliability_)
    part = c.restrict(np.arange(30), renumber=True)
    assert set(part.fit_params()["pairs"]["group"]) <= set(frame["group"])
    assert part.fit_params()["pairs"]["i"].max() < 30


def test_the_search_judges_groups_once_and_passes_weights_on(drawn):
    X, _, frame, _ = drawn
    seen = []

    class Recorded(PCKMeans):
        def fit(self, X, y=None, must_link=None, cannot_link=None, ml_weight=None, cl_weight=None):
            seen.append(ml_weight)
            return super().fit(
                X,
                must_link=must_link,
                cannot_link=cannot_link,
                ml_weight=ml_weight,
                cl_weight=cl_weight,
            )

    search = ConstrainedClusterCV(
        6, candidates=[("recorded", Recorded(n_init=1))], n_repeats=1, n_splits=2, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search.fit(X, pairs=frame)
    assert len(search.pair_reliability_) == 6
    assert seen and all(isinstance(weight, LogOdds) for weight in seen)
    assert (search.constraints_.ml_weights > 0).all()


def test_fits_on_a_sample_judge_groups(drawn):
    X, _, frame, _ = drawn
    model = PCKMeans(6, random_state=0, n_init=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit_on_sample(model, X, 200, pairs=frame, random_state=0)
    assert "good" in set(model.pair_reliability_["group"])


def test_correlation_clustering_refuses_groups_and_takes_confidences(drawn):
    frame = frame_of((0, 1, "must-link", 0.9), (1, 2, "cannot-link", 0.9))
    assert CorrelationClustering().fit(None, pairs=frame).labels_.tolist() == [0, 0, 1]
    with pytest.raises(ValueError, match="cannot judge groups"):
        CorrelationClustering().fit(None, pairs=frame.drop(columns="confidence").assign(group=1))


# ---------------------------------------------------------------------- sets


def test_sets_are_all_pairs_or_chains():
    c = Constraints.from_sets([["a", "b", "c"]], [["a", "d"]], sample_ids=list("abcd"))
    assert c.must_link.tolist() == [[0, 1], [0, 2], [1, 2]]
    assert c.cannot_link.tolist() == [[0, 3]]
    chain = Constraints.from_sets([range(21)], n_points=21)
    assert len(chain.must_link) == 20
    assert len(Constraints.from_sets([range(20)], n_points=20).must_link) == 190
    assert len(Constraints.from_sets([], [range(21)], n_points=21).cannot_link) == 210
    with pytest.raises(ValueError, match="pairs a point with itself"):
        Constraints.from_sets([[0, 0]], n_points=2)
    with pytest.warns(UserWarning, match="1 set of pairs with a single row"):
        Constraints.from_sets([[0], [0, 1]], n_points=2)
    with pytest.raises(TypeError, match="either n_points or sample_ids"):
        Constraints.from_sets([[0, 1]])


def test_sets_in_a_table_and_in_a_file(tmp_path):
    table = pd.DataFrame(
        [
            ("first", "a", "must-link", "short prompt"),
            ("first", "b", "must-link", "short prompt"),
            ("second", "c", "cannot-link", "long prompt"),
            ("first", "c", "must-link", "short prompt"),
            ("second", "d", "cannot-link", "long prompt"),
        ],
        columns=["set", "row", "kind", "group"],
    )
    c = Constraints.from_frame(table, list("abcd"))
    assert c.must_link.tolist() == [[0, 1], [0, 2], [1, 2]]
    assert c.cannot_link.tolist() == [[2, 3]]
    assert c.answers.names == ("short prompt", "long prompt")
    table.to_csv(tmp_path / "sets.csv", index=False)
    assert Constraints.read_csv(tmp_path / "sets.csv", sample_ids=list("abcd")) == c
    words = table.assign(kind=table["kind"].replace({"must-link": "yes", "cannot-link": "no"}))
    words.to_csv(tmp_path / "words.csv", index=False)
    assert Constraints.read_csv(tmp_path / "words.csv", sample_ids=list("abcd")) == c
    with pytest.raises(ValueError, match="the set 'first' of pairs has several values of kind"):
        Constraints.from_frame(table.assign(kind=["must-link", *["cannot-link"] * 4]), list("abcd"))
    with pytest.raises(ValueError, match="the set 'first' of pairs has the row 'a' twice"):
        Constraints.from_frame(table.assign(row=["a", "a", "c", "b", "d"]), list("abcd"))
    with pytest.raises(ValueError, match="beside set and row"):
        Constraints.from_frame(table.assign(i="a"), list("abcd"))


# ---------------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("gain", "words"),
    [
        ((0.01, 0.02), ": your pairs change nothing that they can show"),
        ((0.1, 0.02), ""),
        ((-0.1, 0.02), ": your pairs did not help"),
        ((np.nan, np.nan), ""),
    ],
)
def test_a_gain_that_may_be_chance_is_named(gain, words):
    assert no_gain(gain) == words


@pytest.mark.parametrize(
    "estimator", [ConstrainedGaussianMixture(2), TVClust(2), ConstrainedClusterCV(2)]
)
def test_sparse_data_are_refused_with_the_remedy(estimator):
    with pytest.raises(TypeError, match=r"needs dense data\. HMRFKMeans, PCKMeans .*TruncatedSVD"):
        estimator.fit(csr_array(np.eye(6)))


def test_named_estimators_take_sparse_data_with_groups():
    X, truth = blobs(k=3, size=40)
    frame = grouped(truth, np.random.default_rng(0), 20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = PCKMeans(3, random_state=0, n_init=1).fit(csr_array(np.abs(X)), pairs=frame)
    assert len(model.pair_reliability_) == 6


def test_groups_are_judged_where_the_number_of_clusters_is_open(drawn):
    X, _, frame, _ = drawn
    model = TVClust(random_state=0, max_iter=5).fit(X, pairs=frame)
    assert model.n_clusters == "auto" and len(model.pair_reliability_) > 0
