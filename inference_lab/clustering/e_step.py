"""E-steps of points that pairs couple: labels at temperature zero, shares above it.

Points without pairs take their cheapest cluster, or the softmax of their costs. A solver labels the
others together, on a factor graph in which points joined by hard must-links are one variable.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from inference_lab.clustering.cluster_model import Assignment, Coupling, Model, as_labels
from inference_lab.clustering.must_link_contraction import Units, units_of
from inference_lab.constraints.hard_pairs import (
    contradiction,
    finite_price,
    infeasible,
    n_unmet,
    priced,
)
from inference_lab.contract import Solution, Solver, Status
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.terms import DiagonalTerms
from inference_lab.solving import solve

#: Search for labels that keep hard pairs, if the solver of the E-step finds none. On random
#: feasible colourings it violated the fewest pairs of all methods of this package.
_SEARCH = "simulated-annealing"


class Expectation(NamedTuple):
    """Result of an E-step.

    ``free_energy`` belongs to shares, and is NaN for labels. ``status``, ``energy`` and
    ``lower_bound`` come from the solver of the coupled points. ``unmet`` counts the hard pairs that
    the labels violate, none unless a search has failed.
    """

    assignment: Assignment
    free_energy: float = math.nan
    status: str | None = None
    energy: float = math.nan
    lower_bound: float = math.nan
    unmet: int = 0


class AssignmentStep(Protocol):
    """A function from a model and the previous assignment (None at first) to the next one."""

    def __call__(self, model: Model, previous: Assignment | None) -> Expectation:
        """Return the expectation."""


class LabelStep:
    """The E-step at temperature zero.

    Labels are never worse than the previous ones under the current costs. With `cold` the solver
    starts anew in each call, and they may be.
    """

    def __init__(
        self,
        solver: str | Solver,
        rng: np.random.Generator,
        time_limit: float | None = None,
        *,
        cold: bool = False,
    ) -> None:
        self.coupled = CoupledSolver(solver, rng, time_limit)
        self.cold = cold

    def __call__(self, model: Model, previous: Assignment | None) -> Expectation:
        """Return labels."""
        before = None if previous is None else as_labels(previous)
        labels = model.nearest(before)
        coupling = model.coupling()
        rows = coupling.rows
        if not rows.size:
            return Expectation(labels)
        start = None if before is None or self.cold else before[rows]
        solved = self.coupled(model.costs(rows), coupling, labels=start)
        labels[rows] = as_labels(np.asarray(solved.solution.labels))[solved.variable]
        unmet = self.coupled.unmet(coupling, labels[rows])
        return Expectation(labels, math.nan, solved.status, solved.energy, solved.bound, unmet)


class ShareStep:
    """The E-step at a temperature T > 0.

    Shares that minimise a free energy over some set, as in mean field, are never worse than the
    previous ones. With `follow` a solver starts from these, for falling temperatures. At a constant
    temperature mean field would freeze there, so it starts anew, and the lower free energy wins.
    """

    def __init__(
        self,
        solver: str | Solver,
        rng: np.random.Generator,
        time_limit: float | None = None,
        *,
        temperature: float = 1.0,
        follow: bool = False,
    ) -> None:
        self.coupled = CoupledSolver(solver, rng, time_limit, temperature)
        self.temperature = temperature
        self.follow = follow
        #: Costs, shares and free energy of the coupled variables in the last call.
        self._last: tuple[FloatArray, FloatArray, float] | None = None

    def __call__(self, model: Model, previous: Assignment | None) -> Expectation:
        """Return shares and their free energy."""
        from scipy.special import softmax

        costs = model.costs()
        coupling = model.coupling()
        rows = coupling.rows
        shares = np.asarray(softmax(costs / -self.temperature, axis=1))
        free_energy = self._alone(costs, rows, model.point_weight())
        if not rows.size:
            return Expectation(shares, free_energy)
        start = None
        if self.follow and previous is not None:
            start = np.asarray(previous, dtype=np.float64)[rows]
        solved = self.coupled(costs[rows], coupling, shares=start)
        joint, value = self._best_shares(solved)
        shares[rows] = joint[solved.variable]
        free_energy += coupling.alpha_weight * value
        unmet = self.coupled.unmet(coupling, as_labels(shares[rows].argmax(axis=1)))
        return Expectation(shares, free_energy, solved.status, solved.energy, solved.bound, unmet)

    def _alone(
        self, costs: FloatArray, coupled: IntArray, point_weight: FloatArray | None
    ) -> float:
        """Return the free energy of the points without pairs."""
        from scipy.special import logsumexp

        alone = np.ones(len(costs), dtype=np.bool_)
        alone[coupled] = False
        energies = -self.temperature * logsumexp(costs[alone] / -self.temperature, axis=1)
        if point_weight is not None:
            energies = energies * point_weight[alone]
        return float(energies.sum())

    def _best_shares(self, solved: Solved) -> tuple[FloatArray, float]:
        """Return the shares of the coupled variables and their free energy, NaN if unknown."""
        unary, solution = solved.graph.unary, solved.solution
        shares = np.asarray(solution.marginals, dtype=np.float64)
        if solution.log_partition is None:
            return shares, math.nan
        value = -self.temperature * solution.log_partition
        if solution.log_partition_kind == "lower" and self._last is not None:
            # The previous shares may have a lower value of the functional that was minimised.
            then, before, energy = self._last
            change = expected_cost(unary, before) - expected_cost(then, before)
            if before.shape == shares.shape and energy + change < value:
                shares, value = before, energy + change
        self._last = unary, shares, value
        return shares, value


class Solved(NamedTuple):
    """Solution of the coupled points; ``variable`` (c,) is the variable of each on the graph."""

    graph: FactorGraph
    variable: IntArray
    solution: Solution
    status: str
    energy: float
    bound: float


class CoupledSolver:
    """A solver on the graph of the coupled points, and the search for labels that keep hard pairs.

    The structure of the graph is reused while the terms stay the same object.
    """

    def __init__(
        self,
        solver: str | Solver,
        rng: np.random.Generator,
        time_limit: float | None = None,
        temperature: float = 0.0,
    ) -> None:
        self.solver = solver
        self.rng = rng
        self.time_limit = time_limit
        self.temperature = temperature
        #: Cost of hard pairs in place of infinity, once a search has failed.
        self._price: float | None = None
        #: The last graph, with the terms that it was built from and their units.
        self._built: tuple[Sequence[DiagonalTerms], Units | None, FactorGraph] | None = None

    def __call__(
        self,
        costs: FloatArray,
        coupling: Coupling,
        *,
        labels: IntArray | None = None,
        shares: FloatArray | None = None,
    ) -> Solved:
        """Label the coupled points, given their costs (c, k) and a start: labels, or shares."""
        if coupling.sample_weight is not None:
            costs = costs * coupling.sample_weight[:, np.newaxis]
        graph, units = self._graph(costs, coupling.terms)
        first = slice(None) if units is None else units.first
        solution = self._solve(
            graph,
            None if labels is None else labels[first],
            None if shares is None else shares[first],
        )
        if not _keeps_hard_pairs(solution):
            if solution.status == Status.INFEASIBLE:
                reason = contradiction(costs, coupling.terms, coupling.rows)
                raise infeasible(reason or "each pair of points for itself could keep them")
            graph, solution = self._search(costs, coupling, graph)
        variable = np.arange(len(costs)) if units is None else units.of_point
        energy, bound = solution.energy, solution.lower_bound
        if self._price is not None:
            # The bound belongs to the graph with finite prices.
            energy, bound = math.inf, math.nan
        return Solved(graph, variable, solution, str(solution.status), energy, bound)

    def unmet(self, coupling: Coupling, labels: IntArray) -> int:
        """Return the number of hard pairs that labels (c,) violate; 0 unless a search failed."""
        return 0 if self._price is None else n_unmet(coupling.terms, labels)

    def _graph(
        self, costs: FloatArray, terms: Sequence[DiagonalTerms]
    ) -> tuple[FactorGraph, Units | None]:
        """Return the graph on units of points that hard must-links join, and the units."""
        if self._built is not None and self._built[0] is terms:
            _, units, before = self._built
            graph = before.with_unary(costs if units is None else units.unary(costs))
        else:
            units = units_of(terms, len(costs))
            between = terms if units is None else units.terms
            if self._price is not None:
                between = priced(between, self._price)
            graph = FactorGraph.from_terms(costs if units is None else units.unary(costs), between)
        self._built = terms, units, graph
        return graph, units

    def _solve(
        self, graph: FactorGraph, labels: IntArray | None, shares: FloatArray | None
    ) -> Solution:
        """Run the solver; raise an error if it does not support the graph."""
        solution = solve(
            graph,
            self.solver,
            seed=int(self.rng.integers(2**31)),
            time_limit=self.time_limit,
            temperature=self.temperature,
            initial=labels,
            initial_marginals=shares,
        )
        if solution.status in (Status.UNSUPPORTED, Status.NOT_INSTALLED):
            raise ValueError(
                f"e_step={solution.solver} cannot label these points: {solution.message}"
            )
        return solution

    def _search(
        self, costs: FloatArray, coupling: Coupling, hard: FactorGraph
    ) -> tuple[FactorGraph, Solution]:
        """Return a graph and its solution if the solver found no labels that keep hard pairs.

        The graph is the given one if a search finds such labels. Otherwise hard pairs have a finite
        price, in this and all later E-steps, and labels violate as few pairs as the search found.
        """
        built = self._built
        units = None if built is None else built[1]
        if units is None:
            self._price = finite_price(costs, coupling.terms)
        else:
            self._price = finite_price(units.unary(costs), units.terms)
        self._built = None
        graph, _ = self._graph(costs, coupling.terms)
        solution = self._solve(graph, None, None)
        start = solution.labels
        if start is None or not math.isfinite(hard.energy(start)):
            reason = contradiction(costs, coupling.terms, coupling.rows)
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
        labels = as_labels(np.asarray(start))
        shares = np.eye(costs.shape[1])[labels] if self.temperature > 0 else None
        if math.isfinite(hard.energy(labels)):
            solution = self._solve(hard, labels, shares)
            if _keeps_hard_pairs(solution):
                self._price, self._built = None, built
                return hard, solution
        return graph, self._solve(graph, labels, shares)


def _keeps_hard_pairs(solution: Solution) -> bool:
    """Whether the solution has labels of finite energy."""
    return solution.labels is not None and math.isfinite(solution.energy)


def expected_cost(
    costs: FloatArray, shares: FloatArray, point_weight: FloatArray | None = None
) -> float:
    """Return the expected cost, ignoring infinite costs of zero share."""
    values = (np.where(shares > 0, costs, 0.0) * shares).sum(axis=1)
    return float(values.sum() if point_weight is None else values @ point_weight)
