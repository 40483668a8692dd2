"""The linear model against the dense local polytope, brute force and enumeration."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog
from strategies import labellings, optimum, recipes

import inference_lab as il
from inference_lab.algorithms.linear.backends import Relaxation
from inference_lab.algorithms.linear.integer_program import fix_by_reduced_costs, solve_integer
from inference_lab.algorithms.linear.label_pairs import ALWAYS, NEVER, label_pairs
from inference_lab.algorithms.linear.model import (
    build_linear_model,
    model_size,
)
from inference_lab.algorithms.linear.pulp_models import pulp_solver, to_pulp
from inference_lab.graph.random_graphs import FAMILIES, random_graph

NONEMPTY = [family for family in FAMILIES if random_graph(family, 0).n_variables]


def local_polytope(graph):
    """Return ``(cost, A, b, upper)`` of the LP in full: ``A x = b, 0 <= x <= upper``."""
    # Wainwright and Jordan 2008, sec. 4.1.1: a distribution over the entries of each term, with
    # ``sum_a u_ia = 1`` and ``sum_{y : y_i = a} P_f(y) = u_ia``.
    ptr = graph.unary_ptr
    costs, start = [graph.unary_values], int(ptr[-1])
    rows = [(np.arange(ptr[i], ptr[i + 1]), [], 1.0) for i in range(graph.n_variables)]
    for scope, table in graph.factors():
        if len(scope) > 1:
            columns = start + np.arange(table.size).reshape(table.shape)
            for axis, i in enumerate(scope):
                for a in range(table.shape[axis]):
                    entries = np.take(columns, a, axis).ravel()
                    rows.append((entries, [int(ptr[i]) + a], 0.0))
            costs.append(table.ravel())
            start += table.size
    matrix = np.zeros((len(rows), start))
    for row, (plus, minus, _) in zip(matrix, rows, strict=True):
        row[plus], row[minus] = 1.0, -1.0
    cost, rhs = np.concatenate(costs), np.array([value for _, _, value in rows])
    allowed = np.isfinite(cost)
    return np.where(allowed, cost, 0.0), matrix, rhs, np.where(allowed, 1.0, 0.0)


def dense_value(graph, node_bounds=None):
    """Return the value of the dense local-polytope LP; ``inf`` if it is infeasible."""
    cost, matrix, rhs, upper = local_polytope(graph)
    bounds = np.stack([np.zeros(cost.size), upper], axis=1)
    if node_bounds is not None:
        bounds[: len(node_bounds)] = node_bounds
    result = linprog(cost, A_eq=matrix, b_eq=rhs, bounds=bounds, method="highs")
    return math.inf if result.x is None else result.fun + graph.constant


def relaxed_value(graph):
    result = Relaxation(build_linear_model(graph)).solve()
    return math.inf if result.infeasible else result.value


# Each label of a diagonal term is attractive, neutral, repulsive or forbidden.
gains = st.lists(st.sampled_from([-1.5, -0.4, 0.0, 0.3, 1.2, math.inf]), min_size=1, max_size=4)


@given(gains, st.integers(0, 2), st.integers(0, 2), st.integers(0, 2**32 - 1))
def test_compact_diagonal_form_equals_transport_for_fixed_marginals(gain, more_i, more_j, seed):
    """For any marginals the d-variables have the cost of the best joint distribution."""
    rng = np.random.default_rng(seed)
    k = len(gain)
    # Only one end may have extra labels; k is the smaller cardinality.
    sizes = (k + more_i, k) if seed % 2 else (k, k + more_j)
    graph = il.FactorGraph.from_terms(
        [rng.normal(size=s) for s in sizes], [il.DiagonalTerms([(0, 1)], [gain], 0.25)]
    )
    u = np.concatenate([rng.dirichlet(np.full(s, 0.5)) for s in sizes])
    fixed = np.stack([u, u], axis=1)
    model = build_linear_model(graph)
    bounds = np.stack([np.zeros(model.n_columns), model.upper], axis=1)
    bounds[: u.size] = fixed
    result = linprog(
        model.cost, model.a_ub, model.b_ub, model.a_eq, model.b_eq, bounds=bounds, method="highs"
    )
    compact = math.inf if result.x is None else result.fun + model.constant
    assert compact == pytest.approx(dense_value(graph, fixed), abs=1e-6)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("family", FAMILIES)
def test_relaxation_equals_the_dense_local_polytope(family, seed):
    graph = random_graph(family, seed)
    if graph.n_variables == 0:
        assert build_linear_model(graph).lower_bound() == graph.constant
        return
    value = dense_value(graph)
    assert relaxed_value(graph) == pytest.approx(value, rel=1e-7, abs=1e-7)


def test_number_of_columns_and_rows_of_each_kind():
    """Counts for must-link, cannot-link, hard, mixed and table edges, as documented."""
    unary = np.zeros((2, 3))
    base = (6, 2, 0)

    def counts(*terms):
        model = build_linear_model(il.FactorGraph.from_terms(unary, terms))
        return (model.n_columns - base[0], model.b_eq.size - base[1], model.b_ub.size)

    edge = [(0, 1)]
    assert counts(il.DiagonalTerms(edge, 0.0, 1.0)) == (3, 0, 6)
    assert counts(il.DiagonalTerms(edge, 1.0, 0.0)) == (3, 0, 3)
    assert counts(il.DiagonalTerms(edge, 1.0, 1.0)) == (0, 0, 0)
    assert counts(il.DiagonalTerms(edge, math.inf, 0.0)) == (0, 0, 3)
    assert counts(il.DiagonalTerms(edge, 0.0, math.inf)) == (0, 3, 0)
    assert counts(il.DiagonalTerms(edge, [[1.0, 0.0, 0.0]], 0.0)) == (1, 0, 1)
    assert counts(il.DiagonalTerms(edge, [[1.0, -1.0, 0.0]], 0.0)) == (9, 6, 0)
    assert counts(il.OwnTables(edge, [np.arange(9.0).reshape(3, 3)])) == (9, 6, 0)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("family", FAMILIES)
def test_size_is_bounded_before_building(family, seed):
    graph = random_graph(family, seed)
    model = build_linear_model(graph)
    size = model_size(graph)
    assert model.n_columns <= size.columns
    assert model.n_rows <= size.rows
    assert model.n_nonzeros <= size.nonzeros


@given(st.sampled_from(sorted(FAMILIES)), st.integers(0, 1000), st.floats(0.01, 100.0))
def test_any_dual_vector_gives_a_bound(family, seed, size):
    graph = random_graph(family, seed)
    model = build_linear_model(graph)
    rng = np.random.default_rng(seed)
    best = optimum(graph) if graph.n_variables else graph.constant
    for _ in range(5):
        dual_eq = rng.normal(size=model.b_eq.size) * size
        dual_ub = rng.normal(size=model.b_ub.size) * size
        if dual_eq.size:
            dual_eq[rng.integers(dual_eq.size)] = rng.choice([math.nan, math.inf, -math.inf])
        assert model.lower_bound(dual_eq, dual_ub) <= best


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("family", NONEMPTY)
def test_bound_from_solver_duals_is_the_value_of_the_relaxation(family, seed):
    graph = random_graph(family, seed)
    result = Relaxation(build_linear_model(graph)).solve()
    if result.infeasible:
        assert optimum(graph) == math.inf
        return
    assert result.bound <= optimum(graph)
    assert result.bound == pytest.approx(result.value, rel=1e-10, abs=1e-10)


def test_duals_of_a_wrong_shape_are_refused():
    model = build_linear_model(il.FactorGraph.potts(np.zeros((2, 2)), [(0, 1)], 1.0))
    with pytest.raises(ValueError, match=r"shape \(2,\), got \(3,\)"):
        model.lower_bound(np.zeros(3))


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("family", FAMILIES)
def test_sum_of_minima_is_a_bound_and_that_of_zero_duals(family, seed):
    graph = random_graph(family, seed)
    best = optimum(graph) if graph.n_variables else graph.constant
    bound = graph.sum_of_minima
    assert bound <= best
    at_zero = build_linear_model(graph).lower_bound()
    # The model may be tighter (variables known to be equal share costs) or looser (it lets
    # variables with one label each differ); both count the same terms elsewhere.
    assert at_zero <= best
    if not graph.has_infinite and (graph.cardinalities > 1).all():
        assert at_zero == pytest.approx(bound, rel=1e-12, abs=1e-9)


@given(recipes())
def test_sum_of_minima_is_that_of_all_terms(recipe):
    graph = recipe.build()
    expected = graph.constant + sum(float(table.min()) for _, table in graph.factors())
    assert graph.sum_of_minima == pytest.approx(expected, rel=0, abs=1e-12 * recipe.scale())


@given(st.sampled_from(NONEMPTY), st.integers(0, 1000))
def test_label_pairs_are_joint_probabilities(family, seed):
    """In the best solution for fixed labels, a joint column is the product of its two labels."""
    graph = random_graph(family, seed)
    model, pairs = build_linear_model(graph), label_pairs(graph)
    rng = np.random.default_rng(seed)
    x = rng.integers(0, graph.cardinalities)
    if not np.isfinite(graph.energy(x)):
        return
    u = np.zeros(model.n_node_columns)
    u[graph.unary_ptr[:-1] + x] = 1.0
    bounds = np.stack([np.zeros(model.n_columns), model.upper], axis=1)
    bounds[: u.size] = u[:, None]
    # The sign of a cost alone keeps a diagonal column equal to the product.
    result = linprog(
        np.where(model.cost != 0.0, np.sign(model.cost), 1.0),
        model.a_ub,
        model.b_ub,
        model.a_eq,
        model.b_eq,
        bounds=bounds,
        method="highs",
    )
    joint = pairs.both >= 0
    both = u[pairs.first] * u[pairs.second]
    assert result.x[pairs.both[joint]] == pytest.approx(both[joint], abs=1e-7)
    assert (both[pairs.both == NEVER] == 0.0).all()
    always = pairs.both == ALWAYS
    assert (u[pairs.first[always]] == u[pairs.second[always]]).all()
    # Every column beyond the nodes belongs to one label pair, except columns of larger factors.
    assert np.unique(pairs.both[joint]).size == joint.sum()
    tables = int(np.diff(graph.table_ptr).sum())
    assert joint.sum() == model.n_columns - model.n_node_columns - tables


@given(st.sampled_from(sorted(FAMILIES)), st.integers(0, 1000), st.booleans())
def test_dropped_columns_keep_all_labellings_below_the_cutoff(family, seed, solve_first):
    graph = random_graph(family, seed)
    if graph.n_variables == 0:
        return
    model = build_linear_model(graph)
    every = labellings(graph)
    energies = graph.energy(every)
    rng = np.random.default_rng(seed)
    finite = energies[np.isfinite(energies)]
    if finite.size == 0:
        return
    cutoff = float(rng.choice(np.sort(finite)[: 1 + finite.size // 4]))
    relaxed = Relaxation(model).solve()
    duals = (relaxed.dual_eq, relaxed.dual_ub)
    if not solve_first:
        duals = (rng.normal(size=model.b_eq.size), -rng.random(model.b_ub.size))
    upper = fix_by_reduced_costs(model, *duals, cutoff).upper
    used = upper[graph.unary_ptr[:-1] + every].min(axis=1)
    assert (used[energies <= cutoff] == 1.0).all()
    # The ILP keeps its optimum without the dropped labels.
    result = solve_integer(fix_by_reduced_costs(model, *duals, cutoff))
    assert result.value == pytest.approx(finite.min(), rel=1e-7, abs=1e-7)


def test_reduced_costs_leave_out_labels():
    graph = il.FactorGraph.potts([[0.0, 10.0, 0.2], [0.1, 10.0, 0.0]], [(0, 1)], [0.5])
    model = build_linear_model(graph)
    relaxed = Relaxation(model).solve()
    upper = fix_by_reduced_costs(model, relaxed.dual_eq, relaxed.dual_ub, optimum(graph)).upper
    assert upper[[1, 4]].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("family", NONEMPTY)
def test_pulp_model_has_the_optimum(family, seed):
    graph = random_graph(family, seed)
    model = build_linear_model(graph)
    problem, columns = to_pulp(model)
    problem.solve(pulp_solver("PULP_CBC_CMD"))
    best = optimum(graph)
    if best == math.inf:
        assert problem.status == -1
        return
    labels = model.labels([column.varValue for column in columns])
    assert graph.energy(labels) == pytest.approx(best, rel=1e-7, abs=1e-7)
    assert problem.objective.value() == pytest.approx(best, rel=1e-6, abs=1e-6)


def test_labels_take_the_first_of_equals_and_ragged_variables():
    graph = il.FactorGraph.from_terms([np.zeros(2), np.zeros(1), np.zeros(4)])
    model = build_linear_model(graph)
    assert model.labels([0.5, 0.5, 1.0, 0.0, 0.3, 0.4, 0.3]).tolist() == [0, 0, 2]
