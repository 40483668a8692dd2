"""K-means with bounds on the sizes of clusters: assignments are flows of least cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self, Unpack

import numpy as np
import numpy.typing as npt

from inference_lab._numba import kernel
from inference_lab.clustering.bregman_kmeans import BregmanKMeans
from inference_lab.clustering.cluster_model import Assignment, Model, as_labels
from inference_lab.clustering.e_step import Expectation
from inference_lab.clustering.fit_inputs import takes
from inference_lab.clustering.hmrf import HMRF
from inference_lab.clustering.supervision import PAIR_ARGUMENTS, PairArguments
from inference_lab.clustering.violations import violations
from inference_lab.constraints import Constraints
from inference_lab.constraints.hard_pairs import InfeasibleConstraintsError
from inference_lab.graph.arrays import FloatArray, IntArray, connected

#: A path must be shorter by more than this share of the largest cost, so that rounding cannot make
#: a cycle.
_LEAST_GAIN = 1e-12
#: Relative optimality gap of assignments by the integer program.
_GAP = 1e-6
#: SciPy's status of an integer program without a solution.
_INFEASIBLE = 2


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
def balance(
    costs: FloatArray, labels: IntArray, lower: FloatArray, upper: FloatArray, gain: float
) -> int:
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
        less = (sizes <= lower).astype(np.int64) - (sizes > upper)
        more = (sizes >= upper).astype(np.int64) - (sizes < lower)
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


def least_assignment(
    costs: FloatArray,
    sample_weight: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    pairs: Constraints,
) -> IntArray:
    """Return the labels of least cost with pairs and with summed counts within bounds.

    An integer program with an indicator of each unit of points, joined by hard must-links, in each
    cluster, and an indicator of the violation of each other pair.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import block_array, csr_array, eye_array, kron

    k = costs.shape[1]
    hard = np.isinf(pairs.ml_weights)
    unit = _joined(pairs)
    n = int(unit.max()) + 1
    member = csr_array((np.ones(unit.size), (unit, np.arange(unit.size))), shape=(n, unit.size))
    ends = unit[np.concatenate([pairs.must_link[~hard], pairs.cannot_link])]
    n_must, n_pairs = int((~hard).sum()), len(ends)
    weights = np.concatenate([pairs.ml_weights[~hard], pairs.cl_weights])
    soft = np.isfinite(weights)
    # A violated must-link has one end only in some cluster, a violated cannot-link both ends.
    sign = np.where(np.arange(n_pairs) < n_must, -1.0, 1.0)
    rows = np.arange(n_pairs)
    incidence = csr_array((np.ones(n_pairs), (rows, ends[:, 0])), shape=(n_pairs, n))
    incidence = incidence + csr_array((sign, (rows, ends[:, 1])), shape=(n_pairs, n))
    sizes = kron((member @ sample_weight)[np.newaxis], eye_array(k))
    broken = kron(-eye_array(n_pairs), np.ones((k, 1)))
    table = block_array(
        [
            [kron(eye_array(n), np.ones((1, k))), None],
            [sizes, None],
            [kron(incidence, eye_array(k)), broken],
        ]
        if n_pairs
        else [[kron(eye_array(n), np.ones((1, k)))], [sizes]]
    )
    at_least = np.concatenate([np.ones(n), lower, np.full(n_pairs * k, -np.inf)])
    at_most = np.concatenate([np.ones(n), upper, np.repeat((sign + 1.0) / 2.0, k)])
    priced = np.concatenate([(member @ costs).ravel(), np.where(soft, weights, 0.0)])
    solution = milp(
        priced / max(float(abs(priced).max()), np.finfo(float).tiny),
        constraints=LinearConstraint(table.tocsr(), at_least, at_most),
        bounds=Bounds(0.0, np.concatenate([np.ones(n * k), soft.astype(np.float64)])),
        integrality=np.repeat([1, 0], [n * k, n_pairs]),
        options={"mip_rel_gap": _GAP},
    )
    if solution.status == _INFEASIBLE:
        raise InfeasibleConstraintsError(
            f"no labels keep {len(pairs.must_link)} must-links, {len(pairs.cannot_link)} "
            f"cannot-links and sizes between min_size = {lower.tolist()} and max_size = "
            f"{upper.tolist()}; give finite weights, or wider bounds"
        )
    if solution.x is None:
        raise RuntimeError(f"the integer program of the assignment failed: {solution.message}")
    labels: IntArray = solution.x[: n * k].reshape(n, k).argmax(axis=1)[unit]
    return labels


