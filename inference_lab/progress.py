"""Progress of a comparison on standard error: a live line in a terminal, else a log."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from inference_lab.comparison import Progress

__all__ = ["display", "log_line"]


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
        f"[{event.done:>{width}}/{event.total}] {event.problem}  {event.solver}  "
        f"seed {event.seed}: {said}"
    )


@contextmanager
def display() -> Iterator[Callable[[Progress], None]]:
    """Show progress on standard error, live if it is a terminal, else one line a run."""
    if sys.stderr.isatty():
        with _live() as report:
            yield report
    else:
        yield _log


def _log(event: Progress) -> None:
    if event.record is not None:
        print(log_line(event), file=sys.stderr, flush=True)


@contextmanager
def _live() -> Iterator[Callable[[Progress], None]]:
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

    bar = Bar(
        SpinnerColumn(),
        MofNCompleteColumn(),
        BarColumn(bar_width=16),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[failed]}", style="red"),
        TextColumn("{task.fields[gap]}"),
        TextColumn(
            "{task.description}",
            markup=False,
            table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),
        ),
        console=Console(stderr=True),
        transient=True,
        refresh_per_second=4,  # drawing takes time from the runs
        expand=True,
    )
    with bar:
        task = bar.add_task("", total=None, failed="", gap="")

        def report(event: Progress) -> None:
            bar.update(
                task,
                total=event.total,
                completed=event.done,
                failed=f"{event.failed} failed" if event.failed else "",
                gap="" if event.gap_percent is None else f"best gap {event.gap_percent:.2f}%",
                description=f"{event.solver}  {event.problem}",
            )

        yield report
