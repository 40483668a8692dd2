"""Studies of solvers: problems, solvers and budgets in a file, run by `compare` and reported."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from inference_lab.formatting import nearest
from inference_lab.registry.registry import as_solver, problem_registry
from inference_lab.reporting.answers import Claim, with_answers
from inference_lab.reporting.contrasts import Contrast
from inference_lab.results.best_known import FILE, known_best, merged, read_known, write_known
from inference_lab.results.records import TRACE_LIMIT, Record, RecordStore
from inference_lab.specs.grammar import SpecError
from inference_lab.studies.designs import Design, Grid
from inference_lab.studies.toml_config import StudyError, read_field

if TYPE_CHECKING:
    from inference_lab.harness.progress import Progress
    from inference_lab.reporting.comparison import Comparison
    from inference_lab.reporting.document import Block, Document

__all__ = ["Design", "Grid", "SolverStudy", "Stage", "render_comparison", "run_comparison"]

#: Statuses of runs that leave nothing open.
_SOLVED = ("optimal", "infeasible")

#: Problems that are built and run on at a time: of thousands, the graphs would fill the memory.
_BATCH = 240

#: What the quick form of a study can change, besides the sizes of designs and the values of either.
_QUICK = ("problems", "solvers", "seeds", "time_limit")
_QUICK_DESIGN = ("cells", "draws")


#: Names of tables and figures that a report may have; those that end in a hyphen go on with the
#: names of what they are about. Which there are depends on the records.
_TABLES = tuple(
    "contrasts claims gains- mixed- summary classes best-solver- targets quality-at-times "
    "seconds-by-size gaps-by-size ranks open-problems problems problem- log-z- failures solvers "
    "limits environment".split()
)
_FIGURES = tuple(
    "best-solver-map- performance-profile solved-over-time gain-map- seconds-by-size "
    "gap-over-time convergence- critical-difference".split()
)


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Further solvers, on those of the problems that others have left open.

    Parameters
    ----------
    solvers : list of str
        Specs.
    unsolved_by : list of str
        Solvers of the study, or of stages before. The problems are those that none of them has
        proved in any of its runs, which the records of these runs tell.
    time_limit : float or None
        By default that of the study.
    """

    solvers: list[str]
    unsolved_by: list[str]
    time_limit: float | None = None

    def chosen(self, problems: Sequence[str], records: Sequence[Record]) -> list[str]:
        """Return the problems, given by specs, that are left open."""
        by = {as_solver(spec).spec for spec in self.unsolved_by}
        solved = {r.problem for r in records if r.solver in by and r.status in _SOLVED}
        return [spec for spec in problems if problem_registry.make(spec).spec not in solved]


