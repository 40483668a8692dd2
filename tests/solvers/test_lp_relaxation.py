"""LP relaxation and rounding: bounds, exactness, expectations, guarantees."""

from __future__ import annotations

import itertools
import math
import time
from inspect import unwrap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import labellings, optimum, random_pairs

import inference_lab as il
from inference_lab.algorithms.linear import rounding
from inference_lab.algorithms.linear.backends import solve_relaxation
from inference_lab.algorithms.linear.model import build_linear_model
from inference_lab.algorithms.linear.rounding import (
    derandomise,
    expected_energy,
    joint_distribution,
    kleinberg_tardos,
)
from inference_lab.graph.random_graphs import FAMILIES, random_graph
from inference_lab.solvers import lp_relaxation
from inference_lab.solvers.ilp import ILP
from inference_lab.solvers.lp_relaxation import LPRelaxation, node_distributions

PAIRWISE = [
    family
    for family in FAMILIES
    if all(
        (g := random_graph(family, seed)).n_variables and not g.n_factors and not g.has_infinite
        for seed in range(20)
    )
]


def random_distributions(graph, rng):
    """Distributions of which some are integral and some share values."""
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
    """Labels of the integral variables, -1 for the others."""
    return np.array(
        [
            int(row.argmax()) if row.max() == 1.0 else -1
            for row in np.split(u, graph.unary_ptr[1:-1])
        ],
        dtype=np.int64,
    )


def draw(graph, u, draws, seed=0):
    """Labellings and energies of many Kleinberg-Tardos roundings."""
    shared = integral_labels(graph, u)
    free = np.flatnonzero(shared < 0)
    rows = np.empty((draws, free.size), dtype=np.int64)
    energies = np.empty(draws)
    kleinberg_tardos(graph.arrays, u, shared, np.random.default_rng(seed), rows, energies)
    labels = np.tile(shared, (draws, 1))
    labels[:, free] = rows
    return labels, energies + graph.constant


def estep(rng, n=12, k=3, m=14, cannot=0.5):
    """Make a small E-step energy, as in constrained clustering."""
    pairs = np.array(list(itertools.combinations(range(n), 2)))
    edges = pairs[rng.choice(len(pairs), size=m, replace=False)]
    is_cannot = rng.random(m) < cannot
    w = rng.random(m)
    return il.FactorGraph.from_terms(
        rng.random((n, k)),
        [il.DiagonalTerms(edges, np.where(is_cannot, w, 0), np.where(is_cannot, 0, w))],
    )


# ------------------------------------------------------------------ bounds and exactness


@pytest.mark.parametrize("seed", range(15))
def test_exact_for_must_links_between_two_clusters(seed):
    rng = np.random.default_rng(seed)
    graph = estep(rng, k=2, m=30, cannot=0.0)
    s = il.solve(graph, LPRelaxation(polish=False))
    assert s.status == "optimal"
    assert s.energy == pytest.approx(optimum(graph))
    assert s.diagnostics["rounding"]["mean"] == pytest.approx(s.energy)


def test_frustrated_triangle_has_a_gap_and_the_known_bound():
    """Three cannot-links between two labels: the LP pays nothing, every labelling pays one."""
    edges = [(0, 1), (1, 2), (0, 2)]
    graph = il.FactorGraph.from_terms(np.zeros((3, 2)), [il.DiagonalTerms(edges, 1.0, 0.0)])
    s = il.solve(graph, "lp-relaxation")
    assert s.status == "converged"
    assert s.lower_bound == pytest.approx(0.0, abs=1e-12)
    assert s.energy == 1.0
    assert s.diagnostics["lp_value"] == pytest.approx(0.0, abs=1e-9)
    assert s.diagnostics["fractional"] == 3
    assert s.diagnostics["integral_share"] == 0.0


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
    assert s.diagnostics["rounding"]["feasible"] == 0


# ------------------------------------------------------------------ Kleinberg-Tardos rounding


def test_expected_costs_of_pairs_are_those_over_the_joint_distribution():
    rng = np.random.default_rng(4)
    for trial in range(40):
        sizes = rng.integers(1, 5, size=2)
        single = il.FactorGraph.from_terms([np.zeros(k) for k in sizes])
        u = random_distributions(single, rng)
        joint = joint_distribution(u[: sizes[0]], u[sizes[0] :])
        assert joint.sum() == pytest.approx(1.0)
        if trial % 2:
            table = rng.normal(size=tuple(sizes))
            term = il.OwnTables([(0, 1)], [table])
        else:
            same, differ = rng.normal(size=sizes.min()), rng.normal()
            table = np.full(tuple(sizes), differ)
            np.fill_diagonal(table, same)
            term = il.DiagonalTerms([(0, 1)], [same], differ)
        graph = il.FactorGraph.from_terms([np.zeros(k) for k in sizes], [term])
        found = expected_energy(graph.arrays, u, math.inf)
        assert found == pytest.approx(float((joint * table).sum()), abs=1e-12)


