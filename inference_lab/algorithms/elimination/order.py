"""Elimination orders, and how large the tables are that exact inference along them needs.

Eliminating a variable joins it and its neighbours into one table and makes the neighbours adjacent
to each other. The size of the largest table (its number of variables less one is the *width*)
decides whether exact inference is possible at all, and it is known before anything is allocated.

Forbidden labels are removed first: a label that costs ``+inf``, or that no finite entry of a hard
term supports, takes part in no labelling of finite energy. Variables with a single label left,
such as observed ones, then drop out of the graph altogether.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from inference_lab._numba import kernel, lean_kernel
from inference_lab.graph.arrays import TABLE, FloatArray, GraphArrays, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.kernels.messages import edge_cost

BoolArray = npt.NDArray[np.bool_]

#: Steps of the search for an order: about half a second.
_SEARCH_STEPS = 100_000_000
#: ... and in large graphs this many more for each variable.
_STEPS_PER_VARIABLE = 1_000
#: A search for a better order may take this many steps for each table entry it could save.
_STEPS_PER_ENTRY = 0.3
#: ... and this many, about a millisecond's worth, in any case.
_CHEAP_STEPS = 300_000
#: No more random restarts than this.
_MAX_RESTARTS = 200
#: Weights are whole numbers, so that keys that should tie do: 1024 a binary digit.
_DIGIT = 1024

#: What a kernel chooses the next variable by.
_BY_SIZE, _BY_FILL, _AS_GIVEN = 0, 1, 2


# ---------------------------------------------------------------------- forbidden labels


class Domains(NamedTuple):
    """The labels that are left to each variable.

    * ``ptr`` (n+1,) int64; ``labels`` int64: the labels of variable ``i``, rising, are
      ``labels[ptr[i] : ptr[i + 1]]``;
    * ``feasible``: False if some variable has none, so that every labelling costs ``+inf``.
    """

    ptr: IntArray
    labels: IntArray
    feasible: bool

    @property
    def sizes(self) -> IntArray:
        """Number of labels left to each variable, shape (n,)."""
        return np.diff(self.ptr)


@lean_kernel
def _revise_edge(g: GraphArrays, e: int, side: int, allowed: BoolArray) -> bool:
    """Forbid the labels of ``edges[e, side]`` that no finite entry supports; tell whether any."""
    i = g.edges[e, side]
    j = g.edges[e, 1 - side]
    ki, kj = g.cardinalities[i], g.cardinalities[j]
    own, other = g.unary_ptr[i], g.unary_ptr[j]
    changed = False
    if g.kinds[e] == TABLE:
        for a in range(ki):
            if not allowed[own + a]:
                continue
            supported = False
            for b in range(kj):
                if allowed[other + b]:
                    cost = edge_cost(g, e, b, a) if side else edge_cost(g, e, a, b)
                    if cost < np.inf:
                        supported = True
                        break
            if not supported:
                allowed[own + a] = False
                changed = True
        return changed
    partners = 0
    for b in range(kj):
        partners += allowed[other + b]
    unequal = g.weights[e] < np.inf
    for a in range(ki):
        if not allowed[own + a]:
            continue
        shared = a < kj and allowed[other + a]
        supported = unequal and partners > (1 if shared else 0)
        if shared and not supported:
            supported = g.pairwise[g.offsets[e] + a * g.kinds[e]] < np.inf
        if not supported:
            allowed[own + a] = False
            changed = True
    return changed


@lean_kernel
def _mark_supported(
    g: GraphArrays, f: int, allowed: BoolArray, supported: BoolArray, digits: IntArray
) -> None:
    """Mark the labels of a factor's variables that some finite entry supports, slot by slot."""
    lo, hi = g.factor_ptr[f], g.factor_ptr[f + 1]
    width = 0
    for s in range(lo, hi):
        digits[s - lo] = 0
        width += g.cardinalities[g.scopes[s]]
    for at in range(width):
        supported[at] = False
    for t in range(g.table_ptr[f], g.table_ptr[f + 1]):
        if g.tables[t] < np.inf:
            possible = True
            for s in range(lo, hi):
                if not allowed[g.unary_ptr[g.scopes[s]] + digits[s - lo]]:
                    possible = False
                    break
            if possible:
                at = 0
                for s in range(lo, hi):
                    supported[at + digits[s - lo]] = True
                    at += g.cardinalities[g.scopes[s]]
        s = hi - 1
        while s >= lo:
            digits[s - lo] += 1
            if digits[s - lo] < g.cardinalities[g.scopes[s]]:
                break
            digits[s - lo] = 0
            s -= 1


