"""The campaign of the fits of a clustering study."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from msgspec import structs

from inference_lab.harness.campaign import (
    Campaign,
    Execution,
    InputError,
    rerun_words,
    run_campaign,
)
from inference_lab.harness.inputs import solver_source
from inference_lab.harness.isolated_run import Limits, attempt, now, warm_up_apart
from inference_lab.harness.progress import RunProgress
from inference_lab.registry.registry import as_solver
from inference_lab.results.clustering_records import (
    FitKey,
    FitStore,
    StudyRecord,
    note_environments,
)
from inference_lab.results.json_lines import jsonable
from inference_lab.results.records import environment
from inference_lab.specs.grammar import SpecError
from inference_lab.studies.clustering_study import Method, Protocol, Study
from inference_lab.studies.definition import StudyError
from inference_lab.studies.methods import FitResult, fit_method
from inference_lab.studies.study_points import StudyPoints, load_points

#: Number of points and of constraints of warm-up fits, and their limit in seconds, excluding
#: compilation.
_WARM_UP_POINTS = 60
_WARM_UP_PAIRS = 20.0
_WARM_UP_LIMIT = 60.0


class FitTask(NamedTuple):
    """One fit of a study."""

    data: str
    method: Method
    constraints: float
    run: int
    protocol: Protocol

    @property
    def key(self) -> FitKey:
        """Return the key of its record."""
        asked = (self.data, self.method.key, self.constraints, self.run)
        return FitKey(*asked, **structs.asdict(self.protocol))


def cells(study: Study) -> list[FitTask]:
    """Return all fits of a study, in an order that spreads the methods over time."""
    by_key = {
        cell.key: cell
        for stage in study.stages()
        for run in range(stage.runs)
        for data in stage.data
        for value in stage.constraints
        for method in stage.methods
        for cell in [FitTask(data, method, value, run, stage.protocol)]
    }
    tasks = list(by_key.values())
    random.Random(study.name).shuffle(tasks)
    # Sorted by run, so that a study that is stopped early has complete runs.
    return sorted(tasks, key=lambda cell: cell.run)


class FitCampaign(Campaign[StudyRecord]):
    """All fits of a study."""

    def __init__(
        self, study: Study, data_dir: str | None, limits: Limits, folder: Path | None = None
    ) -> None:
        self.study = study
        #: Folder of the records.
        self.folder = folder
        self.data_dir = data_dir
        self.limits = limits
        self.cells = cells(study)
        self.keys = [cell.key for cell in self.cells]

    def in_order(self) -> list[int]:
        """Return the numbers of the fits; the cells are in order already."""
        return list(range(len(self.cells)))

    def call(self, number: int) -> Callable[[], StudyRecord]:
        """Return the call that runs a fit."""
        # The process of the fit loads the points; they are not sent.
        cell = self.cells[number]
        source = _source(cell.method)
        return partial(run_cell, self.study.name, cell, self.data_dir, self.limits, source)

    def blank(self, number: int) -> StudyRecord:
        """Return the record of a fit that has not run, with its inputs alone."""
        return _blank(self.study.name, self.cells[number], self.limits)

    def names(self, number: int) -> tuple[str, str, int]:
        """Return the task, the label of the method and the run of a fit."""
        cell = self.cells[number]
        return cell.key.task, cell.method.label, cell.run

    def note_environment(self, facts: Mapping[str, Any]) -> None:
        """Store the description of a machine, because records have only its identity."""
        if self.folder is not None:
            note_environments(self.folder, {facts["id"]: jsonable(facts)})


def _source(method: Method) -> str:
    """Return the digest of the file of a user's solver, empty without one."""
    solver = method.settings.get("e_step")
    return "" if solver is None else solver_source(as_solver(solver))


@lru_cache(maxsize=8)
def _points(data: str, data_dir: str | None) -> StudyPoints:
    return load_points(data, data_dir)


