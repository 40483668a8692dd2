"""The sections of a report on results: over all problems, over classes, and which solver where."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from inference_lab.formatting import NONE, counted, shortened
from inference_lab.reporting.analysis import Analysis, Summary
from inference_lab.reporting.cells import (
    Columns,
    best_marked,
    column_of,
    count_cell,
    number_cell,
    percent_cell,
    score_cell,
    seconds_cell,
    share_cell,
    table_of,
    text_cell,
)
from inference_lab.reporting.charts import GREYS, heatmap
from inference_lab.reporting.document import Block, Cell, Column, Picture, Section, Table, Text
from inference_lab.reporting.results import natural
from inference_lab.reporting.statistics import shifted_geometric_mean
from inference_lab.reporting.summary import NEAR

__all__ = ["classes_section", "map_section", "results_section"]

FloatArray = npt.NDArray[np.float64]

#: Characters that a cell of a map has room for.
_MAP_NAME = 24

#: Leads that are named below a map, in points of the primal gap.
_LEADS = (NEAR, 0.1, 1.0, 10.0)


def _summary_columns(analysis: Analysis, summary: Summary) -> Columns:
    chosen = [int(s) for s in analysis.everyone if summary.runs[s]]

    def column(
        title: str, values: npt.NDArray[Any], cell: Callable[[Any], Cell], help: str = ""
    ) -> tuple[Column, list[Cell]]:
        return column_of(values[chosen].tolist(), title, cell, help=help)

    def marked(
        found: tuple[Column, list[Cell]], largest: bool = False
    ) -> tuple[Column, list[Cell]]:
        head, cells = found
        return head, best_marked(cells, largest)

    specs = [analysis.results.solvers[s] for s in chosen]
    columns: Columns = [column_of(specs, "solver", text_cell, right=False)]
    if len(set(analysis.total.problems.tolist())) > 1:
        run_on = "problems that the solver was run on"
        columns.append(column("run on", summary.problems, count_cell, run_on))
    primal = "distance to the best energy known"
    columns.append(marked(column("primal gap %", summary.primal, percent_cell, primal)))
    if summary.gaps.any():
        bound = "distance to the best bound known, whoever gave it"
        columns.append(column("gap %", summary.gap, percent_cell, bound))
        if (summary.gaps < summary.problems)[chosen].any():
            known = zip(
                summary.gaps[chosen].tolist(), summary.problems[chosen].tolist(), strict=True
            )
            head = Column("gap known", help="problems on which the gap is known")
            columns.append((head, [Cell(f"{gaps}/{all_}", gaps) for gaps, all_ in known]))
    if np.isfinite(summary.regret[chosen]).any():
        above = "energy above the best known, in weights of a violated constraint: mean over runs"
        columns.append(marked(column("regret", summary.regret, _regret_cell, above)))
    best = "runs that found the best energy known"
    proved = "runs that proved their answer by their own bound"
    columns += [
        marked(column("% best", summary.best, share_cell, best), largest=True),
        marked(column("% proved", summary.proved, share_cell, proved), largest=True),
        marked(column("seconds", summary.seconds, seconds_cell, "shifted geometric mean")),
    ]
    for title, means in (("accuracy", summary.accuracy), ("pairwise F", summary.pairwise)):
        if np.isfinite(means).any():
            truth = "agreement with the ground truth, mean over runs that gave a labelling"
            columns.append(marked(column(title, means, score_cell, truth), largest=True))
    failures = partial(count_cell, mark=True)
    columns += [
        column("failed", summary.failed, failures, "runs that ended in an error, or were ended"),
        column("unsup.", summary.unsupported, count_cell, "runs that the method refused"),
        column("runs", summary.runs, count_cell),
    ]
    return columns


def _regret_cell(value: float) -> Cell:
    return number_cell(value, NONE if np.isnan(value) else f"{value:.3g}")


def _counting(analysis: Analysis) -> str:
    return (
        "Primal gap: 100 |E - E*| / max(|E|, |E*|) to the best energy E* known, 100 without a "
        "labelling; the median over seeds and repeats, then the mean over problems. Gap: "
        "100 (E - B) / max(|E*|, |B|) to the best bound B known, of the median energy E that was "
        "found, where E* is the lowest energy of all solvers; the mean over problems. Seconds: the "
        f"solver's own, shifted geometric mean (shift {analysis.shift:g} s) over runs; a run that "
        "failed, was refused or found no labelling is charged its time limit (its own time where "
        "that is longer), or without a limit the longest time of all runs."
    )


def results_section(analysis: Analysis) -> Section:
    """Return the section on the solvers over all problems."""
    results = analysis.results
    n_problems, n_solvers, draws = results.shape
    text = (
        f"{counted(n_solvers, 'solver')} on {counted(n_problems, 'problem')}, "
        f"{counted(len(results.records), 'run')}"
        + (f", up to {draws} a problem and solver" if draws > 1 else "")
        + f". On {analysis.proved_problems} of {counted(n_problems, 'problem')} the best answer is "
        "proved."
    )
    left_out = [results.solvers[s] for s in analysis.everyone if s not in analysis.order]
    if left_out:
        text += (
            " In the tables of results only, for having refused every problem: "
            f"{', '.join(left_out)}."
        )
    table = table_of(
        "summary",
        f"All solvers over {counted(n_problems, 'problem')}, the closest to the best energies "
        "first.",
        _summary_columns(analysis, analysis.total),
        _counting(analysis),
    )
    return Section("Results", (Text((text,)), table))


def classes_section(analysis: Analysis) -> Section | None:
    """Return the section on the solvers on each class, if there are several."""
    if len(analysis.classes) < 2:
        return None
    results = analysis.results
    of = np.array(results.class_of)
    heads: list[Column] = []
    rows: list[tuple[Cell, ...]] = []
    names = list(dict.fromkeys(c.title for c, _ in _summary_columns(analysis, analysis.total)))
    for name in analysis.classes:
        chosen = np.flatnonzero(of == name)
        summary = analysis.summary(chosen)
        columns = {c.title: (c, cells) for c, cells in _summary_columns(analysis, summary)}
        n = len(columns["solver"][1])
        kept = [columns.get(t, (Column(t), [Cell(NONE)] * n)) for t in names]
        heads = [
            Column("class", right=False),
            Column("problems"),
            *(head for head, _ in kept),
        ]
        lines = zip(*(cells for _, cells in kept), strict=True)
        rows += [(text_cell(name), count_cell(len(chosen)), *line) for line in lines]
    table = Table(
        "classes",
        "Solvers on each class of problems.",
        tuple(heads),
        tuple(rows),
        "Counted as over all problems.",
    )
    return Section("Classes of problems", (table,))


def map_section(analysis: Analysis, maps: Sequence[tuple[str, str]]) -> Section | None:
    """Return maps of the best solver over pairs of entries of the problems' info, if any."""
    if not maps:
        return None
    blocks = [block for first, second in maps for block in _maps(analysis, first, second)]
    return Section("Which solver where", tuple(blocks))


