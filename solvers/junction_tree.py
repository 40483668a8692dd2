"""Junction tree: exact labellings, marginals and log-partition where the treewidth is small."""

from __future__ import annotations

import math
import weakref
from dataclasses import dataclass
from typing import ClassVar

from inference_lab.algorithms.elimination.bucket_elimination import Tree
from inference_lab.algorithms.elimination.edge_deletion import Compensation, split_variables
from inference_lab.algorithms.elimination.interactions import first_allowed, interactions
from inference_lab.algorithms.elimination.order import Elimination, elimination_order
from inference_lab.algorithms.elimination.tree_passes import (
    EliminationPlan,
    TreePasses,
    make_plan,
)
from inference_lab.algorithms.label_cost_encoding import run_on_star, star
from inference_lab.algorithms.payable_costs import payable
from inference_lab.algorithms.presolve import n_entries
from inference_lab.contract import Outcome, Run, Solver
from inference_lab.graph.factor_graph import FactorGraph, unary_minimum
from inference_lab.kernels.messages import unflatten
from inference_lab.specs.settings import setting

#: Steps of the search for an order: in a short search, and in a second.
_MOMENT_STEPS = 10_000_000
_STEPS_PER_SECOND = 1e8
#: Most entries (see `n_entries`) of a graph for a short search, and seconds to read each.
_MOMENT_ENTRIES = 200_000
_SECONDS_AN_ENTRY = 2e-7
#: Most table entries that an elimination processes in a second (180 to 390 million).
_ENTRIES_PER_SECOND = 4e8
#: The same at T > 0 (70 to 150 million).
_WARM_ENTRIES_PER_SECOND = 1e8
#: Binary logarithm of the entries from which on a longer search for an order pays.
_LONG_ELIMINATION = 27.0
#: Largest share of the remaining time for a pass that gives the log-partition only.
_MOST_OF_THE_TIME = 0.85
#: Largest share of the remaining time for the order of an estimate.
_ORDER_SHARE = 0.025
#: Share of the remaining time that an estimate leaves, for bounds by other solvers.
_BOUNDS_SHARE = 0.1
#: Entries of all tables of an estimate.
_ESTIMATE_ENTRIES = 2.0**24
#: Sweeps that a time limit should leave an estimate, each of two passes.
_ESTIMATE_SWEEPS = 10
#: Share of the entries that fit the time for a first estimate.
_FIRST_SHARE = 1.0 / 32.0
#: Share of the old compensation that is kept, without which it oscillates on linkage_12.
_DAMPING = 0.3
#: Tolerance of the marginals of the compensation.
_TOLERANCE = 1e-5
#: Most sweeps of the compensation.
_MOST_SWEEPS = 50
#: Sweeps after which the estimate counts although the marginals of copies may differ.
_FIRST_SWEEPS = 3


#: Plans by graph, limit of the messages and of the steps; a plan is dropped with its graph.
_plans: weakref.WeakKeyDictionary[FactorGraph, dict[tuple[float, float], EliminationPlan]] = (
    weakref.WeakKeyDictionary()
)


def _plan(graph: FactorGraph, log2_limit: float, most_steps: float = math.inf) -> EliminationPlan:
    """Return the plan of a graph for messages of at most ``2^log2_limit`` entries."""
    # What a run can do must not depend on earlier ones, so a plan serves for the same number of
    # steps, or for more if its search ended by itself.
    plans = _plans.setdefault(graph, {})
    for (limit, steps), plan in plans.items():
        if limit == log2_limit and (
            steps == most_steps or (steps < most_steps and not plan.hurried)
        ):
            return plan
    plan = plans[log2_limit, most_steps] = make_plan(graph, log2_limit, most_steps)
    return plan


