"""Loopy belief propagation: min-sum for the best labelling, sum-product for marginals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from inference_lab._numba import inlined, inlined_minimum, lean_kernel
from inference_lab.contract import Marginals, Outcome, Run, Solver
from inference_lab.factor_graph import FactorGraph, FloatArray, GraphArrays, IntArray
from inference_lab.kernels import (
    cost_scale,
    edge_cost,
    factor_message,
    message_ptr,
    min_sum_message,
    slot_ptr,
    sum_product_message,
    unflatten,
)


class Messages(NamedTuple):
    """The state of message passing, flat arrays of energies.

    * ``ptr`` (2m + 1,) and ``to_variable``: the message that arrives at each adjacency position;
    * ``slot_ptr`` (slots + 1,), ``from_factor`` and ``to_factor``: the messages between each
      higher-order factor and the variable at each position of its scope.
    """

    ptr: IntArray
    to_variable: FloatArray
    slot_ptr: IntArray
    from_factor: FloatArray
    to_factor: FloatArray


def start_messages(graph: FactorGraph) -> Messages:
    """Return all-zero messages for a graph."""
    ptr, slots = message_ptr(graph), slot_ptr(graph)
    return Messages(ptr, np.zeros(ptr[-1]), slots, np.zeros(slots[-1]), np.zeros(slots[-1]))


class Workspace(NamedTuple):
    """Scratch arrays for one variable at a time.

    All are as long as the largest cardinality, but `digits`, as long as the largest arity.
    """

    finite: FloatArray
    infinite: IntArray
    cavity: FloatArray
    new: FloatArray
    digits: IntArray


def workspace(graph: FactorGraph) -> Workspace:
    """Allocate scratch arrays for a graph."""
    width = int(graph.cardinalities.max(initial=1))
    arity = int(np.diff(graph.factor_ptr).max(initial=0))
    return Workspace(
        np.empty(width),
        np.zeros(width, np.int64),
        np.empty(width),
        np.empty(width),
        np.empty(arity, np.int64),
    )


@inlined
def add_message(
    k: int, messages: FloatArray, start: int, hard: bool, finite: FloatArray, infinite: IntArray
) -> None:
    """Add ``messages[start : start + k]`` to a sum kept as finite part and count of infinities."""
    if hard:
        for a in range(k):
            value = messages[start + a]
            if np.isinf(value):
                infinite[a] += 1
            else:
                finite[a] += value
    else:
        for a in range(k):
            finite[a] += messages[start + a]


@inlined
def belief(g: GraphArrays, i: int, msg: Messages, hard: bool, work: Workspace) -> None:
    """Add up the unary and all incoming messages of variable ``i``.

    ``work.finite[a]`` gets the sum of the finite terms, ``work.infinite[a]`` the number of
    infinite ones (all zero unless `hard`, which says that the graph has infinite costs).
    """
    k = g.cardinalities[i]
    for a in range(k):
        work.finite[a] = 0.0
        work.infinite[a] = 0
    add_message(k, g.unary, g.unary_ptr[i], hard, work.finite, work.infinite)
    for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
        add_message(k, msg.to_variable, msg.ptr[p], hard, work.finite, work.infinite)
    for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
        start = msg.slot_ptr[g.inc_slot[p]]
        add_message(k, msg.from_factor, start, hard, work.finite, work.infinite)


@inlined
def cavity_of(
    k: int,
    finite: FloatArray,
    infinite: IntArray,
    messages: FloatArray,
    start: int,
    hard: bool,
    out: FloatArray,
) -> None:
    """Take one message out of a belief: ``out[a]`` is the sum of all other terms."""
    if hard:
        for a in range(k):
            value = messages[start + a]
            if np.isinf(value):
                out[a] = finite[a] if infinite[a] == 1 else np.inf
            else:
                out[a] = finite[a] - value if infinite[a] == 0 else np.inf
    else:
        for a in range(k):
            out[a] = finite[a] - messages[start + a]


@inlined
def least_label(k: int, work: Workspace) -> int:
    """Return the label of least belief; fewer infinite terms count first."""
    best = 0
    for a in range(1, k):
        if work.infinite[a] < work.infinite[best] or (
            work.infinite[a] == work.infinite[best] and work.finite[a] < work.finite[best]
        ):
            best = a
    return best


@inlined_minimum
def replace_message(
    target: FloatArray,
    start: int,
    k: int,
    new: FloatArray,
    smallest: float,
    damping: float,
    scale: float,
    hard: bool,
) -> float:
    """Normalise a message to minimum zero, damp it and store it; return its relative change.

    The change is that of the undamped message, so that small steps do not pass for convergence:
    the largest ``|new - old|`` over the size of the message plus `scale`; 1 where an entry turns
    infinite or finite.
    """
    shift = smallest if smallest < np.inf else 0.0
    difference = 0.0
    size = scale
    if hard:
        for b in range(k):
            value = new[b] - shift
            old = target[start + b]
            target[start + b] = value
            if np.isinf(value) or np.isinf(old):
                if value != old:
                    difference = np.inf
            else:
                difference = max(difference, abs(value - old))
                size = max(size, abs(value))
                target[start + b] = value + damping * (old - value)
        if difference == np.inf:
            return 1.0
    else:
        for b in range(k):
            value = new[b] - shift
            old = target[start + b]
            difference = max(difference, abs(value - old))
            size = max(size, abs(value))
            target[start + b] = value + damping * (old - value)
    return difference / (size + scale)


class Step(NamedTuple):
    """The numbers every update needs: temperature, damping, scale of costs, tolerance, hardness."""

    temperature: float
    damping: float
    scale: float
    tolerance: float
    hard: bool


@inlined
def pull_from_factors(g: GraphArrays, i: int, step: Step, msg: Messages, work: Workspace) -> float:
    """Renew the messages of the higher-order factors at variable ``i``; return the change."""
    change = 0.0
    k = g.cardinalities[i]
    for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
        slot = g.inc_slot[p]
        smallest = factor_message(
            g, slot, step.temperature, msg.to_factor, msg.slot_ptr, work.new, work.digits
        )
        change = max(
            change,
            replace_message(
                msg.from_factor, msg.slot_ptr[slot], k, work.new, smallest, step.damping,
                step.scale, step.hard,
            ),
        )  # fmt: skip
    return change


@inlined
def send(
    g: GraphArrays,
    i: int,
    step: Step,
    msg: Messages,
    target: FloatArray,
    priority: FloatArray,
    work: Workspace,
) -> float:
    """Renew all messages that variable ``i`` sends; return the largest change.

    `work` holds the belief of ``i``. Pairwise messages go to `target` (``msg.to_variable`` itself,
    or a second array in a synchronous sweep). The change of each message is added to the priority
    of its receiver.
    """
    k = g.cardinalities[i]
    largest = 0.0
    for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
        h = g.adj_half[p] ^ 1
        j = g.adj_var[p]
        cavity_of(
            k, work.finite, work.infinite, msg.to_variable, msg.ptr[p], step.hard, work.cavity
        )
        if step.temperature == 0.0:
            smallest = min_sum_message(g, h, work.cavity, work.new)
        else:
            smallest = sum_product_message(g, h, step.temperature, work.cavity, work.new)
        change = replace_message(
            target, msg.ptr[g.adj_reverse[p]], g.cardinalities[j], work.new, smallest,
            step.damping, step.scale, step.hard,
        )  # fmt: skip
        priority[j] += change
        largest = max(largest, change)
    for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
        slot = g.inc_slot[p]
        start = msg.slot_ptr[slot]
        cavity_of(k, work.finite, work.infinite, msg.from_factor, start, step.hard, work.cavity)
        smallest = np.inf
        for a in range(k):
            smallest = min(smallest, work.cavity[a])
        # Damping acts on the way back from the factor; twice would be once too often.
        change = replace_message(
            msg.to_factor, start, k, work.cavity, smallest, 0.0, step.scale, step.hard
        )
        if change > 0.0:
            f = g.slot_factor[slot]
            for s in range(g.factor_ptr[f], g.factor_ptr[f + 1]):
                if s != slot:
                    priority[g.scopes[s]] += change
        largest = max(largest, change)
    return largest


@inlined
def update(
    g: GraphArrays,
    i: int,
    step: Step,
    msg: Messages,
    priority: FloatArray,
    work: Workspace,
    x: IntArray,
) -> float:
    """Take in what arrived at variable ``i``, note its best label, and send its messages.

    Returns the priority that is left to ``i`` itself: a damped message has not arrived at its new
    value yet.
    """
    pulled = pull_from_factors(g, i, step, msg, work)
    belief(g, i, msg, step.hard, work)
    x[i] = least_label(g.cardinalities[i], work)
    sent = send(g, i, step, msg, msg.to_variable, priority, work)
    return step.damping * max(sent, pulled)


@lean_kernel
def sequential_sweep(
    g: GraphArrays,
    order: IntArray,
    step: Step,
    msg: Messages,
    priority: FloatArray,
    work: Workspace,
    x: IntArray,
) -> int:
    """Update the variables in `order` whose incoming messages changed; return how many did.

    ``priority[i]`` adds up the changes of the messages that arrived at ``i`` since its last
    update; a variable at or below the tolerance is skipped, so that late sweeps cost little.
    """
    updated = 0
    for i in order:
        if priority[i] > step.tolerance:
            updated += 1
            priority[i] = update(g, i, step, msg, priority, work, x)
    return updated


@lean_kernel
def synchronous_sweep(
    g: GraphArrays,
    step: Step,
    msg: Messages,
    second: FloatArray,
    priority: FloatArray,
    work: Workspace,
    x: IntArray,
) -> float:
    """Renew all messages from the last sweep's; return the largest change.

    `second` holds the last sweep's pairwise messages on return; `priority` is not used.
    """
    n = g.cardinalities.size
    largest = 0.0
    for q in range(second.size):
        second[q] = msg.to_variable[q]
    before = Messages(msg.ptr, second, msg.slot_ptr, msg.from_factor, msg.to_factor)
    for i in range(n):
        largest = max(largest, pull_from_factors(g, i, step, msg, work))
    for i in range(n):
        belief(g, i, before, step.hard, work)
        x[i] = least_label(g.cardinalities[i], work)
        largest = max(largest, send(g, i, step, before, msg.to_variable, priority, work))
    return largest


@inlined
def _sift_up(heap: IntArray, place: IntArray, priority: FloatArray, at: int) -> None:
    i = heap[at]
    while at > 0:
        parent = (at - 1) >> 1
        if priority[heap[parent]] >= priority[i]:
            break
        heap[at] = heap[parent]
        place[heap[at]] = at
        at = parent
    heap[at] = i
    place[i] = at


@inlined
def _sift_down(heap: IntArray, place: IntArray, priority: FloatArray, at: int) -> None:
    i = heap[at]
    n = heap.size
    while True:
        child = 2 * at + 1
        if child >= n:
            break
        if child + 1 < n and priority[heap[child + 1]] > priority[heap[child]]:
            child += 1
        if priority[heap[child]] <= priority[i]:
            break
        heap[at] = heap[child]
        place[heap[at]] = at
        at = child
    heap[at] = i
    place[i] = at


@inlined
def _raise_priority(
    j: int, pending: FloatArray, heap: IntArray, place: IntArray, priority: FloatArray
) -> None:
    """Add what is pending for one variable to its priority and mend the heap there."""
    if pending[j] > 0.0:
        priority[j] += pending[j]
        pending[j] = 0.0
        _sift_up(heap, place, priority, place[j])


@lean_kernel
def residual_updates(
    g: GraphArrays,
    updates: int,
    step: Step,
    msg: Messages,
    priority: FloatArray,
    pending: FloatArray,
    heap: IntArray,
    place: IntArray,
    work: Workspace,
    x: IntArray,
) -> int:
    """Update the variable with the largest incoming change, `updates` times or until none is left.

    Returns the number of updates made; fewer than asked for means convergence. `pending` is all
    zero before and after: changes wait there, because the heap must be mended after each single
    change of a key.
    """
    for done in range(updates):
        i = heap[0]
        if priority[i] <= step.tolerance:
            return done
        priority[i] = update(g, i, step, msg, pending, work, x)
        _sift_down(heap, place, priority, 0)
        for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
            _raise_priority(g.adj_var[p], pending, heap, place, priority)
        for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
            f = g.slot_factor[g.inc_slot[p]]
            for s in range(g.factor_ptr[f], g.factor_ptr[f + 1]):
                _raise_priority(g.scopes[s], pending, heap, place, priority)
    return updates


@lean_kernel
def decode_each(g: GraphArrays, msg: Messages, hard: bool, work: Workspace, x: IntArray) -> int:
    """Take the label of least belief at each variable.

    Returns a variable whose labels are all infinite, or -1. Such a variable proves infeasibility:
    every finite labelling gives all messages a finite entry at its labels.
    """
    hopeless = -1
    for i in range(x.size):
        belief(g, i, msg, hard, work)
        best = least_label(g.cardinalities[i], work)
        x[i] = best
        if work.infinite[best] > 0:
            hopeless = i
    return hopeless


@lean_kernel
def decode_in_order(
    g: GraphArrays,
    order: IntArray,
    msg: Messages,
    to_factor: FloatArray,
    hard: bool,
    work: Workspace,
    x: IntArray,
) -> None:
    """Decode one variable after another, each given the labels already chosen.

    Messages from decoded neighbours are replaced by the cost of their label, so that ties are
    broken consistently: with converged min-sum messages on a forest the result is optimal.
    `to_factor` is a copy of the messages to the factors that is overwritten with decisions.
    """
    for i in range(x.size):
        x[i] = -1
    for i in order:
        k = g.cardinalities[i]
        for a in range(k):
            work.finite[a] = 0.0
            work.infinite[a] = 0
        add_message(k, g.unary, g.unary_ptr[i], hard, work.finite, work.infinite)
        for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
            h = g.adj_half[p]
            b = x[g.adj_var[p]]
            if b < 0:
                add_message(k, msg.to_variable, msg.ptr[p], hard, work.finite, work.infinite)
                continue
            for a in range(k):
                if h & 1 == 0:
                    work.new[a] = edge_cost(g, h >> 1, a, b)
                else:
                    work.new[a] = edge_cost(g, h >> 1, b, a)
            add_message(k, work.new, 0, hard, work.finite, work.infinite)
        for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
            factor_message(g, g.inc_slot[p], 0.0, to_factor, msg.slot_ptr, work.new, work.digits)
            add_message(k, work.new, 0, True, work.finite, work.infinite)
        best = least_label(k, work)
        x[i] = best
        for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
            start = msg.slot_ptr[g.inc_slot[p]]
            for a in range(k):
                to_factor[start + a] = 0.0 if a == best else np.inf


@inlined
def _log_sum(values: FloatArray, k: int, temperature: float) -> float:
    """Return ``log sum_a exp(-values[a] / T)``."""
    best = np.inf
    for a in range(k):
        best = min(best, values[a])
    if np.isinf(best):
        return -np.inf
    total = 0.0
    for a in range(k):
        total += np.exp((best - values[a]) / temperature)
    return float(np.log(total) - best / temperature)


@lean_kernel
def bethe_marginals(
    g: GraphArrays,
    temperature: float,
    msg: Messages,
    hard: bool,
    work: Workspace,
    finite: FloatArray,
    infinite: IntArray,
    cavities: FloatArray,
    marginals: FloatArray,
) -> float:
    """Fill the marginals (flat, like the unaries) and return the Bethe log-partition.

    ``log Z = sum_f log Z_f + sum_i (1 - degree_i) log Z_i`` with ``Z_i`` and ``Z_f`` the
    normalisers of the beliefs; exact on forests at convergence (Yedidia et al. 2005, sec. V).
    Scratch: `finite` and `infinite` like the unaries, `cavities` like the messages from factors.
    """
    n = g.cardinalities.size
    total = 0.0
    for i in range(n):
        k = g.cardinalities[i]
        start = g.unary_ptr[i]
        belief(g, i, msg, hard, work)
        for a in range(k):
            finite[start + a] = work.finite[a]
            infinite[start + a] = work.infinite[a]
            work.new[a] = np.inf if work.infinite[a] > 0 else work.finite[a]
        log_z = _log_sum(work.new, k, temperature)
        if np.isinf(log_z):
            return -np.inf
        for a in range(k):
            marginals[start + a] = np.exp(-work.new[a] / temperature - log_z)
        degree = g.adj_ptr[i + 1] - g.adj_ptr[i] + g.inc_ptr[i + 1] - g.inc_ptr[i]
        total += (1 - degree) * log_z
        for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
            at = msg.slot_ptr[g.inc_slot[p]]
            cavity_of(
                k, work.finite, work.infinite, msg.from_factor, at, hard, cavities[at : at + k]
            )
    for i in range(n):
        k = g.cardinalities[i]
        start = g.unary_ptr[i]
        for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
            h = g.adj_half[p]
            if h & 1 == 1:
                continue
            # Z_f of this edge: its message to the other end, closed with that end's cavity.
            j = g.adj_var[p]
            kj = g.cardinalities[j]
            cavity_of(
                k, finite[start:], infinite[start:], msg.to_variable, msg.ptr[p], hard,
                work.cavity,
            )  # fmt: skip
            sum_product_message(g, h ^ 1, temperature, work.cavity, work.new)
            cavity_of(
                kj, finite[g.unary_ptr[j] :], infinite[g.unary_ptr[j] :], msg.to_variable,
                msg.ptr[g.adj_reverse[p]], hard, work.cavity,
            )  # fmt: skip
            for b in range(kj):
                work.new[b] += work.cavity[b]
            total += _log_sum(work.new, kj, temperature)
    for f in range(g.factor_ptr.size - 1):
        slot = g.factor_ptr[f]
        k = g.cardinalities[g.scopes[slot]]
        factor_message(g, slot, temperature, cavities, msg.slot_ptr, work.new, work.digits)
        for a in range(k):
            work.new[a] += cavities[msg.slot_ptr[slot] + a]
        total += _log_sum(work.new, k, temperature)
    return total


@dataclass(frozen=True)
class LoopyBP(Solver):
    """Belief propagation on graphs with cycles (Pearl 1988; Yedidia, Freeman, Weiss 2005).

    At T = 0 messages are min-sum (max-product): ``m(b) = min_a theta(a, b) + cavity(a)``; at
    T > 0 sum-product with ``-T log sum exp`` in place of the minimum, all in the log domain and
    normalised to minimum zero.

    Parameters
    ----------
    schedule : {"sequential", "residual", "synchronous"}
        Variables in breadth-first order, there and back again, skipping those at which nothing
        new arrived; the variable with the largest incoming change next (Elidan et al. 2006, by
        variables); or all messages at once from those of the last sweep.
    damping : float in [0, 1)
        Share of the old message that is kept, in the log domain; not applied on forests.
    tolerance : float
        Messages have converged when no entry changes by more than this share of its size (plus
        the mean cost).
    max_sweeps : int
        Limit on sweeps; a sweep is n variable updates.

    Guarantees
    ----------
    On forests exact: best labelling with proof at T = 0 (also with ties), marginals and
    log-partition at T > 0. On graphs with cycles none; the best labelling seen is returned, and
    the log-partition is the Bethe approximation. An all-infinite belief proves infeasibility on
    any graph. `converged` is said only when the messages did.

    Complexity
    ----------
    A sweep costs O(k) a message for diagonal and (T = 0) truncated linear terms, O(k^2) for
    tables, O(table size * arity^2) for higher-order factors. Memory: one message array of
    ``8 * 2 m k`` bytes, two for the synchronous schedule.

    References
    ----------
    J. S. Yedidia, W. T. Freeman, Y. Weiss, "Constructing free-energy approximations and
    generalized belief propagation algorithms", IEEE Trans. Inf. Theory 51(7), 2005.
    G. Elidan, I. McGraw, D. Koller, "Residual belief propagation", UAI 2006.
    S. Basu, thesis, 2005, appendix A.1 (the E-step).

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> s = il.solve(g, "loopy-bp")
    >>> s.energy, s.status
    (0.5, <Status.OPTIMAL: 'optimal'>)
    >>> il.solve(g, "loopy-bp", temperature=1.0).marginals.round(3)
    array([[0.702, 0.298],
           [0.408, 0.592]])
    """

    schedule: Literal["sequential", "residual", "synchronous"] = "sequential"
    damping: float = 0.0
    tolerance: float = 1e-6
    max_sweeps: int = 1000

    def __post_init__(self) -> None:
        """Check the settings."""
        if not 0.0 <= self.damping < 1.0:
            raise ValueError(f"damping must be at least 0 and below 1, got {self.damping}")
        if not self.tolerance >= 0.0:
            raise ValueError(f"tolerance must not be negative, got {self.tolerance}")
        if self.max_sweeps < 1:
            raise ValueError(f"max_sweeps must be at least 1, got {self.max_sweeps}")

    def supports(self, graph: FactorGraph, temperature: float) -> str | None:
        """Every graph, every temperature."""
        return None

    def run(self, graph: FactorGraph, run: Run) -> Outcome:
        """Pass messages until they settle or the budget is spent; decode on the way."""
        state = _State(self, graph, run.temperature)
        sweeps = 0
        converged = False
        while not (converged or sweeps >= self.max_sweeps or run.should_stop(sweeps)):
            converged = state.sweep(sweeps)
            sweeps += 1
            run.offer(state.x)
        if state.decode(run):
            return Outcome(infeasible=True, iterations=sweeps)
        exact = converged and graph.is_forest
        outcome = Outcome(
            converged=converged,
            iterations=sweeps,
            diagnostics={"updates": state.updates, "last_change": state.change},
        )
        if run.temperature > 0.0:
            outcome.marginals, outcome.log_partition = state.marginals()
            outcome.log_partition_kind = "exact" if exact else "estimate"
        elif exact:
            run.bound(run.best_energy)
        return outcome


class _State:
    """Messages of a run and what is needed to renew and decode them."""

    def __init__(self, settings: LoopyBP, graph: FactorGraph, temperature: float) -> None:
        self.schedule = "forest" if graph.is_forest else settings.schedule
        self.graph = graph
        self.arrays = graph.arrays
        self.msg = start_messages(graph)
        self.work = workspace(graph)
        self.step = Step(
            temperature,
            0.0 if self.schedule == "forest" else settings.damping,
            cost_scale(graph),
            settings.tolerance,
            graph.has_infinite,
        )
        self.order = graph.breadth_first_order
        self.x = np.zeros(graph.n_variables, dtype=np.int64)
        self.priority = np.full(graph.n_variables, np.inf)
        self.updates = 0
        self.change = np.inf
        self.second = self.pending = np.empty(0)
        self.heap = self.place = np.empty(0, dtype=np.int64)
        if self.schedule == "synchronous":
            self.second = np.empty_like(self.msg.to_variable)
        elif self.schedule == "residual":
            # Finite, distinct priorities: every variable is visited once first, in order.
            self.priority = np.empty(graph.n_variables)
            self.priority[self.order] = 1e6 + np.arange(graph.n_variables, 0, -1)
            self.pending = np.zeros(graph.n_variables)
            self.heap = self.order.copy()
            self.place = np.empty(graph.n_variables, dtype=np.int64)
            self.place[self.heap] = np.arange(graph.n_variables)

    def sweep(self, number: int) -> bool:
        """Make one sweep; return whether the messages have converged."""
        n = self.graph.n_variables
        if n == 0:
            return True
        common = (self.work, self.x)
        if self.schedule == "forest":
            # From the leaves to the roots and back: then every message is final, whatever
            # rounding would make of a test for change.
            self.priority[:] = np.inf
            order = self.order[::-1].copy() if number == 0 else self.order
            self.updates += sequential_sweep(
                self.arrays, order, self.step, self.msg, self.priority, *common
            )
            self.change = 0.0 if number else np.inf
            return number > 0
        if self.schedule == "synchronous":
            self.updates += n
            self.change = synchronous_sweep(
                self.arrays, self.step, self.msg, self.second, self.priority, *common
            )
        elif self.schedule == "residual":
            self.updates += residual_updates(
                self.arrays,
                n,
                self.step,
                self.msg,
                self.priority,
                self.pending,
                self.heap,
                self.place,
                *common,
            )
            self.change = float(self.priority.max())
        else:
            order = self.order if number % 2 == 0 else self.order[::-1].copy()
            self.updates += sequential_sweep(
                self.arrays, order, self.step, self.msg, self.priority, *common
            )
            self.change = float(self.priority.max())
        return bool(self.change <= self.step.tolerance)

    def decode(self, run: Run) -> bool:
        """Offer the labellings that the messages suggest; return whether there can be none."""
        each = np.empty(self.graph.n_variables, dtype=np.int64)
        hard = self.step.hard
        if decode_each(self.arrays, self.msg, hard, self.work, each) >= 0:
            return True
        run.offer(each)
        decode_in_order(
            self.arrays, self.order, self.msg, self.msg.to_factor.copy(), hard, self.work, self.x
        )
        run.offer(self.x)
        return False

    def marginals(self) -> tuple[Marginals, float]:
        """Return marginals and Bethe log-partition."""
        flat = np.empty(self.graph.unary_values.size)
        temperature = self.step.temperature
        log_z = bethe_marginals(
            self.arrays,
            temperature,
            self.msg,
            self.step.hard,
            self.work,
            np.empty_like(flat),
            np.empty(flat.size, dtype=np.int64),
            np.empty_like(self.msg.from_factor),
            flat,
        )
        return unflatten(self.graph, flat), log_z - self.graph.constant / temperature