@dataclass(frozen=True, kw_only=True)
class SolverStudy:
    """A study that compares solvers on problems, as its file defines it.

    Parameters
    ----------
    title, question : str
    problems : list of str
        Specs.
    grids : list of Grid
        Further problems.
    designs : list of Design
        Further problems, a sample of many.
    solvers : list of str
        Specs.
    stages : list of Stage
        Further solvers on some of the problems.
    seeds, time_limit, clock, trace_limit
        As in `inference_lab.compare`.
    answer : str
        What the results say, written by whoever looked at them: a Jinja text over the tables of
        the report, see `inference_lab.reporting.answers`.
    notes : list of str
    classes : str or None
        Entry of the problems' info that says which class a problem is of; by default its family.
    maps : list of [str, str]
        Pairs of entries of the problems' info, rows and columns of maps that say which solver is
        best where.
    growing : str or None
        Setting of the problems by which they differ in size.
    contrasts : list of Contrast
        What is asked of the runs before they are made.
    claims : list of Claim
        What was published, and what the records say to it.
    blocks : str or None
        Entry of the problems' info that says of which block a problem is, such as its data set:
        ranks and intervals are over blocks. By default each problem is one.
    targets, times : list of float
        Primal gaps in percent the time to which is told; seconds at which the quality is told.
    labels : mapping of str to str
        What solvers are called in the report, by spec.
    tables, figures : list of str or None
        Names of those the report shows, or how they begin, with a hyphen at the end; all by
        default.
    quick : mapping
        Values of `problems`, `solvers`, `seeds`, `time_limit` (of stages, too, where it is less),
        of ``cells`` and ``draws`` of the designs, and in ``values`` of names of the grids and
        designs, for a look in a minute.
    """

    title: str
    question: str
    solvers: list[str]
    problems: list[str] = field(default_factory=list)
    grids: list[Grid] = field(default_factory=list)
    designs: list[Design] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)
    seeds: int | list[int] = 1
    time_limit: float
    clock: Literal["wall", "cpu"] = "wall"
    trace_limit: int = TRACE_LIMIT
    answer: str = ""
    notes: list[str] = field(default_factory=list)
    classes: str | None = None
    maps: list[list[str]] = field(default_factory=list)
    growing: str | None = None
    contrasts: list[Contrast] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    blocks: str | None = None
    targets: list[float] = field(default_factory=lambda: [1.0, 0.1])
    times: list[float] | None = None
    labels: Mapping[str, Any] = field(default_factory=dict)
    tables: list[str] | None = None
    figures: list[str] | None = None
    quick: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""

    def all_problems(self) -> list[str]:
        """Return the specs of all problems, those of the grids and the designs last."""
        return [*self.problems, *(spec for each in self._sets() for spec in each.specs())]

    def _sets(self) -> list[Grid | Design]:
        return [*self.grids, *self.designs]

    def all_solvers(self) -> list[str]:
        """Return the specs of all solvers, those of the stages last."""
        return [*self.solvers, *(spec for stage in self.stages for spec in stage.solvers)]

    def quickly(self) -> SolverStudy:
        """Return the quick form."""
        quick = dict(self.quick)
        values = quick.pop("values", {})
        sizes = {
            key: read_field(Design, key, quick.pop(key), f"quick.{key}")
            for key in _QUICK_DESIGN
            if key in quick and self.designs
        }
        for key in quick:
            if key not in _QUICK:
                allowed = (*_QUICK, *(_QUICK_DESIGN if self.designs else ()), "values")
                raise StudyError(f"quick.{key} is unknown; allowed: {', '.join(allowed)}")
        changes = {key: read_field(SolverStudy, key, quick[key], f"quick.{key}") for key in quick}
        for key in ("problems", "solvers"):
            for spec in changes.get(key, ()):
                if spec not in getattr(self, key):
                    raise StudyError(f"quick.{key} names {spec!r}, which the study does not have")
        if not isinstance(values, dict):
            raise StudyError(f"quick.values must be a table, got {values!r}")
        known = {name for each in self._sets() for name in each.values}
        for name in values:
            if name not in known:
                raise StudyError(f"quick.values.{name} is in no grid")

        def fewer(given: Mapping[str, Any]) -> dict[str, Any]:
            return {k: values.get(k, v) for k, v in given.items()}

        changes |= {
            "grids": [replace(grid, values=fewer(grid.values)) for grid in self.grids],
            "designs": [replace(d, values=fewer(d.values), **sizes) for d in self.designs],
        }
        if "time_limit" in changes:
            limit = changes["time_limit"]
            changes["stages"] = [
                replace(stage, time_limit=min(limit, stage.time_limit or limit))
                for stage in self.stages
            ]
        result = replace(self, **changes, labels={}, contrasts=[], claims=[], quick={}, answer="")
        there = result.all_solvers()
        labels = {k: v for k, v in self.labels.items() if k in there}
        asked = [c for c in self.contrasts if not c.problem(there)]
        result = replace(result, labels=labels, contrasts=asked)
        result.check()
        return result

    def check(self) -> None:
        """Refuse what cannot be run.

        Specs are not looked into here; what cannot be made is said by `run_comparison`.
        """
        for number, grid in enumerate(self.grids):
            grid.check(f"grids[{number}]")
        for number, design in enumerate(self.designs):
            design.check(f"designs[{number}]")
        specs = self.all_problems()
        solvers = self.all_solvers()
        for key, listed in (("problems", specs), ("solvers", solvers)):
            if not listed:
                raise StudyError(f"{key} must not be empty")
            for spec, count in Counter(listed).items():
                if count > 1:
                    raise StudyError(f"{key} has {spec!r} more than once")
        before = list(self.solvers)
        for number, stage in enumerate(self.stages):
            for spec in stage.unsolved_by:
                if spec not in before:
                    raise StudyError(
                        f"stages[{number}].unsolved_by names {spec!r}{nearest(spec, before)}"
                    )
            before += stage.solvers
        for spec, label in self.labels.items():
            if spec not in solvers:
                raise StudyError(f"labels names {spec!r}{nearest(spec, solvers)}")
            if not isinstance(label, str) or not label.strip():
                raise StudyError(f"labels.{spec} must be text, got {label!r}")
        called = [self.labels.get(spec, spec) for spec in solvers]
        if len(set(called)) < len(called):
            raise StudyError(f"labels must differ, got {', '.join(called)}")
        seeds = self.seeds if isinstance(self.seeds, list) else [self.seeds]
        if not seeds or min(seeds) < (0 if isinstance(self.seeds, list) else 1):
            raise StudyError(f"seeds must be a number from 1 on or a list, got {self.seeds}")
        if self.trace_limit < 2:
            raise StudyError(f"trace_limit must be at least 2, got {self.trace_limit}")
        limits = [stage.time_limit for stage in self.stages if stage.time_limit is not None]
        for limit in (self.time_limit, *limits):
            if not (math.isfinite(limit) and limit > 0):
                raise StudyError(f"time_limit must be positive seconds, got {limit}")
        for number, contrast in enumerate(self.contrasts):
            if wrong := contrast.problem(solvers):
                raise StudyError(f"contrasts[{number}]: {wrong}")
        for axes in self.maps:
            if len(axes) != 2:
                raise StudyError(f"maps must be pairs of names, got {axes}")
        if not self.targets or not all(0 <= target < 100 for target in self.targets):
            raise StudyError(f"targets must be percentages below 100, got {self.targets}")
        for key, named, known in (
            ("tables", self.tables, _TABLES),
            ("figures", self.figures, _FIGURES),
        ):
            for name in named or ():
                if not _asked(name, known):
                    there = ", ".join(k + "..." if k[-1] == "-" else k for k in known)
                    raise StudyError(f"{key} names {name!r}; reports have {there}")
        if self.times is not None and not all(time > 0 for time in self.times):
            raise StudyError(f"times must be positive seconds, got {self.times}")


