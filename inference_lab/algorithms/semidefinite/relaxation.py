"""The semidefinite relaxation of a Potts-like energy, tightened by cutting planes.

Labels become unit vectors: the ``k`` corners of a simplex, any two of which have the inner product
``-1 / (k - 1)`` (for two labels, +1 and -1). A labelling of a part of the energy
(`inference_lab.algorithms.semidefinite.potts_energy.PottsPart`) is the Gram matrix ``X`` of the
vectors of its nodes, and of the ``k`` corners themselves (*terminals*; one suffices for two
labels), and

``[x_i = x_j] = ((k - 1) X_ij + 1) / k``

makes the energy linear in ``X``. The relaxation keeps these properties of a labelling:

* ``X`` is positive semidefinite with unit diagonal, and its terminals are the corners: with
  ``V = [I 0; 0 B]``, ``B`` an orthonormal basis of the span of the corners, ``X = V R V'``;
* ``X_ij >= -1 / (k - 1)``, which for two labels follows;
* inequalities found as they are violated (`inference_lab.algorithms.semidefinite.cuts`).

It is solved by alternating directions: a matrix in the cone and one in the polyhedron, coupled by
multipliers ``Z``, are updated in turn. The projection to the polyhedron takes a few passes of
Hildreth's method over the inequalities, whose multipliers persist.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import LinAlgError, cholesky, eigh

from inference_lab._numba import lean_kernel
from inference_lab.algorithms.semidefinite.cuts import (
    CutRows,
    PatternPool,
    TriangleSearch,
    add_patterns,
    add_triangles,
)
from inference_lab.algorithms.semidefinite.potts_energy import PottsPart
from inference_lab.graph.arrays import FloatArray, IntArray

_EPSILON = float(np.finfo(np.float64).eps)
#: Residual of bounds, relative to the size of the matrix of costs: the last shift that makes the
#: matrix of a dual point semidefinite, and the end of the iterations, stay below it.
_RESIDUAL = 2.0**-36
#: Passes over the inequalities in each iteration.
_PASSES = 3
#: Initial penalty, relative to the mean eigenvalue of the costs, and the factor it changes by ...
_PENALTY = 0.35
_PENALTY_STEP = 1.3
#: ... when the residuals differ by this factor; checked once every `_BALANCE_EVERY` iterations.
_IMBALANCE = 3.0
_BALANCE_EVERY = 20
#: Step of the multipliers of the cone.
_STEP = 1.6
#: Largest share of positive eigenvalues at which computing only those is faster.
_FEW = 0.15
#: The same in single precision, which is used from this order on, down to this residual.
_FEW_COARSE = 0.4
_COARSE_FROM = 200
_COARSE_RESIDUAL = 2e-4
#: Inequalities added in a round, per node: triangles, and others.
_TRIANGLES = 20
_OTHERS = 20
#: Triangles examined in a round: about 0.2 s.
_TRIANGLE_WORK = 200_000_000
#: Least violation searched for at the beginning, and at the end.
_FIRST_THRESHOLD = 0.02
_LAST_THRESHOLD = 1e-4
#: Matrices of the order of the problem held at a time, including the peak of LAPACK.
MATRICES = 12


def alternate(
    costs: FloatArray,
    rows: list[FloatArray],
    limits: FloatArray,
    y: FloatArray,
    z: FloatArray,
    multipliers: FloatArray,
    penalty: float,
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Make one iteration for two labels; return the new ``x``, ``y``, ``z`` and multipliers."""
    # Alternating directions (Wen, Goldfarb and Yin 2010, section 2) for ``min <C, X>`` over the
    # cone and ``<A_t, X> / 2 <= r_t`` with unit diagonal: ``X`` is the projection of ``Y + Z /
    # penalty`` to the cone, ``Y`` the projection of ``X - (C + Z) / penalty`` to the polyhedron, by
    # Hildreth's method from the current multipliers, and ``Z`` moves along ``Y - X``.
    values, vectors = np.linalg.eigh(y + z / penalty)
    x = (vectors * np.maximum(values, 0.0)) @ vectors.T
    y = x - (costs + z) / penalty
    y -= sum(g * row for g, row in zip(multipliers, rows, strict=True)) / penalty
    np.fill_diagonal(y, 1.0)
    multipliers = multipliers.copy()
    for _ in range(_PASSES):
        for t, row in enumerate(rows):
            excess = 0.5 * (row * y).sum() - limits[t]
            change = max(penalty * excess / (0.5 * (row * row).sum()), -multipliers[t])
            multipliers[t] += change
            y -= change / penalty * row
    return x, y, z + _STEP * penalty * (y - x), multipliers


