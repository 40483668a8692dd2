"""The report of a study: a page of Markdown with tables and figures, from records alone."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from inference_lab.factor_graph import FloatArray
from inference_lab.reporting.statistics import holm
from inference_lab.studies.curves import Results, paired
from inference_lab.studies.definition import Study
from inference_lab.studies.figures import learning_curves, score_name
from inference_lab.studies.running import StudyRecord, cells, environments

__all__ = ["render_study"]

_UNITS = {
    "pairs": "constraints (pairs)",
    "share-of-points": "constraints (share of the number of points)",
    "share-of-pairs": "constraints (share of all pairs)",
}

#: Differences with a smaller p-value, after Holm's correction, are called significant.
_SIGNIFICANT = 0.05


def render_study(study: Study, records: Sequence[StudyRecord], folder: Path | str) -> Path:
    """Write ``README.md``, ``results.csv`` and figures into a folder.

    Parameters
    ----------
    study : Study
    records : sequence of StudyRecord
    folder : path

    Returns
    -------
    path of the page
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    parts = [f"# {study.title}", "", f"**Question.** {study.question}", ""]
    if study.answer:
        parts += [f"**Answer.** {study.answer.strip()}", ""]
    lines: list[list[str]] = []
    for stage in study.stages():
        own = _own(stage, records)
        results = Results.gather(
            own,
            stage.data,
            [m.label for m in stage.methods],
            stage.constraints,
            stage.runs,
            stage.scores,
        )
        page = _page(stage, results, own, folder, _slug(stage.title) if study.parts else "")
        if study.parts:
            page = [f"# {stage.title}", "", *page]
            page = [f"#{line}" if line.startswith("#") else line for line in page]
        parts += page
        label = [stage.title] if study.parts else []
        lines += [label + line for line in _csv_lines(results, stage)]
    parts += _closing(study, records, environments(folder))
    header = ["data", "method", "constraints", "score", "mean", "half_width_95", "runs"]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([["part", *header] if study.parts else header, *lines])
    (folder / "results.csv").write_text(out.getvalue(), encoding="utf-8")
    place = folder / "README.md"
    place.write_text("\n".join(parts).rstrip() + "\n", encoding="utf-8")
    return place


def _own(stage: Study, records: Sequence[StudyRecord]) -> list[StudyRecord]:
    """Return the records that a stage asks for, with its labels of methods."""
    wanted = {cell.key: cell.method.label for cell in cells(stage)}
    return [replace(r, method=wanted[r.key]) for r in records if r.key in wanted]


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") + "-"


def _page(
    study: Study, results: Results, records: Sequence[StudyRecord], folder: Path, prefix: str
) -> list[str]:
    """Return all that is said about one stage; draw its figures."""
    parts = _missing(study, results, records)
    if study.baseline is not None:
        parts += _against_baseline(results, study)
    for score in study.scores:
        parts += [f"## {score_name(score)[0].upper()}{score_name(score)[1:]}", ""]
        if len(study.constraints) > 1:
            place = f"figures/{prefix}{score}.svg"
            learning_curves(results, score, _UNITS[study.protocol.unit], folder / place)
            parts += [f"![{score_name(score)} against constraints]({place})", ""]
        parts += _score_tables(results, study, score)
    parts += _effort(results, study)
    return parts + _protocol(study)


def _missing(study: Study, results: Results, records: Sequence[StudyRecord]) -> list[str]:
    asked = len(study.data) * len(study.methods) * len(study.constraints) * study.runs
    lines = []
    if len(records) < asked:
        lines.append(f"**{asked - len(records)} of {asked} fits have not been run yet.**")
    if results.failures:
        lines.append(f"**{len(results.failures)} of {asked} fits failed:**")
        said: dict[tuple[str, str, str], int] = {}
        for record in results.failures:
            key = (record.method, record.data, record.message.splitlines()[0][:160])
            said[key] = said.get(key, 0) + 1
        lines += [
            f"- {method} on {data}: {message} ({count} times)"
            for (method, data, message), count in said.items()
        ]
    return [*lines, ""] if lines else []


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return [*lines, ""]


def _plus_minus(value: float, half: float, digits: int = 3, *, sign: bool = False) -> str:
    if math.isnan(value):
        return "-"
    shown = f"{value:+.{digits}f}" if sign else f"{value:.{digits}f}"
    return shown if math.isnan(half) else f"{shown} ± {half:.{digits}f}"


def _against_baseline(results: Results, study: Study) -> list[str]:
    """Compare all methods with the baseline, paired by run, over all data."""
    score, base = study.scores[0], str(study.baseline)
    others = [m for m in results.methods if m != base]
    columns: list[float | None] = [None, *results.constraints]
    rows, tests = [], []
    for method in others:
        for column in columns:
            found = paired(
                results.pooled(score, method, column), results.pooled(score, base, column)
            )
            tests.append((method, column, found))
    corrected = holm([found.p_value for _, _, found in tests])
    for method in others:
        cells = [method]
        for (name, _, found), p_value in zip(tests, corrected, strict=True):
            if name == method:
                mark = " \\*" if p_value < _SIGNIFICANT else ""
                cells.append(_plus_minus(found.value, found.half, sign=True) + mark)
        rows.append(cells)
    header = ["method", "all", *(f"{c:g}" for c in results.constraints)]
    return [
        f"## Against {base}",
        "",
        f"Difference in {score_name(score)} to {base}, paired by run, mean over data sets, with "
        f"95 % confidence intervals over {study.runs} runs; \\* marks p < {_SIGNIFICANT:g} in "
        f"Wilcoxon's signed-rank test, corrected for {len(tests)} tests (Holm).",
        "",
        *_table(header, rows),
    ]


