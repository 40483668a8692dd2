"""Studies of solvers: problems, solvers and budgets in a file, run by `compare` and reported."""

from __future__ import annotations

import itertools
import math
import string
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from inference_lab.registry.registry import as_solver, problem_registry
from inference_lab.reporting.contrasts import Contrast
from inference_lab.results.known import FILE, known_best, merged, read_known, write_known
from inference_lab.results.records import Record, RecordStore
from inference_lab.specs.grammar import SpecError
from inference_lab.studies.reading import StudyError, read_field
from inference_lab.words import nearest

if TYPE_CHECKING:
    from inference_lab.harness.progress import Progress
    from inference_lab.reporting.comparison import Comparison
    from inference_lab.reporting.document import Block, Document, Section

__all__ = ["Grid", "SolverStudy", "render_comparison", "run_comparison"]

#: What the quick form of a study can change, besides the values of grids.
_QUICK = ("problems", "solvers", "seeds", "repeats", "time_limit")


#: Names of tables and figures that a report may have; those that end in a hyphen go on with the
#: names of what they are about. Which there are depends on the records.
_TABLES = (
    *(
        "contrasts",
        "summary",
        "classes",
        "best-solver-",
        "best-prover-",
        "targets",
        "quality-at-times",
    ),
    *(
        "wins",
        "wins-on-time",
        "ranks",
        "open-problems",
        "problems",
        "problem-",
        "log-z-",
        "failures",
    ),
    *("solvers", "limits", "environment"),
)
_FIGURES = (
    *("class-gaps", "best-solver-map-", "best-prover-map-", "performance-profile", "cactus"),
    "solved-over-time",
    *("gap-over-time", "convergence-", "critical-difference"),
)


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Problems that differ in some of their settings.

    Parameters
    ----------
    problem : str
        A spec with names in braces, such as ``"estep(data={data}, noise={noise})"``.
    values : mapping of str to list
        What each name stands for, in turn; all combinations are problems.
    """

    problem: str
    values: Mapping[str, Any] = field(default_factory=dict)

    def specs(self) -> Iterator[str]:
        """Yield the specs of the problems; the last name changes fastest."""
        for chosen in itertools.product(*self.values.values()):
            named = {
                name: str(value).lower() if isinstance(value, bool) else value
                for name, value in zip(self.values, chosen, strict=True)
            }
            yield self.problem.format(**named)

    def check(self, where: str) -> None:
        """Refuse names without values, values without names, and what is no list of values."""
        try:
            parts = list(string.Formatter().parse(self.problem))
        except ValueError as problem:
            raise StudyError(f"{where}.problem = {self.problem!r}: {problem}") from None
        names = {name for _, name, _, _ in parts if name is not None}
        # A format string can do more than name values, and nothing of that is meant here.
        for _, name, form, conversion in parts:
            if name is not None and (not name.isidentifier() or form or conversion):
                raise StudyError(f"{where}.problem: {{{name}}} is not a name in braces")
        if names != set(self.values):
            odd = sorted(names ^ set(self.values))[0]
            has = "has no values" if odd in names else "is not in the problem"
            raise StudyError(f"{where}.values: {odd!r} {has}")
        for name, values in self.values.items():
            if not isinstance(values, list) or not values:
                raise StudyError(f"{where}.values.{name} must be a list of values, got {values!r}")
            for value in values:
                if not isinstance(value, str | int | float):
                    raise StudyError(f"{where}.values.{name} has {value!r}, which is no value")


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
    solvers : list of str
        Specs.
    seeds, repeats, time_limit, temperature, threads
        As in `inference_lab.compare`.
    answer : str
        What the results say, in words, written by whoever looked at them.
    notes : list of str
    classes : str or None
        Entry of the problems' info that says which class a problem is of; by default its family.
    maps : list of [str, str]
        Pairs of entries of the problems' info, rows and columns of maps that say which solver is
        best where.
    contrasts : list of Contrast
        What is asked of the runs before they are made.
    blocks : str or None
        Entry of the problems' info that says of which block a problem is, such as its data set:
        ranks and intervals are over blocks. By default each problem is one.
    targets, times : list of float
        Primal gaps in percent the time to which is told; seconds at which the quality is told.
    labels : mapping of str to str
        What solvers are called in the report, by spec.
    tables, figures : list of str or None
        Names of those the report shows; all by default.
    quick : mapping
        Values of `problems`, `solvers`, `seeds`, `repeats`, `time_limit`, and of names of the grids
        in ``values``, for a look in a minute.

    Examples
    --------
    >>> graphs = Grid(problem="potts-grid(height={n}, width={n})", values={"n": [4, 8]})
    >>> study = SolverStudy(
    ...     title="Grids",
    ...     question="Who is fastest?",
    ...     grids=[graphs],
    ...     solvers=["icm", "trw-s"],
    ...     time_limit=1.0,
    ... )
    >>> study.check()
    """

    title: str
    question: str
    solvers: list[str]
    problems: list[str] = field(default_factory=list)
    grids: list[Grid] = field(default_factory=list)
    seeds: int | list[int] = 1
    repeats: int = 1
    time_limit: float
    temperature: float = 0.0
    threads: int = 1
    answer: str = ""
    notes: list[str] = field(default_factory=list)
    classes: str | None = None
    maps: list[list[str]] = field(default_factory=list)
    contrasts: list[Contrast] = field(default_factory=list)
    blocks: str | None = None
    targets: list[float] = field(default_factory=lambda: [1.0, 0.1])
    times: list[float] | None = None
    labels: Mapping[str, Any] = field(default_factory=dict)
    tables: list[str] | None = None
    figures: list[str] | None = None
    quick: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""

    def all_problems(self) -> list[str]:
        """Return the specs of all problems, those of the grids last.

        Returns
        -------
        list of str

        Examples
        --------
        >>> graphs = Grid(problem="ising(size={n}, seed={s})", values={"n": [4], "s": [1, 2]})
        >>> study = SolverStudy(
        ...     title="Grids", question="Who wins?", grids=[graphs], solvers=["icm"], time_limit=1.0
        ... )
        >>> study.all_problems()
        ['ising(size=4, seed=1)', 'ising(size=4, seed=2)']
        """
        return [*self.problems, *(spec for grid in self.grids for spec in grid.specs())]

    def quickly(self) -> SolverStudy:
        """Return the quick form.

        Returns
        -------
        SolverStudy

        Raises
        ------
        StudyError
            If it names something that the study has not, or cannot be run.

        Examples
        --------
        >>> study = SolverStudy(
        ...     title="Grids",
        ...     question="Who wins?",
        ...     grids=[Grid(problem="ising(size={n})", values={"n": [4, 8, 16]})],
        ...     solvers=["icm", "trw-s"],
        ...     time_limit=60.0,
        ...     quick={"solvers": ["icm"], "values": {"n": [4]}, "time_limit": 1.0},
        ... )
        >>> study.quickly().all_problems(), study.quickly().solvers
        (['ising(size=4)'], ['icm'])
        """
        quick = dict(self.quick)
        values = quick.pop("values", {})
        for key in quick:
            if key not in _QUICK:
                raise StudyError(f"quick.{key} is unknown; allowed: {', '.join(_QUICK)}, values")
        changes = {key: read_field(SolverStudy, key, quick[key], f"quick.{key}") for key in quick}
        for key in ("problems", "solvers"):
            for spec in changes.get(key, ()):
                if spec not in getattr(self, key):
                    raise StudyError(f"quick.{key} names {spec!r}, which the study does not have")
        if not isinstance(values, dict):
            raise StudyError(f"quick.values must be a table, got {values!r}")
        known = {name for grid in self.grids for name in grid.values}
        for name in values:
            if name not in known:
                raise StudyError(f"quick.values.{name} is in no grid")
        grids = [
            Grid(problem=g.problem, values={k: values.get(k, v) for k, v in g.values.items()})
            for g in self.grids
        ]
        labels = {k: v for k, v in self.labels.items() if k in changes.get("solvers", self.solvers)}
        there = changes.get("solvers", self.solvers)
        asked = [c for c in self.contrasts if {c.solver, c.baseline} <= {*there}]
        result = replace(self, **changes, grids=grids, labels=labels, contrasts=asked, quick={})
        result.check()
        return result

    def check(self) -> None:
        """Refuse what cannot be run.

        Specs are not looked into here; what cannot be made is said by `run_comparison`.

        Raises
        ------
        StudyError
            With the name of the entry that is wrong, and what is allowed.

        Examples
        --------
        >>> study = SolverStudy(
        ...     title="Grids",
        ...     question="Who wins?",
        ...     problems=["ising"],
        ...     solvers=["icm", "icm"],
        ...     time_limit=1.0,
        ... )
        >>> study.check()
        Traceback (most recent call last):
        ...
        inference_lab.studies.reading.StudyError: solvers has 'icm' more than once
        """
        for number, grid in enumerate(self.grids):
            grid.check(f"grids[{number}]")
        specs = self.all_problems()
        for key, listed in (("problems", specs), ("solvers", self.solvers)):
            if not listed:
                raise StudyError(f"{key} must not be empty")
            for spec, count in Counter(listed).items():
                if count > 1:
                    raise StudyError(f"{key} has {spec!r} more than once")
        for spec, label in self.labels.items():
            if spec not in self.solvers:
                raise StudyError(f"labels names {spec!r}{nearest(spec, self.solvers)}")
            if not isinstance(label, str) or not label.strip():
                raise StudyError(f"labels.{spec} must be text, got {label!r}")
        called = [self.labels.get(spec, spec) for spec in self.solvers]
        if len(set(called)) < len(called):
            raise StudyError(f"labels must differ, got {', '.join(called)}")
        seeds = self.seeds if isinstance(self.seeds, list) else [self.seeds]
        if not seeds or min(seeds) < (0 if isinstance(self.seeds, list) else 1):
            raise StudyError(f"seeds must be a number from 1 on or a list, got {self.seeds}")
        for key in ("repeats", "threads"):
            if getattr(self, key) < 1:
                raise StudyError(f"{key} must be at least 1, got {getattr(self, key)}")
        if not (math.isfinite(self.time_limit) and self.time_limit > 0):
            raise StudyError(f"time_limit must be positive seconds, got {self.time_limit}")
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise StudyError(f"temperature must not be negative, got {self.temperature}")
        for number, contrast in enumerate(self.contrasts):
            if wrong := contrast.problem(self.solvers):
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
                if not any(name == k or (k[-1] == "-" and name.startswith(k)) for k in known):
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
    trusted: bool = True,
) -> Comparison:
    """Run what is missing of a study and return all that it asks for.

    Parameters
    ----------
    study : SolverStudy
    folder : path
        ``runs.jsonl`` there holds what was run before, and gets each record when its run ends.
    jobs, cluster, rerun, shard, data_dir, progress
        As in `inference_lab.compare`; with `jobs` 0 nothing is run, and nothing is built.
    trusted : bool
        Whether its specs may name code and files outside the package and the data folder.

    Returns
    -------
    Comparison

    Raises
    ------
    StudyError
        If a problem or a solver cannot be made.

    Examples
    --------
    >>> import tempfile
    >>> study = SolverStudy(
    ...     title="Grids",
    ...     question="Who wins?",
    ...     problems=["potts-grid(height=3, width=3)"],
    ...     solvers=["brute-force"],
    ...     time_limit=10.0,
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = run_comparison(study, folder)
    ...     again = run_comparison(study, folder, jobs=0)
    >>> [(record.solver, record.status) for record in found.records]
    [('brute-force', 'optimal')]
    >>> found.records == again.records
    True
    """
    from inference_lab.harness.campaign import InputError
    from inference_lab.harness.comparing import compare
    from inference_lab.reporting.comparison import Comparison
    from inference_lab.specs.trust import untrusted

    store = RecordStore(Path(folder) / "runs.jsonl")
    try:
        with untrusted(trusted=trusted):
            if jobs == 0:
                found = Comparison.of_store(_held(study, store))
                labels = {as_solver(spec).spec: name for spec, name in study.labels.items()}
                return Comparison(found.records, found.superseded, store.remarks, labels)
            return compare(
                study.all_problems(),
                study.solvers,
                seeds=study.seeds,
                repeats=study.repeats,
                time_limit=study.time_limit,
                temperature=study.temperature,
                threads=study.threads,
                jobs=jobs,
                cluster=cluster,
                store=store,
                rerun=rerun,
                shard=shard,
                data_dir=data_dir,
                labels=study.labels,
                progress=progress,
            )
    except (InputError, SpecError) as problem:
        raise StudyError(str(problem)) from problem


