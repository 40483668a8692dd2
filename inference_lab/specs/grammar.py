"""Spec strings: a solver or problem with its settings in one line, fit to be quoted in a paper.

``name`` or ``name(setting=value, ...)``; values are numbers, ``true``/``false``, ``none``, bare
words, or quoted strings with backslash escapes. Strings are parsed, never evaluated.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from inference_lab.words import nearest, shortened

_T = TypeVar("_T")

#: Longest spec that is read, in characters: nobody writes longer ones by hand.
MAX_LENGTH = 10_000

#: Characters that are shown before the place of a mistake, and after it.
_BEFORE = 40

#: A registered name, ``module:object``, or ``path/to/file.py:object``.
_NAME = re.compile(r"[^\s(),='\"]+")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: A bare value ends at a comma or parenthesis; anything with those in it must be quoted.
_BARE = re.compile(r"[^,()\"'\s=]+")
_SPACE = re.compile(r"\s*")
_PLAIN = re.compile(r"[A-Za-z0-9_./:+-]+")


class SpecError(ValueError):
    """A spec string, name or setting that cannot be used; the message says what would be."""


class SpecSyntaxError(SpecError):
    """A spec string that does not follow the grammar, with the place where it ceases to.

    Parameters
    ----------
    text : str
    at : int
        Position in it.
    expected : str
        What may stand there.
    hint : str
        What else helps, added to the first line.
    """

    def __init__(self, text: str, at: int, expected: str, hint: str = "") -> None:
        super().__init__(text, at, expected, hint)

    def __str__(self) -> str:
        """Return the reason on one line, and the text with a caret below the place."""
        text, at, expected, hint = self.args
        reason = f"cannot read spec {shortened(text)!r} at position {at}: expected {expected}{hint}"
        begin = max(0, at - _BEFORE)
        shown = text[begin : begin + 2 * _BEFORE]
        # What prints as something else would move the caret.
        if not (shown.strip() and shown.isprintable()):
            return reason
        return f"{reason}\n  {shown}\n  {'^':>{at - begin + 1}}"


class Spec(NamedTuple):
    """A parsed spec string: the name, and the settings as raw strings (None for ``none``)."""

    name: str
    settings: dict[str, str | None]


def parse_spec(text: str) -> Spec:
    """Split a spec string into name and raw settings.

    Examples
    --------
    >>> parse_spec("loopy-bp(damping=0.5, schedule=residual)")
    Spec(name='loopy-bp', settings={'damping': '0.5', 'schedule': 'residual'})
    """

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
    name, at = match.group(), skip(match.end())
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
        key, at = match.group(), skip(match.end())
        if at >= len(text) or text[at] != "=":
            raise fail(at, f"'=' after {key!r}")
        at = skip(at + 1)
        if key in settings:
            raise SpecError(f"spec {shortened(text)!r} gives {shortened(key)!r} twice")
        if at < len(text) and text[at] in "\"'":
            value, at = _quoted(text, at, fail)
            settings[key] = value
        else:
            match = _BARE.match(text, at)
            if not match:
                raise fail(at, f"a value for {key!r}")
            settings[key] = None if match.group().lower() == "none" else match.group()
            at = match.end()
        at = skip(at)
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


def _quoted(text: str, at: int, fail: typing.Callable[[int, str], SpecError]) -> tuple[str, int]:
    quote, start = text[at], at
    at += 1
    out: list[str] = []
    while at < len(text) and text[at] != quote:
        if text[at] == "\\" and at + 1 < len(text):
            at += 1
        out.append(text[at])
        at += 1
    if at >= len(text):
        raise fail(start, "a closing quote")
    return "".join(out), at + 1


def unknown(
    kind: str,
    word: str,
    valid: Iterable[str],
    about: Mapping[str, str] | None = None,
    others: Mapping[str, str] | None = None,
) -> SpecError:
    """Make the error for an unknown name: the valid ones, and those that may be meant.

    Examples
    --------
    >>> print(unknown("setting of icm", "restart", ["init", "restarts"]))
    unknown setting of icm 'restart'; did you mean 'restarts'?; valid: init, restarts
    """
    names = ", ".join(sorted(valid))
    hint = nearest(word, valid, about, others)
    return SpecError(f"unknown {kind} {shortened(word)!r}{hint}; valid: {names}")


def build(cls: type[_T], name: str, settings: dict[str, str | None]) -> _T:
    """Make an instance of a settings dataclass from raw settings, converting by field type."""
    known = {f.name: f for f in fields(cls) if f.init}  # type: ignore[arg-type]
    hints = _hints(cls)  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for key, raw in settings.items():
        if key not in known:
            if not known:
                raise SpecError(f"{name} has no settings, got {key!r}")
            raise unknown(f"setting of {name}", key, known)
        values[key] = _convert(raw, hints[key], f"{name}({key}=...)")
    missing = [
        f.name
        for f in known.values()
        if f.default is MISSING and f.default_factory is MISSING and f.name not in values
    ]
    if missing:
        raise SpecError(f"{name} needs the setting {missing[0]!r}: {name}({missing[0]}=...)")
    try:
        return cls(**values)
    except SpecError:
        raise
    except (ValueError, TypeError) as problem:
        raise SpecError(f"{name}: {problem}") from problem


@cache
def _hints(cls: type[Any]) -> dict[str, Any]:
    """Return the types of the fields of a class, which are texts to be evaluated."""
    return typing.get_type_hints(cls)


def _convert(raw: str | None, hint: Any, where: str) -> Any:
    origin = typing.get_origin(hint)
    options = typing.get_args(hint) if origin in (typing.Union, types.UnionType) else (hint,)
    if raw is None:
        if type(None) in options:
            return None
        raise SpecError(f"{where}: none is not allowed")
    said: list[str] = []
    for option in options:
        if option is type(None):
            said.append("none")
            continue
        if typing.get_origin(option) is typing.Literal:
            choices = typing.get_args(option)
            if raw in choices:
                return raw
            said.append("one of " + ", ".join(map(str, choices)))
            continue
        if option is bool:
            if raw.lower() in ("true", "false"):
                return raw.lower() == "true"
            said.append("true or false")
        elif option is int:
            try:
                return int(raw)
            except ValueError:
                said.append("an integer")
        elif option is float:
            try:
                return float(raw)
            except ValueError:
                said.append("a number")
        elif option is str:
            return raw
        elif option is Path:
            return Path(raw)
        elif option in (Any, object):
            return plain_value(raw)
    if not said:
        raise SpecError(f"{where}: a value of type {hint} cannot be written in a spec")
    raise SpecError(f"{where}: {shortened(raw)!r} is not {' or '.join(said)}")


def plain_value(raw: str) -> int | float | bool | str:
    """Return the number or truth value that a text looks like, else the text."""
    if raw.lower() in ("true", "false"):
        return raw.lower() == "true"
    for kind in (int, float):
        try:
            return kind(raw)
        except ValueError:
            continue
    return raw


def call(function: Callable[..., Any], name: str, settings: dict[str, str | None]) -> Any:
    """Call a function with raw settings as keyword arguments, converted by its annotations.

    Values of parameters without one become the number or truth value that they look like, else
    text; ``none`` is None.

    Examples
    --------
    >>> def greet(who: str, times: int = 1):
    ...     return " ".join([f"hello {who}"] * times)
    >>> call(greet, "greet", {"who": "you", "times": "2"})
    'hello you hello you'
    """
    try:
        parameters = inspect.signature(function).parameters.values()
        hints = typing.get_type_hints(function)
    except (ValueError, TypeError, NameError):  # built in, or annotated with what is not there
        parameters, hints = {}.values(), {}
    known = {p.name: p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    values: dict[str, Any] = {}
    for key, raw in settings.items():
        if key not in known and not takes_any:
            if not known:
                raise SpecError(f"{name} has no settings, got {key!r}")
            raise unknown(f"setting of {name}", key, known)
        hint = hints.get(key)
        where = f"{name}({key}=...)"
        values[key] = _convert(raw, Any | None if hint is None else hint, where)
    missing = [p.name for p in known.values() if p.default is p.empty and p.name not in values]
    if missing:
        raise SpecError(f"{name} needs the setting {missing[0]!r}: {name}({missing[0]}=...)")
    try:
        return function(**values)
    except (SpecError, OSError):
        raise
    except Exception as problem:
        raise SpecError(f"{name} fails: {type(problem).__name__}: {problem}") from problem


def format_value(value: Any) -> str:
    """Write a setting's value so that `parse_spec` reads it back."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        # `float` first: the repr of a numpy number carries its type.
        number = float(value)
        return repr(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)
    text = str(value)
    if _PLAIN.fullmatch(text) and text.lower() != "none":
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def format_spec(name: str, settings: Any) -> str:
    """Write the spec string of a settings dataclass: its name and what is not default.

    Fields declared by ``setting(..., always=True)`` are written even then.
    """
    parts = []
    for f in fields(settings):
        if not f.init:
            continue
        value = getattr(settings, f.name)
        if f.default is MISSING or value != f.default or f.metadata.get("always"):
            parts.append(f"{f.name}={format_value(value)}")
    return f"{name}({', '.join(parts)})" if parts else name
