"""``inference-lab cluster``."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import inference_lab.cli.options as options
from inference_lab.cli.common import as_input, print_json, quiet_stdout, reporter

if TYPE_CHECKING:
    import pandas as pd

    from inference_lab.clustering import ConstrainedClusterCV
    from inference_lab.constraints import Constraints

_DATA = click.Path(exists=True, dir_okay=False, path_type=Path)


def as_number(ctx: click.Context, param: click.Parameter, value: str) -> int | str:
    """Parse a number of clusters, or ``auto``."""
    if value == "auto":
        return value
    if not value.isdecimal() or int(value) < 1:
        raise click.BadParameter(f"{value!r} is neither a number of at least 1 nor auto")
    return int(value)


@click.command()
@click.argument("data", metavar="DATA", type=_DATA)
@click.option(
    "--pairs",
    type=_DATA,
    help="CSV file with the columns i, j, kind (must-link or cannot-link), and perhaps weight.",
)
@click.option(
    "--k",
    callback=as_number,
    default="auto",
    help="Number of clusters; auto: 2 to 10, chosen by the pairs.",
)
@click.option("--id", "name", metavar="COLUMN", help="Names of rows, as in the pairs.")
@click.option("--drop", multiple=True, metavar="COLUMN", help="Leave out; may be repeated.")
@click.option(
    "--impute",
    type=click.Choice(["median", "mean", "most_frequent"]),
    help="Replacement of missing numbers (default: they are refused).",
)
@click.option(
    "--encode",
    type=click.Choice(["onehot"]),
    help="Make a column of each category (default: text is refused).",
)
@click.option(
    "--scale",
    type=click.Choice(["standard", "none"]),
    default="standard",
    help="standard: columns of mean 0 and variance 1.",
)
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
@options.seed
@click.option("--jobs", type=options.COUNT, default=1, help="Number of processes.")
@options.as_json
@options.quiet
@options.debug
def cluster(
    data: Path,
    pairs: Path | None,
    k: int | str,
    name: str | None,
    drop: tuple[str, ...],
    impute: str | None,
    encode: str | None,
    scale: str,
    out: Path | None,
    report: Path | None,
    certify: float,
    seed: int,
    jobs: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Cluster the rows of a table, DATA, with an estimator selected by the pairs.

    DATA is CSV or Parquet. Without --id, pairs hold numbers of rows from 0. Estimators from k-means
    without pairs to metric learning and mixtures are compared on held-out pairs.
    """
    import pandas as pd

    from inference_lab.clustering import ConstrainedClusterCV
    from inference_lab.clustering.cluster_cv import takes_pairs
    from inference_lab.clustering.pair_weights import pair_faults
    from inference_lab.constraints import Constraints
    from inference_lab.data.datasets import DataFormatError
    from inference_lab.data.tables import counting_columns, numeric_columns, read_table
    from inference_lab.io._files import FormatError
    from inference_lab.reporting.chosen_clustering import (
        ChosenClustering,
        clustering_document,
        with_interval,
    )
    from inference_lab.reporting.writing import check_folder, write_document
    from inference_lab.results.atomic_files import write_whole

    report_progress = reporter(quiet)
    with as_input(DataFormatError, FormatError, FileExistsError), quiet_stdout() as print_out:
        if report is not None:
            check_folder(report)
        read = read_table(data, name, drop)
        for each in counting_columns(read):
            report_progress(
                f"note: {each!r} counts the rows; name rows by --id {each}, or leave it out with "
                f"--drop {each}"
            )
        frame = numeric_columns(read, impute, encode)
        names = [str(each) for each in frame.index]
        given = Constraints([], [], n_points=len(frame))
        if pairs is not None:
            given = Constraints.read_csv(pairs, sample_ids=names)
        faults = pair_faults(given, given.n_repeated, names)
        for fault in faults.values():
            report_progress(f"note: {fault}")
        if k == "auto" and len(given) < 2:
            raise DataFormatError(
                "--k auto needs --pairs with two pairs or more; without them give a number"
            )
        if isinstance(k, int) and k > len(frame):
            raise DataFormatError(f"--k {k}: {data} holds {len(frame)} points")
        points, prepared = _prepared(frame, scale)
        report_progress(f"{prepared['Data']} {prepared['Columns']}")
        search = ConstrainedClusterCV(
            k,
            n_jobs=jobs,
            verbose=0 if quiet else 1,
            random_state=seed,
        )
        with warnings.catch_warnings():
            for category in faults:
                warnings.simplefilter("ignore", category)
            search.fit(points, **given.fit_params())
        found = _with_violated(given, search.labels_, names)
        table = pd.DataFrame({name or "row": frame.index, "cluster": search.labels_})
        text = table.to_csv(index=False, lineterminator="\n")
        if out is not None:
            write_whole(out, text.encode())
        elif not as_json:
            print_out(text.rstrip("\n"))
        if report is not None:
            if certify > 0:
                report_progress(f"looking for a lower bound of the objective for {certify:g} s")
                prepared["Objective"] = _distance_to_best(search.best_estimator_, points, certify)
            used = takes_pairs(search.best_estimator_)
            chosen = ChosenClustering(search, used, points, names, found, prepared)
            write_document(clustering_document(chosen, f"Clusters of {data.name}"), report)
    summary = _summary(search, found)
    if as_json:
        files = {"labels": out, "report": report}
        print_json(
            {
                **summary,
                "violated": found.loc[found["violated"], ["i", "j", "kind"]].to_dict("records"),
                "files": {key: str(path) for key, path in files.items() if path is not None},
            }
        )
        return
    write = click.echo if out is not None else report_progress
    write(
        f"{summary['candidate']}, {summary['n_clusters']} clusters of "
        f"{', '.join(map(str, summary['sizes']))} points"
    )
    if summary["score"] is not None:
        error = search.cv_results_["standard_error"][search.best_index_]
        write(f"held-out score {with_interval(search.best_score_, error)}; 0 is chance")
        write(f"gain over no pairs {with_interval(*search.gain_, '+')}")
        write(f"{summary['violated_pairs']} of {len(found)} pairs violated")
    for path in (out, None if report is None else report / "index.html"):
        if path is not None:
            write(str(path))


