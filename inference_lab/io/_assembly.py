"""Flat tables of energies as a factor graph: what all readers of model files end with."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from inference_lab.factor_graph import FactorGraph, FloatArray, IntArray, OwnTables

#: Labels that variables of no factor may have in all. The others are paid for by their tables.
MAX_FREE_LABELS = 10_000_000
#: Entries of all tables where a file does not list them one by one: 1 GiB of doubles.
MAX_ENTRIES = 1 << 27
#: Numpy allows 64 axes, in older versions 32; 2**31 entries do not fit into a file that we read.
_MAX_AXES = 31


def table_sizes(cardinalities: IntArray, arities: IntArray, scopes: IntArray) -> FloatArray:
    """Return the number of entries of each table.

    In doubles, so that absurd sizes become large numbers and do not wrap around.
    """
    sizes = np.ones(arities.size)
    some = np.flatnonzero(arities)
    if some.size:
        starts = (np.cumsum(arities) - arities)[some]
        with np.errstate(over="ignore"):
            sizes[some] = np.multiply.reduceat(cardinalities[scopes].astype(float), starts)
    return sizes


def repeated(arities: IntArray, scopes: IntArray, n: int) -> int | None:
    """Return the first position in `scopes` whose variable stands in the same scope before it."""
    owner = np.repeat(np.arange(arities.size, dtype=np.int64), arities)
    order = np.argsort(owner * max(n, 1) + scopes, kind="stable")
    twice = (owner[order][1:] == owner[order][:-1]) & (scopes[order][1:] == scopes[order][:-1])
    return int(order[1:][twice].min()) if twice.any() else None


def too_many_free_labels(cardinalities: IntArray, scopes: IntArray) -> tuple[int, str] | None:
    """Return the largest variable of no factor, and what is wrong, if these have too many labels.

    Such variables are announced in a few bytes, and would take up memory all the same.
    """
    free = np.ones(cardinalities.size, dtype=bool)
    free[scopes] = False
    if int(cardinalities[free].sum()) <= MAX_FREE_LABELS:
        return None
    i = int(np.argmax(np.where(free, cardinalities, 0)))
    return i, (
        f"variable {i} has {cardinalities[i]} labels and no factor; variables of no factor "
        f"may have {MAX_FREE_LABELS:,} labels in all"
    )


def shown_scope(scope: tuple[int, ...]) -> str:
    """Return a scope for a message, cut when it is long."""
    if len(scope) <= 12:
        return str(scope)
    return f"({', '.join(map(str, scope[:12]))}, ... {len(scope)} variables)"


def assemble(
    cardinalities: IntArray,
    arities: IntArray,
    scopes: IntArray,
    sizes: IntArray,
    entry_starts: IntArray,
    energies: FloatArray,
    constant: float = 0.0,
) -> FactorGraph:
    """Make a graph of tables that lie in one flat array.

    Parameters
    ----------
    cardinalities : (n,) array of int
    arities : (f,) array of int
        Number of variables of each factor. Those of arity 0 are left out: the caller adds them
        up to the constant.
    scopes : (sum of arities,) array of int
        The variables of all factors; none twice in one factor.
    sizes, entry_starts : (f,) array of int
        Number of entries of each table, and the place of its first one; the last variable of a
        scope varies fastest.
    energies : flat float array
    constant : float
    """
    scope_starts = np.cumsum(arities) - arities
    pointers = np.concatenate([np.zeros(1, np.int64), np.cumsum(cardinalities)])
    flat = np.zeros(int(pointers[-1]))
    single = np.flatnonzero(arities == 1)
    if single.size:
        lengths = sizes[single]
        within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        into = np.repeat(pointers[scopes[scope_starts[single]]], lengths) + within
        np.add.at(flat, into, energies[np.repeat(entry_starts[single], lengths) + within])
    uniform = cardinalities.size > 0 and bool((cardinalities == cardinalities[0]).all())
    unary: FloatArray | list[FloatArray]
    if uniform:
        unary = flat.reshape(cardinalities.size, -1)
    else:
        unary = [
            flat[a:b] for a, b in zip(pointers[:-1].tolist(), pointers[1:].tolist(), strict=True)
        ]

    pairs = np.flatnonzero(arities == 2)
    ends = scopes[scope_starts[pairs][:, None] + np.arange(2)]
    terms = list(_pair_terms(ends, cardinalities, entry_starts[pairs], energies))
    factors = [
        _table(
            scopes[scope_starts[f] : scope_starts[f] + arities[f]],
            cardinalities,
            energies[entry_starts[f] : entry_starts[f] + sizes[f]],
        )
        for f in np.flatnonzero(arities > 2)
    ]
    return FactorGraph.from_terms(unary, terms, factors, constant=constant)


def _table(
    scope: IntArray, cardinalities: IntArray, entries: FloatArray
) -> tuple[list[int], FloatArray]:
    if scope.size > _MAX_AXES:
        # Most of so many variables have one label only, and make no difference to the table.
        scope = scope[cardinalities[scope] > 1]
    return scope.tolist(), entries.reshape(cardinalities[scope].tolist())


def _pair_terms(
    ends: IntArray, cardinalities: IntArray, starts: IntArray, energies: FloatArray
) -> Iterator[OwnTables]:
    """Group tables of the same shape, so that each group is one array."""
    if ends.shape[0] == 0:
        return
    shapes = cardinalities[ends]
    order = np.lexsort((shapes[:, 1], shapes[:, 0]))
    changes = np.flatnonzero((np.diff(shapes[order], axis=0) != 0).any(axis=1)) + 1
    groups = np.split(order, changes)
    for rows in sorted(groups, key=lambda rows: int(rows[0])):
        k_i, k_j = (int(k) for k in shapes[rows[0]])
        stack = energies[starts[rows][:, None] + np.arange(k_i * k_j)].reshape(-1, k_i, k_j)
        yield OwnTables(ends[rows], stack)
