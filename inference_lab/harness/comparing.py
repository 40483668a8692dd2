"""The comparison harness: every solver on every problem, with one record for each run."""

from __future__ import annotations

import math
import os
import pickle
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, Never

from inference_lab.contract import Solver
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.harness.campaign import (
    Campaign,
    Execution,
    InputError,
    at_least_one,
    rerun_words,
    run_campaign,
)
from inference_lab.harness.inputs import (
    PreparedProblem,
    RunSettings,
    prepare_problems,
    refuse_repeats,
    seed_list,
)
from inference_lab.harness.isolated_run import one_line
from inference_lab.harness.progress import RunProgress
from inference_lab.harness.running import blank, is_warmed_up, run, warmed_up
from inference_lab.problem import Problem, ProblemFamily
from inference_lab.registry.registry import as_solver, is_ours
from inference_lab.registry.sources import ProblemSource
from inference_lab.reporting.comparison import Comparison
from inference_lab.results.json_lines import RecordError
from inference_lab.results.records import TRACE_LIMIT, Record, RecordStore, RunKey
from inference_lab.solving import CLOCKS, check_numbers, refuse_arguments

#: Longest time limit: three years.
_LONGEST = 1e8


class Task(NamedTuple):
    """One run: the indices of its problem and solver, its seed, and the number of the repeat."""

    instance: int
    solver: int
    seed: int
    repeat: int


class ComparisonCampaign(Campaign[Record]):
    """All runs of a comparison, ordered by problem, seed, repeat and solver."""

    def __init__(
        self,
        instances: list[PreparedProblem],
        sources: Sequence[str | Solver],
        seeds: list[int],
        repeats: int,
        settings: RunSettings,
    ) -> None:
        self.instances = instances
        #: The solvers in the form that is sent to other processes.
        self.sources = sources
        self.seeds = seeds
        self.repeats = repeats
        self.settings = settings
        self.solvers = [as_solver(source) for source in sources]
        self._methods = [solver_names(source) for source in sources]
        self.tasks = [
            Task(c, s, seed, repeat)
            for c in range(len(instances))
            for seed in seeds
            for repeat in range(repeats)
            for s in range(len(sources))
        ]
        # Keys are built first, because they refuse problems and solvers that no record can hold.
        key = {(c, s): self._key(c, s) for c in range(len(instances)) for s in range(len(sources))}
        self.keys = [
            key[task.instance, task.solver]._replace(seed=task.seed, repeat=task.repeat)
            for task in self.tasks
        ]

    def _key(self, instance: int, solver: int) -> RunKey:
        """Return the key of a run, with a seed that is replaced later."""
        try:
            return self._blank(Task(instance, solver, max(self.seeds), 0)).checked().key
        except RecordError as problem:
            spec = self.solvers[solver].spec
            name = self.instances[instance].problem.name
            raise InputError(f"no record can be made of {spec!r} on {name!r}: {problem}") from None

    def _blank(self, task: Task) -> Record:
        instance, solver = self.instances[task.instance], self.solvers[task.solver]
        return blank(instance, solver, task.seed, task.repeat, self.settings)

    def in_order(self) -> list[int]:
        """Return the numbers of the tasks in a reproducible order of execution."""
        # The seed is the outermost loop, so that an interrupted comparison covers all problems.
        # Within a seed, problems and the solvers on each are in random order, because a machine
        # that becomes slower or busier must affect all of them alike.
        draw = random.Random(0)
        place = {seed: at for at, seed in enumerate(self.seeds)}
        blocks: dict[tuple[int, int, int], list[int]] = {}
        for number, task in enumerate(self.tasks):
            block = (place[task.seed], task.repeat, task.instance)
            blocks.setdefault(block, []).append(number)
        shuffled = {block: draw.random() for block in sorted(blocks)}
        order = []
        for block in sorted(blocks, key=lambda b: (b[0], b[1], shuffled[b])):
            draw.shuffle(blocks[block])
            order += blocks[block]
        return order

    def call(self, number: int) -> Callable[[], Record]:
        """Return the call that makes a run."""
        task = self.tasks[number]
        instance, source = self.instances[task.instance], self.sources[task.solver]
        return partial(run, instance, source, task.seed, task.repeat, self.settings)

    def blank(self, number: int) -> Record:
        """Return the record of a run before it starts: its request without results."""
        return self._blank(self.tasks[number])

    def warm_up(self, numbers: Sequence[int]) -> Iterator[int]:
        """Warm up the library's own solvers; others are warmed up in their runs."""
        for number in numbers:
            task = self.tasks[number]
            instance, solver = self.instances[task.instance], self.solvers[task.solver]
            if is_ours(solver) and not is_warmed_up(solver, instance, self.settings):
                yield number
                warmed_up(solver, instance, self.settings)

    def methods(self, number: int) -> Collection[str]:
        """Return the names of the solver of a run."""
        return self._methods[self.tasks[number].solver]

    def names(self, number: int) -> tuple[str, str, int]:
        """Return the problem, the solver and the seed of a run."""
        task = self.tasks[number]
        return self.instances[task.instance].problem.name, self.solvers[task.solver].spec, task.seed


