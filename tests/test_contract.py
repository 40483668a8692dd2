"""Run, Solution and solve: incumbents are never lost, clocks are fair, and proofs are valid."""

from __future__ import annotations

import itertools
import math
import pickle
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import Recipe, random_pairs, recipes

import inference_lab as il
from inference_lab.algorithms.payable_costs import payable
from inference_lab.algorithms.presolve import contradiction
from inference_lab.compile_timer import timer
from inference_lab.contract import (
    Outcome,
    Run,
    Solution,
    Solver,
    Status,
    proves,
)
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.random_graphs import random_graph, scaled
from inference_lab.graph.terms import DiagonalTerms, OwnTables

INF = math.inf


@dataclass(frozen=True)
class Script(Solver):
    """Solver that runs a given function."""

    what: Callable[[FactorGraph, Run], Outcome | None]
    every_temperature: bool = False

    def supports(self, graph, temperature):
        return None if self.every_temperature else super().supports(graph, temperature)

    def run(self, graph: FactorGraph, run: Run) -> Outcome:
        return self.what(graph, run) or Outcome()


@pytest.fixture
def graph() -> FactorGraph:
    """Four labellings of energies 0, 1, 2, 3."""
    return FactorGraph.potts([[0.0, 2.0], [0.0, 1.0]], [], [])


def scripted(graph: FactorGraph, what: Callable[[FactorGraph, Run], Any], **how: Any) -> Solution:
    return il.solve(graph, Script(what), **how)


# ---------------------------------------------------------------------- the incumbent


def test_the_best_labelling_is_kept(graph):
    def what(graph, run):
        assert run.best_labels is None and run.best_energy == INF
        energies = [run.offer(x) for x in ([1, 1], [0, 1], [1, 0], [0, 1], [1, 1])]
        assert energies == [3.0, 1.0, 2.0, 1.0, 3.0]
        assert run.best_energy == 1.0

    solution = scripted(graph, what)
    assert solution.labels.tolist() == [0, 1] and solution.energy == 1.0
    assert [p.energy for p in solution.trace] == [3.0, 1.0, 2.0, 1.0, 3.0]
    assert [p.best_energy for p in solution.trace] == [3.0, 1.0, 1.0, 1.0, 1.0]


def test_ties_between_labellings_keep_the_first():
    graph = FactorGraph.from_factors([3], [])
    solution = scripted(graph, lambda g, run: [run.offer([a]) for a in (2, 0, 1)] and None)
    assert solution.labels.tolist() == [2]


def test_an_offer_is_a_copy(graph):
    def what(graph, run):
        x = np.zeros(2, dtype=np.int64)
        run.offer(x)
        x[:] = 1

    assert scripted(graph, what).labels.tolist() == [0, 0]


def test_an_infeasible_labelling_is_better_than_none():
    graph = FactorGraph.potts([[0.0, INF], [0.0, 1.0]], [], [])

    def what(graph, run):
        assert run.offer([1, 0]) == INF
        assert run.best_labels.tolist() == [1, 0]
        run.offer([0, 1])
        run.offer([1, 1])

    assert scripted(graph, what).labels.tolist() == [0, 1]
    solution = scripted(graph, lambda g, run: run.offer([1, 0]) and None)
    assert solution.labels.tolist() == [1, 0] and solution.energy == INF
    assert not solution.feasible
    assert solution.message.startswith("no labelling of finite energy was found; ended")


