"""Descent by single moves and Kempe chains, with centroids updated after each move.

J. A. Hartigan, "Clustering Algorithms", Wiley 1975, ch. 4; M. Telgarsky, A. Vattani, "Hartigan's
method: k-means clustering without Voronoi", AISTATS 2010. A Kempe chain exchanges the units of two
clusters that hard cannot-links connect, as in local search for graph colouring.
"""

from __future__ import annotations

import numpy as np

from inference_lab._numba import kernel
from inference_lab.certificates.partition_problem import PartitionProblem
from inference_lab.graph.arrays import FloatArray, IntArray

#: A move must gain more than this share of the summed costs, so that rounding cannot cycle.
_RELATIVE_GAIN = 1e-11
#: Maximum units of a Kempe chain; longer chains hardly ever gain.
_LONGEST_CHAIN = 64


@kernel
def _chain(
    u: int,
    a: int,
    b: int,
    hard: float,
    labels: IntArray,
    pointers: IntArray,
    units: IntArray,
    same: FloatArray,
    chain: IntArray,
    inside: IntArray,
) -> int:
    """Write the units of `a` and `b` that hard pairs connect to `u`; return their number or 0."""
    chain[0] = u
    inside[u] = 1
    size = 1
    at = 0
    while at < size:
        v = chain[at]
        at += 1
        other = b if labels[v] == a else a
        for t in range(pointers[v], pointers[v + 1]):
            w = units[t]
            if same[t] >= hard and labels[w] == other and inside[w] == 0:
                if size == chain.size:
                    for s in range(size):
                        inside[chain[s]] = 0
                    return 0
                chain[size] = w
                inside[w] = 1
                size += 1
    return size


@kernel
def _gain_of_chain(
    chain: IntArray,
    size: int,
    a: int,
    b: int,
    means: FloatArray,
    mass: FloatArray,
    labels: IntArray,
    sums: FloatArray,
    masses: FloatArray,
    pointers: IntArray,
    units: IntArray,
    same: FloatArray,
    differ: FloatArray,
    inside: IntArray,
) -> float:
    """Return the change of the objective if the units of a chain swap clusters."""
    moved = 0.0
    shift = np.zeros(means.shape[1])
    pairs = 0.0
    for s in range(size):
        v = chain[s]
        old = labels[v]
        new = b if old == a else a
        sign = 1.0 if old == a else -1.0
        moved += sign * mass[v]
        for j in range(shift.size):
            shift[j] += sign * mass[v] * means[v, j]
        for t in range(pointers[v], pointers[v + 1]):
            w = units[t]
            # Pairs inside the chain do not change, whether together or apart.
            if inside[w] == 0:
                if labels[w] == old:
                    pairs += differ[t] - same[t]
                elif labels[w] == new:
                    pairs += same[t] - differ[t]
    # Neither cluster becomes empty, because both ends of the pair that blocks a move swap clusters.
    mass_a, mass_b = masses[a] - moved, masses[b] + moved
    before = after = 0.0
    for j in range(shift.size):
        before += sums[a, j] ** 2 / masses[a] + sums[b, j] ** 2 / masses[b]
        after += (sums[a, j] - shift[j]) ** 2 / mass_a + (sums[b, j] + shift[j]) ** 2 / mass_b
    # The margin ensures that rounding errors do not count as a gain.
    return float(before - after + pairs + _RELATIVE_GAIN * (before + after + abs(pairs)))


@kernel
def _move(
    u: int,
    to: int,
    means: FloatArray,
    mass: FloatArray,
    labels: IntArray,
    sums: FloatArray,
    masses: FloatArray,
    centroids: FloatArray,
    counts: IntArray,
) -> None:
    """Move a unit to another cluster, and update both centroids."""
    for h, sign in ((labels[u], -1), (to, 1)):
        counts[h] += sign
        masses[h] = masses[h] + sign * mass[u] if counts[h] > 0 else 0.0
        for j in range(means.shape[1]):
            sums[h, j] = sums[h, j] + sign * mass[u] * means[u, j] if counts[h] > 0 else 0.0
            centroids[h, j] = sums[h, j] / masses[h] if counts[h] > 0 else 0.0
    labels[u] = to


