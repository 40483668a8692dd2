"""Expectation-maximisation whose E-step is any solver, hard at T = 0 and soft at T > 0.

The loop labels the points (by a solver if constraints couple them, else each by its cheapest
cluster), lets the model improve its parameters in half-steps, and records the objective after each.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np

from inference_lab.clustering.hard_pairs import (
    contradiction,
    finite_price,
    infeasible,
    n_unmet,
    priced,
)
from inference_lab.clustering.must_link_contraction import Units, units_of
from inference_lab.constraints import Constraints
from inference_lab.contract import Solution, Solver, Status
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.terms import DiagonalTerms
from inference_lab.solving import solve

#: Labels, (n,) int64, at temperature zero, else shares in the clusters, (n, k) float64.
Assignment: TypeAlias = "IntArray | FloatArray"


M = TypeVar("M")
#: Search for labels that keep hard pairs, if the solver of the E-step finds none. On random
#: feasible colourings it violated the fewest pairs of all methods of this package.
_SEARCH = "simulated-annealing"


def as_labels(assignment: Assignment) -> IntArray:
    """Return an assignment at temperature zero as labels, without a copy."""
    return np.asarray(assignment, dtype=np.int64)


class HalfStep(NamedTuple):
    """One line of the history of a fit.

    ``step`` is "E" or the model's name of the half-step, ``objective`` its objective after it (the
    free energy at T > 0), ``seconds`` its time. ``energy``, ``lower_bound`` and ``status`` come
    from the solver in E-steps, for the points that constraints couple.

    Examples
    --------
    >>> from inference_lab.clustering import PCKMeans
    >>> X = [[0.0], [1.0], [5.0], [6.0]]
    >>> history = PCKMeans(2, random_state=0).fit(X, cannot_link=[(0, 3)]).history_
    >>> [(line.iteration, line.step, line.objective) for line in history[:2]]
    [(1, 'E', 2.0), (1, 'centroids', 1.0)]
    """

    iteration: int
    step: str
    objective: float
    seconds: float
    status: str | None = None
    energy: float = math.nan
    lower_bound: float = math.nan


@dataclass(frozen=True)
class Coupling:
    """Coupling of points in an E-step.

    ``rows`` are the points in ``terms``, which refer to them by their place in ``rows``. ``terms``
    stays the same object while unchanged, to reuse graphs. ``importance`` scales the free energy of
    these points; ``sample_weight`` is (c,) or None.
    """

    rows: IntArray
    terms: Sequence[DiagonalTerms]
    importance: float = 1.0
    sample_weight: FloatArray | None = None


class Model(ABC):
    """Parameters of clusters, the costs of points under them, and the steps that improve them."""

    @abstractmethod
    def costs(self, rows: IntArray | None = None) -> FloatArray:
        """Return the cost of each point, or each of `rows`, in each cluster, shape (n, k)."""

    @abstractmethod
    def nearest(self, previous: IntArray | None) -> IntArray:
        """Return the cheapest cluster of each point on its own; ties keep the previous label."""

    @abstractmethod
    def coupling(self) -> Coupling:
        """Return the pairwise terms under the current parameters."""

    @abstractmethod
    def maximise(self, assignment: Assignment) -> Iterator[str]:
        """Improve the parameters in place; yield the name of each half-step after it."""

    @abstractmethod
    def objective(self, labels: IntArray) -> float:
        """Return the objective at temperature zero, from its definition."""

    def importance(self) -> FloatArray | None:
        """Return the factor of each point in the objective at T > 0, shape (n,), None for ones."""
        return None

    def response(self) -> Callable[[FloatArray], FloatArray]:
        """Return the response of the costs to a change of the shares, for coinciding clusters.

        To first order: minus the change of a cluster's costs by its shares (n,), over the clusters.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot treat clusters that coincide")

    def push_apart(self, share: float, rng: np.random.Generator) -> None:
        """Move each cluster by a share of the way to a random point, so that none coincide."""
        raise NotImplementedError(f"{type(self).__name__} cannot treat clusters that coincide")

    def parameters(self) -> tuple[FloatArray, ...]:
        """Return the arrays whose change shows that a step had an effect."""
        return ()


