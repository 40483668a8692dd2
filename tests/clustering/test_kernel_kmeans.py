"""Kernel K-means with constraints: the objective from its definitions, descent, brute force."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array, diags_array
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris, make_circles
from sklearn.metrics.pairwise import polynomial_kernel, rbf_kernel
from sklearn.neighbors import kneighbors_graph
from sklearn.preprocessing import StandardScaler

from inference_lab.clustering import kernel_kmeans
from inference_lab.clustering.kernel_kmeans import KernelHMRFKMeans
from inference_lab.clustering.supervision import supervision_of
from inference_lab.constraints import Constraints

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def definition(s: Floats, c: Constraints, labels: Ints, k: int, weights: Floats) -> float:
    """Return the objective cluster by cluster and pair by pair."""
    sizes = [float(weights[labels == h].sum()) for h in range(k)]
    total = float(weights @ np.diag(s))
    for h in range(k):
        members = weights * (labels == h)
        total -= members @ s @ members / sizes[h]
    for pairs, values, sign in (
        (c.must_link, c.ml_weights, -1.0),
        (c.cannot_link, c.cl_weights, 1.0),
    ):
        for (i, j), w in zip(pairs.tolist(), values.tolist(), strict=True):
            if labels[i] == labels[j]:
                total += sign * w / sizes[labels[i]]
    return total


@st.composite
def problems(draw: st.DrawFn) -> tuple[Floats, Constraints, int, int]:
    """Draw similarities (affinities of a graph; perhaps indefinite), constraints, k and a seed."""
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    n = draw(st.integers(4, 12))
    k = draw(st.integers(1, 4))
    affinities = rng.random((n, n)) * (rng.random((n, n)) < draw(st.sampled_from([0.4, 1.0])))
    affinities = affinities + affinities.T
    np.fill_diagonal(affinities, draw(st.sampled_from([0.01, 1.0, 5.0])))
    pairs = list(itertools.combinations(range(n), 2))
    must = draw(st.lists(st.sampled_from(pairs), max_size=5, unique=True))
    cannot = draw(st.lists(st.sampled_from(pairs), max_size=5, unique=True))
    c = Constraints(
        must, cannot, rng.uniform(0, 4, len(must)), rng.uniform(0, 4, len(cannot)), n_points=n
    )
    return affinities, c, k, seed % 1000


@given(
    problems(),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["random", "spectral"]),
)
def test_descent_to_a_local_optimum(problem: Any, weighted: bool, local: bool, init: Any) -> None:
    """The objective equals its definition, never rises, and no single move lowers it."""
    s, c, k, seed = problem
    model = KernelHMRFKMeans(
        k,
        kernel="precomputed",
        local_search=local,
        init=init,
        random_state=seed,
    )
    weights = np.random.default_rng(seed).uniform(1, 3, len(s)) if weighted else np.ones(len(s))
    model.fit(s, **c.fit_params(), sample_weight=weights)
    expected = definition(s, c, model.labels_, k, weights)
    scale = 1e-9 * (1.0 + 9.0 * np.abs(s).sum() + c.ml_weights.sum() + c.cl_weights.sum())
    assert expected == pytest.approx(model.objective_, abs=scale)
    values = [line.objective for line in model.history_]
    assert all(b <= a for a, b in itertools.pairwise(values))
    assert values[-1] == model.objective_
    assert list(range(k)) == np.unique(model.labels_).tolist()
    assert model.converged_
    if local:
        for i, h in itertools.product(range(len(s)), range(k)):
            moved = model.labels_.copy()
            moved[i] = h
            if np.bincount(moved, minlength=k).min() > 0:
                assert definition(s, c, moved, k, weights) >= expected - scale
    # A sparse matrix gives the same result.
    again = clone(model).fit(csr_array(s), **c.fit_params(), sample_weight=weights)
    assert again.objective_ == pytest.approx(model.objective_, abs=scale)


def test_many_starts_reach_the_least_objective() -> None:
    """On tiny data the best of many starts is the optimum over all labellings."""
    rng = np.random.default_rng(2)
    for k in (2, 3):
        s = rng.random((8, 8)) * (rng.random((8, 8)) < 0.6)
        s = s + s.T
        c = Constraints([(0, 1), (2, 3)], [(1, 2), (4, 5)], [1.0, 0.5], [2.0, 0.7], n_points=8)
        optimum = min(
            definition(s, c, np.array(labels), k, np.ones(8))
            for labels in itertools.product(range(k), repeat=8)
            if len(set(labels)) == k
        )
        model = KernelHMRFKMeans(k, kernel="precomputed", init="random", n_init=40, random_state=0)
        assert optimum == pytest.approx(model.fit(s, **c.fit_params()).objective_, abs=1e-9)


@given(st.integers(0, 2**32 - 1), st.integers(1, 5))
def test_linear_kernel_without_constraints_is_k_means(seed: int, k: int) -> None:
    """Batch steps are Lloyd's; the objective is the inertia; distances are to the means."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(50, 3)) + 2.0 * rng.integers(3, size=(50, 1))
    # Empty clusters would be refilled differently; none occurs here.
    labels = ((points[:, np.newaxis] - points[:k]) ** 2).sum(axis=2).argmin(axis=1)
    model = KernelHMRFKMeans(k, kernel="linear", init=labels, local_search=False).fit(points)
    start = np.array([points[labels == h].mean(axis=0) for h in range(k)])
    lloyd = KMeans(k, init=start, n_init=1, tol=0.0, algorithm="lloyd").fit(points)
    assert lloyd.labels_.tolist() == model.labels_.tolist()
    assert lloyd.inertia_ == pytest.approx(model.objective_)
    new = rng.normal(size=(70, 3))
    squares = ((new[:, np.newaxis] - lloyd.cluster_centers_) ** 2).sum(axis=2)
    np.testing.assert_allclose(model.transform(new), np.sqrt(squares), atol=1e-7)
    assert lloyd.predict(new).tolist() == model.predict(new).tolist()


