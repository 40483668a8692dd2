"""Tree-reweighted sum-product: its bound is valid for any messages."""

from __future__ import annotations

import itertools
import math

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import recipes

import inference_lab as il
from inference_lab.algorithms.belief_propagation.forests import (
    appearance,
    cover,
    heavy_forest,
    spanning_forest,
)
from inference_lab.algorithms.belief_propagation.reweighted import collect
from inference_lab.algorithms.elimination.arc_consistency import allowed_labels
from inference_lab.conformance import exhaustive
from inference_lab.contract import Run
from inference_lab.graph.grids import grid_edges
from inference_lab.graph.random_graphs import FAMILIES, LABEL_COSTS, random_graph
from inference_lab.solvers.trw_bp import TRWBP, _Passing, new_message

FEASIBLE = [family for family in FAMILIES if family != "infeasible"]


def passing(graph, temperature=1.0, seed=0, **settings):
    """Return the state of a run before its first sweep."""
    solver, run = TRWBP(**settings), Run(graph, temperature=temperature, seed=seed)
    domains, forests = allowed_labels(graph), cover(graph, solver.trees, run)
    return _Passing(solver, graph, run, domains, forests)


def settle(run, tolerance, most):
    """Sweep there and back, at most `sweeps` times; return whether the messages settled."""
    return any(run.sweep(done % 2 == 1) <= tolerance for done in range(most))


def terms_of(graph):
    """Return scopes and tables in the order of the probabilities: edges, then factors."""
    return [(scope, table) for scope, table in graph.factors() if len(scope) > 1]


def messages_of(run):
    """Return views of all messages, by term and position in its scope."""
    g, state, factors = run.arrays, run.state, run.factors
    found = {}
    for p, h in enumerate(g.adj_half.tolist()):
        found[h >> 1, h & 1] = state.messages[state.ptr[p] : state.ptr[p + 1]]
    for slot, f in enumerate(g.slot_factor.tolist()):
        where = run.graph.n_edges + f, slot - int(g.factor_ptr[f])
        found[where] = factors.messages[factors.ptr[slot] : factors.ptr[slot + 1]]
    return found


def unary_of(run, i):
    """Return the unary of a variable, infinite at labels that are ruled out."""
    return run.state.unary[run.graph.unary_ptr[i] : run.graph.unary_ptr[i + 1]]


def scramble(run, rng, size):
    """Replace the messages by random numbers, except at labels that are ruled out."""
    terms = terms_of(run.graph)
    for (c, s), message in messages_of(run).items():
        allowed = np.isfinite(unary_of(run, terms[c][0][s]))
        message[:] = np.where(allowed, size * rng.normal(size=message.size), 0.0)
    collect(run.arrays, run.state, run.factors)


#: Families with terms of every kind and arity, without and with infinite costs.
RULES = ["potts", "ragged", "own-tables", "higher-order", "hard-tables", "mixed"]


@pytest.mark.parametrize("family", RULES)
@pytest.mark.parametrize("damping", [0.0, 0.4])
def test_sweeps_follow_the_update_rule(family, damping):
    """Check there and back, message by message, from random messages."""
    for seed in range(4):
        graph = random_graph(family, seed)
        run = passing(graph, temperature=0.7, damping=damping)
        scramble(run, np.random.default_rng(seed), 1.0)
        terms, stored = terms_of(graph), messages_of(run)
        messages = {where: message.copy() for where, message in stored.items()}
        for backwards in (False, True):
            for i in run.order[:: -1 if backwards else 1]:
                for (c, s), message in messages.items():
                    scope, table = terms[c]
                    if scope[s] != i:
                        continue
                    rho = run.state.rho[c]
                    others = []
                    for t, j in enumerate(scope):
                        arriving = [m for (d, u), m in messages.items() if terms[d][0][u] == j]
                        if t != s:
                            others.append((unary_of(run, j) + sum(arriving), messages[c, t]))
                    allowed = np.isfinite(unary_of(run, i))
                    new = new_message(table, s, rho, 0.7, others)
                    new = np.where(allowed, new - new[allowed].min(), 0.0)
                    messages[c, s] = new + run.update.damping * (message - new)
            run.sweep(backwards)
            for where, message in stored.items():
                assert message == pytest.approx(messages[where], rel=1e-9, abs=1e-9), where


