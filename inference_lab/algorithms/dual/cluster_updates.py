"""Block-coordinate updates of clusters by min-marginals and the handshake of MPLP++.

A. Globerson, T. Jaakkola, NIPS 2007, sec. 6; S. Tourani et al., ECCV 2018.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from inference_lab._numba import inlined, inlined_minimum, lean_kernel
from inference_lab.algorithms.dual.reparametrisation import ClusterArrays, Dual
from inference_lab.graph.arrays import TABLE, FloatArray, GraphArrays
from inference_lab.kernels.messages import edge_cost


class Room(NamedTuple):
    """Scratch for one cluster: two tables for each of its pairs."""

    pairs: FloatArray
    marginals: FloatArray


# ------------------------------------------------------------------ the pairs of one cluster


@inlined
def ends_of(g: GraphArrays, e: int) -> tuple[int, int, int, int]:
    """Return the ends of an edge, ascending, and the strides of their labels in its table."""
    i, j = g.edges[e, 0], g.edges[e, 1]
    if i < j:
        return i, j, g.cardinalities[j], 1
    return j, i, 1, g.cardinalities[j]


@inlined
def load_pair(g: GraphArrays, dual: Dual, e: int, hard: bool, out: FloatArray) -> int:
    """Write the remaining costs of edge ``e``, smaller variable first; return its size."""
    i, j, row, column = ends_of(g, e)
    ki, kj = g.cardinalities[i], g.cardinalities[j]
    flip = g.edges[e, 0] != i
    pi = dual.half_ptr[2 * e + (1 if flip else 0)]
    pj = dual.half_ptr[2 * e + (0 if flip else 1)]
    if g.kinds[e] == TABLE:
        weight, start = g.weights[e], g.offsets[e]
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
                # Diagonal terms are symmetric.
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
    return int(ki * kj)


@inlined
def load_pairs(
    g: GraphArrays, c: int, dual: Dual, clusters: ClusterArrays, hard: bool, out: FloatArray
) -> None:
    """Write the remaining costs of a cluster's pairs, without the cluster's own parts."""
    start = clusters.part_ptr[c]
    at = 0
    for e in clusters.edges[c]:
        stop = at + load_pair(g, dual, e, hard, out[at:])
        for x in range(at, stop):
            out[x] -= clusters.parts[start + x]
        at = stop


@inlined
def store_pairs(
    g: GraphArrays, c: int, clusters: ClusterArrays, hard: bool, costs: FloatArray
) -> None:
    """Store the pair costs of a cluster; the parts of its pairs are their negation."""
    start = clusters.part_ptr[c]
    at = 0
    for e in clusters.edges[c]:
        i, j, row, column = ends_of(g, e)
        for a in range(g.cardinalities[i]):
            for b in range(g.cardinalities[j]):
                entry = g.offsets[e] + a * row + b * column
                if hard and np.isinf(costs[at]):
                    clusters.pool[entry] = np.inf
                else:
                    clusters.pool[entry] -= costs[at] + clusters.parts[start + at]
                    clusters.parts[start + at] = -costs[at]
                at += 1


@inlined
def load_kept(g: GraphArrays, c: int, dual: Dual, clusters: ClusterArrays, out: FloatArray) -> None:
    """Write the pair costs that a cluster keeps, ``+inf`` for labels ruled out."""
    start = clusters.part_ptr[c]
    at = 0
    for e in clusters.edges[c]:
        i, j, row, column = ends_of(g, e)
        for a in range(g.cardinalities[i]):
            for b in range(g.cardinalities[j]):
                out[at] = -clusters.parts[start + at]
                if (
                    np.isinf(g.pairwise[g.offsets[e] + a * row + b * column])
                    or np.isinf(dual.unary[g.unary_ptr[i] + a])
                    or np.isinf(dual.unary[g.unary_ptr[j] + b])
                ):
                    out[at] = np.inf
                at += 1


@inlined
def take_off(size: int, costs: FloatArray, marginals: FloatArray, share: float, hard: bool) -> None:
    """Subtract a share of the costs given to a pair from the costs that the cluster keeps."""
    if hard:
        for x in range(size):
            costs[x] = np.inf if np.isinf(marginals[x]) else costs[x] - share * marginals[x]
    else:
        for x in range(size):
            costs[x] -= share * marginals[x]


# ------------------------------------------------------------------ clusters of three


@inlined
def three_tables(
    ki: int, kj: int, kl: int, pairs: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return views of the tables of the pairs (i, j), (i, l) and (j, l) of three variables."""
    return pairs, pairs[ki * kj :], pairs[ki * (kj + kl) :]


