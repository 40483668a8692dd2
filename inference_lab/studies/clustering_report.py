"""The report of a clustering study: pages, tables and figures, computed from records alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from inference_lab.graph.arrays import FloatArray
from inference_lab.reporting.answers import with_answers
from inference_lab.reporting.contrasts import contrasts_section, score_name
from inference_lab.reporting.document import (
    Block,
    Cell,
    Code,
    Column,
    Document,
    Items,
    Picture,
    Section,
    Table,
    Text,
    column,
)
from inference_lab.reporting.resampling import ALPHA
from inference_lab.reporting.statistics import holm
from inference_lab.results.clustering_records import COSTS, StudyRecord, environments
from inference_lab.studies.clustering_study import Method, Study
from inference_lab.studies.estimators import OF_OBJECTIVES
from inference_lab.studies.fit_campaign import cells
from inference_lab.studies.learning_curves import (
    FitArrays,
    curve_panels,
    mean_cell,
    paired,
)
from inference_lab.studies.study_points import split_name
from inference_lab.studies.summary_tables import summary_section

if TYPE_CHECKING:
    import pandas as pd

_UNITS = {
    "pairs": "constraints (pairs)",
    "share-of-points": "constraints (share of the number of points)",
    "share-of-ordered-pairs": "constraints (share of all ordered pairs)",
    "share-seeded": "seeds (share of the training points)",
}


def render_study(study: Study, records: Sequence[StudyRecord], folder: Path | str) -> Path:
    """Write the report of a study into a folder; see `write_document`."""
    from inference_lab.reporting.writing import write_document

    folder = Path(folder)
    write_document(study_document(study, records, environments(folder)), folder)
    return folder / "README.md"


def study_document(
    study: Study, records: Sequence[StudyRecord], environment_facts: Mapping[str, Mapping[str, Any]]
) -> Document:
    """Return the report of a study; its figures are drawn when it is written."""
    stages = study.stages()
    by_stage = _records_by_stage(stages, records)
    parts = [summary_section(study, summary, by_stage) for summary in study.summaries]
    asked = contrasts_section(study.contrasts, _observations(by_stage))
    if asked is not None:
        parts.insert(0, asked)
    warnings: list[str] = []
    for stage in stages:
        mine = by_stage[stage.title]
        labels = [m.label for m in stage.methods]
        axes = (labels, stage.data, stage.constraints, stage.runs)
        results = FitArrays.gather({stage.title: mine}, *axes, stage.scores)
        prefix = f"{stage.title}-" if study.parts else ""
        if study.details:
            sections = _sections(stage, results, prefix)
            parts += [Section(stage.title, sections=sections)] if study.parts else sections
        where = [stage.title] if study.parts else []
        missing = _missing(stage, mine)
        warnings += [": ".join([*where, sentences]) for sentences in missing]
    lead = [("Question", study.question)]
    if study.answer:
        lead.append(("Answer", study.answer.strip()))
    if not study.details:
        parts.append(_protocols(study))
    document = Document(
        title=study.title,
        lead=tuple(lead),
        warnings=tuple(warnings),
        sections=(*parts, *_closing(study, records, environment_facts)),
    )
    return with_answers(document, study.claims)


def _records_by_stage(
    stages: Sequence[Study], records: Sequence[StudyRecord]
) -> dict[str, list[StudyRecord]]:
    """Map the title of each stage to its records, labelled with the stage's names of methods."""
    keyed = [(record.key, record) for record in records]
    by_stage = {}
    for stage in stages:
        labels = {cell.key: cell.method.label for cell in cells(stage)}
        by_stage[stage.title] = [
            replace(record, method=labels[key]) for key, record in keyed if key in labels
        ]
        if not set(OF_OBJECTIVES).isdisjoint(stage.scores):
            by_stage[stage.title] = _with_gaps(by_stage[stage.title])
    return by_stage


def _with_gaps(records: Sequence[StudyRecord]) -> list[StudyRecord]:
    """Return records with the scores `OF_OBJECTIVES`, in per cent."""
    best: dict[str, float] = {}
    bound: dict[str, float] = {}
    for record in records:
        place = f"{record.key.task} {record.run}"
        if math.isfinite(record.objective):
            best[place] = min(best.get(place, math.inf), record.objective)
        if (lower_bound := record.scores.get("lower_bound")) is not None:
            bound[place] = max(bound.get(place, -math.inf), float(lower_bound))
    results = []
    for record in records:
        place = f"{record.key.task} {record.run}"
        lowest = best.get(place, math.nan)
        value = record.objective
        gaps = (
            (value - lowest) / (abs(lowest) or 1.0),
            (value - bound.get(place, math.nan)) / (abs(value) or 1.0),
        )
        scores = dict(zip(OF_OBJECTIVES, (100.0 * max(gap, 0.0) for gap in gaps), strict=True))
        results.append(replace(record, scores={**record.scores, **scores}))
    return results


