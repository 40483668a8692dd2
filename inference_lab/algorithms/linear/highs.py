"""HiGHS in one thread, whatever the machine has: runs are compared by one thread, and forked."""

from __future__ import annotations

import importlib
import threading
import warnings
from contextlib import suppress
from typing import Any

__all__ = ["keep_to_one_thread"]

#: HiGHS keeps a scheduler for each thread that calls it; this tells which have been seen to.
_seen = threading.local()


def keep_to_one_thread() -> None:
    """Let HiGHS, as scipy calls it from this thread, start no others from now on.

    At its first call HiGHS starts half as many threads as there are processors, and keeps them. A
    forked process has none of them, and waits for them for ever. So a scheduler without threads is
    put in place of what is there, be it of this process or of one it was forked from; further
    processes inherit it. Calls of `scipy.optimize.milp` elsewhere in this thread use it too.
    """
    if getattr(_seen, "done", False):
        return
    from scipy.optimize import milp

    # A part of scipy that it may move: then this holds where nothing has called HiGHS before.
    with suppress(ImportError, AttributeError):
        core: Any = importlib.import_module("scipy.optimize._highspy._core")
        # Without waiting for threads to end that a fork left behind.
        core._Highs.resetGlobalScheduler(False)
    with warnings.catch_warnings():
        # scipy passes the option on, and says that it does not know it.
        warnings.filterwarnings("ignore", "Unrecognized options")
        milp([0.0], options={"threads": 1})
    _seen.done = True
