"""Partial optimality: labels that some optimal labelling does without, found beforehand.

Three tests, each of which keeps at least one optimal labelling, are applied in turn until they
find next to nothing:

* *dead-end elimination* (Goldstein 1994): label ``a`` of variable ``i`` is dropped for a label
  ``b`` if ``theta_i(b) - theta_i(a) + sum_f max_z (theta_f(b, z) - theta_f(a, z)) <= 0``, the
  maxima over the labels ``z`` of the other variables of each term: changing ``a`` to ``b`` then
  raises no energy;
* *one against all* (Kovtun 2003; as an improving mapping, Shekhovtsov 2014): all variables of a
  set ``U`` get label ``alpha`` if setting them so raises no energy. For a labelling ``x`` let
  ``V`` be the variables of ``U`` that have other labels. The energy falls by at least
  ``H_U(V)``, the sum over the terms of the least fall over all ``x`` with this ``V``, a quadratic
  function of ``V`` (lowered where it is not submodular). A minimum cut finds the ``V`` of least
  ``H_U(V)``; if it is empty, ``U`` has the property, else ``V`` is taken out of ``U`` and the
  test repeated (as Swoboda et al. 2014 prune);
* *roof duality* (Hammer, Hansen, Simeone 1984), once no variable has more than two labels left:
  the variables that the roof dual labels have these labels in every optimal labelling.

Each test may use that some optimal labelling survived those before, so they can be chained.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from inference_lab._numba import inlined, lean_kernel
from inference_lab.algorithms.cuts.maxflow import CutArrays, CutGraph, larger_power_of_two
from inference_lab.algorithms.cuts.roof_duality import LabelChoice, magnitude, unsupported_arity
from inference_lab.graph.arrays import DIAGONAL, POTTS, TABLE, FloatArray, GraphArrays, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.terms import DiagonalTerms, OwnTables, PairwiseTerms, SharedTable
from inference_lab.kernels.messages import edge_cost

__all__ = ["Reduction", "reduce"]

Flags = npt.NDArray[np.uint8]

#: With more labels than this only the most promising label is tried as a replacement.
_MANY_LABELS = 16

#: Variables, and pairs of labels of an edge, between two looks at the clock.
_BLOCK = 2000
_PAIRS = 20_000_000

#: Another round is made if the last one ruled out more than this share of the labels left.
_WORTHWHILE = 0.002

# What a variable does in the one-against-all test.
_FREE = 0
_CHANGES = 1
_AT_ALPHA = 2


@inlined
def _half_cost(g: GraphArrays, h: int, a: int, b: int) -> float:
    """Return the cost of an edge with ``a`` at the end of half-edge ``h``, ``b`` at the other."""
    if h & 1 == 0:
        return edge_cost(g, h >> 1, a, b)
    return edge_cost(g, h >> 1, b, a)


@inlined
def _worst_of_edge(g: GraphArrays, alive: Flags, h: int, j: int, a: int, b: int) -> float:
    """Return ``max_z theta(b, z) - theta(a, z)`` over labels of ``j`` that ``a`` does not forbid.

    ``-inf`` if there is none, ``+inf`` if ``b`` forbids one of them.
    """
    worst = -np.inf
    start = g.unary_ptr[j]
    k = g.cardinalities[j]
    if g.kinds[h >> 1] == TABLE:
        for z in range(k):
            if alive[start + z]:
                before = _half_cost(g, h, a, z)
                if not np.isinf(before):
                    worst = max(worst, _half_cost(g, h, b, z) - before)
        return worst
    # All labels but a and b are alike.
    other = -1
    for z in range(k):
        if alive[start + z] and z != a and z != b:
            other = z
            break
    if other >= 0 and not np.isinf(_half_cost(g, h, a, other)):
        worst = 0.0
    if a < k and alive[start + a]:
        before = _half_cost(g, h, a, a)
        if not np.isinf(before):
            worst = max(worst, _half_cost(g, h, b, a) - before)
    if b < k and alive[start + b]:
        before = _half_cost(g, h, a, b)
        if not np.isinf(before):
            worst = max(worst, _half_cost(g, h, b, b) - before)
    return worst


@inlined
def _next_state(g: GraphArrays, alive: Flags, f: int, digits: IntArray, fixed: int) -> bool:
    """Advance to the next labels that are left to a factor's variables; False after the last.

    The position `fixed` of the scope keeps its label.
    """
    lo = g.factor_ptr[f]
    s = g.factor_ptr[f + 1] - lo - 1
    while s >= 0:
        if s != fixed:
            v = g.scopes[lo + s]
            digits[s] += 1
            while digits[s] < g.cardinalities[v] and not alive[g.unary_ptr[v] + digits[s]]:
                digits[s] += 1
            if digits[s] < g.cardinalities[v]:
                return True
            digits[s] = 0
            while not alive[g.unary_ptr[v] + digits[s]]:
                digits[s] += 1
        s -= 1
    return False


@inlined
def _first_state(g: GraphArrays, alive: Flags, f: int, digits: IntArray) -> None:
    lo = g.factor_ptr[f]
    for s in range(g.factor_ptr[f + 1] - lo):
        v = g.scopes[lo + s]
        digits[s] = 0
        while not alive[g.unary_ptr[v] + digits[s]]:
            digits[s] += 1


@inlined
def _worst_of_factor(
    g: GraphArrays, alive: Flags, slot: int, a: int, b: int, digits: IntArray
) -> float:
    """Return what `_worst_of_edge` does, for the variable at one position of a factor's scope."""
    f = g.slot_factor[slot]
    lo = g.factor_ptr[f]
    hi = g.factor_ptr[f + 1]
    own = slot - lo
    stride = 1
    for s in range(hi - 1, slot, -1):
        stride *= g.cardinalities[g.scopes[s]]
    _first_state(g, alive, f, digits)
    worst = -np.inf
    while True:
        index = g.table_ptr[f]
        step = 1
        for s in range(hi - lo - 1, -1, -1):
            if s != own:
                index += digits[s] * step
            step *= g.cardinalities[g.scopes[lo + s]]
        before = g.tables[index + a * stride]
        if not np.isinf(before):
            worst = max(worst, g.tables[index + b * stride] - before)
        if not _next_state(g, alive, f, digits, own):
            return worst


