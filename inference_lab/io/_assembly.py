"""Flat tables of energies as a factor graph: what all readers of model files end with."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import numpy.typing as npt

import inference_lab.io._limits as _limits
from inference_lab.graph.arrays import FloatArray, IntArray, starts_of
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.factors import Factors
from inference_lab.graph.terms import OwnTables, PairwiseTerms, SharedTable, Unaries
from inference_lab.io._files import FormatError
from inference_lab.io._tokens import Tokens

#: Numpy allows 64 axes, in older versions 32; 2**31 entries do not fit into a file that we read.
_MAX_AXES = 31
#: Unaries are added up in blocks of about this many entries.
_BLOCK = 1 << 20
#: A table is kept shared where this saves so many entries: a term of its own takes time, too.
_WORTH_SHARING = 256

#: Makes the error for a factor: its number, and what is wrong with it.
Fail = Callable[[int, str], FormatError]


def table_sizes(cardinalities: IntArray, arities: IntArray, scopes: IntArray) -> FloatArray:
    """Return the number of entries of each table."""
    # In doubles, so that absurd sizes become large numbers and do not wrap around.
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
    """Return the largest variable of no factor, and the fault, if these have too many labels."""
    # Such variables are announced in a few bytes, and would take up memory all the same.
    free = np.ones(cardinalities.size, dtype=bool)
    free[scopes] = False
    most = _limits.MAX_FREE_LABELS
    if int(cardinalities[free].sum()) <= most:
        return None
    i = int(np.argmax(np.where(free, cardinalities, 0)))
    return i, (
        f"variable {i} has {cardinalities[i]} labels and no factor; variables of no factor "
        f"may have {most:,} labels in all"
    )


def check_entries(sizes: FloatArray, listed: int, fail: Fail) -> None:
    """Refuse tables of these sizes where they are far larger than what a file lists of them."""
    total = float(sizes.sum())
    most = _limits.MAX_ENTRIES + listed
    if total > most:
        f = int(np.argmax(sizes))
        raise fail(
            f,
            f"all tables have {total:.0f} entries, this one {sizes[f]:.0f}; at most {most} are "
            f"read: {_limits.MAX_ENTRIES}, and as many as the file has numbers",
        )


def graph_of(
    path: str,
    unary: Unaries | FloatArray,
    terms: Iterable[PairwiseTerms] = (),
    factors: Factors | tuple[()] = (),
    constant: float = 0.0,
) -> FactorGraph:
    """Make the graph; what it refuses is a fault of the file."""
    try:
        return FactorGraph.from_terms(unary, terms, factors, constant)
    except (ValueError, OverflowError) as problem:
        raise FormatError(f"{path}: {problem}") from None


def ranges(starts: IntArray, lengths: IntArray) -> IntArray:
    """Return the places from each start on, as many as its length, one after the other."""
    within = np.arange(int(lengths.sum())) - np.repeat(starts_of(lengths)[:-1], lengths)
    return np.asarray(np.repeat(starts, lengths) + within, dtype=np.int64)


def read_scopes(
    tokens: Tokens, places: IntArray, arities: IntArray, n: int, noun: str = "factor"
) -> IntArray:
    """Return the variables at these places, which are those of all scopes, checked."""

    def named(position: int) -> str:
        f = int(np.searchsorted(np.cumsum(arities), position, side="right"))
        return f"{noun} {f}"

    allowed = f"0 to {n - 1}" if n else "but there are none"
    scopes = tokens.integers(
        places, 0, n, lambda s: f"{named(s)}: expected a variable of its scope, {allowed}"
    ).astype(np.int64)
    again = repeated(arities, scopes, n)
    if again is not None:
        raise tokens.error(
            int(places[again]), f"{named(again)} names variable {scopes[again]} twice in its scope"
        )
    return scopes


def scope_of(f: int, arities: IntArray, scopes: IntArray) -> tuple[int, ...]:
    """Return the variables of a factor."""
    start = int(arities[:f].sum())
    return tuple(scopes[start : start + int(arities[f])].tolist())


def shown_scope(scope: tuple[int, ...]) -> str:
    """Return a scope for a message, cut when it is long."""
    if len(scope) <= 12:
        return str(scope)
    return f"({', '.join(map(str, scope[:12]))}, ... {len(scope)} variables)"


def too_large(energies: FloatArray) -> npt.NDArray[np.bool_]:
    """Return which costs are finite, but larger than any may be."""
    return np.isfinite(energies) & (np.abs(energies) > _limits.MAX_COST)


def total(constants: FloatArray) -> float:
    """Add up constants, but for those that are too large, which `assemble` refuses."""
    return math.fsum(constants[~too_large(constants)].tolist())


def assemble(
    path: str,
    fail: Fail,
    cardinalities: IntArray,
    arities: IntArray,
    scopes: IntArray,
    sizes: IntArray,
    entry_starts: IntArray,
    energies: FloatArray,
    constant: float = 0.0,
) -> FactorGraph:
    """Make a graph of tables that lie in one flat array; those over no variable are constants."""
    large = too_large(energies)
    if large.any():
        at = int(np.argmax(large))
        f = int(np.argmax((entry_starts <= at) & (at < entry_starts + sizes)))
        raise fail(
            f,
            f"a cost is {energies[at]:g}; finite ones are at most {_limits.MAX_COST:g} in size",
        )
    scope_starts = np.cumsum(arities) - arities
    pointers = np.concatenate([np.zeros(1, np.int64), np.cumsum(cardinalities)])
    flat = np.zeros(int(pointers[-1]))
    single = np.flatnonzero(arities == 1)
    ends = np.cumsum(sizes[single])
    cuts = np.searchsorted(ends, np.arange(_BLOCK, int(ends[-1]) if ends.size else 0, _BLOCK))
    for rows in np.split(single, np.unique(cuts)):
        lengths = sizes[rows]
        into = ranges(pointers[scopes[scope_starts[rows]]], lengths)
        np.add.at(flat, into, energies[ranges(entry_starts[rows], lengths)])

    pairs = np.flatnonzero(arities == 2)
    joined = scopes[scope_starts[pairs][:, None] + np.arange(2)]
    starts = entry_starts[pairs]
    _, which, uses = np.unique(starts, return_inverse=True, return_counts=True)
    shared = ((uses[which] - 1) * sizes[pairs] >= _WORTH_SHARING) & (uses[which] > 1)
    terms: list[PairwiseTerms] = [
        *_own_terms(joined[~shared], cardinalities, starts[~shared], energies)
    ]
    if shared.any():
        terms += _shared_terms(joined[shared], cardinalities, starts[shared], energies)
        _check_merged(pairs, joined, shared, starts, cardinalities, fail)
    factors = _factors(cardinalities, arities, scopes, sizes, entry_starts, energies)
    constants = energies[entry_starts[arities == 0]]
    finite = np.isfinite(constants)
    constant += total(constants[finite])
    graph = graph_of(path, Unaries(cardinalities, pointers, flat), terms, factors, constant)
    return graph if finite.all() else forbidding(path, graph)


def forbidding(path: str, graph: FactorGraph) -> FactorGraph:
    """Return the graph with no labelling allowed, which only the labels of a variable can say."""
    if graph.n_variables == 0:
        raise FormatError(
            f"{path}: no labelling is allowed, and there is no variable whose labels could say so"
        )
    forbidden = graph.unary_values.copy()
    forbidden[: int(graph.cardinalities[0])] = math.inf
    return graph.with_unary(forbidden)


def _factors(
    cardinalities: IntArray,
    arities: IntArray,
    scopes: IntArray,
    sizes: IntArray,
    entry_starts: IntArray,
    energies: FloatArray,
) -> Factors:
    """Lay out the factors of three variables and more."""
    higher = arities > 2
    named = scopes[np.repeat(higher, arities)]
    lengths = arities[higher]
    # Most of so many variables have one label only, and make no difference to the table.
    kept = (np.repeat(lengths, lengths) <= _MAX_AXES) | (cardinalities[named] > 1)
    starts, ends = entry_starts[higher].tolist(), (entry_starts + sizes)[higher].tolist()
    tables = [energies[start:end] for start, end in zip(starts, ends, strict=True)]
    return Factors(
        starts_of(kept)[starts_of(lengths)],
        named[kept],
        starts_of(sizes[higher]),
        np.concatenate([np.empty(0), *tables]),
    )


def _own_terms(
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


def _shared_terms(
    ends: IntArray, cardinalities: IntArray, starts: IntArray, energies: FloatArray
) -> Iterator[SharedTable]:
    """Make one term of each table; a pair that has it several times has it with a weight."""
    distinct, counts = np.unique(np.column_stack([starts, ends]), axis=0, return_counts=True)
    changes = np.flatnonzero(np.diff(distinct[:, 0])) + 1
    for rows in np.split(np.arange(len(distinct)), changes):
        start, i, j = distinct[rows[0]].tolist()
        k_i, k_j = cardinalities[[i, j]].tolist()
        table = energies[start : start + k_i * k_j].reshape(k_i, k_j)
        yield SharedTable(distinct[rows, 1:], table, counts[rows].astype(float))


def _check_merged(
    pairs: IntArray,
    ends: IntArray,
    shared: npt.NDArray[np.bool_],
    starts: IntArray,
    cardinalities: IntArray,
    fail: Fail,
) -> None:
    """Refuse shared tables on pairs with other tables, where their sums are too many entries."""
    low, high = ends.min(axis=1), ends.max(axis=1)
    kinds = np.column_stack([low * cardinalities.size + high, starts, ends[:, 0]])
    # A table that a pair has several times is no sum of its own.
    first = np.unique(kinds, axis=0, return_index=True)[1]
    keys, which, counts = np.unique(kinds[first, 0], return_inverse=True, return_counts=True)
    summed = np.zeros(keys.size)
    of_sum = (counts[which] > 1) & shared[first]
    summed[which[of_sum]] = cardinalities[ends[first][of_sum]].prod(axis=1)
    f = int(pairs[first[of_sum][0]]) if of_sum.any() else 0
    check_entries(summed, 0, lambda _, message: fail(f, f"with others on its pair: {message}"))
