"""LP relaxation and rounding: bounds, exactness, expectations, guarantees."""

from __future__ import annotations

import math
import time
from inspect import unwrap

import numpy as np
import pytest
from strategies import frustrated, optimum, random_pairs

import inference_lab as il
from inference_lab.algorithms.linear.backends import Relaxation
from inference_lab.algorithms.linear.model import build_linear_model
from inference_lab.graph.random_graphs import FAMILIES, random_graph
from inference_lab.solvers.lp_relaxation import (
    LPRelaxation,
    kleinberg_tardos,
    node_distributions,
)

PAIRWISE = [
    family
    for family in FAMILIES
    if all(
        (g := random_graph(family, seed)).n_variables and not g.n_factors and not g.has_infinite
        for seed in range(20)
    )
]


def random_distributions(graph, rng):
    """Draw distributions, some of them integral and some with shared values."""
    rows = []
    for k in graph.cardinalities.tolist():
        style = rng.integers(4)
        if style == 0:
            row = np.eye(k)[rng.integers(k)]
        elif style == 1:
            row = np.full(k, 1.0 / k)
        elif style == 2:
            row = rng.integers(0, 3, size=k).astype(float)
            row[0] += row.sum() == 0
        else:
            row = rng.dirichlet(np.full(k, 0.5))
        rows.append(row / row.sum())
    return np.concatenate(rows)


def integral_labels(graph, u):
    """Return the labels of the integral variables, -1 for the others."""
    return np.array(
        [
            int(row.argmax()) if row.max() == 1.0 else -1
            for row in np.split(u, graph.unary_ptr[1:-1])
        ],
        dtype=np.int64,
    )


def draw(graph, u, draws, seed=0):
    """Return the energies of many Kleinberg-Tardos roundings."""
    shared = integral_labels(graph, u)
    free = np.flatnonzero(shared < 0)
    rows = np.empty((draws, free.size), dtype=np.int64)
    kleinberg_tardos(graph.arrays, u, free, np.random.default_rng(seed), rows)
    labels = np.tile(shared, (draws, 1))
    labels[:, free] = rows
    return graph.energy(labels)


def joint_distribution(p, q):
    """Return the probability of each pair of labels of two variables, shape (k_i, k_j)."""
    # With as many labels, a phase with label h gives it to both with probability proportional to
    # ``min(p_h, q_h)`` and to one of them alone to ``|p_h - q_h|``; the other one's label is then
    # drawn later, from its own distribution (Kleinberg and Tardos 2002, section 2).
    k = max(p.size, q.size)
    u, v = np.pad(p, (0, k - p.size)), np.pad(q, (0, k - q.size))
    both = np.minimum(u, v)
    joint = np.diag(both) + np.outer(u - both, v) + np.outer(u, v - both)
    return (joint / np.maximum(u, v).sum())[: p.size, : q.size]


def expected_energy(graph, u):
    """Return the expected energy of a random rounding of a pairwise graph."""
    rows = np.split(u, graph.unary_ptr[1:-1])
    total = graph.constant
    for scope, table in graph.factors():
        weights = (
            rows[scope[0]] if len(scope) == 1 else joint_distribution(*(rows[i] for i in scope))
        )
        total += float((weights * table).sum())
    return total


# ------------------------------------------------------------------ bounds and exactness


@pytest.mark.parametrize("seed", range(15))
def test_exact_for_must_links_between_two_clusters(seed):
    graph = frustrated(12, 2, 30, seed, ties=0.0, share=0.0)
    s = il.solve(graph, LPRelaxation(polish=False))
    assert s.status == "optimal"
    assert s.energy == pytest.approx(optimum(graph))
    assert s.diagnostics["mean_energy"] == pytest.approx(s.energy)


def test_frustrated_triangle_has_a_gap_and_the_known_bound():
    """Three cannot-links between two labels: the LP pays 0, and every labelling pays 1."""
    edges = [(0, 1), (1, 2), (0, 2)]
    graph = il.FactorGraph.from_terms(np.zeros((3, 2)), [il.DiagonalTerms(edges, 1.0, 0.0)])
    s = il.solve(graph, "lp-relaxation")
    assert s.status == "converged"
    assert s.lower_bound == pytest.approx(0.0, abs=1e-12)
    assert s.energy == 1.0
    assert s.diagnostics["lp_value"] == pytest.approx(0.0, abs=1e-9)
    assert s.diagnostics["fractional"] == 3


def test_infeasible_is_proved_by_the_relaxation():
    """A hard cannot-link between two variables that have the same one label left."""
    graph = il.FactorGraph.from_terms(
        [[0.0, math.inf], [0.0, math.inf]], [il.DiagonalTerms([(0, 1)], math.inf, 0.0)]
    )
    s = il.solve(graph, "lp-relaxation")
    assert s.status == "infeasible"
    assert "infeasible" in s.diagnostics["lp_status"].lower()


def test_graph_that_only_the_integer_program_knows_to_be_infeasible():
    edges = [(0, 1), (1, 2), (0, 2)]
    graph = il.FactorGraph.from_terms(np.zeros((3, 2)), [il.DiagonalTerms(edges, math.inf, 0.0)])
    s = il.solve(graph, "lp-relaxation")
    assert s.energy == math.inf
    assert s.lower_bound <= 1e-12
    assert s.status == "converged"
    assert s.diagnostics["feasible"] == 0


