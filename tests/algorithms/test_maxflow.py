"""Minimum cuts against scipy, networkx and enumeration."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from minimum_cuts import laid_out, load, minimum_cut
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import maximum_flow

from inference_lab.algorithms.cuts import maxflow
from inference_lab.algorithms.cuts.maxflow import larger_power_of_two
from inference_lab.graph.grids import grid_edges

SEEDS = st.integers(0, 10_000)


def random_network(seed, most_nodes=40):
    """Return integer capacities, sparse or dense, with loops, parallel edges, ties and zeros."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, most_nodes + 1))
    m = int(rng.integers(0, 5 * n + 1))
    if rng.random() < 0.3 and n > 1:
        path = np.arange(n - 1)
        edges = np.concatenate(
            [np.stack([path, path + 1], axis=1), rng.integers(0, n, size=(n // 4, 2))]
        )
        m = len(edges)
    else:
        edges = rng.integers(0, n, size=(m, 2))
    high = int(rng.choice([2, 6, 1000]))
    share = rng.choice([0.05, 0.3, 1.0])
    return {
        "n_nodes": n,
        "edges": edges,
        "forward": rng.integers(0, high, m),
        "backward": rng.integers(0, high, m) * (rng.random(m) < 0.7),
        "source": rng.integers(0, 3 * high, n) * (rng.random(n) < share),
        "sink": rng.integers(0, 3 * high, n) * (rng.random(n) < share),
    }


def scipy_value(n_nodes, edges, forward, backward, source, sink):
    n = n_nodes
    tails = np.concatenate([edges[:, 0], edges[:, 1], np.full(n, n), np.arange(n)])
    heads = np.concatenate([edges[:, 1], edges[:, 0], np.arange(n), np.full(n, n + 1)])
    capacity = np.concatenate([forward, backward, source, sink]).astype(np.int32)
    keep = tails != heads
    summed = coo_array((capacity[keep], (tails[keep], heads[keep])), shape=(n + 2, n + 2)).tocsr()
    summed.sum_duplicates()
    matrix = csr_array(
        (summed.data, summed.indices.astype(np.int32), summed.indptr.astype(np.int32)),
        shape=summed.shape,
    )
    return maximum_flow(matrix, n, n + 1).flow_value


def all_cuts(n_nodes, edges, forward, backward, source, sink):
    """Return all cuts: rows of 1 for the sink's side, counts of infinite arcs, and finite sums."""
    y = np.array(list(itertools.product((0, 1), repeat=n_nodes)), dtype=int).reshape(-1, n_nodes)
    infinite, finite = np.zeros(len(y), dtype=int), np.zeros(len(y))
    u, v = y[:, edges[:, 0]], y[:, edges[:, 1]]
    for paid, capacity in (
        ((u == 0) & (v == 1), forward),
        ((u == 1) & (v == 0), backward),
        (y == 1, source),
        (y == 0, sink),
    ):
        capacity = np.broadcast_to(np.asarray(capacity, dtype=float), paid.shape[1:])
        infinite += (paid & np.isinf(capacity)).sum(axis=1)
        finite += np.where(paid & np.isfinite(capacity), np.nan_to_num(capacity, posinf=0), 0).sum(
            axis=1
        )
    return y, infinite, finite


@given(SEEDS)
def test_value_agrees_with_scipy(seed):
    """The value on integers is exact, and the returned side has that capacity."""
    network = random_network(seed)
    assert minimum_cut(**network).value == scipy_value(**network)


@given(SEEDS)
def test_sides_are_the_smallest_of_all_minimum_cuts(seed):
    """Each returned side is the intersection over all minimum cuts."""
    network = random_network(seed, most_nodes=9)
    y, _, cost = all_cuts(**network)
    best = y[cost == cost.min()]
    cuts = laid_out(network["n_nodes"], network["edges"])
    load(cuts, *(network[name] for name in ("forward", "backward", "source", "sink")))
    assert cuts.solve()
    assert (cuts.arrays.level > 0).tolist() == (best == 0).all(axis=0).tolist()
    assert (cuts.arrays.level < 0).tolist() == (best == 1).all(axis=0).tolist()


@given(SEEDS)
def test_infinite_capacities_count_first(seed):
    """The cut has the fewest infinite capacities and, among these, the least cost."""
    network = random_network(seed, most_nodes=8)
    rng = np.random.default_rng(seed)
    for name in ("forward", "backward", "source", "sink"):
        capacity = network[name].astype(float)
        capacity[rng.random(capacity.size) < 0.25] = math.inf
        network[name] = capacity
    y, infinite, finite = all_cuts(**network)
    fewest = infinite.min()
    cheapest = finite[infinite == fewest].min()
    cut = minimum_cut(**network)
    row = int(np.flatnonzero((y == ~cut.source_side).all(axis=1))[0])
    assert infinite[row] == fewest
    assert finite[row] == pytest.approx(cheapest, abs=1e-9)
    assert cut.value == (math.inf if fewest else pytest.approx(cheapest, abs=1e-9))


@given(SEEDS)
def test_interrupted_search_goes_on(seed):
    """Checking the clock after every few arcs changes nothing."""
    network = random_network(seed)
    expected = minimum_cut(**network)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(maxflow, "_WORK", 5)
        cut = minimum_cut(**network)
    assert cut.value == expected.value
    assert cut.source_side.tolist() == expected.source_side.tolist()


def test_stops_when_asked(monkeypatch):
    monkeypatch.setattr(maxflow, "_WORK", 5)
    edges = grid_edges(10, 10)
    cuts = laid_out(100, edges)
    rng = np.random.default_rng(1)
    load(cuts, 1.0, 1.0, rng.random(100), rng.random(100))
    asked = []
    assert not cuts.solve(lambda: bool(asked.append(1)) or len(asked) > 2)
    assert len(asked) == 3


@given(SEEDS)
def test_dual_value(seed):
    """The value equals the cut after the search, and is below it for any flow."""
    network = random_network(seed)
    cuts = laid_out(network["n_nodes"], network["edges"])
    load(cuts, *(network[name] for name in ("forward", "backward", "source", "sink")))
    capacity, excess = cuts.arrays.residual.copy(), cuts.arrays.excess.copy()
    rest = float(np.sum(network["sink"]))
    value = minimum_cut(**network).value
    cuts.arrays.residual[:] = np.random.default_rng(seed).normal(scale=100.0, size=capacity.size)
    assert cuts.dual_value(capacity, excess) + rest <= value + 1e-9
    load(cuts, *(network[name] for name in ("forward", "backward", "source", "sink")))
    cuts.solve()
    assert cuts.dual_value(capacity, excess) + rest == pytest.approx(value, abs=1e-9)


def test_large_grid():
    """A grid of 40,000 nodes agrees with scipy."""
    rng = np.random.default_rng(2)
    edges = grid_edges(200, 200)
    network = {
        "n_nodes": 40_000,
        "edges": edges,
        "forward": rng.integers(0, 20, len(edges)),
        "backward": rng.integers(0, 20, len(edges)),
        "source": rng.integers(0, 60, 40_000) * (rng.random(40_000) < 0.5),
        "sink": rng.integers(0, 60, 40_000) * (rng.random(40_000) < 0.5),
    }
    assert minimum_cut(**network).value == scipy_value(**network)


def test_larger_power_of_two():
    for total in (0.0, 1.0, 3.0, 4.0, 1e9, 1e-9):
        power = larger_power_of_two(total)
        assert power > 4 * total
        assert math.frexp(power)[0] == 0.5


def test_nothing_to_cut():
    assert minimum_cut(0, [], 1.0, source=[], sink=[]).value == 0.0
