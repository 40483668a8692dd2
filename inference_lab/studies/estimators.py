"""The estimators and the scores that studies of clustering may name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.cluster import KMeans

from inference_lab import clustering
from inference_lab.clustering.hmrf import violations
from inference_lab.constraints import Constraints
from inference_lab.reports.wekaut import WekaUTKMeans
from inference_lab.results.scoring import adjusted_rand, matched_accuracy, nmi, pairwise_f

__all__ = ["ESTIMATORS", "OF_OBJECTIVES", "PARTIAL", "PREDICTED", "SCORES", "SEEDED"]


def _tvclust_release(n_clusters: int, random_state: Any) -> clustering.TVClust:
    """Return the estimator of the published code, which is not told the number of clusters."""
    return clustering.TVClust.release(random_state)


class _KMeans(KMeans):  # type: ignore[misc]  # no types
    """K-means of ten starts that is told pairs and does not look at them."""

    def __init__(self, n_clusters: int, random_state: int) -> None:
        super().__init__(n_clusters, n_init=10, random_state=random_state)

    def fit(self, X: Any, must_link: Any, cannot_link: Any) -> Self:
        """Cluster the points, and count the pairs that the clusters violate."""
        super().fit(X)
        self.constraints_ = Constraints(must_link, cannot_link, n_points=len(X))
        self.violations_ = violations(self.constraints_, self.labels_)
        return self


class _Certified:
    """The best clusters that a search finds for the objective of PCKMeans, with a lower bound."""

    def __init__(
        self, n_clusters: int, random_state: int, max_nodes: int, time_limit: float
    ) -> None:
        self.model = clustering.PCKMeans(n_clusters, improve="memetic", random_state=random_state)
        self.max_nodes, self.time_limit = max_nodes, time_limit

    def fit(self, X: Any, **told: Any) -> Self:
        """Search and bound."""
        model = self.model.fit(X, **told)
        found = clustering.certify(model, X, max_nodes=self.max_nodes, time_limit=self.time_limit)
        self.constraints_ = self.model.constraints_
        self.labels_, self.objective_ = found.best_labels, found.best_objective
        self.lower_bound_ = found.lower_bound
        self.violations_ = violations(self.constraints_, self.labels_)
        return self


def _linkage(n_clusters: int, random_state: int) -> clustering.ConstrainedLinkage:
    """Return complete linkage, which draws nothing."""
    return clustering.ConstrainedLinkage(n_clusters)


#: Estimators that take pairs, with the defaults that a user gets.
_BY_CLASS = (
    *("AnnealedConstrainedKMeans", "AnnealedConstrainedMixture", "COPKMeans", "CVQE"),
    *("ConstrainedClusterCV", "ConstrainedGaussianMixture", "ConstrainedSpectral"),
    *("FlexibleSpectral", "HMRFKMeans", "KernelHMRFKMeans", "LCVQE", "MPCKMeans", "MetricKMeans"),
    *("PCKMeans", "RDPMeans", "TVClust"),
)

#: One start from neighbourhoods, as in the papers.
_PAPER: Mapping[str, Any] = {"init": "neighbourhoods"}

#: Estimators that definitions can name: by their class with its defaults, else as in the papers.
ESTIMATORS: Mapping[str, Callable[..., Any]] = {
    "hmrf-kmeans": partial(clustering.HMRFKMeans, **_PAPER),
    "seeded-kmeans": clustering.SeededKMeans,
    "constrained-kmeans": clustering.ConstrainedKMeans,
    "cop-kmeans": clustering.COPKMeans,
    "pckmeans": partial(clustering.PCKMeans, **_PAPER),
    "mpckmeans": partial(clustering.MPCKMeans, **_PAPER),
    "gaussian-mixture": partial(clustering.ConstrainedGaussianMixture, **_PAPER),
    "annealed-kmeans": clustering.AnnealedConstrainedKMeans,
    "annealed-mixture": clustering.AnnealedConstrainedMixture,
    "wekaut": WekaUTKMeans,
    # DPMeans refuses pairs; studies give all methods the same ones.
    "dp-means": partial(clustering.RDPMeans, xi=0.0, start="mean"),
    "rdp-means": partial(clustering.RDPMeans, xi=0.001, start="mean"),
    "rdp-means-release": clustering.RDPMeans.release,
    "lcvqe": partial(clustering.LCVQE, init="k-means++"),
    "cvqe": partial(clustering.CVQE, init="k-means++"),
    # As in the paper; by default TVClust begins with k-means.
    "tvclust": partial(clustering.TVClust, init="prior"),
    "tvclust-release": _tvclust_release,
    "ConstrainedLinkage": _linkage,
    "k-means": _KMeans,
    "certified": _Certified,
    **{name: getattr(clustering, name) for name in _BY_CLASS},
}

#: Those of them that are told labels, and no pairs.
SEEDED = ("seeded-kmeans", "constrained-kmeans")

#: Scores of labels against the truth, between 0 and 1 (the adjusted Rand index may be less); and
#: how many clusters there are.
SCORES: Mapping[str, Callable[[Any, Any], float]] = {
    "pairwise_f": pairwise_f,
    "nmi": nmi,
    "nmi_geometric": partial(nmi, average="geometric"),
    "ari": adjusted_rand,
    "accuracy": matched_accuracy,
    "clusters": lambda truth, labels: float(np.unique(labels).size),
}

#: Scores on the points that constraints touch, and on the others: what constraints do to points
#: that they do not name.
PARTIAL = ("ari_constrained", "ari_untouched")

#: Scores of what a fitted estimator predicts for the same points, from its parameters alone: where
#: the boundaries are, whatever constraints make of the labels of their own points.
PREDICTED: Mapping[str, Callable[[Any, Any], float]] = {"boundary_accuracy": matched_accuracy}

#: Of an objective, in per cent: its distance to the best of all methods for the same pairs, as a
#: share of the best, and to the lower bound of a method that has one, as a share of the objective.
OF_OBJECTIVES = ("primal_gap", "optimality_gap")
