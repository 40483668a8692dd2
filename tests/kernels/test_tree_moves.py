"""Blocks are forests, relabelled exactly."""

from __future__ import annotations

import math

import networkx as nx
import numpy as np
import pytest
from strategies import least_over

import inference_lab as il
from inference_lab.conformance import exhaustive
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.random_graphs import DEGENERATE, FINITE, HARD, random_graph
from inference_lab.kernels.tree_moves import grow, relabel, soften, start_block
from inference_lab.registry.sources import as_problem

INF = math.inf
FEASIBLE = [f for f in (*FINITE, *HARD, *DEGENERATE) if f not in ("infeasible", "empty")]


def links(graph: FactorGraph, members: set[int]) -> list[list[int]]:
    """Return the members of each term that has two at least."""
    scopes = [graph.edges[e].tolist() for e in range(graph.n_edges)]
    scopes += [list(graph.higher_order(f)[0]) for f in range(graph.n_factors)]
    inside = [[v for v in scope if v in members] for scope in scopes]
    return [scope for scope in inside if len(scope) > 1]


def is_forest(graph: FactorGraph, members: set[int]) -> bool:
    """Whether terms join the members in pairs, without a cycle, two terms on a pair included."""
    pairs = links(graph, members)
    if any(len(scope) > 2 for scope in pairs):
        return False
    plain = nx.MultiGraph(pairs)
    return plain.number_of_edges() == 0 or nx.is_forest(plain)


@pytest.mark.parametrize("family", FEASIBLE)
def test_blocks_are_forests_that_nothing_fits_into(family: str) -> None:
    """Conditioned on all others a block has no cycle, and with any other variable it has one."""
    for seed in range(5):
        graph = random_graph(family, seed)
        n = graph.n_variables
        block = start_block(graph)
        rng = np.random.default_rng(seed)
        for stamp in range(1, 8):
            size = grow(graph.arrays, block, rng.permutation(n), stamp, 0, n)
            members = set(np.flatnonzero(block.member == stamp).tolist())
            assert len(members) == size > 0
            assert is_forest(graph, members)
            for other in set(range(n)) - members:
                assert not is_forest(graph, members | {other}), (members, other)


def test_blocks_of_a_grid_are_large() -> None:
    """More than half of a grid fits into one forest; a block may be kept smaller."""
    graph = as_problem("potts-grid(height=12, width=12, labels=2)").graph
    block = start_block(graph)
    order = np.random.default_rng(0).permutation(144)
    assert grow(graph.arrays, block, order, 1, 0, 144) > 72
    assert grow(graph.arrays, block, order, 2, 0, 10) == 10
    members = set(np.flatnonzero(block.member == 1).tolist())
    assert is_forest(graph, members)


@pytest.mark.parametrize("family", FEASIBLE)
def test_a_block_gets_its_best_labels(family: str) -> None:
    """Dynamic programming over a block equals the enumeration of its labels."""
    for seed in range(5):
        graph = random_graph(family, seed)
        n = graph.n_variables
        exact = exhaustive(graph)
        rng = np.random.default_rng(seed)
        block = start_block(graph)
        best = np.array(np.unravel_index(int(exact.energies.argmin()), exact.energies.shape))
        for stamp in range(1, 7):
            # Some of the variables at random, so that infinite costs occur before and after.
            x = np.where(rng.random(n) < 0.5, best, rng.integers(0, graph.cardinalities))
            order = rng.permutation(n)
            grow(graph.arrays, block, order, stamp, 0, n)
            members = np.flatnonzero(block.member == stamp).tolist()
            choices = {i: range(graph.cardinalities[i]) for i in members}
            before, expected = graph.energy(x), least_over(graph, x, choices)
            y = x.copy()
            changed = relabel(graph.arrays, y, block, order, stamp)
            slack = 1e-9 * exact.scale
            assert graph.energy(y) == expected or abs(graph.energy(y) - expected) <= slack
            assert (x == y)[block.member != stamp].all()
            assert (changed == 0) == (x == y).all()
            if changed == 0:
                assert before == expected or abs(before - expected) <= slack


def test_a_large_tree_is_solved() -> None:
    """One block holds a tree of 3000 variables and ragged labels."""
    rng = np.random.default_rng(5)
    n = 3000
    sizes = rng.integers(1, 6, n)
    edges = np.array([(int(rng.integers(max(0, i - 20), i)), i) for i in range(1, n)])
    tables = [rng.normal(size=(sizes[i], sizes[j])) for i, j in edges]
    graph = FactorGraph.from_terms(
        [rng.normal(size=k) for k in sizes], [il.OwnTables(edges, tables)]
    )
    block, order, x = start_block(graph), rng.permutation(n), np.zeros(n, dtype=np.int64)
    assert grow(graph.arrays, block, order, 1, 0, n) == n
    assert relabel(graph.arrays, x, block, order, 1) == 1
    assert graph.energy(x) == pytest.approx(il.solve(graph, "loopy-bp").energy, rel=1e-12)


def test_dense_graphs_have_blocks_of_two() -> None:
    """Of a complete graph two variables fit into a block."""
    graph = as_problem("ising(size=40, graph=complete)").graph
    assert grow(graph.arrays, start_block(graph), np.arange(40), 1, 0, 40) == 2


@pytest.mark.parametrize("family", HARD)
def test_soft_energies_keep_the_order(family: str) -> None:
    """With finite costs for forbidden ones every feasible labelling stays below all others."""
    for seed in range(5):
        graph = random_graph(family, seed)
        arrays = soften(graph)
        for name in ("unary", "weights", "pairwise", "tables"):
            assert np.isfinite(getattr(arrays, name)).all()
        soft = FactorGraph(
            cardinalities=graph.cardinalities, unary_ptr=graph.unary_ptr,
            unary_values=arrays.unary, edges=graph.edges, edge_kinds=graph.edge_kinds,
            edge_weights=arrays.weights, edge_offsets=graph.edge_offsets,
            pairwise_values=arrays.pairwise, factor_ptr=graph.factor_ptr,
            factor_scopes=graph.factor_scopes, table_ptr=graph.table_ptr,
            table_values=arrays.tables, constant=graph.constant,
        )  # fmt: skip
        hard, easy = exhaustive(graph).energies, exhaustive(soft).energies
        feasible = np.isfinite(hard)
        assert easy[feasible] == pytest.approx(hard[feasible])
        assert easy[~feasible].min(initial=INF) > easy[feasible].max()
