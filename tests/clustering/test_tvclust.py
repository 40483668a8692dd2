"""TVClust: the bound rises, and is below the exact evidence by enumeration."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import betaln, gammaln, ive, logsumexp
from sklearn.base import clone

from inference_lab.clustering import TVClust, TVClustSampler
from inference_lab.clustering.von_mises_fisher import log_bessel, log_normaliser, mean_length
from inference_lab.constraints import Constraints, SampleIds
from inference_lab.studies.estimators import ESTIMATORS


def drawn(seed: int, n: int = 60, pairs: int = 60) -> tuple[np.ndarray, np.ndarray, Constraints]:
    """Draw points of three groups and answers about pairs, a tenth of them wrong."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=n)
    points = rng.normal(size=(n, 2)) + 6.0 * np.array([[0, 0], [1, 0], [0, 1]])[truth]
    return points, truth, Constraints.sample(truth, pairs, rng).flip(0.1, rng)


def log_normal_wishart(points: np.ndarray) -> float:
    """Return the log-marginal of points under mean 0, beta 1, W = I and nu = d."""
    n, d = points.shape
    if n == 0:
        return 0.0
    beta, nu = 1.0 + n, d + n
    mean = points.sum(axis=0) / beta
    scatter = np.eye(d) + points.T @ points - beta * np.outer(mean, mean)
    gammas = sum(gammaln((nu - i) / 2) - gammaln((d - i) / 2) for i in range(d))
    value = gammas - nu / 2 * np.linalg.slogdet(scatter)[1] - d / 2 * math.log(beta)
    return float(value - n * d / 2 * math.log(math.pi))


def log_evidence(
    points: np.ndarray,
    k: int,
    constraints: Constraints,
    p: tuple,
    q: tuple,
    alpha: float,
    marginal: Any,
    sources: tuple,
) -> float:
    """Sum over all labellings: sticks, components and shares of right answers integrated out."""
    terms = []
    ml, cl = constraints.must_link, constraints.cannot_link
    by, of = (np.array(each) for each in sources)
    for z in itertools.product(range(k), repeat=len(points)):
        labels = np.array(z)
        value = 0.0
        for h in range(k):
            members = labels == h
            if h < k - 1:
                later = (labels > h).sum()
                value += betaln(1 + members.sum(), alpha + later) - betaln(1, alpha)
            value += marginal(points[members])
        must = labels[ml[:, 0]] == labels[ml[:, 1]]
        cannot = labels[cl[:, 0]] == labels[cl[:, 1]]
        for source in {*by, *of}:
            said, denied = must[by == source], cannot[of == source]
            value += betaln(p[0] + said.sum(), p[1] + denied.sum()) - betaln(*p)
            value += betaln(q[0] + (~denied).sum(), q[1] + (~said).sum()) - betaln(*q)
        terms.append(value)
    return float(logsumexp(terms))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("data", ["gaussian", "directions", "counts", "counts from the prior"])
def test_the_bound_rises_below_the_evidence_and_comes_near_it(data, seed):
    rng = np.random.default_rng(seed)
    constraints = Constraints([(0, 1), (2, 3)], [(0, 2), (1, 4)], n_points=5)
    told, sources = constraints.fit_params(), ((0, 0), (0, 0))
    p, q, alpha, belief = (4.0, 1.5), (3.0, 1.0), 0.7, 0.8
    points = np.array([[-2.0, 0.0], [-2.2, 0.3], [2.0, 0.0], [2.1, 0.2], [1.8, -0.3]])
    if data == "directions":
        points = np.array([[1.0, 0.1], [1.0, -0.2], [-0.1, 1.0], [0.2, 1.0], [0.1, 0.9]])
        sources = ((0, 2), (2, 1))
        told |= {"ml_source": sources[0], "cl_source": sources[1]}
    points = points + 0.1 * rng.normal(size=points.shape)
    if data.startswith("counts"):
        words = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]])[[0, 0, 1, 1, 1]]
        points = np.array([rng.multinomial(6, p) for p in words]).astype(np.float64)
    model = TVClust(
        *(3,), data=data.split()[0], alpha=alpha, belief=belief, p_prior=p, q_prior=q, n_init=5,
        standardise=False, init="prior" if "prior" in data else "pckmeans", random_state=seed,
    )  # fmt: skip
    model.fit(points, **told)

    def of_directions(members: np.ndarray) -> float:
        kappa = model.concentration_
        total = kappa * np.linalg.norm(members.sum(axis=0))
        value = len(members) * log_normaliser(2, kappa) + log_normaliser(2, 0.0)
        return float(value - log_normaliser(2, total))

    def of_counts(members: np.ndarray) -> float:
        posterior = belief + members.sum(axis=0)
        value = gammaln(3 * belief) - gammaln(posterior.sum())
        return float(value + gammaln(posterior).sum() - 3 * gammaln(belief))

    marginal = {"gaussian": log_normal_wishart, "directions": of_directions}.get(data, of_counts)
    if data == "directions":
        points = points / np.linalg.norm(points, axis=1, keepdims=True)
    exact = log_evidence(points, 3, constraints, p, q, alpha, marginal, sources)
    assert exact - 3.0 < -model.objective_ <= exact + 1e-9
    values = [-line.objective for line in model.history_]
    assert all(b >= a - 1e-8 * abs(a) for a, b in itertools.pairwise(values))
    assert model.converged_ and model.objective_ == -values[-1]


