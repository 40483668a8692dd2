"""Packages that only some solvers or one feature need, installed as extras.

A feature checks for its packages by `require` before it begins: figures and pages (``report``),
pictures in files (``images``).

The file of such a solver declares it in two constants, which listings read without import::

    #: The package that this solver needs, and the extra of inference-lab that installs it.
    PACKAGE = "ortools"
    EXTRA = "ortools"

The package is imported where it is used. Until it is installed the solver is listed with how to
get it, and refuses every problem with the same words.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

__all__ = ["MissingExtra", "how_to_install", "plots", "require", "why_missing"]


class MissingExtra(ImportError):
    """A feature needs a package that is not installed; the message says how to install it."""


def how_to_install(package: str, extra: str) -> str | None:
    """Return None if a package is there, else how to install it, without importing it."""
    try:
        found = importlib.util.find_spec(package) is not None
    except ValueError:  # a module without a specification is loaded under this name
        found = True
    if found:
        return None
    # The project is on no index, so that an extra is installed from a clone.
    return f'not installed: pip install ".[{extra}]" in the folder of inference-lab'


def require(extra: str, *packages: str) -> None:
    """Refuse to go on without packages of an extra; none is imported."""
    for package in packages:
        reason = how_to_install(package, extra)
        if reason is not None:
            raise MissingExtra(f"{package} is {reason}", name=package)


def plots() -> Any:
    """Return the module that draws, by name as pandas does: the core does not import figures."""
    return importlib.import_module("inference_lab.plotting.plots")


def why_missing(solver: object) -> str | None:
    """Return None if a solver has all it needs, else how to install it."""
    module = sys.modules.get(type(solver).__module__)
    package, extra = getattr(module, "PACKAGE", None), getattr(module, "EXTRA", None)
    if package is None or extra is None:
        return None
    return how_to_install(package, extra)
