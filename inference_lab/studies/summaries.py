"""Summaries of studies of clustering: means over parts, data and numbers of constraints."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from inference_lab.graph.arrays import FloatArray
from inference_lab.reporting.document import Block, Cell, Column, Picture, Section, Table
from inference_lab.results.clustering_records import COSTS, StudyRecord
from inference_lab.studies.datasets import told_apart
from inference_lab.studies.definition import Study, Summary
from inference_lab.studies.learning_curves import Mean, curve_panels, mean_of, score_name

__all__ = ["Summed", "summary_section"]


@dataclass(frozen=True)
class Summed:
    """The fits of a summary as arrays."""

    methods: list[str]
    columns: list[str]
    values: dict[tuple[str, str, str], FloatArray]

    @classmethod
    def gather(
        cls,
        study: Study,
        summary: Summary,
        records: Mapping[str, Sequence[StudyRecord]],
    ) -> Summed:
        """Sort records into arrays."""
        stages = {stage.title: stage for stage in study.stages()}
        first = stages[summary.parts[0]]
        data = summary.data or [told_apart(name)[0] for name in first.data]
        constraints = summary.constraints or first.constraints
        named = [stages[t] for t in (summary.constant, *summary.parts) if t]
        known = list(dict.fromkeys(m.label for stage in named for m in stage.methods))
        methods = summary.methods or known
        scores = summary.scores or study.scores
        shape = (len(summary.parts), len(data), len(constraints), first.runs)
        filled = {(s, m): np.full(shape, np.nan) for s in scores for m in methods}
        for title in (summary.constant, *summary.parts):
            if not title:
                continue
            constant = title == summary.constant
            part: Any = slice(None) if constant else summary.parts.index(title)
            for record in records[title]:
                name, _ = told_apart(record.data)
                wanted = constant or record.constraints in constraints
                if record.failed or name not in data or record.method not in methods or not wanted:
                    continue
                at: Any = slice(None) if constant else constraints.index(record.constraints)
                for score in scores:
                    place = (part, data.index(name), at, record.run)
                    value = record.score(score)
                    filled[score, record.method][place] = math.nan if value is None else value
        columns: dict[str, Any] = {}
        if summary.by == "data":
            columns = {name: (slice(None), [d]) for d, name in enumerate(data)}
            columns["mean"] = (slice(None), slice(None))
        elif summary.by == "part":
            columns = {title: ([p], slice(None)) for p, title in enumerate(summary.parts)}
        else:
            columns = {
                f"{value:g}": (slice(None), slice(None), [c]) for c, value in enumerate(constraints)
            }
        values = {
            (score, method, column): array[chosen].mean(axis=(0, 2))
            for (score, method), array in filled.items()
            for column, chosen in columns.items()
        }
        return cls(methods, list(columns), values)

    def mean(self, score: str, method: str, column: str, less: str | None = None) -> Mean:
        """Return a mean with its interval, over data if there are several, else over runs.

        NaN if a fit is missing: a mean over some of the data is another one.
        """
        values = self.values[score, method, column]
        if less is not None:
            values = values - self.values[score, less, column]
        each = values[0] if len(values) == 1 else values.mean(axis=1)
        if not np.isfinite(each).all():
            return Mean(math.nan, math.nan, 0)
        return mean_of(each)

    def above(self, score: str, method: str, less: str, column: str) -> str:
        """Return on how many of the data a method has the larger mean, if there are several."""
        values = self.values[score, method, column] - self.values[score, less, column]
        if len(values) == 1 or not np.isfinite(values).all():
            return ""
        return f" ({int((values.mean(axis=1) > 1e-12).sum())}/{len(values)})"


def summary_section(
    study: Study, summary: Summary, records: Mapping[str, Sequence[StudyRecord]]
) -> Section:
    """Return the tables of a summary."""
    summed = Summed.gather(study, summary, records)
    blocks: list[Block] = []
    shown = summary.scores or study.scores
    if summary.picture:
        means = [
            ("", method, column, summed.mean(shown[0], method, column))
            for method in summed.methods
            for column in summed.columns
        ]
        blocks.append(
            Picture(
                f"{summary.title}-{shown[0]}",
                f"{summary.title}: mean {score_name(shown[0])}, with 95 % confidence intervals.",
                f"{score_name(shown[0])} of each method",
                partial(curve_panels, means, shown[0]),
            )
        )
    for score in shown:
        published = {
            (method, column): figures[study.scores.index(score)]
            for method, columns in summary.published.items()
            for column, figures in columns.items()
            if score in study.scores[: len(figures)]
        }
        blocks.append(_means(summary, summed, score, published))
    if summary.baseline is not None:
        blocks.insert(1 + summary.picture, _differences(summary, summed, shown[0]))
    return Section(summary.title, tuple(blocks))


def _means(
    summary: Summary, summed: Summed, score: str, published: Mapping[tuple[str, str], float]
) -> Table:
    rows = []
    foreign = [m for m in summary.published if m not in summed.methods]
    for method in [*summed.methods, *foreign]:
        cells = [Cell(method)]
        for column in summed.columns:
            there = published.get((method, column))
            mean = (
                summed.mean(score, method, column)
                if method in summed.methods
                else Mean(math.nan, math.nan, 0)
            )
            form = ".3g" if score in COSTS else ".2f"
            shown = "-" if math.isnan(mean.value) else format(mean.value, form)
            shown += "" if math.isnan(mean.half) else f" ± {mean.half:{form}}"
            more = "" if there is None else f" ({there:.2f})"
            cells.append(Cell(shown + more, None if math.isnan(mean.value) else mean.value))
        rows.append(tuple(cells))
    said = f"In brackets: published, {summary.source}." if published else ""
    return Table(
        f"{summary.title}-{score}",
        f"{summary.title}: mean {score_name(score)}.",
        _columns(summed),
        tuple(rows),
        " ".join(filter(None, [_intervals(summed), said, summary.note])),
    )


def _differences(summary: Summary, summed: Summed, score: str) -> Table:
    base = str(summary.baseline)
    rows = []
    for method in summed.methods:
        if method == base:
            continue
        cells = [Cell(method)]
        for column in summed.columns:
            mean = summed.mean(score, method, column, less=base)
            if math.isnan(mean.value):
                cells.append(Cell("-"))
                continue
            wins = summed.above(score, method, base, column)
            spread = "" if math.isnan(mean.half) else f" ± {mean.half:.2f}"
            cells.append(Cell(f"{mean.value:+.2f}{spread}{wins}", mean.value))
        rows.append(tuple(cells))
    return Table(
        f"{summary.title}-{score}-less",
        f"{summary.title}: {score_name(score)} less that of {base}, paired by run.",
        _columns(summed),
        tuple(rows),
        f"{_intervals(summed)} In brackets: on how many of the data sets it is above.",
    )


def _columns(summed: Summed) -> tuple[Column, ...]:
    return (Column("method", right=False), *(Column(column) for column in summed.columns))


def _intervals(summed: Summed) -> str:
    """Say what the intervals are over."""
    sizes = {len(values) for values in summed.values.values()}
    over = {False: "runs", True: "data sets"}
    kinds = [over[several] for several in sorted({size > 1 for size in sizes})]
    if len(kinds) == 2:
        return "With 95 % confidence intervals: over runs, and of the mean over data sets."
    return f"With 95 % confidence intervals over {kinds[0]}."
