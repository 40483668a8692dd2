r"""DP-means, which opens clusters at a price, and RDP-means, which also takes pairs of points.

With centroids ``mu``, a price ``lambda`` for each cluster, must-links M and cannot-links C,

``J = sum_i D(x_i, mu_{l_i}) + lambda K + xi sum_M w [l_i != l_j] + xi sum_C w [l_i = l_j]``,

up to a constant, objective (20) of Khashabi et al. with each pair counted once. For a fixed ``xi``
every half-step lowers it: the sweep by coordinate descent, or a solver, with ``lambda`` as label
cost. `DPMeans` and `RDPMeans` cite the papers.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Self, Unpack

import numpy as np

from inference_lab._numba import kernel
from inference_lab.clustering.em import HalfStep, Result
from inference_lab.clustering.fit_inputs import read_fit, takes
from inference_lab.clustering.hmrf import clamped
from inference_lab.clustering.initialisation import centre_of, group_centroids
from inference_lab.clustering.pair_odds import log_odds
from inference_lab.clustering.pair_weights import weight_of_odds
from inference_lab.clustering.paired_start import paired_kmeans
from inference_lab.clustering.prediction import CentroidPredictor, PairScore
from inference_lab.clustering.starts import SharedSettings, best_of, generator_of
from inference_lab.clustering.supervision import FitArguments, Supervision
from inference_lab.clustering.violations import violations
from inference_lab.constraints import Constraints
from inference_lab.constraints.pair_answers import USUAL_ODDS
from inference_lab.constraints.pair_arrays import refuse_hard
from inference_lab.contract import Solution, Solver
from inference_lab.distortions.distortions import Distortion, as_distortion
from inference_lab.distortions.points import Points, counted_shares, dense
from inference_lab.graph.arrays import Flags, FloatArray, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.registry.registry import as_solver
from inference_lab.solving import solve
from inference_lab.specs.settings import check_settings, setting

ClusterCost = Literal["farthest-first", "kth-distance"]

#: A price derived from the cost of a point exceeds this cost by this share. The point then opens no
#: cluster, as in exact arithmetic, in which a cost must exceed the price.
_ABOVE_TIE = 1e-9

#: Columns of costs that are kept free for clusters that open in a sweep.
_SPARE = 16

#: Default number of starts, and number of points above which there is only one.
_STARTS, _MANY_POINTS = 10, 20_000

#: Doublings of the automatic price of pairs, which starts so low that pairs have no influence.
_DOUBLINGS = 10


@kernel
def assign(
    costs: FloatArray,
    n_clusters: int,
    price: float,
    xi: float,
    ptr: IntArray,
    partner: IntArray,
    weight: FloatArray,
    labels: IntArray,
    sizes: IntArray,
    stale: Flags,
    order: IntArray,
    start: int,
    full: bool,
    last: bool,
    changed: IntArray,
) -> int:
    """Assign the points marked as stale to their cheapest clusters in turn, in place.

    Stops at the first point for which a new cluster is cheaper (unless the clusters are `full`).
    Returns its place in `order`, or the length of `order`.
    """
    row = np.empty(n_clusters)
    for place in range(start, order.size):
        i = order[place]
        if not stale[i]:
            continue
        stale[i] = 0
        for h in range(n_clusters):
            row[h] = costs[i, h] if sizes[h] > 0 else np.inf
        for q in range(ptr[i], ptr[i + 1]):
            h = labels[partner[q]]
            if h >= 0:
                row[h] -= xi * weight[q]
        current = labels[i]
        best = current if current >= 0 and not last else 0
        for h in range(n_clusters):
            if row[h] < row[best] or (last and row[h] <= row[best]):
                best = h
        if row[best] > price and not full:
            return place
        if best != current:
            if current >= 0:
                sizes[current] -= 1
            sizes[best] += 1
            labels[i] = best
            changed[0] += 1
            for q in range(ptr[i], ptr[i + 1]):
                stale[partner[q]] = 1
    return order.size


class Pairs:
    """Pairs of each point, in the layout of `assign`; must-links first.

    Without `both_ways`, only the first point of each pair holds it.
    """

    def __init__(self, constraints: Constraints, n: int, *, both_ways: bool = True) -> None:
        refuse_hard(constraints)
        ends = np.concatenate([constraints.must_link, constraints.cannot_link]).astype(np.int64)
        weight = np.concatenate([constraints.ml_weights, -constraints.cl_weights])
        if both_ways:
            ends, weight = np.concatenate([ends, ends[:, ::-1]]), np.tile(weight, 2)
        order = np.argsort(ends[:, 0], kind="stable")
        counts = np.bincount(ends[:, 0], minlength=n)
        self.pair: IntArray = order % max(1, len(constraints))
        self.ptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self.partner: IntArray = np.ascontiguousarray(ends[order, 1])
        self.weight: FloatArray = weight[order]
        self.constraints = constraints


class _Clusters:
    """Labels, centroids and costs during a fit.

    `stale` marks points whose cheapest cluster may have changed. Only they are assigned again, with
    the same result as for all points.
    """

    def __init__(
        self,
        points: Points,
        distortion: Distortion,
        squared: bool,
        start: FloatArray | None,
        supervision: Supervision,
    ) -> None:
        self.points = points
        self.distortion = distortion
        self.squared = squared
        self.n = int(points.shape[0])
        self.sample_weight = supervision.sample_weight
        #: Clusters of the points whose cluster is known; these clusters come first.
        self.partial_labels = supervision.groups()
        self.free: IntArray = np.flatnonzero(self.partial_labels < 0)
        self.labels: IntArray = self.partial_labels.copy()
        if start is None:
            groups = [
                np.flatnonzero(self.partial_labels == h)
                for h in range(int(self.partial_labels.max()) + 1)
            ]
            start = group_centroids(points, groups, distortion, supervision.sample_weight)
        self.centroids = start
        self.costs = clamped(self.distances(self.centroids), self.partial_labels)
        self.stale: Flags = np.ones(self.n, dtype=np.uint8)
        #: Largest difference between the pair costs of a point in two clusters.
        self.slack: FloatArray = np.zeros(self.n)

    def distances(self, centroids: FloatArray) -> FloatArray:
        """Return the costs of all points in clusters with these centroids."""
        costs = self.distortion.distances(self.points, centroids)
        if not self.squared:
            costs = np.sqrt(np.maximum(costs, 0.0))
        return costs if self.sample_weight is None else costs * self.sample_weight[:, np.newaxis]

    def open(self, i: int) -> None:
        """Open a cluster at a point."""
        centroid = dense(self.points[[i]])
        k = len(self.centroids)
        if k == self.costs.shape[1]:
            more = np.empty((self.n, 2 * k + _SPARE))
            more[:, :k] = self.costs
            self.costs = more
        self.costs[:, k] = np.where(self.partial_labels < 0, self.distances(centroid)[:, 0], np.inf)
        # Rounding must not change the distance of a point to itself.
        self.costs[i, k] = 0.0
        self.centroids = np.concatenate([self.centroids, centroid])
        self.stale[:] = 1
        self.labels[i] = k

    def close_empty(self) -> None:
        """Drop the clusters without points, and renumber the others."""
        used = np.bincount(self.labels, minlength=len(self.centroids)) > 0
        if used.all():
            return
        self.labels = (np.cumsum(used) - 1)[self.labels]
        self.centroids = self.centroids[used]
        self.costs = np.take(self.costs, np.flatnonzero(used), axis=1)

    def refit(self) -> bool:
        """Move the centroids to the means of their clusters; return whether any moved."""
        before = self.centroids
        k = len(before)
        shares = counted_shares(self.labels, k, self.sample_weight)
        self.centroids = self.distortion.centroids(self.points, shares, k, before)
        moved = (before != self.centroids).any(axis=1)
        if not moved.any():
            return False
        columns = np.flatnonzero(moved)
        costs = self.distances(self.centroids[columns])
        costs[
            (self.partial_labels >= 0)[:, np.newaxis]
            & (self.partial_labels[:, np.newaxis] != columns)
        ] = np.inf
        self.costs[:, columns] = costs
        self.stale[costs.min(axis=1) <= self.point_costs() + self.slack] = 1
        return True

    def point_costs(self) -> FloatArray:
        """Return the costs of the points in their clusters, (n,); ``inf`` for unassigned points."""
        row = self.costs.shape[1]
        costs = self.costs.ravel().take(np.arange(self.n) * row + np.maximum(self.labels, 0))
        return np.where(self.labels < 0, np.inf, costs)


class PenaltySchedule(NamedTuple):
    """Start, growth and limit of ``xi``; `until_grown` forbids an earlier end of the fit."""

    first: float
    rate: float
    limit: float
    until_grown: bool


@dataclass(eq=False, repr=False, kw_only=True)
class RDPMeans(SharedSettings, PairScore, CentroidPredictor):
    r"""K-means that opens clusters at a price, and pays for violated pairs.

    ``J = sum_i D(x_i, mu_{l_i}) + lambda K + xi sum_ML w [l_i != l_j] + xi sum_CL w [l_i = l_j]``

    The start is one cluster at the mean of all points, or the clusters of `PCKMeans`. Each sweep
    assigns the points in turn to their cheapest cluster. A point for which all clusters cost more
    than ``lambda`` opens a new one. Then centroids move, and empty clusters are closed.

    Parameters
    ----------
    n_clusters : int
        Input of the rules for `cluster_cost`; the number found is `n_clusters_`.
    cluster_cost : float, "farthest-first" or "kth-distance"
        ``lambda``. "farthest-first" (Kulis and Jordan): start with the mean, add the point
        farthest from all chosen so far, `n_clusters` times; use the cost of the last one.
        "kth-distance": the `n_clusters`-th largest cost of a point at the mean, as in the published
        code. Either is raised by a billionth, so that this point itself opens no cluster.
    xi : float or "auto"
        Price of a violated pair of weight 1. "auto" doubles it after each of ten sweeps, up to
        ``2 v ln 9``, the calibrated weight if one pair in ten is wrong: ``v`` is the variance
        within the clusters of k-means along the lines between centroids (its root if costs are
        roots).
    xi_rate : float
        Factor of a numeric ``xi`` after each sweep; 1 keeps the objective monotone. The paper has
        ``xi=0.001`` and ``xi_rate=2``, see `release`.
    patience : int
        Stop after this many consecutive sweeps without a changed label; 20 in the paper.
    warm_up : int
        Number of first sweeps that ignore pairs.
    distortion : str or Distortion
        As in `HMRFKMeans`; "cosine" is the limit of von Mises-Fisher components.
    squared : bool
        If false, costs are the roots of squared distances, as in the published code, with means as
        centroids, so that the objective may rise. Euclidean costs only.
    e_step : str or Solver
        ``"sweep"``, or any solver that supports label costs: its labels are the current clusters
        and `candidates` more, at points chosen farthest first.
    candidates : int
        Clusters that a solver may open in an E-step.
    start : {"auto", "mean", "box"}
        First clusters: one at the mean, or at a random point in the bounding box of the data.
        "auto" starts once from the clusters of `PCKMeans` on the same pairs, if costs are squared
        distances, and otherwise from the mean.
    order : {"random", "sequential"}
        Order of the points in a sweep.
    ties : {"keep", "last"}
        Choice between equal costs: the current cluster, or the last one.
    max_clusters : int
        Upper limit of clusters.
    max_iter : int
        Limit on sweeps.
    n_init : int or "auto"
        Starts; the one of least objective is kept. "auto" is ten with ``start="auto"``, one for
        more than 20,000 points, else one.
    e_step_time_limit, n_jobs, random_state
        See `HMRFKMeans`.

    Attributes
    ----------
    labels_, cluster_centers_, inertia_, objective_, n_iter_, converged_, history_
        See `HMRFKMeans`.
    metric_, constraints_, violations_
        See `HMRFKMeans`.
    n_clusters_ : int
        Clusters named in ``partial_labels`` come first, in the order of their numbers.
    cluster_cost_ : float
        The ``lambda`` used.
    xi_ : float
        The last ``xi``, used in the objective.

    Notes
    -----
    **Guarantees.** The objective never rises with squared costs, centroids that minimise them, no
    warm-up, and a numeric ``xi`` with ``xi_rate=1``, or "auto" once ``xi`` has grown. With ``xi=0``
    the result is the same as with `DPMeans`.

    **Complexity.** A sweep costs O(n d M + n + p) for p pairs and M moved clusters, and O(n d) for
    each new cluster. Memory: ``n K`` costs. A solver's factor graph holds all points.

    References
    ----------
    D. Khashabi, J. Liu, J. Wieting, F. Liang, "Clustering with side information: from a
    probabilistic model to a deterministic algorithm", 2015, algorithm 1.

    Examples
    --------
    >>> X = [[0.0], [1.0], [50.0], [51.0]]
    >>> model = RDPMeans(cluster_cost=100.0, xi=1.0, random_state=0)
    >>> model.fit(X).n_clusters_, model.fit(X, cannot_link=[(0, 1)], cl_weight=200.0).n_clusters_
    (2, 3)
    """

    cluster_cost: float | ClusterCost = setting("farthest-first", at_least=0, below=math.inf)
    xi: float | Literal["auto"] = setting("auto", at_least=0, below=math.inf)
    xi_rate: float = setting(1.0, at_least=1, below=math.inf)
    patience: int = setting(1, at_least=1)
    warm_up: int = setting(0, at_least=0)
    distortion: str | Distortion = "euclidean"
    squared: bool = True
    e_step: str | Solver = "sweep"
    candidates: int = setting(8, at_least=1)
    e_step_time_limit: float | None = setting(None, above=0)
    start: Literal["auto", "mean", "box"] = "auto"
    order: Literal["random", "sequential"] = "random"
    ties: Literal["keep", "last"] = "keep"
    max_clusters: int = setting(1000, at_least=1)
    max_iter: int = setting(300, at_least=1)
    n_init: int | Literal["auto"] = setting("auto", at_least=1)  # type: ignore[assignment]  # wider than the base

    @classmethod
    def release(cls, n_clusters: int, random_state: Any = None) -> RDPMeans:
        """Return the settings of the code published with the paper.

        Distances without squares, ``lambda`` by "kth-distance", a first centre in the box of the
        data, and a first sweep without pairs. ``xi`` doubles from 0.001 until 20 sweeps change no
        label, so pairs dominate in the end. The wrong numbers that the code returns after two
        clusters become empty at once are not reproduced.

        Parameters
        ----------
        n_clusters : int
            The k of ``lambda``; the number of clusters found may differ.
        random_state : int, RandomState, Generator or None

        Returns
        -------
        RDPMeans

        Examples
        --------
        >>> X = [[0.0], [1.0], [5.0], [6.0]]
        >>> model = RDPMeans.release(2, random_state=0)
        >>> model.fit(X, must_link=[(0, 1)], cannot_link=[(1, 2)]).violations_.weight
        0.0
        """
        return RDPMeans(
            n_clusters,
            cluster_cost="kth-distance",
            xi=0.001,
            xi_rate=2.0,
            patience=20,
            warm_up=1,
            squared=False,
            start="box",
            ties="last",
            max_iter=20_000,
            random_state=random_state,
        )

    @takes(FitArguments)
    def fit(self, X: Any, y: Any = None, **arguments: Unpack[FitArguments]) -> Self:
        distortion = self._checked_distortion()
        inputs = read_fit(self, X, y, arguments, distortion, any_label=True)
        supervision = inputs.weighed()
        points = inputs.points
        self._check_pairs(supervision.constraints)
        price = self._price(points, supervision)
        pairs = Pairs(supervision.constraints, points.shape[0])
        schedule = self._schedule(points, supervision)

        best = best_of(
            self._first_clusters(points, supervision),
            lambda rng, first: _DPFit(
                self, points, supervision, pairs, price, schedule, rng, first
            ),
            generator_of(self.random_state),
            self.n_jobs,
        )

        state = best.state
        self._set_centroids(inputs, state.centroids, distortion)
        self._set_progress(best.result)
        self._set_labels(inputs, state.labels, supervision.constraints)
        self.n_clusters_ = len(state.centroids)
        self.cluster_cost_ = price
        self.xi_ = best.xi
        return self

    def _first_clusters(self, points: Points, supervision: Supervision) -> list[FloatArray | None]:
        """Return the first centroids of each start, None if the start has its own rule."""
        auto = self.start == "auto"
        count = self.n_init
        if isinstance(count, str):
            count = _STARTS if auto and points.shape[0] <= _MANY_POINTS else 1
        plain = self.squared and as_distortion(self.distortion).squared is not None
        enough = self.n_clusters <= min(points.shape[0], self.max_clusters)
        if not (auto and plain and enough) or (supervision.partial_labels >= 0).any():
            return [None] * count
        odds, rng = log_odds(supervision.constraints), generator_of(self.random_state)
        paired = paired_kmeans(points, supervision, self.n_clusters, rng, odds)
        return [paired.cluster_centers_, *[None] * (count - 1)]

    def _checked_distortion(self) -> Distortion:
        """Check the settings; return the distortion."""
        check_settings(self)
        distortion = as_distortion(self.distortion)
        if not self.squared and distortion.squared is None:
            raise ValueError("squared=False takes roots of squared Euclidean distances only")
        if isinstance(self.xi, str) and self.xi_rate != 1.0:
            raise ValueError(
                f"xi_rate={self.xi_rate:g} needs a number for xi, such as 0.001; xi='auto' grows "
                "by a rule of its own"
            )
        return distortion

    def _check_pairs(self, constraints: Constraints) -> None:
        """Refuse pairs that the estimator cannot use; any are accepted here."""

    def _price(self, points: Points, supervision: Supervision) -> float:
        """Return ``lambda``."""
        rule = self.cluster_cost
        if not isinstance(rule, str):
            return float(rule)
        # The price is the cost of a point of weight 1.
        plain = replace(
            supervision, partial_labels=np.full(points.shape[0], -1), sample_weight=None
        )
        mean = centre_of(points, as_distortion(self.distortion), supervision.sample_weight)
        state = _Clusters(points, as_distortion(self.distortion), self.squared, mean, plain)
        nearest = state.costs[:, 0].copy()
        if rule == "kth-distance":
            order = np.argsort(-nearest, kind="stable")
            kth = order[
                np.searchsorted(supervision.sample_weight_or_ones[order].cumsum(), self.n_clusters)
            ]
            return float(nearest[kth]) * (1.0 + _ABOVE_TIE)
        price = 0.0
        for _ in range(self.n_clusters):
            farthest = int(nearest.argmax())
            price = float(nearest[farthest])
            nearest = np.minimum(nearest, state.distances(dense(points[[farthest]]))[:, 0])
        return max(price, 0.0) * (1.0 + _ABOVE_TIE)

    def _schedule(self, points: Points, supervision: Supervision) -> PenaltySchedule:
        """Return the growth of ``xi``."""
        if isinstance(self.xi, str):
            unit = weight_of_odds(
                points, self.n_clusters, as_distortion(self.distortion), supervision.sample_weight
            )
            limit = unit * USUAL_ODDS
            if not self.squared:
                limit = math.sqrt(limit)
            return PenaltySchedule(limit / 2.0**_DOUBLINGS, 2.0, limit, until_grown=True)
        # Beyond 1e90 only pairs matter, and products overflow.
        return PenaltySchedule(self.xi, self.xi_rate, 1e90, until_grown=False)


@dataclass(eq=False, repr=False, kw_only=True)
class DPMeans(RDPMeans):
    r"""K-means that opens a cluster at a point that costs more than a price in all others.

    ``J = sum_i D(x_i, mu_{l_i}) + lambda K``

    Parameters
    ----------
    n_clusters, cluster_cost, distortion, squared, e_step, candidates, e_step_time_limit, start
        See `RDPMeans`.
    order, max_clusters, n_init, n_jobs, max_iter, random_state
        See `RDPMeans`, which also takes pairs; this class refuses them.

    Attributes
    ----------
    labels_, cluster_centers_, inertia_, objective_, n_iter_, converged_, history_, metric_
        See `HMRFKMeans`.
    n_clusters_, cluster_cost_
        See `RDPMeans`.

    Notes
    -----
    **Guarantees.** The objective never rises, with squared costs and centroids that minimise them.

    References
    ----------
    B. Kulis, M. Jordan, "Revisiting k-means: new algorithms via Bayesian nonparametrics", ICML
    2012. K. Jiang, B. Kulis, M. Jordan, "Small-variance asymptotics for exponential family
    Dirichlet process mixture models", NIPS 2012 (Bregman divergences).

    Examples
    --------
    >>> X = [[0.0], [1.0], [5.0], [6.0], [20.0]]
    >>> [DPMeans(cluster_cost=c, random_state=0).fit(X).n_clusters_ for c in (1000.0, 4.0, 0.1)]
    [1, 3, 5]
    """

    #: Fixed in this class, so not an argument.
    xi: float | Literal["auto"] = field(default=0.0, init=False)
    xi_rate: float = field(default=1.0, init=False)
    patience: int = field(default=1, init=False)
    warm_up: int = field(default=0, init=False)
    ties: Literal["keep", "last"] = field(default="keep", init=False)

    def _check_pairs(self, constraints: Constraints) -> None:
        """Refuse all pairs."""
        if len(constraints):
            raise TypeError("DPMeans takes no must_link or cannot_link; RDPMeans does")


class _DPFit:
    """A single start of the fit."""

    #: Pairs of infinite weight are refused.
    unmet = 0

    def __init__(
        self,
        settings: RDPMeans,
        points: Points,
        supervision: Supervision,
        pairs: Pairs,
        price: float,
        schedule: PenaltySchedule,
        rng: np.random.Generator,
        first: FloatArray | None,
    ) -> None:
        self.settings, self.pairs, self.price, self.rng = settings, pairs, price, rng
        self.schedule = schedule
        self.history: list[HalfStep] = []
        self.converged = False
        self.n_iter = 0
        self.xi = schedule.first
        sweeping = isinstance(settings.e_step, str) and settings.e_step == "sweep"
        self.solver = None if sweeping else as_solver(settings.e_step)
        if first is None:
            first = self._first(points, supervision)
        # Bounds the difference of pair costs between two clusters; each pair may count in both.
        owner = np.repeat(np.arange(points.shape[0]), np.diff(pairs.ptr))
        self.swing = 2.0 * np.bincount(owner, np.abs(pairs.weight), minlength=points.shape[0])
        distortion = as_distortion(settings.distortion)
        self.state = _Clusters(points, distortion, settings.squared, first, supervision)
        self._iterate()
        self.objective = self._objective()

    @property
    def result(self) -> Result:
        """The result of the start."""
        return Result(self.state.labels, self.objective, self.history, self.n_iter, self.converged)

    def _first(self, points: Points, supervision: Supervision) -> FloatArray | None:
        """Return the centroid of the first cluster, None if clusters of some points are known."""
        if (supervision.partial_labels >= 0).any():
            return None
        if self.settings.start == "box":
            low, high = dense(points.min(axis=0)), dense(points.max(axis=0))
            return np.asarray(self.rng.uniform(low, high).reshape(1, -1))
        return centre_of(points, as_distortion(self.settings.distortion), supervision.sample_weight)

    def _objective(self) -> float:
        state = self.state
        weight = violations(self.pairs.constraints, state.labels).weight
        return (
            float(state.point_costs().sum()) + self.price * len(state.centroids) + self.xi * weight
        )

    def _iterate(self) -> None:
        settings, state, schedule = self.settings, self.state, self.schedule
        quiet = 0
        grown = schedule.first
        while self.n_iter < settings.max_iter and not self.converged:
            self.n_iter += 1
            before, self.xi = self.xi, 0.0 if self.n_iter <= settings.warm_up else grown
            state.slack = np.asarray(self.xi * self.swing, dtype=np.float64)
            if self.xi != before:
                state.stale[:] = 1
            since = time.perf_counter()
            if self.solver is None:
                changed, solution = self._assign_points(), None
            else:
                changed, solution = self._solve(self.solver)
            self._note("E", since, solution)
            since = time.perf_counter()
            moved = state.refit()
            self._note("centroids", since, None)
            quiet = 0 if changed or moved else quiet + 1
            self.converged = (
                quiet >= settings.patience
                and self.n_iter > settings.warm_up
                and not (schedule.until_grown and grown < schedule.limit)
            )
            if self.n_iter > settings.warm_up and not self.converged:
                grown = min(grown * schedule.rate, schedule.limit)

    def _note(self, step: str, since: float, solution: Solution | None) -> None:
        line = HalfStep(self.n_iter, step, self._objective(), time.perf_counter() - since)
        if solution is not None:
            line = line._replace(
                status=str(solution.status),
                energy=solution.energy,
                lower_bound=solution.lower_bound,
            )
        self.history.append(line)

    def _assign_points(self) -> bool:
        """Assign the points one by one; return whether any label changed."""
        state, settings = self.state, self.settings
        order = state.free
        if settings.order == "random":
            order = self.rng.permutation(order)
        changed = np.zeros(1, dtype=np.int64)
        sizes = np.bincount(state.labels[state.labels >= 0], minlength=len(state.centroids))
        if not sizes.any():
            # Before the first sweep the initial clusters have no points yet.
            sizes[:] = 1
        at = 0
        while at < order.size:
            full = len(state.centroids) >= settings.max_clusters
            at = assign(
                state.costs,
                len(state.centroids),
                self.price,
                self.xi,
                self.pairs.ptr,
                self.pairs.partner,
                self.pairs.weight,
                state.labels,
                sizes,
                state.stale,
                order,
                at,
                full,
                settings.ties == "last",
                changed,
            )
            if at < order.size:
                i = int(order[at])
                if state.labels[i] >= 0:
                    sizes[state.labels[i]] -= 1
                state.open(i)
                sizes = np.append(sizes, 1)
                changed[0] += 1
                at += 1
        if len(state.centroids) >= settings.max_clusters:
            # Some points may have stayed only because no more clusters could open.
            state.stale[:] = 1
        state.close_empty()
        return bool(changed[0])

    def _solve(self, solver: Solver) -> tuple[bool, Solution]:
        """Label the points with a solver; return whether any label changed."""
        state, settings = self.state, self.settings
        for _ in range(min(settings.candidates, settings.max_clusters - len(state.centroids))):
            nearest = state.costs[:, : len(state.centroids)].min(axis=1)
            nearest[state.partial_labels >= 0] = 0.0
            farthest = int(nearest.argmax())
            if nearest[farthest] <= 0.0:
                break
            label = state.labels[farthest]
            state.open(farthest)
            state.labels[farthest] = label
        k = len(state.centroids)
        before = None if (state.labels < 0).any() else state.labels
        pairs = self.pairs.constraints
        terms = pairs.terms(self.xi * pairs.ml_weights, self.xi * pairs.cl_weights)
        graph = FactorGraph.from_terms(
            np.ascontiguousarray(state.costs[:, :k]), terms
        ).with_label_costs(self.price)
        solution = solve(
            graph,
            solver,
            seed=int(self.rng.integers(2**31)),
            time_limit=settings.e_step_time_limit,
            initial=before,
        )
        if solution.labels is None:
            raise ValueError(
                f"e_step={solution.solver} cannot label these points: {solution.message}"
            )
        changed = before is None or not np.array_equal(before, solution.labels)
        state.labels = solution.labels
        state.close_empty()
        return changed, solution
