"""A limit on the processor time of a fit, which its loops check."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import process_time

#: Processor time of this process at which the current fit ends.
_end: ContextVar[float] = ContextVar("end", default=math.inf)


class OutOfTime(TimeoutError):
    """A fit has used up its processor time."""


@contextmanager
def limited_to(seconds: float) -> Iterator[None]:
    """Limit the processor time of the fits in the block; `check_limit` raises `OutOfTime`."""
    token = _end.set(min(_end.get(), process_time() + seconds))
    try:
        yield
    finally:
        _end.reset(token)


def check_limit() -> None:
    """Raise `OutOfTime` where the limit of the current fit is spent.

    Starts and iterations call it, so a fit may exceed the limit by an iteration. Workers of a fit
    that shares its starts out have no limit.
    """
    end = _end.get()
    if end < math.inf and process_time() >= end:
        raise OutOfTime("the fit has used up its processor time")