def _size(n_bytes: float) -> str:
    """Format a number of bytes with its unit."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if n_bytes < 1024:
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1024
    return f"{n_bytes:.3g} TiB" if n_bytes < 1024 else f"2^{math.log2(n_bytes) + 40:.0f} bytes"


@dataclass(frozen=True)
class JunctionTree(Solver):
    """Exact inference by elimination on a tree of tables (Lauritzen and Spiegelhalter 1988).

    Labels that hard terms rule out are removed first (arc consistency). The variables are then
    eliminated in an order of small tables. The table of variable ``v`` adds up its unary, the
    unused terms, and the messages of earlier tables with ``v``. Its message over the other
    variables ``s`` is

        ``M(s) = min_a table(s, a)``  or, at T > 0,  ``M(s) = -T log sum_a exp(-table(s, a) / T)``.

    At T = 0 a backward pass reads the labels off. At T > 0 it passes probabilities, ``p(s, a) =
    p(s) p(a | s)``, which give all marginals; the labelling offered takes the most probable label
    given the tables above. Tables are computed block by block and never stored.

    Parameters
    ----------
    max_bytes : int
        Graphs are not supported if no order is found that fits into this much memory.
    estimate : bool
        At T > 0, give copies to variables where the tables do not fit into memory or time, up to
        200,000 entries of all terms. Costs at the copies make their marginals agree (edge deletion
        belief propagation), as well as the tables allow.

    Guarantees
    ----------
    Exact up to rounding, for terms of every kind and arity: status `optimal` at T = 0,
    `log_partition_kind` ``"exact"`` at T > 0, `infeasible` if and only if every labelling costs
    ``+inf``. Deterministic. A time limit in the pass to the roots leaves no bound; one in the
    backward pass leaves the log-partition without marginals. With `estimate`, `log_partition_kind`
    distinguishes. An exact log-partition beside estimated marginals is a ``"lower"`` bound, with
    ``log_partition_exact`` in the diagnostics. Estimates are `converged` if the copies agree.

    Complexity
    ----------
    Additions: the entries of each table times its number of terms and messages; at T > 0 also two
    exponentials an entry. Memory: about a byte an entry of all messages at T = 0, 9 bytes at T > 0.
    Each label cost adds at most 1 to the width.

    An iteration is some 30 million additions.

    References
    ----------
    S. L. Lauritzen, D. J. Spiegelhalter, "Local computations with probabilities on graphical
    structures", JRSS B 50(2), 1988.
    R. Dechter, "Bucket elimination: a unifying framework for reasoning", Artificial Intelligence
    113, 1999.
    A. Choi, A. Darwiche, "An edge deletion semantics for belief propagation and its practical
    impact on approximation quality", AAAI 2006 (`estimate`).

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> s = il.solve(g, "junction-tree")
    >>> s.energy, s.status
    (0.5, <Status.OPTIMAL: 'optimal'>)
    >>> s = il.solve(g, "junction-tree", temperature=1.0)
    >>> s.marginals.round(3)
    array([[0.702, 0.298],
           [0.408, 0.592]])
    >>> round(s.log_partition, 4), s.log_partition_kind
    (0.4982, 'exact')
    """

    label_costs: ClassVar[bool] = True

    max_bytes: int = setting(4 * 2**30, at_least=2**20)
    estimate: bool = False

    @property
    def _log2_limit(self) -> float:
        # A message of 8 bytes an entry must fit; no run could fill 2^50 entries.
        return min(math.log2(self.max_bytes) - 3.0, 50.0)

    def supports(self, graph: FactorGraph, temperature: float) -> str | None:
        """Refuse a graph if a short search shows that no order fits `max_bytes`."""
        # On larger graphs, the run searches for an order within its time.
        if n_entries(graph) > _MOMENT_ENTRIES or (self.estimate and temperature > 0):
            return None
        if graph.n_label_costs:
            graph = star(graph, temperature).graph
        plan = _plan(graph, self._log2_limit, _MOMENT_STEPS)
        return None if plan.hurried else self._refusal(plan, temperature)

    def foreseen(self, graph: FactorGraph) -> float:
        """Return a lower bound on the seconds of elimination at T = 0."""
        # Infinite if a short search finds no order that fits `max_bytes`.
        if graph.n_label_costs or n_entries(graph) > _MOMENT_ENTRIES:
            return math.inf
        plan = _plan(graph, self._log2_limit, _MOMENT_STEPS)
        if self._refusal(plan, 0.0) is not None:
            return math.inf
        return 2.0**plan.order.log2_total / _ENTRIES_PER_SECOND if plan.tree is not None else 0.0

    def _refusal(self, plan: EliminationPlan, temperature: float) -> str | None:
        """Return the reason why the tables of a plan do not fit, or None."""
        if not plan.domains.feasible:
            return None
        limit = f"max_bytes is {self.max_bytes} ({_size(self.max_bytes)})"
        order = plan.order
        if plan.tree is not None:
            needed = plan.n_bytes(plan.tree, temperature > 0)
            if needed <= self.max_bytes:
                return None
            return (
                f"treewidth at most {order.width} ({order.method}), for which the tables need "
                f"{_size(needed)}; {limit}"
            )
        if order.log2_needed > self._log2_limit:
            return (
                "the treewidth is too large: every elimination order has a table of at least "
                f"2^{order.log2_needed:.0f} entries, {_size(8 * 2.0**order.log2_needed)}; {limit}"
            )
        return (
            f"no elimination order was found that fits: {order.method} comes to a table over "
            f"{order.width + 1} variables with 2^{order.log2_largest:.0f} entries, "
            f"{_size(8 * 2.0**order.log2_largest)}; {limit}"
        )

    def run(self, graph: FactorGraph, run: Run) -> Outcome:
        """Eliminate towards the roots, decode, and pass back for the marginals at T > 0."""
        graph = payable(graph, run)
        if graph.n_label_costs:
            return run_on_star(self, graph, run)
        first = steps = math.inf
        if run.time_limit is not None:
            # At most half of the time for the order, which is useless without the elimination.
            remaining_s = run.remaining - _SECONDS_AN_ENTRY * n_entries(graph)
            share = 2.0 * _ORDER_SHARE if self.estimate and run.temperature > 0 else 0.5
            first = _MOMENT_STEPS
            if remaining_s <= 0.0:
                run.offer(unary_minimum(graph))
                return Outcome(diagnostics={"order": "no time to look for one"})
        temperature = run.temperature
        before = run.remaining
        plan = _plan(graph, self._log2_limit, first)
        if run.time_limit is not None:
            # As fast as the first steps on this machine; by powers of two, so that equal limits
            # have equal plans.
            taken = max(before - run.remaining, _MOMENT_STEPS / _STEPS_PER_SECOND)
            steps = max(_MOMENT_STEPS, share * remaining_s * _MOMENT_STEPS / taken)
            steps = 2.0 ** math.floor(math.log2(steps))
        refusal = self._refusal(plan, temperature)
        if plan.hurried and (refusal is not None or plan.order.log2_total > _LONG_ELIMINATION):
            plan = _plan(graph, self._log2_limit, steps)
            refusal = self._refusal(plan, temperature)
        if temperature > 0 and self.estimate and plan.domains.feasible:
            seconds = 2.0**plan.order.log2_total / _WARM_ENTRIES_PER_SECOND
            if n_entries(graph) <= _MOMENT_ENTRIES and (
                refusal is not None or 2.0 * seconds > run.remaining
            ):
                return self._estimate(graph, run, plan, seconds)
        if refusal is not None and plan.hurried:
            run.offer(first_allowed(graph, plan.domains))
            return Outcome(diagnostics={"order": f"none in time: {refusal}"})
        if refusal is not None:
            return Outcome(unsupported=refusal)
        if plan.tree is None:
            return Outcome(converged=True, infeasible=True)
        return self._exact(graph, run, plan, plan.tree, temperature > 0)

    def _exact(
        self, graph: FactorGraph, run: Run, plan: EliminationPlan, tree: Tree, back: bool
    ) -> Outcome:
        """Return the exact outcome, with marginals after the way back."""
        temperature = run.temperature
        passes = TreePasses(plan, tree, temperature, back)
        outcome = Outcome(
            diagnostics={
                "width": plan.order.width,
                "order": plan.order.method,
                "log2_table_entries": plan.order.log2_total,
                "bytes": plan.n_bytes(tree, back),
                "undecided_variables": int(tree.variables.size),
            }
        )
        total = graph.constant + passes.upward(graph.arrays, run, outcome)
        if math.isnan(total):
            run.offer(first_allowed(graph, plan.domains))
            return outcome
        if math.isinf(total):
            outcome.converged = outcome.infeasible = True
            return outcome
        run.offer(passes.decoded())
        if temperature == 0:
            outcome.converged = True
            outcome.claimed_energy = total
            # The evaluated energy of the labelling, because the tree's sum differs by rounding.
            run.bound(run.best_energy)
            return outcome
        outcome.log_partition = -total / temperature
        outcome.log_partition_kind = "exact"
        if back:
            flat = passes.downward(graph.arrays, run, outcome)
            outcome.marginals = None if flat is None else unflatten(graph, flat)
            outcome.converged = flat is not None
        return outcome

    def _estimate(
        self, graph: FactorGraph, run: Run, plan: EliminationPlan, seconds: float
    ) -> Outcome:
        """Return estimated marginals, and the log-partition, exact if one pass fits."""
        one_pass = (
            plan.tree is not None
            and plan.n_bytes(plan.tree, False) <= self.max_bytes
            and seconds <= _MOST_OF_THE_TIME * run.remaining
        )
        # The estimate comes first, because a pass that is cut short is lost.
        reserve = seconds if one_pass else _BOUNDS_SHARE * run.remaining
        outcome = self._compensated(graph, run, plan, reserve)
        if one_pass and not outcome.infeasible and not run.should_stop(outcome.iterations):
            assert plan.tree is not None
            exact = self._exact(graph, run, plan, plan.tree, False)
            if exact.infeasible:
                return exact
            if exact.log_partition is not None:
                outcome.log_partition = exact.log_partition
                # Marginals beside "exact" are exact, and these may be estimates.
                outcome.log_partition_kind = "exact" if outcome.marginals is None else "lower"
                outcome.diagnostics |= exact.diagnostics | {"log_partition_exact": True}
        return outcome

    def _compensated(
        self, graph: FactorGraph, run: Run, plan: EliminationPlan, reserve: float
    ) -> Outcome:
        """Return estimates with copies of variables, leaving the seconds of `reserve`."""
        run.offer(first_allowed(graph, plan.domains))
        steps = math.inf
        if run.time_limit is not None:
            steps = _ORDER_SHARE * max(0.0, run.remaining - reserve) * _STEPS_PER_SECOND
        order = elimination_order(interactions(graph, plan.domains, plan.couples), most_steps=steps)
        limit = max(2.0, self.max_bytes / 20)
        if run.time_limit is None:
            return self._with_copies(graph, run, plan, order, min(_ESTIMATE_ENTRIES, limit), 0.0)
        # Small tables give a first estimate, and their time the size of the tables of the next.
        began = run.remaining
        entries = _WARM_ENTRIES_PER_SECOND * (began - reserve) / (2 * _ESTIMATE_SWEEPS)
        entries = max(2.0, min(entries * _FIRST_SHARE, limit))
        first = self._with_copies(graph, run, plan, order, entries, reserve)
        sweeps = first.diagnostics.get("sweeps", 0)
        if not sweeps or first.infeasible or not first.diagnostics["copies"]:
            return first
        took = (began - run.remaining) / sweeps
        entries = min(limit, entries * (run.remaining - reserve) / (took * _ESTIMATE_SWEEPS))
        if entries < 2.0 * first.diagnostics["entries"]:
            return first
        second = self._with_copies(graph, run, plan, order, entries, reserve)
        second.iterations += first.iterations
        return first if second.log_partition is None else second

    def _with_copies(
        self,
        graph: FactorGraph,
        run: Run,
        plan: EliminationPlan,
        order: Elimination,
        entries: float,
        reserve: float,
    ) -> Outcome:
        """Return estimates with tables of at most this many entries in all."""
        split = None
        if order.complete:
            split = split_variables(graph, plan.domains, order.order, entries)
        if split is None:
            return Outcome(diagnostics={"order": "no time for one, or for its tables"})
        plan = split.plan(order)
        outcome = Outcome(diagnostics={"copies": len(split.pairs), "entries": entries, "sweeps": 0})
        if plan.tree is None:
            return Outcome(converged=True, infeasible=True)
        passes = TreePasses(plan, plan.tree, run.temperature, True)
        compensation = Compensation(split)
        for sweep in range(_MOST_SWEEPS):
            before = run.remaining
            g = split.graph.arrays._replace(unary=compensation.unary(run.temperature)).read_only()
            total = split.graph.constant + passes.upward(g, run, outcome)
            if sweep == 0 and total == math.inf:
                # Without the equality of copies the graph is a relaxation.
                return Outcome(converged=True, infeasible=True)
            flat = passes.downward(g, run, outcome) if math.isfinite(total) else None
            if flat is None:
                break
            outcome.diagnostics["sweeps"] += 1
            estimate = -total / run.temperature - compensation.correction()
            outcome.converged = compensation.update(flat, _DAMPING) <= _TOLERANCE
            if outcome.converged or sweep >= _FIRST_SWEEPS:
                outcome.log_partition, outcome.log_partition_kind = estimate, "estimate"
                outcome.marginals = split.marginals(graph, flat)
            # Another sweep takes as long as this one.
            if outcome.converged or 2.0 * run.remaining - before < reserve:
                break
        else:
            outcome.stopped_by = f"{_MOST_SWEEPS} sweeps"
        if outcome.log_partition is not None:
            run.offer(split.labels(passes.decoded()))
        return outcome
