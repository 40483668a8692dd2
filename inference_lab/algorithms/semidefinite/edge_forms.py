"""The forms of the terms of pairwise energies between the remaining labels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from inference_lab._numba import kernel, lean_kernel
from inference_lab.algorithms.linear.integer_costs import dense_tables
from inference_lab.graph.arrays import POTTS, TABLE, Flags, FloatArray, GraphArrays, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.kernels.messages import edge_cost, min_sum_message

Mask: TypeAlias = npt.NDArray[np.bool_]

#: Kinds of an edge between the remaining labels; bits that may be combined.
ADDITIVE = 1  # f(a) + g(b): no coupling at all
SOFT = 2  # f(a) + g(b) + c [a = b], finite
EQUAL = 4  # finite only if the labels are equal
APART = 8  # +inf if the labels are equal, otherwise a common finite cost
MATCHED = 16  # finite for exactly one partner of each label

#: A table counts as Potts-like if it differs from such a table by at most this share of its largest
#: cost. The difference is subtracted from the bound.
_RELATIVE_RESIDUE = 1e-12


@kernel
def eliminate(
    g: GraphArrays, unary: FloatArray, single: IntArray, leaves: IntArray
) -> tuple[float, int]:
    """Eliminate the undecided variables that have one neighbour or none."""
    # ``unary``, infinite at removed labels, and ``single``, -2 for eliminated variables, are
    # changed in place. Returns the constant and the number of leaves.
    n = g.cardinalities.size
    message = np.empty(g.cardinalities.max())
    constant = 0.0
    degree = np.zeros(n, dtype=np.int64)
    for e in range(g.edges.shape[0]):
        i = g.edges[e, 0]
        j = g.edges[e, 1]
        if single[i] < 0 and single[j] < 0:
            degree[i] += 1
            degree[j] += 1
    count = 0
    for i in range(n):
        if single[i] == -1 and degree[i] <= 1:
            leaves[count, 0] = i
            count += 1
    done = 0
    while done < count:
        i = leaves[done, 0]
        leaves[done, 1] = -1
        # Later neighbours must no longer see this variable.
        single[i] = -2
        if degree[i] == 0:
            least = np.inf
            for a in range(g.cardinalities[i]):
                least = min(least, unary[g.unary_ptr[i] + a])
            constant += least
        else:
            for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
                j = g.adj_var[p]
                if single[j] != -1:
                    continue
                h = g.adj_half[p]
                leaves[done, 1] = h >> 1
                min_sum_message(g, h ^ 1, unary[g.unary_ptr[i] :], message)
                for b in range(g.cardinalities[j]):
                    unary[g.unary_ptr[j] + b] += message[b]
                degree[j] -= 1
                if degree[j] == 1:
                    leaves[count, 0] = j
                    count += 1
                break
        done += 1
    return constant, count


@lean_kernel
def follow(g: GraphArrays, unary: FloatArray, leaves: IntArray, x: IntArray) -> None:
    """Give eliminated variables their best labels, last first, and repair labels of -1."""
    for i in range(x.size):
        if x[i] == -1:
            best = 0
            for a in range(g.cardinalities[i]):
                if unary[g.unary_ptr[i] + a] < unary[g.unary_ptr[i] + best]:
                    best = a
            x[i] = best
    for t in range(leaves.shape[0] - 1, -1, -1):
        i = leaves[t, 0]
        e = leaves[t, 1]
        least = np.inf
        best = 0
        for a in range(g.cardinalities[i]):
            cost = unary[g.unary_ptr[i] + a]
            if np.isinf(cost):
                continue
            if e >= 0:
                if g.edges[e, 0] == i:
                    cost += edge_cost(g, e, a, x[g.edges[e, 1]])
                else:
                    cost += edge_cost(g, e, x[g.edges[e, 0]], a)
            # The first remaining label is used if all cost +inf.
            if cost < least or np.isinf(unary[g.unary_ptr[i] + best]):
                least = cost
                best = a
        x[i] = best


class TermForms(NamedTuple):
    """The kinds of the edges, each (m,); ``kinds`` is 0 if no form fits."""

    # ``coupling`` is the ``c`` that fits best, or the common cost of ``APART``; ``residue`` is the
    # largest deviation from the form with it (with 0, if that is as good).

    kinds: Flags
    coupling: FloatArray
    residue: FloatArray


def _blocks(
    graph: FactorGraph, alive: Mask, chosen: Mask
) -> Iterator[tuple[IntArray, FloatArray, Mask]]:
    """Yield chosen edges of one shape, their costs, 0 at removed labels, and what remains."""
    for edges, tables in dense_tables(graph) if chosen.any() else ():
        at = np.flatnonzero(chosen[edges])
        if at.size:
            i, j = graph.unary_ptr[graph.edges[edges[at]]].T
            _, ki, kj = tables.shape
            rows, columns = alive[i[:, None] + np.arange(ki)], alive[j[:, None] + np.arange(kj)]
            both = rows[:, :, None] & columns[:, None, :]
            yield edges[at], np.where(both, tables[at], 0.0), both


def _means(costs: FloatArray, both: Mask) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the means of the rows and of the columns of tables, and of all entries."""
    ni, nj = both.any(axis=2).sum(axis=1), both.any(axis=1).sum(axis=1)
    rows, columns = costs.sum(axis=2), costs.sum(axis=1)
    return rows / nj[:, None], columns / ni[:, None], rows.sum(axis=1) / (ni * nj)


