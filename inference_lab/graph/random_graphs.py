"""Seeded random graphs of every family of factors, small enough to enumerate.

The conformance suite, the tests and the examples draw from these families. Every graph has at most
`MAX_STATES` labellings, and `random_graph` gives the same graph for the same family and seed.

>>> from inference_lab.graph.random_graphs import random_graph
>>> random_graph("grid", seed=0)
FactorGraph(9 variables x 2 labels; terms: 12 Potts)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from inference_lab.graph.arrays import TABLE, FloatArray, IntArray, freeze
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.grids import grid_edges
from inference_lab.graph.terms import COST_LIMIT, DiagonalTerms, OwnTables, SharedTable
from inference_lab.specs.grammar import unknown

#: No random graph has more labellings than this.
MAX_STATES = 2500

_Rng = np.random.Generator


# ---------------------------------------------------------------------- parts


def _size(rng: _Rng, fewest_labels: int = 2, most_labels: int = 4) -> tuple[int, int]:
    """Draw ``(n, k)`` with ``k^n <= MAX_STATES``."""
    k = int(rng.integers(fewest_labels, most_labels + 1))
    limit = int(math.log(MAX_STATES) / math.log(k))
    return int(rng.integers(min(3, limit), limit + 1)), k


def _edges(rng: _Rng, n: int) -> IntArray:
    """Draw a random set of pairs, at least one, in random order and either direction."""
    pairs = np.array(list(itertools.combinations(range(n), 2)), dtype=np.int64)
    sample = rng.permutation(pairs)[: int(rng.integers(1, len(pairs) + 1))]
    flip = rng.random(len(sample)) < 0.5
    sample[flip] = sample[flip, ::-1]
    return sample


def _tree(rng: _Rng, n: int) -> IntArray:
    """Draw a random tree over shuffled variables."""
    name = rng.permutation(n)
    return np.array([(name[rng.integers(0, i)], name[i]) for i in range(1, n)], dtype=np.int64)


def _scope(rng: _Rng, n: int, arity: int) -> tuple[int, ...]:
    return tuple(rng.choice(n, size=arity, replace=False).tolist())


def _forbid(rng: _Rng, table: FloatArray, allowed: tuple[int, ...], share: float) -> FloatArray:
    """Set a share of the entries of a table to ``+inf``, but not the allowed one."""
    out = np.where(rng.random(table.shape) < share, np.inf, table)
    out[allowed] = table[allowed]
    return out


# ---------------------------------------------------------------------- families


def _potts(rng: _Rng) -> FactorGraph:
    """Draw attractive Potts terms."""
    n, k = _size(rng)
    edges = _edges(rng, n)
    return FactorGraph.potts(rng.normal(size=(n, k)), edges, rng.exponential(size=len(edges)))


def _partition(rng: _Rng) -> FactorGraph:
    """Draw Potts terms of either sign without unaries, so that labels are only names."""
    n, k = _size(rng)
    edges = _edges(rng, n)
    return FactorGraph.potts(np.zeros((n, k)), edges, rng.normal(size=len(edges)))


def _estep(rng: _Rng) -> FactorGraph:
    """Draw squared distances to centroids, with must-links and cannot-links (signed Potts)."""
    n, k = _size(rng)
    points, centroids = rng.normal(size=(n, 2)), rng.normal(size=(k, 2))
    unary = ((points[:, None] - centroids[None]) ** 2).sum(axis=2)
    edges = _edges(rng, n)
    must = rng.random(len(edges)) < 0.5
    weight = rng.exponential(2.0, size=len(edges))
    if rng.random() < 0.5:
        term = DiagonalTerms(edges, np.where(must, 0.0, weight), np.where(must, weight, 0.0))
        return FactorGraph.from_terms(unary, [term])
    # Negative Potts weights and a constant give the same energies.
    constant = float(weight[~must].sum())
    return FactorGraph.potts(unary, edges, np.where(must, weight, -weight), constant)


def _diagonal(rng: _Rng) -> FactorGraph:
    """Draw diagonal terms whose cost depends on the label, of mixed signs."""
    n, k = _size(rng)
    edges = _edges(rng, n)
    m = len(edges)
    per_edge = rng.random() < 0.7
    same = rng.normal(scale=2.0, size=(m if per_edge else 1, k))
    return FactorGraph.from_terms(
        rng.normal(size=(n, k)), [DiagonalTerms(edges, same, rng.normal(size=m))]
    )


def _truncated_linear(rng: _Rng) -> FactorGraph:
    """Draw one truncated linear table with a weight for each edge."""
    n, k = _size(rng, 3, 5)
    a = np.arange(k)
    table = np.minimum(np.abs(a[:, None] - a[None]), rng.uniform(1.1, 3.0))
    edges = _edges(rng, n)
    return FactorGraph.pairwise(
        rng.normal(scale=2.0, size=(n, k)), edges, table, rng.uniform(0.0, 2.0, size=len(edges))
    )


def _own_tables(rng: _Rng) -> FactorGraph:
    """Draw pairwise terms with a dense table each."""
    n, k = _size(rng)
    edges = _edges(rng, n)
    return FactorGraph.pairwise(rng.normal(size=(n, k)), edges, rng.normal(size=(len(edges), k, k)))


def _cardinalities(rng: _Rng) -> IntArray:
    """Draw cardinalities from 1 to 5 that are not all equal."""
    while True:
        counts = rng.integers(1, 6, size=int(rng.integers(3, 8)))
        if math.prod(counts.tolist()) <= MAX_STATES and counts.min() < counts.max():
            return counts


def _ragged(rng: _Rng) -> FactorGraph:
    """Draw variables of 1 to 5 labels, with diagonal terms and own tables."""
    counts = _cardinalities(rng)
    unary = [rng.normal(size=k) for k in counts]
    edges = _edges(rng, len(counts))
    split = int(rng.integers(0, len(edges) + 1))
    diagonal, tabular = edges[:split], edges[split:]
    tables = [rng.normal(size=(counts[i], counts[j])) for i, j in tabular]
    same = rng.normal(size=(split, int(counts.max())))
    return FactorGraph.from_terms(
        unary,
        [DiagonalTerms(diagonal, same, rng.normal(size=split)), OwnTables(tabular, tables)],
    )


def _higher_order(rng: _Rng) -> FactorGraph:
    """Draw tables over three and four variables beside pairwise terms."""
    n, k = _size(rng, 2, 3)
    edges = _edges(rng, n)[:n]
    factors = [
        (_scope(rng, n, arity), rng.normal(size=(k,) * arity))
        for arity in rng.integers(3, min(n, 4) + 1, size=int(rng.integers(1, 5))).tolist()
    ]
    term = DiagonalTerms(edges, rng.normal(size=len(edges)))
    return FactorGraph.from_terms(rng.normal(size=(n, k)), [term], factors)


def _forest(rng: _Rng) -> FactorGraph:
    """Draw forests of diagonal terms, tables and sometimes a factor of three variables."""
    n, k = _size(rng)
    edges = _tree(rng, n)
    unary = rng.normal(size=(n, k))
    factors = []
    if rng.random() < 0.3:
        # A path of two edges becomes one factor, which leaves the factor graph without a cycle.
        first = edges[0]
        joined = [e for e in range(1, n - 1) if np.isin(edges[e], first).any()]
        if joined:
            scope = tuple(np.unique(edges[[0, joined[0]]]).tolist())
            factors.append((scope, rng.normal(size=(k, k, k))))
            edges = np.delete(edges, [0, joined[0]], axis=0)
    edges = edges[rng.random(len(edges)) < 0.85]
    split = int(rng.integers(0, len(edges) + 1))
    tables = rng.normal(size=(len(edges) - split, k, k))
    same = rng.normal(scale=2.0, size=(split, k))
    return FactorGraph.from_terms(
        unary, [DiagonalTerms(edges[:split], same), OwnTables(edges[split:], tables)], factors
    )


def _grid(rng: _Rng) -> FactorGraph:
    """Draw small grids with Potts terms of mixed sign or one truncated quadratic table."""
    rows, columns, k = [(3, 3, 2), (2, 5, 2), (2, 3, 3), (1, 6, 3), (2, 2, 5)][rng.integers(5)]
    edges = grid_edges(rows, columns)
    unary = rng.normal(size=(rows * columns, k))
    if k > 2:
        a = np.arange(k)
        table = np.minimum((a[:, None] - a[None]) ** 2, 3.0)
        return FactorGraph.pairwise(unary, edges, table, rng.uniform(0.1, 1.0, size=len(edges)))
    return FactorGraph.potts(unary, edges, rng.normal(size=len(edges)))


def _mixed(rng: _Rng) -> FactorGraph:
    """Draw ragged graphs with all kinds of terms, forbidden entries and a constant."""
    counts = _cardinalities(rng)
    n = len(counts)
    planted = rng.integers(0, counts)
    unary = [_forbid(rng, rng.normal(size=k), (planted[i],), 0.2) for i, k in enumerate(counts)]
    widest = int(counts.argmax())
    unary[widest][planted[widest] - 1] = np.inf
    factors = []
    for _ in range(int(rng.integers(2, 9))):
        scope = _scope(rng, n, int(rng.integers(2, min(n, 4) + 1)))
        table = rng.normal(size=tuple(counts[list(scope)]))
        factors.append((scope, _forbid(rng, table, tuple(planted[list(scope)]), 0.2)))
    edges = _edges(rng, n)
    m, half = len(edges), len(edges) // 2
    terms = [
        DiagonalTerms(edges[:half], rng.normal(size=half), rng.normal(size=half)),
        DiagonalTerms(edges[half:], rng.normal(size=(m - half, int(counts.max())))),
    ]
    return FactorGraph.from_terms(unary, terms, factors, constant=float(rng.exponential(5.0)))


def _merged(rng: _Rng) -> FactorGraph:
    """Draw edges given several times, which construction adds up."""
    n, k = _size(rng)
    edges = _edges(rng, n)
    again = rng.permutation(edges)[: max(1, len(edges) // 2), ::-1]
    return FactorGraph.from_terms(
        rng.normal(size=(n, k)),
        [
            DiagonalTerms(edges, 0.0, rng.normal(size=len(edges))),
            DiagonalTerms(again, rng.normal(size=len(again)), 0.0),
            OwnTables(again, rng.normal(size=(len(again), k, k))),
        ],
        [(edges[0].tolist(), rng.normal(size=(k, k)))],
    )


def _forbidden_labels(rng: _Rng) -> FactorGraph:
    """Draw unaries with ``+inf`` entries."""
    n, k = _size(rng)
    planted = rng.integers(0, k, size=n)
    unary = np.where(rng.random((n, k)) < 0.4, np.inf, rng.normal(size=(n, k)))
    unary[np.arange(n), planted] = rng.normal(size=n)
    unary[0, planted[0] - 1] = np.inf
    edges = _edges(rng, n)
    return FactorGraph.potts(unary, edges, rng.normal(size=len(edges)))


def _linked(rng: _Rng, must: bool) -> FactorGraph:
    """Plant a labelling; add hard links that it satisfies, mostly of one sort, and soft ones."""
    n, k = _size(rng)
    planted = rng.integers(0, k, size=n)
    edges = _edges(rng, n)
    # The first edge is hard and of the family's sort, so that there is one.
    planted[edges[0, 1]] = (planted[edges[0, 0]] + (0 if must else 1)) % k
    equal = planted[edges[:, 0]] == planted[edges[:, 1]]
    hard = rng.random(len(edges)) < np.where(equal == must, 0.9, 0.1)
    hard[0] = True
    same = np.where(hard & ~equal, np.inf, rng.exponential(size=len(edges)))
    differ = np.where(hard & equal, np.inf, rng.exponential(size=len(edges)))
    return FactorGraph.from_terms(rng.normal(size=(n, k)), [DiagonalTerms(edges, same, differ)])


def _hard_tables(rng: _Rng) -> FactorGraph:
    """Draw pairwise and higher-order tables with ``+inf`` entries; feasible."""
    n, k = _size(rng)
    planted = rng.integers(0, k, size=n)
    factors = []
    for edge in _edges(rng, n).tolist():
        factors.append((edge, _forbid(rng, rng.normal(size=(k, k)), tuple(planted[edge]), 0.3)))
    factors[0][1][planted[factors[0][0][0]] - 1, 0] = np.inf
    for _ in range(int(rng.integers(0, 3))):
        scope = list(_scope(rng, n, 3))
        table = rng.normal(size=(k, k, k))
        factors.append((scope, _forbid(rng, table, tuple(planted[scope]), 0.5)))
    shared = np.where(np.eye(k, k=1) > 0, np.inf, rng.normal(size=(k, k)))
    path = np.array([(i, i + 1) for i in range(n - 1)])
    safe = path[(planted[path[:, 0]] + 1 != planted[path[:, 1]])]
    terms = [SharedTable(safe, shared, rng.uniform(0.5, 2.0, size=len(safe)))] if len(safe) else []
    return FactorGraph.from_terms(rng.normal(size=(n, k)), terms, factors)


def _inheritance(rng: _Rng) -> FactorGraph:
    """Draw feasible tables in which one variable follows from the others, as in pedigrees."""
    counts = _cardinalities(rng)
    planted = rng.integers(0, counts)
    factors = []
    for _ in range(int(rng.integers(2, 2 * len(counts) + 1))):
        scope = list(_scope(rng, len(counts), int(rng.integers(3, min(len(counts), 4) + 1))))
        child, *others = counts[scope].tolist()
        if rng.random() < 0.5:
            follows = rng.integers(0, child, size=others)
        else:
            *copied, selector = np.indices(others)
            follows = np.choose(selector % len(copied), copied) % child
        follows[tuple(planted[scope[1:]])] = planted[scope[0]]
        table = np.full((child, *others), np.inf)
        costs = rng.exponential(size=follows.shape)
        np.put_along_axis(table, follows[None], costs[None], axis=0)
        factors.append((scope, table))
    return FactorGraph.from_terms([rng.normal(size=k) for k in counts], [], factors)


def _ties(rng: _Rng) -> FactorGraph:
    """Draw small integer costs, so that many labellings share the least energy."""
    n, k = _size(rng)
    edges = _edges(rng, n)
    unary = rng.integers(0, 2, size=(n, k)).astype(np.float64)
    return FactorGraph.potts(unary, edges, rng.integers(-1, 2, size=len(edges)))


def _equal(rng: _Rng) -> FactorGraph:
    """Draw a graph whose labellings all have the same energy."""
    n, k = _size(rng)
    edges = _edges(rng, n)
    cost = float(rng.integers(-2, 3))
    return FactorGraph.from_terms(np.full((n, k), cost), [DiagonalTerms(edges, cost, cost)])


def _large(rng: _Rng) -> FactorGraph:
    """Draw costs of the order of a million."""
    n, k = _size(rng)
    edges = _edges(rng, n)
    m = len(edges)
    half = m // 2
    return FactorGraph.from_terms(
        1e6 * rng.normal(size=(n, k)),
        [
            DiagonalTerms(edges[:half], 0.0, 1e6 * rng.normal(size=half)),
            OwnTables(edges[half:], 1e6 * rng.normal(size=(m - half, k, k))),
        ],
    )


def _one_variable(rng: _Rng) -> FactorGraph:
    """Draw one variable alone, sometimes with forbidden labels."""
    k = int(rng.integers(1, 8))
    unary = rng.normal(size=(1, k))
    if rng.random() < 0.3:
        unary[0, 1:] = np.inf
    return FactorGraph.potts(unary, np.empty((0, 2), dtype=np.int64), np.empty(0))


def _one_label(rng: _Rng) -> FactorGraph:
    """Draw variables with one label each: a single labelling, with terms of every kind."""
    n = int(rng.integers(3, 9))
    edges = _edges(rng, n)
    half = len(edges) // 2
    return FactorGraph.from_terms(
        rng.normal(size=(n, 1)),
        [
            DiagonalTerms(edges[:half], rng.normal(size=half), np.inf),
            OwnTables(edges[half:], rng.normal(size=(len(edges) - half, 1, 1))),
        ],
        [(_scope(rng, n, 3), rng.normal(size=(1, 1, 1)))],
    )


def _no_edges(rng: _Rng) -> FactorGraph:
    """Draw unaries only."""
    n, k = _size(rng)
    return FactorGraph.potts(rng.normal(size=(n, k)), np.empty((0, 2), dtype=np.int64), np.empty(0))


def _disconnected(rng: _Rng) -> FactorGraph:
    """Draw several components, isolated variables among them."""
    n, k = _size(rng, 2, 3)
    side = rng.permutation(np.arange(n) % 3)
    edges = np.array(
        [(i, j) for i, j in itertools.combinations(range(n), 2) if side[i] == side[j] < 2]
    ).reshape(-1, 2)
    return FactorGraph.potts(rng.normal(size=(n, k)), edges, rng.normal(size=len(edges)))


def _empty(rng: _Rng) -> FactorGraph:
    """Draw a constant without variables, the energy of the one, empty, labelling."""
    return FactorGraph.from_factors(np.empty(0, dtype=np.int64), [], float(rng.exponential()))


def _infeasible(rng: _Rng) -> FactorGraph:
    """Draw contradictory hard constraints of five sorts; every labelling costs ``+inf``."""
    n, k = _size(rng, 2, 3)
    n = max(n, k + 1)
    unary = rng.normal(size=(n, k))
    edges = _edges(rng, n)
    soft = DiagonalTerms(edges, 0.0, rng.normal(size=len(edges)))
    sort = int(rng.integers(0, 5))
    order = rng.permutation(n)
    if sort == 0:  # a variable without a label
        unary[order[0]] = np.inf
        return FactorGraph.from_terms(unary, [soft])
    if sort == 1:  # equal along a chain, different at its ends
        chain = np.stack([order[:-1], order[1:]], axis=1)
        ends = order[[0, -1]][None]
        return FactorGraph.from_terms(
            unary, [DiagonalTerms(chain, 0.0, np.inf), DiagonalTerms(ends, np.inf, 0.0)]
        )
    if sort == 2:  # k + 1 variables, all different
        clique = np.array(list(itertools.combinations(order[: k + 1].tolist(), 2)))
        return FactorGraph.from_terms(unary, [DiagonalTerms(clique, np.inf, 0.0)])
    if sort == 3:  # tables that push a label up along a chain, and one that requires it to fall
        a = np.arange(k)
        rising = np.where(a[:, None] < a[None], 0.0, np.inf)
        path = np.stack([order[:k], order[1 : k + 1]], axis=1)
        return FactorGraph.from_terms(unary, [OwnTables(path, np.repeat(rising[None], k, axis=0))])
    # two parities that exclude each other
    scope = tuple(order[:3].tolist())
    even = np.where(np.indices((k, k, k)).sum(axis=0) % 2 == 0, 0.0, np.inf)
    odd = np.where(np.isinf(even), 0.0, np.inf)
    return FactorGraph.from_terms(unary, [soft], [(scope, even), (scope, odd)])


#: Families whose graphs have finite energies throughout.
FINITE: dict[str, Callable[[_Rng], FactorGraph]] = {
    "potts": _potts,
    "estep": _estep,
    "diagonal": _diagonal,
    "truncated-linear": _truncated_linear,
    "own-tables": _own_tables,
    "ragged": _ragged,
    "higher-order": _higher_order,
    "forest": _forest,
    "grid": _grid,
    "merged": _merged,
    "ties": _ties,
    "partition": _partition,
}

#: Families with ``+inf`` costs that leave at least one labelling.
HARD: dict[str, Callable[[_Rng], FactorGraph]] = {
    "forbidden-labels": _forbidden_labels,
    "must-links": partial(_linked, must=True),
    "cannot-links": partial(_linked, must=False),
    "hard-tables": _hard_tables,
    "mixed": _mixed,
    "inheritance": _inheritance,
}

#: Families of degenerate graphs.
DEGENERATE: dict[str, Callable[[_Rng], FactorGraph]] = {
    "one-variable": _one_variable,
    "one-label": _one_label,
    "no-edges": _no_edges,
    "disconnected": _disconnected,
    "equal": _equal,
    "large": _large,
    "empty": _empty,
    "infeasible": _infeasible,
}

#: All families by name; each draws a graph from a random generator.
FAMILIES: dict[str, Callable[[_Rng], FactorGraph]] = {**FINITE, **HARD, **DEGENERATE}


# ---------------------------------------------------------------------- label costs


def _label_costs(rng: _Rng) -> FactorGraph:
    """Price each label, on a graph of one of the finite families."""
    graph = FINITE[list(FINITE)[rng.integers(len(FINITE))]](rng)
    k = int(graph.cardinalities.max())
    return graph.with_label_costs(rng.exponential(2.0, size=k) * (rng.random(k) < 0.8))


def _label_cost_sets(rng: _Rng) -> FactorGraph:
    """Price labels and sets of labels, sometimes by integers, so that there are ties."""
    graph = FINITE[list(FINITE)[rng.integers(len(FINITE))]](rng)
    k = int(graph.cardinalities.max())
    sets = [
        (rng.permutation(k)[: int(rng.integers(1, k + 1))].tolist(), float(rng.exponential(2.0)))
        for _ in range(int(rng.integers(1, 5)))
    ]
    if rng.random() < 0.3:
        return graph.with_label_costs(1.0, [(labels, 1.0) for labels, _ in sets])
    return graph.with_label_costs(rng.exponential(size=k), sets)


def _label_costs_hard(rng: _Rng) -> FactorGraph:
    """Price labels and sets beside ``+inf`` costs; feasible."""
    graph = HARD[list(HARD)[rng.integers(len(HARD))]](rng)
    k = int(graph.cardinalities.max())
    sets = [(rng.permutation(k)[: int(rng.integers(1, k + 1))].tolist(), 3.0)]
    return graph.with_label_costs(rng.exponential(2.0, size=k), sets)


def _open_clusters(rng: _Rng) -> FactorGraph:
    """Draw facility location with linked points: each point may open a cluster at a price."""
    n, k = _size(rng, 3, 4)
    points = rng.normal(size=(n, 2))
    unary = ((points[:, None] - points[None, :k]) ** 2).sum(axis=2)
    edges = _edges(rng, n)[: n // 2 + 1]
    graph = FactorGraph.potts(unary, edges, rng.normal(size=len(edges)))
    return graph.with_label_costs(float(rng.exponential(2.0)))


#: Families with label costs, which only some solvers cover.
LABEL_COSTS: dict[str, Callable[[_Rng], FactorGraph]] = {
    "label-costs": _label_costs,
    "label-cost-sets": _label_cost_sets,
    "label-costs-hard": _label_costs_hard,
    "open-clusters": _open_clusters,
}


# ---------------------------------------------------------------------- costs of any size


def _drawn(rng: _Rng) -> FactorGraph:
    """Draw a graph of one of the other families, with or without infinite costs."""
    names = [name for name in {**FINITE, **HARD} if name != "estep"]
    return FAMILIES[names[rng.integers(len(names))]](rng)


def scaled(graph: FactorGraph, exponent: int) -> FactorGraph:
    """Return the graph with all costs, except label costs, multiplied by ``2^exponent``."""
    names = "unary_values", "edge_weights", "pairwise_values", "table_values"
    costs: dict[str, Any] = {n: freeze(np.ldexp(getattr(graph, n), exponent)) for n in names}
    # Of a table and its weight, only the table is multiplied.
    tables = graph.edge_kinds == TABLE
    costs["edge_weights"] = freeze(np.where(tables, graph.edge_weights, costs["edge_weights"]))
    return replace(graph, **costs, constant=math.ldexp(graph.constant, exponent))


def _each(graph: FactorGraph, change: Callable[[FloatArray], FloatArray]) -> FactorGraph:
    """Change the costs of each term."""
    factors = [(scope, change(table)) for scope, table in graph.factors()]
    return FactorGraph.from_factors(graph.cardinalities, factors, graph.constant)


def _tiny_costs(rng: _Rng) -> FactorGraph:
    """Draw costs of a millionth down to the smallest floats."""
    return scaled(_drawn(rng), -int(rng.choice([20, 50, 300, 600, 1000, 1070])))


def _huge_costs(rng: _Rng) -> FactorGraph:
    """Draw costs of 10^13 up to the largest allowed, beside infinite ones, too."""
    graph = _drawn(rng)
    exponent = math.floor(math.log2(COST_LIMIT)) - math.frexp(graph.magnitude)[1]
    return scaled(graph, int(rng.choice([45, 200, exponent])))


def _mixed_scales(rng: _Rng) -> FactorGraph:
    """Draw terms of 10^-12, 1 and 10^12 beside each other."""
    return _each(_drawn(rng), lambda table: table * 2.0 ** rng.choice([-40, 0, 40]))


def _large_penalties(rng: _Rng) -> FactorGraph:
    """Draw costs of 10^9, 10^20 or 10^90, in the place of infinite ones, beside common ones."""
    large = 10.0 ** rng.choice([9, 20, 90])
    return _each(
        _drawn(rng),
        lambda table: np.where(rng.random(table.shape) < 0.15, large, table),
    )


def _penalties(rng: _Rng) -> FactorGraph:
    """Draw tables of any arity with penalties p to 1000 p of 10^4 to 10^12, and costs near 1."""
    counts = _cardinalities(rng)
    n = len(counts)
    penalties = 10.0 ** int(rng.integers(4, 10)) * np.array([1.0, 10.0, 1000.0])

    def costs(shape: tuple[int, ...], share: float) -> FloatArray:
        penalised = rng.random(shape) < share
        return np.where(penalised, rng.choice(penalties, size=shape), rng.normal(size=shape))

    scopes = [tuple(edge) for edge in _edges(rng, n).tolist()]
    scopes += [_scope(rng, n, 3) for _ in range(int(rng.integers(0, 2)))]
    tables = [costs(tuple(counts[list(scope)]), 0.35) for scope in scopes]
    unary = [costs((int(k),), 0.1) for k in counts]
    return FactorGraph.from_terms(unary, [], list(zip(scopes, tables, strict=True)))


def _large_integers(rng: _Rng) -> FactorGraph:
    """Draw integers up to 2^53, many of them equal."""
    unit = 2.0 ** rng.choice([10, 30, 50])
    return _each(_drawn(rng), lambda table: unit * np.clip(np.round(table), -8, 8))


#: Families whose costs are of unusual sizes.
SCALES: dict[str, Callable[[_Rng], FactorGraph]] = {
    "tiny-costs": _tiny_costs,
    "huge-costs": _huge_costs,
    "mixed-scales": _mixed_scales,
    "large-penalties": _large_penalties,
    "penalties": _penalties,
    "large-integers": _large_integers,
}


def random_graph(family: str, seed: int) -> FactorGraph:
    """Draw a graph of a family; the same seed gives the same graph."""
    families = {**FAMILIES, **LABEL_COSTS, **SCALES}
    if family not in families:
        raise unknown("family", family, families)
    # The family's name takes part, so that families do not draw the same numbers.
    return families[family](np.random.default_rng([seed, *family.encode()]))
