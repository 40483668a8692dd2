"""Search over a network: moving costs keeps all energies, and the bound rises and stays valid."""

from __future__ import annotations

import ast
import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import inference_lab as il
from inference_lab.algorithms.elimination.arc_consistency import allowed_labels
from inference_lab.algorithms.linear.integer_costs import plan_rounding
from inference_lab.algorithms.search import state as state_module
from inference_lab.algorithms.search.edac import (
    AT_ROOT,
    DONE,
    OPENED,
    backtrack,
    complete,
    descend,
    open_node,
    propagate,
    search,
)
from inference_lab.algorithms.search.network import BITS, FORBIDDEN, HARD, integer_network
from inference_lab.algorithms.search.state import make_functions, make_state
from inference_lab.algorithms.search.vac import make_virtual, raise_virtually
from inference_lab.graph.random_graphs import FAMILIES, random_graph

#: Enough work to finish.
ALL_OF_IT = 1 << 40


def start(graph, cutoff=HARD):
    """Return the functions of a graph, their unary costs, and a search at its root."""
    network = integer_network(
        graph, allowed_labels(graph), plan_rounding(graph, math.inf, BITS), lambda: False
    )
    functions, unary = make_functions(network, network.left, 1)
    state = make_state(functions, unary, cutoff)
    state.now[0].most_work = ALL_OF_IT
    return functions, unary, state


def costs_of(p, low, unary, shift, xs):
    """Return the costs of labellings, one a row, in functions that costs were moved from."""
    total = low + sum(unary[p.ptr[i] + xs[:, i]] for i in range(xs.shape[1]))
    for f in range(p.table_at.size):
        at, moved = p.table_at[f], 0
        for t in range(p.slots[f], p.slots[f + 1]):
            a = xs[:, p.scope[t]]
            at, moved = at + a * p.stride[t], moved + shift[p.shift_at[t] + a]
        total = np.minimum(total + p.tables[at] - moved, FORBIDDEN)
    return total


def network_with_costs(graph, share):
    """Return a search below a cutoff, all labellings and their costs; None if nothing remains.

    The cutoff exceeds a share of the labellings of finite cost. Only labellings at or above it may
    be ruled out.
    """
    if not allowed_labels(graph).feasible or graph.sum_of_minima == math.inf:
        return None
    p, unary, state = start(graph)
    if p.table_at.size == 0:
        return None
    xs = np.array(list(itertools.product(*map(range, np.diff(p.ptr)))))
    costs = costs_of(p, 0, unary, np.zeros_like(state.shift), xs)
    finite = np.sort(costs[costs < HARD])
    cutoff = int(finite[int(share * (finite.size - 1))]) + 1 if finite.size else HARD
    p, _, state = start(graph, cutoff)
    return p, state, xs, costs, finite, cutoff


def least_costs(p, state):
    """Yield the least costs of the remaining labels, function by function."""
    alive = state.pos < np.repeat(state.size, np.diff(p.ptr))
    yield int(state.unary[alive].min())
    for f in range(p.table_at.size):
        lo, hi = p.slots[f], p.slots[f + 1]
        labels = [np.flatnonzero(alive[p.ptr[i] : p.ptr[i + 1]]) for i in p.scope[lo:hi]]
        at = np.array(list(itertools.product(*labels)))
        moved = sum(state.shift[p.shift_at[lo + k] + at[:, k]] for k in range(hi - lo))
        yield int((p.tables[p.table_at[f] + at @ p.stride[lo:hi]] - moved).min())


@given(st.sampled_from(sorted(FAMILIES)), st.integers(0, 99), st.floats(0.0, 1.0), st.booleans())
def test_virtual_consistency_moves_costs_that_are_there_and_its_bound_holds(
    family, seed, share, propagated
):
    drawn = network_with_costs(random_graph(family, seed), share)
    if drawn is None:
        return
    p, state, xs, costs, finite, _ = drawn
    if propagated and search(p, state) != AT_ROOT:
        return
    possible = (state.pos[p.ptr[:-1] + xs] < state.size).all(axis=1)
    mask = possible & (costs < HARD)
    virtual, low, theta = make_virtual(p, state), int(state.low[0]), HARD
    while theta > 0:
        theta = raise_virtually(p, virtual, theta, 0)
        assert low <= state.low[0] <= min([*finite[:1].tolist(), FORBIDDEN])
        low = int(state.low[0])
        assert min(least_costs(p, state)) >= 0
        assert (costs_of(p, low, state.unary, state.shift, xs[mask]) == costs[mask]).all()


@pytest.mark.parametrize("arity", [2, 3])
def test_virtual_consistency_finds_bounds_beyond_single_functions(arity):
    # The ends of a chain prefer different labels, at 6 and 8; neighbours prefer equal ones, at 4.
    same = 4.0 * (1.0 - np.eye(2))
    if arity == 3:
        # A third variable is in each function, and its label does not matter.
        same = np.stack([same, same], axis=1)
    factors = [((0,), np.array([0.0, 6.0])), ((5,), np.array([8.0, 0.0]))]
    for i in range(5):
        factors.append(((i, i + 1) if arity == 2 else (i, 6 + i, i + 1), same))
    graph = il.FactorGraph.from_factors([2] * (6 if arity == 2 else 11), factors)
    p, _, state = start(graph)
    assert raise_virtually(p, make_virtual(p, state), HARD, ALL_OF_IT) == 0
    bound = plan_rounding(graph, math.inf, BITS).bound(int(state.low[0]))
    assert bound == pytest.approx(4.0, rel=1e-12)


