"""``inference-lab list``."""

from __future__ import annotations

from typing import Any

import click

import inference_lab.cli.options as options
from inference_lab.cli.common import as_input, print_json, quiet_stdout, say


@click.command("list")
@click.argument("kind", type=click.Choice(["solvers", "problems"]))
@click.argument("name", required=False)
@options.as_json
@options.debug
def list_names(kind: str, name: str | None, as_json: bool) -> None:
    """List the solvers or problems there are, or show the settings of one by NAME."""
    from inference_lab.registry.registry import problem_registry, solver_registry

    registry: Any = solver_registry if kind == "solvers" else problem_registry
    with as_input(), quiet_stdout():
        described: dict[str, Any] = (
            {each: {"description": line} for each, line in registry.available().items()}
            if name is None
            else {name: _described(registry, name)}
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
        click.echo(f"{name} ({missing})" if missing else name)
        click.echo(f"\n{described[name]['documentation']}\n\nSettings")
        _print_settings(described[name]["settings"])


def _print_settings(settings: list[dict[str, Any]]) -> None:
    if not settings:
        click.echo("    (none)")
    for setting in settings:
        default = "required" if setting["required"] else f"default {setting['default']}"
        limits = f", {setting['range']}" if setting["range"] else ""
        click.echo(f"    {setting['name']}: {setting['type']}{limits}, {default}")


def _described(registry: Any, name: str) -> dict[str, Any]:
    """Return the documentation and the settings of a class that specs can name."""
    import inspect
    import typing
    from dataclasses import MISSING, fields

    from inference_lab.specs.grammar import format_value
    from inference_lab.specs.settings import range_of

    cls = registry.load(name)
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
        return " | ".join(_type_name(option) for option in typing.get_args(hint))
    names = {int: "integer", float: "number", bool: "true | false", str: "text"}
    return "none" if hint is type(None) else names.get(hint, getattr(hint, "__name__", str(hint)))
