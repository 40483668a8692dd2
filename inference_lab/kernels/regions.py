"""Regions of a graph: the variables nearest to one."""

from __future__ import annotations

from inference_lab._numba import inlined, int64
from inference_lab.graph.arrays import GraphArrays, IntArray
from inference_lab.graph.traversal import reach


@inlined
def nearest(
    g: GraphArrays, centre: int, size: int, seen: IntArray, stamp: int, out: IntArray
) -> int:
    """Write `centre` and its nearest variables, `size` at most, to `out`; return their number."""
    out[0] = centre
    seen[centre] = stamp
    head = 0
    # Not a literal, for which numba would compile `reach` once more.
    tail: int = int64(1)
    while head < tail and tail < size:
        tail = reach(g, out[head], seen, stamp, out, tail, size)
        head += 1
    return tail
