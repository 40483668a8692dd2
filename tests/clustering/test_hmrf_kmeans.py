"""HMRF-KMeans: the objective by its definition, an exact E-step, and descent at every step."""

import itertools
import tracemalloc

import numpy as np
import pytest
from clusterers import by_pairs
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse import random as sparse_random
from sklearn.base import clone
from sklearn.datasets import load_iris
from threadpoolctl import threadpool_limits

from inference_lab.clustering import (
    ClosedForm,
    HMRFKMeans,
    PCKMeans,
)
from inference_lab.clustering.e_step import LabelStep
from inference_lab.clustering.hmrf import HMRF
from inference_lab.constraints import Constraints
from inference_lab.distortions.distortions import Cosine, IDivergence, SquaredEuclidean
from inference_lab.distortions.metric_learning import Penalised, gradient
from inference_lab.solvers.icm import ICM


def random_problem(seed, n=14, d=3, k=3, pairs=12):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(n, d)) + 2.0 * rng.integers(k, size=(n, 1))
    drawn = Constraints.sample(rng.integers(k, size=n), pairs, rng)
    weights = rng.gamma(2.0, size=len(drawn.must_link)), rng.gamma(2.0, size=len(drawn.cannot_link))
    return points, drawn.with_weights(*weights), rng


def slow_objective(model, labels):
    """Compute the objective by its definition, point by point and pair by pair."""
    points, c, metric = model.points, model.constraints, model.metric
    d = points.shape[1]
    learnt = model.learner is not None and model.learner.normalised

    def phi(i, j):
        return metric.between(points, np.array([[i, j]]))[0]

    total = 0.0
    for i, h in enumerate(labels):
        total += metric.distances(points[[i]], model.centroids[[h]])[0, 0]
        if learnt:
            total -= metric.log_det(d)
    distance = model.penalty == "distance"
    for (i, j), w in zip(c.must_link, c.ml_weights, strict=True):
        if labels[i] != labels[j]:
            total += w * (phi(i, j) if distance else 1.0)
    for (i, j), w in zip(c.cannot_link, c.cl_weights, strict=True):
        if labels[i] == labels[j]:
            total += w * (metric.largest(points) - phi(i, j) if distance else 1.0)
    return total


@given(
    seed=st.integers(0, 10**6),
    penalty=st.sampled_from(["potts", "distance"]),
    learner=st.sampled_from([None, ClosedForm(), ClosedForm("full")]),
)
def test_objective_and_energy_follow_the_definition(seed, penalty, learner):
    points, pairs, rng = random_problem(seed, n=4, pairs=5)
    model = HMRF(
        points,
        by_pairs(pairs),
        SquaredEuclidean(),
        rng.normal(size=(3, 3)),
        penalty=penalty,
        learner=learner,
    )
    if learner is not None:
        for _ in model.maximise(rng.integers(3, size=4)):
            pass
    best = np.inf
    for labels in itertools.product(range(3), repeat=4):
        x = np.array(labels)
        value = slow_objective(model, x)
        assert model.objective(x) == pytest.approx(value, rel=1e-9, abs=1e-9)
        best = min(best, value)
    # The E-step on the graph of coupled points finds the least objective of all labellings.
    optimum = LabelStep("brute-force", rng)(model, None).assignment
    assert model.objective(optimum) == pytest.approx(best, rel=1e-9, abs=1e-9)


def assert_descent(model, points, pairs):
    """Fit, and check that the objective never rises."""
    model.fit(points, **pairs.fit_params())
    values = np.array([line.objective for line in model.history_])
    assert np.diff(values).max(initial=0.0) <= 1e-9 * (1 + np.abs(values).max())
    assert model.objective_ <= values[-1] + 1e-9 * (1 + abs(values[-1]))


@given(
    seed=st.integers(0, 10**6),
    penalty=st.sampled_from(["potts", "distance"]),
    metric=st.sampled_from([None, "diagonal", "full", "gradient"]),
    e_step=st.sampled_from(["icm", "loopy-bp", "ilp", "mean-field", "alpha-expansion"]),
    scale=st.sampled_from([0.1, 1.0, 30.0]),
)
def test_the_objective_never_rises(seed, penalty, metric, e_step, scale):
    points, pairs, _ = random_problem(seed, n=30, pairs=25)
    learnt = {"metric": metric, "e_step": e_step}
    model = HMRFKMeans(3, penalty=penalty, random_state=seed, max_iter=15, **learnt)
    assert_descent(
        model, points, pairs.with_weights(scale * pairs.ml_weights, scale * pairs.cl_weights)
    )