@inlined_minimum
def marginals_of_three(ki: int, kj: int, kl: int, room: Room) -> None:
    """Write the min-marginals of three variables for their three pairs to ``room.marginals``."""
    first, second, third = three_tables(ki, kj, kl, room.pairs)
    to_first, to_second, to_third = three_tables(ki, kj, kl, room.marginals)
    for x in range(ki * kl):
        to_second[x] = np.inf
    for x in range(kj * kl):
        to_third[x] = np.inf
    for a in range(ki):
        for b in range(kj):
            value = first[a * kj + b]
            low = np.inf
            for c in range(kl):
                total = value + (second[a * kl + c] + third[b * kl + c])
                low = min(low, total)
                to_second[a * kl + c] = min(to_second[a * kl + c], total)
                to_third[b * kl + c] = min(to_third[b * kl + c], total)
            to_first[a * kj + b] = low


@inlined_minimum
def marginals_of_pair(pair: int, ki: int, kj: int, kl: int, room: Room) -> None:
    """Write the min-marginals of three variables for pair 0, (i, j), 1, (i, l), or 2, (j, l)."""
    first, second, third = three_tables(ki, kj, kl, room.pairs)
    out = three_tables(ki, kj, kl, room.marginals)[pair]
    size = ki * kj if pair == 0 else (ki * kl if pair == 1 else kj * kl)
    for x in range(size):
        out[x] = np.inf
    for a in range(ki):
        for b in range(kj):
            value = first[a * kj + b]
            if pair == 0:
                low = np.inf
                for c in range(kl):
                    low = min(low, second[a * kl + c] + third[b * kl + c])
                out[a * kj + b] = value + low
            else:
                to = a * kl if pair == 1 else b * kl
                for c in range(kl):
                    total = value + (second[a * kl + c] + third[b * kl + c])
                    out[to + c] = min(out[to + c], total)


@inlined
def redistribute_three(ki: int, kj: int, kl: int, backwards: bool, hard: bool, room: Room) -> None:
    """Redistribute the costs of three variables to their pairs; ``room.pairs`` is the rest."""
    # Each pair gets a third of its min-marginal. The remaining slack is then pushed to each pair in
    # turn, so that the cluster keeps none.
    sizes = ki * kj, ki * kl, kj * kl
    costs = three_tables(ki, kj, kl, room.pairs)
    marginals = three_tables(ki, kj, kl, room.marginals)
    marginals_of_three(ki, kj, kl, room)
    take_off(sizes[0] + sizes[1] + sizes[2], room.pairs, room.marginals, 1.0 / 3.0, hard)
    for turn in range(3):
        pair = 2 - turn if backwards else turn
        marginals_of_pair(pair, ki, kj, kl, room)
        take_off(sizes[pair], costs[pair], marginals[pair], 1.0, hard)


@inlined_minimum
def least_of_three(ki: int, kj: int, kl: int, pairs: FloatArray) -> float:
    """Return the least cost of three variables."""
    first, second, third = three_tables(ki, kj, kl, pairs)
    low = np.inf
    for a in range(ki):
        for b in range(kj):
            value = first[a * kj + b]
            inner = np.inf
            for c in range(kl):
                inner = min(inner, second[a * kl + c] + third[b * kl + c])
            low = min(low, value + inner)
    return low


# ------------------------------------------------------------------ all clusters


@inlined
def sizes_of(g: GraphArrays, c: int, clusters: ClusterArrays) -> tuple[int, int, int]:
    """Return the numbers of labels of a cluster's variables."""
    variables = clusters.variables
    k = g.cardinalities
    return k[variables[c, 0]], k[variables[c, 1]], k[variables[c, 2]]


@lean_kernel
def update_clusters(
    g: GraphArrays,
    begin: int,
    end: int,
    backwards: bool,
    dual: Dual,
    clusters: ClusterArrays,
    hard: bool,
    room: Room,
) -> None:
    """Update the clusters from `begin` to `end`, in order or backwards."""
    for turn in range(end - begin):
        c = end - 1 - turn if backwards else begin + turn
        ki, kj, kl = sizes_of(g, c, clusters)
        load_pairs(g, c, dual, clusters, hard, room.pairs)
        redistribute_three(ki, kj, kl, backwards, hard, room)
        store_pairs(g, c, clusters, hard, room.pairs)


@lean_kernel
def least_of_clusters(
    g: GraphArrays, dual: Dual, clusters: ClusterArrays, hard: bool, room: Room, out: FloatArray
) -> None:
    """Write the minimum of the costs that each cluster keeps, shape (C,)."""
    for c in range(out.size):
        ki, kj, kl = sizes_of(g, c, clusters)
        load_kept(g, c, dual, clusters, room.pairs)
        out[c] = least_of_three(ki, kj, kl, room.pairs)


@lean_kernel
def pass_on(g: GraphArrays, clusters: ClusterArrays) -> float:
    """Add the clusters' parts to the tables of the pairs; return the scale of rounding."""
    scale = 0.0
    start = 0
    for c in range(3 * len(clusters.variables)):
        e = clusters.edges[c // 3, c % 3]
        i, j, row, column = ends_of(g, e)
        largest = 0.0
        for a in range(g.cardinalities[i]):
            for b in range(g.cardinalities[j]):
                part = clusters.parts[start]
                largest = max(largest, abs(part))
                clusters.pool[g.offsets[e] + a * row + b * column] += part
                start += 1
        scale += largest
    return scale
