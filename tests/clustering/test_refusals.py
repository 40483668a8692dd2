"""Settings and pairs that no estimator accepts, each refused by name."""

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from inference_lab.clustering import (
    CVQE,
    LCVQE,
    AnnealedConstrainedKMeans,
    AnnealedConstrainedMixture,
    BregmanKMeans,
    ConstrainedGaussianMixture,
    COPKMeans,
    FlexibleSpectral,
    HMRFKMeans,
    KernelHMRFKMeans,
    RDPMeans,
    SeededKMeans,
    SizeConstrainedKMeans,
    TVClust,
)

#: Asymmetric similarities.
UNLIKE = np.triu(np.ones((4, 4)))


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (BregmanKMeans, {"n_clusters": 9}, "n_clusters=9"),
        (BregmanKMeans, {"n_clusters": 0}, "n_clusters must be at least 1"),
        (BregmanKMeans, {"n_clusters": 2.5}, r"n_clusters must be at least 1, got 2\.5"),
        (BregmanKMeans, {"n_init": 0}, "n_init must be at least 1"),
        (BregmanKMeans, {"max_iter": 0}, "max_iter must be at least 1"),
        (BregmanKMeans, {"tol": -1.0}, "tol must be"),
        (BregmanKMeans, {"distortion": "manhattan"}, "'manhattan'"),
        (
            BregmanKMeans,
            {"init": "neighbourhoods"},
            "init must be .* or perturbed, got",
        ),
        (BregmanKMeans, {"init": [[0.0, 0.0]]}, r"got shape \(1, 2\)"),
        (BregmanKMeans, {"init": np.zeros((2, 5))}, r"got shape \(2, 5\)"),
        (BregmanKMeans, {"init": np.full((2, 2), np.nan)}, "finite"),
        (
            BregmanKMeans,
            {"empty_clusters": "drop"},
            "empty_clusters must be reseed or keep",
        ),
        (SeededKMeans, {"init": "neighbourhoods"}, "init must be .*, got 'neighbourhoods'"),
        (HMRFKMeans, {"penalty": "hard"}, "penalty"),
        (HMRFKMeans, {"metric": "cubic"}, "metric"),
        (HMRFKMeans, {"metric": "full", "distortion": "cosine"}, "gradient"),
        (HMRFKMeans, {"closure": "maybe"}, "closure"),
        (HMRFKMeans, {"init": "far"}, "init"),
        (HMRFKMeans, {"e_step": "icn"}, "icm"),
        (HMRFKMeans, {"e_step_time_limit": 0}, "e_step_time_limit must be above 0, got 0"),
        (
            COPKMeans,
            {"order": "sorted"},
            "order must be random or given",
        ),
        (COPKMeans, {"max_failures": 0}, "max_failures must be at least 1"),
        (COPKMeans, {"max_failures": 1.5}, r"max_failures must be at least 1, got 1\.5"),
        (COPKMeans, {"init": "wagstaf"}, "init = 'wagstaf'"),
        (COPKMeans, {"init": np.zeros((3, 1))}, r"\(2, 2\)"),
        (RDPMeans, {"xi": -1.0}, "xi must be auto or finite and at least 0, got -1"),
        (RDPMeans, {"xi_rate": 0.5}, "xi_rate must be finite and at least 1"),
        (RDPMeans, {"xi_rate": 2.0}, "needs a number for xi"),
        (RDPMeans, {"cluster_cost": "often"}, "cluster_cost must be .* or finite and at least 0"),
        (RDPMeans, {"cluster_cost": -1.0}, "finite and at least 0, got -1"),
        (RDPMeans, {"squared": False, "distortion": "kl"}, "roots of squared Euclidean distances"),
        (RDPMeans, {"order": "sorted"}, "order must be random or sequential"),
        (AnnealedConstrainedKMeans, {"cooling": 1.0}, "cooling"),
        (AnnealedConstrainedKMeans, {"end_ratio": 0.0}, "end_ratio"),
        (AnnealedConstrainedKMeans, {"start_temperature": -1.0}, "start_temperature"),
        (
            AnnealedConstrainedKMeans,
            {"alpha": "best"},
            "alpha must be fewest-violations or",
        ),
        (AnnealedConstrainedMixture, {"cooling": 0.0}, "cooling"),
        (AnnealedConstrainedMixture, {"start_temperature": 0.5}, "must be finite and at least 1"),
        (ConstrainedGaussianMixture, {"covariance_type": "block"}, "covariance_type"),
        (ConstrainedGaussianMixture, {"prior": "flat"}, "prior"),
        (ConstrainedGaussianMixture, {"reg_covar": -1.0}, "reg_covar"),
        (ConstrainedGaussianMixture, {"alpha": 0.0}, "or above 0 and below 1, got 0"),
        (ConstrainedGaussianMixture, {"alpha": 1.0}, "or above 0 and below 1, got 1"),
        (
            ConstrainedGaussianMixture,
            {"alpha_mode": "median"},
            "alpha_mode must be sum or",
        ),
        (TVClust, {"alpha": 0.0}, "alpha must be finite and above 0"),
        (TVClust, {"p_prior": (0.0, 1.0)}, "p_prior must be positive"),
        (KernelHMRFKMeans, {"kernel": "gaussian"}, "kernel must be .*, got 'gaussian'"),
        (KernelHMRFKMeans, {"kernel": 3}, "kernel must be a name or callable"),
        (KernelHMRFKMeans, {"kernel": lambda x, y: np.nan}, "kernel of points 0 and 0 is nan"),
        (KernelHMRFKMeans, {"kernel": "precomputed"}, r"shape \(6, 2\)"),
        (KernelHMRFKMeans, {"init": "k-means++"}, "init must be auto, spectral or random"),
        (KernelHMRFKMeans, {"init": [0, 1]}, r"init has shape \(2,\)"),
        (KernelHMRFKMeans, {"init": [0, 1, 0, 2, 0, 0]}, r"init\[3\] = 2 is not a cluster"),
        (KernelHMRFKMeans, {"init": np.full(6, 0.5)}, r"init\[0\] = 0.5 is not an integer"),
        (SizeConstrainedKMeans, {"min_size": 4}, "at least min_size = 4 points need 8 points"),
        (SizeConstrainedKMeans, {"max_size": 2}, "at most max_size = 2 points hold 4 points"),
        (SizeConstrainedKMeans, {"min_size": -1}, "min_size must be at least 0"),
        (SizeConstrainedKMeans, {"max_size": -2.5}, "max_size must be at least 0"),
        (
            SizeConstrainedKMeans,
            {"min_size": 4, "max_size": 3},
            "min_size = 4 of cluster 0 is above max_size = 3",
        ),
    ],
)
def test_bad_settings(kind: Any, settings: dict[str, Any], message: str) -> None:
    points = np.random.default_rng(0).random(size=(6, 2)) + 0.1
    with pytest.raises((ValueError, TypeError), match=message):
        kind(**{"n_clusters": 2, **settings}).fit(points)


