"""Initial centroids: the three regimes of the constraint rule, K-means, class means, distances."""

from __future__ import annotations

import tracemalloc
from typing import get_args

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_lab.constraints import Constraints
from inference_lab.constraints.centroids import (
    Perturbation,
    constraint_centroids,
    kmeans_centroids,
    squared_distances,
)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def groups_at(*places: tuple[float, int]) -> tuple[npt.NDArray[np.float64], Constraints]:
    """Must-link neighbourhoods on a line: each place is (coordinate, number of points)."""
    features: list[list[float]] = []
    pairs: list[list[int]] = []
    for where, size in places:
        begin = len(features)
        features += [[where]] * size
        pairs += [[begin, i] for i in range(begin + 1, begin + size)]
    return np.array(features, dtype=float), Constraints(pairs, None, n_points=len(features))


# --- constraint_centroids ---------------------------------------------------------------------


def test_as_many_neighbourhoods_as_clusters_gives_their_centroids() -> None:
    x = np.array([[0.0, 0.0], [2.0, 2.0], [9.0, 0.0], [9.0, 3.0], [9.0, 6.0], [50.0, 50.0]])
    c = Constraints([[0, 1], [2, 3], [3, 4]], None, n_points=6)
    generator = rng()
    assert [[9.0, 3.0], [1.0, 1.0]] == constraint_centroids(x, c, 2, generator).tolist()
    assert rng().random() == generator.random()  # no randomness was used


@pytest.mark.parametrize("perturbation", get_args(Perturbation))
def test_fewer_neighbourhoods_are_filled_with_perturbed_global_centroids(
    perturbation: Perturbation,
) -> None:
    x = rng(1).normal([10.0, -4.0], [1.0, 3.0], size=(40, 2))
    c = Constraints([[0, 1]], None, n_points=40)
    many = constraint_centroids(x, c, 40, rng(), perturbation=perturbation)
    assert (40, 2) == many.shape
    assert x[:2].mean(axis=0) == pytest.approx(many[0])
    centre = x.mean(axis=0)
    reach = 0.35 * (np.abs(centre) if perturbation == "multiplicative" else x.std(axis=0))
    offset = np.abs(many[1:] - centre)
    assert (offset <= reach).all()
    assert (offset.max(axis=0) > 0.8 * reach).all()  # the whole interval is used
    assert 39 == len(np.unique(many[1:, 0]))


def test_additive_perturbation_works_on_centred_data_where_multiplicative_cannot() -> None:
    x = np.array([[-1.0, -2.0], [1.0, 2.0]])
    none = Constraints(None, None, n_points=2)
    multiplicative = constraint_centroids(x, none, 2, rng())
    additive = constraint_centroids(x, none, 2, rng(), perturbation="additive")
    assert [[0.0, 0.0], [0.0, 0.0]] == multiplicative.tolist()
    assert (additive[0] != additive[1]).all()


def test_farthest_first_starts_at_the_largest_and_weighs_by_size() -> None:
    # From the 4 points at 0: product 4*3*4^2 = 192 against 4*2*4.5^2 = 162 and 4*2*1 = 8.
    x, c = groups_at((0.0, 4), (4.0, 3), (-4.5, 2), (1.0, 2))
    assert [[0.0], [4.0]] == constraint_centroids(x, c, 2, rng()).tolist()
    assert [[0.0], [4.0], [-4.5]] == constraint_centroids(x, c, 3, rng()).tolist()


def test_farthest_first_takes_the_minimum_over_the_visited() -> None:
    # 9.5 is far from 0 but close to 10, which is visited; 5 is the farthest from both.
    x, c = groups_at((0.0, 3), (10.0, 2), (9.5, 2), (5.0, 2))
    assert [[0.0], [10.0], [5.0]] == constraint_centroids(x, c, 3, rng()).tolist()


def test_ties_go_to_the_centroid_farthest_from_the_global_one() -> None:
    # Equal sizes: the start is the outermost neighbourhood, not the first one.
    x, c = groups_at((0.0, 2), (1.0, 2), (-9.0, 2))
    assert [-9.0] == constraint_centroids(x, c, 1, rng())[0].tolist()
    # From 0, +-2 tie; the lone points move the global centroid to the right, so -2 is farther.
    x, c = groups_at((0.0, 3), (2.0, 2), (-2.0, 2), (5.0, 1))
    assert [[0.0], [-2.0]] == constraint_centroids(x, c, 2, rng()).tolist()


