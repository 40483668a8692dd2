"""Objects as lines of JSON, with types and ranges checked when a line is read."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar, Self, get_args

import msgspec
import numpy as np

#: Largest arrays and lists in free-form mappings, in entries, that are kept in full; of larger
#: ones only the shape is kept. Longest texts, in characters.
_ARRAY_LIMIT = 1000
_TEXT_LIMIT = 100_000
#: Depth of free-form mappings, limited because a mapping may contain itself.
_DEPTH_LIMIT = 8
#: Bits of the largest integers: few programs read larger ones, and Python writes up to 4300 digits.
_BITS_LIMIT = 1024
#: Characters of a value in total, limited because nested short lists may be large in total; and the
#: minimum number of characters counted for each part.
_ROOM = 1_000_000
_MIN_CHARACTERS = 8


class RecordError(ValueError):
    """Error for a line that is not a record, or a record that cannot be stored, with the reason."""


class LaterRecordError(RecordError):
    """Error for a line that a later version of the library wrote."""


def jsonable(value: Any, *, text: bool = False) -> Any:
    """Convert a value to one that survives a round trip through strict JSON.

    JSON has no infinities. Numbers that are not finite become None, as in a column of numbers, or
    with `text` the words of a spec ("inf"), because a setting of None is another one.
    """
    n_remaining = _ROOM

    def plain(value: Any, depth: int) -> Any:
        nonlocal n_remaining
        try:
            result = _converted(value, depth, plain)
            if isinstance(result, float) and not math.isfinite(result):
                result = repr(result) if text else None
        except _TooMuchError:
            raise
        except Exception as problem:  # a foreign object may raise anything
            result = f"{_class_name(value)} that cannot be shown: {_class_name(problem)}"
        n_remaining -= _MIN_CHARACTERS + (len(result) if isinstance(result, str) else 0)
        if n_remaining < 0:
            raise _TooMuchError
        return result

    try:
        return plain(value, 0)
    except _TooMuchError:
        return f"{_class_name(value)} of more than {_ROOM} characters"


def json_object(value: Any, *, text: bool = False) -> dict[str, Any]:
    """Return `jsonable` of a mapping; wrap results of other types as ``{"value": ...}``."""
    result = jsonable(value, text=text)
    return result if isinstance(result, dict) else {"value": result}


class _TooMuchError(Exception):
    """Error for a value that takes more than `_ROOM` characters."""


def _converted(value: Any, depth: int, plain: Callable[[Any, int], Any]) -> Any:
    """Return a value in JSON's own types or a float that is not finite, its parts by `plain`."""
    if isinstance(value, np.ndarray):
        large = value.size > _ARRAY_LIMIT
        shape = {"shape": list(value.shape), "dtype": str(value.dtype)}
        value = shape if large else value.tolist()
    elif isinstance(value, np.generic):
        value = value.item()
    match value:
        case None | bool():
            return value
        case str():
            return clean_text(value)
        case int():
            whole = int.__int__(value)
            bits = whole.bit_length()
            return whole if bits <= _BITS_LIMIT else f"an integer of {bits} bits"
        case float():
            return float.__float__(value)
        case Mapping() | list() | tuple() | set() | frozenset() if depth == _DEPTH_LIMIT:
            return f"{_class_name(value)} of {len(value)}, nested too deeply"
        case Mapping():
            return {_key(k): plain(entry, depth + 1) for k, entry in value.items()}
        case list() | tuple() | set() | frozenset() if len(value) > _ARRAY_LIMIT:
            return {"length": len(value)}
        case list() | tuple():
            return [plain(entry, depth + 1) for entry in value]
        case set() | frozenset():
            return [plain(entry, depth + 1) for entry in sorted(value, key=repr)]
    shown = str(value) if isinstance(value, os.PathLike) else repr(value)
    return clean_text(str.__str__(shown)[:200])


def _key(key: Any) -> str:
    """Return the key of an entry as text."""
    try:
        return clean_text(key if type(key) is str else str(key)[:200])
    except Exception as problem:
        return f"{_class_name(key)} that cannot be shown: {_class_name(problem)}"


def _class_name(value: Any) -> str:
    return clean_text(str(type.__dict__["__name__"].__get__(type(value))))


def clean_text(text: str) -> str:
    r"""Return a text that can be encoded: truncated, with lone surrogates as escapes."""
    text = str.__str__(text)
    if len(text) > _TEXT_LIMIT:
        text = f"{text[:_TEXT_LIMIT]}..."
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


class JsonLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of objects that are stored as lines of JSON, with ``schema`` as first field."""

    # Annotations declare types and ranges. The constructor does not check them; `checked` does, and
    # `from_json` for lines of a file. JSON has no infinities, and a text in a number's place would
    # make a column of texts: a number that is not finite is null. Null is the field's default (no
    # energy: +inf; no bound: -inf); any other value stands, as a text, in the object `_OTHERS` of
    # the line, by the field. Lines of earlier versions have texts in the numbers' places.

    #: Version of the fields. Fields that are missing in lines of earlier versions have defaults;
    #: lines of later versions are refused.
    SCHEMA: ClassVar[int] = 1

    #: Fields of settings, in which None is a value: numbers that are not finite are texts there.
    SETTINGS: ClassVar[tuple[str, ...]] = ()
    #: Mappings of numbers, in which earlier versions have texts for those that are not finite.
    NUMBERS: ClassVar[tuple[str, ...]] = ()
    #: The meaning of null in tuples of numbers, by the name of the entry.
    NULLS: ClassVar[Mapping[str, float]] = {}

    schema: int = 1

    def checked(self) -> Self:
        """Return the object after a round trip through JSON; raise `RecordError` if that fails."""
        try:
            return self.from_json(self.to_json())
        except (TypeError, ValueError, RecursionError) as problem:
            raise RecordError(str(problem)) from None

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as values of strict JSON."""
        others: dict[str, str] = {}
        nulls = _nulls(type(self))
        values = {
            name: _encoded(name, getattr(self, name), nulls, others)
            if name not in self.SETTINGS
            else jsonable(getattr(self, name), text=True)
            for name in self.__struct_fields__
        }
        return {**values, _OTHERS: others} if others else values

    def to_json(self) -> str:
        """Return the object as one line of strict ASCII JSON, without the line's end."""
        return json.dumps(self.as_dict(), allow_nan=False, default=msgspec.to_builtins)

    @classmethod
    def from_json(cls, line: str | bytes) -> Self:
        """Read an object from a line of JSON."""
        try:
            data = msgspec.json.decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
            raise RecordError(f"not a line of JSON: {problem}") from None
        if not isinstance(data, dict) or "schema" not in data:
            raise RecordError("not a record: a JSON object with the field 'schema' is expected")
        schema = data["schema"]
        if type(schema) is not int or schema > cls.SCHEMA:
            kind = LaterRecordError if type(schema) is int else RecordError
            raise kind(
                f"schema {schema!r} cannot be read; this version reads schema {cls.SCHEMA} and "
                "earlier ones"
            )
        if schema == cls.SCHEMA and (missing := set(cls.__struct_fields__) - data.keys()):
            raise RecordError(f"Object missing required field `{min(missing)}`")
        _restore(data, _nulls(cls))
        if schema < cls.SCHEMA:
            for name in cls.NUMBERS:
                if isinstance(numbers := data.get(name), dict):
                    data[name] = {
                        key: float(entry) if entry in _NOT_FINITE else entry
                        for key, entry in numbers.items()
                    }
        try:
            # Not strict, because earlier versions store numbers that are not finite as texts.
            return msgspec.convert({**data, "schema": cls.SCHEMA}, cls, strict=False)
        except msgspec.ValidationError as problem:
            raise RecordError(str(problem)) from None


#: The object of a line that holds the numbers which are neither finite nor what null stands for.
_OTHERS = "not_finite"
#: The texts of such numbers.
_NOT_FINITE = ("inf", "-inf", "nan")


@cache
def _nulls(kind: type[JsonLine]) -> dict[str, float | tuple[float, ...]]:
    """Return the meaning of null in fields of numbers, and in those of tuples of numbers."""
    nulls: dict[str, float | tuple[float, ...]] = {}
    for field in msgspec.structs.fields(kind):
        entry = next(
            (argument for argument in get_args(field.type) if hasattr(argument, "_fields")), None
        )
        if isinstance(field.default, float):
            nulls[field.encode_name] = field.default
        elif entry is not None:
            nulls[field.encode_name] = tuple(kind.NULLS.get(n, math.nan) for n in entry._fields)
    return nulls


def _encoded(
    place: str, value: Any, nulls: Mapping[str, Any], others: dict[str, str], null: Any = None
) -> Any:
    """Return a value for strict JSON; texts stay unchanged.

    Infinities other than `null` are added to `others` by their place.
    """
    if isinstance(value, tuple):
        return [
            [
                _encoded(f"{place}.{at}.{column}", number, {}, others, meaning)
                for column, (number, meaning) in enumerate(zip(entry, nulls[place], strict=True))
            ]
            if isinstance(entry, tuple) and place in nulls
            else _encoded(f"{place}.{at}", entry, {}, others)
            for at, entry in enumerate(value)
        ]
    if isinstance(value, Mapping):
        for key, entry in value.items():
            if isinstance(entry, float) and math.isinf(entry):
                others[f"{place}.{_key(key)}"] = repr(float.__float__(entry))
        return jsonable(value)
    if not isinstance(value, float | np.generic):
        return value
    number = value.item() if isinstance(value, np.generic) else float.__float__(value)
    result = jsonable(number)
    null = nulls.get(place, null)
    if result is None and isinstance(number, float) and not _alike(number, null):
        others[place] = repr(number)
    return result


def _alike(number: float, null: float | None) -> bool:
    """Return whether null stands for a number that is not finite."""
    return null is not None and (number == null or (math.isnan(number) and math.isnan(null)))


def _restore(data: dict[str, Any], nulls: Mapping[str, Any]) -> None:
    """Put numbers that are not finite into the places of nulls."""
    others = data.pop(_OTHERS, {})
    if not isinstance(others, dict):
        raise RecordError(f"the field {_OTHERS!r} must be an object")
    for place, text in others.items():
        try:
            container, key = _place(data, place)
            null = container[key] is None
        except (LookupError, TypeError, ValueError):
            null = False
        if not null or text not in _NOT_FINITE:
            raise RecordError(f"the field {_OTHERS!r} must name nulls, got {place!r}: {text!r}")
        container[key] = float(text)
    for name, null_value in nulls.items():
        if isinstance(null_value, float) and name in data and data[name] is None:
            data[name] = null_value
        elif isinstance(null_value, tuple) and isinstance(data.get(name), list):
            for entry in data[name]:
                if isinstance(entry, list) and len(entry) == len(null_value):
                    entry[:] = [
                        n if v is None else v for v, n in zip(entry, null_value, strict=True)
                    ]


def _place(data: dict[str, Any], place: str) -> tuple[Any, Any]:
    """Return the container and the key of a place: ``gap``, ``scores.ari`` or ``trace.0.3``."""
    name, dot, rest = place.partition(".")
    if not dot:
        return data, name
    if isinstance(data[name], dict):
        return data[name], rest
    row, _, column = rest.partition(".")
    return data[name][int(row)], int(column)
