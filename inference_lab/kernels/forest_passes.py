"""The pass of messages from the leaves of a rooted forest to its roots."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from inference_lab._numba import inlined, lean_kernel
from inference_lab.graph.arrays import FloatArray, GraphArrays, Int32Array, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.kernels.factor_messages import factor_message
from inference_lab.kernels.messages import min_sum_message, slot_ptr, sum_product_message


class RootedForest(NamedTuple):
    """A rooted forest of variables, edges and factors.

    * ``order`` (n,) int32: the variables, each after its parent, with the children of a factor in
      succession;
    * ``up`` (n,) int32: for each variable (by number) the position of the edge to its parent in its
      adjacency; for a child of a factor ``-2 - s`` with ``s`` its position in ``scopes``; -1 at
      roots.
    """

    order: Int32Array
    up: Int32Array


class Slots(NamedTuple):
    """The messages between factors and variables.

    * ``ptr`` (slots + 1,), ``cavity``: by position in ``scopes``, the messages to the factor and,
      at its parent variable, the message from the factor;
    * ``digits``: scratch as long as the largest arity.
    """

    ptr: IntArray
    cavity: FloatArray
    digits: IntArray


def make_slots(graph: FactorGraph) -> Slots:
    """Allocate the messages of a graph with factors."""
    ptr = slot_ptr(graph)
    arity = int(np.diff(graph.factor_ptr).max())
    return Slots(ptr, np.empty(ptr[-1]), np.empty(arity, dtype=np.int64))


class Sent(NamedTuple):
    """The message of each variable to its parent along an edge, from ``ptr[i]`` (n + 1,) on."""

    ptr: IntArray
    messages: FloatArray


class Totals(NamedTuple):
    """The sums of a pass, and scratch.

    * ``total``, flat like the unaries: the costs of each label plus the (soft) minimum over its
      descendants, each message relative to its least entry;
    * ``shift`` (2,): the sum of the amounts subtracted from messages and roots, and its rounding
      error;
    * ``cavity``, ``out``: rows as long as the largest cardinality.
    """

    total: FloatArray
    shift: FloatArray
    cavity: FloatArray
    out: FloatArray


@inlined
def closes(g: GraphArrays, forest: RootedForest, at: int) -> bool:
    """Whether ``order[at]``, a child of a factor, is the first child of that factor."""
    order, up = forest.order, forest.up
    before = up[order[at - 1]]
    return bool(before > -2 or g.slot_factor[-2 - before] != g.slot_factor[-2 - up[order[at]]])


@inlined
def head_of(g: GraphArrays, forest: RootedForest, i: int) -> int:
    """Return the position in ``scopes`` of the parent variable of the factor above ``i``."""
    head = g.factor_ptr[g.slot_factor[-2 - forest.up[i]]]
    while forest.up[g.scopes[head]] == -2 - head:
        head += 1
    return int(head)


@inlined
def _add(total: FloatArray, value: float) -> None:
    """Add to a sum of a million terms without losing digits (Neumaier 1974)."""
    new = total[0] + value
    if abs(total[0]) >= abs(value):
        total[1] += (total[0] - new) + value
    else:
        total[1] += (value - new) + total[0]
    total[0] = new


@inlined
def _soft_least(values: FloatArray, start: int, k: int, temperature: float) -> float:
    """Return the minimum (T = 0) or ``-T log sum exp(-. / T)`` of a row."""
    best = np.inf
    for a in range(k):
        best = min(best, values[start + a])
    if temperature == 0.0 or best == np.inf:
        return best
    total = 0.0
    for a in range(k):
        total += np.exp((best - values[start + a]) / temperature)
    return float(best - temperature * np.log(total))


@lean_kernel
def send_to_roots(
    g: GraphArrays,
    forest: RootedForest,
    temperature: float,
    rho: FloatArray,
    totals: Totals,
    slots: Slots | None,
    sent: Sent | None,
    at: int,
    budget: int,
) -> int:
    """Send messages to the roots; return the number of variables left, -1 if infeasible."""
    # ``totals.total`` begins as the unaries; the costs of a term ``c`` are ``theta_c / rho_c``.
    # Starts with ``order[at - 1]``, and processes about `budget` table entries.
    total, shift, cavity, out = totals
    while at > 0 and budget > 0:
        at -= 1
        i = forest.order[at]
        k = g.cardinalities[i]
        start = g.unary_ptr[i]
        p = forest.up[i]
        budget -= k
        if p == -1:
            least = _soft_least(total, start, k, temperature)
            if least == np.inf:
                return -1
            _add(shift, least)
        elif p >= 0:
            h = g.adj_half[p] ^ 1
            j = g.adj_var[p]
            share = rho[h >> 1]
            for a in range(k):
                cavity[a] = share * total[start + a]
            if temperature == 0.0:
                least = min_sum_message(g, h, cavity, out)
            else:
                least = sum_product_message(g, h, share * temperature, cavity, out)
            if least == np.inf:
                return -1
            _add(shift, least / share)
            to = g.unary_ptr[j]
            for b in range(g.cardinalities[j]):
                message = (out[b] - least) / share
                total[to + b] += message
                if sent is not None:
                    sent.messages[sent.ptr[i] + b] = message
            budget -= k * g.cardinalities[j]
        elif slots is not None:
            f = g.slot_factor[-2 - p]
            share = rho[g.kinds.size + f]
            for a in range(k):
                slots.cavity[slots.ptr[-2 - p] + a] = share * total[start + a]
            if closes(g, forest, at):
                head = head_of(g, forest, i)
                least = factor_message(
                    g, head, share * temperature, slots.cavity, slots.ptr, out, slots.digits
                )
                if least == np.inf:
                    return -1
                _add(shift, least / share)
                to, own = g.unary_ptr[g.scopes[head]], slots.ptr[head]
                for b in range(g.cardinalities[g.scopes[head]]):
                    message = (out[b] - least) / share
                    total[to + b] += message
                    slots.cavity[own + b] = message
                budget -= g.table_ptr[f + 1] - g.table_ptr[f]
    return at
