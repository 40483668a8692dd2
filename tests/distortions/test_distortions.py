"""Distortions against their definitions, point by point."""

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

import inference_lab.distortions.points as points_module
from inference_lab.clustering import (
    Bregman,
    Cosine,
    IDivergence,
    KullbackLeibler,
    SquaredEuclidean,
)
from inference_lab.distortions.distortions import as_distortion
from inference_lab.distortions.points import cluster_sums


def euclidean(x, mu, a):
    a = np.diag(a) if a.ndim == 1 else a
    return float((x - mu) @ a @ (x - mu))


def cosine(x, mu, a):
    return 1.0 - (x * a) @ mu / np.sqrt(((x * a) @ x) * ((mu * a) @ mu))


def i_divergence(x, mu, a):
    total = 0.0
    for xm, mm, am in zip(x, mu, a, strict=True):
        total += am * ((xm * np.log(xm / mm) if xm > 0 else 0.0) - xm + mm)
    return total


class ItakuraSaito(Bregman):
    """Divergence that a user adds, on positive data and without weights."""

    def generator(self, points):
        return -np.log(points).sum(axis=1)

    def gradient(self, centroids):
        return -1.0 / centroids


def itakura_saito(x, mu, a):
    return float((x / mu - np.log(x / mu) - 1).sum())


def jensen(slow):
    """Return the summed cost of two points in a cluster of their own: phi, except for squares."""
    return lambda x, y, a: slow(x, (x + y) / 2, a) + slow(y, (x + y) / 2, a)


CASES = {
    "euclidean": (SquaredEuclidean, euclidean, euclidean),
    "cosine": (Cosine, cosine, cosine),
    "i-divergence": (lambda metric: IDivergence(0.0, metric), i_divergence, jensen(i_divergence)),
    "itakura-saito": (lambda metric: ItakuraSaito(), itakura_saito, jensen(itakura_saito)),
}


def data(name, seed, n=12, d=4, k=3):
    rng = np.random.default_rng(seed)
    points = rng.gamma(1.0, size=(n, d)) + 0.01
    if name == "euclidean":
        points = rng.normal(size=(n, d))
    elif name in ("cosine", "i-divergence"):
        points[rng.random((n, d)) < 0.3] = 0.0
        points[:, 0] += 0.1
    weights = rng.gamma(1.0, size=d) + 0.1
    if name == "itakura-saito":
        weights = np.ones(d)
    centroids = rng.gamma(1.0, size=(k, d)) + 0.05
    return points, centroids, weights, rng


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", CASES)
@given(seed=st.integers(0, 10**6))
@settings(max_examples=15)
def test_costs_follow_the_definition(name, sparse, seed):
    make, slow, slow_pair = CASES[name]
    points, centroids, weights, rng = data(name, seed)
    distortion = make(weights)
    if sparse and not distortion.accepts_sparse:
        return
    given_points = csr_array(points) if sparse else points
    expected = np.array([[slow(x, mu, weights) for mu in centroids] for x in points])
    np.testing.assert_allclose(distortion.distances(given_points, centroids), expected, atol=1e-9)
    labels = rng.integers(3, size=len(points))
    np.testing.assert_allclose(
        distortion.own(given_points, centroids, labels),
        expected[np.arange(len(points)), labels],
        atol=1e-9,
    )
    np.testing.assert_array_equal(
        distortion.nearest(given_points, centroids, None), expected.argmin(axis=1)
    )
    pairs = np.array([(i, j) for i in range(len(points)) for j in range(i)])
    between = distortion.between(given_points, pairs)
    np.testing.assert_allclose(
        between, [slow_pair(points[i], points[j], weights) for i, j in pairs], atol=1e-9
    )
    # One minus a cosine near 1 is accurate to the rounding of 1, so the order of ends matters.
    np.testing.assert_allclose(
        between, distortion.between(given_points, pairs[:, ::-1]), atol=1e-15
    )
    assert between.max() <= distortion.largest(given_points) * (1 + 1e-12) + 1e-12