def test_single_moves_escape_from_where_batch_steps_stop() -> None:
    """Local optima of single moves are fixed points of batch steps, and better on average."""
    points = np.random.default_rng(0).normal(size=(120, 2))
    means = [
        np.mean(
            [
                KernelHMRFKMeans(8, kernel="linear", init="random", random_state=seed, **kw)
                .fit(points)
                .objective_
                for seed in range(10)
            ]
        )
        for kw in ({"local_search": False}, {})
    ]
    assert means[1] < means[0]
    model = KernelHMRFKMeans(8, kernel="linear", init="random", random_state=0).fit(points)
    assert model.labels_.tolist() == model.predict(points).tolist()


def constrained_iris(m: int = 60) -> tuple[Floats, Ints, Constraints]:
    points, truth = load_iris(return_X_y=True)
    points = StandardScaler().fit_transform(points)
    return points, truth, Constraints.sample(truth, m, np.random.default_rng(0))


def test_a_batch_step_goes_to_the_nearest_weighted_mean() -> None:
    """Check in explicit features of ``M / (a a')``, whose squares have the sign of eigenvalues."""
    points, _, c = constrained_iris()
    counts = np.arange(150) % 3 + 1.0
    supervision = supervision_of(points, c.fit_params() | {"sample_weight": counts})
    trace = KernelHMRFKMeans(4)._objective(rbf_kernel(points), supervision)
    rng = np.random.default_rng(0)
    weight = trace.sample_weight
    values, vectors = np.linalg.eigh(trace.matrix / np.outer(weight, weight))
    features = vectors * np.sqrt(np.abs(values))
    changes = 0
    for _ in range(10):
        labels = rng.permutation(np.arange(150) % 4)
        labels = trace.singly(labels, kernel_kmeans._Sums(trace, labels), rng)[0]
        labels[rng.choice(150, size=10, replace=False)] = 0
        means = np.array(
            [
                np.average(features[labels == h], axis=0, weights=weight[labels == h])
                for h in range(4)
            ]
        )
        squares = (features[:, np.newaxis] - means) ** 2 @ np.sign(values)
        nearest = trace.filled(squares.argmin(axis=1), squares[np.arange(150), labels])
        sums = kernel_kmeans._Sums(trace, labels)
        assert nearest.tolist() == trace.batch(labels, sums).tolist()
        changes += (nearest != labels).sum()
    assert changes > 0


