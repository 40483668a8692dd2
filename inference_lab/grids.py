"""Edges of regular grids."""

from __future__ import annotations

import numpy as np

from inference_lab.factor_graph import IntArray


def grid_edges(height: int, width: int, *, diagonals: bool = False, wrap: bool = False) -> IntArray:
    """Return the edges of a grid whose variable ``(r, c)`` has number ``r * width + c``.

    Parameters
    ----------
    height, width : int
    diagonals : bool
        Join diagonal neighbours, too (8 neighbours instead of 4).
    wrap : bool
        Join the last row to the first and the last column to the first (a torus), where that adds
        an edge that is not there yet.

    Returns
    -------
    (m, 2) int64 array, without repeats

    Examples
    --------
    >>> grid_edges(2, 2).tolist()
    [[0, 1], [2, 3], [0, 2], [1, 3]]
    """
    rows, columns = np.mgrid[:height, :width]
    steps = [(0, 1), (1, 0)] + ([(1, 1), (1, -1)] if diagonals else [])
    blocks = []
    for down, right in steps:
        r, c = rows + down, columns + right
        if wrap:
            inside = np.ones(r.shape, dtype=bool)
            r, c = r % height, c % width
        else:
            inside = (r < height) & (c >= 0) & (c < width)
        pair = np.stack([rows[inside] * width + columns[inside], r[inside] * width + c[inside]], 1)
        blocks.append(pair)
    edges: IntArray = np.concatenate(blocks).astype(np.int64)
    edges = edges[edges[:, 0] != edges[:, 1]]
    if wrap:
        # On a torus of width or height 2 both ways round join the same pair.
        key = edges.min(axis=1) * (height * width) + edges.max(axis=1)
        _, first = np.unique(key, return_index=True)
        edges = edges[np.sort(first)]
    return edges
