"""Clusters above the pairs: valid bounds that never fall, and a complete search."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import signed_grid

import inference_lab as il
from inference_lab.algorithms.dual.clusters import DualClusters
from inference_lab.algorithms.dual.frustration import find_cycles, make_projection
from inference_lab.algorithms.dual.reparametrisation import start_dual
from inference_lab.algorithms.dual.tightening import tighten
from inference_lab.conformance import exhaustive
from inference_lab.contract import Run
from inference_lab.graph.arrays import TABLE, Int32Array
from inference_lab.graph.random_graphs import FAMILIES, random_graph

seeds = st.integers(0, 2**32 - 1)
families = st.sampled_from(sorted(FAMILIES))


def tolerance(graph: il.FactorGraph) -> float:
    return 1e-9 * exhaustive(graph).scale


def start(graph: il.FactorGraph) -> DualClusters:
    return DualClusters(graph, start_dual(graph))


def a_run(graph: il.FactorGraph, **limits: float) -> Run:
    return Run(graph, seed=0, **limits)  # type: ignore[arg-type]


def odd_cycle(length: int, labels: int = 2) -> il.FactorGraph:
    """Return a cycle of repulsive pairs: with two labels, one pair is violated."""
    edges = [(i, (i + 1) % length) for i in range(length)]
    return il.FactorGraph.potts(np.zeros((length, labels)), edges, -1.0, constant=float(length))


def remaining_energy(state: DualClusters, x: tuple[int, ...]) -> float:
    """Add up the remainders of all terms and clusters, in plain Python."""
    g, dual, clusters = state.g, state.dual, state.arrays
    total = state.graph.constant + sum(dual.unary[g.unary_ptr[i] + a] for i, a in enumerate(x))
    for e, (i, j) in enumerate(g.edges.tolist()):
        if g.kinds[e] == TABLE:
            value = g.weights[e] * g.pairwise[g.offsets[e] + x[i] * g.cardinalities[j] + x[j]]
        elif x[i] == x[j]:
            value = g.pairwise[g.offsets[e] + x[i] * g.kinds[e]]
        else:
            value = g.weights[e]
        total += value - dual.from_edge[dual.half_ptr[2 * e] + x[i]]
        total -= dual.from_edge[dual.half_ptr[2 * e + 1] + x[j]]
    for f in range(g.factor_ptr.size - 1):
        scope = g.scopes[g.factor_ptr[f] : g.factor_ptr[f + 1]]
        shape = tuple(g.cardinalities[scope])
        total += g.tables[g.table_ptr[f] + np.ravel_multi_index([x[v] for v in scope], shape)]
        for s, v in enumerate(scope, start=int(g.factor_ptr[f])):
            total -= dual.from_factor[dual.slot_ptr[s] + x[v]]
    for c, scope in enumerate(clusters.variables):
        at = int(clusters.part_ptr[c])
        for i, j in itertools.combinations(scope.tolist(), 2):
            total -= clusters.parts[at + x[i] * g.cardinalities[j] + x[j]]
            at += int(g.cardinalities[i] * g.cardinalities[j])
    return float(total)


def random_clusters(state: DualClusters, rng: np.random.Generator) -> Int32Array:
    n = state.graph.n_variables
    drawn = [np.sort(rng.choice(n, 3, replace=False)) for _ in range(3)] if n >= 3 else []
    return state.new_ones(np.array(drawn, dtype=np.int32).reshape(-1, 3))


# ------------------------------------------------------------------ clusters


@given(family=families, seed=seeds)
def test_clusters_change_no_energy_and_the_bound_rises_to_at_most_the_optimum(
    family: str, seed: int
) -> None:
    """Any clusters, between any sweeps, on all families, infinite costs included."""
    graph = random_graph(family, seed)
    exact, slack, run = exhaustive(graph), tolerance(graph), a_run(graph)
    rng = np.random.default_rng(seed)
    state = start(graph)
    before = state.bound()
    for turn in range(4):
        if turn:
            state.add(random_clusters(state, rng))
            assert state.bound() == pytest.approx(before, abs=slack)
        for backwards in (False, True):
            assert state.sweep(run, backwards)
            bound = state.bound()
            assert before - slack <= bound <= exact.optimum + slack
            before = bound
        if turn % 2:
            state.redistribute_costs()
            assert state.bound() >= before - slack
            before = state.bound()
    if before == math.inf:
        return
    for x in itertools.islice(itertools.product(*map(range, graph.cardinalities)), 0, None, 11):
        if math.isfinite(exact.energies[x]):
            assert remaining_energy(state, x) == pytest.approx(exact.energies[x], abs=slack)


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("backwards", [False, True])
def test_one_cluster_over_all_variables_is_exact(hard: bool, backwards: bool) -> None:
    """Once the unaries are in the pairs, the update includes the whole energy."""
    rng = np.random.default_rng(3)
    for _ in range(5):
        edges = np.array(list(itertools.combinations(range(3), 2)))
        counts = rng.integers(2, 4, size=3)
        tables = [rng.normal(size=(counts[i], counts[j])) for i, j in edges]
        if hard:
            tables = [np.where(rng.random(t.shape) < 0.2, np.inf, t) for t in tables]
            for (i, j), table in zip(edges, tables, strict=True):
                table[0, 0] = float(i + j)
        unary = [rng.normal(size=k) for k in counts]
        graph = il.FactorGraph.from_terms(unary, [il.OwnTables(edges, tables)])
        state = start(graph)
        plain = state.bound()
        state.redistribute_costs()
        state.add(np.arange(3, dtype=np.int32)[None])
        assert state.sweep(a_run(graph), backwards)
        assert plain < exhaustive(graph).optimum
        assert state.bound() == pytest.approx(exhaustive(graph).optimum, abs=1e-9)
        for way in (False, True):
            assert exhaustive(graph).energies[tuple(state.decode(way))] == pytest.approx(
                exhaustive(graph).optimum, abs=1e-9
            )


def test_factors_stay_factors() -> None:
    table = np.random.default_rng(0).normal(size=(2, 2, 2))
    graph = il.FactorGraph.from_factors([2] * 3, [(range(3), table)])
    state = start(graph)
    assert state.count == 0
    assert state.bound() == pytest.approx(table.min())
    assert graph.energy(state.decode(False)) == pytest.approx(table.min())


def test_new_ones_leaves_out_repeats_and_known_clusters() -> None:
    graph = odd_cycle(6)
    state = start(graph)
    state.add(np.array([[0, 1, 2], [1, 3, 5]], dtype=np.int32))
    rows = np.array([[2, 3, 4], [1, 3, 5], [0, 1, 3], [2, 3, 4], [0, 1, 2]], dtype=np.int32)
    assert state.new_ones(rows).tolist() == [[2, 3, 4], [0, 1, 3]]
    assert state.new_ones(rows[:0]).shape == (0, 3)


# ------------------------------------------------------------------ where to add clusters


@given(family=families, seed=seeds)
def test_projection_follows_its_definition(family: str, seed: int) -> None:
    """Strength: minimum over labels on different sides minus minimum over labels on equal sides."""
    graph = random_graph(family, seed)
    state = start(graph)
    state.sweep(a_run(graph), False)
    if state.bound() == math.inf:
        return
    projection = make_projection(state, 1e-9, a_run(graph))
    expected = {}
    g, dual = state.g, state.dual
    for e, (i, j) in enumerate(g.edges.tolist()):
        ki, kj = int(g.cardinalities[i]), int(g.cardinalities[j])
        table = np.empty((ki, kj))
        for a, b in itertools.product(range(ki), range(kj)):
            if g.kinds[e] == TABLE:
                value = g.weights[e] * g.pairwise[g.offsets[e] + a * kj + b]
            else:
                value = g.pairwise[g.offsets[e] + a * g.kinds[e]] if a == b else g.weights[e]
            table[a, b] = value - dual.from_edge[dual.half_ptr[2 * e] + a]
            table[a, b] -= dual.from_edge[dual.half_ptr[2 * e + 1] + b]
            if np.isinf(dual.unary[[g.unary_ptr[i] + a, g.unary_ptr[j] + b]]).any():
                table[a, b] = np.inf
        if min(ki, kj) == 1:
            continue
        for a, b in itertools.product(range(ki if ki > 2 else 1), range(kj if kj > 2 else 1)):
            equal = (np.arange(ki) == a)[:, None] == (np.arange(kj) == b)
            apart, together = table[~equal].min(), table[equal].min()
            if math.isfinite(apart) or math.isfinite(together):
                strength = float(apart - together)
                if abs(strength) >= 1e-9:
                    expected[int(g.unary_ptr[i]) + a, int(g.unary_ptr[j]) + b] = strength
    if projection is None:
        assert not expected
        return
    largest = max((abs(s) for s in expected.values() if math.isfinite(s)), default=1.0)
    strengths = {}
    for u in range(projection.ptr.size - 1):
        sizes = projection.size[projection.ptr[u] : projection.ptr[u + 1]]
        assert (np.diff(sizes) <= 0).all()
        for p in range(projection.ptr[u], projection.ptr[u + 1]):
            sign = -1.0 if projection.differ[p] else 1.0
            strengths[u, int(projection.to[p])] = sign * float(projection.size[p])
    assert len(strengths) == 2 * len(expected)
    for (u, v), strength in expected.items():
        limited = math.copysign(min(abs(strength), 4.0 * max(largest, 1.0)), strength)
        for pair in ((u, v), (v, u)):
            assert strengths[pair] == pytest.approx(limited, rel=1e-9, abs=1e-9)


def test_weak_links_are_in_no_cycle() -> None:
    graph = il.FactorGraph.potts(np.zeros((3, 2)), [(0, 1), (1, 2), (0, 2)], [-1.0, -1.0, -0.01])
    state, run = start(graph), a_run(graph)
    assert len(find_cycles(state, 6, 100, 0.02, run)) == 0
    assert find_cycles(state, 6, 100, 0.005, run).tolist() == [[0, 1, 2]]


# ------------------------------------------------------------------ the loop


@pytest.mark.parametrize("length", [3, 5, 7, 9, 11])
def test_odd_cycles_become_exact(length: int) -> None:
    """The local polytope gives 0."""
    graph = odd_cycle(length)
    run = a_run(graph)
    done = tighten(graph, run, start_dual(graph))
    assert done.start_bound == pytest.approx(0.0, abs=1e-9)
    assert run.lower_bound == pytest.approx(1.0)
    assert done.stopped_by == "proved"
    assert done.clusters >= length - 2
    assert length == 3 or done.pairs >= length - 3


@pytest.mark.parametrize(
    ("settings_of_it", "reason"),
    [
        ({"max_rounds": 1, "per_round": 3}, "rounds"),
        ({"max_sweeps": 7}, "sweeps"),
        ({}, "proved"),
    ],
)
def test_limits_end_it(settings_of_it: dict[str, float], reason: str) -> None:
    graph = signed_grid(12, 12, 2, 0, weight=5.0)
    run = a_run(graph)
    done = tighten(graph, run, start_dual(graph), **settings_of_it)  # type: ignore[arg-type]
    assert done.stopped_by == reason
    assert run.best_labels is not None
    if reason == "rounds":
        assert (done.rounds, done.clusters) == (1, 3)
    if reason == "sweeps":
        assert done.sweeps == 7
    assert bool(done.limit) == (reason != "proved")


def test_memory_limit_is_kept() -> None:
    graph = signed_grid(12, 12, 2, 0, weight=5.0)
    state = start(graph)
    done = tighten(graph, a_run(graph), state.dual, max_memory=30_000.0)
    per_triplet = int(state.cost_of(np.zeros((1, 3), dtype=np.int32))[1][0])
    assert done.stopped_by == "memory"
    assert 50 <= done.clusters <= 30_000 // (3 * 4 * 8)
    assert per_triplet * 10 < 30_000


def test_the_clock_is_looked_at_and_a_bound_comes_out() -> None:
    graph = signed_grid(60, 60, 3, 1, weight=5.0)
    tighten(graph, a_run(graph), start_dual(graph), max_sweeps=12)
    run = a_run(graph, time_limit=0.3)
    done = tighten(graph, run, start_dual(graph))
    assert done.stopped_by == "budget"
    assert run.seconds < 1.5
    assert math.isfinite(run.lower_bound) and math.isfinite(run.best_energy)


def test_whole_numbers_raise_the_bound_to_the_next() -> None:
    """Five repulsive variables: the bound of triplets lies between two energies."""
    edges = [*itertools.combinations(range(5), 2)]
    graph = il.FactorGraph.potts(np.zeros((5, 2)), edges, -1.0, constant=10.5)
    optimum = exhaustive(graph).optimum
    run = a_run(graph)
    done = tighten(graph, run, start_dual(graph))
    assert done.stopped_by == "proved"
    assert run.lower_bound == optimum == 4.5
    # Each of ten triangles costs at least 1, and each pair is in three of them: 10 / 3, of which
    # coordinate ascent attains most.
    odd = il.FactorGraph.potts(np.zeros((5, 2)), edges, -np.pi, constant=10 * np.pi)
    run = a_run(odd)
    tighten(odd, run, start_dual(odd))
    assert 3.2 * np.pi < run.lower_bound <= 10 / 3 * np.pi + 1e-9
