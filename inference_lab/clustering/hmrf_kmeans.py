"""HMRF-KMeans and its relatives: K-means with penalties for violated constraints."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import numpy.typing as npt

from inference_lab.clustering._base import PairwiseClusterer, SharedSettings, check_word
from inference_lab.clustering.bregman_kmeans import weight_of_odds
from inference_lab.clustering.distortions import Distortion, Points, SquaredEuclidean
from inference_lab.clustering.em import EStepSolver, Fit, HalfStep, joined, maximise_expectation
from inference_lab.clustering.hmrf import HMRF, EmptyClusters, Penalty
from inference_lab.clustering.initialisation import Init
from inference_lab.clustering.metric_learning import (
    ClosedForm,
    DegenerateMetricWarning,
    GradientStep,
    MetricLearner,
    effective_rank,
)
from inference_lab.clustering.mssc.hartigan import descend
from inference_lab.clustering.mssc.hg_means import search
from inference_lab.clustering.pair_weights import (
    log_odds,
    watch_components,
    watch_hard,
    watch_weight,
)
from inference_lab.clustering.supervision import Supervision, agreeing
from inference_lab.contract import Solver
from inference_lab.formatting import warn
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.registry.registry import as_solver
from inference_lab.specs.settings import setting

#: Metrics of a rank below this multiple of the least rank cause a warning.
_MARGIN = 1.02
#: Starts by default.
_STARTS = 10
#: Size of the sample for the ten starts, in all and per cluster; it is used if there are more than
#: four times as many points (docs/decisions/032-starts-on-a-sample.md).
_SAMPLE, _SAMPLE_EACH = 5_000, 100

EStepStart = Literal["previous", "cold"]
Closure = Literal["raise", "drop", "keep", "vote"]
Metric = Literal["diagonal", "full", "gradient"]
Improve = Literal["hartigan", "memetic"]


@dataclass(eq=False, repr=False, kw_only=True)
class HMRFKMeans(SharedSettings, PairwiseClusterer):
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
    improve : {None, "hartigan", "memetic"}
        Search over labels and centroids together, from the best start, for squared Euclidean costs
        without a metric. "hartigan" moves single units (points, or groups of points joined by hard
        must-links) with centroids updated at once, and exchanges units connected by hard
        cannot-links. "memetic" also crosses solutions (HG-means).
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
    improve: Improve | None = None
    init: Init | Literal["auto"] | npt.ArrayLike = "auto"
    closure: Closure | None = None
    empty_clusters: EmptyClusters = "reseed"
    n_init: int | Literal["auto"] = setting("auto", at_least=1)  # type: ignore[assignment]  # wider than the base
    tol: float = setting(1e-6, at_least=0, below=math.inf)

    _default_weight: ClassVar[float | Literal["auto"]] = "auto"

    def _fit(self, points: Points, supervision: Supervision) -> None:
        if self.closure == "drop":
            watch_components(supervision.constraints, self.n_clusters)
        if self.closure is not None:
            given = supervision.constraints
            merge = self.penalty == "potts" and bool(np.isposinf(given.ml_weights).all())
            supervision = replace(supervision, constraints=given.close(self.closure, merge=merge))
        learner = self._learner()
        if learner is not None:
            learner.check_points(points)
        inits = self._inits(supervision)
        size = max(_SAMPLE, _SAMPLE_EACH * self.n_clusters)
        if self.n_init == "auto" and len(inits) > 1 and points.shape[0] > 4 * size:
            inits = [self._best_on_sample(points, supervision, inits, size)]
        best = self._best_of(
            lambda rng, init: self._fit_once(points, supervision, rng, init), inits=inits
        )
        if self.improve is not None:
            best = self._improved(best, supervision.known)
        self._take_hard(best)
        self._judge(supervision.constraints)
        watch_hard(supervision.constraints, self.labels_)
        if isinstance(best.model.metric, SquaredEuclidean):
            # The variance of a feature within clusters suffices: warnings check factors of 100, and
            # the unit of `weight_of_odds` would need the costs of all points in all clusters.
            mean = best.model.distortion(self.labels_) / float(
                supervision.sample_weight_or_ones.sum()
            )
            unit = 2.0 * mean / points.shape[1]
            watch_weight(supervision.constraints, best.model.pair_costs(), unit)
        if learner is not None:
            self._watch(learner, points.shape[1])

    def _improved(self, fit: Fit[HMRF], known: IntArray) -> Fit[HMRF]:
        """Return a fit with labels and centroids improved together, then alternately."""
        since = time.perf_counter()
        rng = self._generator()
        model, problem = fit.model, fit.model.partition_problem()
        units = problem.of_units(fit.labels)
        if self.improve == "hartigan":
            found = descend(problem, units, rng)
        else:
            found = search(problem, rng, units)
        labels = agreeing(found[problem.of_point], known, self.n_clusters)
        for _ in model.maximise(labels):
            pass
        seconds = time.perf_counter() - since
        line = HalfStep(fit.result.n_iter, "search", model.objective(labels), seconds)
        result = maximise_expectation(
            model, self._expectation(rng), max_iter=self.max_iter, tol=self.tol, start=labels
        )
        before = replace(fit.result, history=[*fit.result.history, line])
        return Fit(model, joined(before, result))

    def _weight_of_odds(self, points: Points, supervision: Supervision) -> dict[str, float]:
        distortion, pairs = self._distortion(), supervision.constraints
        unit = weight_of_odds(points, self.n_clusters, distortion, supervision.sample_weight)
        if self.penalty == "potts":
            return {"ml_weight": unit, "cl_weight": unit}
        # Dissimilarities are on the scale of costs, so weights make the mean pair cost one unit.
        units = {}
        for name, ends in (("ml_weight", pairs.must_link), ("cl_weight", pairs.cannot_link)):
            found = distortion.between(points, ends)
            if name == "cl_weight" and len(ends):
                found = np.maximum(distortion.largest(points) - found, 0.0)
            mean = float(found.mean()) if len(ends) else 0.0
            units[name] = unit / mean if mean > 0 else unit
        return units

    def _watch(self, learner: MetricLearner, n_features: int) -> None:
        """Warn of a metric whose effective rank is near the least rank."""
        metric = self.metric_
        if metric.weights is None or n_features == 1:
            return
        rank = effective_rank(metric.weights)
        if rank < _MARGIN * learner.least_rank(metric, self.n_clusters, n_features):
            warn(
                f"the metric learnt counts for {rank:.2g} of {n_features} features only, in "
                "which clusters may look better than they are; use fewer iterations, a "
                "smaller rate, metric=None, or scale the features",
                DegenerateMetricWarning,
            )

    def _check_settings(self) -> None:
        super()._check_settings()
        if isinstance(self.init, str):
            check_word("init", self.init, ("auto", *get_args(Init)))
        learner = self._learner()
        if learner is not None:
            learner.check(self._distortion())
        if self.improve is not None:
            check_word("improve", self.improve, get_args(Improve))
            distortion = self._distortion()
            if (
                learner is not None
                or not isinstance(distortion, SquaredEuclidean)
                or (distortion.weights is not None)
            ):
                raise ValueError(
                    f"improve={self.improve!r} needs distortion='euclidean' and metric=None"
                )

    def _learner(self) -> MetricLearner | None:
        metric = self.metric
        if isinstance(metric, MetricLearner):
            return metric
        if metric not in (None, *get_args(Metric)):
            raise ValueError(
                f"metric = {metric!r} is unknown; allowed: None, 'diagonal', 'full', 'gradient', "
                "or a MetricLearner"
            )
        if metric is None:
            return None
        if metric == "gradient":
            return GradientStep()
        return ClosedForm(metric)

    def _expectation(self, rng: np.random.Generator) -> EStepSolver:
        cold = self.e_step_start == "cold"
        return EStepSolver(as_solver(self.e_step), rng, self.e_step_time_limit, cold=cold)

    def _inits(self, supervision: Supervision) -> list[Any]:
        """Return the `init` of each start."""
        auto = isinstance(self.init, str) and self.init == "auto"
        count = self.n_init
        if isinstance(count, str):
            settled = np.unique(supervision.known[supervision.known >= 0]).size == self.n_clusters
            count = _STARTS if auto and not settled else 1
        if not auto:
            return [self.init] * count
        # With neighbourhoods for all clusters, every start from them would be the same.
        return ["neighbourhoods"] + ["k-means++"] * (count - 1)

    def _best_on_sample(
        self, points: Points, supervision: Supervision, inits: list[Any], size: int
    ) -> FloatArray:
        """Return the centroids of the best start on a sample of the points, with ICM."""
        rows = supervision.sample(size, self._generator())
        some, part = self._only(points, rows), supervision.only(rows)
        best = self._best_of(
            lambda rng, init: self._fit_once(some, part, rng, init, EStepSolver("icm", rng)),
            inits=inits,
        )
        return self._moved_back(best.model.centroids)

    def _fit_once(
        self,
        points: Points,
        supervision: Supervision,
        rng: np.random.Generator,
        init: Any,
        e_step: EStepSolver | None = None,
    ) -> Fit[HMRF]:
        model = HMRF(
            points,
            supervision.constraints,
            self._distortion(),
            self._start(points, supervision, rng, init=init),
            penalty=self.penalty,
            learner=self._learner(),
            empty=self.empty_clusters,
            known=supervision.known,
            sample_weight=supervision.sample_weight,
        )
        return self._alternate(model, e_step or self._expectation(rng))


@dataclass(eq=False, repr=False, kw_only=True)
class PCKMeans(HMRFKMeans):
    r"""Pairwise-constrained K-means: squared distances, and a fixed penalty for each violation.

    ``J = sum_i ||x_i - mu_{l_i}||^2 + sum_ML w [l_i != l_j] + sum_CL w [l_i = l_j]``

    Parameters
    ----------
    n_clusters, e_step, e_step_time_limit, e_step_start, improve, init, closure, empty_clusters
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
    improve: Improve | None = field(default=None, init=False)
    #: Fixed in this class, so not an argument.
    distortion: str | Distortion = field(default="euclidean", init=False)
    penalty: Penalty = field(default="distance", init=False)


