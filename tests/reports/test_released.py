"""Methods as the published evaluations ran them."""

import numpy as np
import pytest

from inference_lab.reports.released import RELEASED, _r_normal
from inference_lab.reports.uphill import uphill_kmeans
from inference_lab.results.scoring import adjusted_rand

RNG = np.random.default_rng(0)
TRUTH = np.repeat([0, 1, 2], 20)
POINTS = 30.0 * np.eye(3)[TRUTH] + RNG.normal(size=(60, 3))
ENDS = RNG.permutation(60).reshape(-1, 2)
MUST = TRUTH[ENDS[:, 0]] == TRUTH[ENDS[:, 1]]


def test_the_fixed_start_is_that_of_r():
    # R: set.seed(1); rnorm(4)
    assert _r_normal(4).round(7).tolist() == [-0.6264538, 0.1836433, -0.8356286, 1.5952808]


@pytest.mark.parametrize("name", ["released-lcvqe", "released-mpckmeans", "released-tvclust"])
def test_labels_are_in_the_order_of_the_points(name):
    labellings = [
        RELEASED[name](3, seed).fit(POINTS, ENDS[MUST], ENDS[~MUST]).labels_ for seed in range(8)
    ]
    assert max(adjusted_rand(TRUTH, labels) for labels in labellings) == 1.0


def test_the_printed_sign_raises_the_objective():
    counts = np.round(np.abs(POINTS))
    up = uphill_kmeans(3, 0, rate=0.1, max_iter=3).fit(counts)
    assert np.ptp(up.metric_.weights) > 0.0
    metric = [line.objective for line in up.history_ if line.step == "metric"]
    before = [line.objective for line in up.history_ if line.step == "centroids"]
    assert metric[0] > before[0]
