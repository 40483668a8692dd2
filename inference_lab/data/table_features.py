"""Columns of a table of any kinds as features of comparable weight, learnt once for later rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import msgspec
import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from inference_lab.data.column_kinds import (
    EMPTY,
    ENOUGH_ROWS,
    Reading,
    order_is_open,
    read_numbers,
    reading_of,
    reason_to_leave_out,
    words_of,
)
from inference_lab.data.datasets import DataFormatError
from inference_lab.formatting import counted, listed, nearest, warn
from inference_lab.graph.arrays import FloatArray
from inference_lab.specs.settings import check_settings

if TYPE_CHECKING:
    import pandas as pd

Impute = Literal["median", "mean", "most_frequent", "none"]
Encode = Literal["auto", "onehot", "none"]
Scale = Literal["standard", "none"]

#: Share of rows below which a category is counted with others as rare.
_RARE = 0.01
#: Categories of missing and of rare values.
_ABSENT, _OTHER = "missing", "other"

_Positive = Annotated[float, msgspec.Meta(gt=0.0)]


class NumberColumn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="number"):
    """A column that becomes one feature: ``(value - centre) / scale``.

    ``fill`` replaces a missing value, or is None where these are refused.
    """

    name: str
    reading: Reading
    fill: float | None
    centre: float
    scale: _Positive

    def __post_init__(self) -> None:
        """Refuse a reading that yields no numbers."""
        if self.reading == "words":
            raise ValueError(f"column {self.name!r} of numbers is read as words")

    @property
    def features(self) -> list[str]:
        """The name of the feature."""
        return [self.name]


class CategoryColumn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="category"):
    """A column that becomes a feature of each category: ``(indicator - centre) / scale``.

    With `binary`, only the second of two categories has a feature, which says as much. Values in
    ``rare`` belong to the category "other".
    """

    name: str
    categories: Annotated[list[str], msgspec.Meta(min_length=1)]
    centres: list[float]
    scales: list[_Positive]
    rare: list[str] = []
    binary: bool = False
    refuse_missing: bool = False

    def __post_init__(self) -> None:
        """Refuse lists of different lengths, and repeated categories."""
        n = len(self.categories)
        if not (n == len(self.centres) == len(self.scales) == len(set(self.categories))):
            raise ValueError(f"column {self.name!r} has {n} categories and other numbers of them")
        if self.binary and n != 2:
            raise ValueError(f"column {self.name!r} is binary with {n} categories")

    @property
    def features(self) -> list[str]:
        """The names of the features, as `sklearn.preprocessing.OneHotEncoder` forms them."""
        names = [f"{self.name}_{category}" for category in self.categories]
        return names[1:] if self.binary else names


Column = NumberColumn | CategoryColumn


class StoredFeatures(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of `TableFeatures` and what it learnt, as they are written to a file."""

    names: list[str]
    columns: Annotated[list[Column], msgspec.Meta(min_length=1)]
    left_out: dict[str, str] = {}
    impute: Impute = "median"
    encode: Encode = "auto"
    scale: Scale = "standard"
    drop: list[str] = []
    keep: list[str] = []

    def __post_init__(self) -> None:
        """Refuse repeated columns."""
        names = [column.name for column in self.columns]
        if len(set(names)) < len(names):
            raise ValueError("two columns have the same name")


