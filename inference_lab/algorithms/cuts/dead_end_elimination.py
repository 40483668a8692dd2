"""Dead-end elimination: rule out labels that another label is never worse than.

``alive`` flags the remaining labels. ``digits`` is scratch of the largest arity, None for a graph
without factors.
"""

from __future__ import annotations

import numpy as np

from inference_lab._numba import inlined, int64, lean_kernel
from inference_lab.graph.arrays import TABLE, Flags, GraphArrays, IntArray
from inference_lab.kernels.factor_messages import (
    entry_of,
    first_allowed_labels,
    next_allowed_labels,
)
from inference_lab.kernels.messages import half_cost


@inlined
def _worst_of_edge(g: GraphArrays, alive: Flags, h: int, j: int, a: int, b: int) -> float:
    """Return the largest ``theta(b, z) - theta(a, z)`` over labels ``z`` allowed with ``a``."""
    worst = -np.inf
    start = g.unary_ptr[j]
    k = g.cardinalities[j]
    if g.kinds[h >> 1] == TABLE:
        for z in range(k):
            if alive[start + z]:
                before = half_cost(g, h, a, z)
                if not np.isinf(before):
                    worst = max(worst, half_cost(g, h, b, z) - before)
        return worst
    # All labels except a and b have equal costs.
    other = -1
    for z in range(k):
        if alive[start + z] and z != a and z != b:
            other = z
            break
    if other >= 0 and not np.isinf(half_cost(g, h, a, other)):
        worst = 0.0
    if a < k and alive[start + a]:
        before = half_cost(g, h, a, a)
        if not np.isinf(before):
            worst = max(worst, half_cost(g, h, b, a) - before)
    if b < k and alive[start + b]:
        before = half_cost(g, h, a, b)
        if not np.isinf(before):
            worst = max(worst, half_cost(g, h, b, b) - before)
    return worst


@inlined
def _worst_of_factor(
    g: GraphArrays, alive: Flags, slot: int, a: int, b: int, digits: IntArray
) -> float:
    """Return the same maximum as `_worst_of_edge`, for a position of a factor's scope."""
    f = g.slot_factor[slot]
    lo = g.factor_ptr[f]
    hi = g.factor_ptr[f + 1]
    first_allowed_labels(g, lo, hi, alive, digits)
    worst = -np.inf
    more = True
    while more:
        digits[slot - lo] = a
        before = g.tables[entry_of(g, f, digits)]
        if not np.isinf(before):
            digits[slot - lo] = b
            worst = max(worst, g.tables[entry_of(g, f, digits)] - before)
        more = next_allowed_labels(g, lo, hi, alive, slot, digits)
    return worst


@inlined
def _dominated(
    g: GraphArrays, alive: Flags, i: int, a: int, b: int, digits: IntArray | None
) -> bool:
    """Return whether changing label ``a`` of variable ``i`` to ``b`` raises no energy."""
    before = g.unary[g.unary_ptr[i] + a]
    if np.isinf(before):
        return True
    total = g.unary[g.unary_ptr[i] + b] - before
    if np.isinf(total):
        return False
    # The value at any one label is a lower bound on each maximum. Label a refutes most changes and
    # takes O(1) per edge, so it is tested first.
    bound = total if g.inc_ptr[i] == g.inc_ptr[i + 1] else -np.inf
    for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
        j = g.adj_var[p]
        value = -np.inf
        if a < g.cardinalities[j] and alive[g.unary_ptr[j] + a]:
            h = int64(g.adj_half[p])
            now = half_cost(g, h, a, a)
            if not np.isinf(now):
                value = half_cost(g, h, b, a) - now
        bound += value
        if bound == -np.inf:
            break
    if bound > 0.0:
        return False
    for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
        worst = _worst_of_edge(g, alive, int64(g.adj_half[p]), g.adj_var[p], a, b)
        if np.isinf(worst):
            # -inf means that every labelling with a is infinite.
            return bool(worst < 0.0)
        total += worst
    if digits is not None:
        for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
            worst = _worst_of_factor(g, alive, g.inc_slot[p], a, b, digits)
            if np.isinf(worst):
                return bool(worst < 0.0)
            total += worst
    return bool(total <= 0.0)


@inlined
def _cheapest(g: GraphArrays, alive: Flags, i: int) -> int:
    """Return the remaining label of least unary cost."""
    start = g.unary_ptr[i]
    best = -1
    for a in range(g.cardinalities[i]):
        if alive[start + a] and (best < 0 or g.unary[start + a] < g.unary[start + best]):
            best = a
    return best


@lean_kernel
def eliminate_dead_ends(
    g: GraphArrays,
    alive: Flags,
    n_alive: IntArray,
    dirty: Flags,
    begin: int,
    end: int,
    many: int,
    digits: IntArray | None,
) -> int:
    """Eliminate dead ends of the dirty variables from `begin` to `end`; return their number."""
    dropped = 0
    for i in range(begin, end):
        if not dirty[i]:
            continue
        dirty[i] = 0
        start = g.unary_ptr[i]
        k = g.cardinalities[i]
        before = n_alive[i]
        # With more than `many` labels, only the one of least unary cost is tried, to save time.
        cheapest = _cheapest(g, alive, i)
        for b in range(k):
            if not alive[start + b] or (k > many and b != cheapest):
                continue
            for a in range(k):
                if a != b and alive[start + a] and _dominated(g, alive, i, a, b, digits):
                    alive[start + a] = 0
                    n_alive[i] -= 1
        if n_alive[i] < before:
            dropped += before - n_alive[i]
            dirty[i] = n_alive[i] > 1
            for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
                dirty[g.adj_var[p]] = n_alive[g.adj_var[p]] > 1
            for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
                f = g.slot_factor[g.inc_slot[p]]
                for s in range(g.factor_ptr[f], g.factor_ptr[f + 1]):
                    dirty[g.scopes[s]] = n_alive[g.scopes[s]] > 1
    return dropped