@lean_kernel
def _has_label(g: GraphArrays, i: int, allowed: BoolArray) -> bool:
    """Whether a variable has a label left."""
    for t in range(g.unary_ptr[i], g.unary_ptr[i + 1]):
        if allowed[t]:
            return True
    return False


@kernel
def _propagate(g: GraphArrays, hard: BoolArray, allowed: BoolArray) -> bool:
    """Forbid labels without support until nothing changes; `hard` flags edges, then factors.

    Returns whether every variable keeps a label.
    """
    n, m = g.cardinalities.size, g.kinds.size
    for i in range(n):
        if not _has_label(g, i, allowed):
            return False
    queue = np.empty(hard.size + 1, dtype=np.int64)
    queued = hard.copy()
    head, tail = 0, 0
    for t in range(hard.size):
        if hard[t]:
            queue[tail] = t
            tail += 1
    arity, width = 1, 1
    for f in range(g.factor_ptr.size - 1):
        arity = max(arity, g.factor_ptr[f + 1] - g.factor_ptr[f])
        total = 0
        for s in range(g.factor_ptr[f], g.factor_ptr[f + 1]):
            total += g.cardinalities[g.scopes[s]]
        width = max(width, total)
    supported = np.empty(width, dtype=np.bool_)
    digits = np.empty(arity, dtype=np.int64)
    touched = np.empty(max(arity, 2), dtype=np.int64)
    while head != tail:
        t = queue[head]
        head = (head + 1) % queue.size
        queued[t] = False
        count = 0
        if t < m:
            for side in range(2):
                if _revise_edge(g, t, side, allowed):
                    touched[count] = g.edges[t, side]
                    count += 1
        else:
            f = t - m
            _mark_supported(g, f, allowed, supported, digits)
            at = 0
            for s in range(g.factor_ptr[f], g.factor_ptr[f + 1]):
                i = g.scopes[s]
                changed = False
                for a in range(g.cardinalities[i]):
                    if allowed[g.unary_ptr[i] + a] and not supported[at + a]:
                        allowed[g.unary_ptr[i] + a] = False
                        changed = True
                at += g.cardinalities[i]
                if changed:
                    touched[count] = i
                    count += 1
        for c in range(count):
            i = touched[c]
            if not _has_label(g, i, allowed):
                return False
            for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
                e = g.adj_half[p] >> 1
                if hard[e] and not queued[e]:
                    queued[e] = True
                    queue[tail] = e
                    tail = (tail + 1) % queue.size
            for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
                u = m + g.slot_factor[g.inc_slot[p]]
                if hard[u] and not queued[u]:
                    queued[u] = True
                    queue[tail] = u
                    tail = (tail + 1) % queue.size
    return True


@kernel
def _hard_terms(g: GraphArrays) -> BoolArray:
    """Flag the edges, then the factors, that have a ``+inf`` entry."""
    m = g.kinds.size
    hard = np.zeros(m + g.factor_ptr.size - 1, dtype=np.bool_)
    for e in range(m):
        ki, kj = g.cardinalities[g.edges[e, 0]], g.cardinalities[g.edges[e, 1]]
        length = ki * kj if g.kinds[e] == TABLE else g.kinds[e] * (min(ki, kj) - 1) + 1
        hard[e] = np.isinf(g.weights[e])
        for t in range(g.offsets[e], g.offsets[e] + length):
            hard[e] |= np.isinf(g.pairwise[t])
    for f in range(g.factor_ptr.size - 1):
        for t in range(g.table_ptr[f], g.table_ptr[f + 1]):
            hard[m + f] |= np.isinf(g.tables[t])
    return hard


def allowed_labels(graph: FactorGraph, among: BoolArray | None = None) -> Domains:
    """Return the labels that hard unaries and hard terms leave to each variable.

    Where `among` is given, a flag for each entry of the unaries, only labels with one.

    A label is dropped if it costs ``+inf``, or if a term has no finite entry with it among the
    labels left to the other variables; repeated until nothing changes (generalised arc
    consistency). No labelling of finite energy is lost.

    Complexity: linear in the graph where no cost is infinite; else each hard term is scanned again
    when one of its variables loses a label.

    References
    ----------
    A. K. Mackworth, "Consistency in networks of relations", Artificial Intelligence 8, 1977.

    Examples
    --------
    >>> import inference_lab as il
    >>> from inference_lab.algorithms.elimination.order import allowed_labels
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [float("inf")])
    >>> allowed_labels(g.with_evidence({0: 1})).labels
    array([1, 1])
    """
    allowed = np.isfinite(graph.unary_values)
    feasible = True
    if among is not None:
        allowed &= among
        feasible = bool(np.logical_or.reduceat(allowed, graph.unary_ptr[:-1]).all())
    if feasible and graph.has_infinite:
        feasible = bool(_propagate(graph.arrays, _hard_terms(graph.arrays), allowed))
    kept = np.flatnonzero(allowed)
    counts = np.concatenate([[0], np.cumsum(allowed)])
    ptr = counts[graph.unary_ptr].astype(np.int64)
    owner = np.repeat(np.arange(graph.n_variables), np.diff(ptr))
    return Domains(ptr, kept - graph.unary_ptr[owner], feasible)


