"""All processes of a run: found by a mark that they inherit, whatever group or session they are in.

A process that starts others can leave its process group (``setpgid``), its session (``setsid``)
and its place in the tree (a double fork). What it cannot take off is a hard resource limit, which
every process it starts inherits, programs included. The limit on POSIX message queues, which
nothing else here uses, is lowered to a number of the run's own, and processes that have this
number belong to it.

Only Linux tells the limits of other processes. Elsewhere nothing is found here, and what left the
process group of a run stays. On Linux what stays is what runs as somebody else (``sudo``), what
asked another service to start something, and what lowered this one limit itself.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

if sys.platform != "win32":
    import resource

__all__ = ["Usage", "in_memory", "mark", "marked", "usage"]


class Usage(NamedTuple):
    """What processes have taken together, and what they are at.

    * ``cpu``: seconds of processor time, of children that were waited for too;
    * ``resident``: bytes of memory;
    * ``asleep``: no thread runs or stands in line for a processor.
    """

    cpu: float
    resident: int
    asleep: bool


def mark() -> None:
    """Mark this process, and all that it will start."""
    if sys.platform == "linux":
        own = _number(os.getpid())
        if own is not None:
            resource.setrlimit(resource.RLIMIT_MSGQUEUE, (own, own))


def _number(child: int) -> int | None:
    """Return the mark of a child of this process, or of this process itself before it is marked.

    Below this process's own limit, which a child within a child has lowered already.
    """
    _, most = resource.getrlimit(resource.RLIMIT_MSGQUEUE)
    if most == resource.RLIM_INFINITY:
        most = 1 << 40
    return most - 1 - child % most if most > 0 else None


def marked(child: int) -> list[int]:
    """Return the processes that bear the mark of a child of this process, dead ones left out."""
    if sys.platform != "linux":
        return []
    own = _number(child)
    found = []
    for name in os.listdir("/proc") if own is not None else ():
        if name.isdigit():
            # It is gone, or somebody else's.
            with suppress(ProcessLookupError, PermissionError):
                if resource.prlimit(int(name), resource.RLIMIT_MSGQUEUE)[1] == own:
                    found.append(int(name))
    return [process for process in found if _state(f"/proc/{process}/stat") not in "ZX"]


def _fields(path: str) -> list[str]:
    """Return what the system says of a process or a thread, from its state on; empty if gone."""
    try:
        with open(path, encoding="ascii", errors="replace") as stream:
            # The name before may hold anything.
            return stream.read().rpartition(")")[2].split()
    except OSError:
        return []


def _state(path: str) -> str:
    return (_fields(path) or "X")[0]


def usage(processes: Iterable[int]) -> Usage:
    """Add up what processes have taken; those that are gone count nothing."""
    ticks = pages = 0
    asleep = True
    for process in processes:
        fields = _fields(f"/proc/{process}/stat")
        if not fields:
            continue
        ticks += sum(int(field) for field in fields[11:15])
        pages += int(fields[21])
        with suppress(OSError):
            threads = os.listdir(f"/proc/{process}/task")
            asleep &= all(_state(f"/proc/{process}/task/{t}/stat") != "R" for t in threads)
    return Usage(ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE"), asleep)


def in_memory(processes: Iterable[int]) -> int:
    """Return the bytes that processes have in memory; what others share counts in part."""
    kilobytes = 0
    for process in processes:
        with suppress(OSError), open(f"/proc/{process}/smaps_rollup", encoding="ascii") as lines:
            kilobytes += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return 1024 * kilobytes
