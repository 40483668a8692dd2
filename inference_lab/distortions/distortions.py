r"""Distortions: costs of points in clusters, and dissimilarities of pairs of points.

A distortion has four parts: the cost ``D(x, mu)`` of a point in a cluster, the centroid that
minimises the summed cost of a cluster, a symmetric dissimilarity ``phi(x, y)`` of two points (the
cost of a violated constraint in HMRF-KMeans), and an upper bound on ``phi``.

To add a Bregman divergence, subclass `Bregman` and define its generator and the gradient:

>>> import numpy as np
>>> from inference_lab.clustering import Bregman, HMRFKMeans
>>> class Logistic(Bregman):
...     def check(self, points):
...         if points.min() <= 0 or points.max() >= 1:
...             raise ValueError("the logistic loss needs values between 0 and 1")
...     def generator(self, points):
...         return (points * np.log(points) + (1 - points) * np.log(1 - points)).sum(axis=1)
...     def gradient(self, centroids):
...         return np.log(centroids / (1 - centroids))
>>> points = [[0.1], [0.2], [0.8], [0.9]]
>>> labels = HMRFKMeans(2, distortion=Logistic(), random_state=0).fit(points).labels_
>>> bool(labels[0] == labels[1] != labels[2] == labels[3])
True

A. Banerjee, S. Merugu, I. Dhillon, J. Ghosh, "Clustering with Bregman divergences", JMLR 6, 2005.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from inference_lab.distortions.points import (
    BLOCK,
    Points,
    cheapest,
    cluster_sizes,
    cluster_sums,
    dense,
    farthest_pair,
    in_blocks,
    is_sparse,
    least_of_rows,
    own_squares,
    product,
    row_products,
    row_sums,
    scaled_columns,
    scaled_rows,
    squares,
    weighted_sum,
)
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.specs.settings import check_settings, setting


class Distortion(ABC):
    """Distances of points from centroids and from each other.

    Distortions are immutable; learning a metric makes a new one (`reweighted`).

    Examples
    --------
    >>> distortion = SquaredEuclidean()
    >>> points = np.array([[0.0, 0.0], [2.0, 0.0], [9.0, 9.0]])
    >>> centroids = distortion.centroids(points, np.array([0, 0, 1]), 2, np.zeros((2, 2)))
    >>> centroids.tolist(), distortion.distances(points, centroids)[0].tolist()
    ([[1.0, 0.0], [9.0, 9.0]], [1.0, 162.0])
    """

    #: Whether CSR matrices are supported.
    accepts_sparse: ClassVar[bool] = False
    #: Whether shifting all points and centroids by the same vector changes no cost.
    translation_invariant: ClassVar[bool] = False
    #: Whether data must not hold negative values.
    positive_only: ClassVar[bool] = False
    #: Rate of gradient steps on weights of features, as in the papers.
    learning_rate: ClassVar[float] = 1e-3

    def check(self, points: Points) -> None:  # noqa: B027  # most distortions take any values
        """Refuse points outside the domain; by default, none are refused.

        Parameters
        ----------
        points : (n, d) matrix, dense or CSR

        Raises
        ------
        ValueError
            With the first offending entry and the allowed values.

        Examples
        --------
        >>> KullbackLeibler().check(np.array([[1.0, -1.0]]))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        ValueError: X[0, 1] = -1.0; KullbackLeibler needs values that are not negative. ...
        """

    def prepare(self, points: Points) -> Points:
        """Return the points in the form that the other methods expect, normalised if necessary.

        Parameters
        ----------
        points : (n, d) matrix, dense or CSR

        Returns
        -------
        (n, d) matrix, dense or CSR
            By default the unchanged points.

        Examples
        --------
        >>> Cosine().prepare(np.array([[3.0, 4.0]])).tolist()
        [[0.6, 0.8]]
        """
        return points

    @abstractmethod
    def distances(self, points: Points, centroids: FloatArray) -> FloatArray:
        """Return the cost of each point in each cluster.

        Parameters
        ----------
        points : (n, d) matrix, dense or CSR
            As returned by `prepare`, here and below.
        centroids : (k, d) float64 array

        Returns
        -------
        (n, k) float64 array
            ``D(x_i, mu_h)``; ``+inf`` is allowed.

        Examples
        --------
        >>> points, centroids = np.array([[0.0], [3.0]]), np.array([[1.0], [5.0]])
        >>> SquaredEuclidean().distances(points, centroids).tolist()
        [[1.0, 25.0], [4.0, 4.0]]
        """

    def nearest(self, points: Points, centroids: FloatArray, previous: IntArray | None) -> IntArray:
        """Return the cheapest cluster of each point.

        Parameters
        ----------
        points : (n, d) matrix, dense or CSR
        centroids : (k, d) float64 array
        previous : (n,) int64 array or None
            Left as it is.

        Returns
        -------
        (n,) int64 array

        Examples
        --------
        >>> points, centroids = np.array([[1.0, 0.0], [1.0, 1.0]]), np.eye(2)
        >>> Cosine().nearest(points, centroids, np.array([1, 1])).tolist()
        [0, 1]
        """
        return cheapest(self.distances(points, centroids), previous)

    def own(self, points: Points, centroids: FloatArray, labels: IntArray) -> FloatArray:
        """Return the cost of each point in its own cluster.

        Parameters
        ----------
        points : (n, d) matrix, dense or CSR
        centroids : (k, d) float64 array
        labels : (n,) int64 array

        Returns
        -------
        (n,) float64 array

        Examples
        --------
        >>> points, centroids = np.array([[0.0], [3.0]]), np.array([[1.0], [5.0]])
        >>> SquaredEuclidean().own(points, centroids, np.array([1, 0])).tolist()
        [25.0, 4.0]
        """
        costs = self.distances(points, centroids)
        return np.take_along_axis(costs, labels[:, np.newaxis], axis=1).ravel()

    @abstractmethod
    def between(self, points: Points, pairs: IntArray) -> FloatArray:
        """Return the dissimilarity ``phi`` of pairs of points.

        Parameters
        ----------
        points : (n, d) matrix, dense or CSR
        pairs : (m, 2) int64 array
            Rows of `points`.

        Returns
        -------
        (m,) float64 array
            Not negative.

        Examples
        --------
        >>> points = np.array([[0.0], [3.0], [5.0]])
        >>> SquaredEuclidean().between(points, np.array([[0, 1], [2, 1]])).tolist()
        [9.0, 4.0]
        """

    @abstractmethod
    def largest(self, points: Points) -> float:
        """Return an upper bound on ``phi`` over all pairs of points.

        Parameters
        ----------
        points : (n, d) matrix, dense or CSR

        Returns
        -------
        float

        Examples
        --------
        >>> SquaredEuclidean().largest(np.array([[0.0], [3.0], [5.0]]))
        25.0
        """

    def centroids(
        self, points: Points, shares: npt.ArrayLike, n_clusters: int, previous: FloatArray
    ) -> FloatArray:
        """Return the centroids of clusters; empty clusters keep their entry of `previous`.

        Parameters
        ----------
        points : (n, d) matrix, dense or CSR
        shares : (n,) array of int or (n, k) array of float
            The cluster of each point, or its share in each cluster.
        n_clusters : int
        previous : (k, d) float64 array
            Left as it is.

        Returns
        -------
        (k, d) float64 array
            By default the means.

        Examples
        --------
        >>> points, previous = np.array([[0.0], [2.0]]), np.array([[7.0], [8.0]])
        >>> SquaredEuclidean().centroids(points, np.array([0, 0]), 2, previous).tolist()
        [[1.0], [8.0]]
        """
        sizes = cluster_sizes(shares, n_clusters)
        sums = cluster_sums(points, shares, n_clusters)
        occupied = sizes > 0
        result = previous.copy()
        result[occupied] = sums[occupied] / sizes[occupied, np.newaxis]
        return result

    def transformed(self, points: Points, centroids: FloatArray) -> FloatArray:
        """Return the distance of each point to each centroid, as estimators' ``transform`` does.

        Parameters
        ----------
        points : (n, d) matrix, dense or CSR
        centroids : (k, d) float64 array

        Returns
        -------
        (n, k) float64 array
            The roots of squared distances; for other distortions the costs.

        Examples
        --------
        >>> points, centroids = np.array([[0.0], [3.0]]), np.array([[1.0], [5.0]])
        >>> SquaredEuclidean().transformed(points, centroids).tolist()
        [[1.0, 5.0], [2.0, 2.0]]
        """
        return self.distances(points, centroids)

    @property
    def squared(self) -> SquaredEuclidean | None:
        """The distortion itself if costs are squared distances, else None.

        Squared distances need no pass over the points where the sums of the clusters are known.
        """
        return None

    @property
    def weights(self) -> FloatArray | None:
        """Weights of the features, (d,) or (d, d), or None."""
        return None

    def reweighted(self, weights: FloatArray) -> Self:
        """Return the same distortion under another metric.

        Parameters
        ----------
        weights : (d,) or (d, d) float64 array

        Returns
        -------
        Self

        Raises
        ------
        TypeError
            If the distortion has no metric to learn.

        Examples
        --------
        >>> SquaredEuclidean().reweighted(np.array([1.0, 4.0])).norms(np.ones((1, 2))).tolist()
        [5.0]
        """
        raise TypeError(f"{type(self).__name__} has no weights to learn")

    def log_det(self, n_features: int) -> float:
        """Return ``log det`` of the metric, the part of the normaliser that depends on it.

        Parameters
        ----------
        n_features : int

        Returns
        -------
        float
            0 if the costs have no such normaliser.

        Examples
        --------
        >>> Cosine(metric=np.array([1.0, 9.0])).log_det(2)
        0.0
        """
        return 0.0


class WeightedDistortion(Distortion):
    """Distortion with a field `metric` of weights that can be learnt by gradient steps."""

    metric: FloatArray | None

    @property
    def weights(self) -> FloatArray | None:
        """The metric."""
        return self.metric

    def reweighted(self, weights: FloatArray) -> Self:
        """Return the distortion under another metric."""
        # All subclasses are dataclasses, as `replace` requires.
        return replace(self, metric=weights)  # type: ignore[type-var]

    @abstractmethod
    def cost_gradient(
        self,
        points: Points,
        centroids: FloatArray,
        labels: IntArray,
        sample_weight: FloatArray | None,
    ) -> FloatArray:
        """Return the gradient by the weights of the summed cost of points in their clusters.

        Parameters
        ----------
        points : (n, d) matrix, dense or CSR
        centroids : (k, d) float64 array
        labels : (n,) int64 array
        sample_weight : (n,) float64 array or None

        Returns
        -------
        (d,) float64 array

        Examples
        --------
        >>> points, centroids = np.array([[3.0, 1.0]]), np.zeros((1, 2))
        >>> SquaredEuclidean().cost_gradient(points, centroids, np.array([0]), None).tolist()
        [9.0, 1.0]
        """

    @abstractmethod
    def pair_gradient(self, points: Points, pairs: IntArray, weights: FloatArray) -> FloatArray:
        """Return the gradient by the weights of the weighted sum of ``phi`` over pairs.

        Parameters
        ----------
        points : (n, d) matrix, dense or CSR
        pairs : (m, 2) int64 array
        weights : (m,) float64 array

        Returns
        -------
        (d,) float64 array

        Examples
        --------
        >>> points, pairs = np.array([[3.0, 1.0], [0.0, 0.0]]), np.array([[0, 1]])
        >>> SquaredEuclidean().pair_gradient(points, pairs, np.array([2.0])).tolist()
        [18.0, 2.0]
        """


@dataclass(frozen=True, eq=False)
class SquaredEuclidean(WeightedDistortion):
    r"""``D(x, mu) = (x - mu)' A (x - mu)``, and ``phi`` the same between two points.

    Parameters
    ----------
    metric : (d,) or (d, d) array, optional
        Diagonal of ``A``, non-negative, or the full matrix, symmetric and positive semidefinite;
        by default the identity.

    Notes
    -----
    Squared distances are not halved. Costs are computed through inner products; estimators centre
    the points first, to avoid cancellation.

    Examples
    --------
    >>> points, centroids = np.array([[1.0, 1.0]]), np.array([[0.0, 0.0]])
    >>> SquaredEuclidean().distances(points, centroids).tolist()
    [[2.0]]
    """

    metric: FloatArray | None = None

    accepts_sparse: ClassVar[bool] = True
    translation_invariant: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the metric."""
        if self.metric is None:
            return
        metric = np.asarray(self.metric, dtype=np.float64)
        square = metric.ndim == 2 and metric.shape[0] == metric.shape[1]
        if not (metric.ndim == 1 or square) or not np.isfinite(metric).all():
            raise ValueError(
                f"metric must be a finite (d,) or (d, d) array, got shape {metric.shape}"
            )
        values = np.linalg.eigvalsh(metric) if square else metric
        if values.size and values.min() < -1e-9 * max(float(values.max()), 0.0):
            raise ValueError(
                f"metric must be positive semidefinite; its least eigenvalue is {values.min():g}"
            )
        object.__setattr__(self, "metric", metric)

    @property
    def squared(self) -> SquaredEuclidean:
        """The distortion itself."""
        return self

    def log_det(self, n_features: int) -> float:
        """Return ``log det A``, ``-inf`` if it is singular."""
        if self.metric is None:
            return 0.0
        if self.metric.ndim == 1:
            with np.errstate(divide="ignore"):
                return float(np.log(self.metric).sum())
        return float(np.linalg.slogdet(self.metric)[1])

    def times(self, rows: Points) -> Points:
        """Return ``rows A``.

        Parameters
        ----------
        rows : (n, d) matrix, dense or CSR

        Returns
        -------
        (n, d) matrix

        Examples
        --------
        >>> SquaredEuclidean(np.array([1.0, 4.0])).times(np.array([[3.0, 2.0]])).tolist()
        [[3.0, 8.0]]
        """
        if self.metric is not None and self.metric.ndim == 2:
            return rows @ self.metric
        return scaled_columns(rows, self.metric)

    def norms(self, points: Points) -> FloatArray:
        """Return ``x' A x`` of each row.

        Parameters
        ----------
        points : (n, d) matrix, dense or CSR

        Returns
        -------
        (n,) float64 array

        Examples
        --------
        >>> SquaredEuclidean(np.array([1.0, 4.0])).norms(np.array([[3.0, 2.0]])).tolist()
        [25.0]
        """
        return row_products(points, self.times(points))

    def distances(self, points: Points, centroids: FloatArray) -> FloatArray:
        """Return squared distances, through inner products, in blocks that stay in the cache."""
        scaled = np.asarray(self.times(centroids))
        offset = np.einsum("hm,hm->h", centroids, scaled)
        result = np.empty((points.shape[0], len(centroids)))

        def work(rows: slice) -> None:
            block = points[rows]
            gaps = product(block, -2.0 * scaled)
            gaps += offset
            gaps += self.norms(block)[:, np.newaxis]
            np.maximum(gaps, 0.0, out=result[rows])

        in_blocks(len(result), max(1, BLOCK // max(1, len(centroids))), work)
        return result

    def nearest(self, points: Points, centroids: FloatArray, previous: IntArray | None) -> IntArray:
        """Return the nearest centroid of each point, in blocks that stay in the cache."""
        scaled = np.asarray(self.times(centroids))
        offset = np.einsum("hm,hm->h", centroids, scaled)
        slope = np.ascontiguousarray(-2.0 * scaled.T)
        n, k = points.shape[0], len(centroids)
        labels = np.zeros(n, dtype=np.int64) if previous is None else previous.copy()
        step = max(1, BLOCK // k)

        def work(rows: slice) -> None:
            least_of_rows(np.asarray(points[rows] @ slope), offset, labels[rows])

        in_blocks(n, step, work)
        return labels

    def own(self, points: Points, centroids: FloatArray, labels: IntArray) -> FloatArray:
        """Return the squared distance of each point to its own centroid, from their difference."""
        result = np.empty(points.shape[0])
        step = max(1, BLOCK // max(1, points.shape[1]))
        for begin in range(0, len(result), step):
            rows = slice(begin, begin + step)
            gap = dense(points[rows]) - centroids[labels[rows]]
            result[rows] = row_products(gap, self.times(gap))
        return result

    def transformed(self, points: Points, centroids: FloatArray) -> FloatArray:
        """Return Euclidean distances under the metric."""
        # Differences are used, because inner products cancel if a point lies on a centroid.
        first = np.zeros(points.shape[0], np.int64)
        columns = [self.own(points, centroid[np.newaxis], first) for centroid in centroids]
        return np.sqrt(np.maximum(np.stack(columns, axis=1), 0.0))

    def between(self, points: Points, pairs: IntArray) -> FloatArray:
        """Return squared distances of pairs."""
        result = np.empty(len(pairs))
        step = max(1, BLOCK // max(1, points.shape[1]))
        for begin in range(0, len(pairs), step):
            block = pairs[begin : begin + step]
            gap = dense(points[block[:, 0]] - points[block[:, 1]])
            result[begin : begin + step] = row_products(gap, self.times(gap))
        return np.maximum(result, 0.0)

    def extent(self, points: Points) -> FloatArray:
        """Return the difference of the farthest pair of points under the metric.

        Parameters
        ----------
        points : (n, d) matrix, dense or CSR

        Returns
        -------
        (d,) float64 array
            Its sign is not specified.

        Examples
        --------
        >>> points = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 2.0]])
        >>> np.abs(SquaredEuclidean().extent(points)).tolist()
        [3.0, 2.0]
        """
        rows = dense(points)
        if self.metric is not None and self.metric.ndim == 2:
            values, axes = np.linalg.eigh(self.metric)
            rows = rows @ axes
            scale = np.sqrt(np.maximum(values, 0.0))
        else:
            axes = None
            scale = np.sqrt(np.ones(rows.shape[1]) if self.metric is None else self.metric)
        first, second = farthest_pair(rows * scale)
        difference = rows[first] - rows[second]
        return np.asarray(difference if axes is None else axes @ difference, dtype=np.float64)

    def largest(self, points: Points) -> float:
        """Return the largest squared distance of two points: ``v' A v`` of the `extent`."""
        return float(self.norms(self.extent(points)[np.newaxis])[0])

    def cost_gradient(
        self,
        points: Points,
        centroids: FloatArray,
        labels: IntArray,
        sample_weight: FloatArray | None,
    ) -> FloatArray:
        """Return the summed squared gaps to the centroids."""
        return own_squares(points, centroids, labels, sample_weight)

    def pair_gradient(self, points: Points, pairs: IntArray, weights: FloatArray) -> FloatArray:
        """Return the summed squared gaps of pairs."""
        if len(pairs) == 0:
            return np.zeros(points.shape[1])
        return weighted_sum(squares(points[pairs[:, 0]] - points[pairs[:, 1]]), weights)


@dataclass(frozen=True, eq=False)
class Cosine(WeightedDistortion):
    r"""``D(x, mu) = 1 - x' A mu / (|x|_A |mu|_A)`` with a diagonal ``A``; ``phi`` alike.

    Centroids have unit length under ``A``: the scaled sum of the unit points, which minimises the
    summed cost (Basu et al. 2004, eq. 12; there, points are not scaled again under the metric).

    Parameters
    ----------
    metric : (d,) array, optional
        Not negative; by default ones.

    Examples
    --------
    >>> points = np.array([[2.0, 0.0], [0.0, 5.0]])
    >>> Cosine().distances(points, np.array([[1.0, 0.0], [-1.0, 0.0]])).tolist()
    [[0.0, 2.0], [1.0, 1.0]]
    """

    metric: FloatArray | None = None

    accepts_sparse: ClassVar[bool] = True
    learning_rate: ClassVar[float] = 1.75

    def check(self, points: Points) -> None:
        """Refuse rows of zeros, which have no direction."""
        empty = np.flatnonzero(self.lengths(points) == 0)
        if empty.size:
            raise ValueError(
                f"row {empty[0]} of X is all zero ({empty.size} such rows); the cosine needs rows "
                "that point somewhere: leave empty documents out"
            )

    def prepare(self, points: Points) -> Points:
        """Scale rows to unit length, without the metric."""
        from sklearn.preprocessing import normalize

        return normalize(points)

    def times(self, rows: Points) -> Points:
        """Return ``rows A``.

        Parameters
        ----------
        rows : (n, d) matrix, dense or CSR

        Returns
        -------
        (n, d) matrix, dense or CSR

        Examples
        --------
        >>> Cosine(np.array([1.0, 4.0])).times(np.array([[3.0, 2.0]])).tolist()
        [[3.0, 8.0]]
        """
        return scaled_columns(rows, self.metric)

    def lengths(self, points: Points) -> FloatArray:
        """Return ``|x|_A`` of each row.

        Parameters
        ----------
        points : (n, d) matrix, dense or CSR

        Returns
        -------
        (n,) float64 array

        Examples
        --------
        >>> Cosine(np.array([1.0, 4.0])).lengths(np.array([[3.0, 2.0]])).tolist()
        [5.0]
        """
        return np.sqrt(row_products(points, self.times(points)))

    def distances(self, points: Points, centroids: FloatArray) -> FloatArray:
        """Return one minus the cosine of each point and each centroid."""
        scaled = np.asarray(self.times(centroids))
        size = np.sqrt(np.einsum("hm,hm->h", centroids, scaled))
        cosine = product(points, scaled / np.where(size > 0, size, 1.0)[:, np.newaxis])
        length = self.lengths(points)
        cosine /= np.where(length > 0, length, 1.0)[:, np.newaxis]
        return np.clip(np.subtract(1.0, cosine, out=cosine), 0.0, 2.0, out=cosine)

    def between(self, points: Points, pairs: IntArray) -> FloatArray:
        """Return one minus the cosine of pairs."""
        first, second = points[pairs[:, 0]], points[pairs[:, 1]]
        size = self.lengths(first) * self.lengths(second)
        inner = row_products(first, self.times(second))
        return np.clip(1.0 - inner / np.where(size > 0, size, 1.0), 0.0, 2.0)

    def largest(self, points: Points) -> float:
        """Return 1 for data without negative entries, else 2."""
        return 1.0 if points.shape[0] == 0 or points.min() >= 0 else 2.0

    def centroids(
        self, points: Points, shares: npt.ArrayLike, n_clusters: int, previous: FloatArray
    ) -> FloatArray:
        """Return unit vectors; clusters that are empty or whose points cancel keep `previous`."""
        length = self.lengths(points)
        scaled = scaled_rows(points, 1.0 / np.where(length > 0, length, 1.0))
        sums = cluster_sums(scaled, shares, n_clusters)
        size = self.lengths(sums)
        defined = size > 1e-12 * np.maximum(cluster_sizes(shares, n_clusters), 1.0)
        result = previous.copy()
        result[defined] = sums[defined] / size[defined, np.newaxis]
        return result

    def cost_gradient(
        self,
        points: Points,
        centroids: FloatArray,
        labels: IntArray,
        sample_weight: FloatArray | None,
    ) -> FloatArray:
        """Return the gradient of the summed cost of points in their clusters."""
        sample_weight = np.ones(labels.size) if sample_weight is None else sample_weight
        k = len(centroids)
        length, size = self.lengths(points), self.lengths(centroids)
        length = np.where(length > 0, length, 1.0)
        size = np.where(size > 0, size, 1.0)
        cosine = sample_weight * (1.0 - self.own(points, centroids, labels))
        unit = scaled_rows(points, 1.0 / length)
        sums = cluster_sums(unit, labels, k, sample_weight)
        inner = (centroids / size[:, np.newaxis] * sums).sum(axis=0)
        spread = np.bincount(labels, weights=cosine, minlength=k) / size**2
        spread_squares = (spread[:, np.newaxis] * centroids**2).sum(axis=0)
        weighted = weighted_sum(squares(points), cosine / length**2)
        return np.asarray(0.5 * (weighted + spread_squares) - inner, dtype=np.float64)

    def pair_gradient(self, points: Points, pairs: IntArray, weights: FloatArray) -> FloatArray:
        """Return the gradient of the weighted sum over pairs."""
        if len(pairs) == 0:
            return np.zeros(points.shape[1])
        first, second = points[pairs[:, 0]], points[pairs[:, 1]]
        one, two = self.lengths(first), self.lengths(second)
        one, two = np.where(one > 0, one, 1.0), np.where(two > 0, two, 1.0)
        cosine = row_products(first, self.times(second)) / (one * two)
        both = first.multiply(second) if is_sparse(first) else first * second
        total = weighted_sum(squares(first), weights * cosine / one**2)
        total = total + weighted_sum(squares(second), weights * cosine / two**2)
        return 0.5 * total - weighted_sum(both, weights / (one * two))


class Bregman(Distortion):
    r"""``D(x, mu) = f(x) - f(mu) - <grad f(mu), x - mu>`` for a convex ``f``.

    The mean of a cluster minimises its summed cost for every ``f`` (Banerjee et al. 2005, prop. 1).
    ``phi(x, y) = f(x) + f(y) - 2 f((x + y) / 2)``, the summed cost of two points in a cluster of
    their own.

    Examples
    --------
    With the sum of squares as ``f``, divergences are squared distances:

    >>> class Squares(Bregman):
    ...     def generator(self, points):
    ...         return (points**2).sum(axis=1)
    ...     def gradient(self, centroids):
    ...         return 2 * centroids
    >>> points = np.array([[0.0], [3.0]])
    >>> Squares().distances(points, np.array([[1.0]])).tolist()
    [[1.0], [4.0]]
    """

    @abstractmethod
    def generator(self, points: Points) -> FloatArray:
        """Return ``f`` of each row.

        Parameters
        ----------
        points : (n, d) matrix, dense or CSR

        Returns
        -------
        (n,) float64 array
            Finite.

        Examples
        --------
        >>> IDivergence().generator(np.array([[1.0, 2.0]])).round(3).tolist()
        [-1.614]
        """

    @abstractmethod
    def gradient(self, centroids: FloatArray) -> FloatArray:
        """Return the gradient of ``f`` at each row.

        Parameters
        ----------
        centroids : (k, d) float64 array

        Returns
        -------
        (k, d) float64 array
            Finite.

        Examples
        --------
        >>> IDivergence().gradient(np.array([[1.0, 2.0]])).round(3).tolist()
        [[0.0, 0.693]]
        """

    def distances(self, points: Points, centroids: FloatArray) -> FloatArray:
        """Return the divergence of each point from each centroid."""
        slope = self.gradient(centroids)
        offset = np.einsum("hm,hm->h", slope, centroids) - self.generator(centroids)
        result = product(points, -slope)
        result += offset
        result += self.generator(points)[:, np.newaxis]
        return np.maximum(result, 0.0, out=result)

    def between(self, points: Points, pairs: IntArray) -> FloatArray:
        """Return the Jensen-Bregman divergence of pairs."""
        first, second = points[pairs[:, 0]], points[pairs[:, 1]]
        middle = self.generator((first + second) / 2.0)
        return np.maximum(self.generator(first) + self.generator(second) - 2.0 * middle, 0.0)

    def largest(self, points: Points) -> float:
        """Return a bound by distances from the mean."""
        mean = np.asarray(points.mean(axis=0), dtype=np.float64).reshape(1, -1)
        return 2.0 * float(self.distances(points, mean).max())


@dataclass(frozen=True, eq=False)
class IDivergence(WeightedDistortion, Bregman):
    r"""``D(x, mu) = sum_m a_m (x_m log(x_m / mu_m) - x_m + mu_m)`` on non-negative data.

    ``phi(x, y) = sum_m a_m (x_m log(2 x_m / (x_m + y_m)) + y_m log(2 y_m / (x_m + y_m)))``.

    Parameters
    ----------
    smoothing : float
        Centroids are ``(mean + smoothing * u) / (1 + smoothing)`` with ``u`` flat and of the mass
        of the mean (Basu et al. 2004, eq. 16 with 1/d in place of the printed 1/n). Without it, a
        point cannot join a cluster that lacks one of its words; with it, the objective may rise.
    metric : (d,) array, optional
        The weights ``a``, not negative; by default ones.

    Examples
    --------
    >>> points, centroids = np.array([[2.0, 0.0]]), np.array([[1.0, 1.0], [0.0, 1.0]])
    >>> IDivergence(smoothing=0.0).distances(points, centroids).round(3).tolist()
    [[1.386, inf]]
    """

    smoothing: float = setting(1.0, at_least=0, below=math.inf)
    metric: FloatArray | None = None

    accepts_sparse: ClassVar[bool] = True
    positive_only: ClassVar[bool] = True
    learning_rate: ClassVar[float] = 1e-8

    def __post_init__(self) -> None:
        """Check the smoothing."""
        check_settings(self)

    def check(self, points: Points) -> None:
        """Refuse negative entries and rows without mass."""
        _refuse_negative(points, type(self).__name__)
        empty = np.flatnonzero(row_sums(points) == 0)
        if empty.size:
            raise ValueError(
                f"row {empty[0]} of X is all zero ({empty.size} such rows); "
                f"{type(self).__name__} needs rows with mass: leave empty documents out"
            )

    def generator(self, points: Points) -> FloatArray:
        """Return ``sum_m a_m (x_m log x_m - x_m)`` of each row."""
        from scipy.special import xlogy

        if is_sparse(points):
            values = points.copy()
            values.data = xlogy(points.data, points.data) - points.data
            return np.asarray(
                values @ (np.ones(points.shape[1]) if self.metric is None else self.metric)
            )
        values = xlogy(points, points) - points
        if self.metric is None:
            return row_sums(values)
        return np.asarray(values @ self.metric, dtype=np.float64)

    def gradient(self, centroids: FloatArray) -> FloatArray:
        """Return ``a_m log mu_m``, 0 if a centroid has no mass (`distances` adds the rest)."""
        slope = np.log(np.where(centroids > 0, centroids, 1.0))
        return slope if self.metric is None else slope * self.metric

    def distances(self, points: Points, centroids: FloatArray) -> FloatArray:
        """Return the divergences, ``+inf`` if a point has mass where the centroid has none."""
        result = super().distances(points, centroids)
        missing = centroids <= 0
        if self.metric is not None:
            missing &= self.metric > 0
        if missing.any():
            result[product(points, missing.astype(np.float64)) > 0] = np.inf
        return result

    def centroids(
        self, points: Points, shares: npt.ArrayLike, n_clusters: int, previous: FloatArray
    ) -> FloatArray:
        """Return the means, smoothed."""
        sizes = cluster_sizes(shares, n_clusters)
        means = super().centroids(points, shares, n_clusters, previous)
        occupied = sizes > 0
        flat = means[occupied].mean(axis=1, keepdims=True)
        means[occupied] = (means[occupied] + self.smoothing * flat) / (1.0 + self.smoothing)
        return means

    def largest(self, points: Points) -> float:
        """Return ``log 2 max_m a_m (|x| + |y|)`` for the two rows of largest mass."""
        mass = np.sort(row_sums(points))[-2:].sum() if points.shape[0] else 0.0
        largest_weight = 1.0 if self.metric is None else float(self.metric.max(initial=0.0))
        return float(math.log(2.0) * largest_weight * mass)

    def cost_gradient(
        self,
        points: Points,
        centroids: FloatArray,
        labels: IntArray,
        sample_weight: FloatArray | None,
    ) -> FloatArray:
        """Return the summed divergence of each feature."""
        from scipy.special import xlogy

        sample_weight = np.ones(labels.size) if sample_weight is None else sample_weight
        k = len(centroids)
        masses = cluster_sums(points, labels, k, sample_weight)
        sizes = cluster_sizes(labels, k, sample_weight)
        entropies = weighted_sum(_entropies(points), sample_weight)
        logs = xlogy(masses, np.where(centroids > 0, centroids, 1.0))
        crossed = logs + masses - sizes[:, np.newaxis] * centroids
        return np.asarray(entropies - crossed.sum(axis=0), dtype=np.float64)

    def pair_gradient(self, points: Points, pairs: IntArray, weights: FloatArray) -> FloatArray:
        """Return the summed dissimilarity of each feature."""
        if len(pairs) == 0:
            return np.zeros(points.shape[1])
        first, second = points[pairs[:, 0]], points[pairs[:, 1]]
        return (
            weighted_sum(_entropies(first), weights)
            + weighted_sum(_entropies(second), weights)
            - 2.0 * weighted_sum(_entropies((first + second) / 2.0), weights)
        )


def _entropies(rows: Points) -> Points:
    """Return ``x log x`` of each entry."""
    from scipy.special import xlogy

    if not is_sparse(rows):
        return xlogy(rows, rows)
    result = rows.copy()
    result.data = xlogy(rows.data, rows.data)
    return result


@dataclass(frozen=True, eq=False)
class KullbackLeibler(IDivergence):
    """The I-divergence between rows scaled to sum one, ``sum_m x_m log(x_m / mu_m)``.

    Suited to counts or frequencies, not to TF-IDF weights.

    Parameters
    ----------
    smoothing, metric
        See `IDivergence`.

    Examples
    --------
    >>> divergence = KullbackLeibler(smoothing=0.0)
    >>> points = divergence.prepare(np.array([[3.0, 1.0]]))
    >>> divergence.distances(points, np.array([[0.75, 0.25], [0.5, 0.5]])).round(3).tolist()
    [[0.0, 0.131]]
    """

    def prepare(self, points: Points) -> Points:
        """Scale rows to sum one."""
        from sklearn.preprocessing import normalize

        return normalize(points, norm="l1")


@dataclass(frozen=True, eq=False)
class ItakuraSaito(Bregman):
    """``D(x, mu) = sum_m (x_m / mu_m - log(x_m / mu_m) - 1)`` on positive data.

    Examples
    --------
    >>> points, centroids = np.array([[1.0], [10.0]]), np.array([[2.0], [20.0]])
    >>> ItakuraSaito().own(points, centroids, np.array([0, 1])).round(3).tolist()
    [0.193, 0.193]
    """

    positive_only: ClassVar[bool] = True

    def check(self, points: Points) -> None:
        """Refuse entries that are not positive."""
        if (points <= 0).any():
            row, column = (int(p) for p in np.argwhere(points <= 0)[0])
            raise ValueError(
                f"X[{row}, {column}] = {points[row, column]}; the Itakura-Saito divergence needs "
                "positive values"
            )

    def generator(self, points: Points) -> FloatArray:
        """Return ``-sum_m log x_m`` of each row."""
        return -row_sums(np.log(points))

    def gradient(self, centroids: FloatArray) -> FloatArray:
        """Return ``-1 / mu_m``."""
        return -1.0 / centroids


def _refuse_negative(points: Points, name: str) -> None:
    smallest = points.min() if points.shape[0] else 0.0
    if smallest < 0:
        if is_sparse(points):
            points = points.tocoo()
            at = int(np.flatnonzero(points.data < 0)[0])
            row, column, value = points.row[at], points.col[at], points.data[at]
        else:
            row, column = np.argwhere(points < 0)[0]
            value = points[row, column]
        raise ValueError(
            f"X[{row}, {column}] = {value}; {name} needs values that are not negative. "
            "Negative values in data passed to it are most often standardised features"
        )


_NAMED: dict[str, type[Distortion]] = {
    "euclidean": SquaredEuclidean,
    "cosine": Cosine,
    "kl": KullbackLeibler,
    "i-divergence": IDivergence,
    "itakura-saito": ItakuraSaito,
}


def as_distortion(distortion: str | Distortion) -> Distortion:
    """Return the distortion with a given name, or the given object."""
    if isinstance(distortion, Distortion):
        return distortion
    if not isinstance(distortion, str):
        raise TypeError(
            f"distortion must be a name or a Distortion, got {type(distortion).__name__}"
        )
    if distortion not in _NAMED:
        raise ValueError(f"distortion = {distortion!r} is unknown; allowed: {', '.join(_NAMED)}")
    return _NAMED[distortion]()