@dataclass(eq=False, repr=False, kw_only=True)
class TableFeatures(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types
    """Features of a table with numbers, dates, times and categories.

    Numbers have mean 0 and variance 1. A category column has a feature for each category; together
    these have the variance of one number. Dates and times, also as text, are numbers. Columns that
    cannot tell groups of rows apart are left out: counters of rows, identifiers, texts that hardly
    ever repeat, and columns that are empty, nearly constant or mostly missing. All of this is
    learnt in `fit` and applied to later rows.

    Parameters
    ----------
    impute : {"median", "mean", "most_frequent", "none"}
        Replacement of missing numbers; "none" refuses missing values. Missing categories are a
        category of their own.
    encode : {"auto", "onehot", "none"}
        "onehot" scales the feature of each category as a number, so that a column of many
        categories outweighs many numbers; rare categories stay apart. "none" refuses categories.
    scale : {"standard", "none"}
        "none" leaves numbers as they are, and features of categories 0 and 1.
    drop : sequence of str
        Columns that are left out.
    keep : sequence of str
        Columns that are used although they would be left out.

    Attributes
    ----------
    columns_ : list of NumberColumn and CategoryColumn
        The columns that are used, with the parameters of their features.
    left_out_ : dict of str
        The reason for each column that is left out, except those of `drop`.
    notes_ : list of str
        A sentence on each thing done to the table.
    feature_names_in_ : (m,) array of str
        Names of the columns of the table.

    Notes
    -----
    Categories in fewer than one row in a hundred count as one, "other", where there are several. A
    category that was not in the table of the fit counts as "other" if that exists. Otherwise it is
    neutral: its features are 0, the mean. So is a missing category if none was missing in the fit.

    Examples
    --------
    >>> import pandas as pd
    >>> found = ["1 May 2024", "", "3 May 2024"]
    >>> plants = pd.DataFrame({"height": [1.0, 3.0, None], "found": found})
    >>> features = TableFeatures().fit(plants)
    >>> features.get_feature_names_out().tolist()
    ['height', 'found']
    >>> features.transform(plants.head(1)).round(2).tolist()
    [[-1.22, -1.22]]
    >>> features.notes_[0]
    "read as dates, in days: 'found'"
    """

    impute: Impute = "median"
    encode: Encode = "auto"
    scale: Scale = "standard"
    drop: Sequence[str] = ()
    keep: Sequence[str] = ()

    def fit(self, X: pd.DataFrame, y: Any = None) -> Self:
        """Learn the kinds of the columns and the parameters of the features.

        Parameters
        ----------
        X : pandas.DataFrame
            A row for each point. It is not changed.
        y : ignored

        Returns
        -------
        self

        Raises
        ------
        TypeError
            If `X` is no data frame.
        ValueError
            If a setting is not allowed.
        DataFormatError
            If columns of `drop` or `keep` are absent, no column can be used, a value is infinite,
            or there are missing values or categories which the settings refuse. It is a
            `ValueError`.

        Examples
        --------
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"id": range(40), "sold": ["no", "yes"] * 20})
        >>> TableFeatures().fit(frame).left_out_
        {'id': 'counts the rows'}
        """
        check_settings(self)
        frame = _checked(X)
        self.feature_names_in_ = np.array(list(frame.columns), dtype=object)
        self.n_features_in_ = frame.shape[1]
        _refuse_absent(frame, [*self.drop, *self.keep])
        self.columns_: list[Column] = []
        self.left_out_: dict[str, str] = {}
        work = _Work()
        for name in map(str, frame.columns):
            if name not in self.drop:
                self._add(name, frame[name], work)
        if work.refused:
            raise DataFormatError(_no_numbers(frame[work.refused]))
        if self.impute == "none":
            _refuse_missing(frame, self.columns_)
        reasons = listed([f"{name!r} ({why})" for name, why in self.left_out_.items()], most=20)
        if not self.columns_:
            raise DataFormatError(f"no column can be used: {reasons}; --keep COLUMN uses one")
        self.notes_ = work.sentences(self.impute)
        if self.left_out_:
            self.notes_.append(f"left out: {reasons}; --keep COLUMN uses one all the same")
        return self

    def _add(self, name: str, column: pd.Series[Any], work: _Work) -> None:
        """Learn the features of a column, or why it has none."""
        reading = reading_of(column)
        if reading != "words":
            numbers = read_numbers(column, reading)
            if not self._left_out(name, reading, numbers):
                self.columns_.append(self._number(name, column, reading, numbers, work))
            return
        words = words_of(column)
        if self._left_out(name, reading, words):
            return
        if self.encode == "none":
            work.refused.append(name)
            return
        category = self._category(name, words, work)
        if len(category.categories) > 1 or len(words) < ENOUGH_ROWS:
            self.columns_.append(category)
        else:
            self.left_out_[name] = "has rare texts only"

    def _left_out(self, name: str, reading: Reading, values: Any) -> bool:
        """Whether a column is left out, with the reason."""
        reason = reason_to_leave_out(name, reading, values)
        if reason is None or (name in self.keep and reason != EMPTY):
            return False
        self.left_out_[name] = reason
        return True

    def _number(
        self, name: str, column: pd.Series[Any], reading: Reading, values: FloatArray, work: _Work
    ) -> NumberColumn:
        """Learn the feature of a column of numbers, dates or times."""
        if np.isinf(values).any():
            raise DataFormatError(f"column {name!r} holds an infinite value")
        work.read(name, column, reading, values)
        missing = np.isnan(values)
        present = values[~missing]
        fill = None
        if self.impute != "none":
            fill = _typical(present, self.impute)
            values = np.where(missing, fill, values)
            if missing.any():
                work.replaced[name] = int(missing.sum())
        else:
            values = present
        centre, scale = (0.0, 1.0) if self.scale == "none" else _mean_and_deviation(values)
        return NumberColumn(name, reading, fill, centre, scale)

    def _category(self, name: str, words: pd.Series[Any], work: _Work) -> CategoryColumn:
        """Learn the features of a column of categories."""
        auto = self.encode == "auto"
        missing = int(words.isna().sum())
        if missing:
            work.absent[name] = missing
        counts = words.fillna(_ABSENT).value_counts()
        # One row is no group, in a table of any size.
        few = counts.index[counts < max(2.0, _RARE * len(words))]
        rare = list(few) if auto and len(few) > 1 and len(words) >= ENOUGH_ROWS else []
        if rare:
            n_rare = int(counts[rare].sum())
            work.pooled[name] = (len(rare), n_rare)
            counts = counts.drop(rare)
            counts[_OTHER] = counts.get(_OTHER, 0) + n_rare
        counts = counts.sort_index()
        shares = counts.to_numpy(dtype=float) / len(words)
        centres = shares
        binary = auto and len(counts) == 2
        if self.scale == "none":
            centres, scales = np.zeros_like(shares), np.ones_like(shares)
        elif binary or self.encode == "onehot":
            scales = np.sqrt(shares * (1.0 - shares))
        else:
            # As in factor analysis of mixed data, where all categories but one count as a number.
            scales = np.sqrt(shares * (len(counts) - 1))
        return CategoryColumn(
            name,
            [str(category) for category in counts.index],
            centres.tolist(),
            np.where(scales > 0.0, scales, 1.0).tolist(),
            rare=rare,
            binary=binary,
            refuse_missing=self.impute == "none",
        )

    def transform(self, X: pd.DataFrame) -> FloatArray:
        """Return the features of rows.

        Parameters
        ----------
        X : pandas.DataFrame
            It has the columns of the fit, in any order; others are ignored.

        Returns
        -------
        (n, d) float64 array

        Raises
        ------
        NotFittedError
            Before `fit`.
        TypeError
            If `X` is no data frame.
        DataFormatError
            If a column is absent, a value is infinite, or a value is missing where `impute` is
            "none".

        Warns
        -----
        UserWarning
            For categories that are not in the table of the fit, and values that cannot be read.

        Examples
        --------
        >>> import pandas as pd
        >>> features = TableFeatures().fit(pd.DataFrame({"height": [1.0, 3.0]}))
        >>> features.transform(pd.DataFrame({"height": [4.0, None]})).tolist()
        [[2.0], [0.0]]
        """
        points, sentences = self.points_of(X)
        for sentence in sentences:
            warn(sentence)
        return points

    def points_of(self, X: pd.DataFrame) -> tuple[FloatArray, list[str]]:
        """Return the features of rows, and sentences in place of warnings.

        Parameters
        ----------
        X : pandas.DataFrame

        Returns
        -------
        (n, d) float64 array
        list of str

        Raises
        ------
        NotFittedError, TypeError, DataFormatError
            See `transform`.

        Examples
        --------
        >>> import pandas as pd
        >>> features = TableFeatures().fit(pd.DataFrame({"leaf": ["oak", "oak", "elm", "ash"]}))
        >>> points, notes = features.points_of(pd.DataFrame({"leaf": ["fir"]}))
        >>> points.tolist(), notes
        ([[0.0, 0.0, 0.0]], ["'leaf': unknown categories are neutral, in 1 row: 'fir'"])
        """
        check_is_fitted(self)
        frame = _checked(X)
        absent = [repr(column.name) for column in self.columns_ if column.name not in frame]
        if absent:
            raise DataFormatError(f"the table lacks columns of the fit: {listed(absent)}")
        blocks, sentences = [], []
        for column in self.columns_:
            if isinstance(column, NumberColumn):
                block, lines = _number_features(column, frame[column.name])
            else:
                block, lines = _category_features(column, frame[column.name])
            blocks.append(block)
            sentences += lines
        return np.concatenate(blocks, axis=1), sentences

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[np.object_]:
        """Return the names of the features.

        Parameters
        ----------
        input_features : ignored

        Returns
        -------
        (d,) array of str

        Examples
        --------
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"leaf": ["oak", "elm", "ash"], "height": [9.0, 7.0, 8.0]})
        >>> TableFeatures().fit(frame).get_feature_names_out().tolist()
        ['leaf_ash', 'leaf_elm', 'leaf_oak', 'height']
        """
        check_is_fitted(self)
        return np.array(
            [name for column in self.columns_ for name in column.features], dtype=object
        )

    def to_json(self) -> str:
        """Return the settings and what was learnt as JSON; `from_json` reads it.

        Returns
        -------
        str

        Examples
        --------
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"height": [1.0, 3.0]})
        >>> features = TableFeatures.from_json(TableFeatures().fit(frame).to_json())
        >>> features.transform(frame).tolist()
        [[-1.0], [1.0]]
        """
        return msgspec.json.encode(self.stored()).decode()

    def stored(self) -> StoredFeatures:
        """Return the settings and what was learnt, as a part of a larger file.

        Returns
        -------
        StoredFeatures

        Examples
        --------
        >>> import pandas as pd
        >>> TableFeatures().fit(pd.DataFrame({"height": [1.0, 3.0]})).stored().columns[0].centre
        2.0
        """
        check_is_fitted(self)
        return StoredFeatures(
            list(self.feature_names_in_),
            self.columns_,
            self.left_out_,
            self.impute,
            self.encode,
            self.scale,
            list(self.drop),
            list(self.keep),
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the fitted transformer that `to_json` described.

        Parameters
        ----------
        text : str or bytes
            It is checked; nothing in it is executed.

        Returns
        -------
        TableFeatures

        Raises
        ------
        DataFormatError
            If the text is something else.

        Examples
        --------
        >>> try:
        ...     TableFeatures.from_json("{}")
        ... except DataFormatError as problem:
        ...     print(problem)
        no features of a table: Object missing required field `names`
        """
        try:
            return cls.from_stored(msgspec.json.decode(text, type=StoredFeatures))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
            raise DataFormatError(f"no features of a table: {problem}") from None

    @classmethod
    def from_stored(cls, stored: StoredFeatures) -> Self:
        """Return the fitted transformer with these settings and columns.

        Parameters
        ----------
        stored : StoredFeatures

        Returns
        -------
        TableFeatures

        Examples
        --------
        >>> column = NumberColumn("height", "number", 0.0, 2.0, 1.0)
        >>> features = TableFeatures.from_stored(StoredFeatures(["height"], [column]))
        >>> features.get_feature_names_out().tolist()
        ['height']
        """
        features = cls(
            impute=stored.impute,
            encode=stored.encode,
            scale=stored.scale,
            drop=tuple(stored.drop),
            keep=tuple(stored.keep),
        )
        features.feature_names_in_ = np.array(stored.names, dtype=object)
        features.n_features_in_ = len(stored.names)
        features.columns_, features.left_out_ = stored.columns, stored.left_out
        features.notes_ = []
        return features


def _checked(X: Any) -> pd.DataFrame:
    """Return a data frame whose columns have distinct names of type str."""
    import pandas as pd

    if not isinstance(X, pd.DataFrame):
        raise TypeError(f"X must be a pandas.DataFrame, got {type(X).__name__}")
    frame = X.set_axis(X.columns.astype(str), axis="columns")
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()][0]
        raise DataFormatError(f"two columns have the name {twice!r}; each needs a name of its own")
    if frame.empty:
        raise DataFormatError(f"the table holds no points: it has shape {frame.shape}")
    return frame


def _refuse_absent(frame: pd.DataFrame, names: Iterable[str]) -> None:
    for name in names:
        if name not in frame:
            hint = nearest(name, list(frame.columns))
            raise DataFormatError(f"the table has no column {name!r}{hint}")


class _Work:
    """What a fit does to columns, by name, until it is put into sentences."""

    def __init__(self) -> None:
        self.refused: list[str] = []
        self.readings: dict[Reading, list[str]] = {}
        self.open_order: list[str] = []
        self.unreadable: dict[str, tuple[int, str]] = {}
        self.replaced: dict[str, int] = {}
        self.absent: dict[str, int] = {}
        self.pooled: dict[str, tuple[int, int]] = {}

    def read(self, name: str, column: pd.Series[Any], reading: Reading, values: FloatArray) -> None:
        """Note how a column was read, and the values that could not be read."""
        from pandas.api.types import is_numeric_dtype

        if reading != "number" or not is_numeric_dtype(column):
            self.readings.setdefault(reading, []).append(name)
        if reading == "date" and order_is_open(column):
            self.open_order.append(name)
        lost = _unreadable(column, values)
        if len(lost):
            self.unreadable[name] = (len(lost), str(lost.iloc[0]))

    def sentences(self, impute: str) -> list[str]:
        """Return a sentence on each thing done."""

        def names(columns: Iterable[str]) -> str:
            return listed([repr(name) for name in columns], most=10)

        def numbers(columns: dict[str, int]) -> str:
            return listed([f"{name!r} ({n:,})" for name, n in columns.items()], most=10)

        lines = [f"{_READ_AS[reading]}: {names(at)}" for reading, at in self.readings.items()]
        for name in self.open_order:
            lines.append(
                f"{name!r}: no date shows whether the day or the month is first; 1/2/2024 is read "
                "as 2 January, 2024-02-01 as 1 February"
            )
        for name, (count, text) in self.unreadable.items():
            lines.append(
                f"{name!r}: {counted(count, 'value')} could not be read, such as {text!r}, and "
                f"{'counts' if count == 1 else 'count'} as missing"
            )
        if self.replaced:
            total = counted(sum(self.replaced.values()), "missing value")
            lines.append(
                f"{total} replaced by the {_WORDS[impute]} of the column: "
                f"{numbers(self.replaced)}; --impute none refuses missing values"
            )
        if self.absent:
            lines.append(f"missing values are a category of their own: {numbers(self.absent)}")
        if self.pooled:
            parts = [
                f"{name!r} ({categories:,} in {counted(rows, 'row')})"
                for name, (categories, rows) in self.pooled.items()
            ]
            lines.append(
                f"categories in fewer than {_RARE:.0%} of the rows count as one, {_OTHER!r}: "
                + listed(parts, most=10)
            )
        return lines


#: How columns are read, in words.
_READ_AS = {
    "number": "text read as numbers",
    "date": "read as dates, in days",
    "day-first date": "read as dates with the day first, in days",
    "compact date": "read as dates such as 20240131, in days",
    "time": "read as times, in hours",
}
_WORDS = {"median": "median", "mean": "mean", "most_frequent": "most frequent value"}


def _unreadable(column: pd.Series[Any], values: FloatArray) -> pd.Series[Any]:
    """Return the texts that are no numbers although they are not missing."""
    words = words_of(column[np.isnan(values)])
    return words.dropna()


def _typical(values: FloatArray, impute: str) -> float:
    """Return the replacement of missing values."""
    import pandas as pd

    if impute == "most_frequent":
        return float(pd.Series(values).mode().iloc[0])
    return float(np.median(values) if impute == "median" else np.mean(values))


def _mean_and_deviation(values: FloatArray) -> tuple[float, float]:
    """Return the mean and the standard deviation, or 1 for a constant column."""
    # Squares of values near the limits of doubles would overflow or vanish.
    unit = float(np.abs(values).max()) or 1.0
    mean, deviation = float(np.mean(values / unit)), float(np.std(values / unit))
    return mean * unit, deviation * unit if deviation > 10 * np.finfo(float).eps else 1.0


def _number_features(column: NumberColumn, values: pd.Series[Any]) -> tuple[FloatArray, list[str]]:
    """Return the feature of a column, and sentences on values that cannot be used."""
    import pandas as pd

    numbers = read_numbers(values, column.reading)
    if np.isinf(numbers).any():
        raise DataFormatError(f"column {column.name!r} holds an infinite value")
    missing, lines = np.isnan(numbers), []
    if missing.any():
        if column.fill is None:
            raise DataFormatError(_missing(pd.DataFrame({column.name: missing}, values.index)))
        lost = _unreadable(values, numbers)
        if len(lost):
            lines = [
                f"{column.name!r}: {counted(len(lost), 'value')} cannot be read, such as "
                f"{lost.iloc[0]!r}, and {'is' if len(lost) == 1 else 'are'} replaced"
            ]
        numbers = np.where(missing, column.fill, numbers)
    return ((numbers - column.centre) / column.scale)[:, np.newaxis], lines


def _category_features(
    column: CategoryColumn, values: pd.Series[Any]
) -> tuple[FloatArray, list[str]]:
    """Return the features of a column, and a sentence on unknown categories."""
    words = words_of(values)
    if column.refuse_missing:
        _refuse_missing(values.to_frame(column.name), [column])
    code = {category: at for at, category in enumerate(column.categories)}
    other = code.get(_OTHER, -1)
    known = words.fillna(_ABSENT).map(lambda word: code.get(word, other)).to_numpy(dtype=int)
    features = np.eye(len(code))[known] - np.array(column.centres)
    features[known < 0] = 0.0
    features /= np.array(column.scales)
    unknown = words[words.notna() & ~words.isin([*column.categories, *column.rare])]
    lines = []
    if len(unknown):
        how = "are neutral" if other < 0 else f"count as {_OTHER!r}"
        lines.append(
            f"{column.name!r}: unknown categories {how}, in {counted(len(unknown), 'row')}: "
            + listed([repr(word) for word in unknown.unique()])
        )
    n_missing = int(words.isna().sum())
    if n_missing and _ABSENT not in code and other < 0:
        lines.append(
            f"{column.name!r}: {counted(n_missing, 'missing value')} "
            f"{'is' if n_missing == 1 else 'are'} neutral, because none was missing in the fit"
        )
    return features[:, 1:] if column.binary else features, lines


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
        f"category with --encode auto, or leave it out with --drop {first}{as_name}"
    )


def _refuse_missing(frame: pd.DataFrame, columns: Sequence[Column]) -> None:
    """Refuse missing values and values that cannot be read, and name the remedies."""
    import pandas as pd

    mask = pd.DataFrame({c.name: _is_missing(frame[c.name], c) for c in columns}, frame.index)
    mask = mask.loc[:, mask.any()]
    if not mask.empty:
        raise DataFormatError(_missing(mask))


def _is_missing(values: pd.Series[Any], column: Column) -> Any:
    if isinstance(column, CategoryColumn):
        return words_of(values).isna().to_numpy()
    return np.isnan(read_numbers(values, column.reading))


def _missing(mask: pd.DataFrame) -> str:
    """Return the message on missing values, with the remedies."""
    count = int(mask.to_numpy().sum())
    first = mask.columns[0]
    rows = listed([str(row) for row in mask.index[mask.any(axis=1)]])
    return (
        f"{counted(count, 'value')} missing in {_quoted(mask)} (in rows {rows}): replace "
        f"them with --impute median, leave a column out with --drop {first}, or remove the rows"
    )
