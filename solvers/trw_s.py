"""Sequential tree-reweighted message passing: a lower bound that never falls, and labellings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from inference_lab._numba import inlined, inlined_minimum, lean_kernel
from inference_lab.contract import Outcome, Run, Solver
from inference_lab.factor_graph import (
    NO_FORM,
    POTTS,
    TABLE,
    TRUNCATED_LINEAR,
    FactorGraph,
    FloatArray,
    GraphArrays,
    IntArray,
)
from inference_lab.kernels import cost_scale, edge_cost, min_sum_message, slot_ptr

#: Where a variable stands in a factor, in the order of visits.
_MIDDLE, _FIRST, _LAST = 0, 1, 2
#: Elementary operations between two looks at the clock, about a tenth of a second.
_STRETCH = 50_000_000


class Plan(NamedTuple):
    """The order of visits, and where messages lie; `t` is a rank in the order.

    * ``order`` (n,): the variable of each rank;
    * an edge has one message, the one sent last: it lies at ``row_ptr`` (m + 1,) of the edge's row;
      rows are sorted by the rank of the earlier end, those of rank ``t`` being
      ``ahead_ptr[t] : ahead_ptr[t + 1]``; ``behind_row`` at ``behind_ptr[t] : behind_ptr[t + 1]``
      lists the rows of edges whose later end is ``t``; ``half`` (m,) is the half-edge at the later
      end;
    * ``role`` (slots,): whether the variable at a position of a factor's scope is the first or the
      last of its factor in the order; ``slot_ptr`` (slots + 1,) where its message lies;
    * ``share`` (2, n): the part of its costs that a variable gives to each term that goes on,
      forwards (row 1) and backwards (row 0); ``rest`` (2, n): the part it keeps.
    """

    order: IntArray
    ahead_ptr: IntArray
    behind_ptr: IntArray
    behind_row: IntArray
    half: IntArray
    row_ptr: IntArray
    role: npt.NDArray[np.uint8]
    slot_ptr: IntArray
    share: FloatArray
    rest: FloatArray


def make_plan(graph: FactorGraph, order: IntArray) -> Plan:
    """Lay out the messages of a graph for visits in a given order of the variables.

    Complexity: O(n + m log m + slots) time and memory.
    """
    n, m = graph.n_variables, graph.n_edges
    rank = np.empty(n, dtype=np.int64)
    rank[order] = np.arange(n)
    ends = rank[graph.edges]
    later = (ends[:, 1] > ends[:, 0]).astype(np.int64)
    by_first = np.lexsort((ends.max(axis=1), ends.min(axis=1)))
    low, high = ends.min(axis=1)[by_first], ends.max(axis=1)[by_first]
    ahead, behind = np.bincount(low, minlength=n), np.bincount(high, minlength=n)
    sizes = graph.cardinalities[graph.edges[by_first]].max(axis=1, initial=1)

    role = np.full(graph.factor_scopes.size, _MIDDLE, dtype=np.uint8)
    if graph.n_factors:
        start, ranks = graph.factor_ptr[:-1], rank[graph.factor_scopes]
        arity = np.diff(graph.factor_ptr)
        role[ranks == np.repeat(np.minimum.reduceat(ranks, start), arity)] = _FIRST
        role[ranks == np.repeat(np.maximum.reduceat(ranks, start), arity)] = _LAST
    at = rank[graph.factor_scopes]
    forwards = ahead + np.bincount(at[role != _LAST], minlength=n)
    backwards = behind + np.bincount(at[role != _FIRST], minlength=n)
    # Where a variable has at most one term behind, as on trees, giving it all makes the backward
    # pass dynamic programming; elsewhere monotonic chains get equal shares (Kolmogorov 2006).
    chains = np.maximum(forwards, backwards)
    counts = np.stack([backwards, forwards])
    chains = counts if graph.is_forest else np.stack([chains, chains])
    chains = np.maximum(chains, 1)
    return Plan(
        order=np.ascontiguousarray(order),
        ahead_ptr=_offsets(ahead),
        behind_ptr=_offsets(behind),
        behind_row=np.argsort(high, kind="stable"),
        half=(2 * np.arange(m) + later)[by_first],
        row_ptr=_offsets(sizes),
        role=role,
        slot_ptr=slot_ptr(graph),
        share=np.where(counts > 0, 1.0 / chains, 0.0),
        rest=(chains - counts) / chains,
    )


def _offsets(sizes: npt.NDArray[np.int64]) -> IntArray:
    """Return where consecutive blocks of these sizes start, and the end of the last."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes)])