class PairedModel(Model):
    """Model of points coupled by pairs.

    `importance` (n,) weights points in the objective at T > 0, equal for all coupled points;
    `sample_weight` is (n,) or None.
    """

    def __init__(
        self,
        constraints: Constraints,
        importance: FloatArray | None,
        sample_weight: FloatArray | None,
    ) -> None:
        self.constraints = constraints
        self._importance = importance
        self._sample_weight = sample_weight
        #: The points that occur in pairs, and the pairs between them.
        self.rows: IntArray = constraints.touches(np.arange(constraints.n_points))
        self.pairs = constraints.restrict(self.rows, renumber=True)

    def coupled(self, terms: Sequence[DiagonalTerms]) -> Coupling:
        """Return the coupling of `rows` by terms."""
        importance = 1.0
        if self._importance is not None and self.rows.size:
            importance = float(self._importance[self.rows[0]])
        sample_weight = None if self._sample_weight is None else self._sample_weight[self.rows]
        return Coupling(self.rows, terms, importance, sample_weight)

    def importance(self) -> FloatArray | None:
        """Return the product of importance and sample weights, None for ones."""
        if self._importance is None or self._sample_weight is None:
            return self._sample_weight if self._importance is None else self._importance
        return self._importance * self._sample_weight


@dataclass
class EStepSolver:
    """Label points with a solver.

    `follow` starts a soft solver from the previous shares, for falling temperatures. At a constant
    temperature mean field would freeze there, so it restarts, and the lower free energy wins.
    `cold` restarts solvers of labels in each call.
    """

    solver: str | Solver
    rng: np.random.Generator
    time_limit: float | None = None
    temperature: float = 0.0
    follow: bool = False
    cold: bool = False
    status: str | None = field(default=None, init=False)
    energy: float = field(default=math.nan, init=False)
    lower_bound: float = field(default=math.nan, init=False)
    free_energy: float = field(default=math.nan, init=False)
    #: Hard pairs that the last labels violate; none unless a search has failed.
    unmet: int = field(default=0, init=False)
    #: Cost of hard pairs in place of infinity, once a search has failed.
    _price: float | None = field(default=None, init=False, repr=False)
    #: Costs, shares and free energy of the coupled points in the last call at T > 0.
    _last: tuple[FloatArray, FloatArray, float] | None = field(default=None, init=False, repr=False)
    #: The last graph, with the terms that it was built from and their units.
    _built: tuple[Sequence[DiagonalTerms], Units | None, FactorGraph] | None = field(
        default=None, init=False, repr=False
    )

    def __call__(self, model: Model, previous: Assignment | None) -> Assignment:
        """Return labels, or shares at T > 0, given the previous assignment (None at first).

        Labels are never worse than the previous ones under the current costs, unless solvers start
        cold; neither are shares that minimise a free energy over some set (as in mean field).
        """
        coupling = model.coupling()
        self.status, self.energy, self.lower_bound = None, math.nan, math.nan
        rows = coupling.rows
        result: Assignment
        # Solvers of labels can only start from labels.
        labels = None if previous is None or previous.ndim == 2 else as_labels(previous)
        shares = None
        if self.follow and previous is not None and labels is None:
            shares = np.asarray(previous, dtype=np.float64)
        if self.temperature > 0:
            costs = model.costs()
            unary = costs[rows]
            result = self._shares(costs, rows, model.importance())
        else:
            result = model.nearest(labels)
            unary = model.costs(rows) if rows.size else np.empty((0, 1))
        if rows.size:
            if coupling.sample_weight is not None:
                unary = unary * coupling.sample_weight[:, np.newaxis]
            graph, units = self._graph(unary, coupling.terms)
            first = rows if units is None else rows[units.first]
            solution = self._solve(
                graph,
                None if labels is None or self.cold else labels[first],
                None if shares is None else shares[first],
            )
            if not _found(solution):
                if solution.status == Status.INFEASIBLE:
                    reason = contradiction(unary, coupling.terms, rows)
                    raise infeasible(reason or "each pair of points for itself could keep them")
                graph, solution = self._search(unary, coupling, graph)
            self.status = str(solution.status)
            self.energy, self.lower_bound = solution.energy, solution.lower_bound
            if self._price is not None:
                # The bound belongs to the graph with finite prices.
                self.energy, self.lower_bound = math.inf, math.nan
            every = slice(None) if units is None else units.of_point
            if self.temperature == 0:
                result[rows] = as_labels(np.asarray(solution.labels))[every]
            else:
                shares, value = self._coupled(graph.unary, solution)
                result[rows] = shares[every]
                self.free_energy += coupling.importance * value
            if self._price is not None:
                found = result[rows] if result.ndim == 1 else result[rows].argmax(axis=1)
                self.unmet = n_unmet(coupling.terms, as_labels(found))
        return result

    def _solve(
        self, graph: FactorGraph, initial: IntArray | None, marginals: FloatArray | None
    ) -> Solution:
        """Run the solver; raise an error if it does not support the graph."""
        solution = solve(
            graph,
            self.solver,
            seed=int(self.rng.integers(2**31)),
            time_limit=self.time_limit,
            temperature=self.temperature,
            initial=initial,
            initial_marginals=marginals,
        )
        if solution.status in (Status.UNSUPPORTED, Status.NOT_INSTALLED):
            raise ValueError(
                f"e_step={solution.solver} cannot label these points: {solution.message}"
            )
        return solution

    def _search(
        self, unary: FloatArray, coupling: Coupling, hard: FactorGraph
    ) -> tuple[FactorGraph, Solution]:
        """Return a graph and its solution if the solver found no labels that keep hard pairs.

        The graph is the given one if a search finds such labels. Otherwise hard pairs have a finite
        price, in this and all later E-steps, and labels violate as few pairs as the search found.
        """
        built = self._built
        units = None if built is None else built[1]
        if units is None:
            self._price = finite_price(unary, coupling.terms)
        else:
            self._price = finite_price(units.unary(unary), units.terms)
        self._built = None
        graph, _ = self._graph(unary, coupling.terms)
        solution = self._solve(graph, None, None)
        start = solution.labels
        if start is None or not math.isfinite(hard.energy(start)):
            reason = contradiction(unary, coupling.terms, coupling.rows)
            if reason:
                raise infeasible(reason)
            # With unary costs the labels suit the centroids. Without them, where only the pairs
            # matter, the search finds labels more often.
            free = graph.with_unary(np.where(np.isinf(graph.unary), np.inf, 0.0))
            for searched in (graph, free):
                seed = int(self.rng.integers(2**31))
                start = solve(searched, _SEARCH, seed=seed, time_limit=self.time_limit).labels
                if start is not None and math.isfinite(hard.energy(start)):
                    break
        assert start is not None  # the graph forbids labels of single variables only
        initial = as_labels(np.asarray(start))
        marginals = np.eye(unary.shape[1])[initial] if self.temperature > 0 else None
        if math.isfinite(hard.energy(initial)):
            found = self._solve(hard, initial, marginals)
            if _found(found):
                self._price, self._built = None, built
                return hard, found
        return graph, self._solve(graph, initial, marginals)

    def _graph(
        self, unary: FloatArray, terms: Sequence[DiagonalTerms]
    ) -> tuple[FactorGraph, Units | None]:
        """Return the graph of an E-step on units of hard must-links; reuses the last structure."""
        if self._built is not None and self._built[0] is terms:
            _, units, before = self._built
            graph = before.with_unary(unary if units is None else units.unary(unary))
        else:
            units = units_of(terms, len(unary))
            between = terms if units is None else units.terms
            if self._price is not None:
                between = priced(between, self._price)
            graph = FactorGraph.from_terms(unary if units is None else units.unary(unary), between)
        self._built = terms, units, graph
        return graph, units

    def _coupled(self, unary: FloatArray, solution: Solution) -> tuple[FloatArray, float]:
        """Return the shares of the coupled points and their free energy."""
        shares = np.asarray(solution.marginals, dtype=np.float64)
        if solution.log_partition is None:
            return shares, math.nan
        value = -self.temperature * solution.log_partition
        if solution.log_partition_kind == "lower" and self._last is not None:
            # The previous shares may have a lower value of the functional that was minimised.
            then, before, energy = self._last
            change = _expected(unary, before) - _expected(then, before)
            if before.shape == shares.shape and energy + change < value:
                shares, value = before, energy + change
        self._last = unary, shares, value
        return shares, value

    def _shares(
        self, costs: FloatArray, coupled: IntArray, importance: FloatArray | None
    ) -> FloatArray:
        """Return the shares of each point on its own, and record their free energy."""
        from scipy.special import logsumexp, softmax

        negative = costs / -self.temperature
        alone = np.ones(len(costs), dtype=np.bool_)
        alone[coupled] = False
        energies = -self.temperature * logsumexp(negative[alone], axis=1)
        if importance is not None:
            energies = energies * importance[alone]
        self.free_energy = float(energies.sum())
        return np.asarray(softmax(negative, axis=1))


