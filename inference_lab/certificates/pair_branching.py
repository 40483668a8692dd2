"""Branch and bound over pairs of units that do or do not share a cluster.

The node with the least bound is explored next. In one child two units are merged, in the other a
hard cannot-link separates them. The pair is the one whose relaxed indicator is least certain, by
the rule of Piccialli, Russo Russo and Sudoso (see `peng_wei`).
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from inference_lab.certificates.hartigan import descend, placed
from inference_lab.certificates.partition_problem import (
    PartitionProblem,
    contracted,
    with_pairs,
)
from inference_lab.certificates.peng_wei import PartitionRelaxation, relax
from inference_lab.certificates.valid_inequalities import costs_of_pairs
from inference_lab.constraints.hard_pairs import InfeasibleConstraintsError
from inference_lab.graph.arrays import FloatArray, IntArray, connected

#: Relaxed indicators of a pair this close to 0 or 1 count as certain.
_CERTAIN = 1e-6


@dataclass
class BranchingState:
    """Best labels of the units, their objective, a lower bound on the optimum, and node count."""

    labels: IntArray
    objective: float
    lower_bound: float
    nodes: int = 0


def prove(
    problem: PartitionProblem,
    labels: IntArray,
    rng: np.random.Generator,
    *,
    tolerance: float,
    max_nodes: int,
    expired: Callable[[], bool],
    report: Callable[[BranchingState], None] = lambda progress: None,
) -> BranchingState:
    """Return better labels than the given ones, if any were found, and a bound on the optimum.

    Stops when the bound is within `tolerance` times the objective, after `max_nodes` relaxations,
    or when `expired`, called every few iterations, returns True.
    """
    state = BranchingState(labels, problem.objective(labels), -np.inf)
    number = itertools.count()
    queue: list[tuple[float, int, PartitionRelaxation]] = []
    #: The least bound of the nodes without children.
    closed = np.inf

    def close_to(value: float) -> bool:
        return problem.gap(state.objective, value) <= tolerance

    def note(value: float) -> None:
        state.lower_bound = max(state.lower_bound, min(value, state.objective))
        report(state)

    def root_bound(value: float) -> bool:
        note(value)
        return expired()

    first = relax(problem, state.objective, tolerance=tolerance, stop=root_bound)
    made = [(first, -np.inf)]
    while True:
        for relaxed, inherited in made:
            state.nodes += 1
            _round(problem, relaxed, state, rng)
            value = max(relaxed.bound, inherited)
            if close_to(value):
                closed = min(closed, value)
            else:
                heapq.heappush(queue, (value, next(number), relaxed))
        note(min(closed, queue[0][0] if queue else np.inf))
        if not queue or close_to(state.lower_bound) or state.nodes >= max_nodes or expired():
            return state
        bound, _, parent = heapq.heappop(queue)
        pair = _least_certain(parent)
        if pair is None:
            closed = min(closed, bound)
            made = []
            continue
        made = [
            (
                relax(
                    start.problem,
                    state.objective,
                    start=start,
                    tolerance=tolerance,
                    stop=lambda _: expired(),
                ),
                bound,
            )
            for start in _children(parent, pair)
        ]


def _least_certain(relaxed: PartitionRelaxation) -> tuple[int, int] | None:
    """Return the units whose relaxed indicator is least certain, None if all are certain."""
    z, mass = relaxed.matrix, relaxed.problem.mass
    diagonal = np.diagonal(z)
    # Entries of a partition are 0, or equal to both diagonal entries.
    shared = z / np.sqrt(np.outer(diagonal, diagonal))
    unsure = np.minimum(shared, 1.0 - shared)
    hard = relaxed.problem.ends[np.isinf(relaxed.problem.same)]
    unsure[hard[:, 0], hard[:, 1]] = unsure[hard[:, 1], hard[:, 0]] = 0.0
    np.fill_diagonal(unsure, 0.0)
    if unsure.max() < _CERTAIN:
        return None
    # Uncertainty is weighted by mass times squared distance, plus the cost of the pair.
    means = relaxed.problem.means
    squares = (means**2).sum(axis=1)
    away = np.maximum(squares[:, np.newaxis] + squares - 2.0 * (means @ means.T), 0.0)
    moved = np.minimum(mass[:, np.newaxis], mass)
    stake = moved * away
    _, together, first, apart, second = costs_of_pairs(relaxed.problem)
    np.add.at(stake, (*together.T,), first)
    np.add.at(stake, (*apart.T,), second)
    u, v = np.unravel_index(int((unsure * stake).argmax()), unsure.shape)
    return (int(u), int(v)) if unsure[u, v] >= _CERTAIN else None


def _children(parent: PartitionRelaxation, pair: tuple[int, int]) -> list[PartitionRelaxation]:
    """Return the starts of the two children, without a child that contradicts hard pairs."""
    problem = parent.problem
    ends = np.array([pair])
    apart = with_pairs(
        problem,
        np.concatenate([problem.ends, ends]),
        np.append(problem.same, np.inf),
        np.append(problem.differ, 0.0),
    )
    children = [parent.with_problem(apart)]
    try:
        joined = contracted(problem, ends)
    except InfeasibleConstraintsError:
        return children
    return [parent.contracted(joined, connected(problem.size, ends)), *children]


def _round(
    problem: PartitionProblem,
    relaxed: PartitionRelaxation,
    state: BranchingState,
    rng: np.random.Generator,
) -> None:
    """Descend from labels near the relaxation, and keep the result if it is the best.

    If ``Z`` is a partition, ``Z diag(n) x`` is the mean of the cluster of each unit (Peng and Wei
    2007, section 5).
    """
    node = relaxed.problem
    smooth = relaxed.matrix @ (node.mass[:, np.newaxis] * node.means)
    centroids = smooth[_far_apart(smooth, node.k)]
    labels = descend(node, placed(node, centroids, rng), rng)
    candidate = problem.of_units(labels[node.of_point])
    candidate = descend(problem, candidate, rng)
    value = problem.objective(candidate)
    if value < state.objective:
        state.labels, state.objective = candidate, value


def _far_apart(points: FloatArray, k: int) -> IntArray:
    """Return `k` rows, each the farthest from all previous ones."""
    rows = [int((points**2).sum(axis=1).argmax())]
    nearest = np.full(len(points), np.inf)
    while len(rows) < k:
        nearest = np.minimum(nearest, ((points - points[rows[-1]]) ** 2).sum(axis=1))
        rows.append(int(nearest.argmax()))
    return np.array(rows)
