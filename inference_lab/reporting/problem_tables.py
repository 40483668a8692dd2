"""Tables of problems: all in one, and the solvers on each, for reports and the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from inference_lab.formatting import counted, shortened
from inference_lab.reporting.document import (
    Cell,
    Column,
    Form,
    Section,
    Table,
    Text,
    column,
    cut,
    energies,
)
from inference_lab.reporting.result_arrays import ResultArrays
from inference_lab.results.number_formats import (
    NONE,
    decimals_for,
    format_energy,
    format_gap,
    format_percent,
    format_seconds,
)
from inference_lab.results.summaries import ProblemSummary, Row, grouped

#: Characters of a message shown; longer messages are truncated, because records hold the whole.
_REASON_WIDTH = 300

#: Title of the column that is dropped first on narrow terminals.
PAIRWISE = "pair F"


def sizes(problem: ProblemSummary) -> str:
    """Return the size of a problem in words."""
    parts = [
        counted(problem.n_variables, "variable"),
        counted(problem.n_edges, "edge"),
        counted(problem.n_labels, "label"),
    ]
    if problem.n_factors:
        parts.insert(2, counted(problem.n_factors, "larger factor"))
    return ", ".join(parts)


def known_facts(problem: ProblemSummary, rows: Iterable[Row]) -> str:
    """Return best energy and bound, the energy of the ground truth, and the remarks, in words."""
    decimals = _row_decimals(problem, rows)
    phrases = []
    if math.isfinite(problem.best_energy):
        phrases.append(f"best energy {format_energy(problem.best_energy, decimals)}")
    if math.isfinite(problem.best_bound):
        bound = format_energy(problem.best_bound, decimals)
        cut_short = ", cut short by a limit" if problem.best_bound_cut_short else ""
        phrases.append(f"best bound {bound} ({problem.best_bound_by}{cut_short})")
    elif problem.best_bound == math.inf:
        phrases.append(f"infeasible ({problem.best_bound_by})")
    else:
        phrases.append("no bound known")
    if problem.truth_energy is not None:
        truth = format_energy(problem.truth_energy, decimals)
        phrases.append(f"ground truth {truth if truth != NONE else 'infeasible'}")
    return "; ".join([", ".join(phrases), *problem.remarks])


def _row_decimals(problem: ProblemSummary, rows: Iterable[Row]) -> int:
    """Return the number of decimals of all energies and bounds in the table of a problem."""
    values = [e for row in rows for e in (row.energy_max, row.lower_bound)]
    return decimals_for([*values, problem.truth_energy or 0.0])


def problem_columns(
    problem: ProblemSummary, rows: Sequence[Row], everywhere: Sequence[Row], status: Form
) -> tuple[Column, ...]:
    """Return the columns of the table of the solvers on a problem.

    Columns that any of the rows `everywhere` needs are there; `status` is the form of the last one.
    """
    decimals = _row_decimals(problem, rows)
    energy = energies(decimals)

    def energy_cell(row: Row) -> Cell:
        return replace(energy(row.energy), mark="best" if problem.is_best(row.energy) else "")

    def spread(row: Row) -> str | Cell:
        difference = row.energy_max - row.energy_min if math.isfinite(row.energy) else None
        return "0" if difference == 0 else energy(difference)

    def partition(row: Row) -> str:
        if row.log_partition is None:
            return NONE
        sign = {"exact": "=", "lower": ">=", "upper": "<="}.get(row.log_partition_kind or "", "~")
        return f"{format_energy(row.log_partition, decimals)} {sign}"

    columns = [
        column("solver", [row.solver for row in rows]),
        column("energy", rows, energy_cell),
    ]
    if any(row.runs > 1 for row in everywhere):
        columns.append(column("spread", rows, spread, help="highest energy minus lowest"))
    if problem.best_bound > -math.inf:
        # In percent of the energy, which a constant makes smaller, and as it is.
        columns.append(column("gap", [row.gap for row in rows], format_gap))
        columns.append(column("gap %", [row.gap_percent for row in rows], format_percent))
    else:
        over = [row.over_best_percent for row in rows]
        columns.append(column("over best %", over, format_percent))
    columns += [
        column("bound", [row.lower_bound for row in rows], energy),
        column(
            "proved",
            [row.proved_by if row.answered else NONE for row in rows],
            help="by the solver's own bound (yes), or another's; within: up to a gap that the user "
            "accepts; k/n: on k of n runs",
        ),
    ]
    if any(row.log_partition is not None for row in everywhere):
        columns.append(column("log Z", rows, partition))
    columns.append(column("seconds", [row.seconds for row in rows], format_seconds))
    if any(row.accuracy is not None for row in everywhere):
        columns.append(column("accur.", [row.accuracy for row in rows], "{:.3f}".format))
        columns.append(column(PAIRWISE, [row.pairwise_f for row in rows], "{:.3f}".format))
    for name in dict.fromkeys(name for row in rows for name in row.scores):
        scores = [row.scores.get(name) for row in rows]
        columns.append(column(name.replace("_", " "), scores, "{:.4g}".format))
    return (*columns, column("status", rows, status, right=False))


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
    )
    table = Table(
        "problems",
        "The problems, with the best results of all runs.",
        columns,
        "Labels: of the variable that has most.",
    )
    return Section("Problems", (table,))


def problem_by_problem_section(results: ResultArrays) -> Section:
    """Return the section with a table of the solvers for each problem."""
    rows = grouped(results.comparison.rows, lambda row: row.problem)
    place = {results.solvers[s]: number for number, s in enumerate(results.everyone)}
    sections = []
    for summary in results.problems:
        mine = sorted(rows[summary.name], key=lambda row: place[row.solver])
        caption = f"{summary.name}: {sizes(summary)}; {known_facts(summary, mine)}."
        columns = problem_columns(summary, mine, mine, _status)
        table = Table(f"problem-{summary.name}", caption, columns)
        sections.append(Section(summary.name, (table,), folded=True))
    note = (
        "Energies are medians over the runs that found a labelling, seconds over those that "
        "neither failed nor were refused; bounds are the solver's own, medians over all runs; "
        "gaps are to the best bound known, of any solver."
    )
    return Section("Problem by problem", (Text((note,)),), folded=True, sections=tuple(sections))


def _status(row: Row) -> Cell:
    reasons = shortened("; ".join(row.messages), _REASON_WIDTH)
    return Cell(row.status, mark="failed" if row.failed else "", title=reasons)