# ------------------------------------------------------------------ Kleinberg-Tardos rounding


@pytest.mark.parametrize("family", PAIRWISE)
def test_mean_energy_of_draws_is_the_closed_form(family):
    for seed in range(3):
        graph = random_graph(family, seed)
        u = random_distributions(graph, np.random.default_rng(seed))
        energies = draw(graph, u, 4000)
        expected = expected_energy(graph, u)
        error = energies.std() / math.sqrt(energies.size)
        assert energies.mean() == pytest.approx(expected, abs=5 * error + 1e-9 * abs(expected))


def test_variables_left_after_all_phases_take_the_largest_label():
    """With thresholds above every u no phase assigns a label, and the phases must end."""

    class Stuck:
        def random(self):
            return 0.0

    graph = il.FactorGraph.from_terms(np.zeros((2, 3)))
    u = np.array([0.2, 0.5, 0.3, 0.4, 0.1, 0.5])
    rows = np.empty((1, 2), dtype=np.int64)
    unwrap(kleinberg_tardos)(graph.arrays, u, np.arange(2), Stuck(), rows)
    assert rows.tolist() == [[1, 2]]


@pytest.mark.parametrize("seed", range(20))
def test_must_links_are_within_twice_the_bound(seed):
    rng = np.random.default_rng(seed)
    n, k = 30, 4
    edges = random_pairs(rng, n, 90)
    edges = edges[edges[:, 0] != edges[:, 1]]
    graph = il.FactorGraph.potts(rng.random((n, k)), edges, rng.random(len(edges)) * 0.6)
    s = il.solve(graph, LPRelaxation(polish=False))
    assert s.lower_bound > 0
    assert s.energy <= s.diagnostics["mean_energy"] <= 2 * s.lower_bound


# ------------------------------------------------------------------ the solver


def test_distributions_correct_rounding_of_the_lp_solver():
    graph = il.FactorGraph.from_terms([np.zeros(2), np.zeros(3)])
    model = build_linear_model(graph)
    u = node_distributions(model, np.array([1.0 - 1e-9, 1e-9, 0.5, -1e-9, 0.5 + 1e-8]))
    assert u[:2].tolist() == [1.0, 0.0]
    assert u[3] == 0.0
    assert u[2:].sum() == pytest.approx(1.0, abs=1e-15)


def test_diagnostics_describe_the_draws():
    graph = frustrated(20, 3, 80, 4, ties=0.0, share=0.9)
    s = il.solve(graph, LPRelaxation(draws=400, polish=False), seed=1)
    d = s.diagnostics
    assert d["fractional"] > 0
    model = build_linear_model(graph)
    u = node_distributions(model, Relaxation(model).solve().x)
    assert d["draws"] == d["feasible"] == 400
    assert d["mean_energy"] == pytest.approx(expected_energy(graph, u), rel=0.02)
    assert s.energy < d["mean_energy"] and s.energy <= d["argmax_energy"]
    assert d["lp_value"] == pytest.approx(s.lower_bound)


def test_polish_never_hurts_and_helps_somewhere():
    gains = []
    for seed in range(10):
        graph = frustrated(30, 3, 120, seed, ties=0.0, share=0.9)
        plain = il.solve(graph, LPRelaxation(draws=3, polish=False))
        polished = il.solve(graph, LPRelaxation(draws=3))
        gains.append(plain.energy - polished.energy)
    assert min(gains) >= 0
    assert max(gains) > 0


def test_model_beyond_32_bits_is_refused_before_it_is_built():
    n, k = 1000, 1500
    rng = np.random.default_rng(0)
    edges = np.stack([np.arange(n - 1), np.arange(1, n)], axis=1)
    table = rng.random((k, k))
    graph = il.FactorGraph.from_terms(np.zeros((n, k)), [il.SharedTable(edges, table)])
    s = il.solve(graph, "lp-relaxation")
    assert s.status == "unsupported"
    assert "columns" in s.message


def large_hard_estep(n=1500, k=10, m=6000):
    rng = np.random.default_rng(0)
    edges = random_pairs(rng, n, m)
    edges = edges[edges[:, 0] != edges[:, 1]]
    cannot = rng.random(len(edges)) < 0.5
    return il.FactorGraph.from_terms(
        rng.random((n, k)),
        [il.DiagonalTerms(edges, np.where(cannot, 9, 0), np.where(cannot, 0, 9))],
    )


def test_time_limit_is_kept_and_leaves_a_labelling_and_a_bound():
    graph = large_hard_estep()
    il.solve(graph, "lp-relaxation", time_limit=1e-3)
    begin = time.perf_counter()
    s = il.solve(graph, "lp-relaxation", time_limit=0.6)
    # Importing SciPy's optimisers does not count as the solver's time.
    assert time.perf_counter() - begin - s.compile_seconds < 2.5
    assert s.status == "limit"
    assert s.lower_bound == pytest.approx(graph.sum_of_minima)
    assert s.energy < graph.energy(graph.unary.argmin(axis=1))
