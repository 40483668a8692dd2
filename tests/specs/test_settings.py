"""Settings are checked against their declared fields, in every solver and problem family."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest

from inference_lab.registry.registry import solver_registry
from inference_lab.registry.sources import problem_registry
from inference_lab.specs.grammar import SpecError, build, format_spec
from inference_lab.specs.settings import Range, Settings, range_of, setting

if TYPE_CHECKING:
    from decimal import Decimal


@dataclass(frozen=True)
class Example(Settings):
    """A field of every kind that is checked."""

    rate: float = setting(0.5, at_least=0, below=1)
    size: float = setting(1.0, above=0, below=math.inf)
    share: float = setting(1.0, above=0, at_most=1)
    states: int = setting(8, at_least=1, at_most=2**62)
    rounds: int | None = setting(None, at_least=1)
    weight: float | Literal["auto"] = setting("auto", at_least=0)
    mode: Literal["fast", "slow"] = "fast"
    order: Literal["up", "down"] | None = None
    level: Literal[1, 2] = 1
    free: float = -5.0
    mixed: float | Literal["auto"] = 0.0


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("rate", 1.0, "at least 0 and below 1"),
        ("rate", -0.1, "at least 0 and below 1"),
        ("rate", math.nan, "at least 0 and below 1"),
        ("rate", None, "at least 0 and below 1"),
        ("rate", "much", "at least 0 and below 1"),
        ("size", 0, "finite and above 0"),
        ("size", math.inf, "finite and above 0"),
        ("share", 0.0, "above 0 and at most 1"),
        ("share", 1.001, "above 0 and at most 1"),
        ("states", 0, f"between 1 and {2**62}"),
        ("states", 2**62 + 1, f"between 1 and {2**62}"),
        ("rounds", 0, "at least 1"),
        ("weight", -1.0, "auto or at least 0"),
        ("weight", "automatic", "auto or at least 0"),
        ("mode", "quick", "fast or slow"),
        ("mode", None, "fast or slow"),
        ("order", "across", "up, down or None"),
        ("level", 3, "1 or 2"),
    ],
)
def test_values_out_of_range_are_named(name, value, allowed):
    with pytest.raises(ValueError, match=f"^{name} must be {allowed}, got {value!r}$"):
        replace(Example(), **{name: value})


@pytest.mark.parametrize(
    "values",
    [
        {"rate": 0, "size": 1e-300, "share": 1, "states": 2**62, "rounds": 1, "weight": 0.0},
        {"rate": np.float64(0.9), "states": np.int64(1), "rounds": None, "weight": "auto"},
        {"order": "down", "level": 2, "free": math.nan, "mixed": "what nobody checks"},
    ],
)
def test_allowed_values_are_kept(values):
    made = replace(Example(), **values)
    assert all(getattr(made, name) is value for name, value in values.items())


def test_ranges_apply_to_specs():
    assert build(Example, "e", {"rate": "0.25", "weight": "3"}) == Example(rate=0.25, weight=3.0)
    with pytest.raises(SpecError, match=r"^e: rate must be at least 0 and below 1, got 2\.0$"):
        build(Example, "e", {"rate": "2"})
    assert format_spec("e", Example(share=0.5)) == "e(share=0.5)"


def test_checks_of_subclasses_are_additional():
    @dataclass(frozen=True)
    class Mine(Settings):
        low: int = setting(0, at_least=0)
        high: int = 1

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.low > self.high:
                raise ValueError("low must be at most high")

    with pytest.raises(ValueError, match="low must be at least 0, got -1"):
        Mine(low=-1)
    with pytest.raises(ValueError, match="low must be at most high"):
        Mine(low=2)


def test_fields_without_ranges_are_free():
    """One is a plain dataclass, and one has annotations that only type checkers can read."""

    @dataclass(frozen=True)
    class Plain(Settings):
        number: Decimal | None = None
        mode: Literal["a"] = "a"
        most: int = setting(3, at_least=1)

        def __post_init__(self) -> None:
            object.__setattr__(self, "number", self.most)
            super().__post_init__()

    assert Plain(most=4).number == 4
    with pytest.raises(ValueError, match="most must be at least 1, got 0"):
        Plain(most=0)


def outside(limits: Range) -> list[float]:
    """Return numbers around the ends of a range that are not in it."""
    near = [math.nan, -math.inf, math.inf]
    near += [n + d for n in limits if n is not None for d in (-1, 0, 1)]
    return [
        number
        for number in near
        if not (limits.at_least is None or number >= limits.at_least)
        or not (limits.above is None or number > limits.above)
        or not (limits.at_most is None or number <= limits.at_most)
        or not (limits.below is None or number < limits.below)
    ]


CLASSES = [
    pytest.param(registry.load(name), id=name)
    for registry in (solver_registry, problem_registry)
    for name in registry.names()
]


@pytest.mark.parametrize("cls", CLASSES)
def test_every_class_checks_its_declared_ranges(cls: Any):
    """No class forgets the base class's check in its own ``__post_init__``."""
    hints = get_type_hints(cls)
    for field in fields(cls):
        wrong: list[Any] = []
        limits = range_of(field.metadata)
        if limits is not None:
            wrong += outside(limits)
        options = get_args(hints[field.name]) or (hints[field.name],)
        if get_origin(hints[field.name]) is Literal or any(
            get_origin(o) is Literal for o in options
        ):
            wrong.append("no such choice")
        for value in wrong:
            with pytest.raises(ValueError, match=f"^{field.name} must be "):
                cls(**{field.name: value})


def test_numeric_settings_declare_a_range():
    """Most numbers among the settings have a range: a sampler without one is an oversight."""
    numbers = [
        (cls.values[0].name(), field.name, range_of(field.metadata))
        for cls in CLASSES
        for field in fields(cls.values[0])
        if isinstance(field.default, int | float) and not isinstance(field.default, bool)
    ]
    without = {f"{name}.{field}" for name, field, limits in numbers if limits is None}
    assert without == {
        "max-cut.low",
        "max-cut.high",
    }
