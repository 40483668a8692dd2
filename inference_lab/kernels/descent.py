"""Descent by single changes: the steps of ICM, which other methods polish their labellings with."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from inference_lab._numba import inlined, inlined_minimum, kernel, lean_kernel
from inference_lab.graph.arrays import FloatArray, GraphArrays, IntArray
from inference_lab.kernels.messages import finite_costs, first_label, least, local_costs

#: A move must gain more than this share of the costs it adds up, so that rounding cannot cycle.
_RELATIVE_GAIN = 1e-13


@inlined_minimum
def max_absolute(k: int, values: FloatArray) -> float:
    """Return the largest absolute value of the first `k`."""
    even = 0.0
    odd = 0.0
    for a in range(0, k - 1, 2):
        even = max(even, abs(values[a]))
        odd = max(odd, abs(values[a + 1]))
    return float(max(max(even, odd), abs(values[k - 1])))


@inlined
def best_label(g: GraphArrays, x: IntArray, i: int, cost: FloatArray, infinite: IntArray) -> int:
    """Return the label to which variable ``i`` moves, its own if no other is better.

    `cost` and `infinite` are scratch.
    """
    k = g.cardinalities[i]
    current = x[i]
    if g.inc_ptr[i] == g.inc_ptr[i + 1]:
        # All costs may well be finite. If not, the sums are not; only then are terms counted.
        scale = finite_costs(g, x, i, cost)
        if scale < np.inf:
            low = least(k, cost)
            if low == cost[current] and low < np.inf:
                return int(current)
            scale += max_absolute(k, g.unary[g.unary_ptr[i] : g.unary_ptr[i] + k])
            if scale < np.inf:
                if low < cost[current] - _RELATIVE_GAIN * scale:
                    return first_label(k, low, cost)
                return int(current)
    scale = local_costs(g, x, i, cost, infinite)
    best = current
    threshold = cost[current] - _RELATIVE_GAIN * scale
    for a in range(k):
        if infinite[a] < infinite[best] or (infinite[a] == infinite[best] and cost[a] < (
            threshold if best == current else cost[best]
        )):  # fmt: skip
            best = a
    return int(best)


@lean_kernel
def sweep(
    g: GraphArrays,
    x: IntArray,
    order: IntArray,
    dirty: npt.NDArray[np.bool_],
    cost: FloatArray,
    infinite: IntArray,
) -> int:
    """Visit the variables in `order` that are dirty and move each to its best label, in place.

    A variable is dirty when it, or a variable it shares a term with, has changed since its last
    visit; a clean one has nothing to gain. Violated hard terms count before finite costs, and a
    tie keeps the label. `cost` and `infinite` are scratch of the length of the largest cardinality.
    Returns the number of changes.
    """
    changes = 0
    for visited in order:
        i = np.uint64(visited)
        if not dirty[i]:
            continue
        dirty[i] = False
        best = best_label(g, x, visited, cost, infinite)
        if best == x[i]:
            continue
        x[i] = best
        changes += 1
        for p in range(g.adj_ptr[visited], g.adj_ptr[visited + 1]):
            dirty[np.uint64(g.adj_var[np.uint64(p)])] = True
        for p in range(g.inc_ptr[visited], g.inc_ptr[visited + 1]):
            f = g.slot_factor[g.inc_slot[p]]
            for s in range(g.factor_ptr[f], g.factor_ptr[f + 1]):
                if g.scopes[s] != visited:
                    dirty[g.scopes[s]] = True
    return changes


@kernel
def descend(g: GraphArrays, x: IntArray, order: IntArray, max_sweeps: int) -> int:
    """Sweep in a fixed order until nothing changes, in place; return the number of sweeps."""
    width = 0
    for i in range(g.cardinalities.size):
        width = max(width, g.cardinalities[i])
    cost = np.empty(width)
    infinite = np.empty(width, dtype=np.int64)
    dirty = np.ones(g.cardinalities.size, dtype=np.bool_)
    for done in range(max_sweeps):
        if sweep(g, x, order, dirty, cost, infinite) == 0:
            return done + 1
    return max_sweeps
