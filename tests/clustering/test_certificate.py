"""Search, bounds and certificates of the clustering objective, against all partitions."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris, make_blobs
from strategies import partitions

from inference_lab.certificates.anticlustering import anticlusters
from inference_lab.certificates.hartigan import descend
from inference_lab.certificates.hg_means import search
from inference_lab.certificates.pair_branching import prove
from inference_lab.certificates.partition_problem import (
    PartitionProblem,
    partition_problem,
    restricted,
)
from inference_lab.certificates.peng_wei import relax, spectral_bound
from inference_lab.clustering import (
    COPKMeans,
    HMRFKMeans,
    InfeasibleConstraintsError,
    MPCKMeans,
    PCKMeans,
    RDPMeans,
    certificate,
    certify,
)
from inference_lab.constraints import Constraints

IRIS, SPECIES = load_iris(return_X_y=True)
#: Published for three clusters (P. Hansen, N. Mladenovic, Pattern Recognition 34, 2001, table 1).
IRIS_OPTIMUM = 78.85144


def random_problem(seed: int, n: int) -> tuple[np.ndarray, PartitionProblem, dict]:
    """Return points, their problem, and the weights and pairs of each kind."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(n, int(rng.integers(1, 4)))) + rng.integers(3, size=(n, 1)) * 2.0
    pairs = np.array(list(itertools.combinations(range(n), 2)))
    chosen = pairs[rng.permutation(len(pairs))[: int(rng.integers(0, n + 2))]]
    split = int(rng.integers(len(chosen) + 1))
    costs = rng.exponential(2.0, size=len(chosen))
    costs[rng.random(len(chosen)) < rng.choice([0.0, 0.3, 1.0])] = np.inf
    made = {
        "must_link": chosen[:split],
        "ml_costs": costs[:split],
        "cannot_link": chosen[split:],
        "cl_costs": costs[split:],
        "counts": rng.integers(1, 4, size=n).astype(float) if rng.random() < 0.5 else None,
        "known": None,
    }
    if rng.random() < 0.3:
        made["known"] = np.where(rng.random(n) < 0.3, rng.integers(2, size=n), -1)
    k = int(rng.integers(1, 5))
    if made["known"] is not None:
        k = max(k, 2)
    return points, partition_problem(points, k, **made), made


def cost(points: np.ndarray, labels: np.ndarray, made: dict) -> float:
    """Return the objective from its definition, point by point."""
    counts = np.ones(len(points)) if made["counts"] is None else made["counts"]
    total = 0.0
    for h in np.unique(labels):
        inside = labels == h
        mean = np.average(points[inside], axis=0, weights=counts[inside])
        total += float(counts[inside] @ ((points[inside] - mean) ** 2).sum(axis=1))
    for (i, j), weight in zip(made["must_link"], made["ml_costs"], strict=True):
        total += weight if labels[i] != labels[j] else 0.0
    for (i, j), weight in zip(made["cannot_link"], made["cl_costs"], strict=True):
        total += weight if labels[i] == labels[j] else 0.0
    return total


def optimum(points: np.ndarray, k: int, made: dict) -> float:
    """Return the least objective of all partitions that known labels allow."""
    n = len(points)
    labels = partitions(n, k)
    known = np.full(n, -1) if made["known"] is None else made["known"]
    for i, j in itertools.combinations(np.flatnonzero(known >= 0), 2):
        labels = labels[(labels[:, i] == labels[:, j]) == (known[i] == known[j])]
    counts = np.ones(n) if made["counts"] is None else made["counts"]
    total = np.zeros(len(labels))
    for h in range(k):
        inside = (labels == h) * counts
        size = np.maximum(inside.sum(axis=1), 1.0)
        total -= ((inside @ points) ** 2).sum(axis=1) / size
    total += counts @ (points**2).sum(axis=1)
    for kind, costs, apart in (("must_link", "ml_costs", True), ("cannot_link", "cl_costs", False)):
        for (i, j), weight in zip(made[kind], made[costs], strict=True):
            total[(labels[:, i] != labels[:, j]) == apart] += weight
    return float(total.min(initial=math.inf))


