"""The message of a run that ended before it converged names the limit."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest
from click.testing import CliRunner

import inference_lab as il
from inference_lab.algorithms.iteration import IterativeSolver, Progress
from inference_lab.cli import main
from inference_lab.contract import Outcome, Solver, Status
from inference_lab.problem import Problem
from inference_lab.registry.sources import as_problem

#: Frustrated, so that neither belief propagation converges nor a bound is met at once.
HARD = as_problem("potts-grid(height=9, width=9, labels=3, frustration=0.5)").graph


@dataclass(frozen=True)
class Waits(Solver):
    """Solver that ends when it must, or at once, and reports a limit or none."""

    wait: bool = False
    limit: str = ""

    def run(self, graph, run):
        run.offer([0] * graph.n_variables)
        while self.wait and not run.should_stop():
            time.sleep(0.001)
        return Outcome(stopped_by=self.limit)


@dataclass(frozen=True)
class Halves(IterativeSolver):
    """Iterative solver with another limit than `max_sweeps`."""

    passes: int = 3
    iteration_setting = "passes"

    def start(self, graph, run):
        return None

    def step(self, state, run, done):
        return Progress()


@dataclass(frozen=True)
class Fixed(Halves):
    """Iterative solver whose limit is no setting."""

    @property
    def most_iterations(self):
        return 1000

    iteration_setting = "none"


@pytest.mark.parametrize(
    ("solver", "limits", "message"),
    [
        (Waits(wait=True), {"time_limit": 0.05}, "stopped by the time limit of 0.05 s"),
        ("loopy-bp", {"max_iterations": 2}, "stopped by the run's limit of 2 iterations"),
        ("loopy-bp", {"max_iterations": 1}, "stopped by the run's limit of 1 iteration"),
        ("loopy-bp(max_sweeps=2)", {}, "stopped by the solver's own limit: max_sweeps=2"),
        (
            "trw-s(max_sweeps=2)",
            {"time_limit": 60},
            "stopped by the solver's own limit: max_sweeps=2",
        ),
        (
            "mplp(tighten=cycles, max_sweeps=9)",
            {},
            "stopped by the solver's own limit: max_sweeps=9",
        ),
        (
            "semidefinite(iterations=1)",
            {},
            "stopped by the solver's own limit: iterations=1",
        ),
        ("auto(seconds=0.0001)", {}, "stopped by the solver's own limit: seconds=0.0001"),
        (Halves(), {}, "no labelling was offered; stopped by the solver's own limit: passes=3"),
        (Fixed(), {}, "no labelling was offered; stopped by the solver's own limit: 1000 iterat"),
        (Waits(limit="max_bytes=5"), {}, "stopped by the solver's own limit: max_bytes=5"),
        # A limit of the run comes first where both were reached.
        (
            "loopy-bp(max_sweeps=2)",
            {"max_iterations": 2},
            "stopped by the run's limit of 2 iterations",
        ),
        (Waits(), {}, "ended by itself before it converged"),
        (
            Waits(),
            {"time_limit": 60},
            "ended before it converged, short of the time limit of 60 s",
        ),
    ],
)
def test_a_limit_is_named(solver, limits, message):
    solution = il.solve(HARD, solver, **limits)
    assert solution.status is Status.LIMIT
    assert solution.message.startswith(message)
    assert message in repr(solution)


def test_runs_that_converge_need_no_reason():
    for solver in ("icm", "junction-tree"):
        solution = il.solve(il.FactorGraph.potts([[0.0, 1.0]] * 2, [(0, 1)], 0.5), solver)
        assert solution.status in (Status.CONVERGED, Status.OPTIMAL) and solution.message == ""


def test_tables_have_the_limit_as_a_note(tmp_path, unforked):
    comparison = il.compare(
        Problem("hard", HARD),
        ["loopy-bp(max_sweeps=2)", "trw-s(max_sweeps=2)", "icm"],
        seeds=2,
        store=tmp_path / "runs.jsonl",
    )
    text = comparison.to_text()
    assert text.count("limit [1]") == 2
    assert text.count("[1] stopped by the solver's own limit: max_sweeps=2") == 1
    assert "max_sweeps=2" in comparison.frame["message"][0]
    report = CliRunner().invoke(main, ["report", str(tmp_path)])
    assert report.exit_code == 0
    assert "max_sweeps=2" in (tmp_path / "report" / "README.md").read_text()
