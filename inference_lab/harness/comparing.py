"""The comparison harness: every solver on every problem, one record a run.

`compare` builds the problems, runs the solvers on them under one clock, and returns a
`Comparison` of the records. Whatever happens in a run ends as its record; runs that a store holds
are not run again.
"""

from __future__ import annotations

import math
import os
import pickle
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from inference_lab.contract import Solver
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.harness.executors import Call, executor
from inference_lab.harness.folder import Planned, note_plan
from inference_lab.harness.planning import (
    InputError,
    Plan,
    ProblemSource,
    Settings,
    Shard,
    build_cases,
    one_line,
    refuse_repeats,
    seed_list,
)
from inference_lab.harness.progress import Progress
from inference_lab.harness.running import blank, crashed, run
from inference_lab.problem import Problem, ProblemFamily
from inference_lab.processes.workers import Crash
from inference_lab.registry.registry import as_solver
from inference_lab.reporting.comparison import Comparison
from inference_lab.results.findings import gap_percent
from inference_lab.results.records import Record, RecordError, RecordStore, RunKey, physical_memory

__all__ = ["RERUN", "compare"]

#: Longest time limit: three years.
_LONGEST = 1e8

#: Which of the runs that have records may be run again.
RERUN = ("failed", "timeout", "all")


def compare(
    problems: ProblemSource | Iterable[ProblemSource],
    solvers: str | Solver | Iterable[str | Solver],
    *,
    seeds: int | Iterable[int] = 1,
    repeats: int = 1,
    time_limit: float | None = None,
    jobs: int = 1,
    cluster: str | None = None,
    store: str | os.PathLike[str] | RecordStore | None = None,
    rerun: Literal["failed", "timeout", "all"] | None = None,
    shard: str | None = None,
    temperature: float = 0.0,
    threads: int = 1,
    data_dir: str | os.PathLike[str] | None = None,
    memory_limit: int | Literal["auto"] | None = "auto",
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

    Runs are made seed by seed; within a seed problems come in random order, and on each the
    solvers in random order, the same at each call.

    Parameters
    ----------
    problems : spec string, path of a model file, Problem, ProblemFamily, FactorGraph; or several
        A spec may name one's own, or a list of them: ``"my_module:problems"``, ``"file.py:make"``.
    solvers : spec string or Solver; or several
        A spec may name one's own: ``"my_module:Mine(setting=1)"``, ``"file.py:Mine"``.
    seeds : int or iterable of int
        A number N stands for the seeds 0 to N - 1.
    repeats : int
        How many times each run is made, with the same seed: for timings, and to see whether the
        answers are the same.
    time_limit : float, optional
        Seconds a run may take.
    jobs : int
        Number of processes; 1 runs in this one. More need a script to keep the call under
        ``if __name__ == "__main__":``, since new processes import it.
    cluster : str, optional
        Address of the scheduler of a Dask cluster that makes the runs instead, such as
        ``tcp://head:8786``. Its workers need the same versions, and `jobs` is ignored.
    store : path or RecordStore, optional
        Where each record is appended the moment its run ends, packed if its name ends in ``.gz``.
        Runs of which it holds a record already are not made again: the same call after an
        interruption does what is missing. What was planned is noted in a file beside it,
        ``NAME.plan.jsonl``; lines that are no records are moved to ``NAME.rejected.jsonl``. While
        another comparison is adding runs to it, this one waits, unless both are shards of the same.
    rerun : {"failed", "timeout", "all"}, optional
        Runs to make again although the store has a record: those that ended in an error, a crash,
        or for want of memory or time; only the last; all. The new record counts.
    shard : str, optional
        ``"i/n"``: make only the i-th of n equal shares of the runs, for batch queues. All shards
        may write to one store, or to their own, to be merged.
    temperature : float
        0 asks for the best labelling; T > 0 for marginals of ``exp(-E / T)``.
    threads : int
        Threads that numerical libraries may use in a run.
    data_dir : path, optional
        Folder of real data that does not travel with the package.
    memory_limit : int, "auto" or None
        Bytes of address space that a run may take on top of what is loaded; "auto" is the memory
        of the machine (or of its control group) divided by `jobs`, and no limit on a cluster.
    isolate : bool
        Whether runs have processes of their own; without, and on systems that cannot fork, a run
        that crashes or hangs takes the comparison with it.
    progress : bool or callable
        True reports on standard error; a callable is given a `Progress` at each start and end.

    Returns
    -------
    Comparison
        Of the runs that were asked for: those of the store first, the shard only with `shard`.

    Raises
    ------
    InputError
        If a problem cannot be built, a name is given twice, an argument is out of range, or
        `store` cannot be written or is something else.
    SpecError
        If a solver's spec cannot be used.
    ClusterError
        If the cluster cannot be reached.
    OSError
        If a record cannot be written; those before are on the disk.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> c = il.compare(il.Problem("pair", g), "icm", seeds=2)
    >>> [(r.solver, r.seed, r.energy) for r in c.records]
    [('icm', 0, 0.5), ('icm', 1, 0.5)]
    """
    for name, value in (("jobs", jobs), ("repeats", repeats), ("threads", threads)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"{name} must be an integer of at least 1, got {value!r}")
    if time_limit is not None and not 0 < time_limit <= _LONGEST:
        raise InputError(
            f"time_limit must be None or seconds above 0, at most {_LONGEST:g}, got {time_limit}"
        )
    if memory_limit not in (None, "auto") and not (
        isinstance(memory_limit, int) and memory_limit > 0
    ):
        raise InputError(f"memory_limit must be positive bytes, 'auto' or None, got {memory_limit}")
    if not (math.isfinite(temperature) and temperature >= 0):
        raise InputError(f"temperature must be finite and not negative, got {temperature}")
    if rerun is not None and rerun not in RERUN:
        raise InputError(f"rerun must be one of {', '.join(RERUN)}, got {rerun!r}")
    chosen_seeds = seed_list(seeds)
    share = None if shard is None else Shard.parse(shard)
    sources: list[str | Solver] = _as_list(solvers, (str, Solver))
    made = [as_solver(source) for source in sources]
    refuse_repeats("solver", [solver.spec for solver in made])
    folder = None if data_dir is None else Path(data_dir)
    given = _as_list(problems, (str, Path, Problem, ProblemFamily, FactorGraph))
    cases = [case for source in given for case in build_cases(source, folder)]
    refuse_repeats("problem", [case.problem.name for case in cases])
    settings = Settings(
        time_limit=time_limit,
        temperature=temperature,
        threads=threads,
        isolated=isolate,
        memory=_memory(memory_limit, jobs, cluster),
    )
    plan = Plan(cases, made, chosen_seeds, repeats, settings)
    target = store if store is None or isinstance(store, RecordStore) else RecordStore(store)
    _check_recordable(plan)
    kept: dict[RunKey, Record] = {}
    with ExitStack() as stack:
        if target is not None:
            try:
                noted = Planned.of(plan)
                part = None if share is None else (f"{noted.id}/{share.count}", share.index)
                stack.enter_context(target.alone(part))
                kept = {record.key: record for record in target.prepare()}
                note_plan(target, noted)
            except (OSError, RecordError) as reason:
                raise InputError(f"cannot keep records: {one_line(reason)}") from reason

        asked = plan.in_order(share)
        missing = list(plan.missing(asked, kept, rerun))
        again = set(missing)
        records = {
            number: kept[plan.key(plan.tasks[number])] for number in asked if number not in again
        }
        watch = _Watch(plan, len(asked), records)
        runs = _runs(plan, sources, missing, jobs, cluster)
        report = stack.enter_context(_reporter(progress))
        it = stack.enter_context(closing(runs(lambda n: report(watch.event(n, None)))))
        for number, record in it:
            if target is not None:
                target.append(record)
            records[number] = record
            report(watch.event(number, record))
    remarks = [] if target is None else target.remarks
    return Comparison([records[number] for number in sorted(records)], remarks=remarks)


def _as_list(given: Any, kinds: tuple[type, ...]) -> list[Any]:
    """Return a list of what may be a single thing; a string is one thing, not its letters."""
    return [given] if isinstance(given, kinds) else list(given)


def _memory(limit: int | Literal["auto"] | None, jobs: int, cluster: str | None) -> int | None:
    """Return the bytes that a run may take."""
    if limit != "auto":
        return limit
    there = None if cluster is not None else physical_memory()
    return None if there is None else there // jobs


def _runs(
    plan: Plan,
    sources: list[str | Solver],
    missing: list[int],
    jobs: int,
    cluster: str | None,
) -> Callable[[Callable[[int], None]], Generator[tuple[int, Record], None, None]]:
    """Return what makes the missing runs and yields their records as they end.

    Raises
    ------
    InputError
        If something cannot be sent to where the runs are made.
    """
    if jobs > 1 or cluster is not None:
        _check_portable(plan, sources)
    calls = (
        Call(
            number,
            run,
            task.case,
            plan.cases[task.case],
            (sources[task.solver], task.seed, task.repeat, plan.settings),
        )
        for number in missing
        for task in [plan.tasks[number]]
    )
    here = executor(jobs, cluster, plan.settings.threads)

    def make(start: Callable[[int], None]) -> Generator[tuple[int, Record], None, None]:
        # Nothing is started, here or elsewhere, where nothing is missing.
        for number, answer in here.run(calls, start) if missing else ():
            if isinstance(answer, Crash):
                task = plan.tasks[number]
                case, solver = plan.cases[task.case], plan.solvers[task.solver]
                asked = blank(case, solver, task.seed, task.repeat, plan.settings)
                answer = crashed(asked, answer)
            yield number, answer

    return make


def _check_recordable(plan: Plan) -> None:
    """Refuse problems and solvers of which no record could be made."""
    for number in range(max(len(plan.cases), len(plan.solvers))):
        case = plan.cases[min(number, len(plan.cases) - 1)]
        solver = plan.solvers[min(number, len(plan.solvers) - 1)]
        record = blank(case, solver, max(plan.seeds), 0, plan.settings)
        try:
            if Record.from_json(record.to_json()).key == record.key:
                continue
            reason = "a name is too long, or holds half a character"
        except RecordError as problem:
            reason = str(problem)
        raise InputError(
            f"no record can be made of {solver.spec!r} on {case.problem.name!r}: {reason}"
        )


def _check_portable(plan: Plan, sources: list[str | Solver]) -> None:
    """Refuse what cannot be sent to another process."""
    for source in sources:
        if not isinstance(source, str):
            try:
                pickle.loads(pickle.dumps(source))
            except Exception as reason:
                raise InputError(
                    f"solver {source.spec!r} cannot be sent to another process "
                    f"({one_line(reason)}); use jobs=1"
                ) from reason
    bare = FactorGraph.from_factors([], [])
    for case in plan.cases:
        try:
            pickle.dumps(replace(case.problem, graph=bare, truth=None))
        except Exception as reason:
            raise InputError(
                f"problem {case.problem.name!r} cannot be sent to another process "
                f"({one_line(reason)}); use jobs=1"
            ) from reason


class _Watch:
    """What progress is reported from: counts, and the best energy and bound of each problem."""

    def __init__(self, plan: Plan, total: int, records: dict[int, Record]) -> None:
        self.plan = plan
        self.total = total
        self.done = self.failed = 0
        self.best: dict[str, float] = {}
        self.bound = {
            case.problem.name: -math.inf if case.problem.optimum is None else case.problem.optimum
            for case in plan.cases
        }
        for record in records.values():
            self._count(record)

    def _count(self, record: Record) -> None:
        name = record.problem
        self.done += 1
        self.failed += record.failed
        self.best[name] = min(self.best.get(name, math.inf), record.energy)
        self.bound[name] = max(self.bound[name], record.lower_bound)

    def event(self, number: int, record: Record | None) -> Progress:
        """Return what is reported when a run starts, or ends with a record."""
        if record is not None:
            self._count(record)
        task = self.plan.tasks[number]
        name = self.plan.cases[task.case].problem.name
        return Progress(
            done=self.done,
            total=self.total,
            failed=self.failed,
            problem=name,
            solver=self.plan.solvers[task.solver].spec,
            seed=task.seed,
            record=record,
            gap_percent=gap_percent(self.best.get(name, math.inf), self.bound[name]),
        )


def _reporter(
    progress: bool | Callable[[Progress], None],
) -> AbstractContextManager[Callable[[Progress], None]]:
    """Return a context that gives a callable taking `Progress`."""
    if callable(progress):
        return nullcontext(progress)
    if progress:
        from inference_lab.harness.progress import display

        return display()
    return nullcontext(lambda event: None)
