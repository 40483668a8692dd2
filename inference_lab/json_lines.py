"""Files of JSON lines that survive crashes: one object a line, appended, flushed and synced.

The lines are strict JSON, which has no infinities: numbers that are not finite are written as the
strings ``"inf"``, ``"-inf"`` and ``"nan"``. In numeric fields they are read back as numbers; in
free-form mappings they are such strings from the start, so that an object equals its copy from the
file.
"""

from __future__ import annotations

import json
import math
import os
import sys
import types
import typing
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import MISSING, Field, fields
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np

if sys.platform != "win32":
    import fcntl

__all__ = ["JsonLine", "LineStore", "RecordError", "RecordWarning", "jsonable"]

#: Arrays and lists in free-form mappings are kept in full up to this many entries, else by shape
#: only; texts up to so many characters.
_ARRAY_LIMIT = 1000
_TEXT_LIMIT = 100_000
#: Free-form mappings are followed to this depth, so that one that contains itself ends.
_DEPTH_LIMIT = 8

_START = b'{"schema": '


class RecordError(ValueError):
    """A line of a store is not a record; the message names the file and the line."""


class RecordWarning(UserWarning):
    """The last line of a store was cut off while it was written, and is left out."""


def jsonable(value: Any, _depth: int = 0) -> Any:
    """Turn a value into one that strict JSON can hold and gives back unchanged.

    Numbers that are not finite become ``"inf"``, ``"-inf"`` or ``"nan"``; keys become strings;
    tuples, sets and arrays become lists (beyond 1000 entries their length, or shape and dtype);
    what JSON has no form for becomes its `repr`, shortened to 200 characters.

    Examples
    --------
    >>> jsonable({"bound": float("-inf"), 3: (1, 2.5)})
    {'bound': '-inf', '3': [1, 2.5]}
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return str(value) if len(value) <= _TEXT_LIMIT else f"{value[:_TEXT_LIMIT]}..."
    if isinstance(value, np.generic):
        value = value.item()
        if isinstance(value, bool | int | str):
            return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if _depth < _DEPTH_LIMIT:
        if isinstance(value, np.ndarray):
            if value.size > _ARRAY_LIMIT:
                return {"shape": list(value.shape), "dtype": str(value.dtype)}
            return jsonable(value.tolist(), _depth)
        if isinstance(value, Mapping):
            return {str(k): jsonable(v, _depth + 1) for k, v in value.items()}
        if isinstance(value, list | tuple | set | frozenset) and len(value) > _ARRAY_LIMIT:
            return {"length": len(value)}
        if isinstance(value, list | tuple):
            return [jsonable(v, _depth + 1) for v in value]
        if isinstance(value, set | frozenset):
            return [jsonable(v, _depth + 1) for v in sorted(value, key=repr)]
    return str(value)[:200] if isinstance(value, os.PathLike) else repr(value)[:200]


class JsonLine:
    """Base of frozen dataclasses that are kept as lines of JSON, with ``schema`` as first field."""

    #: Version of the fields; lines written under a version that is not known are refused.
    SCHEMA: ClassVar[int] = 1
    #: Earlier versions, which only lack fields that have a default.
    OLDER: ClassVar[tuple[int, ...]] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the record as strict JSON holds it."""
        return {f.name: jsonable(getattr(self, f.name)) for f in fields(self)}  # type: ignore[arg-type]

    def to_json(self) -> str:
        """Return the record as one line of strict ASCII JSON, without the line's end."""
        return json.dumps(self.as_dict(), allow_nan=False)

    @classmethod
    def from_json(cls, line: str) -> Self:
        """Read a record from a line of JSON.

        Raises
        ------
        RecordError
            If the line is not JSON, not of this schema, or a field is missing, unknown or of the
            wrong type.
        """
        try:
            data = json.loads(line, parse_constant=_refuse)
        except (ValueError, RecursionError) as problem:
            raise RecordError(f"not a line of JSON: {problem}") from None
        if not isinstance(data, dict) or "schema" not in data:
            raise RecordError("not a record: a JSON object with the field 'schema' is expected")
        if type(data["schema"]) is int and data["schema"] in cls.OLDER:
            absent = {f.name for f in fields(cls) if not _required(f)}  # type: ignore[arg-type]
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
                name: _decode(data[name], hint, name)
                for name, hint in hints.items()
                if name in data
            }
        )
        record.check()
        return record

    def check(self) -> None:
        """Refuse what the types of the fields allow and their meaning does not.

        Raises
        ------
        RecordError
        """

    @classmethod
    @cache
    def _hints(cls) -> dict[str, Any]:
        # Names of fields only: what a class says about itself besides is no part of a line.
        hints = typing.get_type_hints(cls)
        return {f.name: hints[f.name] for f in fields(cls)}  # type: ignore[arg-type]


_L = TypeVar("_L", bound=JsonLine)


def _required(entry: Field[Any]) -> bool:
    return entry.default is MISSING and entry.default_factory is MISSING


def _refuse(token: str) -> None:
    raise ValueError(f"{token} is not JSON")


