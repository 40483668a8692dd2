"""Integer costs with a bounded error, for solvers that compute with integers only.

Each term is lowered by its least cost, multiplied by a common power of two and rounded down. With
``C`` the integer energy, ``offset + C(x) / scale <= E(x)`` for every labelling. A lower bound on
``C`` thus gives one on ``E``, and the two sides differ by at most ``error``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from inference_lab.graph.arrays import TABLE, FloatArray, IntArray
from inference_lab.graph.factor_graph import FactorGraph

_EPS = float(np.finfo(np.float64).eps)
#: Entries of the dense tables of one block.
_BLOCK = 2_000_000


class EdgeTables(NamedTuple):
    """Dense costs (m, k_i, k_j) of edges whose tables have the same shape; ``inf`` forbids."""

    edges: IntArray
    tables: FloatArray


def dense_tables(graph: FactorGraph) -> Iterator[EdgeTables]:
    """Yield the costs of all edges as dense tables, in blocks of equal shape."""
    if graph.n_edges == 0:
        return
    sizes = graph.cardinalities[graph.edges]
    # Each shape is encoded as one number, because numbers sort many times as fast as pairs.
    shape = sizes @ np.array([sizes.max() + 1, 1])
    _, first, which = np.unique(shape, return_index=True, return_inverse=True)
    for s, (ki, kj) in enumerate(sizes[first].tolist()):
        members = np.flatnonzero(which == s)
        step = max(1, _BLOCK // (ki * kj))
        diagonal = np.arange(min(ki, kj))
        for begin in range(0, members.size, step):
            edges = members[begin : begin + step]
            weights, offsets = graph.edge_weights[edges], graph.edge_offsets[edges]
            kinds = graph.edge_kinds[edges].astype(np.int64)
            tables = np.empty((edges.size, ki, kj))
            is_table = kinds == TABLE
            at = np.flatnonzero(is_table)
            entries = graph.pairwise_values[offsets[at, None] + np.arange(ki * kj)]
            tables[at] = (weights[at, None] * entries).reshape(-1, ki, kj)
            at = np.flatnonzero(~is_table)
            tables[at] = weights[at, None, None]
            tables[at[:, None], diagonal, diagonal] = graph.pairwise_values[
                offsets[at, None] + kinds[at, None] * diagonal
            ]
            yield EdgeTables(edges, tables)


class Rounding(NamedTuple):
    """Conversion of costs to integers."""

    #: A power of two.
    scale: float
    #: ``offset + C(x) / scale <= E(x)`` for every labelling, despite the rounding of sums.
    offset: float
    #: ``E(x) <= offset + C(x) / scale + error`` if no cost of ``x`` was clipped.
    error: float
    #: Rises are clipped here, because a labelling with a larger one is no better than a known one.
    cut: float

    def integers(self, rises: FloatArray) -> FloatArray:
        """Return the integer costs of rises above a term's least cost, ``inf`` for ``inf``."""
        finite = np.isfinite(rises)
        clipped = np.minimum(np.where(finite, rises, 0.0), self.cut)
        out: FloatArray = np.where(finite, np.floor(clipped * self.scale), np.inf)
        return out

    def bound(self, value: float) -> float:
        """Return the lower bound on the energy from a lower bound on the integer energy."""
        if math.isinf(value):
            return value
        bound = self.offset + value / self.scale
        return bound - 4 * _EPS * (abs(self.offset) + abs(value / self.scale))


def unary_rises(graph: FactorGraph) -> FloatArray:
    """Return the unary costs minus the least one of each variable, flat."""
    return graph.unary_values - np.repeat(graph.least_unaries, graph.cardinalities)


def table_rises(tables: FloatArray) -> FloatArray:
    """Return costs minus the least one of each table; the first axis counts tables."""
    minima: FloatArray = tables.min(axis=tuple(range(1, tables.ndim)), keepdims=True)
    return tables - minima


def plan_rounding(graph: FactorGraph, best_energy: float, bits: int) -> Rounding:
    """Choose the scale so that no integer energy needs more than `bits` bits."""
    # Rises are clipped at the known energy minus the least costs of all terms, so that large
    # penalties leave the bits to small costs. A labelling with clipped costs is no better by C than
    # the known one.
    minima = [np.array([graph.constant]), graph.least_unaries]
    ranges = [_largest_rise(unary_rises(graph), graph.unary_ptr[:-1])]
    for block in dense_tables(graph):
        flat = block.tables.reshape(block.edges.size, -1)
        minima.append(flat.min(axis=1))
        rises = table_rises(flat)
        ranges.append(np.where(np.isfinite(rises), rises, 0.0).max(axis=1))
    if graph.n_factors:
        starts = graph.table_ptr[:-1]
        factor_minima = np.minimum.reduceat(graph.table_values, starts)
        minima.append(factor_minima)
        rises = graph.table_values - np.repeat(factor_minima, np.diff(graph.table_ptr))
        ranges.append(_largest_rise(rises, starts))
    lowest, widest = np.concatenate(minima), np.concatenate(ranges)
    total = math.fsum(lowest)
    rounded = _EPS * (float(np.abs(lowest).sum()) + abs(total))
    cut = max(0.0, best_energy - (total - rounded))
    widest = np.minimum(widest, cut)
    span = float(widest.sum())
    scale = 2.0 ** min(900, bits - math.frexp(span)[1]) if span > 0 else 1.0
    # ``_EPS * span`` covers the rounding of each difference: half a unit in the last place.
    offset = total - rounded - _EPS * span
    # Terms without a range are exact.
    error = np.count_nonzero(widest) / scale + 2 * rounded + 2 * _EPS * span
    error += 8 * _EPS * (abs(total) + span)
    return Rounding(scale, offset, error, cut)


def _largest_rise(rises: FloatArray, starts: IntArray) -> FloatArray:
    return np.maximum.reduceat(np.where(np.isfinite(rises), rises, 0.0), starts)
