"""MPLP: its theorems, with and without clusters, and instances with proved optima."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import signed_grid

import inference_lab as il
from inference_lab.contract import Run, Status
from inference_lab.graph.random_graphs import FINITE, random_graph
from inference_lab.registry.sources import as_problem
from inference_lab.solvers.mplp import _Sweeps, shares_of_edge, shares_of_factor

seeds = st.integers(0, 2**32 - 1)


@given(family=st.sampled_from(sorted(FINITE)), seed=seeds)
def test_sweeps_follow_the_rules(family: str, seed: int) -> None:
    """Check edge by edge, then factor by factor, twice."""
    graph = random_graph(family, seed)
    sweeps, run = _Sweeps(graph), Run(graph)
    costs = [graph.unary_of(i).copy() for i in range(graph.n_variables)]
    terms = [factor for factor in graph.factors() if len(factor[0]) > 1]
    parts = [[np.zeros(k) for k in table.shape] for _, table in terms]
    for _ in range(2):
        for (scope, table), before in zip(terms, parts, strict=True):
            rest = [costs[i] - part for i, part in zip(scope, before, strict=True)]
            if table.ndim == 2:
                before[:] = shares_of_edge(table, *rest)
            else:
                before[:] = shares_of_factor(table, rest)
            for i, cost, part in zip(scope, rest, before, strict=True):
                costs[i] = cost + part
        assert sweeps.sweep(False, run)
        messages = np.concatenate([sweeps.dual.from_edge, sweeps.dual.from_factor])
        expected = [part for several in parts for part in several]
        assert messages == pytest.approx(np.concatenate([*expected, []]), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_frustrated_grids_are_solved(seed: int) -> None:
    """With random fields and strong couplings of either sign the plain bound is far off."""
    graph = signed_grid(10, 10, 2, seed, weight=3.0)
    plain = il.solve(graph, "mplp(tighten=none)")
    solution = il.solve(graph, "mplp")
    # Cycles of any length suffice on planar graphs without fields; with fields, nearly always.
    assert solution.gap <= 0.02 * plain.gap


def test_whole_numbers_are_used_without_clusters_too() -> None:
    """The relaxation is a fraction below the optimum, and energies are integers."""
    edges = [(0, 1), (1, 2), (2, 0)]
    unary = [[0.0, 1.0], [0.0, 0.0], [0.0, 0.0]]
    whole = il.FactorGraph.potts(unary, edges, [-2.0, -2.0, -1.0], constant=5.0)
    fraction = il.FactorGraph.potts(unary, edges, [-2.0, -2.0, -1.0 - 1e-3 * math.pi], constant=5.0)
    lp = il.solve(fraction, "lp-relaxation").lower_bound
    assert 0.1 < lp < 0.9
    solution = il.solve(whole, "mplp(tighten=none)")
    assert (solution.status, solution.energy) == (Status.OPTIMAL, 1.0)
    assert il.solve(fraction, "mplp(tighten=none)").status == Status.CONVERGED


@pytest.mark.parametrize("limit", [1, 3, 8, 30])
def test_iterations_are_counted_across_both_phases(limit: int) -> None:
    graph = signed_grid(9, 9, 3, 1, weight=4.0)
    by_budget = il.solve(graph, "mplp", max_iterations=limit, seed=0)
    by_setting = il.solve(graph, f"mplp(max_sweeps={limit})", seed=0)
    assert by_budget.iterations == by_setting.iterations == limit
    assert by_budget.status == by_setting.status == Status.LIMIT
    assert by_budget.lower_bound == by_setting.lower_bound > -math.inf


def test_cycles_halve_the_gap_on_noisy_constraints() -> None:
    """On 150 points with five noisy constraints each the gap is at most half the plain one."""
    spec = "estep(data=iris, constraints=750, noise=0.2, weight=30, centroids=constraints)"
    graph = as_problem(spec).graph
    solution = il.solve(graph, "mplp(max_sweeps=150)", seed=0)
    plain = solution.diagnostics["start_bound"]
    assert solution.gap <= 0.5 * (solution.energy - plain)
