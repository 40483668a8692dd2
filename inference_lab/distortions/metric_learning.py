r"""Metric learning inside HMRF-KMeans: closed forms and gradient steps that never raise J.

The closed form minimises ``J`` over the metric for fixed labels, centroids and reference vector
``v`` of the cannot-link penalty. Because ``v`` depends on the metric, the step towards it is
shortened until ``J`` itself does not rise. Gradient steps are shortened in the same way.

M. Bilenko, S. Basu, R. Mooney, ICML 2004, eq. (5)-(6); S. Basu, M. Bilenko, R. Mooney, KDD 2004,
eqs. (18)-(20), of which (18) is printed as an ascent and (19) with the sign of a similarity.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, get_args

import numpy as np
from scipy.special import xlogy

from inference_lab.distortions.distortions import Cosine, Distortion, WeightedDistortion
from inference_lab.distortions.points import Points, dense, own_squares, squares, weighted_sum
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.specs.settings import check_settings, setting

#: Maximum number of features for full matrices: one of this size takes 200 MB.
_FULL_FEATURES = 5000
#: Halvings of a step before the old metric is kept.
_HALVINGS = 30


#: Names of learners.
Metric = Literal["diagonal", "full", "gradient"]


class Penalised(NamedTuple):
    """Data of a metric step: points, labels, centroids and the violated constraints.

    ``penalised``: the violated constraints cost distances, so they depend on the metric;
    ``sample_weight`` is None for ones; ``extent`` is the extent of the points if cannot-links cost
    squared distances.
    """

    points: Points
    labels: IntArray
    centroids: FloatArray
    ml_pairs: IntArray
    ml_weights: FloatArray
    cl_pairs: IntArray
    cl_weights: FloatArray
    penalised: bool
    sample_weight: FloatArray | None = None
    extent: FloatArray | None = None


class MetricLearner(ABC):
    """One M-step on the metric.

    ``normalised``: ``log det A`` is part of ``J``.

    Examples
    --------
    >>> from inference_lab.clustering import HMRFKMeans
    >>> X = [[0.0, 3.0], [1.0, -3.0], [8.0, 3.0], [9.0, -3.0]]
    >>> learner = ClosedForm("diagonal", ridge=1e-3)
    >>> model = HMRFKMeans(2, metric=learner, init=[[0.0, 0.0], [9.0, 0.0]]).fit(X)
    >>> narrow, wide = model.metric_.weights
    >>> bool(narrow > wide)
    True
    """

    normalised: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the fields against their declared ranges."""
        check_settings(self)

    @abstractmethod
    def check(self, distortion: Distortion) -> None:
        """Refuse distortions without formulas in this learner.

        Parameters
        ----------
        distortion : Distortion

        Raises
        ------
        ValueError

        Examples
        --------
        >>> ClosedForm().check(Cosine())  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        ValueError: the closed form of the metric is that of squared Euclidean costs, ...
        """

    def check_points(self, points: Points) -> None:  # noqa: B027  # most learn from any points
        """Refuse unsuitable points; by default, none are refused.

        Parameters
        ----------
        points : (n, d) matrix, dense or CSR

        Raises
        ------
        ValueError

        Examples
        --------
        >>> GradientStep().check_points(np.zeros((3, 10_000)))
        """

    def least_rank(self, metric: Distortion, n_clusters: int, n_features: int) -> float:
        """Return the effective rank (see `effective_rank`) below which estimators warn.

        Parameters
        ----------
        metric : Distortion
        n_clusters, n_features : int

        Returns
        -------
        float
            1 by default.

        Examples
        --------
        >>> from inference_lab.clustering import SquaredEuclidean
        >>> ClosedForm().least_rank(SquaredEuclidean(), n_clusters=3, n_features=10)
        1.0
        """
        return 1.0

    @abstractmethod
    def improve(
        self,
        metric: Distortion,
        state: Penalised,
        before: float,
        objective: Callable[[Distortion], float],
    ) -> Distortion:
        """Return a metric whose objective is at most `before`; the given one at worst.

        Parameters
        ----------
        metric : Distortion
        state : Penalised
        before : float
            The objective under `metric`.
        objective : callable
            Returns ``J`` under another metric, all else equal.

        Returns
        -------
        Distortion

        Examples
        --------
        >>> from inference_lab.clustering import SquaredEuclidean
        >>> points = np.array([[1.0, 2.0], [-1.0, -2.0]])
        >>> none, nothing = np.empty((0, 2), dtype=np.int64), np.empty(0)
        >>> labels, centroids = np.zeros(2, dtype=np.int64), np.zeros((1, 2))
        >>> state = Penalised(points, labels, centroids, none, nothing, none, nothing, False)
        >>> def objective(metric):
        ...     total = metric.own(points, centroids, labels).sum()
        ...     return float(total - 2 * metric.log_det(2))
        >>> old = SquaredEuclidean()
        >>> new = ClosedForm().improve(old, state, objective(old), objective)
        >>> new.weights.round(3).tolist()
        [1.0, 0.25]
        """


