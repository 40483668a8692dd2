"""Upper bounds on the value of a partition: packings of triangles, and a linear relaxation."""

from __future__ import annotations

import math

import numpy as np
from scipy.sparse import csr_array, vstack

from inference_lab._numba import lean_kernel
from inference_lab.algorithms.linear.incremental import IncrementalRelaxation
from inference_lab.algorithms.linear.model import CsrArray, LinearModel
from inference_lab.algorithms.multicut.signed_graph import SignedGraph
from inference_lab.graph.arrays import FloatArray, IntArray

#: Inequalities violated by less are left out, as LP solutions are not more accurate.
_VIOLATED = 1e-6
#: Inequalities of a kind added a round, per vertex.
_ROWS_A_VERTEX = 20
#: Share of the sum of absolute weights that covers the rounding of a packing.
_ROUNDING = 1e-13


def packing_bound(g: SignedGraph) -> float:
    """Return the sum of positive weights less a packing of conflicted triangles.

    A triangle of two positive edges and a negative one cannot keep all of its gain: one edge
    loses at least the least absolute weight. Triangles that share no weight lose independently
    (J.-H. Lange, A. Karrenbauer, B. Andres, "Partial optimality and fast lower bounds for weighted
    correlation clustering", ICML 2018, algorithm 2, cycles of length 3).
    """
    first = np.repeat(np.arange(g.n), np.diff(g.ptr))
    # Sorted by the other end, half edges are in the order of their reverses.
    mate = np.empty(first.size, dtype=np.int64)
    mate[np.lexsort((first, g.neighbours))] = np.arange(first.size)
    rest = g.weights.copy()
    lost = pack_triangles(g.ptr, g.neighbours, mate, rest)
    total = float(np.abs(g.weights).sum())
    return float(g.weights[g.weights > 0.0].sum()) / 2.0 - lost + _ROUNDING * total


@lean_kernel
def pack_triangles(ptr: IntArray, neighbours: IntArray, mate: IntArray, rest: FloatArray) -> float:
    """Subtract conflicted triangles from the weights; return the sum of what each loses."""
    lost = 0.0
    for i in range(ptr.size - 1):
        for p in range(ptr[i], ptr[i + 1]):
            k = neighbours[p]
            if i > k or rest[p] >= 0.0:
                continue
            a = ptr[i]
            b = ptr[k]
            while rest[p] < 0.0 and a < ptr[i + 1] and b < ptr[k + 1]:
                if neighbours[a] < neighbours[b]:
                    a += 1
                elif neighbours[a] > neighbours[b]:
                    b += 1
                else:
                    least = min(rest[a], rest[b], -rest[p])
                    if least > 0.0:
                        lost += least
                        rest[p] += least
                        rest[a] -= least
                        rest[b] -= least
                        rest[mate[p]] = rest[p]
                        rest[mate[a]] = rest[a]
                        rest[mate[b]] = rest[b]
                    a += 1
                    b += 1
    return lost


