"""Cost functions by scope, from which variables of few neighbours are eliminated one by one."""

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

#: Neighbours of a variable that is eliminated, so that no term is over more than two variables.
MOST_NEIGHBOURS = 2
#: Variables in more functions stay, without a look at their neighbours: each neighbour that goes
#: would have all of these looked at again.
_MOST_FUNCTIONS = 31


class Eliminated(NamedTuple):
    """A variable that is gone: its best label for each labelling of its neighbours."""

    variable: int
    scope: Scope
    choice: IntArray


def decide(eliminated: Sequence[Eliminated], x: IntArray) -> None:
    """Give variables, in the order of their elimination, their best labels, in place."""
    for gone in reversed(eliminated):
        x[gone.variable] = gone.choice[tuple(x[list(gone.scope)])]


def over(table: Table, scope: Scope, whole: Scope) -> Table:
    """Return a table with the axes of a larger scope, of length 1 where it has none."""
    table = table.transpose(sorted(range(len(scope)), key=lambda a: whole.index(scope[a])))
    sizes = iter(table.shape)
    return table.reshape([next(sizes) if v in scope else 1 for v in whole])


class CostFunctions:
    """Cost functions by scope, over the labels that are left to each variable."""

    dtype: type = float

    def __init__(self, sizes: IntArray) -> None:
        #: Number of labels left to each variable.
        self.sizes: list[int] = sizes.tolist()
        #: Table of each scope, a rising tuple of variables; no scope is empty.
        self.functions: dict[Scope, Table] = {}
        self.constant: Any = 0
        #: The scopes of two variables or more that each variable is in.
        self.around: list[set[Scope]] = [set() for _ in self.sizes]
        #: The variables that were eliminated.
        self.gone: set[int] = set()

    def add_graph(self, graph: FactorGraph, labels: Sequence[IntArray] | None = None) -> None:
        """Add the terms of a graph, over some labels of each variable or over all."""
        self.constant += graph.constant
        for scope, table in graph.factors():
            chosen = table if labels is None else table[np.ix_(*(labels[v] for v in scope))]
            self.add(scope, chosen)

    def add(self, scope: Scope, table: Table) -> None:
        """Add a cost function; variables with a single label left drop out of its scope."""
        left = tuple(v for v, k in zip(scope, table.shape, strict=True) if k > 1)
        rising = tuple(sorted(left))
        self.insert(rising, over(table.reshape([k for k in table.shape if k > 1]), left, rising))

    def insert(self, scope: Scope, table: Table) -> None:
        """Add a cost function of a rising scope, or a constant."""
        if scope:
            self.put(scope, table)
        else:
            self.constant += float(table)

    def put(self, scope: Scope, table: Table) -> None:
        """Put a function to that of the same variables."""
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
        """Take a cost function out, and return it."""
        if len(scope) > 1:
            for v in scope:
                self.around[v].remove(scope)
        return self.functions.pop(scope)

    def neighbours(self, v: int) -> Scope:
        """Return the variables that share a cost function with one, rising."""
        return tuple(sorted(set().union(*self.around[v]) - {v}))

    def joint(self, v: int, scope: Scope) -> Table:
        """Take out the functions of a variable with these neighbours; return their sum."""
        # The axis of the variable is the first. In order: sums of floats depend on it.
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
        # ``E'(y) = min_z E(y, z)``: the caller puts a function of the neighbours in the place of
        # those of the variable (Bertele and Brioschi 1972). Of a tree nothing is left.
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
        """Return the graph of the variables that are not gone, and their numbers."""
        left = [v for v in range(len(self.sizes)) if v not in self.gone]
        number = {v: place for place, v in enumerate(left)}
        factors = [(tuple(number[v] for v in s), table) for s, table in self.functions.items()]
        graph = FactorGraph.from_factors([self.sizes[v] for v in left], factors, self.constant)
        return graph, np.array(left, dtype=np.int64)


class Core(NamedTuple):
    """The remaining graph, and the way back."""

    #: The least energies over all labels of the variables that are gone.
    graph: FactorGraph
    #: (n',): the original number of each variable of it.
    variables: IntArray
    #: The others, in the order of their elimination.
    eliminated: list[Eliminated]

    def expand(self, labels: IntArray) -> IntArray:
        """Return the labelling of the original graph, of the same energy but for rounding."""
        x = np.zeros(self.variables.size + len(self.eliminated), dtype=np.int64)
        x[self.variables] = labels
        decide(self.eliminated, x)
        return x


def eliminate_sparse(graph: FactorGraph, stop: Callable[[], bool]) -> Core:
    """Eliminate variables of at most two neighbours, fewest first, until it is told to stop."""
    costs = CostFunctions(graph.cardinalities)
    costs.add_graph(graph)
    eliminated: list[Eliminated] = []
    for v, scope in costs.few_neighbours(lambda _, s: len(s) <= MOST_NEIGHBOURS, stop):
        total = costs.joint(v, scope)
        eliminated.append(Eliminated(v, scope, total.argmin(axis=0)))
        costs.add(scope, total.min(axis=0))
    if np.isinf(costs.constant):
        # A graph has no constant that says so.
        return Core(graph, np.arange(graph.n_variables), [])
    return Core(*costs.rest(), eliminated)
