"""Dense factors of any arity as users give them, checked and laid out one after the other."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from inference_lab.graph.arrays import FloatArray, IntArray, starts_of
from inference_lab.graph.terms import (
    EdgeBlock,
    Unaries,
    as_costs,
    as_floats,
    as_scope,
    by_shape,
    check_costs,
    in_range,
    pack_tables,
)


class Factors(NamedTuple):
    """Dense factors in storage form: starts in flat scopes and tables; not checked again."""

    ptr: IntArray
    scopes: IntArray
    table_ptr: IntArray
    values: FloatArray

    @classmethod
    def of(
        cls, arities: npt.ArrayLike, scopes: npt.ArrayLike, sizes: npt.ArrayLike, values: FloatArray
    ) -> Factors:
        """Return factors, stored in succession, from their numbers of variables and of entries."""
        flat = np.asarray(scopes, dtype=np.int64)
        return cls(starts_of(arities), flat, starts_of(sizes), values)

    def chosen(self, which: npt.NDArray[np.bool_]) -> Factors:
        """Return some of the factors, shape (f,), in their order."""
        if which.all():
            return self
        arities, sizes = np.diff(self.ptr), np.diff(self.table_ptr)
        scopes = self.scopes[np.repeat(which, arities)]
        values = self.values[np.repeat(which, sizes)]
        return Factors.of(arities[which], scopes, sizes[which], values)


def parse_factors(
    factors: Iterable[tuple[Any, npt.ArrayLike]] | Factors, cardinalities: IntArray
) -> Factors:
    """Read dense factors given one by one, in stacks, or in storage form."""
    if isinstance(factors, Factors):
        check_costs(factors.values, "factors, flat,")
        return factors
    labels: list[int] = []
    arities: list[int] = []
    scopes: list[int] = []
    sizes: list[int] = []
    tables: list[FloatArray] = []
    for f, (raw_scope, raw_table) in enumerate(factors):
        if isinstance(raw_scope, np.ndarray) and raw_scope.ndim == 2:
            table = _as_stack(raw_scope, raw_table, cardinalities, f"factors[{f}]")
            count, arity = raw_scope.shape
            sizes += [math.prod(table.shape[1:])] * count
            arities += [arity] * count
            scopes += raw_scope.ravel().tolist()
        else:
            # Python's numbers are faster here, but all graphs without factors would pay for them.
            labels = labels or cardinalities.tolist()
            scope = as_scope(raw_scope, len(labels), f"factor {f}")
            table = as_floats(raw_table, f"factor {f}", copy=False)
            expected = tuple([labels[v] for v in scope])
            if table.shape != expected:
                raise ValueError(
                    f"factor {f} over {scope} has a table of shape {table.shape}, "
                    f"but its variables have {expected} labels"
                )
            sizes.append(table.size)
            arities.append(len(scope))
            scopes += scope
        tables.append(table)
    values = np.concatenate([table.ravel() for table in tables]) if tables else np.empty(0)
    if not in_range(values):
        # One fast check of all tables; the slow search for the first wrong one only if it fails.
        for f, table in enumerate(tables):
            check_costs(table, f"factor {f}")
    return Factors.of(arities, scopes, sizes, values)


def _as_stack(
    scopes: npt.NDArray[Any], tables: npt.ArrayLike, cardinalities: IntArray, name: str
) -> FloatArray:
    """Return the tables of factors of one shape, with the same checks as for each alone."""
    n = cardinalities.size
    if scopes.dtype.kind not in "iu":
        raise ValueError(f"{name} has scopes of dtype {scopes.dtype}; scopes are integers")
    rising = np.sort(scopes, axis=1)
    wrong = (rising < 0) | (rising >= n)
    wrong[:, 1:] |= rising[:, 1:] == rising[:, :-1]
    if wrong.any():
        row = int(np.argmax(wrong.any(axis=1)))
        as_scope(scopes[row].tolist(), n, f"{name}, row {row},")
    stack = as_costs(tables, name)
    expected = cardinalities[scopes]
    if stack.shape[:1] != scopes.shape[:1] or stack.ndim != 1 + scopes.shape[1]:
        axes = ", ".join(["f", *(f"k_{i + 1}" for i in range(scopes.shape[1]))])
        raise ValueError(
            f"{name} has {len(scopes)} scopes of {scopes.shape[1]} variables and tables of shape "
            f"{stack.shape}; expected ({axes}), one table a scope"
        )
    unlike = (expected != np.array(stack.shape[1:], dtype=np.int64)).any(axis=1)
    if unlike.any():
        row = int(np.argmax(unlike))
        scope, shape = tuple(scopes[row].tolist()), tuple(expected[row].tolist())
        raise ValueError(
            f"{name}, row {row}, over {scope} has a table of shape {stack.shape[1:]}, but its "
            f"variables have {shape} labels"
        )
    return stack


class Split(NamedTuple):
    """Factors by arity; see `split`."""

    constants: FloatArray
    unary: FloatArray
    pairs: EdgeBlock | None
    higher: Factors


def split(factors: Factors, unaries: Unaries) -> Split:
    """Split factors by arity: constants, sums with the unaries, pairwise terms, and the rest."""
    arities = np.diff(factors.ptr)
    if arities.min(initial=3) > 2:
        return Split(np.empty(0), unaries.values, None, factors)
    single = factors.chosen(arities == 1)
    unary = unaries.values
    if single.scopes.size:
        unary = unary.copy()
        first = unaries.ptr[single.scopes] - single.table_ptr[:-1]
        into = np.repeat(first, np.diff(single.table_ptr)) + np.arange(single.values.size)
        np.add.at(unary, into, single.values)
    double = factors.chosen(arities == 2)
    pairs = _pack_pairs(double, unaries.cardinalities) if double.scopes.size else None
    return Split(factors.chosen(arities == 0).values, unary, pairs, factors.chosen(arities > 2))


def _pack_pairs(factors: Factors, cardinalities: IntArray) -> EdgeBlock:
    """Pack factors of two variables, all of a shape at once, in the order of first appearance."""
    edges = factors.scopes.reshape(-1, 2).astype(np.int32)
    stacks = []
    for shape, members in by_shape(cardinalities[edges]):
        entries = factors.table_ptr[members, None] + np.arange(math.prod(shape))
        stacks.append((members, factors.values[entries].reshape(-1, *shape)))
    return pack_tables(edges, stacks, len(edges))
