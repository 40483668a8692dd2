"""Clusters in a file, for rows that come later: the features of a table and the costs of points."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

import msgspec
import numpy as np

import inference_lab
from inference_lab.clustering.fit_inputs import refuse_sizes
from inference_lab.clustering.quadratic_costs import QuadraticCosts
from inference_lab.data.datasets import DataFormatError
from inference_lab.data.table_features import StoredFeatures, TableFeatures
from inference_lab.data.tables import read_table
from inference_lab.formatting import warn
from inference_lab.graph.arrays import IntArray
from inference_lab.results.atomic_files import write_whole

if TYPE_CHECKING:
    import pandas as pd

_FORMAT = "inference-lab clusters"
_VERSION = 1


class _Kind(msgspec.Struct, frozen=True):
    """The first entries of a file, which tell whether the others can be read."""

    format: str = ""
    version: Annotated[int, msgspec.Meta(ge=1)] = 1


class _StoredClusters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a file."""

    format: Literal["inference-lab clusters"]
    version: Literal[1]
    written_by: str
    candidate: str
    id: str | None
    features: StoredFeatures
    centres: list[list[float]]
    offsets: list[float]
    #: Factors of `QuadraticCosts`: one of these two.
    matrices: list[list[list[float]]] = []
    diagonals: list[list[float]] = []

    def costs(self) -> QuadraticCosts:
        """Return the costs of points; refuse shapes that do not fit together."""
        if bool(self.matrices) == bool(self.diagonals):
            raise ValueError("one of matrices and diagonals must have entries")
        factors = self.matrices or self.diagonals
        return QuadraticCosts(*map(np.array, (self.centres, factors, self.offsets)))


@dataclass(frozen=True, eq=False)
class SavedClusters:
    """Clusters of a table that assign later rows.

    Attributes
    ----------
    features : TableFeatures
        The features of the table.
    costs : QuadraticCosts
        The cost of a point in each cluster.
    id : str or None
        The column with the names of rows.
    candidate : str
        The estimator that was chosen.

    Examples
    --------
    >>> import pandas as pd
    >>> from inference_lab.clustering import cluster_table
    >>> pd.DataFrame({"height": [0.0, 1.0, 8.0, 9.0]}).to_csv("plants.csv", index=False)
    >>> _ = cluster_table("plants.csv", k=2).save("plants.json")
    >>> clusters = SavedClusters.read("plants.json")
    >>> near, far = clusters.assign(pd.DataFrame({"height": [0.4, 7.0]}))["cluster"]
    >>> bool(near != far)
    True
    """

    features: TableFeatures
    costs: QuadraticCosts
    id: str | None = None
    candidate: str = ""

    def __post_init__(self) -> None:
        """Refuse costs of other features."""
        n_features = len(self.features.get_feature_names_out())
        if self.costs.centres.shape[1] != n_features:
            raise ValueError(
                f"the table has {n_features} features, and the clusters have "
                f"{self.costs.centres.shape[1]}"
            )

    def assign(
        self,
        rows: str | os.PathLike[str] | pd.DataFrame,
        on_note: Callable[[str], None] | None = None,
    ) -> pd.DataFrame:
        """Return the cluster of each row, without pairs.

        Parameters
        ----------
        rows : path or pandas.DataFrame
            A table with the columns of the fit, in any order; others are ignored. A file has the
            column `id`, too; of a frame without it, the index names the rows.
        on_note : callable, optional
            Called with a sentence on unknown categories and on values that cannot be read, in place
            of a warning.

        Returns
        -------
        pandas.DataFrame
            The name or number of each row, and its ``cluster``, as in `ClusterReport.labels`.

        Raises
        ------
        DataFormatError
            If the table cannot be used, such as one that lacks a column.

        Examples
        --------
        >>> import pandas as pd
        >>> features = TableFeatures(scale="none").fit(pd.DataFrame({"height": [0.0, 1.0, 8.0]}))
        >>> costs = QuadraticCosts(np.array([[0.5], [8.0]]), np.ones((1, 1)), np.zeros(2))
        >>> clusters = SavedClusters(features, costs)
        >>> clusters.assign(pd.DataFrame({"height": [9.0, 2.0]}))["cluster"].tolist()
        [1, 0]
        """
        import pandas as pd

        if isinstance(rows, str | os.PathLike):
            frame = read_table(rows, self.id, on_note=on_note)
        elif self.id is not None and self.id in getattr(rows, "columns", ()):
            frame = rows.set_index(self.id)
        else:
            frame = rows
        labels, sentences = self._labels(frame)
        for sentence in sentences:
            (on_note or warn)(sentence)
        return pd.DataFrame({self.id or "row": frame.index, "cluster": labels})

    def _labels(self, frame: pd.DataFrame) -> tuple[IntArray, list[str]]:
        points, sentences = self.features.points_of(frame)
        try:
            refuse_sizes(points)
        except ValueError as problem:
            raise DataFormatError(f"rows cannot be compared with the table: {problem}") from None
        return self.costs.labels(points), sentences

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write the clusters as JSON, which `read` reads.

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
        >>> features = TableFeatures(scale="none").fit(pd.DataFrame({"height": [0.0, 1.0, 8.0]}))
        >>> costs = QuadraticCosts(np.array([[0.5], [8.0]]), np.ones((1, 1)), np.zeros(2))
        >>> SavedClusters(features, costs).write("heights.json").name
        'heights.json'
        """
        factors = "matrices" if self.costs.factors.ndim == 3 else "diagonals"
        stored = _StoredClusters(
            "inference-lab clusters",
            1,
            f"inference-lab {inference_lab.__version__}",
            self.candidate,
            self.id,
            self.features.stored(),
            self.costs.centres.tolist(),
            self.costs.offsets.tolist(),
            **{factors: self.costs.factors.tolist()},
        )
        text = msgspec.json.format(msgspec.json.encode(stored), indent=1)
        write_whole(Path(path), text + b"\n")
        return Path(path)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Read clusters from a file of `write`.

        Parameters
        ----------
        path : path
            The file is checked, and nothing in it is executed.

        Returns
        -------
        SavedClusters

        Raises
        ------
        DataFormatError
            If the file holds something else, or a later version of the library wrote it.
        OSError
            If the file cannot be read.

        Examples
        --------
        >>> from pathlib import Path
        >>> _ = Path("other.json").write_text("{}")
        >>> try:
        ...     SavedClusters.read("other.json")
        ... except DataFormatError as problem:
        ...     print(problem)
        other.json holds no clusters: its format is '', not 'inference-lab clusters'
        """
        data = Path(path).read_bytes()
        try:
            kind = msgspec.json.decode(data, type=_Kind)
            if kind.format != _FORMAT:
                raise DataFormatError(
                    f"{path} holds no clusters: its format is {kind.format!r}, not {_FORMAT!r}"
                )
            if kind.version > _VERSION:
                raise DataFormatError(
                    f"{path} is of version {kind.version} of the format; this inference-lab "
                    f"reads version {_VERSION}"
                )
            stored = msgspec.json.decode(data, type=_StoredClusters)
            features = TableFeatures.from_stored(stored.features)
            return cls(features, stored.costs(), stored.id, stored.candidate)
        except DataFormatError:
            raise
        # msgspec's errors, nested too deeply or not, and arrays of uneven rows.
        except (ValueError, RecursionError) as problem:
            raise DataFormatError(f"{path} holds no clusters: {problem}") from None
