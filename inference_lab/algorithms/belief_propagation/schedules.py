"""In which order messages are renewed: variables in turn, all at once, or where most changed.

Each sweep is compiled for what a graph needs, see `inference_lab.kernels.beliefs`: `general` and
`temperature` may be None.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from inference_lab._numba import inlined, lean_kernel
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.kernels.beliefs import (
    General,
    Network,
    Scratch,
    Step,
    add_up,
    cut_message,
    least_label,
    pull_from_factors,
    relative_change,
    renew,
    send_to_factor,
)
from inference_lab.kernels.heap import Heap, rise, sink
from inference_lab.kernels.messages import ATTRACTIVE, LINEAR, REPULSIVE, greatest
from inference_lab.kernels.waves import note_change

#: The directions of `sequential_sweep`: down the order or up.
DOWN, UP = 0, 1


class Part(NamedTuple):
    """Of a sweep, up the order or down: the variables from `first` to before `last`."""

    direction: int
    first: int
    last: int


@inlined
def limit_of(net: Network, q: int, temperature: float | None) -> float:
    """Return what the entries of the message sent at an adjacency position cannot exceed."""
    limit = np.inf
    if temperature is None:
        link = net.links[np.uint64(q)]
        if link["way"] == ATTRACTIVE or link["way"] == REPULSIVE:
            limit = link["rise"]
        elif link["way"] == LINEAR:
            limit = link["cap"]
    return limit


@lean_kernel
def sequential_sweep(
    net: Network,
    general: General | None,
    part: Part,
    temperature: float | None,
    step: Step,
    messages: FloatArray,
    priority: FloatArray,
    x: IntArray,
    work: Scratch,
) -> int:
    """Update the variables whose incoming messages changed, in a part of the order, up or down.

    Each sends only to the neighbours that are visited after it: the others come first on the way
    back, and what they are sent now would be renewed before they read it. Higher-order factors are
    in both directions. Fills the best labels `x`, and returns the number of updates.

    ``priority[2 i + direction]`` adds up the changes of the messages that arrived at ``i`` since
    its last update in this direction; a variable at or below the tolerance is skipped, so that late
    sweeps cost little. Changes of more than the tolerance may be counted in part only. Where other
    parts are made at once it is infinite after one of more than the tolerance (`note_change`).
    """
    tolerance, scale = step.tolerance, step.scale
    bar = tolerance * scale
    direction = part.direction
    # What follows from the number of labels alone is then computed once a sweep.
    k = net.cardinalities[0]
    updated = 0
    for t in range(part.last - part.first):
        i = part.first + t if direction == UP else part.last - 1 - t
        here = np.uint64(2 * i + direction)
        if not priority[here] > tolerance:
            continue
        updated += 1
        largest = 0.0
        pulled = 0.0
        if general is not None:
            k = net.cardinalities[i]
            pulled = pull_from_factors(general, i, k, temperature, step, work)
        add_up(net, general, i, k, messages, work.belief)
        x[i] = least_label(k, work.belief)
        for q in range(net.adj_ptr[i], net.adj_ptr[i + 1]):
            j = np.int64(net.links[np.uint64(q)]["other"])
            if (j > i) != (direction == UP):
                continue
            renew(net, general, q, k, temperature, step.damping, messages, messages, work)
            up, down = np.uint64(2 * j + UP), np.uint64(2 * j + DOWN)
            if step.damping == 0.0 and priority[up] > tolerance and priority[down] > tolerance:
                # The receiver is going to be visited in any case.
                continue
            size = k
            if general is not None:
                size = net.cardinalities[np.uint64(j)]
            change = greatest(size, work.change)
            limit = limit_of(net, q, temperature)
            if change > bar + tolerance * max(scale, limit) or change < 1e-3 * bar:
                # Above the tolerance in any case, or far below: the size is of no account.
                change /= scale + scale
            else:
                cut_message(net, q, k, temperature, messages, work)
                change = relative_change(size, step, work)
            note_change(priority, up, change, tolerance, step.at_once)
            note_change(priority, down, change, tolerance, step.at_once)
            largest = max(largest, change)
        if general is not None:
            g = general.g
            for q in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
                slot = g.inc_slot[q]
                change = send_to_factor(general, slot, k, step, work)
                largest = max(largest, change)
                f = g.slot_factor[slot]
                for s in range(g.factor_ptr[f], g.factor_ptr[f + 1]):
                    if s != slot:
                        j = np.int64(g.scopes[s])
                        up, down = np.uint64(2 * j + UP), np.uint64(2 * j + DOWN)
                        note_change(priority, up, change, tolerance, step.at_once)
                        note_change(priority, down, change, tolerance, step.at_once)
        # A damped message has not arrived at its new value yet.
        priority[here] = step.damping * max(largest, pulled)
        if general is not None:
            priority[np.uint64(2 * i + 1 - direction)] += pulled
    return updated


@inlined
def send_all(
    net: Network,
    general: General | None,
    i: int,
    temperature: float | None,
    step: Step,
    source: FloatArray,
    target: FloatArray,
    pending: FloatArray,
    work: Scratch,
) -> float:
    """Renew all messages that variable ``i`` sends; return the largest change.

    ``work.belief`` holds its belief, made of the messages in `source`. Pairwise messages go to
    `target`. The change of each message is added to what is pending for its receiver.
    """
    k = net.cardinalities[i]
    largest = 0.0
    for q in range(net.adj_ptr[i], net.adj_ptr[i + 1]):
        renew(net, general, q, k, temperature, step.damping, source, target, work)
        cut_message(net, q, k, temperature, source, work)
        j = np.uint64(net.links[np.uint64(q)]["other"])
        change = relative_change(net.cardinalities[j], step, work)
        pending[j] += change
        largest = max(largest, change)
    if general is not None:
        g = general.g
        for q in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
            slot = g.inc_slot[q]
            change = send_to_factor(general, slot, k, step, work)
            largest = max(largest, change)
            f = g.slot_factor[slot]
            for s in range(g.factor_ptr[f], g.factor_ptr[f + 1]):
                if s != slot:
                    pending[g.scopes[s]] += change
    return largest


@lean_kernel
def synchronous_sweep(
    net: Network,
    general: General | None,
    temperature: float | None,
    step: Step,
    messages: FloatArray,
    before: FloatArray,
    pending: FloatArray,
    x: IntArray,
    work: Scratch,
) -> float:
    """Renew all messages from the last sweep's; return the largest change.

    `before` holds the last sweep's pairwise messages on return; `pending` is of no use.
    """
    largest = 0.0
    for q in range(before.size):
        before[q] = messages[q]
    if general is not None:
        for i in range(x.size):
            k = net.cardinalities[i]
            largest = max(largest, pull_from_factors(general, i, k, temperature, step, work))
    for i in range(x.size):
        k = net.cardinalities[i]
        add_up(net, general, i, k, before, work.belief)
        x[i] = least_label(k, work.belief)
        sent = send_all(net, general, i, temperature, step, before, messages, pending, work)
        largest = max(largest, sent)
    return largest


@inlined
def _take_pending(j: np.int64, pending: FloatArray, heap: Heap) -> None:
    """Add what is pending for one variable to its priority and mend the heap there."""
    if pending[j] > 0.0:
        heap.key[j] -= pending[j]
        pending[j] = 0.0
        rise(heap, int(j))


@lean_kernel
def residual_sweep(
    net: Network,
    general: General | None,
    temperature: float | None,
    step: Step,
    messages: FloatArray,
    heap: Heap,
    pending: FloatArray,
    x: IntArray,
    work: Scratch,
) -> int:
    """Update the variable of largest incoming change, n times or until none is left.

    Returns the number of updates made; fewer than n means convergence. The keys of the heap are
    the changes with the sign turned. `pending` is all zero before and after: changes wait there,
    because the heap must be mended after each single change of a key.
    """
    for done in range(x.size):
        i = heap.items[0]
        if -heap.key[i] <= step.tolerance:
            return done
        k = net.cardinalities[i]
        pulled = 0.0
        if general is not None:
            pulled = pull_from_factors(general, i, k, temperature, step, work)
        add_up(net, general, i, k, messages, work.belief)
        x[i] = least_label(k, work.belief)
        sent = send_all(net, general, i, temperature, step, messages, messages, pending, work)
        # A damped message has not arrived at its new value yet.
        heap.key[i] = -step.damping * max(sent, pulled)
        sink(heap, i)
        for p in range(net.adj_ptr[i], net.adj_ptr[i + 1]):
            _take_pending(np.int64(net.links[np.uint64(p)]["other"]), pending, heap)
        if general is not None:
            g = general.g
            for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
                f = g.slot_factor[g.inc_slot[p]]
                for s in range(g.factor_ptr[f], g.factor_ptr[f + 1]):
                    _take_pending(np.int64(g.scopes[s]), pending, heap)
    return x.size