@pytest.mark.parametrize("family", PAIRWISE)
def test_mean_energy_of_draws_is_the_closed_form(family):
    for seed in range(3):
        graph = random_graph(family, seed)
        u = random_distributions(graph, np.random.default_rng(seed))
        labels, energies = draw(graph, u, 4000)
        np.testing.assert_allclose(energies[:50], graph.energy(labels[:50]), rtol=1e-12, atol=1e-12)
        expected = expected_energy(graph.arrays, u, math.inf) + graph.constant
        error = energies.std() / math.sqrt(energies.size)
        assert energies.mean() == pytest.approx(expected, abs=5 * error + 1e-9 * abs(expected))


def test_infinite_costs_of_probability_zero_do_not_count():
    graph = il.FactorGraph.from_terms(
        [[0.0, math.inf, 1.0], [0.0, 0.0, math.inf]], [il.DiagonalTerms([(0, 1)], 0.0, math.inf)]
    )
    u = np.array([1.0, 0.0, 0.0, 1.0, 0.0, 0.0])
    assert expected_energy(graph.arrays, u, math.inf) == 0.0
    u = np.array([0.5, 0.0, 0.5, 1.0, 0.0, 0.0])
    assert expected_energy(graph.arrays, u, math.inf) == math.inf
    # The pair differs half of the time.
    assert expected_energy(graph.arrays, u, 100.0) == pytest.approx(0.5 * 1.0 + 0.5 * 100.0)


def test_variables_left_after_all_phases_take_the_largest_label(monkeypatch):
    """With thresholds above every u no phase assigns anything, and the phases must end."""

    class Stuck:
        def random(self):
            return 0.0

    graph = il.FactorGraph.from_terms(np.zeros((2, 3)))
    u = np.array([0.2, 0.5, 0.3, 0.4, 0.1, 0.5])
    rows, energies = np.empty((1, 2), dtype=np.int64), np.empty(1)
    shared = np.array([-1, -1])
    monkeypatch.setattr(rounding, "_draw", unwrap(rounding._draw))
    kleinberg_tardos(graph.arrays, u, shared, Stuck(), rows, energies)
    assert rows.tolist() == [[1, 2]]


# ------------------------------------------------------------------ derandomised rounding


def derandomised_by_definition(graph, u):
    """Round component by component, evaluating the expectation anew for every phase."""
    u = u.copy()
    rows = np.split(u, graph.unary_ptr[1:-1])
    labels = np.full(graph.n_variables, -1)
    components = graph.components
    for c in dict.fromkeys(components.tolist()):
        while (left := np.flatnonzero((components == c) & (labels < 0))).size:
            best = (math.inf, -1, None)
            for h in range(int(graph.cardinalities[left].max())):
                for alpha in sorted({rows[i][h] for i in left if h < rows[i].size}, reverse=True):
                    taken = [i for i in left if h < rows[i].size and rows[i][h] >= alpha]
                    trial = [row.copy() for row in rows]
                    for i in taken:
                        trial[i] = np.eye(rows[i].size)[h]
                    value = expected_energy(graph.arrays, np.concatenate(trial), math.inf)
                    best = min(best, (value, h, taken), key=lambda entry: entry[0])
            for i in best[2]:
                labels[i] = best[1]
                rows[i] = np.eye(rows[i].size)[best[1]]
    return labels


@pytest.mark.parametrize("family", PAIRWISE)
def test_derandomised_takes_the_best_phase_every_time(family):
    """Its bookkeeping against the definition, on the way to the labels and at the end."""
    for seed in range(12):
        graph = random_graph(family, seed)
        rng = np.random.default_rng(seed)
        # All values differ and none is 1, except where there is one label only.
        u = np.concatenate([rng.dirichlet(np.full(k, 0.6)) for k in graph.cardinalities.tolist()])
        labels = np.full(graph.n_variables, -1)
        derandomise(graph.arrays, u, labels, math.inf, math.inf)
        by_definition = derandomised_by_definition(graph, u)
        if not (labels == by_definition).all():
            # Only a tie may be broken differently.
            assert graph.energy(labels) == pytest.approx(graph.energy(by_definition))


