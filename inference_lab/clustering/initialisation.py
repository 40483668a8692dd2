"""Initial centroids: neighbourhoods of the constraints, k-means++, and the choices of papers."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from inference_lab.clustering.supervision import Supervision
from inference_lab.constraints import Constraints
from inference_lab.constraints.centroids import farthest_first
from inference_lab.distortions.distortions import Distortion
from inference_lab.distortions.points import Points, counted_shares, squares
from inference_lab.graph.arrays import FloatArray, IntArray

Init: TypeAlias = Literal[
    "neighbourhoods",
    "neighbourhoods+perturbed",
    "neighbourhoods+singletons",
    "k-means++",
    "random",
    "perturbed",
]

_AMPLITUDE = 0.7  # of the perturbations; the constant in the authors' code


def initial_centroids(
    points: Points,
    supervision: Supervision,
    n_clusters: int,
    distortion: Distortion,
    init: Init | npt.ArrayLike,
    rng: np.random.Generator,
) -> FloatArray:
    """Choose initial centroids: means of labelled points, and `init` for other clusters."""
    k, d = n_clusters, points.shape[1]
    if not isinstance(init, str):
        centroids = np.array(init, dtype=np.float64)
        if centroids.shape != (k, d) or not np.isfinite(centroids).all():
            raise ValueError(
                f"init must be a finite array of shape (n_clusters, n_features) = ({k}, {d}), "
                f"got shape {centroids.shape}"
            )
        return centroids
    if init not in get_args(Init):
        raise ValueError(
            f"init = {init!r} is unknown; allowed: {', '.join(get_args(Init))}, or an array"
        )
    constraints, labels = supervision.constraints, supervision.partial_labels
    sample_weight = supervision.sample_weight
    present = np.unique(labels[labels >= 0])
    settled = group_centroids(
        points, [np.flatnonzero(labels == h) for h in present], distortion, sample_weight
    )
    absent = np.setdiff1d(np.arange(k), present)
    result = np.empty((k, d))
    result[present] = settled
    if absent.size:
        groups = constraints.neighbourhoods() if init.startswith("neighbourhoods") else []
        groups = [group for group in groups if (labels[group] < 0).all()]
        if init == "neighbourhoods+singletons":
            groups += _singletons(constraints, groups, labels < 0, absent.size - len(groups))
        result[absent] = _others(
            points, settled, groups, absent.size, distortion, init, rng, sample_weight
        )
    return result


def _singletons(
    constraints: Constraints, groups: list[IntArray], free: npt.NDArray[np.bool_], count: int
) -> list[IntArray]:
    """Return up to `count` points cannot-linked to all groups and each other, by falling degree."""
    component = constraints.components()
    pairs = component[constraints.cannot_link]
    pairs = np.unique(np.concatenate([pairs, pairs[:, ::-1]]), axis=0)
    degree = np.bincount(pairs[:, 0], minlength=constraints.n_points)
    alone = np.flatnonzero((np.bincount(component)[component] == 1) & free)
    founders = [int(component[group[0]]) for group in groups]
    singletons: list[IntArray] = []
    while len(singletons) < count:
        near = pairs[np.isin(pairs[:, 1], founders), 0]
        apart = np.bincount(near, minlength=constraints.n_points)
        of = component[alone]
        candidates = alone[(apart[of] == len(founders)) & (degree[of] > 0)]
        if candidates.size == 0:
            break
        point = int(candidates[degree[component[candidates]].argmax()])
        singletons.append(np.array([point]))
        founders.append(int(component[point]))
    return singletons


def _others(
    points: Points,
    settled: FloatArray,
    groups: list[IntArray],
    k: int,
    distortion: Distortion,
    init: str,
    rng: np.random.Generator,
    sample_weight: FloatArray | None,
) -> FloatArray:
    """Return k centroids in addition to the settled ones."""
    n, d = points.shape
    if init == "random":
        return alone(points[np.sort(rng.choice(n, size=k, replace=False))], distortion)
    group_means = group_centroids(points, groups, distortion, sample_weight)
    if len(groups) >= k:
        return group_means[_traverse(points, group_means, groups, k, distortion, sample_weight)]
    if init in ("neighbourhoods", "k-means++"):
        before = np.concatenate((settled, group_means))
        return _spread(points, before, len(settled) + k, distortion, rng, sample_weight)[
            len(settled) :
        ]
    centre = centre_of(points, distortion, sample_weight)
    additive = distortion.squared is not None
    scale = _deviations(points, sample_weight) if additive else centre
    uniform = rng.random((k - len(groups), d))
    perturbed = alone(centre + _AMPLITUDE * (uniform - 0.5) * scale, distortion)
    return np.concatenate((group_means, perturbed))


def alone(points: Points, distortion: Distortion) -> FloatArray:
    """Return the centroid of each point in a cluster of its own."""
    count = points.shape[0]
    start = np.zeros((count, points.shape[1]))
    return distortion.centroids(points, np.arange(count), count, start)


def pushed_apart(
    points: Points,
    centroids: FloatArray,
    distortion: Distortion,
    share: float,
    rng: np.random.Generator,
    sample_weight: FloatArray | None,
) -> FloatArray:
    """Move each centroid by a share of the way to a random point, so that equal ones can part."""
    sample_weight = np.ones(points.shape[0]) if sample_weight is None else sample_weight
    targets = points[_drawn(sample_weight, _by_value(points), len(centroids), rng)]
    return (1.0 - share) * centroids + share * alone(targets, distortion)


def _by_value(points: Points) -> IntArray:
    """Return an order of the rows that depends on their values, not on their places."""
    # Sorting by a projection on a fixed direction, which separates different rows and keeps equal
    # ones together, is faster than sorting by columns and works for sparse rows.
    return np.argsort(points @ np.sin(np.arange(1.0, points.shape[1] + 1.0)), kind="stable")


def _drawn(weights: FloatArray, order: IntArray, size: int, rng: np.random.Generator) -> IntArray:
    """Draw rows with replacement in proportion to their weights, in the given order.

    With the order of `_by_value`, draws depend neither on the places of rows nor on their
    repetition.
    """
    p = weights[order]
    return order[rng.choice(len(order), size=size, p=p / p.sum())]


def centre_of(
    points: Points, distortion: Distortion, sample_weight: FloatArray | None = None
) -> FloatArray:
    """Return the centroid of all points, shape (1, d)."""
    everyone = counted_shares(np.zeros(points.shape[0], dtype=np.int64), 1, sample_weight)
    return distortion.centroids(points, everyone, 1, np.zeros((1, points.shape[1])))


def _deviations(points: Points, sample_weight: FloatArray | None) -> FloatArray:
    share = np.full(points.shape[0], 1.0 / points.shape[0])
    if sample_weight is not None:
        share = sample_weight / sample_weight.sum()
    return np.asarray(np.sqrt(np.maximum(share @ squares(points) - (share @ points) ** 2, 0.0)))


def group_centroids(
    points: Points, groups: list[IntArray], distortion: Distortion, sample_weight: FloatArray | None
) -> FloatArray:
    """Return the centroid of each group of rows, shape (g, d)."""
    if not groups:
        return np.empty((0, points.shape[1]))
    members = np.concatenate(groups)
    labels = np.repeat(np.arange(len(groups)), [len(g) for g in groups])
    start = np.zeros((len(groups), points.shape[1]))
    shares = counted_shares(
        labels, len(groups), None if sample_weight is None else sample_weight[members]
    )
    return distortion.centroids(points[members], shares, len(groups), start)


def _traverse(
    points: Points,
    group_means: FloatArray,
    groups: list[IntArray],
    k: int,
    distortion: Distortion,
    sample_weight: FloatArray | None,
) -> list[int]:
    everyone = np.arange(len(group_means))

    def distances_to(q: int) -> FloatArray:
        return distortion.between(
            group_means, np.stack([everyone, np.full_like(everyone, q)], axis=1)
        )

    with_centre = np.concatenate((group_means, centre_of(points, distortion, sample_weight)))
    to_centre = np.stack([everyone, np.full_like(everyone, len(group_means))], axis=1)
    sizes = np.array([len(g) if sample_weight is None else sample_weight[g].sum() for g in groups])
    return farthest_first(distances_to, sizes, distortion.between(with_centre, to_centre), k)


def _spread(
    points: Points,
    start: FloatArray,
    k: int,
    distortion: Distortion,
    rng: np.random.Generator,
    sample_weight: FloatArray | None,
) -> FloatArray:
    """Add points drawn by greedy k-means++ until there are k centroids."""
    n = points.shape[0]
    centroids = list(start)
    nearest = np.full(n, np.inf)
    if len(start):
        nearest = distortion.distances(points, start).min(axis=1)
    trials = 2 + int(np.log(k))
    order = _by_value(points)
    sample_weight = np.ones(n) if sample_weight is None else sample_weight
    while len(centroids) < k:
        weights = np.where(np.isfinite(nearest), nearest, 0.0) if centroids else np.ones(n)
        if centroids and weights.sum() == 0:
            # All points coincide with centroids, or all are at infinite distance.
            weights = np.where(np.isinf(nearest), 1.0, 1.0 / n)
        count = min(trials, n) if centroids else 1
        draws = _drawn(weights * sample_weight, order, count, rng)
        candidates = alone(points[draws], distortion)
        gaps = np.minimum(distortion.distances(points, candidates), nearest[:, np.newaxis])
        finite_gaps = np.where(
            np.isfinite(gaps), gaps, np.finfo(float).max / n / sample_weight.max()
        )
        best = int((sample_weight @ finite_gaps).argmin())
        centroids.append(candidates[best])
        nearest = gaps[:, best]
    return np.array(centroids)
