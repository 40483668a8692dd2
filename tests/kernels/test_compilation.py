"""How kernels are compiled: once for arguments of one meaning, however they are handed over."""

from __future__ import annotations

import time

import numpy as np

from inference_lab._numba import inlined, lean_kernel
from inference_lab.loading import meter


@inlined
def scaled(values, at, factor):
    """Return a value times a factor: called with constants, and with integers of several widths."""
    return values[at] * factor


@lean_kernel
def total(values, places):
    """Call the step in each way."""
    found = scaled(values, 0, 2) + scaled(values, 1, 3)
    for q in range(places.size):
        found += scaled(values, places[q], places[q])
    return found


def test_a_step_is_compiled_once_for_constants_and_integers_of_any_width():
    values = np.array([1.0, 10.0, 100.0])
    assert total(values, np.array([1, 2], dtype=np.int32)) == 2 + 30 + 10 + 200
    assert len(scaled.within.overloads) == 1
    # For a call from Python there is a copy of its own.
    assert not scaled.overloads
    assert scaled(values, 2, 2) == 200


def test_a_first_call_takes_loading_time_and_hardly_any_other():
    values = np.ones(3, dtype=np.float32)
    begin, loaded = time.perf_counter(), meter.seconds
    scaled(values, 1, 2)
    taken, loaded = time.perf_counter() - begin, meter.seconds - loaded
    assert 0.9 * taken < loaded <= taken
