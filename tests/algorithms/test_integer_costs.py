"""Integer costs: the stated error holds for every labelling."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import labellings

import inference_lab as il
from inference_lab.algorithms.linear.integer_costs import (
    dense_tables,
    plan_rounding,
    table_rises,
    unary_rises,
)
from inference_lab.graph.random_graphs import FAMILIES, random_graph

NONEMPTY = [family for family in FAMILIES if random_graph(family, 0).n_variables]


def integer_energies(graph, rounding, every):
    """Sum the integer costs that a solver receives."""
    total = rounding.integers(unary_rises(graph))[graph.unary_ptr[:-1] + every].sum(axis=1)
    for block in dense_tables(graph):
        tables = rounding.integers(table_rises(block.tables))
        i, j = every[:, graph.edges[block.edges, 0]], every[:, graph.edges[block.edges, 1]]
        total += tables[np.arange(block.edges.size), i, j].sum(axis=1)
    for f in range(graph.n_factors):
        scope, table = graph.higher_order(f)
        total += rounding.integers(table - table.min())[tuple(every[:, v] for v in scope)]
    return total


@given(
    st.sampled_from(NONEMPTY),
    st.integers(0, 1000),
    st.sampled_from([10, 30, 50]),
    st.sampled_from([1e-12, 1.0, 1e12]),
    st.booleans(),
)
def test_integer_energies_bound_the_energy(family, seed, bits, unit, cut):
    graph = random_graph(family, seed)
    graph = il.FactorGraph.from_factors(
        graph.cardinalities, [(scope, table * unit) for scope, table in graph.factors()]
    )
    if graph.sum_of_minima == math.inf:
        return
    every = labellings(graph)
    energy = graph.energy(every)
    incumbent = (
        float(np.median(energy[np.isfinite(energy)])) if np.isfinite(energy).any() else math.inf
    )
    rounding = plan_rounding(graph, incumbent if cut else math.inf, bits)
    integers = integer_energies(graph, rounding, every)
    finite = np.isfinite(energy)
    assert (np.isinf(integers) == ~finite).all()
    assert (integers[finite] == np.floor(integers[finite])).all()
    assert (integers[finite] <= 2.0**bits).all() and (integers[finite] >= 0).all()
    below = np.array([rounding.bound(c) for c in integers[finite]])
    assert (below <= energy[finite]).all()
    # No labelling at least as good as the incumbent is cut off.
    good = energy[finite] < incumbent if cut else np.ones(finite.sum(), dtype=bool)
    slack = rounding.error + 1e-13 * abs(rounding.offset)
    assert (energy[finite][good] <= below[good] + slack).all()
    # A labelling that is cut off is better than the incumbent by at most the error.
    if cut and finite.any():
        assert (below[~good] >= incumbent - slack - rounding.error).all()


def test_more_bits_make_smaller_errors():
    graph = random_graph("mixed", 1)
    errors = [plan_rounding(graph, math.inf, bits).error for bits in (10, 20, 30)]
    assert errors[0] > 500 * errors[1] > 250_000 * errors[2] > 0


def test_large_penalties_leave_the_bits_to_small_costs():
    graph = il.FactorGraph.potts([[0.0, 1e-3], [2e-3, 0.0]], [(0, 1)], [1e12])
    assert plan_rounding(graph, math.inf, 30).error > 100.0
    assert plan_rounding(graph, 2e-3, 30).error < 1e-10


def test_equal_costs_need_no_scale():
    graph = il.FactorGraph.potts([[2.0, 2.0]] * 2, [(0, 1)], [0.0])
    rounding = plan_rounding(graph, 4.0, 50)
    assert rounding.scale == 1.0 and rounding.bound(0.0) == pytest.approx(4.0)
    assert rounding.bound(math.inf) == math.inf
