"""Studies of solvers: problems, solvers and budgets in a file, run by `compare` and reported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace

from inference_lab.formatting import nearest
from inference_lab.registry.registry import as_solver
from inference_lab.registry.sources import problem_registry
from inference_lab.reporting.answers import with_answers
from inference_lab.reporting.contrasts import Contrast
from inference_lab.results.records import TRACE_LIMIT, Limit, Record, RecordStore
from inference_lab.specs.grammar import SpecError
from inference_lab.studies.definition import Natural, StudyDefinition, StudyError, Values
from inference_lab.studies.designs import Design, Grid

if TYPE_CHECKING:
    from inference_lab.harness.progress import RunProgress
    from inference_lab.reporting.comparison import Comparison
    from inference_lab.reporting.document import Block, Document

#: Statuses of runs that solve a problem.
_SOLVED = ("optimal", "infeasible")

#: Number of problems that are built at a time, because the graphs of thousands fill the memory.
_BATCH = 240

#: Names of tables and figures that a report may have, depending on the records. A hyphen at the end
#: marks the prefix of a group, such as one table for each problem.
_TABLES = tuple(
    "contrasts claims gains- mixed- summary classes targets quality-at-times "
    "seconds-by-size gaps-by-size ranks problems problem- failures solvers "
    "limits environment".split()
)
_FIGURES = tuple(
    "performance-profile gain-map- seconds-by-size gap-over-time critical-difference".split()
)


#: A number of seeds, or a list of them.
Seeds = Natural | Annotated[list[Annotated[int, Meta(ge=0)]], Meta(min_length=1)]


class SolverStage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Further solvers, for the problems that other solvers have left open.

    Parameters
    ----------
    solvers : list of str
        Specs.
    unsolved_by : list of str
        Solvers of the study, or of earlier stages. The stage has the problems that none of these
        solvers has proved in any recorded run.
    time_limit : float or None
        Seconds; by default the limit of the study.
    """

    solvers: list[str]
    unsolved_by: list[str]
    time_limit: Limit | None = None

    def unsolved_problems(self, problems: Sequence[str], records: Sequence[Record]) -> list[str]:
        """Return the specs of the problems that are left open."""
        by = {as_solver(spec).spec for spec in self.unsolved_by}
        solved = {r.problem for r in records if r.solver in by and r.status in _SOLVED}
        return [spec for spec in problems if problem_registry.make(spec).spec not in solved]


