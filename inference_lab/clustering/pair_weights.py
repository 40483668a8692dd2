"""The unit of weights that are "auto": the cost of a unit of log-probability."""

from __future__ import annotations

import numpy as np

from inference_lab.clustering.bregman_kmeans import BregmanKMeans
from inference_lab.clustering.pair_reliability import unit_of_costs
from inference_lab.clustering.shared_starts import once
from inference_lab.distortions.distortions import Distortion, SquaredEuclidean
from inference_lab.distortions.points import Points
from inference_lab.graph.arrays import FloatArray


def weight_of_odds(
    points: Points, n_clusters: int, distortion: Distortion, sample_weight: FloatArray | None
) -> float:
    """Return the cost of a unit of log-probability, from the clusters of k-means without pairs.

    The log-likelihood ratio of two Gaussians of one covariance has a variance of twice its mean.
    Differences of costs between a point's own cluster and another are therefore divided by half the
    quotient of their variance and their mean. For squared distances this is ``2 v``, with ``v`` the
    variance within clusters along the lines between centroids. If costs do not differ, any unit is
    valid, and 1 is returned.
    """
    if type(distortion) is SquaredEuclidean and distortion.metric is None:
        return once(
            "weight of odds",
            (points, n_clusters, sample_weight),
            lambda: _weight_of_odds(points, n_clusters, distortion, sample_weight),
        )
    return _weight_of_odds(points, n_clusters, distortion, sample_weight)


def _weight_of_odds(
    points: Points, n_clusters: int, distortion: Distortion, sample_weight: FloatArray | None
) -> float:
    """Fit k-means, and return the cost of a unit of log-probability."""
    model = BregmanKMeans(n_clusters, distortion=distortion, random_state=0)
    model.fit(points, sample_weight=sample_weight)
    costs = model._costs(points)
    sample_weight = np.ones(points.shape[0]) if sample_weight is None else sample_weight
    return unit_of_costs(costs, model.labels_, sample_weight)
