"""A table of a user as points: CSV or Parquet, a name for each row, and numbers in all columns."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from inference_lab.data.datasets import DataFormatError
from inference_lab.formatting import nearest
from inference_lab.specs.extras import require

if TYPE_CHECKING:
    import pandas as pd


def read_table(
    path: str | os.PathLike[str], name: str | None = None, drop: Sequence[str] = ()
) -> pd.DataFrame:
    """Read a table, by its suffix, and give its rows the names in a column.

    Without `name`, rows have numbers from 0. In CSV, names are literal text: 007 is
    not 7.
    """
    import pandas as pd

    path = Path(path)
    kind = path.suffix.lower()
    if kind not in (".csv", ".parquet"):
        raise DataFormatError(f"cannot read {path}: allowed are .csv and .parquet")
    if kind == ".parquet":
        require("parquet", "pyarrow")
    try:
        if kind == ".parquet":
            frame = pd.read_parquet(path).reset_index(drop=True)
        else:
            frame = pd.read_csv(path, dtype=None if name is None else {name: str})
    # The errors of pyarrow and of pandas' parser, and of text that is not UTF-8, are among these.
    except ValueError as problem:
        raise DataFormatError(f"cannot read {path}: {problem}") from None
    frame.columns = frame.columns.astype(str)
    named = [column for column in (name, *drop) if column is not None]
    for column in named:
        if column not in frame:
            hint = nearest(column, list(frame.columns))
            raise DataFormatError(f"{path} has no column {column!r}{hint}")
    if name is not None:
        names = frame[name]
        if names.isna().any():
            at = int(names.isna().to_numpy().argmax())
            raise DataFormatError(f"{path}: row {at} has no name in column {name!r}")
        if not names.is_unique:
            twice = names[names.duplicated()].iloc[0]
            raise DataFormatError(
                f"{path}: column {name!r} names {twice!r} twice; each row needs a name of its own"
            )
        frame = frame.set_index(name)
    frame = frame.drop(columns=[column for column in drop if column != name])
    if frame.empty:
        raise DataFormatError(f"{path} holds no points: it has shape {frame.shape} without names")
    return frame