class QuickForm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields that the quick form of a study (about a minute) replaces.

    Parameters
    ----------
    problems, solvers, seeds, time_limit
        As in `SolverStudy`; the time limit also replaces longer limits of stages.
    cells, draws : int
        As in `Design`, for all designs.
    values : mapping
        Values of names of the grids and designs.
    """

    problems: list[str] | UnsetType = UNSET
    solvers: list[str] | UnsetType = UNSET
    seeds: Seeds | UnsetType = UNSET
    time_limit: Limit | UnsetType = UNSET
    cells: Natural | UnsetType = UNSET
    draws: Natural | UnsetType = UNSET
    values: dict[str, Values] = {}


class SolverStudy(StudyDefinition, frozen=True, kw_only=True):
    """A study that compares solvers on problems, as its file defines it.

    Parameters
    ----------
    problems : list of str
        Specs.
    grids : list of Grid
        Further problems.
    designs : list of Design
        Further problems, sampled from ranges and lists of values.
    solvers : list of str
        Specs.
    stages : list of SolverStage
        Further solvers on some of the problems.
    seeds, time_limit, clock, trace_limit
        As in `inference_lab.compare`.
    classes : str or None
        Entry of the problems' info with the class of a problem; by default its family.
    growing : str or None
        Setting of the problems that determines their size.
    apart : str or None
        Entry of the problems' info whose values get separate columns in the table of energies by
        size, for energies of different kinds that must not be averaged.
    blocks : str or None
        Entry of the problems' info with the block of a problem, such as its data set: ranks and
        intervals are over blocks. By default each problem is a block.
    targets, times : list of float
        Primal gaps in percent, with the time to reach each; seconds, with the quality at each.
    labels : mapping of str to str
        Names of solvers in the report, by spec.
    tables, figures : list of str or None
        Names of the tables and figures of the report, or prefixes that end in a hyphen; all by
        default.
    quick : QuickForm
    """

    solvers: list[str]
    problems: list[str] = []
    grids: list[Grid] = []
    designs: list[Design] = []
    stages: list[SolverStage] = []
    seeds: Seeds = 1
    time_limit: Limit
    clock: Literal["wall", "cpu"] = "wall"
    trace_limit: Annotated[int, Meta(ge=2)] = TRACE_LIMIT
    classes: str | None = None
    growing: str | None = None
    apart: str | None = None
    blocks: str | None = None
    targets: Annotated[list[Annotated[float, Meta(ge=0.0, lt=100.0)]], Meta(min_length=1)] = (
        msgspec.field(default_factory=lambda: [1.0, 0.1])
    )
    times: list[Limit] | None = None
    labels: dict[str, Annotated[str, Meta(pattern=r"\S")]] = {}
    tables: list[str] | None = None
    figures: list[str] | None = None
    quick: QuickForm = QuickForm()

    def all_problems(self) -> list[str]:
        """Return the specs of all problems; grids and designs come last."""
        return [
            *self.problems,
            *(spec for problem_set in self._sets() for spec in problem_set.specs()),
        ]

    def _sets(self) -> list[Grid | Design]:
        return [*self.grids, *self.designs]

    def all_solvers(self) -> list[str]:
        """Return the specs of all solvers; the stages come last."""
        return [*self.solvers, *(spec for stage in self.stages for spec in stage.solvers)]

    def quickly(self) -> SolverStudy:
        """Return the quick form."""
        quick = msgspec.to_builtins(self.quick)
        values = quick.pop("values")
        sizes = {key: quick.pop(key) for key in ("cells", "draws") if key in quick}
        for key in ("problems", "solvers"):
            for spec in quick.get(key, ()):
                if spec not in getattr(self, key):
                    raise StudyError(f"quick.{key} names {spec!r}, which the study does not have")
        names = {name for problem_set in self._sets() for name in problem_set.values}
        for name in values:
            if name not in names:
                raise StudyError(f"quick.values.{name} is in no grid")

        def fewer(grid_values: dict[str, Any]) -> dict[str, Any]:
            return {k: values.get(k, v) for k, v in grid_values.items()}

        quick |= {
            "grids": [replace(grid, values=fewer(grid.values)) for grid in self.grids],
            "designs": [replace(d, values=fewer(d.values), **sizes) for d in self.designs],
        }
        limit = self.quick.time_limit
        if limit is not UNSET:
            quick["stages"] = [
                replace(stage, time_limit=min(limit, stage.time_limit or limit))
                for stage in self.stages
            ]
        result = replace(self, **quick, quick=QuickForm())
        there = result.all_solvers()
        labels = {k: v for k, v in self.labels.items() if k in there}
        result = replace(result.without_findings(there), labels=labels)
        result.check()
        return result

    def check(self) -> None:
        """Raise `StudyError` for a definition that cannot be run.

        Specs are not parsed here; `run_comparison` raises if one cannot be built.
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
        for spec in self.labels:
            if spec not in solvers:
                raise StudyError(f"labels names {spec!r}{nearest(spec, solvers)}")
        called = [self.labels.get(spec, spec) for spec in solvers]
        if len(set(called)) < len(called):
            raise StudyError(f"labels must differ, got {', '.join(called)}")
        self.check_contrasts(solvers)
        for key, named, available in (
            ("tables", self.tables, _TABLES),
            ("figures", self.figures, _FIGURES),
        ):
            for name in named or ():
                if not _asked(name, available):
                    there = ", ".join(k + "..." if k[-1] == "-" else k for k in available)
                    raise StudyError(f"{key} names {name!r}; reports have {there}")


