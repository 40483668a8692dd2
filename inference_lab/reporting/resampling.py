"""Intervals and tests by resampling: data sets are the units, draws within them are not.

Draws of one data set share its points. They show how precisely that set is measured, and not how
much other sets differ from it. Arrays have the shape (sets, draws), NaN where there is no draw.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

#: Number of resamples of an interval: its ends then vary by about a hundredth of its width.
RESAMPLES = 10_000

#: Largest number of sets for which all changes of sign are enumerated.
EXACT = 16

#: Level of tests. Intervals have a coverage of 1 - ALPHA, those of equivalence of 1 - 2 ALPHA.
ALPHA = 0.05

#: Smallest number of sets for which a sign-flip test can reject at this level.
FEWEST = 6


def _rows(values: npt.ArrayLike) -> tuple[FloatArray, IntArray]:
    """Return the sets that have draws, with NaN last, and the number of draws of each."""
    array = np.asarray(values, dtype=np.float64)
    counts = (~np.isnan(array)).sum(axis=1)
    nonempty = counts > 0
    # NaN are sorted to the end.
    return np.sort(array[nonempty], axis=1), counts[nonempty].astype(np.int64)


def as_rows(sets: Iterable[Sequence[float]]) -> FloatArray:
    """Return draws of sets, of unequal numbers, as an array of shape (sets, draws)."""
    listed = list(sets)
    values = np.full((len(listed), max(map(len, listed), default=0)), np.nan)
    for row, draws in zip(values, listed, strict=True):
        row[: len(draws)] = draws
    return values


def mean_resampled(
    values: npt.ArrayLike, *, resamples: int = RESAMPLES, seed: int = 0
) -> FloatArray:
    """Return the means over sets of means over draws, of resampled sets and draws, ascending.

    Each resample draws as many sets with replacement as there are, and from each of them as many
    of its draws as it has (Davison and Hinkley, *Bootstrap Methods and their Application*, 1997,
    section 3.8). Quantiles of the returned means are intervals.
    """
    rows, counts = _rows(values)
    sets, longest = rows.shape
    if sets == 0:
        return np.empty(0)
    flat = rows.ravel()
    shortest = counts.min()
    rng = np.random.default_rng(seed)
    total = np.zeros(resamples)
    # Not scipy's bootstrap, because it resamples one level only.
    for _ in range(sets):
        set_indices = rng.integers(sets, size=resamples)
        size = counts[set_indices]
        begin = set_indices * longest
        added = np.zeros(resamples)
        # One draw at a time for all resamples, because that stays within the cache of a processor.
        # Draws beyond the size of a set do not count.
        for number in range(longest):
            drawn = flat.take(begin + (rng.random(resamples) * size).astype(np.int64))
            if number >= shortest:
                drawn[number >= size] = 0.0
            added += drawn
        total += added / size
    return np.sort(total / sets)


def sign_flip(
    values: npt.ArrayLike, *, exact: int = EXACT, resamples: int = 1 << EXACT, seed: int = 0
) -> float:
    """Return the two-sided p-value of the test that the means of sets are symmetric about zero.

    The statistic is the absolute sum of the means. Under the hypothesis, each mean could equally
    have the other sign (Fisher, *The Design of Experiments*, 1935, section 21).
    """
    array = np.asarray(values, dtype=np.float64)
    rows, counts = _rows(array[:, None] if array.ndim == 1 else array)
    means = np.nansum(rows, axis=1) / counts
    observed = abs(float(means.sum()))
    # The tolerance makes sums that differ by rounding alone equally extreme.
    threshold = observed - 1e-12 * float(np.abs(means).sum())
    if observed <= 1e-300:
        return 1.0
    if len(means) <= exact:
        # Not scipy's permutation_test, because it takes half a second instead of milliseconds, and
        # maps have hundreds of cells. The first sign is fixed, because the statistic is symmetric.
        sums = means[:1]
        for mean in means[1:]:
            sums = np.concatenate([sums + mean, sums - mean])
        return float((np.abs(sums) >= threshold).mean())
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(resamples, len(means)))
    as_extreme = int((np.abs(signs @ means) >= threshold).sum())
    return (as_extreme + 1) / (resamples + 1)


@dataclass(frozen=True)
class Effect:
    """A mean difference over sets, with its intervals, p-value and numbers of observations."""

    #: Mean over sets of means over draws; NaN without sets.
    value: float
    #: Ends of the 95 % interval, see `mean_resampled`; NaN for fewer than two sets.
    low: float
    high: float
    #: Ends of the 90 % interval. Two one-sided tests at 5 % show equivalence within a margin
    #: where this interval lies within it.
    inner_low: float
    inner_high: float
    #: See `sign_flip`.
    p_value: float
    sets: int
    draws: int
    #: Sets whose mean is above zero.
    above: int


def effect(values: npt.ArrayLike, *, seed: int = 0) -> Effect:
    """Return the mean difference of sets, with intervals and the p-value of `sign_flip`."""
    rows, counts = _rows(values)
    means = np.nansum(rows, axis=1) / counts
    sets = len(means)
    ends = np.full(4, np.nan)
    if sets > 1:
        tails = (ALPHA / 2, 1 - ALPHA / 2, ALPHA, 1 - ALPHA)
        ends = np.quantile(mean_resampled(rows, seed=seed), tails)
    low, high, inner_low, inner_high = (float(end) for end in ends)
    return Effect(
        value=float(means.mean()) if sets else float("nan"),
        low=low,
        high=high,
        inner_low=inner_low,
        inner_high=inner_high,
        p_value=sign_flip(means, seed=seed),
        sets=sets,
        draws=int(counts.sum()),
        above=int((means > 1e-12).sum()),
    )


Verdict = Literal["gain", "loss", "equivalent", "undecided"]


def verdict(estimate: Effect, p_value: float, margin: float = 0.0) -> Verdict:
    """Return the verdict on a difference, by its intervals and its p-value."""
    if (
        margin > 0
        and estimate.sets >= FEWEST
        and -margin < estimate.inner_low
        and estimate.inner_high < margin
    ):
        return "equivalent"
    if p_value < ALPHA and estimate.low > 0:
        return "gain"
    if p_value < ALPHA and estimate.high < 0:
        return "loss"
    return "undecided"
