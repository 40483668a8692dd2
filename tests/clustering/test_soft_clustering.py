"""Soft constrained clustering: mixtures and deterministic annealing, against exact sums."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.mixture import GaussianMixture

from inference_lab.clustering import (
    ConstrainedGaussianMixture,
)
from inference_lab.clustering.alpha_weights import alpha_weights
from inference_lab.clustering.violations import violations
from inference_lab.constraints import Constraints
from inference_lab.results.scoring import pairwise_f


def exact_posterior(model, points, must_link, cannot_link, weight):
    """Sum over all labellings; return marginals and minus the log of the sum."""
    n, k = len(points), model.n_clusters
    origin = model._format.origin
    density = model._components.log_densities(points - origin)
    touched = np.zeros(n, dtype=bool)
    touched[np.array(must_link + cannot_link).ravel()] = True
    density[~touched] += np.log(model.weights_)
    marginals, total = np.zeros((n, k)), 0.0
    for labels in itertools.product(range(k), repeat=n):
        energy = -sum(density[i, a] for i, a in enumerate(labels))
        energy += weight * sum(labels[i] != labels[j] for i, j in must_link)
        energy += weight * sum(labels[i] == labels[j] for i, j in cannot_link)
        share = math.exp(-energy)
        total += share
        marginals[np.arange(n), list(labels)] += share
    return marginals / total, -math.log(total)


@pytest.fixture
def small():
    rng = np.random.default_rng(3)
    points = np.concatenate([rng.normal(0, 1, (4, 2)), rng.normal(2, 1, (4, 2))])
    return points, [(0, 1), (4, 6)], [(1, 4), (2, 6), (0, 2)]


def test_responsibilities_are_the_exact_posterior_marginals(small):
    points, must_link, cannot_link = small
    model = ConstrainedGaussianMixture(
        2, e_step="junction-tree", covariance_type="diag", reg_covar=0.05, random_state=0, tol=1e-12
    )
    model.fit(points, must_link=must_link, cannot_link=cannot_link, ml_weight=1.5, cl_weight=1.5)
    marginals, free_energy = exact_posterior(model, points, must_link, cannot_link, 1.5)
    np.testing.assert_allclose(model.responsibilities_, marginals, atol=1e-9)
    assert model.objective_ == pytest.approx(free_energy, abs=1e-9)


def test_without_constraints_it_is_the_gaussian_mixture_of_scikit_learn():
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.normal(0, 1, (60, 3)), rng.normal(4, 0.5, (40, 3))])
    ours = ConstrainedGaussianMixture(2, random_state=0, tol=1e-12, max_iter=500).fit(points)
    theirs = GaussianMixture(
        2,
        means_init=ours.means_,
        weights_init=ours.weights_,
        precisions_init=np.linalg.inv(ours.covariances_),
        tol=1e-12,
        max_iter=500,
    ).fit(points)
    assert ours.objective_ == pytest.approx(-len(points) * theirs.lower_bound_, rel=1e-6)
    np.testing.assert_allclose(ours.means_, theirs.means_, atol=1e-4)
    np.testing.assert_allclose(ours.covariances_, theirs.covariances_, atol=1e-4)
    np.testing.assert_allclose(ours.predict_proba(points), theirs.predict_proba(points), atol=1e-4)
    assert ours.score(points) == pytest.approx(theirs.score(points), abs=1e-6)


def test_a_chunklet_counts_its_mixing_weight_once(small):
    points, must_link, _ = small
    model = ConstrainedGaussianMixture(
        2, e_step="junction-tree", prior="chunklets", reg_covar=0.05, random_state=0, tol=1e-12
    ).fit(points, must_link=must_link, ml_weight=np.inf)
    # Shental et al. 2003: p(l | chunklet) ~ pi_l prod p(x | l), independently for each chunklet.
    density = model._components.log_densities(points - model._format.origin)
    for chunklet in ([0, 1], [4, 6], [2], [3]):
        log = np.log(model.weights_) + density[chunklet].sum(axis=0)
        expected = np.exp(log - log.max())
        for i in chunklet:
            np.testing.assert_allclose(
                model.responsibilities_[i], expected / expected.sum(), atol=1e-6
            )
    # and the mixing weights are the means over chunklets.
    singles = [0, 4, 2, 3, 5, 7]
    np.testing.assert_allclose(
        model.weights_, model.responsibilities_[singles].mean(axis=0), atol=1e-6
    )


def test_mixing_weights_come_from_unconstrained_points_only(small):
    points, must_link, cannot_link = small
    model = ConstrainedGaussianMixture(
        2, e_step="junction-tree", reg_covar=0.05, random_state=0, tol=1e-12
    ).fit(points, must_link=must_link, cannot_link=cannot_link)
    free = [3, 5, 7]
    np.testing.assert_allclose(
        model.weights_, model.responsibilities_[free].mean(axis=0), atol=1e-6
    )


@given(
    seed=st.integers(0, 10**6),
    weight=st.sampled_from([0.1, 1.0, 1000.0]),
    covariance=st.sampled_from(["full", "tied", "diag", "spherical"]),
    alpha=st.sampled_from([0.2, 0.5]),
    mode=st.sampled_from(["sum", "mean"]),
    e_step=st.sampled_from(["mean-field", "junction-tree"]),
)
def test_the_free_energy_never_rises(seed, weight, covariance, alpha, mode, e_step):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(30, 2)) + 3 * rng.integers(2, size=(30, 1))
    pairs = Constraints.sample(rng.integers(3, size=30), 12, rng)
    model = ConstrainedGaussianMixture(
        3,
        covariance_type=covariance,
        alpha=alpha,
        alpha_mode=mode,
        e_step=e_step,
        # Ridges are not part of the objective: far below the variances, they are negligible.
        reg_covar=1e-9,
        random_state=seed,
        max_iter=25,
    ).fit(points, **pairs.with_weights(weight, weight).fit_params())
    values = np.array([line.objective for line in model.history_])
    scale = np.abs(values).max() + 1
    # A component that collapses onto a point has the variance of the ridge.
    if min(np.linalg.eigvalsh(np.atleast_2d(c)).min() for c in wide(model)) > 1e-6:
        assert np.diff(values).max() <= 1e-8 * scale


def wide(model):
    d = model.n_features_in_
    if model.covariance_type == "full":
        return model.covariances_
    if model.covariance_type == "tied":
        return [model.covariances_]
    return [np.diag(np.broadcast_to(c, (d,))) for c in model.covariances_]


def test_weights_of_supervised_points():
    supervised = np.array([True, False, False, False])
    assert alpha_weights(supervised, 0.5, "sum") is None
    np.testing.assert_allclose(alpha_weights(supervised, 0.5, "mean"), [2, 2 / 3, 2 / 3, 2 / 3])
    # As in the paper: alpha = |unlabelled| / n under "mean" is one weight for all.
    np.testing.assert_allclose(alpha_weights(supervised, 0.75, "mean"), np.ones(4))
    ratio = alpha_weights(supervised, 0.2, "sum")
    assert ratio[0] / ratio[1] == pytest.approx(4.0)


def test_fewest_violations_violates_no_more_than_any_alpha():
    """Violations are counted without constraints: with large weights, no alpha violates any."""
    rng = np.random.default_rng(5)
    points = rng.normal(size=(60, 2)) + 2 * (np.arange(60) % 2)[:, np.newaxis]
    pairs = Constraints.sample(np.arange(60) % 2, 40, rng)
    arguments = pairs.with_weights(1000.0, 1000.0).fit_params()

    def violated(alpha):
        model = ConstrainedGaussianMixture(2, alpha=alpha, prior="points", random_state=0)
        return violations(pairs, model.fit(points, **arguments).predict(points)).weight

    counts = {alpha: violated(alpha) for alpha in (0.1, 0.3, 0.5, 0.7, 0.9)}
    assert violated("fewest-violations") <= min(counts.values()) < max(counts.values())


def test_strong_constraints_are_followed_on_two_overlapping_clusters():
    # The toy of Lange et al. 2005: clusters that only constraints can separate.
    rng = np.random.default_rng(4)
    truth = np.repeat([0, 1], 60)
    points = rng.normal(size=(120, 2)) * [2.0, 0.3] + np.stack([np.zeros(120), 1.2 * truth], axis=1)
    pairs = Constraints.sample(truth, 120, rng)
    model = ConstrainedGaussianMixture(2, random_state=0)
    model.fit(points, **pairs.with_weights(1000.0, 1000.0).fit_params())
    assert pairwise_f(truth, model.labels_) > 0.95