def _centred(costs: FloatArray, both: Mask) -> FloatArray:
    """Return tables minus the costs of single labels that fit them best."""
    rows, columns, mean = _means(costs, both)
    left = costs - rows[:, :, None] - columns[:, None, :] + mean[:, None, None]
    return np.where(both, left, 0.0)


def classify(graph: FactorGraph, alive: Mask, remains: Mask) -> TermForms:
    """Classify each edge between remaining variables."""
    m = graph.n_edges
    fit = TermForms(np.zeros(m, dtype=np.uint8), np.zeros(m), np.zeros(m))
    chosen = remains[graph.edges].all(axis=1)
    finite = np.isfinite(graph.edge_weights) & (graph.edge_kinds == POTTS)
    finite &= np.isfinite(graph.pairwise_values[np.where(finite, graph.edge_offsets, 0)])
    potts = np.flatnonzero(chosen & finite)
    c = graph.pairwise_values[graph.edge_offsets[potts]] - graph.edge_weights[potts]
    coupled = (c != 0.0) & _meet(graph, alive, potts)
    fit.kinds[potts] = SOFT + ADDITIVE * ~coupled
    fit.coupling[potts[coupled]] = c[coupled]
    for edges, costs, both in _blocks(graph, alive, chosen & ~finite):
        equal = np.eye(*costs.shape[1:], dtype=np.bool_) & both
        hard = np.isinf(costs).any(axis=(1, 2))
        _classify_hard(edges[hard], costs[hard], both[hard], equal[hard], fit)
        _classify_soft(edges[~hard], costs[~hard], both[~hard], equal[~hard], fit)
    return fit


def _meet(graph: FactorGraph, alive: Mask, edges: IntArray) -> Mask:
    """Return whether the ends of each edge can have equal labels."""
    i, j = graph.unary_ptr[graph.edges[edges]].T
    common = graph.cardinalities[graph.edges[edges]].min(axis=1)
    owner = np.repeat(np.arange(edges.size), common)
    label = np.arange(owner.size) - np.repeat(np.cumsum(common) - common, common)
    both = alive[i[owner] + label] & alive[j[owner] + label]
    return np.asarray(np.bincount(owner[both], minlength=edges.size) > 0)


