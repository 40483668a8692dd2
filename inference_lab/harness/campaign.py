"""Campaigns: sets of tasks that each leave a record, also on failure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Generic, Literal, TypeVar

from inference_lab.formatting import nearest
from inference_lab.harness.executors import ExecutorError, through_executor
from inference_lab.harness.isolated_run import crashed, one_line
from inference_lab.harness.progress import RunProgress, reporter
from inference_lab.processes.memory import physical_memory
from inference_lab.processes.shared_objects import Lack, Parcel, Sender, call_parcel
from inference_lab.processes.workers import Crash, Worker, finished, limited_threads
from inference_lab.results.clustering_records import FitKey
from inference_lab.results.json_lines import RecordError
from inference_lab.results.line_store import LineStore
from inference_lab.results.records import RunKey, RunRecord
from inference_lab.specs.whole_numbers import as_whole

_R = TypeVar("_R", bound=RunRecord)
_T = TypeVar("_T")

#: Words of `rerun` for runs to make again, beside the names of solvers.
RERUN = ("failed", "timeout", "all")


class InputError(ValueError):
    """Error for an input that cannot be used, raised before any run, with a one-line message."""


def rerun_words(rerun: str | Iterable[str] | None, methods: Collection[str]) -> tuple[str, ...]:
    """Return `rerun` as a tuple; raise unless each is one of `RERUN` or a name of a method."""
    words = (rerun,) if isinstance(rerun, str) else tuple(rerun or ())
    for word in words:
        if word not in RERUN and word not in methods:
            hint = nearest(str(word), (*RERUN, *methods))
            raise InputError(
                f"rerun must be one of {', '.join(RERUN)}, or name a solver of these runs, "
                f"got {word!r}{hint}"
            )
    return words


def parse_shard(text: str) -> tuple[int, int]:
    """Parse ``i/n``, the i-th of n equal shares of the runs, for queues of batch jobs."""
    index, _, count = text.partition("/")
    digits = text.isascii() and index.isdecimal() and count.isdecimal()
    if digits and 1 <= int(index) <= int(count):
        return int(index), int(count)
    raise InputError(f"a shard is given as i/n with 1 <= i <= n, such as 2/8, got {text!r}")


def share_of(shard: tuple[int, int], items: Sequence[_T]) -> Sequence[_T]:
    """Return every n-th item of a list, from the i-th on."""
    return items[shard[0] - 1 :: shard[1]]


@dataclass(frozen=True, kw_only=True)
class Execution:
    """Arguments for the execution of a campaign, as in `inference_lab.compare`."""

    jobs: int = 1
    #: What makes the runs in place of processes here, see `harness.executors`.
    executor: Executor | None = None
    #: Words of `RERUN` and names of methods, see `rerun_words`.
    rerun: tuple[str, ...] = ()
    shard: str | None = None
    threads: int = 1
    memory_limit: int | Literal["auto"] | None = "auto"
    progress: bool | Callable[[RunProgress[Any]], None] = False

    def __post_init__(self) -> None:
        """Check the arguments, before any run."""
        for name in ("jobs", "threads"):
            object.__setattr__(self, name, at_least_one(name, getattr(self, name)))
        if self.executor is not None:
            if not callable(getattr(self.executor, "submit", None)):
                raise InputError(
                    "executor must have the interface of concurrent.futures.Executor, got "
                    f"{type(self.executor).__name__}"
                )
            if self.jobs > 1:
                raise InputError(
                    "jobs is the number of processes of this machine; with an executor, its "
                    f"workers make the runs: leave jobs at 1, got {self.jobs}"
                )
        limit = self.memory_limit
        if limit is not None and limit != "auto":
            size = as_whole(limit)
            if size is None or size < 1:
                raise InputError(
                    "memory_limit must be a whole number of bytes of at least 1, 'auto' or None, "
                    f"got {limit!r}"
                )
            object.__setattr__(self, "memory_limit", size)
        if self.shard is not None:
            parse_shard(self.shard)

    @property
    def memory(self) -> int | Literal["auto"] | None:
        """Bytes that a run may take, None without limit, or "auto" for a share of its machine."""
        if self.memory_limit != "auto" or self.executor is not None:
            return self.memory_limit
        return physical_memory() // self.jobs

    def asks_for(self, record: RunRecord | None, methods: Collection[str]) -> bool:
        """Whether a task is to be run, given its record and the names of its method."""
        if record is None or "all" in self.rerun or self.throws_away(methods):
            return True
        again = record.failed or record.status == "not-installed"
        return ("failed" in self.rerun and again) or record.status in self.rerun

    def throws_away(self, methods: Collection[str]) -> bool:
        """Whether the records of a method, given by its names, are discarded before its runs."""
        return not set(self.rerun).isdisjoint(set(methods).difference(RERUN))


def at_least_one(name: str, value: object) -> int:
    """Return the whole number of at least 1 that a value holds; raise an error for others."""
    number = as_whole(value)
    if number is None or number < 1:
        raise InputError(f"{name} must be an integer of at least 1, got {value!r}")
    return number


class Campaign(ABC, Generic[_R]):
    """Set of tasks that each leave a record, identified by their numbers."""

    #: Keys of the records of the tasks, in the order of the results.
    keys: Sequence[RunKey | FitKey]

    @abstractmethod
    def in_order(self) -> list[int]:
        """Return the numbers of the tasks in a reproducible order of execution."""

    @abstractmethod
    def call(self, number: int) -> Callable[[], _R]:
        """Return the call that executes a task and returns its record, also on failure."""

    @abstractmethod
    def blank(self, number: int) -> _R:
        """Return the record of a task before it starts: its request without results."""

    @abstractmethod
    def names(self, number: int) -> tuple[str, str, int]:
        """Return the place of the record of a task (problem and method), and its seed."""

    def methods(self, number: int) -> Collection[str]:
        """Return the names of the method of a task that `rerun` accepts."""
        return (self.names(number)[1],)

    def warm_up(self, numbers: Sequence[int]) -> Iterator[int]:
        """Load and compile code for tasks in this process; yield each task's number first."""
        yield from ()

    def note_environment(self, facts: Mapping[str, Any]) -> None:
        """Store the description of a machine that only makes runs, if records lack it."""