@inlined
def _dominated(g: GraphArrays, alive: Flags, i: int, a: int, b: int, digits: IntArray) -> bool:
    """Whether changing label ``a`` of variable ``i`` to ``b`` raises no energy."""
    before = g.unary[g.unary_ptr[i] + a]
    if np.isinf(before):
        return True
    total = g.unary[g.unary_ptr[i] + b] - before
    if np.isinf(total):
        return False
    # The maxima are at least the values at one label each. That of a is the one that speaks
    # against most changes, and looking at it takes O(1) an edge.
    least = total if g.inc_ptr[i] == g.inc_ptr[i + 1] else -np.inf
    for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
        j = g.adj_var[p]
        value = -np.inf
        if a < g.cardinalities[j] and alive[g.unary_ptr[j] + a]:
            now = _half_cost(g, g.adj_half[p], a, a)
            if not np.isinf(now):
                value = _half_cost(g, g.adj_half[p], b, a) - now
        least += value
        if least == -np.inf:
            break
    if least > 0.0:
        return False
    for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
        worst = _worst_of_edge(g, alive, g.adj_half[p], g.adj_var[p], a, b)
        if np.isinf(worst):
            # With -inf, no labelling with a is finite.
            return bool(worst < 0.0)
        total += worst
    for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
        worst = _worst_of_factor(g, alive, g.inc_slot[p], a, b, digits)
        if np.isinf(worst):
            return bool(worst < 0.0)
        total += worst
    return bool(total <= 0.0)


@inlined
def _cheapest(g: GraphArrays, alive: Flags, i: int, alpha: int) -> int:
    """Return the label of least unary cost but ``alpha``, of those that are left."""
    start = g.unary_ptr[i]
    best = -1
    for a in range(g.cardinalities[i]):
        if a != alpha and alive[start + a]:
            if best < 0 or g.unary[start + a] < g.unary[start + best]:
                best = a
    return best


@lean_kernel
def _eliminate(
    g: GraphArrays,
    alive: Flags,
    left: IntArray,
    dirty: Flags,
    begin: int,
    end: int,
    many: int,
    digits: IntArray,
) -> int:
    """Eliminate dead ends among the dirty variables from `begin` to `end`; return how many.

    ``left[i]`` counts the labels that are left. Neighbours of changed variables become dirty.
    """
    dropped = 0
    for i in range(begin, end):
        if not dirty[i]:
            continue
        dirty[i] = 0
        start = g.unary_ptr[i]
        k = g.cardinalities[i]
        before = left[i]
        # The cheapest label by the unary is the only one tried where there are many.
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


