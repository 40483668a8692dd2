"""Penalties that are never paid: what is lowered, and what a run says of its bounds."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import inference_lab as il
from inference_lab.algorithms.payable_costs import capped, payable
from inference_lab.contract import Outcome, Run, Status
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.random_graphs import FAMILIES, LABEL_COSTS, SCALES, random_graph


def test_capped_lowers_each_finite_cost_and_nothing_else():
    for family in {**FAMILIES, **LABEL_COSTS, **SCALES}:
        for seed in range(3):
            graph = random_graph(family, seed)
            terms = list(graph.factors())
            finite = np.concatenate([t[np.isfinite(t)] for _, t in terms] or [np.zeros(1)])
            # Unaries of 0 are not counted as terms.
            cap = max(1e-9 * float(np.abs(finite).max()), float(np.quantile(finite, 0.7)))
            lowered = capped(graph, cap)
            for (scope, table), (same, other) in zip(terms, lowered.factors(), strict=True):
                assert scope == same
                assert (other == np.where(np.isinf(table), np.inf, np.minimum(table, cap))).all()
            costs = lowered.label_costs.costs
            assert (costs == np.minimum(graph.label_costs.costs, cap)).all()
            fresh = pickle.loads(pickle.dumps(lowered))
            for name, array in lowered.arrays._asdict().items():
                assert np.array_equal(array, getattr(fresh.arrays, name)), name
            assert capped(graph, graph.magnitude) is graph


def test_a_lowered_cost_still_exceeds_the_best_labelling():
    graph = FactorGraph.potts([[0.0, 1.0], [0.5, 1e90]], [(0, 1)], [0.25])
    run = Run(graph)
    lowered = payable(graph, run)
    assert graph.energy([0, 0]) < lowered.unary_of(1)[1] < 1e5
    assert run.graph is graph and run.resolution == graph.resolution < 1e-14
    # At T > 0 its weight underflows.
    assert payable(graph, Run(graph, temperature=10.0)).unary_of(1)[1] > 7450.0


def test_costs_with_enough_digits_stay_as_they_are():
    graph = FactorGraph.potts([[0.0, 1.0], [0.5, 1e3]], [(0, 1)], [0.25])
    assert payable(graph, Run(graph)) is graph
    huge = FactorGraph.potts([[0.0, 1.0], [0.5, 1e90]], [(0, 1)], [0.25])
    lowered = payable(huge, Run(huge))
    assert payable(lowered, Run(lowered)) is lowered


def test_the_resolution_of_a_part_is_not_that_of_the_run():
    graph = FactorGraph.potts([[0.0, 1.0], [0.5, 1e90]], [(0, 1)], [0.25])
    run = Run(graph)
    payable(FactorGraph.potts([[0.0, 1e90]], [], []), run)
    assert run.resolution == graph.largest_error


@pytest.mark.parametrize("penalty", [1e9, 1e13, 1e20, 1e90])
@pytest.mark.parametrize("seed", range(4))
def test_penalties_of_any_size_leave_bounds_below_the_optimum(seed, penalty):
    rng = np.random.default_rng(seed)
    unary, edges = rng.normal(size=(6, 3)), np.stack(np.triu_indices(6, 1), axis=1)
    tables = rng.normal(size=(len(edges), 3, 3))
    tables[rng.random(tables.shape) < 0.2] = penalty
    graph = FactorGraph.pairwise(unary, edges, tables)
    optimum = il.solve(graph, "brute-force").energy
    proofs = 0
    for solver in ("auto", "ilp", "branch-and-bound", "trw-s", "mplp", "lp-relaxation", "icm"):
        s = il.solve(graph, solver, seed=0, max_iterations=200)
        assert s.lower_bound <= optimum + 1e-9
        assert s.status != Status.OPTIMAL or s.energy <= optimum + 1e-9
        proofs += s.status == Status.OPTIMAL
    assert optimum > 1e8 or proofs >= 3


def test_a_method_that_keeps_huge_costs_proves_nothing():
    """Its sums lose all digits, so that its bound is worth no more than them."""

    class Careless(il.Solver):
        def run(self, graph, run):
            run.offer([0, 0])
            run.bound(run.best_energy)
            return Outcome(converged=True)

    graph = FactorGraph.potts([[0.0, 1.0], [0.5, 1e30]], [(0, 1)], [0.25])
    s = il.solve(graph, Careless())
    assert s.status == Status.CONVERGED and s.lower_bound < s.energy
    assert "rounding" in s.message
