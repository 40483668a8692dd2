"""Elimination orders on interaction graphs: safe reductions, greedy min-fill, lower bounds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from inference_lab._numba import inlined, int64, kernel, lean_kernel
from inference_lab.algorithms.elimination.arc_consistency import BoolArray
from inference_lab.algorithms.elimination.interactions import Interactions
from inference_lab.graph.arrays import IntArray
from inference_lab.kernels.heap import Heap, pop, push, settle

#: Weight of one binary digit of a number of labels; weights are integers so that equal keys tie.
DIGIT = 1024

#: Rules for the choice of the next variable.
BY_SIZE, BY_FILL, AS_GIVEN = 0, 1, 2


class _Lists(NamedTuple):
    """Growing adjacency lists in one pool of integers; ``tail[0]`` is the pool's end."""

    start: IntArray
    length: IntArray
    room: IntArray
    tail: IntArray


@kernel
def _lists_of(ptr: IntArray, neighbours: IntArray) -> tuple[_Lists, IntArray]:
    """Copy a graph into growing lists; return the lists and their pool."""
    n = ptr.size - 1
    start, length = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    for v in range(n):
        start[v] = ptr[v]
        length[v] = ptr[v + 1] - ptr[v]
    pool = np.empty(2 * neighbours.size + 16, dtype=np.int64)
    for p in range(neighbours.size):
        pool[p] = neighbours[p]
    tail = np.zeros(1, dtype=np.int64)
    tail[0] = neighbours.size
    return _Lists(start, length, length.copy(), tail), pool


@kernel
def _append(lists: _Lists, pool: IntArray, v: int, x: int) -> IntArray:
    """Append ``x`` to the list of ``v``; return the pool, which may have been reallocated."""
    if lists.length[v] == lists.room[v]:
        room = 2 * lists.room[v] + 4
        tail = lists.tail[0]
        if tail + room > pool.size:
            larger = np.empty(2 * pool.size + room, dtype=np.int64)
            for t in range(tail):
                larger[t] = pool[t]
            pool = larger
        start = lists.start[v]
        for t in range(lists.length[v]):
            pool[tail + t] = pool[start + t]
        lists.start[v] = tail
        lists.room[v] = room
        lists.tail[0] = tail + room
    pool[lists.start[v] + lists.length[v]] = x
    lists.length[v] += 1
    return pool


@lean_kernel
def _drop(lists: _Lists, pool: IntArray, v: int, x: int) -> None:
    """Remove ``x`` from the list of ``v``."""
    start = lists.start[v]
    last = start + lists.length[v] - 1
    for p in range(start, last + 1):
        if pool[p] == x:
            pool[p] = pool[last]
            break
    lists.length[v] -= 1


@lean_kernel
def _gather(lists: _Lists, pool: IntArray, v: int, gone: BoolArray, out: IntArray) -> int:
    """Write the variables in the list of ``v`` that are not gone to `out`; return their number."""
    count = 0
    for p in range(lists.start[v], lists.start[v] + lists.length[v]):
        if not gone[pool[p]]:
            out[count] = pool[p]
            count += 1
    return count


@lean_kernel
def _forget(lists: _Lists, pool: IntArray, v: int, gone: BoolArray) -> None:
    """Remove the variables that are gone from the list of ``v``."""
    lists.length[v] = _gather(lists, pool, v, gone, pool[lists.start[v] :])


@kernel
def _filled(key: IntArray, tie: IntArray) -> Heap:
    """Return a heap of all variables, with its own copy of the keys."""
    n = key.size
    place = np.full(n, -1, dtype=np.int64)
    heap = Heap(np.empty(n, dtype=np.int64), place, np.zeros(1, dtype=np.int64), key.copy(), tie)
    for v in range(n):
        push(heap, v)
    return heap


