"""K-means and mixtures by deterministic annealing, under must-links and cannot-links."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal, Self, Unpack

import numpy as np

from inference_lab.clustering.alpha_weights import AlphaMode, best_by_alpha
from inference_lab.clustering.cluster_model import Model
from inference_lab.clustering.e_step import LabelStep, ShareStep
from inference_lab.clustering.em import Fit, Result, joined, maximise_expectation
from inference_lab.clustering.fit_inputs import FitInputs, Weights, read_fit, takes
from inference_lab.clustering.hmrf import HMRF
from inference_lab.clustering.mixture import ConstrainedGaussianMixture, GaussianComponents
from inference_lab.clustering.pair_odds import log_odds_weights
from inference_lab.clustering.pair_warnings import watch_hard
from inference_lab.clustering.pair_weights import weight_of_odds
from inference_lab.clustering.prediction import CentroidPredictor, PairScore
from inference_lab.clustering.starts import SharedSettings, best_of, generator_of
from inference_lab.clustering.supervision import FitArguments, Supervision, without_pairs
from inference_lab.constraints.pair_arrays import symmetric_matrix
from inference_lab.contract import Solver
from inference_lab.distortions.distortions import Distortion, as_distortion
from inference_lab.distortions.points import Points
from inference_lab.graph.arrays import FloatArray
from inference_lab.registry.registry import as_solver
from inference_lab.specs.settings import setting

#: Up to this number of points, eigenvalues are computed directly.
_SMALL = 32
#: Clusters are pushed this share of the way to a random point: at each temperature only enough for
#: them to part where they can, and at the last one more, because coinciding clusters would stay
#: together. With an exact E-step the mixture of the toy of Lange et al. (2005) stays on that saddle
#: in most runs (10 of 12) with the small push, and in none with the large one.
_NUDGE, _LAST_NUDGE = 1e-3, 0.05
#: Least limit on iterations at the last temperature.
_LAST = 100


def critical_temperature(
    points: Points, distortion: Distortion, sample_weight: FloatArray | None = None
) -> float:
    """Return a temperature at which all centroids still coincide, without constraints.

    For squared Euclidean costs, the least one: twice the largest eigenvalue of the covariance
    (K. Rose, Proc. IEEE 86(11), 1998, eq. (20)); for others, twice the mean cost in one cluster.
    """
    nowhere = np.zeros((2, points.shape[1]))
    supervision = without_pairs(points.shape[0], sample_weight)
    return _critical(HMRF(points, supervision, distortion, nowhere), points.shape[0])


@dataclass(eq=False, repr=False, kw_only=True)
class AnnealedConstrainedKMeans(SharedSettings, PairScore, CentroidPredictor):
    r"""K-means under constraints by deterministic annealing.

    At temperature T the labels of all points together have the probability

    ``p(y | x) ~ exp(-(sum_i D(x_i, mu_{y_i}) + sum_ML w [y_i != y_j] + sum_CL w [y_i = y_j]) / T)``

    and any solver gives its marginals; centroids are the means under them. T falls from a value at
    which all centroids coincide; at the end, labels are hard, with the objective of PCKMeans.

    Parameters
    ----------
    n_clusters, distortion, e_step_time_limit, n_jobs, tol, random_state
        See `HMRFKMeans`.
    e_step : str or Solver
        Any solver that gives marginals and labels.
    start_temperature : float, optional
        By default 1.05 times the critical one of data and constraints together, see
        `AnnealedConstrainedMixture`, with the response ``2 X X' / n`` of the centred points.
    cooling : float in (0, 1)
        Factor from one temperature to the next.
    end_ratio : float in (0, 1)
        The last temperature, as a share of the first or, if it is lower, of the
        `critical_temperature` of the data alone.
    alpha, alpha_mode
        See `ConstrainedGaussianMixture`; they count while T > 0.
    n_init : int
        Starts, which differ in the random pushes that separate coinciding centroids; the one of
        least objective is kept. With few constraints this may be one of other clusters.
    max_iter : int
        Limit on iterations at each temperature.

    Attributes
    ----------
    labels_, cluster_centers_, inertia_, objective_, n_iter_, history_, converged_, violations_
        After the hard steps at the end; the history covers all temperatures.
    responsibilities_ : (n, k) array
        Marginals at the last temperature above zero.
    temperatures_ : (t,) array
        All temperatures used.

    Notes
    -----
    **Guarantees.** The free energy never rises at any one temperature with an exact solver or mean
    field; the objective never rises in the hard steps at the end.

    **Complexity.** An iteration costs as in `HMRFKMeans`; there are about ``log(first / last) /
    -log(cooling)`` temperatures of a few iterations each.

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

    distortion: str | Distortion = "euclidean"
    e_step: str | Solver = "mean-field"
    e_step_time_limit: float | None = setting(None, above=0)
    start_temperature: float | None = setting(None, above=0, below=math.inf)
    cooling: float = setting(0.8, above=0, below=1)
    end_ratio: float = setting(1e-3, above=0, below=1)
    alpha: float | Literal["fewest-violations"] = setting(0.5, above=0, below=1)
    alpha_mode: AlphaMode = "sum"
    max_iter: int = setting(20, at_least=1)
    tol: float = setting(1e-6, at_least=0, below=math.inf)

    @takes(FitArguments)
    def fit(self, X: Any, y: Any = None, **arguments: Unpack[FitArguments]) -> Self:
        inputs = read_fit(
            self, X, y, arguments, as_distortion(self.distortion), default_weight="auto"
        )
        supervision = inputs.weighed(self._auto_weights)

        def best_start(alpha_weight: FloatArray | None) -> Fit[HMRF]:
            return best_of(
                [None] * self.n_init,
                lambda rng, _: self._fit_once(inputs, supervision, alpha_weight, rng),
                generator_of(self.random_state),
                self.n_jobs,
            )

        best = best_by_alpha(self.alpha, self.alpha_mode, supervision, best_start)

        self._set_centroids(inputs, best.model.centroids, best.model.metric)
        self.temperatures_ = np.array(best.temperatures)
        shares = np.eye(self.n_clusters)[best.labels] if best.shares is None else best.shares
        last = float(np.append(1.0, self.temperatures_)[-1])
        self.responsibilities_ = inputs.shares_of_all(shares, self._costs, last)
        self._set_progress(best.result)
        self._set_labels(inputs, best.labels, supervision.constraints)
        watch_hard(supervision.constraints, best.labels)
        return self

    def _auto_weights(self, points: Points, supervision: Supervision) -> Weights:
        """Return the log-odds that pairs are right, on the scale of the costs."""
        distortion, weight = as_distortion(self.distortion), supervision.sample_weight
        unit = weight_of_odds(points, self.n_clusters, distortion, weight)
        return log_odds_weights(supervision, {"ml_weight": unit, "cl_weight": unit})

    def _fit_once(
        self,
        inputs: FitInputs,
        supervision: Supervision,
        alpha_weight: FloatArray | None,
        rng: np.random.Generator,
    ) -> Fit[HMRF]:
        """Anneal from one start, then take hard steps."""
        points, distortion = inputs.points, inputs.format.distortion
        nowhere = np.zeros((self.n_clusters, points.shape[1]))
        model = HMRF(points, supervision, distortion, nowhere, alpha_weight=alpha_weight)
        first = self.start_temperature or 1.05 * _critical(model, points.shape[0])
        # Constraints may bind long before the data part; both must be hard in the end.
        alone = critical_temperature(points, distortion, supervision.sample_weight)
        last = self.end_ratio * min(first, alone)
        stages = _stages(first, last, self.cooling) if alone > 0 else []
        solver = as_solver(self.e_step)
        annealed = _anneal(
            model, stages, solver, rng, self.e_step_time_limit, self.max_iter, self.tol
        )
        shares = np.asarray(annealed.assignment, dtype=np.float64) if stages else None
        final = maximise_expectation(
            model,
            LabelStep(solver, rng, self.e_step_time_limit),
            max_iter=max(_LAST, self.max_iter),
            tol=self.tol,
            start=None if shares is None else shares.argmax(axis=1),
        )
        return Fit(model, joined(annealed, final), shares, stages)


