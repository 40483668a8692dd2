"""Elimination on forests of variables and edges: exact, with little code to compile."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from inference_lab._numba import kernel, lean_kernel
from inference_lab.contract import Outcome, Run
from inference_lab.graph.arrays import FloatArray, GraphArrays, IntArray
from inference_lab.graph.factor_graph import FactorGraph, unary_minimum
from inference_lab.kernels.messages import half_cost

#: Terms and labels between two checks of the clock: some tens of milliseconds.
_WORK = 3_000_000


class ForestMessages(NamedTuple):
    """The state of the pass to the roots."""

    #: (like the unaries): each label's unary and the messages of the branches below.
    costs: FloatArray
    #: ``choice_at`` (n,), ``choice``: the best label for each label of the variable above.
    choice_at: IntArray
    choice: IntArray
    #: (n,): the least entry of each message, which is taken off it, so that messages stay small.
    minima: FloatArray
    #: (k,): scratch for one message.
    message: FloatArray


@kernel
def leaves_first(g: GraphArrays) -> tuple[IntArray, IntArray]:
    """Return an order in which all but one neighbour of each variable precede it, and links.

    The link of a variable is its half-edge to the later neighbour, -1 for the root of a tree.
    """
    n = g.cardinalities.size
    order = np.empty(n, dtype=np.int64)
    links = np.full(n, -1, dtype=np.int64)
    degree = np.empty(n, dtype=np.int64)
    done = np.zeros(n, dtype=np.bool_)
    leaves = np.empty(n, dtype=np.int64)
    size = 0
    for v in range(n - 1, -1, -1):
        degree[v] = g.adj_ptr[v + 1] - g.adj_ptr[v]
        if degree[v] <= 1:
            leaves[size] = v
            size += 1
    for t in range(n):
        size -= 1
        v = leaves[size]
        order[t] = v
        done[v] = True
        for q in range(g.adj_ptr[v], g.adj_ptr[v + 1]):
            u = g.adj_var[q]
            if not done[u]:
                links[v] = g.adj_half[q]
                degree[u] -= 1
                if degree[u] == 1:
                    leaves[size] = u
                    size += 1
    return order, links


@lean_kernel
def to_roots(
    g: GraphArrays,
    order: IntArray,
    links: IntArray,
    first: int,
    messages: ForestMessages,
    x: IntArray,
    work: int,
) -> int:
    """Send messages from position `first` on; return the next position, -1 if infeasible."""
    # Roots get their labels in ``x``.
    t = first
    while t < order.size and work > 0:
        v = order[t]
        h = links[v]
        k = g.cardinalities[v]
        costs = messages.costs[g.unary_ptr[v] : g.unary_ptr[v] + k]
        minimum = np.inf
        if h < 0:
            for a in range(k):
                if costs[a] < minimum:
                    minimum = costs[a]
                    x[v] = a
            work -= k
        else:
            u = g.edges[h >> 1, 1 - (h & 1)]
            above = messages.costs[g.unary_ptr[u] : g.unary_ptr[u] + g.cardinalities[u]]
            choice = messages.choice[messages.choice_at[v] :]
            message = messages.message
            for b in range(above.size):
                best = np.inf
                label = 0
                for a in range(k):
                    cost = costs[a] + half_cost(g, h, a, b)
                    if cost < best:
                        best = cost
                        label = a
                choice[b] = label
                minimum = min(minimum, best)
                message[b] = best
            if minimum < np.inf:
                for b in range(above.size):
                    above[b] += message[b] - minimum
            work -= k * above.size
        if minimum == np.inf:
            return -1
        messages.minima[v] = minimum
        t += 1
    return t


@lean_kernel
def from_roots(
    g: GraphArrays, order: IntArray, links: IntArray, messages: ForestMessages, x: IntArray
) -> None:
    """Label the variables below the roots."""
    for t in range(order.size - 1, -1, -1):
        v = order[t]
        h = links[v]
        if h >= 0:
            x[v] = messages.choice[messages.choice_at[v] + x[g.edges[h >> 1, 1 - (h & 1)]]]


def solve_forest(graph: FactorGraph, run: Run) -> Outcome:
    """Return the exact outcome at T = 0 on a forest without factors and label costs.

    Ties go to the first label. If the time runs out, the answer is the label of least unary cost of
    each variable, without a bound.
    """
    g = graph.arrays
    order, links = leaves_first(g)
    linked = links >= 0
    sizes = np.zeros(graph.n_variables, dtype=np.int64)
    half = links[linked]
    sizes[linked] = graph.cardinalities[graph.edges[half >> 1, 1 - (half & 1)]]
    choice_at = np.cumsum(sizes) - sizes
    messages = ForestMessages(
        costs=graph.unary_values.copy(),
        choice_at=choice_at,
        choice=np.empty(int(sizes.sum()), dtype=np.int64),
        minima=np.zeros(graph.n_variables),
        message=np.empty(int(graph.cardinalities.max(initial=1))),
    )
    x = np.zeros(graph.n_variables, dtype=np.int64)
    outcome = Outcome()
    at = 0
    while at < order.size:
        if run.should_stop(outcome.iterations):
            run.offer(unary_minimum(graph))
            return outcome
        outcome.iterations += 1
        at = int(to_roots(g, order, links, at, messages, x, _WORK))
        if at < 0:
            outcome.converged = outcome.infeasible = True
            return outcome
    from_roots(g, order, links, messages, x)
    run.offer(x)
    outcome.converged = True
    outcome.claimed_energy = math.fsum([graph.constant, *messages.minima.tolist()])
    # The evaluated energy of the labelling, because the sum of messages differs by rounding.
    run.bound(run.best_energy)
    return outcome
