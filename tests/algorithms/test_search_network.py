"""Network of integer cost functions: eliminations keep the energy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from inference_lab.algorithms.elimination.arc_consistency import allowed_labels
from inference_lab.algorithms.linear.integer_costs import plan_rounding
from inference_lab.algorithms.search.network import (
    BITS,
    FORBIDDEN,
    HARD,
    CostNetwork,
    integer_network,
)
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.random_graphs import FAMILIES, random_graph


def check(graph: FactorGraph) -> None:
    """Enumerate a graph, its network, and the network after elimination."""
    domains = allowed_labels(graph)
    rounding = plan_rounding(graph, np.inf, BITS)
    network = integer_network(graph, domains, rounding, lambda: False)
    assert network is not None
    for table in network.functions.values():
        assert table.min() >= 0 and (table[table >= HARD] == FORBIDDEN).all()
    joint = np.array(list(itertools.product(*map(range, domains.sizes))))
    energies = graph.energy(domains.labels[domains.ptr[:-1] + joint])
    costs = np.array([network.constant + network.cost(at) for at in joint])
    assert ((costs >= HARD) == np.isinf(energies)).all()
    lowered = np.array([rounding.bound(float(c)) for c in costs[costs < HARD]])
    room = energies[costs < HARD] - lowered
    assert (room >= 0).all()
    assert (room <= 2 * rounding.error + 1e-12 * np.abs(lowered)).all()

    network.eliminate(lambda: False)
    rest = [range(k) if v in network.left else [0] for v, k in enumerate(domains.sizes)]
    outcomes = [
        (network.constant + network.cost(np.array(at)), at) for at in itertools.product(*rest)
    ]
    assert min(outcomes)[0] == costs.min()
    if costs.min() < HARD:
        energy = graph.energy(network.expand(np.array(min(outcomes)[1])))
        assert energy <= energies.min() + 2 * rounding.error + 1e-12 * abs(energies.min())


@pytest.mark.parametrize("family", FAMILIES)
def test_costs_are_energies_and_elimination_keeps_the_least(family):
    for seed in range(3):
        graph = random_graph(family, seed)
        feasible = allowed_labels(graph).feasible
        if graph.n_variables and feasible and graph.sum_of_minima < np.inf:
            check(graph)


def drawn(seed: int, forbidden: float) -> FactorGraph:
    """Draw many functions of one shape, some over the same variables in any order."""
    rng = np.random.default_rng(seed)
    counts = np.array([3, 3, 2, 3, 1, 3])
    scopes = [rng.permutation(6)[:arity] for arity in [2] * 12 + [3] * 6 + [4] * 2 + [3] * 4]
    factors = []
    for scope in scopes:
        table = rng.normal(size=counts[scope]).round(3)
        factors.append((scope, np.where(rng.random(table.shape) < forbidden, np.inf, table)))
    unary = [rng.normal(size=k) for k in counts]
    for v in rng.permutation(np.flatnonzero(counts == 3))[: rng.integers(4)]:
        unary[v][rng.integers(3)] = np.inf
    return FactorGraph.from_terms(unary, factors=factors)


@pytest.mark.parametrize("forbidden", [0.0, 0.05])
@pytest.mark.parametrize("seed", range(8))
def test_functions_of_a_shape_are_added_at_once(seed, forbidden):
    """The stack equals adding each one: transposed, merged, over the remaining labels."""
    graph = drawn(seed, forbidden)
    if allowed_labels(graph).feasible:
        check(graph)


@pytest.mark.parametrize("impossible", [False, True])
@pytest.mark.parametrize("shape", [(3,), (2, 3), (3, 1), (1, 1), (2, 1, 3), (3, 3, 3)])
def test_a_stack_is_added_as_its_functions_are(shape, impossible):
    """The stack has constants, forbidden entries, constant functions, and repeated scopes."""
    rng = np.random.default_rng(len(shape))
    counts = np.arange(9) % 3 + 1
    domains = allowed_labels(FactorGraph.from_factors(counts, []))
    # A different variable with this number of labels for each axis.
    orders = [[rng.permutation(np.flatnonzero(counts == k)) for k in (1, 2, 3)] for _ in range(20)]
    scopes = np.array([[of[k - 1][axis] for axis, k in enumerate(shape)] for of in orders])
    tables = rng.integers(1, 50, (20, *shape))
    tables[rng.random(tables.shape) < 0.1 * (max(shape) > 1)] = FORBIDDEN
    tables[3], tables[4] = 7, FORBIDDEN if impossible else 8
    stacked, single = (CostNetwork(domains) for _ in range(2))
    for scope, table in zip(scopes.tolist(), tables, strict=True):
        single.add(tuple(scope), table)
    stacked.add_all(scopes, tables)
    assert (stacked.constant, stacked.around) == (single.constant, single.around)
    assert list(stacked.functions) == list(single.functions)
    for scope, table in single.functions.items():
        assert (stacked.functions[scope] == table).all()


@pytest.mark.parametrize("looks", range(1, 4))
def test_it_stops_on_request(looks):
    graph = drawn(0, 0.0)
    answers = iter([False] * (looks - 1) + [True])
    rounding = plan_rounding(graph, np.inf, BITS)
    network = integer_network(graph, allowed_labels(graph), rounding, lambda: next(answers))
    assert network is None


def test_stop_is_checked_often_without_shared_terms() -> None:
    graph = FactorGraph.potts(np.random.default_rng(0).random((50_000, 2)), [], [])
    rounding = plan_rounding(graph, np.inf, BITS)
    looks: list[int] = []

    def stop() -> bool:
        looks.append(0)
        return False

    integer_network(graph, allowed_labels(graph), rounding, stop)
    assert len(looks) >= 50
