"""Run one solver on one graph."""

from __future__ import annotations

import importlib
import inspect
import math
import reprlib
import sys
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import replace
from os import times
from pathlib import Path
from time import perf_counter, process_time
from typing import Annotated, Any, Literal, Never, Protocol, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from inference_lab.algorithms.presolve import contradiction, n_entries
from inference_lab.compile_timer import notice, timer
from inference_lab.contract import (
    OPTIMALITY_TOLERANCE,
    Marginals,
    Outcome,
    Run,
    Solution,
    Solver,
    Status,
    TracePoint,
    UnsolvedWarning,
    proves,
)
from inference_lab.formatting import counted, in_package, nearest, shortened, warn
from inference_lab.graph.arrays import IntArray
from inference_lab.graph.factor_graph import FactorGraph, unary_minimum
from inference_lab.graph.terms import COST_LIMIT
from inference_lab.processes.blas import blas_threads
from inference_lab.registry.registry import as_solver
from inference_lab.specs.settings import Settings
from inference_lab.specs.whole_numbers import as_whole


class HasGraph(Protocol):
    """Anything with a graph, such as `inference_lab.Problem`."""

    @property
    def graph(self) -> FactorGraph:
        """The graph."""


#: Sources of a graph for `solve`; `Settings` are a problem family.
GraphSource: TypeAlias = FactorGraph | HasGraph | Settings | str | Path


def _processor_seconds() -> float:
    """Return the processor time of this process and of the children it has waited for."""
    used = times()
    return process_time() + used.children_user + used.children_system


#: Clocks of runs, see `solve`. Bound at import, so that no solver can replace them in `time`.
CLOCKS: Mapping[str, Callable[[], float]] = {
    "wall": perf_counter,
    "cpu": _processor_seconds,
}

#: Seconds of compilation so far, by the same clocks.
_COMPILED: Mapping[str, Callable[[], float]] = {
    "wall": lambda: timer.seconds,
    "cpu": lambda: timer.cpu_seconds,
}

#: The clock of the current run, for runs inside it.
_clock: ContextVar[Literal["wall", "cpu"]] = ContextVar("clock", default="wall")

#: Seconds by which a run may exceed its limit.
_OVERRUN = 0.1
#: A start of fewer evaluations times graph entries fits in `_OVERRUN`; it is not estimated.
_CHEAP_START = 100_000_000

#: Runs that need fewer bytes than this are begun without a look at the memory of the machine.
_SMALL_RUN = 1 << 28

#: Tolerance for the sum of a variable's marginals: a thousand times the rounding error of thousands
#: of labels, and far below any error of sampling or early stopping.
MARGINAL_TOLERANCE = 1e-8

#: Kinds of estimates of the log-partition.
PARTITION_KINDS = ("exact", "lower", "upper", "estimate")


