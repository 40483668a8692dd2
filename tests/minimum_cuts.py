"""Minimum cuts of networks given by their edges and capacities."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from inference_lab.algorithms.cuts.maxflow import CutGraph, larger_power_of_two


class Cut(NamedTuple):
    """The cost of a minimum cut, and the nodes on the source's side."""

    value: float
    source_side: npt.NDArray[np.bool_]


def laid_out(n_nodes: int, edges: npt.ArrayLike) -> CutGraph:
    """Lay out a network from its edges; parallel edges and loops are allowed."""
    tails = np.asarray(edges, dtype=np.int64).ravel()
    order = np.argsort(tails, kind="stable").astype(np.int32)
    place = np.empty(order.size, dtype=np.int32)
    place[order] = np.arange(order.size, dtype=np.int32)
    ptr = np.append(0, np.cumsum(np.bincount(tails, minlength=n_nodes)))
    return CutGraph(ptr, tails[order ^ 1].astype(np.int32), place[order ^ 1], place.reshape(-1, 2))


def load(cuts: CutGraph, *capacities: npt.ArrayLike) -> list[npt.NDArray[np.float64]]:
    """Set capacities forward, backward, from the source and to the sink; return them as arrays."""
    m, n = len(cuts.arcs), cuts.arrays.excess.size
    given = [
        np.broadcast_to(np.asarray(capacity, dtype=np.float64), size)
        for capacity, size in zip(capacities, (m, m, n, n), strict=True)
    ]
    infinity = larger_power_of_two(sum(float(c[np.isfinite(c)].sum()) for c in given))
    forward, backward, source, sink = (np.where(np.isinf(c), infinity, c) for c in given)
    arrays, (there, back) = cuts.arrays, cuts.arcs.T
    loops = arrays.head[there] == arrays.head[back]
    arrays.residual[there] = np.where(loops, 0.0, forward)
    arrays.residual[back] = np.where(loops, 0.0, backward)
    arrays.excess[:] = source - sink
    return given


def minimum_cut(
    n_nodes: int,
    edges: npt.ArrayLike,
    forward: npt.ArrayLike,
    backward: npt.ArrayLike = 0.0,
    *,
    source: npt.ArrayLike,
    sink: npt.ArrayLike,
) -> Cut:
    """Find the minimum cut with the smallest source's side."""
    ends = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    cuts = laid_out(n_nodes, ends)
    there, back, first, last = load(cuts, forward, backward, source, sink)
    cuts.solve()
    side = cuts.arrays.level > 0
    u, v = side[ends[:, 0]], side[ends[:, 1]]
    value = there[u & ~v].sum() + back[v & ~u].sum() + first[~side].sum() + last[side].sum()
    return Cut(float(value), side)
