"""Copies of variables: sizes of their tables, and estimates against exact values."""

from __future__ import annotations

import numpy as np
import pytest

import inference_lab as il
from inference_lab.algorithms.elimination.arc_consistency import allowed_labels
from inference_lab.algorithms.elimination.edge_deletion import Compensation, split_variables

RNG = np.random.default_rng(3)
STAR = il.FactorGraph.from_terms(
    RNG.normal(size=(5, 3)),
    factors=[((0, i), [[0.0, np.inf, 1.0], *RNG.normal(size=(2, 3))]) for i in range(1, 5)],
)


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_fixed_point_is_exact_where_the_copies_form_a_tree(temperature):
    """The centre, eliminated first, has a copy for each leaf but one."""
    split = split_variables(STAR, allowed_labels(STAR), np.arange(5), 50.0)
    assert [v for v, _ in split.pairs] == [0, 0, 0]
    costs = Compensation(split)
    for _ in range(100):
        graph = split.graph.with_unary(costs.unary(temperature).reshape(-1, 3))
        s = il.solve(graph, "junction-tree", temperature=temperature)
        estimate = s.log_partition - costs.correction()
        if costs.update(s.marginals.ravel(), 0.3) < 1e-12:
            break
    exact = il.solve(STAR, "brute-force", temperature=temperature)
    assert estimate == pytest.approx(exact.log_partition, abs=1e-9)
    assert s.marginals[:5] == pytest.approx(exact.marginals, abs=1e-9)


def test_no_copy_where_the_tables_fit_and_none_where_a_term_does_not():
    domains = allowed_labels(STAR)
    whole = split_variables(STAR, domains, np.arange(5), 1000.0)
    assert whole.pairs == []
    x = [[0, 2, 2, 0, 2], [2, 1, 0, 2, 1]]
    assert whole.graph.energy(x) == pytest.approx(STAR.energy(x))
    assert split_variables(STAR, domains, np.arange(5), 8.0) is None
