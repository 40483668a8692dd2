"""Loopy belief propagation: min-sum for the best labelling, sum-product for marginals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from inference_lab._numba import inlined, inlined_minimum, lean_kernel
from inference_lab.algorithms.label_cost_star import run_on_star
from inference_lab.contract import Marginals, Outcome, Run, Solver
from inference_lab.graph.arrays import FloatArray, GraphArrays, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.kernels.messages import (
    ATTRACTIVE,
    GENERAL,
    LINEAR,
    aligned_zeros,
    cost_scale,
    edge_cost,
    factor_message,
    first_label,
    greatest,
    least,
    lower_envelope,
    make_terms,
    min_sum_message,
    repulsive_message,
    slot_ptr,
    sum_product_message,
    unflatten,
)
from inference_lab.specs.settings import setting

#: One record for each adjacency position, see `make_links`.
Links: TypeAlias = "npt.NDArray[np.void]"

#: To which neighbours a variable sends: all, those before it in the order, or those after it.
_ALL, _BEFORE, _AFTER = -1, 0, 1
#: Costs of more temperatures than this underflow in a sum of exponentials, which is then avoided.
_STEEPEST = 600.0


def renumber(g: GraphArrays, order: IntArray) -> tuple[GraphArrays, IntArray]:
    """Return the arrays of a graph with its variables in another order, edges keeping theirs.

    What is visited in succession then lies side by side in memory. The second array says where
    each entry of the new unaries was.

    Complexity: O(sum of k + m + slots).
    """
    rank = np.empty(order.size, dtype=np.int32)
    rank[order] = np.arange(order.size, dtype=np.int32)
    entries, unary_ptr = _gather(g.unary_ptr, order)
    positions, adj_ptr = _gather(g.adj_ptr, order)
    slots, inc_ptr = _gather(g.inc_ptr, order)
    place = np.empty(positions.size, dtype=np.int32)
    place[positions] = np.arange(positions.size, dtype=np.int32)
    changed = g._replace(
        cardinalities=g.cardinalities[order],
        unary_ptr=unary_ptr,
        unary=g.unary[entries],
        edges=rank[g.edges],
        adj_ptr=adj_ptr,
        adj_half=g.adj_half[positions],
        adj_var=rank[g.adj_var[positions]],
        adj_reverse=place[g.adj_reverse[positions]],
        scopes=rank[g.scopes],
        inc_ptr=inc_ptr,
        inc_slot=g.inc_slot[slots],
    )
    return changed, entries


def _gather(ptr: IntArray, order: IntArray) -> tuple[IntArray, IntArray]:
    """Return the entries of blocks in another order of the blocks, and where the blocks start."""
    sizes = np.diff(ptr)[order]
    start = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes)])
    entries = np.repeat(ptr[:-1][order] - start[:-1], sizes) + np.arange(start[-1])
    return entries, start


class Messages(NamedTuple):
    """The state of message passing, flat arrays of energies.

    * ``ptr`` (2m,) and ``to_variable``: where the message that arrives at each adjacency position
      starts, and the messages;
    * ``slot_ptr`` (slots + 1,), ``from_factor`` and ``to_factor``: the messages between each
      higher-order factor and the variable at each position of its scope.
    """

    ptr: IntArray
    to_variable: FloatArray
    slot_ptr: IntArray
    from_factor: FloatArray
    to_factor: FloatArray


def start_messages(g: GraphArrays, slots: IntArray) -> Messages:
    """Return all-zero messages; `slots` says where those of higher-order factors start.

    The first messages that arrive at all variables lie side by side, then the second ones, and so
    on. On a grid, a sweep then reads and writes a few streams, although a variable sends to
    neighbours of quite different numbers.
    """
    degrees = np.diff(g.adj_ptr)
    place = np.arange(g.adj_ptr[-1]) - np.repeat(g.adj_ptr[:-1], degrees)
    # Radix sort, for integers of two bytes.
    short = degrees.max(initial=0) < 1 << 16
    layout = np.argsort(place.astype(np.uint16) if short else place, kind="stable")
    sizes = np.repeat(g.cardinalities, degrees)[layout]
    end = np.cumsum(sizes)
    ptr = np.empty(layout.size, dtype=np.int64)
    ptr[layout] = end - sizes
    return Messages(
        ptr,
        aligned_zeros(int(sizes.sum())),
        slots,
        np.zeros(slots[-1]),
        np.zeros(slots[-1]),
    )


def make_links(g: GraphArrays, ptr: IntArray, temperature: float, hard: bool) -> Links:
    """Collect what sending a message takes, side by side for each adjacency position.

    The fields of a record: where the message that arrives starts (``at``), where the one that is
    sent does (``to``), the ``other`` variable, the ``way`` of computing the message (as in
    `Terms`), and the ``rise`` and ``cap`` of the term; at T > 0 ``cap`` is ``exp(-rise / T)``.
    With infinite costs, and for costs of many temperatures, the way is the general one.
    """
    size = np.uint32 if (g.cardinalities * np.diff(g.adj_ptr)).sum() < 1 << 32 else np.uint64
    fields = [("at", size), ("to", size), ("other", np.uint32), ("way", np.uint32)]
    links = np.empty(ptr.size, dtype=[*fields, ("rise", np.float64), ("cap", np.float64)])
    terms = make_terms(g)
    way, cap = terms.way, terms.cap
    if temperature > 0.0:
        way = np.where((way == LINEAR) | (terms.rise > _STEEPEST * temperature), GENERAL, way)
        with np.errstate(over="ignore"):  # costs of so many temperatures go the general way
            cap = np.exp(-terms.rise / temperature)
    edge = g.adj_half >> 1
    links["at"] = ptr
    links["to"] = ptr[g.adj_reverse]
    links["other"] = g.adj_var
    links["way"] = GENERAL if hard else way[edge]
    links["rise"] = terms.rise[edge]
    links["cap"] = cap[edge]
    return links


class Step(NamedTuple):
    """The numbers every update needs: temperature, damping, scale of costs, tolerance, hardness."""

    temperature: float
    damping: float
    scale: float
    tolerance: float
    hard: bool


class Workspace(NamedTuple):
    """Scratch for one variable at a time.

    All are as long as the largest cardinality, but `digits`, as long as the largest arity.
    """

    finite: FloatArray
    infinite: IntArray
    cavity: FloatArray
    new: FloatArray
    change: FloatArray
    digits: IntArray


def workspace(graph: FactorGraph) -> Workspace:
    """Allocate scratch arrays for a graph."""
    width = int(graph.cardinalities.max(initial=1))
    arity = int(np.diff(graph.factor_ptr).max(initial=0))
    return Workspace(
        aligned_zeros(width),
        np.zeros(width, np.int64),
        aligned_zeros(width),
        aligned_zeros(width),
        aligned_zeros(width),
        np.empty(arity, np.int64),
    )


@inlined
def add_message(
    k: int, messages: FloatArray, start: int, hard: bool, finite: FloatArray, infinite: IntArray
) -> None:
    """Add ``messages[start : start + k]`` to a sum kept as finite part and count of infinities."""
    message = messages[start : start + k]
    if hard:
        for a in range(k):
            if np.isinf(message[a]):
                infinite[a] += 1
            else:
                finite[a] += message[a]
    else:
        for a in range(k):
            finite[a] += message[a]


@inlined
def belief(
    g: GraphArrays, i: int, k: int, msg: Messages, hard: bool, work: Workspace, plain: bool
) -> None:
    """Add up the unary and all incoming messages of variable ``i``, which has `k` labels.

    ``work.finite[a]`` gets the sum of the finite terms; ``work.infinite[a]`` the number of
    infinite ones if `hard`, which says that the graph has infinite costs, and nothing otherwise.
    If `plain`, there are no higher-order factors.
    """
    finite, messages = work.finite, msg.to_variable
    own = g.unary[g.unary_ptr[i] : g.unary_ptr[i] + k]
    p, stop = np.uint64(g.adj_ptr[i]), np.uint64(g.adj_ptr[i + 1])
    if hard:
        for b in range(k):
            finite[b] = 0.0
            work.infinite[b] = 0
        add_message(k, own, 0, hard, finite, work.infinite)
        while p < stop:
            add_message(k, messages, msg.ptr[p], hard, finite, work.infinite)
            p += np.uint64(1)
    else:
        if p + np.uint64(4) == stop:
            # All at once, as inside a grid: the sums are written once.
            one = np.uint64(msg.ptr[p])
            two = np.uint64(msg.ptr[p + np.uint64(1)])
            three = np.uint64(msg.ptr[p + np.uint64(2)])
            four = np.uint64(msg.ptr[p + np.uint64(3)])
            for b in range(k):
                a = np.uint64(b)
                total = own[a] + messages[one + a] + messages[two + a]
                finite[a] = total + messages[three + a] + messages[four + a]
            p = stop
        else:
            for b in range(k):
                finite[b] = own[b]
        while p < stop:
            one = np.uint64(msg.ptr[p])
            for b in range(k):
                a = np.uint64(b)
                finite[a] += messages[one + a]
            p += np.uint64(1)
    if plain:
        return
    for q in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
        start = msg.slot_ptr[g.inc_slot[q]]
        add_message(k, msg.from_factor, start, hard, finite, work.infinite)


@inlined
def cavity_of(
    k: int,
    finite: FloatArray,
    infinite: IntArray,
    messages: FloatArray,
    start: int | np.uint64,
    hard: bool,
    out: FloatArray,
) -> None:
    """Take one message out of a belief: ``out[a]`` is the sum of all other terms."""
    first = np.uint64(start)
    if hard:
        for a in range(k):
            value = messages[first + np.uint64(a)]
            if np.isinf(value):
                out[a] = finite[a] if infinite[a] == 1 else np.inf
            else:
                out[a] = finite[a] - value if infinite[a] == 0 else np.inf
    else:
        for a in range(k):
            out[a] = finite[a] - messages[first + np.uint64(a)]


@inlined
def least_label(k: int, hard: bool, work: Workspace) -> int:
    """Return the label of least belief; fewer infinite terms count first."""
    if not hard:
        return first_label(k, least(k, work.finite), work.finite)
    best = 0
    for a in range(1, k):
        if work.infinite[a] < work.infinite[best] or (
            work.infinite[a] == work.infinite[best] and work.finite[a] < work.finite[best]
        ):
            best = a
    return best


@inlined_minimum
def least_difference(k: int, values: FloatArray, others: FloatArray, start: np.uint64) -> float:
    """Return the smallest ``values[a] - others[start + a]``."""
    # Four chains, as in `least`.
    first = np.inf
    second = np.inf
    third = np.inf
    fourth = np.inf
    for block in range(k >> 2):
        a = np.uint64(block << 2)
        b = start + a
        first = min(first, values[a] - others[b])
        second = min(second, values[a + np.uint64(1)] - others[b + np.uint64(1)])
        third = min(third, values[a + np.uint64(2)] - others[b + np.uint64(2)])
        fourth = min(fourth, values[a + np.uint64(3)] - others[b + np.uint64(3)])
    for rest in range(k & ~3, k):
        a = np.uint64(rest)
        first = min(first, values[a] - others[start + a])
    return min(min(first, second), min(third, fourth))


# What the next functions do is the same: store the new message, damped, and note the change without
# damping. They read what a message is made of, and little that was written just before: vectors of
# one width wait for those of another to reach the cache. And they use few arrays, since compilers
# give up when they have to make sure of too many that they do not overlap.


@inlined_minimum
def store_cut(
    k: int,
    finite: FloatArray,
    messages: FloatArray,
    start: np.uint64,
    smallest: float,
    limit: float,
    target: FloatArray,
    to: np.uint64,
    damping: float,
    change: FloatArray,
) -> None:
    """Store the message ``min(finite - messages[start:] - smallest, limit)``."""
    for i in range(k):
        a = np.uint64(i)
        value = min(finite[a] - messages[start + a] - smallest, limit)
        old = target[to + a]
        change[a] = abs(value - old)
        target[to + a] = value + damping * (old - value)


@inlined_minimum
def store_lower(
    k: int,
    up: FloatArray,
    smallest: float,
    limit: float,
    target: FloatArray,
    to: np.uint64,
    damping: float,
    change: FloatArray,
) -> None:
    """Store the message ``min(up, down) - smallest``, cut to `limit`; `down` is in `change`."""
    for i in range(k):
        a = np.uint64(i)
        value = min(min(up[a], change[a]) - smallest, limit)
        old = target[to + a]
        up[a] = value
        change[a] = abs(value - old)
        target[to + a] = value + damping * (old - value)


@inlined_minimum
def store(
    k: int,
    new: FloatArray,
    smallest: float,
    target: FloatArray,
    to: np.uint64,
    damping: float,
    change: FloatArray,
) -> None:
    """Store the message ``new - smallest``."""
    for i in range(k):
        a = np.uint64(i)
        value = new[a] - smallest
        old = target[to + a]
        new[a] = value
        change[a] = abs(value - old)
        target[to + a] = value + damping * (old - value)


@inlined
def store_hard(
    k: int,
    new: FloatArray,
    smallest: float,
    target: FloatArray,
    to: np.uint64,
    damping: float,
    change: FloatArray,
) -> None:
    """Store the message ``new - smallest``, which may have infinite entries.

    They are not damped; an entry that turns infinite or finite changes by ``inf``.
    """
    shift = smallest if smallest < np.inf else 0.0
    for i in range(k):
        a = np.uint64(i)
        value = new[a] - shift
        old = target[to + a]
        new[a] = value
        if np.isinf(value) or np.isinf(old):
            change[a] = 0.0 if value == old else np.inf
            target[to + a] = value
        else:
            change[a] = abs(value - old)
            target[to + a] = value + damping * (old - value)


@inlined
def relative_change(k: int, work: Workspace, step: Step) -> float:
    """Return the change of the message ``work.new``: its largest entry's over the message's size.

    To the size, the scale of costs is added. The result is 1 where an entry turned infinite or
    finite. The change is that of the undamped message, so that small steps do not pass for
    convergence.
    """
    difference = greatest(k, work.change)
    size = step.scale
    if not step.hard:
        size = max(size, greatest(k, work.new))
    elif difference == np.inf:
        return 1.0
    else:
        for a in range(k):
            if work.new[a] < np.inf:
                size = max(size, work.new[a])
    return float(difference / (size + step.scale))


@inlined
def replace_message(
    target: FloatArray,
    start: int,
    k: int,
    smallest: float,
    damping: float,
    step: Step,
    work: Workspace,
) -> float:
    """Store ``work.new``, normalised to minimum zero and damped; return its relative change."""
    to = np.uint64(start)
    if step.hard:
        store_hard(k, work.new, smallest, target, to, damping, work.change)
    else:
        store(k, work.new, smallest, target, to, damping, work.change)
    return relative_change(k, work, step)


@inlined
def soft_potts_message(
    k: int,
    attractive: bool,
    factor: float,
    temperature: float,
    cavity: FloatArray,
    out: FloatArray,
) -> float:
    """Write the sum-product message through a Potts term, up to a constant; return the least.

    ``out[b] = -T log(q sum_a p[a] + (1 - q) p[b])`` with ``p[a] = exp(-cavity[a] / T)`` and
    ``q = exp(-rise / T)``, the `factor`, if unequal labels cost `rise` more than equal ones, and
    ``-T log(sum_{a != b} p[a] + q p[b])`` if it is the other way round. No sum is of numbers of
    different sign, but for those in which ``p[b]`` is taken from a sum that is at least 1 without
    it. All costs must be finite, and `rise` of few temperatures.

    Complexity: k exponentials and k logarithms.
    """
    best = least(k, cavity)
    total = 0.0
    for a in range(k):
        cavity[a] = np.exp((best - cavity[a]) / temperature)
        total += cavity[a]
    if attractive:
        for b in range(k):
            out[b] = -temperature * np.log(factor * total + (1.0 - factor) * cavity[b])
    else:
        # Summed without its own term, where that is nearly all.
        label = first_label(k, 1.0, cavity)
        others = 0.0
        for b in range(k):
            out[b] = -temperature * np.log(total - cavity[b] + factor * cavity[b])
            others += 0.0 if b == label else cavity[b]
        out[label] = -temperature * np.log(others + factor)
    return least(k, out)


@inlined
def pull_from_factors(g: GraphArrays, i: int, step: Step, msg: Messages, work: Workspace) -> float:
    """Renew the messages of the higher-order factors at variable ``i``; return the change."""
    change = 0.0
    k = g.cardinalities[i]
    for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
        slot = g.inc_slot[p]
        smallest = factor_message(
            g, slot, step.temperature, msg.to_factor, msg.slot_ptr, work.new, work.digits
        )
        change = max(
            change,
            replace_message(
                msg.from_factor, msg.slot_ptr[slot], k, smallest, step.damping, step, work
            ),
        )
    return change


@inlined
def wake(priority: FloatArray, direction: int, j: int | np.int64, change: float) -> None:
    """Add a change to the priority of its receiver, in both directions if they are kept apart."""
    if direction == _ALL:
        priority[np.uint64(j)] += change
    else:
        priority[np.uint64(2 * j)] += change
        priority[np.uint64(2 * j + 1)] += change


@inlined
def send(
    g: GraphArrays,
    links: Links,
    i: int,
    k: int,
    direction: int,
    step: Step,
    msg: Messages,
    target: FloatArray,
    priority: FloatArray,
    work: Workspace,
    plain: bool,
) -> float:
    """Renew the messages that variable ``i`` sends in a direction; return the largest change.

    `work` holds the belief of ``i``, which has `k` labels. Pairwise messages go to `target`
    (``msg.to_variable`` itself, or a second array in a synchronous sweep). The change of each
    message is added to the priority of its receiver. Higher-order factors are in every direction;
    if `plain`, there are none, nor messages of the general way.
    """
    temperature = step.temperature
    scale = step.scale
    largest = 0.0
    for q in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
        p = np.uint64(q)
        link = links[p]
        j = np.int64(link["other"])
        if direction != _ALL and (j > i) != (direction == _AFTER):
            continue
        way = link["way"]
        at = np.uint64(link["at"])
        to = np.uint64(link["to"])
        size = k
        limit = np.inf
        cut = way == ATTRACTIVE and temperature == 0.0
        if cut:
            # The cavity itself, cut off.
            limit = link["rise"]
            smallest = least_difference(k, work.finite, msg.to_variable, at)
            store_cut(
                k, work.finite, msg.to_variable, at, smallest, limit, target, to, step.damping,
                work.change,
            )  # fmt: skip
        else:
            cavity_of(k, work.finite, work.infinite, msg.to_variable, at, step.hard, work.cavity)
            if way == LINEAR:
                limit = link["cap"]
                smallest = lower_envelope(k, link["rise"], work.cavity, work.change, work.new)
                store_lower(k, work.new, smallest, limit, target, to, step.damping, work.change)
            else:
                if way == GENERAL and not plain:
                    h = g.adj_half[p] ^ 1
                    size = g.cardinalities[np.uint64(j)]
                    if temperature == 0.0:
                        smallest = min_sum_message(g, h, work.cavity, work.new)
                    else:
                        smallest = sum_product_message(g, h, temperature, work.cavity, work.new)
                elif temperature > 0.0:
                    smallest = soft_potts_message(
                        k, way == ATTRACTIVE, link["cap"], temperature, work.cavity, work.new
                    )
                else:
                    limit = link["rise"]
                    repulsive_message(k, limit, work.cavity, work.new)
                    smallest = 0.0
                if step.hard:
                    store_hard(size, work.new, smallest, target, to, step.damping, work.change)
                else:
                    store(size, work.new, smallest, target, to, step.damping, work.change)
        if (
            direction != _ALL
            and step.damping == 0.0
            and priority[np.uint64(2 * j)] > step.tolerance
            and priority[np.uint64(2 * j + 1)] > step.tolerance
        ):
            # The receiver is going to be visited in any case.
            continue
        change = greatest(size, work.change)
        bar = step.tolerance * scale
        if direction != _ALL and (
            change > bar + step.tolerance * max(scale, limit) or change < 1e-3 * bar
        ):
            # Above the tolerance in any case, or far below: the message's size is of no account.
            change /= scale + scale
        else:
            if cut:
                for a in range(k):
                    cavity = work.finite[a] - msg.to_variable[at + np.uint64(a)]
                    work.new[a] = min(cavity - smallest, limit)
            change = relative_change(size, work, step)
        wake(priority, direction, j, change)
        largest = max(largest, change)
    if plain:
        return largest
    for q in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
        slot = g.inc_slot[q]
        start = msg.slot_ptr[slot]
        cavity_of(k, work.finite, work.infinite, msg.from_factor, start, step.hard, work.new)
        # Damping acts on the way back from the factor; twice would be once too often.
        change = replace_message(msg.to_factor, start, k, least(k, work.new), 0.0, step, work)
        if change > 0.0:
            f = g.slot_factor[slot]
            for s in range(g.factor_ptr[f], g.factor_ptr[f + 1]):
                if s != slot:
                    wake(priority, direction, g.scopes[s], change)
        largest = max(largest, change)
    return largest


@inlined
def visit_in_turn(
    g: GraphArrays,
    links: Links,
    direction: int,
    step: Step,
    msg: Messages,
    priority: FloatArray,
    work: Workspace,
    x: IntArray,
    plain: bool,
) -> int:
    """Update the variables whose incoming messages changed, up the order (1) or down (0).

    Each sends only to the neighbours that are visited after it: the others come first on the way
    back, and what they are sent now would be renewed before they read it. Returns the number of
    updates.

    ``priority[2 i + direction]`` adds up the changes of the messages that arrived at ``i`` since
    its last update in this direction; a variable at or below the tolerance is skipped, so that late
    sweeps cost little. Changes of more than the tolerance may be counted in part only.
    """
    n = x.size
    # What follows from the number of labels alone is then computed once a sweep.
    width = g.cardinalities[0]
    # Of one bit, so that the compiler leaves out what is for all directions at once.
    direction &= 1
    updated = 0
    for t in range(n):
        i = t if direction == _AFTER else n - 1 - t
        here = np.uint64(2 * i + direction)
        if not priority[here] > step.tolerance:
            continue
        updated += 1
        pulled = 0.0
        if not plain:
            pulled = pull_from_factors(g, i, step, msg, work)
        k = width if plain else g.cardinalities[i]
        belief(g, i, k, msg, step.hard, work, plain)
        x[i] = least_label(k, step.hard, work)
        sent = send(g, links, i, k, direction, step, msg, msg.to_variable, priority, work, plain)
        # A damped message has not arrived at its new value yet.
        priority[here] = step.damping * max(sent, pulled)
        if not plain:
            priority[np.uint64(2 * i + 1 - direction)] += pulled
    return updated


@lean_kernel
def sequential_sweep(
    g: GraphArrays,
    links: Links,
    direction: int,
    step: Step,
    msg: Messages,
    priority: FloatArray,
    work: Workspace,
    x: IntArray,
) -> int:
    """Make a pass over the variables of any graph, see `visit_in_turn`."""
    return int(visit_in_turn(g, links, direction, step, msg, priority, work, x, False))


@lean_kernel
def plain_sweep(
    g: GraphArrays,
    links: Links,
    direction: int,
    step: Step,
    msg: Messages,
    priority: FloatArray,
    work: Workspace,
    x: IntArray,
) -> int:
    """Make a min-sum pass over a graph of finite Potts and truncated linear terms only.

    All variables have as many labels. The same as `sequential_sweep`, but compiled for these
    alone: half of the instructions there keep ready what all the other cases would need.
    """
    known = Step(0.0, step.damping, step.scale, step.tolerance, False)
    return int(visit_in_turn(g, links, direction, known, msg, priority, work, x, True))


@lean_kernel
def synchronous_sweep(
    g: GraphArrays,
    links: Links,
    step: Step,
    msg: Messages,
    second: FloatArray,
    priority: FloatArray,
    work: Workspace,
    x: IntArray,
) -> float:
    """Renew all messages from the last sweep's; return the largest change.

    `second` holds the last sweep's pairwise messages on return; `priority` is not used.
    """
    n = g.cardinalities.size
    largest = 0.0
    for q in range(second.size):
        second[q] = msg.to_variable[q]
    before = Messages(msg.ptr, second, msg.slot_ptr, msg.from_factor, msg.to_factor)
    for i in range(n):
        largest = max(largest, pull_from_factors(g, i, step, msg, work))
    for i in range(n):
        k = g.cardinalities[i]
        belief(g, i, k, before, step.hard, work, False)
        x[i] = least_label(k, step.hard, work)
        sent = send(g, links, i, k, _ALL, step, before, msg.to_variable, priority, work, False)
        largest = max(largest, sent)
    return largest


@inlined
def _sift_up(heap: IntArray, place: IntArray, priority: FloatArray, at: int) -> None:
    i = heap[at]
    while at > 0:
        parent = (at - 1) >> 1
        if priority[heap[parent]] >= priority[i]:
            break
        heap[at] = heap[parent]
        place[heap[at]] = at
        at = parent
    heap[at] = i
    place[i] = at


@inlined
def _sift_down(heap: IntArray, place: IntArray, priority: FloatArray, at: int) -> None:
    i = heap[at]
    n = heap.size
    while True:
        child = 2 * at + 1
        if child >= n:
            break
        if child + 1 < n and priority[heap[child + 1]] > priority[heap[child]]:
            child += 1
        if priority[heap[child]] <= priority[i]:
            break
        heap[at] = heap[child]
        place[heap[at]] = at
        at = child
    heap[at] = i
    place[i] = at


@inlined
def _raise_priority(
    j: int, pending: FloatArray, heap: IntArray, place: IntArray, priority: FloatArray
) -> None:
    """Add what is pending for one variable to its priority and mend the heap there."""
    if pending[j] > 0.0:
        priority[j] += pending[j]
        pending[j] = 0.0
        _sift_up(heap, place, priority, place[j])


@lean_kernel
def residual_updates(
    g: GraphArrays,
    links: Links,
    updates: int,
    step: Step,
    msg: Messages,
    priority: FloatArray,
    pending: FloatArray,
    heap: IntArray,
    place: IntArray,
    work: Workspace,
    x: IntArray,
) -> int:
    """Update the variable with the largest incoming change, `updates` times or until none is left.

    Returns the number of updates made; fewer than asked for means convergence. `pending` is all
    zero before and after: changes wait there, because the heap must be mended after each single
    change of a key.
    """
    for done in range(updates):
        i = heap[0]
        if priority[i] <= step.tolerance:
            return done
        pulled = pull_from_factors(g, i, step, msg, work)
        k = g.cardinalities[i]
        belief(g, i, k, msg, step.hard, work, False)
        x[i] = least_label(k, step.hard, work)
        sent = send(g, links, i, k, _ALL, step, msg, msg.to_variable, pending, work, False)
        # A damped message has not arrived at its new value yet.
        priority[i] = step.damping * max(sent, pulled)
        _sift_down(heap, place, priority, 0)
        for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
            _raise_priority(g.adj_var[p], pending, heap, place, priority)
        for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
            f = g.slot_factor[g.inc_slot[p]]
            for s in range(g.factor_ptr[f], g.factor_ptr[f + 1]):
                _raise_priority(g.scopes[s], pending, heap, place, priority)
    return updates


@lean_kernel
def decode_each(g: GraphArrays, msg: Messages, hard: bool, work: Workspace, x: IntArray) -> int:
    """Take the label of least belief at each variable.

    Returns a variable whose labels are all infinite, or -1. Such a variable proves infeasibility:
    every finite labelling gives all messages a finite entry at its labels.
    """
    hopeless = -1
    for i in range(x.size):
        k = g.cardinalities[i]
        belief(g, i, k, msg, hard, work, False)
        best = least_label(k, hard, work)
        x[i] = best
        if hard and work.infinite[best] > 0:
            hopeless = i
    return hopeless


@lean_kernel
def decode_in_order(
    g: GraphArrays,
    msg: Messages,
    to_factor: FloatArray,
    hard: bool,
    work: Workspace,
    x: IntArray,
) -> None:
    """Decode one variable after another, each given the labels already chosen.

    Messages from decoded neighbours are replaced by the cost of their label, so that ties are
    broken consistently: with converged min-sum messages on a forest the result is optimal.
    `to_factor` is a copy of the messages to the factors that is overwritten with decisions.
    """
    for i in range(x.size):
        x[i] = -1
    for i in range(x.size):
        k = g.cardinalities[i]
        for a in range(k):
            work.finite[a] = 0.0
            work.infinite[a] = 0
        add_message(k, g.unary, g.unary_ptr[i], hard, work.finite, work.infinite)
        for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
            h = g.adj_half[p]
            b = x[g.adj_var[p]]
            if b < 0:
                add_message(k, msg.to_variable, msg.ptr[p], hard, work.finite, work.infinite)
                continue
            for a in range(k):
                if h & 1 == 0:
                    work.new[a] = edge_cost(g, h >> 1, a, b)
                else:
                    work.new[a] = edge_cost(g, h >> 1, b, a)
            add_message(k, work.new, 0, hard, work.finite, work.infinite)
        for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
            factor_message(g, g.inc_slot[p], 0.0, to_factor, msg.slot_ptr, work.new, work.digits)
            add_message(k, work.new, 0, True, work.finite, work.infinite)
        best = least_label(k, True, work)
        x[i] = best
        for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
            start = msg.slot_ptr[g.inc_slot[p]]
            for a in range(k):
                to_factor[start + a] = 0.0 if a == best else np.inf


@inlined
def _log_sum(values: FloatArray, k: int, temperature: float) -> float:
    """Return ``log sum_a exp(-values[a] / T)``."""
    best = np.inf
    for a in range(k):
        best = min(best, values[a])
    if np.isinf(best):
        return -np.inf
    total = 0.0
    for a in range(k):
        total += np.exp((best - values[a]) / temperature)
    return float(np.log(total) - best / temperature)


@lean_kernel
def bethe_marginals(
    g: GraphArrays,
    temperature: float,
    msg: Messages,
    hard: bool,
    work: Workspace,
    finite: FloatArray,
    infinite: IntArray,
    cavities: FloatArray,
    marginals: FloatArray,
) -> float:
    """Fill the marginals (flat, like the unaries) and return the Bethe log-partition.

    ``log Z = sum_f log Z_f + sum_i (1 - degree_i) log Z_i`` with ``Z_i`` and ``Z_f`` the
    normalisers of the beliefs; exact on forests at convergence (Yedidia et al. 2005, sec. V).
    Scratch: `finite` and `infinite` like the unaries, `cavities` like the messages from factors.
    """
    n = g.cardinalities.size
    total = 0.0
    for i in range(n):
        k = g.cardinalities[i]
        start = g.unary_ptr[i]
        belief(g, i, k, msg, hard, work, False)
        for a in range(k):
            finite[start + a] = work.finite[a]
            infinite[start + a] = work.infinite[a] if hard else 0
            work.new[a] = np.inf if infinite[start + a] > 0 else work.finite[a]
        log_z = _log_sum(work.new, k, temperature)
        if np.isinf(log_z):
            return -np.inf
        # Weights relative to the best: costs far above the temperature cancel before rounding.
        best = np.inf
        for a in range(k):
            best = min(best, work.new[a])
        norm = 0.0
        for a in range(k):
            marginals[start + a] = np.exp((best - work.new[a]) / temperature)
            norm += marginals[start + a]
        for a in range(k):
            marginals[start + a] /= norm
        degree = g.adj_ptr[i + 1] - g.adj_ptr[i] + g.inc_ptr[i + 1] - g.inc_ptr[i]
        total += (1 - degree) * log_z
        for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
            at = msg.slot_ptr[g.inc_slot[p]]
            cavity_of(
                k, work.finite, work.infinite, msg.from_factor, at, hard, cavities[at : at + k]
            )
    for i in range(n):
        k = g.cardinalities[i]
        start = g.unary_ptr[i]
        for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
            h = g.adj_half[p]
            if h & 1 == 1:
                continue
            # Z_f of this edge: its message to the other end, closed with that end's cavity.
            j = g.adj_var[p]
            kj = g.cardinalities[j]
            cavity_of(
                k, finite[start:], infinite[start:], msg.to_variable, msg.ptr[p], hard,
                work.cavity,
            )  # fmt: skip
            sum_product_message(g, h ^ 1, temperature, work.cavity, work.new)
            cavity_of(
                kj, finite[g.unary_ptr[j] :], infinite[g.unary_ptr[j] :], msg.to_variable,
                msg.ptr[g.adj_reverse[p]], hard, work.cavity,
            )  # fmt: skip
            for b in range(kj):
                work.new[b] += work.cavity[b]
            total += _log_sum(work.new, kj, temperature)
    for f in range(g.factor_ptr.size - 1):
        slot = g.factor_ptr[f]
        k = g.cardinalities[g.scopes[slot]]
        factor_message(g, slot, temperature, cavities, msg.slot_ptr, work.new, work.digits)
        for a in range(k):
            work.new[a] += cavities[msg.slot_ptr[slot] + a]
        total += _log_sum(work.new, k, temperature)
    return total


@dataclass(frozen=True)
class LoopyBP(Solver):
    """Belief propagation on graphs with cycles (Pearl 1988; Yedidia, Freeman, Weiss 2005).

    At T = 0 messages are min-sum (max-product): ``m(b) = min_a theta(a, b) + cavity(a)``; at
    T > 0 sum-product with ``-T log sum exp`` in place of the minimum, all in the log domain and
    normalised to minimum zero.

    Parameters
    ----------
    schedule : {"sequential", "residual", "synchronous"}
        Variables in breadth-first order, there and back again, each sending to those that come
        after it, and skipped where nothing new arrived; the variable with the largest incoming
        change next (Elidan et al. 2006, by variables); or all messages at once from those of the
        last sweep.
    damping : float in [0, 1)
        Share of the old message that is kept, in the log domain; not applied on forests.
    tolerance : float
        Messages have converged when no entry changes by more than this share of its size (plus
        the mean cost).
    max_sweeps : int
        Limit on sweeps; a sweep is at most n variable updates, one way in the sequential schedule.

    Guarantees
    ----------
    On forests exact: best labelling with proof at T = 0 (also with ties), marginals and
    log-partition at T > 0. On graphs with cycles none; the best labelling seen is returned, and
    the log-partition is the Bethe approximation. An all-infinite belief proves infeasibility on
    any graph. `converged` is said only when the messages did.

    Complexity
    ----------
    A sweep costs O(k) a message for diagonal and (T = 0) truncated linear and quadratic terms,
    O(k^2) for tables, O(table size * arity^2) for higher-order factors, O(k) for each variable and
    label cost (a factor over all variables, by its star encoding); at T > 0 two to five
    exponentials or logarithms a label. Memory: one message array of ``8 * 2 m k`` bytes, two for
    the synchronous schedule; 112 bytes an edge for the layout, and a copy of the unaries.

    References
    ----------
    J. S. Yedidia, W. T. Freeman, Y. Weiss, "Constructing free-energy approximations and
    generalized belief propagation algorithms", IEEE Trans. Inf. Theory 51(7), 2005.
    G. Elidan, I. McGraw, D. Koller, "Residual belief propagation", UAI 2006.
    S. Basu, thesis, 2005, appendix A.1 (the E-step).

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> s = il.solve(g, "loopy-bp")
    >>> s.energy, s.status
    (0.5, <Status.OPTIMAL: 'optimal'>)
    >>> il.solve(g, "loopy-bp", temperature=1.0).marginals.round(3)
    array([[0.702, 0.298],
           [0.408, 0.592]])
    """

    label_costs: ClassVar[bool] = True
    start_up: ClassVar[float] = 40.0

    schedule: Literal["sequential", "residual", "synchronous"] = "sequential"
    damping: float = setting(0.0, at_least=0, below=1)
    tolerance: float = setting(1e-6, at_least=0)
    max_sweeps: int = setting(1000, at_least=1)

    def supports(self, graph: FactorGraph, temperature: float) -> str | None:
        """Every graph, every temperature."""
        return None

    def run(self, graph: FactorGraph, run: Run) -> Outcome:
        """Pass messages until they settle or the budget is spent; decode on the way."""
        if graph.n_label_costs:
            return run_on_star(self, graph, run)
        passes = Passes(self, graph, run.temperature)
        sweeps = 0
        converged = False
        while not (converged or sweeps >= self.max_sweeps or run.should_stop(sweeps)):
            converged = passes.sweep(sweeps)
            sweeps += 1
            run.offer(passes.labels())
        if passes.decode(run):
            return Outcome(infeasible=True, iterations=sweeps)
        exact = converged and graph.is_forest
        outcome = Outcome(
            converged=converged,
            iterations=sweeps,
            diagnostics={"updates": passes.updates, "last_change": passes.change},
        )
        if run.temperature > 0.0:
            outcome.marginals, outcome.log_partition = passes.marginals()
            outcome.log_partition_kind = "exact" if exact else "estimate"
        elif exact:
            run.bound(run.best_energy)
        return outcome


class Passes:
    """Messages of a run and what is needed to renew and decode them.

    ``arrays`` are those of the graph with its variables in breadth-first order; all that has an
    entry a variable is in that order.

    Parameters
    ----------
    settings : LoopyBP
    graph : FactorGraph
    temperature : float
    """

    def __init__(self, settings: LoopyBP, graph: FactorGraph, temperature: float) -> None:
        n = graph.n_variables
        self.schedule = "forest" if graph.is_forest else settings.schedule
        self.graph = graph
        self.arrays, self._entries = renumber(graph.arrays, graph.breadth_first_order)
        self.msg = start_messages(self.arrays, slot_ptr(graph))
        self._work = workspace(graph)
        self._step = Step(
            temperature,
            0.0 if self.schedule == "forest" else settings.damping,
            cost_scale(graph),
            settings.tolerance,
            graph.has_infinite,
        )
        self._links = make_links(self.arrays, self.msg.ptr, temperature, graph.has_infinite)
        plain = (
            temperature == 0.0
            and graph.n_labels is not None
            and graph.n_factors == 0
            and not (self._links["way"] == GENERAL).any()
        )
        self._pass = plain_sweep if plain else sequential_sweep
        self._x = np.zeros(n, dtype=np.int64)
        self.updates = 0
        self.change = np.inf
        self.pending = np.zeros(n)
        self.heap = np.arange(n)
        if self.schedule == "synchronous":
            self._second = np.empty_like(self.msg.to_variable)
        elif self.schedule == "residual":
            # Finite, distinct priorities: every variable is visited once first, in order.
            self.priority = np.arange(n, 0, -1, dtype=np.float64) + 1e6
            self.place = np.arange(n)
        else:
            self.priority = np.full(2 * n, np.inf)

    def sweep(self, number: int) -> bool:
        """Make one sweep; return whether the messages have converged."""
        n = self.graph.n_variables
        if n == 0:
            return True
        state = (self._work, self._x)
        common = (self.arrays, self._links)
        if self.schedule == "forest":
            # From the leaves to the roots and back: then every message is final, whatever
            # rounding would make of a test for change.
            self.priority[:] = np.inf
            direction = _BEFORE if number % 2 == 0 else _AFTER
            self.updates += self._pass(
                *common, direction, self._step, self.msg, self.priority, *state
            )
            self.change = 0.0 if number else np.inf
            return number > 0
        if self.schedule == "synchronous":
            self.updates += n
            self.change = synchronous_sweep(
                *common, self._step, self.msg, self._second, self.pending, *state
            )
        elif self.schedule == "residual":
            self.updates += residual_updates(
                *common, n, self._step, self.msg, self.priority, self.pending, self.heap,
                self.place, *state,
            )  # fmt: skip
            self.change = float(self.priority.max())
        else:
            direction = _AFTER if number % 2 == 0 else _BEFORE
            self.updates += self._pass(
                *common, direction, self._step, self.msg, self.priority, *state
            )
            self.change = float(self.priority.max())
        return bool(self.change <= self._step.tolerance)

    def labels(self) -> IntArray:
        """Return the best label of each variable when it was last updated."""
        x = np.empty_like(self._x)
        x[self.graph.breadth_first_order] = self._x
        return x

    def decode(self, run: Run) -> bool:
        """Offer the labellings that the messages suggest; return whether there can be none."""
        hard = self._step.hard
        if decode_each(self.arrays, self.msg, hard, self._work, self._x) >= 0:
            return True
        run.offer(self.labels())
        to_factor = self.msg.to_factor.copy()
        decode_in_order(self.arrays, self.msg, to_factor, hard, self._work, self._x)
        run.offer(self.labels())
        return False

    def marginals(self) -> tuple[Marginals, float]:
        """Return marginals and Bethe log-partition."""
        flat = np.empty(self.graph.unary_values.size)
        temperature = self._step.temperature
        log_z = bethe_marginals(
            self.arrays,
            temperature,
            self.msg,
            self._step.hard,
            self._work,
            np.empty_like(flat),
            np.empty(flat.size, dtype=np.int64),
            np.empty_like(self.msg.from_factor),
            flat,
        )
        ordered = np.empty_like(flat)
        ordered[self._entries] = flat
        return unflatten(self.graph, ordered), log_z - self.graph.constant / temperature
