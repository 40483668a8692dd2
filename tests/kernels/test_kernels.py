"""The operations that all solvers share, against numpy on dense tables."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import Recipe, recipes, truncated_linear

from inference_lab.graph.arrays import TRUNCATED_LINEAR, TRUNCATED_QUADRATIC
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.random_graphs import FAMILIES, random_graph
from inference_lab.graph.terms import DiagonalTerms, SharedTable
from inference_lab.kernels.factor_messages import factor_message
from inference_lab.kernels.messages import (
    aligned_zeros,
    cost_scale,
    edge_cost,
    first_label,
    greatest,
    least,
    local_costs,
    lower_envelope,
    min_sum_message,
    repulsive_message,
    slot_ptr,
    sum_product_message,
    unflatten,
)
from inference_lab.solvers.trw_s import linear_message

INF = math.inf
TEMPERATURES = (1e-3, 0.3, 1.0, 50.0, 1e3)


def soft(values: np.ndarray, temperature: float, axis: int | tuple[int, ...] = 0) -> np.ndarray:
    """Return ``-T log sum exp(-values / T)``, the minimum at T = 0; ``+inf`` if all are."""
    minimum = values.min(axis=axis, keepdims=True)
    base = np.squeeze(minimum, axis=axis)
    if temperature == 0:
        return base
    shifted = values - np.where(np.isfinite(minimum), minimum, 0.0)
    total = np.exp(-shifted / temperature).sum(axis)
    return np.where(np.isfinite(base), base - temperature * np.log(total.clip(1e-300)), INF)


def cavities(rng: np.random.Generator, k: int) -> list[np.ndarray]:
    """Draw incoming sums: spread, flat, tied, with and without infinities, huge."""
    spread = rng.normal(scale=3.0, size=k)
    hole = spread.copy()
    hole[rng.integers(k)] = INF
    single = np.full(k, INF)
    single[rng.integers(k)] = 1.5
    return [
        spread,
        np.zeros(k),
        rng.integers(0, 2, size=k).astype(float),
        hole,
        single,
        np.full(k, INF),
        1e6 * spread,
        spread + 1e6,
        1e-6 * spread,
    ]


def check_messages(graph: FactorGraph, rng: np.random.Generator) -> int:
    """Compare all pairwise messages of a graph with the dense minimum and sum; count them."""
    a = graph.arrays
    width = int(graph.cardinalities.max())
    checked = 0
    for h in range(2 * graph.n_edges):
        e, side = divmod(h, 2)
        table = graph.edge_table(e) if side == 1 else graph.edge_table(e).T
        ka, kb = table.shape
        for cavity in cavities(rng, ka):
            sums = table + cavity[:, None]
            scale = max(1.0, np.abs(sums[np.isfinite(sums)]).max(initial=0.0))
            padded = np.concatenate([cavity, np.full(width - ka, np.nan)])
            for temperature in (0.0, *TEMPERATURES):
                out = np.full(width, np.nan)
                if temperature == 0.0:
                    smallest = min_sum_message(a, h, padded, out)
                else:
                    smallest = sum_product_message(a, h, temperature, padded, out)
                expected = soft(sums, temperature)
                same = out[:kb] == expected
                with np.errstate(invalid="ignore"):
                    near = np.abs(out[:kb] - expected) <= 1e-14 * scale + 1e-13 * temperature
                assert (same | near).all(), (table, cavity, temperature, out, expected)
                assert smallest == out[:kb].min()
                assert np.isnan(out[kb:]).all(), "wrote beyond the receiver's labels"
                assert (padded[:ka] == cavity).all(), "the cavity is not restored"
                checked += 1
    return checked


# ---------------------------------------------------------------------- messages


@given(recipes(min_variables=2, higher_order=False), st.integers(0, 2**32 - 1))
def test_messages_of_any_graph(recipe: Recipe, seed: int):
    check_messages(recipe.build(), np.random.default_rng(seed))


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("k", [3, 4, 7, 40, 64])
def test_closed_forms_give_the_messages_of_their_tables(k, power):
    """Check every truncation, both directions of the edge, and ties."""
    rng = np.random.default_rng(k)
    distance = np.abs(np.subtract.outer(np.arange(float(k)), np.arange(float(k)))) ** power
    checked = 0
    for truncation in (
        1.0,
        1.5,
        2.0,
        4.0,
        30.0,
        7.0**power,
        distance.max() - 0.5,
        distance.max(),
        INF,
    ):
        for slope in (1.0, 0.3):
            table = np.minimum(slope * distance, slope * truncation) - 2.0
            weights = [0.0, 0.5, 3.0]
            graph = FactorGraph.pairwise(np.zeros((4, k)), [(0, 1), (2, 1), (2, 3)], table, weights)
            if not graph.n_edges or graph.edge_kinds[0] != 2:
                continue
            form = {1: TRUNCATED_LINEAR, 2: TRUNCATED_QUADRATIC}[power]
            # A truncation within the first step leaves no slope to distinguish the two forms.
            assert graph.arrays.forms[0] == form or truncation <= 4.0
            if k < 50 or slope == 1.0:
                checked += check_messages(graph, rng)
    assert checked > 0


def test_sum_product_of_a_sharp_peak_keeps_small_terms():
    """Without its own label a peak's message comes from the small remaining terms."""
    graph = FactorGraph.from_terms(np.zeros((2, 3)), [DiagonalTerms([(0, 1)], INF, 0.0)])
    cavity = np.array([0.0, 100.0, 101.0])
    out = np.empty(3)
    sum_product_message(graph.arrays, 1, 1.0, cavity, out)
    behind = 100.0 - math.log(1 + math.exp(-1.0))
    assert out[0] == pytest.approx(behind, rel=1e-15)
    assert out[1] == pytest.approx(-math.log(1 + math.exp(-101.0)), abs=1e-15)