class State(NamedTuple):
    """Messages, all energies.

    ``rows`` holds one message an edge: to the variable visited last before the present one, that
    is, to the later end after a forward pass and to the earlier end after a backward pass.
    ``slots`` holds one message a position of a factor's scope: after a pass, that of the factor to
    the variable where the pass leaves the factor, and of the variable to the factor elsewhere.
    """

    rows: FloatArray
    slots: FloatArray


class Workspace(NamedTuple):
    """Scratch for one variable at a time; `digits` is as long as the largest arity."""

    costs: FloatArray
    cavity: FloatArray
    new: FloatArray
    infinite: IntArray
    digits: IntArray


def workspace(graph: FactorGraph) -> Workspace:
    """Allocate scratch arrays for a graph."""
    width = int(graph.cardinalities.max(initial=1))
    arity = int(np.diff(graph.factor_ptr).max(initial=0))
    return Workspace(
        np.empty(width),
        np.empty(width),
        np.empty(width),
        np.empty(width, np.int64),
        np.empty(arity, np.int64),
    )


@inlined
def add(k: int, message: FloatArray, costs: FloatArray) -> None:
    """Add a message to the costs of a variable."""
    for a in range(k):
        costs[a] += message[a]


@inlined
def take_share(
    k: int, costs: FloatArray, share: float, message: FloatArray, hard: bool, out: FloatArray
) -> None:
    """Write what a variable gives to a term: its share of the costs, less the term's own message.

    A label of infinite cost is in no labelling of finite energy, so it stays infinite for every
    term, and ``inf - inf`` is not formed. `out` may be `message`.
    """
    if hard:
        for a in range(k):
            out[a] = np.inf if np.isinf(costs[a]) else share * costs[a] - message[a]
    else:
        for a in range(k):
            out[a] = share * costs[a] - message[a]


@inlined_minimum
def least(k: int, values: FloatArray) -> float:
    """Return the smallest of the first `k` values."""
    smallest = np.inf
    for a in range(k):
        smallest = min(smallest, values[a])
    return smallest


@inlined_minimum
def attractive_message(
    k: int, costs: FloatArray, share: float, strength: float, message: FloatArray
) -> float:
    """Turn the message of a Potts term round, in place; return the least of the share given.

    `strength` is the cost of different labels over that of equal ones, not negative. All finite.
    """
    best = np.inf
    for a in range(k):
        value = share * costs[a] - message[a]
        message[a] = value
        best = min(best, value)
    for a in range(k):
        message[a] = min(message[a] - best, strength)
    return best


@inlined_minimum
def linear_message(
    k: int, costs: FloatArray, share: float, slope: float, cap: float, message: FloatArray
) -> float:
    """Turn the message of a truncated linear term round, in place; return the least share given.

    The distance transform of Felzenszwalb and Huttenlocher 2006, sec. 3.2. All finite.
    """
    best = np.inf
    for a in range(k):
        value = share * costs[a] - message[a]
        message[a] = value
        best = min(best, value)
    value = np.inf
    for a in range(k):
        value = min(message[a], value + slope)
        message[a] = value
    for a in range(k - 1, -1, -1):
        value = min(message[a], value + slope)
        message[a] = min(value - best, cap)
    return best


