"""Baselines: clustering of distances, similarities and metrics modified by pairs."""

import itertools

import numpy as np
import pytest
from sklearn.cluster import AgglomerativeClustering
from sklearn.datasets import load_iris
from sklearn.metrics import adjusted_rand_score

from inference_lab.clustering import (
    ConstrainedLinkage,
    ConstrainedSpectral,
    FlexibleSpectral,
    MetricKMeans,
    baselines,
)
from inference_lab.clustering.baselines import _impose
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
        # Floyd-Warshall, through all points: through the remaining ones no path is shorter.
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
        FlexibleSpectral(3, strength=0.5, random_state=0),
        MetricKMeans(3, n_init=3, random_state=0),
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


def blobs(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw points at the corners of a square, which two similarity cuts separate."""
    truth = np.arange(n) % 4
    corners = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0], [4.0, 4.0]])
    return corners[truth] + np.random.default_rng(0).normal(size=(n, 2)), truth


@pytest.mark.parametrize("side", ["left and right", "bottom and top"])
@pytest.mark.parametrize("n", [200, 400])
def test_few_points_choose_one_of_two_cuts(side, n):
    """Solve with all eigenvectors and by Lanczos iterations; a tenth of the answers is wrong.

    As in the paper's experiments, all pairs among some points are queried.
    """
    points, corner = blobs(n)
    truth = corner % 2 if side == "left and right" else corner // 2
    rng = np.random.default_rng(1)
    asked = np.array(list(itertools.combinations(rng.choice(n, 20, replace=False), 2)))
    same = truth[asked[:, 0]] == truth[asked[:, 1]]
    pairs = Constraints(asked[same], asked[~same], n_points=n).flip(0.1, rng)
    labels = FlexibleSpectral(2, random_state=0).fit(points, **pairs.fit_params()).labels_
    assert adjusted_rand_score(truth, labels) > 0.6


@pytest.mark.parametrize("n", [240, 320])
def test_vectors_solve_the_generalised_problem(n):
    """All eigenvectors, and from 300 points on those of Lanczos iterations, solve the equation."""
    points, corner = blobs(n)
    pairs = Constraints.sample(corner, 80, np.random.default_rng(0))
    model = FlexibleSpectral(4, random_state=0).fit(points, **pairs.fit_params())
    assert adjusted_rand_score(corner, model.labels_) > 0.8

    similar = np.eye(n)
    similar += baselines._similarities(points, 10, None).toarray()
    root = np.sqrt(similar.sum(axis=1))
    laplacian = np.eye(n) - similar / np.outer(root, root)
    links = np.zeros((n, n))
    for ends, sign in ((pairs.must_link, 1.0), (pairs.cannot_link, -1.0)):
        i, j = ends.T
        links[i, j] = links[j, i] = sign
    links /= np.outer(root, root)
    assert model.beta_ == pytest.approx(0.1 * np.linalg.eigvalsh(links)[-3])
    # The smallest positive generalised eigenvalues, from the non-symmetric problem.
    inverse = np.linalg.eigvals(
        np.linalg.solve(laplacian + 1e-5 * np.eye(n), links - model.beta_ * np.eye(n))
    ).real
    positive = 1.0 / inverse[inverse > 0]
    for value in model.eigenvalues_:
        assert abs(positive - value).min() < 1e-6 * value


def test_weights_of_pairs_are_confidences():
    points, corner = blobs(200)
    rng = np.random.default_rng(1)
    right = Constraints.sample(corner % 2, 40, rng).fit_params()
    other = Constraints.sample(corner // 2, 40, rng)
    both = {
        "must_link": np.concatenate([right["must_link"], other.must_link]),
        "cannot_link": np.concatenate([right["cannot_link"], other.cannot_link]),
    }
    for sure, truth in ((0.05, corner % 2), (20.0, corner // 2)):
        labels = (
            FlexibleSpectral(2, random_state=0)
            .fit(
                points,
                **both,
                ml_weight=np.repeat([1.0, sure], [len(right["must_link"]), len(other.must_link)]),
                cl_weight=np.repeat(
                    [1.0, sure], [len(right["cannot_link"]), len(other.cannot_link)]
                ),
            )
            .labels_
        )
        assert adjusted_rand_score(truth, labels) > 0.6


def test_without_pairs_flexible_cuts_are_normalised_cuts():
    points, _ = blobs(200)
    points[:, 0] *= 3.0
    model = FlexibleSpectral(2, random_state=0).fit(points)
    assert model.beta_ == 0.0 and model.eigenvalues_.tolist() == [0.0]
    assert adjusted_rand_score(points[:, 0] > 6.0, model.labels_) > 0.9


def test_rca_whitens_the_spread_within_components():
    rng = np.random.default_rng(0)
    spread = np.array([[4.0, 1.0], [1.0, 0.5]])
    points = rng.multivariate_normal([0, 0], spread, size=600)
    points += 50.0 * (np.arange(600) % 2)[:, None]
    chain = [(i, i + 2) for i in range(598)]
    model = MetricKMeans(2, ridge=1e-9, random_state=0).fit(points, must_link=chain)
    np.testing.assert_allclose(np.linalg.inv(model.metric_.weights), spread, rtol=0.2)