def run_comparison(
    study: SolverStudy,
    folder: Path | str,
    *,
    jobs: int = 1,
    cluster: str | None = None,
    rerun: Literal["failed", "timeout", "all"] | None = None,
    shard: str | None = None,
    data_dir: str | None = None,
    progress: bool | Callable[[Progress[Record]], None] = False,
) -> Comparison:
    """Run what is missing of a study and return all that it asks for."""
    from inference_lab.harness.campaign import InputError
    from inference_lab.harness.comparing import compare
    from inference_lab.reporting.comparison import Comparison

    store = RecordStore(Path(folder) / "runs.jsonl")
    labels = {as_solver(spec).spec: name for spec, name in study.labels.items()}
    stages = [{as_solver(spec).spec for spec in stage.solvers} for stage in study.stages]
    try:
        if jobs == 0:
            found = Comparison.of_store(_held(study, store))
            return Comparison(found.records, found.superseded, store.remarks, labels, stages)

        def compared(problems: list[str], solvers: list[str], limit: float) -> list[Record]:
            return compare(
                problems,
                solvers,
                seeds=study.seeds,
                time_limit=limit,
                clock=study.clock,
                trace_limit=study.trace_limit,
                jobs=jobs,
                cluster=cluster,
                store=store,
                rerun=rerun,
                # Stages look at all runs on a problem: their shards are of problems.
                shard=None if study.stages else shard,
                data_dir=data_dir,
                progress=progress,
            ).records

        records = []
        for problems in _batches(study, shard):
            done = compared(problems, study.solvers, study.time_limit)
            for stage in study.stages:
                if left := stage.chosen(problems, done):
                    limit = stage.time_limit or study.time_limit
                    done = done + compared(left, stage.solvers, limit)
            records += done
        return Comparison(records, remarks=store.remarks, labels=labels, stages=stages)
    except (InputError, SpecError) as problem:
        raise StudyError(str(problem)) from problem


