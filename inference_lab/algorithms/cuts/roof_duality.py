"""Choice between two labels at every variable by minimum cuts, exact or by roof duality.

With ``y_i = 0`` for the label ``zero[i]`` and ``y_i = 1`` for ``one[i]`` the energy is

``E(y) = c + sum_i l_i y_i + sum_ij q_ij y_i y_j``

If no ``q_ij`` is positive, a minimum cut finds the minimum. Otherwise the roof dual gives a lower
bound and labels some of the variables *persistently*: assigning these labels raises the energy of
no labelling. A number larger than any difference of finite energies replaces infinite costs, so
violations are minimised first. Terms have one or two variables.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from inference_lab._numba import inlined, lean_kernel
from inference_lab.algorithms.cuts.maxflow import (
    CutArrays,
    CutGraph,
    UInt32Array,
    larger_power_of_two,
)
from inference_lab.algorithms.elimination.arc_consistency import hard_terms
from inference_lab.graph.arrays import GraphArrays, Int32Array, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.kernels.messages import edge_cost

#: Coefficients below this share of the costs that they are differences of count as rounding errors.
_NOISE = 1e-14

#: Rounding error of a cut's value, relative to the largest cost of all terms together.
_ROUNDING = 2.0**-50


@inlined
def _finite(value: float, infinity: float) -> float:
    return infinity if np.isinf(value) else value


@inlined
def _add_up(value: float, infinite: int, finite: float) -> tuple[int, float]:
    """Add a cost to the count of infinite costs or to the sum of finite costs."""
    return (infinite + 1, finite) if np.isinf(value) else (infinite, finite + value)


@lean_kernel
def _fill(
    g: GraphArrays, arcs: Int32Array, c: CutArrays, zero: IntArray, one: IntArray, infinity: float
) -> tuple[int, float, int, int]:
    """Write the choice between two labellings into the network."""
    # Returns the count of infinite costs of `zero`, the sum of its finite costs without the
    # constant, the number of interacting pairs, and the number of non-submodular ones. The latter
    # leave negative capacities, which the caller removes. Before the flow, the coefficient of an
    # edge is ``-2`` times the residual of either of its ``arcs`` (m, 2).
    n = g.cardinalities.size
    m = g.edges.shape[0]
    infinite = 0
    finite = 0.0
    pairs = 0
    positive = 0
    for v in range(n):
        start = g.unary_ptr[v]
        cost = g.unary[start + zero[v]]
        infinite, finite = _add_up(cost, infinite, finite)
        c.excess[v] = 0.0
        if zero[v] != one[v]:
            c.excess[v] = _finite(g.unary[start + one[v]], infinity) - _finite(cost, infinity)
    for e in range(m):
        # Unsigned, because signed indices are tested for being negative.
        i = np.uint64(g.edges[e, 0])
        j = np.uint64(g.edges[e, 1])
        i0 = zero[i]
        i1 = one[i]
        j0 = zero[j]
        j1 = one[j]
        half = 0.0
        cost = edge_cost(g, e, i0, j0)
        infinite, finite = _add_up(cost, infinite, finite)
        if i0 != i1 or j0 != j1:
            c00 = _finite(cost, infinity)
            c10 = _finite(edge_cost(g, e, i1, j0), infinity)
            c01 = _finite(edge_cost(g, e, i0, j1), infinity)
            c11 = _finite(edge_cost(g, e, i1, j1), infinity)
            # This order gives exactly 0 where one end has no choice.
            q = (c11 - c01) - (c10 - c00)
            if 0.0 < q <= _NOISE * (abs(c00) + abs(c01) + abs(c10) + abs(c11)):
                q = 0.0
            half = 0.5 * q
            c.excess[i] += (c10 - c00) + half
            c.excess[j] += (c01 - c00) + half
        pairs += half != 0.0
        positive += half > 0.0
        c.residual[np.uint64(arcs[e, 0])] = -half
        c.residual[np.uint64(arcs[e, 1])] = -half
    return infinite, finite, pairs, positive


@lean_kernel
def _load_double(
    arcs: Int32Array, single: CutArrays, c: CutArrays, head: UInt32Array, sister: UInt32Array
) -> float:
    """Write the function into the network with a second node ``1 - y_i`` for each variable."""
    # A non-submodular pair joins each variable to the complement of the other. The number of arcs
    # of a node is the same in both cases, so only the ends of arcs are rewritten. Returns the sum
    # of the positive coefficients.
    n = single.excess.size
    size = single.head.size
    positive = 0.0
    for p in range(arcs.shape[0]):
        first = np.int64(arcs[p, 0])
        second = np.int64(arcs[p, 1])
        q = -2.0 * single.residual[first]
        i = np.int64(single.head[second])
        j = np.int64(single.head[first])
        half = 0.5 * abs(q)
        c.residual[first] = half
        c.residual[second] = half
        c.residual[first + size] = half
        c.residual[second + size] = half
        # The arc from i to j or to the complement of j, and its mirror image.
        if q > 0.0:
            positive += q
            here = second + size
            there = second
            head[first] = j + n
            head[first + size] = j
        else:
            here = second
            there = second + size
            head[first] = j
            head[first + size] = j + n
        sister[first] = here
        head[here] = i
        sister[here] = first
        sister[first + size] = there
        head[there] = i + n
        sister[there] = first + size
    for v in range(n):
        c.excess[v] = single.excess[v]
        c.excess[n + v] = -single.excess[v]
    return positive


@inlined
def _add_change(
    before: float, after: float, infinite: int, finite: float, scale: float
) -> tuple[int, float, float]:
    if np.isinf(before):
        infinite -= 1
    else:
        finite -= before
        scale += abs(before)
    if np.isinf(after):
        infinite += 1
    else:
        finite += after
        scale += abs(after)
    return infinite, finite, scale


@lean_kernel
def energy_change(g: GraphArrays, x: IntArray, new: IntArray) -> tuple[int, float, float]:
    """Return the change of the energy by a move from labelling `x` to `new`."""
    # The changes of the number of infinite costs and of the sum of finite costs. The third value,
    # the sum of the absolute values added up, is the scale of the rounding error.
    infinite = 0
    finite = 0.0
    scale = 0.0
    for i in range(g.cardinalities.size):
        if x[i] != new[i]:
            start = g.unary_ptr[i]
            infinite, finite, scale = _add_change(
                g.unary[start + x[i]], g.unary[start + new[i]], infinite, finite, scale
            )
    for e in range(g.edges.shape[0]):
        i = g.edges[e, 0]
        j = g.edges[e, 1]
        if x[i] != new[i] or x[j] != new[j]:
            infinite, finite, scale = _add_change(
                edge_cost(g, e, x[i], x[j]),
                edge_cost(g, e, new[i], new[j]),
                infinite,
                finite,
                scale,
            )
    return infinite, finite, scale


class Choice(NamedTuple):
    """Result of a choice between two labels."""

    #: 1 or 0 for the label chosen, -1 where roof duality leaves it open. The value is meaningless
    #: where both labels are equal.
    taken: npt.NDArray[np.int8]
    #: Lower bound on the energy of every labelling that takes one of the two labels at each
    #: variable, lowered by the rounding error; ``inf`` if all of them are infinite, ``-inf`` if no
    #: bound was requested.
    bound: float
    #: Whether the function was submodular: nothing is open, and `taken` is a minimum.
    exact: bool
    #: `pairs`, `nonsubmodular`: the pairs of variables that interact in the function, and the
    #: non-submodular ones among them.
    pairs: int
    nonsubmodular: int


class LabelChoice:
    """Choice between two labels at every variable, for many pairs of labellings.

    References
    ----------
    V. Kolmogorov, R. Zabih, "What energy functions can be minimized via graph cuts?", PAMI 26(2),
    2004. V. Kolmogorov, C. Rother, "Minimizing non-submodular functions with graph cuts - a
    review", PAMI 29(7), 2007. See also `Persistency` and `AlphaExpansion`.
    """

    # The network is laid out once; each choice refills it. A submodular choice is a minimum, first
    # of the number of infinite costs. Otherwise roof duality labels some variables
    # persistently. All of this up to rounding.

    def __init__(self, graph: FactorGraph) -> None:
        self.graph = graph
        #: Replacement of an infinite cost. Apart from the constant, a labelling without infinite
        #: costs has at most a quarter of it as energy, one with infinite costs at least three
        #: quarters.
        self.infinity = math.inf
        size = graph.magnitude
        if graph.has_infinite:
            self.infinity = larger_power_of_two(graph.magnitude - abs(graph.constant))
            unaries = np.logical_or.reduceat(np.isinf(graph.unary_values), graph.unary_ptr[:-1])
            hard = np.count_nonzero(unaries) + np.count_nonzero(hard_terms(graph.arrays))
            size += hard * self.infinity
        #: Amount by which bounds are lowered: the rounding error of sums with cancellation.
        self.rounding = _ROUNDING * size
        # The network is the graph itself and shares its adjacency.
        self.network = CutGraph.of(graph.arrays)
        self._double: CutGraph | None = None

    def minimise(
        self,
        zero: IntArray,
        one: IntArray,
        *,
        bound: bool = False,
        should_stop: Callable[[], bool] | None = None,
    ) -> Choice | None:
        """Choose between two labellings at every variable; return None if stopped."""
        arcs = self.network.arcs
        single = self.network.arrays
        n = self.graph.n_variables
        infinite, finite, pairs, positive = _fill(
            self.graph.arrays, arcs, single, zero, one, self.infinity
        )
        doubled = positive > 0
        surplus = 0.0
        network = self.network
        if doubled:
            network = self._doubled()
            surplus = _load_double(arcs, single, network.arrays, *self._ends)
        capacity = excess = np.empty(0)
        if bound:
            capacity, excess = network.arrays.residual.copy(), network.arrays.excess.copy()
        if not network.solve(should_stop):
            return None
        level = network.arrays.level
        if doubled:
            # Both nodes of a variable must agree, because they are mirror images only up to
            # rounding.
            mirrored = level[n:]
            taken = np.full(n, -1, dtype=np.int8)
            taken[(level[:n] < 0) & (mirrored > 0)] = 1
            taken[(level[:n] > 0) & (mirrored < 0)] = 0
        else:
            taken = (level[:n] < 0).astype(np.int8)
        value = -math.inf
        if bound:
            value = network.dual_value(capacity, excess)
            if doubled:
                value = 0.5 * (value + float(excess[:n].sum()) - surplus)
            value += finite
            if infinite:
                value += infinite * self.infinity
            if value > 0.5 * self.infinity:
                value = math.inf
            value += self.graph.constant - self.rounding
        return Choice(taken, value, positive == 0, pairs, positive)

    def change(self, x: IntArray, new: IntArray) -> tuple[int, float, float]:
        """Return `energy_change` on the graph."""
        infinite, finite, scale = energy_change(self.graph.arrays, x, new)
        return infinite, finite, scale

    def _doubled(self) -> CutGraph:
        """Return the network of roof duality, laid out on first use."""
        if self._double is None:
            a = self.network.arrays
            arcs = a.head.size
            head, sister = np.empty((2, 2 * arcs), dtype=np.int32)
            self._ends = (head.view(np.uint32), sister.view(np.uint32))
            self._double = CutGraph(
                np.concatenate([a.ptr[:-1], a.ptr + arcs]),
                head,
                sister,
                np.concatenate([self.network.arcs, self.network.arcs + np.int32(arcs)]),
            )
        return self._double
