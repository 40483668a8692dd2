"""Better clusters than a fit found, and bounds on the distance of a fit from the optimum."""

from __future__ import annotations

import copy
import math
import time
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from inference_lab.certificates.anticlustering import bound_by_groups
from inference_lab.certificates.hartigan import descend
from inference_lab.certificates.hg_means import search
from inference_lab.certificates.pair_branching import BranchingState, prove
from inference_lab.certificates.partition_problem import PartitionProblem, partition_problem
from inference_lab.clustering.cluster_model import as_labels
from inference_lab.clustering.cop_kmeans import COPKMeans
from inference_lab.clustering.em import HalfStep, Result, joined, maximise_expectation
from inference_lab.clustering.fit_inputs import FitInputs, check_word
from inference_lab.clustering.hmrf import HMRF, Penalty
from inference_lab.clustering.hmrf_kmeans import HMRFKMeans
from inference_lab.clustering.pair_warnings import watch_hard
from inference_lab.clustering.starts import generator_of
from inference_lab.clustering.supervision import Supervision, agreeing, read_partial_labels
from inference_lab.constraints import Constraints
from inference_lab.distortions.distortions import SquaredEuclidean
from inference_lab.distortions.points import is_sparse
from inference_lab.graph.arrays import FloatArray, IntArray

#: Gaps up to this one count as proofs, as in PC-SOS-SDP.
PROVED = 1e-4
#: Largest number of units for a single relaxation; beyond it, groups of about `_GROUP` units.
_ONE_RELAXATION, _GROUP = 500, 200
#: Gap at which a group is finished, because the loss from splitting into groups is larger.
_GROUP_TOLERANCE = 1e-3
#: Relative differences of objectives up to this size count as rounding.
_ROUNDING = 1e-10

#: Errors for estimators that minimise another objective.
_OTHER_OBJECTIVE = {
    "certify": (
        "certify has no bound of the objective of {!r}; it takes HMRFKMeans with "
        "distortion='euclidean' and metric=None, PCKMeans, COPKMeans, and k-means without pairs"
    ),
    "improve": (
        "improve has no search for the objective of {!r}; it takes HMRFKMeans with "
        "distortion='euclidean' and metric=None, and PCKMeans"
    ),
}

SearchMethod = Literal["hartigan", "memetic"]
M = TypeVar("M", bound=HMRFKMeans)


class CertificateStep(NamedTuple):
    """The best objective and the lower bound known after a number of seconds.

    Examples
    --------
    >>> CertificateStep(0.5, 10.0, 9.0).lower_bound
    9.0
    """

    seconds: float
    best_objective: float
    lower_bound: float


@dataclass(frozen=True)
class Certificate:
    """Bounds of the objective that an estimator minimises, for its data and pairs.

    Attributes
    ----------
    objective : float
        The objective of the labels, with each centroid at the mean of its cluster; infinite if a
        hard pair is violated.
    lower_bound : float
        No labels have a lower objective, up to the rounding error of the data.
    best_objective : float
        The lowest objective found, at most `objective`.
    best_labels : (n,) int64 array
        Labels with that objective.
    method : {"branch and bound", "groups"}
        Whether one relaxation covered all points, or groups of points were bounded one by one.
    nodes : int
        Number of relaxations in the branch and bound.
    history : list of CertificateStep
        An entry for each change of the bound or the best objective.

    Examples
    --------
    >>> from inference_lab.clustering import PCKMeans, certify
    >>> X = [[0.0], [1.0], [8.0], [9.0]]
    >>> certify(PCKMeans(2, random_state=0).fit(X, must_link=[(0, 1)]), X)
    Certificate(objective=1, lower_bound=1, gap=0.00%, proved=True)
    """

    objective: float
    lower_bound: float
    best_objective: float
    best_labels: IntArray = field(repr=False)
    method: str
    nodes: int
    history: list[CertificateStep] = field(repr=False)
    _scale: float = field(repr=False)

    @property
    def gap(self) -> float:
        """The difference between objective and bound, as a share of the objective.

        An objective near zero is compared with 1e-5 of the sum of squares of the data.
        """
        return max(0.0, self.objective - self.lower_bound) / max(abs(self.objective), self._scale)

    @property
    def proved(self) -> bool:
        """Whether the gap is at most 1e-4."""
        return self.gap <= PROVED

    def __repr__(self) -> str:
        """Return the bounds and the gap."""
        return (
            f"Certificate(objective={self.objective:.6g}, lower_bound={self.lower_bound:.6g}, "
            f"gap={self.gap:.2%}, proved={self.proved})"
        )


