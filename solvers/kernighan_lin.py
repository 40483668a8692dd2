"""Kernighan-Lin moves: chains of best single moves, kept up to where they gain most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from inference_lab._numba import inlined, lean_kernel
from inference_lab.contract import Outcome, Run, Solver
from inference_lab.graph.arrays import TABLE, FloatArray, GraphArrays, IntArray
from inference_lab.graph.factor_graph import FactorGraph, unary_minimum
from inference_lab.graph.traversal import nearest
from inference_lab.kernels.heap import Heap, clear, empty_heap, pop, push, settle
from inference_lab.kernels.messages import local_costs
from inference_lab.kernels.record import record
from inference_lab.specs.settings import setting

#: A chain must gain more than this share of the largest cost at one variable, so that rounding
#: cannot cycle.
_RELATIVE_GAIN = 1e-12
#: Terms and labels looked at between two looks at the clock: some tens of milliseconds.
_WORK = 2_000_000
#: Moves of a pass after its best state; more made no difference on grids and E-steps.
_PASS = 100


class Chains(NamedTuple):
    """Costs of all single moves, kept up to date, and the chain of moves at hand.

    * ``cost``, ``hard`` (like the unaries): finite part and number of violated hard terms of each
      label, all other variables being as they are;
    * ``heap``: variables that may move, by the change of both by the best move of each, violations
      (the key) first; ``target`` (n,): the label of that move;
    * ``locked`` (n,): number of the last chain each variable moved in; ``moved``, ``source``
      (n,): the moves of this chain, and the labels before;
    * ``journal`` (n,): variables that moved since the last kick, ``stamp`` and ``kept`` (n,): its
      number and the labels before it; ``seen`` (n,): number of the last kick that reached each;
    * ``now``, a record: number of the chain and of the kick, length of the journal; moves,
      violations and cost since the chain began, and the same at its best; what the chains of a
      sweep or a kick gained, and how many did.
    """

    cost: FloatArray
    hard: IntArray
    heap: Heap
    target: IntArray
    locked: IntArray
    moved: IntArray
    source: IntArray
    journal: IntArray
    stamp: IntArray
    kept: IntArray
    seen: IntArray
    now: Any


class Rules(NamedTuple):
    """How far chains go: moves after the best state, labels to begin with, what is a gain."""

    moves: int
    branches: int
    tolerance: float


def start_chains(graph: FactorGraph) -> Chains:
    """Allocate the arrays for a graph."""
    n, size = graph.n_variables, graph.unary_values.size

    def ints(length: int) -> IntArray:
        return np.zeros(length, dtype=np.int64)

    return Chains(
        cost=np.empty(size),
        hard=ints(size),
        heap=empty_heap(key=ints(n), tie=np.empty(n)),
        target=ints(n),
        locked=ints(n),
        moved=ints(n),
        source=ints(n),
        journal=ints(n),
        stamp=ints(n),
        kept=ints(n),
        seen=ints(n),
        now=record(
            chain=int, kick=int, changed=int, moves=int, violations=int, cost=float,
            best_moves=int, best_violations=int, best_cost=float,
            gains=int, gained_violations=int, gained_cost=float,
        ),
    )  # fmt: skip


@inlined
def _best_move(g: GraphArrays, x: IntArray, c: Chains, i: int) -> None:
    """Find the label that variable ``i`` would move to; it must have two at least."""
    start = g.unary_ptr[i]
    own = x[i]
    best = -1
    for a in range(g.cardinalities[i]):
        if a != own and (
            best < 0
            or c.hard[start + a] < c.hard[start + best]
            or (c.hard[start + a] == c.hard[start + best]
                and c.cost[start + a] < c.cost[start + best])
        ):  # fmt: skip
            best = a
    c.target[i] = best
    c.heap.key[i] = c.hard[start + best] - c.hard[start + own]
    c.heap.tie[i] = c.cost[start + best] - c.cost[start + own]


@inlined
def _shift(c: Chains, at: int, value: float, sign: int) -> None:
    """Add a term to the cost of a label, or take it off."""
    if np.isinf(value):
        c.hard[at] += sign
    else:
        c.cost[at] += sign * value


@inlined
def _renew(g: GraphArrays, x: IntArray, c: Chains, j: int, invite: bool) -> None:
    """Find the best move of a variable again, and its place in the heap."""
    if c.locked[j] == c.now[0].chain or g.cardinalities[j] < 2:
        return
    _best_move(g, x, c, j)
    if c.heap.place[j] >= 0:
        settle(c.heap, j)
    elif invite:
        push(c.heap, j)


@inlined
def _move(g: GraphArrays, x: IntArray, c: Chains, i: int, new: int, invite: bool) -> int:
    """Give variable ``i`` a label and bring the costs of its neighbours up to date.

    With `invite`, neighbours that are neither locked nor in the heap join it. Returns the number
    of terms and labels looked at.
    """
    old = x[i]
    now = c.now[0]
    if c.stamp[i] != now.kick:
        c.stamp[i] = now.kick
        c.kept[i] = old
        c.journal[now.changed] = i
        now.changed += 1
    x[i] = new
    k = g.cardinalities[i]
    work = k
    for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
        h = g.adj_half[p]
        e = h >> 1
        j = g.adj_var[p]
        start = g.unary_ptr[j]
        kj = g.cardinalities[j]
        weight = g.weights[e]
        offset = g.offsets[e]
        kind = g.kinds[e]
        work += kj
        if kind == TABLE:
            step = 1
            stride = kj
            if h & 1 == 1:
                step = k
                stride = 1
            for a in range(kj):
                _shift(c, start + a, weight * g.pairwise[offset + old * stride + a * step], -1)
                _shift(c, start + a, weight * g.pairwise[offset + new * stride + a * step], 1)
        else:
            if old < kj:
                _shift(c, start + old, g.pairwise[offset + old * kind], -1)
                _shift(c, start + old, weight, 1)
            if new < kj:
                _shift(c, start + new, weight, -1)
                _shift(c, start + new, g.pairwise[offset + new * kind], 1)
        _renew(g, x, c, j, invite)
    for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
        slot = g.inc_slot[p]
        f = g.slot_factor[slot]
        for other in range(g.factor_ptr[f], g.factor_ptr[f + 1]):
            if other == slot:
                continue
            j = g.scopes[other]
            index = g.table_ptr[f]
            stride = 1
            step = 1
            own_stride = 1
            for s in range(g.factor_ptr[f + 1] - 1, g.factor_ptr[f] - 1, -1):
                if s == slot:
                    own_stride = stride
                elif s == other:
                    step = stride
                else:
                    index += x[g.scopes[s]] * stride
                stride *= g.cardinalities[g.scopes[s]]
            for a in range(g.cardinalities[j]):
                _shift(c, g.unary_ptr[j] + a, g.tables[index + old * own_stride + a * step], -1)
                _shift(c, g.unary_ptr[j] + a, g.tables[index + new * own_stride + a * step], 1)
            work += g.cardinalities[j] + g.factor_ptr[f + 1] - g.factor_ptr[f]
            _renew(g, x, c, j, invite)
    return int(work)


@lean_kernel
def fill(g: GraphArrays, x: IntArray, c: Chains) -> float:
    """Compute the costs of all single moves; return the largest cost at one variable."""
    scale = 0.0
    for i in range(x.size):
        lo = g.unary_ptr[i]
        scale = max(scale, local_costs(g, x, i, c.cost[lo:], c.hard[lo:]))
    return scale


@inlined
def begin_chain(c: Chains) -> None:
    """Forget the chain before; the heap must be empty."""
    now = c.now[0]
    now.chain += 1
    now.moves = now.violations = now.best_moves = now.best_violations = 0
    now.cost = now.best_cost = 0.0


@inlined
def begin_journal(c: Chains) -> None:
    """Forget what was noted to be undone as a whole."""
    c.now[0].kick += 1
    c.now[0].changed = 0


@lean_kernel
def begin_pass(g: GraphArrays, x: IntArray, c: Chains) -> None:
    """Begin a chain in which every variable may move."""
    begin_chain(c)
    begin_journal(c)
    clear(c.heap)
    for i in range(x.size):
        if g.cardinalities[i] > 1:
            _best_move(g, x, c, i)
            push(c.heap, i)


@lean_kernel
def go_to(
    g: GraphArrays, x: IntArray, c: Chains, i: int, new: int, tolerance: float, invite: bool
) -> int:
    """Make variable ``i`` the next of the chain; return the work."""
    now = c.now[0]
    at = g.unary_ptr[i] + x[i]
    to = g.unary_ptr[i] + new
    now.cost += c.cost[to] - c.cost[at]
    now.violations += c.hard[to] - c.hard[at]
    c.moved[now.moves] = i
    c.source[now.moves] = x[i]
    now.moves += 1
    c.locked[i] = now.chain
    work = _move(g, x, c, i, new, invite)
    if now.violations < now.best_violations or (
        now.violations == now.best_violations and now.cost < now.best_cost - tolerance
    ):
        now.best_cost = now.cost
        now.best_violations = now.violations
        now.best_moves = now.moves
    return work


@lean_kernel
def extend(
    g: GraphArrays, x: IntArray, c: Chains, limit: int, tolerance: float, invite: bool, work: int
) -> int:
    """Go on with the chain; return the work left, which is positive once the chain is over.

    It is over when no variable can move, or `limit` moves came after the best of its states.
    """
    while c.heap.size[0] > 0 and c.now[0].moves - c.now[0].best_moves < limit:
        if work <= 0:
            return work
        i = pop(c.heap)
        work -= go_to(g, x, c, i, c.target[i], tolerance, invite)
    return max(1, work)


@lean_kernel
def roll_back(g: GraphArrays, x: IntArray, c: Chains) -> None:
    """Undo the moves after the best state of the chain, and empty the heap."""
    clear(c.heap)
    now = c.now[0]
    while now.moves > now.best_moves:
        now.moves -= 1
        _move(g, x, c, c.moved[now.moves], c.source[now.moves], False)


@inlined
def _swap_partner(g: GraphArrays, x: IntArray, c: Chains, i: int, old: int, least: float) -> int:
    """Return the neighbour of ``i``, which just left label `old`, that gains most by taking it.

    Only neighbours with the new label of ``i`` are looked at, so that the two swap their labels.
    The chain must come below `least`, or violate less; -1 if none does.
    """
    best = -1
    least -= c.now[0].cost
    fewest = -c.now[0].violations
    for q in range(c.heap.size[0]):
        j = c.heap.items[q]
        if x[j] != x[i] or old >= g.cardinalities[j]:
            continue
        start = g.unary_ptr[j]
        gain = c.cost[start + old] - c.cost[start + x[j]]
        hard = c.hard[start + old] - c.hard[start + x[j]]
        if hard < fewest or (hard == fewest and gain < least):
            best = j
            least = gain
            fewest = hard
    return int(best)


@inlined
def _is_among_best(g: GraphArrays, x: IntArray, c: Chains, i: int, a: int, most: int) -> bool:
    """Whether less than `most` other labels would be a better move of ``i`` than ``a``."""
    start = g.unary_ptr[i]
    better = 0
    for b in range(g.cardinalities[i]):
        if b != x[i] and (
            c.hard[start + b] < c.hard[start + a]
            or (c.hard[start + b] == c.hard[start + a] and c.cost[start + b] < c.cost[start + a])
        ):
            better += 1
    return better < most


@lean_kernel
def chains_from(g: GraphArrays, x: IntArray, c: Chains, i: int, rules: Rules) -> int:
    """Start a chain at variable ``i`` with each of its other labels; return the work.

    The first move is forced; then comes the one with which ``i`` swaps its label, if that gains,
    or, for as many of the best labels as there are branches, the best moves of the variables that
    have a term with one that moved.
    """
    now = c.now[0]
    work = 0
    for a in range(g.cardinalities[i]):
        if a == x[i]:
            continue
        goes_on = _is_among_best(g, x, c, i, a, rules.branches)
        old = x[i]
        begin_chain(c)
        work += g.cardinalities[i] + go_to(g, x, c, i, a, rules.tolerance, True) + c.heap.size[0]
        if now.best_moves == 0:
            partner = _swap_partner(g, x, c, i, old, -rules.tolerance)
            if partner >= 0:
                work += go_to(g, x, c, partner, old, rules.tolerance, False)
        if goes_on and now.best_moves == 0:
            most = 1 << 60
            work += most - extend(g, x, c, rules.moves, rules.tolerance, True, most)
        roll_back(g, x, c)
        if now.best_moves > 0:
            now.gained_cost += now.best_cost
            now.gained_violations += now.best_violations
            now.gains += 1
    return work


@lean_kernel
def sweep_chains(
    g: GraphArrays, x: IntArray, c: Chains, roots: IntArray, first: int, rules: Rules, work: int
) -> int:
    """Start chains at the roots from number `first` on; return the number of the next one.

    Stops after about so much work.
    """
    while first < roots.size and work > 0:
        # Only kicks are undone as a whole.
        begin_journal(c)
        work -= chains_from(g, x, c, roots[first], rules)
        first += 1
    return first


@lean_kernel
def kick(
    g: GraphArrays, x: IntArray, c: Chains, ball: IntArray, size: int, uniforms: FloatArray,
    rules: Rules,
) -> bool:  # fmt: skip
    """Draw new labels for the first variables of a ball and repair them by chains.

    ``ball[0]`` is its centre, the others are filled in here, nearest first; ``uniforms`` holds a
    number of [0, 1) a variable. Keeps the outcome unless the energy rose; returns whether it fell.
    """
    begin_journal(c)
    now = c.now[0]
    size = nearest(g, ball[0], size, c.seen, now.kick, ball)
    now.gained_cost = 0.0
    now.gained_violations = 0
    for q in range(size):
        i = ball[q]
        new = int(uniforms[q] * g.cardinalities[i])
        if new != x[i]:
            at = g.unary_ptr[i]
            now.gained_cost += c.cost[at + new] - c.cost[at + x[i]]
            now.gained_violations += c.hard[at + new] - c.hard[at + x[i]]
            _move(g, x, c, i, new, False)
    for q in range(size):
        chains_from(g, x, c, ball[q], rules)
    violations, cost = now.gained_violations, now.gained_cost
    if violations > 0 or (violations == 0 and cost > 0.0):
        while now.changed > 0:
            # The journal shrinks from its end; moves back do not enter it again.
            now.changed -= 1
            i = c.journal[now.changed]
            if x[i] != c.kept[i]:
                _move(g, x, c, i, c.kept[i], False)
        return False
    return bool(violations < 0 or cost < -rules.tolerance)


@dataclass(frozen=True)
class KernighanLin(Solver):
    """Chains of moves that may lead uphill on the way (Kernighan, Lin 1970).

    Descends by three kinds of moves in turn, until none gains:

    * *passes*: the best single move of all variables is made, whether it gains or not, again and
      again, each variable once at most, until 100 moves brought nothing better; all moves after
      the best state on the way are taken back (Fiduccia, Mattheyses 1982);
    * *chains*: a variable is forced to another label, the best moves among its neighbours follow,
      then among theirs, until `chain` moves brought nothing better; all after the best state are
      taken back. Tried first is that a neighbour takes over the old label (the two swap labels).
      One such start for each variable and label, though only the `branches` best labels of a
      variable go on to chains;
    * *kicks*: the variables of a small ball get random labels, and chains from each repair the
      damage; the outcome stays unless the energy rose (Martin, Otto, Felten 1991).

    Costs of all moves are kept up to date, so that a move costs O(degree). Violated hard terms
    count before costs.

    Parameters
    ----------
    chain : int
        Moves of a chain after its best state.
    branches : int
        Labels of a variable with which chains start, the cheapest ones.
    kicks : int
        Rounds of kicks, a kick a variable in each. Passes and chains follow each round.
    ball : int
        Most variables that a kick draws anew.

    Guarantees
    ----------
    The energy never rises from one outcome to the next. When `converged`, no change of one label
    and no swap of the labels of two variables with a common term has a lower energy, nor has any
    state along a chain. No bound.

    Complexity
    ----------
    A move costs O(k + log n) a neighbour, O(k) a table, O(arity (arity + k)) a higher-order
    factor. A pass makes n moves at most, a sweep of chains n (k + `branches` `chain`) and more
    where they gain. Memory: 2 numbers a label and 11 a variable. An iteration is a pass, a sweep of
    chains or a round of kicks.

    References
    ----------
    B. W. Kernighan, S. Lin, "An efficient heuristic procedure for partitioning graphs", Bell
    System Technical Journal 49(2), 1970.
    C. M. Fiduccia, R. M. Mattheyses, "A linear-time heuristic for improving network partitions",
    DAC 1982.
    M. Keuper, E. Levinkov, N. Bonneel, G. Lavoue, T. Brox, B. Andres, "Efficient decomposition of
    image and mesh graphs by lifted multicuts", ICCV 2015 (such chains for weights of both signs).
    O. Martin, S. W. Otto, E. W. Felten, "Large-step Markov chains for the traveling salesman
    problem", Complex Systems 5(3), 1991.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 0.3], [0.0, 0.3], [1.0, 0.0]], [(0, 1), (1, 2)], [2.0, 0.8])
    >>> il.solve(g, "icm", initial=[0, 0, 0]).energy
    0.8
    >>> il.solve(g, "kernighan-lin", initial=[0, 0, 0]).energy
    0.6
    """

    start_up: ClassVar[float] = 8.0

    chain: int = setting(20, at_least=1)
    branches: int = setting(3, at_least=1)
    kicks: int = setting(3, at_least=0)
    ball: int = setting(20, at_least=1)

    def run(self, graph: FactorGraph, run: Run) -> Outcome:
        """Make passes, chains and kicks until nothing gains or the budget is spent."""
        x = unary_minimum(graph) if run.initial is None else run.initial.copy()
        run.offer(x)
        if graph.n_variables == 0:
            return Outcome(converged=True)
        state = _State(self, graph, run, x)
        rounds = iterations = 0
        converged = False
        step = state.make_pass
        while not run.should_stop(iterations):
            iterations += 1
            gained = step()
            run.offer(x)
            if run.remaining <= 0.0:
                break
            if step == state.kick_all or gained:
                step = state.make_pass
            elif step == state.make_pass:
                step = state.sweep
            elif rounds < self.kicks:
                rounds += 1
                step = state.kick_all
            else:
                converged = True
                break
        return Outcome(
            converged=converged,
            iterations=iterations,
            diagnostics={
                "passes_that_gained": state.passes,
                "chains_that_gained": state.chains,
                "kicks_that_gained": state.kicks,
            },
        )


class _State:
    """The labelling of a run, the costs of its moves, and what gained so far."""

    def __init__(self, settings: KernighanLin, graph: FactorGraph, run: Run, x: IntArray) -> None:
        self.settings = settings
        self.arrays = graph.arrays
        self.run = run
        self.x = x
        self.n = graph.n_variables
        self.c = start_chains(graph)
        self.ball = np.empty(min(settings.ball, self.n), dtype=np.int64)
        self.passes = self.chains = self.kicks = 0

    def refresh(self) -> Rules:
        """Compute all costs anew, free of accumulated rounding, and what counts as a gain."""
        scale = float(fill(self.arrays, self.x, self.c))
        return Rules(self.settings.chain, self.settings.branches, _RELATIVE_GAIN * scale)

    def make_pass(self) -> bool:
        """Make a pass over all variables; return whether it gained."""
        tolerance = self.refresh().tolerance
        begin_pass(self.arrays, self.x, self.c)
        while extend(self.arrays, self.x, self.c, _PASS, tolerance, False, _WORK) <= 0:
            if self.run.remaining <= 0.0:
                break
        roll_back(self.arrays, self.x, self.c)
        gained = bool(self.c.now[0].best_moves > 0)
        self.passes += gained
        return gained

    def sweep(self) -> bool:
        """Start chains at all variables, in random order; return whether one gained."""
        rules = self.refresh()
        order = self.run.rng.permutation(self.n)
        self.c.now[0].gains = 0
        first = 0
        while first < self.n and self.run.remaining > 0.0:
            first = sweep_chains(self.arrays, self.x, self.c, order, first, rules, _WORK)
            self.run.offer(self.x)
        gained = int(self.c.now[0].gains)
        self.chains += gained
        return gained > 0

    def kick_all(self) -> bool:
        """Kick around each variable, in random order; return whether one gained."""
        rules = self.refresh()
        before = self.kicks
        rng = self.run.rng
        for centre in rng.permutation(self.n):
            if self.run.remaining <= 0.0:
                break
            self.ball[0] = centre
            size = int(rng.integers(1, self.ball.size + 1))
            uniforms = rng.random(self.ball.size)
            self.kicks += kick(self.arrays, self.x, self.c, self.ball, size, uniforms, rules)
        return self.kicks > before
