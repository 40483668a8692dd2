"""Parts of a graph that few edges join, in which threads work at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from inference_lab.graph.arrays import Flags, Int32Array, IntArray
from inference_lab.graph.factor_graph import FactorGraph

#: So many whatever the number of threads, so that no result depends on that. Two threads search
#: four parts of Tsukuba in a sixth less time than eight, which leave more to the search of all.
_PARTS = 4
#: Fewer variables are no part of their own: sharing takes some tenths of a millisecond a move, and
#: in parts of 2,500 two threads gained 1.1 for a third more processor time.
_FEWEST = 8192
#: The largest share of the edges that may join parts.
_MOST = 0.05


class Part(NamedTuple):
    """A part of a graph as kernels take it.

    ``nodes`` int32: its variables; ``edges`` (k,) int32: those with an end in it, in the order of
    their numbers; ``owned`` (k,) uint8: 1 where the first end is in it, 2 where the second, or 3.
    """

    nodes: Int32Array
    edges: Int32Array
    owned: Flags


class Parts(NamedTuple):
    """The parts of a graph, and of the network of its variables.

    ``terms``: what each has of the graph; ``nodes``: of the network, int32 each; ``between`` int64:
    the edges that join two parts; ``rim`` int32: the nodes at their ends.
    """

    terms: Sequence[Part]
    nodes: Sequence[Int32Array]
    between: IntArray
    rim: Int32Array

    @classmethod
    def of_graph(cls, graph: FactorGraph) -> Self | None:
        """Cut the variables into parts of one size, by their numbers or breadth first.

        The way that cuts fewer edges is taken. None where parts do not pay: if they were too small,
        or too many edges joined them.
        """
        n, m = graph.n_variables, graph.n_edges
        count = min(_PARTS, n // _FEWEST)
        if count < 2 or m == 0:
            return None
        order, ends = min(
            (
                (order, _parts_along(order, count)[graph.edges])
                for order in (np.arange(n), graph.breadth_first_order)
            ),
            key=lambda way: np.count_nonzero(way[1][:, 0] != way[1][:, 1]),
        )
        between = np.flatnonzero(ends[:, 0] != ends[:, 1])
        if between.size > _MOST * m:
            return None
        own = _parts_along(order, count)
        terms = []
        for number in range(count):
            owned = (ends == number) @ np.array([1, 2], dtype=np.uint8)
            edges = np.flatnonzero(owned)
            nodes = np.flatnonzero(own == number).astype(np.int32)
            terms.append(Part(nodes, edges.astype(np.int32), owned[edges]))
        rim = np.unique(graph.edges[between]).astype(np.int32)
        return cls(terms, [part.nodes for part in terms], between, rim)

    def doubled(self, m: int) -> Self:
        """Return those of two copies side by side of a network with so many edges."""
        n = np.int32(sum(nodes.size for nodes in self.nodes))
        return self._replace(
            nodes=[np.concatenate([nodes, nodes + n]) for nodes in self.nodes],
            between=np.concatenate([self.between, self.between + m]),
            rim=np.concatenate([self.rim, self.rim + n]),
        )


def _parts_along(order: IntArray, count: int) -> Flags:
    """Return the part of each variable, (n,), if an order is cut into so many."""
    of = np.empty(order.size, dtype=np.uint8)
    of[order] = np.arange(order.size) * count // order.size
    return of
