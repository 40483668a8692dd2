"""The sections of a report on results: all problems, and classes of problems."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from inference_lab.formatting import counted
from inference_lab.reporting.document import (
    Cell,
    Column,
    Form,
    Section,
    Table,
    Text,
    column,
    failures,
)
from inference_lab.reporting.result_arrays import ResultArrays
from inference_lab.results.number_formats import (
    NONE,
    format_percent,
    format_rate,
    format_seconds,
    format_share,
)

if TYPE_CHECKING:
    import pandas as pd


def _summary_columns(results: ResultArrays, summary: pd.DataFrame) -> list[Column]:
    chosen = [int(s) for s in results.everyone if summary.runs[s]]

    def made(title: str, values: pd.Series[Any], form: Form = str, **more: Any) -> Column:
        return column(title, values[chosen].tolist(), form, **more)

    columns = [column("solver", [results.solvers[s] for s in chosen])]
    if len(set(results.total.problems.tolist())) > 1:
        columns.append(made("run on", summary.problems, help="problems that the solver was run on"))
    primal = "distance to the best energy known"
    columns.append(made("primal gap %", summary.primal, format_percent, best=min, help=primal))
    if summary.gaps.any():
        bound = "distance to the best bound known, of any solver"
        columns.append(made("gap %", summary.gap, format_percent, help=bound))
        if (summary.gaps < summary.problems)[chosen].any():
            known = [
                Cell(f"{summary.gaps[s]}/{summary.problems[s]}", int(summary.gaps[s]))
                for s in chosen
            ]
            columns.append(Column("gap known", known, help="problems on which the gap is known"))
    if np.isfinite(summary.regret[chosen]).any():
        above = "energy above the best known, in weights of a violated constraint: mean over runs"
        columns.append(made("regret", summary.regret, _regret, best=min, help=above))
    best = "runs that found the best energy known"
    proved = "runs that proved their answer by their own bound"
    columns += [
        made("% best", summary.best, format_rate, best=max, help=best),
        made("% proved", summary.proved, format_rate, best=max, help=proved),
        made("seconds", summary.seconds, format_seconds, best=min, help="shifted geometric mean"),
    ]
    for title, means in (("accuracy", summary.accuracy), ("pairwise F", summary.pairwise_f)):
        if np.isfinite(means).any():
            truth = "agreement with the ground truth, mean over runs that gave a labelling"
            columns.append(made(title, means, format_share, best=max, help=truth))
    ended = "runs that ended in an error, or were ended"
    columns += [
        made("failed", summary.failed, failures, help=ended),
        made("unsup.", summary.unsupported, help="runs that the method refused"),
        made("runs", summary.runs),
    ]
    return columns


def _regret(value: float) -> str:
    return NONE if np.isnan(value) else f"{value:.3g}"


def _counting(results: ResultArrays) -> str:
    return (
        "Primal gap: 100 |E - E*| / max(|E|, |E*|) to the best energy E* known, 100 without a "
        "labelling; the median over seeds and repeats, then the mean over problems. Gap: "
        "100 (E - B) / max(|E*|, |B|) to the best bound B known, of the median energy E that was "
        "found, where E* is the lowest energy of all solvers; the mean over problems. Seconds: the "
        f"solver's own, shifted geometric mean (shift {results.shift:g} s) over runs; a run that "
        "failed, was refused or found no labelling is charged its time limit (its own time where "
        "that is longer), or without a limit the longest time of all runs."
    )


def solvers_table(results: ResultArrays) -> Table:
    """Return the table of the solvers over the problems that all of them were run on, if any."""
    n, common = len(results.problems), len(results.complete)
    title = f"All {counted(n, 'problem')}"
    if common < n:
        title = f"{common} of {counted(n, 'problem')}: those that all solvers were run on"
    if not common:
        return Table(title, "", (), "There is no such problem, so the solvers are not compared.")
    columns = _summary_columns(results, results.summary(results.complete))
    note = (
        "primal gap: to the best energy known; gaps: means over problems; % best: runs that reach "
        "the lowest energy known; % proved: by their own bound; seconds: shifted geometric mean"
    )
    return Table(title, "", tuple(columns), note)


def results_section(results: ResultArrays) -> Section:
    """Return the section on the solvers over all problems."""
    n_problems, n_solvers, draws = results.shape
    text = (
        f"{counted(n_solvers, 'solver')} on {counted(n_problems, 'problem')}, "
        f"{counted(len(results.records), 'run')}"
        + (f", up to {draws} a problem and solver" if draws > 1 else "")
        + f". On {results.proved_problems} of {counted(n_problems, 'problem')} the best answer is "
        "proved."
    )
    left_out = [results.solvers[s] for s in results.everyone if s not in results.order]
    if left_out:
        text += (
            " In the tables of results only, for having refused every problem: "
            f"{', '.join(left_out)}."
        )
    table = Table(
        "summary",
        f"All solvers over {counted(n_problems, 'problem')}, the closest to the best energies "
        "first.",
        tuple(_summary_columns(results, results.total)),
        _counting(results),
    )
    return Section("Results", (Text((text,)), table))


def classes_section(results: ResultArrays) -> Section | None:
    """Return the section on the solvers on each class, if there are several."""
    if len(results.classes) < 2:
        return None
    of = np.array(results.class_of)
    titles = [c.title for c in _summary_columns(results, results.total)]
    heads: dict[str, Column] = {}
    cells: dict[str, list[Cell]] = {title: [] for title in ("class", "problems", *titles)}
    for name in results.classes:
        chosen = np.flatnonzero(of == name)
        made = {c.title: c for c in _summary_columns(results, results.summary(chosen))}
        heads |= made
        n = len(made["solver"].cells)
        cells["class"] += [Cell(name)] * n
        cells["problems"] += [Cell(str(len(chosen)), len(chosen))] * n
        for title in titles:
            cells[title] += made[title].cells if title in made else [Cell(NONE)] * n
    columns = [
        replace(heads.get(title, Column(title, [], right=title != "class")), cells=held)
        for title, held in cells.items()
    ]
    table = Table(
        "classes",
        "Solvers on each class of problems.",
        tuple(columns),
        "Counted as over all problems.",
    )
    return Section("Classes of problems", (table,))
