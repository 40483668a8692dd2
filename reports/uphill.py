"""HMRF-KMeans that learns its metric with the sign of step that the paper prints.

Basu, Bilenko and Mooney (2004) print ``a + rate dJ/da`` for the weights of the features, which
raises the objective. The gradient that they print for the cosine has the opposite sign as well, so
that the two make a descent; that for the I-divergence has not.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from inference_lab.clustering import GradientStep, HMRFKMeans
from inference_lab.distortions.distortions import Distortion
from inference_lab.distortions.metric_learning import Penalised, gradient


class _UphillStep(GradientStep):
    """One step up the gradient, with weights of mean one."""

    def improve(
        self,
        metric: Distortion,
        state: Penalised,
        before: float,
        objective: Callable[[Distortion], float],
    ) -> Distortion:
        """Take the step, although it raises the objective."""
        old = np.ones(state.points.shape[1]) if metric.weights is None else metric.weights
        assert self.rate is not None
        weights = np.maximum(old + self.rate * gradient(metric, state), 0.0)
        return metric.reweighted(weights / weights.mean())


def uphill_kmeans(n_clusters: int, random_state: int, rate: float, max_iter: int) -> HMRFKMeans:
    """Return the estimator for distributions, started from the neighbourhoods of must-links."""
    return HMRFKMeans(
        n_clusters,
        distortion="kl",
        init="neighbourhoods+perturbed",
        metric=_UphillStep(rate=rate),
        max_iter=max_iter,
        random_state=random_state,
    )
