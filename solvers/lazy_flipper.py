"""The lazy flipper: relabel connected sets of growing size while the energy falls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from inference_lab._numba import inlined, lean_kernel
from inference_lab.algorithms.iteration import IterativeSolver, Progress
from inference_lab.contract import Outcome, Run
from inference_lab.graph.arrays import FloatArray, GraphArrays, IntArray
from inference_lab.graph.factor_graph import FactorGraph, unary_minimum
from inference_lab.graph.traversal import reach
from inference_lab.kernels.messages import local_costs
from inference_lab.kernels.struct import record
from inference_lab.specs.settings import setting

#: A move must gain more than this share of the costs it adds up, so that rounding cannot cycle.
_RELATIVE_GAIN = 1e-13
#: Terms and labels read between two checks of the clock: some tens of milliseconds.
_WORK = 2_000_000


class SubsetSearch(NamedTuple):
    """The state of the search; ``depth`` is the largest size of a set."""

    # *Open work.* ``ring`` (depth, n): for each size the variables whose sets are to be checked,
    # ``head`` and ``pending`` (depth,) its used part, ``waiting`` (depth, n) its members.
    #
    # *Time stamps.* ``changed`` (n,): the last change around a variable; ``checked`` (depth, n):
    # the change up to which no set with the variable gains. A set is skipped if it was checked for
    # one of its members after the last change at any of them.
    #
    # *The current set.* ``queue`` (n,): its root, then the neighbours of its members; the members
    # have increasing places ``at`` (depth,), so that each set occurs once for a root.
    # ``marked`` (n,): members of the queue; ``tail`` (depth,): its length before each member's
    # neighbours; ``own``, ``trial`` (depth,): labels before and now; ``cost``, ``infinite``
    # (depth, k): local costs; ``gain``, ``violations``, ``scale`` (depth + 1,): sums over the
    # moves so far; ``newest``, ``known`` (depth + 1,): latest change and check at the members.

    ring: IntArray
    head: IntArray
    pending: IntArray
    waiting: npt.NDArray[np.bool_]
    changed: IntArray
    checked: IntArray
    queue: IntArray
    marked: IntArray
    at: IntArray
    tail: IntArray
    own: IntArray
    trial: IntArray
    cost: FloatArray
    infinite: IntArray
    gain: FloatArray
    violations: IntArray
    scale: FloatArray
    newest: IntArray
    known: IntArray
    now: Any


def start_search(graph: FactorGraph, depth: int) -> SubsetSearch:
    """Return the state in which every set up to a size is to be checked."""
    n = graph.n_variables
    width = int(graph.cardinalities.max(initial=1))

    def ints(*shape: int) -> IntArray:
        return np.zeros(shape, dtype=np.int64)

    now = record(last=int, member=int, length=int, changes=int, taken=int)
    now[0].member = -1
    return SubsetSearch(
        ring=np.tile(np.arange(n, dtype=np.int64), (depth, 1)),
        head=ints(depth),
        pending=np.full(depth, n, dtype=np.int64),
        waiting=np.ones((depth, n), dtype=np.bool_),
        changed=ints(n),
        checked=np.full((depth, n), -1, dtype=np.int64),
        queue=ints(n),
        marked=ints(n),
        at=ints(depth),
        tail=ints(depth),
        own=ints(depth),
        trial=ints(depth),
        cost=np.empty((depth, width)),
        infinite=ints(depth, width),
        gain=np.zeros(depth + 1),
        violations=ints(depth + 1),
        scale=np.zeros(depth + 1),
        newest=ints(depth + 1),
        known=ints(depth + 1),
        now=now,
    )


@inlined
def _renew(s: SubsetSearch, i: int, now: int) -> None:
    """Record a change next to a variable, so that all sets with it are checked again."""
    s.changed[i] = now
    for size in range(s.pending.size):
        if not s.waiting[size, i]:
            s.waiting[size, i] = True
            end = s.head[size] + s.pending[size]
            if end >= s.changed.size:
                end -= s.changed.size
            s.ring[size, end] = i
            s.pending[size] += 1


@inlined
def _accept(g: GraphArrays, s: SubsetSearch) -> None:
    """Record that all members have changed, and clear the queue."""
    now = s.now[0]
    now.changes += 1
    for q in range(now.length):
        s.marked[s.queue[q]] = 0
    for t in range(now.last + 1):
        i = s.queue[s.at[t]]
        _renew(s, i, now.changes)
        for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
            _renew(s, g.adj_var[p], now.changes)
        for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
            f = g.slot_factor[g.inc_slot[p]]
            for slot in range(g.factor_ptr[f], g.factor_ptr[f + 1]):
                _renew(s, g.scopes[slot], now.changes)
    now.member = -1


@inlined
def _take_root(s: SubsetSearch) -> bool:
    """Take the next variable from the ring of the smallest sets; return whether there is one."""
    now = s.now[0]
    size = 0
    while size < s.pending.size and s.pending[size] == 0:
        size += 1
    if size == s.pending.size:
        return False
    i = s.ring[size, s.head[size]]
    s.head[size] += 1
    if s.head[size] == s.changed.size:
        s.head[size] = 0
    s.pending[size] -= 1
    s.waiting[size, i] = False
    now.taken += 1
    now.last = size
    now.member = 0
    now.length = 1
    s.queue[0] = i
    s.marked[i] = 1
    s.at[0] = 0
    s.gain[0] = 0.0
    s.violations[0] = 0
    s.scale[0] = 0.0
    s.newest[0] = -1
    s.known[0] = -1
    return True


@inlined
def _is_known(s: SubsetSearch, t: int, i: int) -> bool:
    """Whether the set of members up to ``t``, with ``i`` as the last, was found not to gain."""
    last = s.now[0].last
    s.newest[t + 1] = max(s.newest[t], s.changed[i])
    s.known[t + 1] = max(s.known[t], s.checked[last, i])
    return bool(t == last and s.known[t + 1] >= s.newest[t + 1])


@inlined
def _gaining_label(s: SubsetSearch, t: int, k: int) -> int:
    """Return the best label of the last member if the set gains by it, else its own."""
    own = s.own[t]
    best = own
    least = s.gain[t] - s.cost[t, own]
    fewest = s.violations[t] - s.infinite[t, own]
    threshold = -_RELATIVE_GAIN * s.scale[t + 1]
    violations = 0
    for a in range(k):
        hard = fewest + s.infinite[t, a]
        value = least + s.cost[t, a]
        if a != own and (hard < violations or (hard == violations and value < threshold)):
            best = a
            violations = hard
            threshold = value
    return int(best)


@inlined
def _try_next_label(g: GraphArrays, x: IntArray, s: SubsetSearch, t: int) -> bool:
    """Give member ``t`` its next label other than its own; return whether there was one."""
    i = s.queue[s.at[t]]
    own = s.own[t]
    a = s.trial[t] + 1
    if a == own:
        a += 1
    if a >= g.cardinalities[i]:
        return False
    s.trial[t] = a
    x[i] = a
    s.gain[t + 1] = s.gain[t] + s.cost[t, a] - s.cost[t, own]
    s.violations[t + 1] = s.violations[t] + s.infinite[t, a] - s.infinite[t, own]
    return True


@inlined
def _leave(x: IntArray, s: SubsetSearch, t: int) -> None:
    """Restore the label of member ``t``, and remove its neighbours from the queue."""
    now = s.now[0]
    x[s.queue[s.at[t]]] = s.own[t]
    for q in range(s.tail[t], now.length):
        s.marked[s.queue[q]] = 0
    now.length = s.tail[t]


@inlined
def _advance(g: GraphArrays, x: IntArray, s: SubsetSearch) -> None:
    """Advance to the next candidate for a place, or record that all sets of a root were tried."""
    now = s.now[0]
    t = now.member
    while True:
        if t < now.last and _try_next_label(g, x, s, t):
            t += 1
            s.at[t] = s.at[t - 1]
        else:
            if t < now.last:
                _leave(x, s, t)
            if t == 0:
                break
        s.at[t] += 1
        # All sets with such a variable were checked since the last change anywhere.
        while s.at[t] < now.length and s.checked[now.last, s.queue[s.at[t]]] == now.changes:
            s.at[t] += 1
        if s.at[t] < now.length:
            now.member = t
            return
        t -= 1
    now.member = -1
    s.marked[s.queue[0]] = 0
    s.checked[now.last, s.queue[0]] = now.changes


@lean_kernel
def flip(g: GraphArrays, x: IntArray, s: SubsetSearch, most_taken: int, work: int) -> bool:
    """Apply all improvements in place; return whether the search stopped between two variables."""
    # Sets of fewest members come first. For each variable taken from a ring, all connected sets of
    # that size that contain it are enumerated, with all labellings in which every member changes.
    # If some members kept their labels, the others would form smaller connected sets, which were
    # checked before. Trial labels stay in ``x``, which is therefore a result only when the function
    # returns between two variables.
    now = s.now[0]
    while True:
        if now.member < 0 and (work < 0 or now.taken >= most_taken or not _take_root(s)):
            return True
        t = now.member
        if work < 0 and t > 0:
            return False
        i = s.queue[s.at[t]]
        if _is_known(s, t, i):
            work -= 1
            _advance(g, x, s)
            continue
        k = g.cardinalities[i]
        s.own[t] = x[i]
        s.scale[t + 1] = s.scale[t] + local_costs(g, x, i, s.cost[t], s.infinite[t])
        work -= k + g.adj_ptr[i + 1] - g.adj_ptr[i] + 4 * (g.inc_ptr[i + 1] - g.inc_ptr[i])
        if t < now.last:
            s.tail[t] = now.length
            now.length = reach(g, i, s.marked, 1, s.queue, now.length, x.size)
            s.trial[t] = -1
            _advance(g, x, s)
            continue
        x[i] = _gaining_label(s, t, k)
        if x[i] != s.own[t]:
            _accept(g, s)
        else:
            _advance(g, x, s)


@dataclass(frozen=True)
class LazyFlipper(IterativeSolver["Walk"]):
    """Exhaustive search over connected sets of variables (Andres et al. 2012).

    Starts like `icm`, with single variables. Once these gain nothing, connected sets of two
    variables are given all labellings, then sets of three, and so on. After an improvement only
    sets that touch a changed variable or its neighbours are checked again, the smallest first.
    Violated hard terms count before costs.

    The paper stores all connected sets in a tree. Here time stamps mark the checked ones, so memory
    is linear at any depth.

    Parameters
    ----------
    max_depth : int
        Largest number of variables that change at once, at least 1 (1 is `icm` in a fixed order).

    Guarantees
    ----------
    The energy never rises. When `converged`, no relabelling of a connected set of at most
    `max_depth` variables, nor of any set whose connected parts are as small, has a lower energy;
    with ``max_depth >= n`` the labelling is optimal. No bound.

    Complexity
    ----------
    Checking all sets of size s takes about ``n ((k - 1) d)^(s - 1)`` local costs for n variables of
    degree d, each O(k + d) for diagonal terms. Memory: ``3 max_depth + 3`` numbers a variable. An
    iteration checks n variables.

    References
    ----------
    B. Andres, J. H. Kappes, T. Beier, U. Koethe, F. A. Hamprecht, "The lazy flipper: efficient
    depth-limited exhaustive search in discrete graphical models", ECCV 2012.
    S. Wernicke, "Efficient detection of network motifs", IEEE/ACM TCBB 3(4), 2006 (each connected
    set once).

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 0.3], [0.0, 0.3], [1.0, 0.0]], [(0, 1), (1, 2)], [2.0, 0.8])
    >>> il.solve(g, "icm", initial=[0, 0, 0]).energy
    0.8
    >>> il.solve(g, "lazy-flipper", initial=[0, 0, 0]).energy
    0.6
    """

    startup_cost: ClassVar[float] = 18.0

    max_depth: int = setting(3, at_least=1)

    def start(self, graph: FactorGraph, run: Run) -> Walk | Outcome:
        """Start from the given or the cheapest labels, with every set to be checked."""
        x = unary_minimum(graph) if run.initial is None else run.initial.copy()
        run.offer(x)
        if x.size == 0:
            return Outcome(converged=True)
        return Walk(x, start_search(graph, min(self.max_depth, x.size)))

    def step(self, state: Walk, run: Run, done: int) -> Progress:
        """Check sets, and relabel the ones that gain, until the next check of the clock."""
        n, search = state.x.size, state.search
        most = np.iinfo(np.int64).max if run.max_iterations is None else run.max_iterations * n
        state.between = bool(flip(run.graph.arrays, state.x, search, most, _WORK))
        if not state.between:
            return Progress(iterations=0)
        completed = int(search.now[0].taken) // n
        return Progress(not search.pending.any(), iterations=completed - done)

    def decode(self, state: Walk, run: Run, done: int) -> IntArray | None:
        """Return the labelling if it changed and holds no trial labels."""
        changes = int(state.search.now[0].changes)
        if not state.between or changes == state.offered:
            return None
        state.offered = changes
        return state.x

    def finish(self, state: Walk, run: Run, outcome: Outcome) -> Outcome:
        """Undo trial labels; count a part of an iteration as one."""
        search, now = state.search, state.search.now[0]
        if not state.between:
            for t in range(int(now.member)):
                state.x[search.queue[search.at[t]]] = search.own[t]
            run.offer(state.x)
        outcome.iterations = -(-int(now.taken) // state.x.size)
        outcome.diagnostics["improvements"] = int(now.changes)
        return outcome


@dataclass
class Walk:
    """The labelling and search of a run, and whether the search is between two variables."""

    x: IntArray
    search: SubsetSearch
    between: bool = True
    #: The number of changes when a labelling was last offered.
    offered: int = 0
