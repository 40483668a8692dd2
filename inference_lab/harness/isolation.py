"""Calls in processes of their own, under limits: whatever happens there is told, and costs nothing.

`isolated` forks, so that the child has all that is loaded here, and waits. The child may crash,
loop, allocate without end, print, change its directory, or start processes: the call ends in time
with an `Ended` that says what happened, and nothing of the child is left.

Call it from a process without threads, such as a worker: a fork copies only the calling thread,
and locks that others hold stay locked for ever.
"""

from __future__ import annotations

import math
import mmap
import os
import pickle
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from select import select
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from inference_lab.harness.workers import end_with_parent, traceback_tail

if sys.platform != "win32":
    import resource

__all__ = ["Board", "End", "Ended", "can_isolate", "isolated", "undisturbed"]

#: Seconds between a request to end and the end by force.
_GRACE = 0.5
#: Seconds that one look at the child takes at most; the system has a limit of its own.
_LOOK = 3600.0
#: Bytes of output that are kept, the last ones.
_TAIL = 2000
#: Room for an answer is read in pieces of this size.
_PIECE = 1 << 16
#: Memory left to a child that ran out of it, to say so.
_RESERVE = 1 << 20


class End(StrEnum):
    """How a call in a process of its own ended."""

    #: The function returned; its value is there.
    RETURNED = "returned"
    #: The function raised.
    RAISED = "raised"
    #: It did not end in time, and was ended.
    TIMEOUT = "timeout"
    #: It asked for more memory than the limit allows.
    MEMORY = "memory"
    #: The process ended by a signal, or by itself, without an answer.
    CRASHED = "crash"


@dataclass(frozen=True)
class Ended:
    """What became of a call.

    Parameters
    ----------
    end : End
    value : object
        What the function returned.
    message : str
        One line that says what happened, empty if it returned.
    traceback : str
        The last lines of the traceback where it raised, else of what it wrote to standard error.
    exit_code : int or None
        Of the process; minus the signal where one ended it.
    cpu_seconds, peak_memory : float, int
        Of the process and those it waited for: user and system time, bytes resident at most.
    wall_seconds : float
        From its start to its end.
    output : str
        The last of what it wrote to standard output and error.
    """

    end: End
    value: Any = None
    message: str = ""
    traceback: str = ""
    exit_code: int | None = None
    cpu_seconds: float = 0.0
    peak_memory: int = 0
    wall_seconds: float = 0.0
    output: str = ""


def can_isolate() -> bool:
    """Whether this system can fork."""
    return hasattr(os, "fork") and sys.platform != "win32"


class Board:
    """Memory shared with a child, on which it leaves its best labelling so far.

    Parameters
    ----------
    size : int
        Number of labels.

    Notes
    -----
    A child may be killed at any moment: two copies take turns, and a number says which is whole.
    """

    _HEAD = struct.Struct("<qdd")
    #: Which copy counts, and the best bound.
    _START = struct.Struct("<qd")

    def __init__(self, size: int) -> None:
        self.size = size
        self._length = self._HEAD.size + 8 * size
        self._memory = mmap.mmap(-1, self._START.size + 2 * self._length)
        self._START.pack_into(self._memory, 0, 0, -math.inf)

    @property
    def bound(self) -> float:
        """The best lower bound that the child proved."""
        return float(struct.unpack_from("<d", self._memory, 8)[0])

    @bound.setter
    def bound(self, value: float) -> None:
        struct.pack_into("<d", self._memory, 8, value)

    def write(self, labels: npt.NDArray[np.int64], energy: float, seconds: float) -> None:
        """Leave a labelling, with its energy and when it was found."""
        count = struct.unpack_from("<q", self._memory)[0] + 1
        at = self._START.size + (count % 2) * self._length
        self._HEAD.pack_into(self._memory, at, count, energy, seconds)
        start = at + self._HEAD.size
        self._memory[start : start + 8 * self.size] = np.ascontiguousarray(
            labels, dtype=np.int64
        ).tobytes()
        # Only now is the copy announced; until then the one before counts.
        struct.pack_into("<q", self._memory, 0, count)

    def read(self) -> tuple[npt.NDArray[np.int64], float, float] | None:
        """Return labels, energy and seconds, or None if nothing was left."""
        count = struct.unpack_from("<q", self._memory)[0]
        if count == 0:
            return None
        at = self._START.size + (count % 2) * self._length
        _, energy, seconds = self._HEAD.unpack_from(self._memory, at)
        start = at + self._HEAD.size
        labels = np.frombuffer(self._memory[start : start + 8 * self.size], dtype=np.int64)
        return labels.copy(), energy, seconds

    def close(self) -> None:
        """Give the memory back."""
        self._memory.close()


