"""Executors of calls: this process, or worker processes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from inference_lab.processes.workers import Crash, Worker, finished, limited_threads


class Call(NamedTuple):
    """A function to call with its arguments."""

    #: Identifies the result of the call.
    number: int
    #: A function of a module, because it is pickled.
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


#: Number and result of each call, in the order of completion.
Results = Generator[tuple[int, Any | Crash], None, None]


def execute(
    calls: Iterable[Call],
    start: Callable[[int], None],
    jobs: int = 1,
    threads: int = 1,
) -> Results:
    """Make calls here or in `jobs` processes; yield a `Crash` for a dead process."""
    if jobs > 1:
        yield from _in_workers(iter(calls), start, jobs, threads)
    else:
        with limited_threads(threads):
            for call in calls:
                start(call.number)
                yield call.number, call.function(*call.arguments)


def _in_workers(
    waiting: Iterator[Call], start: Callable[[int], None], jobs: int, threads: int
) -> Results:
    """Make calls in several processes of this machine."""
    workers: list[Worker] = []
    running: dict[Worker, Call] = {}

    def give(worker: Worker, call: Call) -> None:
        start(call.number)
        worker.submit(call.function, *call.arguments)
        running[worker] = call

    try:
        for call in islice(waiting, jobs):
            workers.append(Worker(threads))
            give(workers[-1], call)
        while running:
            for worker in finished(list(running)):
                yield running.pop(worker).number, worker.result()
                if (following := next(waiting, None)) is not None:
                    give(worker, following)
    finally:
        for worker in workers:
            worker.stop()
