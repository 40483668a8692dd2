"""Timer of the compilation of kernels, which is not a solver's time, and a notice of it.

One timer and one notice serve a process, since kernels are compiled once for all.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic, process_time


def _ignore(done: float, since: float) -> None:
    """Ignore the state of the timer."""


class CompileTimer:
    """The sum of wall and of processor seconds between the outermost `begin` and `end`.

    On a busy machine the wall time is many times the processor time.
    """

    def __init__(self, notify: Callable[[float, float], object] = _ignore) -> None:
        """Start from zero; `notify` receives the seconds so far and the current begin, or 0."""
        self._done = self._since = 0.0
        self._cpu_done = self._cpu_since = 0.0
        self._depth = 0
        self._notify = notify
        # Threads may compile at the same time.
        self._lock = threading.Lock()

    def restart(self, notify: Callable[[float, float], object] = _ignore) -> None:
        """Start from zero, as a new process does."""
        self.__init__(notify)  # type: ignore[misc]

    @property
    def seconds(self) -> float:
        """Seconds so far, the current compilation included."""
        return self._done + (monotonic() - self._since if self._depth else 0.0)

    @property
    def cpu_seconds(self) -> float:
        """Processor seconds so far, of all threads."""
        return self._cpu_done + (process_time() - self._cpu_since if self._depth else 0.0)

    def begin(self) -> None:
        """Start counting."""
        with self._lock:
            self._depth += 1
            if self._depth == 1:
                self._since, self._cpu_since = monotonic(), process_time()
                self._notify(self._done, self._since)

    def end(self) -> None:
        """Stop counting."""
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                self._done += monotonic() - self._since
                self._cpu_done += process_time() - self._cpu_since
                self._since = 0.0
                self._notify(self._done, self._since)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the time of a ``with`` block."""
        self.begin()
        try:
            yield
        finally:
            self.end()


#: The solver that is running.
_subject: ContextVar[str] = ContextVar("subject", default="")


class CompileNotice:
    """Lines of the logger ``inference_lab`` for the person who waits for a compilation.

    Python prints them to stderr unless logging is configured otherwise. Worker processes stay
    silent.
    """

    def __init__(self) -> None:
        """Start without any time waited."""
        #: How often the compilation has to be waited for.
        self.once = "once per machine"
        #: Whether this is a worker process of the harness.
        self.silent = False
        #: Seconds of compilation after which a line says what is compiled.
        self.patience = 2.0
        self._waited: dict[str, float] = {}
        self._reported: set[str] = set()
        self._depth = 0
        self._current = ""
        self._since = 0.0
        self._alarm: threading.Timer | None = None

    @contextmanager
    def about(self, subject: str) -> Iterator[None]:
        """Name the solver whose kernels are compiled in a ``with`` block."""
        before = _subject.set(subject)
        try:
            yield
        finally:
            _subject.reset(before)

    def say(self, text: str) -> None:
        """Log a line, unless this is a worker process."""
        if not self.silent and multiprocessing.parent_process() is None:
            logging.getLogger("inference_lab").warning("inference-lab: %s", text)

    def begin(self, module: str) -> None:
        """Begin to wait for a kernel of a module; calls are nested, in one thread at a time."""
        self._depth += 1
        if self._depth > 1:
            return
        # Kernels of other packages are reported only as part of a run.
        room = module.removeprefix("inference_lab.")
        self._current = _subject.get() or (f"kernels of {room}" if room != module else "")
        self._since = monotonic()
        if self._current and self._current not in self._reported and not self.silent:
            rest = max(0.0, self.patience - self._waited.get(self._current, 0.0))
            # A thread, because the compiler returns control only after each kernel, of which some
            # take seconds.
            self._alarm = threading.Timer(rest, self._report, [self._current])
            self._alarm.daemon = True
            self._alarm.start()

    def end(self) -> None:
        """End the wait for a kernel."""
        self._depth -= 1
        if self._depth:
            return
        waited = monotonic() - self._since
        self._waited[self._current] = self._waited.get(self._current, 0.0) + waited
        if self._alarm is not None:
            self._alarm.cancel()
            # No thread stays, because processes may be forked next.
            self._alarm.join()
            self._alarm = None

    def _report(self, subject: str) -> None:
        self._reported.add(subject)
        self.say(f"compiling {subject}, {self.once}")


#: The timer of this process.
timer = CompileTimer()
#: The notice of this process.
notice = CompileNotice()
if hasattr(os, "register_at_fork"):
    # A forked process does not write to the memory of its parent.
    os.register_at_fork(after_in_child=timer.restart)
