"""Tree-reweighted sum-product: its bound is valid for any messages."""

from __future__ import annotations

import itertools
import math

import networkx as nx
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import recipes, signed_grid

import inference_lab as il
from inference_lab.algorithms.belief_propagation.forests import (
    appearance,
    cover,
    spanning_forest,
)
from inference_lab.algorithms.belief_propagation.reweighted import collect
from inference_lab.algorithms.elimination.arc_consistency import allowed_labels
from inference_lab.conformance import exhaustive
from inference_lab.contract import Run
from inference_lab.graph.random_graphs import FAMILIES, LABEL_COSTS, random_graph
from inference_lab.solvers.trw_bp import TRWBP, _Passing, new_message

#: Families with factors, and without a feasible labelling.
OTHERS = ("higher-order", "hard-tables", "mixed", "inheritance", "one-label", "infeasible")
PAIRS = [family for family in FAMILIES if family not in OTHERS]


def passing(graph, temperature=1.0, seed=0, **settings):
    """Return the state of a run before its first sweep."""
    solver, run = TRWBP(**settings), Run(graph, temperature=temperature, seed=seed)
    domains, forests = allowed_labels(graph), cover(graph, solver.trees, run)
    return _Passing(solver, graph, run, domains, forests)


def settle(run, tolerance, sweeps):
    """Sweep there and back, at most `sweeps` times; return whether the messages settled."""
    return any(run.sweep(done % 2 == 1) <= tolerance for done in range(sweeps))


def messages_of(run):
    """Return views of all messages, by edge and side."""
    g, state = run.arrays, run.state
    return {
        (h >> 1, h & 1): state.messages[state.ptr[p] : state.ptr[p + 1]]
        for p, h in enumerate(g.adj_half.tolist())
    }


def unary_of(run, i):
    """Return the unary of a variable, infinite at labels that are ruled out."""
    return run.state.unary[run.graph.unary_ptr[i] : run.graph.unary_ptr[i + 1]]


def scramble(run, rng, size):
    """Replace the messages by random numbers, except at labels that are ruled out."""
    for where, message in messages_of(run).items():
        allowed = np.isfinite(unary_of(run, run.graph.edges[where]))
        message[:] = np.where(allowed, size * rng.normal(size=message.size), 0.0)
    collect(run.arrays, run.state)


#: Families with pairs of every kind, without and with infinite costs.
RULES = ["potts", "ragged", "own-tables", "cannot-links", "forbidden-labels"]


@pytest.mark.parametrize("family", RULES)
@pytest.mark.parametrize("damping", [0.0, 0.4])
def test_sweeps_follow_the_update_rule(family, damping):
    """Check there and back, message by message, from random messages."""
    for seed in range(4):
        graph = random_graph(family, seed)
        run = passing(graph, temperature=0.7, damping=damping)
        scramble(run, np.random.default_rng(seed), 1.0)
        edges, stored = graph.edges, messages_of(run)
        messages = {where: message.copy() for where, message in stored.items()}
        for backwards in (False, True):
            for i in run.order[:: -1 if backwards else 1]:
                for (e, side), message in messages.items():
                    if edges[e, side] != i:
                        continue
                    j = edges[e, 1 - side]
                    arriving = [m for where, m in messages.items() if edges[where] == j]
                    table = graph.edge_table(e) if side == 0 else graph.edge_table(e).T
                    belief, back = unary_of(run, j) + sum(arriving), messages[e, 1 - side]
                    allowed = np.isfinite(unary_of(run, i))
                    new = new_message(table, run.state.rho[e], 0.7, belief, back)
                    new = np.where(allowed, new - new[allowed].min(), 0.0)
                    messages[e, side] = new + run.update.damping * (message - new)
            run.sweep(backwards)
            for where, message in stored.items():
                assert message == pytest.approx(messages[where], rel=1e-9, abs=1e-9), where


# ---------------------------------------------------------------------- the bound


