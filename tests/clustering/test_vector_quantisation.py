"""CVQE and LCVQE: against plain Python, brute force, and k-means without pairs."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from inference_lab.clustering import CVQE, LCVQE
from inference_lab.clustering.vector_quantisation import settle_jointly
from inference_lab.constraints import Constraints

NONE = np.empty((0, 2), dtype=np.int64)
NO_WEIGHT = np.empty(0)


def drawn(seed: int, n: int = 40, pairs: int = 30) -> tuple[np.ndarray, Constraints]:
    """Draw points of three groups and pairs, a fifth of them wrong."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=n)
    points = rng.normal(size=(n, 2)) + 2.0 * truth[:, None]
    return points, Constraints.sample(truth, pairs, rng).flip(0.2, rng)


def printed(points: Any, k: int, centroids: Any, ml: Any, cl: Any, sweeps: int) -> Any:
    """Run LCVQE as in the paper, with lists of pulls; return labels, centroids and objective."""
    for _ in range(sweeps):
        cost = ((points[:, None] - centroids) ** 2).sum(axis=2)
        labels = cost.argmin(axis=1)
        friends = [[] for _ in range(k)]
        strangers = [[] for _ in range(k)]
        for a, b in ml:
            j, n = labels[a], labels[b]
            if j == n:
                continue
            ways = (
                (cost[a, j] + cost[b, n]) / 2 + (cost[a, n] + cost[b, j]) / 4,
                (cost[a, j] + cost[b, j]) / 2,
                (cost[a, n] + cost[b, n]) / 2,
            )
            way = int(np.argmin(ways))
            if way == 0:
                friends[j].append(b)
                friends[n].append(a)
            labels[a], labels[b] = ((j, n), (j, j), (n, n))[way]
        for a, b in cl:
            j = labels[a]
            if labels[b] != j:
                continue
            r, rest = (b, a) if cost[b, j] > cost[a, j] else (a, b)
            m = min((h for h in range(k) if h != j), key=lambda h: cost[r, h])
            keep = (cost[a, j] + cost[b, j] + cost[r, m]) / 2
            if keep <= (cost[rest, j] + cost[r, m]) / 2:
                strangers[m].append(r)
            else:
                labels[r] = m
        objective = 0.0
        after = centroids.copy()
        for h in range(k):
            members = points[labels == h]
            total = len(members) + len(friends[h]) / 2 + len(strangers[h])
            summed = members.sum(axis=0) + points[friends[h]].sum(axis=0) / 2
            if total:
                after[h] = (summed + points[strangers[h]].sum(axis=0)) / total
        centroids = after
        cost = ((points[:, None] - centroids) ** 2).sum(axis=2)
        for h in range(k):
            objective += cost[labels == h, h].sum() / 2
            objective += cost[friends[h], h].sum() / 4 + cost[strangers[h], h].sum() / 2
    return labels, centroids, objective


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("twice", [False, True])
def test_lcvqe_is_the_printed_algorithm(seed, twice):
    points, constraints = drawn(seed)
    ml, cl = constraints.must_link, constraints.cannot_link
    start = points[[0, 1, 2]]
    model = LCVQE(3, init=start, paired_twice=twice, max_iter=4)
    model.fit(points, must_link=ml, cannot_link=cl, ml_weight=1.0, cl_weight=1.0)
    if twice:
        ml = [pair for a, b in ml.tolist() for pair in ((a, b), (b, a))]
        cl = [pair for a, b in cl.tolist() for pair in ((a, b), (b, a))]
    labels, centroids, objective = printed(points, 3, start, ml, cl, model.n_iter_)
    np.testing.assert_array_equal(model.labels_, labels)
    np.testing.assert_allclose(model.cluster_centers_, centroids, atol=1e-9)
    assert model.objective_ == pytest.approx(objective)


@pytest.mark.parametrize("seed", range(6))
def test_pair_gets_its_cheapest_clusters(seed):
    """CVQE minimises over all pairs of clusters."""
    rng = np.random.default_rng(seed)
    k = 4
    centroids, points = rng.normal(size=(k, 2)), rng.normal(size=(2, 2))
    cost = ((points[:, None] - centroids) ** 2).sum(axis=2)
    between = ((centroids[:, None] - centroids) ** 2).sum(axis=2)
    other = (between + np.diag(np.full(k, np.inf))).min(axis=1)
    pair, weight = np.array([[0, 1]]), np.array([rng.uniform(0.1, 3.0)])
    for must in (True, False):

        def price(h: int, g: int, must: bool = must) -> float:
            extra = between[h, g] if must else other[h] * (h == g)
            return float(cost[0, h] + cost[1, g] + weight[0] * extra)

        lists = (pair, weight, NONE, NO_WEIGHT) if must else (NONE, NO_WEIGHT, pair, weight)
        labels = cost.argmin(axis=1)
        settle_jointly(cost, between, other, *lists, labels)
        best = min(itertools.product(range(k), repeat=2), key=lambda way: price(*way))
        assert tuple(labels) == best


def test_centroids_of_cvqe_by_hand():
    """Two linked points with a wide gap between them pull the centroids towards each other."""
    points = np.array([[0.0], [0.0], [0.0], [1.0], [1.0], [1.0]])
    model = CVQE(2, init=[[0.0], [1.0]], max_iter=1)
    model.fit(points, must_link=[(0, 3)], ml_weight=0.5)
    assert model.violations_.must_link == 1
    np.testing.assert_allclose(model.cluster_centers_.ravel(), [0.5 / 3.5, 3.0 / 3.5])
    joined = CVQE(2, init=[[0.0], [1.0]], max_iter=1)
    joined.fit(points, cannot_link=[(0, 1)], cl_weight=0.5)
    np.testing.assert_allclose(joined.cluster_centers_.ravel(), [0.5 / 3.5, 1.0])
    heavy = CVQE(2, init=[[0.0], [1.0]], max_iter=1).fit(points, cannot_link=[(0, 1)], cl_weight=2)
    assert heavy.violations_.cannot_link == 0


@pytest.mark.parametrize("estimator", [LCVQE, CVQE])
def test_right_pairs_help(estimator):
    points, _ = drawn(3, n=60)
    truth = np.random.default_rng(3).integers(3, size=60)
    right = Constraints.sample(truth, 300, np.random.default_rng(0))

    def share(**pairs: Any) -> float:
        labels = estimator(3, n_init=5, random_state=0).fit_predict(points, **pairs)
        return float(((labels[:, None] == labels) == (truth[:, None] == truth)).mean())

    assert share(**right.fit_params()) > share() + 0.05
