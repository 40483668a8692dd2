"""The comparison harness: every solver on every problem, one record a run, one table.

`compare` builds the problems, runs the solvers on them under one clock, and returns a
`Comparison`: the records, and what follows from them (gaps to the best bound known, proofs,
contradictions, aggregates over seeds). Whatever happens in a run ends as its record.
"""

from __future__ import annotations

import math
import os
import pickle
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from inference_lab.contract import Solution, Solver, TracePoint, proves
from inference_lab.factor_graph import FactorGraph, OwnTables
from inference_lab.isolation import Board, End, Ended, can_isolate, isolated, undisturbed
from inference_lab.problem import Problem, ProblemFamily, as_problem
from inference_lab.records import Record, RecordError, RecordStore, jsonable
from inference_lab.registry import as_solver
from inference_lab.spec import SpecError
from inference_lab.workers import Crash, Worker, finished, one_thread, traceback_tail

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

__all__ = [
    "Comparison",
    "InputError",
    "ProblemSummary",
    "Progress",
    "Row",
    "SolverSummary",
    "compare",
    "load_problem",
]

#: A bound above an energy by more than this relative distance is a contradiction, not rounding.
CONTRADICTION_TOLERANCE = 1e-6

#: Cached properties of a graph that several solvers use.
_DERIVED = (
    "arrays",
    "breadth_first_order",
    "components",
    "degrees",
    "has_infinite",
    "is_diagonal",
    "is_forest",
    "n_labels",
)

#: Edges of each kind whose ends make up the graph that solvers are warmed up on.
_WARM_UP_EDGES = 6

#: A run is ended by force after so many times its time limit, and so many seconds.
_WALL_SLACK = 1.5
_WALL_CONSTANT = 30.0

#: Seconds that a warm-up may take, compilation included.
_WARM_UP_LIMIT = 60.0

#: Scores that have fields of their own.
_STANDARD_SCORES = ("pairwise_f", "nmi", "ari", "accuracy")

ProblemSource: TypeAlias = "str | Path | Problem | ProblemFamily | FactorGraph"
_S = TypeVar("_S")


class InputError(ValueError):
    """Something `compare` was given cannot be used; nothing was run. One line says what."""


class Progress(NamedTuple):
    """What a progress callable is told when a run starts (`record` is None) and when it ends."""

    done: int
    total: int
    failed: int
    problem: str
    solver: str
    seed: int
    record: Record | None
    #: Gap in percent of the best energy to the best bound on this problem so far, if known.
    gap_percent: float | None


# ---------------------------------------------------------------------- planning


@dataclass(frozen=True)
class _Case:
    """A problem that is ready to be run on."""

    problem: Problem
    setup_seconds: float
    truth_energy: float | None


class _Task(NamedTuple):
    case: int
    solver: int
    seed: int


def _one_line(problem: BaseException, limit: int = 400) -> str:
    text = " ".join(str(problem).split()) or type(problem).__name__
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _as_list(given: Any, kinds: tuple[type, ...]) -> list[Any]:
    """Return a list of what may be a single thing; a string is one thing, not its letters."""
    return [given] if isinstance(given, kinds) else list(given)


def load_problem(source: ProblemSource, data_dir: Path | None = None) -> Problem:
    """Do `as_problem`, with every failure turned into an `InputError` of one line."""
    if isinstance(source, str) and _names_file(source):
        # Also finds it in the data folder, and says what is there instead.
        source = Path(source)
    try:
        problem = as_problem(source, data_dir)
        if not isinstance(problem, Problem):
            raise TypeError(f"got a {type(problem).__name__}, not a Problem")
        return problem
    except SpecError as reason:
        raise InputError(_one_line(reason)) from reason
    except Exception as reason:
        name = source if isinstance(source, str | Path) else type(source).__name__
        raise InputError(f"problem {str(name)!r}: {_one_line(reason)}") from reason


def _names_file(source: str) -> bool:
    """Whether a string can only be meant as the path of a model file: specs have no such name."""
    path = Path(source)
    meant = (path.suffix != "" or len(path.parts) > 1) and "(" not in source
    return meant and ".py" not in source


def _build(source: ProblemSource, data_dir: Path | None) -> _Case:
    begin = time.perf_counter()
    problem = load_problem(source, data_dir)
    try:
        truth = None if problem.truth is None else float(problem.graph.energy(problem.truth))
        derive(problem.graph)
    except Exception as reason:
        raise InputError(f"problem {problem.name!r}: {_one_line(reason)}") from reason
    return _Case(problem, time.perf_counter() - begin, truth)


def derive(graph: FactorGraph) -> None:
    """Compute what is derived from a graph once and cached, so that no solver pays for it."""
    for name in _DERIVED:
        getattr(graph, name)
    if graph.n_variables:
        graph.energy(np.zeros(graph.n_variables, dtype=np.int64))


def _seeds(seeds: int | Iterable[int]) -> list[int]:
    if isinstance(seeds, bool):
        raise InputError(f"seeds must be a number of seeds or a sequence of them, got {seeds}")
    chosen = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if not chosen:
        raise InputError(f"seeds must name at least one seed, got {seeds!r}")
    for seed in chosen:
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
            raise InputError(f"a seed must be an integer and not negative, got {seed!r}")
    if len(set(chosen)) < len(chosen):
        raise InputError(f"seeds must differ, got {chosen}")
    return [int(seed) for seed in chosen]


