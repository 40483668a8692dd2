r"""Lower bounds of minimum sum-of-squares clustering by semidefinite relaxation.

A partition of units of masses ``n`` is the matrix with ``Z_uv = 1 / N_h`` if ``u`` and ``v`` are
both in cluster ``h`` of mass ``N_h``, else 0. With ``Y = diag(s) Z diag(s)`` and ``s = sqrt n``,

``Y s = s,  0 <= Y <= I,  tr Y <= k,  Y_uv >= 0,  Y_uv = 0 for hard cannot-links``,

and the objective is linear in ``Y``. Costs of soft pairs are the convex envelopes of their
indicators given the least and greatest mass of a cluster, and violated linear inequalities are
added (`valid_inequalities`).

The alternating direction method splits the spectral conditions, onto which one eigendecomposition
projects, from the linear ones, onto which Hildreth's row steps project. Multipliers of the rows
keep their signs at any time, so each iterate gives the bound

``<C - A* y, Y> + b y >= s' M s / s's + sum of the k - 1 least eigenvalues below 0 of M on s-perp``

which holds without convergence; an error bound of the eigenvalues is subtracted.

The papers cited by `certify`, and C. Hildreth, "A quadratic programming procedure", Naval Research
Logistics 4 (1957).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import eigh

from inference_lab._numba import kernel
from inference_lab.certificates.partition_problem import PartitionProblem
from inference_lab.certificates.valid_inequalities import (
    Cuts,
    LinearRows,
    costs_of_pairs,
    rows_of,
    separated,
)
from inference_lab.graph.arrays import FloatArray, IntArray

#: Sweeps over the rows in a step; more sweeps make a step more accurate. Bounds are always valid.
_SWEEPS = 3
#: Over-relaxation of the first block.
_STEP = 1.6
#: Iterations between two bounds, and between two updates of the penalty.
_CHECK = 20
#: Iterations after which inequalities are added, unless residuals fall below `_SETTLED` earlier.
_ROUND = 200
_SETTLED = 1e-4
#: Consecutive rounds of small gains after which the bound stops.
_PATIENCE = 3
#: Share of the gap that a round closes at least, or its gain is small.
_LEAST_GAIN = 2e-2


@kernel
def _project_rows(
    q: FloatArray,
    p: FloatArray,
    free: FloatArray,
    pointers: IntArray,
    first: IntArray,
    second: IntArray,
    weight: FloatArray,
    bound: FloatArray,
    multiplier_bound: FloatArray,
    squared: FloatArray,
    multiplier: FloatArray,
    sweeps: int,
) -> None:
    """Move `q` towards the polyhedron of the rows, by Hildreth's steps, in place.

    `q` is the point to be projected plus all rows and signs times their multipliers. `free` is 1
    for entries fixed at zero, 0 for non-negative entries. Rows are symmetric: `weight` covers both
    triangles.
    """
    m = q.shape[0]
    for _ in range(sweeps):
        for t in range(bound.size):
            value = 0.0
            for e in range(pointers[t], pointers[t + 1]):
                value += weight[e] * q[first[e], second[e]]
            step = (bound[t] - value) / squared[t]
            step = min(max(step, -multiplier[t]), multiplier_bound[t] - multiplier[t])
            if step == 0.0:
                continue
            multiplier[t] += step
            for e in range(pointers[t], pointers[t + 1]):
                i, j = first[e], second[e]
                if i == j:
                    q[i, i] += step * weight[e]
                else:
                    q[i, j] += 0.5 * step * weight[e]
                    q[j, i] += 0.5 * step * weight[e]
        for i in range(m):
            for j in range(m):
                raw = q[i, j] - p[i, j]
                p[i, j] = -raw if free[i, j] == 1.0 or raw < 0.0 else 0.0
                q[i, j] = raw + p[i, j]


@dataclass(frozen=True)
class PartitionRelaxation:
    """State of the relaxation of a problem; ``bound`` is a lower bound on the objective.

    ``matrix`` is ``Z``; ``signs`` (m, m) are the multipliers of its entries' signs, in units of the
    objective.
    """

    problem: PartitionProblem
    bound: float
    matrix: FloatArray
    signs: FloatArray
    cuts: Cuts
    penalty: float
    iterations: int

    def with_problem(self, problem: PartitionProblem) -> PartitionRelaxation:
        """Return a start for a problem with the same units and more hard pairs."""
        return replace(self, problem=problem, bound=-np.inf, iterations=0)

    def contracted(self, problem: PartitionProblem, of_unit: IntArray) -> PartitionRelaxation:
        """Return a start for a problem in which units of this one are merged."""
        m = problem.size
        members = np.zeros((self.problem.size, m))
        members[np.arange(self.problem.size), of_unit] = 1.0
        # Entries are averaged over merged units, multipliers are summed.
        shares = members * self.problem.mass[:, np.newaxis] / problem.mass
        return PartitionRelaxation(
            problem,
            -np.inf,
            shares.T @ self.matrix @ shares,
            members.T @ self.signs @ members,
            self.cuts.contracted(of_unit),
            self.penalty,
            0,
        )


class _Spectral:
    """The matrices with ``Y s = s``, ``0 <= Y <= I`` and trace at most ``k``, s of unit length."""

    def __init__(self, root: FloatArray, k: int) -> None:
        self.direction = root / np.linalg.norm(root)
        self.k = min(k, root.size)
        reflector = self.direction.copy()
        reflector[0] += 1.0 if reflector[0] >= 0 else -1.0
        self.reflector = reflector / np.linalg.norm(reflector)
        self.rank = min(root.size - 1, 4 * k + 8)

    def _reduced(self, matrix: FloatArray) -> FloatArray:
        """Return the matrix on the complement of the direction, by a Householder reflection."""
        v = self.reflector
        along = matrix @ v
        inner = float(v @ along)
        half = along - inner * v
        reflected = matrix - 2.0 * (np.outer(v, half) + np.outer(half, v))
        return np.asarray(reflected[1:, 1:])

    def project(self, matrix: FloatArray) -> FloatArray:
        """Return the closest member to a symmetric matrix."""
        base = np.outer(self.direction, self.direction)
        size = matrix.shape[0] - 1
        if size == 0 or self.k == 1:
            return base
        reduced = self._reduced(matrix)
        while True:
            count = min(self.rank, size)
            values, vectors = _largest(reduced, count)
            shares = _capped_simplex(values, self.k - 1.0)
            if count == size or shares[0] == 0.0:
                break
            self.rank *= 2
        used = shares > 0.0
        self.rank = max(int(used.sum()) + 4, self.k + 4)
        full = np.zeros((size + 1, int(used.sum())))
        full[1:] = vectors[:, used]
        full -= 2.0 * np.outer(self.reflector, self.reflector @ full)
        return base + (full * shares[used]) @ full.T

    def lower_bound(self, matrix: FloatArray) -> float:
        """Return a lower bound of the inner product of a symmetric matrix with any member."""
        value = float(self.direction @ matrix @ self.direction)
        size = matrix.shape[0] - 1
        if size > 0 and self.k > 1:
            reduced = self._reduced(matrix)
            values = eigh(
                reduced, eigvals_only=True, subset_by_index=[0, min(self.k - 1, size) - 1]
            )
            value += float(np.minimum(values, 0.0).sum())
        # Backward errors of reflection and eigenvalues, each below m eps |M|, with a safety margin.
        slack = 8.0 * self.k * matrix.shape[0] * np.finfo(float).eps * np.linalg.norm(matrix)
        return value - float(slack)


def _largest(matrix: FloatArray, count: int) -> tuple[FloatArray, FloatArray]:
    """Return the largest eigenvalues in ascending order, and their vectors."""
    size = matrix.shape[0]
    eigenpairs = eigh(matrix, subset_by_index=[size - count, size - 1], check_finite=False)
    return eigenpairs[0], eigenpairs[1]


def _capped_simplex(values: FloatArray, total: float) -> FloatArray:
    """Return the closest numbers from 0 to 1 whose sum is at most `total`."""
    clipped = np.clip(values, 0.0, 1.0)
    if clipped.sum() <= total:
        return clipped
    low, high = 0.0, float(values.max())
    # The sum is a decreasing, piecewise linear function of the shift.
    for _ in range(60):
        shift = 0.5 * (low + high)
        if np.clip(values - shift, 0.0, 1.0).sum() > total:
            low = shift
        else:
            high = shift
    return np.asarray(np.clip(values - high, 0.0, 1.0))


def _costs(problem: PartitionProblem) -> tuple[FloatArray, float]:
    """Return the costs of the entries of ``Y``, and the constant of the objective."""
    root = np.sqrt(problem.mass)
    scaled = root[:, np.newaxis] * problem.means
    cost = -(scaled @ scaled.T)
    constant = problem.constant + float((scaled**2).sum())
    added, together, first, apart, second = costs_of_pairs(problem)
    # Linear part of the cost of soft pairs; see `rows_of`.
    entries = np.zeros_like(cost)
    mass = problem.mass
    u, v = together.T
    np.add.at(entries, (u, v), first * (mass[u] + mass[v]))
    u, v = apart.T
    np.add.at(entries, (u, u), 0.5 * second * mass[u])
    np.add.at(entries, (v, v), 0.5 * second * mass[v])
    np.add.at(entries, (u, v), -0.5 * second * (mass[u] + mass[v]))
    cost += 0.5 * (entries + entries.T) / np.outer(root, root)
    return cost, constant + added


def relax(
    problem: PartitionProblem,
    target: float,
    *,
    start: PartitionRelaxation | None = None,
    max_iterations: int = 3_000,
    tolerance: float = 1e-4,
    stop: Callable[[float], bool] = lambda bound: False,
) -> PartitionRelaxation:
    """Return the relaxation of a problem, strengthened until the bound reaches a target.

    `target` is the objective of known labels; the method stops at a bound within the gap
    `tolerance` of it, or when `stop`, called with each bound, is true. O(m^3) per iteration.
    """
    m = problem.size
    root = np.sqrt(problem.mass)
    outer = np.outer(root, root)
    spectral = _Spectral(root, problem.k)
    cost, constant = _costs(problem)
    free = np.zeros((m, m))
    hard = problem.ends[np.isinf(problem.same)]
    free[hard[:, 0], hard[:, 1]] = free[hard[:, 1], hard[:, 0]] = 1.0
    scale = max(float(np.linalg.norm(cost)), np.finfo(float).tiny)
    cost = cost / scale
    if start is None:
        start = PartitionRelaxation(
            problem,
            -np.inf,
            spectral.project(-cost) / outer,
            np.zeros((m, m)),
            Cuts.none(problem.k),
            1.0,
            0,
        )
    penalty, cuts = start.penalty, start.cuts
    y = start.matrix * outer
    signs = start.signs / outer / (scale * penalty)
    best = start

    def rows_and_multipliers() -> tuple[LinearRows, FloatArray]:
        rows = rows_of(problem, cuts)
        multipliers = np.zeros(rows.bound.size)
        multipliers[: len(cuts)] = np.concatenate(cuts.multipliers) / (scale * penalty)
        return rows, multipliers

    rows, multipliers = rows_and_multipliers()
    soft = rows.bound.size - len(cuts)
    squared = rows.squared
    dual = -(rows.adjoint(multipliers, m) + signs)
    since = 0
    stalled = 0
    before = -np.inf
    for iteration in range(1, max_iterations + 1):
        z = spectral.project(y - dual - cost / penalty)
        point = _STEP * z + (1.0 - _STEP) * y + dual
        last = y
        y = point - dual
        _project_rows(
            y,
            signs,
            free,
            rows.pointers,
            rows.first,
            rows.second,
            rows.weight,
            rows.bound,
            rows.multiplier_bound / (scale * penalty),
            squared,
            multipliers,
            _SWEEPS,
        )
        dual = point - y
        if iteration % _CHECK and iteration < max_iterations:
            continue
        value = spectral.lower_bound(cost + penalty * dual) + penalty * float(
            multipliers @ rows.bound
        )
        bound = constant + scale * value
        if bound > best.bound:
            best = PartitionRelaxation(
                problem,
                bound,
                y / outer,
                signs * outer * (scale * penalty),
                cuts.with_multipliers(multipliers[: len(cuts)] * (scale * penalty)),
                penalty,
                iteration,
            )
        if stop(best.bound) or problem.gap(target, best.bound) <= tolerance:
            break
        primal = float(np.linalg.norm(z - y))
        moved = penalty * float(np.linalg.norm(y - last))
        since += _CHECK
        settled = max(primal, moved) < _SETTLED * np.sqrt(problem.k)
        if settled or since >= _ROUND:
            added = separated(problem, z / outer)
            slow = best.bound - before < _LEAST_GAIN * (target - best.bound)
            stalled = stalled + 1 if slow else 0
            if stalled == _PATIENCE or (settled and slow and not len(added)):
                break
            since = 0
            before = best.bound
            cuts = cuts.with_multipliers(multipliers[: len(cuts)] * (scale * penalty))
            # Inequalities with zero multipliers are dropped, because the sum of rows is unchanged.
            cuts = cuts.active().joined(added)
            hinges = multipliers[-soft:] if soft else multipliers[:0]
            rows, multipliers = rows_and_multipliers()
            multipliers[multipliers.size - soft :] = hinges
            squared = rows.squared
            continue
        ratio = primal / max(moved, 1e-300)
        if ratio > 4.0 or ratio < 0.25:
            factor = 1.6 if ratio > 4.0 else 1.0 / 1.6
            penalty *= factor
            dual, signs, multipliers = dual / factor, signs / factor, multipliers / factor
    return best


def spectral_bound(problem: PartitionProblem) -> float:
    """Return the bound of the relaxation without any linear condition, in O(m d^2 + d^3).

    It is the scatter not explained by ``k - 1`` directions. C. Ding, X. He, "K-means clustering via
    principal component analysis", ICML 2004, theorem 3.1.
    """
    centred = problem.means - problem.mass @ problem.means / problem.mass.sum()
    scatter = (problem.mass[:, np.newaxis] * centred).T @ centred
    values = np.linalg.eigvalsh(scatter)[::-1]
    slack = 8.0 * problem.k * problem.size * np.finfo(float).eps * float(values.sum())
    remainder = float(np.maximum(values[problem.k - 1 :], 0.0).sum())
    return problem.constant + costs_of_pairs(problem)[0] + remainder - slack
