"""Reduction of a graph to the labels left, with the mapping back to the original."""

from __future__ import annotations

import functools
import math
import operator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from inference_lab._numba import lean_kernel
from inference_lab.contract import Run
from inference_lab.graph.arrays import (
    DIAGONAL,
    NO_FORM,
    POTTS,
    TABLE,
    FloatArray,
    GraphArrays,
    IntArray,
    connected,
    starts_of,
)
from inference_lab.graph.factor_graph import FactorGraph, unary_minimum
from inference_lab.graph.factors import Factors
from inference_lab.graph.terms import (
    DiagonalTerms,
    OwnTables,
    PairwiseTerms,
    SharedTable,
    Unaries,
)
from inference_lab.kernels.messages import edge_cost


@dataclass(frozen=True, eq=False)
class Reduction:
    """Graph reduced by the labels ruled out, with the mapping back to the original."""

    #: Graph over the variables and labels left. Its least energy equals the least energy of the
    #: original graph.
    graph: FactorGraph
    #: The label of each variable with only one left, -1 for the others.
    fixed: IntArray
    #: The original index of each variable of `graph`.
    variables: IntArray
    label_ptr: IntArray
    #: ``labels[label_ptr[v] + a]`` is the original label of label ``a`` of its variable ``v``.
    labels: IntArray
    #: Whether it is proved that no labelling has finite energy; `graph` is then meaningless.
    infeasible: bool
    #: Rounds of the tests.
    rounds: int

    def expand(self, labels: npt.ArrayLike) -> IntArray:
        """Return the labelling of the original graph for one of the reduced graph."""
        reduced = self.graph.check_labels(labels)
        out = np.empty((*reduced.shape[:-1], self.fixed.size), dtype=np.int64)
        out[...] = self.fixed
        out[..., self.variables] = self.labels[self.label_ptr[:-1] + reduced]
        return out

    def restrict(self, labels: IntArray) -> IntArray:
        """Return the labelling of the reduced graph that is nearest to an original labelling."""
        # The remaining label of least unary cost replaces a label that was ruled out.
        rows = np.repeat(np.arange(self.variables.size), np.diff(self.label_ptr))
        positions = np.flatnonzero(self.labels == np.asarray(labels)[self.variables][rows])
        out = unary_minimum(self.graph)
        out[rows[positions]] = positions - self.label_ptr[rows[positions]]
        return out

    def run_on_rest(self, run: Run) -> Run:
        """Return a run on the reduced graph whose labellings and bounds reach the given run."""
        labels = run.best_labels

        def improve(labels: IntArray, energy: float, seconds: float) -> None:
            run.offer(self.expand(labels))

        return Run(
            self.graph,
            seed=run.rng,
            initial=None if labels is None else self.restrict(labels),
            time_limit=None if run.time_limit is None else run.remaining,
            max_iterations=run.max_iterations,
            absolute_gap=run.absolute_gap,
            on_offer=lambda point: run.bound(point.lower_bound),
            on_improve=improve,
            clock=run.clock,
        )

    @property
    def settled(self) -> bool:
        """Whether nothing is left to be solved."""
        return self.infeasible or self.variables.size == 0

    @property
    def share_fixed(self) -> float:
        """Share of variables with only one label left; 1 for an empty graph."""
        return float((self.fixed >= 0).mean()) if self.fixed.size else 1.0


@lean_kernel
def fold(g: GraphArrays, fixed: IntArray, unary: FloatArray) -> float:
    """Add the edges of fixed variables to the unaries; return the cost of the fixed part."""
    total = 0.0
    for i in range(g.cardinalities.size):
        if fixed[i] >= 0:
            total += g.unary[g.unary_ptr[i] + fixed[i]]
    for e in range(g.edges.shape[0]):
        i = g.edges[e, 0]
        j = g.edges[e, 1]
        a = fixed[i]
        b = fixed[j]
        # One cost for each label of the end that is not fixed, a single cost if both are fixed.
        count = 1
        if a < 0 and b < 0:
            count = 0
        elif a < 0:
            count = g.cardinalities[i]
        elif b < 0:
            count = g.cardinalities[j]
        for label in range(count):
            cost = edge_cost(g, e, a if a >= 0 else label, b if b >= 0 else label)
            if a < 0:
                unary[g.unary_ptr[i] + label] += cost
            elif b < 0:
                unary[g.unary_ptr[j] + label] += cost
            else:
                total += cost
    return total


