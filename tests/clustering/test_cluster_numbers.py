"""The number of clusters by silhouette and pairs."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from inference_lab.clustering import TVClust
from inference_lab.clustering.cluster_numbers import agreement, supported_number
from inference_lab.clustering.supervision import without_pairs
from inference_lab.constraints import Constraints


def blobs(rng, k, n_each=20, further=0):
    """Round clusters on a circle, and features without information."""
    angles = 2.0 * np.pi * np.arange(k) / k
    truth = np.repeat(np.arange(k), n_each)
    points = 6.0 * np.column_stack([np.cos(angles), np.sin(angles)])[truth]
    points += rng.normal(size=points.shape)
    return np.hstack([points, rng.normal(size=(len(points), further))]), truth


@pytest.mark.parametrize("k", [2, 3, 5])
def test_clear_clusters_are_counted(k):
    rng = np.random.default_rng(k)
    points, _ = blobs(rng, k)
    assert supported_number(points, without_pairs(len(points)), rng) == k


def test_pairs_decide_between_coarse_and_fine_clusters():
    rng = np.random.default_rng(0)
    coarse = np.repeat([0, 1], 40)
    fine = np.repeat([0, 1, 2, 3], 20)
    points = np.column_stack([20.0 * coarse, 5.0 * fine]) + rng.normal(size=(80, 2))
    counts = {}
    for name, truth in (("coarse", coarse), ("fine", fine)):
        pairs = Constraints.sample(truth, 80, rng)
        model = TVClust(random_state=0).fit(points, **pairs.fit_params())
        counts[name] = model.n_clusters_
    assert counts == {"coarse": 2, "fine": 4}


@pytest.mark.parametrize("kind", ["binary", "noise"])
def test_default_opens_no_clusters_that_nothing_supports(kind):
    """With 15 components, as in the published code, such data fall apart."""
    rng = np.random.default_rng(1)
    if kind == "noise":
        points, truth = blobs(rng, 3, 50, further=8)
    else:
        truth = np.repeat([0, 1, 2], 50)
        shares = rng.beta(0.5, 0.5, size=(3, 12))
        points = (rng.random((150, 12)) < shares[truth]).astype(float)
    pairs = Constraints.sample(truth, 75, rng).flip(0.1, rng)
    model, old = (
        TVClust(number, random_state=0).fit(points, **pairs.fit_params()) for number in ("auto", 15)
    )
    assert model.n_clusters_ == 3 < 6 < old.n_clusters_
    index, old_index = (adjusted_rand_score(truth, fit.labels_) for fit in (model, old))
    assert index > old_index + 0.3
    assert model.get_feature_names_out().size == 3 == model.transform(points).shape[1]


def test_known_labels_limit_the_number_from_below():
    rng = np.random.default_rng(2)
    points, _ = blobs(rng, 2)
    labels = np.full(len(points), -1)
    labels[0] = 16
    model = TVClust(random_state=0).fit(points, partial_labels=labels)
    assert model.labels_[0] == 16
    assert supported_number(points, without_pairs(len(points)), rng) == 2


def test_few_and_equal_points():
    rng = np.random.default_rng(3)
    for points in (np.zeros((4, 2)), np.array([[0.0], [1.0]]), np.eye(1)):
        assert supported_number(points, without_pairs(len(points)), rng) == 1


def test_large_data_are_sampled(monkeypatch):
    import inference_lab.clustering.cluster_numbers as module

    rng = np.random.default_rng(4)
    points, _ = blobs(rng, 4, 600)
    sizes = []
    silhouettes = module.silhouette_samples
    monkeypatch.setattr(
        module, "silhouette_samples", lambda x, y: sizes.append(len(x)) or silhouettes(x, y)
    )
    assert supported_number(points, without_pairs(len(points)), rng) == 4
    assert set(sizes) == {2000}


def test_agreement_is_zero_at_chance_and_one_for_the_truth():
    rng = np.random.default_rng(5)
    truth = rng.integers(3, size=400)
    pairs = Constraints.sample(truth, 4000, rng)
    assert agreement(pairs, truth) == 1.0
    assert abs(agreement(pairs, rng.permutation(truth))) < 0.05
    for alone in (
        Constraints(pairs.must_link, [], n_points=400),
        Constraints([], pairs.cannot_link, n_points=400),
    ):
        assert agreement(alone, truth) == pytest.approx(1.0)
        assert abs(agreement(alone, rng.permutation(truth))) < 0.05
        # All in one cluster, or all apart, keep one kind by chance only.
        assert agreement(alone, np.zeros(400, dtype=int)) <= 0.0
        assert agreement(alone, np.arange(400)) <= 0.0
    assert agreement(Constraints([], [], n_points=400), truth) == 0.0
