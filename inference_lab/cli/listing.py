"""``inference-lab list``."""

from __future__ import annotations

from typing import Any

import click

import inference_lab.cli.options as options
from inference_lab.cli.common import as_input, print_json, quiet_stdout, say


@click.command("list")
@click.argument("kind", type=click.Choice(["solvers", "problems", "estimators"]))
@click.argument("name", required=False)
@options.as_json
@options.debug
def list_names(kind: str, name: str | None, as_json: bool) -> None:
    """List solvers, problems or estimators of clustering, or show the settings of one by NAME."""
    if kind == "estimators":
        _list_estimators(name, as_json)
        return
    from inference_lab.registry.registry import problem_registry, solver_registry

    registry: Any = solver_registry if kind == "solvers" else problem_registry
    with as_input(), quiet_stdout():
        described: dict[str, Any] = (
            {each: {"description": line} for each, line in registry.available().items()}
            if name is None
            else {name: _described(registry.load(name))}
        )
    if as_json:
        print_json({"schema": 1, kind: described})
    elif name is None:
        width = max(map(len, described), default=0)
        for each, about in described.items():
            click.echo(f"{each:<{width}}  {about['description']}")
        say(f"\nSettings of one: inference-lab list {kind} NAME")
    else:
        missing = registry.missing(name)
        _print_one(f"{name} ({missing})" if missing else name, described[name])


def _list_estimators(name: str | None, as_json: bool) -> None:
    """List the estimators in groups, or show one of them."""
    from inference_lab import clustering
    from inference_lab.clustering.catalogue import ESTIMATORS
    from inference_lab.formatting import nearest

    groups = {each: group for group, members in ESTIMATORS.items() for each in members}
    if name is not None and name not in groups:
        allowed = ", ".join(groups)
        raise click.UsageError(
            f"{name!r} is no estimator{nearest(name, list(groups))} Allowed: {allowed}"
        )
    if name is not None:
        described = _described(getattr(clustering, name))
        if as_json:
            print_json({"schema": 1, "estimators": {name: described}})
        else:
            _print_one(name, described)
        return
    if as_json:
        found = {
            each: {"group": group, "description": members[each]}
            for group, members in ESTIMATORS.items()
            for each in members
        }
        print_json({"schema": 1, "estimators": found})
        return
    width = max(map(len, groups))
    for number, (group, members) in enumerate(ESTIMATORS.items()):
        click.echo(f"{chr(10) if number else ''}{group.capitalize()}")
        for each, case in members.items():
            click.echo(f"  {each:<{width}}  {case}")
    say("\nSettings of one: inference-lab list estimators NAME")


def _print_one(title: str, described: dict[str, Any]) -> None:
    """Print the documentation and the settings of one class."""
    click.echo(f"{title}\n\n{described['documentation']}\n\nSettings")
    settings = described["settings"]
    if not settings:
        click.echo("    (none)")
    for setting in settings:
        default = "required" if setting["required"] else f"default {setting['default']}"
        limits = f", {setting['range']}" if setting["range"] else ""
        click.echo(f"    {setting['name']}: {setting['type']}{limits}, {default}")


def _described(cls: Any) -> dict[str, Any]:
    """Return the documentation and the settings of a class."""
    import inspect
    import typing
    from dataclasses import MISSING, fields

    from inference_lab.specs.grammar import format_value
    from inference_lab.specs.settings import range_of

    documentation = inspect.getdoc(cls) or ""
    hints = typing.get_type_hints(cls)
    settings = []
    for field in fields(cls):
        if not field.init:
            continue
        default = field.default
        if default is MISSING and field.default_factory is not MISSING:
            default = field.default_factory()
        required = default is MISSING
        limits = range_of(field.metadata)
        settings.append(
            {
                "name": field.name,
                "type": _type_name(hints[field.name]),
                "range": None if limits is None else str(limits),
                "required": required,
                "default": None if required else format_value(default),
            }
        )
    return {"documentation": documentation, "settings": settings}


def _type_name(hint: Any) -> str:
    """Return a type as users write its values."""
    import types
    import typing

    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        return " | ".join(str(choice) for choice in typing.get_args(hint))
    if origin in (typing.Union, types.UnionType):
        return " | ".join(dict.fromkeys(_type_name(option) for option in typing.get_args(hint)))
    if hint in (complex, bytes) or getattr(hint, "__name__", "").startswith("_"):
        # The members of NumPy's union of all that makes an array.
        return "array"
    names = {int: "integer", float: "number", bool: "true | false", str: "text"}
    names |= {type(None): "none", typing.Any: "any"}
    return names.get(hint, getattr(hint, "__name__", str(hint)))