# ---------------------------------------------------------------------- the bound


@given(
    family=st.sampled_from(FEASIBLE),
    seed=st.integers(0, 2**32 - 1),
    size=st.sampled_from([0.0, 0.3, 3.0, 100.0]),
    temperature=st.sampled_from([0.2, 1.0, 4.0]),
)
def test_any_messages_give_an_upper_bound(family, seed, size, temperature):
    """Hoelder's inequality, with random numbers for messages and +inf costs."""
    graph = random_graph(family, seed)
    run = passing(graph, temperature, seed)
    if graph.n_variables and seed % 2:
        run.join(0.3)
    scramble(run, np.random.default_rng(seed), size)
    exact = exhaustive(graph)
    slack = 1e-11 * (exact.scale + size) / temperature
    assert run.bound() >= exact.log_partition(temperature) - slack


def held(graph, up):
    """Return the terms of a forest."""
    g = graph.arrays
    edges = [int(g.adj_half[p]) >> 1 for p in up if p >= 0]
    return edges + sorted({graph.n_edges + int(g.slot_factor[-2 - p]) for p in up if p < -1})


def energies_of_forests(run):
    """Return the energies of all labellings on each forest, as one array a forest."""
    graph, terms, messages = run.graph, terms_of(run.graph), messages_of(run)
    n = graph.n_variables
    rows = np.split(run.state.belief, graph.unary_ptr[1:-1])
    alone = sum(np.expand_dims(row, [j for j in range(n) if j != i]) for i, row in enumerate(rows))
    found = []
    for up in run.forests.up:
        energies = alone
        for c in held(graph, up):
            scope, table = terms[c]
            incoming = [np.expand_dims(messages[c, s], [t for t in range(len(scope)) if t != s])
                    for s in range(len(scope))]  # fmt: skip
            part = ((table - sum(incoming)) / run.state.rho[c]).transpose(np.argsort(scope))
            energies = energies + np.expand_dims(part, [j for j in range(n) if j not in scope])
        found.append(energies)
    return found


@pytest.mark.parametrize("family", [*RULES, "cannot-links", "merged", "forest"])
def test_the_forests_average_to_the_energy(family):
    """The identity behind the bound, label by label, and the sum over each forest."""
    for seed in range(6):
        graph = random_graph(family, seed)
        run = passing(graph, 0.8, seed)
        settle(run, 0.0, 2)
        if seed % 2:
            run.join(0.3)
        scramble(run, np.random.default_rng(seed), 2.0)
        share, found = run.forests.share, energies_of_forests(run)
        average = graph.constant + sum(w * e for w, e in zip(share, found, strict=True))
        expected = exhaustive(graph).energies
        # A forest without a hard term may be finite everywhere, unlike the graph.
        possible = np.isfinite(expected)
        assert average[possible] == pytest.approx(expected[possible], rel=1e-9, abs=1e-9)
        sums = [np.log(np.exp(-e / 0.8).sum()) for e in found]
        assert run.bound() == pytest.approx(share @ sums - graph.constant / 0.8, rel=1e-9)


def entropy(p):
    return float(-(p[p > 0] * np.log(p[p > 0])).sum())


def expected(p, cost):
    return float((p[p > 0] * cost[p > 0]).sum())


@pytest.mark.parametrize(
    "family", ["potts", "diagonal", "own-tables", "ragged", "grid", "higher-order", "hard-tables"]
)
def test_at_convergence_the_bound_is_the_value_of_the_relaxation(family):
    """Strong duality: the bound is ``-<E> / T + sum_i H_i - sum_c rho_c I_c``."""
    temperature = 2.0
    for seed in range(6):
        graph = random_graph(family, seed)
        run = passing(graph, temperature, seed, tolerance=1e-12)
        assert settle(run, 1e-12, 5000)
        terms, messages, rho = terms_of(graph), messages_of(run), run.state.rho
        rows = np.split(run.marginals(), graph.unary_ptr[1:-1])
        beliefs = np.split(run.state.belief, graph.unary_ptr[1:-1])
        value = -graph.constant / temperature
        for i, row in enumerate(rows):
            value += entropy(row) - expected(row, graph.unary_of(i)) / temperature
        information = run.information()
        for c, (scope, table) in enumerate(terms):
            cost = table / rho[c]
            for s, i in enumerate(scope):
                others = [t for t in range(len(scope)) if t != s]
                cost = cost + np.expand_dims(beliefs[i] - messages[c, s] / rho[c], others)
            joint = np.exp((cost.min() - cost) / temperature)
            joint /= joint.sum()
            for s, i in enumerate(scope):
                others = tuple(t for t in range(len(scope)) if t != s)
                np.testing.assert_allclose(joint.sum(axis=others), rows[i], atol=1e-8)
            shared = sum(entropy(rows[i]) for i in scope) - entropy(joint.ravel())
            assert information[c] == pytest.approx(shared, abs=1e-8)
            value -= rho[c] * shared + expected(joint, table) / temperature
        assert run.bound() == pytest.approx(value, rel=1e-7, abs=1e-7)


