"""Attributes and distances agree with scikit-learn's KMeans, in all estimators."""

from functools import partial
from typing import Any, get_args

import numpy as np
import pytest
from clusterers import KINDS, estimator_of
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.validation import has_fit_parameter

from inference_lab.clustering import (
    CVQE,
    LCVQE,
    BregmanKMeans,
    ConstrainedKMeans,
    COPKMeans,
    HMRFKMeans,
    KernelHMRFKMeans,
    MetricKMeans,
    MPCKMeans,
    PCKMeans,
    SeededKMeans,
    SphericalKMeans,
)
from inference_lab.clustering.cop_kmeans import Order
from inference_lab.constraints import Constraints

RNG = np.random.default_rng(5)
TRUTH = np.repeat([0, 1, 2], 10)
#: Values that float32 represents exactly, so both types hold the same data.
POINTS = (RNG.normal(size=(30, 2)) + 4.0 * np.array([[1, 1], [3, 1], [1, 3]])[TRUTH]).astype(
    np.float32
)
POINTS = np.abs(POINTS) + np.float32(0.25)
COUNTS = RNG.integers(1, 4, size=30).astype(float)
PAIRS: dict[str, Any] = {"must_link": [(0, 1), (10, 12)], "cannot_link": [(0, 12), (3, 20)]}
#: Estimators whose costs are log-densities instead of distances to centroids.
DENSITIES = {
    "AnnealedConstrainedMixture",
    "ConstrainedGaussianMixture",
    "TVClust",
}


def gaps(points: Any, centroids: Any) -> Any:
    """Return Euclidean distances, from their definition."""
    return np.sqrt(((points[:, np.newaxis] - centroids) ** 2).sum(axis=2))


@pytest.mark.parametrize("kind", KINDS, ids=lambda e: e.__name__)
def test_single_precision_stays_and_double_precision_does(kind: Any) -> None:
    one = estimator_of(kind).fit(POINTS)
    two = clone(one).fit(POINTS.astype(np.float64))
    np.testing.assert_array_equal(one.labels_, two.labels_)
    np.testing.assert_array_equal(one.predict(POINTS), two.predict(POINTS))
    for model, dtype in ((one, np.float32), (two, np.float64)):
        outputs = model.transform(POINTS.astype(dtype))
        assert outputs.dtype == dtype
        assert outputs.shape == (30, len(model.get_feature_names_out()))
        assert model.labels_.dtype == model.predict(POINTS).dtype == np.int64
        if not isinstance(model, KernelHMRFKMeans):
            assert model.cluster_centers_.dtype == dtype
    np.testing.assert_allclose(one.transform(POINTS), two.transform(POINTS), rtol=1e-4, atol=1e-3)
    whole = np.round(POINTS).astype(np.int32)
    assert clone(one).fit(whole).transform(whole).dtype == np.float64


@pytest.mark.parametrize(
    "kind", [k for k in KINDS if k.__name__ not in DENSITIES], ids=lambda e: e.__name__
)
def test_transform_is_euclidean_and_inertia_its_squares(kind: Any) -> None:
    points = POINTS.astype(np.float64)
    model = estimator_of(kind).fit(points)
    if isinstance(model, KernelHMRFKMeans):
        model = estimator_of(kind).set_params(kernel="linear").fit(points)
        means = [points[model.labels_ == h].mean(axis=0) for h in range(3)]
        np.testing.assert_allclose(model.transform(points), gaps(points, means), atol=1e-6)
        return
    if isinstance(model, SphericalKMeans):
        lengths = np.linalg.norm(points, axis=1, keepdims=True)
        expected = 1.0 - points / lengths @ model.cluster_centers_.T
    else:
        metric = model.metric_.weights
        # Without pairs, a metric is diagonal, in one form or the other.
        scale = (
            np.ones(2)
            if metric is None
            else np.sqrt(np.diag(metric) if metric.ndim == 2 else metric)
        )
        expected = gaps(points * scale, model.cluster_centers_ * scale)
    np.testing.assert_allclose(model.transform(points), expected, atol=1e-6)
    power = 1 if isinstance(model, SphericalKMeans) else 2
    closest = expected.min(axis=1) ** power
    assert model.inertia_ == pytest.approx(closest.sum())
    assert model.score(points) == pytest.approx(-model.inertia_)
    if not has_fit_parameter(model, "sample_weight"):
        return
    weighted = clone(model).fit(points, sample_weight=COUNTS)
    closest = weighted.transform(points).min(axis=1) ** power
    assert weighted.inertia_ == pytest.approx(COUNTS @ closest)


