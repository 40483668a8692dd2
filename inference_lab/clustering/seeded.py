"""K-means that starts from labelled points, and can keep their labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias

import numpy.typing as npt

from inference_lab.clustering.bregman_kmeans import BregmanKMeans
from inference_lab.clustering.supervision import partly_labelled
from inference_lab.formatting import warn

Unseeded: TypeAlias = Literal["k-means++", "perturbed", "random"]


@dataclass(eq=False, repr=False, kw_only=True)
class SeededKMeans(BregmanKMeans):
    r"""K-means whose centroids start at the means of labelled points.

    Cluster ``h`` starts at ``mean(x_i : y_i = h)``; the labels are not used again, so wrong ones
    can be corrected. Minimises ``sum_i D(x_i, mu_{l_i})``.

    Parameters
    ----------
    n_clusters, distortion, empty_clusters, n_jobs, max_iter, tol, random_state
        See `BregmanKMeans`.
    init : {"k-means++", "perturbed", "random"}
        Start of clusters without a labelled point: points drawn by greedy k-means++ given the other
        centroids, random perturbations of the global centroid (the paper's), or distinct points.
    n_init : int
        Starts; all are equal if every cluster has a labelled point.

    Attributes
    ----------
    labels_ : (n,) int array
        Cluster ``h`` started at the points labelled ``h``.
    cluster_centers_, inertia_, objective_, n_iter_, history_, converged_, metric_
        See `BregmanKMeans`.

    Notes
    -----
    **Guarantees.** The objective never rises, unless centroids are smoothed (``kl`` and
    ``i-divergence``).

    **Complexity.** O(n d k) per iteration.

    References
    ----------
    S. Basu, A. Banerjee, R. Mooney, "Semi-supervised clustering by seeding", ICML 2002, fig. 1.

    Examples
    --------
    >>> X = [[0.0], [1.0], [5.0], [6.0]]
    >>> SeededKMeans(2).fit(X, [1, -1, -1, 0]).labels_.tolist()
    [1, 1, 0, 0]
    """

    init: Unseeded = "k-means++"

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        partial_labels: npt.ArrayLike | None = None,
        sample_weight: npt.ArrayLike | None = None,
    ) -> Self:
        """Cluster the points.

        Parameters
        ----------
        X : (n, d) array-like, or sparse where the distortion allows
        y : (n,) array of int, optional
            As `partial_labels`, in the form of `sklearn.semi_supervised`. A `y` without any -1 or
            missing label is ignored, with a warning if there are no `partial_labels` either,
            because pipelines and searches pass the true classes of all points for scoring.
        partial_labels : (n,) array of int, optional
            A cluster from 0 to ``n_clusters - 1``; -1 or missing for a point without a label.
            Without any label, this is K-means. Cross-validation splits it with the data.
        sample_weight : (n,) array of float, optional
            See `BregmanKMeans.fit`.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            If data, labels or settings cannot be used.

        Examples
        --------
        >>> X = [[0.0], [1.0], [2.0], [10.0], [11.0]]
        >>> SeededKMeans(2).fit(X, [0, -1, 1, 1, -1]).labels_.tolist()
        [0, 0, 0, 1, 1]
        """
        inputs = self._read(
            X, y, labels_in_y=True, partial_labels=partial_labels, sample_weight=sample_weight
        )
        if y is not None and partial_labels is None and partly_labelled(y) is None:
            warn(
                "y marks no point as unlabelled, by the integer -1, and is ignored, as the true "
                "classes that are for scoring; labels of all points go into partial_labels",
            )
        self._set_fit(inputs, self._best_start(inputs))
        return self


class ConstrainedKMeans(SeededKMeans):
    r"""Seeded K-means that keeps the given labels.

    In every E-step labelled points keep their labels; others are assigned their cheapest cluster.
    Minimises ``sum_i D(x_i, mu_{l_i})`` subject to ``l_i = y_i``; wrong labels are never corrected.

    Parameters
    ----------
    n_clusters, distortion, init, n_init, n_jobs, max_iter, tol, random_state
        See `SeededKMeans`.
    empty_clusters : {"reseed", "keep"}
        See `SeededKMeans`; only points without a label become new centroids.

    Attributes
    ----------
    labels_, cluster_centers_, inertia_, objective_, n_iter_, history_, converged_, metric_
        See `SeededKMeans`.

    Notes
    -----
    **Guarantees.** ``labels_`` agrees with the given labels. The objective never rises, unless
    centroids are smoothed. `predict` ignores labels.

    References
    ----------
    S. Basu, A. Banerjee, R. Mooney, "Semi-supervised clustering by seeding", ICML 2002, fig. 2.

    Examples
    --------
    >>> X = [[0.0], [1.0], [5.0], [6.0]]
    >>> ConstrainedKMeans(2).fit(X, [1, 0, -1, 0]).labels_.tolist()
    [1, 0, 0, 0]
    """

    _keeps_labels = True
