"""Hard pairs: kept if a search finds a labelling, refused with a proof, or else reported."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest

from inference_lab.clustering import (
    AnnealedConstrainedKMeans,
    ConstrainedGaussianMixture,
    ConstraintsNotMetWarning,
    COPKMeans,
    HMRFKMeans,
    InfeasibleConstraintsError,
    PCKMeans,
)
from inference_lab.constraints import Constraints
from inference_lab.constraints.hard_pairs import contradiction, finite_price, n_unmet, priced
from inference_lab.graph.terms import DiagonalTerms


def separated(k: int, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return n points of overlapping clusters, and all cannot-links between k classes of them."""
    rng = np.random.default_rng(seed)
    classes = np.arange(n) % k
    points = rng.normal(size=(k, 5))[classes] + rng.normal(size=(n, 5))
    pairs = np.argwhere(np.triu(classes[:, np.newaxis] != classes))
    return points, pairs


@pytest.mark.parametrize(
    "model",
    [
        PCKMeans(8, n_init=2, random_state=0),
        PCKMeans(8, e_step_start="cold", n_init=1, random_state=0),
        HMRFKMeans(8, n_init=1, random_state=0),
        ConstrainedGaussianMixture(8, covariance_type="spherical", random_state=0),
        AnnealedConstrainedKMeans(8, random_state=0),
    ],
)
def test_hard_pairs_that_descent_cannot_keep_are_kept(model):
    points, pairs = separated(8, 120)
    model.fit(points, cannot_link=pairs, cl_weight=np.inf)
    assert len(pairs) > 6000 and model.violations_.cannot_link == 0
    assert np.isfinite(model.objective_)


def test_a_colouring_that_only_annealing_finds():
    """Three colours of 100 vertices at the density at which such colourings become rare."""
    rng = np.random.default_rng(3)
    classes = rng.integers(3, size=100)
    edges = np.unique(np.sort(rng.integers(100, size=(320, 2)), axis=1), axis=0)
    edges = edges[classes[edges[:, 0]] != classes[edges[:, 1]]]
    points = rng.normal(size=(100, 2))
    model = PCKMeans(3, n_init=3, random_state=0)
    assert model.fit(points, cannot_link=edges, cl_weight=np.inf).violations_.cannot_link == 0


@pytest.mark.parametrize("seed", [1, 2, 7])
def test_the_search_for_hard_pairs_counts_distances(seed):
    """Two clusters: a descent that starts from any labels that keep the pairs ends too high."""
    rng = np.random.default_rng(seed)
    points, classes = rng.normal(size=(40, 2)), rng.integers(2, size=40)
    rng.permutation(40)
    ends = rng.integers(40, size=(30, 2))
    pairs = ends[classes[ends[:, 0]] != classes[ends[:, 1]]]
    icm, exact = (
        PCKMeans(2, e_step=e, random_state=0).fit(points, cannot_link=pairs, cl_weight=np.inf)
        for e in ("icm", "ilp")
    )
    assert icm.objective_ == pytest.approx(exact.objective_, rel=1e-6)


def odd_wheel() -> np.ndarray:
    """Return the edges of a wheel of five spokes: four colours, and no clique of four."""
    rim = [(i, (i + 1) % 5) for i in range(5)]
    return np.array(rim + [(i, 5) for i in range(5)])


@pytest.mark.parametrize(
    "model",
    [
        PCKMeans(3, random_state=0),
        HMRFKMeans(3, n_init=2, random_state=0),
        ConstrainedGaussianMixture(3, covariance_type="spherical", random_state=0),
        AnnealedConstrainedKMeans(3, random_state=0),
    ],
)
def test_least_violations_without_a_proof(model):
    points = np.random.default_rng(0).normal(size=(20, 2))
    with pytest.warns(ConstraintsNotMetWarning, match="violate 1 of 10 pairs of infinite weight"):
        model.fit(points, cannot_link=odd_wheel(), cl_weight=np.inf)
    assert model.violations_.cannot_link == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConstraintsNotMetWarning)
        model.set_params(n_clusters=4).fit(points, cannot_link=odd_wheel(), cl_weight=np.inf)
    assert model.violations_.cannot_link == 0


