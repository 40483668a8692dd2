"""Spanning forests of a graph of pairs, and the probability that each edge appears in one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree

from inference_lab.contract import Run
from inference_lab.graph.arrays import FloatArray, Int32Array, IntArray
from inference_lab.graph.factor_graph import FactorGraph


class Forests(NamedTuple):
    """Rooted spanning forests with their probabilities."""

    #: (t, n) int32: the variables of each forest, each after its parent.
    order: Int32Array
    #: (t, n) int32: the position in its adjacency of the edge of each variable (by number) to its
    #: parent, -1 at roots.
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


def spanning_forest(graph: FactorGraph, ranked: IntArray) -> tuple[Int32Array, Int32Array]:
    """Take edges in the given order unless they close a cycle; return a row each of `Forests`."""
    n, m = graph.n_variables, graph.n_edges
    rank = np.empty(m)
    rank[ranked] = np.arange(1, m + 1)
    spanning = minimum_spanning_tree(csr_array((rank, graph.edges.T), shape=(n + 1, n + 1))).tocoo()
    # One node more is a neighbour of the first variable of each tree, so that one search from it
    # finds them all.
    _, first = np.unique(graph.components, return_index=True)
    links = np.append(spanning.row, np.full(first.size, n)), np.append(spanning.col, first)
    tree = csr_array((np.ones(links[0].size), links), shape=(n + 1, n + 1))
    order, parent = breadth_first_order(tree, n, directed=False)
    edge = ranked[spanning.data.astype(np.int64) - 1]
    # The side of each edge at which its child is.
    side = (parent[graph.edges[edge, 1]] == graph.edges[edge, 0]).astype(np.int64)
    position = np.empty(2 * m, dtype=np.int32)
    position[graph.arrays.adj_half] = np.arange(2 * m)
    up = np.full(n, -1, dtype=np.int32)
    up[graph.edges[edge, side]] = position[2 * edge + side]
    return order[1:].astype(np.int32), up


def cover(graph: FactorGraph, min_forests: int, run: Run) -> Forests | None:
    """Draw at least `min_forests` spanning forests that cover all edges; None if stopped."""
    # Each forest takes the first edges of a random queue that close no cycle, and moves them to the
    # end, so that edges are used about equally often.
    unused = np.ones(graph.n_edges, dtype=bool)
    queue = run.rng.permutation(graph.n_edges)
    orders: list[Int32Array] = []
    ups: list[Int32Array] = []
    wanted = 1 if graph.is_forest else min_forests
    while len(orders) < wanted or unused.any():
        if run.should_stop():
            return None
        order, up = spanning_forest(graph, queue)
        moved = np.zeros(graph.n_edges, dtype=bool)
        moved[_edges_of(graph, up)] = True
        unused[moved] = False
        last = moved[queue]
        queue = np.concatenate([queue[~last], queue[last]])
        orders.append(order)
        ups.append(up)
    count = len(orders)
    return Forests(np.array(orders), np.array(ups), np.full(count, 1.0 / count))


def appearance(graph: FactorGraph, forests: Forests) -> FloatArray:
    """Return the probability that each edge appears in a forest, shape (m,)."""
    rho = np.zeros(graph.n_edges)
    for up, share in zip(forests.up, forests.share, strict=True):
        rho[_edges_of(graph, up)] += share
    return np.minimum(rho, 1.0)


def _edges_of(graph: FactorGraph, up: Int32Array) -> Int32Array:
    """Return the edges of a forest."""
    return np.asarray(graph.arrays.adj_half[up[up >= 0]] >> 1)