@given(
    family=st.sampled_from(PAIRS),
    seed=st.integers(0, 2**32 - 1),
    size=st.sampled_from([0.0, 0.3, 3.0, 100.0]),
    temperature=st.sampled_from([0.2, 1.0, 4.0]),
)
def test_any_messages_give_an_upper_bound(family, seed, size, temperature):
    """Hoelder's inequality, with random numbers for messages and +inf costs."""
    graph = random_graph(family, seed)
    assume(not graph.n_factors)
    run = passing(graph, temperature, seed)
    if graph.n_variables and seed % 2:
        run.join(0.3)
    scramble(run, np.random.default_rng(seed), size)
    exact = exhaustive(graph)
    slack = 1e-11 * (exact.scale + size) / temperature
    assert run.bound() >= exact.log_partition(temperature) - slack


def forest_edges(graph, up):
    """Return the edges of a forest."""
    return [int(graph.arrays.adj_half[p]) >> 1 for p in up if p >= 0]


def energies_of_forests(run):
    """Return the energies of all labellings on each forest, as one array a forest."""
    graph, messages = run.graph, messages_of(run)
    n = graph.n_variables
    rows = np.split(run.state.belief, graph.unary_ptr[1:-1])
    alone = sum(np.expand_dims(row, [j for j in range(n) if j != i]) for i, row in enumerate(rows))
    result = []
    for up in run.forests.up:
        energies = alone
        for e in forest_edges(graph, up):
            i, j = graph.edges[e].tolist()
            part = graph.edge_table(e) - messages[e, 0][:, None] - messages[e, 1]
            part = (part if i < j else part.T) / run.state.rho[e]
            energies = energies + np.expand_dims(part, [v for v in range(n) if v not in (i, j)])
        result.append(energies)
    return result


@pytest.mark.parametrize("family", [*RULES, "merged"])
def test_the_forests_average_to_the_energy(family):
    """The identity behind the bound, label by label, and the sum over each forest."""
    for seed in range(6):
        graph = random_graph(family, seed)
        run = passing(graph, 0.8, seed)
        settle(run, 0.0, 2)
        if seed % 2:
            run.join(0.3)
        scramble(run, np.random.default_rng(seed), 2.0)
        share, energies = run.forests.share, energies_of_forests(run)
        average = graph.constant + sum(w * e for w, e in zip(share, energies, strict=True))
        expected = exhaustive(graph).energies
        # A forest without a hard term may be finite everywhere, unlike the graph.
        possible = np.isfinite(expected)
        assert average[possible] == pytest.approx(expected[possible], rel=1e-9, abs=1e-9)
        sums = [np.log(np.exp(-e / 0.8).sum()) for e in energies]
        assert run.bound() == pytest.approx(share @ sums - graph.constant / 0.8, rel=1e-9)


def entropy(p):
    return float(-(p[p > 0] * np.log(p[p > 0])).sum())


def expected(p, cost):
    return float((p[p > 0] * cost[p > 0]).sum())


@pytest.mark.parametrize(
    "family", ["potts", "diagonal", "own-tables", "ragged", "grid", "cannot-links"]
)
def test_at_convergence_the_bound_is_the_value_of_the_relaxation(family):
    """Strong duality: the bound is ``-<E> / T + sum_i H_i - sum_c rho_c I_c``."""
    temperature = 2.0
    for seed in range(6):
        graph = random_graph(family, seed)
        run = passing(graph, temperature, seed, tolerance=1e-12)
        assert settle(run, 1e-12, 5000)
        messages, rho = messages_of(run), run.state.rho
        rows = np.split(run.marginals(), graph.unary_ptr[1:-1])
        beliefs = np.split(run.state.belief, graph.unary_ptr[1:-1])
        value = -graph.constant / temperature
        for i, row in enumerate(rows):
            value += entropy(row) - expected(row, graph.unary_of(i)) / temperature
        information = run.information()
        for e, (i, j) in enumerate(graph.edges.tolist()):
            table = graph.edge_table(e)
            cost = table / rho[e] + (beliefs[i] - messages[e, 0] / rho[e])[:, None]
            cost = cost + beliefs[j] - messages[e, 1] / rho[e]
            joint = np.exp((cost.min() - cost) / temperature)
            joint /= joint.sum()
            np.testing.assert_allclose(joint.sum(axis=1), rows[i], atol=1e-8)
            np.testing.assert_allclose(joint.sum(axis=0), rows[j], atol=1e-8)
            shared = entropy(rows[i]) + entropy(rows[j]) - entropy(joint.ravel())
            assert information[e] == pytest.approx(shared, abs=1e-8)
            value -= rho[e] * shared + expected(joint, table) / temperature
        assert run.bound() == pytest.approx(value, rel=1e-7, abs=1e-7)


