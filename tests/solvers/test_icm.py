"""ICM ends in a local minimum, never rises on the way, and cannot cycle."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from strategies import assert_local_minimum, random_pairs, rank

import inference_lab as il
from inference_lab.contract import Run
from inference_lab.graph.factor_graph import FactorGraph, unary_minimum
from inference_lab.graph.grids import grid_edges
from inference_lab.graph.random_graphs import FAMILIES, random_graph
from inference_lab.kernels.descent import AWAIT, KEEP, CoordinateDescent, descend, icm_sweep
from inference_lab.registry.sources import problem_registry
from inference_lab.solvers.icm import ICM, renewed_label

INF = math.inf
FEASIBLE = [f for f in FAMILIES if f != "infeasible"]
ORDERS = ("auto", "random", "sequential", "symmetric")
CHOICES = list(itertools.product(("unary", "random"), ORDERS[1:]))


# ---------------------------------------------------------------------- the descent


@pytest.mark.parametrize("family", [f for f in FAMILIES if f != "equal"])
def test_a_visit_is_the_update_rule(family):
    """Each variable in turn gets the label of the rule on dense tables, from random labels."""
    for seed in range(5):
        graph = random_graph(family, seed)
        x = np.random.default_rng(seed).integers(0, graph.cardinalities)
        factors = [(scope, table) for scope, table in graph.factors() if len(scope) > 1]
        descent = CoordinateDescent(graph, x)
        for i in range(graph.n_variables):
            terms = [
                (table, scope.index(i), [int(x[j]) for j in scope])
                for scope, table in factors
                if i in scope
            ]
            expected = renewed_label(graph.unary_of(i), terms, int(x[i]))
            dirty = np.ones(graph.n_variables, dtype=np.bool_)
            descent.sweep(x, np.array([i]), dirty, KEEP)
            assert x[i] == expected


@pytest.mark.parametrize(
    ("order", "end", "sweeps"),
    [("sequential", 0, 2), ("sequential", -1, 50), ("symmetric", 0, 2), ("symmetric", -1, 3)],
)
def test_a_change_is_passed_on_in_the_same_sweep(order, end, sweeps):
    """On a path it reaches all later variables; from the last variable only on the way back."""
    unary = np.tile([0.0, 0.1], (50, 1))
    unary[end] = [0.0, 9.0]
    graph = FactorGraph.potts(unary, [(i, i + 1) for i in range(49)], 0.2)
    start = np.ones(50, dtype=int)
    start[end] = 0
    s = il.solve(graph, f"icm(order={order})", initial=start)
    assert s.labels.tolist() == [0] * 50 and s.iterations == sweeps


@pytest.mark.parametrize("order", ["sequential", "symmetric"])
def test_woken_variables_are_visited_in_the_same_sweep(order):
    """Round a cycle: the last variable changes in the first sweep, all others in the second."""
    unary = np.tile([0.0, 0.1], (50, 1))
    unary[-1] = [0.0, 9.0]
    graph = FactorGraph.potts(unary, [(i, (i + 1) % 50) for i in range(50)], 0.2)
    s = il.solve(graph, f"icm(order={order})", initial=np.ones(50, dtype=int))
    assert s.labels.tolist() == [0] * 50 and s.iterations == 3


# ---------------------------------------------------------------------- ties


@pytest.mark.parametrize(("init", "order"), CHOICES)
def test_ties_keep_the_label(init, order):
    for seed in range(10):
        graph = random_graph("equal", seed)
        start = np.random.default_rng(seed).integers(0, graph.cardinalities)
        s = il.solve(graph, ICM(init=init, order=order), initial=start, seed=seed)
        assert s.labels.tolist() == start.tolist() and s.iterations == 1


def test_ties_between_moves_take_a_neighbours_label():
    graph = FactorGraph.potts([[3.0, 1.0, 1.0, 1.0], [9.0, 9.0, 0.0, 9.0]], [(0, 1)], [0.0])
    for order in ORDERS:
        for ties, best in (("spread", 2), ("keep", 1)):
            s = il.solve(graph, f"icm(order={order}, ties={ties})", initial=[0, 2])
            assert s.labels.tolist() == [best, 2], order


@pytest.mark.parametrize("order", ["sequential", "symmetric"])
def test_labels_spread_over_ties_to_where_there_is_something_to_gain(order):
    """The border between two labels moves along a path at no cost, up to the end that gains."""
    unary = np.zeros((20, 2))
    unary[0], unary[-1] = [0.0, 5.0], [0.0, 0.5]
    graph = FactorGraph.potts(unary, [(i, i + 1) for i in range(19)], 1.0)
    for end, start in ((0, [1] * 20), (1, [0] + [1] * 19)):
        s = il.solve(graph, f"icm(order={order})", initial=start)
        # If no move gains at first, ties keep their labels.
        assert s.energy == (0.0, 1.5)[end] and s.labels.tolist() == ([0] * 20, start)[end]


def test_ties_spread_by_themselves_where_variables_are_numbered_along_their_terms():
    """If numbered at random, as in E-steps, a tie keeps its label."""
    rng = np.random.default_rng(1)
    unary, edges = rng.integers(0, 3, size=(400, 3)).astype(float), grid_edges(20, 20)
    for number, same in ((np.arange(400), "spread"), (rng.permutation(400), "keep")):
        graph = FactorGraph.potts(unary[np.argsort(number)], number[edges], 1.0)
        labellings = {
            ties: il.solve(graph, f"icm(order=sequential, ties={ties})").labels.tolist()
            for ties in ("auto", "keep", "spread")
        }
        assert labellings["auto"] == labellings[same] and labellings["keep"] != labellings["spread"]


def test_repeated_descent_changes_nothing():
    """It holds with integer costs as well, which tie everywhere."""
    rng = np.random.default_rng(0)
    unary = rng.integers(0, 3, size=(400, 3)).astype(float)
    graph = FactorGraph.potts(unary, grid_edges(20, 20), 1.0)
    for order, ties in itertools.product(ORDERS, ("keep", "spread")):
        end = il.solve(graph, f"icm(order={order}, ties={ties})")
        again = il.solve(graph, f"icm(order={order}, ties={ties})", initial=end.labels)
        assert again.labels.tolist() == end.labels.tolist() and again.iterations == 1
        assert_local_minimum(graph, end.labels)


def test_ties_by_rounding_keep_the_label():
    """``0.1 + 0.2 > 0.3`` in floats, but not by more than rounding."""
    # Label 0 of variable 0 pays 0.1 + 0.2 to its neighbours, label 1 pays 0.3 by itself.
    for neighbours, price in (([0.1, 0.2], 0.3), ([0.3], 0.1 + 0.2), ([0.7, 0.1], 0.8)):
        n = len(neighbours) + 1
        unary = np.array([[0.0, price]] + [[5.0, 0.0]] * (n - 1))
        graph = FactorGraph.potts(unary, [(0, i) for i in range(1, n)], neighbours)
        for label in (0, 1):
            start = [label] + [1] * (n - 1)
            assert il.solve(graph, "icm", initial=start).labels.tolist() == start


def test_large_costs_do_not_make_it_cycle():
    """Rounding at 1e15 is larger than the differences; the descent still ends."""
    rng = np.random.default_rng(0)
    edges = random_pairs(rng, 30, 200)
    for scale in (1e15, 1e99):
        graph = FactorGraph.potts(rng.normal(size=(30, 3)), edges, scale * rng.normal(size=200))
        s = il.solve(graph, "icm(restarts=5)")
        assert s.status == "converged" and s.iterations < 1000


# ---------------------------------------------------------------------- hard constraints


def test_violated_hard_terms_come_before_any_cost():
    graph = FactorGraph.potts([[INF, 0.0, INF], [0.0, 1e12, 0.0]], [(0, 1)], INF)
    s = il.solve(graph, "icm", initial=[1, 0])
    assert s.labels.tolist() == [1, 1] and s.energy == 1e12


# ---------------------------------------------------------------------- settings and budget


def test_initial_labelling_takes_precedence():
    graph = FactorGraph.potts([[2.0, 1.0, 1.0], [0.0, 3.0, 0.0], [5.0, 5.0, 1.0]], [], [])
    assert il.solve(graph, "icm").trace[0].energy == 2.0
    energies = {il.solve(graph, "icm(init=random)", seed=s).trace[0].energy for s in range(20)}
    assert len(energies) > 3
    for init in ("unary", "random"):
        s = il.solve(graph, f"icm(init={init})", initial=[0, 1, 0])
        assert [p.energy for p in s.trace[:2]] == [10.0, 10.0], "what is given takes precedence"


def test_unary_minimum_is_the_first_of_the_cheapest():
    uniform = FactorGraph.potts([[1.0, 0.0, 0.0], [INF, INF, 2.0], [3.0, 3.0, 3.0]], [], [])
    assert unary_minimum(uniform).tolist() == [1, 2, 0]
    ragged = FactorGraph.potts([[1.0, 0.0, 0.0], [2.0], [INF, 3.0, 1.0, 1.0], [INF, INF]], [], [])
    assert unary_minimum(ragged).tolist() == [1, 0, 2, 0]
    assert unary_minimum(ragged).dtype == np.int64
    assert unary_minimum(FactorGraph.from_factors([], [])).shape == (0,)


def frustrated(n: int = 40, k: int = 3, seed: int = 0) -> FactorGraph:
    """Return a graph with many local minima."""
    rng = np.random.default_rng(seed)
    edges = random_pairs(rng, n, 4 * n)
    return FactorGraph.potts(rng.normal(size=(n, k)), edges, 2 * rng.normal(size=4 * n))


def test_restarts_are_never_worse_and_sometimes_better():
    better = 0
    for seed in range(10):
        graph = frustrated(seed=seed)
        once, often = (
            il.solve(graph, "icm", seed=seed),
            il.solve(graph, "icm(restarts=10)", seed=seed),
        )
        assert often.energy <= once.energy
        assert once.diagnostics["descents"] == 1 and often.diagnostics["descents"] == 11
        assert often.status == "converged"
        assert_local_minimum(graph, often.labels)
        better += often.energy < once.energy
    assert better >= 5


def test_restarts_are_from_random_labellings():
    """Only the first descent starts from the given labelling."""
    graph = frustrated()
    start = il.solve(graph, "icm").labels
    s = il.solve(graph, "icm(restarts=3)", initial=start)
    starts = [graph.energy(start)] * 2  # offered by the run, then by the descent
    assert [p.energy for p in s.trace[:2]] == starts
    assert len({p.energy for p in s.trace}) > 3


def test_every_descent_has_to_settle():
    """A truncated first descent is not compensated by a second that settles."""
    unary = np.tile([0.0, 0.1], (50, 1))
    unary[-1] = [0.0, 9.0]
    graph = FactorGraph.potts(unary, [(i, i + 1) for i in range(49)], 0.2)
    start = np.array([1] * 49 + [0])
    cut = ICM(order="sequential", max_sweeps=20)
    assert il.solve(graph, cut, initial=start).status == "limit"
    assert il.solve(graph, ICM("random", order="sequential", max_sweeps=20)).status == "converged"
    twice = ICM(order="sequential", max_sweeps=20, restarts=1)
    s = il.solve(graph, twice, initial=start, seed=0)
    assert s.status == "limit" and 20 < s.iterations < 40


def test_the_order_is_drawn_anew_or_fixed():
    graph = frustrated()
    fixed = [il.solve(graph, "icm(order=sequential)", seed=s).labels.tolist() for s in range(5)]
    drawn = [il.solve(graph, "icm(order=random)", seed=s).labels.tolist() for s in range(5)]
    assert len(set(map(tuple, fixed))) == 1
    assert len(set(map(tuple, drawn))) > 1


def test_by_default_labels_spread_along_grids():
    """If variables are numbered along the terms that order is used, otherwise a random one."""
    gains = []
    for seed in range(6):
        graph = problem_registry.make(f"potts-grid(seed={seed})").build().graph
        runs = {order: il.solve(graph, f"icm(order={order})", seed=0) for order in ORDERS}
        assert runs["auto"].labels.tolist() == runs["symmetric"].labels.tolist()
        gains.append(1.0 - runs["auto"].energy / runs["random"].energy)
    assert np.mean(gains) > 0.01
    graph = frustrated()
    runs = {order: il.solve(graph, f"icm(order={order})", seed=0) for order in ORDERS}
    assert runs["auto"].labels.tolist() == runs["random"].labels.tolist()
    assert runs["auto"].labels.tolist() != runs["sequential"].labels.tolist()


def test_limits():
    graph = frustrated(n=300)
    full = il.solve(graph, "icm")
    assert full.status == "converged" and full.iterations > 3
    for s in (il.solve(graph, "icm(max_sweeps=2)"), il.solve(graph, "icm", max_iterations=2)):
        assert s.status == "limit" and s.iterations == 2 and s.energy > full.energy
    # A limit equal to the number of sweeps does not prevent convergence.
    exact = il.solve(graph, ICM(max_sweeps=full.iterations))
    assert exact.status == "converged" and exact.energy == full.energy
    # The limit of the settings applies to one descent, the limit of the run to all.
    s = il.solve(graph, "icm(max_sweeps=2, restarts=3)")
    assert s.status == "limit" and s.iterations == 8 and s.diagnostics["descents"] == 4
    s = il.solve(graph, "icm(max_sweeps=2, restarts=3)", max_iterations=5)
    assert s.status == "limit" and s.iterations == 5 and s.diagnostics["descents"] == 3
    s = il.solve(graph, "icm(max_sweeps=2, restarts=3)", max_iterations=4)
    assert s.status == "limit" and s.iterations == 4 and s.diagnostics["descents"] == 2
    s = il.solve(graph, "icm(restarts=100000)", time_limit=0.2)
    assert s.status == "limit" and s.diagnostics["descents"] > 5 and s.seconds < 1.0


def test_a_sweep_that_was_cut_off_proves_nothing(monkeypatch):
    """The first variables may have no gain while the remaining ones have."""
    monkeypatch.setattr(Run, "remaining", property(lambda self: 0.0))
    monkeypatch.setattr(Run, "should_stop", lambda self, done=0: done > 0)
    # More variables than are visited between two looks at the clock.
    n = 60_000
    graph = FactorGraph.potts([[0.0, 1.0]] * (n - 1) + [[0.0, 0.1]], [(n - 2, n - 1)], [0.0])
    start = np.zeros(n, dtype=np.int64)
    start[-1] = 1
    s = il.solve(graph, "icm(order=sequential)", initial=start, time_limit=5.0)
    assert s.labels.tolist() == start.tolist() and s.status == "limit"


# ---------------------------------------------------------------------- the kernels others use


@pytest.mark.parametrize("family", FEASIBLE)
def test_descend(family):
    graph = random_graph(family, 7)
    rng = np.random.default_rng(0)
    x = rng.integers(0, graph.cardinalities)
    order = rng.permutation(graph.n_variables)
    before = rank(graph, x)
    limited = x.copy()
    sweeps = descend(graph, x, order, 1000)
    assert_local_minimum(graph, x)
    assert rank(graph, x) <= before
    again = x.copy()
    assert descend(graph, again, order, 1000) == 1 and (again == x).all()
    assert descend(graph, limited, order, 1) == 1
    if sweeps > 2:
        assert rank(graph, limited) > rank(graph, x)


def test_a_sweep_visits_dirty_variables_of_its_order_only():
    graph = FactorGraph.potts(np.tile([1.0, 0.0], (4, 1)), [(2, 3)], [0.1])
    x = np.zeros(4, dtype=np.int64)
    dirty = np.array([True, False, True, False])
    scratch = np.empty(2), np.empty(2, dtype=np.int64)
    assert icm_sweep(graph.arrays, x, np.array([1, 2]), dirty, *scratch, AWAIT) == 1
    assert x.tolist() == [0, 0, 1, 0]
    assert dirty.tolist() == [True, False, False, True], "the neighbour of a change is woken"