@pytest.mark.parametrize(
    ("kind", "settings", "points", "message"),
    [
        (BregmanKMeans, {"distortion": "kl"}, [[1.0], [-2.0]], r"X\[1, 0\] = -2.0"),
        (BregmanKMeans, {}, [[1.0], [np.inf]], "infinity"),
        (BregmanKMeans, {}, np.ones(3), "2D array"),
        (KernelHMRFKMeans, {}, [[0.0], [np.nan]], "NaN"),
        (KernelHMRFKMeans, {"kernel": "precomputed"}, UNLIKE, r"X\[0, 1\] = 1"),
        (
            KernelHMRFKMeans,
            {"kernel": "precomputed"},
            csr_array(UNLIKE),
            r"X\[0, 1\] = 1 but X\[1, 0\] = 0",
        ),
    ],
)
def test_bad_data(kind: Any, settings: dict[str, Any], points: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(2, **settings).fit(points)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"must_link": [(0, 0)]}, ValueError, "pairs a point with itself"),
        ({"cannot_link": [(0, 10)]}, ValueError, r"cannot_link\[0, 1\] = 10"),
        ({"must_link": [(0, 1)], "ml_weight": -1.0}, ValueError, "ml_weight = -1"),
        ({"must_link": [(0.5, 1)]}, TypeError, "must_link"),
        ({"must_link": [(0, 1)], "sample_ids": [1, 2]}, ValueError, "sample_ids"),
        ({"partial_labels": [0, 1]}, ValueError, r"partial_labels has shape \(2,\); shape \(10,\)"),
        ({"partial_labels": np.zeros((10, 1), int)}, ValueError, r"shape \(10, 1\)"),
        ({"partial_labels": np.full(10, 2)}, ValueError, r"labels\[0\] = 2 is not a cluster"),
        (
            {"partial_labels": np.full(10, -2)},
            ValueError,
            r"partial_labels\[0\] = -2 is not a cluster",
        ),
        ({"partial_labels": np.full(10, 0.5)}, TypeError, r"partial_labels\[0\] = 0.5 is not"),
        ({"partial_labels": ["a"] * 10}, TypeError, r"partial_labels\[0\] = 'a' is not"),
        ({"partial_labels": [True] * 10}, TypeError, r"partial_labels\[0\] = True is not"),
        ({"sample_weight": np.ones(3)}, ValueError, "sample_weight has shape"),
        ({"sample_weight": np.r_[-1.0, np.ones(9)]}, ValueError, r"sample_weight\[0\] = -1"),
        ({"sample_weight": np.r_[np.ones(9), np.inf]}, ValueError, r"sample_weight\[9\] = inf"),
        ({"sample_weight": np.zeros(10)}, ValueError, "zero everywhere"),
        ({"sample_weight": np.r_[1.0, np.zeros(9)]}, ValueError, "n_samples=1 should be >="),
    ],
)
@pytest.mark.parametrize("kind", [HMRFKMeans, COPKMeans, ConstrainedGaussianMixture, SeededKMeans])
def test_bad_supervision(
    kind: Any, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    if kind is SeededKMeans and not arguments.keys() <= {"partial_labels", "sample_weight"}:
        error, message = TypeError, "unexpected keyword argument"
    points = np.random.default_rng(0).random(size=(10, 2))
    with pytest.raises(error, match=message):
        kind(2).fit(points, **arguments)


@pytest.mark.parametrize(
    "kind", [CVQE, FlexibleSpectral, KernelHMRFKMeans, LCVQE, RDPMeans, TVClust]
)
def test_hard_pairs_are_refused_by_estimators_that_cannot_keep_them(kind: Any) -> None:
    for name, short in (("must_link", "ml"), ("cannot_link", "cl")):
        message = rf"{short}_weight must be finite here, but that of the pair \(0, 1\) is inf"
        with pytest.raises(ValueError, match=message):
            kind().fit(np.eye(4), **{name: [(0, 1)], f"{short}_weight": np.inf})


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (ConstrainedGaussianMixture(2, e_step="ilp"), "ilp"),
        (RDPMeans(2, e_step="trw-s"), "cannot label these points: trw-s does not support label"),
    ],
)
def test_solvers_that_cannot_take_the_e_step(model: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model.fit(np.eye(4), must_link=[(0, 1)])
