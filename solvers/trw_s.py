"""Sequential tree-reweighted message passing: a lower bound that never falls, and labellings."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import ClassVar, Literal

import numpy as np

from inference_lab._numba import inlined, inlined_minimum, lean_kernel, merged
from inference_lab.algorithms.dual.labellings import decode
from inference_lab.algorithms.dual.reparametrisation import (
    Dual,
    half_ptr,
    start_dual,
    stretches,
)
from inference_lab.algorithms.dual.standstill import Standstill
from inference_lab.algorithms.dual.tightening import tighten
from inference_lab.algorithms.dual.trws_layout import (
    FIRST,
    LAST,
    Messages,
    Schedule,
    Workspace,
    make_plan,
    n_message_entries,
    plan_bytes,
    workspace,
)
from inference_lab.algorithms.iteration import IterativeSolver, Progress
from inference_lab.algorithms.parts import go_on_by_parts
from inference_lab.contract import Outcome, Run, run_bytes
from inference_lab.graph.arrays import (
    NO_FORM,
    TABLE,
    FloatArray,
    GraphArrays,
    IntArray,
    blocks,
    starts_of,
)
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.kernels.descent import descend
from inference_lab.kernels.factor_messages import min_marginals
from inference_lab.kernels.messages import (
    ATTRACTIVE,
    GENERAL,
    LINEAR,
    REPULSIVE,
    Terms,
    aligned_zeros,
    cost_scale,
    least,
    lower_envelope,
    make_terms,
    min_sum_message,
    repulsive_message,
)
from inference_lab.specs.settings import setting

#: Sweeps of the polish; ICM needs about ten.
_POLISH_SWEEPS = 100
#: Limit on sweeps over clusters, which end earlier by themselves.
_TIGHTENING_SWEEPS = 10_000
#: Variables of a block of temporary arrays, each with its terms.
_BLOCK = 4096
#: Kinds of costs of a graph: `PLAIN` ones are finite, of Potts and truncated linear terms only,
#: with the same number of labels everywhere; `FINITE` ones belong to any terms.
PLAIN, FINITE, INFINITE = 0, 1, 2


def one_pass(
    order: list[int],
    unaries: list[FloatArray],
    tables: dict[tuple[int, int], FloatArray],
    messages: dict[tuple[int, int], FloatArray],
) -> float:
    """Visit the variables in order, renew their messages to later ones; return the bound."""
    # The step of TRW-S for monotonic chains (Kolmogorov 2006, section 3) over pairwise terms:
    # variable ``s`` has ``theta_s + sum_t M_ts`` and gives each later term a share ``1 / n_s``,
    # with ``n_s`` the larger of the numbers of its later and earlier neighbours,
    #
    # ``M_st(b) = min_a share (theta_s + sum_u M_us)(a) - M_ts(a) + theta_st(a, b)``,
    #
    # normalised to minimum 0. The subtracted minima and the shares that variables keep add up to
    # the bound. `tables` (k_s, k_t) and `messages` (k_t,) have keys ``(s, t)`` in both directions;
    # the messages are updated in place.
    bound = 0.0
    for place, s in enumerate(order):
        neighbours = [t for t in order if (s, t) in tables]
        later = [t for t in order[place:] if (s, t) in tables]
        costs = unaries[s] + sum(messages[t, s] for t in neighbours)
        chains = max(len(later), len(neighbours) - len(later), 1)
        if costs.min() == math.inf:
            return math.inf
        bound += (1.0 - len(later) / chains) * float(costs.min())
        for t in later:
            # Labels of infinite cost stay infinite, because ``inf - inf`` is undefined.
            cavity = np.full(costs.size, np.inf)
            np.subtract(costs / chains, messages[t, s], out=cavity, where=np.isfinite(costs))
            new = (cavity[:, None] + tables[s, t]).min(axis=0)
            if new.min() == math.inf:
                return math.inf
            bound += float(new.min())
            messages[s, t] = new - new.min()
    return bound


@inlined
def add(k: int, message: FloatArray, costs: FloatArray) -> None:
    """Add a message to the costs of a variable."""
    for a in range(k):
        costs[a] += message[a]


@inlined
def add_up(
    g: GraphArrays,
    plan: Schedule,
    rank: np.uint64,
    i: np.uint64,
    k: int,
    rows: FloatArray,
    costs: FloatArray,
) -> None:
    """Write the costs of variable ``i``: its own and the messages of all its edges."""
    unary = g.unary[g.unary_ptr[i] : g.unary_ptr[i] + k]
    q, stop = np.uint64(plan.ptr[rank]), np.uint64(plan.ptr[rank + np.uint64(1)])
    if q + np.uint64(4) == stop:
        # Four messages, as inside a grid, are added at once, so each sum is written once.
        one = np.uint64(plan.at[q])
        two = np.uint64(plan.at[q + np.uint64(1)])
        three = np.uint64(plan.at[q + np.uint64(2)])
        four = np.uint64(plan.at[q + np.uint64(3)])
        for b in range(k):
            a = np.uint64(b)
            total = unary[a] + (rows[one + a] + rows[two + a])
            costs[a] = total + (rows[three + a] + rows[four + a])
        return
    for b in range(k):
        costs[b] = unary[b]
    while q + np.uint64(1) < stop:
        # Two messages at once, so that the costs are read and written half as often.
        one = np.uint64(plan.at[q])
        two = np.uint64(plan.at[q + np.uint64(1)])
        for b in range(k):
            a = np.uint64(b)
            costs[a] += rows[one + a] + rows[two + a]
        q += np.uint64(2)
    if q < stop:
        one = np.uint64(plan.at[q])
        for b in range(k):
            a = np.uint64(b)
            costs[a] += rows[one + a]


@inlined
def take_share(
    k: int, total: FloatArray, share: float, message: FloatArray, costs_are: int, out: FloatArray
) -> None:
    """Write a variable's share of its costs for a term, less the term's own message."""
    # A label of infinite cost is in no labelling of finite energy. It stays infinite for every
    # term, because ``inf - inf`` is undefined. `out` may be `message`.
    if costs_are == INFINITE:
        for a in range(k):
            out[a] = np.inf if np.isinf(total[a]) else share * total[a] - message[a]
    else:
        for a in range(k):
            out[a] = share * total[a] - message[a]


@inlined_minimum
def turn_attractive(
    k: int, rise: float, share: float, costs: FloatArray, rows: FloatArray, start: np.uint64
) -> float:
    """Replace a message by its reply through a Potts term; return the minimum of the input."""
    # `rise` is the cost of unequal labels minus the cost of equal ones, not negative. All costs
    # must be finite.
    # The input is computed twice rather than stored: reading it back in vectors of another width
    # would wait for it to reach the cache.
    best = np.inf
    for i in range(k):
        a = np.uint64(i)
        best = min(best, share * costs[a] - rows[start + a])
    for i in range(k):
        a = np.uint64(i)
        rows[start + a] = min(share * costs[a] - rows[start + a] - best, rise)
    return best


@inlined_minimum
def attractive_message(k: int, rise: float, cavity: FloatArray, message: FloatArray) -> float:
    """Write the Potts message of `cavity`, which may hold ``inf``; return its minimum."""
    best = least(k, cavity)
    for a in range(k):
        message[a] = min(cavity[a] - best, rise)
    return best


@inlined_minimum
def linear_message(
    k: int,
    slope: float,
    truncation: float,
    cavity: FloatArray,
    down: FloatArray,
    up: FloatArray,
    rows: FloatArray,
    start: np.uint64,
) -> float:
    """Write the truncated linear message of `cavity` to `rows`; return the minimum of `cavity`."""
    # With ``best``, the minimum of `cavity`, ``rows[start + b]`` is the smaller of `truncation` and
    # ``min_a cavity[a] + slope |a - b| - best``. If the truncation is at most twice the slope, only
    # the next label on either side counts.
    if truncation > 2.0 * slope:
        best = lower_envelope(k, slope, cavity, down, up)
        for i in range(k):
            a = np.uint64(i)
            rows[start + a] = min(min(up[a], down[a]) - best, truncation)
        return best
    best = least(k, cavity)
    last = np.uint64(k - 1)
    one = np.uint64(1)
    rows[start] = min(min(cavity[0], cavity[1] + slope) - best, truncation)
    rows[start + last] = min(min(cavity[last], cavity[last - one] + slope) - best, truncation)
    for i in range(1, k - 1):
        a = np.uint64(i)
        near = min(cavity[a - one], cavity[a + one]) + slope
        rows[start + a] = min(min(cavity[a], near) - best, truncation)
    return best


@inlined
def turn_message(
    g: GraphArrays,
    terms: Terms,
    h: int,
    k: int,
    share: float,
    costs_are: int,
    tables: bool | None,
    rows: FloatArray,
    at: int,
    work: Workspace,
) -> float:
    """Replace the message of an edge to a variable by its reply to half-edge ``h``."""
    # ``work.costs`` holds the variable's costs, at least one of them finite. The message is
    # normalised to minimum zero; the subtracted minimum is returned, ``inf`` if no pair of labels
    # is left.
    e = np.uint64(h >> 1)
    way = terms.way[e]
    rise = terms.rise[e]
    base = float(terms.base[e])
    start = np.uint64(at)
    if way == ATTRACTIVE and costs_are != INFINITE:
        return base + turn_attractive(k, rise, share, work.costs, rows, start)
    message = rows[at : at + k]
    take_share(k, work.costs, share, message, costs_are, work.cavity)
    if tables is not None and way == LINEAR:
        truncation = terms.truncation[e]
        return base + linear_message(
            k, rise, truncation, work.cavity, work.new, work.up, rows, start
        )
    if way == ATTRACTIVE and costs_are != PLAIN:
        return base + attractive_message(k, rise, work.cavity, message)
    if tables is not None:
        if costs_are != PLAIN and way != REPULSIVE:
            smallest = min_sum_message(g, h, work.cavity, work.new)
            if smallest < np.inf:
                for b in range(g.cardinalities[g.edges[e, h & 1]]):
                    rows[at + b] = work.new[b] - smallest
            return smallest
    return base + repulsive_message(k, rise, work.cavity, message)


@merged
def visit_in_turn(
    g: GraphArrays,
    plan: Schedule,
    terms: Terms,
    direction: int,
    stretch: tuple[int, int],
    state: Messages,
    costs_are: int,
    factors: bool | None,
    tables: bool | None,
    work: Workspace,
) -> float:
    """Visit a stretch of ranks, up (direction 1) or down (0); return their bound."""
    # Each variable adds up the messages of its terms and gives equal shares to the later terms in
    # this direction (TRW-S with monotonic chains, Kolmogorov 2006; for factors the same with
    # messages between factor and variable, Kolmogorov 2015). The sum over a whole pass is a lower
    # bound on the energy without its constant. It is ``inf``, and the pass ends, where a variable
    # has no label left. `factors` and `tables` are None where the graph has no factors, and no
    # edges but Potts terms between equal numbers of labels; numba then leaves their code out.
    begin, end = stretch
    plain = costs_are == PLAIN
    total = 0.0
    lost = 0.0
    costs = work.costs
    # One bit, so that the compiler does not handle negative indices.
    direction &= 1
    # With plain costs the width is constant, so the compiler moves its expressions out of the loop.
    width = g.cardinalities[0] if plain else 0
    for step in range(end - begin):
        t = begin + step if direction == 1 else end - 1 - step
        rank = np.uint64(t)
        i = np.uint64(plan.order[rank])
        k = width if plain else g.cardinalities[i]
        share = plan.share[direction, rank]
        rest = plan.rest[direction, rank]
        gained = 0.0
        add_up(g, plan, rank, i, k, state.rows, costs)
        if factors is not None:
            for p in range(g.inc_ptr[i], g.inc_ptr[i + np.uint64(1)]):
                slot = g.inc_slot[p]
                role = plan.role[slot]
                at = plan.slot_ptr[slot]
                message = state.slots[at : at + k]
                entered = role == LAST if direction == 0 else role == FIRST
                if not entered:
                    smallest = min_marginals(
                        g, slot, state.slots, plan.slot_ptr, message, work.digits
                    )
                    if smallest == np.inf:
                        return np.inf
                    for a in range(k):
                        message[a] -= smallest
                    # The bound counts it at the factor's last variable, which finds it again.
                    if role == (FIRST if direction == 0 else LAST):
                        gained += smallest
                add(k, message, costs)

        if rest > 0.0 or costs_are == INFINITE:
            smallest = least(k, costs)
            if smallest == np.inf:
                return np.inf
            gained += rest * smallest

        low = plan.ptr[rank] if direction == 1 else plan.middle[rank]
        high = plan.middle[rank] if direction == 1 else plan.ptr[rank + np.uint64(1)]
        for p in range(low, high):
            q = np.uint64(p)
            smallest = turn_message(
                g, terms, plan.half[q], k, share, costs_are, tables, state.rows, plan.at[q], work
            )
            if not plain and smallest == np.inf:
                return np.inf
            gained += smallest
        if factors is not None:
            for p in range(g.inc_ptr[i], g.inc_ptr[i + np.uint64(1)]):
                slot = g.inc_slot[p]
                if plan.role[slot] != (FIRST if direction == 0 else LAST):
                    at = plan.slot_ptr[slot]
                    message = state.slots[at : at + k]
                    take_share(k, costs, share, message, costs_are, message)

        # Compensated summation keeps the bound accurate on millions of terms.
        gained -= lost
        summed = total + gained
        lost = (summed - total) - gained
        total = summed
    return total


@lean_kernel
def directed_pass(
    g: GraphArrays,
    plan: Schedule,
    terms: Terms,
    direction: int,
    stretch: tuple[int, int],
    state: Messages,
    costs_are: int,
    factors: bool | None,
    tables: bool | None,
    work: Workspace,
) -> float:
    """Visit a stretch of any graph, see `visit_in_turn`."""
    return visit_in_turn(
        g, plan, terms, direction, stretch, state, costs_are, factors, tables, work
    )


@lean_kernel
def plain_pass(
    g: GraphArrays,
    plan: Schedule,
    terms: Terms,
    direction: int,
    stretch: tuple[int, int],
    state: Messages,
    tables: bool | None,
    work: Workspace,
) -> float:
    """Visit a stretch of a graph whose costs are `PLAIN`."""
    # The same as `directed_pass`, but compiled for these costs alone, because the other cases would
    # occupy registers.
    return visit_in_turn(g, plan, terms, direction, stretch, state, PLAIN, None, tables, work)


@lean_kernel
def hand_over(
    g: GraphArrays,
    plan: Schedule,
    state: Messages,
    costs_are: int,
    ptr: IntArray,
    from_edge: FloatArray,
    from_factor: FloatArray,
    work: Workspace,
) -> None:
    """Make one more forward pass and write the reparametrisation that attains its bound."""
    # A term passes to its earlier variables the old message less the variable's share of its costs,
    # and to its last variable the new message. The messages must come from a backward pass.
    # ``+inf`` marks labels in no labelling of finite energy.
    for t in range(plan.order.size):
        i = plan.order[t]
        k = g.cardinalities[i]
        share = plan.share[1, t]
        costs = work.costs
        first = g.unary_ptr[i]
        for a in range(k):
            costs[a] = g.unary[first + a]
        for q in range(plan.ptr[t], plan.ptr[t + 1]):
            add(k, state.rows[plan.at[q] : plan.at[q] + k], costs)
        for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
            slot = g.inc_slot[p]
            at = plan.slot_ptr[slot]
            message = state.slots[at : at + k]
            if plan.role[slot] != FIRST:
                smallest = min_marginals(g, slot, state.slots, plan.slot_ptr, message, work.digits)
                if smallest < np.inf:
                    for a in range(k):
                        message[a] -= smallest
            add(k, message, costs)
        for q in range(plan.ptr[t], plan.middle[t]):
            h, at = plan.half[q], plan.at[q]
            take_share(k, costs, share, state.rows[at : at + k], costs_are, work.cavity)
            start = ptr[h ^ 1]
            for a in range(k):
                from_edge[start + a] = np.inf if np.isinf(work.cavity[a]) else -work.cavity[a]
            smallest = min_sum_message(g, h, work.cavity, work.new)
            other = ptr[h]
            for b in range(g.cardinalities[g.edges[h >> 1, h & 1]]):
                value = np.inf if np.isinf(work.new[b]) else work.new[b] - smallest
                from_edge[other + b] = value
                state.rows[at + b] = value
        for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
            slot = g.inc_slot[p]
            at = plan.slot_ptr[slot]
            message = state.slots[at : at + k]
            if plan.role[slot] == LAST:
                for a in range(k):
                    from_factor[at + a] = message[a]
            else:
                take_share(k, costs, share, message, costs_are, message)
                for a in range(k):
                    from_factor[at + a] = np.inf if np.isinf(message[a]) else -message[a]


class TRWSPasses:
    """The messages of one run, and the passes that renew them along an order of the variables."""

    standstill: Standstill

    def __init__(self, graph: FactorGraph, order: IntArray) -> None:
        self.graph, self.order = graph, order
        self.decoded = 0
        self.plan = make_plan(graph, order)
        self.terms = make_terms(graph.arrays)
        self._costs = FINITE
        if graph.has_infinite:
            self._costs = INFINITE
        elif (
            graph.n_labels is not None
            and graph.n_variables > 0
            and graph.n_factors == 0
            and bool((self.terms.way != GENERAL).all())
        ):
            self._costs = PLAIN
        potts = (self.terms.way == ATTRACTIVE) | (self.terms.way == REPULSIVE)
        self._tables = None if potts.all() else True
        self.state = Messages(
            aligned_zeros(n_message_entries(graph)), aligned_zeros(int(self.plan.slot_ptr[-1]))
        )
        self._work = workspace(graph)
        self._stretches = self._cut()

    def _cut(self) -> list[tuple[int, int]]:
        """Cut the order into stretches of bounded work, so that the clock is checked between."""
        graph, plan = self.graph, self.plan
        work = graph.cardinalities[plan.order]
        for part in blocks(work.size, _BLOCK):
            starts = plan.ptr[part.start : part.stop + 1]
            edges = plan.half[starts[0] : starts[-1]] >> 1
            sizes = graph.cardinalities[graph.edges[edges]]
            dense = (graph.edge_kinds[edges] == TABLE) & (graph.arrays.forms[edges] == NO_FORM)
            edge_work = np.where(dense, sizes[:, 0] * sizes[:, 1], 32 * sizes.max(axis=1))
            work[part] += np.diff(starts_of(edge_work)[starts - starts[0]])
        if graph.n_factors:
            rank = np.empty(graph.n_variables, dtype=np.int64)
            rank[plan.order] = np.arange(graph.n_variables)
            tables = np.repeat(np.diff(graph.table_ptr), np.diff(graph.factor_ptr))
            np.add.at(work, rank[graph.factor_scopes], tables)
        return stretches(work)

    def directed_pass(self, direction: int, run: Run) -> float | None:
        """Visit all variables, up (1) or down (0) the order; return the bound of the pass."""
        # ``inf`` proves that no labelling has finite energy; None means that the time ran out.
        bounds = [self.graph.constant]
        for stretch in self._stretches if direction == 1 else self._stretches[::-1]:
            if run.should_stop():
                return None
            common = (self.graph.arrays, self.plan, self.terms, direction, stretch, self.state)
            if self._costs == PLAIN:
                bounds.append(plain_pass(*common, self._tables, self._work))
            else:
                factors = True if self.graph.n_factors else None
                bounds.append(
                    directed_pass(*common, self._costs, factors, self._tables, self._work)
                )
            if bounds[-1] == math.inf:
                return math.inf
        return math.fsum(bounds)

    def reparametrisation(self) -> Dual:
        """Return the dual after one more forward pass; call this after a backward pass."""
        # Up to rounding, its bound is at least the bound of the previous pass.
        graph = self.graph
        ptr = half_ptr(graph)
        from_edge, from_factor = np.empty(int(ptr[-1])), np.empty(self.state.slots.size)
        hand_over(
            graph.arrays,
            self.plan,
            self.state,
            self._costs,
            ptr,
            from_edge,
            from_factor,
            self._work,
        )
        return start_dual(graph, from_edge, from_factor[: int(self.plan.slot_ptr[-1])])

    def decode(self) -> IntArray:
        """Decode a labelling from the messages; call this after a backward pass."""
        x = np.empty(self.graph.n_variables, dtype=np.int64)
        decided = self.state.slots.copy()
        hard = True if self.graph.has_infinite or self.graph.n_factors else None
        decode(
            self.graph.arrays,
            self.plan,
            self.terms,
            self.state,
            decided,
            hard,
            self._tables,
            self._work,
            x,
        )
        return x


@dataclass(frozen=True)
class TRWS(IterativeSolver[TRWSPasses]):
    """Sequential tree-reweighted message passing at T = 0 (Kolmogorov 2006, 2015).

    Maximises a lower bound, the sum of the minima of the terms of a reparametrisation. Passing
    forwards and backwards along an order, each variable collects ``m_f(x_i) = min theta_f(x_f) -
    sum_{j != i} m_f(x_j)`` of its terms, and gives a share of the sum to each later term.
    Labels are chosen forwards, each given the labels before it. Factors take part as in SRMP, with
    single variables as separators.

    Parameters
    ----------
    order : {"given", "breadth-first"}
        Visits by variable number, or breadth-first. Long monotonic chains in the order speed
        convergence up. Forests are always visited breadth-first.
    tolerance : float
        A sweep counts as idle if the bound gains at most this share of its gain since the start
        plus the mean cost.
    patience : int
        The bound has converged after this many idle sweeps in succession.
    decode_every : int or None
        Sweeps from one labelling to the next; by default a quarter of the sweeps so far.
    max_sweeps : int
        Limit on sweeps; a sweep is a forward and a backward pass. Tightening does not count.
    polish : bool
        Improve the best labelling by ICM at the end if it is not proved optimal.
    tighten : "cycles" or None
        If the sweeps end without a proof, go on with frustrated cycles cut into triangles
        (`inference_lab.algorithms.dual.tightening`).
    parts : bool
        Solve components with cycles apart, small ones by elimination.

    Guarantees
    ----------
    The bound never falls, and is at most the optimum of the local polytope; tightening takes it
    beyond. Exact on forests after one sweep, also with ties. At the fixed point (weak tree
    agreement) it equals the local polytope's optimum if all terms are pairwise and over two labels,
    and the least energy if they are submodular, too. Infeasibility is reported only if the messages
    prove it. `converged` means that the bound has stalled and no cluster promises a gain.

    Complexity
    ----------
    A sweep costs O(k) a message for diagonal and truncated terms, O(k^2) for other tables, O(table
    size * arity) for higher-order factors. Memory: ``8 m k`` bytes for messages; 41 bytes an edge
    and 56 a variable for the layout. Tightening adds two messages an edge, a copy of the pairwise
    tables, and the clusters.

    References
    ----------
    V. Kolmogorov, "Convergent tree-reweighted message passing for energy minimization", IEEE
    PAMI 28(10), 2006: TRW-S, monotonic chains, choice of labels.
    V. Kolmogorov, "A new look at reweighted message passing", IEEE PAMI 37(5), 2015: SRMP.
    V. Kolmogorov, T. Schoenemann, "Generalized sequential tree-reweighted message passing",
    arXiv:1205.6352, 2012.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> s = il.solve(g, "trw-s")
    >>> s.energy, s.lower_bound, s.status
    (0.5, 0.5, <Status.OPTIMAL: 'optimal'>)
    """

    version: ClassVar[int] = 4
    startup_cost: ClassVar[float] = 50.0

    order: Literal["given", "breadth-first"] = "given"
    tolerance: float = setting(1e-7, at_least=0)
    patience: int = setting(10, at_least=1)
    decode_every: int | None = setting(None, at_least=1)
    max_sweeps: int = setting(1000, at_least=1)
    polish: bool = True
    tighten: Literal["cycles"] | None = None
    parts: bool = True

    def run(self, graph: FactorGraph, run: Run) -> Outcome:
        """Pass messages; where they prove nothing, go on with components with cycles apart."""
        outcome = super().run(graph, run)
        return go_on_by_parts(self.run, graph, run, outcome) if self.parts else outcome

    def peak_bytes(self, graph: FactorGraph, temperature: float) -> int:
        """Count the messages, one an edge, their layout and the terms by their kind."""
        return run_bytes(graph, plan_bytes(graph))

    def start(self, graph: FactorGraph, run: Run) -> TRWSPasses:
        """Start the messages from zero."""
        order = np.arange(graph.n_variables)
        if graph.is_forest or self.order == "breadth-first":
            # A copy, because the graph's order is read-only and kernels are compiled for writable.
            order = graph.breadth_first_order.copy()
        passes = TRWSPasses(graph, order)
        passes.standstill = Standstill(self.tolerance, self.patience, cost_scale(graph))
        # A first labelling, because the first pass may take long.
        run.offer(passes.decode())
        return passes

    def step(self, state: TRWSPasses, run: Run, done: int) -> Progress | None:
        """Make a forward and a backward pass."""
        bound = state.directed_pass(1, run)
        if bound is not None and bound < math.inf:
            bound = state.directed_pass(0, run)
        if bound is None:
            return None
        still = state.standstill.reached(bound)
        return Progress(still or state.graph.is_forest, bound)

    def decode(self, state: TRWSPasses, run: Run, done: int) -> IntArray | None:
        """Decode a labelling in some of the sweeps."""
        if done - state.decoded < (self.decode_every or max(1, done // 4)):
            return None
        state.decoded = done
        return state.decode()

    def finish(self, state: TRWSPasses, run: Run, outcome: Outcome) -> Outcome:
        """Polish the best labelling, then add clusters."""
        graph = state.graph
        sweeps = outcome.iterations
        if state.decoded < sweeps:
            run.offer(state.decode())
        if self.polish and not (run.proved or run.should_stop()):
            best = run.best_labels
            assert best is not None  # offered before the first pass
            polished = best.copy()
            descend(graph, polished, state.order, _POLISH_SWEEPS)
            run.offer(polished)
        outcome.diagnostics = {"last_gain": state.standstill.gain, "bound": state.standstill.bound}
        settled = outcome.converged or sweeps >= self.max_sweeps
        if self.tighten is None or run.proved or not settled or run.should_stop(sweeps):
            return outcome
        tightened = tighten(
            graph,
            run,
            state.reparametrisation(),
            sweeps=sweeps,
            max_sweeps=sweeps + _TIGHTENING_SWEEPS,
        )
        return Outcome(
            converged=tightened.stopped_by == "converged",
            infeasible=tightened.stopped_by == "infeasible",
            stopped_by=tightened.limit,
            iterations=tightened.sweeps,
            diagnostics=outcome.diagnostics | asdict(tightened),
        )
