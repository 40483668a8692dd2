"""Mean field: every update minimises the free energy, and its bound is valid."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import Recipe, random_pairs, recipes, weak_graph

import inference_lab as il
from inference_lab.conformance import exhaustive
from inference_lab.graph.arrays import FloatArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.random_graphs import FAMILIES, FINITE, random_graph
from inference_lab.graph.terms import DiagonalTerms
from inference_lab.solvers.mean_field import (
    MeanField,
    UpdateRule,
    free_energy,
    mean_field_sweep,
    potts_gains,
    renewed_distribution,
)

INF = math.inf
FEASIBLE = [f for f in FAMILIES if f != "infeasible"]
SOFT = [*FINITE, "large", "disconnected", "equal", "no-edges"]


# ---------------------------------------------------------------------- references


def free_energy_of(graph, temperature, q):
    scratch = np.empty(int(graph.cardinalities.max(initial=1))), np.empty(8, dtype=np.int64)
    return free_energy(graph.arrays, temperature, q, *scratch)


def rows(graph: FactorGraph, q: FloatArray) -> list[FloatArray]:
    return np.split(q, graph.unary_ptr[1:-1]) if graph.n_variables else []


def capped(graph: FactorGraph, cap: float) -> FloatArray:
    """Return energies of all labellings with every infinite cost replaced by the cap."""
    terms = [(scope, np.minimum(table, cap)) for scope, table in graph.factors()]
    return exhaustive(FactorGraph.from_factors(graph.cardinalities, terms)).energies


def product(q: list[FloatArray]) -> FloatArray:
    """Return the distribution ``prod_i q_i(x_i)`` over all labellings."""
    joint = np.ones(())
    for row in q:
        joint = np.multiply.outer(joint, row)
    return joint


def free(energies: FloatArray, q: list[FloatArray], temperature: float) -> float:
    """Return ``E_q[E] + T sum q log q`` by enumeration."""
    joint = product(q)
    used = joint > 0
    entropy = -sum(float((row[row > 0] * np.log(row[row > 0])).sum()) for row in q)
    return float((joint[used] * energies[used]).sum()) - temperature * entropy


def random_q(graph: FactorGraph, rng: np.random.Generator, sharpness: float) -> FloatArray:
    """Draw distributions with different degrees of concentration on one label each."""
    parts = [rng.dirichlet(np.full(int(k), 1.0 / sharpness)) for k in graph.cardinalities]
    return np.concatenate(parts) if parts else np.empty(0)


def cap_of(graph: FactorGraph) -> float:
    return 1e3 if graph.has_infinite else INF


class Updates:
    """Driver of the kernels, one variable at a time."""

    def __init__(self, graph: FactorGraph, q: FloatArray) -> None:
        self.graph = graph
        self.q = q
        self.field = np.empty(int(graph.cardinalities.max(initial=1)))
        self.digits = np.empty(8, dtype=np.int64)

    def one(self, i: int, temperature: float, cap: float) -> None:
        """Update one variable, marked as due regardless of its former state."""
        priority = np.full(self.graph.n_variables, INF)
        updated = mean_field_sweep(
            self.graph.arrays,
            (i, i + 1, 1),
            UpdateRule(temperature, cap, 0.0),
            self.q,
            priority,
            self.field,
            self.digits,
            potts_gains(self.graph, cap),
        )
        assert updated == 1


def minimiser(
    graph: FactorGraph, energies: FloatArray, q: list[FloatArray], i: int, temperature: float
) -> FloatArray:
    """Return ``exp(-field / T)``, normalised, with the field by enumeration."""
    others = [np.ones_like(row) if j == i else row for j, row in enumerate(q)]
    axes = tuple(j for j in range(graph.n_variables) if j != i)
    field = (product(others) * energies).sum(axis=axes)
    weights = np.exp(-(field - field.min()) / temperature)
    return weights / weights.sum()


def by_the_rule(
    graph: FactorGraph, q: list[FloatArray], i: int, temperature: float, cap: float
) -> FloatArray:
    """Return the update as written in the paper, from the tables of the terms."""
    terms = [
        (np.minimum(table, cap), scope.index(i), [q[j] for j in scope])
        for scope, table in graph.factors()
        if len(scope) > 1 and i in scope
    ]
    return renewed_distribution(np.minimum(graph.unary_of(i), cap), terms, temperature)


# ---------------------------------------------------------------------- the free energy


@given(recipes(), st.sampled_from([0.5, 5.0, 100.0]), st.sampled_from([0.01, 1.0, 100.0]))
def test_free_energy_is_that_of_enumeration(recipe: Recipe, sharpness: float, temperature: float):
    graph = recipe.build()
    rng = np.random.default_rng(0)
    q = random_q(graph, rng, sharpness)
    slack = 1e-11 * max(recipe.scale(), temperature)
    energies = exhaustive(graph).energies
    if np.isinf(energies[product(rows(graph, q)) > 0]).any():
        assert free_energy_of(graph, temperature, q) == INF
    else:
        expected = free(energies - graph.constant, rows(graph, q), temperature)
        assert free_energy_of(graph, temperature, q) == pytest.approx(expected, abs=slack)
    x = rng.integers(0, graph.cardinalities)
    one_hot = np.zeros_like(q)
    one_hot[graph.unary_ptr[:-1] + x] = 1.0
    exact = free_energy_of(graph, temperature, one_hot) + graph.constant
    assert exact == graph.energy(x) or exact == pytest.approx(graph.energy(x), abs=slack)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("rest", [1e-9, 1e-13, 1e-20])
def test_rare_disagreements_are_not_lost_in_rounding(rest, k):
    """``1 - sum q q`` would lose them; with a heavy must-link the bound depends on them."""
    weight = 1e18
    graph = FactorGraph.potts(np.zeros((2, k)), [(0, 1)], [weight])
    row = np.full(k, rest)
    row[1] = 1.0 - rest * (k - 1)
    q = np.concatenate([row, row])
    apart = sum(
        row[a] * row[b] for a in range(k) for b in range(k) if a != b
    )  # each summand is positive: no cancellation
    entropy = -2 * float((row * np.log(row)).sum())
    expected = apart * weight - entropy
    assert free_energy_of(graph, 1.0, q) == pytest.approx(expected, rel=1e-12)
    hard = FactorGraph.potts(np.zeros((2, k)), [(0, 1)], [INF])
    assert free_energy_of(hard, 1.0, q) == INF
    agreed = np.concatenate([np.eye(k)[1]] * 2)
    assert free_energy_of(hard, 1.0, agreed) == 0.0


# ---------------------------------------------------------------------- single updates


@pytest.mark.parametrize("temperature", [0.05, 1.0, 30.0])
@pytest.mark.parametrize("family", [f for f in FEASIBLE if f != "empty"])
def test_an_update_is_the_minimiser(family, temperature):
    """It is ``exp(-field / T)``, normalised."""
    rng = np.random.default_rng(0)
    for seed in range(3):
        graph = random_graph(family, seed)
        cap = cap_of(graph)
        energies = capped(graph, cap)
        scale = np.abs(energies).max()
        updates = Updates(graph, random_q(graph, rng, 2.0))
        for i in rng.permutation(graph.n_variables)[:5]:
            before = [row.copy() for row in rows(graph, updates.q)]
            target = minimiser(graph, energies, before, i, temperature)
            near = 1e-10 + 1e-13 * scale / temperature
            textbook = by_the_rule(graph, before, i, temperature, cap)
            assert np.abs(textbook - target).max() <= near
            updates.one(i, temperature, cap)
            after = rows(graph, updates.q)
            assert np.abs(after[i] - target).max() <= near
            for j in range(graph.n_variables):
                assert j == i or (after[j] == before[j]).all()


def test_an_update_wakes_the_neighbours():
    """Priorities grow by the change of q; variables at or below the tolerance are skipped."""
    graph = FactorGraph.from_terms(
        np.tile([0.0, 1.0], (6, 1)),
        [DiagonalTerms([(0, 1)], 0.5)],
        [((1, 2, 3), np.arange(8.0).reshape(2, 2, 2))],
    )
    q = np.full(12, 0.5)
    scratch = np.empty(2), np.empty(3, dtype=np.int64), potts_gains(graph, INF)
    priority = np.array([0.0, 1.0, 1e-3, 0.0, 0.0, 0.0])
    call = (graph.arrays, (0, 6, 1), UpdateRule(1.0, INF, 1e-3), q, priority, *scratch)
    target = minimiser(graph, exhaustive(graph).energies, rows(graph, q.copy()), 1, 1.0)
    assert mean_field_sweep(*call[:1], (0, 2, 1), *call[2:]) == 1
    change = abs(target[0] - 0.5)
    expected = [change, 0.0, 1e-3 + change, change, 0.0, 0.0]
    assert priority == pytest.approx(expected)
    assert (q[[0, 1, *range(4, 12)]] == 0.5).all()
    assert q[2:4] == pytest.approx(target)


# ---------------------------------------------------------------------- the bound


@pytest.mark.parametrize("family", SOFT)
def test_the_bound_is_that_of_the_marginals_returned(family):
    for temperature in (0.3, 2.0):
        graph = random_graph(family, 2)
        s = il.solve(graph, "mean-field", temperature=temperature)
        expected = free(exhaustive(graph).energies, list(s.marginals), temperature)
        assert s.log_partition == pytest.approx(-expected / temperature, rel=1e-9)


@pytest.mark.parametrize("family", ["must-links", "cannot-links", "hard-tables", "mixed"])
def test_the_bound_is_finite_where_constraints_are_hard(family):
    """It settles with no weight on forbidden combinations: a useless bound would be ``-inf``."""
    finite = 0
    for seed in range(12):
        graph = random_graph(family, seed)
        s = il.solve(graph, "mean-field", temperature=0.5)
        if math.isfinite(s.log_partition):
            finite += 1
            joint = product(list(s.marginals))
            assert np.isfinite(exhaustive(graph).energies[joint > 0]).all()
    assert finite >= 8


# ---------------------------------------------------------------------- where the answer is known


@pytest.mark.parametrize("same", [1.0, 50.0, INF])
@pytest.mark.parametrize("unary", [[0.0, 0.0], [2.0, 2.0], [0.0, 0.0, 99.0], [99.0, 0.0, 0.0]])
def test_symmetry_is_broken(unary, same):
    """For two variables that must differ, with equal unaries, q becomes a pair of labels.

    The uniform q is stationary; so is one that treats only the two cheap labels alike.
    """
    graph = FactorGraph.from_terms(np.array([unary] * 2), [DiagonalTerms([(0, 1)], same, 0.0)])
    for seed in range(5):
        s = il.solve(graph, "mean-field", temperature=0.02, seed=seed)
        assert (s.marginals.max(axis=1) > 0.99).all()
        assert s.marginals[0].argmax() != s.marginals[1].argmax()
        s = il.solve(graph, "mean-field", seed=seed)
        assert s.energy == 2 * min(unary)


def test_symmetry_of_flat_graphs_is_broken_everywhere():
    """An even cycle of cannot-links with flat unaries gets a colouring, or nearly one."""
    n = 10
    edges = [(i, (i + 1) % n) for i in range(n)]
    graph = FactorGraph.from_terms(np.zeros((n, 3)), [DiagonalTerms(edges, 1.0, 0.0)])
    energies = [il.solve(graph, "mean-field", seed=seed).energy for seed in range(10)]
    assert max(energies) <= 1.0 and energies.count(0.0) >= 7


def test_bound_is_near_the_log_partition_of_weak_terms():
    for seed in range(5):
        graph = weak_graph(seed)
        s = il.solve(graph, "mean-field(tolerance=1e-11)", temperature=1.0)
        exact = il.solve(graph, "brute-force", temperature=1.0)
        assert s.status == "converged"
        assert exact.log_partition - 0.5 < s.log_partition < exact.log_partition


@pytest.mark.parametrize("temperature", [0.05, 0.5, 5.0])
def test_converged_means_a_fixed_point(temperature):
    """Every q, recomputed from all others by enumeration, is unchanged."""
    checked = 0
    for family in [f for f in SOFT if f != "large"]:
        for seed in range(3):
            graph = random_graph(family, seed)
            s = il.solve(graph, "mean-field", temperature=temperature)
            if s.status != "converged":
                continue
            energies = exhaustive(graph).energies
            marginals = list(s.marginals)
            for i, row in enumerate(marginals):
                target = minimiser(graph, energies, marginals, i, temperature)
                assert np.abs(row - target).max() <= 1e-4, (family, seed)
            checked += 1
    assert checked >= 35


def test_free_energy_falls_from_sweep_to_sweep():
    """The free energy after one more sweep is no higher, up to rounding."""
    rises = 0
    for family in ("potts", "cannot-links", "mixed"):
        graph = random_graph(family, 3)
        limits = [MeanField(max_sweeps=sweeps) for sweeps in range(1, 20)]
        bounds = [il.solve(graph, s, temperature=0.4).log_partition for s in limits]
        slack = 1e-9 * max(1.0, abs(bounds[0]))
        rises += bounds[0] < bounds[-1] - slack
        assert all(a <= b + slack for a, b in itertools.pairwise(bounds))
    assert rises


# ---------------------------------------------------------------------- the best labelling


def test_annealing_is_better_than_starting_cold():
    """Summed over spin glasses, the schedule pays for its sweeps."""
    graphs = []
    for seed in range(15):
        rng = np.random.default_rng(seed)
        edges = random_pairs(rng, 40, 120)
        graphs.append(
            FactorGraph.potts(0.3 * rng.normal(size=(40, 2)), edges, rng.normal(size=120))
        )
    slow = sum(il.solve(graph, "mean-field").energy for graph in graphs)
    cold = (il.solve(graph, "mean-field", temperature=3e-3) for graph in graphs)
    assert slow < sum(solution.energy for solution in cold)


# ---------------------------------------------------------------------- settings and budget


def glass(n: int = 60, seed: int = 0) -> FactorGraph:
    rng = np.random.default_rng(seed)
    edges = random_pairs(rng, n, 3 * n)
    return FactorGraph.potts(np.zeros((n, 3)), edges, rng.normal(size=3 * n))


def test_limits_on_sweeps_are_for_each_temperature():
    s = il.solve(glass(), "mean-field(max_sweeps=2)", temperature=0.2)
    assert s.status == "limit" and s.iterations == 2
    s = il.solve(glass(), "mean-field(max_sweeps=1)")
    assert 10 <= s.iterations <= 51


def test_a_given_labelling_chooses_the_fixed_point():
    """Of two equally good ferromagnetic states the start decides, and it is never lost."""
    graph = FactorGraph.potts(np.zeros((6, 2)), list(itertools.combinations(range(6), 2)), 1.0)
    for label in (0, 1):
        s = il.solve(graph, "mean-field", temperature=0.5, initial=[label] * 6)
        assert (s.marginals[:, label] > 0.9).all()
    hard = glass()
    start = il.solve(hard, "icm(restarts=20)").labels
    assert il.solve(hard, "mean-field", initial=start).energy <= hard.energy(start)
