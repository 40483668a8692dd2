"""An upper bound on the value of a partition: a packing of triangles."""

from __future__ import annotations

import numpy as np

from inference_lab._numba import lean_kernel
from inference_lab.algorithms.multicut.signed_graph import SignedGraph
from inference_lab.graph.arrays import FloatArray, IntArray

#: Share of the sum of absolute weights that covers the rounding of a packing.
_ROUNDING = 1e-13


def packing_bound(g: SignedGraph) -> float:
    """Return the sum of positive weights less a packing of conflicted triangles.

    A triangle of two positive edges and a negative one cannot keep all of its gain: one edge
    loses at least the least absolute weight. Triangles that share no weight lose independently
    (J.-H. Lange, A. Karrenbauer, B. Andres, "Partial optimality and fast lower bounds for weighted
    correlation clustering", ICML 2018, algorithm 2, cycles of length 3). An edge of weight ``-inf``
    is never used up.
    """
    first = np.repeat(np.arange(g.n), np.diff(g.ptr))
    # Sorted by the other end, half edges are in the order of their reverses.
    mate = np.empty(first.size, dtype=np.int64)
    mate[np.lexsort((first, g.neighbours))] = np.arange(first.size)
    rest = g.weights.copy()
    lost = pack_triangles(g.ptr, g.neighbours, mate, rest)
    total = float(np.abs(g.weights[np.isfinite(g.weights)]).sum())
    return float(g.weights[g.weights > 0.0].sum()) / 2.0 - lost + _ROUNDING * total


@lean_kernel
def pack_triangles(ptr: IntArray, neighbours: IntArray, mate: IntArray, rest: FloatArray) -> float:
    """Subtract conflicted triangles from the weights; return the sum of what each loses."""
    lost = 0.0
    for i in range(ptr.size - 1):
        for p in range(ptr[i], ptr[i + 1]):
            k = neighbours[p]
            if i > k or rest[p] >= 0.0:
                continue
            a = ptr[i]
            b = ptr[k]
            while rest[p] < 0.0 and a < ptr[i + 1] and b < ptr[k + 1]:
                if neighbours[a] < neighbours[b]:
                    a += 1
                elif neighbours[a] > neighbours[b]:
                    b += 1
                else:
                    loss = min(rest[a], rest[b], -rest[p])
                    if loss > 0.0:
                        lost += loss
                        rest[p] += loss
                        rest[a] -= loss
                        rest[b] -= loss
                        rest[mate[p]] = rest[p]
                        rest[mate[a]] = rest[a]
                        rest[mate[b]] = rest[b]
                    a += 1
                    b += 1
    return lost
