"""Catalogue of the estimators in groups, each with its use case."""

from __future__ import annotations

#: Use case of each class in each group. The first group is in the order of the gains on data that
#: chose no default, see docs/which-estimator.md.
ESTIMATORS: dict[str, dict[str, str]] = {
    "take these": {
        "ConstrainedClusterCV": "if time matters less: held-out pairs choose among estimators",
        "TVClust": "one fit; learns how often answers are right; six points a cluster and feature",
        "ConstrainedGaussianMixture": "long or correlated clusters; as many points",
        "PCKMeans": "few points, large data, or little time; hardly ever below k-means",
    },
    "for a purpose": {
        "MPCKMeans": "to learn which features matter: a metric from pairs",
        "HMRFKMeans": "cosine, KL or other divergences; any solver for the E-step",
        "SphericalKMeans": "directions, such as texts, without pairs",
        "BregmanKMeans": "any Bregman divergence, without pairs",
        "KernelHMRFKMeans": "similarities from a kernel or a graph",
        "FlexibleSpectral": "clusters that are not blobs, pairs with weights",
        "RDPMeans": "number of clusters unknown: a price for each",
        "DPMeans": "the same without pairs",
        "CorrelationClustering": "pairs with weights and nothing else; number of clusters open",
        "COPKMeans": "pairs that must hold, point by point",
        "SizeConstrainedKMeans": "bounds on the sizes of clusters",
        "SeededKMeans": "labels of some points as a start",
        "ConstrainedKMeans": "labels of some points that stay",
        "AnnealedConstrainedMixture": "mixtures with many pairs: marginals of any solver, annealed",
        "AnnealedConstrainedKMeans": "the same for round clusters",
    },
    "of historical interest": {
        "LCVQE": "points of violated pairs pull centroids (Pelleg and Baras 2007)",
        "CVQE": "its predecessor (Davidson and Ravi 2005)",
        "MetricKMeans": "a metric learnt before clustering: RCA (Bar-Hillel et al. 2003)",
        "ConstrainedSpectral": "pairs change similarities (Kamvar et al. 2003)",
        "ConstrainedLinkage": "pairs change distances (Klein et al. 2002)",
    },
}