@inlined
def _fits(alive: Flags, start: int, k: int, role: int, alpha: int, a: int) -> bool:
    """Whether a variable that has this role in the test may have label ``a`` before."""
    if a < 0 or a >= k or not alive[start + a]:
        return False
    return role == _FREE or (a == alpha) == (role == _AT_ALPHA)


@inlined
def _fall(before: float, after: float) -> float:
    """Return ``before - after``, ``+inf`` where the labelling before is forbidden anyway."""
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
    g: GraphArrays, alive: Flags, e: int, alpha: int, role_i: int, role_j: int
) -> float:
    """Return the least fall of an edge's cost when its ends get ``alpha`` as their roles say."""
    i = g.edges[e, 0]
    j = g.edges[e, 1]
    si = g.unary_ptr[i]
    sj = g.unary_ptr[j]
    ki = g.cardinalities[i]
    kj = g.cardinalities[j]
    least = np.inf
    first, last = (alpha, min(ki, alpha + 1)) if role_i == _AT_ALPHA else (0, ki)
    for a in range(first, last):
        if not _fits(alive, si, ki, role_i, alpha, a):
            continue
        after_a = a if role_i == _FREE else alpha
        if role_j == _AT_ALPHA:
            if _fits(alive, sj, kj, role_j, alpha, alpha):
                least = min(
                    least, _fall(edge_cost(g, e, a, alpha), edge_cost(g, e, after_a, alpha))
                )
            continue
        if g.kinds[e] == TABLE:
            for b in range(kj):
                if _fits(alive, sj, kj, role_j, alpha, b):
                    after_b = b if role_j == _FREE else alpha
                    least = min(
                        least, _fall(edge_cost(g, e, a, b), edge_cost(g, e, after_a, after_b))
                    )
            continue
        # All labels but a and alpha are alike.
        other = -1
        for b in range(kj):
            if b != a and b != alpha and _fits(alive, sj, kj, role_j, alpha, b):
                other = b
                break
        for which in range(3):
            b = other
            if which == 0:
                b = a
            elif which == 1:
                b = alpha
            if _fits(alive, sj, kj, role_j, alpha, b):
                after_b = b if role_j == _FREE else alpha
                least = min(least, _fall(edge_cost(g, e, a, b), edge_cost(g, e, after_a, after_b)))
    return least


@inlined
def _at_alpha(g: GraphArrays, alive: Flags, i: int, h: int, alpha: int) -> float:
    """Return the least fall of an edge's cost when ``i`` changes and the other end has alpha.

    ``h`` is the half-edge at ``i``; 0 if the other end has no such label.
    """
    start = g.unary_ptr[i]
    if alpha >= g.cardinalities[g.edges[h >> 1, 1 - (h & 1)]]:
        return 0.0
    after = _half_cost(g, h, alpha, alpha)
    least = np.inf
    for a in range(g.cardinalities[i]):
        if a != alpha and alive[start + a]:
            least = min(least, _fall(_half_cost(g, h, a, alpha), after))
    return least


@inlined
def _clipped(value: float, infinity: float) -> float:
    return min(infinity, max(-infinity, value))


@lean_kernel
def _score(
    g: GraphArrays,
    alive: Flags,
    alpha: int,
    role: Flags,
    score: FloatArray,
    infinity: float,
    begin: int,
    end: int,
) -> None:
    """Write ``H_U({i})`` as if all other variables had alpha; edges from `begin` to `end`."""
    if begin == 0:
        for i in range(g.cardinalities.size):
            score[i] = 0.0
            if role[i] == _CHANGES:
                score[i] = _clipped(_unary_fall(g, alive, i, alpha), infinity)
    for e in range(begin, end):
        i = g.edges[e, 0]
        j = g.edges[e, 1]
        if role[i] == _CHANGES:
            score[i] += _clipped(_at_alpha(g, alive, i, 2 * e, alpha), infinity)
        if role[j] == _CHANGES:
            score[j] += _clipped(_at_alpha(g, alive, j, 2 * e + 1, alpha), infinity)


