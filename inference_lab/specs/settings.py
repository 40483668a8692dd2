"""Settings: a frozen dataclass whose fields say what they may be, and are checked against it.

Numbers have a range, and a field that is annotated as a `Literal` is one of its choices.

>>> from dataclasses import dataclass
>>> from inference_lab.specs.settings import Settings, setting
>>> @dataclass(frozen=True)
... class Descent(Settings):
...     damping: float = setting(0.0, at_least=0, below=1)
...     max_sweeps: int | None = setting(None, at_least=1)
>>> Descent(damping=1.5)
Traceback (most recent call last):
...
ValueError: damping must be at least 0 and below 1, got 1.5
"""

from __future__ import annotations

import math
import types
import typing
from dataclasses import dataclass, field, fields
from functools import cache
from numbers import Real
from typing import Any, ClassVar, NamedTuple, TypeVar

from inference_lab.specs.grammar import format_spec
from inference_lab.words import shortened

__all__ = ["Range", "Settings", "check_settings", "range_of", "setting"]


def __dir__() -> list[str]:
    """List the public names."""
    return __all__


_T = TypeVar("_T")


class Range(NamedTuple):
    """From where to where a number may be; NaN is nowhere.

    Examples
    --------
    >>> print(Range(at_least=1), Range(above=0, at_most=1), Range(0, below=math.inf), sep="; ")
    at least 1; above 0 and at most 1; finite and at least 0
    >>> Range(above=0).admits(0), Range(above=0).admits(1), Range(at_least=0).admits(math.nan)
    (False, True, False)
    """

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None

    def admits(self, number: Any) -> bool:
        """Whether a number is within."""
        return (
            (self.at_least is None or number >= self.at_least)
            and (self.above is None or number > self.above)
            and (self.at_most is None or number <= self.at_most)
            and (self.below is None or number < self.below)
        )

    def __str__(self) -> str:
        """Say it in words that follow "must be"."""
        if self.at_least is not None and self.at_most is not None:
            return f"between {_text(self.at_least)} and {_text(self.at_most)}"
        words = ["finite"] if self.below == math.inf else []
        words += [
            f"{name.replace('_', ' ')} {_text(limit)}"
            for name, limit in self._asdict().items()
            if limit is not None and limit != math.inf
        ]
        return " and ".join(words)


def _text(limit: float) -> str:
    """Return a limit as one writes it: large powers of two are sizes of memory or of tables."""
    size = int(limit)
    if size == limit and size > 1000 and size & (size - 1) == 0:
        return f"2**{size.bit_length() - 1}"
    return str(limit)


def setting(
    default: _T,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    always: bool = False,
) -> _T:
    """Declare a field of a settings dataclass with the range of its numbers.

    Values of another type that the field may have, such as None, are always allowed.
    ``below=math.inf`` demands a finite number. Specs name a setting with `always` even where it has
    its default.
    """
    limits = Range(at_least, above, at_most, below)
    declared: Any = field(default=default, metadata={"range": limits, "always": always})
    return typing.cast(_T, declared)


class _Rule(NamedTuple):
    """What a field may be: one of the choices, a number in the range, or None."""

    name: str
    choices: tuple[Any, ...]
    limits: Range | None
    #: None where the annotation cannot be read.
    optional: bool | None


def range_of(metadata: typing.Mapping[Any, Any]) -> Range | None:
    """Return the range that a field's metadata have, None without limits."""
    limits = metadata.get("range")
    return limits if isinstance(limits, Range) and limits != Range() else None


@cache
def _rules(cls: type[Any]) -> tuple[_Rule, ...]:
    """Return what is to be checked of a dataclass."""
    try:
        hints = typing.get_type_hints(cls)
    except Exception:  # a user's annotations may name what only type checkers know
        hints = {}
    rules = []
    for each in fields(cls):
        hint = hints.get(each.name)
        united = typing.get_origin(hint) in (typing.Union, types.UnionType)
        options = typing.get_args(hint) if united else (hint,)
        literals = [o for o in options if typing.get_origin(o) is typing.Literal]
        choices = tuple(choice for option in literals for choice in typing.get_args(option))
        limits = range_of(each.metadata)
        only_choices = len(literals) + (type(None) in options) == len(options)
        if limits is not None or (choices and only_choices):
            optional = None if hint is None else type(None) in options
            rules.append(_Rule(each.name, choices, limits, optional))
    return tuple(rules)


def check_settings(settings: object) -> None:
    """Check the fields of a dataclass: numbers by their ranges, literals by their types."""
    cls: Any = type(settings)  # mypy doubts that classes can be hashed
    for name, choices, limits, optional in _rules(cls):
        value = getattr(settings, name)
        if value is None and optional is not False:
            continue
        in_range = limits is not None and isinstance(value, Real) and limits.admits(value)
        if not in_range and value not in choices:
            allowed = [*map(str, choices), *([] if limits is None else [str(limits)])]
            if optional and choices:
                allowed.append("None")
            *first, last = allowed
            said = f"{', '.join(first)} or {last}" if first else last
            got = shortened(repr(value)) if isinstance(value, str) else value
            raise ValueError(f"{name} must be {said}, got {got}")


@dataclass(frozen=True)
class Settings:
    """Base of solvers and problem families: a frozen dataclass that a spec string can make.

    One with a ``__post_init__`` of its own calls that of this class in it.
    """

    #: The name in spec strings of a class from an entry point or a user's file, set when loaded.
    registered_as: ClassVar[str | None] = None

    def __post_init__(self) -> None:
        """Check what the fields say of themselves."""
        check_settings(self)

    @classmethod
    def name(cls) -> str:
        """Return the name under which the class is registered: its module's, with hyphens.

        Returns
        -------
        str

        Examples
        --------
        >>> from inference_lab.solvers.loopy_bp import LoopyBP
        >>> LoopyBP.name()
        'loopy-bp'
        """
        if "registered_as" in cls.__dict__:
            return str(cls.__dict__["registered_as"])
        package, _, module = cls.__module__.rpartition(".")
        if package in ("inference_lab.solvers", "inference_lab.problems"):
            return module.replace("_", "-")
        return cls.__name__

    @property
    def spec(self) -> str:
        """The spec string that makes an equal object: name, and settings that are not default."""
        return format_spec(self.name(), self)

    def settings(self) -> dict[str, Any]:
        """Return all settings by name.

        Returns
        -------
        dict

        Examples
        --------
        >>> from inference_lab.solvers.loopy_bp import LoopyBP
        >>> LoopyBP(damping=0.5).settings()["damping"]
        0.5
        """
        return {f.name: getattr(self, f.name) for f in fields(self)}
