"""The report of a comparison as a document, from records alone.

Everything that is said follows from the records; what they cannot support (such as tests over one
problem) is left out, or a line says why it is not there. The order of the records does not
matter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from inference_lab.reporting.analysis import Analysis
from inference_lab.reporting.contrasts import Contrast, contrasts_section
from inference_lab.reporting.document import Document, Items, Section
from inference_lab.reporting.marginals import marginals_section
from inference_lab.reporting.overview import classes_section, map_section, results_section
from inference_lab.reporting.problem_tables import (
    open_section,
    problem_by_problem_section,
    problems_section,
)
from inference_lab.reporting.ranking import solvers_section
from inference_lab.reporting.results import Classes, Results, natural
from inference_lab.reporting.runs import (
    again_section,
    environment_section,
    failures_section,
    limitations_section,
    settings_section,
)
from inference_lab.reporting.short import in_short
from inference_lab.reporting.sizes import sizes_section
from inference_lab.reporting.timing import glance_section, history_section, targets_section
from inference_lab.results.analysis import Findings
from inference_lab.results.best_known import Known
from inference_lab.results.records import Record

__all__ = ["report_document"]

#: Seconds that are added in shifted geometric means: E-steps take milliseconds.
SHIFT = 0.001

#: Primal gaps, in percent, that count as targets; the first one is that of the profiles.
TARGETS = (1.0, 0.1, 0.0)


def report_document(
    results: Findings | Iterable[Record],
    *,
    title: str,
    question: str = "",
    answer: str = "",
    notes: Sequence[str] = (),
    classes: Classes | None = None,
    targets: Sequence[float] = TARGETS,
    times: Sequence[float] | None = None,
    shift: float = SHIFT,
    maps: Sequence[tuple[str, str]] = (),
    growing: str | None = None,
    known: Known | None = None,
    contrasts: Sequence[Contrast] = (),
    blocks: str | None = None,
    drawn_problems: int = 4,
    command: str = "",
) -> Document:
    """Return the report of a comparison.

    Parameters
    ----------
    results : Findings, or iterable of Record
        Of records with the same key the last one counts; see `Findings.of_store`.
    title : str
    question, answer : str
        In plain words, said first; left out where empty. Without an answer, a few sentences are
        made of the numbers.
    notes : sequence of str
        What else is to be known.
    classes : mapping or callable, optional
        The class of each problem: from its name, or computed from one of its records. By default
        the entry ``class`` of the problem's info, else its family.
    targets : sequence of float
        Primal gaps in percent, in [0, 100), of which the time to reach them is told. Profiles and
        the cactus plot are for the first one.
    times : sequence of float, optional
        Seconds at which the quality is told; by default, and if there are none, powers of ten
        within the times that runs took.
    shift : float
        Seconds, not negative; see `shifted_geometric_mean`.
    maps : sequence of (str, str)
        Pairs of entries of the problems' info: for each a map says which solver is best for which
        values, the first along the rows.
    growing : str, optional
        The setting by which problems differ in size, of which is told how time and gap grow
        with it.
    known : mapping, optional
        Best energies that other runs found, see `inference_lab.results.best_known`.
    contrasts : sequence of Contrast
        What was asked of the runs before they were made.
    blocks : str, optional
        The fact about a problem that says of which block it is, such as ``data``: ranks and their
        tests are over blocks then, and intervals resample them whole.
    drawn_problems : int
        For at most this many problems energies and bounds are drawn over time, those with the
        largest gap left.
    command : str
        The command that redoes the runs; made up from the records where it is empty and they are
        few.

    Returns
    -------
    Document

    Raises
    ------
    ValueError
        If `targets`, `times`, `shift` or `drawn_problems` is out of range.

    Examples
    --------
    >>> record = Record(problem="pair", problem_hash="", n_variables=2, n_edges=1, n_factors=0,
    ...                 n_labels=2, solver="icm", solver_name="icm", seed=0, status="converged",
    ...                 energy=0.5, seconds=0.001)
    >>> document = report_document([record], title="A pair")
    >>> document.alarms, document.sections[0].title
    ((), 'Results')
    """
    targets = tuple(float(t) for t in targets)
    if not targets or not all(0 <= t < 100 for t in targets):
        raise ValueError(f"targets must be percentages in [0, 100), at least one, got {targets}")
    if times is not None and not all(t > 0 and math.isfinite(t) for t in times):
        raise ValueError(f"times must be seconds above 0, got {list(times)}")
    if not (shift >= 0 and math.isfinite(shift)):
        raise ValueError(f"shift must be seconds from 0 on, got {shift}")
    if drawn_problems < 0:
        raise ValueError(f"drawn_problems must not be negative, got {drawn_problems}")
    ordered = _ordered(results)
    everything = ordered.shown
    first: list[Section | None] = []
    sections: list[Section | None] = []
    labellings = [r for r in everything.records if r.temperature == 0]
    said = ""
    if labellings:
        part = (
            everything
            if len(labellings) == len(everything)
            else Findings(labellings, labels=everything.solver_labels)
        )
        analysis = Analysis(
            Results(part, classes, known or {}), targets, tuple(times or ()), shift, blocks
        )
        said = in_short(analysis)
        first += [
            contrasts_section(contrasts, analysis.results.observations()) if contrasts else None,
            None if growing is None else sizes_section(analysis, growing),
            glance_section(analysis),
            results_section(analysis),
        ]
        sections += [
            classes_section(analysis),
            map_section(analysis, maps),
            targets_section(analysis),
            history_section(analysis, drawn_problems),
            solvers_section(analysis),
            open_section(analysis),
            problems_section(analysis),
            problem_by_problem_section(analysis),
        ]
    sections += [
        marginals_section(everything),
        failures_section(everything),
        Section("Notes", (Items(tuple(notes)),)) if notes else None,
        settings_section(everything),
        environment_section(everything),
        limitations_section(everything, shift),
        # Labels are no specs.
        again_section(ordered, command),
    ]
    lead = [("Question", question)] if question else []
    if answer:
        lead.append(("Answer", answer))
    elif said:
        lead.append(("In short", said))
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
    """Return the comparison with its records in an order that is their own."""
    if isinstance(results, Findings):
        comparison = results
    else:
        comparison = Findings.of_store(results)
    records = comparison.records
    problems = {name: natural(name) for name in {r.problem for r in records}}
    solvers = {spec: natural(spec) for spec in {r.solver for r in records}}

    def key(record: Record) -> tuple[Any, ...]:
        return (
            *(problems[record.problem], record.problem_hash, solvers[record.solver]),
            *(-1 if record.seed is None else record.seed, record.repeat, record.temperature),
            *(record.started, record.id),
        )

    return Findings(
        sorted(records, key=key),
        comparison.superseded,
        comparison.remarks,
        comparison.solver_labels,
        comparison.stages,
    )
