"""Deterministic annealing: critical temperatures, and solutions found during cooling."""

import itertools

import numpy as np
import pytest
from clusterers import by_pairs

from inference_lab.clustering import (
    AnnealedConstrainedKMeans,
    AnnealedConstrainedMixture,
    ConstrainedGaussianMixture,
    PCKMeans,
    SquaredEuclidean,
    TVClust,
)
from inference_lab.clustering.annealed import _critical, critical_temperature
from inference_lab.clustering.e_step import ShareStep
from inference_lab.clustering.em import maximise_expectation
from inference_lab.clustering.hmrf import HMRF
from inference_lab.clustering.mixture import GaussianComponents
from inference_lab.constraints import Constraints
from inference_lab.distortions.points import whitened
from inference_lab.reports.patterns import four_clouds
from inference_lab.results.scoring import matched_accuracy


def gaussians(points, pairs, covariance, k=2, alpha_weight=None):
    nowhere = np.zeros((k, points.shape[1]))
    prior = "maximum-entropy"
    return GaussianComponents(
        points, by_pairs(pairs), nowhere, covariance, 0.0, prior, alpha_weight
    )


@pytest.fixture(scope="module")
def correlated():
    """Return correlated points with heavy tails, pairs among them, and point weights."""
    rng = np.random.default_rng(1)
    points = rng.standard_t(6, size=(80, 3)) @ np.array([[3.0, 1.0, 0.0], [0, 1, 0.5], [0, 0, 0.3]])
    drawn = Constraints.sample(rng.integers(2, size=80), 15, rng)
    pairs = Constraints(drawn.must_link, drawn.cannot_link, 0.8, 0.5, n_points=80)
    alpha_weight = np.ones(80)
    alpha_weight[np.concatenate([pairs.must_link, pairs.cannot_link]).ravel()] = 1.7
    return points, pairs, alpha_weight * 80 / alpha_weight.sum()


MODELS = ["full", "tied", "diag", "spherical", "k-means"]


def coinciding(name, points, pairs, alpha_weight):
    if name != "k-means":
        return gaussians(points, pairs, name, alpha_weight=alpha_weight)
    nowhere = np.zeros((2, points.shape[1]))
    return HMRF(points, by_pairs(pairs), SquaredEuclidean(), nowhere, alpha_weight=alpha_weight)


@pytest.mark.parametrize("name", MODELS)
def test_the_response_is_the_derivative_of_the_costs_by_the_shares(name, correlated):
    points, pairs, alpha_weight = correlated
    model = coinciding(name, points, pairs, alpha_weight)
    _critical(model, len(points))
    change = np.random.default_rng(2).normal(size=len(points))
    answer = model.response()(change)
    costs = []
    for step in (1e-5, -1e-5):
        shares = 0.5 + step * np.stack([change, -change], axis=1)
        list(model.maximise(shares))
        costs.append(model.costs()[:, 0])
    # The factor 2 is the number of clusters.
    np.testing.assert_allclose(answer, (costs[1] - costs[0]) / 2e-5 / 2, atol=1e-7)


@pytest.mark.parametrize("name", MODELS)
def test_two_per_cent_above_the_critical_temperature_clusters_are_one_and_below_not(
    name, correlated
):
    points, pairs, alpha_weight = correlated
    model = coinciding(name, points, pairs, alpha_weight)
    critical = _critical(model, len(points))

    def growth(temperature):
        """Return the growth of the unevenness of the shares from one check to the next."""
        _critical(model, len(points))
        model.push_apart(1e-3, np.random.default_rng(0))
        e_step = ShareStep(
            "mean-field(tolerance=1e-12)",
            np.random.default_rng(0),
            temperature=temperature,
            follow=True,
        )
        shares, uneven = None, []
        for _ in range(2):
            result = maximise_expectation(model, e_step, max_iter=40, tol=0.0, start=shares)
            shares = result.assignment
            uneven.append(np.abs(shares - 0.5).max())
        return uneven[1] / uneven[0]

    assert growth(1.02 * critical) < 0.7 < 1.4 < growth(0.98 * critical)


def test_constraints_alone_make_the_critical_temperature_of_the_toy():
    """With a weight of 1000 and two pairs, one pair determines it: 1000 over two clusters."""
    points, truth = four_clouds()
    pairs = Constraints.sample(truth, 2, np.random.default_rng(0))
    weighty = Constraints(pairs.must_link, pairs.cannot_link, 1e3, 1e3, n_points=200)
    assert _critical(gaussians(points, weighty, "full"), 200) == pytest.approx(500, rel=0.01)
    none = Constraints(None, None, n_points=200)
    # After whitening, all directions have equal variance.
    assert _critical(gaussians(points, none, "tied"), 200) == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("e_step", ["mean-field", "loopy-bp", "junction-tree"])
