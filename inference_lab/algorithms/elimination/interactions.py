"""Interaction graph of the variables that arc consistency leaves undecided."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from inference_lab._numba import kernel
from inference_lab.algorithms.elimination.arc_consistency import BoolArray, Domains
from inference_lab.graph.arrays import FloatArray, GraphArrays, IntArray
from inference_lab.graph.factor_graph import FactorGraph, first_least
from inference_lab.kernels.factor_messages import (
    entry_of,
    first_allowed_labels,
    next_allowed_labels,
)
from inference_lab.kernels.messages import edge_cost


@kernel
def _coupling(g: GraphArrays, domains: Domains) -> BoolArray:
    """Flag the edges, then the factors, that are not constant over the labels left."""
    ptr, labels, allowed = domains.ptr, domains.labels, domains.allowed
    m = g.kinds.size
    couples = np.zeros(m + g.factor_ptr.size - 1, dtype=np.bool_)
    for e in range(m):
        i, j = g.edges[e, 0], g.edges[e, 1]
        if ptr[i] == ptr[i + 1] or ptr[j] == ptr[j + 1]:
            continue
        first = edge_cost(g, e, labels[ptr[i]], labels[ptr[j]])
        for a in range(ptr[i], ptr[i + 1]):
            for b in range(ptr[j], ptr[j + 1]):
                if edge_cost(g, e, labels[a], labels[b]) != first:
                    couples[e] = True
                    break
            if couples[e]:
                break
    arity = 1
    for f in range(g.factor_ptr.size - 1):
        arity = max(arity, g.factor_ptr[f + 1] - g.factor_ptr[f])
    digits = np.empty(arity, dtype=np.int64)
    for f in range(g.factor_ptr.size - 1):
        lo, hi = g.factor_ptr[f], g.factor_ptr[f + 1]
        more = True
        for s in range(lo, hi):
            more &= ptr[g.scopes[s]] < ptr[g.scopes[s] + 1]
        if more:
            first_allowed_labels(g, lo, hi, allowed, digits)
            first = g.tables[entry_of(g, f, digits)]
            while more and not couples[m + f]:
                more = next_allowed_labels(g, lo, hi, allowed, -1, digits)
                couples[m + f] = g.tables[entry_of(g, f, digits)] != first
    return couples


def coupling_terms(graph: FactorGraph, domains: Domains) -> BoolArray:
    """Flag the edges, then the higher-order factors, that are not constant over the labels left."""
    return np.asarray(_coupling(graph.arrays, domains))


def first_allowed(graph: FactorGraph, domains: Domains) -> IntArray:
    """Return the remaining label of least unary cost of each variable."""
    owner = np.repeat(np.arange(graph.n_variables), domains.sizes)
    costs = graph.unary_values[graph.unary_ptr[owner] + domains.labels]
    return np.asarray(domains.labels[domains.ptr[:-1] + first_least(costs, domains.ptr)])


class Interactions(NamedTuple):
    """Graph of the variables with two or more labels, linked where a term couples them."""

    #: (v,) int64: their indices in the factor graph, ascending.
    variables: IntArray
    #: ``ptr`` (v+1,) int64 and ``neighbours`` int64, in terms of positions in ``variables``.
    ptr: IntArray
    neighbours: IntArray
    #: (v,): binary logarithm of the number of labels left.
    log2_sizes: FloatArray


def interactions(graph: FactorGraph, domains: Domains, couples: BoolArray) -> Interactions:
    """Return the interaction graph of the undecided variables."""
    from scipy.sparse import coo_array, csr_array

    sizes = domains.sizes
    variables = np.flatnonzero(sizes > 1)
    position = np.full(graph.n_variables, -1, dtype=np.int64)
    position[variables] = np.arange(variables.size)
    m = graph.n_edges
    ends = position[graph.edges[couples[:m]]]
    ends = ends[(ends >= 0).all(axis=1)]
    shape = (variables.size, variables.size)
    both: Any = (np.concatenate([ends[:, 0], ends[:, 1]]), np.concatenate([ends[:, 1], ends[:, 0]]))
    adjacency: Any = coo_array((np.ones(both[0].size, dtype=np.bool_), both), shape=shape).tocsr()
    if couples[m:].any():
        of_slot = np.repeat(np.arange(graph.n_factors), np.diff(graph.factor_ptr))
        member = position[graph.factor_scopes]
        free = couples[m:][of_slot] & (member >= 0)
        incidence: Any = csr_array(
            (np.ones(int(free.sum()), dtype=np.bool_), (of_slot[free], member[free])),
            shape=(graph.n_factors, variables.size),
        )
        joint = (incidence.T @ incidence).tocoo()
        apart = joint.row != joint.col
        at = (joint.row[apart], joint.col[apart])
        adjacency = adjacency + csr_array((np.ones(at[0].size, dtype=np.bool_), at), shape=shape)
    adjacency.sum_duplicates()
    ptr, neighbours = adjacency.indptr.astype(np.int64), adjacency.indices.astype(np.int64)
    return Interactions(variables, ptr, neighbours, np.log2(sizes[variables]))
