"""One variable of belief propagation: its belief, and the messages that it sends and receives.

All numbers are energies. Forbidden labels have an infinite unary, and nothing else is infinite.
Messages at forbidden labels carry no information and are kept finite, so that a message can be
subtracted from a belief. Arguments that a graph does not need are None and their code is not
compiled: `General` if all terms are finite Potts or truncated linear terms between variables with
equal numbers of labels, and the temperature for min-sum.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from inference_lab._numba import inlined, inlined_minimum
from inference_lab.graph.arrays import FloatArray, GraphArrays, IntArray
from inference_lab.kernels.factor_messages import factor_message
from inference_lab.kernels.messages import (
    ATTRACTIVE,
    GENERAL,
    LINEAR,
    first_label,
    greatest,
    least,
    lower_envelope,
    min_sum_message,
    repulsive_message,
    sum_product_message,
)

#: One record for each adjacency position, see `Network`.
Arcs: TypeAlias = "npt.NDArray[np.void]"


class Network(NamedTuple):
    """The arrays of a graph used by message updates.

    * ``cardinalities`` (n,) and ``adj_ptr`` (n + 1,) as in `GraphArrays`, in the order of visits;
    * ``unary``: the unaries in the order of the graph, infinite at forbidden labels, and
      ``unary_ptr`` (n,): where the ones of each variable start;
    * ``arcs`` (2m,): one record of 24 bytes per message: the offsets of the incoming message
      (``at``) and of the outgoing one (``to``), the ``other`` variable, the ``way`` of computing
      the message (as in `Terms`), and a ``parameter``: the rise of the term for min-sum,
      ``exp(-rise / T)`` at T > 0;
    * ``truncation`` (2m,): the one of truncated linear terms; empty where there are none.
    """

    cardinalities: IntArray
    unary_ptr: IntArray
    unary: FloatArray
    adj_ptr: IntArray
    arcs: Arcs
    truncation: FloatArray


class General(NamedTuple):
    """Additional arrays for terms of the general way and for higher-order factors.

    ``slot_ptr`` (slots + 1,), ``from_factor`` and ``to_factor``: the messages between each factor
    and the variable at each position of its scope. ``digits`` and ``infinite`` are scratch, as
    long as the largest arity and the largest cardinality.
    """

    g: GraphArrays
    slot_ptr: IntArray
    from_factor: FloatArray
    to_factor: FloatArray
    digits: IntArray
    infinite: IntArray


class MessageRule(NamedTuple):
    """Parameters of an update; message entries are at most `limit` (see `message_limit`)."""

    damping: float
    limit: float
    scale: float
    tolerance: float


class Scratch(NamedTuple):
    """Scratch for one variable at a time, each as long as the largest cardinality."""

    belief: FloatArray
    cavity: FloatArray
    new: FloatArray
    change: FloatArray


@inlined
def add_up(
    net: Network, general: General | None, i: int, k: int, messages: FloatArray, belief: FloatArray
) -> None:
    """Fill the belief of variable ``i`` with `k` labels: its unary plus all incoming messages."""
    unary = net.unary[net.unary_ptr[i] : net.unary_ptr[i] + k]
    for b in range(k):
        belief[b] = unary[b]
    for q in range(net.adj_ptr[i], net.adj_ptr[i + 1]):
        start = np.uint64(net.arcs[np.uint64(q)]["at"])
        for b in range(k):
            a = np.uint64(b)
            belief[a] += messages[start + a]
    if general is not None:
        for q in range(general.g.inc_ptr[i], general.g.inc_ptr[i + 1]):
            start = np.uint64(general.slot_ptr[general.g.inc_slot[q]])
            for b in range(k):
                a = np.uint64(b)
                belief[a] += general.from_factor[start + a]


@inlined
def least_label(k: int, belief: FloatArray) -> int:
    """Return the label of least belief, the first one on ties."""
    return first_label(k, least(k, belief), belief)


@inlined
def take_out(
    k: int, belief: FloatArray, messages: FloatArray, start: np.uint64, out: FloatArray
) -> None:
    """Write the cavity: the belief minus one of its incoming messages."""
    for a in range(k):
        out[a] = belief[a] - messages[start + np.uint64(a)]


# The next functions all store the new message, damped, and record the change without damping. They
# read few recently written values, because loads stall on stores of another vector width until
# those reach the cache. They use few arrays, because compilers do not vectorise when too many
# arrays have to be checked for overlap.


@inlined_minimum
def store_least(
    k: int,
    smallest: float,
    limit: float,
    one: FloatArray,
    other: FloatArray,
    target: FloatArray,
    to: np.uint64,
    damping: float,
    work: Scratch,
) -> None:
    """Store ``min(one, other) - smallest``, cut to `limit`."""
    for i in range(k):
        a = np.uint64(i)
        value = min(min(one[a], other[a]) - smallest, limit)
        old = target[to + a]
        work.new[a] = value
        work.change[a] = abs(value - old)
        target[to + a] = value + damping * (old - value)


@inlined_minimum
def store(
    k: int, smallest: float, target: FloatArray, to: np.uint64, rule: MessageRule, work: Scratch
) -> None:
    """Store the message ``new - smallest``, cut to the limit; it is 0 at forbidden labels."""
    for i in range(k):
        a = np.uint64(i)
        value = work.new[a] - smallest
        value = min(value, rule.limit) if value < np.inf else 0.0
        old = target[to + a]
        work.new[a] = value
        work.change[a] = abs(value - old)
        target[to + a] = value + rule.damping * (old - value)


@inlined
def relative_change(k: int, rule: MessageRule, work: Scratch) -> float:
    """Return the largest change of an entry of the message ``work.new``, over its size."""
    # The scale of costs is added to the size. The change of the undamped message is used, so that
    # small steps are not mistaken for convergence.
    size = max(rule.scale, greatest(k, work.new))
    return float(greatest(k, work.change) / (size + rule.scale))


@inlined
def soft_potts_message(
    k: int,
    attractive: bool,
    factor: float,
    temperature: float,
    cavity: FloatArray,
    out: FloatArray,
) -> float:
    """Write the sum-product message through a Potts term, up to a constant; return the least."""
    # ``out[b] = -T log(q sum_a p[a] + (1 - q) p[b])`` with ``p[a] = exp(-cavity[a] / T)`` and ``q =
    # exp(-rise / T)``, the `factor`, if unequal labels cost `rise` more than equal ones, and ``-T
    # log(sum_{a != b} p[a] + q p[b])`` in the opposite case. No sum has terms of different sign,
    # except where ``p[b]`` is subtracted from a sum that is at least 1 without it. The `rise` must
    # be at most a few temperatures.
    best = least(k, cavity)
    total = 0.0
    for a in range(k):
        cavity[a] = np.exp((best - cavity[a]) / temperature)
        total += cavity[a]
    if attractive:
        for b in range(k):
            out[b] = -temperature * np.log(factor * total + (1.0 - factor) * cavity[b])
    else:
        # At the best label, the sum is formed without its own term, to avoid cancellation.
        label = first_label(k, 1.0, cavity)
        others = 0.0
        for b in range(k):
            out[b] = -temperature * np.log(total - cavity[b] + factor * cavity[b])
            others += 0.0 if b == label else cavity[b]
        out[label] = -temperature * np.log(others + factor)
    return least(k, out)


@inlined
def renew(
    net: Network,
    general: General | None,
    q: int,
    k: int,
    temperature: float | None,
    rule: MessageRule,
    source: FloatArray,
    target: FloatArray,
    work: Scratch,
) -> None:
    """Update the message that a variable of `k` labels sends at one of its adjacency positions."""
    # ``work.belief`` holds its belief, the sum of the messages in `source`. The damped message goes
    # to `target`, its change before damping to ``work.change``, the undamped one to ``work.new``.
    p = np.uint64(q)
    arc = net.arcs[p]
    way = arc["way"]
    to = np.uint64(arc["to"])
    take_out(k, work.belief, source, np.uint64(arc["at"]), work.cavity)
    size = k
    smallest = 0.0
    if temperature is None:
        if way == ATTRACTIVE:
            # The message is the truncated cavity.
            low, high, limit = work.cavity, work.cavity, arc["parameter"]
            smallest = least(k, low)
            store_least(k, smallest, limit, low, high, target, to, rule.damping, work)
            return
        if way == LINEAR:
            low, high, limit = work.new, work.change, net.truncation[p]
            smallest = lower_envelope(k, arc["parameter"], work.cavity, high, low)
            store_least(k, smallest, limit, low, high, target, to, rule.damping, work)
            return
        if general is not None and way == GENERAL:
            size = net.cardinalities[np.uint64(arc["other"])]
            smallest = min_sum_message(general.g, general.g.adj_half[p] ^ 1, work.cavity, work.new)
        else:
            repulsive_message(k, arc["parameter"], work.cavity, work.new)
    elif general is not None and way == GENERAL:
        size = net.cardinalities[np.uint64(arc["other"])]
        h = general.g.adj_half[p] ^ 1
        smallest = sum_product_message(general.g, h, temperature, work.cavity, work.new)
    else:
        attractive = way == ATTRACTIVE
        smallest = soft_potts_message(
            k, attractive, arc["parameter"], temperature, work.cavity, work.new
        )
    store(size, smallest, target, to, rule, work)


@inlined
def pull_from_factors(
    general: General, i: int, k: int, temperature: float | None, rule: MessageRule, work: Scratch
) -> float:
    """Update the messages of the higher-order factors to variable ``i``; return the change."""
    change = 0.0
    for p in range(general.g.inc_ptr[i], general.g.inc_ptr[i + 1]):
        slot = general.g.inc_slot[p]
        smallest = factor_message(
            general.g,
            slot,
            temperature,
            general.to_factor,
            general.slot_ptr,
            work.new,
            general.digits,
        )
        to = np.uint64(general.slot_ptr[slot])
        store(k, smallest, general.from_factor, to, rule, work)
        change = max(change, relative_change(k, rule, work))
    return change


@inlined
def send_to_factor(general: General, slot: int, k: int, rule: MessageRule, work: Scratch) -> float:
    """Update the message of a variable to a factor, infinite if forbidden; return the change."""
    # Only the message back from the factor is damped, so that damping acts once.
    start = general.slot_ptr[slot]
    take_out(k, work.belief, general.from_factor, np.uint64(start), work.cavity)
    smallest = least(k, work.cavity)
    for a in range(k):
        value = work.cavity[a] - smallest
        old = general.to_factor[start + a]
        general.to_factor[start + a] = value
        work.new[a] = value if value < np.inf else 0.0
        work.change[a] = 0.0 if value == old else abs(value - old)
    return relative_change(k, rule, work)
