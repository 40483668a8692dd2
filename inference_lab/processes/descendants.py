"""The processes of a run: all descendants of its supervisor, in any group or session."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

import psutil

from inference_lab.processes.workers import prctl


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose parent ends (Linux)."""
    # A subreaper loses no descendant. On other systems, an orphan leaves the tree and is not found.
    prctl(36, 1)  # PR_SET_CHILD_SUBREAPER


def descendants(ancestor: int) -> list[psutil.Process]:
    """Return all descendants of a process, without the process itself."""
    with suppress(psutil.Error):
        return psutil.Process(ancestor).children(recursive=True)
    return []


def children() -> list[int]:
    """Return the children of this process, which must have a single thread."""
    pid = os.getpid()
    try:
        # Read directly, because it takes microseconds, while psutil reads about all processes.
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as stream:
            return [int(child) for child in stream.read().split()]
    except OSError:
        return [child.pid for child in psutil.Process().children()]


def resident_memory(processes: Iterable[psutil.Process]) -> int:
    """Return the resident memory of processes in bytes; ended processes count zero."""
    total = 0
    for process in processes:
        with suppress(psutil.Error):
            total += process.memory_info().rss
    return total


def longest_wait(processes: Iterable[psutil.Process]) -> float:
    """Return the most seconds that one of the processes has waited for a processor (Linux)."""
    longest = 0.0
    for process in processes:
        with suppress(OSError, IndexError), open(f"/proc/{process.pid}/schedstat", "rb") as stream:
            longest = max(longest, 1e-9 * int(stream.read().split()[1]))
    return longest


def proportional_memory(processes: Iterable[psutil.Process]) -> int:
    """Return the memory of processes in bytes, with shared pages split evenly where possible."""
    total = 0
    for process in processes:
        with suppress(psutil.Error):
            memory = process.memory_full_info()
            # The proportional size exists on Linux only.
            total += getattr(memory, "pss", memory.uss)
    return total