def _observations(by_stage: Mapping[str, Sequence[StudyRecord]]) -> pd.DataFrame:
    """Return the facts, scores and costs of each fit for contrasts, without failed fits."""
    import pandas as pd

    rows = []
    for title, records in by_stage.items():
        for record in records:
            if record.failed:
                continue
            name, class_error = split_name(record.data)
            facts = {"data": name, "class_error": class_error, "part": title, "seed": record.run}
            facts |= {key: getattr(record, key) for key in ("constraints", "noise", "run", *COSTS)}
            scores = {key: float(v) for key, v in record.scores.items() if v is not None}
            cell = (title, record.data, record.constraints, record.run)
            rows.append({**facts, **scores, "cell": cell, "solver": record.method})
    return pd.DataFrame(rows)


def _sections(study: Study, results: FitArrays, prefix: str) -> tuple[Section, ...]:
    """Return the sections of one stage."""
    sections = []
    if study.baseline is not None:
        sections.append(_against_baseline(results, study, prefix))
    for score in study.scores:
        name = score_name(score)
        blocks: list[Block] = []
        if len(study.constraints) > 1:
            means = [
                (data, method, f"{value:g}", results.mean(score, data, method, value))
                for data in study.data
                for method in results.methods
                for value in study.constraints
            ]
            blocks.append(
                Picture(
                    f"{prefix}{score}",
                    f"Mean {name} against the number of constraints, with 95 % confidence "
                    "intervals of the mean.",
                    f"{name} against constraints, a panel for each data set",
                    partial(curve_panels, means, score, _UNITS[study.protocol.unit]),
                )
            )
        blocks += _score_tables(results, study, score, prefix)
        sections.append(Section(name[0].upper() + name[1:], tuple(blocks)))
    return (*sections, _effort(results, study, prefix), _protocol(study, prefix))


def _missing(study: Study, records: Sequence[StudyRecord]) -> list[str]:
    asked = len(study.data) * len(study.methods) * len(study.constraints) * study.runs
    sentences = []
    if len(records) < asked:
        sentences.append(f"{asked - len(records)} of {asked} fits have not been run yet.")
    if failures := [record for record in records if record.failed]:
        counts = Counter(
            f"{record.method} on {record.data}: {record.message.splitlines()[0][:160]}"
            for record in failures
        )
        reasons = "; ".join(f"{reason} ({count} times)" for reason, count in counts.items())
        sentences.append(f"{len(failures)} of {asked} fits failed: {reasons}")
    return sentences


def _against_baseline(results: FitArrays, study: Study, prefix: str) -> Section:
    """Compare all methods with the baseline, paired by run, over all data."""
    score = study.scores[0]
    base = str(study.baseline)
    others = [m for m in results.methods if m != base]
    numbers: dict[str, float | None] = {"all": None, **{f"{c:g}": c for c in study.constraints}}
    differences = {
        (method, title): paired(
            results.pooled(score, method, number), results.pooled(score, base, number)
        )
        for method in others
        for title, number in numbers.items()
    }
    corrected = holm([difference.p_value for difference in differences.values()])
    marks = {
        at: " *" if p_value < ALPHA else ""
        for at, p_value in zip(differences, corrected, strict=True)
    }
    columns = (
        Column(title, [mean_cell(differences[m, title], "+.3f", marks[m, title]) for m in others])
        for title in numbers
    )
    table = Table(
        f"{prefix}against-baseline",
        f"Difference in {score_name(score)} to {base}, paired by run, mean over data sets.",
        (column("method", others), *columns),
        f"With 95 % confidence intervals over {study.runs} runs; * marks p < {ALPHA:g} in "
        f"Wilcoxon's signed-rank test, corrected for {len(differences)} tests (Holm).",
    )
    return Section(f"Against {base}", (table,))


def _score_tables(results: FitArrays, study: Study, score: str, prefix: str) -> list[Table]:
    published = {
        (p.data, p.method, p.constraints): p.value for p in study.published if p.score == score
    }

    def cell(data: str, method: str, value: float) -> Cell:
        there = published.get((data, method, value))
        more = "" if there is None else f" ({there:.3f})"
        return mean_cell(results.mean(score, data, method, value), more=more)

    return [
        Table(
            f"{prefix}{score}-{data}",
            f"{data}: mean {score_name(score)} by number of constraints.",
            (
                column("method", results.methods),
                *(
                    Column(f"{c:g}", [cell(data, m, c) for m in results.methods])
                    for c in study.constraints
                ),
            ),
            "In brackets: published." if any(key[0] == data for key in published) else "",
        )
        for data in study.data
    ]


