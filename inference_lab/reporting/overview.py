"""The results of a report: in a few sentences, over all problems, and by class of problems."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from inference_lab.formatting import counted, listed
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
from inference_lab.reporting.result_arrays import SHIFT, ResultArrays
from inference_lab.results.number_formats import (
    NONE,
    format_percent,
    format_rate,
    format_seconds,
)

if TYPE_CHECKING:
    import pandas as pd

#: Percent of the primal gap within which solvers count as equally close to the best energies.
NEAR = 0.01

#: Percent of the primal gap within which a solver can be called the fastest.
_GOOD = 1.0

#: Largest ratio of two times that count as equal.
_TIME_RATIO = 1.1


def _summary_columns(results: ResultArrays, summary: pd.DataFrame) -> list[Column]:
    indices = [int(s) for s in results.everyone if summary.runs[s]]

    def made(title: str, values: pd.Series[Any], form: Form = str, **more: Any) -> Column:
        return column(title, values[indices].tolist(), form, **more)

    columns = [column("solver", [results.solvers[s] for s in indices])]
    if len(set(results.total.problems.tolist())) > 1:
        columns.append(made("run on", summary.problems, help="problems that the solver was run on"))
    primal = "distance to the best energy known"
    columns.append(made("primal gap %", summary.primal, format_percent, best=min, help=primal))
    if summary.gaps.any():
        bound = "distance to the best bound known, of any solver"
        columns.append(made("gap %", summary.gap, format_percent, help=bound))
        if (summary.gaps < summary.problems)[indices].any():
            gap_counts = [
                Cell(f"{summary.gaps[s]}/{summary.problems[s]}", int(summary.gaps[s]))
                for s in indices
            ]
            columns.append(
                Column("gap known", gap_counts, help="problems on which the gap is known")
            )
    if np.isfinite(summary.regret[indices]).any():
        above = "energy above the best known, in weights of a violated constraint: mean over runs"
        columns.append(made("regret", summary.regret, "{:.3g}".format, best=min, help=above))
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
            columns.append(made(title, means, "{:.3f}".format, best=max, help=truth))
    ended = "runs that ended in an error, or were ended"
    columns += [
        made("failed", summary.failed, failures, help=ended),
        made("unsup.", summary.unsupported, help="runs that the method refused"),
        made("runs", summary.runs),
    ]
    return columns


def _counting(results: ResultArrays) -> str:
    return (
        "Primal gap: 100 |E - E*| / max(|E|, |E*|) to the best energy E* known, 100 without a "
        "labelling; the median over seeds and repeats, then the mean over problems. Gap: "
        "100 (E - B) / max(|E*|, |B|) to the best bound B known, of the median energy E that was "
        "found, where E* is the lowest energy of all solvers; the mean over problems. Seconds: the "
        f"solver's own, shifted geometric mean (shift {SHIFT:g} s) over runs; a run that "
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
    n_problems, n_solvers = len(results.problems), len(results.solvers)
    draws = results.runs.value_counts(["problem", "solver"]).max()
    text = (
        f"{counted(n_solvers, 'solver')} on {counted(n_problems, 'problem')}, "
        f"{counted(len(results.records), 'run')}"
        + (f", up to {draws} a problem and solver" if draws > 1 else "")
        + f". On {results.proved_problems} of {counted(n_problems, 'problem')} the best answer is "
        "proved."
    )
    refusing = [results.solvers[s] for s in results.everyone if s not in results.order]
    if refusing:
        text += (
            " In the tables of results only, for having refused every problem: "
            f"{', '.join(refusing)}."
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
        members = np.flatnonzero(of == name)
        made = {c.title: c for c in _summary_columns(results, results.summary(members))}
        heads |= made
        n = len(made["solver"].cells)
        cells["class"] += [Cell(name)] * n
        cells["problems"] += [Cell(str(len(members)), len(members))] * n
        for title in titles:
            cells[title] += made[title].cells if title in made else [Cell(NONE)] * n
    columns = [
        replace(heads.get(title, Column(title, [], right=title != "class")), cells=entries)
        for title, entries in cells.items()
    ]
    table = Table(
        "classes",
        "Solvers on each class of problems.",
        tuple(columns),
        "Counted as over all problems.",
    )
    return Section("Classes of problems", (table,))


def in_short(results: ResultArrays) -> str:
    """Return a summary of a comparison, in a few sentences.

    It names the solvers closest to the best energies, the fastest of the good ones and those with
    the most proofs. It also counts the problems with a proved answer, and failures. Means are over
    the problems in common, where not every solver was run on every problem.
    """
    records = results.records
    sentences = [*_quality(results), _proofs(results)]
    failed = Counter(r.solver for r in records if r.failed)
    if failed:
        counts = listed([f"{solver} ({count:,})" for solver, count in failed.most_common()])
        sentences.append(f"{failed.total():,} of {counted(len(records), 'run')} failed: {counts}.")
    return " ".join(sentences)


def _quality(results: ResultArrays) -> list[str]:
    """Return sentences on the solvers closest to the best energies, and the fastest of them."""
    names = results.solvers
    order = [int(s) for s in results.order]
    if (results.of("primal_gap") >= 100.0).all():
        return ["No run found a labelling."]
    if not len(results.complete):
        return ["No problem was run by all solvers, so they are not compared here."]
    summary = results.summary(results.complete)
    gap, seconds = summary.primal, summary.seconds
    lowest = min(float(gap[s]) for s in order)
    near = [s for s in order if gap[s] <= lowest + NEAR]
    over = f", over {results.basis}" if results.incomplete else ""
    sentences = [
        f"Closest to the best energies known{over}: {listed([names[s] for s in near])} (mean "
        f"primal gap {format_percent(lowest)} %)"
    ]
    following = min((s for s in order if s not in near), key=lambda s: float(gap[s]), default=None)
    if following is not None:
        sentences.append(f", before {names[following]} ({format_percent(float(gap[following]))} %)")
    good = [s for s in order if gap[s] <= _GOOD + 1e-6]  # up to rounding
    if not good:
        return ["".join(sentences) + f"; none is within {_GOOD:g} % of them on average."]
    quickest = min(float(seconds[s]) for s in good)
    fast = listed([names[s] for s in good if seconds[s] <= _TIME_RATIO * quickest])
    return [
        "".join(sentences) + ".",
        f"Fastest of the {len(good)} within {_GOOD:g} % of them on average: {fast} "
        f"({format_seconds(quickest)} s on average).",
    ]


def _proofs(results: ResultArrays) -> str:
    """Return a sentence on the solvers with the most proofs, and on the proved problems."""
    proved = results.total.proved
    names = results.solvers
    n = len(results.problems)
    top_rate = max(float(proved[s]) for s in results.order)
    best = listed([names[s] for s in results.order if proved[s] >= top_rate - 1e-9])
    by = (
        f"Most answers are proved by {best}, in {format_rate(top_rate)} % of runs"
        if top_rate
        else "No run proves its answer by its own bound"
    )
    return (
        f"{by}; the best answer is proved on {results.proved_problems} of {counted(n, 'problem')}."
    )