class DegenerateMetricWarning(UserWarning):
    """The learnt metric has an effective rank near one."""


def effective_rank(weights: FloatArray) -> float:
    """Return the effective number of directions: ``exp`` of the entropy of the weights' shares."""
    values = np.maximum(np.linalg.eigvalsh(weights), 0.0) if weights.ndim == 2 else weights
    shares = values / values.sum()
    return float(np.exp(-xlogy(shares, shares).sum()))


def _shorten(
    metric: Distortion,
    at: Callable[[float], Distortion],
    before: float,
    objective: Callable[[Distortion], float],
    sound: Callable[[Distortion], bool] | None = None,
) -> Distortion:
    """Return the metric after a step, halved until it is sound and the objective does not rise."""
    step = 1.0
    for _ in range(_HALVINGS):
        candidate = at(step)
        if (sound is None or sound(candidate)) and objective(candidate) <= before:
            return candidate
        step /= 2.0
    return metric


@dataclass(frozen=True)
class ClosedForm(MetricLearner):
    r"""``A = n S^{-1}`` for squared Euclidean costs.

    ``S`` sums ``(x - mu)(x - mu)'`` over the points and, with distance penalties,
    ``w (x_i - x_j)(x_i - x_j)'`` over the violated must-links and
    ``w (v v' - (x_i - x_j)(x_i - x_j)')`` over the violated cannot-links.

    Parameters
    ----------
    shape : {"diagonal", "full"}
    ridge : float
        Share of the mean eigenvalue of ``S`` that is added to each eigenvalue. It is also their
        lower limit, because cannot-links leave ``S`` indefinite.

    Notes
    -----
    With fewer points than directions, ``S`` has no full inverse, and ``J`` has no minimum. So
    ``S`` is shrunk towards a multiple of the identity by the share of Chen et al. (2010). Full
    matrices of more than 5,000 features are refused because of their size.

    Y. Chen, A. Wiesel, Y. Eldar, A. Hero, "Shrinkage algorithms for MMSE covariance estimation",
    IEEE Trans. Signal Processing 58(10), 2010.

    Examples
    --------
    >>> from inference_lab.clustering import HMRFKMeans
    >>> X = [[0.0, 3.0], [1.0, -3.0], [8.0, 3.0], [9.0, -3.0]]
    >>> model = HMRFKMeans(2, metric=ClosedForm(), init=[[0.0, 0.0], [9.0, 0.0]]).fit(X)
    >>> model.metric_.weights.round(2).tolist()
    [4.0, 0.11]
    """

    shape: Literal["diagonal", "full"] = "diagonal"
    ridge: float = setting(1e-6, above=0, below=math.inf)

    normalised: ClassVar[bool] = True

    def check(self, distortion: Distortion) -> None:
        """Accept squared Euclidean costs only."""
        if distortion.squared is None:
            raise ValueError(
                "the closed form of the metric is that of squared Euclidean costs, not of "
                f"{type(distortion).__name__}; use metric='gradient'"
            )

    def check_points(self, points: Points) -> None:
        """Refuse full matrices of too many features."""
        d = points.shape[1]
        if self.shape == "full" and d > _FULL_FEATURES:
            raise ValueError(
                f"metric='full' for {d} features is a matrix of {8e-9 * d * d:.1f} GB, several "
                f"times; up to {_FULL_FEATURES} features are allowed: use metric='diagonal', or "
                "fewer features"
            )

    def improve(
        self,
        metric: Distortion,
        state: Penalised,
        before: float,
        objective: Callable[[Distortion], float],
    ) -> Distortion:
        """Step towards the closed form as far as the objective does not rise."""
        old = self._full_shape(metric, state.points.shape[1])
        new = self._solve(old, state)

        def at(step: float) -> Distortion:
            return metric.reweighted((1.0 - step) * old + step * new)

        return _shorten(metric, at, before, objective)

    def _full_shape(self, metric: Distortion, d: int) -> FloatArray:
        weights = metric.weights
        if weights is None:
            return np.ones(d) if self.shape == "diagonal" else np.eye(d)
        if self.shape == "full" and weights.ndim == 1:
            return np.diag(weights)
        return weights

    def _scatter(self, rows: Points, weights: FloatArray | None = None) -> FloatArray:
        """Return ``sum_i w_i r_i r_i'``, or its diagonal."""
        if self.shape == "diagonal":
            return weighted_sum(
                squares(rows), np.ones(rows.shape[0]) if weights is None else weights
            )
        gaps = dense(rows)
        scaled = gaps if weights is None else gaps * weights[:, np.newaxis]
        return np.asarray(scaled.T @ gaps, dtype=np.float64)

    def _solve(self, old: FloatArray, state: Penalised) -> FloatArray:
        points, labels, sample_weight = state.points, state.labels, state.sample_weight
        if labels.size < 2:
            return old
        if self.shape == "diagonal":
            total = own_squares(points, state.centroids, labels, sample_weight)
        else:
            gaps = dense(points) - state.centroids[labels]
            total = self._scatter(gaps, sample_weight)
        if state.penalised:
            total = total + self._from_constraints(state)
        if self.shape == "full" and labels.size - np.unique(labels).size < total.shape[0]:
            total = _shrunk(total, gaps)
        size = float(labels.size if sample_weight is None else sample_weight.sum())
        return self._invert(total, size, old)

    def _from_constraints(self, state: Penalised) -> FloatArray:
        points, ml, cl = state.points, state.ml_pairs, state.cl_pairs
        total = self._scatter(points[ml[:, 0]] - points[ml[:, 1]], state.ml_weights)
        if len(cl):
            assert state.extent is not None
            total = total + state.cl_weights.sum() * self._scatter(state.extent[np.newaxis])
            total = total - self._scatter(points[cl[:, 0]] - points[cl[:, 1]], state.cl_weights)
        return total

    def _invert(self, total: FloatArray, size: float, old: FloatArray) -> FloatArray:
        if self.shape == "diagonal":
            floor = self.ridge * float(np.abs(total).mean())
            if floor == 0.0:
                return old
            # The closed form gives no finite weight here, so the old one is kept.
            return np.where(total > 0, size / np.maximum(total + floor, floor), old)
        values, axes = np.linalg.eigh((total + total.T) / 2.0)
        floor = self.ridge * float(np.abs(values).mean())
        if floor == 0.0:
            return old
        inverse = size / np.maximum(values + floor, floor)
        result: FloatArray = (axes * inverse) @ axes.T
        return (result + result.T) / 2.0


