"""Threads of linear algebra libraries during runs."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class _BlasThreads:
    """The limit on BLAS threads in this process, and the Python thread that set it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: int | None = None
        self._libraries: Any = None
        self._modules = 0

    def limit(self, threads: int) -> Any:
        """Set the limit and return it, or return None where a block around this one has set it."""
        with self._lock:
            if self._owner is not None:
                return None
            self._owner = threading.get_ident()
            return self._loaded().limit(limits=threads)

    def restore(self, limit: Any) -> None:
        """Restore the numbers of threads before a limit."""
        with self._lock:
            limit.restore_original_limits()
            self._owner = None

    def _loaded(self) -> Any:
        """Return the BLAS libraries that are loaded; looking for them takes ten milliseconds."""
        if self._libraries is None or self._modules != len(sys.modules):
            from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

            self._libraries = ThreadpoolController().select(user_api="blas")
            self._modules = len(sys.modules)
        return self._libraries


_blas = _BlasThreads()
if hasattr(os, "register_at_fork"):
    # The thread that holds the lock, or the limit, may not be in the child.
    os.register_at_fork(after_in_child=_blas.__init__)  # type: ignore[misc]


@contextmanager
def blas_threads(threads: int | None) -> Iterator[None]:
    """Limit the threads of BLAS for the duration of the block; None leaves them as they are.

    Idle threads of BLAS spin, which counts as processor time: a limit of processor time would
    depend on how busy the machine is. The outermost block decides. The limit holds for the process,
    and OpenBLAS restores it only in the Python thread that has set it, so that a block of another
    thread may end with more.
    """
    limit = None if threads is None else _blas.limit(threads)
    try:
        yield
    finally:
        if limit is not None:
            _blas.restore(limit)
