"""A Dask cluster as an executor, for the option ``--dask`` of commands."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from importlib import import_module
from typing import Any, TypeVar

from inference_lab.harness.executors import ExecutorError
from inference_lab.harness.isolated_run import one_line
from inference_lab.specs.extras import require

_T = TypeVar("_T")

#: Seconds within which a scheduler must answer, and a first worker must be there.
_SCHEDULER_PATIENCE = 10.0
_WORKER_PATIENCE = 60.0

#: Seconds for the end of a client.
_CLOSING = 5.0


class DaskCluster(Executor):
    """Executor on a Dask cluster, connected at its first call and closed by `shutdown`.

    Parameters
    ----------
    address : str
        Address of the scheduler, such as ``tcp://head:8786``, or ``local`` for workers on this
        machine, each a process with one thread.
    workers : int
        Number of workers of a local cluster.

    Raises
    ------
    MissingExtra
        If the package ``distributed`` is not installed.
    """

    def __init__(self, address: str, workers: int = 1) -> None:
        require("cluster", "distributed")
        self.address = address
        self.workers = workers
        self._cluster: Any = None
        self._client: Any = None

    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        """Submit a call.

        Raises
        ------
        ExecutorError
            If no scheduler answers, or the cluster has no workers.
        """
        if self._client is None:
            self._connect()
        # Dask would return the result of an equal call again, unless a call is impure.
        future: Future[_T] = self._client.get_executor(pure=False).submit(fn, *args, **kwargs)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Disconnect from the cluster; end it, with its calls, if it is local."""
        client, self._client = self._client, None
        cluster, self._cluster = self._cluster, None
        for end in (client, cluster):
            if end is not None:
                with suppress(OSError, TimeoutError):
                    end.close(timeout=_CLOSING)

    def _connect(self) -> None:
        distributed: Any = import_module("distributed")
        for name in ("distributed", "distributed.client"):
            # Dask reports lost connections with tracebacks; `ExecutorError` has the reason.
            logging.getLogger(name).setLevel(logging.CRITICAL)
        try:
            place: Any = self.address
            if self.address == "local":
                self._cluster = place = distributed.LocalCluster(
                    n_workers=self.workers,
                    threads_per_worker=1,
                    host="127.0.0.1",
                    dashboard_address="127.0.0.1:0",
                    # Each run has its own limit, in a process that Dask does not count.
                    memory_limit=None,
                    silence_logs=logging.CRITICAL,
                )
            self._client = distributed.Client(
                place, timeout=_SCHEDULER_PATIENCE, set_as_default=False
            )
        except (OSError, ValueError, TypeError) as problem:
            reason = one_line(problem)
        else:
            return self._await_workers()
        # Collected now, because a client without a scheduler closes when it is collected. If
        # another client started at that time, both would wait for the same lock.
        gc.collect()
        raise ExecutorError(f"no Dask scheduler answers at {self.address!r}: {reason}")

    def _await_workers(self) -> None:
        """Raise `ExecutorError` unless the cluster has a worker within a minute."""
        try:
            self._client.wait_for_workers(1, timeout=_WORKER_PATIENCE)
        except (OSError, TimeoutError):
            self.shutdown()
            raise ExecutorError(
                f"the Dask cluster at {self.address!r} has no workers after "
                f"{_WORKER_PATIENCE:g} s; start one with: dask worker ADDRESS --nthreads 1"
            ) from None
