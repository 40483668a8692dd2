"""Columns of a table in the units of its user, as a profile of clusters compares and shows them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from inference_lab.data.column_kinds import Reading, read_numbers, reading_of
from inference_lab.formatting import shortened
from inference_lab.graph.arrays import FloatArray

if TYPE_CHECKING:
    import pandas as pd

#: Largest number of categories of a column that is compared; others are free text or names.
_CATEGORIES = 30
#: Largest number of decimals that are written out.
_DECIMALS = 6
#: Characters of a text that are shown.
_WIDTH = 40
#: Text of a missing value.
MISSING_TEXT = "missing"


class Trait(NamedTuple):
    """A column of a table: numbers, dates as days, categories as codes, or texts without values.

    Missing values are NaN.
    """

    name: str
    kind: Literal["number", "date", "category", "text"]
    values: FloatArray
    categories: list[str]
    #: Steps to which limits of rules, and values of rows, are rounded.
    step: float = 1.0
    fine_step: float = 1.0
    #: The cells of a column of texts.
    cells: Any = None

    @property
    def compared(self) -> bool:
        """Whether clusters can differ in the values."""
        return self.kind != "text" and np.unique(self.values[~np.isnan(self.values)]).size > 1

    def shown(self, value: float, step: float | None = None) -> str:
        """Return a value as it is shown, to the digits of a step."""
        if math.isnan(value):
            return MISSING_TEXT
        if self.kind == "date":
            return str(np.datetime64("1970-01-01") + np.timedelta64(math.floor(value), "D"))
        if self.kind == "category":
            return self.categories[int(value)]
        decimals = max(0, -math.floor(math.log10(step or self.step) + 1e-9))
        return f"{value:z,.{decimals}f}" if decimals <= _DECIMALS else f"{value:.3g}"

    def cell(self, row: int) -> str:
        """Return the value of a row as it is shown."""
        if self.kind != "text":
            return self.shown(float(self.values[row]), self.fine_step)
        cell = self.cells[row]
        return MISSING_TEXT if cell is None or cell != cell else shortened(str(cell), _WIDTH)


def traits_of(table: pd.DataFrame) -> list[Trait]:
    """Return the columns of a table; a column that counts the rows is not compared."""
    return [_trait(str(name), table[name]) for name in table]


def _trait(name: str, column: pd.Series[Any]) -> Trait:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    numeric = is_numeric_dtype(column) and not is_bool_dtype(column)
    reading: Reading = "words" if is_bool_dtype(column) else reading_of(column)
    if reading in ("date", "day-first date", "compact date"):
        return Trait(name, "date", read_numbers(column, reading), [])
    if reading == "number" and column.nunique() > 2:
        values = read_numbers(column, reading)
        values = np.where(np.isinf(values), np.nan, values)
        if (np.diff(values) == 1).all():
            return Trait(name, "text", values, [], cells=column.to_numpy())
        step, unit = _step(values), _unit(values)
        return Trait(name, "number", values, [], max(unit, step), max(unit, step / 10.0))
    missing = column.isna().to_numpy()
    words = [f"{v:g}" if numeric else str(v) for v in column[~missing].tolist()]
    categories = sorted(set(words))
    if len(categories) > _CATEGORIES:
        nothing = np.full(len(missing), np.nan)
        return Trait(name, "text", nothing, [], cells=column.to_numpy(dtype=object))
    place = {word: at for at, word in enumerate(categories)}
    codes = np.full(len(missing), float(len(categories)))
    codes[~missing] = [place[word] for word in words]
    shown = [shortened(word, _WIDTH) for word in categories]
    return Trait(name, "category", codes, [*shown, MISSING_TEXT] if missing.any() else shown)


def _step(values: FloatArray) -> float:
    """Return a power of ten of at most a tenth of the deviation of values."""
    finite = values[np.isfinite(values)]
    deviation = float(finite.std()) if finite.size else 0.0
    return 10.0 ** math.floor(math.log10(deviation / 10.0)) if deviation > 0.0 else 1.0


def _unit(values: FloatArray) -> float:
    """Return the unit of values, a power of ten up to one, or zero if they have many digits."""
    present = values[~np.isnan(values)]
    for decimals in range(_DECIMALS):
        if (np.round(present, decimals) == present).all():
            return 10.0**-decimals
    return 0.0
