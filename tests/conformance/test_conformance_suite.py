"""The conformance suite catches solvers that lie, each by the check made for it.

Every liar below is an honest solver with one thing spoilt. Beside it stands the full set of checks
that must fail: no more and no fewer.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
import sys
import time
import unittest
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
        found = enumerated(graph)
        if math.isinf(found.optimum):
            return Outcome(infeasible=True, iterations=1)
        run.offer(run.rng.integers(0, graph.cardinalities))
        best = np.unravel_index(int(found.energies.argmin()), found.energies.shape)
        run.offer(np.array(best, dtype=np.int64))
        run.bound(found.optimum)
        outcome = Outcome(converged=True, iterations=1, claimed_energy=found.optimum)
        if run.temperature > 0:
            rows = found.marginals(run.temperature)
            outcome.marginals = np.stack(rows) if graph.n_labels is not None else rows
            outcome.log_partition = found.log_partition(run.temperature)
            outcome.log_partition_kind = "exact"
        return outcome


@frozen
class FailsOnLabelCosts(Honest):
    label_costs: ClassVar[bool] = True

    def run(self, graph, run):
        if graph.n_label_costs:
            raise ValueError("what is a label cost?")
        return super().run(graph, run)


def worst_of(graph: FactorGraph) -> np.ndarray:
    energies = enumerated(graph).energies
    return np.array(np.unravel_index(int(energies.argmax()), energies.shape), dtype=np.int64)


def small(graph: FactorGraph) -> bool:
    """Whether the graph is one of the random graphs, and has something to choose."""
    return 0 < graph.log2_states <= 15 and math.isfinite(enumerated(graph).optimum)


def forget(run: Run) -> None:
    """Undo everything reported so far, as only a solver that cheats would."""
    run.best_labels, run.best_energy, run.lower_bound = None, math.inf, -math.inf
    run.trace.clear()


# ---------------------------------------------------------------------- labels and energies


@frozen
class WrongClaim(Honest):
    def run(self, graph, run):
        return replace(super().run(graph, run), claimed_energy=-1e9)


@frozen
class BoundTooHigh(Honest):
    def run(self, graph, run):
        outcome = super().run(graph, run)
        if small(graph):
            run.bound(run.lower_bound + 1e-3 * (1 + abs(run.lower_bound)))
        return outcome


@frozen
class BoundTooHighWhenStopped(Honest):
    """The bound of an unfinished computation, given as if it were finished."""

    def run(self, graph, run):
        outcome = super().run(graph, run)
        if small(graph) and run.time_limit is not None:
            run.bound(run.lower_bound + 1e-3 * (1 + abs(run.lower_bound)))
        return outcome


@frozen
class BoundWithoutConstant(Honest):
    def run(self, graph, run):
        return (
            super().run(replace(graph, constant=0.0), run)
            if graph.constant < 0
            else (super().run(graph, run))
        )


@frozen
class FalseOptimum(Honest):
    """The worst labelling, with its energy as bound."""

    def run(self, graph, run):
        if not small(graph) or not math.isfinite(run.offer(worst_of(graph))):
            return super().run(graph, run)
        run.bound(run.best_energy)
        return Outcome(iterations=1)


@frozen
class FalselyInfeasible(Honest):
    def run(self, graph, run):
        return replace(super().run(graph, run), infeasible=graph.n_labels == 3)


@frozen
class OtherDtype(Honest):
    def run(self, graph, run):
        outcome = super().run(graph, run)
        if run.best_labels is not None:
            run.best_labels = run.best_labels.astype(np.int32)
        return outcome


@frozen
class NoLabels(Honest):
    def run(self, graph, run):
        outcome = super().run(graph, run)
        if run.initial is None and small(graph):
            forget(run)
            outcome.claimed_energy = None
        return outcome


@frozen
class LabelsOutOfRange(Honest):
    def run(self, graph, run):
        run.offer(np.asarray(graph.cardinalities))
        return super().run(graph, run)


@frozen
class LabelsPokedOutOfRange(Honest):
    def run(self, graph, run):
        outcome = super().run(graph, run)
        run.best_labels = np.full(graph.n_variables, 99)
        return outcome


@frozen
class FloatLabels(Honest):
    def run(self, graph, run):
        run.offer(np.zeros(graph.n_variables))
        return super().run(graph, run)


@frozen
class TwistedTrace(Honest):
    def run(self, graph, run):
        outcome = super().run(graph, run)
        run.trace.reverse()
        return outcome


@frozen
class BoastfulTrace(Honest):
    """The trace ends with an energy that was never reached."""

    def run(self, graph, run):
        outcome = super().run(graph, run)
        if run.trace:
            run.trace.append(run.trace[-1]._replace(energy=-1e9, best_energy=-1e9))
        return outcome


@frozen
class BackwardsClock(Honest):
    def run(self, graph, run):
        outcome = super().run(graph, run)
        run.trace[:] = [p._replace(seconds=-t - 1.0) for t, p in enumerate(run.trace)]
        return outcome


# ---------------------------------------------------------------------- repeatability


@frozen
class UsesGlobalRandomness(Honest):
    def run(self, graph, run):
        for k in graph.cardinalities.tolist():
            np.random.randint(k)  # noqa: NPY002
        run.offer(np.array([random.randrange(k) for k in graph.cardinalities.tolist()], dtype=int))
        return Outcome(iterations=1)


@frozen
class SeedsItself(Honest):
    """Every seed gives the same run."""

    how: str = "default_rng"

    def run(self, graph, run):
        makers = {
            "default_rng": lambda: default_rng(0).random(),
            "generator": lambda: np.random.Generator(np.random.PCG64(seed=0)).random(),
            "legacy": lambda: np.random.RandomState(0).rand(),
            "python": lambda: random.Random(0).random(),
            "global": lambda: (random.seed(0), random.random()),
            "global-legacy": lambda: (np.random.seed(0), np.random.rand()),  # noqa: NPY002
            "nested": lambda: solve(graph, Honest(), seed=0),
        }
        makers[self.how]()
        return super().run(graph, run)


@frozen
class SeedsFromTheRun(Honest):
    """Makes generators as one may."""

    def run(self, graph, run):
        seed = int(run.rng.integers(2**32))
        assert default_rng(run.rng) is run.rng
        for made in (default_rng(seed), np.random.RandomState(seed), random.Random(seed)):
            made.random()
        solve(graph, Honest(), seed=seed)
        return super().run(graph, run)


@frozen
class UsesTheClock(Honest):
    def run(self, graph, run):
        now = time.perf_counter_ns()
        run.offer(
            np.array(
                [(now >> i) % k for i, k in enumerate(graph.cardinalities.tolist())], dtype=int
            )
        )
        return Outcome(iterations=1)


@frozen
class WarmStart(Honest):
    """Begin where the run on another graph of the same shape ended."""

    last: ClassVar[dict[str, Any]] = {}

    def run(self, graph, run):
        kept = self.last.get("labels")
        fits = kept is not None and np.array_equal(self.last["shape"], graph.cardinalities)
        if fits and self.last["graph"] != graph.content_hash:
            run.offer(kept)
        else:
            run.offer(run.rng.integers(0, graph.cardinalities))
        self.last.update(
            labels=run.best_labels, shape=graph.cardinalities, graph=graph.content_hash
        )
        return Outcome(iterations=1)


@frozen
class EachItsOwn(Honest):
    """Every object behaves differently."""

    count: ClassVar[Any] = itertools.count()

    def run(self, graph, run):
        if not hasattr(self, "number"):
            object.__setattr__(self, "number", next(self.count))
        run.offer(np.minimum(self.number, graph.cardinalities - 1))
        return Outcome(iterations=1)


# ---------------------------------------------------------------------- the input


def write(array: np.ndarray, index: int, value: float) -> None:
    array.setflags(write=True)
    array[index] = value
    array.setflags(write=False)


@frozen
class ChangesCosts(Honest):
    """Raise the cost of a label that is not used, so that no number of the result gives it away."""

    def run(self, graph, run):
        outcome = super().run(graph, run)
        if graph.n_variables and graph.cardinalities[0] > 1 and run.best_labels is not None:
            write(graph.unary_values, 0 if run.best_labels[0] else 1, 1e3)
        return outcome


@frozen
class SolvesAnotherEnergy(Honest):
    """Turn all costs into zeros, solve, and be judged by the zeros."""

    def run(self, graph, run):
        if small(graph):
            for array in (graph.unary_values, graph.pairwise_values, graph.table_values):
                array.setflags(write=True)
                array[:] = 0.0
                array.setflags(write=False)
        return super().run(graph, run)


@frozen
class ReplacesArray(Honest):
    def run(self, graph, run):
        object.__setattr__(graph, "edge_offsets", graph.edge_offsets.astype(np.int32))
        return super().run(graph, run)


@frozen
class LeavesWriteable(Honest):
    def run(self, graph, run):
        graph.unary_values.setflags(write=True)
        return super().run(graph, run)


@frozen
class LeavesNotes(Honest):
    def run(self, graph, run):
        graph.__dict__["notes"] = "seen"
        return super().run(graph, run)


@frozen
class SpoilsCache(Honest):
    def run(self, graph, run):
        outcome = super().run(graph, run)
        graph.__dict__["degrees"] = np.zeros(graph.n_variables, dtype=np.int64)
        return outcome


@frozen
class BribesTheEvaluator(Honest):
    """Make every labelling of an infeasible graph cost nothing."""

    def run(self, graph, run):
        if graph.log2_states > 15 or math.isfinite(enumerated(graph).optimum):
            return super().run(graph, run)
        graph.__dict__["energy_of"] = lambda labels: 0.0
        run.offer(np.zeros(graph.n_variables, dtype=np.int64))
        return Outcome(iterations=1)


# ---------------------------------------------------------------------- start and budget


@frozen
class WorseThanStart(Honest):
    def run(self, graph, run):
        if run.initial is None:
            return super().run(graph, run)
        forget(run)
        run.offer(worst_of(graph))
        return Outcome(iterations=1)


@frozen
class IgnoresTime(Honest):
    def run(self, graph, run):
        if graph.log2_states > 15:
            begin = time.perf_counter()
            while time.perf_counter() - begin < 0.7:
                run.offer(run.rng.integers(0, graph.cardinalities))
        return super().run(graph, run)


@frozen
class IgnoresIterations(Honest):
    def run(self, graph, run):
        return replace(super().run(graph, run), iterations=9)


@frozen
class FalselyConverged(Honest):
    def run(self, graph, run):
        if run.max_iterations is None:
            return super().run(graph, run)
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
class SupportsRaises(Honest):
    def supports(self, graph, temperature):
        return None if graph.unary.size else "nothing to do"


@frozen
class SupportsChangesItsMind(Honest):
    count: ClassVar[Any] = itertools.count()

    def supports(self, graph, temperature):
        return f"no {next(self.count)}" if graph.n_labels is None else None


@frozen
class SupportsGivesNoReason(Honest):
    def supports(self, graph, temperature):
        return "" if graph.n_labels is None else None


@frozen
class SupportsFlag(Honest):
    def supports(self, graph, temperature):
        return False if graph.n_labels is None else None


@frozen
class SupportsNothing(Honest):
    def supports(self, graph, temperature):
        return "today is Sunday"


# ---------------------------------------------------------------------- crashes


@functools.cache
def hash_of(family: str) -> str:
    return random_graph(family, 0).content_hash


@frozen
class CrashesOn(Honest):
    """Fail on one random graph of a family."""

    family: str = "potts"

    def run(self, graph, run):
        if graph.content_hash == hash_of(self.family):
            raise ZeroDivisionError("out of luck")
        return super().run(graph, run)


@frozen
class Exits(Honest):
    def run(self, graph, run):
        sys.exit("enough")


@frozen
class ReturnsNothing(Honest):
    def run(self, graph, run):
        super().run(graph, run)


# ---------------------------------------------------------------------- the object


@frozen
class NotPicklable(Honest):
    def __getstate__(self):
        raise TypeError("holds a lock")


@frozen
class PicklesWrongly(Honest):
    def __reduce__(self):
        return PicklesWrongly, (self.draws + 1,)


@frozen
class SolutionNotPicklable(Honest):
    def run(self, graph, run):
        outcome = super().run(graph, run)
        outcome.diagnostics["later"] = lambda: None
        return outcome


class Undecorated(Honest):
    """A subclass without ``@dataclass(frozen=True)`` takes any attribute."""


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


# ---------------------------------------------------------------------- T > 0


@frozen
class Soft(Honest):
    """Base of the liars at T > 0: change what comes out there."""

    def run(self, graph, run):
        outcome = super().run(graph, run)
        if run.temperature > 0 and outcome.marginals is not None and graph.n_variables:
            self.spoil(graph, outcome)
        return outcome

    def spoil(self, graph, outcome):
        raise NotImplementedError


def each_row(outcome: Outcome, change) -> None:
    """Apply a function of variable and row to the marginals."""
    changed = [np.asarray(change(i, row)) for i, row in enumerate(outcome.marginals)]
    is_matrix = isinstance(outcome.marginals, np.ndarray)
    outcome.marginals = np.stack(changed) if is_matrix else changed


@frozen
class NotNormalised(Soft):
    def spoil(self, graph, outcome):
        outcome.log_partition_kind = "estimate"
        each_row(outcome, lambda i, row: 1.001 * row)


@frozen
class NegativeMarginals(Soft):
    def spoil(self, graph, outcome):
        outcome.log_partition_kind = "estimate"

        def shifted(i, row):
            if row.size == 1 or graph.has_infinite:
                return row
            return row + np.r_[1.0, np.zeros(row.size - 2), -1.0]

        each_row(outcome, shifted)


@frozen
class NoMarginals(Soft):
    def spoil(self, graph, outcome):
        outcome.marginals = None


@frozen
class TransposedMarginals(Soft):
    def spoil(self, graph, outcome):
        outcome.log_partition_kind = "estimate"
        if graph.n_labels is not None:
            outcome.marginals = np.stack(list(outcome.marginals)).T[None]


@frozen
class MassOnForbidden(Soft):
    def spoil(self, graph, outcome):
        outcome.log_partition_kind = "estimate"
        each_row(outcome, lambda i, row: (row + 1e-9) / (row + 1e-9).sum())


@frozen
class UniformButExact(Soft):
    def spoil(self, graph, outcome):
        def flat(i, row):
            allowed = np.isfinite(graph.unary_of(i))
            return allowed / allowed.sum()

        each_row(outcome, flat)


@frozen
class WrongPartition(Soft):
    kind: str = "exact"
    error: float = 1e-3

    def spoil(self, graph, outcome):
        outcome.log_partition += self.error * (1.0 + abs(outcome.log_partition))
        outcome.log_partition_kind = self.kind


@frozen
class NaNPartition(Soft):
    def spoil(self, graph, outcome):
        outcome.log_partition, outcome.log_partition_kind = math.nan, "estimate"


@frozen
class PartitionWithoutKind(Soft):
    def spoil(self, graph, outcome):
        outcome.log_partition_kind = None


@frozen
class OverflowsAt(Honest):
    """Raises where costs are large."""

    size: float = 1e10

    def run(self, graph, run):
        if graph.magnitude > self.size:
            raise OverflowError("int too large to convert")
        return super().run(graph, run)


@frozen
class LargeIsInfinite(Honest):
    """Takes a large cost for one that forbids."""

    def run(self, graph, run):
        values = np.where(graph.unary_values > 1e8, math.inf, graph.unary_values)
        return super().run(graph.with_unary(values), run)


RANDOM_RESULT = {"repeatable", "stateless", "copies-agree"}
#: What fails where no run comes back; the other checks have nothing to judge.
NOTHING_RUNS = {
    *(
        "completes",
        "infinite-costs",
        "any-scale",
        "one-variable",
        "one-label",
        "no-edges",
        "disconnected",
    ),
    *("equal-costs", "empty-graph", "infeasible", "constant-shift", *RANDOM_RESULT),
    *("draws-from-run", "input-unchanged", "initial-kept", "time-limit", "picklable"),
}

LIARS: list[tuple[Solver, set[str]]] = [
    (WrongClaim(), {"claim-true", "constant-shift"}),
    (BoundTooHigh(), {"bound-below-optimum", "constant-shift"}),
    (BoundTooHighWhenStopped(), {"bound-below-optimum"}),
    (BoundWithoutConstant(), {"constant-shift"}),
    (FalseOptimum(), {"optimal-true", "bound-below-optimum", "constant-shift", "marginals-valid"}),
    (FalselyInfeasible(), {"infeasible-true"}),
    (
        FailsOnLabelCosts(),
        {
            "label-costs",
            "constant-shift",
            "copies-agree",
            "draws-from-run",
            "initial-kept",
            "picklable",
            "repeatable",
            "stateless",
        },
    ),
    (OtherDtype(), {"labels-valid"}),
    (NoLabels(), {"labels-valid"}),
    (TwistedTrace(), {"trace-consistent"}),
    (BoastfulTrace(), {"trace-consistent"}),
    (BackwardsClock(), {"trace-consistent"}),
    (UsesGlobalRandomness(), RANDOM_RESULT | {"marginals-valid", "draws-from-run"}),
    (SeedsItself(), {"draws-from-run"}),
    (UsesTheClock(), RANDOM_RESULT | {"marginals-valid"}),
    (WarmStart(), {"stateless", "marginals-valid"}),
    (EachItsOwn(), {"copies-agree", "marginals-valid"}),
    (ChangesCosts(), {"input-unchanged"}),
    (ReplacesArray(), {"input-unchanged"}),
    (LeavesWriteable(), {"input-unchanged"}),
    (LeavesNotes(), {"input-unchanged"}),
    (SpoilsCache(), {"input-unchanged"}),
    (BribesTheEvaluator(), {"infeasible", "energy-true"}),
    (WorseThanStart(), {"initial-kept"}),
    (IgnoresTime(), {"time-limit"}),
    (IgnoresIterations(), {"iteration-limit"}),
    (FalselyConverged(), {"converged-true"}),
    (SupportsRaises(), {"supports-answers"}),
    (SupportsChangesItsMind(), {"supports-answers"}),
    (SupportsGivesNoReason(), {"supports-answers"}),
    (SupportsFlag(), {"supports-answers"}),
    (SupportsNothing(), {"supports-something"}),
    (CrashesOn(family="potts"), {"completes"}),
    (CrashesOn(family="large"), {"completes"}),
    (CrashesOn(family="cannot-links"), {"infinite-costs"}),
    (OverflowsAt(), {"any-scale"}),
    (
        LargeIsInfinite(),
        {"infeasible-true", "bound-below-optimum", "log-partition-true"} | {"exact-marginals"},
    ),
    (CrashesOn(family="one-variable"), {"one-variable"}),
    (CrashesOn(family="one-label"), {"one-label"}),
    (CrashesOn(family="no-edges"), {"no-edges"}),
    (CrashesOn(family="disconnected"), {"disconnected"}),
    (CrashesOn(family="equal"), {"equal-costs"}),
    (CrashesOn(family="empty"), {"empty-graph"}),
    (CrashesOn(family="infeasible"), {"infeasible"}),
    (LabelsOutOfRange(), NOTHING_RUNS - {"empty-graph"}),
    (LabelsPokedOutOfRange(), NOTHING_RUNS - {"empty-graph"}),
    (FloatLabels(), NOTHING_RUNS - {"empty-graph"}),
    (Exits(), NOTHING_RUNS),
    (ReturnsNothing(), NOTHING_RUNS),
    (NotPicklable(), {"picklable"}),
    (PicklesWrongly(), {"picklable"}),
    (SolutionNotPicklable(), {"picklable"}),
    (Undecorated(), {"frozen"}),
    (Assignable(), {"frozen"}),
    (OddSetting(steps=(3,)), {"spec-round-trip"}),
    (LossySpec(draws=6), {"spec-round-trip"}),
    (NotNormalised(), {"marginals-valid", "outcome-valid"}),
    (NegativeMarginals(), {"marginals-valid", "outcome-valid"}),
    (NoMarginals(), {"marginals-valid"}),
    (TransposedMarginals(), {"marginals-valid", "marginals-respect-infinity", "outcome-valid"}),
    (MassOnForbidden(), {"marginals-respect-infinity"}),
    (UniformButExact(), {"exact-marginals"}),
    (WrongPartition(kind="exact"), {"log-partition-true", "constant-shift"}),
    (WrongPartition(kind="lower"), {"log-partition-true", "constant-shift"}),
    (WrongPartition(kind="upper", error=-1e-3), {"log-partition-true", "constant-shift"}),
    (NaNPartition(), {"log-partition-true", "constant-shift", "outcome-valid"}),
    (
        WrongPartition(kind="rough", error=0.0),
        {"log-partition-true", "constant-shift", "outcome-valid"},
    ),
    (PartitionWithoutKind(), {"log-partition-true", "constant-shift", "outcome-valid"}),
]


def outcome_of(solver: Solver) -> dict[str, conformance.CheckResult]:
    results = run_checks(solver, graphs_per_family=1, isolate=False)
    return {result.name: result for result in results}


def failed(results: dict[str, conformance.CheckResult]) -> set[str]:
    return {name for name, result in results.items() if result.verdict == Verdict.FAILED}


def name_of(value: Any) -> str:
    return value.spec if isinstance(value, Honest) else ""


def test_an_honest_solver_passes_every_check():
    results = run_checks(Honest(), graphs_per_family=3)
    assert [(r.name, r.message) for r in results if r.verdict != Verdict.PASSED] == []
    assert len(results) > 30


@pytest.mark.parametrize(("liar", "caught_by"), LIARS, ids=name_of)
def test_each_lie_is_caught_by_the_checks_made_for_it(liar, caught_by, monkeypatch):
    if isinstance(liar, IgnoresTime):  # it would take a while to overrun as much as is forgiven
        monkeypatch.setattr(checks, "TIME_LIMIT", 0.05)
        monkeypatch.setattr(checks, "SLACK", 0.3)
    assert failed(outcome_of(liar)) == caught_by


def test_every_check_catches_a_liar():
    names = {check.name for check in solver_checks(Honest())}
    assert set().union(*(caught_by for _, caught_by in LIARS)) == names


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("default_rng", r"default_rng\(0\); draw from run.rng"),
        ("generator", r"PCG64\(0\)"),
        ("legacy", r"RandomState\(0\)"),
        ("python", r"Random\(0\)"),
        ("global", "the global random functions"),
        ("global-legacy", "the global random functions"),
        ("nested", r"default_rng\(0\)"),
    ],
)
def test_generators_that_do_not_come_from_the_run_are_caught(how, said):
    with pytest.raises(ConformanceFailure, match=f"whatever the seed, the run draws from {said}"):
        check_of(SeedsItself(how=how), "draws-from-run")()


def test_generators_seeded_from_the_run_are_allowed():
    check_of(SeedsFromTheRun(), "draws-from-run")()


def check_of(solver: Solver, name: str) -> conformance.Check:
    return next(c for c in solver_checks(solver, graphs_per_family=2) if c.name == name)


def test_a_failure_brings_the_case_back():
    """The message holds the call that shows the failure again."""
    liar = BoundTooHigh()
    with pytest.raises(ConformanceFailure, match="is above the optimum") as caught:
        check_of(liar, "bound-below-optimum")()
    told, graph_is = str(caught.value).split("\n")
    call, said = told.split(": ", 1)
    names = {"solve": solve, "random_graph": random_graph, "solver": liar}
    solution = eval(call, names)
    assert said == (
        f"lower bound {solution.lower_bound!r} is above the optimum {solution.claimed_energy!r}"
    )
    graph = eval(call.replace("solve(", "first(", 1), {**names, "first": lambda g, *_, **__: g})
    # Of a single variable: no graph with a choice is smaller.
    assert graph.n_variables == 1 and small(graph)
    assert f"variables: 1, their labels: {graph.cardinalities[0]}, edges: 0" in graph_is


@pytest.mark.parametrize(
    ("liar", "name", "said"),
    [
        (LabelsOutOfRange(), "completes", r"raised ValueError: labels\[0\] = .* has labels 0 to"),
        (FloatLabels(), "completes", "labels must be integers, got dtype float64"),
        (Exits(), "completes", "the run raised SystemExit: enough"),
        (ReturnsNothing(), "completes", "returned NoneType; an Outcome is expected"),
        (
            CrashesOn(family="grid"),
            "completes",
            r"^solve\(random_graph\('grid', 0\), solver, seed=0\): the run raised "
            r"ZeroDivisionError: out of luck \(.*test_conformance_suite.py, line \d+\)\n +\(of the",
        ),
        (IgnoresIterations(), "iteration-limit", "iterations must be an int from 0 to 1, got 9"),
        (OtherDtype(), "labels-valid", "must be an int64 array, got int32"),
        (NoLabels(), "labels-valid", "'limit' and gave no labelling|'converged' and gave no lab"),
        (SupportsRaises(), "supports-answers", r"'ragged', 0.* supports\(\) raised ValueError"),
        (SupportsFlag(), "supports-answers", "None or a reason, got False"),
        (SupportsNothing(), "supports-something", "refuses all 50 random graphs .* is Sunday"),
        (LeavesNotes(), "input-unchanged", "left an attribute graph.notes"),
        (ChangesCosts(), "input-unchanged", "changed graph.unary_values"),
        (WorseThanStart(), "initial-kept", r"initial=\[.*the start costs"),
        (Undecorated(), "frozen", r"decorate the class with @dataclass\(frozen=True\)"),
        (TransposedMarginals(), "marginals-valid", r"must be a \(\d, \d\) array, got \(1, "),
        (WrongPartition(kind="rough"), "log-partition-true", "its kind 'rough'"),
    ],
    ids=name_of,
)
def test_messages_say_what_was_found(liar, name, said):
    """Also shows that a check can be called alone, without those before it."""
    with pytest.raises(ConformanceFailure, match=said):
        check_of(liar, name)()


def test_a_run_that_does_not_end_is_stopped(monkeypatch):
    monkeypatch.setattr(runs, "PATIENCE", 0.2)
    begin = time.perf_counter()
    with pytest.raises(ConformanceFailure, match="a run must end by itself"):
        check_of(Endless(), "completes")()
    # The first endless run is enough: the others are not waited for.
    assert time.perf_counter() - begin < 5.0


def test_results_that_cannot_be_looked_at_are_failures():
    class Odd(Honest):
        def run(self, graph, run):
            return replace(super().run(graph, run), claimed_energy="low")

    with pytest.raises(ConformanceFailure, match="cannot be judged: TypeError"):
        check_of(Odd(), "claim-true")()


def test_checks_without_a_say_are_not_passed():
    """A solver of labellings, without bound, is not said to have passed what it was not asked."""

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
        "converged-true": "the solver never says converged under a limit on iterations",
        **dict.fromkeys(
            (
                "marginals-valid",
                "marginals-respect-infinity",
                "log-partition-true",
                "exact-marginals",
            ),
            "the solver supports none of the random graphs at T > 0",
        ),
    }
    with pytest.raises(unittest.SkipTest):
        check_of(Plain(), "claim-true")()


def test_run_checks_reports_each_result_as_it_comes():
    seen = []
    results = run_checks("brute-force", seen.append, graphs_per_family=1)
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
    """Two independent evaluations of every energy of every family."""
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
    found = exhaustive(graph)
    assert found.log_partition(0.5) == pytest.approx(math.log(2 + 2 * math.exp(-1.4)))
    assert found.marginals(0.5)[0] == pytest.approx([0.5, 0.5])
    field = exhaustive(FactorGraph.potts([[0.0, 0.3]], np.empty((0, 2), int), []))
    assert field.marginals(2.0)[0][1] == pytest.approx(1 / (1 + math.exp(0.15)))
    assert (field.optimum, field.scale) == (0.0, 1.0)


def test_the_referee_refuses_large_graphs():
    with pytest.raises(ValueError, match=r"2\^40 labellings"):
        exhaustive(FactorGraph.potts(np.zeros((40, 2)), [(0, 1)], 1.0))
