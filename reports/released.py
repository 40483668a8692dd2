"""The compared methods, run as in the evaluation that Khashabi et al. (2015) published with code.

The published figures depend on choices that are not in the paper: rows are shuffled, either point
of a pair may come first, and each method has its own start. These estimators make the same choices,
so that one at a time can be changed.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Literal, Self, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist
from scipy.special import betaln, ndtri, xlogy

from inference_lab._numba import kernel, lean_kernel
from inference_lab.clustering import TVClust
from inference_lab.clustering.tvclust import (
    Gaussians,
    _beta_divergence,
    _log_means,
    _log_weights,
    _log_wishart,
)
from inference_lab.clustering.vector_quantisation import settle_pairs
from inference_lab.clustering.violations import violations
from inference_lab.constraints import Constraints
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.reports.uphill import uphill_kmeans
from inference_lab.reports.wekaut import WekaUTKMeans

#: Whether each pair is a must-link, shape (p,).
Flags: TypeAlias = npt.NDArray[np.bool_]

#: Truncation, iterations and relative tolerance of the published TVClust.
_COMPONENTS, _ITERATIONS, _TOLERANCE = 15, 30, 5e-5
#: Beta priors of the shares of right must-links and of right cannot-links.
_PRIORS = ((1.0, 10.0), (10.0, 1.0))
#: Floor of an unnormalised share, and its value where the exponential overflows.
_SMALLEST, _LARGEST, _OVERFLOW = 1e-100, 1e300, 709.7
#: Weight of the log-determinant of the metric in the Java code of MPCKMeans.
_LOG_TERM = 0.01


class _Released(ABC):
    """Base: shuffled rows, and pairs in random order with either point first."""

    def __init__(self, n_clusters: int, random_state: int) -> None:
        self.n_clusters, self.random_state = n_clusters, random_state

    def fit(self, X: Any, must_link: Any, cannot_link: Any, **weights: Any) -> Self:
        """Cluster the points; weights are ignored, because no released method has any."""
        rng = np.random.default_rng(self.random_state)
        rows = self._rows(len(X), rng)
        place = np.argsort(rows)
        order = rng.permutation(len(must_link) + len(cannot_link))
        pairs = place[np.concatenate([must_link, cannot_link])[order]]
        pairs = self._directed(pairs, rng)
        points = np.ascontiguousarray(X[rows], dtype=np.float64)
        self.labels_ = self._labels(points, pairs, order < len(must_link), rng)[place]
        self.constraints_ = Constraints(must_link, cannot_link, n_points=len(X))
        self.violations_ = violations(self.constraints_, self.labels_)
        return self

    def _rows(self, n: int, rng: np.random.Generator) -> IntArray:
        return rng.permutation(n)

    def _directed(self, pairs: IntArray, rng: np.random.Generator) -> IntArray:
        return rng.permuted(pairs, axis=1)

    @abstractmethod
    def _labels(
        self, points: FloatArray, pairs: IntArray, same: Flags, rng: np.random.Generator
    ) -> IntArray:
        """Return labels of points, with `same` for the pairs that are must-links."""


class _ReleasedKMeans(_Released):
    """K-means from one random start in the box of the data; empty clusters start there again."""

    def _labels(
        self, points: FloatArray, pairs: IntArray, same: Flags, rng: np.random.Generator
    ) -> IntArray:
        low, high = points.min(axis=0), points.max(axis=0)
        shape = (self.n_clusters, points.shape[1])
        centroids = rng.uniform(low, high, shape)
        for _ in range(51):
            labels = cdist(points, centroids).argmin(axis=1)
            member = np.eye(self.n_clusters)[labels]
            size = member.sum(axis=0)[:, None]
            means = member.T @ points / np.maximum(size, 1.0)
            before, centroids = centroids, np.where(size, means, rng.uniform(low, high, shape))
            if np.array_equal(before, centroids):
                break
        return np.asarray(labels)


@lean_kernel
def _move_to_second(cost: FloatArray, second: IntArray, pairs: IntArray, labels: IntArray) -> None:
    """Move the farther point of each violated cannot-link to its second nearest centroid.

    To keep the violation never costs less. The second nearest may be that of its own cluster.
    """
    for at in range(pairs.shape[0]):
        a, b = pairs[at]
        if labels[a] == labels[b]:
            far = b if cost[b, labels[a]] > cost[a, labels[a]] else a
            labels[far] = second[far]


class _ReleasedLCVQE(_Released):
    """LCVQE on each pair twice, with the released rule for cannot-links or that of its paper."""

    def __init__(
        self, n_clusters: int, random_state: int, rule: Literal["released", "paper"] = "released"
    ) -> None:
        super().__init__(n_clusters, random_state)
        self.rule = rule

    def _labels(
        self, points: FloatArray, pairs: IntArray, same: Flags, rng: np.random.Generator
    ) -> IntArray:
        twice = np.stack([pairs, pairs[:, ::-1]], axis=1).reshape(-1, 2)
        must, cannot = twice[np.repeat(same, 2)], twice[np.repeat(~same, 2)]
        by_paper = cannot if self.rule == "paper" else cannot[:0]
        centroids = points[rng.permutation(len(points))[: self.n_clusters]]
        labels = np.full(len(points), -1)
        for _ in range(500):
            before = labels
            cost = cdist(points, centroids, "sqeuclidean")
            labels, pull = cost.argmin(axis=1), np.zeros_like(cost)
            ones = np.ones(len(must)), np.ones(len(by_paper))
            settle_pairs(cost, cost, must, ones[0], by_paper, ones[1], labels, pull)
            if self.rule == "released":
                second = np.argsort(cost, axis=1, kind="stable")[:, 1].copy()
                _move_to_second(cost, second, cannot, labels)
            if np.array_equal(labels, before):
                break
            pull[np.arange(len(points)), labels] += 1.0
            total = pull.sum(axis=0)[:, None]
            centroids = np.where(
                total > 0, pull.T @ points / np.where(total > 0, total, 1.0), centroids
            )
        return labels


@kernel
def _sweep(
    points: FloatArray,
    centroids: FloatArray,
    metric: FloatArray,
    farthest: float,
    must: FloatArray,
    cannot: FloatArray,
    labels: IntArray,
) -> float:
    """Assign each point in turn at least cost, given the labels of the others; return the sum.

    Points without a label (-1) cost their partners nothing.
    """
    n, d = points.shape
    cost = np.empty(len(centroids))
    value = 0.0
    for i in range(n):
        for h in range(cost.size):
            cost[h] = 0.0
            for m in range(d):
                cost[h] += metric[m] * (points[i, m] - centroids[h, m]) ** 2
        for j in range(n):
            if labels[j] >= 0 and must[i, j] + cannot[i, j] > 0.0:
                apart = 0.0
                for m in range(d):
                    apart += metric[m] * (points[i, m] - points[j, m]) ** 2
                for h in range(cost.size):
                    if h != labels[j]:
                        cost[h] += must[i, j] * apart
                    else:
                        cost[h] += cannot[i, j] * (farthest - apart)
        labels[i] = cost.argmin()
        value += cost[labels[i]]
    return value


class _ReleasedMPCKMeans(_Released):
    """MPCKMeans with one diagonal metric, unit weights and one ordered sweep an iteration.

    The released wrapper passes two attributes only, and closes pairs whether they agree or not.
    """

    def __init__(
        self, n_clusters: int, random_state: int, attributes: int = 2, closed: bool = True
    ) -> None:
        super().__init__(n_clusters, random_state)
        self.attributes, self.closed = attributes, closed

    def _labels(
        self, points: FloatArray, pairs: IntArray, same: Flags, rng: np.random.Generator
    ) -> IntArray:
        points = np.ascontiguousarray(points[:, : self.attributes])
        n, k = len(points), self.n_clusters
        must, cannot = np.zeros((n, n)), np.zeros((n, n))
        for matrix, links in ((must, pairs[same]), (cannot, pairs[~same])):
            matrix[links[:, 0], links[:, 1]] = matrix[links[:, 1], links[:, 0]] = 1.0
        component = connected_components(must)[1]
        several = np.flatnonzero(np.bincount(component) > 1)
        member = (component[:, None] == several).astype(np.float64)
        if self.closed:
            between = member.T @ cannot @ member > 0.0
            np.fill_diagonal(between, False)
            must = np.maximum(must, (member @ member.T) * (cannot == 0.0))
            np.fill_diagonal(must, 0.0)
            cannot = np.maximum(cannot, member @ between @ member.T)
        centroids, labels = _neighbourhoods(points, member, k, rng)
        metric, value, unmoved = np.ones(points.shape[1]), math.inf, 0
        # The released box of the data includes the origin.
        sides = (points.max(axis=0, initial=0.0) - points.min(axis=0, initial=0.0)) ** 2
        while unmoved < 20:
            before, value_before = labels.copy(), value
            value = _sweep(points, centroids, metric, float(metric @ sides), must, cannot, labels)
            value -= _LOG_TERM * n * np.log(metric).sum()
            unmoved = unmoved + 1 if np.array_equal(labels, before) else 0
            member = np.eye(k)[labels]
            # The Java code puts the centroid of an empty cluster at the origin.
            centroids = member.T @ points / np.maximum(member.sum(axis=0), 1.0)[:, None]
            together = labels[:, None] == labels
            apart, joined = must * ~together, cannot * together
            scatter = ((points - centroids[labels]) ** 2).sum(axis=0) + _scatter(apart, points)
            scatter += 0.5 * joined.sum() * sides - _scatter(joined, points)
            metric = np.where(scatter > 0.0, _LOG_TERM * n / np.abs(scatter), metric)
            if abs(value_before - value) < 1e-5:
                break
        return labels


def _scatter(weights: FloatArray, points: FloatArray) -> FloatArray:
    """Return the weighted sums of squared differences of pairs, each pair once, by feature."""
    whole = weights.sum(axis=0) @ points**2 - (points * (weights @ points)).sum(axis=0)
    return np.asarray(whole)


def _neighbourhoods(
    points: FloatArray, member: FloatArray, k: int, rng: np.random.Generator
) -> tuple[FloatArray, IntArray]:
    """Return centroids by weighted farthest-first, and the labels of their neighbourhoods."""
    sizes = member.sum(axis=0)
    means = member.T @ points / sizes[:, None]
    groups = list(range(sizes.size))
    if sizes.size >= k:
        gaps = cdist(means, means) * np.sqrt(np.outer(sizes, sizes))
        groups = [int(sizes.argmax())]
        while len(groups) < k:
            gap = gaps[:, groups].min(axis=1)
            gap[groups] = -1.0
            groups.append(int(gap.argmax()))
    labels = np.full(len(points), -1)
    for h, group in enumerate(groups):
        labels[member[:, group] > 0.0] = h
    # The Java code takes the labels away from the first k points.
    labels[:k] = -1
    missing = (k - len(groups), points.shape[1])
    perturbed = points.mean(axis=0) * (1.0 + 0.7 * (rng.random(missing) - 0.5))
    return np.concatenate([means[groups], perturbed]), labels


@lean_kernel
def _sequential_shares(
    logits: FloatArray,
    ptr: IntArray,
    partner: IntArray,
    effect: FloatArray,
    shares: FloatArray,
) -> None:
    """Set the shares of one point after the other, without protection of the exponential."""
    n, k = shares.shape
    for i in range(n):
        total = 0.0
        for h in range(k):
            value = logits[i, h]
            for at in range(ptr[i], ptr[i + 1]):
                value += effect[at] * shares[partner[at], h]
            shares[i, h] = (math.exp(value) if value < _OVERFLOW else _LARGEST) + _SMALLEST
            total += shares[i, h]
        for h in range(k):
            shares[i, h] /= total


class _ReleasedTVClust(_Released):
    """Variational TVClust, in which the first point of each pair alone uses the answer.

    `start` is "fixed", the means that R draws after ``set.seed(1)`` in every run, or "drawn". In
    the "file" order of rows, the first point is the one that comes first in the file.
    """

    def __init__(
        self,
        n_clusters: int,
        random_state: int,
        start: Literal["fixed", "drawn"] = "fixed",
        order: Literal["shuffled", "file"] = "shuffled",
    ) -> None:
        super().__init__(n_clusters, random_state)
        self.start, self.order = start, order

    def _rows(self, n: int, rng: np.random.Generator) -> IntArray:
        return super()._rows(n, rng) if self.order == "shuffled" else np.arange(n)

    def _directed(self, pairs: IntArray, rng: np.random.Generator) -> IntArray:
        return super()._directed(pairs, rng) if self.order == "shuffled" else np.sort(pairs, axis=1)

    def _labels(
        self, points: FloatArray, pairs: IntArray, same: Flags, rng: np.random.Generator
    ) -> IntArray:
        # The MATLAB code passes three significant digits to R.
        points = np.array([[float(f"{value:.3g}") for value in row] for row in points])
        points = (points - points.mean(axis=0)) / points.std(axis=0, ddof=1)
        n, d = points.shape
        by_first = np.argsort(pairs[:, 0], kind="stable")
        pairs, same = pairs[by_first], same[by_first]
        ptr = np.searchsorted(pairs[:, 0], np.arange(n + 1))
        components = Gaussians(points, np.zeros((n, _COMPONENTS)))
        fixed = self.start == "fixed"
        means = _r_normal(_COMPONENTS * d) if fixed else rng.normal(size=_COMPONENTS * d)
        components.means = means.reshape(_COMPONENTS, d)
        shares = np.full((n, _COMPONENTS), 1.0 / _COMPONENTS)
        sticks = np.ones((2, _COMPONENTS - 1))
        p, q = np.array(_PRIORS)
        bound = -math.inf
        for _ in range(_ITERATIONS):
            logits = _log_weights(*_log_means(*sticks)) + components.expected_log_density(points)
            (log_p, log_not_p), (log_q, log_not_q) = _log_means(*p), _log_means(*q)
            effect = np.where(same, log_p - log_not_q, log_not_p - log_q)
            # R's code leaves the constant of the normal density out of its unprotected exponential.
            logits += 0.5 * d * math.log(math.pi)
            _sequential_shares(logits, ptr, pairs[:, 1].copy(), effect, shares)
            sizes = shares.sum(axis=0)
            sticks = 1.0 + np.array([sizes[:-1], np.cumsum(sizes[::-1])[::-1][1:]])
            components = Gaussians(points, shares)
            agree = np.einsum("ij,ij->i", shares[pairs[:, 0]], shares[pairs[:, 1]])
            p = np.add(_PRIORS[0], [agree[same].sum(), agree[~same].sum()])
            q = np.add(_PRIORS[1], [(1.0 - agree[~same]).sum(), (1.0 - agree[same]).sum()])
            before, bound = bound, _bound(points, shares, sticks, components, p, q)
            if (bound - before) / abs(before) < _TOLERANCE:
                break
        return np.asarray(shares.argmax(axis=1))


def _bound(
    points: FloatArray,
    shares: FloatArray,
    sticks: FloatArray,
    components: Gaussians,
    p: FloatArray,
    q: FloatArray,
) -> float:
    """Return the bound without the constants that the R code leaves out; the stop depends on it."""
    (n, d), k = points.shape, _COMPONENTS
    logits = _log_weights(*_log_means(*sticks)) + components.expected_log_density(points)
    value = float((shares * logits).sum()) - float(xlogy(shares, shares).sum())
    value -= _beta_divergence(sticks[0], sticks[1], 1.0, 1.0) + components.divergence()
    value += float(betaln(*p) + betaln(*q))
    log_b = float(_log_wishart(np.zeros(1), np.array([float(d)]), d)[0])
    constant = 0.5 * n * d * math.log(math.pi) - k * (log_b + 0.5 * d * (1.0 - math.log(2.0)))
    return float(value + constant)


def _r_normal(count: int) -> FloatArray:
    """Return the normal numbers that R draws after ``set.seed(1)``."""
    seeds, seed = [], 1
    for _ in range(50 + 625):
        seed = (69069 * seed + 1) % 2**32
        seeds.append(seed)
    source = np.random.MT19937()
    state = source.state
    state["state"] = {"key": np.array(seeds[51:], dtype=np.uint32), "pos": 624}
    source.state = state
    uniform = source.random_raw(2 * count) * 2.0**-32
    # Inversion of two draws, the first to 27 bits.
    return np.asarray(ndtri((np.floor(2.0**27 * uniform[::2]) + uniform[1::2]) / 2.0**27))


def _released_settings(n_clusters: int, random_state: int) -> TVClust:
    """Return TVClust with the released settings, which takes no number of clusters."""
    return TVClust.release(random_state)


#: The estimators of this module and of the other published evaluations, by the names in studies.
RELEASED: Mapping[str, Callable[..., Any]] = {
    "tvclust-release": _released_settings,
    "released-k-means": _ReleasedKMeans,
    "released-lcvqe": _ReleasedLCVQE,
    "released-mpckmeans": _ReleasedMPCKMeans,
    "released-tvclust": _ReleasedTVClust,
    "uphill-kmeans": uphill_kmeans,
    "wekaut": WekaUTKMeans,
}
