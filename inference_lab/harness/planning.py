"""What a comparison is going to run: problems built, solvers made, runs listed and put in order."""

from __future__ import annotations

import hashlib
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from inference_lab.contract import Solver
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.problem import Problem
from inference_lab.registry.sources import ProblemSource, as_problems
from inference_lab.results.records import Record, RunKey
from inference_lab.specs.grammar import SpecError

__all__ = [
    "Case",
    "InputError",
    "Plan",
    "ProblemSource",
    "Settings",
    "Shard",
    "Task",
    "build_cases",
    "derive",
    "load_problem",
    "load_problems",
    "one_line",
    "refuse_repeats",
    "seed_list",
    "solver_source",
]

#: Cached properties of a graph that several solvers use.
_DERIVED = (
    "arrays",
    "breadth_first_order",
    "components",
    "degrees",
    "has_infinite",
    "is_diagonal",
    "is_forest",
    "n_labels",
)


class InputError(ValueError):
    """Something `compare` was given cannot be used; nothing was run. One line says what."""


def one_line(problem: BaseException | str, limit: int = 400) -> str:
    """Return what an exception says, on one line and not too long."""
    try:
        text = " ".join(str(problem).split())
    except Exception:  # somebody's exception may do anything when it is looked at
        text = ""
    text = text or type(problem).__name__
    return text if len(text) <= limit else text[: limit - 3] + "..."


# ---------------------------------------------------------------------- problems


@dataclass(frozen=True)
class Case:
    """A problem that is ready to be run on.

    Parameters
    ----------
    problem : Problem
    setup_seconds : float
        What building it took.
    truth_energy : float or None
        Energy of the ground truth.
    """

    problem: Problem
    setup_seconds: float
    truth_energy: float | None


def load_problems(source: ProblemSource, data_dir: Path | None = None) -> list[Problem]:
    """Do `as_problems`, with every failure turned into an `InputError` of one line."""
    try:
        problems = as_problems(source, data_dir)
        for problem in problems:
            if not isinstance(problem, Problem):
                raise TypeError(f"got a {type(problem).__name__}, not a Problem")
        return problems
    except SpecError as reason:
        raise InputError(one_line(reason)) from reason
    except Exception as reason:
        name = source if isinstance(source, str | Path) else type(source).__name__
        raise InputError(f"problem {str(name)!r}: {one_line(reason)}") from reason


def load_problem(source: ProblemSource, data_dir: Path | None = None) -> Problem:
    """Do `load_problems` for a source that stands for one problem."""
    found = load_problems(source, data_dir)
    if len(found) != 1:
        raise InputError(
            f"{source} gives {len(found)} problems, and one is needed; give the number of one in "
            "brackets, as in module:object[0]"
        )
    return found[0]


def build_cases(source: ProblemSource, data_dir: Path | None) -> list[Case]:
    """Build the problems that a source stands for, and what solvers derive from their graphs.

    Raises
    ------
    InputError
        If one cannot be built.
    """
    begin = time.perf_counter()
    cases = []
    for problem in load_problems(source, data_dir):
        try:
            truth = None if problem.truth is None else float(problem.graph.energy(problem.truth))
            derive(problem.graph)
        except Exception as reason:
            raise InputError(f"problem {problem.name!r}: {one_line(reason)}") from reason
        # Those of one source are made one after the other, or all at once with the first.
        cases.append(Case(problem, time.perf_counter() - begin, truth))
        begin = time.perf_counter()
    return cases


def derive(graph: FactorGraph) -> None:
    """Compute what is derived from a graph once and cached, so that no solver pays for it."""
    for name in _DERIVED:
        getattr(graph, name)
    if graph.n_variables:
        graph.energy(np.zeros(graph.n_variables, dtype=np.int64))


# ---------------------------------------------------------------------- plans


def seed_list(seeds: int | Iterable[int]) -> list[int]:
    """Return the seeds that a number N, for 0 to N - 1, or a sequence stands for.

    Raises
    ------
    InputError
    """
    if isinstance(seeds, bool):
        raise InputError(f"seeds must be a number of seeds or a sequence of them, got {seeds}")
    chosen = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if not chosen:
        raise InputError(f"seeds must name at least one seed, got {seeds!r}")
    for seed in chosen:
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
            raise InputError(f"a seed must be an integer and not negative, got {seed!r}")
    if len(set(chosen)) < len(chosen):
        raise InputError(f"seeds must differ, got {chosen}")
    return [int(seed) for seed in chosen]


def refuse_repeats(kind: str, names: Sequence[str]) -> None:
    """Refuse an empty list, and one that names something twice.

    Raises
    ------
    InputError
    """
    if not names:
        raise InputError(f"no {kind}s are given")
    for name, count in Counter(names).items():
        if count > 1:
            raise InputError(f"{kind} {name!r} is given more than once")


