"""Construction of problems from specs, paths, families, graphs, mappings and iterables."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeAlias

from inference_lab.formatting import shortened
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.problem import Problem, ProblemFamily
from inference_lab.registry.registry import Registry, solver_registry
from inference_lab.registry.user_code import names_code
from inference_lab.specs.grammar import MAX_LENGTH, SpecError, format_value, parse_spec
from inference_lab.specs.grammar import build as build_spec

ProblemSource: TypeAlias = (
    "str | Path | Problem | ProblemFamily | FactorGraph | tuple[str, FactorGraph]"
)


class _ProblemRegistry(Registry[ProblemFamily]):
    """The registry of problem families, with hints for names of solvers and data sets."""

    def _unknown(self, name: str) -> SpecError:
        if name in solver_registry.names():
            return SpecError(f"{name!r} is a solver, not a problem; pass it with --solver {name}")
        estep: Any = self._registered("estep")
        if name.lower() in estep.data_sets():
            made = f"estep(data={name.lower()})"
            return SpecError(f"{name!r} is a data set; a problem made of it is {made}")
        return super()._unknown(name)


problem_registry = _ProblemRegistry(
    "problem",
    ProblemFamily,  # type: ignore[type-abstract]
    "inference_lab.problems",
    (Problem, FactorGraph),
)


def as_problem(source: ProblemSource, data_dir: Path | None = None) -> Problem:
    """Build a `Problem` from a spec string, a model file, a family, a graph, or a problem."""
    problems = as_problems(source, data_dir)
    if len(problems) != 1:
        raise SpecError(
            f"{source} gives {len(problems)} problems, and one is needed; give the number of one "
            "in brackets, as in module:object[0]"
        )
    return problems[0]


def as_problems(
    source: ProblemSource | Iterable[ProblemSource], data_dir: Path | None = None
) -> list[Problem]:
    """Build the problems of a source, one or many."""
    # A spec such as ``my_module:problems`` may name several at once: an iterable of sources, or a
    # function that returns one. Unnamed problems are named by their spec,
    # ``my_module:problems[3]``; in any case ``info["spec"]`` holds the spec that rebuilds the
    # problem.
    return list(_problems(source, data_dir, ""))


def _problems(source: Any, data_dir: Path | None, spec: str) -> Iterator[Problem]:
    """Yield the problems of a source; `spec` is the spec of the source, or empty."""
    if isinstance(source, Problem):
        yield _changed(source, info={**source.info, "spec": spec}) if spec else source
    elif isinstance(source, FactorGraph):
        name = spec or f"graph-{source.content_hash[:8]}"
        yield Problem(name, source, info={"spec": spec} if spec else {})
    elif isinstance(source, ProblemFamily):
        problem = source.build(data_dir)
        settings = {f.name: getattr(source, f.name) for f in fields(source) if f.init}
        yield _changed(problem, info={**settings, **problem.info})
    elif isinstance(source, Path) or (isinstance(source, str) and _is_path(source)):
        family = build_spec(problem_registry.load("file"), "file", {"path": str(source)})
        yield from _problems(family, data_dir, spec)
    elif isinstance(source, str):
        made = problem_registry.obtain(source)
        yield from _problems(made, data_dir, source)
    elif _is_named_graph(source):
        name, graph = source
        yield Problem(name, graph, info={"spec": spec} if spec else {})
    elif isinstance(source, Mapping) and not spec:
        for name, one in source.items():
            yield from (_changed(p, name=str(name)) for p in _problems(one, data_dir, spec))
    elif isinstance(source, Iterable) and not isinstance(source, Mapping | bytes):
        for number, one in enumerate(source):
            yield from _problems(one, data_dir, _item_spec(spec, number) if spec else "")
    else:
        raise (SpecError if spec else TypeError)(
            "a problem is a spec, a path, a Problem, a ProblemFamily, a FactorGraph or (name, "
            f"graph), got {shortened(repr(source))}{f' from {shortened(spec)}' if spec else ''}"
        )


def _item_spec(text: str, number: int) -> str:
    """Return the spec of one item of the sequence given by a spec."""
    spec = parse_spec(text)
    settings = ", ".join(f"{key}={format_value(raw)}" for key, raw in spec.settings.items())
    return f"{spec.name}[{number}]" + (f"({settings})" if settings else "")


def _is_named_graph(source: Any) -> bool:
    """Whether a source is a pair of a name and a graph."""
    return (
        isinstance(source, tuple)
        and len(source) == 2
        and isinstance(source[0], str)
        and isinstance(source[1], FactorGraph)
    )


def _changed(problem: Problem, **changes: Any) -> Problem:
    """Return a copy of a problem, of the same class, with other fields."""
    twin = copy.copy(problem)
    for name, value in changes.items():
        object.__setattr__(twin, name, value)
    return twin


def _is_path(text: str) -> bool:
    """Whether a string looks like the path of a model file."""
    if len(text) > MAX_LENGTH:
        return False
    path = Path(text)
    try:
        if path.is_file() and path.suffix != ".py":
            return True
    except OSError:  # because a spec may be longer than a file name may be
        pass
    # Treated as a path, because no spec looks like this and the file error suggests similar names.
    return (path.suffix != "" or len(path.parts) > 1) and "(" not in text and not names_code(text)
