"""The network of integer cost functions: the same energy, whatever is eliminated."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from inference_lab.algorithms.elimination.domains import allowed_labels
from inference_lab.algorithms.linear.integer_costs import plan_rounding
from inference_lab.algorithms.search.network import BITS, HARD, integer_network
from inference_lab.graph.random_graphs import FAMILIES, random_graph


@pytest.mark.parametrize("family", FAMILIES)
def test_costs_are_energies_and_elimination_keeps_the_least(family):
    for seed in range(3):
        graph = random_graph(family, seed)
        domains = allowed_labels(graph)
        if graph.n_variables == 0 or not domains.feasible or graph.sum_of_minima == np.inf:
            continue
        rounding = plan_rounding(graph, np.inf, BITS)
        network = integer_network(graph, domains, rounding, lambda: False)
        joint = np.array(list(itertools.product(*map(range, domains.sizes))))
        energies = graph.energy(domains.labels[domains.ptr[:-1] + joint])
        costs = np.array([network.constant + network.cost(at) for at in joint])
        assert ((costs >= HARD) == np.isinf(energies)).all()
        found = np.array([rounding.bound(float(c)) for c in costs[costs < HARD]])
        room = energies[costs < HARD] - found
        assert (room >= 0).all()
        assert (room <= 2 * rounding.error + 1e-12 * np.abs(found)).all()

        network.eliminate(lambda: False)
        rest = [range(k) if v in network.left else [0] for v, k in enumerate(domains.sizes)]
        left = [
            (network.constant + network.cost(np.array(at)), at) for at in itertools.product(*rest)
        ]
        assert min(left)[0] == costs.min()
        if costs.min() < HARD:
            energy = graph.energy(network.expand(np.array(min(left)[1])))
            assert energy <= energies.min() + 2 * rounding.error + 1e-12 * abs(energies.min())
