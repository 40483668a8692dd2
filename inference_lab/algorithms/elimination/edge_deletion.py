"""Copies of variables that make an elimination fit, and costs that compensate (ED-BP).

A copy takes over some terms of its variable, and the equality of the two is not enforced. Costs at
both make their marginals agree; the fixed points are those of a generalised belief propagation
(Choi and Darwiche 2006, see `JunctionTree`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from inference_lab.algorithms.elimination.arc_consistency import Domains, allowed_labels
from inference_lab.algorithms.elimination.interactions import coupling_terms, interactions
from inference_lab.algorithms.elimination.order import Elimination
from inference_lab.algorithms.elimination.tree_passes import EliminationPlan, plan_along
from inference_lab.contract import Marginals
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.kernels.messages import unflatten


class SplitGraph(NamedTuple):
    """Graph over the remaining labels in which some variables have copies."""

    #: Its first variables are those of the original graph.
    graph: FactorGraph
    #: Elimination order of the undecided variables and the copies.
    order: IntArray
    #: Each variable, or earlier copy, with its copy.
    pairs: list[tuple[int, int]]
    #: Remaining labels of the original graph.
    domains: Domains

    def plan(self, order: Elimination) -> EliminationPlan:
        """Return the plan of the elimination with copies."""
        domains = allowed_labels(self.graph)
        couples = coupling_terms(self.graph, domains)
        network = interactions(self.graph, domains, couples)
        turn = self.order[np.isin(self.order, network.variables)]
        return plan_along(self.graph, domains, couples, network, replace(order, order=turn))

    def marginals(self, graph: FactorGraph, flat: FloatArray) -> Marginals:
        """Return the marginals of the original graph from flat ones of this graph."""
        owner = np.repeat(np.arange(graph.n_variables), self.domains.sizes)
        values = np.zeros(graph.unary_values.size)
        values[graph.unary_ptr[owner] + self.domains.labels] = flat[: owner.size]
        return unflatten(graph, values)

    def labels(self, x: IntArray) -> IntArray:
        """Return a labelling of the original graph from one of this graph."""
        ptr = self.domains.ptr[:-1]
        return np.asarray(self.domains.labels[ptr + x[: ptr.size]])


class _MiniBuckets(NamedTuple):
    scopes: list[tuple[int, ...]]
    order: list[int]
    pairs: list[tuple[int, int]]
    entries: float


def _mini_buckets(
    scopes: Sequence[tuple[int, ...]], log2_sizes: list[float], order: Sequence[int], limit: float
) -> _MiniBuckets:
    """Eliminate symbolically, with a copy for each part of a table of over ``2^limit`` entries."""
    turn = {v: t for t, v in enumerate(order)}
    buckets: list[list[tuple[frozenset[int], list[int]]]] = [[] for _ in order]

    def size(scope: frozenset[int]) -> float:
        return math.fsum(log2_sizes[v] for v in scope)

    def put(scope: frozenset[int], terms: list[int]) -> None:
        if scope:
            buckets[min(turn[v] for v in scope)].append((scope, terms))

    for f, members in enumerate(scopes):
        put(frozenset(members), [f])
    renamed = [list(scope) for scope in scopes]
    result = _MiniBuckets([], [], [], 0.0)
    entries = 0.0
    last = len(log2_sizes)
    for v, bucket in zip(order, buckets, strict=True):
        parts: list[tuple[frozenset[int], list[int]]] = []
        # Large scopes first; each joins the part that it enlarges least.
        for scope, terms in sorted(bucket, key=lambda item: -size(item[0])):
            joins = [(size(scope - part), p) for p, (part, _) in enumerate(parts)]
            joins = [(x, p) for x, p in joins if x == 0.0 or size(parts[p][0]) + x <= limit]
            if joins:
                p = min(joins)[1]
                parts[p] = parts[p][0] | scope, parts[p][1] + terms
            else:
                parts.append((scope, terms))
        result.order.append(v)
        for p, (part, terms) in enumerate(parts):
            if p:
                # The terms that led to this part have the copy instead.
                for f in terms:
                    renamed[f] = [last if u == v else u for u in renamed[f]]
                result.pairs.append((v, last))
                result.order.append(last)
                last += 1
            entries += 2.0 ** size(part)
            put(part - {v}, terms)
    return result._replace(scopes=[tuple(scope) for scope in renamed], entries=entries)


def split_variables(
    graph: FactorGraph, domains: Domains, order: IntArray, most_entries: float
) -> SplitGraph | None:
    """Copy variables until all tables of an order have `most_entries`; None if that is too few."""
    label_sets = np.split(domains.labels, domains.ptr[1:-1])
    factors = [(s, table[np.ix_(*(label_sets[v] for v in s))]) for s, table in graph.factors()]
    scopes = [tuple(v for v in scope if domains.sizes[v] > 1) for scope, _ in factors]
    log2_sizes = np.log2(domains.sizes).tolist()
    low, high = 1, max(1, int(math.log2(most_entries)))
    while low < high:
        limit = (low + high + 1) // 2
        fits = _mini_buckets(scopes, log2_sizes, order.tolist(), limit).entries <= most_entries
        low, high = (limit, high) if fits else (low, limit - 1)
    result = _mini_buckets(scopes, log2_sizes, order.tolist(), low)
    if result.entries > most_entries:
        return None
    sizes = [*domains.sizes]
    for v, _ in result.pairs:
        sizes.append(sizes[v])
    terms = zip(result.scopes, (table.squeeze() for _, table in factors), strict=True)
    split = FactorGraph.from_factors(sizes, terms, graph.constant)
    return SplitGraph(split, np.array(result.order, dtype=np.int64), result.pairs, domains)


class Compensation:
    """Costs of pairs of copies, in units of the temperature."""

    def __init__(self, split: SplitGraph) -> None:
        self._pairs = np.array(split.pairs, dtype=np.int64).reshape(-1, 2)
        self._graph = split.graph
        ptr = split.graph.unary_ptr
        #: Positions in flat arrays of the labels of each pair.
        self._at = [np.stack([np.arange(ptr[v], ptr[v + 1]) for v in pair]) for pair in split.pairs]
        self._costs = [np.zeros(at.shape) for at in self._at]

    def unary(self, temperature: float) -> FloatArray:
        """Return the unary costs of the split graph with the compensation added."""
        flat = self._graph.unary_values.copy()
        for at, costs in zip(self._at, self._costs, strict=True):
            flat[at] += temperature * costs  # a pair has no label twice
        return flat

    def correction(self) -> float:
        """Return the logarithm by which the split log-partition exceeds the estimate."""
        return math.fsum(float(np.log(np.exp(-c.sum(axis=0)).sum())) for c in self._costs)

    def update(self, marginals: FloatArray, damping: float) -> float:
        """Set new costs from flat marginals; return the largest difference within a pair."""
        worst = 0.0
        for p, (at, costs) in enumerate(zip(self._at, self._costs, strict=True)):
            pair = marginals[at]
            worst = max(worst, float(np.abs(pair[0] - pair[1]).max()))
            # Each gets the marginal of the other without the compensation of the other.
            with np.errstate(divide="ignore", invalid="ignore"):
                new = (-np.log(pair) - costs)[::-1]
                new[np.isnan(new)] = np.inf  # a label that was impossible before
                new -= new.min(axis=1, keepdims=True)
                self._costs[p] = -np.logaddexp(math.log1p(-damping) - new, np.log(damping) - costs)
        return worst