def compare(
    problems: ProblemSource | Mapping[str, ProblemSource] | Iterable[ProblemSource],
    solvers: str | Solver | Iterable[str | Solver],
    *,
    seeds: int | Iterable[int] = 1,
    repeats: int = 1,
    time_limit: float | None = None,
    jobs: int = 1,
    executor: Executor | None = None,
    store: str | os.PathLike[str] | RecordStore | None = None,
    rerun: str | Iterable[str] | None = None,
    shard: str | None = None,
    temperature: float = 0.0,
    absolute_gap: float = 0.0,
    threads: int = 1,
    clock: Literal["wall", "cpu"] = "wall",
    data_dir: str | os.PathLike[str] | None = None,
    memory_limit: int | Literal["auto"] | None = "auto",
    trace_limit: int = TRACE_LIMIT,
    isolate: bool = True,
    progress: bool | Callable[[RunProgress[Record]], None] = False,
    **unknown: Never,
) -> Comparison:
    """Run solvers on problems and compare their answers, all evaluated in the same way.

    All problems and solvers are built before the first run. Each solver is first run on small
    graphs with the same kinds of terms, so that neither compilation nor loading of libraries is
    timed, and numerical libraries are limited to one thread.

    Each run has a process of its own, forked from one with all libraries loaded. The status of its
    record is ``error`` if the solver raises, ``crash`` if the process dies, ``memory`` if it
    exceeds its memory, and ``timeout`` if it ignores its time limit (it is killed after 1.5 times
    the limit plus 30 s); the best labelling offered until then is kept. The status is
    ``unsupported`` if the method does not cover the problem.

    Seeds are run one after the other. Within a seed, problems are in random order, and so are the
    solvers on each problem; the order is the same at each call.

    Parameters
    ----------
    problems : spec string, path of a model file, Problem, ProblemFamily, FactorGraph; or several
        A spec may name user code: ``"my_module:problems"``, ``"file.py:make"``. A mapping, or
        pairs of a name and a graph, give the names in tables.
    solvers : spec string or Solver; or several
        A spec may name user code: ``"my_module:Mine(setting=1)"``, ``"file.py:Mine"``.
    seeds : int or iterable of int
        A number N means the seeds 0 to N - 1.
    repeats : int
        Number of times each run is made with the same seed, to measure the spread of timings and
        to check that answers are reproducible.
    time_limit : float, optional
        Seconds a run may take.
    jobs : int
        Number of processes; 1 runs in this one. With more, a script must keep the call under
        ``if __name__ == "__main__":``, since new processes import it.
    executor : concurrent.futures.Executor, optional
        What makes the runs in place of this machine, such as Dask's ``Client.get_executor()``, an
        ``MPIPoolExecutor`` or a pool; it is not shut down. Each thread of its workers makes its
        runs in a spawned process, one at a time, so a worker has as many threads as runs. Calls are
        pickled; a process receives each large problem once. Up to 16 runs, and four more for each
        of these processes, are in flight. The workers need the same code of this library, the files
        and modules that specs name, and under the same path. Not with `jobs` above 1.
    store : path or RecordStore, optional
        File to which each record is appended as soon as its run ends. Runs with a record in it, or
        in an archive ``NAME.jsonl.xz`` beside it, are not made again: the same call after an
        interruption makes the missing runs. Invalid lines are left out with a warning.
    rerun : {"failed", "timeout", "all"} or name of a solver; or several; optional
        Runs to repeat although the store has a record: all that failed (error, crash, memory or
        time limit) or were ``not-installed``, only ``timeout``, or all. The new record counts; the
        earlier one stays for the check that runs with the same seed agree. The name or spec of a
        solver throws away its records of the requested runs, by any code of it, before they are
        made again: use it after an edit that its file does not show, as in a module it imports.
    shard : str, optional
        ``"i/n"``: make only the i-th of n equal shares of the runs, for batch queues. All shards
        may write to one store, or to separate stores that are merged later.
    temperature : float
        0 requests the best labelling; T > 0 marginals of ``exp(-E / T)``.
    absolute_gap : float
        A gap between energy and bound, in the unit of the costs, at which a run ends as `optimal`;
        tables say so. By default only what rounding hides; see `inference_lab.solve`.
    threads : int
        Threads that numerical libraries may use in a run.
    clock : {"wall", "cpu"}
        Clock of the reported seconds: wall time, or processor time, which hardly depends on the
        other load of the machine; see `inference_lab.solve`.
    data_dir : path, optional
        Folder of real data that is not distributed with the package.
    memory_limit : int, "auto" or None
        Bytes of address space that a run may take beyond the loaded libraries; "auto" is the memory
        of the machine (or of its control group) divided by `jobs`; with an `executor`, the memory
        of the machine of the worker divided by the number of its processors.
    trace_limit : int
        Maximum number of trace points in a record: the first, the last, and improvements.
    isolate : bool
        Whether runs have processes of their own. If not, or if the system cannot fork, a run that
        crashes or hangs stops the comparison.
    progress : bool or callable
        True reports on standard error; a callable receives a `RunProgress` at each start and end.
    **unknown
        Refused: settings of a solver belong in its spec, as ``"loopy-bp(damping=0.5)"``.

    Returns
    -------
    Comparison
        The requested runs, including those already in the store; with `shard`, only that share.

    Raises
    ------
    InputError
        If a problem cannot be built, a name is repeated, an argument is out of range, or `store`
        cannot be written or has other content.
    SpecError
        If a solver's spec cannot be used.
    TypeError
        If an argument is unknown, or has the wrong type.
    ExecutorError
        If `executor` fails, or a worker has other code; see `inference_lab.harness.executors`.
    OSError
        If a record cannot be written; earlier records are on the disk.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> c = il.compare(il.Problem("pair", g), "icm", seeds=2)
    >>> [(r.solver, r.seed, r.energy) for r in c.records]
    [('icm', 0, 0.5), ('icm', 1, 0.5)]
    """
    refuse_arguments(compare, unknown)
    check_numbers(temperature, time_limit)
    repeats = at_least_one("repeats", repeats)
    if trace_limit < 2:
        raise InputError(f"trace_limit must be at least 2 points, got {trace_limit}")
    if time_limit is not None and not 0 < time_limit <= _LONGEST:
        raise InputError(
            f"time_limit must be None or seconds above 0, at most {_LONGEST:g}, got {time_limit}"
        )
    if not (math.isfinite(temperature) and temperature >= 0):
        raise InputError(f"temperature must be finite and not negative, got {temperature}")
    if not 0 <= absolute_gap < math.inf:
        raise InputError(f"absolute_gap must be finite and not negative, got {absolute_gap}")
    if clock not in CLOCKS:
        raise InputError(f"clock must be one of {', '.join(CLOCKS)}, got {clock!r}")
    seed_values = seed_list(seeds)
    sources: list[str | Solver] = _as_list(solvers, (str, Solver))
    specs = [as_solver(source).spec for source in sources]
    refuse_repeats("solver", specs)
    execution = Execution(
        jobs=jobs,
        executor=executor,
        rerun=rerun_words(rerun, frozenset().union(*map(solver_names, sources))),
        shard=shard,
        threads=threads,
        memory_limit=memory_limit,
        progress=progress,
    )
    folder = None if data_dir is None else Path(data_dir)
    problem_sources = _as_list(problems, (str, Path, Problem, ProblemFamily, FactorGraph, Mapping))
    instances = [
        instance for source in problem_sources for instance in prepare_problems(source, folder)
    ]
    refuse_repeats("problem", [instance.problem.name for instance in instances])
    settings = RunSettings(
        time_limit=time_limit,
        clock=clock,
        temperature=temperature,
        absolute_gap=float(absolute_gap),
        threads=execution.threads,
        isolated=isolate,
        memory=execution.memory,
        trace_limit=trace_limit,
    )
    plan = ComparisonCampaign(instances, sources, seed_values, repeats, settings)
    if execution.jobs > 1 or execution.executor is not None:
        _check_portable(plan)
    target = store if store is None or isinstance(store, RecordStore) else RecordStore(store)
    records = run_campaign(plan, target, execution)
    remarks = [] if target is None else target.remarks
    return Comparison(records, remarks=remarks)


def solver_names(source: str | Solver) -> frozenset[str]:
    """Return the names of a solver: as it was given, its spec, and its registered name."""
    solver = as_solver(source)
    return frozenset((str(source) if isinstance(source, str) else "", solver.spec, solver.name()))


def _as_list(value: Any, kinds: tuple[type, ...]) -> list[Any]:
    """Return a list of one item or of several; a string is one item, not its letters."""
    return [value] if isinstance(value, kinds) else list(value)


def _check_portable(plan: ComparisonCampaign) -> None:
    """Raise if a solver or problem cannot be sent to another process."""
    named: list[tuple[str, Any]] = [(s.spec, s) for s in plan.solvers]
    named += [(instance.problem.name, instance.problem.info) for instance in plan.instances]
    for name, thing in named:
        try:
            pickle.dumps(thing)
        except Exception as reason:
            raise InputError(
                f"{name!r} cannot be sent to another process ({one_line(reason)}); use jobs=1 "
                "and no executor"
            ) from reason
