"""Kernighan-Lin moves: chains of best single moves, kept up to where they gain most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from inference_lab._numba import inlined, lean_kernel
from inference_lab.contract import Outcome, Run, Solver
from inference_lab.graph.arrays import TABLE, FloatArray, GraphArrays, IntArray
from inference_lab.graph.factor_graph import FactorGraph, unary_minimum
from inference_lab.kernels.messages import local_costs
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
    * ``gain``, ``violations`` (n,): change of both by the best move of each variable, ``target``
      (n,): its label;
    * ``heap`` (n,): variables that may move, the best on top; ``place`` (n,): where they stand, -1
      elsewhere;
    * ``locked`` (n,): number of the last chain each variable moved in; ``moved``, ``source``
      (n,): the moves of this chain, and the labels before;
    * ``journal`` (n,): variables that moved since the last kick, ``stamp`` and ``kept`` (n,): its
      number and the labels before it;
    * ``sums`` (2,): change of the cost since the chain began, and at its best;
    * ``state`` (8,): size of the heap, moves made, moves at the best, violations since the chain
      began, and at its best, number of the chain, of the kick, and length of the journal.
    """

    cost: FloatArray
    hard: IntArray
    gain: FloatArray
    violations: IntArray
    target: IntArray
    heap: IntArray
    place: IntArray
    locked: IntArray
    moved: IntArray
    source: IntArray
    journal: IntArray
    stamp: IntArray
    kept: IntArray
    sums: FloatArray
    state: IntArray


def start_chains(graph: FactorGraph) -> Chains:
    """Allocate the arrays for a graph."""
    n, size = graph.n_variables, graph.unary_values.size

    def ints(length: int) -> IntArray:
        return np.zeros(length, dtype=np.int64)

    return Chains(
        cost=np.empty(size),
        hard=ints(size),
        gain=np.empty(n),
        violations=ints(n),
        target=ints(n),
        heap=ints(n),
        place=np.full(n, -1, dtype=np.int64),
        locked=ints(n),
        moved=ints(n),
        source=ints(n),
        journal=ints(n),
        stamp=ints(n),
        kept=ints(n),
        sums=np.zeros(2),
        state=ints(8),
    )


@inlined
def _better(c: Chains, i: int, j: int) -> bool:
    if c.violations[i] != c.violations[j]:
        return bool(c.violations[i] < c.violations[j])
    return bool(c.gain[i] < c.gain[j])


@inlined
def _sift_up(c: Chains, i: int, at: int) -> None:
    while at > 0:
        parent = (at - 1) >> 1
        j = c.heap[parent]
        if not _better(c, i, j):
            break
        c.heap[at] = j
        c.place[j] = at
        at = parent
    c.heap[at] = i
    c.place[i] = at


@inlined
def _sift_down(c: Chains, i: int, at: int) -> None:
    size = c.state[0]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and _better(c, c.heap[child + 1], c.heap[child]):
            child += 1
        j = c.heap[child]
        if not _better(c, j, i):
            break
        c.heap[at] = j
        c.place[j] = at
        at = child
    c.heap[at] = i
    c.place[i] = at


@inlined
def _push(c: Chains, i: int) -> None:
    at = c.state[0]
    c.state[0] += 1
    _sift_up(c, i, at)


@inlined
def _pop(c: Chains) -> int:
    top = c.heap[0]
    c.place[top] = -1
    c.state[0] -= 1
    if c.state[0] > 0:
        _sift_down(c, c.heap[c.state[0]], 0)
    return int(top)


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
    c.gain[i] = c.cost[start + best] - c.cost[start + own]
    c.violations[i] = c.hard[start + best] - c.hard[start + own]


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
    if c.locked[j] == c.state[5] or g.cardinalities[j] < 2:
        return
    _best_move(g, x, c, j)
    if c.place[j] >= 0:
        _sift_up(c, j, c.place[j])
        _sift_down(c, j, c.place[j])
    elif invite:
        _push(c, j)


@inlined
def _move(g: GraphArrays, x: IntArray, c: Chains, i: int, new: int, invite: bool) -> int:
    """Give variable ``i`` a label and bring the costs of its neighbours up to date.

    With `invite`, neighbours that are neither locked nor in the heap join it. Returns the number
    of terms and labels looked at.
    """
    old = x[i]
    if c.stamp[i] != c.state[6]:
        c.stamp[i] = c.state[6]
        c.kept[i] = old
        c.journal[c.state[7]] = i
        c.state[7] += 1
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
def _begin(c: Chains) -> None:
    for t in range(5):
        c.state[t] = 0
    c.state[5] += 1
    c.sums[0] = 0.0
    c.sums[1] = 0.0


