"""A binary heap of numbered items that knows where each of them stands, so that keys may change."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from inference_lab._numba import inlined
from inference_lab.graph.arrays import IntArray


class Heap(NamedTuple):
    """Some of the items 0 to n - 1, that of least key on top; of equal keys that of least tie.

    * ``items`` (n,): those in the heap, ``items[0]`` on top; ``place`` (n,): where each stands, -1
      if it is out; ``size`` (1,): how many are in;
    * ``key``, ``tie`` (n,), integers or floats: written by whoever owns the heap. After each change
      of an item that is in, `settle` (or `rise`, or `sink`) must follow before the next.
    """

    items: IntArray
    place: IntArray
    size: IntArray
    key: npt.NDArray[Any]
    tie: npt.NDArray[Any]


def empty_heap(key: npt.NDArray[Any], tie: npt.NDArray[Any] | None = None) -> Heap:
    """Return a heap with nothing in it; it looks at the arrays given, and copies neither."""
    # Without ties, which of equal keys comes first depends on the moves before.
    n = key.size
    return Heap(
        items=np.zeros(n, dtype=np.int64),
        place=np.full(n, -1, dtype=np.int64),
        size=np.zeros(1, dtype=np.int64),
        key=key,
        tie=key if tie is None else tie,
    )


@inlined
def _before(h: Heap, u: int, v: int) -> bool:
    if h.key[u] != h.key[v]:
        return bool(h.key[u] < h.key[v])
    return bool(h.tie[u] < h.tie[v])


@inlined
def rise(h: Heap, v: int) -> None:
    """Move an item up to where it belongs, after its key became smaller."""
    at = h.place[v]
    while at > 0:
        above = (at - 1) >> 1
        u = h.items[above]
        if not _before(h, v, u):
            break
        h.items[at] = u
        h.place[u] = at
        at = above
    h.items[at] = v
    h.place[v] = at


@inlined
def sink(h: Heap, v: int) -> None:
    """Move an item down to where it belongs, after its key became larger."""
    at = h.place[v]
    size = h.size[0]
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        if below + 1 < size and _before(h, h.items[below + 1], h.items[below]):
            below += 1
        u = h.items[below]
        if not _before(h, u, v):
            break
        h.items[at] = u
        h.place[u] = at
        at = below
    h.items[at] = v
    h.place[v] = at


@inlined
def settle(h: Heap, v: int) -> None:
    """Move an item to where it belongs, after its key changed either way."""
    rise(h, v)
    sink(h, v)


@inlined
def push(h: Heap, v: int) -> None:
    """Put in an item that is out."""
    h.place[v] = h.size[0]
    h.size[0] += 1
    rise(h, v)


@inlined
def remove(h: Heap, v: int) -> None:
    """Take out an item that is in."""
    at = h.place[v]
    h.place[v] = -1
    h.size[0] -= 1
    last = h.items[h.size[0]]
    if last != v:
        h.place[last] = at
        settle(h, last)


@inlined
def pop(h: Heap) -> int:
    """Take out the item on top, and return it."""
    top = h.items[0]
    h.place[top] = -1
    h.size[0] -= 1
    if h.size[0] > 0:
        last = h.items[h.size[0]]
        h.place[last] = 0
        sink(h, last)
    return int(top)


@inlined
def clear(h: Heap) -> None:
    """Take out all."""
    for at in range(h.size[0]):
        h.place[h.items[at]] = -1
    h.size[0] = 0
