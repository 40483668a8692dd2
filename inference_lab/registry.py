"""Discovery of solvers and problem families: by file, by entry point, or from a user's file.

A module in ``inference_lab.solvers`` is a solver, a module in ``inference_lab.problems`` a problem
family; the file name with hyphens is the name. Nothing is imported until it is used: listings
read the first line of a file's docstring.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, NamedTuple, TypeVar

from inference_lab.contract import Solver
from inference_lab.extras import how_to_install
from inference_lab.problem import ProblemFamily
from inference_lab.spec import SpecError, build, parse_spec, unknown

_T = TypeVar("_T")


class _Head(NamedTuple):
    """What a listing says about a file: its first line, and the package that it needs, if any."""

    line: str
    package: str | None
    extra: str | None


@cache
def _head(path: Path) -> _Head:
    """Read a file without importing it; `inference_lab.extras` has the names of the constants."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstring = ast.get_docstring(tree)
    constants = {
        target.id: str(node.value.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return _Head(
        docstring.splitlines()[0].rstrip(".") if docstring else "",
        constants.get("PACKAGE"),
        constants.get("EXTRA"),
    )


def load_file(path: Path) -> ModuleType:
    """Import a Python file under a name of its own; the same file is imported once.

    Raises
    ------
    SpecError
        If the file does not exist or fails to import.
    """
    path = path.resolve()
    # The same in every process: pickles and the machine code of kernels name their module.
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:16]
    name = f"inference_lab_user_{path.stem}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise SpecError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as problem:
        del sys.modules[name]
        raise SpecError(f"{path} fails to import: {type(problem).__name__}: {problem}") from problem
    return module


def _named(loaded: type[_T], name: str) -> type[_T]:
    """Note the name under which a class from outside was found, so that its spec loads it again."""
    if not loaded.__module__.startswith(f"{__package__}."):
        setattr(loaded, "registered_as", name)  # noqa: B010  # the base is only known at run time
    return loaded


class Registry(Generic[_T]):
    """The classes of one kind that can be named in a spec string.

    Parameters
    ----------
    kind : str
        What they are called in messages.
    base : type
        Their base class.
    package : str
        The package whose modules they are; also the entry-point group for those from outside.
    """

    def __init__(self, kind: str, base: type[_T], package: str) -> None:
        self.kind = kind
        self.base = base
        self.package = package

    @cache  # noqa: B019  # the two registries live as long as the program
    def _files(self) -> dict[str, Path]:
        package = importlib.import_module(self.package)
        return {
            path.stem.replace("_", "-"): path
            for folder in package.__path__
            for path in sorted(Path(folder).glob("*.py"))
            if not path.stem.startswith("_")
        }

    @cache  # noqa: B019
    def _entry_points(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=self.package)}

    def names(self) -> list[str]:
        """Return all names, sorted."""
        return sorted({*self._files(), *self._entry_points()})

    def available(self) -> dict[str, str]:
        """Return names with one-line descriptions, without importing our own modules."""
        lines = {}
        for name, path in self._files().items():
            head = _head(path)
            missing = self.missing(name)
            lines[name] = f"{head.line} ({missing})" if missing else head.line
        for name in self._entry_points():
            if name not in lines:
                try:
                    lines[name] = (inspect.getdoc(self.load(name)) or "").split("\n")[0].rstrip(".")
                except SpecError as problem:  # somebody else's package must not break the listing
                    lines[name] = str(problem)
        return dict(sorted(lines.items()))

    def missing(self, name: str) -> str | None:
        """Return how to install the package that one of our own files needs; None if it is there.

        Examples
        --------
        >>> solver_registry.missing("icm")
        """
        path = self._files().get(name)
        head = None if path is None else _head(path)
        if head is None or head.package is None or head.extra is None:
            return None
        return how_to_install(head.package, head.extra)

    def classes_in(self, module: ModuleType) -> dict[str, type[_T]]:
        """Return the concrete classes of this kind that a module defines."""
        return {
            name: value
            for name, value in vars(module).items()
            if isinstance(value, type)
            and issubclass(value, self.base)
            and value.__module__ == module.__name__
            and not inspect.isabstract(value)
            and not name.startswith("_")
            and name == value.__name__  # a second name for a class does not make a second class
        }

    def load(self, name: str) -> type[_T]:
        """Return the class of a name: registered, or ``path/to/file.py[:Class]``.

        Raises
        ------
        SpecError
            If there is none; the message lists the valid names and the nearest match.
        """
        if name in self._files():
            module = importlib.import_module(f"{self.package}.{name.replace('-', '_')}")
            (found,) = self.classes_in(module).values()
            return found
        if name in self._entry_points():
            try:
                loaded: Any = self._entry_points()[name].load()
            except Exception as problem:
                raise SpecError(
                    f"{self.kind} {name!r} cannot be loaded: {type(problem).__name__}: {problem}"
                ) from problem
            if not (isinstance(loaded, type) and issubclass(loaded, self.base)):
                raise SpecError(f"entry point {name!r} is not a {self.base.__name__}: {loaded!r}")
            return _named(loaded, name)
        # The last ".py" counts: folders such as ".pyenv" have one in their names, too.
        place = re.fullmatch(r"(.*\.py)(?::(.*))?", name)
        if place:
            return self._from_file(Path(place[1]), place[2] or "")
        raise unknown(self.kind, name, self.names())

    def _from_file(self, path: Path, wanted: str) -> type[_T]:
        found = self.classes_in(load_file(path))
        if not found:
            raise SpecError(f"{path} defines no {self.base.__name__}")
        if wanted and wanted not in found:
            raise unknown(f"{self.kind} in {path}", wanted, found)
        if not wanted and len(found) > 1:
            raise SpecError(f"{path} defines several: name one as {path}:{next(iter(found))}")
        chosen = wanted or next(iter(found))
        return _named(found[chosen], f"{path}:{chosen}")

    def make(self, text: str) -> _T:
        """Make an instance from a spec string.

        Raises
        ------
        SpecError
            If the string cannot be read, or the name or a setting is unknown.
        """
        spec = parse_spec(text)
        return build(self.load(spec.name), spec.name, spec.settings)


solver_registry: Registry[Solver] = Registry("solver", Solver, "inference_lab.solvers")  # type: ignore[type-abstract]
problem_registry: Registry[ProblemFamily] = Registry(
    "problem",
    ProblemFamily,  # type: ignore[type-abstract]
    "inference_lab.problems",
)


def available_solvers() -> dict[str, str]:
    """Return the registered solvers: names with one-line descriptions."""
    return solver_registry.available()


def available_problems() -> dict[str, str]:
    """Return the registered problem families: names with one-line descriptions."""
    return problem_registry.available()


def as_solver(source: str | Solver) -> Solver:
    """Make a solver of a spec string; a solver object is returned as it is.

    Raises
    ------
    SpecError
        If the string cannot be used.
    TypeError
        If the object is not a solver.
    """
    if isinstance(source, Solver):
        return source
    if not isinstance(source, str):
        raise TypeError(f"a solver is a spec string or a Solver object, got {source!r}")
    return solver_registry.make(source)
