"""The processes of a run: those that descend from its supervisor, in whatever group or session."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

import psutil

from inference_lab.processes.workers import prctl

__all__ = ["Usage", "adopt_orphans", "children", "descendants", "proportional_memory", "usage"]


class Usage(NamedTuple):
    """Totals over processes."""

    #: Seconds of processor time, with that of children that were waited for.
    cpu: float
    #: Seconds in which they were ready to run and others had the processors.
    queued: float
    #: Bytes of memory.
    resident: int


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose parent ends (Linux)."""
    # So no descendant is lost. Elsewhere such a process leaves the tree, and is not found.
    prctl(36, 1)  # PR_SET_CHILD_SUBREAPER


def descendants(ancestor: int) -> list[psutil.Process]:
    """Return the processes that descend from one, which is not among them."""
    with suppress(psutil.Error):
        return psutil.Process(ancestor).children(recursive=True)
    return []


def children() -> list[int]:
    """Return the children of this process, which has one thread."""
    own = os.getpid()
    try:
        # In microseconds, where psutil reads about all processes.
        with open(f"/proc/{own}/task/{own}/children", encoding="ascii") as stream:
            return [int(child) for child in stream.read().split()]
    except OSError:
        return [child.pid for child in psutil.Process().children()]


def usage(processes: Iterable[psutil.Process]) -> Usage:
    """Add up the resources of processes; those that have ended count nothing."""
    cpu = queued = 0.0
    resident = 0
    for process in processes:
        with suppress(psutil.Error), process.oneshot():
            cpu += sum(process.cpu_times()[:4])
            resident += process.memory_info().rss
            queued += _queued(process.pid)
    return Usage(cpu, queued, resident)


def _queued(process: int) -> float:
    """Return the seconds that a process has waited for a processor, 0 where this is unknown."""
    try:
        with open(f"/proc/{process}/schedstat", encoding="ascii") as stream:
            return 1e-9 * int(stream.read().split()[1])
    except (OSError, IndexError):
        return 0.0


def proportional_memory(processes: Iterable[psutil.Process]) -> int:
    """Return the bytes of memory of processes; pages that several share are divided by them."""
    total = 0
    for process in processes:
        with suppress(psutil.Error):
            total += process.memory_full_info().pss
    return total
