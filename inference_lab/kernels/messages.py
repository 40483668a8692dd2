"""Operations on one variable or one message, shared by the solvers' kernels.

A *half-edge* ``h = 2 e + s`` is the end ``edges[e, s]`` of edge ``e``. The message of half-edge
``h`` arrives at that variable, from ``edges[e, 1 - s]``. Messages are energies. Sums that may
contain ``+inf`` are stored as a finite part and a count of infinite terms, so that a term can be
subtracted again without ``inf - inf``.

Indices in inner loops are unsigned, ``np.uint64(i)``. A signed index may be negative, and numba's
test for that costs as much as the access and prevents vector instructions. Do not mix signed and
unsigned integers in arithmetic: numba converts both to floats.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from inference_lab._numba import inlined, inlined_minimum
from inference_lab.contract import Marginals
from inference_lab.graph.arrays import (
    NO_FORM,
    POTTS,
    TABLE,
    TRUNCATED_LINEAR,
    TRUNCATED_QUADRATIC,
    FloatArray,
    GraphArrays,
    IntArray,
    blocks,
    starts_of,
    sum_in_blocks,
)
from inference_lab.graph.factor_graph import FactorGraph, on_slices


def with_tables(graph: FactorGraph) -> bool | None:
    """Return whether the graph has tables or factors; None instead of False."""
    # Numba leaves out what depends on an argument that is None, so that graphs of Potts and
    # diagonal terms compile the code for these alone.
    return True if graph.n_factors or (graph.edge_kinds == TABLE).any() else None


def slot_ptr(graph: FactorGraph) -> IntArray:
    """Return the offset of the message at each position of ``scopes``, shape (slots + 1,)."""
    return starts_of(graph.cardinalities[graph.factor_scopes])


def cost_scale(graph: FactorGraph) -> float:
    """Return the largest mean absolute finite cost of a kind of term, at least 1e-300."""
    # The kinds are unaries, equal ends, unequal ends, tables and higher-order tables. Changes of
    # messages are compared with this scale, so that tolerances do not depend on the unit of costs.
    diagonal, table = graph.edge_split
    before = np.zeros(graph.pairwise_values.size + 1)
    np.abs(graph.pairwise_values, out=before[1:])
    before[np.isinf(before)] = 0.0
    np.cumsum(before, out=before)

    def pool_means(edges: Any) -> FloatArray:
        length = graph.pool_sizes(edges)
        at = graph.edge_offsets[edges]
        return np.asarray((before[at + length] - before[at]) / length)

    def table_means(edges: Any) -> FloatArray:
        return np.asarray(pool_means(edges) * graph.edge_weights[edges])

    means = (
        _mean_size(graph.table_values.size, lambda part: graph.table_values[part]),
        _mean_size(graph.unary_values.size, lambda part: _above_least(graph, part)),
        _mean_size(len(diagonal), on_slices(pool_means, diagonal)),
        _mean_size(len(diagonal), on_slices(lambda edges: graph.edge_weights[edges], diagonal)),
        _mean_size(len(table), on_slices(table_means, table)),
    )
    return max(*means, 1e-300)


def message_limit(graph: FactorGraph, temperature: float) -> float:
    """Return a bound on the entries of normalised messages on a forest."""
    # On cycles of hard terms, messages count the same costs again in every sweep. Without a limit
    # they would grow until they overflow.
    return 2.0 * graph.magnitude + temperature * math.log(2.0) * graph.log2_states


def _above_least(graph: FactorGraph, entries: slice) -> FloatArray:
    """Return unaries above the least one of their variable, an offset of which changes nothing."""
    first = int(np.searchsorted(graph.unary_ptr, entries.start, side="right")) - 1
    last = int(np.searchsorted(graph.unary_ptr, entries.stop))
    minima = graph.least_of(slice(first, last))
    repeated = np.repeat(np.where(np.isinf(minima), 0.0, minima), graph.cardinalities[first:last])
    skipped = entries.start - int(graph.unary_ptr[first])
    rows = repeated[skipped : skipped + entries.stop - entries.start]
    return np.asarray(graph.unary_values[entries] - rows)


def _mean_size(count: int, costs: Callable[[slice], FloatArray]) -> float:
    """Return the mean absolute value of the finite costs, 0 if there are none."""
    mean = float(sum_in_blocks(count, lambda part: np.abs(costs(part)))) / max(count, 1)
    if mean < np.inf:
        return mean
    finite = np.concatenate([row[np.isfinite(row)] for row in map(costs, blocks(count))])
    return float(np.abs(finite).mean()) if finite.size else 0.0


def unflatten(graph: FactorGraph, flat: FloatArray) -> Marginals:
    """Return per-label values as an (n, k) array, or a list of rows where cardinalities differ."""
    if graph.n_labels is not None:
        return flat.reshape(graph.n_variables, graph.n_labels)
    return [flat[lo:hi] for lo, hi in zip(graph.unary_ptr[:-1], graph.unary_ptr[1:], strict=True)]


def aligned_zeros(size: int) -> FloatArray:
    """Return zeros that begin at a cache line, so that no vector straddles two lines."""
    array = np.zeros((size // 8 + 2) * 8)
    skip = -(array.ctypes.data // 8) % 8
    return array[skip : skip + size]


#: How the message of an edge is computed.
GENERAL, ATTRACTIVE, REPULSIVE, LINEAR = 0, 1, 2, 3


class Terms(NamedTuple):
    """Parameters of the pairwise terms with a specialised kernel, each (m,).

    * ``way`` uint8: `ATTRACTIVE` or `REPULSIVE` for Potts terms between variables with equal
      numbers of labels, `LINEAR` for truncated linear terms, `GENERAL` for all others;
    * ``base``: the least cost; ``rise``: the other cost of a Potts term minus the least one, or the
      slope; ``truncation``: the largest cost of a truncated linear term minus the least one.
    """

    way: npt.NDArray[np.uint8]
    base: FloatArray
    rise: FloatArray
    truncation: FloatArray


def make_terms(g: GraphArrays) -> Terms:
    """Classify the pairwise terms by how their messages are computed."""
    m = g.kinds.size
    way = np.full(m, GENERAL, dtype=np.uint8)
    base, rise, truncation = np.zeros((3, m))
    for part in blocks(m):
        sizes = g.cardinalities[g.edges[part]]
        weights, offsets = g.weights[part], g.offsets[part]
        # The difference of two infinite costs is undefined.
        potts = np.flatnonzero(
            (g.kinds[part] == POTTS)
            & (sizes[:, 0] == sizes[:, 1])
            & (np.isfinite(weights) | np.isfinite(g.pairwise[offsets]))
        )
        same, differ = g.pairwise[offsets[potts]], weights[potts]
        way[part][potts] = np.where(differ >= same, ATTRACTIVE, REPULSIVE)
        base[part][potts] = np.minimum(same, differ)
        rise[part][potts] = np.abs(differ - same)
        linear = np.flatnonzero(g.forms[part] == TRUNCATED_LINEAR)
        at, weight = offsets[linear], weights[linear]
        first = g.pairwise[at]
        way[part][linear] = LINEAR
        base[part][linear] = weight * first
        rise[part][linear] = weight * (g.pairwise[at + 1] - first)
        truncation[part][linear] = weight * (g.pairwise[at + sizes[linear, 0] - 1] - first)
    return Terms(way, base, rise, truncation)


@inlined_minimum
def least(k: int, values: FloatArray) -> float:
    """Return the smallest of the first `k` values."""
    low = np.inf
    for a in range(k):
        low = min(low, values[a])
    return low


@inlined_minimum
def greatest(k: int, values: FloatArray) -> float:
    """Return the largest of the first `k` values."""
    high = -np.inf
    for a in range(k):
        high = max(high, values[a])
    return high


@inlined
def first_label(k: int, value: float, values: FloatArray) -> int:
    """Return the first of `k` labels with this value, `k` if there is none."""
    # Without branches, so that it compiles to vector instructions.
    label = k
    for a in range(k):
        label = min(label, a if values[a] == value else k)
    return label


@inlined_minimum
def repulsive_message(k: int, rise: float, cavity: FloatArray, message: FloatArray) -> float:
    """Send `cavity` through a Potts term to `message`; return the least cavity."""
    # `rise > 0` is the cost of equal minus the cost of unequal labels. Only the cheapest label of
    # the sender can cost the receiver more than others. `cavity` is overwritten.
    best = least(k, cavity)
    label = 0
    for a in range(k):
        message[a] = 0.0
        if cavity[a] == best:
            label = a
    cavity[label] = np.inf
    message[label] = min(rise, least(k, cavity) - best)
    return best


@inlined_minimum
def lower_envelope(
    k: int, slope: float, costs: FloatArray, down: FloatArray, up: FloatArray
) -> float:
    """Write ``min(up, down)[b] = min_a costs[a] + slope |a - b|``; return the least cost."""
    # A distance transform (Felzenszwalb and Huttenlocher 2006, sec. 3.2) with two independent
    # passes: `up` holds the minimum over the labels up to ``b``, `down` over the others.
    low = np.inf
    high = np.inf
    for a in range(k):
        low = min(costs[a], low + slope)
        up[a] = low
        b = np.uint64(k - 1 - a)
        high = min(costs[b], high + slope)
        down[b] = high
    return least(k, costs)


@inlined
def edge_cost(g: GraphArrays, e: int, a: int, b: int) -> float:
    """Return the cost of label ``a`` at ``edges[e, 0]`` and ``b`` at ``edges[e, 1]``."""
    kind = g.kinds[e]
    cost = g.weights[e]
    if kind == TABLE:
        cost *= g.pairwise[g.offsets[e] + a * g.cardinalities[g.edges[e, 1]] + b]
    elif a == b:
        cost = g.pairwise[g.offsets[e] + a * kind]
    return float(cost)


@inlined
def half_cost(g: GraphArrays, h: int, a: int, b: int) -> float:
    """Return the cost of an edge with ``a`` at the end of half-edge ``h``, ``b`` at the other."""
    if h & 1 == 0:
        return edge_cost(g, h >> 1, a, b)
    return edge_cost(g, h >> 1, b, a)


@inlined
def add_term(
    value: float, sign: int, at: int, sums: FloatArray, infinite: IntArray | None
) -> float:
    """Add a term to a sum or subtract it; return its absolute value, 0 if it is counted."""
    if infinite is not None and np.isinf(value):
        infinite[at] += sign
        return 0.0
    sums[at] += sign * value
    return abs(value)


@inlined
def add_counted(k: int, costs: FloatArray, sums: FloatArray, infinite: IntArray | None) -> None:
    """Add costs to sums, which are kept as finite part and number of infinite terms if counted."""
    for a in range(k):
        add_term(costs[a], 1, a, sums, infinite)


@inlined
def factor_slice(
    g: GraphArrays, x: IntArray, f: int, slot: int, other: int
) -> tuple[int, int, int]:
    """Return the offset of a factor's costs with two free variables, and its two strides."""
    # The free variables are at positions `slot` and `other` of ``scopes``; `other` may be -1.
    index = g.table_ptr[f]
    stride = 1
    first = 0
    second = 0
    for s in range(g.factor_ptr[f + 1] - 1, g.factor_ptr[f] - 1, -1):
        if s == slot:
            first = stride
        elif s == other:
            second = stride
        else:
            index += x[g.scopes[s]] * stride
        stride *= g.cardinalities[g.scopes[s]]
    return index, first, second