def solve(
    graph: GraphSource,
    solver: str | Solver = "auto",
    *,
    seed: int | None = 0,
    time_limit: float | None = None,
    max_iterations: int | None = None,
    absolute_gap: float = 0.0,
    temperature: float = 0.0,
    initial: npt.ArrayLike | None = None,
    initial_marginals: Marginals | None = None,
    on_offer: Callable[[TracePoint], None] | None = None,
    on_improve: Callable[[IntArray, float, float], None] | None = None,
    clock: Literal["wall", "cpu"] | None = None,
    threads: int | None = 1,
    **unknown: Never,
) -> Solution:
    """Run a solver on a graph and return its best labelling, evaluated by the graph.

    Parameters
    ----------
    graph : FactorGraph, Problem, ProblemFamily, spec string or path of a model file
    solver : str or Solver
        A name, a spec such as ``"loopy-bp(damping=0.5)"``, or a solver object. By default `auto`
        chooses by the structure of the graph, within the time limit or ten seconds.
    seed : int or None
        Seed of the run's random generator; None draws a fresh one.
    time_limit : float, optional
        Seconds of `clock`; compiling kernels does not count.
    max_iterations : int, optional
        Limit on the iterations of the method; settings of the solver may be tighter.
    absolute_gap : float
        A gap between energy and bound, in the unit of the costs, that counts as a proof: the run
        ends there, as `optimal` with a message. By default only what rounding hides, see
        `inference_lab.contract.proof_tolerance`.
    temperature : float
        0 for the best labelling; T > 0 for marginals of ``exp(-E / T)``; at least the
        resolution of the graph, and at most 1e100.
    initial : (n,) array of int, optional
        A labelling to start from; the answer is never worse.
    initial_marginals : (n, k) array or list of arrays, optional
        Marginals to start from at T > 0, for solvers that can: mean field and loopy BP. For
        instance, `Solution.marginals` of a similar graph.
    on_offer : callable, optional
        Called with each `TracePoint` as it happens, for progress displays.
    on_improve : callable, optional
        Called with labels (read-only), energy and seconds whenever a labelling is the best so far.
        The solver's clock is stopped during this call and the calls of `on_offer`.
    clock : {"wall", "cpu"}, optional
        The clock of the limit and of all reported seconds: wall time, or processor time of this
        process and of the children that it has waited for, which hardly depends on other processes
        of the machine. The default is wall time; inside the run of another solver, that run's
        clock. Libraries that a solver calls may treat the remaining time as wall time.
    threads : int or None
        Threads of BLAS during the run; None leaves the number as it is. With one, results at a
        limit of processor time do not depend on other processes of the machine.
    **unknown
        Refused, with a hint: settings of a solver belong in its spec, as in
        ``"loopy-bp(damping=0.5)"``.

    Returns
    -------
    Solution
        The status is `unsupported` (with the reason) if the method does not cover the problem,
        `not-installed` if a package is missing (both with a warning, and NaN as energy),
        `infeasible` if it is proved that no labelling has finite energy, and `error` if a field of
        the solver's `Outcome` is invalid, with the field's name.

    Raises
    ------
    SpecError
        If the spec of the solver or of the problem cannot be used.
    TypeError
        If an argument is unknown or has the wrong type.
    ValueError
        If an argument is out of range or `initial` or `initial_marginals` does not fit the graph.
    OSError
        If a model file or data cannot be read.
    MemoryError
        If the run needs more memory than is available, see `Solver.peak_bytes`; nothing has been
        allocated then. The message has both amounts.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> s = il.solve(g, "icm")
    >>> s.energy, s.labels.tolist()
    (0.5, [0, 1])
    """
    refuse_arguments(solve, unknown)
    # Inside the run of another solver, imports do not count as its time.
    with timer.running():
        # These imports take longer than many runs. Numba's compiler drives the timer from then on.
        import scipy.sparse.csgraph  # noqa: F401

        import inference_lab._numba  # noqa: F401

        method = as_solver(solver)
    graph = _as_graph(graph)
    seed, max_iterations, threads = _check(
        graph, seed, temperature, time_limit, max_iterations, threads
    )
    if not isinstance(absolute_gap, int | float | np.number) or not 0 <= absolute_gap < math.inf:
        raise ValueError(f"absolute_gap must be finite and not negative, got {absolute_gap!r}")
    if clock is None:
        clock = _clock.get()
    elif clock not in CLOCKS:
        raise ValueError(f"clock must be one of {', '.join(CLOCKS)}, got {clock!r}")
    start = None if initial is None else graph.check_labels(initial)
    if start is not None and start.ndim != 1:
        raise ValueError(f"initial must have shape ({graph.n_variables},), got {start.shape}")
    shares = None
    if initial_marginals is not None:
        fault = marginals_fault(initial_marginals, graph)
        if fault:
            raise ValueError(f"initial_{fault}")
        shares = np.concatenate([np.empty(0), *initial_marginals])

    with notice.about(method.name()):
        refusal = method.unsupported_reason(graph, temperature)
    reason = refusal or method.missing()
    blank = Solution(
        labels=None,
        energy=math.nan,
        lower_bound=-math.inf,
        status=Status.UNSUPPORTED if refusal else Status.NOT_INSTALLED,
        message=reason or "",
        temperature=temperature,
        seed=seed,
        solver=method.spec,
    )
    if reason is not None:
        return _warned(blank)
    shortage = memory_shortage(method, graph, temperature)
    if shortage is not None:
        raise MemoryError(shortage)
    compiled = _COMPILED[clock]
    before = compiled()
    run = Run(
        graph,
        temperature=temperature,
        seed=seed,
        initial=start,
        initial_marginals=shares,
        time_limit=time_limit,
        max_iterations=max_iterations,
        absolute_gap=float(absolute_gap),
        on_offer=on_offer,
        on_improve=on_improve,
        stopwatch=lambda: compiled() - before,
        clock=CLOCKS[clock],
    )
    outer = _clock.set(clock)
    try:
        with blas_threads(threads), notice.about(method.name()):
            outcome, why = _outcome(method, graph, run)
    finally:
        _clock.reset(outer)
    seconds = run.seconds
    if not isinstance(outcome, Outcome):
        raise TypeError(
            f"run() of {method.name()} returned {type(outcome).__name__}; an Outcome is expected"
        )
    blank = replace(blank, seconds=seconds, compile_seconds=compiled() - before)
    return _warned(_solution(blank, method, graph, run, outcome, why))


