"""Calls in isolated processes under limits, so that a fault affects one call only."""

# `isolated` forks, so that the child shares all loaded modules, and waits. The child may crash,
# loop, allocate without end, print, change its directory, or start processes: the call ends in time
# with a `ProcessResult` that holds the reason, and no process of the child remains.
#
# The call runs in a child of a supervisor, which is forked here, adopts the orphans of the call,
# and ends only when no descendant is left. Each leads its own session, so that signals to its
# group reach no other process. On Linux the supervisor also ends all descendants when this process
# is killed. On other systems, orphans outside the process group of a call remain. Wall time
# excludes imports and compilation and, on Linux, waiting for a processor (`_Watch`).
#
# A fork copies only the calling thread, so a lock that another thread holds stays locked in the
# child for ever. No thread of this package runs at a fork: progress is drawn without one, and
# numerical libraries are limited to one thread, also where problems are built. Other threads, such
# as those of a notebook or of pyarrow's allocator, are no reason to refuse: Python, the C library,
# OpenBLAS and jemalloc release their own locks in the child. A child that waits for any other lock
# ends at its time limit.

from __future__ import annotations

import errno
import math
import mmap
import os
import pickle
import signal
import struct
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from select import select
from time import perf_counter
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import psutil

from inference_lab.compile_timer import notice, timer
from inference_lab.processes.descendants import (
    adopt_orphans,
    children,
    descendants,
    longest_wait,
    proportional_memory,
    resident_memory,
)
from inference_lab.processes.memory import address_space
from inference_lab.processes.workers import (
    end_with_parent,
    format_exception,
    pickled,
    traceback_tail,
)

if sys.platform != "win32":
    import resource

#: Seconds between SIGTERM and SIGKILL at the time limit.
_GRACE = 0.5
#: Seconds for the supervisor to end all processes of a call.
_PATIENCE = 5.0
#: Multiple of its limit after which a call ends, even if it spent the time waiting for a processor.
_BUSIEST = 20.0
#: Seconds until the first check of the child, and the longest interval between two checks.
_FIRST_LOOK = 0.05
_LOOK = 1.0
#: Limit in seconds on compilation, which does not count towards the time limit.
_LOADING_LIMIT = 600.0
#: Number of bytes of output that are kept, from its end.
_TAIL = 2000
#: Size in bytes of the pieces in which an answer is written and read.
_PIECE = 1 << 16
#: The signals that a supervisor waits for: SIGCHLD if a child ended, SIGTERM to end all processes.
_AWAITED = {signal.SIGCHLD, signal.SIGTERM} if sys.platform != "win32" else set()
#: Bytes of memory reserved for the report of a child that runs out of memory.
_RESERVE = 1 << 25
#: The state of the child's compile timer: seconds so far, and the start of a running one or 0.
_COMPILED = struct.Struct("<dd")
#: Phrases in the output of native code that ran out of memory, in lower case.
_WANT_OF_MEMORY = ("bad_alloc", "memoryerror", "out of memory", "allocate memory", "memory alloc")


class ExitReason(StrEnum):
    """The reason why a call in an isolated process ended."""

    #: The function returned a value.
    RETURNED = "returned"
    #: The function raised.
    RAISED = "raised"
    #: The call exceeded its time limit, and was killed.
    TIMEOUT = "timeout"
    #: The call exceeded its memory limit.
    MEMORY = "memory"
    #: The process exited or was killed by a signal without an answer.
    CRASHED = "crash"


@dataclass(frozen=True)
class ProcessResult:
    """The result of a call in an isolated process."""

    end: ExitReason
    value: Any = None
    #: The cause of the end in one line, empty if the function returned.
    message: str = ""
    #: The last lines of the traceback, else of the output.
    traceback: str = ""
    #: The exit code, or minus the number of the signal that ended the process.
    exit_code: int | None = None
    #: `cpu_seconds`, `peak_memory`: user and system time, and peak resident bytes, of the process
    #: and the children it waited for.
    cpu_seconds: float = 0.0
    peak_memory: int = 0
    wall_seconds: float = 0.0
    #: The end of its standard output and error.
    output: str = ""
    #: Whether it was compiling when its time ran out. Another call may get further, because
    #: finished kernels are cached on the disk.
    loading: bool = False


def can_isolate() -> bool:
    """Whether this system can fork."""
    return hasattr(os, "fork") and sys.platform != "win32"


