"""Enumeration of joint labels in mixed radix, the last variable fastest, as in a factor's table.

``digits`` holds a label for each of ``scopes[lo:hi]``, from ``digits[0]`` on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from inference_lab._numba import inlined
from inference_lab.graph.arrays import GraphArrays, IntArray


@inlined
def entry_of(g: GraphArrays, f: int, digits: IntArray) -> int:
    """Return the index in ``tables`` of the cost of these labels of all variables of a factor."""
    lo = g.factor_ptr[f]
    at = 0
    for s in range(lo, g.factor_ptr[f + 1]):
        at = at * g.cardinalities[g.scopes[s]] + digits[s - lo]
    return int(g.table_ptr[f] + at)


@inlined
def next_labels(g: GraphArrays, lo: int, hi: int, digits: IntArray) -> bool:
    """Advance to the next labels; after the last ones reset to zeros and return False."""
    s = hi - 1
    while s >= lo:
        digits[s - lo] += 1
        if digits[s - lo] < g.cardinalities[g.scopes[s]]:
            return True
        digits[s - lo] = 0
        s -= 1
    return False


@inlined
def n_labels_at(ptr: IntArray, s: int) -> int:
    """Return the number of labels of the variable at a position of ``scopes``, see `slot_ptr`."""
    return int(ptr[np.uint64(s + 1)] - ptr[np.uint64(s)])


@inlined
def next_others(ptr: IntArray, lo: int, hi: int, fixed: int, digits: IntArray) -> bool:
    """Advance all labels but `fixed`; after the last ones reset them and return False."""
    s = hi - 1
    while s >= lo:
        if s != fixed:
            at = np.uint64(s - lo)
            digits[at] += 1
            if digits[at] < n_labels_at(ptr, s):
                return True
            digits[at] = 0
        s -= 1
    return False


@inlined
def _next_allowed(g: GraphArrays, i: int, allowed: npt.NDArray[Any], a: int) -> int:
    """Return the first allowed label from ``a`` on, or the number of labels."""
    start, k = g.unary_ptr[i], g.cardinalities[i]
    while a < k and not allowed[start + a]:
        a += 1
    return a


@inlined
def first_allowed_labels(
    g: GraphArrays, lo: int, hi: int, allowed: npt.NDArray[Any], digits: IntArray
) -> None:
    """Set each digit to the first allowed label of its variable, which must have one."""
    for s in range(lo, hi):
        digits[s - lo] = _next_allowed(g, g.scopes[s], allowed, 0)


@inlined
def next_allowed_labels(
    g: GraphArrays, lo: int, hi: int, allowed: npt.NDArray[Any], fixed: int, digits: IntArray
) -> bool:
    """Advance to the next allowed labels; after the last ones reset and return False."""
    # The position `fixed` of ``scopes`` keeps its label; -1 if there is none.
    s = hi - 1
    while s >= lo:
        if s != fixed:
            i = g.scopes[s]
            digits[s - lo] = _next_allowed(g, i, allowed, digits[s - lo] + 1)
            if digits[s - lo] < g.cardinalities[i]:
                return True
            digits[s - lo] = _next_allowed(g, i, allowed, 0)
        s -= 1
    return False