def memory_shortage(method: Solver, graph: FactorGraph, temperature: float) -> str | None:
    """Return the memory that a run needs and that there is, if it is too little, else None."""
    needed = method.peak_bytes(graph, temperature)
    if needed < _SMALL_RUN:
        return None
    from inference_lab.processes.memory import available_memory

    available = available_memory()
    if needed <= available:
        return None
    return (
        f"{method.name()} needs about {needed / 1e9:.1f} GB beside this graph of "
        f"{counted(graph.n_variables, 'variable')} and {counted(graph.n_edges, 'pairwise term')}; "
        f"{available / 1e9:.1f} GB are available"
    )


def _warned(solution: Solution) -> Solution:
    """Return the solution; warn if it has no answer and the caller is outside the library."""
    if solution.status in (Status.UNSUPPORTED, Status.NOT_INSTALLED):
        if not in_package(sys._getframe(2)):
            text = f"{solution.solver} gave no answer: {solution.status}, {solution.message}"
            warn(text, UnsolvedWarning)
    return solution


def _outcome(method: Solver, graph: FactorGraph, run: Run) -> tuple[Outcome, str]:
    """Run the method; return its outcome, and the reason if the run is not begun."""
    why = contradiction(graph)
    if why is not None:
        return Outcome(infeasible=True), why
    if not _may_begin(method, run):
        if run.best_labels is None:
            run.offer(unary_minimum(graph))
        return (
            Outcome(),
            "its start would take longer than the time limit, so it was not begun",
        )
    return method.run(graph, run), ""


def _solution(
    blank: Solution,
    method: Solver,
    graph: FactorGraph,
    run: Run,
    outcome: Outcome,
    why: str,
) -> Solution:
    """Fill in the `Solution` of a run, after its outcome is checked."""
    outcome, fault = check_outcome(outcome, graph)
    if outcome.unsupported:
        return replace(blank, status=Status.UNSUPPORTED, message=outcome.unsupported)
    labels = run.best_labels
    energy = run.incumbent_energy()
    bound = math.inf if outcome.infeasible and not fault else run.lower_bound
    if fault:
        status, message = Status.ERROR, f"{method.name()} returned an invalid Outcome: {fault}"
    else:
        status, message = _verdict(graph, run, outcome, energy)
    return replace(
        blank,
        labels=labels,
        energy=energy,
        lower_bound=bound,
        tolerance=run.tolerance_at(energy) if math.isfinite(energy) else 0.0,
        status=status,
        message=why or message,
        claimed_energy=outcome.claimed_energy,
        marginals=outcome.marginals,
        log_partition=_safe_log_partition(outcome, run),
        log_partition_kind=outcome.log_partition_kind,
        iterations=outcome.iterations,
        trace=run.trace,
        diagnostics=outcome.diagnostics,
    )