def solver_source(solver: Solver) -> str:
    """Return a digest of the file of a solver from outside the library, empty for one of ours.

    Ours carry a version, which is raised when results change; others are edited.
    """
    module = type(solver).__module__
    if module.startswith("inference_lab."):
        return ""
    return _file_digest(getattr(sys.modules.get(module), "__file__", None) or "")


@cache
def _file_digest(path: str) -> str:
    # Once a process: what is run is what was imported.
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]
    except OSError:  # made in a notebook, or at the prompt
        return ""


@dataclass(frozen=True)
class Shard:
    """One of several equal shares of the runs, for queues of batch jobs.

    Parameters
    ----------
    index, count : int
        ``1 <= index <= count``.

    Examples
    --------
    >>> Shard.parse("2/8")
    Shard(index=2, count=8)
    """

    index: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read ``i/n``.

        Raises
        ------
        InputError
            If it is not of this form.
        """
        index, _, count = text.partition("/")
        digits = text.isascii() and index.isdecimal() and count.isdecimal()
        if digits and 1 <= int(index) <= int(count):
            return cls(int(index), int(count))
        raise InputError(f"a shard is given as i/n with 1 <= i <= n, such as 2/8, got {text!r}")


@dataclass(frozen=True)
class Settings:
    """What is the same in all runs of a comparison.

    Parameters
    ----------
    time_limit : float or None
        Seconds.
    temperature : float
    threads : int
        Threads that numerical libraries may use.
    isolated : bool
        Whether runs have processes of their own.
    memory : int or None
        Bytes of address space that a run may take on top of what is loaded.
    """

    time_limit: float | None = None
    temperature: float = 0.0
    threads: int = 1
    isolated: bool = True
    memory: int | None = None


class Task(NamedTuple):
    """One run: which problem and solver of the plan, the seed, and the number of the repeat."""

    case: int
    solver: int
    seed: int
    repeat: int


@dataclass
class Plan:
    """All runs of a comparison.

    Parameters
    ----------
    cases : list of Case
    solvers : list of Solver
    seeds : list of int
    repeats : int
        How many times the same is run.
    settings : Settings

    Attributes
    ----------
    tasks : list of Task
        Problem by problem, seed by seed, the solvers side by side.
    """

    cases: list[Case]
    solvers: list[Solver]
    seeds: list[int]
    repeats: int
    settings: Settings

    def __post_init__(self) -> None:
        """List the runs."""
        self.tasks = [
            Task(c, s, seed, repeat)
            for c in range(len(self.cases))
            for seed in self.seeds
            for repeat in range(self.repeats)
            for s in range(len(self.solvers))
        ]

    def key(self, task: Task) -> RunKey:
        """Return the key of the record that a run will have."""
        problem, solver = self.cases[task.case].problem, self.solvers[task.solver]
        return RunKey(
            problem.name,
            problem.graph.content_hash,
            solver.spec,
            solver.version,
            solver_source(solver),
            task.seed,
            task.repeat,
            self.settings.time_limit,
            self.settings.temperature,
            self.settings.threads,
        )

    def in_order(self, shard: Shard | None = None) -> list[int]:
        """Return numbers of tasks in the order in which they are run, the same at each call.

        Whole seeds first, so that what is stopped early covers all problems; within a seed,
        problems in random order and on each the solvers in random order, so that a machine that
        grows slower or busier does so for all of them.
        """
        draw = random.Random(0)
        place = {seed: at for at, seed in enumerate(self.seeds)}
        blocks: dict[tuple[int, int, int], list[int]] = {}
        for number, task in enumerate(self.tasks):
            block = (place[task.seed], task.repeat, task.case)
            blocks.setdefault(block, []).append(number)
        shuffled = {block: draw.random() for block in sorted(blocks)}
        order = []
        for block in sorted(blocks, key=lambda b: (b[0], b[1], shuffled[b])):
            draw.shuffle(blocks[block])
            order += blocks[block]
        return order if shard is None else order[shard.index - 1 :: shard.count]

    def missing(
        self, numbers: Iterable[int], kept: Mapping[RunKey, Record], rerun: str | None
    ) -> Iterator[int]:
        """Yield the numbers of those tasks that have to be run, given the records there are.

        Parameters
        ----------
        numbers : iterable of int
        kept : mapping of RunKey to Record
        rerun : {None, "failed", "timeout", "all"}
            Which of the runs that have records are run all the same.
        """
        for number in numbers:
            record = kept.get(self.key(self.tasks[number]))
            if record is None or rerun == "all":
                yield number
            elif (rerun == "failed" and record.failed) or rerun == record.status == "timeout":
                yield number
