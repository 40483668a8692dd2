"""TVClust by sampling: against sums over all partitions of few points, and by what it promises."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy.special import betaln, gammaln, multigammaln

from inference_lab.clustering import TVClustSampler
from inference_lab.clustering._side import read_side
from inference_lab.clustering.dp_means import Pairs
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

GAUSSIAN = np.array([[-1.2, 0.3], [-0.8, 0.0], [0.4, 0.5], [1.5, -0.6], [1.1, 0.4], [0.1, -0.2]])
COUNTS = np.array([[4.0, 0, 1], [3, 1, 0], [1, 1, 1], [0, 2, 3], [0, 1, 4], [2, 2, 0]])
ANSWERS = Constraints([(0, 1), (3, 4), (2, 3)], [(0, 4), (1, 2)], n_points=6)
#: Settings of the posterior that is summed.
ALPHA, P, Q = 0.8, (3.0, 1.5), (2.5, 1.0)


def partitions(n: int) -> Iterator[tuple[int, ...]]:
    """Yield all partitions of n points, clusters numbered as they come."""

    def grown(labels: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(labels) == n:
            yield labels
            return
        for h in range(max(labels, default=-1) + 2):
            yield from grown((*labels, h))

    yield from grown(())


def log_likelihood(points: np.ndarray, belief: float) -> float:
    """Return the log-probability of the points of one cluster, by the textbook's formula."""
    n, d = points.shape
    if belief:
        held = points.sum(axis=0)
        value = gammaln(belief + held).sum() - d * gammaln(belief)
        return float(value + gammaln(d * belief) - gammaln(d * belief + held.sum()))
    mean = points.mean(axis=0)
    around = points - mean
    scatter = np.eye(d) + around.T @ around + n / (n + 1.0) * np.outer(mean, mean)
    value = -0.5 * n * d * math.log(math.pi) - 0.5 * d * math.log(n + 1.0)
    value -= 0.5 * (d + n) * np.linalg.slogdet(scatter)[1]
    return float(value + multigammaln(0.5 * (d + n), d) - multigammaln(0.5 * d, d))


def log_answers(labels: np.ndarray, right: tuple[float, float] | None = None) -> float:
    """Return the log-probability of the answers, with the shares of right ones or without."""
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


def posterior(
    points: np.ndarray, belief: float = 0.0, right: tuple[float, float] | None = None
) -> dict[tuple[int, ...], float]:
    """Return the probability of each partition."""
    found = {}
    for labels in partitions(len(points)):
        z = np.array(labels)
        groups = [points[z == h] for h in range(z.max() + 1)]
        value = sum(
            math.log(ALPHA) + float(gammaln(len(group))) + log_likelihood(group, belief)
            for group in groups
        )
        found[labels] = value + log_answers(z, right)
    top = max(found.values())
    total = sum(math.exp(value - top) for value in found.values())
    return {labels: math.exp(value - top) / total for labels, value in found.items()}


def canonical(labels: Any) -> tuple[int, ...]:
    """Return labels with clusters numbered as they come."""
    names: dict[int, int] = {}
    return tuple(names.setdefault(int(label), len(names)) for label in labels)


def distance(samples: Any, exact: dict[tuple[int, ...], float]) -> float:
    """Return the total variation of the frequencies from the probabilities."""
    seen = dict.fromkeys(exact, 0.0)
    for labels in samples:
        seen[canonical(labels)] += 1.0 / len(samples)
    return 0.5 * sum(abs(seen[labels] - share) for labels, share in exact.items())


def expected_distance(exact: dict[tuple[int, ...], float], samples: int) -> float:
    """Return about how far independent samples are off."""
    return 0.5 * sum(math.sqrt(2 * s * (1 - s) / (math.pi * samples)) for s in exact.values())


def test_partitions_are_all():
    assert [len(list(partitions(n))) for n in range(1, 7)] == [1, 2, 5, 15, 52, 203]


@pytest.mark.parametrize("moves", [0, 2])
@pytest.mark.parametrize("data", ["gaussian", "counts"])
def test_frequencies_are_the_probabilities(data, moves):
    points = GAUSSIAN if data == "gaussian" else COUNTS
    samples = 5_000
    model = TVClustSampler(
        data=data, alpha=ALPHA, belief=0.7, p_prior=P, q_prior=Q, standardise=False,
        n_samples=1, thinning=samples, burn_in=0, split_merge=moves, random_state=0,
    )  # fmt: skip
    # One sample is kept, but all are seen here.
    seen = []

    class Watched(_Chain):
        def log_joint(self) -> float:
            seen.append(self.labels.copy())
            return 0.0

    Watched(model, points, read_side(6, None, **ANSWERS.fit_params()), np.random.default_rng(moves))
    exact = posterior(points, 0.7 if data == "counts" else 0.0)
    # Sweeps are not independent, but nearly: the chain forgets in about two.
    assert distance(seen, exact) < 2.5 * expected_distance(exact, samples)
    # And the check would see answers left aside.
    wrong = posterior(points, 0.7 if data == "counts" else 0.0, right=(0.5, 0.5))
    assert distance(seen, wrong) > 4.0 * expected_distance(exact, samples)


