"""Minimum sum-of-squares clustering of weighted units, with costs of pairs.

Points joined by hard must-links, or with the same known label, form one unit. A partition of the
units into at most ``k`` clusters costs

``J = constant - sum_h |S_h|^2 / N_h + sum_p (same_p if p is within a cluster, else differ_p)``

with ``S_h`` the sum and ``N_h`` the mass of cluster ``h``. This is the objective of `HMRFKMeans`
for squared Euclidean distances at the means of the clusters.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from inference_lab.constraints import Constraints
from inference_lab.constraints.hard_pairs import infeasible
from inference_lab.graph.arrays import FloatArray, IntArray, connected

_TINY = float(np.finfo(float).tiny)


@dataclass(frozen=True)
class PartitionProblem:
    """Units with means (m, d) around the origin, masses (m,), and pairs with finite or hard costs.

    ``ends`` (p, 2) holds each pair of units once, in rising order; ``same`` (p,) is infinite if the
    units must not share a cluster. ``of_point`` (n,) is the unit of each point.
    """

    means: FloatArray
    mass: FloatArray
    k: int
    ends: IntArray
    same: FloatArray
    differ: FloatArray
    constant: float
    of_point: IntArray

    @property
    def size(self) -> int:
        """Number of units."""
        return self.mass.size

    @cached_property
    def spread(self) -> float:
        """Sum of squares around the origin, with the constant."""
        return float(self.mass @ (self.means**2).sum(axis=1)) + self.constant

    @cached_property
    def price(self) -> float:
        """Finite cost of a violated hard pair that exceeds any difference of finite costs."""
        soft = np.where(np.isinf(self.same), 0.0, np.abs(self.same)) + np.abs(self.differ)
        return 2.0 * (self.spread + float(soft.sum())) + _TINY

    @cached_property
    def neighbours(self) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
        """The pairs as neighbour lists: pointers, units, costs if together and if apart."""
        m, p = self.size, len(self.ends)
        from_to = np.concatenate([self.ends, self.ends[:, ::-1]])
        order = np.argsort(from_to[:, 0], kind="stable")
        pointers = np.zeros(m + 1, dtype=np.int64)
        np.cumsum(np.bincount(from_to[:, 0], minlength=m), out=pointers[1:])
        which = order % p if p else order
        same = np.where(np.isinf(self.same), self.price, self.same)
        return pointers, np.ascontiguousarray(from_to[order, 1]), same[which], self.differ[which]

    def gap(self, objective: float, bound: float) -> float:
        """Return the distance of a bound to an objective as a share of the objective.

        An objective below 1e-5 of the sum of squares of all units is affected by rounding, and is
        replaced by this share of the sum.
        """
        return max(0.0, objective - bound) / max(abs(objective), 1e-5 * self.spread, _TINY)

    def unmet(self, labels: IntArray) -> int:
        """Return the number of violated hard pairs."""
        hard = self.ends[np.isinf(self.same)]
        return int((labels[hard[:, 0]] == labels[hard[:, 1]]).sum())

    def centroids(self, labels: IntArray) -> FloatArray:
        """Return the means of the clusters; empty clusters have theirs at the origin."""
        sums, masses = _sums(self.means, self.mass, labels, self.k)
        return np.asarray(sums / np.maximum(masses, _TINY)[:, np.newaxis])

    def objective(self, labels: IntArray) -> float:
        """Return ``J`` of labels (m,) from its definition, infinite if hard pairs are violated.

        Computed from distances to the means, to avoid cancellation.
        """
        away = self.means - self.centroids(labels)[labels]
        scatter = self.mass @ (away**2).sum(axis=1)
        together = labels[self.ends[:, 0]] == labels[self.ends[:, 1]]
        pairs = np.where(together, self.same, self.differ).sum()
        return float(self.constant + scatter + pairs)

    def of_units(self, labels: IntArray) -> IntArray:
        """Return the label of each unit, given the labels of all points, which agree in units."""
        unit_labels = np.empty(self.size, dtype=np.int64)
        unit_labels[self.of_point] = labels
        return unit_labels


def partition_problem(
    points: FloatArray,
    k: int,
    must_link: IntArray,
    ml_costs: FloatArray,
    cannot_link: IntArray,
    cl_costs: FloatArray,
    *,
    sample_weight: FloatArray | None = None,
    partial_labels: IntArray | None = None,
) -> PartitionProblem:
    """Return the problem for points (n, d) and the given costs of violated pairs.

    `sample_weight` (n,) are sample weights, and `partial_labels` (n,) are labels, -1 elsewhere.
    Raises `InfeasibleConstraintsError` if hard must-links join the ends of a hard cannot-link.
    """
    n = len(points)
    mass = np.ones(n) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    labels = np.full(n, -1) if partial_labels is None else partial_labels
    implied = Constraints.from_labels(labels, scheme="chains")
    apart = implied.cannot_link
    joined = np.concatenate([must_link[np.isposinf(ml_costs)], implied.must_link])
    of_point = connected(n, joined)
    sums, masses = _sums(points, mass, of_point, int(of_point.max(initial=-1)) + 1)
    means = sums / np.where(masses > 0, masses, 1.0)[:, np.newaxis]
    centre = masses @ means / masses.sum()
    within = float(mass @ ((points - means[of_point]) ** 2).sum(axis=1))
    ends = of_point[np.concatenate([must_link, cannot_link, apart])]
    soft = np.where(np.isposinf(ml_costs), 0.0, ml_costs)
    hard = np.full(len(apart), np.inf)
    same = np.concatenate([np.zeros(len(must_link)), cl_costs, hard])
    differ = np.concatenate([soft, np.zeros(len(cannot_link) + len(apart))])
    problem = PartitionProblem(
        means - centre,
        masses,
        k,
        np.zeros((0, 2), dtype=np.int64),
        np.zeros(0),
        np.zeros(0),
        within,
        of_point,
    )
    return with_pairs(problem, ends, same, differ)


def _sums(
    points: FloatArray, mass: FloatArray, part: IntArray, n_parts: int
) -> tuple[FloatArray, FloatArray]:
    """Return the weighted sums (n_parts, d) of the points of each part, and its mass."""
    sums = np.zeros((n_parts, points.shape[1]))
    np.add.at(sums, part, mass[:, np.newaxis] * points)
    return sums, np.bincount(part, mass, n_parts).astype(np.float64)


def with_pairs(
    problem: PartitionProblem, ends: IntArray, same: FloatArray, differ: FloatArray
) -> PartitionProblem:
    """Return the problem with these pairs of units, each once; costs inside units are constant."""
    inside = ends[:, 0] == ends[:, 1]
    if np.isposinf(same[inside]).any():
        unit = int(ends[inside][np.isposinf(same[inside]), 0][0])
        rows = np.flatnonzero(problem.of_point == unit)[:5].tolist()
        raise infeasible(f"hard must-links join the points of a hard cannot-link, among {rows}")
    constant = problem.constant + float(same[inside].sum())
    ends = np.sort(ends[~inside], axis=1)
    codes, which = np.unique(ends[:, 0] * problem.size + ends[:, 1], return_inverse=True)
    costs = [np.zeros(codes.size), np.zeros(codes.size)]
    for sums, values in zip(costs, (same, differ), strict=True):
        np.add.at(sums, which.reshape(-1), values[~inside])
    merged = np.stack([codes // problem.size, codes % problem.size], axis=1)
    # Units of a hard pair are always apart, so the cost of that is constant.
    hard = np.isposinf(costs[0])
    constant += float(costs[1][hard].sum())
    costs[1][hard] = 0.0
    return replace(problem, ends=merged, same=costs[0], differ=costs[1], constant=constant)


def contracted(problem: PartitionProblem, pairs: IntArray) -> PartitionProblem:
    """Return the problem in which the units of each given pair are merged."""
    of_unit = connected(problem.size, pairs)
    sums, masses = _sums(problem.means, problem.mass, of_unit, int(of_unit.max()) + 1)
    means = sums / masses[:, np.newaxis]
    within = float(problem.mass @ ((problem.means - means[of_unit]) ** 2).sum(axis=1))
    merged = replace(
        problem,
        means=means,
        mass=masses,
        constant=problem.constant + within,
        of_point=of_unit[problem.of_point],
    )
    return with_pairs(merged, of_unit[problem.ends], problem.same, problem.differ)


def restricted(problem: PartitionProblem, units: IntArray) -> PartitionProblem:
    """Return the problem restricted to some units and their pairs, without its constant."""
    number = np.full(problem.size, -1)
    number[units] = np.arange(units.size)
    ends = number[problem.ends]
    inside = (ends >= 0).all(axis=1)
    centre = problem.mass[units] @ problem.means[units] / problem.mass[units].sum()
    return replace(
        problem,
        means=problem.means[units] - centre,
        mass=problem.mass[units],
        ends=ends[inside],
        same=problem.same[inside],
        differ=problem.differ[inside],
        constant=0.0,
        of_point=np.arange(units.size),
    )
