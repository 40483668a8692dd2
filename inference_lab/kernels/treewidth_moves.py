"""Blocks of variables that are relabelled jointly and exactly, given all other labels.

The page `docs/maintainers/tables-of-a-block.md` explains the tables with a picture.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from inference_lab._numba import inlined, int64, lean_kernel, merged
from inference_lab.graph.arrays import TABLE, FloatArray, GraphArrays, Int32Array, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.kernels.heap import Heap, clear, empty_heap, push, remove, rise, settle
from inference_lab.kernels.messages import half_cost
from inference_lab.kernels.struct import One, record

#: State of a variable while a block grows: left out, undecided, member. Typed, as below, because
#: numba would compile a step anew for each literal constant.
_OUT, _OPEN, _IN = int64(0), int64(1), int64(2)
_ZERO = int64(0)
#: Variables compared when one has to be left out; the one with the largest table is.
_TOURNAMENT = 8
#: Table entries whose positions in an input are stored in a lookup table.
_LOOK_UP = 512


class GrowthNumbers:
    """The single numbers of a growing block."""

    #: Number of the last search for neighbours.
    search: int
    #: Undecided variables.
    listed: int
    #: Nodes of the linked lists in use.
    nodes: int


class BlockNumbers:
    """The single numbers of a block."""

    #: Members.
    members: int
    #: State of the random generator.
    random: int
    #: Cost of the members before and after, and the sum of the absolute costs before.
    before: float
    after: float
    scale: float


class Growth(NamedTuple):
    """The state of each undecided variable while a block grows."""

    #: (k+1,): binary logarithms of counts.
    log2: FloatArray
    #: Undecided variables, smallest table first; the key is the binary logarithm of the size of the
    #: table that each would get now, ties are random.
    heap: Heap
    #: (n,): whether the key is only a lower bound; lazy updates make stars linear in their leaves.
    stale: npt.NDArray[np.bool_]
    #: ``listed``, ``at`` (n,): the same variables as a list, and their positions in it.
    listed: IntArray
    at: IntArray
    #: (n,): stamps of the last search for neighbours.
    mark: IntArray
    #: (n,): the neighbours it found.
    found: IntArray
    #: ``node`` (n,), ``next``, ``element``: linked lists of the members whose separators hold each
    #: undecided variable.
    node: IntArray
    next: IntArray
    element: IntArray
    #: (t,): whether a later table contains the whole separator.
    absorbed: npt.NDArray[np.bool_]
    #: (1,): the single numbers.
    now: One[GrowthNumbers]


class BlockTables(NamedTuple):
    """The messages between the tables of a block, and scratch for one table at a time."""

    #: ``child``, ``sibling`` (t,): linked lists of the members whose messages enter each table.
    child: IntArray
    sibling: IntArray
    #: ``rows``, ``start`` (t,): size of each message, and its offset in ``messages``.
    rows: IntArray
    start: IntArray
    messages: FloatArray
    #: (like the unaries): costs of the open labels given the variables outside.
    cost: FloatArray
    #: Entries of the current table.
    entries: FloatArray
    #: ``strides``, ``digits``, ``look_up``: scratch for the axes of the table and of an input.
    strides: IntArray
    digits: IntArray
    look_up: IntArray


class Block(NamedTuple):
    """A set of variables under construction or solution."""

    # Member ``p`` is the p-th to be eliminated. Its table has an axis for its own labels, then one
    # for each member of its *separator*, in order of elimination. The message is the minimum over
    # the first axis, and enters the table of the first member of the separator.

    #: (n,): `_OUT`, `_OPEN` or `_IN` for each variable.
    state: IntArray
    #: (n,): the number of each member in the order of elimination.
    turn: IntArray
    #: ``open`` (n,), ``label`` (like the unaries): number of open labels of each candidate, and the
    #: labels.
    open: IntArray
    label: IntArray
    #: (t,): the members.
    order: IntArray
    #: ``sep_ptr`` (t+1,), ``sep``: their separators.
    sep_ptr: IntArray
    sep: IntArray
    growth: Growth
    tables: BlockTables
    #: (1,): the single numbers.
    now: One[BlockNumbers]


def start_block(graph: FactorGraph, most_members: int, table: int, entries: int) -> Block:
    """Allocate a block of at most `most_members` with tables of limited size and total size."""
    n = graph.n_variables
    k = int(graph.cardinalities.max(initial=1))
    members = min(n, most_members)
    # Every axis has at least two labels.
    axes = max(k, table).bit_length() + 1

    def ints(size: int) -> IntArray:
        return np.zeros(size, dtype=np.int64)

    growth = Growth(
        log2=np.log2(np.maximum(1, np.arange(k + 1))),
        heap=empty_heap(key=np.zeros(n), tie=np.zeros(n)),
        stale=np.zeros(n, dtype=np.bool_),
        listed=ints(n),
        at=ints(n),
        mark=ints(n),
        found=ints(n),
        node=ints(n),
        next=ints(members * axes),
        element=ints(members * axes),
        absorbed=np.zeros(members, dtype=np.bool_),
        now=record(GrowthNumbers),
    )
    tables = BlockTables(
        child=ints(members),
        sibling=ints(members),
        rows=ints(members),
        start=ints(members),
        messages=np.empty(entries // 2 + 1),
        cost=np.empty(graph.unary_values.size),
        entries=np.empty(max(k, table)),
        strides=ints(axes),
        digits=ints(axes),
        look_up=ints(max(k, _LOOK_UP)),
    )
    return Block(
        state=ints(n),
        turn=ints(n),
        # Initially all labels are open.
        open=graph.cardinalities.copy(),
        label=np.arange(graph.unary_values.size)
        - np.repeat(graph.unary_ptr[:-1], graph.cardinalities),
        order=ints(members),
        sep_ptr=ints(members + 1),
        sep=ints(members * axes),
        growth=growth,
        tables=tables,
        now=record(BlockNumbers),
    )


# ---------------------------------------------------------------------- growth


@lean_kernel
def open_all(g: GraphArrays, b: Block, ptr: IntArray, labels: IntArray, which: IntArray) -> None:
    """Open all remaining labels (see `Domains`) to the variables in `which`."""
    for v in which:
        b.open[v] = ptr[v + 1] - ptr[v]
        for t in range(b.open[v]):
            b.label[g.unary_ptr[v] + t] = labels[ptr[v] + t]


@lean_kernel
def open_two(g: GraphArrays, b: Block, x: IntArray, other: IntArray, which: IntArray) -> None:
    """Open to each variable in `which` its label in ``x`` and its label in ``other``."""
    for t in range(which.size):
        v = which[t]
        b.label[g.unary_ptr[v]] = x[v]
        b.open[v] = 1
        if other[t] != x[v]:
            b.label[g.unary_ptr[v] + 1] = other[t]
            b.open[v] = 2


@inlined
def _random(now: One[BlockNumbers]) -> float:
    """Return the next number of [0, 1) of a linear congruential generator (Knuth's MMIX)."""
    # Steps take the arrays that they use, because each argument of a step takes time to compile,
    # and a `Block` or a graph has dozens.
    drawn = now[0].random * 6364136223846793005 + 1442695040888963407
    now[0].random = drawn
    return float((drawn >> 11) & ((1 << 52) - 1)) / float(1 << 52)


@inlined
def _decide(states: IntArray, s: Growth, v: int, state: int) -> None:
    """Remove an undecided variable from the heap and the list, and set its state."""
    remove(s.heap, v)
    s.now[0].listed -= 1
    moved = s.listed[s.now[0].listed]
    s.listed[s.at[v]] = moved
    s.at[moved] = s.at[v]
    states[v] = state


@inlined
def _note(
    states: IntArray, mark: IntArray, found: IntArray, search: int, u: int, count: int
) -> int:
    if states[u] == _OPEN and mark[u] != search:
        mark[u] = search
        found[count] = u
        count += 1
    return count


@inlined
def _neighbours(g: GraphArrays, b: Block, v: int) -> int:
    """Fill ``found`` with the undecided variables that share a term or a separator with ``v``."""
    s = b.growth
    s.now[0].search += 1
    search = s.now[0].search
    states, mark, found = b.state, s.mark, s.found
    mark[v] = search
    count = _ZERO
    for p in range(g.adj_ptr[v], g.adj_ptr[v + 1]):
        count = _note(states, mark, found, search, int64(g.adj_var[p]), count)
    for p in range(g.inc_ptr[v], g.inc_ptr[v + 1]):
        f = g.slot_factor[g.inc_slot[p]]
        for slot in range(g.factor_ptr[f], g.factor_ptr[f + 1]):
            count = _note(states, mark, found, search, int64(g.scopes[slot]), count)
    before = -1
    q = s.node[v]
    while q >= 0:
        p = s.element[q]
        if s.absorbed[p]:
            if before < 0:
                s.node[v] = s.next[q]
            else:
                s.next[before] = s.next[q]
        else:
            before = q
            for r in range(b.sep_ptr[p], b.sep_ptr[p + 1]):
                count = _note(states, mark, found, search, b.sep[r], count)
        q = s.next[q]
    return int(count)


@inlined
def _table_size(g: GraphArrays, b: Block, v: int) -> float:
    """Return the binary logarithm of the entries of the table ``v`` would get now."""
    s = b.growth
    size = s.log2[b.open[v]]
    for t in range(_neighbours(g, b, v)):
        size += s.log2[b.open[s.found[t]]]
    return float(size)


@inlined
def _refresh(g: GraphArrays, b: Block, v: int) -> None:
    """Compute the table size of ``v`` if only a lower bound is known."""
    if b.growth.stale[v]:
        b.growth.stale[v] = False
        b.growth.heap.key[v] = _table_size(g, b, v)
        settle(b.growth.heap, v)


@inlined
def _take_out(heap: Heap, log2_labels: float, us: IntArray) -> None:
    """Remove a variable from the tables of some neighbours."""
    for u in us:
        heap.key[u] -= log2_labels
        rise(heap, u)


@merged
def _eliminate_next(g: GraphArrays, b: Block, v: int, members: int) -> None:
    """Make an undecided variable a member, and reduce the table sizes of its neighbours."""
    s = b.growth
    count = _neighbours(g, b, v)
    start = b.sep_ptr[members]
    end = start + count
    b.sep_ptr[members + 1] = end
    for t in range(count):
        b.sep[start + t] = s.found[t]
    q = s.node[v]
    while q >= 0:
        s.absorbed[s.element[q]] = True
        q = s.next[q]
    s.absorbed[members] = False
    b.order[members] = v
    b.turn[v] = members
    _decide(b.state, s, v, _IN)
    for t in range(start, end):
        q = s.now[0].nodes
        s.now[0].nodes += 1
        s.element[q] = members
        s.next[q] = s.node[b.sep[t]]
        s.node[b.sep[t]] = q
        s.stale[b.sep[t]] = True
    _take_out(s.heap, s.log2[b.open[v]], b.sep[start:end])


@merged
def _leave_one_out(g: GraphArrays, b: Block) -> None:
    """Leave out the undecided variable with the largest table among a random sample."""
    s = b.growth
    v = int64(-1)
    for _ in range(_TOURNAMENT):
        u = s.listed[int(_random(b.now) * s.now[0].listed)]
        _refresh(g, b, u)
        if v < 0 or s.heap.key[u] > s.heap.key[v]:
            v = u
    count = _neighbours(g, b, v)
    _decide(b.state, s, v, _OUT)
    _take_out(s.heap, s.log2[b.open[v]], s.found[:count])


@merged
def grow(
    g: GraphArrays, b: Block, candidates: IntArray, log2_table: float, entries: int, seed: int
) -> int:
    """Choose a block among the candidates, with an order of elimination; return its size."""
    # The undecided variable with the smallest table is eliminated, ties at random. If all tables
    # need more than ``2^log2_table`` entries, the largest one of a random sample is left out. When
    # the tables reach `entries` in total, all undecided variables are left out. The labels of
    # candidates must be open; candidates with a single open label do not become members.
    s = b.growth
    for p in range(b.now[0].members):
        b.state[b.order[p]] = _OUT
    clear(s.heap)
    s.now[0].listed = s.now[0].nodes = 0
    b.now[0].random = seed
    for v in candidates:
        if b.open[v] > 1 and b.state[v] != _OPEN:
            b.state[v] = _OPEN
            s.node[v] = -1
            s.at[v] = s.now[0].listed
            s.listed[s.now[0].listed] = v
            s.now[0].listed += 1
    for t in range(s.now[0].listed):
        v = s.listed[t]
        s.stale[v] = False
        s.heap.key[v] = _table_size(g, b, v)
        s.heap.tie[v] = _random(b.now)
        push(s.heap, v)
    members = _ZERO
    total = 0.0
    b.sep_ptr[0] = 0
    while s.now[0].listed > 0:
        v = s.heap.items[0]
        if s.stale[v]:
            _refresh(g, b, v)
            continue
        if s.heap.key[v] > log2_table + 1e-9:
            _leave_one_out(g, b)
            continue
        total += 2.0 ** s.heap.key[v]
        if total > entries or members == b.order.size:
            break
        _eliminate_next(g, b, v, members)
        members += 1
    while s.now[0].listed > 0:
        _decide(b.state, s, s.listed[s.now[0].listed - 1], _OUT)
    b.now[0].members = members
    return int(members)


@merged
def arrange(b: Block) -> None:
    """Sort the separators, drop variables left out later, and link the tables into a tree."""
    members = b.now[0].members
    for p in range(members):
        b.tables.child[p] = -1
    to = 0
    begin = 0
    total = 0
    for p in range(members):
        end = b.sep_ptr[p + 1]
        b.sep_ptr[p] = to
        rows = 1
        for s in range(begin, end):
            u = b.sep[s]
            if b.state[u] != _IN:
                continue
            r = to
            while r > b.sep_ptr[p] and b.turn[b.sep[r - 1]] > b.turn[u]:
                b.sep[r] = b.sep[r - 1]
                r -= 1
            b.sep[r] = u
            to += 1
            rows *= b.open[u]
        begin = end
        if to > b.sep_ptr[p]:
            parent = b.turn[b.sep[b.sep_ptr[p]]]
            b.tables.sibling[p] = b.tables.child[parent]
            b.tables.child[parent] = p
        b.tables.rows[p] = rows
        b.tables.start[p] = total
        total += rows
    b.sep_ptr[members] = to
    b.now[0].before = b.now[0].after = b.now[0].scale = 0.0


# ---------------------------------------------------------------------- exact solution


@inlined
def _half_edge(adj_ptr: IntArray, adj_var: Int32Array, adj_half: Int32Array, i: int, j: int) -> int:
    """Return the half-edge at ``i`` of its edge with ``j``, or -1."""
    for q in range(adj_ptr[i], adj_ptr[i + 1]):
        if adj_var[q] == j:
            return int(adj_half[q])
    return -1


@inlined
def _is_first(g: GraphArrays, b: Block, f: int, p: int) -> bool:
    """Whether no member of a factor is eliminated before member ``p``."""
    for s in range(g.factor_ptr[f], g.factor_ptr[f + 1]):
        j = g.scopes[s]
        if b.state[j] == _IN and b.turn[j] < p:
            return False
    return True


@inlined
def _add_before(now: One[BlockNumbers], term: float) -> None:
    """Add a term to the cost of the current labels."""
    now[0].before += term
    if not np.isinf(term):
        now[0].scale += abs(term)


@merged
def _fixed_costs(g: GraphArrays, x: IntArray, b: Block, p: int) -> None:
    """Fill the costs of each open label of member ``p`` given the variables outside the block."""
    i = b.order[p]
    cost = b.tables.cost[g.unary_ptr[i] :]
    label = b.label[g.unary_ptr[i] :]
    for t in range(b.open[i]):
        cost[t] = g.unary[g.unary_ptr[i] + label[t]]
    _add_before(b.now, g.unary[g.unary_ptr[i] + x[i]])
    for q in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
        j = g.adj_var[q]
        h = g.adj_half[q]
        if b.state[j] != _IN:
            for t in range(b.open[i]):
                cost[t] += half_cost(g, h, label[t], x[j])
        elif b.turn[j] < p:
            continue
        _add_before(b.now, half_cost(g, h, x[i], x[j]))


@inlined
def _factor_strides(g: GraphArrays, x: IntArray, b: Block, f: int, p: int) -> int:
    """Fill a factor's strides along the axes of table ``p``; return the offset of its slice."""
    lo, hi = b.sep_ptr[p], b.sep_ptr[p + 1]
    for axis in range(hi - lo + 1):
        b.tables.strides[axis] = 0
    index = g.table_ptr[f]
    stride = 1
    for s in range(g.factor_ptr[f + 1] - 1, g.factor_ptr[f] - 1, -1):
        j = g.scopes[s]
        if b.state[j] != _IN:
            index += x[j] * stride
        elif j == b.order[p]:
            b.tables.strides[0] = stride
        else:
            for t in range(lo, hi):
                if b.sep[t] == j:
                    b.tables.strides[1 + t - lo] = stride
        stride *= g.cardinalities[j]
    return int(index)


@inlined
def _child_strides(
    sep_ptr: IntArray, sep: IntArray, sizes: IntArray, c: int, p: int, strides: IntArray
) -> None:
    """Fill the strides of the message of table ``c`` along the axes of table ``p``, its parent."""
    lo = sep_ptr[p]
    axis = sep_ptr[p + 1] - lo
    stride = 1
    # Both are in order of elimination; the first of the child's separator is the parent itself.
    for s in range(sep_ptr[c + 1] - 1, sep_ptr[c], -1):
        while sep[lo + axis - 1] != sep[s]:
            strides[axis] = 0
            axis -= 1
        strides[axis] = stride
        stride *= sizes[sep[s]]
        axis -= 1
    for rest in range(1, axis + 1):
        strides[rest] = 0
    strides[0] = stride


@inlined
def _axis(own: int, separator: IntArray, axis: int) -> int:
    """Return the variable of an axis of a table, from its own variable and its separator."""
    return int(own if axis == 0 else separator[axis - 1])


@inlined
def _offset(
    own: int,
    separator: IntArray,
    ptr: IntArray,
    label: IntArray | None,
    strides: IntArray,
    axis: int,
    digit: int,
) -> int:
    """Return how far a position on an axis moves the place in an input."""
    if label is not None:
        digit = label[ptr[_axis(own, separator, axis)] + digit]
    return int(digit * strides[axis])


@inlined
def _accumulate(
    own: int,
    separator: IntArray,
    sizes: IntArray,
    ptr: IntArray,
    label: IntArray | None,
    tables: BlockTables,
    values: FloatArray,
    base: int,
) -> None:
    """Add an input, which has ``strides`` along the axes, to the table of a variable."""
    # With `label`, positions on an axis are labels; without, they are open labels.
    split = separator.size + 1
    length = 1
    tables.look_up[0] = 0
    while split > 1 and length * sizes[_axis(own, separator, split - 1)] <= _LOOK_UP:
        split -= 1
        for c in range(sizes[_axis(own, separator, split)] - 1, -1, -1):
            further = _offset(own, separator, ptr, label, tables.strides, split, c)
            for t in range(length):
                tables.look_up[c * length + t] = tables.look_up[t] + further
        length *= sizes[_axis(own, separator, split)]
    straight = True
    for t in range(length):
        straight = straight and tables.look_up[t] == t
    stretches = 1
    for axis in range(split):
        tables.digits[axis] = 0
        stretches *= sizes[_axis(own, separator, axis)]
    for number in range(stretches):
        at = base
        for axis in range(split):
            at += _offset(own, separator, ptr, label, tables.strides, axis, tables.digits[axis])
        to = tables.entries[number * length :]
        if straight:
            for t in range(length):
                to[t] += values[at + t]
        else:
            for t in range(length):
                to[t] += values[at + tables.look_up[t]]
        for axis in range(split - 1, -1, -1):
            tables.digits[axis] += 1
            if tables.digits[axis] < sizes[_axis(own, separator, axis)]:
                break
            tables.digits[axis] = 0


@merged
def _write_pairs(g: GraphArrays, b: Block, p: int) -> None:
    """Write the table of member ``p`` from its own costs and its edges with later members."""
    i = b.order[p]
    for t in range(b.open[i]):
        table = b.tables.entries[t * b.tables.rows[p] :]
        table[0] = b.tables.cost[g.unary_ptr[i] + t]
        a = b.label[g.unary_ptr[i] + t]
        length = 1
        for s in range(b.sep_ptr[p + 1] - 1, b.sep_ptr[p] - 1, -1):
            u = b.sep[s]
            h = _half_edge(g.adj_ptr, g.adj_var, g.adj_half, i, u)
            for c in range(b.open[u] - 1, -1, -1):
                term = 0.0
                if h >= 0:
                    term = half_cost(g, h, a, b.label[g.unary_ptr[u] + c])
                for r in range(length):
                    table[c * length + r] = table[r] + term
            length *= b.open[u]


@merged
def eliminate(
    g: GraphArrays, x: IntArray, b: Block, first: int, work: int, tables: bool | None = True
) -> int:
    """Send the messages of the members from `first` on; return the number of the next member."""
    # `tables` is `with_tables` of the graph, here and in `decode`.
    p = int64(first)
    while p < b.now[0].members and work > 0:
        i = b.order[p]
        lo, hi = b.sep_ptr[p], b.sep_ptr[p + 1]
        rows = b.tables.rows[p]
        inputs = 2
        _fixed_costs(g, x, b, p)
        _write_pairs(g, b, p)
        if tables is not None:
            for q in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
                f = g.slot_factor[g.inc_slot[q]]
                if _is_first(g, b, f, p):
                    at = _factor_strides(g, x, b, f, p)
                    _accumulate(
                        i, b.sep[lo:hi], b.open, g.unary_ptr, b.label, b.tables, g.tables, at
                    )
                    for axis in range(hi - lo + 1):
                        at += x[_axis(i, b.sep[lo:hi], axis)] * b.tables.strides[axis]
                    _add_before(b.now, g.tables[at])
                    inputs += 1
        c = b.tables.child[p]
        while c >= 0:
            _child_strides(b.sep_ptr, b.sep, b.open, c, p, b.tables.strides)
            _accumulate(
                i,
                b.sep[lo:hi],
                b.open,
                g.unary_ptr,
                None,
                b.tables,
                b.tables.messages,
                b.tables.start[c],
            )
            inputs += 1
            c = b.tables.sibling[c]
        message = b.tables.messages[b.tables.start[p] :]
        for r in range(rows):
            message[r] = b.tables.entries[r]
        for t in range(1, b.open[i]):
            table = b.tables.entries[t * rows :]
            for r in range(rows):
                message[r] = min(message[r], table[r])
        if lo == hi:
            b.now[0].after += message[0]
        work -= 50 + inputs * (10 + b.open[i] * rows)
        p += 1
    return int(p)


@merged
def decode(g: GraphArrays, x: IntArray, b: Block, tables: bool | None = True) -> None:
    """Assign the members their best labels, from the last to the first; ties at random."""
    for p in range(b.now[0].members - 1, -1, -1):
        i = b.order[p]
        cost = b.tables.cost[g.unary_ptr[i] :]
        label = b.label[g.unary_ptr[i] :]
        # Labels of later members are kept as positions among the open ones until the end.
        for s in range(b.sep_ptr[p], b.sep_ptr[p + 1]):
            u = b.sep[s]
            h = _half_edge(g.adj_ptr, g.adj_var, g.adj_half, i, u)
            if h >= 0:
                for t in range(b.open[i]):
                    cost[t] += half_cost(g, h, label[t], b.label[g.unary_ptr[u] + x[u]])
        if tables is not None:
            for q in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
                f = g.slot_factor[g.inc_slot[q]]
                if _is_first(g, b, f, p):
                    at = _factor_strides(g, x, b, f, p)
                    for s in range(b.sep_ptr[p], b.sep_ptr[p + 1]):
                        u = b.sep[s]
                        at += (
                            b.label[g.unary_ptr[u] + x[u]] * b.tables.strides[1 + s - b.sep_ptr[p]]
                        )
                    for t in range(b.open[i]):
                        cost[t] += g.tables[at + label[t] * b.tables.strides[0]]
        c = b.tables.child[p]
        while c >= 0:
            _child_strides(b.sep_ptr, b.sep, b.open, c, p, b.tables.strides)
            at = b.tables.start[c]
            for s in range(b.sep_ptr[p], b.sep_ptr[p + 1]):
                at += x[b.sep[s]] * b.tables.strides[1 + s - b.sep_ptr[p]]
            for t in range(b.open[i]):
                cost[t] += b.tables.messages[at + t * b.tables.strides[0]]
            c = b.tables.sibling[c]
        best = 0
        ties = 1
        for t in range(1, b.open[i]):
            if cost[t] < cost[best]:
                best = t
                ties = 1
            elif cost[t] == cost[best]:
                ties += 1
                if _random(b.now) * ties < 1.0:
                    best = t
        x[i] = best
    for p in range(b.now[0].members):
        x[b.order[p]] = b.label[g.unary_ptr[b.order[p]] + x[b.order[p]]]


def soften(graph: FactorGraph) -> GraphArrays:
    """Return the arrays with ``+inf`` replaced by a finite cost above the sum of all others."""
    # Then labellings with fewer violated hard terms have a lower energy, except for tables with
    # different weights, whose violations weigh more.
    g = graph.arrays
    table = g.kinds == TABLE

    def size(values: FloatArray) -> FloatArray:
        return np.abs(values[np.isfinite(values)])

    largest_weight = float(np.abs(g.weights[table]).max(initial=1.0))
    total = (
        size(g.unary).sum()
        + size(g.weights[~table]).sum()
        + size(g.tables).sum()
        + graph.label_costs.costs.sum()
        + graph.n_edges * largest_weight * size(g.pairwise).max(initial=0.0)
    )
    above = 1.0 + 2.0 * float(total)
    positive = g.weights[table & (g.weights > 0.0)]
    in_tables = above / float(positive.min(initial=1.0))

    def finite(values: FloatArray, cap: float) -> FloatArray:
        return np.minimum(values, cap)

    return g._replace(
        unary=finite(g.unary, above),
        weights=np.where(table, g.weights, finite(g.weights, above)),
        pairwise=finite(g.pairwise, in_tables),
        tables=finite(g.tables, above),
    ).read_only()
