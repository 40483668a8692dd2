"""Contraction of hard must-link components: equivalent to the problem with all pairs."""

import itertools
import math
import tracemalloc

import numpy as np
import pytest
from clusterers import by_pairs
from hypothesis import given
from hypothesis import strategies as st

import inference_lab as il
from inference_lab.clustering import PCKMeans, SquaredEuclidean
from inference_lab.clustering.e_step import LabelStep
from inference_lab.clustering.hmrf import HMRF
from inference_lab.clustering.must_link_contraction import units_of
from inference_lab.clustering.violations import violations
from inference_lab.constraints import Constraints

INF = math.inf
TRUTH = np.repeat([0, 1, 2], 8)


@st.composite
def hard_pairs(draw: st.DrawFn) -> tuple[Constraints, np.random.Generator]:
    """Draw hard must-links and weighted cannot-links that do not contradict each other."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    truth = rng.integers(3, size=7)
    drawn = Constraints.sample(truth, int(rng.integers(2, 12)), rng)
    alike = rng.random() < 0.5
    weights = 2.0 if alike else rng.random(len(drawn.cannot_link))
    return drawn.with_weights(INF, weights), rng


@given(hard_pairs())
def test_merged_constraints_have_the_weight_of_all_pairs(drawn):
    few, all_pairs = drawn[0].close(merge=True), drawn[0].close()
    assert len(few) <= len(all_pairs)
    for labels in map(np.array, itertools.product(range(2), repeat=7)):
        expected = violations(all_pairs, labels).weight
        assert violations(few, labels).weight == pytest.approx(expected)


@given(hard_pairs())
def test_units_have_the_costs_of_their_points(drawn):
    pairs, rng = drawn
    unary = rng.random((7, 2))
    terms = [
        il.DiagonalTerms(pairs.must_link, differ=pairs.ml_weights),
        il.DiagonalTerms(pairs.cannot_link, same=pairs.cl_weights),
        # Within and between units.
        il.DiagonalTerms([(0, 1), (2, 5)], same=rng.random(2), differ=0.5),
    ]
    whole = il.FactorGraph.from_terms(unary, terms)
    units = units_of(terms, 7)
    if units is None:
        assert not len(pairs.must_link)
        return
    merged = il.FactorGraph.from_terms(units.unary(unary), units.terms)
    assert merged.n_variables < 7
    for labels in map(np.array, itertools.product(range(2), repeat=7)):
        unit_labels = labels[units.first]
        if (unit_labels[units.of_point] == labels).all():
            assert whole.energy(labels) == pytest.approx(merged.energy(unit_labels))
        else:
            assert whole.energy(labels) == INF


@pytest.mark.parametrize("per_pair", [False, True])
def test_fits_equal_fits_to_all_pairs(per_pair):
    rng = np.random.default_rng(2)
    points = rng.normal(size=(24, 2)) + 2.0 * np.eye(3)[TRUTH][:, :2]
    drawn = Constraints.sample(TRUTH, 40, rng)
    weights = rng.random(len(drawn.cannot_link)) if per_pair else 0.3
    drawn = drawn.with_weights(INF, weights)
    model = PCKMeans(3, init=points[:3], e_step="ilp", closure="drop", random_state=0)
    few = model.fit(points, **drawn.fit_params())
    model = PCKMeans(3, init=points[:3], e_step="ilp", random_state=0)
    every = model.fit(points, **drawn.close().fit_params())
    assert few.labels_.tolist() == every.labels_.tolist()
    assert few.objective_ == pytest.approx(every.objective_)
    assert few.n_iter_ == every.n_iter_
    assert len(few.constraints_) < len(every.constraints_)


def test_icm_moves_components_whole():
    """Both are nearer to the other cluster, but neither may move alone."""
    pair = Constraints([[0, 1]], None, INF, n_points=3)
    points = np.array([[4.0], [5.0], [0.0]])
    model = HMRF(points, by_pairs(pair), SquaredEuclidean(), np.array([[0.0], [6.0]]))
    step = LabelStep("icm", np.random.default_rng(0))
    assert step(model, np.array([0, 0, 0])).assignment.tolist() == [1, 1, 0]


def test_hard_pairs_that_are_none_are_refused():
    with pytest.raises(ValueError, match="merge=True needs must-links of infinite weight; 1 is"):
        Constraints([[0, 1]], None, n_points=2).close(merge=True)


def test_memory_is_linear():
    """Five components of 20,000 points each, whose closure has a thousand million pairs."""
    n, k = 100_000, 5
    rng = np.random.default_rng(0)
    truth = rng.integers(k, size=n)
    points = 4.0 * np.eye(k)[truth] + rng.normal(size=(n, k))
    chains = Constraints.from_labels(truth, scheme="chains").with_weights(INF, 1.0)
    supervision = chains.fit_params() | {"cl_weight": 1.0}
    PCKMeans(2, closure="drop").fit(points[:10], must_link=[(0, 1)], ml_weight=INF)
    tracemalloc.start()
    model = PCKMeans(k, closure="drop", random_state=0).fit(points, **supervision)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert model.violations_.weight == 0.0
    assert peak < 600 * n
    # Two components are apart as if every pair between them had been given.
    sizes = np.bincount(truth)
    expected = sum(int(a) * int(b) for a, b in itertools.combinations(sizes, 2))
    assert model.constraints_.cl_weights.sum() == expected
