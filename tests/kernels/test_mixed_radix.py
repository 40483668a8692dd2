"""The odometers go through a table as itertools does."""

from __future__ import annotations

import itertools

import numpy as np

import inference_lab as il
from inference_lab.kernels.mixed_radix import first_allowed_labels, next_allowed_labels, next_labels


def factor_of(sizes):
    return il.FactorGraph.from_factors(sizes, [(tuple(range(len(sizes))), np.zeros(sizes))]).arrays


def test_all_labels_in_the_order_of_a_table():
    g = factor_of([2, 3, 1, 2])
    digits = np.zeros(4, dtype=np.int64)
    seen = [tuple(digits)]
    while next_labels(g, 0, 4, digits):
        seen.append(tuple(digits))
    assert seen == list(itertools.product(range(2), range(3), range(1), range(2)))
    assert not digits.any()


def test_the_first_positions_alone():
    g = factor_of([2, 3, 2])
    digits = np.array([0, 0, 7])
    count = 1
    while next_labels(g, 0, 2, digits):
        count += 1
    assert count == 6
    assert digits[2] == 7


def test_allowed_labels_with_one_position_kept():
    sizes = [3, 4, 3]
    g = factor_of(sizes)
    labels = [[0, 2], [1], [1, 2]]
    allowed = np.zeros(sum(sizes), dtype=np.bool_)
    for i, some in enumerate(labels):
        allowed[g.unary_ptr[i] + np.array(some)] = True
    for fixed in (-1, 0, 1, 2):
        digits = np.zeros(3, dtype=np.int64)
        first_allowed_labels(g, 0, 3, allowed, digits)
        seen = [tuple(digits)]
        while next_allowed_labels(g, 0, 3, allowed, fixed, digits):
            seen.append(tuple(digits))
        kept = [some if i != fixed else some[:1] for i, some in enumerate(labels)]
        assert seen == list(itertools.product(*kept))
        assert tuple(digits) == seen[0]
