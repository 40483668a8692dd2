"""Summing out variables keeps the partition function, and marginals are recovered."""

from __future__ import annotations

import itertools
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from strategies import Recipe, recipes

import inference_lab as il
from inference_lab.algorithms.elimination.arc_consistency import allowed_labels
from inference_lab.algorithms.elimination.marginalisation import SummedGraph, sum_out
from inference_lab.conformance import exhaustive
from inference_lab.contract import Run
from inference_lab.graph.factor_graph import FactorGraph


def summed(graph: FactorGraph, temperature: float = 1.0, **limits: float) -> SummedGraph | None:
    run = Run(graph, temperature=temperature, **limits)  # type: ignore[arg-type]
    return sum_out(graph, allowed_labels(graph), run)


def terms_of(graph: FactorGraph) -> list[tuple[tuple[int, ...], np.ndarray]]:
    return [(scope, table) for scope, table in graph.factors() if len(scope) > 1]


@given(recipe=recipes(min_variables=1), temperature=st.sampled_from([0.3, 1.0, 20.0]))
def test_partition_function_and_marginals_stay(recipe: Recipe, temperature: float) -> None:
    graph = recipe.build()
    if not allowed_labels(graph).feasible:
        return
    exact = exhaustive(graph)
    rest = summed(graph, temperature)
    if rest is None:
        assert math.isinf(exact.optimum)
        return
    left = exhaustive(rest.graph)
    if math.isinf(exact.optimum):
        assert math.isinf(left.optimum)
        return
    near = 1e-11 * exact.scale / temperature
    assert abs(left.log_partition(temperature) - exact.log_partition(temperature)) <= near

    weights = np.exp(-(left.energies - left.optimum) / temperature)
    weights /= weights.sum()

    def joint(variables: tuple[int, ...]) -> np.ndarray:
        assert any(set(variables) <= set(scope) for scope, _ in terms_of(rest.graph))
        others = tuple(i for i in range(weights.ndim) if i not in variables)
        return weights.sum(axis=others).transpose(np.argsort(np.argsort(variables)))

    flat = np.concatenate([np.empty(0), *left.marginals(temperature)])
    rows = rest.marginals(flat, joint)
    for row, kept, wanted in zip(rows, rest.labels, exact.marginals(temperature), strict=True):
        np.testing.assert_allclose(row, wanted[kept], atol=1e-9 + 1e-14 * exact.scale / temperature)
        assert np.delete(wanted, kept).sum() == 0.0


@given(recipe=recipes(min_variables=1))
def test_no_table_grows_and_none_is_inside_another(recipe: Recipe) -> None:
    graph = recipe.build()
    rest = summed(graph) if allowed_labels(graph).feasible else None
    if rest is None:
        return
    most = max((table.size for _, table in terms_of(graph)), default=1)
    found = terms_of(rest.graph)
    assert max((table.size for _, table in found), default=1) <= most
    assert not any(set(a) <= set(b) for a, _ in found for b, _ in found if a is not b)
    # Each remaining variable is in at least two terms.
    met = np.bincount([i for scope, _ in found for i in scope], minlength=rest.variables.size)
    assert (met >= 2).all()


@given(recipe=recipes(forest=True))
def test_forests_are_summed_out_completely(recipe: Recipe) -> None:
    graph = recipe.build()
    rest = summed(graph) if allowed_labels(graph).feasible else None
    assert rest is None or rest.graph.n_variables == 0


def test_contradictions_are_found() -> None:
    """Each label has a partner in each term, but no three fit together."""
    differ = np.where(np.eye(2) > 0, np.inf, 0.0)
    graph = FactorGraph.from_factors(
        [2] * 3, [((0, 1), differ), ((1, 2), differ), ((0, 2), differ)]
    )
    assert allowed_labels(graph).feasible
    assert summed(graph) is None


def test_without_time_no_variable_is_summed_out() -> None:
    graph = FactorGraph.from_factors([2] * 3, [((0, 1, 2), np.arange(8.0).reshape(2, 2, 2))])
    rest = summed(graph, time_limit=1e-9)
    assert rest is not None and rest.graph.n_variables == 3 and rest.steps == []
    assert exhaustive(rest.graph).energies.tolist() == exhaustive(graph).energies.tolist()


def test_a_wheel_is_summed_out() -> None:
    """Two terms of the rim and the hub leave one of the same size, until few are left."""
    n = 20
    rng = np.random.default_rng(0)
    terms = [((n, i, (i + 1) % n), rng.normal(size=(2, 2, 2))) for i in range(n)]
    graph = FactorGraph.from_factors([2] * (n + 1), terms)
    rest = summed(graph)
    assert rest is not None
    exact = il.solve(graph, "junction-tree", temperature=1.0).log_partition
    left = il.solve(rest.graph, "junction-tree", temperature=1.0).log_partition
    assert abs(left - exact) < 1e-10
    assert len(rest.steps) >= n - 2


def test_terms_inside_others_are_added_to_them() -> None:
    """If no variable can be eliminated, every labelling keeps its energy."""
    rng = np.random.default_rng(0)
    sizes = [2, 3, 2, 3, 2, 2]
    scopes = [tuple(rng.permutation(c).tolist()) for c in itertools.combinations(range(6), 3)]
    scopes += [(4, 1), (0, 2), (5, 3), (3, 1)]
    graph = FactorGraph.from_factors(
        sizes, [(scope, rng.normal(size=[sizes[v] for v in scope])) for scope in scopes]
    )
    rest = summed(graph)
    assert rest is not None and rest.steps == []
    assert rest.graph.n_edges == 0 and rest.graph.n_factors == graph.n_factors
    np.testing.assert_allclose(
        exhaustive(rest.graph).energies, exhaustive(graph).energies, atol=1e-12
    )