def run_comparison(
    study: SolverStudy,
    folder: Path | str,
    *,
    jobs: int = 1,
    executor: Executor | None = None,
    rerun: str | Iterable[str] | None = None,
    shard: str | None = None,
    data_dir: str | None = None,
    progress: bool | Callable[[RunProgress[Record]], None] = False,
) -> Comparison:
    """Run the missing runs of a study and return the comparison of all its runs."""
    from inference_lab.harness.campaign import RERUN, InputError, rerun_words
    from inference_lab.harness.comparing import compare, solver_names
    from inference_lab.reporting.comparison import Comparison

    store = RecordStore(Path(folder) / "runs.jsonl")
    labels = {as_solver(spec).spec: name for spec, name in study.labels.items()}
    stages = [{as_solver(spec).spec for spec in stage.solvers} for stage in study.stages]
    try:
        if jobs == 0:
            comparison = Comparison.of_store(_stored_records(study, store))
            remarks = store.remarks + comparison.remarks
            return Comparison(comparison.records, comparison.superseded, remarks, labels, stages)
        everyone = [*study.solvers, *(spec for stage in study.stages for spec in stage.solvers)]
        words = rerun_words(rerun, frozenset().union(*map(solver_names, everyone)))

        def compared(problems: list[str], solvers: list[str], limit: float) -> list[Record]:
            names = frozenset(RERUN).union(*map(solver_names, solvers))
            return compare(
                problems,
                solvers,
                seeds=study.seeds,
                time_limit=limit,
                clock=study.clock,
                trace_limit=study.trace_limit,
                jobs=jobs,
                executor=executor,
                store=store,
                rerun=[word for word in words if word in names],
                # Studies with stages are sharded by problem, because a stage needs all runs on it.
                shard=None if study.stages else shard,
                data_dir=data_dir,
                progress=progress,
            ).records

        records = []
        for problems in _batches(study, shard):
            done = compared(problems, study.solvers, study.time_limit)
            for stage in study.stages:
                if unsolved := stage.unsolved_problems(problems, done):
                    limit = stage.time_limit or study.time_limit
                    done = done + compared(unsolved, stage.solvers, limit)
            records += done
        return Comparison(records, remarks=store.remarks, labels=labels, stages=stages)
    except (InputError, SpecError) as problem:
        raise StudyError(str(problem)) from problem


def _batches(study: SolverStudy, shard: str | None) -> list[list[str]]:
    """Return the problems in batches; for a study with stages, only the problems of the shard."""
    from inference_lab.harness.campaign import parse_shard, share_of

    problems = study.all_problems()
    if study.stages and shard is not None:
        problems = list(share_of(parse_shard(shard), problems))
    return [problems[at : at + _BATCH] for at in range(0, len(problems), _BATCH)]


def _stored_records(study: SolverStudy, store: RecordStore) -> list[Record]:
    """Return the records of a study in a store, including superseded ones."""
    if not store.exists():
        raise StudyError(f"{store.path} does not exist: there is nothing to render yet")
    # Specs are normalised because records hold them without settings that are the default.
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
    document = report_document(
        comparison,
        title=study.title,
        question=study.question,
        answer=study.answer.strip(),
        notes=study.notes,
        classes=study.classes,
        targets=study.targets,
        times=study.times,
        growing=study.growing,
        apart=study.apart,
        contrasts=_in_specs(study),
        blocks=study.blocks,
    )
    document = _with_requested_parts(with_answers(document, study.claims), study)
    write_document(document, folder)
    return document


def _in_specs(study: SolverStudy) -> list[Contrast]:
    """Return the contrasts with solvers named as in the records."""
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
    """Whether a table or figure is requested, by its name or by a prefix."""
    return asked is None or any(
        name == pattern or (pattern[-1:] == "-" and name.startswith(pattern)) for pattern in asked
    )


def _with_requested_parts(document: Document, study: SolverStudy) -> Document:
    """Leave out tables and figures that a study does not request, and empty sections."""
    from inference_lab.reporting.document import Picture, Table

    def requested(block: Block) -> Block | None:
        if isinstance(block, Table):
            return block if _asked(block.name, study.tables) else None
        if isinstance(block, Picture):
            return block if _asked(block.name, study.figures) else None
        return block

    return document.changed(requested)
