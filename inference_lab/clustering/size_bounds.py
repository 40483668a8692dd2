"""K-means with bounds on the sizes of clusters: assignments are flows of least cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from inference_lab._numba import kernel
from inference_lab.clustering.bregman_kmeans import BregmanKMeans
from inference_lab.clustering.distortions import Points
from inference_lab.clustering.em import Assignment, EStepSolver, Model, as_labels
from inference_lab.clustering.hmrf import HMRF
from inference_lab.clustering.supervision import Side
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.specs.settings import setting

__all__ = ["SizeConstrainedKMeans", "balance"]

#: A path must be shorter by more than this share of the largest cost, so that rounding cannot make
#: a cycle.
_LEAST_GAIN = 1e-12


@kernel
def _cheapest_leavers(
    costs: FloatArray, labels: IntArray, h: int, price: FloatArray, who: IntArray
) -> None:
    """Record the cheapest point of cluster ``h`` for each other cluster; -1 for none."""
    price[h] = np.inf
    who[h] = -1
    for i in range(labels.size):
        if labels[i] != h:
            continue
        for g in range(costs.shape[1]):
            if g != h and costs[i, g] - costs[i, h] < price[h, g]:
                price[h, g] = costs[i, g] - costs[i, h]
                who[h, g] = i


@kernel
def balance(costs: FloatArray, labels: IntArray, least: int, most: int, gain: float) -> int:
    """Move points so that cluster sizes satisfy the bounds at least cost, in place.

    From the cheapest labels, each step changes two sizes by a path of moves: first by the least
    violation of bounds, then by the least cost. This suffices, because the least cost is M-convex
    in the sizes.
    """
    n, k = costs.shape
    sizes = np.zeros(k, dtype=np.int64)
    for i in range(n):
        sizes[labels[i]] += 1
    price = np.full((k, k), np.inf)
    who = np.full((k, k), -1)
    for h in range(k):
        _cheapest_leavers(costs, labels, h, price, who)
    steps = 0
    length = np.empty(k)
    before = np.empty(k, dtype=np.int64)
    while True:
        # Change of the violation of the bounds by one point less, and by one more.
        less = (sizes <= least).astype(np.int64) - (sizes > most)
        more = (sizes >= most).astype(np.int64) - (sizes < least)
        # Shortest paths from all clusters whose loss of a point is best (Bellman, Ford).
        for h in range(k):
            length[h] = 0.0 if less[h] == less.min() else np.inf
        before[:] = -1
        shorter = True
        while shorter:
            shorter = False
            for h in range(k):
                for g in range(k):
                    if length[h] + price[h, g] < length[g] - gain:
                        length[g] = length[h] + price[h, g]
                        before[g] = h
                        shorter = True
        sink = -1
        for g in range(k):
            if more[g] == more.min() and before[g] >= 0 and (sink < 0 or length[g] < length[sink]):
                sink = g
        broken = less.min() + more.min()
        if sink < 0 or broken > 0 or (broken == 0 and length[sink] >= -gain):
            return steps
        steps += 1
        path = [sink]
        while before[path[-1]] >= 0:
            path.append(before[path[-1]])
        path.reverse()
        sizes[path[0]] -= 1
        sizes[sink] += 1
        movers = [who[path[t], path[t + 1]] for t in range(len(path) - 1)]
        for t in range(len(movers)):
            labels[movers[t]] = path[t + 1]
        for t in range(len(movers)):
            i, g = movers[t], path[t + 1]
            _cheapest_leavers(costs, labels, path[t], price, who)
            for v in range(k):
                if v != g and costs[i, v] - costs[i, g] < price[g, v]:
                    price[g, v] = costs[i, v] - costs[i, g]
                    who[g, v] = i


class _Bounded(EStepSolver):
    """The E-step under bounds on sizes: a flow."""

    def __init__(self, least: int, most: int, rng: np.random.Generator) -> None:
        super().__init__("icm", rng)
        self.least, self.most = least, most

    def __call__(self, model: Model, previous: Assignment | None) -> Assignment:
        """Return the cheapest labels within the bounds; ties keep the previous labels."""
        assert isinstance(model, HMRF)
        before = None if previous is None else as_labels(previous)
        costs, labels = np.ascontiguousarray(model.costs()), model.nearest(before).copy()
        balance(costs, labels, self.least, self.most, _LEAST_GAIN * float(abs(costs).max()))
        everyone = np.arange(labels.size)
        if before is not None and costs[everyone, before].sum() <= costs[everyone, labels].sum():
            return before
        return labels


@dataclass(eq=False, repr=False, kw_only=True)
class SizeConstrainedKMeans(BregmanKMeans):
    r"""K-means with lower and upper bounds on cluster sizes.

    Minimises ``J = sum_i D(x_i, mu_{l_i})`` subject to ``min_size <= |{i : l_i = h}| <= max_size``,
    by alternating an assignment of least cost with new centroids. Clusters are balanced by bounds
    that differ by at most one.

    Parameters
    ----------
    n_clusters : int
    min_size : int
        The least number of points in a cluster.
    max_size : int or None
        The largest number; None for no bound.
    distortion, init, n_init, n_jobs, max_iter, tol, random_state
        See `BregmanKMeans`.
    empty_clusters : {"reseed", "keep"}
        See `BregmanKMeans`; used if `min_size` is 0.

    Attributes
    ----------
    labels_, cluster_centers_, inertia_, objective_, n_iter_, history_, converged_, metric_
        See `BregmanKMeans`. `predict` ignores the bounds.

    Notes
    -----
    **Guarantees.** Each assignment is a cheapest one within the bounds, so the objective never
    rises, unless centroids are smoothed.

    **Complexity.** O(n d k) per iteration, and O(n + k^2) times the length of a path for each point
    over a bound. O(n k) memory.

    References
    ----------
    P. Bradley, K. Bennett, A. Demiriz, "Constrained k-means clustering", Microsoft Research
    MSR-TR-2000-65, 2000. K. Murota, "Discrete convex analysis", 2003, ch. 10 (single exchanges).

    Examples
    --------
    >>> X = [[0.0], [1.0], [2.0], [3.0], [4.0], [90.0]]
    >>> labels = SizeConstrainedKMeans(2, min_size=3, random_state=0).fit_predict(X)
    >>> np.bincount(labels).tolist()
    [3, 3]
    """

    min_size: int = setting(1, at_least=0)
    max_size: int | None = setting(None, at_least=0)

    def fit(self, X: Any, y: Any = None) -> Self:  # type: ignore[override]  # no sample weights
        """Cluster the points.

        Parameters
        ----------
        X : (n, d) array-like, or sparse where the distortion allows
        y : ignored

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            If data or settings cannot be used, or sizes within the bounds cannot add up.

        Examples
        --------
        >>> X = [[0.0], [3.0], [10.0]]
        >>> SizeConstrainedKMeans(2, min_size=2).fit(X)
        Traceback (most recent call last):
        ...
        ValueError: 2 clusters of at least min_size = 2 points need 4 points, there are 3
        """
        return self._fit_to(X)

    def _fit(self, points: Points, side: Side) -> None:
        n, k = points.shape[0], self.n_clusters
        least, most = self._bounds(n)
        if least > most:
            raise ValueError(f"min_size = {least} is above max_size = {most}")
        for name, bound, verb, broken in (
            ("least min_size", least, "need", k * least > n),
            ("most max_size", most, "hold", k * most < n),
        ):
            if broken:
                raise ValueError(
                    f"{k} clusters of at {name} = {bound} points {verb} {k * bound} points, there "
                    f"are {n}"
                )
        super()._fit(points, side)

    def _bounds(self, n: int) -> tuple[int, int]:
        return self.min_size, n if self.max_size is None else self.max_size

    def _expectation(self, points: Points, rng: np.random.Generator) -> EStepSolver:
        return _Bounded(*self._bounds(points.shape[0]), rng)
