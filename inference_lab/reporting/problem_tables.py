"""The sections of a report on problems: a table of all, and the solvers on each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from inference_lab.formatting import listed, shortened
from inference_lab.reporting.document import (
    Cell,
    Column,
    Section,
    Table,
    Text,
    column,
    cut,
    energies,
)
from inference_lab.reporting.problem_header import (
    known_facts,
    optional_column,
    problem_columns,
    row_decimals,
    score_columns,
    sizes,
)
from inference_lab.reporting.result_arrays import BAND, SCORES, ResultArrays
from inference_lab.reporting.statistics import quantile
from inference_lab.results.number_formats import (
    NONE,
    decimals_for,
    format_percent,
    format_seconds,
    format_share,
)
from inference_lab.results.summaries import ProblemSummary, Row, gap_percent

__all__ = ["open_section", "problem_by_problem_section", "problems_section"]

FloatArray = npt.NDArray[np.float64]

#: Characters of a message shown; longer messages are truncated, because records hold the whole.
_REASON_WIDTH = 300


def problems_section(results: ResultArrays) -> Section:
    """Return the section on the best results of all runs together for each problem."""
    problems = results.problems
    decimals = [decimals_for([p.best_energy, p.best_bound, p.optimum or 0.0]) for p in problems]

    def shown(values: Sequence[float | None]) -> list[Cell]:
        return [energies(d)(value) for d, value in zip(decimals, values, strict=True)]

    best = [
        Cell("infeasible") if p.best_bound == math.inf == p.best_energy else cell
        for p, cell in zip(problems, shown([p.best_energy for p in problems]), strict=True)
    ]
    sources = [record.optimum_source or NONE for record in results.problem_records]
    columns = (
        column("problem", [p.name for p in problems]),
        column("class", results.class_of),
        column("variables", [p.n_variables for p in problems], "{:,}".format),
        column("edges", [p.n_edges for p in problems], "{:,}".format),
        column("larger factors", [p.n_factors for p in problems], "{:,}".format),
        column("labels", [p.n_labels for p in problems], "{:,}".format),
        Column("best energy", best),
        column(
            "found by",
            [p.best_energy_by or NONE for p in problems],
            help="one of those that found it",
        ),
        Column("best bound", shown([p.best_bound for p in problems])),
        column("given by", [p.best_bound_by or NONE for p in problems]),
        column("gap %", [p.gap_percent for p in problems], format_percent),
        Column("known optimum", shown([p.optimum for p in problems])),
        column("source", sources, cut(60), right=False),
        Column(
            "content",
            [Cell(p.hash[:12] or NONE, title=p.hash) for p in problems],
            right=False,
            help="beginning of the hash of the content",
        ),
    )
    table = Table(
        "problems",
        "The problems, with the best results of all runs.",
        columns,
        "Labels: of the variable that has most.",
    )
    return Section("Problems", (table,))


def open_section(results: ResultArrays) -> Section | None:
    """Return the section on problems without a proved best energy, if there are several."""
    known = results.known
    if len(known) < 2:
        return None
    left = [
        (best, summary) for best, summary in zip(known, results.problems, strict=True) if best.open
    ]
    solved = f"The best energy known of {len(known) - len(left):,} of {len(known):,} problems is "
    if not left:
        return Section("Open problems", (Text((f"{solved}proved: none is open.",)),))
    decimals = [decimals_for([best.energy, best.bound]) for best, _ in left]
    table = Table(
        "open-problems",
        f"{solved}proved; these are open.",
        (
            column("problem", [summary.name for _, summary in left]),
            Column(
                "best energy",
                [energies(d)(best.energy) for d, (best, _) in zip(decimals, left, strict=True)],
            ),
            column("found by", [listed(best.found_by, 3) or NONE for best, _ in left]),
            Column(
                "best bound",
                [energies(d)(best.bound) for d, (best, _) in zip(decimals, left, strict=True)],
            ),
            column("given by", [listed(best.bound_by, 3) or NONE for best, _ in left]),
            column(
                "gap %",
                [gap_percent(b.energy, b.bound, small=b.small_energy) for b, _ in left],
                format_percent,
            ),
        ),
        "Runs elsewhere, with more time, count where the file of best energies beside the records "
        "has them.",
    )
    return Section("Open problems", (table,))


def problem_by_problem_section(results: ResultArrays) -> Section:
    """Return the section with a table of the solvers for each problem."""
    rows: dict[str, list[Row]] = {}
    for row in results.comparison.rows:
        rows.setdefault(row.problem, []).append(row)
    shown = {results.solvers[s]: number for number, s in enumerate(results.everyone)}
    numbers = {s: number for number, s in enumerate(results.solvers)}
    primal = results.typical(results.of("primal_gap"))
    nothing = results.of("failed") | results.of("unsupported")
    timed = results.spread(np.where(nothing, np.nan, results.of("seconds")))
    low, high = (quantile(timed, q) for q in BAND)
    sections = []
    for p, summary in enumerate(results.problems):
        mine = sorted(rows[summary.name], key=lambda row: shown[row.solver])
        at = [numbers[row.solver] for row in mine]
        table = _problem_table(summary, mine, primal[p, at], low[p, at], high[p, at])
        sections.append(Section(summary.name, (table,), folded=True))
    note = (
        "Energies are medians over the runs that found a labelling, seconds over those that "
        "neither failed nor were refused; bounds are the solver's own, medians over all runs; "
        "gaps are to the best bound known, of any solver."
    )
    return Section("Problem by problem", (Text((note,)),), folded=True, sections=tuple(sections))


def _problem_table(
    problem: ProblemSummary,
    rows: list[Row],
    primal: FloatArray,
    quick: FloatArray,
    slow: FloatArray,
) -> Table:
    decimals = row_decimals(problem, rows)
    several = any(row.runs > 1 for row in rows)
    energy = energies(decimals)
    shared = problem_columns(problem, rows, decimals)
    columns = [shared["solver"], shared["energy"]]
    if several:
        columns += [
            column("lowest", [row.energy_min for row in rows], energy),
            column("highest", [row.energy_max for row in rows], energy),
        ]
    columns.append(column("primal gap %", primal, format_percent))
    if problem.best_bound > -math.inf:
        columns.append(shared["gap %"])
    said = "by the solver's own bound (yes), or another's; k/n: on k of n runs"
    columns += [shared["bound"], replace(shared["proved"], help=said), shared["seconds"]]
    if several:
        quartiles = list(zip(quick.tolist(), slow.tolist(), strict=True))
        columns.append(
            column("quartiles", quartiles, _quartiles, help="of the seconds", as_text=True)
        )
    for title, name in SCORES.items():
        columns += optional_column(title, [getattr(row, name) for row in rows], format_share)
    columns += [
        *score_columns(rows),
        column("runs", [row.runs for row in rows]),
        column("status", rows, _status, right=False),
    ]
    known = "; ".join([sizes(problem), *known_facts(problem, decimals), *problem.remarks])
    return Table(f"problem-{problem.name}", f"{problem.name}: {known}.", tuple(columns))


def _quartiles(ends: tuple[float, float]) -> Cell:
    quick, slow = ends
    if math.isnan(slow):
        return Cell(NONE)
    return Cell(f"{format_seconds(quick)} to {format_seconds(slow)}", slow)


def _status(row: Row) -> Cell:
    reasons = shortened("; ".join(row.messages), _REASON_WIDTH)
    return Cell(row.status, mark="failed" if row.failed else "", title=reasons)
