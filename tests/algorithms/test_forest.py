"""Elimination of leaves: exact on forests of edges."""

from __future__ import annotations

import numpy as np
import pytest
from strategies import optimum

import inference_lab as il
from inference_lab.algorithms.elimination.forest import solve_forest
from inference_lab.graph.terms import OwnTables
from inference_lab.solvers.junction_tree import JunctionTree


def drawn(seed: int) -> il.FactorGraph:
    """Draw a forest of Potts terms or tables, with some infinite costs."""
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(1, 9)), int(rng.integers(1, 4))
    edges = [(int(rng.integers(i)), i) for i in range(1, n) if rng.random() < 0.8]
    unary = rng.normal(size=(n, k))
    if seed % 4 == 0 and k > 1:
        unary[rng.random((n, k)) < 0.2] = np.inf
    if seed % 2 and edges:
        tables = rng.normal(size=(len(edges), k, k))
        if seed % 3 == 0:
            tables[rng.random(tables.shape) < 0.3] = np.inf
        return il.FactorGraph.from_terms(unary, [OwnTables(np.array(edges), tables)])
    return il.FactorGraph.potts(unary, edges, rng.normal(size=len(edges)))


@pytest.mark.parametrize("seed", range(60))
def test_it_is_exact_as_the_junction_tree_is(seed: int) -> None:
    graph = drawn(seed)
    assert graph.is_forest
    s = il.solve(graph, "auto")
    best = optimum(graph)
    if np.isinf(best):
        assert s.status == "infeasible"
        return
    assert s.status == "optimal" and s.energy == pytest.approx(best, abs=1e-9)
    assert s.claimed_energy == pytest.approx(s.energy, abs=1e-9)
    other = il.solve(graph, JunctionTree())
    assert (s.energy, s.labels.tolist()) == (other.energy, other.labels.tolist())


def test_variables_of_different_sizes() -> None:
    graph = il.FactorGraph.from_terms(
        [np.array([0.0, 2.0, 1.0]), np.array([0.5, 0.0]), np.array([0.0, 0.1, 0.2, 3.0])],
        [OwnTables(np.array([[1, 0]]), [np.array([[3.0, 0.0, 1.0], [2.0, 2.0, 0.5]])])],
    )
    s = il.solve(graph, "auto")
    assert s.energy == pytest.approx(optimum(graph)) and s.status == "optimal"


def test_first_labels_of_ties() -> None:
    s = il.solve(il.FactorGraph.potts(np.zeros((5, 3)), [(0, 1), (1, 2), (3, 4)], 1.0), "auto")
    assert s.labels.tolist() == [0] * 5


def test_long_chains_and_stars() -> None:
    """Messages stay small, and the clock is checked between stretches."""
    n = 20_000
    rng = np.random.default_rng(0)
    unary = 1e6 + rng.random((n, 30))
    for edges in ([(i, i + 1) for i in range(n - 1)], [(0, i) for i in range(1, n)]):
        graph = il.FactorGraph.potts(unary, edges, 0.3)
        s = il.solve(graph, "auto")
        assert s.iterations > 5
        assert s.claimed_energy == pytest.approx(s.energy, rel=1e-14)


def test_a_pass_cut_short_leaves_no_bound() -> None:
    graph = il.FactorGraph.potts(np.eye(3, 2000), [(0, 1), (1, 2)], 1.0)
    run = il.contract.Run(graph, max_iterations=1)
    outcome = solve_forest(graph, run)
    assert not outcome.converged and run.lower_bound == -np.inf
    assert run.best_labels is not None


def test_auto_compiles_no_tree_of_tables_for_a_forest() -> None:
    from inference_lab.algorithms.elimination import bucket_elimination

    def compiled() -> int:
        return len(bucket_elimination.upward.signatures)

    before = compiled()
    il.solve(il.FactorGraph.potts(np.eye(4, 5), [(0, 1), (2, 1)], 0.3), "auto")
    # An earlier test of this process may have compiled it.
    assert compiled() == before
