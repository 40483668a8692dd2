"""Choice between two labels at every variable by minimum cuts, exact or by roof duality.

With ``y_i = 0`` for the label ``zero[i]`` and ``y_i = 1`` for ``one[i]`` the energy is

``E(y) = c + sum_i l_i y_i + sum_ij q_ij y_i y_j``

with auxiliary variables for higher-order factors. If no ``q_ij`` is positive, a minimum cut finds
the minimum. Otherwise the roof dual gives a lower bound and labels some of the variables
*persistently*: assigning these labels raises the energy of no labelling. A number larger than any
difference of finite energies replaces infinite costs, so violations are minimised first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

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
from inference_lab.graph.arrays import FloatArray, GraphArrays, IntArray, starts_of
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.kernels.messages import edge_cost

__all__ = [
    "MAX_ARITY",
    "Choice",
    "LabelChoice",
    "energy_change",
    "infinite_cost",
    "unsupported_arity",
]

#: Largest arity of a factor, because a choice turns a factor of arity r into about 2^r nodes.
MAX_ARITY = 10

#: Coefficients below this share of the costs that they are differences of count as rounding errors.
_NOISE = 1e-14

#: Rounding error of a cut's value, relative to the largest cost of all terms together.
_ROUNDING = 2.0**-50

Rule = Literal["qpbo", "truncate"]


def _largest_arity(graph: FactorGraph) -> int:
    """Return the number of variables of the largest factor, 0 without one."""
    return int(np.diff(graph.factor_ptr).max()) if graph.n_factors else 0


def unsupported_arity(graph: FactorGraph) -> str | None:
    """Return the reason why the factors are too large to be reduced to pairs, or None."""
    arity = _largest_arity(graph)
    if arity <= MAX_ARITY:
        return None
    return (
        f"a factor has {arity} variables; its reduction to pairs needs about 2^{arity} nodes, "
        f"at most {MAX_ARITY} variables are taken on"
    )


class Moves(NamedTuple):
    """Positions of the terms of the quadratic function in the network."""

    #: (p, 2) int32: the arcs of each pair; the first pairs are the graph's edges. Before the flow,
    #: the coefficient of a pair is ``-2`` times the residual of either arc.
    place: npt.NDArray[np.int32]
    #: ``factor_pair_ptr`` (f + 1,) int64 into ``factor_pairs`` int32: the pair of each two
    #: positions of a factor's scope, in the order of `numpy.triu_indices`.
    factor_pair_ptr: IntArray
    factor_pairs: npt.NDArray[np.int32]
    #: ``aux_node``, ``aux_pair`` (f,) int64: the first auxiliary node of a factor, and the first
    #: pair that joins its auxiliary nodes to its variables.
    aux_node: IntArray
    aux_pair: IntArray


@inlined
def _finite(value: float, infinity: float) -> float:
    return infinity if np.isinf(value) else value


@inlined
def _add_up(value: float, infinite: int, finite: float) -> tuple[int, float]:
    """Add a cost to the count of infinite costs or to the sum of finite costs."""
    return (infinite + 1, finite) if np.isinf(value) else (infinite, finite + value)


@inlined
def _add_pair(t: Moves, c: CutArrays, p: int, q: float) -> None:
    """Add ``q y_i y_j = q / 2 (y_i + y_j) - q / 2 |y_i - y_j|`` to the network."""
    first = t.place[p, 0]
    second = t.place[p, 1]
    half = 0.5 * q
    c.excess[c.head[second]] += half
    c.excess[c.head[first]] += half
    c.residual[first] -= half
    c.residual[second] -= half


@inlined
def _fill_factor(
    g: GraphArrays,
    t: Moves,
    c: CutArrays,
    f: int,
    zero: IntArray,
    one: IntArray,
    infinity: float,
    table: FloatArray,
) -> float:
    """Add a higher-order factor to the network; return its cost under `zero`."""
    # Its ``2^r`` values become the coefficients of a multilinear polynomial (Moebius transform). A
    # monomial ``a y_1 ... y_d`` of degree ``d > 2`` becomes, with ``S = y_1 + ... + y_d`` (Ishikawa
    # 2011),
    # for ``a < 0``: ``min_w a w (S - (d - 1))``;
    # for ``a > 0``: ``a (S2 + min_w sum_i w_i (c_i (2 i - S) - 1))`` with ``S2`` the sum of the
    # products of pairs, ``i`` from 1 to ``(d - 1) // 2``, and ``c_i = 2``, but 1 for the last ``i``
    # of an odd ``d``.
    lo = g.factor_ptr[f]
    arity = g.factor_ptr[f + 1] - lo
    size = 1 << arity
    scale = 0.0
    base = 0.0
    for mask in range(size):
        index = 0
        for s in range(arity):
            v = g.scopes[lo + s]
            index = index * g.cardinalities[v] + (one[v] if mask >> s & 1 else zero[v])
        cost = g.tables[g.table_ptr[f] + index]
        if mask == 0:
            base = cost
        table[mask] = _finite(cost, infinity)
        scale = max(scale, abs(table[mask]))
    noise = _NOISE * size * scale
    for s in range(arity):
        for mask in range(size):
            if mask >> s & 1:
                table[mask] -= table[mask ^ (1 << s)]
    node = t.aux_node[f]
    pair = t.aux_pair[f]
    for mask in range(size):
        degree = 0
        for s in range(arity):
            degree += mask >> s & 1
        if degree < 3:
            continue
        a = table[mask]
        if abs(a) <= noise:
            a = 0.0
        for i in range(1, max(1, (degree - 1) // 2) + 1):
            constant = 0.0
            slope = 0.0
            if a < 0.0 and i == 1:
                constant = -a * (degree - 1)
                slope = a
            elif a > 0.0:
                weight = 1.0 if degree & 1 and i == (degree - 1) // 2 else 2.0
                constant = a * (2.0 * weight * i - 1.0)
                slope = -a * weight
            c.excess[node] += constant
            node += 1
            for s in range(arity):
                if mask >> s & 1:
                    _add_pair(t, c, pair, slope)
                    pair += 1
        if a > 0.0:
            for s in range(arity):
                for u in range(s + 1, arity):
                    both = (1 << s) | (1 << u)
                    if mask & both == both:
                        table[both] += a
    at = t.factor_pair_ptr[f]
    for s in range(arity):
        c.excess[g.scopes[lo + s]] += table[1 << s]
        for u in range(s + 1, arity):
            q = table[(1 << s) | (1 << u)]
            if not 0.0 < q <= noise:
                _add_pair(t, c, t.factor_pairs[at], q)
            at += 1
    return base


@lean_kernel
def _fill(
    g: GraphArrays,
    t: Moves,
    c: CutArrays,
    zero: IntArray,
    one: IntArray,
    infinity: float,
    table: FloatArray | None,
) -> tuple[int, float, int, int]:
    """Write the choice between two labellings into the network."""
    # Returns the count of infinite costs of `zero`, the sum of its finite costs without the
    # constant, the number of interacting pairs, and the number of non-submodular ones. The latter
    # leave negative capacities, which the caller removes. `table` is None for a graph without
    # factors, so that their code is not compiled.
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
        c.residual[np.uint64(t.place[e, 0])] = -half
        c.residual[np.uint64(t.place[e, 1])] = -half
    if table is not None:
        for v in range(n, c.excess.size):
            c.excess[v] = 0.0
        for p in range(m, t.place.shape[0]):
            c.residual[t.place[p, 0]] = 0.0
            c.residual[t.place[p, 1]] = 0.0
        for f in range(g.factor_ptr.size - 1):
            cost = _fill_factor(g, t, c, f, zero, one, infinity, table)
            infinite, finite = _add_up(cost, infinite, finite)
        pairs = 0
        positive = 0
        for p in range(t.aux_pair[0]):
            left = c.residual[t.place[p, 0]]
            pairs += left != 0.0
            positive += left < 0.0
    return infinite, finite, pairs, positive


@lean_kernel
def _truncate(
    t: Moves, c: CutArrays, n_pairs: int, zero: IntArray, one: IntArray, x: IntArray
) -> None:
    """Raise costs until the function is submodular."""
    # Where ``q > 0``, the values at ``(0, 1)`` and ``(1, 0)`` are raised by ``q`` in total, but
    # never the value of the current labelling ``x``. A labelling that lowers the new function
    # therefore lowers the old one.
    for p in range(n_pairs):
        q = -2.0 * c.residual[t.place[p, 0]]
        if q <= 0.0:
            continue
        i = c.head[t.place[p, 1]]
        j = c.head[t.place[p, 0]]
        first = zero[i] != one[i] and x[i] == one[i]
        second = zero[j] != one[j] and x[j] == one[j]
        # `_fill` already added q / 2 to both ends, which raises both values by q / 2.
        if first != second:
            shift = 0.5 * q if second else -0.5 * q
            c.excess[i] += shift
            c.excess[j] -= shift
        c.residual[t.place[p, 0]] = 0.0
        c.residual[t.place[p, 1]] = 0.0


@lean_kernel
def _load_double(
    t: Moves, single: CutArrays, c: CutArrays, head: UInt32Array, sister: UInt32Array
) -> float:
    """Write the function into the network with a second node ``1 - y_i`` for each variable."""
    # A non-submodular pair joins each variable to the complement of the other. The number of arcs
    # of a node is the same in both cases, so only the ends of arcs are rewritten. Returns the sum
    # of the positive coefficients.
    n = single.excess.size
    arcs = single.head.size
    positive = 0.0
    for p in range(t.place.shape[0]):
        first = np.int64(t.place[p, 0])
        second = np.int64(t.place[p, 1])
        q = -2.0 * single.residual[first]
        i = np.int64(single.head[second])
        j = np.int64(single.head[first])
        half = 0.5 * abs(q)
        c.residual[first] = half
        c.residual[second] = half
        c.residual[first + arcs] = half
        c.residual[second + arcs] = half
        # The arc from i to j or to the complement of j, and its mirror image.
        if q > 0.0:
            positive += q
            here = second + arcs
            there = second
            head[first] = j + n
            head[first + arcs] = j
        else:
            here = second
            there = second + arcs
            head[first] = j
            head[first + arcs] = j + n
        sister[first] = here
        head[here] = i
        sister[here] = first
        sister[first + arcs] = there
        head[there] = i + n
        sister[there] = first + arcs
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
    for f in range(g.factor_ptr.size - 1):
        before = 0
        after = 0
        for s in range(g.factor_ptr[f], g.factor_ptr[f + 1]):
            v = g.scopes[s]
            before = before * g.cardinalities[v] + x[v]
            after = after * g.cardinalities[v] + new[v]
        if before != after:
            start = g.table_ptr[f]
            infinite, finite, scale = _add_change(
                g.tables[start + before], g.tables[start + after], infinite, finite, scale
            )
    return infinite, finite, scale


def infinite_cost(graph: FactorGraph) -> float:
    """Return the replacement of infinite costs: above four times all finite costs together."""
    return larger_power_of_two(graph.magnitude - abs(graph.constant))


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
    review", PAMI 29(7), 2007. H. Ishikawa, "Transformation of general binary MRF minimization to
    the first-order case", PAMI 33(6), 2011. See also `Persistency` (roof duality) and
    `AlphaExpansion` (truncation).
    """

    # The network is laid out once; each choice refills it. A submodular choice is a minimum, first
    # of the number of infinite costs. Otherwise "qpbo" labels some variables persistently, and
    # "truncate" gives at most the energy of the current labelling. All of this up to rounding.

    def __init__(self, graph: FactorGraph) -> None:
        reason = unsupported_arity(graph)
        if reason is not None:
            raise ValueError(reason)
        self.graph = graph
        #: Replacement of an infinite cost. Apart from the constant, a labelling without infinite
        #: costs has at most a quarter of it as energy, one with infinite costs at least three
        #: quarters.
        self.infinity = math.inf
        size = graph.magnitude
        if graph.has_infinite:
            self.infinity = infinite_cost(graph)
            unaries = np.logical_or.reduceat(np.isinf(graph.unary_values), graph.unary_ptr[:-1])
            hard = np.count_nonzero(unaries) + np.count_nonzero(hard_terms(graph.arrays))
            size += hard * self.infinity
        #: Amount by which bounds are lowered: the rounding error of sums with cancellation.
        self.rounding = _ROUNDING * size
        self.network, self._moves, self._pairs = _laid_out(graph)
        self._double: CutGraph | None = None
        self._table = np.zeros(1 << _largest_arity(graph)) if graph.n_factors else None

    def minimise(
        self,
        zero: IntArray,
        one: IntArray,
        *,
        current: IntArray | None = None,
        rule: Rule = "qpbo",
        bound: bool = False,
        should_stop: Callable[[], bool] | None = None,
    ) -> Choice | None:
        """Choose between two labellings at every variable; return None if stopped."""
        # Truncation keeps the energy of `current`, whose labels are from the two labellings. A
        # truncated function gives no bound.
        t, single = self._moves, self.network.arrays
        n, nodes = self.graph.n_variables, single.excess.size
        infinite, finite, pairs, positive = _fill(
            self.graph.arrays, t, single, zero, one, self.infinity, self._table
        )
        truncated = positive > 0 and rule == "truncate"
        if truncated:
            _truncate(t, single, self._pairs, zero, one, zero if current is None else current)
        doubled = positive > 0 and not truncated
        surplus = 0.0
        network = self.network
        if doubled:
            network = self._doubled()
            surplus = _load_double(t, single, network.arrays, *self._ends)
        capacity = excess = np.empty(0)
        if bound and not truncated:
            capacity, excess = network.arrays.residual.copy(), network.arrays.excess.copy()
        if not network.solve(should_stop):
            return None
        level = network.arrays.level
        if doubled:
            # Both nodes of a variable must agree, because they are mirror images only up to
            # rounding.
            mirrored = level[nodes : nodes + n]
            taken = np.full(n, -1, dtype=np.int8)
            taken[(level[:n] < 0) & (mirrored > 0)] = 1
            taken[(level[:n] > 0) & (mirrored < 0)] = 0
        else:
            taken = (level[:n] < 0).astype(np.int8)
        value = -math.inf
        if bound and not truncated:
            value = network.dual_value(capacity, excess)
            if doubled:
                value = 0.5 * (value + float(excess[:nodes].sum()) - surplus)
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


