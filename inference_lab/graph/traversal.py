"""Breadth-first traversal of the variables of a graph."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from inference_lab._numba import inlined, kernel
from inference_lab.graph.arrays import GraphArrays, IntArray


@inlined
def reach(
    g: GraphArrays,
    i: int,
    seen: npt.NDArray[np.generic],
    stamp: int,
    queue: IntArray,
    tail: int,
    limit: int,
) -> int:
    """Append unseen variables that share a term with ``i`` to a queue of length `tail`.

    Seen variables have ``seen[j] == stamp``. Returns the new length, at most `limit`.
    """
    for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
        j = g.adj_var[p]
        if seen[j] != stamp and tail < limit:
            seen[j] = stamp
            queue[tail] = j
            tail += 1
    for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
        f = g.slot_factor[g.inc_slot[p]]
        for s in range(g.factor_ptr[f], g.factor_ptr[f + 1]):
            j = g.scopes[s]
            if seen[j] != stamp and tail < limit:
                seen[j] = stamp
                queue[tail] = j
                tail += 1
    return tail


@kernel
def breadth_first(g: GraphArrays) -> IntArray:
    """Return the variables in breadth-first order, component after component, shape (n,)."""
    n = g.cardinalities.size
    order = np.empty(n, dtype=np.int64)
    seen = np.zeros(n, dtype=np.uint8)
    head = 0
    tail = 0
    for root in range(n):
        if seen[root]:
            continue
        seen[root] = 1
        order[tail] = root
        tail += 1
        while head < tail:
            tail = reach(g, order[head], seen, 1, order, tail, n)
            head += 1
    return order
