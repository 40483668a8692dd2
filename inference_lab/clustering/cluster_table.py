"""Clusters of the rows of a table, from files to a report, as ``inference-lab cluster`` does."""

from __future__ import annotations

import html
import math
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import inference_lab.clustering.cluster_cv as cluster_cv
from inference_lab.clustering.certificate import certify
from inference_lab.clustering.cluster_cv import (
    ConstrainedClusterCV,
    SearchStoppedWarning,
    takes_pairs,
)
from inference_lab.clustering.fit_inputs import check_word
from inference_lab.clustering.pair_warnings import pair_faults
from inference_lab.clustering.quadratic_costs import quadratic_costs
from inference_lab.clustering.saved_clusters import SavedClusters
from inference_lab.clustering.stability import membership_of, stability_of
from inference_lab.constraints import Constraints
from inference_lab.constraints.frames import UnknownNameError
from inference_lab.data.datasets import DataFormatError
from inference_lab.data.table_features import (
    CategoryColumn,
    Encode,
    Impute,
    Scale,
    TableFeatures,
)
from inference_lab.data.tables import read_table
from inference_lab.formatting import counted, listed
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.reporting.chosen_clustering import (
    ChosenClustering,
    clustering_document,
    with_interval,
)
from inference_lab.reporting.cluster_profile import ClusterProfile, Stability, profile_of
from inference_lab.reporting.document import Document
from inference_lab.reporting.writing import check_folder, write_document

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class ClusterReport:
    """Clusters of the rows of a table, with the pairs that they violate.

    Attributes
    ----------
    search : ConstrainedClusterCV
        The fitted search; ``search.best_estimator_`` is the chosen estimator.
    labels : pandas.DataFrame
        The name or number of each row, and its ``cluster``.
    pairs : pandas.DataFrame
        A row for each pair: ``i``, ``j``, ``kind``, ``weight``, the rows of its points ``first``
        and ``second``, and whether it is ``violated``.
    faults : list of str
        Sentences on contradictory and repeated pairs.
    table : pandas.DataFrame
        The rows as they were read, with their names as index.
    features : TableFeatures
        The features of the table; ``features.notes_`` tells how they were made.
    points : (n, d) array
        The features that were clustered.
    facts : dict of str
        The size of the data, and its columns with their scaling.
    title : str
        Heading of the page.

    Examples
    --------
    >>> import pandas as pd
    >>> pd.DataFrame({"height": [0.0, 1.0, 8.0, 9.0]}).to_csv("plants.csv", index=False)
    >>> report = cluster_table("plants.csv", k=2)
    >>> list(report.labels.columns), len(report.violated)
    (['row', 'cluster'], 0)
    """

    search: ConstrainedClusterCV
    labels: pd.DataFrame
    pairs: pd.DataFrame
    faults: list[str]
    table: pd.DataFrame = field(repr=False)
    features: TableFeatures = field(repr=False)
    points: FloatArray = field(repr=False)
    facts: dict[str, str]
    title: str

    @property
    def violated(self) -> pd.DataFrame:
        """The violated pairs, with the columns ``i``, ``j`` and ``kind``."""
        return self.pairs.loc[self.pairs["violated"], ["i", "j", "kind"]]

    def summary(self) -> dict[str, Any]:
        """Return the chosen candidate, its score and gain, the sizes, and the violated pairs.

        Returns
        -------
        dict
            ``candidate``, ``n_clusters``, ``score`` and ``gain`` (None where unknown; the gain has
            its standard error), ``sizes`` of the clusters, the number of ``violated_pairs``, the
            ``reason`` where the best score was not chosen, and what ``stopped`` the search: "",
            "time limit" or "interrupted".

        Examples
        --------
        >>> import pandas as pd
        >>> pd.DataFrame({"height": [0.0, 1.0, 8.0, 9.0]}).to_csv("plants.csv", index=False)
        >>> cluster_table("plants.csv", k=2).summary()["sizes"]
        [2, 2]
        """

        def finite(value: float) -> float | None:
            return float(value) if math.isfinite(value) else None

        return {
            **self.search.best_params_,
            "score": finite(self.search.best_score_),
            "gain": [finite(value) for value in self.search.gain_],
            "sizes": np.bincount(self.search.labels_).tolist(),
            "violated_pairs": int(self.pairs["violated"].sum()),
            "reason": self.search.reason_,
            "stopped": self.search.stopped_,
        }

    def sentences(self) -> list[str]:
        """Return the summary in words, with 95 % intervals.

        Returns
        -------
        list of str
            Scores and pairs are left out where there are none.

        Examples
        --------
        >>> import pandas as pd
        >>> pd.DataFrame({"height": [0.0, 1.0, 8.0, 9.0]}).to_csv("plants.csv", index=False)
        >>> cluster_table("plants.csv", k=2).sentences()
        ['k-means without pairs, 2 clusters of 2, 2 points']
        """
        search, summary = self.search, self.summary()
        sizes = ", ".join(map(str, summary["sizes"]))
        first = f"{summary['candidate']}, {summary['n_clusters']} clusters of {sizes} points"
        if summary["score"] is None:
            return [first]
        error = search.cv_results_["standard_error"][search.best_index_]
        sentences = [
            first,
            f"held-out score {with_interval(search.best_score_, error)}; 0 is chance",
            f"gain over no pairs {with_interval(*search.gain_, '+')}{no_gain(search.gain_)}",
            f"{summary['violated_pairs']} of {len(self.pairs)} pairs violated",
            search.reason_,
            search.stop_in_words(),
        ]
        return [sentence for sentence in sentences if sentence]

    def clusters(self) -> SavedClusters:
        """Return the clusters without the rows, for rows that come later.

        Returns
        -------
        SavedClusters

        Raises
        ------
        TypeError
            If clusters of the chosen estimator are no quadratic functions of points. All default
            candidates have such clusters.

        Examples
        --------
        >>> import pandas as pd
        >>> pd.DataFrame({"height": [0.0, 1.0, 8.0, 9.0]}).to_csv("plants.csv", index=False)
        >>> cluster_table("plants.csv", k=2).clusters().candidate
        'k-means without pairs'
        """
        name = self.labels.columns[0]
        return SavedClusters(
            self.features,
            quadratic_costs(self.search.best_estimator_),
            None if self.table.index.name is None else str(name),
            str(self.search.best_params_["candidate"]),
        )

    def assign(
        self,
        rows: str | os.PathLike[str] | pd.DataFrame,
        on_note: Callable[[str], None] | None = None,
    ) -> pd.DataFrame:
        """Return the cluster of each row of another table; see `SavedClusters.assign`.

        Parameters
        ----------
        rows : path or pandas.DataFrame
        on_note : callable, optional
            Called with a sentence on each value that the features do not know.

        Returns
        -------
        pandas.DataFrame

        Raises
        ------
        DataFormatError
            If the table cannot be used, such as one that lacks a column.

        Examples
        --------
        >>> import pandas as pd
        >>> pd.DataFrame({"height": [0.0, 1.0, 8.0, 9.0]}).to_csv("plants.csv", index=False)
        >>> near, far = cluster_table("plants.csv", k=2).assign("plants.csv")["cluster"][[0, 3]]
        >>> bool(near != far)
        True
        """
        return self.clusters().assign(rows, on_note)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the clusters as JSON, for `SavedClusters.read` and ``inference-lab assign``.

        Parameters
        ----------
        path : path

        Returns
        -------
        Path

        Raises
        ------
        OSError
            If the file cannot be written.

        Examples
        --------
        >>> import pandas as pd
        >>> pd.DataFrame({"height": [0.0, 1.0, 8.0, 9.0]}).to_csv("plants.csv", index=False)
        >>> cluster_table("plants.csv", k=2).save("plants.json").name
        'plants.json'
        """
        return self.clusters().write(path)

    @cached_property
    def profile_(self) -> ClusterProfile:
        """The columns, rules and rows that describe each cluster, in the units of the table."""
        labels = self.search.labels_
        constraints = self.search.constraints_
        model = self.search.best_estimator_

        def resample(seconds: float) -> Stability:
            return stability_of(model, self.points, constraints, labels, seconds)

        membership = membership_of(model, self.points, labels)
        return profile_of(self.table, labels, membership, resample)

    def _repr_html_(self) -> str:
        """Return the summary of the clusters for notebooks."""
        heading = f"<p><strong>{html.escape(self.title)}</strong></p>"
        return heading + self.profile_._repr_html_()

    def document(self, certify: float = 10.0, stability: float = 10.0) -> Document:
        """Return the page about the clusters.

        Parameters
        ----------
        certify : float
            Seconds for a lower bound of the objective, which the page shows; 0 for none.
        stability : float
            Processor seconds for refits to other samples of the rows, see `profile_`; 0 for none.

        Returns
        -------
        Document

        Examples
        --------
        >>> import pandas as pd
        >>> pd.DataFrame({"height": [0.0, 1.0, 8.0, 9.0]}).to_csv("plants.csv", index=False)
        >>> cluster_table("plants.csv", k=2).document(0, 0).title
        'Clusters of plants.csv'
        """
        facts = dict(self.facts)
        model = self.search.best_estimator_
        if certify > 0:
            facts["Objective"] = _distance_to_best(model, self.points, certify)
        names = [str(name) for name in self.labels.iloc[:, 0]]
        profile = self.profile_
        clustering = ChosenClustering(
            self.search,
            takes_pairs(model),
            self.points,
            names,
            self.pairs,
            facts,
            profile,
            profile.stability(stability) if stability > 0 else None,
        )
        return clustering_document(clustering, self.title)

    def write_page(
        self, folder: str | os.PathLike[str], certify: float = 10.0, stability: float = 10.0
    ) -> Path:
        """Write the page about the clusters, with its figures and tables.

        Parameters
        ----------
        folder : path
            Empty, absent, or written by a report before.
        certify, stability : float
            See `document`.

        Returns
        -------
        Path
            The page, ``index.html``.

        Raises
        ------
        FileExistsError
            If the folder holds other files.

        Examples
        --------
        >>> import pandas as pd
        >>> pd.DataFrame({"height": [0.0, 1.0, 8.0, 9.0]}).to_csv("plants.csv", index=False)
        >>> cluster_table("plants.csv", k=2).write_page("page", 0, 0).name
        'index.html'
        """
        check_folder(Path(folder))
        write_document(self.document(certify, stability), Path(folder))
        return Path(folder) / "index.html"


def cluster_table(
    data: str | os.PathLike[str],
    pairs: str | os.PathLike[str] | None = None,
    k: int | Sequence[int] | str = "auto",
    *,
    id: str | None = None,
    pair_columns: Sequence[str] = (),
    drop: Sequence[str] = (),
    keep: Sequence[str] = (),
    impute: Impute = "median",
    encode: Encode = "auto",
    scale: Scale = "standard",
    time_limit: float | None = 60.0,
    n_jobs: int | None = None,
    verbose: int = 0,
    random_state: int = 0,
    on_note: Callable[[str], None] | None = None,
) -> ClusterReport:
    """Cluster the rows of a table with an estimator selected by the pairs.

    The arguments are the options of ``inference-lab cluster``, and messages name them so.
    `ConstrainedClusterCV` compares estimators from k-means without pairs to metric learning and
    mixtures on held-out pairs.

    Parameters
    ----------
    data : path
        A text file such as CSV, an XLSX workbook or a Parquet file, with a column of each feature.
    pairs : path, optional
        A text file or workbook with the columns ``i``, ``j``, ``kind`` (must-link or cannot-link,
        or words for these), and perhaps ``weight``; see `Constraints.read_csv`.
    k : int, sequence of int, or "auto"
        Number of clusters, or the numbers that pairs choose from; "auto" is 2 to 10.
    id : str, optional
        Column with the names of the rows, as in the pairs. By default rows have numbers from 0.
    pair_columns : sequence of str, optional
        The names of the columns ``i``, ``j``, ``kind`` and perhaps ``weight`` in the pairs.
    drop : sequence of str
        Columns that are left out.
    keep : sequence of str
        Columns that are used although they look like identifiers, or hardly vary.
    impute : {"median", "mean", "most_frequent", "none"}
        Replacement of missing numbers; "none" refuses missing values.
    encode : {"auto", "onehot", "none"}
        "auto" gives a column of categories the weight of a number, "onehot" each category; "none"
        refuses categories.
    scale : {"standard", "none"}
        "standard" gives columns mean 0 and variance 1. See `TableFeatures` for these four.
    time_limit : float or None
        Seconds of processor time of the comparison, see `ConstrainedClusterCV`; None for no limit.
    n_jobs : int or None
        Processes that share the fits; None is 1.
    verbose : int
        Whether to print the progress of the comparison.
    random_state : int
        Seed of folds and fits.
    on_note : callable, optional
        Called with a sentence for each fault of the input, and one on the data, before the fits.

    Returns
    -------
    ClusterReport

    Raises
    ------
    DataFormatError, FormatError
        If a file cannot be used; both are a `ValueError`.
    OSError
        If a file cannot be opened.

    Examples
    --------
    >>> import pandas as pd
    >>> pd.DataFrame({"plant": list("abcd"), "height": [0.0, 1.0, 8.0, 9.0]}).to_csv("plants.csv")
    >>> report = cluster_table("plants.csv", k=2, id="plant", drop=["Unnamed: 0"])
    >>> report.labels["plant"].tolist(), report.labels["cluster"].nunique()
    (['a', 'b', 'c', 'd'], 2)
    """
    if isinstance(k, str):
        check_word("k", k, ("auto",))
    note = on_note or (lambda sentence: None)

    table = read_table(data, id, drop, note)
    features = TableFeatures(impute=impute, encode=encode, scale=scale, keep=keep).fit(table)
    points, _ = features.points_of(table)
    for sentence in features.notes_:
        note(sentence)
    names = [str(name) for name in table.index]
    constraints = Constraints([], [], n_points=len(table))
    if pairs is not None:
        constraints = _read_pairs(pairs, table, id, pair_columns, note)
    faults = pair_faults(constraints, constraints.n_repeated, names)
    for fault in faults.values():
        note(fault)
    numbers_of_clusters = [] if isinstance(k, str) else np.atleast_1d(k).tolist()
    if len(numbers_of_clusters) != 1 and len(constraints) < 2:
        shown = k if isinstance(k, str) else ",".join(map(str, numbers_of_clusters))
        raise DataFormatError(
            f"--k {shown} needs --pairs with two pairs or more; without them give a number"
        )
    if numbers_of_clusters and max(numbers_of_clusters) > len(table):
        raise DataFormatError(f"--k {max(numbers_of_clusters)}: {data} holds {len(table)} points")

    facts = _facts(features, len(table))
    note(f"{facts['Data']} {facts['Columns']}")
    candidates = None
    if scale == "standard":
        unscaled = cluster_cv.without_scaling(cluster_cv.default_candidates())
        candidates = [(candidate.name, candidate.estimator) for candidate in unscaled]
    search = ConstrainedClusterCV(
        k,
        candidates=candidates,
        time_limit=time_limit,
        n_jobs=n_jobs,
        verbose=verbose,
        random_state=random_state,
    )
    with warnings.catch_warnings():
        # The notes have reported these, and the sentences of the report do.
        for category in (*faults, SearchStoppedWarning):
            warnings.simplefilter("ignore", category)
        search.fit(points, **constraints.fit_params())
    return ClusterReport(
        search,
        _labels(table, id, search.labels_),
        _with_violated(constraints, search.labels_, names),
        list(faults.values()),
        table,
        features,
        points,
        facts,
        f"Clusters of {Path(data).name}",
    )


def _read_pairs(
    path: str | os.PathLike[str],
    table: pd.DataFrame,
    id: str | None,
    columns: Sequence[str],
    note: Callable[[str], None],
) -> Constraints:
    """Return the pairs of a file; name the column of the table that has their names, if any."""
    names = [str(name) for name in table.index]
    try:
        return Constraints.read_csv(path, sample_ids=names, columns=columns, on_note=note)
    except UnknownNameError as problem:
        if id is None:
            for column in table.select_dtypes(["object", "string", "integer"]):
                # Columns that are read as numbers have no leading zeros.
                cells = table[column].astype(str).str.lstrip("0")
                if (cells == problem.name.lstrip("0")).any():
                    raise DataFormatError(
                        f"{problem}; the column {column!r} holds it: name rows by --id {column}"
                    ) from None
        raise


def _facts(features: TableFeatures, n_points: int) -> dict[str, str]:
    """Return the size of the data, the columns with their scaling, and notes, in words."""
    how = "as they are"
    if features.scale == "standard":
        categories = any(isinstance(column, CategoryColumn) for column in features.columns_)
        whole = ", a column of categories as a whole"
        whole = whole if categories and features.encode == "auto" else ""
        how = f"standardised to mean 0 and variance 1{whole}; --scale none leaves them as they are"
    names = [column.name for column in features.columns_]
    facts = {
        "Data": f"{counted(n_points, 'point')}, {counted(len(names), 'column')}.",
        "Columns": f"{listed(names, most=10)}: {how}.",
    }
    if features.notes_:
        facts["Preparation"] = ". ".join(features.notes_) + "."
    return facts


def _labels(table: pd.DataFrame, id: str | None, labels: IntArray) -> pd.DataFrame:
    """Return the names of the rows with their clusters."""
    import pandas as pd

    return pd.DataFrame({id or "row": table.index, "cluster": labels})


def no_gain(gain: tuple[float, float]) -> str:
    """Return words for a gain that chance explains, or nothing for others.

    A gain is the difference of two scores and its standard error.
    """
    difference, error = gain
    # NaN, where nothing was compared, fails both.
    if abs(difference) <= 2.0 * error:
        return ": your pairs change nothing that they can show"
    return ": your pairs did not help" if difference < 0.0 else ""


def _with_violated(constraints: Constraints, labels: IntArray, names: list[str]) -> pd.DataFrame:
    """Return the pairs with the rows of their points, and a column for violated pairs."""
    ends = np.concatenate([constraints.must_link, constraints.cannot_link])
    # The pairs of answers with their sums, in place of the answers.
    frame: pd.DataFrame = constraints.with_weights().to_frame(names)
    frame = frame.assign(first=ends[:, 0], second=ends[:, 1])
    same = labels[ends[:, 0]] == labels[ends[:, 1]]
    return frame.assign(violated=same != (frame["kind"] == "must-link").to_numpy())


def _distance_to_best(model: Any, points: FloatArray, seconds: float) -> str:
    """Return a sentence on the gap between the objective of a model and its lower bound."""
    try:
        certificate = certify(model, points, time_limit=seconds)
    except TypeError:
        return f"No lower bound is known for the objective of {type(model).__name__}."
    objective, best = certificate.objective, certificate.best_objective
    where = "for these points, pairs and weights"
    if certificate.proved:
        return f"{objective:.6g}, the lowest possible {where} (to {certificate.gap:.2%})."
    sentences = f"{objective:.6g}; no clustering {where} is below {certificate.lower_bound:.6g}, "
    sentences += f"{certificate.gap:.2%} lower."
    if best < objective:
        sentences += f" A search found one with {best:.6g}."
    return sentences
