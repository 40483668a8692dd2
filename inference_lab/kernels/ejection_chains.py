"""Ejection chains: moves with up-to-date costs, which can be undone part by part."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from inference_lab._numba import inlined, int64, lean_kernel
from inference_lab.graph.arrays import TABLE, FloatArray, GraphArrays, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.kernels.heap import Heap, clear, empty_heap, pop, push, settle
from inference_lab.kernels.messages import add_term, factor_slice, local_costs
from inference_lab.kernels.struct import One, record

#: Typed values, because numba would compile a step anew for each literal constant.
_YES: Any = np.bool_(True)
_NO: Any = np.bool_(False)
_NONE = int64(0)
_PLUS, _MINUS = int64(1), int64(-1)
_ENDLESS = int64(1 << 60)

#: A chain must gain more than this share of the largest cost at one variable, so that rounding
#: cannot cycle.
RELATIVE_GAIN = 1e-12


class ChainNumbers:
    """The single numbers of ejection chains."""

    #: Number of the chain, number of the kick, and length of the journal.
    chain: int
    kick: int
    changed: int
    #: Moves, violations and cost since the chain began.
    moves: int
    violations: int
    cost: float
    #: The same at the best state of the chain.
    best_moves: int
    best_violations: int
    best_cost: float
    #: Chains with a gain in a sweep or after a kick, and their total gain.
    gains: int
    gained_violations: int
    gained_cost: float


class EjectionChains(NamedTuple):
    """Costs of all single moves, kept up to date, and the current chain of moves.

    * ``cost``, ``hard`` (like the unaries): finite part and number of violated hard terms of each
      label, given the current labels of all other variables;
    * ``heap``: variables that may move, ordered by the change due to their best move, violations
      (the key, a float as in other heaps) first; ``target`` (n,): the label of that move;
    * ``locked`` (n,): number of the last chain each variable moved in; ``moved``, ``source``
      (n,): the moves of this chain, and the labels before;
    * ``journal`` (n,): variables that moved since the last kick, ``stamp`` and ``old_labels``
      (n,): its number and the labels before it; ``seen`` (n,): number of the last kick that reached
      each;
    * ``now`` (1,): the single numbers.
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
    old_labels: IntArray
    seen: IntArray
    now: One[ChainNumbers]


class Rules(NamedTuple):
    """Limits of chains: moves after the best state, first labels extended, least gain."""

    moves: int
    branches: int
    tolerance: float


def start_chains(graph: FactorGraph) -> EjectionChains:
    """Allocate the arrays for a graph."""
    n, size = graph.n_variables, graph.unary_values.size

    def ints(length: int) -> IntArray:
        return np.zeros(length, dtype=np.int64)

    return EjectionChains(
        cost=np.empty(size),
        hard=ints(size),
        heap=empty_heap(key=np.empty(n), tie=np.empty(n)),
        target=ints(n),
        locked=ints(n),
        moved=ints(n),
        source=ints(n),
        journal=ints(n),
        stamp=ints(n),
        old_labels=ints(n),
        seen=ints(n),
        now=record(ChainNumbers),
    )


@inlined
def _best_move(
    start: int,
    k: int,
    current: int,
    cost: FloatArray,
    hard: IntArray,
    target: IntArray,
    heap: Heap,
    i: int,
) -> None:
    """Find the best other label of variable ``i``, which must have at least two labels."""
    # Steps take the arrays that they use, because each argument of a step takes time to compile,
    # and graph and chains have dozens.
    best = -1
    for a in range(k):
        if a != current and (
            best < 0
            or hard[start + a] < hard[start + best]
            or (hard[start + a] == hard[start + best] and cost[start + a] < cost[start + best])
        ):
            best = a
    target[i] = best
    heap.key[i] = hard[start + best] - hard[start + current]
    heap.tie[i] = cost[start + best] - cost[start + current]


@inlined
def _renew(g: GraphArrays, x: IntArray, c: EjectionChains, j: int, invite: bool) -> None:
    """Update the best move of a variable and its place in the heap."""
    if c.locked[j] == c.now[0].chain or g.cardinalities[j] < 2:
        return
    _best_move(g.unary_ptr[j], g.cardinalities[j], x[j], c.cost, c.hard, c.target, c.heap, j)
    if c.heap.place[j] >= 0:
        settle(c.heap, j)
    elif invite:
        push(c.heap, j)


