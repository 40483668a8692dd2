"""Regular grids, flat or in space: their edges, and tables of smoothness along them."""

from __future__ import annotations

import numpy as np

from inference_lab.graph.arrays import FloatArray, IntArray


def grid_edges(height: int, width: int, *, diagonals: bool = False, wrap: bool = False) -> IntArray:
    """Return the edges of a grid, each once; variable ``(r, c)`` has number ``r * width + c``."""
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


def lattice_edges(shape: tuple[int, ...], *, wrap: bool = False) -> IntArray:
    """Return the edges of a lattice of any dimension, its sites numbered in row-major order."""
    site = np.arange(int(np.prod(shape, dtype=np.int64)), dtype=np.int64).reshape(shape)
    blocks = [np.empty((0, 2), dtype=np.int64)]
    for axis, size in enumerate(shape):
        last = size if wrap and size > 2 else size - 1
        first = np.arange(max(last, 0))
        ends = (np.take(site, first, axis), np.take(site, (first + 1) % max(size, 1), axis))
        blocks.append(np.stack([end.ravel() for end in ends], axis=1))
    return np.concatenate(blocks)


def truncated_distances(k: int, power: int, truncation: float) -> FloatArray:
    """Return the table ``min(|a - b|^power, truncation)`` of k labels in a row."""
    labels = np.arange(k, dtype=np.float64)
    return np.asarray(np.minimum(np.abs(np.subtract.outer(labels, labels)) ** power, truncation))
