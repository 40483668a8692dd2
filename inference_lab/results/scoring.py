r"""Agreement of a labelling with the true classes, from one sparse contingency table.

All measures are invariant under renaming of the labels and compare the clusters as sets; any
values that sort (integers, strings) may be labels, and ``-1`` is a cluster like any other.  Time is
:math:`O(n \log n)` for n points; nothing of size :math:`n^2` is formed.

Common conventions for degenerate input:

- *no points*: every measure is NaN, because nothing was measured (scikit-learn says 1);
- *equal partitions* score 1, even with one cluster only or with singletons only;
- *one cluster against several classes*, or the reverse: NMI and ARI are 0;
- a precision or recall *without any pair* to judge is 1: there is no wrong pair.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from inference_lab.constraints import point_indices

__all__ = [
    "Average",
    "PairwiseScores",
    "adjusted_rand",
    "matched_accuracy",
    "nmi",
    "pairwise_f",
    "pairwise_scores",
    "score",
]

Average: TypeAlias = Literal["arithmetic", "geometric"]

_DENSE_CELLS = 1_000_000  # largest contingency table that the matching may spell out


class PairwiseScores(NamedTuple):
    """Precision, recall and F over unordered pairs of points; see `pairwise_scores`."""

    precision: float
    recall: float
    f: float


class _Contingency(NamedTuple):
    """Non-zero cells of the table of classes (rows) against clusters (columns)."""

    row: npt.NDArray[np.int64]  # (cells,)
    column: npt.NDArray[np.int64]  # (cells,)
    size: npt.NDArray[np.int64]  # (cells,), > 0
    row_sum: npt.NDArray[np.int64]  # (classes,), > 0
    column_sum: npt.NDArray[np.int64]  # (clusters,), > 0
    n: int


def pairwise_scores(truth: npt.ArrayLike, labels: npt.ArrayLike) -> PairwiseScores:
    r"""Precision, recall and F of the pairs that a labelling puts together.

    With TP the unordered pairs together in both partitions,
    :math:`P = TP / \#\text{together in labels}`, :math:`R = TP / \#\text{together in truth}`,
    :math:`F = 2PR / (P + R)`.

    Parameters
    ----------
    truth, labels : array-like, shape (n,)
        True classes and predicted clusters.

    Returns
    -------
    PairwiseScores
        ``(precision, recall, f)``, each in [0, 1]; all NaN if n = 0.

    Raises
    ------
    ValueError
        If an argument is not 1-D or contains NaN, or the lengths differ.

    References
    ----------
    Basu, PhD thesis, 2005, section 2.5; Bilenko and Basu, 2004.

    Examples
    --------
    >>> pairwise_scores([0, 0, 1, 1], [0, 0, 0, 1])
    PairwiseScores(precision=0.3333333333333333, recall=0.5, f=0.4)
    """
    return _pairwise(_contingency(truth, labels))


def pairwise_f(truth: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    r"""Pairwise F: harmonic mean of `pairwise_scores`' precision and recall.

    Parameters
    ----------
    truth, labels : array-like, shape (n,)
        True classes and predicted clusters.

    Returns
    -------
    float
        In [0, 1]; NaN if n = 0.

    Raises
    ------
    ValueError
        If an argument is not 1-D or contains NaN, or the lengths differ.

    References
    ----------
    Basu, PhD thesis, 2005, section 2.5; Bilenko and Basu, 2004.

    Examples
    --------
    >>> pairwise_f([0, 0, 1, 1], ["b", "b", "b", "a"])
    0.4
    """
    return _pairwise(_contingency(truth, labels)).f


def nmi(truth: npt.ArrayLike, labels: npt.ArrayLike, average: Average = "arithmetic") -> float:
    r"""Normalised mutual information :math:`I(T; L) / \operatorname{mean}(H(T), H(L))`.

    Parameters
    ----------
    truth, labels : array-like, shape (n,)
        True classes T and predicted clusters L.
    average : {"arithmetic", "geometric"}, default "arithmetic"
        The mean of the two entropies: arithmetic in the papers of Basu et al., geometric in the
        code released with Khashabi et al.  Reported numbers should say which.

    Returns
    -------
    float
        In [0, 1]; 1 if both partitions have a single cluster, NaN if n = 0.

    Raises
    ------
    ValueError
        If an argument is not 1-D or contains NaN, the lengths differ, or `average` is unknown.

    References
    ----------
    Strehl, Ghosh and Mooney, "Impact of similarity measures on web-page clustering", AAAI 2000
    workshop; Basu, PhD thesis, 2005, eq. 2.4.

    Examples
    --------
    >>> nmi([0, 0, 1, 1], [1, 1, 0, 0])
    1.0
    >>> round(nmi([0, 0, 1, 1], [0, 1, 2, 3], average="geometric"), 4)
    0.7071
    """
    if average not in get_args(Average):
        raise ValueError(f"average = {average!r} is unknown; allowed: 'arithmetic', 'geometric'")
    return _nmi(_contingency(truth, labels), average)


def adjusted_rand(truth: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    r"""Measure agreement over pairs, corrected for chance: the adjusted Rand index.

    With :math:`S` the pairs together in both, :math:`A` and :math:`B` the pairs together in each,
    and :math:`E = AB / \binom{n}{2}`: :math:`(S - E) / ((A + B)/2 - E)`.

    Parameters
    ----------
    truth, labels : array-like, shape (n,)
        True classes and predicted clusters.

    Returns
    -------
    float
        At most 1; about 0 for independent labellings; 1 for equal partitions; NaN if n = 0.

    Raises
    ------
    ValueError
        If an argument is not 1-D or contains NaN, or the lengths differ.

    References
    ----------
    Hubert and Arabie, "Comparing partitions", Journal of Classification 2, 1985, eq. 5.

    Examples
    --------
    >>> adjusted_rand([0, 0, 1, 1], [0, 0, 1, 2])
    0.5714285714285714
    """
    return _adjusted_rand(_contingency(truth, labels))


def matched_accuracy(truth: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    r"""Share of points that are right under the best one-to-one naming of the clusters.

    :math:`\max_\pi \frac1n \sum_i [t_i = \pi(l_i)]` over injective partial maps :math:`\pi` from
    clusters to classes; points of clusters that are left without a class count as wrong.

    Parameters
    ----------
    truth, labels : array-like, shape (n,)
        True classes and predicted clusters; their numbers may differ.

    Returns
    -------
    float
        In (0, 1]; NaN if n = 0.

    Raises
    ------
    ValueError
        If an argument is not 1-D or contains NaN, or the lengths differ.

    Notes
    -----
    Assignment problem on the contingency table: dense (Hungarian type) if the table has at most a
    million cells, sparse otherwise.

    References
    ----------
    Kuhn, "The Hungarian method for the assignment problem", Naval Research Logistics 2, 1955.

    Examples
    --------
    >>> matched_accuracy([0, 0, 1, 1], [1, 1, 0, 2])
    0.75
    """
    return _matched_accuracy(_contingency(truth, labels))


def score(
    truth: npt.ArrayLike,
    labels: npt.ArrayLike,
    scored: npt.ArrayLike | None = None,
) -> dict[str, float]:
    """All four measures on the points that count.

    Parameters
    ----------
    truth, labels : array-like, shape (n,)
        True classes and predicted clusters of all points.
    scored : array-like of int, shape (m,), or of bool, shape (n,), optional
        The points that count, such as the test points from which no constraint was drawn;
        default: all.  Numbers over test points and over all points are not comparable.

    Returns
    -------
    dict of str to float
        ``pairwise_f``, ``nmi`` (arithmetic), ``ari``, ``accuracy``; all NaN if no point counts.

    Raises
    ------
    ValueError
        If an argument is not 1-D or contains NaN, the lengths differ, or `scored` has a point
        that is out of range or listed twice.

    Examples
    --------
    >>> score([0, 0, 1, 1], [5, 5, 7, 5], scored=[0, 1, 2])
    {'pairwise_f': 1.0, 'nmi': 1.0, 'ari': 1.0, 'accuracy': 1.0}
    """
    classes, clusters = _check_labels(truth, labels)
    if scored is not None:
        points = point_indices(scored, classes.size, name="scored")
        classes, clusters = classes[points], clusters[points]
    table = _contingency(classes, clusters)
    return {
        "pairwise_f": _pairwise(table).f,
        "nmi": _nmi(table, "arithmetic"),
        "ari": _adjusted_rand(table),
        "accuracy": _matched_accuracy(table),
    }


def _check_labels(
    truth: npt.ArrayLike, labels: npt.ArrayLike
) -> tuple[npt.NDArray[np.generic], npt.NDArray[np.generic]]:
    """Validate two label vectors of equal length."""
    arrays = []
    for name, value in (("truth", truth), ("labels", labels)):
        array = np.asarray(value)
        if array.ndim != 1:
            raise ValueError(f"{name} has shape {array.shape}; a 1-D array of labels is needed")
        if array.dtype.kind == "f" and np.isnan(array).any():
            raise ValueError(f"{name}[{int(np.argmax(np.isnan(array)))}] is NaN; labels needed")
        arrays.append(array)
    if arrays[0].size != arrays[1].size:
        raise ValueError(
            f"truth has {arrays[0].size} labels but labels has {arrays[1].size}; "
            "one for each point is needed in both"
        )
    return arrays[0], arrays[1]


def _contingency(truth: npt.ArrayLike, labels: npt.ArrayLike) -> _Contingency:
    """Cross-tabulate, by sorting, two label vectors."""
    classes, clusters = _check_labels(truth, labels)
    row_names, row = np.unique(classes, return_inverse=True)
    column_names, column = np.unique(clusters, return_inverse=True)
    # The inverse is asked for, and not used, because numpy then sorts instead of hashing, which
    # is many times faster on integers.
    cells, at = np.unique(row * max(column_names.size, 1) + column, return_inverse=True)
    cell_row, cell_column = np.divmod(cells, max(column_names.size, 1))
    return _Contingency(
        row=cell_row.astype(np.int64),
        column=cell_column.astype(np.int64),
        size=np.bincount(at, minlength=cells.size).astype(np.int64),
        row_sum=np.bincount(row, minlength=row_names.size).astype(np.int64),
        column_sum=np.bincount(column, minlength=column_names.size).astype(np.int64),
        n=int(classes.size),
    )


def _pairs(counts: npt.NDArray[np.int64]) -> int:
    """Count the unordered pairs inside groups of these sizes, exactly."""
    return int((counts * (counts - 1) // 2).sum())


def _pairwise(table: _Contingency) -> PairwiseScores:
    if table.n == 0:
        return PairwiseScores(math.nan, math.nan, math.nan)
    both, true, predicted = map(_pairs, (table.size, table.row_sum, table.column_sum))
    return PairwiseScores(
        precision=both / predicted if predicted else 1.0,
        recall=both / true if true else 1.0,
        # 2PR / (P + R) with the fractions multiplied out.
        f=2 * both / (true + predicted) if true + predicted else 1.0,
    )


def _entropy(counts: npt.NDArray[np.int64], n: int) -> float:
    """Entropy in nats of the distribution ``counts / n``; exactly 0 for a single group."""
    share = counts / n
    return float(-(share * np.log(share)).sum()) + 0.0  # + 0.0 turns -0.0 into 0.0


def _nmi(table: _Contingency, average: Average) -> float:
    if table.n == 0:
        return math.nan
    n_classes, n_clusters = table.row_sum.size, table.column_sum.size
    if n_classes == n_clusters == table.size.size:
        return 1.0  # equal partitions: rounding must not make it 0.9999999999999999, or 0 / 0
    if n_classes == 1 or n_clusters == 1:
        return 0.0
    true, predicted = _entropy(table.row_sum, table.n), _entropy(table.column_sum, table.n)
    expected = table.row_sum[table.row] / table.n * (table.column_sum[table.column] / table.n)
    share = table.size / table.n
    information = float((share * np.log(share / expected)).sum())
    mean = (true + predicted) / 2 if average == "arithmetic" else math.sqrt(true * predicted)
    return min(max(information / mean, 0.0), 1.0)  # rounding around independence, and around 1


def _adjusted_rand(table: _Contingency) -> float:
    if table.n == 0:
        return math.nan
    both, true, predicted = map(_pairs, (table.size, table.row_sum, table.column_sum))
    if both == true == predicted:
        return 1.0  # equal partitions; includes the cases in which the formula is 0 / 0
    total = table.n * (table.n - 1) // 2
    # Multiplied by 2 * total, all terms are integers, exact at any size in Python.
    numerator = 2 * (both * total - true * predicted)
    return numerator / ((true + predicted) * total - 2 * true * predicted)


def _matched_accuracy(table: _Contingency) -> float:
    if table.n == 0:
        return math.nan
    if table.row_sum.size * table.column_sum.size <= _DENSE_CELLS:
        return _match_dense(table) / table.n
    return _match_sparse(table) / table.n


def _match_dense(table: _Contingency) -> int:
    """Largest total count of a one-to-one matching, with the table spelt out."""
    from scipy.optimize import linear_sum_assignment

    dense = np.zeros((table.row_sum.size, table.column_sum.size), dtype=np.int64)
    dense[table.row, table.column] = table.size
    rows, columns = linear_sum_assignment(dense, maximize=True)
    return int(dense[rows, columns].sum())


def _match_sparse(table: _Contingency) -> int:
    """Largest total count of a one-to-one matching, touching the non-zero cells only.

    The sparse solver wants every row matched, so each row gets a column of its own that stands
    for "unmatched".  Those cells weigh 1 and all others 1 more than their count (explicit zeros
    are not cells): every full matching then totals its count plus the number of rows.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import min_weight_full_bipartite_matching

    row, n_rows = table.row, table.row_sum.size
    column, n_columns = table.column, table.column_sum.size
    if n_rows > n_columns:  # a search is made from every row: 1000 times slower the wrong way round
        row, n_rows, column, n_columns = column, n_columns, row, n_rows
    rows_once = np.arange(n_rows)
    weights = np.concatenate((table.size + 1, np.ones(n_rows))).astype(np.float64)
    cells = (
        np.concatenate((row, rows_once)),
        np.concatenate((column, n_columns + rows_once)),
    )
    graph = coo_array((weights, cells), shape=(n_rows, n_columns + n_rows)).tocsr()
    rows, columns = min_weight_full_bipartite_matching(graph, maximize=True)
    return int(np.asarray(graph[rows, columns]).sum()) - n_rows
