"""Kernels that classify the terms of pairwise energies by the remaining labels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from inference_lab._numba import inlined, kernel, lean_kernel
from inference_lab.graph.arrays import POTTS, Flags, FloatArray, GraphArrays, IntArray
from inference_lab.kernels.messages import edge_cost, min_sum_message

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
    """The kinds of the edges, each (m,), initially zero; see `classify`."""

    kinds: Flags
    coupling: FloatArray
    residue: FloatArray


class Sums(NamedTuple):
    """Scratch for one edge, as long as the largest cardinality."""

    # Sums over rows and columns of its costs, and of the indicator of equal labels.

    row: FloatArray
    column: FloatArray
    row_equal: FloatArray
    column_equal: FloatArray


@inlined
def classify_hard(g: GraphArrays, alive: Flags, e: int) -> int:
    """Return the kind of an edge with infinite costs, 0 if it has none."""
    i, j = g.edges[e, 0], g.edges[e, 1]
    ni = 0
    nj = 0
    for b in range(g.cardinalities[j]):
        nj += alive[g.unary_ptr[j] + b]
    finite = 0
    equal = 0
    finite_equal = 0
    most = 0
    low = np.inf
    high = -np.inf
    for a in range(g.cardinalities[i]):
        if alive[g.unary_ptr[i] + a] == 0:
            continue
        ni += 1
        partners = 0
        for b in range(g.cardinalities[j]):
            if alive[g.unary_ptr[j] + b] == 0:
                continue
            cost = edge_cost(g, e, a, b)
            partners += not np.isinf(cost)
            if a == b:
                equal += 1
                finite_equal += not np.isinf(cost)
            elif not np.isinf(cost):
                low = min(low, cost)
                high = max(high, cost)
        finite += partners
        most = max(most, partners)
    kind = 0
    # Every label has a partner, so if none has two, the partners are matched.
    if most == 1 and ni == nj:
        kind |= MATCHED
    if finite == finite_equal:
        kind |= EQUAL
    if finite_equal == 0 and finite == ni * nj - equal and low == high:
        kind |= APART
    return kind


@lean_kernel
def classify(g: GraphArrays, alive: Flags, remains: Flags, sums: Sums, fit: TermForms) -> None:
    """Classify each edge between remaining variables; ``kinds`` is 0 if no form fits."""
    # ``coupling`` is the ``c`` that fits best, ``residue`` the largest deviation from the form with
    # it (with 0, if that is as good).
    row, column, row_equal, column_equal = sums
    for e in range(g.edges.shape[0]):
        i, j = g.edges[e, 0], g.edges[e, 1]
        if remains[i] == 0 or remains[j] == 0:
            continue
        ki, kj = g.cardinalities[i], g.cardinalities[j]
        of_i, of_j = alive[g.unary_ptr[i] :], alive[g.unary_ptr[j] :]
        ni = 0
        nj = 0
        equal = 0
        for b in range(kj):
            column[b] = 0.0
            column_equal[b] = 0.0
            nj += of_j[b]
        total = 0.0
        largest = 0.0
        for a in range(ki):
            row[a] = 0.0
            row_equal[a] = 0.0
            if of_i[a] == 0:
                continue
            ni += 1
            for b in range(kj):
                if of_j[b] == 0:
                    continue
                cost = edge_cost(g, e, a, b)
                if a == b:
                    equal += 1
                    row_equal[a] += 1.0
                    column_equal[b] += 1.0
                row[a] += cost
                column[b] += cost
                total += cost
                largest = max(largest, abs(cost))
        if np.isinf(largest):
            fit.kinds[e] = classify_hard(g, alive, e)
            continue
        if g.kinds[e] == POTTS:
            c = g.pairwise[g.offsets[e]] - g.weights[e]
            fit.kinds[e] = SOFT
            if c == 0.0 or equal == 0:
                fit.kinds[e] |= ADDITIVE
            else:
                fit.coupling[e] = c
            continue
        # Least squares: both tables are centred by rows and columns.
        across = 0.0
        norm = 0.0
        for a in range(ki):
            for b in range(kj):
                if of_i[a] and of_j[b]:
                    centred = (
                        (1.0 if a == b else 0.0) - row_equal[a] / nj - column_equal[b] / ni
                        + equal / (ni * nj)
                    )  # fmt: skip
                    norm += centred * centred
                    across += centred * edge_cost(g, e, a, b)
        c = across / norm if norm > 1e-9 else 0.0
        worst = 0.0
        worst_additive = 0.0
        for a in range(ki):
            for b in range(kj):
                if of_i[a] and of_j[b]:
                    rest = (
                        edge_cost(g, e, a, b) - row[a] / nj - column[b] / ni + total / (ni * nj)
                    )  # fmt: skip
                    centred = (
                        (1.0 if a == b else 0.0) - row_equal[a] / nj - column_equal[b] / ni
                        + equal / (ni * nj)
                    )  # fmt: skip
                    worst_additive = max(worst_additive, abs(rest))
                    worst = max(worst, abs(rest - c * centred))
        if worst_additive <= _RELATIVE_RESIDUE * largest:
            fit.kinds[e] = ADDITIVE | SOFT
            fit.residue[e] = worst_additive
        elif worst <= _RELATIVE_RESIDUE * largest:
            fit.kinds[e] = SOFT
            fit.coupling[e] = c
            fit.residue[e] = worst


@lean_kernel
def fold_potts(
    g: GraphArrays,
    edges: IntArray,
    fit: TermForms,
    alive: Flags,
    unary: FloatArray,
    sums: Sums,
) -> float:
    """Add the costs of the edges other than their coupling to the unaries; return the constant."""
    kinds, coupling, row, column = fit.kinds, fit.coupling, sums.row, sums.column
    constant = 0.0
    for e in edges:
        i = g.edges[e, 0]
        j = g.edges[e, 1]
        ki = g.cardinalities[i]
        kj = g.cardinalities[j]
        pi = g.unary_ptr[i]
        pj = g.unary_ptr[j]
        if g.kinds[e] == POTTS and kinds[e] & SOFT:
            constant += g.weights[e]
            continue
        if kinds[e] & EQUAL:
            for a in range(min(ki, kj)):
                if alive[pi + a] and alive[pj + a]:
                    unary[pi + a] += edge_cost(g, e, a, a)
            continue
        if kinds[e] & APART:
            cost = 0.0
            for a in range(ki):
                for b in range(kj):
                    if alive[pi + a] and alive[pj + b] and a != b:
                        cost = edge_cost(g, e, a, b)
            constant += cost
            continue
        ni = 0
        nj = 0
        for b in range(kj):
            column[b] = 0.0
            nj += alive[pj + b]
        total = 0.0
        for a in range(ki):
            row[a] = 0.0
            ni += alive[pi + a]
            for b in range(kj):
                if alive[pi + a] and alive[pj + b]:
                    cost = edge_cost(g, e, a, b)
                    if a == b:
                        cost -= coupling[e]
                    row[a] += cost
                    column[b] += cost
                    total += cost
        constant -= total / (ni * nj)
        for a in range(ki):
            if alive[pi + a]:
                unary[pi + a] += row[a] / nj
        for b in range(kj):
            if alive[pj + b]:
                unary[pj + b] += column[b] / ni
    return constant


@lean_kernel
def read_pairs(g: GraphArrays, edges: IntArray, bits: IntArray, tables: FloatArray) -> None:
    """Write the tables (m, 2, 2) of edges between binary variables; ``bits`` (n, 2) are labels."""
    for t in range(edges.size):
        e = edges[t]
        for p in range(2):
            for q in range(2):
                a = bits[g.edges[e, 0], p]
                b = bits[g.edges[e, 1], q]
                tables[t, p, q] = edge_cost(g, e, a, b)
