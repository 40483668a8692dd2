"""Algebra of points, dense or sparse: sums of clusters, products in blocks, the farthest pair."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from inference_lab._numba import kernel
from inference_lab.graph.arrays import FloatArray, IntArray

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

#: A dense float64 matrix, or a sparse CSR array, with one row per point.
Points: TypeAlias = Any

#: Entries of a block of costs: half a megabyte, which stays in the cache.
BLOCK = 1 << 16
#: Rows and columns of a block of pairs that are compared at once.
_PAIR_ROWS, _PAIR_COLUMNS = 64, 4096


def is_sparse(points: Points) -> bool:
    """Whether the points are a SciPy sparse array."""
    from scipy.sparse import issparse

    return bool(issparse(points))


def dense(points: Points) -> FloatArray:
    """Return the rows as a dense matrix."""
    return np.asarray(points.toarray() if is_sparse(points) else points, dtype=np.float64)


def row_sums(points: Points) -> FloatArray:
    """Return the sum of each row, shape (n,)."""
    return np.asarray(points.sum(axis=1), dtype=np.float64).ravel()


def product(points: Points, centroids: FloatArray) -> FloatArray:
    """Return all inner products, shape (n, k)."""
    return np.asarray(points @ np.ascontiguousarray(centroids.T), dtype=np.float64)


def scaled_columns(rows: Points, weights: FloatArray | None) -> Points:
    """Return rows with each column times its weight."""
    if weights is None:
        return rows
    return rows.multiply(weights).tocsr() if is_sparse(rows) else rows * weights


def scaled_rows(rows: Points, factors: FloatArray) -> Points:
    """Return each row times its factor."""
    from scipy.sparse import diags_array

    return diags_array(factors) @ rows if is_sparse(rows) else rows * factors[:, np.newaxis]


def row_products(first: Points, second: Points) -> FloatArray:
    """Return the inner product of each row of one matrix with the same row of another."""
    if is_sparse(first):
        return row_sums(first.multiply(second))
    return np.asarray(np.einsum("im,im->i", first, second), dtype=np.float64)


def cluster_sums(
    points: Points, shares: npt.ArrayLike, n_clusters: int, sample_weight: FloatArray | None = None
) -> FloatArray:
    """Add up the points of each cluster."""
    from scipy.sparse import csc_array

    memberships = np.asarray(shares)
    if memberships.ndim == 2:
        memberships = (
            memberships if sample_weight is None else memberships * sample_weight[:, np.newaxis]
        )
        return np.ascontiguousarray((points.T @ memberships).T, dtype=np.float64)
    n = len(memberships)
    member = csc_array(
        (
            np.ones(n) if sample_weight is None else sample_weight,
            memberships.astype(np.int32),
            np.arange(n + 1, dtype=np.int32),
        ),
        shape=(n_clusters, n),
    )
    return dense(member @ points)


def cluster_sizes(
    shares: npt.ArrayLike, n_clusters: int, sample_weight: FloatArray | None = None
) -> FloatArray:
    """Return the size of each cluster, shape (k,), with points weighted by `sample_weight`."""
    memberships = np.asarray(shares)
    if memberships.ndim == 2:
        total = memberships.sum(axis=0) if sample_weight is None else sample_weight @ memberships
        return np.asarray(total, dtype=np.float64)
    return np.bincount(memberships, weights=sample_weight, minlength=n_clusters).astype(np.float64)


def counted_shares(
    labels: IntArray, n_clusters: int, sample_weight: FloatArray | None
) -> IntArray | FloatArray:
    """Return labels as shares for `Distortion.centroids`, scaled by sample weights."""
    if sample_weight is None:
        return labels
    shares = np.zeros((labels.size, n_clusters))
    shares[np.arange(labels.size), labels] = sample_weight
    return shares


def squares(rows: Points) -> Points:
    """Return the square of each entry."""
    return rows.multiply(rows) if is_sparse(rows) else rows * rows


def weighted_sum(rows: Points, weights: FloatArray) -> FloatArray:
    """Return the weighted sum of rows, shape (d,)."""
    return np.asarray(rows.T @ weights, dtype=np.float64).ravel()


def own_squares(
    points: Points, centroids: FloatArray, labels: IntArray, sample_weight: FloatArray | None
) -> FloatArray:
    """Return the sum of squared gaps to the assigned centroids per feature, shape (d,)."""
    sample_weight = np.ones(labels.size) if sample_weight is None else sample_weight
    if not is_sparse(points):
        gaps = points - centroids[labels]
        return np.asarray(sample_weight @ (gaps * gaps), dtype=np.float64)
    k = len(centroids)
    sums = cluster_sums(points, labels, k, sample_weight)
    sizes = cluster_sizes(labels, k, sample_weight)
    inner = centroids * (sizes[:, np.newaxis] * centroids - 2.0 * sums)
    total = weighted_sum(squares(points), sample_weight) + inner.sum(axis=0)
    return np.asarray(np.maximum(total, 0.0), dtype=np.float64)


def cheapest(costs: FloatArray, previous: IntArray | None) -> IntArray:
    """Return the column of the least entry of each row; ties keep the previous one."""
    labels = np.zeros(len(costs), dtype=np.int64) if previous is None else previous.copy()
    least_of_rows(costs, np.zeros(costs.shape[1]), labels)
    return labels


@kernel
def least_of_rows(values: FloatArray, offset: FloatArray, labels: IntArray) -> None:
    """Move labels to the least ``values[i, a] + offset[a]``; ties keep the current label."""
    n, k = values.shape
    for i in range(n):
        best = labels[i]
        lowest = values[i, best] + offset[best]
        for a in range(k):
            value = values[i, a] + offset[a]
            if value < lowest:
                lowest = value
                best = a
        labels[i] = best


def whitened(factor: FloatArray, gaps: FloatArray) -> FloatArray:
    """Return rows times the transposed inverse of a lower Cholesky factor, shape (n, d)."""
    from scipy.linalg.lapack import dtrtri

    # SciPy's solve_triangular waits for all cores even for small matrices: 12 ms instead of 3 us
    # for 30 points of 3 features while other processes keep the cores busy.
    inverse, _ = dtrtri(factor, lower=1)
    return np.asarray(gaps @ inverse.T)


@cache
def _libraries() -> ThreadpoolController:
    """Return a handle on the numerical libraries, cached because a search takes milliseconds."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def in_blocks(n: int, step: int, work: Callable[[slice], None]) -> None:
    """Call `work` on blocks of rows, with as many threads as the linear algebra has.

    The library's own threads wait for each other in every product, which dominates small products.
    Results do not depend on the number of threads.
    """
    if n <= step:
        return work(slice(0, n))
    controller = _libraries()
    threads = max(
        (lib["num_threads"] for lib in controller.info() if lib["user_api"] == "blas"), default=1
    )
    blocks = [slice(begin, begin + step) for begin in range(0, n, step)]
    with controller.limit(limits=1, user_api="blas"):
        if threads == 1 or len(blocks) < 2 * threads:
            for block in blocks:
                work(block)
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(work, blocks))


