"""The checks of one solver: tests of every guarantee of the contract on its runs."""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import pickle
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from inference_lab.conformance.generators import generators_made
from inference_lab.conformance.graphs import (
    LARGE,
    OFFSETS,
    ROUNDING_ERRORS,
    SAMPLED,
    TOLERANCE,
    exhaustive,
    fresh,
    large_graph,
    size_of,
    with_offset,
)
from inference_lab.conformance.runs import SAMPLE_SEED, Case, Planned, Runs, call_of
from inference_lab.conformance.verdicts import Check, ConformanceFailure, NotApplicable, last_line
from inference_lab.contract import Solution, Status
from inference_lab.formatting import shortened
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.random_graphs import (
    FAMILIES,
    FINITE,
    HARD,
    LABEL_COSTS,
    SCALES,
)
from inference_lab.registry.registry import solver_registry
from inference_lab.solving import CLOCKS
from inference_lab.specs.grammar import SpecError, build, parse_spec

#: Returns the fault of a run, empty without a fault, and None if the check does not apply to it.
_Fault: TypeAlias = Callable[[Case, Solution], str | None]

#: Time limit in seconds that the check of time limits gives to the solver.
TIME_LIMIT = 0.3
#: Seconds by which it may exceed the limit, plus three times the time of evaluating a labelling.
SLACK = 2.0

#: Checks that runs return: name, claim, and the families of graphs.
_COMPLETES = (
    ("completes", "No run on a graph of finite costs raises.", (*FINITE, "large")),
    ("infinite-costs", "No run on a graph with +inf costs raises.", tuple(HARD)),
    (
        "any-scale",
        "No run on a graph of very small, very large or mixed costs raises.",
        tuple(SCALES),
    ),
    ("one-variable", "A single variable can be solved.", ("one-variable",)),
    ("one-label", "Variables with one label each can be solved.", ("one-label",)),
    ("no-edges", "A graph without edges can be solved.", ("no-edges",)),
    ("disconnected", "A disconnected graph can be solved.", ("disconnected",)),
    ("equal-costs", "A graph of equal energies can be solved.", ("equal",)),
    ("empty-graph", "A graph without variables can be solved.", ("empty",)),
    (
        "infeasible",
        "An infeasible graph ends in an infinite energy, never as optimal or an exception.",
        ("infeasible",),
    ),
)


