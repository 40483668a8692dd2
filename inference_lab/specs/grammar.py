"""Spec strings: a solver or problem with its settings in one line, which a paper can quote.

``name`` or ``name(setting=value, ...)``; values are numbers, ``true``/``false``, ``none``, bare
words, or quoted strings with backslash escapes. Strings are parsed, never evaluated.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, NamedTuple, TypeVar

import msgspec

from inference_lab.formatting import nearest, shortened
from inference_lab.specs.whole_numbers import as_whole

_T = TypeVar("_T")

#: Maximum length of a spec in characters, far beyond any written by hand.
MAX_LENGTH = 10_000

#: Number of characters shown before and after the position of an error.
_BEFORE = 40

#: A registered name, ``module:object``, or ``path/to/file.py:object``.
_NAME = re.compile(r"[^\s(),='\"]+")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: A bare value. It ends at a comma or parenthesis; values that contain these must be quoted.
_BARE = re.compile(r"[^,()\"'\s=]+")
_QUOTED = re.compile(r"([\"'])(?:\\.|(?!\1)[^\\])*\1", re.DOTALL)
_SPACE = re.compile(r"\s*")
_PLAIN = re.compile(r"[A-Za-z0-9_./:+-]+")


class SpecError(ValueError):
    """Error for an invalid spec string, name or setting; its message lists the valid ones."""


class SpecSyntaxError(SpecError):
    """Error for a spec string that violates the grammar, with the position of the first fault.

    `expected` are the tokens allowed at position `at`; `hint` is added to the first line.
    """

    def __init__(self, text: str, at: int, expected: str, hint: str = "") -> None:
        super().__init__(text, at, expected, hint)

    def __str__(self) -> str:
        """Format the reason on one line, and the text with a caret below the position."""
        text, at, expected, hint = self.args
        reason = f"cannot read spec {shortened(text)!r} at position {at}: expected {expected}{hint}"
        begin = max(0, at - _BEFORE)
        shown = text[begin : begin + 2 * _BEFORE]
        # Omitted for unprintable text, because it would misplace the caret.
        if not (shown.strip() and shown.isprintable()):
            return reason
        return f"{reason}\n  {shown}\n  {'^':>{at - begin + 1}}"


class Spec(NamedTuple):
    """A parsed spec string: the name, and the settings as raw strings (None for ``none``)."""

    name: str
    settings: dict[str, str | None]


def parse_spec(text: str) -> Spec:
    """Split a spec string into name and raw settings."""

    def fail(at: int, expected: str) -> SpecError:
        return SpecSyntaxError(text, at, expected)

    def skip(at: int) -> int:
        match = _SPACE.match(text, at)
        return match.end() if match else at

    if len(text) > MAX_LENGTH:
        raise SpecError(
            f"spec {shortened(text)!r} has {len(text)} characters; at most {MAX_LENGTH} are read"
        )
    at = skip(0)
    match = _NAME.match(text, at)
    if not match:
        raise fail(at, "a name")
    name = match.group()
    at = skip(match.end())
    settings: dict[str, str | None] = {}
    if at == len(text):
        return Spec(name, settings)
    if text[at] != "(":
        raise fail(at, "'(' or the end")
    at = skip(at + 1)
    while at < len(text) and text[at] != ")":
        match = _KEY.match(text, at)
        if not match:
            raise fail(at, "a setting's name")
        key = match.group()
        at = skip(match.end())
        if at >= len(text) or text[at] != "=":
            raise fail(at, f"'=' after {key!r}")
        at = skip(at + 1)
        if key in settings:
            raise SpecError(f"spec {shortened(text)!r} gives {shortened(key)!r} twice")
        quoted = text[at : at + 1] in ('"', "'")
        match = (_QUOTED if quoted else _BARE).match(text, at)
        if not match:
            raise fail(at, "a closing quote" if quoted else f"a value for {key!r}")
        value = match.group()
        if quoted:
            settings[key] = re.sub(r"\\(.)", r"\1", value[1:-1], flags=re.DOTALL)
        else:
            settings[key] = None if value.lower() == "none" else value
        at = skip(match.end())
        if at < len(text) and text[at] == ",":
            at = skip(at + 1)
        elif at >= len(text) or text[at] != ")":
            raise fail(at, "',' or ')'")
    if at >= len(text):
        raise fail(at, "')'")
    at = skip(at + 1)
    if at != len(text):
        raise fail(at, "the end")
    return Spec(name, settings)


def import_error(description: str, problem: Exception) -> SpecError:
    """Return the error for code that raises when it is imported."""
    return SpecError(f"{description}: {type(problem).__name__}: {problem}")


def unknown(kind: str, word: str, valid: Iterable[str]) -> SpecError:
    """Make the error for an unknown name, with the valid names and the nearest one."""
    names = sorted(valid)
    hint = nearest(word, names)
    return SpecError(f"unknown {kind} {shortened(word)!r}{hint}; valid: {', '.join(names)}")


def build(cls: type[_T], name: str, settings: dict[str, str | None]) -> _T:
    """Build an instance of a settings dataclass from raw settings, converted by field type."""
    init_fields = [f for f in fields(cls) if f.init]  # type: ignore[arg-type]
    needed = [f.name for f in init_fields if f.default is MISSING and f.default_factory is MISSING]
    hints = _hints(cls)  # type: ignore[arg-type]
    values = convert_settings(name, settings, [f.name for f in init_fields], needed, hints)
    try:
        return cls(**values)
    except SpecError:
        raise
    except (ValueError, TypeError) as problem:
        raise SpecError(f"{name}: {problem}") from problem


def convert_settings(
    name: str,
    settings: dict[str, str | None],
    allowed_names: list[str],
    needed: list[str],
    hints: Mapping[str, Any],
) -> dict[str, Any]:
    """Convert raw settings to their types; use `plain_value` without a type."""
    for key in settings:
        if not allowed_names:
            raise SpecError(f"{name} has no settings, got {key!r}")
        if key not in allowed_names:
            raise unknown(f"setting of {name}", key, allowed_names)
    for key in needed:
        if key not in settings:
            raise SpecError(f"{name} needs the setting {key!r}: {name}({key}=...)")
    return {
        key: _convert(raw, hints.get(key, Any | None), f"{name}({key}=...)")
        for key, raw in settings.items()
    }


@cache
def _hints(cls: type[Any]) -> dict[str, Any]:
    """Return the evaluated annotations of a class."""
    return typing.get_type_hints(cls)


def options_of(hint: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the type itself in a tuple."""
    united = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return typing.get_args(hint) if united else (hint,)


