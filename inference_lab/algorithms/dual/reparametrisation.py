"""Dual of the local-polytope relaxation: reparametrisations and their lower bound.

Every term ``f`` passes a part ``d_fi(x_i)`` of its cost on to each of its variables, which leaves
every energy unchanged. The sum of the minima of the reparametrised terms,

``constant + sum_i min (theta_i + sum_f d_fi) + sum_f min (theta_f - sum_i d_fi)``,

is a lower bound on the energy for all choices of the parts. The kernels here change the parts of
one term, or of all terms at one variable, so that the bound never falls.

Parts are finite. A label proved to be in no labelling of finite energy is marked by ``+inf`` in
`Dual.unary`; its parts are meaningless from then on.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from inference_lab._numba import inlined, lean_kernel
from inference_lab.graph.arrays import (
    FloatArray,
    GraphArrays,
    Int32Array,
    IntArray,
    starts_of,
)
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.kernels.factor_messages import min_marginals
from inference_lab.kernels.messages import add_counted, edge_cost, min_sum_message, slot_ptr

#: Rounding error of a sum, relative to its terms, that is subtracted from the bound.
ULPS = 8.0 * 2.0**-53
#: Table entries visited between two checks of the clock: about 0.1 s.
_STRETCH = 50_000_000


class Dual(NamedTuple):
    """Reparametrisation in flat arrays."""

    #: ``half_ptr`` (2m + 1,) and ``from_edge``: the part that edge ``e`` passed to ``edges[e, s]``
    #: starts at ``half_ptr[2 e + s]``.
    half_ptr: IntArray
    from_edge: FloatArray
    #: ``slot_ptr`` (slots + 1,) and ``from_factor``: the part that each higher-order factor passed
    #: to the variable at each position of its scope.
    slot_ptr: IntArray
    from_factor: FloatArray
    #: The unaries with all parts added, ``+inf`` for labels that are ruled out.
    unary: FloatArray


class ClusterArrays(NamedTuple):
    """Clusters of three variables, in flat arrays."""

    #: (C, 3) int32: the variables of each cluster, ascending.
    variables: Int32Array
    #: (C, 3) int32: the edges of its pairs of positions (0, 1), (0, 2) and (1, 2).
    edges: Int32Array
    #: ``part_ptr`` (C + 1,) into ``parts``: the parts that a cluster passed to these pairs, one
    #: pair after the other, row-major with the smaller variable first.
    part_ptr: IntArray
    parts: FloatArray
    #: ``inside_ptr`` (n + 1,) into ``inside``: the places of each variable in ``variables``, each
    #: encoded as ``3 * cluster + position``.
    inside_ptr: IntArray
    inside: IntArray
    #: The graph's ``pairwise``, in which the tables of the pairs change.
    pool: FloatArray


def no_clusters(graph: FactorGraph) -> ClusterArrays:
    """Return `ClusterArrays` without clusters."""
    nothing = np.empty(0, dtype=np.int64)
    start = np.zeros(1, dtype=np.int64)
    names, costs = np.empty((0, 3), dtype=np.int32), np.empty(0)
    inside = np.zeros(graph.n_variables + 1, dtype=np.int64)
    return ClusterArrays(names, names, start, costs, inside, nothing, costs)


def stretches(work: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    """Cut a sequence into stretches of bounded work; the clock is checked between them."""
    if work.size == 0:
        return []
    cuts = np.flatnonzero(np.diff(np.cumsum(work) // _STRETCH)) + 1
    return list(itertools.pairwise([0, *cuts.tolist(), work.size]))


def half_ptr(graph: FactorGraph) -> IntArray:
    """Return the start of the part of each half-edge, shape (2m + 1,)."""
    return starts_of(graph.cardinalities[graph.edges.ravel()])


def start_dual(
    graph: FactorGraph,
    from_edge: FloatArray | None = None,
    from_factor: FloatArray | None = None,
) -> Dual:
    """Return the dual in which terms have moved parts of their costs to variables."""
    # Parts are zero by default. The messages of any min-sum algorithm from an edge, or from a
    # position of a factor's scope, to a variable are valid parts. ``+inf`` rules a label out.
    halves = half_ptr(graph)
    slots = slot_ptr(graph)
    parts = []
    unary = graph.unary_values.copy()
    for name, values, ptr, variables in (
        ("from_edge", from_edge, halves, graph.edges.ravel()),
        ("from_factor", from_factor, slots, graph.factor_scopes),
    ):
        size = int(ptr[-1])
        part = np.zeros(size) if values is None else np.array(values, dtype=np.float64)
        if part.shape != (size,):
            raise ValueError(f"{name} must have shape ({size},), got {part.shape}")
        bad = np.flatnonzero(np.isnan(part) | np.isneginf(part))
        if bad.size:
            raise ValueError(
                f"{name}[{bad[0]}] is {part[bad[0]]}; parts must be finite, or +inf for a label "
                "that is ruled out"
            )
        infinite = np.isinf(part)
        if size:
            label = np.arange(size) - np.repeat(ptr[:-1], np.diff(ptr))
            entry = np.repeat(graph.unary_ptr[variables], np.diff(ptr)) + label
            unary[entry[infinite]] = np.inf
            part[infinite] = 0.0
            np.add.at(unary, entry, part)
        parts.append(part)
    return Dual(halves, parts[0], slots, parts[1], unary)


class TermScratch(NamedTuple):
    """Scratch arrays for one term at a time."""

    # The first five have the length of the largest cardinality, ``digits`` of the largest arity,
    # ``to_factor`` of `Dual.from_factor`.

    first: FloatArray
    second: FloatArray
    cavity: FloatArray
    new: FloatArray
    infinite: IntArray
    digits: IntArray
    to_factor: FloatArray


def make_scratch(graph: FactorGraph) -> TermScratch:
    """Allocate scratch arrays for a graph and its clusters."""
    width = int(graph.cardinalities.max(initial=1))
    arity = int(np.diff(graph.factor_ptr).max(initial=0))
    return TermScratch(
        np.empty(width),
        np.empty(width),
        np.empty(width),
        np.empty(width),
        np.empty(width, np.int64),
        np.empty(max(arity, 3), np.int64),
        np.zeros(int(slot_ptr(graph)[-1])),
    )


# ------------------------------------------------------------------ one term at a time


@inlined
def rest_of(k: int, unary: FloatArray, u: int, part: FloatArray, p: int, out: FloatArray) -> None:
    """Write the costs of a variable without the part of one term."""
    for a in range(k):
        out[a] = unary[u + a] - part[p + a]


@inlined
def held_back(
    k: int, unary: FloatArray, u: int, part: FloatArray, p: int, hard: bool, out: FloatArray
) -> None:
    """Write the negated part of one term, ``+inf`` for labels that are ruled out."""
    for a in range(k):
        out[a] = -part[p + a]
    if hard:
        for a in range(k):
            if np.isinf(unary[u + a]):
                out[a] = np.inf


@inlined
def held_back_by_factor(g: GraphArrays, f: int, dual: Dual, hard: bool, work: TermScratch) -> None:
    """Write the negated parts of a factor to ``work.to_factor``, as `held_back` does."""
    for s in range(g.factor_ptr[f], g.factor_ptr[f + 1]):
        i, at = g.scopes[s], dual.slot_ptr[s]
        held_back(
            g.cardinalities[i],
            dual.unary,
            g.unary_ptr[i],
            dual.from_factor,
            at,
            hard,
            work.to_factor[at:],
        )


@inlined
def settle(
    k: int,
    unary: FloatArray,
    u: int,
    part: FloatArray,
    p: int,
    rest: FloatArray,
    new: FloatArray,
    hard: bool,
) -> None:
    """Store a new part of a term and the resulting costs of its variable."""
    if hard:
        for a in range(k):
            if np.isinf(rest[a]) or np.isinf(new[a]):
                unary[u + a] = np.inf
                part[p + a] = 0.0
            else:
                part[p + a] = new[a]
                unary[u + a] = rest[a] + new[a]
    else:
        for a in range(k):
            part[p + a] = new[a]
            unary[u + a] = rest[a] + new[a]


@inlined
def update_edge(
    g: GraphArrays, e: int, side: int, dual: Dual, hard: bool, work: TermScratch
) -> None:
    """Move both variables' costs into edge ``e`` and redistribute the sum to them."""
    # The variable at `side` gets half of its min-marginal. The remaining slack is pushed to the
    # other variable, then to the first, so that the edge keeps none (as in MPLP++).
    one, two = 2 * e + side, 2 * e + 1 - side
    i, j = g.edges[e, side], g.edges[e, 1 - side]
    ki, kj = g.cardinalities[i], g.cardinalities[j]
    ui, uj = g.unary_ptr[i], g.unary_ptr[j]
    pi, pj = dual.half_ptr[one], dual.half_ptr[two]
    rest_of(ki, dual.unary, ui, dual.from_edge, pi, work.first)
    rest_of(kj, dual.unary, uj, dual.from_edge, pj, work.second)
    min_sum_message(g, one, work.second, work.new)
    if hard:
        for a in range(ki):
            if not np.isinf(work.first[a]):
                work.new[a] = 0.5 * (work.new[a] - work.first[a])
    else:
        for a in range(ki):
            work.new[a] = 0.5 * (work.new[a] - work.first[a])
    settle(ki, dual.unary, ui, dual.from_edge, pi, work.first, work.new, hard)
    held_back(ki, dual.unary, ui, dual.from_edge, pi, hard, work.cavity)
    min_sum_message(g, two, work.cavity, work.new)
    settle(kj, dual.unary, uj, dual.from_edge, pj, work.second, work.new, hard)
    held_back(kj, dual.unary, uj, dual.from_edge, pj, hard, work.cavity)
    min_sum_message(g, one, work.cavity, work.new)
    settle(ki, dual.unary, ui, dual.from_edge, pi, work.first, work.new, hard)


