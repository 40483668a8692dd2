"""Initial centroids from constraints, from K-means or from labels: new (k, d) float64 arrays."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from inference_lab.constraints.constraints import Constraints, check_generator

__all__ = [
    "Perturbation",
    "Weighting",
    "class_centroids",
    "constraint_centroids",
    "farthest_first",
    "kmeans_centroids",
    "numbered_like",
    "squared_distances",
]

Weighting: TypeAlias = Literal["product", "sqrt"]
Perturbation: TypeAlias = Literal["multiplicative", "additive"]
_Floats: TypeAlias = npt.NDArray[np.float64]

_AMPLITUDE = 0.7  # of the perturbations; the constant of the authors' own code
_TIE = 1e-12  # relative: values that differ by rounding only count as tied
_CHUNK = 1 << 16  # float64 entries of a block of differences, 512 kB: stays in the cache


def constraint_centroids(
    features: npt.ArrayLike,
    constraints: Constraints,
    n_clusters: int,
    rng: np.random.Generator,
    *,
    weighting: Weighting = "product",
    perturbation: Perturbation = "multiplicative",
) -> npt.NDArray[np.float64]:
    r"""Centroids from must-link neighbourhoods, the components of two or more points.

    With fewer neighbourhoods than clusters, random perturbations of the global centroid :math:`g`
    are added: :math:`g_m (1 + 0.7 (U_m - 1/2))` ("multiplicative") or :math:`g_m + 0.7 (U_m - 1/2)
    \sigma_m` ("additive"), :math:`U_m` uniform on [0, 1). With more, a weighted farthest-first
    traversal from the largest one adds :math:`\arg\max_p \min_q w_{pq} \lVert c_p - c_q \rVert^2`
    with weights :math:`s_p s_q` of sizes ("product") or their root ("sqrt"). Ties go to the
    centroid farthest from g, then to the first.

    References
    ----------
    Basu, Bilenko and Mooney, "A probabilistic framework for semi-supervised clustering", KDD 2004,
    section 3.3.
    """
    points = _check_features(features)
    k = _check_clusters(n_clusters, len(points))
    check_generator(rng)
    _check_option(weighting, get_args(Weighting), "weighting")
    _check_option(perturbation, get_args(Perturbation), "perturbation")
    if constraints.n_points != len(points):
        raise ValueError(
            f"constraints are over n_points = {constraints.n_points} points, but features has "
            f"{len(points)} rows; the numbers must agree"
        )
    centre = points.mean(axis=0)
    groups = constraints.neighbourhoods()
    known = np.array([points[g].mean(axis=0) for g in groups]).reshape(-1, points.shape[1])
    if len(groups) > k:
        sizes = np.array([len(g) for g in groups], dtype=np.float64)
        from_centre = squared_distances(known, centre[np.newaxis])[:, 0]

        def distances_to(q: int) -> _Floats:
            return squared_distances(known, known[q : q + 1])[:, 0]

        return known[farthest_first(distances_to, sizes, from_centre, k, weighting)]
    scale = centre if perturbation == "multiplicative" else points.std(axis=0)
    uniform = rng.random((k - len(groups), points.shape[1]))
    return np.concatenate((known, centre + _AMPLITUDE * (uniform - 0.5) * scale))


def kmeans_centroids(
    features: npt.ArrayLike,
    n_clusters: int,
    rng: np.random.Generator,
    *,
    n_init: int = 10,
) -> npt.NDArray[np.float64]:
    r"""Centroids of the best of several runs of scikit-learn's K-means, without constraints."""
    from sklearn.cluster import KMeans

    points = _check_features(features)
    k = _check_clusters(n_clusters, len(points))
    check_generator(rng)
    seed = int(rng.integers(2**31))
    model = KMeans(n_clusters=k, n_init=n_init, random_state=seed).fit(points)
    return np.array(model.cluster_centers_, dtype=np.float64)


def class_centroids(features: npt.ArrayLike, labels: npt.ArrayLike) -> npt.NDArray[np.float64]:
    r"""Mean of each class: :math:`\mu_h = |X_h|^{-1} \sum_{i : l_i = h} x_i`."""
    points = _check_features(features)
    classes = np.asarray(labels)
    if classes.shape != (len(points),):
        raise ValueError(
            f"labels has shape {classes.shape}; one label for each of the {len(points)} rows of "
            "features is needed"
        )
    if classes.dtype.kind not in "iu":
        raise TypeError(f"labels has dtype {classes.dtype}; integers 0..K-1 are needed")
    # Bounding by n as well keeps a stray huge label from allocating that many counters.
    outside = np.flatnonzero((classes < 0) | (classes >= len(points)))
    if outside.size:
        at = int(outside[0])
        raise ValueError(
            f"labels[{at}] = {classes[at]} is not allowed: classes are 0..K-1, each with at least "
            f"one of the {len(points)} points"
        )
    classes = classes.astype(np.int64)
    size = np.bincount(classes)
    if not size.all():
        raise ValueError(
            f"class {int(np.flatnonzero(size == 0)[0])} has no points, but labels go up to "
            f"{size.size - 1}; classes are 0..K-1, each of which must occur"
        )
    sums = [np.bincount(classes, weights=column, minlength=size.size) for column in points.T]
    return np.column_stack(sums) / size[:, np.newaxis]


