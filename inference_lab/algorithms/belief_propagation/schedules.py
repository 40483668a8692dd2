"""Schedules of message updates: variables in turn, or along the chains of a grid."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from inference_lab._numba import lean_kernel
from inference_lab.graph.arrays import FloatArray, IntArray
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
from inference_lab.kernels.messages import greatest

#: Directions of `sequential_sweep`: down the order or up.
DOWN, UP = 0, 1


class Part(NamedTuple):
    """Direction, up or down, and the range of terms from `first` to before `last`."""

    direction: int
    first: int
    last: int


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


class Trees(NamedTuple):
    """Pairwise terms, sorted into groups that are forests."""

    # In a group, each variable has a term with at most one earlier variable, its parent there. The
    # terms of a tree are in the order of their later variables. Messages away from the root are
    # passed in this order, messages towards it in reverse.

    #: (m,): the adjacency position at the earlier variable of each term.
    away: IntArray
    #: (m,): the adjacency position at its later variable.
    back: IntArray


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
    part: Part,
    news: News,
    state: tuple[FloatArray, FloatArray],
    work: Scratch,
) -> int:
    """Update the messages along trees in one direction; return the number of updates."""
    # From the roots to the leaves if the part goes up, otherwise from the leaves to the roots. A
    # message is skipped if the changes that arrived at its sender since it was sent are within the
    # tolerance. `state` has the messages and the beliefs, which are kept up to date.
    messages, beliefs = state
    k = net.cardinalities[0]
    size = k
    largest = 0.0
    renewed = 0
    for t in range(part.last - part.first):
        if part.direction == UP:
            q, back = trees.away[part.first + t], trees.back[part.first + t]
        else:
            q, back = trees.back[part.last - 1 - t], trees.away[part.last - 1 - t]
        p = np.uint64(q)
        i = np.uint64(net.arcs[np.uint64(back)]["other"])
        j = np.uint64(net.arcs[p]["other"])
        if not news.arrived[i] - news.sent[p] > rule.tolerance:
            continue
        renewed += 1
        if general is not None:
            k = net.cardinalities[i]
            size = net.cardinalities[j]
        own, other = net.unary_ptr[i], np.uint64(net.unary_ptr[j])
        to = np.uint64(net.arcs[p]["to"])
        for b in range(size):
            a = np.uint64(b)
            beliefs[other + a] -= messages[to + a]
        here = Scratch(beliefs[own : own + k], work.cavity, work.new, work.change)
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