def _refuse_repeats(kind: str, names: Sequence[str]) -> None:
    if not names:
        raise InputError(f"no {kind}s are given")
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{kind} {name!r} is given more than once")


# ---------------------------------------------------------------------- one run


def warm_up_graph(graph: FactorGraph) -> FactorGraph:
    """Return a small part of a graph that holds every family of terms the graph has.

    Complexity: linear in the number of edges; the result has at most a few dozen variables.
    """
    chosen: set[int] = {0} if graph.n_variables else set()
    for kind in np.unique(graph.edge_kinds):
        first = np.flatnonzero(graph.edge_kinds == kind)[:_WARM_UP_EDGES]
        chosen.update(int(v) for v in graph.edges[first].ravel())
    factor = None
    if graph.n_factors:
        factor = graph.higher_order(int(np.diff(graph.table_ptr).argmin()))
        chosen.update(factor[0])
    variables = np.array(sorted(chosen), dtype=np.int64)
    number = np.full(graph.n_variables, -1)
    number[variables] = np.arange(variables.size)
    inside = np.flatnonzero((number[graph.edges] >= 0).all(axis=1))
    unary: Any = [graph.unary_of(int(v)) for v in variables]
    if graph.n_labels is not None:
        unary = np.array(unary)
    return FactorGraph.from_terms(
        unary,
        [OwnTables(number[graph.edges[inside]], [graph.edge_table(int(e)) for e in inside])],
        [] if factor is None else [([int(number[v]) for v in factor[0]], factor[1])],
    )


#: What each solver has been warmed up on in this process: solver, families, temperature.
_warm: set[tuple[Any, ...]] = set()


def _warm_up_apart(solver: Solver, graph: FactorGraph, temperature: float) -> None:
    """Warm a solver up, first in a process of its own: only one that survives may do it here.

    Compiled code goes to the disk there, and is loaded from it here, once for all runs.
    """
    if _warmth(solver, graph, temperature) in _warm:
        return
    ended = isolated(_warm_up, solver, graph, temperature, wall_limit=_WARM_UP_LIMIT)
    if ended.end == End.RETURNED:
        with undisturbed():
            _warm_up(solver, graph, temperature)
    else:
        _warm.add(_warmth(solver, graph, temperature))


def _warmth(solver: Solver, graph: FactorGraph, temperature: float) -> tuple[Any, ...]:
    """Return what tells whether a solver has seen the like of a graph."""
    families = (
        tuple(np.unique(graph.edge_kinds).tolist()),
        graph.n_factors > 0,
        graph.n_labels is None,
        graph.has_infinite,
    )
    return (type(solver), solver.spec, families, temperature > 0)


def _warm_up(solver: Solver, graph: FactorGraph, temperature: float) -> None:
    """Run a solver once on a small graph, so that loading and compiling is not timed.

    What goes wrong here goes wrong again in the run itself, and is recorded there.
    """
    from inference_lab.solving import solve

    key = _warmth(solver, graph, temperature)
    if key in _warm:
        return
    _warm.add(key)
    try:
        if solver.supports(graph, temperature) is None:
            solve(warm_up_graph(graph), solver, time_limit=1.0, temperature=temperature)
    except (Exception, SystemExit):
        pass


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _blank(
    case: _Case, solver: Solver, seed: int, time_limit: float | None, temperature: float
) -> Record:
    """Return the record of a run of which nothing is known but what was asked."""
    graph = case.problem.graph
    return Record(
        problem=case.problem.name,
        problem_hash=graph.content_hash,
        n_variables=graph.n_variables,
        n_edges=graph.n_edges,
        n_factors=graph.n_factors,
        n_labels=int(graph.cardinalities.max()) if graph.n_variables else 0,
        optimum=case.problem.optimum,
        optimum_source=case.problem.optimum_source,
        truth_energy=case.truth_energy,
        problem_info=case.problem.info,
        solver=solver.spec,
        solver_name=solver.name(),
        settings=solver.settings(),
        solver_version=solver.version,
        seed=seed,
        time_limit=time_limit,
        temperature=temperature,
        setup_seconds=case.setup_seconds,
        status="error",
        started=_now(),
    )


def _finish(record: Record, problem: Problem, solution: Solution) -> Record:
    scores = {} if solution.labels is None else problem.score(solution.labels)
    return replace(
        record,
        status=solution.status.value,
        message=solution.message,
        energy=float(solution.energy),
        claimed_energy=(
            None if solution.claimed_energy is None else float(solution.claimed_energy)
        ),
        lower_bound=float(solution.lower_bound),
        gap=float(solution.gap),
        **_score_fields(scores),
        seconds=float(solution.seconds),
        compile_seconds=float(solution.compile_seconds),
        iterations=int(solution.iterations),
        log_partition=None if solution.log_partition is None else float(solution.log_partition),
        log_partition_kind=solution.log_partition_kind,
        trace=tuple(solution.trace),
        diagnostics=solution.diagnostics,
        finished=_now(),
    )


def _fail(record: Record, crash: Crash) -> Record:
    return replace(
        record,
        status="error",
        message=crash.message,
        traceback=crash.traceback,
        finished=_now(),
    )