@inlined
def turn_message(
    g: GraphArrays,
    h: int,
    k: int,
    share: float,
    hard: bool,
    message: FloatArray,
    work: Workspace,
) -> float:
    """Replace the message of an edge to a variable by that from it, to half-edge ``h``.

    ``work.costs`` holds the variable's costs. The message is normalised to minimum zero; returns
    the minimum that was taken off, ``inf`` if no pair of labels is left.
    """
    e = h >> 1
    receiver = g.cardinalities[g.edges[e, h & 1]]
    kind = g.kinds[e]
    offset = g.offsets[e]
    weight = g.weights[e]
    if not hard and k == receiver:
        if kind == POTTS and weight >= g.pairwise[offset]:
            same = g.pairwise[offset]
            return same + attractive_message(k, work.costs, share, weight - same, message)
        if kind == TABLE and g.forms[e] == TRUNCATED_LINEAR:
            base = g.pairwise[offset]
            slope = weight * (g.pairwise[offset + 1] - base)
            cap = weight * (g.pairwise[offset + k - 1] - base)
            return weight * base + linear_message(k, work.costs, share, slope, cap, message)
    take_share(k, work.costs, share, message, hard, work.cavity)
    smallest = min_sum_message(g, h, work.cavity, work.new)
    if smallest < np.inf:
        for b in range(receiver):
            message[b] = work.new[b] - smallest
    return smallest


@inlined_minimum
def collect(
    g: GraphArrays, slot: int, slots: FloatArray, ptr: IntArray, out: FloatArray, digits: IntArray
) -> float:
    """Write the message of a factor to the variable at one position; return its smallest entry.

    ``out[b]`` is the minimum, over the labels of the factor's other variables, of its cost plus
    their messages to it.

    Complexity: O(table size).
    """
    f = g.slot_factor[slot]
    lo = g.factor_ptr[f]
    last = g.factor_ptr[f + 1] - 1
    own_last = slot == last
    inner = g.cardinalities[g.scopes[last]]
    k = g.cardinalities[g.scopes[slot]]
    final = slots[ptr[last] : ptr[last] + inner]
    for b in range(k):
        out[b] = np.inf
    for s in range(last - lo):
        digits[s] = 0
    for start in range(g.table_ptr[f], g.table_ptr[f + 1], inner):
        line = g.tables[start : start + inner]
        base = 0.0
        for s in range(lo, last):
            if s != slot:
                base += slots[ptr[s] + digits[s - lo]]
        if base < np.inf:
            if own_last:
                for b in range(inner):
                    out[b] = min(out[b], line[b] + base)
            else:
                value = np.inf
                for b in range(inner):
                    value = min(value, line[b] + final[b])
                own = digits[slot - lo]
                out[own] = min(out[own], value + base)
        # Odometer over all positions but the last: the rightmost turns fastest.
        s = last - lo - 1
        while s >= 0:
            digits[s] += 1
            if digits[s] < g.cardinalities[g.scopes[lo + s]]:
                break
            digits[s] = 0
            s -= 1
    return least(k, out)


