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
import re
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

from inference_lab.results.files import alone, open_locked, write_whole

if sys.platform != "win32":
    import fcntl

__all__ = [
    "JsonLine",
    "LineStore",
    "RecordError",
    "RecordWarning",
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

_START = b'{"schema": '
_SCHEMA = re.compile(rb'\{"schema": (\d{1,9})\b')

#: Of so many lines that are no records it is said why.
_NAMED = 3


class RecordError(ValueError):
    """A line of a store is not a record, or a record cannot be a line; the message says why."""


class RecordWarning(UserWarning):
    """Lines of a store are left out, or somebody else is writing to it."""


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

    #: Version of the fields; lines written under a version that is not known are refused.
    SCHEMA: ClassVar[int] = 1
    #: Earlier versions, which only lack fields that have a default.
    OLDER: ClassVar[tuple[int, ...]] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the record as strict JSON holds it."""
        return {f.name: jsonable(getattr(self, f.name)) for f in fields(self)}  # type: ignore[arg-type]

    def to_json(self) -> str:
        """Return the record as one line of strict ASCII JSON, without the line's end.

        Raises
        ------
        RecordError
            If a field holds what could not be read back; the message names it.
        """
        data = self.as_dict()
        self._from_dict(dict(data))
        return json.dumps(data, allow_nan=False)

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
        return cls._from_dict(data)

    @classmethod
    def _from_dict(cls, data: Any) -> Self:
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
    if type(value) is hint and hint is not str and hint is not int:
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


class LineStore(Generic[_L]):
    """A file of objects, one JSON line each, that is only ever appended to.

    Parameters
    ----------
    path : str or path
        The file; it and its folder are made by the first `append`, or by `prepare`.
    kind : type
        The class of the objects, a `JsonLine`.

    Attributes
    ----------
    remarks : list of str
        What was left out when the store was last read or prepared, each a sentence.

    Guarantees: what `append` has returned from is on the disk and can be read back; several
    processes may append to one file (where the system has file locks). A line that was cut off by
    a crash is recognised, left out, and replaced by the next record; any other line that is no
    record is left out, and set aside by `prepare` in a file beside it, as it is. Both are told by
    a `RecordWarning`.
    """

    def __init__(self, path: str | os.PathLike[str], kind: type[_L]) -> None:
        self.path = Path(path)
        self.kind = kind
        self.remarks: list[str] = []

    def __repr__(self) -> str:
        """Return the constructor call."""
        return f"{type(self).__name__}({str(self.path)!r})"

    @property
    def rejected(self) -> Path:
        """The file beside it that lines are set aside in: ``runs.rejected.jsonl``."""
        return self.path.with_suffix(f".rejected{self.path.suffix}")

    def prepare(self, *, ours: bool = False) -> list[_L]:
        """Make sure that records can be appended, so that this does not fail after a long run.

        Lines that are no records are moved to the file `rejected`; those of a later version stay.

        Parameters
        ----------
        ours : bool
            Whether the file is known to be a store, whatever it holds.

        Returns
        -------
        list
            All records that the file holds.

        Raises
        ------
        OSError
            If the file cannot be made or written.
        RecordError
            If the file is something else than a store: it holds no record, and nothing like one.
        """
        with self._naming(), self._locked():
            lines = _Lines(self)
            records = list(lines)
            if lines.bad and not (ours or records) and not any(map(self._is_like_ours, lines.bad)):
                raise RecordError(lines.reasons[0])
            moved = {line for line in lines.bad if not self._is_later(line)}
            if moved and sys.platform != "win32":  # there nobody may replace an open file
                self._set_aside(moved)
                lines = _Lines(self)
                records = list(lines)
        self._remark(lines)
        return records

    def _set_aside(self, lines: set[bytes]) -> None:
        """Move lines to the file beside, which has them before they leave."""
        there = set(_lines_of(self.rejected)) if self.rejected.exists() else set()
        kept: list[bytes] = []
        new: list[bytes] = []
        for line in _lines_of(self.path):
            if line not in lines:
                kept.append(line)
            elif (whole := line.rstrip(b"\n") + b"\n") not in there:
                new.append(whole)
        with self.rejected.open("ab") as stream:
            stream.writelines(new)
            stream.flush()
            os.fsync(stream.fileno())
        write_whole(self.path, b"".join(kept), synced=True)

    @contextmanager
    def alone(self, share: tuple[str, int] | None = None) -> Iterator[None]:
        """Have the store to this process: nobody else does `alone` what it is doing in the block.

        Waits, after a `RecordWarning`, until others have ended, however they end. Appending and
        reading need no such thing.

        Parameters
        ----------
        share : (str, int), optional
            Others with the same name and another number may go on at the same time.

        Raises
        ------
        OSError
            If the file that is locked, ``runs.lock`` beside ``runs.jsonl``, cannot be made.
        """

        def say() -> None:
            warnings.warn(
                f"{self.path}: somebody else is adding runs to it; this goes on when they have "
                "ended",
                RecordWarning,
                stacklevel=6,
            )

        with alone(self.path.with_suffix(".lock"), share, say):
            yield

    def append(self, record: _L) -> None:
        """Write a record to the end of the file and wait until it is on the disk.

        Raises
        ------
        OSError
            If it cannot be written; the file is left as it was.
        RecordError
            If a field of the record holds what could not be read back, or the file is something
            else than a store; it is left as it was.
        """
        self.extend([record])

    def extend(self, records: Iterable[_L]) -> None:
        """Write all records, or none, to the end of the file; see `append`."""
        line = b"".join(record.to_json().encode("ascii") + b"\n" for record in records)
        if not line:
            return
        with self._naming(), self._locked() as handle:
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

        A line that is not a record is left out with a `RecordWarning`.

        Raises
        ------
        OSError
            If the file cannot be read.
        """
        return list(self)

    def __iter__(self) -> Iterator[_L]:
        """Iterate over the records as in `read`."""
        lines = _Lines(self)
        with self._naming():
            yield from lines
        self._remark(lines)

    def _remark(self, lines: _Lines[_L]) -> None:
        """Note what was left out, and what earlier ones set aside, and warn of it."""
        self.remarks = lines.remarks()
        if self.rejected.exists():
            count = len(_lines_of(self.rejected))
            self.remarks.append(
                f"{self.path}: {_counted(count)} set aside in {self.rejected.name} before"
            )
        for remark in self.remarks:
            warnings.warn(remark, RecordWarning, stacklevel=3)

    def _parse(self, line: bytes, number: int) -> _L:
        try:
            return self.kind.from_json(line.decode("utf-8"))
        except (UnicodeDecodeError, RecordError) as problem:
            raise RecordError(f"{self.path}:{number}: {problem}") from None

    def _is_later(self, line: bytes) -> bool:
        """Whether a line says that a later version of the library wrote it."""
        found = _SCHEMA.match(line)
        return found is not None and int(found[1]) > self.kind.SCHEMA

    def _is_like_ours(self, line: bytes) -> bool:
        """Whether a line that is no record was one: it has half of the fields."""
        names = self.kind._hints()
        held = sum(f'"{name}"'.encode() in line for name in names)
        return 2 * held >= len(names) and not self._is_later(line)

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """Let errors of the system name the file."""
        try:
            yield
        except OSError as problem:
            if problem.filename is None:
                problem.filename = str(self.path)
            raise

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Open the file for appending, alone."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle = open_locked(self.path, fcntl.flock if sys.platform != "win32" else None)
        try:
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
        *before, tail = _lines_of(self.path)
        if not _is_cut_off(tail):
            try:
                self._parse(tail, len(before) + 1)
            except RecordError:
                if not any(map(self._is_like_ours, [*before, tail])):
                    raise
            os.write(handle, b"\n")
            return size + 1
        warnings.warn(
            f"{self.path}: the last line was cut off while it was written; it is removed",
            RecordWarning,
            stacklevel=5,
        )
        os.ftruncate(handle, size - len(tail))
        return size - len(tail)


class _Lines(Generic[_L]):
    """The records of a file of lines, and what else it holds, known after they were gone through.

    Attributes
    ----------
    bad : list of bytes
        The lines that are no records.
    reasons : list of str
        Why, of the first ones.
    cut_off : int
        Number of the last line if it was cut off while it was written, else 0.
    """

    def __init__(self, store: LineStore[_L]) -> None:
        self.store = store
        self.bad: list[bytes] = []
        self.reasons: list[str] = []
        self.cut_off = 0

    def __iter__(self) -> Iterator[_L]:
        with self.store.path.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                if not line.endswith(b"\n") and _is_cut_off(line):
                    self.cut_off = number
                    return
                try:
                    record = self.store._parse(line, number)
                except RecordError as problem:
                    self.bad.append(line)
                    if len(self.reasons) < _NAMED:
                        self.reasons.append(str(problem))
                else:
                    yield record

    def remarks(self) -> list[str]:
        """Return a sentence for each kind of line that was left out."""
        said = []
        if self.bad:
            more = "; ..." if len(self.bad) > len(self.reasons) else ""
            said.append(
                f"{self.store.path}: {_counted(len(self.bad))} left out: "
                f"{'; '.join(self.reasons)}{more}"
            )
        if self.cut_off:
            said.append(
                f"{self.store.path}:{self.cut_off}: the last line was cut off while it was "
                "written; it is left out"
            )
        return said


def _counted(count: int) -> str:
    if count == 1:
        return "1 line that is no record was"
    return f"{count} lines that are no records were"


def _lines_of(path: Path) -> list[bytes]:
    """Return the lines of a file, all with their ends but perhaps the last one."""
    with path.open("rb") as stream:
        return stream.readlines()


def _is_cut_off(line: bytes) -> bool:
    """Whether a line without its end is the beginning of a record, or zeros left by a crash."""
    text = line.rstrip(b"\0")
    if not text:
        return True
    if not (text.startswith(_START) or _START.startswith(text)):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return True
    # A beginning of an object is never an object, so this one is whole.
    return len(text) < len(line)
