r"""Kernel K-means with must-links and cannot-links.

With a similarity matrix ``S``, constraint weights ``W`` (``+w`` for must-links, ``-w`` for
cannot-links, symmetric) and ``M = S + W/2`` it minimises

``J(l) = tr S - sum_h q_h / s_h``, ``q_h = sum_{i, j in h} M_ij``, ``s_h = |h|``.

``W`` is halved because the double sum counts each pair twice. Unlike in HMRF-KMeans, rewards depend
on the sizes of clusters. Sample weights ``a`` multiply ``S_ij`` by ``a_i a_j``, and ``s_h`` is then
their sum.

B. Kulis, S. Basu, I. Dhillon, R. Mooney, "Semi-supervised graph clustering: a kernel approach",
ICML 2005, table 1 (there the sums are over ordered pairs, so that ``M = S + W``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypeAlias, Unpack

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from inference_lab._numba import kernel as compiled
from inference_lab.clustering.bregman_kmeans import BregmanKMeans
from inference_lab.clustering.cluster_model import as_labels
from inference_lab.clustering.em import HalfStep, Result
from inference_lab.clustering.fit_inputs import Weights, check_word, read_fit, takes
from inference_lab.clustering.pair_odds import log_odds_weights
from inference_lab.clustering.paired_start import paired_kmeans
from inference_lab.clustering.prediction import CostPredictor, PairScore
from inference_lab.clustering.starts import SharedSettings, best_of, generator_of
from inference_lab.clustering.supervision import (
    FitArguments,
    Supervision,
    agreeing,
    read_partial_labels,
)
from inference_lab.constraints import Constraints
from inference_lab.constraints.pair_arrays import refuse_hard, signed_matrix
from inference_lab.distortions.distortions import SquaredEuclidean
from inference_lab.distortions.points import Points, cluster_sizes, cluster_sums, dense, is_sparse
from inference_lab.graph.arrays import FloatArray, IntArray

KernelInit: TypeAlias = Literal["auto", "spectral", "random"]

#: Points up to which all eigenvalues are computed, in O(n^3).
_ALL_EIGENVALUES = 1000
#: Changes of the objective below this share of its parts count as rounding.
_ROUNDING = 1e-12
#: Rows of a block of similarities that is computed to get its diagonal.
_DIAGONAL_BLOCK = 32
#: Maximum number of points whose distances determine the bandwidth of a kernel.
_BANDWIDTH_POINTS = 1000


@compiled
def single_moves(
    matrix: FloatArray,
    indptr: IntArray,
    indices: IntArray,
    data: FloatArray,
    diagonal: FloatArray,
    weights: FloatArray,
    order: IntArray,
    labels: IntArray,
    sums: FloatArray,
    within: FloatArray,
    sizes: FloatArray,
    counts: IntArray,
) -> int:
    """Move points, one at a time, to the cluster that lowers the objective most."""
    k = sizes.size
    moves = 0
    for i in order:
        h = labels[i]
        if counts[h] == 1:
            continue
        a = weights[i]
        before = within[h] / sizes[h]
        without = (within[h] - 2.0 * sums[h, i] + diagonal[i]) / (sizes[h] - a)
        best = h
        lowest = 0.0
        for g in range(k):
            if g == h:
                continue
            present = within[g] / sizes[g]
            joined = (within[g] + 2.0 * sums[g, i] + diagonal[i]) / (sizes[g] + a)
            change = (before - without) + (present - joined)
            parts = abs(before) + abs(without) + abs(present) + abs(joined)
            if change < lowest and change < -_ROUNDING * parts:
                lowest = change
                best = g
        if best == h:
            continue
        within[h] += diagonal[i] - 2.0 * sums[h, i]
        within[best] += diagonal[i] + 2.0 * sums[best, i]
        sizes[h] -= a
        sizes[best] += a
        counts[h] -= 1
        counts[best] += 1
        labels[i] = best
        moves += 1
        if matrix.shape[0] > 0:
            for j in range(matrix.shape[1]):
                sums[h, j] -= matrix[i, j]
            for j in range(matrix.shape[1]):
                sums[best, j] += matrix[i, j]
        else:
            for t in range(indptr[i], indptr[i + 1]):
                sums[h, indices[t]] -= data[t]
                sums[best, indices[t]] += data[t]
    return moves


class _Sums:
    """Cluster sums of ``M`` that determine the objective of a labelling."""

    def __init__(self, objective: KernelObjective, labels: IntArray) -> None:
        k, n = objective.n_clusters, len(labels)
        #: ``sum_{j in h} M_ij``, (k, n).
        self.by_point = cluster_sums(objective.matrix, labels, k)
        within_point = self.by_point[labels, np.arange(n)]
        self.within = cluster_sizes(labels, k, within_point)
        self.sizes = cluster_sizes(labels, k, objective.sample_weight)
        self.counts = np.bincount(labels, minlength=k)
        self.objective = objective.constant - float((self.within / self.sizes).sum())


class KernelObjective:
    """The objective ``c - sum_h q_h / s_h``, with its batch steps and single moves.

    `matrix` is ``M``, `sample_weight` ``a``; no step changes the labels in `partial_labels`,
    -1 for free points.
    """

    def __init__(
        self,
        matrix: Points,
        sample_weight: FloatArray,
        constant: float,
        n_clusters: int,
        partial_labels: IntArray,
    ) -> None:
        self.matrix = matrix
        self.partial_labels = partial_labels
        self.sample_weight = sample_weight
        self.constant = constant
        self.n_clusters = n_clusters
        # A copy, because kernels would be compiled anew for the type of a strided view.
        self.diagonal = np.array(matrix.diagonal(), dtype=np.float64)
        sparse = is_sparse(matrix)
        none = np.empty(0, dtype=np.int64)
        self._arrays: tuple[FloatArray, IntArray, IntArray, FloatArray] = (
            np.empty((0, 0)) if sparse else np.ascontiguousarray(matrix),
            matrix.indptr.astype(np.int64) if sparse else none,
            matrix.indices.astype(np.int64) if sparse else none,
            matrix.data if sparse else np.empty(0),
        )

    def scaled(self) -> Points:
        """Return ``M_ij / sqrt(a_i a_j)``, whose eigenvalues bound the objective."""
        return _scaled(self.matrix, 1.0 / np.sqrt(self.sample_weight))

    def batch(self, labels: IntArray, sums: _Sums) -> IntArray:
        """Return the nearest mean of each point, in the space of ``M / (a a')``.

        The matrix may be indefinite, so the step may raise the objective.
        """
        everyone = np.arange(len(labels))
        inverse = 1.0 / sums.sizes
        costs = sums.by_point * (-2.0 * inverse[:, np.newaxis])
        costs /= self.sample_weight
        costs += (sums.within * inverse**2)[:, np.newaxis]
        best = costs.argmin(axis=0)
        label_costs = costs[labels, everyone]
        moved = np.where(
            (costs[best, everyone] < label_costs) & (self.partial_labels < 0), best, labels
        )
        distance = self.diagonal / self.sample_weight**2 + label_costs
        return self.filled(moved, distance)

    def filled(self, labels: IntArray, priority: FloatArray) -> IntArray:
        """Assign to each empty cluster a point whose cluster is not known."""
        return fill(labels, self.n_clusters, np.where(self.partial_labels < 0, priority, -np.inf))

    def singly(
        self, labels: IntArray, sums: _Sums, rng: np.random.Generator
    ) -> tuple[IntArray, int]:
        """Return the labels after one sweep of single moves, and the number of moves."""
        new_labels = labels.copy()
        moves = single_moves(
            *self._arrays,
            self.diagonal,
            self.sample_weight,
            rng.permutation(np.flatnonzero(self.partial_labels < 0)),
            new_labels,
            sums.by_point.copy(),
            sums.within.copy(),
            sums.sizes.copy(),
            sums.counts.copy(),
        )
        return new_labels, moves


class _Means:
    """The means of clusters in feature space, for new points.

    These have no constraints, so they are compared with means without rewards. ``rows`` are the
    points of the fit among the columns of precomputed similarities.
    """

    def __init__(
        self, labels: IntArray, objective: KernelObjective, supervision: Supervision, rows: IntArray
    ) -> None:
        sums = _Sums(objective, labels)
        self.labels = labels
        self.sample_weight = supervision.sample_weight
        self.sizes = sums.sizes
        self.within = sums.within - _rewards(supervision.constraints, labels, objective.n_clusters)
        self.rows = rows


def fill(labels: IntArray, n_clusters: int, priority: FloatArray) -> IntArray:
    """Move to each empty cluster the point of highest finite priority whose cluster has others."""
    counts = np.bincount(labels, minlength=n_clusters)
    gone = np.flatnonzero(counts == 0)
    if gone.size == 0:
        return labels
    labels = labels.copy()
    order = np.argsort(-priority, kind="stable")
    candidates = iter(order[priority[order] > -np.inf])
    for h in gone:
        point = next((i for i in candidates if counts[labels[i]] > 1), None)
        if point is None:
            raise ValueError(
                f"cluster {h} has no points, and partial_labels leaves none that could join it; "
                "give fewer clusters"
            )
        counts[labels[point]] -= 1
        labels[point] = h
        counts[h] = 1
    return labels


@dataclass(eq=False, repr=False, kw_only=True)
class KernelHMRFKMeans(SharedSettings, PairScore, CostPredictor):
    r"""Kernel K-means with rewards for satisfied constraints.

    ``J = sum_i ||phi(x_i) - m_{l_i}||^2 - sum_ML w [l_i = l_j] / |h| + sum_CL w [l_i = l_j] / |h|``

    with ``h`` the common cluster and ``|h|`` its size, so the constraints are added to the kernel.
    Batch steps (all points to their nearest mean) are followed by single moves, which escape from
    local minima of batch steps. The default weight of pairs is their log-odds with the kernel
    "rbf", in which points have a similarity of 1 with themselves, and 1 otherwise.

    Parameters
    ----------
    n_clusters : int
    kernel : str or callable
        A name of `sklearn.metrics.pairwise.pairwise_kernels`, a function of two rows, or
        "precomputed": then X is a symmetric matrix of similarities, or affinities of a graph,
        dense or sparse; it may be indefinite.
    gamma, degree, coef0 : float
        Parameters of named kernels. By default ``gamma`` of "rbf" is a quarter of the inverse of
        the median squared distance of at most a thousand points; others use scikit-learn's.
    kernel_params : dict, optional
        Keyword arguments of a callable.
    local_search : bool
        Whether to move points singly once batch steps stop.
    init : {"auto", "spectral", "random"} or (n,) array of int
        "auto": the labels of `PCKMeans` on the same pairs for the kernel "rbf", else "spectral".
        "spectral": K-means on the leading eigenvectors of the relaxation. "random": random labels.
        Or an array of labels.
    max_iter : int
        Limit on batch steps and sweeps of single moves together.
    n_init : int
        Starts, of which the one of least objective is kept.
    n_jobs, random_state
        See `HMRFKMeans`.

    Attributes
    ----------
    labels_ : (n,) int array
        No cluster is empty.
    objective_ : float
        ``J``.
    gamma_ : float or None
        The ``gamma`` used; None is scikit-learn's.
    n_iter_, history_, converged_, violations_, constraints_
        See `HMRFKMeans`; the steps are "start", "batch" and "single moves".
    X_fit_ : (n, d) matrix or None
        The points, for `predict`; None if the kernel was precomputed.

    Notes
    -----
    **Graphs.** Normalised cuts of an affinity matrix ``S`` with row sums ``d`` are the kernel
    ``S / outer(d, d)`` with sample weights ``d`` (Dhillon et al. 2007).

    **Guarantees.** The objective never rises, for any matrix. On convergence with
    ``local_search``, no move of a single point lowers it (up to rounding).

    **Complexity.** Memory O(n^2) unless the kernel is precomputed and sparse. O(n^2) per batch
    step, O(n k) per sweep of single moves, and O(n) per move; sparse matrices cost by entries.

    References
    ----------
    B. Kulis, S. Basu, I. Dhillon, R. Mooney, "Semi-supervised graph clustering: a kernel
    approach", ICML 2005.
    I. Dhillon, Y. Guan, B. Kulis, "Weighted graph cuts without eigenvectors", PAMI 29, 2007.

    Examples
    --------
    >>> X = [[0.0], [1.0], [-1.0], [9.0], [-9.0], [8.0]]
    >>> model = KernelHMRFKMeans(2, kernel="polynomial", degree=2, random_state=0).fit(X)
    >>> bool(model.labels_[3] == model.labels_[4] != model.labels_[0])
    True
    """

    kernel: str | Callable[..., float] = "rbf"
    gamma: float | None = None
    degree: float = 3.0
    coef0: float = 1.0
    kernel_params: Mapping[str, Any] | None = None
    local_search: bool = True
    init: KernelInit | npt.ArrayLike = "auto"

    X_fit_: Points | None = field(init=False)

    # -------------------------------------------------------------- fitting

    @takes(FitArguments)
    def fit(self, X: Any, y: Any = None, **arguments: Unpack[FitArguments]) -> Self:
        if isinstance(self.init, str):
            check_word("init", self.init, ("auto", "spectral", "random"))
        inputs = read_fit(
            self, X, y, arguments, SquaredEuclidean(), centred=False, default_weight="auto"
        )
        supervision = inputs.weighed(self._auto_weights)
        refuse_hard(supervision.constraints)
        points = inputs.points
        if self._is_precomputed:
            _check_symmetric(inputs.all_points)
            points = points[:, inputs.rows]

        self.gamma_ = self._bandwidth(points)
        objective = self._objective(self._similarities(points), supervision)
        inits = self._inits(points, supervision)
        best = best_of(
            inits,
            lambda rng, init: self._fit_once(objective, init, rng),
            generator_of(self.random_state),
            self.n_jobs,
        )

        labels = as_labels(best.assignment)
        self.X_fit_ = None if self._is_precomputed else points
        self._means = _Means(labels, objective, supervision, inputs.rows)
        self._set_progress(best)
        self._set_labels(inputs, labels, supervision.constraints)
        return self

    def _auto_weights(self, points: Points, supervision: Supervision) -> Weights:
        """Return log-odds if points have a similarity of 1 with themselves, else ones."""
        if self._is_gaussian:
            return log_odds_weights(supervision, {"ml_weight": 1.0, "cl_weight": 1.0})
        return {"ml_weight": 1.0, "cl_weight": 1.0}

    def _inits(self, points: Points, supervision: Supervision) -> list[Any]:
        """Return the `init` of each start."""
        inits: list[Any] = [self.init] * self.n_init
        if self._is_gaussian and isinstance(self.init, str) and self.init == "auto":
            # Distances and similarities rank pairs of points in the same way.
            rng = generator_of(self.random_state)
            inits[0] = paired_kmeans(points, supervision, self.n_clusters, rng).labels_
        return inits

    @property
    def _is_precomputed(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "precomputed"

    @property
    def _is_gaussian(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "rbf"

    def _similarities(self, points: Points, others: Points | None = None) -> Points:
        """Return similarities among points, or of `others` to points."""
        if self._is_precomputed:
            return points if others is None else others[:, self._means.rows]
        from sklearn.metrics.pairwise import PAIRWISE_KERNEL_FUNCTIONS, pairwise_kernels

        if isinstance(self.kernel, str):
            check_word("kernel", self.kernel, (*PAIRWISE_KERNEL_FUNCTIONS, "precomputed"))
            params: dict[str, Any] = {
                "gamma": self.gamma_,
                "degree": self.degree,
                "coef0": self.coef0,
                "filter_params": True,
            }
        elif callable(self.kernel):
            params = dict(self.kernel_params or {})
        else:
            raise TypeError(f"kernel must be a name or callable, got {self.kernel!r}")
        first, second = (points, None) if others is None else (others, points)
        similarities = dense(pairwise_kernels(first, second, metric=self.kernel, **params))
        wrong = np.argwhere(~np.isfinite(similarities))
        if len(wrong):
            i, j = wrong[0].tolist()
            raise ValueError(
                f"the kernel of points {i} and {j} is {similarities[i, j]}; it must be finite"
            )
        return similarities

    def _bandwidth(self, points: Points) -> float | None:
        """Return ``gamma``, by default from distances, so that the kernel fits the data's scale.

        The median rule of A. Gretton et al., "A kernel two-sample test", JMLR 13, 2012, doubled.
        """
        if self.gamma is not None or self.kernel != "rbf":
            return self.gamma
        from sklearn.metrics.pairwise import euclidean_distances

        n = points.shape[0]
        rows = np.sort(np.random.default_rng(0).permutation(n)[:_BANDWIDTH_POINTS])
        squares = euclidean_distances(points[rows], squared=True)
        median = float(np.median(squares[np.triu_indices(len(rows), 1)])) if n > 1 else 0.0
        return 0.25 / median if median > 0.0 else None

    def _objective(self, similarities: Points, supervision: Supervision) -> KernelObjective:
        """Return the objective."""
        constant = float(supervision.sample_weight_or_ones @ similarities.diagonal())
        if supervision.sample_weight is not None:
            similarities = _scaled(similarities, supervision.sample_weight)
        matrix = similarities + 0.5 * signed_matrix(supervision.constraints)
        return KernelObjective(
            matrix,
            supervision.sample_weight_or_ones,
            constant,
            self.n_clusters,
            supervision.partial_labels,
        )

    def _fit_once(
        self,
        objective: KernelObjective,
        init: KernelInit | npt.ArrayLike,
        rng: np.random.Generator,
    ) -> Result:
        since = time.perf_counter()
        labels = self._first_labels(objective, init, rng)
        sums = _Sums(objective, labels)
        history = [HalfStep(0, "start", sums.objective, time.perf_counter() - since)]
        converged = False
        for iteration in range(1, self.max_iter + 1):
            since = time.perf_counter()
            step = "batch"
            new_labels = objective.batch(labels, sums)
            after = sums if np.array_equal(new_labels, labels) else _Sums(objective, new_labels)
            if not after.objective < sums.objective and self.local_search:
                step = "single moves"
                new_labels, moves = objective.singly(labels, sums, rng)
                after = sums if moves == 0 else _Sums(objective, new_labels)
            converged = not after.objective < sums.objective
            if not converged:
                labels, sums = new_labels, after
            history.append(HalfStep(iteration, step, sums.objective, time.perf_counter() - since))
            if converged:
                break
        return Result(labels, sums.objective, history, history[-1].iteration, converged)

    # -------------------------------------------------------------- initial labels

    def _first_labels(
        self,
        objective: KernelObjective,
        init: KernelInit | npt.ArrayLike,
        rng: np.random.Generator,
    ) -> IntArray:
        partial_labels, k = objective.partial_labels, self.n_clusters
        n = partial_labels.size
        if not isinstance(init, str):
            init_labels = read_partial_labels(init, n, k, "init", smallest=0)
            return objective.filled(
                np.where(partial_labels >= 0, partial_labels, init_labels), rng.random(n)
            )
        if init == "random":
            labels = rng.integers(k, size=n)
        else:
            labels = agreeing(_spectral(objective, rng), partial_labels, k)
        return objective.filled(
            np.where(partial_labels >= 0, partial_labels, labels), rng.random(n)
        )

    # -------------------------------------------------------------- new points

    def transform(self, X: Any) -> FloatArray:
        """Return the distance of each point to each mean in feature space, shape (m, k).

        Without constraints. For precomputed kernels, the squared distance minus a constant per
        point, which does not change predictions.
        """
        check_is_fitted(self)
        points, dtype = self._format.read(self, X, reset=False)
        costs = self._costs(points)
        return (costs if self._is_precomputed else np.sqrt(costs)).astype(dtype, copy=False)

    def _costs(self, points: Points) -> FloatArray:
        means = self._means
        similarities = self._similarities(self.X_fit_, points)
        sums = cluster_sums(similarities.T, means.labels, self.n_clusters, means.sample_weight).T
        result = means.within / means.sizes**2 - 2.0 * sums / means.sizes
        if not self._is_precomputed:
            result += self._diagonal(points)[:, np.newaxis]
            np.maximum(result, 0.0, out=result)
        return result

    def _diagonal(self, points: Points) -> FloatArray:
        """Return the similarity of each point with itself."""
        blocks = (
            points[begin : begin + _DIAGONAL_BLOCK]
            for begin in range(0, points.shape[0], _DIAGONAL_BLOCK)
        )
        diagonals: list[FloatArray] = [self._similarities(block).diagonal() for block in blocks]
        return np.concatenate(diagonals)

    def __sklearn_tags__(self) -> Any:
        """Return the tags of the data that scikit-learn may pass."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = self._is_precomputed
        return tags


def _spectral(objective: KernelObjective, rng: np.random.Generator) -> IntArray:
    """Return K-means labels of the leading eigenvectors of the relaxed problem."""
    from scipy.linalg import eigh
    from scipy.sparse.linalg import eigsh

    matrix, k = objective.scaled(), objective.n_clusters
    n = matrix.shape[0]
    if n <= _ALL_EIGENVALUES or k >= n - 1:
        vectors = eigh(dense(matrix), subset_by_index=(n - k, n - 1))[1]
    else:
        vectors = eigsh(matrix, k=k, which="LA", v0=rng.normal(size=n))[1]
    rows = vectors / np.sqrt(objective.sample_weight)[:, np.newaxis]
    return BregmanKMeans(k, n_init=5, random_state=rng).fit(rows).labels_


def _scaled(matrix: Points, factors: FloatArray) -> Points:
    """Return ``f_i M_ij f_j``."""
    from scipy.sparse import diags_array

    if is_sparse(matrix):
        return (diags_array(factors) @ matrix @ diags_array(factors)).tocsr()
    return matrix * factors * factors[:, np.newaxis]


def _rewards(constraints: Constraints, labels: IntArray, n_clusters: int) -> FloatArray:
    """Return the rewards of pairs within each cluster: must-links minus cannot-links."""
    total = np.zeros(n_clusters)
    for pairs, weights in (
        (constraints.must_link, constraints.ml_weights),
        (constraints.cannot_link, -constraints.cl_weights),
    ):
        together = labels[pairs[:, 0]] == labels[pairs[:, 1]]
        total += cluster_sizes(labels[pairs[together, 0]], n_clusters, weights[together])
    return total


def _check_symmetric(matrix: Points) -> None:
    n = matrix.shape[0]
    if matrix.shape != (n, n):
        raise ValueError(
            f"X must be a square matrix of similarities for kernel='precomputed', got shape "
            f"{matrix.shape}"
        )
    gap = abs(matrix - matrix.T)
    largest = float(abs(matrix).max())
    if float(gap.max()) > 1e-8 * largest:
        at = int(gap.argmax())
        i, j = divmod(at, n)
        raise ValueError(
            f"X[{i}, {j}] = {matrix[i, j]:g} but X[{j}, {i}] = {matrix[j, i]:g}; "
            "kernel='precomputed' needs a symmetric matrix"
        )