class BoundedStep:
    """The E-step under bounds on sizes: a flow, with pairs or weights an integer program."""

    def __init__(self, lower: FloatArray, upper: FloatArray) -> None:
        self.lower, self.upper = lower, upper

    def __call__(self, model: Model, previous: Assignment | None) -> Expectation:
        """Return the cheapest labels within the bounds; ties keep the previous labels."""
        assert isinstance(model, HMRF)
        before = None if previous is None else as_labels(previous)
        costs, sample_weight = np.ascontiguousarray(model.costs()), model.sample_weight
        if sample_weight is None and not len(model.constraints):
            labels = model.nearest(before).copy()
            gain = _LEAST_GAIN * float(abs(costs).max())
            balance(costs, labels, self.lower, self.upper, gain)
        else:
            sample_weight = np.ones(len(costs)) if sample_weight is None else sample_weight
            costs = costs * sample_weight[:, np.newaxis]
            labels = least_assignment(
                costs, sample_weight, self.lower, self.upper, model.constraints
            )
        if before is not None and _cost(costs, before, model) <= _cost(costs, labels, model):
            labels = before
        return Expectation(labels)


def _cost(costs: FloatArray, labels: IntArray, model: HMRF) -> float:
    return float(costs[np.arange(labels.size), labels].sum()) + model.penalties(labels)


class SizedFitArguments(PairArguments, total=False):
    """Arguments of ``fit`` besides the data."""

    sample_weight: npt.ArrayLike | None


