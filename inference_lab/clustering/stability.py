"""Stability of clusters over refits to resampled rows, and the membership of each row."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from inference_lab.clustering.cluster_cv import final_step, fitted
from inference_lab.constraints import Constraints
from inference_lab.constraints.constraints import selected
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.reporting.cluster_profile import Membership, Stability

#: Largest number of refits, after which means of Jaccard similarities change by some 0.02.
_REFITS = 20
#: Largest number of rows of a refit: similarities change little with more.
_ROWS = 5000


def membership_of(estimator: Any, points: FloatArray, labels: IntArray) -> Membership:
    """Return how sure a fitted estimator is about each row.

    Mixtures have posteriors, which include the pairs. Others have the distances of `transform`, or
    the Euclidean distances to the means of the clusters.
    """
    final, inner = final_step(estimator), points
    if isinstance(estimator, Pipeline):
        inner = estimator[:-1].transform(points)
    clusters, place = np.unique(labels, return_inverse=True)
    means = np.array([inner[labels == cluster].mean(axis=0) for cluster in clusters])
    shares = getattr(final, "responsibilities_", None)
    if shares is None and hasattr(final, "predict_proba"):
        shares = final.predict_proba(inner)
    if shares is not None and _fits(shares, labels):
        own, second, other = _two_best(-np.asarray(shares)[:, clusters], place)
        distance = np.sqrt(((inner - means[place]) ** 2).sum(axis=1))
        return Membership("posterior", -own, clusters[second], distance)
    costs = final.transform(inner) if hasattr(final, "transform") else None
    if costs is not None and _fits(costs, labels):
        costs = np.asarray(costs, dtype=np.float64)[:, clusters]
    else:
        costs = np.sqrt(((inner[:, None, :] - means) ** 2).sum(axis=2))
    own, second, other = _two_best(costs, place)
    ratio = np.divide(own, other, out=np.ones_like(own), where=other > 0.0)
    return Membership("distance", 1.0 - ratio, clusters[second], own)


def _fits(values: Any, labels: IntArray) -> bool:
    """Whether values have a row for each label and a column for each cluster."""
    shape = np.shape(values)
    return len(shape) == 2 and shape[0] == labels.size and shape[1] > int(labels.max())


def _two_best(costs: FloatArray, place: IntArray) -> tuple[FloatArray, IntArray, FloatArray]:
    """Return the cost of each row in its cluster, and the cheapest other cluster with its cost."""
    rows = np.arange(place.size)
    own: FloatArray = costs[rows, place].astype(np.float64)
    if costs.shape[1] == 1:
        return own, place, np.full(place.size, np.inf)
    others = costs.astype(np.float64)
    others[rows, place] = np.inf
    second: IntArray = others.argmin(axis=1)
    return own, second, others[rows, second]


def stability_of(
    estimator: Any,
    points: FloatArray,
    constraints: Constraints,
    labels: IntArray,
    seconds: float,
    seed: int = 0,
) -> Stability:
    """Refit an estimator to bootstrap samples of rows and pairs, within a processor time.

    A sample has the distinct rows of a bootstrap sample of the rows without pairs, and the rows of
    a bootstrap sample of the pairs; so a refit has 63 % of the pairs. Copies of a row count once,
    because they would make clusters of their own. The Jaccard similarity of a cluster is the
    largest to a cluster of the refit, over the rows of the sample.

    References
    ----------
    C. Hennig, "Cluster-wise assessment of cluster stability", Computational Statistics and Data
    Analysis 52, 2007.
    """
    clusters = np.unique(labels)
    rng = np.random.default_rng(seed)
    start = time.process_time()
    values: list[FloatArray] = []
    sizes: list[int] = []
    # One refit is made in any case, because it shows more than none.
    while len(values) < _REFITS * (seconds > 0.0) and (
        not values or time.process_time() - start < seconds
    ):
        rows, rest = _resampled(constraints, labels.size, rng)
        refit = _labels(clone(estimator), points[rows], rest)
        if refit is None:
            # The estimator cannot be fitted without some of the rows.
            values.append(np.zeros(clusters.size))
        else:
            values.append(_similarities(labels[rows], refit, clusters))
        sizes.append(rows.size)
    mean = np.nanmean(values, axis=0) if values else np.full(clusters.size, np.nan)
    return Stability(
        np.asarray(mean, dtype=np.float64),
        len(values),
        _REFITS,
        int(np.mean(sizes)) if sizes else 0,
        time.process_time() - start,
    )


def _resampled(
    constraints: Constraints, n: int, rng: np.random.Generator
) -> tuple[IntArray, Constraints]:
    """Return the rows of a sample, and the pairs among them by their places in it."""
    n_must, n_pairs = len(constraints.must_link), len(constraints)
    drawn = (
        np.bincount(rng.integers(n_pairs, size=n_pairs), minlength=n_pairs) > 0
        if n_pairs
        else np.zeros(0, dtype=np.bool_)
    )
    pairs = selected(constraints, drawn[:n_must], drawn[n_must:])
    ends = np.unique(np.concatenate([pairs.must_link, pairs.cannot_link]))
    touched = np.unique(np.concatenate([constraints.must_link, constraints.cannot_link]))
    free = np.setdiff1d(np.arange(n), touched)
    if free.size:
        free = np.unique(free[rng.integers(free.size, size=free.size)])
    room = max(0, _ROWS - ends.size)
    if free.size > room:
        free = rng.permutation(free)[:room]
    rows = np.sort(np.concatenate([ends, free])).astype(np.int64)
    return rows, pairs.restrict(rows, renumber=True)


def _labels(estimator: Any, points: FloatArray, constraints: Constraints) -> IntArray | None:
    """Return the labels of a fit, or None if it is impossible."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return np.asarray(final_step(fitted(estimator, points, constraints)).labels_)
    except (ValueError, ArithmeticError):
        return None


def _similarities(labels: IntArray, refit: IntArray, clusters: IntArray) -> FloatArray:
    """Return the largest Jaccard similarity of each cluster; NaN for clusters without rows."""
    others, place = np.unique(refit, return_inverse=True)
    table = np.zeros((clusters.size, others.size))
    np.add.at(table, (np.searchsorted(clusters, labels), place), 1.0)
    union = table.sum(axis=1, keepdims=True) + table.sum(axis=0) - table
    best: FloatArray = (table / np.maximum(union, 1.0)).max(axis=1)
    best[table.sum(axis=1) == 0.0] = np.nan
    return best
