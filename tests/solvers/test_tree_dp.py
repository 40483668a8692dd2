"""Dynamic programming on forests: exact, linear, and only there."""

from __future__ import annotations

import math

import numpy as np
import pytest

import inference_lab as il
from inference_lab.graph.random_graphs import random_graph


def hard_forest(rng, n):
    """Draw a tree of ragged variables, every kind of term, factors of arity 3 and 4, +inf."""
    counts = rng.integers(1, 5, size=n)
    planted = rng.integers(0, counts)
    unary = [np.where(rng.random(k) < 0.2, np.inf, rng.normal(size=k)) for k in counts]
    for i in range(n):
        unary[i][planted[i]] = rng.normal()
    name = rng.permutation(n)
    factors, same, differ, edges = [], [], [], []
    done = 1
    while done < n:
        arity = min(int(rng.integers(2, 5)), n - done + 1)
        scope = [name[rng.integers(0, done)], *name[done : done + arity - 1]]
        scope = [int(v) for v in rng.permutation(scope)]
        done += arity - 1
        if rng.random() < 0.1:
            continue  # the forest splits into several trees
        if arity == 2 and rng.random() < 0.5:
            edges.append(scope)
            equal = planted[scope[0]] == planted[scope[1]]
            same.append(rng.choice([rng.normal(), math.inf]) if not equal else rng.normal())
            differ.append(rng.choice([rng.normal(), math.inf]) if equal else rng.normal())
            continue
        table = rng.normal(size=tuple(counts[scope]))
        table = np.where(rng.random(table.shape) < 0.3, np.inf, table)
        table[tuple(planted[scope])] = rng.normal()
        factors.append((scope, table))
    terms = [il.DiagonalTerms(np.array(edges).reshape(-1, 2), np.array(same), np.array(differ))]
    return il.FactorGraph.from_terms(unary, terms, factors, constant=2.5)


@pytest.mark.parametrize("seed", range(12))
def test_larger_forests_equal_the_junction_tree(seed):
    graph = hard_forest(np.random.default_rng(seed), 150)
    assert graph.is_forest and graph.n_factors > 20
    cold, expected = il.solve(graph, "tree-dp"), il.solve(graph, "junction-tree")
    assert cold.status == expected.status == "optimal"
    assert cold.energy == pytest.approx(expected.energy)
    warm = il.solve(graph, "tree-dp", temperature=0.7)
    expected = il.solve(graph, "junction-tree", temperature=0.7)
    assert warm.log_partition == pytest.approx(expected.log_partition)
    for row, other in zip(warm.marginals, expected.marginals, strict=True):
        np.testing.assert_allclose(row, other, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("graph", "cycles"),
    [
        (il.FactorGraph.potts(np.zeros((3, 2)), [(0, 1), (1, 2), (2, 0)], 1.0), "1 cycle"),
        (
            il.FactorGraph.potts(
                np.zeros((7, 2)),
                [(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 6), (6, 3), (3, 5)],
                1.0,
            ),
            "3 independent cycles",
        ),
        (
            il.FactorGraph.from_factors(
                [2] * 4, [((0, 1, 2), np.ones((2, 2, 2))), ((1, 2, 3), np.ones((2, 2, 2)))]
            ),
            "1 cycle",
        ),
    ],
)
def test_cycles_are_refused_with_their_number(graph, cycles):
    s = il.solve(graph, "tree-dp")
    assert s.status == "unsupported"
    assert s.message == f"the graph has {cycles}; dynamic programming on trees needs a forest"


def test_one_pass_gives_the_labels_and_the_log_partition():
    graph = hard_forest(np.random.default_rng(3), 60)
    s = il.solve(graph, "tree-dp", max_iterations=1)
    assert (s.status, s.iterations) == ("optimal", 1)
    whole = il.solve(graph, "tree-dp", temperature=1.0)
    assert (whole.status, whole.iterations) == ("converged", 2)
    s = il.solve(graph, "tree-dp", temperature=1.0, max_iterations=1)
    assert (s.status, s.iterations) == ("limit", 1)
    assert s.log_partition == whole.log_partition
    assert s.labels.tolist() == whole.labels.tolist()
    assert s.marginals is None


def test_a_time_limit_that_is_over_leaves_a_labelling_and_no_claim():
    n = 200_000
    graph = il.FactorGraph.potts(
        np.random.default_rng(0).normal(size=(n, 3)), [(i, i + 1) for i in range(n - 1)], 1.0
    )
    il.solve(random_graph("forest", 0), "tree-dp")
    s = il.solve(graph, "tree-dp", time_limit=1e-6)
    assert s.status == "limit"
    assert s.lower_bound == -math.inf
    assert s.labels.tolist() == graph.unary.argmin(axis=1).tolist()


def test_long_chains_equal_their_transfer_matrix():
    """The chain has 100,000 variables; log space prevents underflow."""
    n, coupling = 100_000, 0.8
    chain = [(i, i + 1) for i in range(n - 1)]
    graph = il.FactorGraph.potts(np.zeros((n, 4)), chain, coupling)
    s = il.solve(graph, "tree-dp", temperature=1.0)
    expected = math.log(4) + (n - 1) * math.log(1 + 3 * math.exp(-coupling))
    assert s.log_partition == pytest.approx(expected, rel=1e-14)
    assert s.marginals == pytest.approx(np.full((n, 4), 0.25))
