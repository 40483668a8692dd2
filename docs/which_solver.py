"""The decision table of the site, drawn from the records of a study when the site is built.

``{which-solver}`` in a page becomes the table. Nothing in it is typed by hand: the classes are the
settings of the problems, the figures are those of the records, and the intervals are bootstrapped
over data sets, which is what the sentence generalises to.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from inference_lab.reporting.statistics import primal_gap_percent
from inference_lab.results.findings import Findings
from inference_lab.results.records import RecordStore
from inference_lab.results.summaries import proof
from inference_lab.words import seconds_text

STUDY = Path(__file__).resolve().parents[1] / "reports" / "estep-grid"
DRAWS = 2_000
#: A solver is named for a class when its mean gap is within this of the lowest, in percent.
MARGIN = 0.25


class Cell(NamedTuple):
    """What one solver did on one class of problems."""

    solver: str
    gap: float
    low: float
    high: float
    proved: float
    seconds: float


def setting(problem: str, name: str, default: float) -> float:
    """Return a number that the spec of a problem sets."""
    found = re.search(rf"\b{name}=([0-9.]+)", problem)
    return float(found[1]) if found else default


def class_of(problem: str) -> str:
    """Return the class of an E-step: how many constraints there are, how many of them wrong."""
    noise = setting(problem, "noise", 0.0)
    many = setting(problem, "constraints", 0.0)
    if noise == 0 or many <= 50:
        return "few constraints, or none of them wrong"
    return f"{many:.0f} constraints, 10 to 30 % of them wrong"


def data_of(problem: str) -> str:
    """Return the data set of an E-step."""
    found = re.search(r"data=([\w-]+)", problem)
    return found[1] if found else problem


def cells(findings: Findings) -> dict[str, list[Cell]]:
    """Return the solvers of each class, the lowest mean gap first."""
    problems = {p.name: p for p in findings.problems}
    grouped: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for record in findings.records:
        grouped[class_of(record.problem)][findings.short_name(record.solver)].append(record)
    rng = np.random.default_rng(0)
    found: dict[str, list[Cell]] = {}
    for name, solvers in sorted(grouped.items(), key=lambda item: (item[0][0].isdigit(), item[0])):
        listed = []
        for solver, records in solvers.items():
            energies = [r.energy for r in records]
            gaps = primal_gap_percent(energies, [problems[r.problem].best_energy for r in records])
            by_data: dict[str, list[float]] = defaultdict(list)
            for record, gap in zip(records, gaps, strict=True):
                by_data[data_of(record.problem)].append(float(gap))
            means = np.array([np.mean(values) for values in by_data.values()])
            drawn = means[rng.integers(0, len(means), (DRAWS, len(means)))].mean(axis=1)
            low, high = np.quantile(drawn, [0.025, 0.975])
            proved = 100 * np.mean([proof(r, problems[r.problem]) == "yes" for r in records])
            seconds = float(np.median([r.seconds for r in records]))
            listed.append(Cell(solver, float(means.mean()), low, high, float(proved), seconds))
        found[name] = sorted(listed)
        found[name].sort(key=lambda c: (c.gap, c.seconds))
    return found


def chosen(listed: list[Cell]) -> dict[str, Cell]:
    """Return which solver to take for the lowest energies, for proofs, and inside a loop."""
    close = [c for c in listed if c.gap <= listed[0].gap + MARGIN]
    return {
        "lowest energy": listed[0],
        "inside a loop": min(close, key=lambda c: c.seconds),
        "a proof": max(listed, key=lambda c: (c.proved, -c.seconds)),
        "ICM, to compare": next(c for c in listed if c.solver == "icm"),
    }


class WhichSolver(SphinxDirective):
    """The table: a block a class of problems, a row a purpose."""

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        runs = next(p for p in sorted(STUDY.glob("runs.jsonl*")) if ".plan" not in p.name)
        self.env.note_dependency(str(runs))
        header = ["problem", "wanted", "solver", "above the best, %", "proved", "median time"]
        rows = []
        for name, listed in cells(Findings.of_store(RecordStore(runs))).items():
            for purpose, cell in chosen(listed).items():
                gap = f"{cell.gap:.2f} [{cell.low:.2f}, {cell.high:.2f}]"
                figures = [gap, f"{cell.proved:.0f} %", f"{seconds_text(cell.seconds)} s"]
                rows.append([name, purpose, cell.solver, *figures])
                name = ""
        return [_table(header, rows)]


def _table(header: list[str], rows: list[list[str]]) -> nodes.table:
    """Return a table of texts."""

    def line(texts: list[str]) -> nodes.row:
        return nodes.row("", *(nodes.entry("", nodes.paragraph(text=text)) for text in texts))

    columns = [nodes.colspec(colwidth=1) for _ in header]
    head = nodes.thead("", line(header))
    body = nodes.tbody("", *map(line, rows))
    group = nodes.tgroup("", *columns, head, body, cols=len(header))
    return nodes.table("", group, classes=["which"])


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("which-solver", WhichSolver)
    return {"parallel_read_safe": True}