# ---------------------------------------------------------------------- factor messages


@given(recipes(min_variables=3, max_states=150), st.integers(0, 2**32 - 1))
def test_factor_messages(recipe: Recipe, seed: int):
    graph = recipe.build()
    rng = np.random.default_rng(seed)
    check_factor_messages(graph, rng)


def check_factor_messages(graph: FactorGraph, rng: np.random.Generator) -> int:
    ptr = slot_ptr(graph)
    incoming = rng.normal(scale=2.0, size=ptr[-1])
    incoming[rng.random(ptr[-1]) < 0.1] = INF
    width = int(graph.cardinalities.max(initial=1))
    digits = np.empty(4, dtype=np.int64)
    checked = 0
    for slot, f in enumerate(graph.arrays.slot_factor.tolist()):
        scope, table = graph.higher_order(f)
        position = slot - int(graph.factor_ptr[f])
        sums = table
        for s in range(len(scope)):
            if s != position:
                at = int(graph.factor_ptr[f]) + s
                shape = [-1 if axis == s else 1 for axis in range(len(scope))]
                sums = sums + incoming[ptr[at] : ptr[at + 1]].reshape(shape)
        others = tuple(axis for axis in range(len(scope)) if axis != position)
        scale = max(1.0, np.abs(sums[np.isfinite(sums)]).max(initial=0.0))
        for temperature in (0.0, *TEMPERATURES):
            out = np.full(width, np.nan)
            before = incoming.copy()
            smallest = factor_message(graph.arrays, slot, temperature, incoming, ptr, out, digits)
            expected = soft(sums, temperature, axis=others)
            k = expected.size
            with np.errstate(invalid="ignore"):
                near = np.abs(out[:k] - expected) <= 1e-14 * scale + 1e-13 * temperature
            assert ((out[:k] == expected) | near).all()
            assert smallest == out[:k].min() and np.isnan(out[k:]).all()
            assert (incoming == before).all()
            checked += 1
    return checked


# ---------------------------------------------------------------------- local costs


def check_local_costs(graph: FactorGraph, x: np.ndarray) -> None:
    width = int(graph.cardinalities.max(initial=1))
    cost, infinite = np.empty(width + 1), np.empty(width + 1, dtype=np.int64)
    dense = list(graph.factors())
    for i in range(graph.n_variables):
        k = int(graph.cardinalities[i])
        finite, forbidden, largest = np.zeros(k), np.zeros(k, dtype=int), 0.0
        for a in range(k):
            x_a = x.copy()
            x_a[i] = a
            entries = [float(t[tuple(x_a[list(scope)])]) for scope, t in dense if i in scope]
            finite[a] = math.fsum(c for c in entries if c < INF)
            forbidden[a] = sum(c == INF for c in entries)
            largest = max(largest, math.fsum(abs(c) for c in entries if c < INF))
        before = x.copy()
        cost[:], infinite[:] = np.nan, -99
        scale = local_costs(graph.arrays, x, i, cost, infinite)
        assert np.isnan(cost[k:]).all() and (infinite[k:] == -99).all(), "wrote beyond the labels"
        assert (infinite[:k] == forbidden).all()
        assert np.abs(cost[:k] - finite).max() <= 1e-14 * max(1.0, scale)
        assert scale >= largest * (1 - 1e-12), "the scale is an upper bound on what was added up"
        assert (x == before).all()
        allowed = np.isfinite(graph.unary_of(i))
        cost[:] = np.nan
        if local_costs(graph.arrays, x, i, cost, None) < INF and allowed.any():
            # Without counts, costs are the same up to a constant.
            assert (np.isinf(cost[:k]) == ~allowed).all() and np.isnan(cost[k:]).all()
            assert np.ptp((cost[:k] - finite)[allowed]) <= 1e-14 * max(1.0, scale)


@given(recipes(min_variables=1), st.data())
def test_local_costs_of_any_graph(recipe: Recipe, data: st.DataObject):
    graph = recipe.build()
    labels = [data.draw(st.integers(0, k - 1)) for k in recipe.cardinalities]
    check_local_costs(graph, np.array(labels, dtype=np.int64))


