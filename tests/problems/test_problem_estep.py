"""The E-step whose clusters have a price."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_iris

import inference_lab as il
from inference_lab.clustering import DPMeans
from inference_lab.contract import Status
from inference_lab.registry.sources import as_problem

OPEN = "estep(data=iris, constraints=30, clusters=open)"


def test_clusters_that_are_there_to_be_opened():
    plain, more = as_problem("estep(data=iris, constraints=30)"), as_problem(OPEN)
    assert plain.graph.n_label_costs == 0 and more.graph.n_label_costs == 6
    np.testing.assert_array_equal(more.graph.unary[:, :3], plain.graph.unary)
    # The clusters besides are at points of the data, each the dearest one so far.
    for a in range(3, 6):
        dearest = more.graph.unary[:, :a].min(axis=1)
        assert more.graph.unary[dearest.argmax(), a] == pytest.approx(0.0, abs=1e-9)
    without = more.graph.with_label_costs().energy(more.truth)
    assert without == pytest.approx(plain.graph.energy(plain.truth))
    assert more.graph.energy(more.truth) == pytest.approx(without + 3 * more.info["label_cost"])


def test_the_price_is_that_of_the_rule():
    points = load_iris().data
    price = DPMeans(3, cluster_cost="farthest-first").fit(points).cluster_cost_
    assert as_problem(OPEN).info["label_cost"] == pytest.approx(price)
    given = as_problem("estep(data=iris, constraints=30, label_cost=7.5)")
    assert given.graph.label_costs.sets() == [((a,), 7.5) for a in range(3)]
    assert as_problem(OPEN[:-1] + ", label_cost=2.5)").info["label_cost"] == 2.5


def test_solvers_that_heed_prices_agree_and_others_say_so():
    graph = as_problem(OPEN).graph
    exact = il.solve(graph, "ilp", time_limit=30)
    assert exact.status == Status.OPTIMAL
    for spec in ("icm", "alpha-expansion"):
        found = il.solve(graph, spec)
        assert exact.energy <= found.energy + 1e-6 <= 1.3 * exact.energy
    refused = il.solve(graph, "trw-s")
    assert refused.status == Status.UNSUPPORTED and "label costs" in refused.message
