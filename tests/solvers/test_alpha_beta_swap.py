"""Alpha-beta swap: monotone, and optimal within swaps on semi-metrics."""

from __future__ import annotations

import itertools
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import inference_lab as il
from inference_lab.conformance import exhaustive

SEEDS = st.integers(0, 10_000)


def random_semimetric(seed):
    """Draw truncated quadratic smoothness, which violates the triangle inequality."""
    rng = np.random.default_rng(seed)
    k = int(rng.integers(3, 5))
    n = int(rng.integers(3, 6))
    a = np.arange(k)
    pairs = np.array(list(itertools.combinations(range(n), 2)))
    edges = pairs[rng.random(len(pairs)) < 0.7]
    table = np.minimum((a[:, None] - a) ** 2, 5.0)
    return il.FactorGraph.pairwise(
        rng.normal(scale=2.0, size=(n, k)), edges, table, rng.exponential(size=len(edges))
    )


def every_swap(x, cardinalities):
    """Return all labellings that a swap reaches."""
    for alpha, beta in itertools.combinations(range(max(cardinalities)), 2):
        options = [
            (alpha, beta) if a in (alpha, beta) and beta < k else (a,)
            for a, k in zip(x.tolist(), cardinalities, strict=True)
        ]
        yield from itertools.product(*options)


@given(SEEDS)
def test_no_swap_of_a_semimetric_is_better(seed):
    graph = random_semimetric(seed)
    s = il.solve(graph, "alpha-beta-swap(init=random)", seed=seed)
    assert s.diagnostics["nonsubmodular_share"] == 0
    moves = np.array(list(every_swap(s.labels, graph.cardinalities.tolist())))
    assert s.energy <= graph.energy(moves).min() + 1e-9


def test_a_semimetric_is_not_submodular_for_expansions():
    """Swaps handle these graphs; expansions of them need roof duality."""
    shares = [
        il.solve(random_semimetric(seed), "alpha-expansion(init=random)", seed=seed).diagnostics[
            "nonsubmodular_share"
        ]
        for seed in range(20)
    ]
    assert max(shares) > 0


def test_ragged_labels():
    """A variable without one of the two labels keeps the other."""
    graph = il.FactorGraph.from_terms(
        [[2.0, 0.0], [0.0, 3.0, 0.5], [0.0, 3.0, 0.1]],
        [il.DiagonalTerms([(0, 1), (1, 2)], 0.0, [0.2, 1.0])],
    )
    s = il.solve(graph, "alpha-beta-swap", initial=[0, 2, 0])
    assert s.labels.tolist() == [1, 0, 0]
    assert s.energy == exhaustive(graph).optimum


def test_leaves_an_infeasible_start():
    """Hard cannot-links along a cycle: swaps resolve the violations of the start."""
    n = 12
    graph = il.FactorGraph.from_terms(
        np.random.default_rng(0).normal(size=(n, 3)),
        [il.DiagonalTerms([(i, (i + 1) % n) for i in range(n)], math.inf, 0.0)],
    )
    s = il.solve(graph, "alpha-beta-swap", initial=np.zeros(n, dtype=int))
    assert math.isfinite(s.energy)


def test_unused_labels_cost_no_cut():
    """Swaps are tried only for pairs of labels of which some variable has one."""
    k = 30
    unary = np.ones((5, k))
    unary[:, 0] = 0.0
    graph = il.FactorGraph.potts(unary, [(0, 1)], [1.0])
    s = il.solve(graph, "alpha-beta-swap")
    assert s.status == "converged"
    assert s.diagnostics["moves"] == k - 1
