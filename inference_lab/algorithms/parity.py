"""Pairs of binary variables that must be equal or must differ."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from inference_lab.graph.arrays import IntArray, connected


def unite(
    n: int, ends: npt.NDArray[np.integer], differ: npt.NDArray[np.bool_]
) -> tuple[IntArray, npt.NDArray[np.bool_]] | None:
    """Return a root for each of `n` variables, and whether it differs from it; None if infeasible.

    ``ends`` (m, 2) are the pairs, ``differ`` (m,) marks pairs that must differ. The root is the
    first variable that determines the others; None means that the pairs contradict each other.
    """
    # A variable and its opposite are two nodes; nodes that must be equal are linked.
    i, j = ends[:, 0].astype(np.int64), ends[:, 1].astype(np.int64)
    crossed = n * differ
    arcs = np.concatenate([[i, j + crossed], [i + n, j + n - crossed]], axis=1).T
    group = connected(2 * n, arcs)
    own, opposite = group[:n], group[n:]
    if (own == opposite).any():
        return None
    _, first, which = np.unique(np.minimum(own, opposite), return_index=True, return_inverse=True)
    root = first[which].astype(np.int64)
    return root, own != own[root]
