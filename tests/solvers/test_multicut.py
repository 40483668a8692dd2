"""Partitions: optimal against enumeration, bounds never above, tables of the anneal exact."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from strategies import partitions

import inference_lab as il
from inference_lab.algorithms.multicut.bounds import packing_bound
from inference_lab.algorithms.multicut.branching import PartitionTree
from inference_lab.algorithms.multicut.local_search import (
    anneal,
    annealed,
    first_partition,
    improve,
    start_clusters,
)
from inference_lab.algorithms.multicut.signed_graph import (
    SignedGraph,
    as_signed_graph,
    signed_graph,
    why_no_partition,
)
from inference_lab.contract import Status
from inference_lab.registry.sources import as_problem


def random_signed(n: int, density: float, rng: np.random.Generator) -> SignedGraph:
    edges = np.stack(np.triu_indices(n, 1), axis=1)
    edges = edges[rng.random(len(edges)) < density]
    return signed_graph(n, edges, rng.integers(-4, 5, len(edges)) + 0.5 * rng.integers(0, 2))


@pytest.mark.parametrize("seed", range(12))
def test_search_finds_the_best_partition_and_bounds_hold(seed):
    rng = np.random.default_rng(seed)
    n = 8
    g = random_signed(n, rng.uniform(0.2, 1.0), rng)
    every = partitions(n, n)
    values = np.array([g.value(x) for x in every])
    for limit in (n, 3, 2, 1):
        runs = [first_partition(g, limit), *(annealed(g, limit, i, rng)[0] for i in range(1, 5))]
        assert all(x.min() >= 0 and np.unique(x).size <= limit for x in runs)
        best = values[every.max(axis=1) < limit].max()
        assert max(map(g.value, runs)) == pytest.approx(best)
    assert packing_bound(g) >= values.max() - 1e-9


def look(tree: PartitionTree, best: float) -> None:
    """Take a step of a tree that closes subproblems below `best` and has no time limit."""
    tree.step(best, lambda bound: bound < best - 1e-3, lambda: False)


@pytest.mark.parametrize("limit", [8, 3, 2])
@pytest.mark.parametrize("seed", range(3))
def test_bounds_of_the_tree_hold_and_meet_the_best_partition(seed, limit):
    rng = np.random.default_rng(seed)
    g = random_signed(8, rng.uniform(0.4, 1.0), rng)
    best = max(map(g.value, partitions(8, limit)))
    tree = PartitionTree(g, limit, rng)
    while tree.open:
        look(tree, best)
        assert tree.value >= best - 1e-9
    assert tree.split > 0
    assert tree.value == pytest.approx(best, abs=1e-3)


def test_a_merge_keeps_valid_inequalities_and_the_bound():
    """Rows of a split problem hold for all partitions, and its bound is kept by the state."""
    rng = np.random.default_rng(1)
    g = random_signed(9, 1.0, rng)
    tree = PartitionTree(g, 9, rng)
    root = tree.open[0]
    while not tree.split:
        look(tree, -np.inf)
    together, apart = tree.open
    y = 9 / 8 * (np.arange(9)[:, None] == np.arange(9)) - 1 / 8
    for sub in (together, apart):
        relaxation = sub.started(9, rng)
        assert len(relaxation.rows) > 0
        relaxation.improve_bound(None, 0.0)
        assert -relaxation.raw_bound <= root.bound + 0.05 * abs(root.bound)
        for x in partitions(len(sub.gains), 9):
            assert (relaxation.rows.slacks(y[np.ix_(x, x)]) >= -1e-9).all()


def test_stars_close_the_gap_that_triangles_leave():
    """One vertex likes three others that dislike each other: triangles allow 3/2, stars 1."""
    g = signed_graph(
        4, [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)], [1.0, 1.0, 1.0, -1.0, -1.0, -1.0]
    )
    tree = PartitionTree(g, 4, np.random.default_rng(0))
    while not tree.split and tree.open:
        look(tree, 1.0)
    assert tree.value == pytest.approx(1.0, abs=0.02)


def test_a_tree_proves_a_graph_that_its_first_relaxation_does_not():
    graph = as_problem("clique-partitioning(vertices=30, weights=signs, seed=1)").graph
    first = il.solve(graph, "multicut(splits=0)", seed=0)
    whole = il.solve(graph, "multicut", seed=0)
    assert first.status is Status.CONVERGED
    assert first.lower_bound < whole.energy
    assert first.diagnostics["splits"] == 1
    assert whole.status is Status.OPTIMAL
    assert whole.diagnostics["open"] == 0


@pytest.mark.parametrize(("capacity", "density"), [(30, 0.5), (4, 0.5), (30, 0.1)])
def test_tables_of_an_anneal_stay_true(capacity, density):
    rng = np.random.default_rng(0)
    g = random_signed(30, density, rng)
    c = start_clusters(g, capacity)
    before = g.value(c.x)
    anneal(c, np.full(20, 3.0), rng.random(600), rng.standard_exponential(600))
    assert before + c.value[0] == pytest.approx(g.value(c.x))
    assert before + c.value[1] == pytest.approx(g.value(c.best))
    assert np.bincount(c.x, minlength=capacity).tolist() == c.sizes.tolist()
    assert sorted(c.slots[: c.occupied[0]]) == np.unique(c.x).tolist()
    assert sorted(c.slots) == list(range(capacity))
    assert c.slots[c.place].tolist() == list(range(capacity))
    dense = c.dense.reshape(30, 30)
    for a in np.unique(c.x):
        assert c.table.reshape(capacity, 30)[a] == pytest.approx(dense[c.x == a].sum(axis=0))


@pytest.mark.parametrize("seed", range(5))
def test_no_move_and_no_join_gains_at_the_end(seed):
    rng = np.random.default_rng(seed)
    g = random_signed(25, 0.4, rng)
    x = improve(g, rng.integers(0, 25, 25), 25)
    value = g.value(x)
    clusters = np.unique(x)
    for v, a in itertools.product(range(25), [*clusters, 25]):
        moved = x.copy()
        moved[v] = a
        assert g.value(moved) <= value + 1e-9
    for a, b in itertools.combinations(clusters, 2):
        assert g.value(np.where(x == a, b, x)) <= value + 1e-9


@pytest.mark.parametrize("limit", [9, 2])
def test_solver_against_brute_force(limit):
    """The converged answer is optimal, and its energy minus the bound is what is left open."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        edges = np.stack(np.triu_indices(7, 1), axis=1)
        weights = rng.normal(size=len(edges))
        unary = np.repeat(rng.normal(size=(7, 1)), limit, axis=1)
        g = il.FactorGraph.potts(unary, edges, weights, constant=2.0)
        s = il.solve(g, "multicut", seed=seed)
        best = g.energy(partitions(7, limit)).min()
        assert s.energy == pytest.approx(best)
        assert s.lower_bound <= best + 1e-9
        assert s.status in (Status.OPTIMAL, Status.CONVERGED)