@lean_kernel
def _rekey(heap: Heap, v: int, key: int) -> None:
    """Change the key of a variable, if it is in the heap; one at a time, or the order breaks."""
    if heap.place[v] >= 0:
        heap.key[v] = key
        settle(heap, v)


@lean_kernel
def _is_listed(graph: Interactions, lists: _Lists, pool: IntArray, v: int, x: int) -> bool:
    """Return whether ``x`` is in the list of ``v``, from which nothing was removed."""
    # The graph's own neighbours are sorted; appended ones are searched from the end.
    start = lists.start[v]
    degree = graph.ptr[v + 1] - graph.ptr[v]
    for p in range(start + lists.length[v] - 1, start + degree - 1, -1):
        if pool[p] == x:
            return True
    lo, hi = graph.ptr[v], graph.ptr[v + 1]
    while lo < hi:
        middle = (lo + hi) >> 1
        if graph.neighbours[middle] < x:
            lo = middle + 1
        else:
            hi = middle
    return bool(lo < graph.ptr[v + 1] and graph.neighbours[lo] == x)


@kernel
def reduce(
    graph: Interactions, necessary: float
) -> tuple[IntArray, Interactions, int, float, float]:
    """Eliminate variables of degree 0, 1 and 2 whose elimination cannot make any order worse."""
    # Variables with adjacent neighbours are eliminated unconditionally. A variable with two
    # non-adjacent neighbours must have at least as many labels as the smaller one, and its table
    # must not exceed the largest table of every order (the safe series rule with weights). Without
    # variables of degree 1 there is a cycle, and thus a table of three variables with at least
    # `necessary` entries (binary logarithm).
    log2_sizes = graph.log2_sizes
    n = log2_sizes.size
    lists, pool = _lists_of(graph.ptr, graph.neighbours)
    degree = lists.length.copy()
    order = np.empty(n, dtype=np.int64)
    gone = np.zeros(n, dtype=np.bool_)
    leaves = np.empty(n, dtype=np.int64)  # stacks of variables of degree 0 and 1, and 2
    joints = np.empty(n, dtype=np.int64)
    is_leaf, is_joint = degree <= 1, degree == 2
    ends = np.empty(2, dtype=np.int64)
    variables, largest, entries = 0, 0.0, 0.0
    n_leaves, n_joints, done = 0, 0, 0
    for v in range(n - 1, -1, -1):
        if is_leaf[v]:
            leaves[n_leaves] = v
            n_leaves += 1
        elif is_joint[v]:
            joints[n_joints] = v
            n_joints += 1
    while n_leaves + n_joints > 0:
        if n_leaves > 0:
            n_leaves -= 1
            v = leaves[n_leaves]
        else:
            n_joints -= 1
            v = joints[n_joints]
            is_joint[v] = False
        if gone[v] or degree[v] > 2:
            continue
        count = _gather(lists, pool, v, gone, ends)
        size = log2_sizes[v]
        for t in range(count):
            size += log2_sizes[ends[t]]
        if count == 2:
            a, b = ends[0], ends[1]
            if lists.length[a] > lists.length[b]:
                a, b = b, a
            if not _is_listed(graph, lists, pool, a, b):
                if log2_sizes[v] < min(log2_sizes[a], log2_sizes[b]):
                    continue
                # The tolerance covers rounding: a few units in the last place count as equal size.
                if size > max(necessary, largest) + 1e-9:
                    continue
                pool = _append(lists, pool, a, b)
                pool = _append(lists, pool, b, a)
                degree[a] += 1
                degree[b] += 1
        gone[v] = True
        order[done] = v
        done += 1
        variables = max(variables, count + 1)
        largest = max(largest, size)
        entries += 2.0**size
        for t in range(count):
            u = ends[t]
            degree[u] -= 1
            if degree[u] <= 1 and not is_leaf[u]:
                is_leaf[u] = True
                leaves[n_leaves] = u
                n_leaves += 1
            elif degree[u] == 2 and not is_joint[u]:
                is_joint[u] = True
                joints[n_joints] = u
                n_joints += 1
    return order[:done], _rest(graph, lists, pool, gone), variables, largest, entries


