"""Pairs in data frames and CSV files: a row for each pair, with the names of its points."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from inference_lab.constraints.pair_answers import PairAnswers, group_numbers, watch_confidence
from inference_lab.constraints.pair_arrays import Parts, Weight
from inference_lab.constraints.pair_sets import SET_COLUMNS, pairs_of_sets
from inference_lab.constraints.sample_ids import SampleIds, names_of, rows_named
from inference_lab.formatting import counted, listed, nearest
from inference_lab.graph.arrays import IntArray
from inference_lab.io._files import FormatError
from inference_lab.io.decimals import Mark, as_numbers, decimal_marks
from inference_lab.io.spreadsheets import places, read_sheet, text_of

if TYPE_CHECKING:
    import pandas as pd

KINDS = ("must-link", "cannot-link")

_NEEDED = ("i", "j", "kind")
_OPTIONAL = "weight"
#: Columns of the reliability of a pair, in place of its weight.
_BELIEFS = ("confidence", "group")

#: Words for the kinds, in small letters without blanks, hyphens and underscores.
_WORDS = {
    **dict.fromkeys(["mustlink", "ml", "same", "yes", "y", "true", "t", "1"], KINDS[0]),
    **dict.fromkeys(
        ["cannotlink", "cl", "different", "no", "n", "false", "f", "0", "-1"], KINDS[1]
    ),
}
_WHOLE = re.compile(r"\+?(-?[01])(?:[.,]0+)?")
#: Titles of a column of kinds in which yes would mean cannot-link.
_NEGATIVE = frozenset({"different", "differ", "differs", "distinct", "cannotlink", "cannot", "cl"})
_LITERAL = frozenset({"mustlink", "cannotlink", "ml", "cl", "same", "different"})
#: Words that are no titles, so that a first line with them is a pair.
_VALUES = _WORDS.keys() - {*_LITERAL, *"ynft"} | {"mustlink", "cannotlink"}
#: Largest number of names among which a similar one is searched.
_NAMES_SEARCHED = 10_000


class _PairPlace(str):
    """The place of a pair in a file, such as line 2."""


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
    frame = pairs_of_sets(frame)
    _check_columns(list(frame.columns))
    names: pd.DataFrame = frame[["i", "j"]]
    _refuse(frame, names.isna().any(axis=1), "names no point: i or j is missing")
    return names


def from_frame(frame: Any, sample_ids: Any, **wording: str) -> Parts | PairAnswers:
    """Read pairs, or answers if the frame has confidences or groups.

    If `sample_ids` is a part of some `SampleIds`, pairs with rows outside it are left out.
    `wording` are arguments of `rows_named` for its errors.
    """
    import pandas as pd

    names = names_in(frame)
    frame = pairs_of_sets(frame)
    ids = sample_ids if isinstance(sample_ids, SampleIds) else index_ids(sample_ids)
    rows = rows_named(ids, names.to_numpy(dtype=object), "pairs", **wording)
    selfish = pd.Series((rows[:, 0] == rows[:, 1]) & (rows[:, 0] >= 0), index=frame.index)
    _refuse(frame, selfish, "pairs a point with itself")
    wrong = ~frame["kind"].isin(KINDS)
    _refuse(frame, wrong, f"has an unknown kind; allowed: {', '.join(KINDS)}")
    if not frame.columns.intersection(_BELIEFS).empty:
        return _answers(frame, rows, int(ids.size))
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


def _answers(frame: pd.DataFrame, rows: IntArray, n_points: int) -> PairAnswers:
    """Read the columns of confidences and groups."""
    inside = (rows >= 0).all(axis=1)
    confidence = group = None
    group_names: tuple[Hashable, ...] = ()
    if "confidence" in frame:
        values = frame["confidence"]
        if values.dtype.kind not in "iuf":
            raise TypeError(f"pairs has confidences of dtype {values.dtype}; numbers are needed")
        _refuse(
            frame,
            ~((values > 0.0) & (values <= 1.0)),
            "has no confidence above 0 and up to 1: the probability that the pair is right",
        )
        confidence = values.to_numpy(dtype=np.float64)[inside]
        watch_confidence(confidence)
    if "group" in frame:
        _refuse(frame, frame["group"].isna(), "has no group; give pairs without one a common name")
        group, group_names = group_numbers(frame["group"].tolist())
        group = group[inside]
    return PairAnswers(
        np.sort(rows[inside], axis=1),
        (frame["kind"] == KINDS[0]).to_numpy()[inside],
        n_points,
        confidence,
        group,
        group_names,
    )


def to_frame(
    constraints: Parts,
    sample_ids: Sequence[Hashable] | npt.NDArray[Any] | None,
    answers: PairAnswers | None = None,
) -> pd.DataFrame:
    """Return a row for each pair, or for each answer."""
    import pandas as pd

    n = constraints.n_points
    names = pd.RangeIndex(n) if sample_ids is None else pd.Index(sample_ids)
    names_of(names.tolist(), n)
    if answers is not None:
        frame: pd.DataFrame = answers.to_frame(names)
        return frame
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


def write_csv(
    constraints: Parts, path: Path, sample_ids: Any, answers: PairAnswers | None = None
) -> None:
    """Write one line a pair."""
    n = constraints.n_points
    names = None if sample_ids is None else [str(name) for name in names_of(sample_ids, n)]
    to_frame(constraints, names, answers).to_csv(path, index=False, lineterminator="\n")


def read_csv(
    path: Path,
    names: Sequence[str],
    columns: Sequence[str] = (),
    note: Callable[[str], None] = lambda sentence: None,
) -> Parts | PairAnswers:
    """Read a file of `write_csv`, or of a spreadsheet; messages name lines of the file.

    Blanks around cells are dropped, unless names of points have blanks around them. `columns` are
    the names of the columns i, j, kind, and perhaps weight.
    """
    import pandas as pd

    sheet = read_sheet(path, strip=all(name == name.strip() for name in names))
    # As objects, because pandas makes its own texts of others.
    lines = pd.Index([_PairPlace(place) for place in places(sheet, path)], dtype=object)
    try:
        cells = {
            name.strip(): [text_of(cell) for cell in column]
            for name, column in sheet.columns().items()
        }
        table = pd.DataFrame(cells, index=lines, dtype=object)
        if not columns and SET_COLUMNS <= set(table.columns):
            # Sets depend on the kind, which may be another word.
            table["kind"] = _kinds(table, "kind", note)
            table = pairs_of_sets(table)
        frame = _standard(table, columns, note)
        _refuse_unknown(frame, names)
        if "weight" in frame:
            weights = _numbers(frame["weight"])
            _refuse(frame, ~(weights >= 0.0), "has no weight that is a number >= 0 or inf")
            frame["weight"] = weights
        if "confidence" in frame:
            frame["confidence"] = _numbers(frame["confidence"])
        frame["kind"] = _kinds(frame, columns[2] if columns else "kind", note)
        return from_frame(frame, names)
    except UnknownNameError as error:
        raise UnknownNameError(f"{path}: {error}", error.name) from None
    except (ValueError, TypeError) as error:
        raise FormatError(f"{path}: {error}") from None


def _standard(
    frame: pd.DataFrame, columns: Sequence[str], note: Callable[[str], None]
) -> pd.DataFrame:
    """Return a table of pairs with its columns named i, j, kind and perhaps weight."""
    if not columns:
        titles = list(map(str, frame.columns))
        try:
            _check_columns(titles)
        except ValueError as problem:
            remedy = ""
            if len(titles) >= len(_NEEDED):
                remedy = f"; --pair-columns {','.join(titles[:3])} names them, if these are they"
            if any(_word(title) in _VALUES for title in titles):
                remedy = "; the first line must name the columns, as in i,j,kind"
            raise ValueError(f"{problem}{remedy}") from None
        return frame
    if len(columns) not in (3, 4) or len(set(columns)) < len(columns):
        raise ValueError(
            f"the columns of pairs are given as {', '.join(columns)}; three names, of both points "
            "and of the kind, or a fourth of the weight are needed"
        )
    if len(columns) == 3 and _OPTIONAL in frame and _OPTIONAL not in columns:
        columns = [*columns, _OPTIONAL]
    for name in columns:
        if name not in frame:
            raise ValueError(
                f"pairs have no column {name!r}{nearest(name, list(frame.columns))}; got "
                f"{', '.join(map(str, frame.columns))}"
            )
    beliefs = [name for name in _BELIEFS if name in frame and name not in columns]
    if _OPTIONAL in columns[3:]:
        beliefs = []
    others = [repr(name) for name in frame.columns if name not in (*columns, *beliefs)]
    if others:
        note(f"pairs have columns that are not used: {listed(others)}")
    renamed = dict(zip(columns, (*_NEEDED, _OPTIONAL), strict=False))
    return frame[[*columns, *beliefs]].rename(columns=renamed)


def _kinds(frame: pd.DataFrame, title: str, note: Callable[[str], None]) -> npt.NDArray[np.object_]:
    """Return the kind of each pair; refuse words with another meaning or with two."""
    words = frame["kind"].map(_word)
    kinds = words.map(_WORDS)
    _refuse(
        frame,
        kinds.isna(),
        f"has an unknown kind; allowed: {', '.join(KINDS)}, and yes/no, true/false, 1/0, 1/-1, "
        "ML/CL, same/different",
    )
    if {"0", "-1"} <= set(words):
        raise ValueError(
            "pairs have the kinds 0 and -1, of which 0 may mean unknown; remove these rows, or "
            "write must-link and cannot-link"
        )
    used = dict.fromkeys(frame["kind"])
    if set(used) <= set(KINDS):
        return kinds.to_numpy(dtype=object)
    if _word(title) in _NEGATIVE and not set(words) <= _LITERAL:
        raise ValueError(
            f"the column {title!r} holds {listed([repr(word) for word in used])}, which may mean "
            f"the opposite of {' and '.join(KINDS)}; write these words"
        )
    counts = frame["kind"].value_counts()
    meanings = [
        f"{word!r} is {kinds[(frame['kind'] == word).to_numpy()].iloc[0]} ({counted(n, 'pair')})"
        for word, n in counts.items()
    ]
    note(f"in the pairs, {listed(meanings)}")
    return kinds.to_numpy(dtype=object)


class UnknownNameError(FormatError):
    """A file of pairs names a point that does not exist; `name` is the name."""

    def __init__(self, message: str, name: str) -> None:
        super().__init__(message)
        self.name = name


def _refuse_unknown(frame: pd.DataFrame, names: Sequence[str]) -> None:
    """Refuse pairs with unknown names, and name the likely reason."""
    known = frame[["i", "j"]].isin(names)
    try:
        _refuse(frame, ~known.all(axis=1), "names no point")
    except ValueError as problem:
        cells = frame[["i", "j"]].to_numpy()[~known.to_numpy()]
        raise UnknownNameError(f"{problem}{_reason(cells.tolist(), names)}", cells[0]) from None


def _reason(cells: Sequence[str], names: Sequence[str]) -> str:
    """Return the likely reason why names are unknown, with the remedy, or an empty string."""
    name, n = cells[0], len(names)
    numbered = n > 0 and names[0] == "0" and names[-1] == str(n - 1)
    plain = name.removesuffix(".0").lstrip("0") or "0"
    same = [other for other in names if (other.lstrip("0") or "0") == plain]
    if name and same and not numbered:
        where = "the pairs" if len(same[0]) > len(name) else "the data"
        return (
            f"; {same[0]!r} differs from it by zeros, which a spreadsheet drops from {where}: make "
            "its column one of text, and enter the names again"
        )
    if numbered:
        one = "; if they count from 1, subtract 1" if set(cells) <= {str(n)} else ""
        return f"; rows are numbered from 0 to {n - 1}, without the header and empty lines{one}"
    # The search for a similar name takes a second among as many names.
    return nearest(name, names) if n <= _NAMES_SEARCHED else ""


def _word(cell: str) -> str:
    """Return a word in small letters without blanks, hyphens and underscores, or a whole number."""
    number = _WHOLE.fullmatch(cell.replace("\u2212", "-"))
    if number:
        return number[1]
    return "".join(letter for letter in cell.lower() if letter not in " -_")


def _numbers(cells: pd.Series[Any]) -> pd.Series[float]:
    """Return a column of texts as numbers, NaN where a text is none."""
    marks = decimal_marks({"cells": cells.tolist()}, ",").marks
    return cells.map(lambda cell: _number(cell, marks.get("cells", "."))).astype(np.float64)


def _number(cell: str, mark: Mark) -> float:
    try:
        return float(as_numbers([cell], mark)[0])
    except ValueError:
        return math.nan


def index_ids(sample_ids: Any) -> SampleIds:
    """Return the names in an index, as objects, so that pandas' own types compare."""
    import pandas as pd

    return SampleIds(pd.Index(sample_ids).to_numpy(dtype=object))


