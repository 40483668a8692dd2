"""DP-means and RDP-means: against the algorithm as printed, and by their guarantees."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris

from inference_lab.clustering import DPMeans, RDPMeans, dp_means
from inference_lab.constraints import Constraints

IRIS = load_iris(return_X_y=True)


def drawn(seed: int, n: int = 40, pairs: int = 30) -> tuple[np.ndarray, Constraints]:
    """Draw points of three groups and pairs, a tenth of them wrong."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=n)
    points = rng.normal(size=(n, 2)) + 3.0 * truth[:, None]
    return points, Constraints.sample(truth, pairs, rng).flip(0.1, rng)


def objective(
    points: np.ndarray, labels: np.ndarray, price: float, xi: float, constraints: Constraints
) -> float:
    """Return the objective at the means, from its definition."""
    point_costs = sum(
        float(((points[labels == h] - points[labels == h].mean(axis=0)) ** 2).sum())
        for h in np.unique(labels)
    )
    ml, cl = constraints.must_link, constraints.cannot_link
    broken = (labels[ml[:, 0]] != labels[ml[:, 1]]).sum()
    joined = (labels[cl[:, 0]] == labels[cl[:, 1]]).sum()
    return point_costs + price * len(np.unique(labels)) + xi * float(broken + joined)


def printed(
    points: np.ndarray, price: float, xi: float, constraints: Constraints, sweeps: int
) -> np.ndarray:
    """Run algorithm 1 of Khashabi et al., points in order; closed clusters stay closed."""
    n = len(points)
    friends = [set() for _ in range(n)]
    strangers = [set() for _ in range(n)]
    for pairs, lists in ((constraints.must_link, friends), (constraints.cannot_link, strangers)):
        for i, j in pairs.tolist():
            lists[i].add(j)
            lists[j].add(i)
    labels = [-1] * n
    means = [points.mean(axis=0)]
    for sweep in range(sweeps):
        for i in range(n):
            costs = []
            for h, mean in enumerate(means):
                empty = h not in labels and not (sweep == 0 and h == 0)
                near = sum(labels[j] == h for j in friends[i])
                far = sum(labels[j] == h for j in strangers[i])
                distance = float(((points[i] - mean) ** 2).sum())
                costs.append(np.inf if empty else distance - xi * near + xi * far)
            if min(costs) > price:
                means.append(points[i])
                labels[i] = len(means) - 1
            else:
                labels[i] = int(np.argmin(costs))
        numbers = sorted(set(labels))
        labels = [numbers.index(h) for h in labels]
        means = [points[np.array(labels) == h].mean(axis=0) for h in range(len(numbers))]
    return np.array(labels)


@pytest.mark.parametrize(("seed", "xi"), [(s, xi) for s in range(6) for xi in (0.0, 1.0, 20.0)])
def test_sweeps_follow_the_paper(seed, xi):
    points, constraints = drawn(seed)
    for sweeps in (1, 4, 30):
        model = RDPMeans(
            cluster_cost=12.0, xi=xi, start="mean", order="sequential", max_iter=sweeps
        )
        model.fit(points, **constraints.fit_params())
        done = model.n_iter_
        expected = printed(points, 12.0, xi, constraints, done)
        np.testing.assert_array_equal(model.labels_, expected)


def skipped_points(monkeypatch, model: RDPMeans, points: np.ndarray, **arguments: Any) -> int:
    """Check that visiting every point in each sweep changes nothing; return the number of skips."""
    every, count = dp_means.assign, 0

    def look_at_all(*call_arguments: Any) -> int:
        nonlocal count
        stale, order, at = call_arguments[9:12]
        count += int((stale[order[at:]] == 0).sum())
        stale[:] = 1
        return every(*call_arguments)

    partial = clone(model).fit(points, **arguments)
    with monkeypatch.context() as patch:
        patch.setattr(dp_means, "assign", look_at_all)
        whole = clone(model).fit(points, **arguments)
    np.testing.assert_array_equal(partial.labels_, whole.labels_)
    values = [[line.objective for line in fitted.history_] for fitted in (partial, whole)]
    assert values[0] == values[1]
    return count


