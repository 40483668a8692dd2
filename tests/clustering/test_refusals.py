"""Settings and pairs that no estimator takes, each refused by its name."""

from typing import Any

import numpy as np
import pytest

from inference_lab.clustering import (
    AnnealedConstrainedKMeans,
    AnnealedConstrainedMixture,
    BregmanKMeans,
    ConstrainedGaussianMixture,
    COPKMeans,
    HMRFKMeans,
    RDPMeans,
    SeededKMeans,
    TVClust,
)


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (BregmanKMeans, {"n_clusters": 9}, "n_clusters=9"),
        (BregmanKMeans, {"n_clusters": 0}, "n_clusters must be at least 1"),
        (BregmanKMeans, {"n_clusters": 2.5}, "n_clusters must be an integer"),
        (BregmanKMeans, {"n_init": 0}, "n_init must be at least 1"),
        (BregmanKMeans, {"max_iter": 0}, "max_iter must be at least 1"),
        (BregmanKMeans, {"tol": -1.0}, "tol must be"),
        (BregmanKMeans, {"distortion": "manhattan"}, "'manhattan'"),
        (BregmanKMeans, {"init": "neighbourhoods"}, "init = 'neighbourhoods'"),
        (BregmanKMeans, {"init": [[0.0, 0.0]]}, r"got shape \(1, 2\)"),
        (BregmanKMeans, {"init": np.zeros((2, 5))}, r"got shape \(2, 5\)"),
        (BregmanKMeans, {"init": np.full((2, 2), np.nan)}, "finite"),
        (BregmanKMeans, {"empty_clusters": "drop"}, "empty_clusters = 'drop'"),
        (SeededKMeans, {"init": "neighbourhoods"}, "init = 'neighbourhoods'"),
        (HMRFKMeans, {"penalty": "hard"}, "penalty"),
        (HMRFKMeans, {"metric": "cubic"}, "metric"),
        (HMRFKMeans, {"metric_per_cluster": True}, "metric_per_cluster"),
        (HMRFKMeans, {"metric": "gradient", "metric_per_cluster": True}, "needs metric='diagonal'"),
        (HMRFKMeans, {"metric": "full", "distortion": "cosine"}, "gradient"),
        (HMRFKMeans, {"metric": "gradient", "distortion": "itakura-saito"}, "no weights"),
        (HMRFKMeans, {"closure": "maybe"}, "closure"),
        (HMRFKMeans, {"init": "far"}, "init"),
        (HMRFKMeans, {"e_step": "icn"}, "icm"),
        (COPKMeans, {"order": "sorted"}, "order = 'sorted'"),
        (COPKMeans, {"on_failure": "stop"}, "on_failure = 'stop'"),
        (COPKMeans, {"max_failures": 0}, "max_failures must be at least 1"),
        (COPKMeans, {"max_failures": 1.5}, "max_failures must be an integer"),
        (COPKMeans, {"init": "wagstaf"}, "init = 'wagstaf'"),
        (COPKMeans, {"init": np.zeros((3, 1))}, r"\(2, 2\)"),
        (RDPMeans, {"xi": -1.0}, "xi must be finite and at least 0, got -1"),
        (RDPMeans, {"xi_rate": 0.5}, "xi_rate must be finite and at least 1"),
        (RDPMeans, {"cluster_cost": "often"}, "cluster_cost = 'often' is unknown"),
        (RDPMeans, {"cluster_cost": -1.0}, "cluster_cost must be finite and at least 0, got -1"),
        (RDPMeans, {"squared": False, "distortion": "kl"}, "roots of squared Euclidean distances"),
        (RDPMeans, {"order": "sorted"}, "order = 'sorted' is unknown; allowed: 'random', 'seq"),
        (RDPMeans, {"e_step": "trw-s"}, "cannot label these points: trw-s knows nothing of label"),
        (AnnealedConstrainedKMeans, {"cooling": 1.0}, "cooling"),
        (AnnealedConstrainedKMeans, {"end_ratio": 0.0}, "end_ratio"),
        (AnnealedConstrainedKMeans, {"start_temperature": -1.0}, "start_temperature"),
        (AnnealedConstrainedKMeans, {"alpha": "best"}, "alpha = 'best' is unknown"),
        (AnnealedConstrainedMixture, {"cooling": 0.0}, "cooling"),
        (AnnealedConstrainedMixture, {"start_temperature": 0.5}, "must be finite and at least 1"),
        (ConstrainedGaussianMixture, {"covariance_type": "block"}, "covariance_type"),
        (ConstrainedGaussianMixture, {"prior": "flat"}, "prior"),
        (ConstrainedGaussianMixture, {"reg_covar": -1.0}, "reg_covar"),
        (ConstrainedGaussianMixture, {"alpha": 0.0}, "alpha must be above 0 and below 1, got 0"),
        (ConstrainedGaussianMixture, {"alpha": 1.0}, "alpha must be above 0 and below 1, got 1"),
        (ConstrainedGaussianMixture, {"alpha_mode": "median"}, "alpha_mode = 'median' is unknown"),
        (TVClust, {"alpha": 0.0}, "alpha must be finite and above 0"),
        (TVClust, {"p_prior": (0.0, 1.0)}, "p_prior must be positive"),
    ],
)
def test_bad_settings(kind: Any, settings: dict[str, Any], message: str) -> None:
    points = np.random.default_rng(0).random(size=(6, 2)) + 0.1
    with pytest.raises((ValueError, TypeError), match=message):
        kind(**{"n_clusters": 2, **settings}).fit(points)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"must_link": [(0, 0)]}, ValueError, "pairs a point with itself"),
        ({"cannot_link": [(0, 10)]}, ValueError, r"cannot_link\[0, 1\] = 10"),
        ({"cannot_link": [(-1, 2)]}, ValueError, "-1"),
        ({"must_link": [(0, 1)], "ml_weight": -1.0}, ValueError, "ml_weight = -1"),
        ({"must_link": [(0, 1)], "ml_weight": [1.0, 2.0]}, ValueError, "ml_weight"),
        ({"must_link": [(0.5, 1)]}, TypeError, "must_link"),
        ({"must_link": [0, 1, 2]}, ValueError, "must_link has shape"),
        ({"must_link": [(0, 1)], "sample_ids": [1, 2]}, ValueError, "sample_ids"),
    ],
)
@pytest.mark.parametrize("kind", [HMRFKMeans, COPKMeans, ConstrainedGaussianMixture])
def test_bad_constraints(
    kind: Any, given: dict[str, Any], error: type[Exception], message: str
) -> None:
    points = np.random.default_rng(0).random(size=(10, 2))
    with pytest.raises(error, match=message):
        kind(2).fit(points, **given)
