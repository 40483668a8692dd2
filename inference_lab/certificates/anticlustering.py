"""Bounds of large problems from groups of units that resemble the whole, bounded one by one.

The best partitions of the groups together cost at most as much as any partition of the whole, so
bounds of groups add up to a bound. The bound is tighter if the means of a cluster's units agree
between groups; exchanges between groups achieve this.

B. Croella, V. Piccialli, A. Rinaldi, A. M. Sudoso, "Strong bounds for large-scale minimum
sum-of-squares clustering", arXiv:2502.08397 (2025). M. Papenberg, G. W. Klau, "Using
anticlustering to partition data sets into equivalent parts", Psychological Methods 26 (2021).
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from joblib import Parallel, delayed

from inference_lab._numba import kernel
from inference_lab.certificates.hartigan import descend
from inference_lab.certificates.partition_problem import PartitionProblem, restricted
from inference_lab.certificates.peng_wei import relax, spectral_bound
from inference_lab.graph.arrays import FloatArray, IntArray

#: Exchanges tried for each unit.
_TRIALS = 40


@kernel
def _exchange(
    means: FloatArray,
    mass: FloatArray,
    members: IntArray,
    group: IntArray,
    count: int,
    partners: IntArray,
) -> None:
    """Exchange members of a cluster between groups while this brings the group means closer."""
    d = means.shape[1]
    sums, masses = np.zeros((count, d)), np.zeros(count)
    for u in members:
        masses[group[u]] += mass[u]
        sums[group[u]] += mass[u] * means[u]
    trial = 0
    for _ in range(partners.size // members.size):
        for u in members:
            v = members[partners[trial]]
            trial += 1
            a, b = group[u], group[v]
            if a == b:
                continue
            mass_a = masses[a] - mass[u] + mass[v]
            mass_b = masses[b] - mass[v] + mass[u]
            change = 0.0
            for j in range(d):
                shift = mass[v] * means[v, j] - mass[u] * means[u, j]
                change += (sums[a, j] + shift) ** 2 / mass_a - sums[a, j] ** 2 / masses[a]
                change += (sums[b, j] - shift) ** 2 / mass_b - sums[b, j] ** 2 / masses[b]
            if change < 0.0:
                for j in range(d):
                    shift = mass[v] * means[v, j] - mass[u] * means[u, j]
                    sums[a, j] += shift
                    sums[b, j] -= shift
                masses[a], masses[b] = mass_a, mass_b
                group[u], group[v] = b, a


def anticlusters(
    problem: PartitionProblem, labels: IntArray, count: int, rng: np.random.Generator
) -> IntArray:
    """Return the group of each unit, shape (m,); clusters are spread evenly over the groups."""
    group = np.empty(problem.size, dtype=np.int64)
    dealt = 0
    for h in range(problem.k):
        members = rng.permutation(np.flatnonzero(labels == h))
        group[members] = (dealt + np.arange(members.size)) % count
        dealt += members.size
        if members.size > count > 1:
            centre = problem.mass[members] @ problem.means[members] / problem.mass[members].sum()
            partners = rng.integers(members.size, size=_TRIALS * members.size)
            _exchange(problem.means - centre, problem.mass, members, group, count, partners)
    return group


def bound_by_groups(
    problem: PartitionProblem,
    labels: IntArray,
    rng: np.random.Generator,
    *,
    size: int,
    tolerance: float,
    deadline: float,
    n_jobs: int | None,
    report: Callable[[float], None],
) -> float:
    """Return a lower bound of the objective, from groups of about `size` units.

    After `deadline` (of `time.monotonic`, shared by processes) groups keep their spectral bounds.
    `report` is called with each better bound.
    """
    count = -(-problem.size // size)
    group = anticlusters(problem, labels, count, rng)
    order = np.argsort(group, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(group, minlength=count))[:-1])
    problems = [restricted(problem, part) for part in parts if part.size]
    bounds = np.array([spectral_bound(part) for part in problems])
    best = max(spectral_bound(problem), problem.constant + float(bounds.sum()))
    report(best)
    seeds = rng.integers(2**31, size=len(problems))
    run = Parallel(n_jobs=n_jobs, return_as="generator")(
        delayed(_bound)(subproblem, labels[part], int(seed), tolerance, deadline)
        for subproblem, part, seed in zip(problems, parts, seeds, strict=True)
    )
    for at, bound in enumerate(run):
        bounds[at] = max(bounds[at], bound)
        total = problem.constant + float(bounds.sum())
        if total > best:
            best = total
            report(best)
    return best


def _bound(
    part: PartitionProblem, labels: IntArray, seed: int, tolerance: float, deadline: float
) -> float:
    """Return a lower bound of a group."""
    if time.monotonic() >= deadline:
        return -np.inf
    target = part.objective(descend(part, labels, np.random.default_rng(seed)))
    return relax(
        part, target, tolerance=tolerance, stop=lambda _: time.monotonic() >= deadline
    ).bound
