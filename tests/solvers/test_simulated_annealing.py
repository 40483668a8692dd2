"""Annealing follows its schedule, samples its conditional, and ends in a local minimum."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from strategies import assert_local_minimum

import inference_lab as il
from inference_lab.conformance import exhaustive
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.random_graphs import FINITE, HARD, random_graph
from inference_lab.kernels.descent import count_users
from inference_lab.problems.instances import Instances, find
from inference_lab.registry.sources import as_problem
from inference_lab.solvers.simulated_annealing import (
    _AnnealingState,
    fill_fields,
    heat_bath,
    heat_bath_by_fields,
    put_back,
)


def visits(
    graph: FactorGraph,
    x: np.ndarray,
    order: list[int],
    uniforms: list[float],
    temperature: float,
    penalty: float = 1e3,
) -> tuple[float, int]:
    """Visit variables, in place; return the changes of finite costs and violations."""
    width = int(graph.cardinalities.max())
    change, violations = heat_bath(
        graph.arrays,
        graph.label_costs,
        x,
        count_users(graph.label_costs, x),
        np.array(order),
        0,
        np.array(uniforms),
        np.full(len(uniforms), temperature),
        penalty,
        np.empty(width),
        np.empty(width, dtype=np.int64),
    )
    return change, violations


@pytest.mark.parametrize("family", [*FINITE, *HARD])
def test_a_visit_draws_from_the_conditional(family: str) -> None:
    """Evenly spaced uniform numbers give every label its weight; violations cost the penalty."""
    graph = random_graph(family, 3)
    energies = exhaustive(graph).energies
    penalty, temperature = 3.0, 1.1
    start = np.array(np.unravel_index(int(energies.argmin()), energies.shape))
    terms = list(graph.factors())
    for i in range(graph.n_variables):
        cost = []
        for a in range(int(graph.cardinalities[i])):
            x = start.copy()
            x[i] = a
            paid = [float(table[tuple(x[list(scope)])]) for scope, table in terms]
            cost.append(sum(penalty if c == math.inf else c for c in paid))
        weight = np.exp(-(np.array(cost) - min(cost)) / temperature)
        drawn = np.zeros(len(cost))
        for uniform in (np.arange(300) + 0.5) / 300:
            x = start.copy()
            change, violations = visits(graph, x, [i], [uniform], temperature, penalty)
            drawn[x[i]] += 1 / 300
            assert change + penalty * violations == pytest.approx(
                cost[x[i]] - cost[start[i]], abs=1e-9
            )
        assert drawn == pytest.approx(weight / weight.sum(), abs=1 / 300)


def fields_of(graph: FactorGraph, x: np.ndarray) -> np.ndarray:
    """Return the costs of all labels of each variable, flat."""
    width = int(graph.cardinalities.max())
    fields = np.empty(graph.unary_values.size)
    fill_fields(graph.arrays, x, np.empty(width), np.empty(width, dtype=np.int64), fields)
    return fields


PAIRWISE = [
    (family, seed)
    for family, seed in itertools.product(FINITE, range(5))
    if random_graph(family, seed).n_factors == 0
]


def test_fields_are_kept_up_to_date_and_draw_the_same() -> None:
    """Check visit after visit, and after restoring a region."""
    for family, seed in PAIRWISE:
        graph, rng = random_graph(family, seed), np.random.default_rng(seed)
        n, width = graph.n_variables, int(graph.cardinalities.max())
        x = rng.integers(0, graph.cardinalities)
        begun, other, order = x.copy(), x.copy(), rng.permutation(n)
        fields, uniforms = fields_of(graph, x), rng.random(7 * n)
        change = heat_bath_by_fields(
            graph.arrays, x, order, 0, uniforms, np.full(7, 0.8), fields, np.empty(width)
        )
        plain, _ = visits(graph, other, order.tolist(), uniforms.tolist(), 0.8)
        assert x.tolist() == other.tolist()
        assert [change, plain] == pytest.approx([graph.energy(x) - graph.energy(begun)] * 2)
        assert fields == pytest.approx(fields_of(graph, x), abs=1e-9)
        put_back(graph.arrays, x, order, begun[order], fields)
        assert x.tolist() == begun.tolist()
        assert fields == pytest.approx(fields_of(graph, begun), abs=1e-9)


def test_the_temperature_falls_by_equal_ratios(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []
    visit = _AnnealingState.visit

    def recorded(state, order, start, size, temperatures, penalty):  # type: ignore[no-untyped-def]
        seen.extend(temperatures)
        return visit(state, order, start, size, temperatures, penalty)

    monkeypatch.setattr(_AnnealingState, "visit", recorded)
    spec = "simulated-annealing(start_temperature=8, end_ratio=0.0625, sweeps=50, reheats=0)"
    il.solve(random_graph("potts", 0), spec, seed=0)
    assert np.array(seen) / seen[0] == pytest.approx(0.0625 ** (np.arange(50) / 50))


def test_the_end_is_a_local_minimum() -> None:
    """No single change of the answer has a lower energy, even after very few sweeps."""
    graph = as_problem("potts-grid(height=9, width=9, labels=3, frustration=0.5)").graph
    s = il.solve(graph, "simulated-annealing(sweeps=2, reheats=1, reheat_sweeps=2)")
    assert_local_minimum(graph, s.labels)


def test_reheats_never_make_it_worse_and_mostly_gain() -> None:
    """After the first descent the offered energies fall, round by round."""
    graph = as_problem("ising(size=14)").graph
    rounds = 12
    s = il.solve(graph, f"simulated-annealing(sweeps=20, reheats={rounds})", seed=1)
    energies = [point.energy for point in s.trace][-rounds - 1 :]
    assert all(b <= a + 1e-9 for a, b in itertools.pairwise(energies))
    assert energies[-1] < energies[0] - 1.0
    assert s.diagnostics["reheats_that_gained"] > 5


def test_a_warm_start_begins_at_the_reheat_temperature() -> None:
    """From the optimum of a magnet, a mild reheat stays; the answer is never worse than that."""
    graph = as_problem("ising(size=10, frustration=0, field=0)").graph
    s = il.solve(
        graph,
        "simulated-annealing(sweeps=30, reheats=0, reheat_ratio=0.1)",
        initial=np.ones(100, dtype=int),
    )
    assert [point.energy for point in s.trace] == pytest.approx([s.energy] * len(s.trace))


def test_the_time_limit_cools_faster() -> None:
    """Within a short time the anneal still finishes, far below a descent alone."""
    graph = as_problem("ising(size=60)").graph
    il.solve(graph, "simulated-annealing", max_iterations=1)
    s = il.solve(graph, "simulated-annealing(sweeps=1000000, reheats=2)", time_limit=0.5)
    assert s.status == "limit"
    assert s.seconds < 1.5
    assert s.energy < il.solve(graph, "icm(restarts=20)").energy - 100.0


def test_a_limit_on_iterations_cools_faster() -> None:
    """A few sweeps are spread over the whole schedule, and over all restarts."""
    graph = as_problem("ising(size=30)").graph
    few = il.solve(graph, "simulated-annealing(reheats=0)", max_iterations=60)
    assert few.iterations == 60
    assert few.status == "limit"
    # At the rate of the full schedule these sweeps would all be hot.
    assert few.energy < il.solve(graph, "icm(restarts=20)").energy - 50.0
    several = il.solve(graph, "simulated-annealing(restarts=2, reheats=0)", max_iterations=60)
    assert several.iterations == 60


@pytest.mark.parametrize("name", ["Grids_26", "Grids_29", "Grids_30"])
def test_grids_of_the_competition(name: str, data_dir: Path) -> None:
    """Ising grids with couplings up to 15: within 1% of the reference energies."""
    name = f"uai2014_map/{name}"
    s = il.solve(Instances(name).build(data_dir).graph, "simulated-annealing(reheats=40)")
    assert s.energy <= find(name).energy + 0.01 * abs(find(name).energy)