class SharedIncumbent:
    """Memory shared with a child that holds its best labelling and bound so far."""

    def __init__(self, size: int) -> None:
        # Two copies are written in turn, and a counter selects the complete one, because a child
        # may be killed at any moment.
        copy = np.dtype([("energy", "f8"), ("seconds", "f8"), ("labels", "i8", (size,))])
        shared = mmap.mmap(-1, 16 + 2 * copy.itemsize)
        #: The counter, whose parity selects the valid copy, and the best bound.
        self._count = np.frombuffer(shared, np.int64, 1)
        self._bound = np.frombuffer(shared, np.float64, 1, offset=8)
        self._copies = np.frombuffer(shared, copy, 2, offset=16)
        self._bound[0] = -math.inf

    @property
    def bound(self) -> float:
        """The best lower bound that the child proved."""
        return float(self._bound[0])

    @bound.setter
    def bound(self, value: float) -> None:
        self._bound[0] = value

    def write(self, labels: npt.NDArray[np.int64], energy: float, seconds: float) -> None:
        """Store a labelling, its energy and the seconds until it was found."""
        count = self._count[0] + 1
        copy = self._copies[count % 2]
        copy["energy"], copy["seconds"] = energy, seconds
        copy["labels"][:] = labels
        # The counter is updated last, so that the previous copy stays valid until then.
        self._count[0] = count

    def read(self) -> tuple[npt.NDArray[np.int64], float, float] | None:
        """Return labels, energy and seconds, or None before the first labelling."""
        if self._count[0] == 0:
            return None
        copy = self._copies[self._count[0] % 2]
        return copy["labels"].copy(), float(copy["energy"]), float(copy["seconds"])


def isolated(
    function: Callable[..., Any],
    *arguments: Any,
    wall_limit: float | None = None,
    memory_limit: int | None = None,
) -> ProcessResult:
    """Call a function in an isolated, forked process; its return value must be picklable."""
    # After `wall_limit` seconds all processes of the call receive SIGTERM, and SIGKILL half a
    # second later. Time does not count while the child compiles, nor while it waits for a
    # processor, up to 20 times the limit. `memory_limit` is in bytes of address space beyond that
    # of this process; on Linux it also limits the memory of all processes of the call together.
    #
    # A token marks answers, because a solver may write to the pipe by accident.
    token = os.urandom(16)
    with tempfile.TemporaryFile() as output, mmap.mmap(-1, _COMPILED.size) as memory:
        reading, writing = os.pipe()
        begin = perf_counter()
        sys.stdout.flush()
        sys.stderr.flush()
        child = _fork()
        if child == 0:
            os.close(reading)
            _supervise(_Call(writing, token, output, memory, function, arguments, memory_limit))
        try:
            os.close(writing)
            watch = _Watch(child, memory, wall_limit, memory_limit)
            answer = _listen(reading, token, child, watch)
        finally:
            os.close(reading)
            code, spent = _end(child)
        wall = perf_counter() - begin
        ended = _ended(answer, watch, code, _tail(output))
    return replace(
        ended,
        exit_code=0 if answer is not None else code,
        cpu_seconds=spent.ru_utime + spent.ru_stime,
        # Kilobytes on Linux, bytes on macOS.
        peak_memory=spent.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
        wall_seconds=wall,
    )


def _fork() -> int:
    """Fork this process; return the number of the child, and 0 in the child."""
    # From Python 3.12 on, forks beside threads give a warning; the head of this file has the rule.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*multi-threaded", DeprecationWarning)
        return os.fork()


class _Call(NamedTuple):
    """The function that a child calls, and the streams for its answer and its output."""

    writing: int
    token: bytes
    output: IO[bytes]
    memory: mmap.mmap
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    memory_limit: int | None