@lean_kernel
def _prune(
    g: GraphArrays,
    alive: Flags,
    alpha: int,
    role: Flags,
    score: FloatArray,
    stack: npt.NDArray[np.int32],
    count: int,
    infinity: float,
    budget: int,
) -> int:
    """Take out of ``U`` whatever fails the one-against-all test on its own.

    ``H_U({i})`` does not rise when ``U`` gets smaller, so these variables are in no set that
    passes (pairwise terms only); most of them go this way, before any cut. The first `count` of
    `stack` are variables that are out and whose neighbours' scores do not know it yet; returns how
    many there are when the budget of pairs of labels is spent.
    """
    while count > 0 and budget > 0:
        count -= 1
        j = stack[count]
        for p in range(g.adj_ptr[j], g.adj_ptr[j + 1]):
            i = g.adj_var[p]
            if role[i] != _CHANGES:
                continue
            h = g.adj_half[p] ^ 1
            score[i] -= _clipped(_at_alpha(g, alive, i, h, alpha), infinity)
            # One fall may settle it, and looking at one takes O(1): that of the best label.
            a = _cheapest(g, alive, i, alpha)
            after = np.inf
            if a < g.cardinalities[j] and alive[g.unary_ptr[j] + a]:
                after = _fall(_half_cost(g, h, a, a), _half_cost(g, h, a, alpha))
            budget -= g.cardinalities[i]
            if score[i] + _clipped(after, infinity) >= 0.0:
                if h & 1 == 0:
                    after = _least_fall(g, alive, h >> 1, alpha, _CHANGES, _FREE)
                else:
                    after = _least_fall(g, alive, h >> 1, alpha, _FREE, _CHANGES)
                budget -= g.cardinalities[i] * g.cardinalities[j]
            score[i] += _clipped(after, infinity)
            if score[i] < 0.0:
                role[i] = _FREE
                stack[count] = i
                count += 1
    return count


@lean_kernel
def _fill_against_all(
    g: GraphArrays,
    alive: Flags,
    alpha: int,
    role: Flags,
    c: CutArrays,
    place: npt.NDArray[np.int32],
    infinity: float,
    digits: IntArray,
    begin: int,
    end: int,
) -> None:
    """Write ``H_U`` into the network of the graph's edges; ``v_i = 1``, the sink's side, is ``V``.

    ``role[i]`` says whether a variable is in ``U`` and can change, has only ``alpha``, or is out.
    Only the edges from `begin` to `end` are looked at; with the first come the variables, with
    the last the larger factors.
    """
    if begin == 0:
        for i in range(g.cardinalities.size):
            c.excess[i] = 0.0
            if role[i] == _CHANGES:
                c.excess[i] = _clipped(_unary_fall(g, alive, i, alpha), infinity)
    for e in range(begin, end):
        i = g.edges[e, 0]
        j = g.edges[e, 1]
        half = 0.0
        if role[i] == _CHANGES and role[j] == _CHANGES:
            only_i = _clipped(_least_fall(g, alive, e, alpha, _CHANGES, _AT_ALPHA), infinity)
            only_j = _clipped(_least_fall(g, alive, e, alpha, _AT_ALPHA, _CHANGES), infinity)
            both = _clipped(_least_fall(g, alive, e, alpha, _CHANGES, _CHANGES), infinity)
            # Not more than zero: a smaller fall only makes the test stricter.
            half = 0.5 * min(0.0, both - only_i - only_j)
            c.excess[i] += only_i + half
            c.excess[j] += only_j + half
        elif role[i] == _CHANGES:
            c.excess[i] += _clipped(_least_fall(g, alive, e, alpha, _CHANGES, role[j]), infinity)
        elif role[j] == _CHANGES:
            c.excess[j] += _clipped(_least_fall(g, alive, e, alpha, role[i], _CHANGES), infinity)
        c.residual[place[e, 0]] = -half
        c.residual[place[e, 1]] = -half
    for f in range(g.factor_ptr.size - 1 if end == g.edges.shape[0] else 0):
        lo = g.factor_ptr[f]
        arity = g.factor_ptr[f + 1] - lo
        changing = False
        for s in range(arity):
            changing = changing or role[g.scopes[lo + s]] == _CHANGES
        if not changing:
            continue
        # The least fall over all labels, if any variable changes, is charged to each that does.
        least = 0.0
        _first_state(g, alive, f, digits)
        while True:
            before = 0
            after = 0
            for s in range(arity):
                v = g.scopes[lo + s]
                before = before * g.cardinalities[v] + digits[s]
                after = after * g.cardinalities[v] + (digits[s] if role[v] == _FREE else alpha)
            start = g.table_ptr[f]
            least = min(least, _fall(g.tables[start + before], g.tables[start + after]))
            if not _next_state(g, alive, f, digits, -1):
                break
        for s in range(arity):
            if role[g.scopes[lo + s]] == _CHANGES:
                c.excess[g.scopes[lo + s]] += _clipped(least, infinity)


