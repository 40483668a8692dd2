"""TVClust by sampling: against sums over all partitions of few points, and by its guarantees."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy.special import betaln, gammaln, multigammaln

from inference_lab.clustering import TVClustSampler
from inference_lab.clustering.dp_means import Pairs
from inference_lab.clustering.supervision import read_side
from inference_lab.clustering.tvclust_sampler import (
    _Chain,
    change,
    clusters,
    gather,
    least_variation,
    log_evidence,
    log_predictive,
    split_or_merge,
)
from inference_lab.constraints import Constraints

POINTS = np.array([[-1.2, 0.3], [-0.8, 0.0], [0.4, 0.5], [1.5, -0.6], [1.1, 0.4], [0.1, -0.2]])
ANSWERS = Constraints([(0, 1), (3, 4), (2, 3)], [(0, 4), (1, 2)], n_points=6)
#: Settings of the enumerated posterior.
ALPHA, P, Q = 0.8, (3.0, 1.5), (2.5, 1.0)


def partitions(n: int) -> Iterator[tuple[int, ...]]:
    """Yield all partitions of n points, with clusters numbered by first appearance."""

    def grown(labels: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(labels) == n:
            yield labels
            return
        for h in range(max(labels, default=-1) + 2):
            yield from grown((*labels, h))

    yield from grown(())


def log_likelihood(points: np.ndarray) -> float:
    """Return the log-probability of the points of one cluster, by the textbook's formula."""
    n, d = points.shape
    mean = points.mean(axis=0)
    around = points - mean
    scatter = np.eye(d) + around.T @ around + n / (n + 1.0) * np.outer(mean, mean)
    value = -0.5 * n * d * math.log(math.pi) - 0.5 * d * math.log(n + 1.0)
    value -= 0.5 * (d + n) * np.linalg.slogdet(scatter)[1]
    return float(value + multigammaln(0.5 * (d + n), d) - multigammaln(0.5 * d, d))


def log_answers(labels: np.ndarray, right: tuple[float, float] | None = None) -> float:
    """Return the log-probability of the answers, with or without the shares of right ones."""
    ml, cl = ANSWERS.must_link, ANSWERS.cannot_link
    must = int((labels[ml[:, 0]] == labels[ml[:, 1]]).sum())
    cannot = int((labels[cl[:, 0]] == labels[cl[:, 1]]).sum())
    apart, wrong = len(cl) - cannot, len(ml) - must
    if right is not None:
        p, q = right
        value = must * math.log(p) + cannot * math.log(1 - p)
        return value + apart * math.log(q) + wrong * math.log(1 - q)
    value = betaln(P[0] + must, P[1] + cannot) - betaln(*P)
    return float(value + betaln(Q[0] + apart, Q[1] + wrong) - betaln(*Q))


def posterior(right: tuple[float, float] | None = None) -> dict[tuple[int, ...], float]:
    """Return the probability of each partition of the points."""
    found = {}
    for labels in partitions(len(POINTS)):
        z = np.array(labels)
        groups = [POINTS[z == h] for h in range(z.max() + 1)]
        value = sum(math.log(ALPHA) + float(gammaln(len(group))) for group in groups)
        value += sum(log_likelihood(group) for group in groups)
        found[labels] = value + log_answers(z, right)
    top = max(found.values())
    total = sum(math.exp(value - top) for value in found.values())
    return {labels: math.exp(value - top) / total for labels, value in found.items()}


def canonical(labels: Any) -> tuple[int, ...]:
    """Return labels with clusters numbered by first appearance."""
    names: dict[int, int] = {}
    return tuple(names.setdefault(int(label), len(names)) for label in labels)


def distance(samples: Any, exact: dict[tuple[int, ...], float]) -> float:
    """Return the total variation distance between frequencies and probabilities."""
    seen = dict.fromkeys(exact, 0.0)
    for labels in samples:
        seen[canonical(labels)] += 1.0 / len(samples)
    return 0.5 * sum(abs(seen[labels] - share) for labels, share in exact.items())


def expected_distance(exact: dict[tuple[int, ...], float], samples: int) -> float:
    """Return the expected distance of independent samples, approximately."""
    return 0.5 * sum(math.sqrt(2 * s * (1 - s) / (math.pi * samples)) for s in exact.values())


def test_partitions_are_all():
    assert [len(list(partitions(n))) for n in range(1, 7)] == [1, 2, 5, 15, 52, 203]


