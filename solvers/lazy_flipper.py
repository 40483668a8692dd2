"""The lazy flipper: relabel connected sets of growing size while the energy falls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from inference_lab._numba import inlined, lean_kernel
from inference_lab.contract import Outcome, Run, Solver
from inference_lab.graph.arrays import FloatArray, GraphArrays, IntArray
from inference_lab.graph.factor_graph import FactorGraph, unary_minimum
from inference_lab.kernels.messages import local_costs
from inference_lab.specs.settings import setting

#: A move must gain more than this share of the costs it adds up, so that rounding cannot cycle.
_RELATIVE_GAIN = 1e-13
#: Terms and labels looked at between two looks at the clock: some tens of milliseconds.
_WORK = 2_000_000

# What the search does next; kept in the state so that it can stop at any point and go on.
_POP, _ENTER, _NEXT_LABEL, _NEXT_SIBLING, _CHOOSE = range(5)


class Search(NamedTuple):
    """Everything that the search has to remember, ``depth`` being the largest size of a set.

    *What is left to do.* ``ring`` (depth, n): for each size the variables all of whose sets are to
    be checked, ``head`` and ``pending`` (depth,) its used part, ``waiting`` (depth, n) its members.

    *What is known.* ``changed`` (n,): when the surroundings of a variable last changed;
    ``checked`` (depth, n): up to which change all sets with a variable were found not to gain. A
    set need not be checked if it was for one of its members after the last change at any of them.

    *The set at hand.* ``queue`` (n,): its root, then the neighbours of its members as these join;
    the members stand at increasing places ``at`` (depth,), so that each set comes up once for a
    root. ``marked`` (n,): the members of the queue; ``tail`` (depth,): its length before each
    member's neighbours; ``own`` and ``trial`` (depth,): the labels of the members, before and now;
    ``cost``, ``infinite`` (depth, k): their local costs; ``gain``, ``violations``, ``scale``
    (depth + 1,): what the moves so far add up to; ``newest`` and ``known`` (depth + 1,): the
    latest change, and the latest check, at the members so far.

    *Counters.* ``state`` (6,): next step, size, member, length of the queue, number of changes,
    number of variables taken from the rings.
    """

    ring: IntArray
    head: IntArray
    pending: IntArray
    waiting: npt.NDArray[np.bool_]
    changed: IntArray
    checked: IntArray
    queue: IntArray
    marked: npt.NDArray[np.bool_]
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
    state: IntArray


def start_search(graph: FactorGraph, depth: int) -> Search:
    """Return the state in which every set up to a size is to be checked."""
    n = graph.n_variables
    width = int(graph.cardinalities.max(initial=1))

    def ints(*shape: int) -> IntArray:
        return np.zeros(shape, dtype=np.int64)

    return Search(
        ring=np.tile(np.arange(n, dtype=np.int64), (depth, 1)),
        head=ints(depth),
        pending=np.full(depth, n, dtype=np.int64),
        waiting=np.ones((depth, n), dtype=np.bool_),
        changed=ints(n),
        checked=np.full((depth, n), -1, dtype=np.int64),
        queue=ints(n),
        marked=np.zeros(n, dtype=np.bool_),
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
        state=ints(6),
    )


@inlined
def _mark_neighbours(g: GraphArrays, i: int, s: Search, length: int) -> int:
    """Put the neighbours of a variable that are not in the queue at its end; return its length."""
    for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
        j = g.adj_var[p]
        if not s.marked[j]:
            s.marked[j] = True
            s.queue[length] = j
            length += 1
    for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
        f = g.slot_factor[g.inc_slot[p]]
        for slot in range(g.factor_ptr[f], g.factor_ptr[f + 1]):
            j = g.scopes[slot]
            if not s.marked[j]:
                s.marked[j] = True
                s.queue[length] = j
                length += 1
    return length


@inlined
def _renew(s: Search, i: int, now: int) -> None:
    """Note a change next to a variable, so that all sets with it come up again."""
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
def _accept(g: GraphArrays, s: Search, last: int, length: int, now: int) -> None:
    """Note the changes of members 0 to `last`, and clear the queue."""
    for q in range(length):
        s.marked[s.queue[q]] = False
    for t in range(last + 1):
        i = s.queue[s.at[t]]
        _renew(s, i, now)
        for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
            _renew(s, g.adj_var[p], now)
        for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
            f = g.slot_factor[g.inc_slot[p]]
            for slot in range(g.factor_ptr[f], g.factor_ptr[f + 1]):
                _renew(s, g.scopes[slot], now)


@lean_kernel
def flip(g: GraphArrays, x: IntArray, s: Search, most_taken: int, work: int) -> bool:
    """Search and apply improvements in place until none is left or the work is done.

    Sets of fewest members come first. For each variable taken from a ring, all connected sets of
    that size that contain it are walked, and all labellings of each in which every member changes:
    where some members keep their labels, the others fall into smaller connected sets, which were
    checked before. Labels along the way stay in ``x``, which is therefore only a result when the
    function returns between two variables.

    Stops when ``state[5]`` variables were taken in all, or after about so much work; returns
    whether it stopped between two variables.
    """
    step = s.state[0]
    size = s.state[1]
    t = s.state[2]
    length = s.state[3]
    now = s.state[4]
    done = 0
    while True:
        if step == _POP:
            size = 0
            while size < s.pending.size and s.pending[size] == 0:
                size += 1
            if size == s.pending.size or s.state[5] >= most_taken or done > work:
                break
            i = s.ring[size, s.head[size]]
            s.head[size] += 1
            if s.head[size] == x.size:
                s.head[size] = 0
            s.pending[size] -= 1
            s.waiting[size, i] = False
            s.state[5] += 1
            s.queue[0] = i
            s.marked[i] = True
            length = 1
            t = 0
            s.at[0] = 0
            s.gain[0] = 0.0
            s.violations[0] = 0
            s.scale[0] = 0.0
            s.newest[0] = -1
            s.known[0] = -1
            step = _ENTER
        elif step == _ENTER:
            if done > work and t > 0:
                break
            i = s.queue[s.at[t]]
            s.newest[t + 1] = max(s.newest[t], s.changed[i])
            s.known[t + 1] = max(s.known[t], s.checked[size, i])
            if t == size and s.known[t + 1] >= s.newest[t + 1]:
                done += 1
                step = _NEXT_SIBLING
                continue
            k = g.cardinalities[i]
            own = x[i]
            s.own[t] = own
            cost = s.cost[t]
            infinite = s.infinite[t]
            s.scale[t + 1] = s.scale[t] + local_costs(g, x, i, cost, infinite)
            done += k + g.adj_ptr[i + 1] - g.adj_ptr[i] + 4 * (g.inc_ptr[i + 1] - g.inc_ptr[i])
            if t < size:
                s.tail[t] = length
                length = _mark_neighbours(g, i, s, length)
                s.trial[t] = -1
                step = _NEXT_LABEL
                continue
            best = own
            least = s.gain[t] - cost[own]
            fewest = s.violations[t] - infinite[own]
            threshold = -_RELATIVE_GAIN * s.scale[t + 1]
            violations = 0
            for a in range(k):
                if a == own:
                    continue
                hard = fewest + infinite[a]
                if hard < violations or (hard == violations and least + cost[a] < threshold):
                    best = a
                    violations = hard
                    threshold = least + cost[a]
            if best == own:
                step = _NEXT_SIBLING
                continue
            x[i] = best
            now += 1
            _accept(g, s, t, length, now)
            step = _POP
        elif step == _NEXT_LABEL:
            i = s.queue[s.at[t]]
            own = s.own[t]
            a = s.trial[t] + 1
            if a == own:
                a += 1
            if a >= g.cardinalities[i]:
                x[i] = own
                for q in range(s.tail[t], length):
                    s.marked[s.queue[q]] = False
                length = s.tail[t]
                step = _NEXT_SIBLING
                continue
            s.trial[t] = a
            x[i] = a
            s.gain[t + 1] = s.gain[t] + s.cost[t, a] - s.cost[t, own]
            s.violations[t + 1] = s.violations[t] + s.infinite[t, a] - s.infinite[t, own]
            t += 1
            s.at[t] = s.at[t - 1] + 1
            step = _CHOOSE
        elif step == _NEXT_SIBLING:
            if t == 0:
                i = s.queue[0]
                s.marked[i] = False
                s.checked[size, i] = now
                step = _POP
            else:
                s.at[t] += 1
                step = _CHOOSE
        elif s.at[t] == length:
            t -= 1
            step = _NEXT_LABEL
        elif s.checked[size, s.queue[s.at[t]]] == now:
            # All sets with this variable were checked since the last change anywhere.
            s.at[t] += 1
        else:
            step = _ENTER
    s.state[0] = step
    s.state[1] = size
    s.state[2] = t
    s.state[3] = length
    s.state[4] = now
    return bool(step == _POP)


@dataclass(frozen=True)
class LazyFlipper(Solver):
    """Exhaustive search over connected sets of variables (Andres et al. 2012).

    Starts like `icm`, with sets of one variable. When no change of one gains any more, sets of two
    variables that share a term are given all labellings, then connected sets of three, and so on.
    After an improvement the search is lazy: only sets that touch a changed variable or a neighbour
    of one come up again, the smallest first. Violated hard terms count before costs.

    The paper keeps all connected sets in a tree (CS-tree) with lists of tags. Here sets are walked
    from each of their members, each set once a member, and time stamps of changes and checks tell
    which were visited already; memory is then linear in the graph whatever the depth.

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
    Checking all sets of size s takes about ``n ((k - 1) d)^(s - 1)`` local costs for n variables
    of degree d, each O(k + d) for diagonal terms. Memory: ``3 max_depth + 3`` numbers a variable.
    An iteration is n variables, the sets of each size counted on their own.

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

    start_up: ClassVar[float] = 9.0

    max_depth: int = setting(3, at_least=1)

    def run(self, graph: FactorGraph, run: Run) -> Outcome:
        """Search from the given or the cheapest labels until no set gains."""
        n = graph.n_variables
        x = unary_minimum(graph) if run.initial is None else run.initial.copy()
        run.offer(x)
        if n == 0:
            return Outcome(converged=True)
        search = start_search(graph, min(self.max_depth, n))
        most = np.iinfo(np.int64).max if run.max_iterations is None else run.max_iterations * n
        changes = 0
        while True:
            between = flip(graph.arrays, x, search, most, _WORK)
            if between and search.state[4] > changes:
                changes = int(search.state[4])
                run.offer(x)
            converged = not search.pending.any() and bool(between)
            taken = int(search.state[5])
            if converged or run.remaining <= 0.0 or (between and taken >= most):
                break
        if not between:
            # Stopped within a set, whose first members still carry labels on trial.
            for t in range(int(search.state[2])):
                x[search.queue[search.at[t]]] = search.own[t]
            run.offer(x)
        return Outcome(
            converged=converged,
            iterations=min(-(-taken // n), most // n),
            diagnostics={"improvements": int(search.state[4])},
        )
