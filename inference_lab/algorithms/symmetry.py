"""Interchangeable labels, and the labels that an exact search can forbid because of them.

If labels ``a`` and ``b`` cost the same everywhere, and swapping them changes no term, each
labelling has ``c!`` copies of its energy for ``c`` such labels. The labels are numbered in the
order in which they first appear along a sequence of variables. Then the ``t``-th variable of the
sequence has one of the first ``t`` of them or a label of another kind; others can be forbidden.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inference_lab.graph.arrays import DIAGONAL, TABLE, FloatArray, IntArray
from inference_lab.graph.factor_graph import FactorGraph


@dataclass(frozen=True)
class Symmetry:
    """Classes of interchangeable labels, and the variables along which they are numbered."""

    #: Interchangeable labels, at least two per class, ascending.
    classes: list[IntArray]
    #: Distinct variables: one less than the size of the largest class, or all variables.
    sequence: list[int]

    def allowed(self, graph: FactorGraph) -> npt.NDArray[np.bool_]:
        """Return flags, like the unaries; some optimal labelling uses only flagged labels."""
        flags = np.ones((graph.n_variables, graph.n_labels or 0), dtype=np.bool_)
        for labels in self.classes:
            for t, v in enumerate(self.sequence[: labels.size - 1]):
                flags[v, labels[t + 1 :]] = False
        return flags.ravel()

    def numbered(self, labels: IntArray) -> IntArray:
        """Return the equivalent labelling, shape (n,), whose labels are all allowed."""
        renamed = np.arange(1 + max([int(labels.max()), *(int(c.max()) for c in self.classes)]))
        for of_class in self.classes:
            seen = dict.fromkeys(int(labels[v]) for v in self.sequence)
            inside = set(of_class.tolist())
            first = [a for a in seen if a in inside]
            rest = [a for a in of_class.tolist() if a not in seen]
            renamed[first + rest] = of_class
        return np.asarray(renamed[labels])


def break_symmetry(graph: FactorGraph) -> Symmetry | None:
    """Find interchangeable labels; return None if there are none or the graph is not covered."""
    # Covers graphs without label costs whose variables all have the same labels; costs must be
    # exactly equal (Margot 2010; Van Hentenryck et al. 2003). The sequence begins with the variable
    # of the strongest terms, and continues with the one most repelled by its predecessors.
    k = graph.n_labels
    if not k or k < 2 or graph.n_variables == 0 or graph.n_label_costs:
        return None
    classes: list[list[int]] = []
    for a in range(k):
        for labels in classes:
            if _interchangeable(graph, k, labels[0], a):
                labels.append(a)
                break
        else:
            classes.append([a])
    groups = [np.array(labels) for labels in classes if len(labels) > 1]
    if not groups:
        return None
    longest = max(groups, key=lambda labels: labels.size)
    return Symmetry(groups, _sequence(graph, k, longest))


def _interchangeable(graph: FactorGraph, k: int, a: int, b: int) -> bool:
    """Return whether every term of a graph with `k` labels is unchanged by swapping two labels."""
    unary = graph.unary_values.reshape(-1, k)
    if not np.array_equal(unary[:, a], unary[:, b]):
        return False
    values = graph.pairwise_values
    same = graph.edge_offsets[graph.edge_kinds == DIAGONAL]
    if not np.array_equal(values[same + a], values[same + b]):
        return False
    swapped = np.arange(k)
    swapped[[a, b]] = b, a
    # Distinct offsets, because edges may share a table.
    shared = np.unique(graph.edge_offsets[graph.edge_kinds == TABLE])
    tables = [values[shared[:, None] + np.arange(k * k)].reshape(-1, k, k)]
    arity = np.diff(graph.factor_ptr)
    for r in np.unique(arity).tolist():
        begin = graph.table_ptr[:-1][arity == r]
        entries = graph.table_values[begin[:, None] + np.arange(k**r)]
        tables.append(entries.reshape(-1, *[k] * r))
    for stack in tables:
        mirrored = stack
        for axis in range(1, stack.ndim):
            mirrored = np.take(mirrored, swapped, axis)
        if not np.array_equal(mirrored, stack):
            return False
    return True


def _repulsion(graph: FactorGraph, k: int, a: int, b: int) -> FloatArray:
    """Return the extra cost of equal over different labels of a class for each edge, (m,)."""
    values, weights, offsets = graph.pairwise_values, graph.edge_weights, graph.edge_offsets
    together, apart = np.empty(graph.n_edges), np.empty(graph.n_edges)
    table = graph.edge_kinds == TABLE
    at = offsets[table]
    together[table] = weights[table] * values[at + a * (k + 1)]
    apart[table] = weights[table] * values[at + a * k + b]
    together[~table] = values[offsets[~table] + a * graph.edge_kinds[~table]]
    apart[~table] = weights[~table]
    gain = np.zeros(graph.n_edges)
    # The gain stays 0 if both costs are infinite, because their difference is undefined.
    np.subtract(together, apart, out=gain, where=np.isfinite(together) | np.isfinite(apart))
    hard = 1.0 + 2.0 * float(np.abs(gain[np.isfinite(gain)]).sum())
    return np.clip(gain, -hard, hard)


def _sequence(graph: FactorGraph, k: int, labels: IntArray) -> list[int]:
    """Choose the variables along which a class of labels is numbered."""
    gain = _repulsion(graph, k, int(labels[0]), int(labels[1]))
    first, second = graph.edges[:, 0], graph.edges[:, 1]
    n = graph.n_variables
    strength = np.bincount(graph.factor_scopes, minlength=n).astype(np.float64)
    for end in (first, second):
        strength += np.bincount(end, weights=np.abs(gain), minlength=n)
    repelled = np.zeros(n)
    sequence: list[int] = []
    for _ in range(min(n, labels.size - 1)):
        candidates = np.flatnonzero(repelled == repelled.max())
        v = int(candidates[strength[candidates].argmax()])
        sequence.append(v)
        repelled += np.bincount(second[first == v], weights=gain[first == v], minlength=n)
        repelled += np.bincount(first[second == v], weights=gain[second == v], minlength=n)
        repelled[sequence] = -np.inf
    return sequence