# ---------------------------------------------------------------------- which variables interact


class Interactions(NamedTuple):
    """The graph on the variables with two labels or more, joined where a term couples them.

    * ``variables`` (v,) int64: their numbers in the factor graph, rising;
    * ``ptr`` (v+1,) int64 and ``neighbours`` int64, in terms of positions in ``variables``;
    * ``log2_sizes`` (v,): binary logarithm of the number of labels left.
    """

    variables: IntArray
    ptr: IntArray
    neighbours: IntArray
    log2_sizes: FloatArray


@kernel
def _coupling(g: GraphArrays, ptr: IntArray, labels: IntArray) -> BoolArray:
    """Flag the edges, then the factors, that are not constant over the labels that are left."""
    m = g.kinds.size
    couples = np.zeros(m + g.factor_ptr.size - 1, dtype=np.bool_)
    arity = 1
    for f in range(g.factor_ptr.size - 1):
        arity = max(arity, g.factor_ptr[f + 1] - g.factor_ptr[f])
    digits = np.empty(arity, dtype=np.int64)
    strides = np.empty(arity, dtype=np.int64)
    for e in range(m):
        i, j = g.edges[e, 0], g.edges[e, 1]
        if ptr[i] == ptr[i + 1] or ptr[j] == ptr[j + 1]:
            continue
        first = edge_cost(g, e, labels[ptr[i]], labels[ptr[j]])
        for a in range(ptr[i], ptr[i + 1]):
            for b in range(ptr[j], ptr[j + 1]):
                if edge_cost(g, e, labels[a], labels[b]) != first:
                    couples[e] = True
                    break
            if couples[e]:
                break
    for f in range(g.factor_ptr.size - 1):
        lo, hi = g.factor_ptr[f], g.factor_ptr[f + 1]
        stride, at, entries = 1, g.table_ptr[f], 1
        for s in range(hi - 1, lo - 1, -1):
            i = g.scopes[s]
            digits[s - lo] = 0
            strides[s - lo] = stride
            stride *= g.cardinalities[i]
            entries *= ptr[i + 1] - ptr[i]
            if entries:
                at += strides[s - lo] * labels[ptr[i]]
        if entries == 0:
            continue
        first = g.tables[at]
        while True:
            if g.tables[at] != first:
                couples[m + f] = True
                break
            s = hi - 1
            while s >= lo:
                i = g.scopes[s]
                d = digits[s - lo]
                at -= strides[s - lo] * labels[ptr[i] + d]
                d += 1
                if ptr[i] + d == ptr[i + 1]:
                    d = 0
                digits[s - lo] = d
                at += strides[s - lo] * labels[ptr[i] + d]
                if d:
                    break
                s -= 1
            if s < lo:
                break
    return couples


@kernel
def _factor_pairs(g: GraphArrays, couples: BoolArray, position: IntArray) -> IntArray:
    """Return the pairs of free variables that coupling factors join, shape (pairs, 2)."""
    m = g.kinds.size
    count = 0
    for f in range(g.factor_ptr.size - 1):
        if couples[m + f]:
            free = 0
            for s in range(g.factor_ptr[f], g.factor_ptr[f + 1]):
                free += position[g.scopes[s]] >= 0
            count += free * (free - 1) // 2
    pairs = np.empty((count, 2), dtype=np.int64)
    count = 0
    for f in range(g.factor_ptr.size - 1):
        if not couples[m + f]:
            continue
        for s in range(g.factor_ptr[f], g.factor_ptr[f + 1]):
            for t in range(s + 1, g.factor_ptr[f + 1]):
                u, v = position[g.scopes[s]], position[g.scopes[t]]
                if u >= 0 and v >= 0:
                    pairs[count, 0] = u
                    pairs[count, 1] = v
                    count += 1
    return pairs


def coupling_terms(graph: FactorGraph, domains: Domains) -> BoolArray:
    """Flag the edges, then the higher-order factors, that vary over the labels that are left."""
    return np.asarray(_coupling(graph.arrays, domains.ptr, domains.labels))


