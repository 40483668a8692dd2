"""Points in the plane on which centroids alone do not find the classes, drawn for two studies.

Six patterns are the shapes that "Clustering With Side Information" (Khashabi et al. 2015, sec. 5.1)
shows: the sizes are those of the generators in the authors' code; the points are drawn anew, always
the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from inference_lab.graph.arrays import FloatArray, IntArray

_Drawn: TypeAlias = tuple[FloatArray, IntArray]


def _classes(*groups: FloatArray) -> _Drawn:
    """Return groups of points, a class each."""
    labels = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    return np.concatenate(groups), labels.astype(np.int64)


def _polar(radius: FloatArray, angle: FloatArray) -> FloatArray:
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)


def two_spirals() -> _Drawn:
    """Return two arms that turn 1.6 times around each other, 250 points each."""
    rng = np.random.default_rng(0)
    arms = []
    for turn in (np.pi, 0.0):
        angle = np.deg2rad(90.0 + 570.0 * np.sqrt(rng.random(250)))
        arms.append(_polar(angle, turn - angle) + 0.2 * rng.random((250, 2)))
    return _classes(*arms)


def cluster_in_cluster() -> _Drawn:
    """Return a disc of three rings inside a ring of 64 spokes, about 250 points each."""
    rng = np.random.default_rng(0)
    inner = np.asarray(1.0 + 0.8 * rng.integers(3, size=250) / 3.0, dtype=np.float64)
    outer = 5.0 * (1.0 - 1.0 / 6.0 + np.arange(4) / 12.0)
    return _classes(
        _polar(inner, rng.uniform(0.0, 2.0 * np.pi, 250)),
        _polar(np.tile(outer, 64), np.repeat(2.0 * np.pi * np.arange(64) / 64, 4)),
    )


def corners() -> _Drawn:
    """Return four corners of a frame with gaps, each of two bars, 138 points each."""
    rng = np.random.default_rng(0)
    groups = []
    for sign in ((1.0, 1.0), (-1.0, -1.0), (1.0, -1.0), (-1.0, 1.0)):
        along, across = 10.0 * rng.random((2, 69)), 2.0 * rng.random((2, 69))
        bars = np.concatenate(
            [np.stack([along[0], across[0]], axis=1), np.stack([across[1], along[1]], axis=1)]
        )
        groups.append(np.array(sign) * (2.0 + bars))
    return _classes(*groups)


def half_kernel() -> _Drawn:
    """Return two arcs, one around the other, 250 points each."""
    rng = np.random.default_rng(0)
    arcs = []
    for radius in (20.0, 35.0):
        angle = np.pi * rng.random(250)
        arc = np.stack([radius * np.sin(angle) - 20.0, 0.6 * radius * np.cos(angle)], axis=1)
        arcs.append(arc + rng.uniform(-2.0, 2.0, (250, 2)))
    return _classes(*arcs)


def crescent_full_moon() -> _Drawn:
    """Return a disc of 75 points over a crescent of 225."""
    rng = np.random.default_rng(0)
    moon = _polar(5.0 * np.sqrt(rng.random(75)), rng.uniform(0.0, 2.0 * np.pi, 75))
    radius = 10.0 + 5.0 * np.sqrt(rng.random(225))
    return _classes(moon, _polar(radius, np.pi * (1.0 + rng.random(225))))


def outlier() -> _Drawn:
    """Return two half discs of 138 points that face each other, and two far squares of 12."""
    rng = np.random.default_rng(0)
    halves = []
    for side in (-1.0, 1.0):
        half = _polar(20.0 * np.sqrt(rng.random(138)), np.pi * (rng.random(138) - 0.5))
        halves.append(half * [-side, 1.0] + [30.0 * side, 0.0])
    squares = [[0.0, 30.0 * side] + 5.0 * rng.random((12, 2)) for side in (1.0, -1.0)]
    return _classes(*halves, *squares)


#: Name to the function that draws the points and their classes.
PATTERNS: Mapping[str, Callable[[], _Drawn]] = {
    "two-spirals": two_spirals,
    "cluster-in-cluster": cluster_in_cluster,
    "corners": corners,
    "half-kernel": half_kernel,
    "crescent-full-moon": crescent_full_moon,
    "outlier": outlier,
}


def four_clouds(n: int = 200, seed: int = 0, ratio: float = 2.0) -> _Drawn:
    """Return the toy data of Lange et al. (2005, fig. 2), rebuilt from its description.

    Four round clouds of equal size on the corners of a rectangle that is higher than wide. The
    best two clusters are the upper and the lower clouds; the classes are left and right.
    """
    rng = np.random.default_rng(seed)
    right, upper = np.arange(n) % 2, np.arange(n) // 2 % 2
    points = rng.normal(scale=0.4, size=(n, 2))
    points += np.stack([2.0 * right - 1.0, ratio * (2.0 * upper - 1.0)], axis=1)
    return points, right.astype(np.int64)
