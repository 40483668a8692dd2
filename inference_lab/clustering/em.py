"""Expectation-maximisation whose E-step is any solver, hard at T = 0 and soft at T > 0.

The loop labels the points (by a solver if constraints couple them, else each by its cheapest
cluster), lets the model improve its parameters in half-steps, and records the objective after each.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from inference_lab.clustering.cluster_model import Assignment, Model, as_labels
from inference_lab.clustering.e_step import AssignmentStep, Expectation, expected_cost
from inference_lab.clustering.fit_limit import check_limit
from inference_lab.graph.arrays import FloatArray, IntArray

M = TypeVar("M")


class HalfStep(NamedTuple):
    """One line of the history of a fit.

    ``step`` is "E" or the model's name of the half-step, ``objective`` its objective after it (the
    free energy at T > 0), ``seconds`` its time. ``energy``, ``lower_bound`` and ``status`` come
    from the solver in E-steps, for the points that constraints couple.

    Examples
    --------
    >>> from inference_lab.clustering import PCKMeans
    >>> X = [[0.0], [1.0], [5.0], [6.0]]
    >>> history = PCKMeans(2, random_state=0).fit(X, cannot_link=[(0, 3)]).history_
    >>> [(line.iteration, line.step, line.objective) for line in history[:2]]
    [(1, 'E', 2.0), (1, 'centroids', 1.0)]
    """

    iteration: int
    step: str
    objective: float
    seconds: float
    status: str | None = None
    energy: float = math.nan
    lower_bound: float = math.nan


@dataclass(frozen=True)
class Result:
    """Outcome of a fit, ``converged`` if the labels recurred or the objective stalled.

    ``unmet`` counts violated hard pairs.
    """

    assignment: Assignment
    objective: float
    history: list[HalfStep]
    n_iter: int
    converged: bool
    unmet: int = 0


def joined(before: Result, after: Result) -> Result:
    """Return the later of two results with the history and the iterations of both."""
    later = [line._replace(iteration=line.iteration + before.n_iter) for line in after.history]
    return replace(after, history=before.history + later, n_iter=before.n_iter + after.n_iter)


@dataclass
class Fit(Generic[M]):
    """One start of a fit: the final model and its result."""

    model: M
    result: Result
    #: Shares of the clusters at the last temperature above zero, if they differ from the result.
    shares: FloatArray | None = None
    #: Temperatures of the stages of annealing; None without.
    temperatures: list[float] | None = None

    @property
    def objective(self) -> float:
        """Return the objective, or ``inf`` if unknown, so that known objectives are preferred."""
        return self.result.objective if not np.isnan(self.result.objective) else np.inf

    @property
    def unmet(self) -> int:
        """Return the number of violated hard pairs."""
        return self.result.unmet

    @property
    def labels(self) -> IntArray:
        """Return the most probable cluster of each point."""
        assignment = self.result.assignment
        return as_labels(assignment if assignment.ndim == 1 else assignment.argmax(axis=1))


def maximise_expectation(
    model: Model,
    e_step: AssignmentStep,
    *,
    max_iter: int,
    tol: float,
    start: Assignment | None = None,
) -> Result:
    """Alternate E-steps and the model's half-steps until convergence."""
    history: list[HalfStep] = []
    assignment, objective, unmet = start, math.inf, 0
    iteration, small = 0, 1.0
    unchanged = still = converged = False
    while iteration < max_iter and not converged:
        check_limit()
        iteration += 1
        before = objective
        expectation, objective = _expect(model, e_step, assignment, iteration, history)
        unchanged = assignment is not None and np.array_equal(expectation.assignment, assignment)
        assignment, unmet = expectation.assignment, expectation.unmet
        parameters = tuple(array.copy() for array in model.parameters())
        if iteration == 1:
            # Relative, as costs may be in small units; at most 1, as likelihoods may pass zero.
            small = min(1.0, abs(objective))
        objective = _maximise(model, assignment, objective, iteration, history)
        still = all(map(np.array_equal, parameters, model.parameters()))
        stalled = abs(before - objective) <= tol * max(small, abs(objective))
        converged = (unchanged and still) or stalled
    # Relabel, because the last half-steps may have moved clusters away from some of their points.
    if assignment is None or not (converged and unchanged and still):
        expectation, value = _expect(model, e_step, assignment, iteration, history)
        if assignment is None or value <= objective:
            assignment, objective, unmet = expectation.assignment, value, expectation.unmet
    return Result(assignment, objective, history, iteration, converged, unmet)


def _expect(
    model: Model,
    e_step: AssignmentStep,
    previous: Assignment | None,
    iteration: int,
    history: list[HalfStep],
) -> tuple[Expectation, float]:
    """Take an E-step; return it with the objective of its labels or the free energy."""
    since = time.perf_counter()
    result = e_step(model, previous)
    soft = result.assignment.ndim == 2
    value = result.free_energy if soft else model.objective(as_labels(result.assignment))
    spent = time.perf_counter() - since
    solver = result.status, result.energy, result.lower_bound
    history.append(HalfStep(iteration, "E", value, spent, *solver))
    return result, value


def _maximise(
    model: Model,
    assignment: Assignment,
    objective: float,
    iteration: int,
    history: list[HalfStep],
) -> float:
    """Take the half-steps of the model; return the objective after them."""
    soft, labelled = assignment.ndim == 2, objective

    def expectation() -> float:
        shares = np.asarray(assignment, dtype=np.float64)
        return expected_cost(model.costs(), shares, model.point_weight())

    expected = expectation() if soft else 0.0
    since = time.perf_counter()
    for step in model.maximise(assignment):
        if soft:
            # With the shares fixed, the free energy changes as the expected costs do.
            objective = labelled + expectation() - expected
        else:
            objective = model.objective(as_labels(assignment))
        history.append(HalfStep(iteration, step, objective, time.perf_counter() - since))
        since = time.perf_counter()
    return objective
