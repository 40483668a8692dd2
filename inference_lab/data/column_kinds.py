"""Kinds of the columns of a table: numbers, dates, times of day, words, and columns to leave out.

A table from a spreadsheet or a database has dates and numbers as text, counters of its rows, and
texts that name a row. All thresholds are here. Recognition needs 20 rows: with fewer, any column of
distinct whole numbers looks like a counter.
"""

from __future__ import annotations

import functools
import math
import re
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from inference_lab.graph.arrays import FloatArray

if TYPE_CHECKING:
    import pandas as pd

#: How the values of a column are read. Dates in text have the year or month first, or the day.
Reading = Literal["number", "date", "day-first date", "compact date", "time", "words"]

#: The reason for a column without any value, which nothing can bring back.
EMPTY = "is empty"
#: Rows from which columns are left out because of their values.
ENOUGH_ROWS = 20
#: Share of rows with the same value from which a column is nearly constant.
_CONSTANT = 0.99
#: Share of missing numbers above which the replacements would outnumber the data.
_MOSTLY_MISSING = 0.5
#: Rows per distinct text below which texts name rows rather than groups of them.
_ROWS_PER_TEXT = 2.0
#: Share of the values of a column that must be numbers or dates, so that the others are missing.
_RECOGNISED = 0.9
#: Texts that mean a missing value, besides the ones that pandas knows in a CSV file.
_MISSING = frozenset(["", "?", "-", "--", ".", "n/a", "na", "nan", "null", "nat", "<na>", "#n/a"])

_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_CLOCK = r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:\s?[ap]m)?"
_DAYTIME = rf"(?:[t\s]+{_CLOCK}\s?(?:z|utc|[-+]\d{{2}}:?\d{{2}})?)?"
#: Dates in numbers, with the day or the month before the year.
_YEAR_LAST = re.compile(rf"(\d{{1,2}})([-/.])(\d{{1,2}})\2(?:\d{{4}}|\d{{2}}){_DAYTIME}")
_DATES = re.compile(
    rf"(?:\d{{4}}([-/.])\d{{1,2}}(?:\1\d{{1,2}})?|\d{{1,2}}[-\s]{_MONTH}[-\s,]+\d{{2,4}}"
    rf"|{_MONTH}\s\d{{1,2}},?\s\d{{4}}){_DAYTIME}"
)
_TIMES = re.compile(_CLOCK)
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d*)?")
#: Codes such as postcodes, whose leading zeros a number would lose.
_CODE = re.compile(r"0\d+")
_BOOLEANS = {"true": "1", "false": "0"}
_IDENTIFIERS = frozenset(["id", "ids", "uid", "uuid", "guid", "rownames", "unnamed: 0"])


def words_of(column: pd.Series[Any]) -> pd.Series[Any]:
    """Return the values of a column as text without outer blanks; missing values are None.

    Whole numbers have no decimals, so that a category is the same text in a column with missing
    values.
    """
    values = column.astype(object)
    words = {value: _word(value) for value in values.dropna().unique()}
    return values.map(words).where(values.notna(), None).astype(object)


def _word(value: Any) -> str | None:
    """Return a value as text, or None for a text that means a missing value."""
    whole = isinstance(value, (float, np.floating)) and float(value).is_integer()
    text = " ".join(str(int(value) if whole else value).split())
    return None if text.lower() in _MISSING else text


def reading_of(column: pd.Series[Any]) -> Reading:
    """Return how the values of a column are best read."""
    import pandas as pd
    from pandas.api.types import is_datetime64_any_dtype, is_numeric_dtype, is_timedelta64_dtype

    if isinstance(column.dtype, pd.CategoricalDtype):
        return "words"
    if is_datetime64_any_dtype(column):
        return "date"
    if is_timedelta64_dtype(column):
        return "time"
    if is_numeric_dtype(column):
        return "compact date" if _is_compact_date(column) else "number"
    return _reading_of_words(words_of(column).dropna())


def _is_compact_date(column: pd.Series[Any]) -> bool:
    """Whether all values are dates such as 20240131, of the years 1900 to 2099."""
    values = column.dropna().to_numpy(dtype=float)
    if values.size < ENOUGH_ROWS or not ((values >= 19000101) & (values <= 20991231)).all():
        return False
    return bool(np.isfinite(read_numbers(column.dropna(), "compact date")).all())


def _reading_of_words(words: pd.Series[Any]) -> Reading:
    """Return how most of the texts of a column can be read."""
    # Below, one odd value in ten has no majority to be an exception to.
    needed = _RECOGNISED if len(words) >= ENOUGH_ROWS else 1.0
    if words.empty:
        return "words"
    counts = words.value_counts()

    def share(mask: Any) -> float:
        return float(counts.to_numpy()[np.asarray(mask, dtype=bool)].sum() / len(words))

    texts = [str(text).lower() for text in counts.index]
    if share([_YEAR_LAST.fullmatch(text) or _DATES.fullmatch(text) for text in texts]) >= needed:
        parts = [match for text in texts if (match := _YEAR_LAST.fullmatch(text))]
        by_day = any(int(match[1]) > 12 for match in parts)
        by_month = any(int(match[3]) > 12 for match in parts)
        dotted = any(match[2] == "." for match in parts)
        # Where no number shows the order, 1.2.2024 has the day first, and 1/2/2024 the month.
        return "day-first date" if by_day or (dotted and not by_month) else "date"
    if share([_TIMES.fullmatch(text) for text in texts]) >= needed:
        return "time"
    if any(_CODE.fullmatch(text) for text in texts):
        return "words"
    return "number" if share(np.isfinite(_parsed(texts)) | _infinite(texts)) >= needed else "words"


