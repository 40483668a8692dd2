"""Terms of an energy as users give them, checked and packed into flat arrays.

Pairwise terms keep their structure: diagonal ones (Potts of either sign among them)
are recognised in tables, too, and terms on the same pair of variables are added up.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from inference_lab.graph.arrays import (
    DIAGONAL,
    NO_FORM,
    POTTS,
    TABLE,
    TRUNCATED_LINEAR,
    TRUNCATED_QUADRATIC,
    FloatArray,
    Int32Array,
    IntArray,
    blocks,
    starts_of,
)

#: No finite cost is larger, by absolute value. Sums over all terms of a graph that fits into memory
#: stay below 1e115 then, and their squares below 1e230, so that no computation overflows.
COST_LIMIT = 1e100

#: Dense tables of merged terms are made in blocks of about this many entries.
_TABLE_BLOCK = 4_000_000


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

    Examples
    --------
    >>> import inference_lab as il
    >>> must = il.DiagonalTerms([(0, 1)], same=0, differ=2.0)
    >>> cannot = il.DiagonalTerms([(1, 2)], same=2.0)
    >>> il.FactorGraph.from_terms([[0.0, 0.0]] * 3, [must, cannot]).energy([0, 1, 1])
    4.0
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

    Examples
    --------
    >>> import inference_lab as il
    >>> jumps = [[0, 1, 2], [1, 0, 1], [2, 1, 0]]
    >>> smooth = il.SharedTable([(0, 1), (1, 2)], jumps, weights=[1.0, 0.5])
    >>> il.FactorGraph.from_terms([[0.0] * 3] * 3, [smooth]).energy([0, 2, 0])
    3.0
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

    Examples
    --------
    >>> import inference_lab as il
    >>> own = il.OwnTables([(0, 1)], [[[1, 2, 3], [4, 5, 6]]])
    >>> il.FactorGraph.from_terms([[0.0, 0.0], [0.0, 0.0, 0.0]], [own]).energy([1, 0])
    4.0
    """

    edges: npt.ArrayLike
    tables: npt.ArrayLike | Sequence[npt.ArrayLike]


PairwiseTerms: TypeAlias = DiagonalTerms | SharedTable | OwnTables


def in_range(array: FloatArray) -> bool:
    """Whether all costs are numbers up to `COST_LIMIT`; none is ``+inf``."""
    # `min` and `max` need no temporary array, and NaN compares as false.
    return array.size == 0 or bool(array.min() >= -COST_LIMIT and array.max() <= COST_LIMIT)


def check_costs(array: FloatArray, name: str) -> FloatArray:
    """Refuse NaN, ``-inf`` and costs beyond `COST_LIMIT`, with the first offending place."""
    if in_range(array):
        return array
    allowed = (np.abs(array) <= COST_LIMIT) | np.isposinf(array)
    if not allowed.all():
        place = tuple(int(p) for p in np.argwhere(~allowed)[0])
        where = f"{name}[{', '.join(map(str, place))}]" if place else name
        raise ValueError(
            f"{where} is {array[place]}; "
            + (
                f"costs must not exceed {COST_LIMIT:g} by absolute value: scale the costs"
                if np.isfinite(array[place])
                else "costs must be finite, or +inf for a forbidden label"
            )
        )
    return array


def unwrap(values: Any, name: str) -> Any:
    """Return containers of an array (such as a pandas DataFrame) as one; refuse masked arrays."""
    if isinstance(values, np.ma.MaskedArray):
        raise ValueError(f"{name} is a masked array; fill it, with +inf for forbidden labels")
    if hasattr(values, "__array__") and not isinstance(values, np.ndarray):
        return np.asarray(values)
    return values


def as_costs(values: npt.ArrayLike, name: str) -> FloatArray:
    """Return a float64 copy of the costs; refuse non-numbers, NaN and ``-inf``."""
    return check_costs(as_floats(values, name, copy=True), name)


def as_floats(values: npt.ArrayLike, name: str, *, copy: bool) -> FloatArray:
    """Return numbers in C order, as a copy if `copy` is set; refuse non-numbers."""
    values = unwrap(values, name)
    try:
        array = np.asarray(values)
        if array.dtype.kind == "O":
            if not all(isinstance(value, Real) for value in array.flat):
                raise TypeError("not all of them are real numbers")
            array = array.astype(np.float64)
    except (OverflowError, TypeError, ValueError) as problem:
        raise ValueError(f"{name} must be an array of numbers: {problem}") from None
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} must be an array of real numbers, got dtype {array.dtype}")
    if array.dtype.itemsize > 8:
        # Longer floats are checked before the conversion overflows.
        check_costs(array, name)
    copy &= not isinstance(values, list | tuple | float)
    return array.astype(np.float64, order="C", copy=copy)


