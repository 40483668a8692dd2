"""Discovery of solvers and problem families: by file, by entry point, or in users' own code.

A module in ``inference_lab.solvers`` is a solver, a module in ``inference_lab.problems`` a problem
family; the file name with hyphens is the name. Nothing is imported until it is used: listings
read the first line of a file's docstring.

Users' own are named as ``module:object`` or ``path/to/file.py:object``. The object is a class, an
instance, or a function that returns one; settings in parentheses go to the class or the function.
A file with one class in it needs no ``:object``, and an item of a sequence is ``object[3]``. The
working directory is importable, as it is for ``python -m``.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.machinery
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from operator import attrgetter
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Generic, NamedTuple, TypeVar

from inference_lab.contract import Solver
from inference_lab.formatting import shortened
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.problem import Problem, ProblemFamily
from inference_lab.specs.extras import how_to_install
from inference_lab.specs.grammar import (
    Spec,
    SpecError,
    SpecSyntaxError,
    build,
    call,
    format_value,
    parse_spec,
    unknown,
)

_T = TypeVar("_T")

#: ``file.py``, ``file.py:object`` or ``module:object``, and the number of an item of a sequence.
#: The last ".py" counts: folders such as ".pyenv" have one in their names, too.
_PLACE = re.compile(
    r"(?:(?P<file>.*\.py)(?::(?P<in_file>[^:\[\]]*))?|(?P<module>\w+(?:\.\w+)*):(?P<object>[\w.]+))"
    r"(?:\[(?P<item>\d{1,9})\])?"
)


#: Abbreviations and other names of methods in the field, for suggestions only; those that parts,
#: initials and spelling of a name find by themselves are not here.
_IN_THE_FIELD = {
    **dict.fromkeys(("lbp", "max-product"), "loopy-bp"),
    "variational": "mean-field",
    **dict.fromkeys(("dual-decomposition", "dd"), "trw-s"),
    "tree-reweighted": "trw-bp",
    **dict.fromkeys(("lp", "linear-programming"), "lp-relaxation"),
    **dict.fromkeys(("highs", "gurobi", "cplex"), "ilp"),
    **dict.fromkeys(("bb", "bnb", "b&b", "cfn", "wcsp"), "branch-and-bound"),
    **dict.fromkeys(("ve", "variable-elimination", "bucket-elimination"), "junction-tree"),
    "viterbi": "tree-dp",
    **dict.fromkeys(("graph-cut", "graph-cuts"), "alpha-expansion"),
    "mcmc": "gibbs",
    **dict.fromkeys(("qpbo", "roof-duality"), "persistency"),
    **dict.fromkeys(("exhaustive", "enumeration"), "brute-force"),
    **dict.fromkeys(("coordinate-descent", "greedy"), "icm"),
    **dict.fromkeys(("evolutionary", "ga"), "memetic"),
    "cp": "ortools-cpsat",
    "sdp": "semidefinite",
}

#: How several solvers or problems are given, for messages.
_SEVERAL = {
    "solver": "several solvers are a list, or --solver NAME for each on the command line",
    "problem": "several problems are a list, or arguments of their own on the command line",
}


def names_code(text: str) -> bool:
    """Whether a spec names an object in a user's file or module."""
    return _PLACE.fullmatch(text.partition("(")[0].strip()) is not None


class _Place(NamedTuple):
    """Where a user's object is."""

    module: ModuleType
    where: str
    wanted: str
    item: int | None


class _Head(NamedTuple):
    """The line of a file in a listing, and the package that it needs, if any."""

    line: str
    package: str | None
    extra: str | None


@cache
def _head(path: Path) -> _Head:
    """Read a file without importing it; `specs.extras` has the names of the constants."""
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


#: Whether code of users may be imported here, see `user_code_refused`.
_user_code_allowed: ContextVar[bool] = ContextVar("user_code_allowed", default=True)


@contextmanager
def user_code_refused() -> Iterator[None]:
    """Refuse specs that name a user's file or module, for the duration of the block."""
    token = _user_code_allowed.set(False)
    try:
        yield
    finally:
        _user_code_allowed.reset(token)