def test_derandomised_rounding_leaves_out_higher_order_factors_with_a_note():
    for seed in range(20):
        s = il.solve(random_graph("higher-order", seed), LPRelaxation(rounding="derandomised"))
        fractional = s.diagnostics.get("fractional", 0)
        if fractional:
            assert "derandomised_energy" not in s.diagnostics
            assert "does not cover higher-order factors" in " ".join(s.diagnostics["notes"])
            assert math.isfinite(s.energy)
            return
    pytest.fail("no relaxation of these graphs is fractional")


@pytest.mark.parametrize("seed", range(20))
def test_must_links_are_within_twice_the_bound(seed):
    rng = np.random.default_rng(seed)
    n, k = 30, 4
    edges = random_pairs(rng, n, 90)
    edges = edges[edges[:, 0] != edges[:, 1]]
    graph = il.FactorGraph.potts(rng.random((n, k)), edges, rng.random(len(edges)) * 0.6)
    s = il.solve(graph, LPRelaxation(rounding="derandomised", polish=False))
    assert s.lower_bound > 0
    assert s.energy <= 2 * s.lower_bound
    assert s.energy == pytest.approx(s.diagnostics["derandomised_energy"])


@given(st.sampled_from(sorted(FAMILIES)), st.integers(0, 10_000))
def test_derandomised_is_no_worse_than_the_mean(family, seed):
    """Labels from the support of ``u``, whatever is infinite."""
    graph = random_graph(family, seed)
    if graph.n_variables == 0 or graph.n_factors:
        return
    u = random_distributions(graph, np.random.default_rng(seed))
    labels = integral_labels(graph, u)
    fixed = labels.copy()
    big = lp_relaxation._surrogate_of_infinity(graph)
    derandomise(graph.arrays, u, labels, big, math.inf)
    assert (labels[fixed >= 0] == fixed[fixed >= 0]).all()
    assert (u[graph.unary_ptr[:-1] + labels] > 0).all()
    expected = expected_energy(graph.arrays, u, math.inf) + graph.constant
    assert graph.energy(labels) <= expected + 1e-9 * max(1.0, abs(expected))


def test_surrogate_of_infinity_is_above_the_spread_of_finite_costs():
    for family, seed in itertools.product(FAMILIES, range(5)):
        graph = random_graph(family, seed)
        big = lp_relaxation._surrogate_of_infinity(graph)
        if not graph.has_infinite:
            assert big == math.inf
            continue
        energies = graph.energy(labellings(graph))
        energies = energies[np.isfinite(energies)]
        if energies.size:
            assert big > energies.max() - energies.min()


