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

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import numpy as np

from inference_lab.clustering.distortions import Distortion, SquaredEuclidean
from inference_lab.clustering.em import Assignment, Coupling, PairedModel, as_labels
from inference_lab.clustering.initialisation import pushed_apart
from inference_lab.clustering.metric_learning import MetricLearner, Penalised
from inference_lab.clustering.mssc.partition_problem import PartitionProblem, partition_problem
from inference_lab.clustering.points import Points, cluster_sizes, cluster_sums, counted_shares
from inference_lab.constraints import Constraints
from inference_lab.graph.arrays import FloatArray, IntArray

Penalty = Literal["potts", "distance"]
EmptyClusters = Literal["reseed", "keep"]


class Violations(NamedTuple):
    """Number of violated constraints of each kind, and their summed weight.

    Examples
    --------
    >>> from inference_lab.clustering import PCKMeans
    >>> X = [[0.0], [1.0], [8.0], [9.0]]
    >>> model = PCKMeans(2, random_state=0).fit(X, must_link=[(0, 3)], ml_weight=0.5)
    >>> model.violations_
    Violations(must_link=1, cannot_link=0, weight=0.5)
    """

    must_link: int
    cannot_link: int
    weight: float


def violated(constraints: Constraints, labels: IntArray) -> tuple[IntArray, IntArray]:
    """Return the rows of the must-links and of the cannot-links that labels violate."""
    ml, cl = constraints.must_link, constraints.cannot_link
    return (
        np.flatnonzero(labels[ml[:, 0]] != labels[ml[:, 1]]),
        np.flatnonzero(labels[cl[:, 0]] == labels[cl[:, 1]]),
    )


def violations(constraints: Constraints, labels: IntArray) -> Violations:
    """Count the constraints that labels violate."""
    ml, cl = violated(constraints, labels)
    weight = constraints.ml_weights[ml].sum() + constraints.cl_weights[cl].sum()
    return Violations(len(ml), len(cl), float(weight))


def share_kept(constraints: Constraints, labels: IntArray) -> float:
    """Return the mean of the shares of must-links and of cannot-links that labels keep.

    Both kinds have equal weight, because equal labels keep all must-links. If one kind is absent,
    the share of the other is returned.
    """
    if len(constraints) == 0:
        raise ValueError("no pair has both of its points among the rows that are scored")
    of_kind = zip(
        violated(constraints, labels),
        (constraints.must_link, constraints.cannot_link),
        strict=True,
    )
    return float(np.mean([1.0 - len(lost) / len(pairs) for lost, pairs in of_kind if len(pairs)]))


