"""Semidefinite relaxation: bounds that are always valid, and its theorems."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from strategies import Recipe, recipes

import inference_lab as il
from inference_lab.algorithms.semidefinite.potts_energy import PottsEnergy, PottsPart, build_model
from inference_lab.algorithms.semidefinite.relaxation import SDPRelaxation, alternate
from inference_lab.conformance import exhaustive
from inference_lab.contract import Status
from inference_lab.graph.random_graphs import FAMILIES, random_graph
from inference_lab.problems.instances import Instances, find
from inference_lab.registry.sources import as_problem
from inference_lab.solvers.semidefinite import Semidefinite

#: The relaxation alone.
PLAIN = "semidefinite(heuristic='', persistency=false)"
NO_CUTS = "semidefinite(cuts=false, heuristic='', persistency=false)"


def repulsive(n: int, k: int, edges: list[tuple[int, int]] | None = None) -> il.FactorGraph:
    """Penalise pairs that agree; all pairs of ``n`` variables unless edges are given."""
    edges = list(itertools.combinations(range(n), 2)) if edges is None else edges
    return il.FactorGraph.potts(np.zeros((n, k)), edges, -1.0, constant=float(len(edges)))


def ring(n: int) -> list[tuple[int, int]]:
    return [(i, (i + 1) % n) for i in range(n)]


def signed(n: int, k: int, seed: int, density: float = 1.0) -> il.FactorGraph:
    """Draw Potts terms of random sign and unaries."""
    rng = np.random.default_rng(seed)
    pairs = np.array(list(itertools.combinations(range(n), 2)))
    edges = pairs[rng.random(len(pairs)) < density]
    return il.FactorGraph.potts(
        0.5 * rng.normal(size=(n, k)), edges, rng.normal(size=len(edges)) + 0.2
    )


def only_part(graph: il.FactorGraph) -> PottsPart:
    model = build_model(graph)
    assert isinstance(model, PottsEnergy)
    (part,) = model.parts
    return part


# ---------------------------------------------------------------------- the bound


@pytest.mark.parametrize("family", FAMILIES)
def test_the_bound_is_below_the_optimum_and_meets_it(family: str) -> None:
    """On graphs this small the inequalities are complete, so bounds meet optima."""
    for seed in range(8):
        graph = random_graph(family, seed)
        reference = exhaustive(graph)
        solution = il.solve(graph, PLAIN)
        if solution.status is Status.UNSUPPORTED:
            continue
        assert solution.lower_bound <= reference.optimum + 1e-9 * reference.scale
        assert solution.status is Status.OPTIMAL
        assert solution.energy == pytest.approx(reference.optimum, abs=1e-8 * reference.scale)


@given(recipes(higher_order=False, hard=False, min_variables=3, max_states=250))
def test_any_bound_on_the_way_is_below_the_optimum(recipe: Recipe) -> None:
    graph, optimum = recipe.build(), float(recipe.energies().min())
    for limit in (1, 7, 60):
        solution = il.solve(graph, PLAIN, max_iterations=limit)
        if solution.status is not Status.UNSUPPORTED:
            assert solution.lower_bound <= optimum + 1e-10 * recipe.scale()


@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize("seed", range(6))
def test_any_multipliers_give_a_bound(k: int, seed: int) -> None:
    """Weak duality needs no convergence: random multipliers around the solution suffice."""
    graph = signed(7 if k < 4 else 6, k, seed)
    optimum = exhaustive(graph).optimum
    part = only_part(graph)
    rng = np.random.default_rng(seed)
    relaxation = SDPRelaxation(part, True, rng)
    for _ in range(60):
        relaxation.iterate()
        if relaxation.iterations % 20 == 0:
            relaxation.separate(lambda: False)
    rows = relaxation.rows
    assert len(rows) > 0
    z, floor, multiplier = relaxation.z.copy(), relaxation.floor.copy(), rows.multiplier.copy()
    for noise in (0.0, 0.01, 0.3, 3.0):
        relaxation.bound = relaxation.raw_bound = -math.inf
        relaxation.z = z + noise * rng.normal(size=z.shape)
        relaxation.floor = np.maximum(floor + noise * rng.normal(size=floor.shape), 0.0)
        rows.multiplier = np.maximum(multiplier + noise * rng.normal(size=multiplier.size), 0.0)
        relaxation.improve_bound(None, math.inf)
        assert -math.inf < relaxation.bound <= optimum - graph.constant + 1e-9


@pytest.mark.parametrize("seed", range(3))
def test_iterations_follow_the_rule(seed: int) -> None:
    """Compare each matrix, without rows and with triangles, starting from earlier multipliers."""
    part = only_part(signed(9, 2, seed))
    relaxation = SDPRelaxation(part, True, np.random.default_rng(seed))

    def whole(triangle: np.ndarray) -> np.ndarray:
        return np.tril(triangle) + np.tril(triangle, -1).T

    for _ in range(2):
        y, z = whole(relaxation.y), whole(relaxation.z)
        rows, multipliers = [], relaxation.rows.multiplier.copy()
        for lo, hi in itertools.pairwise(relaxation.rows.ptr):
            row = np.zeros_like(y)
            row[relaxation.rows.i[lo:hi], relaxation.rows.j[lo:hi]] = relaxation.rows.value[lo:hi]
            rows.append(row + row.T)
        for _ in range(8):
            x, y, z, multipliers = alternate(
                whole(relaxation.costs),
                rows,
                relaxation.rows.rhs,
                y,
                z,
                multipliers,
                relaxation.penalty,
            )
            relaxation.iterate()
            assert relaxation.x == pytest.approx(x, abs=1e-10)
            for actual, expected in ((relaxation.y, y), (relaxation.z, z)):
                assert whole(actual) == pytest.approx(expected, abs=1e-10)
            assert relaxation.rows.multiplier == pytest.approx(multipliers, abs=1e-10)
        relaxation.separate(lambda: False)
    assert len(relaxation.rows) > 0


def test_a_labelling_certifies_itself_before_the_multipliers_have_converged() -> None:
    graph = signed(9, 2, 3)
    reference = exhaustive(graph)
    best = np.array(np.unravel_index(int(reference.energies.argmin()), reference.energies.shape))
    model = build_model(graph)
    assert isinstance(model, PottsEnergy)
    labels = model.nodes_of(best)[0]
    iterations = {}
    for with_labels in (False, True):
        relaxation = SDPRelaxation(model.parts[0], True, np.random.default_rng(0))
        energy = relaxation.energy(labels)
        while relaxation.iterations < 2000 and relaxation.bound < energy - 1e-9:
            relaxation.iterate()
            if relaxation.iterations % 5 == 0:
                relaxation.improve_bound(labels if with_labels else None, energy)
            if relaxation.iterations % 25 == 0:
                relaxation.separate(lambda: False)
        iterations[with_labels] = relaxation.iterations
    assert iterations[True] < 0.7 * iterations[False]


def test_a_labelling_that_is_not_optimal_does_not_certify_itself() -> None:
    graph = signed(9, 2, 3)
    optimum = exhaustive(graph).optimum
    part = only_part(graph)
    relaxation = SDPRelaxation(part, True, np.random.default_rng(0))
    rng = np.random.default_rng(1)
    for _ in range(300):
        relaxation.iterate()
        if relaxation.iterations % 25 == 0:
            labels = rng.integers(0, 2, size=part.n_nodes)
            relaxation.improve_bound(labels, relaxation.energy(labels))
            relaxation.separate(lambda: False)
    assert relaxation.bound <= optimum + 1e-9


def test_bounds_of_whole_costs_are_rounded_up() -> None:
    """A ring of seven has an even cut; its relaxation ends strictly between the two energies."""
    graph = repulsive(7, 2, ring(7))
    half = il.solve(graph, NO_CUTS)
    assert half.lower_bound == 1.0 and half.status is Status.OPTIMAL
    rng = np.random.default_rng(0)
    spread = il.FactorGraph.potts(
        np.zeros((7, 2)), ring(7), -1.0 - 1e-3 * rng.random(7), constant=7.0
    )
    assert il.solve(spread, NO_CUTS).lower_bound < 0.5


@pytest.mark.parametrize("k", [2, 3])
def test_single_precision_changes_little_and_the_bound_holds(
    monkeypatch: pytest.MonkeyPatch, k: int
) -> None:
    graph = signed(40, k, 5, 0.4)
    part = only_part(graph)
    bounds = []
    for order in (10**9, 1):
        monkeypatch.setattr("inference_lab.algorithms.semidefinite.relaxation._COARSE_FROM", order)
        relaxation = SDPRelaxation(part, True, np.random.default_rng(0))
        for _ in range(200):
            relaxation.iterate()
            if relaxation.iterations % 25 == 0:
                relaxation.improve_bound(None, math.inf)
                relaxation.separate(lambda: False)
        bounds.append(relaxation.bound + graph.constant)
    assert bounds[0] != bounds[1]
    assert bounds[1] == pytest.approx(bounds[0], rel=1e-2)
    assert max(bounds) <= il.solve(graph, "kernighan-lin").energy


# ---------------------------------------------------------------------- known values


def plain_bound(graph: il.FactorGraph, cuts: bool = False) -> float:
    """Return the bound of the relaxation without rounding up, at convergence."""
    part = only_part(graph)._replace(quantum=0.0)
    relaxation = SDPRelaxation(part, cuts, np.random.default_rng(0))
    for _ in range(1000):
        relaxation.iterate()
        if relaxation.iterations % 25 == 0:
            relaxation.improve_bound(None, math.inf)
            if cuts and relaxation.iterations <= 500:
                relaxation.separate(lambda: False)
    return relaxation.bound + graph.constant


@pytest.mark.parametrize("n", [3, 5, 7])
def test_rings_have_the_value_known_for_the_max_cut_relaxation(n: int) -> None:
    """Goemans and Williamson 1995: ``n (1 + cos(pi / n)) / 2`` of an odd ring can be cut."""
    expected = n - n * (1.0 + math.cos(math.pi / n)) / 2.0
    assert plain_bound(repulsive(n, 2, ring(n))) == pytest.approx(expected, abs=1e-6)
    assert plain_bound(repulsive(n, 2, ring(n)), cuts=True) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(("n", "k"), [(4, 3), (5, 3), (7, 3), (6, 4)])
def test_complete_graphs_have_the_value_known_for_the_k_cut_relaxation(n: int, k: int) -> None:
    """Inner products of ``n`` unit vectors sum up to ``-n / 2`` at least (Frieze, Jerrum 1997)."""
    pairs = n * (n - 1) / 2
    expected = (pairs - (k - 1) * n / 2) / k
    assert plain_bound(repulsive(n, k)) == pytest.approx(expected, abs=1e-6)
    sizes = [n // k + (c < n % k) for c in range(k)]
    optimum = sum(s * (s - 1) / 2 for s in sizes)
    assert plain_bound(repulsive(n, k), cuts=True) == pytest.approx(optimum, abs=1e-5)


@pytest.mark.parametrize(("n", "optimum"), [(4, 2.0), (5, 4.0), (6, 6.0), (7, 9.0)])
def test_frustrated_complete_graphs_are_proved(n: int, optimum: float) -> None:
    """Hypermetric inequalities of five and seven nodes suffice."""
    solution = il.solve(repulsive(n, 2), PLAIN)
    assert (solution.energy, solution.lower_bound) == (optimum, optimum)
    # Without integer costs, whose bounds are rounded up.
    assert plain_bound(repulsive(n, 2), cuts=True) == pytest.approx(optimum, abs=1e-5)


# ---------------------------------------------------------------------- labellings


@pytest.mark.parametrize("k", [2, 3, 5])
def test_rounding_gives_labels_that_are_allowed(k: int) -> None:
    part = only_part(signed(10, k, 1))
    relaxation = SDPRelaxation(part, True, np.random.default_rng(0))
    for _ in range(50):
        relaxation.iterate()
    seen = set()
    for directions in (0, k - 1, 3 * k) * 5:
        labels = relaxation.round(directions)
        assert labels.shape == (10,) and labels.min() >= 0 and labels.max() < k
        seen.add(labels.tobytes())
    assert len(seen) > 1


def test_rounding_without_unaries_uses_random_vectors() -> None:
    part = only_part(repulsive(12, 3))
    assert not part.has_terminals and part.order == 12
    relaxation = SDPRelaxation(part, False, np.random.default_rng(0))
    for _ in range(200):
        relaxation.iterate()
    energies = [relaxation.energy(relaxation.round(0)) for _ in range(200)]
    # Frieze and Jerrum 1997: 0.836 of the pairs that the relaxation cuts, in expectation.
    assert np.mean(66.0 + np.array(energies)) <= 66.0 - 0.836 * 48.0 + 66.0
    assert min(energies) < np.mean(energies)


def test_a_rounded_matrix_of_a_labelling_is_that_labelling() -> None:
    graph = signed(10, 3, 4)
    model = build_model(graph)
    assert isinstance(model, PottsEnergy)
    solution = il.solve(graph, PLAIN)
    assert solution.labels is not None and solution.status is Status.OPTIMAL
    relaxation = SDPRelaxation(model.parts[0], True, np.random.default_rng(0))
    for _ in range(400):
        relaxation.iterate()
        if relaxation.iterations % 25 == 0:
            relaxation.separate(lambda: False)
    assert model.expand([relaxation.round(0)]).tolist() == solution.labels.tolist()


# ---------------------------------------------------------------------- the run


def test_parts_and_trees_are_solved_separately() -> None:
    """There are two frustrated rings, a tree attached to one, and an isolated variable."""
    edges = [*ring(5), *((5 + i, 5 + j) for i, j in ring(7)), (0, 12), (12, 13)]
    rng = np.random.default_rng(0)
    unary = 0.1 * rng.normal(size=(15, 2))
    graph = il.FactorGraph.potts(unary, edges, -1.0)
    solution = il.solve(graph, PLAIN)
    assert solution.diagnostics["orders"] == [8, 6]
    assert solution.status is Status.OPTIMAL
    assert solution.energy == pytest.approx(il.solve(graph, "junction-tree").energy, abs=1e-9)


def test_converged_means_that_nothing_violated_is_found() -> None:
    """A ring of random costs without inequalities converges short of the optimum."""
    rng = np.random.default_rng(0)
    graph = il.FactorGraph.potts(np.zeros((7, 2)), ring(7), -1.0 - 0.1 * rng.random(7))
    solution = il.solve(graph, NO_CUTS)
    assert solution.status is Status.CONVERGED
    assert solution.diagnostics["primal_residual"] <= 1e-6
    assert solution.lower_bound < solution.energy - 1e-3


def test_iterations_are_limited() -> None:
    assert il.solve(signed(60, 3, 0, 0.3), "semidefinite(iterations=10)").iterations == 10


def test_unsupported_graphs_are_refused_with_the_reason() -> None:
    table = np.abs(np.subtract.outer(np.arange(3.0), np.arange(3.0)))
    linear = il.FactorGraph.pairwise(np.zeros((3, 3)), ring(3), table)
    assert "variables 0 and 1" in il.solve(linear, "semidefinite").message
    small = Semidefinite(max_bytes=1000)
    message = il.solve(repulsive(9, 2), small).message
    # Twelve matrices of order 9.
    assert str(12 * 8 * 81) in message and "1000" in message
    assert "not marginals" in il.solve(repulsive(3, 2), small, temperature=1.0).message


def test_the_heuristic_is_checked() -> None:
    with pytest.raises(ValueError, match="no-such-solver"):
        Semidefinite(heuristic="no-such-solver")


# ---------------------------------------------------------------------- data


def test_the_gap_on_noisy_constraints_is_a_tenth_of_the_linear_one(data_dir: Path) -> None:
    """The data are 150 points of iris with 5 constraints a point, 20 % of them wrong."""
    spec = "estep(data=iris, constraints=750, noise=0.2, weight=30, centroids=constraints)"
    graph = as_problem(spec).graph
    linear = il.solve(graph, "lp-relaxation", time_limit=60).lower_bound
    solution = il.solve(graph, "semidefinite", max_iterations=300)
    assert solution.energy == pytest.approx(4782.292, abs=1e-3)
    assert solution.gap <= 0.07 * (solution.energy - linear)


@pytest.mark.parametrize(
    "name", ["pm1s_80.0", "g05_60.0", "t2g10_6666", "pw01_100.0", "gka1b", "bqp100-1"]
)
def test_cuts_of_the_biq_mac_library_are_proved(name: str, data_dir: Path) -> None:
    name = f"maxcut_qubo/{name}"
    solution = il.solve(Instances(name).build(data_dir).graph, "semidefinite", max_iterations=1000)
    assert solution.energy == solution.lower_bound == find(name).energy
