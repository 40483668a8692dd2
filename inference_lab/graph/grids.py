"""Regular grids, flat or in space: their edges, and tables of smoothness along them."""

from __future__ import annotations

import numpy as np

from inference_lab.graph.arrays import FloatArray, IntArray, starts_of


def grid_edges(height: int, width: int, *, diagonals: bool = False, wrap: bool = False) -> IntArray:
    """Return the edges of a grid, each once; variable ``(r, c)`` has number ``r * width + c``."""
    site = np.arange(height * width, dtype=np.int64).reshape(height, width)
    steps = [(0, 1), (1, 0)] + ([(1, 1), (1, -1)] if diagonals else [])
    ends = []
    for down, right in steps:
        if wrap:
            ends.append((site, np.roll(site, (-down, -right), axis=(0, 1))))
        else:
            # Views of the sites with a neighbour in this direction, and of the neighbours.
            offset = max(-right, 0)
            first = site[: height - down, offset : width - max(right, 0)]
            second = site[down:, offset + right : width - offset]
            ends.append((first, second))
    starts = starts_of([first.size for first, _ in ends])
    edges = np.empty((starts[-1], 2), dtype=np.int64)
    for start, pair in zip(starts, ends, strict=False):
        for column, end in enumerate(pair):
            edges[start : start + end.size, column].reshape(end.shape)[...] = end
    if wrap:
        edges = edges[edges[:, 0] != edges[:, 1]]
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