class _Grid(NamedTuple):
    """Which problems have which values of two entries of their info."""

    first: str
    second: str
    along: list[str]
    across: list[str]
    places: dict[tuple[str, str], list[int]]

    def cells(self) -> Iterator[tuple[int, int, list[int]]]:
        """Yield row, column and problems of each cell that has any."""
        for i, a in enumerate(self.along):
            for j, b in enumerate(self.across):
                if (a, b) in self.places:
                    yield i, j, self.places[a, b]


class _Winner(NamedTuple):
    """Who is best in a cell: one, or all that tie, and by how much."""

    solvers: list[int]
    lead: float


def _maps(analysis: Analysis, first: str, second: str) -> list[Block]:
    """Say which solver is best where two entries have which values."""
    places: dict[tuple[str, str], list[int]] = {}
    for n, record in enumerate(analysis.results.problem_records):
        info = record.problem_info
        if first in info and second in info:
            places.setdefault((_value(info[first]), _value(info[second])), []).append(n)
    if not places:
        text = f"No problem says both {first} and {second}, so there is no map over them."
        return [Text((text,))]
    along, across = (sorted({key[at] for key in places}, key=natural) for at in (0, 1))
    grid = _Grid(first, second, along, across, places)
    return _best_map(analysis, grid)


def _best_map(analysis: Analysis, grid: _Grid) -> list[Block]:
    """Say which solver has the lowest energies where, and by how much."""
    results = analysis.results
    primal, seconds = (results.typical(v) for v in (results.primal_gap, results.charged_seconds))
    # A solver that was not run on a problem is not the best on it.
    primal = np.where(np.isnan(primal), 100.0, primal)
    winners: dict[tuple[int, int], _Winner] = {}
    rows: list[tuple[Cell, ...]] = []
    for i, j, here in grid.cells():
        gaps = primal[here].mean(axis=0)
        lowest = float(gaps.min())
        best = [int(s) for s in np.flatnonzero(gaps <= lowest + NEAR)]
        others = np.delete(gaps, best)
        lead = float(others.min()) - lowest if others.size else np.nan
        speed = {s: shifted_geometric_mean(seconds[here][:, s], analysis.shift) for s in best}
        fastest = min(best, key=lambda s: speed[s])
        winners[i, j] = _Winner(best, lead)
        rows.append(
            (
                text_cell(grid.along[i]),
                text_cell(grid.across[j]),
                count_cell(len(here)),
                text_cell(", ".join(results.solvers[s] for s in best), 240),
                percent_cell(lowest),
                percent_cell(lead),
                text_cell(results.solvers[fastest]),
                seconds_cell(speed[fastest]),
            )
        )
    table = Table(
        f"best-solver-{grid.first}-{grid.second}",
        f"The best solver for each {grid.first} and {grid.second}.",
        (
            *(Column(grid.first), Column(grid.second), Column("problems")),
            Column("best", right=False, help="all that tie"),
            Column("primal gap %"),
            Column("lead", help="to the next solver, in points of the primal gap"),
            *(Column("fastest of them", right=False), Column("seconds")),
        ),
        tuple(rows),
        f"The best has the lowest mean primal gap; all within {NEAR:g} % of it tie. Seconds: "
        "shifted geometric mean.",
    )
    return [_map_picture(analysis, grid, winners), table]