def _classify_hard(
    edges: IntArray, costs: FloatArray, both: Mask, equal: Mask, fit: TermForms
) -> None:
    """Classify edges with infinite costs."""
    finite = np.isfinite(costs) & both
    count, count_equal = finite.sum(axis=(1, 2)), (finite & equal).sum(axis=(1, 2))
    low = np.where(finite & ~equal, costs, np.inf).min(axis=(1, 2), initial=np.inf)
    high = np.where(finite & ~equal, costs, -np.inf).max(axis=(1, 2), initial=-np.inf)
    # Every label has a partner, so if none has two, the partners are matched.
    matched = (finite.sum(axis=2) <= 1).all(axis=1)
    matched &= both.any(axis=2).sum(axis=1) == both.any(axis=1).sum(axis=1)
    apart = (count_equal == 0) & (count == (both & ~equal).sum(axis=(1, 2))) & (low == high)
    fit.kinds[edges] = MATCHED * matched + EQUAL * (count == count_equal) + APART * apart
    fit.coupling[edges[apart]] = low[apart]


def _classify_soft(
    edges: IntArray, costs: FloatArray, both: Mask, equal: Mask, fit: TermForms
) -> None:
    """Classify edges of finite costs."""
    # Least squares: both tables are centred by rows and columns.
    rest, centred = _centred(costs, both), _centred(equal.astype(np.float64), both)
    norm, across = (centred * centred).sum(axis=(1, 2)), (centred * costs).sum(axis=(1, 2))
    c = np.divide(across, norm, out=np.zeros_like(norm), where=norm > 1e-9)
    noise = _RELATIVE_RESIDUE * np.abs(costs).max(axis=(1, 2), initial=0.0)
    worst_additive = np.abs(rest).max(axis=(1, 2), initial=0.0)
    worst = np.abs(rest - c[:, None, None] * centred).max(axis=(1, 2), initial=0.0)
    additive = worst_additive <= noise
    soft = additive | (worst <= noise)
    fit.kinds[edges] = SOFT * soft + ADDITIVE * additive
    fit.coupling[edges] = np.where(soft & ~additive, c, 0.0)
    fit.residue[edges] = np.where(additive, worst_additive, np.where(soft, worst, 0.0))


def fold_potts(
    graph: FactorGraph, chosen: Mask, fit: TermForms, alive: Mask, unary: FloatArray
) -> FloatArray:
    """Add the costs of edges other than their coupling to the unaries; return constants (m,)."""
    potts = chosen & (graph.edge_kinds == POTTS) & (fit.kinds & SOFT > 0)
    apart = chosen & (fit.kinds & APART > 0)
    constants = np.where(potts, graph.edge_weights, np.where(apart, fit.coupling, 0.0))
    left: Mask = chosen & ~potts & ~apart
    for edges, costs, both in _blocks(graph, alive, left):
        equal = np.eye(*costs.shape[1:], dtype=np.bool_) & both
        joined = fit.kinds[edges] & EQUAL > 0
        kept = np.where(joined[:, None, None] & ~equal, 0.0, costs)
        rows, columns, mean = _means(kept - fit.coupling[edges, None, None] * equal, both)
        # The costs of equal labels go to the first variable of a pair that must agree.
        rows = np.where(joined[:, None], kept.sum(axis=2), rows)
        columns[joined] = mean[joined] = 0.0
        first, second = graph.unary_ptr[graph.edges[edges]].T
        np.add.at(unary, first[:, None] + np.arange(rows.shape[1]), rows)
        np.add.at(unary, second[:, None] + np.arange(columns.shape[1]), columns)
        constants[edges] = -mean
    return constants


def read_pairs(graph: FactorGraph, edges: IntArray, bits: IntArray) -> FloatArray:
    """Return the tables (m, 2, 2) of edges between binary variables; ``bits`` (n, 2) are labels."""
    ends = graph.edges[edges]
    a, b = bits[ends[:, 0], :, None], bits[ends[:, 1], None, :]
    kind, weight, offset, kj = (
        each[:, None, None]
        for each in (
            graph.edge_kinds[edges].astype(np.int64),
            graph.edge_weights[edges],
            graph.edge_offsets[edges],
            graph.cardinalities[ends[:, 1]],
        )
    )
    table = kind == TABLE
    at = np.where(table, a * kj + b, np.where(a == b, a * kind, 0))
    costs = graph.pairwise_values[offset + at]
    return np.where(table | (a == b), np.where(table, weight, 1.0) * costs, weight)
