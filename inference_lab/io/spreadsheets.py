"""Cells of tables in text files and workbooks; encoding and separator are recognised."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from inference_lab.formatting import counted, listed
from inference_lab.io._files import COMPRESSIONS, FormatError, read_bytes
from inference_lab.io.decimals import MISSING, readings
from inference_lab.specs.extras import require

TEXT_SUFFIXES = (".csv", ".tsv", ".tab", ".txt")
WORKBOOK_SUFFIXES = (".xlsx", ".xlsm")

#: Separators with their names.
_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
#: Rows from which the separator is recognised.
_FIRST_ROWS = 1000
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig", "UTF-8"),
    (codecs.BOM_UTF32_LE, "utf-32", "UTF-32"),
    (codecs.BOM_UTF32_BE, "utf-32", "UTF-32"),
    (codecs.BOM_UTF16_LE, "utf-16", "UTF-16"),
    (codecs.BOM_UTF16_BE, "utf-16", "UTF-16"),
)
#: First bytes of files that are no text, with their names.
_BINARY = (
    (b"PK\x03\x04", "an XLSX or ODS workbook: save it as CSV, or name it .xlsx if it is one"),
    (b"\xd0\xcf\x11\xe0", "an old XLS workbook: save it as .xlsx or CSV"),
    (b"PAR1", "a Parquet file: name it .parquet"),
    (b"\x1f\x8b", "compressed: name it .csv.gz"),
)


class Sheet(NamedTuple):
    """A table as it stands in a file: its header, rows of cells, and the line of each row.

    Cells of text files are text; cells of workbooks are text, numbers, dates or None.
    """

    header: list[str]
    rows: list[list[Any]]
    lines: list[int]
    #: Description of the file, and sentences about its faults.
    separator: str
    encoding: str
    notes: list[str]

    def columns(self) -> dict[str, list[Any]]:
        """Return the cells of each column."""
        cells = list(zip(*self.rows, strict=True)) or [()] * len(self.header)
        return {name: list(column) for name, column in zip(self.header, cells, strict=True)}

    def form(self) -> list[str]:
        """Return the properties that differ from a CSV file in UTF-8, in words."""
        words = []
        if self.separator not in (",", "") and len(self.header) > 1:
            words.append(f"{_SEPARATORS.get(self.separator, repr(self.separator))} between columns")
        if self.encoding not in ("UTF-8", ""):
            words.append(f"text in {self.encoding}")
        return words


def places(sheet: Sheet, path: Path) -> list[str]:
    """Return the place of each row in the file, in words."""
    where = "row {} of the sheet" if suffix_of(path) in WORKBOOK_SUFFIXES else "line {}"
    return [where.format(line) for line in sheet.lines]


def suffix_of(path: Path) -> str:
    """Return the suffix of a file in small letters, without one of compression."""
    name = path.name.lower()
    for compression in COMPRESSIONS:
        name = name.removesuffix(compression)
    return Path(name).suffix


def read_sheet(path: Path, *, strip: bool = True, pad: bool = False) -> Sheet:
    """Read a text file or workbook, by its suffix.

    `strip` drops blanks around cells. `pad` fills rows that are too short with empty cells, which
    spreadsheets leave out at the end of rows; otherwise such rows are refused.

    Raises
    ------
    FormatError
        If the file cannot be read; the message has its name and the remedy.
    OSError
        If it cannot be opened.
    """
    if suffix_of(path) in WORKBOOK_SUFFIXES:
        return _workbook(path)
    text, encoding = decoded(read_bytes(path), str(path))
    return _text_table(text, encoding, str(path), strip=strip, pad=pad)


def decoded(data: bytes, path: str) -> tuple[str, str]:
    """Return the text of a file and the name of its encoding: UTF-8, UTF-16 or Windows-1252."""
    for start, name in _BINARY:
        if data.startswith(start):
            raise FormatError(f"cannot read {path}: it is {name}")
    codec, encoding = next(
        ((codec, name) for mark, codec, name in _MARKS if data.startswith(mark)), ("", "")
    )
    if not codec and b"\0" in data[:4096]:
        # Letters of Western languages have a zero byte first or second in UTF-16.
        first, second = data[0:4096:2].count(0), data[1:4096:2].count(0)
        if min(first, second) * 8 > max(first, second):
            raise FormatError(f"cannot read {path}: it holds zero bytes, so it is no text")
        codec, encoding = ("utf-16-le" if second > first else "utf-16-be"), "UTF-16"
    if codec:
        try:
            return data.decode(codec), encoding
        except UnicodeDecodeError as problem:
            raise FormatError(f"cannot read {path} as {encoding}: {problem}") from None
    try:
        return data.decode("utf-8"), "UTF-8"
    except UnicodeDecodeError as problem:
        place = problem
    try:
        return data.decode("cp1252"), "Windows-1252"
    except UnicodeDecodeError:
        line = 1 + data[: place.start].count(b"\n")
        raise FormatError(
            f"cannot read {path}: line {line} is neither UTF-8 nor Windows-1252 (byte "
            f"0x{data[place.start]:02x} in position {place.start}); save the file as UTF-8"
        ) from None


def _cells(text: str, separator: str, strip: bool) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that are not empty, each with its first line."""
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=strip, strict=True
    )
    line = 1
    for row in reader:
        cells = [cell.strip() for cell in row] if strip else row
        if any(cells):
            yield line, cells
        line = reader.line_num + 1


