"""Objects as lines of JSON, checked when they are read.

The lines are strict JSON, which has no infinities: numbers that are not finite are written as the
strings ``"inf"``, ``"-inf"`` and ``"nan"``. In numeric fields they are read back as numbers; in
free-form mappings they are such strings from the start, so that an object equals its copy from the
file.
"""

from __future__ import annotations

import json
import math
import os
import types
import typing
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import MISSING, Field, fields
from functools import cache
from typing import Any, ClassVar, Self

import numpy as np

__all__ = [
    "JsonLine",
    "RecordError",
    "clean_text",
    "json_object",
    "jsonable",
]

#: Arrays and lists in free-form mappings are kept in full up to this many entries, else by shape
#: only; texts up to so many characters.
_ARRAY_LIMIT = 1000
_TEXT_LIMIT = 100_000
#: Free-form mappings are followed to this depth, so that one that contains itself ends.
_DEPTH_LIMIT = 8
#: Hardly another program reads integers beyond, and Python itself writes none of 4300 digits.
_BITS_LIMIT = 1024
#: Characters that one value may take in all, since lists of lists may be short and without end; and
#: those that each of its parts counts for at least.
_ROOM = 1_000_000
_LEAST = 8


class RecordError(ValueError):
    """A line of a store is not a record, or a record cannot be a line; the message says why."""


def jsonable(value: Any) -> Any:
    """Turn a value into one that strict JSON can hold and gives back unchanged.

    Numbers that are not finite become ``"inf"``, ``"-inf"`` or ``"nan"``; keys become strings;
    tuples, sets and arrays become lists (beyond 1000 entries, or nested too deeply, their length,
    or shape and dtype); halves of characters become escapes; integers of more than 1024 bits are
    told by their size; what JSON has no form for becomes its `repr`, shortened to 200 characters.
    Of a value that takes more than a million characters only that is said. Nothing that a value
    does when it is looked at gets out of here.

    Examples
    --------
    >>> jsonable({"bound": float("-inf"), 3: (1, 2.5), "huge": 2**2000})
    {'bound': '-inf', '3': [1, 2.5], 'huge': 'an integer of 2001 bits'}
    """
    try:
        return _plain(value, 0, _Room())
    except _TooMuchError:
        return f"{_class_name(value)} of more than {_ROOM} characters"


def json_object(value: Any) -> dict[str, Any]:
    """Return `jsonable` of a mapping, as the entry ``value`` where it becomes something else."""
    found = jsonable(value)
    return found if isinstance(found, dict) else {"value": found}


class _TooMuchError(Exception):
    """A value takes more characters than there is room for."""


