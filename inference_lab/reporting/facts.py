"""What is known of a problem in words, the same in every table."""

from __future__ import annotations

import math
from collections.abc import Iterable

from inference_lab.results.summaries import ProblemSummary, Row
from inference_lab.words import NONE, counted, decimals_for, energy_text

__all__ = ["known_facts", "row_decimals", "sizes"]


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
        known.append(f"best energy {energy_text(problem.best_energy, decimals)}")
    if math.isfinite(problem.best_bound):
        bound = energy_text(problem.best_bound, decimals)
        known.append(f"best bound {bound} ({problem.best_bound_by})")
    elif problem.best_bound == math.inf:
        known.append(f"infeasible ({problem.best_bound_by})")
    else:
        known.append("no bound known")
    if problem.truth_energy is not None:
        truth = energy_text(problem.truth_energy, decimals)
        known.append(f"ground truth {truth if truth != NONE else 'infeasible'}")
    return known


def row_decimals(problem: ProblemSummary, rows: Iterable[Row]) -> int:
    """Return the decimals of all energies and bounds in the table of a problem."""
    energies = [e for row in rows for e in (row.energy_max, row.lower_bound)]
    return decimals_for([*energies, problem.truth_energy or 0.0])