@kernel
def _rest(graph: Interactions, lists: _Lists, pool: IntArray, gone: BoolArray) -> Interactions:
    """Return the graph of the remaining variables, under their names in `graph`."""
    survivors = np.flatnonzero(~gone)
    place = np.cumsum(~gone) - 1
    ptr = np.zeros(survivors.size + 1, dtype=np.int64)
    for c in range(survivors.size):
        _forget(lists, pool, survivors[c], gone)
        ptr[c + 1] = ptr[c] + lists.length[survivors[c]]
    neighbours = np.empty(ptr[-1], dtype=np.int64)
    for c in range(survivors.size):
        start = lists.start[survivors[c]]
        for p in range(ptr[c], ptr[c + 1]):
            neighbours[p] = place[pool[start + p - ptr[c]]]
    return Interactions(graph.variables[survivors], ptr, neighbours, graph.log2_sizes[survivors])


@kernel
def _missing_pairs(ptr: IntArray, neighbours: IntArray, weights: IntArray, out: IntArray) -> int:
    """Write the weight of each vertex's non-adjacent pairs of neighbours; return the steps."""
    # All pairs minus the adjacent ones in triangles, which are listed from the corner of least
    # degree on.
    n = ptr.size - 1
    up_ptr = np.zeros(n + 1, dtype=np.int64)
    up = np.empty(neighbours.size // 2, dtype=np.int64)
    for v in range(n):
        at = up_ptr[v]
        degree = ptr[v + 1] - ptr[v]
        total = 0
        squares = 0
        for p in range(ptr[v], ptr[v + 1]):
            u = neighbours[p]
            total += weights[u]
            squares += weights[u] * weights[u]
            other = ptr[u + 1] - ptr[u]
            if other > degree or (other == degree and u > v):
                up[at] = u
                at += 1
        up_ptr[v + 1] = at
        out[v] = (total * total - squares) // 2
    mark = np.full(n, -1, dtype=np.int64)
    steps = neighbours.size
    for v in range(n):
        for p in range(up_ptr[v], up_ptr[v + 1]):
            mark[up[p]] = v
        for p in range(up_ptr[v], up_ptr[v + 1]):
            u = up[p]
            steps += up_ptr[u + 1] - up_ptr[u]
            for q in range(up_ptr[u], up_ptr[u + 1]):
                x = up[q]
                if mark[x] == v:
                    out[v] -= weights[u] * weights[x]
                    out[u] -= weights[v] * weights[x]
                    out[x] -= weights[v] * weights[u]
    return steps


class _Greedy(NamedTuple):
    """State of greedy elimination for each remaining variable."""

    weight: IntArray
    #: Its key of choice; during an elimination newer than the heap's.
    key: IntArray
    #: Total weight of its neighbours.
    around: IntArray
    #: Its neighbours, sometimes including some that are gone.
    lists: _Lists
    #: Number of its neighbours that are not gone.
    degrees: IntArray
    gone: BoolArray
    #: Variables whose keys an elimination changes; ``hood_stamp`` has the elimination's number.
    hood: IntArray
    hood_stamp: IntArray
    #: Stamps of the neighbours of one variable in ``hood``.
    mark: IntArray


@kernel
def _start_greedy(
    graph: Interactions, weights: IntArray, rule: int
) -> tuple[_Greedy, IntArray, int]:
    """Return the state before the first elimination, the pool of its lists, and the steps made."""
    ptr, neighbours = graph.ptr, graph.neighbours
    n = ptr.size - 1
    key = np.zeros(n, dtype=np.int64)
    around = np.zeros(n, dtype=np.int64)
    for v in range(n):
        for p in range(ptr[v], ptr[v + 1]):
            around[v] += weights[neighbours[p]]
    steps = 0
    if rule == BY_SIZE:
        key[:] = around + weights
    elif rule == BY_FILL:
        steps = _missing_pairs(ptr, neighbours, weights, key)
    lists, pool = _lists_of(ptr, neighbours)
    return (
        _Greedy(
            weights,
            key,
            around,
            lists,
            lists.length.copy(),
            np.zeros(n, dtype=np.bool_),
            np.empty(n, dtype=np.int64),
            np.full(n, -1, dtype=np.int64),
            np.full(n, -1, dtype=np.int64),
        ),
        pool,
        steps,
    )


@kernel
def _connect(
    s: _Greedy, pool: IntArray, v: int, degree: int, turn: int, by_fill: bool
) -> tuple[IntArray, int, int]:
    """Make the neighbours of ``v`` adjacent to each other; return the pool, changes and steps."""
    # Fields are looked up once, because every look-up counts a reference.
    lists, weight, key, around, degrees = s.lists, s.weight, s.key, s.around, s.degrees
    gone, hood, hood_stamp, mark = s.gone, s.hood, s.hood_stamp, s.mark
    start, length = lists.start, lists.length
    count = degree
    steps = 0
    for t in range(degree):
        a = hood[t]
        stamp = turn * mark.size + t
        for p in range(start[a], start[a] + length[a]):
            mark[pool[p]] = stamp
        steps += length[a] + degree
        for r in range(t + 1, degree):
            b = hood[r]
            if mark[b] == stamp:
                continue
            if by_fill:
                # The new edge closes the pairs of each common neighbour, and opens pairs
                # with the neighbours that only one of the two has.
                common = 0
                steps += length[b]
                for p in range(start[b], start[b] + length[b]):
                    c = pool[p]
                    if mark[c] == stamp and (c == v or not gone[c]):
                        common += weight[c]
                        key[c] -= weight[a] * weight[b]
                        if hood_stamp[c] != turn:
                            hood_stamp[c] = turn
                            hood[count] = c
                            count += 1
                key[a] += weight[b] * (around[a] - common)
                key[b] += weight[a] * (around[b] - common)
            pool = _append(lists, pool, a, b)
            pool = _append(lists, pool, b, a)
            mark[b] = stamp
            degrees[a] += 1
            degrees[b] += 1
            around[a] += weight[b]
            around[b] += weight[a]
    return pool, count, steps


@inlined
def _look_up_steps(n: int) -> int:
    """Return the steps that a look-up of a variable counts: more in large graphs (cache misses)."""
    return 1 + min(n // 30_000, 30)


@kernel
def eliminate(
    graph: Interactions,
    weights: IntArray,
    rule: int,
    tie: IntArray,
    log2_limit: float,
    most_entries: float,
    most_steps: int,
) -> tuple[IntArray, int, float, float, int]:
    """Eliminate all variables greedily, or in the order of `tie`."""
    # `rule`: the variable whose table has the smallest total weight, the one whose fill edges have
    # the least total weight (the product of the ends' weights), or the one with the smallest tie.
    # Stops above ``2^log2_limit`` entries in the table that remains after an elimination,
    # `most_entries` in all tables, or `most_steps`.
    log2_sizes = graph.log2_sizes
    n = log2_sizes.size
    s, pool, steps = _start_greedy(graph, weights, rule)
    lists, key, around, degrees = s.lists, s.key, s.around, s.degrees
    gone, hood, hood_stamp = s.gone, s.hood, s.hood_stamp
    heap = _filled(key, tie)
    order = np.empty(n, dtype=np.int64)
    done, variables, largest, entries = 0, 0, 0.0, 0.0
    far = _look_up_steps(n)
    while done < n:
        v = heap.items[0]
        degree = _gather(lists, pool, v, gone, hood)
        size = log2_sizes[v]
        for t in range(degree):
            size += log2_sizes[hood[t]]
        steps += far * (degree + 1)
        variables = max(variables, degree + 1)
        largest = max(largest, size)
        entries += 2.0**size
        if size - log2_sizes[v] > log2_limit or entries >= most_entries or steps > most_steps:
            break
        pop(heap)
        order[done] = v
        gone[v] = True
        inside = 0
        for t in range(degree):
            hood_stamp[hood[t]] = done
            inside += weights[hood[t]]
        hood_stamp[v] = done
        touched = degree
        # Without fill edges, the neighbours' lists, which may be long, need no visit.
        if not (rule == BY_FILL and key[v] == 0):
            pool, touched, made = _connect(s, pool, v, degree, done, rule == BY_FILL)
            steps += made
        done += 1
        for t in range(degree):
            u = hood[t]
            if rule == BY_FILL:
                # Subtract the pairs of v with neighbours of u that are not neighbours of v.
                key[u] -= weights[v] * (around[u] - weights[v] - (inside - weights[u]))
            degrees[u] -= 1
            if lists.length[u] > 2 * degrees[u] + 8:
                steps += lists.length[u]
                _forget(lists, pool, u, gone)
            around[u] -= weights[v]
            if rule == BY_SIZE:
                key[u] = around[u] + weights[u]
        for t in range(touched):
            _rekey(heap, hood[t], key[hood[t]])
    return order[:done], variables, largest, entries, steps


@kernel
def contract(graph: Interactions, enough: float, most_steps: int) -> float:
    """Return a lower bound on the binary logarithm of the largest table of every order."""
    # Contraction degeneracy with weights: in every minor (a merged variable has the weight of the
    # smallest of its parts) some table holds a variable and all its neighbours. The variable for
    # which this table is smallest is repeatedly merged into the neighbour with which it shares the
    # fewest neighbours.
    n = graph.log2_sizes.size
    lists, pool = _lists_of(graph.ptr, graph.neighbours)
    weight = np.floor(graph.log2_sizes * DIGIT).astype(np.int64)
    key = weight.copy()
    for v in range(n):
        for p in range(graph.ptr[v], graph.ptr[v + 1]):
            key[v] += weight[graph.neighbours[p]]
    heap = _filled(key, np.arange(n))
    mark = np.full(n, -1, dtype=np.int64)
    token = 0
    best, steps = 0, 0
    far = _look_up_steps(n)
    while heap.size[0] > 0 and best < enough * DIGIT and steps < most_steps:
        v = pop(heap)
        best = max(best, key[v])
        start, degree = lists.start[v], lists.length[v]
        steps += far * (degree + 1)
        token += 1
        for p in range(start, start + degree):
            mark[pool[p]] = token
        into = int64(-1)
        fewest = n + 1
        for p in range(start, start + degree):
            u = pool[p]
            common = 0
            steps += lists.length[u]
            for q in range(lists.start[u], lists.start[u] + lists.length[u]):
                common += mark[pool[q]] == token
            if common < fewest:
                into, fewest = u, common
        if into < 0:
            continue
        token += 1
        for q in range(lists.start[into], lists.start[into] + lists.length[into]):
            mark[pool[q]] = token
        for p in range(degree):
            x = pool[lists.start[v] + p]
            _drop(lists, pool, x, v)
            steps += lists.length[x]
            key[x] -= weight[v]
            if x != into and mark[x] != token:
                pool = _append(lists, pool, x, into)
                pool = _append(lists, pool, into, x)
                key[x] += weight[into]
                key[into] += weight[x]
        less = weight[into] - weight[v]
        if less > 0:
            weight[into] -= less
            key[into] -= less
            for q in range(lists.start[into], lists.start[into] + lists.length[into]):
                x = pool[q]
                key[x] -= less
                _rekey(heap, x, key[x])
        for p in range(degree):
            x = pool[lists.start[v] + p]
            _rekey(heap, x, key[x])
        _rekey(heap, into, key[into])
    return best / DIGIT
