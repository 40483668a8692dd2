"""Assembly of factor graphs from flat tables of energies, shared by all readers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

import inference_lab.io._limits as _limits
from inference_lab.graph.arrays import FloatArray, IntArray, starts_of
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.factors import Factors
from inference_lab.graph.terms import OwnTables, PairwiseTerms, Unaries
from inference_lab.io._files import FormatError
from inference_lab.io._tokens import Tokens

#: Largest number of axes: old numpy allows 32, and a table of 2**31 entries exceeds `MAX_BYTES`.
_MAX_AXES = 31

#: Makes the error for a factor from its number and the reason.
Fail = Callable[[int, str], FormatError]


@dataclass(frozen=True)
class Scopes:
    """The concatenated scopes of all factors, and the noun for a factor in messages."""

    arities: IntArray
    variables: IntArray
    noun: str = "factor"

    @classmethod
    def read(
        cls, tokens: Tokens, places: IntArray, arities: IntArray, n: int, noun: str = "factor"
    ) -> Self:
        """Read the scopes whose variables are at these places, and check them."""
        allowed = f"0 to {n - 1}" if n else "but there are none"

        def named(position: int) -> str:
            return f"{noun} {np.searchsorted(np.cumsum(arities), position, side='right')}"

        variables = tokens.integers(
            places, 0, n, lambda s: f"{named(s)}: expected a variable of its scope, {allowed}"
        ).astype(np.int64)
        owner = np.repeat(np.arange(arities.size, dtype=np.int64), arities)
        order = np.argsort(owner * max(n, 1) + variables, kind="stable")
        pairs = np.stack([owner, variables])[:, order]
        twice = (pairs[:, 1:] == pairs[:, :-1]).all(axis=0)
        if twice.any():
            at = int(order[1:][twice].min())
            raise tokens.error(
                int(places[at]), f"{named(at)} names variable {variables[at]} twice in its scope"
            )
        return cls(arities, variables, noun)

    @cached_property
    def starts(self) -> IntArray:
        """The position of each factor's first variable."""
        return np.asarray(np.cumsum(self.arities) - self.arities)

    def owner(self, position: int) -> int:
        """Return the factor to which a position in `variables` belongs."""
        return int(np.searchsorted(np.cumsum(self.arities), position, side="right"))

    def of(self, f: int) -> tuple[int, ...]:
        """Return the variables of a factor."""
        start = int(self.starts[f])
        return tuple(self.variables[start : start + int(self.arities[f])].tolist())

    def shown(self, f: int) -> str:
        """Format a factor for a message."""
        return f"{self.noun} {f} over {shown_scope(self.of(f))}"

    def table_sizes(self, cardinalities: IntArray) -> FloatArray:
        """Return the number of entries of each table."""
        # In doubles, because integers would overflow and wrap around for huge declared sizes.
        sizes = np.ones(self.arities.size)
        some = np.flatnonzero(self.arities)
        if some.size:
            labels = cardinalities[self.variables].astype(float)
            with np.errstate(over="ignore"):
                sizes[some] = np.multiply.reduceat(labels, self.starts[some])
        return sizes

    def check_free(self, cardinalities: IntArray, fail: Fail) -> None:
        """Refuse variables without factors if they have too many labels in all."""
        # Such variables are declared in a few bytes, but take memory for each label.
        free = np.ones(cardinalities.size, dtype=bool)
        free[self.variables] = False
        most = _limits.MAX_FREE_LABELS
        if int(cardinalities[free].sum()) > most:
            i = int(np.argmax(np.where(free, cardinalities, 0)))
            raise fail(
                i,
                f"variable {i} has {cardinalities[i]} labels and no factor; variables of no "
                f"factor may have {most:,} labels in all",
            )


class Tables(NamedTuple):
    """Tables in one flat array, and the start of each factor's table in it."""

    cardinalities: IntArray
    scopes: Scopes
    sizes: IntArray
    starts: IntArray
    energies: FloatArray


def check_entries(sizes: FloatArray, listed: int, fail: Fail) -> None:
    """Refuse tables that are far larger than the number of entries that the file lists."""
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
    """Make the graph; report its errors as faults of the file."""
    try:
        return FactorGraph.from_terms(unary, terms, factors, constant)
    except (ValueError, OverflowError) as problem:
        raise FormatError(f"{path}: {problem}") from None


