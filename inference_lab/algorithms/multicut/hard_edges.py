"""Edges of infinite weight: vertices that must share a cluster, and vertices that must not."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from inference_lab.algorithms.multicut.signed_graph import SignedGraph, signed_graph
from inference_lab.graph.arrays import FloatArray, IntArray, connected


class Contraction(NamedTuple):
    """The signed graph of units, which are vertices that edges of weight ``+inf`` join.

    * ``graph``: its edges of weight ``-inf`` join units that must be apart;
    * ``unit`` (n,) int64: the unit of each vertex.
    """

    graph: SignedGraph
    unit: IntArray


def contracted(n: int, edges: IntArray, weights: FloatArray) -> Contraction:
    """Contract the edges of weight ``+inf``.

    A partition of the units has the value of the same partition of the vertices, less the finite
    weights within units. No edge of weight ``-inf`` may lie within a unit.
    """
    joins = np.isposinf(weights)
    unit = connected(n, edges[joins])
    return Contraction(
        signed_graph(int(unit.max(initial=-1)) + 1, unit[edges[~joins]], weights[~joins]), unit
    )


def priced(g: SignedGraph) -> SignedGraph:
    """Return the graph in which an edge of weight ``-inf`` costs more than all others together.

    Searches add and subtract weights, which must be finite.
    """
    hard = np.isneginf(g.weights)
    if not hard.any():
        return g
    price = float(np.abs(g.weights[~hard]).sum()) or 1.0
    return g._replace(weights=np.where(hard, -price, g.weights))