def _check_columns(columns: list[Any]) -> None:
    """Refuse frames that lack columns, or have others."""
    missing = [name for name in _NEEDED if name not in columns]
    unknown = [name for name in columns if name not in (*_NEEDED, _OPTIONAL, *_BELIEFS)]
    if missing or unknown or len(set(columns)) < len(columns):
        raise ValueError(
            f"pairs must have the columns {', '.join(_NEEDED)} (set, row, kind for sets of rows), "
            f"and may have {_OPTIONAL}, or {' and '.join(_BELIEFS)}; got "
            f"{', '.join(map(str, columns))}"
        )
    if _OPTIONAL in columns and not set(columns).isdisjoint(_BELIEFS):
        raise ValueError(
            f"pairs has the column {_OPTIONAL} beside {' or '.join(_BELIEFS)}, from which weights "
            "are computed; leave one of them out"
        )


def _refuse(frame: pd.DataFrame, wrong: pd.Series[bool], why: str) -> None:
    """Refuse pairs, naming the first by its row and its content."""
    if wrong.any():
        at = int(wrong.to_numpy().argmax())
        (row,) = frame.iloc[[at]].to_dict("records")
        content = ", ".join(f"{name}={value!r}" for name, value in row.items())
        label = frame.index.tolist()[at]
        place = label if isinstance(label, _PairPlace) else f"row {label!r} of pairs"
        raise ValueError(f"{place} ({content}) {why}")


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
