"""Scores of the UAI 2022 competition, from printed pairs of score and value."""

from __future__ import annotations

import math

import numpy as np
import pytest
from uai2022 import hellinger, score

#: The reference is -69.70, and the trivial solver's error 80.
PAIRS = [(100.0, -69.7), (97.5, -71.7), (90.0, -61.7), (0.0, -400.0), (0.0, math.nan)]


@pytest.mark.parametrize(
    "value, expected",
    [(-69.7, 100.0), (-71.7, 97.5), (-67.7, 97.5), (-61.7, 90.0), (-109.7, 50.0), (-160.0, 0.0)],
)
def test_score_agrees_with_the_printed_pairs(value, expected):
    assert score(value, -69.7, PAIRS) == pytest.approx(expected)


def test_score_of_a_rounding_error_is_100_and_unknown_without_a_trivial_error():
    assert score(-69.74, -69.7, PAIRS[:1]) == 100.0
    assert math.isnan(score(-69.8, -69.7, [PAIRS[0], *PAIRS[3:]]))


def test_hellinger_distance_is_a_mean_over_variables():
    certain, other, fair = np.array([1.0, 0.0]), np.array([0.0, 1.0]), np.array([0.5, 0.5])
    assert hellinger([certain, fair], [other, fair]) == pytest.approx(0.5)
    assert hellinger([fair], [certain]) == pytest.approx(math.sqrt(1.0 - math.sqrt(0.5)))