class Polyhedron(NamedTuple):
    """The constraints of the polyhedron, besides the unit diagonal."""

    #: Entries between nodes from ``fixed_from`` on; if ``boxed``, the lower limit of the others.
    low: float
    boxed: bool
    #: (N, N): pairs that have different labels, so that the lower limit is their value.
    apart: npt.NDArray[np.bool_]
    fixed_from: int
    #: (r + 1,): row ``t`` is ``sum_p value[p] Y[i[p], j[p]] <= rhs[t]`` over ``ptr[t] : ptr[t +
    #: 1]``.
    ptr: IntArray
    i: IntArray
    j: IntArray
    value: FloatArray
    rhs: FloatArray
    #: (r,) sums of squared values.
    norm: FloatArray


class Iterate(NamedTuple):
    """The state of alternating directions; lower triangles of matrices."""

    # ``x`` is in the cone, ``y`` in the polyhedron, ``before`` the last ``y``; ``z``, ``floor`` and
    # ``multiplier`` are the multipliers of ``x = y``, of the lower limits and of the rows.

    x: FloatArray
    y: FloatArray
    before: FloatArray
    z: FloatArray
    floor: FloatArray
    multiplier: FloatArray


@lean_kernel
def _move(
    at: Iterate, costs: FloatArray, within: Polyhedron, penalty: float
) -> tuple[float, float]:
    """Project ``x - (costs + z) / penalty`` to the polyhedron and update ``z``, in place."""
    # Returns the squared distances of the new ``y`` from ``x`` and from the last one.
    x, y, before, z, floor, multiplier = at
    low, boxed, apart, fixed_from, ptr, ri, rj, value, rhs, norm = within
    n = x.shape[0]
    inverse = 1.0 / penalty
    for i in range(n):
        for j in range(i):
            y[i, j] = x[i, j] - (costs[i, j] + z[i, j]) * inverse
        if boxed:
            for j in range(i):
                y[i, j] += floor[i, j] * inverse
        y[i, i] = 1.0
    for i in range(fixed_from, n):
        for j in range(fixed_from, i):
            y[i, j] = low
    for t in range(rhs.size):
        share = multiplier[t] * inverse
        if share != 0.0:
            for p in range(ptr[t], ptr[t + 1]):
                y[ri[p], rj[p]] -= share * value[p]
    for _ in range(_PASSES):
        for t in range(rhs.size):
            excess = -rhs[t]
            for p in range(ptr[t], ptr[t + 1]):
                excess += value[p] * y[ri[p], rj[p]]
            change = max(penalty * excess / norm[t], -multiplier[t])
            if change != 0.0:
                multiplier[t] += change
                share = change * inverse
                for p in range(ptr[t], ptr[t + 1]):
                    y[ri[p], rj[p]] -= share * value[p]
        if boxed:
            for i in range(n):
                for j in range(min(i, fixed_from)):
                    change = penalty * (low - y[i, j])
                    if not apart[i, j]:
                        change = max(change, -floor[i, j])
                    floor[i, j] += change
                    y[i, j] += change * inverse
    primal = 0.0
    dual = 0.0
    for i in range(n):
        for j in range(i + 1):
            d = y[i, j] - x[i, j]
            z[i, j] += _STEP * penalty * d
            c = y[i, j] - before[i, j]
            if i == j:
                d *= 0.7071067811865476
                c *= 0.7071067811865476
            primal += 2.0 * d * d
            dual += 2.0 * c * c
    return primal, dual


