"""A table of a user as points: text, workbook or Parquet, a name for each row, and numbers."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from inference_lab.data.datasets import DataFormatError
from inference_lab.formatting import listed, nearest
from inference_lab.io._files import FormatError
from inference_lab.io.decimals import MISSING, as_numbers, decimal_marks
from inference_lab.io.spreadsheets import (
    TEXT_SUFFIXES,
    WORKBOOK_SUFFIXES,
    places,
    read_sheet,
    suffix_of,
    text_of,
)
from inference_lab.specs.extras import require

if TYPE_CHECKING:
    import pandas as pd


def read_table(
    path: str | os.PathLike[str],
    name: str | None = None,
    drop: Sequence[str] = (),
    on_note: Callable[[str], None] | None = None,
) -> pd.DataFrame:
    """Read a table, by its suffix, and give its rows the names in a column.

    Without `name`, rows have numbers from 0: row 0 is the first after the header, and empty rows do
    not count. In text files, names are literal text: 007 is not 7. `on_note` is called with a
    sentence for each property of the file that is not as in CSV, and for each fault.
    """
    path = Path(path)
    kind = suffix_of(path)
    if kind == ".parquet":
        table, place = _parquet(path)
    elif kind in (*TEXT_SUFFIXES, *WORKBOOK_SUFFIXES):
        table, place = _sheet(path, name, on_note or (lambda sentence: None))
    else:
        allowed = listed([*TEXT_SUFFIXES, *WORKBOOK_SUFFIXES, ".parquet"], most=10)
        remedy = "; save it as .xlsx or .csv" if kind in (".xls", ".ods") else ""
        raise DataFormatError(f"cannot read {path}: allowed are {allowed}{remedy}")
    named = [column for column in (name, *drop) if column is not None]
    for column in named:
        if column not in table:
            hint = nearest(column, list(table.columns))
            raise DataFormatError(f"{path} has no column {column!r}{hint}")
    if name is not None:
        names = table[name]
        if names.isna().any():
            at = int(names.isna().to_numpy().argmax())
            raise DataFormatError(f"{path}: {place(at)} has no name in column {name!r}")
        if not names.is_unique:
            twice = names[names.duplicated()].iloc[0]
            first, second = np.flatnonzero((names == twice).to_numpy())[:2].tolist()
            raise DataFormatError(
                f"{path}: column {name!r} names {str(twice)!r} twice, at {place(first)} and "
                f"{place(second)}; each row needs a name of its own"
            )
        table = table.set_index(name)
    table = table.drop(columns=[column for column in drop if column != name])
    if table.empty:
        raise DataFormatError(f"{path} holds no points: it has shape {table.shape} without names")
    return table


#: Function from the number of a row to its place in the file.
_Places: TypeAlias = Callable[[int], str]


def _parquet(path: Path) -> tuple[pd.DataFrame, _Places]:
    """Return a table of a Parquet file, and the function that gives the places of rows."""
    import pandas as pd

    require("parquet", "pyarrow")
    try:
        table = pd.read_parquet(path).reset_index(drop=True)
    # The errors of pyarrow are among these.
    except ValueError as problem:
        raise DataFormatError(f"cannot read {path}: {problem}") from None
    table.columns = table.columns.astype(str)
    return table, lambda at: f"row {at}"


def _sheet(
    path: Path, name: str | None, note: Callable[[str], None]
) -> tuple[pd.DataFrame, _Places]:
    """Return a table of a text file or workbook, and the function that gives places of rows."""
    import pandas as pd

    sheet = read_sheet(path, pad=True)
    cells = sheet.columns()
    features = {
        column: values
        for column, values in cells.items()
        if column != name and all(isinstance(value, str) for value in values if value is not None)
    }
    texts = {
        column: ["" if value is None else value for value in values]
        for column, values in features.items()
    }
    try:
        reading = decimal_marks(texts, "," if sheet.separator == ";" else None)
    except FormatError as problem:
        raise DataFormatError(f"{path}: {problem}") from None
    columns: dict[str, Any] = {}
    for column, values in cells.items():
        if column == name:
            columns[column] = pd.Series([text_of(value) or None for value in values])
        elif column in reading.marks:
            columns[column] = as_numbers(texts[column], reading.marks[column])
        elif column in texts:
            columns[column] = _words(texts[column])
        else:
            columns[column] = pd.Series(values, dtype=object).infer_objects()
    form = sheet.form()
    if "," in reading.marks.values():
        form.append("decimal commas")
    if form:
        note(f"{path.name} was read with {', '.join(form)}")
    for sentence in (*sheet.notes, *reading.notes):
        note(f"{path.name}: {sentence}")
    table = pd.DataFrame(columns, index=pd.RangeIndex(len(sheet.rows)))
    return table, places(sheet, path).__getitem__


def _words(texts: Sequence[str]) -> pd.Series[Any]:
    """Return texts as Booleans if they are, or with None for missing values."""
    import pandas as pd

    truth = {"true": True, "false": False}
    if texts and all(text.lower() in truth for text in texts):
        return pd.Series([truth[text.lower()] for text in texts])
    words = [None if text in MISSING else text for text in texts]
    # A column without any value is one of numbers, as pandas has it.
    return pd.Series(words) if any(words) else pd.Series(words, dtype=float)