@inlined
def _move(
    g: GraphArrays,
    x: IntArray,
    c: EjectionChains,
    i: int,
    new: int,
    invite: bool,
    tables: bool | None,
) -> int:
    """Assign a label to variable ``i`` and update its neighbours' costs; return the work."""
    # With `invite`, neighbours that are neither locked nor in the heap join it. Here and below,
    # `tables` is `with_tables` of the graph.
    old = x[i]
    now = c.now[0]
    if c.stamp[i] != now.kick:
        c.stamp[i] = now.kick
        c.old_labels[i] = old
        c.journal[now.changed] = i
        now.changed += 1
    x[i] = new
    k = g.cardinalities[i]
    work = k
    for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
        h = g.adj_half[p]
        e = h >> 1
        j = int64(g.adj_var[p])
        start = g.unary_ptr[j]
        kj = g.cardinalities[j]
        weight = g.weights[e]
        offset = g.offsets[e]
        kind = g.kinds[e]
        work += kj
        if tables is not None and kind == TABLE:
            step = 1
            stride = kj
            if h & 1 == 1:
                step = k
                stride = 1
            for a in range(kj):
                add_term(
                    weight * g.pairwise[offset + old * stride + a * step],
                    _MINUS,
                    start + a,
                    c.cost,
                    c.hard,
                )
                add_term(
                    weight * g.pairwise[offset + new * stride + a * step],
                    _PLUS,
                    start + a,
                    c.cost,
                    c.hard,
                )
        else:
            if old < kj:
                add_term(g.pairwise[offset + old * kind], _MINUS, start + old, c.cost, c.hard)
                add_term(weight, _PLUS, start + old, c.cost, c.hard)
            if new < kj:
                add_term(weight, _MINUS, start + new, c.cost, c.hard)
                add_term(g.pairwise[offset + new * kind], _PLUS, start + new, c.cost, c.hard)
        _renew(g, x, c, j, invite)
    if tables is not None:
        for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
            slot = g.inc_slot[p]
            f = g.slot_factor[slot]
            for other in range(g.factor_ptr[f], g.factor_ptr[f + 1]):
                if other == slot:
                    continue
                j = int64(g.scopes[other])
                index, own_stride, step = factor_slice(g, x, f, slot, other)
                for a in range(g.cardinalities[j]):
                    add_term(
                        g.tables[index + old * own_stride + a * step],
                        _MINUS,
                        g.unary_ptr[j] + a,
                        c.cost,
                        c.hard,
                    )
                    add_term(
                        g.tables[index + new * own_stride + a * step],
                        _PLUS,
                        g.unary_ptr[j] + a,
                        c.cost,
                        c.hard,
                    )
                work += g.cardinalities[j] + g.factor_ptr[f + 1] - g.factor_ptr[f]
                _renew(g, x, c, j, invite)
    return int(work)


@lean_kernel
def fill(g: GraphArrays, x: IntArray, c: EjectionChains) -> float:
    """Compute the costs of all single moves; return the largest cost at one variable."""
    scale = 0.0
    for i in range(x.size):
        lo = g.unary_ptr[i]
        scale = max(scale, local_costs(g, x, i, c.cost[lo:], c.hard[lo:]))
    return scale


@inlined
def begin_chain(c: EjectionChains) -> None:
    """Start a new chain; the heap must be empty."""
    now = c.now[0]
    now.chain += 1
    now.moves = now.violations = now.best_moves = now.best_violations = 0
    now.cost = now.best_cost = 0.0


@inlined
def begin_journal(c: EjectionChains) -> None:
    """Start a new journal of the changes since a kick."""
    c.now[0].kick += 1
    c.now[0].changed = 0


@lean_kernel
def begin_pass(g: GraphArrays, x: IntArray, c: EjectionChains) -> None:
    """Begin a chain in which every variable may move."""
    begin_chain(c)
    begin_journal(c)
    clear(c.heap)
    for i in range(x.size):
        if g.cardinalities[i] > 1:
            _best_move(
                g.unary_ptr[i], g.cardinalities[i], x[i], c.cost, c.hard, c.target, c.heap, i
            )
            push(c.heap, i)


