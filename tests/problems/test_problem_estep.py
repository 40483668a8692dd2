"""E-steps of real data: numbers of constraints, and weights."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris

import inference_lab as il
from inference_lab.cli import main
from inference_lab.registry.sources import as_problem
from inference_lab.specs.grammar import SpecError


def test_constraints_are_counted_by_point():
    problem = as_problem("estep(data=iris, constraints_per_point=2)")
    assert problem.graph.n_edges == 300
    assert (
        problem.name
        == "estep(data=iris, constraints=none, constraints_per_point=2, centroids=kmeans)"
    )
    assert as_problem(problem.name).graph.content_hash == problem.graph.content_hash
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


def test_uninformative_answers_have_weight_zero():
    problem = as_problem("estep(data=iris, constraints=99, noise=0.5, weight=calibrated)")
    assert problem.info["weight"] == 0.0


def test_share_of_the_largest_component_is_reported():
    problem = as_problem("estep(data=iris, constraints=700, noise=0.3)")
    components = il.Constraints(
        problem.graph.edges[problem.graph.edge_weights > 0], None, n_points=150
    ).components()
    assert problem.info["largest_component"] == np.bincount(components).max() / 150 > 0.8


def test_points_are_drawn_and_classes_without_any_do_not_count():
    """Other random choices do not change with the number of points."""
    text = "estep(data=gaussians-uneven, points={}, constraints=20, seed={})"
    problem = as_problem(text.format(40, 0))
    assert problem.graph.n_variables == 40
    counts = np.bincount(problem.truth)
    assert counts.min() > 0 and len(counts) == problem.info["clusters"] < 8
    other = as_problem(text.format(40, 1))
    assert not np.array_equal(np.sort(other.graph.unary, 0), np.sort(problem.graph.unary, 0))
    whole, as_many = (
        as_problem(f"estep(data=iris{few}, constraints=20)") for few in ("", ", points=150")
    )
    assert whole.graph.content_hash == as_many.graph.content_hash


def test_centroids_of_em_are_at_rest():
    """A descent from the last labels changes none, and centroids are means of their labels."""
    text = "estep(data=iris, constraints_per_point=2, noise=0.1, weight=calibrated, centroids={})"
    before, after = (as_problem(text.format(start)) for start in ("kmeans", "em"))
    points = load_iris().data
    rest = il.solve(after.graph, "icm(order=sequential)", initial=before.truth)
    nearest = after.graph.unary.argmin(axis=1)
    labels = il.solve(after.graph, "icm", initial=nearest).labels
    means = np.array([points[labels == h].mean(axis=0) for h in range(3)])
    apart = ((points[:, np.newaxis] - means) ** 2).sum(axis=2)
    # Labels found from the nearest centroids need not be the last ones, but hardly differ.
    assert np.abs(apart - after.graph.unary).max() < 0.05 * after.graph.unary.max()
    assert rest.energy <= before.graph.energy(before.truth)
    assert after.score(labels)["ari"] > before.score(before.graph.unary.argmin(axis=1))["ari"]


def test_scores_on_constraints():
    problem = as_problem("estep(data=iris, constraints=10)")
    right = problem.score(problem.truth)
    assert right["ari_constrained"] == 1.0 and right["violated"] == 0.0
    one = np.zeros_like(problem.truth)
    assert problem.score(one)["violated"] == problem.info["cannot_links"] / 10
    touched = np.unique(problem.graph.edges)
    wrong = problem.truth.copy()
    wrong[np.setdiff1d(np.arange(150), touched)] = 0
    assert problem.score(wrong)["ari_constrained"] == 1.0 > problem.score(wrong)["ari"]
    assert "violated" not in as_problem("estep(data=iris, constraints=0)").score(one)


def test_remarks_about_giants_and_weights_far_out():
    spec = "estep(data=iris, constraints=800, noise=0.3, weight_factor=10, centroids=constraints)"
    noisy = as_problem(spec)
    giant, far = noisy.info["remarks"]
    assert "must-links connect" in giant and "centroids=kmeans" in giant
    assert f"is {noisy.info['weight_over_calibrated']:.3g} times" in far
    flat = " ".join(il.compare(noisy, ["icm"]).to_text().split())
    assert f"; {giant}; {far}" in flat
    diagnosis = il.diagnose(noisy, time_limit=0)
    assert diagnosis.summary()["remarks"] == f"{giant}; {far}"
    assert diagnosis.to_dict()["remarks"] == [giant, far]
    printed = CliRunner().invoke(main, ["solve", spec, "--solver", "icm"]).stdout
    assert f"{giant}\n{far}\n" in printed
    text = "estep(data=iris, constraints=800, noise=0.3, weight=calibrated)"
    calm = as_problem(text)
    assert "remarks" not in calm.info and calm.info["weight_over_calibrated"] == 1.0
    assert calm.info["largest_component"] > 0.5
