"""Brute force: ties, stops, and refusals."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

import inference_lab as il
from inference_lab.conformance import exhaustive
from inference_lab.graph.random_graphs import random_graph
from inference_lab.solvers.brute_force import BruteForce


@pytest.mark.parametrize("family", ["ties", "equal"])
def test_ties_go_to_the_first_labelling_in_lexicographic_order(family):
    tied = 0
    for seed in range(8):
        graph = random_graph(family, seed)
        energies = exhaustive(graph).energies
        tied += (energies == energies.min()).sum() > 1
        labels = il.solve(graph, "brute-force").labels
        assert np.ravel_multi_index(tuple(labels), energies.shape) == energies.argmin()
    assert tied >= 5


def binary(n):
    """Return a graph of `n` variables of two labels; a pass over 2^17 labellings is one step."""
    rng = np.random.default_rng(1)
    edges = [(i, i + 1) for i in range(n - 1)]
    return il.FactorGraph.potts(rng.normal(size=(n, 2)), edges, rng.normal(size=n - 1))


def test_a_stopped_pass_gives_the_best_so_far_and_proves_nothing():
    graph = binary(18)
    energies = exhaustive(graph).energies
    s = il.solve(graph, "brute-force", max_iterations=1)
    assert s.status == "limit"
    assert s.lower_bound == -math.inf
    assert s.iterations == 1
    assert s.energy == pytest.approx(energies[tuple(s.labels)])
    assert s.claimed_energy == pytest.approx(s.energy)
    # It is the best of a prefix of the lexicographic order.
    visited = int(np.ravel_multi_index(tuple(s.labels), energies.shape))
    assert visited < 1 << 17
    assert (energies.ravel()[:visited] > s.energy).all()


def test_a_stop_between_the_passes_leaves_the_minimum_but_no_marginals():
    graph = binary(19)
    first = il.solve(graph, "brute-force")
    both = il.solve(graph, "brute-force", temperature=1.0)
    # Stop within the second pass.
    s = il.solve(
        graph,
        "brute-force",
        temperature=1.0,
        max_iterations=(first.iterations + both.iterations) // 2,
    )
    assert first.iterations < s.iterations < both.iterations
    assert s.status == "limit"
    assert s.energy == first.energy == s.lower_bound
    assert s.marginals is None and s.log_partition is None and s.log_partition_kind is None


def test_blocks_that_hard_constraints_forbid_are_skipped():
    """Of 2^28 labellings of 28 tied variables 2 are finite, in 2 blocks."""
    n = 28
    rng = np.random.default_rng(0)
    unary = rng.normal(size=(n, 2))
    graph = il.FactorGraph.potts(unary, [(i, i + 1) for i in range(n - 1)], np.inf)
    s = il.solve(graph, BruteForce(max_states=2**n), temperature=1.0)
    sums = unary.sum(axis=0)
    assert s.energy == pytest.approx(sums.min())
    assert s.log_partition == pytest.approx(np.logaddexp(-sums[0], -sums[1]))
    p = 1 / (1 + math.exp(sums[0] - sums[1]))
    assert s.marginals == pytest.approx(np.tile([p, 1 - p], (n, 1)))
    assert s.iterations == 4


@pytest.mark.parametrize(
    ("n", "k", "count"), [(25, 2, "33554432"), (16, 3, "43046721"), (100, 5, r"about 2\^232")]
)
def test_too_many_labellings_are_refused_with_their_number(n, k, count):
    graph = il.FactorGraph.potts(np.zeros((n, k)), [(0, 1)], 1.0)
    s = il.solve(graph, "brute-force")
    assert s.status == "unsupported"
    assert s.labels is None
    assert re.match(f"{count} labellings .* max_states is 16777216$", s.message)


def test_max_states_is_inclusive_and_checked():
    graph = il.FactorGraph.potts(np.zeros((10, 2)), [(0, 1)], 1.0)
    assert BruteForce(max_states=1024).supports(graph, 0.0) is None
    assert "1024 labellings" in BruteForce(max_states=1023).supports(graph, 1.0)
    for bad in (0, 2**63):
        with pytest.raises(ValueError, match="max_states must be between"):
            BruteForce(max_states=bad)


def test_many_variables_of_one_label_are_one_labelling():
    n = 20_000
    graph = il.FactorGraph.potts(np.ones((n, 1)), [(i, i + 1) for i in range(n - 1)], 1.0)
    s = il.solve(graph, "brute-force", temperature=1.0)
    assert s.energy == n
    assert s.log_partition == -n
