"""K-means by deterministic annealing, under must-links and cannot-links."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import numpy as np

from inference_lab.clustering._base import PairwiseClusterer
from inference_lab.clustering._soft import AlphaMode, SoftFit, best_alpha
from inference_lab.clustering.distortions import Distortion, Points, SquaredEuclidean, is_sparse
from inference_lab.clustering.em import EStep, HalfStep, Result, maximise_expectation
from inference_lab.clustering.hmrf import HMRF
from inference_lab.clustering.seeding import initial_centroids
from inference_lab.constraints import Constraints
from inference_lab.contract import Solver
from inference_lab.graph.arrays import FloatArray
from inference_lab.registry.registry import as_solver
from inference_lab.specs.settings import Range

__all__ = ["AnnealedConstrainedKMeans", "critical_temperature"]

#: Centroids that coincide are pushed apart by this share of the spread of the data.
_NUDGE = 1e-3


def critical_temperature(points: Points, distortion: Distortion) -> float:
    """Return a temperature at which all centroids still coincide, without constraints.

    For squared Euclidean costs, the least one: twice the largest eigenvalue of the covariance
    (under the metric); for others twice the mean cost of the points in one cluster, which is
    never less for squared Euclidean ones.

    K. Rose, "Deterministic annealing for clustering, compression, classification, regression,
    and related optimization problems", Proc. IEEE 86(11), 1998, eq. (20).

    Examples
    --------
    >>> critical_temperature(np.array([[-1.0], [1.0]]), SquaredEuclidean())
    2.0
    """
    everyone = np.zeros(points.shape[0], dtype=np.int64)
    centre = distortion.centroids(points, everyone, 1, np.zeros((1, points.shape[1])))
    if isinstance(distortion, SquaredEuclidean) and not is_sparse(points):
        scatter = np.atleast_2d(np.cov(points, rowvar=False, bias=True))
        # The eigenvalues of A S are those of a symmetric matrix, real and not negative.
        scaled = np.asarray(distortion.times(scatter))
        return 2.0 * float(np.linalg.eigvals(scaled).real.max(initial=0.0))
    return 2.0 * float(distortion.own(points, centre, everyone).mean())


class AnnealedConstrainedKMeans(PairwiseClusterer):
    r"""K-means under constraints by deterministic annealing.

    At temperature T the labels of all points together have the probability

    ``p(y | x) ~ exp(-(sum_i D(x_i, mu_{y_i}) + sum_ML w [y_i != y_j] + sum_CL w [y_i = y_j]) / T)``

    whose marginals come from any solver; centroids are the means under them. T falls from where
    all centroids coincide; at the end, labels are hard, and the objective is that of PCKMeans.

    Parameters
    ----------
    n_clusters : int
    distortion : str or Distortion
        See `HMRFKMeans`.
    e_step : str or Solver
        Any solver that gives marginals and labels.
    e_step_time_limit : float, optional
        Seconds an E-step.
    start_temperature : float, optional
        By default 1.05 times the `critical_temperature`.
    cooling : float in (0, 1)
        Factor from one temperature to the next.
    end_ratio : float in (0, 1)
        The last temperature, as a share of the first.
    alpha, alpha_mode
        See `ConstrainedGaussianMixture`; they count while T > 0.
    n_init : int
        Starts, which differ in how coinciding centroids are pushed apart.
    max_iter : int
        Limit on iterations at each temperature.
    tol : float
        See `HMRFKMeans`.
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    labels_, cluster_centers_, objective_, n_iter_, history_, converged_, violations_
        After the hard steps at the end; the history covers all temperatures.
    responsibilities_ : (n, k) array
        Marginals at the last temperature above zero.
    temperatures_ : (t,) array
        Those gone through.

    Guarantees
    ----------
    The free energy never rises at any one temperature with an exact solver or mean field; the
    objective never rises in the hard steps at the end.

    Complexity
    ----------
    That of `HMRFKMeans` for each iteration; about ``log(end_ratio) / log(cooling)`` temperatures
    of a few iterations each.

    References
    ----------
    T. Lange, M. H. C. Law, A. K. Jain, J. M. Buhmann, "Learning with constrained and unlabelled
    data", CVPR 2005, sec. 3.4.

    Examples
    --------
    >>> X = [[0.0], [1.0], [5.0], [6.0]]
    >>> model = AnnealedConstrainedKMeans(2, random_state=0)
    >>> labels = model.fit(X, cannot_link=[(0, 1)], cl_weight=100.0).labels_
    >>> bool(labels[0] != labels[1])
    True
    """

    _allowed: ClassVar = {
        "cooling": (Range(above=0, below=1),),
        "end_ratio": (Range(above=0, below=1),),
        "start_temperature": (None, Range(above=0, below=math.inf)),
    }

    def __init__(
        self,
        n_clusters: int = 3,
        *,
        distortion: str | Distortion = "euclidean",
        e_step: str | Solver = "mean-field",
        e_step_time_limit: float | None = None,
        start_temperature: float | None = None,
        cooling: float = 0.8,
        end_ratio: float = 1e-3,
        alpha: float | Literal["fewest-violations"] = 0.5,
        alpha_mode: AlphaMode = "sum",
        n_init: int = 1,
        max_iter: int = 20,
        tol: float = 1e-6,
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.distortion = distortion
        self.e_step = e_step
        self.e_step_time_limit = e_step_time_limit
        self.start_temperature = start_temperature
        self.cooling = cooling
        self.end_ratio = end_ratio
        self.alpha = alpha
        self.alpha_mode = alpha_mode
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def _fit(self, points: Points, constraints: Constraints) -> None:
        best: SoftFit[HMRF] = best_alpha(
            self.alpha,
            self.alpha_mode,
            constraints,
            np.full(points.shape[0], -1, dtype=np.int64),
            lambda importance: self._best_of(
                lambda rng: self._fit_once(points, constraints, importance, rng)
            ),
        )
        self.cluster_centers_ = self._moved_back(best.model.centroids)
        self.metrics_ = best.model.metrics
        self.temperatures_ = np.array(best.temperatures)
        self._take_soft(best)
        self._judge(constraints)

    def _temperatures(self, points: Points) -> list[float]:
        """Return the temperatures to go through, none if all points coincide."""
        first = self.start_temperature
        if first is None:
            first = 1.05 * critical_temperature(points, self._distortion())
        count = 1 + math.ceil(math.log(self.end_ratio) / math.log(self.cooling))
        return [first * self.cooling**step for step in range(count)] if first > 0 else []

    def _fit_once(
        self,
        points: Points,
        constraints: Constraints,
        importance: FloatArray | None,
        rng: np.random.Generator,
    ) -> SoftFit[HMRF]:
        distortion = self._distortion()
        centroids = initial_centroids(
            points, constraints, self.n_clusters, distortion, "perturbed", rng
        )
        model = HMRF(points, constraints, distortion, centroids, importance=importance)
        solver = as_solver(self.e_step)
        history: list[HalfStep] = []
        iterations = 0
        shares: FloatArray | None = None
        temperatures = self._temperatures(points)
        for temperature in temperatures:
            model.centroids = _pushed_apart(points, model.centroids, distortion, rng)
            e_step = EStep(solver, rng, self.e_step_time_limit, temperature)
            stage = maximise_expectation(model, e_step, max_iter=self.max_iter, tol=self.tol)
            shares = np.asarray(stage.assignment)
            history += [
                line._replace(iteration=line.iteration + iterations) for line in stage.history
            ]
            iterations += stage.n_iter
        labels = None if shares is None else shares.argmax(axis=1)
        final = maximise_expectation(
            model,
            EStep(solver, rng, self.e_step_time_limit),
            max_iter=max(100, self.max_iter),
            tol=self.tol,
            start=labels,
        )
        history += _later(final.history, iterations)
        result = Result(
            final.assignment, final.objective, history, iterations + final.n_iter, final.converged
        )
        return SoftFit(model, result, shares, temperatures)


def _later(history: list[HalfStep], iterations: int) -> list[HalfStep]:
    """Return a history with its iterations counted on."""
    return [line._replace(iteration=line.iteration + iterations) for line in history]


def _pushed_apart(
    points: Points, centroids: FloatArray, distortion: Distortion, rng: np.random.Generator
) -> FloatArray:
    """Move each centroid a little towards a random point: equal ones would stay equal for ever."""
    k = len(centroids)
    drawn = rng.choice(points.shape[0], size=k)
    own = distortion.centroids(points[drawn], np.arange(k), k, centroids)
    return (1.0 - _NUDGE) * centroids + _NUDGE * own
