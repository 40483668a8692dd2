"""Discovery of solvers and problem families: by file, by entry point, or in user code.

A module in ``inference_lab.solvers`` is a solver, a module in ``inference_lab.problems`` a problem
family; its name is the file name with hyphens. Modules are imported when they are first used.

Objects in user code are named by their module or file, see `inference_lab.registry.user_code`.
"""

from __future__ import annotations

import importlib
import inspect
import re
from dataclasses import fields
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from inference_lab.contract import Solver
from inference_lab.formatting import shortened
from inference_lab.specs.grammar import (
    Spec,
    SpecError,
    SpecSyntaxError,
    build,
    import_error,
    parse_spec,
    unknown,
)
from inference_lab.specs.settings import register_class

_T = TypeVar("_T")

#: Hints on how to give several solvers or problems, for messages.
_SEVERAL = {
    "solver": "several solvers are a list, or --solver NAME for each on the command line",
    "problem": "several problems are a list, or arguments of their own on the command line",
}


class Registry(Generic[_T]):
    """The registry of classes of one kind that a spec string can name.

    `kind` is a noun for messages. The modules of `package` have the classes derived from `base`; it
    is also the entry-point group of other packages. For `besides`, other types in user code, see
    `obtain`.
    """

    def __init__(
        self, kind: str, base: type[_T], package: str, besides: tuple[type, ...] = ()
    ) -> None:
        self.kind = kind
        self.base = base
        self.package = package
        self.besides = besides

    @property
    def description(self) -> str:
        """The kind and its base class, for messages."""
        return f"{self.kind} (a class derived from inference_lab.{self.base.__name__})"

    @cache  # noqa: B019  # the two registries live as long as the program
    def files(self) -> dict[str, Path]:
        """Return the file in the package for each name."""
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
        return sorted({*self.files(), *self._entry_points()})

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
            and name == value.__name__  # aliases are skipped, because they are the same class
        }

    def load(self, name: str) -> type[_T]:
        """Load the class of a registered name, ``module:Class`` or ``file.py[:Class]``."""
        if name in self.files() or name in self._entry_points():
            return self._registered(name)
        cls: type[_T] = self._user_code(name).load_class(self, name)
        return cls

    def _user_code(self, name: str) -> Any:
        """Import `inference_lab.registry.user_code`; raise if the name does not name user code."""
        # Imported by name, because registered classes do not need it; tests/house.py declares it.
        user_code = importlib.import_module("inference_lab.registry.user_code")
        if not user_code.names_code(name):
            raise self._unknown(name)
        return user_code

    def _registered(self, name: str) -> type[_T]:
        if name in self.files():
            module = importlib.import_module(f"{self.package}.{name.replace('-', '_')}")
            (cls,) = self.classes_in(module).values()
            return cls
        try:
            loaded: Any = self._entry_points()[name].load()
        except Exception as problem:
            raise import_error(f"{self.kind} {name!r} cannot be loaded", problem) from problem
        if not (isinstance(loaded, type) and issubclass(loaded, self.base)):
            raise SpecError(f"entry point {name!r} is not a {self.description}: {loaded!r}")
        return register_class(loaded, name)

    def _unknown(self, name: str) -> SpecError:
        """Make the error for an unregistered name."""
        return unknown(self.kind, name, self.names())

    def _parsed(self, text: str) -> Spec:
        """Parse a spec; an error lists the names or settings that exist."""
        try:
            return parse_spec(text)
        except SpecSyntaxError as problem:
            whole, at, expected, _ = problem.args
            name = text.partition("(")[0].strip()
            words = re.split(r"[\s,]+", name)
            second = whole[at : at + 1] == "," and expected.endswith("the end")
            if second or (len(words) > 1 and {*words} <= {*self.names()}):
                raise SpecError(
                    f"{shortened(whole)!r} does not name one {self.kind}; {_SEVERAL[self.kind]}"
                ) from None
            if name in self.names():
                setting_fields = fields(self._registered(name))  # type: ignore[arg-type]
                settings = ", ".join(f.name for f in setting_fields if f.init) or "none"
                hint = f"; settings of {name}: {settings}"
                raise SpecSyntaxError(whole, at, expected, hint) from None
            # The text is several words, so it is reported as an unknown name.
            if name == text.strip() and re.fullmatch(r"[\w-]+(\s+[\w-]+)+", name):
                raise self._unknown(name) from None
            raise

    def obtain(self, text: str) -> Any:
        """Build the object of a spec string; objects from user code may have any type."""
        spec = self._parsed(text)
        if spec.name in self.files() or spec.name in self._entry_points():
            return build(self._registered(spec.name), spec.name, spec.settings)
        return self._user_code(spec.name).obtain(self, spec)

    def make(self, text: str) -> _T:
        """Build an instance of the base class from a spec string."""
        made = self.obtain(text)
        if not isinstance(made, self.base):
            raise SpecError(
                f"{shortened(text)} gives {shortened(repr(made))}, not a {self.description}"
            )
        return made


solver_registry: Registry[Solver] = Registry("solver", Solver, "inference_lab.solvers")  # type: ignore[type-abstract]


def as_solver(source: str | Solver) -> Solver:
    """Build a solver from a spec string; return a solver object unchanged."""
    if isinstance(source, Solver):
        return source
    if not isinstance(source, str):
        raise TypeError(
            f"a solver is a spec string or a Solver object, got {source!r}"
            + (f"; an object of it is {source.__name__}()" if isinstance(source, type) else "")
        )
    return solver_registry.make(source)


def is_ours(solver: Solver) -> bool:
    """Whether a solver is part of the library."""
    return type(solver).__module__.startswith(f"{solver_registry.package}.")
