"""Infeasibility of a graph that is found in linear time, and its size."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from inference_lab.graph.arrays import DIAGONAL, POTTS, TABLE, IntArray, connected
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.terms import by_shape

#: Tables are checked in blocks of about this many entries.
_BLOCK = 4_000_000


def n_entries(graph: FactorGraph) -> int:
    """Return the number of entries of unaries, messages of edges and tables of factors."""
    if graph.n_labels is None:
        ends = int(graph.cardinalities[graph.edges].sum())
    else:
        ends = 2 * graph.n_edges * graph.n_labels
    return int(graph.unary_values.size + ends + graph.table_values.size)


def contradiction(graph: FactorGraph) -> str | None:
    """Return a reason of infeasibility that is found in linear time, else None.

    Checks single variables, single terms, and variables joined by hard must-links.
    """
    if not graph.has_infinite:
        return None
    allowed = np.isfinite(graph.unary_values)
    empty = np.flatnonzero(~np.logical_or.reduceat(allowed, graph.unary_ptr[:-1]))
    if empty.size:
        return f"every label of variable {int(empty[0])} is forbidden"
    if graph.n_factors:
        forbidden = np.logical_and.reduceat(np.isinf(graph.table_values), graph.table_ptr[:-1])
        if forbidden.any():
            scope = graph.higher_order(int(np.flatnonzero(forbidden)[0]))[0]
            return f"every entry of the factor over {scope} is forbidden"
    e = _impossible_table(graph, allowed)
    if e is not None:
        i, j = (int(v) for v in graph.edges[e])
        return f"every pair of labels of variables {i} and {j} is forbidden"
    return _equality_contradiction(graph, allowed)


def _impossible_table(graph: FactorGraph, allowed: npt.NDArray[np.bool_]) -> int | None:
    """Return a table edge that leaves no pair of allowed labels, or None."""
    infinite = np.isinf(graph.pairwise_values)
    if not infinite.any():
        return None
    table = np.flatnonzero(graph.edge_kinds == TABLE)
    sizes = graph.cardinalities[graph.edges[table]]
    # The number of infinite entries before each place of the pool; most tables have none.
    before = np.concatenate([[0], np.cumsum(infinite)])
    start = graph.edge_offsets[table]
    hard = before[start + sizes.prod(axis=1)] > before[start]
    table, sizes = table[hard], sizes[hard]
    for (ki, kj), places in by_shape(sizes):
        members = table[places]
        for part in np.array_split(members, 1 + members.size * ki * kj // _BLOCK):
            entries = graph.edge_offsets[part, None] + np.arange(ki * kj)
            possible = np.isfinite(graph.pairwise_values[entries]).reshape(-1, ki, kj)
            rows = graph.unary_ptr[graph.edges[part]]
            possible &= allowed[rows[:, 0, None] + np.arange(ki)][:, :, None]
            possible &= allowed[rows[:, 1, None] + np.arange(kj)][:, None]
            lost = np.flatnonzero(~possible.any(axis=(1, 2)))
            if lost.size:
                return int(part[lost[0]])
    return None


def _equality_contradiction(graph: FactorGraph, allowed: npt.NDArray[np.bool_]) -> str | None:
    """Contract hard must-links and find a group without an allowed label."""
    diagonal = graph.edge_kinds != TABLE
    must = np.isinf(graph.edge_weights)
    if graph.cardinalities.min() < 2:
        # Two variables of one label each are always equal.
        must |= (graph.cardinalities[graph.edges] == 1).all(axis=1)
    equal = np.flatnonzero(diagonal & must)
    if equal.size == 0:
        return None
    n = graph.n_variables
    group = connected(n, graph.edges[equal])
    # Only groups that hold a must-link matter, so the table stays small.
    inside = np.unique(group[graph.edges[equal].ravel()])
    row_of_group = np.full(int(group.max()) + 1, -1)
    row_of_group[inside] = np.arange(inside.size)
    row: IntArray = row_of_group[group]
    members = np.flatnonzero(row >= 0)
    fewest = np.full(inside.size, np.iinfo(np.int64).max)
    np.minimum.at(fewest, row[members], graph.cardinalities[members])
    possible = np.arange(int(fewest.max())) < fewest[:, None]

    def forbid(rows: IntArray, labels: IntArray) -> None:
        shared = labels < fewest[rows]
        possible[rows[shared], labels[shared]] = False

    variable = np.repeat(np.arange(n), graph.cardinalities)
    banned = np.flatnonzero(~allowed & (row[variable] >= 0))
    forbid(row[variable[banned]], banned - graph.unary_ptr[variable[banned]])

    first, second = graph.edges[:, 0], graph.edges[:, 1]
    within = diagonal & (row[first] >= 0) & (row[first] == row[second])
    potts = np.flatnonzero(within & (graph.edge_kinds == POTTS))
    potts = potts[np.isinf(graph.pairwise_values[graph.edge_offsets[potts]])]
    possible[row[first[potts]]] = False
    each = np.flatnonzero(within & (graph.edge_kinds == DIAGONAL))
    for label in range(possible.shape[1]):
        having = each[label < graph.cardinalities[graph.edges[each]].min(axis=1)]
        hard = having[np.isinf(graph.pairwise_values[graph.edge_offsets[having] + label])]
        forbid(row[first[hard]], np.full(hard.size, label))
    lost = np.flatnonzero(~possible.any(axis=1))
    if lost.size == 0:
        return None
    found = np.flatnonzero(row == lost[0])
    shown = ", ".join(str(int(v)) for v in found[:5]) + (", ..." if found.size > 5 else "")
    return f"hard constraints make variables {shown} equal and leave them no label"
