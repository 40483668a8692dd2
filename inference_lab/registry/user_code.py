"""Import of the user code that a spec names, which `user_code_refused` can disable.

The name is ``module:object`` or ``path/to/file.py:object``. The object is a class, an instance, or
a function that returns one; settings in parentheses go to the class or the function. A file with
only one class needs no ``:object``, and an item of a sequence is ``object[3]``. The working
directory is importable, as it is for ``python -m``.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.machinery
import importlib.util
import inspect
import os
import re
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from operator import attrgetter
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple, Protocol

from inference_lab.formatting import shortened
from inference_lab.specs.grammar import (
    Spec,
    SpecError,
    build,
    convert_settings,
    import_error,
    unknown,
)
from inference_lab.specs.settings import register_class

#: Prefix of the names of modules loaded from users' files.
_LOADED = "inference_lab_user_"

#: ``file.py``, ``file.py:object`` or ``module:object``, and the number of an item of a sequence.
#: The last ".py" counts, because folders such as ".pyenv" contain it, too.
_PLACE = re.compile(
    r"(?:(?P<file>.*\.py)(?::(?P<in_file>[^:\[\]]*))?|(?P<module>\w+(?:\.\w+)*):(?P<object>[\w.]+))"
    r"(?:\[(?P<item>\d{1,9})\])?"
)

#: Whether user code may be imported in this context, see `user_code_refused`.
_user_code_allowed: ContextVar[bool] = ContextVar("user_code_allowed", default=True)


@contextmanager
def user_code_refused() -> Iterator[None]:
    """Refuse specs that name a user's file or module, for the duration of the block."""
    token = _user_code_allowed.set(False)
    try:
        yield
    finally:
        _user_code_allowed.reset(token)


def names_code(text: str) -> bool:
    """Whether a spec names an object in a user's file or module."""
    return _PLACE.fullmatch(text.partition("(")[0].strip()) is not None


class Kind(Protocol):
    """The kind of objects that a spec may name, as a registry describes it."""

    #: A noun for messages, the base class, and other types that functions may return.
    kind: str
    base: type[Any]
    besides: tuple[type, ...]

    @property
    def description(self) -> str:
        """The kind and its base class, for messages."""

    def classes_in(self, module: ModuleType) -> Mapping[str, type[Any]]:
        """Return the concrete classes of this kind that a module defines."""


class Place(NamedTuple):
    """The place of an object in user code: its module, and its name there."""

    module: ModuleType
    #: The module or file as the user wrote it.
    source: str
    attribute: str
    #: The number of an item, if the object is a sequence.
    item: int | None


def find_place(registry: Kind, name: str) -> Place:
    """Import the module of a user's object whose name has that form, see `names_code`."""
    match = _PLACE.fullmatch(name)
    assert match is not None
    if not _user_code_allowed.get():
        raise SpecError(
            f"{registry.kind} {shortened(name)!r} is code from outside the package, and such code "
            "is refused here; the command reproduce runs it with --trust"
        )
    item = None if match["item"] is None else int(match["item"])
    if match["file"] is None:
        return Place(load_module(match["module"]), match["module"], match["object"], item)
    path = Path(match["file"])
    module = load_file(path)
    attribute = match["in_file"] or _only_class(registry, module, path)
    return Place(module, str(path), attribute, item)


def _only_class(registry: Kind, module: ModuleType, source: Path) -> str:
    """Return the name of the only class in a file; raise if there are none or several."""
    names = list(registry.classes_in(module))
    if not names:
        offers = _offers(registry, module)[:1]
        named = "".join(f"; name one as {source}:{name}" for name in offers)
        raise SpecError(f"{source} defines no {registry.description}{named}")
    if len(names) > 1:
        raise SpecError(f"{source} defines several: name one as {source}:{names[0]}")
    return names[0]


def _offers(registry: Kind, module: ModuleType) -> list[str]:
    """Return the candidate names in a module: classes, objects, functions."""
    public = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    functions = [
        name
        for name, value in public.items()
        if inspect.isfunction(value) and value.__module__ == module.__name__
    ]
    kinds = (registry.base, *registry.besides)
    objects = [name for name, value in public.items() if isinstance(value, kinds)]
    return [*registry.classes_in(module), *objects, *functions]


def _object_at(registry: Kind, place: Place) -> Any:
    """Return the object at a place."""
    try:
        return attrgetter(place.attribute)(place.module)
    except AttributeError:
        offers = _offers(registry, place.module)
        if offers:
            kind = f"{registry.kind} in {place.source}"
            raise unknown(kind, place.attribute, offers) from None
        found_at = getattr(place.module, "__file__", None) or "built in"
        raise SpecError(
            f"{place.source} ({found_at}) has no {place.attribute!r}, and nothing that could be a "
            f"{registry.kind}"
        ) from None


