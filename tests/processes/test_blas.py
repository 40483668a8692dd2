"""Threads of BLAS: one during a run, and as before afterwards."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest
import scipy.linalg  # noqa: F401  # loads its own BLAS
from threadpoolctl import ThreadpoolController, threadpool_limits

import inference_lab as il
from inference_lab.contract import Outcome, Solver
from inference_lab.processes.blas import blas_threads

GRAPH = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])


def numbers() -> set[int]:
    """Return the numbers of threads of the BLAS libraries."""
    libraries = ThreadpoolController().select(user_api="blas").info()
    return {library["num_threads"] for library in libraries}


@dataclass(frozen=True)
class Counts(Solver):
    """Report the threads of BLAS, also inside a nested run."""

    nested: bool = False

    def run(self, graph, run):
        run.offer([0, 0])
        inner = set()
        if self.nested:
            inner = set(il.solve(graph, Counts(), threads=3).diagnostics["numbers"])
        return Outcome(diagnostics={"numbers": sorted(numbers() | inner)})


@pytest.fixture(autouse=True)
def three_threads():
    with threadpool_limits(3, "blas"):
        yield


def test_a_run_has_one_thread_unless_asked():
    for threads, expected in ((1, [1]), (2, [2]), (None, [3])):
        solution = il.solve(GRAPH, Counts(), threads=threads)
        assert solution.diagnostics["numbers"] == expected and numbers() == {3}
    assert il.solve(GRAPH, Counts(nested=True)).diagnostics["numbers"] == [1]


@pytest.mark.parametrize("threads", [0, -1, 1.5, "one"])
def test_other_numbers_are_refused(threads):
    with pytest.raises(ValueError, match="threads must be an integer of at least 1 or None"):
        il.solve(GRAPH, "icm", threads=threads)


def test_an_error_restores_the_threads():
    with pytest.raises(ZeroDivisionError), blas_threads(1):
        assert numbers() == {1}
        _ = 1 / 0
    assert numbers() == {3}


def test_the_thread_that_sets_the_limit_restores_it():
    """OpenBLAS takes no number from another thread, and the limit would stay for good."""
    inside, leave = threading.Event(), threading.Event()

    def work() -> None:
        with blas_threads(1):
            inside.set()
            leave.wait(10)

    other = threading.Thread(target=work)
    with blas_threads(1):
        other.start()
        assert inside.wait(10)
    assert numbers() == {3}
    leave.set()
    other.join()
    assert numbers() == {3}
    with blas_threads(1):
        assert numbers() == {1}
