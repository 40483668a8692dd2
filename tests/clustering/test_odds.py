"""Weights that pairs get from how often they are wrong, and from the scale of the data."""

import numpy as np
import pytest

from inference_lab.clustering import (
    AnnealedConstrainedKMeans,
    ConstrainedGaussianMixture,
    COPKMeans,
    HMRFKMeans,
    PCKMeans,
)
from inference_lab.clustering._odds import log_odds, wrong_share
from inference_lab.constraints import Constraints

TRUTH = np.repeat([0, 1, 2], 50)


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.3])
def test_the_share_of_wrong_pairs_is_found(noise: float) -> None:
    rng = np.random.default_rng(0)
    pairs = Constraints.sample(TRUTH, 1500, rng).flip(noise, rng)
    assert wrong_share(pairs) == pytest.approx(noise, abs=0.03)


def test_pairs_that_nothing_checks_keep_the_prior():
    assert wrong_share(Constraints([[0, 1]], [[1, 2]], n_points=4)) == 0.1
    assert wrong_share(Constraints(None, None, n_points=4)) == 0.1
    # One of three is wrong; of the two that are outvoted by nothing but each other, both count.
    triangle = Constraints([[0, 1], [1, 2]], [[0, 2]], n_points=3)
    assert wrong_share(triangle) == pytest.approx(3 / 11)
    assert log_odds(triangle) == pytest.approx(np.log(8 / 3))


def told() -> dict:
    """Return pairs that get their weights from the data."""
    pairs = Constraints.sample(TRUTH, 40, np.random.default_rng(1))
    found = pairs.fit_params()
    return found | {"ml_weight": "auto", "cl_weight": "auto"}


def test_weights_follow_the_scale_of_the_data():
    points = np.random.default_rng(0).normal(size=(150, 2)) + 5.0 * np.eye(3)[TRUTH][:, :2]
    for estimator in (PCKMeans(3), AnnealedConstrainedKMeans(3, cooling=0.1)):
        estimator.set_params(random_state=0)
        one = estimator.fit(points, **told()).constraints_.ml_weight
        two = estimator.fit(10.0 * points, **told()).constraints_.ml_weight
        assert two == pytest.approx(100.0 * one)
        # Clusters of variance 1: a unit of log-probability costs about 2.
        assert 1.0 < one / np.log(9.0) < 2.5
    model = HMRFKMeans(3, random_state=0)
    one = model.fit(points, **told()).constraints_
    two = model.fit(10.0 * points, **told()).constraints_
    assert two.ml_weight == pytest.approx(one.ml_weight)
    mixture = ConstrainedGaussianMixture(3, random_state=0, max_iter=2).fit(points, **told())
    assert mixture.constraints_.ml_weight == pytest.approx(np.log(9.0), rel=0.3)


def test_one_kind_may_have_a_number():
    points = np.random.default_rng(0).normal(size=(150, 2))
    given = told() | {"cl_weight": 7.0}
    found = PCKMeans(3, random_state=0).fit(points, **given).constraints_
    assert found.cl_weight == 7.0 and found.ml_weight != 7.0
    with pytest.raises(ValueError, match="COPKMeans has no scale for ml_weight='auto'"):
        COPKMeans(3).fit(points, **given)
    with pytest.raises(ValueError, match="cl_weight = 'much' is unknown; allowed: 'auto'"):
        PCKMeans(3).fit(points, **given | {"cl_weight": "much"})
