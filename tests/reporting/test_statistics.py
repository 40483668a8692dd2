"""Statistics of comparisons against hand-computed values and slow or independent referees."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from inference_lab.reporting.statistics import (
    holm,
    performance_ratios,
    primal_gap_percent,
    rank_test,
    shifted_geometric_mean,
    signed_rank,
)

INF = math.inf
NAN = math.nan

#: Few distinct values, so that there are ties; with and without failed runs.
VALUES = st.sampled_from([0.0, 1.0, 2.0, 3.5, 10.0])
VALUES_OR_INF = st.sampled_from([0.0, 1.0, 2.0, 3.5, 10.0, INF])


#: Demsar (2006), table 6: four methods on 14 data sets, area under the curve.
AUC = [
    [0.763, 0.768, 0.771, 0.798],
    [0.599, 0.591, 0.590, 0.569],
    [0.954, 0.971, 0.968, 0.967],
    [0.628, 0.661, 0.654, 0.657],
    [0.882, 0.888, 0.886, 0.898],
    [0.936, 0.931, 0.916, 0.931],
    [0.661, 0.668, 0.609, 0.685],
    [0.583, 0.583, 0.563, 0.625],
    [0.775, 0.838, 0.866, 0.875],
    [1.000, 1.000, 1.000, 1.000],
    [0.940, 0.962, 0.965, 0.962],
    [0.619, 0.666, 0.614, 0.669],
    # Printed as equal, but ranked by further digits.
    [0.972, 0.981, 0.9752, 0.9748],
    [0.957, 0.978, 0.946, 0.970],
]


def matrices(elements, low=2, high=6):
    shape = st.tuples(st.integers(low, high), st.integers(low, high))
    return shape.flatmap(lambda s: arrays(np.float64, s, elements=elements))


# ---------------------------------------------------------------------- means, medians, gaps


def test_shifted_geometric_mean_follows_its_formula():
    # (1 + 10)(91 + 10) ... by hand: sqrt(11 * 101) - 10.
    assert shifted_geometric_mean([1.0, 91.0], 10.0) == pytest.approx(math.sqrt(1111) - 10)
    # Below the shift, a factor of ten hardly counts; far above, it does.
    small = shifted_geometric_mean([0.001, 0.01], 1.0) / shifted_geometric_mean([0.001] * 2, 1.0)
    assert shifted_geometric_mean([0.001, 0.01], 1.0) == pytest.approx(0.0055, abs=1e-4)
    assert small > 5
    assert shifted_geometric_mean([1e3, 1e4], 1.0) == pytest.approx(math.sqrt(1e7), rel=1e-2)
    assert shifted_geometric_mean([2.0, NAN, 8.0], 0.0) == pytest.approx(4.0)
    assert shifted_geometric_mean([0.0, 5.0], 0.0) == 0.0
    assert shifted_geometric_mean([1.0, INF], 1.0) == INF
    assert math.isnan(shifted_geometric_mean([], 1.0))


def test_primal_gaps():
    gap = primal_gap_percent([10.0, 12.5, INF, -3.0, NAN, 10.0 + 1e-9], 10.0)
    assert gap[:4].tolist() == pytest.approx([0.0, 20.0, 100.0, 100.0])
    assert math.isnan(gap[4]) and gap[5] == 0.0
    assert primal_gap_percent([-4.0, -5.0, 0.0, 1.0], -5.0).tolist() == pytest.approx(
        [20.0, 0.0, 100.0, 100.0]
    )
    assert primal_gap_percent([0.0, 1.0, 1e-9], 0.0).tolist() == [0.0, 100.0, 0.0]
    # No labelling is known at all.
    assert primal_gap_percent([INF, 3.0], INF).tolist() == [100.0, 100.0]


# ---------------------------------------------------------------------- profiles


def test_times_below_the_clock_are_no_ratios():
    assert performance_ratios([[0.0, 1e-9], [INF, INF]]).tolist() == [[1.0, 1.0], [INF, INF]]


# ---------------------------------------------------------------------- tests


def test_ranks_and_critical_difference_of_the_published_example():
    # Demsar (2006), section 3.2.3.
    test = rank_test(-np.array(AUC), alpha=0.05)
    assert test.ranks == pytest.approx([3.143, 2.000, 2.893, 1.964], abs=1e-3)
    # The paper's statistic 9.28 is without the correction for ties, its difference 1.25.
    uncorrected = 12 * 14 / (4 * 5) * (float((test.ranks**2).sum()) - 4 * 25 / 4)
    assert uncorrected == pytest.approx(9.28, abs=0.01)
    assert test.statistic == pytest.approx(
        scipy.stats.friedmanchisquare(*np.array(AUC).T).statistic
    )
    assert test.critical_difference == pytest.approx(1.25, abs=0.005)
    assert rank_test(-np.array(AUC), alpha=0.1).critical_difference == pytest.approx(
        1.12, abs=0.005
    )
    # Table 5 of the paper: q for two to ten methods.
    for alpha, quantiles in (
        (0.05, [1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164]),
        (0.10, [1.645, 2.052, 2.291, 2.459, 2.589, 2.693, 2.780, 2.855, 2.920]),
    ):
        for k, q in enumerate(quantiles, start=2):
            test = rank_test(np.tile(np.arange(float(k)), (6, 1)), alpha)
            scale = math.sqrt(k * (k + 1) / 36)
            assert test.critical_difference == pytest.approx(q * scale, abs=1e-3 * scale)


@given(st.lists(st.integers(-3, 3), min_size=2, max_size=9))
def test_wilcoxon_with_ties_and_zeros_by_enumeration(differences):
    ranks = scipy.stats.rankdata(np.abs(differences))
    signs = np.array(list(itertools.product((0, 1), repeat=len(differences))))
    sums = np.where(np.array(differences) == 0, 0.5, signs) @ ranks
    observed = float(np.dot(ranks, (np.sign(differences) + 1) / 2))
    tails = (np.mean(sums <= observed), np.mean(sums >= observed))
    expected = min(1.0, 2 * min(tails)) if any(differences) else 1.0
    assert signed_rank(np.array(differences, dtype=float)) == pytest.approx(expected)


def test_wilcoxon_of_zeros_and_of_many_values():
    # Five non-zero differences all have one sign in 2 of 32 cases.
    assert signed_rank(np.array([0.0] * 3 + [1.0, 2, 3, 4, 5])) == pytest.approx(2 / 32)
    # Beyond fifty instances the normal approximation is used.
    many = np.random.default_rng(3).integers(-4, 5, 60).astype(float)
    expected = scipy.stats.wilcoxon(many, zero_method="zsplit", method="asymptotic")
    assert signed_rank(many) == pytest.approx(expected.pvalue)


def test_holm_by_its_definition():
    """With m hypotheses, the i-th smallest p-value is rejected at alpha / (m - i + 1)."""
    raw = np.random.default_rng(5).random(7).round(2) / 10
    for alpha in np.linspace(0.005, 0.6, 60):
        ordered = np.sort(raw)
        first = next((i for i, p in enumerate(ordered) if p > alpha / (7 - i)), 7)
        rejected = sum(p <= alpha + 1e-12 for p in holm(list(raw)))
        assert rejected == first
    assert holm([]) == [] and holm([0.6, 0.7]) == [1.0, 1.0]
