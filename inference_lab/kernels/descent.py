"""Descent by single changes: the steps of ICM, also the polish of other methods."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from inference_lab._numba import inlined, kernel, lean_kernel
from inference_lab.graph.arrays import FloatArray, GraphArrays, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.label_costs import LabelCosts
from inference_lab.kernels.messages import first_label, least, local_costs

#: A move must gain more than this share of the costs it adds up, so that rounding cannot cycle.
_RELATIVE_GAIN = 1e-13

#: Treatment of ties in a sweep: keep the label; move to a neighbour's label after the first change
#: with a gain; or move to it from the beginning.
KEEP, AWAIT, SPREAD = range(3)


@inlined
def cheapest(k: int, current: int, scale: float, cost: FloatArray, infinite: IntArray) -> int:
    """Return the label of fewest infinite terms, then least cost; `current` if none is better."""
    best = current
    threshold = cost[current] - _RELATIVE_GAIN * scale
    for a in range(k):
        if infinite[a] < infinite[best] or (
            infinite[a] == infinite[best]
            and cost[a] < (threshold if best == current else cost[best])
        ):
            best = a
    return int(best)


@inlined
def wake(g: GraphArrays, i: int, dirty: npt.NDArray[np.bool_]) -> None:
    """Mark the variables that share a term with variable ``i`` as dirty."""
    for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
        dirty[np.uint64(g.adj_var[np.uint64(p)])] = True
    for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
        f = g.slot_factor[g.inc_slot[p]]
        for s in range(g.factor_ptr[f], g.factor_ptr[f + 1]):
            if g.scopes[s] != i:
                dirty[g.scopes[s]] = True


@inlined
def best_label(
    g: GraphArrays, x: IntArray, i: int, cost: FloatArray, infinite: IntArray | None
) -> int:
    """Return the label to which variable ``i`` moves, its own if no other is better."""
    # Returns -1 if infinite terms must be counted but `infinite` is None.
    k = g.cardinalities[i]
    current = x[i]
    if g.inc_ptr[i] == g.inc_ptr[i + 1]:
        # Infinite terms are counted only if a pairwise term is, or every label is forbidden.
        scale = local_costs(g, x, i, cost, None)
        low = least(k, cost)
        if scale < np.inf and low < np.inf:
            if low == cost[current]:
                return int(current)
            best = first_label(k, low, cost)
            scale += abs(g.unary[g.unary_ptr[i] + best])
            return best if low < cost[current] - _RELATIVE_GAIN * scale else int(current)
    if infinite is None:
        return -1
    scale = local_costs(g, x, i, cost, infinite)
    return cheapest(k, current, scale, cost, infinite)


@inlined
def spread_label(g: GraphArrays, x: IntArray, i: int, label: int, cost: FloatArray) -> int:
    """Return the first neighbouring label that costs no more than `label`, else `label`."""
    # `cost` must have been filled by `best_label`.
    k = g.cardinalities[i]
    current = x[i]
    value = cost[label]
    # Backwards, so that the first neighbour wins without a branch.
    for q in range(g.adj_ptr[i + 1] - 1, g.adj_ptr[i] - 1, -1):
        b = x[np.uint64(g.adj_var[np.uint64(q)])]
        ties = (b < k) & (b != current) & (cost[np.uint64(b)] == value)
        label = b if ties else label
    return label


@lean_kernel
def icm_sweep(
    g: GraphArrays,
    x: IntArray,
    order: IntArray,
    dirty: npt.NDArray[np.bool_],
    cost: FloatArray,
    infinite: IntArray | None,
    ties: int,
) -> int:
    """Move each dirty variable in `order` to its best label, in place."""
    # A variable is dirty if it, or one that shares a term with it, has changed since its last
    # visit; a clean one cannot improve. Violated hard terms are compared before finite costs.
    # Returns the number of improving changes. Without `infinite`, counting is not compiled; if it
    # is needed, the sweep stops and returns -1 minus the number of changes so far.
    #
    # With `KEEP`, or with `infinite`, a variable keeps its label unless another is better, and then
    # takes the first of the best. Otherwise it prefers a best label of a neighbour, even if that
    # ties with its own: at once (`SPREAD`) or after an improving change (`AWAIT`). Labels then
    # spread over plateaus of equal energy until a change improves the energy.
    changes = 0
    for visited in order:
        i = np.uint64(visited)
        if not dirty[i]:
            continue
        best = best_label(g, x, visited, cost, infinite)
        if infinite is None and best < 0:
            return -1 - changes
        dirty[i] = False
        gains = best != x[i]
        if infinite is None and ties != KEEP and (gains or ties == SPREAD):
            best = spread_label(g, x, visited, best, cost)
        if best == x[i]:
            continue
        x[i] = best
        changes += gains
        if ties == AWAIT:
            ties = SPREAD
        wake(g, visited, dirty)
    return changes


# ------------------------------------------------------------------ label costs

# A set of labels is paid for while a variable uses it. A variable is removed from the counts of
# users before its labels are compared, so that labels of sets without another user cost more.


@inlined
def leave(p: LabelCosts, used: IntArray, label: int) -> None:
    """Remove a variable with this label from the counts."""
    if p.costs.size:
        for q in range(p.of_ptr[label], p.of_ptr[label + 1]):
            used[p.of_set[q]] -= 1


@inlined
def enter(p: LabelCosts, used: IntArray, label: int) -> None:
    """Count a variable with this label."""
    if p.costs.size:
        for q in range(p.of_ptr[label], p.of_ptr[label + 1]):
            used[p.of_set[q]] += 1


@inlined
def add_prices(p: LabelCosts, used: IntArray, k: int, cost: FloatArray) -> float:
    """Add the costs of unused sets to those of `k` labels; return the scale of rounding."""
    scale = 0.0
    for s in range(p.costs.size):
        if used[s] == 0:
            price = p.costs[s]
            scale += price
            for q in range(p.ptr[s], p.ptr[s + 1]):
                if p.labels[q] < k:
                    cost[p.labels[q]] += price
    return scale


@kernel
def count_users(p: LabelCosts, x: IntArray) -> IntArray:
    """Return the number of variables that use each set, shape (s,)."""
    used = np.zeros(p.costs.size, dtype=np.int64)
    for i in range(x.size):
        enter(p, used, x[i])
    return used


@lean_kernel
def label_cost_sweep(
    g: GraphArrays,
    p: LabelCosts,
    x: IntArray,
    used: IntArray,
    order: IntArray,
    dirty: npt.NDArray[np.bool_],
    cost: FloatArray,
    infinite: IntArray,
) -> int:
    """Move each dirty variable to its best label, in place, label costs included."""
    # A variable is also dirty if a set has come into use, or has a single user left, since its last
    # visit: then a label has become cheaper for it.
    changes = 0
    for i in order:
        if not dirty[i]:
            continue
        dirty[i] = False
        k = g.cardinalities[i]
        current = x[i]
        scale = local_costs(g, x, i, cost, infinite)
        leave(p, used, current)
        scale += add_prices(p, used, k, cost)
        best = cheapest(k, current, scale, cost, infinite)
        if best != current:
            others = False
            for q in range(p.of_ptr[current], p.of_ptr[current + 1]):
                others = others or used[p.of_set[q]] == 1
            for q in range(p.of_ptr[best], p.of_ptr[best + 1]):
                others = others or used[p.of_set[q]] == 0
            if others:
                for j in range(x.size):
                    dirty[j] = True
                dirty[i] = False
            x[i] = best
            changes += 1
            wake(g, i, dirty)
        enter(p, used, best)
    return changes


# ------------------------------------------------------------------ descents


class CoordinateDescent:
    """Sweeps over a graph from a labelling, label costs included, with their scratch arrays.

    Infinite terms are counted from the first sweep that needs the counts, which is the first one
    for graphs with factors or infinite pairwise costs.
    """

    def __init__(self, graph: FactorGraph, x: IntArray) -> None:
        g = graph.arrays
        width = int(g.cardinalities.max(initial=1))
        self.cost = np.empty(width)
        self.infinite = np.empty(width, dtype=np.int64)
        self._g, self._prices = g, graph.label_costs
        self._used = count_users(self._prices, x) if graph.n_label_costs else None
        hard = np.isinf(g.weights).any() or np.isinf(g.pairwise).any()
        self._counts = bool(g.tables.size > 0 or hard)

    def sweep(self, x: IntArray, order: IntArray, dirty: npt.NDArray[np.bool_], ties: int) -> int:
        """Make an `icm_sweep` in place and return the number of changes that gain."""
        if self._used is not None:
            scratch = dirty, self.cost, self.infinite
            return int(label_cost_sweep(self._g, self._prices, x, self._used, order, *scratch))
        infinite = self.infinite if self._counts else None
        changes = int(icm_sweep(self._g, x, order, dirty, self.cost, infinite, ties))
        if changes >= 0:
            return changes
        # A variable has no finite label, or its costs add up to infinity.
        self._counts = True
        return -1 - changes + self.sweep(x, order, dirty, ties)


def descend(graph: FactorGraph, x: IntArray, order: IntArray, max_sweeps: int) -> int:
    """Sweep in a fixed order until no change improves, in place; return the number of sweeps."""
    # Labels spread from the start if the previous sweep improved the energy.
    descent = CoordinateDescent(graph, x)
    dirty = np.ones(x.size, dtype=np.bool_)
    gained = 0
    for done in range(max_sweeps):
        gained = descent.sweep(x, order, dirty, SPREAD if gained else AWAIT)
        if gained == 0 and not dirty.any():
            return done + 1
    return max_sweeps