def test_counts_are_clustered_sparse_as_dense():
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=90)
    points = np.array([rng.multinomial(40, p) for p in (0.1 + np.eye(3))[truth] / 1.3])
    some = TVClust(8, data="counts", random_state=0)
    model = clone(some).fit(points)
    assert model.n_clusters_ == 3 and agreement(model.labels_, truth) == 1.0
    held = np.unique(model.labels_)
    expected = (0.1 + np.eye(3)) / 1.3
    found = model.cluster_centers_[held]
    assert np.abs(found[found.argmax(axis=1).argsort()] - expected).max() < 0.03
    np.testing.assert_array_equal(model.predict(points), model.labels_)
    sparse = csr_array(points.astype(float))
    assert agreement(clone(some).fit(sparse).labels_, truth) == 1.0
    # From one start; the start by k-means depends on ties, which rounding breaks differently.
    some.set_params(init="prior")
    dense, sparse = clone(some).fit(points), clone(some).fit(sparse)
    np.testing.assert_array_equal(sparse.labels_, dense.labels_)
    assert sparse.objective_ == pytest.approx(dense.objective_)
    with pytest.raises(ValueError, match="X has negative values; data='counts' needs counts"):
        clone(some).fit(points - 1)


def test_functions_of_directions():
    for order in (-0.5, 0.0, 2.5, 49.0, 51.0, 80.0):
        # If numbers are in range.
        for x in (0.01, 1.0, 30.0, 1e4) if order < 50 else (30.0, 1e4):
            expected = math.log(ive(order, x)) + x - order * math.log(x)
            assert log_bessel(order, x) == pytest.approx(expected, rel=1e-9, abs=1e-9)
        least = -order * math.log(2.0) - gammaln(order + 1.0)
        assert log_bessel(order, 0.0) == pytest.approx(least, rel=1e-9, abs=1e-9)
    # A is minus the slope of the log-normaliser.
    for d in (1, 2, 3, 40, 300):
        slope = log_normaliser(d, 2.0 - 1e-5) - log_normaliser(d, 2.0 + 1e-5)
        assert slope / 2e-5 == pytest.approx(float(mean_length(d, 2.0)), rel=1e-5)


def test_clusters_of_directions_do_not_depend_on_lengths():
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=90)
    points = np.eye(3)[truth] + 0.15 * rng.normal(size=(90, 3))
    model = TVClust(8, data="directions", random_state=0).fit(points)
    assert model.n_clusters_ == 3 and agreement(model.labels_, truth) == 1.0
    assert 20.0 < model.concentration_ < 90.0
    longer = points * rng.uniform(0.1, 10.0, size=(90, 1))
    np.testing.assert_array_equal(model.predict(longer), model.labels_)
    held = np.unique(model.labels_)
    np.testing.assert_allclose(np.linalg.norm(model.cluster_centers_[held], axis=1), 1.0)
    assert np.ptp(model._best.components.expected_log_density(np.zeros((1, 3)))) == 0.0