@lean_kernel
def go_to(
    g: GraphArrays,
    x: IntArray,
    c: EjectionChains,
    i: int,
    new: int,
    tolerance: float,
    invite: bool,
    tables: bool | None = True,
) -> int:
    """Move variable ``i`` as the next step of the chain; return the work."""
    now = c.now[0]
    at = g.unary_ptr[i] + x[i]
    to = g.unary_ptr[i] + new
    now.cost += c.cost[to] - c.cost[at]
    now.violations += c.hard[to] - c.hard[at]
    c.moved[now.moves] = i
    c.source[now.moves] = x[i]
    now.moves += 1
    c.locked[i] = now.chain
    work = _move(g, x, c, i, new, invite, tables)
    if now.violations < now.best_violations or (
        now.violations == now.best_violations and now.cost < now.best_cost - tolerance
    ):
        now.best_cost = now.cost
        now.best_violations = now.violations
        now.best_moves = now.moves
    return work


@lean_kernel
def extend(
    g: GraphArrays,
    x: IntArray,
    c: EjectionChains,
    limit: int,
    tolerance: float,
    invite: bool,
    work: int,
    tables: bool | None = True,
) -> int:
    """Extend the chain; return the remaining work, which is positive once the chain is over."""
    # It is over when no variable can move, or after `limit` moves without a new best state.
    while c.heap.size[0] > 0 and c.now[0].moves - c.now[0].best_moves < limit:
        if work <= 0:
            return work
        i = pop(c.heap)
        work -= go_to(g, x, c, i, c.target[i], tolerance, invite, tables)
    return max(1, work)


@lean_kernel
def roll_back(g: GraphArrays, x: IntArray, c: EjectionChains, tables: bool | None = True) -> None:
    """Undo the moves after the best state of the chain, and empty the heap."""
    clear(c.heap)
    now = c.now[0]
    while now.moves > now.best_moves:
        now.moves -= 1
        _move(g, x, c, c.moved[now.moves], c.source[now.moves], _NO, tables)


@inlined
def _swap_partner(
    x: IntArray,
    current: int,
    ptr: IntArray,
    sizes: IntArray,
    cost: FloatArray,
    hard: IntArray,
    heap: Heap,
    old: int,
    best_gain: float,
    fewest: int,
) -> int:
    """Return the variable that gains most by a change from label `current` to `old`."""
    # The two swap their labels. The chain must fall below `best_gain` or reduce violations; -1 if
    # no swap does.
    best = -1
    for q in range(heap.size[0]):
        j = heap.items[q]
        if x[j] != current or old >= sizes[j]:
            continue
        start = ptr[j]
        gain = cost[start + old] - cost[start + x[j]]
        violations = hard[start + old] - hard[start + x[j]]
        if violations < fewest or (violations == fewest and gain < best_gain):
            best = j
            best_gain = gain
            fewest = violations
    return int(best)


@inlined
def _is_among_best(
    start: int, k: int, current: int, cost: FloatArray, hard: IntArray, a: int, limit: int
) -> bool:
    """Whether fewer than `limit` other labels than ``a`` are better moves from label `current`."""
    better = 0
    for b in range(k):
        if b != current and (
            hard[start + b] < hard[start + a]
            or (hard[start + b] == hard[start + a] and cost[start + b] < cost[start + a])
        ):
            better += 1
    return better < limit


@lean_kernel
def chains_from(
    g: GraphArrays,
    x: IntArray,
    c: EjectionChains,
    i: int,
    rules: Rules,
    tables: bool | None = True,
) -> int:
    """Start a chain at variable ``i`` with each of its other labels; return the work."""
    # The first move is forced. Then a neighbour swaps labels with ``i``, if that gains. Otherwise,
    # for the `branches` best labels, the chain continues with the best moves of variables that
    # share a term with a moved one.
    now = c.now[0]
    work = 0
    for a in range(g.cardinalities[i]):
        if a == x[i]:
            continue
        goes_on = _is_among_best(
            g.unary_ptr[i], g.cardinalities[i], x[i], c.cost, c.hard, a, rules.branches
        )
        old = x[i]
        begin_chain(c)
        work += go_to(g, x, c, i, a, rules.tolerance, _YES, tables)
        work += g.cardinalities[i] + c.heap.size[0]
        if now.best_moves == 0:
            partner = _swap_partner(
                x,
                x[i],
                g.unary_ptr,
                g.cardinalities,
                c.cost,
                c.hard,
                c.heap,
                old,
                -rules.tolerance - now.cost,
                -now.violations,
            )
            if partner >= 0:
                work += go_to(g, x, c, partner, old, rules.tolerance, _NO, tables)
        if goes_on and now.best_moves == 0:
            n_remaining = extend(g, x, c, rules.moves, rules.tolerance, _YES, _ENDLESS, tables)
            work += _ENDLESS - n_remaining
        roll_back(g, x, c, tables)
        if now.best_moves > 0:
            now.gained_cost += now.best_cost
            now.gained_violations += now.best_violations
            now.gains += 1
    return work


