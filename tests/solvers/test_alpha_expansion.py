"""Alpha-expansion: monotone, optimal within expansions, within twice the optimum on metrics."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import signed_grid

import inference_lab as il
from inference_lab.conformance import exhaustive
from inference_lab.graph.random_graphs import random_graph

SEEDS = st.integers(0, 10_000)


def random_metric(seed, distance=None):
    """Draw small graphs with non-negative unaries and a metric on every edge."""
    rng = np.random.default_rng(seed)
    k = int(rng.integers(3, 5))
    n = int(rng.integers(3, 7 if k == 3 else 6))
    pairs = np.array(list(itertools.combinations(range(n), 2)))
    edges = pairs[rng.random(len(pairs)) < 0.7]
    weights = rng.exponential(size=len(edges))
    table = np.ones((k, k)) - np.eye(k) if distance is None else distance(k)
    unary = rng.exponential(scale=1.5, size=(n, k)) * (rng.random((n, k)) < 0.8)
    return il.FactorGraph.pairwise(unary, edges, table, weights)


def truncated_linear(k):
    a = np.arange(k)
    return np.minimum(np.abs(a[:, None] - a), 2.0)


def every_expansion(x, cardinalities):
    """Return all labellings that an expansion move reaches."""
    for alpha in range(max(cardinalities)):
        options = [
            (a, alpha) if alpha < k and a != alpha else (a,)
            for a, k in zip(x.tolist(), cardinalities, strict=True)
        ]
        yield from itertools.product(*options)


@given(SEEDS, st.booleans())
def test_no_expansion_of_a_metric_is_better(seed, linear):
    graph = random_metric(seed, truncated_linear if linear else None)
    s = il.solve(graph, "alpha-expansion(init=random)", seed=seed)
    assert s.diagnostics["nonsubmodular_share"] == 0
    moves = np.array(list(every_expansion(s.labels, graph.cardinalities.tolist())))
    assert s.energy <= graph.energy(moves).min() + 1e-9


@given(SEEDS, st.booleans())
def test_within_the_guaranteed_factor(seed, linear):
    """``E <= unary(x*) + 2 c pairwise(x*)``, with c = 1 for Potts and 2 for min(|a - b|, 2)."""
    graph = random_metric(seed, truncated_linear if linear else None)
    exact = exhaustive(graph)
    best = np.array(np.unravel_index(int(exact.energies.argmin()), exact.energies.shape))
    unary = float(graph.unary[np.arange(best.size), best].sum())
    pairwise = exact.optimum - unary
    s = il.solve(graph, "alpha-expansion(init=random)", seed=seed)
    assert s.energy <= unary + (4 if linear else 2) * pairwise + 1e-9


def test_two_labels_and_frustrated_has_the_bound_of_the_relaxation():
    graph = signed_grid(8, 8, 2, 5, field=0.3)
    relaxed = il.solve(graph, "lp-relaxation")
    s = il.solve(graph, "alpha-expansion")
    assert relaxed.lower_bound < il.solve(graph, "ilp").energy - 0.1
    assert s.lower_bound == pytest.approx(relaxed.lower_bound, abs=1e-6)
    assert s.status == "converged"


def test_leaves_an_infeasible_start():
    """A chain of hard must-links is switched as a whole, which no single change can do."""
    n = 50
    graph = il.FactorGraph.potts(
        np.tile([0.0, 1.0, 0.9], (n, 1)) + np.eye(3)[np.zeros(n, dtype=int)] * 0.5,
        [(i, i + 1) for i in range(n - 1)],
        math.inf,
    )
    start = np.arange(n) % 3
    s = il.solve(graph, "alpha-expansion", initial=start)
    assert s.labels.tolist() == [0] * n
    assert s.energy == pytest.approx(25.0)


def test_share_of_nonsubmodular_pairs_is_reported():
    """Must-links count as submodular, cannot-links do not."""
    graph = il.FactorGraph.potts(
        np.random.default_rng(0).normal(size=(4, 3)), [(0, 1), (1, 2), (2, 3)], [1.0, -1.0, 1.0]
    )
    s = il.solve(graph, "alpha-expansion")
    assert 0 < s.diagnostics["nonsubmodular_share"] < 1
    assert s.diagnostics["moves"] >= s.diagnostics["successful_moves"]


def test_higher_order_factors_are_refused():
    s = il.solve(random_graph("higher-order", 0), "alpha-expansion")
    assert s.status == "unsupported"
    assert "at most two variables" in s.message