class HMRF(PairedModel):
    """Clusters of the HMRF-KMeans family.

    `importance` (n,) weights points in the centroids at T > 0, equal for all coupled points.
    `known` (n,) holds labels that no E-step changes, else -1; `sample_weight` is (n,) or None.
    """

    def __init__(
        self,
        points: Points,
        constraints: Constraints,
        distortion: Distortion,
        centroids: FloatArray,
        *,
        penalty: Penalty = "potts",
        learner: MetricLearner | None = None,
        empty: EmptyClusters = "reseed",
        importance: FloatArray | None = None,
        known: IntArray | None = None,
        sample_weight: FloatArray | None = None,
    ) -> None:
        super().__init__(constraints, importance, sample_weight)
        self.known = np.full(points.shape[0], -1) if known is None else known
        self.held: IntArray = np.flatnonzero(self.known >= 0)
        self.points = points
        self.centroids = np.array(centroids, dtype=np.float64)
        self.penalty = penalty
        self.learner = learner
        self.empty = empty
        self.metric = distortion
        self._summed: tuple[IntArray, FloatArray, FloatArray] | None = None
        self._weigh()

    def _weigh(self) -> None:
        """Compute ``ml_costs`` (p,) and ``cl_costs`` (q,)."""
        self._extent: FloatArray | None = None
        metric = self.metric
        self._spread = (
            self._total(metric.norms(self.points)) if isinstance(metric, SquaredEuclidean) else 0.0
        )
        c = self.constraints
        self.ml_costs, self.cl_costs = c.ml_weights, c.cl_weights
        if self.penalty == "distance":
            self.ml_costs = _times(self.ml_costs, metric.between(self.points, c.must_link))
            self.cl_costs = _times(self.cl_costs, self._gaps_to_largest())
        self._terms = self.pairs.terms(self.ml_costs, self.cl_costs)

    def _gaps_to_largest(self) -> FloatArray:
        """Return the gap of the dissimilarity of each cannot-link to the largest one."""
        metric, pairs = self.metric, self.constraints.cannot_link
        if not len(pairs):
            return np.zeros(0)
        if isinstance(metric, SquaredEuclidean):
            # Kept for the metric step, because the farthest pair takes long to find.
            self._extent = metric.extent(self.points)
            largest = float(metric.norms(self._extent[np.newaxis])[0])
        else:
            largest = metric.largest(self.points)
        return np.maximum(largest - metric.between(self.points, pairs), 0.0)

    def _total(self, values: FloatArray) -> float:
        """Return the sum over the points, weighted by their counts."""
        return float(values.sum() if self._sample_weight is None else self._sample_weight @ values)

    def partition_problem(self) -> PartitionProblem:
        """Return the problem of labels with means as centroids, for plain squared distances."""
        pairs = self.constraints
        return partition_problem(
            self.points,
            len(self.centroids),
            pairs.must_link,
            self.ml_costs,
            pairs.cannot_link,
            self.cl_costs,
            sample_weight=self._sample_weight,
            known=self.known,
        )

    # -------------------------------------------------------------- the E-step

    def costs(self, rows: IntArray | None = None) -> FloatArray:
        """Return the costs (n, k) of all points or sorted `rows`; ``inf`` excludes labels."""
        # Rows are sorted, so a full selection needs no copy.
        some = rows is not None and rows.size < self.points.shape[0]
        points, known = (self.points[rows], self.known[rows]) if some else (self.points, self.known)
        return clamped(self.metric.distances(points, self.centroids), known)

    def nearest(self, previous: IntArray | None) -> IntArray:
        """Return the cheapest cluster of each point on its own; ties keep the previous label."""
        labels = self.metric.nearest(self.points, self.centroids, previous)
        labels[self.held] = self.known[self.held]
        return labels

    def coupling(self) -> Coupling:
        """Return the penalties as diagonal terms."""
        return self.coupled(self._terms)

    def pair_costs(self) -> FloatArray:
        """Return the cost of violating each pair, shape (p + q,)."""
        return np.concatenate([self.ml_costs, self.cl_costs])

    # -------------------------------------------------------------- the objective

    def penalties(self, labels: IntArray) -> float:
        """Return the summed cost of the violated constraints."""
        ml, cl = violated(self.constraints, labels)
        return float(self.ml_costs[ml].sum() + self.cl_costs[cl].sum())

    def own_costs(self, labels: IntArray) -> FloatArray:
        """Return the cost of each point in its own cluster, without the normalisers."""
        return self.metric.own(self.points, self.centroids, labels)

    def objective(self, labels: IntArray) -> float:
        """Return ``J``."""
        return self.distortion(labels) + self.normaliser(labels) + self.penalties(labels)

    def distortion(self, labels: IntArray) -> float:
        """Return the summed cost of the points in their clusters."""
        metric = self.metric
        if not isinstance(metric, SquaredEuclidean):
            return self._total(self.own_costs(labels))
        # Uses the sums of the clusters, which the centroids need anyway, in O(k d).
        sums, sizes = self._cluster_sums(labels)
        scaled = metric.times(self.centroids)
        inner = np.einsum("hm,hm->", scaled, 2.0 * sums - sizes[:, np.newaxis] * self.centroids)
        return max(0.0, self._spread - float(inner))

    def _cluster_sums(self, labels: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return the sums and sizes of the clusters, computed once per labelling."""
        if self._summed is None or self._summed[0] is not labels:
            k = len(self.centroids)
            sums = cluster_sums(self.points, labels, k, self._sample_weight)
            self._summed = labels, sums, cluster_sizes(labels, k, self._sample_weight)
        return self._summed[1], self._summed[2]

    def normaliser(self, labels: IntArray) -> float:
        """Return ``-n log det A``, zero if no metric is learnt."""
        if self.learner is None or not self.learner.normalised:
            return 0.0
        return -self._total(np.full(labels.size, self.metric.log_det(self.points.shape[1])))

    # -------------------------------------------------------------- the M-step

    def parameters(self) -> tuple[FloatArray, ...]:
        """Return the centroids and all weights."""
        weights = self.metric.weights
        return (self.centroids,) if weights is None else (self.centroids, weights)

    def response(self) -> Callable[[FloatArray], FloatArray]:
        """Return the response of costs to shares, a bound if they are not squared Euclidean."""
        metric = self.metric
        if not isinstance(metric, SquaredEuclidean):
            everyone = np.zeros(self.points.shape[0], dtype=np.int64)
            most = 2.0 * float(self.own_costs(everyone).mean())
            return lambda change: most * change
        counted = self.importance()
        weights = np.ones(self.points.shape[0]) if counted is None else counted
        weights = weights / weights.sum()
        mean = weights @ self.points

        def answer(change: FloatArray) -> FloatArray:
            gained = weights * change
            moved = gained @ self.points - gained.sum() * mean
            pull = np.asarray(metric.times(moved[np.newaxis]))[0]
            return np.asarray(2.0 * (self.points @ pull - mean @ pull))

        return answer

    def push_apart(self, share: float, rng: np.random.Generator) -> None:
        """Move each centroid by a share of the way to a random point."""
        self.centroids = pushed_apart(
            self.points, self.centroids, self.metric, share, rng, self._sample_weight
        )

    def maximise(self, assignment: Assignment) -> Iterator[str]:
        """Move the centroids, then learn the metric from labels."""
        if assignment.ndim == 2:
            shares = np.asarray(assignment, dtype=np.float64)
            counted = self.importance()
            if counted is not None:
                shares = shares * counted[:, np.newaxis]
            self.centroids = self.metric.centroids(
                self.points, shares, len(self.centroids), self.centroids
            )
            yield "centroids"
            return
        labels = as_labels(assignment)
        self._move(labels)
        yield "centroids"
        if self.learner is not None:
            self._learn(labels, self.learner)
            yield "metric"

    def _move(self, labels: IntArray) -> None:
        k = len(self.centroids)
        if isinstance(self.metric, SquaredEuclidean):
            # The centroids are means under every metric.
            sums, sizes = self._cluster_sums(labels)
            held = sizes > 0
            self.centroids = self.centroids.copy()
            self.centroids[held] = sums[held] / sizes[held, np.newaxis]
        else:
            shares = counted_shares(labels, k, self._sample_weight)
            self.centroids = self.metric.centroids(self.points, shares, k, self.centroids)
        members = np.bincount(labels, minlength=k)
        gone = np.flatnonzero(members == 0)
        if gone.size == 0 or self.empty == "keep":
            return
        costs = self.own_costs(labels)
        costs[members[labels] == 1] = -np.inf
        # Points of known label are excluded, because they could not follow the centroid.
        costs[self.held] = -np.inf
        for h in gone:
            worst = int(costs.argmax())
            if costs[worst] == -np.inf:
                return
            self.centroids[h] = self.metric.centroids(
                self.points[[worst]], np.zeros(1, dtype=np.int64), 1, self.centroids[h : h + 1]
            )[0]
            costs[worst] = -np.inf

    def _learn(self, labels: IntArray, learner: MetricLearner) -> None:
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
            self._sample_weight,
            self._extent,
        )
        old, before = self.metric, self.objective(labels)

        def judged(metric: Distortion) -> float:
            self.metric = metric
            self._weigh()
            return self.objective(labels)

        found = learner.improve(old, state, before, judged)
        if self.metric is not found:
            judged(found)


def clamped(costs: FloatArray, known: IntArray) -> FloatArray:
    """Set the costs of known points in other clusters to infinity, in place."""
    rows = np.flatnonzero(known >= 0)
    own = costs[rows, known[rows]]
    costs[rows] = np.inf
    costs[rows, known[rows]] = own
    return costs


def _times(weights: FloatArray, costs: FloatArray) -> FloatArray:
    """Return weights times costs; an infinite weight times zero stays infinite."""
    return np.where(np.isinf(weights), np.inf, weights * np.where(np.isinf(weights), 1.0, costs))
