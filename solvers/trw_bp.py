"""Tree-reweighted belief propagation: marginals and an upper bound on the log-partition."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from inference_lab._numba import kernel, lean_kernel
from inference_lab.algorithms.elimination.domains import Domains, allowed_labels
from inference_lab.contract import Outcome, Run, Solver
from inference_lab.graph.arrays import FloatArray, GraphArrays, Int32Array, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.kernels.messages import (
    cost_scale,
    edge_cost,
    message_ptr,
    sum_product_message,
    unflatten,
)
from inference_lab.kernels.sets import find
from inference_lab.specs.settings import setting

#: Messages sent between two looks at the clock are so many that they go through this many entries.
_CHUNK = 1 << 22

#: Probability of the first forest that is added, and that below which no more is tried.
_FIRST_STEP, _LAST_STEP = 0.25, 0.01
#: Messages settle to this tolerance, or for so many sweeps, between updates of the probabilities.
_ROUGH, _ROUGH_SWEEPS = 1e-3, 20


def new_message(
    theta: FloatArray, rho: float, temperature: float, belief: FloatArray, back: FloatArray
) -> FloatArray:
    """Return what arrives at ``i`` from ``j``, times the edge's appearance probability, (k_i,).

    The update of tree-reweighted sum-product (Wainwright, Jaakkola, Willsky 2005), as energies:
    with ``n = rho m`` for the message ``m`` and ``n'`` for that back to ``j``, the belief ``b_j``
    being the unary of ``j`` and all ``n`` that arrive there,

        ``n(x) = -rho T log sum_y exp(-(theta(x, y) + rho b_j(y) - n'(y)) / (rho T))``,

    normalised so that its least entry is 0.

    Parameters
    ----------
    theta : (k_i, k_j) array
    rho, temperature : float
    belief, back : (k_j,) arrays
    """
    exponents = -(theta + rho * belief - back) / (rho * temperature)
    largest = exponents.max(axis=1, keepdims=True)
    sums = largest[:, 0] + np.log(np.exp(exponents - largest).sum(axis=1))
    message = -rho * temperature * sums
    return np.asarray(message - message.min())


class Trees(NamedTuple):
    """Spanning forests, each rooted, with the probability of each.

    * ``order`` (t, n) int32: the variables of each forest, every one after its parent;
    * ``up`` (t, n) int32: at each variable (by number) the position of the edge to its parent in
      its adjacency, -1 at roots;
    * ``share`` (t,): probabilities, adding up to 1.
    """

    order: Int32Array
    up: Int32Array
    share: FloatArray


class State(NamedTuple):
    """The state of message passing, energies throughout.

    * ``unary`` flat: the unaries, ``+inf`` at labels that hard terms rule out;
    * ``ptr`` (2m+1,), ``messages``: what arrives at each adjacency position, times the edge's
      appearance probability ``rho``; 0 at labels that are ruled out;
    * ``rho`` (m,);
    * ``belief`` flat: unary and all incoming messages.
    """

    unary: FloatArray
    ptr: IntArray
    messages: FloatArray
    rho: FloatArray
    belief: FloatArray


class Update(NamedTuple):
    """How messages are renewed: at which temperature, how much of the old ones stays.

    Changes are judged relative to the size of a message plus ``scale``.
    """

    temperature: float
    damping: float
    scale: float


class Workspace(NamedTuple):
    """Scratch rows as long as the largest cardinality."""

    cavity: FloatArray
    out: FloatArray
    column: FloatArray


# ---------------------------------------------------------------------- spanning trees


@kernel
def _spanning_forest(
    g: GraphArrays, ranked: IntArray, n_links: int
) -> tuple[IntArray, Int32Array, Int32Array]:
    """Take edges in the order given unless they close a cycle, and root the forest.

    `n_links` is the number of edges of a spanning forest. Returns the forest's edges, and its
    ``order`` and ``up`` as in `Trees`.
    """
    n = g.cardinalities.size
    parent = np.arange(n)
    taken = np.empty(n_links, dtype=np.int64)
    inside = np.zeros(g.kinds.size, dtype=np.bool_)
    count = 0
    for e in ranked:
        if count == n_links:
            break
        a, b = find(parent, g.edges[e, 0]), find(parent, g.edges[e, 1])
        if a != b:
            parent[a] = b
            taken[count] = e
            inside[e] = True
            count += 1
    order = np.empty(n, dtype=np.int32)
    up = np.full(n, -1, dtype=np.int32)
    seen = np.zeros(n, dtype=np.bool_)
    first, last = 0, 0
    for start in range(n):
        if seen[start]:
            continue
        seen[start] = True
        order[last] = start
        last += 1
        while first < last:
            i = order[first]
            first += 1
            for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
                j = g.adj_var[p]
                if inside[g.adj_half[p] >> 1] and not seen[j]:
                    seen[j] = True
                    up[j] = g.adj_reverse[p]
                    order[last] = j
                    last += 1
    return taken, order, up


def _cover(graph: FactorGraph, least: int, run: Run) -> Trees | None:
    """Draw spanning forests that together hold every edge, and at least so many; None if stopped.

    The edges stand in a random queue; each forest takes the first ones that close no cycle, and
    these go to the end of the queue. So edges are used about equally often. All forests are equally
    likely. A graph without cycles gets itself.
    """
    m = graph.n_edges
    n_links = _n_links(graph)
    unused = np.ones(m, dtype=bool)
    queue = run.rng.permutation(m)
    orders: list[Int32Array] = []
    ups: list[Int32Array] = []
    wanted = 1 if m == n_links else least
    while len(orders) < wanted or unused.any():
        if run.should_stop():
            return None
        taken, order, up = _spanning_forest(graph.arrays, queue, n_links)
        unused[taken] = False
        moved = np.zeros(m, dtype=bool)
        moved[taken] = True
        last = moved[queue]
        queue = np.concatenate([queue[~last], queue[last]])
        orders.append(order)
        ups.append(up)
    count = len(orders)
    return Trees(np.array(orders), np.array(ups), np.full(count, 1.0 / count))


def _n_links(graph: FactorGraph) -> int:
    """Return the number of edges of a spanning forest."""
    return graph.n_variables - int(graph.components.max(initial=-1)) - 1


def _appearance(graph: FactorGraph, trees: Trees) -> FloatArray:
    """Return the probability with which each edge appears in a forest."""
    rho = np.zeros(graph.n_edges)
    for up, share in zip(trees.up, trees.share, strict=True):
        rho[graph.arrays.adj_half[up[up >= 0]] >> 1] += share
    return np.minimum(rho, 1.0)


# ---------------------------------------------------------------------- messages


@lean_kernel
def _collect(g: GraphArrays, i: int, state: State) -> None:
    """Add up the belief of a variable."""
    start = g.unary_ptr[i]
    k = g.cardinalities[i]
    for a in range(k):
        state.belief[start + a] = state.unary[start + a]
    for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
        at = state.ptr[p]
        for a in range(k):
            state.belief[start + a] += state.messages[at + a]


@lean_kernel
def sweep(
    g: GraphArrays,
    order: IntArray,
    step: int,
    first: int,
    update: Update,
    state: State,
    work: Workspace,
    budget: int,
) -> tuple[int, float]:
    """Renew what arrives at one variable after another, from ``order[first]`` on.

    As `new_message` says. `step` is 1 or -1, the direction through `order`. Stops after about
    `budget` entries; returns where to go on, and the largest relative change of a message.
    """
    change = 0.0
    at = first
    while 0 <= at < order.size and budget > 0:
        i = order[at]
        at += step
        k = g.cardinalities[i]
        start = g.unary_ptr[i]
        for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
            h = g.adj_half[p]
            j = g.adj_var[p]
            kj = g.cardinalities[j]
            rho = state.rho[h >> 1]
            back, other = state.ptr[g.adj_reverse[p]], g.unary_ptr[j]
            for b in range(kj):
                work.cavity[b] = (
                    rho * state.belief[other + b] - state.messages[back + b]
                    if state.unary[other + b] < np.inf
                    else np.inf
                )
            sum_product_message(g, h, rho * update.temperature, work.cavity, work.out)
            least = np.inf
            for a in range(k):
                if state.unary[start + a] < np.inf:
                    least = min(least, work.out[a])
            to = state.ptr[p]
            difference, size = 0.0, update.scale
            for a in range(k):
                if state.unary[start + a] < np.inf:
                    value = work.out[a] - least
                    old = state.messages[to + a]
                    difference = max(difference, abs(value - old))
                    size = max(size, abs(value))
                    value += update.damping * (old - value)
                    state.messages[to + a] = value
                    state.belief[start + a] += value - old
            change = max(change, difference / size)
            budget -= k + kj
        # What was added to the belief bit by bit is added up anew, so that rounding cannot build.
        _collect(g, i, state)
    return at, change


@lean_kernel
def tree_log_partition(
    g: GraphArrays,
    order: Int32Array,
    up: Int32Array,
    temperature: float,
    state: State,
    total: FloatArray,
    work: Workspace,
) -> float:
    """Return ``-T log Z`` of one forest of the reparametrised energy.

    The variables of the forest have the unaries ``b_i - sum n_e / rho_e`` over its edges ``e`` at
    ``i``, its edges ``theta_e / rho_e``. `total` is scratch like the unaries.
    """
    for t in range(total.size):
        total[t] = state.belief[t]
    for i in order:
        p = up[i]
        if p < 0:
            continue
        j = g.adj_var[p]
        rho = state.rho[g.adj_half[p] >> 1]
        own, other = state.ptr[p], state.ptr[g.adj_reverse[p]]
        for a in range(g.cardinalities[i]):
            total[g.unary_ptr[i] + a] -= state.messages[own + a] / rho
        for b in range(g.cardinalities[j]):
            total[g.unary_ptr[j] + b] -= state.messages[other + b] / rho
    result = 0.0
    for at in range(order.size - 1, -1, -1):
        i = order[at]
        k = g.cardinalities[i]
        start = g.unary_ptr[i]
        p = up[i]
        if p < 0:
            best = np.inf
            for a in range(k):
                best = min(best, total[start + a])
            weight = 0.0
            for a in range(k):
                weight += np.exp((best - total[start + a]) / temperature)
            result += best - temperature * np.log(weight)
            continue
        j = g.adj_var[p]
        h = g.adj_half[p] ^ 1
        rho = state.rho[h >> 1]
        for a in range(k):
            work.cavity[a] = rho * total[start + a]
        least = sum_product_message(g, h, rho * temperature, work.cavity, work.out)
        result += least / rho
        for b in range(g.cardinalities[j]):
            total[g.unary_ptr[j] + b] += (work.out[b] - least) / rho
    return result


@lean_kernel
def _pseudo_marginals(g: GraphArrays, temperature: float, state: State, out: FloatArray) -> None:
    """Write ``tau_i`` in proportion to ``exp(-b_i / T)``."""
    for i in range(g.cardinalities.size):
        lo, hi = g.unary_ptr[i], g.unary_ptr[i + 1]
        best = np.inf
        for t in range(lo, hi):
            best = min(best, state.belief[t])
        total = 0.0
        for t in range(lo, hi):
            out[t] = np.exp((best - state.belief[t]) / temperature)
            total += out[t]
        for t in range(lo, hi):
            out[t] /= total


@lean_kernel
def _mutual_information(
    g: GraphArrays, temperature: float, state: State, work: Workspace, out: FloatArray
) -> None:
    """Write the mutual information of the pseudo-marginals of each edge.

    ``tau_ij`` is in proportion to ``exp(-(theta / rho + b_i + b_j - (n_i + n_j) / rho) / T)``.
    """
    for i in range(g.cardinalities.size):
        for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
            h = g.adj_half[p]
            if h & 1:
                continue
            e = h >> 1
            j = g.adj_var[p]
            ki, kj = g.cardinalities[i], g.cardinalities[j]
            rho = state.rho[e]
            own, other = state.ptr[p], state.ptr[g.adj_reverse[p]]
            for a in range(ki):
                work.cavity[a] = state.belief[g.unary_ptr[i] + a] - state.messages[own + a] / rho
            for b in range(kj):
                work.out[b] = state.belief[g.unary_ptr[j] + b] - state.messages[other + b] / rho
            best = np.inf
            for a in range(ki):
                for b in range(kj):
                    best = min(best, edge_cost(g, e, a, b) / rho + work.cavity[a] + work.out[b])
            # I = sum p log p - sum p_a log p_a - sum p_b log p_b + log of the normaliser.
            total, joint, rows = 0.0, 0.0, 0.0
            for b in range(kj):
                work.column[b] = 0.0
            for a in range(ki):
                row = 0.0
                for b in range(kj):
                    cost = edge_cost(g, e, a, b) / rho + work.cavity[a] + work.out[b] - best
                    weight = np.exp(-cost / temperature)
                    if weight > 0.0:
                        joint -= weight * cost / temperature
                    row += weight
                    work.column[b] += weight
                total += row
                rows += row * np.log(row) if row > 0.0 else 0.0
            for b in range(kj):
                rows += work.column[b] * np.log(work.column[b]) if work.column[b] > 0.0 else 0.0
            out[e] = (joint - rows) / total + np.log(total)


@lean_kernel
def collect(g: GraphArrays, state: State) -> None:
    """Add up the beliefs of all variables."""
    for i in range(g.cardinalities.size):
        _collect(g, i, state)


@kernel
def _largest(g: GraphArrays, values: FloatArray) -> IntArray:
    """Return the label of the largest value of each variable, shape (n,)."""
    x = np.zeros(g.cardinalities.size, dtype=np.int64)
    for i in range(x.size):
        start = g.unary_ptr[i]
        for a in range(1, g.cardinalities[i]):
            if values[start + a] > values[start + x[i]]:
                x[i] = a
    return x


# ---------------------------------------------------------------------- the solver


@dataclass(frozen=True)
class TRWBP(Solver):
    """Tree-reweighted sum-product (Wainwright, Jaakkola, Willsky 2005).

    The edges are spread over spanning forests, edge ``e`` appearing with probability ``rho_e``.
    For any messages ``n`` the energy is the average of energies on forests, with unaries
    ``b_i - sum_e n_e / rho_e`` over the forest's edges at ``i`` (the belief ``b_i`` being unary and
    all messages) and edges ``theta_e / rho_e``. By Hoelder's inequality

        ``log Z <= sum_F share_F log Z_F``,

    and each ``Z_F`` is found by dynamic programming. Message passing lowers the bound: where the
    messages converge it is the least that these ``rho`` allow.

    Parameters
    ----------
    trees : int
        Least number of spanning forests; more are drawn until every edge is in one.
    tree_updates : int
        Improve the edge probabilities this often by a conditional gradient step: the spanning
        forest of the largest mutual information joins the others.
    damping : float in [0, 1)
        Share of the old message that is kept; not applied on forests.
    tolerance : float
        Messages have converged when no entry changes by more than this share of its size (plus
        the mean cost).
    max_sweeps : int
        Limit on sweeps, over all updates of the probabilities.

    Guarantees
    ----------
    `log_partition` is an upper bound (kind ``"upper"``) however early message passing stops, with
    forbidden labels and pairs, too; on forests it is tight. Only a time limit that ends before the
    forests are drawn leaves none. The marginals are pseudo-marginals;
    labels that hard terms rule out have none. Message passing need not converge; `converged` is
    only said where it did. Higher-order factors are not supported: their bound needs hypertrees.

    Complexity
    ----------
    A sweep costs O(k) a message for diagonal terms, O(k^2) for tables; the bound as much for
    each edge of each forest, and an update of the probabilities some 20 sweeps. Memory: two message
    arrays of ``8 * 2 m k`` bytes each (one without updates), and 8 n bytes a forest, of which there
    are ``2 m / n`` or so where that is more than `trees`, and one more for each update.

    References
    ----------
    M. J. Wainwright, T. S. Jaakkola, A. S. Willsky, "A new class of upper bounds on the log
    partition function", IEEE Trans. Inf. Theory 51(7), 2005: the bound, the tree-reweighted
    sum-product messages, and the conditional gradient in the edge probabilities.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0]] * 3, [(0, 1), (1, 2), (2, 0)], 0.5)
    >>> s = il.solve(g, "trw-bp", temperature=1.0)
    >>> exact = il.solve(g, "brute-force", temperature=1.0).log_partition
    >>> s.log_partition_kind, 0.0 < s.log_partition - exact < 0.02
    ('upper', True)
    """

    trees: int = setting(8, at_least=1)
    tree_updates: int = setting(10, at_least=0)
    damping: float = setting(0.3, at_least=0, below=1)
    tolerance: float = setting(1e-6, at_least=0)
    max_sweeps: int = setting(1000, at_least=1)

    def supports(self, graph: FactorGraph, temperature: float) -> str | None:
        """Cover pairwise graphs at T > 0."""
        if temperature == 0:
            return "trw-bp finds marginals: it needs a temperature above 0"
        if graph.n_factors:
            return f"trw-bp covers pairwise terms; the graph has {graph.n_factors} larger factors"
        return None

    def run(self, graph: FactorGraph, run: Run) -> Outcome:
        """Pass messages, then evaluate the bound; then again with better probabilities."""
        domains = allowed_labels(graph)
        if not domains.feasible:
            return Outcome(converged=True, infeasible=True)
        trees = _cover(graph, self.trees, run)
        if trees is None:
            run.offer(np.zeros(graph.n_variables, dtype=np.int64))
            return Outcome()
        passing = _Passing(self, graph, run, domains, trees)
        updates, step = 0, _FIRST_STEP
        bound = math.inf
        if self.tree_updates and not graph.is_forest:
            passing.settle(_ROUGH, _ROUGH_SWEEPS)
            bound = passing.bound()
            while updates < self.tree_updates and step >= _LAST_STEP and not passing.stopped:
                before = passing.copy()
                passing.join(step)
                passing.settle(_ROUGH, _ROUGH_SWEEPS)
                updates += 1
                lower = passing.bound()
                if lower < bound:
                    bound = lower
                else:
                    passing.restore(before)
                    step /= 2
        rough = passing.sweeps
        converged = passing.settle(self.tolerance, self.max_sweeps)
        if passing.sweeps > rough or updates == 0:
            bound = min(bound, passing.bound())
        marginals = passing.marginals()
        run.offer(_largest(graph.arrays, marginals))
        return Outcome(
            converged=converged,
            iterations=passing.sweeps,
            marginals=unflatten(graph, marginals),
            log_partition=bound,
            log_partition_kind="upper",
            diagnostics={
                "trees": int(passing.trees.share.size),
                "tree_updates": updates,
                "least_edge_probability": float(passing.state.rho.min(initial=1.0)),
                "last_change": passing.change,
            },
        )


class _Passing:
    """The forests and messages of a run, and what is done with them."""

    def __init__(
        self, settings: TRWBP, graph: FactorGraph, run: Run, domains: Domains, trees: Trees
    ) -> None:
        self.settings, self.graph, self.run, self.trees = settings, graph, run, trees
        self.arrays = graph.arrays
        unary = np.full(graph.unary_values.size, np.inf)
        owner = np.repeat(np.arange(graph.n_variables), domains.sizes)
        left = graph.unary_ptr[owner] + domains.labels
        unary[left] = graph.unary_values[left]
        ptr = message_ptr(graph)
        self.state = State(unary, ptr, np.zeros(ptr[-1]), _appearance(graph, trees), unary.copy())
        width = int(graph.cardinalities.max(initial=1))
        self.work = Workspace(np.empty(width), np.empty(width), np.empty(width))
        self.order = graph.breadth_first_order
        damping = 0.0 if graph.is_forest else settings.damping
        self.update = Update(run.temperature, damping, cost_scale(graph))
        self.sweeps = 0
        self.change = math.inf

    @property
    def stopped(self) -> bool:
        """Whether the budget is spent."""
        return self.sweeps >= self.settings.max_sweeps or self.run.should_stop(self.sweeps)

    def settle(self, tolerance: float, most: int) -> bool:
        """Sweep there and back, at most so often; return whether the messages converged."""
        last = self.sweeps + most
        while self.sweeps < last and not self.stopped:
            largest = 0.0
            step = 1 if self.sweeps % 2 == 0 else -1
            at = 0 if step > 0 else self.order.size - 1
            while 0 <= at < self.order.size:
                at, change = sweep(
                    self.arrays, self.order, step, at, self.update, self.state, self.work, _CHUNK
                )
                largest = max(largest, change)
                if self.run.time_limit is not None and self.run.remaining <= 0.0:
                    break
            self.sweeps += 1
            if 0 <= at < self.order.size:
                return False
            self.change = largest
            if self.change <= tolerance:
                return True
        return False

    def bound(self) -> float:
        """Return the upper bound on the log-partition that the messages give as they are."""
        total = np.empty(self.graph.unary_values.size)
        values = [
            share
            * tree_log_partition(
                self.arrays, order, up, self.run.temperature, self.state, total, self.work
            )
            for order, up, share in zip(*self.trees, strict=True)
        ]
        return -(math.fsum(values) + self.graph.constant) / self.run.temperature

    def marginals(self) -> FloatArray:
        """Return the pseudo-marginals, flat like the unaries."""
        out = np.empty(self.graph.unary_values.size)
        _pseudo_marginals(self.arrays, self.run.temperature, self.state, out)
        return out

    def join(self, step: float) -> None:
        """Give the forest of the largest mutual information the probability `step`."""
        graph = self.graph
        information = np.zeros(graph.n_edges)
        _mutual_information(self.arrays, self.run.temperature, self.state, self.work, information)
        ranked = np.argsort(-information, kind="stable")
        _, order, up = _spanning_forest(self.arrays, ranked, _n_links(graph))
        self.trees = Trees(
            np.concatenate([self.trees.order, order[None]]),
            np.concatenate([self.trees.up, up[None]]),
            np.append((1.0 - step) * self.trees.share, step),
        )
        rho = _appearance(graph, self.trees)
        # The messages stay; what is stored is scaled by the probabilities.
        scale = (rho / self.state.rho)[self.arrays.adj_half >> 1]
        messages = self.state.messages * np.repeat(scale, np.diff(self.state.ptr))
        self.state = self.state._replace(rho=rho, messages=messages)
        collect(self.arrays, self.state)

    def copy(self) -> tuple[Trees, FloatArray, FloatArray]:
        """Return what `restore` needs to undo a step."""
        return self.trees, self.state.rho, self.state.messages.copy()

    def restore(self, before: tuple[Trees, FloatArray, FloatArray]) -> None:
        """Go back to an earlier state."""
        self.trees, rho, messages = before
        self.state = self.state._replace(rho=rho, messages=messages)
        collect(self.arrays, self.state)
