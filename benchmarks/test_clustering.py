"""Constrained clustering: against scikit-learn's K-means, plain Python, and at size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.cluster import KMeans

from inference_lab.clustering import DPMeans, HMRFKMeans, PCKMeans, RDPMeans
from inference_lab.constraints import Constraints


def blobs(n: int, d: int, k: int, apart: float = 0.5) -> tuple[Any, Any]:
    """Return points around k centres, `apart` standard deviations apart in each direction."""
    rng = np.random.default_rng(0)
    labels = rng.integers(k, size=n)
    return rng.normal(size=(k, d))[labels] * apart + rng.normal(size=(n, d)), labels


def documents(n: int, words: int, entries: int) -> Any:
    """Return a CSR matrix with `entries` entries a row, drawn with repetition."""
    rng = np.random.default_rng(0)
    columns = rng.integers(words, size=n * entries)
    texts = csr_array(
        (rng.random(n * entries), columns, np.arange(0, n * entries + 1, entries)), shape=(n, words)
    )
    texts.sum_duplicates()
    return texts


def plain_pckmeans(points: Any, pairs: Constraints, k: int, init: Any, iterations: int) -> Any:
    """Run PCKMeans as Python ports do: loops over points, clusters and neighbours."""
    ml: dict[int, list[int]] = {i: [] for i in range(len(points))}
    cl: dict[int, list[int]] = {i: [] for i in range(len(points))}
    for i, j in pairs.must_link.tolist():
        ml[i].append(j)
        ml[j].append(i)
    for i, j in pairs.cannot_link.tolist():
        cl[i].append(j)
        cl[j].append(i)
    centres = init.copy()
    labels = np.full(len(points), -1)
    for _ in range(iterations):
        for i in range(len(points)):
            costs = [((points[i] - centres[h]) ** 2).sum() for h in range(k)]
            for h in range(k):
                costs[h] += sum(labels[j] not in (-1, h) for j in ml[i])
                costs[h] += sum(labels[j] == h for j in cl[i])
            labels[i] = int(np.argmin(costs))
        for h in range(k):
            centres[h] = points[labels == h].mean(axis=0)
    return labels


def test_without_constraints_beside_scikit_learn(measure: Callable[..., Any]) -> None:
    """100,000 x 32, 20 clusters, 20 iterations of Lloyd's algorithm."""
    points, _ = blobs(100_000, 32, 20)
    init = points[:20]
    theirs = measure(
        "KMeans of scikit-learn, 100,000 x 32, k = 20, 20 iterations",
        lambda: KMeans(20, init=init, n_init=1, max_iter=20, tol=0.0, algorithm="lloyd").fit(
            points
        ),
        rounds=5,
        note=lambda m: f"{m.n_iter_} iterations, inertia {m.inertia_:.1f}",
    )
    ours = measure(
        "HMRFKMeans without constraints, the same",
        lambda: HMRFKMeans(20, init=init, max_iter=20, tol=0.0).fit(points),
        rounds=5,
        target="1.5 x scikit-learn",
        note=lambda m: f"{m.n_iter_} iterations, objective {m.objective_:.1f}",
    )
    assert ours.n_iter_ == theirs.n_iter_
    assert ours.objective_ == pytest.approx(theirs.inertia_, rel=1e-3)


@pytest.mark.parametrize(("n", "count"), [(3_000, 1_000), (10_000, 20_000)])
def test_with_constraints_beside_plain_python(
    measure: Callable[..., Any], n: int, count: int
) -> None:
    """16 features, 10 clusters, 5 iterations."""
    points, labels = blobs(n, 16, 10)
    pairs = Constraints.sample(labels, count, np.random.default_rng(1))
    init = points[:10]
    what = f"{n:,} x 16, k = 10, {count:,} constraints, 5 iterations"
    measure(
        f"PCKMeans as plain Python, {what}",
        lambda: plain_pckmeans(points, pairs, 10, init, 5),
        rounds=1,
    )
    measure(
        f"PCKMeans, {what}",
        lambda: PCKMeans(10, init=init, max_iter=5, tol=0.0).fit(points, **pairs.fit_params()),
        rounds=5,
        target="a fiftieth",
        note=lambda m: f"{m.n_iter_} iterations, {m.violations_.weight:.0f} violated",
    )


def test_unknown_number_of_clusters(measure: Callable[..., Any]) -> None:
    """100,000 x 32, 20 clusters 16 standard deviations apart, 200,000 pairs."""
    points, labels = blobs(100_000, 32, 20, apart=2.0)
    pairs = Constraints.sample(labels, 200_000, np.random.default_rng(1)).fit_params()
    price = 145.0

    def noted(m: Any) -> str:
        return f"{m.n_iter_} iterations, {len(m.cluster_centers_)} clusters"

    estimator = measure(
        "RDPMeans, 100,000 x 32, 200,000 pairs",
        lambda: RDPMeans(cluster_cost=price, xi=1.0, random_state=0).fit(points, **pairs),
        rounds=3,
        target="2 x PCKMeans",
        note=noted,
    )
    measure(
        "DPMeans, the same without pairs",
        lambda: DPMeans(cluster_cost=price, random_state=0).fit(points),
        rounds=3,
        target="2 x PCKMeans",
        note=noted,
    )
    measure(
        "PCKMeans, the same with as many clusters",
        lambda: PCKMeans(estimator.n_clusters_, random_state=0).fit(points, **pairs),
        rounds=3,
        note=noted,
    )


def test_sparse_text(measure: Callable[..., Any]) -> None:
    """20,000 documents of 20,000 words, 100 words each, cosine, 20 clusters, 1,000 constraints."""
    texts = documents(20_000, 20_000, 100)
    pairs = Constraints.sample(np.arange(20_000) % 20, 1_000, np.random.default_rng(0))
    measure(
        "HMRFKMeans with the cosine, 20,000 x 20,000 sparse, k = 20, 10 iterations",
        lambda: HMRFKMeans(20, distortion="cosine", max_iter=10, random_state=0).fit(
            texts, **pairs.fit_params()
        ),
        rounds=1,
        target="below 2 GB",
        note=lambda m: f"{m.n_iter_} iterations",
    )