def test_exact_solver_proves_infeasibility_beyond_cliques():
    points = np.random.default_rng(0).normal(size=(20, 2))
    with pytest.raises(InfeasibleConstraintsError, match="no labelling satisfies"):
        PCKMeans(3, e_step="ilp").fit(points, cannot_link=odd_wheel(), cl_weight=np.inf)


@pytest.mark.parametrize("kind", [PCKMeans, ConstrainedGaussianMixture])
def test_an_odd_cycle_is_named(kind):
    points = np.random.default_rng(0).normal(size=(20, 2))
    cycle = [(2, 4), (4, 6), (6, 8), (8, 9), (2, 10)]
    supervision = {"must_link": [(9, 10)], "ml_weight": np.inf, "cl_weight": np.inf}
    with pytest.raises(
        InfeasibleConstraintsError, match="odd cycle through the points 2, 4, 6, 8, 9"
    ):
        kind(2, random_state=0).fit(points, cannot_link=cycle, **supervision)


def terms_of(edges: np.ndarray) -> list[DiagonalTerms]:
    return [DiagonalTerms(edges, same=np.full(len(edges), np.inf))]


@pytest.mark.parametrize("seed", range(30))
def test_proofs_are_right_and_complete_for_two_clusters(seed):
    rng = np.random.default_rng(seed)
    edges = np.array([e for e in itertools.combinations(range(7), 2) if rng.random() < 0.25])
    edges = edges.reshape(-1, 2)
    for k in (2, 3):
        every = np.array(list(itertools.product(range(k), repeat=7)))
        possible = bool((every[:, edges[:, 0]] != every[:, edges[:, 1]]).all(axis=1).any())
        reason = contradiction(np.zeros((7, k)), terms_of(edges), np.arange(7))
        assert not (reason and possible)
        if k == 2:
            assert bool(reason) is not possible


def test_a_price_exceeds_all_that_a_relabelling_saves():
    rng = np.random.default_rng(0)
    unary = rng.normal(size=(6, 3))
    unary[0, 1] = np.inf
    edges = np.array(list(itertools.combinations(range(6), 2)))
    same = rng.normal(size=len(edges))
    same[::4] = np.inf
    terms = [DiagonalTerms(edges, same=same, differ=np.zeros(len(edges)))]
    price = finite_price(unary, terms)
    soft = np.where(np.isinf(same), 0.0, same)

    def saved(labels: np.ndarray) -> float:
        ends = labels[edges]
        return float(unary[np.arange(6), labels].sum() + soft[ends[:, 0] == ends[:, 1]].sum())

    labels = np.array([0, 1, 2, 0, 1, 2])
    for i, h in itertools.product(range(6), range(3)):
        moved = labels.copy()
        moved[i] = h
        if np.isfinite(saved(moved)):
            assert abs(saved(moved) - saved(labels)) < price
    assert np.isfinite(priced(terms, price)[0].same).all()
    one = np.zeros(6, dtype=np.int64)
    assert n_unmet(terms, one) == 4 and n_unmet(terms, np.arange(6)) == 0


def test_cop_kmeans_names_a_proof_where_there_is_one():
    points, pairs = separated(8, 40)
    with pytest.warns(ConstraintsNotMetWarning, match="each two of the points"):
        COPKMeans(7, random_state=0).fit(points, cannot_link=pairs)
    with pytest.warns(ConstraintsNotMetWarning, match="odd cycle through the points"):
        COPKMeans(2, random_state=0).fit(points, cannot_link=odd_wheel()[:5])


def test_constraints_of_all_pairs_are_classes():
    points, _ = separated(4, 60)
    classes = np.arange(60) % 4
    pairs = Constraints.sample(classes, 60 * 59 // 2, np.random.default_rng(0))
    hard = pairs.fit_params() | {"ml_weight": np.inf, "cl_weight": np.inf}
    labels = PCKMeans(4, random_state=0).fit(points, **hard).labels_
    assert len(set(zip(labels.tolist(), classes.tolist(), strict=True))) == 4
