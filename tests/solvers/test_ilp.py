"""The integer program against brute force, in every family and under limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from strategies import frustrated, optimum, with_dear_label

import inference_lab as il
from inference_lab.algorithms.linear.integer_program import solve_integer
from inference_lab.algorithms.linear.model import build_linear_model
from inference_lab.graph.random_graphs import FAMILIES, random_graph
from inference_lab.registry.sources import as_problem
from inference_lab.solvers import ilp
from inference_lab.solvers.ilp import ILP

NONEMPTY = [family for family in FAMILIES if random_graph(family, 0).n_variables]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("family", NONEMPTY)
def test_branch_and_bound_alone_is_exact(family, seed):
    """The search runs without relaxation, rounding and reduced costs."""
    graph = random_graph(family, seed)
    best = optimum(graph)
    model = build_linear_model(graph)
    result = solve_integer(model)
    if best == math.inf:
        assert result.infeasible
        return
    assert result.optimal
    assert graph.energy(model.labels(result.x)) == pytest.approx(best, rel=1e-8, abs=1e-8)
    assert result.bound - result.tolerance <= best + 1e-12 * abs(best)
    assert result.bound >= best - 1e-8 * max(1.0, abs(best))


@pytest.mark.parametrize("seed", range(10))
def test_branch_and_bound_closes_the_gap_of_the_relaxation(seed):
    graph = frustrated(10, 3, 25, seed)
    s = il.solve(graph, "ilp(cuts=none)")
    assert s.status == "optimal"
    assert s.energy == pytest.approx(optimum(graph))
    relaxed = il.solve(graph, "lp-relaxation")
    if relaxed.status != "optimal":
        assert s.lower_bound > relaxed.lower_bound
        assert "ilp_status" in s.diagnostics


@pytest.mark.parametrize("reduce", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_cuts_close_most_of_the_gap_at_the_root(seed, reduce):
    """At most a third of the gap of the relaxation is left to branch and bound."""
    graph = frustrated(10, 3, 25, seed)
    best = optimum(graph)
    s = il.solve(graph, ILP(reduce=reduce))
    assert s.status == "optimal" and s.energy == pytest.approx(best)
    if "cut_bound" in s.diagnostics:
        gap = best - s.diagnostics["lp_bound"]
        assert -1e-9 <= best - s.diagnostics["cut_bound"] <= gap / 3


def test_noisy_estep_is_proved_at_the_root():
    """The relaxation alone falls far short there (compare ``ilp(cuts=none)``)."""
    spec = "estep(data=iris, constraints=200, noise=0.2, weight=30, centroids=constraints)"
    graph = as_problem(spec).graph
    s = il.solve(graph, "ilp", time_limit=60)
    assert s.status == "optimal" and "ilp_status" not in s.diagnostics
    assert s.diagnostics["lp_bound"] < 0.85 * s.energy
    assert s.diagnostics["cut_rounds"] >= 1 and s.diagnostics["cuts"] > 10
    plain = il.solve(graph, "ilp(cuts=none)", time_limit=60)
    assert plain.energy == pytest.approx(s.energy, rel=1e-9) and "ilp_status" in plain.diagnostics


def test_a_small_integral_program_needs_no_other_steps(monkeypatch):
    """Persistency, cuts and local search are neither run nor compiled."""

    def unexpected(*args):
        raise AssertionError("not needed")

    for name in ("reduce", "descend", "tighten"):
        monkeypatch.setattr(ilp, name, unexpected)
    graph = as_problem("estep(data=iris, constraints=150)").graph
    s = il.solve(graph, "ilp")
    assert s.status == "optimal" and "share_fixed" not in s.diagnostics
    large = as_problem("estep(data=iris, constraints=2000)").graph
    with pytest.raises(AssertionError, match="not needed"):
        il.solve(large, "ilp")


def test_reduction_maps_labels_and_bounds_back():
    """Variables fixed by persistency are absent from the model, but not from the answer."""
    graph = frustrated(10, 3, 25, 2)
    far = np.concatenate([graph.unary, np.full((10, 1), 50.0)], axis=1)
    lone = np.array([[3.0, 1.0, 2.0, 4.0]] * 3)
    terms = [
        il.DiagonalTerms(graph.edges, graph.pairwise_values[graph.edge_offsets], graph.edge_weights)
    ]
    wider = il.FactorGraph.from_terms(
        np.concatenate([lone, far])[:, [3, 0, 1, 2]],
        [il.DiagonalTerms(graph.edges + 3, terms[0].same, terms[0].differ)],
    )
    s = il.solve(wider, "ilp")
    assert s.status == "optimal" and s.labels[:3].tolist() == [2, 2, 2]
    assert s.energy == pytest.approx(optimum(graph) + 3.0)
    assert s.lower_bound == pytest.approx(s.energy, rel=1e-8)
    assert s.diagnostics["share_fixed"] >= 3 / 13
    whole = il.solve(wider, "ilp(reduce=false)")
    assert "share_fixed" not in whole.diagnostics
    assert whole.diagnostics["columns"] > s.diagnostics["columns"]


@pytest.mark.parametrize("seed", range(3))
def test_reduction_makes_no_program_larger(seed):
    """Potts terms become tables if their ends have lost different labels."""
    rng = np.random.default_rng(seed)
    pairs = rng.choice(40, (400, 2))
    edges = np.unique(pairs[pairs[:, 0] < pairs[:, 1]], axis=0)
    unary = 4.0 * rng.random((40, 10))
    # Each variable has another label that no neighbour compensates.
    unary[np.arange(40), rng.choice(10, 40)] += 1000.0
    graph = il.FactorGraph.potts(unary, edges, rng.uniform(-1.0, 1.0, len(edges)))
    s, whole = (il.solve(graph, spec, time_limit=2.0) for spec in ("ilp", "ilp(reduce=false)"))
    assert s.diagnostics["columns"] <= whole.diagnostics["columns"]


def test_infeasible_is_proved_by_cuts():
    """An odd cycle of hard cannot-links between two clusters needs no branching."""
    edges = [(i, (i + 1) % 5) for i in range(5)]
    graph = il.FactorGraph.from_terms(
        np.arange(10.0).reshape(5, 2), [il.DiagonalTerms(edges, math.inf, 0.0)]
    )
    s = il.solve(graph, "ilp(reduce=false)")
    assert s.status == "infeasible" and "ilp_status" not in s.diagnostics


def test_infeasible_is_proved_where_the_relaxation_is_feasible():
    edges = [(0, 1), (1, 2), (0, 2)]
    graph = il.FactorGraph.from_terms(np.zeros((3, 2)), [il.DiagonalTerms(edges, math.inf, 0.0)])
    assert il.solve(graph, "ilp(backend=PULP_CBC_CMD)").status == "infeasible"


def test_backends_that_are_not_there():
    with pytest.raises(ValueError, match=r"backend must be highs or one of .*got 'GLPK'"):
        ILP(backend="GLPK")
    import pulp

    available = pulp.listSolvers(onlyAvailable=True)
    missing = next(name for name in pulp.listSolvers() if name not in available)
    s = il.solve(random_graph("potts", 0), ILP(backend=missing))
    assert s.status == "not-installed"
    assert f"backend {missing} is not installed" in s.message
    # Alternatives are listed.
    assert "available: highs" in s.message
    assert all(name in s.message for name in available)


@pytest.mark.parametrize("seed", range(3))
def test_cuts_serve_other_backends(seed):
    """CBC receives the cuts."""
    graph = frustrated(9, 3, 22, seed)
    s = il.solve(graph, "ilp(backend=PULP_CBC_CMD)")
    assert s.status == "optimal" and s.energy == pytest.approx(optimum(graph))
    if "cut_bound" in s.diagnostics:
        assert s.diagnostics["cut_bound"] > s.diagnostics["lp_bound"]


def test_dropped_columns_are_counted(monkeypatch):
    """A fourth label that costs too much is removed before branch and bound."""
    graph = frustrated(10, 3, 25, 2)
    wider = with_dear_label(graph, 50.0)
    plain = ILP(cuts=None, reduce=False)
    s = il.solve(wider, plain)
    assert s.diagnostics["columns_left"] <= s.diagnostics["columns"] - 10
    assert s.energy == pytest.approx(optimum(graph))
    monkeypatch.setattr(ilp, "_SETUP_SECONDS", 1e9)
    stopped = il.solve(wider, plain, time_limit=60.0)
    assert stopped.status == "limit"
    assert "no time" in stopped.diagnostics["ilp_status"]
