"""Number of clusters that points and pairs support, without a fit of the method that asks."""

from __future__ import annotations

import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_samples

from inference_lab.clustering.held_out_pairs import share_together
from inference_lab.clustering.supervision import Supervision
from inference_lab.constraints import Constraints
from inference_lab.constraints.pair_arrays import refuse_hard
from inference_lab.graph.arrays import FloatArray, IntArray

#: Numbers that are compared, up to the square root of the number of points: the silhouettes of
#: clusters of a few points are large by chance.
_NUMBERS = range(2, 16)
#: Starts of k-means for each number. With three, half of the fits miss clear clusters among
#: features without information.
_STARTS = 10
#: Number of points whose silhouettes are computed, which takes the square of it in time.
_SAMPLE = 2_000
#: Number of pairs at which their agreement counts half. Agreement with few pairs is chance.
_HALF = 20.0


def supported_number(points: FloatArray, supervision: Supervision, rng: np.random.Generator) -> int:
    """Return the number of clusters of k-means with the largest silhouette and agreement.

    The mean silhouette of the points is added to the agreement of the labels with the pairs, which
    k-means does not see (docs/decisions/059-data-that-chose-nothing.md). Known labels are a lower
    limit.
    """
    refuse_hard(supervision.constraints)
    known = int(supervision.partial_labels.max(initial=-1)) + 1
    sample: FloatArray = points
    weight = supervision.sample_weight_or_ones
    if len(points) > _SAMPLE:
        rows = supervision.sample(_SAMPLE, rng)
        sample, weight = points[rows], weight[rows]
    n_distinct = len(np.unique(sample, axis=0))
    numbers = [k for k in _NUMBERS if k < n_distinct and (k == 2 or k**2 <= len(points))]
    pairs = supervision.constraints
    reliability = len(pairs) / (len(pairs) + _HALF)
    best, best_score = max(1, known), -np.inf
    for k in numbers:
        model = KMeans(k, n_init=_STARTS, random_state=int(rng.integers(2**31)))
        labels = model.fit(sample, sample_weight=weight).labels_
        score = float(np.average(silhouette_samples(sample, labels), weights=weight))
        score += reliability * agreement(pairs, model.predict(points))
        if score > best_score:
            best, best_score = max(k, known), score
    return best


def agreement(constraints: Constraints, labels: IntArray) -> float:
    """Return the agreement of labels with pairs, 0 at chance and at most 1; 0 without pairs.

    It is corrected for the share of all pairs of points that are in one cluster, and both kinds of
    pairs count alike.
    """
    together = share_together(labels)
    excess, room = 0.0, 0.0
    for ends, weights, wanted, chance in (
        (constraints.must_link, constraints.ml_weights, True, together),
        (constraints.cannot_link, constraints.cl_weights, False, 1.0 - together),
    ):
        if weights.sum() > 0.0:
            same = labels[ends[:, 0]] == labels[ends[:, 1]]
            excess += float(np.average(same == wanted, weights=weights)) - chance
            room += 1.0 - chance
    return excess / room if room > 0.0 else 0.0
