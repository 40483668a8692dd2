"""A graph as a network of integer cost functions, reduced by variable elimination.

Costs are integers (`inference_lab.algorithms.linear.integer_costs`), so that moving them from one
function to another loses nothing. Labels ruled out by hard terms are removed. Functions of the same
variables are merged. Variables are eliminated if that makes no table larger.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from inference_lab.algorithms.elimination.arc_consistency import Domains
from inference_lab.algorithms.linear.integer_costs import (
    Rounding,
    dense_tables,
    table_rises,
    unary_rises,
)
from inference_lab.graph.arrays import IntArray
from inference_lab.graph.factor_graph import FactorGraph

Scope: TypeAlias = tuple[int, ...]

#: Integer cost of a forbidden entry; every sum that occurs fits 64 bits.
FORBIDDEN = 1 << 60
#: Costs from here on count as forbidden, whatever finite costs were moved away from them.
HARD = 1 << 59
#: Bits of the largest integer energy; the range from there to `HARD` is room for moving costs.
BITS = 50

#: Maximum neighbours of an eliminated variable, and size up to which its table may always be made.
MOST_NEIGHBOURS = 5
SMALL_TABLE = 1 << 10
#: Most functions of an eliminated variable. Variables with more stay, because all their functions
#: would be examined again for each eliminated neighbour.
_MOST_FUNCTIONS = 31

#: Fewer cost functions than this are added one by one.
_FEW = 3
#: Cost functions between two checks of the clock.
_LONG = 1000


class Eliminated(NamedTuple):
    """Eliminated variable with its best label for each labelling of its neighbours."""

    variable: int
    scope: Scope
    choice: IntArray


def decide(eliminated: Sequence[Eliminated], x: IntArray) -> None:
    """Assign the best labels of variables, given in order of elimination, in place."""
    for gone in reversed(eliminated):
        x[gone.variable] = gone.choice[tuple(x[list(gone.scope)])]


def over(table: IntArray, scope: Scope, whole: Scope) -> IntArray:
    """Return a table with the axes of a larger scope, of length 1 for variables it lacks."""
    table = table.transpose(sorted(range(len(scope)), key=lambda a: whole.index(scope[a])))
    sizes = iter(table.shape)
    return table.reshape([next(sizes) if v in scope else 1 for v in whole])


def plus(a: IntArray, b: IntArray) -> IntArray:
    """Return the sum of two tables; entries that either forbids are forbidden."""
    total = a + b
    return np.where(total >= HARD, FORBIDDEN, total)


class CostNetwork:
    """Integer cost functions over the remaining labels of the variables of a graph."""

    def __init__(self, domains: Domains) -> None:
        #: The remaining labels; costs are indexed by their positions.
        self.domains = domains
        #: Number of remaining labels of each variable.
        self.sizes: list[int] = domains.sizes.tolist()
        #: Table of each scope, an ascending tuple of variables; no scope is empty.
        self.functions: dict[Scope, IntArray] = {}
        self.constant = 0
        #: The scopes of two or more variables that contain each variable.
        self.around: list[set[Scope]] = [set() for _ in self.sizes]
        #: The eliminated variables, and their choices in the order of elimination.
        self.gone: set[int] = set()
        self.eliminated: list[Eliminated] = []

    def add(self, scope: Scope, table: IntArray) -> None:
        """Add a cost function, dropping variables with a single label left from its scope."""
        left = tuple(v for v, k in zip(scope, table.shape, strict=True) if k > 1)
        rising = tuple(sorted(left))
        self.insert(rising, over(table.squeeze(), left, rising))

    def insert(self, scope: Scope, table: IntArray) -> None:
        """Add a cost function of a rising scope, and its least cost to the constant."""
        least, greatest = int(table.min()), int(table.max())
        self.constant = min(FORBIDDEN, self.constant + least)
        if least < HARD and greatest > least:
            table = table - least if least else table
            # Forbidden entries keep their cost, because the distance to finite costs must not fall.
            self.put(
                scope, np.where(table >= HARD, FORBIDDEN, table) if greatest >= HARD else table
            )

    def put(self, scope: Scope, table: IntArray) -> None:
        """Add a cost function to the one of the same scope, if any."""
        known = self.functions.get(scope)
        if known is not None:
            table = plus(known, table)
        elif len(scope) > 1:
            for v in scope:
                self.around[v].add(scope)
        self.functions[scope] = table

    def take(self, scope: Scope) -> IntArray:
        """Remove and return a cost function."""
        if len(scope) > 1:
            for v in scope:
                self.around[v].remove(scope)
        return self.functions.pop(scope)

    def add_all(self, scopes: npt.NDArray[np.integer], tables: IntArray) -> None:
        """Add cost functions of one shape: scopes (f, arity), tables (f, k_1, ..., k_arity)."""
        if len(tables) < _FEW:
            for scope, table in zip(scopes.tolist(), tables, strict=True):
                self.add(tuple(scope), table)
            return
        rows = tables.reshape(len(tables), -1)
        least, greatest = rows.min(axis=1), rows.max(axis=1)
        self.constant = min(FORBIDDEN, self.constant + sum(least.tolist()))
        scopes = scopes[:, [axis for axis, k in enumerate(tables.shape[1:]) if k > 1]]
        rows = rows - least[:, None]
        hard = greatest >= HARD
        if hard.any():
            rows[rows >= HARD] = FORBIDDEN
        tables = rows.reshape(-1, *(k for k in tables.shape[1:] if k > 1))
        rising = np.sort(scopes, axis=1).tolist()
        turned = np.asarray((np.diff(scopes, axis=1) < 0).any(axis=1))
        for f in np.flatnonzero((least < HARD) & (greatest > least)).tolist():
            table = tables[f].transpose(scopes[f].argsort()) if turned[f] else tables[f]
            self.put(tuple(rising[f]), table)

    def eliminate(self, stop: Callable[[], bool]) -> None:
        """Eliminate variables with few neighbours, fewest first, while tables do not grow."""
        # ``E'(y) = min_z E(y, z)`` (Bertele and Brioschi 1972). Trees are eliminated completely.
        self._follow(stop)
        for v, scope in self._few_neighbours(stop):
            # The axis of the variable is the first.
            whole = (v, *scope)
            total = np.zeros([self.sizes[u] for u in whole], dtype=np.int64)
            for s in [*self.around[v], (v,)]:
                if s in self.functions:
                    total = plus(total, over(self.take(s), s, whole))
            self.eliminated.append(Eliminated(v, scope, total.argmin(axis=0)))
            self.add(scope, total.min(axis=0))

    def _few_neighbours(self, stop: Callable[[], bool]) -> Iterator[tuple[int, Scope]]:
        """Yield variables to eliminate, with their neighbours, fewest first."""
        queue: list[tuple[int, int]] = []

        def neighbours(v: int) -> Scope:
            return tuple(sorted(set().union(*self.around[v]) - {v}))

        def push(variables: Iterable[int]) -> None:
            for v in variables:
                if len(self.around[v]) <= _MOST_FUNCTIONS:
                    heapq.heappush(queue, (len(neighbours(v)), v))

        push(range(len(self.sizes)))
        while queue and not stop():
            rank, v = heapq.heappop(queue)
            scope = neighbours(v)
            if v not in self.gone and rank == len(scope) and self._may_go(v, scope):
                self.gone.add(v)
                yield v, scope
                push(scope)

    def _may_go(self, v: int, scope: Scope) -> bool:
        """Whether the elimination of an undecided variable makes no table larger."""
        replaced = sum(self.functions[s].size for s in self.around[v])
        entries = math.prod(self.sizes[u] for u in scope)
        few = self.sizes[v] > 1 and len(scope) <= MOST_NEIGHBOURS
        return few and entries <= max(replaced, SMALL_TABLE)

    def _follow(self, stop: Callable[[], bool]) -> None:
        """Replace each variable that a neighbour with no more labels decides by that neighbour."""
        waiting = [s for s in self.functions if len(s) == 2]
        while waiting and not stop():
            scope = waiting.pop()
            table = self.functions.get(scope)
            if table is None:
                continue
            allowed = table < HARD
            if np.count_nonzero(allowed) > max(table.shape):
                # In both directions, some label allows several labels of the other variable.
                continue
            for axis in (0, 1):
                v, u = scope[axis], scope[1 - axis]
                fits = table.shape[axis] >= table.shape[1 - axis]
                if fits and (allowed.sum(axis=axis) <= 1).all():
                    self._replace(v, u, allowed.argmax(axis=axis))
                    waiting += [s for s in self.around[u] if len(s) == 2]
                    break

    def _replace(self, v: int, u: int, choice: IntArray) -> None:
        """Put variable ``u`` in the place of ``v``, whose label it decides."""
        self.eliminated.append(Eliminated(v, (u,), choice))
        self.gone.add(v)
        for s in [*self.around[v], (v,)]:
            if s not in self.functions:
                continue
            table = np.moveaxis(self.take(s), s.index(v), -1)[..., choice]
            left = tuple(w for w in s if w != v)
            if u in left:
                table = np.diagonal(table, axis1=left.index(u), axis2=-1)
                left = tuple(w for w in left if w != u)
            self.add((*left, u), table)

    @property
    def left(self) -> list[int]:
        """The variables that are neither decided nor eliminated."""
        return [v for v, k in enumerate(self.sizes) if k > 1 and v not in self.gone]

    @property
    def unit(self) -> int:
        """The greatest common divisor of all costs except the constant."""
        unit = 0
        for table in self.functions.values():
            if unit == 1:
                break
            unit = math.gcd(unit, int(np.gcd.reduce(table[table < HARD], axis=None)))
        return unit or 1

    def positions(self, labels: IntArray) -> IntArray | None:
        """Return the positions of labels among the remaining ones; None if one was removed."""
        domains = self.domains
        at = np.array(
            [
                np.searchsorted(domains.labels[begin:end], label)
                for begin, end, label in zip(domains.ptr, domains.ptr[1:], labels, strict=False)
            ],
            dtype=np.int64,
        )
        known = at < domains.sizes
        at[~known] = 0
        same = domains.labels[domains.ptr[:-1] + at] == labels
        return at if (known & same).all() else None

    def cost(self, at: IntArray) -> int:
        """Return the cost of positions without the constant, eliminated variables at their best."""
        total = sum(int(table[tuple(at[list(s)])]) for s, table in self.functions.items())
        return min(FORBIDDEN, total)

    def expand(self, x: IntArray) -> IntArray:
        """Return the labelling of the graph, given label positions of the remaining variables."""
        at = x.copy()
        decide(self.eliminated, at)
        return np.asarray(self.domains.labels[self.domains.ptr[:-1] + at])


def integer_network(
    graph: FactorGraph, domains: Domains, rounding: Rounding, stop: Callable[[], bool]
) -> CostNetwork | None:
    """Return the network of a graph whose domains are non-empty; None if `stop` returns true."""
    ptr, labels = domains.ptr, domains.labels
    network = CostNetwork(domains)

    def integers(rises: npt.NDArray[np.float64]) -> IntArray:
        return np.minimum(rounding.integers(rises), FORBIDDEN).astype(np.int64)

    sizes = domains.sizes
    cut = sizes < graph.cardinalities
    some = bool(cut.any())

    def put(scopes: npt.NDArray[np.integer], tables: IntArray) -> None:
        """Add functions over the remaining labels; all scopes have the same domain sizes."""
        count, arity = scopes.shape
        if some and cut[scopes].any():
            picked: list[IntArray] = [np.arange(count).reshape(-1, *[1] * arity)]
            for axis, k in enumerate(sizes[scopes[0]].tolist()):
                left = labels[ptr[scopes[:, axis], None] + np.arange(k)]
                picked.append(left.reshape(count, *[1] * axis, k, *[1] * (arity - axis - 1)))
            tables = tables[tuple(picked)]
        network.add_all(scopes, tables)

    unary = integers(unary_rises(graph))[domains.allowed]
    for k in np.unique(sizes).tolist():
        members = np.flatnonzero(sizes == k)
        for begin in range(0, members.size, _LONG):
            if stop():
                return None
            piece = members[begin : begin + _LONG, None]
            network.add_all(piece, unary[ptr[piece] + np.arange(k)])
    for block in dense_tables(graph):
        tables = integers(table_rises(block.tables))
        ends = graph.edges[block.edges]
        changes = np.zeros(len(ends) - 1, dtype=np.bool_)
        if some:
            changes = (sizes[ends[1:]] != sizes[ends[:-1]]).any(axis=1)
        for begin, end in _runs(changes):
            if stop():
                return None
            put(ends[begin:end], tables[begin:end])
    if graph.n_factors:
        at, starts = graph.factor_ptr, graph.table_ptr
        for begin, end in _runs(_unlike(graph, graph.cardinalities) | _unlike(graph, sizes)):
            if stop():
                return None
            scopes = graph.factor_scopes[at[begin] : at[end]].reshape(end - begin, -1)
            shape = graph.cardinalities[scopes[0]]
            costs = graph.table_values[starts[begin] : starts[end]].reshape(-1, *shape)
            put(scopes, integers(table_rises(costs)))
    return network


def _runs(changes: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return short runs without a change; ``changes[i]`` compares items ``i`` and ``i + 1``."""
    cuts = {*range(0, changes.size + 1, _LONG)}
    if changes.any():
        cuts.update((np.flatnonzero(changes) + 1).tolist())
    return list(itertools.pairwise([*sorted(cuts), changes.size + 1]))


def _unlike(graph: FactorGraph, sizes: IntArray) -> npt.NDArray[np.bool_]:
    """Whether each factor but the last differs in shape from the next, given domain sizes."""
    arities = np.diff(graph.factor_ptr)
    k = sizes[graph.factor_scopes]
    # Compare with the same place in the previous factor, if that has as many variables.
    differs = k != k[np.arange(k.size) - np.repeat(arities, arities)]
    unlike = np.logical_or.reduceat(differs, graph.factor_ptr[:-1])[1:]
    return np.asarray(unlike | (np.diff(arities) != 0))
