"""Statistics of comparisons: means, profiles and tests, on plain arrays.

Rows are instances (problems, or runs of the same problem and draw), columns are solvers. Energies
and times are ``inf`` for runs without a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inference_lab.contract import OPTIMALITY_TOLERANCE

FloatArray = npt.NDArray[np.float64]

#: Largest number of instances for which Wilcoxon's test is exact.
_EXACT = 50

#: Shortest time that counts, in seconds, because ratios of shorter times are meaningless.
CLOCK = 1e-6


# ---------------------------------------------------------------------- aggregates


def shifted_geometric_mean(values: npt.ArrayLike, shift: float) -> float:
    """Return ``exp(mean(log(values + shift))) - shift``.

    Mittelmann's benchmarks and SCIP report this mean of times. A factor counts the same for fast
    and for slow instances, but differences well below the shift do not count
    (Achterberg, *Constraint Integer Programming*, 2007, appendix A.3).
    """
    array = np.asarray(values, dtype=np.float64).ravel()
    array = array[~np.isnan(array)]
    if array.size == 0:
        return float("nan")
    if shift == 0 and array.min() == 0:
        return 0.0
    return max(0.0, float(np.exp(np.log(array + shift).mean()) - shift))


def primal_gap_percent(energies: npt.ArrayLike, reference: npt.ArrayLike) -> FloatArray:
    """Return the primal gaps of energies to the best known one, in percent and at most 100.

    The gap is ``100 |E - E*| / max(|E|, |E*|)``: 0 where the two agree to `OPTIMALITY_TOLERANCE`,
    100 where their signs differ or there is no labelling (Berthold, "Measuring the impact of
    primal heuristics", Operations Research Letters 41, 2013, eq. 1).
    """
    energy, best = np.broadcast_arrays(
        np.asarray(energies, dtype=np.float64), np.asarray(reference, dtype=np.float64)
    )
    # Overflow is ignored, because it occurs only where the signs differ, and the gap is 100.
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        difference = np.abs(energy - best)
        gap = 100.0 * (difference / np.maximum(np.abs(energy), np.abs(best)))
        close = difference <= OPTIMALITY_TOLERANCE * np.maximum(1.0, np.abs(best))
        opposite = energy * np.sign(best) < 0
        finite = np.isfinite(energy) & np.isfinite(best)
    gap = np.where(opposite | ~finite, 100.0, np.minimum(gap, 100.0))
    gap = np.where(close & finite, 0.0, gap)
    return np.where(np.isnan(energy) | np.isnan(best), np.nan, gap)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values after Holm's correction for their number."""
    # The i-th smallest of m p-values counts m - i + 1 times, at most 1 and never falling.
    values = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    corrected = np.empty_like(values)
    corrected[order] = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    return [min(1.0, float(p)) for p in corrected]


def performance_ratios(times: npt.ArrayLike) -> FloatArray:
    """Return the times of solvers as multiples of the fastest, ``inf`` where nothing is solved.

    Their distributions are performance profiles, ``rho_s(tau) = |{p : t_ps <= tau min_s t_ps}| /
    n`` (Dolan and More, "Benchmarking optimization software with performance profiles",
    Mathematical Programming 91, 2002, eq. 2.1).
    """
    matrix = np.maximum(np.asarray(times, dtype=np.float64), CLOCK)
    with np.errstate(invalid="ignore"):
        ratios = matrix / matrix.min(axis=1, keepdims=True)
    return np.where(np.isfinite(matrix), ratios, np.inf)


# ---------------------------------------------------------------------- tests


@dataclass(frozen=True)
class RankTest:
    """Average ranks of solvers (1 is best), with a test of their differences."""

    ranks: FloatArray
    statistic: float
    p_value: float
    critical_difference: float


def block_ranks(values: npt.ArrayLike, blocks: Sequence[object]) -> FloatArray:
    """Return the mean ranks of solvers in each block of instances, in the order of the blocks.

    Tests are over blocks, because instances of one block, such as problems made of one data set,
    are not independent.
    """
    import pandas as pd

    ranks = pd.DataFrame(np.asarray(values, dtype=np.float64)).rank(axis=1)
    return ranks.groupby([str(block) for block in blocks], sort=False).mean().to_numpy()


def rank_test(values: npt.ArrayLike, alpha: float = 0.05) -> RankTest:
    """Rank solvers on each instance, and test whether the average ranks differ.

    The test is Friedman's with its correction for ties, with Nemenyi's critical difference
    ``q_alpha sqrt(k (k + 1) / (6 n))``. Here ``q_alpha`` is the quantile of the studentized range
    divided by sqrt(2) (Demsar, "Statistical comparisons of classifiers over multiple data sets",
    JMLR 7, 2006, section 3.2.2).
    """
    from scipy.stats import friedmanchisquare, rankdata, studentized_range

    matrix = np.asarray(values, dtype=np.float64)
    n, k = matrix.shape
    if (matrix == matrix[:, :1]).all():
        statistic, p_value = 0.0, 1.0
    elif k == 2:
        # Friedman's test needs three or more solvers.
        statistic = np.nan
        p_value = signed_rank(matrix[:, 0] - matrix[:, 1])
    else:
        statistic, p_value = friedmanchisquare(*matrix.T)
    # Infinite degrees of freedom, because the variance of ranks is known and not estimated.
    q = float(studentized_range.ppf(1 - alpha, k, np.inf)) / np.sqrt(2)
    difference = float(q * np.sqrt(k * (k + 1) / (6 * n)))
    ranks = rankdata(matrix, axis=1).mean(axis=0)
    return RankTest(ranks, float(statistic), float(p_value), difference)


def signed_rank(difference: FloatArray) -> float:
    """Return the two-sided p-value of Wilcoxon's signed-rank test, 1 if all differences are zero.

    Half of the rank of zeros goes to either sign. The test is exact up to 50 differences.
    """
    from scipy.stats import rankdata, wilcoxon

    if not difference.any():
        return 1.0
    if len(difference) > _EXACT:
        return float(wilcoxon(difference, zero_method="zsplit", method="asymptotic").pvalue)
    # Not scipy's exact test, because it excludes ties beyond 13 differences. Twice the ranks are
    # integers; a zero adds half its rank whatever its sign.
    doubled = np.rint(2 * rankdata(np.abs(difference))).astype(np.int64)[difference != 0]
    share = np.zeros(int(doubled.sum()) + 1)
    share[0] = 1.0
    for rank in doubled:
        share[rank:] = (share[rank:] + share[: len(share) - rank]) / 2
        share[:rank] /= 2
    observed = int(doubled[difference[difference != 0] > 0].sum())
    return float(min(1.0, 2 * min(share[: observed + 1].sum(), share[observed:].sum())))