@pytest.mark.parametrize(
    "model",
    [
        TVClust(6, n_init=5, random_state=0),
        TVClustSampler(n_samples=30, burn_in=30, random_state=0),
    ],
    ids=["variation", "sampling"],
)
def test_each_source_is_weighted_by_its_reliability(model):
    """One source is reliable; the other is uninformative."""
    points, truth, _ = drawn(3, n=60)
    rng = np.random.default_rng(0)
    right = Constraints.sample(truth, 60, rng)
    noise = Constraints.sample(truth, 60, rng).flip(0.5, rng)
    told = {
        "must_link": np.concatenate([right.must_link, noise.must_link]),
        "cannot_link": np.concatenate([right.cannot_link, noise.cannot_link]),
        "ml_source": np.repeat([0, 1], [len(right.must_link), len(noise.must_link)]),
        "cl_source": np.repeat([0, 1], [len(right.cannot_link), len(noise.cannot_link)]),
    }
    model.fit(points, **told)
    assert agreement(model.labels_, truth) > 0.98
    assert model.q_[0] > 0.95 and model.q_[1] < 0.75
    # Rows without weight, and ids, leave each pair with its source.
    weight = np.ones(60)
    weight[:5] = 0.0
    fitted = model.fit(points, **told, sample_weight=weight)
    held = fitted.p_, fitted.q_, fitted.objective_
    again = model.fit(points[5:], **told, sample_ids=SampleIds(np.arange(60))[5:])
    np.testing.assert_allclose(np.hstack(held), np.hstack([again.p_, again.q_, again.objective_]))


def test_one_point_without_choice_has_its_evidence():
    """With one component only the factorisation is approximate, and here it is exact."""
    points = np.random.default_rng(0).normal(size=(6, 2))
    model = TVClust(1, standardise=False).fit(points)
    assert -model.objective_ == pytest.approx(log_normal_wishart(points))


def agreement(labels: np.ndarray, truth: np.ndarray) -> float:
    """Return the share of pairs that are together in both, or apart in both."""
    return float(((labels[:, None] == labels) == (truth[:, None] == truth)).mean())


@pytest.mark.parametrize("n_clusters", [2, 15])
@pytest.mark.parametrize("centres", [[[0.0], [9.0]], [[0, 0], [6.2, 6.2]], [[0] * 4, [4.4] * 4]])
def test_two_groups_far_apart_are_two_clusters(n_clusters, centres):
    """Means drawn from their prior are often on one side, and one component takes all points."""
    truth = np.repeat([0, 1], 15)
    for seed in range(10):
        noise = np.random.default_rng(seed).normal(size=(truth.size, len(centres[0])))
        model = TVClust(n_clusters, random_state=seed).fit(np.array(centres)[truth] + noise)
        assert agreement(model.labels_, truth) == 1.0, seed


def test_the_largest_component_comes_first():
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1, 2], [5, 15, 40])
    points = rng.normal(size=(60, 2)) + 9.0 * np.array([[0, 0], [1, 0], [0, 1]])[truth]
    labels = TVClust(6, random_state=0).fit_predict(points)
    held = [np.unique(labels[truth == h]).tolist() for h in range(3)]
    assert [len(h) for h in held] == [1, 1, 1]
    assert held[0] > held[1] > held[2] == [0]


def test_clusters_are_found_without_their_number_and_answers_judged():
    """Right answers do no harm; wrong ones may misplace a point or two."""
    points, truth, constraints = drawn(2)
    right = Constraints.sample(truth, 60, np.random.default_rng(0))
    model = TVClust(10, random_state=0).fit(points, **right.fit_params())
    assert model.n_clusters_ == 3 and agreement(model.labels_, truth) == 1.0
    assert model.p_ > 0.9 and model.q_ > 0.9
    assert model.responsibilities_.sum(axis=1) == pytest.approx(np.ones(len(points)))
    np.testing.assert_array_equal(model.predict(points), model.labels_)
    noisy = TVClust(10, random_state=0).fit(points, **constraints.fit_params())
    assert noisy.n_clusters_ == 3 and agreement(noisy.labels_, truth) > 0.9


def test_release_passes_each_message_once():
    points, _, constraints = drawn(2)
    model = TVClust.release(random_state=0).fit(points, **constraints.fit_params())
    assert model.n_iter_ <= 30 and model.responsibilities_.shape == (60, 15)


def test_replications_start_as_the_paper_does():
    assert TVClust.release().init == ESTIMATORS["tvclust"]().init == "prior"
    assert ESTIMATORS["tvclust-release"](3, None).init == "prior"
