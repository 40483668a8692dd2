"""Variables that can be updated at once: waves of an order, and how changes are told to others."""

from __future__ import annotations

import numpy as np

from inference_lab._numba import inlined, kernel
from inference_lab.graph.arrays import FloatArray, GraphArrays, Int32Array, IntArray
from inference_lab.graph.factor_graph import Each


def waves(
    g: GraphArrays, order: IntArray, window: int, each: Each = map
) -> tuple[IntArray, IntArray]:
    """Sort an order into waves, without changing what a sweep along it comes to.

    No two variables of a wave share a term, and each comes after all that share one with it and
    stand before it in the order. Of each `window` variables that follow each other in the order,
    those that wait for none of the others come first, then those that wait for these only, and so
    on; a window keeps together what lies together in memory. `order` may leave variables out.
    Windows are sorted as `each` calls for them, one after the other where there are factors.

    Returns the variables in their new order, and where each wave starts, with the end behind.

    Complexity: O(variables + edges + sum of arities).
    """
    # Looked up at random, so that what is half as long takes a tenth less time.
    level = np.full(g.cardinalities.size, -1, dtype=np.int32)
    highest = np.full(g.factor_ptr.size - 1, -1, dtype=np.int32)
    ordered = np.empty_like(order)
    starts = np.empty_like(order)

    def sort(first: int) -> IntArray:
        last = min(first + window, order.size)
        count = _sort_window(g, order, (first, last), level, highest, ordered, starts)
        return starts[first : first + count]

    found = (each if highest.size == 0 else map)(sort, range(0, order.size, window))
    return ordered, np.concatenate([*found, np.array([order.size])])


@kernel
def _sort_window(
    g: GraphArrays,
    order: IntArray,
    part: tuple[int, int],
    level: Int32Array,
    highest: Int32Array,
    ordered: IntArray,
    starts: IntArray,
) -> int:
    """Sort a part of an order into waves, see `waves`; return how many there are.

    Ranks of waves are counted from where the part begins, so that those of other windows, which may
    be written meanwhile, are told from them. Fills `ordered`, and `starts` from there on.
    """
    first, last = part
    place = np.zeros(last - first, dtype=np.int64)
    n_waves = 0
    for t in range(first, last):
        i = order[t]
        before = first - 1
        for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
            other = level[g.adj_var[p]]
            if other < last:
                before = max(before, other)
        for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
            before = max(before, highest[g.slot_factor[g.inc_slot[p]]])
        level[i] = before + 1
        for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
            highest[g.slot_factor[g.inc_slot[p]]] = before + 1
        place[before + 1 - first] += 1
        n_waves = max(n_waves, before + 2 - first)
    at = first
    for rank in range(n_waves):
        starts[first + rank] = at
        size = place[rank]
        place[rank] = at
        at += size
    for t in range(first, last):
        i = order[t]
        ordered[place[level[i] - first]] = i
        place[level[i] - first] += 1
    return n_waves


@inlined
def _latest(g: GraphArrays, i: int, tile: IntArray, level: IntArray) -> int:
    """Return the highest level of the earlier tiles that ``i`` has a term with, -1 if none."""
    latest = -1
    own = tile[i]
    for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
        other = tile[g.adj_var[p]]
        if other < own:
            latest = max(latest, level[other])
    for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
        f = g.slot_factor[g.inc_slot[p]]
        for s in range(g.factor_ptr[f], g.factor_ptr[f + 1]):
            other = tile[g.scopes[s]]
            if other < own:
                latest = max(latest, level[other])
    return latest


@kernel
def _sorted_by(order: IntArray, key: IntArray, n_keys: int) -> tuple[IntArray, IntArray]:
    """Sort an order by a key of each variable, stably; return it, and where each key starts."""
    starts = np.zeros(n_keys + 1, dtype=np.int64)
    for i in order:
        starts[key[i] + 1] += 1
    for at in range(n_keys):
        starts[at + 1] += starts[at]
    place = starts.copy()
    ordered = np.empty_like(order)
    for i in order:
        ordered[place[key[i]]] = i
        place[key[i]] += 1
    return ordered, starts


@kernel
def tiles(
    g: GraphArrays, order: IntArray, breadth_first: IntArray, bands: int, across: int
) -> tuple[IntArray, IntArray, IntArray]:
    """Sort an order into tiles of variables, and these into waves.

    For graphs along which variables are numbered, as pictures are, where the waves of single
    variables are short. A tile is what lies in one of so many `bands` of the numbers, and in one of
    `across` stretches of the distances from the first variables of the breadth-first order. No term
    joins two tiles of a wave. Where each term joins variables that come in the order as their
    numbers and distances do, as in a picture of four neighbours, a sweep comes to the same as
    before.

    Returns the variables in their new order, where each tile starts, and the number of the first
    tile of each wave, with the end behind both.

    Complexity: O(variables + edges + sum of squared arities).
    """
    n = g.cardinalities.size
    depth = np.full(n, -1, dtype=np.int64)
    deepest = 0
    for i in breadth_first:
        nearest = n
        for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
            if depth[g.adj_var[p]] >= 0:
                nearest = min(nearest, depth[g.adj_var[p]])
        depth[i] = 0 if nearest == n else nearest + 1
        deepest = max(deepest, depth[i])
    n_tiles = bands * across
    tile = depth
    for i in range(n):
        tile[i] = i * bands // n * across + depth[i] * across // (deepest + 1)
    ordered, starts = _sorted_by(order.copy(), tile, n_tiles)
    level = np.zeros(n_tiles, dtype=np.int64)
    for t in range(n_tiles):
        for at in range(starts[t], starts[t + 1]):
            level[t] = max(level[t], 1 + _latest(g, ordered[at], tile, level))
    by_level, _ = _sorted_by(np.arange(n_tiles), level, n_tiles)
    out = np.empty_like(order)
    tile_starts = np.zeros(n_tiles + 1, dtype=np.int64)
    waves_starts = np.zeros(n_tiles + 1, dtype=np.int64)
    n_waves = kept = done = 0
    last = -1
    for t in by_level:
        size = starts[t + 1] - starts[t]
        if size == 0:
            continue
        if level[t] != last:
            last = level[t]
            waves_starts[n_waves] = kept
            n_waves += 1
        tile_starts[kept] = done
        kept += 1
        out[done : done + size] = ordered[starts[t] : starts[t + 1]]
        done += size
    tile_starts[kept] = done
    waves_starts[n_waves] = kept
    return out, tile_starts[: kept + 1].copy(), waves_starts[: n_waves + 1].copy()


@inlined
def note_change(
    priority: FloatArray, at: np.uint64, change: float, tolerance: float, at_once: bool
) -> None:
    """Note that what a variable depends on has changed: it is due above the tolerance.

    Changes add up, unless others may note theirs `at_once`: the sum would depend on who comes
    first, or lose one. A variable then is due, at infinity, for one change above the tolerance.
    """
    if not at_once:
        priority[at] += change
    elif change > tolerance:
        priority[at] = np.inf
