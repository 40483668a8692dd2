"""``inference-lab report`` and ``merge``, for records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

import inference_lab.cli.options as options
from inference_lab.cli.common import BadInput, as_input, print_json, print_note

if TYPE_CHECKING:
    from inference_lab.results.records import RecordStore

_folder = click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))


def _runs(folder: Path) -> RecordStore:
    """Return the store of runs in a folder."""
    from inference_lab.harness.results_dir import find_store
    from inference_lab.results.records import RecordStore

    store = find_store(folder)
    if not isinstance(store, RecordStore):
        raise BadInput(
            f"{store.path} holds the fits of a study of clustering: inference-lab reproduce STUDY "
            "--render makes its report, with a CSV file of each table"
        )
    return store


@click.command()
@_folder
@click.option(
    "--out",
    type=options.FOLDER,
    help="Folder for the report (default: DIR/report).",
)
@click.option("--title", help="Title of the report (default: the name of the folder).")
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="SPEC=NAME",
    help="Name of a solver in the report; may be repeated.",
)
@click.option(
    "--older",
    is_flag=True,
    help="Show runs of earlier code of a solver, in rows of their own.",
)
@options.quiet
@options.as_json
@options.debug
def report(
    folder: Path,
    out: Path | None,
    title: str | None,
    labels: tuple[str, ...],
    older: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Render pages, tables and figures of the records in DIR, or of a file of records.

    Of a solver that was edited, or whose version has changed, the runs of its newest code count.
    Writes index.html (one self-contained file), README.md, tables as CSV and LaTeX, figures as SVG
    and PDF. The exit code is 1 if the records contradict each other.
    """
    from inference_lab.reporting.comparison import Comparison
    from inference_lab.reporting.report import report_document
    from inference_lab.reporting.writing import write_document

    with as_input():
        store = _runs(folder)
        comparison = Comparison.of_store(store, older=older)
        if not comparison.records:
            raise BadInput(f"{store.path} holds no records")
        # Split at the last equals sign, because specs contain some and names hardly do.
        named = [label.rpartition("=") for label in labels]
        try:
            comparison = comparison.labelled({spec: name for spec, _, name in named})
        except ValueError as problem:
            raise BadInput(f"--label: {problem}") from None
        if out is None:
            out = store.path.parent / "report"
        document = report_document(comparison, title=title or store.path.resolve().parent.name)
        paths = write_document(document, out)
    if as_json:
        print_json(
            {
                "folder": str(out),
                "files": [str(path.relative_to(out)) for path in paths],
                "alarms": list(document.alarms),
                "warnings": list(document.warnings),
            }
        )
    else:
        click.echo(out / "index.html")
        if not quiet:
            print_note(
                f"{len(paths)} files in {out}; tables as CSV and LaTeX, figures as SVG and PDF"
            )
            for warning in document.warnings:
                if warning not in store.remarks:  # printed when the store was read
                    print_note(f"note: {warning}")
    for alarm in document.alarms:
        print_note(f"contradiction: {alarm}")
    if document.alarms:
        click.get_current_context().exit(1)


@click.command()
@click.argument("folders", metavar="DIR...", nargs=-1, required=True)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    help="Folder that gets all records, or a file runs.jsonl.xz that gets them compressed.",
)
@options.debug
def merge(folders: tuple[str, ...], out: Path) -> None:
    """Merge the records of several folders, such as shards, into one folder."""
    from inference_lab.harness.results_dir import find_store, store_in
    from inference_lab.harness.results_dir import merge as merge_stores

    with as_input():
        sources = [find_store(folder) for folder in folders]
        target = store_in(out, sources[0])
        new, old = merge_stores(sources, target)
        if out.suffix == ".xz":
            target.compress()
    path = target.archive if out.suffix == ".xz" else target.path
    click.echo(f"{new} records added to {path}, {old} were there already")