@lean_kernel
def update_edges(
    g: GraphArrays, begin: int, end: int, backwards: bool, dual: Dual, hard: bool, work: TermScratch
) -> None:
    """Update the edges from `begin` to `end`, in order or backwards."""
    for q in range(end - begin):
        if backwards:
            update_edge(g, end - 1 - q, 1, dual, hard, work)
        else:
            update_edge(g, begin + q, 0, dual, hard, work)


@lean_kernel
def update_factors(
    g: GraphArrays, begin: int, end: int, backwards: bool, dual: Dual, hard: bool, work: TermScratch
) -> None:
    """Update the higher-order factors from `begin` to `end`, in order or backwards."""
    # Each variable gets an equal share of its min-marginal, then in turn the remaining slack.
    ptr = dual.slot_ptr
    for q in range(end - begin):
        f = end - 1 - q if backwards else begin + q
        lo, hi = g.factor_ptr[f], g.factor_ptr[f + 1]
        for s in range(lo, hi):
            i = g.scopes[s]
            rest_of(
                g.cardinalities[i],
                dual.unary,
                g.unary_ptr[i],
                dual.from_factor,
                ptr[s],
                work.to_factor[ptr[s] :],
            )
        for s in range(lo, hi):
            # All min-marginals are of the same table: ``work.to_factor`` changes only afterwards.
            i = g.scopes[s]
            k, u = g.cardinalities[i], g.unary_ptr[i]
            min_marginals(g, s, work.to_factor, ptr, work.new, work.digits)
            rest_of(k, dual.unary, u, dual.from_factor, ptr[s], work.first)
            for a in range(k):
                if not (hard and np.isinf(work.first[a])):
                    work.new[a] = (work.new[a] + work.first[a]) / (hi - lo) - work.first[a]
            settle(k, dual.unary, u, dual.from_factor, ptr[s], work.first, work.new, hard)
        held_back_by_factor(g, f, dual, hard, work)
        for t in range(hi - lo):
            s = hi - 1 - t if backwards else lo + t
            i = g.scopes[s]
            k, u = g.cardinalities[i], g.unary_ptr[i]
            rest_of(k, dual.unary, u, dual.from_factor, ptr[s], work.first)
            min_marginals(g, s, work.to_factor, ptr, work.new, work.digits)
            settle(k, dual.unary, u, dual.from_factor, ptr[s], work.first, work.new, hard)
            held_back(k, dual.unary, u, dual.from_factor, ptr[s], hard, work.to_factor[ptr[s] :])


