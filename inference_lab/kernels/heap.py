"""An indexed binary heap: it stores the position of each item, so that keys may change."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from inference_lab._numba import inlined
from inference_lab.graph.arrays import IntArray


class Heap(NamedTuple):
    """A heap of items from 0 to n - 1, with the least key on top and ties broken by the least tie.

    * ``items`` (n,): the items in the heap, ``items[0]`` on top; ``place`` (n,): the position of
      each item, -1 outside the heap; ``size`` (1,): the number of items in the heap;
    * ``key``, ``tie`` (n,), integers or floats: written by the owner of the heap. After each change
      for an item in the heap, `settle` (or `rise`, or `sink`) must be called before the next.
    """

    items: IntArray
    place: IntArray
    size: IntArray
    key: npt.NDArray[Any]
    tie: npt.NDArray[Any]


def empty_heap(key: npt.NDArray[Any], tie: npt.NDArray[Any] | None = None) -> Heap:
    """Return an empty heap that refers to the given arrays without copying them."""
    # Without ties, the order of equal keys depends on previous moves.
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
    """Move an item up to its place after its key became smaller."""
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
    """Move an item down to its place after its key became larger."""
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
    """Move an item to its place after its key changed either way."""
    rise(h, v)
    sink(h, v)


@inlined
def push(h: Heap, v: int) -> None:
    """Insert an item that is not in the heap."""
    h.place[v] = h.size[0]
    h.size[0] += 1
    rise(h, v)


@inlined
def remove(h: Heap, v: int) -> None:
    """Remove an item that is in the heap."""
    at = h.place[v]
    h.place[v] = -1
    h.size[0] -= 1
    last = h.items[h.size[0]]
    if last != v:
        h.place[last] = at
        settle(h, last)


@inlined
def pop(h: Heap) -> int:
    """Remove the item on top, and return it."""
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
    """Remove all items."""
    for at in range(h.size[0]):
        h.place[h.items[at]] = -1
    h.size[0] = 0
