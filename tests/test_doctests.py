"""The examples in docstrings give what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

from inference_lab.specs.extras import how_to_install

#: Walked one by one: in a checkout, solvers and problems lie outside the folder of the package.
PACKAGES = ("inference_lab", "inference_lab.solvers", "inference_lab.problems")


def modules() -> list[str]:
    """Return the names of all modules of the package."""
    names = set(PACKAGES)
    for package in PACKAGES:
        path = importlib.import_module(package).__path__
        names |= {module.name for module in pkgutil.walk_packages(path, f"{package}.")}
    return sorted(names)


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
    """The class that a solver's or a problem's file is about shows how it is used."""
    assert ">>> " in "".join(
        value.__doc__ or ""
        for value in vars(importlib.import_module(name)).values()
        if isinstance(value, type) and value.__module__ == name
    )