@pytest.mark.parametrize(
    "settings",
    [
        {"xi": 1.0},
        {"xi": 8.0, "cluster_cost": 6.0},
        {"xi": "auto", "warm_up": 1, "patience": 3},
        {"xi": 2.0, "squared": False, "cluster_cost": 2.0, "max_iter": 20},
        {"xi": 2.0, "ties": "last", "start": "box"},
    ],
)
def test_skipped_points_would_have_kept_their_cluster(settings, monkeypatch):
    """A sweep over points with lowered costs equals the sweep over all points."""
    count = 0
    for seed in range(3):
        rng = np.random.default_rng(seed)
        groups = rng.integers(16, size=200)
        points = rng.normal(size=(200, 2)) + 4.0 * np.stack(np.divmod(groups, 4), axis=1)
        constraints = Constraints.sample(groups // 2, 150, rng).flip(0.2, rng)
        partial_labels = np.full(200, -1)
        partial_labels[:4] = [0, 1, 1, 0]
        model = RDPMeans(**{"cluster_cost": 12.0, **settings}, random_state=seed)
        for partial in (None, partial_labels):
            arguments = constraints.fit_params() | {"partial_labels": partial}
            count += skipped_points(monkeypatch, model, points, **arguments)
    assert count > 200


@pytest.mark.parametrize("seed", [252, 528, 537])
def test_point_may_open_a_cluster_after_one_has_closed(seed, monkeypatch):
    points, constraints = drawn(seed, n=16, pairs=20)
    model = RDPMeans(cluster_cost=0.5, xi=0.5, max_clusters=6, random_state=seed)
    skipped_points(monkeypatch, model, points, **constraints.fit_params())


def test_must_link_partner_is_followed_in_the_same_sweep():
    costs = np.array([[5.0, 0.0], [1.0, 2.0]])
    pairs = dp_means.Pairs(Constraints([(0, 1)], [], n_points=2), 2)
    labels, stale = np.zeros(2, dtype=np.int64), np.array([1, 0], dtype=np.uint8)
    sizes, changed = np.array([2, 1]), np.zeros(1, dtype=np.int64)
    dp_means.assign(
        costs,
        2,
        100.0,
        3.0,
        pairs.ptr,
        pairs.partner,
        pairs.weight,
        labels,
        sizes,
        stale,
        np.arange(2),
        0,
        False,
        False,
        changed,
    )
    assert labels.tolist() == [1, 1] and not stale[1]


@pytest.mark.parametrize("e_step", ["sweep", "icm", "alpha-expansion"])
def test_the_objective_never_rises_and_is_the_definition(e_step):
    for seed in range(4):
        points, constraints = drawn(seed)
        for xi in (0.0, 2.0):
            model = RDPMeans(cluster_cost=12.0, xi=xi, e_step=e_step, random_state=seed)
            model.fit(points, **constraints.fit_params())
            values = [line.objective for line in model.history_]
            assert all(b <= a + 1e-9 for a, b in itertools.pairwise(values)), (seed, xi)
            expected = objective(points, model.labels_, 12.0, xi, constraints)
            assert model.objective_ == pytest.approx(expected)
            assert model.converged_ and model.n_clusters_ == len(np.unique(model.labels_))
            assert model.cluster_centers_.shape == (model.n_clusters_, 2)


def test_an_exact_e_step_is_no_worse_than_its_own_bound_and_its_start():
    points, constraints = drawn(1, n=12, pairs=8)
    model = RDPMeans(cluster_cost=12.0, xi=5.0, e_step="ilp", candidates=2, random_state=0)
    model.fit(points, **constraints.fit_params())
    for line in model.history_:
        if line.step == "E":
            assert line.status == "optimal"
            assert line.objective == pytest.approx(line.energy)
    other = RDPMeans(cluster_cost=12.0, xi=5.0, random_state=0).fit(
        points, **constraints.fit_params()
    )
    assert model.objective_ <= other.objective_ * 1.5


def test_rules_for_the_price():
    points = np.array([[0.0], [1.0], [4.0], [11.0]])  # mean 4
    farthest = DPMeans(2, cluster_cost="farthest-first").fit(points)
    # From the mean: 11 (49), then 0 (16).
    assert farthest.cluster_cost_ == pytest.approx(16.0)
    assert DPMeans(2, cluster_cost="kth-distance").fit(points).cluster_cost_ == pytest.approx(16.0)
    root = DPMeans(3, cluster_cost="kth-distance", squared=False).fit(points)
    assert root.cluster_cost_ == pytest.approx(3.0)


@pytest.mark.parametrize("rule", ["farthest-first", "kth-distance"])
def test_the_last_bit_of_the_price_decides_nothing(rule):
    settings = {"start": "mean", "order": "sequential"}
    for points in (np.array([[0.0], [1.0], [4.0], [11.0]]), IRIS[0], drawn(0)[0], drawn(1)[0]):
        for k in (2, 3, 4):
            model = DPMeans(k, cluster_cost=rule, **settings).fit(points)
            for end in (0.0, np.inf):
                other = float(np.nextafter(model.cluster_cost_, end))
                again = DPMeans(k, cluster_cost=other, **settings).fit(points)
                np.testing.assert_array_equal(again.labels_, model.labels_)


def test_pairs_that_count_are_kept_and_the_weight_grows():
    points, _ = IRIS
    constraints = Constraints.sample(IRIS[1], 300, np.random.default_rng(0))
    model = RDPMeans(3, xi=0.001, xi_rate=2.0, patience=20, random_state=0)
    model.fit(points, **constraints.fit_params())
    assert model.violations_.weight == 0 and model.xi_ > 1.0


def test_the_release_seeds_by_distances_and_ends_by_pairs():
    points, truth = IRIS
    constraints = Constraints.sample(truth, 500, np.random.default_rng(1))
    model = RDPMeans.release(3, random_state=0).fit(points, **constraints.fit_params())
    assert model.violations_.weight == 0
    assert model.xi_ > 1e3
    mean = np.sqrt(((points - points.mean(axis=0)) ** 2).sum(axis=1))
    assert model.cluster_cost_ == pytest.approx(np.sort(mean)[-3])


def test_bregman_costs():
    rng = np.random.default_rng(0)
    points = rng.dirichlet([8.0, 1.0, 1.0], size=30)
    points[15:] = points[15:, ::-1]
    model = DPMeans(2, distortion="kl", random_state=0).fit(points)
    values = [line.objective for line in model.history_]
    assert len(set(model.labels_[:15])) == 1 and model.n_clusters_ >= 2
    assert model.labels_[0] != model.labels_[-1] and np.isfinite(values).all()


def test_no_more_clusters_than_allowed():
    points, _ = drawn(0)
    assert DPMeans(cluster_cost=0.0, max_clusters=5, random_state=0).fit(points).n_clusters_ == 5
