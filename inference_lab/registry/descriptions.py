"""One-line descriptions of solvers and problem families, read without importing them."""

from __future__ import annotations

import ast
import inspect
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from inference_lab.registry.registry import Registry, solver_registry
from inference_lab.registry.sources import problem_registry
from inference_lab.specs.extras import how_to_install
from inference_lab.specs.grammar import SpecError


class _Head(NamedTuple):
    """The description of a file in a listing, and its required package and extra, if any."""

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


def available(registry: Registry[Any]) -> dict[str, str]:
    """Return the names of a registry with one-line descriptions."""
    lines = {}
    for name, path in registry.files().items():
        head = _head(path)
        absent = missing(registry, name)
        lines[name] = f"{head.line} ({absent})" if absent else head.line
    for name in registry.names():
        if name not in lines:
            try:
                documented = inspect.getdoc(registry.load(name)) or ""
                lines[name] = documented.split("\n")[0].rstrip(".")
            except SpecError as problem:  # because a faulty package must not break the listing
                lines[name] = str(problem)
    return dict(sorted(lines.items()))


def missing(registry: Registry[Any], name: str) -> str | None:
    """Return how to install the package that a library file needs; None if it is installed."""
    path = registry.files().get(name)
    head = None if path is None else _head(path)
    if head is None or head.package is None or head.extra is None:
        return None
    return how_to_install(head.package, head.extra)


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
    return available(solver_registry)


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
    return available(problem_registry)