class _Room:
    """What is left of the characters that a value may take."""

    def __init__(self) -> None:
        self.left = _ROOM

    def take(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise _TooMuchError


def _plain(value: Any, depth: int, room: _Room) -> Any:
    """Do `jsonable`. What it returns takes no more room, and is what it makes of itself."""
    room.take(_LEAST)
    try:
        found = _simple(value)
        if found is None and value is not None:
            found = _parts(value, depth, room)
    except _TooMuchError:
        raise
    except Exception as problem:  # it may do anything when it is looked at
        found = f"{_class_name(value)} that cannot be shown: {_class_name(problem)}"
    if type(found) is str:
        room.take(len(found))
    return found


def _simple(value: Any) -> Any:
    """Return what JSON has a form for, as one of its own types, else None."""
    kind = type(value)
    if kind is bool or value is None:
        return value
    # What JSON is read as comes first: most values are that.
    if kind is float and math.isfinite(value):
        return value
    if kind is dict or kind is list:
        return None
    if issubclass(kind, np.generic):
        value = value.item()
        kind = type(value)
        if kind is bool:
            return value
    if issubclass(kind, str):
        return clean_text(value)
    if issubclass(kind, int):
        value = int.__int__(value)
        bits = value.bit_length()
        return value if bits <= _BITS_LIMIT else f"an integer of {bits} bits"
    if issubclass(kind, float):
        value = float.__float__(value)
        return value if math.isfinite(value) else repr(value)
    return None


def _parts(value: Any, depth: int, room: _Room) -> Any:
    """Return what consists of others, or else is only told of."""
    if isinstance(value, np.ndarray):
        if value.size > _ARRAY_LIMIT:
            told = {"shape": list(value.shape), "dtype": str(value.dtype)}
            return _plain(told, depth, room)
        return _plain(value.tolist(), depth, room)
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        if depth == _DEPTH_LIMIT:
            return f"{_class_name(value)} of {len(value)}, nested too deeply"
        if isinstance(value, Mapping):
            found = {}
            for key, entry in value.items():
                name = clean_text(key) if type(key) is str else _key(key)
                room.take(len(name))
                found[name] = _plain(entry, depth + 1, room)
            return found
        if len(value) > _ARRAY_LIMIT:
            return _plain({"length": len(value)}, depth, room)
        if isinstance(value, set | frozenset):
            value = sorted(value, key=repr)
        return [_plain(entry, depth + 1, room) for entry in value]
    shown = str(value) if isinstance(value, os.PathLike) else repr(value)
    return clean_text(str.__str__(shown)[:200])


def _key(key: Any) -> str:
    try:
        return clean_text(str(key))[:200]
    except Exception as problem:
        return f"{_class_name(key)} that cannot be shown: {_class_name(problem)}"


def _class_name(value: Any) -> str:
    return clean_text(str(type.__dict__["__name__"].__get__(type(value))))


def clean_text(text: str) -> str:
    r"""Return a text that every file can hold: not too long, halves of characters as escapes.

    Examples
    --------
    >>> clean_text("caf\udce9")
    'caf\\udce9'
    """
    text = str.__str__(text)
    if len(text) > _TEXT_LIMIT:
        text = f"{text[:_TEXT_LIMIT]}..."
    return text if _is_text(text) else text.encode("utf-8", "backslashreplace").decode("utf-8")


def _is_text(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


class JsonLine:
    """Base of frozen dataclasses that are kept as lines of JSON, with ``schema`` as first field."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    #: Version of the fields; lines written under a version that is not known are refused.
    SCHEMA: ClassVar[int] = 1
    #: Earlier versions, which only lack fields that have a default.
    OLDER: ClassVar[tuple[int, ...]] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the record as strict JSON holds it.

        Returns
        -------
        dict
            Field to value, each as `jsonable` makes it.

        Examples
        --------
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True, kw_only=True)
        ... class Gap(JsonLine):
        ...     schema: int = 1
        ...     value: float
        >>> Gap(value=math.inf).as_dict()
        {'schema': 1, 'value': 'inf'}
        """
        return {f.name: jsonable(getattr(self, f.name)) for f in fields(self)}

    def to_json(self) -> str:
        """Return the record as one line of strict ASCII JSON, without the line's end.

        Returns
        -------
        str

        Raises
        ------
        RecordError
            If a field holds what could not be read back; the message names it.

        Examples
        --------
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True, kw_only=True)
        ... class Gap(JsonLine):
        ...     schema: int = 1
        ...     value: float
        >>> Gap(value=math.inf).to_json()
        '{"schema": 1, "value": "inf"}'
        """
        data = self.as_dict()
        self._from_dict(dict(data))
        return json.dumps(data, allow_nan=False)

    @classmethod
    def from_json(cls, line: str) -> Self:
        """Read a record from a line of JSON.

        Parameters
        ----------
        line : str

        Returns
        -------
        Self

        Raises
        ------
        RecordError
            If the line is not JSON, not of this schema, or a field is missing, unknown or of the
            wrong type; or if `check` refuses it.

        Examples
        --------
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True, kw_only=True)
        ... class Gap(JsonLine):
        ...     schema: int = 1
        ...     value: float
        >>> Gap.from_json('{"schema": 1, "value": "inf"}').value
        inf
        >>> Gap.from_json('{"schema": 1, "value": true}')
        Traceback (most recent call last):
        ...
        inference_lab.results.json_lines.RecordError: field 'value' is true; a number is expected
        """
        try:
            data = json.loads(line, parse_constant=_refuse)
        except (ValueError, RecursionError) as problem:
            raise RecordError(f"not a line of JSON: {problem}") from None
        return cls._from_dict(data)

    @classmethod
    def _from_dict(cls, data: Any) -> Self:
        if not isinstance(data, dict) or "schema" not in data:
            raise RecordError("not a record: a JSON object with the field 'schema' is expected")
        if type(data["schema"]) is int and data["schema"] in cls.OLDER:
            absent = {f.name for f in fields(cls) if not _required(f)}
            data["schema"] = cls.SCHEMA
        else:
            absent = set()
        if type(data["schema"]) is not int or data["schema"] != cls.SCHEMA:
            raise RecordError(
                f"schema {data['schema']!r} cannot be read; this version reads schema {cls.SCHEMA}"
            )
        hints = cls._hints()
        unknown = sorted(set(data) - set(hints))
        missing = sorted(set(hints) - set(data) - absent)
        if unknown:
            raise RecordError(f"unknown field {unknown[0]!r}")
        if missing:
            raise RecordError(f"field {missing[0]!r} is missing")
        record = cls(
            **{
                name: None if optional and data[name] is None else _decode(data[name], hint, name)
                for name, (hint, optional) in hints.items()
                if name in data
            }
        )
        record.check()
        return record

    def check(self) -> None:
        """Refuse what the types of the fields allow and their meaning does not.

        Called by `from_json` and `to_json`; nothing is refused unless a class says so.

        Raises
        ------
        RecordError

        Examples
        --------
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True, kw_only=True)
        ... class Gap(JsonLine):
        ...     schema: int = 1
        ...     value: float
        ...     def check(self):
        ...         if self.value < 0:
        ...             raise RecordError(f"field 'value' is {self.value:g}; gaps are not negative")
        >>> Gap(value=-1.0).to_json()
        Traceback (most recent call last):
        ...
        inference_lab.results.json_lines.RecordError: field 'value' is -1; gaps are not negative
        """

    @classmethod
    @cache
    def _hints(cls) -> dict[str, tuple[Any, bool]]:
        """Return the type of each field, and whether it may be None instead."""
        # Names of fields only: what a class says about itself besides is no part of a line.
        hints = typing.get_type_hints(cls)
        return {f.name: _without_none(hints[f.name]) for f in fields(cls)}


def _without_none(hint: Any) -> tuple[Any, bool]:
    optional = isinstance(hint, types.UnionType)
    if optional:
        (hint,) = (option for option in typing.get_args(hint) if option is not type(None))
    return dict if typing.get_origin(hint) is Mapping else hint, optional


def _required(entry: Field[Any]) -> bool:
    return entry.default is MISSING and entry.default_factory is MISSING


def _refuse(token: str) -> None:
    raise ValueError(f"{token} is not JSON")


def _decode(value: Any, hint: Any, name: str) -> Any:
    """Check one field against its type, and read numbers that JSON has no form for."""
    if type(value) is hint and (value.isascii() if hint is str else hint is not int):
        return value
    if hint is float:
        if value in ("inf", "-inf", "nan"):
            return float(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            with suppress(OverflowError):
                return float(value)
        expected = "a number"
    elif hint is int:
        if isinstance(value, int) and not isinstance(value, bool):
            if value.bit_length() <= _BITS_LIMIT:
                return value
            raise RecordError(f"field {name!r} is {jsonable(value)}; at most 1024 can be read")
        expected = "an integer"
    elif hint is str:
        if isinstance(value, str):
            if _is_text(value):
                return value
            raise RecordError(f"field {name!r} holds half a character (a lone surrogate)")
        expected = "a string"
    elif typing.get_origin(hint) is tuple:
        point = typing.get_args(hint)[0]
        if isinstance(value, list) and all(isinstance(p, list) and len(p) == 4 for p in value):
            return tuple(
                point(*[v if type(v) is float else _decode(v, float, name) for v in p])
                for p in value
            )
        expected = "a list of [seconds, energy, best_energy, lower_bound]"
    else:
        if isinstance(value, dict):
            return value
        expected = "an object"
    raise RecordError(f"field {name!r} is {json.dumps(value)[:60]}; {expected} is expected")
