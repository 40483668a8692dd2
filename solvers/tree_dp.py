"""Dynamic programming on forests: exact in linear time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from inference_lab._numba import lean_kernel
from inference_lab.contract import Outcome, Run, Solver
from inference_lab.graph.arrays import FloatArray, GraphArrays, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.kernels.factors import factor_message
from inference_lab.kernels.messages import (
    half_cost,
    min_sum_message,
    slot_ptr,
    sum_product_message,
    unflatten,
)
from inference_lab.kernels.mixed_radix import next_labels

#: Table entries that are gone through between two looks at the clock: about 0.1 s.
_CHUNK = 1 << 24


class Forest(NamedTuple):
    """The graph as rooted trees."""

    #: (n,): the variables, each after the one it hangs from.
    order: IntArray
    #: (n,): how it hangs: -1 for a root, the position of the edge in the variable's adjacency, or
    #: ``-2 - s`` with ``s`` the position in ``scopes`` by which a factor holds it.
    link: IntArray
    #: (f,): the position in ``scopes`` of the variable that each factor hangs from.
    head: IntArray


class State(NamedTuple):
    """The output of the passes: sums of energies, each row relative to its least entry."""

    #: Flat like the unaries: the subtree below each variable, for each of its labels.
    up: FloatArray
    #: ``told_ptr`` (n+1,), ``told``: what each variable told the one it hangs from by an edge (T >
    #: 0 only).
    told_ptr: IntArray
    told: FloatArray
    #: ``slot_ptr``, ``slots``: the same between factors and their variables, by position in
    #: ``scopes``: what arrives at the factor, and at its head what the factor tells.
    slot_ptr: IntArray
    slots: FloatArray
    #: Flat like the unaries: everything (T > 0 only).
    belief: FloatArray
    #: (2,): what was subtracted from the rows, roots included: the sum, and what rounding has taken
    #: from it.
    shift: FloatArray


class Workspace(NamedTuple):
    """Scratch: two rows as long as the largest cardinality, and digits for the largest arity."""

    cavity: FloatArray
    out: FloatArray
    digits: IntArray


def root(graph: FactorGraph) -> Forest:
    """Hang each tree from its first variable, breadth first."""
    g, order = graph.arrays, graph.breadth_first_order
    rank = np.empty(order.size, dtype=np.int64)
    rank[order] = np.arange(order.size)
    link = np.full(order.size, -1, dtype=np.int64)
    owner = np.repeat(np.arange(order.size), np.diff(g.adj_ptr))
    upwards = np.flatnonzero(rank[g.adj_var] < rank[owner])
    link[owner[upwards]] = upwards
    head = np.empty(0, dtype=np.int64)
    if graph.n_factors:
        ranks = rank[g.scopes]
        least = np.minimum.reduceat(ranks, g.factor_ptr[:-1])
        is_head = ranks == np.repeat(least, np.diff(g.factor_ptr))
        head = np.flatnonzero(is_head)
        link[g.scopes[~is_head]] = -2 - np.flatnonzero(~is_head)
    return Forest(order, link, head)


@lean_kernel
def _add(total: FloatArray, value: float) -> None:
    """Add to a sum of a million terms without losing digits (Neumaier 1974)."""
    new = total[0] + value
    if abs(total[0]) >= abs(value):
        total[1] += (total[0] - new) + value
    else:
        total[1] += (value - new) + total[0]
    total[0] = new


@lean_kernel
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
def upward(
    g: GraphArrays, forest: Forest, temperature: float, state: State, work: Workspace, at: int,
    budget: int,
) -> int:  # fmt: skip
    """Send messages to the roots; return how many variables are left, -1 if infeasible."""
    while at > 0 and budget > 0:
        at -= 1
        i = forest.order[at]
        k = g.cardinalities[i]
        start = g.unary_ptr[i]
        for a in range(k):
            state.up[start + a] += g.unary[start + a]
        for q in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
            slot = g.inc_slot[q]
            f = g.slot_factor[slot]
            if forest.head[f] != slot:
                continue
            least = factor_message(
                g, slot, temperature, state.slots, state.slot_ptr, work.out, work.digits
            )
            if least == np.inf:
                return -1
            _add(state.shift, least)
            for a in range(k):
                state.slots[state.slot_ptr[slot] + a] = work.out[a] - least
                state.up[start + a] += work.out[a] - least
            budget -= g.table_ptr[f + 1] - g.table_ptr[f]
        link = forest.link[i]
        if link == -1:
            least = _soft_least(state.up, start, k, temperature)
            if least == np.inf:
                return -1
            _add(state.shift, least)
        elif link >= 0:
            h = g.adj_half[link] ^ 1
            j = g.adj_var[link]
            for a in range(k):
                work.cavity[a] = state.up[start + a]
            if temperature == 0.0:
                least = min_sum_message(g, h, work.cavity, work.out)
            else:
                least = sum_product_message(g, h, temperature, work.cavity, work.out)
            if least == np.inf:
                return -1
            _add(state.shift, least)
            to = g.unary_ptr[j]
            for b in range(g.cardinalities[j]):
                state.up[to + b] += work.out[b] - least
            if temperature > 0.0:
                for b in range(g.cardinalities[j]):
                    state.told[state.told_ptr[i] + b] = work.out[b] - least
            budget -= k * g.cardinalities[j]
        else:
            to = state.slot_ptr[-2 - link]
            for a in range(k):
                state.slots[to + a] = state.up[start + a]
        budget -= k
    return at


@lean_kernel
def decode(g: GraphArrays, forest: Forest, state: State, work: Workspace, x: IntArray) -> None:
    """Label from the roots on: each variable gets its best label given the one it hangs from."""
    # The variables that hang from a factor are labelled together, by its best entry.
    for i in forest.order:
        start = g.unary_ptr[i]
        link = forest.link[i]
        if link >= -1:
            best = np.inf
            x[i] = 0
            for a in range(g.cardinalities[i]):
                value = state.up[start + a]
                if link >= 0:
                    value += half_cost(g, g.adj_half[link], a, x[g.adj_var[link]])
                if value < best:
                    best = value
                    x[i] = a
        for q in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
            slot = g.inc_slot[q]
            f = g.slot_factor[slot]
            if forest.head[f] == slot:
                _label_together(g, f, slot, state, work.digits, x)


@lean_kernel
def _label_together(
    g: GraphArrays, f: int, slot: int, state: State, digits: IntArray, x: IntArray
) -> None:
    """Label the variables of a factor but its head, whose label stands."""
    lo, hi = g.factor_ptr[f], g.factor_ptr[f + 1]
    chosen = x[g.scopes[slot]]
    for s in range(lo, hi):
        digits[s - lo] = 0
        if s != slot:
            x[g.scopes[s]] = 0
    best = np.inf
    for t in range(g.table_ptr[f], g.table_ptr[f + 1]):
        if digits[slot - lo] == chosen:
            value = g.tables[t]
            for s in range(lo, hi):
                if s != slot:
                    value += state.slots[state.slot_ptr[s] + digits[s - lo]]
            if value < best:
                best = value
                for s in range(lo, hi):
                    x[g.scopes[s]] = digits[s - lo]
        next_labels(g, lo, hi, digits)


@lean_kernel
def downward(
    g: GraphArrays, forest: Forest, temperature: float, state: State, work: Workspace, at: int,
    budget: int,
) -> int:  # fmt: skip
    """Complete the beliefs from variable ``order[at]`` on, away from the roots."""
    # What a variable sends away from the root is its belief without what it was told from there.
    while at < forest.order.size and budget > 0:
        i = forest.order[at]
        at += 1
        k = g.cardinalities[i]
        start = g.unary_ptr[i]
        link = forest.link[i]
        for a in range(k):
            work.out[a] = 0.0
        if link >= 0:
            j = g.adj_var[link]
            other, told = g.unary_ptr[j], state.told_ptr[i]
            for b in range(g.cardinalities[j]):
                value = state.belief[other + b]
                # An infinite message is part of an infinite belief, and stays in it.
                work.cavity[b] = value - state.told[told + b] if value < np.inf else np.inf
            sum_product_message(g, g.adj_half[link], temperature, work.cavity, work.out)
            budget -= k * g.cardinalities[j]
        elif link < -1:
            f = g.slot_factor[-2 - link]
            factor_message(
                g, -2 - link, temperature, state.slots, state.slot_ptr, work.out, work.digits
            )
            budget -= g.table_ptr[f + 1] - g.table_ptr[f]
        least = np.inf
        for a in range(k):
            state.belief[start + a] = state.up[start + a] + work.out[a]
            least = min(least, state.belief[start + a])
        for a in range(k):
            state.belief[start + a] -= least
        for q in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
            slot = g.inc_slot[q]
            if forest.head[g.slot_factor[slot]] == slot:
                to = state.slot_ptr[slot]
                for a in range(k):
                    value = state.belief[start + a]
                    state.slots[to + a] = value - state.slots[to + a] if value < np.inf else np.inf
        budget -= k
    return at


@dataclass(frozen=True)
class TreeDP(Solver):
    """Exact inference on forests by one pass to the roots and one back (Bellman; Pearl 1988).

    Each tree is hung from one of its variables. On the way up, with ``c`` the variables that hang
    from ``i`` by edges (factors of higher order alike),

        ``up_i(a) = theta_i(a) + sum_c min_b [theta_ic(a, b) + up_c(b)]``

    with ``-T log sum exp(-. / T)`` for the minimum at T > 0. A second pass reads the labels off at
    T = 0, and completes the marginals at T > 0; the labelling offered takes the most probable label
    given the parent's.

    Guarantees
    ----------
    Exact up to the rounding of sums: status `optimal` at T = 0, also with ties;
    `log_partition_kind` ``"exact"`` at T > 0; `infeasible` if and only if every labelling costs
    ``+inf``. Graphs whose variables, edges and factors form a cycle are not supported.

    Complexity
    ----------
    O(k) an edge for diagonal terms (at T = 0 for truncated linear ones, too), O(k^2) for tables,
    O(table size * arity^2) for factors. Memory: 8 bytes a label of each variable; at T > 0 three
    times as much.

    An iteration is a pass.

    References
    ----------
    J. Pearl, "Probabilistic reasoning in intelligent systems", 1988, sec. 4.3.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> s = il.solve(g, "tree-dp")
    >>> s.energy, s.status
    (0.5, <Status.OPTIMAL: 'optimal'>)
    >>> il.solve(g, "tree-dp", temperature=1.0).marginals.round(3)
    array([[0.702, 0.298],
           [0.408, 0.592]])
    """

    def supports(self, graph: FactorGraph, temperature: float) -> str | None:
        """Cover forests of variables, edges and factors."""
        if graph.is_forest:
            return None
        links = graph.n_edges + graph.factor_scopes.size
        trees = int(graph.components.max()) + 1
        cycles = links - graph.n_variables - graph.n_factors + trees
        what = "1 cycle" if cycles == 1 else f"{cycles} independent cycles"
        return f"the graph has {what}; dynamic programming on trees needs a forest"

    def run(self, graph: FactorGraph, run: Run) -> Outcome:
        """Pass up, decode, and pass down at T > 0."""
        g = graph.arrays
        temperature = run.temperature
        forest = root(graph)
        state = _start(graph, forest, temperature > 0)
        work = Workspace(
            np.empty(int(graph.cardinalities.max(initial=1))),
            np.empty(int(graph.cardinalities.max(initial=1))),
            np.empty(int(np.diff(graph.factor_ptr).max(initial=0)), dtype=np.int64),
        )
        at = graph.n_variables
        while at > 0 and not run.should_stop():
            at = upward(g, forest, temperature, state, work, at, _CHUNK)
        if at < 0:
            return Outcome(converged=True, infeasible=True, iterations=1)
        x = np.empty(graph.n_variables, dtype=np.int64)
        if at > 0:
            # Without the messages, each variable for itself.
            state.up[:] = graph.unary_values
            alone = forest._replace(
                link=np.full_like(forest.link, -1), head=np.full_like(forest.head, -1)
            )
            decode(g, alone, state, work, x)
            run.offer(x)
            return Outcome()
        decode(g, forest, state, work, x)
        run.offer(x)
        total = float(state.shift.sum()) + graph.constant
        if temperature == 0:
            # The evaluator's sum for the same labelling; that of the passes differs in rounding.
            run.bound(run.best_energy)
            return Outcome(converged=True, iterations=1, claimed_energy=total)
        outcome = Outcome(
            iterations=1, log_partition=-total / temperature, log_partition_kind="exact"
        )
        while at < graph.n_variables and not run.should_stop(1):
            at = downward(g, forest, temperature, state, work, at, _CHUNK)
        if at < graph.n_variables:
            return outcome
        weights = np.exp(-state.belief / temperature)
        owner = np.repeat(np.arange(graph.n_variables), graph.cardinalities)
        outcome.marginals = unflatten(graph, weights / np.bincount(owner, weights)[owner])
        # An empty graph needs no second pass.
        outcome.iterations = 2 if graph.n_variables else 1
        outcome.converged = True
        return outcome


def _start(graph: FactorGraph, forest: Forest, soft: bool) -> State:
    """Allocate what the passes write."""
    told = np.zeros(graph.n_variables + 1, dtype=np.int64)
    if soft:
        hung = np.flatnonzero(forest.link >= 0)
        above = graph.arrays.adj_var[forest.link[hung]]
        told[hung + 1] = graph.cardinalities[above]
        told = np.cumsum(told)
    slots = slot_ptr(graph)
    size = graph.unary_values.size
    return State(
        up=np.zeros(size),
        told_ptr=told,
        told=np.empty(told[-1]),
        slot_ptr=slots,
        slots=np.zeros(slots[-1]),
        belief=np.empty(size if soft else 0),
        shift=np.zeros(2),
    )
