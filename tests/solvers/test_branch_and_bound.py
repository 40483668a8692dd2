"""Branch and bound: an exact search, in parts of any size and with little memory."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import inference_lab as il
from inference_lab.algorithms.search import state
from inference_lab.solvers import branch_and_bound
from inference_lab.solvers.branch_and_bound import BranchAndBound


def frustrated(seed, n=9, k=3, integral=False):
    """Draw random terms between all pairs and among some triples: no root bound is tight."""
    rng = np.random.default_rng(seed)
    factors = [((i,), rng.random(k)) for i in range(n)]
    factors += [(pair, 3 * rng.random((k, k))) for pair in itertools.combinations(range(n), 2)]
    for _ in range(n // 2):
        table = 3 * rng.random((k, k, k))
        table[rng.random(table.shape) < 0.1] = np.inf
        factors.append((tuple(rng.choice(n, 3, replace=False).tolist()), table))
    if integral:
        factors = [(scope, np.floor(4 * table)) for scope, table in factors]
    return il.FactorGraph.from_factors([k] * n, factors)


def best_energy(graph):
    return float(il.solve(graph, "brute-force").energy)


@pytest.mark.parametrize("search", ["hybrid", "depth-first"])
@pytest.mark.parametrize("integral", [False, True])
def test_the_search_is_exact(search, integral):
    for seed in range(3):
        graph = frustrated(seed, integral=integral)
        s = il.solve(graph, BranchAndBound(search=search))
        assert s.status == "optimal"
        assert s.energy == pytest.approx(best_energy(graph), rel=1e-12)
        assert s.diagnostics["nodes"] > 5
        assert s.diagnostics["root_bound"] < s.energy


def test_bounds_rise_during_the_search_and_hold():
    graph = frustrated(1, n=14)
    optimum = best_energy(graph)
    s = il.solve(graph, "branch-and-bound")
    bounds = [point.lower_bound for point in s.trace]
    assert len({b for b in bounds if s.diagnostics["root_bound"] < b < optimum - 1e-6}) > 1
    assert max(bounds) <= optimum


@pytest.mark.parametrize("search", ["hybrid", "depth-first"])
def test_a_search_that_takes_long_begins_anew_with_a_larger_bound(monkeypatch, search):
    graph = frustrated(0, n=10, k=3)
    method = BranchAndBound(search=search)
    whole = il.solve(graph, method)
    monkeypatch.setattr(branch_and_bound, "_CHUNK", 5000)
    monkeypatch.setattr(branch_and_bound, "_FIRST_PARTS", 3)
    s = il.solve(graph, method)
    assert s.iterations > 3
    assert s.diagnostics["root_bound"] > whole.diagnostics["root_bound"] + 0.1
    assert (s.energy, s.status) == (whole.energy, "optimal")
    assert s.energy == pytest.approx(best_energy(graph), rel=1e-12)


def test_bounds_raised_at_the_root_cost_no_proof(monkeypatch):
    # Little is searched before, and bounds are raised step by step.
    monkeypatch.setattr(branch_and_bound, "_CHUNK", 500)
    monkeypatch.setattr(branch_and_bound, "_FIRST_PARTS", 1)
    raised = 0
    for seed in range(40):
        graph = frustrated(seed, n=7, k=2 + seed % 2, integral=seed % 3 == 0)
        monkeypatch.setattr(branch_and_bound, "_ROOT_PARTS", 0)
        before = il.solve(graph, "branch-and-bound")
        monkeypatch.setattr(branch_and_bound, "_ROOT_PARTS", 1000)
        s = il.solve(graph, "branch-and-bound")
        best = il.solve(graph, "brute-force")
        assert (s.status, before.status) == (best.status, best.status)
        assert s.energy == pytest.approx(best.energy, rel=1e-12)
        raised += s.diagnostics["root_bound"] > before.diagnostics["root_bound"] + 1e-6
    assert raised > 20


def test_a_full_pool_and_a_full_trail_cost_no_proof(monkeypatch):
    monkeypatch.setattr(state, "_POOL", 8)
    monkeypatch.setattr(state, "_TRAIL", 1)
    for seed in range(2):
        graph = frustrated(seed)
        s = il.solve(graph, "branch-and-bound")
        assert s.status == "optimal"
        assert s.energy == pytest.approx(best_energy(graph), rel=1e-12)


@pytest.mark.parametrize(
    ("holes", "alike", "searches"), [(3, False, False), (6, False, True), (6, True, False)]
)
def test_more_pigeons_than_holes_are_infeasible(holes, alike, searches):
    pairs = list(itertools.combinations(range(holes + 1), 2))
    unequal = np.diag([np.inf] * holes)
    price = np.zeros(holes) if alike else np.arange(holes, dtype=np.float64)
    graph = il.FactorGraph.pairwise(np.tile(price, (holes + 1, 1)), pairs, unequal)
    s = il.solve(graph, "branch-and-bound")
    assert s.status == "infeasible"
    # Elimination detects few pigeons; with equal holes the first pigeons are placed in order.
    assert (s.diagnostics.get("nodes", 0) > 1) == searches
    fewer = [pair for pair in pairs if max(pair) < holes]
    fits = il.FactorGraph.pairwise(np.zeros((holes, holes)), fewer, unequal)
    assert il.solve(fits, "branch-and-bound").energy == 0.0


def test_cycles_and_decided_variables_are_gone_before_the_search():
    rng = np.random.default_rng(0)
    n = 12
    ring = [((i, (i + 1) % n), rng.random((4, 4))) for i in range(n)]
    follow = np.full((4, 4), np.inf)
    follow[np.arange(4), [2, 0, 3, 1]] = rng.random(4)
    # Each follower has terms with four others, and its leader determines it.
    for f in range(n, n + 4):
        ring += [((f - n, f), follow)]
        ring += [((f, g), rng.random((4, 4))) for g in range(n, f)]
    graph = il.FactorGraph.from_factors([4] * (n + 4), ring)
    s = il.solve(graph, "branch-and-bound")
    assert s.energy == pytest.approx(il.solve(graph, "junction-tree").energy, rel=1e-12)
    assert (s.status, s.diagnostics["variables"]) == ("optimal", 0)


def test_refusal_names_the_needed_memory():
    graph = il.FactorGraph.potts(np.zeros((3, 2000)), [(0, 1), (1, 2)], 1.0)
    why = BranchAndBound(max_bytes=2**24).supports(graph, 0.0)
    assert "dense tables of 8000000 entries" in why
    assert f"max_bytes is {2**24}" in why
    assert BranchAndBound().supports(graph, 0.0) is None
