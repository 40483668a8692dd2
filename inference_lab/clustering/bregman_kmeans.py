"""K-means for distortions other than the squared distance: the baselines without constraints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from inference_lab.clustering._base import ConstrainedClusterer
from inference_lab.clustering.distortions import Cosine, Distortion, Points
from inference_lab.clustering.em import EStep, Result, maximise_expectation
from inference_lab.clustering.hmrf import HMRF, EmptyClusters
from inference_lab.clustering.seeding import Init, initial_centroids
from inference_lab.constraints import Constraints
from inference_lab.graph.arrays import FloatArray

__all__ = ["BregmanKMeans", "Fit", "KMeansFamily", "SphericalKMeans"]


class Fit:
    """One start of a fit: the model as it ended, and what the driver returned."""

    def __init__(self, model: HMRF, result: Result) -> None:
        self.model = model
        self.result = result
        self.objective = result.objective


class KMeansFamily(ConstrainedClusterer):
    """Base of the estimators that run the driver on a model without pairwise penalties."""

    empty_clusters: EmptyClusters
    max_iter: int
    tol: float

    def _check_words(self) -> None:
        """Check the settings that are one of a few words."""
        check_word("empty_clusters", self.empty_clusters, ("reseed", "keep", "raise"))

    def _around_origin(self, init: str | npt.ArrayLike) -> str | npt.ArrayLike:
        """Move centroids that the user gave to where the points were moved."""
        if isinstance(init, str) or self._origin is None:
            return init
        given = np.asarray(init, dtype=np.float64)
        # Where the shape is wrong, `initial_centroids` says so.
        return given - self._origin if given.shape[-1:] == self._origin.shape else given

    def _alternate(self, model: HMRF, e_step: EStep) -> Fit:
        return Fit(model, maximise_expectation(model, e_step, max_iter=self.max_iter, tol=self.tol))

    def _keep(self, fit: Fit) -> None:
        """Set the fitted attributes."""
        model, result = fit.model, fit.result
        self.labels_ = np.asarray(result.assignment, dtype=np.int64)
        self.cluster_centers_ = (
            model.centroids if self._origin is None else model.centroids + self._origin
        )
        self.metrics_ = model.metrics
        self._note(result)


class BregmanKMeans(KMeansFamily):
    r"""K-means with any Bregman divergence, or the cosine.

    Minimises ``J = sum_i D(x_i, mu_{l_i})`` by alternating the cheapest cluster of each point with
    the centroids, which for every Bregman divergence are the means.

    Parameters
    ----------
    n_clusters : int
    distortion : {"euclidean", "cosine", "kl", "i-divergence", "itakura-saito"} or Distortion
        What a point costs in a cluster; to add one, see `inference_lab.clustering.distortions`.
    init : {"k-means++", "random", "perturbed"} or (k, d) array
        Points drawn by greedy k-means++ under the distortion, distinct points, random
        perturbations of the global centroid (Basu 2005, sec. 2.3.1), or centroids.
    empty_clusters : {"reseed", "keep", "raise"}
        A cluster that loses all points gets the point of highest cost as its centroid, keeps its
        centroid, or is an error.
    n_init : int
        Starts, of which the one of least objective is kept.
    max_iter : int
    tol : float
        Stop when the objective falls by no more than this share in an iteration.
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    labels_, cluster_centers_, objective_, n_iter_, history_, converged_
        See `HMRFKMeans`.
    metrics_ : list of Distortion
        The distortion.

    Guarantees
    ----------
    The objective never rises from one half-step to the next, unless centroids are smoothed
    (``kl`` and ``i-divergence`` with smoothing, their default).

    Complexity
    ----------
    O(n d k) an iteration; on sparse data, the number of their entries times k.

    References
    ----------
    A. Banerjee, S. Merugu, I. Dhillon, J. Ghosh, "Clustering with Bregman divergences", JMLR 6,
    2005, algorithm 1.

    Examples
    --------
    >>> X = [[8, 1, 1], [7, 2, 1], [1, 1, 8], [2, 1, 7]]
    >>> labels = BregmanKMeans(2, distortion="kl", random_state=0).fit_predict(X)
    >>> bool(labels[0] == labels[1] != labels[2] == labels[3])
    True
    """

    def __init__(
        self,
        n_clusters: int = 3,
        *,
        distortion: str | Distortion = "euclidean",
        init: Init | npt.ArrayLike = "k-means++",
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

    def fit(self, X: Any, y: Any = None) -> Self:
        """Cluster the points.

        Parameters
        ----------
        X : (n, d) array-like, or sparse where the distortion allows
        y : ignored

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            If data or settings cannot be used.
        """
        self._check_words()
        if isinstance(self.init, str):
            check_word("init", self.init, ("k-means++", "random", "perturbed"))
        points = self._centred(self._read_points(X, reset=True))
        self._check_settings(points.shape[0])
        self._keep(self._best_of(lambda rng: self._fit_once(points, rng)))
        return self

    def _fit_once(self, points: Points, rng: np.random.Generator) -> Fit:
        distortion = self._distortion()
        nobody = Constraints(None, None, n_points=points.shape[0])
        start: FloatArray = initial_centroids(
            points, nobody, self.n_clusters, distortion, self._around_origin(self.init), rng
        )
        model = HMRF(points, nobody, distortion, start, empty=self.empty_clusters)
        return self._alternate(model, EStep("icm", rng))


@dataclass(frozen=True, eq=False)
class _Direction(Cosine):
    """The cosine that takes rows of zeros: having no direction, they cost nothing anywhere.

    At no cost, they draw neither initial centroids nor those of clusters that emptied.
    """

    def check(self, points: Points) -> None:
        """Take any values."""

    def distances(self, points: Points, centroids: FloatArray) -> FloatArray:
        """Return one minus the cosine, 0 for rows of zeros."""
        result = super().distances(points, centroids)
        result[self.lengths(points) == 0] = 0.0
        return result


class SphericalKMeans(BregmanKMeans):
    r"""K-means on the unit sphere: minimises ``sum_i 1 - cos(x_i, mu_{l_i})``.

    Centroids are the sums of their points, each scaled to unit length, scaled themselves; a cluster
    whose points cancel keeps its centroid. Rows of zeros point nowhere: they cost nothing in any
    cluster, and are in the first.

    Parameters
    ----------
    n_clusters, init, empty_clusters, n_init, max_iter, tol, random_state
        See `BregmanKMeans`.

    Guarantees
    ----------
    The objective never rises. CSR data stay sparse; centroids are dense.

    References
    ----------
    I. Dhillon, D. Modha, "Concept decompositions for large sparse text data using clustering",
    Machine Learning 42, 2001.

    Examples
    --------
    >>> X = [[1.0, 0.1], [9.0, 1.0], [0.1, 1.0], [1.0, 9.0]]
    >>> labels = SphericalKMeans(2, random_state=0).fit_predict(X)
    >>> bool(labels[0] == labels[1] != labels[2] == labels[3])
    True
    """

    def __init__(
        self,
        n_clusters: int = 3,
        *,
        init: Init | npt.ArrayLike = "k-means++",
        empty_clusters: EmptyClusters = "reseed",
        n_init: int = 1,
        max_iter: int = 100,
        tol: float = 1e-6,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            n_clusters,
            distortion=_Direction(),
            init=init,
            empty_clusters=empty_clusters,
            n_init=n_init,
            max_iter=max_iter,
            tol=tol,
            random_state=random_state,
        )


def check_word(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """Refuse a setting that is none of the words allowed."""
    if value not in allowed:
        words = ", ".join(map(repr, allowed))
        raise ValueError(f"{name} = {value!r} is unknown; allowed: {words}")
