"""The energy that every solver minimises: one frozen, array-backed factor graph.

``E(x) = constant + sum_i theta_i(x_i) + sum_ij theta_ij(x_i, x_j) + sum_f theta_f(x_f)``

in natural-log units: a potential is ``exp(-theta)``, lower is better, ``+inf`` forbids.
Pairwise terms keep their structure, so that a message costs O(k) where it can:

* *diagonal*: ``theta(a, b) = same[a]`` if ``a == b`` else ``differ``. Potts terms of either
  sign, must-links (``same = 0, differ = w``) and cannot-links (``same = w, differ = 0``) are the
  constant case;
* *shared table*: ``theta(a, b) = w_e * T[a, b]`` with one table for many edges;
* *own table*: a dense ``T_e[a, b]`` for each edge.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

FloatArray: TypeAlias = npt.NDArray[np.float64]
IntArray: TypeAlias = npt.NDArray[np.int64]
Int32Array: TypeAlias = npt.NDArray[np.int32]

#: ``edge_kinds`` value of a diagonal term whose diagonal is one number (Potts).
POTTS = 0
#: ``edge_kinds`` value of a diagonal term with one diagonal value a label.
DIAGONAL = 1
#: ``edge_kinds`` value of a term given by a dense (possibly shared) table.
TABLE = 2

#: ``forms`` value of a term without a known closed form.
NO_FORM = 0
#: ``forms`` value of a table ``T[0, 0] + min(slope * |a - b|, cap)`` with slope and weight >= 0.
TRUNCATED_LINEAR = 1
#: ``forms`` value of a table ``T[0, 0] + min(curve * (a - b)^2, cap)`` with curve and weight >= 0.
TRUNCATED_QUADRATIC = 2

#: Batches of labellings are evaluated in blocks of about this many gathered entries.
_ENERGY_BLOCK = 4_000_000


class GraphArrays(NamedTuple):
    """The arrays of a graph in the form that numba kernels take (all C-contiguous, read-only).

    With ``n`` variables, ``m`` edges and ``f`` higher-order factors:

    * ``cardinalities`` (n,) int64; ``unary_ptr`` (n+1,) int64; ``unary`` flat float64;
    * ``edges`` (m, 2) int32; ``kinds`` (m,) uint8 (`POTTS`, `DIAGONAL`, `TABLE`); ``weights`` (m,)
      float64 is ``differ`` for the diagonal kinds and the factor of the table otherwise;
      ``offsets`` (m,) int64 points into ``pairwise``: a diagonal entry ``a`` is
      ``pairwise[offset + a * kind]``, a table entry ``pairwise[offset + a * k_j + b]``;
      ``forms`` (m,) uint8: `TRUNCATED_LINEAR` or `TRUNCATED_QUADRATIC` where a table has a form
      whose messages cost O(k);
    * ``adj_ptr`` (n+1,) int64, ``adj_half`` (2m,) int32: the half-edges ``h = 2 e + s`` at each
      variable, ``edges[e, s]`` being that variable; ``adj_var`` (2m,) int32: its neighbour there;
      ``adj_reverse`` (2m,) int32: the position of the other half of the same edge;
    * ``factor_ptr`` (f+1,) int64 into ``scopes`` int32; ``table_ptr`` (f+1,) int64 into ``tables``
      (row-major: the last variable of a scope varies fastest);
    * ``inc_ptr`` (n+1,) int64, ``inc_slot`` int64: the positions in ``scopes`` at which each
      variable stands; ``slot_factor`` int32: the factor of each position.
    """

    cardinalities: IntArray
    unary_ptr: IntArray
    unary: FloatArray
    edges: Int32Array
    kinds: npt.NDArray[np.uint8]
    weights: FloatArray
    offsets: IntArray
    pairwise: FloatArray
    forms: npt.NDArray[np.uint8]
    adj_ptr: IntArray
    adj_half: Int32Array
    adj_var: Int32Array
    adj_reverse: Int32Array
    factor_ptr: IntArray
    scopes: Int32Array
    table_ptr: IntArray
    tables: FloatArray
    inc_ptr: IntArray
    inc_slot: IntArray
    slot_factor: Int32Array


@dataclass(frozen=True)
class DiagonalTerms:
    """Pairwise terms ``theta(a, b) = same[a] if a == b else differ``.

    Parameters
    ----------
    edges : (m, 2) array of int
    same : float, (m,) array, or (m, k) array
        Cost when both ends carry the same label; with two axes, per edge and label.
        ``(1, k)`` is one diagonal shared by all edges.
    differ : float or (m,) array
        Cost when the labels differ.
    """

    edges: npt.ArrayLike
    same: npt.ArrayLike = 0.0
    differ: npt.ArrayLike = 0.0


@dataclass(frozen=True)
class SharedTable:
    """Pairwise terms ``theta(a, b) = weights[e] * table[a, b]`` with one table for all edges.

    Parameters
    ----------
    edges : (m, 2) array of int
    table : (k_i, k_j) array
    weights : float or (m,) array
    """

    edges: npt.ArrayLike
    table: npt.ArrayLike
    weights: npt.ArrayLike = 1.0


@dataclass(frozen=True)
class OwnTables:
    """Pairwise terms with a dense table each.

    Parameters
    ----------
    edges : (m, 2) array of int
    tables : (m, k_i, k_j) array or sequence of m 2-D arrays
    """

    edges: npt.ArrayLike
    tables: npt.ArrayLike | Sequence[npt.ArrayLike]


PairwiseTerms: TypeAlias = DiagonalTerms | SharedTable | OwnTables


def _freeze(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array = np.ascontiguousarray(array)
    if array.flags.writeable:
        array.flags.writeable = False
    return array


def _check_costs(array: FloatArray, name: str) -> FloatArray:
    """Refuse NaN and -inf, naming the first offending place."""
    bad = np.isnan(array) | np.isneginf(array)
    if bad.any():
        place = tuple(int(p) for p in np.argwhere(bad)[0])
        where = f"{name}[{', '.join(map(str, place))}]" if place else name
        raise ValueError(
            f"{where} is {array[place]}; costs must be finite, or +inf for a forbidden label"
        )
    return array


def _as_costs(values: npt.ArrayLike, name: str) -> FloatArray:
    try:
        array = np.array(values, dtype=np.float64, order="C")
    except (TypeError, ValueError) as problem:
        raise ValueError(f"{name} must be an array of numbers: {problem}") from None
    return _check_costs(array, name)


def _as_edges(edges: npt.ArrayLike, n: int, name: str = "edges") -> Int32Array:
    array = np.asarray(edges)
    if array.size == 0:
        return np.empty((0, 2), dtype=np.int32)
    if array.ndim != 2 or array.shape[1] != 2:
        raise ValueError(f"{name} must have shape (m, 2), got {array.shape}")
    if array.dtype.kind not in "iu":
        raise ValueError(f"{name} must hold integers, got dtype {array.dtype}")
    if array.min() < 0 or array.max() >= n:
        row = int(np.argwhere((array < 0) | (array >= n))[0, 0])
        raise ValueError(
            f"{name}[{row}] = {tuple(int(v) for v in array[row])} names a missing variable; "
            f"the graph has variables 0 to {n - 1}"
        )
    return array.astype(np.int32)


class _Unaries(NamedTuple):
    cardinalities: IntArray
    ptr: IntArray
    values: FloatArray


def _parse_unary(unary: npt.ArrayLike | Sequence[npt.ArrayLike]) -> _Unaries:
    if isinstance(unary, np.ndarray) and unary.dtype != object:
        matrix = _as_costs(unary, "unary")
        if matrix.ndim == 1 and matrix.size == 0:
            matrix = matrix.reshape(0, 1)
        if matrix.ndim != 2:
            raise ValueError(
                f"unary must have shape (n, k) or be a list of 1-D arrays, got shape {matrix.shape}"
            )
        n, k = matrix.shape
        if n and k == 0:
            raise ValueError("unary has no labels: every variable needs at least one")
        return _Unaries(
            np.full(n, k, dtype=np.int64), np.arange(n + 1, dtype=np.int64) * k, matrix.ravel()
        )
    rows = [_as_costs(row, f"unary[{i}]") for i, row in enumerate(unary)]  # type: ignore[arg-type]
    for i, row in enumerate(rows):
        if row.ndim != 1 or row.size == 0:
            raise ValueError(
                f"unary[{i}] must be a 1-D array with at least one label, got shape {row.shape}"
            )
    cardinalities = np.array([row.size for row in rows], dtype=np.int64)
    ptr = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(cardinalities)])
    values = np.concatenate(rows) if rows else np.empty(0)
    return _Unaries(cardinalities, ptr, values)


class _Edges(NamedTuple):
    """A block of edges in the storage form of `GraphArrays`."""

    edges: Int32Array
    kinds: npt.NDArray[np.uint8]
    weights: FloatArray
    offsets: IntArray
    values: FloatArray


def _per_edge(values: npt.ArrayLike, m: int, name: str) -> FloatArray:
    array = _as_costs(values, name)
    if array.ndim > 1 or (array.ndim == 1 and array.shape[0] != m):
        raise ValueError(f"{name} must be a number or have shape ({m},), got {array.shape}")
    return np.ascontiguousarray(np.broadcast_to(array, (m,)))


def _pack_diagonal(term: DiagonalTerms, cardinalities: IntArray) -> _Edges:
    edges = _as_edges(term.edges, cardinalities.size)
    m = edges.shape[0]
    same = _as_costs(term.same, "same")
    differ = _per_edge(term.differ, m, "differ")
    if same.ndim == 2:
        width = int(cardinalities[edges].min(axis=1).max()) if m else same.shape[1]
        if same.shape[0] not in (1, m) or same.shape[1] < width:
            raise ValueError(
                f"same must have shape ({m}, {width}) or (1, {width}) to give a cost to every "
                f"label both ends have, got {same.shape}"
            )
        offsets = np.arange(m, dtype=np.int64) * same.shape[1]
        if same.shape[0] == 1:
            offsets[:] = 0
        kinds = np.full(m, DIAGONAL, dtype=np.uint8)
        return _Edges(edges, kinds, differ, offsets, same.ravel())
    kinds = np.full(m, POTTS, dtype=np.uint8)
    if same.ndim == 0:
        return _Edges(edges, kinds, differ, np.zeros(m, dtype=np.int64), same.reshape(1))
    same = _per_edge(same, m, "same")
    return _Edges(edges, kinds, differ, np.arange(m, dtype=np.int64), same)


def _classify(tables: FloatArray) -> tuple[npt.NDArray[np.uint8], FloatArray, FloatArray]:
    """Return the kind of each ``tables[e]``, its diagonal, and its ``differ`` if it has one.

    Shapes (m,), (m, min(k_i, k_j)) and (m,); a table of a single entry is a Potts term.
    """
    diagonal = np.diagonal(tables, axis1=1, axis2=2)
    kinds = np.where((diagonal == diagonal[:, :1]).all(axis=1), POTTS, DIAGONAL).astype(np.uint8)
    off = ~np.eye(tables.shape[1], tables.shape[2], dtype=bool)
    if not off.any():
        return kinds, diagonal, np.zeros(len(tables))
    entries = tables[:, off]
    kinds[(entries != entries[:, :1]).any(axis=1)] = TABLE
    return kinds, diagonal, entries[:, 0]


def _pack_tables(
    edges: Int32Array, groups: Iterable[tuple[IntArray, FloatArray]], m: int
) -> _Edges:
    """Pack own tables, given as (edges of one shape, their stacked tables), by their kinds."""
    kinds = np.empty(m, dtype=np.uint8)
    weights = np.ones(m)
    offsets = np.empty(m, dtype=np.int64)
    parts: list[FloatArray] = []
    size = 0
    for members, tables in groups:
        kind, diagonal, differ = _classify(tables)
        kinds[members] = kind
        weights[members] = np.where(kind == TABLE, 1.0, differ)
        for this, rows in (
            (POTTS, diagonal[:, :1]),
            (DIAGONAL, diagonal),
            (TABLE, tables.reshape(len(tables), -1)),
        ):
            chosen = kind == this
            part = np.ascontiguousarray(rows if chosen.all() else rows[chosen])
            offsets[members[chosen]] = size + np.arange(len(part)) * part.shape[1]
            parts.append(part.ravel())
            size += part.size
    return _Edges(edges, kinds, weights, offsets, np.concatenate(parts) if parts else np.empty(0))


def _check_table_shape(
    edges: Int32Array,
    cardinalities: IntArray,
    shape: tuple[int, ...],
    name: str,
    members: IntArray | None = None,
) -> None:
    """Refuse tables of this shape on edges (all, or some) whose variables do not fit."""
    chosen = edges if members is None else edges[members]
    wrong = (cardinalities[chosen] != np.array(shape)).any(axis=1)
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        e = at if members is None else int(members[at])
        i, j = (int(v) for v in edges[e])
        shown = name if members is None else f"{name}[{e}]"
        raise ValueError(
            f"{shown} has shape {shape}, but edge {e} = ({i}, {j}) joins variables with "
            f"{cardinalities[i]} and {cardinalities[j]} labels"
        )


def _pack_shared(term: SharedTable, cardinalities: IntArray) -> _Edges:
    edges = _as_edges(term.edges, cardinalities.size)
    m = edges.shape[0]
    table = _as_costs(term.table, "table")
    if table.ndim != 2:
        raise ValueError(f"table must have two axes, got shape {table.shape}")
    _check_table_shape(edges, cardinalities, table.shape, "table")
    weights = _per_edge(term.weights, m, "weights")
    if np.isinf(weights).any():
        e = int(np.flatnonzero(np.isinf(weights))[0])
        raise ValueError(f"weights[{e}] is inf; put +inf into the table instead")
    if np.isinf(table).any() and (weights <= 0).any():
        e = int(np.flatnonzero(weights <= 0)[0])
        raise ValueError(
            f"weights[{e}] = {weights[e]}: a table with +inf entries needs positive weights"
        )
    kind, diagonal, differ = _classify(table[None])
    if kind[0] != TABLE:
        same = diagonal if kind[0] == DIAGONAL else diagonal[0, 0]
        if (weights == 1.0).all():
            return _pack_diagonal(DiagonalTerms(edges, same, differ[0]), cardinalities)
        scaled = weights[:, None] * same if kind[0] == DIAGONAL else weights * same
        return _pack_diagonal(DiagonalTerms(edges, scaled, weights * differ[0]), cardinalities)
    kinds = np.full(m, TABLE, dtype=np.uint8)
    return _Edges(edges, kinds, weights, np.zeros(m, dtype=np.int64), table.ravel())


def _pack_own(term: OwnTables, cardinalities: IntArray) -> _Edges:
    edges = _as_edges(term.edges, cardinalities.size)
    m = edges.shape[0]
    tables = term.tables
    if isinstance(tables, np.ndarray) and tables.dtype != object:
        stack = _as_costs(tables, "tables")
        if m == 0 and stack.size == 0:
            return _pack_diagonal(DiagonalTerms(edges), cardinalities)
        if stack.ndim != 3 or stack.shape[0] != m:
            raise ValueError(f"tables must have shape ({m}, k_i, k_j), got {stack.shape}")
        _check_table_shape(edges, cardinalities, stack.shape[1:], "tables")
        return _pack_tables(edges, [(np.arange(m), stack)], m)
    listed = list(tables)  # type: ignore[arg-type]
    if len(listed) != m:
        raise ValueError(f"{len(listed)} tables for {m} edges")
    tables_of: dict[tuple[int, ...], list[FloatArray]] = {}
    members_of: dict[tuple[int, ...], list[int]] = {}
    for e, raw in enumerate(listed):
        table = _as_costs(raw, f"tables[{e}]")
        if table.ndim != 2:
            raise ValueError(f"tables[{e}] must have two axes, got shape {table.shape}")
        tables_of.setdefault(table.shape, []).append(table)
        members_of.setdefault(table.shape, []).append(e)
    groups = []
    for shape, stacked in tables_of.items():
        members = np.array(members_of[shape])
        _check_table_shape(edges, cardinalities, shape, "tables", members)
        groups.append((members, np.stack(stacked)))
    return _pack_tables(edges, groups, m)


def _pack(term: PairwiseTerms, cardinalities: IntArray) -> _Edges:
    if isinstance(term, DiagonalTerms):
        return _pack_diagonal(term, cardinalities)
    if isinstance(term, SharedTable):
        return _pack_shared(term, cardinalities)
    return _pack_own(term, cardinalities)


def _concatenate(blocks: list[_Edges]) -> _Edges:
    if len(blocks) == 1:
        return blocks[0]
    starts = np.cumsum([0] + [b.values.size for b in blocks[:-1]])
    return _Edges(
        np.concatenate([b.edges for b in blocks]) if blocks else np.empty((0, 2), np.int32),
        np.concatenate([b.kinds for b in blocks]) if blocks else np.empty(0, np.uint8),
        np.concatenate([b.weights for b in blocks]) if blocks else np.empty(0),
        np.concatenate([b.offsets + s for b, s in zip(blocks, starts, strict=True)])
        if blocks
        else np.empty(0, np.int64),
        np.concatenate([b.values for b in blocks]) if blocks else np.empty(0),
    )


def _dense(block: _Edges, e: int, cardinalities: IntArray) -> FloatArray:
    """Edge ``e`` as a ``(k_i, k_j)`` table."""
    ki, kj = (int(v) for v in cardinalities[block.edges[e]])
    offset, kind = int(block.offsets[e]), int(block.kinds[e])
    if kind == TABLE:
        entries = block.values[offset : offset + ki * kj].reshape(ki, kj)
        return entries if block.weights[e] == 1.0 else entries * block.weights[e]
    table = np.full((ki, kj), block.weights[e])
    k = min(ki, kj)
    table[np.arange(k), np.arange(k)] = (
        block.values[offset : offset + k] if kind == DIAGONAL else block.values[offset]
    )
    return table


def _dense_stack(
    block: _Edges, members: IntArray, flipped: npt.NDArray[np.bool_], ki: int, kj: int
) -> FloatArray:
    """Many edges as one ``(len(members), k_i, k_j)`` stack; `flipped` ones are transposed."""
    a, b = np.indices((ki, kj))
    table = (block.kinds[members] == TABLE)[:, None, None]
    stride = block.kinds[members].astype(np.int64)[:, None, None]
    index = np.where(
        table,
        np.where(flipped[:, None, None], b * ki + a, a * kj + b),
        np.where(a == b, a * stride, 0),
    )
    values = block.values[block.offsets[members][:, None, None] + index]
    weights = block.weights[members][:, None, None]
    # For diagonal kinds the weight is a cost, and inf times zero must not be formed.
    return np.where(table | (a == b), values * np.where(table, weights, 1.0), weights)


def _fold_self_loops(block: _Edges, unaries: _Unaries) -> tuple[_Edges, _Unaries]:
    loops = np.flatnonzero(block.edges[:, 0] == block.edges[:, 1])
    if loops.size == 0:
        return block, unaries
    values = unaries.values.copy()
    for e in loops:
        i = int(block.edges[e, 0])
        values[unaries.ptr[i] : unaries.ptr[i + 1]] += np.diagonal(
            _dense(block, int(e), unaries.cardinalities)
        )
    keep = np.ones(len(block.edges), dtype=bool)
    keep[loops] = False
    block = _Edges(
        block.edges[keep], block.kinds[keep], block.weights[keep], block.offsets[keep], block.values
    )
    return block, unaries._replace(values=values)


def _merge_parallel(block: _Edges, cardinalities: IntArray) -> _Edges:
    """Add up terms on the same pair of variables; most graphs have none and return at once."""
    m = len(block.edges)
    if m < 2:
        return block
    low = block.edges.min(axis=1).astype(np.int64)
    high = block.edges.max(axis=1).astype(np.int64)
    key = low * cardinalities.size + high
    order = np.argsort(key, kind="stable")
    repeats = key[order[1:]] == key[order[:-1]]
    if not repeats.any():
        return block
    group_start = np.concatenate([[True], ~repeats])
    starts = np.flatnonzero(group_start)
    sizes = np.diff(np.append(starts, m))
    first = order[starts]
    kinds = block.kinds[first].copy()
    weights = block.weights[first].copy()
    offsets = block.offsets[first].copy()
    extra: list[FloatArray] = []
    size = block.values.size

    # Potts on Potts, the common case (a constraint given twice), is two segmented sums.
    all_potts = np.maximum.reduceat(block.kinds[order], starts) == POTTS
    summed = np.flatnonzero(all_potts & (sizes > 1))
    if summed.size:
        potts_same = np.zeros(m)
        is_potts = block.kinds == POTTS
        potts_same[is_potts] = block.values[block.offsets[is_potts]]
        weights[summed] = np.add.reduceat(block.weights[order], starts)[summed]
        offsets[summed] = size + np.arange(summed.size)
        extra.append(np.add.reduceat(potts_same[order], starts)[summed])
        size += summed.size
    dense = np.flatnonzero(~all_potts & (sizes > 1))
    shapes = cardinalities[block.edges[first[dense]]]
    for shape in np.unique(shapes, axis=0):
        ki, kj = int(shape[0]), int(shape[1])
        fitting = dense[(shapes == shape).all(axis=1)]
        # In blocks, so that the dense tables of many duplicates need little memory.
        blocks = 1 + int(sizes[fitting].sum()) * ki * kj // _ENERGY_BLOCK
        for part in np.array_split(fitting, min(blocks, fitting.size)):
            chosen = np.zeros(starts.size, dtype=bool)
            chosen[part] = True
            members = order[np.repeat(chosen, sizes)]
            sender = np.repeat(block.edges[first[part], 0], sizes[part])
            tables = _dense_stack(block, members, block.edges[members, 0] != sender, ki, kj)
            ends = np.cumsum(sizes[part])
            tables = np.add.reduceat(tables, ends - sizes[part], axis=0)
            merged = _pack_tables(
                block.edges[first[part]], [(np.arange(part.size), tables)], part.size
            )
            kinds[part], weights[part] = merged.kinds, merged.weights
            offsets[part] = size + merged.offsets
            extra.append(merged.values)
            size += merged.values.size
    # Groups come out in key order; keep the order in which the user first named each pair.
    back = np.argsort(first, kind="stable")
    return _Edges(
        block.edges[first[back]],
        kinds[back],
        weights[back],
        offsets[back],
        np.concatenate([block.values, *extra]),
    )


def _reduce_scope(scope: tuple[int, ...], table: FloatArray) -> tuple[tuple[int, ...], FloatArray]:
    """Take the diagonal over variables that a scope names more than once."""
    while len(set(scope)) < len(scope):
        seen: dict[int, int] = {}
        for axis, variable in enumerate(scope):
            if variable in seen:
                first = seen[variable]
                table = np.moveaxis(np.diagonal(table, axis1=first, axis2=axis), -1, first)
                scope = scope[:axis] + scope[axis + 1 :]
                break
            seen[variable] = axis
    return scope, table


@dataclass(frozen=True, eq=False, repr=False)
class FactorGraph:
    """A discrete energy over ``n`` variables, stored as flat read-only arrays.

    Build one with `potts`, `pairwise`, `from_terms` or `from_factors`; the attributes below are
    documented with their shapes in `GraphArrays`.

    Guarantees: every cost is finite or ``+inf``; at most one pairwise term joins two variables
    (parallel edges are added up); no edge joins a variable to itself (such terms are folded into
    the unaries); nothing changes after construction.

    Memory: ``8 sum_i k_i`` bytes of unaries, 34 bytes an edge plus its values (8 bytes for Potts),
    32 bytes an edge for the adjacency once a solver asks for it.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> g.energy([0, 1]), g.energy([0, 0])
    (0.5, 0.6)
    """

    cardinalities: IntArray
    unary_ptr: IntArray
    unary_values: FloatArray
    edges: Int32Array
    edge_kinds: npt.NDArray[np.uint8]
    edge_weights: FloatArray
    edge_offsets: IntArray
    pairwise_values: FloatArray
    factor_ptr: IntArray
    factor_scopes: Int32Array
    table_ptr: IntArray
    table_values: FloatArray
    constant: float = 0.0

    # ------------------------------------------------------------------ construction

    @classmethod
    def from_terms(
        cls,
        unary: npt.ArrayLike | Sequence[npt.ArrayLike],
        terms: Iterable[PairwiseTerms] = (),
        factors: Iterable[tuple[Sequence[int], npt.ArrayLike]] = (),
        constant: float = 0.0,
    ) -> FactorGraph:
        """Build a graph in bulk from unaries, blocks of pairwise terms and dense factors.

        Parameters
        ----------
        unary : (n, k) array, or sequence of n 1-D arrays where cardinalities differ
        terms : iterable of DiagonalTerms, SharedTable and OwnTables
        factors : iterable of (scope, table)
            Dense factors of any arity; those of arity 0, 1 and 2 join the constant, the unaries
            and the pairwise terms. ``table.shape`` must match the cardinalities of the scope.
        constant : float
            Added to every energy; finite.

        Raises
        ------
        ValueError
            If a cost is NaN or ``-inf``, a shape does not fit, or a term names a missing variable.
        """
        unaries = _parse_unary(unary)
        blocks = [_pack(term, unaries.cardinalities) for term in terms]
        constant = float(_as_costs(constant, "constant"))
        n = unaries.cardinalities.size
        small_edges: list[tuple[int, int]] = []
        small_tables: list[FloatArray] = []
        scopes: list[tuple[int, ...]] = []
        tables: list[FloatArray] = []
        values = unaries.values
        for f, (raw_scope, raw_table) in enumerate(factors):
            scope = tuple(int(v) for v in raw_scope)
            table = _as_costs(raw_table, f"factor {f}")
            for v in scope:
                if not 0 <= v < n:
                    raise ValueError(
                        f"factor {f} has scope {scope}, which names a missing variable; "
                        f"the graph has variables 0 to {n - 1}"
                    )
            expected = tuple(int(unaries.cardinalities[v]) for v in scope)
            if table.shape != expected:
                raise ValueError(
                    f"factor {f} over {scope} has a table of shape {table.shape}, "
                    f"but its variables have {expected} labels"
                )
            scope, table = _reduce_scope(scope, table)
            if len(scope) == 0:
                constant += float(table)
            elif len(scope) == 1:
                if values is unaries.values:
                    values = values.copy()
                values[unaries.ptr[scope[0]] : unaries.ptr[scope[0] + 1]] += table
            elif len(scope) == 2:
                small_edges.append((scope[0], scope[1]))
                small_tables.append(table)
            else:
                scopes.append(scope)
                tables.append(table)
        if np.isinf(constant):
            raise ValueError("constant is inf; it must be finite")
        unaries = unaries._replace(values=values)
        if small_edges:
            own = OwnTables(np.array(small_edges), small_tables)
            blocks.append(_pack_own(own, unaries.cardinalities))
        block, unaries = _fold_self_loops(_concatenate(blocks), unaries)
        block = _merge_parallel(block, unaries.cardinalities)
        arities = np.array([len(s) for s in scopes], dtype=np.int64)
        sizes = np.array([t.size for t in tables], dtype=np.int64)
        return cls(
            cardinalities=_freeze(unaries.cardinalities),
            unary_ptr=_freeze(unaries.ptr),
            unary_values=_freeze(unaries.values),
            edges=_freeze(block.edges),
            edge_kinds=_freeze(block.kinds),
            edge_weights=_freeze(block.weights),
            edge_offsets=_freeze(block.offsets),
            pairwise_values=_freeze(block.values),
            factor_ptr=_freeze(np.concatenate([np.zeros(1, np.int64), np.cumsum(arities)])),
            factor_scopes=_freeze(np.array([v for s in scopes for v in s], dtype=np.int32)),
            table_ptr=_freeze(np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])),
            table_values=_freeze(
                np.concatenate([t.ravel() for t in tables]) if tables else np.empty(0)
            ),
            constant=constant,
        )

    @classmethod
    def potts(
        cls,
        unary: npt.ArrayLike | Sequence[npt.ArrayLike],
        edges: npt.ArrayLike,
        weights: npt.ArrayLike,
        constant: float = 0.0,
    ) -> FactorGraph:
        """Build ``sum_i unary[i, x_i] + sum_e weights[e] * [x_i != x_j]``.

        A positive weight pulls the ends together (must-link, ``+inf`` for a hard one), a negative
        weight pushes them apart: ``-w`` and a constant ``+w`` is the cannot-link penalty
        ``w * [x_i = x_j]``.

        Parameters
        ----------
        unary : (n, k) array or sequence of n 1-D arrays
        edges : (m, 2) array of int
        weights : float or (m,) array
        constant : float

        Raises
        ------
        ValueError
            As in `from_terms`.
        """
        return cls.from_terms(
            unary, [DiagonalTerms(edges, 0.0, _as_costs(weights, "weights"))], constant=constant
        )

    @classmethod
    def pairwise(
        cls,
        unary: npt.ArrayLike | Sequence[npt.ArrayLike],
        edges: npt.ArrayLike,
        tables: npt.ArrayLike | Sequence[npt.ArrayLike],
        weights: npt.ArrayLike | None = None,
        constant: float = 0.0,
    ) -> FactorGraph:
        """Build a pairwise graph from tables.

        Parameters
        ----------
        unary : (n, k) array or sequence of n 1-D arrays
        edges : (m, 2) array of int
        tables : (m, k, k) array, list of m 2-D arrays, or one shared (k, k) array
            ``tables[e][a, b]`` is the cost of label ``a`` at ``edges[e, 0]`` and ``b`` at
            ``edges[e, 1]``.
        weights : (m,) array, optional
            Factor of the shared table on each edge.
        constant : float

        Raises
        ------
        ValueError
            As in `from_terms`, or if `weights` come with tables that are not shared.
        """
        shared = isinstance(tables, np.ndarray) and tables.dtype != object and tables.ndim == 2
        if not shared and not isinstance(tables, np.ndarray):
            # A nested list of numbers is one table; a list of tables has one more level.
            listed = list(tables)  # type: ignore[arg-type]
            shared = bool(listed) and all(np.ndim(row) == 1 for row in listed)
        if shared:
            term: PairwiseTerms = SharedTable(
                edges, np.asarray(tables), 1.0 if weights is None else weights
            )
        elif weights is not None:
            raise ValueError("weights scale one shared (k, k) table; these tables are not shared")
        else:
            term = OwnTables(edges, tables)
        return cls.from_terms(unary, [term], constant=constant)

    @classmethod
    def from_factors(
        cls,
        cardinalities: npt.ArrayLike,
        factors: Iterable[tuple[Sequence[int], npt.ArrayLike]],
        constant: float = 0.0,
    ) -> FactorGraph:
        """Build a graph from dense factors of any arity.

        Parameters
        ----------
        cardinalities : (n,) array of int
            Number of labels of each variable, at least 1.
        factors : iterable of (scope, table)
            ``table`` holds energies, one axis a variable of the scope.
        constant : float

        Raises
        ------
        ValueError
            As in `from_terms`.
        """
        counts = np.asarray(cardinalities)
        if counts.size and counts.dtype.kind not in "iu":
            raise ValueError(f"cardinalities must be integers, got dtype {counts.dtype}")
        if counts.ndim != 1:
            raise ValueError(f"cardinalities must have shape (n,), got {counts.shape}")
        if (counts < 1).any():
            i = int(np.flatnonzero(counts < 1)[0])
            raise ValueError(f"cardinalities[{i}] = {counts[i]}; every variable needs a label")
        counts = counts.astype(np.int64)
        uniform = counts.size > 0 and bool((counts == counts[0]).all())
        unary: Any = (
            np.zeros((counts.size, int(counts[0]))) if uniform else [np.zeros(k) for k in counts]
        )
        return cls.from_terms(unary, factors=factors, constant=constant)

    # ------------------------------------------------------------------ basic facts

    @property
    def n_variables(self) -> int:
        """Number of variables."""
        return int(self.cardinalities.size)

    @property
    def n_edges(self) -> int:
        """Number of pairwise terms."""
        return int(self.edges.shape[0])

    @property
    def n_factors(self) -> int:
        """Number of factors of arity 3 and more."""
        return int(self.factor_ptr.size - 1)

    @cached_property
    def n_labels(self) -> int | None:
        """The number of labels where all variables have the same, else None."""
        if self.n_variables == 0:
            return None
        first = int(self.cardinalities[0])
        return first if (self.cardinalities == first).all() else None

    @cached_property
    def log2_states(self) -> float:
        """Binary logarithm of the number of labellings."""
        return float(np.log2(self.cardinalities).sum())

    @cached_property
    def is_diagonal(self) -> bool:
        """Whether every term beyond the unaries is a pairwise term of the diagonal family."""
        return self.n_factors == 0 and bool((self.edge_kinds != TABLE).all())

    @cached_property
    def has_infinite(self) -> bool:
        """Whether some cost is ``+inf``."""
        return bool(
            np.isinf(self.unary_values).any()
            or np.isinf(self.pairwise_values).any()
            or np.isinf(self.edge_weights).any()
            or np.isinf(self.table_values).any()
        )

    @property
    def unary(self) -> FloatArray:
        """The unaries as an ``(n, k)`` view; only where all cardinalities are equal."""
        if self.n_variables and self.n_labels is None:
            raise ValueError("cardinalities differ; use unary_values and unary_ptr")
        return self.unary_values.reshape(self.n_variables, self.n_labels or 1)

    def unary_of(self, variable: int) -> FloatArray:
        """Return the unary costs ``(k_i,)`` of one variable (a read-only view)."""
        return self.unary_values[self.unary_ptr[variable] : self.unary_ptr[variable + 1]]

    def edge_table(self, e: int) -> FloatArray:
        """Return pairwise term ``e`` as a dense ``(k_i, k_j)`` table."""
        block = _Edges(
            self.edges, self.edge_kinds, self.edge_weights, self.edge_offsets, self.pairwise_values
        )
        return _dense(block, e, self.cardinalities)

    def higher_order(self, f: int) -> tuple[tuple[int, ...], FloatArray]:
        """Return scope and table of higher-order factor ``f``."""
        scope = tuple(
            int(v) for v in self.factor_scopes[self.factor_ptr[f] : self.factor_ptr[f + 1]]
        )
        table = self.table_values[self.table_ptr[f] : self.table_ptr[f + 1]]
        return scope, table.reshape([int(self.cardinalities[v]) for v in scope])

    def factors(self) -> Iterator[tuple[tuple[int, ...], FloatArray]]:
        """Iterate over all factors as (scope, dense table): the non-zero unaries, then the rest.

        The constant is not among them. Meant for export and for small graphs.
        """
        for i in range(self.n_variables):
            row = self.unary_of(i)
            if row.any():
                yield (i,), row
        for e in range(self.n_edges):
            yield (int(self.edges[e, 0]), int(self.edges[e, 1])), self.edge_table(e)
        for f in range(self.n_factors):
            yield self.higher_order(f)

    def __repr__(self) -> str:
        """Return one line with the sizes."""
        labels = (
            f"{self.n_labels}"
            if self.n_labels is not None or self.n_variables == 0
            else f"{self.cardinalities.min()}-{self.cardinalities.max()}"
        )
        kinds = [
            f"{int(count)} {name}"
            for name, count in (
                ("Potts", (self.edge_kinds == POTTS).sum()),
                ("diagonal", (self.edge_kinds == DIAGONAL).sum()),
                ("table", (self.edge_kinds == TABLE).sum()),
            )
            if count
        ]
        if self.n_factors:
            kinds.append(f"{self.n_factors} higher-order")
        return (
            f"FactorGraph({self.n_variables} variables x {labels} labels; "
            f"terms: {', '.join(kinds) or 'unary only'})"
        )

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the defining arrays only; what is derived is derived again."""
        return {name: getattr(self, name) for name in _STORED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore, and freeze the arrays again (pickling forgets the flag)."""
        for name in _STORED:
            value = state[name]
            object.__setattr__(
                self, name, _freeze(value) if isinstance(value, np.ndarray) else value
            )

    # ------------------------------------------------------------------ the evaluator

    def check_labels(self, labels: npt.ArrayLike) -> IntArray:
        """Return labels as an int64 array of shape (n,) or (b, n), or say what is wrong.

        Raises
        ------
        ValueError
            If the shape does not fit, the dtype is not integer, or a label is out of range.
        """
        array = np.asarray(labels)
        n = self.n_variables
        if array.ndim not in (1, 2) or array.shape[-1] != n:
            raise ValueError(f"labels must have shape ({n},) or (b, {n}), got {array.shape}")
        if array.size == 0:
            return array.astype(np.int64)
        if array.dtype.kind not in "iu":
            raise ValueError(f"labels must be integers, got dtype {array.dtype}")
        bad = (array < 0) | (array >= self.cardinalities)
        if bad.any():
            place = tuple(int(p) for p in np.argwhere(bad)[0])
            raise ValueError(
                f"labels[{', '.join(map(str, place))}] = {array[place]}; variable {place[-1]} has "
                f"labels 0 to {self.cardinalities[place[-1]] - 1}"
            )
        # In C order whatever the caller's layout: energies are summed along rows.
        return array.astype(np.int64, order="C")

    @cached_property
    def _edge_split(self) -> tuple[IntArray, IntArray]:
        """Indices of the diagonal and of the table edges."""
        table = self.edge_kinds == TABLE
        return np.flatnonzero(~table), np.flatnonzero(table)

    def energy(self, labels: npt.ArrayLike) -> Any:
        """Evaluate ``E(x)``: the one evaluator that everything is judged by.

        Written in plain numpy, independent of the kernels that solvers use.

        Parameters
        ----------
        labels : (n,) or (b, n) array of int

        Returns
        -------
        float, or (b,) float64 array for a batch
            ``+inf`` where a forbidden combination is used.

        Raises
        ------
        ValueError
            As in `check_labels`.
        """
        array = self.check_labels(labels)
        if array.ndim == 1:
            return float(self._energies(array[None])[0])
        width = max(1, self.n_variables + self.n_edges + self.factor_scopes.size)
        step = max(1, _ENERGY_BLOCK // width)
        out = np.empty(array.shape[0])
        for start in range(0, array.shape[0], step):
            out[start : start + step] = self._energies(array[start : start + step])
        return out

    def _energies(self, x: IntArray) -> FloatArray:
        total = self.unary_values[self.unary_ptr[:-1] + x].sum(axis=1)
        diagonal, table = self._edge_split
        if diagonal.size:
            everything = table.size == 0
            pick: Any = slice(None) if everything else diagonal
            # `take` keeps rows contiguous, so that a sum does not depend on the size of the batch.
            a = np.take(x, self.edges[pick, 0], axis=1)
            b = np.take(x, self.edges[pick, 1], axis=1)
            same = self.pairwise_values[
                self.edge_offsets[pick]
                # The clip only keeps the look-up inside the pool; the value is used where a == b.
                + np.where(a == b, a, 0) * self.edge_kinds[pick]
            ]
            total = total + np.where(a == b, same, self.edge_weights[pick]).sum(axis=1)
        if table.size:
            a = np.take(x, self.edges[table, 0], axis=1)
            b = np.take(x, self.edges[table, 1], axis=1)
            stride = self.cardinalities[self.edges[table, 1]]
            entries = self.pairwise_values[self.edge_offsets[table] + a * stride + b]
            total = total + (self.edge_weights[table] * entries).sum(axis=1)
        if self.n_factors:
            strides = self._scope_strides
            step = np.take(x, self.factor_scopes, axis=1) * strides
            index = np.add.reduceat(step, self.factor_ptr[:-1], axis=1)
            total = total + self.table_values[self.table_ptr[:-1] + index].sum(axis=1)
        return np.asarray(total + self.constant)

    @cached_property
    def _scope_strides(self) -> IntArray:
        """Stride in its table of each position of ``factor_scopes``."""
        strides = np.ones(self.factor_scopes.size, dtype=np.int64)
        for f in range(self.n_factors):
            lo, hi = int(self.factor_ptr[f]), int(self.factor_ptr[f + 1])
            sizes = self.cardinalities[self.factor_scopes[lo:hi]]
            strides[lo : hi - 1] = np.cumprod(sizes[:0:-1])[::-1]
        return strides

    # ------------------------------------------------------------------ derived structure

    @cached_property
    def arrays(self) -> GraphArrays:
        """Everything a kernel needs, adjacency included (built once)."""
        n, m = self.n_variables, self.n_edges
        ends = self.edges.ravel()
        half = np.argsort(ends, kind="stable").astype(np.int32)
        adj_ptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(ends, minlength=n))])
        position = np.empty(2 * m, dtype=np.int32)
        position[half] = np.arange(2 * m, dtype=np.int32)
        slots = np.argsort(self.factor_scopes, kind="stable").astype(np.int64)
        inc_ptr = np.concatenate(
            [np.zeros(1, np.int64), np.cumsum(np.bincount(self.factor_scopes, minlength=n))]
        )
        return GraphArrays(
            cardinalities=self.cardinalities,
            unary_ptr=self.unary_ptr,
            unary=self.unary_values,
            edges=self.edges,
            kinds=self.edge_kinds,
            weights=self.edge_weights,
            offsets=self.edge_offsets,
            pairwise=self.pairwise_values,
            forms=_freeze(self._forms()),
            adj_ptr=_freeze(adj_ptr.astype(np.int64)),
            adj_half=_freeze(half),
            adj_var=_freeze(ends[half ^ 1] if m else np.empty(0, np.int32)),
            adj_reverse=_freeze(position[half ^ 1]),
            factor_ptr=self.factor_ptr,
            scopes=self.factor_scopes,
            table_ptr=self.table_ptr,
            tables=self.table_values,
            inc_ptr=_freeze(inc_ptr.astype(np.int64)),
            inc_slot=_freeze(slots),
            slot_factor=_freeze(
                np.repeat(np.arange(self.n_factors, dtype=np.int32), np.diff(self.factor_ptr))
            ),
        )

    def _forms(self) -> npt.NDArray[np.uint8]:
        """Find the table edges of a form whose messages cost O(k), each distinct table once."""
        forms = np.zeros(self.n_edges, dtype=np.uint8)
        table = self._edge_split[1]
        shapes = self.cardinalities[self.edges[table]]
        table = table[(shapes[:, 0] == shapes[:, 1]) & (self.edge_weights[table] >= 0)]
        sizes = self.cardinalities[self.edges[table, 0]]
        for k in np.unique(sizes):
            members = table[sizes == k]
            starts, which = np.unique(self.edge_offsets[members], return_inverse=True)
            distance = np.abs(np.subtract.outer(np.arange(k), np.arange(k)))
            form_of = np.zeros(starts.size, dtype=np.uint8)
            step = max(1, _ENERGY_BLOCK // int(k * k))
            for lo in range(0, starts.size, step):
                index = starts[lo : lo + step, None] + np.arange(k * k)
                tables = self.pairwise_values[index].reshape(-1, k, k)
                finite = np.isfinite(tables).all(axis=(1, 2))
                with np.errstate(invalid="ignore"):  # inf - inf in a table that does not fit
                    shifted = tables - tables[:, :1, :1]
                    slope, cap = shifted[:, 0, 1], shifted[:, 0, k - 1]
                    # A few units in the last place: the table was computed in floats, too.
                    tolerance = 1e-14 * np.abs(tables).max(axis=(1, 2))[:, None, None]
                    for form, power in ((TRUNCATED_QUADRATIC, 2), (TRUNCATED_LINEAR, 1)):
                        rise = slope[:, None, None] * distance**power
                        model = np.minimum(rise, cap[:, None, None])
                        close = (np.abs(shifted - model) <= tolerance).all(axis=(1, 2))
                        fits = finite & close & (slope >= 0) & (cap >= 0)
                        form_of[lo : lo + step][fits] = form
            forms[members] = form_of[which]
        return forms

    @cached_property
    def degrees(self) -> IntArray:
        """Number of pairwise and higher-order terms at each variable, shape (n,)."""
        n = self.n_variables
        counts = np.bincount(self.edges.ravel(), minlength=n) + np.bincount(
            self.factor_scopes, minlength=n
        )
        return np.asarray(_freeze(counts.astype(np.int64)))

    @cached_property
    def components(self) -> IntArray:
        """Connected component of each variable, shape (n,), numbered by first appearance."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        n, f = self.n_variables, self.n_factors
        if n == 0:
            return np.empty(0, dtype=np.int64)
        of_factor = n + np.repeat(np.arange(f), np.diff(self.factor_ptr))
        rows = np.concatenate([self.edges[:, 0], self.factor_scopes])
        cols = np.concatenate([self.edges[:, 1], of_factor])
        links = coo_array((np.ones(rows.size, dtype=np.int8), (rows, cols)), shape=(n + f, n + f))
        _, labels = connected_components(links.tocsr(), directed=False)
        _, first, inverse = np.unique(labels[:n], return_index=True, return_inverse=True)
        rank = np.empty(first.size, dtype=np.int64)
        rank[np.argsort(first)] = np.arange(first.size)
        return np.asarray(_freeze(rank[inverse]))

    @cached_property
    def is_forest(self) -> bool:
        """Whether the factor graph has no cycle, so that message passing is exact."""
        n_components = int(self.components.max()) + 1 if self.n_variables else 0
        links = self.n_edges + int(self.factor_scopes.size)
        return links == self.n_variables + self.n_factors - n_components

    @cached_property
    def breadth_first_order(self) -> IntArray:
        """The variables, component by component, each in breadth-first order, shape (n,)."""
        from inference_lab.traversal import breadth_first

        return np.asarray(_freeze(breadth_first(self.arrays)))

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 over the defining arrays, in hexadecimal: equal for equal graphs."""
        digest = hashlib.sha256()
        for name in _STORED:
            value = getattr(self, name)
            array = np.asarray(value)
            digest.update(f"{name}:{array.dtype.str}:{array.shape};".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    # ------------------------------------------------------------------ variations

    def with_evidence(self, evidence: Mapping[int, int]) -> FactorGraph:
        """Return the graph in which the given variables can only take the given labels.

        Variables keep their numbers; the other labels of an observed variable cost ``+inf``.

        Raises
        ------
        ValueError
            If a variable or a label does not exist.
        """
        values = self.unary_values.copy()
        for variable, label in evidence.items():
            if not 0 <= variable < self.n_variables:
                raise ValueError(
                    f"evidence names variable {variable}; the graph has 0 to {self.n_variables - 1}"
                )
            k = int(self.cardinalities[variable])
            if not 0 <= label < k:
                raise ValueError(
                    f"evidence gives variable {variable} label {label}; it has 0 to {k - 1}"
                )
            row = values[self.unary_ptr[variable] : self.unary_ptr[variable + 1]]
            kept = row[label]
            row[:] = np.inf
            row[label] = kept
        return self.with_unary(values)

    def with_unary(self, values: npt.ArrayLike) -> FactorGraph:
        """Return the graph with other unary costs and everything else shared.

        Parameters
        ----------
        values : flat array of ``sum_i k_i`` costs, or (n, k) where cardinalities are equal
        """
        array = _as_costs(values, "unary")
        fits = array.ndim == 1 or array.shape == (self.n_variables, self.n_labels)
        if array.size != self.unary_values.size or not fits:
            raise ValueError(
                f"unary must hold {self.unary_values.size} costs, got shape {array.shape}"
            )
        graph = replace(self, unary_values=_freeze(array.ravel()))
        # The structure is the same, so what was derived from it need not be derived again.
        for name in _STRUCTURE:
            if name in self.__dict__:
                graph.__dict__[name] = self.__dict__[name]
        if "arrays" in self.__dict__:
            graph.__dict__["arrays"] = self.arrays._replace(unary=graph.unary_values)
        return graph


#: Cached properties that do not depend on the unary costs.
_STRUCTURE = (
    "n_labels",
    "log2_states",
    "degrees",
    "components",
    "is_forest",
    "breadth_first_order",
    "_edge_split",
    "_scope_strides",
)

_STORED = (
    "cardinalities",
    "unary_ptr",
    "unary_values",
    "edges",
    "edge_kinds",
    "edge_weights",
    "edge_offsets",
    "pairwise_values",
    "factor_ptr",
    "factor_scopes",
    "table_ptr",
    "table_values",
    "constant",
)