@lean_kernel
def _fold(g: GraphArrays, fixed: IntArray, unary: FloatArray) -> float:
    """Add the edges that fixed variables take part in to the unaries, and return the rest.

    ``fixed[i]`` is -1 for the variables that stay. The sum returned holds the unaries of the
    fixed variables and the edges between them.
    """
    total = 0.0
    for i in range(g.cardinalities.size):
        if fixed[i] >= 0:
            total += g.unary[g.unary_ptr[i] + fixed[i]]
    for e in range(g.edges.shape[0]):
        i = g.edges[e, 0]
        j = g.edges[e, 1]
        if fixed[i] >= 0 and fixed[j] >= 0:
            total += edge_cost(g, e, fixed[i], fixed[j])
        elif fixed[i] >= 0:
            for b in range(g.cardinalities[j]):
                unary[g.unary_ptr[j] + b] += edge_cost(g, e, fixed[i], b)
        elif fixed[j] >= 0:
            for a in range(g.cardinalities[i]):
                unary[g.unary_ptr[i] + a] += edge_cost(g, e, a, fixed[j])
    return total


@dataclass(frozen=True, eq=False)
class Reduction:
    """What is left of a graph after labels have been ruled out, and the way back.

    Attributes
    ----------
    graph : FactorGraph
        The energy over the variables and labels that are left. Its least energy is that of the
        original graph.
    fixed : (n,) int64 array
        The label of each variable that has only one left, -1 for the others.
    variables : (n',) int64 array
        The original number of each variable of `graph`.
    label_ptr : (n' + 1,) int64 array, labels : int64 array
        ``labels[label_ptr[v] + a]`` is the original label of label ``a`` of its variable ``v``.
    infeasible : bool
        It is proved that no labelling has finite energy; `graph` then has no meaning.
    rounds : int
        How often the tests were repeated.
    """

    graph: FactorGraph
    fixed: IntArray
    variables: IntArray
    label_ptr: IntArray
    labels: IntArray
    infeasible: bool
    rounds: int

    def expand(self, labels: npt.ArrayLike) -> IntArray:
        """Return the labelling of the original graph for one of the reduced graph.

        Its energy is the same, up to rounding.

        Parameters
        ----------
        labels : (n',) or (b, n') array of int

        Raises
        ------
        ValueError
            If the labels do not fit the reduced graph.
        """
        reduced = self.graph.check_labels(labels)
        out = np.empty((*reduced.shape[:-1], self.fixed.size), dtype=np.int64)
        out[...] = self.fixed
        out[..., self.variables] = self.labels[self.label_ptr[:-1] + reduced]
        return out

    def restrict(self, labels: IntArray) -> IntArray:
        """Return the labelling of the reduced graph that is nearest to one of the original graph.

        Labels that were ruled out become the cheapest label left.
        """
        rows = np.repeat(np.arange(self.variables.size), np.diff(self.label_ptr))
        unary = self.graph.unary_values
        least = np.minimum.reduceat(unary, self.label_ptr[:-1]) if unary.size else unary
        out = np.empty(self.variables.size, dtype=np.int64)
        # Later writes win: of equally cheap labels the first, and what the labelling has over all.
        for places in (
            np.flatnonzero(unary == least[rows])[::-1],
            np.flatnonzero(self.labels == np.asarray(labels)[self.variables][rows]),
        ):
            out[rows[places]] = places - self.label_ptr[rows[places]]
        return out

    @property
    def share_fixed(self) -> float:
        """The share of variables that have only one label left; 1 for an empty graph."""
        return float((self.fixed >= 0).mean()) if self.fixed.size else 1.0


