"""Messages of higher-order factors."""

from __future__ import annotations

import numpy as np

from inference_lab._numba import inlined_minimum
from inference_lab.graph.arrays import FloatArray, GraphArrays, IntArray
from inference_lab.kernels.messages import least
from inference_lab.kernels.odometer import next_labels


@inlined_minimum
def min_marginals(
    g: GraphArrays, slot: int, slots: FloatArray, ptr: IntArray, out: FloatArray, digits: IntArray
) -> float:
    """Write the min-sum message of a factor to one of its variables; return its smallest entry.

    The one at position `slot` of ``scopes``: ``out[b]`` is the minimum, over the labels of the
    factor's other variables, of its cost plus their messages to it, which are at ``ptr`` of their
    positions in `slots`. `digits` is scratch as long as the largest arity.

    Complexity: O(table size).
    """
    f = g.slot_factor[slot]
    lo = g.factor_ptr[f]
    last = g.factor_ptr[f + 1] - 1
    own_last = slot == last
    inner = g.cardinalities[g.scopes[last]]
    k = g.cardinalities[g.scopes[slot]]
    final = slots[ptr[last] : ptr[last] + inner]
    for b in range(k):
        out[b] = np.inf
    for s in range(last - lo):
        digits[s] = 0
    for start in range(g.table_ptr[f], g.table_ptr[f + 1], inner):
        line = g.tables[start : start + inner]
        base = 0.0
        for s in range(lo, last):
            if s != slot:
                base += slots[ptr[s] + digits[s - lo]]
        if base < np.inf:
            if own_last:
                for b in range(inner):
                    out[b] = min(out[b], line[b] + base)
            else:
                value = np.inf
                for b in range(inner):
                    value = min(value, line[b] + final[b])
                own = digits[slot - lo]
                out[own] = min(out[own], value + base)
        next_labels(g, lo, last, digits)
    return least(k, out)
