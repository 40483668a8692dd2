"""Calls in processes of their own, under limits; a fault costs that call only."""

# `isolated` forks, so that the child has all that is loaded here, and waits. The child may crash,
# loop, allocate without end, print, change its directory, or start processes: the call ends in time
# with a `ProcessResult` that holds the reason, and nothing of the child is left.
#
# The call runs in a child of a supervisor, which is forked here, adopts the orphans of the call,
# and ends only when no descendant is left. Each leads a session of its own, so that signals to
# their groups reach nobody else. On Linux the supervisor also ends all when this process is killed.
# Elsewhere, orphans of a call outside its process group stay. Wall time counts without imports and
# compilation and, on Linux, without waiting for a processor (`_Watch`).
#
# Call it from a process without threads, such as a worker: a fork copies only the calling thread,
# and locks that others hold stay locked for ever.

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from select import select
from time import perf_counter
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import psutil

from inference_lab.compile_timer import timer
from inference_lab.processes.descendants import (
    adopt_orphans,
    children,
    descendants,
    proportional_memory,
    usage,
)
from inference_lab.processes.workers import end_with_parent, format_exception, traceback_tail

if sys.platform != "win32":
    import resource

__all__ = [
    "ExitReason",
    "ProcessResult",
    "SharedIncumbent",
    "can_isolate",
    "isolated",
    "suppress_output",
]

#: Seconds between a request to end and the end by force.
_GRACE = 0.5
#: Seconds for the supervisor to end all processes of a call.
_PATIENCE = 5.0
#: Wall time ends a call after this many times its limit, however long it waited for a processor.
_BUSIEST = 20.0
#: Seconds until the first check of the child, and the most between two.
_FIRST_LOOK = 0.05
_LOOK = 1.0
#: Seconds of compiling, which do not count, that end a child all the same.
_LOADING_LIMIT = 600.0
#: Bytes of output that are kept, the last ones.
_TAIL = 2000
#: Room for an answer is read in pieces of this size.
_PIECE = 1 << 16
#: The signals that a supervisor waits for: a child ended, or all are to end.
_AWAITED = {signal.SIGCHLD, signal.SIGTERM} if sys.platform != "win32" else set()
#: Memory reserved for the report of a child that runs out of memory.
_RESERVE = 1 << 25
#: The state of the child's timer of compilation: seconds so far, and the present begin or 0.
_COMPILED = struct.Struct("<dd")
#: Output of programs that ran out of memory.
_WANT_OF_MEMORY = ("bad_alloc", "memoryerror", "out of memory", "allocate memory", "memory alloc")


class ExitReason(StrEnum):
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
class ProcessResult:
    """The result of a call in a process of its own."""

    end: ExitReason
    value: Any = None
    #: One line on the cause of the end, empty if the function returned.
    message: str = ""
    #: The last lines of the traceback, else of standard error.
    traceback: str = ""
    #: Minus the signal where one ended the process.
    exit_code: int | None = None
    #: `cpu_seconds`, `peak_memory`: Of the process and those it waited for: user and system time,
    #: bytes resident at most.
    cpu_seconds: float = 0.0
    peak_memory: int = 0
    wall_seconds: float = 0.0
    #: The end of its standard output and error.
    output: str = ""
    #: Whether it was compiling when it was ended for want of time. What it had compiled is on the
    #: disk, and another call may get further.
    loading: bool = False


def can_isolate() -> bool:
    """Whether this system can fork."""
    return hasattr(os, "fork") and sys.platform != "win32"


class SharedIncumbent:
    """Memory shared with a child, on which it leaves its best labelling so far."""

    def __init__(self, size: int) -> None:
        # A child may be killed at any moment: two copies take turns, and a number says which is
        # whole.
        copy = np.dtype([("energy", "f8"), ("seconds", "f8"), ("labels", "i8", (size,))])
        shared = mmap.mmap(-1, 16 + 2 * copy.itemsize)
        #: The number of the copy that counts, and the best bound.
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
        """Leave a labelling, with its energy and when it was found."""
        count = self._count[0] + 1
        copy = self._copies[count % 2]
        copy["energy"], copy["seconds"] = energy, seconds
        copy["labels"][:] = labels
        # Only now is the copy announced; until then the one before counts.
        self._count[0] = count

    def read(self) -> tuple[npt.NDArray[np.int64], float, float] | None:
        """Return labels, energy and seconds, or None if nothing was left."""
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
    """Call a function in a forked process of its own; its answer must be picklable."""
    # After `wall_limit` seconds all processes of the call are asked to end, and are killed half a
    # second later. Time does not count while the child compiles, nor while it waits for a
    # processor, up to 20 times the limit. `memory_limit` is in bytes of address space on top of
    # this process's; on Linux also of the memory that all processes of the call have.
    # A token marks answers, because a solver may write to the pipe by accident.
    token = os.urandom(16)
    with tempfile.TemporaryFile() as output, mmap.mmap(-1, _COMPILED.size) as memory:
        reading, writing = os.pipe()
        begin = perf_counter()
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
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