def _safe_log_partition(outcome: Outcome, run: Run) -> float | None:
    """Return the log-partition, with bounds moved outwards by their rounding error."""
    value, kind = outcome.log_partition, outcome.log_partition_kind
    if value is None or kind not in ("lower", "upper") or run.is_resolved(value * run.temperature):
        return value
    error = run.resolution / run.temperature
    return value - error if kind == "lower" else value + error


def _as_graph(source: GraphSource) -> FactorGraph:
    """Return the graph of a problem in any form."""
    if isinstance(source, FactorGraph):
        return source
    graph = getattr(source, "graph", None)
    if isinstance(graph, FactorGraph):
        return graph
    if not isinstance(source, str | Path | Settings):
        raise TypeError(
            "graph must be a FactorGraph, a Problem, a spec or the path of a model file, got "
            f"{shortened(repr(source))}; inference_lab.convert takes graphs of networkx and pgmpy"
        )
    # Imported by name, so that solving does not depend on problem families, files or data.
    sources = importlib.import_module("inference_lab.registry.sources")
    made: FactorGraph = sources.as_problem(source).graph
    return made


def refuse_arguments(function: Callable[..., object], unknown: Iterable[str]) -> None:
    """Raise an error for unknown arguments that names the argument probably meant."""
    for name in unknown:
        hint = nearest(name, [a for a in inspect.signature(function).parameters if a != "unknown"])
        raise TypeError(
            f"{function.__name__}() has no argument {name!r}{hint}; solver settings belong in its "
            'spec, as in "loopy-bp(damping=0.5)"'
        )


def check_numbers(temperature: object, time_limit: object) -> None:
    """Refuse a temperature that is not a number, and a time limit that is neither one nor None."""
    number = (int, float, np.number)
    if not isinstance(temperature, number):
        raise TypeError(f"temperature must be a number, got {temperature!r}")
    if time_limit is not None and not isinstance(time_limit, number):
        raise TypeError(f"time_limit must be a number of seconds or None, got {time_limit!r}")


def _check(
    graph: FactorGraph,
    seed: int | None,
    temperature: float,
    time_limit: float | None,
    max_iterations: int | None,
    threads: int | None,
) -> tuple[int | None, int | None, int | None]:
    """Return seed, iterations and threads; refuse these, temperatures and limits out of range."""
    whole_seed, whole_iterations = as_whole(seed), as_whole(max_iterations)
    if seed is not None and whole_seed is None:
        raise TypeError(f"seed must be an integer or None, got {seed!r}")
    if whole_seed is not None and whole_seed < 0:
        raise ValueError(f"seed must not be negative, got {seed}")
    check_numbers(temperature, time_limit)
    if max_iterations is not None and whole_iterations is None:
        raise TypeError(f"max_iterations must be an integer or None, got {max_iterations!r}")
    if not (math.isfinite(temperature) and temperature >= 0):
        raise ValueError(f"temperature must be finite and not negative, got {temperature}")
    if temperature and not graph.resolution <= temperature <= COST_LIMIT:
        raise ValueError(
            f"temperature must be 0, or for this graph from {graph.resolution:.3g} (below, the "
            f"rounding of its costs decides the marginals) to {COST_LIMIT:g}, got {temperature}"
        )
    if time_limit is not None and not time_limit > 0:
        raise ValueError(f"time_limit must be positive seconds, got {time_limit}")
    whole_threads = as_whole(threads)
    if threads is not None and (whole_threads is None or whole_threads < 1):
        raise ValueError(f"threads must be an integer of at least 1 or None, got {threads!r}")
    if whole_iterations is not None and whole_iterations < 1:
        raise ValueError(f"max_iterations must be at least 1, got {max_iterations}")
    return whole_seed, whole_iterations, whole_threads