def isolated(
    function: Callable[..., Any],
    *arguments: Any,
    wall_limit: float | None = None,
    memory_limit: int | None = None,
) -> Ended:
    """Call a function in a forked process of its own.

    Parameters
    ----------
    function, arguments
        What it returns must be picklable.
    wall_limit : float, optional
        Seconds after which the process group is asked to end, and half a second later is ended by
        force.
    memory_limit : int, optional
        Bytes of address space that the child may take on top of what this process has.

    Returns
    -------
    Ended

    Raises
    ------
    OSError
        If no process can be started.
    """
    with tempfile.TemporaryFile() as output:
        reading, writing = os.pipe()
        begin = time.perf_counter()
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            os.close(reading)
            _be_child(writing, output, function, arguments, memory_limit)
        os.close(writing)
        # Both sides, so that neither can be too late.
        with suppress(OSError):
            os.setpgid(child, child)
        try:
            answer, timed_out = _listen(reading, child, wall_limit)
        finally:
            os.close(reading)
            # Whoever the child left behind goes with it.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child, signal.SIGKILL)
            _, status, usage = os.wait4(child, 0)
        wall = time.perf_counter() - begin
        return replace(
            _ended(answer, timed_out, status, usage, _tail(output), wall_limit), wall_seconds=wall
        )


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let code run here that may print, change the directory, or fork, and leave no trace of it.

    For code that has been seen to end well in a process of its own.
    """
    process, folder = os.getpid(), os.getcwd()
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(stream) for stream in (1, 2)]
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        for stream in (1, 2):
            os.dup2(null, stream)
        with open(os.devnull, "w") as sink, redirect_stdout(sink), redirect_stderr(sink):
            yield
    finally:
        if os.getpid() != process:
            # A copy that the code made of this process; there is nothing for it to do.
            os._exit(0)
        os.chdir(folder)
        for stream, copy in zip((1, 2), kept, strict=True):
            os.dup2(copy, stream)
            os.close(copy)
        os.close(null)


def _be_child(
    writing: int,
    output: IO[bytes],
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    memory_limit: int | None,
) -> None:
    """Be the child: call, answer, end. Never returns."""
    code = 70
    process = os.getpid()
    try:
        os.setpgid(0, 0)
        end_with_parent()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for stream in (1, 2):
            os.dup2(output.fileno(), stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        # Notebooks and tests put streams of their own in place of those of the system.
        sys.stdin = open(0, closefd=False)  # for as long as the process lives
        sys.stdout = open(1, "w", closefd=False)
        sys.stderr = open(2, "w", closefd=False)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        reserve = bytearray(_RESERVE)
        try:
            if memory_limit is not None:
                total = _address_space() + memory_limit
                resource.setrlimit(resource.RLIMIT_AS, (total, total))
            answer = pickle.dumps((End.RETURNED, function(*arguments), "", ""))
        except MemoryError as problem:
            del reserve
            answer = pickle.dumps((End.MEMORY, None, _said(problem), traceback_tail(problem)))
        except BaseException as problem:
            answer = pickle.dumps((End.RAISED, None, _said(problem), traceback_tail(problem)))
        if os.getpid() != process:
            # A copy that the function made of its process; the original answers.
            return
        for spoken in (sys.stdout, sys.stderr):
            # The function may have closed it, or put anything in its place.
            with suppress(Exception):
                spoken.flush()
        view = memoryview(answer)
        os.write(writing, struct.pack("<q", len(answer)))
        while view:
            view = view[os.write(writing, view[:_PIECE]) :]
        code = 0
    finally:
        # Not sys.exit: what is registered to happen at the end belongs to the parent.
        os._exit(code)


def _said(problem: BaseException) -> str:
    try:
        text = " ".join(str(problem).split())
    except Exception:  # somebody's exception need not say anything
        text = ""
    return f"{type(problem).__name__}: {text}" if text else type(problem).__name__


def _address_space() -> int:
    """Return the bytes of address space that this process has, 0 where nobody tells."""
    try:
        with open("/proc/self/statm", encoding="ascii") as stream:
            return int(stream.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _listen(reading: int, child: int, wall_limit: float | None) -> tuple[bytes | None, bool]:
    """Wait for the whole answer, the end of the child, or the limit."""
    deadline = None if wall_limit is None else time.monotonic() + wall_limit
    asked = ended = False
    # Others may hold the pipe open after the child has ended: those that it started.
    watch = os.pidfd_open(child) if hasattr(os, "pidfd_open") else None
    sources = [reading] if watch is None else [reading, watch]
    pieces: list[bytes] = []
    length = 0
    wanted: int | None = None
    try:
        while wanted is None or length < wanted:
            left = math.inf if deadline is None else deadline - time.monotonic()
            if left <= 0:
                if asked:
                    return None, True
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(child, signal.SIGTERM)
                asked, deadline = True, time.monotonic() + _GRACE
                continue
            ready, _, _ = select(sources, [], [], 0 if ended else min(left, _LOOK))
            if reading not in ready:
                if ended:
                    return None, asked
                # What it wrote before its end may come with this look, or with one more.
                ended = watch in ready
                continue
            piece = os.read(reading, _PIECE)
            if not piece:
                return None, asked
            pieces, length, wanted = _taken(pieces, piece, length, wanted)
    finally:
        if watch is not None:
            os.close(watch)
    return b"".join(pieces)[8:wanted], asked


def _taken(
    pieces: list[bytes], piece: bytes, length: int, wanted: int | None
) -> tuple[list[bytes], int, int | None]:
    """Add a piece of an answer, whose first eight bytes say how long it is."""
    pieces.append(piece)
    length += len(piece)
    if wanted is None and length >= 8:
        pieces = [b"".join(pieces)]
        wanted = 8 + struct.unpack_from("<q", pieces[0])[0]
    return pieces, length, wanted


def _tail(output: IO[bytes]) -> str:
    end = output.seek(0, os.SEEK_END)
    output.seek(max(0, end - _TAIL))
    return output.read().decode("utf-8", errors="replace")


def _ended(
    answer: bytes | None,
    timed_out: bool,
    status: int,
    usage: Any,
    output: str,
    wall_limit: float | None,
) -> Ended:
    code = os.waitstatus_to_exitcode(status)
    spent = {
        "exit_code": code if answer is None else 0,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        # Kilobytes on Linux, bytes on macOS.
        "peak_memory": usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
        "output": output,
    }
    if answer is not None:
        try:
            end, value, message, trace = pickle.loads(answer)
        except Exception as problem:
            return Ended(End.CRASHED, message=f"the answer cannot be read: {problem}", **spent)
        return Ended(end, value, message, trace, **spent)
    if timed_out:
        message = f"did not end within {wall_limit:.3g} s, and was ended"
        return Ended(End.TIMEOUT, message=message, traceback=output, **spent)
    if code < 0:
        message = f"the process was killed by {signal.Signals(-code).name}"
        # Native code that gets no memory aborts; the system ends whoever takes all there is.
        if "bad_alloc" in output or "MemoryError" in output:
            return Ended(End.MEMORY, message=message, traceback=output, **spent)
        return Ended(End.CRASHED, message=message, traceback=output, **spent)
    message = f"the process ended with exit code {code}, without an answer"
    return Ended(End.CRASHED, message=message, traceback=output, **spent)
