"""Proofs at an offset: solvers that report `optimal` are right whatever all labellings pay."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import inference_lab as il
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.random_graphs import FAMILIES, random_graph
from inference_lab.graph.terms import DiagonalTerms, Unaries
from inference_lab.registry.registry import as_solver

#: Solvers that prove, those whose packages may be missing among them.
PROVING = (
    "trw-s",
    "trw-s(tighten=cycles)",
    "mplp",
    "ilp",
    "lp-relaxation",
    "branch-and-bound",
    "junction-tree",
    "semidefinite",
    "multicut",
    "persistency",
    "alpha-expansion",
    "loopy-bp",
    "subgraph-search",
    "auto",
    "ortools-cpsat",
    "toulbar2",
)

#: Labellings that are enumerated.
MOST_STATES = 800


def constant(graph: FactorGraph, size: float, rng: np.random.Generator) -> FactorGraph:
    """Add to the constant."""
    return replace(graph, constant=graph.constant + size)


def every_variable(graph: FactorGraph, size: float, rng: np.random.Generator) -> FactorGraph:
    """Add to all unaries."""
    return graph.with_unary(graph.unary_values + size)


def one_variable(graph: FactorGraph, size: float, rng: np.random.Generator) -> FactorGraph:
    """Add to the unaries of one variable."""
    i = int(rng.integers(graph.n_variables))
    values = graph.unary_values.copy()
    values[graph.unary_ptr[i] : graph.unary_ptr[i + 1]] += size
    return graph.with_unary(values)


def cycle_of_penalties(graph: FactorGraph, size: float, rng: np.random.Generator) -> FactorGraph:
    """Add three penalties of which every labelling pays at least one."""
    if graph.n_variables < 3:
        return graph
    size = abs(size)
    differ = DiagonalTerms([(0, 1), (1, 2)], same=0.0, differ=size)
    cycle = [differ, DiagonalTerms([(0, 2)], same=size, differ=0.0)]
    unaries = Unaries(graph.cardinalities, graph.unary_ptr, graph.unary_values)
    factors = [graph.higher_order(f) for f in range(graph.n_factors)]
    plain = FactorGraph.from_terms(unaries, [graph.edge_block, *cycle], factors, graph.constant)
    return plain.with_label_costs(sets=graph.label_costs.sets())


def energies(graph: FactorGraph) -> dict[tuple[int, ...], float]:
    """Return the energies of all labellings as exactly rounded sums."""
    tables = [(tuple(pair), graph.edge_table(e)) for e, pair in enumerate(graph.edges.tolist())]
    tables += [graph.higher_order(f) for f in range(graph.n_factors)]
    sums = {}
    for x in itertools.product(*(range(k) for k in graph.cardinalities.tolist())):
        costs = [graph.constant]
        costs += [float(graph.unary_of(i)[a]) for i, a in enumerate(x)]
        costs += [float(table[tuple(x[i] for i in scope)]) for scope, table in tables]
        costs += [c for labels, c in graph.label_costs.sets() if set(labels) & set(x)]
        sums[x] = math.fsum(costs)
    return sums


@pytest.mark.parametrize("solver", PROVING)
@given(
    family=st.sampled_from(sorted(set(FAMILIES) - {"empty", "large", "infeasible"})),
    seed=st.integers(0, 10_000),
    offset=st.sampled_from([constant, every_variable, one_variable, cycle_of_penalties]),
    exponent=st.integers(0, 12),
    sign=st.sampled_from([1.0, -1.0]),
)
def test_optimal_is_true_at_any_offset(solver, family, seed, offset, exponent, sign):
    graph = random_graph(family, seed)
    if 2.0**graph.log2_states > MOST_STATES:
        return
    graph = offset(graph, sign * 10.0**exponent, np.random.default_rng(seed))
    method = as_solver(solver)
    if method.missing() or method.unsupported_reason(graph, 0.0):
        return
    solution = il.solve(graph, solver, seed=0, max_iterations=200, time_limit=20.0)
    if solution.labels is None:
        return
    every = energies(graph)
    optimum, energy = min(every.values()), every[tuple(solution.labels.tolist())]
    rounding = graph.resolution_at(optimum)
    if math.isfinite(optimum):
        assert solution.lower_bound <= optimum + 2.0 * rounding
    if solution.status == "optimal":
        assert energy <= optimum + rounding
        assert solution.gap == 0.0
