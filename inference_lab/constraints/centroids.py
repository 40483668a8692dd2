"""Initial centroids from constraints, from K-means or from labels: new (k, d) float64 arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import numpy as np

from inference_lab.constraints.constraints import Constraints
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.processes.workers import limited_threads

Perturbation: TypeAlias = Literal["multiplicative", "additive"]

_AMPLITUDE = 0.7  # of the perturbations; the constant of the authors' own code
_TIE = 1e-12  # relative: values that differ by rounding only count as tied
_CHUNK = 1 << 16  # float64 entries of a block of differences, 512 kB: stays in the cache


def constraint_centroids(
    points: FloatArray,
    constraints: Constraints,
    n_clusters: int,
    rng: np.random.Generator,
    *,
    perturbation: Perturbation = "multiplicative",
) -> FloatArray:
    r"""Return centroids from must-link neighbourhoods, the components of two or more points.

    With fewer neighbourhoods than clusters, random perturbations of the global centroid :math:`g`
    are added: :math:`g_m (1 + 0.7 (U_m - 1/2))` ("multiplicative") or :math:`g_m + 0.7 (U_m - 1/2)
    \sigma_m` ("additive"), :math:`U_m` uniform on [0, 1). With more, a weighted farthest-first
    traversal from the largest one adds :math:`\arg\max_p \min_q w_{pq} \lVert c_p - c_q \rVert^2`
    with weights :math:`s_p s_q` of sizes. Ties go to the centroid farthest from g, then to the
    first (Basu, Bilenko and Mooney, KDD 2004, section 3.3).
    """
    k = n_clusters
    centre = points.mean(axis=0)
    groups = constraints.neighbourhoods()
    means = np.array([points[g].mean(axis=0) for g in groups]).reshape(-1, points.shape[1])
    if len(groups) > k:
        sizes = np.array([len(g) for g in groups], dtype=np.float64)
        from_centre = squared_distances(means, centre[np.newaxis])[:, 0]

        def distances_to(q: int) -> FloatArray:
            return squared_distances(means, means[q : q + 1])[:, 0]

        return means[farthest_first(distances_to, sizes, from_centre, k)]
    scale = centre if perturbation == "multiplicative" else points.std(axis=0)
    uniform = rng.random((k - len(groups), points.shape[1]))
    return np.concatenate((means, centre + _AMPLITUDE * (uniform - 0.5) * scale))


def kmeans_centroids(
    points: FloatArray, n_clusters: int, rng: np.random.Generator, *, n_init: int = 10
) -> FloatArray:
    r"""Return the centroids of the best of several unconstrained runs of scikit-learn's K-means."""
    from sklearn.cluster import KMeans

    seed = int(rng.integers(2**31))
    model = KMeans(n_clusters=n_clusters, n_init=n_init, random_state=seed)
    # On one thread, because sums over threads depend on the number of processors, and because
    # OpenMP keeps its threads, beside which runs of this problem would be forked.
    with limited_threads():
        model.fit(points)
    return np.array(model.cluster_centers_, dtype=np.float64)


def squared_distances(points: FloatArray, centroids: FloatArray) -> FloatArray:
    r"""Return the squared Euclidean distances :math:`D_{ih} = \sum_m (x_{im} - \mu_{hm})^2`.

    From differences, because the expansion :math:`|x|^2 - 2 x'\mu + |\mu|^2` cancels far from 0.
    """
    result = np.empty((len(points), len(centroids)))
    step = max(1, _CHUNK // points.shape[1])
    buffer = np.empty((min(step, len(points)), points.shape[1]))
    for begin in range(0, len(points), step):
        block = points[begin : begin + step]
        difference = buffer[: len(block)]
        for h, centre in enumerate(centroids):
            np.subtract(block, centre, out=difference)
            np.einsum("im,im->i", difference, difference, out=result[begin : begin + step, h])
    return result


def farthest_first(
    distances_to: Callable[[int], FloatArray],
    sizes: FloatArray,
    from_centre: FloatArray,
    k: int,
) -> list[int]:
    """Choose k groups, in the order of the weighted farthest-first traversal."""
    visited = [_best(sizes, from_centre)]
    nearest = np.full(len(sizes), np.inf)  # min over visited q of w_pq D(c_p, c_q)
    while len(visited) < k:
        q = visited[-1]
        nearest = np.minimum(nearest, sizes * sizes[q] * distances_to(q))
        nearest[visited] = -np.inf  # never again, even if all other centroids coincide with them
        visited.append(_best(nearest, from_centre))
    return visited


def numbered_like(labels: IntArray, classes: IntArray, k: int) -> IntArray:
    """Return the order of clusters in which cluster ``h`` overlaps class ``h`` most, in total."""
    from scipy.optimize import linear_sum_assignment

    overlap = np.bincount(classes * k + labels, minlength=k * k).reshape(k, k)
    _, cluster_of_class = linear_sum_assignment(overlap, maximize=True)
    return np.asarray(cluster_of_class, dtype=np.int64)


def _best(score: FloatArray, tie_break: FloatArray) -> int:
    """Return the index of the largest score; ties by largest `tie_break`, then lowest index."""
    top = score.max()
    tied = np.flatnonzero(score >= top - _TIE * abs(top))
    return int(tied[np.argmax(tie_break[tied])])
