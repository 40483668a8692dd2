"""The decision tables of the site, made when it is built.

``{which-solver}`` in a page becomes a table of the records of a study. Its classes are facts about
the problems, and its intervals are bootstrapped over data sets, to which it generalises.
``{which-estimator}`` becomes the table of the estimators in groups.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from inference_lab.clustering.catalogue import ESTIMATORS
from inference_lab.reporting.resampling import as_rows, effect
from inference_lab.reporting.statistics import primal_gap_percent
from inference_lab.results.analysis import Findings
from inference_lab.results.number_formats import format_seconds
from inference_lab.results.records import Record, RecordStore
from inference_lab.results.summaries import proof

STUDY = Path(__file__).resolve().parents[1] / "reports" / "estep-regimes"
#: A solver is named for a class when its mean gap is within this of the lowest, in percent.
MARGIN = 0.25
#: Where this solver proved its answer, the strong solvers were not run.
RELAXATION = "lp-relaxation"


class Cell(NamedTuple):
    """Results of one solver on one class of problems."""

    solver: str
    gap: float
    low: float
    high: float
    proved: float
    seconds: float


def class_of(record: Record) -> str:
    """Return the class of an E-step: how much a constraint weighs, how many of them are wrong."""
    info = record.problem_info
    weight, noise = float(info["weight_factor"]), float(info["noise"])
    if weight <= 1:
        return "constraints have the calibrated weight, or less"
    much = "they weigh 3 to 30 times that"
    if noise == 0:
        return f"{much}, none is wrong"
    return f"{much}, {'5 or 10' if noise <= 0.1 else '20 or 30'} % are wrong"


def cells(records: Iterable[Record], findings: Findings) -> list[Cell]:
    """Return the solvers that were run on all of the problems of some records, the best first."""
    problems = {p.name: p for p in findings.problems}
    solvers: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        solvers[record.solver].append(record)
    everywhere = max(map(len, solvers.values()), default=0)
    found = []
    for solver, runs in solvers.items():
        if len(runs) < everywhere:
            continue
        best = [problems[r.problem].best_energy for r in runs]
        gaps = primal_gap_percent([r.energy for r in runs], best)
        by_data: dict[str, list[float]] = defaultdict(list)
        for record, gap in zip(runs, gaps, strict=True):
            by_data[str(record.problem_info["data"])].append(float(gap))
        mean = effect(as_rows(by_data.values()))
        proved = 100 * np.mean([proof(r, problems[r.problem]) == "yes" for r in runs])
        seconds = float(np.median([r.seconds for r in runs]))
        name = findings.short_name(solver)
        found.append(Cell(name, mean.value, mean.low, mean.high, float(proved), seconds))
    return sorted(found, key=lambda c: (c.gap, c.seconds))


def chosen(records: list[Record], findings: Findings) -> dict[str, Cell]:
    """Return the solver to take inside a loop, for proofs, and where the LP is not tight."""
    listed = cells(records, findings)
    close = [c for c in listed if c.gap <= listed[0].gap + MARGIN]
    tight = {r.problem for r in records if r.solver == RELAXATION and r.status == "optimal"}
    left = [r for r in records if r.problem not in tight]
    share = len({r.problem for r in left}) / len({r.problem for r in records})
    found = {
        "inside a loop": min(close, key=lambda c: c.seconds),
        "a proof": max(listed, key=lambda c: (c.proved, -c.seconds)),
    }
    if left:
        hard = f"where the LP is not tight ({100 * share:.0f} %), in two seconds"
        found[hard] = cells(left, findings)[0]
    # These restarts take as long as the solvers that ICM is compared with.
    found["ICM, to compare"] = next(c for c in listed if c.solver == "icm(restarts=30)")
    return found


class WhichSolver(SphinxDirective):
    """The table: a block a class of problems, a row a purpose."""

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        runs = next(p for p in sorted(STUDY.glob("runs.jsonl*")) if ".plan" not in p.name)
        self.env.note_dependency(str(runs))
        header = ["problem", "wanted", "solver", "primal gap, %", "proved", "median time"]
        findings = Findings.of_store(RecordStore(runs))
        classes: dict[str, list[Record]] = defaultdict(list)
        for record in findings.records:
            classes[class_of(record)].append(record)
        rows = []
        for name, records in sorted(classes.items()):
            for purpose, cell in chosen(records, findings).items():
                gap = f"{cell.gap:.2f} [{cell.low:.2f}, {cell.high:.2f}]"
                figures = [gap, f"{cell.proved:.0f} %", f"{format_seconds(cell.seconds)} s"]
                rows.append([name, purpose, cell.solver, *figures])
                name = ""
        return [_table(header, rows, "which")]


class WhichEstimator(SphinxDirective):
    """The estimators: a table a group, a row an estimator."""

    def run(self) -> list[nodes.Node]:
        """Return the tables."""
        found: list[nodes.Node] = []
        for group, members in ESTIMATORS.items():
            title = nodes.strong(text=group.capitalize())
            rows = [[name, case] for name, case in members.items()]
            found += [
                nodes.paragraph("", "", title),
                _table(["estimator", "when"], rows, "estimators"),
            ]
        return found


def _table(header: list[str], rows: list[list[str]], name: str) -> nodes.table:
    """Return a table of texts with the name of a class of the style sheet."""

    def line(texts: list[str]) -> nodes.row:
        return nodes.row("", *(nodes.entry("", nodes.paragraph(text=text)) for text in texts))

    columns = [nodes.colspec(colwidth=1) for _ in header]
    head = nodes.thead("", line(header))
    body = nodes.tbody("", *map(line, rows))
    group = nodes.tgroup("", *columns, head, body, cols=len(header))
    return nodes.table("", group, classes=[name])


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives."""
    app.add_directive("which-solver", WhichSolver)
    app.add_directive("which-estimator", WhichEstimator)
    return {"parallel_read_safe": True}
