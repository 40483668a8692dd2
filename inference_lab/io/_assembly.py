"""Assembly of factor graphs from flat tables of energies, shared by all readers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

import inference_lab.io._limits as _limits
from inference_lab.graph.arrays import FloatArray, IntArray, starts_of
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.factors import Factors
from inference_lab.graph.terms import PairwiseTerms, Unaries
from inference_lab.io._files import FormatError

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
    def of_lists(cls, scopes: list[list[int]], noun: str = "factor") -> Self:
        """Make the scopes from lists of variables."""
        flat = np.array([v for scope in scopes for v in scope], dtype=np.int64)
        return cls(np.array([len(scope) for scope in scopes], dtype=np.int64), flat, noun)

    @cached_property
    def starts(self) -> IntArray:
        """The position of each factor's first variable."""
        return np.asarray(np.cumsum(self.arities) - self.arities)

    def of(self, f: int) -> tuple[int, ...]:
        """Return the variables of a factor."""
        start = int(self.starts[f])
        return tuple(self.variables[start : start + int(self.arities[f])].tolist())

    def shown(self, f: int) -> str:
        """Format a factor for a message."""
        return f"{self.noun} {f} over {shown_scope(self.of(f))}"

    def check_free(self, cardinalities: IntArray, fail: Fail) -> None:
        """Refuse variables without factors if they have too many labels in all."""
        # Such variables are declared in a few bytes, but take memory for each label.
        free = np.ones(cardinalities.size, dtype=bool)
        free[self.variables] = False
        limit = _limits.MAX_FREE_LABELS
        if int(cardinalities[free].sum()) > limit:
            i = int(np.argmax(np.where(free, cardinalities, 0)))
            raise fail(
                i,
                f"variable {i} has {cardinalities[i]} labels and no factor; variables of no "
                f"factor may have {limit:,} labels in all",
            )


class Tables(NamedTuple):
    """Tables in one flat array, and the start of each factor's table in it."""

    cardinalities: IntArray
    scopes: Scopes
    sizes: IntArray
    starts: IntArray
    energies: FloatArray


def graph_of(
    path: str,
    unary: Unaries | FloatArray,
    terms: Iterable[PairwiseTerms] = (),
    factors: Factors | tuple[()] = (),
) -> FactorGraph:
    """Make the graph; report its errors as faults of the file."""
    try:
        return FactorGraph.from_terms(unary, terms, factors)
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


def assemble(path: str, fail: Fail, tables: Tables) -> FactorGraph:
    """Make a graph of tables; tables without variables are constants."""
    cardinalities, scopes, sizes, starts, energies = tables
    large = too_large(energies)
    if large.any():
        at = int(np.argmax(large))
        f = int(np.argmax((starts <= at) & (at < starts + sizes)))
        raise fail(
            f,
            f"a cost is {energies[at]:g}; finite ones are at most {_limits.MAX_COST:g} in size",
        )
    constants = starts[scopes.arities == 0]
    impossible = np.isinf(energies[constants]).any()
    energies[constants[np.isinf(energies[constants])]] = 0.0
    # Beyond `_MAX_AXES` variables, those with a single label are dropped from the scope, because
    # they do not change the table.
    owners = np.repeat(np.arange(scopes.arities.size), scopes.arities)
    many = scopes.arities[owners] > _MAX_AXES
    mask = ~many | (cardinalities[scopes.variables] > 1)
    arities = np.bincount(owners[mask], minlength=scopes.arities.size)
    values = energies[ranges(starts, sizes)]
    pointers = starts_of(cardinalities)
    unaries = Unaries(cardinalities, pointers, np.zeros(int(pointers[-1])))
    factors = Factors.of(arities, scopes.variables[mask], sizes, values)
    graph = graph_of(path, unaries, factors=factors)
    return forbidding(path, graph) if impossible else graph


def forbidding(path: str, graph: FactorGraph) -> FactorGraph:
    """Return the graph with all labels of its first variable forbidden, hence all labellings."""
    if graph.n_variables == 0:
        raise FormatError(f"{path}: no labelling is allowed, and no variable has labels to forbid")
    forbidden = graph.unary_values.copy()
    forbidden[: int(graph.cardinalities[0])] = math.inf
    return graph.with_unary(forbidden)
