"""The lazy flipper leaves no connected set of its depth that can be relabelled at a gain."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
from strategies import least_over

import inference_lab as il
from inference_lab.conformance import exhaustive
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.random_graphs import DEGENERATE, FINITE, HARD, random_graph
from inference_lab.registry.sources import as_problem
from inference_lab.solvers.lazy_flipper import flip, start_search

FEASIBLE = [f for f in (*FINITE, *HARD, *DEGENERATE) if f not in ("infeasible", "empty")]


def connected_sets(graph: FactorGraph, size: int) -> Iterator[tuple[int, ...]]:
    """Yield the connected sets of a given size, by testing all sets."""
    n = graph.n_variables
    near = [set() for _ in range(n)]
    for scope, _ in graph.factors():
        for i in scope:
            near[i] |= set(scope)
    for members in itertools.combinations(range(n), size):
        reached = {members[0]}
        for _ in members:
            reached |= {j for i in reached for j in near[i] if j in members}
        if len(reached) == size:
            yield members


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@pytest.mark.parametrize("family", FEASIBLE)
def test_no_connected_set_gains(family: str, depth: int) -> None:
    """Brute force over all connected sets of at most `depth` variables finds no improvement."""
    for seed in range(3):
        graph = random_graph(family, seed)
        s = il.solve(graph, f"lazy-flipper(max_depth={depth})")
        assert s.status in ("converged", "optimal")
        if not s.feasible:
            # The start is then returned, and the end has no better energy.
            assert family in HARD
            continue
        slack = 1e-9 * max(1.0, abs(s.energy))
        for size in range(1, min(depth, graph.n_variables) + 1):
            for members in connected_sets(graph, size):
                choices = {i: range(graph.cardinalities[i]) for i in members}
                assert least_over(graph, s.labels, choices) >= s.energy - slack, members


@pytest.mark.parametrize("family", FEASIBLE)
def test_full_depth_is_exact(family: str) -> None:
    """With sets of all variables the optimum is found from any start."""
    for seed in range(3):
        graph = random_graph(family, seed)
        if graph.log2_states > 10:
            continue
        optimum = exhaustive(graph).optimum
        start = np.random.default_rng(seed).integers(0, graph.cardinalities)
        s = il.solve(graph, f"lazy-flipper(max_depth={graph.n_variables})", initial=start)
        assert s.energy == pytest.approx(optimum, rel=1e-9, abs=1e-9)


def test_every_connected_set_comes_up() -> None:
    """A gain of one set of three, by changing all of it, is found for any such set."""
    edges = [(0, 1), (1, 2), (2, 3), (3, 0), (1, 3), (3, 4), (4, 5)]
    shape = [*((e, np.zeros((2, 2))) for e in edges), ((4, 5, 6), np.zeros((2, 2, 2)))]
    start = np.zeros(7, dtype=np.int64)
    sets = list(connected_sets(FactorGraph.from_factors([2] * 7, shape), 3))
    assert len(sets) == 10
    gain = np.zeros((2, 2, 2))
    gain[1, 1, 1] = -1.0
    # Two of the three cost 0.8, three 0.6 - 1.
    pair = np.array([[0.0, 0.3], [0.3, 0.2]])
    for members in sets:
        pairs = [(p, pair) for p in itertools.combinations(members, 2)]
        graph = FactorGraph.from_factors([2] * 7, [*shape, (members, gain), *pairs])
        assert il.solve(graph, "lazy-flipper(max_depth=2)", initial=start).energy == 0.0
        s = il.solve(graph, "lazy-flipper(max_depth=3)", initial=start)
        assert np.flatnonzero(s.labels).tolist() == list(members)


@pytest.mark.parametrize("family", ["mixed", "higher-order", "estep", "cannot-links", "ragged"])
def test_stopping_anywhere_changes_nothing(family: str) -> None:
    """A search that is interrupted after every step finds the same labels as one that is not."""
    for seed in range(4):
        graph = random_graph(family, seed)
        results = []
        for work in (0, 3, 1_000_000):
            x = np.zeros(graph.n_variables, dtype=np.int64)
            search = start_search(graph, 3)
            calls = 0
            while search.pending.any() or search.now[0].member >= 0:
                flip(graph.arrays, x, search, 1 << 60, work)
                calls += 1
            results.append((x.tolist(), int(search.now[0].changes)))
            assert (work > 100) == (calls == 1)
        assert results[0] == results[1] == results[2]


def test_the_energy_falls_with_the_depth() -> None:
    """Deeper searches end lower on a frustrated grid, and all of them below ICM."""
    graph = as_problem("potts-grid(height=15, width=15, labels=3, frustration=0.5)").graph
    energies = [il.solve(graph, "icm").energy] + [
        il.solve(graph, f"lazy-flipper(max_depth={depth})").energy for depth in (1, 2, 3, 4)
    ]
    assert energies[2] < min(energies[:2]) - 1.0
    assert energies[4] < energies[3] < energies[2]


def test_iteration_counts_n_visits() -> None:
    """An iteration limit of one permits n visits, which is a sweep of ICM."""
    graph = as_problem("potts-grid(height=15, width=15, labels=3, frustration=0.5)").graph
    s = il.solve(graph, "lazy-flipper", max_iterations=1)
    assert s.iterations == 1
    assert s.status == "limit"
    assert math.isfinite(s.energy)
    assert il.solve(graph, "lazy-flipper").energy < s.energy
