"""Clusters of three and more variables above the pairs of a reparametrisation.

A cluster passes parts of its costs (often it has none of its own) on to the pairs inside it, as
edges do to their variables in `inference_lab.algorithms.dual.reparametrisation`. Where the pairs of
a cycle prefer labels that cannot all be had at once, the clusters over it make the bound pay for
that.

A. Globerson, T. Jaakkola, "Fixing max-product: convergent message passing algorithms for MAP
LP-relaxations", NIPS 2007, sec. 6.
D. Sontag, T. Meltzer, A. Globerson, T. Jaakkola, Y. Weiss, "Tightening LP relaxations for MAP
using message passing", UAI 2008.
S. Tourani, A. Shekhovtsov, C. Rother, B. Savchynskyy, "MPLP++: fast, parallel dual block-coordinate
ascent for dense graphical models", ECCV 2018: what an update hands over.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from inference_lab._numba import inlined, inlined_minimum, lean_kernel
from inference_lab.algorithms.dual.reparametrisation import (
    LARGEST_CLUSTER,
    ULPS,
    ClusterArrays,
    Dual,
    decode,
    make_scratch,
    no_clusters,
    offsets,
    refresh,
    stretches,
    sum_of_least,
    sweep_factors,
    sweep_stars,
)
from inference_lab.contract import Run
from inference_lab.graph.arrays import NO_FORM, TABLE, FloatArray, GraphArrays, Int32Array, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.kernels.messages import edge_cost


class Room(NamedTuple):
    """Scratch for one cluster: two tables for each of its pairs, one for all its labellings.

    ``joint`` is used by clusters of more than three variables only.
    """

    pairs: FloatArray
    given: FloatArray
    joint: FloatArray


# ------------------------------------------------------------------ the pairs of one cluster


@inlined
def load_pair(
    g: GraphArrays, dual: Dual, e: int, i: int, j: int, hard: bool, out: FloatArray
) -> None:
    """Write what is left of edge ``e`` as a row-major table with the labels of ``i`` first."""
    ki, kj = g.cardinalities[i], g.cardinalities[j]
    flip = g.edges[e, 0] != i
    pi = dual.half_ptr[2 * e + (1 if flip else 0)]
    pj = dual.half_ptr[2 * e + (0 if flip else 1)]
    if g.kinds[e] == TABLE:
        weight, start = g.weights[e], g.offsets[e]
        row, column = (1, ki) if flip else (kj, 1)
        for a in range(ki):
            for b in range(kj):
                out[a * kj + b] = (
                    weight * g.pairwise[start + a * row + b * column]
                    - dual.from_edge[pi + a]
                    - dual.from_edge[pj + b]
                )
    else:
        for a in range(ki):
            for b in range(kj):
                # Diagonal terms are the same both ways.
                out[a * kj + b] = (
                    edge_cost(g, e, a, b) - dual.from_edge[pi + a] - dual.from_edge[pj + b]
                )
    if hard:
        for a in range(ki):
            for b in range(kj):
                if np.isinf(dual.unary[g.unary_ptr[i] + a]) or np.isinf(
                    dual.unary[g.unary_ptr[j] + b]
                ):
                    out[a * kj + b] = np.inf


@inlined
def load_pairs(
    g: GraphArrays, c: int, dual: Dual, clusters: ClusterArrays, hard: bool, out: FloatArray
) -> None:
    """Write what is left of all pairs of a cluster, without what the cluster passed to them."""
    lo, hi = clusters.ptr[c], clusters.ptr[c + 1]
    pair = clusters.pair_ptr[c]
    start = clusters.part_ptr[c]
    at = 0
    for p in range(lo, hi):
        i = clusters.variables[p]
        for q in range(p + 1, hi):
            j = clusters.variables[q]
            load_pair(g, dual, clusters.edges[pair], i, j, hard, out[at:])
            size = g.cardinalities[i] * g.cardinalities[j]
            for x in range(at, at + size):
                out[x] -= clusters.parts[start + x]
            at += size
            pair += 1


@inlined
def store_pairs(
    g: GraphArrays, c: int, clusters: ClusterArrays, hard: bool, kept: FloatArray
) -> None:
    """Let a cluster keep ``kept`` of the costs of its pairs and pass minus that on to them."""
    lo, hi = clusters.ptr[c], clusters.ptr[c + 1]
    pair = clusters.pair_ptr[c]
    start = clusters.part_ptr[c]
    at = 0
    for p in range(lo, hi):
        i = clusters.variables[p]
        ki = g.cardinalities[i]
        for q in range(p + 1, hi):
            j = clusters.variables[q]
            kj = g.cardinalities[j]
            e = clusters.edges[pair]
            row, column = (1, ki) if g.edges[e, 0] != i else (kj, 1)
            for a in range(ki):
                for b in range(kj):
                    entry = g.offsets[e] + a * row + b * column
                    if hard and np.isinf(kept[at]):
                        g.pairwise[entry] = np.inf
                    else:
                        g.pairwise[entry] -= kept[at] + clusters.parts[start + at]
                        clusters.parts[start + at] = -kept[at]
                    at += 1
            pair += 1


@inlined
def load_kept(g: GraphArrays, c: int, dual: Dual, clusters: ClusterArrays, out: FloatArray) -> None:
    """Write what a cluster keeps of the costs of its pairs, ``+inf`` for labels ruled out."""
    lo, hi = clusters.ptr[c], clusters.ptr[c + 1]
    pair = clusters.pair_ptr[c]
    start = clusters.part_ptr[c]
    at = 0
    for p in range(lo, hi):
        i = clusters.variables[p]
        ki = g.cardinalities[i]
        for q in range(p + 1, hi):
            j = clusters.variables[q]
            kj = g.cardinalities[j]
            e = clusters.edges[pair]
            row, column = (1, ki) if g.edges[e, 0] != i else (kj, 1)
            for a in range(ki):
                for b in range(kj):
                    out[at] = -clusters.parts[start + at]
                    if (
                        np.isinf(g.pairwise[g.offsets[e] + a * row + b * column])
                        or np.isinf(dual.unary[g.unary_ptr[i] + a])
                        or np.isinf(dual.unary[g.unary_ptr[j] + b])
                    ):
                        out[at] = np.inf
                    at += 1
            pair += 1


@inlined
def take_off(size: int, kept: FloatArray, given: FloatArray, share: float, hard: bool) -> None:
    """Take a share of what is given to a pair off what the cluster keeps of its costs."""
    if hard:
        for x in range(size):
            kept[x] = np.inf if np.isinf(given[x]) else kept[x] - share * given[x]
    else:
        for x in range(size):
            kept[x] -= share * given[x]


# ------------------------------------------------------------------ clusters of three


@inlined_minimum
def marginals_of_three(
    ki: int, kj: int, kl: int, base: int, tables: FloatArray, first: FloatArray,
    second: FloatArray, third: FloatArray, to_first: FloatArray, to_second: FloatArray,
    to_third: FloatArray,
) -> None:  # fmt: skip
    """Write the min-marginals of three variables for their three pairs.

    Complexity: O(k^3).
    """
    for x in range(ki * kl):
        to_second[x] = np.inf
    for x in range(kj * kl):
        to_third[x] = np.inf
    for a in range(ki):
        for b in range(kj):
            value = first[a * kj + b]
            least = np.inf
            if base < 0:
                for c in range(kl):
                    total = value + (second[a * kl + c] + third[b * kl + c])
                    least = min(least, total)
                    to_second[a * kl + c] = min(to_second[a * kl + c], total)
                    to_third[b * kl + c] = min(to_third[b * kl + c], total)
            else:
                at = base + (a * kj + b) * kl
                for c in range(kl):
                    total = value + (second[a * kl + c] + third[b * kl + c]) + tables[at + c]
                    least = min(least, total)
                    to_second[a * kl + c] = min(to_second[a * kl + c], total)
                    to_third[b * kl + c] = min(to_third[b * kl + c], total)
            to_first[a * kj + b] = least


@inlined_minimum
def marginals_of_pair(
    pair: int, ki: int, kj: int, kl: int, base: int, tables: FloatArray, first: FloatArray,
    second: FloatArray, third: FloatArray, out: FloatArray,
) -> None:  # fmt: skip
    """Write the min-marginals of three variables for pair 0, (i, j), 1, (i, l), or 2, (j, l).

    Complexity: O(k^3).
    """
    size = ki * kj if pair == 0 else (ki * kl if pair == 1 else kj * kl)
    for x in range(size):
        out[x] = np.inf
    for a in range(ki):
        for b in range(kj):
            value = first[a * kj + b]
            at = base + (a * kj + b) * kl
            if pair == 0:
                least = np.inf
                if base < 0:
                    for c in range(kl):
                        least = min(least, second[a * kl + c] + third[b * kl + c])
                else:
                    for c in range(kl):
                        least = min(least, second[a * kl + c] + third[b * kl + c] + tables[at + c])
                out[a * kj + b] = value + least
            else:
                to = a * kl if pair == 1 else b * kl
                if base < 0:
                    for c in range(kl):
                        total = value + (second[a * kl + c] + third[b * kl + c])
                        out[to + c] = min(out[to + c], total)
                else:
                    for c in range(kl):
                        total = value + (second[a * kl + c] + third[b * kl + c]) + tables[at + c]
                        out[to + c] = min(out[to + c], total)


@inlined
def share_out_three(
    ki: int,
    kj: int,
    kl: int,
    base: int,
    tables: FloatArray,
    backwards: bool,
    hard: bool,
    room: Room,
) -> None:
    """Hand the costs of three variables out to their pairs; ``room.pairs`` is what is kept then.

    Each pair gets a third of its min-marginal, then each in turn what is left, so that nothing
    stays that a pair could have.
    """
    one, two, three = ki * kj, ki * kl, kj * kl
    first, second, third = room.pairs, room.pairs[one:], room.pairs[one + two :]
    to_first, to_second, to_third = room.given, room.given[one:], room.given[one + two :]
    marginals_of_three(
        ki, kj, kl, base, tables, first, second, third, to_first, to_second, to_third
    )
    take_off(one, first, to_first, 1.0 / 3.0, hard)
    take_off(two, second, to_second, 1.0 / 3.0, hard)
    take_off(three, third, to_third, 1.0 / 3.0, hard)
    for turn in range(3):
        pair = 2 - turn if backwards else turn
        if pair == 0:
            marginals_of_pair(0, ki, kj, kl, base, tables, first, second, third, to_first)
            take_off(one, first, to_first, 1.0, hard)
        elif pair == 1:
            marginals_of_pair(1, ki, kj, kl, base, tables, first, second, third, to_second)
            take_off(two, second, to_second, 1.0, hard)
        else:
            marginals_of_pair(2, ki, kj, kl, base, tables, first, second, third, to_third)
            take_off(three, third, to_third, 1.0, hard)


@inlined_minimum
def least_of_three(
    ki: int, kj: int, kl: int, base: int, tables: FloatArray, first: FloatArray,
    second: FloatArray, third: FloatArray,
) -> float:  # fmt: skip
    """Return the least cost of three variables."""
    least = np.inf
    for a in range(ki):
        for b in range(kj):
            value = first[a * kj + b]
            inner = np.inf
            if base < 0:
                for c in range(kl):
                    inner = min(inner, second[a * kl + c] + third[b * kl + c])
            else:
                at = base + (a * kj + b) * kl
                for c in range(kl):
                    inner = min(inner, second[a * kl + c] + third[b * kl + c] + tables[at + c])
            least = min(least, value + inner)
    return least


# ------------------------------------------------------------------ larger clusters


@inlined
def spread(g: GraphArrays, variables: Int32Array, p: int, q: int) -> tuple[int, int, int, int, int]:
    """Return the axes of a joint table, merged: before position p, p, between, q, after q."""
    before = 1
    for s in range(p):
        before *= g.cardinalities[variables[s]]
    between = 1
    for s in range(p + 1, q):
        between *= g.cardinalities[variables[s]]
    after = 1
    for s in range(q + 1, variables.size):
        after *= g.cardinalities[variables[s]]
    return before, g.cardinalities[variables[p]], between, g.cardinalities[variables[q]], after


@inlined
def add_to_joint(
    before: int, kp: int, between: int, kq: int, after: int, pair: FloatArray, factor: float,
    hard: bool, joint: FloatArray,
) -> None:  # fmt: skip
    """Add `factor` times the table of a pair to a joint table; with factor < 0, ``inf`` is left."""
    at = 0
    for _ in range(before):
        for a in range(kp):
            for _ in range(between):
                for b in range(kq):
                    value = pair[a * kq + b]
                    if not (hard and factor < 0.0 and np.isinf(value)):
                        for r in range(at, at + after):
                            joint[r] += factor * value
                    at += after


@inlined_minimum
def marginals_of_joint(
    before: int, kp: int, between: int, kq: int, after: int, joint: FloatArray, out: FloatArray
) -> None:
    """Write the min-marginals of a joint table for two of its positions."""
    for x in range(kp * kq):
        out[x] = np.inf
    at = 0
    for _ in range(before):
        for a in range(kp):
            for _ in range(between):
                for b in range(kq):
                    least = out[a * kq + b]
                    for r in range(at, at + after):
                        least = min(least, joint[r])
                    out[a * kq + b] = least
                    at += after


@inlined
def fill_joint(
    g: GraphArrays, variables: Int32Array, base: int, tables: FloatArray, hard: bool, room: Room
) -> int:
    """Write all costs of a cluster, those of ``room.pairs`` included; return how many there are."""
    size = 1
    for s in range(variables.size):
        size *= g.cardinalities[variables[s]]
    for x in range(size):
        room.joint[x] = tables[base + x] if base >= 0 else 0.0
    at = 0
    for p in range(variables.size):
        for q in range(p + 1, variables.size):
            before, kp, between, kq, after = spread(g, variables, p, q)
            add_to_joint(before, kp, between, kq, after, room.pairs[at:], 1.0, hard, room.joint)
            at += kp * kq
    return size


@inlined
def share_out_joint(
    g: GraphArrays, variables: Int32Array, base: int, tables: FloatArray, hard: bool, room: Room
) -> None:
    """Hand the costs of a cluster out to its pairs, as `share_out_three` does.

    Complexity: O(table size) a pair.
    """
    fill_joint(g, variables, base, tables, hard, room)
    share = 2.0 / (variables.size * (variables.size - 1))
    for turn in range(3):
        # First all min-marginals of the same costs, then their shares, then what is left in turn.
        at = 0
        for p in range(variables.size):
            for q in range(p + 1, variables.size):
                before, kp, between, kq, after = spread(g, variables, p, q)
                kept, given = room.pairs[at:], room.given[at:]
                if turn != 1:
                    marginals_of_joint(before, kp, between, kq, after, room.joint, given)
                if turn != 0:
                    part = share if turn == 1 else 1.0
                    add_to_joint(before, kp, between, kq, after, given, -part, hard, room.joint)
                    take_off(kp * kq, kept, given, part, hard)
                at += kp * kq


# ------------------------------------------------------------------ all clusters


@lean_kernel
def sweep_clusters(
    g: GraphArrays, begin: int, end: int, backwards: bool, dual: Dual, clusters: ClusterArrays,
    hard: bool, room: Room,
) -> None:  # fmt: skip
    """Update the clusters from `begin` to `end`, in order or backwards.

    Each takes in what is left of its pairs and hands out what it then holds.
    """
    for turn in range(end - begin):
        c = end - 1 - turn if backwards else begin + turn
        lo, hi = clusters.ptr[c], clusters.ptr[c + 1]
        base = clusters.table[c]
        variables = clusters.variables[lo:hi]
        load_pairs(g, c, dual, clusters, hard, room.pairs)
        if hi - lo == 3:
            share_out_three(
                g.cardinalities[variables[0]], g.cardinalities[variables[1]],
                g.cardinalities[variables[2]], base, clusters.tables, backwards, hard, room,
            )  # fmt: skip
        else:
            share_out_joint(g, variables, base, clusters.tables, hard, room)
        store_pairs(g, c, clusters, hard, room.pairs)


@inlined
def least_of(
    g: GraphArrays, variables: Int32Array, base: int, tables: FloatArray, hard: bool, room: Room
) -> float:
    """Return the least cost of a cluster, that of the pairs in ``room.pairs`` included."""
    if variables.size == 3:
        ki, kj = g.cardinalities[variables[0]], g.cardinalities[variables[1]]
        kl = g.cardinalities[variables[2]]
        return least_of_three(
            ki, kj, kl, base, tables, room.pairs, room.pairs[ki * kj :],
            room.pairs[ki * (kj + kl) :],
        )  # fmt: skip
    least = np.inf
    for x in range(fill_joint(g, variables, base, tables, hard, room)):
        least = min(least, room.joint[x])
    return least


@lean_kernel
def least_of_clusters(
    g: GraphArrays, dual: Dual, clusters: ClusterArrays, hard: bool, room: Room, least: FloatArray
) -> None:
    """Write the least cost of what each cluster keeps, shape (C,)."""
    for c in range(least.size):
        load_kept(g, c, dual, clusters, room.pairs)
        variables = clusters.variables[clusters.ptr[c] : clusters.ptr[c + 1]]
        least[c] = least_of(g, variables, clusters.table[c], clusters.tables, hard, room)


@lean_kernel
def gain_of_cliques(
    g: GraphArrays, members: Int32Array, edges: Int32Array, dual: Dual, hard: bool, room: Room,
    gain: FloatArray,
) -> None:  # fmt: skip
    """Write what the bound is sure to gain from clusters over existing pairs, shape (T,).

    The least cost of all pairs together less the sum of their least costs apart; `members` (T, a)
    rise within a row, `edges` (T, a (a - 1) / 2) are those of their pairs.
    """
    for t in range(gain.size):
        at = 0
        pair = 0
        apart = 0.0
        for p in range(members.shape[1]):
            i = members[t, p]
            for q in range(p + 1, members.shape[1]):
                j = members[t, q]
                load_pair(g, dual, edges[t, pair], i, j, hard, room.pairs[at:])
                least = np.inf
                stop = at + g.cardinalities[i] * g.cardinalities[j]
                for x in range(at, stop):
                    least = min(least, room.pairs[x])
                at = stop
                pair += 1
                apart += least
        together = least_of(g, members[t], -1, room.given, hard, room)
        gain[t] = together - apart if apart < np.inf else 0.0


@lean_kernel
def pass_on(g: GraphArrays, clusters: ClusterArrays) -> float:
    """Add what the clusters passed on to the tables of the pairs.

    Returns the sum over all parts of their largest sizes, the scale of rounding.
    """
    scale = 0.0
    for c in range(clusters.table.size):
        pair = clusters.pair_ptr[c]
        start = clusters.part_ptr[c]
        for p in range(clusters.ptr[c], clusters.ptr[c + 1]):
            i = clusters.variables[p]
            ki = g.cardinalities[i]
            for q in range(p + 1, clusters.ptr[c + 1]):
                kj = g.cardinalities[clusters.variables[q]]
                e = clusters.edges[pair]
                row, column = (1, ki) if g.edges[e, 0] != i else (kj, 1)
                largest = 0.0
                for a in range(ki):
                    for b in range(kj):
                        part = clusters.parts[start]
                        largest = max(largest, abs(part))
                        g.pairwise[g.offsets[e] + a * row + b * column] += part
                        start += 1
                scale += largest
                pair += 1
    return scale


# ------------------------------------------------------------------ the clusters of a run


class Clusters:
    """A reparametrisation with clusters above the pairs.

    Pairs inside a cluster get a table of their own, which changes with what the clusters pass on;
    all other terms stay as they are. Factors of three to six variables become clusters, which pass
    parts on to their pairs; that is tighter than to their variables. Pairs without a term get one.

    Parameters
    ----------
    graph : FactorGraph
    dual : Dual
        Taken over, and changed from here on.

    Attributes
    ----------
    g : GraphArrays
        All terms but the clusters, with the present tables of the pairs.
    arrays : ClusterArrays
    room : Room
    new_pairs : int
        Pairs that had no term.
    memory : int
        Bytes that the clusters take, and the tables of their pairs.
    """

    def __init__(self, graph: FactorGraph, dual: Dual) -> None:
        self.graph = graph
        self.dual = dual
        self.hard = graph.has_infinite
        self.arrays = no_clusters()
        self.new_pairs = 0
        # Terms other than clusters; `_base` are the tables of pairs before clusters pass parts on.
        self._structure = graph
        self._unary = graph.unary_values
        self._shared = graph.pairwise_values.size
        self._pool = graph.pairwise_values.copy()
        self._base = np.empty(0)
        self._kinds = graph.edge_kinds.copy()
        self._weights = graph.edge_weights.copy()
        self._offsets = graph.edge_offsets.copy()
        self._forms = graph.arrays.forms.copy()
        self._own = np.zeros(graph.n_edges, dtype=bool)
        self.edges = graph.edges
        arity = np.diff(graph.factor_ptr)
        self._absorb(np.flatnonzero(arity <= LARGEST_CLUSTER))
        self._work = make_scratch(self._structure)
        self._infinite = np.zeros(int(graph.cardinalities.max(initial=1)), dtype=np.int64)
        self._arrange()

    # -------------------------------------------------------------- construction

    def _absorb(self, members: IntArray) -> None:
        """Turn factors into clusters with costs of their own."""
        if members.size == 0:
            return
        graph, dual = self.graph, self.dual
        scopes: dict[int, list[list[int]]] = {}
        tables: dict[int, list[FloatArray]] = {}
        for f in members.tolist():
            scope, table = graph.higher_order(f)
            table = table.copy()
            for axis, slot in enumerate(range(graph.factor_ptr[f], graph.factor_ptr[f + 1])):
                shape = [1] * table.ndim
                shape[axis] = table.shape[axis]
                at = int(dual.slot_ptr[slot])
                table -= dual.from_factor[at : at + shape[axis]].reshape(shape)
            order = np.argsort(scope)
            scopes.setdefault(table.ndim, []).append([int(scope[axis]) for axis in order])
            tables.setdefault(table.ndim, []).append(np.transpose(table, order).ravel())
        kept = np.ones(graph.n_factors, dtype=bool)
        kept[members] = False
        slots = np.repeat(kept, np.diff(graph.factor_ptr))
        entries = np.repeat(slots, np.diff(dual.slot_ptr))
        # What the factors passed on to single variables stays there for good.
        gone = np.flatnonzero(~entries)
        first = np.repeat(graph.unary_ptr[graph.factor_scopes], np.diff(dual.slot_ptr))
        label = np.arange(entries.size) - np.repeat(dual.slot_ptr[:-1], np.diff(dual.slot_ptr))
        unary = self._unary.copy()
        np.add.at(unary, (first + label)[gone], dual.from_factor[gone])
        self._unary = unary
        sizes = np.diff(graph.table_ptr)
        self._structure = replace(
            graph,
            factor_ptr=offsets(np.diff(graph.factor_ptr)[kept]),
            factor_scopes=graph.factor_scopes[slots],
            table_ptr=offsets(sizes[kept]),
            table_values=graph.table_values[np.repeat(kept, sizes)],
        )
        self.dual = dual._replace(
            slot_ptr=offsets(graph.cardinalities[self._structure.factor_scopes]),
            from_factor=dual.from_factor[entries],
        )
        for arity in sorted(scopes):
            start = self.arrays.tables.size + offsets(
                np.array([t.size for t in tables[arity]], dtype=np.int64)
            )
            self.arrays = self.arrays._replace(
                tables=np.concatenate([self.arrays.tables, *tables[arity]])
            )
            self._insert(np.array(scopes[arity], dtype=np.int32), start[:-1])

    def _pair_edges(self, pairs: Int32Array) -> Int32Array:
        """Return the edge of each pair ``(i, j)``, ``i < j``, making tables and edges for them."""
        cardinalities = self.graph.cardinalities
        keys = pair_keys(self.graph.n_variables, self.edges)
        order = np.argsort(keys)
        asked = pairs[:, 0].astype(np.int64) * self.graph.n_variables + pairs[:, 1]
        wanted = np.unique(asked)
        at = np.searchsorted(keys, wanted, sorter=order)
        there = at < keys.size
        there[there] = keys[order[at[there]]] == wanted[there]
        edge = np.empty(wanted.size, dtype=np.int64)
        edge[there] = order[at[there]]
        new = wanted[~there]
        edge[~there] = len(self.edges) + np.arange(new.size)
        added = np.stack(np.divmod(new, max(self.graph.n_variables, 1)), axis=1).astype(np.int32)
        # Existing edges get a table of their own; new ones one of zeros.
        convert = edge[there]
        convert = convert[~self._own[convert]]
        tables = [self.graph.edge_table(int(e)).ravel() for e in convert]
        zeros = cardinalities[added].prod(axis=1)
        sizes = np.concatenate([np.array([t.size for t in tables], dtype=np.int64), zeros])
        starts = self._pool.size + offsets(sizes)
        fresh = np.concatenate([*tables, np.zeros(int(zeros.sum()))])
        self._base = np.concatenate([self._base, fresh])
        self._pool = np.concatenate([self._pool, fresh])
        self._kinds[convert] = TABLE
        self._weights[convert] = 1.0
        self._offsets[convert] = starts[: convert.size]
        self._forms[convert] = NO_FORM
        self._own[convert] = True
        count = new.size
        self.new_pairs += count
        self.edges = np.concatenate([self.edges, added])
        self._kinds = np.append(self._kinds, np.full(count, TABLE, dtype=np.uint8))
        self._weights = np.append(self._weights, np.ones(count))
        self._offsets = np.append(self._offsets, starts[convert.size : -1])
        self._forms = np.append(self._forms, np.full(count, NO_FORM, dtype=np.uint8))
        self._own = np.append(self._own, np.ones(count, dtype=bool))
        halves = offsets(cardinalities[added.ravel()])
        ptr = self.dual.half_ptr
        self.dual = self.dual._replace(
            half_ptr=np.concatenate([ptr, ptr[-1] + halves[1:]]),
            from_edge=np.concatenate([self.dual.from_edge, np.zeros(int(halves[-1]))]),
        )
        return edge[np.searchsorted(wanted, asked)].astype(np.int32)

    def _insert(self, members: Int32Array, table: IntArray) -> None:
        """Append clusters, one a row, with the starts of their tables."""
        count, arity = members.shape
        ways = np.array(list(itertools.combinations(range(arity), 2)))
        edges = self._pair_edges(members[:, ways].reshape(-1, 2))
        _, entries = self._sizes(members)
        old = self.arrays
        self.arrays = ClusterArrays(
            ptr=np.append(old.ptr, old.ptr[-1] + arity * np.arange(1, count + 1)),
            variables=np.append(old.variables, members.ravel()),
            pair_ptr=np.append(
                old.pair_ptr, old.pair_ptr[-1] + len(ways) * np.arange(1, count + 1)
            ),
            edges=np.append(old.edges, edges),
            part_ptr=np.append(old.part_ptr, old.part_ptr[-1] + np.cumsum(entries)),
            parts=np.append(old.parts, np.zeros(int(entries.sum()))),
            table=np.append(old.table, table),
            tables=old.tables,
        )

    def _sizes(self, members: Int32Array) -> tuple[IntArray, IntArray]:
        """Return the size of the joint table of clusters of as many variables, and of all pairs."""
        k = self.graph.cardinalities[members]
        total = k.sum(axis=1)
        return k.prod(axis=1), (total * total - (k * k).sum(axis=1)) // 2

    def cost_of(self, members: Int32Array) -> tuple[IntArray, IntArray]:
        """Return about how many entries a sweep visits for each cluster, and the bytes it takes."""
        joint, pairs = self._sizes(members)
        arity = members.shape[1]
        passes = 4 if arity == 3 else 5 * arity * (arity - 1) // 2
        # Parts passed on, and tables of pairs, in the worst case all new, kept twice.
        return passes * joint + 20 * pairs, 24 * pairs + 200

    def add(self, members: Int32Array) -> None:
        """Add clusters of as many variables each, one a row, rising."""
        self._insert(members, np.full(len(members), -1, dtype=np.int64))
        self._arrange()

    def _arrange(self) -> None:
        """Lay out adjacency, scratch and stretches of bounded work anew."""
        graph, edges, clusters = self.graph, self.edges, self.arrays
        # Adjacency only: kinds and costs are put in afterwards.
        plain = replace(
            self._structure,
            edges=edges,
            edge_kinds=np.zeros(len(edges), dtype=np.uint8),
            edge_weights=np.zeros(len(edges)),
            edge_offsets=np.zeros(len(edges), dtype=np.int64),
            pairwise_values=np.zeros(1),
        ).arrays
        self.g = plain._replace(
            unary=self._unary,
            kinds=self._kinds,
            weights=self._weights,
            offsets=self._offsets,
            pairwise=self._pool,
            forms=self._forms,
        )
        sizes = graph.cardinalities[edges]
        arity = np.diff(clusters.ptr)
        work = np.zeros(arity.size, dtype=np.int64)
        self.memory = 16 * self._base.size + 8 * (clusters.parts.size + clusters.tables.size)
        room_pairs, room_joint = int(sizes.prod(axis=1).max(initial=1)), 1
        for a in np.unique(arity).tolist():
            which = np.flatnonzero(arity == a)
            members = clusters.variables[clusters.ptr[which][:, None] + np.arange(a)]
            work[which], _ = self.cost_of(members)
            joint, pairs = self._sizes(members)
            room_pairs = max(room_pairs, int(pairs.max()))
            if a > 3:
                room_joint = max(room_joint, int(joint.max()))
        self._make_room(room_pairs, room_joint)
        dense = np.where(self._kinds == TABLE, sizes.prod(axis=1), 4 * sizes.max(axis=1, initial=1))
        stars = 10.0 + np.bincount(
            edges.ravel(), weights=np.repeat(dense, 2), minlength=graph.n_variables
        )
        structure = self._structure
        self._stars = stretches(stars.astype(np.int64))
        self._factors = stretches(np.diff(structure.table_ptr) * np.diff(structure.factor_ptr) ** 2)
        self._clusters = stretches(work)
        # The clusters of each variable, and its position in them.
        position = np.arange(clusters.variables.size) - np.repeat(clusters.ptr[:-1], arity)
        position += LARGEST_CLUSTER * np.repeat(np.arange(arity.size), arity)
        by_variable = np.argsort(clusters.variables, kind="stable")
        self._inside = (
            offsets(np.bincount(clusters.variables, minlength=graph.n_variables)),
            position[by_variable],
        )

    def _make_room(self, pairs: int, joint: int) -> None:
        self.room = Room(np.empty(pairs), np.empty(pairs), np.empty(joint))

    def room_for(self, members: Int32Array) -> Room:
        """Return scratch that is enough for these clusters as well."""
        joint, pairs = self._sizes(members)
        self._make_room(
            max(self.room.pairs.size, int(pairs.max(initial=1))),
            max(self.room.joint.size, int(joint.max(initial=1)) if members.shape[1] > 3 else 1),
        )
        return self.room

    def new_ones(self, found: Int32Array) -> tuple[Int32Array, IntArray]:
        """Return the rows that are no cluster yet, without repeats, and where they stand."""
        arity = found.shape[1]
        clusters = self.arrays
        which = np.flatnonzero(np.diff(clusters.ptr) == arity)
        known = clusters.variables[clusters.ptr[which][:, None] + np.arange(arity)]
        rows = np.concatenate([known, found])
        # Sorting is stable, so known ones come before their repeats.
        order = np.lexsort(rows.T[::-1])
        differ = (rows[order[1:]] != rows[order[:-1]]).any(axis=1)
        first = order[np.concatenate([[True], differ])] if len(order) else order
        first = np.sort(first[first >= len(known)]) - len(known)
        return found[first], first

    # -------------------------------------------------------------- sweeps

    @property
    def count(self) -> int:
        """Number of clusters."""
        return int(self.arrays.table.size)

    def sweep(self, run: Run, backwards: bool) -> bool:
        """Sweep over all variables, factors and clusters once; return False if time ran out."""
        step = -1 if backwards else 1
        for begin, end in self._stars[::step]:
            if run.should_stop():
                return False
            sweep_stars(self.g, begin, end, backwards, self.dual, self.hard, self._work)
        for begin, end in self._factors[::step]:
            if run.should_stop():
                return False
            sweep_factors(self.g, begin, end, backwards, self.dual, self.hard, self._work)
        for begin, end in self._clusters[::step]:
            if run.should_stop():
                return False
            sweep_clusters(
                self.g, begin, end, backwards, self.dual, self.arrays, self.hard, self.room
            )
        return True

    def share_out(self) -> None:
        """Move all that tells labels apart from the variables into the terms."""
        sweep_stars(self.g, 0, self.graph.n_variables, False, self.dual, self.hard, self._work)

    def bound(self) -> float:
        """Return the lower bound, less what rounding may have added; ``inf`` if infeasible."""
        own = self._pool[self._shared :]
        own[:] = np.where(np.isinf(own), np.inf, self._base)
        scale = pass_on(self.g, self.arrays) + refresh(self.g, self.dual)
        pairs = sum_of_least(self.g, self.dual, self.hard, self._work)
        if math.isinf(pairs):
            return math.inf
        least = np.empty(self.count)
        least_of_clusters(self.g, self.dual, self.arrays, self.hard, self.room, least)
        if np.isinf(least).any():
            return math.inf
        # numpy adds pairwise, so that the sum is good to the last digits.
        total = float(least.sum())
        scale += float(np.abs(least).sum()) + abs(pairs) + abs(self.graph.constant)
        return pairs + total + self.graph.constant - ULPS * scale

    def decode(self, backwards: bool) -> IntArray:
        """Return the labelling that the reparametrisation suggests."""
        n = self.graph.n_variables
        x = np.empty(n, dtype=np.int64)
        order = np.arange(n)[:: -1 if backwards else 1].copy()
        decode(
            self.g, order, self.dual, self.arrays, *self._inside, self.hard, self._work,
            self._infinite, x,
        )  # fmt: skip
        return x


def pair_keys(n: int, edges: Int32Array) -> npt.NDArray[np.int64]:
    """Return ``min * n + max`` of the ends of each edge."""
    return np.asarray(edges.min(axis=1).astype(np.int64) * n + edges.max(axis=1))