@given(st.lists(st.integers(0, 3) | st.integers(-40, 40).map(lambda i: i / 8), max_size=20))
def test_the_trace_is_monotone(steps):
    """Time does not decrease, the best energy does not rise, the bound does not fall."""
    graph = FactorGraph.potts([[0.0, 2.0], [0.0, 1.0]], [], [])

    def what(graph, run):
        for step in steps:
            if isinstance(step, int):
                run.offer([step // 2, step % 2])
            else:
                run.bound(step)

    trace = scripted(graph, what).trace
    for before, after in itertools.pairwise(trace):
        assert before.seconds <= after.seconds
        assert before.best_energy >= after.best_energy
        assert before.lower_bound <= after.lower_bound
    bounds = [s for s in steps if isinstance(s, float)]
    offers = [float(s) for s in steps if isinstance(s, int)]
    if trace:
        assert trace[-1].best_energy == min(offers, default=INF)
        assert trace[-1].lower_bound == max(bounds, default=-INF)
    rises = sum(b > max(bounds[:i], default=-INF) for i, b in enumerate(bounds))
    assert len(trace) == len(offers) + rises


def test_a_bound_above_the_incumbent_by_rounding_is_lowered_to_it():
    """Either may come first; a bound that is clearly above stays, and is visible."""
    graph = FactorGraph.potts([[3.0, 4.0]], [], [])

    def what(graph, run):
        run.bound(3.0 + 1e-15)
        run.offer([1])
        assert run.lower_bound == 3.0 + 1e-15
        run.offer([0])
        assert run.lower_bound == 3.0
        run.bound(3.0 + 2e-15)
        assert run.lower_bound == 3.0 and run.proved

    s = scripted(graph, what)
    assert (s.lower_bound, s.status, s.gap) == (3.0, Status.OPTIMAL, 0.0)
    assert [point.lower_bound for point in s.trace][-1] == 3.0
    for bound in (3.1, 3.0 + 1e-9):
        wrong = scripted(graph, lambda g, run, b=bound: (run.offer([0]), run.bound(b)) and None)
        assert wrong.lower_bound == bound and wrong.status == Status.LIMIT


def test_costs_too_small_for_a_proof_are_reported():
    graph = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    tiny = il.solve(scaled(graph, -1000), "brute-force")
    assert tiny.status == "converged" and tiny.message.startswith("costs of 2e-301 in all are too")
    assert not il.solve(scaled(graph, -600), "brute-force").message


def test_cancelling_large_costs_prevent_a_proof():
    """Costs of 1e20 that all labellings pay: bounds are lowered by the possible rounding."""
    graph = FactorGraph.potts([[1e20, 2e20], [1.0, 2.0]], [], [], constant=-1e20)
    assert graph.magnitude == 3e20 and graph.resolution == pytest.approx(2e20 * 2.0**-50)
    s = il.solve(graph, "brute-force")
    assert s.status == Status.CONVERGED and s.labels.tolist()[0] == 0
    assert s.lower_bound == pytest.approx(s.energy - graph.resolution)
    assert "rounding may change energies by 2e+05" in s.message


def test_costs_that_are_never_paid_take_nothing_from_a_proof():
    """1e20 beside 1, on a variable and on a pair: no labelling of low energy pays it."""
    for graph in (
        FactorGraph.potts([[0.0, 1e20], [1.0, 2.0]], [], []),
        FactorGraph.pairwise([[0.0, 1.0], [1.0, 2.0]], [(0, 1)], [[[0.0, 1e20], [1e20, 0.5]]]),
        FactorGraph.potts([[0.0, INF], [1.0, 2.0]], [], []),
    ):
        assert graph.resolution < 1e-14
        s = il.solve(graph, "brute-force")
        assert s.energy == s.lower_bound == 1.0 and s.status == Status.OPTIMAL


@pytest.mark.parametrize("exponent", [-600, -40, -10, 40, 300])
def test_units_make_no_difference(exponent):
    """A bound far below is no proof in any unit, and marginals are the same."""
    plain = random_graph("own-tables", 3)
    graph, unit = scaled(plain, exponent), 2.0**exponent

    def what(graph, run):
        run.offer(plain.cardinalities - 1)
        run.bound(-plain.magnitude * unit)

    s = scripted(graph, what)
    assert s.energy == plain.energy(plain.cardinalities - 1) * unit
    assert s.lower_bound == -plain.magnitude * unit
    assert s.status == Status.LIMIT
    cold = il.solve(graph, "brute-force", temperature=unit)
    assert np.allclose(cold.marginals, il.solve(plain, "brute-force", temperature=1.0).marginals)


@pytest.mark.parametrize("solver", ["trw-s", "alpha-expansion", "persistency", "icm"])
def test_unpaid_penalties_take_no_digits_from_paid_costs(solver):
    """Bounds were above the optimum, by the digits lost in sums with 1e20 and 1e90."""
    far = 1e90
    links = [
        [[0.0, -1.5, far], [-1.5, far, -1.5], [far, -1.5, 0.0]],
        [[0.25, -0.5, -0.5], [-0.5, 0.5, far], [-0.5, -0.5, 0.75]],
    ]
    forbidding = FactorGraph.from_terms(
        [[-0.5, math.inf, far], [math.inf, 0.0, 0.5], [0.75, far, -1.2]],
        [OwnTables([(0, 1), (1, 2)], links), OwnTables([(0, 2)], [links[0]])],
    )
    points = [[1.5, 0.1], [0.7, 0.2], [-1.9, -0.2], [1e20, 0.0], [-0.6, -0.2]]
    same = [[1e20, 2.9], [-4.4, -1.6], [0.2, 0.5], [-4.9, 3.7], [0.25, 0.2]]
    pairs = [(3, 4), (4, 1), (4, 0), (0, 2), (2, 3)]
    signed = FactorGraph.from_terms(points, [DiagonalTerms(pairs, same, np.zeros(5))])
    for graph in (forbidding, signed):
        every = np.array(list(itertools.product(*map(range, graph.cardinalities))))
        optimum = graph.energy(every).min()
        s = il.solve(graph, solver, seed=0)
        assert s.energy == graph.energy(s.labels) >= optimum
        assert s.lower_bound <= optimum + 1e-12
        assert s.status != Status.OPTIMAL or s.energy <= optimum + 1e-12


def test_penalties_that_cancel_do_not_lift_bounds():
    """Cheapest unaries pay 1e13 here; labels [0, 1, 1] cost -3, and bounds were near -2."""
    links = [
        [[1.3, -0.5], [1e9, 1e13]],
        [[-0.3, -0.8], [1e13, 1e12]],
        [[1.1, 1e16], [1e13, -0.8]],
    ]
    graph = FactorGraph.from_terms(
        [[-1.5, 1.4], [-0.1, -0.5], [0.7, 1.1]], [OwnTables([(0, 1), (0, 2), (1, 2)], links)]
    )
    optimum = float(graph.energy([0, 1, 1]))
    assert optimum == pytest.approx(-3.0) and graph.resolution > 1e-3
    for solver in ("auto", "persistency", "persistency(then=icm)", "trw-s", "ilp"):
        s = il.solve(graph, solver)
        assert s.lower_bound <= optimum + 1e-9
        assert s.energy == optimum and s.status == Status.OPTIMAL


def test_bounds_on_log_z_allow_for_rounding():
    """By the rounding error over the temperature, an upper bound moves up and a lower one down."""
    graph = FactorGraph.potts([[1e12, 1e12 + 1.0]], [], [], constant=-1e12)
    assert graph.resolution > 1e-3
    for kind, sign in (("upper", 1.0), ("lower", -1.0), ("exact", 0.0)):
        outcome = Outcome(log_partition=0.25, log_partition_kind=kind)
        s = il.solve(graph, Script(lambda g, run, o=outcome: o, True), temperature=1.0)
        assert s.log_partition == 0.25 + sign * graph.largest_error


def test_paid_costs_count_whole_at_any_size():
    """A method receives the graph as given; energies are its own, also at 1e90."""
    graph = FactorGraph.potts([[0.0, 1.0], [0.5, 1e90]], [(0, 1)], [0.25])

    def what(received, run):
        assert received is run.graph is graph
        assert run.offer([0, 1]) == 1e90
        return Outcome(claimed_energy=float(received.energy([0, 1])))

    s = scripted(graph, what)
    assert s.energy == s.claimed_energy == 1e90
    # Beside a temperature far above the paid costs, only costs without weight are lowered.
    for temperature in (1.0, 1e6):
        s = il.solve(graph, "junction-tree", temperature=temperature)
        weights = np.exp(-np.array([0.5, 1e90, 1.75, 1e90]) / temperature)
        weights[0] = np.exp(-0.5 / temperature)
        assert s.log_partition == pytest.approx(np.log(weights.sum()), rel=1e-12)


@pytest.mark.parametrize("temperature", [1e-16, 1e101])
def test_temperatures_beyond_rounding_are_refused(temperature):
    with pytest.raises(
        ValueError, match=r"temperature must be 0, or for this graph from 2.2\de-16"
    ):
        il.solve(
            FactorGraph.potts([[0.5, -0.25]], [], []), "junction-tree", temperature=temperature
        )


def test_bounds(graph):
    def what(graph, run):
        for value in (-3.0, -1.0, -2.0, -INF):
            run.bound(value)
        with pytest.raises(ValueError, match="NaN"):
            run.bound(math.nan)
        assert run.lower_bound == -1.0 and not run.proved
        run.offer([0, 0])
        assert not run.proved
        run.bound(-1e-12)
        assert run.proved

    solution = scripted(graph, what)
    # Energies are integers, so the bound is raised to the energy.
    assert solution.status == Status.OPTIMAL and solution.lower_bound == 0.0


def test_progress_is_reported_as_it_happens(graph):
    seen = []

    def what(graph, run):
        run.offer([1, 1])
        assert len(seen) == 2
        run.bound(-1.0)
        assert len(seen) == 3

    solution = scripted(graph, what, initial=[1, 0], on_offer=seen.append)
    assert seen == solution.trace and [p.energy for p in seen] == [2.0, 3.0, 2.0]


# ---------------------------------------------------------------------- the clock


@pytest.fixture
def slow_energy(monkeypatch):
    """Make every evaluation take 50 ms."""
    evaluate = FactorGraph.energy_of

    def slowly(self, labels):
        time.sleep(0.05)
        return evaluate(self, labels)

    monkeypatch.setattr(FactorGraph, "energy_of", slowly)


def test_evaluation_does_not_count_as_the_solvers_time(graph, slow_energy):
    def what(graph, run):
        for _ in range(4):
            run.offer([0, 0])

    solution = scripted(graph, what, on_offer=lambda point: time.sleep(0.05))
    assert 0.0 <= solution.seconds < 0.05
    assert all(p.seconds < 0.05 for p in solution.trace)


def test_own_work_of_the_solver_counts(graph):
    def what(graph, run):
        time.sleep(0.06)
        run.offer([0, 0])
        time.sleep(0.06)

    solution = scripted(graph, what)
    assert 0.12 <= solution.seconds < 0.5
    assert 0.06 <= solution.trace[0].seconds < solution.seconds


def test_nested_pauses_count_once(graph, slow_energy):
    def what(graph, run):
        time.sleep(0.05)
        with run.paused():
            run.offer([0, 0])
            with run.paused():
                time.sleep(0.05)
        run.offer([0, 0])

    assert 0.05 <= scripted(graph, what).seconds < 0.1


def test_the_clock_goes_on_after_a_failure_within_a_pause(graph):
    def what(graph, run):
        with pytest.raises(ValueError, match="labels"):
            run.offer([7, 7])
        time.sleep(0.05)

    assert scripted(graph, what).seconds >= 0.05


def compile_something() -> None:
    from numba import njit

    @njit
    def sums(x):
        total = 0.0
        for value in x:
            total += value * value
        return total

    sums(np.ones(3))


@pytest.mark.parametrize("paused", [False, True])
def test_compilation_is_counted_apart(graph, paused):
    def what(graph, run):
        before = time.perf_counter()
        if paused:
            with run.paused():
                compile_something()
        else:
            compile_something()
        elapsed.append(time.perf_counter() - before)

    compile_something()  # numba's setup once in a process does not count as the kernel's
    elapsed: list[float] = []
    solution = scripted(graph, what)
    assert solution.compile_seconds > 0.5 * elapsed[0]
    assert -1e-3 <= solution.seconds < 0.5 * elapsed[0] + 1e-3


def test_waiting_for_compilation_is_not_subtracted_from_cpu_time(graph):
    """On a busy machine loading takes many times its processor seconds in wall time."""

    def what(graph, run):
        with timer.running():
            time.sleep(0.5)
        end = time.process_time() + 0.2
        while time.process_time() < end:
            pass

    assert 0.19 < scripted(graph, what, clock="cpu").seconds < 0.4


def test_compilation_does_not_use_up_the_budget(graph):
    compiled = [-10.0]
    run = Run(graph, time_limit=50.0, stopwatch=lambda: compiled[0])
    assert run.remaining == pytest.approx(40.0, abs=1.0)
    assert run.seconds == pytest.approx(10.0, abs=1.0)
    compiled[0] = -7.0
    assert run.remaining == pytest.approx(43.0, abs=1.0)
    assert run.seconds == pytest.approx(7.0, abs=1.0)
    compiled[0] = 3.0
    assert run.seconds == 0.0, "never below zero by the rounding of clocks"


def test_loading_does_not_use_up_the_budget_of_a_run_within_a_run(graph):
    now, loaded = [100.0], [0.0]
    outer = Run(graph, time_limit=10.0, stopwatch=lambda: loaded[0], clock=lambda: now[0])
    inner = Run(graph, time_limit=1.0, clock=outer.clock)
    now[0] += 5.25
    loaded[0] += 5.0
    assert (outer.remaining, inner.remaining) == (9.75, 0.75)
    assert (outer.seconds, inner.seconds) == (0.25, 0.25)
    with inner.paused():
        now[0] += 2.0
        loaded[0] += 1.0
    assert (inner.remaining, inner.seconds) == (0.0, 0.25)


def test_budget_of_time(graph):
    def what(graph, run):
        rounds = 0
        assert run.time_limit == 0.1 and run.max_iterations is None
        while not run.should_stop(rounds):
            assert 0 < run.remaining <= 0.1
            time.sleep(0.01)
            rounds += 1
        assert run.remaining == 0.0
        return Outcome(iterations=rounds)

    solution = scripted(graph, what, time_limit=0.1)
    assert solution.status == Status.LIMIT
    assert 0.1 <= solution.seconds < 0.4 and 2 <= solution.iterations <= 10


def test_cpu_clock_does_not_count_waiting(graph):
    def what(graph, run):
        time.sleep(0.2)
        assert run.remaining > 0.05
        while not run.should_stop():
            sum(range(1000))
        return Outcome()

    begin = time.process_time()
    solution = scripted(graph, what, time_limit=0.15, clock="cpu")
    assert solution.status == Status.LIMIT
    assert 0.15 <= solution.seconds <= time.process_time() - begin

    # A nested run uses the clock of the outer run, unless given another; later runs do not.
    def sleep(graph, run):
        time.sleep(0.2)

    def within(graph, run):
        inner = {clock: scripted(graph, sleep, clock=clock) for clock in (None, "wall")}
        assert inner[None].seconds < 0.1 < inner["wall"].seconds
        assert run.clock() <= Run(graph, clock=run.clock).clock() <= run.clock()

    scripted(graph, within, clock="cpu")
    assert scripted(graph, sleep).seconds > 0.1
    with pytest.raises(ValueError, match="clock must be one of wall, cpu, got 'sun'"):
        scripted(graph, what, clock="sun")


def test_evaluation_uses_up_the_budget(graph, slow_energy):
    """The limit is on wall time: a run with a slow energy ends in time, too."""

    def offers(graph, run):
        run.offer([0, 0])
        while not run.should_stop():
            run.offer(1 - run.best_labels)

    begin = time.perf_counter()
    solution = scripted(graph, offers, time_limit=0.2)
    assert time.perf_counter() - begin < 1.0 and 2 <= len(solution.trace) <= 4


def test_incumbent_is_not_evaluated_again(graph, monkeypatch):
    """The incumbent may be offered repeatedly."""
    run = Run(graph)
    best, *_, worst = sorted(([0, 0], [0, 1], [1, 0], [1, 1]), key=graph.energy)
    seen = []
    energy = FactorGraph.energy_of
    monkeypatch.setattr(
        FactorGraph,
        "energy_of",
        lambda self, x: seen.append(x.tolist()) or energy(self, x),
    )
    offered = [run.offer(x) for x in (best, best, worst, best)]
    assert offered[0] == offered[1] == offered[3] < offered[2]
    assert seen == [best, worst] and len(run.trace) == 4


def test_budget_of_iterations(graph):
    def what(graph, run):
        assert run.remaining == INF and not run.should_stop()
        assert [run.should_stop(n) for n in (0, 1, 2, 3)] == [False, False, True, True]

    scripted(graph, what, max_iterations=2)
    scripted(graph, lambda g, run: run.should_stop(10**9) and pytest.fail("no budget was given"))


# ---------------------------------------------------------------------- solve


def test_the_initial_labelling_is_offered(graph):
    def what(graph, run):
        assert run.initial.tolist() == [0, 1] and run.best_energy == 1.0
        run.offer([1, 1])

    solution = scripted(graph, what, initial=[0, 1])
    assert solution.labels.tolist() == [0, 1] and solution.energy == 1.0
    assert scripted(graph, lambda g, run: None).labels is None


def test_the_callers_initial_labelling_is_not_touched(graph):
    initial = np.array([0, 1])
    scripted(graph, lambda g, run: run.initial.fill(1), initial=initial)
    assert initial.tolist() == [0, 1]


def test_seeds(graph):
    def draws(**how):
        return scripted(graph, lambda g, r: Outcome(diagnostics={"x": r.rng.random()}), **how)

    assert draws(seed=3).diagnostics == draws(seed=3).diagnostics
    assert draws(seed=3).diagnostics != draws(seed=4).diagnostics
    assert draws().diagnostics == draws(seed=0).diagnostics
    assert draws(seed=None).diagnostics != draws(seed=None).diagnostics
    assert draws(seed=None).seed is None and draws(seed=3).seed == 3


def test_run_and_outcome_are_passed_on(graph):
    marginals = np.array([[0.5, 0.5], [0.25, 0.75]])

    def what(graph, run):
        assert run.temperature == 2.0 and run.graph is graph
        run.offer([0, 1])
        return Outcome(
            converged=True,
            iterations=7,
            claimed_energy=np.longdouble(1.5),
            marginals=marginals,
            log_partition=0.25,
            log_partition_kind="lower",
            diagnostics={"a": 1},
        )

    solver = Script(what, every_temperature=True)
    s = il.solve(graph, solver, temperature=2.0)
    assert s.marginals is marginals and s.log_partition == 0.25 and s.log_partition_kind == "lower"
    assert s.iterations == 7 and s.claimed_energy == 1.5 and s.diagnostics == {"a": 1}
    assert s.temperature == 2.0 and s.status == Status.CONVERGED and s.solver == solver.spec
    assert s.energy == 1.0, "the claim is not believed"


@pytest.mark.parametrize("change", ["energy", "in place", "another"])
def test_the_best_labelling_is_evaluated_anew(graph, change):
    """Neither an energy nor a labelling that a solver puts in place of the best is believed."""

    def what(graph, run):
        run.offer([0, 1])
        if change == "energy":
            run.best_energy = -100.0
        elif change == "in place":
            run.best_labels[:] = [1, 0]
        else:
            run.best_labels = np.array([1, 0])

    solution = scripted(graph, what)
    assert solution.labels.tolist() == ([0, 1] if change == "energy" else [1, 0])
    assert solution.energy == graph.energy(solution.labels)


@pytest.mark.parametrize(
    ("bound", "temperature", "status"),
    [
        (1.0, 0.0, Status.OPTIMAL),
        (1.0 - 1e-12, 0.0, Status.CONVERGED),
        (-INF, 0.0, Status.CONVERGED),
        (1.0, 0.5, Status.CONVERGED),
    ],
)
def test_optimal_means_that_the_bound_meets_the_energy(bound, temperature, status):
    def what(graph, run):
        run.offer([0, 1])
        run.bound(bound)
        return Outcome(converged=True)

    real = FactorGraph.potts([[0.0, math.pi], [0.0, 1.0]], [], [])
    solution = il.solve(real, Script(what, every_temperature=True), temperature=temperature)
    assert solution.status == status and solution.lower_bound == bound
    assert solution.gap == 1.0 - bound and 0.0 < solution.tolerance < 1e-14


def proof_at(graph, labels, gap, residual=0.0, bound_first=False):
    """Return the solution of a run with one labelling and a bound below its energy."""

    def what(graph, run):
        graph = payable(graph, run)
        bound = graph.energy(labels) - gap
        if bound_first:
            run.bound(bound, residual)
        run.offer(labels)
        run.bound(bound, residual)
        return Outcome(converged=True)

    return scripted(graph, what)


@pytest.mark.parametrize("bound_first", [False, True])
@pytest.mark.parametrize("offset", [0.0, 1.0, -1e3, 1e6, -1e9, 1e12])
def test_an_offset_makes_no_proof(offset, bound_first):
    """Neither a constant, nor an offset of a variable, nor penalties that all labellings pay."""
    rng = np.random.default_rng(0)
    unary, edges = rng.normal(size=(3, 2)), [(0, 1), (1, 2), (0, 2)]
    m = abs(offset)
    cycle = [DiagonalTerms([(0, 1), (1, 2)], 0.0, m), DiagonalTerms([(0, 2)], m, 0.0)]
    for graph in (
        FactorGraph.potts(unary, edges, 0.3, constant=offset),
        FactorGraph.potts(unary + np.array([[offset], [0.0], [0.0]]), edges, 0.3),
        FactorGraph.from_terms(unary, [DiagonalTerms(edges, 0.0, 0.3), *cycle]),
    ):
        rounding = graph.resolution_at(graph.energy([0, 0, 1]))
        for gap, proof in ((0.0, True), (0.9 * rounding, True), (10.0 * rounding + 1e-13, False)):
            s = proof_at(graph, [0, 0, 1], gap, bound_first=bound_first)
            assert (s.status == Status.OPTIMAL) == proof
            assert (s.gap == 0.0) == proof


@pytest.mark.parametrize("offset", [0.0, -1e6, 1e9, 1e12])
@pytest.mark.parametrize("unit", [1.0, 0.25, 0.01, 7.0])
def test_a_gap_below_a_unit_of_all_costs_is_a_proof(unit, offset):
    costs = unit * np.array([[0.0, 4.0], [6.0, 1.0]]) + offset
    graph = FactorGraph.potts(costs, [(0, 1)], [2 * unit])
    visible = unit > 8.0 * graph.resolution_at(graph.energy([1, 1]))
    assert (proof_at(graph, [1, 1], 0.9 * unit).status == Status.OPTIMAL) == visible
    assert proof_at(graph, [1, 1], 1.0 * unit).status == Status.CONVERGED


def test_a_residual_of_rounded_costs_leaves_a_proof():
    """A method that computes with rounded costs excludes all labellings that are better by more."""
    graph = FactorGraph.potts([[0.0, math.pi], [0.1, 1.0], [1e12, 0.0]], [], [])
    for gap, residual, proof in (
        (1e-10, 0.0, False),
        (1e-10, 2e-10, True),
        (3e-10, 2e-10, False),
        # No rounding error is a part of 1e-5 of a typical term, 3.14.
        (1e-5, 2e-5, False),
    ):
        s = proof_at(graph, [0, 0, 1], gap, residual, bound_first=True)
        assert (s.status == Status.OPTIMAL) == proof


def test_a_gap_that_the_user_accepts_is_a_proof_with_a_message():
    real = FactorGraph.potts([[0.0, math.pi], [0.0, 1.0]], [], [])

    def what(graph, run):
        run.offer([0, 1])
        for bound in (0.5, 0.9, 0.999):
            run.bound(bound)
            if run.proved:
                break
        return Outcome()

    for gap, bound, status in ((0.0, 0.999, "limit"), (0.2, 0.9, "optimal"), (2.0, 0.5, "optimal")):
        s = scripted(real, what, absolute_gap=gap)
        assert s.status == status and s.lower_bound == bound and s.gap == 1.0 - bound
        assert (f"within the absolute gap of {gap:g}" in s.message) == (status == "optimal")
    exact = il.solve(real, "brute-force", absolute_gap=0.5)
    assert exact.status == "optimal" and not exact.message and exact.gap == 0.0
    for wrong in (-1.0, math.nan, math.inf, "small"):
        with pytest.raises(ValueError, match="absolute_gap must be finite and not negative"):
            il.solve(real, "icm", absolute_gap=wrong)


def test_unsupported_run_is_not_started(graph):
    s = scripted(graph, lambda g, r: pytest.fail("was run"), temperature=1.0, seed=5)
    assert s.status == Status.UNSUPPORTED and s.message == "Script finds labellings, not marginals"
    assert s.labels is None and math.isnan(s.energy) and math.isnan(s.gap)
    assert s.lower_bound == -INF
    assert (s.seed, s.temperature) == (5, 1.0)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"temperature": -1.0}, "temperature must be finite and not negative, got -1.0"),
        ({"temperature": math.nan}, "temperature must be finite and not negative, got nan"),
        ({"temperature": INF}, "temperature must be finite and not negative, got inf"),
        ({"time_limit": 0.0}, "time_limit must be positive seconds, got 0.0"),
        ({"time_limit": -1.0}, "time_limit must be positive seconds, got -1.0"),
        ({"time_limit": math.nan}, "time_limit must be positive seconds, got nan"),
        ({"max_iterations": 0}, "max_iterations must be at least 1, got 0"),
        ({"seed": -1}, "seed must not be negative, got -1"),
        ({"initial": [0, 5]}, "labels[1] = 5; variable 1 has labels 0 to 1"),
        ({"initial": [0, 1, 0]}, "labels must have shape (2,)"),
        ({"initial": [[0, 1]]}, "initial must have shape (2,), got (1, 2)"),
    ],
)
def test_arguments_out_of_range(graph, how, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        il.solve(graph, "icm", **how)


@pytest.mark.parametrize("status", Status)
def test_every_status_carries_its_sentence(status):
    assert isinstance(status, str) and status == status.value == str(status)
    assert len(status.sentence.split()) >= 3
    assert Status(status.value) is status and pickle.loads(pickle.dumps(status)) is status


def test_a_solution_can_be_sent_elsewhere():
    s = il.solve(FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5]), "loopy-bp")
    again = pickle.loads(pickle.dumps(s))
    assert again.labels.tolist() == s.labels.tolist()
    assert (again.status, again.trace, again.gap) == (s.status, s.trace, s.gap)


