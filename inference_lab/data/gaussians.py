"""Points drawn from mixtures of Gaussians: data with a known model, to compare with real data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


def labels_by_share(
    rng: np.random.Generator, shares: npt.NDArray[Any], n: int
) -> npt.NDArray[np.int64]:
    """Return labels in random order, each in proportion to its share."""
    limits = np.cumsum(shares) / shares.sum() * n
    labels = np.searchsorted(limits, np.arange(n) + 0.5).astype(np.int64)
    rng.shuffle(labels)
    return labels


@dataclass(frozen=True)
class Mixture:
    """A mixture of Gaussians whose means are drawn from a Gaussian as well.

    Standard deviations in each feature are ``apart`` for the means and 1 for the points of a class;
    in one direction of its own, each class has ``long``. With ``uneven``, class h is 1.5 times as
    large as class h + 1. Studies draw subsets of the ``points``.
    """

    description: str
    features: int
    classes: int
    apart: float
    long: float = 1.0
    uneven: bool = False
    points: int = 3000

    def draw(
        self, seed: int = 0, least: int = 0
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """Return points and their classes, in random order; the same for the same seed."""
        rng = np.random.default_rng(seed)
        n, k, d = max(self.points, least), self.classes, self.features
        means = self.apart * rng.normal(size=(k, d))
        directions = rng.normal(size=(k, d))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        shares = 1.5 ** -np.arange(k, dtype=np.float64) if self.uneven else np.ones(k)
        labels = labels_by_share(rng, shares, n)
        points = means[labels] + rng.normal(size=(n, d))
        further = rng.normal(size=(n, 1)) * np.sqrt(self.long**2 - 1.0)
        return points + further * directions[labels], labels


#: The families by name: the assumptions of k-means, and two violations of them.
MIXTURES: Mapping[str, Mixture] = {
    "gaussians-round": Mixture("round clusters of one size that overlap", 4, 3, apart=1.2),
    "gaussians-long": Mixture(
        "clusters three times as long as wide, each in a direction of its own",
        6,
        4,
        apart=1.5,
        long=3.0,
    ),
    "gaussians-uneven": Mixture(
        "round clusters, each half as large again as the next", 8, 8, apart=1.5, uneven=True
    ),
}
