"""Baselines that change distances by the pairs first, then run an unconstrained clustering."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self, Unpack

import numpy as np
import numpy.typing as npt

from inference_lab.clustering.bregman_kmeans import BregmanKMeans
from inference_lab.clustering.cluster_model import as_labels
from inference_lab.clustering.em import Result
from inference_lab.clustering.fit_inputs import FitInputs, Weights, read_fit, takes
from inference_lab.clustering.hmrf import clamped
from inference_lab.clustering.initialisation import Init
from inference_lab.clustering.paired_start import centroids_or_paired, weights_by_belief
from inference_lab.clustering.prediction import CentroidPredictor, PairScore
from inference_lab.clustering.starts import AT_LEAST_ONE, best_of, generator_of
from inference_lab.clustering.supervision import (
    FitArguments,
    Supervision,
    agreeing,
)
from inference_lab.constraints import Constraints
from inference_lab.constraints.constraints import of_positive_weight
from inference_lab.constraints.hard_pairs import contradiction, infeasible
from inference_lab.constraints.pair_arrays import refuse_hard, signed_matrix
from inference_lab.distortions.distortions import Distortion, SquaredEuclidean
from inference_lab.distortions.points import Points, cluster_sizes, cluster_sums
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.specs.settings import setting


class _ChangedDistances(PairScore, CentroidPredictor):
    """What the baselines share: dense points, labels without centroids, predictions by means."""

    _dense: ClassVar[bool] = True

    def _set_clusters(
        self, inputs: FitInputs, supervision: Supervision, labels: IntArray, metric: Distortion
    ) -> IntArray:
        """Set labels, known ones unchanged, and the means of the clusters; return the labels."""
        points, k = inputs.points, self.n_clusters
        partial_labels, weight = supervision.partial_labels, supervision.sample_weight
        labels = np.where(partial_labels >= 0, partial_labels, agreeing(labels, partial_labels, k))
        sizes = cluster_sizes(labels, k, weight)
        sums = cluster_sums(points, labels, k, weight)
        self._set_centroids(inputs, sums / np.maximum(sizes, 1e-300)[:, np.newaxis], metric)
        self._set_labels(inputs, labels, supervision.constraints)
        self.history_, self.converged_ = [], True
        return labels


@dataclass(eq=False, repr=False, kw_only=True)
class ConstrainedLinkage(_ChangedDistances):
    """Complete-link clustering of distances changed by the pairs (Klein et al. 2002).

    Must-linked points are at distance zero, others at shortest-path distance through them.
    Cannot-linked points are farther apart than any others, so complete linkage merges them last.

    Parameters
    ----------
    n_clusters : int

    Attributes
    ----------
    labels_, violations_, constraints_, inertia_
        See `HMRFKMeans`; pairs of weight zero are left out, other weights have no effect.
    cluster_centers_ : (k, d) array
        Means of the clusters; `predict` uses the nearest.
    objective_ : float
        The largest changed distance within a cluster.
    n_iter_ : int
        Number of merges.
    history_, converged_
        Empty, and true.

    Notes
    -----
    **Guarantees.** None: cannot-links override must-links that connect their points, and the last
    merges may violate cannot-links.

    **Complexity.** O(n^2 d) and O(m n^2) for m points in must-links; memory O(n^2).

    References
    ----------
    D. Klein, S. Kamvar, C. Manning, "From instance-level constraints to space-level constraints:
    making the most of prior knowledge in data clustering", ICML 2002.

    Examples
    --------
    >>> X = [[0.0], [1.0], [5.0], [6.0]]
    >>> labels = ConstrainedLinkage(2).fit(X, must_link=[(1, 3)], cannot_link=[(0, 1)]).labels_
    >>> bool(labels[0] != labels[1] == labels[2] == labels[3])
    True
    """

    n_clusters: int = field(default=3, kw_only=False, metadata=AT_LEAST_ONE)

    @takes(FitArguments)
    def fit(self, X: Any, y: Any = None, **arguments: Unpack[FitArguments]) -> Self:
        from sklearn.cluster import AgglomerativeClustering
        from sklearn.metrics import euclidean_distances

        inputs = read_fit(self, X, y, arguments, SquaredEuclidean())
        supervision = inputs.weighed()
        points, pairs = inputs.points, _counted(supervision, self.n_clusters)
        gaps = euclidean_distances(points)
        _impose(gaps, pairs)

        labels = np.zeros(len(points), dtype=np.int64)
        if len(points) > 1:
            model = AgglomerativeClustering(
                self.n_clusters, metric="precomputed", linkage="complete"
            )
            labels = model.fit(gaps).labels_.astype(np.int64)

        labels = self._set_clusters(inputs, supervision, labels, SquaredEuclidean())
        same = labels[:, np.newaxis] == labels
        self.objective_ = float(gaps[same].max())
        self.n_iter_ = len(points) - self.n_clusters
        return self


def _counted(supervision: Supervision, n_clusters: int) -> Constraints:
    """Return the pairs of positive weight, and pairs implied by labels."""
    constraints, n = of_positive_weight(supervision.constraints), supervision.partial_labels.size
    reason = contradiction(
        clamped(np.zeros((n, n_clusters)), supervision.partial_labels),
        constraints.terms(),
        np.arange(n),
    )
    if reason:
        raise infeasible(reason)
    return replace(supervision, constraints=constraints).labels_as_pairs()


def _impose(gaps: FloatArray, pairs: Constraints) -> None:
    """Change distances according to the pairs, in place."""
    i, j = pairs.must_link.T
    gaps[i, j] = gaps[j, i] = 0.0
    for through in np.unique(pairs.must_link):
        np.minimum(gaps, gaps[:, [through]] + gaps[through], out=gaps)
    i, j = pairs.cannot_link.T
    gaps[i, j] = gaps[j, i] = gaps.max() + 1.0


def _similarities(points: FloatArray, n_neighbours: int, width: float | None) -> Any:
    """Return sparse ``exp(-|x - y|^2 / (2 s^2))`` of neighbours; ``s`` is the width."""
    from sklearn.neighbors import kneighbors_graph

    gaps = kneighbors_graph(points, min(n_neighbours, len(points) - 1), mode="distance")
    last = gaps.max(axis=1).toarray().mean()
    width = width or last or 1.0
    gaps.data = np.exp(-(gaps.data**2) / (2.0 * width**2))
    return gaps.maximum(gaps.T)


@dataclass(eq=False, repr=False, kw_only=True)
class ConstrainedSpectral(_ChangedDistances):
    """Spectral clustering of similarities changed by the pairs (Kamvar et al. 2003).

    Similarities ``exp(-|x - y|^2 / (2 s^2))`` of neighbours, 1 for must-links and 0 for
    cannot-links, form a Markov chain ``(A + d_max I - D) / d_max``. K-means runs on the rows of its
    leading eigenvectors, scaled to unit length.

    Parameters
    ----------
    n_clusters : int
    n_neighbours : int
        Number of neighbours of each point with similarities; the matrix is sparse.
    width : float, optional
        ``s``; by default the mean distance of the last of these neighbours.
    n_init : int
        Starts of k-means.
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    labels_, violations_, constraints_, cluster_centers_, inertia_
        See `ConstrainedLinkage`.
    eigenvalues_ : (k,) array
    objective_ : float
        Objective of k-means on the eigenvectors.
    n_iter_, history_, converged_
        Iterations of k-means; empty; true.

    Notes
    -----
    **Guarantees.** None: a must-link is one similarity among many.

    **Complexity.** A search for neighbours, and Lanczos iterations (ARPACK) of O(n n_neighbours +
    pairs) each.

    References
    ----------
    S. Kamvar, D. Klein, C. Manning, "Spectral learning", IJCAI 2003.

    Examples
    --------
    >>> X = np.repeat([[0.0], [9.0]], 10, axis=0) + np.linspace(0.0, 1.0, 20)[:, np.newaxis]
    >>> labels = ConstrainedSpectral(2, random_state=0).fit(X, cannot_link=[(0, 19)]).labels_
    >>> bool((labels[:10] == labels[0]).all() and labels[0] != labels[19])
    True
    """

    n_clusters: int = field(default=3, kw_only=False, metadata=AT_LEAST_ONE)
    n_neighbours: int = setting(10, at_least=1)
    width: float | None = setting(None, above=0, below=math.inf)
    n_init: int = setting(10, at_least=1)
    random_state: Any = None

    @takes(FitArguments)
    def fit(self, X: Any, y: Any = None, **arguments: Unpack[FitArguments]) -> Self:
        from sklearn.preprocessing import normalize

        inputs = read_fit(self, X, y, arguments, SquaredEuclidean())
        supervision = inputs.weighed()
        rng = generator_of(self.random_state)
        chain = self._chain(inputs.points, supervision)
        self.eigenvalues_, vectors = _largest(chain, self.n_clusters, rng)
        self.objective_ = self._cluster(normalize(vectors), inputs, supervision, rng)
        return self

    def _cluster(
        self,
        rows: FloatArray,
        inputs: FitInputs,
        supervision: Supervision,
        rng: np.random.Generator,
    ) -> float:
        """Label the points by k-means of their embedded rows; return its objective."""
        model = BregmanKMeans(self.n_clusters, n_init=self.n_init, random_state=rng)
        model.fit(rows, sample_weight=supervision.sample_weight)
        self._set_clusters(inputs, supervision, model.labels_, SquaredEuclidean())
        self.n_iter_ = model.n_iter_
        return model.objective_

    def _chain(self, points: FloatArray, supervision: Supervision) -> Any:
        """Return the transition matrix, sparse."""
        from scipy.sparse import csr_array, diags_array, lil_array

        if len(points) == 1:
            return csr_array(np.ones((1, 1)))
        similar = lil_array(_similarities(points, self.n_neighbours, self.width))
        pairs = _counted(supervision, self.n_clusters)
        for ends, value in ((pairs.must_link, 1.0), (pairs.cannot_link, 0.0)):
            for i, j in ends.tolist():
                similar[i, j] = similar[j, i] = value
        matrix = csr_array(similar)
        if supervision.sample_weight is not None:
            matrix = (
                diags_array(np.sqrt(supervision.sample_weight))
                @ matrix
                @ diags_array(np.sqrt(supervision.sample_weight))
            )
        degrees = np.asarray(matrix.sum(axis=1)).ravel()
        largest = float(degrees.max()) or 1.0
        return csr_array((matrix + diags_array(largest - degrees)) / largest)


#: Points up to which all eigenvalues are computed, in O(n^3).
_ALL_EIGENVALUES = 300
#: Relative error of eigenvalues beyond this number of points.
_PRECISION = 1e-7


@dataclass(eq=False, repr=False, kw_only=True)
class FlexibleSpectral(ConstrainedSpectral):
    r"""Normalised cuts that satisfy the pairs to a degree (Wang and Davidson 2010).

    With similarities ``W`` as in `ConstrainedSpectral` (and 1 on the diagonal), degrees ``D`` and
    ``Q`` of the weights of must-links and minus the weights of cannot-links,

    ``min v' L v  subject to  v' Q' v >= a,  |v| = 1``

    for ``L = I - D^{-1/2} W D^{-1/2}`` and ``Q' = D^{-1/2} Q D^{-1/2}``. The stationary points are
    eigenvectors of ``L v = lambda (Q' - beta I) v`` with ``lambda > 0``, where ``beta`` replaces
    ``a``. From the least ``lambda``, the ``k - 1`` of least cost ``v' L v`` are kept, and completed
    by the smoothest eigenvectors of ``L``. Two clusters are the signs of ``D^{-1/2} v``; for more,
    k-means runs on its rows, each vector times one minus its cost.

    Parameters
    ----------
    n_clusters : int
    strength : float
        ``beta`` as a share of the ``k - 1``-th largest eigenvalue of ``Q'``: larger values give
        pairs more influence. The paper's code has 1/2 for two clusters. Then single pairs dominate
        vectors: with 60 pairs NMI is .38 on iris and .27 on wine, against .78 and .88 at .1.
    n_neighbours, width, n_init, random_state
        See `ConstrainedSpectral`.

    Attributes
    ----------
    labels_, violations_, constraints_, cluster_centers_, inertia_
        See `ConstrainedLinkage`; here relative weights of pairs matter.
    eigenvalues_ : (k - 1,) array
        ``lambda`` of the kept vectors, 0 for the completing ones.
    beta_ : float
        0 if no vector satisfies the pairs.
    objective_ : float
        Summed cost of the kept vectors.
    n_iter_, history_, converged_
        See `ConstrainedSpectral`.

    Notes
    -----
    **Guarantees.** Each kept vector with ``lambda > 0`` is a stationary point of the cost at its
    own degree; the rounded labels need not satisfy any pair.

    **Complexity.** A search for neighbours, and Lanczos iterations (ARPACK) that solve with ``L``
    by conjugate gradients of O(n n_neighbours + pairs) a step. The paper's code computes all
    eigenvectors, in O(n^3); here, the ``max(10, 4 k)`` of least ``lambda`` are computed. 1e-5 is
    added to the diagonal of ``L``, which adds the same to the cost of every vector.

    References
    ----------
    X. Wang, I. Davidson, "Flexible constrained spectral clustering", KDD 2010, algorithm 1.
    X. Wang, B. Qian, I. Davidson, "On constrained spectral clustering and its applications", Data
    Mining and Knowledge Discovery 28, 2014 (more than two clusters).

    Examples
    --------
    >>> X = np.repeat([[0.0], [2.0], [4.0], [6.0]], 5, axis=0) + np.linspace(0, 1, 20)[:, None]
    >>> model = FlexibleSpectral(2, random_state=0)
    >>> pairs = {"must_link": [(0, 8), (11, 19)], "cannot_link": [(8, 11), (0, 19)]}
    >>> labels = model.fit(X, **pairs).labels_
    >>> bool((labels[:10] == labels[0]).all() and (labels[10:] != labels[0]).all())
    True
    """

    strength: float = setting(0.1, above=0, below=1)

    @takes(FitArguments)
    def fit(self, X: Any, y: Any = None, **arguments: Unpack[FitArguments]) -> Self:
        inputs = read_fit(self, X, y, arguments, SquaredEuclidean())
        supervision = inputs.weighed()
        rng = generator_of(self.random_state)
        rows = self._embedding(inputs.points, supervision, rng)
        self._cluster(rows, inputs, supervision, rng)
        return self

    def _embedding(
        self, points: FloatArray, supervision: Supervision, rng: np.random.Generator
    ) -> FloatArray:
        """Return the embedded points, one row each, for k-means."""
        from scipy.sparse import csr_array, diags_array, eye_array

        n, wanted = len(points), min(self.n_clusters, len(points)) - 1
        if wanted == 0:
            self.eigenvalues_, self.beta_, self.objective_ = np.empty(0), 0.0, 0.0
            return np.zeros((n, 1))
        sample_weight = diags_array(supervision.sample_weight_or_ones)
        similar = _similarities(points, self.n_neighbours, self.width) + eye_array(n)
        similar = sample_weight @ similar @ sample_weight
        degrees = np.asarray(similar.sum(axis=1)).ravel()
        scale = diags_array(1.0 / np.sqrt(degrees))
        laplacian = csr_array(eye_array(n) * (1.0 + _SHIFT) - scale @ similar @ scale)
        vectors = np.empty((n, 0))
        self.eigenvalues_, self.beta_ = np.empty(0), 0.0
        refuse_hard(supervision.constraints)
        signed = signed_matrix(supervision.labels_as_pairs())
        signed.eliminate_zeros()
        constraint_matrix = scale @ signed @ scale
        if constraint_matrix.nnz:
            met = _largest(constraint_matrix, max(10, 4 * self.n_clusters), rng)[0]
            self.beta_ = self.strength * max(float(met[wanted - 1]), 0.0)
        if self.beta_ > 0.0:
            # By inertia, this is the number of positive eigenvalues; negative ones lie dense.
            number = int((met > self.beta_).sum())
            vectors = self._feasible(
                laplacian, constraint_matrix, np.sqrt(degrees), wanted, number, rng
            )
        if vectors.shape[1] < wanted:
            smooth = _largest(-laplacian, wanted + 1 - vectors.shape[1], rng)[1][:, 1:]
            vectors = np.concatenate([vectors, smooth], axis=1)
            self.eigenvalues_ = np.append(self.eigenvalues_, np.zeros(smooth.shape[1]))
        costs = np.einsum("ij,ij->j", vectors, laplacian @ vectors) - _SHIFT
        self.objective_ = float(costs.sum())
        rows = vectors / np.sqrt(degrees)[:, np.newaxis]
        return np.asarray(np.sign(rows) if wanted == 1 else rows * (1.0 - costs))

    def _feasible(
        self,
        laplacian: Any,
        constraint_matrix: Any,
        trivial: FloatArray,
        wanted: int,
        number: int,
        rng: np.random.Generator,
    ) -> FloatArray:
        """Return the `wanted` unit eigenvectors of least cost that satisfy the pairs."""
        from scipy.sparse import csr_array, eye_array

        n = len(trivial)
        met = csr_array(constraint_matrix - self.beta_ * eye_array(n))
        inverse, vectors = _largest(met, number, rng, laplacian)
        vectors /= np.linalg.norm(vectors, axis=0)
        # The constant vector has no cost and separates no points.
        alike = abs(trivial @ vectors) / np.linalg.norm(trivial) > 1.0 - 1e-6
        columns = np.flatnonzero((inverse > 0.0) & ~alike)
        vectors, inverse = vectors[:, columns], inverse[columns]
        costs = np.einsum("ij,ij->j", vectors, laplacian @ vectors)
        order = np.argsort(costs, kind="stable")[:wanted]
        self.eigenvalues_ = 1.0 / inverse[order]
        return vectors[:, order]


#: Shift of the diagonal of a Laplacian that makes it invertible.
_SHIFT = 1e-5


def _largest(
    matrix: Any, number: int, rng: np.random.Generator, against: Any = None
) -> tuple[FloatArray, FloatArray]:
    """Return the largest eigenvalues of ``matrix v = mu against v``, descending, and vectors."""
    from scipy.linalg import eigh
    from scipy.sparse.linalg import LinearOperator, cg, eigsh

    n = matrix.shape[0]
    number = min(number, n)
    if number >= n - 1 or n <= _ALL_EIGENVALUES:
        values, vectors = eigh(matrix.toarray(), None if against is None else against.toarray())
    else:

        def solved(right: FloatArray) -> FloatArray:
            return np.asarray(cg(against, right, rtol=1e-9, maxiter=10_000)[0])

        inverse = None
        if against is not None:
            inverse = LinearOperator((n, n), solved, dtype=np.float64)
        values, vectors = eigsh(
            matrix, number, against, which="LA", v0=rng.normal(size=n), tol=_PRECISION, Minv=inverse
        )
    order = np.argsort(-values, kind="stable")[:number]
    return values[order], np.ascontiguousarray(vectors[:, order])


@dataclass(eq=False, repr=False, kw_only=True)
class MetricKMeans(_ChangedDistances):
    r"""K-means under a metric learnt from the must-links beforehand (Bar-Hillel et al. 2003).

    The metric of relevant component analysis (RCA) is the inverse of the covariance within the
    must-link components. It uses no cannot-links.

    Parameters
    ----------
    n_clusters : int
    ridge : float
        Share of the mean variance that is added to all variances. The paper adds nothing; with 1,
        directions in which few pairs happen to agree do not dominate.
    init : str or (k, d) array
        "auto" starts from the centroids of `PCKMeans` on the same pairs. For other names see
        `initial_centroids`; with given centroids all starts are the same.
    n_init, max_iter, tol, random_state
        See `BregmanKMeans`.

    Attributes
    ----------
    labels_, violations_, constraints_, cluster_centers_, inertia_, metric_
        See `HMRFKMeans`; pairs of weight zero are left out, other weights have no effect. "auto",
        the default of ``fit``, is 1 for pairs that `PCKMeans` keeps, and 0 for pairs that it
        violates, because one wrong must-link joins two components.
    objective_, n_iter_, history_, converged_
        Results of k-means under the metric.

    Notes
    -----
    **Guarantees.** As for k-means; pairs may be violated.

    **Complexity.** O(n d^2 + d^3), and k-means.

    References
    ----------
    A. Bar-Hillel, T. Hertz, N. Shental, D. Weinshall, "Learning distance functions using
    equivalence relations", ICML 2003.

    Examples
    --------
    >>> X = [[0.0, 9.0], [1.0, -9.0], [5.0, 9.0], [6.0, -9.0]]
    >>> model = MetricKMeans(2, ridge=1e-3, init="k-means++", random_state=0)
    >>> model = model.fit(X, must_link=[(0, 1), (2, 3)], ml_weight=1.0)
    >>> model.violations_.must_link
    0
    """

    n_clusters: int = field(default=3, kw_only=False, metadata=AT_LEAST_ONE)
    ridge: float = setting(1.0, above=0, below=math.inf)
    init: Init | Literal["auto"] | npt.ArrayLike = "auto"
    n_init: int = setting(1, at_least=1)
    max_iter: int = setting(100, at_least=1)
    tol: float = setting(1e-6, at_least=0, below=math.inf)
    random_state: Any = None

    @takes(FitArguments)
    def fit(self, X: Any, y: Any = None, **arguments: Unpack[FitArguments]) -> Self:
        inputs = read_fit(self, X, y, arguments, SquaredEuclidean(), default_weight="auto")
        supervision = inputs.weighed(self._auto_weights)
        points, k = inputs.points, self.n_clusters
        pairs = _counted(supervision, k)
        counted = replace(supervision, constraints=pairs)
        rng = generator_of(self.random_state)
        metric = SquaredEuclidean(self._components(points, pairs, supervision))

        def fit_once(rng: np.random.Generator, init: Any) -> Result:
            model = BregmanKMeans(
                k,
                distortion=metric,
                init=centroids_or_paired(init, points, counted, k, metric, rng),
                max_iter=self.max_iter,
                tol=self.tol,
                random_state=rng,
            ).fit(points, sample_weight=supervision.sample_weight)
            return Result(
                model.labels_, model.objective_, model.history_, model.n_iter_, model.converged_
            )

        best = best_of([inputs.centred_init(self.init)] * self.n_init, fit_once, rng)

        self._set_clusters(inputs, supervision, as_labels(best.assignment), metric)
        self._set_progress(best)
        return self

    def _auto_weights(self, points: Points, supervision: Supervision) -> Weights:
        """Return ones for pairs that `PCKMeans` keeps, and zeros for others."""
        rng = generator_of(self.random_state)
        return weights_by_belief(points, supervision, self.n_clusters, rng)

    def _components(
        self, points: FloatArray, pairs: Constraints, supervision: Supervision
    ) -> FloatArray:
        """Return the inverse of the covariance within the components of the must-links."""
        d = points.shape[1]
        groups = pairs.neighbourhoods()
        if not groups:
            return np.eye(d)
        members = np.concatenate(groups)
        labels = np.repeat(np.arange(len(groups)), [len(g) for g in groups])
        sample_weight = supervision.sample_weight_or_ones[members]
        sums = cluster_sums(points[members], labels, len(groups), sample_weight)
        means = sums / cluster_sizes(labels, len(groups), sample_weight)[:, np.newaxis]
        gaps = points[members] - means[labels]
        covariance = (gaps * sample_weight[:, np.newaxis]).T @ gaps / sample_weight.sum()
        ridge = self.ridge * float(np.trace(covariance)) / d
        if ridge == 0.0:
            return np.eye(d)
        inverse = np.linalg.inv(covariance + ridge * np.eye(d))
        return np.asarray((inverse + inverse.T) / 2.0)