def _score_tables(results: Results, study: Study, score: str) -> list[str]:
    published = {
        (p.data, p.method, p.constraints): p.value for p in study.published if p.score == score
    }
    parts = []
    for data in results.data:
        here = any(key[0] == data for key in published)
        parts += [f"### {data}", ""]
        if here:
            parts += ["In brackets: published.", ""]
        rows = []
        for method in results.methods:
            cells = [method]
            for value in results.constraints:
                mean = results.mean(score, data, method, value)
                cell = _plus_minus(mean.value, mean.half)
                if (data, method, value) in published:
                    cell += f" ({published[data, method, value]:.3f})"
                cells.append(cell)
            rows.append(cells)
        parts += _table(["method", *(f"{c:g}" for c in results.constraints)], rows)
    return parts


def _effort(results: Results, study: Study) -> list[str]:
    """Report time, objective, violations and proofs, over all data and numbers of constraints."""
    base = study.baseline
    rows = []
    for method in results.methods:
        m = results.methods.index(method)
        seconds = results.values["e_step_seconds"][:, m]
        cells = [method, f"{1e3 * float(np.nanmedian(seconds)):.1f}" if _any(seconds) else "-"]
        if base is not None:
            b = results.methods.index(base)
            ratio = seconds / results.values["e_step_seconds"][:, b]
            cells.append(f"{float(np.nanmedian(ratio)):.1f}" if _any(ratio) else "-")
            gain = results.values["objective"][:, b] - results.values["objective"][:, m]
            share = gain / np.maximum(np.abs(results.values["objective"][:, b]), 1e-12)
            cells.append(f"{100 * float(np.nanmean(share)):+.3f}" if _any(share) else "-")
        violated = results.values["violated"][:, m]
        cells.append(f"{float(np.nanmean(violated)):.2f}" if _any(violated) else "-")
        solved = np.nansum(results.values["solved"][:, m])
        proved = np.nansum(results.values["optimal"][:, m])
        cells.append(f"{100 * proved / solved:.0f}" if solved else "-")
        rows.append(cells)
    compared = [f"median ratio to {base}", f"objective below {base}'s (%)"] if base else []
    header = [
        "method",
        "E-steps of a fit (ms, median)",
        *compared,
        "violated weight (mean)",
        "E-steps proved optimal (%)",
    ]
    return ["## Effort and objective", "", *_table(header, rows)]


def _any(values: FloatArray) -> bool:
    return bool(np.isfinite(values).any())


def _protocol(study: Study) -> list[str]:
    p = study.protocol
    scored = "the points held out of the constraints" if p.scored == "held-out" else "all points"
    lines = [
        "## Protocol",
        "",
        f"- {study.runs} runs; in each, all methods get the same constraints, start from the same "
        "seed, and more constraints contain the fewer.",
        f"- Constraints touch {100 * p.train:g} % of the points; scores are over {scored}.",
    ]
    if p.noise:
        lines.append(f"- {100 * p.noise:g} % of the constraints are turned into the other kind.")
    lines += ["", "| method | estimator | settings |", "|---|---|---|"]
    for m in study.methods:
        settings = {
            **m.settings,
            "selection": m.selection,
            "weight": m.weight,
            "closure": m.closure,
        }
        shown = ", ".join(f"{key}={value}" for key, value in settings.items())
        lines.append(f"| {m.label} | {m.estimator} | {shown} |")
    return [*lines, ""]


def _closing(
    study: Study, records: Sequence[StudyRecord], known: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """Return notes, sources and how it was run."""
    lines = ["## Notes", ""] if study.notes else []
    lines += [*(f"- {note}" for note in study.notes), ""] if study.notes else []
    published = [p for stage in study.stages() for p in stage.published]
    sources = sorted({p.source for p in published})
    if sources:
        lines += [f"Published figures: {'; '.join(sources)}.", ""]
    for name in dict.fromkeys(record.environment for record in records):
        facts = known.get(name, {"environment": name})
        lines += [f"Run with {', '.join(f'{key} {value}' for key, value in facts.items())}.", ""]
    return [*lines, f"To run it again: `inference-lab reproduce {study.name}`."]


def _csv_lines(results: Results, study: Study) -> list[list[str]]:
    """Return the mean and interval of each cell."""
    lines = []
    for data in results.data:
        for method in results.methods:
            for value in results.constraints:
                for score in study.scores:
                    mean = results.mean(score, data, method, value)
                    lines.append(
                        [
                            data,
                            method,
                            f"{value:g}",
                            score,
                            repr(mean.value),
                            repr(mean.half),
                            str(mean.runs),
                        ]
                    )
    return lines