@lean_kernel
def improve_by_chains(
    g: GraphArrays,
    x: IntArray,
    c: EjectionChains,
    roots: IntArray,
    first: int,
    rules: Rules,
    work: int,
    tables: bool | None = True,
) -> int:
    """Start chains at the roots from number `first` on; return the number of the next one."""
    while first < roots.size and work > 0:
        # Only kicks need a journal, because chains are rolled back move by move.
        begin_journal(c)
        work -= chains_from(g, x, c, roots[first], rules, tables)
        first += 1
    return first


@inlined
def put(
    g: GraphArrays,
    x: IntArray,
    c: EjectionChains,
    i: int,
    new: int,
    tables: bool | None = True,
) -> int:
    """Assign a label outside any chain, and add its change of cost; return the work."""
    if new == x[i]:
        return 1
    now = c.now[0]
    at = g.unary_ptr[i]
    now.gained_cost += c.cost[at + new] - c.cost[at + x[i]]
    now.gained_violations += c.hard[at + new] - c.hard[at + x[i]]
    return int(_move(g, x, c, i, new, _NO, tables))


@inlined
def begin_kick(c: EjectionChains) -> None:
    """Begin a kick: changes that `keep_better_parts` can undo in part."""
    begin_journal(c)
    c.now[0].gained_cost = 0.0
    c.now[0].gained_violations = 0


@inlined
def _join_part(
    x: IntArray,
    stamp: IntArray,
    old_labels: IntArray,
    seen: IntArray,
    moved: IntArray,
    kick: int,
    j: int,
    size: int,
) -> int:
    """Add a variable to the current part if it changed and is in none; return the part's size."""
    if stamp[j] == kick and x[j] != old_labels[j] and seen[j] != -kick:
        seen[j] = -kick
        moved[size] = j
        size += 1
    return size


@lean_kernel
def keep_better_parts(
    g: GraphArrays, x: IntArray, c: EjectionChains, tolerance: float, tables: bool | None = True
) -> int:
    """Undo each connected part of the changes since the kick began that raised the energy."""
    # Parts are independent, because no term spans two of them: the partition crossover of the
    # labels before and after (Tinos, Whitley and Chicano, FOGA 2015). Returns 1 if the energy is
    # now lower.
    now = c.now[0]
    fell = 0
    for q in range(now.changed):
        size = _join_part(x, c.stamp, c.old_labels, c.seen, c.moved, now.kick, c.journal[q], _NONE)
        if size == 0:
            continue
        head = 0
        while head < size:
            i = c.moved[head]
            head += 1
            for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
                size = _join_part(
                    x, c.stamp, c.old_labels, c.seen, c.moved, now.kick, int64(g.adj_var[p]), size
                )
            for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
                f = g.slot_factor[g.inc_slot[p]]
                for s in range(g.factor_ptr[f], g.factor_ptr[f + 1]):
                    size = _join_part(
                        x,
                        c.stamp,
                        c.old_labels,
                        c.seen,
                        c.moved,
                        now.kick,
                        int64(g.scopes[s]),
                        size,
                    )
        now.gained_cost = 0.0
        now.gained_violations = 0
        for t in range(size):
            i = c.moved[t]
            c.source[t] = x[i]
            put(g, x, c, i, c.old_labels[i], tables)
        if now.gained_violations < 0 or (now.gained_violations == 0 and now.gained_cost < 0.0):
            continue
        if now.gained_violations > 0 or now.gained_cost > tolerance:
            fell = 1
        for t in range(size):
            put(g, x, c, c.moved[t], c.source[t], tables)
    return fell
