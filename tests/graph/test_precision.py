"""Steps between energies, and bounds raised to them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import inference_lab as il
from inference_lab.conformance import exhaustive
from inference_lab.graph.arrays import FloatArray
from inference_lab.graph.precision import energy_step, next_energy, typical_range

seeds = st.integers(0, 2**32 - 1)


UNITS = [1.0, 3.0, 10.0, 0.25, 2.0**-80, 2.0**60, 0.01, 1e-7]


@given(seed=seeds, unit=st.sampled_from(UNITS), constant=st.floats(-10, 10))
def test_next_energy_is_at_most_the_optimum(seed: int, unit: float, constant: float) -> None:
    """All energies are multiples of the step, so rounding a bound up to one misses no energy."""
    rng = np.random.default_rng(seed)
    edges = [(0, 1), (1, 2), (2, 3), (3, 0)]

    def costs(*shape: int) -> FloatArray:
        return unit * rng.integers(-4, 5, size=shape)

    table = np.where(rng.random((2, 2)) < 0.2, np.inf, costs(2, 2))
    graph = il.FactorGraph.from_terms(
        costs(4, 2),
        [
            il.DiagonalTerms(edges, costs(4), costs(4)),
            il.SharedTable([(0, 2)], costs(2, 2), [2.0]),
            il.OwnTables([(1, 3)], [table]),
        ],
        [((0, 1, 2), costs(2, 2, 2))],
        unit * constant,
    )
    step = energy_step(graph)
    assert step / unit == pytest.approx(round(step / unit))
    energies = exhaustive(graph).energies
    steps = (energies[np.isfinite(energies)] - graph.constant) / (step or unit)
    if step:
        assert steps == pytest.approx(np.round(steps), abs=1e-9)
    optimum = energies.min()
    if math.isinf(optimum):
        return
    rounding = 1e-9 * unit
    for gap in (0.0, 1e-9 * unit, 0.3 * unit, 0.999 * step, 5.0 * unit):
        raised = next_energy(graph, optimum - gap, step)
        assert optimum - gap <= raised <= optimum + rounding
    if step:
        # Within one step the optimum itself is found.
        raised = next_energy(graph, optimum - 0.9 * step, step)
        assert raised == pytest.approx(optimum, abs=rounding)


@pytest.mark.parametrize(
    ("unary", "weight", "step"),
    [
        ([0.0, 6.0], 4.0, 2.0),
        ([0.5, 1.0], 2.0, 0.5),
        ([1.0, 2.0], 0.25, 0.25),
        ([12.34, 0.6], 1.1, 0.02),
        ([1e9 + 4.0, 1e9], 2.0, 2.0),
        ([1e9 + 0.5, 1e9], 2.0, 0.5),
        ([math.inf, 3.0], 6.0, 6.0),
        ([0.0, 0.0], 0.0, 0.0),
        ([math.pi, 0.0], 1.0, 0.0),
        ([1.0 / 3.0, 0.0], 1.0, 0.0),
    ],
)
def test_step_is_the_common_divisor_of_costs(unary, weight, step) -> None:
    graph = il.FactorGraph.potts([unary, unary], [(0, 1)], [weight])
    assert energy_step(graph) == step


def test_weights_of_tables_that_are_no_integers_leave_no_step() -> None:
    costs = [[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]]
    table = il.SharedTable([(0, 1)], costs, weights=0.3)
    graph = il.FactorGraph.from_terms([[0.0, 1.0, 2.0]] * 2, [table])
    assert energy_step(graph) == 0.0
    assert next_energy(graph, 0.1, 0.0) == 0.1


def test_offsets_change_no_typical_range() -> None:
    rng = np.random.default_rng(0)
    graph = il.FactorGraph.potts(rng.integers(0, 9, (6, 3)), [(0, 1), (2, 3)], 2.0)
    lifted = graph.with_unary(graph.unary_values + 2.0**40)
    assert typical_range(lifted) == typical_range(graph) > 0.0
    assert typical_range(il.FactorGraph.potts([[1.0], [2.0]], [], [])) == 0.0


def test_rounding_does_not_raise_a_bound_by_a_step() -> None:
    graph = il.FactorGraph.potts([[0.0, 4.0], [6.0, 0.0]], [(0, 1)], [2.0])
    assert next_energy(graph, 2.0 + 1e-9, 2.0) == 2.0 + 1e-9
    assert next_energy(graph, 2.0 + 1e-3, 2.0) == 4.0
    assert next_energy(graph, math.inf, 2.0) == math.inf
    assert next_energy(graph, -math.inf, 2.0) == -math.inf