# ------------------------------------------------------------------ all terms at one variable


@lean_kernel
def update_stars(
    g: GraphArrays, begin: int, end: int, backwards: bool, dual: Dual, hard: bool, work: TermScratch
) -> None:
    """Collect the min-marginals of all terms at each variable and share them out equally."""
    # Covers the variables from `begin` to `end`. Afterwards the unary costs of a variable are
    # constant except for labels that are ruled out. All differences between its labels then lie in
    # its terms, where larger clusters can use them.
    for q in range(end - begin):
        i = end - 1 - q if backwards else begin + q
        k, u = g.cardinalities[i], g.unary_ptr[i]
        terms = g.adj_ptr[i + 1] - g.adj_ptr[i] + g.inc_ptr[i + 1] - g.inc_ptr[i]
        if terms == 0:
            continue
        for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
            h, j = g.adj_half[p], g.adj_var[p]
            start, other = dual.half_ptr[h], dual.half_ptr[h ^ 1]
            held_back(
                g.cardinalities[j],
                dual.unary,
                g.unary_ptr[j],
                dual.from_edge,
                other,
                hard,
                work.cavity,
            )
            min_sum_message(g, h, work.cavity, work.new)
            rest_of(k, dual.unary, u, dual.from_edge, start, work.first)
            settle(k, dual.unary, u, dual.from_edge, start, work.first, work.new, hard)
        for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
            slot = g.inc_slot[p]
            f = g.slot_factor[slot]
            held_back_by_factor(g, f, dual, hard, work)
            start = dual.slot_ptr[slot]
            min_marginals(g, slot, work.to_factor, dual.slot_ptr, work.new, work.digits)
            rest_of(k, dual.unary, u, dual.from_factor, start, work.first)
            settle(k, dual.unary, u, dual.from_factor, start, work.first, work.new, hard)
        minimum = np.inf
        for a in range(k):
            minimum = min(minimum, dual.unary[u + a])
        if np.isinf(minimum):
            return
        for a in range(k):
            # The excess over the least cost is moved to the terms.
            value = dual.unary[u + a]
            work.second[a] = 0.0 if np.isinf(value) else (value - minimum) / terms
            if not np.isinf(value):
                dual.unary[u + a] = minimum
        for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
            start = dual.half_ptr[g.adj_half[p]]
            for a in range(k):
                dual.from_edge[start + a] -= work.second[a]
        for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
            start = dual.slot_ptr[g.inc_slot[p]]
            for a in range(k):
                dual.from_factor[start + a] -= work.second[a]


