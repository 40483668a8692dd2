"""The section of a report on size: time and quality against the size of problems."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt

from inference_lab.formatting import counted
from inference_lab.reporting.charts import Curves, curves_chart, size_curves
from inference_lab.reporting.document import (
    Cell,
    Column,
    Form,
    Picture,
    Section,
    Table,
    Text,
    column,
)
from inference_lab.reporting.resampling import as_rows, effect
from inference_lab.reporting.result_arrays import ResultArrays, facts_of
from inference_lab.reporting.statistics import shifted_geometric_mean
from inference_lab.results.number_formats import NONE, format_percent, format_seconds
from inference_lab.specs.grammar import SpecError, parse_spec

__all__ = ["sizes_section"]

FloatArray = npt.NDArray[np.float64]

#: Statuses of runs that ended by themselves, whose times are therefore complete.
_ENDED = ("optimal", "converged", "infeasible")


def sizes_section(results: ResultArrays, growing: str, apart: str | None = None) -> Section:
    """Return the section on problems that differ in size, and possibly in one setting `apart`."""
    sizes = _Sizes(results, growing, apart)
    if len(sizes.values) < 2:
        text = f"The problems do not differ in {growing}, so there is no figure of how times grow."
        return Section("Size", (Text((text,)),))
    return Section("Size", (sizes.picture(), sizes.seconds_table(), sizes.gap_table()))


class _Sizes:
    """Numbers of shape (sizes, solvers), the solvers in the order of the report."""

    def __init__(self, results: ResultArrays, growing: str, apart: str | None) -> None:
        self.results = results
        self.growing = growing
        self.apart = apart
        facts = [facts_of(record) for record in results.problem_records]
        # NaN without the setting, because such problems have no size.
        self.size = np.array([float(f.get(growing, np.nan)) for f in facts], dtype=np.float64)
        self.values = np.unique(self.size[~np.isnan(self.size)])
        self.of_problem = [None if apart is None else _plain(f.get(apart, NONE)) for f in facts]

    def _means(
        self, values: FloatArray, mean: Callable[[FloatArray], float], part_of: str | None = None
    ) -> FloatArray:
        """Return means by size of one number per record, for one value of `apart` if given."""
        found = np.full((len(self.values), len(self.results.order)), np.nan)
        spread = self.results.spread(values)
        taken = np.array([part_of in (None, held) for held in self.of_problem])
        for at, size in enumerate(self.values):
            part = spread[(self.size == size) & taken]
            for number, s in enumerate(self.results.order):
                known = part[:, s][~np.isnan(part[:, s])]
                if known.size:
                    found[at, number] = mean(known)
        return found

    @cached_property
    def seconds(self) -> FloatArray:
        """The mean charged seconds of the runs."""
        charged = self.results.of("charged_seconds")
        return self._means(charged, partial(shifted_geometric_mean, shift=self.results.shift))

    @cached_property
    def cut(self) -> FloatArray:
        """The share of the runs that were ended by a limit."""
        ended = [r.status not in _ENDED for r in self.results.records]
        return self._means(np.array(ended, dtype=np.float64), np.mean)

    def exponents(self) -> list[Cell]:
        """Return the exponent of the size with which the time of each solver grows.

        This is the slope of log seconds over log variables for problems that differ in size alone,
        of runs that no limit ended: its mean over blocks, which the interval resamples.
        """
        series: dict[tuple[int, str], list[tuple[float, float]]] = defaultdict(list)
        blocks: dict[str, str] = {}
        places = (self.results.of(name) for name in ("problem", "solver", "seconds"))
        for record, problem, s, seconds in zip(self.results.records, *places, strict=True):
            if np.isnan(self.size[problem]) or record.status not in _ENDED:
                continue
            name = _without(record.problem, self.growing)
            blocks[name] = self.results.block_of[problem]
            point = (np.log(record.n_variables), np.log(max(seconds, 1e-6)))
            series[int(s), name].append(point)
        cells = []
        for s in self.results.order:
            slopes: dict[str, list[float]] = defaultdict(list)
            for (solver, name), points in series.items():
                x, y = np.array(points).T
                if solver == s and np.ptp(x) > 0:
                    slopes[blocks[name]].append(float(np.polyfit(x, y, 1)[0]))
            cells.append(_exponent(list(slopes.values())))
        return cells

    def seconds_table(self) -> Table:
        """Return the table of seconds by size, with the exponents of their growth."""
        first, *columns = self._columns(self.seconds, format_seconds)
        measured = [
            replace(made, cells=list(map(_with_cut, made.cells, shares.tolist())))
            for made, shares in zip(columns, self.cut, strict=True)
        ]
        return Table(
            "seconds-by-size",
            f"Seconds by {self.growing}: shifted geometric means over the problems of a size "
            f"(shift {self.results.shift:g} s).",
            (first, *measured, Column("exponent", self.exponents())),
            "Cut: the share of the runs that a limit ended. Exponent: the power of the number of "
            "variables with which the seconds of the other runs grow, with a 95 % interval over "
            f"resampled {self.results.blocks or 'problems'}; 1 is linear.",
        )

    def gap_table(self) -> Table:
        """Return the table of energies above the best one by size, for each value of `apart`."""
        best = self.results.reference[self.results.of("problem")]
        with np.errstate(invalid="ignore", divide="ignore"):
            above = 100.0 * (self.results.of("energy") - best) / np.abs(best)
        # Differences within the tolerance are set to zero, because they are rounding.
        above = np.where(self.results.of("primal_gap") == 0.0, 0.0, above)
        columns = [column("solver", self.results.labels)]
        for held in sorted(set(self.of_problem), key=lambda part: (len(part or ""), part)):
            for made in self._columns(self._means(above, np.mean, held), format_percent)[1:]:
                title = made.title if held is None else f"{made.title}, {self.apart} {held}"
                columns.append(replace(made, title=title))
        return Table(
            "gaps-by-size",
            f"Energy above the best one known, in percent of the best, by {self.growing}: means "
            "over the problems of a column.",
            tuple(columns),
            "The best energy of a large problem is less well known.",
        )

    def _columns(self, values: FloatArray, form: Form) -> list[Column]:
        columns = [column("solver", self.results.labels)]
        for size, row in zip(self.values, values.tolist(), strict=True):
            columns.append(column(f"{size:,.0f}", row, form, best=min))
        return columns

    def _curves(self) -> Curves:
        names = self.results.labels
        return size_curves(self.values, self.seconds.T, self.cut.T > 0, names, self.growing)

    def picture(self) -> Picture:
        """Return the figure of the seconds over the size."""
        solvers = counted(len(self.results.labels), "solver")
        return Picture(
            "seconds-by-size",
            f"Seconds over {self.growing}; hollow where a limit ended some of the runs. A line as "
            "steep as that of linear growth is linear.",
            f"Seconds against {self.growing} for {solvers}.",
            partial(curves_chart, self._curves()),
        )


def _plain(value: object) -> str:
    """Return a setting as text, whole numbers without a decimal point."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _with_cut(cell: Cell, share: float) -> Cell:
    """Return the cell of a time, with the share of runs that a limit ended unless it is zero."""
    return replace(cell, text=f"{cell.text} ({100 * share:.0f} % cut)") if share > 0 else cell


def _exponent(slopes: list[list[float]]) -> Cell:
    """Return the mean slope, with its interval if there are several blocks."""
    if not slopes:
        return Cell(NONE)
    found = effect(as_rows(slopes))
    interval = f" [{found.low:.2f}, {found.high:.2f}]" if len(slopes) > 1 else ""
    return Cell(f"{found.value:.2f}{interval}", found.value)


def _without(problem: str, setting: str) -> str:
    """Return the spec of a problem without one of its settings."""
    try:
        spec = parse_spec(problem)
    except SpecError:
        return problem
    kept = {name: value for name, value in spec.settings.items() if name != setting}
    return f"{spec.name}{kept}"
