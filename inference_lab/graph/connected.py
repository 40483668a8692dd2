"""Connected components of undirected graphs, given as pairs of numbers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from inference_lab.graph.arrays import IntArray


def connected(n: int, pairs: npt.NDArray[np.integer]) -> IntArray:
    """Return the component of each of ``n`` vertices that the (m, 2) pairs join, shape (n,)."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    if n == 0:
        return np.zeros(0, dtype=np.int64)
    links = coo_array((np.ones(len(pairs), dtype=np.int8), np.asarray(pairs).T), shape=(n, n))
    return np.asarray(connected_components(links.tocsr(), directed=False)[1], dtype=np.int64)
