"""A vectorised tokeniser for white-space separated numbers, with positions for messages."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

import inference_lab.io._limits as _limits
from inference_lab.formatting import shortened
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.io._files import FormatError

_SPACE = np.zeros(256, dtype=bool)
_SPACE[list(b" \t\n\v\f\r")] = True
_TEXT = _SPACE.copy()
_TEXT[33:127] = True

#: A token.
WORD = re.compile(rb"[^ \t\n\v\f\r]+")
#: A decimal numeral: sign, digits with or without a point, exponent.
NUMERAL = re.compile(rb"([+-]?)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE]([+-]?[0-9]+))?")


#: The expected value in messages, or a function that formats it for one of several places.
Expected = str | Callable[[int], str]


def whole(
    values: FloatArray, low: IntArray | float, high: IntArray | float
) -> npt.NDArray[np.bool_]:
    """Return a mask of the values that are integers in ``low .. high - 1`` (not NaN)."""
    good: npt.NDArray[np.bool_] = (values >= low) & (values < high) & (values == np.floor(values))
    return good


def first_word(data: bytes, path: str, *allowed: str) -> re.Match[bytes]:
    """Match the first word of a file; raise if it is not an allowed one, in any case."""
    expected = " or ".join(allowed)
    match = WORD.search(data)
    if match is None:
        raise FormatError(f"{path}: the file is empty; expected {expected}")
    word = match.group().decode("ascii", "backslashreplace")
    if word.upper() not in allowed:
        line = data.count(b"\n", 0, match.start()) + 1
        got = repr(shortened(word, 40))
        raise FormatError(f"{path}, line {line}, token 1: expected {expected}, got {got}")
    return match


class Tokens:
    """The tokens of `plain_text`, and the values of the tokens from ``first`` on."""

    def __init__(self, data: bytes, path: str, first: int = 0, *, words: bool = False) -> None:
        self.data = data
        self.path = path
        self.first = first
        #: Whether tokens may be words; their values are NaN.
        self.words = words
        raw = np.frombuffer(data, dtype=np.uint8)
        text = _TEXT[raw]
        if not text.all():
            at = int(np.argmin(text))
            raise FormatError(
                f"{path}, line {self._line(at)}: byte {at} is 0x{data[at]:02x}; "
                "expected plain ASCII text"
            )
        solid = ~_SPACE[raw]
        before = np.concatenate([np.zeros(1, dtype=bool), solid[:-1]])
        self.starts: IntArray = np.flatnonzero(solid & ~before)
        self.values = self._numbers()

    def __len__(self) -> int:
        """Return the number of tokens."""
        return int(self.starts.size)

    def _line(self, offset: int) -> int:
        return self.data.count(b"\n", 0, offset) + 1

    def line(self, number: int) -> int:
        """Return the line number, from 1, of ``values[number]``."""
        return self._line(int(self.starts[number + self.first]))

    def lines(self) -> IntArray:
        """Return the line number, from 1, of each of the values."""
        ends = np.flatnonzero(np.frombuffer(self.data, dtype=np.uint8) == ord("\n"))
        return np.searchsorted(ends, self.starts[self.first :]) + 1

    def text(self, token: int) -> bytes:
        """Return the bytes of a token."""
        match = WORD.match(self.data, int(self.starts[token]))
        return match.group() if match else b""

    def shown(self, token: int) -> str:
        """Quote a token for a message, and shorten it if it is long."""
        return repr(shortened(self.text(token).decode("ascii"), 40))

    def error(self, number: int, message: str) -> FormatError:
        """Make the error for a fault at ``values[number]`` (or at the end)."""
        token = number + self.first
        if token < len(self):
            where = f"line {self.line(number)}, token {token + 1}"
        else:
            where = f"end of file after {len(self)} tokens"
        return FormatError(f"{self.path}, {where}: {message}")

    def _numbers(self) -> FloatArray:
        if len(self) <= self.first:
            return np.empty(0)
        begin = int(self.starts[self.first])
        tail = self.data[begin:]
        try:
            with warnings.catch_warnings():
                # Warnings are errors, because old numpy warns of text that new numpy refuses.
                warnings.simplefilter("error", DeprecationWarning)
                values: FloatArray = np.fromstring(tail, dtype=np.float64, sep=" ")
        except (ValueError, DeprecationWarning):
            values = np.empty(0)
        if values.size == len(self) - self.first:
            return values
        if not self.words:
            raise self._first_bad()
        texts = (self.text(token) for token in range(self.first, len(self)))
        return np.array([float(t) if NUMERAL.fullmatch(t) else math.nan for t in texts])

    def _first_bad(self) -> FormatError:
        number = next(
            (
                t - self.first
                for t in range(self.first, len(self))
                if not NUMERAL.fullmatch(self.text(t))
            ),
            len(self) - 1 - self.first,
        )
        shown = self.shown(number + self.first)
        return self.error(number, f"expected a number, got {shown}")

    def require(
        self, good: npt.NDArray[np.bool_], places: IntArray, expected: Expected, more: str = ""
    ) -> None:
        """Raise the error for the first of these places where `good` does not hold."""
        if not good.all():
            at = int(np.argmin(good))
            text = expected if isinstance(expected, str) else expected(at)
            shown = self.shown(int(places[at]) + self.first)
            raise self.error(int(places[at]), f"{text}{more}, got {shown}")

    def integers(
        self, places: IntArray, low: IntArray | float, high: IntArray | float, expected: Expected
    ) -> FloatArray:
        """Return the values at these places; raise unless integers in ``low .. high - 1``."""
        values = self.values[places]
        self.require(whole(values, low, high), places, expected)
        return values

    def scope(self, at: int, arity: int, n: int, shown: str) -> list[int]:
        """Return the variables of a scope from ``values[at]`` on; raise if one occurs twice."""
        allowed = f"0 to {n - 1}" if n else "but there are none"
        expected = f"{shown}: expected a variable of its scope, {allowed}"
        numbers = self.integers(at + np.arange(arity), 0, n, expected)
        scope: list[int] = numbers.astype(np.int64).tolist()
        seen: set[int] = set()
        for s, v in enumerate(scope):
            if v in seen:
                raise self.error(at + s, f"{shown} names variable {v} twice in its scope")
            seen.add(v)
        return scope

    def costs(self, places: IntArray, expected: Expected) -> FloatArray:
        """Return the values at these places; raise unless finite and of an allowed size."""
        values = self.values[places]
        allowed = f", a finite number of at most {_limits.MAX_COST:g}"
        self.require(np.abs(values) <= _limits.MAX_COST, places, expected, allowed)
        return values

    def check_end(self, at: int, after: str) -> None:
        """Raise if there are values from ``values[at]`` on."""
        end = int(self.values.size)
        if at < end:
            shown = self.shown(at + self.first)
            raise self.error(at, f"{end - at} surplus tokens after {after}, from {shown}")

    def integer(self, number: int, what: str, high: int | None = None, low: int = 0) -> int:
        """Return ``values[number]``; raise unless an integer from ``low`` to ``high``."""
        if number >= self.values.size:
            raise self.error(number, f"the file ends where {what} is expected")
        value = float(self.values[number])
        if not (value >= low and value.is_integer()):
            raise self.error(
                number,
                f"expected {what}, an integer >= {low}, got {self.shown(number + self.first)}",
            )
        if high is not None and value > high:
            raise self.error(
                number,
                f"{what} is {self.shown(number + self.first)}, but at most {high} fit into the "
                "rest of the file",
            )
        return int(value)
