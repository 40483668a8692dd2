"""TVClust: the bound rises, and is below the exact evidence by enumeration."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.special import betaln, gammaln, logsumexp
from sklearn.metrics import adjusted_rand_score

from inference_lab.clustering import TVClust, tvclust
from inference_lab.clustering.hmrf import clamped
from inference_lab.clustering.tvclust import expected_logits_and_entropy
from inference_lab.constraints import Constraints
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
    points: np.ndarray, k: int, constraints: Constraints, p: tuple, q: tuple, alpha: float
) -> float:
    """Sum over all labellings: sticks, components and shares of right answers integrated out."""
    terms = []
    ml, cl = constraints.must_link, constraints.cannot_link
    for z in itertools.product(range(k), repeat=len(points)):
        labels = np.array(z)
        value = 0.0
        for h in range(k):
            members = labels == h
            if h < k - 1:
                later = (labels > h).sum()
                value += betaln(1 + members.sum(), alpha + later) - betaln(1, alpha)
            value += log_normal_wishart(points[members])
        must = labels[ml[:, 0]] == labels[ml[:, 1]]
        cannot = labels[cl[:, 0]] == labels[cl[:, 1]]
        value += betaln(p[0] + must.sum(), p[1] + cannot.sum()) - betaln(*p)
        value += betaln(q[0] + (~cannot).sum(), q[1] + (~must).sum()) - betaln(*q)
        terms.append(value)
    return float(logsumexp(terms))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("init", ["pckmeans", "prior"])
def test_the_bound_rises_below_the_evidence_and_comes_near_it(init, seed):
    rng = np.random.default_rng(seed)
    constraints = Constraints([(0, 1), (2, 3)], [(0, 2), (1, 4)], n_points=5)
    p, q, alpha = (4.0, 1.5), (3.0, 1.0), 0.7
    points = np.array([[-2.0, 0.0], [-2.2, 0.3], [2.0, 0.0], [2.1, 0.2], [1.8, -0.3]])
    points = points + 0.1 * rng.normal(size=points.shape)
    model = TVClust(
        3,
        alpha=alpha,
        p_prior=p,
        q_prior=q,
        n_init=5,
        standardise=False,
        init=init,
        random_state=seed,
    )
    model.fit(points, **constraints.fit_params())

    exact = log_evidence(points, 3, constraints, p, q, alpha)
    assert exact - 3.0 < -model.objective_ <= exact + 1e-9
    values = [-line.objective for line in model.history_]
    assert all(b >= a - 1e-8 * abs(a) for a, b in itertools.pairwise(values))
    assert model.converged_ and model.objective_ == -values[-1]


def test_one_point_without_choice_has_its_evidence():
    """With one component only the factorisation is approximate, and here it is exact."""
    points = np.random.default_rng(0).normal(size=(6, 2))
    model = TVClust(1, standardise=False).fit(points)
    assert -model.objective_ == pytest.approx(log_normal_wishart(points))


def large(seed: int = 0, n: int = 21_000) -> tuple[np.ndarray, np.ndarray, Constraints]:
    """Draw points of three groups, more than those from which components are joined."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=n)
    points = rng.normal(size=(n, 3)) + 3.0 * np.eye(3)[truth]
    return points, truth, Constraints.sample(truth, 2_000, rng).flip(0.1, rng)


def test_superfluous_components_are_joined_in_large_data(monkeypatch):
    points, truth, pairs = large()
    model = TVClust(8, random_state=0).fit(points, **pairs.fit_params())
    assert model.converged_ and model.n_clusters_ == 3
    values = [-line.objective for line in model.history_]
    assert all(b >= a - 1e-9 * abs(a) for a, b in itertools.pairwise(values))

    monkeypatch.setattr(tvclust, "_MANY", len(points))
    slow = TVClust(8, random_state=0).fit(points, **pairs.fit_params())
    assert model.objective_ < slow.objective_
    assert model.n_iter_ < slow.n_iter_
    assert (
        adjusted_rand_score(truth, model.labels_) > adjusted_rand_score(truth, slow.labels_) - 0.01
    )


@pytest.mark.parametrize("sample_weight", [None, "whole numbers"])
def test_the_bound_rises_by_what_a_union_promises(sample_weight, monkeypatch):
    points, truth, pairs = drawn(0, n=200, pairs=100)
    weight = None if sample_weight is None else np.arange(200) % 3 + 1.0
    monkeypatch.setattr(tvclust, "_MANY", 0)
    monkeypatch.setattr(tvclust, "_SETTLED", -math.inf)  # no unions within the fit
    model = TVClust(9, random_state=0, max_iter=2)
    model.fit(
        points,
        sample_weight=weight,
        partial_labels=np.where(truth == 1, 0, -1),
        **pairs.fit_params(),
    )
    fit = model._best
    bounds = [-fit.history[-1].objective]
    while rise := fit._join():
        before = bounds[-1]
        fit.maximise()
        bounds.append(fit.bound())
        assert bounds[-1] - before == pytest.approx(rise, rel=1e-8)
        logits = -clamped(-fit.logits(fit.points), fit.partial_labels)
        expected, entropy = expected_logits_and_entropy(logits, fit.shares, fit.scale, fit.copies)
        assert (fit.expected, fit.entropy) == pytest.approx((expected, entropy), rel=1e-9)
    assert len(bounds) > 2
    # The known label keeps its number.
    assert (fit.shares[truth == 1].argmax(axis=1) == 0).all()


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
    components = [np.unique(labels[truth == h]).tolist() for h in range(3)]
    assert [len(h) for h in components] == [1, 1, 1]
    assert components[0] > components[1] > components[2] == [0]


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
