"""Linear program of a graph: compact LP of constrained clustering, local polytope, and ILP.

`LinearModel` has lower bounds that hold for any dual vector.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from inference_lab.graph.arrays import DIAGONAL, TABLE, FloatArray, IntArray, starts_of
from inference_lab.graph.factor_graph import FactorGraph, first_least
from inference_lab.graph.terms import by_shape, dense_stack

#: Sparse matrix in CSR form (``scipy.sparse.csr_array``).
CsrArray: TypeAlias = Any

#: HiGHS indexes the entries of a matrix with 32-bit integers.
MAX_NONZEROS = 2**31 - 1

#: Machine epsilon: the relative error of a sum of two numbers is at most half of it.
EPSILON = float(np.finfo(np.float64).eps)


class _Reparametrised(NamedTuple):
    """Costs under a dual vector: reduced costs, minima of groups, bound, and its rounding error."""

    reduced: FloatArray
    minima: FloatArray
    bound: float
    rounding: float = 0.0


@dataclass(frozen=True, eq=False)
class LinearModel:
    """``min cost x + constant`` over ``a_eq x = b_eq, a_ub x <= b_ub, 0 <= x <= upper``.

    Columns, in this order: the node variables ``u_ia``; the joint variables of tables and
    higher-order factors; the diagonal variables ``d_a = P(x_i = a, x_j = a)``; one variable for
    each set of labels with a cost. With integral ``u`` it is the ILP of the graph, otherwise the
    local-polytope relaxation.

    * Costs are finite; forbidden columns have cost 0 and upper bound 0. Other upper bounds are 1,
      and never tight.
    * The first n rows of ``a_eq`` are ``sum_a u_ia = 1``; ``u_ia`` is column ``label_ptr[i] + a``.
    * ``group_ptr`` (G + 1,) has the ranges of groups that cover all columns. The columns of each of
      the first ``n_exact`` groups (variables and joint tables) sum to 1, of the others (diagonals)
      to at most 1.

    `model_size` has the counts. A nonzero takes 12 bytes (16 in models of more than 2^31 entries),
    a column 16 and a row 12, at most five times that while building. While solving, HiGHS took
    about 600 bytes per nonzero through scipy: 9.7 GB for the 16 million of the E-step with 100,000
    points, 20 clusters and 200,000 constraints.
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
        error = 2 * EPSILON * terms * size
        reduced -= error
        reduced[self.upper == 0.0] = np.inf
        if self.n_columns == 0:
            return _Reparametrised(reduced, reduced, self.constant)
        minima = np.minimum.reduceat(reduced, self.group_ptr[:-1])
        minima[self.n_exact :] = np.minimum(minima[self.n_exact :], 0.0)
        if np.isinf(minima).any():
            return _Reparametrised(reduced, minima, math.inf)
        parts = np.concatenate([minima, self.b_eq * y_eq, self.b_ub * y_ub])
        rounding = 16 * EPSILON * float(np.abs(parts).sum())
        total = math.fsum([self.constant, *parts])
        rounding += EPSILON * (abs(self.constant) + abs(total))
        bound = total - rounding
        # The minimum of a group is lowered by at most the largest error in it.
        rounding += float(np.maximum.reduceat(error, self.group_ptr[:-1]).sum())
        return _Reparametrised(reduced, minima, bound, rounding)


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
        row = np.broadcast_to(np.asarray(values, dtype=np.float64), columns.shape)
        self.add_ragged(columns.ravel(), row.ravel(), np.full(*columns.shape), rhs)

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


class ModelSize(NamedTuple):
    """Upper bounds on the size of the linear program of a graph."""

    columns: int
    rows: int
    nonzeros: int