def _verdict(graph: FactorGraph, run: Run, outcome: Outcome, energy: float) -> tuple[Status, str]:
    """Return the status of a run with a valid outcome, and the reason if it needs one."""
    if outcome.infeasible:
        return Status.INFEASIBLE, ""
    exact = run.temperature == 0
    if exact and math.isfinite(energy):
        if proves(energy, run.lower_bound, run.tolerance_at(energy)):
            return Status.OPTIMAL, ""
        if proves(energy, run.lower_bound, run.absolute_gap):
            return Status.OPTIMAL, f"within the absolute gap of {run.absolute_gap:g}"
    message = ""
    if not math.isfinite(energy):
        clause = "of finite energy was found" if run.best_labels is not None else "was offered"
        message = f"no labelling {clause}"
    elif exact and not run.is_resolved(run.best_energy):
        # The resolution is at most 2^-50 of the magnitude, unless both are tiny.
        tiny = graph.resolution > graph.magnitude * 2.0**-50
        message = (
            f"costs of {graph.magnitude:.1g} in all are too small for a proof: scale them up"
            if tiny
            else f"rounding may change energies by {run.resolution:.1g}, since much larger costs "
            "cancel, so nothing is proved to be optimal"
        )
    elif exact and 0.0 < energy - run.lower_bound <= OPTIMALITY_TOLERANCE * abs(energy):
        gap = energy - run.lower_bound
        message = (
            f"the gap of {gap:.1g} is more than rounding ({run.tolerance_at(energy):.1g}), and so "
            "no proof; absolute_gap accepts one"
        )
    if outcome.converged:
        return Status.CONVERGED, message
    return Status.LIMIT, "; ".join(filter(None, (message, _limit_reached(run, outcome))))


def _limit_reached(run: Run, outcome: Outcome) -> str:
    """Return which limit ended a run that has not converged."""
    if run.max_iterations is not None and outcome.iterations >= run.max_iterations:
        return f"stopped by the run's limit of {counted(run.max_iterations, 'iteration')}"
    if outcome.stopped_by:
        return f"stopped by the solver's own limit: {outcome.stopped_by}"
    if run.time_limit is None:
        return "ended by itself before it converged"
    if run.remaining > 0.0:
        # Also where the time left is too short for a further step.
        return f"ended before it converged, short of the time limit of {run.time_limit:g} s"
    return f"stopped by the time limit of {run.time_limit:g} s"


def _may_begin(method: Solver, run: Run) -> bool:
    """Whether the time limit leaves room for the `Solver.startup_cost` of the method."""
    graph = run.graph
    if run.time_limit is None or method.startup_cost * n_entries(graph) < _CHEAP_START:
        return True
    return run.estimated_seconds(method.startup_cost) <= run.remaining + _OVERRUN


# ------------------------------------------------------------------ outcomes

# Faults in the types and ranges of an outcome are errors of the solver.

_PLAIN_FIELDS: Mapping[str, Any] = {
    "converged": bool,
    "infeasible": bool,
    "unsupported": str,
    "stopped_by": str,
    "iterations": Annotated[int, msgspec.Meta(ge=0, lt=(1 << 63) - 1)],
    "claimed_energy": float | None,
    "log_partition": float | None,
    "log_partition_kind": str | None,
    "diagnostics": dict,
}


