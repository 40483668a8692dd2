"""COP-KMeans: hard constraints, reported failures, and the printed algorithm in plain Python."""

from __future__ import annotations

import itertools
import time
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_iris

from inference_lab.clustering.cop_kmeans import ConstraintsNotMetWarning, COPKMeans
from inference_lab.constraints import Constraints

Floats = npt.NDArray[np.float64]
Pairs = list[tuple[int, int]]


def satisfied(labels: Any, must: Any, cannot: Any) -> bool:
    return all(labels[i] == labels[j] for i, j in must) and all(
        labels[i] != labels[j] for i, j in cannot
    )


@st.composite
def problems(draw: st.DrawFn) -> tuple[Floats, Pairs, Pairs, int, int]:
    """Draw points, arbitrary pairs (contradictions too), k and a seed."""
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    n, k = draw(st.integers(3, 7)), draw(st.integers(1, 3))
    pairs = list(itertools.combinations(range(n), 2))
    must = draw(st.lists(st.sampled_from(pairs), max_size=4))
    cannot = draw(st.lists(st.sampled_from(pairs), max_size=7))
    return rng.normal(size=(n, 2)), must, cannot, min(k, n), seed % 1000


@given(problems(), st.sampled_from(["random", "given"]), st.booleans())
def test_constraints_hold_or_the_status_is_a_failure(
    problem: tuple[Floats, Pairs, Pairs, int, int], order: Any, whole: bool
) -> None:
    points, must, cannot, k, seed = problem
    model = COPKMeans(k, order=order, whole_components=whole, random_state=seed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(points, must_link=must, cannot_link=cannot)
    unmet = [warning for warning in caught if warning.category is ConstraintsNotMetWarning]
    assert model.feasible_ == (not unmet)
    assert model.feasible_ == satisfied(model.labels_, must, cannot)
    assert model.feasible_ == (model.status_ in ("converged", "limit", "cycle", "blocked"))
    wrong = model.violations_
    assert model.feasible_ == ((0, 0, 0.0) == wrong)
    possible = any(
        satisfied(labels, must, cannot)
        for labels in itertools.product(range(k), repeat=len(points))
    )
    assert possible or not model.feasible_
    if model.status_ == "infeasible":
        assert not possible
    if model.status_ == "failed":
        assert 10 == model.n_failures_
    # Must-links are kept even in failed starts.
    assert 0 == wrong.must_link
    distances = model.transform(points)[np.arange(len(points)), model.labels_]
    assert (distances**2).sum() == pytest.approx(model.objective_)
    for h in np.unique(model.labels_):
        mean = points[model.labels_ == h].mean(axis=0)
        np.testing.assert_allclose(model.cluster_centers_[h], mean, atol=1e-9)


def wagstaff(points: Floats, must: Any, cannot: Any, start: Floats) -> tuple[str, float]:
    """Run the algorithm as printed, on closed constraints; return its status and its least cost."""
    n, centres = len(points), start.copy()
    friends = [{j for i, j in [*must, *must[:, ::-1]] if i == p} for p in range(n)]
    enemies = [{j for i, j in [*cannot, *cannot[:, ::-1]] if i == p} for p in range(n)]
    seen: list[list[int]] = []
    values: list[float] = []
    while True:
        labels = [-1] * n
        for p in range(n):
            for h in np.argsort(((points[p] - centres) ** 2).sum(axis=1), kind="stable"):
                apart = any(labels[q] not in (-1, h) for q in friends[p])
                if not apart and all(labels[q] != h for q in enemies[p]):
                    labels[p] = int(h)
                    break
            else:
                return ("blocked", min(values)) if seen else ("failed", np.inf)
        if labels in seen:
            return "converged" if labels == seen[-1] else "cycle", min(values)
        for h in set(labels):
            centres[h] = points[np.array(labels) == h].mean(axis=0)
        seen.append(labels)
        values.append(float(((points - centres[labels]) ** 2).sum()))


def test_the_printed_algorithm() -> None:
    """In row order with single-point decisions, the fit is Wagstaff's."""
    rng = np.random.default_rng(0)
    outcomes = dict.fromkeys(["converged", "cycle", "blocked", "failed"], 0)
    for _ in range(100):
        n, k = 14, 3
        points = rng.normal(size=(n, 2))
        truth = rng.integers(k, size=n)
        closed = Constraints.sample(truth, 9, rng).close()
        start = points[:k]
        outcome, objective = wagstaff(points, closed.must_link, closed.cannot_link, start)
        model = COPKMeans(
            k,
            init=start,
            order="given",
            whole_components=False,
            tol=0.0,
            empty_clusters="keep",
            max_failures=1,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConstraintsNotMetWarning)
            model.fit(points, **closed.fit_params())
        assert outcome == model.status_
        assert model.converged_ == (outcome == "converged")
        if outcome != "failed":
            assert objective == pytest.approx(model.objective_)
        outcomes[outcome] += 1
    assert min(outcomes.values()) >= 2, outcomes


def test_whole_components_go_where_their_sum_is_least() -> None:
    """The first of three linked points is nearest to one centre, their sum to the other."""
    points = np.array([[0.0], [6.0], [6.0], [-1.0], [7.0]])
    start = np.array([[-1.0], [7.0]])
    common: dict[str, Any] = {"init": start, "order": "given", "max_iter": 1, "tol": 0.0}
    must = [(0, 1), (1, 2)]
    whole = COPKMeans(2, **common).fit(points, must_link=must)
    assert [1, 1, 1, 0, 1] == whole.labels_.tolist()
    first = COPKMeans(2, whole_components=False, **common).fit(points, must_link=must)
    assert [0, 0, 0, 0, 1] == first.labels_.tolist()


@pytest.mark.parametrize("whole", [True, False])
def test_initial_centres_come_from_different_components(whole: bool) -> None:
    """With as many components as clusters, every start finds exactly these."""
    rng = np.random.default_rng(0)
    truth = rng.permutation(np.repeat(np.arange(4), [30, 5, 2, 3]))
    points = rng.normal(size=(40, 2))
    must = [
        pair for h in range(4) for pair in itertools.pairwise(np.flatnonzero(truth == h).tolist())
    ]
    cannot = [
        (int(np.flatnonzero(truth == g)[0]), int(np.flatnonzero(truth == h)[0]))
        for g, h in itertools.combinations(range(4), 2)
    ]
    for seed in range(10):
        model = COPKMeans(4, random_state=seed, whole_components=whole)
        model.fit(points, must_link=must, cannot_link=cannot)
        together = model.labels_[:, np.newaxis] == model.labels_
        assert (together == (truth[:, np.newaxis] == truth)).all()
        if whole:
            within = sum(
                float(((points[truth == h] - points[truth == h].mean(axis=0)) ** 2).sum())
                for h in range(4)
            )
            assert within == pytest.approx(model.history_[0].objective)
    few = COPKMeans(4, random_state=0).fit(points, must_link=[(0, i) for i in range(1, 40)])
    assert 1 == len(set(few.labels_.tolist()))


def test_a_clique_of_k_plus_one_cannot_links() -> None:
    """No labelling exists: the fit fails, and its labels have the fewest violations."""
    points = np.arange(8.0)[:, np.newaxis]
    clique = list(itertools.combinations(range(4), 2))
    with pytest.warns(ConstraintsNotMetWarning, match="each two of the points 0, 1, 2, 3"):
        model = COPKMeans(3, max_failures=6, random_state=0).fit(points, cannot_link=clique)
    assert ("infeasible", False, 6) == (model.status_, model.feasible_, model.n_failures_)
    assert (0, 1, 1.0) == model.violations_
    assert len(model.cluster_centers_) == 3
    assert COPKMeans(4, random_state=0).fit(points, cannot_link=clique).feasible_


def test_contradictions_are_proved() -> None:
    points = np.arange(6.0)[:, np.newaxis]
    pairs: dict[str, Any] = {"must_link": [(0, 1), (1, 2)], "cannot_link": [(2, 0), (3, 4)]}
    with pytest.warns(ConstraintsNotMetWarning, match="points 0 and 2"):
        model = COPKMeans(2, random_state=0).fit(points, **pairs)
    assert ("infeasible", False) == (model.status_, model.feasible_)
    assert (0, 1, 1.0) == model.violations_


def test_another_order_succeeds() -> None:
    """In row order 0 and 1 separate, and leave no cluster for 2, which may join neither."""
    points = np.array([[0.0], [10.0], [5.1]])
    start, cannot = [[0.0], [10.0]], [(0, 2), (1, 2)]
    with pytest.warns(ConstraintsNotMetWarning, match="all 10 starts failed"):
        model = COPKMeans(2, order="given", init=start).fit(points, cannot_link=cannot)
    assert ("failed", 10) == (model.status_, model.n_failures_)
    chance = [
        COPKMeans(2, init=start, random_state=s).fit(points, cannot_link=cannot) for s in range(20)
    ]
    assert all(model.feasible_ for model in chance)
    assert any(model.n_failures_ > 0 for model in chance)


def test_a_later_sweep_that_fails_tries_other_orders() -> None:
    """If drawn once a start, one order in three fails after one sweep, far from convergence."""
    points = np.array([[0.0], [4.0], [-1.0], [-1.0], [-1.0], [4.5]])
    pairs = {"cannot_link": [(0, 5), (1, 5)]}
    models = [
        COPKMeans(2, init=[[0.0], [10.0]], random_state=seed).fit(points, **pairs)
        for seed in range(20)
    ]
    assert {"converged"} == {model.status_ for model in models}
    # The labels of the earlier sweep are kept.
    impatient = [
        COPKMeans(2, init=[[0.0], [10.0]], max_failures=1, random_state=seed) for seed in range(20)
    ]
    statuses = [model.fit(points, **pairs).status_ for model in impatient]
    assert {"converged", "blocked"} == set(statuses)
    assert all(model.feasible_ for model in impatient)


def test_the_best_of_the_starts_that_succeed() -> None:
    points, truth = load_iris(return_X_y=True)
    c = Constraints.sample(truth, 60, np.random.default_rng(0))
    pairs = {"must_link": c.must_link, "cannot_link": c.cannot_link}
    values = [
        COPKMeans(3, random_state=1, n_init=m).fit(points, **pairs).objective_ for m in (1, 20)
    ]
    assert values[1] <= values[0]
    model = COPKMeans(3, random_state=1, n_init=20).fit(points, **pairs)
    assert values[1] == model.objective_
    assert model.feasible_
    from_groups = COPKMeans(3, init="neighbourhoods", random_state=1).fit(points, **pairs)
    assert from_groups.feasible_
    assert (from_groups.labels_ == from_groups.predict(points)).mean() > 0.8
    assert "converged" == COPKMeans(3).fit(points, must_link=[], cannot_link=[]).status_
    limited = COPKMeans(3, random_state=1, max_iter=1).fit(points, **pairs)
    assert ("limit", True) == (limited.status_, limited.feasible_)


def test_weights() -> None:
    """Weight zero omits a pair, and any other weight makes it hard."""
    points = np.array([[0.0], [1.0], [8.0], [9.0]])
    common: dict[str, Any] = {"init": [[0.0], [9.0]]}
    pairs: dict[str, Any] = {"cannot_link": [(0, 1), (2, 3)]}
    model = COPKMeans(2, **common).fit(points, **pairs, cl_weight=[1e-9, 0.0])
    assert model.labels_[0] != model.labels_[1]
    assert model.labels_[2] == model.labels_[3]
    assert 1 == len(model.constraints_)


def test_a_hundred_thousand_points() -> None:
    """A chain of 50,000 must-links and 10,000 random pairs takes seconds."""
    rng = np.random.default_rng(0)
    n, k = 100_000, 10
    truth = rng.integers(k, size=n)
    points = 3.0 * rng.normal(size=(k, 8))[truth] + rng.normal(size=(n, 8))
    members = np.flatnonzero(truth == 0)
    random = Constraints.sample(truth, 10_000, rng)
    must = np.concatenate([random.must_link, np.stack([members[:-1], members[1:]], axis=1)])
    COPKMeans(2, random_state=0).fit(points[:10])  # compiles
    since = time.perf_counter()
    model = COPKMeans(k, random_state=0).fit(points, must_link=must, cannot_link=random.cannot_link)
    seconds = time.perf_counter() - since
    assert model.feasible_
    assert (model.labels_[must[:, 0]] == model.labels_[must[:, 1]]).all()
    cannot = random.cannot_link
    assert (model.labels_[cannot[:, 0]] != model.labels_[cannot[:, 1]]).all()
    assert seconds < 30.0  # 2 s on an idle machine
