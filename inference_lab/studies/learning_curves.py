"""Statistics of studies: means over runs with confidence intervals, and paired differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from inference_lab.graph.arrays import FloatArray
from inference_lab.reporting.charts import Chart, panels
from inference_lab.reporting.contrasts import score_name
from inference_lab.reporting.document import Cell
from inference_lab.reporting.statistics import signed_rank
from inference_lab.results.clustering_records import COSTS, StudyRecord

#: Two-sided level of all intervals.
LEVEL = 0.95


class Mean(NamedTuple):
    """A mean over runs, with half the width of its 95 % confidence interval (NaN for one run)."""

    value: float
    half: float = math.nan
    #: p-value of Wilcoxon's signed-rank test over paired runs; 1 if all differences are zero.
    p_value: float = math.nan


def mean_of(values: Iterable[float]) -> Mean:
    """Return the mean of values and its Student t interval."""
    array = np.array([v for v in values if math.isfinite(v)], dtype=np.float64)
    n = array.size
    if n < 2:
        return Mean(float(array[0]) if n else math.nan)
    return Mean(float(array.mean()), _quantile(n) * float(array.std(ddof=1)) / math.sqrt(n))


@cache
def _quantile(n: int) -> float:
    """Return the quantile of Student's t of the interval of a mean of n values."""
    from scipy.stats import t

    return float(t.ppf(0.5 + LEVEL / 2.0, n - 1))


def paired(first: npt.ArrayLike, second: npt.ArrayLike) -> Mean:
    """Return the mean of ``first - second`` over runs, where both are finite."""
    difference = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    difference = difference[np.isfinite(difference)]
    # Small differences are set to zero because rounding errors must not get a rank.
    snapped = np.where(np.abs(difference) < 1e-12, 0.0, difference)
    return mean_of(difference)._replace(p_value=signed_rank(snapped))


def mean_cell(mean: Mean, form: str = ".3f", more: str = "") -> Cell:
    """Return a mean with half the width of its interval, followed by `more`."""
    if math.isnan(mean.value):
        return Cell(f"-{more}")
    spread = "" if math.isnan(mean.half) else f" ± {mean.half:{form.removeprefix('+')}}"
    return Cell(f"{mean.value:{form}}{spread}{more}", mean.value)


@dataclass(frozen=True)
class FitArrays:
    """Scores and costs of fits, by the name of the score or cost and by method.

    Arrays have the shape (parts, data, constraints, runs), with parts in the order of the records.
    Missing and failed fits are NaN.
    """

    methods: Sequence[str]
    data: Sequence[str]
    constraints: Sequence[float]
    values: Mapping[tuple[str, str], FloatArray]

    @classmethod
    def gather(
        cls,
        records: Mapping[str, Iterable[StudyRecord]],
        methods: Sequence[str],
        data: Sequence[str],
        constraints: Sequence[float],
        runs: int,
        scores: Sequence[str],
        called: Callable[[str], str] = str,
    ) -> FitArrays:
        """Sort the records of parts into arrays; `called` translates the names of data."""
        import pandas as pd

        names = list(dict.fromkeys([*scores, *COSTS, *_E_STEPS]))
        lines = {
            (record.method, title, called(record.data), record.constraints, record.run): [
                record.e_steps.get(name) if name in _E_STEPS else record.score(name)
                for name in names
            ]
            for title, part in records.items()
            for record in part
            if not record.failed
        }
        frame = pd.DataFrame.from_dict(lines, "index", columns=names, dtype=np.float64)
        asked = pd.MultiIndex.from_product([methods, records, data, constraints, range(runs)])
        shape = (len(methods), len(records), len(data), len(constraints), runs)
        arrays = {name: frame[name].reindex(asked).to_numpy().reshape(shape) for name in names}
        values = {(name, m): arrays[name][at] for name in names for at, m in enumerate(methods)}
        return cls(methods, data, constraints, values)

    def mean(self, name: str, data: str, method: str, constraints: float) -> Mean:
        """Return the mean over runs of one cell of the first part."""
        at = self.data.index(data), self.constraints.index(constraints)
        return mean_of(self.values[name, method][0][at])

    def pooled(self, name: str, method: str, constraints: float | None = None) -> FloatArray:
        """Return each run's mean over all data, and over numbers of constraints if none is given.

        A run with missing fits has NaN, because a mean over the others would be biased.
        """
        values = self.values[name, method]
        if constraints is not None:
            values = values[:, :, [self.constraints.index(constraints)]]
        return np.asarray(values.mean(axis=(0, 1, 2)))


#: Counts of E-steps in records: solved, and proved optimal.
_E_STEPS = ("solved", "optimal")


def curve_panels(means: Sequence[tuple[str, str, str, Mean]], score: str, axis: str = "") -> Chart:
    """Return means of panels, methods and columns as a chart, with 95 % confidence intervals."""
    import pandas as pd

    # Intervals are clipped to the range of the score.
    lowest = {"ari": -1.0, "objective": -np.inf}.get(score, 0.0)
    highest = np.inf if score in ("clusters", "primal_gap", "optimality_gap", *COSTS) else 1.0
    rows = pd.DataFrame(
        [
            {"panel": panel, "solver": method, "x": column, "y": mean.value}
            | {"low": max(mean.value - half, lowest), "high": min(mean.value + half, highest)}
            for panel, method, column, mean in means
            for half in [0.0 if math.isnan(mean.half) else mean.half]
        ]
    )
    # Times have a log scale because they range from milliseconds to minutes.
    scale: Literal["linear", "log"] = "log" if score.endswith("seconds") else "linear"
    if scale == "log":
        rows["low"] = rows["low"].clip(lower=rows["y"] / 10)
    names = list(dict.fromkeys(rows["solver"]))
    return panels(rows.round(4), names, axis, score_name(score), scale)