def certify(
    model: Any,
    X: npt.ArrayLike,
    *,
    sample_weight: npt.ArrayLike | None = None,
    partial_labels: npt.ArrayLike | None = None,
    time_limit: float = 60.0,
    max_nodes: int = 10_000,
    n_jobs: int | None = None,
    random_state: int = 0,
) -> Certificate:
    """Bound the distance of a clustering's objective from the optimum, and search for a better one.

    Units are points, or groups of points joined by hard must-links. Up to 500 units, branch and
    bound uses the semidefinite relaxation of Peng and Wei with linear inequalities. Larger problems
    are divided into groups that resemble the whole; bounds of the groups add up.

    Parameters
    ----------
    model : fitted estimator
        `HMRFKMeans` with squared Euclidean distances and no metric, `PCKMeans`, `COPKMeans` (with
        all pairs hard), or an estimator without pairs that has ``labels_`` and ``n_clusters``, such
        as `sklearn.cluster.KMeans`.
    X : (n, d) array-like
        The data of the fit, dense.
    sample_weight, partial_labels
        As in the fit.
    time_limit : float
        Seconds. The current step of the relaxation is completed. The bound is valid at any time.
    max_nodes : int
        Maximum number of relaxations in the branch and bound.
    n_jobs : int or None
        Processes that share the groups; None is 1.
    random_state : int
        Seed of the search and of the groups.

    Returns
    -------
    Certificate
        Also stored as ``model.certificate_``. Labels and centroids of the model do not change.

    Raises
    ------
    TypeError, ValueError
        If the estimator minimises another objective, or the data differ from the data of the fit.

    Notes
    -----
    Memory is O(m^2) for m units in one relaxation; each of some thousand iterations takes O(m^3).

    References
    ----------
    J. Peng, Y. Wei, "Approximating k-means-type clustering via semidefinite programming", SIAM J.
    Optim. 18 (2007). V. Piccialli, A. Russo Russo, A. M. Sudoso, "An exact algorithm for
    semi-supervised minimum sum-of-squares clustering", Comput. Oper. Res. 147 (2022).

    Examples
    --------
    >>> from sklearn.cluster import KMeans
    >>> from inference_lab.clustering import certify
    >>> X = [[0.0], [1.0], [8.0], [9.0]]
    >>> certify(KMeans(2, random_state=0).fit(X), X).proved
    True
    """
    start = time.monotonic()
    data = _data(model, X, sample_weight, partial_labels, "certify")
    labels, rows = np.asarray(model.labels_, dtype=np.int64), data.rows
    points = data.points - data.points.mean(axis=0)
    problem = _problem(_hmrf(model, points, data.supervision))
    units = problem.of_units(labels[rows])
    consistent = np.array_equal(units[problem.of_point], labels[rows])
    objective = problem.objective(units) if consistent else math.inf
    rng = np.random.default_rng(random_state)
    history: list[CertificateStep] = []

    def expired() -> bool:
        return time.monotonic() - start >= time_limit

    def note(best: float, bound: float) -> None:
        if not history or (best, bound) != history[-1][1:]:
            history.append(CertificateStep(time.monotonic() - start, best, bound))

    with threadpool_limits(1, "blas"):
        if problem.size <= _ONE_RELAXATION:
            state = prove(
                problem,
                search(problem, rng, units),
                rng,
                tolerance=PROVED,
                max_nodes=max_nodes,
                expired=expired,
                report=lambda progress: note(progress.objective, progress.lower_bound),
            )
            method = "branch and bound"
        else:
            better = descend(problem, units, rng)
            value = problem.objective(better)
            bound = bound_by_groups(
                problem,
                better,
                rng,
                size=_GROUP,
                tolerance=_GROUP_TOLERANCE,
                deadline=time.monotonic() + time_limit - (time.monotonic() - start),
                n_jobs=n_jobs,
                report=lambda lower: note(value, lower),
            )
            state, method = BranchingState(better, value, bound), "groups"
    if objective <= state.objective:
        state.objective, state.labels = objective, units
    best = labels.copy()
    best[rows] = agreeing(state.labels[problem.of_point], labels[rows], problem.k)
    certificate = Certificate(
        objective,
        float(state.lower_bound),
        state.objective,
        best,
        method,
        state.nodes,
        history,
        1e-5 * problem.spread,
    )
    model.certificate_ = certificate
    return certificate


