"""Messages of truncated quadratic terms equal those of the table."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import inference_lab as il
from inference_lab._numba import lean_kernel
from inference_lab.graph.arrays import (
    TRUNCATED_LINEAR,
    TRUNCATED_QUADRATIC,
    FloatArray,
    GraphArrays,
)
from inference_lab.kernels.messages import min_sum_message

message = lean_kernel(lambda g, h, cavity, out: min_sum_message(g, h, cavity, out))


def differences(k: int) -> npt.NDArray[np.int64]:
    return np.subtract.outer(np.arange(k), np.arange(k))


def graph_of(table: FloatArray, weight: float = 1.0) -> il.FactorGraph:
    """Return two variables and an edge, with its table shared or, at weight 1, individual."""
    unary = np.zeros((2, len(table)))
    if weight == 1.0:
        return il.FactorGraph.pairwise(unary, [(0, 1)], table[None])
    return il.FactorGraph.pairwise(unary, [(0, 1)], table, [weight])


def send(g: GraphArrays, h: int, cavity: FloatArray) -> tuple[FloatArray, float]:
    out = np.empty(cavity.size)
    return out, message(g, h, cavity, out)


@given(
    k=st.integers(3, 200),
    # The label distance at which the truncation is reached decides between the two algorithms.
    reach=st.floats(0.5, 300.0),
    weight=st.sampled_from([1.0, 1e-3, 7.5]),
    spread=st.sampled_from([0.0, 1e-6, 1.0, 1e4]),
    infinite=st.sampled_from([0.0, 0.3, 0.95]),
    smooth=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_messages_equal_the_minimum_over_the_table(
    k: int, reach: float, weight: float, spread: float, infinite: float, smooth: bool, seed: int
) -> None:
    """Check both directions, with infinite and equal entries; the cavity is unchanged."""
    rng = np.random.default_rng(seed)
    table = 2.0 + np.minimum(0.3 * differences(k) ** 2, 0.3 * reach**2)
    cavity = spread * rng.normal(size=k)
    if smooth:
        # A random walk leaves many parabolas on the envelope.
        cavity = np.cumsum(cavity)
    cavity[rng.random(k) < infinite] = np.inf
    graph = graph_of(table, weight)
    if np.unique(table).size > 2:
        assert graph.arrays.forms[0] in (TRUNCATED_QUADRATIC, TRUNCATED_LINEAR)
    expected = (weight * table + cavity).min(axis=1)
    finite = np.abs(cavity[np.isfinite(cavity)])
    tolerance = 1e-13 * (weight * table.max() + finite.max(initial=0.0))
    for h in (0, 1):
        given_cavity = cavity.copy()
        out, smallest = send(graph.arrays, h, given_cavity)
        assert smallest == out.min()
        assert (given_cavity == cavity).all()
        assert (np.isinf(out) == np.isinf(expected)).all()
        mask = np.isfinite(expected)
        assert np.abs(out[mask] - expected[mask]).max(initial=0.0) <= tolerance


@pytest.mark.parametrize("weight", [0.0, 1e-300])
def test_a_weight_without_effect_gives_a_constant_message(weight: float) -> None:
    """No division by a curvature that is zero or underflows."""
    table = 1e-100 * np.minimum(differences(5) ** 2, 11.0)
    out, smallest = send(graph_of(table, weight).arrays, 1, np.array([3.0, 1.0, 2.0, np.inf, 5.0]))
    assert (out == 1.0).all()
    assert smallest == 1.0
