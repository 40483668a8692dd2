"""Records: one run of one solver on one problem, and the file they are kept in.

A `Record` holds what is needed to redo a run and to judge it. A `RecordStore` is a file of JSON
lines to which a record is appended, flushed and synced the moment its run ends, so that a crash
or a power cut loses at most the runs in flight.

The lines are strict JSON, which has no infinities: numbers that are not finite are written as the
strings ``"inf"``, ``"-inf"`` and ``"nan"``. In the numeric fields of a record they are read back
as numbers; in the free-form mappings (`settings`, `diagnostics`, `problem_info`, `environment`)
they are such strings from the start, so that a record equals its copy from the file.
"""

from __future__ import annotations

import json
import math
import os
import platform
import sys
import types
import typing
import uuid
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from inference_lab.contract import TracePoint

if sys.platform != "win32":
    import fcntl

__all__ = [
    "SCHEMA",
    "TRACE_LIMIT",
    "Record",
    "RecordError",
    "RecordStore",
    "RecordWarning",
    "environment",
    "jsonable",
    "thin_trace",
]

#: Version of the record's fields; a store written under another version is refused.
SCHEMA = 1

#: A record keeps at most this many points of its run's history.
TRACE_LIMIT = 200

#: Arrays in free-form mappings are kept in full up to this many entries, else by shape only.
_ARRAY_LIMIT = 1000
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
    tuples, sets and arrays become lists (arrays beyond 1000 entries their shape and dtype); what
    JSON has no form for becomes its `repr`, shortened to 200 characters.

    Examples
    --------
    >>> jsonable({"bound": float("-inf"), 3: (1, 2.5)})
    {'bound': '-inf', '3': [1, 2.5]}
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return str(value)
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
        if isinstance(value, list | tuple):
            return [jsonable(v, _depth + 1) for v in value]
        if isinstance(value, set | frozenset):
            return [jsonable(v, _depth + 1) for v in sorted(value, key=repr)]
    return str(value)[:200] if isinstance(value, os.PathLike) else repr(value)[:200]


def thin_trace(trace: Iterable[TracePoint], limit: int = TRACE_LIMIT) -> tuple[TracePoint, ...]:
    """Return at most `limit` points of a history: the first, the last, and improvements.

    Points at which neither the best energy nor the bound moved go first; if that is not enough,
    the rest is taken at even steps.

    Examples
    --------
    >>> points = [TracePoint(t, 5.0, 5.0, 0.0) for t in range(1000)]
    >>> [p.seconds for p in thin_trace(points)]
    [0, 999]
    """
    points = list(trace)
    if len(points) <= limit:
        return tuple(points)
    kept = [points[0]]
    for before, point in pairwise(points[:-1]):
        if point.best_energy != before.best_energy or point.lower_bound != before.lower_bound:
            kept.append(point)
    kept.append(points[-1])
    if len(kept) > limit:
        steps = np.linspace(0, len(kept) - 1, limit).round().astype(int)
        kept = [kept[int(s)] for s in steps]
    return tuple(kept)


@cache
def environment() -> dict[str, Any]:
    """Return what a timing depends on: versions, platform, number of processors.

    Nothing is imported for it; ``threads`` is what the harness pins a run to.
    """
    import inference_lab

    def installed(package: str) -> str | None:
        try:
            return version(package)
        except PackageNotFoundError:
            return None

    return {
        "inference_lab": inference_lab.__version__,
        "python": platform.python_version(),
        **{name: installed(name) for name in ("numpy", "numba", "scipy")},
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpu_count": os.cpu_count(),
        "threads": 1,
    }


