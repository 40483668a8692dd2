"""The section of a report on size: time and quality against the size of problems."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from inference_lab.formatting import counted
from inference_lab.reporting.charts import size_chart
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
from inference_lab.reporting.result_arrays import SHIFT, ResultArrays, facts_of
from inference_lab.reporting.statistics import shifted_geometric_mean
from inference_lab.results.number_formats import NONE, format_percent, format_seconds
from inference_lab.specs.grammar import SpecError, parse_spec

if TYPE_CHECKING:
    import pandas as pd

#: Statuses of runs that ended by themselves, whose times are therefore complete.
_ENDED = ("optimal", "converged", "infeasible")


def sizes_section(results: ResultArrays, growing: str, apart: str | None = None) -> Section:
    """Return the section on problems that differ in size, and possibly in one setting `apart`."""
    facts = [facts_of(record) for record in results.problem_records]
    problem = results.of("problem")
    runs = results.runs.assign(
        # NaN without the setting, because such problems have no size.
        size=np.array([f.get(growing, np.nan) for f in facts], dtype=np.float64)[problem],
        apart=np.array(["" if apart is None else _plain(f.get(apart, NONE)) for f in facts])[
            problem
        ],
        cut=[r.status not in _ENDED for r in results.records],
        variables=[r.n_variables for r in results.records],
        series=[_without(r.problem, growing) for r in results.records],
        block=np.array(results.block_of)[problem],
    )
    if runs["size"].nunique() < 2:
        text = f"The problems do not differ in {growing}, so there is no figure of how times grow."
        return Section("Size", (Text((text,)),))
    mean = partial(shifted_geometric_mean, shift=SHIFT)
    seconds = _by_size(results, runs, "charged_seconds", mean)
    cut = _by_size(results, runs, "cut", "mean")
    labels = results.labels
    picture = Picture(
        "seconds-by-size",
        f"Seconds over {growing}; hollow where a limit ended some of the runs. A line as "
        "steep as that of linear growth is linear.",
        f"Seconds against {growing} for {counted(len(labels), 'solver')}.",
        partial(
            size_chart,
            seconds.index.to_numpy(),
            seconds.to_numpy().T,
            cut.to_numpy().T > 0,
            labels,
            growing,
        ),
    )
    measured = [
        replace(made, cells=list(map(_with_cut, made.cells, shares)))
        for made, shares in zip(_columns(seconds, format_seconds), cut.to_numpy(), strict=True)
    ]
    times = Table(
        "seconds-by-size",
        f"Seconds by {growing}: shifted geometric means over the problems of a size "
        f"(shift {SHIFT:g} s).",
        (column("solver", labels), *measured, Column("exponent", _exponents(results, runs))),
        "Cut: the share of the runs that a limit ended. Exponent: the power of the number of "
        "variables with which the seconds of the other runs grow, with a 95 % interval over "
        f"resampled {results.blocks or 'problems'}; 1 is linear.",
    )
    return Section("Size", (picture, times, _gap_table(results, runs, growing, apart)))


def _by_size(
    results: ResultArrays, runs: pd.DataFrame, name: str, mean: str | Callable[[Any], float]
) -> pd.DataFrame:
    """Return means by size, one row for each, and by solver in the order of the report."""
    sizes = np.unique(runs["size"].dropna())
    means = runs.astype({name: float}).groupby(["size", "solver"])[name].agg(mean).unstack()
    return means.reindex(index=sizes, columns=results.order)


def _columns(values: pd.DataFrame, form: Form) -> list[Column]:
    """Return a column for each size."""
    return [
        column(f"{size:,.0f}", row.tolist(), form, best=min)
        for size, row in zip(values.index, values.to_numpy(), strict=True)
    ]


def _exponents(results: ResultArrays, runs: pd.DataFrame) -> list[Cell]:
    """Return the exponent of the size with which the time of each solver grows.

    This is the slope of log seconds over log variables for problems that differ in size alone,
    of runs that no limit ended: its mean over blocks, which the interval resamples.
    """
    ended = runs[~runs["cut"] & runs["size"].notna()]
    slopes: dict[int, dict[str, list[float]]] = {int(s): {} for s in results.order}
    for (solver, _), points in ended.groupby(["solver", "series"], sort=False):
        x = np.log(points["variables"])
        if solver in slopes and np.ptp(x) > 0:
            slope = np.polyfit(x, np.log(points["seconds"].clip(lower=1e-6)), 1)[0]
            slopes[solver].setdefault(points["block"].iloc[-1], []).append(float(slope))
    return [_exponent(list(blocks.values())) for blocks in slopes.values()]


def _gap_table(results: ResultArrays, runs: pd.DataFrame, growing: str, apart: str | None) -> Table:
    """Return the table of energies above the best one by size, for each value of `apart`."""
    best = results.reference[results.of("problem")]
    with np.errstate(invalid="ignore", divide="ignore"):
        above = 100.0 * (results.of("energy") - best) / np.abs(best)
    # Differences within the tolerance are set to zero, because they are rounding.
    runs = runs.assign(above=np.where(results.of("primal_gap") == 0.0, 0.0, above))
    columns = [column("solver", results.labels)]
    sizes = np.unique(runs["size"].dropna())
    for value in sorted(set(runs["apart"]), key=lambda part: (len(part), part)):
        part = _by_size(results, runs[runs["apart"] == value], "above", "mean")
        for made in _columns(part.reindex(sizes), format_percent):
            title = made.title if apart is None else f"{made.title}, {apart} {value}"
            columns.append(replace(made, title=title))
    return Table(
        "gaps-by-size",
        f"Energy above the best one known, in percent of the best, by {growing}: means "
        "over the problems of a column.",
        tuple(columns),
        "The best energy of a large problem is less well known.",
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
    estimate = effect(as_rows(slopes))
    interval = f" [{estimate.low:.2f}, {estimate.high:.2f}]" if len(slopes) > 1 else ""
    return Cell(f"{estimate.value:.2f}{interval}", estimate.value)


def _without(problem: str, setting: str) -> str:
    """Return the spec of a problem without one of its settings."""
    try:
        spec = parse_spec(problem)
    except SpecError:
        return problem
    settings = {name: value for name, value in spec.settings.items() if name != setting}
    return f"{spec.name}{settings}"
