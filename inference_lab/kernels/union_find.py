"""Disjoint sets (union-find): ``parent`` leads from each item to the root of its set.

A root is its own parent. ``parent[i] = i`` for all ``i`` makes each item a set of its own;
``parent[find(parent, i)] = r`` attaches the set of ``i`` to the root ``r`` of another.
"""

from __future__ import annotations

from inference_lab._numba import inlined
from inference_lab.graph.arrays import IntArray


@inlined
def find(parent: IntArray, i: int) -> int:
    """Return the root of the set of ``i``, halving the path to it."""
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i