@dataclass(frozen=True)
class Limits:
    """What a run in a process of its own may take.

    Parameters
    ----------
    isolated : bool
        Whether runs have processes of their own at all.
    memory : int or None
        Bytes of address space on top of what is loaded.
    """

    isolated: bool = True
    memory: int | None = None

    def wall(self, time_limit: float | None) -> float | None:
        """Return the seconds of wall time that a run may take, None without a time limit.

        More than it should need, compilation included, which its own clock leaves out, so that only
        a run that does not heed its limit is ended by force.
        """
        return None if time_limit is None else _WALL_SLACK * time_limit + _WALL_CONSTANT


def _run(
    case: _Case,
    solver: Solver,
    seed: int,
    time_limit: float | None,
    temperature: float,
    limits: Limits,
) -> Record:
    """Run a solver on a problem; whatever it does, return the record."""
    record = _blank(case, solver, seed, time_limit, temperature)
    if not (limits.isolated and can_isolate()):
        _warm_up(solver, case.problem.graph, temperature)
        try:
            return _attempt(record, case.problem, solver, None)[0]
        except (Exception, SystemExit) as problem:
            message = f"{type(problem).__name__}: {_one_line(problem)}"
            return _fail(record, Crash(message, traceback_tail(problem)))
    _warm_up_apart(solver, case.problem.graph, temperature)
    record = replace(record, memory_limit=limits.memory)
    board = Board(case.problem.graph.n_variables)
    try:
        ended = isolated(
            _attempt,
            record,
            case.problem,
            solver,
            board,
            wall_limit=limits.wall(time_limit),
            memory_limit=limits.memory,
        )
        if ended.output:
            # What solvers print is for people, and results are on standard output.
            print(ended.output, end="", file=sys.stderr, flush=True)
        if ended.end == End.RETURNED:
            record = _judge(record, case.problem, *ended.value)
        else:
            record = _salvage(record, case.problem, ended, board)
    finally:
        board.close()
    return replace(
        record,
        cpu_seconds=ended.cpu_seconds,
        peak_memory=ended.peak_memory,
        exit_code=ended.exit_code,
    )


def _attempt(
    record: Record, problem: Problem, solver: Solver, board: Board | None
) -> tuple[Record, Any]:
    """Run a solver; return the record and the labels. What it offers is left on the board."""
    from inference_lab.solving import solve

    def tell_bound(point: TracePoint) -> None:
        if board is not None and point.lower_bound > board.bound:
            board.bound = point.lower_bound

    solution = solve(
        problem.graph,
        solver,
        seed=record.seed,
        time_limit=record.time_limit,
        temperature=record.temperature,
        on_offer=None if board is None else tell_bound,
        on_improve=None if board is None else board.write,
    )
    return _finish(record, problem, solution), solution.labels


def _judge(asked: Record, problem: Problem, record: Record, labels: Any) -> Record:
    """Evaluate labels once more, on a graph that no solver could have touched."""
    energy = math.inf if labels is None else float(problem.graph.energy(labels))
    if energy == record.energy:
        return record
    return _fail(
        asked,
        Crash(
            f"the run says that its labelling has energy {record.energy:.9g}, but it has "
            f"{energy:.9g}: the solver changed the graph",
            "",
        ),
    )


def _salvage(record: Record, problem: Problem, ended: Ended, board: Board) -> Record:
    """Return the record of a run that gave no answer, with the best it had offered."""
    status = {End.RAISED: "error"}.get(ended.end, str(ended.end))
    record = replace(
        record,
        status=status,
        message=_one_line(ValueError(ended.message)),
        traceback=ended.traceback,
        lower_bound=board.bound,
        finished=_now(),
    )
    left = board.read()
    if left is None:
        return record
    labels, _, seconds = left
    try:
        energy = float(problem.graph.energy(labels))
    except ValueError:
        # It wrote to memory that was not its own.
        return record
    scores = problem.score(labels)
    return replace(
        record,
        energy=energy,
        gap=energy - board.bound,
        seconds=seconds,
        trace=(TracePoint(seconds, energy, energy, board.bound),),
        **_score_fields(scores),
    )


def _score_fields(scores: Mapping[str, float]) -> dict[str, Any]:
    """Return the fields of a record that scores go to."""
    return {
        **{name: scores.get(name) for name in _STANDARD_SCORES},
        "scores": {name: v for name, v in scores.items() if name not in _STANDARD_SCORES},
    }


#: In a worker: the case that was sent last. Runs come problem by problem.
_held: dict[int, _Case] = {}


def _hold(number: int, case: _Case) -> None:
    derive(case.problem.graph)
    _held.clear()
    _held[number] = case


def _run_held(
    number: int,
    sent: tuple[_Case, ...],
    solver: str | Solver,
    seed: int,
    time_limit: float | None,
    temperature: float,
    limits: Limits,
) -> Record:
    """Do `_run` in a worker, which keeps the last problem it was sent."""
    if sent:
        _hold(number, sent[0])
    return _run(_held[number], as_solver(solver), seed, time_limit, temperature, limits)


# ---------------------------------------------------------------------- many runs