@pytest.mark.parametrize("name", CASES)
@given(seed=st.integers(0, 10**6))
def test_centroids_minimise_the_cost_of_their_cluster(name, seed):
    make, slow, _ = CASES[name]
    points, _, weights, rng = data(name, seed)
    distortion = make(weights)
    labels = rng.integers(2, size=len(points))
    labels[:2] = [0, 1]
    start = np.full((3, points.shape[1]), 0.5)
    centroids = distortion.centroids(points, labels, 3, start)
    np.testing.assert_array_equal(centroids[2], start[2])  # without points, it stays
    for h in range(2):
        members = points[labels == h]
        cost = sum(slow(x, centroids[h], weights) for x in members)
        for _ in range(20):
            other = centroids[h] * np.exp(rng.normal(scale=0.1, size=centroids[h].shape))
            assert cost <= sum(slow(x, other, weights) for x in members) + 1e-9
    # Shares of one are labels.
    shares = np.eye(3)[labels]
    np.testing.assert_allclose(distortion.centroids(points, shares, 3, start)[:2], centroids[:2])


def test_a_full_metric():
    points, centroids, _, rng = data("euclidean", 3)
    root = rng.normal(size=(4, 4))
    metric = root @ root.T
    distortion = SquaredEuclidean(metric)
    expected = [[euclidean(x, mu, metric) for mu in centroids] for x in points]
    np.testing.assert_allclose(distortion.distances(points, centroids), expected)
    assert distortion.log_det(4) == pytest.approx(np.linalg.slogdet(metric)[1])
    v = distortion.extent(points)
    farthest = max(euclidean(x, y, metric) for x in points for y in points)
    assert euclidean(v, np.zeros(4), metric) == pytest.approx(farthest)


@pytest.mark.parametrize("shape", ["normal", "ball", "sphere", "line", "one point"])
def test_the_farthest_pair_is_found_however_many_points_there_are(shape):
    """It is exact beyond 1,500 points as well, where a bounding box was seven times as far."""
    rng = np.random.default_rng(4)
    points = rng.normal(size=(1600, 8)) + 100.0
    if shape in ("ball", "sphere"):
        points = rng.normal(size=(1600, 8))
        points /= np.linalg.norm(points, axis=1)[:, np.newaxis]
        points *= rng.random((1600, 1)) if shape == "ball" else 1.0
    if shape == "line":
        points[:, 1:] = 0.0
    if shape == "one point":
        points[:] = points[0]
    distortion = SquaredEuclidean()
    i, j = np.triu_indices(1600, 1)
    farthest = max(
        distortion.between(points, np.stack([i[s], j[s]], axis=1)).max()
        for s in np.array_split(np.arange(i.size), 20)
    )
    assert distortion.largest(points) == pytest.approx(farthest, rel=1e-12)
    assert distortion.largest(points[:1500]) <= distortion.largest(points[:1501])


def test_mass_that_a_centroid_lacks_costs_infinity_and_smoothing_gives_it():
    points = np.array([[1.0, 0.0], [0.5, 0.5]])
    centroids = np.array([[1.0, 0.0], [0.0, 1.0]])
    costs = IDivergence(0.0).distances(points, centroids)
    np.testing.assert_allclose(costs, [[0.0, np.inf], [np.inf, np.inf]])
    smooth = IDivergence(1.0).centroids(points, np.array([0, 1]), 2, centroids)
    # (mean + 1/d) / 2, with 1/d for the printed 1/n.
    np.testing.assert_allclose(smooth, [[0.75, 0.25], [0.5, 0.5]])
    assert np.isfinite(IDivergence(1.0).distances(points, smooth)).all()


def test_kl_is_the_divergence_of_the_rows_scaled_to_one():
    counts = np.array([[4.0, 0.0, 4.0], [1.0, 1.0, 2.0]])
    prepared = KullbackLeibler().prepare(counts)
    np.testing.assert_allclose(prepared.sum(axis=1), 1.0)
    p, q = prepared[0], np.array([0.25, 0.25, 0.5])
    expected = sum(a * np.log(a / b) for a, b in zip(p, q, strict=True) if a > 0)
    assert KullbackLeibler().distances(prepared, q[np.newaxis])[0, 0] == pytest.approx(expected)


