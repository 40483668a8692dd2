"""Parts of a Potts-like energy, checked by enumerating labellings of graph and nodes."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from strategies import Recipe, recipes

import inference_lab as il
from inference_lab.algorithms.semidefinite.potts_energy import PottsEnergy, PottsPart, build_model
from inference_lab.conformance import exhaustive
from inference_lab.graph.random_graphs import FAMILIES, random_graph


def energy_of(part: PottsPart, x: tuple[int, ...]) -> float:
    """Compute the energy of labels of the nodes, straight from the definition."""
    costs = [part.constant, *(part.unary[i, a] for i, a in enumerate(x))]
    costs += [
        c for (i, j), c in zip(part.pairs.tolist(), part.coupling, strict=True) if x[i] == x[j]
    ]
    return math.fsum(costs)


def labellings(part: PottsPart) -> list[tuple[int, ...]]:
    return list(itertools.product(range(part.n_labels), repeat=part.n_nodes))


def check_against_enumeration(
    graph: il.FactorGraph, optimum: float, scale: float
) -> PottsEnergy | None:
    """Assert that the best labels of the nodes give an optimal labelling of the graph."""
    model = build_model(graph)
    if isinstance(model, str):
        return None
    value, minima = model.constant, []
    for part in model.parts:
        energies = {x: energy_of(part, x) for x in labellings(part)}
        best = min(energies, key=energies.__getitem__)
        value += energies[best]
        minima.append(np.array(best))
        if part.quantum:
            base = part.constant + part.unary[:, 0].sum() + part.coupling.sum()
            steps = (np.array(list(energies.values())) - base) / part.quantum
            assert np.array_equal(steps, np.round(steps))
    assert value == pytest.approx(optimum, abs=1e-9 * scale)
    labels = model.expand(minima)
    assert graph.energy(labels) == pytest.approx(optimum, abs=1e-9 * scale)
    assert abs(value - graph.energy(labels)) <= model.slack + 1e-15 * scale
    for part, part_labels, node in zip(model.parts, model.nodes_of(labels), minima, strict=True):
        assert energy_of(part, tuple(part_labels)) == energy_of(part, tuple(node))
    return model


@pytest.mark.parametrize("family", FAMILIES)
def test_the_best_labels_of_the_nodes_are_an_optimal_labelling(family: str) -> None:
    for seed in range(12):
        graph = random_graph(family, seed)
        reference = exhaustive(graph)
        check_against_enumeration(graph, reference.optimum, reference.scale)


@given(recipes(higher_order=False, hard=False, max_states=200))
def test_best_labels_of_the_nodes_are_optimal_for_any_mixture_of_terms(recipe: Recipe) -> None:
    graph = recipe.build()
    check_against_enumeration(graph, float(recipe.energies().min()), recipe.scale())


def test_most_families_are_covered() -> None:
    covered = {
        family
        for family in FAMILIES
        if all(not isinstance(build_model(random_graph(family, s)), str) for s in range(12))
    }
    assert {"potts", "estep", "ties", "partition", "no-edges", "disconnected"} <= covered


def test_every_table_over_two_labels_is_covered() -> None:
    rng = np.random.default_rng(0)
    edges = list(itertools.combinations(range(6), 2))
    tables = rng.normal(size=(len(edges), 2, 2))
    graph = il.FactorGraph.pairwise(rng.normal(size=(6, 2)), edges, tables)
    reference = exhaustive(graph)
    model = check_against_enumeration(graph, reference.optimum, reference.scale)
    assert model is not None
    (part,) = model.parts
    assert part.n_nodes == 6 and len(part.pairs) == len(edges)


def test_a_table_that_is_potts_beside_unaries_is_recognised() -> None:
    rng = np.random.default_rng(1)
    edges = list(itertools.combinations(range(4), 2))
    parts = [(rng.normal(size=(3, 1)), rng.normal(size=3), rng.normal()) for _ in edges]
    tables = np.array([f + g + c * np.eye(3) for f, g, c in parts])
    graph = il.FactorGraph.pairwise(rng.normal(size=(4, 3)), edges, tables)
    model = build_model(graph)
    assert isinstance(model, PottsEnergy)
    assert model.parts[0].coupling == pytest.approx([c for _, _, c in parts], abs=1e-12)
    tables[2, 0, 1] += 1e-6
    why = build_model(il.FactorGraph.pairwise(rng.normal(size=(4, 3)), edges, tables))
    assert isinstance(why, str) and "variables 0 and 3" in why


def test_terms_of_three_variables_are_refused() -> None:
    graph = il.FactorGraph.from_factors([2, 2, 2], [((0, 1, 2), np.arange(8.0).reshape(2, 2, 2))])
    assert "three" in str(build_model(graph))


def test_infinite_costs_are_refused() -> None:
    assert "finite costs" in str(build_model(random_graph("must-links", 0)))


def test_trees_are_eliminated_and_cycles_stay() -> None:
    rng = np.random.default_rng(2)
    edges = [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (3, 5), (6, 7)]
    graph = il.FactorGraph.potts(rng.normal(size=(9, 3)), edges, rng.normal(size=7))
    model = build_model(graph)
    assert isinstance(model, PottsEnergy)
    assert [part.variables.tolist() for part in model.parts] == [[0, 1, 2]]
    assert sorted(model.leaves[:, 0].tolist()) == [3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize(
    ("weights", "unary", "quantum"),
    [
        # The cut of a triangle is even; with a pendant cost it is not.
        ([-1.0, -1.0, -1.0], 0.0, 2.0),
        ([-1.0, -1.0, -1.0], 1.0, 1.0),
        ([0.25, 0.5, 0.75], 0.0, 0.25),
        ([0.1, 0.2, 0.3], 0.0, 0.0),
        ([3.0, 6.0, -3.0], 1.5, 1.5),
    ],
)
def test_energies_are_multiples_of_the_quantum(
    weights: list[float], unary: float, quantum: float
) -> None:
    costs = np.zeros((3, 2))
    costs[0, 1] = unary
    graph = il.FactorGraph.potts(costs, [(0, 1), (1, 2), (0, 2)], weights)
    model = build_model(graph)
    assert isinstance(model, PottsEnergy)
    assert model.parts[0].quantum == quantum
    assert (model.slack == 0.0) == (quantum > 0.0)
