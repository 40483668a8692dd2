"""Label costs in local search: counts of the variables that use each set of labels.

A set is paid for while its count is positive. A variable is removed from the counts before its
labels are compared, so that labels of sets without another user cost more.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from inference_lab._numba import inlined, kernel, lean_kernel
from inference_lab.graph.arrays import FloatArray, GraphArrays, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.label_costs import LabelCosts
from inference_lab.kernels.descent import Descent, cheapest, descend, wake
from inference_lab.kernels.messages import local_costs


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
    """Return the label costs that one more variable with this label adds."""
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


def descend_on(graph: FactorGraph, x: IntArray, order: IntArray, max_sweeps: int) -> int:
    """Descend by single changes in a fixed order, in place, label costs included."""
    g, p = graph.arrays, graph.label_costs
    if not graph.n_label_costs:
        return descend(g, x, order, max_sweeps)
    used, scratch = count_users(p, x), Descent(g)
    dirty = np.ones(x.size, dtype=np.bool_)
    for done in range(max_sweeps):
        if priced_sweep(g, p, x, used, order, dirty, scratch.cost, scratch.infinite) == 0:
            return done + 1
    return max_sweeps
