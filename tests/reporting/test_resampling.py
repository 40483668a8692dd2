"""Intervals and tests by resampling, against slow second implementations and known values."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from inference_lab.reporting.resampling import (
    effect,
    mean_resampled,
    sign_flip,
    verdict,
)

NAN = math.nan


def draws(seed, sets=8, n_draws=5, missing=0.2):
    """Return values of sets that differ, with missing entries."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(sets, 1)) + 0.3 * rng.normal(size=(sets, n_draws))
    values[rng.random(values.shape) < missing] = NAN
    return values


# ---------------------------------------------------------------------- sign flips


def flipped(means):
    """Return the p-value by enumerating changes of sign, in exact fractions of integers."""
    observed = abs(sum(means))
    every = [
        abs(sum(s * m for s, m in zip(signs, means, strict=True))) >= observed
        for signs in itertools.product((-1, 1), repeat=len(means))
    ]
    return sum(every) / len(every)


@given(st.lists(st.integers(-4, 4), min_size=1, max_size=8))
def test_sign_flips_by_enumeration(means):
    assert sign_flip([float(m) for m in means]) == flipped(means)


def test_rounding_does_not_make_a_sum_less_extreme():
    # 0.1 + 0.2 - 0.3 and similar sums are not zero in floating point.
    means = [0.1, 0.2, 0.3, 0.7]
    assert sign_flip(means) == flipped([1, 2, 3, 7])
    assert sign_flip(np.multiply(means, 1e-9)) == flipped([1, 2, 3, 7])


def test_many_sets_are_sampled_and_never_give_zero():
    means = np.random.default_rng(1).normal(0.5, 1.0, 14)
    exact = sign_flip(means)
    sampled = sign_flip(means, exact=10, resamples=20_000)
    # Four standard deviations of a proportion in 20,000.
    assert abs(sampled - exact) < 4 * math.sqrt(exact * (1 - exact) / 20_000)
    assert sign_flip(np.ones(40), resamples=999) == 1 / 1000


def test_five_sets_cannot_show_significance_and_no_sets_show_nothing():
    assert sign_flip([1.0, 2.0, 3.0, 4.0, 5.0]) == 2 / 2**5
    assert sign_flip([]) == sign_flip([0.0, 0.0]) == sign_flip([NAN]) == 1.0
    # Draws are averaged within their set first.
    assert sign_flip([[1.0, 3.0], [NAN, 4.0]]) == sign_flip([2.0, 4.0]) == 0.5


# ---------------------------------------------------------------------- the bootstrap


def resampled_slowly(values, resamples, seed):
    """Return resampled means by drawing sets, and draws of them, one after the other."""
    rng = np.random.default_rng(seed)
    sets = [[v for v in row if not math.isnan(v)] for row in values]
    sets = [row for row in sets if row]
    means = []
    for _ in range(resamples):
        drawn_sets = [sets[rng.integers(len(sets))] for _ in sets]
        set_means = [np.mean([row[rng.integers(len(row))] for _ in row]) for row in drawn_sets]
        means.append(np.mean(set_means))
    return means


def test_resampled_means_are_distributed_as_in_a_plain_loop():
    values = draws(3)
    fast = mean_resampled(values, resamples=20_000)
    slow = resampled_slowly(values, 2_000, seed=5)
    assert scipy.stats.ks_2samp(fast, slow).pvalue > 0.01
    assert np.quantile(fast, [0.025, 0.975]) == pytest.approx(
        np.quantile(slow, [0.025, 0.975]), abs=0.05
    )


@given(st.integers(0, 99))
def test_resampled_means_have_the_theoretical_variance(seed):
    """It is the variance between and within sets, both as plug-ins, over their numbers."""
    values = draws(seed, missing=0.0)
    n, d = values.shape
    expected = values.mean(axis=1).var() / n + values.var(axis=1).mean() / (n * d)
    fast = mean_resampled(values, resamples=20_000)
    assert fast.mean() == pytest.approx(values.mean(), abs=5 * math.sqrt(expected / 20_000))
    assert fast.var() == pytest.approx(expected, rel=0.06)


# ---------------------------------------------------------------------- effects and verdicts


def test_an_effect_counts_sets_not_draws():
    values = draws(7, sets=6, n_draws=4, missing=0.0) + 2.0
    values = np.vstack([values, np.full((1, 4), NAN)])
    values[0, 1:] = NAN
    estimate = effect(values)
    means = [np.nanmean(row) for row in values[:-1]]
    assert (estimate.sets, estimate.draws) == (6, 21)
    assert estimate.value == pytest.approx(np.mean(means))
    assert estimate.p_value == sign_flip(means) and estimate.above == sum(m > 0 for m in means)
    assert estimate.low < estimate.inner_low < estimate.value < estimate.inner_high < estimate.high
    # More draws of the same sets do not make more sets.
    assert effect(np.tile(values, 20)).p_value == estimate.p_value
    single = effect([[1.0, 2.0]])
    assert math.isnan(single.low) and single.p_value == 1.0
    assert verdict(single, 0.0) == "undecided"


@pytest.mark.parametrize(
    ("values", "margin", "expected"),
    [
        (np.linspace(0.02, 0.05, 8), 0.005, "gain"),
        (-np.linspace(0.02, 0.05, 8), 0.005, "loss"),
        (np.linspace(-0.001, 0.002, 8), 0.005, "equivalent"),
        (np.linspace(-0.001, 0.002, 8), 0.0, "undecided"),
        (np.linspace(0.001, 0.002, 8), 0.0, "gain"),
        (np.linspace(-0.05, 0.06, 8), 0.005, "undecided"),
        # The interval is above zero, but so few sets allow no significance.
        (np.linspace(0.02, 0.05, 4), 0.005, "undecided"),
        (np.zeros(5), 0.005, "undecided"),
        (np.zeros(6), 0.005, "equivalent"),
    ],
)
def test_verdicts(values, margin, expected):
    estimate = effect(values[:, None])
    assert verdict(estimate, estimate.p_value, margin) == expected
