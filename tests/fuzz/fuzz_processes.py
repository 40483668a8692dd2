"""Runs that do what they like with their process: the record comes, and nothing of them is left."""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np

import inference_lab as il
from inference_lab.contract import Outcome, Run, Solver
from inference_lab.harness import running
from inference_lab.processes.isolation import can_isolate

SHORT = 6 if can_isolate() and sys.platform == "linux" else 0
CASE_SECONDS = 60.0

GRAPH = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0], [0.2, 0.5]], [(0, 1), (1, 2)], [0.5, 0.25])
STATUSES = {"converged", "limit", "timeout", "memory", "crash", "error"}
MEMORY = 400 << 20
LIMIT = 0.1
#: Programs show it in their command line.
_WORD = f"0.{os.getpid()}"


def _sleep() -> None:
    time.sleep(120)


def _group_of_parent() -> None:
    os.setpgid(0, os.getpgid(os.getppid()))


def _signal_group() -> None:
    with suppress(OSError):
        _group_of_parent()
    if os.getpgid(0) != os.getpid():
        os.killpg(0, signal.SIGTERM)


def _helper(prepare: Callable[[], object] = lambda: None) -> None:
    if os.fork() == 0:
        with suppress(Exception):
            prepare()
        _sleep()
        os._exit(0)


def _daemon() -> None:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            _sleep()
        os._exit(0)
    os.wait()


def _program() -> None:
    if os.fork() == 0:
        os.setsid()
        os.execv("/bin/sleep", ["sleep", "120", _WORD])


def _ignore() -> None:
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)


def _close() -> None:
    os.closerange(3, 100)


def _garbage() -> None:
    for number in range(3, 30):
        with suppress(OSError):
            os.set_blocking(number, False)
            os.write(number, os.urandom(100))


def _allocate() -> None:
    kept = []
    while True:
        kept.append(np.ones(1 << 20))


def _small() -> None:
    kept = []
    while True:
        kept.append([0] * 100)


def _loop() -> None:
    while True:
        pass


def _crowd() -> None:
    for _ in range(5):
        _helper(_loop)


def _limits() -> None:
    for name in ("RLIMIT_NOFILE", "RLIMIT_FSIZE", "RLIMIT_CPU", "RLIMIT_NPROC", "RLIMIT_STACK"):
        with suppress(OSError, ValueError):
            resource.setrlimit(getattr(resource, name), (1 << 4, 1 << 4))


def _kill(number: signal.Signals) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def _process_state() -> None:
    os.chdir("/")
    os.umask(0o777)
    signal.alarm(1)
    os.environ.clear()
    sys.stdout.close()


ACTIONS: list[Callable[[], object]] = [
    _group_of_parent,
    _signal_group,
    _helper,
    lambda: _helper(os.setsid),
    lambda: _helper(_ignore),
    lambda: _helper(lambda: os.kill(os.getpid(), signal.SIGSTOP)),
    _daemon,
    _program,
    _ignore,
    _close,
    _garbage,
    _crowd,
    _limits,
    _process_state,
    lambda: time.sleep(0.01),
]
#: How a run ends, if it does.
ENDS: list[Callable[[], object]] = [
    lambda: None,
    lambda: None,
    lambda: os._exit(3),
    lambda: sys.exit(4),
    lambda: ctypes.string_at(0),
    _kill(signal.SIGKILL),
    _kill(signal.SIGTERM),
    _kill(signal.SIGSTOP),
    _loop,
    _sleep,
    _allocate,
    _small,
    lambda: 1 // 0,
]


@dataclass(frozen=True)
class Hostile(Solver):
    """Does some of the above, then ends in one of the ways."""

    actions: tuple[int, ...]
    end: int
    #: A file that appears once a labelling of the problem was offered.
    told: str

    def run(self, graph: il.FactorGraph, run: Run) -> Outcome:
        """Offer, and misbehave."""
        run.offer(np.array([0, 1, 1]))
        if run.time_limit == LIMIT:  # Else it is only warmed up.
            Path(self.told).touch()
        for number in self.actions:
            with suppress(Exception):
                ACTIONS[number]()
        ENDS[self.end]()
        return Outcome(converged=True)


def _state() -> tuple[object, ...]:
    mask = os.umask(0)
    os.umask(mask)
    handlers = [signal.getsignal(number) for number in signal.Signals]
    return os.getcwd(), mask, handlers, os.listdir("/proc/self/fd"), dict(os.environ)


def case(rng: np.random.Generator, folder: Path) -> None:
    """Compare a hostile solver with a tame one."""
    count = int(rng.integers(0, 5))
    told = folder / "told"
    actions = tuple(rng.integers(0, len(ACTIONS), count).tolist())
    solver = Hostile(actions, int(rng.integers(len(ENDS))), str(told))
    marked = folder / "marked"
    marked.write_bytes(bytes(mmap.PAGESIZE))
    with marked.open("r+b") as stream:
        mark = mmap.mmap(stream.fileno(), mmap.PAGESIZE)
    # What is opened once for all is not of this case.
    il.compare(il.Problem("p", GRAPH), "icm", store=folder / "first.jsonl")
    state = _state()
    with (
        mock.patch.object(running, "_WALL_CONSTANT", 0.3),
        mock.patch.object(running, "_FOREIGN_WARM_UP_LIMIT", 0.2),
    ):
        comparison = il.compare(
            il.Problem("p", GRAPH),
            [solver, "icm"],
            time_limit=LIMIT,
            memory_limit=MEMORY,
            store=folder / "runs.jsonl",
        )
    hostile, tame = sorted(comparison.records, key=lambda r: r.solver_name == "icm")
    assert tame.status == "converged", tame
    assert hostile.status in STATUSES, hostile
    if told.exists():
        assert hostile.energy == GRAPH.energy([0, 1, 1]), hostile
    else:
        # On a machine with much else to do it may be over before it began.
        assert hostile.status == "timeout" and hostile.energy == np.inf, hostile
    for was, now in zip(state, _state(), strict=True):
        assert now == was, (solver, was, now)
    left = _processes(marked)
    mark.close()
    assert not left, (solver, left)


def _processes(marked: Path) -> set[int]:
    """Return the processes besides this one that have mapped a file: forks keep what is mapped."""
    found = set()
    for place in Path("/proc").iterdir():
        with suppress(OSError):
            if not place.name.isdigit() or int(place.name) == os.getpid():
                continue
            state = (place / "stat").read_text().rpartition(")")[2].split()[0]
            mapped = str(marked).encode() in (place / "maps").read_bytes()
            # Programs map nothing of it, but show a word of this process.
            program = _WORD.encode() in (place / "cmdline").read_bytes()
            if state not in "ZX" and (mapped or program):
                found.add(int(place.name))
    return found
