"""Search and bounds of partitions with pairs, against all partitions."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from strategies import partitions

from inference_lab.certificates.hartigan import descend
from inference_lab.certificates.hg_means import search
from inference_lab.certificates.pair_branching import prove
from inference_lab.certificates.partition_problem import (
    PartitionProblem,
    partition_problem,
    restricted,
)
from inference_lab.certificates.peng_wei import relax, spectral_bound
from inference_lab.constraints.hard_pairs import InfeasibleConstraintsError


def random_problem(seed: int, n: int) -> tuple[np.ndarray, PartitionProblem, dict]:
    """Return points, their problem, and the weights and pairs of each kind."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(n, int(rng.integers(1, 4)))) + rng.integers(3, size=(n, 1)) * 2.0
    pairs = np.array(list(itertools.combinations(range(n), 2)))
    links = pairs[rng.permutation(len(pairs))[: int(rng.integers(0, n + 2))]]
    split = int(rng.integers(len(links) + 1))
    costs = rng.exponential(2.0, size=len(links))
    costs[rng.random(len(links)) < rng.choice([0.0, 0.3, 1.0])] = np.inf
    arguments = {
        "must_link": links[:split],
        "ml_costs": costs[:split],
        "cannot_link": links[split:],
        "cl_costs": costs[split:],
        "sample_weight": rng.integers(1, 4, size=n).astype(float) if rng.random() < 0.5 else None,
        "partial_labels": None,
    }
    if rng.random() < 0.3:
        arguments["partial_labels"] = np.where(rng.random(n) < 0.3, rng.integers(2, size=n), -1)
    k = int(rng.integers(1, 5))
    if arguments["partial_labels"] is not None:
        k = max(k, 2)
    return points, partition_problem(points, k, **arguments), arguments


def cost(points: np.ndarray, labels: np.ndarray, arguments: dict) -> float:
    """Return the objective from its definition, point by point."""
    counts = (
        np.ones(len(points)) if arguments["sample_weight"] is None else arguments["sample_weight"]
    )
    total = 0.0
    for h in np.unique(labels):
        inside = labels == h
        mean = np.average(points[inside], axis=0, weights=counts[inside])
        total += float(counts[inside] @ ((points[inside] - mean) ** 2).sum(axis=1))
    for (i, j), weight in zip(arguments["must_link"], arguments["ml_costs"], strict=True):
        total += weight if labels[i] != labels[j] else 0.0
    for (i, j), weight in zip(arguments["cannot_link"], arguments["cl_costs"], strict=True):
        total += weight if labels[i] == labels[j] else 0.0
    return total


def optimum(points: np.ndarray, k: int, arguments: dict) -> float:
    """Return the least objective of all partitions that known labels allow."""
    n = len(points)
    labels = partitions(n, k)
    partial_labels = (
        np.full(n, -1) if arguments["partial_labels"] is None else arguments["partial_labels"]
    )
    for i, j in itertools.combinations(np.flatnonzero(partial_labels >= 0), 2):
        labels = labels[(labels[:, i] == labels[:, j]) == (partial_labels[i] == partial_labels[j])]
    counts = np.ones(n) if arguments["sample_weight"] is None else arguments["sample_weight"]
    total = np.zeros(len(labels))
    for h in range(k):
        inside = (labels == h) * counts
        size = np.maximum(inside.sum(axis=1), 1.0)
        total -= ((inside @ points) ** 2).sum(axis=1) / size
    total += counts @ (points**2).sum(axis=1)
    for kind, costs, apart in (("must_link", "ml_costs", True), ("cannot_link", "cl_costs", False)):
        for (i, j), weight in zip(arguments[kind], arguments[costs], strict=True):
            total[(labels[:, i] != labels[:, j]) == apart] += weight
    return float(total.min(initial=math.inf))


def built(seed: int, n: int) -> tuple[np.ndarray, PartitionProblem, dict]:
    """Return a random problem; skip the test if its hard pairs contradict each other."""
    try:
        return random_problem(seed, n)
    except InfeasibleConstraintsError:
        assume(False)
        raise


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(2, 10))
def test_branch_and_bound_proves_the_optimum_of_all_partitions(seed: int, n: int) -> None:
    points, problem, made = built(seed, n)
    best = optimum(points, problem.k, made)
    assume(math.isfinite(best))
    rng = np.random.default_rng(0)
    start = search(problem, rng)
    assert problem.objective(start) == pytest.approx(cost(points, start[problem.of_point], made))
    state = prove(problem, start, rng, tolerance=1e-4, max_nodes=200, expired=lambda: False)
    assert state.objective == pytest.approx(best, rel=1e-9, abs=1e-9)
    assert state.lower_bound <= best + 1e-9 * problem.spread
    assert problem.gap(state.objective, state.lower_bound) <= 1e-4


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(2, 10))
@example(48, 60, 6)  # a soft cannot-link between two of three points, for three clusters
def test_a_bound_holds_wherever_the_relaxation_is_stopped(
    seed: int, iterations: int, n: int
) -> None:
    points, problem, made = built(seed, n)
    best = optimum(points, problem.k, made)
    assume(math.isfinite(best))
    relaxed = relax(problem, best, max_iterations=iterations)
    room = 1e-9 * problem.spread
    assert spectral_bound(problem) <= best + room
    assert -math.inf < relaxed.bound <= best + room
    units = np.arange(problem.size)
    parts = [restricted(problem, part) for part in (units[::2], units[1::2]) if part.size]
    assert problem.constant + sum(relax(p, best).bound for p in parts) <= best + room


@settings(max_examples=30)
@given(st.integers(0, 10**6))
def test_descent_ends_where_no_single_move_gains(seed: int) -> None:
    _, problem, _ = built(seed, 12)
    rng = np.random.default_rng(seed)
    start = rng.integers(problem.k, size=problem.size)
    minimum = descend(problem, start, rng)
    assert problem.unmet(minimum) <= problem.unmet(start)
    value = problem.objective(minimum)
    if problem.unmet(start) == 0:
        assert value <= problem.objective(start) + 1e-9
    for u, h in itertools.product(range(problem.size), range(problem.k)):
        moved = minimum.copy()
        moved[u] = h
        if math.isfinite(value):
            assert problem.objective(moved) >= value - 1e-8 * problem.spread


def test_a_kempe_chain_crosses_hard_cannot_links() -> None:
    """Single moves are blocked: each point has a cannot-link into its right cluster."""
    points = np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2]])
    apart = np.array([[0, 3], [1, 4], [2, 5]])
    nothing = np.zeros((0, 2), dtype=np.int64)
    problem = partition_problem(points, 2, nothing, np.zeros(0), apart, np.full(3, np.inf))
    start = np.array([0, 0, 1, 1, 1, 0])
    labels = descend(problem, start, np.random.default_rng(0))
    assert labels[0] == labels[1] == labels[2] != labels[3] == labels[4] == labels[5]
