"""Tree-reweighted sum-product: its bound holds whatever the messages are."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import inference_lab as il
from inference_lab.algorithms.elimination.domains import allowed_labels
from inference_lab.conformance import exhaustive
from inference_lab.contract import Run
from inference_lab.graph.grids import grid_edges
from inference_lab.graph.random_graphs import FAMILIES, random_graph
from inference_lab.solvers import trw_bp
from inference_lab.solvers.trw_bp import TRWBP, collect, new_message

PAIRWISE = [f for f in FAMILIES if f not in ("higher-order", "mixed", "one-label", "infeasible")]


def passing(graph, temperature=1.0, seed=0, **settings):
    """Return the state of a run before its first sweep."""
    solver = TRWBP(**settings)
    run = Run(graph, temperature=temperature, seed=seed)
    trees = trw_bp._cover(graph, solver.trees, run)
    return trw_bp._Passing(solver, graph, run, allowed_labels(graph), trees)


def scramble(state, graph, rng, size):
    """Put random numbers in place of the messages, but at labels that are ruled out."""
    ends = graph.edges.ravel()[graph.arrays.adj_half]
    for p, i in enumerate(ends):
        lo, hi = state.ptr[p], state.ptr[p + 1]
        start = graph.unary_ptr[i]
        allowed = np.isfinite(state.unary[start : start + hi - lo])
        state.messages[lo:hi] = np.where(allowed, size * rng.normal(size=hi - lo), 0.0)
    collect(graph.arrays, state)


@pytest.mark.parametrize("family", ["potts", "ragged", "own-tables"])
@pytest.mark.parametrize("damping", [0.0, 0.4])
def test_sweeps_follow_the_update_rule(family, damping):
    """There and back, message by message, from messages drawn at random."""
    for seed in range(4):
        graph = random_graph(family, seed)
        run = passing(graph, temperature=0.7, damping=damping)
        g, state = graph.arrays, run.state
        scramble(state, graph, np.random.default_rng(seed), 1.0)
        pieces = list(itertools.pairwise(state.ptr))
        messages = [state.messages[lo:hi].copy() for lo, hi in pieces]
        for order in (run.order, run.order[::-1]):
            for i in order:
                arriving = range(g.adj_ptr[i], g.adj_ptr[i + 1])
                for p in arriving:
                    e, j = g.adj_half[p] >> 1, g.adj_var[p]
                    table = graph.edge_table(e) if g.adj_half[p] & 1 == 0 else graph.edge_table(e).T
                    there = range(g.adj_ptr[j], g.adj_ptr[j + 1])
                    belief = graph.unary_of(j) + sum(messages[q] for q in there)
                    back = messages[g.adj_reverse[p]]
                    new = new_message(table, state.rho[e], 0.7, belief, back)
                    messages[p] = new + run.update.damping * (messages[p] - new)
            run.settle(0.0, 1)
            for p, (lo, hi) in enumerate(pieces):
                assert state.messages[lo:hi] == pytest.approx(messages[p], rel=1e-9, abs=1e-9)


# ---------------------------------------------------------------------- the bound


@given(
    family=st.sampled_from(PAIRWISE),
    seed=st.integers(0, 2**32 - 1),
    size=st.sampled_from([0.0, 0.3, 3.0, 100.0]),
    temperature=st.sampled_from([0.2, 1.0, 4.0]),
)
def test_any_messages_give_an_upper_bound(family, seed, size, temperature):
    """Hoelder's inequality, with random numbers for messages and +inf costs."""
    graph = random_graph(family, seed)
    if graph.n_factors or not allowed_labels(graph).feasible:
        return
    exact = exhaustive(graph)
    state = passing(graph, temperature, seed)
    scramble(state.state, graph, np.random.default_rng(seed), size)
    slack = 1e-11 * (exact.scale + size) / temperature
    assert state.bound() >= exact.log_partition(temperature) - slack


