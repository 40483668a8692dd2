"""E-steps of real data: how many constraints, what they weigh, and clusters with a price."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris

import inference_lab as il
from inference_lab.clustering import DPMeans
from inference_lab.contract import Status
from inference_lab.registry.sources import as_problem
from inference_lab.specs.grammar import SpecError

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


def test_constraints_are_counted_by_point():
    problem = as_problem("estep(data=iris, constraints_per_point=2)")
    assert problem.graph.n_edges == 300
    assert problem.name == "estep(data=iris, constraints=none, constraints_per_point=2)"
    assert as_problem(problem.name).graph.content_hash == problem.graph.content_hash
    half = as_problem("estep(data=iris, constraints_per_point=2, train=0.5)")
    assert half.graph.n_edges == 150
    with pytest.raises(SpecError, match="constraints=50 and constraints_per_point="):
        as_problem("estep(data=iris, constraints=50, constraints_per_point=2)")
    with pytest.raises(SpecError, match="constraints=none needs constraints_per_point"):
        as_problem("estep(data=iris, constraints=none)")


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.3])
def test_calibrated_weights_are_log_odds(noise):
    """Energies are log-probabilities of the Gaussians and the answers, times twice the variance."""
    text = f"estep(data=iris, constraints=200, noise={noise}, weight=calibrated, standardise=true)"
    problem = as_problem(text)
    points = load_iris().data
    points = (points - points.mean(axis=0)) / points.std(axis=0)
    clusters = KMeans(3, n_init=10, random_state=0).fit(points)
    variance = clusters.inertia_ / points.size
    wrong = (200 * noise + 0.5) / 201
    expected = 2 * variance * (np.log1p(-wrong) - np.log(wrong))
    assert problem.info["weight"] == pytest.approx(expected, rel=0.01)
    other = as_problem(text[:-1] + ", weight_factor=3, seed=5)")
    assert other.info["weight"] == pytest.approx(3 * problem.info["weight"])


def test_answers_wrong_as_often_as_right_weigh_nothing():
    problem = as_problem("estep(data=iris, constraints=99, noise=0.5, weight=calibrated)")
    assert problem.info["weight"] == 0.0


def test_the_share_of_the_largest_component_is_told():
    problem = as_problem("estep(data=iris, constraints=700, noise=0.3)")
    components = il.Constraints(
        problem.graph.edges[problem.graph.edge_weights > 0], None, n_points=150
    ).components()
    assert problem.info["largest_component"] == np.bincount(components).max() / 150 > 0.8
