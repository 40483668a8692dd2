"""Optional packages for some solvers or features, installed as extras.

A feature checks for its packages by `require` before it begins: figures and pages (``report``),
pictures in files (``images``).

The file of a solver declares its package in two constants, which listings read without import::

    #: The package that this solver needs, and the extra of inference-lab that installs it.
    PACKAGE = "ortools"
    EXTRA = "ortools"

The package is imported where it is used. Until it is installed, the listing of the solver shows
how to install it, and `Solver.missing` returns the same message.
"""

from __future__ import annotations

import importlib.util


class MissingExtra(ImportError):
    """Error for a missing package of a feature; its message explains how to install it."""


def how_to_install(package: str, extra: str) -> str | None:
    """Return how to install a package, or None if it is installed, without importing it."""
    try:
        is_installed = importlib.util.find_spec(package) is not None
    except ValueError:  # because a module without a specification is loaded under this name
        is_installed = True
    if is_installed:
        return None
    # Extras are installed from a clone, because the project is not on a package index.
    return f'not installed: pip install -e ".[{extra}]" in the folder of inference-lab'


def require(extra: str, *packages: str) -> None:
    """Raise `MissingExtra` if a package of an extra is not installed; import none."""
    for package in packages:
        reason = how_to_install(package, extra)
        if reason is not None:
            raise MissingExtra(f"{package} is {reason}", name=package)
