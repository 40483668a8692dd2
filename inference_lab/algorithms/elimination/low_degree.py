"""Cost functions by scope, and the elimination of variables with few neighbours."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from inference_lab.graph.arrays import IntArray
from inference_lab.graph.factor_graph import FactorGraph

Scope: TypeAlias = tuple[int, ...]
Table: TypeAlias = npt.NDArray[Any]

#: Most neighbours of an eliminated variable, so that new terms have at most two variables.
MOST_NEIGHBOURS = 2
#: Most functions of an eliminated variable. Variables with more stay, because all their functions
#: would be examined again for each eliminated neighbour.
_MOST_FUNCTIONS = 31


class Eliminated(NamedTuple):
    """Eliminated variable with its best label for each labelling of its neighbours."""

    variable: int
    scope: Scope
    choice: IntArray


def decide(eliminated: Sequence[Eliminated], x: IntArray) -> None:
    """Assign the best labels of variables, given in order of elimination, in place."""
    for gone in reversed(eliminated):
        x[gone.variable] = gone.choice[tuple(x[list(gone.scope)])]


def over(table: Table, scope: Scope, whole: Scope) -> Table:
    """Return a table with the axes of a larger scope, of length 1 for variables it lacks."""
    table = table.transpose(sorted(range(len(scope)), key=lambda a: whole.index(scope[a])))
    sizes = iter(table.shape)
    return table.reshape([next(sizes) if v in scope else 1 for v in whole])


class CostFunctions:
    """Cost functions by scope, over the remaining labels of each variable."""

    dtype: type = float

    def __init__(self, sizes: IntArray) -> None:
        #: Number of remaining labels of each variable.
        self.sizes: list[int] = sizes.tolist()
        #: Table of each scope, an ascending tuple of variables; no scope is empty.
        self.functions: dict[Scope, Table] = {}
        self.constant: Any = 0
        #: The scopes of two or more variables that contain each variable.
        self.around: list[set[Scope]] = [set() for _ in self.sizes]
        #: The eliminated variables.
        self.gone: set[int] = set()

    def add_graph(self, graph: FactorGraph, labels: Sequence[IntArray] | None = None) -> None:
        """Add the terms of a graph, over the given labels of each variable or over all."""
        self.constant += graph.constant
        for scope, table in graph.factors():
            chosen = table if labels is None else table[np.ix_(*(labels[v] for v in scope))]
            self.add(scope, chosen)

    def add(self, scope: Scope, table: Table) -> None:
        """Add a cost function, dropping variables with a single label left from its scope."""
        left = tuple(v for v, k in zip(scope, table.shape, strict=True) if k > 1)
        rising = tuple(sorted(left))
        self.insert(rising, over(table.reshape([k for k in table.shape if k > 1]), left, rising))

    def insert(self, scope: Scope, table: Table) -> None:
        """Add a cost function of an ascending scope, or a constant."""
        if scope:
            self.put(scope, table)
        else:
            self.constant += float(table)

    def put(self, scope: Scope, table: Table) -> None:
        """Add a cost function to the one of the same scope, if any."""
        known = self.functions.get(scope)
        if known is not None:
            table = self.plus(known, table)
        elif len(scope) > 1:
            for v in scope:
                self.around[v].add(scope)
        self.functions[scope] = table

    def plus(self, a: Table, b: Table) -> Table:
        """Return the sum of two tables."""
        return np.asarray(a + b)

    def take(self, scope: Scope) -> Table:
        """Remove and return a cost function."""
        if len(scope) > 1:
            for v in scope:
                self.around[v].remove(scope)
        return self.functions.pop(scope)

    def neighbours(self, v: int) -> Scope:
        """Return the variables that share a cost function with ``v``, ascending."""
        return tuple(sorted(set().union(*self.around[v]) - {v}))

    def joint(self, v: int, scope: Scope) -> Table:
        """Remove the functions of a variable with these neighbours; return their sum."""
        # The axis of the variable is the first. Sorted, because float sums depend on the order.
        whole = (v, *scope)
        total: Table = np.zeros([self.sizes[u] for u in whole], dtype=self.dtype)
        for s in [*sorted(self.around[v]), (v,)]:
            if s in self.functions:
                total = self.plus(total, over(self.take(s), s, whole))
        return total

    def few_neighbours(
        self,
        may_go: Callable[[int, Scope], bool],
        stop: Callable[[], bool],
        fewest_first: bool = True,
    ) -> Iterator[tuple[int, Scope]]:
        """Yield variables to eliminate, with their neighbours, fewest first or in turn."""
        # ``E'(y) = min_z E(y, z)``: the caller replaces the functions of the variable by one of its
        # neighbours (Bertele and Brioschi 1972). Trees are eliminated completely.
        queue: list[tuple[int, int]] = []
        turn = itertools.count()

        def push(variables: Iterable[int]) -> None:
            for v in variables:
                if len(self.around[v]) <= _MOST_FUNCTIONS:
                    rank = len(self.neighbours(v)) if fewest_first else next(turn)
                    heapq.heappush(queue, (rank, v))

        push(range(len(self.sizes)))
        while queue and not stop():
            rank, v = heapq.heappop(queue)
            scope = self.neighbours(v)
            outdated = v in self.gone or (fewest_first and rank != len(scope))
            if not outdated and may_go(v, scope):
                self.gone.add(v)
                yield v, scope
                push(scope)

    def rest(self) -> tuple[FactorGraph, IntArray]:
        """Return the graph of the remaining variables, and their original indices."""
        left = [v for v in range(len(self.sizes)) if v not in self.gone]
        number = {v: place for place, v in enumerate(left)}
        factors = [(tuple(number[v] for v in s), table) for s, table in self.functions.items()]
        graph = FactorGraph.from_factors([self.sizes[v] for v in left], factors, self.constant)
        return graph, np.array(left, dtype=np.int64)


class Core(NamedTuple):
    """Remaining graph, with the mapping back to the original."""

    #: Energies minimised over the eliminated variables.
    graph: FactorGraph
    #: (n',): the original index of each variable of ``graph``.
    variables: IntArray
    #: The other variables, in the order of their elimination.
    eliminated: list[Eliminated]

    def expand(self, labels: IntArray) -> IntArray:
        """Return the labelling of the original graph, of the same energy up to rounding."""
        x = np.zeros(self.variables.size + len(self.eliminated), dtype=np.int64)
        x[self.variables] = labels
        decide(self.eliminated, x)
        return x


def eliminate_sparse(graph: FactorGraph, stop: Callable[[], bool]) -> Core:
    """Eliminate variables of at most two neighbours, fewest first, until `stop` returns True."""
    costs = CostFunctions(graph.cardinalities)
    costs.add_graph(graph)
    eliminated: list[Eliminated] = []
    for v, scope in costs.few_neighbours(lambda _, s: len(s) <= MOST_NEIGHBOURS, stop):
        total = costs.joint(v, scope)
        eliminated.append(Eliminated(v, scope, total.argmin(axis=0)))
        costs.add(scope, total.min(axis=0))
    if np.isinf(costs.constant):
        # The constant of a graph cannot be infinite, so the graph stays as it is.
        return Core(graph, np.arange(graph.n_variables), [])
    return Core(*costs.rest(), eliminated)
