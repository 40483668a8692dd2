"""Processes that share the starts of a fit come to what one comes to."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from clusterers import KINDS, made

SHARED = [kind for kind in KINDS if "n_jobs" in inspect.signature(kind).parameters]


@pytest.mark.parametrize("kind", SHARED, ids=lambda k: k.__name__)
def test_processes_that_share_starts_find_the_same(kind: Any) -> None:
    assert len(SHARED) > 10
    rng = np.random.default_rng(0)
    points = rng.normal(size=(60, 2)) + 3.0 * rng.integers(0, 2, size=(60, 1))
    one, two = (
        made(kind, n_init=3, n_jobs=n, max_iter=5, random_state=1, cluster_cost=10.0).fit(points)
        for n in (None, 2)
    )
    assert one.labels_.tolist() == two.labels_.tolist()
    assert one.objective_ == two.objective_
