"""Estimators and scores that clustering studies may name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.cluster import KMeans

from inference_lab import clustering
from inference_lab.clustering.certificate import SearchMethod
from inference_lab.clustering.violations import violations
from inference_lab.constraints import Constraints
from inference_lab.reports.released import RELEASED
from inference_lab.results.scoring import adjusted_rand, matched_accuracy, nmi, pairwise_f


class _KMeans(KMeans):  # type: ignore[misc]  # no types
    """K-means with ten starts that accepts pairs and ignores them."""

    def __init__(self, n_clusters: int, random_state: int) -> None:
        super().__init__(n_clusters, n_init=10, random_state=random_state)

    def fit(self, X: Any, must_link: Any, cannot_link: Any) -> Self:
        """Cluster the points, and count the violated pairs."""
        super().fit(X)
        self.constraints_ = Constraints(must_link, cannot_link, n_points=len(X))
        self.violations_ = violations(self.constraints_, self.labels_)
        return self


@dataclass(eq=False, repr=False, kw_only=True)
class _PCKMeans(clustering.PCKMeans):
    """PCKMeans; the search of `improve` follows the fit if the setting names its method."""

    improve: SearchMethod | None = None

    def fit(self, X: Any, y: Any = None, **supervision: Any) -> Self:
        """Cluster the points, and search for better clusters."""
        super().fit(X, y, **supervision)
        if self.improve is not None:
            better = clustering.improve(self, X, method=self.improve)
            self.__dict__.update(better.__dict__)
        return self


class _Certified:
    """The best clustering that a search finds for the objective of PCKMeans, with a lower bound."""

    def __init__(
        self, n_clusters: int, random_state: int, max_nodes: int, time_limit: float
    ) -> None:
        self.model = clustering.PCKMeans(n_clusters, random_state=random_state)
        self.max_nodes, self.time_limit = max_nodes, time_limit

    def fit(self, X: Any, **supervision: Any) -> Self:
        """Search for clusters, and compute the lower bound."""
        model = clustering.improve(self.model.fit(X, **supervision), X)
        certificate = clustering.certify(
            model, X, max_nodes=self.max_nodes, time_limit=self.time_limit
        )
        self.constraints_ = self.model.constraints_
        self.labels_, self.objective_ = certificate.best_labels, certificate.best_objective
        self.lower_bound_ = certificate.lower_bound
        self.violations_ = violations(self.constraints_, self.labels_)
        return self


def _linkage(n_clusters: int, random_state: int) -> clustering.ConstrainedLinkage:
    """Return complete linkage, which is deterministic and needs no seed."""
    return clustering.ConstrainedLinkage(n_clusters)


#: Estimators that take pairs, with their defaults.
_BY_CLASS = (
    "AnnealedConstrainedKMeans",
    "AnnealedConstrainedMixture",
    "COPKMeans",
    "CVQE",
    "ConstrainedClusterCV",
    "ConstrainedGaussianMixture",
    "ConstrainedSpectral",
    "FlexibleSpectral",
    "HMRFKMeans",
    "KernelHMRFKMeans",
    "LCVQE",
    "MPCKMeans",
    "MetricKMeans",
    "RDPMeans",
    "TVClust",
)

#: One start, from the neighbourhoods of must-links, as in the papers.
_PAPER: Mapping[str, Any] = {"init": "neighbourhoods"}

#: Estimators that definitions can name: class names have the class's defaults, other names the
#: settings of the papers.
ESTIMATORS: Mapping[str, Callable[..., Any]] = {
    "hmrf-kmeans": partial(clustering.HMRFKMeans, **_PAPER),
    "seeded-kmeans": clustering.SeededKMeans,
    "constrained-kmeans": clustering.ConstrainedKMeans,
    "cop-kmeans": clustering.COPKMeans,
    "pckmeans": partial(clustering.PCKMeans, **_PAPER),
    "mpckmeans": partial(clustering.MPCKMeans, **_PAPER),
    "gaussian-mixture": partial(clustering.ConstrainedGaussianMixture, **_PAPER),
    "seeded-mixture": partial(clustering.ConstrainedGaussianMixture, **_PAPER),
    "annealed-kmeans": clustering.AnnealedConstrainedKMeans,
    "annealed-mixture": clustering.AnnealedConstrainedMixture,
    # Not DPMeans, because it refuses pairs, and studies give all methods the same pairs.
    "dp-means": partial(clustering.RDPMeans, xi=0.0, start="mean"),
    "rdp-means": partial(clustering.RDPMeans, xi=0.001, start="mean"),
    "rdp-means-release": clustering.RDPMeans.release,
    "lcvqe": partial(clustering.LCVQE, init="k-means++"),
    "cvqe": partial(clustering.CVQE, init="k-means++"),
    # The paper starts from the prior; TVClust starts from k-means by default.
    "tvclust": partial(clustering.TVClust, init="prior"),
    "ConstrainedLinkage": _linkage,
    "k-means": _KMeans,
    "certified": _Certified,
    "PCKMeans": _PCKMeans,
    **{name: getattr(clustering, name) for name in _BY_CLASS},
    **RELEASED,
}

#: Estimators that take partial labels instead of pairs.
SEEDED = ("seeded-kmeans", "constrained-kmeans", "seeded-mixture")

#: Scores of labels against the truth, between 0 and 1 (the adjusted Rand index may be negative),
#: and the number of clusters.
SCORES: Mapping[str, Callable[[Any, Any], float]] = {
    "pairwise_f": pairwise_f,
    "nmi": nmi,
    "nmi_geometric": partial(nmi, average="geometric"),
    "ari": adjusted_rand,
    "accuracy": matched_accuracy,
    "clusters": lambda truth, labels: float(np.unique(labels).size),
}

#: Scores on the points that occur in constraints, and on the others, which show the effect of
#: constraints on points outside them.
PARTIAL = ("ari_constrained", "ari_untouched")

#: Scores of the labels that a fitted estimator predicts for the same points, from its parameters
#: alone: they measure the decision boundaries, without the effect of constraints on their points.
PREDICTED: Mapping[str, Callable[[Any, Any], float]] = {"boundary_accuracy": matched_accuracy}

#: Gaps of an objective, in per cent: to the best objective of all methods for the same pairs, as a
#: share of that; and to the largest lower bound of a method, as a share of the objective.
OF_OBJECTIVES = ("primal_gap", "optimality_gap")