class Examination(Runs):
    """The checks of one solver, by name."""

    # -------------------------------------------------------------- coverage

    def _supports_something(self) -> None:
        """Some random graph is supported."""
        missing = self.solver.missing()
        if missing:
            raise NotApplicable(missing)
        if not self.group("cold") and not self.group("warm"):
            graph = fresh("potts", 0)
            reasons = [self.solver.supports(graph, t) for t in (0.0, 1.0)]
            raise ConformanceFailure(
                f"supports() refuses all {len(FAMILIES) * len(self.seeds)} random graphs at "
                f"temperature 0 and above; for random_graph('potts', 0) it returns {reasons}"
            )

    def _supports_answers(self) -> None:
        """supports() returns None or a reason, never raises, and the run agrees with it."""
        drawn = [(family, seed) for family in FAMILIES for seed in self.seeds[:3]]
        for family, seed in sorted(drawn, key=lambda graph: size_of(*graph)):
            for temperature in (0.0, 0.5, 1.0):
                self._supports_once(family, seed, temperature)

    def _supports_once(self, family: str, seed: int, temperature: float) -> None:
        graph = fresh(family, seed)
        where = call_of(family, seed, temperature=temperature)
        try:
            with self.watch(where):
                reason = self.solver.supports(graph, temperature)
                again = self.solver.supports(fresh(family, seed), temperature)
        except Exception as problem:
            raise ConformanceFailure(
                f"{where}: supports() raised {last_line(problem)}; it must return None or a reason"
            ) from problem
        if reason is not None and not (isinstance(reason, str) and reason.strip()):
            raise ConformanceFailure(
                f"{where}: supports() must return None or a reason, got {reason!r}"
            )
        if reason != again:
            raise ConformanceFailure(f"{where}: supports() returned {reason!r}, then {again!r}")
        if reason is not None:
            solution = self._solve(graph, where, temperature=temperature)
            if solution.status != Status.UNSUPPORTED or solution.message != reason:
                raise ConformanceFailure(
                    f"{where}: supports() returns {reason!r}, but the run ended as "
                    f"{solution.status.value!r} with message {solution.message!r}"
                )

    # -------------------------------------------------------------- completion

    def _completes(self, families: tuple[str, ...]) -> None:
        cases = [case for case in self.cases if case.family in families]
        if not cases:
            raise NotApplicable(f"the solver supports no graph of {', '.join(families)}")
        for case in cases:
            if case.error:
                raise ConformanceFailure(case.error)
            assert case.solution is not None
            if case.family == "infeasible" and (
                case.solution.energy != math.inf or case.solution.status == Status.OPTIMAL
            ):
                raise ConformanceFailure(
                    f"{case.where}: every labelling costs inf, but the run ended as "
                    f"{case.solution.status.value!r} with energy {case.solution.energy}"
                )

    def _label_costs(self) -> None:
        """A graph with label costs is refused with a reason, or no run on it raises."""
        if any(case.family in LABEL_COSTS for case in self.cases):
            self._completes(tuple(LABEL_COSTS))
            return
        for family in LABEL_COSTS:
            graph = fresh(family, 0)
            where = call_of(family, 0)
            solution = self._solve(graph, where)
            if solution.status != Status.UNSUPPORTED or not solution.message:
                raise ConformanceFailure(
                    f"{where}: no graph with label costs is covered, but the run ended as "
                    f"{solution.status.value!r} with message {solution.message!r}"
                )

    # -------------------------------------------------------------- bounds

    def _constant_shift(self, run: Planned) -> str:
        """Bounds and claims shift by the constant of the graph."""
        exact = run.reference
        temperature = run.temperature
        for constant in (-1000.0, 1000.0):
            graph = fresh(run.family, run.seed)
            shifted = replace(graph, constant=graph.constant + constant)
            changed = f"with {constant:+g} on the graph's constant"
            solution = self._solve(shifted, f"{run.where} {changed}", **run.how)
            if solution.status in (Status.INFEASIBLE, Status.ERROR):
                continue
            tolerance = TOLERANCE * (exact.scale + 1000.0)
            fault = _bound_fault(solution, exact.optimum + constant, tolerance)
            fault = fault or _claim_fault(solution, tolerance)
            if temperature and not fault:
                log_z = exact.log_partition(temperature) - constant / temperature
                fault = _log_partition_fault(solution, log_z, tolerance)
            if fault:
                return f"{changed}: {fault}"
        return ""

    def _offset_proofs(self, run: Planned) -> str:
        """An offset that all labellings pay proves nothing: bounds and optima are still true."""
        if run.temperature:
            return ""
        for offset in OFFSETS:
            graph = with_offset(fresh(run.family, run.seed), offset)
            if graph is None:
                continue
            solution = self._solve(graph, f"{run.where} with {offset}", **run.how)
            optimum = exhaustive(graph).optimum
            if not math.isfinite(optimum) or solution.status in (Status.UNSUPPORTED, Status.ERROR):
                continue
            rounding = ROUNDING_ERRORS * graph.resolution_at(optimum)
            fault = _bound_fault(solution, optimum, rounding)
            if not fault and solution.status == Status.OPTIMAL:
                fault = _optimum_fault(solution, optimum, rounding)
            if fault:
                return f"with {offset}: {fault}"
        return ""

    # -------------------------------------------------------------- repeatability

    def _settled(self, run: Planned) -> Solution:
        """Return the reference run for comparisons, made once."""
        # The second of two runs, so that it follows an earlier run as all later runs do.
        key = run.family, run.temperature
        if key not in self._compared:
            for turn in range(2):
                with _global_randomness(turn):
                    self._compared[key] = self._make(run)
        return self._compared[key]

    def _repeatable(self, run: Planned) -> str:
        """The same seed gives the same result to the last bit, also with an equal solver object."""
        before = self._settled(run)
        with _global_randomness(2):
            after = self._make(run, solver=replace(self.solver))
        return _difference(before, after, "two runs with the same seed differ")

    def _stateless(self, run: Planned) -> str:
        """A run on another graph in between does not change the result."""
        before = self._settled(run)
        other = fresh("grid", 2)
        if self._covers(other, run.temperature):
            self._solve(other, run.where, **run.how)
        # Then a graph of the same shape with reversed costs, because a warm start would fit it.
        graph = fresh(run.family, run.seed)
        rows = np.split(graph.unary_values, graph.unary_ptr[1:-1])
        turned = graph.with_unary(np.concatenate([row[::-1] for row in rows]))
        self._solve(turned, run.where, **{**run.how, "seed": 8})
        what = "the result changed after a run on another graph in between"
        return _difference(before, self._make(run), what)

    def _input_unchanged(self, run: Planned) -> str:
        """The graph is not changed by a run."""
        expected = run.graph
        graph = fresh(run.family, run.seed)
        self._solve(graph, run.where, **run.how)
        for name in (f.name for f in fields(FactorGraph)):
            before, after = getattr(expected, name), getattr(graph, name)
            if not _same(before, after):
                return f"the run changed graph.{name} from {_show(before)} to {_show(after)}"
            if isinstance(after, np.ndarray) and after.flags.writeable:
                return f"the run made graph.{name} writeable"
        for name, value in vars(graph).items():
            # Cached properties are compared, too, because a run may have changed them.
            if not hasattr(expected, name):
                return f"the run left an attribute graph.{name}"
            if not _same(getattr(expected, name), value):
                return f"the run changed graph.{name}"
        return ""

    def _draws_from_run(self, run: Planned) -> str:
        """All random numbers come from run.rng, so that seeds give different runs."""
        made = []
        for seed in (SAMPLE_SEED, SAMPLE_SEED + 1):
            # Each run starts from another global state, so that a state set by the run is detected.
            with _global_randomness(seed), generators_made() as calls:
                self._make(run, seed=seed)
            made.append(calls)
        same = " and ".join(sorted(made[0] & made[1]))
        return same and f"whatever the seed, the run draws from {same}; draw from run.rng"

    # -------------------------------------------------------------- start and budget

    def _initial_kept(self) -> None:
        """The answer is never worse than the given start."""
        for run in self._sample([*SAMPLED, "large"]):
            energies = run.reference.energies
            best = np.unravel_index(int(energies.argmin()), energies.shape)
            other = np.random.default_rng(3).integers(0, run.graph.cardinalities)
            for start in ([int(a) for a in best], other.tolist()):
                start_energy = float(energies[tuple(start)])
                solution = self._make(run, initial=start)
                if not solution.energy <= start_energy + run.tolerance(start_energy):
                    where = call_of(run.family, run.seed, **run.how, initial=start)
                    raise ConformanceFailure(
                        f"{where}: the start costs {start_energy!r}, the answer {solution.energy!r}"
                    )

    def _iteration_limit(self) -> None:
        """max_iterations is respected, and iterations counts the iterations made."""
        if all(case.error for case in self.group("limited")):
            raise NotApplicable("no run under a limit on iterations came back")
        for case in self.group("limited"):
            if case.solution is None:
                continue
            done = case.solution.iterations
            limit = case.how["max_iterations"]
            if not (isinstance(done, int) and 0 <= done <= limit):
                raise ConformanceFailure(
                    f"{case.where}: iterations must be an int from 0 to {limit}, got {done!r}"
                )

    def _time_limit(self) -> None:
        """A time limit is overrun by less than 2 s of processor time on a large graph."""
        judged = False
        for temperature in (0.0, 1.0):
            sizes = [s for s in LARGE if self._covers(large_graph(*s), temperature)]
            if not sizes:
                continue
            judged = True
            n, m, k = sizes[0]
            graph = large_graph(n, m, k)
            where = f"{n} variables, {m} edges, {k} labels at temperature {temperature:g}"
            # A small graph is solved first, because compilation and imports must not be timed.
            self._solve(large_graph(6, 6, 2), where, temperature=temperature, max_iterations=1)
            # Processor time, because the machine may be busy.
            clock = CLOCKS["cpu"]
            begin = clock()
            graph.energy(np.zeros(n, dtype=np.int64))
            allowed = TIME_LIMIT + SLACK + 3 * (clock() - begin)
            begin = clock()
            limits: dict[str, Any] = {"time_limit": TIME_LIMIT, "clock": "cpu"}
            solution = self._solve(graph, where, temperature=temperature, **limits)
            taken = clock() - begin - solution.compile_seconds
            if taken > allowed:
                raise ConformanceFailure(
                    f"{where}: with time_limit={TIME_LIMIT} the run took {taken:.1f} s, "
                    f"more than {allowed:.1f} s"
                )
        if not judged:
            raise NotApplicable("the solver supports none of the larger graphs")

    def _converged_true(self) -> None:
        """A result that has converged under a limit is the same without one."""
        judged = 0
        free = {
            (case.family, case.seed, case.temperature): case.solution
            for case in [*self.group("cold"), *self.group("warm")]
        }
        for case in self.group("limited"):
            final = free.get((case.family, case.seed, case.temperature))
            limited = case.solution
            if limited is None or final is None or limited.status != Status.CONVERGED:
                continue
            judged += 1
            for name in ("labels", "marginals", "log_partition"):
                early, late = getattr(limited, name), getattr(final, name)
                if not _same(early, late):
                    raise ConformanceFailure(
                        f"{case.where}: reported as converged, but without the limit {name} goes "
                        f"on from {_show(early)} to {_show(late)}"
                    )
        if not judged:
            raise NotApplicable("the solver never reports convergence under a limit on iterations")

    # -------------------------------------------------------------- the object

    def _picklable(self) -> None:
        """Solver and solution can be pickled."""
        try:
            twin = pickle.loads(pickle.dumps(self.solver))
        except Exception as problem:
            raise ConformanceFailure(
                f"the solver cannot be pickled: {last_line(problem)}"
            ) from problem
        if twin != self.solver:
            raise ConformanceFailure(f"the solver comes back from pickle as {twin!r}")
        for run in self._sample(SAMPLED):
            solution = self._make(run)
            try:
                back = pickle.loads(pickle.dumps(solution))
            except Exception as problem:
                raise ConformanceFailure(
                    f"{run.where}: the solution cannot be pickled: {last_line(problem)}"
                ) from problem
            what = "the solution changes on its way through pickle"
            if fault := _difference(solution, back, what):
                raise ConformanceFailure(f"{run.where}: {fault}")

    def _frozen(self) -> None:
        """Settings cannot be assigned."""
        if not is_dataclass(self.solver):
            raise ConformanceFailure(f"{type(self.solver).__name__} must be a frozen dataclass")
        twin = replace(self.solver)
        for name in [*(f.name for f in fields(twin)), "a_setting_of_no_solver"]:
            try:
                setattr(twin, name, None)
            except AttributeError:  # FrozenInstanceError is one
                continue
            raise ConformanceFailure(
                f"{name} can be assigned; decorate the class with @dataclass(frozen=True)"
            )

    def _spec_round_trip(self) -> None:
        """The spec string builds an equal solver."""
        text = self.solver.spec
        try:
            spec = parse_spec(text)
            registered = spec.name in solver_registry.names()
            twin = (
                solver_registry.make(text)
                if registered
                else build(type(self.solver), spec.name, spec.settings)
            )
        except SpecError as problem:
            raise ConformanceFailure(f"the spec {text!r} cannot be read back: {problem}") from (
                problem
            )
        if twin != self.solver:
            raise ConformanceFailure(
                f"the spec {text!r} makes {twin!r}, which differs from {self.solver!r}"
            )

    # -------------------------------------------------------------- list of checks

    def _of_runs(self, fault: _Fault, never: str = "", soft: bool = False) -> Check:
        """Return the check that no run has a fault; `never` is the reason if it applies to none."""

        def body() -> None:
            judged = False
            for case, solution in self._soft() if soft else self._finished():
                reason = fault(case, solution)
                if reason:
                    raise ConformanceFailure(f"{case.where}: {reason}")
                judged |= reason is not None
            if not judged and never:
                raise NotApplicable(f"the solver never {never}")

        return _check_of(fault, body)

    def _of_sample(
        self, fault: Callable[[Planned], str], families: Iterable[str] = SAMPLED
    ) -> Check:
        """Return the check that no run on one graph of each family has a fault."""

        def body() -> None:
            for run in self._sample(families):
                if reason := fault(run):
                    raise ConformanceFailure(f"{run.where}: {reason}")

        return _check_of(fault, body)

    def checks(self) -> list[Check]:
        """List all checks, the most informative ones first."""
        return [
            *map(_check_of, (self._supports_something, self._supports_answers)),
            *(
                Check(name, claim, functools.partial(self._completes, families))
                for name, claim, families in _COMPLETES
            ),
            _check_of(self._label_costs),
            self._of_runs(_outcome_valid),
            self._of_runs(_labels_valid),
            self._of_runs(_energy_true),
            self._of_runs(_claim_true, "claims an energy"),
            self._of_runs(_trace_consistent),
            self._of_runs(_bound_below_optimum, "gives a lower bound"),
            self._of_runs(_optimal_true, "proves an optimum"),
            self._of_runs(_infeasible_true),
            self._of_sample(self._constant_shift),
            self._of_sample(self._offset_proofs),
            self._of_sample(self._repeatable),
            self._of_sample(self._stateless),
            self._of_sample(self._draws_from_run),
            self._of_sample(self._input_unchanged, FAMILIES),
            *map(
                _check_of,
                (
                    self._initial_kept,
                    self._iteration_limit,
                    self._time_limit,
                    self._converged_true,
                    self._picklable,
                    self._frozen,
                    self._spec_round_trip,
                ),
            ),
            self._of_runs(_marginals_given, soft=True),
            self._of_runs(_marginals_respect_infinity, soft=True),
            self._of_runs(_log_partition_true, "gives an exact value or bound of log Z", soft=True),
            self._of_runs(_exact_marginals, "reports that its log-partition is exact", soft=True),
        ]