def _map_picture(
    analysis: Analysis, grid: _Grid, winners: Mapping[tuple[int, int], _Winner]
) -> Picture:
    """Return the picture of a map: who is best in each cell, and by how much."""
    import pandas as pd

    short = analysis.results.comparison.short_name
    rows = []
    for i, j in itertools.product(range(len(grid.along)), range(len(grid.across))):
        row = {"x": grid.across[j], "y": grid.along[i], "panel": "", "best": False}
        found = winners.get((i, j))
        if found is None:
            rows.append({**row, "text": "", "value": 0.0})
            continue
        said = ", ".join(short(analysis.results.solvers[s]) for s in found.solvers)
        alone = len(found.solvers) == 1
        text = said if alone or len(said) <= _MAP_NAME else f"tie of {len(found.solvers)}"
        lead = found.lead if alone and np.isfinite(found.lead) else 0.0
        rows.append({**row, "text": shortened(text, _MAP_NAME), "value": lead})
    # Leads that differ by factors are told apart by their logarithm.
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
        grid.second,
        grid.first,
        scale=scale,
        shades="lead over the next solver, points of the primal gap",
        ticks=_LEADS,
    )
    along = counted(len(grid.along), "value")
    return Picture(
        f"best-solver-map-{grid.first}-{grid.second}",
        f"The best solver by {grid.first} and {grid.second}: the lowest mean primal gap; all "
        f"within {NEAR:g} % of it tie. Darker: the next solver is further above.",
        f"Map of a solver for each of {along} of {grid.first} and {len(grid.across)} of "
        f"{grid.second}.",
        draw,
    )


def _value(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
