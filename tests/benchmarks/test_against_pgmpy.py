"""The E-step of 150 points against pgmpy's message passing on the dual."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import inference_lab as il
from inference_lab.convert import to_pgmpy
from inference_lab.registry.sources import as_problem

SPEC = "estep(data=iris, constraints=100, noise=0.1, centroids=constraints)"


@pytest.fixture(scope="module")
def graph() -> il.FactorGraph:
    """Build an E-step on iris with 100 constraints."""
    return as_problem(SPEC).graph


def test_mplp(measure: Callable[..., Any], graph: il.FactorGraph) -> None:
    """Time pgmpy's Mplp, on a model made beforehand, and the solvers that prove the optimum."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pgmpy.inference import Mplp

        model, _ = to_pgmpy(graph)
        optimum = il.solve(graph, "ilp")
        assert optimum.status == il.Status.OPTIMAL

        def above(energy: float) -> str:
            percent = 100 * (energy - optimum.energy) / optimum.energy
            return f"energy {energy:.4f}, {percent:.2f} % above the optimum"

        labels = measure(
            f"pgmpy Mplp: {SPEC}",
            lambda: Mplp(model).map_query(),
            note=lambda found: above(graph.energy([found[f"x{i}"] for i in range(150)])),
        )
        assert len(labels) == graph.n_variables
    for solver in ("icm", "loopy-bp", "mean-field", "lp-relaxation", "ilp"):
        solution = measure(
            f"{solver}: {SPEC}",
            lambda solver=solver: il.solve(graph, solver),
            target="optimum proved, in milliseconds" if solver == "lp-relaxation" else "",
            note=lambda s: f"{above(s.energy)}, {s.status}",
        )
    assert solution.status == il.Status.OPTIMAL
