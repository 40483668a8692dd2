"""Cycle cuts: what rounds of them cost, and what they do for the bound."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from inference_lab.algorithms.linear.backends import Relaxation, Relaxed
from inference_lab.algorithms.linear.cycle_cuts import tighten
from inference_lab.algorithms.linear.model import build_linear_model
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.registry.sources import as_problem


def rounds(graph: FactorGraph) -> list[Relaxed]:
    """Return the solution without cuts, and after each round."""
    relaxation = Relaxation(build_linear_model(graph))
    first = relaxation.solve()
    return [first, *tighten(graph, relaxation, first)]


@pytest.mark.parametrize("constraints", [300, 750])
def test_cuts(measure: Callable[..., Any], constraints: int) -> None:
    """E-steps of iris, 20% of the constraints flipped: the relaxation, and its rounds of cuts."""
    spec = (
        f"estep(data=iris, constraints={constraints}, noise=0.2, weight=30, centroids=constraints)"
    )
    graph = as_problem(spec).graph
    solutions = measure(
        f"cycle cuts: {spec}",
        lambda: rounds(graph),
        rounds=3,
        note=lambda found: (
            f"bound {found[0].bound:.1f} to {found[-1].bound:.1f} in {len(found) - 1} rounds"
        ),
    )
    # The optimum of the first is 1153.6; the best labelling known of the second costs 4782.3.
    assert solutions[-1].bound > {300: 1125.0, 750: 3850.0}[constraints]