@dataclass(frozen=True, kw_only=True)
class Record:
    """One run of one solver on one problem: what was asked, what came out, and where it ran.

    Attributes
    ----------
    schema : int
        Version of these fields (`SCHEMA`).
    id : str
        Unique name of the run.
    problem, problem_hash : str
        Name (a spec string where there is one) and `FactorGraph.content_hash` of the problem.
    n_variables, n_edges, n_factors, n_labels : int
        Its sizes; `n_labels` is the largest cardinality.
    optimum, optimum_source
        The minimum energy where it is proved elsewhere, and where.
    truth_energy : float or None
        Energy of the ground truth.
    problem_info : mapping
        Further facts about the problem.
    solver, solver_name : str
        Spec string and registered name of the solver.
    settings : mapping
        All its settings, default or not.
    solver_version : int
    seed, time_limit, temperature
        What the run was given.
    status : str
        A value of `inference_lab.Status`.
    message, traceback : str
        The reason where the status needs one; the end of the traceback of a failed run.
    energy, claimed_energy, lower_bound, gap, iterations, log_partition, log_partition_kind
        As in `inference_lab.Solution`; ``energy`` is the independent evaluation.
    pairwise_f, nmi, ari, accuracy : float or None
        Agreement with the ground truth (`inference_lab.scoring`), where there is one.
    seconds, compile_seconds, setup_seconds : float
        The solver's own time; compilation of kernels within the run; building the problem.
    trace : tuple of TracePoint
        History of the run, thinned to `TRACE_LIMIT` points.
    diagnostics : mapping
        The solver's own figures.
    environment : mapping
        See `environment`.
    started, finished : str
        Times in UTC, ISO 8601.
    """

    schema: int = SCHEMA
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    problem: str
    problem_hash: str
    n_variables: int
    n_edges: int
    n_factors: int
    n_labels: int
    optimum: float | None = None
    optimum_source: str = ""
    truth_energy: float | None = None
    problem_info: Mapping[str, Any] = field(default_factory=dict)
    solver: str
    solver_name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    solver_version: int = 1
    seed: int | None = None
    time_limit: float | None = None
    temperature: float = 0.0
    status: str
    message: str = ""
    traceback: str = ""
    energy: float = math.inf
    claimed_energy: float | None = None
    lower_bound: float = -math.inf
    gap: float = math.inf
    pairwise_f: float | None = None
    nmi: float | None = None
    ari: float | None = None
    accuracy: float | None = None
    seconds: float = 0.0
    compile_seconds: float = 0.0
    setup_seconds: float = 0.0
    iterations: int = 0
    log_partition: float | None = None
    log_partition_kind: str | None = None
    trace: tuple[TracePoint, ...] = ()
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=environment)
    started: str = ""
    finished: str = ""

    def __post_init__(self) -> None:
        """Thin the trace and bring the free-form mappings into the form that JSON gives back."""
        object.__setattr__(self, "trace", thin_trace(self.trace))
        for name in ("problem_info", "settings", "diagnostics", "environment"):
            object.__setattr__(self, name, jsonable(dict(getattr(self, name))))

    @property
    def failed(self) -> bool:
        """Whether the run ended in an error."""
        return self.status == "error"

    @property
    def answered(self) -> bool:
        """Whether the run gave a labelling of finite energy, or the proof that there is none."""
        return math.isfinite(self.energy) or self.status == "infeasible"

    def as_dict(self) -> dict[str, Any]:
        """Return the record as strict JSON holds it."""
        return {f.name: jsonable(getattr(self, f.name)) for f in fields(self)}

    def to_json(self) -> str:
        """Return the record as one line of strict ASCII JSON, without the line's end.

        Examples
        --------
        >>> record = Record(problem="p", problem_hash="", n_variables=1, n_edges=0, n_factors=0,
        ...                 n_labels=2, solver="icm", solver_name="icm", status="converged")
        >>> Record.from_json(record.to_json()) == record
        True
        """
        return json.dumps(self.as_dict(), allow_nan=False)

    @classmethod
    def from_json(cls, line: str) -> Record:
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
        if data["schema"] != SCHEMA:
            raise RecordError(
                f"schema {data['schema']!r} cannot be read; this version reads schema {SCHEMA}"
            )
        hints = _hints()
        unknown = sorted(set(data) - set(hints))
        missing = sorted(set(hints) - set(data))
        if unknown:
            raise RecordError(f"unknown field {unknown[0]!r}")
        if missing:
            raise RecordError(f"field {missing[0]!r} is missing")
        return cls(**{name: _decode(data[name], hint, name) for name, hint in hints.items()})


@cache
def _hints() -> dict[str, Any]:
    return typing.get_type_hints(Record)


def _refuse(token: str) -> None:
    raise ValueError(f"{token} is not JSON")


def _decode(value: Any, hint: Any, name: str) -> Any:
    """Check one field against its type, and read numbers that JSON has no form for."""
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
        if isinstance(value, list) and all(isinstance(p, list) and len(p) == 4 for p in value):
            return tuple(TracePoint(*(_decode(v, float, name) for v in p)) for p in value)
        expected = "a list of [seconds, energy, best_energy, lower_bound]"
    else:
        if isinstance(value, dict):
            return value
        expected = "an object"
    raise RecordError(f"field {name!r} is {json.dumps(value)[:60]}; {expected} is expected")


class RecordStore:
    """A file of records, one JSON line each, that is only ever appended to.

    Parameters
    ----------
    path : str or path
        The file; it and its folder are made by the first `append`, or by `prepare`.

    Guarantees: a record that `append` has returned from is on the disk; several processes may
    append to one file (where the system has file locks); a line that was cut off by a crash is
    recognised, left out with a `RecordWarning`, and replaced by the next record.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def __repr__(self) -> str:
        """Return the constructor call."""
        return f"RecordStore({str(self.path)!r})"

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

    def append(self, record: Record) -> None:
        """Write a record to the end of the file and wait until it is on the disk.

        Raises
        ------
        OSError
            If it cannot be written; the file is left as it was.
        RecordError
            If the file ends in something that is not a record.
        """
        line = record.to_json().encode("ascii") + b"\n"
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

    def read(self) -> list[Record]:
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

    def __iter__(self) -> Iterator[Record]:
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

    def _parse(self, line: bytes, number: int) -> Record:
        try:
            return Record.from_json(line.decode("utf-8"))
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
            stacklevel=4,
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
