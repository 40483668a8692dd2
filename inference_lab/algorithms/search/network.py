"""A graph as a network of integer cost functions, smaller by the variables that are eliminated.

Costs are integers (`inference_lab.algorithms.linear.integer_costs`), so that moving them from one
function to another loses nothing. Labels that hard terms rule out are gone, functions of the same
variables are one, and variables whose elimination makes nothing larger are eliminated.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from inference_lab.algorithms.elimination.arc_consistency import Domains
from inference_lab.algorithms.elimination.low_degree import Eliminated, decide
from inference_lab.algorithms.linear.integer_costs import (
    Rounding,
    dense_tables,
    table_rises,
    unary_rises,
)
from inference_lab.graph.arrays import IntArray
from inference_lab.graph.factor_graph import FactorGraph

#: The integer cost of what is forbidden; every sum of that many costs that occur fits 64 bits.
FORBIDDEN = 1 << 60
#: From here on a cost counts as forbidden, whatever finite costs were moved away from it.
HARD = 1 << 59
#: Bits of the largest integer energy; what is left up to `HARD` is room for moving costs.
BITS = 50

#: Neighbours of a variable that may be eliminated, and entries of a table that may be made for it
#: whatever it replaces.
MOST_NEIGHBOURS = 5
SMALL_TABLE = 1 << 10

#: Fewer cost functions than this are added one by one.
_FEW = 3
#: Cost functions between two looks at the clock.
_LONG = 1000

Scope = tuple[int, ...]


@dataclass
class Network:
    """Integer cost functions over the labels that are left to the variables of a graph."""

    #: The labels that are left; costs are over their positions.
    domains: Domains
    #: Table of each scope, a rising tuple of variables; no scope is empty.
    functions: dict[Scope, IntArray] = field(default_factory=dict)
    constant: int = 0
    #: The scopes of two variables or more that each variable is in.
    around: list[set[Scope]] = field(default_factory=list)
    #: In the order of their elimination.
    eliminated: list[Eliminated] = field(default_factory=list)

    def add(self, scope: Scope, table: IntArray) -> None:
        """Add a cost function; variables with a single label left drop out of its scope."""
        left = tuple(v for v, k in zip(scope, table.shape, strict=True) if k > 1)
        table = table.reshape([k for k in table.shape if k > 1])
        if list(left) != sorted(left):
            order = np.argsort(left)
            left, table = tuple(left[axis] for axis in order), table.transpose(order)
        least, greatest = int(table.min()), int(table.max())
        self.constant = min(FORBIDDEN, self.constant + least)
        if least < HARD and greatest > least:
            table = table - least if least else table
            hard = greatest >= HARD
            # What is forbidden stays as far from the finite costs.
            self._put(left, np.where(table >= HARD, FORBIDDEN, table) if hard else table, hard)

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
            self._put(tuple(rising[f]), table, bool(hard[f]))

    def _put(self, scope: Scope, table: IntArray, hard: bool) -> None:
        """Put a function, which may forbid something, to that of the same variables."""
        known = self.functions.get(scope)
        if known is not None:
            table = table + known
            if hard or known.max() >= HARD:
                table = np.where(table >= HARD, FORBIDDEN, table)
        elif len(scope) > 1:
            for v in scope:
                self.around[v].add(scope)
        self.functions[scope] = table

    def take(self, scope: Scope) -> IntArray:
        """Take a cost function out, and return it."""
        if len(scope) > 1:
            for v in scope:
                self.around[v].remove(scope)
        return self.functions.pop(scope)

    def neighbours(self, v: int) -> set[int]:
        """Return the variables that share a cost function with one."""
        return set().union(*self.around[v]) - {v}

    def eliminate(self, stop: Callable[[], bool]) -> None:
        """Eliminate variables of few neighbours, fewest first, where tables do not grow."""
        sizes = self.domains.sizes
        self._follow(stop)
        queue = [(len(self.neighbours(v)), v) for v in np.flatnonzero(sizes > 1).tolist()]
        heapq.heapify(queue)
        gone = {done.variable for done in self.eliminated}
        while queue and not stop():
            degree, v = heapq.heappop(queue)
            near = self.neighbours(v)
            if v in gone or degree != len(near):
                continue
            scope = tuple(sorted(near))
            replaced = sum(self.functions[s].size for s in self.around[v])
            entries = math.prod(int(sizes[u]) for u in scope)
            if degree > MOST_NEIGHBOURS or entries > max(replaced, SMALL_TABLE):
                continue
            gone.add(v)
            self._eliminate(v, scope)
            for u in scope:
                heapq.heappush(queue, (len(self.neighbours(u)), u))

    def _follow(self, stop: Callable[[], bool]) -> None:
        """Replace variables that another one decides by that one, where it has no more labels."""
        waiting = [s for s in self.functions if len(s) == 2]
        while waiting and not stop():
            scope = waiting.pop()
            table = self.functions.get(scope)
            if table is None:
                continue
            allowed = table < HARD
            if np.count_nonzero(allowed) > max(table.shape):
                # A label of one of the two allows several of the other, both ways.
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
        for s in [*self.around[v], (v,)]:
            if s not in self.functions:
                continue
            table = np.moveaxis(self.take(s), s.index(v), -1)[..., choice]
            left = tuple(w for w in s if w != v)
            if u in left:
                table = np.diagonal(table, axis1=left.index(u), axis2=-1)
                left = tuple(w for w in left if w != u)
            self.add((*left, u), table)

    def _eliminate(self, v: int, scope: Scope) -> None:
        """Replace the cost functions of a variable by their least sum over its labels."""
        sizes = self.domains.sizes
        axes = (v, *scope)
        total = np.zeros([sizes[u] for u in axes], dtype=np.int64)
        for s in [*self.around[v], (v,)]:
            if s not in self.functions:
                continue
            table = self.take(s)
            order = np.argsort([axes.index(u) for u in s])
            shape = [int(sizes[u]) if u in s else 1 for u in axes]
            total += table.transpose(order).reshape(shape)
            np.minimum(total, FORBIDDEN, out=total)
        choice = total.argmin(axis=0)
        self.eliminated.append(Eliminated(v, scope, choice))
        self.add(scope, total.min(axis=0))

    @property
    def left(self) -> list[int]:
        """The variables that are neither decided nor eliminated."""
        gone = {done.variable for done in self.eliminated}
        return [v for v in np.flatnonzero(self.domains.sizes > 1).tolist() if v not in gone]

    @property
    def unit(self) -> int:
        """The greatest number that divides all costs, the constant apart."""
        unit = 0
        for table in self.functions.values():
            if unit == 1:
                break
            unit = math.gcd(unit, int(np.gcd.reduce(table[table < HARD], axis=None)))
        return unit or 1

    def positions(self, labels: IntArray) -> IntArray | None:
        """Return the positions of labels among those that are left; None where one is not."""
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
        """Return the cost of positions, the constant apart, with the best of what is eliminated."""
        total = sum(int(table[tuple(at[list(s)])]) for s, table in self.functions.items())
        return min(FORBIDDEN, total)

    def expand(self, x: IntArray) -> IntArray:
        """Return the labelling of the graph, given label positions of the remaining variables."""
        at = x.copy()
        decide(self.eliminated, at)
        return np.asarray(self.domains.labels[self.domains.ptr[:-1] + at])


def integer_network(
    graph: FactorGraph, domains: Domains, rounding: Rounding, stop: Callable[[], bool]
) -> Network | None:
    """Return the network of a graph with a label left to each variable; None if told to stop."""
    ptr, labels = domains.ptr, domains.labels
    network = Network(domains, around=[set() for _ in range(graph.n_variables)])

    def integers(rises: npt.NDArray[np.float64]) -> IntArray:
        return np.minimum(rounding.integers(rises), FORBIDDEN).astype(np.int64)

    sizes = domains.sizes
    cut = sizes < graph.cardinalities
    some = bool(cut.any())

    def put(scopes: npt.NDArray[np.integer], tables: IntArray) -> None:
        """Add functions over the labels that are left, as many to each."""
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
        tables, ends = integers(table_rises(block.tables)), graph.edges[block.edges]
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
    """Return stretches without a change, none of them long; changes are from one to the next."""
    cuts = {*range(0, changes.size + 1, _LONG)}
    if changes.any():
        cuts.update((np.flatnonzero(changes) + 1).tolist())
    return list(itertools.pairwise([*sorted(cuts), changes.size + 1]))


def _unlike(graph: FactorGraph, sizes: IntArray) -> npt.NDArray[np.bool_]:
    """Whether each factor but the last has another shape than the next, given numbers of labels."""
    arities = np.diff(graph.factor_ptr)
    k = sizes[graph.factor_scopes]
    # The same place in the factor before, if that has as many variables.
    differs = k != k[np.arange(k.size) - np.repeat(arities, arities)]
    unlike = np.logical_or.reduceat(differs, graph.factor_ptr[:-1])[1:]
    return np.asarray(unlike | (np.diff(arities) != 0))