def interactions(graph: FactorGraph, domains: Domains, couples: BoolArray) -> Interactions:
    """Return the graph of interactions between the variables that are still undecided.

    Parameters
    ----------
    graph : FactorGraph
    domains : Domains
        As `allowed_labels` returns them.
    couples : (m + f,) bool
        As `coupling_terms` returns them.
    """
    sizes = domains.sizes
    variables = np.flatnonzero(sizes > 1)
    position = np.full(graph.n_variables, -1, dtype=np.int64)
    position[variables] = np.arange(variables.size)
    pairs = position[graph.edges[couples[: graph.n_edges]]].reshape(-1, 2)
    pairs = pairs[(pairs >= 0).all(axis=1)]
    if graph.n_factors:
        pairs = np.concatenate([pairs, _factor_pairs(graph.arrays, couples, position)])
    count = max(1, variables.size)
    keys = np.unique(np.concatenate([pairs @ [count, 1], pairs @ [1, count]]))
    ends, neighbours = np.divmod(keys, count)
    degrees = np.bincount(ends, minlength=variables.size)
    ptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(degrees)])
    return Interactions(variables, ptr, neighbours, np.log2(sizes[variables]))


# ---------------------------------------------------------------------- elimination


class _Lists(NamedTuple):
    """Growing adjacency lists in one pool of integers; ``tail[0]`` is the pool's end."""

    start: IntArray
    length: IntArray
    room: IntArray
    tail: IntArray


@kernel
def _lists_of(ptr: IntArray, neighbours: IntArray) -> tuple[_Lists, IntArray]:
    """Copy a graph into growing lists, and return them with their pool."""
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
    """Append ``x`` to the list of ``v``; return the pool, which may have been moved."""
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
    """Take ``x`` out of the list of ``v``."""
    start = lists.start[v]
    last = start + lists.length[v] - 1
    for p in range(start, last + 1):
        if pool[p] == x:
            pool[p] = pool[last]
            break
    lists.length[v] -= 1


@lean_kernel
def _forget(lists: _Lists, pool: IntArray, v: int, gone: BoolArray) -> None:
    """Take what is gone out of the list of ``v``."""
    start = lists.start[v]
    end = start
    for p in range(start, start + lists.length[v]):
        if not gone[pool[p]]:
            pool[end] = pool[p]
            end += 1
    lists.length[v] = end - start


class _Heap(NamedTuple):
    """Variables by rising key, ties by `tie`; ``place`` is where each stands, -1 if it is out."""

    items: IntArray
    place: IntArray
    key: IntArray
    tie: IntArray
    size: IntArray  # (1,)


@lean_kernel
def _before(heap: _Heap, u: int, v: int) -> bool:
    """Whether ``u`` comes before ``v``."""
    if heap.key[u] != heap.key[v]:
        return bool(heap.key[u] < heap.key[v])
    return bool(heap.tie[u] < heap.tie[v])


@lean_kernel
def _settle(heap: _Heap, v: int) -> None:
    """Move a variable to where its key belongs."""
    items, place = heap.items, heap.place
    at = place[v]
    while at > 0:
        above = (at - 1) >> 1
        if not _before(heap, v, items[above]):
            break
        items[at] = items[above]
        place[items[at]] = at
        at = above
    size = heap.size[0]
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        if below + 1 < size and _before(heap, items[below + 1], items[below]):
            below += 1
        if not _before(heap, items[below], v):
            break
        items[at] = items[below]
        place[items[at]] = at
        at = below
    items[at] = v
    place[v] = at


@kernel
def _filled(key: IntArray, tie: IntArray) -> _Heap:
    """Return a heap of all variables, with keys of its own."""
    n = key.size
    heap = _Heap(np.arange(n), np.arange(n), key.copy(), tie, np.zeros(1, dtype=np.int64))
    for v in range(n):
        heap.size[0] = v + 1
        _settle(heap, v)
    return heap


@lean_kernel
def _rekey(heap: _Heap, v: int, key: int) -> None:
    """Give a variable that is still in another key; one at a time, or the order breaks."""
    if heap.place[v] >= 0:
        heap.key[v] = key
        _settle(heap, v)


@lean_kernel
def _remove(heap: _Heap, v: int) -> None:
    """Take a variable out."""
    at = heap.place[v]
    heap.size[0] -= 1
    last = heap.items[heap.size[0]]
    heap.place[v] = -1
    if last != v:
        heap.items[at] = last
        heap.place[last] = at
        _settle(heap, last)


@lean_kernel
def _is_listed(ptr: IntArray, neighbours: IntArray, v: int, x: int) -> bool:
    """Whether ``x`` is among the neighbours of ``v``, which are sorted."""
    lo, hi = ptr[v], ptr[v + 1]
    while lo < hi:
        middle = (lo + hi) >> 1
        if neighbours[middle] < x:
            lo = middle + 1
        else:
            hi = middle
    return bool(lo < ptr[v + 1] and neighbours[lo] == x)


