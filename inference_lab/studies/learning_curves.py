"""Statistics of studies: means over runs with confidence intervals, and paired differences."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from inference_lab.reporting.charts import Chart, panels
from inference_lab.reporting.statistics import signed_rank
from inference_lab.results.clustering_records import COSTS, StudyRecord

__all__ = ["Difference", "Mean", "Results", "curve_panels", "mean_of", "paired", "score_name"]

_NAMES: Mapping[str, str] = {
    "pairwise_f": "pairwise F",
    "nmi": "NMI",
    "nmi_geometric": "NMI (geometric mean)",
    "ari": "adjusted Rand index",
    "accuracy": "accuracy",
    "boundary_accuracy": "accuracy of the decision boundary",
    "clusters": "number of clusters",
    "violated": "weight of violated constraints",
    "e_step_seconds": "seconds of E-steps",
}

#: Two-sided level of all intervals.
LEVEL = 0.95


class Mean(NamedTuple):
    """A mean over runs, with half the width of its 95 % confidence interval (NaN for one run)."""

    value: float
    half: float
    runs: int


class Difference(NamedTuple):
    """A mean difference over paired runs, and the p-value of Wilcoxon's signed-rank test.

    The p-value is 1 where all differences are zero.
    """

    value: float
    half: float
    runs: int
    p_value: float


def mean_of(values: Iterable[float]) -> Mean:
    """Return the mean of values and its Student t interval."""
    from scipy.stats import t

    array = np.array([v for v in values if math.isfinite(v)], dtype=np.float64)
    n = array.size
    if n == 0:
        return Mean(math.nan, math.nan, 0)
    if n == 1:
        return Mean(float(array[0]), math.nan, 1)
    quantile = float(t.ppf(0.5 + LEVEL / 2.0, n - 1))
    return Mean(float(array.mean()), quantile * float(array.std(ddof=1)) / math.sqrt(n), n)


def paired(first: npt.ArrayLike, second: npt.ArrayLike) -> Difference:
    """Return the mean of ``first - second`` over runs, where both are finite."""
    difference = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    difference = difference[np.isfinite(difference)]
    mean = mean_of(difference)
    # Rounding makes no rank.
    difference = np.where(np.abs(difference) < 1e-12, 0.0, difference)
    return Difference(mean.value, mean.half, mean.runs, signed_rank(difference))


@dataclass(frozen=True)
class Results:
    """The records of a study as arrays."""

    data: list[str]
    methods: list[str]
    constraints: list[float]
    runs: int
    values: dict[str, npt.NDArray[np.float64]]
    failures: list[StudyRecord]

    @classmethod
    def gather(
        cls,
        records: Iterable[StudyRecord],
        data: list[str],
        methods: list[str],
        constraints: list[float],
        runs: int,
        scores: list[str],
    ) -> Results:
        """Sort records into arrays."""
        shape = (len(data), len(methods), len(constraints), runs)
        names = [*scores, *COSTS, "optimal", "solved"]
        values = {name: np.full(shape, np.nan) for name in names}
        failures = []
        for record in records:
            if record.status != "ok":
                failures.append(record)
                continue
            at = (
                data.index(record.data),
                methods.index(record.method),
                constraints.index(record.constraints),
                record.run,
            )
            for name in scores:
                values[name][at] = _number(record.score(name))
            for name in COSTS:
                values[name][at] = record.score(name)
            for name in ("optimal", "solved"):
                values[name][at] = _number(record.e_steps[name])
        return cls(data, methods, constraints, runs, values, failures)

    def mean(self, name: str, data: str, method: str, constraints: float) -> Mean:
        """Return the mean of one cell over runs."""
        return mean_of(
            self.values[name][
                self.data.index(data),
                self.methods.index(method),
                self.constraints.index(constraints),
            ]
        )

    def pooled(self, name: str, method: str, constraints: float | None = None) -> Any:
        """Return each run's mean over data, and over numbers of constraints if none is given."""
        chosen = self.values[name][:, self.methods.index(method)]
        if constraints is not None:
            chosen = chosen[:, [self.constraints.index(constraints)]]
        # A run with a hole is no fair mean.
        return chosen.mean(axis=(0, 1))


def _number(value: Any) -> float:
    return float(value) if value is not None else math.nan


def score_name(score: str) -> str:
    """Return what a score is called in text."""
    return _NAMES.get(score, score)


def curve_panels(means: Sequence[tuple[str, str, str, Mean]], score: str, axis: str = "") -> Chart:
    """Return means of panels, methods and columns as a chart, with 95 % confidence intervals."""
    import pandas as pd

    # No score lies outside, so no interval need.
    lowest = {"ari": -1.0, "objective": -np.inf}.get(score, 0.0)
    highest = np.inf if score in ("clusters", *COSTS) else 1.0
    rows = pd.DataFrame(
        [
            {"panel": panel, "solver": method, "x": column, "y": mean.value}
            | {"low": max(mean.value - half, lowest), "high": min(mean.value + half, highest)}
            for panel, method, column, mean in means
            for half in [0.0 if math.isnan(mean.half) else mean.half]
        ]
    )
    # From methods of milliseconds to those of minutes.
    scale: Literal["linear", "log"] = "log" if score.endswith("seconds") else "linear"
    if scale == "log":
        rows["low"] = rows["low"].clip(lower=rows["y"] / 10)
    names = list(dict.fromkeys(rows["solver"]))
    return panels(rows.round(4), names, axis, score_name(score), scale)
