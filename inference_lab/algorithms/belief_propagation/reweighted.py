"""Tree-reweighted sum-product: messages, bound on the partition function, marginals."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from inference_lab._numba import inlined, lean_kernel
from inference_lab.graph.arrays import FloatArray, GraphArrays, Int32Array, IntArray
from inference_lab.kernels.messages import edge_cost, sum_product_message


class State(NamedTuple):
    """State of message passing, in units of energy."""

    #: Flat: the unaries, ``+inf`` at labels that hard terms rule out.
    unary: FloatArray
    #: ``ptr`` (2m+1,), ``messages``: the incoming message at each adjacency position, times the
    #: term's appearance probability ``rho``; 0 at labels that are ruled out.
    ptr: IntArray
    messages: FloatArray
    #: (2m,) int32: the adjacency position of the other half of each edge.
    reverse: Int32Array
    #: (m,): appearance probabilities of the edges.
    rho: FloatArray
    #: Flat: sum of the unary and all incoming messages.
    belief: FloatArray


class Update(NamedTuple):
    """Parameters of the update of messages: temperature, damping, scale."""

    # Changes are measured relative to the larger of the size of a message and ``scale``.

    temperature: float
    damping: float
    scale: float


class TRWWorkspace(NamedTuple):
    """Scratch rows of the length of the largest cardinality."""

    cavity: FloatArray
    out: FloatArray
    column: FloatArray


class RootedForest(NamedTuple):
    """A rooted forest, a row of `Forests`."""

    order: Int32Array
    up: Int32Array


@lean_kernel
def _collect(g: GraphArrays, i: int, state: State) -> None:
    """Add up the belief of a variable."""
    start = g.unary_ptr[i]
    k = g.cardinalities[i]
    for a in range(k):
        state.belief[start + a] = state.unary[start + a]
    for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
        at = state.ptr[p]
        for a in range(k):
            state.belief[start + a] += state.messages[at + a]


@lean_kernel
def collect(g: GraphArrays, state: State) -> None:
    """Add up the beliefs of all variables."""
    for i in range(g.cardinalities.size):
        _collect(g, i, state)


@inlined
def _store(start: int, k: int, to: int, update: Update, state: State, out: FloatArray) -> float:
    """Store the message `out`, normalised and damped, add it to the belief; return the change."""
    minimum = np.inf
    for a in range(k):
        if state.unary[start + a] < np.inf:
            minimum = min(minimum, out[a])
    difference = 0.0
    size = update.scale
    for a in range(k):
        if state.unary[start + a] < np.inf:
            value = out[a] - minimum
            old = state.messages[to + a]
            difference = max(difference, abs(value - old))
            size = max(size, abs(value))
            value += update.damping * (old - value)
            state.messages[to + a] = value
            state.belief[start + a] += value - old
    return difference / size


@lean_kernel
def sweep(
    g: GraphArrays,
    order: IntArray,
    step: int,
    first: int,
    update: Update,
    state: State,
    work: TRWWorkspace,
    budget: int,
) -> tuple[int, float]:
    """Update messages along the order within a budget; return the next rank and the change."""
    change = 0.0
    at = first
    while 0 <= at < order.size and budget > 0:
        i = order[at]
        at += step
        k = g.cardinalities[i]
        start = g.unary_ptr[i]
        for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
            h = g.adj_half[p]
            j = g.adj_var[p]
            kj = g.cardinalities[j]
            rho = state.rho[h >> 1]
            back = state.ptr[state.reverse[p]]
            other = g.unary_ptr[j]
            for b in range(kj):
                work.cavity[b] = (
                    rho * state.belief[other + b] - state.messages[back + b]
                    if state.unary[other + b] < np.inf
                    else np.inf
                )
            sum_product_message(g, h, rho * update.temperature, work.cavity, work.out)
            to = state.ptr[p]
            change = max(change, _store(start, k, to, update, state, work.out))
            budget -= k + kj
        # The belief is recomputed, so that rounding errors of its updates cannot build up.
        _collect(g, i, state)
    return at, change


@inlined
def _soft_least(values: FloatArray, start: int, k: int, temperature: float) -> float:
    """Return ``-T log sum exp(-. / T)`` of a row."""
    best = np.inf
    for a in range(k):
        best = min(best, values[start + a])
    if best == np.inf:
        return best
    total = 0.0
    for a in range(k):
        total += np.exp((best - values[start + a]) / temperature)
    return float(best - temperature * np.log(total))


@lean_kernel
def _send_to_roots(
    g: GraphArrays,
    forest: RootedForest,
    temperature: float,
    rho: FloatArray,
    total: FloatArray,
    work: TRWWorkspace,
) -> float:
    """Send messages to the roots; return the sum of their soft minima, ``inf`` if infeasible."""
    # ``total`` begins as the unaries, and adds up the soft minima over descendants, each message
    # relative to its least entry. The costs of a term ``c`` are ``theta_c / rho_c``.
    cavity, out = work.cavity, work.out
    shift = 0.0
    for at in range(forest.order.size - 1, -1, -1):
        i = forest.order[at]
        k = g.cardinalities[i]
        start = g.unary_ptr[i]
        p = forest.up[i]
        if p == -1:
            minimum = _soft_least(total, start, k, temperature)
            if minimum == np.inf:
                return np.inf
            shift += minimum
        else:
            h = g.adj_half[p] ^ 1
            j = g.adj_var[p]
            share = rho[h >> 1]
            for a in range(k):
                cavity[a] = share * total[start + a]
            minimum = sum_product_message(g, h, share * temperature, cavity, out)
            if minimum == np.inf:
                return np.inf
            shift += minimum / share
            to = g.unary_ptr[j]
            for b in range(g.cardinalities[j]):
                total[to + b] += (out[b] - minimum) / share
    return shift


@lean_kernel
def _fill_unaries(g: GraphArrays, forest: RootedForest, state: State, total: FloatArray) -> None:
    """Write the unaries of a forest, ``b_i - sum n_c / rho_c`` over its terms ``c`` at ``i``."""
    up = forest.up
    for t in range(total.size):
        total[t] = state.belief[t]
    for at in range(forest.order.size):
        i = forest.order[at]
        p = up[i]
        if p >= 0:
            j = g.adj_var[p]
            rho = state.rho[g.adj_half[p] >> 1]
            here, other = state.ptr[p], state.ptr[state.reverse[p]]
            for a in range(g.cardinalities[i]):
                total[g.unary_ptr[i] + a] -= state.messages[here + a] / rho
            for b in range(g.cardinalities[j]):
                total[g.unary_ptr[j] + b] -= state.messages[other + b] / rho


def forest_energy(
    g: GraphArrays,
    forest: RootedForest,
    temperature: float,
    state: State,
    work: TRWWorkspace,
) -> float:
    """Return ``-T log Z`` of one forest of the reparametrised energy."""
    # Its terms are ``theta_c / rho_c``.
    total = np.empty(g.unary.size)
    _fill_unaries(g, forest, state, total)
    return float(_send_to_roots(g, forest, temperature, state.rho, total, work))


@lean_kernel
def pseudo_marginals(g: GraphArrays, temperature: float, state: State, out: FloatArray) -> None:
    """Write ``tau_i``, proportional to ``exp(-b_i / T)``."""
    for i in range(g.cardinalities.size):
        lo, hi = g.unary_ptr[i], g.unary_ptr[i + 1]
        best = np.inf
        for t in range(lo, hi):
            best = min(best, state.belief[t])
        total = 0.0
        for t in range(lo, hi):
            out[t] = np.exp((best - state.belief[t]) / temperature)
            total += out[t]
        for t in range(lo, hi):
            out[t] /= total


@lean_kernel
def mutual_information(
    g: GraphArrays, temperature: float, state: State, work: TRWWorkspace, out: FloatArray
) -> None:
    """Write the mutual information of the pseudo-marginals of each edge."""
    # ``tau_ij`` is proportional to ``exp(-(theta / rho + b_i + b_j - (n_i + n_j) / rho) / T)``.
    for i in range(g.cardinalities.size):
        for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
            h = g.adj_half[p]
            if h & 1:
                continue
            e = h >> 1
            j = g.adj_var[p]
            ki, kj = g.cardinalities[i], g.cardinalities[j]
            rho = state.rho[e]
            here, other = state.ptr[p], state.ptr[state.reverse[p]]
            for a in range(ki):
                work.cavity[a] = state.belief[g.unary_ptr[i] + a] - state.messages[here + a] / rho
            for b in range(kj):
                work.out[b] = state.belief[g.unary_ptr[j] + b] - state.messages[other + b] / rho
            best = np.inf
            for a in range(ki):
                for b in range(kj):
                    best = min(best, edge_cost(g, e, a, b) / rho + work.cavity[a] + work.out[b])
            # I = sum p log p - sum p_a log p_a - sum p_b log p_b + log of the normaliser.
            total, joint, rows = 0.0, 0.0, 0.0
            for b in range(kj):
                work.column[b] = 0.0
            for a in range(ki):
                row = 0.0
                for b in range(kj):
                    cost = edge_cost(g, e, a, b) / rho + work.cavity[a] + work.out[b] - best
                    weight = np.exp(-cost / temperature)
                    if weight > 0.0:
                        joint -= weight * cost / temperature
                    row += weight
                    work.column[b] += weight
                total += row
                rows += row * np.log(row) if row > 0.0 else 0.0
            for b in range(kj):
                rows += work.column[b] * np.log(work.column[b]) if work.column[b] > 0.0 else 0.0
            out[e] = (joint - rows) / total + np.log(total)
