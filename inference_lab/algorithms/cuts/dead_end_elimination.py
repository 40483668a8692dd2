"""Two persistency tests on single terms: dead-end elimination and one against all.

``alive`` flags the remaining labels. ``digits`` is scratch of the largest arity, None for a graph
without factors.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from inference_lab._numba import inlined, int64, lean_kernel
from inference_lab.algorithms.cuts.maxflow import CutArrays
from inference_lab.graph.arrays import TABLE, Flags, FloatArray, GraphArrays, IntArray
from inference_lab.kernels.factor_messages import (
    entry_of,
    first_allowed_labels,
    next_allowed_labels,
)
from inference_lab.kernels.messages import edge_cost, half_cost

# Roles of a variable in the one-against-all test.
FREE = 0
CHANGES = 1
AT_ALPHA = 2


@inlined
def _worst_of_edge(g: GraphArrays, alive: Flags, h: int, j: int, a: int, b: int) -> float:
    """Return the largest ``theta(b, z) - theta(a, z)`` over labels ``z`` allowed with ``a``."""
    worst = -np.inf
    start = g.unary_ptr[j]
    k = g.cardinalities[j]
    if g.kinds[h >> 1] == TABLE:
        for z in range(k):
            if alive[start + z]:
                before = half_cost(g, h, a, z)
                if not np.isinf(before):
                    worst = max(worst, half_cost(g, h, b, z) - before)
        return worst
    # All labels except a and b have equal costs.
    other = -1
    for z in range(k):
        if alive[start + z] and z != a and z != b:
            other = z
            break
    if other >= 0 and not np.isinf(half_cost(g, h, a, other)):
        worst = 0.0
    if a < k and alive[start + a]:
        before = half_cost(g, h, a, a)
        if not np.isinf(before):
            worst = max(worst, half_cost(g, h, b, a) - before)
    if b < k and alive[start + b]:
        before = half_cost(g, h, a, b)
        if not np.isinf(before):
            worst = max(worst, half_cost(g, h, b, b) - before)
    return worst


@inlined
def _worst_of_factor(
    g: GraphArrays, alive: Flags, slot: int, a: int, b: int, digits: IntArray
) -> float:
    """Return the same maximum as `_worst_of_edge`, for a position of a factor's scope."""
    f = g.slot_factor[slot]
    lo = g.factor_ptr[f]
    hi = g.factor_ptr[f + 1]
    first_allowed_labels(g, lo, hi, alive, digits)
    worst = -np.inf
    more = True
    while more:
        digits[slot - lo] = a
        before = g.tables[entry_of(g, f, digits)]
        if not np.isinf(before):
            digits[slot - lo] = b
            worst = max(worst, g.tables[entry_of(g, f, digits)] - before)
        more = next_allowed_labels(g, lo, hi, alive, slot, digits)
    return worst


@inlined
def _dominated(
    g: GraphArrays, alive: Flags, i: int, a: int, b: int, digits: IntArray | None
) -> bool:
    """Return whether changing label ``a`` of variable ``i`` to ``b`` raises no energy."""
    before = g.unary[g.unary_ptr[i] + a]
    if np.isinf(before):
        return True
    total = g.unary[g.unary_ptr[i] + b] - before
    if np.isinf(total):
        return False
    # The value at any one label is a lower bound on each maximum. Label a refutes most changes and
    # takes O(1) per edge, so it is tested first.
    least = total if g.inc_ptr[i] == g.inc_ptr[i + 1] else -np.inf
    for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
        j = g.adj_var[p]
        value = -np.inf
        if a < g.cardinalities[j] and alive[g.unary_ptr[j] + a]:
            h = int64(g.adj_half[p])
            now = half_cost(g, h, a, a)
            if not np.isinf(now):
                value = half_cost(g, h, b, a) - now
        least += value
        if least == -np.inf:
            break
    if least > 0.0:
        return False
    for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
        worst = _worst_of_edge(g, alive, int64(g.adj_half[p]), g.adj_var[p], a, b)
        if np.isinf(worst):
            # -inf means that every labelling with a is infinite.
            return bool(worst < 0.0)
        total += worst
    if digits is not None:
        for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
            worst = _worst_of_factor(g, alive, g.inc_slot[p], a, b, digits)
            if np.isinf(worst):
                return bool(worst < 0.0)
            total += worst
    return bool(total <= 0.0)