# ------------------------------------------------------------------ the bound


@inlined
def add_up(total: float, lost: float, value: float) -> tuple[float, float]:
    """Add a value to a sum with compensation of rounding (Kahan)."""
    value -= lost
    summed = total + value
    return summed, (summed - total) - value


@lean_kernel
def refresh(g: GraphArrays, dual: Dual) -> float:
    """Recompute the sums of the parts to reset rounding errors; return the scale of rounding."""
    scale = 0.0
    for i in range(g.cardinalities.size):
        k, u = g.cardinalities[i], g.unary_ptr[i]
        largest = 0.0
        for a in range(k):
            if not np.isinf(dual.unary[u + a]):
                dual.unary[u + a] = g.unary[u + a]
                largest = max(largest, abs(g.unary[u + a]))
        scale += largest
        for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
            start = dual.half_ptr[g.adj_half[p]]
            largest = 0.0
            for a in range(k):
                dual.unary[u + a] += dual.from_edge[start + a]
                largest = max(largest, abs(dual.from_edge[start + a]))
            scale += largest
        for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
            start = dual.slot_ptr[g.inc_slot[p]]
            largest = 0.0
            for a in range(k):
                dual.unary[u + a] += dual.from_factor[start + a]
                largest = max(largest, abs(dual.from_factor[start + a]))
            scale += largest
    return scale


