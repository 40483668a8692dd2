"""Gaussian mixtures under must-links and cannot-links: EM with any solver of marginals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, Unpack

import numpy as np
import numpy.typing as npt

from inference_lab.clustering.alpha_weights import AlphaMode, best_by_alpha
from inference_lab.clustering.cluster_model import Assignment, Model
from inference_lab.clustering.e_step import ShareStep
from inference_lab.clustering.em import Fit, maximise_expectation
from inference_lab.clustering.fit_inputs import Weights, read_fit, takes
from inference_lab.clustering.hmrf import clamped
from inference_lab.clustering.initialisation import Init, initial_centroids, pushed_apart
from inference_lab.clustering.pair_odds import log_odds_weights
from inference_lab.clustering.pair_warnings import watch_hard
from inference_lab.clustering.paired_start import paired_kmeans
from inference_lab.clustering.prediction import CostPredictor, PairScore
from inference_lab.clustering.quadratic_costs import QuadraticCosts
from inference_lab.clustering.starts import SharedSettings, best_of, generator_of
from inference_lab.clustering.supervision import FitArguments, Supervision, refuse_pairs
from inference_lab.clustering.violations import violations
from inference_lab.contract import Solver
from inference_lab.distortions.distortions import SquaredEuclidean
from inference_lab.distortions.points import Points, cheapest, whitened
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.graph.terms import DiagonalTerms
from inference_lab.registry.registry import as_solver
from inference_lab.specs.settings import setting

Covariance = Literal["full", "tied", "diag", "spherical"]
Prior = Literal["maximum-entropy", "chunklets", "points"]

_LOG_2PI = float(np.log(2.0 * np.pi))


class GaussianComponents(Model):
    """Components of a Gaussian mixture whose labels are coupled by constraints.

    `ridge` is added to the diagonal of covariances.
    """

    def __init__(
        self,
        points: FloatArray,
        supervision: Supervision,
        means: FloatArray,
        covariance: Covariance,
        ridge: float,
        prior: Prior,
        alpha_weight: FloatArray | None = None,
    ) -> None:
        self.points = points
        self.covariance = covariance
        self.ridge = ridge
        super().__init__(supervision, alpha_weight)
        sample_weight = self.sample_weight
        n, d = points.shape
        k = len(means)
        self.means = np.array(means, dtype=np.float64)
        self._terms = self.pairs.terms()
        #: Exponent of the mixing weight for each point.
        self.mixing_exponent = np.ones(n)
        if prior == "maximum-entropy":
            self.mixing_exponent[self.rows] = 0.0
        elif prior == "chunklets":
            component = self.constraints.components()
            size = np.bincount(component, weights=sample_weight)[component]
            # Unconstrained copies of a point do not form a chunklet.
            self.mixing_exponent[self.rows] = 1.0 / size[self.rows]
        self.weights = np.full(k, 1.0 / k)
        # Components start spherical, with the variance of the data.
        middle = np.average(points, axis=0, weights=sample_weight)
        spread = (
            float(np.average((points - middle) ** 2, axis=0, weights=sample_weight).mean()) + ridge
        )
        shape = {"full": (k, d, d), "tied": (d, d), "diag": (k, d), "spherical": (k,)}[covariance]
        self.covariances = np.full(shape, spread)
        if covariance in ("full", "tied"):
            self.covariances = np.broadcast_to(np.eye(d) * spread, shape).copy()

    def _whitened(self, points: FloatArray, h: int) -> tuple[FloatArray, float]:
        """Return points whitened by a component, and the ``log det`` of its covariance."""
        return self.whiten(points - self.means[h], h)

    def whiten(self, gaps: FloatArray, h: int) -> tuple[FloatArray, float]:
        """Return gaps to a mean in the units of its covariance, and the ``log det`` of this."""
        covariance = self.covariances if self.covariance == "tied" else self.covariances[h]
        if covariance.ndim < 2:
            variance = np.broadcast_to(covariance, gaps.shape[1:])
            if not (variance > 0).all():
                raise ValueError(self._collapsed(h))
            return gaps / np.sqrt(variance), float(np.log(variance).sum())
        try:
            factor = np.linalg.cholesky(covariance)
        except np.linalg.LinAlgError:
            raise ValueError(self._collapsed(h)) from None
        return whitened(factor, gaps), float(2.0 * np.log(np.diagonal(factor)).sum())

    def _collapsed(self, h: int) -> str:
        return (
            f"component {h} has no volume with reg_covar={self.ridge:g}: its points coincide in "
            "some direction; a larger reg_covar, or a simpler covariance_type, is needed"
        )

    def log_densities(self, points: FloatArray) -> FloatArray:
        """Return ``log N(x | mu_h, Sigma_h)``, shape (n, k)."""
        n, d = points.shape
        result = np.empty((n, len(self.means)))
        for h in range(len(self.means)):
            scaled, log_det = self._whitened(points, h)
            distance = np.einsum("im,im->i", scaled, scaled)
            result[:, h] = -0.5 * (distance + log_det + d * _LOG_2PI)
        return result

    def costs(self, rows: IntArray | None = None) -> FloatArray:
        """Return ``-log p(x | component)``, with mixing weights where they apply."""
        everyone = rows is None
        points = self.points if everyone else self.points[rows]
        exponent = self.mixing_exponent if everyone else self.mixing_exponent[rows]
        partial_labels = self.partial_labels if everyone else self.partial_labels[rows]
        with np.errstate(divide="ignore", invalid="ignore"):
            # A component of weight zero must not cost infinity where mixing weights do not apply.
            prior = np.where(
                exponent[:, np.newaxis] > 0, exponent[:, np.newaxis] * np.log(self.weights), 0.0
            )
        return clamped(-self.log_densities(points) - prior, partial_labels)

    def nearest(self, previous: IntArray | None) -> IntArray:
        """Return the most probable component of each point on its own."""
        return cheapest(self.costs(), previous)

    def terms(self) -> Sequence[DiagonalTerms]:
        """Return the constraints as diagonal terms."""
        return self._terms

    def response(self) -> Callable[[FloatArray], FloatArray]:
        """Return the response of costs to shares, without the ridge."""
        z, _ = self._whitened(self.points, 0)
        d = z.shape[1]
        point_weight = self.point_weight()
        weights = np.ones(len(z)) if point_weight is None else point_weight
        weights = weights / weights.sum()
        mixing = weights * self.mixing_exponent
        # Excess of the squared whitened coordinates over 1, in the form of the covariance.
        excess = {"diag": z * z - 1.0, "spherical": ((z * z).sum(axis=1, keepdims=True) / d - 1.0)}

        def answer(change: FloatArray) -> FloatArray:
            gained = weights * change
            result = z @ (gained @ z)
            if self.covariance == "full":
                wider = (z * gained[:, np.newaxis]).T @ z - gained.sum() * np.eye(d)
                result += 0.5 * (np.einsum("im,im->i", z @ wider, z) - np.trace(wider))
            elif self.covariance != "tied":
                squares = excess[self.covariance]
                result += (0.5 if self.covariance == "diag" else 0.5 * d) * (
                    squares @ (gained @ squares)
                )
            if mixing.any():
                result += self.mixing_exponent * (mixing @ change / mixing.sum())
            return np.asarray(result)

        return answer

    def push_apart(self, share: float, rng: np.random.Generator) -> None:
        """Move each mean by a share of the way to a random point."""
        self.means = pushed_apart(
            self.points, self.means, SquaredEuclidean(), share, rng, self.sample_weight
        )

    def objective(self, labels: IntArray) -> float:
        """Return the summed costs and penalties of labels."""
        costs = self.costs()[np.arange(labels.size), labels]
        total = costs.sum() if self.sample_weight is None else self.sample_weight @ costs
        return float(total) + violations(self.constraints, labels).weight

    def parameters(self) -> tuple[FloatArray, ...]:
        """Return mixing weights, means and covariances."""
        return self.weights, self.means, self.covariances

    def maximise(self, assignment: Assignment) -> Iterator[str]:
        """Fit all parameters to the shares."""
        k = len(self.means)
        shares = np.eye(k)[assignment] if assignment.ndim == 1 else assignment
        weight = self.point_weight()
        weighted = shares if weight is None else shares * weight[:, np.newaxis]
        mass = (self.mixing_exponent[:, np.newaxis] * weighted).sum(axis=0)
        if mass.sum() == 0:
            # All points are constrained, and their prior has no mixing weights.
            mass = weighted.sum(axis=0)
        self.weights = mass / mass.sum()
        sizes = weighted.sum(axis=0)
        occupied = np.flatnonzero(sizes > 1e-10 * len(self.points))
        # Copies, because components without points keep their parameters.
        means, covariances = self.means.copy(), self.covariances.copy()
        d = self.points.shape[1]
        common = np.zeros((d, d))
        for h in occupied:
            q = weighted[:, h] / sizes[h]
            means[h] = q @ self.points
            gaps = self.points - means[h]
            if self.covariance in ("full", "tied"):
                within = (gaps * q[:, np.newaxis]).T @ gaps
                common += sizes[h] / sizes[occupied].sum() * within
                if self.covariance == "full":
                    covariances[h] = within + self.ridge * np.eye(d)
            else:
                variance = q @ (gaps * gaps) + self.ridge
                covariances[h] = variance if self.covariance == "diag" else variance.mean()
        if self.covariance == "tied":
            covariances = common + self.ridge * np.eye(d)
        self.means, self.covariances = means, covariances
        yield "components"


class _DensityPredictor(CostPredictor):
    """Predictions by the densities of components; `ConstrainedGaussianMixture` documents them."""

    _dense: ClassVar[bool] = True
    weights_: FloatArray
    #: The model of the fit, whose means are relative to the origin.
    _components: GaussianComponents

    def _costs(self, points: Points) -> FloatArray:
        with np.errstate(divide="ignore"):
            log_weights = np.log(self.weights_)
        costs = -self._components.log_densities(self._format.centred(points)) - log_weights
        return np.asarray(costs, dtype=np.float64)

    def _quadratic_costs(self) -> QuadraticCosts:
        """Return the parameters of `predict`."""
        model = self._components
        k, d = model.means.shape
        factors, log_dets = zip(*(model.whiten(np.eye(d), h) for h in range(k)), strict=True)
        with np.errstate(divide="ignore"):
            offsets = 0.5 * (np.array(log_dets) + d * _LOG_2PI) - np.log(self.weights_)
        centres = self._format.moved_back(model.means)
        return QuadraticCosts(centres, np.sqrt(0.5) * np.stack(factors), offsets)

    def transform(self, X: Any) -> FloatArray:
        """Return ``-log(weight_h N(x | mu_h, Sigma_h))`` of each point and component."""
        return super().transform(X)

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the posterior of the components for new points, without constraints.

        Parameters
        ----------
        X : (n, d) array-like

        Returns
        -------
        (n, k) float64 array
            Rows sum to one.

        Examples
        --------
        >>> model = ConstrainedGaussianMixture(2, random_state=0).fit([[0.0], [1.0], [5.0], [6.0]])
        >>> model.predict_proba([[3.0]]).round(3).tolist()
        [[0.5, 0.5]]
        """
        from scipy.special import softmax

        return np.asarray(softmax(-self._costs_of(X), axis=1))

    def score_samples(self, X: Any) -> FloatArray:
        """Return the log-likelihood of points under the mixture, without constraints.

        Parameters
        ----------
        X : (n, d) array-like

        Returns
        -------
        (n,) float64 array
            ``log sum_h weight_h N(x | mu_h, Sigma_h)``.

        Examples
        --------
        >>> model = ConstrainedGaussianMixture(2, random_state=0).fit([[0.0], [1.0], [5.0], [6.0]])
        >>> near, far = model.score_samples([[0.5], [3.0]])
        >>> bool(near > far)
        True
        """
        from scipy.special import logsumexp

        return np.asarray(logsumexp(-self._costs_of(X), axis=1))

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean log-likelihood of points; see `score_samples`."""
        refuse_pairs(y, X, self, "score")
        return float(self.score_samples(X).mean())


@dataclass(eq=False, repr=False, kw_only=True)
class ConstrainedGaussianMixture(SharedSettings, PairScore, _DensityPredictor):
    r"""Gaussian mixture with must-links, cannot-links and labels, fitted by EM.

    The labels of all points together have the posterior

    ``p(y | x) ~ prod_i p(x_i | y_i) exp(-sum_ML w [y_i != y_j] - sum_CL w [y_i = y_j])``

    times mixing weights, which for constrained points depend on `prior`. Any solver at temperature
    1 gives the marginals, for example mean field (Lange et al. 2005). Infinite weights and the
    junction tree give the constrained EM of Shental et al. 2003.

    Parameters
    ----------
    n_clusters : int
    covariance_type : {"full", "tied", "diag", "spherical"}
        One matrix per component, or a common one ("tied"); diagonal only, or one variance.
    e_step : str or Solver
        Any solver that gives marginals; see ``inference-lab list solvers``.
    prior : {"maximum-entropy", "chunklets", "points"}
        Mixing weights apply to unconstrained points only (Lange et al. 2005), once to each
        must-link component (Shental et al. 2003), or to each point. The normaliser of
        cannot-links, which depends on the weights, is left out.
    alpha : float in (0, 1) or "fewest-violations"
        Weight of the unconstrained points, against 1 - alpha for the supervised ones; or the
        largest of 0.1, 0.2, ..., 0.9 whose components alone violate the fewest constraints.
    alpha_mode : {"sum", "mean"}
        See `alpha_weights`: with "sum", 1/2 treats all points alike.
    reg_covar : float
        Ridge added to the variances.
    init : {"auto", "neighbourhoods", "k-means++", ...} or (k, d) array
        "auto" starts from the centroids of `PCKMeans` on the same pairs. For other names see
        `initial_centroids`.
    n_init : int
        Starts, of which the one of least objective is kept.
    e_step_time_limit, n_jobs, max_iter, tol, random_state
        See `HMRFKMeans`.

    Attributes
    ----------
    weights_, means_, covariances_
        Parameters of the components; `cluster_centers_` are the means.
    responsibilities_ : (n, k) array
        Marginals of the training points under the constraints.
    labels_ : (n,) array
        The most probable component of each point.
    objective_ : float
        Final free energy: minus the log-likelihood if the solver is exact, an upper bound on it
        for mean field, an estimate otherwise; NaN if the solver returns none (Gibbs).
    n_iter_, history_, converged_, violations_
        See `HMRFKMeans`.

    Notes
    -----
    **Guarantees.** With an exact solver or mean field the free energy never rises, except for
    `reg_covar`, which the objective leaves out.

    **Complexity.** An iteration costs O(n k d^2) for full covariances, O(n k d) for others, and the
    solver's time. Memory: a few (n, k) arrays.

    References
    ----------
    T. Lange, M. H. C. Law, A. K. Jain, J. M. Buhmann, "Learning with constrained and unlabelled
    data", CVPR 2005. N. Shental, A. Bar-Hillel, T. Hertz, D. Weinshall, "Computing Gaussian
    mixture models with EM using equivalence constraints", NIPS 2003.

    Examples
    --------
    >>> X = [[0.0], [1.0], [5.0], [6.0]]
    >>> model = ConstrainedGaussianMixture(2, reg_covar=0.1, random_state=0)
    >>> labels = model.fit(X, cannot_link=[(1, 2)], cl_weight=100.0).labels_
    >>> bool(labels[1] != labels[2])
    True
    """

    covariance_type: Covariance = "full"
    e_step: str | Solver = "mean-field"
    e_step_time_limit: float | None = setting(None, above=0)
    prior: Prior = "maximum-entropy"
    alpha: float | Literal["fewest-violations"] = setting(0.5, above=0, below=1)
    alpha_mode: AlphaMode = "sum"
    init: Init | Literal["auto"] | npt.ArrayLike = "auto"
    reg_covar: float = setting(1e-6, at_least=0, below=math.inf)
    tol: float = setting(1e-6, at_least=0, below=math.inf)

    @takes(FitArguments)
    def fit(self, X: Any, y: Any = None, **arguments: Unpack[FitArguments]) -> Self:
        inputs = read_fit(self, X, y, arguments, SquaredEuclidean(), default_weight="auto")
        supervision = inputs.weighed(_auto_weights)

        def best_start(alpha_weight: FloatArray | None) -> Fit[GaussianComponents]:
            def fit_once(rng: np.random.Generator, init: Any) -> Fit[GaussianComponents]:
                return self._fit_once(inputs.points, supervision, alpha_weight, init, rng)

            inits = [inputs.centred_init(self.init)] * self.n_init
            return best_of(inits, fit_once, generator_of(self.random_state), self.n_jobs)

        best = best_by_alpha(self.alpha, self.alpha_mode, supervision, best_start)

        self._components = model = best.model
        self.weights_, self.covariances_ = model.weights, model.covariances
        self.means_ = inputs.format.moved_back(model.means)
        self.cluster_centers_ = inputs.centres(model.means)
        shares = np.asarray(best.result.assignment, dtype=np.float64)
        self.responsibilities_ = inputs.shares_of_all(shares, self._costs)
        if best.temperatures is not None:
            self.temperatures_ = np.array(best.temperatures)
        self._set_progress(best.result)
        self._set_labels(inputs, best.labels, supervision.constraints)
        watch_hard(supervision.constraints, best.labels)
        return self

    def _fit_once(
        self,
        points: FloatArray,
        supervision: Supervision,
        alpha_weight: FloatArray | None,
        init: Any,
        rng: np.random.Generator,
    ) -> Fit[GaussianComponents]:
        """Fit from one start, with given weights of points."""
        distortion, k = SquaredEuclidean(), self.n_clusters
        if isinstance(init, str) and init == "auto":
            start = paired_kmeans(points, supervision, k, rng).cluster_centers_
        else:
            start = initial_centroids(points, supervision, k, distortion, init, rng)
        model = self._gaussians(points, supervision, start, alpha_weight)
        # The first parameters are fitted to the points nearest to each mean.
        nearest = cheapest(distortion.distances(points, start), None)
        for _ in model.maximise(
            np.where(supervision.partial_labels >= 0, supervision.partial_labels, nearest)
        ):
            pass
        e_step = ShareStep(as_solver(self.e_step), rng, self.e_step_time_limit)
        return Fit(model, maximise_expectation(model, e_step, max_iter=self.max_iter, tol=self.tol))

    def _gaussians(
        self,
        points: FloatArray,
        supervision: Supervision,
        means: FloatArray,
        alpha_weight: FloatArray | None,
    ) -> GaussianComponents:
        return GaussianComponents(
            points,
            supervision,
            means,
            self.covariance_type,
            self.reg_covar,
            self.prior,
            alpha_weight,
        )


def _auto_weights(points: Points, supervision: Supervision) -> Weights:
    """Return the log-odds that pairs are right; costs are minus log-probabilities."""
    return log_odds_weights(supervision, {"ml_weight": 1.0, "cl_weight": 1.0})