def built(seed: int, n: int) -> tuple[np.ndarray, PartitionProblem, dict]:
    """Return a random problem; skip the test if its hard pairs contradict each other."""
    try:
        return random_problem(seed, n)
    except InfeasibleConstraintsError:
        assume(False)
        raise


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(2, 10))
def test_branch_and_bound_proves_the_optimum_of_all_partitions(seed: int, n: int) -> None:
    points, problem, made = built(seed, n)
    best = optimum(points, problem.k, made)
    assume(math.isfinite(best))
    rng = np.random.default_rng(0)
    start = search(problem, rng)
    assert problem.objective(start) == pytest.approx(cost(points, start[problem.of_point], made))
    found = prove(problem, start, rng, tolerance=1e-4, max_nodes=200, expired=lambda: False)
    assert found.objective == pytest.approx(best, rel=1e-9, abs=1e-9)
    assert found.lower_bound <= best + 1e-9 * problem.spread
    assert problem.gap(found.objective, found.lower_bound) <= 1e-4


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(2, 10))
@example(48, 60, 6)  # a soft cannot-link between two of three points, for three clusters
def test_a_bound_holds_wherever_the_relaxation_is_stopped(
    seed: int, iterations: int, n: int
) -> None:
    points, problem, made = built(seed, n)
    best = optimum(points, problem.k, made)
    assume(math.isfinite(best))
    relaxed = relax(problem, best, max_iterations=iterations)
    room = 1e-9 * problem.spread
    assert spectral_bound(problem) <= best + room
    assert -math.inf < relaxed.bound <= best + room
    units = np.arange(problem.size)
    parts = [restricted(problem, part) for part in (units[::2], units[1::2]) if part.size]
    assert problem.constant + sum(relax(p, best).bound for p in parts) <= best + room


@settings(max_examples=30)
@given(st.integers(0, 10**6))
def test_descent_ends_where_no_single_move_gains(seed: int) -> None:
    _, problem, _ = built(seed, 12)
    rng = np.random.default_rng(seed)
    start = rng.integers(problem.k, size=problem.size)
    found = descend(problem, start, rng)
    assert problem.unmet(found) <= problem.unmet(start)
    value = problem.objective(found)
    if problem.unmet(start) == 0:
        assert value <= problem.objective(start) + 1e-9
    for u, h in itertools.product(range(problem.size), range(problem.k)):
        moved = found.copy()
        moved[u] = h
        if math.isfinite(value):
            assert problem.objective(moved) >= value - 1e-8 * problem.spread


def test_a_kempe_chain_crosses_hard_cannot_links() -> None:
    """Single moves are blocked: each point has a cannot-link into its right cluster."""
    points = np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2]])
    apart = np.array([[0, 3], [1, 4], [2, 5]])
    nothing = np.zeros((0, 2), dtype=np.int64)
    problem = partition_problem(points, 2, nothing, np.zeros(0), apart, np.full(3, np.inf))
    start = np.array([0, 0, 1, 1, 1, 0])
    found = descend(problem, start, np.random.default_rng(0))
    assert found[0] == found[1] == found[2] != found[3] == found[4] == found[5]


def test_the_published_optimum_of_iris_is_proved() -> None:
    model = KMeans(3, n_init=1, init="random", random_state=1).fit(IRIS)
    found = certify(model, IRIS)
    assert found.best_objective == pytest.approx(IRIS_OPTIMUM, abs=5e-6)
    assert IRIS_OPTIMUM * (1 - 1e-4) <= found.lower_bound <= IRIS_OPTIMUM + 5e-6
    assert model.certificate_ is found and found.method == "branch and bound"
    ours = PCKMeans(3, random_state=0).fit(IRIS)
    assert certify(ours, IRIS).proved and repr(ours).endswith("random_state=0)  # gap 0.00%")
    assert not hasattr(ours.fit(IRIS), "certificate_")
    bounds = [step.lower_bound for step in found.history]
    assert bounds == sorted(bounds)


@pytest.mark.parametrize("penalty", ["potts", "distance"])
def test_the_objective_is_that_of_the_estimator(penalty: str) -> None:
    """They are equal if centroids are means; otherwise the problem's objective is lower."""
    pairs = Constraints.sample(SPECIES, 40, np.random.default_rng(0)).flip(
        0.1, np.random.default_rng(1)
    )
    X, weight = IRIS[::3], np.random.default_rng(2).integers(0, 3, size=50).astype(float)
    pairs = pairs.restrict(np.arange(0, 150, 3), renumber=True)
    model = HMRFKMeans(3, penalty=penalty, random_state=0)
    model.fit(X, **pairs.fit_params(), sample_weight=weight)
    found = certify(model, X, sample_weight=weight, max_nodes=1)
    assert found.objective == pytest.approx(model.objective_, rel=1e-9)
    assert found.lower_bound <= found.best_objective <= found.objective
    assert found.best_labels.shape == (50,)


