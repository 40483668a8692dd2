"""Where the messages of a graph lie in memory, so that sweeps read and write a few streams."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from inference_lab._numba import kernel
from inference_lab.graph.arrays import GraphArrays, IntArray
from inference_lab.graph.factor_graph import Each, FactorGraph
from inference_lab.graph.terms import freeze
from inference_lab.kernels.beliefs import General, Links, Network, Scratch
from inference_lab.kernels.messages import (
    ATTRACTIVE,
    GENERAL,
    LINEAR,
    Terms,
    aligned_zeros,
    slot_ptr,
)

#: Costs of more temperatures than this underflow in a sum of exponentials, which is then avoided.
_STEEPEST = 600.0
#: Variables, terms or messages in a block that threads share, see `_blocks`.
_BLOCK = 1 << 17


def renumber(g: GraphArrays, order: IntArray, each: Each = map) -> tuple[GraphArrays, IntArray]:
    """Return the arrays of a graph with its variables in another order, edges keeping theirs.

    What is visited in succession then lies side by side in memory. The second array says where
    each entry of the new unaries was. `each` block of variables and edges may be done at once.

    Complexity: O(sum of k + m + slots).
    """
    rank = np.empty(order.size, dtype=np.int32)
    rank[order] = np.arange(order.size, dtype=np.int32)
    unary_ptr, adj_ptr, inc_ptr = (_bounds(p, order) for p in (g.unary_ptr, g.adj_ptr, g.inc_ptr))
    # How far the stretch of each variable in the adjacency moves.
    shift = np.empty(order.size, dtype=np.int32)
    shift[order] = adj_ptr[:-1] - g.adj_ptr[order]
    entries, unary = np.empty(unary_ptr[-1], dtype=np.int64), np.empty(unary_ptr[-1])
    half, var, reverse = np.empty((3, adj_ptr[-1]), dtype=np.int32)
    edges = np.empty_like(g.edges)

    def fill(block: slice) -> None:
        rows = order[block]
        stretch = slice(*unary_ptr[[block.start, block.stop]])
        entries[stretch] = _gather(g.unary_ptr, rows)
        unary[stretch] = g.unary[entries[stretch]]
        stretch = slice(*adj_ptr[[block.start, block.stop]])
        positions = _gather(g.adj_ptr, rows)
        half[stretch] = g.adj_half[positions]
        others = g.adj_var[positions]
        var[stretch] = rank[others]
        reverse[stretch] = g.adj_reverse[positions] + shift[others]

    def rename(block: slice) -> None:
        edges[block] = rank[g.edges[block]]

    for do, size in ((fill, order.size), (rename, len(edges))):
        list(each(do, _blocks(size, each)))
    changed = g._replace(
        cardinalities=g.cardinalities[order],
        unary_ptr=unary_ptr,
        unary=unary,
        edges=edges,
        adj_ptr=adj_ptr,
        adj_half=half,
        adj_var=var,
        adj_reverse=reverse,
        scopes=rank[g.scopes],
        inc_ptr=inc_ptr,
        inc_slot=g.inc_slot[_gather(g.inc_ptr, order)],
    ).read_only()
    return changed, entries


def _blocks(size: int, each: Each) -> list[slice]:
    """Cut an array into blocks, unless one thread fills them: that is faster in one go."""
    step = max(1, size) if each is map else _BLOCK
    return [slice(first, min(first + step, size)) for first in range(0, size, step)]


def _bounds(ptr: IntArray, order: IntArray) -> IntArray:
    """Return where blocks start in another order, with the end behind."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(np.diff(ptr)[order])])


def _gather(ptr: IntArray, rows: IntArray) -> IntArray:
    """Return the numbers of the entries of some blocks, one block after the other."""
    sizes = ptr[rows + 1] - ptr[rows]
    ends = np.cumsum(sizes)
    return np.repeat(ptr[rows] - ends + sizes, sizes) + np.arange(sizes.sum())