def model_size(graph: FactorGraph) -> ModelSize:
    """Bound the size of `build_linear_model`'s result without building it.

    With ``k`` the smaller cardinality of an edge, the terms add at most

    ========================  ===============  =================  ===================
    term                      columns          rows               nonzeros
    ========================  ===============  =================  ===================
    variable                  ``k_i``          1                  ``k_i``
    diagonal edge             ``k``            ``2 k``            ``4 k``
    joint edge                ``k_i k_j``      ``k_i + k_j``      ``2 k_i k_j + k_i + k_j``
    factor of arity ``r``     ``prod k``       ``sum k``          ``r prod k + sum k``
    set with a label cost     1                ``n``              ``n (labels + 1)``
    ========================  ===============  =================  ===================

    Joint edges are tables, and diagonal terms with ``same`` above and below ``differ``.

    Complexity: linear in the number of variables, edges and scope entries.
    """
    columns = int(graph.cardinalities.sum())
    rows = graph.n_variables
    nonzeros = columns
    if graph.n_edges:
        first, second = (graph.cardinalities[graph.edges[:, end]] for end in (0, 1))
        n_equal = np.minimum(first, second)
        joint = _is_joint(graph)
        entries, ends = (first * second)[joint].sum(), (first + second)[joint].sum()
        diagonal = n_equal[~joint].sum()
        columns += int(diagonal + entries)
        rows += int(2 * diagonal + ends)
        nonzeros += int(4 * diagonal + 2 * entries + ends)
    if graph.n_factors:
        size, arity = np.diff(graph.table_ptr), np.diff(graph.factor_ptr)
        ends = graph.cardinalities[graph.factor_scopes].sum()
        columns += int(size.sum())
        rows += int(ends)
        nonzeros += int((size * arity).sum() + ends)
    columns += graph.n_label_costs
    rows += graph.n_label_costs * graph.n_variables
    nonzeros += graph.n_variables * (graph.n_label_costs + graph.label_costs.labels.size)
    return ModelSize(columns, rows, nonzeros)


def _is_joint(graph: FactorGraph) -> npt.NDArray[np.bool_]:
    """Flag the edges with a variable for each pair of labels: tables and terms of both signs."""
    joint: npt.NDArray[np.bool_] = np.equal(graph.edge_kinds, TABLE)
    for k, edges in _by_least(graph, np.flatnonzero(graph.edge_kinds == DIAGONAL)):
        same, differ = diagonal_entries(graph, edges, k), graph.edge_weights[edges, None]
        joint[edges] = (same < differ).any(axis=1) & (same > differ).any(axis=1)
    return joint


def _by_least(graph: FactorGraph, edges: IntArray) -> list[tuple[int, IntArray]]:
    """Group edges by the smaller cardinality of their ends."""
    sizes = graph.cardinalities[graph.edges[edges]].min(axis=1)
    return [(int(k), edges[sizes == k]) for k in np.unique(sizes)]


def diagonal_groups(graph: FactorGraph) -> list[tuple[int, IntArray]]:
    """Return the diagonal edges that are not joint, by the smaller cardinality of their ends."""
    return _by_least(graph, np.flatnonzero(~_is_joint(graph)))


def diagonal_entries(graph: FactorGraph, edges: IntArray, k: int) -> FloatArray:
    """Return ``same[a]`` of each edge, shape (len(edges), k)."""
    kinds = graph.edge_kinds[edges].astype(np.int64)
    return graph.pairwise_values[graph.edge_offsets[edges, None] + kinds[:, None] * np.arange(k)]


def table_groups(graph: FactorGraph) -> list[tuple[tuple[int, ...], IntArray]]:
    """Return the joint edges, grouped by shape."""
    edges = np.flatnonzero(_is_joint(graph))
    return _by_shape(graph.cardinalities[graph.edges[edges]], edges)


def factor_groups(graph: FactorGraph) -> list[tuple[tuple[int, ...], IntArray]]:
    """Return the higher-order factors, grouped by shape."""
    arity = np.diff(graph.factor_ptr)
    groups: list[tuple[tuple[int, ...], IntArray]] = []
    for r in np.unique(arity):
        members = np.flatnonzero(arity == r)
        scopes = graph.factor_scopes[graph.factor_ptr[members, None] + np.arange(r)]
        groups += _by_shape(graph.cardinalities[scopes], members)
    return groups


def _by_shape(sizes: IntArray, members: IntArray) -> list[tuple[tuple[int, ...], IntArray]]:
    """Group `members` by their rows of `sizes`, in the order of the shapes."""
    return [(shape, members[places]) for shape, places in sorted(by_shape(sizes))]


# ------------------------------------------------------------------ building


