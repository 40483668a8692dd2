"""TVClust by sampling: against sums over all partitions of few points, and by what it promises."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy.special import betaln, gammaln, ive, logsumexp, multigammaln
from sklearn.base import clone

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

GAUSSIAN = np.array([[-1.2, 0.3], [-0.8, 0.0], [0.4, 0.5], [1.5, -0.6], [1.1, 0.4], [0.1, -0.2]])
DIRECTIONS = np.array([[1.0, 0.1], [0.9, -0.3], [0.3, 1.0], [-0.4, 1.0], [0.1, 0.9], [0.6, 0.7]])
DIRECTIONS /= np.linalg.norm(DIRECTIONS, axis=1, keepdims=True)
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


def log_likelihood(points: np.ndarray, belief: float, kappa: float = -1.0) -> float:
    """Return the log-probability of the points of one cluster, by the textbook's formula."""
    n, d = points.shape
    if kappa >= 0.0:
        # On the circle the mean direction is integrated out by the definition of I_0.
        assert d == 2
        length = np.linalg.norm(points.sum(axis=0))
        value = math.log(ive(0, kappa * length)) + kappa * length
        return float(value - n * (math.log(2 * math.pi * ive(0, kappa)) + kappa))
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
    points: np.ndarray,
    belief: float = 0.0,
    right: tuple[float, float] | None = None,
    kappas: dict[float, float] | None = None,
) -> dict[tuple[int, ...], float]:
    """Return the probability of each partition, over concentrations with these log-weights."""
    found = {}
    for labels in partitions(len(points)):
        z = np.array(labels)
        groups = [points[z == h] for h in range(z.max() + 1)]
        value = sum(math.log(ALPHA) + float(gammaln(len(group))) for group in groups)
        likelihood = [
            weight + sum(log_likelihood(group, belief, kappa) for group in groups)
            for kappa, weight in (kappas or {-1.0: 0.0}).items()
        ]
        found[labels] = value + float(logsumexp(likelihood)) + log_answers(z, right)
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


#: Concentrations on a fine grid, weighed by the prior: log-normal around the two features.
CONCENTRATIONS = {
    float(np.exp(at)): -0.5 * (at - math.log(2.0)) ** 2
    for at in np.linspace(math.log(2.0) - 5.0, math.log(2.0) + 5.0, 201)
}
KINDS: dict[str, tuple[np.ndarray, dict[str, Any], dict[str, Any]]] = {
    "gaussian": (GAUSSIAN, {"data": "gaussian"}, {}),
    "counts": (COUNTS, {"data": "counts", "belief": 0.7}, {"belief": 0.7}),
    "directions": (
        DIRECTIONS,
        {"data": "directions", "concentration": 4.0},
        {"kappas": {4.0: 0.0}},
    ),
    "concentration": (DIRECTIONS, {"data": "directions"}, {"kappas": CONCENTRATIONS}),
}


@pytest.mark.parametrize("moves", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_frequencies_are_the_probabilities(kind, moves):
    points, settings, summed = KINDS[kind]
    samples = 5_000
    model = TVClustSampler(
        alpha=ALPHA, p_prior=P, q_prior=Q, standardise=False,
        n_samples=1, thinning=samples, burn_in=0, split_merge=moves, random_state=0, **settings,
    )  # fmt: skip
    # One sample is kept, but all are seen here.
    seen = []

    class Watched(_Chain):
        def log_joint(self) -> float:
            seen.append(self.labels.copy())
            return 0.0

    Watched(model, points, read_side(6, None, **ANSWERS.fit_params()), np.random.default_rng(moves))
    exact = posterior(points, **summed)
    # Sweeps are not independent, but nearly: the chain forgets in about two.
    assert distance(seen, exact) < 2.5 * expected_distance(exact, samples)
    # And the check would see answers left aside.
    wrong = posterior(points, **summed, right=(0.5, 0.5))
    assert distance(seen, wrong) > 4.0 * expected_distance(exact, samples)


@pytest.mark.parametrize("kind", ["gaussian", "counts", "directions"])
def test_splits_and_merges_alone_have_the_posterior(kind):
    points, settings, summed = KINDS[kind]
    given = settings.get("belief", 0.0), settings.get("concentration", -1.0)
    n, right = len(points), (0.8, 0.7)
    pairs = Pairs(ANSWERS, n)
    gain = math.log(right[0]) - math.log(1 - right[1])
    loss = math.log(1 - right[0]) - math.log(right[1])
    effect = np.where(pairs.weight > 0, gain, loss)
    state, labels = clusters(points, 7, *given), np.zeros(n, dtype=np.int64)
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
    exact = posterior(points, **summed, right=right)
    assert distance(seen, exact) < 4.0 * expected_distance(exact, moves)
    assert distance(seen, posterior(points, **summed, right=(0.5, 0.5))) > 0.1


@pytest.mark.parametrize("given", [(0.0, -1.0), (0.7, -1.0), (0.0, 4.0)])
def test_statistics_follow_points_that_come_and_go(given):
    """Evidence is that of the textbook, and each predictive is a ratio of two of them."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(12, 2))
    if given[0]:
        points = rng.poisson(2.0, (12, 4)).astype(float)
    elif given[1] > 0.0:
        points /= np.linalg.norm(points, axis=1, keepdims=True)
    state = clusters(points, 1, *given)
    for i in range(12):
        before = log_evidence(state, 0)
        predicted = log_predictive(state, points[i], 0)
        change(state, points[i], 0, 1)
        assert log_evidence(state, 0) == pytest.approx(log_likelihood(points[: i + 1], *given))
        assert log_evidence(state, 0) - before == pytest.approx(predicted)
    for i in (3, 7, 0, 11):
        change(state, points[i], 0, -1)
    left = np.delete(points, [3, 7, 0, 11], axis=0)
    assert log_evidence(state, 0) == pytest.approx(log_likelihood(left, *given))


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


def test_directions_are_told_apart_whatever_the_lengths():
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=60)
    points = np.eye(3)[truth] + 0.15 * rng.normal(size=(60, 3))
    points[0] = 0.0
    some = TVClustSampler(data="directions", n_samples=20, burn_in=40, random_state=0)
    model = clone(some).fit(points)
    assert model.n_clusters_ == 3 and 15.0 < model.concentration_ < 90.0
    assert canonical(model.labels_[1:]) == canonical(truth[1:])
    np.testing.assert_allclose(np.linalg.norm(model.cluster_centers_, axis=1), 1.0)
    longer = points * rng.uniform(0.1, 10.0, size=(60, 1))
    np.testing.assert_array_equal(clone(some).fit(longer).labels_, model.labels_)
    np.testing.assert_array_equal(model.predict(longer)[1:], model.labels_[1:])


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