#: Prefix of the names of this library's modules.
_OURS = "inference_lab."

#: How the names of modules begin that are loaded from users' files.
_LOADED = "inference_lab_user_"


class _AsItStands(importlib.machinery.SourceFileLoader):
    """Compile a file from its source, never from bytecode."""

    # Bytecode that is kept counts as current for a file of the same size and second: what was
    # edited at once would run as it was, and be recorded as what it is.

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def _failure(what: str, problem: Exception) -> SpecError:
    return SpecError(f"{what}: {type(problem).__name__}: {problem}")


def load_file(path: Path) -> ModuleType:
    """Import a Python file under a name of its own; the same file is imported once."""
    path = path.resolve()
    # The same in every process: pickles and the machine code of kernels name their module.
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:16]
    name = f"{_LOADED}{path.stem}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    loader = _AsItStands(name, str(path)) if path.suffix == ".py" else None
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if not path.exists():
        raise SpecError(f"{path} does not exist")
    if not path.is_file() or spec is None or spec.loader is None:
        raise SpecError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as problem:
        del sys.modules[name]
        raise _failure(f"{path} fails to import", problem) from problem
    return module


def load_module(name: str) -> ModuleType:
    """Import a module by its name, with the working directory importable."""
    folder = os.getcwd()
    if folder not in sys.path and "" not in sys.path:
        # For good, as with ``python -m``: modules may import others when they run.
        sys.path.insert(0, folder)
    importlib.invalidate_caches()  # the file may have been written a moment ago
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as problem:
        if problem.name is not None and f"{name}.".startswith(f"{problem.name}."):
            raise SpecError(
                f"there is no module {name!r} in {folder} or among what is installed"
            ) from problem
        raise SpecError(f"module {name!r} fails to import: {problem}") from problem
    except Exception as problem:
        raise _failure(f"module {name!r} fails to import", problem) from problem


def _named(loaded: type[_T], name: str) -> type[_T]:
    """Note the name under which a class from outside was found, so that its spec loads it again."""
    if not loaded.__module__.startswith(_OURS):
        setattr(loaded, "registered_as", name)  # noqa: B010  # the base is only known at run time
    return loaded


def _name_class_of(thing: Any, place: _Place) -> None:
    """Name the class of an object, so that the object's spec makes an equal one."""
    cls = type(thing)
    if cls.__module__.startswith(_OURS) or "registered_as" in vars(cls):
        return
    home = sys.modules.get(cls.__module__)
    try:
        reached = attrgetter(cls.__qualname__)(home)
    except AttributeError:
        reached = None
    if home is None or reached is not cls:
        raise SpecError(
            f"{place.where}:{place.wanted} is of the class {cls.__qualname__}, which cannot be "
            f"named: define it at the top level of {cls.__module__}"
        )
    where = place.where
    if home is not place.module:
        loaded_file = cls.__module__.startswith(_LOADED)
        where = str(home.__file__) if loaded_file else cls.__module__
    _named(cls, f"{where}:{cls.__qualname__}")


