"""Where definitions of studies are found, and how they are read."""

from __future__ import annotations

import importlib.resources
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from inference_lab.formatting import nearest
from inference_lab.studies.comparison import SolverStudy
from inference_lab.studies.definition import Study
from inference_lab.studies.toml_config import StudyError, read_table

__all__ = ["Found", "available_studies", "find_study", "load_study"]

#: The package that holds the definitions which come with the library.
_PACKAGE = "inference_lab.reports"


class Found(NamedTuple):
    """A folder with a definition, and whether it came with the library."""

    folder: Path
    ours: bool


def _shipped() -> Path:
    """Return the folder of the definitions that come with the library."""
    return Path(str(importlib.resources.files(_PACKAGE)))


def available_studies() -> list[str]:
    """Return the names of the studies that come with the library, sorted."""
    return sorted(path.parent.name for path in _shipped().glob("*/study.toml"))


def find_study(name: str) -> Found:
    """Return the folder of a study."""
    given = Path(name)
    if given.is_file():
        return Found(given.parent, False)
    for place in (given, Path("reports") / name):
        if (place / "study.toml").is_file():
            return Found(place, False)
    if name in available_studies():
        return Found(_shipped() / name, True)
    known = available_studies()
    raise StudyError(
        f"{name} is no study{nearest(name, known)}: neither a folder with a study.toml, nor one "
        f"under reports/, nor one of {', '.join(known)}"
    )


def load_study(folder: Path | str) -> Study | SolverStudy:
    """Read the definition of a study: of solvers if it names ``solvers``, else of clustering."""
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
            return _checked(replace(read_table(SolverStudy, table, ""), name=name))
        return _checked(replace(read_table(Study, table, ""), name=name))
    except StudyError as problem:
        raise StudyError(f"{path}: {problem}") from None


_S = TypeVar("_S", Study, SolverStudy)


def _checked(study: _S) -> _S:
    study.check()
    study.quickly()
    return study