@dataclass
class _Plan:
    cases: list[_Case]
    sources: list[str | Solver]
    solvers: list[Solver]
    seeds: list[int]
    time_limit: float | None
    temperature: float
    limits: Limits
    tasks: list[_Task] = field(init=False)

    def __post_init__(self) -> None:
        """List the runs: problem by problem, seed by seed, the solvers side by side."""
        self.tasks = [
            _Task(c, s, seed)
            for c in range(len(self.cases))
            for seed in self.seeds
            for s in range(len(self.solvers))
        ]

    def here(self, start: Callable[[_Task], None]) -> Iterator[tuple[int, Record]]:
        """Do the runs in this process, one after the other."""
        with one_thread():
            for number, task in enumerate(self.tasks):
                start(task)
                yield (
                    number,
                    _run(
                        self.cases[task.case],
                        self.solvers[task.solver],
                        task.seed,
                        self.time_limit,
                        self.temperature,
                        self.limits,
                    ),
                )

    def in_workers(self, jobs: int, start: Callable[[_Task], None]) -> Iterator[tuple[int, Record]]:
        """Do the runs in `jobs` processes; yield them as they end."""
        for solver in self.sources:
            if not isinstance(solver, str):
                try:
                    pickle.loads(pickle.dumps(solver))
                except Exception as reason:
                    raise InputError(
                        f"solver {solver.spec!r} cannot be sent to another process "
                        f"({_one_line(reason)}); use jobs=1"
                    ) from reason
        bare = FactorGraph.from_factors([], [])
        for case in self.cases:
            try:
                pickle.dumps(replace(case.problem, graph=bare, truth=None))
            except Exception as reason:
                raise InputError(
                    f"problem {case.problem.name!r} cannot be sent to another process "
                    f"({_one_line(reason)}); use jobs=1"
                ) from reason
        workers: list[Worker] = []
        doing: dict[int, int] = {}
        holds: dict[int, int] = {}
        waiting = iter(enumerate(self.tasks))
        try:
            for _ in range(min(jobs, len(self.tasks))):
                workers.append(Worker())
                self._next(workers, -1, waiting, doing, holds, start)
            while doing:
                for worker in finished(workers):
                    w = workers.index(worker)
                    number = doing.pop(w)
                    task = self.tasks[number]
                    answer = worker.result()
                    if isinstance(answer, Crash):
                        holds.pop(w, None)
                        answer = _fail(self._asked(task), answer)
                    yield number, answer
                    self._next(workers, w, waiting, doing, holds, start)
        finally:
            for worker in workers:
                worker.stop()

    def _next(
        self,
        workers: list[Worker],
        w: int,
        waiting: Iterator[tuple[int, _Task]],
        doing: dict[int, int],
        holds: dict[int, int],
        start: Callable[[_Task], None],
    ) -> None:
        """Give worker `w` the next run, with the problem if it does not hold it yet."""
        w %= len(workers)
        number, task = next(waiting, (-1, None))
        if task is None:
            return
        start(task)
        sent = () if holds.get(w) == task.case else (self.cases[task.case],)
        holds[w] = task.case
        doing[w] = number
        workers[w].submit(
            _run_held,
            task.case,
            sent,
            self.sources[task.solver],
            task.seed,
            self.time_limit,
            self.temperature,
            self.limits,
        )

    def _asked(self, task: _Task) -> Record:
        return _blank(
            self.cases[task.case],
            self.solvers[task.solver],
            task.seed,
            self.time_limit,
            self.temperature,
        )


