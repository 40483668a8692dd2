"""Search for the definitions of studies, and their reading."""

from __future__ import annotations

import importlib.resources
import tomllib
from pathlib import Path
from typing import NamedTuple

from inference_lab.formatting import nearest
from inference_lab.studies.clustering_study import Study
from inference_lab.studies.definition import StudyError, read_as
from inference_lab.studies.solver_study import SolverStudy

#: The package that holds the definitions which come with the library.
_PACKAGE = "inference_lab.reports"


class StudyFolder(NamedTuple):
    """A folder with a definition; `ours` marks a folder that comes with the library."""

    folder: Path
    ours: bool


def _shipped() -> Path:
    """Return the folder of the definitions that come with the library."""
    return Path(str(importlib.resources.files(_PACKAGE)))


def available_studies() -> list[str]:
    """Return the names of the studies that come with the library, sorted."""
    return sorted(path.parent.name for path in _shipped().glob("*/study.toml"))


def find_study(name: str) -> StudyFolder:
    """Return the folder of a study."""
    path = Path(name)
    if path.is_file() and path.name == "study.toml":
        return StudyFolder(path.parent, False)
    for place in (path, Path("reports") / name):
        if (place / "study.toml").is_file():
            return StudyFolder(place, False)
    if name in available_studies():
        return StudyFolder(_shipped() / name, True)
    studies = available_studies()
    raise StudyError(
        f"{name!r} is not a study{nearest(name, studies)}; give a folder with a study.toml, or "
        f"one of {', '.join(studies)}"
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
        kind: type[Study | SolverStudy] = SolverStudy if "solvers" in table else Study
        study = read_as(kind, {**table, "name": name})
        study.check()
        study.quickly()
        return study
    except StudyError as problem:
        raise StudyError(f"{path}: {problem}") from None