def as_scope(raw: Sequence[int], n: int, name: str) -> tuple[int, ...]:
    """Return the variables of a scope; refuse non-integers, missing and repeated ones."""
    try:
        scope = tuple(raw)
        if not set(map(type, scope)) <= {int}:
            if any(isinstance(v, bool) for v in scope):
                raise TypeError
            scope = tuple(map(operator.index, scope))
    except TypeError:
        raise ValueError(
            f"{name} has scope {raw!r}; a scope is a sequence of integers from 0 to {n - 1}"
        ) from None
    if scope and not 0 <= min(scope) <= max(scope) < n:
        raise ValueError(
            f"{name} has scope {scope}, which names a missing variable; "
            f"the graph has variables 0 to {n - 1}"
        )
    if len(set(scope)) < len(scope):
        raise ValueError(f"{name} has scope {scope}, which names a variable twice")
    return scope


def _as_edges(edges: npt.ArrayLike, n: int) -> Int32Array:
    array = np.asarray(unwrap(edges, "edges"))
    if array.size == 0:
        return np.empty((0, 2), dtype=np.int32)
    if array.ndim != 2 or array.shape[1] != 2:
        raise ValueError(f"edges must have shape (m, 2), got {array.shape}")
    if array.dtype.kind not in "iu":
        raise ValueError(f"edges must hold integers, got dtype {array.dtype}")
    if array.min() < 0 or array.max() >= n:
        row = int(np.argwhere((array < 0) | (array >= n))[0, 0])
        raise ValueError(
            f"edges[{row}] = {tuple(int(v) for v in array[row])} names a missing variable; "
            f"the graph has variables 0 to {n - 1}"
        )
    loops = array[:, 0] == array[:, 1]
    if loops.any():
        row = int(np.argmax(loops))
        raise ValueError(
            f"edges[{row}] = {tuple(int(v) for v in array[row])} joins a variable to itself; "
            "add the diagonal of its costs to the unary"
        )
    return array.astype(np.int32)


class Unaries(NamedTuple):
    """Unaries in storage form: labels a variable, start of each row, and the flat costs."""

    cardinalities: IntArray
    ptr: IntArray
    values: FloatArray


def parse_unary(unary: npt.ArrayLike | Sequence[npt.ArrayLike] | Unaries) -> Unaries:
    """Read unaries given as a matrix, as one row a variable, or in storage form."""
    if isinstance(unary, Unaries):
        return unary._replace(values=as_costs(unary.values, "unary"))
    unary = unwrap(unary, "unary")
    if isinstance(unary, np.ndarray) and unary.dtype != object:
        matrix = as_costs(unary, "unary")
        if matrix.ndim == 1 and matrix.size == 0:
            matrix = matrix.reshape(0, 1)
        if matrix.ndim != 2:
            raise ValueError(
                f"unary must have shape (n, k) or be a list of 1-D arrays, got shape {matrix.shape}"
            )
        n, k = matrix.shape
        if n and k == 0:
            raise ValueError("unary has no labels: every variable needs at least one")
        return Unaries(
            np.full(n, k, dtype=np.int64), np.arange(n + 1, dtype=np.int64) * k, matrix.ravel()
        )
    rows = [as_costs(row, f"unary[{i}]") for i, row in enumerate(unary)]  # type: ignore[arg-type]
    for i, row in enumerate(rows):
        if row.ndim != 1 or row.size == 0:
            raise ValueError(
                f"unary[{i}] must be a 1-D array with at least one label, got shape {row.shape}"
            )
    cardinalities = np.array([row.size for row in rows], dtype=np.int64)
    values = np.concatenate(rows) if rows else np.empty(0)
    return Unaries(cardinalities, starts_of(cardinalities), values)


def by_shape(shapes: IntArray) -> list[tuple[tuple[int, ...], IntArray]]:
    """Return the distinct rows of an array, by first appearance, each with its places."""
    if len(shapes) == 0:
        return []
    # Small integers are sorted in linear time.
    keys = shapes.T.astype(np.min_scalar_type(int(shapes.max())))
    order = np.lexsort(keys[::-1])
    changes = np.flatnonzero((keys[:, order[1:]] != keys[:, order[:-1]]).any(axis=0)) + 1
    # The sort is stable, so the first place of a row is the first of its group.
    groups = sorted(np.split(order, changes), key=lambda places: int(places[0]))
    return [(tuple(shapes[places[0]].tolist()), places) for places in groups]