def squared_distances(features: npt.ArrayLike, centroids: npt.ArrayLike) -> npt.NDArray[np.float64]:
    r"""Squared Euclidean distances :math:`D_{ih} = \sum_m (x_{im} - \mu_{hm})^2`.

    From differences, because the expansion :math:`|x|^2 - 2 x'\mu + |\mu|^2` cancels far from 0.
    """
    points = _check_features(features)
    centres = _check_features(centroids, name="centroids")
    if points.shape[1] != centres.shape[1]:
        raise ValueError(
            f"features has {points.shape[1]} columns but centroids has {centres.shape[1]}; "
            "the numbers must agree"
        )
    result = np.empty((len(points), len(centres)))
    step = max(1, _CHUNK // points.shape[1])
    buffer = np.empty((min(step, len(points)), points.shape[1]))
    for begin in range(0, len(points), step):
        block = points[begin : begin + step]
        difference = buffer[: len(block)]
        for h, centre in enumerate(centres):
            np.subtract(block, centre, out=difference)
            np.einsum("im,im->i", difference, difference, out=result[begin : begin + step, h])
    return result


def farthest_first(
    distances_to: Callable[[int], _Floats],
    sizes: _Floats,
    from_centre: _Floats,
    k: int,
    weighting: Weighting = "product",
) -> list[int]:
    """Choose k groups, in the order of the weighted farthest-first traversal."""
    weights = sizes if weighting == "product" else np.sqrt(sizes)
    visited = [_best(sizes, from_centre)]
    nearest = np.full(len(sizes), np.inf)  # min over visited q of w_pq D(c_p, c_q)
    while len(visited) < k:
        q = visited[-1]
        nearest = np.minimum(nearest, weights * weights[q] * distances_to(q))
        nearest[visited] = -np.inf  # never again, even if all other centroids coincide with them
        visited.append(_best(nearest, from_centre))
    return visited


def numbered_like(
    found: npt.NDArray[np.int64], classes: npt.NDArray[np.int64], k: int
) -> npt.NDArray[np.int64]:
    """Return the order of clusters in which cluster ``h`` overlaps class ``h`` most, in total."""
    from scipy.optimize import linear_sum_assignment

    overlap = np.bincount(classes * k + found, minlength=k * k).reshape(k, k)
    _, cluster_of_class = linear_sum_assignment(overlap, maximize=True)
    return np.asarray(cluster_of_class, dtype=np.int64)


def _best(score: _Floats, tie_break: _Floats) -> int:
    """Index of the largest score; ties by the largest `tie_break`, then by the lowest index."""
    top = score.max()
    tied = np.flatnonzero(score >= top - _TIE * abs(top))
    return int(tied[np.argmax(tie_break[tied])])


def _check_features(value: npt.ArrayLike, name: str = "features") -> _Floats:
    """Validate a matrix of points; returns it as C-contiguous float64, copied only if needed."""
    array = np.asarray(value)
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(
            f"{name} has shape {array.shape}; a matrix with at least one row and one column "
            "is needed"
        )
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} has dtype {array.dtype}; real numbers are needed")
    points = np.ascontiguousarray(array, dtype=np.float64)
    finite = np.isfinite(points)
    if not finite.all():
        row, column = np.argwhere(~finite)[0].tolist()
        raise ValueError(f"{name}[{row}, {column}] = {points[row, column]}; finite values needed")
    return points


def _check_clusters(value: int, n_points: int) -> int:
    """Validate a number of clusters."""
    try:
        k = operator.index(value)
    except TypeError:
        raise TypeError(f"n_clusters = {value!r} is not an integer") from None
    if not 1 <= k <= n_points:
        raise ValueError(
            f"n_clusters = {k} is not allowed; from 1 to the number of points, {n_points}"
        )
    return k


def _check_option(value: str, allowed: tuple[str, ...], name: str) -> None:
    """Validate one of a few words."""
    if value not in allowed:
        words = ", ".join(map(repr, allowed))
        raise ValueError(f"{name} = {value!r} is unknown; allowed: {words}")
