"""A backend of joblib on any executor, so that estimators share their fits out over it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from joblib import wrap_non_picklable_objects
from joblib.parallel import ParallelBackendBase


class ExecutorBackend(ParallelBackendBase):  # type: ignore[misc]  # joblib has no types
    """Backend of joblib that makes calls through an executor, which it does not shut down.

    It serves what joblib has no backend for, such as MPI; for Dask there is joblib's own.

    Parameters
    ----------
    executor : concurrent.futures.Executor
        Its futures need ``add_done_callback``, ``result`` and ``cancel``.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> from joblib import parallel_config
    >>> from inference_lab.clustering import PCKMeans
    >>> with ThreadPoolExecutor(2) as pool, parallel_config(ExecutorBackend(pool), n_jobs=2):
    ...     fit = PCKMeans(2, n_init=4, random_state=0).fit([[0.0], [0.1], [1.0], [1.1]])
    >>> float(round(fit.objective_, 6))
    0.01
    """

    supports_retrieve_callback = True

    def __init__(self, executor: Executor, nesting_level: int | None = None) -> None:
        super().__init__(nesting_level=nesting_level)
        self.executor = executor
        self._running: set[Future[Any]] = set()

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Return the number of calls in flight.

        Raises
        ------
        ValueError
            If it is not positive: the number of workers of an executor is not known.
        """
        if n_jobs is None:
            return 1
        if n_jobs < 1:
            raise ValueError(
                f"n_jobs must be the number of workers of the executor, at least 1, got {n_jobs}"
            )
        return n_jobs

    def submit(
        self, func: Callable[[], Any], callback: Callable[[Future[Any]], None] | None = None
    ) -> Future[Any]:
        """Submit a call, which is pickled with local functions in it."""
        future = self.executor.submit(wrap_non_picklable_objects(func))
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        """Return the result of a call, or raise its error."""
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel the calls that have not begun."""
        for future in tuple(self._running):
            future.cancel()
