"""``inference-lab cluster``."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING

import click

import inference_lab.cli.options as options
from inference_lab.cli.common import as_input, print_json, quiet_stdout, reporter

if TYPE_CHECKING:
    from inference_lab.data.table_features import Encode, Impute, Scale

_DATA = click.Path(exists=True, dir_okay=False, path_type=Path)
#: Largest width of a range of numbers of clusters, each of which takes several fits.
_MOST_NUMBERS = 100


_K_ALLOWED = "give auto, a number of at least 1, a range such as 2-6, or a list such as 2,3,5"


def as_numbers_of_clusters(
    ctx: click.Context, param: click.Parameter, value: str
) -> int | list[int] | str:
    """Parse a number of clusters, several as a list or range, or ``auto``."""
    if value == "auto":
        return value
    numbers: set[int] = set()
    for part in value.split(","):
        first, dash, last = (word.strip() for word in part.partition("-"))
        if not first.isdecimal() or not (last.isdecimal() or not dash):
            raise click.BadParameter(f"{value!r}: {_K_ALLOWED}")
        low, high = int(first), int(last or first)
        if not 1 <= low <= high or high - low > _MOST_NUMBERS:
            raise click.BadParameter(f"{value!r}: {_K_ALLOWED}")
        numbers.update(range(low, high + 1))
    return sorted(numbers) if len(numbers) > 1 else numbers.pop()


def as_names(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...]:
    """Parse names with commas between them; quotes enclose names that hold commas."""
    if value is None:
        return ()
    (names,) = csv.reader([value], skipinitialspace=True)
    if len(names) not in (3, 4):
        raise click.BadParameter(
            f"{value!r}: give three names with commas, or a fourth for the weights, such as "
            "first,second,same"
        )
    return tuple(name.strip() for name in names)


@click.command()
@click.argument("data", metavar="DATA", type=_DATA)
@click.option(
    "--pairs",
    type=_DATA,
    help="File with the columns i, j, kind (must-link or cannot-link), and perhaps weight.",
)
@click.option(
    "--pair-columns",
    metavar="I,J,KIND",
    callback=as_names,
    help="Names of these columns in the pairs.",
)
@click.option(
    "--k",
    callback=as_numbers_of_clusters,
    default="auto",
    help="Number of clusters, or several, such as 2-6 or 2,3,5, chosen by the pairs; auto: 2-10.",
)
@click.option("--id", "name", metavar="COLUMN", help="Names of rows, as in the pairs.")
@click.option("--drop", multiple=True, metavar="COLUMN", help="Leave out; may be repeated.")
@click.option(
    "--keep",
    multiple=True,
    metavar="COLUMN",
    help="Use a column that is left out by default; may be repeated.",
)
@click.option(
    "--impute",
    type=click.Choice(["median", "mean", "most_frequent", "none"]),
    default="median",
    help="Replacement of missing numbers; none: missing values are refused.",
)
@click.option(
    "--encode",
    type=click.Choice(["auto", "onehot", "none"]),
    default="auto",
    help="auto: a column of categories weighs as much as a number; onehot: each category does; "
    "none: categories are refused.",
)
@click.option(
    "--scale",
    type=click.Choice(["standard", "none"]),
    default="standard",
    help="standard: columns of mean 0 and variance 1.",
)
@click.option("--save", type=options.FILE, help="JSON file for the clusters, for assign.")
@click.option("--out", type=options.FILE, help="CSV file for the labels (default: print them).")
@click.option("--report", type=options.FOLDER, help="Folder for a page about the clustering.")
@click.option(
    "--certify",
    type=click.FloatRange(0),
    metavar="SECONDS",
    default=10.0,
    show_default=True,
    help="Time for a lower bound of the objective, which the page shows; 0 for none.",
)
@click.option(
    "--time-limit",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    default=60.0,
    show_default=True,
    help="Processor time of the comparison; the best estimator so far is taken. So after Ctrl-C.",
)
@click.option(
    "--stability",
    type=click.FloatRange(0),
    metavar="SECONDS",
    default=10.0,
    show_default=True,
    help="Processor time for fits to other samples of the rows, for the page; 0 for none.",
)
@options.seed
@click.option("--jobs", type=options.COUNT, default=1, help="Number of processes.")
@options.as_json
@options.quiet
@options.debug
def cluster(
    data: Path,
    pairs: Path | None,
    pair_columns: tuple[str, ...],
    k: int | list[int] | str,
    name: str | None,
    drop: tuple[str, ...],
    keep: tuple[str, ...],
    impute: Impute,
    encode: Encode,
    scale: Scale,
    save: Path | None,
    out: Path | None,
    report: Path | None,
    certify: float,
    time_limit: float,
    stability: float,
    seed: int,
    jobs: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Cluster the rows of a table, DATA, with an estimator selected by the pairs.

    DATA is CSV as of any spreadsheet, XLSX or Parquet. Without --id, pairs hold numbers of rows:
    row 0 is the first below the header. Kinds of pairs may be words such as yes and no, or 1 and
    -1. Estimators from k-means without pairs to metric learning and mixtures are compared on
    held-out pairs.
    """
    from inference_lab.clustering import cluster_table
    from inference_lab.data.datasets import DataFormatError
    from inference_lab.io._files import FormatError
    from inference_lab.reporting.writing import check_folder
    from inference_lab.results.atomic_files import write_whole

    report_progress = reporter(quiet)

    def print_note(sentence: str) -> None:
        report_progress(f"note: {sentence}")

    with as_input(DataFormatError, FormatError, FileExistsError), quiet_stdout() as print_out:
        if report is not None:
            check_folder(report)
        clusters = cluster_table(
            data,
            pairs,
            k,
            id=name,
            pair_columns=pair_columns,
            drop=drop,
            keep=keep,
            impute=impute,
            encode=encode,
            scale=scale,
            time_limit=time_limit,
            n_jobs=jobs,
            verbose=0 if quiet else 1,
            random_state=seed,
            on_note=print_note,
        )
        text = clusters.labels.to_csv(index=False, lineterminator="\n")
        if out is not None:
            write_whole(out, text.encode())
        elif not as_json:
            print_out(text.rstrip("\n"))
        if save is not None:
            clusters.save(save)
        if report is not None:
            if certify > 0:
                report_progress(f"looking for a lower bound of the objective for {certify:g} s")
            if stability > 0:
                report_progress(f"fitting other samples of the rows for up to {stability:g} s")
            clusters.write_page(report, certify, stability)
    if as_json:
        files = {"labels": out, "clusters": save, "report": report}
        print_json(
            {
                **clusters.summary(),
                "violated": clusters.violated.to_dict("records"),
                "files": {key: str(path) for key, path in files.items() if path is not None},
            }
        )
    else:
        write = click.echo if out is not None else report_progress
        for line in clusters.sentences():
            write(line)
        for path in (out, save, None if report is None else report / "index.html"):
            if path is not None:
                write(str(path))
    if clusters.search.stopped_ == "interrupted":
        click.get_current_context().exit(130)