class _Search:
    """The labels that are left, and the tests that rule out more."""

    def __init__(self, graph: FactorGraph, should_stop: Callable[[], bool]) -> None:
        self.graph = graph
        self.should_stop = should_stop
        self.alive = np.ones(graph.unary_values.size, dtype=np.uint8)
        self.left = graph.cardinalities.copy()
        self.infeasible = False
        arrays = graph.arrays
        self._digits = np.zeros(int(np.diff(graph.factor_ptr).max(initial=1)), dtype=np.int64)
        self._dirty: Flags = (self.left > 1).astype(np.uint8)
        # Falls of cost are differences, up to twice the costs.
        self._infinity = math.inf
        if graph.has_infinite:
            self._infinity = 2.0 * larger_power_of_two(magnitude(arrays))
        place = np.empty(arrays.adj_half.size, dtype=np.int32)
        place[arrays.adj_half] = np.arange(place.size, dtype=np.int32)
        self._network = CutGraph(
            arrays.adj_ptr, arrays.adj_var, arrays.adj_reverse, place.reshape(-1, 2)
        )
        self._choice: LabelChoice | None = None
        m, width = graph.n_edges, int(graph.cardinalities.max(initial=1))
        step = max(1, _PAIRS // width**2)
        self._edge_blocks = [(lo, min(m, lo + step)) for lo in range(0, max(1, m), step)]

    def eliminate(self) -> int:
        """Eliminate dead ends until there are none; return the number of labels ruled out."""
        dropped = 0
        n = self.graph.n_variables
        while self._dirty.any():
            for begin in range(0, n, _BLOCK):
                if self.should_stop():
                    return dropped
                dropped += _eliminate(
                    self.graph.arrays,
                    self.alive,
                    self.left,
                    self._dirty,
                    begin,
                    min(n, begin + _BLOCK),
                    _MANY_LABELS,
                    self._digits,
                )
        return dropped

    def against_all(self, alpha: int) -> int:
        """Fix a set of variables to a label; return the number of labels ruled out."""
        graph = self.graph
        has = np.zeros(graph.n_variables, dtype=bool)
        able = graph.cardinalities > alpha
        place = graph.unary_ptr[:-1][able] + alpha
        has[able] = (self.alive[place] != 0) & np.isfinite(graph.unary_values[place])
        role = np.where(has, np.where(self.left > 1, _CHANGES, _AT_ALPHA), _FREE).astype(np.uint8)
        network, arrays = self._network, graph.arrays
        score, stack = network.arrays.excess, network.arrays.orphans
        for begin, end in self._edge_blocks:
            _score(arrays, self.alive, alpha, role, score, self._infinity, begin, end)
            if self.should_stop():
                return 0
        role[(role == _CHANGES) & (score < 0.0)] = _FREE
        out = np.flatnonzero(role == _FREE)
        stack[: out.size] = out
        count = out.size
        while count:
            count = _prune(
                arrays, self.alive, alpha, role, score, stack, count, self._infinity, _PAIRS
            )
            if self.should_stop():
                return 0
        while (role == _CHANGES).any():
            for begin, end in self._edge_blocks:
                _fill_against_all(
                    arrays,
                    self.alive,
                    alpha,
                    role,
                    network.arrays,
                    network.arcs,
                    self._infinity,
                    self._digits,
                    begin,
                    end,
                )
                if self.should_stop():
                    return 0
            if not network.solve(self.should_stop):
                return 0
            worse = network.sink_side() & (role == _CHANGES)
            if not worse.any():
                break
            role[worse] = _FREE
        fixed = np.flatnonzero(role == _CHANGES)
        if fixed.size == 0:
            return 0
        self._keep_only(fixed, np.full(fixed.size, alpha))
        return int(fixed.size)

    def roof_duality(self) -> int:
        """Fix what roof duality labels, of two labels each; return the number ruled out."""
        if int(self.left.max(initial=0)) > 2 or unsupported_arity(self.graph) is not None:
            return 0
        starts = self.graph.unary_ptr[:-1]
        places = np.flatnonzero(self.alive)
        first = np.searchsorted(places, starts)
        zero = places[first] - starts
        one = places[first + self.left - 1] - starts
        if self._choice is None:
            self._choice = LabelChoice(self.graph)
        choice = self._choice.minimise(zero, one, bound=True, should_stop=self.should_stop)
        if choice is None:
            return 0
        self.infeasible = choice.bound == math.inf
        fixed = np.flatnonzero((self.left > 1) & (choice.taken >= 0))
        self._keep_only(fixed, np.where(choice.taken > 0, one, zero)[fixed])
        return int(fixed.size)

    def _keep_only(self, variables: IntArray, labels: IntArray) -> None:
        """Rule out all labels of some variables but one; their neighbours become dirty."""
        graph = self.graph
        rows = np.repeat(np.arange(graph.n_variables), graph.cardinalities)
        chosen = np.zeros(graph.n_variables, dtype=bool)
        chosen[variables] = True
        self.alive[chosen[rows]] = 0
        self.alive[graph.unary_ptr[:-1][variables] + labels] = 1
        self.left[variables] = 1
        touched = chosen[graph.edges]
        self._dirty[graph.edges[touched.any(axis=1)].ravel()] = 1
        for f in np.unique(graph.arrays.slot_factor[chosen[graph.factor_scopes]]).tolist():
            scope = graph.factor_scopes[graph.factor_ptr[f] : graph.factor_ptr[f + 1]]
            self._dirty[scope] = 1
        self._dirty[self.left <= 1] = 0


def reduce(graph: FactorGraph, should_stop: Callable[[], bool] | None = None) -> Reduction:
    """Rule out labels that some optimal labelling does without, and shrink the graph.

    Parameters
    ----------
    graph : FactorGraph
        Any; roof duality takes part where no factor has more than
        `inference_lab.algorithms.cuts.roof_duality.MAX_ARITY` variables.
    should_stop : callable, optional
        Asked every tenth of a second or so; what has been ruled out until then is used.

    Returns
    -------
    Reduction

    Guarantees
    ----------
    Some optimal labelling uses only labels that are left, and every labelling of the reduced
    graph has the energy of the one it stands for. Both up to rounding: of labellings whose
    energies differ by less than that, either may be taken for the better one.

    Complexity
    ----------
    A round is a minimum cut or two for each label, and for each variable O(k^2) an edge of the
    diagonal kinds, O(k^3) a table (O(k^2) above 16 labels), and the size of the table times k^2
    a larger factor. Memory: linear in the graph; where the ends of an edge of the diagonal kinds
    are left with different labels, its term becomes a table.

    References
    ----------
    R. Goldstein, "Efficient rotamer elimination applied to protein side-chains and related spin
    glasses", Biophysical Journal 66(5), 1994. I. Kovtun, DAGM 2003, LNCS 2781 (one against all,
    Potts). A. Shekhovtsov, "Maximum persistency in energy minimization", CVPR 2014 (improving
    mappings). P. Swoboda, B. Savchynskyy, J. Kappes, C. Schnoerr, "Partial optimality by pruning
    for MAP-inference with general graphical models", CVPR 2014. P. Hammer, P. Hansen, B. Simeone,
    "Roof duality, complementation and persistency in quadratic 0-1 optimization", Mathematical
    Programming 28, 1984.

    Examples
    --------
    >>> import inference_lab as il
    >>> from inference_lab.algorithms.cuts.persistency import reduce
    >>> g = il.FactorGraph.potts([[0, 9, 5.0], [3, 2, 5], [9, 8, 0]], [(0, 1), (1, 2)], [2.0, 0.5])
    >>> reduction = reduce(g)
    >>> reduction.fixed.tolist(), reduction.graph.constant
    ([0, 0, 2], 3.5)
    """
    search = _Search(graph, should_stop if should_stop is not None else lambda: False)
    rounds = 0
    # The cuts pay off again only where something has changed since.
    while not search.infeasible and not search.should_stop():
        rounds += 1
        dropped = search.eliminate()
        for alpha in range(int(graph.cardinalities.max(initial=0))):
            if search.should_stop():
                break
            dropped += search.against_all(alpha)
        dropped += search.roof_duality()
        if dropped <= _WORTHWHILE * float(search.left.sum()) or (search.left == 1).all():
            break
    return _shrink(graph, search.alive.astype(bool), search.left, search.infeasible, rounds)


def _shrink(
    graph: FactorGraph,
    alive: npt.NDArray[np.bool_],
    left: IntArray,
    infeasible: bool,
    rounds: int,
) -> Reduction:
    """Build the graph over the labels that are left."""
    n = graph.n_variables
    places = np.flatnonzero(alive)
    rows = np.repeat(np.arange(n), graph.cardinalities)[places]
    values = places - graph.unary_ptr[rows]
    fixed = np.full(n, -1, dtype=np.int64)
    single = left[rows] == 1
    fixed[rows[single]] = values[single]
    variables = np.flatnonzero(fixed < 0)
    number = np.full(n, -1, dtype=np.int64)
    number[variables] = np.arange(variables.size)

    unary = graph.unary_values.copy()
    constant = graph.constant + _fold(graph.arrays, fixed, unary)
    label_ptr = np.concatenate([[0], np.cumsum(left[variables])]).astype(np.int64)
    labels = values[~single]
    kept = unary[places[~single]]
    factors = []
    for f in range(graph.n_factors):
        scope, table = graph.higher_order(f)
        index = tuple(
            np.flatnonzero(alive[graph.unary_ptr[v] : graph.unary_ptr[v + 1]]) for v in scope
        )
        part = table[np.ix_(*index)]
        free = [v for v in scope if fixed[v] < 0]
        if free:
            factors.append((tuple(number[free].tolist()), part.reshape([left[v] for v in free])))
        else:
            constant += float(part.item())
    if math.isinf(constant):
        infeasible, constant = True, 0.0
    uniform = variables.size > 0 and bool((left[variables] == left[variables[0]]).all())
    reduced = FactorGraph.from_terms(
        kept.reshape(variables.size, -1)
        if uniform
        else [kept[lo:hi] for lo, hi in pairwise(label_ptr)],
        _restricted_terms(graph, alive, number),
        factors,
        constant,
    )
    return Reduction(reduced, fixed, variables, label_ptr, labels, infeasible, rounds)


def _restricted_terms(
    graph: FactorGraph, alive: npt.NDArray[np.bool_], number: IntArray
) -> list[PairwiseTerms]:
    """Return the pairwise terms between variables that stay, over the labels that are left."""
    inside = np.flatnonzero((number[graph.edges] >= 0).all(axis=1))
    if inside.size == 0:
        return []
    # Variables with the same labels left, of the same number of labels, form a class.
    width = int(graph.cardinalities.max())
    mask = np.zeros((graph.n_variables, width), dtype=bool)
    rows = np.repeat(np.arange(graph.n_variables), graph.cardinalities)
    mask[rows, np.arange(rows.size) - graph.unary_ptr[rows]] = alive
    packed = np.concatenate(
        [
            np.packbits(mask, axis=1),
            graph.cardinalities.astype("<i8").view(np.uint8).reshape(graph.n_variables, 8),
        ],
        axis=1,
    )
    key = np.ascontiguousarray(packed).view(np.dtype((np.void, packed.shape[1]))).ravel()
    _, example, kind_of = np.unique(key, return_index=True, return_inverse=True)
    which = kind_of.reshape(-1)[graph.edges[inside]]
    groups, member = np.unique(
        np.column_stack([which, graph.edge_kinds[inside]]), axis=0, return_inverse=True
    )
    order = np.argsort(member.reshape(-1), kind="stable")
    ends = np.cumsum(np.bincount(member.reshape(-1), minlength=len(groups)))
    terms: list[PairwiseTerms] = []
    for (ci, cj, kind), edges in zip(
        groups.tolist(), np.split(inside[order], ends[:-1]), strict=True
    ):
        a, b = np.flatnonzero(mask[example[ci]]), np.flatnonzero(mask[example[cj]])
        terms += _restricted(graph, edges, number[graph.edges[edges]], kind, a, b)
    return terms


def _restricted(
    graph: FactorGraph, edges: IntArray, ends: IntArray, kind: int, a: IntArray, b: IntArray
) -> list[PairwiseTerms]:
    """Return terms of one kind whose ends are left with labels `a` and `b`."""
    weights, offsets = graph.edge_weights[edges], graph.edge_offsets[edges]
    values = graph.pairwise_values
    if kind != TABLE:
        both = min(a.size, b.size)
        if (a[:both] == b[:both]).all():
            # Labels that are equal still have equal numbers, and no others do.
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
