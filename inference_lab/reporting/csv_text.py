"""Tables as CSV for programs and spreadsheets, without cells that would run as a formula."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from inference_lab.reporting.document import Cell, Column, Table
from inference_lab.reporting.printable import printable
from inference_lab.results.json_lines import clean_text

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["csv_frame", "csv_table", "csv_text", "guarded"]

_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|[-+]?(inf|nan)")

#: Beginnings of formulas in spreadsheets, including full-width characters, after characters that
#: some spreadsheets skip.
_FORMULA = re.compile("[\\s\0\ufeff]*[=+\\-@\uff1d\uff0b\uff0d\uff20]")

#: Texts of empty cells.
_NOTHING = ("", "-", "\N{EN DASH}", "\N{EM DASH}")


def guarded(value: Any) -> Any:
    """Return the value of a cell, with an apostrophe before a text that would be a formula."""
    if not isinstance(value, str):
        return value
    text = clean_text(value)
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """Return rows as CSV, in which no cell is a formula."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([guarded(cell) for cell in row] for row in rows)
    return out.getvalue()


def csv_frame(frame: pd.DataFrame) -> str:
    """Return a table as CSV with a header line, in which no cell is a formula."""
    safe = frame.rename(columns=guarded)
    for name in safe.select_dtypes(exclude="number"):
        safe[name] = [guarded(value) for value in safe[name]]
    return str(safe.to_csv(index=False))


def _csv_field(cell: Cell, column: Column) -> str:
    if not column.as_text and cell.value is not None and not math.isnan(cell.value):
        if isinstance(cell.value, int):
            return str(cell.value)
        # Rounded, because processors differ in the last digits of logarithms, and reports must not.
        return repr(float(f"{cell.value:.12g}"))
    return _csv_text(cell.text)


def _csv_text(text: str) -> str:
    text = printable(text)
    return "" if text in _NOTHING else text


def csv_table(table: Table) -> str:
    """Return a table as CSV for programs."""
    header = [_csv_text(column.title) for column in table.columns]
    rows = [
        [_csv_field(cell, column) for cell, column in zip(row, table.columns, strict=True)]
        for row in table.rows
    ]
    return csv_text([header, *rows])
