"""Clusterings of distances, similarities and metrics that pairs have changed."""

import numpy as np
import pytest
from sklearn.cluster import AgglomerativeClustering
from sklearn.datasets import load_iris
from sklearn.metrics import adjusted_rand_score

from inference_lab.clustering import (
    BregmanKMeans,
    ConstrainedLinkage,
    ConstrainedSpectral,
    MetricKMeans,
)
from inference_lab.clustering.transformed import _impose, _nearest_metric
from inference_lab.constraints import Constraints

IRIS, TRUTH = load_iris(return_X_y=True)


def test_distances_are_shortest_ways_through_must_links():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(8, 2))
    gaps = np.linalg.norm(points[:, None] - points, axis=2)
    pairs = Constraints([[0, 1], [1, 2], [5, 6]], [[3, 4]], n_points=8)
    expected = gaps.copy()
    expected[tuple(pairs.must_link.T)] = expected[tuple(pairs.must_link[:, ::-1].T)] = 0.0
    for _ in range(3):
        # Floyd and Warshall, through all points: through the others no way is shorter.
        for k in range(8):
            expected = np.minimum(expected, expected[:, [k]] + expected[[k]])
    _impose(gaps, pairs)
    far = gaps[3, 4]
    gaps[3, 4] = gaps[4, 3] = expected[3, 4]
    np.testing.assert_allclose(gaps, expected)
    assert far == pytest.approx(expected.max() + 1.0)


def test_without_pairs_it_is_complete_linkage():
    theirs = AgglomerativeClustering(3, linkage="complete").fit(IRIS)
    ours = ConstrainedLinkage(3).fit(IRIS)
    assert adjusted_rand_score(theirs.labels_, ours.labels_) == 1.0


@pytest.mark.parametrize(
    "model",
    [
        ConstrainedLinkage(3),
        ConstrainedSpectral(3, random_state=0),
        MetricKMeans(3, metric="rca", n_init=3, random_state=0),
        MetricKMeans(3, metric="itml", n_init=3, random_state=0),
    ],
    ids=repr,
)
def test_pairs_help(model):
    pairs = Constraints.sample(TRUTH, 300, np.random.default_rng(0))
    without = adjusted_rand_score(TRUTH, model.fit(IRIS).labels_)
    helped = adjusted_rand_score(TRUTH, model.fit(IRIS, **pairs.fit_params()).labels_)
    assert helped > without + 0.05
    # Pairs of weight zero do not count.
    nothing = model.fit(IRIS, **pairs.with_weights(0.0, 0.0).fit_params())
    assert adjusted_rand_score(TRUTH, nothing.labels_) == pytest.approx(without)


def test_similarities_are_sparse_and_changed_where_pairs_are():
    points = np.random.default_rng(0).normal(size=(400, 2))
    pairs = Constraints([[0, 1], [2, 3]], [[4, 5]], n_points=400)
    model = ConstrainedSpectral(2, random_state=0).fit(points, **pairs.fit_params())
    assert 1.0 == pytest.approx(model.eigenvalues_[0]) and model.eigenvalues_[1] < 1.0


def test_rca_whitens_the_spread_within_components():
    rng = np.random.default_rng(0)
    spread = np.array([[4.0, 1.0], [1.0, 0.5]])
    points = rng.multivariate_normal([0, 0], spread, size=600)
    points += 50.0 * (np.arange(600) % 2)[:, None]
    chain = [(i, i + 2) for i in range(598)]
    model = MetricKMeans(2, ridge=1e-9, random_state=0).fit(points, must_link=chain)
    np.testing.assert_allclose(np.linalg.inv(model.metrics_[0].weights), spread, rtol=0.2)


def test_itml_moves_distances_to_their_bounds():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(40, 3))
    pairs = Constraints([[0, 1], [2, 3]], [[4, 5], [6, 7]], n_points=40)
    metric = _nearest_metric(points, pairs, 1e6, 200, rng)
    assert np.linalg.eigvalsh(metric).min() > 0

    def squares(ends):
        gaps = points[ends[:, 0]] - points[ends[:, 1]]
        return np.einsum("im,mk,ik->i", gaps, metric, gaps)

    spread = ((points[:, None] - points) ** 2).sum(axis=2)[np.triu_indices(40, 1)]
    assert squares(pairs.must_link).max() < 1.3 * np.percentile(spread, 5)
    assert squares(pairs.cannot_link).min() > 0.7 * np.percentile(spread, 95)
    same = MetricKMeans(3, metric="itml", random_state=0).fit(IRIS)
    plain = BregmanKMeans(3, n_init=5, random_state=0).fit(IRIS)
    assert same.objective_ == pytest.approx(plain.objective_, rel=0.9)
