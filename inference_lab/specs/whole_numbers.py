"""Whole numbers in arguments, of any type that holds one without loss."""

from __future__ import annotations

import math
import numbers
import operator
from decimal import Decimal


def as_whole(value: object) -> int | None:
    """Return the whole number that a value holds, None if it holds none.

    Integers of any library are whole, and so are floats without a fraction, because limits are
    written as ``3e9`` and tables with missing values hold floats. Truth values and texts are not.
    """
    if getattr(value, "ndim", None) == 0:
        if getattr(value, "dtype").kind in "mM":  # noqa: B009  # durations have an index
            return None
        value = getattr(value, "item")()  # noqa: B009
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        pass
    if not isinstance(value, numbers.Real | Decimal):
        return None
    try:
        number = operator.index(math.trunc(value))
    except (ArithmeticError, ValueError):  # infinity and NaN
        return None
    return number if number == value else None


def check_count(value: object, *, name: str, smallest: int, largest: int | None = None) -> int:
    """Read a whole number and check its range.

    Raises
    ------
    TypeError
        If the value is not a whole number.
    ValueError
        If it is out of range.
    """
    number = as_whole(value)
    if number is None:
        raise TypeError(f"{name} = {value!r} is not an integer")
    if number < smallest or (largest is not None and number > largest):
        upper = "" if largest is None else f" and at most {largest}"
        raise ValueError(f"{name} = {number} is not allowed; at least {smallest}{upper} is needed")
    return number