class CliqueRelaxation:
    """Linear relaxation over all pairs of vertices, with inequalities added where violated.

    ``x_ij`` is 1 where i and j share a cluster. Triangles, ``x_ij + x_jk - x_ik <= 1``, come first,
    and then 2-partition inequalities with one vertex on one side (M. Grotschel, Y. Wakabayashi,
    "Facets of the clique partitioning polytope", Mathematical Programming 47, 1990, theorem 4.1).
    Memory: 20 bytes for each pair and for each entry of an inequality, times about 30 while HiGHS
    solves.

    Attributes
    ----------
    value : float
        The least upper bound so far; it holds for any duals of the LP solver.
    done : bool
        No violated inequality was found.
    """

    def __init__(self, g: SignedGraph) -> None:
        n = g.n
        self.n = n
        self.pair = np.zeros((n, n), dtype=np.int64)
        i, j = np.triu_indices(n, 1)
        self.pair[i, j] = self.pair[j, i] = np.arange(i.size)
        edges, weights = g.edges()
        cost = np.zeros(i.size)
        cost[self.pair[edges[:, 0], edges[:, 1]]] = -weights
        none = csr_array((0, i.size))
        self.relaxation = IncrementalRelaxation(
            LinearModel(
                cost=cost,
                a_eq=none,
                b_eq=np.empty(0),
                a_ub=none,
                b_ub=np.empty(0),
                upper=np.ones(i.size),
                constant=0.0,
                label_ptr=np.zeros(1, dtype=np.int64),
                group_ptr=np.arange(i.size + 1),
                n_exact=0,
            )
        )
        self.value = self._last_value = math.inf
        self.done = False

    def round(self, time_limit: float) -> FloatArray | None:
        """Solve and add violated inequalities; return the (n, n) solution, None at the limit."""
        solved = self.relaxation.solve(time_limit)
        self.value = min(self.value, -solved.bound)
        if solved.x is None or solved.dual_ub is None:
            return None
        together = solved.x[self.pair]
        np.fill_diagonal(together, 0.0)
        rows = self._violated_triangles(together)
        if rows.shape[0] < self.n:
            rows = vstack([rows, self._violated_stars(together)], format="csr")
        self.done = rows.shape[0] == 0
        if not self.done:
            # While the bound stands still, dropped rows could return for ever.
            rises = self.value < self._last_value - _VIOLATED * abs(self._last_value)
            slack = np.flatnonzero(solved.dual_ub == 0.0) if rises else np.empty(0, dtype=np.int64)
            self._last_value = self.value
            self.relaxation.change(slack, rows, np.ones(rows.shape[0]))
        return together

    def _violated_triangles(self, together: FloatArray) -> CsrArray:
        """Return rows ``x_ij + x_jk - x_ik <= 1``, the most violated ones."""
        found, by = [], []
        for j in range(self.n):
            excess = together[:, j, None] + together[None, j] - together - 1.0
            excess[j] = excess[:, j] = 0.0
            i, k = np.nonzero(np.triu(excess, 1) > _VIOLATED)
            found.append(np.stack([self.pair[i, j], self.pair[j, k], self.pair[i, k]], axis=1))
            by.append(excess[i, k])
        chosen = np.argsort(-np.concatenate(by), kind="stable")[: _ROWS_A_VERTEX * self.n]
        columns = np.concatenate(found)[chosen]
        return self._rows([(c, [1.0, 1.0, -1.0]) for c in columns.tolist()])

    def _violated_stars(self, together: FloatArray) -> CsrArray:
        """Return rows ``sum_T x_vt - sum_TT' x_tt' <= 1``: v is with one of T that are apart."""
        # T grows from each pair by the vertex that adds most to the excess.
        found: dict[tuple[int, ...], tuple[float, list[int], list[float]]] = {}
        for v, t in np.argwhere((together > _VIOLATED) & (together < 1.0 - _VIOLATED)).tolist():
            chosen, total = [t], together[v, t]
            gains = together[v] - together[t]
            gains[[v, t]] = -1.0
            while gains[k := int(np.argmax(gains))] > _VIOLATED:
                total += gains[k]
                gains -= together[k]
                gains[k] = -1.0
                chosen.append(k)
            key = (v, *sorted(chosen))
            if total > 1.0 + 10.0 * _VIOLATED and key not in found:
                ends = np.array(chosen)
                apart = self.pair[np.ix_(ends, ends)][np.triu_indices(ends.size, 1)]
                columns = self.pair[v, ends].tolist() + apart.tolist()
                found[key] = total, columns, [1.0] * ends.size + [-1.0] * apart.size
        kept = sorted(found.values(), key=lambda star: -star[0])[: _ROWS_A_VERTEX * self.n]
        return self._rows([star[1:] for star in kept])

    def _rows(self, rows: list[tuple[list[int], list[float]]]) -> CsrArray:
        """Return sparse rows from their columns and coefficients."""
        ptr = np.cumsum([0, *(len(columns) for columns, _ in rows)])
        columns = np.array([c for row, _ in rows for c in row], dtype=np.int64)
        data = np.array([c for _, row in rows for c in row], dtype=np.float64)
        return csr_array((data, columns, ptr), shape=(len(rows), self.n * (self.n - 1) // 2))
