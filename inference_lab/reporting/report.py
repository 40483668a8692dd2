"""The report of a comparison as a document, from records alone.

Every statement follows from the records. Sections that the records cannot support (such as tests
over one problem) are left out, or a line gives the reason. The order of the records does not
matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from inference_lab.reporting.contrasts import Contrast, contrasts_section
from inference_lab.reporting.document import Document, Items, Section
from inference_lab.reporting.overview import classes_section, in_short, results_section
from inference_lab.reporting.problem_tables import problem_by_problem_section, problems_section
from inference_lab.reporting.ranking import solvers_section
from inference_lab.reporting.result_arrays import TARGETS, ResultArrays, natural
from inference_lab.reporting.run_sections import (
    environment_section,
    failures_section,
    settings_section,
)
from inference_lab.reporting.sizes import sizes_section
from inference_lab.reporting.timing import glance_section, history_section, targets_section
from inference_lab.results.analysis import Findings
from inference_lab.results.records import Record


def report_document(
    results: Findings | Iterable[Record],
    *,
    title: str,
    question: str = "",
    answer: str = "",
    notes: Sequence[str] = (),
    classes: str | None = None,
    targets: Sequence[float] = TARGETS,
    times: Sequence[float] | None = None,
    growing: str | None = None,
    apart: str | None = None,
    contrasts: Sequence[Contrast] = (),
    blocks: str | None = None,
) -> Document:
    """Return the report of a comparison."""
    everything = _ordered(results).shown
    first: list[Section | None] = []
    sections: list[Section | None] = []
    labellings = [r for r in everything.records if r.temperature == 0]
    opening = ""
    if labellings:
        part = (
            everything
            if len(labellings) == len(everything)
            else Findings(labellings, labels=everything.solver_labels)
        )
        arrays = ResultArrays(part, classes, tuple(targets), tuple(times or ()), blocks)
        opening = in_short(arrays)
        first += [
            contrasts_section(contrasts, arrays.observations()) if contrasts else None,
            None if growing is None else sizes_section(arrays, growing, apart),
            glance_section(arrays),
            results_section(arrays),
        ]
        sections += [
            classes_section(arrays),
            targets_section(arrays),
            history_section(arrays),
            solvers_section(arrays),
            problems_section(arrays),
            problem_by_problem_section(arrays),
        ]
    elif everything.records:
        sections.append(problem_by_problem_section(ResultArrays(everything)))
    sections += [
        failures_section(everything),
        Section("Notes", (Items(tuple(notes)),)) if notes else None,
        settings_section(everything),
        environment_section(everything),
    ]
    lead = [("Question", question)] if question else []
    if answer:
        lead.append(("Answer", answer))
    elif opening:
        lead.append(("In short", opening))
    return Document(
        title=title,
        lead=tuple(lead),
        alarms=tuple(everything.alarms),
        warnings=tuple(everything.warnings),
        sections=(
            *(section for section in first if section is not None),
            *(replace(section, aside=True) for section in sections if section is not None),
        ),
    )


def _ordered(results: Findings | Iterable[Record]) -> Findings:
    """Return the comparison with its records in an order independent of their input order."""
    if isinstance(results, Findings):
        comparison = results
    else:
        comparison = Findings.of_store(results)
    records = comparison.records
    problems = {name: natural(name) for name in {r.problem for r in records}}
    solvers = {spec: natural(spec) for spec in {r.solver for r in records}}

    def key(record: Record) -> tuple[Any, ...]:
        return (
            problems[record.problem],
            record.problem_hash,
            solvers[record.solver],
            -1 if record.seed is None else record.seed,
            record.repeat,
            record.temperature,
            record.started,
            record.id,
        )

    return Findings(
        sorted(records, key=key),
        comparison.superseded,
        comparison.remarks,
        comparison.solver_labels,
        comparison.stages,
    )