def _held(study: SolverStudy, store: RecordStore) -> list[Record]:
    """Return the records that a store holds of a study, superseded ones included."""
    if not store.path.exists():
        raise StudyError(f"{store.path} does not exist: there is nothing to render yet")
    # Names are in the normal form of specs, without settings that are the default.
    problems = {problem_registry.make(spec).spec for spec in study.all_problems()}
    solvers = {as_solver(spec).spec for spec in study.solvers}
    seeds = range(study.seeds) if isinstance(study.seeds, int) else study.seeds
    asked = (study.time_limit, study.temperature, study.threads)
    return [
        record
        for record in store
        if record.problem in problems
        and record.solver in solvers
        and record.seed in seeds
        and record.repeat < study.repeats
        and (record.time_limit, record.temperature, record.threads) == asked
    ]


def render_comparison(study: SolverStudy, comparison: Comparison, folder: Path | str) -> Document:
    """Write the report of a study into a folder and return it; see `write_document`.

    Parameters
    ----------
    study : SolverStudy
    comparison : Comparison
        As `run_comparison` returns it.
    folder : path
        Gets the pages, tables and figures. The file ``best-known.jsonl.gz`` there keeps the best
        energy of each problem; what it holds from other runs counts as known.

    Returns
    -------
    Document
        With the tables and figures that the study asks for only.

    Examples
    --------
    >>> import tempfile
    >>> study = SolverStudy(
    ...     title="Grids",
    ...     question="Who wins?",
    ...     problems=["potts-grid(height=3, width=3)"],
    ...     solvers=["icm"],
    ...     time_limit=10.0,
    ...     tables=["summary"],
    ...     figures=[],
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     document = render_comparison(study, run_comparison(study, folder), folder)
    ...     text = (Path(folder) / "README.md").read_text(encoding="utf-8")
    >>> document.title, text.splitlines()[0]
    ('Grids', '# Grids')
    """
    from inference_lab.reporting.report import report_document
    from inference_lab.reporting.writing import write_document

    entry = study.classes
    folder = Path(folder)
    held = read_known(folder / FILE)
    document = report_document(
        comparison,
        known=held,
        title=study.title,
        question=study.question,
        answer=study.answer.strip(),
        notes=study.notes,
        classes=None if entry is None else lambda r: str(r.problem_info.get(entry, "other")),
        targets=study.targets,
        times=study.times,
        maps=[(first, second) for first, second in study.maps],
        contrasts=_in_specs(study),
        blocks=study.blocks,
        command=f"inference-lab reproduce {study.name}",
    )
    document = _chosen(document, study)
    write_document(document, folder)
    write_known(folder / FILE, merged(held, known_best(comparison.records)))
    return document


def _in_specs(study: SolverStudy) -> list[Contrast]:
    """Return the contrasts with solvers as the records name them."""
    names = {as_solver(spec).spec: label for spec, label in study.labels.items()}

    def called(solver: str) -> str:
        spec = as_solver(solver).spec
        return str(names.get(spec, spec))

    return [
        replace(c, solver=called(c.solver), baseline=called(c.baseline)) for c in study.contrasts
    ]


def _chosen(document: Document, study: SolverStudy) -> Document:
    """Leave out tables and figures that a study does not ask for, and sections without any."""
    from inference_lab.reporting.document import Picture, Table

    def kept(block: Block) -> bool:
        if isinstance(block, Table):
            return study.tables is None or block.name in study.tables
        if isinstance(block, Picture):
            return study.figures is None or block.name in study.figures
        return True

    def left(sections: tuple[Section, ...]) -> tuple[Section, ...]:
        chosen = (
            replace(
                section,
                blocks=tuple(block for block in section.blocks if kept(block)),
                sections=left(section.sections),
            )
            for section in sections
        )
        return tuple(section for section in chosen if section.blocks or section.sections)

    return replace(document, sections=left(document.sections))