@inlined
def local_costs(
    g: GraphArrays, x: IntArray, i: int, cost: FloatArray, infinite: IntArray | None
) -> float:
    """Fill the costs of each label of variable ``i`` while all others keep theirs."""
    # ``cost[a]`` gets the finite part, ``infinite[a]`` the number of infinite terms. Returns the
    # sum of absolute finite contributions, the scale of the rounding error. Without `infinite`, the
    # scale leaves out the unary, and costs are up to a constant and infinite where the unary is; if
    # another term is infinite, so is the scale, and `cost` is undefined.
    k = g.cardinalities[i]
    unary = g.unary[g.unary_ptr[i] : g.unary_ptr[i] + k]
    scale = 0.0
    if infinite is None:
        for a in range(k):
            cost[a] = unary[a]
    else:
        for a in range(k):
            cost[a] = 0.0
            infinite[a] = 0
            scale = max(scale, add_term(unary[a], 1, a, cost, infinite))
    base = 0.0
    base_infinite = 0
    for q in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
        p = np.uint64(q)
        h = np.uint64(g.adj_half[p])
        j = np.uint64(g.adj_var[p])
        e = h >> np.uint64(1)
        b = x[j]
        kind = g.kinds[e]
        weight = g.weights[e]
        at = g.offsets[e]
        if kind != TABLE:
            # `weight` for every label, corrected at the label of the neighbour: O(1).
            if infinite is not None and np.isinf(weight):
                base_infinite += 1
            else:
                base += weight
                scale += abs(weight)
            if b < k:
                same = g.pairwise[np.uint64(at + b * kind)]
                add_term(weight, -1, b, cost, infinite)
                scale += add_term(same, 1, b, cost, infinite)
        elif g.forms[e] != NO_FORM:
            # The table is symmetric and finite, with the extremes at the ends of its first row.
            row = g.pairwise[at + b * k : at + b * k + k]
            for a in range(k):
                cost[a] += weight * row[a]
            ends = g.pairwise[np.uint64(at)], g.pairwise[np.uint64(at + k - 1)]
            scale += abs(weight) * max(abs(ends[0]), abs(ends[1]))
        else:
            stride = 1
            if h & np.uint64(1) == np.uint64(0):
                at += b
                stride = g.cardinalities[j]
            else:
                at += b * k
            largest = 0.0
            for a in range(k):
                value = weight * g.pairwise[np.uint64(at + a * stride)]
                largest = max(largest, add_term(value, 1, a, cost, infinite))
            scale += largest
    for q in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
        slot = g.inc_slot[q]
        index, own_stride, _ = factor_slice(g, x, g.slot_factor[slot], slot, -1)
        largest = 0.0
        for a in range(k):
            value = g.tables[index + a * own_stride]
            largest = max(largest, add_term(value, 1, a, cost, infinite))
        scale += largest
    if infinite is not None:
        for a in range(k):
            cost[a] += base
            infinite[a] += base_infinite
    return scale


