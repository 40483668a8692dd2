"""Processes that share the starts of a fit come to what one comes to."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from inference_lab import clustering

#: All that keep the best of several starts found by one method.
SHARED = [
    name
    for name in clustering.__all__
    if hasattr(getattr(clustering, name), "get_params")
    and "n_jobs" in inspect.signature(getattr(clustering, name)).parameters
]


def test_the_estimators_that_share_starts() -> None:
    assert {"BregmanKMeans", "HMRFKMeans", "PCKMeans", "TVClust"} <= set(SHARED)


@pytest.mark.parametrize("name", SHARED)
def test_processes_that_share_starts_find_the_same(name: str) -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(60, 2)) + 3.0 * rng.integers(0, 2, size=(60, 1))
    estimator = getattr(clustering, name)
    needed = {"cluster_cost": 10.0} if name in ("DPMeans", "RDPMeans") else {}
    fits = [
        estimator(n_init=3, n_jobs=n, max_iter=5, random_state=1, **needed).fit(points)
        for n in (None, 2)
    ]
    one, two = fits
    assert one.labels_.tolist() == two.labels_.tolist()
    assert one.objective_ == two.objective_
