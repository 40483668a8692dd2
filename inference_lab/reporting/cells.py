"""Cells and columns of the tables of a report: numbers with the text that stands for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from inference_lab.formatting import (
    NONE,
    format_energy,
    format_percent,
    format_rate,
    format_seconds,
    format_share,
    shortened,
)
from inference_lab.reporting.document import Cell, Column, Table

__all__ = [
    "Columns",
    "best_marked",
    "column_of",
    "count_cell",
    "energy_cell",
    "number_cell",
    "optional_column",
    "p_cell",
    "percent_cell",
    "score_cell",
    "seconds_cell",
    "share_cell",
    "table_of",
    "text_cell",
]

#: Columns with their cells, from which `table_of` makes a table.
Columns = list[tuple[Column, list[Cell]]]


def text_cell(text: str, width: int = 0) -> Cell:
    """Return a cell of text; what is longer than `width` (0: any) is cut off, and its title."""
    return Cell(shortened(text, width), title=text) if 0 < width < len(text) else Cell(text)


def number_cell(value: float | None, text: str) -> Cell:
    """Return a cell of a number with the text that stands for it; None and NaN are missing."""
    return Cell(text, None if value is None or math.isnan(value) else float(value))


def percent_cell(value: float | None) -> Cell:
    """Return a cell of a gap in percent."""
    return number_cell(value, format_percent(value))


def seconds_cell(value: float | None) -> Cell:
    """Return a cell of a time."""
    return number_cell(value, format_seconds(value))


def count_cell(value: int, mark: bool = False) -> Cell:
    """Return a cell of a number of runs or the like; `mark` marks one above 0 as failures."""
    return Cell(str(value), int(value), mark="failed" if mark and value else "")


def p_cell(value: float) -> Cell:
    """Return a cell of a p-value."""
    return number_cell(value, f"{value:.3f}" if value >= 0.001 else "<0.001")


def share_cell(value: float) -> Cell:
    """Return a cell of a whole percentage, computed from counts."""
    value = round(value, 10)  # 55 is not to be 55.00000000000001
    return number_cell(value, format_rate(value))


def score_cell(value: float | None) -> Cell:
    """Return a cell of a score between 0 and 1."""
    missing = value is None or math.isnan(value)
    return number_cell(value, NONE if missing else format_share(value))


def energy_cell(value: float | None, decimals: int) -> Cell:
    """Return a cell of an energy or a bound; nothing where it is not finite."""
    finite = value if value is not None and math.isfinite(value) else None
    return number_cell(finite, format_energy(finite, decimals))


def best_marked(cells: list[Cell], largest: bool = False) -> list[Cell]:
    """Mark the cells with the smallest value (or the largest), if not all have it."""
    values = [c.value for c in cells if c.value is not None and math.isfinite(c.value)]
    if not values or min(values) == max(values):
        return cells
    best = max(values) if largest else min(values)
    return [
        Cell(c.text, c.value, "best", c.title) if c.value == best and not c.mark else c
        for c in cells
    ]


def table_of(
    name: str, caption: str, columns: Sequence[tuple[Column, list[Cell]]], note: str = ""
) -> Table:
    """Return a table of columns, each with its cells."""
    rows = tuple(zip(*(cells for _, cells in columns), strict=True))
    return Table(name, caption, tuple(column for column, _ in columns), rows, note)


_T = TypeVar("_T")


def column_of(
    items: Iterable[_T],
    title: str,
    cell: Callable[[_T], Cell],
    *,
    right: bool = True,
    help: str = "",
) -> tuple[Column, list[Cell]]:
    """Return a column with a cell for each of some things."""
    return Column(title, right, help), [cell(item) for item in items]


def optional_column(
    title: str, values: Sequence[float | None], cell: Callable[[float | None], Cell]
) -> Columns:
    """Return a column, if there is anything in it."""
    if all(v is None for v in values):
        return []
    return [(Column(title), [cell(v) for v in values])]
