"""Summaries of clustering studies: means over parts, data and numbers of constraints."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from inference_lab.graph.arrays import FloatArray
from inference_lab.reporting.contrasts import score_name
from inference_lab.reporting.document import Block, Cell, Column, Picture, Section, Table, column
from inference_lab.results.clustering_records import COSTS, StudyRecord
from inference_lab.studies.clustering_study import Study, Summary
from inference_lab.studies.learning_curves import (
    FitArrays,
    Mean,
    curve_panels,
    mean_cell,
    mean_of,
)
from inference_lab.studies.study_points import split_name


@dataclass(frozen=True)
class SummaryMeans:
    """The scores of a summary as arrays of shape (data, runs), by score, method and column."""

    methods: list[str]
    columns: list[str]
    values: dict[tuple[str, str, str], FloatArray]

    @classmethod
    def gather(
        cls, study: Study, summary: Summary, records: Mapping[str, Sequence[StudyRecord]]
    ) -> SummaryMeans:
        """Sort the records of each part into arrays."""
        stages = {stage.title: stage for stage in study.stages()}
        first = stages[summary.parts[0]]
        data = summary.data or list(map(_plain_name, first.data))
        constraints = summary.constraints or first.constraints
        named = [stages[t] for t in (summary.constant, *summary.parts) if t]
        labels = list(dict.fromkeys(m.label for stage in named for m in stage.methods))
        methods = summary.methods or labels
        scores = summary.scores or study.scores

        def fits(
            titles: Sequence[str], numbers: Sequence[float]
        ) -> dict[tuple[str, str], FloatArray]:
            part_records = {title: records[title] for title in titles}
            axes = (methods, data, numbers, first.runs)
            return dict(FitArrays.gather(part_records, *axes, scores, _plain_name).values)

        arrays = fits(summary.parts, constraints)
        if summary.constant:
            # The part has one number of constraints, and its fits are used for all numbers.
            constant = fits([summary.constant], stages[summary.constant].constraints[:1])
            arrays = {
                at: np.where(np.isnan(array), constant[at], array) for at, array in arrays.items()
            }
        everything: Any = slice(None)
        columns: dict[str, Any] = {}
        if summary.by == "data":
            columns = {name: (everything, [d]) for d, name in enumerate(data)}
            columns["mean"] = (everything, everything)
        elif summary.by == "part":
            columns = {title: ([p], everything) for p, title in enumerate(summary.parts)}
        else:
            columns = {
                f"{value:g}": (everything, everything, [c]) for c, value in enumerate(constraints)
            }
        values = {
            (score, method, column): array[selector].mean(axis=(0, 2))
            for (score, method), array in arrays.items()
            for column, selector in columns.items()
        }
        return cls(methods, list(columns), values)

    def mean(self, score: str, method: str, column: str, less: str | None = None) -> Mean:
        """Return a mean with its interval, over data if there are several, else over runs.

        NaN if a fit is missing, because a mean over some of the data is not comparable.
        """
        values = self.values[score, method, column]
        if less is not None:
            values = values - self.values[score, less, column]
        samples = values[0] if len(values) == 1 else values.mean(axis=1)
        if not np.isfinite(samples).all():
            return Mean(math.nan)
        return mean_of(samples)

    def above(self, score: str, method: str, less: str, column: str) -> str:
        """Return the number of data sets on which a method has the larger mean, if several."""
        values = self.values[score, method, column] - self.values[score, less, column]
        if len(values) == 1 or not np.isfinite(values).all():
            return ""
        return f" ({int((values.mean(axis=1) > 1e-12).sum())}/{len(values)})"


@cache
def _plain_name(data: str) -> str:
    """Return the name of data without the number of classes that methods receive."""
    return split_name(data)[0]


def summary_section(
    study: Study, summary: Summary, records: Mapping[str, Sequence[StudyRecord]]
) -> Section:
    """Return the tables of a summary."""
    summed = SummaryMeans.gather(study, summary, records)
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
    summary: Summary, summed: SummaryMeans, score: str, published: Mapping[tuple[str, str], float]
) -> Table:
    form = ".3g" if score in COSTS else ".2f"

    def cell(method: str, column: str) -> Cell:
        there = published.get((method, column))
        more = "" if there is None else f" ({there:.2f})"
        if method not in summed.methods:
            return Cell(f"-{more}")
        return mean_cell(summed.mean(score, method, column), form, more)

    methods = list(dict.fromkeys([*summed.methods, *summary.published]))
    source = f"In brackets: published, {summary.source}." if published else ""
    return Table(
        f"{summary.title}-{score}",
        f"{summary.title}: mean {score_name(score)}.",
        _columns(summed, methods, cell),
        " ".join(filter(None, [_intervals(summed), source, summary.note])),
    )


def _differences(summary: Summary, summed: SummaryMeans, score: str) -> Table:
    base = str(summary.baseline)

    def cell(method: str, column: str) -> Cell:
        wins = summed.above(score, method, base, column)
        return mean_cell(summed.mean(score, method, column, less=base), "+.2f", wins)

    others = [method for method in summed.methods if method != base]
    return Table(
        f"{summary.title}-{score}-less",
        f"{summary.title}: {score_name(score)} less that of {base}, paired by run.",
        _columns(summed, others, cell),
        f"{_intervals(summed)} In brackets: on how many of the data sets it is above.",
    )


def _columns(
    summed: SummaryMeans, methods: Sequence[str], cell: Callable[[str, str], Cell]
) -> tuple[Column, ...]:
    """Return the column of the methods, and one of cells for each column of a summary."""
    filled = (Column(name, [cell(method, name) for method in methods]) for name in summed.columns)
    return (column("method", methods), *filled)


def _intervals(summed: SummaryMeans) -> str:
    """Return a sentence on the units of the intervals: runs, data sets or both."""
    sizes = {len(values) for values in summed.values.values()}
    over = {False: "runs", True: "data sets"}
    kinds = [over[several] for several in sorted({size > 1 for size in sizes})]
    if len(kinds) == 2:
        return "With 95 % confidence intervals: over runs, and of the mean over data sets."
    return f"With 95 % confidence intervals over {kinds[0]}."