@kernel
def message_starts(g: GraphArrays) -> IntArray:
    """Return where the message that arrives at each adjacency position starts, shape (2m,).

    The first messages that arrive at all variables lie side by side, then the second ones, and so
    on. On a grid, a sweep then reads and writes a few streams, although a variable sends to
    neighbours of quite different numbers.

    Complexity: O(n + m).
    """
    n = g.cardinalities.size
    most = 0
    for i in range(n):
        most = max(most, g.adj_ptr[i + 1] - g.adj_ptr[i])
    # Where the next message of each place goes: behind all of the places before.
    ahead = np.zeros(most + 1, dtype=np.int64)
    for i in range(n):
        for place in range(g.adj_ptr[i + 1] - g.adj_ptr[i]):
            ahead[place + 1] += g.cardinalities[i]
    for place in range(most):
        ahead[place + 1] += ahead[place]
    start = np.empty(g.adj_half.size, dtype=np.int64)
    for i in range(n):
        first = g.adj_ptr[i]
        for place in range(g.adj_ptr[i + 1] - first):
            start[first + place] = ahead[place]
            ahead[place] += g.cardinalities[i]
    return start


def make_links(
    g: GraphArrays, start: IntArray, temperature: float, terms: Terms, each: Each = map
) -> Links:
    """Collect what sending a message takes, see `Network`.

    For infinite costs, and for costs of many temperatures, the way is the general one. `each` block
    may be filled at once.
    """
    size = np.uint32 if (g.cardinalities * np.diff(g.adj_ptr)).sum() < 1 << 32 else np.uint64
    fields = [("at", size), ("to", size), ("other", np.uint32), ("way", np.uint32)]
    links = np.empty(start.size, dtype=[*fields, ("rise", np.float64), ("cap", np.float64)])
    way, cap = np.where(np.isinf(terms.rise), GENERAL, terms.way), terms.cap
    # A single label is told nothing, whatever it costs.
    if g.cardinalities.min(initial=1) == 1:
        way = np.where(g.cardinalities[g.edges].max(axis=1, initial=1) == 1, ATTRACTIVE, way)
    if temperature > 0.0:
        way = np.where((way == LINEAR) | (terms.rise > _STEEPEST * temperature), GENERAL, way)
        with np.errstate(over="ignore"):  # costs of so many temperatures go the general way
            cap = np.exp(-terms.rise / temperature)

    def fill(block: slice) -> None:
        edge, link = g.adj_half[block] >> 1, links[block]
        link["at"] = start[block]
        link["to"] = start[g.adj_reverse[block]]
        link["other"] = g.adj_var[block]
        link["way"] = way[edge]
        link["rise"] = terms.rise[edge]
        link["cap"] = cap[edge]

    list(each(fill, _blocks(start.size, each)))
    return links


def make_general(graph: FactorGraph, g: GraphArrays) -> General:
    """Return all-zero messages of higher-order factors; `g` are the arrays of the graph.

    Messages to the factors are infinite at labels that are forbidden.
    """
    ptr = slot_ptr(graph)
    entries = _gather(g.unary_ptr, g.scopes.astype(np.int64))
    return General(
        g=g,
        slot_ptr=ptr,
        from_factor=np.zeros(ptr[-1]),
        to_factor=np.where(np.isinf(g.unary[entries]), np.inf, 0.0),
        digits=np.empty(int(np.diff(graph.factor_ptr).max(initial=0)), np.int64),
        infinite=np.zeros(int(graph.cardinalities.max(initial=1)), np.int64),
    )


def make_scratch(graph: FactorGraph, dtype: npt.DTypeLike = np.float64) -> Scratch:
    """Allocate scratch arrays for a graph, of the type of its messages."""
    width = int(graph.cardinalities.max(initial=1))
    return Scratch(*(aligned_zeros(width, dtype) for _ in Scratch._fields))


def in_single_precision(net: Network) -> Network:
    """Return a network with its costs in single precision, unaries relative to their least.

    Each variable must have a finite one. Kernels that are given such a network, and messages and
    scratch of its kind, do all their arithmetic on labels in single precision.
    """
    least = np.minimum.reduceat(net.unary, net.unary_ptr[:-1])
    unary = (net.unary - np.repeat(least, net.cardinalities)).astype(np.float32)
    kinds = {name: net.links.dtype[name] for name in net.links.dtype.names or ()}
    fields = [(name, np.float32 if kind == np.float64 else kind) for name, kind in kinds.items()]
    return net._replace(unary=freeze(unary), links=net.links.astype(fields))
