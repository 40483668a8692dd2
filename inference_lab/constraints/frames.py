"""Pairs in data frames and CSV files: a row for each pair, with the names of its points."""

from __future__ import annotations

import csv
import math
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from inference_lab.constraints.pair_arrays import Parts, Weight
from inference_lab.constraints.sample_ids import SampleIds, names_of, rows_named
from inference_lab.graph.arrays import IntArray
from inference_lab.io._files import FormatError

if TYPE_CHECKING:
    import pandas as pd

KINDS = ("must-link", "cannot-link")

_NEEDED = ("i", "j", "kind")
_OPTIONAL = "weight"


def names_in(frame: Any) -> pd.DataFrame:
    """Return the columns ``i`` and ``j`` of a table of pairs; refuse other tables."""
    import pandas as pd

    if hasattr(frame, "must_link"):
        raise TypeError(
            f"pairs is of type {type(frame).__name__}; give fit(X, **constraints.fit_params()), or "
            "pairs=constraints.to_frame()"
        )
    if not isinstance(frame, pd.DataFrame):
        raise TypeError(
            f"pairs is of type {type(frame).__name__}; a pandas DataFrame with the columns "
            f"{', '.join(_NEEDED)} is needed. must_link and cannot_link take arrays"
        )
    _check_columns(list(frame.columns))
    names = frame[["i", "j"]]
    _refuse(frame, names.isna().any(axis=1), "names no point: i or j is missing")
    return names


def from_frame(frame: Any, sample_ids: Any, **wording: str) -> Parts:
    """Read pairs.

    If `sample_ids` is a part of some `SampleIds`, pairs with rows outside it are left out.
    `wording` are arguments of `rows_named` for its errors.
    """
    import pandas as pd

    names = names_in(frame)
    ids = sample_ids if isinstance(sample_ids, SampleIds) else index_ids(sample_ids)
    rows = rows_named(ids, names.to_numpy(dtype=object), "pairs", **wording)
    selfish = pd.Series((rows[:, 0] == rows[:, 1]) & (rows[:, 0] >= 0), index=frame.index)
    _refuse(frame, selfish, "pairs a point with itself")
    wrong = ~frame["kind"].isin(KINDS)
    _refuse(frame, wrong, f"has an unknown kind; allowed: {', '.join(KINDS)}")
    numbered = pd.DataFrame(np.sort(rows, axis=1), columns=["first", "second"])
    numbered["kind"] = frame["kind"].to_numpy(dtype=object)
    numbered["weight"] = _weights(frame)
    inner = numbered[numbered["first"] >= 0]
    inner = inner.sort_values(["first", "second"], kind="stable")
    different = inner.drop_duplicates()
    twice = different.duplicated(["first", "second", "kind"])
    if twice.any():
        i, j = frame.iloc[int(different.index[int(twice.to_numpy().argmax())])][["i", "j"]]
        raise ValueError(
            f"pairs lists ({i!r}, {j!r}) twice as one kind, with different weights; give each "
            "pair one"
        )
    parts: list[tuple[IntArray, Weight]] = []
    for kind in KINDS:
        group = inner[inner["kind"] == kind]
        weights = group["weight"].to_numpy(dtype=np.float64)
        alike = weights.size == 0 or bool((weights == weights[0]).all())
        weight: Weight = float(weights[0] if weights.size else 1.0) if alike else weights
        parts.append((group[["first", "second"]].to_numpy(dtype=np.int64), weight))
    (ml, ml_weight), (cl, cl_weight) = parts
    return Parts(ml, cl, ml_weight, cl_weight, int(ids.size))


