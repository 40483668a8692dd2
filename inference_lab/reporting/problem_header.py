"""What is said of a problem, and of the solvers on it, in the same way in every table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from inference_lab.formatting import NONE, counted, decimals_for, format_energy
from inference_lab.reporting.cells import (
    Columns,
    energy_cell,
    number_cell,
    optional_column,
    text_cell,
)
from inference_lab.reporting.document import Cell
from inference_lab.results.summaries import ProblemSummary, Row

__all__ = [
    "energy_cells",
    "known_facts",
    "proof_cell",
    "row_decimals",
    "score_columns",
    "sizes",
]


def sizes(problem: ProblemSummary) -> str:
    """Return how large a problem is."""
    parts = [
        counted(problem.n_variables, "variable"),
        counted(problem.n_edges, "edge"),
        counted(problem.n_labels, "label"),
    ]
    if problem.n_factors:
        parts.insert(2, counted(problem.n_factors, "larger factor"))
    return ", ".join(parts)


def known_facts(problem: ProblemSummary, decimals: int) -> list[str]:
    """Return the best energy and bound known, and the energy of the ground truth."""
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
    """Return the decimals of all energies and bounds in the table of a problem."""
    energies = [e for row in rows for e in (row.energy_max, row.lower_bound)]
    return decimals_for([*energies, problem.truth_energy or 0.0])


def energy_cells(problem: ProblemSummary, rows: Iterable[Row], decimals: int) -> list[Cell]:
    """Return the energies of the solvers, the best energy known marked."""
    cells = [(row, energy_cell(row.energy, decimals)) for row in rows]
    return [
        Cell(
            cell.text, cell.value, "best" if problem.proves(row.energy, problem.best_energy) else ""
        )
        for row, cell in cells
    ]


def proof_cell(row: Row) -> Cell:
    """Return by whose bound the answer is proved, if there is an answer."""
    return text_cell(row.proved_by if row.answered else NONE)


def score_columns(rows: Sequence[Row]) -> Columns:
    """Return a column for each score of the problem's own."""
    columns: Columns = []
    for name in dict.fromkeys(name for row in rows for name in row.scores):
        columns += optional_column(
            name.replace("_", " "),
            [row.scores.get(name) for row in rows],
            lambda v: number_cell(v, NONE if v is None else f"{v:.4g}"),
        )
    return columns
