"""Starts and weights of other methods from `PCKMeans` on the same pairs."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from inference_lab.clustering.fit_inputs import Weights
from inference_lab.clustering.hmrf_kmeans import PCKMeans
from inference_lab.clustering.initialisation import initial_centroids
from inference_lab.clustering.pair_odds import log_odds
from inference_lab.clustering.pair_weights import weight_of_odds
from inference_lab.clustering.shared_starts import once
from inference_lab.clustering.supervision import Supervision
from inference_lab.distortions.distortions import Distortion, SquaredEuclidean
from inference_lab.distortions.points import Points
from inference_lab.graph.arrays import FloatArray


def paired_kmeans(
    points: Points,
    supervision: Supervision,
    n_clusters: int,
    rng: np.random.Generator,
    odds: float = 1.0,
) -> PCKMeans:
    """Return `PCKMeans` fitted to pairs, as a start of other methods.

    Weights times `odds` are log-odds that pairs are right. Methods with many or degenerate local
    optima start near clusters on which pairs and squared distances agree.
    """
    scale = weight_of_odds(points, n_clusters, SquaredEuclidean(), supervision.sample_weight)
    # Pairs of infinite weight must stay hard if the unit is zero.
    unit, pairs = max(odds * scale, np.finfo(float).tiny), supervision.constraints
    arguments = pairs.fit_params() | {
        "ml_weight": unit * pairs.ml_weights,
        "cl_weight": unit * pairs.cl_weights,
        "partial_labels": supervision.partial_labels,
        "sample_weight": supervision.sample_weight,
    }

    def fit() -> PCKMeans:
        with warnings.catch_warnings():
            # The calling method issues its own warnings about pairs.
            warnings.simplefilter("ignore")
            return PCKMeans(n_clusters, random_state=rng).fit(points, **arguments)

    seed = str(rng.bit_generator.state), str(rng.bit_generator.seed_seq)
    return once("paired k-means", (points, n_clusters, seed, *arguments.values()), fit)


def weights_by_belief(
    points: Points, supervision: Supervision, n_clusters: int, rng: np.random.Generator
) -> Weights:
    """Return ones for pairs that `PCKMeans` keeps, and zeros for pairs that it violates.

    For methods without a scale for log-odds: they use a pair fully, or leave it out.
    """
    pairs = supervision.constraints
    labels = paired_kmeans(points, supervision, n_clusters, rng, log_odds(pairs)).labels_
    ml, cl = (labels[e[:, 0]] == labels[e[:, 1]] for e in (pairs.must_link, pairs.cannot_link))
    return {"ml_weight": ml.astype(np.float64), "cl_weight": (~cl).astype(np.float64)}


def centroids_or_paired(
    init: Any,
    points: Points,
    supervision: Supervision,
    n_clusters: int,
    distortion: Distortion,
    rng: np.random.Generator,
) -> FloatArray:
    """Return the initial centroids for `init`; with "auto", the centroids of `PCKMeans`."""
    if isinstance(init, str) and init == "auto":
        odds = log_odds(supervision.constraints)
        return paired_kmeans(points, supervision, n_clusters, rng, odds).cluster_centers_
    return initial_centroids(points, supervision, n_clusters, distortion, init, rng)
