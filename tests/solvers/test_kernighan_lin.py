"""Chains end at their best state, costs stay right, and no simple move gains at the end."""

from __future__ import annotations

import itertools
import math
from inspect import unwrap

import numpy as np
import pytest
from strategies import assert_local_minimum, rank

import inference_lab as il
from inference_lab.conformance import exhaustive
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.random_graphs import DEGENERATE, FINITE, HARD, random_graph
from inference_lab.kernels.ejection_chains import (
    EjectionChains,
    Rules,
    begin_chain,
    begin_journal,
    begin_pass,
    chains_from,
    extend,
    fill,
    go_to,
    roll_back,
    start_chains,
)
from inference_lab.registry.sources import as_problem
from inference_lab.solvers.kernighan_lin import kick

INF = math.inf
FEASIBLE = [f for f in (*FINITE, *HARD, *DEGENERATE) if f not in ("infeasible", "empty")]
#: Families whose energies have no ties, so that the next best move is unique.
GENERIC = ["estep", "diagonal", "own-tables", "ragged", "higher-order", "grid", "potts"]


def started(graph: FactorGraph, x: np.ndarray) -> EjectionChains:
    """Return the costs of all moves, before the first chain."""
    c = start_chains(graph)
    fill(graph.arrays, x, c)
    return c


def assert_costs_right(graph: FactorGraph, x: np.ndarray, c: EjectionChains) -> None:
    """Compare the incrementally updated costs with recomputed ones."""
    fresh = started(graph, x)
    scale = max(1.0, np.abs(fresh.cost).max(initial=0.0))
    assert c.cost == pytest.approx(fresh.cost, abs=1e-9 * scale)
    assert (c.hard == fresh.hard).all()


def naive_pass(graph: FactorGraph, x: np.ndarray) -> np.ndarray:
    """Make the best single move of variables not yet moved, by whole energies, to the end."""
    x = x.copy()
    free = {i for i in range(graph.n_variables) if graph.cardinalities[i] > 1}
    states = [x.copy()]
    while free:
        moves = []
        for i in free:
            for a in range(int(graph.cardinalities[i])):
                if a != x[i]:
                    y = x.copy()
                    y[i] = a
                    moves.append((float(graph.energy(y)), i, a))
        _, i, a = min(moves)
        x[i] = a
        free.remove(i)
        states.append(x.copy())
    return states[int(np.argmin([float(graph.energy(y)) for y in states]))]


@pytest.mark.parametrize("family", FEASIBLE)
def test_costs_stay_right(family: str) -> None:
    """After any moves, kicks and chains the costs of all moves equal recomputed ones."""
    for seed in range(4):
        graph = random_graph(family, seed)
        n = graph.n_variables
        rng = np.random.default_rng(seed)
        x = rng.integers(0, graph.cardinalities)
        c = started(graph, x)
        for i in rng.permutation(n):
            unwrap(begin_chain)(c)
            unwrap(begin_journal)(c)
            go_to(graph.arrays, x, c, int(i), int(rng.integers(graph.cardinalities[i])), 0.0, False)
            assert_costs_right(graph, x, c)
        ball = np.empty(min(4, n), dtype=np.int64)
        for centre in rng.permutation(n):
            ball[0] = centre
            kick(graph.arrays, x, c, ball, ball.size, rng.random(ball.size), Rules(3, 2, 1e-9))
            assert_costs_right(graph, x, c)


@pytest.mark.parametrize("family", GENERIC)
def test_a_pass_is_that_of_whole_energies(family: str) -> None:
    """The chain with its heap ends like one with all energies recomputed."""
    for seed in range(8):
        graph = random_graph(family, seed)
        x = np.random.default_rng(seed).integers(0, graph.cardinalities)
        expected = naive_pass(graph, x)
        c = started(graph, x)
        begin_pass(graph.arrays, x, c)
        while extend(graph.arrays, x, c, 1 << 40, 1e-12, False, 1) <= 0:
            pass  # stopped after every move
        roll_back(graph.arrays, x, c)
        assert (x == expected).all(), seed
        assert_costs_right(graph, x, c)