@lean_kernel
def _slot(table: IntArray, key: int) -> int:
    """Return where a key stands in a hash table, or the free place where it would stand.

    The table is a power of two long, with -1 where it is free.
    """
    mask = table.size - 1
    # Multiplicative hashing: the middle bits of the product are well mixed.
    at = ((key * 0x1E3779B97F4A7C15) >> 20) & mask
    while table[at] >= 0 and table[at] != key:
        at = (at + 1) & mask
    return int(at)


@lean_kernel
def _holds(table: IntArray, key: int) -> bool:
    """Whether a hash table holds a key."""
    return bool(table[_slot(table, key)] == key)


@lean_kernel
def _insert(table: IntArray, key: int) -> None:
    """Put a key into a hash table."""
    table[_slot(table, key)] = key


@kernel
def _reduce(
    ptr: IntArray, neighbours: IntArray, log2_sizes: FloatArray
) -> tuple[IntArray, IntArray, IntArray, IntArray, int, float, float]:
    """Eliminate variables of degree 0, 1 and 2 whose elimination cannot make any order worse.

    Variables whose neighbours are adjacent go without condition. A variable with two neighbours
    that are not must not have fewer labels than both of them, and its table must not be larger than
    some table is in any order (the safe series rule with weights): where no variable of degree 1
    is left there is a cycle, and with it a table of three variables.
    Returns the variables in order; those that are left, and their graph; the number of variables in
    the largest table, the binary logarithm of its entries, and the entries of all tables.

    Complexity: linear in the edges, but for a binary search.
    """
    n = log2_sizes.size
    lists, pool = _lists_of(ptr, neighbours)
    degree = lists.length.copy()
    room = 4
    while room < 2 * n:
        room *= 2
    added = np.full(room, -1, dtype=np.int64)  # keys of the edges that eliminations have made
    order = np.empty(n, dtype=np.int64)
    gone = np.zeros(n, dtype=np.bool_)
    leaves = np.empty(n, dtype=np.int64)  # stacks of variables of degree 0 and 1, and 2
    joints = np.empty(n, dtype=np.int64)
    is_leaf = np.zeros(n, dtype=np.bool_)
    is_joint = np.zeros(n, dtype=np.bool_)
    ends = np.empty(2, dtype=np.int64)
    variables, largest, entries = 0, 0.0, 0.0
    n_leaves, n_joints, done = 0, 0, 0
    least = np.full(3, np.inf)
    for v in range(n - 1, -1, -1):
        if degree[v] <= 1:
            leaves[n_leaves] = v
            n_leaves += 1
            is_leaf[v] = True
        elif degree[v] == 2:
            joints[n_joints] = v
            n_joints += 1
            is_joint[v] = True
        size = log2_sizes[v]
        for t in range(3):
            if size < least[t]:
                size, least[t] = least[t], size
    necessary = least[0] + least[1] + least[2]
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
        count = 0
        size = log2_sizes[v]
        for p in range(lists.start[v], lists.start[v] + lists.length[v]):
            if not gone[pool[p]]:
                ends[count] = pool[p]
                count += 1
                size += log2_sizes[pool[p]]
        if count == 2:
            a, b = min(ends[0], ends[1]), max(ends[0], ends[1])
            if not _is_listed(ptr, neighbours, a, b) and not _holds(added, a * n + b):
                if log2_sizes[v] < min(log2_sizes[a], log2_sizes[b]):
                    continue
                # A few units in the last place more are the same size.
                if size > max(necessary, largest) + 1e-9:
                    continue
                _insert(added, a * n + b)
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
    kept = np.empty(n - done, dtype=np.int64)
    place = np.full(n, -1, dtype=np.int64)
    at = 0
    for v in range(n):
        if not gone[v]:
            kept[at] = v
            place[v] = at
            at += 1
    core_ptr = np.zeros(kept.size + 1, dtype=np.int64)
    for c in range(kept.size):
        core_ptr[c + 1] = core_ptr[c] + degree[kept[c]]
    core = np.empty(core_ptr[-1], dtype=np.int64)
    for c in range(kept.size):
        v = kept[c]
        at = core_ptr[c]
        for p in range(lists.start[v], lists.start[v] + lists.length[v]):
            if not gone[pool[p]]:
                core[at] = place[pool[p]]
                at += 1
    return order[:done], kept, core_ptr, core, variables, largest, entries