def ranges(starts: IntArray, lengths: IntArray) -> IntArray:
    """Return the concatenated ranges ``start .. start + length - 1``."""
    within = np.arange(int(lengths.sum())) - np.repeat(starts_of(lengths)[:-1], lengths)
    return np.asarray(np.repeat(starts, lengths) + within, dtype=np.int64)


def shown_scope(scope: tuple[int, ...]) -> str:
    """Format a scope for a message, and shorten it if it is long."""
    if len(scope) <= 12:
        return str(scope)
    return f"({', '.join(map(str, scope[:12]))}, ... {len(scope)} variables)"


def too_large(energies: FloatArray) -> npt.NDArray[np.bool_]:
    """Return a mask of the finite costs beyond the largest allowed size."""
    return np.isfinite(energies) & (np.abs(energies) > _limits.MAX_COST)


def total(constants: FloatArray) -> float:
    """Add up all constants except the too large ones, which `assemble` refuses."""
    return math.fsum(constants[~too_large(constants)].tolist())


def assemble(path: str, fail: Fail, tables: Tables, constant: float = 0.0) -> FactorGraph:
    """Make a graph of tables; tables without variables are constants."""
    cardinalities, scopes, sizes, entry_starts, energies = tables
    arities = scopes.arities
    large = too_large(energies)
    if large.any():
        at = int(np.argmax(large))
        f = int(np.argmax((entry_starts <= at) & (at < entry_starts + sizes)))
        raise fail(
            f,
            f"a cost is {energies[at]:g}; finite ones are at most {_limits.MAX_COST:g} in size",
        )
    pointers = np.concatenate([np.zeros(1, np.int64), np.cumsum(cardinalities)])
    flat = np.zeros(int(pointers[-1]))
    single = np.flatnonzero(arities == 1)
    lengths = sizes[single]
    into = ranges(pointers[scopes.variables[scopes.starts[single]]], lengths)
    np.add.at(flat, into, energies[ranges(entry_starts[single], lengths)])

    pairs = np.flatnonzero(arities == 2)
    joined = scopes.variables[scopes.starts[pairs][:, None] + np.arange(2)]
    terms = _own_terms(tables, joined, entry_starts[pairs])
    constants = energies[entry_starts[arities == 0]]
    finite = np.isfinite(constants)
    constant += total(constants[finite])
    unaries = Unaries(cardinalities, pointers, flat)
    graph = graph_of(path, unaries, terms, _factors(tables), constant)
    return graph if finite.all() else forbidding(path, graph)


def forbidding(path: str, graph: FactorGraph) -> FactorGraph:
    """Return the graph with all labels of its first variable forbidden, hence all labellings."""
    if graph.n_variables == 0:
        raise FormatError(f"{path}: no labelling is allowed, and no variable has labels to forbid")
    forbidden = graph.unary_values.copy()
    forbidden[: int(graph.cardinalities[0])] = math.inf
    return graph.with_unary(forbidden)


def _factors(all_tables: Tables) -> Factors:
    """Lay out the factors of three and more variables."""
    cardinalities, scopes, sizes, entry_starts, energies = all_tables
    arities = scopes.arities
    higher = arities > 2
    named = scopes.variables[np.repeat(higher, arities)]
    lengths = arities[higher]
    # Beyond `_MAX_AXES` variables, those with a single label are dropped from the scope, because
    # they do not change the table.
    kept = (np.repeat(lengths, lengths) <= _MAX_AXES) | (cardinalities[named] > 1)
    starts, ends = entry_starts[higher].tolist(), (entry_starts + sizes)[higher].tolist()
    tables = [energies[start:end] for start, end in zip(starts, ends, strict=True)]
    return Factors(
        starts_of(kept)[starts_of(lengths)],
        named[kept],
        starts_of(sizes[higher]),
        np.concatenate([np.empty(0), *tables]),
    )


def _own_terms(tables: Tables, ends: IntArray, starts: IntArray) -> Iterator[OwnTables]:
    """Yield one term for each shape of tables, as one array."""
    if ends.shape[0] == 0:
        return
    shapes = tables.cardinalities[ends]
    order = np.lexsort((shapes[:, 1], shapes[:, 0]))
    changes = np.flatnonzero((np.diff(shapes[order], axis=0) != 0).any(axis=1)) + 1
    groups = np.split(order, changes)
    for rows in sorted(groups, key=lambda rows: int(rows[0])):
        k_i, k_j = (int(k) for k in shapes[rows[0]])
        stack = tables.energies[starts[rows][:, None] + np.arange(k_i * k_j)].reshape(-1, k_i, k_j)
        yield OwnTables(ends[rows], stack)