@pytest.mark.parametrize("family", FEASIBLE)
def test_chains_report_their_gain(family: str) -> None:
    """The summed change equals that of the energy and is never a loss, and locks are released."""
    for seed in range(4):
        graph = random_graph(family, seed)
        x = np.random.default_rng(seed).integers(0, graph.cardinalities)
        c = started(graph, x)
        for i in range(graph.n_variables):
            before = rank(graph, x)
            c.now[0].gains = c.now[0].gained_violations = 0
            c.now[0].gained_cost = 0.0
            unwrap(begin_journal)(c)
            chains_from(graph.arrays, x, c, i, Rules(4, 2, 1e-12))
            after = rank(graph, x)
            assert after[0] - before[0] == c.now[0].gained_violations
            change = pytest.approx(c.now[0].gained_cost, abs=1e-9 * max(1, before[1]))
            assert after[1] - before[1] == change
            assert after <= (before[0], before[1] + 1e-9 * max(1.0, abs(before[1])))
            assert (c.now[0].gains > 0) == (after < before)
            assert (c.heap.place == -1).all()
            assert_costs_right(graph, x, c)


@pytest.mark.parametrize("family", FEASIBLE)
def test_a_kick_never_loses(family: str) -> None:
    """A kick that is not repaired is undone completely."""
    undone = 0
    for seed in range(6):
        graph = random_graph(family, seed)
        rng = np.random.default_rng(seed)
        x = il.solve(graph, "icm", seed=seed).labels.copy()
        c = started(graph, x)
        ball = np.empty(min(3, graph.n_variables), dtype=np.int64)
        for centre in rng.permutation(graph.n_variables):
            before, old = rank(graph, x), x.copy()
            ball[0] = centre
            gained = kick(
                graph.arrays, x, c, ball, ball.size, rng.random(ball.size), Rules(1, 1, 1e-9)
            )
            after = rank(graph, x)
            assert after <= (before[0], before[1] + 1e-9 * max(1.0, abs(before[1])))
            assert gained == (after < (before[0], before[1] - 1e-8))
            undone += (x == old).all()
    assert undone > 0


@pytest.mark.parametrize("kicks", [0, 1])
@pytest.mark.parametrize("family", FEASIBLE)
def test_no_move_and_no_swap_gains_at_the_end(family: str, kicks: int) -> None:
    """No single change, and no swap of labels across a term, lowers the energy of the answer."""
    for seed in range(4):
        graph = random_graph(family, seed)
        start = np.random.default_rng(seed).integers(0, graph.cardinalities)
        s = il.solve(
            graph, f"kernighan-lin(kicks={kicks}, chain=1, branches=1)", initial=start, seed=seed
        )
        assert s.status in ("converged", "optimal")
        if not s.feasible:
            assert family in HARD
            continue
        slack = 1e-9 * exhaustive(graph).scale
        assert_local_minimum(graph, s.labels)
        swaps = []
        for scope, _ in graph.factors():
            for i, j in itertools.combinations(scope, 2):
                y = s.labels.copy()
                y[i], y[j] = y[j], y[i]
                if (y < graph.cardinalities).all():
                    swaps.append(y)
        assert not swaps or graph.energy(swaps).min() >= s.energy - slack


def test_a_chain_leads_over_a_barrier() -> None:
    """A stiff path flips as a whole, while no smaller set of variables gains."""
    n = 8
    unary = np.zeros((n, 2))
    unary[0, 0] = 1.0
    graph = FactorGraph.potts(unary, [(i, i + 1) for i in range(n - 1)], 3.0)
    start = np.zeros(n, dtype=np.int64)
    assert il.solve(graph, "icm", initial=start).energy == 1.0
    s = il.solve(graph, "kernighan-lin(kicks=0)", initial=start)
    assert s.energy == 0.0
    # The chain has to be long enough.
    assert il.solve(graph, "kernighan-lin(kicks=0, chain=3)", initial=start).energy <= 1.0


def test_frustrated_potts_grids_end_below_message_passing() -> None:
    """On Potts terms of mixed signs the result is below BP, mean field and ICM."""
    for seed in range(3):
        spec = f"potts-grid(height=20, width=20, labels=4, frustration=0.5, seed={seed})"
        graph = as_problem(spec).graph
        energy = il.solve(graph, "kernighan-lin(kicks=0)").energy
        for other in ("icm(restarts=20)", "loopy-bp(max_sweeps=100)", "mean-field"):
            assert energy < il.solve(graph, other).energy - 1.0


def test_kicks_go_on_where_chains_end() -> None:
    """More rounds of kicks give lower energies."""
    graph = as_problem("potts-grid(height=20, width=20, labels=4, frustration=0.5)").graph
    energies = [il.solve(graph, f"kernighan-lin(kicks={kicks})").energy for kicks in (0, 1, 4)]
    assert energies[2] <= energies[1] < energies[0] - 0.5