def test_order_and_damping_do_not_matter_for_the_limit():
    """The relaxation is convex: its value depends on the edge probabilities alone."""
    for family in ("own-tables", "higher-order"):
        graph = random_graph(family, 11)
        values = []
        for damping in (0.0, 0.3, 0.6):
            run = passing(graph, 1.0, 0, damping=damping)
            scramble(run, np.random.default_rng(int(10 * damping)), 1.0)
            assert settle(run, 1e-10, 5000)
            values.append(run.bound())
        assert values == pytest.approx([values[0]] * 3, abs=1e-8)


# ---------------------------------------------------------------------- the forests


def assert_forest(graph, order, up):
    """Check that parents come first, and that the children of a term are consecutive."""
    g, terms = graph.arrays, terms_of(graph)
    assert sorted(order) == list(range(graph.n_variables))
    place = np.argsort(order)
    for i in np.flatnonzero(up >= 0):
        assert g.edges[g.adj_half[up[i]] >> 1, g.adj_half[up[i]] & 1] == i
        assert place[g.adj_var[up[i]]] < place[i]
    for c in held(graph, up):
        if c < graph.n_edges:
            continue
        scope = terms[c][0]
        slots = {-2 - s for s in range(*graph.factor_ptr[c - graph.n_edges :][:2])}
        hung = sorted(place[i] for i in scope if up[i] in slots)
        # All variables but one are consecutive, and the one that they hang from precedes them.
        assert hung == list(range(hung[0], hung[0] + len(scope) - 1))
        assert min(place[list(scope)]) < hung[0]
    # Terms and variables form no cycle: each variable of a term but one hangs from it.
    assert sum(len(terms[c][0]) - 1 for c in held(graph, up)) == (up != -1).sum()


def greedy(graph, ranked):
    """Take terms one by one as long as networkx finds no cycle."""
    terms, taken = terms_of(graph), nx.Graph()
    found = []
    for c in ranked:
        links = [(("term", int(c)), i) for i in terms[c][0]]
        more = nx.Graph([*taken.edges, *links])
        if nx.is_forest(more):
            taken = more
            found.append(int(c))
    return found


@given(recipe=recipes(min_variables=2), seed=st.integers(0, 2**32 - 1))
def test_forests_take_terms_that_close_no_cycle(recipe, seed):
    graph = recipe.build()
    ranked = np.random.default_rng(seed).permutation(graph.n_edges + graph.n_factors)
    taken, order, up = spanning_forest(graph, ranked)
    assert taken.tolist() == greedy(graph, ranked)
    assert sorted(taken) == sorted(held(graph, up))
    assert_forest(graph, order, up)


@given(recipe=recipes(min_variables=2), seed=st.integers(0, 2**32 - 1))
def test_forests_cover_all_terms(recipe, seed):
    """Each term has the probability of the forests that contain it."""
    graph = recipe.build()
    forests = cover(graph, 3, Run(graph, temperature=1.0, seed=seed))
    rho = np.zeros(graph.n_edges + graph.n_factors)
    for order, up, share in zip(*forests, strict=True):
        assert_forest(graph, order, up)
        rho[held(graph, up)] += share
    assert forests.share.size >= (1 if graph.is_forest else 3)
    assert (rho > 0).all()
    assert appearance(graph, forests) == pytest.approx(rho)