@inlined
def _cheapest(g: GraphArrays, alive: Flags, i: int, alpha: int) -> int:
    """Return the remaining label of least unary cost, except ``alpha``."""
    start = g.unary_ptr[i]
    best = -1
    for a in range(g.cardinalities[i]):
        if a != alpha and alive[start + a]:
            if best < 0 or g.unary[start + a] < g.unary[start + best]:
                best = a
    return best


@lean_kernel
def eliminate_dead_ends(
    g: GraphArrays,
    alive: Flags,
    left: IntArray,
    dirty: Flags,
    begin: int,
    end: int,
    many: int,
    digits: IntArray | None,
) -> int:
    """Eliminate dead ends of the dirty variables from `begin` to `end`; return their number."""
    dropped = 0
    for i in range(begin, end):
        if not dirty[i]:
            continue
        dirty[i] = 0
        start = g.unary_ptr[i]
        k = g.cardinalities[i]
        before = left[i]
        # With more than `many` labels, only the one of least unary cost is tried, to save time.
        cheapest = _cheapest(g, alive, i, -1)
        for b in range(k):
            if not alive[start + b] or (k > many and b != cheapest):
                continue
            for a in range(k):
                if a != b and alive[start + a] and _dominated(g, alive, i, a, b, digits):
                    alive[start + a] = 0
                    left[i] -= 1
        if left[i] < before:
            dropped += before - left[i]
            dirty[i] = left[i] > 1
            for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
                dirty[g.adj_var[p]] = left[g.adj_var[p]] > 1
            for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
                f = g.slot_factor[g.inc_slot[p]]
                for s in range(g.factor_ptr[f], g.factor_ptr[f + 1]):
                    dirty[g.scopes[s]] = left[g.scopes[s]] > 1
    return dropped


class AgainstAll(NamedTuple):
    """Test of one label against all others."""

    #: (like the unaries): 1 for the labels left.
    alive: Flags
    #: (n,): the role of each variable: `FREE`, `CHANGES` to ``alpha``, or `AT_ALPHA`.
    role: Flags
    alpha: int
    #: Limit to which falls of cost are clipped.
    infinity: float


@inlined
def _fits(alive: Flags, start: int, k: int, free: bool, alpha: int, a: int) -> bool:
    """Return whether ``a`` may be the label of a free or changing variable before the change."""
    if a < 0 or a >= k or not alive[start + a]:
        return False
    return free or a != alpha


@inlined
def _fall(before: float, after: float) -> float:
    """Return ``before - after``, ``+inf`` if the labelling before is forbidden."""
    if np.isinf(before):
        return np.inf
    return before - after


@inlined
def _unary_fall(g: GraphArrays, alive: Flags, i: int, alpha: int) -> float:
    """Return the least fall of a variable's own cost when it changes to ``alpha``."""
    start = g.unary_ptr[i]
    least = np.inf
    for a in range(g.cardinalities[i]):
        if a != alpha and alive[start + a]:
            least = min(least, _fall(g.unary[start + a], g.unary[start + alpha]))
    return least