@lean_kernel
def _reduced_costs(
    costs: FloatArray,
    floor: FloatArray,
    within: Polyhedron,
    multiplier: FloatArray,
    out: FloatArray,
) -> None:
    """Write ``costs + sum_t multiplier_t row_t - floor`` into a lower triangle; diagonal 0."""
    n = costs.shape[0]
    for i in range(n):
        for j in range(i):
            out[i, j] = costs[i, j]
        if within.boxed:
            for j in range(i):
                out[i, j] -= floor[i, j]
        out[i, i] = 0.0
    for t in range(multiplier.size):
        if multiplier[t] != 0.0:
            for p in range(within.ptr[t], within.ptr[t + 1]):
                out[within.i[p], within.j[p]] += multiplier[t] * within.value[p]


def _whole(matrix: FloatArray) -> FloatArray:
    """Return the symmetric matrix of a lower triangle."""
    whole = np.tril(matrix)
    whole += np.tril(matrix, -1).T
    return whole


def _corners(k: int) -> FloatArray:
    """Return an orthonormal basis (k, k - 1) of the span of the corners of a simplex."""
    ones = np.column_stack([np.ones(k), np.eye(k)[:, : k - 1]])
    return np.asarray(np.linalg.qr(ones)[0][:, 1:])


def costs_of(part: PottsPart) -> tuple[FloatArray, float]:
    """Return the lower triangle of the cost matrix ``C`` and the constant of a part."""
    # The energy of a labelling is ``sum_{i>j} 2 C_ij X_ij + constant``.
    n, k = part.n_nodes, part.n_labels
    scale = (k - 1) / k
    costs = np.zeros((part.order, part.order))
    low, high = part.pairs.min(axis=1), part.pairs.max(axis=1)
    costs[high, low] = part.coupling * (scale / 2)
    if part.has_terminals:
        if k == 2:
            costs[n, :n] = (part.unary[:, 0] - part.unary[:, 1]) / 4
        else:
            # Shifting a row of unaries by a constant changes nothing, because corners sum to zero.
            centred = part.unary - part.unary.mean(axis=1, keepdims=True)
            costs[n:, :n] = centred.T * (scale / 2)
    constant = math.fsum([part.constant, *(part.unary.mean(axis=1)), *(part.coupling / k)])
    return costs, constant


@dataclass(frozen=True)
class DualPoint:
    """A point of the dual, feasible up to the negative eigenvalues of its matrix."""

    #: The dual matrix in the coordinates of ``V``; lower triangle.
    matrix: FloatArray
    #: Dual objective, without the correction for negative eigenvalues.
    value: float
    #: Bound on the rounding errors of the value and the matrix.
    slack: float


