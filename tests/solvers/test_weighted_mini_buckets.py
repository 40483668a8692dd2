"""Weighted mini-buckets: upper bounds with tables of any size, exact without copies."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import inference_lab as il
from inference_lab.algorithms.elimination.arc_consistency import allowed_labels
from inference_lab.algorithms.elimination.edge_deletion import split_variables
from inference_lab.conformance import exhaustive
from inference_lab.graph.random_graphs import FAMILIES, LABEL_COSTS, random_graph
from inference_lab.solvers.weighted_mini_buckets import _Copies

FEASIBLE = sorted(family for family in FAMILIES | LABEL_COSTS if family != "infeasible")
PAIRS = [(i, j) for i in range(9) for j in range(i)]


def dense(seed, strength=1.0):
    """Return a complete graph of nine variables with random tables."""
    rng = np.random.default_rng(seed)
    tables = strength * rng.normal(size=(len(PAIRS), 2, 2))
    return il.FactorGraph.pairwise(rng.normal(size=(9, 2)), PAIRS, tables)


@given(
    family=st.sampled_from(FEASIBLE),
    seed=st.integers(0, 2**32 - 1),
    entries=st.sampled_from([16, 32, 64, 128, 512]),
    temperature=st.sampled_from([0.3, 1.0, 4.0]),
)
def test_bound_is_above_the_exact_value(family, seed, entries, temperature):
    """For terms of all kinds, whether or not variables have copies."""
    graph = random_graph(family, seed)
    exact = exhaustive(graph)
    s = il.solve(graph, f"weighted-mini-buckets(max_entries={entries})", temperature=temperature)
    if s.status == "unsupported":
        assert "entries" in s.message
        return
    slack = 1e-11 * exact.scale / temperature
    assert s.log_partition >= exact.log_partition(temperature) - slack
    if s.diagnostics["copies"] == 0:
        assert s.log_partition_kind == "exact"
        assert s.log_partition == pytest.approx(exact.log_partition(temperature), abs=1e-8)
    else:
        assert s.log_partition_kind == "upper"


@pytest.mark.parametrize("seed", range(3))
def test_larger_tables_and_more_sweeps_tighten_the_bound(seed):
    graph = dense(seed)
    exact = exhaustive(graph).log_partition(1.0)
    gaps = []
    for entries in (160, 320, 640):
        gap = []
        for sweeps in (1, 50):
            name = f"weighted-mini-buckets(max_entries={entries}, max_sweeps={sweeps})"
            s = il.solve(graph, name, temperature=1.0)
            assert s.diagnostics["copies"] > 0
            gap.append(s.log_partition - exact)
        assert 0.0 < gap[1] < 0.8 * gap[0]
        gaps.append(gap[1])
    assert gaps == sorted(gaps, reverse=True)
    whole = il.solve(graph, "weighted-mini-buckets", temperature=1.0)
    assert whole.log_partition_kind == "exact"
    assert whole.marginals == pytest.approx(np.array(exhaustive(graph).marginals(1.0)), abs=1e-9)


def test_marginals_of_copies_agree_at_the_end():
    """The minimum over costs is where they do, and its marginals are near the exact ones."""
    graph = dense(5, 0.3)
    name = "weighted-mini-buckets(max_entries=320, tolerance=0, max_sweeps=2000)"
    s = il.solve(graph, name, temperature=1.0)
    assert s.diagnostics["copies"] > 0
    assert s.marginals == pytest.approx(np.array(exhaustive(graph).marginals(1.0)), abs=0.05)


def test_moves_leave_the_energy_unchanged():
    """Costs of all copies of a label add up to zero."""
    graph = dense(0)
    split = split_variables(graph, allowed_labels(graph), np.arange(9), 160.0)
    copies = _Copies(split)
    rng = np.random.default_rng(0)
    moves = copies.moves(rng.random(split.graph.unary_values.size) * rng.integers(0, 2))
    sums = moves.reshape(-1, 2)[:9].copy()
    first = list(range(9))
    for variable, copy in split.pairs:
        first.append(first[variable])
        sums[first[copy]] += moves.reshape(-1, 2)[copy]
    assert len(split.pairs) > 3
    assert sums == pytest.approx(np.zeros((9, 2)), abs=1e-12)
    for v in range(9):
        assert copies.weights[np.array(first) == v].sum() == pytest.approx(1.0)


def test_time_limit_leaves_a_bound():
    graph = dense(1)
    exact = exhaustive(graph).log_partition(1.0)
    name = "weighted-mini-buckets(max_entries=160, tolerance=0, max_sweeps=1000000)"
    s = il.solve(graph, name, temperature=1.0, time_limit=0.3)
    assert (s.status, s.log_partition_kind) == ("limit", "upper")
    assert s.log_partition >= exact


def test_refusals():
    graph = dense(0)
    assert "temperature above 0" in il.solve(graph, "weighted-mini-buckets").message
    tiny = il.solve(graph, "weighted-mini-buckets(max_entries=8)", temperature=1.0)
    assert tiny.message == "its terms need tables of over 8 entries"
    wide = il.FactorGraph.from_factors([2] * 18, [(tuple(range(18)), np.zeros((2,) * 18))])
    large = il.solve(wide, "weighted-mini-buckets", temperature=1.0)
    assert "more than 200000; try trw-bp" in large.message


def test_infeasible_graphs_are_found():
    table = np.array([[math.inf, 0.0], [0.0, math.inf]])
    graph = il.FactorGraph.pairwise(np.zeros((3, 2)), [(0, 1), (1, 2), (0, 2)], [table] * 3)
    s = il.solve(graph, "weighted-mini-buckets", temperature=1.0)
    assert s.status == "infeasible"
