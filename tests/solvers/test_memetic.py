"""Mutations keep costs and labels consistent, better parts stay, and the search finds optima."""

from __future__ import annotations

import itertools
from inspect import unwrap

import numpy as np
import pytest
from strategies import rank

import inference_lab as il
from inference_lab.conformance import exhaustive
from inference_lab.contract import Run
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.random_graphs import DEGENERATE, FINITE, HARD, random_graph
from inference_lab.kernels.ejection_chains import (
    Rules,
    begin_kick,
    fill,
    keep_better_parts,
    put,
    start_chains,
)
from inference_lab.kernels.struct import record
from inference_lab.kernels.treewidth_moves import soften, start_block
from inference_lab.registry.sources import as_problem
from inference_lab.solvers.memetic import Memetic, Region, RegionNumbers, _Population, cross, mutate

FEASIBLE = [f for f in (*FINITE, *HARD, *DEGENERATE) if f not in ("infeasible", "empty")]


def not_worse(after: tuple[int, float], before: tuple[int, float]) -> bool:
    """Return whether an energy did not rise, up to rounding."""
    return after <= (before[0], before[1] + 1e-9 * max(1.0, abs(before[1])))


def parts(graph: FactorGraph, changed: list[int]) -> list[list[int]]:
    """Return the connected parts of some variables."""
    of = {i: {i} for i in changed}
    for scope, _ in graph.factors():
        inside = [i for i in scope if i in of]
        for i in inside[1:]:
            if of[i] is not of[inside[0]]:
                merged = of[inside[0]] | of[i]
                for j in merged:
                    of[j] = merged
    return [sorted(part) for part in {id(p): p for p in of.values()}.values()]


def star(leaves: int, labels: int) -> FactorGraph:
    """Return a star whose centre is variable 0."""
    rng = np.random.default_rng(0)
    edges = np.stack([np.zeros(leaves, dtype=int), np.arange(1, leaves + 1)], axis=1)
    return FactorGraph.potts(rng.random((leaves + 1, labels)), edges, rng.random(leaves) - 0.3)


def test_few_chains_of_a_star_come_between_two_looks_at_the_clock() -> None:
    """A chain moves the centre, which takes a step for each leaf."""
    graph = star(leaves=100_000, labels=10)
    chains: list[int] = []
    search: _Population | None = None

    def clock() -> float:
        if search is not None:
            chains.append(int(search.chains.now[0].chain))
        return float(len(chains))

    run = Run(graph, seed=0, time_limit=23.0, clock=clock)
    first = np.zeros(graph.n_variables, dtype=np.int64)
    search = _Population(Memetic(), graph, run, first)
    assert not search.improve(first)
    assert search.region.now[0].mutations > 5
    # A mutation of 30 variables makes 270 if it is not stopped.
    assert np.diff(chains).max() < 120


@pytest.mark.parametrize("family", FEASIBLE)
def test_crossover_keeps_the_best_mixture_of_parts(family: str) -> None:
    """No other choice of parts has a lower energy, and costs of moves are up to date."""
    several = 0
    for seed in range(12):
        graph = random_graph(family, seed)
        rng = np.random.default_rng(seed)
        old = rng.integers(0, graph.cardinalities)
        new = np.where(rng.random(old.size) < 0.5, rng.integers(0, graph.cardinalities), old)
        x, c = old.copy(), start_chains(graph)
        fill(graph.arrays, x, c)
        gained = cross(graph.arrays, x, c, new, 1e-12)
        pieces = parts(graph, np.flatnonzero(old != new).tolist())
        several += len(pieces) > 1
        mixtures = []
        for taken in itertools.product([False, True], repeat=len(pieces)):
            y = old.copy()
            for part in itertools.compress(pieces, taken):
                y[part] = new[part]
            mixtures.append(rank(graph, y))
        assert not_worse(rank(graph, x), min(mixtures))
        assert gained == (rank(graph, x) < (mixtures[0][0], mixtures[0][1] - 1e-9))
        fresh = start_chains(graph)
        fill(graph.arrays, x, fresh)
        assert c.cost == pytest.approx(fresh.cost, abs=1e-9 * max(1.0, np.abs(fresh.cost).max()))
        assert (c.hard == fresh.hard).all()
    # Some graphs are too small for two parts, or factors join all variables.
    assert several > 0 or family in ("one-label", "one-variable", "must-links", "inheritance")


