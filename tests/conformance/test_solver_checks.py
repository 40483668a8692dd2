"""The checks as users run them: in pytest on a solver of their own, and in separate processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from inference_lab.conformance import (
    CheckResult,
    ConformanceFailure,
    Verdict,
    run_checks,
    runs,
    separate,
    solver_checks,
)
from inference_lab.graph.random_graphs import random_graph
from inference_lab.processes.isolation import ProcessResult, can_isolate
from inference_lab.registry.registry import as_solver
from inference_lab.solvers.icm import ICM
from inference_lab.specs.grammar import SpecError

SOLVERS = '''
"""Solvers of a user, good and bad."""
import ctypes
import os
from dataclasses import dataclass

import numpy as np

from inference_lab.contract import Outcome, Solver

#: The number of variables of graphs that the bad ones stumble over.
AT = 9


@dataclass(frozen=True)
class Zeros(Solver):
    """Label 0 everywhere."""

    def run(self, graph, run):
        run.offer(np.zeros(graph.n_variables, dtype=np.int64))
        return Outcome(iterations=1)


@dataclass(frozen=True)
class Boaster(Zeros):
    """A bound that nothing proves."""

    def run(self, graph, run):
        outcome = super().run(graph, run)
        run.bound(1e6)
        return outcome


@dataclass(frozen=True)
class Needy(Zeros):
    n: int


@dataclass(frozen=True)
class Bad(Zeros):
    """Ends the process in one way or another."""

    how: str = "signal"

    def run(self, graph, run):
        outcome = super().run(graph, run)
        if graph.n_variables == AT:
            print("about to", self.how, flush=True)
            if self.how == "signal":
                ctypes.string_at(0)
            if self.how == "exit":
                os._exit(3)
            if self.how == "memory":
                bytearray(1 << 44)
            if self.how == "hang":
                while True:
                    pass
        return outcome


@dataclass(frozen=True)
class BadToAsk(Zeros):
    def supports(self, graph, temperature):
        if graph.n_variables == AT:
            os._exit(4)
        return super().supports(graph, temperature)


@dataclass(frozen=True)
class Unpicklable(Zeros):
    """Solutions that no process can send."""

    def run(self, graph, run):
        outcome = super().run(graph, run)
        outcome.diagnostics = {"key": lambda: None}
        return outcome
'''

TESTS = """
import pytest
from inference_lab.conformance import solver_checks
from their_solvers import Boaster, Zeros

@pytest.mark.parametrize("check", solver_checks(Zeros(), graphs_per_family=3), ids=str)
def test_good(check):
    check()

@pytest.mark.parametrize("check", solver_checks(Boaster, graphs_per_family=3), ids=str)
def test_bad(check):
    check()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "their_solvers.py").write_text(SOLVERS, encoding="utf-8")
    return tmp_path


# ---------------------------------------------------------------------- pytest