# ---------------------------------------------------------------------- gap and proof


def solution(energy: float, bound: float) -> Solution:
    return Solution(None, energy, bound, Status.CONVERGED)


@pytest.mark.parametrize(
    ("energy", "bound", "gap"),
    [
        (3.0, 1.0, 2.0),
        (3.0, 3.0, 0.0),
        (3.0, 3.0 - 1e-12, 3.0 - (3.0 - 1e-12)),
        (3.0, -INF, INF),
        (INF, -INF, INF),
        (INF, 5.0, INF),
        (INF, INF, 0.0),
        # A bound above the energy is wrong, and must be visible.
        (3.0, 4.0, -1.0),
        (-3.0, INF, -INF),
    ],
)
def test_gap(energy, bound, gap):
    assert solution(energy, bound).gap == gap


def test_proved_optimum_has_no_gap_by_rounding():
    """The LP value of a tree equals its optimum, except for the last digits of a sum."""
    bound = float(np.nextafter(0.7, 0.0))
    proved = Solution(None, 0.7, bound, Status.OPTIMAL, tolerance=1e-15, solver="lp-relaxation")
    assert proved.energy > proved.lower_bound and proved.gap == 0.0
    assert ", gap 0\n" in repr(proved)


@pytest.mark.parametrize("energy", [0.0, 0.5, -7.0, 1e6, -1e12])
def test_a_proof_leaves_at_most_the_tolerance_open(energy):
    for tolerance in (0.0, 0.5, 64.0):
        assert proves(energy, energy, tolerance)
        assert proves(energy, energy - tolerance, tolerance)
        assert not proves(energy, energy + 1e-6 * max(1.0, abs(energy)), tolerance)
        assert not proves(energy, energy - 1.1 * tolerance - 0.25, tolerance)
        assert not proves(energy, -INF, tolerance) and not proves(INF, INF, tolerance)
        assert not proves(INF, 0.0, tolerance)