def build_linear_model(graph: FactorGraph) -> LinearModel:
    """Build the LP relaxation and ILP of a graph.

    Node variables ``u_ia >= 0`` with ``sum_a u_ia = 1``. For a diagonal term with
    ``theta(a, b) = same[a] if a == b else differ`` and ``r_a = same[a] - differ``, the cost is
    ``differ + sum_a r_a d_a`` and ``d_a = P(x_i = a, x_j = a)`` is bounded

    * by ``d_a <= u_ia, d_a <= u_ja`` where ``r_a < 0`` (must-link);
    * by ``d_a >= u_ia + u_ja - 1`` where ``r_a > 0`` (cannot-link).

    This is the projection of the local polytope that affects the cost, with k instead of k^2
    variables per edge, and the papers' LP. Labels that only one end has never coincide. Tables,
    diagonal terms with both signs of ``r`` and higher-order factors get one variable per entry,
    linked to the node variables by marginalisation.

    Infinite costs are exact: forbidden labels and entries have upper bound 0; ``same[a] = inf``
    becomes ``u_ia + u_ja <= 1``; ``differ = inf`` becomes ``u_i = u_j`` with ``same`` charged to
    the node.

    A label cost ``h_s [some x_i is in L_s]`` is ``h_s y_s`` with ``sum_{a in L_s} u_ia <= y_s`` for
    every variable: the strong form of facility location, with one row per variable.

    Complexity: O(nonzeros) time and memory, see `model_size`.

    References
    ----------
    S. Basu, "Semi-supervised clustering: probabilistic models, algorithms and experiments", PhD
    thesis, 2005, eqs. (A.1)-(A.8), in the equivalent form ``|u_ia - u_ja| = u_ia + u_ja - 2 d_a``.
    M. Wainwright, M. Jordan, "Graphical models, exponential families, and variational inference",
    2008, section 4.1.1 (the local polytope).
    D. Erlenkotter, "A dual-based procedure for uncapacitated facility location", Operations
    Research 26, 1978 (the strong form of opening costs).
    """
    n = graph.n_variables
    ptr = graph.unary_ptr
    n_u = int(ptr[-1])
    # Without the least unaries, which every labelling pays: an offset takes no digits from costs.
    minima = np.where(np.isinf(graph.least_unaries), 0.0, graph.least_unaries)
    node_cost = graph.unary_values - np.repeat(minima, graph.cardinalities)
    equal, below = Rows(), Rows()
    if n:
        equal.add_ragged(np.arange(n_u), np.ones(n_u), graph.cardinalities, 1.0)
    costs: list[FloatArray] = []
    groups: list[IntArray] = [graph.cardinalities]
    constants: list[FloatArray] = [np.array([graph.constant]), minima]
    start = n_u

    n_exact = n
    for shape, edges in table_groups(graph):
        costs.append(dense_stack(graph.edge_block, edges, shape[0], shape[1]).ravel())
        start += _add_joint(equal, ptr, graph.edges[edges], shape, start, groups)
        n_exact += edges.size
    for shape, members in factor_groups(graph):
        scopes = graph.factor_scopes[graph.factor_ptr[members, None] + np.arange(len(shape))]
        entries = graph.table_values[graph.table_ptr[members, None] + np.arange(math.prod(shape))]
        costs.append(entries.ravel())
        start += _add_joint(equal, ptr, scopes, shape, start, groups)
        n_exact += members.size

    for k, edges in diagonal_groups(graph):
        same = diagonal_entries(graph, edges, k)
        differ = graph.edge_weights[edges]
        ends = ptr[graph.edges[edges]]
        must = np.isinf(differ)
        if must.any():
            _add_equality(equal, node_cost, same[must], ends[must])
            same, differ, ends = same[~must], differ[~must], ends[~must]
        constants.append(differ)
        start += _add_diagonal(below, same - differ[:, None], ends, start, costs, groups)
    _add_label_costs(below, graph, start, costs, groups)

    cost = np.concatenate([node_cost, *costs])
    upper = np.where(np.isinf(cost), 0.0, 1.0)
    a_eq, b_eq = equal.build(cost.size)
    a_ub, b_ub = below.build(cost.size)
    group_ptr = starts_of(np.concatenate(groups))
    return LinearModel(
        cost=np.where(np.isinf(cost), 0.0, cost),
        a_eq=a_eq,
        b_eq=b_eq,
        a_ub=a_ub,
        b_ub=b_ub,
        upper=upper,
        constant=math.fsum(np.concatenate(constants)),
        label_ptr=ptr,
        group_ptr=group_ptr,
        n_exact=n_exact,
    )


