"""Messages in memory, and sweeps over them: variables in turn, or along the chains of a grid."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from inference_lab._numba import lean_kernel
from inference_lab.algorithms.presolve import n_entries
from inference_lab.graph.arrays import (
    POTTS,
    FloatArray,
    GraphArrays,
    Int32Array,
    IntArray,
    blocks,
    freeze,
    starts_of,
)
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.kernels.bp_updates import (
    General,
    MessageRule,
    Network,
    Scratch,
    add_up,
    least_label,
    pull_from_factors,
    relative_change,
    renew,
    send_to_factor,
)
from inference_lab.kernels.messages import (
    ATTRACTIVE,
    GENERAL,
    LINEAR,
    greatest,
    make_terms,
    slot_ptr,
)

#: Directions of sweeps: down the order or up.
DOWN, UP = 0, 1
#: Costs above this many temperatures get the general update, because their exponentials underflow.
_STEEPEST = 600.0
#: Most directions of the terms of a grid, as in a picture with eight neighbours per pixel.
_MOST_DIRECTIONS = 4
#: Fewest variables of a grid, because fewer look like a grid by chance.
_FEWEST = 16


_Scalar = TypeVar("_Scalar", bound=np.generic)


class Trees(NamedTuple):
    """Pairwise terms, sorted into groups that are forests."""

    # In a group, each variable has a term with at most one earlier variable, its parent there. The
    # terms of a tree are in the order of their later variables. Messages away from the root are
    # passed in this order, messages towards it in reverse.

    #: (m,) int32: the adjacency position at the earlier variable of each term.
    away: Int32Array
    #: (m,) int32: the adjacency position at its later variable.
    back: Int32Array


def renumber(g: GraphArrays, order: IntArray) -> GraphArrays:
    """Return the arrays with reordered variables; the unaries stay, with starts (n,)."""
    # Data that are visited in succession are then contiguous in memory.
    rank = ranks_of(order)
    changed = g._replace(
        cardinalities=g.cardinalities[order],
        unary_ptr=g.unary_ptr[order],
        edges=rank[g.edges],
        adj_ptr=starts_of(np.diff(g.adj_ptr)[order]),
        adj_half=in_order(g.adj_half, g.adj_ptr, order),
        adj_var=rank[in_order(g.adj_var, g.adj_ptr, order)],
        scopes=rank[g.scopes],
        inc_ptr=starts_of(np.diff(g.inc_ptr)[order]),
        inc_slot=in_order(g.inc_slot, g.inc_ptr, order),
    )
    return changed.read_only()


def ranks_of(order: IntArray) -> Int32Array:
    """Return the place of each variable in an order, shape (n,)."""
    rank = np.empty(order.size, dtype=np.int32)
    rank[order] = np.arange(order.size, dtype=np.int32)
    return rank


def in_order(values: npt.NDArray[_Scalar], ptr: IntArray, order: IntArray) -> npt.NDArray[_Scalar]:
    """Return the values of variables, stored one variable after another, in another order."""
    starts = starts_of(np.diff(ptr)[order])
    out = np.empty(starts[-1], dtype=values.dtype)
    for part in blocks(order.size):
        out[starts[part.start] : starts[part.stop]] = values[entries_of(ptr, order[part])]
    return out


def entries_of(ptr: IntArray, rows: IntArray) -> IntArray:
    """Return the indices of the entries of some variables, one variable after the other."""
    sizes = ptr[rows + 1] - ptr[rows]
    ends = np.cumsum(sizes)
    return np.repeat(ptr[rows] - ends + sizes, sizes) + np.arange(sizes.sum())


def make_network(g: GraphArrays, order: IntArray, unary: FloatArray, temperature: float) -> Network:
    """Lay out messages for variables in an order, see `Network`; `unary` is as in the graph."""
    terms = make_terms(g)
    way, parameter = terms.way, terms.rise
    way[np.isinf(terms.rise)] = GENERAL
    # Messages between variables of a single label are constant, whatever the cost.
    if g.cardinalities.min(initial=1) == 1:
        way[g.cardinalities[g.edges].max(axis=1, initial=1) == 1] = ATTRACTIVE
    if temperature > 0.0:
        way[(way == LINEAR) | (terms.rise > _STEEPEST * temperature)] = GENERAL
        with np.errstate(over="ignore"):  # costs that overflow get the general update
            parameter = np.exp(-terms.rise / temperature)
    linear = bool((way == LINEAR).any())

    degrees = np.diff(g.adj_ptr)
    # The first incoming messages of all variables are contiguous, then the second ones, and so on.
    # On a grid, a sweep then reads and writes a few streams.
    entries = np.bincount(degrees, weights=g.cardinalities).astype(np.int64)
    levels = starts_of(entries[::-1].cumsum()[-2::-1])
    size = np.uint32 if levels[-1] < 1 << 32 else np.uint64
    fields = [("at", size), ("to", size), ("other", np.uint32), ("way", np.uint32)]
    net = Network(
        freeze(g.cardinalities[order]),
        freeze(g.unary_ptr[order]),
        freeze(unary),
        freeze(starts_of(degrees[order])),
        np.empty(g.adj_half.size, dtype=[*fields, ("parameter", np.float64)]),
        np.empty(g.adj_half.size if linear else 0),
    )
    position = np.empty(g.adj_half.size, dtype=np.int32)
    fill_arcs(g, order, ranks_of(order), way, parameter, terms.truncation, levels, position, net)
    return net


def network_bytes(graph: FactorGraph, temperature: float, chains: bool) -> int:
    """Estimate the bytes of messages, their layout and the data of sweeps at their peak."""
    n, m, labels = graph.n_variables, graph.n_edges, graph.unary_values.size
    messages = 8 * (n_entries(graph) - labels - graph.table_values.size)
    # While arcs (48 bytes an edge) are filled, the messages do not exist yet, but the terms do.
    size = 56 * n + 48 * m + max(messages, 56 * m)
    if chains:
        size += 8 * labels + 24 * m
    if temperature > 0.0 or graph.n_labels is None or (graph.edge_kinds != POTTS).any():
        # Terms in the order of visits, and truncations.
        size += 32 * n + 40 * m
    if graph.n_factors:
        size += 16 * int(graph.cardinalities[graph.factor_scopes].sum())
    if graph.has_infinite:
        size += 9 * labels
    if temperature > 0.0:
        # Beliefs, weights and marginals.
        size += 3 * 8 * labels
    return size


@lean_kernel
def fill_arcs(
    g: GraphArrays,
    order: IntArray,
    rank: Int32Array,
    way: npt.NDArray[np.uint8],
    parameter: FloatArray,
    truncation: FloatArray,
    levels: IntArray,
    position: Int32Array,
    net: Network,
) -> None:
    """Fill the records of the messages; `levels` are the starts of the first ones, and so on."""
    for t in range(order.size):
        first = g.adj_ptr[order[t]]
        for place in range(net.adj_ptr[t + 1] - net.adj_ptr[t]):
            p = net.adj_ptr[t] + place
            h = g.adj_half[first + place]
            arc = net.arcs[p]
            arc["at"] = levels[place]
            levels[place] += net.cardinalities[t]
            arc["other"] = rank[g.adj_var[first + place]]
            arc["way"] = way[h >> 1]
            arc["parameter"] = parameter[h >> 1]
            if net.truncation.size:
                net.truncation[p] = truncation[h >> 1]
            position[h] = p
    for e in range(g.kinds.size):
        one, other = net.arcs[position[2 * e]], net.arcs[position[2 * e + 1]]
        one["to"] = other["at"]
        other["to"] = one["at"]


def make_general(graph: FactorGraph, g: GraphArrays) -> General:
    """Return zero messages of factors; messages to factors are infinite at forbidden labels.

    `g` has the variables in the order of visits, see `renumber`.
    """
    ptr = slot_ptr(graph)
    entries = entries_of(graph.unary_ptr, graph.factor_scopes.astype(np.int64))
    return General(
        g=g,
        slot_ptr=ptr,
        from_factor=np.zeros(ptr[-1]),
        to_factor=np.where(np.isinf(g.unary[entries]), np.inf, 0.0),
        digits=np.empty(int(np.diff(graph.factor_ptr).max(initial=0)), np.int64),
        infinite=np.zeros(int(graph.cardinalities.max(initial=1)), np.int64),
    )


def few_directions(graph: FactorGraph) -> bool:
    """Return whether terms join indices at four distances at most, as in a picture."""
    # Terms of one distance form chains on any graph, such as a path with a chord, so correctness
    # does not depend on this test.
    if graph.n_factors or graph.n_edges == 0 or graph.n_variables < _FEWEST:
        return False
    for part in (slice(_FEWEST), slice(None)):
        # A few terms refuse most graphs without a grid.
        apart = np.abs(graph.edges[part, 1] - graph.edges[part, 0])
        if np.unique(apart).size > _MOST_DIRECTIONS:
            return False
    earlier = int(np.bincount(graph.edges.max(axis=1)).max())
    return np.unique(apart).size <= min(_MOST_DIRECTIONS, earlier)


def make_trees(g: GraphArrays) -> tuple[Trees, list[tuple[int, int]]]:
    """Sort the pairwise terms of a grid by their directions; return the terms and the groups."""
    # Rows come first, then columns. Terms of one direction form disjoint chains.
    apart = g.edges.ravel()[g.adj_half]
    apart -= g.adj_var
    back = np.flatnonzero(apart > 0).astype(np.int32)
    steps, sizes = np.unique(apart[back], return_counts=True)
    # Small integers are sorted in linear time.
    group = np.searchsorted(steps, apart[back]).astype(np.min_scalar_type(steps.size))
    del apart
    back = back[np.argsort(group, kind="stable")]
    return Trees(g.reverse_positions()[back], back), list(pairwise(starts_of(sizes).tolist()))


# ------------------------------------------------------------------ sweeps


@lean_kernel
def sequential_sweep(
    net: Network,
    general: General | None,
    temperature: float | None,
    rule: MessageRule,
    direction: int,
    messages: FloatArray,
    priority: FloatArray,
    x: IntArray,
    work: Scratch,
) -> int:
    """Update the variables whose incoming messages changed, in their order, up or down."""
    # A variable sends only to neighbours that are visited after it. The others come first on the
    # way back, and messages sent to them now would be updated before they are read.
    # ``priority[2 i + direction]`` adds up the changes that arrived at ``i`` since its last update
    # in this direction. A variable at or below the tolerance is skipped, so that late sweeps cost
    # little. Changes above the tolerance may be counted only in part.
    tolerance = rule.tolerance
    # Read once, so that values that depend only on the number of labels are computed once per
    # sweep.
    k = net.cardinalities[0]
    updated = 0
    for t in range(x.size):
        i = t if direction == UP else x.size - 1 - t
        here = np.uint64(2 * i + direction)
        if not priority[here] > tolerance:
            continue
        updated += 1
        largest = 0.0
        pulled = 0.0
        if general is not None:
            k = net.cardinalities[i]
            pulled = pull_from_factors(general, i, k, temperature, rule, work)
        add_up(net, general, i, k, messages, work.belief)
        x[i] = least_label(k, work.belief)
        for q in range(net.adj_ptr[i], net.adj_ptr[i + 1]):
            j = np.int64(net.arcs[np.uint64(q)]["other"])
            if (j > i) != (direction == UP):
                continue
            renew(net, general, q, k, temperature, rule, messages, messages, work)
            up, down = np.uint64(2 * j + UP), np.uint64(2 * j + DOWN)
            if rule.damping == 0.0 and priority[up] > tolerance and priority[down] > tolerance:
                # The receiver will be visited in any case.
                continue
            size = k
            if general is not None:
                size = net.cardinalities[np.uint64(j)]
            change = relative_change(size, rule, work)
            priority[up] += change
            priority[down] += change
            largest = max(largest, change)
        if general is not None:
            g = general.g
            for q in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
                slot = g.inc_slot[q]
                change = send_to_factor(general, slot, k, rule, work)
                largest = max(largest, change)
                f = g.slot_factor[slot]
                for s in range(g.factor_ptr[f], g.factor_ptr[f + 1]):
                    if s != slot:
                        j = np.int64(g.scopes[s])
                        up, down = np.uint64(2 * j + UP), np.uint64(2 * j + DOWN)
                        priority[up] += change
                        priority[down] += change
        # A damped message has not reached its new value yet.
        priority[here] = rule.damping * max(largest, pulled)
        if general is not None:
            priority[np.uint64(2 * i + 1 - direction)] += pulled
    return updated


class News(NamedTuple):
    """Accumulated changes of messages."""

    # ``arrived`` (n,): the sum of all changes that arrived at each variable; ``sent`` (2m,): its
    # value at the sender when the message at each adjacency position was sent; ``largest`` (1,):
    # the largest change of a message so far.

    arrived: FloatArray
    sent: FloatArray
    largest: FloatArray


@lean_kernel
def collect(
    net: Network,
    general: General | None,
    state: tuple[FloatArray, FloatArray],
    x: IntArray,
    work: Scratch,
) -> None:
    """Fill the beliefs and best labels of variables."""
    messages, beliefs = state
    k = net.cardinalities[0]
    for i in range(x.size):
        if general is not None:
            k = net.cardinalities[i]
        add_up(net, general, i, k, messages, work.belief)
        x[i] = least_label(k, work.belief)
        start = net.unary_ptr[i]
        for a in range(k):
            beliefs[start + a] = work.belief[a]


@lean_kernel
def pass_along(
    net: Network,
    general: General | None,
    temperature: float | None,
    rule: MessageRule,
    trees: Trees,
    direction: int,
    first: int,
    last: int,
    news: News,
    state: tuple[FloatArray, FloatArray],
    work: Scratch,
) -> int:
    """Update the messages along trees in one direction; return the number of updates."""
    # From the roots to the leaves if it goes up, otherwise from the leaves to the roots. A
    # message is skipped if the changes that arrived at its sender since it was sent are within the
    # tolerance. `state` has the messages and the beliefs, which are kept up to date.
    messages, beliefs = state
    k = net.cardinalities[0]
    size = k
    largest = 0.0
    renewed = 0
    for t in range(last - first):
        if direction == UP:
            q, back = trees.away[first + t], trees.back[first + t]
        else:
            q, back = trees.back[last - 1 - t], trees.away[last - 1 - t]
        p = np.uint64(q)
        i = np.uint64(net.arcs[np.uint64(back)]["other"])
        j = np.uint64(net.arcs[p]["other"])
        if not news.arrived[i] - news.sent[p] > rule.tolerance:
            continue
        renewed += 1
        if general is not None:
            k = net.cardinalities[i]
            size = net.cardinalities[j]
        entry = net.unary_ptr[i]
        other = np.uint64(net.unary_ptr[j])
        to = np.uint64(net.arcs[p]["to"])
        for b in range(size):
            a = np.uint64(b)
            beliefs[other + a] -= messages[to + a]
        here = Scratch(beliefs[entry : entry + k], work.cavity, work.new, work.change)
        renew(net, general, q, k, temperature, rule, messages, messages, here)
        for b in range(size):
            a = np.uint64(b)
            beliefs[other + a] += messages[to + a]
        # As in `relative_change`, except for damping.
        start = net.arcs[p]["to"]
        change = greatest(size, work.change)
        change /= rule.scale + max(rule.scale, greatest(size, messages[start : start + size]))
        largest = max(largest, change)
        news.arrived[j] += change
        # A damped message has not reached its new value yet.
        news.sent[p] = news.arrived[i] - rule.damping * change
    news.largest[0] = max(news.largest[0], largest)
    return renewed
