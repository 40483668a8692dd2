"""Spanning forests of a graph, and the probability that each term appears in one.

Terms are edges and, numbered after them, factors. A set of terms is a forest if the bipartite graph
of its terms and their variables has no cycle.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from inference_lab._numba import inlined, kernel
from inference_lab.contract import Run
from inference_lab.graph.arrays import FloatArray, GraphArrays, Int32Array, IntArray
from inference_lab.graph.factor_graph import FactorGraph


class Forests(NamedTuple):
    """Rooted spanning forests with their probabilities."""

    #: (t, n) int32: the variables of each forest, each after its parent, with the children through
    #: one factor in succession.
    order: Int32Array
    #: (t, n) int32: the link of each variable (by number) to its parent: the position of the edge
    #: in its adjacency, ``-2 - s`` for a factor with the variable at position ``s`` of ``scopes``,
    #: -1 at roots.
    up: Int32Array
    #: (t,): probabilities, which sum to 1.
    share: FloatArray

    def joined(self, order: Int32Array, up: Int32Array, share: float) -> Forests:
        """Return these forests and one more, which gets the probability `share`."""
        return Forests(
            np.concatenate([self.order, order[None]]),
            np.concatenate([self.up, up[None]]),
            np.append((1.0 - share) * self.share, share),
        )


@inlined
def _find(parent: IntArray, i: int) -> int:
    """Return the root of the set of ``i``, halving the path to it."""
    # ``parent`` leads from each item to the root of its set, which is its own parent.
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i


@kernel
def _spanning_forest(
    g: GraphArrays, ranked: IntArray, n_incidences: int, arity: int | None
) -> tuple[IntArray, Int32Array, Int32Array]:
    """Take terms in the given order unless they close a cycle; return the rooted forest."""
    n, m = g.cardinalities.size, g.kinds.size
    parent = np.arange(n)
    taken = np.empty(n_incidences, dtype=np.int64)
    inside = np.zeros(ranked.size, dtype=np.bool_)
    count = 0
    incidences = 0
    if arity is not None:
        roots = np.empty(arity, dtype=np.int64)
    for e in ranked:
        if incidences == n_incidences:
            break
        if e < m:
            a, b = _find(parent, g.edges[e, 0]), _find(parent, g.edges[e, 1])
            if a != b:
                parent[a] = b
                taken[count] = e
                inside[e] = True
                count += 1
                incidences += 1
        elif arity is not None:
            lo, hi = g.factor_ptr[e - m], g.factor_ptr[e - m + 1]
            apart = True
            for s in range(hi - lo):
                roots[s] = _find(parent, g.scopes[lo + s])
                for t in range(s):
                    apart &= roots[s] != roots[t]
            if apart:
                for s in range(1, hi - lo):
                    parent[roots[s]] = roots[0]
                taken[count] = e
                inside[e] = True
                count += 1
                incidences += hi - lo - 1
    order = np.empty(n, dtype=np.int32)
    up = np.full(n, -1, dtype=np.int32)
    seen = np.zeros(n, dtype=np.bool_)
    first, last = 0, 0
    for start in range(n):
        if seen[start]:
            continue
        seen[start] = True
        order[last] = start
        last += 1
        while first < last:
            i = order[first]
            first += 1
            for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
                j = g.adj_var[p]
                if inside[g.adj_half[p] >> 1] and not seen[j]:
                    seen[j] = True
                    up[j] = g.adj_reverse[p]
                    order[last] = j
                    last += 1
            if arity is not None:
                for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
                    f = g.slot_factor[g.inc_slot[p]]
                    if inside[m + f]:
                        for s in range(g.factor_ptr[f], g.factor_ptr[f + 1]):
                            j = g.scopes[s]
                            if not seen[j]:
                                seen[j] = True
                                up[j] = -2 - s
                                order[last] = j
                                last += 1
    return taken[:count], order, up


def spanning_forest(
    graph: FactorGraph, ranked: IntArray
) -> tuple[IntArray, Int32Array, Int32Array]:
    """Take terms in the given order unless they close a cycle; return them and the forest."""
    n_incidences = graph.n_variables - int(graph.components.max(initial=-1)) - 1
    arity = int(np.diff(graph.factor_ptr).max()) if graph.n_factors else None
    return _spanning_forest(graph.arrays, ranked, n_incidences, arity)


def heavy_forest(graph: FactorGraph, weights: FloatArray) -> tuple[Int32Array, Int32Array]:
    """Return a heavy spanning forest by `weights` (m + f,), as one row each of `Forests`."""
    # Without factors it is the heaviest (Kruskal). With factors it is the heavier of two: terms are
    # taken by weight, or by weight divided by the number of variables minus one.
    ranked = np.argsort(-weights, kind="stable")
    terms, order, up = spanning_forest(graph, ranked)
    if graph.n_factors:
        incidences = np.ones(weights.size)
        incidences[graph.n_edges :] = np.diff(graph.factor_ptr) - 1
        others = spanning_forest(graph, np.argsort(-weights / incidences, kind="stable"))
        if weights[others[0]].sum() > weights[terms].sum():
            _, order, up = others
    return order, up


def cover(graph: FactorGraph, least: int, run: Run) -> Forests | None:
    """Draw at least `least` spanning forests that together cover all terms; None if stopped."""
    # Each forest takes the first terms of a random queue that close no cycle, and moves them to the
    # end, so that terms are used about equally often.
    size = graph.n_edges + graph.n_factors
    unused = np.ones(size, dtype=bool)
    queue = run.rng.permutation(size)
    orders: list[Int32Array] = []
    ups: list[Int32Array] = []
    wanted = 1 if graph.is_forest else least
    while len(orders) < wanted or unused.any():
        if run.should_stop():
            return None
        taken, order, up = spanning_forest(graph, queue)
        unused[taken] = False
        moved = np.zeros(size, dtype=bool)
        moved[taken] = True
        last = moved[queue]
        queue = np.concatenate([queue[~last], queue[last]])
        orders.append(order)
        ups.append(up)
    count = len(orders)
    return Forests(np.array(orders), np.array(ups), np.full(count, 1.0 / count))


def appearance(graph: FactorGraph, forests: Forests) -> FloatArray:
    """Return the probability that each term appears in a forest, shape (m + f,)."""
    g, m = graph.arrays, graph.n_edges
    rho = np.zeros(m + graph.n_factors)
    for up, share in zip(forests.up, forests.share, strict=True):
        rho[g.adj_half[up[up >= 0]] >> 1] += share
        # Each factor counts once, independently of the number of its children.
        rho[m + np.unique(g.slot_factor[-2 - up[up < -1]])] += share
    return np.minimum(rho, 1.0)