def paired_kmeans(
    points: Points,
    supervision: Supervision,
    n_clusters: int,
    rng: np.random.Generator,
    odds: float = 1.0,
) -> PCKMeans:
    """Return `PCKMeans` fitted to pairs, as a start of other methods.

    Weights times `odds` are log-odds that pairs are right. Methods with many or degenerate local
    optima start near clusters on which pairs and squared distances agree.
    """
    units = weight_of_odds(points, n_clusters, SquaredEuclidean(), supervision.sample_weight)
    # Pairs of infinite weight must stay hard if the unit is zero.
    unit, pairs = max(odds * units, np.finfo(float).tiny), supervision.constraints
    with warnings.catch_warnings():
        # The calling method issues its own warnings about pairs.
        warnings.simplefilter("ignore")
        return PCKMeans(n_clusters, random_state=rng).fit(
            points,
            **pairs.fit_params()
            | {"ml_weight": unit * pairs.ml_weights, "cl_weight": unit * pairs.cl_weights},
            partial_labels=supervision.known,
            sample_weight=supervision.sample_weight,
        )


class PairBeliever(PairwiseClusterer):
    """Base of methods without a scale for log-odds: they use a pair fully, or leave it out."""

    _default_weight: ClassVar[float | Literal["auto"]] = "auto"

    def _auto_weights(self, points: Points, supervision: Supervision) -> Mapping[str, FloatArray]:
        """Return ones for pairs that `PCKMeans` keeps, and zeros for pairs that it violates."""
        pairs, rng = supervision.constraints, self._generator()
        labels = paired_kmeans(points, supervision, self.n_clusters, rng, log_odds(pairs)).labels_
        ml, cl = (labels[e[:, 0]] == labels[e[:, 1]] for e in (pairs.must_link, pairs.cannot_link))
        return {"ml_weight": ml.astype(np.float64), "cl_weight": (~cl).astype(np.float64)}

    def _start(
        self, points: Points, supervision: Supervision, *more: Any, **named: Any
    ) -> FloatArray:
        """Return the initial centroids for `init`; with "auto", the centroids of `PCKMeans`."""
        if isinstance(self.init, str) and self.init == "auto":
            odds = log_odds(supervision.constraints)
            return paired_kmeans(
                points, supervision, self.n_clusters, more[0], odds
            ).cluster_centers_
        return super()._start(points, supervision, *more, **named)