def improve(
    model: M,
    X: npt.ArrayLike,
    *,
    method: SearchMethod = "memetic",
    sample_weight: npt.ArrayLike | None = None,
    partial_labels: npt.ArrayLike | None = None,
    random_state: Any = None,
) -> M:
    """Search for a better clustering from the labels of a fit, and return it as a fitted estimator.

    The search changes labels and centroids together, which E-steps and M-steps in turn do not. The
    alternation of the estimator follows from the labels found.

    Parameters
    ----------
    model : fitted HMRFKMeans
        With squared Euclidean distances and no metric, such as `PCKMeans`. It does not change.
    X : (n, d) array-like
        The data of the fit, dense.
    method : {"memetic", "hartigan"}
        "hartigan" moves single units (points, or groups of points joined by hard must-links) with
        centroids updated at once, and exchanges units connected by hard cannot-links. "memetic"
        also crosses solutions (HG-means).
    sample_weight, partial_labels
        As in the fit.
    random_state : int, RandomState or Generator, optional
        Seed of the search; by default ``model.random_state``.

    Returns
    -------
    estimator
        A copy of the model whose objective is at most as large. ``history_`` and ``n_iter_``
        continue those of the fit; a line "search" separates them.

    Raises
    ------
    TypeError, ValueError
        If the estimator minimises another objective, or the data differ from the data of the fit.

    Notes
    -----
    **Complexity.** A pass of "hartigan" costs O(m k d) for m units. "memetic" makes about a hundred
    descents after the last improvement.

    References
    ----------
    J. A. Hartigan, "Clustering Algorithms", Wiley 1975, ch. 4. D. Gribel, T. Vidal, "HG-means: a
    scalable hybrid genetic algorithm for minimum sum-of-squares clustering", Pattern Recognition
    88 (2019).

    Examples
    --------
    >>> from inference_lab.clustering import PCKMeans, improve
    >>> X = [[0.0, 0.0], [0.0, 1.0], [4.0, 0.0], [4.0, 1.0]]
    >>> model = PCKMeans(2, init=[[2.0, 0.0], [2.0, 1.0]], random_state=0).fit(X)
    >>> model.objective_, improve(model, X).objective_
    (16.0, 1.0)
    """
    since = time.perf_counter()
    check_word("method", method, get_args(SearchMethod))
    data = _data(model, X, sample_weight, partial_labels, "improve")
    hmrf = _hmrf(model, model._format.centred(data.points), data.supervision)
    hmrf.centroids, hmrf.empty = model._centred_centroids(), model.empty_clusters
    problem = _problem(hmrf)
    rng = generator_of(model.random_state if random_state is None else random_state)

    units = problem.of_units(np.asarray(model.labels_, dtype=np.int64)[data.rows])
    units = descend(problem, units, rng) if method == "hartigan" else search(problem, rng, units)
    labels = agreeing(units[problem.of_point], hmrf.partial_labels, problem.k)
    for _ in hmrf.maximise(labels):
        pass
    seconds = time.perf_counter() - since
    line = HalfStep(model.n_iter_, "search", hmrf.objective(labels), seconds)
    result = maximise_expectation(
        hmrf, model._e_step(rng), max_iter=model.max_iter, tol=model.tol, start=labels
    )

    better = copy.copy(model)
    # A certificate belongs to the labels of the fit.
    better.__dict__.pop("certificate_", None)
    if result.objective > model.objective_ + _ROUNDING * abs(model.objective_):
        # E-steps that start cold can lose what the search gained, and more.
        return better
    history = [*model.history_, line]
    fit = Result(labels, model.objective_, history, model.n_iter_, model.converged_)
    inputs = FitInputs(
        hmrf.points,
        data.supervision,
        model._format,
        model.cluster_centers_.dtype,
        data.rows,
        data.all_points,
        estimator=type(model).__name__,
    )
    better._set_centroids(inputs, hmrf.centroids, hmrf.metric)
    better._set_progress(joined(fit, result))
    better._set_labels(inputs, as_labels(result.assignment), hmrf.constraints)
    watch_hard(better.constraints_, better.labels_)
    return better


