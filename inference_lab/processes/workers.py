"""Worker processes for runs, one run at a time each; the death of one is noticed."""

from __future__ import annotations

import ctypes
import importlib
import multiprocessing
import os
import pickle
import signal
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, NamedTuple

__all__ = [
    "Crash",
    "Worker",
    "end_with_parent",
    "finished",
    "format_exception",
    "limited_threads",
    "prctl",
    "traceback_tail",
]

#: Variables from which numerical libraries read their number of threads when loaded.
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMBA_NUM_THREADS",
)

#: Frames of a traceback that are formatted; records keep fewer characters than these have.
_FRAMES = 50

#: Seconds that a worker is given to leave by itself.
_PATIENCE = 2.0


class Crash(NamedTuple):
    """The reason why a call has no result."""

    message: str
    traceback: str


def traceback_tail(problem: BaseException, limit: int = 2000) -> str:
    """Return the last lines of an exception's traceback, at most `limit` characters."""
    try:
        # The last frames only: formatting the million frames of a stack overflow takes minutes.
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


@contextmanager
def limited_threads(threads: int = 1) -> Iterator[None]:
    """Limit the threads of numerical libraries in this process, for comparable timings."""
    # Loaded by name, since it ships no types.
    with importlib.import_module("threadpoolctl").threadpool_limits(threads):
        yield


@contextmanager
def _limited_threads_of_children(threads: int) -> Iterator[None]:
    """Set the variables that a starting process reads, and put them back."""
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
    """Have a signal, by default SIGKILL, sent to this process when its parent ends (Linux)."""
    prctl(1, number or signal.SIGKILL)  # PR_SET_PDEATHSIG


def prctl(option: int, value: int) -> None:
    """Set an option of this process where the system is Linux."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(option, value)


def _mask_interrupts(blocked: bool) -> None:
    """Hold Ctrl-C back, or let it through; a starting process inherits the state."""
    if sys.platform != "win32":
        how = signal.SIG_BLOCK if blocked else signal.SIG_UNBLOCK
        signal.pthread_sigmask(how, {signal.SIGINT})


class _EndedError(KeyboardInterrupt):
    """The process was asked to end, which like Ctrl-C is no failure of the call."""


def _end(number: int, frame: object) -> None:
    raise _EndedError


def _serve(connection: Connection) -> None:
    """Answer calls until the other side hangs up."""
    # Ctrl-C reaches the whole process group; the harness decides what it means. A handler and
    # not SIG_IGN, which programs started from here would inherit.
    signal.signal(signal.SIGINT, lambda number, frame: None)
    # A request to end reaches what the call has started before it ends this process.
    signal.signal(signal.SIGTERM, _end)
    _mask_interrupts(False)
    end_with_parent()
    connection.send_bytes(pickle.dumps(None))
    with suppress(_EndedError):
        _answer(connection)


def _answer(connection: Connection) -> None:
    shared: Any = None
    while True:
        try:
            message = connection.recv_bytes()
        except (EOFError, OSError):
            return
        answer: Any
        try:
            function, sent, arguments = pickle.loads(message)
            if sent:
                (shared,) = sent
            answer = pickle.dumps(function(shared, *arguments))
        except (Exception, SystemExit) as problem:
            answer = pickle.dumps(Crash(format_exception(problem), traceback_tail(problem)))
        try:
            connection.send_bytes(answer)
        except OSError:
            return


class Worker:
    """A process, started afresh and not forked, that answers one call at a time and dies alone."""

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads
        self.busy = False
        #: Number of the shared argument that the process has.
        self.holds: int | None = None
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(other,))
        try:
            # Until it can handle Ctrl-C itself, the new process would answer with a traceback.
            _mask_interrupts(True)
            try:
                with _limited_threads_of_children(self.threads):
                    self.process.start()
            finally:
                _mask_interrupts(False)
            other.close()
            self.connection.recv_bytes()
        except BaseException as problem:
            # Whatever came in between: a process left behind would keep this one from ending.
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

    def submit(
        self, function: Callable[..., Any], share: int, shared: Any, arguments: tuple[Any, ...]
    ) -> None:
        """Send a call, without `shared` if its number is that of the last call."""
        sent = () if self.holds == share else (shared,)
        self.busy, self.holds = True, share
        # A worker that has died meanwhile is noticed where the answer is taken.
        with suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send_bytes(pickle.dumps((function, sent, arguments)))

    def result(self) -> Any:
        """Return the result of the call, or a `Crash`; a dead worker is restarted."""
        self.busy = False
        try:
            found = pickle.loads(self.connection.recv_bytes())
            if isinstance(found, Crash):  # perhaps what was sent could not be read
                self.holds = None
            return found
        except (EOFError, OSError):
            self.holds = None
            self.process.join()
            code = self.process.exitcode or 0
            self.connection.close()
            self._start()
        if code < 0:
            with suppress(ValueError):
                return Crash(f"the worker process was killed by {signal.Signals(-code).name}", "")
        return Crash(f"the worker process ended with exit code {code}", "")

    def stop(self) -> None:
        """End the process: by hanging up if it is idle, by force if it is not."""
        self.connection.close()
        if not self.busy:
            self.process.join(_PATIENCE)
        if self.process.is_alive():
            self.process.terminate()
            self.process.join(_PATIENCE)
        if self.process.is_alive():
            self.process.kill()
        self.process.join()


def finished(workers: Sequence[Worker]) -> list[Worker]:
    """Wait until at least one of some busy workers has an answer, or is dead; return those."""
    ready = wait([worker.connection for worker in workers])
    return [worker for worker in workers if worker.connection in ready]