@inlined
def _least_fall(
    g: GraphArrays, alive: Flags, e: int, alpha: int, free_i: bool, free_j: bool
) -> float:
    """Return the least fall of an edge's cost when its ends that are not free get ``alpha``."""
    i = g.edges[e, 0]
    j = g.edges[e, 1]
    si = g.unary_ptr[i]
    sj = g.unary_ptr[j]
    ki = g.cardinalities[i]
    kj = g.cardinalities[j]
    least = np.inf
    for a in range(ki):
        if not _fits(alive, si, ki, free_i, alpha, a):
            continue
        after_a = a if free_i else alpha
        if g.kinds[e] == TABLE:
            for b in range(kj):
                if _fits(alive, sj, kj, free_j, alpha, b):
                    after_b = b if free_j else alpha
                    least = min(
                        least, _fall(edge_cost(g, e, a, b), edge_cost(g, e, after_a, after_b))
                    )
            continue
        # All labels except a and alpha have equal costs.
        other = -1
        for b in range(kj):
            if b != a and b != alpha and _fits(alive, sj, kj, free_j, alpha, b):
                other = b
                break
        for which in range(3):
            b = other
            if which == 0:
                b = a
            elif which == 1:
                b = alpha
            if _fits(alive, sj, kj, free_j, alpha, b):
                after_b = b if free_j else alpha
                least = min(least, _fall(edge_cost(g, e, a, b), edge_cost(g, e, after_a, after_b)))
    return least


@inlined
def _at_alpha(g: GraphArrays, alive: Flags, i: int, h: int, alpha: int) -> float:
    """Return the least fall of an edge's cost when ``i`` changes and the other end has alpha."""
    start = g.unary_ptr[i]
    if alpha >= g.cardinalities[g.edges[h >> 1, 1 - (h & 1)]]:
        return 0.0
    after = half_cost(g, h, alpha, alpha)
    least = np.inf
    for a in range(g.cardinalities[i]):
        if a != alpha and alive[start + a]:
            least = min(least, _fall(half_cost(g, h, a, alpha), after))
    return least


@inlined
def _clipped(value: float, infinity: float) -> float:
    return min(infinity, max(-infinity, value))


@lean_kernel
def write_scores(g: GraphArrays, test: AgainstAll, score: FloatArray, begin: int, end: int) -> None:
    """Write ``H_U({i})`` as if all other variables had alpha; edges from `begin` to `end`."""
    alive, role, alpha, infinity = test.alive, test.role, test.alpha, test.infinity
    if begin == 0:
        for i in range(g.cardinalities.size):
            score[i] = 0.0
            if role[i] == CHANGES:
                score[i] = _clipped(_unary_fall(g, alive, i, alpha), infinity)
    for e in range(begin, end):
        for side in range(2):
            i = g.edges[e, side]
            if role[i] == CHANGES:
                score[i] += _clipped(_at_alpha(g, alive, i, 2 * e + side, alpha), infinity)


@lean_kernel
def prune(
    g: GraphArrays,
    test: AgainstAll,
    score: FloatArray,
    stack: npt.NDArray[np.int32],
    count: int,
    budget: int,
) -> int:
    """Remove the variables from ``U`` that fail the one-against-all test on their own."""
    # ``H_U({i})`` does not rise when ``U`` shrinks, so these variables are in no set that passes
    # (pairwise terms only). Most variables are removed here, before any cut. The first `count`
    # entries of `stack` are removed variables whose neighbours' scores are still outdated. Returns
    # the number of such entries when the budget of pairs of labels is spent.
    alive, role, alpha, infinity = test.alive, test.role, test.alpha, test.infinity
    while count > 0 and budget > 0:
        count -= 1
        j = stack[count]
        for p in range(g.adj_ptr[j], g.adj_ptr[j + 1]):
            i = int64(g.adj_var[p])
            if role[i] != CHANGES:
                continue
            h = g.adj_half[p] ^ 1
            score[i] -= _clipped(_at_alpha(g, alive, i, h, alpha), infinity)
            # The fall of the best label takes O(1) and may suffice to remove the variable.
            a = _cheapest(g, alive, i, alpha)
            after = np.inf
            if a < g.cardinalities[j] and alive[g.unary_ptr[j] + a]:
                after = _fall(half_cost(g, h, a, a), half_cost(g, h, a, alpha))
            budget -= g.cardinalities[i]
            if score[i] + _clipped(after, infinity) >= 0.0:
                after = _least_fall(g, alive, h >> 1, alpha, h & 1 == 1, h & 1 == 0)
                budget -= g.cardinalities[i] * g.cardinalities[j]
            score[i] += _clipped(after, infinity)
            if score[i] < 0.0:
                role[i] = FREE
                stack[count] = i
                count += 1
    return count


