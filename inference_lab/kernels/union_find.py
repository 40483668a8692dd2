"""Disjoint sets (union-find): ``parent`` leads each item to its set's root, which is its own.

``parent[i] = i`` for all makes a set of each item; ``parent[find(parent, i)] = r`` hangs the set of
``i`` below the root ``r`` of another.
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
