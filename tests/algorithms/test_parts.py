"""Components solved one by one: nothing is lost, and times and bounds add up."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import optimum

import inference_lab as il
from inference_lab.algorithms.parts import parts_to_solve, solve_parts, split
from inference_lab.contract import Outcome, Run
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.random_graphs import FAMILIES, random_graph
from inference_lab.graph.terms import DiagonalTerms, OwnTables
from inference_lab.registry.registry import as_solver

#: Solvers that solve components apart.
BY_PARTS = ("auto", "ilp", "branch-and-bound", "trw-s(tighten=cycles)", "mplp")


def side_by_side(graphs: list[FactorGraph]) -> FactorGraph:
    """Return the graph of all terms of several graphs over different variables."""
    factors, start, constant = [], 0, 0.0
    for graph in graphs:
        factors += [(tuple(v + start for v in scope), table) for scope, table in graph.factors()]
        start += graph.n_variables
        constant += graph.constant
    sizes = np.concatenate([graph.cardinalities for graph in graphs]).tolist()
    return FactorGraph.from_factors(sizes, [*factors, ((), np.array(constant))])


def dense(n: int, k: int, seed: int) -> FactorGraph:
    """Return a complete graph of random tables."""
    rng = np.random.default_rng(seed)
    edges = list(itertools.combinations(range(n), 2))
    return FactorGraph.pairwise(rng.normal(size=(n, k)), edges, rng.normal(size=(len(edges), k, k)))


families = st.sampled_from(sorted(set(FAMILIES) - {"empty", "large"}))


@given(drawn=st.lists(st.tuples(families, st.integers(0, 999)), min_size=1, max_size=3))
def test_energies_of_the_parts_add_up(drawn):
    graph = side_by_side([random_graph(family, seed) for family, seed in drawn])
    parts = split(graph, graph.components)
    assert sorted(np.concatenate([part.variables for part in parts])) == list(
        range(graph.n_variables)
    )
    rng = np.random.default_rng(0)
    for x in rng.integers(0, graph.cardinalities, (20, graph.n_variables)):
        energy = graph.energy(x)
        total = graph.constant + sum(part.graph.energy(x[part.variables]) for part in parts)
        assert total == pytest.approx(energy, rel=1e-12, abs=1e-9) or total == energy == math.inf


@given(drawn=st.lists(st.tuples(families, st.integers(0, 999)), min_size=1, max_size=4))
def test_trees_join_the_largest_part(drawn):
    graph = side_by_side([random_graph(family, seed) for family, seed in drawn])
    components = graph.components
    single = split(graph, components)
    cyclic = [number for number, part in enumerate(single) if not part.graph.is_forest]
    division = parts_to_solve(graph)
    if len(cyclic) < 2:
        assert division is None
        return
    part_of, states = division
    assert states.size == len(cyclic)
    largest = max(states.tolist())
    for number, part in enumerate(single):
        (joined,) = set(part_of[components == number].tolist())
        if number in cyclic:
            assert states[joined] == pytest.approx(part.graph.log2_states)
        else:
            assert states[joined] == largest


@pytest.mark.parametrize("solver", BY_PARTS)
def test_graphs_side_by_side_are_proved_one_by_one(solver):
    """Ten of 3^9 labellings, of which a whole would have 3^90; some are eliminated together."""
    graphs = [dense(9, 3, seed) for seed in range(4)]
    graphs += [random_graph("forest", 3), dense(4, 2, 0), dense(3, 3, 1)]
    graph = side_by_side(graphs)
    solution = il.solve(graph, solver, seed=0, time_limit=30.0, clock="cpu")
    assert solution.energy == pytest.approx(sum(optimum(one) for one in graphs))
    # Persistency solves two of them before `auto` divides the graph, and messages may prove all.
    expected = {"auto": (4,), "mplp": (6, None), "trw-s(tighten=cycles)": (6, None)}
    assert solution.diagnostics.get("parts") in expected.get(solver, (6,))
    if "parts" in solution.diagnostics:
        assert solution.diagnostics["parts_eliminated"] >= 1
    assert solution.status == "optimal" and solution.lower_bound == solution.energy


@pytest.mark.parametrize("solver", ["toulbar2", "ortools-cpsat"])
def test_packages_get_the_whole_graph_unless_asked(solver):
    graph = side_by_side([dense(4, 2, seed) for seed in range(3)])
    method = as_solver(solver)
    if method.missing():
        pytest.skip(str(method.missing()))
    assert "parts" not in il.solve(graph, solver).diagnostics
    apart = il.solve(graph, f"{solver}(parts=True)")
    assert apart.diagnostics["parts"] == 3 and apart.status == "optimal"
    assert "parts" not in il.solve(graph, "ilp(parts=False)").diagnostics


def test_a_part_without_a_feasible_labelling_decides():
    ring = DiagonalTerms([(0, 1), (1, 2), (0, 2)], same=math.inf, differ=0.0)
    impossible = FactorGraph.from_terms(np.zeros((3, 2)), [ring])
    for solver in BY_PARTS:
        graph = side_by_side([dense(5, 2, 0), impossible, dense(4, 3, 1)])
        assert il.solve(graph, solver, time_limit=20.0).status == "infeasible"


class Clock:
    """A clock that runs only when it is told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def by_elimination(clock: Clock, seconds: float, shares: list[float]):
    """Return a solver for `solve_parts` that takes some seconds and notes its shares."""

    def solve(graph: FactorGraph, run: Run, share: float) -> Outcome:
        shares.append(share)
        if not run.should_stop():
            run.offer(il.solve(graph, "junction-tree").labels)
            run.bound(run.best_energy)
            clock.now += seconds
        return Outcome(converged=run.proved)

    return solve


