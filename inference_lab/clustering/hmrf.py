r"""The model of HMRF-KMeans: centroids, penalties of violated constraints, and a learnt metric.

With labels ``l``, centroids ``mu``, must-links M and cannot-links C, each pair counted once,

``J = sum_i D(x_i, mu_{l_i}) + sum_M w_ij f_ij [l_i != l_j] + sum_C w_ij g_ij [l_i = l_j]``.

``f = g = 1`` with the penalty "potts"; with "distance" ``f`` is ``phi(x_i, x_j)`` and ``g`` is
``phi_max - phi(x_i, x_j)``, never negative.
If the metric is learnt, ``log det A`` is subtracted from squared Euclidean costs.

S. Basu, M. Bilenko, R. Mooney, "A probabilistic framework for semi-supervised clustering", KDD
2004, eqs. (5), (9). M. Bilenko, S. Basu, R. Mooney, "Integrating constraints and metric learning
in semi-supervised clustering", ICML 2004.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import numpy as np

from inference_lab.clustering.cluster_model import Assignment, Model, as_labels
from inference_lab.clustering.initialisation import pushed_apart
from inference_lab.clustering.supervision import Supervision
from inference_lab.clustering.violations import violated
from inference_lab.distortions.distortions import Distortion
from inference_lab.distortions.metric_learning import MetricLearner, Penalised
from inference_lab.distortions.points import Points, cluster_sizes, cluster_sums, counted_shares
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.graph.terms import DiagonalTerms

Penalty = Literal["potts", "distance"]
EmptyClusters = Literal["reseed", "keep"]


class HMRF(Model):
    """Clusters of the HMRF-KMeans family."""

    def __init__(
        self,
        points: Points,
        supervision: Supervision,
        distortion: Distortion,
        centroids: FloatArray,
        *,
        penalty: Penalty = "potts",
        learner: MetricLearner | None = None,
        empty: EmptyClusters = "reseed",
        alpha_weight: FloatArray | None = None,
    ) -> None:
        super().__init__(supervision, alpha_weight)
        self.points = points
        self.metric = distortion
        self.centroids = np.array(centroids, dtype=np.float64)
        self.penalty = penalty
        self.learner = learner
        self.empty = empty
        self.labelled: IntArray = np.flatnonzero(self.partial_labels >= 0)
        #: Sums and sizes of the clusters of the last labels.
        self._sums_of_last: tuple[IntArray, FloatArray, FloatArray] | None = None
        self._set_penalties()

    def _set_penalties(self) -> None:
        """Compute what depends on the metric alone: penalties, terms, and the spread of points."""
        squared, constraints = self.metric.squared, self.constraints
        #: Difference of the farthest pair of points, where it was needed.
        self._extent: FloatArray | None = None
        #: Summed squared norm of the points.
        self._spread = 0.0 if squared is None else self._total(squared.norms(self.points))
        #: Costs of violating each must-link, (p,), and each cannot-link, (q,).
        self.ml_costs, self.cl_costs = constraints.ml_weights, constraints.cl_weights
        if self.penalty == "distance":
            apart = self.metric.between(self.points, constraints.must_link)
            self.ml_costs = _penalties(self.ml_costs, apart)
            self.cl_costs = _penalties(self.cl_costs, self._gaps_to_largest())
        # The renumbered pairs have the order of the constraints, and so of their costs.
        self._terms = self.pairs.terms(self.ml_costs, self.cl_costs)

    def _gaps_to_largest(self) -> FloatArray:
        """Return the gap of the dissimilarity of each cannot-link to the largest one."""
        metric, squared, pairs = self.metric, self.metric.squared, self.constraints.cannot_link
        if not len(pairs):
            return np.zeros(0)
        if squared is None:
            largest = metric.largest(self.points)
        else:
            # Kept for the metric step, because the farthest pair takes long to find.
            self._extent = squared.extent(self.points)
            largest = float(squared.norms(self._extent[np.newaxis])[0])
        return np.maximum(largest - metric.between(self.points, pairs), 0.0)

    # -------------------------------------------------------------- the E-step

    def nearest(self, previous: IntArray | None) -> IntArray:
        """Return the cheapest cluster of each point on its own; ties keep the previous label."""
        labels = self.metric.nearest(self.points, self.centroids, previous)
        labels[self.labelled] = self.partial_labels[self.labelled]
        return labels

    def costs(self, rows: IntArray | None = None) -> FloatArray:
        """Return the costs (n, k) of all points or sorted `rows`; ``inf`` excludes labels."""
        points, partial_labels = self.points, self.partial_labels
        # Rows are sorted, so a full selection needs no copy.
        if rows is not None and rows.size < points.shape[0]:
            points, partial_labels = points[rows], partial_labels[rows]
        return clamped(self.metric.distances(points, self.centroids), partial_labels)

    def terms(self) -> Sequence[DiagonalTerms]:
        """Return the penalties as diagonal terms."""
        return self._terms

    # -------------------------------------------------------------- the M-step

    def maximise(self, assignment: Assignment) -> Iterator[str]:
        """Move the centroids, then learn the metric from labels."""
        if assignment.ndim == 2:
            self._move_softly(np.asarray(assignment, dtype=np.float64))
            yield "centroids"
            return
        labels = as_labels(assignment)
        self._move(labels)
        self._reseed_empty(labels)
        yield "centroids"
        if self.learner is not None:
            self._learn(labels, self.learner)
            yield "metric"

    def _move_softly(self, shares: FloatArray) -> None:
        """Move the centroids to minimise the expected costs under shares."""
        weight = self.point_weight()
        if weight is not None:
            shares = shares * weight[:, np.newaxis]
        k = len(self.centroids)
        self.centroids = self.metric.centroids(self.points, shares, k, self.centroids)

    def _move(self, labels: IntArray) -> None:
        """Move the centroids to minimise the costs of their points; empty clusters keep theirs."""
        k = len(self.centroids)
        if self.metric.squared is None:
            shares = counted_shares(labels, k, self.sample_weight)
            self.centroids = self.metric.centroids(self.points, shares, k, self.centroids)
            return
        # The centroids are means under every metric.
        sums, sizes = self._cluster_sums(labels)
        used = sizes > 0
        self.centroids = self.centroids.copy()
        self.centroids[used] = sums[used] / sizes[used, np.newaxis]

    def _reseed_empty(self, labels: IntArray) -> None:
        """Move the centroid of each empty cluster to the point of highest cost."""
        members = np.bincount(labels, minlength=len(self.centroids))
        empty = np.flatnonzero(members == 0)
        if empty.size == 0 or self.empty == "keep":
            return
        costs = self.own_costs(labels)
        costs[members[labels] == 1] = -np.inf
        # Points of known label are excluded, because they could not follow the centroid.
        costs[self.labelled] = -np.inf
        for h in empty:
            worst = int(costs.argmax())
            if costs[worst] == -np.inf:
                return
            self.centroids[h] = self.metric.centroids(
                self.points[[worst]], np.zeros(1, dtype=np.int64), 1, self.centroids[h : h + 1]
            )[0]
            costs[worst] = -np.inf

    def _learn(self, labels: IntArray, learner: MetricLearner) -> None:
        """Let the learner improve the metric for these labels."""
        ml, cl = violated(self.constraints, labels)
        state = Penalised(
            self.points,
            labels,
            self.centroids,
            self.constraints.must_link[ml],
            self.constraints.ml_weights[ml],
            self.constraints.cannot_link[cl],
            self.constraints.cl_weights[cl],
            self.penalty == "distance",
            self.sample_weight,
            self._extent,
        )
        before = self.objective(labels)

        def objective(metric: Distortion) -> float:
            self.metric = metric
            self._set_penalties()
            return self.objective(labels)

        better = learner.improve(self.metric, state, before, objective)
        if self.metric is not better:
            objective(better)

    def parameters(self) -> tuple[FloatArray, ...]:
        """Return the centroids and all weights."""
        weights = self.metric.weights
        return (self.centroids,) if weights is None else (self.centroids, weights)

    # -------------------------------------------------------------- the objective

    def objective(self, labels: IntArray) -> float:
        """Return ``J``."""
        return self.distortion(labels) + self.normaliser(labels) + self.penalties(labels)

    def distortion(self, labels: IntArray) -> float:
        """Return the summed cost of the points in their clusters."""
        squared = self.metric.squared
        if squared is None:
            return self._total(self.own_costs(labels))
        # Uses the sums of the clusters, which the centroids need anyway, in O(k d).
        sums, sizes = self._cluster_sums(labels)
        scaled = squared.times(self.centroids)
        inner = np.einsum("hm,hm->", scaled, 2.0 * sums - sizes[:, np.newaxis] * self.centroids)
        return max(0.0, self._spread - float(inner))

    def normaliser(self, labels: IntArray) -> float:
        """Return ``-n log det A``, zero if no metric is learnt."""
        if self.learner is None or not self.learner.normalised:
            return 0.0
        return -self._total(np.full(labels.size, self.metric.log_det(self.points.shape[1])))

    def penalties(self, labels: IntArray) -> float:
        """Return the summed cost of the violated constraints."""
        ml, cl = violated(self.constraints, labels)
        return float(self.ml_costs[ml].sum() + self.cl_costs[cl].sum())

    def pair_costs(self) -> FloatArray:
        """Return the cost of violating each pair, shape (p + q,)."""
        return np.concatenate([self.ml_costs, self.cl_costs])

    def own_costs(self, labels: IntArray) -> FloatArray:
        """Return the cost of each point in its own cluster, without the normalisers."""
        return self.metric.own(self.points, self.centroids, labels)

    def _cluster_sums(self, labels: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return the sums and sizes of the clusters, computed once per labelling."""
        if self._sums_of_last is None or self._sums_of_last[0] is not labels:
            k = len(self.centroids)
            sums = cluster_sums(self.points, labels, k, self.sample_weight)
            self._sums_of_last = labels, sums, cluster_sizes(labels, k, self.sample_weight)
        return self._sums_of_last[1], self._sums_of_last[2]

    def _total(self, values: FloatArray) -> float:
        """Return the sum over the points, weighted by their sample weights."""
        return float(values.sum() if self.sample_weight is None else self.sample_weight @ values)

    # -------------------------------------------------------------- annealing and certificates

    def response(self) -> Callable[[FloatArray], FloatArray]:
        """Return the response of costs to shares, a bound if they are not squared Euclidean."""
        squared, points = self.metric.squared, self.points
        if squared is None:
            one_cluster = np.zeros(points.shape[0], dtype=np.int64)
            bound = 2.0 * float(self.own_costs(one_cluster).mean())
            return lambda change: bound * change
        point_weight = self.point_weight()
        weight = np.ones(points.shape[0]) if point_weight is None else point_weight
        weight = weight / weight.sum()
        mean = weight @ points

        def answer(change: FloatArray) -> FloatArray:
            weighted = weight * change
            moved = weighted @ points - weighted.sum() * mean
            pull = np.asarray(squared.times(moved[np.newaxis]))[0]
            return np.asarray(2.0 * (points @ pull - mean @ pull))

        return answer

    def push_apart(self, share: float, rng: np.random.Generator) -> None:
        """Move each centroid by a share of the way to a random point."""
        self.centroids = pushed_apart(
            self.points, self.centroids, self.metric, share, rng, self.sample_weight
        )


def clamped(costs: FloatArray, partial_labels: IntArray) -> FloatArray:
    """Set the costs of known points in other clusters to infinity, in place."""
    rows = np.flatnonzero(partial_labels >= 0)
    label_costs = costs[rows, partial_labels[rows]]
    costs[rows] = np.inf
    costs[rows, partial_labels[rows]] = label_costs
    return costs


def _penalties(weights: FloatArray, costs: FloatArray) -> FloatArray:
    """Return weights times costs; an infinite weight times zero stays infinite."""
    return np.where(np.isinf(weights), np.inf, weights * np.where(np.isinf(weights), 1.0, costs))