def _found(solution: Solution) -> bool:
    """Whether the solution has labels that keep the hard pairs."""
    return solution.labels is not None and math.isfinite(solution.energy)


@dataclass(frozen=True)
class Result:
    """Outcome of a fit, ``converged`` if the labels recurred or the objective stalled.

    ``unmet`` counts violated hard pairs.
    """

    assignment: Assignment
    objective: float
    history: list[HalfStep]
    n_iter: int
    converged: bool
    unmet: int = 0


def joined(before: Result, after: Result) -> Result:
    """Return the later of two results with the history and the iterations of both."""
    later = [line._replace(iteration=line.iteration + before.n_iter) for line in after.history]
    return replace(after, history=before.history + later, n_iter=before.n_iter + after.n_iter)


@dataclass
class Fit(Generic[M]):
    """One start of a fit: the final model and its result."""

    model: M
    result: Result
    #: Shares of the clusters at the last temperature above zero, if they differ from the result.
    shares: FloatArray | None = None
    #: Temperatures of the stages of annealing; None without.
    temperatures: list[float] | None = None

    @property
    def objective(self) -> float:
        """Return the objective, or ``inf`` if unknown, so that known objectives are preferred."""
        return self.result.objective if not np.isnan(self.result.objective) else np.inf

    @property
    def unmet(self) -> int:
        """Return the number of violated hard pairs."""
        return self.result.unmet

    @property
    def labels(self) -> IntArray:
        """Return the most probable cluster of each point."""
        found = self.result.assignment
        return as_labels(found if found.ndim == 1 else found.argmax(axis=1))


