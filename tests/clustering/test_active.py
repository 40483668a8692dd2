"""Active learning: the queries, the inferred pairs, and the held-out points."""

import itertools

import numpy as np
import pytest
from clusterers import by_pairs
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_iris

from inference_lab.clustering import ExploreConsolidate, PCKMeans
from inference_lab.clustering.initialisation import initial_centroids
from inference_lab.constraints import Constraints
from inference_lab.distortions.distortions import SquaredEuclidean
from inference_lab.results.scoring import pairwise_f


@given(
    seed=st.integers(0, 10**6),
    k=st.integers(1, 5),
    budget=st.integers(0, 60),
    unknown=st.sampled_from([0.0, 0.3]),
    tell_k=st.booleans(),
)
def test_answers_are_consistent_and_within_budget(seed, k, budget, unknown, tell_k):
    rng = np.random.default_rng(seed)
    n = 24
    truth = np.concatenate([np.arange(k), rng.integers(k, size=n - k)])
    points = rng.normal(size=(n, 2)) + 3 * truth[:, np.newaxis]
    shown = np.where(rng.random(n) < unknown, -1, truth)
    candidates = np.sort(rng.permutation(n)[:16])
    answers = ExploreConsolidate(k if tell_k else None, budget, random_state=seed).run(
        points, shown, candidates=candidates
    )
    assert len(answers.questions) <= budget
    if not answers.complete:
        assert len(answers.questions) == budget
    asked = [tuple(sorted(q[:2])) for q in answers.questions]
    assert len(set(asked)) == len(asked), "no pair is asked about twice"
    touched = set(itertools.chain(*asked))
    assert touched <= set(candidates.tolist())
    for pair in (*answers.constraints.must_link, *answers.constraints.cannot_link):
        assert set(pair.tolist()) <= set(candidates.tolist())
    # Answers from classes are true, and so are all inferred pairs if K is right.
    if tell_k and unknown == 0:
        must, cannot = answers.constraints.must_link, answers.constraints.cannot_link
        present = len(np.unique(truth[candidates]))
        if present == k:
            assert (truth[must[:, 0]] == truth[must[:, 1]]).all()
        assert (truth[cannot[:, 0]] != truth[cannot[:, 1]]).all()
    if unknown == 0 and not tell_k:
        for group in answers.neighbourhoods:
            assert len(np.unique(truth[group])) == 1
        classes = [truth[group[0]] for group in answers.neighbourhoods]
        assert len(set(classes)) == len(classes)
    answered = [q for q in answers.questions if q.answer is not None]
    inferred = len(answers.constraints) - len(answered)
    assert inferred >= 0
    assert inferred == 0 or tell_k


def test_every_cluster_is_found_and_every_point_placed_in_the_end():
    rng = np.random.default_rng(0)
    truth = rng.integers(4, size=60)
    points = rng.normal(size=(60, 2)) + 4 * np.array([[0, 0], [0, 1], [1, 0], [1, 1]])[truth]
    answers = ExploreConsolidate(4, budget=10**6, random_state=1).run(points, truth)
    assert answers.complete
    assert answers.phase == "consolidate"
    groups = sorted(tuple(group) for group in answers.neighbourhoods)
    assert groups == sorted(tuple(np.flatnonzero(truth == c)) for c in range(4))
    # The last of K neighbourhoods needs no question: at most K - 1 a point once all are known.
    per_point = {}
    for q in answers.questions:
        per_point[q.first] = per_point.get(q.first, 0) + 1
    assert max(per_point.values()) <= 3


def test_explore_takes_the_farthest_point_first():
    points = np.array([[0.0], [0.1], [10.0], [4.0]])
    asked = []

    def oracle(first, second):
        asked.append((first, second))
        return False

    answers = ExploreConsolidate(4, budget=3, random_state=3).run(points, oracle)
    # From any starting point, the next one is at the other end.
    start = asked[0][1]
    expected = {0: 2, 1: 2, 2: 0, 3: 2}[start]
    assert asked[0] == (expected, start)
    assert len(answers.neighbourhoods) == 3


def test_budget_ends_in_the_middle_of_a_point():
    points = np.array([[0.0], [10.0], [20.0], [19.0]])
    truth = [0, 1, 2, 3]
    full = ExploreConsolidate(4, budget=6, random_state=0).run(points, truth)
    short = ExploreConsolidate(4, budget=5, random_state=0).run(points, truth)
    assert short.questions == full.questions[:5]
    assert len(short.constraints.cannot_link) == 5
    assert len(short.neighbourhoods) == 3
    assert len(full.neighbourhoods) == 4


