"""Records of named numbers."""

from __future__ import annotations

import numpy as np

from inference_lab.kernels.struct import record


class Numbers:
    """Fields of each kind."""

    count: int
    cost: float
    done: bool


def test_a_record_has_the_fields_of_its_class():
    numbers = record(Numbers)
    assert (numbers[0].count, numbers[0].cost, numbers[0].done) == (0, 0.0, False)
    numbers[0].count += 2
    numbers[0].cost = 0.5
    numbers[0].done = True
    assert np.asarray(numbers).dtype == [("count", "i8"), ("cost", "f8"), ("done", "?")]
    assert np.asarray(numbers).tolist() == [(2, 0.5, True)]