@lean_kernel
def sum_of_least(g: GraphArrays, dual: Dual, hard: bool, work: TermScratch) -> float:
    """Return the sum of the minima of all terms; ``inf`` if a term has only infinite entries."""
    total = 0.0
    lost = 0.0
    for i in range(g.cardinalities.size):
        k, u = g.cardinalities[i], g.unary_ptr[i]
        minimum = np.inf
        for a in range(k):
            minimum = min(minimum, dual.unary[u + a])
        if np.isinf(minimum):
            return np.inf
        total, lost = add_up(total, lost, minimum)
    for e in range(g.edges.shape[0]):
        i, j = g.edges[e, 0], g.edges[e, 1]
        held_back(
            g.cardinalities[j],
            dual.unary,
            g.unary_ptr[j],
            dual.from_edge,
            dual.half_ptr[2 * e + 1],
            hard,
            work.cavity,
        )
        min_sum_message(g, 2 * e, work.cavity, work.new)
        minimum = np.inf
        for a in range(g.cardinalities[i]):
            if not np.isinf(dual.unary[g.unary_ptr[i] + a]):
                minimum = min(minimum, work.new[a] - dual.from_edge[dual.half_ptr[2 * e] + a])
        if np.isinf(minimum):
            return np.inf
        total, lost = add_up(total, lost, minimum)
    for f in range(g.factor_ptr.size - 1):
        lo = g.factor_ptr[f]
        held_back_by_factor(g, f, dual, hard, work)
        min_marginals(g, lo, work.to_factor, dual.slot_ptr, work.new, work.digits)
        minimum = np.inf
        i = g.scopes[lo]
        for a in range(g.cardinalities[i]):
            minimum = min(minimum, work.new[a] + work.to_factor[dual.slot_ptr[lo] + a])
        if np.isinf(minimum):
            return np.inf
        total, lost = add_up(total, lost, minimum)
    return total


def dual_bound(
    graph: FactorGraph, g: GraphArrays, dual: Dual, work: TermScratch
) -> tuple[float, float]:
    """Return the lower bound of a dual, lowered by the possible rounding error, and this error."""
    # ``inf`` proves that no labelling has finite energy. `g` may have more terms than the graph.
    scale = refresh(g, dual)
    bound = sum_of_least(g, dual, graph.has_infinite, work)
    if math.isinf(bound):
        return math.inf, 0.0
    rounding = ULPS * (scale + abs(bound) + abs(graph.constant))
    return bound + graph.constant - rounding, rounding


# ------------------------------------------------------------------ labels


