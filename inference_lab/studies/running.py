"""Running a study: what is missing, in processes of their own, each fit a record."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

from inference_lab.harness.executors import Call, executor
from inference_lab.processes.workers import Crash, said, traceback_tail
from inference_lab.registry.registry import as_solver
from inference_lab.results.files import write_whole
from inference_lab.results.json_lines import JsonLine, RecordError, json_object, jsonable
from inference_lab.results.line_store import LineStore
from inference_lab.results.records import environment
from inference_lab.specs.grammar import SpecError
from inference_lab.studies.definition import Method, Protocol, Study
from inference_lab.studies.reading import StudyError

__all__ = ["StudyRecord", "cells", "run_study"]


@dataclass(frozen=True, kw_only=True)
class StudyRecord(JsonLine):
    """One fit of one method.

    Attributes
    ----------
    study, data, method, method_key, estimator : str
        Names; `method_key` identifies the settings.
    settings : mapping
    constraints : float
        As in the definition.
    run : int
    train, noise : float
    scored, unit : str
        The protocol.
    status : {"ok", "error"}
    message, traceback : str
    scores : mapping
        Score to value, on the points that count.
    objective, seconds, e_step_seconds, violated, weight : float
        At the end of the fit; summed weight of violated constraints; the weight chosen.
    iterations : int
    e_steps : mapping
        How many E-steps a solver was called in, how many of them it proved optimal, and the mean
        gap between its energy and its bound.
    environment : str
        Name of the machine and the versions, which ``environments.json`` beside the records tells.
    """

    SCHEMA: ClassVar[int] = 1

    schema: int = 1
    study: str
    data: str
    method: str
    method_key: str
    estimator: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    constraints: float
    run: int
    train: float
    scored: str
    noise: float
    unit: str
    status: str
    message: str = ""
    traceback: str = ""
    scores: Mapping[str, Any] = field(default_factory=dict)
    objective: float = math.nan
    seconds: float = math.nan
    e_step_seconds: float = math.nan
    violated: float = math.nan
    weight: float = math.nan
    iterations: int = 0
    e_steps: Mapping[str, Any] = field(default_factory=dict)
    environment: str = field(default_factory=lambda: environment()["id"])

    def __post_init__(self) -> None:
        """Bring texts and mappings into the form that JSON gives back."""
        for name in ("message", "traceback"):
            object.__setattr__(self, name, jsonable(getattr(self, name)))
        for name in ("settings", "scores", "e_steps"):
            object.__setattr__(self, name, json_object(getattr(self, name)))

    @property
    def key(self) -> tuple[Any, ...]:
        """Return what a record answers: the same key need not be run again."""
        return (
            self.data,
            self.method_key,
            self.constraints,
            self.run,
            self.train,
            self.scored,
            self.noise,
            self.unit,
        )


def environments(folder: Path | str) -> dict[str, dict[str, Any]]:
    """Return what the environments named in the records of a folder are."""
    path = Path(folder) / "environments.json"
    if not path.exists():
        return {}
    read: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return read


def _note_environment(folder: Path) -> None:
    known = environments(folder)
    here = jsonable(environment())
    known.setdefault(here["id"], here)
    text = json.dumps(known, indent=1, sort_keys=True) + "\n"
    path = folder / "environments.json"
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        write_whole(path, text.encode())


class Cell(NamedTuple):
    """One fit that a study asks for."""

    data: str
    method: Method
    constraints: float
    run: int
    protocol: Protocol

    @property
    def key(self) -> tuple[Any, ...]:
        """Return the key of its record."""
        p = self.protocol
        return (
            self.data,
            self.method.key,
            self.constraints,
            self.run,
            p.train,
            p.scored,
            p.noise,
            p.unit,
        )


class Step(NamedTuple):
    """Progress of a study."""

    done: int
    total: int
    failed: int
    record: StudyRecord


def cells(study: Study) -> list[Cell]:
    """Return all fits of a study, in an order that spreads methods over time."""
    by_key = {
        cell.key: cell
        for stage in study.stages()
        for run in range(stage.runs)
        for data in stage.data
        for value in stage.constraints
        for method in stage.methods
        for cell in [Cell(data, method, value, run, stage.protocol)]
    }
    found = list(by_key.values())
    random.Random(study.name).shuffle(found)
    # Runs one after the other: a study that is stopped early has whole runs.
    return sorted(found, key=lambda cell: cell.run)


@lru_cache(maxsize=8)
def _points(data: str, data_dir: str | None) -> Any:
    from inference_lab.studies.points import load_points

    return load_points(data, data_dir)


def _asked(study: str, cell: Cell) -> dict[str, Any]:
    """Return the fields of a record that are known before the fit."""
    method, protocol = cell.method, cell.protocol
    return {
        "study": study,
        "data": cell.data,
        "method": method.label,
        "method_key": method.key,
        "estimator": method.estimator,
        "settings": {
            **method.settings,
            "selection": method.selection,
            "weight": method.weight,
            "closure": method.closure,
        },
        "constraints": cell.constraints,
        "run": cell.run,
        "train": protocol.train,
        "scored": protocol.scored,
        "noise": protocol.noise,
        "unit": protocol.unit,
    }


def run_cell(study: str, cell: Cell, data_dir: str | None) -> StudyRecord:
    """Fit one cell; what goes wrong becomes part of the record."""
    from inference_lab.studies.methods import fit_method

    points = _points(cell.data, data_dir)
    try:
        fit = fit_method(cell.method, points, cell.protocol, cell.constraints, cell.run)
    except KeyboardInterrupt:
        raise
    except BaseException as problem:
        return _failed(study, cell, Crash(said(problem), traceback_tail(problem)))
    return StudyRecord(
        **_asked(study, cell),
        status="ok",
        scores=fit.scores,
        objective=fit.objective,
        seconds=fit.seconds,
        e_step_seconds=fit.e_step_seconds,
        violated=fit.violated,
        weight=fit.weight,
        iterations=fit.iterations,
        e_steps=fit.e_steps,
    )


def _failed(study: str, cell: Cell, crash: Crash) -> StudyRecord:
    return StudyRecord(
        **_asked(study, cell), status="error", message=crash.message, traceback=crash.traceback
    )


def run_study(
    study: Study,
    folder: Path | str,
    *,
    jobs: int = 1,
    cluster: str | None = None,
    rerun: Literal["failed", "all"] | None = None,
    data_dir: str | None = None,
    on_step: Callable[[Step], None] | None = None,
    trusted: bool = True,
) -> list[StudyRecord]:
    """Run what is missing of a study and return all its records.

    Parameters
    ----------
    study : Study
    folder : path
        ``records.jsonl`` there holds what was run before, and gets each record when its fit ends.
    jobs : int
        Worker processes; with 1, fits run in this process; with 0, nothing is run.
    cluster : str, optional
        Address of the scheduler of a Dask cluster that makes the fits instead.
    rerun : {"failed", "all"}, optional
        Fits to make again although there are records of them.
    data_dir : str, optional
    on_step : callable, optional
        Called with a `Step` after each fit.
    trusted : bool
        Whether the solvers that methods name may be code outside the package.

    Returns
    -------
    list of StudyRecord
        Of the cells of this study only, in their order.

    Raises
    ------
    DataNotFoundError
        If data are missing, before anything is run.
    StudyError
        If a method names a solver that there is not, or that is not trusted.
    """
    _check_solvers(study, trusted)
    store = LineStore(Path(folder) / "records.jsonl", StudyRecord)
    wanted = cells(study)
    for data in dict.fromkeys(cell.data for cell in wanted) if jobs else ():
        _points(data, data_dir)
    if jobs == 0:
        known = {record.key: record for record in store} if store.path.exists() else {}
        return [known[cell.key] for cell in wanted if cell.key in known]
    with store.alone():
        known = {record.key: record for record in store.prepare()}
        _note_environment(Path(folder))
        missing = [cell for cell in wanted if _is_missing(known.get(cell.key), rerun)]
        done, failed = len(wanted) - len(missing), 0
        for record in _results(study.name, missing, jobs, cluster, data_dir):
            store.append(record)
            known[record.key] = record
            done += 1
            failed += record.status != "ok"
            if on_step is not None:
                on_step(Step(done, len(wanted), failed, record))
    return [known[cell.key] for cell in wanted]


def _is_missing(record: StudyRecord | None, rerun: str | None) -> bool:
    if record is None or rerun == "all":
        return True
    return rerun == "failed" and record.status != "ok"


def _check_solvers(study: Study, trusted: bool) -> None:
    """Make the solvers that methods name, so that none is missing after a long run."""
    for stage in study.stages():
        for method in stage.methods:
            if "e_step" in method.settings:
                try:
                    as_solver(method.settings["e_step"], trusted=trusted)
                except (SpecError, TypeError) as problem:
                    raise StudyError(f"method {method.label!r}: {problem}") from None


def _results(
    name: str, missing: list[Cell], jobs: int, cluster: str | None, data_dir: str | None
) -> Iterator[StudyRecord]:
    """Yield records as fits end, in this process, in workers, or on a cluster."""
    if not missing:
        return
    calls = (
        Call(number, run_cell, 0, name, (cell, data_dir)) for number, cell in enumerate(missing)
    )
    here = executor(min(jobs, len(missing)), cluster)
    for number, found in here.run(calls, lambda number: None):
        if isinstance(found, Crash):
            found = _failed(name, missing[number], found)
        try:
            yield StudyRecord.from_json(found.to_json())
        except RecordError as problem:
            message = f"the fit reports what no record can hold: {problem}"
            yield _failed(name, missing[number], Crash(message, ""))
