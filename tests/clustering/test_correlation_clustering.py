"""Correlation clustering: clusters of least violated weight, against all partitions."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.estimator_checks import check_estimator
from strategies import partitions

from inference_lab.clustering import CorrelationClustering, InfeasibleConstraintsError

FOUR = np.zeros((4, 1))


def violated(labels, must, cannot, ml, cl):
    """Return the weight of the violated pairs."""
    same = np.equal.outer(labels, labels)
    return float((ml * ~same[tuple(must.T)]).sum() + (cl * same[tuple(cannot.T)]).sum())


@pytest.mark.parametrize("max_clusters", [None, 2])
@pytest.mark.parametrize("seed", range(5))
def test_violated_weight_is_the_least_of_all_partitions(seed, max_clusters):
    rng = np.random.default_rng(seed)
    pairs = np.array(list(itertools.combinations(range(7), 2)))
    wants = rng.random(len(pairs)) < 0.5
    must, cannot = pairs[wants], pairs[~wants]
    ml, cl = rng.exponential(size=len(must)), rng.exponential(size=len(cannot))
    model = CorrelationClustering(max_clusters=max_clusters, random_state=0).fit(
        np.zeros((7, 1)), must_link=must, cannot_link=cannot, ml_weight=ml, cl_weight=cl
    )
    best = min(violated(x, must, cannot, ml, cl) for x in partitions(7, max_clusters or 7))
    assert model.objective_ == pytest.approx(best)
    assert model.objective_ == pytest.approx(violated(model.labels_, must, cannot, ml, cl))
    assert model.lower_bound_ <= best + 1e-9
    assert model.n_clusters_ == np.unique(model.labels_).size <= (max_clusters or 7)
    assert model.violations_.weight == model.objective_


def test_seeds_repeat():
    """The pairs leave several partitions of which the seed decides."""
    pairs = np.array(list(itertools.combinations(range(40), 2)))
    must = np.random.default_rng(0).random(len(pairs)) < 0.5
    labellings = {0: set(), 1: set()}
    for seed in (0, 1, 0):
        model = CorrelationClustering(max_clusters=3, anneals=1, random_state=seed)
        model.fit(np.zeros((40, 1)), must_link=pairs[must], cannot_link=pairs[~must])
        labellings[seed].add(tuple(model.labels_))
    assert len(labellings[0]) == 1 and labellings[0] != labellings[1]


def test_clusters_come_back_from_votes_of_which_a_fifth_is_wrong():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 5, 400)
    pairs = np.unique(np.sort(rng.integers(0, 400, (12_000, 2)), axis=1), axis=0)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    together = (truth[pairs[:, 0]] == truth[pairs[:, 1]]) ^ (rng.random(len(pairs)) < 0.2)
    model = CorrelationClustering(random_state=0).fit(
        truth[:, np.newaxis], must_link=pairs[together], cannot_link=pairs[~together]
    )
    assert adjusted_rand_score(truth, model.labels_) > 0.95
    right = violated(
        truth,
        pairs[together],
        pairs[~together],
        np.ones(together.sum()),
        np.ones((~together).sum()),
    )
    assert model.lower_bound_ <= model.objective_ <= right


def test_frames_and_names_give_the_same_clusters():
    kinds = ["must-link", "cannot-link"]
    frame = pd.DataFrame({"i": ["a", "c"], "j": ["b", "b"], "kind": kinds})
    points = pd.DataFrame({"x": [0.0, 0.0, 0.0]}, index=["a", "b", "c"])
    named = CorrelationClustering().fit(points, pairs=frame)
    rows = CorrelationClustering().fit(points, must_link=[(0, 1)], cannot_link=[(1, 2)])
    assert named.labels_.tolist() == rows.labels_.tolist() == [0, 0, 1]


def test_check_estimator_passes_but_for_clusters_of_the_data():
    results = check_estimator(CorrelationClustering(), on_fail=None, on_skip=None)
    failed = {r["check_name"] for r in results if r["status"] == "failed"}
    assert failed == {"check_clustering"}


@pytest.mark.parametrize(
    ("settings", "arguments", "message"),
    [
        ({"max_clusters": 0}, {}, "max_clusters"),
        ({}, {"must_link": [(0, 9)]}, "9"),
        ({}, {"must_link": [(0, 1)], "ml_weight": -1.0}, "ml_weight"),
    ],
)
def test_bad_input_is_refused(settings, arguments, message):
    with pytest.raises(ValueError, match=message):
        CorrelationClustering(**settings).fit(FOUR, **arguments)


def test_a_point_without_pairs_is_alone():
    assert CorrelationClustering().fit(FOUR).labels_.tolist() == [0, 1, 2, 3]
    assert CorrelationClustering(max_clusters=1).fit(FOUR).labels_.tolist() == [0, 0, 0, 0]


# ---------------------------------------------------------------------- hard pairs


def keeps_hard_pairs(labels, must, cannot, ml, cl):
    """Whether labels keep all pairs of infinite weight."""
    same = np.equal.outer(labels, labels)
    return same[tuple(must[np.isinf(ml)].T)].all() and not same[tuple(cannot[np.isinf(cl)].T)].any()


def finite(weights):
    return np.where(np.isinf(weights), 0.0, weights)


@pytest.mark.parametrize("max_clusters", [None, 3])
@pytest.mark.parametrize("seed", range(12))
def test_hard_pairs_hold_and_the_rest_is_the_least_of_all_partitions(seed, max_clusters):
    rng = np.random.default_rng(seed)
    pairs = np.array(list(itertools.combinations(range(7), 2)))
    wants = rng.random(len(pairs)) < 0.5
    must, cannot = pairs[wants], pairs[~wants]
    ml, cl = rng.exponential(size=len(must)), rng.exponential(size=len(cannot))
    ml[rng.random(len(must)) < 0.15] = np.inf
    cl[rng.random(len(cannot)) < 0.15] = np.inf
    arguments = {"must_link": must, "cannot_link": cannot, "ml_weight": ml, "cl_weight": cl}
    weights = finite(ml), finite(cl)
    allowed = [
        x for x in partitions(7, max_clusters or 7) if keeps_hard_pairs(x, must, cannot, ml, cl)
    ]
    model = CorrelationClustering(max_clusters=max_clusters, random_state=0)
    if not allowed:
        with pytest.raises(InfeasibleConstraintsError, match="no labelling satisfies"):
            model.fit(np.zeros((7, 1)), **arguments)
        return
    model.fit(np.zeros((7, 1)), **arguments)
    assert keeps_hard_pairs(model.labels_, must, cannot, ml, cl)
    best = min(violated(x, must, cannot, *weights) for x in allowed)
    assert model.objective_ == pytest.approx(best)
    assert model.lower_bound_ <= best + 1e-9
    assert model.violations_.weight == model.objective_


@pytest.mark.parametrize("seed", range(5))
def test_bounds_prove_optima_with_hard_pairs(seed):
    """Triangles with a hard cannot-link: the lighter must-link is lost, and the bound is tight."""
    rng = np.random.default_rng(seed)
    n = 30
    first = np.arange(0, n, 3)
    must = np.concatenate([np.stack([first, first + 1], 1), np.stack([first + 1, first + 2], 1)])
    cannot = np.stack([first, first + 2], 1)
    ml = rng.exponential(size=len(must)) * 1e3
    model = CorrelationClustering(random_state=0).fit(
        np.zeros((n, 1)), must_link=must, cannot_link=cannot, ml_weight=ml, cl_weight=np.inf
    )
    best = np.minimum(ml[: n // 3], ml[n // 3 :]).sum()
    assert model.objective_ == pytest.approx(best, rel=1e-12)
    assert model.lower_bound_ == pytest.approx(best, rel=1e-10)


def test_units_of_hard_must_links_are_one_vertex():
    must, weights = [(0, 1), (1, 2), (2, 3)], [np.inf, 1.0, np.inf]
    cannot = [(0, 3), (0, 1)]
    model = CorrelationClustering(random_state=0).fit(
        FOUR, must_link=must, cannot_link=cannot, ml_weight=weights, cl_weight=[3.0, 0.5]
    )
    assert model.labels_.tolist() == [0, 0, 1, 1]
    # The must-link between the units, and the soft cannot-link within one.
    assert model.objective_ == 1.5 and model.lower_bound_ == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("settings", "arguments", "message"),
    [
        (
            {},
            {"must_link": [(0, 1), (1, 2)], "cannot_link": [(0, 2)], "sample_ids": ["a", "b", "c"]},
            "must-links connect points a and c",
        ),
        (
            {"max_clusters": 2},
            {"cannot_link": [(0, 1), (1, 2), (0, 2)]},
            "each two of the points 0, 1, 2 are a cannot-link, and there are 2 clusters",
        ),
        ({"max_clusters": 1}, {"cannot_link": [(0, 1)]}, "points 0 and 1 can be in cluster 0 only"),
    ],
)
def test_contradictions_of_hard_pairs_are_named(settings, arguments, message):
    names = arguments.get("sample_ids")
    if names is not None:
        arguments = {
            **arguments,
            "must_link": [(names[i], names[j]) for i, j in arguments["must_link"]],
            "cannot_link": [(names[i], names[j]) for i, j in arguments["cannot_link"]],
        }
    with pytest.raises(InfeasibleConstraintsError, match=message):
        CorrelationClustering(**settings).fit(
            np.zeros((3, 1)), **arguments, ml_weight=np.inf, cl_weight=np.inf
        )


def test_large_hard_problems_keep_all_hard_pairs():
    rng = np.random.default_rng(0)
    n = 1500
    truth = rng.integers(0, 300, n)
    pairs = np.unique(np.sort(rng.integers(0, n, (20_000, 2)), axis=1), axis=0)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    together = truth[pairs[:, 0]] == truth[pairs[:, 1]]
    weight = rng.exponential(size=len(pairs))
    weight[rng.random(len(pairs)) < 0.3] = np.inf
    model = CorrelationClustering(random_state=0, anneals=1).fit(
        np.zeros((n, 1)),
        must_link=pairs[together],
        cannot_link=pairs[~together],
        ml_weight=weight[together],
        cl_weight=weight[~together],
    )
    assert model.objective_ == model.lower_bound_ == 0.0


# ---------------------------------------------------------------------- pairs without data


SCORED = pd.DataFrame(
    {
        "i": ["A-007", "C-3", "A-9"],
        "j": ["B-12", "B-12", "A-007"],
        "kind": ["must-link", "must-link", "cannot-link"],
        "weight": [2.2, 1.4, np.inf],
    }
)


def test_pairs_alone_name_the_points():
    model = CorrelationClustering(random_state=0).fit(None, pairs=SCORED)
    assert model.sample_ids_.tolist() == ["A-007", "B-12", "C-3", "A-9"]
    assert model.labels_.tolist() == [0, 0, 0, 1]
    labels = CorrelationClustering(random_state=0).fit_predict(None, pairs=SCORED)
    assert labels.tolist() == [0, 0, 0, 1]
    arrays = CorrelationClustering(random_state=0).fit(
        None,
        must_link={("A-007", "B-12"), ("C-3", "B-12")},
        cannot_link=zip(["A-9"], ["A-007"], strict=True),
        cl_weight=np.inf,
    )
    clusters = dict(zip(arrays.sample_ids_.tolist(), arrays.labels_.tolist(), strict=True))
    assert clusters["A-007"] == clusters["B-12"] == clusters["C-3"] != clusters["A-9"]


def test_names_beside_pairs_add_points_without_any():
    names = ["z", "A-9", "C-3", "B-12", "A-007"]
    model = CorrelationClustering(random_state=0).fit(pairs=SCORED, sample_ids=names)
    assert model.sample_ids_.tolist() == names
    assert model.labels_.tolist() == [0, 1, 2, 2, 2]
    with pytest.raises(ValueError, match="pairs names 'A-9'"):
        CorrelationClustering().fit(None, pairs=SCORED, sample_ids=["A-007", "B-12", "C-3"])


def test_names_of_points_with_data():
    frame = pd.DataFrame({"x": 0.0}, index=["A-9", "C-3", "B-12", "A-007"])
    assert CorrelationClustering().fit(frame, pairs=SCORED).sample_ids_.tolist() == [*frame.index]
    assert CorrelationClustering().fit(FOUR).sample_ids_.tolist() == [0, 1, 2, 3]


def test_nothing_at_all_is_refused():
    with pytest.raises(ValueError, match="points are those of the pairs or of sample_ids; none"):
        CorrelationClustering().fit(None)
