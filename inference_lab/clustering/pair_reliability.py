"""Reliability of groups of pairs, estimated by clusters of the other pairs.

Pairs of one answerer or rule are a group. `judged` replaces confidences and groups by log-odds.
docs/decisions/060-reliability-of-groups-of-pairs.md has the reasons, and what was tried.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from inference_lab.clustering.cluster_numbers import supported_number
from inference_lab.clustering.e_step import LabelStep
from inference_lab.clustering.em import Fit, maximise_expectation
from inference_lab.clustering.hmrf import HMRF
from inference_lab.clustering.initialisation import initial_centroids
from inference_lab.clustering.pair_odds import log_odds
from inference_lab.clustering.starts import SAMPLED, sample_size
from inference_lab.clustering.supervision import Supervision, without_pairs
from inference_lab.constraints import Constraints
from inference_lab.constraints.constraints import summed
from inference_lab.constraints.frames import KINDS
from inference_lab.constraints.pair_answers import USUAL_ODDS, PairAnswers
from inference_lab.constraints.pairs import codes_of
from inference_lab.distortions.distortions import SquaredEuclidean
from inference_lab.distortions.points import Points
from inference_lab.graph.arrays import FloatArray, IntArray

#: Divisions into halves, each of which judges the clusters of the other half.
_REPEATS = 2
#: Iterations of a fit to one half.
_ITERATIONS = 20
#: Pairs of points that show how often clusters join points at a distance, and the number of these
#: that are nearest in distance to one pair.
_DRAWN, _NEAR = 100_000, 20
#: Pairs that the mean of all groups counts for in the agreement of the most reliable group.
_PRIOR = 20
#: Least difference of the agreement of right pairs and of wrong ones that can tell them apart.
_LEAST_CONTRAST = 0.05
#: Standard deviation of reliabilities between groups, before pairs are seen.
_SPREAD = 0.2
#: Limits of a reliability.
_LOWEST, _HIGHEST = 0.01, 0.999
#: Multiple of the difference of a group from the others of its kind, in log-odds. Estimates differ
#: less than the true reliabilities, because wrong pairs are near.
_STRETCH_OF_GROUPS = 2.0


class GroupReliability(NamedTuple):
    """Row of `pair_reliability_`: the pairs of one kind in a group.

    ``contradicted`` is the share that clusters of other pairs contradict, of right and of wrong
    pairs ``if_right`` and ``if_wrong``. A pair that is right nine times in ten has ``weight`` 1.
    """

    group: Any
    kind: str
    pairs: int
    contradicted: float
    if_right: float
    if_wrong: float
    reliability: float
    weight: float


def judged(
    points: Points, supervision: Supervision, n_clusters: int | str
) -> tuple[Supervision, Any]:
    """Replace confidences and groups of pairs by relative weights.

    Returns the supervision, and a data frame of `GroupReliability` or None without groups. A number
    of clusters that is a word is chosen by points and pairs.
    """
    answers = supervision.constraints.answers
    if answers is None or not len(answers.pairs):
        return supervision, None
    usual = _usual_odds(answers)
    odds, table = np.full(len(answers.pairs), usual), None
    if answers.group is not None:
        if isinstance(n_clusters, str):
            n_clusters = supported_number(points, supervision, np.random.default_rng(0))
        number = min(n_clusters, points.shape[0])
        odds, rows = _group_odds(points, supervision, answers, number, usual)
        import pandas as pd

        table = pd.DataFrame(rows)
    if answers.confidence is not None:
        odds = _with_confidence(odds, answers)
    return replace(supervision, constraints=summed(answers, odds)), table


def _usual_odds(answers: PairAnswers) -> float:
    """Return the log-odds of pairs of which neither confidence nor group is known."""
    parts = answers.sums(np.ones(len(answers.pairs)))
    plain = Constraints(parts.must_link, parts.cannot_link, n_points=answers.n_points)
    return log_odds(plain) or USUAL_ODDS


def _with_confidence(odds: FloatArray, answers: PairAnswers) -> FloatArray:
    """Return odds that differ between answers as their confidences do, 0 up to one half.

    In a group, whose reliability is estimated, the mean stays. Without groups, the mean of a kind
    is halfway between usual odds and confidences, because language models are too confident.
    """
    by_confidence = answers.log_odds()
    counts = (odds > 0.0) & (by_confidence > 0.0)
    kind = answers.must_link.astype(np.int64)
    part = kind if answers.group is None else 2 * answers.group + kind
    sizes = np.bincount(part, weights=counts)
    sums = np.bincount(part, weights=np.where(counts, by_confidence, 0.0))
    mean = (sums / np.maximum(sizes, 1.0))[part]
    level = (odds + mean) / 2.0 if answers.group is None else odds
    return np.where(counts, np.maximum(0.0, level + by_confidence - mean), 0.0)


# ---------------------------------------------------------------------- groups


@dataclass(frozen=True)
class _HeldOut:
    """Agreement of answers with clusters of the other half of the answers.

    ``same`` (p,) is the share of divisions in which the points of an answer are in one cluster;
    ``together`` the share of all pairs of points in one cluster. ``if_same`` and ``if_different``
    (p,) are the shares in which clusters of one half join points that the clusters of the other
    half join, or separate, at the distance of each answer.
    """

    same: FloatArray
    together: float
    if_same: FloatArray
    if_different: FloatArray


def _group_odds(
    points: Points, supervision: Supervision, answers: PairAnswers, n_clusters: int, usual: float
) -> tuple[FloatArray, list[GroupReliability]]:
    """Return the log-odds of each answer by its group, and the rows of the table."""
    assert answers.group is not None
    part, part_points, part_answers = supervision, points, answers
    size = sample_size(n_clusters)
    if points.shape[0] > SAMPLED * size:
        rows = supervision.sample(size, np.random.default_rng(0), pairs_first=True)
        part, part_points = supervision.only(rows), points[rows]
        part_answers = part.constraints.answers or answers
    held_out = _held_out(part_points, part, part_answers, n_clusters)
    odds = np.full(len(answers.pairs), usual)
    table: list[GroupReliability] = []
    for must in (True, False):
        kind = part_answers.must_link == must
        if not kind.any():
            continue
        numbers = np.unique(answers.group[answers.must_link == must])
        entries = [kind & (part_answers.group == number) for number in numbers]
        shares = _reliabilities(held_out, entries, must)
        together = np.clip(held_out.together, 1e-6, 1.0 - 1e-6)
        chance = np.log(together / (1.0 - together)) * (1.0 if must else -1.0)
        sizes = np.array([entry.sum() for entry in entries])
        weights = _weights(np.array([row[-1] for row in shares]), sizes, chance, usual)
        for number, (contradicted, if_right, if_wrong, share), weight in zip(
            numbers, shares, weights.tolist(), strict=True
        ):
            members = (answers.group == number) & (answers.must_link == must)
            odds[members] = weight
            table.append(
                GroupReliability(
                    answers.names[number],
                    KINDS[0 if must else 1],
                    int(members.sum()),
                    contradicted,
                    if_right,
                    if_wrong,
                    share,
                    weight / USUAL_ODDS,
                )
            )
    return odds, table


def _weights(share: FloatArray, sizes: IntArray, chance: float, usual: float) -> FloatArray:
    """Return the log-odds of each group of a kind by its share of right pairs.

    Their mean is halfway between the usual odds and the evidence, the log-odds beyond `chance`,
    where this is less. So cannot-links count little where most points are in different clusters
    anyway. A group that is right no more often than by chance has 0.
    """
    odds = np.log(share / (1.0 - share))
    mean = float(np.average(odds, weights=np.maximum(sizes, 1)))
    level = (usual + np.clip(mean - chance, 0.0, usual)) / 2.0
    weights = np.maximum(0.0, level + _STRETCH_OF_GROUPS * (odds - mean))
    return np.where((odds > chance) & (share > _LOWEST), weights, 0.0)


def _reliabilities(
    held_out: _HeldOut, entries: list[npt.NDArray[np.bool_]], must: bool
) -> list[tuple[float, float, float, float]]:
    """Return for each group the share contradicted, of right and of wrong pairs, and right ones.

    A share ``a`` of pairs that agrees with the clusters is ``r p + (1 - r) q``, with ``p`` of right
    pairs and ``q`` of wrong ones. ``p`` is halfway between the agreement of the clusters of both
    halves, which is too high, and of the most reliable groups, which is too low.
    """
    sizes = np.array([entry.sum() for entry in entries])
    present = sizes > 0

    def means(values: FloatArray) -> FloatArray:
        return np.array([values[entry].mean() if entry.any() else 0.5 for entry in entries])

    agree = held_out.same if must else 1.0 - held_out.same
    right = held_out.if_same if must else 1.0 - held_out.if_different
    wrong = held_out.if_different if must else 1.0 - held_out.if_same
    agreement, if_right, if_wrong = means(agree), means(right), means(wrong)
    pooled = float(np.average(agreement, weights=sizes)) if present.any() else 0.5
    shrunk = (agreement * sizes + pooled * _PRIOR) / (sizes + _PRIOR)
    if_right = np.maximum((if_right + shrunk.max()) / 2.0, if_wrong + _LEAST_CONTRAST)
    contrast = if_right - if_wrong
    share = np.clip((agreement - if_wrong) / contrast, 0.0, 1.0)
    # Groups are drawn to their mean as far as their differences may be chance.
    mean = float(np.average(share, weights=sizes)) if present.any() else 0.5
    spread = np.maximum(agreement * (1.0 - agreement), 0.01)
    variance = spread / np.maximum(sizes, 1) / contrast**2
    trust = _SPREAD**2 / (_SPREAD**2 + variance)
    share = np.clip(mean + (share - mean) * np.where(present, trust, 0.0), _LOWEST, _HIGHEST)
    columns = (1.0 - agreement, 1.0 - if_right, 1.0 - if_wrong, share)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _held_out(
    points: Points, supervision: Supervision, answers: PairAnswers, n_clusters: int
) -> _HeldOut:
    """Cluster by one half of the answers, judge the other half, and the reverse."""
    rng = np.random.default_rng(0)
    distortion = SquaredEuclidean()
    n = points.shape[0]
    drawn = rng.integers(n, size=(_DRAWN, 2))
    drawn = drawn[drawn[:, 0] != drawn[:, 1]]
    near = _nearest(distortion.between(points, drawn), distortion.between(points, answers.pairs))
    unit = _unit(points, supervision, n_clusters, rng)
    unit_number = _units_of_answers(answers)
    same = np.zeros(len(answers.pairs))
    together: list[float] = []
    if_same, if_different = np.zeros((2, len(answers.pairs)))
    for _ in range(_REPEATS):
        half = (rng.permutation(int(unit_number.max()) + 1) % 2)[unit_number]
        joins = []
        for fold in (0, 1):
            out = half == fold
            labels = _labels(points, supervision, answers, ~out, unit, n_clusters, rng)
            ends = labels[answers.pairs[out]]
            same[out] += (ends[:, 0] == ends[:, 1]) / _REPEATS
            joins.append(labels[drawn[:, 0]] == labels[drawn[:, 1]])
            together.append(float(joins[-1].mean()))
        for one, other in (joins, joins[::-1]):
            for total, mask in ((if_same, one), (if_different, ~one)):
                # One more of each kind than was drawn: no division by zero.
                count, of = mask[near].sum(axis=1), (mask & other)[near].sum(axis=1)
                prior = float((mask & other).sum() + 0.5) / float(mask.sum() + 1.0)
                total += (of + prior) / (count + 1.0) / (2 * _REPEATS)
    return _HeldOut(same, float(np.mean(together)), if_same, if_different)


def _nearest(drawn: FloatArray, gaps: FloatArray) -> IntArray:
    """Return the drawn pairs of points whose distance is nearest to each gap, by rank."""
    order = np.argsort(drawn)
    first = np.searchsorted(drawn[order], gaps) - _NEAR // 2
    first = np.clip(first, 0, max(0, drawn.size - _NEAR))
    ranks = np.minimum(first[:, np.newaxis] + np.arange(_NEAR), drawn.size - 1)
    nearest: IntArray = order[ranks].astype(np.int64, copy=False)
    return nearest


def _units_of_answers(answers: PairAnswers) -> IntArray:
    """Return the number of the unit of each answer; the answers of a unit are held out together.

    A unit holds the must-links of a group that connect some points, since they imply each other, or
    all answers of a group about a pair. A unit with more than half of a group is divided.
    """
    assert answers.group is not None
    n = answers.n_points
    unit = codes_of(answers.pairs, n)
    for number in range(len(answers.names)):
        members = np.flatnonzero(answers.must_link & (answers.group == number))
        links = answers.pairs[members]
        component = Constraints(links, None, n_points=n).components()[links[:, 0]]
        large = np.bincount(component, minlength=1) > max(2, len(members) // 2)
        joined = members[~large[component]]
        # Numbers beyond the codes of all pairs.
        unit[joined] = (number + n) * n + component[~large[component]]
    return np.unique(unit, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _labels(
    points: Points,
    supervision: Supervision,
    answers: PairAnswers,
    rows: npt.NDArray[np.bool_],
    unit: float,
    n_clusters: int,
    rng: np.random.Generator,
) -> IntArray:
    """Return the labels of pairwise-constrained k-means on some of the answers."""
    pairs = summed(answers, np.where(rows, USUAL_ODDS, 0.0))
    weighted = pairs.with_weights(
        unit * USUAL_ODDS * pairs.ml_weights, unit * USUAL_ODDS * pairs.cl_weights
    )
    return _fit(points, replace(supervision, constraints=weighted), n_clusters, rng).labels


def _fit(
    points: Points, supervision: Supervision, n_clusters: int, rng: np.random.Generator
) -> Fit[HMRF]:
    """Fit pairwise-constrained k-means from one start."""
    distortion = SquaredEuclidean()
    start = initial_centroids(points, supervision, n_clusters, distortion, "k-means++", rng)
    model = HMRF(points, supervision, distortion, start)
    step = LabelStep("icm", rng)
    return Fit(model, maximise_expectation(model, step, max_iter=_ITERATIONS, tol=1e-4))


def _unit(
    points: Points, supervision: Supervision, n_clusters: int, rng: np.random.Generator
) -> float:
    """Return the cost of a unit of log-probability, from clusters without pairs."""
    nothing = without_pairs(points.shape[0], supervision.sample_weight)
    fit = _fit(points, nothing, n_clusters, rng)
    return unit_of_costs(fit.model.costs(), fit.labels, nothing.sample_weight_or_ones)


def unit_of_costs(costs: FloatArray, labels: IntArray, sample_weight: FloatArray) -> float:
    """Return half the quotient of variance and mean of the differences of costs in clusters."""
    variance = mean = 0.0
    for h in range(costs.shape[1]):
        members = labels == h
        gaps = costs[members] - costs[members, h, np.newaxis]
        mass, share = (
            sample_weight[members].sum(),
            sample_weight[members] / max(sample_weight[members].sum(), np.finfo(float).tiny),
        )
        average = share @ gaps
        variance += mass * float((share @ (gaps - average) ** 2).sum())
        mean += mass * float(average.sum())
    return variance / (2.0 * mean) if mean > 0 else 1.0
