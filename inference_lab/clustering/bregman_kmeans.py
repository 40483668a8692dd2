"""K-means for distortions other than the squared distance, as baselines without constraints."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from inference_lab.clustering.e_step import AssignmentStep, LabelStep
from inference_lab.clustering.em import Fit, maximise_expectation
from inference_lab.clustering.fit_inputs import FitInputs, check_word, read_fit
from inference_lab.clustering.hmrf import HMRF, EmptyClusters
from inference_lab.clustering.initialisation import Init, initial_centroids
from inference_lab.clustering.prediction import CentroidPredictor
from inference_lab.clustering.starts import SharedSettings, best_of, generator_of
from inference_lab.distortions.distortions import Cosine, Distortion, as_distortion
from inference_lab.distortions.points import Points
from inference_lab.graph.arrays import FloatArray
from inference_lab.specs.settings import setting


@dataclass(eq=False, repr=False, kw_only=True)
class BregmanKMeans(SharedSettings, CentroidPredictor):
    r"""K-means with any Bregman divergence, or the cosine.

    Minimises ``J = sum_i D(x_i, mu_{l_i})`` by alternating the cheapest cluster of each point with
    the centroids, which for every Bregman divergence are the means.

    Parameters
    ----------
    n_clusters : int
    distortion : {"euclidean", "cosine", "kl", "i-divergence"} or Distortion
        Cost of a point in a cluster. To add one, see `inference_lab.distortions.distortions`.
    init : {"k-means++", "random", "perturbed"} or (k, d) array
        Points drawn by greedy k-means++ under the distortion, distinct points, random
        perturbations of the global centroid (Basu 2005, sec. 2.3.1), or centroids.
    empty_clusters : {"reseed", "keep"}
        A cluster that loses all points gets the point of highest cost as its centroid, or keeps
        its centroid.
    n_init : int
        Starts, of which the one of least objective is kept.
    n_jobs : int or None
        Processes that share the starts; None is 1, -1 as many as there are processors.
    max_iter : int
    tol : float
        Stop when the objective falls by no more than this share in an iteration.
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    labels_, cluster_centers_, inertia_, objective_, n_iter_, history_, converged_
        See `HMRFKMeans`.
    metric_ : Distortion
        The distortion.

    Notes
    -----
    **Guarantees.** The objective never rises from one half-step to the next, unless centroids are
    smoothed (``kl`` and ``i-divergence`` with smoothing, their default).

    **Complexity.** O(n d k) per iteration; on sparse data, the number of entries times k.

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

    distortion: str | Distortion = "euclidean"
    init: Init | npt.ArrayLike = "k-means++"
    empty_clusters: EmptyClusters = "reseed"
    tol: float = setting(1e-6, at_least=0, below=math.inf)

    #: Whether labelled points keep their labels.
    _keeps_labels: ClassVar[bool] = False

    def fit(self, X: Any, y: Any = None, *, sample_weight: npt.ArrayLike | None = None) -> Self:
        """Cluster the points.

        Parameters
        ----------
        X : (n, d) array-like, or sparse where the distortion allows
        y : ignored
        sample_weight : (n,) array of float, optional
            Weight of each point; zero leaves it out of the fit, and labels it afterwards.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            If data or settings cannot be used.

        Examples
        --------
        >>> X = [[0.0], [3.0], [10.0]]
        >>> model = BregmanKMeans(2, random_state=0).fit(X, sample_weight=[2, 1, 1])
        >>> sorted(model.cluster_centers_.ravel().tolist())
        [1.0, 10.0]
        """
        inputs = self._read(X, y, sample_weight=sample_weight)
        self._set_fit(inputs, self._best_start(inputs))
        return self

    def _read(
        self,
        X: Any,
        y: Any,
        *,
        default_weight: float = 1.0,
        labels_in_y: bool = False,
        **arguments: Any,
    ) -> FitInputs:
        """Validate the input of a fit."""
        if isinstance(self.init, str):
            check_word("init", self.init, ("k-means++", "random", "perturbed"))
        return read_fit(
            self,
            X,
            y,
            arguments,
            as_distortion(self.distortion),
            default_weight=default_weight,
            labels_in_y=labels_in_y,
        )

    def _best_start(
        self,
        inputs: FitInputs,
        e_step: Callable[[np.random.Generator], AssignmentStep] | None = None,
    ) -> Fit[HMRF]:
        """Alternate from each start; return the fit of least objective.

        By default points are labelled one by one, because no terms couple them.
        """
        points, supervision, k = inputs.points, inputs.supervision, self.n_clusters
        distortion, init = inputs.format.distortion, inputs.centred_init(self.init)
        unlabelled = np.full_like(supervision.partial_labels, -1)
        rules = (
            supervision if self._keeps_labels else replace(supervision, partial_labels=unlabelled)
        )

        def fit_once(rng: np.random.Generator, init: Any) -> Fit[HMRF]:
            centroids = initial_centroids(points, supervision, k, distortion, init, rng)
            model = HMRF(points, rules, distortion, centroids, empty=self.empty_clusters)
            step = LabelStep("icm", rng) if e_step is None else e_step(rng)
            result = maximise_expectation(model, step, max_iter=self.max_iter, tol=self.tol)
            return Fit(model, result)

        rng = generator_of(self.random_state)
        return best_of([init] * self.n_init, fit_once, rng, self.n_jobs)

    def _set_fit(self, inputs: FitInputs, best: Fit[HMRF]) -> None:
        """Set the attributes."""
        self._set_centroids(inputs, best.model.centroids, best.model.metric)
        self._set_progress(best.result)
        self.labels_ = inputs.labels_of_all(best.labels, self._costs)


@dataclass(frozen=True, eq=False)
class _Direction(Cosine):
    """The cosine that accepts rows of zeros at no cost, so that they do not attract centroids."""

    def check(self, points: Points) -> None:
        """Accept any values."""

    def distances(self, points: Points, centroids: FloatArray) -> FloatArray:
        """Return one minus the cosine, 0 for rows of zeros."""
        result = super().distances(points, centroids)
        result[self.lengths(points) == 0] = 0.0
        return result


@dataclass(eq=False, repr=False, kw_only=True)
class SphericalKMeans(BregmanKMeans):
    r"""K-means on the unit sphere: minimises ``sum_i 1 - cos(x_i, mu_{l_i})``.

    Centroids are the unit vectors along the sums of their scaled points; a cluster whose points
    cancel keeps its centroid. Rows of zeros cost nothing, and are in the first cluster.

    Parameters
    ----------
    n_clusters, init, empty_clusters, n_init, n_jobs, max_iter, tol, random_state
        See `BregmanKMeans`.

    Attributes
    ----------
    labels_, cluster_centers_, inertia_, objective_, n_iter_, history_, converged_, metric_
        See `BregmanKMeans`.

    Notes
    -----
    **Guarantees.** The objective never rises. CSR data stay sparse; centroids are dense.

    **Complexity.** See `BregmanKMeans`.

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

    #: Fixed in this class, so not an argument.
    distortion: str | Distortion = field(default=_Direction(), init=False)
