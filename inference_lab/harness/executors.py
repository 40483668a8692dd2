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

#: Number of calls submitted ahead to a cluster, for each of its slots.
_AHEAD = 2

#: Time limit in seconds for connecting to a cluster.
_CONNECT_TIMEOUT = 30


class ClusterError(RuntimeError):
    """Error for a cluster that cannot be used; its message gives the reason."""


class Call(NamedTuple):
    """A function to call, as ``function(shared, *arguments)``."""

    #: Identifies the result of the call.
    number: int
    #: A function of a module, because it is pickled.
    function: Callable[..., Any]
    #: Identifies `shared`, which is sent to a process once for consecutive calls with this number.
    share: int
    shared: Any
    arguments: tuple[Any, ...]


#: Number and result of each call, in the order of completion.
Results = Generator[tuple[int, Any | Crash], None, None]


def execute(
    calls: Iterable[Call],
    start: Callable[[int], None],
    jobs: int = 1,
    cluster: str | None = None,
    threads: int = 1,
) -> Results:
    """Make calls here, in `jobs` processes, or on a cluster; yield a `Crash` for a dead process."""
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

#: The process in which a thread of a Dask worker makes its calls: the worker has several threads,
#: so forking it would not be safe.
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
    # The flag is cleared, because Dask's workers are daemons, which may have no children. The
    # children here end with their parent.
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
    """Return the ``distributed`` package, and a client connected to a running scheduler."""
    try:
        distributed: Any = importlib.import_module("distributed")
    except ImportError:
        reason = how_to_install("distributed", "cluster")
        raise ClusterError(f"distributed is {reason}") from None
    try:
        return distributed, distributed.Client(address, timeout=_CONNECT_TIMEOUT)
    except (OSError, ValueError, TypeError) as problem:
        reason = " ".join(str(problem).split())
    # Collected now, because a client without a scheduler closes when it is collected. If another
    # client started at that time, both would deadlock on the same lock.
    gc.collect()
    raise ClusterError(f"no Dask scheduler answers at {address!r}: {reason}")


def _on_cluster(
    waiting: Iterator[Call], start: Callable[[int], None], address: str, threads: int
) -> Results:
    """Make calls on a Dask cluster, given the address of its scheduler."""
    # The workers need the same versions of all packages, and the data under the same paths. Each
    # thread makes one call at a time: start one worker per processor with ``--nthreads 1``. Calls
    # of a worker that dies are repeated on another. If the comparison is interrupted, running calls
    # continue on the workers up to their limit, and their results are lost.
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
            # Submitted as a task, because scattered data would be lost with its worker.
            pickled = (call.share, client.submit(bytes, shared, pure=False))
        share = (client.id, call.share)
        future = client.submit(
            _there, call.function, share, pickled[1], call.arguments, threads, pure=False
        )
        numbers[future.key] = call.number
        ended.add(future)

    with client, warnings.catch_warnings():
        # The warning is ignored, because problems are sent with the calls to survive the death of
        # a worker.
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