def _text_table(text: str, encoding: str, path: str, *, strip: bool, pad: bool) -> Sheet:
    """Return the table in a text."""
    first_line = io.StringIO(text, newline="").readline()
    separator, skipped = "", 0
    if first_line.startswith("sep=") and len(first_line.rstrip("\r\n")) == 5:
        # Spreadsheets write the separator so.
        separator, skipped = first_line[4], 1
        text = text[len(first_line) :]
    try:
        separator = separator or _separator(text, path, strip)
        table = list(_cells(text, separator, strip))
    except csv.Error as problem:
        raise FormatError(f"cannot read {path}: {problem}") from None
    if not table:
        raise FormatError(f"cannot read {path}: it is empty")
    (_, header), *body = table
    lines = [line + skipped for line, _ in body]
    rows, notes = _even([row for _, row in body], len(header), lines, separator, path, pad)
    return _named(Sheet(header, rows, lines, separator, encoding, notes), path)


def _separator(text: str, path: str, strip: bool) -> str:
    """Return the separator that divides the first rows into as many cells as the header."""
    fits: dict[str, float] = {}
    numbers: dict[str, float] = {}
    for separator in _SEPARATORS:
        try:
            rows = [row for _, row in islice(_cells(text, separator, strip), _FIRST_ROWS)]
        except csv.Error:
            # Quotes inside cells show that this is not the separator, unless it is the only one.
            rows = []
        if not rows or len(rows[0]) < 2:
            continue
        header, *body = rows
        fits[separator] = sum(len(row) == len(header) for row in body) / max(1, len(body))
        cells = [cell for row in body for cell in row if cell not in MISSING]
        numbers[separator] = sum(bool(readings([cell])) for cell in cells) / max(1, len(cells))
    if not fits:
        return _of_one_column(text, strip)
    best = [separator for separator, fit in fits.items() if fit == max(fits.values())]
    if len(best) > 1:
        # A separator inside cells leaves fewer numbers.
        best = [s for s in best if numbers[s] == max(numbers[t] for t in best)]
    if len(best) > 1:
        names = " or by ".join(_SEPARATORS[separator] for separator in best)
        raise FormatError(
            f"cannot read {path}: its columns may be separated by {names}; put cells that hold "
            "one of these into quotes"
        )
    return best[0]


