"""Rounding of distributions to labels by the phases of Kleinberg and Tardos.

A phase draws a label h and a threshold alpha; every variable without a label and with
``u_ih >= alpha`` gets h. Phases are random, or chosen by conditional expectations.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from inference_lab._numba import int64, kernel, lean_kernel
from inference_lab.graph.arrays import (
    TABLE,
    FloatArray,
    GraphArrays,
    IntArray,
    connected,
    starts_of,
)
from inference_lab.kernels.messages import edge_cost, half_cost

#: After this many phases, variables without a label get their argmax (as in the released code).
_MAX_PHASES = 5000


def joint_distribution(p: FloatArray, q: FloatArray) -> FloatArray:
    """Return the probability of each pair of labels of two variables, shape (k_i, k_j)."""
    # With as many labels, a phase with label h gives it to both with probability proportional to
    # ``min(p_h, q_h)`` and to one of them alone to ``|p_h - q_h|``; the other one's label is then
    # drawn later, from its own distribution (Kleinberg and Tardos 2002, section 2).
    k = max(p.size, q.size)
    u, v = np.pad(p, (0, k - p.size)), np.pad(q, (0, k - q.size))
    both = np.minimum(u, v)
    joint = np.diag(both) + np.outer(u - both, v) + np.outer(u, v - both)
    return np.asarray(joint / np.maximum(u, v).sum())[: p.size, : q.size]


@lean_kernel
def _pair_expectation(g: GraphArrays, e: int, u: FloatArray, big: float) -> float:
    """Return the exact expected cost of edge ``e`` after Kleinberg-Tardos rounding of ``u``."""
    i, j = g.edges[e, 0], g.edges[e, 1]
    si, sj = g.unary_ptr[i], g.unary_ptr[j]
    ki, kj = g.cardinalities[i], g.cardinalities[j]
    k = min(ki, kj)
    norm = 0.0
    for a in range(max(ki, kj)):
        p = u[si + a] if a < ki else 0.0
        q = u[sj + a] if a < kj else 0.0
        norm += max(p, q)
    total = 0.0
    if g.kinds[e] != TABLE:
        together = 0.0
        for a in range(k):
            low = min(u[si + a], u[sj + a])
            if low > 0.0:
                p = low * (1.0 + abs(u[si + a] - u[sj + a])) / norm
                together += p
                total += p * min(edge_cost(g, e, a, a), big)
        apart = 1.0 - together
        if apart > 1e-12:
            total += apart * min(g.weights[e], big)
        return total
    for a in range(ki):
        p = u[si + a]
        if p == 0.0:
            continue
        rest_i = max(0.0, p - (u[sj + a] if a < kj else 0.0))
        for b in range(kj):
            q = u[sj + b]
            if q == 0.0:
                continue
            mass = rest_i * q + max(0.0, q - (u[si + b] if b < ki else 0.0)) * p
            if a == b:
                mass += min(p, q)
            if mass > 0.0:
                total += mass / norm * min(edge_cost(g, e, a, b), big)
    return total


@lean_kernel
def _half_expectation(g: GraphArrays, h: int, u: FloatArray, a: int, big: float) -> float:
    """Return the expected cost of an edge when the end at half-edge ``h`` has label ``a``."""
    e = h >> 1
    side = h & 1
    other = g.edges[e, 1 - side]
    start, k = g.unary_ptr[other], g.cardinalities[other]
    if g.kinds[e] != TABLE:
        differ = min(g.weights[e], big)
        if a >= k:
            return float(differ)
        same = min(edge_cost(g, e, a, a), big)
        q = u[start + a]
        return float(q * same + (1.0 - q) * differ)
    total = 0.0
    for b in range(k):
        q = u[start + b]
        if q > 0.0:
            cost = edge_cost(g, e, a, b) if side == 0 else edge_cost(g, e, b, a)
            total += q * min(cost, big)
    return total


@lean_kernel
def expected_energy(g: GraphArrays, u: FloatArray, big: float) -> float:
    """Return the expected energy of Kleinberg-Tardos rounding: unary and pairwise costs."""
    total = 0.0
    for c in range(u.size):
        if u[c] > 0.0:
            total += u[c] * min(g.unary[c], big)
    for e in range(g.edges.shape[0]):
        total += _pair_expectation(g, e, u, big)
    return total


@lean_kernel
def energy_of(g: GraphArrays, x: IntArray) -> float:
    """Return the energy of a labelling without the constant."""
    total = 0.0
    for i in range(x.size):
        total += g.unary[g.unary_ptr[i] + x[i]]
    for e in range(g.edges.shape[0]):
        total += edge_cost(g, e, x[g.edges[e, 0]], x[g.edges[e, 1]])
    for f in range(g.factor_ptr.size - 1):
        index = 0
        for s in range(g.factor_ptr[f], g.factor_ptr[f + 1]):
            index = index * g.cardinalities[g.scopes[s]] + x[g.scopes[s]]
        total += g.tables[g.table_ptr[f] + index]
    return total


# ------------------------------------------------------------------ rounding


@kernel
def _draw(
    g: GraphArrays,
    u: FloatArray,
    free: IntArray,
    labelled: IntArray,
    left: IntArray,
    rng: np.random.Generator,
    rows: IntArray,
    energies: FloatArray,
) -> None:
    """Run `kleinberg_tardos`; `left` is scratch of the length of `free`."""
    width = 0
    for i in free:
        width = max(width, g.cardinalities[i])
    for d in range(energies.size):
        n_left = free.size
        for p in range(n_left):
            left[p] = p
        for _ in range(_MAX_PHASES):
            if n_left == 0:
                break
            h = int(rng.random() * width)
            alpha = 1.0 - rng.random()
            kept = 0
            for q in range(n_left):
                p = left[q]
                i = free[p]
                if h < g.cardinalities[i] and u[g.unary_ptr[i] + h] >= alpha:
                    rows[d, p] = h
                else:
                    left[kept] = p
                    kept += 1
            n_left = kept
        for q in range(n_left):
            i = free[left[q]]
            best = 0
            for a in range(g.cardinalities[i]):
                if u[g.unary_ptr[i] + a] > u[g.unary_ptr[i] + best]:
                    best = a
            rows[d, left[q]] = best
        for p in range(free.size):
            labelled[free[p]] = rows[d, p]
        energies[d] = energy_of(g, labelled)


def kleinberg_tardos(
    g: GraphArrays,
    u: FloatArray,
    x: IntArray,
    rng: np.random.Generator,
    rows: IntArray,
    energies: FloatArray,
) -> None:
    """Round ``u`` at random, once for each row of `rows`: the labels of variables with ``x = -1``.

    References
    ----------
    J. Kleinberg, E. Tardos, "Approximation algorithms for classification problems with pairwise
    relationships", JACM 49(5), 2002, section 2.
    """
    # Repeat: draw a label h and a threshold alpha from (0, 1]; every variable without a label that
    # has ``u_ih >= alpha`` gets h; until all have one.
    free = np.flatnonzero(x < 0)
    _draw(g, u, free, x.copy(), np.empty_like(free), rng, rows, energies)


class _Expected(NamedTuple):
    """The expected energy term by term, given the labels so far."""

    #: (n,): the labels, -1 for free variables.
    x: IntArray
    #: (n,): whether the phase on trial gives the variable its label.
    inside: npt.NDArray[np.bool_]
    #: Flat: the unary cost of each label of a free variable, plus its terms with labelled ones.
    cost: FloatArray
    #: (m,): expectation of each edge between free variables.
    pair: FloatArray


@lean_kernel
def _begin(g: GraphArrays, u: FloatArray, order: IntArray, big: float, state: _Expected) -> None:
    """Fill the expectations for free variables `order`, from the labels of all others."""
    x = state.x
    for i in order:
        start = g.unary_ptr[i]
        for a in range(g.cardinalities[i]):
            state.cost[start + a] = min(g.unary[start + a], big)
        for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
            half = int64(g.adj_half[p])
            label = x[g.adj_var[p]]
            if label >= 0:
                for a in range(g.cardinalities[i]):
                    state.cost[start + a] += min(half_cost(g, half, a, label), big)
            elif half & 1 == 0:
                state.pair[half >> 1] = _pair_expectation(g, half >> 1, u, big)


@lean_kernel
def _try_label(
    g: GraphArrays,
    u: FloatArray,
    h: int,
    ranked: IntArray,
    big: float,
    state: _Expected,
) -> tuple[float, int, float]:
    """Find the threshold that is best for a phase with label ``h``."""
    best_change = np.inf
    best_length = 0
    steps = 0.0
    change = 0.0
    for q in range(ranked.size):
        i = ranked[q]
        si = g.unary_ptr[i]
        k = g.cardinalities[i]
        change += state.cost[si + h]
        for a in range(k):
            change -= u[si + a] * state.cost[si + a]
        steps += k
        for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
            j = g.adj_var[p]
            if state.x[j] >= 0:
                continue
            half = int64(g.adj_half[p])
            e = half >> 1
            steps += 1.0
            if g.kinds[e] == TABLE:
                steps += g.cardinalities[j]
            if state.inside[j]:
                change += min(edge_cost(g, e, h, h), big)
                change -= _half_expectation(g, half ^ 1, u, h, big)
            else:
                change += _half_expectation(g, half, u, h, big) - state.pair[e]
        state.inside[i] = True
        # A threshold cannot separate equal values.
        last = q + 1 == ranked.size
        if not last:
            last = u[g.unary_ptr[ranked[q + 1]] + h] < u[si + h]
        if last and change < best_change:
            best_change = change
            best_length = q + 1
    for i in ranked:
        state.inside[i] = False
    return best_change, best_length, steps


@lean_kernel
def _give_label(g: GraphArrays, h: int, chosen: IntArray, big: float, state: _Expected) -> None:
    """Give variables the label ``h`` for good."""
    for i in chosen:
        state.x[i] = h
    for i in chosen:
        for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
            j = g.adj_var[p]
            if state.x[j] < 0:
                half = int64(g.adj_half[p]) ^ 1
                for a in range(g.cardinalities[j]):
                    state.cost[g.unary_ptr[j] + a] += min(half_cost(g, half, a, h), big)


@lean_kernel
def _run_phases(
    g: GraphArrays,
    u: FloatArray,
    ranked: IntArray,
    starts: IntArray,
    counts: IntArray,
    big: float,
    max_steps: float,
    state: _Expected,
) -> float:
    """Label the free variables, component by component, as in `derandomise`."""
    x = state.x
    steps = 0.0
    for c in range(starts.size - 1):
        count = counts[c]
        first = starts[c]
        n_left = starts[c + 1] - first
        while n_left > 0:
            if steps > max_steps:
                return steps
            best_change = np.inf
            # Not a literal, for which numba would compile `_give_label` once more.
            best_h = int64(-1)
            best_length = 0
            for h in range(count.size):
                # Drop members that have been labelled since.
                members = ranked[h, first : first + count[h]]
                kept = 0
                for q in range(members.size):
                    if x[members[q]] < 0:
                        members[kept] = members[q]
                        kept += 1
                count[h] = kept
                change, length, taken = _try_label(g, u, h, members[:kept], big, state)
                steps += taken
                if change < best_change:
                    best_change = change
                    best_h = h
                    best_length = length
            chosen = ranked[best_h, first : first + best_length]
            _give_label(g, best_h, chosen, big, state)
            n_left -= best_length
    return steps


def _components(g: GraphArrays, free: IntArray) -> IntArray:
    """Return the number of the component of each free variable; edges to others do not join."""
    number = np.full(g.cardinalities.size, -1)
    number[free] = np.arange(free.size)
    ends = number[g.edges]
    return connected(free.size, ends[(ends >= 0).all(axis=1)])


def _rank(
    g: GraphArrays, u: FloatArray, free: IntArray, part: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Return the free variables by component and falling ``u``, for each label."""
    sizes = g.cardinalities[free]
    rows = np.repeat(np.arange(free.size), sizes)
    labels = np.arange(rows.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    values = np.zeros((int(sizes.max(initial=0)), free.size))
    values[labels, rows] = u[g.unary_ptr[free][rows] + labels]
    ranked = np.stack([free[np.lexsort((-value, part))] for value in values])
    count = np.stack([np.bincount(part[value > 0.0], minlength=part.max() + 1) for value in values])
    starts = starts_of(np.bincount(part))
    return ranked, starts, np.ascontiguousarray(count.T)


def derandomise(g: GraphArrays, u: FloatArray, x: IntArray, big: float, max_steps: float) -> float:
    """Round ``u`` by the method of conditional expectations over Kleinberg-Tardos phases.

    Each phase takes the label and threshold of the least expected energy given all labels so far,
    by unary and pairwise costs. Variables with ``x = -1`` are filled in; after `max_steps`, the
    rest keeps -1. An infinite cost counts as `big`, more than the spread of the finite ones.

    Guarantees
    ----------
    Without higher-order factors the energy (infinite costs counted as `big`) is at most
    `expected_energy`; for Potts terms of must-links and unary costs >= 0 that is at most twice the
    value of the LP (Kleinberg and Tardos 2002).

    Complexity
    ----------
    For a component of f variables and m edges: O(k (f + m)) a phase for the diagonal family and
    at most f phases (usually far fewer). Memory O(f k + m).
    """
    free = np.flatnonzero(x < 0)
    if free.size == 0:
        return 0.0
    ranked, starts, count = _rank(g, u, free, _components(g, free))
    inside, pair = np.zeros(x.size, dtype=np.bool_), np.zeros(len(g.edges))
    state = _Expected(x, inside, np.empty(u.size), pair)
    _begin(g, u, free, big, state)
    return float(_run_phases(g, u, ranked, starts, count, big, max_steps, state))
