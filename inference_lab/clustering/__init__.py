"""Constrained clustering: EM whose E-step is any solver, as scikit-learn estimators.

>>> from inference_lab.clustering import HMRFKMeans
>>> HMRFKMeans(2, e_step="loopy-bp", random_state=0).fit([[0.0], [1.0], [5.0]]).n_iter_
2
"""

from inference_lab.clustering.active import ExploreConsolidate
from inference_lab.clustering.annealed import AnnealedConstrainedKMeans, AnnealedConstrainedMixture
from inference_lab.clustering.baselines import (
    ConstrainedLinkage,
    ConstrainedSpectral,
    FlexibleSpectral,
    MetricKMeans,
)
from inference_lab.clustering.bregman_kmeans import BregmanKMeans, SphericalKMeans
from inference_lab.clustering.certificate import Certificate, CertificateStep, certify, improve
from inference_lab.clustering.cluster_cv import ConstrainedClusterCV, SearchStoppedWarning
from inference_lab.clustering.cluster_table import ClusterReport, cluster_table
from inference_lab.clustering.cop_kmeans import COPKMeans
from inference_lab.clustering.correlation_clustering import CorrelationClustering
from inference_lab.clustering.dp_means import DPMeans, RDPMeans
from inference_lab.clustering.em import HalfStep
from inference_lab.clustering.hmrf_kmeans import HMRFKMeans, MPCKMeans, PCKMeans
from inference_lab.clustering.kernel_kmeans import KernelHMRFKMeans
from inference_lab.clustering.large_data import fit_on_sample
from inference_lab.clustering.mixture import ConstrainedGaussianMixture
from inference_lab.clustering.pair_warnings import (
    ConstraintsNotMetWarning,
    ContradictoryPairsWarning,
    MergedClassesWarning,
    PairWeightWarning,
    RepeatedPairsWarning,
)
from inference_lab.clustering.saved_clusters import SavedClusters
from inference_lab.clustering.seeded import ConstrainedKMeans, SeededKMeans
from inference_lab.clustering.size_bounds import SizeConstrainedKMeans
from inference_lab.clustering.tvclust import TVClust
from inference_lab.clustering.vector_quantisation import CVQE, LCVQE
from inference_lab.clustering.violations import Violations
from inference_lab.constraints.hard_pairs import InfeasibleConstraintsError
from inference_lab.constraints.pair_answers import LogOdds
from inference_lab.data.table_features import TableFeatures
from inference_lab.distortions.distortions import (
    Bregman,
    Cosine,
    Distortion,
    IDivergence,
    ItakuraSaito,
    KullbackLeibler,
    SquaredEuclidean,
)
from inference_lab.distortions.metric_learning import (
    ClosedForm,
    DegenerateMetricWarning,
    GradientStep,
    MetricLearner,
)
from inference_lab.reporting.cluster_profile import ClusterProfile, Stability

__all__ = [
    "CVQE",
    "LCVQE",
    "AnnealedConstrainedKMeans",
    "AnnealedConstrainedMixture",
    "Bregman",
    "BregmanKMeans",
    "COPKMeans",
    "Certificate",
    "CertificateStep",
    "ClosedForm",
    "ClusterProfile",
    "ClusterReport",
    "ConstrainedClusterCV",
    "ConstrainedGaussianMixture",
    "ConstrainedKMeans",
    "ConstrainedLinkage",
    "ConstrainedSpectral",
    "ConstraintsNotMetWarning",
    "ContradictoryPairsWarning",
    "CorrelationClustering",
    "Cosine",
    "DPMeans",
    "DegenerateMetricWarning",
    "Distortion",
    "ExploreConsolidate",
    "FlexibleSpectral",
    "GradientStep",
    "HMRFKMeans",
    "HalfStep",
    "IDivergence",
    "InfeasibleConstraintsError",
    "ItakuraSaito",
    "KernelHMRFKMeans",
    "KullbackLeibler",
    "LogOdds",
    "MPCKMeans",
    "MergedClassesWarning",
    "MetricKMeans",
    "MetricLearner",
    "PCKMeans",
    "PairWeightWarning",
    "RDPMeans",
    "RepeatedPairsWarning",
    "SavedClusters",
    "SearchStoppedWarning",
    "SeededKMeans",
    "SizeConstrainedKMeans",
    "SphericalKMeans",
    "SquaredEuclidean",
    "Stability",
    "TVClust",
    "TableFeatures",
    "Violations",
    "certify",
    "cluster_table",
    "fit_on_sample",
    "improve",
]


def __dir__() -> list[str]:
    """List the public names."""
    return __all__
