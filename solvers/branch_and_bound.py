"""Branch and bound over cost functions: exact search with soft arc consistency for its bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from inference_lab.algorithms.elimination.arc_consistency import allowed_labels
from inference_lab.algorithms.label_cost_encoding import run_on_star
from inference_lab.algorithms.linear.integer_costs import Rounding, plan_rounding
from inference_lab.algorithms.parts import solve_parts
from inference_lab.algorithms.payable_costs import payable
from inference_lab.algorithms.presolve import trivial_outcome
from inference_lab.algorithms.search.edac import (
    AT_ROOT,
    DONE,
    FULL,
    OUT_OF_WORK,
    search,
)
from inference_lab.algorithms.search.first_labelling import initial_incumbent, n_table_entries
from inference_lab.algorithms.search.network import BITS, HARD, CostNetwork, integer_network
from inference_lab.algorithms.search.state import (
    ALL,
    Functions,
    SearchState,
    least_bound,
    make_functions,
    make_state,
    with_longer_trail,
)
from inference_lab.algorithms.search.vac import make_virtual, raise_virtually
from inference_lab.algorithms.symmetry import break_symmetry
from inference_lab.contract import Outcome, Run, Solver
from inference_lab.graph.arrays import IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.specs.settings import setting

#: Costs read between two checks of the clock: a few hundredths of a second.
_CHUNK = 1 << 21
#: Chunks of a search before its root bound is raised again.
_FIRST_PARTS = 4
#: Most chunks that this takes.
_ROOT_PARTS = 64
#: Share of the gap up to which a gain is none.
_SMALL_GAIN = 1e-3
#: Bytes that a variable or a cost function takes while the network is built, its tables apart.
_BYTES_EACH = 1500
#: Copies of a table that exist at a time: the graph's, the network's, the search's.
_COPIES = 3


@dataclass(frozen=True)
class _TreeSearch:
    """The network in some order of its variables, and the state of the search."""

    order: list[int]
    functions: Functions
    unary: IntArray
    state: SearchState


@dataclass(frozen=True)
class BranchAndBound(Solver):
    """Minimise the energy exactly by branch and bound over integer cost functions.

    Preprocessing removes labels that hard terms rule out, all but one copy of interchangeable
    labels (`inference_lab.algorithms.symmetry`), and variables of up to five neighbours (exact
    elimination). At each node, existential directional arc consistency (EDAC) moves costs between
    functions to raise the bound, and rules out labels that cost as much as the best labelling. The
    supports of all variables form a labelling; a node is solved if no function adds to it.

    The search branches on the variable with the most conflicts for its number of labels, first on
    the last one that failed, and tries its support first. It restarts if virtual arc consistency
    (VAC) at the root gives a larger bound.

    Parameters
    ----------
    search : {"hybrid", "depth-first"}
        Best first by bounded depth-first searches, so that the bound rises during the search; or
        depth first throughout.
    max_bytes : int
        Graphs that need more memory are not supported.
    parts : bool
        Solve components with cycles apart, small ones by elimination.

    Guarantees
    ----------
    Exact when it ends before the time limit, up to the rounding of costs: less than 2^-50 of the
    sum of all ranges of costs, times the number of terms. The bound holds in spite of the rounding.
    `infeasible` if and only if every labelling costs ``+inf``. Deterministic.

    Iterations
    ----------
    About two million cost look-ups, or fewer up to a better labelling.

    Diagnostics
    -----------
    ``eliminated`` (variables), ``variables`` and ``functions`` that are left, ``rounding_error``
    (at most, in units of energy), ``root_bound``, ``nodes``, ``backtracks``.

    Complexity
    ----------
    Exponential in the worst case. O(d^2) a node for each changed function of two variables of d
    labels. Memory O(k^2) for each distinct table.

    References
    ----------
    S. de Givry, F. Heras, M. Zytnicki, J. Larrosa, "Existential arc consistency: getting closer to
    full arc consistency in weighted CSPs", IJCAI 2005.
    M. Sanchez, S. de Givry, T. Schiex, "Mendelian error detection in complex pedigrees using
    weighted constraint satisfaction techniques", Constraints 13, 2008 (three variables).
    M. Cooper, S. de Givry, M. Sanchez, T. Schiex, M. Zytnicki, T. Werner, "Soft arc consistency
    revisited", Artificial Intelligence 174, 2010 (virtual arc consistency).
    D. Allouche, S. de Givry, G. Katsirelos, T. Schiex, M. Zytnicki, "Anytime hybrid best-first
    search with tree decomposition for weighted CSP", CP 2015.
    F. Trosser, S. de Givry, G. Katsirelos, "Relaxation-aware heuristics for exact optimization in
    graphical models", CPAIOR 2020 (labellings of supports).
    E. Demirovic, G. Chu, P. Stuckey, "Solution-based phase saving for CP", CP 2018 (labels of the
    best labelling first).
    C. Lecoutre, L. Sais, S. Tabary, V. Vidal, "Reasoning from last conflict(s) in constraint
    programming", Artificial Intelligence 173, 2009.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> s = il.solve(g, "branch-and-bound")
    >>> s.energy, s.labels.tolist(), s.status.value
    (0.5, [0, 1], 'optimal')
    """

    label_costs: ClassVar[bool] = True
    version: ClassVar[int] = 3
    startup_cost: ClassVar[float] = 200.0

    search: Literal["hybrid", "depth-first"] = "hybrid"
    max_bytes: int = setting(2**31, at_least=2**24)
    parts: bool = True

    def supports(self, graph: FactorGraph, temperature: float) -> str | None:
        """Return the reason for a refusal: a temperature, or tables too large."""
        refused = Solver.supports(self, graph, temperature)
        if refused:
            return refused
        entries = n_table_entries(graph)
        terms = graph.n_variables + graph.n_edges + graph.n_factors
        needed = 8 * _COPIES * entries + _BYTES_EACH * terms
        if needed <= self.max_bytes:
            return None
        return (
            f"dense tables of {entries} entries and {terms} terms need some {needed} bytes; "
            f"max_bytes is {self.max_bytes}"
        )

    def run(self, graph: FactorGraph, run: Run) -> Outcome:
        """Reduce the graph to a network, and search it part by part."""
        graph = payable(graph, run)
        if graph.n_label_costs:
            return run_on_star(self, graph, run)
        outcome = trivial_outcome(graph, run)
        if outcome is not None:
            return outcome
        initial_incumbent(graph, run)
        if self.parts:
            outcome = solve_parts(lambda part, inner, _: self.run(part, inner), graph, run)
            if outcome is not None:
                return outcome
        symmetry = break_symmetry(graph)
        domains = allowed_labels(graph, None if symmetry is None else symmetry.allowed(graph))
        if not domains.feasible:
            return Outcome(converged=True, infeasible=True)
        if run.should_stop():
            return Outcome()
        rounding = plan_rounding(graph, run.best_energy, BITS)
        network = integer_network(graph, domains, rounding, run.should_stop)
        outcome = Outcome(diagnostics={"rounding_error": rounding.error})
        if network is None:
            return outcome
        network.eliminate(run.should_stop)
        if network.constant >= HARD:
            return Outcome(converged=True, infeasible=True)
        if run.should_stop():
            return outcome
        assert run.best_labels is not None
        labels = run.best_labels if symmetry is None else symmetry.numbered(run.best_labels)
        return _explore(network, rounding, run, labels, self, outcome)


def _explore(
    network: CostNetwork,
    rounding: Rounding,
    run: Run,
    labels: IntArray,
    solver: BranchAndBound,
    outcome: Outcome,
) -> Outcome:
    """Search a network until it is done or the budget is used up, given a labelling."""
    unit = network.unit

    def bound(cost: int) -> float:
        return rounding.bound(network.constant + unit * cost)

    # The given labels determine the best labels of the eliminated variables.
    positions = network.positions(labels)
    cutoff = HARD
    if positions is not None and math.isfinite(run.best_energy):
        cutoff = network.cost(positions) // unit
        run.offer(network.expand(positions))
    # The search may stop within half the tolerance of a proof.
    open_part = run.absolute_gap
    if run.best_energy < math.inf:
        open_part = max(open_part, 0.5 * run.tolerance_at(run.best_energy))
    slack = int(min(open_part * rounding.scale, HARD)) // unit
    best = _best_root(network, unit, cutoff, slack, run)
    state, functions = best.state, best.functions
    now = state.now[0]
    if positions is not None:
        state.best[:] = positions[best.order]
    if solver.search == "depth-first":
        now.limit = now.most_backtracks = np.iinfo(np.int64).max
    outcome.diagnostics |= {
        "eliminated": len(network.eliminated),
        "variables": len(best.order),
        "functions": int(functions.table_at.size),
        "root_bound": bound(int(state.low[0])),
    }
    result = AT_ROOT
    parts = 0
    while not run.should_stop(outcome.iterations):
        now.work = 0
        now.most_work = _CHUNK
        result = search(functions, state)
        outcome.iterations += 1
        if now.improved:
            x = np.zeros(network.domains.sizes.size, dtype=np.int64)
            x[best.order] = state.best
            run.offer(network.expand(x))
        if result == DONE:
            break
        run.bound(min(bound(least_bound(state)), run.best_energy))
        parts += int(result == OUT_OF_WORK)
        if parts == _FIRST_PARTS and result == OUT_OF_WORK:
            raised = _raised_root(best, state, run)
            if int(raised.low[0]) > least_bound(state):
                state = raised
                now = raised.now[0]
                outcome.diagnostics["root_bound"] = bound(int(state.low[0]))
        elif result == FULL:
            if 4 * state.trail_at.nbytes > solver.max_bytes:
                outcome.stopped_by = f"max_bytes={solver.max_bytes}"
                break
            state = with_longer_trail(state)
            now = state.now[0]
    outcome.diagnostics |= {"nodes": int(now.nodes), "backtracks": int(now.all_backtracks)}
    if result == DONE:
        outcome.converged = True
        outcome.infeasible = int(now.best_cost) == HARD
        if not outcome.infeasible:
            lower_bound = min(bound(int(now.cutoff)), run.best_energy)
            run.bound(lower_bound, rounding.error + 0.5 * run.tolerance_at(run.best_energy))
    return outcome


def _best_root(network: CostNetwork, unit: int, cutoff: int, slack: int, run: Run) -> _TreeSearch:
    """Propagate at the root in either order of the variables; keep the one of the larger bound."""
    tried = []
    for order in (network.left, network.left[::-1]):
        functions, unary = make_functions(network, order, unit)
        state = make_state(functions, unary, cutoff)
        now = state.now[0]
        now.slack = slack
        now.most_work = _CHUNK
        now.cutoff = HARD if cutoff == HARD else max(0, cutoff - slack)
        tried.append(_TreeSearch(order, functions, unary, state))
        # A network that is solved at the root has the cutoff as its bound.
        if search(functions, state) != AT_ROOT or run.should_stop():
            break
    return max(tried, key=lambda one: int(one.state.low[0]))


def _raised_root(one: _TreeSearch, state: SearchState, run: Run) -> SearchState:
    """Return a search at its root, where the bound is raised until the gains are small."""
    # The best labelling and the weights of conflicts are kept.
    functions = one.functions
    raised = make_state(one.functions, one.unary, 0)
    now = raised.now[0]
    for name in "slack cutoff best_cost dives nodes all_backtracks most_backtracks limit".split():
        setattr(now, name, getattr(state.now[0], name))
    raised.weight[:], raised.best[:] = state.weight, state.best
    now.most_work = _ROOT_PARTS * _CHUNK
    virtual = make_virtual(functions, raised)
    before = -1
    while search(functions, raised) == AT_ROOT and not run.should_stop():
        low, cutoff = int(raised.low[0]), int(now.cutoff)
        if before >= 0 and low - before <= _SMALL_GAIN * (cutoff - before):
            break
        before = low
        theta = HARD
        while theta > 0 and now.work <= now.most_work and not run.should_stop():
            theta = raise_virtually(functions, virtual, theta, _CHUNK)
        # The costs have moved, so everything is propagated anew.
        now.root_cutoff = -1
        raised.flags[:] = ALL
    return raised
