"""Junction tree: exact labellings, marginals and log-partition where the treewidth is small."""

from __future__ import annotations

import math
import weakref
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from inference_lab.algorithms.elimination.arc_consistency import BoolArray, Domains, allowed_labels
from inference_lab.algorithms.elimination.bucket_elimination import (
    BLOCK,
    TableWorkspace,
    Tree,
    decided_cost,
    decode,
    downward,
    keep_all,
    make_tree,
    scratch_sizes,
    upward,
    workspace,
)
from inference_lab.algorithms.elimination.interactions import (
    coupling_terms,
    first_allowed,
    interactions,
)
from inference_lab.algorithms.elimination.order import Elimination, elimination_order
from inference_lab.algorithms.label_cost_encoding import run_on_star, star
from inference_lab.algorithms.presolve import n_entries
from inference_lab.contract import Marginals, Outcome, Run, Solver
from inference_lab.graph.arrays import FloatArray, starts_of
from inference_lab.graph.factor_graph import FactorGraph, unary_minimum
from inference_lab.kernels.messages import unflatten
from inference_lab.specs.settings import setting

#: Additions between two checks of the clock: about 0.1 s.
_CHUNK = 1 << 25

#: Steps of the search for an order: in a short search, and in a second.
_MOMENT_STEPS = 10_000_000
_STEPS_PER_SECOND = 1e8
#: Most entries (see `n_entries`) of a graph for a short search, and seconds to read each.
_MOMENT_ENTRIES = 200_000
_SECONDS_AN_ENTRY = 2e-7
#: Most table entries that an elimination processes in a second (180 to 390 million).
_ENTRIES_PER_SECOND = 4e8


@dataclass(frozen=True)
class _EliminationPlan:
    """The sizes known before anything large is allocated; holds no reference to the graph."""

    domains: Domains
    couples: BoolArray
    order: Elimination
    tree: Tree | None  # None if no order was found, or no labelling is feasible
    scratch: tuple[int, int, int, int, int]
    steps: float  # limit of the search for the order,
    hurried: bool  # and whether the limit cut it short

    @property
    def choice_type(self) -> np.dtype[Any]:
        """The smallest integers that hold a label's position."""
        most = int(self.domains.sizes.max(initial=1)) - 1
        return np.dtype(np.uint8 if most < 256 else np.uint16 if most < 65536 else np.int64)

    def entries(self, tree: Tree, temperature: float) -> tuple[int, int, int]:
        """Return the entries of the messages, of the choices, and of the sums for children."""
        kept = int(tree.rows.sum())
        if temperature == 0:
            return int((tree.made_at + tree.rows).max(initial=0)), kept, 0
        told = starts_of(tree.rows[tree.children])
        return kept, kept, int(np.diff(told[tree.child_ptr]).max(initial=0))

    def n_bytes(self, tree: Tree, temperature: float) -> int:
        """Bytes of the arrays that a run allocates."""
        messages, choices, sums = self.entries(tree, temperature)
        axes, inputs, strides, dense, look_up = self.scratch
        fixed = 8 * (2 * axes + 2 * inputs + strides + dense + look_up + 2 * BLOCK)
        return 8 * (messages + sums) + choices * self.choice_type.itemsize + fixed


#: Plans by graph and limit; a plan is dropped with its graph.
_plans: weakref.WeakKeyDictionary[FactorGraph, dict[float, _EliminationPlan]] = (
    weakref.WeakKeyDictionary()
)


def _plan(graph: FactorGraph, log2_limit: float, most_steps: float = math.inf) -> _EliminationPlan:
    """Return the plan of a graph for messages of at most ``2^log2_limit`` entries."""
    # A plan that more steps of the search might improve is made anew the next time.
    known = _plans.setdefault(graph, {})
    plan = known.get(log2_limit)
    if plan is None or (plan.hurried and most_steps > plan.steps):
        known[log2_limit] = plan = _make_plan(graph, log2_limit, most_steps)
    return plan