def _blank(study: str, cell: FitTask, limits: Limits) -> StudyRecord:
    """Return the record of a fit that has not run, with its inputs alone."""
    method = cell.method
    return StudyRecord(
        study=study,
        data=cell.data,
        method=method.label,
        method_key=method.key,
        estimator=method.estimator,
        settings=method.described(),
        constraints=cell.constraints,
        run=cell.run,
        **structs.asdict(cell.protocol),
        status="error",
        time_limit=limits.wall,
        started=now(),
    )


def run_cell(
    study: str, cell: FitTask, data_dir: str | None, limits: Limits, source: str
) -> StudyRecord:
    """Fit one cell and return its record, also if the fit fails; refuse another `source`."""
    method = cell.method
    if _source(method) != source:
        raise SpecError(
            f"the file of the solver {method.settings['e_step']!r} is not the file of this study"
        )
    points = _points(cell.data, data_dir)
    solver = method.settings.get("e_step")
    warm_up_apart(
        (method.estimator, str(solver), method.selection, points.distortion),
        _warm_up,
        cell,
        points,
        limits=limits._replace(wall=min(limits.wall or math.inf, _WARM_UP_LIMIT)),
        here=solver is None or type(as_solver(solver)).__module__.startswith("inference_lab."),
    )
    asked = _blank(study, cell, limits)
    arguments = (method, points, cell.protocol, cell.constraints, cell.run)
    return attempt(asked, fit_method, *arguments, limits=limits, answered=_fitted)


def _warm_up(cell: FitTask, points: StudyPoints) -> None:
    """Fit a method to a few points, to load and compile; an error recurs in the fit itself."""
    few = slice(None, None, max(1, len(points.labels) // _WARM_UP_POINTS))
    small = replace(points, values=points.values[few], labels=points.labels[few])
    try:
        fit_method(cell.method, small, Protocol(), _WARM_UP_PAIRS, 0)
    except KeyboardInterrupt:
        raise
    except BaseException:
        pass


def _fitted(asked: StudyRecord, fit: FitResult) -> StudyRecord:
    return structs.replace(asked, status="ok", **vars(fit))


def run_study(
    study: Study,
    folder: Path | str,
    *,
    jobs: int = 1,
    executor: Executor | None = None,
    rerun: str | Iterable[str] | None = None,
    shard: str | None = None,
    data_dir: str | None = None,
    memory_limit: int | Literal["auto"] | None = "auto",
    isolate: bool = True,
    progress: bool | Callable[[RunProgress[Any]], None] = False,
) -> list[StudyRecord]:
    """Run the missing fits of a study and return all its records.

    Each fit has its own process, as in `inference_lab.compare`, which explains `executor`; its
    workers load the points from `data_dir`. A fit that crashes, or exceeds
    `Study.time_limit` or the memory of a job, is recorded with that status. `rerun` is as there,
    with the labels of methods in place of the names of solvers.
    """
    _check_solvers(study)
    store = FitStore(Path(folder) / "records.jsonl")
    if jobs == 0:
        by_key = {record.key: record for record in store} if store.exists() else {}
        return [by_key[cell.key] for cell in cells(study) if cell.key in by_key]
    try:
        labels = [method.label for stage in study.stages() for method in stage.methods]
        execution = Execution(
            jobs=jobs,
            executor=executor,
            rerun=rerun_words(rerun, labels),
            shard=shard,
            memory_limit=memory_limit,
            progress=progress,
        )
        limits = Limits(isolate, execution.memory, study.time_limit)
        plan = FitCampaign(study, data_dir, limits, store.path.parent)
        for data in dict.fromkeys(cell.data for cell in plan.cells):
            _points(data, data_dir)
        plan.note_environment(environment())
        return run_campaign(plan, store, execution)
    except InputError as problem:
        raise StudyError(str(problem)) from problem


def _check_solvers(study: Study) -> None:
    """Construct all solvers that methods name, so that errors are raised before any run."""
    for stage in study.stages():
        for method in stage.methods:
            if "e_step" in method.settings:
                try:
                    as_solver(method.settings["e_step"])
                except (SpecError, TypeError) as problem:
                    raise StudyError(f"method {method.label!r}: {problem}") from None
