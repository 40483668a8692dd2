"""Linear program over labels, with lower bounds that hold for any dual vector."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from inference_lab.graph.arrays import FloatArray, IntArray, starts_of
from inference_lab.graph.factor_graph import first_least

#: Sparse matrix in CSR form (``scipy.sparse.csr_array``).
CsrArray: TypeAlias = Any

#: HiGHS indexes the entries of a matrix with 32-bit integers.
MAX_NONZEROS = 2**31 - 1

#: Machine epsilon: the relative error of a sum of two numbers is at most half of it.
EPSILON = float(np.finfo(np.float64).eps)


class _Reparametrised(NamedTuple):
    """Costs under a dual vector: reduced costs, minima of groups, bound."""

    reduced: FloatArray
    minima: FloatArray
    bound: float


@dataclass(frozen=True, eq=False)
class LinearModel:
    """``min cost x + constant`` over ``a_eq x = b_eq, a_ub x <= b_ub, 0 <= x <= upper``.

    Columns, in this order: the node variables ``u_ia``; the joint variables of tables and
    higher-order factors; the diagonal variables ``d_a = P(x_i = a, x_j = a)``; one variable for
    each set of labels with a cost. With integral ``u`` it is the ILP of the graph, otherwise the
    local-polytope relaxation.

    Attributes
    ----------
    cost : (N,) float64
        Finite; forbidden columns cost 0 and have upper bound 0.
    a_eq, b_eq : (R, N) CSR array, (R,) float64
        The first n rows are ``sum_a u_ia = 1``.
    a_ub, b_ub : (S, N) CSR array, (S,) float64
    upper : (N,) float64
        0 for forbidden columns, else 1, which is never tight.
    constant : float
    label_ptr : (n + 1,) int64
        ``u_ia`` is column ``label_ptr[i] + a``, of ``label_ptr[-1]`` in total.
    group_ptr : (G + 1,) int64
        Ranges of the groups of columns, covering all columns.
    n_exact : int
        The columns of each of the first ``n_exact`` groups (variables and joint tables) sum to 1,
        the columns of the other groups (diagonals) to at most 1.

    Notes
    -----
    `inference_lab.algorithms.linear.model.model_size` has the counts. A nonzero takes 12 bytes (16
    in models of more than 2^31 entries), a column 16 and a row 12, at most five times that while
    building. While solving, HiGHS took about 600 bytes per nonzero through scipy: 9.7 GB for the 16
    million of the E-step with 100,000 points, 20 clusters and 200,000 constraints.
    """

    cost: FloatArray
    a_eq: CsrArray
    b_eq: FloatArray
    a_ub: CsrArray
    b_ub: FloatArray
    upper: FloatArray
    constant: float
    label_ptr: IntArray
    group_ptr: IntArray
    n_exact: int

    @property
    def n_variables(self) -> int:
        """Number of variables of the graph."""
        return int(self.label_ptr.size - 1)

    @property
    def n_node_columns(self) -> int:
        """Number of ``u`` columns."""
        return int(self.label_ptr[-1])

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return int(self.cost.size)

    @property
    def n_rows(self) -> int:
        """Number of rows, equalities and inequalities."""
        return int(self.b_eq.size + self.b_ub.size)

    @property
    def n_nonzeros(self) -> int:
        """Number of entries of both matrices."""
        return int(self.a_eq.nnz + self.a_ub.nnz)

    def labels(self, x: npt.ArrayLike) -> IntArray:
        """Return the label with the largest ``u`` of each variable (the first of equals)."""
        u = np.asarray(x, dtype=np.float64)[: self.n_node_columns]
        return first_least(-u, self.label_ptr)

    def lower_bound(
        self, dual_eq: npt.ArrayLike | None = None, dual_ub: npt.ArrayLike | None = None
    ) -> float:
        """Return the lower bound on the energy of every labelling from *any* dual vector.

        With ``y`` the duals (clipped to ``y <= 0`` for inequalities) and
        ``rc = cost - A' y`` the reduced costs, every feasible ``x`` has

        ``cost x >= b' y + sum_{sum-to-1 groups} min rc + sum_{other groups} min(0, min rc)``,

        because the columns of a group sum to 1, or to at most 1. No property of ``y`` is needed, so
        neither tolerances nor failures of an LP solver invalidate the bound. With optimal duals it
        is the value of the LP. The rounding error of every sum is bounded and subtracted.

        Complexity
        ----------
        O(nonzeros).

        References
        ----------
        A. Neumaier, O. Shcherbina, "Safe bounds in linear and mixed-integer linear programming",
        Mathematical Programming 99, 2004, eq. (4); the group minima are the usual bound of dual
        decomposition by reparametrisation.
        """
        return self.reparametrise(dual_eq, dual_ub).bound

    def reparametrise(
        self, dual_eq: npt.ArrayLike | None, dual_ub: npt.ArrayLike | None
    ) -> _Reparametrised:
        """Return reduced costs rounded down, the minima of the groups, and the bound."""
        y_eq = _finite(dual_eq, self.b_eq.size)
        y_eq[: self.n_variables] = 0.0
        y_ub = np.minimum(_finite(dual_ub, self.b_ub.size), 0.0)
        reduced = self.cost - self.a_eq.T @ y_eq - self.a_ub.T @ y_ub
        # |computed - exact| <= (terms + 1) eps sum |terms| for every column.
        size = np.abs(self.cost)
        terms = np.full(self.n_columns, 2.0)
        for matrix, y in ((self.a_eq, y_eq), (self.a_ub, y_ub)):
            magnitude = matrix.copy()
            np.abs(magnitude.data, out=magnitude.data)
            size += magnitude.T @ np.abs(y)
            terms += np.bincount(matrix.indices, minlength=self.n_columns)
        reduced -= 2 * EPSILON * terms * size
        reduced[self.upper == 0.0] = np.inf
        if self.n_columns == 0:
            return _Reparametrised(reduced, reduced, self.constant)
        minima = np.minimum.reduceat(reduced, self.group_ptr[:-1])
        minima[self.n_exact :] = np.minimum(minima[self.n_exact :], 0.0)
        if np.isinf(minima).any():
            return _Reparametrised(reduced, minima, math.inf)
        parts = np.concatenate([minima, self.b_eq * y_eq, self.b_ub * y_ub, [self.constant]])
        bound = math.fsum(parts) - 16 * EPSILON * float(np.abs(parts).sum())
        return _Reparametrised(reduced, minima, bound)


def _finite(values: npt.ArrayLike | None, size: int) -> FloatArray:
    """Return a copy with 0 for missing and infinite values."""
    if values is None:
        return np.zeros(size)
    array = np.array(values, dtype=np.float64)
    if array.shape != (size,):
        raise ValueError(f"duals must have shape ({size},), got {array.shape}")
    array[~np.isfinite(array)] = 0.0
    return array


class Rows:
    """Rows of a sparse matrix, collected in blocks."""

    def __init__(self) -> None:
        self.indices: list[IntArray] = []
        self.data: list[FloatArray] = []
        self.lengths: list[IntArray] = []
        self.rhs: list[FloatArray] = []

    def add(self, columns: IntArray, values: npt.ArrayLike, rhs: float) -> None:
        """Add one row for each row of `columns`, all with the same `values` and `rhs`."""
        count, width = columns.shape
        self.indices.append(columns.ravel())
        row = np.asarray(values, dtype=np.float64)
        self.data.append(np.broadcast_to(row, columns.shape).ravel())
        self.lengths.append(np.full(count, width, dtype=np.int64))
        self.rhs.append(np.full(count, rhs))

    def add_ragged(
        self, columns: IntArray, values: FloatArray, lengths: IntArray, rhs: npt.ArrayLike
    ) -> None:
        """Add rows of the given lengths, with one `rhs` for all or one for each."""
        self.indices.append(columns)
        self.data.append(values)
        self.lengths.append(lengths)
        self.rhs.append(np.broadcast_to(np.asarray(rhs, dtype=np.float64), lengths.shape))

    def build(self, n_columns: int) -> tuple[CsrArray, FloatArray]:
        """Return the matrix and its right-hand side."""
        from scipy.sparse import csr_array

        lengths = np.concatenate([np.empty(0, np.int64), *self.lengths])
        indptr = starts_of(lengths)
        index = np.int32 if max(int(indptr[-1]), n_columns) <= MAX_NONZEROS else np.int64
        indices = np.concatenate([np.empty(0, index), *self.indices], dtype=index, casting="unsafe")
        matrix = csr_array(
            (np.concatenate([np.empty(0), *self.data]), indices, indptr.astype(index)),
            shape=(lengths.size, n_columns),
        )
        return matrix, np.concatenate([np.empty(0), *self.rhs])
