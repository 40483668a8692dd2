"""Flat arrays that kernels take, and the codes in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

FloatArray: TypeAlias = npt.NDArray[np.float64]

IntArray: TypeAlias = npt.NDArray[np.int64]

Int32Array: TypeAlias = npt.NDArray[np.int32]

#: Entries are 0 or 1.
Flags: TypeAlias = npt.NDArray[np.uint8]

#: ``edge_kinds`` value of a diagonal term whose diagonal is one number (Potts).
POTTS = 0

#: ``edge_kinds`` value of a diagonal term with one diagonal value a label.
DIAGONAL = 1

#: ``edge_kinds`` value of a term given by a dense (possibly shared) table.
TABLE = 2

#: ``forms`` value of a term without a known closed form.
NO_FORM = 0

#: ``forms`` value of a table ``T[0, 0] + min(slope * |a - b|, truncation)``; slope and weight >= 0.
TRUNCATED_LINEAR = 1

#: ``forms`` value of a table ``T[0, 0] + min(curve * (a - b)^2, truncation)``; no negative factor.
TRUNCATED_QUADRATIC = 2


def freeze(array: Any) -> npt.NDArray[Any]:
    """Return a read-only view of an array, or a C-contiguous copy."""
    out: npt.NDArray[Any] = np.ascontiguousarray(array)
    if out.flags.writeable:
        out = out.view()
        out.flags.writeable = False
    return out


def starts_of(sizes: npt.ArrayLike) -> IntArray:
    """Return the starts of consecutive stretches of these lengths, and the end of the last."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])


#: Entries of a block: temporary arrays of a block stay in the second-level cache.
_BLOCK = 1 << 16


def blocks(size: int, length: int = _BLOCK) -> Iterator[slice]:
    """Cut ``range(size)`` into slices of at most a given length."""
    for start in range(0, size, length):
        yield slice(start, min(start + length, size))


def sum_in_blocks(size: int, terms: Callable[[slice], FloatArray], start: int = 0) -> Any:
    """Return the sum of ``terms(slice(start, start + size))`` over the last axis.

    Only a block of the terms exists at a time. The sum is rounded as numpy rounds the sum of a
    contiguous array, which it halves at multiples of eight.
    """
    if size <= _BLOCK:
        return terms(slice(start, start + size)).sum(axis=-1)
    half = size // 2 // 8 * 8
    return sum_in_blocks(half, terms, start) + sum_in_blocks(size - half, terms, start + half)


def connected(n: int, pairs: npt.NDArray[np.integer]) -> IntArray:
    """Return the component of each of ``n`` vertices that the (m, 2) pairs join, shape (n,)."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    if n == 0:
        return np.zeros(0, dtype=np.int64)
    adjacency = coo_array((np.ones(len(pairs), dtype=np.int8), np.asarray(pairs).T), shape=(n, n))
    return np.asarray(connected_components(adjacency.tocsr(), directed=False)[1], dtype=np.int64)


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
    * ``factor_ptr`` (f+1,) int64 into ``scopes`` int32; ``table_ptr`` (f+1,) int64 into ``tables``
      (row-major: the last variable of a scope varies fastest);
    * ``inc_ptr`` (n+1,) int64, ``inc_slot`` int64: the positions in ``scopes`` at which each
      variable occurs; ``slot_factor`` int32: the factor of each position.
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
    factor_ptr: IntArray
    scopes: Int32Array
    table_ptr: IntArray
    tables: FloatArray
    inc_ptr: IntArray
    inc_slot: IntArray
    slot_factor: Int32Array

    def reverse_positions(self) -> Int32Array:
        """Return the position in ``adj_half`` of the other half of each one's edge, (2m,)."""
        position = np.empty(self.adj_half.size, dtype=np.int32)
        for part in blocks(position.size):
            position[self.adj_half[part]] = np.arange(part.start, part.stop, dtype=np.int32)
        reverse = np.empty_like(position)
        for part in blocks(position.size):
            reverse[part] = position[self.adj_half[part] ^ 1]
        return reverse

    def read_only(self) -> GraphArrays:
        """Return the arrays read-only, because kernels compile anew for writable ones."""
        return GraphArrays(*map(freeze, self))
