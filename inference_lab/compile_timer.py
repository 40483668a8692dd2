"""Timer of the compilation of kernels, which is not a solver's time.

One timer serves a process, since kernels are compiled once for all.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


#: The timer of this process.
timer = CompileTimer()
if hasattr(os, "register_at_fork"):
    # A forked process does not write to the memory of its parent.
    os.register_at_fork(after_in_child=timer.restart)