class EdgeBlock(NamedTuple):
    """A block of edges in the storage form of `GraphArrays`."""

    edges: Int32Array
    kinds: npt.NDArray[np.uint8]
    weights: FloatArray
    offsets: IntArray
    values: FloatArray


_NO_EDGES = EdgeBlock(
    np.empty((0, 2), np.int32),
    np.empty(0, np.uint8),
    np.empty(0),
    np.empty(0, np.int64),
    np.empty(0),
)


def _per_edge(array: FloatArray, m: int, name: str) -> FloatArray:
    """Return one cost for each of `m` edges; refuse other shapes than (m,) and ()."""
    if array.ndim > 1 or (array.ndim == 1 and array.shape[0] != m):
        raise ValueError(f"{name} must be a number or have shape ({m},), got {array.shape}")
    return np.ascontiguousarray(np.broadcast_to(array, (m,)))


def _pack_diagonal(term: DiagonalTerms, cardinalities: IntArray) -> EdgeBlock:
    edges = _as_edges(term.edges, cardinalities.size)
    m = edges.shape[0]
    same = as_costs(term.same, "same")
    differ = _per_edge(as_costs(term.differ, "differ"), m, "differ")
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
        return EdgeBlock(edges, kinds, differ, offsets, same.ravel())
    kinds = np.full(m, POTTS, dtype=np.uint8)
    if same.ndim == 0:
        return EdgeBlock(edges, kinds, differ, np.zeros(m, dtype=np.int64), same.reshape(1))
    same = _per_edge(same, m, "same")
    return EdgeBlock(edges, kinds, differ, np.arange(m, dtype=np.int64), same)


def _classify(tables: FloatArray) -> tuple[npt.NDArray[np.uint8], FloatArray, FloatArray]:
    """Return the kind, diagonal and ``differ`` of each table; a single entry is a Potts term."""
    diagonal = np.diagonal(tables, axis1=1, axis2=2)
    kinds = np.where((diagonal == diagonal[:, :1]).all(axis=1), POTTS, DIAGONAL).astype(np.uint8)
    off = ~np.eye(tables.shape[1], tables.shape[2], dtype=bool)
    if not off.any():
        return kinds, diagonal, np.zeros(len(tables))
    entries = tables[:, off]
    kinds[(entries != entries[:, :1]).any(axis=1)] = TABLE
    return kinds, diagonal, entries[:, 0]


def pack_tables(
    edges: Int32Array, groups: Iterable[tuple[IntArray, FloatArray]], m: int
) -> EdgeBlock:
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
            mask = kind == this
            part = np.ascontiguousarray(rows if mask.all() else rows[mask])
            offsets[members[mask]] = size + np.arange(len(part)) * part.shape[1]
            parts.append(part.ravel())
            size += part.size
    return EdgeBlock(
        edges, kinds, weights, offsets, np.concatenate(parts) if parts else np.empty(0)
    )


def _check_table_shape(
    edges: Int32Array, members: IntArray, cardinalities: IntArray, shape: tuple[int, ...], name: str
) -> None:
    """Refuse tables of this shape on some edges if the labels of their variables do not fit."""
    wrong = (cardinalities[edges[members]] != np.array(shape)).any(axis=1)
    if wrong.any():
        e = int(members[np.argmax(wrong)])
        i, j = (int(v) for v in edges[e])
        raise ValueError(
            f"{name.format(e)} has shape {shape}, but edge {e} = ({i}, {j}) joins variables with "
            f"{cardinalities[i]} and {cardinalities[j]} labels"
        )


def _pack_shared(term: SharedTable, cardinalities: IntArray) -> EdgeBlock:
    edges = _as_edges(term.edges, cardinalities.size)
    m = edges.shape[0]
    table = as_costs(term.table, "table")
    if table.ndim != 2:
        raise ValueError(f"table must have two axes, got shape {table.shape}")
    _check_table_shape(edges, np.arange(m), cardinalities, table.shape, "table")
    weights = _per_edge(as_costs(term.weights, "weights"), m, "weights")
    if np.isinf(weights).any():
        e = int(np.flatnonzero(np.isinf(weights))[0])
        raise ValueError(f"weights[{e}] is inf; put +inf into the table instead")
    largest = float(np.abs(table[np.isfinite(table)]).max(initial=0.0))
    over = np.abs(weights) * largest > COST_LIMIT
    if over.any():
        e = int(np.argmax(over))
        raise ValueError(
            f"weights[{e}] = {weights[e]} times {largest}, the largest cost of the table, must not "
            f"exceed {COST_LIMIT:g}: scale the costs"
        )
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
    return EdgeBlock(edges, kinds, weights, np.zeros(m, dtype=np.int64), table.ravel())


