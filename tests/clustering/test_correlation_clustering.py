"""Correlation clustering: clusters of least violated weight, against all partitions."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.estimator_checks import check_estimator
from strategies import partitions

from inference_lab.clustering import CorrelationClustering

FOUR = np.zeros((4, 1))


def violated(labels, must, cannot, ml, cl):
    """Return the weight of the violated pairs."""
    same = np.equal.outer(labels, labels)
    return float((ml * ~same[tuple(must.T)]).sum() + (cl * same[tuple(cannot.T)]).sum())


@pytest.mark.parametrize("most", [None, 2])
@pytest.mark.parametrize("seed", range(5))
def test_violated_weight_is_the_least_of_all_partitions(seed, most):
    rng = np.random.default_rng(seed)
    pairs = np.array(list(itertools.combinations(range(7), 2)))
    wants = rng.random(len(pairs)) < 0.5
    must, cannot = pairs[wants], pairs[~wants]
    ml, cl = rng.exponential(size=len(must)), rng.exponential(size=len(cannot))
    model = CorrelationClustering(max_clusters=most, random_state=0).fit(
        np.zeros((7, 1)), must_link=must, cannot_link=cannot, ml_weight=ml, cl_weight=cl
    )
    best = min(violated(x, must, cannot, ml, cl) for x in partitions(7, most or 7))
    assert model.objective_ == pytest.approx(best)
    assert model.objective_ == pytest.approx(violated(model.labels_, must, cannot, ml, cl))
    assert model.lower_bound_ <= best + 1e-9
    assert model.n_clusters_ == np.unique(model.labels_).size <= (most or 7)
    assert model.violations_.weight == model.objective_


def test_seeds_repeat():
    """The pairs leave several partitions of which the seed decides."""
    pairs = np.array(list(itertools.combinations(range(40), 2)))
    must = np.random.default_rng(0).random(len(pairs)) < 0.5
    found = {0: set(), 1: set()}
    for seed in (0, 1, 0):
        model = CorrelationClustering(max_clusters=3, anneals=1, random_state=seed)
        model.fit(np.zeros((40, 1)), must_link=pairs[must], cannot_link=pairs[~must])
        found[seed].add(tuple(model.labels_))
    assert len(found[0]) == 1 and found[0] != found[1]


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
    ("settings", "given", "message"),
    [
        ({"max_clusters": 0}, {}, "max_clusters"),
        ({}, {"must_link": [(0, 9)]}, "9"),
        ({}, {"cannot_link": [(0, 1)], "cl_weight": np.inf}, "must be finite"),
        ({}, {"must_link": [(0, 1)], "ml_weight": -1.0}, "ml_weight"),
    ],
)
def test_bad_input_is_refused(settings, given, message):
    with pytest.raises(ValueError, match=message):
        CorrelationClustering(**settings).fit(FOUR, **given)


def test_a_point_without_pairs_is_alone():
    assert CorrelationClustering().fit(FOUR).labels_.tolist() == [0, 1, 2, 3]
    assert CorrelationClustering(max_clusters=1).fit(FOUR).labels_.tolist() == [0, 0, 0, 0]