def is_literal(hint: Any) -> bool:
    """Whether a type is a `Literal`."""
    return typing.get_origin(hint) is typing.Literal


#: Names of types in messages.
_WORDS = {int: "an integer", float: "a number", bool: "true or false", type(None): "none"}


def _convert(raw: str | None, hint: Any, where: str) -> Any:
    """Convert the text of a setting to its type; error messages begin with `where`."""
    options = options_of(hint)
    if raw is None:
        if type(None) in options:
            return None
        raise SpecError(f"{where}: none is not allowed")
    if Any in options or object in options:
        return plain_value(raw)
    # The text itself is the fallback, because a field of strings may hold a number.
    number = plain_value(raw)
    whole = as_whole(number)
    for value in (number, raw if whole is None else whole, raw):
        with suppress(msgspec.ValidationError, TypeError):
            return msgspec.convert(value, hint, dec_hook=lambda kind, text: kind(text))
    allowed = [
        f"one of {', '.join(map(str, typing.get_args(o)))}" if is_literal(o) else _WORDS.get(o)
        for o in options
    ]
    permitted = " or ".join(filter(None, allowed))
    if not permitted:
        raise SpecError(f"{where}: a value of type {hint} cannot be written in a spec")
    raise SpecError(f"{where}: {shortened(raw)!r} is not {permitted}")


def plain_value(raw: str) -> int | float | bool | str:
    """Convert a text to a number or a truth value if possible, else return the text."""
    if raw.lower() in ("true", "false"):
        return raw.lower() == "true"
    for kind in (int, float):
        with suppress(ValueError):
            return kind(raw)
    return raw


def format_value(value: Any) -> str:
    """Format a setting's value such that `parse_spec` restores it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        # Converted to `float`, because the repr of a NumPy number contains its type.
        number = float(value)
        return repr(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)
    text = str(value)
    if _PLAIN.fullmatch(text) and text.lower() != "none":
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def format_spec(name: str, settings: Any) -> str:
    """Format the spec string of a settings dataclass: its name and its non-default settings.

    Fields declared by ``setting(..., always=True)`` are always included.
    """
    parts = []
    for f in fields(settings):
        if not f.init:
            continue
        value = getattr(settings, f.name)
        if f.default is MISSING or value != f.default or f.metadata.get("always"):
            parts.append(f"{f.name}={format_value(value)}")
    return f"{name}({', '.join(parts)})" if parts else name