def order_is_open(column: pd.Series[Any]) -> bool:
    """Whether texts such as 1/2/2024 do not show if the day or the month comes first."""
    texts = [str(text).lower() for text in words_of(column).dropna().unique()]
    parts = [match for text in texts if (match := _YEAR_LAST.fullmatch(text))]
    return bool(parts) and all(int(match[1]) <= 12 and int(match[3]) <= 12 for match in parts)


def _infinite(texts: list[str]) -> Any:
    return np.array([text.lstrip("+-") in ("inf", "infinity") for text in texts], dtype=bool)


def _parsed(texts: list[str]) -> FloatArray:
    """Return the numbers in texts, with signs of currencies, per cent and thousands; NaN else."""
    import pandas as pd

    plain = [re.sub(r"^([-+]?)\s?[$€£]\s?|\s?[%$€£]$", r"\1", text) for text in texts]
    plain = [text.replace(",", "") if _THOUSANDS.fullmatch(text) else text for text in plain]
    # Python's own notation, with underscores, is no number in a table.
    plain = ["" if "_" in text else _BOOLEANS.get(text, text) for text in plain]
    return np.asarray(pd.to_numeric(pd.Series(plain), errors="coerce"), dtype=np.float64)


def read_numbers(column: pd.Series[Any], reading: Reading) -> FloatArray:
    """Return the values of a column as numbers: dates in days since 1970, times in hours.

    Values that cannot be read are NaN.
    """
    import pandas as pd
    from pandas.api.types import is_datetime64_any_dtype, is_numeric_dtype, is_timedelta64_dtype

    if is_timedelta64_dtype(column):
        return np.asarray(column.dt.total_seconds() / 3600.0, dtype=np.float64)
    if is_datetime64_any_dtype(column):
        return _days(pd.to_datetime(pd.Series(column), utc=True))
    if reading == "number" and is_numeric_dtype(column):
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    parse = {"number": _parsed, "time": _hours, "compact date": _compact_days}.get(reading)
    if parse is None:
        parse = functools.partial(_days_of_texts, day_first=reading == "day-first date")
    words = words_of(column)
    texts = [str(text) for text in words.dropna().unique()]
    numbers = parse([text.lower() for text in texts])
    return words.map(dict(zip(texts, numbers, strict=True))).to_numpy(dtype=np.float64)


def _hours(texts: list[str]) -> FloatArray:
    """Return the hours of times of the day such as 13:45, 13:45:10 and 1:45 pm."""
    hours = []
    for text in texts:
        if not _TIMES.fullmatch(text):
            hours.append(np.nan)
            continue
        clock = re.sub(r"\s?[ap]m$", "", text)
        numbers = [float(part) for part in clock.split(":")]
        hour = numbers[0] % 12 + 12 * text.endswith("pm") if text.endswith("m") else numbers[0]
        hours.append(hour + sum(part / 60.0**power for power, part in enumerate(numbers[1:], 1)))
    return np.array(hours, dtype=np.float64)


def _compact_days(texts: list[str]) -> FloatArray:
    import pandas as pd

    return _days(pd.to_datetime(pd.Series(texts), format="%Y%m%d", errors="coerce", utc=True))


def _days_of_texts(texts: list[str], *, day_first: bool) -> FloatArray:
    """Return the days since 1970 of dates; NaN for other texts, such as numbers."""
    import pandas as pd

    dates = [text if _YEAR_LAST.fullmatch(text) or _DATES.fullmatch(text) else "" for text in texts]
    return _days(
        pd.to_datetime(
            pd.Series(dates, dtype=object),
            format="mixed",
            dayfirst=day_first,
            errors="coerce",
            utc=True,
        )
    )


def _days(dates: Any) -> FloatArray:
    import pandas as pd

    since = dates - pd.Timestamp("1970-01-01", tz="UTC")
    return np.asarray(since.dt.total_seconds() / 86400.0, dtype=np.float64)


def reason_to_leave_out(name: str, reading: Reading, values: Any) -> str | None:
    """Return why a column says nothing about groups of rows, or None.

    `values` are its numbers, or its words.
    """
    import pandas as pd

    values = pd.Series(np.asarray(values, dtype=object if reading == "words" else float))
    n, present = len(values), values.dropna()
    if present.empty:
        return EMPTY
    if n < ENOUGH_ROWS:
        return None
    counts = values.value_counts(dropna=False)
    if counts.iloc[0] >= _CONSTANT * n:
        share = counts.iloc[0] / n
        return "has one value" if share == 1.0 else f"has one value in {_share(share)} of the rows"
    if reading == "words":
        if present.nunique() * _ROWS_PER_TEXT > len(present):
            return f"has {present.nunique():,} different texts in {len(present):,} rows"
        return None
    missing = 1.0 - len(present) / n
    if missing > _MOSTLY_MISSING:
        return f"misses {_share(missing)} of its values"
    if reading != "number" or not (present % 1 == 0).all():
        return None
    distinct = present.is_unique
    if distinct and present.max() - present.min() == len(present) - 1:
        return "counts the rows"
    if _names_identifier(name) and present.nunique() > 2:
        return "is named like an identifier"
    return None


def _share(share: float) -> str:
    return f"{math.floor(1000.0 * share) / 10.0:g} %"


def _names_identifier(name: str) -> bool:
    """Whether a name such as customer_id, userId or ID names an identifier."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)
    ends = {part.lower() for part in (parts[:1] + parts[-1:])}
    return bool(ends & _IDENTIFIERS) or name.lower() in _IDENTIFIERS