def test_a_solver_of_ones_own_in_pytest(folder: Path) -> None:
    """One test a check: skipped with the reason if it does not apply, failed with the graph."""
    assert issubclass(ConformanceFailure, AssertionError)
    (folder / "test_theirs.py").write_text(TESTS, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-rsf", "-p", "no:cacheprovider", "test_theirs.py"]
    done = subprocess.run(
        [*command, "-W", "error"], cwd=folder, capture_output=True, text=True, timeout=120
    )
    out = done.stdout
    assert done.returncode == 1, done.stderr
    failed = set(re.findall(r"^FAILED test_theirs\.py::test_(\w+)\[([\w-]+)\]", out, re.M))
    checks = ("bound-below-optimum", "constant-shift", "offset-proofs")
    assert failed == {("bad", check) for check in checks}
    assert re.search(r"^SKIPPED .*the solver never claims an energy$", out, re.M)
    assert "the solver supports none of the random graphs at T > 0" in out
    # The message reproduces the graph, which is one of the smallest possible.
    expected = re.search(
        r"solve\(random_graph\('([\w-]+)', (\d+)\), .*?lower bound 1000000.0 is", out
    )
    assert expected is not None
    assert random_graph(expected[1], int(expected[2])).n_variables <= 1
    assert "`random_graph` in inference_lab.graph.random_graphs" in out


def test_solvers_are_given_as_objects_classes_or_specs(folder: Path) -> None:
    names = [check.name for check in solver_checks(ICM())]
    for solver in (ICM, "icm", "icm(restarts=2)", f"{folder / 'their_solvers.py'}:Zeros"):
        assert [check.name for check in solver_checks(solver)] == names
    needy = type(as_solver(f"{folder / 'their_solvers.py'}:Needy(n=1)"))
    with pytest.raises(SpecError, match=r"Needy needs the setting 'n'"):
        solver_checks(needy)
    with pytest.raises(TypeError, match="a solver is a spec string or a Solver object, got 3"):
        solver_checks(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a solver is a spec string or a Solver object"):
        solver_checks(int)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- processes apart

needs_fork = pytest.mark.skipif(not can_isolate(), reason="this system cannot fork")


def outcome_of(folder: Path, named: str, **settings: bool) -> dict[str, CheckResult]:
    reported: list[CheckResult] = []
    solver = f"{folder / 'their_solvers.py'}:{named}"
    results = run_checks(solver, reported.append, graphs_per_family=1, **settings)
    assert reported == results
    return {result.name: result for result in results}


def failed(results: dict[str, CheckResult]) -> set[str]:
    return {name for name, result in results.items() if result.verdict == Verdict.FAILED}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CheckResult]:
    """Return the results of an honest solver."""
    place = tmp_path_factory.mktemp("good")
    (place / "their_solvers.py").write_text(SOLVERS, encoding="utf-8")
    return outcome_of(place, "Zeros")


@needs_fork
@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("signal", "the process was killed by SIGSEGV"),
        ("exit", "the process ended with exit code 3, without an answer"),
        ("memory", "the run raised MemoryError"),
    ],
)
def test_a_solver_that_crashes_fails_a_check(
    folder: Path, good: dict[str, CheckResult], how: str, expected: str, capfd
) -> None:
    """Other checks still run; the message has the location and a graph that triggers the crash."""
    results = outcome_of(folder, f"Bad(how={how})")
    report = results["completes"].message
    call = re.match(r"solve\(random_graph\('([\w-]+)', (\d+)\), solver, seed=\d+\): ", report)
    assert call is not None and expected in report
    assert random_graph(call[1], int(call[2])).n_variables == 9
    assert "variables: 9, their labels: 2, 2" in report
    assert "completes" in failed(results)
    assert list(results) == list(good)
    # No check on other graphs fails.
    for name in ("one-variable", "no-edges", "labels-valid", "energy-true", "frozen", "picklable"):
        assert results[name].verdict == good[name].verdict == Verdict.PASSED
    assert failed(good) == set()
    assert "about to" not in capfd.readouterr().out


@needs_fork
def test_a_solver_that_hangs_is_ended_once(folder: Path, monkeypatch) -> None:
    monkeypatch.setattr(runs, "PATIENCE", 0.2)
    monkeypatch.setattr(separate, "_GRACE", 0.2)
    hung, real = [], separate._hung

    def seen(ended: ProcessResult) -> bool:
        if real(ended):
            hung.append(ended)
        return real(ended)

    monkeypatch.setattr(separate, "_hung", seen)
    results = outcome_of(folder, "Bad(how=hang)")
    report = results["completes"].message
    assert "a run must end by itself" in report and "was ended after 0.4 s" in report
    # Waiting once suffices: a second time would give the same.
    assert len({id(ended) for ended in hung}) == 1
    assert results["labels-valid"].verdict == Verdict.PASSED
    assert results["frozen"].verdict == Verdict.PASSED


@needs_fork
def test_solver_that_crashes_in_supports(folder: Path) -> None:
    results = outcome_of(folder, "BadToAsk")
    assert "exit code 4" in results["supports-answers"].message
    assert "random_graph(" in results["supports-answers"].message
    assert results["frozen"].verdict == Verdict.PASSED


@needs_fork
@pytest.mark.parametrize("named", ["Zeros", "Boaster", "Unpicklable"])
def test_processes_change_no_verdict(
    folder: Path, good: dict[str, CheckResult], named: str
) -> None:
    apart = good if named == "Zeros" else outcome_of(folder, named)
    here = outcome_of(folder, named, isolate=False)
    assert [(r.name, r.verdict) for r in apart.values()] == [
        (r.name, r.verdict) for r in here.values()
    ]
    if named == "Unpicklable":
        assert failed(apart) == {"picklable"}


def test_without_fork_the_checks_run_in_this_process(folder: Path, monkeypatch) -> None:
    monkeypatch.delattr(os, "fork")
    assert not can_isolate()
    assert failed(outcome_of(folder, "Zeros")) == set()
