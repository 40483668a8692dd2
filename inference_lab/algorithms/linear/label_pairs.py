"""Pairs of labels at the ends of edges, with their joint columns in the linear program."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from inference_lab.algorithms.linear.model import (
    diagonal_columns,
    diagonal_entries,
    diagonal_groups,
    factor_groups,
    table_groups,
)
from inference_lab.graph.arrays import IntArray
from inference_lab.graph.factor_graph import FactorGraph


class LabelPairs(NamedTuple):
    """Pairs of labels at the ends of edges, with their joint columns in the model."""

    #: `first`, `second`: columns ``u_ia`` and ``u_jb``.
    first: IntArray
    second: IntArray
    #: The column of ``P(x_i = a, x_j = b)``, `NEVER` if the probability is 0, or `ALWAYS` if
    #: ``u_ia = u_jb`` by a hard must-link.
    both: IntArray
    #: The edge, for diagonal kinds, whose pairs are contiguous; -1 for table edges.
    edge: IntArray


#: Special values of `LabelPairs.both` instead of columns.
NEVER = -1
ALWAYS = -2


def label_pairs(graph: FactorGraph) -> LabelPairs:
    """Return the label pairs of the model from `build_linear_model`."""
    ptr = graph.unary_ptr
    start = int(ptr[-1])
    parts: list[tuple[IntArray, IntArray, IntArray, IntArray]] = []
    for (ki, kj), edges in table_groups(graph):
        ends = ptr[graph.edges[edges]]
        block = (edges.size, ki, kj)
        first = np.broadcast_to(ends[:, 0, None, None] + np.arange(ki)[:, None], block)
        second = np.broadcast_to(ends[:, 1, None, None] + np.arange(kj), block)
        count = edges.size * ki * kj
        both = start + np.arange(count)
        parts.append((first.ravel(), second.ravel(), both, np.full(count, -1)))
        start += count
    for shape, members in factor_groups(graph):
        start += members.size * math.prod(shape)
    for k, edges in diagonal_groups(graph):
        same = diagonal_entries(graph, edges, k)
        differ = graph.edge_weights[edges]
        must = np.isinf(differ)
        both = np.full(same.shape, ALWAYS, dtype=np.int64)
        gain = same[~must] - differ[~must, None]
        columns, count = diagonal_columns(gain, start)
        # Pairs without a column are forbidden, or cost nothing and stay open.
        both[~must] = np.where(np.isfinite(gain), columns, NEVER)
        listed = np.ones(same.shape, dtype=bool)
        listed[~must] = (columns >= 0) | ~np.isfinite(gain)
        ends = ptr[graph.edges[edges]]
        owner = np.broadcast_to(edges[:, None], same.shape)
        nodes = (ends[:, :1] + np.arange(k), ends[:, 1:] + np.arange(k))
        parts.append((nodes[0][listed], nodes[1][listed], both[listed], owner[listed]))
        start += count
    empty = np.empty(0, dtype=np.int64)
    parts.append((empty, empty, empty, empty))
    return LabelPairs(*(np.concatenate(column) for column in zip(*parts, strict=True)))