@contextmanager
def suppress_output() -> Iterator[None]:
    """Let code run here that may print, change the directory, or fork, and leave no trace of it."""
    # For code that has been seen to end well in a process of its own.
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


class _Call(NamedTuple):
    """The function that a child calls, and where it answers and prints."""

    writing: int
    token: bytes
    output: IO[bytes]
    memory: mmap.mmap
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    memory_limit: int | None


def _supervise(call: _Call) -> None:
    """Run a call in a child, end all that descends from it, and end as the child did."""
    status = 70 << 8
    try:
        os.setsid()
        adopt_orphans()
        end_with_parent(signal.SIGTERM)
        # Blocked, so that `sigwait` takes them, and SIGTERM does not end this process.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # Not 0, for which Linux still hands a dump to a program, which takes minutes where the
        # process is large.
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
    # The children of those that are killed become children of this process.
    while left := children():
        if time.monotonic() > deadline:
            output.write(f"\nprocesses {left} of the run could not be ended\n".encode())
            output.flush()
            break
        for process in left:
            with suppress(PermissionError):
                os.kill(process, signal.SIGKILL)
        if left == before:  # else without a pause, to overtake a chain of short forks
            time.sleep(0.001)
        before = left
        reaped |= _reap()
    return reaped.get(child, signal.SIGKILL)


def _reap() -> dict[int, int]:
    """Return the status of each child that has ended, by its number, and let them go."""
    reaped = {}
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            reaped[ended[0]] = ended[1]
    return reaped