@kernel
def _descend(
    means: FloatArray,
    mass: FloatArray,
    pointers: IntArray,
    units: IntArray,
    same: FloatArray,
    differ: FloatArray,
    hard: float,
    longest: int,
    order: IntArray,
    labels: IntArray,
    k: int,
    max_passes: int,
) -> int:
    """Move units while this lowers the objective; return the number of passes."""
    m, d = means.shape
    sums, masses = np.zeros((k, d)), np.zeros(k)
    centroids = np.zeros((k, d))
    counts = np.zeros(k, dtype=np.int64)
    pairs = np.zeros(k)
    join = np.zeros(k)
    chain = np.empty(longest, dtype=np.int64)
    inside = np.zeros(m, dtype=np.int64)
    idle = 0
    for passed in range(max_passes):
        # Recomputed in each pass, so that rounding errors do not accumulate.
        counts[:] = 0
        masses[:] = 0.0
        sums[:] = 0.0
        for u in range(m):
            counts[labels[u]] += 1
            masses[labels[u]] += mass[u]
            sums[labels[u]] += mass[u] * means[u]
        for h in range(k):
            centroids[h] = sums[h] / masses[h] if counts[h] > 0 else sums[h]
        for u in order:
            if idle == m:
                return passed + 1
            idle += 1
            a, w = labels[u], mass[u]
            blocked = False
            pairs[:] = 0.0
            for t in range(pointers[u], pointers[u + 1]):
                pairs[labels[units[t]]] += same[t] - differ[t]
            for h in range(k):
                away = 0.0
                for j in range(d):
                    away += (means[u, j] - centroids[h, j]) ** 2
                if h == a:
                    join[h] = away * w * masses[a] / (masses[a] - w) if counts[a] > 1 else 0.0
                elif counts[h] > 0:
                    join[h] = away * w * masses[h] / (masses[h] + w)
                else:
                    join[h] = 0.0
            best = a
            best_change = -_RELATIVE_GAIN * (join[a] + abs(pairs[a]))
            for h in range(k):
                if h == a:
                    continue
                change = join[h] - join[a] + pairs[h] - pairs[a]
                if change < best_change:
                    best, best_change = h, change
                blocked |= pairs[h] >= 0.5 * hard and join[h] < join[a]
            if best != a:
                _move(u, best, means, mass, labels, sums, masses, centroids, counts)
                idle = 0
                continue
            if not blocked:
                continue
            partner = a
            best_change = 0.0
            for h in range(k):
                if h == a or pairs[h] < 0.5 * hard or join[h] >= join[a]:
                    continue
                size = _chain(u, a, h, hard, labels, pointers, units, same, chain, inside)
                if size == 0:
                    continue
                change = _gain_of_chain(
                    chain,
                    size,
                    a,
                    h,
                    means,
                    mass,
                    labels,
                    sums,
                    masses,
                    pointers,
                    units,
                    same,
                    differ,
                    inside,
                )
                for s in range(size):
                    inside[chain[s]] = 0
                if change < best_change:
                    partner, best_change = h, change
            if partner != a:
                size = _chain(u, a, partner, hard, labels, pointers, units, same, chain, inside)
                for s in range(size):
                    v = chain[s]
                    inside[v] = 0
                    to = partner if labels[v] == a else a
                    _move(v, to, means, mass, labels, sums, masses, centroids, counts)
                idle = 0
    return max_passes


@kernel
def _place(
    means: FloatArray,
    mass: FloatArray,
    pointers: IntArray,
    units: IntArray,
    same: FloatArray,
    differ: FloatArray,
    order: IntArray,
    centroids: FloatArray,
) -> IntArray:
    """Assign each unit in order to its cheapest cluster, given the pairs with earlier units."""
    k, d = centroids.shape
    labels = np.full(mass.size, -1, dtype=np.int64)
    costs = np.empty(k)
    for u in order:
        for h in range(k):
            away = 0.0
            for j in range(d):
                away += (means[u, j] - centroids[h, j]) ** 2
            costs[h] = mass[u] * away
        for t in range(pointers[u], pointers[u + 1]):
            h = labels[units[t]]
            if h >= 0:
                costs[h] += same[t] - differ[t]
        labels[u] = costs.argmin()
    return labels


def placed(problem: PartitionProblem, centroids: FloatArray, rng: np.random.Generator) -> IntArray:
    """Return labels (m,) near centroids (k, d), by one pass in a random order."""
    order = rng.permutation(problem.size)
    return _place(problem.means, problem.mass, *problem.neighbours, order, centroids)


def descend(
    problem: PartitionProblem,
    labels: IntArray,
    rng: np.random.Generator,
    max_passes: int = 1_000,
) -> IntArray:
    """Return labels that no single move and no Kempe chain improves, starting from given labels.

    O(m k d) per pass. The objective never rises; a violated hard pair costs more than all others.
    """
    local_minimum = np.array(labels, dtype=np.int64)
    _descend(
        problem.means,
        problem.mass,
        *problem.neighbours,
        problem.price,
        min(_LONGEST_CHAIN, problem.size),
        rng.permutation(problem.size),
        local_minimum,
        problem.k,
        max_passes,
    )
    return local_minimum
