"""The baselines without constraints: against scikit-learn, plain Python and brute force."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.special import rel_entr
from sklearn.base import clone

from inference_lab.clustering import (
    Bregman,
    HMRFKMeans,
    IDivergence,
    KullbackLeibler,
)
from inference_lab.clustering.bregman_kmeans import BregmanKMeans, SphericalKMeans

Floats = npt.NDArray[np.float64]


class Logistic(Bregman):
    """Distortion that a user adds in a few lines."""

    def generator(self, points: Floats) -> Floats:
        return np.asarray(np.logaddexp(0, points).sum(axis=1))

    def gradient(self, centroids: Floats) -> Floats:
        return 1.0 / (1.0 + np.exp(-centroids))


def blobs(seed: int, n: int = 60, d: int = 3, k: int = 4) -> Floats:
    rng = np.random.default_rng(seed)
    return 2.0 * rng.normal(size=(k, d))[rng.integers(k, size=n)] + rng.normal(size=(n, d))


CASES: dict[str, Any] = {
    "euclidean": "euclidean",
    "cosine": "cosine",
    "kl": KullbackLeibler(smoothing=0.0),
    "i-divergence": IDivergence(smoothing=0.0),
    "logistic": Logistic(),
}


def data_for(name: str, rng: np.random.Generator, n: int = 25, d: int = 4) -> Floats:
    if name in ("kl", "i-divergence", "cosine"):
        counts = rng.poisson(rng.choice([0.3, 1.0, 5.0], size=(n, 1)), size=(n, d)).astype(float)
        counts[counts.sum(axis=1) == 0, 0] = 1.0
        return counts
    return 3.0 * rng.normal(size=(n, d))


@given(
    st.sampled_from(sorted(CASES)),
    st.integers(0, 2**32 - 1),
    st.integers(1, 5),
    st.sampled_from(["k-means++", "random"]),
)
def test_the_objective_never_rises(name: str, seed: int, k: int, init: Any) -> None:
    points = data_for(name, np.random.default_rng(seed))
    model = BregmanKMeans(k, distortion=CASES[name], init=init, random_state=seed, tol=0.0)
    model.fit(points)
    values = [line.objective for line in model.history_]
    scale = 1e-9 * max(1.0, *(v for v in values if np.isfinite(v)))
    assert all(b <= a + scale for a, b in itertools.pairwise(values))
    assert values[-1] == model.objective_
    assert model.converged_
    # A fixed point: no point has a cheaper cluster.
    costs = model.transform(points)
    point_costs = costs[np.arange(len(points)), model.labels_]
    assert (point_costs <= costs.min(axis=1) + scale).all()


def loss(name: str, points: Floats, labels: npt.NDArray[np.int64], k: int) -> float:
    """Return the objective at the best centroids, from the definitions."""
    total = 0.0
    for h in range(k):
        members = points[labels == h]
        if len(members) == 0:
            continue
        mean = members.mean(axis=0)
        if name == "euclidean":
            total += ((members - mean) ** 2).sum()
        elif name == "kl":
            shares = members / members.sum(axis=1, keepdims=True)
            total += rel_entr(shares, shares.mean(axis=0)).sum()
        elif name == "i-divergence":
            total += rel_entr(members, mean).sum()  # the other terms cancel at the mean
        elif name == "logistic":
            total += np.logaddexp(0, members).sum() - len(members) * np.logaddexp(0, mean).sum()
        else:
            unit = members / np.linalg.norm(members, axis=1, keepdims=True)
            total += len(members) - np.linalg.norm(unit.sum(axis=0))
    return float(total)


@pytest.mark.parametrize("name", sorted(CASES))
def test_many_starts_reach_the_least_objective(name: str) -> None:
    """On tiny data the best of many starts is the optimum over all labellings."""
    rng = np.random.default_rng(5)
    k = 2
    for _ in range(3):
        points = data_for(name, rng, n=8, d=2) + (0.0 if name == "cosine" else 0.5)
        optimum = min(
            loss(name, points, np.array(labels), k)
            for labels in itertools.product(range(k), repeat=len(points))
        )
        model = BregmanKMeans(
            k, distortion=CASES[name], n_init=60, init="random", random_state=0, tol=0.0
        ).fit(points)
        assert optimum == pytest.approx(model.objective_, rel=1e-7, abs=1e-9)
        assert optimum == pytest.approx(loss(name, points, model.labels_, k), rel=1e-7, abs=1e-9)


def spherical_reference(points: Floats, start: Floats) -> npt.NDArray[np.int64]:
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    centres = start / np.linalg.norm(start, axis=1, keepdims=True)
    labels = np.full(len(points), -1)
    while True:
        nearest = (unit @ centres.T).argmax(axis=1)
        if (nearest == labels).all():
            return labels
        labels = nearest
        for h in np.unique(labels):
            total = unit[labels == h].sum(axis=0)
            centres[h] = total / np.linalg.norm(total)


@given(st.integers(0, 2**32 - 1))
def test_spherical_is_k_means_on_the_sphere(seed: int) -> None:
    """Only directions matter, and sparse and dense data give equal results."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(40, 5)) * (rng.random((40, 5)) < 0.6) + 0.01
    start = points[:3]
    expected = spherical_reference(points, start)
    stretched = points * rng.uniform(0.1, 50.0, size=(40, 1))
    for data in (points, stretched, csr_array(points)):
        model = SphericalKMeans(3, init=start, tol=0.0, empty_clusters="keep").fit(data)
        assert expected.tolist() == model.labels_.tolist()
    np.testing.assert_allclose(np.linalg.norm(model.cluster_centers_, axis=1), 1.0)
    assert loss("cosine", points, expected, 3) == pytest.approx(model.objective_)


