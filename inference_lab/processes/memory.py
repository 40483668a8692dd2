"""Memory of the machine and of its batch jobs, and memory that this process can still use."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

#: Names of the files of a control group, in its two versions: limit, usage, and the part of the
#: usage that is a cache of files.
_LIMITS = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def physical_memory() -> int:
    """Return the bytes of memory of the machine, or the smallest limit of its control groups."""
    return min([psutil.virtual_memory().total, *(limit for limit, _ in _group_limits())])


def available_memory() -> int:
    """Return the bytes that this process can still allocate: of the machine, its job and limit."""
    machine = psutil.virtual_memory().available + psutil.swap_memory().free
    rooms = [machine, _address_space_left(), *(room for _, room in _group_limits())]
    return max(0, min(rooms))


def address_space() -> int:
    """Return the size of this process's address space in bytes, 0 if unknown."""
    try:
        with open("/proc/self/statm", encoding="ascii") as stream:
            return int(stream.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _address_space_left() -> int:
    """Return the bytes up to the limit on the address space, which limits of runs set."""
    with suppress(ImportError):
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit != resource.RLIM_INFINITY:
            return limit - address_space()
    return sys.maxsize


def _group_limits() -> Iterator[tuple[int, int]]:
    """Yield the limit of each control group that has one, and the bytes still free below it."""
    for place in control_groups(Path("/proc/self/cgroup")):
        for limit_name, usage_name, cache_name in _LIMITS:
            try:
                limit = int((place / limit_name).read_text())
            except (OSError, ValueError):
                continue
            free = limit
            with suppress(OSError, ValueError):
                free -= int((place / usage_name).read_text())
                # The system drops a cache of files before it refuses memory.
                facts = dict(map(str.split, (place / "memory.stat").read_text().splitlines()))
                free += int(facts.get(cache_name, 0))
            yield limit, free


def control_groups(listing: Path, root: Path = Path("/sys/fs/cgroup")) -> Iterator[Path]:
    """Yield the folders of the groups of memory of this process: batch jobs have nested ones."""
    yield from (root, root / "memory")
    with suppress(OSError, ValueError):
        for line in listing.read_text().splitlines():
            _, kinds, path = line.split(":", 2)
            if kinds in ("", "memory"):
                group = root / kinds / path.lstrip("/")
                yield from (group, *group.parents[: len(Path(path).parts) - 1])