class _Data(NamedTuple):
    """Points of positive weight, their supervision and their rows among all points."""

    points: FloatArray
    supervision: Supervision
    rows: IntArray
    all_points: FloatArray


def _data(
    model: Any,
    X: npt.ArrayLike,
    sample_weight: npt.ArrayLike | None,
    partial_labels: npt.ArrayLike | None,
    caller: str,
) -> _Data:
    """Return the data of a fit; refuse data that do not belong to the model."""
    labels = getattr(model, "labels_", None)
    if labels is None or not hasattr(model, "n_clusters"):
        raise TypeError(
            f"{caller} takes a fitted estimator with labels_ and n_clusters, got {model!r}"
        )
    if is_sparse(X):
        raise TypeError(f"{caller} takes dense data; give X.toarray()")
    points = np.asarray(X, dtype=np.float64)
    if points.ndim != 2 or len(points) != len(labels) or not np.isfinite(points).all():
        raise ValueError(
            f"X must be the finite data of the fit, {len(labels)} rows; its shape is {points.shape}"
        )
    n = len(points)
    weight = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    if weight is not None and (weight.shape != (n,) or not (weight >= 0).all()):
        raise ValueError(f"sample_weight must have {n} numbers, none negative; got {weight!r}")
    known_labels = read_partial_labels(partial_labels, n, model.n_clusters, "partial_labels")
    supervision = Supervision(_pairs(model, n, caller), known_labels, weight)
    rows = np.flatnonzero(supervision.sample_weight_or_ones > 0)
    if rows.size == n:
        return _Data(points, supervision, rows, points)
    return _Data(points[rows], supervision.only(rows), rows, points)


def _pairs(model: Any, n_points: int, caller: str) -> Constraints:
    """Return the pairs of a fit; refuse estimators that minimise another objective."""
    distortion = getattr(model, "distortion", "euclidean")
    euclidean = distortion == "euclidean" or (
        isinstance(distortion, SquaredEuclidean) and distortion.weights is None
    )
    pairs: Constraints | None = getattr(model, "constraints_", None)
    if isinstance(model, HMRFKMeans):
        euclidean = euclidean and model.metric is None
    elif caller == "improve":
        euclidean = False
    elif isinstance(model, COPKMeans):
        pairs = model.constraints_.with_weights(ml_weight=math.inf, cl_weight=math.inf)
    elif pairs is not None or not hasattr(model, "cluster_centers_"):
        euclidean = False
    if not euclidean:
        raise TypeError(_OTHER_OBJECTIVE[caller].format(model))
    return Constraints([], [], n_points=n_points) if pairs is None else pairs


def _hmrf(model: Any, points: FloatArray, supervision: Supervision) -> HMRF:
    """Return the model that an estimator fits to centred points, without its centroids."""
    penalty: Penalty = model.penalty if isinstance(model, HMRFKMeans) else "potts"
    centroids = np.zeros((model.n_clusters, points.shape[1]))
    return HMRF(points, supervision, SquaredEuclidean(), centroids, penalty=penalty)


def _problem(hmrf: HMRF) -> PartitionProblem:
    """Return the problem of labels alone, with the means of clusters as centroids."""
    pairs = hmrf.constraints
    return partition_problem(
        hmrf.points,
        len(hmrf.centroids),
        pairs.must_link,
        hmrf.ml_costs,
        pairs.cannot_link,
        hmrf.cl_costs,
        sample_weight=hmrf.sample_weight,
        partial_labels=hmrf.partial_labels,
    )
