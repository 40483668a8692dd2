"""Settings: frozen dataclasses whose fields declare ranges and are checked against them.

Numbers have a range, and a field annotated as a `Literal` must be one of its choices.

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
import sys
import typing
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar

import msgspec

from inference_lab.formatting import shortened
from inference_lab.specs.grammar import format_spec, is_literal, options_of
from inference_lab.specs.whole_numbers import as_whole

__all__ = ["Range", "Settings", "check_settings", "range_of", "register_class", "setting"]


def __dir__() -> list[str]:
    """List the public names."""
    return __all__


_T = TypeVar("_T")


class Range(NamedTuple):
    """The range of a number; NaN is in no range."""

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None

    @property
    def meta(self) -> msgspec.Meta:
        """The range as constraints of msgspec, whose limits must be finite."""
        finite = self.below == math.inf
        limits: dict[str, Any] = {
            "ge": self.at_least,
            "gt": self.above,
            "le": sys.float_info.max if finite else self.at_most,
            "lt": None if finite else self.below,
        }
        meta: msgspec.Meta = msgspec.Meta(**limits)
        return meta

    def __str__(self) -> str:
        """Format the range in words that follow "must be"."""
        if self.at_least is not None and self.at_most is not None:
            return f"between {self.at_least} and {self.at_most}"
        words = ["finite"] if self.below == math.inf else []
        words += [
            f"{name.replace('_', ' ')} {limit}"
            for name, limit in self._asdict().items()
            if limit is not None and limit != math.inf
        ]
        return " and ".join(words)


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

    Values of other types of the field, such as None, are always allowed. ``below=math.inf``
    requires a finite number. With `always`, specs contain the setting even if it has its
    default.
    """
    limits = Range(at_least, above, at_most, below)
    declared: Any = field(default=default, metadata={"range": limits, "always": always})
    return typing.cast(_T, declared)


def range_of(metadata: typing.Mapping[Any, Any]) -> Range | None:
    """Return the range in a field's metadata, or None without limits."""
    limits = metadata.get("range")
    return limits if isinstance(limits, Range) and limits != Range() else None


@cache
def _rules(cls: type[Any]) -> dict[str, tuple[Any, str]]:
    """Return the msgspec type of each checked field, and its allowed values in words."""
    try:
        hints = typing.get_type_hints(cls)
    except Exception:  # because a user's annotations may name types that only type checkers load
        hints = {}
    rules = {}
    for entry in fields(cls):
        options = options_of(hints.get(entry.name, float | None))
        limits = range_of(entry.metadata)
        choices = [c for o in options if is_literal(o) for c in typing.get_args(o)]
        if limits is None and not all(is_literal(o) or o is type(None) for o in options):
            continue
        checked = [
            Annotated[o, limits.meta] if limits and o in (int, float) else o for o in options
        ]
        allowed = [*map(str, choices), *([] if limits is None else [str(limits)])]
        if type(None) in options and choices:
            allowed.append("None")
        *first, last = allowed
        expected = f"{', '.join(first)} or {last}" if first else last
        rules[entry.name] = typing.Union[tuple(checked)], expected  # noqa: UP007
    return rules


def check_settings(settings: object) -> None:
    """Check the fields of a dataclass: numbers by their ranges, literals by their types.

    Whole floats in fields of integers, such as ``1e6``, become integers.
    """
    cls: Any = type(settings)  # mypy doubts that classes can be hashed
    for name, (kind, allowed) in _rules(cls).items():
        value = getattr(settings, name)
        try:
            # NumPy scalars are converted, because msgspec supports only Python's numbers.
            plain = value.item() if getattr(value, "ndim", None) == 0 else value
            msgspec.convert(plain, kind)
        except msgspec.ValidationError:
            with suppress(msgspec.ValidationError):
                whole = as_whole(value)
                if whole is not None:
                    object.__setattr__(settings, name, msgspec.convert(whole, kind))
                    continue
            got = shortened(repr(value)) if isinstance(value, str) else value
            raise ValueError(f"{name} must be {allowed}, got {got}") from None


@dataclass(frozen=True)
class Settings:
    """Base of solvers and problem families: a frozen dataclass that a spec string can make."""

    # A subclass with a ``__post_init__`` must call the method of this class in it.

    #: Name in spec strings of a class from an entry point or a user's file, set when loaded.
    registered_as: ClassVar[str | None] = None

    def __post_init__(self) -> None:
        """Check the fields against their types and ranges."""
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
        """The spec string that builds an equal object: its name and its non-default settings."""
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


def register_class(loaded: type[_T], name: str) -> type[_T]:
    """Store the name that loads a user's class in the class, for the specs of its objects."""
    if not loaded.__module__.startswith("inference_lab."):
        setattr(loaded, "registered_as", name)  # noqa: B010  # the base is only known at run time
    return loaded
