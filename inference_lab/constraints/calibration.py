"""Calibrated weight of a constraint on squared distances, given the share of wrong ones."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from inference_lab.constraints.centroids import kmeans_centroids, squared_distances


def log_odds_of(noise: float, count: int) -> float:
    """Return the log-odds that a constraint is right."""
    wrong = (noise * count + 0.5) / (count + 1)
    return max(0.0, math.log((1.0 - wrong) / wrong)) if wrong < 1.0 else 0.0


def calibrated_weight(features: npt.ArrayLike, n_clusters: int, odds: float) -> float:
    """Return the weight ``2 v odds`` of log-odds on the scale of squared distances.

    Gaussians of equal variance ``v`` make distances log-probabilities times ``2 v``. Here ``v`` is
    the variance of a feature within the clusters of k-means with a fixed seed.
    """
    points = np.asarray(features, dtype=np.float64)
    centroids = kmeans_centroids(points, n_clusters, np.random.default_rng(0))
    apart = squared_distances(points, centroids).min(axis=1).mean()
    return float(2.0 * apart / points.shape[1] * odds)