class SDPRelaxation:
    """The relaxation of one part with some coupling, and the state of its solution.

    `cuts` adds inequalities beyond the lower limits. ``apart`` (N, N) marks pairs, the larger node
    first, whose labels differ; with two labels it needs `boxed`. ``bound`` is the best proved lower
    bound of the energy, ``raw_bound`` the same before it is rounded up to the next possible energy.
    ``primal`` and ``dual`` are residuals per square root of the order, the distance of the two
    matrices and the length of the last step of one of them, times the penalty. ``exhausted`` is
    true if the last search found no inequality violated by the least threshold.

    Notes
    -----
    *The bound.* Let ``S = C + sum_t g_t A_t - M - Diag(d)`` with multipliers ``g_t`` of the rows
    ``<A_t, X> / 2 <= r_t``, ``g_t >= 0``, ``M >= 0`` of the lower limits
    ``l``, and any ``d``. The block of the terminals may have any entries ``W`` instead of ``d``.
    For the ``X = V R V'`` of a labelling

    ``<C, X> = <S, X> - sum_t g_t <A_t, X> + <M, X> + <Diag(d) + W, X>
    >= tr(R) min(0, lambda_min(V' S V)) - 2 sum_t g_t r_t + l sum_ij M_ij + sum_i d_i + <W, T>``

    with ``tr(R) = tr(X) =`` the order of ``X`` and ``T`` the known block of the terminals. So every
    state of the multipliers gives a bound, converged or not.

    *Rounding.* Semidefiniteness of the matrix plus ``s`` on the diagonal is not taken from computed
    eigenvalues but proved: if Cholesky's factorisation of ``A - c I`` in floating point succeeds,
    with ``c`` at least ``(N + 1) u / (1 - (N + 1) u)`` times the trace and ``u`` the unit roundoff,
    then ``A`` is positive semidefinite (Rump 2006, theorem 2.3). Here ``c`` is twice that. The sums
    of the dual objective are exact up to their last rounding. For every entry of the matrix, the
    error of its sum is at most ``u`` times the number of its terms times the sum of their absolute
    values. As ``|X_ij| <= 1``, the sum of these errors is subtracted from the bound.

    References
    ----------
    See also `inference_lab.solvers.semidefinite.Semidefinite`. B. Ghaddar, M. Anjos, F. Liers, "A
    branch-and-cut algorithm based on semidefinite programming for the minimum k-partition problem",
    Annals of OR 188, 2011. J. Povh, F. Rendl, A. Wiegele, "A boundary point method to solve
    semidefinite programs", Computing 78, 2006. S. M. Rump, "Verification of positive definiteness",
    BIT 46, 2006.
    """

    def __init__(
        self, part: PottsPart, cuts: bool, rng: np.random.Generator, boxed: bool = False
    ) -> None:
        self.part = part
        self.cuts = cuts
        self.rng = rng
        n = part.n_nodes
        k = part.n_labels
        order = part.order
        self.low = -1.0 / (k - 1)
        self.boxed = boxed or k > 2
        # With two labels the single terminal is treated like a node.
        self.fixed_from = n if k > 2 else order
        self.costs, self.constant = costs_of(part)
        # Costs and constant are sums of a few shares of these, and |X_ij| is at most 1.
        magnitude = abs(part.constant) + np.abs(part.unary).sum() + np.abs(part.coupling).sum()
        self._rounding = 8.0 * (k + 2) * _EPSILON * float(magnitude)
        self.scale = float(np.sqrt(2.0 * (self.costs**2).sum() / order)) or 1.0
        self.costs /= self.scale
        self.basis = _corners(k) if order > self.fixed_from else np.empty((0, 0))
        self.rows = CutRows(self.fixed_from, self.low)
        self.pool = PatternPool(k, rng)
        self.y = np.eye(order)
        self.y[n:, n:] = np.where(np.eye(order - n) > 0, 1.0, self.low)
        self._before = np.zeros((order, order))
        self.z = np.zeros((order, order))
        self.x = self.y.copy()
        self.floor = np.zeros((order, order)) if self.boxed else np.zeros((1, 1))
        self.apart = np.zeros(self.floor.shape, dtype=np.bool_)
        self.factor = np.eye(order)
        self.penalty = _PENALTY
        self.bound = self.raw_bound = -math.inf
        #: What the last shift of a factorisation leaves between the bound and the optimum.
        self.residual = _RESIDUAL * self.order * self.scale
        self.iterations = 0
        self.primal = self.dual = math.inf
        self.threshold = _FIRST_THRESHOLD
        self.exhausted = not cuts
        self.share = 1.0

    @property
    def order(self) -> int:
        """Order of the matrix."""
        return int(self.y.shape[0])

    def _polyhedron(self) -> Polyhedron:
        rows = self.rows
        return Polyhedron(
            self.low,
            self.boxed,
            self.apart,
            self.fixed_from,
            rows.ptr,
            rows.i,
            rows.j,
            rows.value,
            rows.rhs,
            rows.norm,
        )

    def inherit(self, other: SDPRelaxation, of: IntArray) -> None:
        """Start from the state of one without terminals, whose node i is node ``of[i]`` here."""
        # Multipliers of merged nodes add up: for X = P' X' P, <S, X> = <P S P', X'>.
        merge = np.zeros((self.order, other.order))
        merge[of, np.arange(other.order)] = 1.0
        self.costs *= self.scale / other.scale
        self.scale, self.penalty = other.scale, other.penalty
        self.z = np.tril(merge @ _whole(other.z) @ merge.T)
        self.floor = np.tril(merge @ _whole(other.floor) @ merge.T, -1)
        merge /= merge.sum(axis=1, keepdims=True)
        self.y = np.tril(merge @ _whole(other.y) @ merge.T)
        np.fill_diagonal(self.y, 1.0)
        self.rows = other.rows.merged(of)
        self.pool = other.pool
        self.threshold = other.threshold

    # ------------------------------------------------------------------ the cone

    def _reduce(self, matrix: FloatArray) -> FloatArray:
        """Return the lower triangle of ``V' matrix V`` for a matrix given by its lower triangle."""
        n = self.fixed_from
        if n == self.order:
            return matrix
        k = self.basis.shape[1]
        out = np.zeros((n + k, n + k))
        out[:n, :n] = matrix[:n, :n]
        out[n:, :n] = self.basis.T @ matrix[n:, :n]
        out[n:, n:] = self.basis.T @ _whole(matrix[n:, n:]) @ self.basis
        return out

    def _project(self) -> None:
        """Set ``x`` to the matrix of the cone nearest to ``y + z / penalty``."""
        shifted = np.multiply(self.z, 1.0 / self.penalty)
        shifted += self.y
        reduced = self._reduce(shifted)
        size = reduced.shape[0]
        # Half the precision is enough while the residuals are large, and faster.
        coarse = size >= _COARSE_FROM and self.primal + self.dual > _COARSE_RESIDUAL
        matrix = reduced.astype(np.float32) if coarse else reduced
        vectors = None
        if self.share <= (_FEW_COARSE if coarse else _FEW):
            try:
                # The lower triangle in C order is the upper one in Fortran's.
                values, vectors = eigh(
                    matrix.T,
                    lower=False,
                    driver="evr",
                    subset_by_value=(0.0, np.inf),
                    check_finite=False,
                )
            except LinAlgError:
                vectors = None
        if vectors is None:
            values, vectors = eigh(
                reduced.T, lower=False, driver="evd", overwrite_a=True, check_finite=False
            )
            positive = values > 0.0
            values, vectors = values[positive], vectors[:, positive]
        self.share = values.size / size
        factor = np.ascontiguousarray(vectors, dtype=np.float64) * np.sqrt(values)
        n = self.fixed_from
        if n < self.order:
            factor = np.concatenate([factor[:n], self.basis @ factor[n:]])
        self.factor = factor
        np.matmul(factor, factor.T, out=self.x)

    def iterate(self) -> None:
        """Make one iteration."""
        self._project()
        self._before, self.y = self.y, self._before
        at = Iterate(self.x, self.y, self._before, self.z, self.floor, self.rows.multiplier)
        residuals = _move(at, self.costs, self._polyhedron(), self.penalty)
        self.iterations += 1
        self.primal, self.dual = (math.sqrt(residual / self.order) for residual in residuals)
        self.dual *= self.penalty
        if self.iterations % _BALANCE_EVERY == 0:
            if self.primal > _IMBALANCE * self.dual:
                self.penalty *= _PENALTY_STEP
            elif self.dual > _IMBALANCE * self.primal:
                self.penalty /= _PENALTY_STEP

    # ------------------------------------------------------------------ the bound

    def _dual_point(self, multiplier: FloatArray, diagonal: FloatArray | None) -> DualPoint:
        """Return the point of the dual with the given multipliers of the rows."""
        # ``diagonal`` is the ``d`` of the class's notes; None takes it, and ``W``, from ``z``.
        rows = self.rows
        matrix = np.zeros((self.order, self.order))
        _reduced_costs(self.costs, self.floor, self._polyhedron(), multiplier, matrix)
        n = self.fixed_from
        terms = [0.0]
        if diagonal is None:
            diagonal = np.diagonal(self.z)
            block = self.z[n:, n:]
            terms += (2.0 * self.low * np.tril(block, -1)).ravel().tolist()
            matrix[n:, n:] = -block
        matrix[np.arange(self.order), np.arange(self.order)] = -diagonal
        terms += diagonal.tolist()
        terms += (-2.0 * multiplier * rows.rhs).tolist()
        floors = np.zeros(1)
        if self.boxed:
            # numpy sums pairwise; a row of floors is summed up first to keep the list short.
            floors = np.tril(self.floor, -1).sum(axis=1)
            terms += (2.0 * self.low * floors).tolist()
        value = math.fsum(terms)
        weights = np.abs(rows.value) * np.repeat(np.abs(multiplier), np.diff(rows.ptr))
        floor = float(np.abs(self.floor).sum())
        spread = 2.0 * (float(np.abs(self.costs).sum() + weights.sum()) + floor)
        total = math.fsum(np.abs(terms))
        slack = _EPSILON * ((len(rows) + 16) * spread + (self.order + 16) * total)
        return DualPoint(self._reduce(matrix), value, slack)

    def _correct(self, point: DualPoint) -> float:
        """Return the bound that a point of the dual proves; -inf if it is not better."""
        matrix = point.matrix
        size = point.matrix.shape[0]
        try:
            eigenvalue = float(
                eigh(
                    matrix.T,
                    lower=False,
                    eigvals_only=True,
                    subset_by_index=(0, 0),
                    check_finite=False,
                )[0]
            )
        except LinAlgError:
            return -math.inf
        if self._bound_of(point, max(0.0, -eigenvalue)) <= self.raw_bound:
            return -math.inf
        diagonal = np.abs(np.diagonal(matrix))
        # The transformation of the matrix to the coordinates of V rounds, too.
        norm = 2.0 * float(np.abs(np.tril(matrix)).sum())
        # Shift by the computed eigenvalue, then by the margin of its proof, doubled on failure.
        margin = 2.0 * (size + 2) * _EPSILON * float((diagonal + abs(eigenvalue)).sum())
        margin += 4.0 * (self.basis.shape[0] + 4) * _EPSILON * norm * (self.basis.size > 0)
        for _ in range(20):
            shift = max(0.0, -eigenvalue) + 2.0 * margin
            trial = matrix.copy()
            trial[np.arange(size), np.arange(size)] += shift - margin
            try:
                cholesky(trial.T, lower=False, overwrite_a=True, check_finite=False)
            except LinAlgError:
                margin *= 2.0
                continue
            return self._bound_of(point, shift)
        return -math.inf

    def _bound_of(self, point: DualPoint, shift: float) -> float:
        """Return the bound of a point whose matrix is semidefinite once shifted."""
        bound = point.value - point.slack - self.order * shift * (1.0 + 4.0 * _EPSILON)
        bound = bound * self.scale + self.constant
        return bound - 8.0 * _EPSILON * abs(bound) - self._rounding

    def _raise(self, bound: float) -> None:
        """Take a bound if it is better, and round it up to the next possible energy."""
        if bound <= self.raw_bound:
            return
        self.raw_bound = bound
        quantum = self.part.quantum
        if quantum > 0.0:
            base = math.fsum([self.part.constant, *self.part.unary[:, 0], *self.part.coupling])
            steps = (bound - base) / quantum
            # The margin covers the rounding error of the division.
            bound = base + quantum * math.ceil(steps - 1e-9 * max(1.0, abs(steps)))
        self.bound = max(self.bound, bound)

    def improve_bound(self, labels: IntArray | None, energy: float) -> None:
        """Raise the bound by the current multipliers and, for two labels, by a certificate."""
        # Given an optimal labelling ``x``, the diagonal for which ``S x = 0`` makes the dual
        # objective equal to the energy, if only rows that are tight at ``x`` count. So, if ``S`` is
        # positive semidefinite, the labelling is proved optimal, long before the multipliers have
        # converged.
        rows = self.rows
        self._raise(self._correct(self._dual_point(rows.multiplier, None)))
        if labels is None or self.part.n_labels > 2 or energy <= self.bound:
            return
        x = np.ones(self.order)
        x[: labels.size] = 1.0 - 2.0 * labels
        tight = rows.slacks(np.multiply.outer(x, x)) < 0.5
        multiplier = np.where(tight, rows.multiplier, 0.0)
        matrix = np.zeros((self.order, self.order))
        _reduced_costs(self.costs, self.floor, self._polyhedron(), multiplier, matrix)
        diagonal = x * (matrix @ x + matrix.T @ x)
        self._raise(self._correct(self._dual_point(multiplier, diagonal)))

    # ------------------------------------------------------------------ cutting planes

    def separate(self, should_stop: Callable[[], bool]) -> int:
        """Drop rows whose multiplier is 0 and add violated ones; return the number added."""
        rows = self.rows
        rows.keep(rows.multiplier > 0.0)
        if not self.cuts:
            return 0
        k = self.part.n_labels
        order = self.order
        search = TriangleSearch(
            self.y, k == 2, self.threshold, _TRIANGLES * order, _TRIANGLE_WORK, self.rng
        )
        for top in search.tops.tolist():
            search.look(top)
            if should_stop():
                return 0
        codes = search.codes(rows.key)
        violated = self.pool.find(_whole(self.y), self.threshold, rows.key, should_stop)
        add_triangles(rows, codes, order)
        added = codes.size
        if violated:
            depth = np.concatenate([f.depth for f in violated])
            limit = _OTHERS * order
            cutoff = -np.inf if depth.size <= limit else float(np.sort(depth)[-limit])
            for group in violated:
                mask = group.depth >= cutoff
                add_patterns(rows, group, mask)
                added += int(mask.sum())
        if added < order // 2:
            self.exhausted = added == 0 and self.threshold <= _LAST_THRESHOLD
            self.threshold = max(_LAST_THRESHOLD, self.threshold / 2)
        else:
            self.exhausted = False
        return added

    # ------------------------------------------------------------------ labellings

    def equal(self) -> FloatArray:
        """Return the relaxed indicators of equal labels, (N, N)."""
        k = self.part.n_labels
        return np.clip(((k - 1) * _whole(self.y) + 1.0) / k, 0.0, 1.0)

    def round(self, directions: int) -> IntArray:
        """Round the matrix of the cone to labels of the nodes."""
        # Nodes are compared with the terminals in random directions; with 0 of them, the vectors
        # themselves. Without terminals ``k`` random vectors replace them (Frieze and Jerrum 1997;
        # for two labels, a random hyperplane as in Goemans and Williamson 1995).
        n = self.part.n_nodes
        k = self.part.n_labels
        factor = self.factor
        rank = factor.shape[1]
        if not self.part.has_terminals:
            return np.asarray((factor @ self.rng.normal(size=(rank, k))).argmax(axis=1))
        ends = np.stack([factor[n], -factor[n]]) if k == 2 else factor[n:]
        nodes = factor[:n]
        if directions:
            projection = self.rng.normal(size=(rank, directions))
            nodes, ends = nodes @ projection, ends @ projection
        # Nearest end; the squared length of the node is the same for all.
        distance = (ends**2).sum(axis=1) - 2.0 * nodes @ ends.T
        return np.asarray(distance.argmin(axis=1))

    def energy(self, labels: IntArray) -> float:
        """Return the energy of labels of the nodes."""
        part = self.part
        equal = labels[part.pairs[:, 0]] == labels[part.pairs[:, 1]]
        unary = part.unary[np.arange(part.n_nodes), labels]
        return part.constant + float(unary.sum() + part.coupling[equal].sum())
