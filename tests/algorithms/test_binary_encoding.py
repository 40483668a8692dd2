"""Binary encoding of labels: equal energies, equivalent inequalities, and a valid bound."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import inference_lab as il
from inference_lab.algorithms.semidefinite.binary_encoding import (
    as_bits,
    bits_of,
    has_bits,
    labels_of,
    with_bits,
)
from inference_lab.algorithms.semidefinite.potts_energy import PottsEnergy, PottsPart, build_model
from inference_lab.algorithms.semidefinite.relaxation import SDPRelaxation


def part_of(n: int, seed: int, forbidden: tuple[tuple[int, int], ...] = ()) -> PottsPart:
    """Make a part of three labels, with couplings of either sign on most pairs."""
    rng = np.random.default_rng(seed)
    pairs = np.array(list(itertools.combinations(range(n), 2)))
    edges = pairs[rng.random(len(pairs)) < 0.8]
    unary = rng.normal(size=(n, 3))
    for i, a in forbidden:
        unary[i, a] = np.inf
    graph = il.FactorGraph.potts(unary, edges, rng.normal(size=len(edges)) - 0.3)
    model = build_model(graph)
    assert isinstance(model, PottsEnergy)
    (part,) = model.parts
    return part


def energy_of(part: PottsPart, x: np.ndarray) -> float:
    """Compute the energy of labels of the nodes, straight from the definition."""
    i, a, j, b = part.excluded.T
    if part.forbidden[np.arange(x.size), x].any() or ((x[i] == a) & (x[j] == b)).any():
        return math.inf
    equal = x[part.pairs[:, 0]] == x[part.pairs[:, 1]]
    return part.constant + part.unary[np.arange(x.size), x].sum() + part.coupling[equal].sum()


def relaxed(part: PottsPart, iterations: int, cuts: bool = True) -> SDPRelaxation:
    relaxation = SDPRelaxation(part, cuts, np.random.default_rng(0))
    go_on(relaxation, iterations)
    return relaxation


def go_on(relaxation: SDPRelaxation, iterations: int) -> None:
    for step in range(1, iterations + 1):
        relaxation.iterate()
        if step % 25 == 0:
            relaxation.improve_bound(None, math.inf)
            relaxation.separate(lambda: False)


@pytest.mark.parametrize("forbidden", [(), ((0, 0), (2, 1), (3, 2), (4, 2), (4, 0))])
def test_every_labelling_has_its_energy_and_nothing_else_has_one(
    forbidden: tuple[tuple[int, int], ...],
) -> None:
    part = part_of(5, 1, forbidden)
    bits, slack = as_bits(part)
    met = 0
    for labels in itertools.product(range(3), repeat=part.n_nodes):
        x = np.array(labels)
        assert labels_of(bits_of(x)).tolist() == x.tolist()
        expected = energy_of(part, x)
        assert energy_of(bits, bits_of(x)) == pytest.approx(expected, abs=1e-12)
        met += expected < math.inf
    finite = [
        energy_of(bits, np.array(z)) < math.inf
        for z in itertools.product(range(2), repeat=bits.n_nodes)
    ]
    assert sum(finite) == met
    assert 0.0 < slack < 1e-11


def test_carried_rows_are_equivalent_for_every_labelling() -> None:
    part = part_of(7, 2, ((1, 2),))
    simplex = relaxed(part, 100)
    bits = with_bits(simplex)
    n, corners = part.n_nodes, 1.5 * np.eye(3) - 0.5
    assert bits.rows.free.sum() > n and (bits.rows.multiplier > 0.0).sum() > 20
    # All rows of the simplex with a nonzero multiplier, and the lower limits that have one.
    kept = np.flatnonzero((simplex.rows.multiplier > 0.0) | simplex.rows.free)
    limits = np.argwhere(np.tril(simplex.floor, -1) > 0.0)
    carried = kept.size + len(limits)
    for labels in itertools.product(range(3), repeat=n):
        x = np.array(labels)
        signs = np.append(1.0 - 2.0 * bits_of(x), 1.0)
        slacks = bits.rows.slacks(np.outer(signs, signs))
        whole = corners[np.ix_([*labels, 0, 1, 2], [*labels, 0, 1, 2])]
        expected = [
            *simplex.rows.slacks(whole)[kept], *(whole[i, j] - simplex.low for i, j in limits)
        ]  # fmt: skip
        assert slacks[-carried:] == pytest.approx(np.array(expected), abs=1e-12)
        if not part.forbidden[np.arange(n), x].any():
            assert slacks.min() >= -1e-12


@pytest.mark.parametrize("seed", range(3))
def test_the_bound_goes_on_from_where_it_was(seed: int) -> None:
    part = part_of(12, seed)
    simplex = relaxed(part, 150)
    gained = simplex.bound - relaxed(part, 25).bound
    bits = with_bits(simplex)
    assert bits.bound == simplex.bound
    bits.bound = bits.raw_bound = -math.inf
    bits.improve_bound(None, math.inf)
    assert simplex.bound - 0.5 * gained <= bits.bound <= simplex.bound + 1e-9


@pytest.mark.parametrize("seed", range(4))
def test_any_multipliers_give_a_bound(seed: int) -> None:
    part = part_of(7, seed, ((0, 2), (1, 0)))
    optimum = min(energy_of(part, np.array(x)) for x in itertools.product(range(3), repeat=7))
    bits = with_bits(relaxed(part, 60))
    go_on(bits, 50)
    rng, rows = np.random.default_rng(seed), bits.rows
    z, multiplier = bits.z.copy(), rows.multiplier.copy()
    assert bits.bound <= optimum + 1e-9
    for noise in (0.0, 0.01, 0.3, 3.0):
        bits.bound = bits.raw_bound = -math.inf
        bits.z = z + noise * rng.normal(size=z.shape)
        moved = multiplier + noise * rng.normal(size=multiplier.size)
        rows.multiplier = np.where(rows.free, moved, np.maximum(moved, 0.0))
        bits.improve_bound(None, math.inf)
        assert -math.inf < bits.bound <= optimum + 1e-9


def test_parts_without_a_binary_encoding() -> None:
    assert has_bits(part_of(5, 0))
    rng = np.random.default_rng(0)
    edges = list(itertools.combinations(range(5), 2))
    for unary, same in [
        (rng.normal(size=(5, 2)), 1.0),
        (rng.normal(size=(5, 4)), 1.0),
        (np.zeros((5, 3)), 1.0),
        (rng.normal(size=(5, 3)), np.where(np.arange(10) == 3, np.inf, 1.0)),
    ]:
        terms = il.DiagonalTerms(edges, same, 0.0)
        model = build_model(il.FactorGraph.from_terms(unary, [terms]))
        assert isinstance(model, PottsEnergy)
        assert not has_bits(model.parts[0])