def _effort(results: FitArrays, study: Study, prefix: str) -> Section:
    """Report time, objective, violations and proofs, over all data and numbers of constraints."""
    methods = results.methods
    base = study.baseline

    def of(name: str) -> list[FloatArray]:
        return [results.values[name, method] for method in methods]

    seconds, objective = of("e_step_seconds"), of("objective")
    columns = [
        column("method", methods),
        column(
            "E-steps of a fit (ms, median)", [1e3 * _median(s) for s in seconds], "{:.1f}".format
        ),
    ]
    if base is not None:
        b = methods.index(base)
        scale = np.maximum(np.abs(objective[b]), 1e-12)
        columns += [
            column(
                f"median ratio to {base}",
                [_median(s / seconds[b]) for s in seconds],
                "{:.1f}".format,
            ),
            column(
                f"objective below {base}'s (%)",
                [100 * _mean((objective[b] - values) / scale) for values in objective],
                "{:+.3f}".format,
            ),
        ]
    proved = [
        100 * float(np.nansum(optimal)) / solved
        if (solved := float(np.nansum(steps)))
        else math.nan
        for optimal, steps in zip(of("optimal"), of("solved"), strict=True)
    ]
    columns += [
        column("violated weight (mean)", [_mean(v) for v in of("violated")], "{:.2f}".format),
        column("E-steps proved optimal (%)", proved, "{:.0f}".format),
    ]
    caption = "Over all data sets and numbers of constraints."
    return Section("Effort and objective", (Table(f"{prefix}effort", caption, tuple(columns)),))


def _median(values: FloatArray) -> float:
    """Return the median of the finite values, NaN if there are none."""
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if finite.size else math.nan


def _mean(values: FloatArray) -> float:
    """Return the mean of the values that are there, NaN if there are none; it may be infinite."""
    there = values[~np.isnan(values)]
    return float(there.mean()) if there.size else math.nan


def _protocol(study: Study, prefix: str) -> Section:
    p = study.protocol
    scored = "the points held out of the constraints" if p.scored == "held-out" else "all points"
    lines = [
        f"{study.runs} runs; in each, all methods get the same constraints, start from the same "
        "seed, and more constraints contain the fewer.",
        f"Constraints touch {100 * p.train:g} % of the points; scores are over {scored}.",
    ]
    if p.unit == "share-seeded":
        lines.insert(0, "Constraints are seeds: points whose labels are given.")
        lines.append(f"Each has the label of another class with probability {p.noise:g}.")
    elif p.noise and p.unit == "share-of-ordered-pairs":
        lines.append(f"Each constraint is wrong with probability {p.noise:g}.")
    elif p.noise:
        lines.append(f"{100 * p.noise:g} % of the constraints are turned into the other kind.")
    table = _methods(study.methods, f"{prefix}methods")
    return Section("Protocol", (Items(tuple(lines)), table))


def _methods(methods: Sequence[Method], name: str) -> Table:
    columns = (
        column("method", [m.label for m in methods]),
        column("estimator", [m.estimator for m in methods]),
        column(
            "settings",
            [
                ", ".join(f"{k}={v}" for k, v in settings.items())
                for settings in map(Method.described, methods)
            ],
        ),
    )
    return Table(name, "The methods and their settings.", columns)


def _protocols(study: Study) -> Section:
    """Return tables of the parts and of the methods, for reports without sections of parts."""
    stages = study.stages()
    unit = _UNITS[study.protocol.unit].partition("(")[2].rstrip(")")
    parts = Table(
        "parts",
        f"The parts: constraints as {unit}, and which share of them is wrong. In each run, all "
        "methods get the same constraints and start from the same seed; more constraints contain "
        "the fewer.",
        (
            column("part", [stage.title for stage in stages]),
            column("data", ["; ".join(stage.data) for stage in stages]),
            column("constraints", [", ".join(f"{v:g}" for v in s.constraints) for s in stages]),
            column("wrong", [stage.protocol.noise for stage in stages], "{:g}".format),
            column("runs", [stage.runs for stage in stages]),
        ),
    )
    used = {method.key: method for stage in stages for method in stage.methods}
    return Section("Protocol", (parts, _methods(list(used.values()), "methods")))


def _closing(
    study: Study, records: Sequence[StudyRecord], environment_facts: Mapping[str, Mapping[str, Any]]
) -> list[Section]:
    """Return the sections on notes, sources, machines and the command of the study."""
    sections = []
    if study.notes:
        sections.append(Section("Notes", (Items(tuple(study.notes)),)))
    sources = sorted(
        {p.source for stage in study.stages() for p in stage.published}
        | {summary.source for summary in study.summaries if summary.source}
    )
    sentences = [f"Published figures: {'; '.join(sources)}."] if sources else []
    for name in dict.fromkeys(record.environment for record in records):
        facts = environment_facts.get(name, {"environment": name})
        sentences.append(f"Run with {', '.join(f'{key} {value}' for key, value in facts.items())}.")
    command = Code(f"inference-lab reproduce {study.name}")
    return [
        *sections,
        Section("Sources and machine", (Text(tuple(sentences)),)),
        Section("To run it again", (command,)),
    ]
