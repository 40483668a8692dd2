"""Tables of TOML files, checked against the dataclasses they become."""

from __future__ import annotations

import types
import typing
from dataclasses import MISSING, fields
from typing import Any, Literal, TypeVar

__all__ = ["StudyError", "read_field", "read_table", "read_value"]

_T = TypeVar("_T")

#: What values of a type are called in messages.
_KINDS = {int: "an integer", str: "text"}


class StudyError(ValueError):
    """A definition that cannot be used; the message says where and what is allowed."""


def read_field(cls: type, name: str, value: Any, where: str) -> Any:
    """Check a value against the type of a field."""
    return read_value(value, typing.get_type_hints(cls)[name], where)


def read_table(cls: type[_T], table: Any, where: str) -> _T:
    """Build a dataclass from a table, checking names and types."""
    if not isinstance(table, dict):
        raise StudyError(f"{where or 'the file'} must be a table")
    prefix = f"{where}." if where else ""
    hints = typing.get_type_hints(cls)
    known = {f.name: f for f in fields(cls)}  # type: ignore[arg-type]
    for key in table:
        if key not in known:
            raise StudyError(f"{prefix}{key} is unknown; allowed: {', '.join(known)}")
    values = {}
    for name, entry in known.items():
        if name in table:
            values[name] = read_value(table[name], hints[name], f"{prefix}{name}")
        elif entry.default is MISSING and entry.default_factory is MISSING:
            raise StudyError(f"{prefix}{name} is missing")
    return cls(**values)


def read_value(value: Any, hint: Any, where: str) -> Any:
    """Check a value against a type, and build dataclasses of tables."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        problem = None
        for option in inner:
            try:
                return read_value(value, option, where)
            except StudyError as refused:
                problem = problem or refused
        raise problem or StudyError(where)
    if origin is Literal:
        if value not in inner:
            raise StudyError(f"{where} = {value!r}; allowed: {', '.join(map(repr, inner))}")
        return value
    if origin is list:
        if not isinstance(value, list):
            raise StudyError(f"{where} must be a list, got {value!r}")
        return [read_value(entry, inner[0], f"{where}[{at}]") for at, entry in enumerate(value)]
    if origin is not None:
        if not isinstance(value, dict):
            raise StudyError(f"{where} must be a table, got {value!r}")
        return value
    if hint is float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise StudyError(f"{where} must be a number, got {value!r}")
        return float(value)
    if hint is bool:
        if not isinstance(value, bool):
            raise StudyError(f"{where} must be true or false, got {value!r}")
        return value
    if hint in (int, str):
        if isinstance(value, bool) or not isinstance(value, hint):
            raise StudyError(f"{where} must be {_KINDS[hint]}, got {value!r}")
        return value
    if hint is type(None):
        raise StudyError(f"{where} must not be {value!r}")
    return read_table(hint, value, where)
