"""Numbers in the text of spreadsheets: decimal points or commas, and groups of thousands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from inference_lab.io._files import FormatError

Mark = Literal[".", ","]

#: Cells without a value: those of pandas, and the errors of spreadsheets.
MISSING = frozenset(
    "|#N/A|#N/A N/A|#NA|-1.#IND|-1.#QNAN|-NaN|-nan|1.#IND|1.#QNAN|<NA>|N/A|NA|NULL|NaN|None|n/a|nan"
    "|null|#NV|#DIV/0!|#VALUE!|#REF!|#NUM!|#NAME?|#NULL!".split("|")
)

#: Marks of thousands in any country: blanks that do not break, thin ones, and apostrophes.
_BLANKS = " \u00a0\u2009\u202f'\u2019"
#: Digits that every integer of 64 bits can have.
_DIGITS = 18
_OTHER: dict[Mark, Mark] = {".": ",", ",": "."}


def _pattern(mark: Mark) -> re.Pattern[str]:
    """Return the pattern of numbers with a decimal mark; the other mark may group thousands."""
    m, groups = re.escape(mark), f"[{re.escape(_OTHER[mark])}{_BLANKS}]"
    plain = rf"(?:\d+(?:{m}\d*)?|{m}\d+)(?:[eE][+-]?\d+)?"
    grouped = rf"[1-9]\d{{0,2}}({groups})\d{{3}}(?:\1\d{{3}})*(?:{m}\d+)?"
    return re.compile(rf"[+\-\u2212]?(?:{plain}|{grouped}|[iI][nN][fF](?:inity)?)", re.ASCII)


_NUMBER: dict[Mark, re.Pattern[str]] = {mark: _pattern(mark) for mark in _OTHER}


class Reading(NamedTuple):
    """The columns of a table that hold numbers, their decimal marks, and notes about others."""

    marks: dict[str, Mark]
    notes: list[str]


def readings(cells: Iterable[str]) -> set[Mark]:
    """Return the decimal marks with which all cells are numbers."""
    cells = list(cells)
    return {mark for mark, number in _NUMBER.items() if all(map(number.fullmatch, cells))}


def decimal_marks(columns: Mapping[str, Sequence[str]], default: Mark | None) -> Reading:
    """Return the decimal mark of each column of numbers.

    A column such as 1,234 and 2,500 can be read in two ways. Other columns then decide; without
    them a point is decimal, and a comma is read as `default`.

    Raises
    ------
    FormatError
        If nothing decides about a column with commas.
    """
    marks: dict[str, Mark] = {}
    open_columns: dict[str, str] = {}
    notes = []
    for name, cells in columns.items():
        values = [cell for cell in cells if cell not in MISSING]
        likely = readings(values) if values else set()
        marked = next((cell for cell in values if "." in cell or "," in cell), None)
        if len(likely) == 1:
            marks[name] = likely.pop()
        elif likely and marked is None:
            marks[name] = "."
        elif likely and marked is not None:
            open_columns[name] = marked
        elif values and all(any(p.fullmatch(cell) for p in _NUMBER.values()) for cell in values):
            notes.append(f"{name!r} mixes decimal points and decimal commas, so it is read as text")
    evidence = {
        mark
        for name, mark in marks.items()
        if any(m in cell for cell in columns[name] if cell not in MISSING for m in ".,")
    }
    for name, cell in open_columns.items():
        if len(evidence) == 1:
            marks[name] = next(iter(evidence))
            if marks[name] not in cell:
                number = as_numbers([cell], marks[name])[0]
                notes.append(f"{cell!r} in {name!r} is read as {number}, as other columns suggest")
        elif "." in cell and not evidence:
            marks[name] = "."
        elif default is not None:
            marks[name] = default
        else:
            mark = "," if "," in cell else "."
            raise FormatError(
                f"column {name!r} holds {cell!r}, which may be {cell.replace(mark, '')} or "
                f"{cell.replace(mark, '.')}: write one of these"
            )
    return Reading(marks, notes)


def as_numbers(cells: Sequence[str], mark: Mark) -> npt.NDArray[Any]:
    """Return cells of numbers as integers, or as floats if some have a fraction or are missing."""
    plain = ["nan" if cell in MISSING else cell for cell in cells]
    letters = set("".join(plain))
    # Most columns have none of these, and the translation takes half of the time.
    if letters & {*_BLANKS, _OTHER[mark], "\u2212"} or mark != ".":
        translation = dict.fromkeys(_BLANKS + _OTHER[mark], "") | {"\u2212": "-", mark: "."}
        table = str.maketrans(translation)
        plain = [cell.translate(table) for cell in plain]
    if letters <= set("+-\u2212 0123456789") and max(map(len, plain), default=0) <= _DIGITS:
        return np.array([int(cell) for cell in plain], dtype=np.int64)
    return np.array([float(cell) for cell in plain], dtype=np.float64)