def raised(graph):
    """Return the bounds of arc consistency, and of virtual arc consistency after it."""
    rounding = plan_rounding(graph, math.inf, BITS)
    p, _, state = start(graph)
    assert search(p, state) == AT_ROOT
    consistent = rounding.bound(int(state.low[0]))
    assert raise_virtually(p, make_virtual(p, state), HARD, ALL_OF_IT) == 0
    return consistent, rounding.bound(int(state.low[0]))


def test_virtual_consistency_raises_the_bound_of_arc_consistency():
    pairs = list(itertools.combinations(range(10), 2))
    tables = np.random.default_rng(0).integers(0, 1000, size=(len(pairs), 4, 4)).astype(float)
    graph = il.FactorGraph.from_factors([4] * 10, list(zip(pairs, tables, strict=True)))
    relaxed = il.solve(graph, "lp-relaxation").lower_bound
    consistent, virtual = raised(graph)
    # The relaxation gains 1,309, of which 794 are found.
    assert consistent + 0.5 * (relaxed - consistent) < virtual < relaxed + 1e-6


def test_virtual_consistency_requests_only_missing_costs_of_ternary_functions():
    gain = 0.0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        factors = [((i,), rng.integers(0, 5, 3).astype(float)) for i in range(20)]
        for _ in range(20):
            scope = tuple(rng.choice(20, 3, replace=False).tolist())
            factors.append((scope, rng.integers(0, 5, [3] * 3).astype(float)))
        consistent, virtual = raised(il.FactorGraph.from_factors([3] * 20, factors))
        gain += virtual - consistent
    # 29; only 20 if earlier requests, or parts from other slots, are forgotten.
    assert gain > 26.0


def test_the_search_opens_a_node_descends_and_backtracks():
    """The steps by hand: each decision is undone, and the last reversal ends the node."""
    pairs = list(itertools.combinations(range(6), 2))
    rng = np.random.default_rng(0)
    graph = il.FactorGraph.from_factors([3] * 6, [(pair, rng.random((3, 3))) for pair in pairs])
    p, _, s = start(graph)
    now = s.now[0]
    assert open_node(p, s) == AT_ROOT and not now.active
    assert open_node(p, s) == OPENED
    assert now.active and not now.at_root and (now.dives, now.level) == (1, 0)
    propagate(p, s)
    cells = s.cell.copy()
    branch = complete(p, s)
    assert descend(p, s, branch)
    assert (now.level, s.var[0], s.size[branch]) == (1, branch, 1)
    backtrack(p, s)
    # The label is ruled out; everything else of the decision is undone.
    assert (now.level, s.right[0], now.last, now.backtracks) == (1, 1, branch, 1)
    label = s.label[0]
    assert s.pos[p.ptr[branch] + label] >= s.size[branch] == 2
    assert np.flatnonzero(s.size != cells[now.size_at : now.size_at + 6]).tolist() == [branch]
    backtrack(p, s)
    assert not now.active and now.backtracks == 2
    # Without room on the trail nothing is decided.
    assert open_node(p, s) in (OPENED, DONE)
    full = s._replace(trail_at=s.trail_at[:1], trail_old=s.trail_old[:1])
    now.level = 0
    assert not descend(p, full, branch)


def test_each_field_of_the_state_is_described():
    """A comment stands above each field, or above a group of fields."""
    lines = Path(state_module.__file__).read_text(encoding="utf-8").splitlines()
    fields = [
        node.lineno - 1
        for cls in ast.parse("\n".join(lines)).body
        if isinstance(cls, ast.ClassDef)
        for node in cls.body
        if isinstance(node, ast.AnnAssign)
    ]
    assert len(fields) > 70
    for number in fields:
        above = number
        while above in fields:
            above -= 1
        assert lines[above].lstrip().startswith("#:"), lines[number]


def test_every_other_dive_follows_the_best_labelling():
    pairs = list(itertools.combinations(range(8), 2))
    rng = np.random.default_rng(0)
    graph = il.FactorGraph.from_factors([4] * 8, [(pair, rng.random((4, 4))) for pair in pairs])
    p, _, state = start(graph)
    assert search(p, state) == AT_ROOT
    # No label is ruled out, and no labelling replaces the known one.
    now = state.now[0]
    now.best_cost = 0
    followed = 0
    while now.dives < 3:
        now.work, now.most_work = 0, 50
        search(p, state)
        decided = state.var[: now.level]
        labels = state.label[: now.level][state.right[: now.level] == 0]
        if now.dives == 1:
            # This is not the labelling of the first dive, which the second dive rules out.
            state.best[decided] = (state.label[: now.level] + 1) % 4
        elif now.dives == 2:
            assert (labels == state.best[decided][state.right[: now.level] == 0]).all()
            followed = max(followed, labels.size)
    assert followed > 1