def _shrunk(scatter: FloatArray, gaps: FloatArray) -> FloatArray:
    """Return a scatter matrix shrunk towards a multiple of the identity (Chen et al. 2010)."""
    from sklearn.covariance import oas

    share = float(oas(gaps, assume_centered=True)[1])
    mean = float(np.trace(scatter)) / len(scatter)
    return (1.0 - share) * scatter + share * mean * np.eye(len(scatter))


@dataclass(frozen=True)
class GradientStep(MetricLearner):
    r"""One step ``a <- max(a - rate dJ/da, 0)`` on the weights of the features.

    Parameters
    ----------
    rate : float or None
        None: the papers' rates, 1.75 for the cosine, 1e-8 for the I-divergence, else 1e-3.
    normalise : bool
        Keep the mean weight at one. Otherwise ``J`` of all but the cosine is linear in ``a`` and
        falls as all weights shrink.

    Notes
    -----
    ``J`` is least if one feature has all weight, because points then differ least. Steps stop at
    an effective rank of the number of clusters (of two, for costs other than the cosine);
    estimators warn at lower ranks.

    Examples
    --------
    >>> from inference_lab.clustering import HMRFKMeans
    >>> X = [[0.0, 3.0, 0.0], [1.0, -3.0, 0.0], [8.0, 3.0, 0.0], [9.0, -3.0, 0.0]]
    >>> learner = GradientStep(rate=0.01)
    >>> model = HMRFKMeans(2, metric=learner, init=[[0, 0, 0], [9, 0, 0]], max_iter=1).fit(X)
    >>> model.metric_.weights.round(2).tolist()
    [1.13, 0.73, 1.14]
    """

    rate: float | None = setting(None, above=0, below=math.inf)
    normalise: bool = True

    def check(self, distortion: Distortion) -> None:
        """Accept distortions with weights of features."""
        if not isinstance(distortion, WeightedDistortion):
            raise ValueError(f"{type(distortion).__name__} has no weights to learn")

    def least_rank(self, metric: Distortion, n_clusters: int, n_features: int) -> float:
        """Return the number of clusters, or two, but at most half the number of features."""
        needed = n_clusters if isinstance(metric, Cosine) else 2
        return min(needed, 0.5 * (1.0 + n_features))

    def improve(
        self,
        metric: Distortion,
        state: Penalised,
        before: float,
        objective: Callable[[Distortion], float],
    ) -> Distortion:
        """Take the step, halved until the objective does not rise."""
        d = state.points.shape[1]
        old = np.ones(d) if metric.weights is None else metric.weights
        slope = gradient(metric, state)
        rate = metric.learning_rate if self.rate is None else self.rate

        def at(step: float) -> Distortion:
            weights = np.maximum(old - step * rate * slope, 0.0)
            if self.normalise:
                mean = float(weights.mean())
                weights = weights / mean if mean > 0 else old
            return metric.reweighted(weights)

        smallest_rank = min(self.least_rank(metric, len(state.centroids), d), effective_rank(old))

        def sound(candidate: Distortion) -> bool:
            return (
                candidate.weights is not None and effective_rank(candidate.weights) >= smallest_rank
            )

        return _shorten(metric, at, before, objective, sound)


