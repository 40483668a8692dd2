"""Worker processes that make one call at a time, and detection of their death."""

from __future__ import annotations

import ctypes
import importlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, NamedTuple

#: Environment variables that set the number of threads of numerical libraries when loaded.
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMBA_NUM_THREADS",
)

#: Number of formatted frames of a traceback; records keep fewer characters than these have.
_FRAMES = 50

#: Seconds that a worker has to end by itself.
_PATIENCE = 2.0


class Crash(NamedTuple):
    """The reason why a call has no result."""

    message: str
    traceback: str
    #: Status of the record.
    status: str = "error"


def traceback_tail(problem: BaseException, limit: int = 2000) -> str:
    """Return the last lines of an exception's traceback, at most `limit` characters."""
    try:
        # Only the last frames, because formatting a stack overflow of a million takes minutes.
        frames = deque(_traceback_objects(problem), maxlen=_FRAMES)
        last = frames[0] if frames else None
        lines = traceback.format_exception(type(problem), problem, last, limit=-_FRAMES)
        text = "".join(lines).rstrip()
    except Exception:  # an exception's own methods may raise
        return ""
    return text if len(text) <= limit else "..." + text[-limit:]


def _traceback_objects(problem: BaseException) -> Iterator[TracebackType]:
    frame = problem.__traceback__
    while frame is not None:
        yield frame
        frame = frame.tb_next


def format_exception(problem: BaseException) -> str:
    """Return the class of an exception, and its message if it has one."""
    try:
        text = str(problem)
    except Exception:  # an exception's own methods may raise
        text = ""
    return f"{type(problem).__name__}: {text}" if text.strip() else type(problem).__name__


def pickled(answer: Any) -> bytes:
    """Return an answer for another process; raise a `TypeError` that says so if it cannot be sent.

    The errors of `pickle` differ between versions of Python, and some do not mention pickling.
    """
    try:
        return pickle.dumps(answer)
    except MemoryError:
        raise
    except Exception as problem:  # objects of users' classes may raise anything
        raise TypeError(f"the answer cannot be pickled: {format_exception(problem)}") from problem


@contextmanager
def limited_threads(threads: int = 1) -> Iterator[None]:
    """Limit the threads of numerical libraries in this process, for comparable timings."""
    # Imported by name, because it ships no types.
    with importlib.import_module("threadpoolctl").threadpool_limits(threads):
        yield


@contextmanager
def _limited_threads_of_children(threads: int) -> Iterator[None]:
    """Set the thread variables for starting processes in the block, and restore them."""
    before = {name: os.environ.get(name) for name in _THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(_THREAD_VARIABLES, str(threads)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def end_with_parent(number: signal.Signals | None = None) -> None:
    """Send this process a signal, by default SIGKILL, when its parent ends (Linux)."""
    prctl(1, number or signal.SIGKILL)  # PR_SET_PDEATHSIG


def prctl(option: int, value: int) -> None:
    """Set an option of this process on Linux; do nothing on other systems."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(option, value)


def _mask_interrupts(blocked: bool) -> None:
    """Block or unblock Ctrl-C in this process and in those started from it."""
    if sys.platform != "win32":
        how = signal.SIG_BLOCK if blocked else signal.SIG_UNBLOCK
        signal.pthread_sigmask(how, {signal.SIGINT})


class _EndedError(KeyboardInterrupt):
    """Request to end the process, which like Ctrl-C is not a failure of the call."""


def _end(number: int, frame: object) -> None:
    raise _EndedError


def _serve(connection: Connection) -> None:
    """Answer calls until the other side closes the connection."""
    # Ctrl-C is ignored, because it reaches the whole process group and the harness handles it. A
    # handler is used, because programs started from here would inherit SIG_IGN.
    signal.signal(signal.SIGINT, lambda number, frame: None)
    # SIGTERM raises, so that the call can end the processes it started before this one ends.
    signal.signal(signal.SIGTERM, _end)
    _mask_interrupts(False)
    end_with_parent()
    connection.send_bytes(pickle.dumps(None))
    with suppress(_EndedError):
        _answer(connection)


def _answer(connection: Connection) -> None:
    while True:
        try:
            message = connection.recv_bytes()
        except (EOFError, OSError):
            return
        answer: Any
        try:
            answer = pickled(pickle.loads(message)())
        except (Exception, SystemExit) as problem:
            answer = pickle.dumps(Crash(format_exception(problem), traceback_tail(problem)))
        try:
            connection.send_bytes(answer)
        except OSError:
            return


#: Held while a process starts, because that changes the state of this one, which may have threads.
_starting = threading.Lock()


@contextmanager
def _ordinary_parent() -> Iterator[None]:
    """Clear for the duration of the block what pools set in a process and its children refuse.

    Pools and clusters run in daemons, which may have no children, because these could outlive them.
    Workers end when their parent does. The children of loky's processes do not know its way to
    start processes, which they are told to take.
    """
    process = multiprocessing.current_process()
    daemon = process.daemon
    method = multiprocessing.get_start_method(allow_none=True)
    foreign = method is not None and method not in multiprocessing.get_all_start_methods()
    if daemon:
        process.daemon = False
    if foreign:
        multiprocessing.set_start_method("spawn", force=True)
    try:
        yield
    finally:
        if daemon:
            process.daemon = True
        if foreign:
            multiprocessing.set_start_method(method, force=True)


class Worker:
    """A spawned (not forked) process that answers one call at a time and may die alone."""

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(other,))
        try:
            # Ctrl-C is blocked during the start, because the new process has no handler yet and
            # would print a traceback.
            _mask_interrupts(True)
            try:
                with _starting, _ordinary_parent(), _limited_threads_of_children(self.threads):
                    self.process.start()
            finally:
                _mask_interrupts(False)
            other.close()
            self.connection.recv_bytes()
        except BaseException as problem:
            # The process is killed on any error, because it would keep this one from ending.
            self.connection.close()
            if self.process.pid is not None:
                self.process.kill()
                self.process.join()
            if not isinstance(problem, EOFError | OSError):
                raise
            raise RuntimeError(
                "a worker process could not start; in a script, put the call under "
                "'if __name__ == \"__main__\":' (new processes import the script), or use jobs=1"
            ) from None

    def submit(self, call: Callable[[], Any]) -> None:
        """Send a call, which is pickled."""
        # Errors are ignored here, because `result` detects a dead worker.
        with suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send_bytes(pickle.dumps(call))

    def result(self) -> Any:
        """Return the result of the call, or a `Crash`; a dead worker is restarted."""
        try:
            return pickle.loads(self.connection.recv_bytes())
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode or 0
            self.connection.close()
            self._start()
        if code < 0:
            with suppress(ValueError):
                return Crash(f"the worker process was killed by {signal.Signals(-code).name}", "")
        return Crash(f"the worker process ended with exit code {code}", "")

    def stop(self) -> None:
        """End the process with its call, if there is one, by force if it does not react."""
        # The connection is closed last: without it the process would end by itself, and SIGTERM
        # would interrupt the exit with a traceback.
        self.process.terminate()
        self.process.join(_PATIENCE)
        self.process.kill()
        self.process.join()
        self.connection.close()


def finished(workers: Sequence[Worker]) -> list[Worker]:
    """Wait until at least one busy worker has an answer or is dead; return all such workers."""
    ready = wait([worker.connection for worker in workers])
    return [worker for worker in workers if worker.connection in ready]
