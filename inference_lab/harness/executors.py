"""Executors of calls: this process, worker processes, or a Dask cluster.

A call whose process died returns a `Crash`; all others continue.
"""

from __future__ import annotations

import gc
import importlib
import multiprocessing
import pickle
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, NamedTuple

from inference_lab.processes.workers import Crash, Worker, finished, limited_threads
from inference_lab.specs.extras import how_to_install

__all__ = ["Call", "ClusterError", "Executor", "executor"]

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


class Executor(ABC):
    """Something that makes calls.

    Parameters
    ----------
    threads : int
        Threads that numerical libraries may use in a call.
    """

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads

    @abstractmethod
    def run(
        self, calls: Iterable[Call], start: Callable[[int], None]
    ) -> Generator[tuple[int, Any | Crash], None, None]:
        """Make all calls; yield the number and the result of each as it ends."""


class _Here(Executor):
    """One call after the other, in this process."""

    def run(
        self, calls: Iterable[Call], start: Callable[[int], None]
    ) -> Generator[tuple[int, Any | Crash], None, None]:
        with limited_threads(self.threads):
            for call in calls:
                start(call.number)
                yield call.number, call.function(call.shared, *call.arguments)


class _Sender:
    """A worker process, and what it holds."""

    def __init__(self, threads: int) -> None:
        self.worker = Worker(threads)
        self.holds: int | None = None
        self.call: Call | None = None

    def send(self, call: Call) -> None:
        sent = () if self.holds == call.share else (call.shared,)
        self.holds, self.call = call.share, call
        self.worker.submit(_with_shared, sent, call.function, call.arguments)

    def result(self) -> tuple[int, Any | Crash]:
        assert self.call is not None
        number, self.call = self.call.number, None
        found = self.worker.result()
        if isinstance(found, Crash):
            self.holds = None
        return number, found


#: In a worker process: what was sent last.
_held: list[Any] = []


def _with_shared(
    sent: tuple[Any, ...], function: Callable[..., Any], arguments: tuple[Any, ...]
) -> Any:
    """Make a call in a worker, which keeps what was sent until something else is."""
    if sent:
        _held[:] = sent
    return function(_held[0], *arguments)


class _Workers(Executor):
    """Several processes of this machine."""

    def __init__(self, jobs: int, threads: int = 1) -> None:
        super().__init__(threads)
        self.jobs = jobs

    def run(
        self, calls: Iterable[Call], start: Callable[[int], None]
    ) -> Generator[tuple[int, Any | Crash], None, None]:
        waiting = iter(calls)
        senders: list[_Sender] = []

        def give(sender: _Sender, call: Call | None) -> None:
            if call is not None:
                start(call.number)
                sender.send(call)

        try:
            for _ in range(self.jobs):
                call = next(waiting, None)
                if call is None:
                    break
                senders.append(_Sender(self.threads))
                give(senders[-1], call)
            while any(sender.worker.busy for sender in senders):
                ready = finished([sender.worker for sender in senders])
                for sender in senders:
                    if sender.worker in ready:
                        yield sender.result()
                        give(sender, next(waiting, None))
        finally:
            for sender in senders:
                sender.worker.stop()


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
    sender = getattr(_own, "sender", None)
    if sender is None or _own.threads != threads:
        if sender is not None:
            sender.worker.stop()
        # Dask's workers are daemons, which may have no children; these end with their parent.
        process.daemon = False
        try:
            sender = _own.sender = _Sender(threads)
        finally:
            process.daemon = daemonic
        _own.threads, _own.shares = threads, {}
    known = _own.shares.setdefault(share, len(_own.shares))
    shared = None if sender.holds == known else pickle.loads(pickled)
    process.daemon = False
    try:
        sender.send(Call(0, function, known, shared, arguments))
        return sender.result()[1]
    finally:
        process.daemon = daemonic


class _Cluster(Executor):
    """A Dask cluster that is up already, by the address of its scheduler."""

    # The workers need the same versions of everything, and the data where they are here. Each of
    # their threads makes one call at a time: start them with ``--nthreads 1`` and as many as there
    # are processors. Calls of a worker that dies are made again on another; those that have begun
    # when the comparison is interrupted go on to their limit there, and nobody waits for them.

    def __init__(self, address: str, threads: int = 1) -> None:
        super().__init__(threads)
        self.address = address

    def run(
        self, calls: Iterable[Call], start: Callable[[int], None]
    ) -> Generator[tuple[int, Any | Crash], None, None]:
        try:
            distributed: Any = importlib.import_module("distributed")
        except ImportError:
            reason = how_to_install("distributed", "cluster")
            raise ClusterError(f"distributed is {reason}") from None
        client = None
        try:
            client = distributed.Client(self.address, timeout=_CONNECT_TIMEOUT)
        except (OSError, ValueError, TypeError) as problem:
            reason = " ".join(str(problem).split())
        if client is None:
            # A client without a scheduler closes when it is collected. If that happened while
            # another one starts, both would wait for the same lock for ever.
            gc.collect()
            raise ClusterError(f"no Dask scheduler answers at {self.address!r}: {reason}")
        with client, warnings.catch_warnings():
            # Problems travel with the calls, so that they outlive the worker that had them.
            warnings.filterwarnings("ignore", "Sending large graph")
            yield from self._run(distributed, client, iter(calls), start)

    def _run(
        self, distributed: Any, client: Any, waiting: Iterator[Call], start: Callable[[int], None]
    ) -> Generator[tuple[int, Any | Crash], None, None]:
        slots = sum(client.nthreads().values())
        if not slots:
            raise ClusterError(f"the Dask cluster at {self.address!r} has no workers")
        numbers: dict[str, int] = {}
        pickled: tuple[int | None, Any] = (None, None)
        ended = distributed.as_completed()

        def submit() -> None:
            nonlocal pickled
            call = next(waiting, None)
            if call is None:
                return
            start(call.number)
            if pickled[0] != call.share:
                shared = pickle.dumps(call.shared)
                # A task, and not data that is scattered: that would be lost with its worker.
                handle = client.submit(bytes, shared, pure=False)
                pickled = (call.share, handle)
            future = client.submit(
                _there,
                call.function,
                (client.id, call.share),
                pickled[1],
                call.arguments,
                self.threads,
                pure=False,
            )
            numbers[future.key] = call.number
            ended.add(future)

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


def executor(jobs: int = 1, cluster: str | None = None, threads: int = 1) -> Executor:
    """Return what makes calls here, in `jobs` processes, or on the cluster at an address."""
    if cluster is not None:
        return _Cluster(cluster, threads)
    return _Here(threads) if jobs == 1 else _Workers(jobs, threads)
