"""K-means from labelled points: seeds, clamped points, and clusters without either."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_iris

from inference_lab.clustering.bregman_kmeans import BregmanKMeans
from inference_lab.clustering.seeded import ConstrainedKMeans, SeededKMeans

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
BOTH = [SeededKMeans, ConstrainedKMeans]


def cost(points: Floats, labels: Ints) -> float:
    """Return the objective at the means, from its definition."""
    return sum(
        float(((points[labels == h] - points[labels == h].mean(axis=0)) ** 2).sum())
        for h in np.unique(labels)
    )


@st.composite
def seeded_data(draw: st.DrawFn) -> tuple[Floats, Ints, int, int]:
    """Draw points, partial labels (wrong ones too, classes missing too), k and a seed."""
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    n, k = draw(st.integers(6, 30)), draw(st.integers(1, 5))
    points = rng.normal(size=(n, 2)) * draw(st.sampled_from([1.0, 10.0]))
    classes = rng.integers(draw(st.integers(1, k)), size=n)
    hidden = rng.random(n) < draw(st.sampled_from([0.0, 0.3, 0.8, 1.0]))
    return points, np.where(hidden, -1, classes), k, seed % 1000


@given(seeded_data(), st.sampled_from(["k-means++", "perturbed", "random"]), st.sampled_from(BOTH))
def test_descent_and_clamps(data: tuple[Floats, Ints, int, int], init: Any, kind: Any) -> None:
    """The objective never rises and equals its definition; clamped labels are kept."""
    points, seeds, k, seed = data
    model = kind(k, init=init, random_state=seed, tol=0.0).fit(points, partial_labels=seeds)
    values = [line.objective for line in model.history_]
    assert all(b <= a + 1e-9 * max(1.0, values[0]) for a, b in itertools.pairwise(values))
    assert model.converged_
    assert cost(points, model.labels_) == pytest.approx(model.objective_, abs=1e-7)
    labelled = seeds >= 0
    free = np.ones(len(points), dtype=bool) if kind is SeededKMeans else ~labelled
    if kind is ConstrainedKMeans:
        assert seeds[labelled].tolist() == model.labels_[labelled].tolist()
    costs = model.transform(points)
    point_costs = costs[np.arange(len(points)), model.labels_]
    assert (point_costs <= costs.min(axis=1) + 1e-9)[free].all()
    used = np.unique(model.labels_)
    for h in used:
        np.testing.assert_allclose(
            model.cluster_centers_[h], points[model.labels_ == h].mean(axis=0), atol=1e-9
        )


@pytest.mark.parametrize("kind", BOTH)
def test_the_start_is_the_mean_of_the_seeds(kind: Any) -> None:
    rng = np.random.default_rng(1)
    points = rng.normal(size=(40, 3))
    seeds = np.where(rng.random(40) < 0.5, rng.integers(4, size=40), -1)
    starts = np.array([points[seeds == h].mean(axis=0) for h in range(4)])
    squares = ((points[:, np.newaxis] - starts) ** 2).sum(axis=2)
    labels = squares.argmin(axis=1)
    if kind is ConstrainedKMeans:
        labels = np.where(seeds >= 0, seeds, labels)
    model = kind(4).fit(points, partial_labels=seeds)
    assert squares[np.arange(40), labels].sum() == pytest.approx(model.history_[0].objective)


@pytest.mark.parametrize("kind", BOTH)
def test_clusters_carry_the_numbers_of_their_seeds(kind: Any) -> None:
    """Renaming the seeds renames the clusters, and changes nothing else."""
    points, truth = load_iris(return_X_y=True)
    rng = np.random.default_rng(0)
    seeds = np.where(rng.random(150) < 0.1, truth, -1)
    model = kind(3).fit(points, partial_labels=seeds)
    assert (model.labels_ == truth).mean() > 0.85
    names = np.array([2, 0, 1])
    renamed = kind(3).fit(points, partial_labels=np.where(seeds >= 0, names[seeds], -1))
    assert names[model.labels_].tolist() == renamed.labels_.tolist()
    np.testing.assert_allclose(renamed.cluster_centers_[names], model.cluster_centers_)


def test_brute_force_over_the_free_points() -> None:
    """The best of many starts is the optimum among all labellings that keep the clamped labels."""
    rng = np.random.default_rng(3)
    for _ in range(4):
        points, k = rng.normal(size=(9, 2)), 3
        seeds = np.full(9, -1)
        seeds[:3] = rng.integers(2, size=3)
        free = np.flatnonzero(seeds < 0)
        optimum = np.inf
        for rest in itertools.product(range(k), repeat=len(free)):
            labels = seeds.copy()
            labels[free] = rest
            optimum = min(optimum, cost(points, labels))
        model = ConstrainedKMeans(k, init="random", n_init=80, random_state=0, tol=0.0)
        objective = model.fit(points, partial_labels=seeds).objective_
        assert optimum <= objective + 1e-9
        # All seeds fix the start of two clusters, so the optimum may be unreachable.
        assert objective <= 1.3 * optimum


@pytest.mark.parametrize("kind", BOTH)
def test_without_labels_it_is_k_means(kind: Any) -> None:
    points = np.random.default_rng(0).normal(size=(50, 2))
    plain = BregmanKMeans(4, random_state=7).fit(points)
    for partial_labels in (None, np.full(50, -1)):
        model = kind(4, random_state=7).fit(points, partial_labels=partial_labels)
        assert plain.labels_.tolist() == model.labels_.tolist()
    with pytest.warns(UserWarning, match="y marks no point as unlabelled"):
        model = kind(4, random_state=7).fit(points, np.arange(50))
    assert plain.labels_.tolist() == model.labels_.tolist()


@pytest.mark.parametrize("kind", BOTH)
def test_clusters_without_seeds_start_elsewhere(kind: Any) -> None:
    """K-means++ finds the two groups without a seed, and leaves numbers unchanged."""
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(4), 25)
    points = np.array([[0, 0], [20, 0], [0, 20], [20, 20]])[truth] + rng.normal(size=(100, 2))
    seeds = np.full(100, -1)
    seeds[[0, 1]], seeds[[60, 61]] = 3, 1
    model = kind(4, random_state=0).fit(points, partial_labels=seeds)
    assert (model.labels_[truth == 0] == 3).all()
    assert (model.labels_[truth == 2] == 1).all()
    assert {0, 2} == set(model.labels_[(truth == 1) | (truth == 3)].tolist())


def test_a_clamped_point_is_no_new_centroid() -> None:
    """If the point of highest cost is clamped, another one refills the empty cluster."""
    points = np.array([[0.0], [0.1], [0.2], [3.0], [100.0]])
    seeds = np.array([0, -1, -1, -1, 0])
    for seed in range(20):
        model = ConstrainedKMeans(2, init="random", random_state=seed)
        model.fit(points, partial_labels=seeds)
        assert {0, 1} == set(model.labels_.tolist())
    label_rows = [
        ConstrainedKMeans(2, init="random", empty_clusters="keep", random_state=seed)
        .fit(points, partial_labels=seeds)
        .labels_
        for seed in range(20)
    ]
    assert min(len(set(labels.tolist())) for labels in label_rows) == 1
    everyone = ConstrainedKMeans(2, random_state=0).fit(points, partial_labels=np.zeros(5, int))
    assert [0] * 5 == everyone.labels_.tolist()
