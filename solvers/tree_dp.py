"""Dynamic programming on forests: exact in linear time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from inference_lab._numba import lean_kernel
from inference_lab.algorithms.belief_propagation.forests import spanning_forest
from inference_lab.contract import Outcome, Run, Solver
from inference_lab.graph.arrays import FloatArray, GraphArrays, IntArray, starts_of
from inference_lab.graph.factor_graph import FactorGraph, unary_minimum
from inference_lab.kernels.factor_messages import factor_message, next_labels
from inference_lab.kernels.forest_passes import (
    RootedForest,
    Sent,
    Slots,
    Totals,
    make_slots,
    send_to_roots,
)
from inference_lab.kernels.messages import half_cost, sum_product_message, unflatten

#: Table entries read between two checks of the clock: about 0.1 s.
_CHUNK = 1 << 24


@lean_kernel
def decode(
    g: GraphArrays, forest: RootedForest, total: FloatArray, slots: Slots | None, x: IntArray
) -> None:
    """Label from the roots on: each variable gets its best label given its parent's label."""
    # The children of a factor are labelled together, by its best entry.
    for i in forest.order:
        start = g.unary_ptr[i]
        p = forest.up[i]
        if p >= -1:
            best = np.inf
            x[i] = 0
            for a in range(g.cardinalities[i]):
                value = total[start + a]
                if p >= 0:
                    value += half_cost(g, g.adj_half[p], a, x[g.adj_var[p]])
                if value < best:
                    best = value
                    x[i] = a
        if slots is not None:
            for q in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
                if p != -2 - g.inc_slot[q]:
                    _label_together(g, g.inc_slot[q], slots, x)


@lean_kernel
def _label_together(g: GraphArrays, slot: int, slots: Slots, x: IntArray) -> None:
    """Label the variables of a factor given the label of the one at `slot`."""
    f, digits = g.slot_factor[slot], slots.digits
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
                    value += slots.cavity[slots.ptr[s] + digits[s - lo]]
            if value < best:
                best = value
                for s in range(lo, hi):
                    x[g.scopes[s]] = digits[s - lo]
        next_labels(g, lo, hi, digits)


@lean_kernel
def downward(
    g: GraphArrays, forest: RootedForest, temperature: float, totals: Totals, slots: Slots | None,
    sent: Sent, at: int, budget: int,
) -> int:  # fmt: skip
    """Turn the totals into beliefs from variable ``order[at]`` on, away from the roots."""
    # A variable sends a child its belief without the message that came from that child.
    total, _, cavity, out = totals
    while at < forest.order.size and budget > 0:
        i = forest.order[at]
        at += 1
        k = g.cardinalities[i]
        start = g.unary_ptr[i]
        p = forest.up[i]
        for a in range(k):
            out[a] = 0.0
        if p >= 0:
            j = g.adj_var[p]
            other, own = g.unary_ptr[j], sent.ptr[i]
            for b in range(g.cardinalities[j]):
                value = total[other + b]
                # An infinite belief stays infinite, because ``inf - inf`` is undefined.
                cavity[b] = value - sent.messages[own + b] if value < np.inf else np.inf
            sum_product_message(g, g.adj_half[p], temperature, cavity, out)
            budget -= k * g.cardinalities[j]
        elif slots is not None and p < -1:
            f = g.slot_factor[-2 - p]
            factor_message(g, -2 - p, temperature, slots.cavity, slots.ptr, out, slots.digits)
            budget -= g.table_ptr[f + 1] - g.table_ptr[f]
        least = np.inf
        for a in range(k):
            total[start + a] += out[a]
            least = min(least, total[start + a])
        for a in range(k):
            total[start + a] -= least
        if slots is not None:
            for q in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
                if p != -2 - g.inc_slot[q]:
                    to = slots.ptr[g.inc_slot[q]]
                    for a in range(k):
                        value = total[start + a]
                        rest = value - slots.cavity[to + a]
                        slots.cavity[to + a] = rest if value < np.inf else np.inf
        budget -= k
    return at


@dataclass(frozen=True)
class TreeDP(Solver):
    """Exact inference on forests by one pass to the roots and one back (Bellman; Pearl 1988).

    Each tree is rooted at one of its variables. On the way up, with ``c`` the children of ``i`` by
    edges (factors of higher order alike),

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
        """Support forests of variables, edges and factors."""
        if graph.is_forest:
            return None
        incidences = graph.n_edges + graph.factor_scopes.size
        trees = int(graph.components.max()) + 1
        cycles = incidences - graph.n_variables - graph.n_factors + trees
        what = "1 cycle" if cycles == 1 else f"{cycles} independent cycles"
        return f"the graph has {what}; dynamic programming on trees needs a forest"

    def run(self, graph: FactorGraph, run: Run) -> Outcome:
        """Pass up, decode, and pass down at T > 0."""
        g, n, temperature = graph.arrays, graph.n_variables, run.temperature
        terms = np.arange(graph.n_edges + graph.n_factors)
        forest = RootedForest(*spanning_forest(graph, terms)[1:])
        width = int(graph.cardinalities.max(initial=1))
        totals = Totals(graph.unary_values.copy(), np.zeros(2), np.empty(width), np.empty(width))
        slots = make_slots(graph) if graph.n_factors else None
        sent = _make_sent(graph, forest) if temperature > 0 else None
        rho = np.ones(terms.size)
        at = n
        while at > 0 and not run.should_stop():
            at = send_to_roots(g, forest, temperature, rho, totals, slots, sent, at, _CHUNK)
        if at < 0:
            return Outcome(converged=True, infeasible=True, iterations=1)
        if at > 0:
            # The messages are incomplete, so each variable is labelled by its unaries.
            run.offer(unary_minimum(graph))
            return Outcome()
        x = np.empty(n, dtype=np.int64)
        decode(g, forest, totals.total, slots, x)
        run.offer(x)
        total = float(totals.shift.sum()) + graph.constant
        if sent is None:
            # The evaluated energy of the labelling, because the passes' sum differs by rounding.
            run.bound(run.best_energy)
            return Outcome(converged=True, iterations=1, claimed_energy=total)
        outcome = Outcome(
            iterations=1, log_partition=-total / temperature, log_partition_kind="exact"
        )
        while at < n and not run.should_stop(1):
            at = downward(g, forest, temperature, totals, slots, sent, at, _CHUNK)
        if at < n:
            return outcome
        weights = np.exp(-totals.total / temperature)
        owner = np.repeat(np.arange(n), graph.cardinalities)
        outcome.marginals = unflatten(graph, weights / np.bincount(owner, weights)[owner])
        # An empty graph needs no second pass.
        outcome.iterations = 2 if n else 1
        outcome.converged = True
        return outcome


def _make_sent(graph: FactorGraph, forest: RootedForest) -> Sent:
    """Allocate the messages that variables send to their parents."""
    sizes = np.zeros(graph.n_variables, dtype=np.int64)
    hung = np.flatnonzero(forest.up >= 0)
    sizes[hung] = graph.cardinalities[graph.arrays.adj_var[forest.up[hung]]]
    ptr = starts_of(sizes)
    return Sent(ptr, np.empty(ptr[-1]))