# ---------------------------------------------------------------------- contradictions


def chain(n: int) -> list[tuple[int, int]]:
    return [(i, i + 1) for i in range(n - 1)]


MUST = {"same": 0.0, "differ": INF}
CANNOT = {"same": INF, "differ": 0.0}

CONTRADICTIONS = {
    "row": (
        lambda: FactorGraph.potts([[0.0, 1.0], [INF, INF]], [], []),
        "every label of variable 1 is forbidden",
    ),
    "ragged row": (
        lambda: FactorGraph.potts([[0.0, 1.0], [INF], [0.0, INF, 1.0]], [], []),
        "every label of variable 1 is forbidden",
    ),
    "table": (
        lambda: FactorGraph.from_factors([2, 2, 3], [((1, 2), np.full((2, 3), INF))]),
        "every combination of labels of variables 1, 2 is forbidden",
    ),
    "higher-order table": (
        lambda: FactorGraph.from_factors([2, 2, 2], [((2, 0, 1), np.full((2, 2, 2), INF))]),
        "every combination of labels of variables 2, 0, 1 is forbidden",
    ),
    "chain and cannot-link": (
        lambda: FactorGraph.from_terms(
            np.zeros((6, 3)), [DiagonalTerms(chain(5), **MUST), DiagonalTerms([(4, 0)], **CANNOT)]
        ),
        "hard constraints make variables 0, 1, 2, 3, 4 equal and leave them no label",
    ),
    "long chain": (
        lambda: FactorGraph.from_terms(
            np.zeros((9, 3)), [DiagonalTerms(chain(9), **MUST), DiagonalTerms([(8, 0)], **CANNOT)]
        ),
        "hard constraints make variables 0, 1, 2, 3, 4, ... equal and leave them no label",
    ),
    "both on one edge": (
        lambda: FactorGraph.from_terms(np.zeros((3, 3)), [DiagonalTerms([(1, 2)], INF, INF)]),
        "every combination of labels of variables 1, 2 is forbidden",
    ),
    "chain and labels": (
        lambda: FactorGraph.potts([[0, INF, INF], [0, 0, 0], [INF, 0, 0]], chain(3), INF),
        "hard constraints make variables 0, 1, 2 equal and leave them no label",
    ),
    "chain and diagonals": (
        lambda: FactorGraph.from_terms(
            np.zeros((3, 2)),
            [
                DiagonalTerms([(0, 1), (1, 2)], [[0.0, INF], [0.0, 0.0]], INF),
                DiagonalTerms([(0, 2)], [[INF, 0.0]], 1.0),
            ],
        ),
        "hard constraints make variables 0, 1, 2 equal and leave them no label",
    ),
    "no label in common": (
        lambda: FactorGraph.potts([[INF, 1.0], [1.0]], [(0, 1)], INF),
        "hard constraints make variables 0, 1 equal and leave them no label",
    ),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_contradictions_are_found_before_any_solver_runs(name):
    make, message = CONTRADICTIONS[name]
    graph = make()
    s = scripted(graph, lambda g, run: pytest.fail("was run"))
    assert s.status == Status.INFEASIBLE and s.message == message
    assert s.lower_bound == INF and s.energy == INF and s.labels is None
    assert scripted(graph, None, initial=[0] * graph.n_variables).gap == 0.0


@pytest.mark.parametrize(
    "graph",
    [
        FactorGraph.potts([[INF, 0.0], [0.0, INF]], [(0, 1)], 1.0),
        FactorGraph.potts([[INF, 0.0, 0.0], [0.0, 0.0, INF]], [(0, 1)], INF),
        FactorGraph.from_terms(np.zeros((4, 2)), [DiagonalTerms(chain(4), **CANNOT)]),
        FactorGraph.from_terms(
            np.zeros((4, 2)),
            [DiagonalTerms([(0, 1), (2, 3)], **MUST), DiagonalTerms([(1, 2)], **CANNOT)],
        ),
        FactorGraph.from_terms(np.zeros((2, 2)), [DiagonalTerms([(0, 1)], [[INF, 0.0]], INF)]),
        FactorGraph.from_terms(
            np.zeros((2, 3)), [OwnTables([(0, 1)], [np.where(np.eye(3, k=1) > 0, 0.0, INF)])]
        ),
    ],
)
def test_no_contradiction_where_there_is_a_labelling(graph):
    assert contradiction(graph) is None
    assert scripted(graph, lambda g, run: None).status == Status.LIMIT


@given(recipes(hard=True, min_variables=1, max_states=200))
def test_a_contradiction_is_a_proof(recipe: Recipe):
    graph = recipe.build()
    reason = contradiction(graph)
    assume(reason is not None)
    assert np.isinf(recipe.energies()).all(), reason


@given(recipes(hard=True, min_variables=1, higher_order=False, families=("potts", "diagonal")))
def test_hard_must_links_are_followed_to_the_end(recipe: Recipe):
    """If the only pairwise terms are equalities, the proof is complete."""
    terms = [DiagonalTerms(t.edges, t.same, INF) for t in recipe.terms]
    graph = FactorGraph.from_terms(recipe.unary, terms)
    infeasible = np.isinf(graph.energy(recipe.labellings())).all()
    assert (contradiction(graph) is not None) == infeasible


def test_a_large_hard_graph_is_searched_without_a_python_loop():
    """100,000 variables and 200,000 hard links; one call a variable would take a second."""
    rng = np.random.default_rng(0)
    n, m, k = 100_000, 200_000, 3
    truth = rng.integers(0, k, size=n)
    edges = random_pairs(rng, n, m)
    equal = truth[edges[:, 0]] == truth[edges[:, 1]]
    graph = FactorGraph.from_terms(
        np.zeros((n, k)),
        [DiagonalTerms(edges[equal], **MUST), DiagonalTerms(edges[~equal], **CANNOT)],
    )
    assert contradiction(FactorGraph.potts([[INF]], [], [])), "imports are done"
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        reason = contradiction(graph)
    finally:
        sys.setprofile(None)
    assert reason is None and calls < 3000


def test_run_without_an_offer_has_a_message(graph):
    solution = scripted(graph, lambda graph, run: Outcome(converged=True))
    assert solution.labels is None and solution.message == "no labelling was offered"


def test_a_run_that_has_no_time_for_its_start_is_not_begun(graph):
    class Slow(Script):
        startup_cost = math.inf

    def never(graph, run):
        raise AssertionError("it was begun")

    solution = il.solve(graph, Slow(never), time_limit=1.0)
    assert solution.status == Status.LIMIT and "not begun" in solution.message
    assert solution.labels.tolist() == [u.argmin() for u in graph.unary]
    with pytest.raises(AssertionError, match="begun"):
        il.solve(graph, Slow(never))


def test_a_solver_may_find_out_in_its_run_that_it_does_not_cover_a_graph(graph):
    solution = scripted(graph, lambda graph, run: Outcome(unsupported="too wide\ud800"))
    assert (solution.status, solution.message) == (Status.UNSUPPORTED, "too wide\\ud800")


def test_run_without_an_answer_warns_and_has_no_energy():
    graph = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    with pytest.warns(il.UnsolvedWarning, match="icm gave no answer: unsupported, icm finds lab"):
        solution = il.solve(graph, "icm", temperature=1.0)
    assert solution.labels is None and math.isnan(solution.energy) and math.isnan(solution.gap)
    # Records have no NaN, and a comparison shows the status without a warning for each run.
    (record,) = il.compare(graph, "icm", temperature=1.0, isolate=False).records
    assert record.refused and record.energy == record.gap == math.inf
    assert solution.labels is None
