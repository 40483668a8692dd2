"""Stability of clusters over resampled rows, and the membership of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.cluster import AgglomerativeClustering, KMeans
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from inference_lab.clustering import ConstrainedGaussianMixture, PCKMeans
from inference_lab.clustering.stability import _resampled, membership_of, stability_of
from inference_lab.constraints import Constraints

RNG = np.random.default_rng(0)
#: Two clusters far apart, and a third group in the middle of the second.
POINTS = np.concatenate([RNG.normal(size=(100, 2)), RNG.normal(size=(100, 2)) + 8])
TRUTH = np.repeat([0, 1], 100)
NO_PAIRS = Constraints([], [], n_points=200)


def test_clusters_that_exist_come_back_and_others_do_not() -> None:
    model = KMeans(2, n_init=3, random_state=0).fit(POINTS)
    stable = stability_of(model, POINTS, NO_PAIRS, model.labels_, 60.0)
    assert stable.jaccard.tolist() == [1.0, 1.0]
    assert stable.refits == stable.planned == 20 and 110 < stable.rows < 140
    # A single cluster in four parts has no parts that come back.
    alone = np.random.default_rng(1).normal(size=(200, 5))
    model = KMeans(4, n_init=1).fit(alone)
    parts = stability_of(model, alone, NO_PAIRS, model.labels_, 60.0)
    assert (parts.jaccard < 0.75).all()


def test_time_limits_the_number_of_refits() -> None:
    model = KMeans(2, n_init=3, random_state=0).fit(POINTS)
    nothing = stability_of(model, POINTS, NO_PAIRS, model.labels_, 0.0)
    assert nothing.refits == 0 and np.isnan(nothing.jaccard).all()
    once = stability_of(model, POINTS, NO_PAIRS, model.labels_, 1e-6)
    assert once.refits == 1


def test_samples_have_most_rows_and_pairs() -> None:
    rng = np.random.default_rng(0)
    pairs = Constraints.sample(TRUTH, 60, rng)
    rows, rest = _resampled(pairs, 200, rng)
    assert len(np.unique(rows)) == len(rows) and 100 < len(rows) < 160
    assert 30 < len(rest) < 46
    must = {tuple(pair) for pair in pairs.must_link.tolist()}
    assert {tuple(pair) for pair in rows[rest.must_link].tolist()} <= must
    # Large data are sampled further.
    rows, _ = _resampled(Constraints([], [], n_points=50_000), 50_000, rng)
    assert len(rows) == 5000


def test_impossible_refits_count_as_no_overlap() -> None:
    points = np.arange(4.0).reshape(-1, 1)
    model = KMeans(4, n_init=1, random_state=0).fit(points)
    labels = model.labels_
    of = stability_of(model, points, Constraints([], [], n_points=4), labels, 60.0)
    assert of.refits == 20 and (of.jaccard < 0.6).all()


@pytest.mark.parametrize(
    "model",
    [
        PCKMeans(2, random_state=0),
        KMeans(2, n_init=1, random_state=0),
        make_pipeline(StandardScaler(), PCKMeans(2, random_state=0)),
        AgglomerativeClustering(2),
        ConstrainedGaussianMixture(2, random_state=0),
        make_pipeline(StandardScaler(), ConstrainedGaussianMixture(2, random_state=0)),
    ],
)
def test_rows_between_the_centres_are_the_least_certain(model: Any) -> None:
    points = np.concatenate([POINTS, [[4.0, 4.0]]])
    model.fit(points)
    labels = np.asarray((model[-1] if hasattr(model, "steps") else model).labels_)
    of = membership_of(model, points, labels)
    assert int(of.confidence.argmin()) == 200
    assert of.second[200] == 1 - labels[200]
    assert of.kind == ("posterior" if "Mixture" in str(model) else "distance")
    assert of.distance[200] > np.median(of.distance)
    assert (of.confidence <= 1.0 + 1e-12).all()


def test_a_row_that_pairs_move_has_a_negative_confidence() -> None:
    points = np.array([[0.0], [1.0], [8.0], [9.0], [2.0]])
    model = PCKMeans(2, random_state=0).fit(points, must_link=[(4, 2), (4, 3)], ml_weight=np.inf)
    of = membership_of(model, points, model.labels_)
    assert of.confidence[4] < 0.0 and of.uncertain[4]


def test_one_cluster_is_certain() -> None:
    model = KMeans(1, n_init=1).fit(POINTS)
    of = membership_of(model, POINTS, model.labels_)
    assert not of.uncertain.any() and (of.second == 0).all()
