"""toulbar2: exact search in weighted constraint networks, with a bound at any time."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Literal

import numpy as np

from inference_lab.algorithms.linear.integer_costs import (
    Rounding,
    dense_tables,
    plan_rounding,
    table_rises,
    unary_rises,
)
from inference_lab.algorithms.parts import solve_parts
from inference_lab.algorithms.payable_costs import payable
from inference_lab.algorithms.presolve import trivial_outcome
from inference_lab.algorithms.search.first_labelling import initial_incumbent, n_table_entries
from inference_lab.contract import Outcome, Run, Solver
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.specs.extras import how_to_install
from inference_lab.specs.settings import setting

#: The package that this solver needs, and the extra of inference-lab that installs it.
PACKAGE = "pytoulbar2"
EXTRA = "toulbar2"

#: Integer energies stay below 2^50, because toulbar2 receives doubles, which hold them exactly.
_BITS = 50
#: Most entries of dense tables that are passed on; toulbar2 takes about 20 bytes for each.
_MAX_ENTRIES = 200_000_000
#: Most entries of tables of four and more variables, which are passed one by one (1 us each).
_MAX_TUPLES = 5_000_000
#: Seconds of processor time that are never used up, because the limit is one of wall time.
_NEVER = 10**6


@dataclass(frozen=True)
class Toulbar2(Solver):
    """Minimise the energy exactly by toulbar2, an optional extra.

    ``pip install -e ".[toulbar2]"`` installs it. Branch and bound with soft arc
    consistency (EDAC, or VAC), which shifts costs between terms as message passing does.

    Costs are rounded down to integers (`inference_lab.algorithms.linear.integer_costs`), so that
    the lower bound of toulbar2 is one of the energy; infinite costs are its top. An ICM descent
    gives the first upper bound.

    Parameters
    ----------
    search : {"hbfs", "dfs"}
        Hybrid best-first search, or depth-first branch and bound. (Limited discrepancies of
        toulbar2 crash under a time limit; its variable neighbourhoods do not report completeness.)
    vac : int
        Depth of the search down to which virtual arc consistency is enforced (1: before the
        search only); 0 for none. Stronger bounds, at a price.
    parts : bool
        Solve components with cycles apart, small ones by elimination; by default the package gets
        the whole graph.

    Guarantees
    ----------
    Exact when it ends before the time limit, up to the rounding of costs: less than 2^-50 of the
    sum of all ranges of costs, times the number of terms. The bound holds in spite of the rounding.

    Iterations
    ----------
    One: toulbar2 is called once.

    Diagnostics
    -----------
    ``rounding_error`` (at most, in units of energy), ``nodes``, ``backtracks``.

    Complexity
    ----------
    Exponential in the worst case. Pairwise terms become dense tables: memory O(k^2) an edge.

    References
    ----------
    M. Cooper, S. de Givry, M. Sanchez, T. Schiex, M. Zytnicki, T. Werner, "Soft arc consistency
    revisited", Artificial Intelligence 174, 2010.
    D. Allouche, S. de Givry, G. Katsirelos, T. Schiex, M. Zytnicki, "Anytime hybrid best-first
    search with tree decomposition for weighted CSP", CP 2015.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> s = il.solve(g, "toulbar2")
    >>> s.energy, s.labels.tolist(), s.status.value
    (0.5, [0, 1], 'optimal')
    """

    version: ClassVar[int] = 2
    startup_cost: ClassVar[float] = 540.0

    search: Literal["hbfs", "dfs"] = "hbfs"
    vac: int = setting(0, at_least=0)
    parts: bool = False

    def missing(self) -> str | None:
        """Return how to install the package if it is missing."""
        return how_to_install(PACKAGE, EXTRA)

    def supports(self, graph: FactorGraph, temperature: float) -> str | None:
        """Return the reason for a refusal: a temperature, or tables too large."""
        refused = Solver.supports(self, graph, temperature)
        if refused:
            return refused
        entries = n_table_entries(graph)
        if entries > _MAX_ENTRIES:
            return f"dense tables of {entries} entries; at most {_MAX_ENTRIES} are passed on"
        large = np.diff(graph.table_ptr)[np.diff(graph.factor_ptr) > 3].sum()
        if large > _MAX_TUPLES:
            return (
                f"{large} entries in tables of more than three variables; "
                f"at most {_MAX_TUPLES} are passed on"
            )
        return None

    def run(self, graph: FactorGraph, run: Run) -> Outcome:
        """Pass the problem on, search, and report the labelling and the bound."""
        with run.paused():
            import pytoulbar2.pytb2 as library

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
        try:
            network = self._network(graph, run, rounding)
        except library.Contradiction:
            # No upper bound is set yet: infinite costs alone leave a variable without a label.
            return Outcome(infeasible=True, diagnostics=diagnostics)
        if network is None:
            return Outcome(diagnostics=diagnostics)
        # The upper bound admits labellings as good as the best known one.
        highest = math.inf
        if math.isfinite(run.best_energy):
            rise = run.best_energy - rounding.offset + rounding.error
            highest = math.ceil(rise * rounding.scale) + 1.0
            network.CFN.wcsp.updateDUb(highest)
        ended = self._search(network, run)
        diagnostics["nodes"] = int(network.GetNbNodes())
        diagnostics["backtracks"] = int(network.GetNbBacktracks())
        solutions = network.GetSolutions()
        if solutions:
            cost, values = min(solutions, key=lambda pair: pair[0])
            run.offer(np.array(values, dtype=np.int64))
            highest = min(highest, cost)
        elif ended and highest == math.inf:
            return Outcome(infeasible=True, iterations=1, diagnostics=diagnostics)
        bound = highest if ended else min(highest, network.GetDDualBound())
        run.bound(min(rounding.bound(bound), run.best_energy), rounding.error)
        return Outcome(converged=ended, iterations=1, diagnostics=diagnostics)

    def _network(self, graph: FactorGraph, run: Run, rounding: Rounding) -> Any:
        """Make the cost function network; None if time runs out on the way."""
        import pytoulbar2

        _reset_options(_initial_options())
        network = pytoulbar2.CFN(
            resolution=0,
            vac=self.vac,
            seed=int(run.rng.integers(1, 2**31 - 1)),
            verbose=-1,
        )
        if self.search == "dfs":
            network.Option.hbfs = 0
        for i, k in enumerate(graph.cardinalities.tolist()):
            # The wrapper's own methods take O(n) for each variable.
            network.CFN.wcsp.makeEnumeratedVariable(f"x{i}", 0, k - 1)
        costs = rounding.integers(unary_rises(graph))
        for k in np.unique(graph.cardinalities).tolist():
            members = np.flatnonzero(graph.cardinalities == k)
            rows = costs[graph.unary_ptr[members, None] + np.arange(k)]
            network.AddFunctions(members, rows)
        for block in dense_tables(graph):
            if run.remaining <= 0.0:
                return None
            tables = rounding.integers(table_rises(block.tables))
            network.AddFunctions(graph.edges[block.edges].astype(np.int64), tables)
        for f in range(graph.n_factors):
            if f % 1000 == 0 and run.remaining <= 0.0:
                return None
            scope, table = graph.higher_order(f)
            rises = rounding.integers(table - table.min())
            network.AddFunction(list(scope), rises.ravel().tolist())
        return network

    def _search(self, network: Any, run: Run) -> bool:
        """Search; return whether the search was complete."""
        import pytoulbar2.pytb2 as library

        if run.remaining <= 0.0:
            return False
        with _stopped_in(network.CFN, run.remaining):
            try:
                network.CFN.wcsp.sortConstraints()
                network.CFN.solve()
            except library.Contradiction:
                # Propagation alone shows that nothing is below the upper bound.
                network.CFN.wcsp.whenContradiction()
                return True
            except library.SolverOut:
                return False
        return not network.Option.limited


@cache
def _initial_options() -> dict[str, Any]:
    """Return the initial options of toulbar2."""
    from pytoulbar2.pytb2 import option

    values = {}
    for name in dir(option):
        # Options of types that its Python interface does not support are skipped.
        with suppress(TypeError):
            value = getattr(option, name)
            if not name.startswith("_") and isinstance(value, bool | int | float | str):
                values[name] = value
    return values


def _reset_options(values: dict[str, Any]) -> None:
    """Reset the options, because they are global and searches change some of them."""
    from pytoulbar2.pytb2 import option

    for name, value in values.items():
        with suppress(TypeError, AttributeError):
            if getattr(option, name) != value:
                setattr(option, name, value)


@contextmanager
def _stopped_in(search: Any, seconds: float) -> Iterator[None]:
    """Stop a search after `seconds` of wall time."""
    # toulbar2's own limit counts whole seconds of processor time. Its handler of SIGVTALRM
    # ends the search in good order, so a process that sleeps sends this signal.
    search.timer(_NEVER)
    watch = None
    if math.isfinite(seconds):
        order = f"sleep {max(seconds, 0.001):.3f} && kill -VTALRM {os.getpid()}"
        # A process group of its own, so that the sleep can be ended with its shell.
        watch = subprocess.Popen(
            ["sh", "-c", order], start_new_session=True, stderr=subprocess.DEVNULL
        )
    try:
        yield
    finally:
        if watch is not None:
            if watch.poll() is None:
                os.killpg(watch.pid, signal.SIGKILL)
            watch.wait()
        search.timerStop()
        if threading.current_thread() is threading.main_thread():
            # toulbar2 has replaced Python's handler.
            signal.signal(signal.SIGINT, signal.getsignal(signal.SIGINT))
