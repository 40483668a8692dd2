"""Label costs in local search: how many variables use each set of labels, and what that costs.

A set is paid for while its count is not zero, so a variable that is taken out of the counts sees
its own choice priced right: labels of sets that nobody else uses cost more.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from inference_lab._numba import inlined, kernel, lean_kernel
from inference_lab.graph.arrays import FloatArray, GraphArrays, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.label_costs import LabelCosts
from inference_lab.kernels.descent import descend
from inference_lab.kernels.messages import local_costs

#: A move must gain more than this share of the costs it adds up, so that rounding cannot cycle.
_RELATIVE_GAIN = 1e-13


@inlined
def leave(p: LabelCosts, used: IntArray, label: int) -> None:
    """Take a variable with this label out of the counts."""
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
def opening(p: LabelCosts, used: IntArray, label: int) -> float:
    """Return what a further variable with this label makes all of them pay more."""
    price = 0.0
    if p.costs.size:
        for q in range(p.of_ptr[label], p.of_ptr[label + 1]):
            if used[p.of_set[q]] == 0:
                price += p.costs[p.of_set[q]]
    return price


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
    """Return how many variables use each set, shape (s,)."""
    used = np.zeros(p.costs.size, dtype=np.int64)
    for i in range(x.size):
        enter(p, used, x[i])
    return used


@lean_kernel
def priced_sweep(
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
    # A variable is dirty, besides, when a set has come into use, or has one user left, since its
    # last visit: a label has become cheaper for it, or leaving has.
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
        best = current
        threshold = cost[current] - _RELATIVE_GAIN * scale
        for a in range(k):
            if infinite[a] < infinite[best] or (infinite[a] == infinite[best] and cost[a] < (
                threshold if best == current else cost[best]
            )):  # fmt: skip
                best = a
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
            for q in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
                dirty[g.adj_var[q]] = True
            for q in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
                f = g.slot_factor[g.inc_slot[q]]
                for s in range(g.factor_ptr[f], g.factor_ptr[f + 1]):
                    if g.scopes[s] != i:
                        dirty[g.scopes[s]] = True
        enter(p, used, best)
    return changes


@kernel
def _priced_descend(
    g: GraphArrays, p: LabelCosts, x: IntArray, used: IntArray, order: IntArray, max_sweeps: int
) -> int:
    """Sweep in a fixed order until nothing changes, in place; return the number of sweeps."""
    width = 0
    for i in range(g.cardinalities.size):
        width = max(width, g.cardinalities[i])
    cost = np.empty(width)
    infinite = np.empty(width, dtype=np.int64)
    dirty = np.ones(g.cardinalities.size, dtype=np.bool_)
    for done in range(max_sweeps):
        if priced_sweep(g, p, x, used, order, dirty, cost, infinite) == 0:
            return done + 1
    return max_sweeps


def descend_on(graph: FactorGraph, x: IntArray, order: IntArray, max_sweeps: int) -> int:
    """Descend by single changes in a fixed order, in place, label costs included."""
    p = graph.label_costs
    if not graph.n_label_costs:
        return int(descend(graph.arrays, x, order, max_sweeps))
    return int(_priced_descend(graph.arrays, p, x, count_users(p, x), order, max_sweeps))
