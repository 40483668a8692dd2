"""Estimators on executors give the fits of this process."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest
from joblib import Parallel, delayed, parallel_config
from sklearn.datasets import load_iris

from inference_lab.clustering import ConstrainedClusterCV, PCKMeans
from inference_lab.processes.joblib_backend import ExecutorBackend

X, LABELS = load_iris(return_X_y=True)
MUST_LINK = [(0, 1), (60, 61), (120, 121), (3, 40), (70, 90)]
CANNOT_LINK = [(0, 60), (60, 120), (1, 121), (5, 77), (99, 149)]


@pytest.mark.parametrize("pool", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_estimators_on_a_pool(pool):
    candidates = [("one", PCKMeans()), ("five", PCKMeans(n_init=5))]
    for estimator in (
        PCKMeans(3, init="random", n_init=5, random_state=0),
        ConstrainedClusterCV(3, candidates=candidates, n_splits=2, n_repeats=1, random_state=0),
    ):
        here = estimator.fit(X, must_link=MUST_LINK, cannot_link=CANNOT_LINK).labels_
        with pool(2) as executor, parallel_config(ExecutorBackend(executor), n_jobs=2):
            there = estimator.fit(X, must_link=MUST_LINK, cannot_link=CANNOT_LINK).labels_
            assert executor.submit(os.getpid).result()  # not shut down
        np.testing.assert_array_equal(there, here)


def test_calls_are_made_by_the_workers():
    with ProcessPoolExecutor(1) as executor, parallel_config(ExecutorBackend(executor), n_jobs=2):
        places = Parallel()(delayed(os.getpid)() for _ in range(3))
        assert set(places) == {executor.submit(os.getpid).result()} != {os.getpid()}


def test_errors_arrive_and_cancel_the_rest():
    begun = threading.Event()
    futures: list[Future[object]] = []

    class Recorder(ThreadPoolExecutor):
        def submit(self, fn, /, *args, **kwargs):
            futures.append(super().submit(fn, *args, **kwargs))
            return futures[-1]

    with Recorder(1) as executor:
        blocked = executor.submit(begun.wait)
        backend = ExecutorBackend(executor)
        backend.submit(lambda: None)
        backend.abort_everything()
        assert futures[-1].cancelled() and not blocked.cancelled()
        begun.set()
        with parallel_config(backend, n_jobs=2), pytest.raises(ValueError, match="invalid literal"):
            Parallel()(delayed(int)(text) for text in ["1", "x", "2"])


def test_number_of_workers_is_required():
    with ThreadPoolExecutor(1) as executor, parallel_config(ExecutorBackend(executor), n_jobs=-1):
        with pytest.raises(ValueError, match=r"number of workers of the executor.*got -1"):
            Parallel()([delayed(int)("1")])
