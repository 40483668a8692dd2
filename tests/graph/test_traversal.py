"""Breadth-first regions against sets."""

from __future__ import annotations

import numpy as np
import pytest

from inference_lab.graph.random_graphs import random_graph
from inference_lab.kernels.regions import nearest
from inference_lab.registry.sources import as_problem


@pytest.mark.parametrize("size", [1, 2, 7, 30])
def test_regions_are_connected(size: int) -> None:
    """A region has its centre, the requested size or the whole component, and is connected."""
    graph = random_graph("higher-order", 4)
    big = as_problem("potts-grid(height=5, width=6, labels=2)").graph
    for g in (graph, big):
        near = [set() for _ in range(g.n_variables)]
        for scope, _ in g.factors():
            for i in scope:
                near[i] |= set(scope)
        seen = np.zeros(g.n_variables, dtype=np.int64)
        for centre in range(g.n_variables):
            region = np.empty(min(size, g.n_variables), dtype=np.int64)
            count = nearest(g.arrays, centre, region.size, seen, centre + 1, region)
            members = set(region[:count].tolist())
            component = {i for i in range(g.n_variables) if g.components[i] == g.components[centre]}
            assert count == len(members) == min(region.size, len(component))
            assert members <= component
            reached = {centre}
            while True:
                more = {j for i in reached for j in near[i] & members} | reached
                if more == reached:
                    break
                reached = more
            assert reached == members
