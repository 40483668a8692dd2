"""Names that shells complete, told to click; with files, since solvers and problems may be some."""

from __future__ import annotations

from collections.abc import Mapping

import click
from click.shell_completion import CompletionItem

__all__ = ["complete_name", "complete_problem", "complete_solver", "complete_study"]


def _items(names: Mapping[str, str], incomplete: str, besides: str = "") -> list[CompletionItem]:
    """Return the names that go on from what is typed; and let the shell add files or folders."""
    found = [
        CompletionItem(name, help=line)
        for name, line in names.items()
        if name.startswith(incomplete)
    ]
    return [*found, CompletionItem(incomplete, type=besides)] if besides else found


def complete_solver(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return solvers and files."""
    from inference_lab.registry.registry import available_solvers

    return _items(available_solvers(), incomplete, "file")


def complete_problem(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return problem families and files."""
    from inference_lab.registry.registry import available_problems

    return _items(available_problems(), incomplete, "file")


def complete_name(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the names of the kind that is to be listed."""
    from inference_lab.registry.registry import available_problems, available_solvers

    listed = {"solvers": available_solvers, "problems": available_problems}
    names = listed.get(ctx.params.get("kind") or "")
    return [] if names is None else _items(names(), incomplete)


def complete_study(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the studies that come with the library, and folders."""
    from inference_lab.studies.discovery import available_studies

    return _items(dict.fromkeys(available_studies(), ""), incomplete, "dir")
