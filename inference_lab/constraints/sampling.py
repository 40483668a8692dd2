"""Pairs drawn from known classes, for `Constraints.sample`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from inference_lab.constraints.pairs import (
    pairs_across,
    pairs_inside,
    point_indices,
    sample_pairs,
)
from inference_lab.graph.arrays import IntArray
from inference_lab.specs.whole_numbers import check_count


def drawn(
    classes: IntArray,
    n: int,
    rng: np.random.Generator,
    among: npt.ArrayLike | None,
) -> tuple[IntArray, IntArray]:
    """Draw distinct unordered pairs; return must-links and cannot-links."""
    points = None if among is None else point_indices(among, classes.size, name="among")
    m = classes.size if points is None else int(points.size)
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
    together = classes[pairs[:, 0]] == classes[pairs[:, 1]]
    return pairs[together], pairs[~together]


def implied_pairs(classes: IntArray, scheme: str, limit: int) -> tuple[IntArray, IntArray]:
    """Return the must-links and cannot-links implied by numbered classes, -1 where unknown."""
    labelled = np.flatnonzero(classes >= 0)
    _, group, size = np.unique(classes[labelled], return_inverse=True, return_counts=True)
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
