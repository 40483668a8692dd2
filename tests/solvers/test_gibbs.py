"""Gibbs sampling keeps the distribution invariant, and its standard errors are right."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import inference_lab as il
from inference_lab.conformance import exhaustive
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.random_graphs import FINITE, HARD, random_graph
from inference_lab.solvers.gibbs import (
    ChainAverages,
    GibbsWorkspace,
    draw_independent,
    gibbs_visits,
    start_draws,
)

INF = math.inf


def visit(
    graph: FactorGraph, x: np.ndarray, i: int, uniform: float, temperature: float
) -> np.ndarray:
    """Visit one variable, in place; return its conditional."""
    width = int(graph.cardinalities.max())
    work = GibbsWorkspace(np.empty(width), np.empty(width, dtype=np.int64), np.empty(width))
    draws = start_draws(graph)
    gibbs_visits(graph.arrays, x, np.array([i]), np.array([uniform]), temperature, draws, work)
    sums = draws.sums
    outside = np.ones(sums.size, dtype=bool)
    outside[graph.unary_ptr[i] : graph.unary_ptr[i + 1]] = False
    assert not sums[outside].any()
    return sums[graph.unary_ptr[i] : graph.unary_ptr[i + 1]]


@pytest.mark.parametrize("family", [*FINITE, *HARD])
def test_each_step_leaves_the_distribution_as_it_is(family: str) -> None:
    """``sum_x p(x) P_i(x, y) = p(y)`` for the transitions ``P_i`` of every variable, exactly."""
    seed = next(s for s in range(100) if random_graph(family, s).log2_states < 9.5)
    graph = random_graph(family, seed)
    temperature = 0.7
    energies = exhaustive(graph).energies
    p = np.exp(-(energies - energies.min()) / temperature)
    p /= p.sum()
    for i in range(graph.n_variables):
        after = np.zeros_like(p)
        for x in np.argwhere(p > 0.0):
            conditional = visit(graph, x.copy(), i, 0.5, temperature)
            for a, weight in enumerate(conditional):
                y = x.copy()
                y[i] = a
                after[tuple(y)] += p[tuple(x)] * weight
        assert after == pytest.approx(p, abs=1e-12)


@pytest.mark.parametrize("family", ["ragged", "hard-tables", "higher-order"])
def test_labels_are_drawn_with_conditional_frequencies(family: str) -> None:
    """Evenly spaced uniform numbers give every label its share of them."""
    graph = random_graph(family, 4)
    x = exhaustive(graph).energies
    start = np.array(np.unravel_index(int(x.argmin()), x.shape))
    for i in range(graph.n_variables):
        drawn = np.zeros(int(graph.cardinalities[i]))
        for uniform in (np.arange(500) + 0.5) / 500:
            y = start.copy()
            conditional = visit(graph, y, i, uniform, 1.3)
            drawn[y[i]] += 1 / 500
            y[i] = start[i]
            assert (y == start).all()
        assert drawn == pytest.approx(conditional, abs=1 / 500)
        assert (drawn[conditional == 0.0] == 0.0).all()


def test_standard_errors_are_of_the_right_size() -> None:
    """Deviations over many seeds, in standard errors, have a spread of about 1."""
    graph = random_graph("grid", 3)
    exact = exhaustive(graph).marginals(1.0)
    deviations = []
    for seed in range(80):
        s = il.solve(graph, "gibbs(sweeps=400, chains=2)", seed=seed, temperature=1.0)
        deviations.append(
            [
                (row[0] - expected[0]) / error[0]
                for row, expected, error in zip(
                    s.marginals, exact, s.diagnostics["stderr"], strict=True
                )
            ]
        )
    spread = np.sqrt(np.mean(np.square(deviations)))
    # The larger of two estimates is taken, so errors are overstated rather than understated.
    assert 0.6 < spread < 1.2
    assert abs(np.mean(deviations)) < 0.25


def test_chains_in_different_modes_do_not_report_convergence() -> None:
    """Under strong attraction each chain stays at its start, which the errors reveal."""
    graph = FactorGraph.potts(np.zeros((6, 2)), [(i, i + 1) for i in range(5)], 60.0)
    s = il.solve(graph, "gibbs(chains=8)", temperature=1.0, seed=1)
    assert s.status == "limit"
    assert s.diagnostics["max_rhat"] > 2.0
    assert s.diagnostics["ergodic"]
    for row, error in zip(s.marginals, s.diagnostics["stderr"], strict=True):
        assert 0.0 < row[0] < 1.0
        assert abs(row[0] - 0.5) <= 4.5 * error[0]


def test_hard_links_are_reported_as_non_ergodic() -> None:
    """Two variables that must be equal never change; the diagnostics report the possibility."""
    graph = FactorGraph.potts([[0.0, 0.0], [0.0, 0.0]], [(0, 1)], INF)
    s = il.solve(graph, "gibbs(chains=1)", temperature=1.0, initial=[1, 1])
    assert not s.diagnostics["ergodic"]
    assert s.marginals[:, 1].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("family", HARD)
def test_chains_reach_feasible_labellings(family: str) -> None:
    """Chains that start anywhere end up with feasible samples, and stay there."""
    feasible = 0
    for seed in range(10):
        graph = random_graph(family, seed)
        worst = np.argwhere(np.isinf(exhaustive(graph).energies))
        s = il.solve(graph, "gibbs(sweeps=50)", temperature=1.0, initial=worst[0], seed=seed)
        feasible += s.feasible
        assert s.feasible == (s.diagnostics["feasible_chains"] > 0)
    # If a variable follows from others, single changes do not reach all states.
    assert feasible >= (1 if family == "inheritance" else 9)


def test_short_run_averages_its_draws() -> None:
    """Within burn-in the draws so far are averaged, and diagnostics report the missing burn-in."""
    graph = random_graph("grid", 3)
    s = il.solve(graph, "gibbs", temperature=1.0, max_iterations=40)
    assert s.iterations == 40
    assert s.status == "limit"
    assert not s.diagnostics["burned_in"]
    assert s.diagnostics["draws"] == 4 * 40
    assert s.marginals.sum(axis=1) == pytest.approx(1.0)
    assert il.solve(graph, "gibbs", temperature=1.0).diagnostics["burned_in"]


def test_independent_draws_follow_the_unaries() -> None:
    """Frequencies follow from the unaries; forbidden labels never occur.

    One variable has one label, and the weights of another differ by more than rounding resolves.
    """
    unary: Any = [[0.0, 1.0, INF], [3.0], [INF, 0.5, 0.2, 2.0], [0.0, 800.0]]
    graph = FactorGraph.from_terms(unary)
    labels = draw_independent(graph, 2.0, np.random.default_rng(0), 20_000)
    for i, row in enumerate(exhaustive(graph).marginals(2.0)):
        frequency = np.bincount(labels[:, i], minlength=row.size) / len(labels)
        assert frequency == pytest.approx(row, abs=0.02)
        assert (frequency[row == 0.0] == 0.0).all()


# ---------------------------------------------------------------------- averages


def test_running_averages_equal_averages_of_stored_draws() -> None:
    """Means, batch means and split R-hat from running sums equal those from the draws."""
    rng = np.random.default_rng(1)
    chains, draws = 3, 100
    # The chains have different means, so that their halves differ from their batches.
    series = rng.beta(2.0, 3.0, size=(chains, draws, 1)) + 0.03 * np.arange(3)[:, None, None]
    series = np.minimum(series, 1.0)
    series = np.concatenate([series, 1.0 - series], axis=2)
    averages = ChainAverages(2, chains, draws)
    assert averages.skipped == 0
    for t in range(draws):
        for chain in range(chains):
            averages.add(chain, series[chain, t])
    assert averages.mean(np.array([2])) == pytest.approx(series.mean(axis=(0, 1)))
    batches = series.reshape(chains * 10, 10, 2).mean(axis=1)
    halves = series.reshape(chains * 2, 50, 2).mean(axis=1)
    by_batches = batches.var(axis=0, ddof=1) / len(batches)
    by_halves = halves.var(axis=0, ddof=1) / len(halves)
    stderr, rhat = averages.errors()
    assert stderr == pytest.approx(np.sqrt(np.maximum(by_batches, by_halves)))
    within = (halves * (1.0 - halves)).mean(axis=0)
    assert rhat == pytest.approx(np.sqrt(1.0 + halves.var(axis=0, ddof=1) / within))


def test_averages_of_equal_draws_have_no_error() -> None:
    """A label that never varies has error 0 and R-hat 1, despite rounding of the sums."""
    averages = ChainAverages(2, 2, 4)
    for _ in range(4):
        averages.add(0, np.array([0.1, 0.9]))
        averages.add(1, np.array([0.1, 0.9]))
    stderr, rhat = averages.errors()
    assert stderr.tolist() == [0.0, 0.0]
    assert rhat.tolist() == [1.0, 1.0]


def test_too_few_draws_have_no_error() -> None:
    """Before the second batch the error is unknown."""
    averages = ChainAverages(2, 1, 100)
    averages.add(0, np.array([0.1, 0.9]))
    assert np.isnan(averages.errors()[0]).all()


# ---------------------------------------------------------------------- what it refuses


def test_zero_temperature_is_refused() -> None:
    """At T = 0 sampling is undefined; the reason names a suitable solver."""
    s = il.solve(random_graph("potts", 0), "gibbs")
    assert s.status == "unsupported"
    assert "simulated-annealing" in s.message
