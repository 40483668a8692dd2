"""The seconds that go into loading: importing modules, compiling kernels. Nobody's solving time.

There is one meter for a process, since modules and kernels are loaded once for all. A process
that watches over another can share the meter's memory, and see what the other is at.
"""

from __future__ import annotations

import builtins
import mmap
import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic, process_time
from typing import Any

__all__ = ["LoadingMeter", "imports_timed", "meter"]


class LoadingMeter:
    """Add up the seconds between the outermost of nested beginnings and ends.

    On the wall, and of processors: on a busy machine the former are many times the latter.
    """

    _STATE = struct.Struct("<dd")

    def __init__(self) -> None:
        self._done = self._since = 0.0
        self._cpu_done = self._cpu_since = 0.0
        self._depth = 0
        self._shared: mmap.mmap | None = None
        # Threads that compile wait for each other, those that import need not.
        self._lock = threading.Lock()

    @classmethod
    def memory(cls) -> mmap.mmap:
        """Return memory for a meter to be seen in, by the processes on both sides of a fork."""
        return mmap.mmap(-1, cls._STATE.size)

    def show(self, memory: mmap.mmap | None) -> None:
        """Start from nothing, as a new process does, and tell in `memory` from now on."""
        self.__init__()  # type: ignore[misc]
        self._shared = memory

    @classmethod
    def seen(cls, memory: mmap.mmap) -> tuple[float, bool]:
        """Return the seconds that a meter tells, and whether something is being loaded now."""
        done, since = cls._STATE.unpack_from(memory)
        return done + (monotonic() - since if since else 0.0), since != 0.0

    @property
    def seconds(self) -> float:
        """Seconds so far; they grow as it happens."""
        return self._done + (monotonic() - self._since if self._depth else 0.0)

    @property
    def cpu_seconds(self) -> float:
        """Seconds of processors so far, of all threads."""
        return self._cpu_done + (process_time() - self._cpu_since if self._depth else 0.0)

    def begin(self) -> None:
        """Note that something is loaded from now on."""
        with self._lock:
            self._depth += 1
            if self._depth == 1:
                self._since, self._cpu_since = monotonic(), process_time()
                self._tell()

    def end(self) -> None:
        """Note that it is loaded."""
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                self._done += monotonic() - self._since
                self._cpu_done += process_time() - self._cpu_since
                self._since = 0.0
                self._tell()

    def _tell(self) -> None:
        if self._shared is not None:
            self._STATE.pack_into(self._shared, 0, self._done, self._since)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count what happens in a ``with`` block."""
        self.begin()
        try:
            yield
        finally:
            self.end()


#: The meter of this process.
meter = LoadingMeter()
if hasattr(os, "register_at_fork"):
    # What a copy of this process loads is no business of those who look at this one.
    os.register_at_fork(after_in_child=lambda: meter.show(None))

_lock = threading.Lock()
_users = 0
_import: Any = builtins.__import__


def _timed_import(*arguments: Any, **named: Any) -> Any:
    meter.begin()
    try:
        return _import(*arguments, **named)
    finally:
        meter.end()


@contextmanager
def imports_timed() -> Iterator[None]:
    """Count the ``import`` statements that run within a ``with`` block."""
    global _users, _import
    with _lock:
        _users += 1
        if _users == 1:
            _import, builtins.__import__ = builtins.__import__, _timed_import
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            # Somebody may have put something else in its place meanwhile.
            if _users == 0 and builtins.__import__ is _timed_import:
                builtins.__import__ = _import