def test_distances_that_differ_by_rounding_only_are_ties() -> None:
    # (0.1 + 0.2)^2 exceeds 0.3^2 in the last digit; the lone point makes +0.3 the farther one.
    x, c = groups_at((0.0, 3), (0.3, 2), (-(0.1 + 0.2), 2), (-5.0, 1))
    assert [[0.0], [0.3]] == constraint_centroids(x, c, 2, rng()).tolist()


def test_coinciding_neighbourhoods_are_never_visited_twice() -> None:
    # After 1 and 5 every distance is 0; 5 is the farthest from the global centroid, but visited.
    x, c = groups_at((1.0, 3), (5.0, 2), (1.0, 2), (1.0, 2))
    assert [[1.0], [5.0], [1.0]] == constraint_centroids(x, c, 3, rng()).tolist()


@given(st.integers(2, 30), st.integers(0, 40), st.data())
def test_always_k_finite_centroids_and_independent_of_closure(
    n: int, n_pairs: int, data: st.DataObject
) -> None:
    generator = rng(n + 100 * n_pairs)
    x = generator.normal(size=(n, 3))
    pairs = Constraints.sample(
        generator.integers(3, size=n), min(n_pairs, n * (n - 1) // 2), generator
    )
    k = data.draw(st.integers(1, n))
    centroids = constraint_centroids(x, pairs, k, rng(7))
    assert (k, 3) == centroids.shape
    assert np.isfinite(centroids).all()
    assert np.array_equal(centroids, constraint_centroids(x, pairs.close(), k, rng(7)))


# --- kmeans_centroids -------------------------------------------------------------------------


def test_kmeans_finds_separated_clusters_and_is_repeatable() -> None:
    truth = np.repeat(np.arange(3), 20)
    x = np.array([[0.0, 0.0], [20.0, 0.0], [0.0, 20.0]])[truth] + rng(2).normal(size=(60, 2))
    centroids = kmeans_centroids(x, 3, rng(3))
    expected = np.array([x[truth == h].mean(axis=0) for h in range(3)])
    assert squared_distances(expected, centroids).min(axis=1) == pytest.approx(
        np.zeros(3), abs=1e-9
    )
    assert np.array_equal(centroids, kmeans_centroids(x, 3, rng(3)))


# --- squared_distances ------------------------------------------------------------------------


@given(st.integers(1, 40), st.integers(1, 5), st.integers(1, 6), st.integers(0, 1000))
def test_squared_distances_match_the_definition(n: int, k: int, d: int, seed: int) -> None:
    generator = rng(seed)
    x, mu = generator.normal(size=(n, d)), generator.normal(size=(k, d))
    expected = ((x[:, np.newaxis] - mu) ** 2).sum(axis=2)
    assert np.allclose(expected, squared_distances(x, mu), rtol=1e-13, atol=0)


def test_no_cancellation_far_from_the_origin() -> None:
    """The expanded form is off by far more than the distance itself here."""
    x = 1e8 + np.array([[0.0, 0.0], [1.0, 0.5], [0.0, 0.25]])
    distances = squared_distances(x, x)
    assert [0.0, 0.0, 0.0] == np.diag(distances).tolist()
    assert [1.25, 0.0625] == distances[0, 1:].tolist()
    expanded = (x**2).sum(1)[:, np.newaxis] - 2 * x @ x.T + (x**2).sum(1)
    assert not np.allclose(distances, expanded, rtol=0.1)


def test_chunks_join_and_extra_memory_is_small() -> None:
    x = rng(5).normal(size=(200_000, 16))
    mu = rng(6).normal(size=(3, 16))
    squared_distances(x[:2], mu)
    tracemalloc.start()
    distances = squared_distances(x, mu)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak - distances.nbytes < 5e6
    rows = rng(7).integers(200_000, size=500)
    assert np.allclose(((x[rows, np.newaxis] - mu) ** 2).sum(2), distances[rows], rtol=1e-13)