def maximise_expectation(
    model: Model,
    e_step: EStepSolver,
    *,
    max_iter: int,
    tol: float,
    start: Assignment | None = None,
    on_step: Callable[[HalfStep], None] | None = None,
) -> Result:
    """Alternate E-steps and the model's half-steps until convergence."""
    history: list[HalfStep] = []
    assignment = start
    objective, small = math.inf, 1.0
    converged = False

    def note(iteration: int, step: str, value: float, since: float, solved: bool) -> None:
        line = HalfStep(iteration, step, value, time.perf_counter() - since)
        if solved:
            line = line._replace(
                status=e_step.status, energy=e_step.energy, lower_bound=e_step.lower_bound
            )
        history.append(line)
        if on_step is not None:
            on_step(line)

    def label(iteration: int) -> tuple[Assignment, float]:
        since = time.perf_counter()
        found = e_step(model, assignment)
        soft = found.ndim == 2
        value = e_step.free_energy if soft else model.objective(as_labels(found))
        note(iteration, "E", value, since, True)
        return found, value

    def improved(assignment: Assignment, value: float, expected: float) -> float:
        # With the shares fixed, the free energy changes as the expected costs do.
        if assignment.ndim == 1:
            return model.objective(as_labels(assignment))
        return value + expectation(assignment) - expected

    def expectation(assignment: Assignment) -> float:
        if assignment.ndim == 1:
            return 0.0
        shares = np.asarray(assignment, dtype=np.float64)
        return _expected(model.costs(), shares, model.importance())

    iteration = 0
    while iteration < max_iter:
        iteration += 1
        before = objective
        found, objective = label(iteration)
        unchanged = assignment is not None and np.array_equal(found, assignment)
        assignment = found
        previous = tuple(array.copy() for array in model.parameters())
        labelled = objective
        expected = expectation(assignment)
        since = time.perf_counter()
        for name in model.maximise(assignment):
            objective = improved(assignment, labelled, expected)
            note(iteration, name, objective, since, False)
            since = time.perf_counter()
        still = all(map(np.array_equal, previous, model.parameters()))
        if iteration == 1:
            # Relative, as costs may be in small units; at most 1, as likelihoods may pass zero.
            small = min(1.0, abs(labelled))
        if (unchanged and still) or abs(before - objective) <= tol * max(small, abs(objective)):
            converged = True
            break
    # Relabel, because the last half-steps may have moved clusters away from some of their points.
    if assignment is None or not (converged and unchanged and still):
        found, value = label(iteration)
        if assignment is None or value <= objective:
            assignment, objective = found, value
    return Result(assignment, objective, history, iteration, converged, e_step.unmet)


def _expected(costs: FloatArray, shares: FloatArray, importance: FloatArray | None = None) -> float:
    """Return the expected cost, ignoring infinite costs of zero share."""
    values = (np.where(shares > 0, costs, 0.0) * shares).sum(axis=1)
    return float(values.sum() if importance is None else values @ importance)
