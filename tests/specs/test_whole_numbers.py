"""Whole numbers in arguments: every type that holds one, and nothing else."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest

from inference_lab.harness.campaign import Execution, InputError
from inference_lab.harness.inputs import seed_list
from inference_lab.registry.registry import as_solver
from inference_lab.specs.settings import Settings, setting
from inference_lab.specs.whole_numbers import as_whole, check_count


@pytest.mark.parametrize(
    "value",
    [
        3,
        3.0,
        np.int8(3),
        np.uint64(3),
        np.float32(3),
        np.array(3),
        np.array(3.0),
        Fraction(3),
        Decimal(3),
        pd.array([3], dtype="Int64")[0],
    ],
)
def test_a_whole_number_of_any_type_is_read(value: Any) -> None:
    assert as_whole(value) == 3 and type(as_whole(value)) is int
    assert check_count(value, name="n", smallest=1, largest=3) == 3


@pytest.mark.parametrize(
    "value",
    [
        2.5,
        math.nan,
        -math.inf,
        True,
        np.True_,
        "3",
        b"3",
        None,
        pd.NA,
        pd.NaT,
        3 + 0j,
        [3],
        np.array([3]),
        np.timedelta64(3, "ns"),
        np.datetime64(3, "ns"),
    ],
)
def test_other_values_are_refused(value: Any) -> None:
    assert as_whole(value) is None
    with pytest.raises(TypeError, match=r"n = .* is not an integer"):
        check_count(value, name="n", smallest=0)


def test_large_numbers_lose_no_digit() -> None:
    assert as_whole(2**70 + 1) == 2**70 + 1
    assert as_whole(1e20) == 10**20


@dataclass(frozen=True)
class Counted(Settings):
    """A count, perhaps none, and a rate, which stays a float."""

    count: int | None = setting(None, at_least=1)
    size: int | Literal["auto"] = setting("auto", at_least=2)
    rate: float = setting(1.0, at_least=0)


def test_settings_of_integers_take_whole_floats() -> None:
    made = Counted(count=1e3, size=np.float64(4), rate=2.0)  # type: ignore[arg-type]
    assert (made.count, made.size, made.rate) == (1000, 4, 2.0)
    assert type(made.count) is type(made.size) is int and type(made.rate) is float
    assert made.spec == "Counted(count=1000, size=4, rate=2)"
    for wrong in (0.0, 2.5, math.nan, True):
        with pytest.raises(ValueError, match="count must be at least 1"):
            Counted(count=wrong)  # type: ignore[arg-type]


def test_specs_take_whole_floats() -> None:
    assert as_solver("icm(max_sweeps=1e3)") == as_solver("icm(max_sweeps=1000)")


@pytest.mark.parametrize("limit", [3e9, 3_000_000_000, np.float64(3e9), np.int64(3_000_000_000)])
def test_limits_of_memory_are_whole_numbers(limit: Any) -> None:
    made = Execution(memory_limit=limit, jobs=2.0, threads=np.int64(1))  # type: ignore[arg-type]
    assert made.memory == 3_000_000_000 and type(made.memory) is int
    assert (made.jobs, made.threads) == (2, 1) and type(made.jobs) is int


@pytest.mark.parametrize("limit", [0, -1, 2.5, math.inf, True, "3GB"])
def test_other_limits_of_memory_are_refused(limit: Any) -> None:
    with pytest.raises(InputError, match="memory_limit must be a whole number of bytes"):
        Execution(memory_limit=limit)


def test_seeds_are_whole_numbers() -> None:
    assert seed_list(2.0) == [0, 1]  # type: ignore[arg-type]
    assert seed_list(np.array([3.0, 1.0])) == [3, 1]
    for wrong in ([0.5], [True], [-1]):
        with pytest.raises(InputError, match="a seed must be an integer and not negative"):
            seed_list(wrong)