def test_local_costs_that_are_not_counted_have_an_infinite_scale():
    edges = [(0, 1)]
    for graph in (
        FactorGraph.potts(np.zeros((2, 3)), edges, INF),
        FactorGraph.from_terms(np.zeros((2, 3)), [DiagonalTerms(edges, INF, 0.0)]),
        FactorGraph.pairwise(np.zeros((2, 3)), edges, np.where(np.eye(3) > 0, INF, [1.0, 2, 4])),
    ):
        cost = np.empty(3)
        for i in (0, 1):
            assert local_costs(graph.arrays, np.array([1, 1]), i, cost, None) == INF


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 33])
def test_small_operations_at_every_length(k):
    rng = np.random.default_rng(k)
    for values in (rng.normal(size=k), rng.integers(0, 3, k).astype(float), np.full(k, INF)):
        padded = np.concatenate([values, [-99.0, 99.0, -99.0, 99.0]])
        assert least(k, padded) == values.min()
        assert greatest(k, padded) == values.max()
        assert first_label(k, values.min(), padded) == values.argmin()
        assert first_label(k, -99.0, padded) == k
        array = aligned_zeros(k)
        assert array.shape == (k,) and not array.any() and array.ctypes.data % 64 == 0


@pytest.mark.parametrize("k", [1, 2, 3, 8, 16, 21])
def test_messages_of_their_own_kind(k):
    """Check messages through equivalent tables."""
    rng = np.random.default_rng(k)
    apart = np.abs(np.subtract.outer(np.arange(k), np.arange(k)))
    for sent in (rng.normal(size=k), rng.integers(0, 2, k).astype(float)):
        for rise in (0.0, 0.3, 50.0):
            down, up = np.empty(k), np.empty(k)
            assert lower_envelope(k, rise, sent.copy(), down, up) == sent.min()
            expected = (rise * apart + sent).min(axis=1)
            assert np.allclose(np.minimum(up, down), expected, atol=1e-14)
            message = np.empty(k)
            if k > 1 and rise > 0:
                assert repulsive_message(k, rise, sent.copy(), message) == sent.min()
                table = (rise * np.eye(k) + sent).min(axis=1)
                assert np.allclose(message, table - table.min(), atol=1e-14)


@pytest.mark.parametrize("k", [2, 3, 4, 5, 8, 16, 21])
@pytest.mark.parametrize("steps", [0.0, 0.5, 1.0, 1.7, 2.0, 2.5, 4.0, 100.0])
def test_truncated_linear_messages(k, steps):
    """Check caps that restrict labels to their neighbours, and larger ones."""
    rng = np.random.default_rng(k)
    apart = np.abs(np.subtract.outer(np.arange(k), np.arange(k)))
    for sent in (rng.normal(size=k), rng.integers(0, 4, k).astype(float), np.arange(k) * 0.9):
        for slope in (0.25, 3.0):
            rows, truncation = np.full(k + 6, -9.0), steps * slope
            best = linear_message(
                k, slope, truncation, sent.copy(), np.empty(k), np.empty(k), rows, np.uint64(3)
            )
            assert best == sent.min()
            expected = (np.minimum(slope * apart, truncation) + sent).min(axis=1) - best
            assert np.allclose(rows[3:-3], expected, atol=1e-14)
            assert (rows[:3] == -9.0).all() and (rows[-3:] == -9.0).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_edge_cost(family):
    graph = random_graph(family, 1)
    for e in range(graph.n_edges):
        for (a, b), cost in np.ndenumerate(graph.edge_table(e)):
            assert edge_cost(graph.arrays, e, a, b) == cost


# ---------------------------------------------------------------------- layout and scale


@pytest.mark.parametrize("family", ["potts", "ragged"])
def test_unflatten(family):
    graph = random_graph(family, 0)
    rows = unflatten(graph, graph.unary_values)
    assert isinstance(rows, np.ndarray) == (graph.n_labels is not None)
    for i, row in enumerate(rows):
        assert (row == graph.unary_of(i)).all()


def test_cost_scale_by_hand():
    g = FactorGraph.from_terms([[10.0, 12.0], [INF, 7.0]], [DiagonalTerms([(0, 1)], 0.5, INF)])
    # A constant offset of a row has no effect, and infinity is not counted.
    assert cost_scale(g) == pytest.approx(2 / 3)
    assert cost_scale(FactorGraph.potts([[10.0, 12.0], [5.0, 6.0]], [(0, 1)], [-8.0])) == 8.0
    table = [[0.0, 4.0, 0.0], [4.0, 0.0, 4.0], [INF, 4.0, 1.0]]
    g = FactorGraph.from_terms(np.zeros((2, 3)), [SharedTable([(0, 1)], table, [3.0])])
    assert cost_scale(g) == pytest.approx(3 * 17 / 9)
    assert cost_scale(FactorGraph.from_factors([2, 2], [])) > 0
    assert cost_scale(FactorGraph.from_factors([], [])) > 0
    linear = FactorGraph.pairwise(np.zeros((2, 4)), [(0, 1)], truncated_linear(4, 1.0, 2.0))
    assert cost_scale(linear) == pytest.approx(18 / 16)