def test_parts_that_two_changes_share_a_factor_with_are_one() -> None:
    """Each of two changes alone is bad, but both together are good, because a factor joins them."""
    table = np.ones((2, 2, 2))
    table[0, 0, 0] = 0.5
    table[1, :, 1] = 0.0
    graph = FactorGraph.from_factors([2, 2, 2], [((0, 1, 2), table)])
    x, c = np.zeros(3, dtype=np.int64), start_chains(graph)
    fill(graph.arrays, x, c)
    unwrap(begin_kick)(c)
    for i in (0, 2):
        unwrap(put)(graph.arrays, x, c, i, 1)
    assert keep_better_parts(graph.arrays, x, c, 1e-12) == 1
    assert x.tolist() == [1, 0, 1]


@pytest.mark.parametrize("family", FEASIBLE)
def test_mutations_never_lose_and_keep_step(family: str) -> None:
    """Energies do not rise, and the labels of blocks and the costs of moves are right."""
    for seed in range(3):
        graph = random_graph(family, seed)
        rng = np.random.default_rng(seed)
        x = rng.integers(0, graph.cardinalities)
        c = start_chains(graph)
        fill(graph.arrays, x, c)
        largest = min(4, graph.n_variables)
        near = np.empty(2 * largest + 10, dtype=np.int64)
        region = Region(near, x.copy(), record(RegionNumbers))
        soft = soften(graph) if graph.has_infinite else graph.arrays
        block, rules = start_block(graph, near.size, 64, 1 << 10), Rules(3, 2, 1e-12)
        mate = rng.integers(0, graph.cardinalities)
        for _ in range(5):
            before = rank(graph, x)
            uniforms = rng.random(120)
            region.now[0].gains = at = 0
            while at >= 0:
                at = mutate(
                    graph.arrays, soft, x, c, block, region, mate, uniforms, at, largest, rules, 9
                )
            after = rank(graph, x)
            assert not_worse(after, before)
            assert (region.now[0].gains > 0) == (after < (before[0], before[1] - 1e-9))
            assert (region.shadow == x).all()
        assert region.now[0].mutations >= 5
        fresh = start_chains(graph)
        fill(graph.arrays, x, fresh)
        assert c.cost == pytest.approx(fresh.cost, abs=1e-9 * max(1.0, np.abs(fresh.cost).max()))
        assert (c.hard == fresh.hard).all()


@pytest.mark.parametrize("family", FEASIBLE)
def test_small_problems_are_solved(family: str) -> None:
    """A few generations find the optimum that enumeration finds."""
    for seed in range(3):
        graph = random_graph(family, seed)
        s = il.solve(graph, "memetic(generations=5)", seed=seed)
        assert s.energy == pytest.approx(exhaustive(graph).optimum, rel=1e-9, abs=1e-9)
        assert s.status == "converged"


def test_better_than_chains_alone_on_a_frustrated_estep() -> None:
    """With many wrong constraints the population finds lower energies than one descent."""
    spec = "estep(data=iris, constraints=400, noise=0.3, weight_factor=10, centroids=constraints)"
    graph = as_problem(spec).graph
    lone = il.solve(graph, "kernighan-lin").energy
    s = il.solve(graph, "memetic(generations=8)")
    assert s.energy < lone
    assert s.diagnostics["mutations"] > 1000


def test_a_graft_has_the_labels_of_both() -> None:
    """A connected region is the mate's, with renamed labels; the rest is the first's."""
    spec = "estep(data=iris, constraints=400, noise=0.3, centroids=constraints)"
    graph = as_problem(spec).graph
    run = Run(graph, seed=0)
    first = np.arange(graph.n_variables) % 3
    search = _Population(Memetic(), graph, run, first)
    second = np.where(np.arange(graph.n_variables) < 60, 1, (first + 1) % 3)
    renamed = np.where(np.arange(graph.n_variables) < 60, 0, first)
    sizes = set()
    for _ in range(20):
        child = search._graft(first, second)
        taken = child != first
        assert (child[taken] == renamed[taken]).all()
        sizes.add(int(taken.sum()))
    assert len(sizes) > 5
    assert 0 < max(sizes) < 60
