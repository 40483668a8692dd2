"""TVClust: the bound rises, and lies below the evidence that enumeration gives."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy.special import betaln, gammaln, logsumexp

from inference_lab.clustering import TVClust
from inference_lab.constraints import Constraints


def drawn(seed: int, n: int = 60, pairs: int = 60) -> tuple[np.ndarray, np.ndarray, Constraints]:
    """Draw points of three groups and answers about pairs, a tenth of them wrong."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=n)
    points = rng.normal(size=(n, 2)) + 6.0 * np.array([[0, 0], [1, 0], [0, 1]])[truth]
    return points, truth, Constraints.sample(truth, pairs, rng).flip(0.1, rng)


def links(constraints: Constraints) -> dict[str, Any]:
    return {"must_link": constraints.must_link, "cannot_link": constraints.cannot_link}


@pytest.mark.parametrize("seed", range(4))
def test_the_bound_never_falls(seed):
    points, _, constraints = drawn(seed)
    model = TVClust(8, random_state=seed).fit(points, **links(constraints))
    values = [-line.objective for line in model.history_]
    assert all(b >= a - 1e-8 * abs(a) for a, b in itertools.pairwise(values))
    assert model.converged_ and model.objective_ == -values[-1]


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
        same_must = (labels[ml[:, 0]] == labels[ml[:, 1]]).sum()
        same_cannot = (labels[cl[:, 0]] == labels[cl[:, 1]]).sum()
        value += betaln(p[0] + same_must, p[1] + same_cannot) - betaln(*p)
        value += betaln(q[0] + len(cl) - same_cannot, q[1] + len(ml) - same_must) - betaln(*q)
        terms.append(value)
    return float(logsumexp(terms))


@pytest.mark.parametrize("seed", range(5))
def test_the_bound_lies_below_the_evidence_and_near_it(seed):
    rng = np.random.default_rng(seed)
    points = np.array([[-2.0, 0.0], [-2.2, 0.3], [2.0, 0.0], [2.1, 0.2], [1.8, -0.3]])
    points = points + 0.1 * rng.normal(size=points.shape)
    constraints = Constraints([(0, 1), (2, 3)], [(0, 2), (1, 4)], n_points=5)
    p, q, alpha = (4.0, 1.5), (3.0, 1.0), 0.7
    model = TVClust(
        3, alpha=alpha, p_prior=p, q_prior=q, standardise=False, n_init=5, random_state=seed
    )
    model.fit(points, **links(constraints))
    exact = log_evidence(points, 3, constraints, p, q, alpha)
    assert exact - 3.0 < -model.objective_ <= exact + 1e-9


def test_one_point_without_choice_has_its_evidence():
    """With one component nothing is approximate but the factorisation, which is exact."""
    points = np.random.default_rng(0).normal(size=(6, 2))
    model = TVClust(1, standardise=False).fit(points)
    assert -model.objective_ == pytest.approx(log_normal_wishart(points))


def agreement(labels: np.ndarray, truth: np.ndarray) -> float:
    """Return the share of pairs that are together in both, or apart in both."""
    return float(((labels[:, None] == labels) == (truth[:, None] == truth)).mean())


def test_clusters_are_found_without_their_number_and_answers_judged():
    """Right answers do no harm; wrong ones may take a point or two along."""
    points, truth, constraints = drawn(2)
    right = Constraints.sample(truth, 60, np.random.default_rng(0))
    model = TVClust(10, random_state=0).fit(points, **links(right))
    assert model.n_clusters_ == 3 and agreement(model.labels_, truth) == 1.0
    assert model.p_ > 0.9 and model.q_ > 0.9
    assert model.responsibilities_.sum(axis=1) == pytest.approx(np.ones(len(points)))
    np.testing.assert_array_equal(model.predict(points), model.labels_)
    noisy = TVClust(10, random_state=0).fit(points, **links(constraints))
    assert noisy.n_clusters_ == 3 and agreement(noisy.labels_, truth) > 0.9


@pytest.mark.parametrize("e_step", ["mean-field", "loopy-bp"])
def test_any_soft_solver_takes_the_e_step(e_step):
    points, _, constraints = drawn(1, n=40, pairs=20)
    plain = TVClust(4, random_state=0, max_iter=15).fit(points, **links(constraints))
    other = TVClust(4, random_state=0, max_iter=15, e_step=e_step)
    other.fit(points, **links(constraints))
    assert other.objective_ == pytest.approx(plain.objective_, rel=0.02)


def test_what_is_refused():
    points, _, _ = drawn(0)
    with pytest.raises(ValueError, match="alpha must be finite and above 0"):
        TVClust(alpha=0.0).fit(points)
    with pytest.raises(ValueError, match="p_prior must be positive"):
        TVClust(p_prior=(0.0, 1.0)).fit(points)
    with pytest.raises(ValueError, match="gives no marginals"):
        TVClust(e_step="icm").fit(points, must_link=[(0, 1)])
    with pytest.raises(ValueError, match="ml_weight must be finite"):
        TVClust().fit(points, must_link=[(0, 1)], ml_weight=np.inf)


def test_the_release_hears_each_answer_once():
    points, _, constraints = drawn(2)
    model = TVClust.release(random_state=0).fit(points, **links(constraints))
    assert model.n_iter_ <= 30 and model.responsibilities_.shape == (60, 15)