@inlined
def _least_fall_of_factor(g: GraphArrays, test: AgainstAll, f: int, digits: IntArray) -> float:
    """Return the least fall over all labels, at most 0, charged to each changing variable."""
    lo, hi = g.factor_ptr[f], g.factor_ptr[f + 1]
    least = 0.0
    first_allowed_labels(g, lo, hi, test.alive, digits)
    more = True
    while more:
        after = 0
        for s in range(lo, hi):
            v = g.scopes[s]
            label = digits[s - lo] if test.role[v] == FREE else test.alpha
            after = after * g.cardinalities[v] + label
        before = g.tables[entry_of(g, f, digits)]
        least = min(least, _fall(before, g.tables[g.table_ptr[f] + after]))
        more = next_allowed_labels(g, lo, hi, test.alive, -1, digits)
    return least


@lean_kernel
def fill_network(
    g: GraphArrays,
    test: AgainstAll,
    c: CutArrays,
    place: npt.NDArray[np.int32],
    begin: int,
    end: int,
    digits: IntArray | None,
) -> None:
    """Write ``H_U`` into the network of the graph's edges; the sink side ``v_i = 1`` is ``V``."""
    # The first block of edges also writes the variables, the last one the larger factors.
    alive, role, alpha, infinity = test.alive, test.role, test.alpha, test.infinity
    if begin == 0:
        for i in range(g.cardinalities.size):
            c.excess[i] = 0.0
            if role[i] == CHANGES:
                c.excess[i] = _clipped(_unary_fall(g, alive, i, alpha), infinity)
    for e in range(begin, end):
        i = g.edges[e, 0]
        j = g.edges[e, 1]
        changes_i, changes_j = role[i] == CHANGES, role[j] == CHANGES
        only_i = only_j = half = 0.0
        if changes_i and role[j] != FREE:
            only_i = _clipped(_at_alpha(g, alive, i, 2 * e, alpha), infinity)
        if changes_j and role[i] != FREE:
            only_j = _clipped(_at_alpha(g, alive, j, 2 * e + 1, alpha), infinity)
        if (changes_i or changes_j) and role[i] != AT_ALPHA and role[j] != AT_ALPHA:
            fall = _clipped(
                _least_fall(g, alive, e, alpha, role[i] == FREE, role[j] == FREE), infinity
            )
            if changes_i and changes_j:
                # Clipped at 0 to be submodular; a smaller fall only makes the test stricter.
                half = 0.5 * min(0.0, fall - only_i - only_j)
            elif changes_i:
                only_i = fall
            else:
                only_j = fall
        if changes_i:
            c.excess[i] += only_i + half
        if changes_j:
            c.excess[j] += only_j + half
        c.residual[place[e, 0]] = -half
        c.residual[place[e, 1]] = -half
    if digits is not None:
        for f in range(g.factor_ptr.size - 1 if end == g.edges.shape[0] else 0):
            lo, hi = g.factor_ptr[f], g.factor_ptr[f + 1]
            changing = False
            for s in range(lo, hi):
                changing = changing or role[g.scopes[s]] == CHANGES
            if not changing:
                continue
            least = _least_fall_of_factor(g, test, f, digits)
            for s in range(lo, hi):
                if role[g.scopes[s]] == CHANGES:
                    c.excess[g.scopes[s]] += _clipped(least, infinity)