def test_annealing_finds_left_and_right_on_the_toy(e_step):
    """On the toy of Lange et al. 2005 EM with mean field freezes in its first labels."""
    points, truth = four_clouds()
    pairs = Constraints.sample(truth, 30, np.random.default_rng(3))
    arguments = pairs.with_weights(1000.0, 1000.0).fit_params()
    model = AnnealedConstrainedMixture(2, e_step=e_step, random_state=0).fit(points, **arguments)
    assert matched_accuracy(truth, model.labels_) > 0.97
    assert (np.diff(model.temperatures_) < 0).all() and model.temperatures_[-1] == 1.0


def test_annealing_ends_in_the_objective_of_pckmeans():
    rng = np.random.default_rng(2)
    truth = np.repeat(np.arange(3), 20)
    points = rng.normal(size=(60, 2)) + 3.0 * np.array([[0, 0], [1, 0], [0, 1]])[truth]
    pairs = Constraints.sample(truth, 40, rng)
    arguments = pairs.with_weights(2.0, 2.0).fit_params()
    model = AnnealedConstrainedKMeans(3, random_state=0).fit(points, **arguments)
    labels, centroids = model.labels_, model.cluster_centers_
    expected = ((points - centroids[labels]) ** 2).sum()
    expected += 2.0 * (labels[pairs.must_link[:, 0]] != labels[pairs.must_link[:, 1]]).sum()
    expected += 2.0 * (labels[pairs.cannot_link[:, 0]] == labels[pairs.cannot_link[:, 1]]).sum()
    assert model.objective_ == pytest.approx(expected)
    single = [
        PCKMeans(3, init="random", random_state=seed).fit(points, **arguments).objective_
        for seed in range(10)
    ]
    assert model.objective_ <= np.median(single) + 1e-9
    # Constraints act above the temperature of the data alone, and change it in no other way.
    alone = critical_temperature(points, SquaredEuclidean())
    assert 1.05 * alone < model.temperatures_[0] < 1.05 * (alone + 2.0 * 60)
    # The objective never rises at a fixed temperature.
    by_stage = itertools.groupby(model.history_, key=lambda line: line.iteration)
    for _, lines in by_stage:
        values = [line.objective for line in lines]
        assert np.diff(values).max(initial=0.0) <= 1e-8 * abs(values[0])


@pytest.mark.parametrize("kind", [AnnealedConstrainedMixture, ConstrainedGaussianMixture, TVClust])
def test_small_components_do_not_wait_for_all_cores(kind, monkeypatch):
    """SciPy's triangular solver uses all cores: 30 points took 10 s on a busy machine."""

    def refuse(*arguments, **settings):
        raise AssertionError("solve_triangular was called")

    monkeypatch.setattr("scipy.linalg.solve_triangular", refuse)
    points = np.ones((30, 3))  # one feature is constant
    points[:, :2] = np.random.default_rng(0).normal(size=(30, 2))
    points[15:, :2] += 6.0
    model = kind(2, random_state=0).fit(points, cannot_link=[(0, 20)])
    assert np.unique(model.labels_).tolist() == [0, 1]


def test_whitened_gaps_are_exact_for_any_units_of_features():
    rng = np.random.default_rng(0)
    units = np.array([1e-6, 1.0, 1e6])
    factor = units[:, None] * np.linalg.cholesky(np.cov(rng.normal(size=(3, 9))))
    white = rng.normal(size=(5, 3))
    np.testing.assert_allclose(whitened(factor, white @ factor.T), white, rtol=1e-9)


def test_the_start_of_least_free_energy_is_kept():
    points, truth = four_clouds()
    pairs = Constraints.sample(truth, 30, np.random.default_rng(3))
    arguments = pairs.with_weights(1000.0, 1000.0).fit_params()
    one, best = (
        AnnealedConstrainedMixture(2, cooling=0.5, n_init=n, random_state=5).fit(
            points, **arguments
        )
        for n in (1, 3)
    )
    assert best.objective_ < one.objective_ - 1.0
    assert matched_accuracy(truth, one.labels_) < 0.97 < matched_accuracy(truth, best.labels_)
