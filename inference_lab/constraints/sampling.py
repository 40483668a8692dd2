"""Pairs drawn from known classes, and splits of points, for `Constraints.sample`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from inference_lab.constraints.arrays import IntArray, read_classes
from inference_lab.constraints.pairs import (
    check_count,
    check_generator,
    pairs_across,
    pairs_inside,
    point_indices,
    sample_pairs,
)

__all__ = ["drawn", "known", "split_points"]


def drawn(
    truth: npt.NDArray[np.generic],
    n: int,
    rng: np.random.Generator,
    among: npt.ArrayLike | None,
) -> tuple[IntArray, IntArray]:
    """Draw distinct unordered pairs; return must-links and cannot-links."""
    points = None if among is None else point_indices(among, truth.size, name="among")
    m = truth.size if points is None else int(points.size)
    available = m * (m - 1) // 2
    count = check_count(n, name="n", smallest=0)
    if count > available:
        raise ValueError(
            f"n = {count} distinct pairs were asked for, but {m} points have only "
            f"{available} unordered pairs"
        )
    pairs = sample_pairs(m, count, rng)
    if points is not None:
        pairs = points[pairs]
    together = np.asarray(truth[pairs[:, 0]] == truth[pairs[:, 1]], dtype=bool)
    return pairs[together], pairs[~together]


def known(
    truth: npt.NDArray[np.generic], unlabelled: object, scheme: str, limit: int
) -> tuple[IntArray, IntArray]:
    """Return the must-links and cannot-links implied by known classes."""
    labelled = np.flatnonzero(np.asarray(truth != unlabelled, dtype=bool))
    _, group, size = np.unique(truth[labelled], return_inverse=True, return_counts=True)
    members = labelled[np.argsort(group, kind="stable")]
    start = np.cumsum(size) - size
    k = int(size.size)
    everyone = int(labelled.size) * (int(labelled.size) - 1) // 2
    needed = everyone if scheme == "pairs" else int(labelled.size) - k + k * (k - 1) // 2
    if needed > limit:
        raise ValueError(
            f"{labelled.size} labelled points of {k} classes give {needed} pairs, more than "
            f"max_pairs = {limit}; scheme='chains' needs fewer"
        )
    two_classes = np.stack(np.triu_indices(k, 1), axis=1).astype(np.int64)
    if scheme == "pairs":
        ml = members[pairs_inside(start, size)]
        cl = members[pairs_across(start, size, two_classes)]
    else:
        links = np.flatnonzero(np.diff(np.repeat(np.arange(k), size)) == 0)
        ml = np.stack((members[links], members[links + 1]), axis=1)
        cl = members[start[two_classes]]
    return ml, cl


def split_points(
    labels: npt.ArrayLike, share: float, rng: np.random.Generator, *, stratified: bool = True
) -> tuple[IntArray, IntArray]:
    """Split points into training and test points.

    Draw constraints ``among`` the training points only, cluster all points, and score the test
    points; `Constraints.touches` finds test points in pairs.

    Parameters
    ----------
    labels : array-like, shape (n_points,)
        True classes.
    share : float in [0, 1]
        ``round(share * n_points)`` points are test points.
    rng : numpy.random.Generator
    stratified : bool
        Every class gives its share, up to less than one point.

    Returns
    -------
    train, test : ndarray of int64
        Ascending.

    Raises
    ------
    TypeError, ValueError
        If `rng` is no generator, or `share` is not from 0 to 1.

    Examples
    --------
    >>> from inference_lab.constraints.constraints import Constraints
    >>> rng = np.random.default_rng(0)
    >>> labels = ["a", "a", "b", "b"]
    >>> train, test = split_points(labels, 0.5, rng)
    >>> c = Constraints.sample(labels, 1, rng, among=train)
    >>> c.touches(test)
    array([], dtype=int64)
    """
    check_generator(rng)
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"share = {share!r} is not allowed; a number from 0 to 1 is needed")
    truth = read_classes(labels)
    count = round(share * truth.size)
    order = rng.permutation(truth.size)
    if stratified:
        _, group, size = np.unique(truth, return_inverse=True, return_counts=True)
        # Whole points first; what is left goes to the largest remainders.
        exact = share * size
        quota = np.floor(exact).astype(np.int64)
        remainder = np.argsort(quota - exact, kind="stable")
        quota[remainder[: count - int(quota.sum())]] += 1
        order = order[np.argsort(group[order], kind="stable")]
        rank = np.arange(truth.size) - np.repeat(np.cumsum(size) - size, size)
        chosen = order[rank < np.repeat(quota, size)]
    else:
        chosen = order[:count]
    is_test = np.zeros(truth.size, dtype=np.bool_)
    is_test[chosen] = True
    return np.flatnonzero(~is_test), np.flatnonzero(is_test)
