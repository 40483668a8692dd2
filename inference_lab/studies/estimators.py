"""The estimators and the scores that studies of clustering may name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from inference_lab import clustering
from inference_lab.results.scoring import adjusted_rand, matched_accuracy, nmi, pairwise_f
from inference_lab.studies.wekaut import WekaUTKMeans

__all__ = ["ESTIMATORS", "SCORES"]

#: Estimators that definitions can name.
ESTIMATORS: Mapping[str, Callable[..., Any]] = {
    "hmrf-kmeans": clustering.HMRFKMeans,
    "pckmeans": clustering.PCKMeans,
    "mpckmeans": clustering.MPCKMeans,
    "gaussian-mixture": clustering.ConstrainedGaussianMixture,
    "annealed-kmeans": clustering.AnnealedConstrainedKMeans,
    "wekaut": WekaUTKMeans,
}

#: Scores of labels against the truth, all between 0 and 1 (the adjusted Rand index may be less).
SCORES: Mapping[str, Callable[[Any, Any], float]] = {
    "pairwise_f": pairwise_f,
    "nmi": nmi,
    "ari": adjusted_rand,
    "accuracy": matched_accuracy,
}
