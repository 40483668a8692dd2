"""The sections of a report on problems: what is known of all, and the solvers on each."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from inference_lab.formatting import NONE, decimals_for, format_seconds, listed, shortened
from inference_lab.reporting.analysis import BAND, Analysis
from inference_lab.reporting.cells import (
    Columns,
    column_of,
    count_cell,
    energy_cell,
    number_cell,
    optional_column,
    percent_cell,
    score_cell,
    seconds_cell,
    table_of,
    text_cell,
)
from inference_lab.reporting.document import Cell, Column, Section, Table, Text
from inference_lab.reporting.problem_header import (
    energy_cells,
    known_facts,
    proof_cell,
    row_decimals,
    score_columns,
    sizes,
)
from inference_lab.reporting.statistics import quantile
from inference_lab.results.summaries import ProblemSummary, Row, gap_percent

__all__ = ["open_section", "problem_by_problem_section", "problems_section"]

FloatArray = npt.NDArray[np.float64]

#: Longer messages are cut off; records hold the whole.
_REASON_WIDTH = 300


def problems_section(analysis: Analysis) -> Section:
    """Return the section on what all runs together say about each problem."""
    results = analysis.results
    rows = []
    for summary, record, name in zip(
        results.problems, results.problem_records, results.class_of, strict=True
    ):
        decimals = decimals_for([summary.best_energy, summary.best_bound, summary.optimum or 0.0])
        infeasible = summary.best_bound == math.inf and summary.best_energy == math.inf
        rows.append(
            (
                text_cell(summary.name),
                text_cell(name),
                *(
                    Cell(f"{n:,}", n)
                    for n in (
                        *(summary.n_variables, summary.n_edges),
                        *(summary.n_factors, summary.n_labels),
                    )
                ),
                Cell("infeasible")
                if infeasible
                else energy_cell(summary.best_energy, decimals),
                text_cell(summary.best_energy_by or NONE),
                energy_cell(summary.best_bound, decimals),
                text_cell(summary.best_bound_by or NONE),
                percent_cell(summary.gap_percent),
                energy_cell(summary.optimum, decimals),
                text_cell(record.optimum_source or NONE, 60),
                text_cell(summary.hash[:12] or NONE) if not summary.hash else
                Cell(summary.hash[:12], title=summary.hash),
            )
        )  # fmt: skip
    table = Table(
        "problems",
        "The problems, and what all runs together say about them.",
        (
            *(Column("problem", right=False), Column("class", right=False)),
            *(Column(t) for t in ("variables", "edges", "larger factors", "labels")),
            Column("best energy"),
            Column("found by", right=False, help="one of those that found it"),
            *(Column("best bound"), Column("given by", right=False)),
            *(Column("gap %"), Column("known optimum"), Column("source", right=False)),
            Column("content", right=False, help="beginning of the hash of the content"),
        ),
        tuple(rows),
        "Labels: of the variable that has most.",
    )
    return Section("Problems", (table,))


def open_section(analysis: Analysis) -> Section | None:
    """Return the section on problems whose best energy nobody has proved, if there are several."""
    known = analysis.results.known
    if len(known) < 2:
        return None
    left = [
        (best, summary)
        for best, summary in zip(known, analysis.results.problems, strict=True)
        if best.open
    ]
    solved = f"The best energy known of {len(known) - len(left):,} of {len(known):,} problems is "
    if not left:
        return Section("Open problems", (Text((f"{solved}proved: none is open.",)),))
    rows = []
    for best, summary in left:
        decimals = decimals_for([best.energy, best.bound])
        rows.append(
            (
                text_cell(summary.name),
                energy_cell(best.energy, decimals),
                text_cell(listed(best.found_by, 3) if best.found_by else NONE),
                energy_cell(best.bound, decimals),
                text_cell(listed(best.bound_by, 3) if best.bound_by else NONE),
                percent_cell(gap_percent(best.energy, best.bound, small=best.small_energy)),
            )
        )
    table = Table(
        "open-problems",
        f"{solved}proved; these are open.",
        (
            Column("problem", right=False),
            Column("best energy"),
            Column("found by", right=False),
            Column("best bound"),
            Column("given by", right=False),
            Column("gap %"),
        ),
        tuple(rows),
        "Runs elsewhere, with more time, count where the file of best energies beside the records "
        "has them.",
    )
    return Section("Open problems", (table,))


def problem_by_problem_section(analysis: Analysis) -> Section:
    """Return the section with a table of the solvers for each problem."""
    rows: dict[str, list[Row]] = {}
    for row in analysis.results.comparison.rows:
        rows.setdefault(row.problem, []).append(row)
    shown = {analysis.results.solvers[s]: number for number, s in enumerate(analysis.everyone)}
    numbers = {s: number for number, s in enumerate(analysis.results.solvers)}
    primal = analysis.results.typical(analysis.results.primal_gap)
    nothing = analysis.results.failed | analysis.results.unsupported
    timed = analysis.results.spread(np.where(nothing, np.nan, analysis.results.seconds))
    low, high = (quantile(timed, q) for q in BAND)
    sections = []
    for p, summary in enumerate(analysis.results.problems):
        mine = sorted(rows[summary.name], key=lambda row: shown[row.solver])
        at = [numbers[row.solver] for row in mine]
        table = _problem_table(summary, mine, primal[p, at], low[p, at], high[p, at])
        sections.append(Section(summary.name, (table,), folded=True))
    note = (
        "Energies are medians over the runs that found a labelling, seconds over those that "
        "neither failed nor were refused; bounds are the solver's own, medians over all runs; "
        "gaps are to the best bound known, whoever gave it."
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
    columns: Columns = [
        column_of(rows, "solver", lambda row: text_cell(row.solver), right=False),
        (Column("energy"), energy_cells(problem, rows, decimals)),
    ]
    if several:
        columns += [
            column_of(rows, "lowest", lambda row: energy_cell(row.energy_min, decimals)),
            column_of(rows, "highest", lambda row: energy_cell(row.energy_max, decimals)),
        ]
    columns += [
        column_of(primal.tolist(), "primal gap %", percent_cell),
        *(
            [column_of(rows, "gap %", lambda row: percent_cell(row.gap_percent))]
            if problem.best_bound > -math.inf
            else []
        ),
        column_of(rows, "bound", lambda row: energy_cell(row.lower_bound, decimals)),
        column_of(
            rows,
            "proved",
            proof_cell,
            right=False,
            help="by the solver's own bound (yes), or another's; k/n: on k of n runs",
        ),
        column_of(rows, "seconds", lambda row: seconds_cell(row.seconds)),
    ]
    if several:
        head = Column("quartiles", help="of the seconds", as_text=True)
        columns.append((head, list(map(_quartiles_cell, quick.tolist(), slow.tolist()))))
    columns += optional_column("accuracy", [row.accuracy for row in rows], score_cell)
    columns += optional_column("pairwise F", [row.pairwise_f for row in rows], score_cell)
    columns += optional_column("NMI", [row.nmi for row in rows], score_cell)
    columns += optional_column("ARI", [row.ari for row in rows], score_cell)
    columns += score_columns(rows)
    columns += [
        column_of(rows, "runs", lambda row: count_cell(row.runs)),
        column_of(rows, "status", _status_cell, right=False),
    ]
    known = "; ".join([sizes(problem), *known_facts(problem, decimals), *problem.remarks])
    return table_of(f"problem-{problem.name}", f"{problem.name}: {known}.", columns)


def _quartiles_cell(quick: float, slow: float) -> Cell:
    text = NONE if math.isnan(slow) else f"{format_seconds(quick)} to {format_seconds(slow)}"
    return number_cell(slow, text)


def _status_cell(row: Row) -> Cell:
    reasons = shortened("; ".join(row.messages), _REASON_WIDTH)
    return Cell(row.status, mark="failed" if row.failed else "", title=reasons)
