"""``inference-lab list``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import click

import inference_lab.cli.options as options
from inference_lab.cli.common import as_input, print_json, print_note, quiet_stdout


@click.command("list")
@click.argument("kind", type=click.Choice(["solvers", "problems", "estimators"]))
@click.argument("name", required=False)
@options.as_json
@options.debug
def list_names(kind: str, name: str | None, as_json: bool) -> None:
    """List solvers, problems or clustering estimators, or show the settings of NAME."""
    with as_input(), quiet_stdout():
        groups, load, missing = _catalogue(kind)
        if name is not None:
            described: dict[str, Any] = {name: _described(load(name))}
        else:
            described = {
                entry: {**({"group": group} if group else {}), "description": line}
                for group, members in groups.items()
                for entry, line in members.items()
            }
    if as_json:
        print_json({kind: described})
        return
    if name is not None:
        reason = missing(name)
        _print_one(f"{name} ({reason})" if reason else name, described[name])
        return
    width = max(map(len, described), default=0)
    for number, (group, members) in enumerate(groups.items()):
        if group:
            click.echo(f"{chr(10) if number else ''}{group.capitalize()}")
        for entry, line in members.items():
            click.echo(f"{'  ' if group else ''}{entry:<{width}}  {line}")
    print_note(f"\nSettings of one: inference-lab list {kind} NAME")


def _catalogue(
    kind: str,
) -> tuple[Mapping[str, Mapping[str, str]], Callable[[str], Any], Callable[[str], str | None]]:
    """Return groups of names with descriptions, a loader, and a function for missing extras."""
    if kind == "estimators":
        from inference_lab import clustering
        from inference_lab.clustering.catalogue import ESTIMATORS

        return ESTIMATORS, partial(_estimator, clustering), lambda name: None
    from inference_lab.registry.descriptions import available, missing
    from inference_lab.registry.registry import solver_registry
    from inference_lab.registry.sources import problem_registry

    registry: Any = solver_registry if kind == "solvers" else problem_registry
    return {"": available(registry)}, registry.load, partial(missing, registry)


def _estimator(module: Any, name: str) -> Any:
    from inference_lab.clustering.catalogue import ESTIMATORS
    from inference_lab.formatting import nearest

    names = [estimator for members in ESTIMATORS.values() for estimator in members]
    if name not in names:
        raise click.UsageError(
            f"{name!r} is not an estimator{nearest(name, names)}; valid: {', '.join(names)}"
        )
    return getattr(module, name)


def _print_one(title: str, described: dict[str, Any]) -> None:
    """Print the documentation and the settings of one class."""
    click.echo(f"{title}\n\n{described['documentation']}\n\nSettings")
    for setting in described["settings"].values():
        click.echo(f"    {setting}")
    if not described["settings"]:
        click.echo("    (none)")


def _described(cls: Any) -> dict[str, Any]:
    """Return the documentation and the settings of a class."""
    import inspect
    import re

    settings = inspect.signature(cls).parameters
    return {
        "documentation": inspect.getdoc(cls) or "",
        "settings": {name: re.sub("['\"]", "", str(setting)) for name, setting in settings.items()},
    }