def compare(
    problems: ProblemSource | Iterable[ProblemSource],
    solvers: str | Solver | Iterable[str | Solver],
    *,
    seeds: int | Iterable[int] = 1,
    time_limit: float | None = None,
    jobs: int = 1,
    store: str | os.PathLike[str] | RecordStore | None = None,
    temperature: float = 0.0,
    data_dir: str | os.PathLike[str] | None = None,
    memory_limit: int | None = None,
    isolate: bool = True,
    progress: bool | Callable[[Progress], None] = False,
) -> Comparison:
    """Run solvers on problems and compare what they find, all judged by the same evaluator.

    All problems are built and all solvers made before the first run. Each solver is run once on
    a small part of the problem beforehand, so that neither compilation nor loading of libraries
    is timed, and numerical libraries are kept to one thread.

    Each run has a process of its own, forked from one that has all loaded. One that raises becomes
    a record with status ``error``, one whose process dies ``crash``, one that takes more memory
    than it may ``memory``, one that does not heed its time limit ``timeout`` (it is ended by force
    after half as long again and half a minute); the best labelling that it had offered is kept. One
    that the method does not cover becomes a record with status ``unsupported``.

    Parameters
    ----------
    problems : spec string, path of a model file, Problem, ProblemFamily, FactorGraph; or several
    solvers : spec string or Solver; or several
    seeds : int or iterable of int
        A number N stands for the seeds 0 to N - 1.
    time_limit : float, optional
        Seconds a run may take.
    jobs : int
        Number of processes; 1 runs in this one. More need a script to keep the call under
        ``if __name__ == "__main__":``, since new processes import it.
    store : path or RecordStore, optional
        Where each record is appended the moment its run ends.
    temperature : float
        0 asks for the best labelling; T > 0 for marginals of ``exp(-E / T)``.
    data_dir : path, optional
        Folder of real data that does not travel with the package.
    memory_limit : int, optional
        Bytes of address space that a run may take on top of what is loaded.
    isolate : bool
        Whether runs have processes of their own; without, and on systems that cannot fork, a run
        that crashes or hangs takes the comparison with it.
    progress : bool or callable
        True reports on standard error; a callable is given a `Progress` at each start and end.

    Returns
    -------
    Comparison

    Raises
    ------
    InputError
        If a problem cannot be built, a name is given twice, an argument is out of range, or
        `store` cannot be written or is something else.
    SpecError
        If a solver's spec cannot be used.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> c = il.compare(il.Problem("pair", g), "icm", seeds=2)
    >>> [(r.solver, r.seed, r.energy) for r in c.records]
    [('icm', 0, 0.5), ('icm', 1, 0.5)]
    """
    if isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1:
        raise InputError(f"jobs must be an integer of at least 1, got {jobs!r}")
    if time_limit is not None and not (math.isfinite(time_limit) and time_limit > 0):
        raise InputError(f"time_limit must be positive seconds, got {time_limit}")
    if memory_limit is not None and not memory_limit > 0:
        raise InputError(f"memory_limit must be positive bytes, got {memory_limit}")
    if not (math.isfinite(temperature) and temperature >= 0):
        raise InputError(f"temperature must be finite and not negative, got {temperature}")
    chosen_seeds = _seeds(seeds)
    sources: list[str | Solver] = _as_list(solvers, (str, Solver))
    made = [as_solver(source) for source in sources]
    _refuse_repeats("solver", [solver.spec for solver in made])
    folder = None if data_dir is None else Path(data_dir)
    given = _as_list(problems, (str, Path, Problem, ProblemFamily, FactorGraph))
    cases = [_build(source, folder) for source in given]
    _refuse_repeats("problem", [case.problem.name for case in cases])
    target = store if store is None or isinstance(store, RecordStore) else RecordStore(store)
    if target is not None:
        try:
            target.prepare()
        except (OSError, RecordError) as reason:
            raise InputError(f"cannot keep records: {_one_line(reason)}") from reason

    limits = Limits(isolated=isolate, memory=memory_limit)
    plan = _Plan(cases, sources, made, chosen_seeds, time_limit, temperature, limits)
    total = len(plan.tasks)
    records: dict[int, Record] = {}

    with _reporter(progress) as report:

        def tell(task: _Task, record: Record | None) -> None:
            name = cases[task.case].problem.name
            known = [r for r in records.values() if r.problem == name]
            report(
                Progress(
                    done=len(records),
                    total=total,
                    failed=sum(r.failed for r in records.values()),
                    problem=name,
                    solver=made[task.solver].spec,
                    seed=task.seed,
                    record=record,
                    gap_percent=Comparison(known).problems[0].gap_percent if known else None,
                )
            )

        def start(task: _Task) -> None:
            tell(task, None)

        runs = plan.here(start) if jobs == 1 else plan.in_workers(jobs, start)
        try:
            for number, record in runs:
                if target is not None:
                    target.append(record)
                records[number] = record
                tell(plan.tasks[number], record)
        finally:
            # Closing ends the workers now, and not when the generator is collected.
            runs.close()  # type: ignore[attr-defined]
    return Comparison([records[number] for number in range(total)])


def _reporter(progress: bool | Callable[[Progress], None]) -> Any:
    """Return a context that gives a callable taking `Progress`."""
    from contextlib import nullcontext

    if callable(progress):
        return nullcontext(progress)
    if progress:
        from inference_lab.progress import display

        return display()
    return nullcontext(lambda event: None)


# ---------------------------------------------------------------------- what records say


def gap_percent(energy: float, bound: float) -> float | None:
    """Return ``100 (energy - bound) / max(|energy|, 1e-12)``; None where either is infinite.

    Zero where the two agree as closely as `inference_lab.contract.proves` asks.
    """
    if not (math.isfinite(energy) and math.isfinite(bound)):
        return None
    if proves(energy, bound) and bound - energy <= _slack(energy):
        return 0.0
    return 100.0 * (energy - bound) / max(abs(energy), 1e-12)


def _slack(energy: float) -> float:
    return CONTRADICTION_TOLERANCE * max(1.0, abs(energy))


@dataclass(frozen=True)
class ProblemSummary:
    """What all runs together say about one problem.

    Attributes
    ----------
    name, hash
    n_variables, n_edges, n_factors, n_labels
    best_energy, best_energy_by
        The lowest energy found, and the solver that found it first in the order of the runs.
    best_bound, best_bound_by
        The largest lower bound, the known optimum included, and where it is from.
    optimum, truth_energy
        As in `Record`.
    gap_percent
        Of the best energy to the best bound; None where either is infinite.
    """

    name: str
    hash: str
    n_variables: int
    n_edges: int
    n_factors: int
    n_labels: int
    best_energy: float
    best_energy_by: str
    best_bound: float
    best_bound_by: str
    optimum: float | None
    truth_energy: float | None
    gap_percent: float | None


