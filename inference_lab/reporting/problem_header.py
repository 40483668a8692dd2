"""Descriptions of a problem and of the solvers on it that all tables share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from inference_lab.formatting import counted
from inference_lab.reporting.document import Cell, Column, Form, column, energies
from inference_lab.results.number_formats import (
    NONE,
    decimals_for,
    format_energy,
    format_percent,
    format_seconds,
)
from inference_lab.results.summaries import ProblemSummary, Row

__all__ = [
    "known_facts",
    "optional_column",
    "problem_columns",
    "row_decimals",
    "score_columns",
    "sizes",
]


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


def known_facts(problem: ProblemSummary, decimals: int) -> list[str]:
    """Return the best known energy and bound, and the energy of the ground truth."""
    known = []
    if math.isfinite(problem.best_energy):
        known.append(f"best energy {format_energy(problem.best_energy, decimals)}")
    if math.isfinite(problem.best_bound):
        bound = format_energy(problem.best_bound, decimals)
        known.append(f"best bound {bound} ({problem.best_bound_by})")
    elif problem.best_bound == math.inf:
        known.append(f"infeasible ({problem.best_bound_by})")
    else:
        known.append("no bound known")
    if problem.truth_energy is not None:
        truth = format_energy(problem.truth_energy, decimals)
        known.append(f"ground truth {truth if truth != NONE else 'infeasible'}")
    return known


def row_decimals(problem: ProblemSummary, rows: Iterable[Row]) -> int:
    """Return the number of decimals of all energies and bounds in the table of a problem."""
    found = [e for row in rows for e in (row.energy_max, row.lower_bound)]
    return decimals_for([*found, problem.truth_energy or 0.0])


def problem_columns(
    problem: ProblemSummary, rows: Sequence[Row], decimals: int
) -> dict[str, Column]:
    """Return the columns that tables of the solvers on a problem share, by title."""
    energy = energies(decimals)

    def found(row: Row) -> Cell:
        best = problem.proves(row.energy, problem.best_energy)
        return replace(energy(row.energy), mark="best" if best else "")

    columns = [
        column("solver", [row.solver for row in rows]),
        column("energy", rows, found),
        column("gap %", [row.gap_percent for row in rows], format_percent),
        column("bound", [row.lower_bound for row in rows], energy),
        column("proved", [row.proved_by if row.answered else NONE for row in rows]),
        column("seconds", [row.seconds for row in rows], format_seconds),
    ]
    return {made.title: made for made in columns}


def optional_column(title: str, values: Sequence[float | None], form: Form) -> list[Column]:
    """Return a list with the column, empty if all values are missing."""
    return [] if all(v is None for v in values) else [column(title, values, form)]


def score_columns(rows: Sequence[Row]) -> list[Column]:
    """Return a column for each score that the problems define."""
    columns = []
    for name in dict.fromkeys(name for row in rows for name in row.scores):
        columns += optional_column(
            name.replace("_", " "),
            [row.scores.get(name) for row in rows],
            lambda v: NONE if v is None else f"{v:.4g}",
        )
    return columns
