"""The sparse LP: what building the model costs beside solving it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from workloads import estep

import inference_lab as il
from inference_lab.algorithms.linear.backends import Relaxation
from inference_lab.algorithms.linear.model import build_linear_model
from inference_lab.algorithms.linear.program import LinearModel


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_lp(measure: Callable[..., Any], noise: float) -> None:
    """3,000 points, 10 clusters, 6,000 constraints: the model, HiGHS, and the whole solver."""
    graph = estep(3_000, 10, 6_000, noise=noise).build()
    setting = f"3,000 points, 10 clusters, 6,000 constraints, noise {noise:g}"

    def size(model: LinearModel) -> str:
        return f"{model.n_columns:,} columns, {model.n_rows:,} rows, {model.n_nonzeros:,} nonzeros"

    model = measure(
        f"LP, building the model: {setting}",
        lambda: build_linear_model(graph),
        target="a tenth of HiGHS",
        note=size,
    )
    relaxed = measure(
        f"LP, HiGHS: {setting}",
        lambda: Relaxation(model).solve(),
        rounds=3,
        note=lambda r: f"bound {r.bound:.3f}",
    )
    solution = measure(
        f"lp-relaxation: {setting}",
        lambda: il.solve(graph, "lp-relaxation"),
        rounds=3,
        note=lambda s: f"energy {s.energy:.3f}, {s.status}",
    )
    assert relaxed.bound == pytest.approx(solution.lower_bound)
