"""The conformance suite catches solvers that lie, each by the check made for it.

Every liar below is an honest solver with one defect. The decorator holds the full set of checks
that must fail: no more and no fewer.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.random import default_rng

from inference_lab import conformance
from inference_lab.conformance import (
    ConformanceFailure,
    Verdict,
    checks,
    exhaustive,
    run_checks,
    runs,
    solver_checks,
)
from inference_lab.conformance.graphs import Exhaustive
from inference_lab.contract import Outcome, Run, Solver
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.random_graphs import FAMILIES, SCALES, random_graph
from inference_lab.solving import solve

frozen = dataclass(frozen=True)


ENUMERATED: dict[str, Exhaustive] = {}


def enumerated(graph: FactorGraph) -> Exhaustive:
    """Enumerate a graph once for all solvers of this file."""
    if graph.content_hash not in ENUMERATED:
        ENUMERATED[graph.content_hash] = exhaustive(graph)
    return ENUMERATED[graph.content_hash]


@frozen
class Honest(Solver):
    """Enumerate small graphs; draw a few labellings of large ones."""

    draws: int = 5

    def supports(self, graph: FactorGraph, temperature: float) -> str | None:
        return None

    def run(self, graph: FactorGraph, run: Run) -> Outcome:
        if graph.log2_states > 15:
            done = 0
            while done < self.draws and not run.should_stop(done):
                run.offer(run.rng.integers(0, graph.cardinalities))
                done += 1
            return Outcome(iterations=done)
        exact = enumerated(graph)
        if math.isinf(exact.optimum):
            return Outcome(infeasible=True, iterations=1)
        run.offer(run.rng.integers(0, graph.cardinalities))
        best = np.unravel_index(int(exact.energies.argmin()), exact.energies.shape)
        run.offer(np.array(best, dtype=np.int64))
        run.bound(exact.optimum)
        outcome = Outcome(converged=True, iterations=1, claimed_energy=exact.optimum)
        if run.temperature > 0:
            rows = exact.marginals(run.temperature)
            outcome.marginals = np.stack(rows) if graph.n_labels is not None else rows
            outcome.log_partition = exact.log_partition(run.temperature)
            outcome.log_partition_kind = "exact"
        return outcome


#: Dishonest solvers, with all checks that catch each of them.
LIARS: list[tuple[Solver, set[str]]] = []
#: Functions of the graph, the run and `Honest.run`, one for each defect.
LIES: dict[str, Callable[..., Any]] = {}

RANDOM_RESULT = {"repeatable", "stateless"}
#: Checks that fail if no run returns; the other checks have nothing to judge.
NOTHING_RUNS = {
    "completes",
    "infinite-costs",
    "any-scale",
    "one-variable",
    "one-label",
    "no-edges",
    "disconnected",
    "equal-costs",
    "empty-graph",
    "infeasible",
    "constant-shift",
    "offset-proofs",
    "draws-from-run",
    "input-unchanged",
    "initial-kept",
    "time-limit",
    "picklable",
    *RANDOM_RESULT,
}


@frozen
class Liar(Honest):
    """An honest solver with one defect."""

    lie: str = ""

    def run(self, graph, run):
        return LIES[self.lie](graph, run, super().run)


def lie(*caught_by: str) -> Callable[..., Any]:
    """Make a dishonest solver of a function."""

    def register(lied: Callable[..., Any]) -> Callable[..., Any]:
        LIES[lied.__name__] = lied
        LIARS.append((Liar(lie=lied.__name__), set(caught_by)))
        return lied

    return register


def soft_lie(*caught_by: str) -> Callable[..., Any]:
    """Make a dishonest solver of a function that changes the outcome of a run at T > 0."""

    def register(spoil: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(spoil)
        def lied(graph, run, honest):
            outcome = honest(graph, run)
            if run.temperature > 0 and outcome.marginals is not None and graph.n_variables:
                spoil(graph, outcome)
            return outcome

        return lie(*caught_by)(lied)

    return register


def caught_by(*names: str) -> Callable[..., Any]:
    """Register a solver of its own class among the dishonest ones."""

    def register(cls: type[Solver]) -> type[Solver]:
        LIARS.append((cls(), set(names)))
        return cls

    return register


def worst_of(graph: FactorGraph) -> np.ndarray:
    energies = enumerated(graph).energies
    return np.array(np.unravel_index(int(energies.argmax()), energies.shape), dtype=np.int64)


def small(graph: FactorGraph) -> bool:
    """Return whether the graph is one of the random graphs, with a choice to make."""
    return 0 < graph.log2_states <= 15 and math.isfinite(enumerated(graph).optimum)


def forget(run: Run) -> None:
    """Undo every earlier offer, which only a dishonest solver would do."""
    run.best_labels, run.best_energy, run.lower_bound = None, math.inf, -math.inf
    run.trace.clear()


# ---------------------------------------------------------------------- labels and energies


@lie("claim-true", "constant-shift")
def wrong_claim(graph, run, honest):
    return replace(honest(graph, run), claimed_energy=-1e9)


@lie("bound-below-optimum", "constant-shift", "offset-proofs")
def bound_too_high(graph, run, honest):
    outcome = honest(graph, run)
    if small(graph):
        run.bound(run.lower_bound + 1e-3 * (1 + abs(run.lower_bound)))
    return outcome


@lie("bound-below-optimum")
def bound_too_high_when_stopped(graph, run, honest):
    """Give the bound of an unfinished computation as if it were finished."""
    if run.time_limit is not None:
        return bound_too_high(graph, run, honest)
    return honest(graph, run)


@lie("constant-shift")
def bound_without_constant(graph, run, honest):
    return honest(replace(graph, constant=max(graph.constant, 0.0)), run)


@lie("offset-proofs")
def gap_closed_by_a_share_of_the_energy(graph, run, honest):
    """Call the first labelling optimal if the gap is a small share of the energy."""
    if run.temperature or not small(graph):
        return honest(graph, run)
    energy = run.offer(np.array(graph.cardinalities) - 1)
    optimum = enumerated(graph).optimum
    if not abs(energy - optimum) <= 1e-9 * abs(energy) < math.inf:
        return honest(graph, run)
    run.bound(energy)
    return Outcome(converged=True)


@lie("optimal-true", "bound-below-optimum", "constant-shift", "marginals-given", "offset-proofs")
def false_optimum(graph, run, honest):
    """Offer the worst labelling, with its energy as bound."""
    if not small(graph) or not math.isfinite(run.offer(worst_of(graph))):
        return honest(graph, run)
    run.bound(run.best_energy)
    return Outcome(iterations=1)


@lie("infeasible-true", "offset-proofs")
def falsely_infeasible(graph, run, honest):
    return replace(honest(graph, run), infeasible=graph.n_labels == 3)


@lie("labels-valid")
def other_dtype(graph, run, honest):
    outcome = honest(graph, run)
    if run.best_labels is not None:
        run.best_labels = run.best_labels.astype(np.int32)
    return outcome


@lie("labels-valid")
def no_labels(graph, run, honest):
    outcome = honest(graph, run)
    if run.initial is None and small(graph):
        forget(run)
        outcome.claimed_energy = None
    return outcome


@lie(*NOTHING_RUNS - {"empty-graph"})
def labels_out_of_range(graph, run, honest):
    run.offer(np.asarray(graph.cardinalities))
    return honest(graph, run)


@lie(*NOTHING_RUNS - {"empty-graph"})
def labels_poked_out_of_range(graph, run, honest):
    outcome = honest(graph, run)
    run.best_labels = np.full(graph.n_variables, 99)
    return outcome


@lie(*NOTHING_RUNS - {"empty-graph"})
def float_labels(graph, run, honest):
    run.offer(np.zeros(graph.n_variables))
    return honest(graph, run)


@lie("trace-consistent")
def twisted_trace(graph, run, honest):
    outcome = honest(graph, run)
    run.trace.reverse()
    return outcome


@lie("trace-consistent")
def boastful_trace(graph, run, honest):
    """End the trace with an energy that was never reached."""
    outcome = honest(graph, run)
    if run.trace:
        run.trace.append(run.trace[-1]._replace(energy=-1e9, best_energy=-1e9))
    return outcome


@lie("trace-consistent")
def backwards_clock(graph, run, honest):
    outcome = honest(graph, run)
    run.trace[:] = [p._replace(seconds=-t - 1.0) for t, p in enumerate(run.trace)]
    return outcome


# ---------------------------------------------------------------------- repeatability


@lie("marginals-given", "draws-from-run", *RANDOM_RESULT)
def global_randomness(graph, run, honest):
    for k in graph.cardinalities.tolist():
        np.random.randint(k)  # noqa: NPY002
    run.offer(np.array([random.randrange(k) for k in graph.cardinalities.tolist()], dtype=int))
    return Outcome(iterations=1)


#: Ways to make every seed give the same run, with their name in the message.
SEEDINGS: dict[str, tuple[Callable[[FactorGraph], Any], str]] = {
    "default_rng": (lambda graph: default_rng(0).random(), r"default_rng\(0\); draw from run.rng"),
    "generator": (lambda graph: np.random.Generator(np.random.PCG64(seed=0)), r"PCG64\(0\)"),
    "legacy": (lambda graph: np.random.RandomState(0).rand(), r"RandomState\(0\)"),
    "python": (lambda graph: random.Random(0).random(), r"Random\(0\)"),
    "global": (lambda graph: (random.seed(0), random.random()), "the global random functions"),
    "global-legacy": (lambda graph: np.random.seed(0), "the global random functions"),  # noqa: NPY002
    "nested": (lambda graph: solve(graph, Honest(), seed=0), r"default_rng\(0\)"),
}


@caught_by("draws-from-run")
@frozen
class SeedsItself(Honest):
    how: str = "default_rng"

    def run(self, graph, run):
        SEEDINGS[self.how][0](graph)
        return super().run(graph, run)


@frozen
class SeedsFromTheRun(Honest):
    """Solver that makes generators in the permitted ways."""

    def run(self, graph, run):
        seed = int(run.rng.integers(2**32))
        assert default_rng(run.rng) is run.rng
        for made in (default_rng(seed), np.random.RandomState(seed), random.Random(seed)):
            made.random()
        solve(graph, Honest(), seed=seed)
        return super().run(graph, run)


@lie("marginals-given", *RANDOM_RESULT)
def labels_by_the_clock(graph, run, honest):
    now = time.perf_counter_ns()
    run.offer(np.array([(now >> i) % k for i, k in enumerate(graph.cardinalities.tolist())], int))
    return Outcome(iterations=1)


@caught_by("stateless", "marginals-given")
@frozen
class WarmStart(Honest):
    """Solver that begins at the end of the run on another graph of the same shape."""

    last: ClassVar[dict[str, Any]] = {}

    def run(self, graph, run):
        labels = self.last.get("labels")
        fits = labels is not None and np.array_equal(self.last["shape"], graph.cardinalities)
        if fits and self.last["graph"] != graph.content_hash:
            run.offer(labels)
        else:
            run.offer(run.rng.integers(0, graph.cardinalities))
        self.last.update(
            labels=run.best_labels, shape=graph.cardinalities, graph=graph.content_hash
        )
        return Outcome(iterations=1)


@caught_by("repeatable", "marginals-given")
@frozen
class EachItsOwn(Honest):
    """Solver of which every object behaves differently."""

    count: ClassVar[Any] = itertools.count()

    def run(self, graph, run):
        if not hasattr(self, "number"):
            object.__setattr__(self, "number", next(self.count))
        run.offer(np.minimum(self.number, graph.cardinalities - 1))
        return Outcome(iterations=1)


# ---------------------------------------------------------------------- the input


@lie("input-unchanged", "offset-proofs")
def changed_costs(graph, run, honest):
    """Raise the cost of an unused label, which no number of the result reveals."""
    outcome = honest(graph, run)
    if graph.n_variables and graph.cardinalities[0] > 1 and run.best_labels is not None:
        graph.unary_values.setflags(write=True)
        graph.unary_values[0 if run.best_labels[0] else 1] = 1e3
        graph.unary_values.setflags(write=False)
    return outcome


@lie("input-unchanged")
def replaced_array(graph, run, honest):
    object.__setattr__(graph, "edge_offsets", graph.edge_offsets.astype(np.int32))
    return honest(graph, run)


@lie("input-unchanged")
def writeable_array(graph, run, honest):
    graph.unary_values.setflags(write=True)
    return honest(graph, run)


@lie("input-unchanged")
def notes_on_the_graph(graph, run, honest):
    graph.__dict__["notes"] = "seen"
    return honest(graph, run)


@lie("input-unchanged")
def spoilt_cache(graph, run, honest):
    outcome = honest(graph, run)
    graph.__dict__["degrees"] = np.zeros(graph.n_variables, dtype=np.int64)
    return outcome


@lie("infeasible", "energy-true")
def bribed_evaluator(graph, run, honest):
    """Make every labelling of an infeasible graph cost nothing."""
    if graph.log2_states > 15 or math.isfinite(enumerated(graph).optimum):
        return honest(graph, run)
    graph.__dict__["energy_of"] = lambda labels: 0.0
    run.offer(np.zeros(graph.n_variables, dtype=np.int64))
    return Outcome(iterations=1)


# ---------------------------------------------------------------------- start and budget


@lie("initial-kept")
def worse_than_start(graph, run, honest):
    if run.initial is None:
        return honest(graph, run)
    forget(run)
    run.offer(worst_of(graph))
    return Outcome(iterations=1)


@lie("time-limit")
def ignored_time(graph, run, honest):
    if graph.log2_states > 15:
        begin = time.process_time()
        while time.process_time() - begin < 0.7:
            run.offer(run.rng.integers(0, graph.cardinalities))
    return honest(graph, run)


@lie("iteration-limit")
def ignored_iterations(graph, run, honest):
    return replace(honest(graph, run), iterations=9)


@lie("converged-true")
def falsely_converged(graph, run, honest):
    if run.max_iterations is None:
        return honest(graph, run)
    run.offer(run.rng.integers(0, graph.cardinalities))
    return Outcome(iterations=1, converged=True)


@frozen
class Endless(Honest):
    def run(self, graph, run):
        while not run.should_stop():
            run.offer(run.rng.integers(0, graph.cardinalities))
        return Outcome()


# ---------------------------------------------------------------------- supports


@frozen
class Supports(Honest):
    """Solver that answers ragged graphs in an invalid way, or refuses all graphs."""

    how: str = "raises"
    count: ClassVar[Any] = itertools.count()

    def supports(self, graph, temperature):
        if self.how == "raises":
            return None if graph.unary.size else "nothing to do"
        if self.how == "nothing":
            return "today is Sunday"
        answers = {"no reason": "", "flag": False, "changes its mind": f"no {next(self.count)}"}
        return answers[self.how] if graph.n_labels is None else None


LIARS += [
    (Supports(how=how), {"supports-answers"})
    for how in ("raises", "changes its mind", "no reason", "flag")
]
LIARS.append((Supports(how="nothing"), {"supports-something"}))


# ---------------------------------------------------------------------- crashes


@functools.cache
def hash_of(family: str) -> str:
    return random_graph(family, 0).content_hash


@frozen
class CrashesOn(Honest):
    """Solver that fails on one random graph of a family."""

    family: str = "potts"

    def run(self, graph, run):
        if graph.content_hash == hash_of(self.family):
            raise ZeroDivisionError("out of luck")
        return super().run(graph, run)


LIARS += [
    (CrashesOn(family=family), {check})
    for check, families in {
        "completes": ("potts", "large"),
        "infinite-costs": ("cannot-links",),
        "equal-costs": ("equal",),
        "empty-graph": ("empty",),
        **{name: (name,) for name in ("one-variable", "one-label", "no-edges", "disconnected")},
        "infeasible": ("infeasible",),
    }.items()
    for family in families
]


@caught_by(
    "label-costs",
    "constant-shift",
    "offset-proofs",
    "draws-from-run",
    "initial-kept",
    "picklable",
    *RANDOM_RESULT,
)
@frozen
class FailsOnLabelCosts(Honest):
    label_costs: ClassVar[bool] = True

    def run(self, graph, run):
        if graph.n_label_costs:
            raise ValueError("what is a label cost?")
        return super().run(graph, run)


@lie("any-scale")
def overflow_where_costs_are_large(graph, run, honest):
    if graph.magnitude > 1e10:
        raise OverflowError("int too large to convert")
    return honest(graph, run)


@lie(
    "infeasible-true",
    "bound-below-optimum",
    "log-partition-true",
    "exact-marginals",
    "offset-proofs",
)
def large_is_infinite(graph, run, honest):
    """Take a large cost for a forbidding one."""
    values = np.where(graph.unary_values > 1e8, math.inf, graph.unary_values)
    return honest(graph.with_unary(values), run)


@lie(*NOTHING_RUNS)
def exits(graph, run, honest):
    sys.exit("enough")


@lie(*NOTHING_RUNS)
def returns_nothing(graph, run, honest):
    honest(graph, run)


# ---------------------------------------------------------------------- the object


@caught_by("picklable")
@frozen
class NotPicklable(Honest):
    def __getstate__(self):
        raise TypeError("holds a lock")


@caught_by("picklable")
@frozen
class PicklesWrongly(Honest):
    def __reduce__(self):
        return PicklesWrongly, (self.draws + 1,)


@lie("picklable")
def solution_not_picklable(graph, run, honest):
    return replace(honest(graph, run), diagnostics={"later": lambda: None})


@caught_by("frozen")
class Undecorated(Honest):
    """A subclass without ``@dataclass(frozen=True)`` takes any attribute."""


@caught_by("frozen")
class Assignable(Honest):
    __setattr__ = object.__setattr__


@frozen
class OddSetting(Honest):
    steps: tuple[int, ...] = (1, 2)


@frozen
class LossySpec(Honest):
    @property
    def spec(self):
        return "LossySpec"


LIARS += [
    (OddSetting(steps=(3,)), {"spec-round-trip"}),
    (LossySpec(draws=6), {"spec-round-trip"}),
]


# ---------------------------------------------------------------------- T > 0


def each_row(outcome: Outcome, change) -> None:
    """Apply a function of variable and row to the marginals."""
    changed = [np.asarray(change(i, row)) for i, row in enumerate(outcome.marginals)]
    is_matrix = isinstance(outcome.marginals, np.ndarray)
    outcome.marginals = np.stack(changed) if is_matrix else changed


@soft_lie("outcome-valid")
def not_normalised(graph, outcome):
    outcome.log_partition_kind = "estimate"
    each_row(outcome, lambda i, row: 1.001 * row)


@soft_lie("outcome-valid")
def negative_marginals(graph, outcome):
    outcome.log_partition_kind = "estimate"

    def shifted(i, row):
        if row.size == 1 or graph.has_infinite:
            return row
        return row + np.r_[1.0, np.zeros(row.size - 2), -1.0]

    each_row(outcome, shifted)


@soft_lie("marginals-given")
def no_marginals(graph, outcome):
    outcome.marginals = None


@soft_lie("outcome-valid")
def transposed_marginals(graph, outcome):
    outcome.log_partition_kind = "estimate"
    if graph.n_labels is not None:
        outcome.marginals = np.stack(list(outcome.marginals)).T[None]


@soft_lie("marginals-respect-infinity")
def mass_on_forbidden(graph, outcome):
    outcome.log_partition_kind = "estimate"
    each_row(outcome, lambda i, row: (row + 1e-9) / (row + 1e-9).sum())


@soft_lie("exact-marginals")
def uniform_but_exact(graph, outcome):
    def flat(i, row):
        allowed = np.isfinite(graph.unary_of(i))
        return allowed / allowed.sum()

    each_row(outcome, flat)


for kind, error, caught in (
    ("exact", 1e-3, ("log-partition-true", "constant-shift")),
    ("lower", 1e-3, ("log-partition-true", "constant-shift")),
    ("upper", -1e-3, ("log-partition-true", "constant-shift")),
    ("rough", 0.0, ("outcome-valid",)),
    ("estimate", math.nan, ("outcome-valid",)),
    (None, 0.0, ("outcome-valid",)),
):

    def wrong_partition(graph, outcome, kind=kind, error=error):
        outcome.log_partition += error * (1.0 + abs(outcome.log_partition))
        outcome.log_partition_kind = kind

    wrong_partition.__name__ += f"_{kind}"
    soft_lie(*caught)(wrong_partition)


def outcome_of(solver: Solver) -> dict[str, conformance.CheckResult]:
    results = run_checks(solver, graphs_per_family=1, isolate=False)
    return {result.name: result for result in results}


def failed(results: dict[str, conformance.CheckResult]) -> set[str]:
    return {name for name, result in results.items() if result.verdict == Verdict.FAILED}


def name_of(value: Any) -> str:
    return value.spec if isinstance(value, Honest) else ""


def test_an_honest_solver_passes_every_check():
    results = run_checks(Honest(), graphs_per_family=3, isolate=False)
    assert [(r.name, r.message) for r in results if r.verdict != Verdict.PASSED] == []
    assert len(results) > 30


@pytest.mark.parametrize(("liar", "checks_made_for_it"), LIARS, ids=name_of)
def test_each_lie_is_caught_by_the_checks_made_for_it(liar, checks_made_for_it, monkeypatch):
    if liar == Liar(lie="ignored_time"):  # exceeding the tolerated overrun would take a while
        monkeypatch.setattr(checks, "TIME_LIMIT", 0.05)
        monkeypatch.setattr(checks, "SLACK", 0.3)
    assert failed(outcome_of(liar)) == checks_made_for_it


def test_every_check_catches_a_liar():
    names = {check.name for check in solver_checks(Honest())}
    assert set().union(*(caught for _, caught in LIARS)) == names


@pytest.mark.parametrize("how", SEEDINGS)
def test_generators_that_do_not_come_from_the_run_are_caught(how):
    message = f"whatever the seed, the run draws from {SEEDINGS[how][1]}"
    with pytest.raises(ConformanceFailure, match=message):
        check_of(SeedsItself(how=how), "draws-from-run")()


def test_generators_seeded_from_the_run_are_allowed():
    check_of(SeedsFromTheRun(), "draws-from-run")()


def check_of(solver: Solver, name: str) -> conformance.Check:
    return next(c for c in solver_checks(solver, graphs_per_family=2) if c.name == name)


def test_a_failure_brings_the_case_back():
    """The message holds the call that reproduces the failure."""
    liar = Liar(lie="bound_too_high")
    with pytest.raises(ConformanceFailure, match="is above the optimum") as caught:
        check_of(liar, "bound-below-optimum")()
    lied, graph_is = str(caught.value).split("\n")
    call, fault = lied.split(": ", 1)
    names = {"solve": solve, "random_graph": random_graph, "solver": liar}
    solution = eval(call, names)
    assert fault == (
        f"lower bound {solution.lower_bound!r} is above the optimum {solution.claimed_energy!r}"
    )
    graph = eval(call.replace("solve(", "first(", 1), {**names, "first": lambda g, *_, **__: g})
    # Of a single variable: no graph with a choice is smaller.
    assert graph.n_variables == 1 and small(graph)
    assert f"variables: 1, their labels: {graph.cardinalities[0]}, edges: 0" in graph_is


@pytest.mark.parametrize(
    ("liar", "name", "message"),
    [
        (
            "labels_out_of_range",
            "completes",
            r"raised ValueError: labels\[0\] = .* has labels 0 to",
        ),
        ("float_labels", "completes", "labels must be integers, got dtype float64"),
        ("exits", "completes", "the run raised SystemExit: enough"),
        ("returns_nothing", "completes", "returned NoneType; an Outcome is expected"),
        (
            CrashesOn(family="grid"),
            "completes",
            r"^solve\(random_graph\('grid', 0\), solver, seed=0\): the run raised "
            r"ZeroDivisionError: out of luck \(.*test_conformance_suite.py, line \d+\)\n +\(of the",
        ),
        (
            "ignored_iterations",
            "iteration-limit",
            "iterations must be an int from 0 to 1, got 9",
        ),
        ("other_dtype", "labels-valid", "must be an int64 array, got int32"),
        (
            "no_labels",
            "labels-valid",
            "'limit' and gave no labelling|'converged' and gave no lab",
        ),
        (
            Supports(how="raises"),
            "supports-answers",
            r"'ragged', 0.* supports\(\) raised Value",
        ),
        (Supports(how="flag"), "supports-answers", "None or a reason, got False"),
        (
            Supports(how="nothing"),
            "supports-something",
            "refuses all 52 random graphs .* Sunday",
        ),
        ("notes_on_the_graph", "input-unchanged", "left an attribute graph.notes"),
        ("changed_costs", "input-unchanged", "changed graph.unary_values"),
        ("worse_than_start", "initial-kept", r"initial=\[.*the start costs"),
        (Undecorated(), "frozen", r"decorate the class with @dataclass\(frozen=True\)"),
        (
            "transposed_marginals",
            "outcome-valid",
            r"must be a \(\d, \d\) array, got \(1, ",
        ),
        ("wrong_partition_rough", "outcome-valid", "its kind 'rough'"),
    ],
    ids=name_of,
)
def test_messages_describe_the_fault(liar, name, message):
    """The message is complete if a check is called alone, without earlier checks."""
    with pytest.raises(ConformanceFailure, match=message):
        check_of(Liar(lie=liar) if isinstance(liar, str) else liar, name)()


def test_a_run_that_does_not_end_is_stopped(monkeypatch):
    monkeypatch.setattr(runs, "PATIENCE", 0.2)
    begin = time.perf_counter()
    with pytest.raises(ConformanceFailure, match="a run must end by itself"):
        check_of(Endless(), "completes")()
    # The first endless run suffices: the others are not waited for.
    assert time.perf_counter() - begin < 5.0


def test_results_that_cannot_be_judged_are_failures():
    class Odd(Honest):
        def run(self, graph, run):
            outcome = super().run(graph, run)
            run.trace.append("odd")
            return outcome

    with pytest.raises(ConformanceFailure, match="cannot be judged: AttributeError"):
        check_of(Odd(), "trace-consistent")()


def test_inapplicable_checks_are_not_passed():
    """A solver of labellings without a bound does not pass checks that do not apply to it."""

    class Plain(Honest):
        def supports(self, graph, temperature):
            return None if temperature == 0 else "labellings only"

        def run(self, graph, run):
            run.offer(np.zeros(graph.n_variables, dtype=np.int64))
            return Outcome(iterations=1)

    results = outcome_of(Plain())
    assert {n: r.message for n, r in results.items() if r.verdict == Verdict.NOT_APPLICABLE} == {
        "claim-true": "the solver never claims an energy",
        "bound-below-optimum": "the solver never gives a lower bound",
        "optimal-true": "the solver never proves an optimum",
        "converged-true": "the solver never reports convergence under a limit on iterations",
        **dict.fromkeys(
            (
                "marginals-given",
                "marginals-respect-infinity",
                "log-partition-true",
                "exact-marginals",
            ),
            "the solver supports none of the random graphs at T > 0",
        ),
    }


def test_run_checks_reports_each_result_as_it_comes():
    seen = []
    results = run_checks("brute-force", seen.append, graphs_per_family=1, isolate=False)
    assert seen == results
    checks = solver_checks("brute-force", graphs_per_family=1)
    assert [(r.name, r.claim) for r in results] == [(c.name, c.claim) for c in checks]
    assert [str(c) for c in checks] == [c.name for c in checks]
    assert len({c.name for c in checks}) == len(checks)
    assert all(r.seconds >= 0 for r in results)


def test_graphs_per_family_must_be_positive():
    with pytest.raises(ValueError, match="graphs_per_family must be at least 1, got 0"):
        solver_checks(Honest(), graphs_per_family=0)


@pytest.mark.parametrize("family", [*FAMILIES, *SCALES])
def test_the_referee_agrees_with_the_evaluator(family):
    """Two independent evaluations agree on every energy of every family."""
    for seed in range(4):
        graph = random_graph(family, seed)
        energies = exhaustive(graph).energies
        x = np.array(list(np.ndindex(energies.shape)), dtype=np.int64)
        expected = graph.energy(x.reshape(energies.size, graph.n_variables))
        assert np.array_equal(np.isinf(expected), np.isinf(energies.ravel()))
        assert energies.ravel() == pytest.approx(expected, rel=1e-12, abs=graph.resolution)


def test_the_referee_knows_the_ising_pair_in_closed_form():
    """Two spins with coupling w: Z = 2 + 2 exp(-w / T), p(x_0 = 1) = 1/2; a field moves it."""
    graph = FactorGraph.potts([[0.0, 0.0], [0.0, 0.0]], [(0, 1)], [0.7])
    exact = exhaustive(graph)
    assert exact.log_partition(0.5) == pytest.approx(math.log(2 + 2 * math.exp(-1.4)))
    assert exact.marginals(0.5)[0] == pytest.approx([0.5, 0.5])
    field = exhaustive(FactorGraph.potts([[0.0, 0.3]], np.empty((0, 2), int), []))
    assert field.marginals(2.0)[0][1] == pytest.approx(1 / (1 + math.exp(0.15)))
    assert (field.optimum, field.scale) == (0.0, 1.0)


def test_the_referee_refuses_large_graphs():
    with pytest.raises(ValueError, match=r"2\^40 labellings"):
        exhaustive(FactorGraph.potts(np.zeros((40, 2)), [(0, 1)], 1.0))