@lean_kernel
def half_sweep(
    g: GraphArrays,
    plan: Plan,
    direction: int,
    begin: int,
    end: int,
    state: State,
    hard: bool,
    work: Workspace,
) -> float:
    """Visit the ranks from `begin` to `end`, up (direction 1) or down (0); return their bound.

    Each variable collects what its terms hold and gives equal shares to those that go on in this
    direction (algorithm TRW-S in Kolmogorov 2006, fig. 3; for factors, the sequence of
    Kolmogorov 2015, fig. 2). The sum over a whole pass is a lower bound on the energy without its
    constant. It is ``inf``, and the pass ends, where a variable has no label left.
    """
    total = 0.0
    lost = 0.0
    for step in range(end - begin):
        t = begin + step if direction == 1 else end - 1 - step
        i = plan.order[t]
        k = g.cardinalities[i]
        share = plan.share[direction, t]
        rest = plan.rest[direction, t]
        ahead, ahead_end = plan.ahead_ptr[t], plan.ahead_ptr[t + 1]
        behind, behind_end = plan.behind_ptr[t], plan.behind_ptr[t + 1]
        gained = 0.0

        costs = work.costs
        first = g.unary_ptr[i]
        own = g.unary[first : first + k]
        for a in range(k):
            costs[a] = own[a]
        for r in range(ahead, ahead_end):
            at = plan.row_ptr[r]
            add(k, state.rows[at : at + k], costs)
        for q in range(behind, behind_end):
            at = plan.row_ptr[plan.behind_row[q]]
            add(k, state.rows[at : at + k], costs)
        for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
            slot = g.inc_slot[p]
            role = plan.role[slot]
            at = plan.slot_ptr[slot]
            message = state.slots[at : at + k]
            entered = role == _LAST if direction == 0 else role == _FIRST
            if not entered:
                smallest = collect(g, slot, state.slots, plan.slot_ptr, message, work.digits)
                if smallest == np.inf:
                    return np.inf
                for a in range(k):
                    message[a] -= smallest
                # Elsewhere in the factor the minimum stays in its table, and is found later.
                if role == (_FIRST if direction == 0 else _LAST):
                    gained += smallest
            add(k, message, costs)

        if rest > 0.0 or hard:
            smallest = least(k, costs)
            if smallest == np.inf:
                return np.inf
            gained += rest * smallest

        count = ahead_end - ahead if direction == 1 else behind_end - behind
        for q in range(count):
            r = ahead + q if direction == 1 else plan.behind_row[behind + q]
            h = plan.half[r] if direction == 1 else plan.half[r] ^ 1
            at = plan.row_ptr[r]
            message = state.rows[at : plan.row_ptr[r + 1]]
            smallest = turn_message(g, h, k, share, hard, message, work)
            if smallest == np.inf:
                return np.inf
            gained += smallest
        for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
            slot = g.inc_slot[p]
            if plan.role[slot] != (_FIRST if direction == 0 else _LAST):
                at = plan.slot_ptr[slot]
                message = state.slots[at : at + k]
                take_share(k, costs, share, message, hard, message)

        # Compensated, so that the bound is good to the last digits on millions of terms.
        gained -= lost
        summed = total + gained
        lost = (summed - total) - gained
        total = summed
    return total


@inlined
def add_counted(k: int, message: FloatArray, work: Workspace) -> None:
    """Add a message to the costs; infinite entries are counted."""
    for a in range(k):
        value = message[a]
        if np.isinf(value):
            work.infinite[a] += 1
        else:
            work.costs[a] += value


@lean_kernel
def decode(
    g: GraphArrays,
    plan: Plan,
    begin: int,
    end: int,
    state: State,
    decided: FloatArray,
    work: Workspace,
    x: IntArray,
) -> None:
    """Label the ranks from `begin` to `end` one after another, each given those before it.

    After a backward pass, with the true costs towards labelled neighbours and messages from the
    others (Kolmogorov 2006, sec. 4.1). Labels with fewer infinite terms come first, then lower
    costs, then lower numbers. `decided` is a copy of ``state.slots`` in which each message of a
    labelled variable is replaced by its label.
    """
    for t in range(begin, end):
        i = plan.order[t]
        k = g.cardinalities[i]
        for a in range(k):
            work.costs[a] = 0.0
            work.infinite[a] = 0
        add_counted(k, g.unary[g.unary_ptr[i] : g.unary_ptr[i] + k], work)
        for r in range(plan.ahead_ptr[t], plan.ahead_ptr[t + 1]):
            at = plan.row_ptr[r]
            add_counted(k, state.rows[at : at + k], work)
        for q in range(plan.behind_ptr[t], plan.behind_ptr[t + 1]):
            h = plan.half[plan.behind_row[q]]
            e = h >> 1
            b = x[g.edges[e, 1 - (h & 1)]]
            for a in range(k):
                if h & 1 == 0:
                    work.new[a] = edge_cost(g, e, a, b)
                else:
                    work.new[a] = edge_cost(g, e, b, a)
            add_counted(k, work.new, work)
        for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
            slot = g.inc_slot[p]
            at = plan.slot_ptr[slot]
            message = decided[at : at + k]
            if plan.role[slot] != _FIRST:
                collect(g, slot, decided, plan.slot_ptr, message, work.digits)
            add_counted(k, message, work)
        best = 0
        for a in range(1, k):
            fewer = work.infinite[a] - work.infinite[best]
            if fewer < 0 or (fewer == 0 and work.costs[a] < work.costs[best]):
                best = a
        x[i] = best
        for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
            at = plan.slot_ptr[g.inc_slot[p]]
            for a in range(k):
                decided[at + a] = 0.0 if a == best else np.inf


