"""Degenerate metrics, contradictory constraints, and data out of range."""

import warnings

import numpy as np
import pytest
from scipy.sparse import random_array
from sklearn.datasets import load_iris

from inference_lab.clustering import (
    LCVQE,
    AnnealedConstrainedKMeans,
    AnnealedConstrainedMixture,
    BregmanKMeans,
    ConstrainedGaussianMixture,
    ConstrainedKMeans,
    COPKMeans,
    DegenerateMetricWarning,
    HMRFKMeans,
    InfeasibleConstraintsError,
    KernelHMRFKMeans,
    MPCKMeans,
    PCKMeans,
    SizeConstrainedKMeans,
    TVClust,
)
from inference_lab.constraints import Constraints
from inference_lab.distortions.metric_learning import effective_rank


def two_groups() -> tuple[np.ndarray, Constraints]:
    """Return points of two directions, and pairs."""
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1], 20)
    points = rng.random((40, 6)) + 2.0 * np.eye(6)[truth]
    return points, Constraints.sample(truth, 40, rng)


def test_weights_of_the_cosine_stop_short_of_one_feature():
    points, pairs = two_groups()
    # In a single feature all angles are zero, and so is J.
    one = HMRFKMeans(2, distortion="cosine", metric="gradient", max_iter=300, random_state=0)
    with pytest.warns(DegenerateMetricWarning, match="counts for 2 of 6 features only"):
        one.fit(points, **pairs.fit_params())
    assert effective_rank(one.metric_.weights) >= 2.0
    assert one.objective_ > 0.01
    assert (np.diff([line.objective for line in one.history_]) <= 1e-9).all()


def test_a_full_metric_of_fewer_points_than_features_is_bounded():
    points = np.random.default_rng(0).normal(size=(20, 40))
    model = MPCKMeans(2, metric="full", random_state=0)
    model.fit(points, must_link=[(0, 1)], cannot_link=[(2, 3)])
    # Directions without variance counted a million times as much as others.
    values = np.linalg.eigvalsh(model.metric_.weights)
    assert 0 < values.min() and values.max() < 1e3 * values.min()


def test_a_full_metric_of_enough_points_is_the_closed_form():
    points = np.random.default_rng(0).normal(size=(60, 3))
    model = MPCKMeans(2, metric="full", random_state=0, tol=0.0).fit(points)
    gaps = points - model.cluster_centers_[model.labels_]
    inverse = 60.0 * np.linalg.inv(gaps.T @ gaps)
    np.testing.assert_allclose(model.metric_.weights, inverse, rtol=1e-3, atol=1e-3)


def test_a_full_metric_of_very_many_features_is_refused():
    wide = random_array((30, 20_000), density=0.001, rng=np.random.default_rng(0), format="csr")
    with pytest.raises(ValueError, match=r"20000 features is a matrix of 3\.2 GB"):
        MPCKMeans(2, metric="full").fit(wide)


POINTS = np.arange(12.0).reshape(6, 2)


@pytest.mark.parametrize(
    ("kind", "solver"),
    [
        (PCKMeans, "icm"),
        (HMRFKMeans, "ilp"),
        (ConstrainedGaussianMixture, "junction-tree"),
        (ConstrainedGaussianMixture, "mean-field"),
    ],
)
@pytest.mark.parametrize(
    ("pairs", "supervision"),
    [
        (
            {"must_link": [(1, 2), (2, 4)], "cannot_link": [(1, 4)]},
            "must-links connect points 1 and 4, which are a cannot-link",
        ),
        (
            {"cannot_link": [(1, 3), (3, 5), (1, 5)]},
            "each two of the points 1, 3, 5 are a cannot-link, and there are 2 clusters",
        ),
        (
            {"must_link": [(1, 2), (2, 4)], "partial_labels": [-1, 0, -1, -1, 1, -1]},
            "no cluster is open to all of the points 1, 2, 4, which must-links connect",
        ),
    ],
)
def test_an_infeasible_e_step_names_the_contradiction(kind, solver, pairs, supervision):
    hard = {"ml_weight": np.inf, "cl_weight": np.inf}
    with pytest.raises(InfeasibleConstraintsError, match=supervision):
        kind(2, e_step=solver, init=POINTS[:2]).fit(POINTS, **pairs, **hard)