def test_order_and_damping_do_not_matter_for_the_limit():
    """The relaxation is convex: its value depends on the edge probabilities alone."""
    graph = random_graph("own-tables", 11)
    values = []
    for damping in (0.0, 0.3, 0.6):
        run = passing(graph, 1.0, 0, damping=damping)
        scramble(run, np.random.default_rng(int(10 * damping)), 1.0)
        assert settle(run, 1e-10, 5000)
        values.append(run.bound())
    assert values == pytest.approx([values[0]] * 3, abs=1e-8)


# ---------------------------------------------------------------------- the forests


def assert_forest(graph, order, up):
    """Check that parents come first, and that edges and variables form no cycle."""
    g = graph.arrays
    assert sorted(order) == list(range(graph.n_variables))
    place = np.argsort(order)
    for i in np.flatnonzero(up >= 0):
        assert g.edges[g.adj_half[up[i]] >> 1, g.adj_half[up[i]] & 1] == i
        assert place[g.adj_var[up[i]]] < place[i]


@given(recipe=recipes(higher_order=False), seed=st.integers(0, 2**32 - 1))
def test_forests_take_edges_that_close_no_cycle(recipe, seed):
    """Compare with networkx, edge by edge."""
    graph = recipe.build()
    ranked = np.random.default_rng(seed).permutation(graph.n_edges)
    order, up = spanning_forest(graph, ranked)
    taken = nx.Graph()
    for e in ranked:
        more = nx.Graph([*taken.edges, graph.edges[e].tolist()])
        taken = more if nx.is_forest(more) else taken
    forest = nx.Graph([graph.edges[e].tolist() for e in forest_edges(graph, up)])
    assert nx.utils.edges_equal(taken.edges, forest.edges)
    assert_forest(graph, order, up)


@given(recipe=recipes(higher_order=False), seed=st.integers(0, 2**32 - 1))
def test_forests_cover_all_edges(recipe, seed):
    """Each edge has the probability of the forests that contain it."""
    graph = recipe.build()
    forests = cover(graph, 3, Run(graph, temperature=1.0, seed=seed))
    rho = np.zeros(graph.n_edges)
    for order, up, share in zip(*forests, strict=True):
        assert_forest(graph, order, up)
        rho[forest_edges(graph, up)] += share
    assert forests.share.size >= (1 if graph.is_forest else 3)
    assert (rho > 0).all()
    assert appearance(graph, forests) == pytest.approx(rho)


@pytest.mark.parametrize("trees", [1, 8])
@pytest.mark.parametrize("n", [6, 25])
def test_edges_are_used_about_equally_often(n, trees):
    rng = np.random.default_rng(n)
    pairs = np.array(list(itertools.combinations(range(n), 2)))
    # Two components and an isolated variable.
    side = np.arange(n) * 2 // (n - 1)
    pairs = pairs[(side[pairs[:, 0]] == side[pairs[:, 1]]) & (pairs[:, 1] < n - 1)]
    graph = il.FactorGraph.potts(rng.normal(size=(n, 2)), pairs, 1.0)
    run = passing(graph, trees=trees)
    components = int(graph.components.max()) + 1
    assert run.forests.share.size >= trees
    assert run.forests.share.sum() == pytest.approx(1.0)
    assert (np.count_nonzero(run.forests.up >= 0, axis=1) == n - components).all()
    rho = run.state.rho
    assert (rho > 0).all() and (rho <= 1).all()
    assert rho.sum() == pytest.approx(n - components)
    # In a complete graph all edges are equivalent.
    assert rho.max() <= 4 * rho.min()


