"""The choice between two labels: exact where submodular, persistent and bounded elsewhere."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import inference_lab as il
from inference_lab.algorithms.cuts.roof_duality import LabelChoice, energy_change
from inference_lab.conformance import exhaustive
from inference_lab.graph.random_graphs import FAMILIES, random_graph

#: Families of which some graphs have variables and only terms of one or two of them.
PAIRS = [
    family
    for family in FAMILIES
    if family not in ("empty", "higher-order", "one-label", "inheritance", "mixed")
]


def draw(family, seed):
    """Draw a graph and two labellings; return these, all choices, energies and a tolerance."""
    graphs = (random_graph(family, number) for number in itertools.count(seed))
    graph = next(graph for graph in graphs if not graph.n_factors)
    rng = np.random.default_rng(seed)
    zero, one = rng.integers(0, graph.cardinalities, size=(2, graph.n_variables))
    y = np.array(list(itertools.product(*[(0, 1) if free else (0,) for free in zero != one])))
    energies = graph.energy(np.where(y == 1, one, zero))
    scale = exhaustive(graph).scale
    return graph, zero, one, y, energies, 1e-9 * scale


@given(st.sampled_from(PAIRS), st.integers(0, 10_000))
def test_choice_is_exact_or_persistent(family, seed):
    graph, zero, one, y, energies, slack = draw(family, seed)
    minimum = energies.min()
    choice = LabelChoice(graph).minimise(zero, one, bound=True)
    assert choice.bound <= minimum + slack
    assert choice.exact == (choice.nonsubmodular == 0)
    if choice.exact:
        x = np.where(choice.taken == 1, one, zero)
        assert graph.energy(x) <= minimum + slack
        assert choice.bound == minimum or choice.bound >= minimum - slack
        return
    if math.isinf(minimum):
        return
    # Strong persistency: all minima have the labels that roof duality gives.
    labelled = (choice.taken >= 0) & (zero != one)
    best = y[energies <= minimum + slack]
    assert (best[:, labelled] == choice.taken[labelled]).all()
    if labelled.sum() == (zero != one).sum():
        assert choice.bound >= minimum - slack


@pytest.mark.parametrize("seed", range(40))
def test_penalties_that_cancel_do_not_raise_the_bound(seed):
    """An infinite cost is replaced by one above all penalties, whose last digits cancel."""
    graph, zero, one, _, energies, _ = draw("large-penalties", seed)
    choice = LabelChoice(graph).minimise(zero, one, bound=True)
    assert choice.bound <= energies.min() + 1e-9


@given(st.sampled_from(PAIRS), st.integers(0, 10_000))
def test_result_is_not_above_the_current_labelling(family, seed):
    """Fixing the decided variables does not raise the energy of any labelling."""
    graph, zero, one, _, _, slack = draw(family, seed)
    current = np.where(np.random.default_rng(seed).random(zero.size) < 0.5, zero, one)
    choice = LabelChoice(graph).minimise(zero, one)
    new = np.where(choice.taken == 1, one, np.where(choice.taken == 0, zero, current))
    assert graph.energy(new) <= graph.energy(current) + slack
    # Among infeasible labellings the number of violated terms does not rise.
    assert energy_change(graph.arrays, current, new)[0] <= 0


@given(st.sampled_from(PAIRS), st.integers(0, 10_000))
def test_energy_change(family, seed):
    graph, zero, one, _, _, slack = draw(family, seed)
    infinite, finite, _ = energy_change(graph.arrays, zero, one)
    before, after = graph.energy(zero), graph.energy(one)
    if math.isfinite(before) and math.isfinite(after):
        assert infinite == 0
        assert finite == pytest.approx(after - before, abs=slack)
    elif math.isfinite(after):
        assert infinite < 0
    elif math.isfinite(before):
        assert infinite > 0


def test_rounding_is_not_taken_for_a_sign():
    """Differences of costs in tenths are not exactly zero in floating point."""
    a = np.arange(5)
    table = 0.1 * np.abs(a[:, None] - a) + 0.3
    graph = il.FactorGraph.pairwise(np.zeros((2, 5)), [(0, 1)], table)
    chooser = LabelChoice(graph)
    for zero in itertools.product(range(5), repeat=2):
        for alpha in range(5):
            choice = chooser.minimise(np.array(zero), np.full(2, alpha))
            assert choice.nonsubmodular == 0