@inlined_minimum
def quadratic_message(
    k: int, curve: float, truncation: float, cavity: FloatArray, out: FloatArray
) -> None:
    """Write ``out[b] = min_a min(curve * (a - b)^2, truncation) + cavity[a]`` with curve > 0."""
    # Only labels within reach of the truncation are compared, in vector instructions. An envelope
    # of parabolas (Felzenszwalb and Huttenlocher 2012) pays from a reach of about 64 on only.
    limit = least(k, cavity) + truncation
    for b in range(k):
        out[b] = min(cavity[b], limit)
    reach = int(min(float(k - 1), np.sqrt(truncation / curve)))
    for d in range(1, reach + 1):
        rise = curve * float(d * d)
        for b in range(k - d):
            out[b] = min(out[b], cavity[b + d] + rise)
        for b in range(k - d):
            out[b + d] = min(out[b + d], cavity[b] + rise)


@inlined_minimum
def min_sum_message(g: GraphArrays, h: int, cavity: FloatArray, out: FloatArray) -> float:
    """Write the min-sum message of half-edge ``h`` and return its smallest entry."""
    # ``out[b] = min_a theta(a, b) + cavity[a]`` with ``a`` the label of the sender, not normalised.
    # `cavity` is changed and restored.
    e = h >> 1
    side = h & 1
    ka = g.cardinalities[g.edges[e, 1 - side]]
    kb = g.cardinalities[g.edges[e, side]]
    kind = g.kinds[e]
    weight = g.weights[e]
    offset = g.offsets[e]
    best = least(ka, cavity)
    if kind != TABLE:
        # At the best label of the sender, the second best counts for unequal labels. Separate
        # simple loops compile to vector instructions.
        best_label = 0
        for a in range(ka):
            if cavity[a] == best:
                best_label = a
        cavity[best_label] = np.inf
        second = least(ka, cavity)
        cavity[best_label] = best
        others = weight + best
        both = min(ka, kb)
        if kind == 0:
            same = g.pairwise[offset]
            for b in range(both):
                out[b] = min(others, same + cavity[b])
        else:
            table = g.pairwise[offset : offset + both]
            for b in range(both):
                out[b] = min(others, table[b] + cavity[b])
        for b in range(both, kb):
            out[b] = others
        if best_label < kb:
            out[best_label] = min(weight + second, g.pairwise[offset + best_label * kind] + best)
    elif g.forms[e] == TRUNCATED_LINEAR:
        shift = weight * g.pairwise[offset]
        slope = weight * (g.pairwise[offset + 1] - g.pairwise[offset])
        truncation = best + weight * (g.pairwise[offset + kb - 1] - g.pairwise[offset])
        value = np.inf
        for b in range(kb):
            value = min(cavity[b], value + slope)
            out[b] = value
        value = np.inf
        for b in range(kb - 1, -1, -1):
            value = min(out[b], value + slope)
            out[b] = min(value, truncation) + shift
    elif (
        g.forms[e] == TRUNCATED_QUADRATIC
        # A curve that vanishes by underflow or a zero weight has no parabolas.
        and weight * (g.pairwise[offset + 1] - g.pairwise[offset]) > 0.0
    ):
        shift = weight * g.pairwise[offset]
        curve = weight * (g.pairwise[offset + 1] - g.pairwise[offset])
        truncation = weight * (g.pairwise[offset + kb - 1] - g.pairwise[offset])
        quadratic_message(kb, curve, truncation, cavity, out)
        for b in range(kb):
            out[b] += shift
    elif side == 1:
        for b in range(kb):
            out[b] = np.inf
        for a in range(ka):
            row = g.pairwise[offset + a * kb : offset + (a + 1) * kb]
            sent = cavity[a]
            for b in range(kb):
                out[b] = min(out[b], weight * row[b] + sent)
    else:
        for b in range(kb):
            row = g.pairwise[offset + b * ka : offset + (b + 1) * ka]
            value = np.inf
            for a in range(ka):
                value = min(value, weight * row[a] + cavity[a])
            out[b] = value
    return least(kb, out)