def test_better_probabilities_tighten_the_bound():
    gains = []
    for seed in range(6):
        graph = signed_grid(6, 6, 2, seed, weight=2.0)
        exact = il.solve(graph, "junction-tree", temperature=1.0).log_partition
        plain = il.solve(graph, "trw-bp(tree_updates=0)", temperature=1.0).log_partition
        better = il.solve(graph, "trw-bp", temperature=1.0)
        assert better.diagnostics["tree_updates"] == 10
        assert exact <= better.log_partition <= plain
        gains.append((plain - better.log_partition) / (plain - exact))
    assert np.mean(gains) > 0.3


@pytest.mark.parametrize("family", ["grid", "ragged", "cannot-links"])
def test_messages_stay_when_a_forest_joins(family):
    """Only their stored probabilities change, and a step can be undone."""
    graphs = (random_graph(family, seed) for seed in itertools.count())
    run = passing(next(graph for graph in graphs if not graph.is_forest))
    settle(run, 0.0, 3)
    rho, bound, before = run.state.rho, run.bound(), run.copy()
    messages = {where: m / rho[where[0]] for where, m in messages_of(run).items()}
    run.join(0.3)
    assert (run.state.rho != rho).any()
    for where, m in messages_of(run).items():
        assert m / run.state.rho[where[0]] == pytest.approx(messages[where])
    settle(run, 0.0, 2)
    run.restore(before)
    assert run.bound() == bound


# ---------------------------------------------------------------------- what it covers


def test_refusals():
    graph = random_graph("potts", 0)
    assert il.solve(graph, "trw-bp").message == (
        "trw-bp finds marginals: it needs a temperature above 0"
    )
    larger = il.solve(random_graph("higher-order", 0), "trw-bp", temperature=1.0)
    assert larger.message.startswith("terms have at most two variables")


@given(family=st.sampled_from(sorted(LABEL_COSTS)), seed=st.integers(0, 2**32 - 1))
def test_label_costs_are_bounded_too(family, seed):
    """The star encoding represents them."""
    graph = random_graph(family, seed)
    assume(not graph.n_factors)
    exact = exhaustive(graph)
    s = il.solve(graph, "trw-bp", temperature=1.0)
    assert s.log_partition_kind == "upper"
    assert s.log_partition >= exact.log_partition(1.0) - 1e-11 * exact.scale
    assert len(s.marginals) == graph.n_variables


def test_one_variable_with_label_costs_is_a_forest():
    graph = il.FactorGraph.potts([[0.0, 1.0, 0.5]], np.empty((0, 2), dtype=np.int64), [])
    graph = graph.with_label_costs([2.0, 0.0, 1.0], [((0, 1), 0.5)])
    exact = exhaustive(graph)
    s = il.solve(graph, "trw-bp", temperature=1.0)
    assert s.log_partition == pytest.approx(exact.log_partition(1.0), abs=1e-12)
    assert s.marginals[0] == pytest.approx(exact.marginals(1.0)[0], abs=1e-9)


def test_labels_without_support_have_no_probability():
    """Hard tables propagate the exclusion of label 0 along a chain that closes to a cycle."""
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
        labels = domains.labels[domains.ptr[i] : domains.ptr[i + 1]]
        assert (np.delete(s.marginals[i], labels) == 0).all()
        assert s.marginals[i].sum() == pytest.approx(1.0)
