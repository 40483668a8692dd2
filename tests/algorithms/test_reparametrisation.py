"""Reparametrisations: no energy changes, the bound is the sum of minima and never falls."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import inference_lab as il
from inference_lab.algorithms.dual import reparametrisation
from inference_lab.algorithms.dual.reparametrisation import (
    Dual,
    dual_bound,
    make_scratch,
    start_dual,
    stretches,
    update_edges,
    update_factors,
    update_stars,
)
from inference_lab.conformance import exhaustive
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.graph.random_graphs import FAMILIES, random_graph

seeds = st.integers(0, 2**32 - 1)


def tolerance(graph: il.FactorGraph) -> float:
    return 1e-9 * exhaustive(graph).scale


def bound_of(graph: il.FactorGraph, dual: Dual) -> float:
    return dual_bound(graph, graph.arrays, dual, make_scratch(graph))[0]


def remainders(graph: il.FactorGraph, dual: Dual) -> list[tuple[tuple[int, ...], FloatArray]]:
    """Return scope and remaining table of every term, in plain numpy."""
    n = graph.n_variables
    unaries = [((i,), dual.unary[graph.unary_ptr[i] : graph.unary_ptr[i + 1]]) for i in range(n)]
    out: list[tuple[tuple[int, ...], FloatArray]] = [*unaries]
    for e in range(graph.n_edges):
        i, j = (int(v) for v in graph.edges[e])
        one, two = (dual.half_ptr[2 * e + s] for s in (0, 1))
        table = graph.edge_table(e) - dual.from_edge[one:two, None]
        out.append(((i, j), table - dual.from_edge[two : dual.half_ptr[2 * e + 2]]))
    for f in range(graph.n_factors):
        scope, table = graph.higher_order(f)
        for axis, slot in enumerate(range(graph.factor_ptr[f], graph.factor_ptr[f + 1])):
            part = dual.from_factor[dual.slot_ptr[slot] : dual.slot_ptr[slot + 1]]
            shape = [1] * table.ndim
            shape[axis] = -1
            table = table - part.reshape(shape)
        out.append((scope, table))
    return out


def sweeps(graph: il.FactorGraph, dual: Dual, how: str, backwards: bool) -> None:
    common = (backwards, dual, graph.has_infinite, make_scratch(graph))
    if how == "stars":
        update_stars(graph.arrays, 0, graph.n_variables, *common)
    else:
        update_edges(graph.arrays, 0, graph.n_edges, *common)
        update_factors(graph.arrays, 0, graph.n_factors, *common)


@given(
    family=st.sampled_from(sorted(FAMILIES)),
    seed=seeds,
    order=st.lists(st.sampled_from(["terms", "stars"]), min_size=1, max_size=6),
)
def test_sweeps_change_no_energy_and_the_bound_rises_to_at_most_the_optimum(
    family: str, seed: int, order: list[str]
) -> None:
    """Check every family, any mix of the two kinds of sweeps, and both directions."""
    graph = random_graph(family, seed)
    energies, slack = exhaustive(graph).energies, tolerance(graph)
    dual = start_dual(graph)
    before = bound_of(graph, dual)
    for turn, how in enumerate(order):
        sweeps(graph, dual, how, bool(turn % 2))
        tables = remainders(graph, dual)
        # The bound follows its definition; terms need not know that a label is ruled out.
        bound = bound_of(graph, dual)
        assert before - slack <= bound <= exhaustive(graph).optimum + slack
        if not graph.has_infinite:
            minima = math.fsum(float(table.min()) for _, table in tables)
            assert bound == pytest.approx(minima + graph.constant, abs=slack)
        before = bound
        if bound == math.inf:
            assert exhaustive(graph).optimum == math.inf
            return
        for x in itertools.islice(itertools.product(*map(range, graph.cardinalities)), 0, None, 7):
            total = graph.constant + sum(table[tuple(x[v] for v in s)] for s, table in tables)
            if math.isfinite(energies[x]):
                assert total == pytest.approx(energies[x], abs=slack)


@given(family=st.sampled_from(["hard-tables", "must-links", "forest", "mixed"]), seed=seeds)
def test_labels_ruled_out_are_in_no_feasible_labelling(family: str, seed: int) -> None:
    graph = random_graph(family, seed)
    energies = exhaustive(graph).energies
    dual = start_dual(graph)
    for turn in range(4):
        sweeps(graph, dual, "terms" if turn % 2 else "stars", False)
    if bound_of(graph, dual) == math.inf:
        return
    for i in range(graph.n_variables):
        costs = dual.unary[graph.unary_ptr[i] : graph.unary_ptr[i + 1]]
        for a in np.flatnonzero(np.isinf(costs)):
            assert np.isinf(np.take(energies, a, axis=i)).all()


@given(family=st.sampled_from(sorted(FAMILIES)), seed=seeds)
def test_any_parts_make_a_true_bound(family: str, seed: int) -> None:
    """Any finite parts bound the energy; an infinite part would have to follow from the graph."""
    graph = random_graph(family, seed)
    empty = start_dual(graph)
    rng = np.random.default_rng(seed)
    dual = start_dual(
        graph, rng.normal(size=empty.from_edge.size), rng.normal(size=empty.from_factor.size)
    )
    bound = bound_of(graph, dual)
    assert bound <= exhaustive(graph).optimum + tolerance(graph)
    sweeps(graph, dual, "terms", False)
    assert bound_of(graph, dual) >= bound - tolerance(graph)


def test_infinite_parts_rule_labels_out() -> None:
    graph = il.FactorGraph.potts([[0.0, 3.0], [0.0, 4.0]], [(0, 1)], [10.0])
    dual = start_dual(graph, from_edge=np.array([np.inf, 0.0, 0.0, 0.0]))
    assert dual.unary.tolist() == [math.inf, 3.0, 0.0, 4.0]
    sweeps(graph, dual, "terms", False)
    assert bound_of(graph, dual) == pytest.approx(7.0)


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"from_edge": np.zeros(3)}, r"from_edge must have shape \(4,\), got \(3,\)"),
        ({"from_factor": np.zeros(1)}, r"from_factor must have shape \(0,\), got \(1,\)"),
        ({"from_edge": np.array([0.0, 0.0, np.nan, 0.0])}, r"from_edge\[2\] is nan"),
        ({"from_edge": np.array([0.0, -np.inf, 0.0, 0.0])}, r"from_edge\[1\] is -inf"),
    ],
)
def test_bad_parts_are_refused(parts: dict[str, FloatArray], says: str) -> None:
    graph = il.FactorGraph.potts([[0.0, 3.0], [0.0, 4.0]], [(0, 1)], [10.0])
    with pytest.raises(ValueError, match=says):
        start_dual(graph, **parts)


def test_rounding_is_charged_to_the_bound() -> None:
    """With parts a trillion times the costs, the bound stays below the rounded sum of minima."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        edges = np.array(list(itertools.combinations(range(8), 2)))
        graph = il.FactorGraph.potts(rng.normal(size=(8, 2)), edges, 0.0)
        # Equal for both labels, so that the bound would be exact without rounding.
        parts = np.repeat(1e12 * rng.normal(size=2 * len(edges)), 2)
        bound = bound_of(graph, start_dual(graph, parts))
        assert -1.0 < bound - exhaustive(graph).optimum <= 0.0


# ------------------------------------------------------------------ stretches


@pytest.mark.parametrize("work", [[], [1], [60_000_000] * 3, [1_000_000] * 120])
def test_stretches_cover_everything_in_bounded_pieces(work: list[int]) -> None:
    pieces = stretches(np.array(work, dtype=np.int64))
    covered: IntArray = np.concatenate([np.arange(lo, hi) for lo, hi in pieces] or [np.empty(0)])
    assert covered.tolist() == list(range(len(work)))
    for lo, hi in pieces:
        assert hi - lo == 1 or sum(work[lo : hi - 1]) <= reparametrisation._STRETCH
