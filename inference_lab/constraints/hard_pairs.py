"""Pairs of infinite weight: proofs of infeasibility, and finite prices for a search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from inference_lab.constraints.pair_arrays import symmetric_matrix
from inference_lab.graph.arrays import FloatArray, IntArray, connected
from inference_lab.graph.terms import DiagonalTerms

#: Maximum number of points listed in a message.
_SHOWN = 5
#: Number of vertices from which cliques are grown, by decreasing degree.
_STARTS = 50


class InfeasibleConstraintsError(ValueError):
    """No labelling satisfies the hard constraints; the message has the reason."""


def infeasible(reason: str) -> InfeasibleConstraintsError:
    """Return the error for constraints that are proved infeasible."""
    return InfeasibleConstraintsError(
        f"no labelling satisfies the constraints: {reason}. Give finite weights, or more clusters"
    )


def _hard(term: DiagonalTerms, costs: npt.ArrayLike) -> IntArray:
    """Return the edges of a term whose costs are infinite."""
    infinite = np.isposinf(np.asarray(costs, dtype=np.float64))
    edges = np.asarray(term.edges, dtype=np.int64).reshape(-1, 2)
    return edges[np.broadcast_to(infinite, len(edges))]


def n_unmet(terms: Sequence[DiagonalTerms], labels: IntArray) -> int:
    """Count the hard pairs that labels violate."""
    count = 0
    for term in terms:
        for costs, same in ((term.same, True), (term.differ, False)):
            ends = labels[_hard(term, costs)]
            count += int(((ends[:, 0] == ends[:, 1]) == same).sum())
    return count


def finite_price(unary: FloatArray, terms: Sequence[DiagonalTerms]) -> float:
    """Return a cost that exceeds any saving in other terms by relabelling a variable."""
    allowed = np.isfinite(unary)
    low = np.where(allowed, unary, np.inf).min(axis=1)
    high = np.where(allowed, unary, -np.inf).max(axis=1)
    saving = high - low
    for term in terms:
        edges = np.asarray(term.edges, dtype=np.int64).reshape(-1, 2)
        for costs in (term.same, term.differ):
            values = np.asarray(costs, dtype=np.float64)
            sizes = np.abs(np.where(np.isfinite(values), values, 0.0))
            edge_sizes = np.broadcast_to(sizes, len(edges))
            np.add.at(saving, edges, edge_sizes[:, np.newaxis])
    return 2.0 * float(saving.max()) or 1.0


def priced(terms: Sequence[DiagonalTerms], price: float) -> list[DiagonalTerms]:
    """Return terms in which hard pairs have a finite price."""

    def finite(costs: npt.ArrayLike) -> FloatArray:
        values = np.asarray(costs, dtype=np.float64)
        return np.where(np.isposinf(values), price, values)

    return [
        DiagonalTerms(term.edges, same=finite(term.same), differ=finite(term.differ))
        for term in terms
    ]


def _joined_and_apart(terms: Sequence[DiagonalTerms], n: int) -> tuple[IntArray, IntArray]:
    """Return the component of hard must-links of each point, and the hard cannot-links."""
    together = np.concatenate([_hard(t, t.differ) for t in terms])
    return connected(n, together), np.concatenate([_hard(t, t.same) for t in terms])


def contradiction_within(terms: Sequence[DiagonalTerms], rows: npt.NDArray[Any]) -> str:
    """Describe a hard cannot-link within a component of hard must-links; empty if none is."""
    component, ends = _joined_and_apart(terms, rows.size)
    within = np.flatnonzero(component[ends[:, 0]] == component[ends[:, 1]])
    if not within.size:
        return ""
    i, j = rows[ends[within[0]]].tolist()
    return f"must-links connect points {i} and {j}, which are a cannot-link"


def contradiction(unary: FloatArray, terms: Sequence[DiagonalTerms], rows: npt.NDArray[Any]) -> str:
    """Describe hard constraints that contradict each other; empty if none are found.

    The search covers cannot-links within a component of must-links, components without an
    allowed cluster or with the same only one, cliques with more vertices than clusters, and odd
    cycles for two clusters. ``rows`` are the numbers or names of the points in messages.
    """
    k = unary.shape[1]
    reason = contradiction_within(terms, rows)
    if reason:
        return reason
    component, ends = _joined_and_apart(terms, rows.size)
    blocks = component[ends]
    count = int(component.max()) + 1
    open_to = np.ones((count, k), dtype=np.bool_)
    np.logical_and.at(open_to, component, np.isfinite(unary))
    shut = np.flatnonzero(~open_to.any(axis=1))
    if shut.size:
        members = rows[component == shut[0]].tolist()
        shown = ", ".join(map(str, members[:_SHOWN])) + (", ..." if len(members) > _SHOWN else "")
        return f"no cluster is open to all of the points {shown}, which must-links connect"
    first = rows[np.unique(component, return_index=True)[1]]
    # Components with one open cluster, by which they are known here.
    only = np.where(open_to.sum(axis=1) == 1, open_to.argmax(axis=1), -1)[blocks]
    forced = np.flatnonzero((only[:, 0] == only[:, 1]) & (only[:, 0] >= 0))
    if forced.size:
        i, j = rows[ends[forced[0]]].tolist()
        h = only[forced[0], 0]
        return f"points {i} and {j} can be in cluster {h} only, and are a cannot-link"
    clique = _clique(blocks, count, k)
    if len(clique) > k:
        shown = ", ".join(str(first[c]) for c in clique)
        return f"each two of the points {shown} are a cannot-link, and there are {k} clusters"
    cycle = _odd_cycle(blocks) if k == 2 else []
    if cycle:
        shown = ", ".join(str(first[c]) for c in cycle)
        return (
            f"cannot-links form an odd cycle through the points {shown}, and there are 2 clusters"
        )
    return ""


def _clique(edges: IntArray, count: int, k: int) -> list[int]:
    """Return a clique by a greedy search, which ends at k + 1 vertices."""
    adjacent = symmetric_matrix(count, edges, np.ones(len(edges), dtype=np.int64))
    adjacent.data[:] = 1
    degree = np.asarray(adjacent.sum(axis=1)).ravel()
    best: list[int] = []
    for start in np.argsort(-degree, kind="stable")[:_STARTS].tolist():
        clique = [start]
        candidates = adjacent[[start]].toarray()[0].astype(np.bool_)
        while candidates.any() and len(clique) <= k:
            vertex = int(np.where(candidates, adjacent @ candidates.astype(np.int64), -1).argmax())
            clique.append(vertex)
            candidates &= adjacent[[vertex]].toarray()[0].astype(np.bool_)
        best = max(best, clique, key=len)
        if len(best) > k:
            break
    return best


def _odd_cycle(edges: IntArray) -> list[int]:
    """Return the vertices of an odd cycle in order, empty if two colours suffice."""
    import networkx as nx

    graph: Any = nx.Graph(edges.tolist())
    for part in nx.connected_components(graph):
        root = min(part)
        depth = nx.single_source_shortest_path_length(graph, root)
        for ends in graph.edges(part):
            if depth[ends[0]] == depth[ends[1]]:
                tree = nx.bfs_tree(graph, root)
                one, two = (nx.shortest_path(tree, root, end) for end in ends)
                # The paths to the first common ancestor have the same length.
                shared = sum(a == b for a, b in zip(one, two, strict=True))
                return [*one[shared - 1 :], *two[: shared - 1 : -1]]
    return []
