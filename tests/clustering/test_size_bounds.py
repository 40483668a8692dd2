"""Bounds on the sizes of clusters are kept at the least possible cost."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from inference_lab.clustering import BregmanKMeans, SizeConstrainedKMeans
from inference_lab.clustering.size_bounds import balance, least_assignment
from inference_lab.clustering.violations import violations
from inference_lab.constraints import Constraints
from inference_lab.constraints.hard_pairs import InfeasibleConstraintsError


@given(st.integers(0, 2**32 - 1))
def test_no_assignment_within_the_bounds_is_cheaper(seed):
    rng = np.random.default_rng(seed)
    k, n = int(rng.integers(1, 4)), int(rng.integers(3, 8))
    lower = int(rng.integers(0, n // k + 1))
    upper = int(rng.integers(-(-n // k), n + 1))
    # Integers produce ties.
    costs = rng.integers(0, 6, size=(n, k)).astype(float) if seed % 2 else rng.random((n, k))
    every = np.array(list(itertools.product(range(k), repeat=n)))
    sizes = np.stack([(every == h).sum(axis=1) for h in range(k)], axis=1)
    allowed = every[((sizes >= lower) & (sizes <= upper)).all(axis=1)]
    cheapest = costs[np.arange(n), allowed].sum(axis=1).min()
    labels = costs.argmin(axis=1)
    balance(costs, labels, np.full(k, float(lower)), np.full(k, float(upper)), 1e-12)
    assert lower <= np.bincount(labels, minlength=k).min()
    assert np.bincount(labels, minlength=k).max() <= upper
    assert costs[np.arange(n), labels].sum() == pytest.approx(cheapest)


@given(st.integers(0, 2**32 - 1))
def test_with_pairs_and_weights_no_assignment_is_cheaper(seed):
    rng = np.random.default_rng(seed)
    k, n = int(rng.integers(2, 4)), int(rng.integers(3, 8))
    counts = rng.integers(1, 4, size=n).astype(float)
    lower = rng.integers(0, 4, size=k).astype(float)
    upper = lower + rng.integers(1, 8, size=k)
    costs = rng.random((n, k))
    pairs = Constraints.sample(rng.integers(k, size=n), 3, rng)
    pairs = pairs.with_weights(
        *(rng.choice([0.3, np.inf], size=len(e)) for e in (pairs.must_link, pairs.cannot_link))
    )
    every = np.array(list(itertools.product(range(k), repeat=n)))
    sizes = np.stack([(every == h) @ counts for h in range(k)], axis=1)
    every = every[((sizes >= lower) & (sizes <= upper)).all(axis=1)]
    values = [
        costs[np.arange(n), labels].sum() + violations(pairs, labels).weight for labels in every
    ]
    if min(values, default=np.inf) == np.inf:
        with pytest.raises(InfeasibleConstraintsError, match="no labels keep"):
            least_assignment(costs, counts, lower, upper, pairs)
        return
    labels = least_assignment(costs, counts, lower, upper, pairs)
    size = np.bincount(labels, weights=counts, minlength=k)
    assert (size >= lower).all()
    assert (size <= upper).all()
    value = costs[np.arange(n), labels].sum() + violations(pairs, labels).weight
    assert value == pytest.approx(min(values), rel=1e-5)


def test_fits_keep_bounds_weights_and_pairs():
    rng = np.random.default_rng(2)
    points = rng.normal(size=(60, 2))
    counts = rng.integers(1, 4, size=60)
    model = SizeConstrainedKMeans(3, min_size=[10, 30, 0], max_size=[20, 60, 80], random_state=0)
    pairs = {"must_link": [(0, 1), (2, 3)], "cannot_link": [(0, 2), (4, 5)]}
    model.fit(points, sample_weight=counts, **pairs)
    sizes = np.bincount(model.labels_, weights=counts, minlength=3)
    assert (sizes >= [10, 30, 0]).all()
    assert (sizes <= [20, 60, 80]).all()
    assert model.violations_ == (0, 0, 0.0)
    values = [line.objective for line in model.history_]
    assert all(b <= a * (1.0 + 1e-6) for a, b in itertools.pairwise(values))
    with pytest.raises(InfeasibleConstraintsError, match="no cluster may hold more than"):
        SizeConstrainedKMeans(30, max_size=2).fit(points, must_link=[(0, 1), (1, 2)])


def test_balanced_clusters_are_an_assignment_problem():
    """With as many places as points, each cluster has one column for each place."""
    costs = np.random.default_rng(0).random((60, 4)) * [1.0, 2.0, 3.0, 4.0]
    labels = costs.argmin(axis=1)
    balance(costs, labels, np.full(4, 15.0), np.full(4, 15.0), 1e-12)
    rows, columns = linear_sum_assignment(np.repeat(costs, 15, axis=1))
    assert np.bincount(labels).tolist() == [15] * 4
    assert costs[np.arange(60), labels].sum() == pytest.approx(
        np.repeat(costs, 15, axis=1)[rows, columns].sum()
    )


def test_the_objective_falls_and_loose_bounds_change_nothing():
    rng = np.random.default_rng(1)
    truth = np.repeat([0, 1, 2], [70, 20, 10])
    points = rng.normal(size=(100, 2)) + 4.0 * np.eye(3)[truth][:, :2]
    balanced = SizeConstrainedKMeans(3, min_size=33, max_size=34, n_init=3, random_state=0)
    balanced.fit(points)
    assert sorted(np.bincount(balanced.labels_).tolist()) == [33, 33, 34]
    values = [line.objective for line in balanced.history_]
    assert all(b <= a + 1e-9 for a, b in itertools.pairwise(values))
    loose = SizeConstrainedKMeans(3, min_size=0, init=points[[0, 75, 95]]).fit(points)
    plain = BregmanKMeans(3, init=points[[0, 75, 95]]).fit(points)
    assert loose.labels_.tolist() == plain.labels_.tolist()
    assert balanced.objective_ > plain.objective_
