"""COP-KMeans: K-means that never violates a constraint, or reports a failure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, TypeAlias, Unpack

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from inference_lab._numba import kernel
from inference_lab.clustering.cluster_model import Assignment, Model, as_labels
from inference_lab.clustering.e_step import Expectation
from inference_lab.clustering.em import Fit, maximise_expectation
from inference_lab.clustering.fit_inputs import FitInputs, read_fit, takes
from inference_lab.clustering.hmrf import HMRF, EmptyClusters, clamped
from inference_lab.clustering.initialisation import Init, group_centroids, initial_centroids
from inference_lab.clustering.pair_warnings import ConstraintsNotMetWarning
from inference_lab.clustering.prediction import CentroidPredictor, PairScore
from inference_lab.clustering.starts import AT_LEAST_ONE, generator_of
from inference_lab.clustering.supervision import FitArguments, Supervision, without_pairs
from inference_lab.clustering.violations import violations
from inference_lab.constraints.constraints import of_positive_weight
from inference_lab.constraints.hard_pairs import contradiction
from inference_lab.constraints.pair_arrays import symmetric_matrix
from inference_lab.distortions.distortions import Distortion, as_distortion
from inference_lab.formatting import warn
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.specs.settings import setting

Order: TypeAlias = Literal["random", "given"]


@kernel
def place_units(
    costs: FloatArray,
    order: IntArray,
    indptr: IntArray,
    indices: IntArray,
    labels: IntArray,
) -> int:
    """Assign units in order to the cheapest cluster without cannot-links, else with the fewest."""
    k = costs.shape[1]
    labels[:] = -1
    enemies = np.zeros(k, dtype=np.int64)
    stuck = 0
    for u in order:
        for t in range(indptr[u], indptr[u + 1]):
            h = labels[indices[t]]
            if h >= 0:
                enemies[h] += 1
        best = 0
        for h in range(1, k):
            if enemies[h] < enemies[best] or (
                enemies[h] == enemies[best] and costs[u, h] < costs[u, best]
            ):
                best = h
        stuck += enemies[best] > 0
        labels[u] = best
        for t in range(indptr[u], indptr[u + 1]):
            h = labels[indices[t]]
            if h >= 0:
                enemies[h] = 0
    return stuck


class _Units:
    """Must-link components with their cannot-links; costs are of the `whole` or the first point."""

    def __init__(self, supervision: Supervision, whole: bool) -> None:
        constraints = supervision.constraints
        self.of_point = constraints.components()
        self.count = int(self.of_point.max(initial=-1)) + 1
        self.whole = whole
        #: Clusters of the units that hold a point whose cluster is known, -1 elsewhere.
        self.labels_of_units: IntArray = np.full(self.count, -1)
        labelled = np.flatnonzero(supervision.partial_labels >= 0)
        self.labels_of_units[self.of_point[labelled]] = supervision.partial_labels[labelled]
        ends = self.of_point[constraints.cannot_link]
        # A cannot-link within a unit is violated in every cluster.
        ends = ends[ends[:, 0] != ends[:, 1]]
        graph = symmetric_matrix(self.count, ends, np.ones(len(ends)))
        self.indptr = graph.indptr.astype(np.int64)
        self.indices = graph.indices.astype(np.int64)
        n = len(self.of_point)
        self._members = csr_array(
            (supervision.sample_weight_or_ones, (self.of_point, np.arange(n))),
            shape=(self.count, n),
        )

    def ordered(self, order: Order, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        """Return the units in the order of placement, and the first point of each."""
        n = len(self.of_point)
        points = np.arange(n) if order == "given" else rng.permutation(n)
        # Written back to front, so that the first point of each unit is written last.
        first = np.empty(self.count, dtype=np.int64)
        first[self.of_point[points[::-1]]] = np.arange(n)[::-1]
        units = np.argsort(first)
        # Units of known clusters come first, because they have no choice.
        units = units[np.argsort(self.labels_of_units[units] < 0, kind="stable")]
        return units, points[first]

    def costs(self, costs: FloatArray, first: IntArray) -> FloatArray:
        """Return the cost of each unit in each cluster."""
        if self.count == len(self.of_point):
            # Without must-links, components have the numbers of their points.
            return clamped(costs, self.labels_of_units)
        unit_costs = np.asarray(self._members @ costs) if self.whole else costs[first]
        return clamped(unit_costs, self.labels_of_units)


class PlacementStep:
    """The E-step of one start: sweeps in a fixed order, redrawn if a unit cannot be placed."""

    def __init__(self, units: _Units, order: Order, rng: np.random.Generator, tries: int) -> None:
        self.units = units
        self.order = order
        self.rng = rng
        #: Maximum number of orders per sweep.
        self.tries = 1 if order == "given" else tries
        self.sequence, self.first = units.ordered(order, rng)
        #: "failed", "cycle" or "blocked" once the start has ended.
        self.ended: str | None = None
        #: The least objective of a labelling at its own centroids, and the labelling.
        self.best: tuple[float, IntArray] | None = None
        self._seen: set[int] = set()

    def __call__(self, model: Model, previous: Assignment | None) -> Expectation:
        """Return labels, the previous ones if the start has ended."""
        if previous is None:
            return Expectation(self._first_labels(model))
        before = as_labels(previous)
        return Expectation(before if self.ended is not None else self._next_labels(model, before))

    def _first_labels(self, model: Model) -> IntArray:
        labels, stuck = self._assign_units(model)
        if stuck > 0:
            self.ended = "failed"
        self._seen.add(hash(labels.tobytes()))
        return labels

    def _next_labels(self, model: Model, before: IntArray) -> IntArray:
        # The model has moved to the centroids of these labels.
        value = model.objective(before)
        if self.best is None or value < self.best[0]:
            self.best = value, before
        labels, stuck = self._assign_units(model)
        for _ in range(1, self.tries):
            if stuck == 0:
                break
            self.sequence, self.first = self.units.ordered(self.order, self.rng)
            labels, stuck = self._assign_units(model)
        if np.array_equal(labels, before):
            return before
        if stuck > 0:
            self.ended = "blocked"
            return before
        mark = hash(labels.tobytes())
        if mark in self._seen:
            self.ended = "cycle"
            return before
        self._seen.add(mark)
        return labels

    def _assign_units(self, model: Model) -> tuple[IntArray, int]:
        """Return new labels, and the number of units without an allowed cluster."""
        units = self.units
        placed = np.empty(units.count, dtype=np.int64)
        costs = np.ascontiguousarray(units.costs(model.costs(), self.first))
        stuck = place_units(costs, self.sequence, units.indptr, units.indices, placed)
        return placed[units.of_point], stuck


@dataclass(eq=False, repr=False, kw_only=True)
class COPKMeans(PairScore, CentroidPredictor):
    r"""K-means whose every assignment satisfies all constraints.

    All pairs of positive weight are hard. Points are assigned in turn to the cheapest cluster that
    violates no constraint with earlier points; then centroids are moved. A start fails if a point
    has no such cluster, and another order is tried. Failure does not prove infeasibility, which is
    NP-complete to decide. Because the objective may rise, the best sweep is returned.

    Parameters
    ----------
    n_clusters, distortion, empty_clusters, max_iter, random_state
        See `BregmanKMeans`.
    init : str or (k, d) array
        "wagstaff": random points from different must-link components, with their components if
        `whole_components`; else see `initial_centroids`.
    whole_components : bool
        Assign each must-link component by its summed cost; if false, by the cost of its first
        point, as in the paper.
    order : {"random", "given"}
        Order of points: random, drawn once per start and again after a failure; or by row, as in
        the paper.
    max_failures : int
        Maximum failed starts of a fit, and failed orders of a start. With order "given" and fixed
        centroids, all starts fail in the same way.
    n_init : int
        Successful starts; the one of least objective is kept.
    tol : float
        Stop when the objective changes by no more than this share in an iteration.

    Attributes
    ----------
    status_ : str
        End of the best start: "converged"; "limit" (of iterations); "cycle" (a sweep returned to
        earlier labels); "blocked" (a later sweep failed in all orders tried); "failed" (every start
        failed: the one with fewest violations, by weight, is kept, with a
        `ConstraintsNotMetWarning`); or "infeasible" (the same, and no labelling satisfies the
        constraints).
    feasible_ : bool
        Whether `labels_` satisfies all constraints: true in the first four cases, and only then.
    n_failures_ : int
        Number of failed starts.
    labels_, cluster_centers_, inertia_, objective_, n_iter_, history_, converged_, metric_
        See `BregmanKMeans`.
    constraints_, violations_
        See `HMRFKMeans`; pairs of weight zero are left out.

    Notes
    -----
    **Guarantees.** Labels violate no constraint, or ``feasible_`` is false. The objective may rise
    between sweeps, because they do not minimise it given the centroids, and sweeps may cycle.

    **Complexity.** O(n d k + q) per iteration for q cannot-links; O(n k) memory besides the data.

    References
    ----------
    K. Wagstaff, C. Cardie, S. Rogers, S. Schroedl, "Constrained K-means clustering with background
    knowledge", ICML 2001, table 1.
    I. Davidson, S. Ravi, "Clustering with constraints: feasibility issues and the k-means
    algorithm", SDM 2005.

    Examples
    --------
    >>> X = [[0.0], [1.0], [5.0], [6.0]]
    >>> model = COPKMeans(2, random_state=0).fit(X, must_link=[(0, 3)], cannot_link=[(0, 1)])
    >>> labels = model.labels_
    >>> bool(labels[0] == labels[3] != labels[1]), model.feasible_
    (True, True)
    """

    n_clusters: int = field(default=3, kw_only=False, metadata=AT_LEAST_ONE)
    distortion: str | Distortion = "euclidean"
    init: Literal["wagstaff"] | Init | npt.ArrayLike = "wagstaff"
    whole_components: bool = True
    order: Order = "random"
    max_failures: int = setting(10, at_least=1)
    empty_clusters: EmptyClusters = "reseed"
    n_init: int = setting(1, at_least=1)
    max_iter: int = setting(100, at_least=1)
    tol: float = setting(1e-6, at_least=0, below=math.inf)
    random_state: Any = None

    @takes(FitArguments)
    def fit(self, X: Any, y: Any = None, **arguments: Unpack[FitArguments]) -> Self:
        inputs = read_fit(self, X, y, arguments, as_distortion(self.distortion))
        weighed = inputs.weighed()
        constraints = of_positive_weight(weighed.constraints)
        supervision = replace(weighed, constraints=constraints)

        best, self.status_, self.n_failures_ = self._search(inputs, supervision)

        self._set_centroids(inputs, best.model.centroids, best.model.metric)
        self._set_progress(best.result)
        self._set_labels(inputs, best.labels, constraints)
        self.converged_ = self.status_ == "converged"
        labelled = supervision.partial_labels >= 0
        satisfied = self.violations_.must_link + self.violations_.cannot_link == 0
        self.feasible_ = satisfied and np.array_equal(
            best.labels[labelled], supervision.partial_labels[labelled]
        )
        if not self.feasible_:
            self._report_failure(supervision)
        return self

    def _report_failure(self, supervision: Supervision) -> None:
        """Set the status of a fit without feasible labels, and warn."""
        constraints, partial_labels = supervision.constraints, supervision.partial_labels
        hard = constraints.with_weights(np.inf, np.inf)
        open_to = clamped(np.zeros((partial_labels.size, self.n_clusters)), partial_labels)
        reason = contradiction(open_to, hard.terms(), np.arange(partial_labels.size))
        self.status_ = "infeasible" if reason else "failed"
        message = (
            f"no labelling satisfies the constraints: {reason}"
            if reason
            else f"all {self.n_failures_} starts failed to satisfy the constraints; the labels "
            f"violate {self.violations_.cannot_link} cannot-links. A labelling that violates "
            "none may exist: try PCKMeans with cl_weight=inf, which searches for one, more "
            "max_failures or more clusters"
        )
        warn(message, ConstraintsNotMetWarning)

    def _search(self, inputs: FitInputs, supervision: Supervision) -> tuple[Fit[HMRF], str, int]:
        """Return the best start, its status, and the number of failed starts."""
        rng = generator_of(self.random_state)
        units = _Units(supervision, self.whole_components)
        ended: list[tuple[Fit[HMRF], str]] = []
        failed: list[tuple[Fit[HMRF], str]] = []
        while len(ended) < self.n_init and len(failed) < self.max_failures:
            (child,) = rng.spawn(1)
            start = self._fit_once(inputs, supervision, units, child)
            (failed if start[1] == "failed" else ended).append(start)
        if ended:
            return *min(ended, key=lambda start: start[0].objective), len(failed)

        def violation(start: tuple[Fit[HMRF], str]) -> tuple[float, float]:
            fit = start[0]
            return violations(supervision.constraints, fit.labels).weight, fit.objective

        return *min(failed, key=violation), len(failed)

    def _fit_once(
        self,
        inputs: FitInputs,
        supervision: Supervision,
        units: _Units,
        rng: np.random.Generator,
    ) -> tuple[Fit[HMRF], str]:
        """Return the start and its status."""
        points = inputs.points
        model = HMRF(
            points,
            # The model has no constraints, because the E-step enforces them.
            without_pairs(points.shape[0], supervision.sample_weight),
            inputs.format.distortion,
            self._centroids(inputs, supervision, units, rng),
            empty=self.empty_clusters,
        )
        step = PlacementStep(units, self.order, rng, self.max_failures)
        result = maximise_expectation(model, step, max_iter=self.max_iter, tol=self.tol)
        if step.best is not None and step.best[0] < result.objective:
            # The start ends at earlier labels, with the matching centroids.
            _, labels = step.best
            for _ in model.maximise(labels):
                pass
            result = replace(result, assignment=labels, objective=model.objective(labels))
        status = step.ended or ("converged" if result.converged else "limit")
        return Fit(model, result), status

    def _centroids(
        self,
        inputs: FitInputs,
        supervision: Supervision,
        units: _Units,
        rng: np.random.Generator,
    ) -> FloatArray:
        """Return initial centroids."""
        init, k, points = self.init, self.n_clusters, inputs.points
        distortion, sample_weight = inputs.format.distortion, supervision.sample_weight
        if not (isinstance(init, str) and init == "wagstaff"):
            return initial_centroids(
                points, supervision, k, distortion, inputs.centred_init(init), rng
            )
        n = points.shape[0]
        shuffled = rng.permutation(n)
        first = np.sort(np.unique(units.of_point[shuffled], return_index=True)[1])[:k]
        # With fewer components than clusters, several points of one component are used.
        rest = np.setdiff1d(np.arange(n), first)[: k - first.size]
        rows = shuffled[np.concatenate((first, rest))]
        members = [np.array([point]) for point in rows]
        if self.whole_components:
            place = np.full(units.count, -1)
            place[units.of_point[rows[: first.size]]] = np.arange(first.size)
            touched = np.flatnonzero(place[units.of_point] >= 0)
            by_centre = np.argsort(place[units.of_point[touched]], kind="stable")
            touched = touched[by_centre]
            cuts = np.searchsorted(place[units.of_point[touched]], np.arange(1, first.size))
            members[: first.size] = np.split(touched, cuts)
        partial_labels = supervision.partial_labels
        for h in np.unique(partial_labels[partial_labels >= 0]):
            members[h] = np.flatnonzero(partial_labels == h)
        return group_centroids(points, members, distortion, sample_weight)