def test_form_is_the_energy():
    rng = np.random.default_rng(3)
    for name in ("clique-partitioning(vertices=6, weights=correlation)", "max-cut(vertices=8)"):
        graph = as_problem(name).graph
        assert why_no_partition(graph) is None
        g, constant = as_signed_graph(graph)
        for _ in range(20):
            x = rng.integers(0, graph.cardinalities)
            assert graph.energy(x) == pytest.approx(constant - g.value(x))


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (il.FactorGraph.potts([[0.0, 1.0]] * 2, [(0, 1)], 1.0), "variable 0 prefers"),
        (il.FactorGraph.potts([[0.0] * 2, [0.0] * 3], [(0, 1)], 1.0), "numbers of labels differ"),
        (
            il.FactorGraph.from_terms(
                [[0.0] * 2] * 2, [il.OwnTables([(0, 1)], [[[0.0, 1.0], [2.0, 0.0]]])]
            ),
            r"edge 0 = \(0, 1\) is not a Potts term",
        ),
        (
            il.FactorGraph.from_terms([[0.0] * 2] * 2, [il.DiagonalTerms([(0, 1)], np.inf)]),
            "hard terms",
        ),
    ],
)
def test_other_graphs_are_refused_with_a_reason(graph, reason):
    with pytest.warns(il.UnsolvedWarning, match=reason):
        assert il.solve(graph, "multicut").status is Status.UNSUPPORTED


def test_temperature_follows_the_time_if_it_is_ahead_of_the_sweeps():
    rng = np.random.default_rng(0)
    g = random_signed(60, 1.0, rng)
    shares = iter(np.linspace(0.0, 1.0, 10))
    labels, complete = annealed(g, 60, 2**30, rng, lambda: next(shares))
    assert not complete
    assert g.value(labels) >= 0.99 * g.value(annealed(g, 60, 1, rng)[0])


def test_time_limit_ends_a_long_series_of_anneals():
    graph = as_problem("clique-partitioning(vertices=150)").graph
    s = il.solve(graph, "multicut(anneals=1000000)", time_limit=0.5, seed=0, clock="cpu")
    assert s.status is Status.LIMIT
    g, constant = as_signed_graph(graph)
    assert s.energy < constant - g.value(first_partition(g, 150))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("3 1 -2", "fit into the rest of the file"),
        ("3 1 -2 4 5", "surplus tokens"),
        ("3 1 nan 4", "weight of the pair"),
        ("0", "an integer >= 1"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, text, message):
    path = tmp_path / "bad.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        il.read(path, format="clique-partitioning")


def test_file_lists_the_upper_triangle(tmp_path: Path):
    path = tmp_path / "three.txt"
    path.write_text("3\n5 -2\n1\n")
    graph = il.read(path, format="clique-partitioning")
    energies = {x: graph.energy(list(x)) for x in [(0, 0, 1), (0, 1, 0), (1, 0, 0), (2, 2, 2)]}
    assert energies == {(0, 0, 1): -5.0, (0, 1, 0): 2.0, (1, 0, 0): -1.0, (2, 2, 2): -4.0}
