"""Decoding of belief-propagation messages: labelling, marginals, partition function."""

from __future__ import annotations

import numpy as np

from inference_lab._numba import inlined, lean_kernel
from inference_lab.algorithms.belief_propagation.schedules import collect
from inference_lab.graph.arrays import FloatArray, GraphArrays, Int32Array, IntArray
from inference_lab.kernels.bp_updates import (
    General,
    Network,
    Scratch,
    least_label,
    take_out,
)
from inference_lab.kernels.factor_messages import factor_message, min_marginals
from inference_lab.kernels.messages import (
    add_counted,
    half_cost,
    least,
    sum_product_message,
)


@lean_kernel
def decode(
    net: Network,
    g: GraphArrays,
    half: Int32Array,
    general: General | None,
    messages: FloatArray,
    x: IntArray,
    work: Scratch,
) -> None:
    """Assign the label of least belief to each variable in order, given the labels before it."""
    # The cost of a decoded neighbour's label replaces its message, so that ties are broken
    # consistently: with converged min-sum messages on a forest the result is optimal. Violated hard
    # terms count first. `x` starts as -1 (no label); messages to the factors are overwritten with
    # decisions. ``half`` (2m,) is the half-edge at each adjacency position of the network.
    infinite = None if general is None else general.infinite
    for i in range(x.size):
        k = net.cardinalities[i]
        for a in range(k):
            work.belief[a] = net.unary[net.unary_ptr[i] + a]
        if general is not None:
            general.infinite[:k] = 0
        for q in range(net.adj_ptr[i], net.adj_ptr[i + 1]):
            b = x[net.arcs[q]["other"]]
            if b < 0:
                for a in range(k):
                    work.belief[a] += messages[net.arcs[q]["at"] + a]
                continue
            for a in range(k):
                work.new[a] = half_cost(g, half[q], a, b)
            add_counted(k, work.new, work.belief, infinite)
        best = 0
        if general is not None:
            for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
                slot = g.inc_slot[p]
                min_marginals(
                    g, slot, general.to_factor, general.slot_ptr, work.new, general.digits
                )
                add_counted(k, work.new, work.belief, infinite)
            for a in range(1, k):
                more = general.infinite[a] - general.infinite[best]
                if work.belief[best] == np.inf or (
                    work.belief[a] < np.inf
                    and (more < 0 or (more == 0 and work.belief[a] < work.belief[best]))
                ):
                    best = a
            for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
                start = general.slot_ptr[g.inc_slot[p]]
                for a in range(k):
                    general.to_factor[start + a] = 0.0 if a == best else np.inf
        else:
            best = least_label(k, work.belief)
        x[i] = best


@inlined
def _log_sum(values: FloatArray, k: int, temperature: float) -> float:
    """Return ``log sum_a exp(-values[a] / T)``."""
    best = least(k, values)
    if np.isinf(best):
        return -np.inf
    total = 0.0
    for a in range(k):
        total += np.exp((best - values[a]) / temperature)
    return float(np.log(total) - best / temperature)


@lean_kernel
def _log_partition_of_terms(
    net: Network,
    general: General,
    messages: FloatArray,
    beliefs: FloatArray,
    cavities: FloatArray,
    temperature: float,
    work: Scratch,
) -> float:
    """Return the sum of the log-normalisers of the beliefs of all edges and factors."""
    g: GraphArrays = general.g
    total = 0.0
    for i in range(net.cardinalities.size):
        k, start = net.cardinalities[i], net.unary_ptr[i]
        for p in range(net.adj_ptr[i], net.adj_ptr[i + 1]):
            h = g.adj_half[p]
            if h & 1 == 1:
                continue
            # The message of the edge to its other end, closed with that end's cavity.
            at = np.uint64(net.arcs[p]["at"])
            take_out(k, beliefs[start : start + k], messages, at, work.cavity)
            sum_product_message(g, h ^ 1, temperature, work.cavity, work.new)
            j = g.adj_var[p]
            kj, other = net.cardinalities[j], net.unary_ptr[j]
            to = np.uint64(net.arcs[p]["to"])
            take_out(kj, beliefs[other : other + kj], messages, to, work.cavity)
            for b in range(kj):
                work.new[b] += work.cavity[b]
            total += _log_sum(work.new, kj, temperature)
        for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
            at_slot = general.slot_ptr[g.inc_slot[p]]
            for a in range(k):
                cavities[at_slot + a] = beliefs[start + a] - general.from_factor[at_slot + a]
    for f in range(g.factor_ptr.size - 1):
        slot = g.factor_ptr[f]
        factor_message(g, slot, temperature, cavities, general.slot_ptr, work.new, general.digits)
        k = net.cardinalities[g.scopes[slot]]
        for a in range(k):
            work.new[a] += cavities[general.slot_ptr[slot] + a]
        total += _log_sum(work.new, k, temperature)
    return total


def bethe_marginals(
    net: Network, general: General, messages: FloatArray, temperature: float, work: Scratch
) -> tuple[FloatArray, float]:
    """Return the marginals, flat like the unaries, and the Bethe log-partition."""
    # ``log Z = sum_f log Z_f + sum_i (1 - degree_i) log Z_i`` with ``Z_i`` and ``Z_f`` the
    # normalisers of the beliefs; exact on forests at convergence (Yedidia et al. 2005, sec. V).
    beliefs = np.empty_like(net.unary)
    if beliefs.size == 0:
        return beliefs, 0.0
    collect(net, general, (messages, beliefs), np.empty(net.cardinalities.size, np.int64), work)
    # The rows of the variables, and their places in the order of visits.
    order = np.argsort(net.unary_ptr)
    rows, sizes = net.unary_ptr[order], net.cardinalities[order]
    lowest = np.minimum.reduceat(beliefs, rows)
    # Weights are relative to the best label, so that costs far above the temperature cancel before
    # rounding.
    with np.errstate(over="ignore"):  # then the weight is 0
        marginals = np.exp((np.repeat(lowest, sizes) - beliefs) / temperature)
    norm = np.add.reduceat(marginals, rows)
    marginals /= np.repeat(norm, sizes)
    degrees = np.diff(net.adj_ptr) + np.diff(general.g.inc_ptr)
    logs = np.empty(order.size)
    logs[order] = np.log(norm) - lowest / temperature
    log_z = float(((1 - degrees) * logs).sum())
    cavities = np.empty_like(general.from_factor)
    return marginals, log_z + _log_partition_of_terms(
        net, general, messages, beliefs, cavities, temperature, work
    )