class Registry(Generic[_T]):
    """The classes of one kind that can be named in a spec string.

    Parameters
    ----------
    kind : str
        Their noun in messages.
    base : type
        Their base class.
    package : str
        The package whose modules they are; also the entry-point group for those from outside.
    besides : types
        Other types that users' objects may have, see `obtain`.
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
                except SpecError as problem:  # another package must not break the listing
                    lines[name] = str(problem)
        return dict(sorted(lines.items()))

    def missing(self, name: str) -> str | None:
        """Return how to install the package that a file of ours needs; None if it is there."""
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
        """Return the class of a registered name, ``module:Class`` or ``file.py[:Class]``."""
        place = self._place(name)
        if place is None:
            return self._registered(name)
        thing = self._at(place)
        if not isinstance(thing, type):
            raise SpecError(f"{name} is no class: {shortened(repr(thing))}")
        return self._usable(thing, name)

    def _registered(self, name: str) -> type[_T]:
        if name in self._files():
            module = importlib.import_module(f"{self.package}.{name.replace('-', '_')}")
            (found,) = self.classes_in(module).values()
            return found
        if name in self._entry_points():
            try:
                loaded: Any = self._entry_points()[name].load()
            except Exception as problem:
                raise _failure(f"{self.kind} {name!r} cannot be loaded", problem) from problem
            if not (isinstance(loaded, type) and issubclass(loaded, self.base)):
                raise SpecError(f"entry point {name!r} is no {self._what}: {loaded!r}")
            return _named(loaded, name)
        raise self._unknown(name)

    def _unknown(self, name: str) -> SpecError:
        """Make the error for a name that nothing is registered under."""
        place = {"solver": ", which a command takes as --solver NAME"}
        others: list[Registry[Any]] = [solver_registry, problem_registry]
        for other in others:
            if other is not self and name in other.names():
                where = place.get(other.kind, "")
                return SpecError(f"{name!r} is no {self.kind} but a {other.kind}{where}")
        if self is problem_registry:
            estep: Any = self._registered("estep")
            if name.lower() in estep.data_sets():
                made = f"estep(data={name.lower()})"
                return SpecError(f"{name!r} is a data set; a problem made of it is {made}")
        about = {known: _head(path).line for known, path in self._files().items()}
        elsewhere = _IN_THE_FIELD if self is solver_registry else None
        return unknown(self.kind, name, self.names(), about, elsewhere)

    # -------------------------------------------------------------- users' own

    def _place(self, name: str) -> _Place | None:
        """Import what a name in a user's code is in; None for a name of another kind."""
        if name in self._files() or name in self._entry_points():
            return None
        match = _PLACE.fullmatch(name)
        if match is None:
            return None
        if not _user_code_allowed.get():
            raise SpecError(
                f"{self.kind} {shortened(name)!r} is code from outside the package, and such code "
                "is refused here; the command reproduce runs it with --trust"
            )
        item = None if match["item"] is None else int(match["item"])
        if match["file"] is None:
            module = load_module(match["module"])
            return _Place(module, match["module"], match["object"], item)
        path = Path(match["file"])
        module = load_file(path)
        return _Place(module, str(path), match["in_file"] or self._only_class(path, module), item)

    def _only_class(self, path: Path, module: ModuleType) -> str:
        """Return the name of the class in a file that has just one."""
        found = self.classes_in(module)
        if not found:
            named = "".join(f"; name one as {path}:{name}" for name in self._offers(module)[:1])
            raise SpecError(f"{path} defines no {self._what}{named}")
        if len(found) > 1:
            raise SpecError(f"{path} defines several: name one as {path}:{next(iter(found))}")
        return next(iter(found))

    def _offers(self, module: ModuleType) -> list[str]:
        """Return the names in a module that may be meant: classes, objects, functions."""
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

    def _at(self, place: _Place) -> Any:
        try:
            return attrgetter(place.wanted)(place.module)
        except AttributeError:
            offers = self._offers(place.module)
            if offers:
                raise unknown(f"{self.kind} in {place.where}", place.wanted, offers) from None
            found_at = getattr(place.module, "__file__", None) or "built in"
            raise SpecError(
                f"{place.where} ({found_at}) has no {place.wanted!r}, and nothing that could be a "
                f"{self.kind}"
            ) from None

    def _usable(self, cls: type[Any], name: str) -> type[_T]:
        if not issubclass(cls, self.base):
            raise SpecError(f"{name} is a class, but no {self._what}")
        if inspect.isabstract(cls):
            missing = ", ".join(sorted(cls.__abstractmethods__))  # type: ignore[attr-defined]
            raise SpecError(f"{name} is an abstract class: it lacks {missing}")
        return _named(cls, name)

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
                    f"{shortened(whole)!r} is no name of one {self.kind}; {_SEVERAL[self.kind]}"
                ) from None
            if name in self.names():
                known = fields(self._registered(name))  # type: ignore[arg-type]
                settings = ", ".join(f.name for f in known if f.init) or "none"
                hint = f"; settings of {name}: {settings}"
                raise SpecSyntaxError(whole, at, expected, hint) from None
            # Several words where a name is wanted.
            if name == text.strip() and re.fullmatch(r"[\w-]+(\s+[\w-]+)+", name):
                raise self._unknown(name) from None
            raise

    def obtain(self, text: str) -> Any:
        """Make the object of a spec string, of any type that a user's object or function has."""
        # An object of this kind can be named by its own spec afterwards.
        spec = self._parsed(text)
        place = self._place(spec.name)
        if place is None:
            return build(self._registered(spec.name), spec.name, spec.settings)
        name = f"{place.where}:{place.wanted}"
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
            thing = _item(thing, place.item, name)
        if isinstance(thing, self.base):
            _name_class_of(thing, place)
        return thing

    def make(self, text: str) -> _T:
        """Make an instance from a spec string."""
        made = self.obtain(text)
        if not isinstance(made, self.base):
            raise SpecError(f"{shortened(text)} gives {shortened(repr(made))}, and no {self._what}")
        return made