@dataclass(eq=False, repr=False, kw_only=True)
class SizeConstrainedKMeans(BregmanKMeans):
    r"""K-means with lower and upper bounds on cluster sizes.

    Minimises ``J = sum_i D(x_i, mu_{l_i})`` subject to ``min_size <= |{i : l_i = h}| <= max_size``,
    by alternating an assignment of least cost with new centroids. Clusters are balanced by bounds
    that differ by at most one. Sample weights count in sizes, and violated pairs cost their weight.

    Parameters
    ----------
    n_clusters : int
    min_size : float or (k,) array
        The least sum of sample weights in a cluster; without weights the least number of points. An
        array holds one bound per label; the start decides which cluster gets which label.
    max_size : float, (k,) array or None
        The largest sum; None for no bound.
    distortion, init, n_init, n_jobs, max_iter, tol, random_state
        See `BregmanKMeans`.
    empty_clusters : {"reseed", "keep"}
        See `BregmanKMeans`; used if `min_size` is 0.

    Attributes
    ----------
    labels_, cluster_centers_, inertia_, objective_, n_iter_, history_, converged_, metric_
        See `BregmanKMeans`. `predict` ignores the bounds.
    constraints_ : Constraints
    violations_ : Violations
        Pairs that the labels violate.

    Notes
    -----
    **Guarantees.** Each assignment is a cheapest one within the bounds (up to a share of 1e-6 with
    pairs or weights), so the objective never rises, unless centroids are smoothed. Hard pairs and
    bounds are kept, or an error reports that no labels keep them.

    **Complexity.** O(n d k) per iteration, and O(n + k^2) times the length of a path for each point
    over a bound. O(n k) memory. With pairs or weights, an integer program of n k indicators, which
    can take exponential time.

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

    min_size: float | npt.ArrayLike = 1
    max_size: float | npt.ArrayLike | None = None

    # With scikit-learn's metadata routing, searches then pass pairs on without a request.
    __metadata_request__fit: ClassVar = dict.fromkeys(PAIR_ARGUMENTS, True)

    @takes(SizedFitArguments)
    def fit(self, X: Any, y: Any = None, **arguments: Unpack[SizedFitArguments]) -> Self:
        """Cluster the points.

        Parameters
        ----------
        X : (n, d) array-like, or sparse where the distortion allows
        y : ignored
        must_link, cannot_link, pairs, sample_ids
            As in `PCKMeans.fit`.
        ml_weight, cl_weight : float or arrays, optional
            Costs of violated pairs; by default ``inf``, so that no pair is violated.
        sample_weight : (n,) array of float, optional
            Weight of each point, also in sizes.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            If data or settings cannot be used, or sizes within the bounds cannot add up.
        InfeasibleConstraintsError
            If no labels keep the bounds and the hard pairs.

        Examples
        --------
        >>> X = [[0.0], [3.0], [10.0]]
        >>> SizeConstrainedKMeans(2, min_size=2).fit(X)
        Traceback (most recent call last):
        ...
        ValueError: 2 clusters of at least min_size = 2 points need 4 points, there are 3
        """
        inputs = self._read(X, y, **arguments, default_weight=math.inf)
        weighed = inputs.weighed()
        constraints, sample_weight = weighed.constraints, weighed.sample_weight_or_ones
        lower = self._bounds("min_size", self.min_size)
        upper = self._bounds("max_size", math.inf if self.max_size is None else self.max_size)
        self._check_sum(lower, upper, float(sample_weight.sum()))
        units = np.bincount(_joined(constraints), weights=sample_weight)
        if units.max() > upper.max():
            raise InfeasibleConstraintsError(
                f"must-links join points that count {units.max():g}; no cluster may hold more than "
                f"max_size = {upper.max():g}"
            )
        best = self._best_start(inputs, lambda rng: BoundedStep(lower, upper))
        self._set_fit(inputs, best)
        self.constraints_ = inputs.constraints_of_all(constraints)
        self.violations_ = violations(constraints, best.labels)
        return self

    def _bounds(self, name: str, value: float | npt.ArrayLike) -> FloatArray:
        """Return a bound for each cluster."""
        bounds = np.asarray(value, dtype=np.float64)
        k = self.n_clusters
        if bounds.shape not in ((), (k,)):
            raise ValueError(
                f"{name} has shape {bounds.shape}; a number or n_clusters = {k} numbers are allowed"
            )
        if not (bounds >= 0).all():
            raise ValueError(f"{name} must be at least 0, got {bounds.tolist()}")
        return np.broadcast_to(bounds, (k,)).copy()

    def _check_sum(self, lower: FloatArray, upper: FloatArray, total: float) -> None:
        """Refuse bounds that no sizes with this total can satisfy."""
        k = self.n_clusters
        over = np.flatnonzero(lower > upper)
        if over.size:
            h = over[0]
            raise ValueError(
                f"min_size = {lower[h]:g} of cluster {h} is above max_size = {upper[h]:g}"
            )
        for name, bounds, broken, word, verb in (
            ("min_size", lower, lower.sum() > total, "least", "need"),
            ("max_size", upper, upper.sum() < total, "most", "hold"),
        ):
            if broken:
                limit = f"{bounds[0]:g}" if np.ptp(bounds) == 0 else f"{bounds.tolist()}"
                raise ValueError(
                    f"{k} clusters of at {word} {name} = {limit} points {verb} {bounds.sum():g} "
                    f"points, there are {total:g}"
                )


def _joined(pairs: Constraints) -> IntArray:
    """Return the unit of each point; hard must-links join points to units."""
    return connected(pairs.n_points, pairs.must_link[np.isinf(pairs.ml_weights)])
