"""Elimination orders: reported sizes equal the eliminations, and bounds hold."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from strategies import random_pairs

import inference_lab as il
from inference_lab.algorithms.elimination import min_fill, order
from inference_lab.algorithms.elimination.arc_consistency import allowed_labels
from inference_lab.algorithms.elimination.interactions import (
    Interactions,
    coupling_terms,
    interactions,
)
from inference_lab.algorithms.elimination.order import elimination_order
from inference_lab.conformance import exhaustive
from inference_lab.graph.grids import grid_edges
from inference_lab.graph.random_graphs import FAMILIES, HARD, random_graph


def network(n, edges, sizes=None):
    """Make the interactions of a plain graph, with two labels a variable unless sizes are given."""
    ends = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    both = np.unique(np.concatenate([ends, ends[:, ::-1]]), axis=0)
    ptr = np.concatenate([[0], np.cumsum(np.bincount(both[:, 0], minlength=n))])
    counts = np.full(n, 2) if sizes is None else np.asarray(sizes)
    return Interactions(np.arange(n), ptr, both[:, 1].copy(), np.log2(counts))


def eliminate(graph, order):
    """Return degrees and sizes along an order, with Python sets."""
    hood = {
        int(v): set(graph.neighbours[graph.ptr[v] : graph.ptr[v + 1]].tolist())
        for v in range(graph.variables.size)
    }
    degrees, sizes = [], []
    for v in np.searchsorted(graph.variables, order).tolist():
        near = hood.pop(v)
        degrees.append(len(near))
        sizes.append(graph.log2_sizes[[v, *near]].sum())
        for u in near:
            hood[u] |= near
            hood[u] -= {u, v}
    assert not hood
    return degrees, sizes


def least_table(graph):
    """Return the size (binary logarithm) of the largest table of the best order."""
    n = graph.variables.size
    hood = [set(graph.neighbours[graph.ptr[v] : graph.ptr[v + 1]].tolist()) for v in range(n)]

    def later(gone, v):
        """Return the remaining variables that v reaches through eliminated ones."""
        seen, stack, reached = {v}, [v], set()
        while stack:
            for u in hood[stack.pop()] - seen:
                seen.add(u)
                if u in gone:
                    stack.append(u)
                else:
                    reached.add(u)
        return reached

    best = {frozenset(): 0.0}
    for count in range(1, n + 1):
        for subset in map(frozenset, itertools.combinations(range(n), count)):
            best[subset] = min(
                max(best[subset - {v}], graph.log2_sizes[[v, *later(subset - {v}, v)]].sum())
                for v in subset
            )
    return best[frozenset(range(n))]


def greedily(graph, weights, by_fill):
    """Order greedily in plain Python by least fill or least size, with ties broken by number."""
    hood = {
        v: set(graph.neighbours[graph.ptr[v] : graph.ptr[v + 1]].tolist())
        for v in range(graph.variables.size)
    }
    order = []
    while hood:
        if by_fill:
            cost = {
                v: sum(
                    weights[a] * weights[b]
                    for a, b in itertools.combinations(near, 2)
                    if a not in hood[b]
                )
                for v, near in hood.items()
            }
        else:
            cost = {v: weights[v] + sum(weights[a] for a in near) for v, near in hood.items()}
        v = min(hood, key=lambda u: (cost[u], u))
        near = hood.pop(v)
        order.append(v)
        for u in near:
            hood[u] |= near
            hood[u] -= {u, v}
    return order


def random_network(rng, n, ragged):
    pairs = np.array(list(itertools.combinations(range(n), 2)))
    sample = pairs[rng.random(len(pairs)) < rng.uniform(0.2, 0.9)]
    return network(n, sample, rng.integers(2, 9, size=n) if ragged else None)


# ---------------------------------------------------------------------- forbidden labels


@pytest.mark.parametrize("family", [*HARD, "one-variable", "one-label", "infeasible", "potts"])
def test_only_labels_of_no_finite_labelling_are_dropped(family):
    dropped = 0
    for seed in range(12):
        graph = random_graph(family, seed)
        domains = allowed_labels(graph)
        finite = np.isfinite(exhaustive(graph).energies)
        if not domains.feasible:
            assert not finite.any()
            continue
        for i, k in enumerate(graph.cardinalities):
            axes = tuple(j for j in range(graph.n_variables) if j != i)
            used = np.flatnonzero(finite.any(axis=axes))
            labels = domains.labels[domains.ptr[i] : domains.ptr[i + 1]]
            assert set(used) <= set(labels)
            dropped += k - labels.size
    assert (dropped > 0) == (
        family in ("forbidden-labels", "hard-tables", "inheritance", "mixed", "one-variable")
    )


@pytest.mark.parametrize("family", HARD)
def test_every_label_left_has_support_in_every_term(family):
    """The fixed point of generalised arc consistency, checked on dense tables."""
    for seed in range(12):
        graph = random_graph(family, seed)
        domains = allowed_labels(graph)
        label_sets = np.split(domains.labels, domains.ptr[1:-1])
        for i in range(graph.n_variables):
            assert np.isfinite(graph.unary_of(i)[label_sets[i]]).all()
        for scope, table in graph.factors():
            finite = np.isfinite(table[np.ix_(*(label_sets[v] for v in scope))])
            for axis in range(finite.ndim):
                others = tuple(a for a in range(finite.ndim) if a != axis)
                assert finite.any(axis=others).all()


def test_contradictions_are_seen_beyond_one_term():
    graph = il.FactorGraph.potts(np.zeros((9, 2)), [(i, i + 1) for i in range(8)], math.inf)
    assert not allowed_labels(graph.with_evidence({0: 0, 8: 1})).feasible
    assert allowed_labels(graph.with_evidence({0: 1, 8: 1})).feasible


# ---------------------------------------------------------------------- interactions


@pytest.mark.parametrize("family", [*FAMILIES])
def test_interactions_are_the_pairs_that_some_term_couples(family):
    for seed in range(8):
        graph = random_graph(family, seed)
        domains = allowed_labels(graph)
        if not domains.feasible:
            continue
        label_sets = np.split(domains.labels, domains.ptr[1:-1]) if graph.n_variables else []
        expected = set()
        for scope, table in graph.factors():
            part = table[np.ix_(*(label_sets[v] for v in scope))]
            if len(scope) > 1 and (part != part.flat[0]).any():
                free = [v for v in scope if label_sets[v].size > 1]
                expected |= {frozenset(pair) for pair in itertools.combinations(free, 2)}
        coupled = interactions(graph, domains, coupling_terms(graph, domains))
        assert coupled.variables.tolist() == [
            v for v in range(len(label_sets)) if label_sets[v].size > 1
        ]
        ends = np.repeat(coupled.variables, np.diff(coupled.ptr))
        pairs = set(map(frozenset, zip(ends, coupled.variables[coupled.neighbours], strict=True)))
        assert pairs == expected
        assert len(ends) == 2 * len(pairs)
        assert coupled.log2_sizes == pytest.approx(
            [math.log2(label_sets[v].size) for v in coupled.variables]
        )


# ---------------------------------------------------------------------- orders


@pytest.mark.parametrize("ragged", [False, True])
def test_reported_sizes_equal_the_eliminations(ragged):
    rng = np.random.default_rng(0)
    for n in [1, 2, 3, *rng.integers(4, 30, size=60)]:
        graph = random_network(rng, int(n), ragged)
        result = elimination_order(graph)
        assert result.complete
        assert sorted(result.order) == list(range(n))
        degrees, sizes = eliminate(graph, result.order)
        assert result.width == max(degrees)
        assert result.log2_largest == pytest.approx(max(sizes))
        assert result.log2_total == pytest.approx(math.log2(np.exp2(sizes).sum()))


@pytest.mark.parametrize("by_fill", [False, True])
@pytest.mark.parametrize("ragged", [False, True])
def test_greedy_rules_choose_as_plain_python_does(ragged, by_fill):
    rng = np.random.default_rng(5)
    for n in rng.integers(2, 25, size=40).tolist():
        graph = random_network(rng, n, ragged)
        weights = np.round(1024 * graph.log2_sizes).astype(np.int64) if ragged else np.ones(n, int)
        order, *_ = min_fill.eliminate(
            graph,
            weights,
            min_fill.BY_FILL if by_fill else min_fill.BY_SIZE,
            np.arange(n),
            math.inf,
            math.inf,
            10**9,
        )
        assert order.tolist() == greedily(graph, weights.tolist(), by_fill)


@pytest.mark.parametrize("ragged", [False, True])
def test_between_the_lower_bound_and_the_order_lies_the_best_of_all_orders(ragged):
    rng = np.random.default_rng(1)
    exact = 0
    for _ in range(60):
        graph = random_network(rng, int(rng.integers(3, 8)), ragged)
        result, best = elimination_order(graph), least_table(graph)
        # The lower bound is counted in multiples of 1/1024 of a digit.
        assert result.log2_needed <= best + 1e-9
        assert best <= result.log2_largest + 1e-9
        exact += result.log2_largest <= best + 1e-9
    assert exact >= 55


def test_forests_have_width_one_and_series_parallel_graphs_two():
    rng = np.random.default_rng(2)
    for _ in range(30):
        n = int(rng.integers(2, 60))
        tree = [(int(rng.integers(0, i)), i) for i in range(1, n)]
        assert elimination_order(network(n, tree)).width == 1
        # Every further vertex is joined to both ends of an edge: a 2-tree, some edges missing.
        edges = [(0, 1)]
        for v in range(2, n):
            a, b = edges[int(rng.integers(0, len(edges)))]
            edges += [(a, v), (b, v)]
        sample = [e for e in edges if rng.random() < 0.9]
        assert elimination_order(network(n, sample)).width <= 2


def test_a_long_path_of_many_labels_is_not_eliminated_across():
    """Between two cycles of binary variables the series rule would make a table of 100^3."""
    edges = [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7), (7, 8), (8, 6)]
    sizes = [2, 2, 2, 100, 100, 100, 2, 2, 2]
    result = elimination_order(network(9, edges, sizes))
    assert result.log2_largest == pytest.approx(2 * math.log2(100))


@pytest.mark.parametrize(("n", "limit"), [(4, 4), (8, 10), (12, 15), (16, 16), (20, 20)])
def test_grids(n, limit):
    result = elimination_order(network(n * n, grid_edges(n, n)))
    assert n <= result.width <= limit


def test_long_narrow_grids_are_ordered_along():
    result = elimination_order(network(3000, grid_edges(3, 1000)))
    assert result.width <= 4


def test_search_stops_once_the_lower_bound_suffices():
    rng = np.random.default_rng(3)
    n = 20_000
    edges = random_pairs(rng, n, 2 * n)
    edges = edges[edges[:, 0] != edges[:, 1]]
    graph = network(n, edges)
    result = elimination_order(graph, log2_limit=25.0, log2_enough=26.0)
    assert not result.complete
    assert result.log2_needed >= 26.0
    assert result.order.size < n
    # Without the lower bound, the search stops at the first table that is too large.
    result = elimination_order(graph, log2_limit=25.0)
    assert not result.complete
    assert result.log2_largest > 25.0


@pytest.mark.parametrize("hubs", [1, 2, 3])
def test_hubs_of_high_degree(hubs):
    """Stars and similar graphs: any step quadratic in the degree would take minutes."""
    n = 100_000
    edges = [np.stack([np.full(n, h), np.arange(n) + hubs], axis=1) for h in range(hubs)]
    graph = network(n + hubs, np.concatenate(edges))
    result = elimination_order(graph, log2_limit=20.0)
    assert result.complete
    assert result.width == hubs


@pytest.mark.parametrize(("side", "entries"), [(4, 300), (12, 300_000)])
def test_the_search_costs_no_more_than_it_can_save(side, entries, monkeypatch):
    """No order of 16 binary variables saves the cost of 200 more searches."""
    steps = []

    def counted(*arguments):
        result = min_fill.eliminate(*arguments)
        steps.append(result[-1])
        return result

    monkeypatch.setattr(order, "eliminate", counted)
    result = elimination_order(network(side * side, grid_edges(side, side)))
    assert 2.0**result.log2_total < entries
    assert sum(steps[:-1]) < 3 * entries


def test_limit_applies_to_the_remaining_table():
    """Eliminating the centre of a star of 4-label leaves a table of 4^3 entries, other orders 4."""
    star = network(4, [(0, 1), (0, 2), (0, 3)], [4, 4, 4, 4])
    assert elimination_order(star, log2_limit=2.0).complete
    clique = network(4, list(itertools.combinations(range(4), 2)), [4, 4, 4, 4])
    assert elimination_order(clique, log2_limit=6.0).complete
    assert not elimination_order(clique, log2_limit=5.9).complete
