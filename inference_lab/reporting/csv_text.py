"""Rows as CSV for programs, and for spreadsheets, which run as a formula what looks like one."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from inference_lab.results.json_lines import clean_text

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["csv_frame", "csv_text", "guarded"]

_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|[-+]?(inf|nan)")

#: What spreadsheets take for the beginning of a formula, also at full width, and after characters
#: that some of them pass over.
_FORMULA = re.compile("[\\s\0\ufeff]*[=+\\-@\uff1d\uff0b\uff0d\uff20]")


def guarded(value: Any) -> Any:
    """Return a value of a cell; a text that would be a formula has an apostrophe before it.

    Examples
    --------
    >>> [guarded(value) for value in ("=1+1", "-0.5", "-x", "a=b", -1.5, None)]
    ["'=1+1", '-0.5', "'-x", 'a=b', -1.5, None]
    """
    if not isinstance(value, str):
        return value
    text = clean_text(value)
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """Return rows as CSV, with no cell that is a formula.

    Examples
    --------
    >>> print(csv_text([("solver", "gap"), ("@me", 0.25)]), end="")
    solver,gap
    '@me,0.25
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([guarded(cell) for cell in row] for row in rows)
    return out.getvalue()


def csv_frame(frame: pd.DataFrame) -> str:
    """Return a table as CSV with a line of names, and with no cell that is a formula."""
    safe = frame.rename(columns=guarded)
    for name in safe.select_dtypes(exclude="number"):
        safe[name] = [guarded(value) for value in safe[name]]
    return str(safe.to_csv(index=False))
