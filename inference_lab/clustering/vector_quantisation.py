r"""CVQE and LCVQE: k-means in which violated pairs cost distances between points and centroids.

Both assign the points to their nearest centroids, then decide the pairs one by one at least cost,
must-links first; a later pair may change an earlier decision. Then the centroids move.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, Unpack

import numpy as np
import numpy.typing as npt

from inference_lab._numba import lean_kernel
from inference_lab.clustering.em import Fit, HalfStep, Result
from inference_lab.clustering.fit_inputs import Weights, read_fit, takes
from inference_lab.clustering.hmrf import clamped
from inference_lab.clustering.initialisation import Init
from inference_lab.clustering.paired_start import centroids_or_paired, weights_by_belief
from inference_lab.clustering.prediction import CentroidPredictor, PairScore
from inference_lab.clustering.starts import SharedSettings, best_of, generator_of
from inference_lab.clustering.supervision import (
    FitArguments,
    Supervision,
)
from inference_lab.constraints.constraints import of_positive_weight
from inference_lab.constraints.pair_arrays import refuse_hard
from inference_lab.distortions.distortions import SquaredEuclidean
from inference_lab.distortions.points import Points, cheapest
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.specs.settings import setting


@lean_kernel
def settle_pairs(
    cost: FloatArray,
    point_costs: FloatArray,
    ml: IntArray,
    ml_weight: FloatArray,
    cl: IntArray,
    cl_weight: FloatArray,
    labels: IntArray,
    pull: FloatArray,
) -> None:
    """Decide each pair as LCVQE does, in place."""
    k = cost.shape[1]
    for at in range(ml.shape[0]):
        a, b = ml[at, 0], ml[at, 1]
        j, n, w = labels[a], labels[b], ml_weight[at]
        if j == n:
            continue
        keep = 0.5 * (point_costs[a, j] + point_costs[b, n]) + 0.25 * w * (cost[a, n] + cost[b, j])
        first = 0.5 * (point_costs[a, j] + point_costs[b, j])
        second = 0.5 * (point_costs[a, n] + point_costs[b, n])
        if keep <= first and keep <= second:
            pull[b, j] += 0.5 * w
            pull[a, n] += 0.5 * w
        elif first <= second:
            labels[b] = j
        else:
            labels[a] = n
    for at in range(cl.shape[0]):
        a, b = cl[at, 0], cl[at, 1]
        j, w = labels[a], cl_weight[at]
        if labels[b] != j or k == 1:
            continue
        # The farther of the two may go to the nearest other centroid.
        far, near = (b, a) if cost[b, j] > cost[a, j] else (a, b)
        other = 1 if j == 0 else 0
        for h in range(k):
            if h != j and cost[far, h] < cost[far, other]:
                other = h
        keep = 0.5 * (point_costs[a, j] + point_costs[b, j] + w * cost[far, other])
        if keep <= 0.5 * (point_costs[near, j] + point_costs[far, other]):
            pull[far, other] += w
        else:
            labels[far] = other


@lean_kernel
def settle_jointly(
    point_costs: FloatArray,
    between: FloatArray,
    other: FloatArray,
    ml: IntArray,
    ml_weight: FloatArray,
    cl: IntArray,
    cl_weight: FloatArray,
    labels: IntArray,
) -> None:
    """Assign each pair its two cheapest clusters by CVQE, in place."""
    k = point_costs.shape[1]
    for at in range(ml.shape[0] + cl.shape[0]):
        must = at < ml.shape[0]
        place = at if must else at - ml.shape[0]
        a, b = (ml[place, 0], ml[place, 1]) if must else (cl[place, 0], cl[place, 1])
        best = np.inf
        for h in range(k):
            for g in range(k):
                value = point_costs[a, h] + point_costs[b, g]
                if must and h != g:
                    value += ml_weight[place] * between[h, g]
                elif not must and h == g:
                    value += cl_weight[place] * other[h]
                if value < best:
                    best = value
                    labels[a], labels[b] = h, g


class _Pairs:
    """Pairs and supervision in the layout of the kernels, each pair once or optionally twice."""

    def __init__(self, supervision: Supervision, *, twice: bool) -> None:
        # Pairs of weight zero are dropped, because deciding them would undo other decisions.
        constraints = of_positive_weight(supervision.constraints)
        refuse_hard(constraints)
        self.partial_labels = supervision.partial_labels
        self.sample_weight = supervision.sample_weight_or_ones
        self.ml, self.ml_weight = self._listed(constraints.must_link, constraints.ml_weights, twice)
        self.cl, self.cl_weight = self._listed(
            constraints.cannot_link, constraints.cl_weights, twice
        )

    def point_costs(self, cost: FloatArray) -> FloatArray:
        """Return half the squared distances, infinite if known labels exclude a cluster."""
        return clamped(cost * self.sample_weight[:, np.newaxis], self.partial_labels)

    @staticmethod
    def _listed(pairs: IntArray, weight: FloatArray, twice: bool) -> tuple[IntArray, FloatArray]:
        if twice:
            pairs = np.stack([pairs, pairs[:, ::-1]], axis=1).reshape(-1, 2)
            weight = np.repeat(weight, 2)
        # Weights may be a broadcast view; kernels are compiled for contiguous arrays.
        return np.array(pairs, dtype=np.int64, order="C"), np.array(weight)


class _Linear:
    """Labels, and the points that pull centroids of other clusters."""

    def __init__(self, cost: FloatArray, centroids: FloatArray, pairs: _Pairs) -> None:
        point_costs = pairs.point_costs(cost)
        self.labels: IntArray = cheapest(point_costs, None)
        pull = np.zeros_like(cost)
        settle_pairs(
            cost,
            point_costs,
            pairs.ml,
            pairs.ml_weight,
            pairs.cl,
            pairs.cl_weight,
            self.labels,
            pull,
        )
        pull[np.arange(len(cost)), self.labels] += pairs.sample_weight
        #: Weight of each point in each centroid.
        self.shares: FloatArray = pull

    def objective(self, cost: FloatArray, centroids: FloatArray) -> float:
        return 0.5 * float((self.shares * cost).sum())

    def centroids(self, points: Points, before: FloatArray) -> FloatArray:
        """Return the centroids that minimise the objective."""
        total = self.shares.sum(axis=0)
        occupied = total > 0
        after = before.copy()
        after[occupied] = (self.shares[:, occupied].T @ points) / total[occupied, None]
        return after

    def same(self, other: _Linear) -> bool:
        return np.array_equal(self.shares, other.shares)


class _Joint:
    """Labels and the violated pairs."""

    def __init__(self, cost: FloatArray, centroids: FloatArray, pairs: _Pairs) -> None:
        point_costs = pairs.point_costs(cost)
        self.labels: IntArray = cheapest(point_costs, None)
        self.sample_weight = pairs.sample_weight
        between, nearest = _between(centroids)
        other = between[np.arange(len(between)), nearest] if len(between) > 1 else np.zeros(1)
        settle_jointly(
            point_costs,
            between,
            other,
            pairs.ml,
            pairs.ml_weight,
            pairs.cl,
            pairs.cl_weight,
            self.labels,
        )
        first, second = self.labels[pairs.ml].T
        broken = first != second
        self.apart = np.stack([first, second], axis=1)[broken]
        self.apart_weight = pairs.ml_weight[broken]
        first, second = self.labels[pairs.cl].T
        joined = (first == second) & (len(between) > 1)
        self.joined, self.joined_weight = first[joined], pairs.cl_weight[joined]
        self.other = nearest

    def objective(self, cost: FloatArray, centroids: FloatArray) -> float:
        """Return the objective, with the same nearest other centroids as for the pairs."""
        between, _ = _between(centroids)
        value = self.sample_weight @ cost[np.arange(len(cost)), self.labels]
        value += self.apart_weight @ between[self.apart[:, 0], self.apart[:, 1]]
        value += self.joined_weight @ between[self.joined, self.other[self.joined]]
        return 0.5 * float(value)

    def centroids(self, points: Points, before: FloatArray) -> FloatArray:
        """Return means of the points and of the centroids that violated pairs pull towards."""
        k = len(before)
        shares = np.eye(k)[self.labels] * self.sample_weight[:, None]
        pull = np.zeros((k, k))
        np.add.at(pull, (self.apart[:, 0], self.apart[:, 1]), self.apart_weight)
        np.add.at(pull, (self.apart[:, 1], self.apart[:, 0]), self.apart_weight)
        np.add.at(pull, (self.joined, self.other[self.joined]), self.joined_weight)
        total = shares.sum(axis=0) + pull.sum(axis=1)
        occupied = total > 0
        after = before.copy()
        sums = shares.T @ points + pull @ before
        after[occupied] = sums[occupied] / total[occupied, None]
        return after

    def same(self, other: _Joint) -> bool:
        return np.array_equal(self.labels, other.labels)


def _between(centroids: FloatArray) -> tuple[FloatArray, IntArray]:
    """Return squared distances between centroids, and the nearest other one of each."""
    between = SquaredEuclidean().distances(centroids, centroids)
    apart = between + np.diag(np.full(len(centroids), np.inf))
    return between, apart.argmin(axis=1)


@dataclass(eq=False, repr=False, kw_only=True)
class LCVQE(SharedSettings, PairScore, CentroidPredictor):
    r"""K-means in which points of violated pairs also pull centroids of other clusters.

    Points are first assigned to their nearest centroids. A must-link between clusters j and n is
    then satisfied in j or in n, or violated at a quarter of the squared distances of either point
    to the other's centroid. For a cannot-link in one cluster, the farther point moves to its
    nearest other centroid, or the link is violated at half the squared distance to that centroid.
    The objective is half the summed squared distances, plus these prices.

    Parameters
    ----------
    paired_twice : bool
        Decide each pair twice, the second time with its points exchanged, as in the evaluation by
        Khashabi et al.; violated pairs then pull twice.
    init : {"auto", "k-means++", "neighbourhoods", ...} or (k, d) array
        "auto" starts from the centroids of `PCKMeans` on the same pairs; the paper has "k-means++".
    n_clusters, n_init, n_jobs, max_iter, random_state
        See `HMRFKMeans`.

    Attributes
    ----------
    labels_, cluster_centers_, inertia_, objective_, n_iter_, converged_, history_, violations_
        See `HMRFKMeans`.
    metric_, constraints_
        See `HMRFKMeans`.

    Notes
    -----
    Weights multiply the price and the pull of a violated pair; in the paper they are 1. "auto",
    the default of ``fit``, is 1 for pairs that `PCKMeans` keeps, and 0 for pairs that it violates,
    because a wrong pair pulls as much as a right one.

    **Guarantees.** Centroids minimise the objective, so they never raise it. Labels may, because
    pairs are decided one by one; an iteration that repeats the last one ends the fit.

    **Complexity.** An iteration costs O(n d k + p k) for p pairs. Memory: two (n, k) arrays.

    References
    ----------
    D. Pelleg, D. Baras, "K-means with large and noisy constraint sets", ECML 2007.

    Examples
    --------
    >>> X = [[0.0], [1.0], [5.0], [6.0]]
    >>> LCVQE(2, random_state=0).fit_predict(X).tolist() in ([0, 0, 1, 1], [1, 1, 0, 0])
    True
    """

    paired_twice: bool = False
    init: Init | Literal["auto"] | npt.ArrayLike = "auto"
    max_iter: int = setting(300, at_least=1)

    _dense: ClassVar[bool] = True
    _assignment: ClassVar[type[_Linear | _Joint]] = _Linear

    @takes(FitArguments)
    def fit(self, X: Any, y: Any = None, **arguments: Unpack[FitArguments]) -> Self:
        inputs = read_fit(self, X, y, arguments, SquaredEuclidean(), default_weight="auto")
        supervision = inputs.weighed(self._auto_weights)
        pairs = _Pairs(supervision, twice=self.paired_twice)

        best = best_of(
            [inputs.centred_init(self.init)] * self.n_init,
            lambda rng, init: self._fit_once(inputs.points, supervision, pairs, init, rng),
            generator_of(self.random_state),
            self.n_jobs,
        )

        self._set_centroids(inputs, best.model, SquaredEuclidean())
        self._set_progress(best.result)
        self._set_labels(inputs, best.labels, supervision.constraints)
        return self

    def _auto_weights(self, points: Points, supervision: Supervision) -> Weights:
        """Return ones for pairs that `PCKMeans` keeps, and zeros for others."""
        rng = generator_of(self.random_state)
        return weights_by_belief(points, supervision, self.n_clusters, rng)

    def _fit_once(
        self,
        points: Points,
        supervision: Supervision,
        pairs: _Pairs,
        init: Any,
        rng: np.random.Generator,
    ) -> Fit[FloatArray]:
        """Fit from one start; the model is the centroids."""
        distortion = SquaredEuclidean()
        distance = distortion.distances
        history: list[HalfStep] = []
        centroids = centroids_or_paired(init, points, supervision, self.n_clusters, distortion, rng)
        cost = distance(points, centroids)
        assignment: Any = None
        converged = False
        while len(history) < 2 * self.max_iter and not converged:
            iteration = 1 + len(history) // 2
            before = assignment
            since = time.perf_counter()
            assignment = self._assignment(cost, centroids, pairs)
            value = assignment.objective(cost, centroids)
            history.append(HalfStep(iteration, "E", value, time.perf_counter() - since))
            since = time.perf_counter()
            centroids = assignment.centroids(points, centroids)
            cost = distance(points, centroids)
            value = assignment.objective(cost, centroids)
            history.append(HalfStep(iteration, "centroids", value, time.perf_counter() - since))
            converged = before is not None and assignment.same(before)
        result = Result(
            assignment.labels, history[-1].objective, history, len(history) // 2, converged
        )
        return Fit(centroids, result)


class CVQE(LCVQE):
    r"""K-means in which a violated pair costs the squared distance between two centroids.

    ``J = 1/2 sum_i ||x_i - mu_{l_i}||^2 + 1/2 sum_ML w [l_i != l_j] ||mu_{l_i} - mu_{l_j}||^2
    + 1/2 sum_CL w [l_i = l_j = h] ||mu_h - mu_{n(h)}||^2``

    with ``n(h)`` the nearest other centroid of h. Each pair in turn is assigned its two cheapest
    clusters; centroids are means of their points and of the centroids that violated pairs add.

    Parameters
    ----------
    n_clusters, paired_twice, init, n_init, n_jobs, max_iter, random_state
        See `LCVQE`.

    Attributes
    ----------
    labels_, cluster_centers_, inertia_, objective_, n_iter_, converged_, history_, violations_
        See `HMRFKMeans`.
    metric_, constraints_
        See `HMRFKMeans`.

    Notes
    -----
    **Guarantees.** None: pairs are decided one by one, and centroids depend on the centroids of the
    last iteration.

    **Complexity.** An iteration costs O(n d k + p k^2) for p pairs.

    References
    ----------
    I. Davidson, S. Ravi, "Clustering with constraints: feasibility issues and the k-means
    algorithm", SDM 2005.

    Examples
    --------
    >>> X = [[0.0], [1.0], [5.0], [6.0]]
    >>> CVQE(2, random_state=0).fit(X, cannot_link=[(0, 1)], cl_weight=1.0).violations_[1]
    0
    """

    _assignment = _Joint
