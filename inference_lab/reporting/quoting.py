"""Numbers in what somebody wrote about a report, tied to the tables that they are from.

``{0.011 = against-baseline | Exact (ILP) | all}`` in an answer is shown as 0.011, and holds as long
as the table ``against-baseline`` has that in the row and column named; ``{against-baseline |
Exact (ILP) | all}`` is shown as whatever stands there. So a sentence cannot outlive its records.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from inference_lab.reporting.document import Cell, Document, Table, file_stems
from inference_lab.words import nearest

__all__ = ["Quoted", "bare_numbers", "quoted", "with_quotations"]

_QUOTE = re.compile(r"\{(?:(?P<shown>[^{}|]*?)\s*=\s*)?(?P<place>[^{}=]*\|[^{}]*)\}", re.DOTALL)
_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")

#: What numbers are multiplied by that are followed by a unit.
_UNITS = {" ms": 1e3, " µs": 1e6}


class Quoted(NamedTuple):
    """A text with its quotations shown."""

    text: str
    wrong: list[str]


class _QuoteError(Exception):
    """A quotation of what is not there, or is not what it says."""


def quoted(text: str, tables: Iterable[Table]) -> Quoted:
    """Show the quotations of a text, and say which of them do not hold.

    A quotation names a table, a row and a column. A row goes by the text of one of its cells, or
    of several with ``&`` between them; ``*`` is all rows, or all columns but the first, and ``;``
    parts several. A column goes by its title. What is to be shown comes before ``=``:

    * a number is compared with the value of the cell, rounded to the digits that are shown; with
      ``ms`` behind it, the cell is in seconds. A minus before the table's name changes the sign of
      all its values, for what is "0.2 less";
    * two numbers over several cells are the smallest and the largest of them;
    * several numbers of one cell are those of its text, such as the ends of an interval;
    * without a digit, it is the text of the cell.
    """
    held = list(tables)
    # By the name of its file, too, which is what a reader sees.
    files = file_stems([table.name for table in held], "table")
    named = dict(zip(files, held, strict=True)) | {table.name: table for table in held}
    wrong: list[str] = []

    def show(match: re.Match[str]) -> str:
        place = " ".join(match["place"].split())
        shown = None if match["shown"] is None else " ".join(match["shown"].split())
        try:
            cells, sign = _cells(place, named)
            if shown is None:
                return _only(cells, place).text
            _check(shown, cells, sign, place)
        except _QuoteError as problem:
            wrong.append(str(problem))
        return shown or "?"

    return Quoted(_QUOTE.sub(show, text), wrong)


def with_quotations(document: Document) -> Document:
    """Return a report with the quotations in its lead shown; those that do not hold are warnings."""
    lead, warnings = [], list(document.warnings)
    for name, text in document.lead:
        shown, wrong = quoted(text, document.tables())
        lead.append((name, shown))
        warnings += [f"{name} and records differ: {said}." for said in wrong]
    return replace(document, lead=tuple(lead), warnings=tuple(warnings))


def bare_numbers(text: str) -> list[str]:
    """Return the numbers of a text that no quotation ties to a table."""
    return re.findall(r"(?<![\w.-])\d+(?:\.\d+)?", _QUOTE.sub("", text))


def _cells(place: str, tables: dict[str, Table]) -> tuple[list[Cell], float]:
    """Return the cells that a place names, and the sign of their values."""
    parts = [part.strip() for part in place.split("|")]
    if len(parts) != 3:
        raise _QuoteError(f"{place} must name a table, a row and a column")
    name, row, column = parts
    negated = name.startswith("-")
    table = tables.get(name[1:].strip() if negated else name)
    if table is None:
        raise _QuoteError(f"{place}: there is no table {name!r}{nearest(name, tables)}")
    titles = [head.title for head in table.columns]
    places = list(range(1, len(titles)))
    if column != "*":
        for title in column.split(";"):
            if title.strip() not in titles:
                hint = nearest(title.strip(), titles)
                raise _QuoteError(f"{place}: there is no column {title.strip()!r}{hint}")
        wanted = [title.strip() for title in column.split(";")]
        places = [at for at, title in enumerate(titles) if title in wanted]
    chosen = []
    for one in row.split(";"):
        keys = {key.strip() for key in one.split("&")}
        lines = [r for r in table.rows if keys == {"*"} or keys <= {cell.text for cell in r}]
        if not lines:
            raise _QuoteError(f"{place}: there is no row {one.strip()!r}")
        chosen += lines
    return [line[at] for line in chosen for at in places], -1.0 if negated else 1.0


def _only(cells: Sequence[Cell], place: str) -> Cell:
    if len(cells) != 1:
        raise _QuoteError(f"{place} names {len(cells)} cells, not one")
    return cells[0]


def _check(shown: str, cells: Sequence[Cell], sign: float, place: str) -> None:
    """Refuse what is shown if the cells say something else."""
    numbers = _NUMBER.findall(shown)
    values = [sign * cell.value for cell in cells if cell.value is not None]
    scale = next((factor for unit, factor in _UNITS.items() if unit in shown), 1.0)
    if not numbers:
        there = [_only(cells, place).text]
        holds = there == [shown]
    elif len(cells) == 1 and len(numbers) > 1:
        there = [cells[0].text]
        holds = [_plain(n) for n in numbers] == [_plain(n) for n in _NUMBER.findall(there[0])]
    else:
        ends = [min(values), max(values)] if values else []
        expected = ends if len(numbers) == 2 else ends[:1] if len(set(ends)) == 1 else []
        there = [f"{value * scale:.6g}" for value in ends]
        holds = len(expected) == len(numbers) and all(
            _rounds_to(value * scale, number)
            for value, number in zip(expected, numbers, strict=True)
        )
    if not holds:
        said = " to ".join(dict.fromkeys(map(repr, there)))
        raise _QuoteError(f"the text says {shown}, but {place} has {said or 'no number'}")


def _plain(number: str) -> float:
    return float(number.replace(",", ""))


def _rounds_to(value: float, number: str) -> bool:
    """Whether a value is shown as a number that has so many decimals."""
    decimals = len(number.partition(".")[2])
    # A half may go either way, since the value was rounded in floating point before.
    return math.isfinite(value) and abs(value - _plain(number)) <= 0.5000001 * 10.0**-decimals
