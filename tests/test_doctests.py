"""The examples in docstrings give the stated results."""

from __future__ import annotations

import doctest
import functools
import importlib
import inspect
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest

from inference_lab.specs.extras import how_to_install

#: Walked one by one: in a checkout, solvers and problems are outside the package folder.
PACKAGES = ("inference_lab", "inference_lab.solvers", "inference_lab.problems")


def modules() -> list[str]:
    """Return the names of all modules of the package."""
    names = set(PACKAGES)
    for package in PACKAGES:
        path = importlib.import_module(package).__path__
        names |= {module.name for module in pkgutil.walk_packages(path, f"{package}.")}
    return sorted(names)


@pytest.mark.usefixtures("undrawn", "unforked")
@pytest.mark.parametrize("name", modules())
def test_examples(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All examples of a module pass."""
    monkeypatch.chdir(tmp_path)  # examples may write files
    module = importlib.import_module(name)
    if hasattr(module, "PACKAGE") and how_to_install(module.PACKAGE, module.EXTRA):
        pytest.skip(f"{module.PACKAGE} is not installed")
    results = doctest.testmod(module)
    assert results.failed == 0


@pytest.mark.parametrize(
    "name",
    [n for n in modules() if n.rpartition(".")[0] in PACKAGES[1:]],
)
def test_methods_and_families_have_an_example(name: str) -> None:
    """The main class of a solver's or a problem's file has an example."""
    assert ">>> " in "".join(
        value.__doc__ or ""
        for value in vars(importlib.import_module(name)).values()
        if isinstance(value, type) and value.__module__ == name
    )


#: Modules whose public names users call.
PUBLIC = (
    "inference_lab",
    "inference_lab.io",
    "inference_lab.convert",
    "inference_lab.conformance",
    "inference_lab.constraints",
    "inference_lab.contract",
    "inference_lab.clustering",
)


def inherits_its_docstring(owner: type, name: str) -> bool:
    """Return whether a method overrides one of a base class that is called in the same way."""
    method = getattr(owner, name)
    bases = [base for base in owner.__mro__[1:] if name in vars(base)]
    return bool(bases) and (
        not inspect.isroutine(method)
        or list(inspect.signature(method).parameters)
        == list(inspect.signature(getattr(bases[0], name)).parameters)
    )


@functools.cache
def public() -> dict[str, Any]:
    """Return all callables: functions, classes, and the methods that classes of ours have."""
    callables: dict[str, Any] = {}
    for module in map(importlib.import_module, PUBLIC):
        for thing in (getattr(module, name) for name in module.__all__):
            owners = [
                owner
                for owner in getattr(thing, "__mro__", ())
                if owner.__module__.startswith("inference_lab")
            ]
            methods = [
                getattr(value, "__func__", value)
                for owner in owners
                for name, value in vars(owner).items()
                if not name.startswith("_") and not inherits_its_docstring(owner, name)
            ]
            for item in [*owners[:1], *filter(inspect.isfunction, [thing, *methods])]:
                callables[f"{item.__module__}.{item.__qualname__}"] = item
    return callables


@pytest.mark.parametrize("name", sorted(public()))
def test_public_names_document_their_call(name: str) -> None:
    """Parameters, returned values, errors and an example, unless a base class gives them."""
    thing = public()[name]
    docstring = inspect.getdoc(thing) or ""
    sections = set(re.findall(r"^(\w+)\n-{3,}$", docstring, flags=re.MULTILINE))
    if inspect.isclass(thing):
        assert ">>> " in docstring or issubclass(thing, BaseException)
        return
    signature = inspect.signature(thing)
    wanted = {"Examples"}
    if set(signature.parameters) - {"self", "cls"}:
        wanted.add("Parameters")
    if signature.return_annotation not in ("None", None):
        wanted.add("Yields" if inspect.isgeneratorfunction(thing) else "Returns")
    if re.search(r"^ +raise \w", inspect.getsource(thing), flags=re.MULTILINE):
        wanted.add("Raises")
    assert wanted - sections == set()
