"""K-means that starts from labelled points, and may hold on to their labels."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from inference_lab.clustering._base import ConstrainedClusterer, Fit, read_partial_labels
from inference_lab.clustering.distortions import Distortion, Points, cluster_sizes
from inference_lab.clustering.em import EStep
from inference_lab.clustering.hmrf import HMRF, EmptyClusters
from inference_lab.clustering.seeding import _spread, initial_centroids
from inference_lab.constraints import Constraints
from inference_lab.graph.arrays import FloatArray, IntArray

__all__ = ["ConstrainedKMeans", "SeededKMeans"]

Unseeded: TypeAlias = Literal["k-means++", "perturbed", "random"]


class _Clamped(HMRF):
    """The model of K-means in which some points have a label that no E-step changes.

    Parameters
    ----------
    seeds : (n,) array of int
        -1 where a point is free.
    """

    def __init__(
        self,
        points: Points,
        constraints: Constraints,
        distortion: Distortion,
        centroids: FloatArray,
        seeds: IntArray,
        empty: EmptyClusters,
    ) -> None:
        super().__init__(points, constraints, distortion, centroids, empty=empty)
        self.held = np.flatnonzero(seeds >= 0)
        self.held_labels = seeds[self.held]

    def nearest(self, previous: IntArray | None) -> IntArray:
        """Return the cheapest cluster of each free point, and the labels of the others."""
        labels = super().nearest(previous)
        labels[self.held] = self.held_labels
        return labels

    def _move(self, labels: IntArray) -> None:
        k = len(self.centroids)
        sizes = cluster_sizes(labels, k)
        gone = np.flatnonzero(sizes == 0)
        if gone.size == 0 or self.empty != "reseed":
            super()._move(labels)
            return
        # A clamped point could not follow the centroid that it becomes.
        before = self.empty
        self.empty = "keep"
        super()._move(labels)
        self.empty = before
        costs = self.own_costs(labels)
        costs[self.held] = -np.inf
        costs[sizes[labels] == 1] = -np.inf
        for h in gone:
            worst = int(costs.argmax())
            if costs[worst] == -np.inf:
                return
            self.centroids[h] = self.metrics[0].centroids(
                self.points[[worst]], np.zeros(1, dtype=np.int64), 1, self.centroids[h : h + 1]
            )[0]
            costs[worst] = -np.inf


class SeededKMeans(ConstrainedClusterer):
    r"""K-means whose centroids start at the means of labelled points.

    Cluster ``h`` starts at ``mean(x_i : partial_labels_i = h)``; the labels are not used again, so
    that wrong ones can be corrected. Minimises ``sum_i D(x_i, mu_{l_i})``.

    Parameters
    ----------
    n_clusters : int
    distortion : {"euclidean", "cosine", "kl", "i-divergence", "itakura-saito"} or Distortion
    init : {"k-means++", "perturbed", "random"}
        Where clusters without a labelled point start: at points drawn by greedy k-means++ given
        the centroids of the others, at random perturbations of the global centroid (the paper's),
        or at distinct points.
    empty_clusters : {"reseed", "keep", "raise"}
        A cluster that loses all points gets the point of highest cost as its centroid, keeps its
        centroid, or is an error.
    n_init : int
        Starts, of which the one of least objective is kept; they are all alike if every cluster
        has a labelled point.
    max_iter : int
    tol : float
        Stop when the objective falls by no more than this share in an iteration.
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    labels_ : (n,) int array
        Cluster ``h`` is that of the points labelled ``h``.
    cluster_centers_, objective_, n_iter_, history_, converged_
        See `HMRFKMeans`.
    metrics_ : list of Distortion
        The distortion.

    Guarantees
    ----------
    The objective never rises, unless centroids are smoothed (``kl`` and ``i-divergence``).

    Complexity
    ----------
    O(n d k) an iteration.

    References
    ----------
    S. Basu, A. Banerjee, R. Mooney, "Semi-supervised clustering by seeding", ICML 2002, fig. 1.

    Examples
    --------
    >>> X = [[0.0], [1.0], [5.0], [6.0]]
    >>> SeededKMeans(2).fit(X, partial_labels=[1, -1, -1, 0]).labels_.tolist()
    [1, 1, 0, 0]
    """

    _allowed: ClassVar = {"init": ("k-means++", "perturbed", "random")}

    def __init__(
        self,
        n_clusters: int = 3,
        *,
        distortion: str | Distortion = "euclidean",
        init: Unseeded = "k-means++",
        empty_clusters: EmptyClusters = "reseed",
        n_init: int = 1,
        max_iter: int = 100,
        tol: float = 1e-6,
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.distortion = distortion
        self.init = init
        self.empty_clusters = empty_clusters
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        partial_labels: npt.ArrayLike | None = None,
    ) -> Self:
        """Cluster the points.

        Parameters
        ----------
        X : (n, d) array-like, or sparse where the distortion allows
        y : ignored
            For pipelines; true classes given here are not looked at.
        partial_labels : (n,) array of int, optional
            A cluster from 0 to ``n_clusters - 1``, or -1 for a point without a label. Clusters
            may lack labelled points; without any, this is K-means. Cross-validation cuts it along
            with the data.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            If data, labels or settings cannot be used.
        """
        points = self._data(X)
        seeds = read_partial_labels(partial_labels, points.shape[0], self.n_clusters)
        self._take_hard(self._best_of(lambda rng: self._fit_once(points, seeds, rng)))
        return self

    def _fit_once(self, points: Points, seeds: IntArray, rng: np.random.Generator) -> Fit:
        start = self._start(points, seeds, rng)
        return self._alternate(self._model(points, seeds, start), EStep("icm", rng))

    def _model(self, points: Points, seeds: IntArray, start: FloatArray) -> HMRF:
        nobody = Constraints(None, None, n_points=points.shape[0])
        return HMRF(points, nobody, self._distortion(), start, empty=self.empty_clusters)

    def _start(self, points: Points, seeds: IntArray, rng: np.random.Generator) -> FloatArray:
        """Return the means of the seeds, and other centroids for clusters without any."""
        distortion, k, (n, d) = self._distortion(), self.n_clusters, points.shape
        held = np.flatnonzero(seeds >= 0)
        present, place = np.unique(seeds[held], return_inverse=True)
        known = distortion.centroids(points[held], place, len(present), np.zeros((len(present), d)))
        result = np.empty((k, d))
        result[present] = known
        absent = np.setdiff1d(np.arange(k), present)
        if absent.size == 0:
            return result
        if self.init == "k-means++":
            result[absent] = _spread(points, known, k, distortion, rng)[len(known) :]
        else:
            nobody = Constraints(None, None, n_points=n)
            result[absent] = initial_centroids(
                points, nobody, absent.size, distortion, self.init, rng
            )
        return result


class ConstrainedKMeans(SeededKMeans):
    r"""Seeded K-means that holds on to the labels given.

    In every E-step the labelled points keep their labels; the others go to their cheapest cluster.
    Minimises ``sum_i D(x_i, mu_{l_i})`` subject to ``l_i = partial_labels_i``. For labels that are
    right; wrong ones are never corrected.

    Parameters
    ----------
    n_clusters, distortion, init, n_init, max_iter, tol, random_state
        See `SeededKMeans`.
    empty_clusters : {"reseed", "keep", "raise"}
        As there; only points without a label become new centroids.

    Guarantees
    ----------
    ``labels_`` agrees with the labels given. The objective never rises, unless centroids are
    smoothed. `predict` knows of no labels.

    References
    ----------
    S. Basu, A. Banerjee, R. Mooney, "Semi-supervised clustering by seeding", ICML 2002, fig. 2.

    Examples
    --------
    >>> X = [[0.0], [1.0], [5.0], [6.0]]
    >>> ConstrainedKMeans(2).fit(X, partial_labels=[1, 0, -1, 0]).labels_.tolist()
    [1, 0, 0, 0]
    """

    def _model(self, points: Points, seeds: IntArray, start: FloatArray) -> HMRF:
        nobody = Constraints(None, None, n_points=points.shape[0])
        return _Clamped(points, nobody, self._distortion(), start, seeds, self.empty_clusters)
