"""Generalised arc consistency: remove the labels without finite support (Mackworth 1977)."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from inference_lab._numba import kernel, lean_kernel
from inference_lab.graph.arrays import TABLE, GraphArrays, IntArray, starts_of
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.kernels.factor_messages import (
    entry_of,
    first_allowed_labels,
    next_allowed_labels,
)
from inference_lab.kernels.messages import half_cost

BoolArray: TypeAlias = npt.NDArray[np.bool_]


class Domains(NamedTuple):
    """Remaining labels of each variable."""

    #: (n+1,) int64.
    ptr: IntArray
    #: Int64: the labels of variable ``i``, ascending, are ``labels[ptr[i] : ptr[i + 1]]``.
    labels: IntArray
    #: (like the unaries): the same as flags.
    allowed: BoolArray
    #: False if some variable has no label left, so that every labelling costs ``+inf``.
    feasible: bool

    @property
    def sizes(self) -> IntArray:
        """Number of remaining labels of each variable, shape (n,)."""
        return np.diff(self.ptr)


@lean_kernel
def _revise_edge(g: GraphArrays, e: int, side: int, allowed: BoolArray) -> bool:
    """Forbid unsupported labels of ``edges[e, side]``; return whether any was allowed before."""
    i = g.edges[e, side]
    j = g.edges[e, 1 - side]
    ki, kj = g.cardinalities[i], g.cardinalities[j]
    start, other = g.unary_ptr[i], g.unary_ptr[j]
    changed = False
    for a in range(ki):
        supported = False
        if allowed[start + a]:
            for t in range(kj):
                # From the same label on, so that the first or second supports it in a Potts term.
                b = (a + t) % kj
                if allowed[other + b] and half_cost(g, 2 * e + side, a, b) < np.inf:
                    supported = True
                    break
            changed |= not supported
        allowed[start + a] = supported
    return changed


@lean_kernel
def _has_label(g: GraphArrays, i: int, allowed: BoolArray) -> bool:
    """Return whether a variable has a label left."""
    for t in range(g.unary_ptr[i], g.unary_ptr[i + 1]):
        if allowed[t]:
            return True
    return False


@lean_kernel
def _revise_factor(
    g: GraphArrays,
    f: int,
    allowed: BoolArray,
    supported: BoolArray,
    digits: IntArray,
    changed: IntArray,
) -> int:
    """Forbid the labels that no finite entry supports; list the variables that lost one."""
    # `supported` is scratch with an entry for each label, like `allowed`.
    lo, hi = g.factor_ptr[f], g.factor_ptr[f + 1]
    for s in range(lo, hi):
        supported[g.unary_ptr[g.scopes[s]] : g.unary_ptr[g.scopes[s] + 1]] = False
    first_allowed_labels(g, lo, hi, allowed, digits)
    more = True
    while more:
        if g.tables[entry_of(g, f, digits)] < np.inf:
            for s in range(lo, hi):
                supported[g.unary_ptr[g.scopes[s]] + digits[s - lo]] = True
        more = next_allowed_labels(g, lo, hi, allowed, -1, digits)
    count = 0
    for s in range(lo, hi):
        i = g.scopes[s]
        less = False
        for t in range(g.unary_ptr[i], g.unary_ptr[i + 1]):
            less |= allowed[t] and not supported[t]
            allowed[t] &= supported[t]
        if less:
            changed[count] = i
            count += 1
    return count


@lean_kernel
def _wait(t: int, hard: BoolArray, waiting: BoolArray, stack: IntArray, height: int) -> int:
    """Push a hard term onto the stack unless it is there; return the height of the stack."""
    if hard[t] and not waiting[t]:
        waiting[t] = True
        stack[height] = t
        height += 1
    return height


@kernel
def _propagate(g: GraphArrays, hard: BoolArray, allowed: BoolArray) -> bool:
    """Forbid labels without support until none is left; return whether each variable keeps one."""
    n, m = g.cardinalities.size, g.kinds.size
    for i in range(n):
        if not _has_label(g, i, allowed):
            return False
    supported = np.empty(allowed.size, dtype=np.bool_)
    # No factor has more variables than there are.
    digits, changed = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    waiting = hard.copy()
    stack = np.flatnonzero(hard)
    height = stack.size
    while height > 0:
        height -= 1
        t = stack[height]
        waiting[t] = False
        if t < m:
            count = 0
            for side in range(2):
                if _revise_edge(g, t, side, allowed):
                    changed[count] = g.edges[t, side]
                    count += 1
        else:
            count = _revise_factor(g, t - m, allowed, supported, digits, changed)
        for c in range(count):
            i = changed[c]
            if not _has_label(g, i, allowed):
                return False
            for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
                height = _wait(g.adj_half[p] >> 1, hard, waiting, stack, height)
            for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
                height = _wait(m + g.slot_factor[g.inc_slot[p]], hard, waiting, stack, height)
    return True


@kernel
def hard_terms(g: GraphArrays) -> BoolArray:
    """Flag the edges, then the factors, that have a ``+inf`` entry."""
    m = g.kinds.size
    hard = np.zeros(m + g.factor_ptr.size - 1, dtype=np.bool_)
    for e in range(m):
        ki, kj = g.cardinalities[g.edges[e, 0]], g.cardinalities[g.edges[e, 1]]
        length = ki * kj if g.kinds[e] == TABLE else g.kinds[e] * (min(ki, kj) - 1) + 1
        hard[e] = np.isinf(g.weights[e])
        for t in range(g.offsets[e], g.offsets[e] + length):
            hard[e] |= np.isinf(g.pairwise[t])
    for f in range(g.factor_ptr.size - 1):
        for t in range(g.table_ptr[f], g.table_ptr[f + 1]):
            hard[m + f] |= np.isinf(g.tables[t])
    return hard


def allowed_labels(graph: FactorGraph, among: BoolArray | None = None) -> Domains:
    """Return the labels of each variable that hard unaries and hard terms allow."""
    # A label is dropped if it costs ``+inf``, or if a term has no finite entry with it among the
    # labels left to the other variables (generalised arc consistency, Mackworth 1977). No labelling
    # of finite energy is lost. Labels without a flag in `among` are dropped, too.
    allowed = np.isfinite(graph.unary_values)
    feasible = True
    if among is not None:
        allowed &= among
        feasible = bool(np.logical_or.reduceat(allowed, graph.unary_ptr[:-1]).all())
    if feasible and graph.has_infinite:
        feasible = bool(_propagate(graph.arrays, hard_terms(graph.arrays), allowed))
    entries = np.flatnonzero(allowed)
    counts = starts_of(allowed)
    ptr = counts[graph.unary_ptr].astype(np.int64)
    owner = np.repeat(np.arange(graph.n_variables), np.diff(ptr))
    return Domains(ptr, entries - graph.unary_ptr[owner], allowed, feasible)