def _usable(registry: Kind, cls: type[Any], name: str) -> type[Any]:
    """Return a concrete class of the kind, with its name stored; raise for any other class."""
    if not issubclass(cls, registry.base):
        raise SpecError(f"{name} is not a {registry.description}")
    if inspect.isabstract(cls):
        missing = ", ".join(sorted(cls.__abstractmethods__))
        raise SpecError(f"{name} is an abstract class: it lacks {missing}")
    return register_class(cls, name)


def load_class(registry: Kind, name: str) -> type[Any]:
    """Load the class named ``module:Class`` or ``file.py[:Class]``."""
    thing = _object_at(registry, find_place(registry, name))
    if not isinstance(thing, type):
        raise SpecError(f"{name} is not a class: {shortened(repr(thing))}")
    return _usable(registry, thing, name)


def obtain(registry: Kind, spec: Spec) -> Any:
    """Return the object of a spec, made by its class or function if it names one."""
    place = find_place(registry, spec.name)
    name = f"{place.source}:{place.attribute}"
    thing = _object_at(registry, place)
    if isinstance(thing, type):
        thing = build(_usable(registry, thing, name), name, spec.settings)
    elif callable(thing) and not isinstance(thing, registry.base):
        thing = call(thing, name, spec.settings)
    elif spec.settings:
        raise SpecError(
            f"{name} is an object and takes no settings, got {next(iter(spec.settings))!r}"
        )
    if place.item is not None:
        thing = item_of(thing, place.item, name)
    if isinstance(thing, registry.base):
        # The class is registered, so that the spec of the object rebuilds it.
        register_class_of(thing, place)
    return thing


class _SourceLoader(importlib.machinery.SourceFileLoader):
    """Compile a file from its source, never from bytecode."""

    # Bytecode is ignored, because Python considers it current if the source has the same size and
    # time in seconds. A file edited within a second would run its old version.

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def load_file(path: Path) -> ModuleType:
    """Import a Python file under a unique module name; import each file only once."""
    path = path.resolve()
    # The name is the same in every process, because pickles and cached kernels refer to it.
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:16]
    name = f"{_LOADED}{path.stem}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    loader = _SourceLoader(name, str(path)) if path.suffix == ".py" else None
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
        raise import_error(f"{path} fails to import", problem) from problem
    return module


def load_module(name: str) -> ModuleType:
    """Import a module by its name, with the working directory importable."""
    folder = os.getcwd()
    if folder not in sys.path and "" not in sys.path:
        # Added permanently, as with ``python -m``, because modules may import others at run time.
        sys.path.insert(0, folder)
    importlib.invalidate_caches()  # because the file may be new
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as problem:
        if problem.name is not None and f"{name}.".startswith(f"{problem.name}."):
            raise SpecError(
                f"there is no module {name!r} in {folder} or among the installed packages"
            ) from problem
        raise SpecError(f"module {name!r} fails to import: {problem}") from problem
    except Exception as problem:
        raise import_error(f"module {name!r} fails to import", problem) from problem


def register_class_of(thing: Any, place: Place) -> None:
    """Store the name of an object's class, so that the object's spec builds an equal object."""
    cls = type(thing)
    if cls.__module__.startswith("inference_lab.") or "registered_as" in vars(cls):
        return
    home = sys.modules.get(cls.__module__)
    try:
        reached = attrgetter(cls.__qualname__)(home)
    except AttributeError:
        reached = None
    if home is None or reached is not cls:
        raise SpecError(
            f"{place.source}:{place.attribute} is of the class {cls.__qualname__}, which cannot be "
            f"named: define it at the top level of {cls.__module__}"
        )
    where = place.source
    if home is not place.module:
        loaded_file = cls.__module__.startswith(_LOADED)
        where = str(home.__file__) if loaded_file else cls.__module__
    register_class(cls, f"{where}:{cls.__qualname__}")


def call(function: Callable[..., Any], name: str, settings: dict[str, str | None]) -> Any:
    """Call a function with raw settings as keyword arguments, converted by its annotations.

    Values without an annotation are converted by `plain_value`; ``none`` is None.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
        hints = typing.get_type_hints(function)
    except (ValueError, TypeError, NameError):  # built in, or annotated with unknown names
        parameters = {}.values()
        hints = {}
    keywords = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    needed = [p.name for p in keywords if p.default is p.empty]
    allowed_names = [p.name for p in keywords]
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        allowed_names += settings
    values = convert_settings(name, settings, allowed_names, needed, hints)
    try:
        return function(**values)
    except (SpecError, OSError):
        raise
    except Exception as problem:
        raise SpecError(f"{name} fails: {type(problem).__name__}: {problem}") from problem


def item_of(things: Any, number: int, name: str) -> Any:
    """Return one item of a sequence or another iterable."""
    if isinstance(things, str | Mapping) or not isinstance(things, Iterable):
        raise SpecError(f"{name} is not a list, so it has no item {number}")
    listed = list(things)
    if number >= len(listed):
        raise SpecError(f"{name} has {len(listed)} items, so none of number {number}")
    return listed[number]