@dataclass(frozen=True)
class Row:
    """One solver on one problem, over all seeds.

    Attributes
    ----------
    problem, solver : str
    runs, failed, unsupported, answered : int
        Number of runs, of those that ended in an error, that the method does not cover, and that
        gave a labelling of finite energy (or a proof of infeasibility).
    energy, energy_min, energy_max : float
        Median and range over the runs that found a labelling; ``inf`` if none did.
    gap_percent : float or None
        Of the median energy to the best bound known for the problem, by whomever.
    lower_bound : float
        The solver's own, median over the runs.
    proved : int
        Runs whose energy is proved optimal, by their own bound or the best known.
    proved_by : str
        ``"yes"`` if each run's own bound proves its energy, ``"by NAME"`` if another's does,
        ``"k/n"`` if only some are proved, ``"no"``.
    best : int
        Runs that found the best energy known.
    seconds, total_seconds : float
        Median and sum of the solver's time over the runs that neither failed nor were refused.
    accuracy, pairwise_f, nmi, ari : float or None
        Means.
    scores : mapping
        Means of the problem's own scores, over the runs that have them.
    log_partition : float or None
        Median estimate, and in `log_partition_kind` what it is.
    status : str
        Of all runs; ``"3 limit, 1 error"`` where they differ.
    messages : tuple of str
        Why runs failed or were refused, each reason once.
    """

    problem: str
    solver: str
    runs: int
    failed: int
    unsupported: int
    answered: int
    energy: float
    energy_min: float
    energy_max: float
    gap_percent: float | None
    lower_bound: float
    proved: int
    proved_by: str
    best: int
    seconds: float | None
    total_seconds: float
    accuracy: float | None
    pairwise_f: float | None
    nmi: float | None
    ari: float | None
    scores: Mapping[str, float]
    log_partition: float | None
    log_partition_kind: str | None
    status: str
    messages: tuple[str, ...]


@dataclass(frozen=True)
class SolverSummary:
    """One solver over all problems and seeds.

    Attributes
    ----------
    solver : str
    problems, runs : int
    mean_gap_percent : float or None
        Mean over the `gaps` problems on which the gap is known.
    gaps : int
    percent_best : float
        Share of all runs that found the best energy known.
    percent_proved : float
        Share of all runs whose energy is proved optimal by their own bound.
    median_seconds : float or None
        Over all runs that neither failed nor were refused.
    total_seconds : float
    failed, unsupported : int
    """

    solver: str
    problems: int
    runs: int
    mean_gap_percent: float | None
    gaps: int
    percent_best: float
    percent_proved: float
    median_seconds: float | None
    total_seconds: float
    failed: int
    unsupported: int


def _mean(values: Iterable[float | None]) -> float | None:
    present = [v for v in values if v is not None and not math.isnan(v)]
    return statistics.fmean(present) if present else None


def _mean_scores(records: list[Record]) -> dict[str, float]:
    names = dict.fromkeys(name for record in records for name in record.scores)
    means = {}
    for name in names:
        given = [r.scores[name] for r in records if isinstance(r.scores.get(name), int | float)]
        mean = _mean(given)
        if mean is not None:
            means[name] = mean
    return means


def _median(values: Iterable[float]) -> float | None:
    present = list(values)
    return float(statistics.median(present)) if present else None


def _grouped(records: Iterable[Record], key: Callable[[Record], _S]) -> dict[_S, list[Record]]:
    groups: dict[_S, list[Record]] = {}
    for record in records:
        groups.setdefault(key(record), []).append(record)
    return groups