@dataclass(eq=False, repr=False, kw_only=True)
class AnnealedConstrainedMixture(ConstrainedGaussianMixture):
    r"""Gaussian mixture under constraints, fitted by deterministic annealing.

    The posterior of `ConstrainedGaussianMixture` to the power 1 / T. T falls to 1 from a value at
    which all components coincide; each temperature starts at the last result, slightly perturbed.

    Parameters
    ----------
    n_clusters, covariance_type, e_step, e_step_time_limit, prior, alpha, alpha_mode, reg_covar
        See `ConstrainedGaussianMixture`.
    start_temperature : float, optional
        At least 1; by default 1.05 times the critical one (see Notes).
    n_init, cooling, max_iter
        See `AnnealedConstrainedKMeans`.
    n_jobs, tol, random_state
        See `HMRFKMeans`.

    Attributes
    ----------
    weights_, means_, covariances_, responsibilities_, labels_, objective_
        As in `ConstrainedGaussianMixture`, at temperature 1.
    temperatures_, n_iter_, history_, converged_, violations_
        See `AnnealedConstrainedKMeans`; each temperature has its own free energy.

    Notes
    -----
    Equal shares are stable above the largest eigenvalue of ``R + Gamma / k``, found by Lanczos.
    ``Gamma`` holds the finite weights of must-links and, negative, of cannot-links. ``R`` is the
    response of the costs to the shares: ``Z Z' / n`` from the means, with whitened points Z, plus
    the contributions of variances and mixing weights.

    **Guarantees.** The free energy never rises at any one temperature with an exact solver or mean
    field, except for `reg_covar`.

    **Complexity.** An iteration costs as in `ConstrainedGaussianMixture`; there are about
    ``log(T_c) / -log(cooling)`` temperatures of a few iterations each.

    References
    ----------
    T. Lange, M. H. C. Law, A. K. Jain, J. M. Buhmann, "Learning with constrained and unlabelled
    data", CVPR 2005, secs. 3.3, 4. N. Ueda, R. Nakano, "Deterministic annealing EM algorithm",
    Neural Networks 11(2), 1998.

    Examples
    --------
    >>> X = [[0.0], [1.0], [5.0], [6.0]]
    >>> model = AnnealedConstrainedMixture(2, reg_covar=0.1, random_state=0)
    >>> labels = model.fit(X, cannot_link=[(1, 2)], cl_weight=100.0).labels_
    >>> bool(labels[1] != labels[2])
    True
    """

    start_temperature: float | None = setting(None, at_least=1, below=math.inf)
    cooling: float = setting(0.8, above=0, below=1)
    max_iter: int = setting(20, at_least=1)
    tol: float = setting(1e-7, at_least=0, below=math.inf)
    #: Fixed in this class, so not an argument.
    init: str = field(default="neighbourhoods", init=False)

    def _fit_once(
        self,
        points: FloatArray,
        supervision: Supervision,
        alpha_weight: FloatArray | None,
        init: Any,
        rng: np.random.Generator,
    ) -> Fit[GaussianComponents]:
        """Anneal from coinciding components; there is no other start."""
        nowhere = np.zeros((self.n_clusters, points.shape[1]))
        model = self._gaussians(points, supervision, nowhere, alpha_weight)
        first = self.start_temperature or max(1.0, 1.05 * _critical(model, len(points)))
        stages = _stages(first, 1.0, self.cooling)
        limit, solver = self.e_step_time_limit, as_solver(self.e_step)
        result = _anneal(model, stages, solver, rng, limit, self.max_iter, self.tol)
        return Fit(model, result, temperatures=stages)


