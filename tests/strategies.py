"""Hypothesis strategies for graphs, kept together with the raw inputs they were built from.

Structure (sizes, scopes, families) is drawn by Hypothesis and shrinks; the costs come from a seeded
generator, which keeps an example cheap.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.grids import grid_edges
from inference_lab.graph.terms import DiagonalTerms, OwnTables, PairwiseTerms, SharedTable

#: Families of pairwise terms.
PAIRWISE = ("potts", "diagonal", "shared-diagonal", "shared", "truncated", "own")


@dataclass(frozen=True)
class Recipe:
    """The raw inputs of a graph, and its energy straight from them."""

    unary: list[np.ndarray]
    terms: list[PairwiseTerms]
    factors: list[tuple[tuple[int, ...], np.ndarray]]
    constant: float

    @property
    def cardinalities(self) -> list[int]:
        """Return the number of labels of each variable."""
        return [len(row) for row in self.unary]

    def build(self) -> FactorGraph:
        """Build the graph, from a matrix of unaries if possible."""
        counts = set(self.cardinalities)
        unary: Any = np.array(self.unary) if len(counts) == 1 else self.unary
        return FactorGraph.from_terms(unary, self.terms, self.factors, self.constant)

    def labellings(self) -> list[tuple[int, ...]]:
        """Return all labellings, in lexicographic order."""
        return list(itertools.product(*(range(k) for k in self.cardinalities)))

    def costs(self, x: tuple[int, ...]) -> list[float]:
        """Return the costs of a labelling by lookup, in plain Python."""
        paid = [self.constant]
        paid += [float(row[a]) for row, a in zip(self.unary, x, strict=True)]
        for term in self.terms:
            for e, (i, j) in enumerate(np.asarray(term.edges).tolist()):
                paid.append(_pair_cost(term, e, x[i], x[j]))
        paid += [float(table[tuple(x[v] for v in scope)]) for scope, table in self.factors]
        return paid

    def energy(self, x: tuple[int, ...]) -> float:
        """Return the sum of the costs without rounding."""
        return math.fsum(self.costs(x))

    def energies(self) -> np.ndarray:
        """Return the energies of all `labellings`."""
        return np.array([self.energy(x) for x in self.labellings()])

    def scale(self) -> float:
        """Return the largest sum of absolute finite costs of a labelling, at least 1."""
        sums = [
            math.fsum(abs(c) for c in self.costs(x) if math.isfinite(c)) for x in self.labellings()
        ]
        return max(1.0, *sums)


def _pair_cost(term: PairwiseTerms, e: int, a: int, b: int) -> float:
    """Return the cost of edge ``e`` at labels ``a`` and ``b``, by the definition of its family."""
    if isinstance(term, DiagonalTerms):
        if a != b:
            differ = np.asarray(term.differ)
            return float(differ if differ.ndim == 0 else differ[e])
        same = np.asarray(term.same)
        if same.ndim == 2:
            return float(same[e if len(same) > 1 else 0, a])
        return float(same if same.ndim == 0 else same[e])
    if isinstance(term, SharedTable):
        weights = np.asarray(term.weights)
        weight = float(weights if weights.ndim == 0 else weights[e])
        return weight * float(np.asarray(term.table)[a, b])
    return float(np.asarray(term.tables[e])[a, b])


def labellings(graph: FactorGraph) -> np.ndarray:
    """Return all labellings of a graph, one a row, in lexicographic order."""
    every = list(itertools.product(*(range(k) for k in graph.cardinalities.tolist())))
    return np.array(every, dtype=np.int64).reshape(len(every), graph.n_variables)


@functools.cache
def partitions(n: int, k: int) -> np.ndarray:
    """Return all partitions of n points into at most k clusters, one a row, as labels."""
    rows = np.zeros((1, 0), dtype=np.int64)
    for _ in range(n):
        # A point joins one of the clusters so far or opens the next.
        used = rows.max(axis=1, initial=-1) + 1
        opened = [
            np.column_stack([rows[used >= h], np.full((used >= h).sum(), h)]) for h in range(k)
        ]
        rows = np.vstack(opened)
    return rows


def optimum(graph: FactorGraph) -> float:
    """Return the least energy over all labellings."""
    return float(graph.energy(labellings(graph)).min())


def truncated_linear(k: int, slope: float, cap: float, shift: float = 0.0) -> np.ndarray:
    """Return ``shift + min(slope |a - b|, cap)``."""
    a = np.arange(k)
    return shift + np.minimum(slope * np.abs(a[:, None] - a[None]), cap)


def random_pairs(rng: np.random.Generator, n: int, m: int) -> np.ndarray:
    """Draw m pairs of different numbers below n, or none if there are none."""
    first = rng.integers(0, n, size=m if n > 1 else 0)
    return np.stack([first, (first + rng.integers(1, max(2, n), size=first.size)) % n], axis=1)


def weak_graph(seed: int) -> FactorGraph:
    """Draw a loopy graph of weak terms of every kind, with a unique fixed point."""
    rng = np.random.default_rng(seed)
    n, k = 12, 3
    edges = rng.permutation(list(itertools.combinations(range(n), 2)))[:20]
    return FactorGraph.from_terms(
        rng.normal(size=(n, k)),
        [
            DiagonalTerms(edges[:8], 0.3 * rng.normal(size=8), 0.3 * rng.normal(size=8)),
            DiagonalTerms(edges[8:12], 0.3 * rng.normal(size=(4, k))),
            SharedTable(edges[12:], 0.3 * rng.normal(size=(k, k)), rng.normal(size=8)),
        ],
        [(tuple(rng.permutation(n)[:3]), 0.3 * rng.normal(size=(k, k, k))) for _ in range(3)],
    )


def signed_grid(
    height: int, width: int, k: int, seed: int, weight: float = 1.0, field: float = 1.0
) -> FactorGraph:
    """Draw a grid of Potts terms of either sign, and unaries, normally distributed."""
    rng = np.random.default_rng(seed)
    edges = grid_edges(height, width)
    unary = rng.normal(scale=field, size=(height * width, k))
    return FactorGraph.potts(unary, edges, rng.normal(scale=weight, size=len(edges)))


def with_dear_label(graph: FactorGraph, cost: float) -> FactorGraph:
    """Return a graph of Potts terms with one more label, which costs each variable this much."""
    unary = np.column_stack([graph.unary, np.full(graph.n_variables, cost)])
    same = graph.pairwise_values[graph.edge_offsets]
    return FactorGraph.from_terms(unary, [DiagonalTerms(graph.edges, same, graph.edge_weights)])


def frustrated(
    n: int,
    k: int,
    m: int,
    seed: int = 0,
    weight: float = 1.0,
    ties: float = 0.9,
    share: float = 0.7,
) -> FactorGraph:
    """Draw cannot-links, a `share`, and must-links that no relaxation nor descent settles."""
    rng = np.random.default_rng(seed)
    pairs = np.array(list(itertools.combinations(range(n), 2)))
    edges = pairs[rng.choice(len(pairs), size=m, replace=False)]
    w = weight * (ties + (1 - ties) * rng.random(m))
    cannot = rng.random(m) < share
    return FactorGraph.from_terms(
        weight * rng.random((n, k)),
        [DiagonalTerms(edges, np.where(cannot, w, 0.0), np.where(cannot, 0.0, w))],
    )


def rank(graph: FactorGraph, x: np.ndarray) -> tuple[int, float]:
    """Return the sort key of descents: violated hard terms first, then the finite costs."""
    paid = [float(table[tuple(x[list(scope)])]) for scope, table in graph.factors()]
    return sum(c == math.inf for c in paid), math.fsum(c for c in paid if c < math.inf)


def least_over(graph: FactorGraph, x: np.ndarray, choices: Mapping[int, Iterable[int]]) -> float:
    """Return the least energy over the given labels of some variables, the others fixed."""
    every = [choices.get(i, [int(a)]) for i, a in enumerate(x)]
    return float(graph.energy(np.array(list(itertools.product(*every)))).min())


def assert_local_minimum(graph: FactorGraph, x: np.ndarray) -> None:
    """Check that no change of a single variable is better, up to rounding."""
    near = [
        np.where(np.arange(x.size) == i, a, x)
        for i, k in enumerate(graph.cardinalities.tolist())
        for a in range(k)
    ]
    if near and math.isfinite(energy := graph.energy(x)):
        assert graph.energy(near).min() >= energy - 1e-9 * max(1.0, abs(energy))
    elif near:
        violated, finite = rank(graph, x)
        lowest = min(rank(graph, y) for y in near)
        assert lowest >= (violated, finite - 1e-9 * max(1.0, abs(finite)))


@dataclass(frozen=True)
class _Costs:
    """Generator of costs of one style, a share of them infinite."""

    rng: np.random.Generator
    style: str
    infinite: float

    def __call__(self, *shape: int) -> np.ndarray:
        if self.style == "integers":
            values = self.rng.integers(-2, 3, size=shape).astype(np.float64)
        elif self.style == "large":
            values = 1e6 * self.rng.normal(size=shape)
        else:
            values = 2.0 * self.rng.normal(size=shape)
        return np.where(self.rng.random(shape) < self.infinite, np.inf, values)


@st.composite
def recipes(
    draw: st.DrawFn,
    *,
    hard: bool | None = None,
    forest: bool = False,
    max_states: int = 300,
    min_variables: int = 0,
    families: tuple[str, ...] = PAIRWISE,
    higher_order: bool = True,
    styles: tuple[str, ...] = ("normal", "integers", "large"),
) -> Recipe:
    """Draw the inputs of a small graph.

    Unless `forest`, edges may be parallel and reversed. `hard` decides whether there are infinite
    costs; None draws it.
    """
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    style = draw(st.sampled_from(styles))
    forbid = draw(st.booleans()) if hard is None else hard
    infinite = draw(st.sampled_from([0.05, 0.2, 0.5])) if forbid else 0.0
    costs = _Costs(rng, style, infinite)
    n = draw(st.integers(min_variables, 6))
    if draw(st.booleans()):
        counts = [draw(st.integers(1, 4))] * n
    else:
        counts = draw(st.lists(st.integers(1, 4), min_size=n, max_size=n))
    while math.prod(counts) > max_states:
        max_count = max(counts)
        counts = [min(k, max_count - 1) for k in counts]
    unary = [costs(k) for k in counts]
    constant = float(rng.normal()) if draw(st.booleans()) else 0.0

    root = list(range(n))

    def find(v: int) -> int:
        while root[v] != v:
            v = root[v]
        return v

    def scope(arity: int) -> tuple[int, ...] | None:
        """Draw a scope; None if it would close a cycle of a forest, or variables are too few."""
        if arity > n:
            return None
        variables = tuple(draw(st.permutations(range(n)))[:arity])
        if forest:
            roots = {find(v) for v in variables}
            if len(roots) < arity:
                return None
            for v in roots:
                root[v] = min(roots)
        return variables

    terms: list[PairwiseTerms] = []
    factors: list[tuple[tuple[int, ...], np.ndarray]] = []
    for _ in range(draw(st.integers(0, 6)) if n else 0):
        edges = [e for e in (scope(2) for _ in range(draw(st.integers(1, 3)))) if e is not None]
        if edges:
            terms += _block(draw(st.sampled_from(families)), edges, counts, costs)
    for _ in range(draw(st.integers(0, 2)) if higher_order and n else 0):
        variables_of_term = scope(draw(st.integers(1 if forest else 0, 4)))
        if variables_of_term is not None:
            factors.append((variables_of_term, costs(*(counts[v] for v in variables_of_term))))
    # A factor of no variables joins the constant, which must be finite.
    factors = [(s, t) for s, t in factors if s or np.isfinite(t)]
    return Recipe(unary, terms, factors, constant)


def _block(
    family: str, edges: list[tuple[int, int]], counts: list[int], costs: _Costs
) -> list[PairwiseTerms]:
    """Make terms of one family on the given edges; edges of other shapes get separate blocks."""
    m, widest = len(edges), max(counts)
    if family == "potts":
        return [DiagonalTerms(edges, costs(m), costs(m))]
    if family == "diagonal":
        return [DiagonalTerms(edges, costs(m, widest), costs(m))]
    if family == "shared-diagonal":
        return [DiagonalTerms(edges, costs(1, widest), float(costs(1)[0]))]
    if family == "own":
        return [OwnTables(edges, [costs(counts[i], counts[j]) for i, j in edges])]
    blocks: list[PairwiseTerms] = []
    by_shape: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for i, j in edges:
        by_shape.setdefault((counts[i], counts[j]), []).append((i, j))
    for (ki, kj), group in by_shape.items():
        weights = np.abs(costs(len(group)))
        weights = np.where(np.isinf(weights), 0.5, weights + 0.25)
        if family == "truncated" and ki == kj:
            slope, cap, shift = np.where(np.isinf(drawn := costs(3)), 1.0, np.abs(drawn))
            blocks.append(SharedTable(group, truncated_linear(ki, slope, cap, shift), weights))
            continue
        table = costs(ki, kj)
        if np.isfinite(table).all():
            weights = np.where(costs.rng.random(len(group)) < 0.5, weights, -weights)
        blocks.append(SharedTable(group, table, weights))
    return blocks