def _laid_out(graph: FactorGraph) -> tuple[CutGraph, Moves, int]:
    """Return the network of a graph, the positions of the terms in it, and the number of pairs."""
    if graph.n_factors:
        return _laid_out_with_factors(graph)
    # The network is the graph itself and shares its adjacency.
    network = CutGraph.of(graph.arrays)
    none = np.zeros(0, dtype=np.int64)
    moves = Moves(
        place=network.arcs,
        factor_pair_ptr=np.zeros(1, dtype=np.int64),
        factor_pairs=none.astype(np.int32),
        aux_node=none,
        aux_pair=none,
    )
    return network, moves, graph.n_edges


def _laid_out_with_factors(graph: FactorGraph) -> tuple[CutGraph, Moves, int]:
    """Lay out the variables, the auxiliary variables of factors, and the pairs of both."""
    n, m = graph.n_variables, graph.n_edges
    arities = np.diff(graph.factor_ptr)
    sizes = np.unique(arities).tolist()
    aux_nodes = np.zeros(graph.n_factors, dtype=np.int64)
    aux_pairs = np.zeros(graph.n_factors, dtype=np.int64)
    for arity in sizes:
        node, _ = _aux_pairs(arity)
        aux_nodes[arities == arity] = node[-1] + 1
        aux_pairs[arities == arity] = node.size
    inner_ptr = starts_of(arities * (arities - 1) // 2)
    inner = np.empty((int(inner_ptr[-1]), 2), dtype=np.int64)
    for arity in sizes:
        members = np.flatnonzero(arities == arity)
        scope = graph.factor_scopes[graph.factor_ptr[members, None] + np.arange(arity)]
        first, second = np.triu_indices(arity, 1)
        rows = inner_ptr[members, None] + np.arange(first.size)
        inner[rows] = np.stack([scope[:, first], scope[:, second]], axis=2)
    # Pairs in several factors, or in a factor and an edge, share one coefficient.
    pairs, which = _merged(np.concatenate([graph.edges, inner]), n)
    aux_node = n + starts_of(aux_nodes)
    aux_pair = len(pairs) + starts_of(aux_pairs)
    edges = np.empty((int(aux_pair[-1]), 2), dtype=np.int64)
    edges[: len(pairs)] = pairs
    for arity in sizes:
        members = np.flatnonzero(arities == arity)
        node, position = _aux_pairs(arity)
        rows = aux_pair[members, None] + np.arange(node.size)
        edges[rows, 0] = aux_node[members, None] + node
        edges[rows, 1] = graph.factor_scopes[graph.factor_ptr[members, None] + position]
    network = CutGraph.from_edges(int(aux_node[-1]), edges)
    moves = Moves(
        place=network.arcs,
        factor_pair_ptr=inner_ptr,
        factor_pairs=which[m:].astype(np.int32),
        aux_node=aux_node[:-1],
        aux_pair=aux_pair[:-1],
    )
    return network, moves, len(pairs)


def _merged(pairs: IntArray, n: int) -> tuple[IntArray, IntArray]:
    """Return the distinct unordered pairs by first appearance, and the index of each row's pair."""
    key = pairs.min(axis=1) * n + pairs.max(axis=1)
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty(order.size, dtype=np.int64)
    rank[order] = np.arange(order.size)
    return pairs[first[order]], rank[which]


def _aux_pairs(arity: int) -> tuple[IntArray, IntArray]:
    """Return node and scope position of a factor's auxiliary pairs, in `_fill_factor`'s order."""
    node: list[int] = []
    position: list[int] = []
    count = 0
    for mask in range(1 << arity):
        members = [s for s in range(arity) if mask >> s & 1]
        if len(members) < 3:
            continue
        for _ in range(max(1, (len(members) - 1) // 2)):
            node += [count] * len(members)
            position += members
            count += 1
    return np.array(node, dtype=np.int64), np.array(position, dtype=np.int64)
