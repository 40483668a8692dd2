"""The E-step of constrained clustering at size: building the graph, and the fast solvers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from workloads import EStep, estep

import inference_lab as il


@pytest.fixture(scope="module")
def large() -> EStep:
    """Draw 100,000 points, 20 clusters and 200,000 constraints, half within a cluster."""
    return estep(100_000, 20, 200_000)


@pytest.fixture(scope="module")
def graph(large: EStep) -> il.FactorGraph:
    """Build the graph of `large`."""
    return large.build()


@pytest.mark.parametrize(
    ("solver", "target"),
    [("icm", "< 0.5 s"), ("loopy-bp", "< 3 s"), ("mean-field", "< 3 s")],
    ids=["icm", "loopy-bp", "mean-field"],
)
def test_solver(
    measure: Callable[..., Any], large: EStep, graph: il.FactorGraph, solver: str, target: str
) -> None:
    """A solver to convergence, on one core."""

    def describe(solution: il.Solution) -> str:
        accuracy = float(np.mean(solution.labels == large.truth))
        return (
            f"energy {solution.energy:.0f}, {solution.iterations} sweeps, accuracy {accuracy:.3f}"
        )

    what = f"{solver}: 100,000 points, 20 clusters, 200,000 constraints"
    solution = measure(what, lambda: il.solve(graph, solver), target=target, note=describe)
    assert solution.status == il.Status.CONVERGED
    alone = float(np.mean(large.unary.argmin(axis=1) == large.truth))
    # The constraints must matter, or the benchmark measures reading the unaries.
    assert float(np.mean(solution.labels == large.truth)) > alone + 0.1


@pytest.mark.parametrize(
    ("points", "target"), [(100_000, ""), (1_000_000, "< 2 s")], ids=["1e5", "1e6"]
)
def test_build(measure: Callable[..., Any], points: int, target: str) -> None:
    """From arrays to a graph, adjacency included."""
    arrays = estep(points, 20, 2 * points)
    graph = measure(
        f"building: {points:,} points, 20 clusters, {2 * points:,} constraints",
        arrays.build,
        target=target,
    )
    assert graph.n_variables == points
    assert graph.n_edges > 1.9 * points
