"""Starts of a fit: distributed over processes, and compared on a sample of many points."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from clusterers import KINDS, estimator_of

from inference_lab.clustering import MPCKMeans, PCKMeans, hmrf_kmeans
from inference_lab.clustering.hmrf import HMRF
from inference_lab.clustering.supervision import Supervision
from inference_lab.constraints import Constraints

SHARED = [kind for kind in KINDS if "n_jobs" in inspect.signature(kind).parameters]


@pytest.mark.parametrize("kind", SHARED, ids=lambda k: k.__name__)
def test_processes_that_share_starts_find_the_same(kind: Any) -> None:
    assert len(SHARED) > 10
    rng = np.random.default_rng(0)
    points = rng.normal(size=(60, 2)) + 3.0 * rng.integers(0, 2, size=(60, 1))
    one, two = (
        estimator_of(kind, n_init=3, n_jobs=n, max_iter=5, random_state=1, cluster_cost=10.0).fit(
            points
        )
        for n in (None, 2)
    )
    assert one.labels_.tolist() == two.labels_.tolist()
    assert one.objective_ == two.objective_


@pytest.mark.parametrize("kind", [PCKMeans, MPCKMeans])
def test_many_points_are_seen_by_one_start(monkeypatch: Any, kind: Any) -> None:
    """The work grows as for one start, unless more starts are requested."""
    n = 21_000
    seen: list[int] = []

    class Counted(HMRF):
        def __init__(self, points: Any, *arguments: Any, **named: Any) -> None:
            seen.append(len(points))
            super().__init__(points, *arguments, **named)

    monkeypatch.setattr(hmrf_kmeans, "HMRF", Counted)
    rng = np.random.default_rng(0)
    labels = rng.integers(4, size=n)
    points = 50.0 * np.eye(4)[labels] + rng.normal(size=(n, 4)) + 1000.0
    pairs = Constraints.sample(labels, 300, rng).fit_params()
    model = kind(4, random_state=0).fit(points, **pairs)
    assert max(seen[:10]) < 10_000
    assert seen[10:] == [n]
    seen.clear()
    everyone = kind(4, random_state=0, n_init=2).fit(points, **pairs)
    assert seen == [n] * 2
    assert model.objective_ == pytest.approx(everyone.objective_)


def test_a_sample_keeps_pairs_and_known_labels() -> None:
    rng = np.random.default_rng(0)
    pairs = Constraints.sample(np.zeros(1000, dtype=int), 1000, rng)
    partial_labels = np.full(1000, -1)
    partial_labels[::100] = 2
    supervision = Supervision(pairs, partial_labels, None)
    rows = supervision.sample(200, rng)
    assert 200 <= rows.size <= 210
    assert np.isin(np.flatnonzero(partial_labels >= 0), rows).all()
    # A fifth of the points holds both ends of one random pair in 25.
    assert len(supervision.only(rows).constraints) > 3 * 1000 / 25