def _stages(first: float, last: float, cooling: float) -> list[float]:
    """Return temperatures that fall by a constant factor and end at `last`."""
    count = math.ceil(math.log(first / last) / -math.log(cooling))
    return [*(first * cooling**step for step in range(count)), last]


def _critical(model: Model, n_points: int) -> float:
    """Let all clusters of a model coincide; return the temperature below which they would part.

    Without a known response of the costs: at most twice the mean cost, plus the constraints' part.
    """
    from scipy.sparse.linalg import LinearOperator

    k = model.costs(np.zeros(1, dtype=np.int64)).shape[1]
    for _ in model.maximise(np.full((n_points, k), 1.0 / k)):
        pass
    coupling = model.coupling()
    pairs = np.concatenate([terms.edges for terms in coupling.terms])
    weights = np.concatenate([np.asarray(t.differ) - np.asarray(t.same) for t in coupling.terms])
    soft = np.isfinite(weights)
    ends, weights = coupling.rows[pairs[soft]], weights[soft] / k
    gamma = symmetric_matrix(n_points, ends, weights)
    answer = model.response()
    sample_weight = model.point_weight()
    # The product with a diagonal matrix has the same eigenvalues as a symmetric matrix.
    root = np.ones(n_points) if sample_weight is None else np.sqrt(sample_weight)

    def applied(change: FloatArray) -> FloatArray:
        change = np.ravel(change)
        return np.asarray(root * answer(change / root) + gamma @ change)

    return _largest(LinearOperator(gamma.shape, matvec=applied, dtype=np.float64))


def _largest(operator: Any) -> float:
    """Return the largest eigenvalue of a symmetric operator, at least zero."""
    from scipy.sparse.linalg import eigsh

    n = operator.shape[0]
    if n <= _SMALL:
        return max(0.0, float(np.linalg.eigvalsh(operator @ np.eye(n)).max()))
    start = np.random.default_rng(0).normal(size=n)
    if not (operator @ start).any():
        return 0.0  # all points are equal; Lanczos iterations need a direction
    eigenvalues = eigsh(operator, 1, which="LA", v0=start, tol=1e-4, return_eigenvectors=False)
    return max(0.0, float(eigenvalues[0]))


def _anneal(
    model: Model,
    temperatures: list[float],
    solver: Solver,
    rng: np.random.Generator,
    time_limit: float | None,
    max_iter: int,
    tol: float,
) -> Result:
    """Push clusters apart and run EM at each temperature, from the shares of the last one."""
    result = Result(np.zeros((0, 0)), math.nan, [], 0, True)
    for stage, temperature in enumerate(temperatures):
        ends = stage == len(temperatures) - 1
        model.push_apart(_LAST_NUDGE if ends else _NUDGE, rng)
        e_step = ShareStep(solver, rng, time_limit, temperature=temperature, follow=True)
        start = result.assignment if stage else None
        limit = max(_LAST, max_iter) if ends else max_iter
        stage_result = maximise_expectation(model, e_step, max_iter=limit, tol=tol, start=start)
        result = joined(result, stage_result)
    return result