def unchanged(graph: FactorGraph, rounds: int) -> Reduction:
    """Return the reduction that rules out no label."""
    n = graph.n_variables
    ptr = graph.unary_ptr
    labels = np.arange(graph.unary_values.size) - np.repeat(ptr[:-1], graph.cardinalities)
    return Reduction(graph, np.full(n, -1), np.arange(n), ptr, labels, False, rounds)


#: Graph without variables.
_NOTHING = FactorGraph.from_terms([])


def settled(labels: IntArray, optimum: float) -> Reduction:
    """Return the empty reduction of a graph whose optimum is known."""
    none = np.zeros(0, dtype=np.int64)
    infeasible = math.isinf(optimum)
    graph = replace(_NOTHING, constant=0.0 if infeasible else optimum)
    return Reduction(graph, labels, none, np.zeros(1, dtype=np.int64), none, infeasible, 1)


def shrink(
    graph: FactorGraph,
    alive: npt.NDArray[np.bool_],
    n_alive: IntArray,
    infeasible: bool,
    rounds: int,
) -> Reduction:
    """Build the graph over the labels that are left."""
    n = graph.n_variables
    places = np.flatnonzero(alive)
    rows = np.repeat(np.arange(n), graph.cardinalities)[places]
    values = places - graph.unary_ptr[rows]
    fixed = np.full(n, -1, dtype=np.int64)
    single = n_alive[rows] == 1
    fixed[rows[single]] = values[single]
    variables = np.flatnonzero(fixed < 0)
    number = np.full(n, -1, dtype=np.int64)
    number[variables] = np.arange(variables.size)

    unary = graph.unary_values.copy()
    constant = graph.constant + fold(graph.arrays, fixed, unary)
    label_ptr = starts_of(n_alive[variables])
    labels = values[~single]
    costs = unary[places[~single]]
    factors = _restricted_factors(graph, alive, number)
    settled_ones = np.diff(factors.ptr) == 0
    # Added one by one in this order, because another order would round differently.
    constants = factors.chosen(settled_ones).values.tolist()
    constant = functools.reduce(operator.add, constants, constant)
    if math.isinf(constant):
        infeasible = True
        constant = 0.0
    reduced = FactorGraph.from_terms(
        Unaries(n_alive[variables], label_ptr, costs),
        _restricted_terms(graph, alive, number),
        factors.chosen(~settled_ones),
        constant,
    )
    return Reduction(reduced, fixed, variables, label_ptr, labels, infeasible, rounds)


def _restricted_factors(
    graph: FactorGraph, alive: npt.NDArray[np.bool_], number: IntArray
) -> Factors:
    """Return the higher-order factors over the variables and labels left."""
    arities, sizes = np.diff(graph.factor_ptr), np.diff(graph.table_ptr)
    mask = np.ones(graph.table_values.size, dtype=np.bool_)
    # Positions of entries in their tables, without the axes of the variables visited so far.
    place = np.arange(mask.size) - np.repeat(graph.table_ptr[:-1], sizes)
    for back in range(1, int(arities.max(initial=0)) + 1):
        reaching = arities >= back
        entries: Any = slice(None) if reaching.all() else np.flatnonzero(np.repeat(reaching, sizes))
        variables = graph.factor_scopes[graph.factor_ptr[1:][reaching] - back]
        turning = np.repeat(variables, sizes[reaching])
        place[entries], labels = np.divmod(place[entries], graph.cardinalities[turning])
        mask[entries] &= alive[graph.unary_ptr[turning] + labels]
    stays = number[graph.factor_scopes] >= 0
    return Factors(
        starts_of(stays)[graph.factor_ptr],
        number[graph.factor_scopes[stays]],
        starts_of(mask)[graph.table_ptr],
        graph.table_values[mask],
    )


def with_forms(
    graph: FactorGraph, alive: npt.NDArray[np.bool_], n_alive: IntArray
) -> tuple[npt.NDArray[np.bool_], IntArray]:
    """Restore labels of the remaining variables where a term would lose its form without them."""
    # Terms with a form connect variables to components. A component gets all labels back unless its
    # variables have the same labels left, and consecutive ones where labels have an order.
    n = graph.n_variables
    kinds, forms = graph.edge_kinds, graph.arrays.forms
    ordered = (kinds == TABLE) & (forms != NO_FORM)
    stays = (n_alive > 1)[graph.edges].all(axis=1)
    ends = graph.edges[stays & (ordered | (kinds != TABLE))]
    if ends.size == 0:
        return alive, n_alive
    part = connected(n, ends)
    mask = _labels_left(graph, alive)
    sets = np.packbits(mask, axis=1)
    broken = np.zeros(int(part.max()) + 1, dtype=bool)
    broken[part[ends[(sets[ends[:, 0]] != sets[ends[:, 1]]).any(axis=1), 0]]] = True
    span = mask.shape[1] - mask.argmax(axis=1) - mask[:, ::-1].argmax(axis=1)
    gaps = np.flatnonzero((span != n_alive) & (n_alive > 1))
    in_order = np.zeros(n, dtype=bool)
    in_order[graph.edges[stays & ordered]] = True
    broken[part[gaps[in_order[gaps]]]] = True
    whole = broken[part] & (n_alive > 1)
    owner = np.repeat(np.arange(n), graph.cardinalities)
    return alive | whole[owner], np.where(whole, graph.cardinalities, n_alive)


