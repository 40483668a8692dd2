"""Certificates: bounds on the distance of a clustering's objective from the optimum."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from inference_lab.certificates.anticlustering import bound_by_groups
from inference_lab.certificates.hartigan import descend
from inference_lab.certificates.hg_means import search
from inference_lab.certificates.pair_branching import BranchingState, prove
from inference_lab.certificates.partition_problem import PartitionProblem
from inference_lab.clustering.cop_kmeans import COPKMeans
from inference_lab.clustering.distortions import SquaredEuclidean
from inference_lab.clustering.hmrf import HMRF, Penalty
from inference_lab.clustering.hmrf_kmeans import HMRFKMeans
from inference_lab.clustering.points import is_sparse
from inference_lab.clustering.supervision import agreeing
from inference_lab.constraints import Constraints
from inference_lab.graph.arrays import FloatArray, IntArray

#: Gaps up to this one count as proofs, as in PC-SOS-SDP.
PROVED = 1e-4
#: Largest number of units for a single relaxation; beyond it, groups of about `_GROUP` units.
_ONE_RELAXATION, _GROUP = 500, 200
#: Gap at which a group is finished, because the loss from splitting into groups is larger.
_GROUP_TOLERANCE = 1e-3


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
    points, sample_weight, held = _data(model, X, sample_weight)
    labels = np.asarray(model.labels_, dtype=np.int64)
    known = None if partial_labels is None else np.asarray(partial_labels, dtype=np.int64)[held]
    problem = _problem(model, points, sample_weight, known, held)
    units = problem.of_units(labels[held])
    kept = np.array_equal(units[problem.of_point], labels[held])
    objective = problem.objective(units) if kept else math.inf
    rng = np.random.default_rng(random_state)
    history: list[CertificateStep] = []

    def expired() -> bool:
        return time.monotonic() - start >= time_limit

    def note(best: float, bound: float) -> None:
        if not history or (best, bound) != history[-1][1:]:
            history.append(CertificateStep(time.monotonic() - start, best, bound))

    with threadpool_limits(1, "blas"):
        if problem.size <= _ONE_RELAXATION:
            found = prove(
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
            found, method = BranchingState(better, value, bound), "groups"
    if objective <= found.objective:
        found.objective, found.labels = objective, units
    best = labels.copy()
    best[held] = agreeing(found.labels[problem.of_point], labels[held], problem.k)
    certificate = Certificate(
        objective,
        float(found.lower_bound),
        found.objective,
        best,
        method,
        found.nodes,
        history,
        1e-5 * problem.spread,
    )
    model.certificate_ = certificate
    return certificate


def _data(
    model: Any, X: npt.ArrayLike, sample_weight: npt.ArrayLike | None
) -> tuple[FloatArray, FloatArray | None, IntArray]:
    """Return the points of positive weight, their weights, and their row numbers."""
    labels = getattr(model, "labels_", None)
    if labels is None or not hasattr(model, "n_clusters"):
        raise TypeError(
            f"certify takes a fitted estimator with labels_ and n_clusters, got {model!r}"
        )
    if is_sparse(X):
        raise TypeError("certify takes dense data; give X.toarray()")
    points = np.asarray(X, dtype=np.float64)
    if points.ndim != 2 or len(points) != len(labels) or not np.isfinite(points).all():
        raise ValueError(
            f"X must be the finite data of the fit, {len(labels)} rows; its shape is {points.shape}"
        )
    if sample_weight is None:
        return points, None, np.arange(len(points))
    sample_weight = np.asarray(sample_weight, dtype=np.float64)
    if sample_weight.shape != (len(points),) or not (sample_weight >= 0).all():
        raise ValueError(
            f"sample_weight must have {len(points)} numbers, none negative; got {sample_weight!r}"
        )
    held = np.flatnonzero(sample_weight > 0)
    return points[held], sample_weight[held], held


def _problem(
    model: Any,
    points: FloatArray,
    sample_weight: FloatArray | None,
    known: IntArray | None,
    held: IntArray,
) -> PartitionProblem:
    """Return the problem that an estimator was fitted to; refuse other objectives."""
    distortion = getattr(model, "distortion", "euclidean")
    euclidean = distortion == "euclidean" or (
        isinstance(distortion, SquaredEuclidean) and distortion.weights is None
    )
    pairs = getattr(model, "constraints_", None)
    penalty: Penalty = "potts"
    if isinstance(model, HMRFKMeans):
        euclidean = euclidean and model.metric is None
        penalty = model.penalty
    elif isinstance(model, COPKMeans):
        pairs = model.constraints_.with_weights(ml_weight=math.inf, cl_weight=math.inf)
    elif pairs is not None or not hasattr(model, "cluster_centers_"):
        euclidean = False
    if not euclidean:
        raise TypeError(
            f"certify has no bound of the objective of {model!r}; it takes HMRFKMeans with "
            "distortion='euclidean' and metric=None, PCKMeans, COPKMeans, and k-means without pairs"
        )
    if pairs is None:
        pairs = Constraints([], [], n_points=len(model.labels_))
    if held.size < len(model.labels_) and pairs.n_points == len(model.labels_):
        pairs = pairs.restrict(held, renumber=True)
    hmrf = HMRF(
        points - points.mean(axis=0),
        pairs,
        SquaredEuclidean(),
        np.zeros((model.n_clusters, points.shape[1])),
        penalty=penalty,
        known=known,
        sample_weight=sample_weight,
    )
    return hmrf.partition_problem()
