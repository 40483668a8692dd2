"""Tables of a bucket elimination: the variables in the scope of each."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from inference_lab.algorithms.elimination.bucket_elimination import _separators


@pytest.mark.parametrize("edges", [0, 12, 45, 200])
def test_a_table_is_over_the_later_neighbours_once_the_earlier_ones_are_gone(edges: int) -> None:
    """The scope holds even if eliminations add many edges and the storage must grow."""
    graph = nx.gnm_random_graph(30, edges, seed=edges)
    order = np.random.default_rng(edges).permutation(30)
    position = np.argsort(order)
    rows = [sorted(graph[v]) for v in range(30)]
    ptr = np.cumsum([0, *map(len, rows)])
    neighbours = np.array([u for row in rows for u in row], dtype=np.int64)
    sep_ptr, sep = _separators(ptr, neighbours, position, order)
    for p, v in enumerate(order.tolist()):
        later = list(graph[v])
        scope = sep[sep_ptr[p] : sep_ptr[p + 1]].tolist()
        assert scope == sorted(position[later].tolist(), reverse=True)
        graph.remove_node(v)
        graph.add_edges_from((a, b) for a in later for b in later if a < b)
    assert edges != 45 or sep.size > neighbours.size