def _be_child(call: _Call) -> None:
    """Be the child: call, answer, end. Never returns."""
    code = 70
    process = os.getpid()
    try:
        os.setsid()
        end_with_parent()
        timer.restart(partial(_COMPILED.pack_into, call.memory, 0))
        for stream in (1, 2):
            os.dup2(call.output.fileno(), stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        # Notebooks and tests replace the streams of the system.
        sys.stdin = open(0, closefd=False)  # for as long as the process lives
        sys.stdout = open(1, "w", closefd=False)
        sys.stderr = open(2, "w", closefd=False)
        answer = _answer(call)
        if os.getpid() != process:
            # A copy that the function made of its process; the original answers.
            return
        for spoken in (sys.stdout, sys.stderr):
            # The function may have closed it, or put anything in its place.
            with suppress(Exception):
                spoken.flush()
        os.write(call.writing, call.token + struct.pack("<q", len(answer)))
        view = memoryview(answer)
        while view:
            view = view[os.write(call.writing, view[:_PIECE]) :]
        code = 0
    finally:
        # Not sys.exit, because exit handlers belong to the parent.
        os._exit(code)


def _answer(call: _Call) -> bytes:
    """Call the function; return its value or its exception, pickled."""
    total = None
    if call.memory_limit is not None:
        total = _address_space() + call.memory_limit
        resource.setrlimit(resource.RLIMIT_AS, (total, total + _RESERVE))
    # Prepared ahead, because there may be no memory later.
    last = pickle.dumps((ExitReason.MEMORY, None, "MemoryError", ""))
    try:
        return pickle.dumps((ExitReason.RETURNED, call.function(*call.arguments), "", ""))
    except BaseException as problem:
        try:
            refused = isinstance(problem, OSError) and problem.errno == errno.ENOMEM
            end = (
                ExitReason.MEMORY
                if refused or isinstance(problem, MemoryError)
                else ExitReason.RAISED
            )
            if end == ExitReason.MEMORY and total is not None:
                # The function may have set a limit of its own.
                with suppress(ValueError, OSError):
                    resource.setrlimit(resource.RLIMIT_AS, (total + _RESERVE, total + _RESERVE))
            return pickle.dumps(
                (end, None, " ".join(format_exception(problem).split()), traceback_tail(problem))
            )
        except MemoryError:
            return last


def _address_space() -> int:
    """Return the bytes of this process's address space, 0 where they are unknown."""
    try:
        with open("/proc/self/statm", encoding="ascii") as stream:
            return int(stream.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


class _Watch:
    """Polls the time and memory that a child uses."""

    # Between two looks it is charged the wall time, less the time that its processes waited for a
    # processor, but no less than their processor time. Processes that ended between two looks only
    # add to the charge, since their waiting is unknown. The share of the time in which the child
    # compiled, by its own account, is charged apart, against a limit of its own.

    def __init__(
        self, child: int, memory: mmap.mmap, wall_limit: float | None, memory_limit: int | None
    ) -> None:
        self.child = child
        self.memory = memory
        self.limit = wall_limit
        self.memory_limit = math.inf
        if memory_limit is not None:
            # Forked copies share pages with this process, and each counts them.
            self.memory_limit = memory_limit + psutil.Process().memory_info().rss
        self.timed_out = self.loading = self.too_large = False
        self._spent = self._loaded = self._seen = 0.0
        self._found = usage([])
        self._begun = self._at = time.monotonic()
        self._pause = _FIRST_LOOK
        self.due = self._at + self._until()

    def _until(self) -> float:
        """Return the seconds until the next look; the limit cannot be reached before."""
        left = math.inf if self.limit is None else self.limit - self._spent
        return max(0.001, min(self._pause, left))

    def look(self) -> bool:
        """Look; return whether the child is to end."""
        now = time.monotonic()
        processes = descendants(self.child)
        found = usage(processes)
        done, since = _COMPILED.unpack_from(self.memory)
        seen, self.loading = done + (now - since if since else 0.0), since != 0.0
        passed = now - self._at
        share = min(1.0, max(0.0, (seen - self._seen) / passed)) if passed else 0.0
        queued = max(0.0, found.queued - self._found.queued)
        used = min(passed, max(passed - queued, found.cpu - self._found.cpu))
        self._spent += (1.0 - share) * used
        self._loaded += share * used
        self._at, self._seen, self._found = now, seen, found
        self._pause = min(2.0 * self._pause, _LOOK)
        self.due = now + self._until()
        # The quicker of the two counts shared pages once a process.
        self.too_large = (
            found.resident > self.memory_limit
            and proportional_memory(processes) > self.memory_limit
        )
        if self.limit is not None:
            self.timed_out = (
                self._spent >= self.limit
                or self._loaded >= _LOADING_LIMIT
                or now - self._begun - seen >= _BUSIEST * self.limit
            )
        return self.timed_out or self.too_large


def _listen(reading: int, token: bytes, child: int, watch: _Watch) -> bytes | None:
    """Wait for the whole answer, the end of the child, or the limits."""
    ended = False
    asked = False
    # Others may hold the pipe open after the child has ended: those that it started.
    end = os.pidfd_open(child) if hasattr(os, "pidfd_open") else None
    sources = [reading] if end is None else [reading, end]
    answer = bytearray()
    head = len(token) + 8
    try:
        while True:
            left = watch.due - time.monotonic()
            ready, _, _ = select(sources, [], [], 0 if ended else max(0.0, left))
            if reading in ready:
                piece = os.read(reading, _PIECE)
                if not piece and end is None:
                    return None
                if not piece:
                    # Closed, but it may go on.
                    sources.remove(reading)
                # Output without the token is not an answer, and may be endless.
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
                # Its last output may arrive with this read or the next one.
                ended = end in ready
            if ended or time.monotonic() < watch.due:
                continue
            if asked or (watch.look() and watch.too_large):
                return None
            if watch.timed_out:
                for process in descendants(child):
                    with suppress(psutil.Error):
                        process.terminate()
                asked, watch.due = True, time.monotonic() + _GRACE
    finally:
        if end is not None:
            os.close(end)


def _end(supervisor: int) -> tuple[int | None, Any]:
    """Have a supervisor end all its descendants; return its child's exit code and use of both."""
    with suppress(ProcessLookupError, PermissionError):
        # A call may have stopped it.
        os.kill(supervisor, signal.SIGCONT)
        os.kill(supervisor, signal.SIGTERM)
    deadline = time.monotonic() + 2.0 * _PATIENCE
    # Where this process ignores SIGCHLD the system has taken it away.
    with suppress(ChildProcessError):
        while not (found := os.wait4(supervisor, os.WNOHANG))[0]:
            if time.monotonic() > deadline:
                os.kill(supervisor, signal.SIGKILL)
            time.sleep(0.001)
        return os.waitstatus_to_exitcode(found[1]), found[2]
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
    end, loading = ExitReason.CRASHED, False
    if watch.too_large:
        end, message = (
            ExitReason.MEMORY,
            "its processes together exceeded the memory limit",
        )
    elif watch.timed_out:
        end, loading = ExitReason.TIMEOUT, watch.loading
        message = f"did not end within {watch.limit:.3g} s, and was ended"
        if loading:
            message += " while it was compiling"
    elif code is None:
        message = "the process ended without an answer, and somebody else took its exit code"
    elif code < 0:
        message = f"the process was killed by {signal.Signals(-code).name}"
    else:
        message = f"the process ended with exit code {code}, without an answer"
    # Native code that gets no memory reports it and aborts.
    if end == ExitReason.CRASHED and any(word in output.lower() for word in _WANT_OF_MEMORY):
        end = ExitReason.MEMORY
    return ProcessResult(end, message=message, traceback=output, output=output, loading=loading)