def run_campaign(
    campaign: Campaign[_R], store: LineStore[_R] | None, execution: Execution
) -> list[_R]:
    """Run the tasks without a record in the store; return the records of all, in order."""
    by_key: dict[Hashable, _R] = {}
    shard = None if execution.shard is None else parse_shard(execution.shard)
    if store is not None:
        try:
            by_key = {record.key: record for record in store.prepare()}
        except (OSError, RecordError) as reason:
            raise InputError(f"cannot keep records: {one_line(reason)}") from reason
    order = campaign.in_order()
    asked = order if shard is None else share_of(shard, order)
    missing = [
        n for n in asked if execution.asks_for(by_key.get(campaign.keys[n]), campaign.methods(n))
    ]
    again = set(missing)
    thrown = {
        campaign.keys[n].request for n in missing if execution.throws_away(campaign.methods(n))
    }
    if store is not None and thrown:
        store.discard(lambda record: record.key.request in thrown)
    records = {n: by_key[campaign.keys[n]] for n in asked if n not in again}
    failed = sum(record.failed for record in records.values())
    with reporter(execution.progress) as report:

        def report_progress(number: int, record: _R | None = None, compiling: bool = False) -> None:
            done = len(records)
            total = len(asked)
            names = campaign.names(number)
            report(RunProgress(done, total, failed, *names, record, compiling))

        if execution.jobs == 1 and execution.executor is None:
            for number in campaign.warm_up(missing):
                report_progress(number, compiling=True)
        calls = ((number, campaign.call(number)) for number in missing)
        # If no run is missing, no process is started.
        answers = (
            execute(calls, report_progress, execution.jobs, execution.threads)
            if execution.executor is None
            else through_executor(
                execution.executor,
                calls,
                report_progress,
                execution.threads,
                campaign.note_environment,
            )
        )
        with closing(answers):
            for number, answer in answers:
                if isinstance(answer, Crash):
                    answer = crashed(campaign.blank(number), answer)
                _check_key(answer, campaign.keys[number])
                if store is not None:
                    store.append(answer)
                records[number] = answer
                failed += answer.failed
                report_progress(number, answer)
    return [records[number] for number in sorted(records)]


def _check_key(record: RunRecord, key: RunKey | FitKey) -> None:
    """Raise unless a record belongs to the requested run."""
    if record.key != key:
        other = [
            f"{name} {there!r} (here {here!r})"
            for name, there, here in zip(key._fields, record.key, key, strict=True)
            if there != here
        ]
        raise ExecutorError(
            f"a worker runs other code or another problem than this process: {', '.join(other)}; "
            "its run is not recorded"
        )


#: The number of a call, and a function without arguments, which is pickled.
_Call = tuple[int, Callable[[], Any]]

#: Number and result of each call, in the order of completion.
_Results = Generator[tuple[int, Any | Crash], None, None]


def execute(
    calls: Iterable[_Call],
    start: Callable[[int], None],
    jobs: int = 1,
    threads: int = 1,
) -> _Results:
    """Make calls here or in `jobs` processes; yield a `Crash` for a dead process."""
    if jobs > 1:
        yield from _in_workers(iter(calls), start, jobs, threads)
    else:
        with limited_threads(threads):
            for number, call in calls:
                start(number)
                yield number, call()


def _in_workers(
    waiting: Iterator[_Call], start: Callable[[int], None], jobs: int, threads: int
) -> _Results:
    """Make calls in several processes of this machine."""
    workers: list[Worker] = []
    running: dict[Worker, tuple[int, Parcel]] = {}
    sender = Sender()

    def give(worker: Worker, number: int, parcel: Parcel, large: bool = False) -> None:
        running[worker] = number, parcel
        contents = sender.contents(parcel.names, large=large)
        worker.submit(partial(call_parcel, parcel, contents))

    def begin(worker: Worker, task: _Call) -> None:
        start(task[0])
        give(worker, task[0], sender.parcel(task[1]))

    try:
        for call in islice(waiting, jobs):
            workers.append(Worker(threads))
            begin(workers[-1], call)
        while running:
            for worker in finished(list(running)):
                number, parcel = running.pop(worker)
                answer = worker.result()
                if isinstance(answer, Lack):
                    give(worker, number, parcel, large=True)
                    continue
                yield number, answer
                if (following := next(waiting, None)) is not None:
                    begin(worker, following)
    finally:
        for worker in workers:
            worker.stop()