def test_dont_know_adds_no_neighbourhood_and_is_not_queried_again():
    points = np.array([[0.0], [10.0], [20.0]])
    answers = ExploreConsolidate(3, budget=50, random_state=0).run(points, lambda i, j: None)
    assert len(answers.neighbourhoods) == 1
    assert len(answers.constraints) == 0
    assert len(answers.questions) == 2
    assert answers.complete


def test_active_constraints_beat_random_ones_on_iris():
    data = load_iris()
    ours, random = [], []
    for seed in range(10):
        answers = ExploreConsolidate(3, budget=40, random_state=seed).run(data.data, data.target)
        drawn = Constraints.sample(data.target, 40, np.random.default_rng(seed))
        for pairs, scores in ((answers.constraints, ours), (drawn, random)):
            model = PCKMeans(3, closure="raise", random_state=seed)
            model.fit(data.data, **pairs.fit_params())
            scores.append(pairwise_f(data.target, model.labels_))
    assert np.mean(ours) > np.mean(random)


def test_bad_arguments():
    with pytest.raises(ValueError, match="n_clusters"):
        ExploreConsolidate(0, 5)
    with pytest.raises(ValueError, match="budget"):
        ExploreConsolidate(2, -1)
    with pytest.raises(ValueError, match="oracle"):
        ExploreConsolidate(2, 5).run(np.eye(3), [0, 1])
    with pytest.raises(ValueError, match="candidates"):
        ExploreConsolidate(2, 5).run(np.eye(3), [0, 1, 1], candidates=[7])
    nothing = ExploreConsolidate(2, 5).run(np.eye(3), [0, 1, 1], candidates=[])
    assert nothing.complete
    assert nothing.questions == []


def test_points_apart_from_all_neighbourhoods_found_clusters():
    """They come after the neighbourhoods, by the number of neighbourhoods they are apart from."""
    points = np.arange(10.0)[:, np.newaxis] ** 2
    pairs = Constraints(
        [(0, 1), (2, 3)],
        # 4 and 5 are apart from both neighbourhoods and each other, through any member; 6 from one
        # of them only, 7 from both, but not from 4 or 5.
        [(0, 4), (3, 4), (1, 5), (2, 5), (4, 5), (4, 8), (6, 0), (7, 1), (7, 3)],
        n_points=10,
    )

    def start(k, init="neighbourhoods+singletons"):
        rng = np.random.default_rng(0)
        return initial_centroids(points, by_pairs(pairs), k, SquaredEuclidean(), init, rng)

    means = [points[:2].mean(), points[2:4].mean()]
    assert sorted(start(4)[:, 0]) == sorted([*means, points[4, 0], points[5, 0]])
    assert sorted(start(3)[:, 0]) == sorted([*means, points[4, 0]])
    # The remaining clusters start as without these points.
    assert sorted(start(6)[:4, 0]) == sorted(start(4)[:, 0])
    assert start(2).tolist() == start(2, "neighbourhoods+perturbed").tolist()
    without = Constraints(None, [(0, 9), (0, 5), (9, 5), (3, 0)], n_points=10)
    rng = np.random.default_rng(0)
    three = initial_centroids(
        points, by_pairs(without), 3, SquaredEuclidean(), "neighbourhoods+singletons", rng
    )
    assert sorted(three[:, 0]) == [points[0, 0], points[5, 0], points[9, 0]]


def test_clusters_start_at_the_neighbourhoods_of_exploration():
    points = np.concatenate([np.full((5, 2), 10.0 * h) for h in range(4)])
    points += np.random.default_rng(0).normal(size=points.shape)
    truth = np.repeat(np.arange(4), 5)
    answers = ExploreConsolidate(4, budget=6, random_state=0).run(points, truth)
    assert len(answers.neighbourhoods) == 4 and answers.constraints.must_link.size == 0
    start = initial_centroids(
        points,
        by_pairs(answers.constraints),
        4,
        SquaredEuclidean(),
        "neighbourhoods+singletons",
        np.random.default_rng(0),
    )
    founders = np.concatenate(answers.neighbourhoods)
    assert {*map(tuple, start)} == {*map(tuple, points[founders])}