def test_hard_constraints_that_can_be_kept_are_no_contradiction():
    supervision = {
        "must_link": [(0, 5)],
        "cannot_link": [(0, 1), (1, 2)],
        "partial_labels": [-1] * 5 + [1],
    }
    model = PCKMeans(2, e_step="ilp", init=POINTS[:2])
    model.fit(POINTS, **supervision, ml_weight=np.inf, cl_weight=np.inf)
    assert model.labels_[[0, 1, 2, 5]].tolist() == [1, 0, 1, 1]


@pytest.mark.parametrize("covariance", ["full", "tied", "diag", "spherical"])
@pytest.mark.parametrize("kind", [ConstrainedGaussianMixture, AnnealedConstrainedMixture])
def test_components_without_volume(kind, covariance):
    with pytest.raises(ValueError, match="component 0 has no volume with reg_covar=0"):
        kind(2, covariance_type=covariance, reg_covar=0.0, random_state=0).fit(np.ones((20, 2)))


@pytest.mark.parametrize("kind", [PCKMeans, COPKMeans, KernelHMRFKMeans, ConstrainedKMeans])
def test_values_out_of_range_are_refused(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=r"size 1e\+200; values up to 1e\+48"):
            kind(2).fit(np.r_[[[1e200, 0.0]], POINTS])
        assert kind(2, random_state=0).fit(POINTS * 1e40).labels_.size == 6


@pytest.mark.parametrize(
    "kind",
    [BregmanKMeans, COPKMeans, HMRFKMeans, KernelHMRFKMeans, LCVQE],
    ids=lambda k: k.__name__,
)
def test_points_that_are_all_the_same(kind):
    model = kind(3, random_state=0).fit(np.ones((6, 2)))
    assert model.objective_ == pytest.approx(0.0)
    assert kind is not KernelHMRFKMeans or len(set(model.labels_.tolist())) == 3


@pytest.mark.parametrize("n", [5, 150])
def test_annealing_of_points_that_are_all_the_same(n):
    points = np.ones((n, 2))
    model = AnnealedConstrainedKMeans(2, random_state=0).fit(points, cannot_link=[(0, 1)])
    assert model.labels_[0] != model.labels_[1]
    assert set(AnnealedConstrainedKMeans(2, random_state=0).fit(points).labels_) == {0}


@pytest.mark.parametrize("kind", [BregmanKMeans, ConstrainedKMeans, SizeConstrainedKMeans])
def test_units_make_no_difference_to_clusters(kind):
    """Convergence is detected in any unit: costs of 1e-16 are not all negligible."""
    points = load_iris().data
    plain = kind(3, random_state=0).fit(points)
    for unit in (2.0**-30, 2.0**30):
        model = kind(3, random_state=0).fit(unit * points)
        assert np.array_equal(model.labels_, plain.labels_)
        assert model.n_iter_ == plain.n_iter_ > 2


@pytest.mark.parametrize("kind", [PCKMeans, COPKMeans, TVClust])
def test_constraints_in_the_wrong_place_are_not_ignored(kind):
    pairs = Constraints([[0, 1]], [[2, 3]], n_points=6)
    with pytest.raises(TypeError, match=r"its second argument holds labels"):
        kind(2).fit(POINTS, pairs)
    with pytest.raises(TypeError, match=r"must_link are Constraints, of which"):
        kind(2).fit(POINTS, must_link=pairs)
    assert kind(2, random_state=0).fit(POINTS, **pairs.fit_params()).labels_.size == 6
