"""Executors of calls: this process, worker processes, or a Dask cluster."""

from __future__ import annotations

import gc
import importlib
import multiprocessing
import pickle
import threading
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from inference_lab.processes.workers import Crash, Worker, finished, limited_threads
from inference_lab.specs.extras import how_to_install

__all__ = ["Call", "ClusterError", "execute"]

#: Calls that a cluster is given ahead, for each that it can do at a time.
_AHEAD = 2

#: Seconds that a cluster is waited for.
_CONNECT_TIMEOUT = 30


class ClusterError(RuntimeError):
    """The cluster cannot be used; the message says why."""


class Call(NamedTuple):
    """A function to call, as ``function(shared, *arguments)``."""

    #: What its result is known by.
    number: int
    #: A function of a module.
    function: Callable[..., Any]
    #: Calls with the same number have the same `shared`, which is sent to a process once for those
    #: that follow each other.
    share: int
    shared: Any
    arguments: tuple[Any, ...]


#: Number and result of each call, as it ends.
Results = Generator[tuple[int, Any | Crash], None, None]


def execute(
    calls: Iterable[Call],
    start: Callable[[int], None],
    jobs: int = 1,
    cluster: str | None = None,
    threads: int = 1,
) -> Results:
    """Make calls here, in `jobs` processes, or on a cluster; a dead process gives a `Crash`."""
    if cluster is not None:
        yield from _on_cluster(iter(calls), start, cluster, threads)
    elif jobs > 1:
        yield from _in_workers(iter(calls), start, jobs, threads)
    else:
        with limited_threads(threads):
            for call in calls:
                start(call.number)
                yield call.number, call.function(call.shared, *call.arguments)


def _in_workers(
    waiting: Iterator[Call], start: Callable[[int], None], jobs: int, threads: int
) -> Results:
    """Make calls in several processes of this machine."""
    workers: list[Worker] = []
    running: dict[Worker, Call] = {}

    def give(worker: Worker, call: Call) -> None:
        start(call.number)
        worker.submit(call.function, call.share, call.shared, call.arguments)
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


# ---------------------------------------------------------------------- clusters

#: On a cluster: each thread of a Dask worker has a process of its own for the calls, since a Dask
#: worker has threads of its own, and forking runs off it would not be safe.
_own = threading.local()


def _there(
    function: Callable[..., Any],
    share: tuple[str, int],
    pickled: bytes,
    arguments: tuple[Any, ...],
    threads: int,
) -> Any | Crash:
    """Make a call on a Dask worker."""
    process = multiprocessing.current_process()
    daemonic = process.daemon
    worker = getattr(_own, "worker", None)
    # Dask's workers are daemons, which may have no children; these end with their parent.
    process.daemon = False
    try:
        if worker is None or worker.threads != threads:
            if worker is not None:
                worker.stop()
            worker, _own.shares = Worker(threads), {}
            _own.worker = worker
        known = _own.shares.setdefault(share, len(_own.shares))
        shared = None if worker.holds == known else pickle.loads(pickled)
        worker.submit(function, known, shared, arguments)
        return worker.result()
    finally:
        process.daemon = daemonic


def _connect(address: str) -> tuple[Any, Any]:
    """Return the package of Dask's clusters, and a client of a scheduler that is up already."""
    try:
        distributed: Any = importlib.import_module("distributed")
    except ImportError:
        reason = how_to_install("distributed", "cluster")
        raise ClusterError(f"distributed is {reason}") from None
    try:
        return distributed, distributed.Client(address, timeout=_CONNECT_TIMEOUT)
    except (OSError, ValueError, TypeError) as problem:
        reason = " ".join(str(problem).split())
    # A client without a scheduler closes when it is collected. If that happened while another one
    # starts, both would wait for the same lock for ever.
    gc.collect()
    raise ClusterError(f"no Dask scheduler answers at {address!r}: {reason}")


def _on_cluster(
    waiting: Iterator[Call], start: Callable[[int], None], address: str, threads: int
) -> Results:
    """Make calls on a Dask cluster, by the address of its scheduler."""
    # The workers need the same versions of everything, and the data where they are here. Each of
    # their threads makes one call at a time: start them with ``--nthreads 1`` and as many as there
    # are processors. Calls of a worker that dies are made again on another; those that have begun
    # when the comparison is interrupted go on to their limit there, and nobody waits for them.
    distributed, client = _connect(address)
    numbers: dict[str, int] = {}
    pickled: tuple[int | None, Any] = (None, None)

    def submit() -> None:
        nonlocal pickled
        call = next(waiting, None)
        if call is None:
            return
        start(call.number)
        if pickled[0] != call.share:
            shared = pickle.dumps(call.shared)
            # A task, and not data that is scattered: that would be lost with its worker.
            pickled = (call.share, client.submit(bytes, shared, pure=False))
        share = (client.id, call.share)
        future = client.submit(
            _there, call.function, share, pickled[1], call.arguments, threads, pure=False
        )
        numbers[future.key] = call.number
        ended.add(future)

    with client, warnings.catch_warnings():
        # Problems travel with the calls, so that they outlive the worker that had them.
        warnings.filterwarnings("ignore", "Sending large graph")
        ended = distributed.as_completed()
        slots = sum(client.nthreads().values())
        if not slots:
            raise ClusterError(f"the Dask cluster at {address!r} has no workers")
        for _ in range(_AHEAD * slots):
            submit()
        for future in ended:
            number = numbers.pop(future.key)
            problem = future.exception() if future.status != "finished" else None
            if problem is not None:
                said = " ".join(str(problem).split())
                yield number, Crash(f"on the cluster: {type(problem).__name__}: {said}", "")
            else:
                yield number, future.result()
            submit()