def _check_of(claim: Callable[..., Any], body: Callable[[], None] | None = None) -> Check:
    """Build a check from a function: its name, and its docstring as the claim."""
    name = claim.__name__.strip("_").replace("_", "-")
    return Check(name, inspect.getdoc(claim) or name, body or claim)


@contextlib.contextmanager
def _global_randomness(seed: int) -> Iterator[None]:
    """Seed the global random generators for the block, and restore their state afterwards."""
    python, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002  # the guarded state
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(legacy)  # noqa: NPY002


def _same(a: Any, b: Any) -> bool:
    """Whether two values are identical to the last bit; NaN equals NaN."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return (
            isinstance(a, np.ndarray)
            and isinstance(b, np.ndarray)
            and a.dtype == b.dtype
            and a.shape == b.shape
            and a.tobytes() == b.tobytes()
        )
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b or (a != a and b != b))


def _show(value: Any) -> str:
    return shortened(repr(value), 120)


_COMPARED = (
    "status",
    "labels",
    "energy",
    "lower_bound",
    "iterations",
    "claimed_energy",
    "marginals",
    "log_partition",
    "log_partition_kind",
)


def _difference(first: Solution, second: Solution, what: str) -> str:
    for name in _COMPARED:
        a, b = getattr(first, name), getattr(second, name)
        if not _same(a, b):
            return f"{what}: {name} was {_show(a)}, then {_show(b)}"
    return ""


def _close(a: float, b: float, tolerance: float) -> bool:
    """Whether two numbers agree; equal infinities agree, and NaN agrees with no number."""
    return a == b or abs(a - b) <= tolerance


# ---------------------------------------------------------------------- finished runs


def _outcome_valid(case: Case, solution: Solution) -> str | None:
    """The result of a run has the types and ranges of an Outcome."""
    return solution.message or "it failed" if solution.status == Status.ERROR else ""


def _labels_valid(case: Case, solution: Solution) -> str | None:
    """Labels are an int64 array of shape (n,), and given unless infeasible."""
    labels = solution.labels
    sizes = case.graph.cardinalities
    if labels is None:
        needed = case.temperature == 0 and not case.limited
        if needed and solution.status != Status.INFEASIBLE:
            return (
                f"a run without a budget ended as {solution.status.value!r} and gave no labelling"
            )
        return ""
    if not isinstance(labels, np.ndarray) or labels.dtype != np.int64:
        kind = getattr(labels, "dtype", type(labels).__name__)
        return f"labels must be an int64 array, got {kind}"
    if labels.shape != sizes.shape:
        return f"labels must have shape {sizes.shape}, got {labels.shape}"
    return ""


def _energy_true(case: Case, solution: Solution) -> str | None:
    """The energy is the energy of the labels in the given graph."""
    expected = math.inf
    if solution.labels is not None:
        expected = float(case.reference.energies[tuple(solution.labels)])
    right = _close(solution.energy, expected, case.tolerance(expected))
    return "" if right else f"energy is {solution.energy!r}, but the labels cost {expected!r}"


def _claim_true(case: Case, solution: Solution) -> str | None:
    """A claimed energy is the energy of the labels."""
    return _claim_fault(solution, case.tolerance(solution.energy))


def _trace_consistent(case: Case, solution: Solution) -> str | None:
    """In the trace no best energy rises, no bound or clock falls, and its end is the result."""
    best = math.inf
    bound = -math.inf
    seconds = 0.0
    for t, point in enumerate(solution.trace):
        # The clock may fall by rounding, because it is a difference of large numbers.
        if point.seconds < seconds - 1e-6:
            return f"trace[{t}].seconds fell from {seconds} to {point.seconds}"
        if point.best_energy > best:
            return f"trace[{t}].best_energy rose from {best} to {point.best_energy}"
        if point.best_energy > point.energy:
            return f"trace[{t}].best_energy {point.best_energy} is above its energy {point.energy}"
        # A bound may fall to the best energy, because it may exceed a better one by rounding.
        if point.lower_bound < bound and point.lower_bound != point.best_energy:
            return f"trace[{t}].lower_bound fell from {bound} to {point.lower_bound}"
        best, bound, seconds = point.best_energy, point.lower_bound, point.seconds
    if best != solution.energy:
        return f"the trace ends with energy {best}, the result is {solution.energy}"
    if bound != solution.lower_bound and solution.status != Status.INFEASIBLE:
        return f"the trace ends with bound {bound}, the result is {solution.lower_bound}"
    return ""


def _bound_below_optimum(case: Case, solution: Solution) -> str | None:
    """A lower bound is at most the least energy over all labellings."""
    # Infeasible runs are skipped, because another check covers them.
    if solution.status == Status.INFEASIBLE:
        return None
    optimum = case.reference.optimum
    return _bound_fault(solution, optimum, case.tolerance(optimum))


def _optimal_true(case: Case, solution: Solution) -> str | None:
    """The status is optimal only if the energy is minimal."""
    if solution.status != Status.OPTIMAL:
        return None
    optimum = case.reference.optimum
    return _optimum_fault(solution, optimum, 2 * case.tolerance(optimum))


def _optimum_fault(solution: Solution, optimum: float, tolerance: float) -> str:
    """Return a message if an energy that is reported as optimal is not minimal."""
    if _close(solution.energy, optimum, tolerance):
        return ""
    return f"reported as optimal with energy {solution.energy!r}, but the optimum is {optimum!r}"


def _infeasible_true(case: Case, solution: Solution) -> str | None:
    """The status is infeasible only if every labelling costs +inf."""
    optimum = case.reference.optimum
    if solution.status == Status.INFEASIBLE and math.isfinite(optimum):
        return f"reported as infeasible, but a labelling of energy {optimum!r} exists"
    return ""


def _marginals_given(case: Case, solution: Solution) -> str | None:
    """A run at T > 0 without a budget gives marginals."""
    missing = solution.marginals is None and not case.limited
    return "a run without a budget gave no marginals" if missing else ""


def _marginals_respect_infinity(case: Case, solution: Solution) -> str | None:
    """A label whose unary is +inf has marginal 0."""
    marginals = () if solution.marginals is None else solution.marginals
    for i, row in enumerate(map(np.asarray, marginals)):
        bad = np.flatnonzero(np.isinf(case.graph.unary_of(i)) & (row != 0))
        if bad.size:
            return f"label {bad[0]} of variable {i} costs inf, but its marginal is {row[bad[0]]!r}"
    return ""


def _log_partition_true(case: Case, solution: Solution) -> str | None:
    """A log-partition of kind exact is exact, and a bound is on the right side."""
    exact = case.reference.log_partition(case.temperature)
    rounding = 4 * case.graph.resolution / case.temperature
    tolerance = TOLERANCE * max(1.0, abs(exact)) + rounding
    return _log_partition_fault(solution, exact, tolerance)


def _exact_marginals(case: Case, solution: Solution) -> str | None:
    """Marginals that come with an exact log-partition are exact."""
    if solution.log_partition_kind != "exact" or solution.marginals is None:
        return None
    expected = case.reference.marginals(case.temperature)
    # The rounding error of an energy, over the temperature, is the relative error of a weight.
    tolerance = TOLERANCE + 4 * case.graph.resolution / case.temperature
    for i, row in enumerate(map(np.asarray, solution.marginals)):
        if not np.allclose(row, expected[i], rtol=0.0, atol=tolerance):
            return (
                f"log Z is reported as exact, but marginals[{i}] = {row}, and the exact ones are "
                f"{expected[i]}"
            )
    return ""


def _bound_fault(solution: Solution, optimum: float, tolerance: float) -> str | None:
    if solution.lower_bound == -math.inf:
        return None
    if solution.lower_bound <= optimum + tolerance:
        return ""
    return f"lower bound {solution.lower_bound!r} is above the optimum {optimum!r}"


def _claim_fault(solution: Solution, tolerance: float) -> str | None:
    claimed, energy = solution.claimed_energy, solution.energy
    if claimed is None:
        return None
    if _close(claimed, energy, tolerance):
        return ""
    return f"the solver claims energy {claimed!r}, but its labels cost {energy!r}"


def _log_partition_fault(solution: Solution, exact: float, tolerance: float) -> str | None:
    """Return the fault of a claimed ``log Z``, or None for an estimate."""
    value, kind = solution.log_partition, solution.log_partition_kind
    if value is None or kind is None or kind == "estimate":
        return None
    right = {
        "exact": abs(value - exact) <= tolerance,
        "lower": value <= exact + tolerance,
        "upper": value >= exact - tolerance,
    }
    if right[kind]:
        return ""
    return f"log_partition {value!r} is reported with kind {kind!r}, but log Z is {exact!r}"