def _make_plan(graph: FactorGraph, log2_limit: float, most_steps: float) -> _EliminationPlan:
    domains = allowed_labels(graph)
    couples = coupling_terms(graph, domains)
    network = interactions(graph, domains, couples)
    # A table is larger than its message by a factor: the number of labels of a variable.
    largest = float(network.log2_sizes.max(initial=0.0))
    order = elimination_order(network, log2_limit, log2_limit + largest + 1e-6, most_steps)
    tree = None
    scratch = (1, 1, 1, 1, 1)
    if order.complete and domains.feasible:
        tree = make_tree(graph, domains, couples, network, order.order)
        scratch = scratch_sizes(graph.arrays, tree)
    hurried = order.cut_short and math.isfinite(most_steps)
    return _EliminationPlan(domains, couples, order, tree, scratch, most_steps, hurried)


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

    Guarantees
    ----------
    Exact up to rounding, for terms of every kind and arity: status `optimal` at T = 0,
    `log_partition_kind` ``"exact"`` at T > 0, `infeasible` if and only if every labelling costs
    ``+inf``. Deterministic. A time limit in the pass to the roots leaves no bound; one in the
    backward pass leaves the log-partition without marginals.

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
    J. W. H. Liu, "On the storage requirement in the out-of-core multifrontal method for sparse
    factorization", ACM Trans. Math. Software 12(3), 1986 (the order of the subtrees).

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

    @property
    def _log2_limit(self) -> float:
        # A message of 8 bytes an entry must fit; no run could fill 2^50 entries.
        return min(math.log2(self.max_bytes) - 3.0, 50.0)

    def supports(self, graph: FactorGraph, temperature: float) -> str | None:
        """Refuse a graph if a short search shows that no order fits `max_bytes`."""
        # On larger graphs, the run searches for an order within its time.
        if n_entries(graph) > _MOMENT_ENTRIES:
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

    def _refusal(self, plan: _EliminationPlan, temperature: float) -> str | None:
        """Return the reason why the tables of a plan do not fit, or None."""
        if not plan.domains.feasible:
            return None
        limit = f"max_bytes is {self.max_bytes} ({_size(self.max_bytes)})"
        order = plan.order
        if plan.tree is not None:
            needed = plan.n_bytes(plan.tree, temperature)
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
        if graph.n_label_costs:
            return run_on_star(self, graph, run)
        first = steps = math.inf
        if run.time_limit is not None:
            # At most half of the time for the order, which is useless without the elimination.
            left = run.remaining - _SECONDS_AN_ENTRY * n_entries(graph)
            first, steps = _MOMENT_STEPS, max(_MOMENT_STEPS, 0.5 * left * _STEPS_PER_SECOND)
            if left <= 0.0:
                run.offer(unary_minimum(graph))
                return Outcome(diagnostics={"order": "no time to look for one"})
        plan = _plan(graph, self._log2_limit, first)
        refusal = self._refusal(plan, run.temperature)
        if refusal is not None and plan.hurried:
            plan = _plan(graph, self._log2_limit, steps)
            refusal = self._refusal(plan, run.temperature)
        if refusal is not None and plan.hurried:
            run.offer(first_allowed(graph, plan.domains))
            return Outcome(diagnostics={"order": f"none in time: {refusal}"})
        if refusal is not None:
            return Outcome(unsupported=refusal)
        if plan.tree is None:
            return Outcome(converged=True, infeasible=True)
        temperature = run.temperature
        tree = plan.tree if temperature == 0 else keep_all(plan.tree)
        messages_size, choices, sums_size = plan.entries(tree, temperature)
        outcome = Outcome(
            diagnostics={
                "width": plan.order.width,
                "order": plan.order.method,
                "log2_table_entries": plan.order.log2_total,
                "bytes": plan.n_bytes(tree, temperature),
                "undecided_variables": int(tree.variables.size),
            }
        )
        g = graph.arrays
        work = workspace(tree, plan.scratch)
        messages = np.empty(messages_size)
        choice = np.empty(choices, dtype=plan.choice_type)
        now = work.now[0]
        while now.table < tree.rows.size and not run.should_stop(outcome.iterations):
            outcome.iterations += 1
            if not upward(g, tree, temperature, messages, choice, work, _CHUNK):
                outcome.converged = outcome.infeasible = True
                return outcome
        if now.table < tree.rows.size:
            run.offer(first_allowed(graph, plan.domains))
            return outcome
        decided = decided_cost(g, plan.couples, tree.label_ptr, tree.labels)
        # The root's messages are numbers; others are relative to their least entry.
        total = math.fsum([graph.constant, decided, *work.shift.tolist()])
        x = tree.labels[tree.label_ptr[:-1]] if graph.n_variables else np.empty(0, np.int64)
        decode(tree, choice, x)
        run.offer(x)
        if temperature == 0:
            outcome.converged = True
            outcome.claimed_energy = total
            # The evaluated energy of the labelling, because the tree's sum differs by rounding.
            run.bound(run.best_energy)
            return outcome
        outcome.log_partition = -total / temperature
        outcome.log_partition_kind = "exact"
        del choice
        outcome.marginals = self._come_back(graph, run, tree, work, messages, sums_size, outcome)
        outcome.converged = outcome.marginals is not None
        return outcome

    def _come_back(
        self,
        graph: FactorGraph,
        run: Run,
        tree: Tree,
        work: TableWorkspace,
        messages: FloatArray,
        sums_size: int,
        outcome: Outcome,
    ) -> Marginals | None:
        """Make the backward pass; return the marginals, or None if the budget ended it."""
        shares = np.zeros(tree.labels.size)
        sums = np.empty(sums_size)
        now = work.now[0]
        now.table, now.block = tree.rows.size - 1, 0
        messages[tree.at[np.diff(tree.sep_ptr) == 0]] = 1.0
        while now.table >= 0 and not run.should_stop(outcome.iterations):
            outcome.iterations += 1
            downward(graph.arrays, tree, run.temperature, messages, sums, shares, work, _CHUNK)
        if now.table >= 0:
            return None
        sizes = np.diff(tree.label_ptr)
        owner = np.repeat(np.arange(graph.n_variables), sizes)
        shares[sizes[owner] == 1] = 1.0
        # The sums differ from 1 by rounding only.
        shares /= np.bincount(owner, shares, minlength=graph.n_variables)[owner]
        flat = np.zeros(graph.unary_values.size)
        flat[graph.unary_ptr[owner] + tree.labels] = shares
        return unflatten(graph, flat)
