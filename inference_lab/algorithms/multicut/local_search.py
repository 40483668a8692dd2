"""Local search over partitions: joins of clusters, moves of vertices, simulated annealing."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from inference_lab._numba import inlined, lean_kernel
from inference_lab.algorithms.multicut.signed_graph import SignedGraph, signed_graph
from inference_lab.graph.arrays import FloatArray, IntArray

#: Proposals between two checks of the clock: some tens of milliseconds.
_WORK = 100_000
#: Sweeps of the shortest anneal.
_SWEEPS = 1000
#: Most numbers in the tables of an anneal (512 MB).
_TABLE = 64_000_000
#: Gains below this share of `SignedGraph.scale` are rounding.
_RELATIVE_GAIN = 1e-12
#: First and last temperature of an anneal, relative to `SignedGraph.scale`. In the same time, those
#: from .25 or less end worse (CP-Lib's CPn45-3, and random weights, 500 to 1500 vertices).
HOT, COLD = 0.4, 0.03
#: With more clusters than this, this many in `clusters` proposals are the best cluster, the others
#: random ones. The best one always is three times closer to the best known values on random weights
#: (about ten clusters), but ten times further on CP-Lib's "lecturers" (a hundred clusters).
SCANNED = 16


def consecutive(labels: IntArray) -> IntArray:
    """Return the same partition with clusters numbered from 0 in the order of their labels."""
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)


def improve(g: SignedGraph, labels: IntArray, max_clusters: int) -> IntArray:
    """Alternate moves of vertices and joins of clusters until neither gains.

    The result has at most `max_clusters` clusters if `labels` has.
    """
    tolerance = _RELATIVE_GAIN * g.scale
    labels = consecutive(labels)
    while True:
        moved = labels.copy()
        sums, sizes = np.zeros(g.n + 1), np.zeros(g.n + 1, dtype=np.int64)
        sizes[: moved.max(initial=-1) + 1] = np.bincount(moved)
        descend(g, moved, sizes, sums, max_clusters, tolerance)
        joined = join(g, consecutive(moved), tolerance)
        if np.array_equal(joined, labels):
            return labels
        labels = joined


def first_partition(g: SignedGraph, max_clusters: int) -> IntArray:
    """Return a partition from joins and moves."""
    labels = np.arange(g.n)
    if g.weights.size < g.n**1.5:
        # Joins find more than moves on sparse graphs, but take many rounds on dense ones.
        labels = join(g, labels, 0.0)
    return improve(g, labels % max(1, max_clusters), max_clusters)


def can_anneal(g: SignedGraph, max_clusters: int) -> bool:
    """Whether the tables of an anneal fit into memory, and some edge attracts."""
    return g.n * (g.n + max_clusters) <= _TABLE and g.scale > 0.0


def annealed(
    g: SignedGraph,
    max_clusters: int,
    number: int,
    rng: np.random.Generator,
    spent: Callable[[], float] = lambda: 0.0,
) -> tuple[IntArray, bool]:
    """Return a partition from anneal 1, 2, ... of a series, and whether it was complete.

    The lengths are 1, 2, 1, 4, 1, 2, 1, 8, ... times 1000 sweeps, so that every length gets the
    same share of the time (M. Luby, A. Sinclair, D. Zuckerman, "Optimal speedup of Las Vegas
    algorithms", Information Processing Letters 47, 1993, but for the order). `spent` returns the
    used share of the remaining time, which the temperature follows if it is ahead of the sweeps.
    """
    sweeps = _SWEEPS * (number & -number)
    clusters = start_clusters(g, max_clusters)
    chunk = max(1, _WORK // g.n)
    for at in range(0, sweeps, chunk):
        used = spent()
        if used >= 1.0:
            return improve(g, clusters.best, max_clusters), False
        shares = np.maximum(used, np.arange(at, min(at + chunk, sweeps)) / sweeps)
        temperatures = g.scale * (HOT + (COLD - HOT) * shares)
        draws = g.n * shares.size
        anneal(clusters, temperatures, rng.random(draws), rng.standard_exponential(draws))
    return improve(g, clusters.best, max_clusters), True


def join(g: SignedGraph, labels: IntArray, tolerance: float) -> IntArray:
    """Join pairs of clusters that are best for each other until no pair gains.

    Rounds of such pairs contain the heaviest edge each time, as greedy additive edge contraction
    does, and take O(edges) (Keuper et al. 2015, algorithm 1, made parallel).
    """
    edges, weights = g.edges()
    h = signed_graph(int(labels.max(initial=-1)) + 1, labels[edges], weights)
    while h.weights.size and h.weights.max() > tolerance:
        first = np.repeat(np.arange(h.n), np.diff(h.ptr))
        filled = np.flatnonzero(np.diff(h.ptr))
        maxima = np.zeros(h.n)
        maxima[filled] = np.maximum.reduceat(h.weights, h.ptr[filled])
        heaviest = np.flatnonzero((h.weights == maxima[first]) & (h.weights > tolerance))
        best = np.full(h.n, -1)
        best[first[heaviest[::-1]]] = h.neighbours[heaviest[::-1]]
        candidates = np.flatnonzero(best >= 0)
        mutual = candidates[
            (best[best[candidates]] == candidates) & (candidates < best[candidates])
        ]
        if mutual.size == 0:
            # Ties in a circle of clusters: one of the heaviest pairs is joined.
            at = int(np.argmax(h.weights))
            mutual = np.array([first[at]])
            best[first[at]] = h.neighbours[at]
        target = np.arange(h.n)
        target[best[mutual]] = mutual
        target = consecutive(target)
        edges, weights = h.edges()
        h = signed_graph(int(target.max()) + 1, target[edges], weights)
        labels = target[labels]
    return labels


@lean_kernel
def descend(
    g: SignedGraph,
    x: IntArray,
    sizes: IntArray,
    sums: FloatArray,
    max_clusters: int,
    tolerance: float,
) -> None:
    """Move vertices to their best clusters, or to new ones, until no move gains."""
    # ``sizes`` and ``sums`` have room for n + 1 clusters; ``sums`` is 0 before and after.
    n = x.size
    count = 0
    for a in range(n):
        count += sizes[a] > 0
    free = 0
    quiet = 0
    v = 0
    while quiet < n:
        old = x[v]
        for p in range(g.ptr[v], g.ptr[v + 1]):
            sums[x[g.neighbours[p]]] += g.weights[p]
        new = old
        gain = sums[old] + tolerance
        for p in range(g.ptr[v], g.ptr[v + 1]):
            a = x[g.neighbours[p]]
            if sums[a] > gain:
                gain = sums[a]
                new = a
        if gain < 0.0 and sizes[old] > 1 and count < max_clusters:
            while sizes[free] > 0:
                free = free + 1 if free < n else 0
            new = free
        for p in range(g.ptr[v], g.ptr[v + 1]):
            sums[x[g.neighbours[p]]] = 0.0
        sums[old] = 0.0
        quiet += 1
        if new != old:
            count += (sizes[new] == 0) - (sizes[old] == 1)
            sizes[old] -= 1
            sizes[new] += 1
            x[v] = new
            quiet = 0
        v += 1
        if v == n:
            v = 0


class Partition(NamedTuple):
    """A partition, with the weight between each cluster and each vertex.

    * ``x`` (n,): the cluster of each vertex, below the capacity K;
    * ``sizes`` (K,): numbers of members; ``slots`` (K,): all clusters, those with members first;
      ``place`` (K,): their positions there; ``occupied`` (1,): number of clusters with members;
    * ``table`` (K n,): ``table[c n + v]`` is the weight between v and the members of c;
    * ``dense`` (n n,): the weights as a matrix;
    * ``best`` (n,), ``value`` (2,): the best partition, the gain of the present one over the first,
      and of the best one.
    """

    x: IntArray
    sizes: IntArray
    slots: IntArray
    place: IntArray
    occupied: IntArray
    table: FloatArray
    dense: FloatArray
    best: IntArray
    value: FloatArray


def start_clusters(g: SignedGraph, capacity: int) -> Partition:
    """Return singletons, or all vertices in one cluster if there is no room for them."""
    n = g.n
    dense = csr_array((g.weights, g.neighbours, g.ptr), shape=(n, n)).toarray()
    single = capacity >= n
    sizes = np.zeros(capacity, dtype=np.int64)
    sizes[: n if single else 1] = 1 if single else n
    table = np.zeros((capacity, n))
    table[: n if single else 1] = dense if single else dense.sum(axis=0)
    x = np.arange(n) if single else np.zeros(n, dtype=np.int64)
    count = np.array([n if single else 1])
    slots = np.arange(capacity)
    return Partition(
        x, sizes, slots, slots.copy(), count, table.ravel(), dense.ravel(), x.copy(), np.zeros(2)
    )


@inlined
def _swap_slots(c: Partition, a: int, at: int) -> None:
    """Exchange cluster `a` with the cluster at a position of the list."""
    other = c.slots[at]
    here = c.place[a]
    c.slots[here] = other
    c.place[other] = here
    c.slots[at] = a
    c.place[a] = at


@inlined
def _move(c: Partition, v: int, new: int) -> None:
    """Move a vertex to a cluster, perhaps an empty one."""
    n = c.x.size
    old = c.x[v]
    old_row = c.table[old * n : old * n + n]
    new_row = c.table[new * n : new * n + n]
    weights = c.dense[v * n : v * n + n]
    if c.sizes[new] == 0:
        _swap_slots(c, new, c.occupied[0])
        c.occupied[0] += 1
        # Removes rounding errors left by former members.
        new_row[:] = 0.0
    c.value[0] += new_row[v] - old_row[v]
    c.x[v] = new
    c.sizes[new] += 1
    c.sizes[old] -= 1
    if c.sizes[old] == 0:
        c.occupied[0] -= 1
        _swap_slots(c, old, c.occupied[0])
    # Two loops over slices, which the compiler vectorises.
    for u in range(n):
        old_row[u] -= weights[u]
    for u in range(n):
        new_row[u] += weights[u]


@lean_kernel
def anneal(
    c: Partition, temperatures: FloatArray, uniforms: FloatArray, exponentials: FloatArray
) -> None:
    """Sweep over the vertices at each temperature, and keep the best state.

    A vertex proposes the best of the other clusters, or with many clusters usually a random one,
    and Metropolis' rule accepts or not.
    """
    # Each proposal takes a uniform number for its cluster, and an exponential one for acceptance.
    n = c.x.size
    at = 0
    for t in range(temperatures.size):
        for v in range(n):
            old = c.x[v]
            new = old
            gain = -np.inf
            if c.occupied[0] < c.sizes.size and c.sizes[old] > 1:
                new = c.slots[c.occupied[0]]
                gain = 0.0
            excess = c.occupied[0] - SCANNED
            if uniforms[at] * c.occupied[0] < excess:
                draw = int(uniforms[at] * c.occupied[0] / excess * (c.occupied[0] + 1))
                if draw < c.occupied[0]:
                    new = c.slots[draw]
                    gain = c.table[new * n + v]
            else:
                for s in range(c.occupied[0]):
                    a = c.slots[s]
                    if a != old and c.table[a * n + v] > gain:
                        gain = c.table[a * n + v]
                        new = a
            if new != old and c.table[old * n + v] - gain < temperatures[t] * exponentials[at]:
                _move(c, v, new)
            at += 1
        if c.value[0] > c.value[1]:
            c.value[1] = c.value[0]
            for v in range(n):
                c.best[v] = c.x[v]
