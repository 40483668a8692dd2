"""Answers about pairs, each with its confidence and group, and the pairs that they add up to."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from inference_lab.constraints.pair_arrays import Parts
from inference_lab.constraints.pairs import codes_of
from inference_lab.formatting import counted, warn
from inference_lab.graph.arrays import FloatArray, IntArray

#: Log-odds of a pair that is right nine times in ten. It has a weight of 1 among relative weights.
USUAL_ODDS = math.log(9.0)
#: Largest confidence that counts. Confidences near 1 are the ones that are least reliable, and one
#: answer should not outweigh many (docs/decisions/060-reliability-of-groups-of-pairs.md).
SUREST = 0.99


@dataclass(frozen=True, eq=False)
class LogOdds:
    """Log-odds that each pair is right, as ``ml_weight`` or ``cl_weight`` of ``fit``.

    An estimator whose default is "auto" turns them into weights on the scale of its costs. For
    others, a pair that is right nine times in ten has a weight of 1.

    Parameters
    ----------
    values : array-like of float, shape (p,)
        One for each listed pair, at least 0: ``log(c / (1 - c))`` for a probability ``c``.

    Examples
    --------
    >>> from inference_lab.clustering import LogOdds, PCKMeans
    >>> odds = LogOdds([2.2, 0.4])
    >>> X = [[0.0], [1.0], [8.0], [9.0]]
    >>> model = PCKMeans(2, random_state=0).fit(X, must_link=[(0, 1), (1, 2)], ml_weight=odds)
    >>> model.violations_.must_link
    1
    """

    values: npt.ArrayLike

    @property
    def relative(self) -> FloatArray:
        """Return weights in multiples of the weight of a pair that is right nine times in ten."""
        return np.asarray(self.values, dtype=np.float64) / USUAL_ODDS


@dataclass(frozen=True, eq=False)
class PairAnswers:
    """PairAnswers about pairs of points, of which several may be about one pair.

    Parameters
    ----------
    pairs : int64 array, shape (p, 2)
        Points of each answer, the smaller one first.
    must_link : bool array, shape (p,)
        Whether the answer is that both points belong together.
    confidence : float array, shape (p,), optional
        Probability that the answer is right.
    group : int64 array, shape (p,), optional
        Number of the group of each answer in `names`.
    names : tuple
        Names of the groups.
    n_points : int
    """

    pairs: IntArray
    must_link: npt.NDArray[np.bool_]
    n_points: int
    confidence: FloatArray | None = None
    group: IntArray | None = None
    names: tuple[Hashable, ...] = field(default=())

    def of_points(self, place: IntArray, n_points: int) -> PairAnswers:
        """Return the answers about some points, renumbered; `place` is -1 for other points."""
        inside = (place[self.pairs] >= 0).all(axis=1)
        return PairAnswers(
            np.sort(place[self.pairs[inside]], axis=1),
            self.must_link[inside],
            n_points,
            None if self.confidence is None else self.confidence[inside],
            None if self.group is None else self.group[inside],
            self.names,
        )

    def log_odds(self) -> FloatArray:
        """Return the log-odds that each answer is right, by its confidence; 0 up to one half."""
        if self.confidence is None:
            return np.full(len(self.pairs), USUAL_ODDS)
        bounded = np.clip(self.confidence, 0.5, SUREST)
        return np.log(bounded / (1.0 - bounded))

    def sums(self, log_odds: FloatArray) -> Parts:
        """Return each pair once, with the sum of its answers; opposite answers are subtracted.

        The kind of a pair is the one with more evidence. Weights are multiples of the evidence of a
        pair that is right nine times in ten; pairs whose answers cancel have a weight of 0.
        """
        codes, first, place = np.unique(
            codes_of(self.pairs, self.n_points), return_index=True, return_inverse=True
        )
        signed = np.where(self.must_link, log_odds, -log_odds)
        total = np.bincount(place.reshape(-1), weights=signed, minlength=len(codes))
        must = np.where(total == 0.0, self.must_link[first], total > 0.0)
        pairs, weights = self.pairs[first], np.abs(total) / USUAL_ODDS
        return Parts(pairs[must], pairs[~must], weights[must], weights[~must], self.n_points)

    def to_frame(self, names: Any) -> Any:
        """Return a data frame with a row for each answer; `names` has all points."""
        import pandas as pd

        labels = pd.Index(names)
        columns = {
            "i": labels[self.pairs[:, 0]],
            "j": labels[self.pairs[:, 1]],
            "kind": np.where(self.must_link, "must-link", "cannot-link"),
        }
        if self.confidence is not None:
            columns["confidence"] = self.confidence
        if self.group is not None:
            columns["group"] = pd.Series(self.names, dtype=object).to_numpy()[self.group]
        return pd.DataFrame(columns)


def group_numbers(groups: Sequence[Hashable]) -> tuple[IntArray, tuple[Hashable, ...]]:
    """Return the number of the group of each answer, and the names in order of appearance."""
    places: dict[Hashable, int] = {}
    numbers = [places.setdefault(name, len(places)) for name in groups]
    return np.array(numbers, dtype=np.int64), tuple(places)


def watch_confidence(confidence: FloatArray) -> None:
    """Warn of answers that are as likely wrong as right, which do not count."""
    idle = int((confidence <= 0.5).sum())
    if idle:
        warn(
            f"{counted(idle, 'pair')} of {confidence.size} with a confidence of 0.5 or less: they "
            "are as likely wrong as right, and have weight 0"
        )
