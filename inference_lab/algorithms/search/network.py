"""A graph as a network of integer cost functions, smaller by the variables that are eliminated.

Costs are integers (`inference_lab.algorithms.linear.integer_costs`), so that moving them from one
function to another loses nothing. Labels that hard terms rule out are gone, functions of the same
variables are one, and variables whose elimination makes nothing larger are eliminated.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from inference_lab.algorithms.elimination.core import Eliminated, decide
from inference_lab.algorithms.elimination.domains import Domains
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

Scope = tuple[int, ...]


@dataclass
class Network:
    """Integer cost functions over the labels that are left to the variables of a graph.

    Attributes
    ----------
    domains : Domains
        The labels that are left; costs are over their positions.
    functions : dict
        Table of each scope, a rising tuple of variables; no scope is empty.
    constant : int
    around : list of set of tuple of int
        The scopes of two variables or more that each variable is in.
    eliminated : list of Eliminated
        In the order of their elimination.
    """

    domains: Domains
    functions: dict[Scope, IntArray] = field(default_factory=dict)
    constant: int = 0
    around: list[set[Scope]] = field(default_factory=list)
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
        if least >= HARD or greatest == least:
            return
        table = table - least if least else table
        known = self.functions.get(left)
        if known is not None:
            table = table + known
        elif len(left) > 1:
            for v in left:
                self.around[v].add(left)
        # What is forbidden stays as far from the finite costs.
        hard = greatest >= HARD or (known is not None and known.max() >= HARD)
        self.functions[left] = np.where(table >= HARD, FORBIDDEN, table) if hard else table

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
        """Eliminate variables of few neighbours, fewest first.

        The message may be no larger than what it replaces, unless that is a small table.
        """
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
        """Eliminate variables that another one decides, one label for each of its own.

        It takes their places, where it has no more labels.
        """
        waiting = [s for s in self.functions if len(s) == 2]
        while waiting and not stop():
            scope = waiting.pop()
            table = self.functions.get(scope)
            if table is None or table.max() < HARD:
                continue
            allowed = table < HARD
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
        """Return the labelling of the graph, given positions of the labels of what is left."""
        at = x.copy()
        decide(self.eliminated, at)
        return np.asarray(self.domains.labels[self.domains.ptr[:-1] + at])


def integer_network(
    graph: FactorGraph, domains: Domains, rounding: Rounding, stop: Callable[[], bool]
) -> Network | None:
    """Return the network of a graph; None if it was told to stop on the way.

    Parameters
    ----------
    graph : FactorGraph
    domains : Domains
        With a label left to each variable.
    rounding : Rounding
    stop : callable
    """
    ptr, labels = domains.ptr, domains.labels
    network = Network(domains, around=[set() for _ in range(graph.n_variables)])

    def integers(rises: npt.NDArray[np.float64]) -> IntArray:
        return np.minimum(rounding.integers(rises), FORBIDDEN).astype(np.int64)

    whole = bool(domains.allowed.all())
    kept = [labels[ptr[v] : ptr[v + 1]] for v in range(graph.n_variables)]
    unary = integers(unary_rises(graph))[domains.allowed]
    for v in range(graph.n_variables):
        if v % 1000 == 0 and stop():
            return None
        network.add((v,), unary[ptr[v] : ptr[v + 1]])
    for block in dense_tables(graph):
        tables = integers(table_rises(block.tables))
        for e, table in zip(block.edges.tolist(), tables, strict=True):
            if e % 1000 == 0 and stop():
                return None
            i, j = graph.edges[e].tolist()
            network.add((i, j), table if whole else table[np.ix_(kept[i], kept[j])])
    for f in range(graph.n_factors):
        if f % 1000 == 0 and stop():
            return None
        scope, table = graph.higher_order(f)
        rises = integers(table - table.min())
        network.add(tuple(map(int, scope)), rises[np.ix_(*(kept[v] for v in scope))])
    return network
