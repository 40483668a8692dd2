"""Linear inequalities of the relaxation of Peng and Wei: pairs, triangles, cliques, soft pairs.

In unscaled entries ``Z_uv = 1 / N_h`` inside cluster ``h``, else 0, these hold for partitions:

- pairs: ``Z_uv <= Z_uu``;
- triangles: ``Z_uv + Z_uw <= Z_uu + Z_vw``;
- cliques: two of ``k + 1`` units share a cluster, so the sum over their pairs is at least ``1 / N``
  for the greatest mass ``N`` of a cluster.

V. Piccialli, A. M. Sudoso, A. Wiegele, "SOS-SDP: an exact solver for minimum sum-of-squares
clustering", INFORMS J. Comput. 34 (2022), section 3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from inference_lab._numba import kernel
from inference_lab.certificates.partition_problem import PartitionProblem
from inference_lab.graph.arrays import FloatArray, IntArray

#: Violations below this share of a mean entry are ignored.
_LEAST_VIOLATION = 1e-3
#: Triangles added at once, per unit.
_TRIANGLES_EACH = 6


@dataclass(frozen=True)
class Cuts:
    """Inequalities given by their units, with multipliers in units of the objective.

    ``units`` has an array (t, 2) of pairs, (t, 3) of triangles with ``u`` first, and (t, k + 1) of
    cliques; ``multipliers`` has an array (t,) for each.
    """

    units: tuple[IntArray, ...]
    multipliers: tuple[FloatArray, ...]

    @classmethod
    def none(cls, k: int) -> Cuts:
        """Return no inequalities for `k` clusters."""
        sizes = (2, 3, k + 1)
        units = tuple(np.zeros((0, size), dtype=np.int64) for size in sizes)
        return cls(units, (np.zeros(0),) * 3)

    def __len__(self) -> int:
        """Return the number of inequalities."""
        return sum(map(len, self.units))

    def joined(self, other: Cuts) -> Cuts:
        """Return the union: these inequalities, then the new ones of `other`."""
        units, multipliers = [], []
        for kind in range(3):
            both = np.concatenate([self.units[kind], other.units[kind]])
            weights = np.concatenate([self.multipliers[kind], other.multipliers[kind]])
            first = np.sort(np.unique(both, axis=0, return_index=True)[1])
            units.append(both[first])
            multipliers.append(weights[first])
        return Cuts(tuple(units), tuple(multipliers))

    def with_multipliers(self, multipliers: FloatArray) -> Cuts:
        """Return the inequalities with other multipliers, in the order of `rows_of`."""
        ends = np.cumsum([len(rows) for rows in self.units])[:-1]
        return Cuts(self.units, tuple(np.split(multipliers, ends)))

    def active(self) -> Cuts:
        """Return the inequalities with multipliers above zero."""
        masks = [weights > 0 for weights in self.multipliers]
        return Cuts(
            tuple(rows[mask] for rows, mask in zip(self.units, masks, strict=True)),
            tuple(rows[mask] for rows, mask in zip(self.multipliers, masks, strict=True)),
        )

    def contracted(self, of_unit: IntArray) -> Cuts:
        """Return the inequalities for merged units, without those whose units coincide."""
        units, multipliers = [], []
        for rows, weights in zip(self.units, self.multipliers, strict=True):
            mapped = of_unit[rows]
            ordered = np.sort(mapped, axis=1)
            apart = (ordered[:, 1:] != ordered[:, :-1]).all(axis=1)
            units.append(mapped[apart])
            multipliers.append(weights[apart])
        return Cuts(tuple(units), tuple(multipliers))


@dataclass(frozen=True)
class LinearRows:
    """Inequalities ``a . Y >= b`` on a symmetric matrix; `weight` covers both triangles.

    ``multiplier_bound`` limits the multipliers: it is the cost per unit of violation.
    """

    pointers: IntArray
    first: IntArray
    second: IntArray
    weight: FloatArray
    bound: FloatArray
    multiplier_bound: FloatArray

    @property
    def squared(self) -> FloatArray:
        """Squared Frobenius norm of each row."""
        squares = np.where(self.first == self.second, self.weight**2, 0.5 * self.weight**2)
        return np.add.reduceat(squares, self.pointers[:-1]) if self.bound.size else np.zeros(0)

    def adjoint(self, multipliers: FloatArray, size: int) -> FloatArray:
        """Return the sum of the rows, as matrices (size, size), times their multipliers."""
        total = np.zeros((size, size))
        entries = 0.5 * self.weight * np.repeat(multipliers, np.diff(self.pointers))
        np.add.at(total, (self.first, self.second), entries)
        np.add.at(total, (self.second, self.first), entries)
        return total


def greatest_mass(problem: PartitionProblem, clusters: int = 1) -> float:
    """Return an upper limit on the mass of `clusters` clusters together in a best partition."""
    total = float(problem.mass.sum())
    if (problem.same < problem.differ).any():
        return total
    # A cluster can be split without cost, so no cluster needs to be empty.
    others = max(min(problem.k, problem.size) - clusters, 0)
    return total - float(np.sort(problem.mass)[:others].sum())


def costs_of_pairs(
    problem: PartitionProblem,
) -> tuple[float, IntArray, FloatArray, IntArray, FloatArray]:
    """Return the cost of soft pairs as a constant, and costs if together and if apart."""
    soft = np.isfinite(problem.same)
    ends, same, differ = problem.ends[soft], problem.same[soft], problem.differ[soft]
    excess = same - differ
    constant = float(np.minimum(same, differ).sum())
    return constant, ends[excess > 0], excess[excess > 0], ends[excess < 0], -excess[excess < 0]


def rows_of(problem: PartitionProblem, cuts: Cuts) -> LinearRows:
    """Return the rows of the cuts, and then a row for each soft pair, on ``Y``.

    A soft pair costs its weight times the greater of two linear bounds of its indicator. The first
    is part of the costs, and the row is the excess of the second over it. A separated pair ``u, v``
    is in clusters of masses ``N`` and ``N'`` with ``(1 / N + 1 / N') / 2 >= 2 / (N + N')``; a joint
    pair has ``1 / N <= Z_uv``.
    """
    u, v = cuts.units[0].T
    blocks = [_block([(u, u), (u, v)], [1.0, -1.0], 0.0)]
    u, v, w = cuts.units[1].T
    blocks.append(_block([(u, u), (v, w), (u, v), (u, w)], [1.0, 1.0, -1.0, -1.0], 0.0))
    cliques = cuts.units[2].T
    mass_limit = greatest_mass(problem)
    pairs = [(cliques[i], cliques[j]) for i in range(len(cliques)) for j in range(i)]
    blocks.append(_block(pairs, [1.0] * len(pairs), 1.0 / mass_limit))
    _, together, _, apart, _ = weighted = costs_of_pairs(problem)
    mass = problem.mass
    u, v = together.T
    joint = mass[u] + mass[v]
    half_limit = 0.5 * greatest_mass(problem, 2)
    half = np.full(len(joint), 0.5 * half_limit)
    blocks.append(_block([(u, u), (v, v), (u, v)], [half, half, joint - half_limit], 1.0))
    u, v = apart.T
    weights = [0.5 * mass[u], 0.5 * mass[v], mass_limit - 0.5 * (mass[u] + mass[v])]
    blocks.append(_block([(u, u), (v, v), (u, v)], weights, 1.0))
    caps = [np.full(len(cuts), np.inf), weighted[2], weighted[4]]
    root = np.sqrt(mass)
    first, second, weight = (
        np.concatenate([block[part].reshape(-1) for block in blocks]) for part in range(3)
    )
    lengths = np.concatenate([np.full(len(block[0]), block[0].shape[1]) for block in blocks])
    return LinearRows(
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        first,
        second,
        weight / (root[first] * root[second]),
        np.concatenate([block[3] for block in blocks]),
        np.concatenate(caps),
    )


def _block(
    entries: list[tuple[IntArray, IntArray]], weights: list[float | FloatArray], bound: float
) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
    """Return the entries, weights and bounds of rows of one form."""
    first = np.stack([one for one, _ in entries], axis=1)
    second = np.stack([other for _, other in entries], axis=1)
    count = len(first)
    values = np.stack([np.broadcast_to(np.asarray(w, dtype=np.float64), count) for w in weights], 1)
    return first, second, values, np.full(count, bound)


@kernel
def _triangles(z: FloatArray, threshold: float, others: IntArray, violation: FloatArray) -> None:
    """Write the most violated triangles of each unit, one per column.

    ``violation`` (m, c) is 0 if a unit has fewer; ``others`` (m, c, 2) has the other units.
    """
    m = len(violation)
    near = np.empty(m, dtype=np.int64)
    violation[:] = 0.0
    for u in range(m):
        size = 0
        for v in range(m):
            if v != u and z[u, v] > threshold:
                near[size] = v
                size += 1
        weakest, lowest = 0, 0.0
        for s in range(size):
            v = near[s]
            for t in range(s):
                w = near[t]
                excess = z[u, v] + z[u, w] - z[u, u] - z[v, w]
                if excess > threshold and excess > lowest:
                    violation[u, weakest] = excess
                    others[u, weakest, 0] = w
                    others[u, weakest, 1] = v
                    weakest = violation[u].argmin()
                    lowest = violation[u, weakest]


def separated(problem: PartitionProblem, z: FloatArray) -> Cuts:
    """Return the inequalities most violated by a matrix ``Z``."""
    m, k = problem.size, problem.k
    typical = k / float(problem.mass.sum())
    threshold = _LEAST_VIOLATION * typical
    excess = z - np.diagonal(z)[:, np.newaxis]
    np.fill_diagonal(excess, 0.0)
    pairs = np.stack(np.nonzero(excess > threshold), axis=1)
    pairs = pairs[np.argsort(-excess[pairs[:, 0], pairs[:, 1]], kind="stable")[: 2 * m]]
    others = np.zeros((m, 4 * _TRIANGLES_EACH, 2), dtype=np.int64)
    violation = np.empty((m, 4 * _TRIANGLES_EACH))
    _triangles(z, threshold, others, violation)
    order = np.argsort(-violation, axis=None, kind="stable")[: _TRIANGLES_EACH * m]
    order = order[violation.reshape(-1)[order] > 0.0]
    first = order // violation.shape[1]
    triangles = np.column_stack([first, others.reshape(-1, 2)[order]])
    units = (pairs.astype(np.int64), triangles, _cliques(problem, z, threshold))
    return Cuts(units, tuple(np.zeros(len(rows)) for rows in units))


def _cliques(problem: PartitionProblem, z: FloatArray, threshold: float) -> IntArray:
    """Return violated cliques, each grown greedily from a unit."""
    m, k = problem.size, problem.k
    if m <= k:
        return np.zeros((0, k + 1), dtype=np.int64)
    cliques = np.empty((m, k + 1), dtype=np.int64)
    cliques[:, 0] = np.arange(m)
    linked = z.copy()
    np.fill_diagonal(linked, np.inf)
    total = np.zeros(m)
    rows = np.arange(m)
    for size in range(1, k + 1):
        nxt = linked.argmin(axis=1)
        total += linked[rows, nxt]
        cliques[:, size] = nxt
        linked = linked + z[nxt]
        linked[rows, nxt] = np.inf
    bound = 1.0 / greatest_mass(problem)
    violated = np.flatnonzero(total < bound - threshold * bound * float(problem.mass.sum()) / k)
    violated = violated[np.argsort(total[violated], kind="stable")]
    return np.unique(np.sort(cliques[violated], axis=1), axis=0)
