"""Visiting order of the variables, layout of messages along it, and scratch arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from inference_lab.graph.arrays import FloatArray, Int32Array, IntArray, starts_of
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
    #: (2m,) int64: the start of the message of each link's edge.
    at: IntArray
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


def make_plan(graph: FactorGraph, order: IntArray, sizes: IntArray) -> Schedule:
    """Lay out messages of the given `message_sizes` for visits in a given order."""
    n, m = graph.n_variables, graph.n_edges
    rank = np.empty(n, dtype=np.int64)
    rank[order] = np.arange(n)
    ends = rank[graph.edges]
    lower, higher = np.minimum(*ends.T), np.maximum(*ends.T)
    ahead = np.bincount(lower, minlength=n)
    behind = np.bincount(higher, minlength=n)

    # Links by rank, then ahead before behind, then nearest first: one sort key for all three.
    key = 2 * n * ends
    key += np.where(ends == higher[:, None], n, 0)
    key += (higher - lower)[:, None]
    half = np.argsort(key.ravel(), kind="stable")
    ptr = starts_of(ahead + behind)
    middle = ptr[:-1] + ahead
    # The first messages ahead of all variables are contiguous, then the second ones, and so on. On
    # a grid, both passes then read and write only a few streams.
    link = np.arange(2 * m)
    position = link - np.repeat(ptr[:-1], ahead + behind)
    forward = np.flatnonzero(position < np.repeat(ahead, ahead + behind))
    # Few variables have many links, and small integers are sorted in linear time.
    place = position[forward].astype(np.min_scalar_type(int(ahead.max(initial=0))))
    edge = half >> 1
    layout = edge[forward[np.argsort(place, kind="stable")]]
    start = np.empty(m, dtype=np.int64)
    start[layout] = starts_of(sizes[layout])[:-1]

    slots = rank[graph.factor_scopes]
    role = np.full(slots.size, MIDDLE, dtype=np.uint8)
    if graph.n_factors:
        first, factor = graph.factor_ptr[:-1], graph.arrays.slot_factor
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
        at=start[edge],
        half=(half ^ 1).astype(np.int32),
        role=role,
        slot_ptr=slot_ptr(graph),
        share=np.where(counts > 0, 1.0 / chains, 0.0),
        rest=(chains - counts) / chains,
    )


def message_sizes(graph: FactorGraph) -> IntArray:
    """Return the number of entries of the messages of each edge."""
    sizes = graph.cardinalities[graph.edges]
    largest: IntArray = np.maximum(sizes[:, 0], sizes[:, 1])
    return largest


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