def test_a_batch_step_that_raises_the_objective_is_not_taken() -> None:
    """On a bipartite graph, all points leave for the cluster that holds the other side."""
    s = np.kron(np.array([[0.0, 1.0], [1.0, 0.0]]), np.ones((3, 3)))
    labels = np.array([0, 0, 0, 0, 0, 1])
    common: dict[str, Any] = {"kernel": "precomputed", "init": labels, "local_search": False}
    model = KernelHMRFKMeans(2, **common).fit(s)
    trace = model._objective(s, supervision_of(s, {}))
    sums = kernel_kmeans._Sums(trace, labels)
    moved = trace.batch(labels, sums)
    assert [1, 1, 1, 0, 0, 0] == moved.tolist()
    assert 0.0 == kernel_kmeans._Sums(trace, moved).objective
    assert labels.tolist() == model.labels_.tolist()
    assert -2.4 == pytest.approx(model.objective_)


def test_constraints_enter_and_are_forgotten_for_new_points() -> None:
    """Weights affect training points; new points are assigned by means in plain features."""
    points = np.array([[0.0], [1.0], [2.0], [10.0], [11.0], [12.0]])
    free = KernelHMRFKMeans(2, kernel="linear", random_state=0).fit(points)
    assert free.labels_[0] == free.labels_[2] != free.labels_[3] == free.labels_[5]
    tied = KernelHMRFKMeans(2, kernel="linear", random_state=0, n_init=5)
    tied.fit(points, must_link=[(2, 3)], cannot_link=[(1, 2)], ml_weight=1e4, cl_weight=1e4)
    assert tied.labels_[1] != tied.labels_[2] == tied.labels_[3]
    assert (0, 0, 0.0) == tied.violations_
    means = np.array([points[tied.labels_ == h].mean() for h in range(2)])
    new = np.linspace(-5, 15, 40)[:, np.newaxis]
    np.testing.assert_allclose(tied.transform(new), abs(new - means), atol=1e-6)


def test_kernels_by_name_callable_and_matrix_agree() -> None:
    points, _, c = constrained_iris()
    settings_: dict[str, Any] = {"init": "spectral", "random_state": 0}
    c = c.with_weights(1.5, 1.5)
    named = KernelHMRFKMeans(3, kernel="rbf", gamma=0.3, **settings_).fit(points, **c.fit_params())
    matrix = rbf_kernel(points, gamma=0.3)
    precomputed = KernelHMRFKMeans(3, kernel="precomputed", **settings_).fit(
        matrix, **c.fit_params()
    )

    def gauss(x: Floats, y: Floats, width: float) -> float:
        return float(np.exp(-width * ((x - y) ** 2).sum()))

    function = KernelHMRFKMeans(3, kernel=gauss, kernel_params={"width": 0.3}, **settings_).fit(
        points, **c.fit_params()
    )
    assert named.labels_.tolist() == precomputed.labels_.tolist()
    # Eigenvectors that differ by rounding may number the clusters otherwise.
    assert named.objective_ == pytest.approx(function.objective_)
    np.testing.assert_array_equal(
        named.labels_[:, np.newaxis] == named.labels_,
        function.labels_[:, np.newaxis] == function.labels_,
    )
    new = points[::7] + 0.1
    across = rbf_kernel(new, points, gamma=0.3)
    assert named.predict(new).tolist() == precomputed.predict(across).tolist()
    together = named.predict(new)[:, np.newaxis] == named.labels_
    np.testing.assert_array_equal(
        together, function.predict(new)[:, np.newaxis] == function.labels_
    )
    assert (named.transform(new) >= 0).all()
    assert named.transform(new) ** 2 - precomputed.transform(across) == pytest.approx(1.0)