@pytest.mark.parametrize("family", ["potts", "own-tables", "ragged", "cannot-links", "merged"])
def test_the_forests_average_to_the_energy(family):
    """The identity behind the bound, label by label, for random messages."""
    for seed in range(6):
        graph = random_graph(family, seed)
        if graph.n_factors:
            continue
        rng = np.random.default_rng(seed)
        run = passing(graph, seed=seed)
        run.settle(0.0, 2)
        if seed % 2:
            run.join(0.3)
        scramble(run.state, graph, rng, 2.0)
        g, state = graph.arrays, run.state
        labellings = list(itertools.product(*(range(k) for k in graph.cardinalities)))
        for x in [labellings[t] for t in rng.integers(0, len(labellings), size=30)]:
            average = graph.constant
            for up, share in zip(run.trees.up, run.trees.share, strict=True):
                energy = sum(state.belief[graph.unary_ptr[i] + x[i]] for i in range(len(x)))
                for i, p in enumerate(up):
                    if p < 0:
                        continue
                    j, e = int(g.adj_var[p]), int(g.adj_half[p]) >> 1
                    a, b = graph.edges[e]
                    energy += graph.edge_table(e)[x[a], x[b]] / state.rho[e]
                    energy -= state.messages[state.ptr[p] + x[i]] / state.rho[e]
                    back = g.adj_reverse[p]
                    energy -= state.messages[state.ptr[back] + x[j]] / state.rho[e]
                average += share * energy
            assert average == pytest.approx(graph.energy(x), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("sweeps", [1, 2, 3, 7])
def test_stopped_runs_give_an_upper_bound(sweeps):
    worst = -math.inf
    for family in PAIRWISE:
        for seed in range(200, 206):
            graph = random_graph(family, seed)
            temperature = (0.3, 1.0, 3.0)[seed % 3]
            s = il.solve(graph, "trw-bp", temperature=temperature, max_iterations=sweeps)
            if s.status == "unsupported":
                continue
            exact = exhaustive(graph)
            gap = s.log_partition - exact.log_partition(temperature)
            assert s.log_partition_kind == "upper"
            assert gap >= -1e-11 * exact.scale / temperature, (family, seed)
            worst = max(worst, gap)
    assert worst > 0.01  # the graphs are not all trees


def cavity(run, i, p):
    """Return a belief without the message at one adjacency position, which is stored times rho."""
    graph, state = run.graph, run.state
    own = state.belief[graph.unary_ptr[i] : graph.unary_ptr[i + 1]]
    rho = state.rho[graph.arrays.adj_half[p] >> 1]
    return own - state.messages[state.ptr[p] : state.ptr[p + 1]] / rho


def entropy(p):
    return float(-(p[p > 0] * np.log(p[p > 0])).sum())


@pytest.mark.parametrize("family", ["potts", "diagonal", "own-tables", "ragged", "grid"])
def test_at_convergence_the_bound_is_the_value_of_the_relaxation(family):
    """Strong duality: the bound is ``-<E> / T + sum_i H_i - sum_e rho_e I_e``."""
    temperature = 2.0
    for seed in range(6):
        graph = random_graph(family, seed)
        run = passing(graph, temperature, seed, tolerance=1e-12)
        assert run.settle(1e-12, 5000)
        g, state = graph.arrays, run.state
        rows = np.split(run.marginals(), graph.unary_ptr[1:-1])
        value = -graph.constant / temperature
        for i, row in enumerate(rows):
            value += entropy(row) - row @ graph.unary_of(i) / temperature
        for p in np.flatnonzero(g.adj_half % 2 == 0):
            e, back = int(g.adj_half[p]) >> 1, int(g.adj_reverse[p])
            i, j = (int(v) for v in graph.edges[e])
            rho = state.rho[e]

            cost = graph.edge_table(e) / rho + cavity(run, i, p)[:, None]
            cost = cost + cavity(run, j, back)[None]
            joint = np.exp((cost.min() - cost) / temperature)
            joint /= joint.sum()
            np.testing.assert_allclose(joint.sum(axis=1), rows[i], atol=1e-8)
            np.testing.assert_allclose(joint.sum(axis=0), rows[j], atol=1e-8)
            information = entropy(rows[i]) + entropy(rows[j]) - entropy(joint.ravel())
            value -= rho * information + (joint * graph.edge_table(e)).sum() / temperature
        assert run.bound() == pytest.approx(value, rel=1e-7, abs=1e-7)


def test_order_and_damping_do_not_matter_for_the_limit():
    """The relaxation is convex: its value depends on the edge probabilities alone."""
    graph = random_graph("own-tables", 11)
    values = []
    for damping in (0.0, 0.3, 0.6):
        run = passing(graph, 1.0, 0, damping=damping)
        scramble(run.state, graph, np.random.default_rng(int(10 * damping)), 1.0)
        assert run.settle(1e-10, 5000)
        values.append(run.bound())
    assert values == pytest.approx([values[0]] * 3, abs=1e-8)


# ---------------------------------------------------------------------- the forests


@pytest.mark.parametrize("least", [1, 8])
@pytest.mark.parametrize("n", [6, 25])
def test_forests_span_and_cover(n, least):
    rng = np.random.default_rng(n)
    pairs = np.array(list(itertools.combinations(range(n), 2)))
    # Two components and an isolated variable.
    side = np.arange(n) * 2 // (n - 1)
    pairs = pairs[(side[pairs[:, 0]] == side[pairs[:, 1]]) & (pairs[:, 1] < n - 1)]
    graph = il.FactorGraph.potts(rng.normal(size=(n, 2)), pairs, 1.0)
    run = passing(graph, trees=least)
    g = graph.arrays
    components = int(graph.components.max()) + 1
    assert run.trees.share.size >= least
    assert run.trees.share.sum() == pytest.approx(1.0)
    for order, up in zip(run.trees.order, run.trees.up, strict=True):
        assert sorted(order) == list(range(n))
        place = np.argsort(order)
        links = np.flatnonzero(up >= 0)
        assert links.size == n - components
        for i in links:
            assert g.edges[g.adj_half[up[i]] >> 1, g.adj_half[up[i]] & 1] == i
            assert place[g.adj_var[up[i]]] < place[i]
    rho = run.state.rho
    assert (rho > 0).all() and (rho <= 1).all()
    assert rho.sum() == pytest.approx(n - components)
    # In a complete graph all edges are alike: the queue uses them about equally often.
    assert rho.max() <= 4 * rho.min()


def test_better_edge_probabilities_tighten_the_bound():
    gains = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        edges = grid_edges(6, 6)
        graph = il.FactorGraph.potts(
            rng.normal(size=(36, 2)), edges, rng.normal(scale=2.0, size=len(edges))
        )
        exact = il.solve(graph, "junction-tree", temperature=1.0).log_partition
        plain = il.solve(graph, "trw-bp(tree_updates=0)", temperature=1.0).log_partition
        better = il.solve(graph, "trw-bp", temperature=1.0)
        assert better.diagnostics["tree_updates"] == 10
        assert exact <= better.log_partition <= plain
        gains.append((plain - better.log_partition) / (plain - exact))
    assert np.mean(gains) > 0.3


def test_mean_field_exact_and_trw_stand_in_order():
    for seed in range(6):
        rng = np.random.default_rng(seed)
        edges = grid_edges(5, 5, diagonals=True)
        graph = il.FactorGraph.potts(
            rng.normal(size=(25, 3)), edges, rng.normal(scale=1.5, size=len(edges))
        )
        lower = il.solve(graph, "mean-field", temperature=1.0)
        exact = il.solve(graph, "junction-tree", temperature=1.0)
        upper = il.solve(graph, "trw-bp", temperature=1.0)
        assert lower.log_partition < exact.log_partition < upper.log_partition


# ---------------------------------------------------------------------- what it covers


def test_refusals():
    graph = random_graph("potts", 0)
    assert il.solve(graph, "trw-bp").message == (
        "trw-bp finds marginals: it needs a temperature above 0"
    )
    graph = random_graph("higher-order", 0)
    assert il.solve(graph, "trw-bp", temperature=1.0).message == (
        f"trw-bp covers pairwise terms; the graph has {graph.n_factors} larger factors"
    )


def test_labels_without_support_have_no_probability():
    """Hard tables push label 0 out along a chain that closes to a cycle."""
    table = np.array([[math.inf, math.inf, 0.3], [0.0, 1.0, 0.2], [math.inf, 0.5, 0.1]])
    graph = il.FactorGraph.pairwise(
        np.zeros((4, 3)), [(0, 1), (1, 2), (2, 3), (3, 0)], np.repeat(table[None], 4, axis=0)
    )
    exact = exhaustive(graph)
    s = il.solve(graph, "trw-bp", temperature=1.0)
    assert s.status == "converged"
    assert np.isfinite(s.log_partition)
    assert s.log_partition >= exact.log_partition(1.0)
    domains = allowed_labels(graph)
    for i in range(4):
        left = domains.labels[domains.ptr[i] : domains.ptr[i + 1]]
        assert (np.delete(s.marginals[i], left) == 0).all()
        assert s.marginals[i].sum() == pytest.approx(1.0)


def test_contradictions_along_cycles_are_found():
    rising = np.where(np.arange(3)[:, None] < np.arange(3)[None], 0.0, math.inf)
    graph = il.FactorGraph.pairwise(
        np.zeros((4, 3)), [(0, 1), (1, 2), (2, 3)], np.repeat(rising[None], 3, axis=0)
    )
    assert il.solve(graph, "trw-bp", temperature=1.0).status == "infeasible"


@pytest.mark.parametrize(
    "bad",
    [
        {"trees": 0},
        {"tree_updates": -1},
        {"damping": 1.0},
        {"tolerance": -1e-9},
        {"max_sweeps": 0},
    ],
)
def test_settings_are_checked(bad):
    ((name, value),) = bad.items()
    with pytest.raises(ValueError, match=rf"{name} must .*, got {value}"):
        TRWBP(**bad)
