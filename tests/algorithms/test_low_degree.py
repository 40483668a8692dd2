"""Graph without its low-degree variables: the same least energies, and labels that expand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import inference_lab as il
from inference_lab.algorithms.elimination.low_degree import MOST_NEIGHBOURS, eliminate_sparse
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.random_graphs import FAMILIES, random_graph


@pytest.mark.parametrize("family", FAMILIES)
def test_core_has_the_least_energies_over_eliminated_variables(family: str) -> None:
    """Energies of the core are minima over the eliminated variables, and `expand` attains them."""
    for seed in range(4):
        graph = random_graph(family, seed)
        if graph.n_factors:
            continue
        core = eliminate_sparse(graph, lambda: False)
        gone = [one.variable for one in core.eliminated]
        assert sorted([*gone, *core.variables.tolist()]) == list(range(graph.n_variables))
        ranges = [range(k) for k in graph.cardinalities]
        least: dict[tuple[int, ...], float] = {}
        for x in itertools.product(*ranges):
            y = tuple(x[v] for v in core.variables)
            least[y] = min(least.get(y, np.inf), float(graph.energy(x)))
        for y, energy in least.items():
            expanded = core.expand(np.array(y, dtype=np.int64))
            assert expanded[core.variables].tolist() == list(y)
            assert core.graph.energy(y) == pytest.approx(energy, rel=1e-9, abs=1e-9)
            assert graph.energy(expanded) == pytest.approx(energy, rel=1e-9, abs=1e-9)


def test_all_variables_left_have_more_neighbours() -> None:
    """A ring with chords and tails: variables of at most two neighbours are eliminated."""
    ring = [(i, (i + 1) % 8) for i in range(8)]
    chords = [(0, 4), (1, 5), (0, 2), (2, 5), (1, 4)]
    tails = [(0, 8), (8, 9), (3, 10), (11, 12)]
    rng = np.random.default_rng(0)
    edges = ring + chords + tails
    graph = FactorGraph.potts(rng.random((13, 3)), edges, rng.normal(size=len(edges)))
    core = eliminate_sparse(graph, lambda: False)
    assert core.variables.tolist() == [0, 1, 2, 4, 5]
    degrees = np.bincount(core.graph.edges.ravel(), minlength=5)
    assert (degrees > MOST_NEIGHBOURS).all()
    exact = il.solve(core.graph, "brute-force")
    assert exact.energy == pytest.approx(il.solve(graph, "junction-tree").energy)


def test_it_stops_on_request() -> None:
    """Variables eliminated before the stop stay so, and the rest is an equivalent graph."""
    graph = FactorGraph.potts(np.eye(9), [(i, i + 1) for i in range(8)], [0.4] * 8)
    answers = iter([False] * 3 + [True] * 9)
    core = eliminate_sparse(graph, lambda: next(answers))
    assert len(core.eliminated) == 3
    labels = il.solve(core.graph, "junction-tree").labels
    assert graph.energy(core.expand(labels)) == pytest.approx(
        il.solve(graph, "junction-tree").energy
    )
