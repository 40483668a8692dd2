"""Solvers that support label costs, against the enumeration of all labellings."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest

import inference_lab as il
from inference_lab.conformance import Exhaustive, exhaustive
from inference_lab.contract import Status
from inference_lab.graph.random_graphs import LABEL_COSTS, random_graph
from inference_lab.kernels.descent import count_users, descend

CASES = [(family, seed) for family in LABEL_COSTS for seed in range(5)]


@functools.cache
def enumerated(family: str, seed: int) -> tuple[il.FactorGraph, Exhaustive]:
    graph = random_graph(family, seed)
    return graph, exhaustive(graph)


def metric(seed: int) -> il.FactorGraph:
    """Draw Potts terms of positive weights with label costs and non-negative unaries."""
    rng = np.random.default_rng(seed)
    n, k = 6, 3
    edges = [pair for pair in itertools.combinations(range(n), 2) if rng.random() < 0.4]
    graph = il.FactorGraph.potts(rng.random((n, k)) * 3, edges, rng.random(len(edges)))
    return graph.with_label_costs(rng.random(k) * 2, sets=[([0, 2], 1.0), ([1, 2], 0.5)])


@pytest.mark.parametrize("seed", range(15))
def test_no_expansion_is_better_and_the_bound_of_delong_holds(seed):
    graph = metric(seed)
    start = np.random.default_rng(seed).integers(0, 3, size=6)
    s = il.solve(graph, "alpha-expansion", seed=seed, initial=start)
    assert s.diagnostics["nonsubmodular_share"] == 0
    for label in range(3):
        for taken in itertools.product((False, True), repeat=6):
            assert graph.energy(np.where(taken, label, s.labels)) >= s.energy - 1e-9
    costs = sum(cost * len(labels) for labels, cost in graph.label_costs.sets())
    assert s.energy <= 2 * exhaustive(graph).optimum + costs + 1e-9


def test_expansion_closes_a_label_that_single_moves_cannot():
    """Two groups gain less from a centre each than a second centre costs."""
    unary = np.array([[0.0, 1.0], [0.0, 1.0], [0.6, 0.0], [0.6, 0.0]])
    graph = il.FactorGraph.potts(unary, np.empty((0, 2), int), []).with_label_costs(1.5)
    assert il.solve(graph, "icm").energy == 3.0
    best = il.solve(graph, "alpha-expansion")
    assert best.energy == pytest.approx(2.7) and best.status == Status.OPTIMAL


def test_facility_location_is_solved_by_its_strong_relaxation():
    """Opening costs on a line: the relaxation with a row a variable is integral."""
    points = np.array([0.0, 0.1, 0.2, 5.0, 5.1, 9.0])[:, None]
    graph = il.FactorGraph.potts((points - points.T) ** 2, np.empty((0, 2), int), [])
    s = il.solve(graph.with_label_costs(1.0), "lp-relaxation")
    assert s.status == Status.OPTIMAL and len(set(s.labels.tolist())) == 3


def test_descent_keeps_count_and_ends_in_a_local_minimum():
    for family, seed in CASES:
        graph, exact = enumerated(family, seed)
        x = np.random.default_rng(seed).integers(0, graph.cardinalities)
        before = graph.energy(x)
        descend(graph, x, np.arange(x.size), 100)
        after = graph.energy(x)
        assert after <= before + 1e-9 * exact.scale
        sets = graph.label_costs.sets()
        expected = [int(np.isin(x, labels).sum()) for labels, _ in sets]
        assert count_users(graph.label_costs, x).tolist() == expected