class Comparison:
    """Records of runs, and what follows from them.

    Parameters
    ----------
    records : iterable of Record
        Of `compare`, or read from one or several stores.

    Attributes
    ----------
    records : list of Record
    alarms : list of str
        Contradictions: a bound above an energy, or a claim that differs from the evaluation.
        A comparison with alarms must not be believed before they are explained.
    problems : list of ProblemSummary
    rows : list of Row
        One a problem and solver.
    solvers : list of SolverSummary

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> c = il.compare([il.Problem("pair", g, optimum=0.5)], ["icm"])
    >>> (row,) = c.rows
    >>> row.energy, row.gap_percent, row.proved_by
    (0.5, 0.0, 'by known optimum')
    """

    def __init__(self, records: Iterable[Record]) -> None:
        self.records = list(records)

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self.records)

    def __repr__(self) -> str:
        """Return one line with the sizes."""
        return (
            f"Comparison({len(self._by_problem)} problems x {len(self._solver_specs)} solvers, "
            f"{len(self.records)} runs)"
        )

    @cached_property
    def _by_problem(self) -> dict[tuple[str, str], list[Record]]:
        return _grouped(self.records, lambda r: (r.problem, r.problem_hash))

    @cached_property
    def _solver_specs(self) -> list[str]:
        return list(dict.fromkeys(r.solver for r in self.records))

    def _short(self, spec: str) -> str:
        """Return the name of a solver, or its whole spec where the name is not enough."""
        name = spec.partition("(")[0]
        same = [other for other in self._solver_specs if other.partition("(")[0] == name]
        return name if len(same) == 1 else spec

    @cached_property
    def problems(self) -> list[ProblemSummary]:
        """What all runs together say about each problem, in the order of the runs."""
        names = [name for name, _ in self._by_problem]
        summaries = []
        for (name, digest), records in self._by_problem.items():
            first = records[0]
            energies = [(r.energy, r.solver) for r in records if math.isfinite(r.energy)]
            energy, energy_by = min(energies, key=lambda e: e[0], default=(math.inf, ""))
            bounds = [(r.lower_bound, self._short(r.solver)) for r in records]
            if first.optimum is not None:
                bounds.insert(0, (first.optimum, "known optimum"))
            bound, bound_by = max(bounds, key=lambda b: b[0])
            summaries.append(
                ProblemSummary(
                    name=name if names.count(name) == 1 else f"{name} [{digest[:8]}]",
                    hash=digest,
                    n_variables=first.n_variables,
                    n_edges=first.n_edges,
                    n_factors=first.n_factors,
                    n_labels=first.n_labels,
                    best_energy=energy,
                    best_energy_by=self._short(energy_by),
                    best_bound=bound,
                    best_bound_by=bound_by if bound > -math.inf else "",
                    optimum=first.optimum,
                    truth_energy=first.truth_energy,
                    gap_percent=gap_percent(energy, bound),
                )
            )
        return summaries

    @cached_property
    def rows(self) -> list[Row]:
        """One row a problem and solver, aggregated over seeds."""
        return [
            self._row(summary, group)
            for summary, records in zip(self.problems, self._by_problem.values(), strict=True)
            for group in _grouped(records, lambda r: r.solver).values()
        ]

    def _row(self, problem: ProblemSummary, records: list[Record]) -> Row:
        found = [r.energy for r in records if math.isfinite(r.energy)]
        energy = _median(found)
        unsupported = sum(r.status == "unsupported" for r in records)
        timed = [r.seconds for r in records if r.status != "unsupported" and not r.failed]
        proofs = [self._proof(r, problem) for r in records]
        statuses = _grouped(records, lambda r: r.status)
        estimates = [r.log_partition for r in records if r.log_partition is not None]
        return Row(
            problem=problem.name,
            solver=records[0].solver,
            runs=len(records),
            failed=sum(r.failed for r in records),
            unsupported=unsupported,
            answered=sum(r.answered for r in records),
            energy=math.inf if energy is None else energy,
            energy_min=min(found, default=math.inf),
            energy_max=max(found, default=math.inf),
            gap_percent=None if energy is None else gap_percent(energy, problem.best_bound),
            # The lower of the two middle ones: the mean of -inf and inf would be no bound.
            lower_bound=float(statistics.median_low(r.lower_bound for r in records)),
            proved=len(proofs) - proofs.count("no"),
            proved_by=(
                proofs[0]
                if len(set(proofs)) == 1
                else f"{len(proofs) - proofs.count('no')}/{len(proofs)}"
                if "no" in proofs
                else next(p for p in proofs if p != "yes")
            ),
            best=sum(self._is_best(r, problem) for r in records),
            seconds=_median(timed),
            total_seconds=math.fsum(timed),
            accuracy=_mean(r.accuracy for r in records),
            pairwise_f=_mean(r.pairwise_f for r in records),
            nmi=_mean(r.nmi for r in records),
            ari=_mean(r.ari for r in records),
            scores=_mean_scores(records),
            log_partition=_median(estimates),
            log_partition_kind=next((r.log_partition_kind for r in records if estimates), None),
            status=(
                records[0].status
                if len(statuses) == 1
                else ", ".join(f"{len(group)} {status}" for status, group in statuses.items())
            ),
            messages=tuple(
                dict.fromkeys(r.message for r in records if r.message and not _solved(r))
            ),
        )

    def _proof(self, record: Record, problem: ProblemSummary) -> str:
        """Return ``"yes"``, ``"by NAME"`` or ``"no"``: whose bound proves the run's answer."""
        if record.status == "infeasible":
            return "yes"
        if record.lower_bound > record.energy + _slack(record.energy):
            return "no"
        if proves(record.energy, record.lower_bound):
            return "yes"
        beaten = problem.best_bound > record.energy + _slack(record.energy)
        if proves(record.energy, problem.best_bound) and not beaten:
            return f"by {problem.best_bound_by}"
        return "no"

    def _is_best(self, record: Record, problem: ProblemSummary) -> bool:
        if problem.best_energy == math.inf:
            return record.status == "infeasible"
        return proves(record.energy, problem.best_energy)

    @cached_property
    def solvers(self) -> list[SolverSummary]:
        """One summary a solver over all problems and seeds."""
        summaries = []
        groups = _grouped(self.records, lambda r: r.solver)
        by_key = {
            (key, solver): summary
            for key, summary in zip(self._by_problem, self.problems, strict=True)
            for solver in groups
        }
        for solver, records in groups.items():
            rows = [row for row in self.rows if row.solver == solver]
            gaps = [row.gap_percent for row in rows if row.gap_percent is not None]
            timed = [r.seconds for r in records if r.status != "unsupported" and not r.failed]
            own = [
                self._proof(r, by_key[(r.problem, r.problem_hash), solver]) == "yes"
                for r in records
            ]
            summaries.append(
                SolverSummary(
                    solver=solver,
                    problems=len(rows),
                    runs=len(records),
                    mean_gap_percent=_mean(gaps),
                    gaps=len(gaps),
                    percent_best=100.0 * sum(row.best for row in rows) / len(records),
                    percent_proved=100.0 * sum(own) / len(records),
                    median_seconds=_median(timed),
                    total_seconds=math.fsum(timed),
                    failed=sum(r.failed for r in records),
                    unsupported=sum(row.unsupported for row in rows),
                )
            )
        return summaries

    @cached_property
    def alarms(self) -> list[str]:
        """Contradictions between the runs, each a sentence; empty if all is well."""
        alarms = []
        for problem, records in zip(self.problems, self._by_problem.values(), strict=True):
            limit = problem.best_energy + _slack(problem.best_energy)
            for solver, group in _grouped(records, lambda r: r.solver).items():
                bound = max(r.lower_bound for r in group)
                if math.isfinite(problem.best_energy) and bound > limit:
                    said = (
                        "says that no labelling is possible"
                        if bound == math.inf
                        else f"gives the lower bound {bound:.9g}"
                    )
                    alarms.append(
                        f"{problem.name}: {solver} {said}, but {problem.best_energy_by} found "
                        f"a labelling of energy {problem.best_energy:.9g}"
                    )
                for record in group:
                    claim = record.claimed_energy
                    if claim is None or claim == record.energy:
                        continue
                    if not abs(claim - record.energy) <= _slack(record.energy):
                        alarms.append(
                            f"{problem.name}: {solver} (seed {record.seed}) claims the energy "
                            f"{claim:.9g}, but its labelling evaluates to {record.energy:.9g}"
                        )
                        break
            optimum = problem.optimum
            if optimum is not None and math.isfinite(problem.best_energy) and optimum > limit:
                source = f" ({records[0].optimum_source})" if records[0].optimum_source else ""
                alarms.append(
                    f"{problem.name}: the known optimum {optimum:.9g}{source} is above the energy "
                    f"{problem.best_energy:.9g} that {problem.best_energy_by} found"
                )
            bounded = [r for r in records if optimum is not None and math.isfinite(optimum)]
            for record in bounded:
                if optimum is not None and record.lower_bound > optimum + _slack(optimum):
                    if record.lower_bound > limit and math.isfinite(problem.best_energy):
                        continue  # said above
                    alarms.append(
                        f"{problem.name}: {record.solver} gives the lower bound "
                        f"{record.lower_bound:.9g}, above the known optimum {optimum:.9g}"
                    )
                    break
        return alarms

    @cached_property
    def frame(self) -> pd.DataFrame:
        """All runs as a pandas DataFrame, one row a run.

        The scalar fields of `Record`, and from the comparison ``best_bound`` of the problem,
        ``gap_percent`` to it, and ``proved`` (``"yes"``, ``"by NAME"``, ``"no"``).
        """
        import pandas as pd

        summary = dict(zip(self._by_problem, self.problems, strict=True))
        left_out = {"settings", "scores", "problem_info", "diagnostics", "environment", "trace"}
        lines = []
        for record in self.records:
            problem = summary[record.problem, record.problem_hash]
            line = {k: v for k, v in vars(record).items() if k not in left_out}
            line["best_bound"] = problem.best_bound
            line["gap_percent"] = gap_percent(record.energy, problem.best_bound)
            line["proved"] = self._proof(record, problem)
            lines.append(line)
        names = [name for name in Record.__dataclass_fields__ if name not in left_out]
        frame = pd.DataFrame(lines, columns=[*names, "best_bound", "gap_percent", "proved"])
        numbers = [
            name
            for name, f in Record.__dataclass_fields__.items()
            if name in frame and str(f.type) in ("float", "float | None")
        ]
        kinds = dict.fromkeys([*numbers, "best_bound", "gap_percent"], "float64")
        return frame.astype(kinds)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as strict JSON holds it: alarms, summaries, rows and records."""
        return {
            "alarms": list(self.alarms),
            "problems": [jsonable(vars(p)) for p in self.problems],
            "rows": [jsonable(vars(row)) for row in self.rows],
            "solvers": [jsonable(vars(s)) for s in self.solvers],
            "records": [record.as_dict() for record in self.records],
        }

    def table(self, width: int | None = None) -> Table:
        """Return the comparison as a rich table: one block a problem, then one over solvers.

        Parameters
        ----------
        width : int, optional
            Characters there is room for; where they do not suffice for all columns, the pairwise
            F and the solvers' own bounds are left out.
        """
        from inference_lab.tables import rich_table

        return rich_table(self, width)

    def to_text(self, width: int | None = None) -> str:
        """Return `table` as plain text; as wide as it takes, or fitted into `width`."""
        from inference_lab.tables import plain_text

        return plain_text(self, width)

    def __str__(self) -> str:
        """Return `to_text`."""
        return self.to_text()

    def to_markdown(self) -> str:
        """Return the comparison as Markdown: one table a problem, then one over solvers."""
        from inference_lab.tables import markdown

        return markdown(self)

    def to_csv(self) -> str:
        """Return `rows` as CSV, one line a problem and solver."""
        from inference_lab.tables import csv_text

        return csv_text(self)

    def save(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write the comparison to a folder, which is made if it is missing.

        ``runs.jsonl``
            All records. A file that is there is appended to, and records it already holds are
            not written again, so nothing that was recorded earlier is lost.
        ``runs.csv``
            `frame`: one line a run of this comparison.
        ``table.csv``, ``table.md``
            `to_csv` and `to_markdown`.

        Returns
        -------
        list of Path
            The four files.

        Raises
        ------
        OSError
            If a file cannot be written.
        RecordError
            If ``runs.jsonl`` is there and is something else.
        """
        root = Path(folder)
        root.mkdir(parents=True, exist_ok=True)
        store = RecordStore(root / "runs.jsonl")
        store.prepare()
        held = {record.id for record in store}
        for record in self.records:
            if record.id not in held:
                store.append(record)
        paths = [store.path, root / "runs.csv", root / "table.csv", root / "table.md"]
        texts = [self.frame.to_csv(index=False), self.to_csv(), self.to_markdown()]
        for path, text in zip(paths[1:], texts, strict=True):
            # Written aside and moved, so that an interrupted save leaves no half a file.
            aside = path.with_name(f".{path.name}.{os.getpid()}")
            aside.write_text(text, encoding="utf-8", newline="")
            aside.replace(path)
        return paths


def _solved(record: Record) -> bool:
    refused = record.status in ("unsupported", "infeasible")
    return not (refused or record.failed) and math.isfinite(record.energy)