def farthest_pair(rows: FloatArray) -> tuple[int, int]:
    """Return the two rows with the largest Euclidean distance.

    A far pair is guessed; others are compared only if their distances to a centre sum to more. The
    mean as the centre leaves few pairs of round data, the middle of the guessed pair few of
    elongated data. Costs O(n d), and O(d) for each remaining pair.
    """

    def from_point(point: FloatArray) -> FloatArray:
        gaps = rows - point
        return np.asarray(np.sqrt(row_products(gaps, gaps)))

    mean = rows.mean(axis=0)
    from_mean = from_point(mean)
    pair = (0, 0)
    best = 0.0
    start = int(from_mean.argmax())
    while True:
        gaps = from_point(rows[start])
        end = int(gaps.argmax())
        if gaps[end] <= best:
            break
        pair = (start, end)
        best = float(gaps[end])
        start = end

    def candidates(radius: FloatArray) -> tuple[int, IntArray, FloatArray]:
        """Return the number of pairs left, and the rows in them, the outermost first."""
        order = np.flatnonzero(radius > best - radius.max())
        order = order[np.argsort(-radius[order], kind="stable")]
        outer = radius[order]
        partners = np.searchsorted(-outer, outer - best) - np.arange(order.size)
        return int(np.maximum(partners, 0).sum()), order, outer

    centre = mean
    n_pairs, order, outer = candidates(from_mean)
    if n_pairs > len(rows):
        middle = (rows[pair[0]] + rows[pair[1]]) / 2.0
        around_middle = candidates(from_point(middle))
        if around_middle[0] < n_pairs:
            centre, (n_pairs, order, outer) = middle, around_middle
    # Inner products are computed around the centre, because small coordinates reduce rounding.
    ordered = rows[order] - centre
    squares = row_products(ordered, ordered)
    for i in range(0, len(order), _PAIR_ROWS):
        reach = int(np.searchsorted(-outer, outer[i] - best))
        if reach <= i:
            break
        block_rows = slice(i, min(i + _PAIR_ROWS, reach))
        for j in range(i, reach, _PAIR_COLUMNS):
            others = slice(j, min(j + _PAIR_COLUMNS, reach))
            block = product(ordered[block_rows], -2.0 * ordered[others])
            block += squares[others]
            block += squares[block_rows, np.newaxis]
            a, b = np.unravel_index(int(block.argmax()), block.shape)
            if block[a, b] > best * best:
                pair = (int(order[i + a]), int(order[j + b]))
                best = math.sqrt(block[a, b])
    return pair
