"""Tables as CSV for programs and spreadsheets."""

from __future__ import annotations

import csv
import io
import math

from inference_lab.reporting.document import Cell, Table
from inference_lab.reporting.printable import printable

#: Texts of empty cells.
_NOTHING = ("", "-", "\N{EN DASH}", "\N{EM DASH}")


def _field(cell: Cell) -> str:
    if cell.value is not None and not math.isnan(cell.value):
        if isinstance(cell.value, int):
            return str(cell.value)
        # Rounded, because processors differ in the last digits of logarithms, and reports must not.
        return repr(float(f"{cell.value:.12g}"))
    text = printable(cell.text)
    return "" if text in _NOTHING else text


def csv_table(table: Table) -> str:
    """Return a table as CSV for programs."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([printable(column.title) for column in table.columns])
    for row in table.rows:
        writer.writerow(map(_field, row))
    return out.getvalue()