def _of_one_column(text: str, strip: bool) -> str:
    """Return a separator for a table of one column, whose numbers may have decimal commas."""
    rows = [row for _, row in islice(_cells(text, ",", strip), 1, _FIRST_ROWS)]
    decimal = any(len(row) == 2 for row in rows) and all(
        readings([",".join(row)]) for row in rows if row[0] not in MISSING
    )
    return ";" if decimal else ","


def _even(
    rows: list[list[str]], width: int, lines: list[int], separator: str, path: str, pad: bool
) -> tuple[list[list[str]], list[str]]:
    """Return rows of one width, with notes about rows that were filled; refuse others."""
    short: list[int] = []
    for at, row in enumerate(rows):
        if len(row) == width:
            continue
        if len(row) > width and not any(row[width:]):
            del row[width:]
        elif len(row) < width and pad:
            row += [""] * (width - len(row))
            short.append(lines[at])
        else:
            row_names = all(len(other) == width + 1 for other in rows)
            remedy = (
                "give the first column a name"
                if row_names and len(row) > width
                else "put cells that hold the separator into quotes"
            )
            raise FormatError(
                f"{path}: line {lines[at]} has not one field for each column ({len(row)} of "
                f"{width}, separated by {_SEPARATORS.get(separator, repr(separator))}): {remedy}"
            )
    if not short:
        return rows, []
    where = listed([str(line) for line in short])
    return rows, [
        f"{counted(len(short), 'row')} too short, filled with missing values: line {where}"
    ]


def _named(sheet: Sheet, path: str) -> Sheet:
    """Return a table with names for its columns, without empty ones that have none."""
    kept = [
        at
        for at, name in enumerate(sheet.header)
        if name or any(row[at] not in ("", None) for row in sheet.rows)
    ]
    header = [sheet.header[at] or f"Unnamed: {at}" for at in kept]
    rows = sheet.rows
    if len(kept) < len(sheet.header):
        rows = [[row[at] for at in kept] for row in rows]
    twice = next((name for at, name in enumerate(header) if name in header[:at]), None)
    if twice is not None:
        raise FormatError(f"{path} has two columns {twice!r}; give each a name of its own")
    if readings(header) and any("." in name or "," in name for name in header):
        raise FormatError(
            f"{path}: the first line holds numbers, {listed(header, most=3)}; columns need names "
            "in the first line"
        )
    return sheet._replace(header=header, rows=rows)


def _workbook(path: Path) -> Sheet:
    """Return the table on the first sheet of a workbook."""
    import pandas as pd

    require("excel", "openpyxl")
    try:
        with pd.ExcelFile(path, engine="openpyxl") as book:
            names = [str(name) for name in book.sheet_names]
            frame = pd.read_excel(book, header=None, dtype=object, keep_default_na=False)
    # Damaged workbooks raise errors of the archive, of XML and of openpyxl.
    except Exception as problem:
        if isinstance(problem, OSError):
            raise
        raise FormatError(f"cannot read {path}: no workbook in XLSX: {problem}") from None
    rows, lines = [], []
    for at, values in enumerate(frame.itertuples(index=False, name=None)):
        cells = [cell.strip() if isinstance(cell, str) else cell for cell in values]
        cells = [None if cell == "" or cell is pd.NaT else cell for cell in cells]
        if any(cell is not None and cell == cell for cell in cells):
            rows.append(cells)
            lines.append(at + 1)
    if not rows:
        raise FormatError(f"cannot read {path}: its first sheet, {names[0]!r}, is empty")
    notes = []
    if len(names) > 1:
        notes.append(f"read the sheet {names[0]!r}, the first of {len(names)}")
    header = ["" if cell is None else text_of(cell) for cell in rows[0]]
    return _named(Sheet(header, rows[1:], lines[1:], "", "", notes), str(path))


def text_of(cell: Any) -> str:
    """Return a cell as text; whole numbers of workbooks have no fraction."""
    if cell is None or cell != cell:
        return ""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell)
