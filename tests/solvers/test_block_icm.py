"""Blocks are forests, relabelled exactly; the energy never rises, and forests are solved."""

from __future__ import annotations

import itertools
import math

import networkx as nx
import numpy as np
import pytest

import inference_lab as il
from inference_lab.conformance import exhaustive
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.random_graphs import DEGENERATE, FINITE, HARD, random_graph
from inference_lab.graph.terms import DiagonalTerms
from inference_lab.kernels.forests import grow, relabel, soften, start_block
from inference_lab.registry.sources import as_problem
from inference_lab.solvers import block_icm
from inference_lab.solvers.block_icm import BlockICM

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


def least_over(graph: FactorGraph, x: np.ndarray, members: list[int]) -> float:
    """Return the least energy over all labels of some variables, the others fixed."""
    sizes = [range(int(graph.cardinalities[i])) for i in members]
    choices = np.array(list(itertools.product(*sizes)))
    options = np.tile(x, (len(choices), 1))
    options[:, members] = choices
    return float(graph.energy(options).min())


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
            before, expected = graph.energy(x), least_over(graph, x, members)
            y = x.copy()
            changed = relabel(graph.arrays, y, block, order, stamp)
            slack = 1e-9 * exact.scale
            assert graph.energy(y) == expected or abs(graph.energy(y) - expected) <= slack
            assert (x == y)[block.member != stamp].all()
            assert (changed == 0) == (x == y).all()
            if changed == 0:
                assert before == expected or abs(before - expected) <= slack


def test_a_large_tree_equals_message_passing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tree of 3000 variables and ragged labels is solved as loopy-bp solves it; split, too."""
    rng = np.random.default_rng(5)
    n = 3000
    sizes = rng.integers(1, 6, n)
    edges = np.array([(int(rng.integers(max(0, i - 20), i)), i) for i in range(1, n)])
    tables = [rng.normal(size=(sizes[i], sizes[j])) for i, j in edges]
    graph = FactorGraph.from_terms(
        [rng.normal(size=k) for k in sizes], [il.OwnTables(edges, tables)]
    )
    s = il.solve(graph, "block-icm")
    best = il.solve(graph, "loopy-bp")
    assert s.status == best.status == "optimal"
    assert s.iterations == 1  # one block holds all of it
    assert s.energy == pytest.approx(best.energy, rel=1e-12)
    monkeypatch.setattr(block_icm, "_LARGEST", 700)
    split = il.solve(graph, "block-icm")
    assert split.status == "converged"
    assert best.energy - 1e-9 <= split.energy < il.solve(graph, "icm").energy


def test_dense_graphs_have_blocks_of_two() -> None:
    """Of a complete graph two variables fit into a block; a sweep has n / 2 of them."""
    graph = as_problem("ising(size=40, graph=complete)").graph
    s = il.solve(graph, "block-icm(patience=3)")
    assert s.diagnostics["mean_block"] == 2.0
    assert s.iterations == 20 * s.diagnostics["sweeps"]


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


def test_blocks_find_feasible_labellings_that_single_changes_do_not() -> None:
    """A chain of hard must-links between two opposite ends is relabelled as a whole."""
    n = 9
    graph = FactorGraph.potts(
        [[0.0, 1.0]] * 4 + [[0.5, 0.0]] * 5, [(i, i + 1) for i in range(n - 1)] + [(0, n - 1)], INF
    )
    start = [0] * 4 + [1] * 5
    assert il.solve(graph, "icm", initial=start).energy == INF
    s = il.solve(graph, "block-icm", initial=start)
    assert s.energy == pytest.approx(exhaustive(graph).optimum)


def test_infeasible_forests_are_proved_infeasible() -> None:
    """Tables along a path that no three labels satisfy together."""
    rising = np.where(np.arange(2)[:, None] < np.arange(2), 0.0, INF)
    graph = FactorGraph.from_factors([2] * 3, [((0, 1), rising), ((1, 2), rising)])
    assert il.solve(graph, "block-icm").status == "infeasible"
    must = FactorGraph.from_terms(
        [[0.0, INF], [0.0, 0.0], [0.0, INF]], [DiagonalTerms([(0, 1), (1, 2)], INF, 0.0)]
    )
    assert il.solve(must, "block-icm").energy == 0.0


def test_settings_are_checked() -> None:
    """A patience below 1 is refused."""
    with pytest.raises(ValueError, match="patience must be at least 1, got 0"):
        BlockICM(patience=0)
