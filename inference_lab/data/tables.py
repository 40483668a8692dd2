"""A table of a user as points: CSV or Parquet, a name for each row, and numbers in all columns."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from inference_lab.data.datasets import DataFormatError
from inference_lab.formatting import counted, listed, nearest
from inference_lab.specs.extras import require

if TYPE_CHECKING:
    import pandas as pd

#: Replacements of missing numbers, as in scikit-learn's `SimpleImputer`.
IMPUTATIONS = ("median", "mean", "most_frequent")


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


def numeric_columns(
    frame: pd.DataFrame, impute: str | None = None, encode: str | None = None
) -> pd.DataFrame:
    """Return the table as numbers; refuse missing values and categories, and name the remedies.

    `impute` is one of `IMPUTATIONS`, for numbers; missing categories are then a category of their
    own. `encode` is "onehot".
    """
    import pandas as pd
    from pandas.api.types import is_bool_dtype, is_numeric_dtype
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import OneHotEncoder

    numbers = [c for c in frame if is_numeric_dtype(frame[c]) or is_bool_dtype(frame[c])]
    others = [c for c in frame if c not in numbers]
    if others and encode is None:
        raise DataFormatError(_no_numbers(frame[others]))
    missing = [c for c in frame if frame[c].isna().any()]
    if missing and impute is None:
        raise DataFormatError(_missing(frame[missing]))
    parts = []
    if numbers:
        values = frame[numbers].astype(float)
        infinite = [c for c in values if np.isinf(values[c]).any()]
        if infinite:
            raise DataFormatError(f"column {infinite[0]!r} holds an infinite value")
        if impute is not None and values.isna().any(axis=None):
            # A column without any value has no median.
            values = values.dropna(axis="columns", how="all")
            filled = SimpleImputer(strategy=impute).fit_transform(values)
            values = pd.DataFrame(filled, frame.index, values.columns)
        parts.append(values)
    if others:
        words = frame[others].astype(object)
        # As text, because categories of several types have no order.
        words = words.where(words.isna(), words.astype(str)).where(words.notna(), "missing")
        encoder = OneHotEncoder(sparse_output=False)
        encoded = encoder.fit_transform(words)
        parts.append(pd.DataFrame(encoded, frame.index, encoder.get_feature_names_out()))
    return pd.concat(parts, axis="columns")


def counting_columns(frame: pd.DataFrame) -> list[str]:
    """Return the columns that count the rows, which are names rather than features."""
    steps = {name: frame[name].diff().iloc[1:] for name in frame.select_dtypes("integer")}
    return [str(name) for name, step in steps.items() if len(step) > 1 and (step == 1).all()]


def _quoted(frame: Any) -> str:
    return listed([repr(name) for name in frame.columns])


def _no_numbers(frame: Any) -> str:
    """Return the reason why columns cannot be used unchanged."""
    import pandas as pd

    first = frame.columns[0]
    texts = frame[first][pd.to_numeric(frame[first], errors="coerce").isna()].dropna()
    shown = f", such as {texts.iloc[0]!r} in row {texts.index[0]}" if len(texts) else ""
    as_name = f"; --id {first} takes it as the names of rows" if frame[first].is_unique else ""
    verb = "holds" if frame.shape[1] == 1 else "hold"
    return (
        f"{_quoted(frame)} {verb} values that are not numbers{shown}: make a column of each "
        f"category with --encode onehot, or leave it out with --drop {first}{as_name}"
    )


def _missing(frame: Any) -> str:
    """Return the message on missing values, with the remedies."""
    count = int(frame.isna().to_numpy().sum())
    first = frame.columns[0]
    rows = listed([str(row) for row in frame.index[frame.isna().any(axis=1)]])
    return (
        f"{counted(count, 'value')} missing in {_quoted(frame)} (in rows {rows}): replace "
        f"them with --impute median, leave a column out with --drop {first}, or remove the rows"
    )
