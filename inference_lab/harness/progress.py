"""Progress of long work on standard error: a live line in a terminal, else a log."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from inference_lab.results.records import Record
from inference_lab.words import printable

__all__ = ["Progress", "bar", "display", "log_line"]

#: Seconds between two lines of a log.
_LOG_EVERY = 10.0


class Progress(NamedTuple):
    """What a progress callable is told when a run starts (`record` is None) and when it ends."""

    done: int
    total: int
    failed: int
    problem: str
    solver: str
    seed: int
    record: Record | None
    #: Gap in percent of the best energy to the best bound on this problem so far, if known.
    gap_percent: float | None


def log_line(event: Progress) -> str:
    """Describe the end of a run in one line."""
    record = event.record
    if record is None:
        raise ValueError("only the end of a run is logged")
    width = len(str(event.total))
    if record.failed or record.status == "unsupported":
        said = f"{record.status}: {record.message}"
    else:
        found = math.isfinite(record.energy)
        energy = f"energy {record.energy:.7g}" if found else "no labelling of finite energy"
        said = f"{energy}, {record.status}, {record.seconds:.3g} s"
    return (
        f"[{event.done:>{width}}/{event.total}] {printable(event.problem)}  "
        f"{printable(event.solver)}  seed {event.seed}: {printable(said)}"
    )


@contextmanager
def display() -> Iterator[Callable[[Progress], None]]:
    """Show progress on standard error, live if it is a terminal, else one line a run."""
    if sys.stderr.isatty():
        with _live() as update:

            def report(event: Progress) -> None:
                gap = event.gap_percent
                update(
                    event.done,
                    event.total,
                    event.failed,
                    "" if gap is None else f"best gap {gap:.2f}%",
                    printable(f"{event.solver}  {event.problem}"),
                )

            yield report
    else:
        yield _log


def _log(event: Progress) -> None:
    if event.record is not None:
        print(log_line(event), file=sys.stderr, flush=True)


@contextmanager
def bar() -> Iterator[Callable[[int, int, int, str], None]]:
    """Show how much is done on standard error: live in a terminal, else now and then a line.

    Yields a function that takes the number done, the total, the number failed, and what was done
    last.
    """
    if sys.stderr.isatty():
        with _live() as update:

            def live(done: int, total: int, failed: int, what: str) -> None:
                update(done, total, failed, "", what)

            yield live
        return
    last = time.monotonic()

    def log(done: int, total: int, failed: int, what: str) -> None:
        nonlocal last
        if done == total or time.monotonic() - last >= _LOG_EVERY:
            last = time.monotonic()
            broken = f", {failed} failed" if failed else ""
            print(f"[{done}/{total}{broken}] {what}", file=sys.stderr, flush=True)

    yield log


@contextmanager
def _live() -> Iterator[Callable[[int, int, int, str, str], None]]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bar
    from rich.table import Column

    console = Console(stderr=True)
    shown = Bar(
        SpinnerColumn(),
        MofNCompleteColumn(),
        # What is running comes first where there is little room.
        *([BarColumn(bar_width=16), TimeElapsedColumn()] if console.width >= 100 else []),
        TimeRemainingColumn(),
        TextColumn("left"),
        TextColumn("{task.fields[failed]}", style="red"),
        TextColumn("{task.fields[gap]}"),
        TextColumn(
            "{task.description}",
            markup=False,
            table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),
        ),
        console=console,
        transient=True,
        refresh_per_second=4,  # drawing takes time from the runs
        expand=True,
    )
    with shown:
        task = shown.add_task("building the problems", total=None, failed="", gap="")

        def update(done: int, total: int, failed: int, gap: str, what: str) -> None:
            shown.update(
                task,
                total=total,
                completed=done,
                failed=f"{failed} failed" if failed else "",
                gap=gap,
                description=what,
            )

        yield update