@pytest.mark.parametrize(("pair", "terms"), [(0.6, [0, 1]), (0.4, [2])])
def test_a_heavy_forest_is_of_pairs_or_of_a_factor(pair, terms):
    """Either two pairs over links weigh more, or the factor that closes a cycle with them."""
    graph = il.FactorGraph.from_factors(
        [2] * 3, [((0, 1), np.eye(2)), ((1, 2), np.eye(2)), ((0, 1, 2), np.ones((2, 2, 2)))]
    )
    _, up = heavy_forest(graph, np.array([pair, pair, 1.0]))
    assert held(graph, up) == terms
    # By weight alone the factor is heavier, over links alone the first pair.
    _, up = heavy_forest(graph, np.array([0.6, 0.1, 1.0]))
    assert held(graph, up) == [2]


@given(recipe=recipes(min_variables=2), seed=st.integers(0, 2**32 - 1))
def test_heavy_forests_are_the_heavier_of_two(recipe, seed):
    """Compare with greedy forests by weight and by weight over links."""
    graph = recipe.build()
    sizes = np.array([len(scope) - 1 for scope, _ in terms_of(graph)])
    weights = np.random.default_rng(seed).random(sizes.size)
    _, up = heavy_forest(graph, weights)
    by_weight = greedy(graph, np.argsort(-weights)), greedy(graph, np.argsort(-weights / sizes))
    best = max(weights[terms].sum() for terms in by_weight)
    assert weights[held(graph, up)].sum() == pytest.approx(best)


@pytest.mark.parametrize("least", [1, 8])
@pytest.mark.parametrize("n", [6, 25])
def test_edges_are_used_about_equally_often(n, least):
    rng = np.random.default_rng(n)
    pairs = np.array(list(itertools.combinations(range(n), 2)))
    # Two components and an isolated variable.
    side = np.arange(n) * 2 // (n - 1)
    pairs = pairs[(side[pairs[:, 0]] == side[pairs[:, 1]]) & (pairs[:, 1] < n - 1)]
    graph = il.FactorGraph.potts(rng.normal(size=(n, 2)), pairs, 1.0)
    run = passing(graph, trees=least)
    components = int(graph.components.max()) + 1
    assert run.forests.share.size >= least
    assert run.forests.share.sum() == pytest.approx(1.0)
    assert (np.count_nonzero(run.forests.up >= 0, axis=1) == n - components).all()
    rho = run.state.rho
    assert (rho > 0).all() and (rho <= 1).all()
    assert rho.sum() == pytest.approx(n - components)
    # In a complete graph all edges are equivalent.
    assert rho.max() <= 4 * rho.min()


@pytest.mark.parametrize(("arity", "least"), [(2, 0.3), (3, 0.1)])
def test_better_probabilities_tighten_the_bound(arity, least):
    """It holds for pairs along a grid, and for factors."""
    gains = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        edges = grid_edges(6, 6)
        n, terms, factors = 36, [il.DiagonalTerms(edges, 0.0, 2.0 * rng.normal(size=60))], []
        if arity == 3:
            scopes = [rng.choice(12, size=3, replace=False).tolist() for _ in range(14)]
            factors = [(scope, 2.0 * rng.normal(size=(2, 2, 2))) for scope in scopes]
            n, terms = 12, []
        graph = il.FactorGraph.from_terms(rng.normal(size=(n, 2)), terms, factors)
        exact = il.solve(graph, "junction-tree", temperature=1.0).log_partition
        plain = il.solve(graph, "trw-bp(tree_updates=0)", temperature=1.0).log_partition
        better = il.solve(graph, "trw-bp", temperature=1.0)
        assert arity == 3 or better.diagnostics["tree_updates"] == 10
        assert exact <= better.log_partition <= plain
        gains.append((plain - better.log_partition) / (plain - exact))
    assert np.mean(gains) > least


@pytest.mark.parametrize("family", ["grid", "higher-order", "mixed"])
def test_messages_stay_when_a_forest_joins(family):
    """Only their stored probabilities change, and a step can be undone."""
    run = passing(random_graph(family, 3))
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


@given(family=st.sampled_from(sorted(LABEL_COSTS)), seed=st.integers(0, 2**32 - 1))
def test_label_costs_are_bounded_too(family, seed):
    """The star encoding represents them."""
    graph = random_graph(family, seed)
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
        left = domains.labels[domains.ptr[i] : domains.ptr[i + 1]]
        assert (np.delete(s.marginals[i], left) == 0).all()
        assert s.marginals[i].sum() == pytest.approx(1.0)