def _batches(study: SolverStudy, shard: str | None) -> list[list[str]]:
    """Return the problems of a study in parts; of those with stages, the shard's only."""
    from inference_lab.harness.campaign import Shard

    problems = study.all_problems()
    if study.stages and shard is not None:
        problems = [problems[at] for at in Shard.parse(shard).of(range(len(problems)))]
    return [problems[at : at + _BATCH] for at in range(0, len(problems), _BATCH)]


def _held(study: SolverStudy, store: RecordStore) -> list[Record]:
    """Return the records that a store holds of a study, superseded ones included."""
    if not store.exists():
        raise StudyError(f"{store.path} does not exist: there is nothing to render yet")
    # Names are in the normal form of specs, without settings that are the default.
    problems = {problem_registry.make(spec).spec for spec in study.all_problems()}
    limits = {as_solver(spec).spec: study.time_limit for spec in study.solvers}
    for stage in study.stages:
        limit = stage.time_limit or study.time_limit
        limits |= {as_solver(spec).spec: limit for spec in stage.solvers}
    seeds = range(study.seeds) if isinstance(study.seeds, int) else study.seeds
    asked = (0.0, 1, 0, study.clock)
    return [
        record
        for record in store
        if record.problem in problems
        and record.solver in limits
        and record.time_limit == limits[record.solver]
        and record.seed in seeds
        and (record.temperature, record.threads, record.repeat, record.clock) == asked
    ]


def render_comparison(study: SolverStudy, comparison: Comparison, folder: Path | str) -> Document:
    """Write the report of a study into a folder and return it; see `write_document`."""
    from inference_lab.reporting.report import report_document
    from inference_lab.reporting.writing import write_document

    folder = Path(folder)
    held = read_known(folder / FILE)
    document = report_document(
        comparison,
        known=held,
        title=study.title,
        question=study.question,
        answer=study.answer.strip(),
        notes=study.notes,
        classes=study.classes,
        targets=study.targets,
        times=study.times,
        maps=[(first, second) for first, second in study.maps],
        growing=study.growing,
        contrasts=_in_specs(study),
        blocks=study.blocks,
        command=f"inference-lab reproduce {study.name}",
    )
    document = _chosen(with_answers(document, study.claims), study)
    write_document(document, folder)
    write_known(folder / FILE, merged(held, known_best(comparison.records)))
    return document


def _in_specs(study: SolverStudy) -> list[Contrast]:
    """Return the contrasts with solvers as the records name them."""
    names = {as_solver(spec).spec: label for spec, label in study.labels.items()}

    def called(solver: str) -> str:
        if solver not in study.all_solvers():
            return solver  # with names in braces
        spec = as_solver(solver).spec
        return str(names.get(spec, spec))

    return [
        replace(c, solver=called(c.solver), baseline=called(c.baseline)) for c in study.contrasts
    ]


def _asked(name: str, asked: Sequence[str] | None) -> bool:
    """Whether a table or figure is asked for, by its name or by how that begins."""
    return asked is None or any(
        name == each or (each[-1:] == "-" and name.startswith(each)) for each in asked
    )


def _chosen(document: Document, study: SolverStudy) -> Document:
    """Leave out tables and figures that a study does not ask for, and sections without any."""
    from inference_lab.reporting.document import Picture, Table

    def kept(block: Block) -> Block | None:
        if isinstance(block, Table):
            return block if _asked(block.name, study.tables) else None
        if isinstance(block, Picture):
            return block if _asked(block.name, study.figures) else None
        return block

    return document.changed(kept)
