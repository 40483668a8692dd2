"""Clusters as quadratic functions of a point, which is what `predict` of most models needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from inference_lab.graph.arrays import FloatArray, IntArray

#: Cost of a cluster that no point can be in. JSON has no infinity.
_NEVER = 1e300


@dataclass(frozen=True, eq=False)
class QuadraticCosts:
    """Costs ``offset_h + |(x - centre_h) F_h|^2`` of a point in each cluster.

    ``centres`` (k, d) and ``offsets`` (k,); ``factors`` (m, d, d), or (m, d) for diagonals, where m
    is k, or 1 if clusters share one.
    """

    centres: FloatArray
    factors: FloatArray
    offsets: FloatArray

    def __post_init__(self) -> None:
        """Refuse shapes that do not fit together, and values that are not finite."""
        offsets = np.where(np.isposinf(self.offsets), _NEVER, self.offsets)
        object.__setattr__(self, "offsets", offsets)
        if self.centres.ndim != 2 or 0 in self.centres.shape:
            raise ValueError(f"centres must have shape (k, d), got {self.centres.shape}")
        k, d = self.centres.shape
        allowed = [(m, *rest) for m in (1, k) for rest in ((d,), (d, d))]
        if self.factors.shape not in allowed or self.offsets.shape != (k,):
            raise ValueError(
                f"centres of shape {self.centres.shape} do not fit factors of shape "
                f"{self.factors.shape} and offsets of shape {self.offsets.shape}"
            )
        for name, values in vars(self).items():
            if not np.isfinite(values).all():
                raise ValueError(f"{name} must be finite")

    def of(self, points: FloatArray) -> FloatArray:
        """Return the cost of each point in each cluster, shape (n, k)."""
        costs = np.empty((len(points), len(self.centres)))
        for h, centre in enumerate(self.centres):
            factor = self.factors[h % len(self.factors)]
            gaps = points - centre
            # Costs beyond the range of doubles are infinite, and no reason for a warning.
            with np.errstate(over="ignore", invalid="ignore"):
                gaps = gaps * factor if factor.ndim == 1 else gaps @ factor
                costs[:, h] = self.offsets[h] + np.einsum("ij,ij->i", gaps, gaps)
        return costs

    def labels(self, points: FloatArray) -> IntArray:
        """Return the cheapest cluster of each point, shape (n,)."""
        return np.asarray(self.of(points).argmin(axis=1), dtype=np.int64)

    def before(self, shift: FloatArray, scale: FloatArray) -> QuadraticCosts:
        """Return the same costs as functions of points that are not yet shifted and scaled."""
        rows = 1.0 / scale
        factors = self.factors * (rows if self.factors.ndim == 2 else rows[:, np.newaxis])
        return QuadraticCosts(self.centres * scale + shift, factors, self.offsets)


def metric_costs(centres: FloatArray, metric: FloatArray | None) -> QuadraticCosts:
    """Return squared distances to centroids under a metric, (d,), (d, d) or the identity."""
    k, d = centres.shape
    if metric is None:
        factor = np.ones(d)
    elif metric.ndim == 1:
        factor = np.sqrt(np.maximum(metric, 0.0))
    else:
        values, vectors = np.linalg.eigh(metric)
        factor = vectors * np.sqrt(np.maximum(values, 0.0))
    return QuadraticCosts(centres, factor[np.newaxis], np.zeros(k))


def quadratic_costs(estimator: Any) -> QuadraticCosts:
    """Return the parameters of `predict` of a fitted estimator, or of a pipeline that ends in one.

    Estimators whose clusters are no quadratic functions raise a `TypeError`.
    """
    if isinstance(estimator, Pipeline):
        costs = quadratic_costs(estimator[-1])
        for step in reversed(estimator[:-1]):
            if not isinstance(step, StandardScaler):
                raise TypeError(f"clusters behind {type(step).__name__} cannot be stored")
            costs = costs.before(step.mean_, step.scale_)
        return costs
    if isinstance(estimator, KMeans):
        return metric_costs(np.asarray(estimator.cluster_centers_, dtype=np.float64), None)
    stored = getattr(estimator, "_quadratic_costs", None)
    if stored is None:
        raise TypeError(f"clusters of {type(estimator).__name__} cannot be stored")
    costs = stored()
    assert isinstance(costs, QuadraticCosts)
    return costs
