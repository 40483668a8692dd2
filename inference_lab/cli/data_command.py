"""``inference-lab data``."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import click

import inference_lab.cli.options as options
from inference_lab.cli.common import as_input, print_json, print_note

_folder = click.option(
    "--data-dir",
    type=options.FOLDER,
    help="Folder of real data (default: $INFERENCE_LAB_DATA, or else the cache of this user).",
)


@click.group("data")
def data() -> None:
    """List and fetch published data sets."""


@data.command("list")
@_folder
@options.as_json
@options.debug
def list_sets(data_dir: Path | None, as_json: bool) -> None:
    """List the published sets.

    With --json also citations, addresses and checksums.
    """
    import msgspec
    from rich.console import Console
    from rich.filesize import decimal
    from rich.table import Table

    from inference_lab.data.folders import data_folder
    from inference_lab.data.published import published, stored

    root = data_folder(data_dir)
    table = Table("set", "group", "files", "size", "licence", "source", box=None, pad_edge=False)
    described = {}
    for name, one in published().items():
        present = sum(stored(root / file.path) is not None for file in one.files)
        described[name] = {**msgspec.to_builtins(one), "present": present}
        size = "by hand" if one.by_hand else decimal(sum(file.size for file in one.files))
        source = one.source.removeprefix("https://")
        files = f"{present}/{len(one.files)}"
        table.add_row(name, one.group, files, size, one.licence, source)
    if as_json:
        print_json({"folder": str(root), "sets": described})
        return
    console = Console(highlight=False, markup=False)
    console.print(table)
    console.print(f"\nfiles: present in {root}, of all in the set")
    console.print("by hand: no known address has the bytes that are read; addresses: --json")


@data.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@_folder
@click.option(
    "--mirror",
    metavar="FOLDER|ADDRESS",
    help="A data folder, or its address, from which files are taken (default: "
    "$INFERENCE_LAB_MIRROR, or else where they were published).",
)
@options.quiet
@options.debug
def fetch(names: tuple[str, ...], data_dir: Path | None, mirror: str | None, quiet: bool) -> None:
    """Fetch sets into the data folder.

    NAME is a set, a group (uci, text, image, map), or all. Checksums are
    verified. Files that are there already are kept, so the same command goes on after an
    interruption.
    """
    from rich.console import Console
    from rich.progress import track

    from inference_lab.data.folders import data_folder
    from inference_lab.data.published import choose, published
    from inference_lab.data.published import fetch as fetch_sets

    console = Console(stderr=True)
    hidden = quiet or not console.is_terminal
    bar = partial(track, console=console, description="Fetching", transient=True, disable=hidden)
    with as_input():
        n_new, n_present = fetch_sets(names, data_dir, mirror=mirror, progress=bar)
    if not quiet:
        sets = [published()[name] for name in choose(names)]
        for term in dict.fromkeys(f"{one.licence}: {one.citation}" for one in sets):
            print_note(term)
    click.echo(
        f"{n_new} files fetched into {data_folder(data_dir)}, {n_present} were there already"
    )


@data.command()
@_folder
@options.debug
def path(data_dir: Path | None) -> None:
    """Print the folder of data.

    The reason for this folder goes to standard error.
    """
    from inference_lab.data.folders import DATA_VARIABLE, data_folder

    click.echo(data_folder(data_dir))
    reason = f"${DATA_VARIABLE}" if os.environ.get(DATA_VARIABLE) else "the cache of this user"
    print_note(f"({'--data-dir' if data_dir is not None else reason})")