@pytest.mark.parametrize(
    ("kind", "of_inertia", "settings"),
    [
        (BregmanKMeans, 1.0, {"tol": 0.0}),
        (PCKMeans, 1.0, {"tol": 0.0}),
        (HMRFKMeans, 1.0, {"tol": 0.0}),
        *((COPKMeans, 1.0, {"tol": 0.0, "order": order}) for order in get_args(Order)),
        (LCVQE, 0.5, {}),
        (CVQE, 0.5, {}),
    ],
)
@given(seed=st.integers(0, 2**32 - 1), k=st.integers(1, 6), away=st.sampled_from([0.0, 1e2, 1e7]))
def test_k_means_from_the_same_start_gives_the_same(
    kind: Any, of_inertia: float, settings: Any, seed: int, k: int, away: float
) -> None:
    """Check without pairs, far from the origin, and with and without sample weights."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(60, 3)) + 2.0 * rng.normal(size=(k, 3))[rng.integers(k, size=60)]
    counts = rng.integers(0, 4, size=60).astype(float)
    counts[:k] = 1.0
    theirs = KMeans(k, init=points[:k], n_init=1, tol=0.0, algorithm="lloyd")
    theirs.fit(points, sample_weight=counts)
    ours = kind(k, init=points[:k] + away, max_iter=300, **settings)
    ours.fit(points + away, sample_weight=counts)
    np.testing.assert_array_equal(ours.labels_, theirs.labels_)
    np.testing.assert_array_equal(ours.predict(points + away), ours.labels_)
    assert ours.inertia_ == pytest.approx(theirs.inertia_, rel=1e-6)
    assert ours.objective_ == pytest.approx(of_inertia * theirs.inertia_, rel=1e-6)
    np.testing.assert_allclose(ours.cluster_centers_ - away, theirs.cluster_centers_, atol=1e-7)
    assert ours.converged_


def test_inertia_does_not_depend_on_pair_weights() -> None:
    model = PCKMeans(3, random_state=0).fit(POINTS, cannot_link=[(0, 1)], cl_weight=100.0)
    assert (model.predict(POINTS) != model.labels_).any()
    squares = gaps(POINTS.astype(float), model.cluster_centers_.astype(float)).min(axis=1) ** 2
    assert model.inertia_ == pytest.approx(squares.sum(), rel=1e-5)
    assert model.inertia_ < model.objective_


@pytest.mark.parametrize("kind", [MPCKMeans, partial(MPCKMeans, metric="full"), MetricKMeans])
def test_a_learnt_metric(kind: Any) -> None:
    points = POINTS.astype(np.float64)
    model = kind(3, random_state=0).fit(points, **PAIRS, sample_weight=COUNTS)
    learnt = model.metric_.weights
    matrix = np.diag(learnt) if learnt.ndim == 1 else learnt
    gap = points[:, np.newaxis] - model.cluster_centers_
    squares = np.einsum("ihm,mn,ihn->ih", gap, matrix, gap)
    np.testing.assert_allclose(model.transform(points), np.sqrt(squares), atol=1e-6)
    assert model.inertia_ == pytest.approx(COUNTS @ squares.min(axis=1))
    np.testing.assert_array_equal(model.predict(points), squares.argmin(axis=1))


@pytest.mark.parametrize("distortion", ["kl", "i-divergence", "cosine"])
def test_other_distortions_transform_to_costs(distortion: Any) -> None:
    model = HMRFKMeans(3, distortion=distortion, random_state=0).fit(POINTS, sample_weight=COUNTS)
    costs = model.transform(POINTS)
    assert costs.dtype == np.float32
    assert model.inertia_ == pytest.approx(COUNTS @ costs.min(axis=1), rel=1e-5)
    np.testing.assert_array_equal(model.predict(POINTS), costs.argmin(axis=1))


@pytest.mark.parametrize("distortion", ["cosine", "kl"])
@pytest.mark.parametrize(
    "kind", [BregmanKMeans, COPKMeans, ConstrainedKMeans, HMRFKMeans, SeededKMeans]
)
def test_sparse_data_give_the_clusters_of_dense_data(kind: Any, distortion: Any) -> None:
    rng = np.random.default_rng(2)
    truth = rng.integers(3, size=60)
    counts = rng.poisson(0.2, size=(60, 30)).astype(float)
    words = truth[:, np.newaxis] * 10 + rng.integers(10, size=(60, 5))
    counts[np.arange(60)[:, np.newaxis], words] += 2
    supervision: dict[str, Any] = {}
    if kind in (ConstrainedKMeans, SeededKMeans):
        supervision = {"partial_labels": np.where(np.arange(60) < 12, truth, -1)}
    elif kind is not BregmanKMeans:
        supervision = Constraints.sample(truth, 60, rng).fit_params()
    dense, sparse = (
        kind(3, distortion=distortion, n_init=3, random_state=0).fit(data, **supervision)
        for data in (counts, csr_array(counts))
    )
    np.testing.assert_array_equal(dense.labels_, sparse.labels_)
    assert adjusted_rand_score(truth, sparse.labels_) > 0.7


def test_sparse_data_of_single_precision() -> None:
    sparse = csr_array(np.where(POINTS > 4.0, POINTS, np.float32(0)))
    for model in (BregmanKMeans(3, random_state=0), SphericalKMeans(3, random_state=0)):
        model.fit(sparse)
        assert model.cluster_centers_.dtype == model.transform(sparse).dtype == np.float32