def gradient(metric: Distortion, state: Penalised) -> FloatArray:
    """Return ``dJ/da`` for fixed labels and centroids, shape (d,).

    The largest dissimilarity is treated as constant; for squared Euclidean costs, its vector is.
    """
    d = state.points.shape[1]
    if metric.weights is None:
        metric = metric.reweighted(np.ones(d))
    if not isinstance(metric, WeightedDistortion):
        raise TypeError(f"{type(metric).__name__} has no weights to learn")
    points = state.points
    total = metric.cost_gradient(points, state.centroids, state.labels, state.sample_weight)
    if state.penalised:
        total = total + metric.pair_gradient(points, state.ml_pairs, state.ml_weights)
        total = total - metric.pair_gradient(points, state.cl_pairs, state.cl_weights)
        if state.extent is not None and len(state.cl_pairs):
            total = total + state.cl_weights.sum() * state.extent**2
    return total


def as_learner(metric: Metric | MetricLearner | None) -> MetricLearner | None:
    """Return the learner with a given name, or the given object."""
    if metric is None or isinstance(metric, MetricLearner):
        return metric
    if metric not in get_args(Metric):
        raise ValueError(
            f"metric = {metric!r} is unknown; allowed: None, 'diagonal', 'full', 'gradient', or a "
            "MetricLearner"
        )
    return GradientStep() if metric == "gradient" else ClosedForm(metric)