@pytest.mark.parametrize("moves", [0, 2])
def test_frequencies_are_the_probabilities(moves):
    samples = 5_000
    model = TVClustSampler(
        alpha=ALPHA, p_prior=P, q_prior=Q, standardise=False,
        n_samples=1, thinning=samples, burn_in=0, split_merge=moves, random_state=0,
    )  # fmt: skip
    # One sample is kept, but all are observed here.
    seen = []

    class Watched(_Chain):
        def log_joint(self) -> float:
            seen.append(self.labels.copy())
            return 0.0

    Watched(model, POINTS, read_side(6, None, **ANSWERS.fit_params()), np.random.default_rng(moves))
    exact = posterior()
    # Sweeps are nearly independent: the chain forgets in about two.
    assert distance(seen, exact) < 2.5 * expected_distance(exact, samples)
    # The check would detect ignored answers.
    wrong = posterior(right=(0.5, 0.5))
    assert distance(seen, wrong) > 4.0 * expected_distance(exact, samples)


def test_splits_and_merges_alone_have_the_posterior():
    points, n, right = POINTS, len(POINTS), (0.8, 0.7)
    pairs = Pairs(ANSWERS, n)
    gain = math.log(right[0]) - math.log(1 - right[1])
    loss = math.log(1 - right[0]) - math.log(right[1])
    effect = np.where(pairs.weight > 0, gain, loss)
    state, labels = clusters(points, 7), np.zeros(n, dtype=np.int64)
    gather(state, points, labels)
    rng = np.random.default_rng(1)
    moves = 8_000
    side, members = np.full(n, -1, dtype=np.int64), np.empty(n, dtype=np.int64)
    seen, accepted = [], 0
    for _ in range(moves):
        first, second = rng.choice(n, size=2, replace=False)
        accepted += split_or_merge(
            state, points, labels, pairs.ptr, pairs.partner, effect, math.log(ALPHA),
            int(first), int(second), rng.random(5 * n + 1), side, members,
        )  # fmt: skip
        seen.append(labels.copy())
    assert (side == -1).all() and accepted > moves / 20
    exact = posterior(right)
    assert distance(seen, exact) < 4.0 * expected_distance(exact, moves)
    assert distance(seen, posterior((0.5, 0.5))) > 0.1


def test_statistics_follow_added_and_removed_points():
    """Evidence follows the textbook, and each predictive is a ratio of two evidences."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(12, 2))
    state = clusters(points, 1)
    for i in range(12):
        before = log_evidence(state, 0)
        predicted = log_predictive(state, points[i], 0)
        change(state, points[i], 0, 1)
        assert log_evidence(state, 0) == pytest.approx(log_likelihood(points[: i + 1]))
        assert log_evidence(state, 0) - before == pytest.approx(predicted)
    for i in (3, 7, 0, 11):
        change(state, points[i], 0, -1)
    left = np.delete(points, [3, 7, 0, 11], axis=0)
    assert log_evidence(state, 0) == pytest.approx(log_likelihood(left))


def test_the_point_estimate_has_the_least_variation():
    samples = np.random.default_rng(0).integers(3, size=(12, 9))

    def variation(a: Any, b: Any) -> float:
        """Add both conditional entropies, over the joint shares."""
        value = 0.0
        for g, h in itertools.product(range(3), repeat=2):
            both = ((a == g) & (b == h)).mean()
            if both:
                value -= both * (
                    math.log(both / (a == g).mean()) + math.log(both / (b == h).mean())
                )
        return value

    means = [np.mean([variation(a, b) for b in samples]) for a in samples]
    best, mean = least_variation(samples)
    assert best == int(np.argmin(means)) and mean == pytest.approx(min(means))


def test_clusters_are_found_and_answers_judged():
    rng = np.random.default_rng(2)
    truth = rng.integers(3, size=90)
    points = rng.normal(size=(90, 2)) + 6.0 * np.eye(3)[truth][:, :2]
    answers = Constraints.sample(truth, 200, rng).flip(0.2, rng)
    model = TVClustSampler(n_samples=30, burn_in=40, random_state=0)
    model.fit(points, **answers.fit_params())
    assert model.n_clusters_ == 3
    assert ((model.labels_[:, None] == model.labels_) == (truth[:, None] == truth)).mean() > 0.97
    # A fifth of the answers is wrong: 60 of 76 must-links and 100 of 124 cannot-links are right.
    assert 0.7 < model.q_ < 0.9 and 0.55 < model.p_ < 0.9
    assert (model.predict(points) == model.labels_).mean() > 0.95
    together = model.co_clustering(rows=[0, 1, 2])
    assert together.shape == (3, 3) and (np.diag(together) == 1.0).all()
    np.testing.assert_allclose(together, model.co_clustering()[:3, :3])
    again = TVClustSampler(n_samples=30, burn_in=40, random_state=0)
    again.fit(points, **answers.fit_params())
    np.testing.assert_array_equal(again.samples_, model.samples_)


def test_slots_are_added_for_many_clusters():
    """With more clusters than initial slots, slots are added."""
    points = np.random.default_rng(0).normal(size=(40, 1))
    model = TVClustSampler(alpha=1e5, n_samples=3, burn_in=3, random_state=0).fit(points)
    assert model.n_clusters_ > 30