def _pack_own(term: OwnTables, cardinalities: IntArray) -> EdgeBlock:
    """Pack dense tables, each by the simplest kind that represents it."""
    edges = _as_edges(term.edges, cardinalities.size)
    m = edges.shape[0]
    tables = unwrap(term.tables, "tables")
    if isinstance(tables, np.ndarray) and tables.dtype != object:
        stack = as_costs(tables, "tables")
        if m == 0 and stack.size == 0:
            return _pack_diagonal(DiagonalTerms(edges), cardinalities)
        if stack.ndim != 3 or stack.shape[0] != m:
            raise ValueError(f"tables must have shape ({m}, k_i, k_j), got {stack.shape}")
        _check_table_shape(edges, np.arange(m), cardinalities, stack.shape[1:], "tables[{}]")
        return pack_tables(edges, [(np.arange(m), stack)], m)
    listed = [as_costs(raw, f"tables[{e}]") for e, raw in enumerate(tables)]
    if len(listed) != m:
        raise ValueError(f"{len(listed)} tables for {m} edges")
    for e, table in enumerate(listed):
        if table.ndim != 2:
            raise ValueError(f"tables[{e}] must have two axes, got shape {table.shape}")
    groups = []
    for shape, members in by_shape(np.array([table.shape for table in listed])):
        _check_table_shape(edges, members, cardinalities, shape, "tables[{}]")
        groups.append((members, np.stack([listed[e] for e in members])))
    return pack_tables(edges, groups, m)


def pack(term: PairwiseTerms | EdgeBlock, cardinalities: IntArray) -> EdgeBlock:
    """Pack a block of terms of any family; one in storage form is not checked again."""
    if isinstance(term, EdgeBlock):
        return term
    if isinstance(term, DiagonalTerms):
        return _pack_diagonal(term, cardinalities)
    if isinstance(term, SharedTable):
        return _pack_shared(term, cardinalities)
    return _pack_own(term, cardinalities)


def concatenate(blocks: list[EdgeBlock]) -> EdgeBlock:
    """Join blocks into one with a common pool of values."""
    if len(blocks) == 1:
        return blocks[0]
    starts = starts_of([b.values.size for b in blocks])
    moved = [b._replace(offsets=b.offsets + s) for b, s in zip(blocks, starts, strict=False)]
    return EdgeBlock(*map(np.concatenate, zip(_NO_EDGES, *moved, strict=True)))


def dense(block: EdgeBlock, e: int, cardinalities: IntArray) -> FloatArray:
    """Return edge ``e`` as a ``(k_i, k_j)`` table."""
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


def dense_stack(
    block: EdgeBlock,
    members: IntArray,
    ki: int,
    kj: int,
    flipped: npt.NDArray[np.bool_] | np.bool_ = np.False_,
) -> FloatArray:
    """Return edges as one ``(len(members), k_i, k_j)`` stack; `flipped` ones are transposed."""
    a, b = np.indices((ki, kj))
    table = (block.kinds[members] == TABLE)[:, None, None]
    stride = block.kinds[members].astype(np.int64)[:, None, None]
    index = np.where(
        table,
        np.where(np.expand_dims(flipped, (-2, -1)), b * ki + a, a * kj + b),
        np.where(a == b, a * stride, 0),
    )
    values = block.values[block.offsets[members][:, None, None] + index]
    weights = block.weights[members][:, None, None]
    # For diagonal kinds the weight is a cost, which is not multiplied, as ``inf * 0`` is NaN.
    return np.where(table | (a == b), values * np.where(table, weights, 1.0), weights)


