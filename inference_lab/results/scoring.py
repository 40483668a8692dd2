"""Agreement of a labelling with the true classes, by scikit-learn."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

# All measures are invariant under renaming of the labels, and ``-1`` is a cluster like any other.
# Without points every measure is NaN, because nothing was measured (scikit-learn returns 1).
# Pairwise F is 1 if neither partition joins a pair, because no pair is wrong.

Average: TypeAlias = Literal["arithmetic", "geometric"]


def pairwise_f(truth: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Return the harmonic mean of precision and recall of the pairs that a labelling joins."""
    # Basu, PhD thesis, 2005, section 2.5; Bilenko and Basu, 2004.
    # With TP the unordered pairs together in both partitions, :math:`P = TP / \#\text{together in
    # labels}`, :math:`R = TP / \#\text{together in truth}`, :math:`F = 2PR / (P + R)`.
    from sklearn.metrics.cluster import pair_confusion_matrix

    classes, clusters = _checked(truth, labels)
    if not classes.size:
        return math.nan
    (_, wrong), (missed, both) = pair_confusion_matrix(classes, clusters).tolist()
    return 2 * both / (2 * both + wrong + missed) if both + wrong + missed else 1.0


def nmi(truth: npt.ArrayLike, labels: npt.ArrayLike, average: Average = "arithmetic") -> float:
    """Return the mutual information of two labellings over the mean of their entropies."""
    # Strehl, Ghosh and Mooney, "Impact of similarity measures on web-page clustering", AAAI 2000
    # workshop; Basu, PhD thesis, 2005, eq. 2.4.
    from sklearn.metrics import normalized_mutual_info_score

    if average not in get_args(Average):
        raise ValueError(f"average = {average!r} is unknown; allowed: 'arithmetic', 'geometric'")
    classes, clusters = _checked(truth, labels)
    if not classes.size:
        return math.nan
    score = normalized_mutual_info_score(classes, clusters, average_method=average)
    # Rounded because equal partitions must have 1, not 0.9999999999999999.
    return round(float(score), 12)


def adjusted_rand(truth: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Return the adjusted Rand index: agreement over pairs, corrected for chance."""
    # Hubert and Arabie, "Comparing partitions", Journal of Classification 2, 1985, eq. 5.
    # With :math:`S` the pairs together in both, :math:`A` and :math:`B` the pairs together in each,
    # and :math:`E = AB / \binom{n}{2}`: :math:`(S - E) / ((A + B)/2 - E)`.
    from sklearn.metrics import adjusted_rand_score

    classes, clusters = _checked(truth, labels)
    return float(adjusted_rand_score(classes, clusters)) if classes.size else math.nan


def matched_accuracy(truth: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Return the share of points that are right under the best matching of clusters to classes."""
    # Kuhn, "The Hungarian method for the assignment problem", Naval Research Logistics 2, 1955.
    # :math:`\max_\pi \frac1n \sum_i [t_i = \pi(l_i)]` over injective partial maps :math:`\pi` from
    # clusters to classes; points of clusters that are left without a class count as wrong.
    from sklearn.metrics.cluster import contingency_matrix

    classes, clusters = _checked(truth, labels)
    if not classes.size:
        return math.nan
    table = contingency_matrix(classes, clusters, sparse=True)
    return _matched(table) / classes.size


def score(
    truth: npt.ArrayLike,
    labels: npt.ArrayLike,
    scored: npt.ArrayLike | None = None,
) -> dict[str, float]:
    """Return all four measures on the scored points, given by distinct indices or a mask."""
    classes, clusters = _checked(truth, labels)
    if scored is not None:
        points = np.asarray(scored)
        # An empty list is an array of floats.
        points = points if points.size else np.empty(0, dtype=np.int64)
        classes, clusters = classes[points], clusters[points]
    return {
        "pairwise_f": pairwise_f(classes, clusters),
        "nmi": nmi(classes, clusters),
        "ari": adjusted_rand(classes, clusters),
        "accuracy": matched_accuracy(classes, clusters),
    }


def _checked(
    truth: npt.ArrayLike, labels: npt.ArrayLike
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return two label vectors of equal length as arrays."""
    from sklearn.utils import check_array, check_consistent_length, column_or_1d

    check = partial(check_array, ensure_2d=False, ensure_min_samples=0, dtype=None)
    classes = check(column_or_1d(truth), input_name="truth")
    clusters = check(column_or_1d(labels), input_name="labels")
    check_consistent_length(classes, clusters)
    return classes, clusters


def _matched(table: Any) -> int:
    """Return the largest total count of a one-to-one matching of a sparse table."""
    # The sparse solver matches every row, so each row gets a column of its own for "unmatched".
    # These cells weigh 1, and all others 1 more than their count, because explicit zeros are not
    # cells. The total of a full matching is its count plus the number of rows.
    from scipy.sparse import coo_array, eye_array, hstack
    from scipy.sparse.csgraph import min_weight_full_bipartite_matching

    if table.shape[0] > table.shape[1]:  # 1000 times faster, because each row needs one search
        table = table.T
    cells = coo_array(table, dtype=np.float64)
    cells.data += 1.0
    graph = hstack([cells, eye_array(table.shape[0])]).tocsr()
    rows, columns = min_weight_full_bipartite_matching(graph, maximize=True)
    return int(graph[rows, columns].sum() - table.shape[0])