def _prepared(frame: pd.DataFrame, scale: str) -> tuple[Any, dict[str, str]]:
    """Return the scaled points, and a description of the scaling."""
    from sklearn.preprocessing import StandardScaler

    from inference_lab.formatting import counted, listed

    points = frame.to_numpy(dtype=float)
    how = "as they are"
    if scale == "standard":
        points = StandardScaler().fit_transform(points)
        how = "standardised to mean 0 and variance 1; --scale none leaves them as they are"
    size = f"{counted(len(frame), 'point')}, {counted(frame.shape[1], 'column')}."
    names = listed([str(name) for name in frame.columns], most=10)
    return points, {"Data": size, "Columns": f"{names}: {how}."}


def _distance_to_best(model: Any, points: Any, seconds: float) -> str:
    """Return a sentence on the gap between the objective of a model and its lower bound."""
    from inference_lab.clustering import certify

    try:
        found = certify(model, points, time_limit=seconds)
    except TypeError:
        return f"No lower bound is known for the objective of {type(model).__name__}."
    where = "for these points, pairs and weights"
    if found.proved:
        return f"{found.objective:.6g}, the lowest possible {where} (to {found.gap:.2%})."
    sentences = f"{found.objective:.6g}; no clustering {where} is below {found.lower_bound:.6g}, "
    sentences += f"{found.gap:.2%} lower."
    if found.best_objective < found.objective:
        sentences += f" A search found one with {found.best_objective:.6g}."
    return sentences


def _with_violated(given: Constraints, labels: Any, names: list[str]) -> pd.DataFrame:
    """Return the pairs with the rows of their points, and a column for violated pairs."""
    import numpy as np

    ends = np.concatenate([given.must_link, given.cannot_link])
    frame: pd.DataFrame = given.to_frame(names).assign(first=ends[:, 0], second=ends[:, 1])
    same = labels[ends[:, 0]] == labels[ends[:, 1]]
    return frame.assign(violated=same != (frame["kind"] == "must-link").to_numpy())


def _summary(search: ConstrainedClusterCV, found: pd.DataFrame) -> dict[str, Any]:
    """Return the result in the form of the JSON document."""
    import numpy as np

    def known(value: float) -> float | None:
        return float(value) if math.isfinite(value) else None

    return {
        **search.best_params_,
        "score": known(search.best_score_),
        "gain": [known(value) for value in search.gain_],
        "sizes": np.bincount(search.labels_).tolist(),
        "violated_pairs": int(found["violated"].sum()),
    }
