"""The sections of a report on results: all problems, classes of problems, and maps of solvers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from inference_lab.formatting import counted, shortened
from inference_lab.reporting.charts import GREYS, heatmap
from inference_lab.reporting.document import (
    Block,
    Cell,
    Column,
    Form,
    Picture,
    Section,
    Table,
    Text,
    column,
    cut,
    failures,
)
from inference_lab.reporting.result_arrays import ResultArrays, natural
from inference_lab.reporting.statistics import shifted_geometric_mean
from inference_lab.reporting.summary import NEAR
from inference_lab.results.number_formats import (
    NONE,
    format_percent,
    format_rate,
    format_seconds,
    format_share,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["classes_section", "map_section", "results_section", "solvers_table"]

#: Characters that fit into a cell of a map.
_MAP_NAME = 24

#: Leads in the legend of a map, in points of the primal gap.
_LEADS = (NEAR, 0.1, 1.0, 10.0)


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


def map_section(results: ResultArrays, maps: Sequence[tuple[str, str]]) -> Section | None:
    """Return maps of the best solver over pairs of entries of the problems' info, if any."""
    if not maps:
        return None
    blocks = [block for first, second in maps for block in _maps(results, first, second)]
    return Section("Which solver where", tuple(blocks))


class _Cell(NamedTuple):
    """The best solver for given values of two entries, with all solvers that tie."""

    along: str
    across: str
    problems: int
    solvers: list[int]
    gap: float
    #: Difference between the gap of the next solver and theirs.
    lead: float
    fastest: int
    seconds: float


def _maps(results: ResultArrays, first: str, second: str) -> list[Block]:
    """Return the map of the solvers of lowest energy over the values of two entries."""
    places: dict[tuple[str, str], list[int]] = {}
    for n, record in enumerate(results.problem_records):
        info = record.problem_info
        if first in info and second in info:
            places.setdefault((_value(info[first]), _value(info[second])), []).append(n)
    if not places:
        text = f"No problem has both {first} and {second}, so there is no map over them."
        return [Text((text,))]
    primal, seconds = (
        results.typical(v) for v in (results.of("primal_gap"), results.of("charged_seconds"))
    )
    # The gap counts as 100 without a run, so that a solver is never best where it was not run.
    primal = np.where(np.isnan(primal), 100.0, primal)
    cells = []
    for key in sorted(places, key=lambda key: (natural(key[0]), natural(key[1]))):
        here = places[key]
        gaps = primal[here].mean(axis=0)
        lowest = float(gaps.min())
        best = [int(s) for s in np.flatnonzero(gaps <= lowest + NEAR)]
        others = np.delete(gaps, best)
        lead = float(others.min()) - lowest if others.size else np.nan
        speed = {s: shifted_geometric_mean(seconds[here][:, s], results.shift) for s in best}
        fastest = min(best, key=lambda s: speed[s])
        cells.append(_Cell(*key, len(here), best, lowest, lead, fastest, speed[fastest]))
    names = [", ".join(results.solvers[s] for s in cell.solvers) for cell in cells]
    table = Table(
        f"best-solver-{first}-{second}",
        f"The best solver for each {first} and {second}.",
        (
            column(first, [cell.along for cell in cells], right=True),
            column(second, [cell.across for cell in cells], right=True),
            column("problems", [cell.problems for cell in cells]),
            column("best", names, cut(240), right=False, help="all that tie"),
            column("primal gap %", [cell.gap for cell in cells], format_percent),
            column(
                "lead",
                [cell.lead for cell in cells],
                format_percent,
                help="to the next solver, in points of the primal gap",
            ),
            column("fastest of them", [results.solvers[cell.fastest] for cell in cells]),
            column("seconds", [cell.seconds for cell in cells], format_seconds),
        ),
        f"The best has the lowest mean primal gap; all within {NEAR:g} % of it tie. Seconds: "
        "shifted geometric mean.",
    )
    return [_map_picture(results, first, second, cells), table]


def _map_picture(results: ResultArrays, first: str, second: str, cells: Sequence[_Cell]) -> Picture:
    """Return the picture of a map: the best solver in each cell, and its lead."""
    import pandas as pd

    short = results.comparison.short_name
    found = {(cell.along, cell.across): cell for cell in cells}
    along, across = (sorted({key[at] for key in found}, key=natural) for at in (0, 1))
    rows = []
    for a, b in itertools.product(along, across):
        text, lead = "", 0.0
        if (a, b) in found:
            cell = found[a, b]
            text = ", ".join(short(results.solvers[s]) for s in cell.solvers)
            if len(cell.solvers) > 1 and len(text) > _MAP_NAME:
                text = f"tie of {len(cell.solvers)}"
            if len(cell.solvers) == 1 and np.isfinite(cell.lead):
                lead = cell.lead
        text = shortened(text, _MAP_NAME)
        rows.append({"x": b, "y": a, "panel": "", "best": False, "text": text, "value": lead})
    # The scale is logarithmic, because leads differ by factors.
    scale = {
        "domain": [0, _LEADS[-1]],
        "range": GREYS,
        "clamp": True,
        "type": "symlog",
        "constant": _LEADS[0],
    }
    draw = partial(
        heatmap,
        pd.DataFrame(rows),
        second,
        first,
        scale=scale,
        shades="lead over the next solver, points of the primal gap",
        ticks=_LEADS,
    )
    return Picture(
        f"best-solver-map-{first}-{second}",
        f"The best solver by {first} and {second}: the lowest mean primal gap; all "
        f"within {NEAR:g} % of it tie. Darker: the next solver is further above.",
        f"Map of a solver for each of {counted(len(along), 'value')} of {first} and "
        f"{len(across)} of {second}.",
        draw,
    )


def _value(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
