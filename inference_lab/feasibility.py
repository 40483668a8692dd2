"""Quick proofs that no labelling has finite energy."""

from __future__ import annotations

import numpy as np

from inference_lab.factor_graph import TABLE, FactorGraph


def contradiction(graph: FactorGraph) -> str | None:
    """Return why the graph is infeasible where that is easy to see, else None.

    Looks at single variables, single terms, and hard must-links: variables that must be equal
    share the labels that all of them allow, and a hard cannot-link among them contradicts.
    None does not mean that a finite labelling exists. Complexity: linear in the graph.
    """
    if not graph.has_infinite:
        return None
    allowed = np.isfinite(graph.unary_values)
    empty = np.flatnonzero(~np.logical_or.reduceat(allowed, graph.unary_ptr[:-1]))
    if empty.size:
        return f"every label of variable {int(empty[0])} is forbidden"
    for f in range(graph.n_factors):
        scope, table = graph.higher_order(f)
        if np.isinf(table).all():
            return f"every entry of the factor over {scope} is forbidden"
    for e in np.flatnonzero(graph.edge_kinds == TABLE):
        i, j = (int(v) for v in graph.edges[e])
        table = graph.edge_table(int(e))
        if np.isinf(table + graph.unary_of(i)[:, None] + graph.unary_of(j)[None]).all():
            return f"every pair of labels of variables {i} and {j} is forbidden"
    return _equality_contradiction(graph)


def _equality_contradiction(graph: FactorGraph) -> str | None:
    """Contract hard must-links and look for a group that is left without a label."""
    diagonal = graph.edge_kinds != TABLE
    equal = np.flatnonzero(diagonal & np.isinf(graph.edge_weights))
    if equal.size == 0:
        return None
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n = graph.n_variables
    links = coo_array(
        (np.ones(equal.size, dtype=np.int8), (graph.edges[equal, 0], graph.edges[equal, 1])),
        shape=(n, n),
    )
    n_groups, group = connected_components(links.tocsr(), directed=False)
    width = int(graph.cardinalities.max())
    # Only groups that hold a must-link matter, so the table stays small.
    inside = np.unique(group[graph.edges[equal].ravel()])
    row_of = np.full(n_groups, -1)
    row_of[inside] = np.arange(inside.size)
    possible = np.ones((inside.size, width), dtype=bool)
    members = np.flatnonzero(row_of[group] >= 0)
    for i in members:
        k = int(graph.cardinalities[i])
        possible[row_of[group[i]], :k] &= np.isfinite(graph.unary_of(int(i)))
        possible[row_of[group[i]], k:] = False
    within = np.flatnonzero(
        diagonal
        & (group[graph.edges[:, 0]] == group[graph.edges[:, 1]])
        & (row_of[group[graph.edges[:, 0]]] >= 0)
    )
    for e in within:
        k = int(graph.cardinalities[graph.edges[e]].min())
        offset, kind = int(graph.edge_offsets[e]), int(graph.edge_kinds[e])
        same = graph.pairwise_values[offset + np.arange(k) * kind]
        possible[row_of[group[graph.edges[e, 0]]], :k] &= np.isfinite(same)
    lost = np.flatnonzero(~possible.any(axis=1))
    if lost.size == 0:
        return None
    first = np.flatnonzero(group == inside[lost[0]])
    shown = ", ".join(str(int(v)) for v in first[:5]) + (", ..." if first.size > 5 else "")
    return f"hard constraints make variables {shown} equal and leave them no label"
