"""Orders in which to visit the variables of a graph."""

from __future__ import annotations

import numpy as np

from inference_lab._numba import kernel
from inference_lab.graph.arrays import GraphArrays, IntArray


@kernel
def breadth_first(g: GraphArrays) -> IntArray:
    """Return the variables in breadth-first order, component after component, shape (n,).

    Complexity: O(variables + edges + sum of arities).
    """
    n = g.cardinalities.size
    order = np.empty(n, dtype=np.int64)
    seen = np.zeros(n, dtype=np.bool_)
    factor_seen = np.zeros(g.factor_ptr.size - 1, dtype=np.bool_)
    head = 0
    tail = 0
    for root in range(n):
        if seen[root]:
            continue
        seen[root] = True
        order[tail] = root
        tail += 1
        while head < tail:
            i = order[head]
            head += 1
            for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
                j = g.adj_var[p]
                if not seen[j]:
                    seen[j] = True
                    order[tail] = j
                    tail += 1
            for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
                f = g.slot_factor[g.inc_slot[p]]
                if factor_seen[f]:
                    continue
                factor_seen[f] = True
                for s in range(g.factor_ptr[f], g.factor_ptr[f + 1]):
                    j = g.scopes[s]
                    if not seen[j]:
                        seen[j] = True
                        order[tail] = j
                        tail += 1
    return order