@pytest.mark.parametrize("seconds", [1.0, 3.0])
def test_finished_parts_are_kept_when_the_time_ends(seconds):
    # More than 2^20 labellings each, so that none is eliminated.
    graphs = [dense(3, 102, 0), dense(3, 110, 1), dense(3, 120, 2)]
    graph = side_by_side(graphs)
    clock, shares = Clock(), []
    run = Run(graph, time_limit=4.0, clock=clock)
    outcome = solve_parts(by_elimination(clock, seconds, shares), graph, run)
    assert outcome is not None
    sizes = [3 * k + 3 for k in (102, 110, 120)]
    assert shares[0] == pytest.approx(4.0 * sizes[0] / sum(sizes))
    optima = [il.solve(one, "brute-force").energy for one in graphs]
    done = len(shares)
    assert done == (3 if seconds == 1.0 else 2) and outcome.converged == (done == 3)
    assert run.proved == (done == 3)
    for number in range(done):
        labels = run.best_labels[3 * number : 3 * number + 3]
        assert graphs[number].energy(labels) == pytest.approx(optima[number])
    minima = [one.sum_of_minima for one in graphs[done:]]
    expected = sum(optima[:done]) + sum(minima)
    assert run.lower_bound == pytest.approx(expected)


def test_clusters_of_different_parts_have_different_names():
    """Labels of a partition are only names: equal ones would join what no term joins."""
    rng = np.random.default_rng(0)
    edges = [(i + s, j + s) for s in (0, 9, 18) for i, j in itertools.combinations(range(9), 2)]
    gains = rng.normal(size=len(edges))
    graph = FactorGraph.potts(np.zeros((27, 27)), edges, gains)
    for solver in ("multicut", "auto"):
        solution = il.solve(graph, solver, seed=0, time_limit=20.0)
        assert solution.diagnostics["parts"] == 3
        of_part = [set(solution.labels[s : s + 9].tolist()) for s in (0, 9, 18)]
        assert not any(a & b for a, b in itertools.combinations(of_part, 2))


def test_costs_of_a_shared_pool_are_not_copied_to_each_part():
    table = np.arange(2500.0).reshape(50, 50)
    edges = [(3 * p + i, 3 * p + j) for p in range(40) for i, j in [(0, 1), (1, 2), (0, 2)]]
    shared = il.SharedTable(edges, table)
    graph = FactorGraph.from_terms(np.zeros((120, 50)), [shared])
    parts = split(graph, graph.components)
    assert len(parts) == 40
    assert all(part.graph.pairwise_values.size == 2500 for part in parts)
    separate = FactorGraph.from_terms(np.zeros((120, 50)), [OwnTables(edges, [table] * len(edges))])
    assert parts[0].graph.energy([1, 2, 3]) == separate.energy([1, 2, 3] + [0] * 117)