@inlined
def soft_minimum(x: float, y: float, temperature: float) -> float:
    """Return ``-T log(exp(-x / T) + exp(-y / T))``; ``+inf`` is the neutral element."""
    if x > y:
        x, y = y, x
    if np.isinf(y):
        return x
    return float(x - temperature * np.log1p(np.exp((x - y) / temperature)))


@inlined
def sum_product_message(
    g: GraphArrays, h: int, temperature: float, cavity: FloatArray, out: FloatArray
) -> float:
    """Write the sum-product message of half-edge ``h`` as energies; return its smallest entry."""
    # ``out[b] = -T log sum_a exp(-(theta(a, b) + cavity[a]) / T)``, not normalised.
    e = h >> 1
    side = h & 1
    ka = g.cardinalities[g.edges[e, 1 - side]]
    kb = g.cardinalities[g.edges[e, side]]
    kind = g.kinds[e]
    weight = g.weights[e]
    offset = g.offsets[e]
    smallest = np.inf
    if kind != TABLE:
        best = np.inf
        second = np.inf
        best_label = -1
        for a in range(ka):
            if cavity[a] < best:
                second = best
                best = cavity[a]
                best_label = a
            elif cavity[a] < second:
                second = cavity[a]
        if best_label < 0:
            out[:kb] = np.inf
            return smallest
        # Sums are relative to the smallest and, without it, to the second smallest, so that
        # underflow and cancellation lose no significant digits.
        total = 0.0
        without_best = np.inf
        if second < np.inf:
            rest = 0.0
            for a in range(ka):
                if a != best_label:
                    rest += np.exp((second - cavity[a]) / temperature)
            total = rest * np.exp((best - second) / temperature)
            without_best = second - temperature * np.log(rest)
        for b in range(kb):
            if b == best_label:
                others = without_best
            elif b < ka and total > 0.0:
                share = np.exp((best - cavity[b]) / temperature)
                others = best - temperature * np.log1p(max(0.0, total - share))
            else:
                others = best - temperature * np.log1p(total)
            value = weight + others
            if b < ka:
                value = soft_minimum(value, g.pairwise[offset + b * kind] + cavity[b], temperature)
            out[b] = value
            smallest = min(smallest, value)
        return smallest
    stride_a = 1
    stride_b = 1
    if side == 1:
        stride_a = kb
    else:
        stride_b = ka
    for b in range(kb):
        first = offset + b * stride_b
        best = np.inf
        for a in range(ka):
            best = min(best, weight * g.pairwise[first + a * stride_a] + cavity[a])
        value = best
        if best < np.inf:
            total = 0.0
            for a in range(ka):
                total += np.exp(
                    (best - weight * g.pairwise[first + a * stride_a] - cavity[a]) / temperature
                )
            # Rounding must not make the sum 0 or infinite.
            value = best - temperature * np.log(min(max(total, 1.0), float(ka)))
        out[b] = value
        smallest = min(smallest, value)
    return smallest