@pytest.mark.parametrize("sparse", [False, True])
def test_blocks_of_distances_do_not_depend_on_the_number_of_threads(sparse):
    """With two threads of linear algebra, a worker thread takes part."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(50_001, 16))
    centroids, seen = points[:10].copy(), set()

    class Watched(SquaredEuclidean):
        def norms(self, points):
            seen.add(threading.get_ident())
            return super().norms(points)

    rows = csr_array(points) if sparse else points
    distances = []
    for threads in (1, 2, 3):
        with threadpool_limits(threads, user_api="blas"):
            distances.append(Watched().distances(rows, centroids))
        assert (len(seen) > 1) == (threads > 1)
    assert (distances[1] == distances[0]).all() and (distances[2] == distances[0]).all()
    sample = rng.integers(len(points), size=500)
    gaps = ((points[sample, np.newaxis] - centroids) ** 2).sum(axis=2)
    assert distances[0][sample] == pytest.approx(gaps, abs=1e-9)


def test_ties_keep_the_label():
    points = np.zeros((3, 2))
    centroids = np.ones((4, 2))
    for distortion in (SquaredEuclidean(), IDivergence(0.0)):
        assert distortion.nearest(points, centroids, np.array([2, 0, 3])).tolist() == [2, 0, 3]


def test_cluster_sums_dense_and_sparse():
    rng = np.random.default_rng(0)
    points, labels = rng.normal(size=(20, 3)), rng.integers(4, size=20)
    expected = np.array([points[labels == h].sum(axis=0) for h in range(5)])
    np.testing.assert_allclose(cluster_sums(points, labels, 5), expected)
    np.testing.assert_allclose(cluster_sums(csr_array(points), labels, 5), expected)
    shares = rng.random((20, 5))
    np.testing.assert_allclose(cluster_sums(csr_array(points), shares, 5), shares.T @ points)


@pytest.mark.parametrize(
    ("distortion", "points", "message"),
    [
        (Cosine(), [[1.0, 0.0], [0.0, 0.0]], "row 1 of X is all zero"),
        (KullbackLeibler(), [[1.0, 2.0], [-1.0, 2.0]], r"X\[1, 0\] = -1.0"),
        (KullbackLeibler(), [[0.0, 0.0]], "all zero"),
        (IDivergence(), csr_array([[1.0, 0.0], [0.0, -2.0]]), r"X\[1, 1\] = -2.0"),
    ],
)
def test_data_outside_the_domain(distortion, points, message):
    given_points = points if hasattr(points, "tocsr") else np.array(points)
    with pytest.raises(ValueError, match=message):
        distortion.check(given_points)


def test_bad_settings():
    with pytest.raises(ValueError, match="unknown"):
        as_distortion("manhattan")
    with pytest.raises(TypeError, match="Distortion"):
        as_distortion(3)
    with pytest.raises(ValueError, match="positive semidefinite"):
        SquaredEuclidean(np.array([[1.0, 2.0], [2.0, 1.0]]))
    with pytest.raises(ValueError, match="smoothing"):
        IDivergence(-1.0)
    with pytest.raises(TypeError, match="no weights"):
        ItakuraSaito().reweighted(np.ones(2))


@pytest.mark.parametrize("long", [False, True])
def test_few_pairs_are_compared_for_the_farthest(monkeypatch, long):
    """Two hundred are compared for each point, instead of all 4,000."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(10, 20))[rng.integers(10, size=8_000)] * 0.8
    points += rng.normal(size=points.shape)
    points[:, 0] *= 100.0 if long else 1.0
    compared = 0

    def counted(rows, others):
        nonlocal compared
        compared += len(rows) * len(others)
        return rows @ others.T

    monkeypatch.setattr(points_module, "product", counted)
    SquaredEuclidean().extent(points)
    assert 0 < compared <= 200 * len(points)