class Passes:
    """The messages of one run, and the passes that renew them.

    Attributes
    ----------
    graph : FactorGraph
    plan : Plan
    state : State
    """

    def __init__(self, graph: FactorGraph, order: IntArray) -> None:
        self.graph = graph
        self.plan = make_plan(graph, order)
        self.state = State(
            np.zeros(self.plan.row_ptr[-1]),
            np.zeros(self.plan.slot_ptr[-1]),
        )
        self._work = workspace(graph)
        self._stops = self._stretches()

    def _stretches(self) -> list[int]:
        """Cut the order into stretches of bounded work, so that the clock is looked at between."""
        graph, plan = self.graph, self.plan
        edges = plan.half >> 1
        sizes = graph.cardinalities[graph.edges[edges]]
        dense = (graph.edge_kinds[edges] == TABLE) & (graph.arrays.forms[edges] == NO_FORM)
        cost = np.where(dense, sizes.prod(axis=1), 8 * sizes.max(axis=1, initial=1))
        before = np.concatenate([[0], np.cumsum(cost)])
        work = before[plan.ahead_ptr[1:]] - before[plan.ahead_ptr[:-1]]
        work = work + graph.cardinalities[plan.order]
        if graph.n_factors:
            arity = np.diff(graph.factor_ptr)
            tables = np.repeat(np.diff(graph.table_ptr), arity)
            rank = np.empty(graph.n_variables, dtype=np.int64)
            rank[plan.order] = np.arange(graph.n_variables)
            np.add.at(work, rank[graph.factor_scopes], tables)
        stretch = np.cumsum(work) // _STRETCH
        return [0, *(np.flatnonzero(np.diff(stretch)) + 1).tolist(), graph.n_variables]

    def run_pass(self, direction: int, run: Run) -> float | None:
        """Visit all variables, up (1) or down (0) the order; return the bound of the pass.

        ``inf`` proves that no labelling has finite energy; None says that the time ran out.
        """
        stretches = list(zip(self._stops[:-1], self._stops[1:], strict=True))
        parts = [self.graph.constant]
        for begin, end in stretches if direction == 1 else reversed(stretches):
            if run.should_stop():
                return None
            parts.append(
                half_sweep(
                    self.graph.arrays, self.plan, direction, begin, end, self.state,
                    self.graph.has_infinite, self._work,
                )
            )  # fmt: skip
            if parts[-1] == math.inf:
                return math.inf
        return math.fsum(parts)

    def decode(self, run: Run) -> IntArray | None:
        """Return the labelling that the messages suggest after a backward pass.

        None if the time ran out.
        """
        x = np.empty(self.graph.n_variables, dtype=np.int64)
        decided = self.state.slots.copy()
        for begin, end in zip(self._stops[:-1], self._stops[1:], strict=True):
            if run.should_stop():
                return None
            decode(self.graph.arrays, self.plan, begin, end, self.state, decided, self._work, x)
        return x


@dataclass(frozen=True)
class TRWS(Solver):
    pass
