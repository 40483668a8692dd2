"""CP-SAT of OR-Tools: exact search by clause learning, linear relaxation and local search."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from inference_lab.algorithms.linear.integer_costs import (
    Rounding,
    plan_rounding,
    table_rises,
    unary_rises,
)
from inference_lab.algorithms.parts import solve_parts
from inference_lab.algorithms.payable_costs import payable
from inference_lab.algorithms.presolve import trivial_outcome
from inference_lab.algorithms.search.first_labelling import initial_incumbent
from inference_lab.contract import Outcome, Run, Solver
from inference_lab.graph.arrays import TABLE, FloatArray, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.specs.extras import how_to_install
from inference_lab.specs.settings import setting

#: The package that this solver needs, and the extra of inference-lab that installs it.
PACKAGE = "ortools"
EXTRA = "ortools"

#: Integer energies stay below 2^45, so that partial sums stay far below 2^63.
_BITS = 45
#: Clauses that may be made; each takes about 7 us and 200 bytes.
_MAX_CLAUSES = 5_000_000
#: Terms turned into clauses between two checks of the clock.
_BLOCK = 500


@dataclass(frozen=True)
class CPSAT(Solver):
    """Minimise the energy exactly by CP-SAT, an optional extra.

    ``pip install -e ".[ortools]"`` installs it. The model has a Boolean for each label of a
    variable, exactly one of them true, and one for each cost of a term, forced by a clause, so that

    * a diagonal term costs ``differ`` if one end has a label that the other has not, ``same[a]`` if
      both have ``a``;
    * each entry of a table costs its value if its labels are chosen; an infinite one becomes a
      clause that forbids them.

    Costs are rounded down to integers (`inference_lab.algorithms.linear.integer_costs`), so that
    the lower bound of CP-SAT is one of the energy. An ICM descent gives the labelling to start
    from.

    Parameters
    ----------
    workers : int
        Threads; above 1, different strategies run side by side, and results may differ from run to
        run.
    parts : bool
        Solve components with cycles apart, small ones by elimination; by default the package gets
        the whole graph.

    Guarantees
    ----------
    Exact when it ends before the time limit, up to the rounding of costs: less than 2^-45 of the
    sum of all ranges of costs, times the number of terms. Labellings and bounds are reported as
    they are found.

    Iterations
    ----------
    One: CP-SAT is called once.

    Diagnostics
    -----------
    ``rounding_error`` (at most, in units of energy), ``clauses``, ``conflicts``, ``branches``,
    ``cpsat_status``.

    Complexity
    ----------
    Exponential in the worst case. O(k) clauses for a diagonal term, one for each entry of a table.

    References
    ----------
    L. Perron, F. Didier, S. Gay, "The CP-SAT-LP solver", CP 2023.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> s = il.solve(g, "ortools-cpsat")
    >>> s.energy, s.labels.tolist(), s.status.value
    (0.5, [0, 1], 'optimal')
    """

    version: ClassVar[int] = 2

    workers: int = setting(1, at_least=1)
    parts: bool = False

    def missing(self) -> str | None:
        """Return how to install the package if it is missing."""
        return how_to_install(PACKAGE, EXTRA)

    def supports(self, graph: FactorGraph, temperature: float) -> str | None:
        """Return the reason for a refusal: a temperature, or too many clauses."""
        refused = Solver.supports(self, graph, temperature)
        if refused:
            return refused
        sizes = graph.cardinalities[graph.edges]
        table = graph.edge_kinds == TABLE
        clauses = int((sizes[table, 0] * sizes[table, 1]).sum()) + graph.table_values.size
        clauses += int(sizes[~table].sum() + sizes[~table].min(axis=1).sum())
        if clauses > _MAX_CLAUSES:
            return f"the model would have {clauses} clauses; at most {_MAX_CLAUSES} are made"
        return None

    def run(self, graph: FactorGraph, run: Run) -> Outcome:
        """Build the model, solve it, and report labellings and bounds as they come."""
        with run.paused():
            importlib.import_module("ortools.sat.python.cp_model")
        graph = payable(graph, run)
        outcome = trivial_outcome(graph, run)
        if outcome is not None:
            return outcome
        initial_incumbent(graph, run)
        if self.parts:
            outcome = solve_parts(lambda part, inner, _: self.run(part, inner), graph, run)
            if outcome is not None:
                return outcome
        rounding = plan_rounding(graph, run.best_energy, _BITS)
        diagnostics: dict[str, Any] = {"rounding_error": rounding.error}
        model = _Model(graph, rounding)
        if not model.build(lambda: run.remaining <= 0.0):
            return Outcome(diagnostics=diagnostics)
        diagnostics["clauses"] = model.clauses
        return self._solve(model, run, diagnostics)

    def _solve(self, model: _Model, run: Run, diagnostics: dict[str, Any]) -> Outcome:
        from ortools.sat.python import cp_model

        assert run.best_labels is not None
        model.start_from(run.best_labels)
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = self.workers
        # All clauses in the linear relaxation. Random signed Potts terms with 25 variables and 60
        # edges took 0.5 s this way, and more than 20 s at the default of 1.
        solver.parameters.linearization_level = 2
        solver.parameters.random_seed = int(run.rng.integers(2**31 - 1))
        if run.time_limit is not None:
            solver.parameters.max_time_in_seconds = run.remaining
        raised: list[BaseException] = []

        def guarded(report: Callable[[], object]) -> None:
            # Exceptions must not pass through the C++ code in between.
            try:
                report()
            except BaseException as problem:
                raised.append(problem)
                solver.stop_search()

        def bound(value: float) -> None:
            lower_bound = min(model.rounding.bound(max(0.0, value)), run.best_energy)
            run.bound(lower_bound, model.rounding.error)

        class Listener(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]
            def on_solution_callback(self) -> None:
                guarded(lambda: run.offer(model.labels(self.boolean_value)))

        solver.best_bound_callback = lambda value: guarded(lambda: bound(value))
        status = solver.solve(model.model, Listener())
        if raised:
            raise raised[0]
        diagnostics["conflicts"] = int(solver.num_conflicts)
        diagnostics["branches"] = int(solver.num_branches)
        diagnostics["cpsat_status"] = solver.status_name(status).lower()
        if status == cp_model.MODEL_INVALID:
            raise RuntimeError(f"CP-SAT refuses the model: {model.model.validate()}")
        if status == cp_model.INFEASIBLE:
            return Outcome(infeasible=True, iterations=1, diagnostics=diagnostics)
        if math.isfinite(solver.best_objective_bound):
            bound(solver.best_objective_bound)
        return Outcome(converged=status == cp_model.OPTIMAL, iterations=1, diagnostics=diagnostics)


class _Model:
    """The CP-SAT model of a graph."""

    def __init__(self, graph: FactorGraph, rounding: Rounding) -> None:
        from ortools.sat.python import cp_model

        self.graph = graph
        self.rounding = rounding
        self.model = cp_model.CpModel()
        self.clauses = 0
        # The literal of each entry of the unaries, its variable, and the variable's label count.
        self.literals: list[Any] = []
        self._owners = [
            (i, k) for i, k in enumerate(graph.cardinalities.tolist()) for _ in range(k)
        ]
        self._paid: list[Any] = []
        self._prices: list[int] = []
        self._sum = cp_model.LinearExpr.weighted_sum

    def build(self, out_of_time: Callable[[], bool]) -> bool:
        """Make variables, clauses and objective; return False if time runs out on the way."""
        graph = self.graph
        true = self.model.new_constant(1)
        costs = self.rounding.integers(unary_rises(graph)).tolist()
        for i, k in enumerate(graph.cardinalities.tolist()):
            if i % _BLOCK == 0 and out_of_time():
                return False
            if k == 1:
                literals = [true]
            elif k == 2:
                first = self.model.new_bool_var("")
                literals = [first, ~first]
            else:
                literals = [self.model.new_bool_var("") for _ in range(k)]
                self.model.add_exactly_one(literals)
            begin = len(self.literals)
            self.literals += literals
            for literal, cost in zip(literals, costs[begin : begin + k], strict=True):
                if math.isinf(cost):
                    self._forbid([literal])
                elif cost > 0:
                    self._price(literal, cost)
        for add, count in ((self._add_edge, graph.n_edges), (self._add_factor, graph.n_factors)):
            for t in range(count):
                if t % _BLOCK == 0 and out_of_time():
                    return False
                add(t)
        self.model.minimize(self._sum(self._paid, self._prices))
        return not out_of_time()

    def start_from(self, labels: IntArray) -> None:
        """Hint at a labelling."""
        entries = set((self.graph.unary_ptr[:-1] + labels).tolist())
        for c, (i, k) in enumerate(self._owners):
            if k > 2 or (k == 2 and c == self.graph.unary_ptr[i]):
                self.model.add_hint(self.literals[c], c in entries)

    def labels(self, value: Callable[[Any], bool]) -> IntArray:
        """Read the labelling of a solution."""
        out = np.zeros(self.graph.n_variables, dtype=np.int64)
        for c, (i, _) in enumerate(self._owners):
            if value(self.literals[c]):
                out[i] = c - self.graph.unary_ptr[i]
        return out

    def _price(self, literal: Any, cost: float) -> None:
        self._paid.append(literal)
        self._prices.append(int(cost))

    def _forbid(self, literals: list[Any]) -> None:
        self.model.add_bool_or([~literal for literal in literals])
        self.clauses += 1

    def _charge(self, cases: list[list[Any]], cost: float) -> None:
        """Charge a cost once if any of some conjunctions of literals holds."""
        if cost == 0.0 or not cases:
            return
        if math.isinf(cost):
            for case in cases:
                self._forbid(case)
            return
        paid = self.model.new_bool_var("")
        self._price(paid, cost)
        for case in cases:
            self.model.add_bool_or([*(~literal for literal in case), paid])
        self.clauses += len(cases)

    def _add_edge(self, e: int) -> None:
        graph = self.graph
        i, j = graph.edges[e].tolist()
        first = self.literals[graph.unary_ptr[i] : graph.unary_ptr[i + 1]]
        second = self.literals[graph.unary_ptr[j] : graph.unary_ptr[j + 1]]
        if graph.edge_kinds[e] == TABLE:
            self._add_table(graph.edge_table(e), [first, second])
            return
        table = graph.edge_table(e)
        costs = self.rounding.integers(table_rises(table[None])[0])
        k = min(table.shape)
        if max(table.shape) > 1:
            differ = costs[-1, 0] if table.shape[0] > 1 else costs[0, -1]
            cases = [[first[a], ~second[a]] for a in range(k)]
            # A label that only one end has differs from all labels of the other end.
            cases += [[lone] for lone in (*first[k:], *second[k:])]
            self._charge(cases, float(differ))
        same = np.diagonal(costs)
        for cost in np.unique(same).tolist():
            self._charge([[first[a], second[a]] for a in np.flatnonzero(same == cost)], cost)

    def _add_factor(self, f: int) -> None:
        graph = self.graph
        scope, table = graph.higher_order(f)
        self._add_table(
            table, [self.literals[graph.unary_ptr[v] : graph.unary_ptr[v + 1]] for v in scope]
        )

    def _add_table(self, table: FloatArray, literals: list[list[Any]]) -> None:
        costs = self.rounding.integers(table - table.min())
        for cost in np.unique(costs).tolist():
            if cost > 0.0:
                cases = [
                    [literals[s][a] for s, a in enumerate(place)]
                    for place in np.argwhere(costs == cost).tolist()
                ]
                self._charge(cases, cost)
