"""The sections of a report on problems: a table of all, and the solvers on each."""

from __future__ import annotations

import math
from collections.abc import Sequence

from inference_lab.formatting import shortened
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
from inference_lab.reporting.problem_header import known_facts, problem_columns, sizes
from inference_lab.reporting.result_arrays import ResultArrays
from inference_lab.results.number_formats import NONE, decimals_for, format_percent
from inference_lab.results.summaries import Row, grouped

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
