"""Reading definitions of studies: TOML files, checked against the dataclasses they become."""

from __future__ import annotations

import tomllib
import types
import typing
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

if TYPE_CHECKING:
    from inference_lab.studies.comparison import SolverStudy
    from inference_lab.studies.definition import Study

__all__ = ["StudyError", "load_study", "read_field", "read_value"]

_T = TypeVar("_T")


class StudyError(ValueError):
    """A definition that cannot be used; the message says where and what is allowed."""


def load_study(folder: Path | str) -> Study | SolverStudy:
    """Read the definition of a study: of solvers if it names ``solvers``, else of clustering.

    Parameters
    ----------
    folder : path
        Folder with a ``study.toml``, or that file.

    Raises
    ------
    StudyError
        If it cannot be read; the message names the place.
    """
    from inference_lab.studies.comparison import SolverStudy
    from inference_lab.studies.definition import Study

    path = Path(folder)
    if path.is_dir():
        path = path / "study.toml"
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise StudyError(f"{path}: {problem}") from None
    name = path.resolve().parent.name
    try:
        if "name" in table:
            raise StudyError("name is unknown: a study is named after its folder")
        if "solvers" in table:
            return _checked(replace(_read(SolverStudy, table, ""), name=name))
        return _checked(replace(_read(Study, table, ""), name=name))
    except StudyError as problem:
        raise StudyError(f"{path}: {problem}") from None


_S = TypeVar("_S", "Study", "SolverStudy")


def _checked(study: _S) -> _S:
    study.check()
    study.quickly()
    return study


def read_field(cls: type, name: str, value: Any, where: str) -> Any:
    """Check a value against the type of a field.

    Raises
    ------
    StudyError
    """
    return read_value(value, typing.get_type_hints(cls)[name], where)


def _read(cls: type[_T], table: Any, where: str) -> _T:
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
    """Check a value against a type, and build dataclasses of tables.

    Raises
    ------
    StudyError
    """
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType:
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
    if hint in (int, str):
        if isinstance(value, bool) or not isinstance(value, hint):
            raise StudyError(f"{where} must be of type {hint.__name__}, got {value!r}")
        return value
    if hint is type(None):
        raise StudyError(f"{where} must not be {value!r}")
    return _read(hint, value, where)
