"""Sum variables out of a graph at T > 0 where no table grows, and recover their marginals.

The remaining graph has the same partition function. Plain numpy, some 50 microseconds a term, so it
pays for factors only.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from inference_lab.algorithms.elimination.arc_consistency import Domains
from inference_lab.contract import Run
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.graph.factor_graph import FactorGraph

Scope: TypeAlias = tuple[int, ...]

#: Variables of more terms stay, without a look at what they share: each neighbour that goes would
#: have all of these looked at again.
_MOST_TERMS = 16


class Step(NamedTuple):
    """A variable that was summed out, and ``p(variable | scope)`` with its own axis first."""

    variable: int
    scope: Scope
    share: FloatArray


class Summed(NamedTuple):
    """The remaining graph, and the variables summed out, in order."""

    # ``variables`` (n',) are the original numbers of those of ``graph``; ``labels`` are the
    # original labels that each variable of the whole graph keeps.

    graph: FactorGraph
    variables: IntArray
    labels: list[IntArray]
    steps: list[Step]

    def marginals(self, left: FloatArray, joint: Callable[[Scope], FloatArray]) -> list[FloatArray]:
        """Return the marginals of all variables of the whole graph over the labels they keep."""
        number = {v: place for place, v in enumerate(self.variables.tolist())}
        ptr = self.graph.unary_ptr
        known = {v: left[ptr[place] : ptr[place + 1]] for v, place in number.items()}
        turn = {step.variable: t for t, step in enumerate(self.steps)}
        # Of each variable that was summed out, with those that its terms joined it with then.
        tables: dict[int, tuple[Scope, FloatArray]] = {}
        for variable, scope, share in reversed(self.steps):
            later = [v for v in scope if v in turn]
            if len(scope) < 2:
                around = known[scope[0]] if scope else np.ones(())
            elif later:
                # The next one to go took what this one left.
                whole, table = tables[min(later, key=turn.__getitem__)]
                around = onto(table, whole, scope)
            else:
                around = joint(tuple(number[v] for v in scope))
            tables[variable] = (variable, *scope), share * around
            known[variable] = tables[variable][1].reshape(share.shape[0], -1).sum(axis=1)
        return [known[v] for v in range(len(self.labels))]


def onto(table: FloatArray, whole: Scope, scope: Scope) -> FloatArray:
    """Sum a table over variables down to some of them, in their order."""
    left = [v for v in whole if v in scope]
    table = table.sum(axis=tuple(a for a, v in enumerate(whole) if v not in scope))
    return np.asarray(table.transpose([left.index(v) for v in scope]))


def over(table: FloatArray, scope: Scope, whole: Scope) -> FloatArray:
    """Return a table with the axes of a larger scope, of length 1 where it has none."""
    table = table.transpose(sorted(range(len(scope)), key=lambda a: whole.index(scope[a])))
    sizes = iter(table.shape)
    return table.reshape([next(sizes) if v in scope else 1 for v in whole])


class _Terms:
    """Terms that change: tables by number, and the numbers of those of each variable."""

    def __init__(self, graph: FactorGraph, domains: Domains) -> None:
        ptr, n = domains.ptr, graph.n_variables
        self.labels = [domains.labels[ptr[i] : ptr[i + 1]] for i in range(n)]
        self.unary = [graph.unary_of(i)[self.labels[i]] for i in range(n)]
        self.of: list[set[int]] = [set() for _ in range(n)]
        self.tables: dict[int, tuple[Scope, FloatArray]] = {}
        self.constant = graph.constant
        self.count = 0
        for scope, table in graph.factors():
            if len(scope) > 1:
                self.add(scope, table[np.ix_(*(self.labels[v] for v in scope))])

    def add(self, scope: Scope, table: FloatArray) -> None:
        """Add a term, without axes of a single label; to unary or constant where it is one."""
        scope = tuple(v for v, k in zip(scope, table.shape, strict=True) if k > 1)
        table = table.reshape([k for k in table.shape if k > 1])
        if len(scope) == 0:
            self.constant += float(table)
        elif len(scope) == 1:
            self.unary[scope[0]] = self.unary[scope[0]] + table
        else:
            self.tables[self.count] = scope, table
            for v in scope:
                self.of[v].add(self.count)
            self.count += 1

    def take(self, c: int) -> tuple[Scope, FloatArray]:
        """Remove a term and return it."""
        for v in self.tables[c][0]:
            self.of[v].remove(c)
        return self.tables.pop(c)

    def neighbours(self, v: int) -> Scope | None:
        """Return those that share a term with one; None if a table over them is too large."""
        if len(self.of[v]) > _MOST_TERMS:
            return None
        found = {u for c in self.of[v] for u in self.tables[c][0]} - {v}
        most = max((self.tables[c][1].size for c in self.of[v]), default=1)
        if math.prod(self.labels[u].size for u in found) > most:
            return None
        return tuple(sorted(found))

    def sum_out(self, v: int, scope: Scope, temperature: float) -> Step:
        """Put the sum over the labels of a variable in the place of its terms."""
        whole = (v, *scope)
        joint = over(self.unary[v], (v,), whole)
        # In order: sums of floats depend on it.
        for c in sorted(self.of[v]):
            table = self.take(c)
            joint = joint + over(table[1], table[0], whole)
        least = joint.min(axis=0)
        base = np.where(np.isfinite(least), least, 0.0)
        with np.errstate(over="ignore", divide="ignore"):  # infinite costs have no weight
            weights = np.exp(-(joint - base) / temperature)
            total = weights.sum(axis=0)
            self.add(scope, base - temperature * np.log(total))
        return Step(v, scope, weights / np.where(total > 0.0, total, 1.0))

    def absorb(self) -> None:
        """Add each term to a larger one that has all its variables, where there is one."""
        for c in sorted(self.tables, key=lambda c: (len(self.tables[c][0]), c)):
            scope = self.tables[c][0]
            around = min((self.of[v] for v in scope), key=len) - {c}
            home = next((d for d in sorted(around) if set(scope) <= set(self.tables[d][0])), None)
            if home is not None:
                _, table = self.take(c)
                whole, larger = self.tables[home]
                self.tables[home] = whole, larger + over(table, scope, whole)


def sum_out(graph: FactorGraph, domains: Domains, run: Run) -> Summed | None:
    """Sum out variables of a graph at the temperature of a run, as many as leave tables small."""
    terms = _Terms(graph, domains)
    steps: list[Step] = []
    waiting = deque(range(graph.n_variables))
    queued = set(waiting)
    gone: set[int] = set()
    while waiting and not run.should_stop():
        v = waiting.popleft()
        queued.remove(v)
        scope = terms.neighbours(v)
        if scope is None:
            continue
        steps.append(terms.sum_out(v, scope, run.temperature))
        gone.add(v)
        fresh = [u for u in scope if u not in queued]
        waiting.extend(fresh)
        queued.update(fresh)
    if math.isinf(terms.constant):
        return None
    terms.absorb()
    variables = np.array([v for v in range(graph.n_variables) if v not in gone], dtype=np.int64)
    number = {v: place for place, v in enumerate(variables.tolist())}
    factors: list[tuple[Scope, FloatArray]]
    factors = [((number[v],), terms.unary[v]) for v in number]
    factors += [(tuple(number[v] for v in scope), t) for scope, t in terms.tables.values()]
    left = FactorGraph.from_factors([terms.labels[v].size for v in number], factors, terms.constant)
    return Summed(left, variables, terms.labels, steps)
