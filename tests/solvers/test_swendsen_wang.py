"""Cluster moves keep the distribution invariant, and reach states that single changes do not."""

from __future__ import annotations

import functools
import itertools
import math
import re

import numpy as np
import pytest

import inference_lab as il
from inference_lab.conformance import exhaustive
from inference_lab.graph.arrays import FloatArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.grids import grid_edges
from inference_lab.graph.random_graphs import FAMILIES, random_graph
from inference_lab.graph.terms import DiagonalTerms, OwnTables
from inference_lab.solvers.swendsen_wang import (
    BondModel,
    ClusterScratch,
    SwendsenWang,
    cluster_sweep,
    model_of,
)

INF = math.inf
PURE = SwendsenWang(single_sweeps=0)


@functools.cache
def covered(families: tuple[str, ...] = tuple(FAMILIES), seeds: int = 20) -> list[tuple[str, int]]:
    """Return the random graphs that cluster moves support."""
    return [
        (family, seed)
        for family in families
        for seed in range(seeds)
        if family not in ("empty", "infeasible")
        and PURE.supports(random_graph(family, seed), 1.0) is None
    ]


def bond_terms(model: BondModel, x: np.ndarray) -> FloatArray:
    """Return the energy of each bond, up to a constant: gains and ties, from their definition."""
    i, j = model.edges[:, 0], model.edges[:, 1]
    together = x[i] == x[j]
    at = model.offset + np.where(together, x[i], 0) * model.kind
    gain = model.gain[at]
    if model.signed:
        bad = np.where(gain > 0.0, ~together, together)
        soft = np.where(np.isinf(gain), 0.0, gain)
        return np.where(np.isinf(gain) & bad, INF, np.where(together, 0.0, soft))
    out = np.where(together, -gain, 0.0)
    hard = np.isinf(model.gain[model.offset])
    return np.where(hard, np.where(together, model.tie[at], INF), out)


def model_energy(model: BondModel, x: np.ndarray) -> float:
    return float(model.unary[model.ptr[:-1] + x].sum() + bond_terms(model, x).sum())


@pytest.mark.parametrize(("family", "seed"), covered(seeds=12))
def test_unaries_and_bonds_are_the_energy(family: str, seed: int) -> None:
    """The energy in bonds differs from the graph's by a constant, forbidden labellings included."""
    graph = random_graph(family, seed)
    model = model_of(graph)
    assert isinstance(model, BondModel)
    energies = exhaustive(graph).energies
    labellings = np.argwhere(np.ones(energies.shape, dtype=bool))
    best = np.unravel_index(int(energies.argmin()), energies.shape)
    labellings = [*np.random.default_rng(0).permutation(labellings)[:300], np.array(best)]
    ours = np.array([model_energy(model, x) for x in labellings])
    exact = np.array([energies[tuple(x)] for x in labellings])
    assert (np.isinf(ours) == np.isinf(exact)).all()
    finite = np.isfinite(exact)
    assert finite.any()
    difference = ours[finite] - exact[finite]
    assert np.ptp(difference) <= 1e-9 * max(1.0, np.abs(exact[finite]).max())


def test_all_families_with_some_theory_are_covered() -> None:
    """These are attractive Potts graphs, binary pairwise ones of every sign, and hard links."""
    families = {family for family, _ in covered()}
    assert families >= {
        "potts", "estep", "diagonal", "own-tables", "ragged", "forest", "grid", "merged", "ties",
        "forbidden-labels", "must-links", "cannot-links", "one-variable", "no-edges", "equal",
        "large", "disconnected",
    }  # fmt: skip
    assert sum(family == "potts" for family, _ in covered()) == 20


def bond_chances(model: BondModel, x: np.ndarray, temperature: float) -> FloatArray:
    """Return the probability that each edge is bonded, by the card: 1 - exp(-w / T) if satisfied.

    It uses energies only: ``w`` is the cost of breaking the edge.
    """
    chances = np.zeros(len(model.edges))
    for e, (i, j) in enumerate(model.edges):
        if model.signed:
            gain = model.gain[e]
            satisfied = (x[i] == x[j]) == (gain > 0.0)
        else:
            gain = model.gain[model.offset[e] + (x[i] * model.kind[e] if x[i] == x[j] else 0)]
            satisfied = x[i] == x[j]
        chances[e] = 1.0 - math.exp(-abs(gain) / temperature) if satisfied else 0.0
    return chances


@functools.cache
def with_few_bonds() -> list[tuple[str, int]]:
    """Return graphs all of whose bonds can be enumerated at all of their labellings."""
    out = []
    for family, seed in covered():
        model = model_of(random_graph(family, seed))
        assert isinstance(model, BondModel)
        if 1 <= len(model.edges) <= 5 and random_graph(family, seed).log2_states <= 6.5:
            out.append((family, seed))
    return out


def test_the_graphs_with_few_bonds_are_of_both_kinds() -> None:
    """They have signed bonds of two labels, and attractive ones of more, also label-dependent."""
    models = [model_of(random_graph(family, seed)) for family, seed in with_few_bonds()]
    kinds = {(m.signed, bool(m.kind.any())) for m in models if isinstance(m, BondModel)}
    assert kinds == {(True, False), (False, False), (False, True)}


