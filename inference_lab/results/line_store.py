"""Stores of records: files of JSON lines that survive crashes, plain or packed by gzip or xz.

In a packed store each call of `LineStore.extend` is a member of its own, so it grows at its end as
a plain one does: a crash costs the last member at most, and git keeps the new members only.
``gzip -9n runs.jsonl`` or ``xz -9 runs.jsonl`` packs a store, ``gunzip`` or ``unxz`` unpacks it;
pandas reads all three.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Generic, TypeVar

from inference_lab.results import packed
from inference_lab.results.files import alone, open_locked, write_whole
from inference_lab.results.json_lines import JsonLine, RecordError

if sys.platform != "win32":
    import fcntl

__all__ = ["LineStore", "RecordWarning"]

_START = b'{"schema": '
_SCHEMA = re.compile(rb'\{"schema": (\d{1,9})\b')

#: Of so many lines that are no records it is said why.
_NAMED = 3


class RecordWarning(UserWarning):
    """Lines of a store are left out, or somebody else is writing to it."""


_L = TypeVar("_L", bound=JsonLine)


class LineStore(Generic[_L]):
    """A file of objects, one JSON line each, that is only ever appended to.

    Parameters
    ----------
    path : str or path
        The file; it and its folder are made by the first `append`, or by `prepare`. It is packed
        if its name ends in ``.gz`` or ``.xz``; where there is no ``runs.jsonl`` but a
        ``runs.jsonl.gz`` or a ``runs.jsonl.xz``, that is meant.
    kind : type
        The class of the objects, a `JsonLine`.

    Attributes
    ----------
    path : path
        The file that holds the records.
    remarks : list of str
        What was left out when the store was last read or prepared, each a sentence.

    Guarantees: what `append` has returned from is on the disk and can be read back; several
    processes may append to one file (where the system has file locks). A line that was cut off by
    a crash is recognised, left out, and replaced by the next record; any other line that is no
    record is left out, and set aside by `prepare` in a file beside it, as it is. Both are told by
    a `RecordWarning`. A packed file that is damaged otherwise is refused with a `RecordError`, and
    so is a store that is there in two forms.
    """

    def __init__(self, path: str | os.PathLike[str], kind: type[_L]) -> None:
        self.path = Path(path)
        if not os.path.exists(self.path) and (others := self._other_forms()):
            self.path = others[0]
        self.kind = kind
        #: What a packed file was after the last `extend`: then nobody else has changed it.
        self._left: tuple[int, int, int] | None = None
        self.remarks: list[str] = []

    def __repr__(self) -> str:
        """Return the constructor call."""
        return f"{type(self).__name__}({str(self.path)!r})"

    @property
    def _is_packed(self) -> bool:
        return self.path.suffix in packed.SUFFIXES

    @property
    def _plain_path(self) -> Path:
        return self.path.with_suffix("") if self._is_packed else self.path

    def _other_forms(self) -> list[Path]:
        """Return the files that are there and hold the same store packed otherwise, or plain."""
        forms = (Path(f"{self._plain_path}{suffix}") for suffix in ("", *packed.SUFFIXES))
        return [path for path in forms if path != self.path and os.path.exists(path)]

    def beside(self, suffix: str) -> Path:
        """Return a file that belongs to the store, such as ``runs.lock``, packed or not."""
        return self._plain_path.with_suffix(suffix)

    @property
    def rejected(self) -> Path:
        """The file beside it that lines are set aside in: ``runs.rejected.jsonl``."""
        return self.beside(f".rejected{self._plain_path.suffix}")

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
            If the file is something else than a store: it holds no record, and nothing like one;
            or is packed and damaged.
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
        with self._open()[0] as stream:
            for line in stream:
                if line not in lines:
                    kept.append(line)
                elif (whole := line.rstrip(b"\n") + b"\n") not in there:
                    new.append(whole)
        with self.rejected.open("ab") as stream:
            stream.writelines(new)
            stream.flush()
            os.fsync(stream.fileno())
        write_whole(self.path, self._packed(b"".join(kept)), synced=True)

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

        with alone(self.beside(".lock"), share, say):
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
        lines = b"".join(record.to_json().encode("ascii") + b"\n" for record in records)
        if not lines:
            return
        with self._naming(), self._locked() as handle:
            size, first = self._end_last_line(handle)
            content = self._packed(first + lines)
            try:
                written = 0
                while written < len(content):
                    written += os.write(handle, content[written:])
                os.fsync(handle)
            except BaseException as problem:
                # Ctrl-C while waiting for the disk is no reason to lose a line that is whole.
                whole = os.fstat(handle).st_size == size + len(content)
                if not whole or isinstance(problem, OSError):
                    os.ftruncate(handle, size)
                raise
            self._left = _identity(handle)

    def read(self) -> list[_L]:
        """Return all records, in the order in which they were written.

        A line that is not a record is left out with a `RecordWarning`.

        Raises
        ------
        OSError
            If the file cannot be read.
        RecordError
            If it is packed and damaged.
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
        """Refuse a store that is there twice, and let errors of the system name the file."""
        if os.path.exists(self.path) and (others := self._other_forms()):
            raise RecordError(
                f"{self.path} and {others[0].name} are both there; move one of them to "
                "another folder (inference-lab merge puts the records of both into one)"
            )
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

    # ------------------------------------------------------------------ plain and packed

    def _packed(self, content: bytes) -> bytes:
        """Return lines as the file holds them."""
        return packed.pack(content, self.path.suffix) if self._is_packed and content else content

    def _unpack(self) -> packed.Unpacked:
        """Return what a packed file holds."""
        try:
            found = packed.unpack(self.path.read_bytes(), self.path.suffix)
        except ValueError as problem:
            raise RecordError(f"{self.path}: {problem}") from None
        if not found.content and not _begins_a_record(found.rest):
            raise RecordError(f"{self.path}: not records that were cut off while they were written")
        return found

    def _open(self) -> tuple[IO[bytes], bool]:
        """Return the lines of the file, and whether its last member was cut off and is left out."""
        if not self._is_packed:
            return self.path.open("rb"), False
        found = self._unpack()
        return io.BytesIO(found.content), found.size < found.of

    def _end_last_line(self, handle: int) -> tuple[int, bytes]:
        """Drop what a crash cut off.

        Returns
        -------
        int
            Bytes of the file.
        bytes
            What has to be written first, so that the last line is ended.
        """
        size = os.fstat(handle).st_size
        if size == 0:
            return 0, b""
        if self._is_packed:
            if self._left == _identity(handle):
                return size, b""
            found = self._unpack()
            whole = found.size
            lines = io.BytesIO(found.content).readlines()
        else:
            os.lseek(handle, size - 1, os.SEEK_SET)
            if os.read(handle, 1) == b"\n":
                return size, b""
            lines = _lines_of(self.path)
            whole = size - (len(lines.pop()) if _is_cut_off(lines[-1]) else 0)
        if whole < size:
            warnings.warn(
                f"{self.path}: the last line was cut off while it was written; it is removed",
                RecordWarning,
                stacklevel=5,
            )
            os.ftruncate(handle, whole)
        if not lines or lines[-1].endswith(b"\n"):
            return whole, b""
        try:
            self._parse(lines[-1], len(lines))
        except RecordError:
            if not any(map(self._is_like_ours, lines)):
                raise
        return whole, b"\n"


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
        number = 0
        stream, cut = self.store._open()
        with stream:
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
        if cut:
            self.cut_off = number + 1

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


def _identity(handle: int) -> tuple[int, int, int]:
    """Return what tells whether a file is another one, or was changed."""
    found = os.fstat(handle)
    return found.st_ino, found.st_size, found.st_mtime_ns


def _begins_a_record(text: bytes) -> bool:
    return text.startswith(_START) or _START.startswith(text)


def _is_cut_off(line: bytes) -> bool:
    """Whether a line without its end is the beginning of a record, or zeros left by a crash."""
    text = line.rstrip(b"\0")
    if not text:
        return True
    if not _begins_a_record(text):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return True
    # A beginning of an object is never an object, so this one is whole.
    return len(text) < len(line)
