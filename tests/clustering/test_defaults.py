"""Defaults: pairs help even if some are wrong, and weights have the unit of the data."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from inference_lab.clustering import (
    CVQE,
    LCVQE,
    ConstrainedGaussianMixture,
    HMRFKMeans,
    KernelHMRFKMeans,
    MetricKMeans,
    MPCKMeans,
    PCKMeans,
    RDPMeans,
    TVClust,
)
from inference_lab.clustering.pair_weights import weight_of_odds
from inference_lab.constraints import Constraints
from inference_lab.constraints.pair_answers import USUAL_ODDS
from inference_lab.data.datasets import load
from inference_lab.distortions.distortions import SquaredEuclidean

KINDS = (PCKMeans, HMRFKMeans, MPCKMeans)
#: Bundled with scikit-learn; features of wine and breast-cancer differ in scale by a thousand.
SETS = {name: load(name) for name in ("iris", "wine", "breast-cancer")}
WITHOUT = {
    name: adjusted_rand_score(
        s.labels, KMeans(len(s.class_names), n_init=10, random_state=0).fit_predict(s.features)
    )
    for name, s in SETS.items()
}


@pytest.mark.parametrize("wrong", [0.0, 0.1, 0.2])
@pytest.mark.parametrize("kind", KINDS)
def test_pairs_help_by_default(kind, wrong):
    gains = []
    for name, s in SETS.items():
        rng = np.random.default_rng(1)
        pairs = Constraints.sample(s.labels, len(s.labels), rng).flip(wrong, rng)
        model = kind(len(s.class_names), random_state=0).fit(s.features, **pairs.fit_params())
        gains.append(adjusted_rand_score(s.labels, model.labels_) - WITHOUT[name])
    assert min(gains) > -0.03
    # With unit weights, raw features make HMRFKMeans lose 0.1 to 0.3 if pairs are wrong.
    assert np.mean(gains) > (0.15 if wrong == 0.0 else 0.02)


STANDARDISED = {
    name: (s.features - s.features.mean(axis=0)) / s.features.std(axis=0)
    for name, s in SETS.items()
}


@pytest.mark.parametrize(("wrong", "times"), [(0.0, 1), (0.2, 1), (0.2, 5)])
@pytest.mark.parametrize("kind", [ConstrainedGaussianMixture, LCVQE, CVQE, MetricKMeans, TVClust])
def test_standardised_points_lose_nothing_to_pairs(kind, wrong, times):
    gains = []
    for name, points in STANDARDISED.items():
        classes = SETS[name].labels
        k = len(SETS[name].class_names)
        without = KMeans(k, n_init=10, random_state=0).fit_predict(points)
        rng = np.random.default_rng(1)
        pairs = Constraints.sample(classes, times * len(classes), rng).flip(wrong, rng)
        labels = kind(k, random_state=0).fit(points, **pairs.fit_params()).labels_
        gains.append(adjusted_rand_score(classes, labels) - adjusted_rand_score(classes, without))
    assert min(gains) > -0.05 and np.mean(gains) > 0.0


@pytest.mark.parametrize("wrong", [0.0, 0.2])
@pytest.mark.parametrize(
    ("kind", "n_pairs", "loss"),
    [(ConstrainedGaussianMixture, 60, 0.02), (KernelHMRFKMeans, 300, 0.05), (RDPMeans, 300, 0.05)],
)
def test_digits_lose_nothing_to_pairs(kind, n_pairs, loss, wrong):
    """Kernels of gamma = 1 / d lose 0.7, full covariances started from neighbourhoods 0.16."""
    s = load("digits-389")
    points, classes = s.features[:300], s.labels[:300]
    without = KMeans(3, n_init=10, random_state=0).fit_predict(points)
    rng = np.random.default_rng(1)
    pairs = Constraints.sample(classes, n_pairs, rng).flip(wrong, rng)
    labels = kind(3, random_state=0).fit(points, **pairs.fit_params()).labels_
    assert adjusted_rand_score(classes, labels) > adjusted_rand_score(classes, without) - loss


def test_bandwidth_has_the_scale_of_the_data():
    points = SETS["wine"].features
    models = [KernelHMRFKMeans(3, random_state=0).fit(scale * points) for scale in (1.0, 1e3)]
    assert models[0].gamma_ == pytest.approx(1e6 * models[1].gamma_)
    np.testing.assert_array_equal(models[0].labels_, models[1].labels_)
    median = np.median(pdist(points, "sqeuclidean"))
    assert models[0].gamma_ == pytest.approx(0.25 / median)


def test_pairs_that_pckmeans_violates_are_left_out_by_default():
    points = elongated()
    wrong, right = (0, 1), (0, 2)
    for kind in (LCVQE, MetricKMeans):
        fitted = kind(2, random_state=0).fit(points, must_link=[wrong, right])
        supervision = fitted.constraints_
        remaining = supervision.must_link[supervision.ml_weights > 0].tolist()
        assert remaining == [list(right)]
        all_pairs = kind(2, random_state=0).fit(points, must_link=[wrong, right], ml_weight=1.0)
        assert len(all_pairs.constraints_.must_link) == 2


def elongated(scale: float = 1.0) -> np.ndarray:
    """Return two Gaussians of deviation 1 along the line between them, and 4 across it."""
    rng = np.random.default_rng(0)
    return scale * rng.normal([[-10.0, 0.0], [10.0, 0.0]], [[1.0, 4.0]], (500, 2, 2)).reshape(-1, 2)


def test_unit_of_weights_is_the_variance_between_centroids():
    for scale in (1e-3, 1.0, 1e3):
        unit = weight_of_odds(elongated(scale), 2, SquaredEuclidean(), None)
        assert unit == pytest.approx(2.0 * scale**2, rel=0.1)
    # Costs of identical points, or of one cluster, do not differ either.
    assert weight_of_odds(np.ones((5, 2)), 2, SquaredEuclidean(), None) == 1.0
    assert weight_of_odds(elongated(), 1, SquaredEuclidean(), None) == 1.0


def test_sample_weights_are_repeated_points_in_the_unit():
    points = elongated()[::10]
    counts = np.arange(len(points)) % 3 + 1.0
    repeated = np.repeat(points, counts.astype(int), axis=0)
    unit = weight_of_odds(points, 2, SquaredEuclidean(), counts)
    assert unit == pytest.approx(weight_of_odds(repeated, 2, SquaredEuclidean(), None))


def test_default_weight_is_auto_where_there_is_a_scale():
    points = elongated()
    supervision = {"must_link": [(0, 2)], "cannot_link": [(0, 1)]}
    model = PCKMeans(2, random_state=0).fit(points, **supervision)
    unit = weight_of_odds(points - points.mean(axis=0), 2, SquaredEuclidean(), None)
    np.testing.assert_allclose(model.constraints_.ml_weights, unit * USUAL_ODDS)
    assert (
        model.constraints_ == PCKMeans(2).fit(points, **supervision, ml_weight="auto").constraints_
    )
    # A weight of one kind leaves the other at its default.
    one = PCKMeans(2, random_state=0).fit(points, **supervision, ml_weight=1.0).constraints_
    assert one.ml_weights.tolist() == [1.0]
    np.testing.assert_array_equal(one.cl_weights, model.constraints_.cl_weights)


def test_starts_by_default():
    points = elongated()
    supervision = {"must_link": [(0, 2)], "cannot_link": [(0, 1)]}
    best = PCKMeans(4, random_state=0).fit(points, **supervision)
    for init in ("neighbourhoods", "k-means++"):
        single = PCKMeans(4, init=init, random_state=0).fit(points, **supervision)
        assert best.objective_ <= single.objective_
    # Labels of all clusters leave nothing to draw.
    partial_labels = np.full(len(points), -1)
    partial_labels[:4] = range(4)
    one, ten = (
        PCKMeans(4, n_init=n, random_state=0).fit(points, partial_labels=partial_labels)
        for n in (1, "auto")
    )
    np.testing.assert_array_equal(one.labels_, ten.labels_)
    for wrong in ("many", 0):
        with pytest.raises(ValueError, match="n_init must be"):
            PCKMeans(2, n_init=wrong).fit(points)
    with pytest.raises(ValueError, match="init must be auto, neighbourhoods,"):
        PCKMeans(2, init="nearest").fit(points)
