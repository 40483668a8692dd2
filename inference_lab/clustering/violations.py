"""Pairs that labels violate."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from inference_lab.constraints import Constraints
from inference_lab.graph.arrays import IntArray


class Violations(NamedTuple):
    """Number of violated constraints of each kind, and their summed weight.

    Examples
    --------
    >>> from inference_lab.clustering import PCKMeans
    >>> X = [[0.0], [1.0], [8.0], [9.0]]
    >>> model = PCKMeans(2, random_state=0).fit(X, must_link=[(0, 3)], ml_weight=0.5)
    >>> model.violations_
    Violations(must_link=1, cannot_link=0, weight=0.5)
    """

    must_link: int
    cannot_link: int
    weight: float


def violated(constraints: Constraints, labels: IntArray) -> tuple[IntArray, IntArray]:
    """Return the rows of the must-links and of the cannot-links that labels violate."""
    ml, cl = constraints.must_link, constraints.cannot_link
    return (
        np.flatnonzero(labels[ml[:, 0]] != labels[ml[:, 1]]),
        np.flatnonzero(labels[cl[:, 0]] == labels[cl[:, 1]]),
    )


def violations(constraints: Constraints, labels: IntArray) -> Violations:
    """Count the constraints that labels violate."""
    ml, cl = violated(constraints, labels)
    weight = constraints.ml_weights[ml].sum() + constraints.cl_weights[cl].sum()
    return Violations(len(ml), len(cl), float(weight))


def share_kept(constraints: Constraints, labels: IntArray) -> float:
    """Return the mean of the shares of must-links and of cannot-links that labels keep.

    Both kinds have equal weight, because equal labels keep all must-links. If one kind is absent,
    the share of the other is returned.
    """
    if len(constraints) == 0:
        raise ValueError("no pair has both of its points among the rows that are scored")
    of_kind = zip(
        violated(constraints, labels),
        (constraints.must_link, constraints.cannot_link),
        strict=True,
    )
    return float(np.mean([1.0 - len(lost) / len(pairs) for lost, pairs in of_kind if len(pairs)]))
