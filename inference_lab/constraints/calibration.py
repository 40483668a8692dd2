"""What a constraint is worth to squared distances, where it is known how many are wrong."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from inference_lab.constraints.centroids import kmeans_centroids, squared_distances

__all__ = ["log_odds_of", "worth"]


def log_odds_of(noise: float, count: int) -> float:
    """Return by how much likelier a constraint is right than wrong, as a logarithm."""
    wrong = (noise * count + 0.5) / (count + 1)
    return max(0.0, math.log((1.0 - wrong) / wrong)) if wrong < 1.0 else 0.0


def worth(features: npt.ArrayLike, n_clusters: int, odds: float) -> float:
    """Return what log-odds are worth on the scale of squared distances, ``2 v odds``.

    Gaussians of equal variance ``v`` make the energy of distances their log-probability, times
    ``2 v``. It is the variance of a feature within the clusters of k-means, always the same for
    the same points.
    """
    points = np.asarray(features, dtype=np.float64)
    centroids = kmeans_centroids(points, n_clusters, np.random.default_rng(0))
    apart = squared_distances(points, centroids).min(axis=1).mean()
    return float(2.0 * apart / points.shape[1] * odds)