def test_groups_bound_large_data() -> None:
    X, truth = make_blobs(1200, 4, centers=4, cluster_std=1.0, random_state=0)
    model = KMeans(4, n_init=3, random_state=0).fit(X)
    found = certify(model, X, time_limit=600)
    assert found.method == "groups"
    assert found.lower_bound <= found.best_objective <= found.objective
    assert found.gap < 0.02
    problem = partition_problem(X, 4, *(np.zeros((0, 2), dtype=np.int64), np.zeros(0)) * 2)
    group = anticlusters(problem, truth, 6, np.random.default_rng(0))
    assert np.bincount(group).tolist() == [200] * 6
    parts = [np.flatnonzero(group == g) for g in range(6)]
    # The loss of groups against the whole, and that of random ones.
    whole = problem.objective(truth)
    lost = whole - sum(restricted(problem, part).objective(truth[part]) for part in parts)
    drawn = np.split(np.random.default_rng(1).permutation(1200), 6)
    drawn_loss = whole - sum(restricted(problem, p).objective(truth[p]) for p in drawn)
    assert 0.0 <= lost < 0.3 * drawn_loss


def test_a_time_limit_leaves_a_valid_bound() -> None:
    found = certify(KMeans(3, n_init=1, random_state=0).fit(IRIS), IRIS, time_limit=0.0)
    assert 0.0 < found.lower_bound <= IRIS_OPTIMUM and found.nodes == 1


def test_violated_hard_pairs_have_no_objective() -> None:
    points = [[0.0], [0.1], [5.0]]
    with pytest.warns(UserWarning):
        model = COPKMeans(2, random_state=0).fit(points, cannot_link=[(0, 1), (1, 2), (0, 2)])
    found = certify(model, points, max_nodes=3)
    assert found.objective == math.inf and not found.proved


def test_refusals() -> None:
    pairs = Constraints.sample(SPECIES, 30, np.random.default_rng(0)).fit_params()
    for model in (MPCKMeans(3, random_state=0), RDPMeans(random_state=0)):
        with pytest.raises(TypeError, match="certify "):
            certify(model.fit(IRIS, **pairs), IRIS)
    fitted = PCKMeans(3, random_state=0).fit(IRIS)
    with pytest.raises(ValueError, match="150 rows"):
        certify(fitted, IRIS[:100])
    with pytest.raises(ValueError, match="sample_weight"):
        certify(fitted, IRIS, sample_weight=-np.ones(150))
    with pytest.raises(TypeError, match="fitted"):
        certify(PCKMeans(3), IRIS)


def test_the_search_is_part_of_a_fit() -> None:
    pairs = Constraints.sample(SPECIES, 60, np.random.default_rng(0))
    found = {}
    for improve in (None, "hartigan", "memetic"):
        model = PCKMeans(3, n_init=1, init="random", improve=improve, random_state=4)
        model.fit(IRIS, **pairs.fit_params(), cl_weight=np.inf, ml_weight=3.0)
        found[improve] = model.objective_
        steps = [step.step for step in model.history_]
        assert ("search" in steps) == (improve is not None)
        assert model.violations_.cannot_link == 0
        means = [IRIS[model.labels_ == h].mean(axis=0) for h in range(3)]
        assert np.allclose(model.cluster_centers_, means)
    assert found["memetic"] <= found["hartigan"] + 1e-9 <= found[None] + 2e-9


def test_known_labels_keep_their_numbers_in_the_search() -> None:
    known = np.full(150, -1)
    known[[0, 60, 120]] = [2, 0, 1]
    model = PCKMeans(3, improve="memetic", random_state=0).fit(IRIS, partial_labels=known)
    assert model.labels_[[0, 60, 120]].tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    "setting", [{"metric": "diagonal"}, {"distortion": "cosine"}, {"improve": "swaps"}]
)
def test_settings_of_the_search_that_do_not_fit(setting: dict) -> None:
    with pytest.raises(ValueError, match="improve"):
        HMRFKMeans(3, **{"improve": "hartigan", **setting}).fit(IRIS)


def test_one_thread_of_linear_algebra_while_certifying(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads on small matrices take ten times as long on a busy machine."""
    from threadpoolctl import threadpool_info

    seen = []

    def spied(*args: object, **kwargs: object) -> object:
        seen.extend(lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas")
        return prove(*args, **kwargs)

    monkeypatch.setattr(certificate, "prove", spied)
    certify(KMeans(2, n_init=1, random_state=0).fit(IRIS[:20]), IRIS[:20])
    assert seen and set(seen) == {1}
