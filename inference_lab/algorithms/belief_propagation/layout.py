"""Memory layout of messages, in which sweeps read and write a few streams."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from inference_lab.algorithms.belief_propagation.schedules import Trees
from inference_lab.graph.arrays import GraphArrays, IntArray, starts_of
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.kernels.bp_updates import Arcs, General, Scratch
from inference_lab.kernels.messages import (
    ATTRACTIVE,
    GENERAL,
    LINEAR,
    Terms,
    aligned_zeros,
    slot_ptr,
)

#: Costs above this many temperatures get the general update, because their exponentials underflow.
_STEEPEST = 600.0
#: Most directions of the terms of a grid, as in a picture with eight neighbours per pixel.
_MOST_DIRECTIONS = 4
#: Fewest variables of a grid, because fewer look like a grid by chance.
_FEWEST = 16


def renumber(g: GraphArrays, order: IntArray) -> tuple[GraphArrays, IntArray]:
    """Return the arrays with reordered variables, and the previous index of each unary entry."""
    # Data that are visited in succession are then contiguous in memory.
    rank = np.empty(order.size, dtype=np.int32)
    rank[order] = np.arange(order.size, dtype=np.int32)
    unary_ptr, adj_ptr, inc_ptr = (_bounds(p, order) for p in (g.unary_ptr, g.adj_ptr, g.inc_ptr))
    # Shift of each variable's range in the adjacency.
    shift = np.empty(order.size, dtype=np.int32)
    shift[order] = adj_ptr[:-1] - g.adj_ptr[order]
    entries = _gather(g.unary_ptr, order)
    positions = _gather(g.adj_ptr, order)
    others = g.adj_var[positions]
    changed = g._replace(
        cardinalities=g.cardinalities[order],
        unary_ptr=unary_ptr,
        unary=g.unary[entries],
        edges=rank[g.edges],
        adj_ptr=adj_ptr,
        adj_half=g.adj_half[positions],
        adj_var=rank[others],
        adj_reverse=g.adj_reverse[positions] + shift[others],
        scopes=rank[g.scopes],
        inc_ptr=inc_ptr,
        inc_slot=g.inc_slot[_gather(g.inc_ptr, order)],
    ).read_only()
    return changed, entries


def _bounds(ptr: IntArray, order: IntArray) -> IntArray:
    """Return the starts of reordered blocks, followed by the end."""
    return starts_of(np.diff(ptr)[order])


def _gather(ptr: IntArray, rows: IntArray) -> IntArray:
    """Return the indices of the entries of some blocks, one block after the other."""
    sizes = ptr[rows + 1] - ptr[rows]
    ends = np.cumsum(sizes)
    return np.repeat(ptr[rows] - ends + sizes, sizes) + np.arange(sizes.sum())


def message_starts(g: GraphArrays) -> IntArray:
    """Return the start of the incoming message at each adjacency position, shape (2m,)."""
    # The first incoming messages of all variables are contiguous, then the second ones, and so on.
    # On a grid, a sweep then reads and writes a few streams.
    degrees = np.diff(g.adj_ptr)
    place = np.arange(g.adj_half.size) - np.repeat(g.adj_ptr[:-1], degrees)
    # Small integers are sorted in linear time.
    order = np.argsort(place.astype(np.min_scalar_type(degrees.max(initial=0))), kind="stable")
    start = np.empty(place.size, dtype=np.int64)
    start[order] = starts_of(np.repeat(g.cardinalities, degrees)[order])[:-1]
    return start


def make_arcs(g: GraphArrays, start: IntArray, temperature: float, terms: Terms) -> Arcs:
    """Collect the data for sending each message, see `Network`."""
    size = np.uint32 if (g.cardinalities * np.diff(g.adj_ptr)).sum() < 1 << 32 else np.uint64
    fields = [("at", size), ("to", size), ("other", np.uint32), ("way", np.uint32)]
    arcs = np.empty(start.size, dtype=[*fields, ("rise", np.float64), ("parameter", np.float64)])
    way, parameter = np.where(np.isinf(terms.rise), GENERAL, terms.way), terms.truncation
    # Messages between variables of a single label are constant, whatever the cost.
    if g.cardinalities.min(initial=1) == 1:
        way = np.where(g.cardinalities[g.edges].max(axis=1, initial=1) == 1, ATTRACTIVE, way)
    if temperature > 0.0:
        way = np.where((way == LINEAR) | (terms.rise > _STEEPEST * temperature), GENERAL, way)
        with np.errstate(over="ignore"):  # costs that overflow get the general update
            parameter = np.exp(-terms.rise / temperature)

    edge = g.adj_half >> 1
    arcs["at"] = start
    arcs["to"] = start[g.adj_reverse]
    arcs["other"] = g.adj_var
    arcs["way"] = way[edge]
    arcs["rise"] = terms.rise[edge]
    arcs["parameter"] = parameter[edge]
    return arcs


def make_general(graph: FactorGraph, g: GraphArrays) -> General:
    """Return zero messages of factors; messages to factors are infinite at forbidden labels."""
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


def make_scratch(graph: FactorGraph) -> Scratch:
    """Allocate scratch arrays for a graph."""
    width = int(graph.cardinalities.max(initial=1))
    return Scratch(*(aligned_zeros(width) for _ in Scratch._fields))


def few_directions(graph: FactorGraph) -> bool:
    """Return whether terms join indices at four distances at most, as in a picture."""
    # Terms of one distance form chains on any graph, such as a path with a chord, so correctness
    # does not depend on this test.
    if graph.n_factors or graph.n_edges == 0 or graph.n_variables < _FEWEST:
        return False
    apart = np.abs(graph.edges[:, 1] - graph.edges[:, 0])
    # Most other graphs fail within a few terms.
    if np.unique(apart[:1000]).size > _MOST_DIRECTIONS:
        return False
    earlier = int(np.bincount(graph.edges.max(axis=1)).max())
    return np.unique(apart).size <= min(_MOST_DIRECTIONS, earlier)


def make_trees(g: GraphArrays) -> tuple[Trees, list[tuple[int, int]]]:
    """Sort the pairwise terms of a grid by their directions; return the terms and the groups."""
    # Rows come first, then columns. Terms of one direction form disjoint chains.
    owner = np.repeat(np.arange(g.cardinalities.size), np.diff(g.adj_ptr))
    back = np.flatnonzero(g.adj_var < owner)
    child, parent = owner[back], g.adj_var[back].astype(np.int64)
    group = np.unique(child - parent, return_inverse=True)[1]
    order = np.argsort(group, kind="stable")
    bounds = starts_of(np.bincount(group))
    back = back[order]
    return Trees(g.adj_reverse[back].astype(np.int64), back), list(pairwise(bounds.tolist()))