def _decode(value: Any, hint: Any, name: str) -> Any:
    """Check one field against its type, and read numbers that JSON has no form for."""
    if type(value) is hint:
        return value
    if isinstance(hint, types.UnionType):
        if value is None:
            return None
        (hint,) = (option for option in typing.get_args(hint) if option is not type(None))
    if hint is float:
        if value in ("inf", "-inf", "nan"):
            return float(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            with suppress(OverflowError):
                return float(value)
        expected = "a number"
    elif hint is int:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        expected = "an integer"
    elif hint is str:
        if isinstance(value, str):
            return value
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


class LineStore(Generic[_L]):
    """A file of objects, one JSON line each, that is only ever appended to.

    Parameters
    ----------
    path : str or path
        The file; it and its folder are made by the first `append`, or by `prepare`.
    kind : type
        The class of the objects, a `JsonLine`.

    Guarantees: a record that `append` has returned from is on the disk; several processes may
    append to one file (where the system has file locks); a line that was cut off by a crash is
    recognised, left out with a `RecordWarning`, and replaced by the next record.
    """

    def __init__(self, path: str | os.PathLike[str], kind: type[_L]) -> None:
        self.path = Path(path)
        self.kind = kind

    def __repr__(self) -> str:
        """Return the constructor call."""
        return f"{type(self).__name__}({str(self.path)!r})"

    def prepare(self) -> None:
        """Make sure that records can be appended, so that this does not fail after a long run.

        Raises
        ------
        OSError
            If the file cannot be made or written.
        RecordError
            If the file exists and does not begin with a record.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._locked():
            with self.path.open("rb") as stream:
                first = stream.readline()
            if first.endswith(b"\n"):
                self._parse(first, 1)
            elif first and not _is_cut_off(first):
                self._parse(first, 1)

    def append(self, record: _L) -> None:
        """Write a record to the end of the file and wait until it is on the disk.

        Raises
        ------
        OSError
            If it cannot be written; the file is left as it was.
        RecordError
            If the file ends in something that is not a record.
        """
        self.extend([record])

    def extend(self, records: Iterable[_L]) -> None:
        """Write all records, or none, to the end of the file; see `append`."""
        line = b"".join(record.to_json().encode("ascii") + b"\n" for record in records)
        if not line:
            return
        with self._locked() as handle:
            size = self._end_last_line(handle)
            try:
                written = 0
                while written < len(line):
                    written += os.write(handle, line[written:])
                os.fsync(handle)
            except BaseException as problem:
                # Ctrl-C while waiting for the disk is no reason to lose a line that is whole.
                whole = os.fstat(handle).st_size == size + len(line)
                if not whole or isinstance(problem, OSError):
                    os.ftruncate(handle, size)
                raise

    def read(self) -> list[_L]:
        """Return all records, in the order in which they were written.

        Raises
        ------
        OSError
            If the file cannot be read.
        RecordError
            If a line is not a record; the message names it. A last line that was cut off while
            it was written is left out with a `RecordWarning` instead.
        """
        return list(self)

    def __iter__(self) -> Iterator[_L]:
        """Iterate over the records as in `read`."""
        with self.path.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                if not line.endswith(b"\n") and _is_cut_off(line):
                    warnings.warn(
                        f"{self.path}:{number}: the last line was cut off while it was written; "
                        "it is left out",
                        RecordWarning,
                        stacklevel=2,
                    )
                    return
                yield self._parse(line, number)

    def _parse(self, line: bytes, number: int) -> _L:
        try:
            return self.kind.from_json(line.decode("utf-8"))
        except (UnicodeDecodeError, RecordError) as problem:
            raise RecordError(f"{self.path}:{number}: {problem}") from None

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Open the file for appending, alone."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
        handle = os.open(self.path, flags, 0o666)
        try:
            if sys.platform != "win32":
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield handle
        finally:
            os.close(handle)

    def _end_last_line(self, handle: int) -> int:
        """Drop a line that a crash cut off, or end one that lacks its end; return the size."""
        size = os.fstat(handle).st_size
        if size == 0:
            return 0
        os.lseek(handle, size - 1, os.SEEK_SET)
        if os.read(handle, 1) == b"\n":
            return size
        with self.path.open("rb") as stream:
            *before, tail = stream.read().rsplit(b"\n", 1)
        if not _is_cut_off(tail):
            self._parse(tail, 1 + sum(part.count(b"\n") + 1 for part in before))
            os.write(handle, b"\n")
            return size + 1
        warnings.warn(
            f"{self.path}: the last line was cut off while it was written; it is removed",
            RecordWarning,
            stacklevel=5,
        )
        os.ftruncate(handle, size - len(tail))
        return size - len(tail)


def _is_cut_off(line: bytes) -> bool:
    """Whether a line without its end is the beginning of a record, or zeros left by a crash."""
    text = line.rstrip(b"\0")
    if not text:
        return True
    if not (text.startswith(_START) or _START.startswith(text)):
        return False
    try:
        json.loads(text)
    except ValueError:
        return True
    # A beginning of an object is never an object, so this one is whole.
    return len(text) < len(line)
