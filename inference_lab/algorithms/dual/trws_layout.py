"""Visiting order of the variables, layout of messages along it, and scratch arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from inference_lab._numba import inlined, lean_kernel
from inference_lab.graph.arrays import FloatArray, GraphArrays, Int32Array, IntArray, starts_of
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.kernels.messages import aligned_zeros, slot_ptr

#: Role of a variable in a factor by the order of visits: neither first nor last, first, last.
MIDDLE, FIRST, LAST = 0, 1, 2


class Schedule(NamedTuple):
    """Order of visits and layout of the messages; `t` is a rank in the order."""

    #: (n,): the variable of each rank.
    order: IntArray
    #: ``ptr`` (n + 1,), ``middle`` (n,): the links of rank ``t`` are ``ptr[t] : ptr[t + 1]``, first
    #: the links to later ranks, then from ``middle[t]`` the links to earlier ones.
    ptr: IntArray
    middle: IntArray
    #: (2m,) int32, or int64 from 2^31 entries on: the start of the message of each link's edge.
    at: npt.NDArray[np.signedinteger]
    #: (2m,) int32: the half-edge at the other end.
    half: Int32Array
    #: (slots,): whether the variable at a position of a factor's scope is the first or the last of
    #: its factor in the order.
    role: npt.NDArray[np.uint8]
    #: (slots + 1,): the start of its message.
    slot_ptr: IntArray
    #: (2, n): the share of its costs that a variable gives to each continuing term, forwards (row
    #: 1) and backwards (row 0).
    share: FloatArray
    #: (2, n): the share that it keeps.
    rest: FloatArray


def make_plan(graph: FactorGraph, order: IntArray) -> Schedule:
    """Lay out the messages for visits in a given order."""
    n = graph.n_variables
    m = graph.n_edges
    g = graph.arrays
    rank = np.empty(n, dtype=np.int32)
    rank[order] = np.arange(n, dtype=np.int32)
    ptr = starts_of(np.diff(g.adj_ptr)[order])
    ahead, behind = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    half = np.empty(2 * m, dtype=np.int32)
    link_up(g, order, rank, ptr, ahead, behind, half)
    middle = ptr[:-1] + ahead
    width: Any = np.int32 if n_message_entries(graph) < 1 << 31 else np.int64
    at = np.empty(2 * m, dtype=width)
    levels = np.zeros(int(ahead.max(initial=0)) + 1, dtype=np.int64)
    place_messages(g, ptr, middle, half, levels, np.empty(m, dtype=width), at)

    slots = rank[graph.factor_scopes]
    role = np.full(slots.size, MIDDLE, dtype=np.uint8)
    if graph.n_factors:
        first = graph.factor_ptr[:-1]
        factor = graph.arrays.slot_factor
        role[slots == np.minimum.reduceat(slots, first)[factor]] = FIRST
        role[slots == np.maximum.reduceat(slots, first)[factor]] = LAST
    terms = np.bincount(slots, minlength=n)
    counts = np.empty((2, n), dtype=np.int64)
    counts[0] = behind + terms - np.bincount(slots[role == FIRST], minlength=n)
    counts[1] = ahead + terms - np.bincount(slots[role == LAST], minlength=n)
    # On trees a variable has at most one term behind; giving it everything makes the backward pass
    # dynamic programming. Elsewhere monotonic chains get equal shares (Kolmogorov 2006). A factor
    # of three variables through which a pass continues both ways does not count as an ending term
    # (Kolmogorov 2015). Otherwise hundreds of sweeps would be needed instead of five.
    ending = (ahead + behind + terms) - counts
    chains = np.maximum(counts if graph.is_forest else np.maximum(counts, ending), 1)
    return Schedule(
        order=np.ascontiguousarray(order),
        ptr=ptr,
        middle=middle,
        at=at,
        half=half,
        role=role,
        slot_ptr=slot_ptr(graph),
        share=np.where(counts > 0, 1.0 / chains, 0.0),
        rest=(chains - counts) / chains,
    )


def plan_bytes(graph: FactorGraph) -> int:
    """Estimate the bytes of messages, their layout and the terms by their kind at their peak."""
    slots = int(graph.cardinalities[graph.factor_scopes].sum())
    index_bytes = 4 if n_message_entries(graph) < 1 << 31 else 8
    # Of an edge: two links with the start of the message and the half-edge, and 25 bytes of terms.
    return (
        84 * graph.n_variables
        + (33 + 2 * index_bytes) * graph.n_edges
        + 8 * (n_message_entries(graph) + slots)
    )


@lean_kernel
def link_up(
    g: GraphArrays,
    order: IntArray,
    rank: Int32Array,
    ptr: IntArray,
    ahead: IntArray,
    behind: IntArray,
    half: Int32Array,
) -> None:
    """Fill the links of each rank, see `Schedule`, and count the links ahead and behind."""
    # Each variable enters itself with its neighbours: upwards with the earlier ones, which so get
    # their nearest link ahead first, then downwards with the later ones. This sorts all links in
    # linear time.
    for t in range(order.size):
        i = order[t]
        for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
            other = rank[g.adj_var[p]]
            if other < t:
                half[ptr[other] + ahead[other]] = g.adj_half[p]
                ahead[other] += 1
    for back in range(order.size):
        t = order.size - 1 - back
        i = order[t]
        for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
            other = rank[g.adj_var[p]]
            if other > t:
                half[ptr[other] + ahead[other] + behind[other]] = g.adj_half[p]
                behind[other] += 1


@lean_kernel
def place_messages(
    g: GraphArrays,
    ptr: IntArray,
    middle: IntArray,
    half: Int32Array,
    levels: IntArray,
    start: npt.NDArray[np.signedinteger],
    at: npt.NDArray[np.signedinteger],
) -> None:
    """Fill the starts of the messages of all edges (`start`, scratch) and links (`at`)."""
    # The first messages ahead of all variables are contiguous, then the second ones, and so on. On
    # a grid, both passes then read and write only a few streams. `levels` are zeros.
    for t in range(middle.size):
        for place in range(middle[t] - ptr[t]):
            levels[place + 1] += message_size(g, half[ptr[t] + place] >> 1)
    for place in range(1, levels.size):
        levels[place] += levels[place - 1]
    for t in range(middle.size):
        for place in range(middle[t] - ptr[t]):
            e = half[ptr[t] + place] >> 1
            start[e] = levels[place]
            levels[place] += message_size(g, e)
    for q in range(half.size):
        at[q] = start[half[q] >> 1]


@inlined
def message_size(g: GraphArrays, e: int) -> int:
    """Return the number of entries of the message of an edge."""
    return int(max(g.cardinalities[g.edges[e, 0]], g.cardinalities[g.edges[e, 1]]))


def n_message_entries(graph: FactorGraph) -> int:
    """Return the number of entries of the messages of all edges."""
    if graph.n_labels is not None:
        return graph.n_edges * graph.n_labels
    return int(np.maximum(*graph.cardinalities[graph.edges].T).sum())


class Messages(NamedTuple):
    """Messages in units of energy."""

    rows: FloatArray
    slots: FloatArray


class Workspace(NamedTuple):
    """Scratch for one variable at a time; `digits` has the length of the largest arity."""

    costs: FloatArray
    cavity: FloatArray
    new: FloatArray
    up: FloatArray
    infinite: IntArray
    digits: IntArray


def workspace(graph: FactorGraph) -> Workspace:
    """Allocate scratch arrays for a graph."""
    width = int(graph.cardinalities.max(initial=1))
    arity = int(np.diff(graph.factor_ptr).max(initial=0))
    return Workspace(
        aligned_zeros(width),
        aligned_zeros(width),
        aligned_zeros(width),
        aligned_zeros(width),
        np.empty(width, np.int64),
        np.empty(arity, np.int64),
    )