@lean_kernel
def begin_pass(g: GraphArrays, x: IntArray, c: Chains) -> None:
    """Begin a chain in which every variable may move."""
    _begin(c)
    c.state[6] += 1
    c.state[7] = 0
    for i in range(x.size):
        c.place[i] = -1
        if g.cardinalities[i] > 1:
            _best_move(g, x, c, i)
            _push(c, i)


@lean_kernel
def record(
    g: GraphArrays, x: IntArray, c: Chains, i: int, new: int, tolerance: float, invite: bool
) -> int:
    """Make variable ``i`` the next of the chain; return the work."""
    at = g.unary_ptr[i] + x[i]
    to = g.unary_ptr[i] + new
    c.sums[0] += c.cost[to] - c.cost[at]
    c.state[3] += c.hard[to] - c.hard[at]
    c.moved[c.state[1]] = i
    c.source[c.state[1]] = x[i]
    c.state[1] += 1
    c.locked[i] = c.state[5]
    work = _move(g, x, c, i, new, invite)
    if c.state[3] < c.state[4] or (c.state[3] == c.state[4] and c.sums[0] < c.sums[1] - tolerance):
        c.sums[1] = c.sums[0]
        c.state[4] = c.state[3]
        c.state[2] = c.state[1]
    return work


@lean_kernel
def extend(
    g: GraphArrays, x: IntArray, c: Chains, limit: int, tolerance: float, invite: bool, work: int
) -> int:
    """Go on with the chain; return the work left, which is positive once the chain is over.

    It is over when no variable can move, or `limit` moves came after the best of its states.
    """
    while c.state[0] > 0 and c.state[1] - c.state[2] < limit:
        if work <= 0:
            return work
        i = _pop(c)
        work -= record(g, x, c, i, c.target[i], tolerance, invite)
    return max(1, work)


@lean_kernel
def roll_back(g: GraphArrays, x: IntArray, c: Chains) -> None:
    """Undo the moves after the best state of the chain, and empty the heap."""
    for q in range(c.state[0]):
        c.place[c.heap[q]] = -1
    c.state[0] = 0
    while c.state[1] > c.state[2]:
        c.state[1] -= 1
        i = c.moved[c.state[1]]
        _move(g, x, c, i, c.source[c.state[1]], False)


@inlined
def _swap_partner(g: GraphArrays, x: IntArray, c: Chains, i: int, old: int, least: float) -> int:
    """Return the neighbour of ``i``, which just left label `old`, that gains most by taking it.

    Only neighbours with the new label of ``i`` are looked at, so that the two swap their labels.
    The chain must come below `least`, or violate less; -1 if none does.
    """
    best = -1
    least -= c.sums[0]
    fewest = -c.state[3]
    for q in range(c.state[0]):
        j = c.heap[q]
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
def chains_from(
    g: GraphArrays,
    x: IntArray,
    c: Chains,
    i: int,
    limit: int,
    branches: int,
    tolerance: float,
    totals: FloatArray,
) -> int:
    """Start a chain at variable ``i`` with each of its other labels; return the work.

    The first move is forced; then comes the one with which ``i`` swaps its label, if that gains,
    or, for the best labels only, as many as `branches`, the best moves of the variables that have
    a term with one that moved. ``totals`` (3,) adds up the changes of cost and violations by the
    chains, and counts those that gained.
    """
    work = 0
    for a in range(g.cardinalities[i]):
        if a == x[i]:
            continue
        goes_on = _is_among_best(g, x, c, i, a, branches)
        old = x[i]
        _begin(c)
        work += g.cardinalities[i] + record(g, x, c, i, a, tolerance, True) + c.state[0]
        if c.state[2] == 0:
            partner = _swap_partner(g, x, c, i, old, -tolerance)
            if partner >= 0:
                work += record(g, x, c, partner, old, tolerance, False)
        if goes_on and c.state[2] == 0:
            work += (1 << 60) - extend(g, x, c, limit, tolerance, True, 1 << 60)
        roll_back(g, x, c)
        if c.state[2] > 0:
            totals[0] += c.sums[1]
            totals[1] += c.state[4]
            totals[2] += 1.0
    return work


@lean_kernel
def sweep_chains(
    g: GraphArrays,
    x: IntArray,
    c: Chains,
    roots: IntArray,
    first: int,
    limit: int,
    branches: int,
    tolerance: float,
    totals: FloatArray,
    work: int,
) -> int:
    """Start chains at the roots from number `first` on; return the number of the next one.

    Stops after about so much work.
    """
    while first < roots.size and work > 0:
        # Only kicks are undone as a whole.
        c.state[7] = 0
        c.state[6] += 1
        work -= chains_from(g, x, c, roots[first], limit, branches, tolerance, totals)
        first += 1
    return first


