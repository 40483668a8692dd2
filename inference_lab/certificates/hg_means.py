"""Population search for minimum sum-of-squares clustering, with pairs.

D. Gribel, T. Vidal, "HG-means: a scalable hybrid genetic algorithm for minimum sum-of-squares
clustering", Pattern Recognition 88 (2019): parents are matched by their centroids, the child takes
one centroid of each pair, one centroid is moved to a random point, and a descent follows. Here
the descent is Hartigan's method with Kempe chains, which takes pairs into account.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from inference_lab.certificates.hartigan import descend, placed
from inference_lab.certificates.partition_problem import PartitionProblem
from inference_lab.graph.arrays import FloatArray, IntArray

#: Sizes of the population after and before survivors are selected, as in the paper.
_FEWEST, _MOST = 10, 20


def search(
    problem: PartitionProblem,
    rng: np.random.Generator,
    start: IntArray | None = None,
    patience: int = 100,
    max_children: int = 1_000,
) -> IntArray:
    """Return the best labels (m,) of a population, never worse than `start`.

    Stops after `patience` children without an improvement, at the latest after `max_children`.
    """
    k = problem.k
    members: list[tuple[float, IntArray]] = []

    def add(labels: IntArray) -> float:
        descended = descend(problem, labels, rng)
        value = _value(problem, descended)
        members.append((value, descended))
        return value

    if start is not None:
        add(start)
    while len(members) < _FEWEST:
        add(placed(problem, _spread_out(problem, rng), rng))
    best = min(value for value, _ in members)
    idle = 0
    for _ in range(max_children if k > 1 else 0):
        idle += 1
        first, second = (_tournament(members, rng) for _ in range(2))
        child = _crossed(problem, first, second, rng)
        value = add(placed(problem, child, rng))
        if value < best - 1e-10 * abs(best):
            best = value
            idle = 0
        if idle >= patience:
            break
        if len(members) >= _MOST:
            members = _survivors(members)
    return min(members, key=lambda member: member[0])[1]


def _value(problem: PartitionProblem, labels: IntArray) -> float:
    """Return the objective, with a finite price for violated hard pairs."""
    relaxed = replace(problem, same=np.where(np.isinf(problem.same), 0.0, problem.same))
    return relaxed.objective(labels) + problem.unmet(labels) * problem.price


def _spread_out(problem: PartitionProblem, rng: np.random.Generator) -> FloatArray:
    """Return centroids at units drawn by k-means++."""
    seeds = [int(rng.choice(problem.size, p=problem.mass / problem.mass.sum()))]
    nearest = np.full(problem.size, np.inf)
    while len(seeds) < problem.k:
        away = ((problem.means - problem.means[seeds[-1]]) ** 2).sum(axis=1)
        nearest = np.minimum(nearest, away)
        weights = problem.mass * nearest
        total = weights.sum()
        weights = weights / total if total > 0 else np.full(problem.size, 1.0 / problem.size)
        seeds.append(int(rng.choice(problem.size, p=weights)))
    return problem.means[seeds]


def _tournament(members: list[tuple[float, IntArray]], rng: np.random.Generator) -> IntArray:
    """Return the better of two random members."""
    first, second = rng.integers(len(members), size=2).tolist()
    better = first if members[first][0] <= members[second][0] else second
    labels: IntArray = members[better][1]
    return labels


def _crossed(
    problem: PartitionProblem, first: IntArray, second: IntArray, rng: np.random.Generator
) -> FloatArray:
    """Return centroids of a child: one of each matched pair, one of them moved to a random unit."""
    one, other = problem.centroids(first), problem.centroids(second)
    matched = linear_sum_assignment(cdist(one, other, "sqeuclidean"))[1]
    taken = rng.integers(2, size=problem.k).astype(np.bool_)
    child = np.where(taken[:, np.newaxis], one, other[matched])
    gone = int(rng.integers(problem.k))
    rest = np.delete(child, gone, axis=0)
    away = np.full(problem.size, np.inf)
    for centroid in rest:
        away = np.minimum(away, ((problem.means - centroid) ** 2).sum(axis=1))
    # Half uniform, half proportional to distances, so that outliers do not get all new centroids.
    weights = problem.mass * np.sqrt(away) if len(rest) else problem.mass
    total = weights.sum()
    uniform = problem.mass / problem.mass.sum()
    weights = 0.5 * uniform + 0.5 * (weights / total if total > 0 else uniform)
    child[gone] = problem.means[rng.choice(problem.size, p=weights)]
    return child


def _survivors(members: list[tuple[float, IntArray]]) -> list[tuple[float, IntArray]]:
    """Return the best members; duplicates of an objective come last."""
    ordered = sorted(members, key=lambda member: member[0])
    fresh, twins = ordered[:1], ordered[:0]
    for member in ordered[1:]:
        same = np.isclose(member[0], fresh[-1][0], rtol=1e-9, atol=0.0)
        (twins if same else fresh).append(member)
    return (fresh + twins)[:_FEWEST]