def _item(things: Any, number: int, name: str) -> Any:
    if isinstance(things, str | Mapping) or not isinstance(things, Iterable):
        raise SpecError(f"{name} is no list, so it has no item {number}")
    listed = list(things)
    if number >= len(listed):
        raise SpecError(f"{name} has {len(listed)} items, so none of number {number}")
    return listed[number]


def item_spec(text: str, number: int) -> str:
    """Return the spec of one item of a sequence that a spec makes."""
    spec = parse_spec(text)
    settings = ", ".join(f"{key}={format_value(raw)}" for key, raw in spec.settings.items())
    return f"{spec.name}[{number}]" + (f"({settings})" if settings else "")


solver_registry: Registry[Solver] = Registry("solver", Solver, "inference_lab.solvers")  # type: ignore[type-abstract]
problem_registry: Registry[ProblemFamily] = Registry(
    "problem",
    ProblemFamily,  # type: ignore[type-abstract]
    "inference_lab.problems",
    (Problem, FactorGraph),
)


def available_solvers() -> dict[str, str]:
    """Return the registered solvers: names with one-line descriptions.

    Returns
    -------
    dict of str to str

    Examples
    --------
    >>> import inference_lab as il
    >>> il.available_solvers()["icm"]
    'Iterated conditional modes: change one label at a time while the energy falls'
    """
    return solver_registry.available()


def available_problems() -> dict[str, str]:
    """Return the registered problem families: names with one-line descriptions.

    Returns
    -------
    dict of str to str

    Examples
    --------
    >>> import inference_lab as il
    >>> "estep" in il.available_problems()
    True
    """
    return problem_registry.available()


#: Solvers of our own by their specs, which hold settings and nothing else; so many at most.
#: A small graph is solved in less time than it takes to read a spec.
_made: dict[str, Solver] = {}
_KEPT = 256


def as_solver(source: str | Solver) -> Solver:
    """Make a solver of a spec string; a solver object is returned as it is."""
    if isinstance(source, Solver):
        return source
    if not isinstance(source, str):
        raise TypeError(
            f"a solver is a spec string or a Solver object, got {source!r}"
            + (f"; an object of it is {source.__name__}()" if isinstance(source, type) else "")
        )
    if not _user_code_allowed.get():
        # A solver that was made before may hold a user's solver in a setting.
        return solver_registry.make(source)
    solver = _made.get(source)
    if solver is None or not _is_current(solver):
        solver = solver_registry.make(source)
        if is_ours(solver):
            if len(_made) >= _KEPT:
                _made.clear()
            _made[source] = solver
    return solver


def is_ours(solver: Solver) -> bool:
    """Whether a solver comes with the library."""
    return type(solver).__module__.startswith(f"{solver_registry.package}.")


def _is_current(solver: Solver) -> bool:
    """Whether its module still has the class as it is, and was not executed again."""
    cls = type(solver)
    return vars(sys.modules[cls.__module__]).get(cls.__name__) is cls