def _add_joint(
    equal: Rows,
    ptr: IntArray,
    scopes: npt.NDArray[np.integer[Any]],
    shape: tuple[int, ...],
    start: int,
    groups: list[IntArray],
) -> int:
    """Add joint variables of `scopes` (g, r) with their marginals; return their number."""
    count, size = len(scopes), math.prod(shape)
    columns = (start + np.arange(count * size)).reshape(count, *shape)
    for s, k in enumerate(shape):
        joint = np.moveaxis(columns, 1 + s, 1).reshape(count * k, size // k)
        node = (ptr[scopes[:, s], None] + np.arange(k)).reshape(count * k, 1)
        values = np.ones(size // k + 1)
        values[-1] = -1.0
        equal.add(np.concatenate([joint, node], axis=1), values, 0.0)
    groups.append(np.full(count, size))
    return count * size


def _add_equality(equal: Rows, node_cost: FloatArray, same: FloatArray, ends: IntArray) -> None:
    """Make both ends equal on their k common labels, and charge `same` (m, k) to the first."""
    k = same.shape[1]
    first = ends[:, :1] + np.arange(k)
    second = ends[:, 1:] + np.arange(k)
    equal.add(np.stack([first, second], axis=2).reshape(-1, 2), [1.0, -1.0], 0.0)
    np.add.at(node_cost, first.ravel(), same.ravel())


def diagonal_columns(gain: FloatArray, start: int) -> tuple[IntArray, int]:
    """Return the columns of the diagonal variables (m, k), -1 for none, and their number."""
    used = np.isfinite(gain) & (gain != 0)
    column = np.full(gain.shape, -1, dtype=np.int64)
    count = int(used.sum())
    column[used] = start + np.arange(count)
    return column, count


def _add_diagonal(
    below: Rows,
    gain: FloatArray,
    ends: IntArray,
    start: int,
    costs: list[FloatArray],
    groups: list[IntArray],
) -> int:
    """Add the diagonal variables of edges with ``r = gain`` (m, k); return their number."""
    k = gain.shape[1]
    u_i = ends[:, :1] + np.arange(k)
    u_j = ends[:, 1:] + np.arange(k)
    negative: npt.NDArray[np.bool_] = np.less(gain, 0.0)
    column, count = diagonal_columns(gain, start)
    used = column >= 0
    costs.append(gain[used])
    n_used = used.sum(axis=1)
    groups.append(n_used[n_used > 0])

    for node in (u_i, u_j):
        below.add(np.stack([column[negative], node[negative]], axis=1), [1.0, -1.0], 0.0)
    lower = used & ~negative
    below.add(np.stack([u_i[lower], u_j[lower], column[lower]], axis=1), [1.0, 1.0, -1.0], 1.0)
    forbidden = np.isposinf(gain)
    below.add(np.stack([u_i[forbidden], u_j[forbidden]], axis=1), [1.0, 1.0], 1.0)
    return count


def _add_label_costs(
    below: Rows, graph: FactorGraph, start: int, costs: list[FloatArray], groups: list[IntArray]
) -> None:
    """Add a variable for each set of labels with a cost, from column `start` on."""
    costs.append(graph.label_costs.costs)
    groups.append(np.ones(graph.n_label_costs, dtype=np.int64))
    for s, (labels, _) in enumerate(graph.label_costs.sets()):
        for k in np.unique(graph.cardinalities).tolist():
            shared = [a for a in labels if a < k]
            if shared:
                nodes = graph.unary_ptr[:-1][graph.cardinalities == k, None] + np.array(shared)
                columns = np.column_stack([nodes, np.full(len(nodes), start + s)])
                below.add(columns, [1.0] * len(shared) + [-1.0], 0.0)
