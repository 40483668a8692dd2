"""Coverage of the kernels: a part of the tests with them interpreted, a fifth of a second for each.

A compiled kernel does not show which of its lines were run; an interpreted one takes hundreds of
times as long. So a test stops when its time is up; lines run until then count. ``make test``
decides whether tests pass; here tests of speed fail. Call it with ``NUMBA_DISABLE_JIT=1``, as
``make coverage`` does.
"""

from __future__ import annotations

import ast
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from types import FrameType

import coverage
import pytest

ROOT = Path(__file__).parents[1]

#: Folders of tests, and omitted files, which reach few kernels or only those of other tests.
TESTS = ("kernels", "algorithms", "solvers", "clustering", "graph")
LEFT_OUT = (
    "kernels/test_compilation.py",
    "solvers/test_solver_conformance.py",
    "solvers/test_auto.py",
    "solvers/test_adapters.py",
    "clustering/test_sklearn_conventions.py",
)

#: Seconds of the processor that a test may take.
LIMIT = 0.2

#: Callers in which an exception would leave a lock closed or threads waiting: the limit waits.
LOCKS = ("/coverage/", "/threading.py", "/concurrent/")

#: Decorators of `inference_lab._numba`.
KERNELS = {"kernel", "lean_kernel", "lean_minimum", "inlined", "inlined_minimum"}


def leave(signum: int, frame: FrameType | None) -> None:
    """Leave the running test, or check again a little later."""
    inner = 0
    while frame is not None:
        # The whole test runs under the coverage, whose own frames are further in than any test.
        place = frame.f_code.co_filename
        if any(lock in place for lock in LOCKS) and (inner < 5 or "/coverage/" not in place):
            signal.setitimer(signal.ITIMER_PROF, LIMIT / 10)
            return
        frame, inner = frame.f_back, inner + 1
    pytest.skip("takes long interpreted")


class Briefly:
    """Pytest plugin around each test."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, object, object]:
        """Leave a test when its time is up."""
        signal.signal(signal.SIGPROF, leave)
        signal.setitimer(signal.ITIMER_PROF, LIMIT)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)


def bodies(path: Path) -> set[int]:
    """Return the lines of the kernel bodies of a file."""
    return {
        line
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
        and any(isinstance(d, ast.Name) and d.id in KERNELS for d in node.decorator_list)
        for line in range(node.body[0].lineno, (node.end_lineno or 0) + 1)
    }


def counted(measured: coverage.Coverage) -> Iterator[tuple[str, list[int], list[int]]]:
    """Yield each file with its lines and branches, the covered ones, and other lines."""
    for path in sorted(measured.get_data().measured_files()):
        inside = bodies(Path(path))
        _, lines, _, missing, _ = measured.analysis2(path)
        exits = [n for line, n in measured.branch_stats(path).items() if line in inside]
        left = sorted(inside.intersection(missing))
        if inside:
            n = len(inside.intersection(lines))
            branches = sum(all_ for all_, _ in exits), sum(taken for _, taken in exits)
            name = str(Path(path).relative_to(ROOT))
            yield name, [n, n - len(left), *branches], left


def row(name: str, counts: list[int]) -> str:
    lines, run, branches, taken = counts
    share = [100 * part / max(whole, 1) for part, whole in ((run, lines), (taken, branches))]
    return f"{name:<58}{lines:>6}{share[0]:>7.1f}{branches:>7}{share[1]:>7.1f}"


def main() -> int:
    measured = coverage.Coverage(
        None, branch=True, config_file=False, source_dirs=["inference_lab", "solvers"]
    )
    asked = [f"tests/{folder}" for folder in TESTS]
    asked += [f"--ignore=tests/{name}" for name in LEFT_OUT]
    # Overflow wraps around, and infinite costs are recognised afterwards, as in compiled code.
    asked += ["--quiet", "--no-header", "--tb=line", "-rN", "-W", "ignore::RuntimeWarning"]
    measured.start()
    found = pytest.main([*asked, "-p", "no:cacheprovider"], plugins=[Briefly()])
    measured.stop()
    total = [0, 0, 0, 0]
    print(f"{'':<58}{'lines':>6}{'%':>7}{'branch.':>8}{'%':>6}  not run")
    for name, counts, left in counted(measured):
        total = [a + b for a, b in zip(total, counts, strict=True)]
        print(row(name, counts), "", *left)
    print(row("all kernels", total))
    return int(found not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED))


if __name__ == "__main__":
    sys.exit(main())
