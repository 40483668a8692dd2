"""The inputs of a comparison: problems built, seeds listed, settings."""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Literal

import numpy as np

from inference_lab.contract import Solver
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.harness.campaign import InputError
from inference_lab.harness.isolated_run import one_line
from inference_lab.problem import Problem
from inference_lab.registry.sources import ProblemSource, as_problems
from inference_lab.results.records import TRACE_LIMIT
from inference_lab.specs.grammar import SpecError, SpecSyntaxError

__all__ = [
    "PreparedProblem",
    "ProblemSource",
    "RunSettings",
    "derive",
    "load_problem",
    "load_problems",
    "prepare_problems",
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


# ---------------------------------------------------------------------- problems


@dataclass(frozen=True)
class PreparedProblem:
    """A problem that is ready to be run on."""

    problem: Problem
    #: What building it took.
    setup_seconds: float
    #: Energy of the ground truth.
    truth_energy: float | None


def load_problems(source: ProblemSource, data_dir: Path | None = None) -> list[Problem]:
    """Do `as_problems`, with every failure turned into an `InputError` of one line."""
    try:
        problems = as_problems(source, data_dir)
        for problem in problems:
            if not isinstance(problem, Problem):
                raise TypeError(f"got a {type(problem).__name__}, not a Problem")
        return problems
    except SpecSyntaxError as reason:
        raise InputError(str(reason)) from reason
    except SpecError as reason:
        raise InputError(one_line(reason)) from reason
    except Exception as reason:
        name = str(source) if isinstance(source, str | Path) else type(source).__name__
        said = one_line(reason)
        # What is wrong with a file begins with its path.
        where = "" if said.startswith(name) else f"problem {name!r}: "
        raise InputError(f"{where}{said}") from reason


def load_problem(source: ProblemSource, data_dir: Path | None = None) -> Problem:
    """Do `load_problems` for a source that stands for one problem."""
    found = load_problems(source, data_dir)
    if len(found) != 1:
        raise InputError(
            f"{source} gives {len(found)} problems, and one is needed; give the number of one in "
            "brackets, as in module:object[0]"
        )
    return found[0]


def prepare_problems(source: ProblemSource, data_dir: Path | None) -> list[PreparedProblem]:
    """Build the problems that a source stands for, and what solvers derive from their graphs."""
    begin = perf_counter()
    instances = []
    for problem in load_problems(source, data_dir):
        try:
            truth = None if problem.truth is None else float(problem.graph.energy(problem.truth))
            derive(problem.graph)
        except Exception as reason:
            raise InputError(f"problem {problem.name!r}: {one_line(reason)}") from reason
        # Those of one source are made one after the other, or all at once with the first.
        instances.append(PreparedProblem(problem, perf_counter() - begin, truth))
        begin = perf_counter()
    return instances


def derive(graph: FactorGraph) -> None:
    """Compute what is derived from a graph once and cached, so that no solver pays for it."""
    for name in _DERIVED:
        getattr(graph, name)
    if graph.n_variables:
        graph.energy(np.zeros(graph.n_variables, dtype=np.int64))


# ---------------------------------------------------------------------- what is run on them


def seed_list(seeds: int | Iterable[int]) -> list[int]:
    """Return the seeds that a number N, for 0 to N - 1, or a sequence stands for."""
    if isinstance(seeds, bool | str) or not isinstance(seeds, int | Iterable):
        raise InputError(f"seeds must be a number of seeds or a sequence of them, got {seeds!r}")
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
    """Refuse an empty list, and one that names something twice."""
    if not names:
        raise InputError(f"no {kind}s are given")
    for name, count in Counter(names).items():
        if count > 1:
            raise InputError(f"{kind} {name!r} is given more than once")


def solver_source(solver: Solver) -> str:
    """Return a digest of the file of a solver from outside the library, empty for one of ours."""
    # Ours carry a version, which is raised when results change; others are edited.
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
class RunSettings:
    """The settings that all runs of a comparison share."""

    #: Seconds.
    time_limit: float | None = None
    #: What seconds are, see `inference_lab.solve`.
    clock: Literal["wall", "cpu"] = "wall"
    temperature: float = 0.0
    #: Threads that numerical libraries may use.
    threads: int = 1
    #: Whether runs have processes of their own.
    isolated: bool = True
    #: Bytes of address space that a run may take on top of what is loaded.
    memory: int | None = None
    #: Points of its history that a record keeps at most.
    trace_limit: int = TRACE_LIMIT