@pytest.mark.parametrize("belief", [0.0, 0.7])
def test_splits_and_merges_alone_have_the_posterior(belief):
    points = COUNTS if belief else GAUSSIAN
    n, right = len(points), (0.8, 0.7)
    pairs = Pairs(ANSWERS, n)
    gain = math.log(right[0]) - math.log(1 - right[1])
    loss = math.log(1 - right[0]) - math.log(right[1])
    effect = np.where(pairs.weight > 0, gain, loss)
    state, labels = clusters(points, 7, belief), np.zeros(n, dtype=np.int64)
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
    exact = posterior(points, belief, right)
    assert distance(seen, exact) < 4.0 * expected_distance(exact, moves)
    assert distance(seen, posterior(points, belief, (0.5, 0.5))) > 0.1


@pytest.mark.parametrize("belief", [0.0, 0.7])
def test_statistics_follow_points_that_come_and_go(belief):
    """Evidence is that of the textbook, and each predictive is a ratio of two of them."""
    rng = np.random.default_rng(0)
    points = rng.poisson(2.0, (12, 4)).astype(float) if belief else rng.normal(size=(12, 4))
    state = clusters(points, 1, belief)
    for i in range(12):
        before = log_evidence(state, 0)
        predicted = log_predictive(state, points[i], 0)
        change(state, points[i], 0, 1)
        assert log_evidence(state, 0) == pytest.approx(log_likelihood(points[: i + 1], belief))
        assert log_evidence(state, 0) - before == pytest.approx(predicted)
    for i in (3, 7, 0, 11):
        change(state, points[i], 0, -1)
    left = np.delete(points, [3, 7, 0, 11], axis=0)
    assert log_evidence(state, 0) == pytest.approx(log_likelihood(left, belief))


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
    model.fit(points, must_link=answers.must_link, cannot_link=answers.cannot_link)
    assert model.n_clusters_ == 3
    assert ((model.labels_[:, None] == model.labels_) == (truth[:, None] == truth)).mean() > 0.97
    # A fifth of the answers is wrong: 65 to 70 of must-links that should be, the same of others.
    assert 0.7 < model.q_ < 0.9 and 0.55 < model.p_ < 0.9
    assert (model.predict(points) == model.labels_).mean() > 0.95
    together = model.co_clustering(rows=[0, 1, 2])
    assert together.shape == (3, 3) and (np.diag(together) == 1.0).all()
    np.testing.assert_allclose(together, model.co_clustering()[:3, :3])
    again = TVClustSampler(n_samples=30, burn_in=40, random_state=0)
    again.fit(points, must_link=answers.must_link, cannot_link=answers.cannot_link)
    np.testing.assert_array_equal(again.samples_, model.samples_)


def test_topics_are_told_apart_and_what_is_refused():
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1], 20)
    topics = np.array([[5.0, 5, 1, 1], [1, 1, 5, 5]]) / 12
    points = np.array([rng.multinomial(30, topics[label]) for label in truth], dtype=float)
    model = TVClustSampler(data="counts", n_samples=20, burn_in=20, random_state=0).fit(points)
    assert model.n_clusters_ == 2
    np.testing.assert_allclose(model.cluster_centers_.sum(axis=1), 1.0)
    assert ((model.labels_[:, None] == model.labels_) == (truth[:, None] == truth)).all()
    with pytest.raises(ValueError, match="needs counts"):
        TVClustSampler(data="counts").fit(-points)
    with pytest.raises(ValueError, match="data = 'words' is unknown"):
        TVClustSampler(data="words").fit(points)
    with pytest.raises(ValueError, match="p_prior must be positive"):
        TVClustSampler(p_prior=(0.0, 1.0)).fit(points)


def test_many_clusters_have_room():
    """With more clusters than there are slots at first, slots are added."""
    points = np.random.default_rng(0).normal(size=(40, 1))
    model = TVClustSampler(alpha=1e5, n_samples=3, burn_in=3, random_state=0).fit(points)
    assert model.n_clusters_ > 30