def _labels_left(graph: FactorGraph, alive: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return flags of the remaining labels of each variable, shape (n, largest k)."""
    mask = np.zeros((graph.n_variables, int(graph.cardinalities.max())), dtype=bool)
    rows = np.repeat(np.arange(graph.n_variables), graph.cardinalities)
    mask[rows, np.arange(rows.size) - graph.unary_ptr[rows]] = alive
    return mask


def _classes(mask: npt.NDArray[np.bool_], cardinalities: IntArray) -> tuple[IntArray, IntArray]:
    """Return an example variable of each class (cardinality, labels left) and each one's class."""
    _, example, kind_of = np.unique(cardinalities, return_index=True, return_inverse=True)
    for begin in range(0, mask.shape[1], 32):
        part = mask[:, begin : begin + 32]
        bits = part @ (np.int64(1) << np.arange(part.shape[1], dtype=np.int64))
        _, example, kind_of = np.unique(
            kind_of << 32 | bits, return_index=True, return_inverse=True
        )
    return example, kind_of


def _restricted_terms(
    graph: FactorGraph, alive: npt.NDArray[np.bool_], number: IntArray
) -> list[PairwiseTerms]:
    """Return the pairwise terms between the remaining variables, over the labels left."""
    inside = np.flatnonzero((number[graph.edges] >= 0).all(axis=1))
    if inside.size == 0:
        return []
    mask = _labels_left(graph, alive)
    example, kind_of = _classes(mask, graph.cardinalities)
    which = kind_of[graph.edges[inside]]
    code = (which[:, 0] * example.size + which[:, 1]) * 256 + graph.edge_kinds[inside]
    groups, member = np.unique(code, return_inverse=True)
    order = np.argsort(member, kind="stable")
    ends = np.cumsum(np.bincount(member, minlength=groups.size))
    terms: list[PairwiseTerms] = []
    for group, edges in zip(groups.tolist(), np.split(inside[order], ends[:-1]), strict=True):
        pair, kind = divmod(group, 256)
        ci, cj = divmod(pair, example.size)
        a, b = np.flatnonzero(mask[example[ci]]), np.flatnonzero(mask[example[cj]])
        terms += _restricted(graph, edges, number[graph.edges[edges]], kind, a, b)
    return terms


def _restricted(
    graph: FactorGraph, edges: IntArray, ends: IntArray, kind: int, a: IntArray, b: IntArray
) -> list[PairwiseTerms]:
    """Return terms of one kind whose ends have labels `a` and `b` left."""
    weights, offsets = graph.edge_weights[edges], graph.edge_offsets[edges]
    values = graph.pairwise_values
    if kind != TABLE:
        both = min(a.size, b.size)
        if (a[:both] == b[:both]).all():
            # Exactly the equal labels still have equal indices, so the terms stay diagonal.
            if kind == POTTS:
                return [DiagonalTerms(ends, values[offsets], weights)]
            same = values[offsets[:, None] + a[:both]]
            return [DiagonalTerms(ends, same, weights)]
        tables = np.repeat(weights, a.size * b.size).reshape(-1, a.size, b.size)
        _, first, second = np.intersect1d(a, b, assume_unique=True, return_indices=True)
        step = a[first] if kind == DIAGONAL else np.zeros_like(first)
        tables[:, first, second] = values[offsets[:, None] + step]
        return [OwnTables(ends, tables)]
    stride = int(graph.cardinalities[graph.edges[edges[0], 1]])
    pick = a[:, None] * stride + b
    distinct, which = np.unique(offsets, return_inverse=True)
    if 2 * distinct.size > edges.size:
        return [OwnTables(ends, values[offsets[:, None, None] + pick] * weights[:, None, None])]
    return [
        SharedTable(ends[which == t], values[offset + pick], weights[which == t])
        for t, offset in enumerate(distinct.tolist())
    ]