def test_a_polynomial_kernel_is_its_features() -> None:
    """With (x'y)^2 on the line, clusters equal K-means on squares."""
    points = np.random.default_rng(0).normal(size=(60, 1)) * 3
    model = KernelHMRFKMeans(
        2, kernel="polynomial", degree=2, coef0=0.0, gamma=1.0, n_init=20, random_state=0
    ).fit(points)
    plain = KMeans(2, n_init=20, random_state=0).fit(points**2)
    assert plain.inertia_ == pytest.approx(model.objective_)
    kernel = polynomial_kernel(points, degree=2, coef0=0.0, gamma=1.0)
    assert np.trace(kernel) >= model.objective_


def normalised(graph: Any) -> tuple[Any, Floats]:
    """Return the kernel and the weights of normalised cuts of a sparse graph."""
    degrees = np.asarray(graph.sum(axis=1)).ravel()
    inverse = diags_array(1.0 / degrees)
    return (inverse @ graph @ inverse).tocsr(), degrees


def test_rings_with_a_few_constraints() -> None:
    """A normalised cut of the graph of neighbours separates two rings; K-means cannot."""
    points, truth = make_circles(300, factor=0.4, noise=0.05, random_state=0)
    graph = kneighbors_graph(points, 10)
    graph = csr_array(((graph + graph.T) > 0).astype(float))
    kernel, degrees = normalised(graph)
    model = KernelHMRFKMeans(2, kernel="precomputed", random_state=0)
    labels = model.fit(kernel, sample_weight=degrees).labels_
    assert max((labels == truth).mean(), (labels != truth).mean()) > 0.99
    assert "spectral" != model.init  # "auto" chose it
    points, truth = load_iris(return_X_y=True)
    c = Constraints.sample(truth, 150, np.random.default_rng(1))
    scores = []
    for weight in (0.0, 5.0):
        fit = KernelHMRFKMeans(3, gamma=0.5, random_state=0, n_init=3)
        fit.fit(points, **c.with_weights(weight, weight).fit_params())
        together = fit.labels_[:, np.newaxis] == fit.labels_
        scores.append((together == (truth[:, np.newaxis] == truth)).mean())
    assert scores[1] > scores[0] + 0.01


def test_sparse_graphs_are_not_made_dense() -> None:
    """As a dense array the matrix of 50,000 points would take 20 GB."""
    rng = np.random.default_rng(0)
    n, k = 50_000, 4
    truth = np.repeat(np.arange(k), n // k)
    ends = rng.integers(n // k, size=(10 * n, 2)) + truth.repeat(10)[:, np.newaxis] * (n // k)
    strays = rng.integers(n, size=(n, 2))
    rows, columns = np.concatenate([ends, strays]).T
    graph = csr_array((np.ones(len(rows)), (rows, columns)), shape=(n, n))
    graph = (graph + graph.T).tocsr()
    c = Constraints.sample(truth, 5000, rng)
    kernel, degrees = normalised(graph)
    model = KernelHMRFKMeans(k, kernel="precomputed", random_state=0)
    labels = model.fit(kernel, sample_weight=degrees, **c.fit_params()).labels_
    shares = np.array([np.bincount(labels[truth == h], minlength=k) for h in range(k)])
    assert (shares.max(axis=1) > 0.95 * n / k).all()
    assert k == len(set(shares.argmax(axis=1).tolist()))