def to_frame(
    constraints: Parts, sample_ids: Sequence[Hashable] | npt.NDArray[Any] | None
) -> pd.DataFrame:
    """Return a row for each pair."""
    import pandas as pd

    n = constraints.n_points
    names = pd.RangeIndex(n) if sample_ids is None else pd.Index(sample_ids)
    names_of(names.tolist(), n)
    pairs = np.concatenate((constraints.must_link, constraints.cannot_link))
    kinds = np.repeat(KINDS, [len(constraints.must_link), len(constraints.cannot_link)])
    return pd.DataFrame(
        {
            "i": names[pairs[:, 0]],
            "j": names[pairs[:, 1]],
            "kind": kinds,
            "weight": np.concatenate((constraints.ml_weights, constraints.cl_weights)),
        }
    )


def write_csv(constraints: Parts, path: Path, sample_ids: Any) -> None:
    """Write one line a pair."""
    n = constraints.n_points
    names = None if sample_ids is None else [str(name) for name in names_of(sample_ids, n)]
    to_frame(constraints, names).to_csv(path, index=False, lineterminator="\n")


def read_csv(path: Path, names: Sequence[str]) -> Parts:
    """Read a file of `write_csv`; messages name lines as rows.

    Blanks around cells are dropped, unless names of points have blanks around them.
    """
    import pandas as pd

    blanks = all(name == name.strip() for name in names)
    rows: list[dict[str, str]] = []
    lines: list[int] = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream, strict=True, skipinitialspace=blanks)
            for row in reader:
                if None in row or None in row.values():
                    raise ValueError(f"row {reader.line_num} has not one field for each column")
                rows.append(row)
                lines.append(reader.line_num)
        frame = pd.DataFrame(rows, index=lines, columns=list(reader.fieldnames or ()))
        frame = frame.rename(columns=str.strip)
        _check_columns(list(frame.columns))
        if blanks:
            frame = frame.apply(lambda column: column.str.strip())
        _refuse(frame, ~frame[["i", "j"]].isin(names).all(axis=1), "names no point")
        if "weight" in frame:
            weights = frame["weight"].map(_number).astype(np.float64)
            _refuse(frame, ~(weights >= 0.0), "has no weight that is a number >= 0 or inf")
            frame["weight"] = weights
        return from_frame(frame, names)
    except (csv.Error, ValueError, TypeError) as error:
        raise FormatError(f"{path}: {error}") from None


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return math.nan


def index_ids(sample_ids: Any) -> SampleIds:
    """Return the names in an index, as objects, so that pandas' own types compare."""
    import pandas as pd

    return SampleIds(pd.Index(sample_ids).to_numpy(dtype=object))


def _check_columns(columns: list[Any]) -> None:
    """Refuse frames that lack columns, or have others."""
    missing = [name for name in _NEEDED if name not in columns]
    unknown = [name for name in columns if name not in (*_NEEDED, _OPTIONAL)]
    if missing or unknown or len(set(columns)) < len(columns):
        raise ValueError(
            f"pairs must have the columns {', '.join(_NEEDED)}, and may have "
            f"{_OPTIONAL}; got {', '.join(map(str, columns))}"
        )


def _refuse(frame: pd.DataFrame, wrong: pd.Series[bool], why: str) -> None:
    """Refuse pairs, naming the first by its row and its content."""
    if wrong.any():
        at = int(wrong.to_numpy().argmax())
        (row,) = frame.iloc[[at]].to_dict("records")
        content = ", ".join(f"{name}={value!r}" for name, value in row.items())
        raise ValueError(f"row {frame.index.tolist()[at]!r} of pairs ({content}) {why}")


def _weights(frame: pd.DataFrame) -> npt.NDArray[np.float64]:
    """Return the weight of each pair, 1 without such a column."""
    if "weight" not in frame:
        return np.ones(len(frame))
    weights = frame["weight"]
    if weights.dtype.kind not in "iuf":
        raise TypeError(f"pairs has weights of dtype {weights.dtype}; real numbers are needed")
    _refuse(frame, weights.isna(), "has no weight; leave out the column where none is known")
    _refuse(
        frame, weights < 0, "has a negative weight; weights are >= 0, and inf makes a pair hard"
    )
    return weights.to_numpy(dtype=np.float64)
