"""Sequential decoding of labels from messages and the labels chosen before."""

from __future__ import annotations

import numpy as np

from inference_lab._numba import inlined, lean_kernel
from inference_lab.algorithms.dual.trws_layout import FIRST, Messages, Schedule, Workspace
from inference_lab.graph.arrays import NO_FORM, TABLE, FloatArray, GraphArrays, IntArray
from inference_lab.kernels.factor_messages import min_marginals
from inference_lab.kernels.messages import (
    ATTRACTIVE,
    REPULSIVE,
    Terms,
    add_counted,
    first_label,
    half_cost,
    least,
)


@inlined
def add_message(k: int, message: FloatArray, hard: bool | None, work: Workspace) -> None:
    """Add a message to the costs; infinite entries are counted."""
    # Here and below, `hard` is True, or None instead of False, and so is `tables`: numba leaves
    # out the code that depends on an argument that is None.
    if hard is not None:
        add_counted(k, message, work.costs, work.infinite)
    else:
        for a in range(k):
            work.costs[a] += message[a]


@inlined
def add_ahead(
    plan: Schedule, t: int, k: int, unary: FloatArray, rows: FloatArray, costs: FloatArray
) -> None:
    """Write the sum of a variable's costs and the messages of the edges ahead, in this order."""
    for b in range(k):
        costs[b] = unary[b]
    for q in range(plan.ptr[t], plan.middle[t]):
        first = np.uint64(plan.at[q])
        for b in range(k):
            a = np.uint64(b)
            costs[a] += rows[first + a]


@inlined
def add_inside(
    g: GraphArrays,
    plan: Schedule,
    terms: Terms,
    t: int,
    k: int,
    x: IntArray,
    rows: FloatArray,
    costs: FloatArray,
    tables: bool | None,
) -> bool:
    """Write the costs of a variable inside a grid in one pass; return False elsewhere."""
    # The sums equal those from `add_ahead` and `add_edge`, but are written once instead of four
    # times. Requires two edges ahead and two behind, with symmetric tables or Potts terms.
    one, two = np.uint64(1), np.uint64(2)
    q, middle = np.uint64(plan.ptr[t]), np.uint64(plan.middle[t])
    if q + two != middle or middle + two != np.uint64(plan.ptr[t + 1]):
        return False
    near, far = np.uint64(plan.half[middle]), np.uint64(plan.half[middle + one])
    e, f = near >> one, far >> one
    left, above = x[g.edges[e, near & one]], x[g.edges[f, far & one]]
    start = np.uint64(g.unary_ptr[plan.order[t]])
    first, second = np.uint64(plan.at[q]), np.uint64(plan.at[q + one])
    if tables is not None and g.forms[e] != NO_FORM and g.forms[f] != NO_FORM:
        # A row of a symmetric table equals its column.
        here, there = np.uint64(g.offsets[e] + left * k), np.uint64(g.offsets[f] + above * k)
        for b in range(k):
            a = np.uint64(b)
            ahead = (g.unary[start + a] + rows[first + a]) + rows[second + a]
            behind = ahead + g.weights[e] * g.pairwise[here + a]
            costs[a] = behind + g.weights[f] * g.pairwise[there + a]
        return True
    if terms.way[e] == ATTRACTIVE and terms.way[f] == ATTRACTIVE:
        for b in range(k):
            a = np.uint64(b)
            ahead = (g.unary[start + a] + rows[first + a]) + rows[second + a]
            behind = ahead - (terms.rise[e] if b == left else 0.0)
            costs[a] = behind - (terms.rise[f] if b == above else 0.0)
        return True
    return False


@inlined
def add_edge(
    g: GraphArrays,
    terms: Terms,
    h: int,
    k: int,
    b: int,
    hard: bool | None,
    tables: bool | None,
    work: Workspace,
) -> None:
    """Add the costs of an edge whose other end, at half-edge ``h``, has label ``b``."""
    e = np.uint64(h >> 1)
    way = terms.way[e]
    if hard is not None:
        for a in range(k):
            work.new[a] = half_cost(g, h, b, a)
        add_message(k, work.new, hard, work)
        return
    if way == ATTRACTIVE or way == REPULSIVE:
        # A cost common to all labels does not change the choice.
        work.costs[b] += terms.rise[e] if way == REPULSIVE else -terms.rise[e]
        return
    if tables is not None:
        if g.kinds[e] == TABLE:
            # The row or column of the label in the table; the row for symmetric tables.
            by_row = h & 1 == 0 or g.forms[e] != NO_FORM
            step = 1 if by_row else g.cardinalities[g.edges[e, 1]]
            at = g.offsets[e] + b * (k if by_row else 1)
            for a in range(k):
                work.costs[a] += g.weights[e] * g.pairwise[at + a * step]
            return
    # A cost common to all labels does not change the choice.
    if b < k:
        work.costs[b] += g.pairwise[g.offsets[e] + b * g.kinds[e]] - g.weights[e]


@inlined
def choose(k: int, hard: bool | None, work: Workspace) -> int:
    """Return the label with the fewest infinite terms; ties go to the least cost."""
    if hard is None:
        return first_label(k, least(k, work.costs), work.costs)
    best = 0
    for a in range(1, k):
        if work.infinite[a] != work.infinite[best]:
            if work.infinite[a] < work.infinite[best]:
                best = a
        elif work.costs[a] < work.costs[best]:
            best = a
    return best


@lean_kernel
def decode(
    g: GraphArrays,
    plan: Schedule,
    terms: Terms,
    state: Messages,
    decided: FloatArray,
    hard: bool | None,
    tables: bool | None,
    work: Workspace,
    x: IntArray,
) -> None:
    """Label the variables in order, each given the labels of the earlier ones."""
    # Runs after a backward pass, with true costs towards labelled neighbours and messages from the
    # others (Kolmogorov 2006). Labels with fewer infinite terms come first, then lower costs, then
    # lower numbers. Graphs with factors count as hard. `decided` is a copy of ``state.slots`` in
    # which labels replace messages.
    for t in range(plan.order.size):
        i = plan.order[t]
        k = g.cardinalities[i]
        unary = g.unary[g.unary_ptr[i] : g.unary_ptr[i] + k]
        if hard is not None:
            work.costs[:k] = 0.0
            work.infinite[:k] = 0
            add_message(k, unary, hard, work)
            for q in range(plan.ptr[t], plan.middle[t]):
                at = plan.at[q]
                add_message(k, state.rows[at : at + k], hard, work)
        inside = False
        if hard is None:
            inside = add_inside(g, plan, terms, t, k, x, state.rows, work.costs, tables)
            if not inside:
                add_ahead(plan, t, k, unary, state.rows, work.costs)
        if not inside:
            for q in range(plan.middle[t], plan.ptr[t + 1]):
                h = plan.half[q]
                add_edge(g, terms, h, k, x[g.edges[h >> 1, h & 1]], hard, tables, work)
        if hard is not None:
            for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
                slot = g.inc_slot[p]
                at = plan.slot_ptr[slot]
                message = decided[at : at + k]
                if plan.role[slot] != FIRST:
                    min_marginals(g, slot, decided, plan.slot_ptr, message, work.digits)
                add_message(k, message, hard, work)
        best = choose(k, hard, work)
        x[i] = best
        if hard is not None:
            for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
                at = plan.slot_ptr[g.inc_slot[p]]
                for a in range(k):
                    decided[at + a] = 0.0 if a == best else np.inf
