"""Certificates of fitted estimators, and the search for better clusters."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris, make_blobs

from inference_lab.certificates.anticlustering import anticlusters
from inference_lab.certificates.pair_branching import prove
from inference_lab.certificates.partition_problem import (
    partition_problem,
    restricted,
)
from inference_lab.clustering import (
    COPKMeans,
    HMRFKMeans,
    MPCKMeans,
    PCKMeans,
    RDPMeans,
    certificate,
    certify,
    improve,
)
from inference_lab.constraints import Constraints

IRIS, SPECIES = load_iris(return_X_y=True)
#: Published for three clusters (P. Hansen, N. Mladenovic, Pattern Recognition 34, 2001, table 1).
IRIS_OPTIMUM = 78.85144


def test_the_published_optimum_of_iris_is_proved() -> None:
    model = KMeans(3, n_init=1, init="random", random_state=1).fit(IRIS)
    proof = certify(model, IRIS)
    assert proof.best_objective == pytest.approx(IRIS_OPTIMUM, abs=5e-6)
    assert IRIS_OPTIMUM * (1 - 1e-4) <= proof.lower_bound <= IRIS_OPTIMUM + 5e-6
    assert model.certificate_ is proof and proof.method == "branch and bound"
    ours = PCKMeans(3, random_state=0).fit(IRIS)
    assert certify(ours, IRIS).proved and repr(ours).endswith("random_state=0)  # gap 0.00%")
    assert not hasattr(ours.fit(IRIS), "certificate_")
    bounds = [step.lower_bound for step in proof.history]
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
    proof = certify(model, X, sample_weight=weight, max_nodes=1)
    assert proof.objective == pytest.approx(model.objective_, rel=1e-9)
    assert proof.lower_bound <= proof.best_objective <= proof.objective
    assert proof.best_labels.shape == (50,)


def test_groups_bound_large_data() -> None:
    X, truth = make_blobs(1200, 4, centers=4, cluster_std=1.0, random_state=0)
    model = KMeans(4, n_init=3, random_state=0).fit(X)
    proof = certify(model, X, time_limit=600)
    assert proof.method == "groups"
    assert proof.lower_bound <= proof.best_objective <= proof.objective
    assert proof.gap < 0.02
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
    proof = certify(KMeans(3, n_init=1, random_state=0).fit(IRIS), IRIS, time_limit=0.0)
    assert 0.0 < proof.lower_bound <= IRIS_OPTIMUM and proof.nodes == 1


def test_violated_hard_pairs_have_no_objective() -> None:
    points = [[0.0], [0.1], [5.0]]
    with pytest.warns(UserWarning):
        model = COPKMeans(2, random_state=0).fit(points, cannot_link=[(0, 1), (1, 2), (0, 2)])
    proof = certify(model, points, max_nodes=3)
    assert proof.objective == math.inf and not proof.proved


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


@pytest.mark.parametrize("weighted", [False, True])
def test_a_search_improves_a_fit(weighted: bool) -> None:
    rng = np.random.default_rng(0)
    pairs = Constraints.sample(SPECIES, 60, rng)
    weight = rng.integers(0, 3, size=150).astype(float) if weighted else None
    model = PCKMeans(3, n_init=1, init="random", random_state=4)
    model.fit(IRIS, **pairs.fit_params(), cl_weight=np.inf, ml_weight=3.0, sample_weight=weight)
    certify(model, IRIS, sample_weight=weight, time_limit=0.0)
    before = {name: copy.deepcopy(value) for name, value in vars(model).items()}
    objectives = [model.objective_]
    for method in ("hartigan", "memetic"):
        better = improve(model, IRIS, method=method, sample_weight=weight)
        again = improve(model, IRIS, method=method, sample_weight=weight, random_state=4)
        assert np.array_equal(better.labels_, again.labels_)
        objectives.append(better.objective_)
        steps = [step.step for step in better.history_]
        assert steps.count("search") == 1 and better.n_iter_ > model.n_iter_
        assert steps[: len(model.history_)] == [step.step for step in model.history_]
        assert better.violations_.cannot_link == 0
        counts = np.ones(150) if weight is None else weight
        for h in range(3):
            inside = (better.labels_ == h) & (counts > 0)
            mean = np.average(IRIS[inside], axis=0, weights=counts[inside])
            assert np.allclose(better.cluster_centers_[h], mean)
        assert not hasattr(better, "certificate_")
    assert objectives[2] <= objectives[1] + 1e-9 <= objectives[0] + 2e-9
    # The model of the fit is as before.
    assert vars(model).keys() == before.keys()
    assert np.array_equal(model.labels_, before["labels_"])
    assert model.history_ == before["history_"] and model.objective_ == before["objective_"]


def test_points_of_weight_zero_are_labelled_as_by_predict() -> None:
    weight = np.where(np.arange(150) % 7 == 0, 0.0, 1.0)
    model = PCKMeans(4, n_init=1, init="random", random_state=1).fit(IRIS, sample_weight=weight)
    better = improve(model, IRIS, sample_weight=weight)
    assert better.objective_ < model.objective_
    assert np.array_equal(better.labels_[::7], better.predict(IRIS)[::7])
    assert better.inertia_ == pytest.approx(better.objective_)


def test_a_search_is_never_worse_than_cold_e_steps() -> None:
    """E-steps that start cold may lose what the search gains, and more."""
    pairs = Constraints.sample(SPECIES, 60, np.random.default_rng(0))
    for seed in range(3):
        model = PCKMeans(3, e_step_start="cold", random_state=seed)
        model.fit(IRIS, **pairs.fit_params(), ml_weight=0.5, cl_weight=np.inf)
        better = improve(model, IRIS, method="hartigan")
        assert better.objective_ <= model.objective_ * (1 + 1e-10)


def test_known_labels_keep_their_numbers_in_the_search() -> None:
    partial_labels = np.full(150, -1)
    partial_labels[[0, 60, 120]] = [2, 0, 1]
    model = PCKMeans(3, random_state=0).fit(IRIS, partial_labels=partial_labels)
    better = improve(model, IRIS, partial_labels=partial_labels)
    assert better.labels_[[0, 60, 120]].tolist() == [2, 0, 1]


def test_a_search_refuses_other_objectives_and_data() -> None:
    fitted = PCKMeans(3, random_state=0).fit(IRIS)
    for model in (
        HMRFKMeans(3, distortion="cosine", random_state=0).fit(IRIS),
        MPCKMeans(3, n_init=1, random_state=0).fit(IRIS),
        KMeans(3, n_init=1, random_state=0).fit(IRIS),
    ):
        with pytest.raises(TypeError, match="improve has no search for the objective"):
            improve(model, IRIS)
    with pytest.raises(TypeError, match="improve takes a fitted estimator"):
        improve(PCKMeans(3), IRIS)
    with pytest.raises(TypeError, match="dense"):
        improve(fitted, csr_array(IRIS))
    with pytest.raises(ValueError, match="150 rows"):
        improve(fitted, IRIS[:100])
    with pytest.raises(ValueError, match="method must be hartigan or memetic, got 'swaps'"):
        improve(fitted, IRIS, method="swaps")
    with pytest.raises(ValueError, match="partial_labels"):
        improve(fitted, IRIS, partial_labels=[0, 1])


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