def _supervise(call: _Call) -> None:
    """Run a call in a child, kill all its descendants, and exit with the child's status."""
    status = 70 << 8
    try:
        os.setsid()
        adopt_orphans()
        end_with_parent(signal.SIGTERM)
        # Blocked, so that `sigwait` takes them, and SIGTERM does not end this process.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # The limit is 1, because with 0 Linux still pipes a dump to a handler, which takes minutes
        # for a large process.
        resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            _be_child(call)
        os.close(call.writing)
        status = _outlive(child, call.output)
    finally:
        code = os.waitstatus_to_exitcode(status)
        if code < 0:
            with suppress(OSError):  # SIGKILL has no handler
                signal.signal(-code, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
            os.kill(os.getpid(), -code)
        os._exit(code)


def _outlive(child: int, output: IO[bytes]) -> int:
    """Wait until a child ends or SIGTERM arrives, then kill all descendants."""
    reaped: dict[int, int] = {}
    while child not in reaped and signal.sigwait(_AWAITED) == signal.SIGCHLD:
        reaped |= _reap()
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    deadline = time.monotonic() + _PATIENCE
    before: list[int] = []
    # Repeated, because the children of killed processes become children of this process.
    while survivors := children():
        if time.monotonic() > deadline:
            output.write(f"\nprocesses {survivors} of the run could not be ended\n".encode())
            output.flush()
            break
        for process in survivors:
            with suppress(PermissionError):
                os.kill(process, signal.SIGKILL)
        if survivors == before:  # no pause otherwise, because short forks must be overtaken
            time.sleep(0.001)
        before = survivors
        reaped |= _reap()
    return reaped.get(child, signal.SIGKILL)


def _reap() -> dict[int, int]:
    """Reap all ended children; return the status of each by its process number."""
    reaped = {}
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            reaped[ended[0]] = ended[1]
    return reaped


def _be_child(call: _Call) -> None:
    """Make the call in the child, write the answer and exit; never returns."""
    code = 70
    process = os.getpid()
    try:
        os.setsid()
        end_with_parent()
        timer.restart(partial(_COMPILED.pack_into, call.memory, 0))
        notice.silent = True
        for stream in (1, 2):
            os.dup2(call.output.fileno(), stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        # Reopened, because notebooks and tests replace the standard streams.
        sys.stdin = open(0, closefd=False)  # for the lifetime of the process
        sys.stdout = open(1, "w", closefd=False)
        sys.stderr = open(2, "w", closefd=False)
        answer = _answer(call)
        if os.getpid() != process:
            # This is a forked copy of the process made by the function; the original answers.
            return
        for spoken in (sys.stdout, sys.stderr):
            # Errors are ignored, because the function may have closed or replaced the stream.
            with suppress(Exception):
                spoken.flush()
        os.write(call.writing, call.token + struct.pack("<q", len(answer)))
        view = memoryview(answer)
        while view:
            view = view[os.write(call.writing, view[:_PIECE]) :]
        code = 0
    finally:
        # `os._exit` skips the exit handlers, because they belong to the parent.
        os._exit(code)


def _answer(call: _Call) -> bytes:
    """Call the function; return its value or its exception, pickled."""
    total = None
    if call.memory_limit is not None:
        total = address_space() + call.memory_limit
        resource.setrlimit(resource.RLIMIT_AS, (total, total + _RESERVE))
    # Pickled in advance, because there may be no memory later.
    last = pickle.dumps((ExitReason.MEMORY, None, "MemoryError", ""))
    try:
        return pickled((ExitReason.RETURNED, call.function(*call.arguments), "", ""))
    except BaseException as problem:
        try:
            refused = isinstance(problem, OSError) and problem.errno == errno.ENOMEM
            end = (
                ExitReason.MEMORY
                if refused or isinstance(problem, MemoryError)
                else ExitReason.RAISED
            )
            if end == ExitReason.MEMORY and total is not None:
                # Errors are ignored, because the function may have lowered the hard limit.
                with suppress(ValueError, OSError):
                    resource.setrlimit(resource.RLIMIT_AS, (total + _RESERVE, total + _RESERVE))
            return pickle.dumps(
                (end, None, " ".join(format_exception(problem).split()), traceback_tail(problem))
            )
        except MemoryError:
            return last


class _Watch:
    """A monitor of the time and memory that a child uses."""

    # Time in which the child compiles, according to its own timer, is charged against a separate
    # limit. The longest wait of one of its processes for a processor is not charged.

    def __init__(
        self, child: int, memory: mmap.mmap, wall_limit: float | None, memory_limit: int | None
    ) -> None:
        self.child = child
        self.memory = memory
        self.limit = wall_limit
        self.memory_limit = math.inf
        if memory_limit is not None:
            # This process's memory is added, because forked copies share and count its pages.
            self.memory_limit = memory_limit + psutil.Process().memory_info().rss
        self.timed_out = self.loading = self.too_large = False
        self._begun = time.monotonic()
        self._waited = 0.0
        self._pause = _FIRST_LOOK
        self.due = self._begun + self._until(0.0)

    def _until(self, spent: float) -> float:
        """Return the seconds until the next check, at most those left to the limit."""
        remaining_s = math.inf if self.limit is None else self.limit - spent
        return max(0.001, min(self._pause, remaining_s))

    def look(self) -> bool:
        """Check the limits; return whether the child must end."""
        now = time.monotonic()
        processes = descendants(self.child)
        done, since = _COMPILED.unpack_from(self.memory)
        self.loading = since != 0.0
        compiled = done + (now - since if self.loading else 0.0)
        spent = now - self._begun - compiled
        self._pause = min(2.0 * self._pause, _LOOK)
        self._waited = max(self._waited, longest_wait(processes))
        self.due = now + self._until(spent - self._waited)
        # Resident memory is checked first, because it is quicker to read. It counts shared pages
        # once for each process.
        self.too_large = (
            resident_memory(processes) > self.memory_limit
            and proportional_memory(processes) > self.memory_limit
        )
        if self.limit is not None:
            self.timed_out = (
                spent - self._waited >= self.limit
                or spent >= _BUSIEST * self.limit
                or compiled >= _LOADING_LIMIT
            )
        return self.timed_out or self.too_large


def _listen(reading: int, token: bytes, child: int, watch: _Watch) -> bytes | None:
    """Wait for the whole answer, the end of the child, or the limits."""
    ended = False
    asked = False
    # The end of the child is watched, too, because its descendants may keep the pipe open.
    end = os.pidfd_open(child) if hasattr(os, "pidfd_open") else None
    sources = [reading] if end is None else [reading, end]
    answer = bytearray()
    head = len(token) + 8
    try:
        while True:
            remaining_s = watch.due - time.monotonic()
            ready, _, _ = select(sources, [], [], 0 if ended else max(0.0, remaining_s))
            if reading in ready:
                piece = os.read(reading, _PIECE)
                if not piece and end is None:
                    return None
                if not piece:
                    # The pipe is closed, but the child may continue.
                    sources.remove(reading)
                # Data without the token is discarded, because it is no answer and may be endless.
                if token.startswith(answer[: len(token)]):
                    answer += piece
                elif ended:
                    return None
                if len(answer) >= head and answer.startswith(token):
                    wanted = head + struct.unpack_from("<q", answer, len(token))[0]
                    if len(answer) >= wanted:
                        return bytes(answer[head:wanted])
            elif ended:
                return None
            else:
                # One more read follows, because the last data may still be in the pipe.
                ended = end in ready
            if ended or time.monotonic() < watch.due:
                continue
            if asked or (watch.look() and watch.too_large):
                return None
            if watch.timed_out:
                for process in descendants(child):
                    with suppress(psutil.Error):
                        process.terminate()
                asked = True
                watch.due = time.monotonic() + _GRACE
    finally:
        if end is not None:
            os.close(end)


def _end(supervisor: int) -> tuple[int | None, Any]:
    """Make a supervisor end its descendants; return its child's exit code and the total usage."""
    with suppress(ProcessLookupError, PermissionError):
        # Continued first, because a call may have stopped it.
        os.kill(supervisor, signal.SIGCONT)
        os.kill(supervisor, signal.SIGTERM)
    deadline = time.monotonic() + 2.0 * _PATIENCE
    # Errors are ignored, because the system reaps the child itself if this process ignores SIGCHLD.
    with suppress(ChildProcessError):
        while not (result := os.wait4(supervisor, os.WNOHANG))[0]:
            if time.monotonic() > deadline:
                os.kill(supervisor, signal.SIGKILL)
            time.sleep(0.001)
        return os.waitstatus_to_exitcode(result[1]), result[2]
    return None, resource.struct_rusage([0] * 16)


def _tail(output: IO[bytes]) -> str:
    end = output.seek(0, os.SEEK_END)
    output.seek(max(0, end - _TAIL))
    return output.read().decode("utf-8", errors="replace")


def _ended(answer: bytes | None, watch: _Watch, code: int | None, output: str) -> ProcessResult:
    if answer is not None:
        try:
            end, value, message, trace = pickle.loads(answer)
        except Exception as problem:
            message = f"the answer cannot be read: {problem}"
            return ProcessResult(ExitReason.CRASHED, message=message, output=output)
        return ProcessResult(end, value, message, trace, output=output)
    end = ExitReason.CRASHED
    loading = False
    if watch.too_large:
        end = ExitReason.MEMORY
        message = "its processes together exceeded the memory limit"
    elif watch.timed_out:
        end = ExitReason.TIMEOUT
        loading = watch.loading
        message = f"did not end within {watch.limit:.3g} s, and was ended"
        if loading:
            message += " while it was compiling"
    elif code is None:
        message = "the process ended without an answer, and somebody else took its exit code"
    elif code < 0:
        message = f"the process was killed by {signal.Signals(-code).name}"
    else:
        message = f"the process ended with exit code {code}, without an answer"
    # Native code that runs out of memory prints a message and aborts.
    if end == ExitReason.CRASHED and any(word in output.lower() for word in _WANT_OF_MEMORY):
        end = ExitReason.MEMORY
    return ProcessResult(end, message=message, traceback=output, output=output, loading=loading)