@pytest.mark.parametrize(("family", "seed"), with_few_bonds())
def test_conditionals_average_to_the_marginals(family: str, seed: int) -> None:
    """``sum_x p(x) sum_bonds p(bonds | x) p(x_i = a | bonds) = p(x_i = a)``, exactly."""
    graph = random_graph(family, seed)
    model = model_of(graph)
    assert isinstance(model, BondModel)
    m = len(model.edges)
    temperature = 0.8 * max(1.0, exhaustive(graph).scale / 5.0)
    energies = exhaustive(graph).energies
    p = np.exp(-(energies - energies.min()) / temperature)
    p /= p.sum()
    scratch = ClusterScratch(
        np.empty(graph.n_variables, dtype=np.int64), np.empty(model.unary.size)
    )
    total = np.zeros(model.unary.size)
    for x in np.argwhere(p > 0.0):
        chances = bond_chances(model, x, temperature)
        for bonded in itertools.product((False, True), repeat=m):
            weight = float(np.where(bonded, chances, 1.0 - chances).prod())
            if weight == 0.0:
                continue
            sums = np.zeros(model.unary.size)
            uniforms = np.where(bonded, 0.0, np.nextafter(1.0, 0.0))
            labels = np.full(graph.n_variables, 0.5)
            cluster_sweep(model, x.copy(), uniforms, labels, temperature, scratch, sums)
            total += p[tuple(x)] * weight * sums
    expected = np.concatenate(exhaustive(graph).marginals(temperature))
    assert total == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("family", ["potts", "grid", "ragged", "diagonal"])
def test_clusters_take_labels_with_conditional_frequencies(family: str) -> None:
    """Evenly spaced uniform numbers give every label of a cluster its share of them."""
    _, seed = covered((family,))[1]
    graph = random_graph(family, seed)
    model = model_of(graph)
    assert isinstance(model, BondModel)
    energies = exhaustive(graph).energies
    start = np.array(np.unravel_index(int(energies.argmin()), energies.shape))
    scratch = ClusterScratch(np.empty(start.size, dtype=np.int64), np.empty(model.unary.size))
    bonds = np.random.default_rng(2).random(len(model.edges))
    drawn = np.zeros(model.unary.size)
    for uniform in (np.arange(400) + 0.5) / 400:
        x, sums = start.copy(), np.zeros(model.unary.size)
        labels = np.full(start.size, uniform)
        energy = cluster_sweep(model, x, bonds, labels, 1.0, scratch, sums)
        assert energy == pytest.approx(model_energy(model, x))
        drawn[model.ptr[:-1] + x] += 1 / 400
    assert drawn == pytest.approx(sums, abs=1 / 400)


def test_clusters_turn_where_single_changes_do_not() -> None:
    """Below the critical temperature a magnet keeps its sign under Gibbs, not here."""
    graph = il.FactorGraph.potts(np.zeros((64, 2)), grid_edges(8, 8), 4.0)
    s = il.solve(graph, PURE, temperature=1.0)
    assert s.status == "converged"
    assert s.marginals == pytest.approx(0.5, abs=0.1)
    assert il.solve(graph, "gibbs", temperature=1.0).status == "limit"


def test_a_pattern_of_hard_links_turns_as_a_whole() -> None:
    """An odd pattern of equal and unequal pairs is kept, and both its forms are sampled."""
    edges = [(0, 1), (1, 2), (2, 3)]
    same, differ = [0.0, INF, 0.0], [INF, 0.0, INF]
    graph = FactorGraph.from_terms(
        [[0.0, 1.0], [0.0, 0.0], [0.3, 0.0], [0.0, 0.0]], [DiagonalTerms(edges, same, differ)]
    )
    s = il.solve(graph, PURE, temperature=1.0)
    for row, expected in zip(s.marginals, exhaustive(graph).marginals(1.0), strict=True):
        assert row == pytest.approx(expected, abs=1e-9)


def test_contradictory_patterns_are_proved_infeasible() -> None:
    """Three variables of two labels cannot all differ, and linked unaries can leave no label."""
    cycle = DiagonalTerms([(0, 1), (1, 2), (2, 0)], INF, 0.0)
    graph = FactorGraph.from_terms(np.zeros((3, 2)), [cycle])
    assert il.solve(graph, PURE, temperature=1.0).status == "infeasible"
    pair = DiagonalTerms([(0, 1)], INF, 0.0)
    graph = FactorGraph.from_terms([[0.0, INF], [0.0, INF]], [pair])
    assert il.solve(graph, PURE, temperature=1.0).status == "infeasible"


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (
            FactorGraph.potts(np.zeros((3, 3)), [(0, 1), (1, 2)], [1.0, -1.0]),
            r"edge 1 = \(1, 2\) agreeing costs 0, disagreeing -1",
        ),
        (
            FactorGraph.from_terms(
                np.zeros((2, 3)), [DiagonalTerms([(0, 1)], [[0.0, 5.0, 0.0]], 1.0)]
            ),
            r"edge 0 = \(0, 1\) agreeing costs 5, disagreeing 1",
        ),
        (
            FactorGraph.from_terms(
                np.zeros((2, 3)), [OwnTables([(0, 1)], np.arange(9.0).reshape(1, 3, 3))]
            ),
            r"edge 0 = \(0, 1\) has a table",
        ),
        (
            FactorGraph.from_terms(
                np.zeros((2, 2)), [OwnTables([(0, 1)], np.array([[[0.0, INF], [1.0, 2.0]]]))]
            ),
            r"edge 0 = \(0, 1\) forbids something else",
        ),
        (
            FactorGraph.from_factors([2, 2, 2], [((0, 1, 2), np.arange(8.0).reshape(2, 2, 2))]),
            r"factor 0 joins variables \(0, 1, 2\)",
        ),
    ],
)
def test_graphs_outside_the_theory_are_refused(graph: FactorGraph, reason: str) -> None:
    """Repulsion among three labels, tables and factors are each located."""
    s = il.solve(graph, "swendsen-wang", temperature=1.0)
    assert s.status == "unsupported"
    assert re.search(reason, s.message), s.message
