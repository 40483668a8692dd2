"""Timer of the compilation of kernels, which is not a solver's time.

One timer serves a process, since kernels are compiled once for all. A process that watches another
can share the timer's memory, and read whether the other one compiles.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic, process_time

__all__ = ["CompileTimer", "timer"]


class CompileTimer:
    """Add up wall and processor seconds between the outermost `begin` and `end`.

    On a busy machine the former are many times the latter.
    """

    _STATE = struct.Struct("<dd")

    def __init__(self) -> None:
        self._done = self._since = 0.0
        self._cpu_done = self._cpu_since = 0.0
        self._depth = 0
        self._shared: mmap.mmap | None = None
        # Threads may compile at the same time.
        self._lock = threading.Lock()

    @classmethod
    def memory(cls) -> mmap.mmap:
        """Return memory that processes on both sides of a fork share."""
        return mmap.mmap(-1, cls._STATE.size)

    def show(self, memory: mmap.mmap | None) -> None:
        """Start from zero, as a new process does, and write to `memory` from now on."""
        self.__init__()  # type: ignore[misc]
        self._shared = memory

    @classmethod
    def seen(cls, memory: mmap.mmap) -> tuple[float, bool]:
        """Return the seconds in a timer's memory, and whether something is compiled now."""
        done, since = cls._STATE.unpack_from(memory)
        return done + (monotonic() - since if since else 0.0), since != 0.0

    @property
    def seconds(self) -> float:
        """Seconds so far, the current compilation included."""
        return self._done + (monotonic() - self._since if self._depth else 0.0)

    @property
    def cpu_seconds(self) -> float:
        """Seconds of processors so far, of all threads."""
        return self._cpu_done + (process_time() - self._cpu_since if self._depth else 0.0)

    def begin(self) -> None:
        """Start counting."""
        with self._lock:
            self._depth += 1
            if self._depth == 1:
                self._since, self._cpu_since = monotonic(), process_time()
                self._write()

    def end(self) -> None:
        """Stop counting."""
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                self._done += monotonic() - self._since
                self._cpu_done += process_time() - self._cpu_since
                self._since = 0.0
                self._write()

    def _write(self) -> None:
        if self._shared is not None:
            self._STATE.pack_into(self._shared, 0, self._done, self._since)

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
    os.register_at_fork(after_in_child=lambda: timer.show(None))
