"""Discovery of solvers and problem families: by file, by entry point, or in user code.

A module in ``inference_lab.solvers`` is a solver, a module in ``inference_lab.problems`` a problem
family; its name is the file name with hyphens. Modules are imported when they are first used.

Objects in user code are named by their module or file, see `inference_lab.registry.user_code`.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import inspect
import re
from dataclasses import fields
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from inference_lab.contract import Solver
from inference_lab.formatting import shortened
from inference_lab.registry.user_code import (
    Place,
    find_place,
    import_error,
    item_of,
    register_class,
    register_class_of,
)
from inference_lab.specs.grammar import (
    Spec,
    SpecError,
    SpecSyntaxError,
    build,
    call,
    parse_spec,
    unknown,
)

_T = TypeVar("_T")

#: Hints on how to give several solvers or problems, for messages.
_SEVERAL = {
    "solver": "several solvers are a list, or --solver NAME for each on the command line",
    "problem": "several problems are a list, or arguments of their own on the command line",
}


class Registry(Generic[_T]):
    """The registry of classes of one kind that a spec string can name.

    Parameters
    ----------
    kind : str
        Noun for the classes in messages.
    base : type
        Their base class.
    package : str
        The package that contains their modules; also the entry-point group of other packages.
    besides : types
        Other allowed types of objects in user code, see `obtain`.
    """

    def __init__(
        self, kind: str, base: type[_T], package: str, besides: tuple[type, ...] = ()
    ) -> None:
        self.kind = kind
        self.base = base
        self.package = package
        self.besides = besides

    @property
    def _what(self) -> str:
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
        place = self._place(name)
        if place is None:
            return self._registered(name)
        thing = self._at(place)
        if not isinstance(thing, type):
            raise SpecError(f"{name} is not a class: {shortened(repr(thing))}")
        return self._usable(thing, name)

    def _registered(self, name: str) -> type[_T]:
        if name in self.files():
            module = importlib.import_module(f"{self.package}.{name.replace('-', '_')}")
            (found,) = self.classes_in(module).values()
            return found
        if name in self._entry_points():
            try:
                loaded: Any = self._entry_points()[name].load()
            except Exception as problem:
                raise import_error(f"{self.kind} {name!r} cannot be loaded", problem) from problem
            if not (isinstance(loaded, type) and issubclass(loaded, self.base)):
                raise SpecError(f"entry point {name!r} is not a {self._what}: {loaded!r}")
            return register_class(loaded, name)
        raise self._unknown(name)

    def _unknown(self, name: str) -> SpecError:
        """Make the error for an unregistered name."""
        return unknown(self.kind, name, self.names())

    # -------------------------------------------------------------- user code

    def _place(self, name: str) -> Place | None:
        """Return the place of an object in user code; None for registered names and other text."""
        if name in self.files() or name in self._entry_points():
            return None
        place = find_place(name, self.kind)
        if place is None or place.attribute is not None:
            return place
        return place._replace(attribute=self._only_class(place))

    def _only_class(self, place: Place) -> str:
        """Return the name of the only class in a file; raise if there are none or several."""
        found = self.classes_in(place.module)
        if not found:
            offers = self._offers(place.module)[:1]
            named = "".join(f"; name one as {place.source}:{name}" for name in offers)
            raise SpecError(f"{place.source} defines no {self._what}{named}")
        if len(found) > 1:
            first = next(iter(found))
            raise SpecError(f"{place.source} defines several: name one as {place.source}:{first}")
        return next(iter(found))

    def _offers(self, module: ModuleType) -> list[str]:
        """Return the candidate names in a module: classes, objects, functions."""
        functions = [
            name
            for name, value in vars(module).items()
            if inspect.isfunction(value)
            and value.__module__ == module.__name__
            and not name.startswith("_")
        ]
        objects = [
            name
            for name, value in vars(module).items()
            if isinstance(value, (self.base, *self.besides)) and not name.startswith("_")
        ]
        return [*self.classes_in(module), *objects, *functions]

    def _at(self, place: Place) -> Any:
        """Return the object at a place."""
        wanted = str(place.attribute)
        try:
            return attrgetter(wanted)(place.module)
        except AttributeError:
            offers = self._offers(place.module)
            if offers:
                raise unknown(f"{self.kind} in {place.source}", wanted, offers) from None
            found_at = getattr(place.module, "__file__", None) or "built in"
            raise SpecError(
                f"{place.source} ({found_at}) has no {wanted!r}, and nothing that could be a "
                f"{self.kind}"
            ) from None

    def _usable(self, cls: type[Any], name: str) -> type[_T]:
        if not issubclass(cls, self.base):
            raise SpecError(f"{name} is a class, but no {self._what}")
        if inspect.isabstract(cls):
            missing = ", ".join(sorted(cls.__abstractmethods__))  # type: ignore[attr-defined]
            raise SpecError(f"{name} is an abstract class: it lacks {missing}")
        return register_class(cls, name)

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
                known = fields(self._registered(name))  # type: ignore[arg-type]
                settings = ", ".join(f.name for f in known if f.init) or "none"
                hint = f"; settings of {name}: {settings}"
                raise SpecSyntaxError(whole, at, expected, hint) from None
            # The text is several words, so it is reported as an unknown name.
            if name == text.strip() and re.fullmatch(r"[\w-]+(\s+[\w-]+)+", name):
                raise self._unknown(name) from None
            raise

    def obtain(self, text: str) -> Any:
        """Build the object of a spec string; objects from user code may have any type."""
        spec = self._parsed(text)
        place = self._place(spec.name)
        if place is None:
            return build(self._registered(spec.name), spec.name, spec.settings)
        name = f"{place.source}:{place.attribute}"
        thing = self._at(place)
        if isinstance(thing, type):
            thing = build(self._usable(thing, name), name, spec.settings)
        elif callable(thing) and not isinstance(thing, self.base):
            thing = call(thing, name, spec.settings)
        elif spec.settings:
            raise SpecError(
                f"{name} is an object and takes no settings, got {next(iter(spec.settings))!r}"
            )
        if place.item is not None:
            thing = item_of(thing, place.item, name)
        if isinstance(thing, self.base):
            # The class is registered, so that the spec of the object rebuilds it.
            register_class_of(thing, place)
        return thing

    def make(self, text: str) -> _T:
        """Build an instance of the base class from a spec string."""
        made = self.obtain(text)
        if not isinstance(made, self.base):
            raise SpecError(f"{shortened(text)} gives {shortened(repr(made))}, and no {self._what}")
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
