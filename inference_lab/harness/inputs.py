"""The inputs of a comparison: prepared problems, seeds and run settings."""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Literal, TypeVar

import numpy as np

from inference_lab.contract import Solver
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.harness.campaign import InputError
from inference_lab.harness.isolated_run import one_line
from inference_lab.problem import Problem
from inference_lab.processes.shared_objects import Shared
from inference_lab.registry.sources import ProblemSource, as_problem, as_problems
from inference_lab.results.records import TRACE_LIMIT
from inference_lab.specs.grammar import SpecError, SpecSyntaxError
from inference_lab.specs.whole_numbers import as_whole

_T = TypeVar("_T")

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
class PreparedProblem(Shared):
    """A problem with cached graph properties, ready to be solved."""

    problem: Problem
    #: Seconds that building the problem took.
    setup_seconds: float
    #: Energy of the ground truth.
    truth_energy: float | None

    def restore(self) -> None:
        """Cache the graph properties again, which a pickle leaves out."""
        derive(self.problem.graph)


def load_problem(source: ProblemSource, data_dir: Path | None = None) -> Problem:
    """Build the only problem of a source; raise every failure as an `InputError` of one line."""
    return _loaded(as_problem, source, data_dir)


def _loaded(build: Callable[..., _T], source: ProblemSource, data_dir: Path | None) -> _T:
    try:
        return build(source, data_dir)
    except SpecSyntaxError as reason:
        raise InputError(str(reason)) from reason
    except SpecError as reason:
        raise InputError(one_line(reason)) from reason
    except Exception as reason:
        name = str(source) if isinstance(source, str | Path) else type(source).__name__
        message = one_line(reason)
        # Messages about files already begin with the path.
        where = "" if message.startswith(name) else f"problem {name!r}: "
        raise InputError(f"{where}{message}") from reason


def prepare_problems(source: ProblemSource, data_dir: Path | None) -> list[PreparedProblem]:
    """Build the problems of a source, and cache the properties of their graphs."""
    begin = perf_counter()
    instances = []
    for problem in _loaded(as_problems, source, data_dir):
        try:
            truth = None if problem.truth is None else float(problem.graph.energy(problem.truth))
            derive(problem.graph)
        except Exception as reason:
            raise InputError(f"problem {problem.name!r}: {one_line(reason)}") from reason
        # Setup is timed per problem; a source that builds a list charges it all to the first one.
        instances.append(PreparedProblem(problem, perf_counter() - begin, truth))
        begin = perf_counter()
    return instances


def derive(graph: FactorGraph) -> None:
    """Compute the cached properties of a graph, so that no solver is charged for their time."""
    for name in _DERIVED:
        getattr(graph, name)
    if graph.n_variables:
        graph.energy(np.zeros(graph.n_variables, dtype=np.int64))


# ---------------------------------------------------------------------- seeds and solvers


def seed_list(seeds: object) -> list[int]:
    """Return the seeds as a list; a number N means the seeds 0 to N - 1."""
    count = as_whole(seeds)
    values: list[object]
    if count is not None:
        values = list(range(count))
    elif isinstance(seeds, Iterable) and not isinstance(seeds, str):
        values = list(seeds)
    else:
        raise InputError(f"seeds must be a number of seeds or a sequence of them, got {seeds!r}")
    if not values:
        raise InputError(f"seeds must name at least one seed, got {seeds!r}")
    numbers = []
    for seed in values:
        number = as_whole(seed)
        if number is None or number < 0:
            raise InputError(f"a seed must be an integer and not negative, got {seed!r}")
        numbers.append(number)
    if len(set(numbers)) < len(numbers):
        raise InputError(f"seeds must differ, got {numbers}")
    return numbers


def refuse_repeats(kind: str, names: Sequence[str]) -> None:
    """Refuse an empty list, and repeated names."""
    if not names:
        raise InputError(f"no {kind}s are given")
    for name, count in Counter(names).items():
        if count > 1:
            raise InputError(f"{kind} {name!r} is given more than once")


def solver_source(solver: Solver) -> str:
    """Return a digest of the source file of a user's solver, empty for the library's solvers."""
    # The library's solvers have a version, which is raised when results change; a user's file may
    # be edited without one.
    module = type(solver).__module__
    if module.startswith("inference_lab."):
        return ""
    return _file_digest(getattr(sys.modules.get(module), "__file__", None) or "")


@cache
def _file_digest(path: str) -> str:
    # Cached, because a process runs the file as it was when imported.
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]
    except OSError:  # made in a notebook, or at the prompt
        return ""


@dataclass(frozen=True)
class RunSettings:
    """The settings that all runs of a comparison share."""

    #: Seconds.
    time_limit: float | None = None
    #: Clock of all reported seconds, see `inference_lab.solve`.
    clock: Literal["wall", "cpu"] = "wall"
    temperature: float = 0.0
    #: A gap that counts as a proof, in the unit of the costs.
    absolute_gap: float = 0.0
    #: Threads that numerical libraries may use.
    threads: int = 1
    #: Whether runs have processes of their own.
    isolated: bool = True
    #: Bytes of address space that a run may take beyond the loaded libraries, see `Limits.memory`.
    memory: int | Literal["auto"] | None = None
    #: Maximum number of trace points in a record.
    trace_limit: int = TRACE_LIMIT
