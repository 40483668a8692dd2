"""Objects as lines of JSON, with types and ranges checked when a line is read."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

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
_LEAST = 8


class RecordError(ValueError):
    """Error for a line that is not a record, or a record that cannot be stored, with the reason."""


class LaterRecordError(RecordError):
    """Error for a line that a later version of the library wrote."""


def jsonable(value: Any) -> Any:
    """Convert a value to one that survives a round trip through strict JSON."""
    left = _ROOM

    def plain(value: Any, depth: int) -> Any:
        nonlocal left
        try:
            found = _converted(value, depth, plain)
        except _TooMuchError:
            raise
        except Exception as problem:  # a foreign object may raise anything
            found = f"{_class_name(value)} that cannot be shown: {_class_name(problem)}"
        left -= _LEAST + (len(found) if isinstance(found, str) else 0)
        if left < 0:
            raise _TooMuchError
        return found

    try:
        return plain(value, 0)
    except _TooMuchError:
        return f"{_class_name(value)} of more than {_ROOM} characters"


def json_object(value: Any) -> dict[str, Any]:
    """Return `jsonable` of a mapping; wrap results of other types as ``{"value": ...}``."""
    found = jsonable(value)
    return found if isinstance(found, dict) else {"value": found}


class _TooMuchError(Exception):
    """Error for a value that takes more than `_ROOM` characters."""


def _converted(value: Any, depth: int, plain: Callable[[Any, int], Any]) -> Any:
    """Return a value in JSON's own types, its parts by `plain`."""
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
            number = float.__float__(value)
            return number if math.isfinite(number) else repr(number)
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
    # `from_json` for lines of a file. JSON has no infinities: numbers that are not finite are
    # stored as strings, and numeric fields convert them back.

    #: Version of the fields. Fields that are missing in lines of earlier versions have defaults;
    #: lines of later versions are refused.
    SCHEMA: ClassVar[int] = 1

    schema: int = 1

    def checked(self) -> Self:
        """Return the object after a round trip through JSON; raise `RecordError` if that fails."""
        try:
            return self.from_json(self.to_json())
        except (TypeError, ValueError, RecursionError) as problem:
            raise RecordError(str(problem)) from None

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as values of strict JSON."""
        return {name: _encoded(getattr(self, name)) for name in self.__struct_fields__}

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
        try:
            # Not strict, because numbers that are not finite are stored as strings.
            return msgspec.convert({**data, "schema": cls.SCHEMA}, cls, strict=False)
        except msgspec.ValidationError as problem:
            raise RecordError(str(problem)) from None


def _encoded(value: Any) -> Any:
    """Return the value of a field for strict JSON; texts stay unchanged."""
    if isinstance(value, tuple):
        return [_encoded(entry) for entry in value]
    return jsonable(value) if isinstance(value, Mapping | float | np.generic) else value