@inlined
def from_cluster(
    g: GraphArrays,
    c: int,
    position: int,
    clusters: ClusterArrays,
    x: IntArray,
    hard: bool,
    work: TermScratch,
) -> None:
    """Write the least remaining cost of a cluster for each label of the variable at `position`."""
    # Labelled variables are fixed. Entries with a pair that is ruled out are infinite, because the
    # parts there are meaningless.
    variables, edges = clusters.variables[c], clusters.edges[c]
    digits = work.digits
    for a in range(g.cardinalities[variables[position]]):
        work.new[a] = np.inf
    for s in range(3):
        digits[s] = max(0, x[variables[s]]) if s != position else 0
    s = 0
    while s >= 0:
        value = 0.0
        start = clusters.part_ptr[c]
        for pair in range(3):
            p, q = (0, pair + 1) if pair < 2 else (1, 2)
            kp, kq = g.cardinalities[variables[p]], g.cardinalities[variables[q]]
            a, b = digits[p], digits[q]
            value -= clusters.parts[start + a * kq + b]
            start += kp * kq
            if hard:
                e = edges[pair]
                entry = b * kp + a if g.edges[e, 0] != variables[p] else a * kq + b
                if np.isinf(g.pairwise[g.offsets[e] + entry]):
                    value = np.inf
        label = digits[position]
        work.new[label] = min(work.new[label], value)
        # Advance the mixed-radix counter over the positions without a label.
        s = 2
        while s >= 0:
            if s == position or x[variables[s]] < 0:
                digits[s] += 1
                if digits[s] < g.cardinalities[variables[s]]:
                    break
                digits[s] = 0
            s -= 1


@lean_kernel
def decode(
    g: GraphArrays,
    order: IntArray,
    dual: Dual,
    clusters: ClusterArrays,
    hard: bool,
    work: TermScratch,
    x: IntArray,
) -> None:
    """Label the variables in order, each given the labels chosen before."""
    # The cost of a label is its unary cost plus the remaining cost of each term under the labels
    # chosen, minimised over variables without a label. Labels with fewer infinite terms come first,
    # then lower costs, then lower numbers.
    infinite = work.infinite
    for i in range(x.size):
        x[i] = -1
    for i in order:
        k, u = g.cardinalities[i], g.unary_ptr[i]
        for a in range(k):
            work.first[a] = 0.0
            infinite[a] = 0
        add_counted(k, dual.unary[u:], work.first, infinite)
        for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
            h, j = g.adj_half[p], g.adj_var[p]
            e = h >> 1
            start = dual.half_ptr[h]
            b = x[j]
            if b < 0:
                held_back(
                    g.cardinalities[j],
                    dual.unary,
                    g.unary_ptr[j],
                    dual.from_edge,
                    dual.half_ptr[h ^ 1],
                    hard,
                    work.cavity,
                )
                min_sum_message(g, h, work.cavity, work.new)
            else:
                for a in range(k):
                    work.new[a] = edge_cost(g, e, a, b) if h & 1 == 0 else edge_cost(g, e, b, a)
            for a in range(k):
                work.new[a] -= dual.from_edge[start + a]
            add_counted(k, work.new, work.first, infinite)
        for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
            slot = g.inc_slot[p]
            f = g.slot_factor[slot]
            held_back_by_factor(g, f, dual, hard, work)
            for s in range(g.factor_ptr[f], g.factor_ptr[f + 1]):
                j, at = g.scopes[s], dual.slot_ptr[s]
                if x[j] >= 0:
                    for b in range(g.cardinalities[j]):
                        if b != x[j]:
                            work.to_factor[at + b] = np.inf
                        elif np.isinf(work.to_factor[at + b]):
                            # A label that is ruled out may still have been chosen.
                            work.to_factor[at + b] = 0.0
            min_marginals(g, slot, work.to_factor, dual.slot_ptr, work.new, work.digits)
            start = dual.slot_ptr[slot]
            for a in range(k):
                work.new[a] -= dual.from_factor[start + a]
            add_counted(k, work.new, work.first, infinite)
        for p in range(clusters.inside_ptr[i], clusters.inside_ptr[i + 1]):
            c, position = divmod(clusters.inside[p], 3)
            from_cluster(g, c, position, clusters, x, hard, work)
            add_counted(k, work.new, work.first, infinite)
        best = 0
        for a in range(1, k):
            if infinite[a] < infinite[best] or (
                infinite[a] == infinite[best] and work.first[a] < work.first[best]
            ):
                best = a
        x[i] = best