@lean_kernel
def kick(
    g: GraphArrays,
    x: IntArray,
    c: Chains,
    ball: IntArray,
    size: int,
    uniforms: FloatArray,
    limit: int,
    branches: int,
    tolerance: float,
    totals: FloatArray,
) -> bool:
    """Draw new labels for the first variables of a ball and repair them by chains.

    ``ball[0]`` is its centre, the others are filled in here, nearest first; ``uniforms`` holds a
    number of [0, 1) a variable. Keeps the outcome unless the energy rose; returns whether it fell.
    """
    c.state[7] = 0
    c.state[6] += 1
    tail = 1
    head = 0
    while head < tail and tail < size:
        i = ball[head]
        head += 1
        for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
            j = g.adj_var[p]
            if tail < size and not _among(ball, tail, j):
                ball[tail] = j
                tail += 1
        for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
            f = g.slot_factor[g.inc_slot[p]]
            for s in range(g.factor_ptr[f], g.factor_ptr[f + 1]):
                j = g.scopes[s]
                if tail < size and not _among(ball, tail, j):
                    ball[tail] = j
                    tail += 1
    totals[0] = 0.0
    totals[1] = 0.0
    for q in range(tail):
        i = ball[q]
        new = int(uniforms[q] * g.cardinalities[i])
        if new != x[i]:
            at = g.unary_ptr[i]
            totals[0] += c.cost[at + new] - c.cost[at + x[i]]
            totals[1] += c.hard[at + new] - c.hard[at + x[i]]
            _move(g, x, c, i, new, False)
    for q in range(tail):
        chains_from(g, x, c, ball[q], limit, branches, tolerance, totals)
    if totals[1] > 0.0 or (totals[1] == 0.0 and totals[0] > 0.0):
        while c.state[7] > 0:
            # The journal shrinks from its end; moves back do not enter it again.
            c.state[7] -= 1
            i = c.journal[c.state[7]]
            if x[i] != c.kept[i]:
                _move(g, x, c, i, c.kept[i], False)
        return False
    return bool(totals[1] < 0.0 or totals[0] < -tolerance)


@inlined
def _among(values: IntArray, count: int, value: int) -> bool:
    for q in range(count):
        if values[q] == value:
            return True
    return False


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
        self.totals = np.zeros(3)
        self.ball = np.empty(min(settings.ball, self.n), dtype=np.int64)
        self.passes = self.chains = self.kicks = 0

    def refresh(self) -> float:
        """Compute all costs anew, free of accumulated rounding; return what counts as a gain."""
        return _RELATIVE_GAIN * float(fill(self.arrays, self.x, self.c))

    def make_pass(self) -> bool:
        """Make a pass over all variables; return whether it gained."""
        tolerance = self.refresh()
        begin_pass(self.arrays, self.x, self.c)
        while extend(self.arrays, self.x, self.c, _PASS, tolerance, False, _WORK) <= 0:
            if self.run.remaining <= 0.0:
                break
        roll_back(self.arrays, self.x, self.c)
        gained = bool(self.c.state[2] > 0)
        self.passes += gained
        return gained

    def sweep(self) -> bool:
        """Start chains at all variables, in random order; return whether one gained."""
        tolerance = self.refresh()
        order = self.run.rng.permutation(self.n)
        self.totals[:] = 0.0
        first = 0
        while first < self.n and self.run.remaining > 0.0:
            first = sweep_chains(
                self.arrays, self.x, self.c, order, first, self.settings.chain,
                self.settings.branches, tolerance, self.totals, _WORK,
            )  # fmt: skip
            self.run.offer(self.x)
        gained = int(self.totals[2])
        self.chains += gained
        return gained > 0

    def kick_all(self) -> bool:
        """Kick around each variable, in random order; return whether one gained."""
        tolerance = self.refresh()
        before = self.kicks
        rng = self.run.rng
        for centre in rng.permutation(self.n):
            if self.run.remaining <= 0.0:
                break
            self.ball[0] = centre
            self.kicks += kick(
                self.arrays, self.x, self.c, self.ball, int(rng.integers(1, self.ball.size + 1)),
                rng.random(self.ball.size), self.settings.chain, self.settings.branches, tolerance,
                self.totals,
            )  # fmt: skip
        return self.kicks > before
