"""Weights of pairs estimated from their error rate and the scale of the data."""

import numpy as np
import pytest

from inference_lab.clustering import (
    AnnealedConstrainedKMeans,
    ConstrainedGaussianMixture,
    COPKMeans,
    HMRFKMeans,
    MergedClassesWarning,
    PairWeightWarning,
    PCKMeans,
)
from inference_lab.clustering.pair_odds import log_odds, wrong_share
from inference_lab.constraints import Constraints

TRUTH = np.repeat([0, 1, 2], 50)


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.3])
def test_the_share_of_wrong_pairs_is_found(noise: float) -> None:
    rng = np.random.default_rng(0)
    pairs = Constraints.sample(TRUTH, 1500, rng).flip(noise, rng)
    assert wrong_share(pairs) == pytest.approx(noise, abs=0.03)


def test_pairs_outside_triangles_keep_the_prior():
    assert wrong_share(Constraints([[0, 1]], [[1, 2]], n_points=4)) == 0.1
    assert wrong_share(Constraints(None, None, n_points=4)) == 0.1
    # One of the three is wrong, but it is unknown which.
    triangle = Constraints([[0, 1], [1, 2]], [[0, 2]], n_points=3)
    assert wrong_share(triangle) == pytest.approx(2 / 11)
    assert log_odds(triangle) == pytest.approx(np.log(9 / 2))


def supervision() -> dict:
    """Return pairs that get their weights from the data."""
    pairs = Constraints.sample(TRUTH, 40, np.random.default_rng(1))
    arguments = pairs.fit_params()
    return arguments | {"ml_weight": "auto", "cl_weight": "auto"}


def test_weights_follow_the_scale_of_the_data():
    points = np.random.default_rng(0).normal(size=(150, 2)) + 5.0 * np.eye(3)[TRUTH][:, :2]
    for estimator in (PCKMeans(3), AnnealedConstrainedKMeans(3, cooling=0.1)):
        estimator.set_params(random_state=0)
        one = estimator.fit(points, **supervision()).constraints_.ml_weight
        two = estimator.fit(10.0 * points, **supervision()).constraints_.ml_weight
        assert two == pytest.approx(100.0 * one)
        # Clusters of variance 1: a unit of log-probability costs about 2.
        assert 1.0 < one / np.log(9.0) < 2.5
    model = HMRFKMeans(3, random_state=0)
    one = model.fit(points, **supervision()).constraints_
    two = model.fit(10.0 * points, **supervision()).constraints_
    assert two.ml_weight == pytest.approx(one.ml_weight)
    mixture = ConstrainedGaussianMixture(3, random_state=0, max_iter=2).fit(points, **supervision())
    assert mixture.constraints_.ml_weight == pytest.approx(np.log(9.0), rel=0.3)


def test_one_kind_may_have_a_number():
    points = np.random.default_rng(0).normal(size=(150, 2))
    arguments = supervision() | {"cl_weight": 7.0}
    constraints = PCKMeans(3, random_state=0).fit(points, **arguments).constraints_
    assert constraints.cl_weight == 7.0 and constraints.ml_weight != 7.0
    with pytest.raises(ValueError, match="COPKMeans has no scale for ml_weight='auto'"):
        COPKMeans(3).fit(points, **arguments)
    with pytest.raises(ValueError, match="cl_weight must be auto, got 'much'"):
        PCKMeans(3).fit(points, **arguments | {"cl_weight": "much"})


def clouds(scale: float = 1.0) -> np.ndarray:
    """Return three clusters of variance ``scale^2``."""
    points = np.random.default_rng(0).normal(size=(150, 2)) + 5.0 * np.eye(3)[TRUTH][:, :2]
    return scale * points


def test_weights_far_from_the_calibrated_ones_are_warned_of():
    rng = np.random.default_rng(0)
    right = Constraints.sample(TRUTH, 200, rng)
    wrong = right.flip(0.2, rng)
    with pytest.warns(PairWeightWarning, match="hardly any pair counts; scale the data"):
        PCKMeans(3, random_state=0).fit(
            clouds(100.0), **right.fit_params(), ml_weight=1.0, cl_weight=1.0
        )
    for model, pairs, weight in (
        (PCKMeans, right, 1e5),  # no pair contradicts it
        (PCKMeans, wrong, 20.0),
        (PCKMeans, wrong, 0.0),  # as requested
        (HMRFKMeans, wrong, 1.0),  # penalties have the scale of the data
    ):
        supervision = pairs.with_weights(weight, weight).fit_params()
        model(3, random_state=0).fit(clouds(), **supervision)
    HMRFKMeans(3, random_state=0).fit(clouds(100.0), **wrong.fit_params())
    with pytest.warns(PairWeightWarning, match="even a wrong pair counts"):
        supervision = wrong.with_weights(1e5, 1e5).fit_params()
        PCKMeans(3, random_state=0).fit(clouds(), **supervision)


def test_closure_that_merges_classes_is_warned_of():
    rng = np.random.default_rng(0)
    right = Constraints.sample(TRUTH, 600, rng)
    wrong = right.flip(0.1, rng)
    supervision = wrong.with_weights(10.0, 10.0).fit_params()
    with pytest.warns(MergedClassesWarning, match=r"connect \d+ of the \d+ points"):
        PCKMeans(3, closure="drop", random_state=0).fit(clouds(), **supervision)
    PCKMeans(3, closure="vote", random_state=0).fit(clouds(), **supervision)
    PCKMeans(3, closure="drop", random_state=0).fit(clouds(), **right.fit_params())
    # One wrong cannot-link within a component of a third of the points merges nothing.
    inside = Constraints(right.must_link, [*right.cannot_link, right.must_link[0]], n_points=150)
    assert len(inside.contradictions()) == 1
    PCKMeans(3, closure="drop", random_state=0).fit(clouds(), **inside.fit_params())
