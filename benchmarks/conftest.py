"""Fixtures of the benchmarks: compiled kernels, and a table of measurements."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import pytest
from workloads import estep

import inference_lab as il

_T = TypeVar("_T")


class Line(NamedTuple):
    """Line of the table: median seconds of wall and of processor time over the rounds."""

    what: str
    wall_s: float
    cpu_s: float
    rounds: int
    target: str
    note: str


_LINES = pytest.StashKey[list[Line]]()


@pytest.fixture(scope="session")
def compiled() -> None:
    """Compile all kernels, or load them from the disk, before anything is timed."""
    graph = estep(20, 3, 20).build()
    for name in ("icm", "loopy-bp", "mean-field", "lp-relaxation", "ilp"):
        il.solve(graph, name)


@pytest.fixture
def measure(
    benchmark: Any, compiled: None, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Any]]:
    """Return ``measure(what, function, rounds=..., target=..., note=...)``.

    It calls the function `rounds` times, and returns its last result. `note` is a function that
    returns a remark on that result.
    """
    calls = 0

    def run(
        what: str,
        function: Callable[[], _T],
        *,
        rounds: int = 5,
        target: str = "",
        note: Callable[[_T], str] = lambda result: "",
    ) -> _T:
        nonlocal calls
        wall: list[float] = []
        cpu: list[float] = []

        def timed() -> _T:
            begin, cpu_begin = time.perf_counter(), time.process_time()
            result = function()
            cpu.append(time.process_time() - cpu_begin)
            wall.append(time.perf_counter() - begin)
            return result

        calls += 1
        if calls == 1:  # the plugin takes one timing a test; the others are in our table only
            result: _T = benchmark.pedantic(timed, rounds=rounds)
        else:
            for _ in range(rounds):
                result = timed()
        line = Line(
            what, statistics.median(wall), statistics.median(cpu), rounds, target, note(result)
        )
        request.config.stash.setdefault(_LINES, []).append(line)
        return result

    yield run


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the lines as a Markdown table."""
    lines = config.stash.get(_LINES, [])
    if not lines:
        return
    terminalreporter.section("measured")
    terminalreporter.line("| what | wall s | CPU s | rounds | wanted | result |")
    terminalreporter.line("|---|---:|---:|---:|---|---|")
    for line in lines:
        terminalreporter.line(
            f"| {line.what} | {line.wall_s:.3g} | {line.cpu_s:.3g} | {line.rounds} "
            f"| {line.target} | {line.note} |"
        )