@kernel
def _missing_pairs(ptr: IntArray, neighbours: IntArray, weights: IntArray, out: IntArray) -> int:
    """Write the total weight of the pairs of neighbours of each vertex that are not adjacent.

    All pairs, less those of the triangles, which are found from the corner of least degree on.
    Returns the steps made.

    Complexity: O(edges * the largest number of neighbours of higher degree), at most O(edges^1.5).
    """
    n = ptr.size - 1
    up_ptr = np.zeros(n + 1, dtype=np.int64)
    up = np.empty(neighbours.size // 2, dtype=np.int64)
    for v in range(n):
        at = up_ptr[v]
        degree, total = ptr[v + 1] - ptr[v], 0
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


@kernel
def _eliminate(
    ptr: IntArray,
    neighbours: IntArray,
    log2_sizes: FloatArray,
    weights: IntArray,
    rule: int,
    tie: IntArray,
    log2_limit: float,
    most_entries: float,
    most_steps: int,
) -> tuple[IntArray, int, float, float, int]:
    """Eliminate all variables greedily, or in the order of `tie`.

    `rule`: the variable whose table has the smallest total weight, the one that adds edges of the
    least total weight (an edge weighs the product of its ends), or the one with the smallest tie.
    Gives up when the table that is left after an elimination exceeds ``2^log2_limit`` entries, or
    all tables together `most_entries`, or after `most_steps` steps.

    Returns the variables eliminated, the number of variables in the largest table, the binary
    logarithm of its entries, the entries of all tables, and the steps made.
    """
    n = log2_sizes.size
    lists, pool = _lists_of(ptr, neighbours)
    key = np.zeros(n, dtype=np.int64)  # runs ahead of the heap's within an elimination
    sums = np.zeros(n, dtype=np.int64)  # total weight of the neighbours
    mark = np.full(n, -1, dtype=np.int64)
    token = 0
    steps = 0
    order = np.empty(n, dtype=np.int64)
    done, variables, largest, entries = 0, 0, 0.0, 0.0
    for v in range(n):
        for p in range(ptr[v], ptr[v + 1]):
            sums[v] += weights[neighbours[p]]
        if rule == _BY_SIZE:
            key[v] = sums[v] + weights[v]
    if rule == _BY_FILL:
        steps += _missing_pairs(ptr, neighbours, weights, key)
    heap = _filled(key, tie)
    gone = np.zeros(n, dtype=np.bool_)
    left = lists.length.copy()  # neighbours that are not gone; lists are cleared now and then
    hood = np.empty(n, dtype=np.int64)
    touched = np.empty(n, dtype=np.int64)
    is_touched = np.zeros(n, dtype=np.bool_)
    while done < n:
        v = heap.items[0]
        degree = 0
        size = log2_sizes[v]
        for p in range(lists.start[v], lists.start[v] + lists.length[v]):
            if not gone[pool[p]]:
                hood[degree] = pool[p]
                size += log2_sizes[pool[p]]
                degree += 1
        variables = max(variables, degree + 1)
        largest = max(largest, size)
        entries += 2.0**size
        if size - log2_sizes[v] > log2_limit or entries >= most_entries or steps > most_steps:
            break
        _remove(heap, v)
        order[done] = v
        done += 1
        gone[v] = True
        count = 0
        for t in range(degree):
            a = hood[t]
            touched[count] = a
            count += 1
            is_touched[a] = True
        # With nothing to add, the neighbours' lists, which may be long, are not even looked at.
        complete = rule == _BY_FILL and key[v] == 0
        for t in range(0 if complete else degree):
            a = hood[t]
            token += 1
            for p in range(lists.start[a], lists.start[a] + lists.length[a]):
                mark[pool[p]] = token
            steps += lists.length[a] + degree
            for r in range(t + 1, degree):
                b = hood[r]
                if mark[b] == token:
                    continue
                if rule == _BY_FILL:
                    # The new edge closes the pairs of each common neighbour, and opens pairs
                    # with the neighbours that only one of the two has.
                    common = 0
                    steps += lists.length[b]
                    for p in range(lists.start[b], lists.start[b] + lists.length[b]):
                        c = pool[p]
                        if mark[c] == token and (c == v or not gone[c]):
                            common += weights[c]
                            key[c] -= weights[a] * weights[b]
                            if not is_touched[c]:
                                is_touched[c] = True
                                touched[count] = c
                                count += 1
                    key[a] += weights[b] * (sums[a] - common)
                    key[b] += weights[a] * (sums[b] - common)
                pool = _append(lists, pool, a, b)
                pool = _append(lists, pool, b, a)
                mark[b] = token
                left[a] += 1
                left[b] += 1
                sums[a] += weights[b]
                sums[b] += weights[a]
        inside = 0
        for t in range(degree):
            inside += weights[hood[t]]
        for t in range(degree):
            u = hood[t]
            if rule == _BY_FILL:
                # Pairs of v with what is a neighbour of u, but not of v.
                key[u] -= weights[v] * (sums[u] - weights[v] - (inside - weights[u]))
            left[u] -= 1
            if lists.length[u] > 2 * left[u] + 8:
                steps += lists.length[u]
                _forget(lists, pool, u, gone)
            sums[u] -= weights[v]
            if rule == _BY_SIZE:
                key[u] = sums[u] + weights[u]
        for t in range(count):
            u = touched[t]
            is_touched[u] = False
            _rekey(heap, u, key[u])
    return order[:done], variables, largest, entries, steps


@kernel
def _contract(
    ptr: IntArray,
    neighbours: IntArray,
    log2_sizes: FloatArray,
    enough: float,
    most_steps: int,
) -> float:
    """Return a lower bound on the binary logarithm of the largest table of every order.

    Contraction degeneracy with weights: in every minor (a merged variable counts as the
    smallest of those it is made of) some table holds a variable and all its neighbours. The
    variable for which this is least is merged into the neighbour it shares the fewest neighbours
    with, over and over. Stops when the bound reaches `enough`.
    """
    n = log2_sizes.size
    lists, pool = _lists_of(ptr, neighbours)
    weight = np.empty(n, dtype=np.int64)
    for v in range(n):
        weight[v] = np.int64(np.floor(log2_sizes[v] * _DIGIT))
    key = np.zeros(n, dtype=np.int64)
    for v in range(n):
        key[v] = weight[v]
        for p in range(ptr[v], ptr[v + 1]):
            key[v] += weight[neighbours[p]]
    heap = _filled(key, np.arange(n))
    mark = np.full(n, -1, dtype=np.int64)
    token = 0
    best, steps = 0, 0
    while heap.size[0] > 0 and best < enough * _DIGIT and steps < most_steps:
        v = heap.items[0]
        best = max(best, key[v])
        _remove(heap, v)
        start, degree = lists.start[v], lists.length[v]
        token += 1
        for p in range(start, start + degree):
            mark[pool[p]] = token
        into, fewest = -1, n + 1
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
    return best / _DIGIT


# ---------------------------------------------------------------------- the search


@dataclass(frozen=True)
class Elimination:
    """An order in which to eliminate variables, and what it costs.

    Attributes
    ----------
    order : (v,) int64 array
        The variables with two allowed labels or more; shorter where the search gave up.
    method : str
        How the order was found.
    complete : bool
        False if every order tried has a table above the limit; the order found furthest is kept,
        and the figures are of the part up to and including the table that is too large.
    width : int
        Variables in the largest table, less one.
    log2_largest, log2_total : float
        Binary logarithm of the number of entries of the largest table, and of all tables.
    log2_needed : float
        Proved: every order has a table of at least this size (0 where it was not looked for).
    cut_short : bool
        Whether the search might have found a better order in more steps than it was given.
    """

    order: IntArray
    method: str
    complete: bool
    width: int
    log2_largest: float
    log2_total: float
    log2_needed: float
    cut_short: bool = False


class _Attempt(NamedTuple):
    method: str
    order: IntArray
    complete: bool
    variables: int
    log2_largest: float
    entries: float


def _candidates(
    graph: Interactions, rng: np.random.Generator
) -> Iterator[tuple[str, int, IntArray, IntArray]]:
    """Go through the ways to order a graph: name, rule, weights, ties; greedy ones first."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    n = graph.variables.size
    ones = np.ones(n, dtype=np.int64)
    digits = np.maximum(1, np.round(_DIGIT * graph.log2_sizes)).astype(np.int64)
    plain = np.arange(n)
    ragged = bool((digits != digits[:1]).any())
    yield "min-fill", _BY_FILL, ones, plain
    if ragged:
        yield "weighted min-fill", _BY_FILL, digits, plain
    yield "min-degree", _BY_SIZE, ones, plain
    if ragged:
        yield "min-size", _BY_SIZE, digits, plain
    yield "as numbered", _AS_GIVEN, ones, plain
    entries: Any = np.ones(graph.neighbours.size, dtype=np.int8)
    links = csr_array((entries, graph.neighbours, graph.ptr), shape=(n, n))
    profile = np.empty(n, dtype=np.int64)
    profile[reverse_cuthill_mckee(links, symmetric_mode=True)] = plain
    yield "reverse Cuthill-McKee", _AS_GIVEN, ones, profile
    for restart in range(_MAX_RESTARTS):
        if ragged and restart % 2:
            yield "weighted min-fill, random ties", _BY_FILL, digits, rng.permutation(n)
        else:
            yield "min-fill, random ties", _BY_FILL, ones, rng.permutation(n)


def _search(graph: Interactions, log2_limit: float, most_steps: int) -> tuple[_Attempt, bool]:
    """Try the candidates while that promises to pay; return the best order, and if cut short."""
    n = graph.variables.size
    best: _Attempt | None = None
    spent = 0
    cut_short = False
    for method, rule, weights, ties in _candidates(graph, np.random.default_rng(0)):
        allowance = most_steps - spent
        if best is None:
            allowance //= 2
        elif best.complete:
            # What the order costs is known: searching longer than it takes cannot pay.
            allowance = min(
                allowance, max(_CHEAP_STEPS, int(_STEPS_PER_ENTRY * best.entries)) - spent
            )
        if best is not None and allowance <= 0:
            cut_short = spent >= most_steps
            break
        most = best.entries if best is not None and best.complete else math.inf
        order, variables, largest, entries, steps = _eliminate(
            graph.ptr, graph.neighbours, graph.log2_sizes, weights, rule, ties, log2_limit, most,
            max(allowance, 1),
        )  # fmt: skip
        spent += steps
        complete = order.size == n
        attempt = _Attempt(method, order, complete, variables, largest, entries)
        if best is None or complete or (not best.complete and order.size > best.order.size):
            best = attempt
    assert best is not None
    return best, cut_short


def elimination_order(
    graph: Interactions,
    log2_limit: float = math.inf,
    log2_enough: float = math.inf,
    most_steps: float = math.inf,
) -> Elimination:
    """Find an order with small tables.

    Variables whose elimination cannot hurt go first. For the rest the order of least total table
    size among these is taken: min-fill, min-fill weighted by the number of labels, min-degree, the
    variables' own order, reverse Cuthill-McKee (which suit long, narrow graphs), then min-fill with
    random ties for as long as a better order could save more than the search costs.

    Parameters
    ----------
    graph : Interactions
    log2_limit : float
        Give up on an order at the first elimination that leaves a table (over the neighbours)
        of more than ``2^log2_limit`` entries.
    log2_enough : float
        Do not look for an order if it is easily proved that each has a table of at least
        ``2^log2_enough`` entries.
    most_steps : float
        Make no more steps of the search, some 200 million of which take a second.

    Guarantees
    ----------
    Deterministic. Forests get an order of width 1; orders of width 2 are found wherever they exist
    and all variables have equally many labels.

    Complexity
    ----------
    An elimination with ``d`` neighbours costs O(d^2), and the degree of a neighbour more for each
    edge it adds; no more than about half a second's worth of such steps is made. Memory: linear
    in the edges, those that eliminations add included.

    References
    ----------
    H. L. Bodlaender, A. M. C. A. Koster, "Treewidth computations I. Upper bounds", Information and
    Computation 208(3), 2010; "II. Lower bounds", 209(7), 2011.
    F. van den Eijkhof, H. L. Bodlaender, A. M. C. A. Koster, "Safe reduction rules for weighted
    treewidth", Algorithmica 47, 2007.

    Examples
    --------
    >>> import inference_lab as il
    >>> from inference_lab.algorithms.elimination.order import allowed_labels, coupling_terms
    >>> from inference_lab.algorithms.elimination.order import elimination_order, interactions
    >>> g = il.FactorGraph.potts([[0.0, 1.0]] * 4, [(0, 1), (1, 2), (2, 3), (3, 0)], 1.0)
    >>> labels = allowed_labels(g)
    >>> found = elimination_order(interactions(g, labels, coupling_terms(g, labels)))
    >>> found.width, found.log2_largest
    (2, 3.0)
    """
    first, kept, ptr, neighbours, variables, largest, entries = _reduce(
        graph.ptr, graph.neighbours, graph.log2_sizes
    )
    order, method, complete, needed = first, "safe reductions", True, 0.0
    cut_short = False
    if kept.size:
        core = Interactions(kept, ptr, neighbours, graph.log2_sizes[kept])
        most = int(min(most_steps, _SEARCH_STEPS + _STEPS_PER_VARIABLE * kept.size))
        needed = float(_contract(ptr, neighbours, core.log2_sizes, log2_enough, most // 4))
        if needed >= log2_enough:
            complete = False
        else:
            found, cut_short = _search(core, log2_limit, most)
            order = np.concatenate([first, kept[found.order]])
            method, complete = found.method, found.complete
            variables = max(variables, found.variables)
            largest = max(largest, found.log2_largest)
            entries += found.entries
    return Elimination(
        order=graph.variables[order],
        method=method,
        complete=complete,
        width=max(0, variables - 1),
        log2_largest=largest,
        log2_total=math.log2(entries) if entries > 0 else 0.0,
        log2_needed=needed,
        cut_short=cut_short,
    )
