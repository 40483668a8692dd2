"""Disjoint sets against the components of a graph."""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from inference_lab.kernels.union_find import find


def test_merged_sets_are_components():
    n = 50
    pairs = np.random.default_rng(0).integers(0, n, (30, 2))
    parent = np.arange(n)
    for i, j in pairs:
        parent[find(parent, i)] = find(parent, j)
    roots = np.array([find(parent, i) for i in range(n)])
    links = coo_array((np.ones(len(pairs)), pairs.T), shape=(n, n))
    count, group = connected_components(links, directed=False)
    assert np.unique(roots).size == count
    assert ((roots[:, None] == roots) == (group[:, None] == group)).all()
    assert (roots[roots] == roots).all()