def merge_parallel(block: EdgeBlock, cardinalities: IntArray) -> EdgeBlock:
    """Add up terms on the same pair of variables; most graphs have none and return at once."""
    m = len(block.edges)
    if m < 2:
        return block
    rising = np.sort(_pair_keys(block.edges, cardinalities.size))
    repeated = np.unique(rising[1:][rising[1:] == rising[:-1]])
    if repeated.size == 0:
        return block
    del rising
    # The terms on the same pair as others, by their pairs, and the number on each pair.
    parts = []
    for part in blocks(m):
        key = _pair_keys(block.edges[part], cardinalities.size)
        place = np.minimum(np.searchsorted(repeated, key), repeated.size - 1)
        parts.append(part.start + np.flatnonzero(repeated[place] == key))
    order = np.concatenate(parts)
    key = _pair_keys(block.edges[order], cardinalities.size)
    order = order[np.argsort(key, kind="stable")]
    sizes = np.bincount(np.searchsorted(repeated, key))
    first = order[starts_of(sizes)[:-1]]
    kinds, weights, offsets = block.kinds.copy(), block.weights.copy(), block.offsets.copy()
    extra: list[FloatArray] = []
    size = block.values.size

    shapes = cardinalities[block.edges[first]]
    for (ki, kj), fitting in sorted(by_shape(shapes), key=lambda group: group[0]):
        # In blocks, so that the dense tables of many duplicates need little memory.
        count = 1 + int(sizes[fitting].sum()) * ki * kj // _TABLE_BLOCK
        for pairs in np.array_split(fitting, min(count, fitting.size)):
            mask = np.zeros(sizes.size, dtype=bool)
            mask[pairs] = True
            members = order[np.repeat(mask, sizes)]
            sender = np.repeat(block.edges[first[pairs], 0], sizes[pairs])
            tables = dense_stack(block, members, ki, kj, block.edges[members, 0] != sender)
            ends = np.cumsum(sizes[pairs])
            tables = np.add.reduceat(tables, ends - sizes[pairs], axis=0)
            at = first[pairs]
            merged = pack_tables(block.edges[at], [(np.arange(at.size), tables)], at.size)
            kinds[at], weights[at] = merged.kinds, merged.weights
            offsets[at] = size + merged.offsets
            extra.append(merged.values)
            size += merged.values.size
    # The sum stands where the user first named the pair.
    is_first = np.ones(m, dtype=bool)
    is_first[order] = False
    is_first[first] = True
    return EdgeBlock(
        block.edges[is_first],
        kinds[is_first],
        weights[is_first],
        offsets[is_first],
        np.concatenate([block.values, *extra]),
    )


def _pair_keys(edges: Int32Array, n: int) -> IntArray:
    """Return a number for each edge that is the same for the edges of a pair, shape (m,)."""
    # Column by column, because numpy is slow on rows of two.
    ends = edges.T
    keys: IntArray = np.minimum(*ends).astype(np.int64)
    keys *= n
    keys += np.maximum(*ends)
    return keys


def check_merged(block: EdgeBlock, cardinalities: IntArray) -> None:
    """Refuse terms that exceed `COST_LIMIT` when they are added up."""
    limits = np.where(np.isposinf(block.values), 0.0, block.values)
    weights = np.where(np.isposinf(block.weights), 0.0, block.weights)
    if in_range(limits) and in_range(weights):
        return
    for e, (i, j) in enumerate(block.edges.tolist()):
        check_costs(dense(block, e, cardinalities), f"the sum of all terms on ({i}, {j})")


def closed_forms(block: EdgeBlock, cardinalities: IntArray) -> npt.NDArray[np.uint8]:
    """Recognise tables whose messages cost O(k): truncated linear and quadratic ones, (m,)."""
    forms = np.full(len(block.edges), NO_FORM, dtype=np.uint8)
    table = np.flatnonzero((block.kinds == TABLE) & (block.weights >= 0))
    shapes = cardinalities[block.edges[table]]
    square = shapes[:, 0] == shapes[:, 1]
    table, sizes = table[square], shapes[square, 0]
    for k in np.unique(sizes):
        members = table[sizes == k]
        starts, which = np.unique(block.offsets[members], return_inverse=True)
        distance = np.abs(np.subtract.outer(np.arange(k), np.arange(k)))
        form_of = np.full(starts.size, NO_FORM, dtype=np.uint8)
        step = max(1, _TABLE_BLOCK // int(k * k))
        for lo in range(0, starts.size, step):
            index = starts[lo : lo + step, None] + np.arange(k * k)
            tables = block.values[index].reshape(-1, k, k)
            finite = np.isfinite(tables).all(axis=(1, 2))
            with np.errstate(invalid="ignore"):  # inf - inf in a table that does not fit
                shifted = tables - tables[:, :1, :1]
                slope, truncation = shifted[:, 0, 1], shifted[:, 0, k - 1]
                # A few units in the last place, because the table was rounded as well.
                tolerance = 1e-14 * np.abs(tables).max(axis=(1, 2))[:, None, None]
                for form, power in ((TRUNCATED_QUADRATIC, 2), (TRUNCATED_LINEAR, 1)):
                    rise = slope[:, None, None] * distance**power
                    model = np.minimum(rise, truncation[:, None, None])
                    close = (np.abs(shifted - model) <= tolerance).all(axis=(1, 2))
                    fits = finite & close & (slope >= 0) & (truncation >= 0)
                    form_of[lo : lo + step][fits] = form
        forms[members] = form_of[which]
    return forms
