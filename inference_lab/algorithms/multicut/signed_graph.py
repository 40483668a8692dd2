"""Signed graphs: the weight of an edge is gained when both ends share a cluster."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array

from inference_lab.graph.arrays import POTTS, FloatArray, IntArray
from inference_lab.graph.factor_graph import FactorGraph


class SignedGraph(NamedTuple):
    """Adjacency lists of a graph; each edge is in two of them.

    * ``ptr`` (n + 1,) int64: the neighbours of vertex v are at ``ptr[v]:ptr[v + 1]``, sorted;
    * ``neighbours`` (2 m,) int64, ``weights`` (2 m,) float64, none of them 0; ``-inf`` keeps both
      ends apart, see `inference_lab.algorithms.multicut.hard_edges`.
    """

    ptr: IntArray
    neighbours: IntArray
    weights: FloatArray

    @property
    def n(self) -> int:
        """Number of vertices."""
        return int(self.ptr.size - 1)

    @property
    def scale(self) -> float:
        """Root mean square, over vertices, of the norm of the positive weights at a vertex."""
        return float(np.sqrt(np.square(self.weights[self.weights > 0.0]).sum() / max(1, self.n)))

    def value(self, labels: IntArray) -> float:
        """Return the weight of the edges within clusters."""
        same = np.repeat(labels, np.diff(self.ptr)) == labels[self.neighbours]
        return float(self.weights[same].sum()) / 2.0

    def edges(self) -> tuple[IntArray, FloatArray]:
        """Return each edge once: (m, 2) ends with the smaller first, and its weight."""
        first = np.repeat(np.arange(self.n), np.diff(self.ptr))
        once = first < self.neighbours
        return np.stack([first[once], self.neighbours[once]], axis=1), self.weights[once]


def signed_graph(n: int, edges: npt.ArrayLike, weights: npt.ArrayLike) -> SignedGraph:
    """Return the graph of n vertices; weights of parallel edges are added, loops are dropped."""
    ends = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    proper = ends[:, 0] != ends[:, 1]
    i, j = ends[proper].T
    w = np.asarray(weights, dtype=np.float64)[proper]
    both = (np.concatenate([i, j]), np.concatenate([j, i]))
    matrix = coo_array((np.concatenate([w, w]), both), shape=(n, n)).tocsr()
    matrix.eliminate_zeros()
    matrix.sort_indices()
    return SignedGraph(
        matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data.copy()
    )


def why_no_partition(graph: FactorGraph) -> str | None:
    """Return the reason why labels of a graph are more than names of clusters, or None."""
    if graph.n_factors:
        return "a partition is rated by pairs of variables, and this graph has larger factors"
    if graph.n_label_costs:
        return "a partition has no label costs, and this graph has some"
    counts = graph.cardinalities
    if counts.size and counts.min() < counts.max():
        return "labels of a partition are names of clusters, but the numbers of labels differ"
    unary = graph.unary_values.reshape(graph.n_variables, int(counts.max(initial=1)))
    prefers = (unary != unary[:, :1]).any(axis=1)
    if prefers.any():
        i = int(np.argmax(prefers))
        return f"labels of a partition are names of clusters, but variable {i} prefers some"
    if (graph.edge_kinds != POTTS).any():
        e = int(np.argmax(graph.edge_kinds != POTTS))
        return f"edge {e} = {tuple(map(int, graph.edges[e]))} is not a Potts term"
    same = graph.pairwise_values[graph.edge_offsets]
    if not (np.isfinite(same).all() and np.isfinite(graph.edge_weights).all()):
        return "weights of a partition must be finite, and this graph has hard terms"
    return None


def edge_gains(graph: FactorGraph) -> FloatArray:
    """Return the gain of equal labels over unequal ones on each edge of a graph of Potts terms."""
    gains: FloatArray = graph.edge_weights - graph.pairwise_values[graph.edge_offsets]
    return gains


def as_signed_graph(graph: FactorGraph) -> tuple[SignedGraph, float]:
    """Return the graph of gains, and the constant of ``E(x) = constant - value(x)``."""
    unary = graph.unary_values[graph.unary_ptr[:-1]]
    constant = float(graph.constant + unary.sum() + graph.edge_weights.sum())
    return signed_graph(graph.n_variables, graph.edges, edge_gains(graph)), constant
