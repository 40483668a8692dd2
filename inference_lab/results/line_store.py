"""Stores of records: crash-safe files of JSON lines, each with an optional archive."""

from __future__ import annotations

import errno
import io
import json
import lzma
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeVar

from filelock import lock_descriptor

from inference_lab.formatting import warn
from inference_lab.results.atomic_files import write_whole
from inference_lab.results.json_lines import JsonLine, LaterRecordError, RecordError

#: Prefix of each line that a store writes.
_START = b'{"schema": '

#: Number of damaged lines that are reported with a reason.
_NAMED = 3

#: Suffix of archives.
_ARCHIVED = ".xz"


class RecordWarning(UserWarning):
    """Warning that lines are left out, a store was changed, or another process writes to it."""


_L = TypeVar("_L", bound=JsonLine)


class LineStore(Generic[_L]):
    """An append-only file of objects, one JSON line each."""

    # A record is on the disk when `append` returns. Several processes may append to one file. A
    # line that a crash cut off is left out, and replaced by the next record; any other damaged line
    # is left out with a `RecordWarning`.
    # An archive, made by `compress` or ``xz -9``, is read before the file.

    #: The class of the objects.
    kind: type[_L]

    def __init__(self, path: str | os.PathLike[str]) -> None:
        #: The file, made by the first `append` or `prepare`; an archive's name is accepted for it.
        self.path = Path(os.fspath(path).removesuffix(_ARCHIVED))
        self.archive = Path(f"{self.path}{_ARCHIVED}")
        #: Sentences on the lines left out when the store was last read or prepared.
        self.remarks: list[str] = []

    def __repr__(self) -> str:
        """Return the constructor call."""
        return f"{type(self).__name__}({str(self.path)!r})"

    def exists(self) -> bool:
        """Whether there is a file, or an archive."""
        return os.path.exists(self.path) or self.archive.is_file()

    def prepare(self) -> list[_L]:
        """Ensure that records can be appended, and return the existing records."""
        with self._locked():
            records, reasons, resembles = self._read()
            if reasons and not (records or resembles):
                raise RecordError(reasons[0])
        self._warn()
        return records

    def append(self, record: _L) -> None:
        """Write a record to the end of the file and wait until it is on the disk."""
        self.extend([record])

    def extend(self, records: Iterable[_L]) -> None:
        """Write all records, or none, to the end of the file; see `append`."""
        new = list(records)
        if not new:
            return
        with self._locked() as handle:
            size, first = self._end_last_line(handle)
            content = first + b"".join(record.to_json().encode("ascii") + b"\n" for record in new)
            try:
                written = 0
                while written < len(content):
                    written += os.write(handle, content[written:])
                os.fsync(handle)
            except BaseException as problem:
                # A complete line is kept if Ctrl-C interrupts the wait for the disk.
                whole = os.fstat(handle).st_size == size + len(content)
                if not whole or isinstance(problem, OSError):
                    os.ftruncate(handle, size)
                if isinstance(problem, OSError):
                    problem.filename = str(self.path)
                raise

    def discard(self, unwanted: Callable[[_L], bool]) -> int:
        """Remove records from the file and the archive; return their number.

        Lines that are no records stay.
        """
        number = 0
        with self._locked():
            for path in (self.archive, self.path):
                if not path.exists():
                    continue
                lines = list(_lines(path))
                remaining_lines = [line for line in lines if not self._holds(line, unwanted)]
                number += len(lines) - len(remaining_lines)
                if len(remaining_lines) < len(lines):
                    content = b"".join(remaining_lines)
                    packed = path.suffix == _ARCHIVED
                    write_whole(path, _packed(content) if packed else content, synced=True)
        return number

    def _holds(self, line: bytes, wanted: Callable[[_L], bool]) -> bool:
        """Whether a line is a record that a predicate accepts."""
        try:
            return wanted(self.kind.from_json(line))
        except RecordError:
            return False

    def compress(self) -> None:
        """Move all lines of the file into the archive."""
        with self._locked():
            paths = [path for path in (self.archive, self.path) if path.exists()]
            content = b"".join(line for path in paths for line in _lines(path))
            write_whole(self.archive, _packed(content), synced=True)
            self.path.unlink()

    def read(self) -> list[_L]:
        """Return all records, in the order in which they were written."""
        if not self.exists():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.path))
        records, _, _ = self._read()
        self._warn()
        return records

    def __iter__(self) -> Iterator[_L]:
        """Iterate over the records as in `read`."""
        return iter(self.read())

    def _read(self) -> tuple[list[_L], list[str], bool]:
        """Read all lines, and set `remarks`.

        Return the records, the reasons for lines that are none, and whether one of these lines
        begins like a record.
        """
        records: list[_L] = []
        reasons = []
        self.remarks = []
        cut_off = ""
        resembles = False
        for path in (self.archive, self.path):
            for number, line in enumerate(_lines(path) if path.exists() else (), start=1):
                if not line.endswith(b"\n") and _is_cut_off(line):
                    cut_off = f"{path}:{number}"
                    break
                try:
                    records.append(self.kind.from_json(line))
                except RecordError as problem:
                    reasons.append(f"{path}:{number}: {problem}")
                    later = isinstance(problem, LaterRecordError)
                    resembles |= not later and line.startswith(_START)
        if reasons:
            more = "; ..." if (count := len(reasons)) > _NAMED else ""
            lines = "1 line that is not a record was"
            if count > 1:
                lines = f"{count} lines that are not records were"
            shown = "; ".join(reasons[:_NAMED])
            self.remarks.append(f"{self.path}: {lines} left out: {shown}{more}")
        if cut_off:
            self.remarks.append(
                f"{cut_off}: the last line was cut off while it was written; it is left out"
            )
        return records, reasons, resembles

    def _warn(self) -> None:
        """Issue warnings about lines that were left out."""
        for remark in self.remarks:
            warn(remark, RecordWarning)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Open the file for reading and appending, create it if it is missing, and lock it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
            try:
                lock_descriptor(handle, poll_interval=0.002)
                # The previous holder of the lock may have replaced or removed the file.
                if _is_at(handle, self.path):
                    yield handle
                    return
            finally:
                os.close(handle)

    def _end_last_line(self, handle: int) -> tuple[int, bytes]:
        """Drop a line that a crash cut off."""
        size = os.fstat(handle).st_size
        if size == 0 or os.pread(handle, 1, size - 1) == b"\n":
            return size, b""
        lines = list(_lines(self.path))
        if _is_cut_off(lines[-1]):
            warn(
                f"{self.path}: the last line was cut off while it was written; it is removed",
                RecordWarning,
            )
            size -= len(lines[-1])
            os.ftruncate(handle, size)
            return size, b""
        try:
            self.kind.from_json(lines[-1])
        except RecordError as problem:
            if not any(line.startswith(_START) for line in lines):
                raise RecordError(f"{self.path}:{len(lines)}: {problem}") from None
        return size, b"\n"


def _is_at(handle: int, path: Path) -> bool:
    """Whether an open file is the file at a path."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _packed(content: bytes) -> bytes:
    """Compress the content of an archive."""
    return lzma.compress(content, preset=9 | lzma.PRESET_EXTREME)


def unpacked(path: Path) -> bytes:
    """Return the content of a compressed file."""
    from inference_lab.io._files import FormatError, read_bytes

    try:
        return read_bytes(path)
    except FormatError as problem:
        raise RecordError(str(problem)) from None


def _lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file or an archive with their ends; the last line may lack one."""
    if path.suffix == _ARCHIVED:
        yield from io.BytesIO(unpacked(path))
    else:
        with path.open("rb") as stream:
            yield from stream


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
    # A prefix of an object is never an object, so this one is complete.
    return len(text) < len(line)
