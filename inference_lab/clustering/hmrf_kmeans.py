"""HMRF-KMeans and its relatives: K-means with penalties for violated constraints."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, Unpack, get_args

import numpy as np
import numpy.typing as npt

from inference_lab.clustering.e_step import AssignmentStep, LabelStep
from inference_lab.clustering.em import Fit, maximise_expectation
from inference_lab.clustering.fit_inputs import FitInputs, Weights, check_word, read_fit, takes
from inference_lab.clustering.hmrf import HMRF, EmptyClusters, Penalty
from inference_lab.clustering.initialisation import Init, initial_centroids
from inference_lab.clustering.pair_odds import log_odds_weights
from inference_lab.clustering.pair_warnings import watch_components, watch_hard, watch_weight
from inference_lab.clustering.pair_weights import weight_of_odds
from inference_lab.clustering.prediction import CentroidPredictor, PairScore
from inference_lab.clustering.shared_starts import centroids_without_pairs, few_starts
from inference_lab.clustering.starts import (
    SAMPLED,
    SharedSettings,
    best_of,
    generator_of,
    sample_size,
)
from inference_lab.clustering.supervision import FitArguments, Supervision
from inference_lab.contract import Solver
from inference_lab.distortions.distortions import Distortion, as_distortion
from inference_lab.distortions.metric_learning import (
    ClosedForm,
    DegenerateMetricWarning,
    Metric,
    MetricLearner,
    as_learner,
    effective_rank,
)
from inference_lab.distortions.points import Points
from inference_lab.formatting import warn
from inference_lab.graph.arrays import FloatArray
from inference_lab.registry.registry import as_solver
from inference_lab.specs.settings import setting

#: Metrics of a rank below this multiple of the least rank cause a warning.
_MARGIN = 1.02
#: Starts by default.
_STARTS = 10

EStepStart = Literal["previous", "cold"]
Closure = Literal["raise", "drop", "keep", "vote"]


@dataclass(eq=False, repr=False, kw_only=True)
class HMRFKMeans(SharedSettings, PairScore, CentroidPredictor):
    r"""K-means over a hidden Markov random field of must-links and cannot-links.

    Minimises

    ``J = sum_i D(x_i, mu_{l_i}) + sum_ML w f_ij [l_i != l_j] + sum_CL w g_ij [l_i = l_j]``

    by alternating an E-step, in which a solver labels all points coupled by constraints, with new
    centroids and, optionally, a new metric.

    Parameters
    ----------
    n_clusters : int
    distortion : {"euclidean", "cosine", "kl", "i-divergence"} or Distortion
        Cost of a point in a cluster. "euclidean" is the squared distance.
    penalty : {"distance", "potts"}
        Factor of the weight of a violated constraint: with "distance", the dissimilarity of the
        points of a must-link, and its gap to the largest one for a cannot-link (Basu et al. 2004);
        with "potts", 1 (Basu 2005, ch. 4).
    metric : {None, "diagonal", "full", "gradient"} or MetricLearner
        Learn no metric; the closed form of a diagonal or full matrix (squared Euclidean costs);
        or gradient steps on weights of the features.
    e_step : str or Solver
        Any solver: a name or spec such as ``"loopy-bp(damping=0.3)"``. It starts from the labels
        of the last E-step, and never makes them worse.
    e_step_time_limit : float, optional
        Seconds per E-step.
    e_step_start : {"previous", "cold"}
        "cold" restarts solvers in each E-step, to compare their own results; the objective may
        rise.
    init : {"auto", "neighbourhoods", "k-means++", ...} or (k, d) array
        "auto" starts once from "neighbourhoods", then from "k-means++". For other names see
        `initial_centroids`; the papers use "neighbourhoods+perturbed".
    closure : {None, "raise", "drop", "keep", "vote"}
        Add implied constraints, with this policy for contradictions (see `Constraints.close`).
        Harmful if answers are noisy. With hard must-links and penalties "potts", one cannot-link
        between each two components is added.
    empty_clusters : {"reseed", "keep"}
        See `BregmanKMeans`.
    n_init : int or "auto"
        Starts; the one of least objective, including the costs of pairs, is kept. "auto" is ten
        with ``init="auto"``, else one; also one if every cluster has points of known label. With
        more than 20,000 points (400 per cluster), these ten label a sample with ICM, and only the
        best continues with all points.
    n_jobs : int or None
        Processes that share the starts; None is 1, -1 as many as there are processors.
    max_iter : int
    tol : float
        Stop when the objective falls by no more than this share in an iteration.
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    labels_ : (n,) int64 array
        Cluster of each point.
    cluster_centers_ : (k, d) array
        Centroids, float32 if X is.
    inertia_ : float
        Weighted sum of the distortion of each point to its closest centroid, as in
        `sklearn.cluster.KMeans`.
    objective_ : float
        ``J`` at the returned labels, centroids and metric.
    n_iter_ : int
    converged_ : bool
        Whether the last iteration changed nothing, or the objective by no more than `tol`.
    history_ : list of HalfStep
        The objective after each half-step, and the solver's result in each E-step.
    violations_ : Violations
        Number of violated must-links and cannot-links, and their weight.
    metric_ : Distortion
        The distortion with its metric.
    constraints_ : Constraints
        The constraints used, including implied ones if `closure` is set.

    Notes
    -----
    **Guarantees.** The objective never rises from one half-step to the next, for any solver, unless
    E-steps start cold, or centroids are smoothed (``kl`` and ``i-divergence`` with smoothing).

    **Complexity.** An iteration costs O(n d k) and the solver's time on constrained points; with
    distance penalties, also O(n^2 d) up to 1,500 points and O(n d) beyond. Memory: a copy of the
    data, and ``c k`` costs for ``c`` constrained points. Sparse data stay sparse.

    References
    ----------
    S. Basu, M. Bilenko, R. Mooney, "A probabilistic framework for semi-supervised clustering",
    KDD 2004.
    M. Bilenko, S. Basu, R. Mooney, "Integrating constraints and metric learning in semi-supervised
    clustering", ICML 2004.

    Examples
    --------
    >>> X = [[0.0], [1.0], [5.0], [6.0]]
    >>> model = HMRFKMeans(n_clusters=2, e_step="ilp", random_state=0)
    >>> labels = model.fit(X, must_link=[(0, 1)], cannot_link=[(1, 2)]).labels_
    >>> bool(labels[0] == labels[1] != labels[2])
    True
    """

    distortion: str | Distortion = "euclidean"
    penalty: Penalty = "distance"
    metric: Metric | MetricLearner | None = None
    e_step: str | Solver = "icm"
    e_step_time_limit: float | None = setting(None, above=0)
    e_step_start: EStepStart = "previous"
    init: Init | Literal["auto"] | npt.ArrayLike = "auto"
    closure: Closure | None = None
    empty_clusters: EmptyClusters = "reseed"
    n_init: int | Literal["auto"] = setting("auto", at_least=1)  # type: ignore[assignment]  # wider than the base
    tol: float = setting(1e-6, at_least=0, below=math.inf)

    @takes(FitArguments)
    def fit(self, X: Any, y: Any = None, **arguments: Unpack[FitArguments]) -> Self:
        distortion, learner = as_distortion(self.distortion), as_learner(self.metric)
        if isinstance(self.init, str):
            check_word("init", self.init, ("auto", *get_args(Init)))
        if learner is not None:
            learner.check(distortion)
        inputs = read_fit(self, X, y, arguments, distortion, default_weight="auto")
        supervision = self._closed(inputs.weighed(self._auto_weights))
        if learner is not None:
            learner.check_points(inputs.points)

        sample, several = sample_size(self.n_clusters), self._n_starts(supervision) > 1
        if self.n_init == "auto" and several and len(inputs.rows) > SAMPLED * sample:
            inits: list[Any] = [self._best_on_sample(inputs, supervision, sample)]
        else:
            inits = self._inits(inputs, inputs.points, supervision)
        best = self._best_start(inputs, inputs.points, supervision, inits, self._e_step)

        self._set_centroids(inputs, best.model.centroids, best.model.metric)
        self._set_progress(best.result)
        self._set_labels(inputs, best.labels, supervision.constraints)
        self._watch(best, supervision)
        return self

    def _auto_weights(self, points: Points, supervision: Supervision) -> Weights:
        """Return the log-odds that pairs are right, on the scale of the costs."""
        distortion, pairs = as_distortion(self.distortion), supervision.constraints
        unit = weight_of_odds(points, self.n_clusters, distortion, supervision.sample_weight)
        units = {"ml_weight": unit, "cl_weight": unit}
        if self.penalty == "distance":
            # Dissimilarities are on the scale of costs, so weights make the mean pair cost a unit.
            penalties = {
                "ml_weight": distortion.between(points, pairs.must_link),
                "cl_weight": distortion.between(points, pairs.cannot_link),
            }
            if len(pairs.cannot_link):
                gaps = distortion.largest(points) - penalties["cl_weight"]
                penalties["cl_weight"] = np.maximum(gaps, 0.0)
            for name, penalty in penalties.items():
                mean = float(penalty.mean()) if penalty.size else 0.0
                units[name] = unit / mean if mean > 0 else unit
        return log_odds_weights(supervision, units)

    def _closed(self, supervision: Supervision) -> Supervision:
        """Add the implied constraints, as `closure` says."""
        pairs = supervision.constraints
        if self.closure == "drop":
            watch_components(pairs, self.n_clusters)
        if self.closure is None:
            return supervision
        merge = self.penalty == "potts" and bool(np.isposinf(pairs.ml_weights).all())
        return replace(supervision, constraints=pairs.close(self.closure, merge=merge))

    def _n_starts(self, supervision: Supervision) -> int:
        """Return the number of starts."""
        if not isinstance(self.n_init, str):
            return self.n_init
        auto = isinstance(self.init, str) and self.init == "auto"
        partial_labels = supervision.partial_labels
        settled = np.unique(partial_labels[partial_labels >= 0]).size == self.n_clusters
        # With neighbourhoods for all clusters, every start from them would be the same.
        return _STARTS if auto and not settled else 1

    @property
    def _is_full(self) -> bool:
        """Whether a full matrix is learnt."""
        learner = as_learner(self.metric)
        return isinstance(learner, ClosedForm) and learner.shape == "full"

    def _inits(self, inputs: FitInputs, points: Points, supervision: Supervision) -> list[Any]:
        """Return the `init` of each start."""
        count = self._n_starts(supervision)
        if not (isinstance(self.init, str) and self.init == "auto"):
            return [self.init] * count
        if self.n_init == "auto" and count > 1 and few_starts(self._is_full):
            # The best of ten starts without pairs is computed once for all fits of a comparison.
            centroids = centroids_without_pairs(
                points, self.n_clusters, inputs.format.distortion, supervision.sample_weight
            )
            if centroids is not None:
                return ["neighbourhoods", inputs.format.moved_back(centroids)]
        return ["neighbourhoods"] + ["k-means++"] * (count - 1)

    def _best_on_sample(self, inputs: FitInputs, supervision: Supervision, size: int) -> FloatArray:
        """Return the centroids of the best start on a sample of the points, with ICM."""
        rows = supervision.sample(size, generator_of(self.random_state))
        points, supervision = inputs.points[rows], supervision.only(rows)
        best = self._best_start(
            inputs,
            points,
            supervision,
            self._inits(inputs, points, supervision),
            lambda rng: LabelStep("icm", rng),
        )
        return inputs.format.moved_back(best.model.centroids)

    def _best_start(
        self,
        inputs: FitInputs,
        points: Points,
        supervision: Supervision,
        inits: list[Any],
        e_step: Callable[[np.random.Generator], AssignmentStep],
    ) -> Fit[HMRF]:
        """Fit from each start; return the fit of least objective."""
        distortion, learner = inputs.format.distortion, as_learner(self.metric)

        def fit_once(rng: np.random.Generator, init: Any) -> Fit[HMRF]:
            centroids = initial_centroids(
                points, supervision, self.n_clusters, distortion, inputs.centred_init(init), rng
            )
            model = HMRF(
                points,
                supervision,
                distortion,
                centroids,
                penalty=self.penalty,
                learner=learner,
                empty=self.empty_clusters,
            )
            step = e_step(rng)
            result = maximise_expectation(model, step, max_iter=self.max_iter, tol=self.tol)
            return Fit(model, result)

        return best_of(inits, fit_once, generator_of(self.random_state), self.n_jobs)

    def _e_step(self, rng: np.random.Generator) -> AssignmentStep:
        """Return the E-step of a start."""
        cold = self.e_step_start == "cold"
        return LabelStep(as_solver(self.e_step), rng, self.e_step_time_limit, cold=cold)

    def _watch(self, best: Fit[HMRF], supervision: Supervision) -> None:
        """Warn of violated hard pairs, of weights far from the scale, and of degenerate metrics."""
        model, metric = best.model, best.model.metric
        watch_hard(supervision.constraints, best.labels)
        n_features = model.points.shape[1]
        if metric.squared is not None:
            # The variance of a feature within clusters suffices: warnings check factors of 100, and
            # the unit of `weight_of_odds` would need the costs of all points in all clusters.
            mean = model.distortion(best.labels) / float(supervision.sample_weight_or_ones.sum())
            unit = 2.0 * mean / n_features
            watch_weight(supervision.constraints, model.pair_costs(), unit)
        if model.learner is None or metric.weights is None or n_features == 1:
            return
        rank = effective_rank(metric.weights)
        if rank < _MARGIN * model.learner.least_rank(metric, self.n_clusters, n_features):
            warn(
                f"the metric learnt counts for {rank:.2g} of {n_features} features only, in "
                "which clusters may look better than they are; use fewer iterations, a "
                "smaller rate, metric=None, or scale the features",
                DegenerateMetricWarning,
            )


@dataclass(eq=False, repr=False, kw_only=True)
class PCKMeans(HMRFKMeans):
    r"""Pairwise-constrained K-means: squared distances, and a fixed penalty for each violation.

    ``J = sum_i ||x_i - mu_{l_i}||^2 + sum_ML w [l_i != l_j] + sum_CL w [l_i = l_j]``

    Parameters
    ----------
    n_clusters, e_step, e_step_time_limit, e_step_start, init, closure, empty_clusters
        See `HMRFKMeans`. Weights should be of the order of the squared distances.
    n_init, n_jobs, max_iter, tol, random_state
        See `HMRFKMeans`.

    Attributes
    ----------
    labels_, cluster_centers_, inertia_, objective_, n_iter_, converged_, history_, violations_
        See `HMRFKMeans`.
    metric_, constraints_
        See `HMRFKMeans`.

    Notes
    -----
    Squared distances are not halved, as in Basu's thesis (4.10). The paper of 2004 halves them, so
    its weights are half as large.

    **Guarantees.** The objective never rises from one half-step to the next, whatever the solver.

    **Complexity.** An iteration costs O(n d k) and the solver's time on the constrained points.

    References
    ----------
    S. Basu, A. Banerjee, R. Mooney, "Active semi-supervision for pairwise constrained clustering",
    SDM 2004.

    Examples
    --------
    >>> X = [[0.0], [1.0], [5.0], [6.0]]
    >>> PCKMeans(2, random_state=0).fit(X, must_link=[(0, 1)]).violations_.must_link
    0
    """

    #: Fixed in this class, so not an argument.
    distortion: str | Distortion = field(default="euclidean", init=False)
    penalty: Penalty = field(default="potts", init=False)
    metric: Metric | MetricLearner | None = field(default=None, init=False)


@dataclass(eq=False, repr=False, kw_only=True)
class MPCKMeans(HMRFKMeans):
    r"""Metric pairwise-constrained K-means: PCKMeans with a learnt metric.

    ``J = sum_i (||x_i - mu_{l_i}||^2_A - log det A) + sum_ML w f_ij [l_i != l_j]
    + sum_CL w g_ij [l_i = l_j]``

    with ``f`` the squared distance of the two points and ``g`` its gap to the largest one, both
    under the metric.

    Parameters
    ----------
    n_clusters, e_step, e_step_time_limit, e_step_start, init, closure, empty_clusters, n_init
        See `HMRFKMeans`.
    n_jobs, max_iter, tol, random_state
        See `HMRFKMeans`.
    metric : {"diagonal", "full"}

    Attributes
    ----------
    labels_, cluster_centers_, inertia_, objective_, n_iter_, converged_, history_, violations_
        See `HMRFKMeans`.
    metric_, constraints_
        See `HMRFKMeans`.

    Notes
    -----
    **Guarantees.** The objective never rises from one half-step to the next, whatever the solver.

    **Complexity.** As `HMRFKMeans` with distance penalties. The metric adds O((n + p) d) for p
    violated pairs if it is diagonal, O((n + p) d^2 + d^3) if it is full. Full
    metrics of more than 5,000 features are refused.

    References
    ----------
    M. Bilenko, S. Basu, R. Mooney, "Integrating constraints and metric learning in semi-supervised
    clustering", ICML 2004.

    Examples
    --------
    >>> X = [[0.0, 9.0], [1.0, -9.0], [5.0, 9.0], [6.0, -9.0]]
    >>> model = MPCKMeans(2, random_state=0).fit(X, must_link=[(0, 1), (2, 3)], ml_weight=10.0)
    >>> a, b = model.metric_.weights
    >>> bool(a > 10 * b)
    True
    """

    metric: Literal["diagonal", "full"] = "diagonal"
    #: Fixed in this class, so not an argument.
    distortion: str | Distortion = field(default="euclidean", init=False)
    penalty: Penalty = field(default="distance", init=False)