@click.command()
@click.argument("clusters", metavar="MODEL", type=_DATA)
@click.argument("data", metavar="DATA", type=_DATA)
@click.option("--out", type=options.FILE, help="CSV file for the labels (default: print them).")
@options.as_json
@options.quiet
@options.debug
def assign(clusters: Path, data: Path, out: Path | None, as_json: bool, quiet: bool) -> None:
    """Assign the rows of a table, DATA, to clusters that were saved.

    MODEL is a file of cluster --save, and DATA a table with the same columns. Pairs have no effect
    here. Nothing in MODEL is executed.
    """
    from inference_lab.clustering.saved_clusters import SavedClusters
    from inference_lab.data.datasets import DataFormatError
    from inference_lab.results.atomic_files import write_whole

    report_progress = reporter(quiet)
    with as_input(DataFormatError), quiet_stdout() as print_out:
        labels = SavedClusters.read(clusters).assign(
            data, on_note=lambda sentence: report_progress(f"note: {sentence}")
        )
        if out is not None:
            write_whole(out, labels.to_csv(index=False, lineterminator="\n").encode())
        elif not as_json:
            print_out(labels.to_csv(index=False, lineterminator="\n").rstrip("\n"))
    if as_json:
        files = {} if out is None else {"labels": str(out)}
        sizes = labels["cluster"].value_counts().sort_index()
        print_json({"rows": len(labels), "sizes": sizes.to_dict(), "files": files})
    elif out is not None:
        click.echo(f"{len(labels):,} rows assigned")
        click.echo(str(out))