@pytest.mark.parametrize("distortion", ["cosine", IDivergence(0.0)])
@pytest.mark.parametrize("penalty", ["potts", "distance"])
@pytest.mark.filterwarnings("ignore::inference_lab.clustering.DegenerateMetricWarning")
@given(seed=st.integers(0, 10**6))
@settings(max_examples=5)
def test_the_objective_never_rises_with_other_distortions(distortion, penalty, seed):
    rng = np.random.default_rng(seed)
    points = rng.gamma(1.0, size=(20, 4)) + 0.05
    pairs = Constraints.sample(rng.integers(3, size=20), 20, rng)
    costs = {"distortion": distortion, "penalty": penalty, "metric": "gradient"}
    assert_descent(HMRFKMeans(3, random_state=seed, max_iter=8, **costs), points, pairs)


def state_of(points, labels, mu, pairs, extent=None):
    ml = labels[pairs.must_link[:, 0]] != labels[pairs.must_link[:, 1]]
    cl = labels[pairs.cannot_link[:, 0]] == labels[pairs.cannot_link[:, 1]]
    return Penalised(
        points,
        labels,
        mu,
        pairs.must_link[ml],
        pairs.ml_weights[ml],
        pairs.cannot_link[cl],
        pairs.cl_weights[cl],
        True,
        extent=extent,
    )


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("make", [SquaredEuclidean, Cosine, lambda a: IDivergence(0.0, a)])
def test_gradients_equal_finite_differences_of_the_costs(make, sparse):
    # By finite differences; equations (18) and (19) of the paper as printed would fail here.
    rng = np.random.default_rng(1)
    points = rng.gamma(1.0, size=(15, 4)) + 0.1
    points[rng.random(points.shape) < 0.2] = 0.0
    points[:, 0] += 0.1
    pairs = Constraints.sample(rng.integers(3, size=15), 30, rng)
    labels, mu = rng.integers(3, size=15), rng.gamma(1.0, size=(3, 4)) + 0.1
    weights = rng.gamma(1.0, size=4) + 0.5
    rows = csr_array(points) if sparse else points
    squared = make is SquaredEuclidean
    extent = make(weights).extent(rows) if squared else None
    state = state_of(rows, labels, mu, pairs, extent)

    def value(a):
        metric = make(a)
        total = metric.own(rows, mu, labels).sum()
        total += state.ml_weights @ metric.between(rows, state.ml_pairs)
        total -= state.cl_weights @ metric.between(rows, state.cl_pairs)
        if squared:
            total += state.cl_weights.sum() * (a @ extent**2)
        return total

    step = 1e-6 * np.eye(4)
    numeric = [(value(weights + e) - value(weights - e)) / 2e-6 for e in step]
    np.testing.assert_allclose(gradient(make(weights), state), numeric, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", ["diagonal", "full"])
def test_the_closed_form_is_the_minimiser_for_fixed_references(shape):
    rng = np.random.default_rng(3)
    points = rng.normal(size=(40, 3)) * [1.0, 3.0, 0.3]
    pairs = Constraints.sample(rng.integers(2, size=40), 15, rng)
    labels, mu = rng.integers(2, size=40), rng.normal(size=(2, 3))
    v = SquaredEuclidean().extent(points)
    state = state_of(points, labels, mu, pairs, v)

    def value(a):
        m = SquaredEuclidean(a)
        total = m.own(points, mu, labels).sum() - len(points) * m.log_det(3)
        total += state.ml_weights @ m.between(points, state.ml_pairs)
        total -= state.cl_weights @ m.between(points, state.cl_pairs)
        full = np.diag(a) if a.ndim == 1 else a
        return total + state.cl_weights.sum() * (v @ full @ v)

    learner = ClosedForm(shape, ridge=1e-12)
    learned = learner.improve(SquaredEuclidean(), state, np.inf, lambda m: 0.0)
    best = value(learned.weights)
    for _ in range(200):
        if shape == "diagonal":
            other = learned.weights * np.exp(rng.normal(scale=0.1, size=3))
        else:
            root = np.linalg.cholesky(learned.weights) + rng.normal(scale=0.02, size=(3, 3))
            other = root @ root.T
        assert value(other) >= best - 1e-9 * abs(best)


def test_sparse_text_stays_sparse():
    texts = sparse_random(1500, 5000, density=0.01, format="csr", random_state=0)
    texts = texts[np.asarray(texts.sum(axis=1)).ravel() > 0]
    pairs = Constraints.sample(np.arange(texts.shape[0]) % 4, 200, np.random.default_rng(0))
    model = HMRFKMeans(4, distortion="cosine", metric="gradient", random_state=0, max_iter=1)
    tracemalloc.start()
    model.fit(texts, **pairs.fit_params())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    dense = texts.shape[0] * texts.shape[1] * 8
    assert peak < dense / 4
    few = texts[:300]
    pairs = Constraints.sample(np.arange(300) % 4, 100, np.random.default_rng(0))
    one, same = (clone(model).fit(x, **pairs.fit_params()) for x in (few, few.toarray()))
    np.testing.assert_array_equal(same.labels_, one.labels_)


# A constant feature, in which all points are equal, gets all weight.
@pytest.mark.filterwarnings("ignore::inference_lab.clustering.DegenerateMetricWarning")
def test_edges_of_the_input():
    points = np.random.default_rng(0).normal(size=(6, 2))
    empty = HMRFKMeans(2, random_state=0).fit(points, must_link=[], cannot_link=[])
    assert empty.violations_.weight == 0
    constant = np.column_stack([points, np.ones(6)])
    for metric in (None, "diagonal", "full", "gradient"):
        model = HMRFKMeans(2, metric=metric, random_state=0).fit(constant, must_link=[(0, 1)])
        assert np.isfinite(model.objective_)
    supervision = {
        "must_link": [(0, 1)],
        "cannot_link": [(0, 1)],
        "ml_weight": 1.0,
        "cl_weight": 1.0,
    }
    assert PCKMeans(2, random_state=0).fit(points, **supervision).violations_.weight == 1.0
    with pytest.raises(ValueError, match="must-links connect"):
        PCKMeans(2, closure="raise").fit(points, **supervision)
    alike = HMRFKMeans(3, random_state=0).fit(np.ones((5, 2)))
    assert alike.objective_ == 0.0


def test_cold_e_steps_start_anew():
    """Each finds the solver's result on that energy, regardless of earlier labels."""
    points = load_iris().data
    pairs = Constraints.sample(load_iris().target, 300, np.random.default_rng(0))
    pairs = pairs.flip(0.3, np.random.default_rng(1))
    given_pairs = pairs.with_weights(2.0, 2.0).fit_params()
    seen = []

    class Watched(ICM):
        def run(self, graph, run):
            seen.append(run.initial)
            return super().run(graph, run)

    fits = {}
    for start in ("previous", "cold"):
        seen.clear()
        fits[start] = PCKMeans(
            3, e_step=Watched(), e_step_start=start, init="k-means++", random_state=0
        ).fit(points, **given_pairs)
        assert seen[0] is None and len(seen) > 2
        assert all((initial is None) == (start == "cold") for initial in seen[1:])
    warm = [line.objective for line in fits["previous"].history_]
    cold = [line.objective for line in fits["cold"].history_]
    assert warm[0] == cold[0] and warm != cold
    with pytest.raises(ValueError, match="e_step_start must be previous or cold, got 'warm'"):
        PCKMeans(3, e_step_start="warm").fit(points, **given_pairs)


def test_a_fit_does_not_depend_on_the_number_of_threads():
    rng = np.random.default_rng(0)
    classes = rng.integers(4, size=40_000)
    points = 2.0 * rng.normal(size=(4, 8))[classes] + rng.normal(size=(40_000, 8))
    pairs = Constraints.sample(classes, 20_000, rng)
    fits = []
    for threads in (1, 2):
        model = PCKMeans(4, e_step="icm", max_iter=5, random_state=0)
        with threadpool_limits(threads, user_api="blas"):
            model.fit(points, **pairs.fit_params())
        fits.append(model)
    one, two = fits
    assert (one.labels_ == two.labels_).all()
    assert (one.cluster_centers_ == two.cluster_centers_).all()
    assert [line.objective for line in one.history_] == [line.objective for line in two.history_]