def check_outcome(outcome: Outcome, graph: FactorGraph) -> tuple[Outcome, str]:
    """Return an outcome in plain numbers, and a message on its first fault, or an empty one."""
    plain, faults = {}, []
    for name, kind in _PLAIN_FIELDS.items():
        value = getattr(outcome, name)
        try:
            if isinstance(value, np.generic | np.ndarray) and value.ndim == 0:
                value = value.item()
            # Subclasses of float, long doubles and lone surrogates are not plain.
            if isinstance(value, float | np.floating):
                value = float(value)
            elif isinstance(value, str):
                value = str.encode(value, errors="backslashreplace").decode()
            plain[name] = msgspec.convert(value, kind)
        except Exception as problem:  # values may be of any class, whose methods may raise anything
            plain[name] = getattr(Outcome(), name)
            faults.append(f"{name} is {_shown(value)}: {problem}")
    if outcome.marginals is not None:
        faults.append(marginals_fault(outcome.marginals, graph))
    faults.append(partition_fault(plain["log_partition"], plain["log_partition_kind"]))
    return replace(outcome, **plain), next(filter(None, faults), "")


def partition_fault(value: float | None, kind: str | None) -> str:
    """Return a message on a fault of a log-partition or its kind, empty without a fault."""
    if (value is None) != (kind is None) or kind not in (None, *PARTITION_KINDS):
        return (
            f"log_partition is {_shown(value)} and its kind {_shown(kind)}; a value needs a kind, "
            f"one of {', '.join(map(repr, PARTITION_KINDS))}"
        )
    if value is not None and math.isnan(value):
        return f"log_partition is nan, of kind {kind!r}; give a number, or None for both"
    return ""


def marginals_fault(marginals: Any, graph: FactorGraph) -> str:
    """Return a message on a fault of a graph's marginals, empty without a fault."""
    try:
        return shape_fault(marginals, graph) or _values_fault(marginals, graph)
    except Exception as problem:  # values may be of any class, whose methods may raise anything
        return f"marginals cannot be read as numbers: {type(problem).__name__}"


def shape_fault(marginals: Any, graph: FactorGraph) -> str:
    """Return a message on a wrong shape of marginals, empty if the shape is right."""
    sizes = graph.cardinalities
    if graph.n_labels is not None:
        expected = (graph.n_variables, graph.n_labels)
        if not isinstance(marginals, np.ndarray) or marginals.shape != expected:
            actual = marginals.shape if isinstance(marginals, np.ndarray) else _shown(marginals)
            return f"marginals must be a {expected} array, got {actual}"
    else:
        if not isinstance(marginals, list | tuple) or len(marginals) != sizes.size:
            return (
                f"marginals must be a list of {sizes.size} arrays, one a variable, got "
                f"{_shown(marginals)}"
            )
        for i, row in enumerate(marginals):
            if np.shape(row) != (sizes[i],):
                return f"marginals[{i}] must have shape ({sizes[i]},), got {np.shape(row)}"
    return ""


def _values_fault(marginals: Any, graph: FactorGraph) -> str:
    rows = [marginals.ravel()] if isinstance(marginals, np.ndarray) else marginals
    flat = np.concatenate([np.zeros(0), *rows])
    if flat.dtype.kind not in "fiu":
        return f"marginals must be numbers, got an array of {flat.dtype}"
    if not flat.size:
        return ""
    starts = graph.unary_ptr[:-1]
    wrong = ~(np.isfinite(flat) & (flat >= 0))
    if wrong.any():
        i = int(np.searchsorted(graph.unary_ptr, int(wrong.argmax()), side="right")) - 1
        return f"marginals[{i}] = {marginals[i]} must be finite and not negative"
    sums = np.add.reduceat(flat, starts)
    wrong = np.abs(sums - 1.0) > MARGINAL_TOLERANCE
    if wrong.any():
        i = int(wrong.argmax())
        return f"marginals[{i}] = {marginals[i]} must sum to 1, not {float(sums[i])!r}"
    return ""


def _shown(value: Any) -> str:
    """Return a value of any class as text on one line, shortened."""
    try:
        return " ".join(reprlib.repr(value).split())[:80]
    except Exception:  # an integer of too many digits, or an object that raises
        return f"a value of type {type(value).__name__}"