def test_derandomised_keeps_hard_constraints_where_it_can():
    """Free variables tied by a hard must-link end equal; half of random labels would not."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        graph = il.FactorGraph.from_terms(
            rng.random((4, 3)), [il.DiagonalTerms([(0, 1), (1, 2), (2, 3)], 0.0, math.inf)]
        )
        u = rng.dirichlet(np.ones(3), size=4).ravel()
        labels = np.full(4, -1)
        derandomise(graph.arrays, u, labels, lp_relaxation._surrogate_of_infinity(graph), math.inf)
        assert np.isfinite(graph.energy(labels))


def test_work_limit_leaves_derandomised_rounding_out(monkeypatch):
    edges = list(itertools.combinations(range(6), 2))
    graph = il.FactorGraph.from_terms(np.zeros((6, 2)), [il.DiagonalTerms(edges, 1.0, 0.0)])
    monkeypatch.setattr(lp_relaxation, "_MAX_STEPS", -1.0)
    s = il.solve(graph, "lp-relaxation")
    assert "derandomised_energy" not in s.diagnostics
    assert any("derandomised" in note for note in s.diagnostics["notes"])
    assert s.energy == 6.0


# ------------------------------------------------------------------ the solver


def test_distributions_mend_what_the_lp_solver_leaves():
    graph = il.FactorGraph.from_terms([np.zeros(2), np.zeros(3)])
    model = build_linear_model(graph)
    u = node_distributions(model, np.array([1.0 - 1e-9, 1e-9, 0.5, -1e-9, 0.5 + 1e-8]))
    assert u[:2].tolist() == [1.0, 0.0]
    assert u[3] == 0.0
    assert u[2:].sum() == pytest.approx(1.0, abs=1e-15)


def test_diagnostics_describe_the_draws():
    graph = estep(np.random.default_rng(4), n=20, m=80, cannot=0.9)
    s = il.solve(graph, LPRelaxation(draws=400, polish=False), seed=1)
    d = s.diagnostics
    assert d["fractional"] > 0
    assert d["integral_share"] == 1 - d["fractional"] / 20
    u = node_distributions(build_linear_model(graph), solve_relaxation(build_linear_model(graph)).x)
    figures = d["rounding"]
    assert figures["draws"] == figures["feasible"] == 400
    assert figures["expected"] == pytest.approx(
        expected_energy(graph.arrays, u, math.inf) + graph.constant
    )
    assert figures["std"] > 0
    assert figures["mean"] == pytest.approx(figures["expected"], abs=5 * figures["std"] / 20)
    assert figures["best"] < figures["mean"]
    assert figures["mean_ratio"] == pytest.approx(figures["mean"] / s.lower_bound)
    assert figures["best_ratio"] == pytest.approx(figures["best"] / s.lower_bound)
    assert d["derandomised_energy"] <= figures["expected"] + 1e-9
    assert s.energy == pytest.approx(
        min(figures["best"], d["argmax_energy"], d["derandomised_energy"])
    )
    assert d["lp_value"] == pytest.approx(s.lower_bound)


def test_polish_never_hurts_and_helps_somewhere():
    gains = []
    for seed in range(10):
        graph = estep(np.random.default_rng(seed), n=30, m=120, cannot=0.9)
        plain = il.solve(graph, LPRelaxation(draws=3, polish=False))
        polished = il.solve(graph, LPRelaxation(draws=3))
        gains.append(plain.energy - polished.energy)
        if "polished_energy" in polished.diagnostics:
            assert polished.diagnostics["polished_energy"] == pytest.approx(polished.energy)
    assert min(gains) >= 0
    assert max(gains) > 0


@pytest.mark.parametrize("rounding", ["kleinberg-tardos", "derandomised", "argmax"])
def test_one_kind_of_rounding_offers_only_that(rounding):
    graph = estep(np.random.default_rng(8), n=20, m=80, cannot=0.9)
    s = il.solve(graph, LPRelaxation(rounding=rounding, polish=False, draws=1))
    there = {
        "kleinberg-tardos": s.diagnostics.get("rounding", {}).get("best"),
        "derandomised": s.diagnostics.get("derandomised_energy"),
        "argmax": s.diagnostics.get("argmax_energy"),
    }
    assert s.energy == pytest.approx(there.pop(rounding))
    assert set(there.values()) == {None}


def test_cbc_through_pulp_agrees_with_highs():
    for family in ("potts", "ragged", "hard-tables", "higher-order"):
        graph = random_graph(family, 1)
        ours = il.solve(graph, "lp-relaxation")
        cbc = il.solve(graph, "lp-relaxation(backend=PULP_CBC_CMD)")
        assert cbc.diagnostics["lp_value"] == pytest.approx(ours.diagnostics["lp_value"], abs=1e-6)
        assert cbc.lower_bound == pytest.approx(ours.lower_bound, rel=1e-6, abs=1e-6)
        assert cbc.lower_bound <= optimum(graph)
    infeasible = il.FactorGraph.from_terms(
        [[0.0, math.inf], [0.0, math.inf]], [il.DiagonalTerms([(0, 1)], math.inf, 0.0)]
    )
    model = build_linear_model(infeasible)
    assert solve_relaxation(model, "PULP_CBC_CMD").infeasible
    assert solve_relaxation(model).infeasible


@pytest.mark.parametrize("solver", [LPRelaxation, ILP])
def test_backends_that_are_not_there(solver):
    with pytest.raises(ValueError, match=r"backend must be highs or one of .*got 'GLPK'"):
        solver(backend="GLPK")
    import pulp

    available = pulp.listSolvers(onlyAvailable=True)
    missing = next(name for name in pulp.listSolvers() if name not in available)
    s = il.solve(random_graph("potts", 0), solver(backend=missing))
    assert s.status == "not-installed"
    assert f"backend {missing} is not installed" in s.message
    # What can be used instead is listed.
    assert "available: highs" in s.message
    assert all(name in s.message for name in available)


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
    # Importing SciPy's optimisers is not the solver's time.
    assert time.perf_counter() - begin - s.compile_seconds < 2.5
    assert s.status == "limit"
    assert s.lower_bound == pytest.approx(graph.sum_of_minima)
    assert s.energy < graph.energy(graph.unary.argmin(axis=1))