def test_rows_of_zeros_cost_nothing_on_the_sphere() -> None:
    points = np.array([[1.0, 0], [0, 0], [2, 0.1], [0, 1], [0, 0], [0.1, 3]])
    with_zeros = SphericalKMeans(2, random_state=0).fit(csr_array(points))
    without = SphericalKMeans(2, random_state=0, n_init=3).fit(points[[0, 2, 3, 5]])
    assert [0, 0] == with_zeros.labels_[[1, 4]].tolist()
    assert without.objective_ == pytest.approx(with_zeros.objective_)
    assert with_zeros.labels_[0] == with_zeros.labels_[2] != with_zeros.labels_[3]


def test_wide_sparse_text_stays_sparse() -> None:
    """As dense arrays these documents would take 8 GB."""
    rng = np.random.default_rng(0)
    n, words, topics = 2000, 500_000, 4
    truth = rng.integers(topics, size=n)
    columns = truth[:, np.newaxis] * 1000 + rng.integers(1000, size=(n, 30))
    columns[:, 20:] = rng.integers(words, size=(n, 10))
    counts = csr_array((np.ones(30 * n), (np.repeat(np.arange(n), 30), columns.ravel())))
    counts.resize((n, words))
    model = SphericalKMeans(topics, random_state=0, n_init=3).fit(counts)
    for h in range(topics):
        assert (truth[model.labels_ == h] == truth[model.labels_ == h][0]).mean() > 0.95


@pytest.mark.parametrize("kind", [BregmanKMeans, HMRFKMeans])
def test_empty_clusters(kind: Any) -> None:
    """A centroid far from all points is moved or kept, depending on the setting."""
    points = np.array([[0.0], [1.0], [2.0], [3.0]])
    start = np.array([[1.0], [2.0], [500.0]])
    moved = kind(3, init=start).fit(points)
    assert 3 == len(np.unique(moved.labels_))
    unmoved = kind(3, init=start, empty_clusters="keep").fit(points)
    assert [500.0] == unmoved.cluster_centers_[2].tolist()
    assert {0, 1} == set(unmoved.labels_.tolist())
    assert moved.objective_ < unmoved.objective_


def test_starts_settings_and_prediction() -> None:
    points = blobs(3, n=200, k=8)
    values = [
        BregmanKMeans(8, init="random", random_state=0, n_init=m, tol=0.0).fit(points).objective_
        for m in (1, 5, 30)
    ]
    assert values[0] > values[1] >= values[2]
    best = BregmanKMeans(8, init="random", random_state=0, n_init=30, tol=0.0).fit(points)
    again = clone(best).fit(points)
    assert best.labels_.tolist() == again.labels_.tolist()
    assert best.labels_.tolist() == best.predict(points).tolist()
    assert best.objective_ == pytest.approx(-best.score(points))
    assert "distortion" not in SphericalKMeans().get_params()
