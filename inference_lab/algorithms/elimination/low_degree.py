"""A graph without the variables of few neighbours, which are given their best labels afterwards."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.terms import OwnTables

#: Neighbours of a variable that is eliminated, so that no term is over more than two variables.
MOST_NEIGHBOURS = 2


class Eliminated(NamedTuple):
    """A variable that is gone: its best label for each labelling of its neighbours."""

    variable: int
    scope: tuple[int, ...]
    choice: IntArray


def decide(eliminated: Sequence[Eliminated], x: IntArray) -> None:
    """Give variables, in the order of their elimination, their best labels, in place."""
    for gone in reversed(eliminated):
        x[gone.variable] = gone.choice[tuple(x[list(gone.scope)])]


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
    # ``E'(y) = min_z E(y, z)``: the terms of a variable become their least sum over its labels, a
    # table over its neighbours (Bertele and Brioschi 1972). Of a tree nothing is left.
    unary = [graph.unary_of(i) for i in range(graph.n_variables)]
    # ``near[i][j]`` has a row for each label of ``i``.
    near: list[dict[int, FloatArray]] = [{} for _ in unary]
    for e, (i, j) in enumerate(graph.edges.tolist()):
        near[i][j] = graph.edge_table(e)
        near[j][i] = near[i][j].T
    eliminated: list[Eliminated] = []
    constant = graph.constant
    left = np.ones(len(unary), dtype=bool)
    queue = [(len(terms), i) for i, terms in enumerate(near) if len(terms) <= MOST_NEIGHBOURS]
    heapq.heapify(queue)
    while queue and not stop():
        degree, i = heapq.heappop(queue)
        # Where no label is allowed there is nothing to choose, and no constant that says so.
        if not left[i] or degree != len(near[i]) or np.isinf(unary[i]).all():
            continue
        left[i] = False
        scope = tuple(near[i])
        total = unary[i].reshape([-1] + [1] * degree)
        for j in scope:
            table = near[j].pop(i).T
            total = total + table.reshape([-1] + [table.shape[1] if u == j else 1 for u in scope])
        eliminated.append(Eliminated(i, scope, total.argmin(axis=0)))
        least = total.min(axis=0)
        if degree == 0:
            constant += float(least)
        elif degree == 1:
            unary[scope[0]] = unary[scope[0]] + least
        else:
            u, v = scope
            near[u][v] = near[u][v] + least if v in near[u] else least
            near[v][u] = near[u][v].T
        for j in scope:
            if len(near[j]) <= MOST_NEIGHBOURS:
                heapq.heappush(queue, (len(near[j]), j))
    variables = np.flatnonzero(left)
    number = np.cumsum(left) - 1
    pairs = [(i, j) for i in variables.tolist() for j in near[i] if i < j]
    terms = [OwnTables(number[np.array(pairs)], [near[i][j] for i, j in pairs])] if pairs else []
    rest = FactorGraph.from_terms([unary[i] for i in variables.tolist()], terms, (), constant)
    return Core(rest, variables, eliminated)
