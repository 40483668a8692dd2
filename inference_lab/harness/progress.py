"""Progress of long work: a live line in a terminal, else a log."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Generic, NamedTuple, TypeVar

from inference_lab.reporting.printable import printable
from inference_lab.results.records import RunRecord

_R = TypeVar("_R", bound=RunRecord)


class RunProgress(NamedTuple, Generic[_R]):
    """The argument of a progress callable when a run starts (`record` is None) and when it ends."""

    # Before the first run, `compiling` marks the reports of compilation.

    done: int
    total: int
    failed: int
    problem: str
    solver: str
    seed: int
    record: _R | None
    compiling: bool = False


def log_line(event: RunProgress[Any]) -> str:
    """Describe the end of a run in one line."""
    if event.record is None:
        raise ValueError("only the end of a run is logged")
    width = len(str(event.total))
    return (
        f"[{event.done:>{width}}/{event.total}] {printable(event.problem)}  "
        f"{printable(event.solver)}  seed {event.seed}: {printable(event.record.outcome)}"
    )


def reporter(
    progress: bool | Callable[[RunProgress[Any]], None],
) -> AbstractContextManager[Callable[[RunProgress[Any]], None]]:
    """Return a context for progress reports: to a callable, a live line, a log, or to nothing."""
    if callable(progress):
        return nullcontext(progress)
    if not progress:
        return nullcontext(lambda event: None)
    return _live() if sys.stderr.isatty() else nullcontext(_log)


def _log(event: RunProgress[Any]) -> None:
    if event.compiling:
        print(_compiling(event), file=sys.stderr, flush=True)
    elif event.record is not None:
        print(log_line(event), file=sys.stderr, flush=True)


def _compiling(event: RunProgress[Any]) -> str:
    """Format the report of compilation before the first run."""
    return f"getting {printable(event.solver)} ready (compiled once, then loaded from the disk)"


def _told(event: RunProgress[Any]) -> str:
    """Format the number of failures and the current activity for progress bars."""
    failed = f"{event.failed} failed, " if event.failed else ""
    now = _compiling(event) if event.compiling else printable(f"{event.solver}  {event.problem}")
    return failed + now


@contextmanager
def _live() -> Iterator[Callable[[RunProgress[Any]], None]]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    shown = Progress(
        MofNCompleteColumn(),
        BarColumn(bar_width=16),
        TimeRemainingColumn(),
        TextColumn("{task.description}", markup=False),
        console=Console(stderr=True),
        transient=True,
        # Drawn at the start of each run and not by a thread of its own, because runs are forked
        # from this process, and a fork beside threads may deadlock.
        auto_refresh=False,
    )
    with shown:
        task = shown.add_task("building the problems", total=None)
        yield lambda event: shown.update(
            task,
            total=event.total,
            completed=event.done,
            description=_told(event),
            refresh=event.record is None,
        )
