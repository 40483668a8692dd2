"""The loop of iterative solvers: its stopping rules and its report."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

import inference_lab as il
from inference_lab.algorithms.dual.standstill import Standstill

GRAPH = il.FactorGraph.potts([[0.0, 2.0], [0.0, 1.0]], [], [])


@dataclass(frozen=True)
class Play(il.IterativeSolver[list[int]]):
    """Solver that takes steps from a list, one after another."""

    steps: tuple[il.Progress | None, ...] = (il.Progress(),) * 9
    max_sweeps: int = 5

    def start(self, graph, run):
        return []

    def step(self, state, run, done):
        state.append(done)
        return self.steps[len(state) - 1]

    def decode(self, state, run, done):
        return [0, done % 2] if done != 3 else None

    def finish(self, state, run, outcome):
        outcome.diagnostics["done"] = state
        return outcome


@pytest.mark.parametrize(
    ("steps", "limit", "done", "status"),
    [
        ((il.Progress(),) * 9, None, [0, 1, 2, 3, 4], "limit"),
        ((il.Progress(),) * 9, 2, [0, 1], "limit"),
        ((il.Progress(iterations=2),) * 9, None, [0, 2, 4], "limit"),
        ((il.Progress(), il.Progress(converged=True)), None, [0, 1], "converged"),
        ((il.Progress(lower_bound=-1.0), il.Progress(lower_bound=0.0)), None, [0, 1], "optimal"),
        ((il.Progress(), il.Progress(finished=True)), None, [0, 1], "limit"),
        ((il.Progress(), None), None, [0, 1], "limit"),
    ],
)
def test_stopping_conditions_of_a_run(steps, limit, done, status):
    solution = il.solve(GRAPH, Play(steps), max_iterations=limit)
    assert solution.diagnostics["done"] == done and solution.status == status
    made = [step.iterations for step in steps[: len(done)] if step is not None]
    assert solution.iterations == sum(made)


def test_labellings_are_offered_after_each_step_that_has_one():
    assert [point.energy for point in il.solve(GRAPH, Play()).trace] == [1.0, 0.0, 0.0, 1.0]


def test_a_budget_that_ends_within_the_first_step_leaves_the_cheapest_labels():
    solution = il.solve(GRAPH, Play((None,)))
    assert (
        solution.labels.tolist() == [0, 0] and solution.energy == 0.0 and solution.iterations == 0
    )


def test_an_infinite_bound_proves_that_there_is_no_labelling():
    solution = il.solve(GRAPH, Play((il.Progress(), il.Progress(lower_bound=math.inf))))
    assert solution.status == "infeasible" and solution.iterations == 2


def test_outcome_of_the_start_needs_no_iterations():
    class Known(Play):
        def start(self, graph, run):
            return il.Outcome(converged=True, iterations=7)

    assert il.solve(GRAPH, Known()).iterations == 7


def test_class_that_defines_the_step_declares_label_costs():
    class Supports(Play):
        label_costs = True

    class Other(Supports):
        def step(self, state, run, done):
            return None

    graph = GRAPH.with_label_costs(1.0)
    assert Supports().unsupported_reason(graph, 0.0) is None
    assert (
        Other().unsupported_reason(graph, 0.0) is not None
        and Play().unsupported_reason(graph, 0.0) is not None
    )


def test_bound_is_stalled_after_small_gains_in_succession():
    still = Standstill(tolerance=0.1, patience=2, scale=1.0)
    bounds = (0.0, 0.05, 1.0, 1.1, 1.2, 1.3)
    assert [still.reached(bound) for bound in bounds] == [False] * 4 + [True, True]
    assert still.bound == 1.3 and still.gain == pytest.approx(0.1)
