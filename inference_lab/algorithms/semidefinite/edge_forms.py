"""Potts-like terms of pairwise energies, and the elimination of trees."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from inference_lab._numba import kernel, lean_kernel
from inference_lab.algorithms.linear.integer_costs import dense_tables
from inference_lab.graph.arrays import POTTS, FloatArray, GraphArrays, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.kernels.messages import edge_cost, min_sum_message

Mask: TypeAlias = npt.NDArray[np.bool_]

#: A table counts as Potts-like if it differs from such a table by at most this share of its largest
#: cost. The difference is subtracted from the bound.
_RELATIVE_RESIDUE = 1e-12


@kernel
def eliminate(
    g: GraphArrays, unary: FloatArray, single: IntArray, leaves: IntArray
) -> tuple[float, int]:
    """Eliminate the undecided variables that have one neighbour or none."""
    # ``unary`` and ``single``, -2 for eliminated variables, are changed in place. Returns the
    # constant and the number of leaves.
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
            minimum = np.inf
            for a in range(g.cardinalities[i]):
                minimum = min(minimum, unary[g.unary_ptr[i] + a])
            constant += minimum
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
    """Give eliminated variables their best labels, last first."""
    for t in range(leaves.shape[0] - 1, -1, -1):
        i = leaves[t, 0]
        e = leaves[t, 1]
        minimum = np.inf
        for a in range(g.cardinalities[i]):
            cost = unary[g.unary_ptr[i] + a]
            if e >= 0:
                if g.edges[e, 0] == i:
                    cost += edge_cost(g, e, a, x[g.edges[e, 1]])
                else:
                    cost += edge_cost(g, e, x[g.edges[e, 0]], a)
            if cost < minimum:
                minimum = cost
                x[i] = a


class TermForms(NamedTuple):
    """The forms of the edges, each (m,)."""

    # ``fits``: whether an edge is ``f(a) + g(b) + c [a = b]``. ``coupling`` is the ``c`` that fits
    # best, 0 if none is needed; ``residue`` is the largest deviation from the form.

    fits: Mask
    coupling: FloatArray
    residue: FloatArray


def _centred(tables: FloatArray) -> FloatArray:
    """Return tables minus the costs of single labels that fit them best."""
    rows, columns = tables.mean(axis=-1, keepdims=True), tables.mean(axis=-2, keepdims=True)
    return np.asarray(tables - rows - columns + tables.mean(axis=(-2, -1), keepdims=True))


def _blocks(graph: FactorGraph, mask: Mask) -> Iterator[tuple[IntArray, FloatArray]]:
    """Yield chosen edges of one shape, and their tables."""
    for edges, tables in dense_tables(graph) if mask.any() else ():
        at = np.flatnonzero(mask[edges])
        if at.size:
            yield edges[at], tables[at]


def is_potts(graph: FactorGraph) -> Mask:
    """Return whether each edge is a Potts term over equal numbers of labels."""
    first, second = graph.cardinalities[graph.edges].T
    return np.asarray((graph.edge_kinds == POTTS) & (first == second))


def classify(graph: FactorGraph, mask: Mask) -> TermForms:
    """Classify the chosen edges."""
    m = graph.n_edges
    fit = TermForms(np.ones(m, dtype=np.bool_), np.zeros(m), np.zeros(m))
    potts = mask & is_potts(graph)
    weights = graph.edge_weights[potts]
    fit.coupling[potts] = graph.pairwise_values[graph.edge_offsets[potts]] - weights
    for edges, tables in _blocks(graph, mask & ~potts):
        # Least squares: both tables are centred by rows and columns.
        rest, equal = _centred(tables), _centred(np.eye(*tables.shape[1:]))
        noise = _RELATIVE_RESIDUE * np.abs(tables).max(axis=(1, 2))
        residue = np.abs(rest).max(axis=(1, 2))
        c = np.zeros(edges.size)
        if tables.shape[1] == tables.shape[2]:
            needed = residue > noise
            c[needed] = (rest[needed] * equal).sum(axis=(1, 2)) / (equal * equal).sum()
            residue = np.abs(rest - c[:, None, None] * equal).max(axis=(1, 2))
        fit.fits[edges] = residue <= noise
        fit.coupling[edges], fit.residue[edges] = c, residue
    return fit


def fold_potts(graph: FactorGraph, mask: Mask, fit: TermForms, unary: FloatArray) -> FloatArray:
    """Add the costs of edges other than their coupling to the unaries; return constants (m,)."""
    potts = mask & is_potts(graph)
    constants = np.where(potts, graph.edge_weights, 0.0)
    for edges, tables in _blocks(graph, mask & ~potts):
        remainder = tables - fit.coupling[edges, None, None] * np.eye(*tables.shape[1:])
        first, second = graph.unary_ptr[graph.edges[edges]].T
        rows, columns = remainder.mean(axis=2), remainder.mean(axis=1)
        np.add.at(unary, first[:, None] + np.arange(rows.shape[1]), rows)
        np.add.at(unary, second[:, None] + np.arange(columns.shape[1]), columns)
        constants[edges] = -remainder.mean(axis=(1, 2))
    return constants
