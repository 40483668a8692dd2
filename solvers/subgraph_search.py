"""Subgraph search: exact moves over random subgraphs of small treewidth, kicks and fusion."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from inference_lab._numba import inlined, lean_kernel
from inference_lab.algorithms.elimination.order import Domains, allowed_labels
from inference_lab.contract import Outcome, Run, Solver
from inference_lab.graph.arrays import FloatArray, GraphArrays, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.kernels.messages import cost_scale, edge_cost, local_costs
from inference_lab.solvers.block_icm import soften
from inference_lab.solvers.simulated_annealing import grow_region
from inference_lab.specs.settings import setting

#: What has become of a variable while a block is grown.
_OUT, _OPEN, _IN = 0, 1, 2
#: Variables compared when one has to leave; the one in the largest table does.
_TOURNAMENT = 8
#: Entries of a table whose positions in an input are looked up.
_LOOK_UP = 512
#: Most candidates of a block, and entries of its tables together, in tables of the largest size
#: or at least so many.
_LARGEST = 20_000
_TABLES = 512
_LEAST_ENTRIES = 1 << 22
#: Table entries, times what enters them, between two looks at the clock: about 0.05 s.
_WORK = 1 << 25
#: Smallest region that is kicked, and the largest, and blocks in a row without gain that end the
#: descent in it.
_SMALLEST = 64
_REGION = 10_000
_IDLE = 3
#: A new start follows when so many rounds of kicks gained nothing.
_STALE = 3
#: With more labels than this, blocks of two labels a variable are made, too.
_MANY_LABELS = 4
#: A block must gain more than this share of the costs it adds up, so that rounding cannot cycle.
_RELATIVE_GAIN = 1e-12


class Block(NamedTuple):
    """A set of variables under construction or solution, and scratch for both.

    Member ``p`` is the p-th to be eliminated. Its table has an axis for its own labels, then one
    for each member of its *separator*, in order of elimination; the message is the minimum over
    the first axis, and enters the table of the first of the separator.

    * ``state`` (n,): whether each variable is outside, undecided or in; ``turn`` (n,): its number
      as a member;
    * ``open`` (n,), ``label`` (like the unaries): number of labels open to each candidate, and
      which; ``log2`` (k+1,): binary logarithms of counts;
    * ``heap``, ``place`` (n,): undecided variables by rising ``size`` (n,), the binary logarithm
      of the table that each would get now, ties by ``tie`` (n,); ``listed``, ``at`` (n,): the same
      variables as a list, and where they stand in it;
    * ``mark`` (n,): stamps of the last search for neighbours; ``found`` (n,): what it found;
    * ``order`` (t,): the members; ``sep_ptr`` (t+1,), ``sep``: their separators; ``absorbed``
      (t,): whether a later table holds all of a separator;
    * ``node`` (n,), ``next``, ``element``: linked lists of the members whose separators hold each
      undecided variable;
    * ``child``, ``sibling`` (t,): linked lists of the members whose messages enter each table;
    * ``rows``, ``start`` (t,): entries of each message, and where it is in ``messages``;
    * ``cost`` (like the unaries): costs of the open labels given the variables outside; ``table``:
      the table at hand; ``strides``, ``digits``, ``look_up``: of its axes and of an input's;
    * ``counts`` (6,): number of the search, size of the heap, of the list, of the nodes, state of
      the random numbers, and members;
    * ``sums`` (3,): cost of the members before and after, and sum of the absolute costs before.
    """

    state: IntArray
    turn: IntArray
    open: IntArray
    label: IntArray
    log2: FloatArray
    heap: IntArray
    place: IntArray
    size: FloatArray
    tie: FloatArray
    listed: IntArray
    at: IntArray
    mark: IntArray
    found: IntArray
    order: IntArray
    sep_ptr: IntArray
    sep: IntArray
    absorbed: npt.NDArray[np.bool_]
    node: IntArray
    next: IntArray
    element: IntArray
    child: IntArray
    sibling: IntArray
    rows: IntArray
    start: IntArray
    messages: FloatArray
    cost: FloatArray
    table: FloatArray
    strides: IntArray
    digits: IntArray
    look_up: IntArray
    counts: IntArray
    sums: FloatArray


def start_block(graph: FactorGraph, table: int, entries: int) -> Block:
    """Allocate for tables of so many entries each and together."""
    n = graph.n_variables
    k = int(graph.cardinalities.max(initial=1))
    members = min(n, _LARGEST)
    # Every axis has two labels at least.
    axes = max(k, table).bit_length() + 1

    def ints(size: int) -> IntArray:
        return np.zeros(size, dtype=np.int64)

    return Block(
        state=ints(n), turn=ints(n), open=ints(n), label=ints(graph.unary_values.size),
        log2=np.log2(np.maximum(1, np.arange(k + 1))), heap=ints(n), place=ints(n),
        size=np.zeros(n), tie=np.zeros(n), listed=ints(n), at=ints(n), mark=ints(n),
        found=ints(n), order=ints(members), sep_ptr=ints(members + 1), sep=ints(members * axes),
        absorbed=np.zeros(members, dtype=np.bool_), node=ints(n), next=ints(members * axes),
        element=ints(members * axes), child=ints(members), sibling=ints(members),
        rows=ints(members), start=ints(members), messages=np.empty(entries // 2 + 1),
        cost=np.empty(graph.unary_values.size), table=np.empty(max(k, table)),
        strides=ints(axes), digits=ints(axes), look_up=ints(max(k, _LOOK_UP)), counts=ints(6),
        sums=np.zeros(3),
    )  # fmt: skip


# ---------------------------------------------------------------------- growth


@lean_kernel
def open_all(g: GraphArrays, b: Block, ptr: IntArray, labels: IntArray, which: IntArray) -> None:
    """Open all labels that are left (see `Domains`) to some variables."""
    for v in which:
        b.open[v] = ptr[v + 1] - ptr[v]
        for t in range(b.open[v]):
            b.label[g.unary_ptr[v] + t] = labels[ptr[v] + t]


@lean_kernel
def open_two(g: GraphArrays, b: Block, x: IntArray, other: IntArray, which: IntArray) -> None:
    """Open to variables their label in ``x`` and another; ``other`` runs along `which`."""
    for t in range(which.size):
        v = which[t]
        b.label[g.unary_ptr[v]] = x[v]
        b.open[v] = 1
        if other[t] != x[v]:
            b.label[g.unary_ptr[v] + 1] = other[t]
            b.open[v] = 2


@inlined
def _random(b: Block) -> float:
    """Return the next number of [0, 1) of a linear congruential generator (Knuth's MMIX)."""
    b.counts[4] = b.counts[4] * 6364136223846793005 + 1442695040888963407
    return float((b.counts[4] >> 11) & ((1 << 52) - 1)) / float(1 << 52)


@inlined
def _before(b: Block, u: int, v: int) -> bool:
    if b.size[u] != b.size[v]:
        return bool(b.size[u] < b.size[v])
    return bool(b.tie[u] < b.tie[v])


@inlined
def _sift_up(b: Block, v: int, at: int) -> None:
    while at > 0:
        above = (at - 1) >> 1
        u = b.heap[above]
        if not _before(b, v, u):
            break
        b.heap[at] = u
        b.place[u] = at
        at = above
    b.heap[at] = v
    b.place[v] = at


@inlined
def _sift_down(b: Block, v: int, at: int) -> None:
    size = b.counts[1]
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        if below + 1 < size and _before(b, b.heap[below + 1], b.heap[below]):
            below += 1
        u = b.heap[below]
        if not _before(b, u, v):
            break
        b.heap[at] = u
        b.place[u] = at
        at = below
    b.heap[at] = v
    b.place[v] = at


@inlined
def _settle(b: Block, v: int, at: int) -> None:
    if at > 0 and _before(b, v, b.heap[(at - 1) >> 1]):
        _sift_up(b, v, at)
    else:
        _sift_down(b, v, at)


@inlined
def _decide(b: Block, v: int, state: int) -> None:
    """Take an undecided variable off the heap and the list."""
    b.counts[1] -= 1
    last = b.heap[b.counts[1]]
    if last != v:
        _settle(b, last, b.place[v])
    b.counts[2] -= 1
    moved = b.listed[b.counts[2]]
    b.listed[b.at[v]] = moved
    b.at[moved] = b.at[v]
    b.state[v] = state


@inlined
def _note(b: Block, u: int, count: int) -> int:
    if b.state[u] == _OPEN and b.mark[u] != b.counts[0]:
        b.mark[u] = b.counts[0]
        b.found[count] = u
        count += 1
    return count


@inlined
def _neighbours(g: GraphArrays, b: Block, v: int) -> int:
    """Fill ``found`` with the undecided variables that share a term or a separator with ``v``."""
    b.counts[0] += 1
    b.mark[v] = b.counts[0]
    count = 0
    for p in range(g.adj_ptr[v], g.adj_ptr[v + 1]):
        count = _note(b, g.adj_var[p], count)
    for p in range(g.inc_ptr[v], g.inc_ptr[v + 1]):
        f = g.slot_factor[g.inc_slot[p]]
        for s in range(g.factor_ptr[f], g.factor_ptr[f + 1]):
            count = _note(b, g.scopes[s], count)
    before = -1
    q = b.node[v]
    while q >= 0:
        p = b.element[q]
        if b.absorbed[p]:
            if before < 0:
                b.node[v] = b.next[q]
            else:
                b.next[before] = b.next[q]
        else:
            before = q
            for s in range(b.sep_ptr[p], b.sep_ptr[p + 1]):
                count = _note(b, b.sep[s], count)
        q = b.next[q]
    return count


@inlined
def _table_size(g: GraphArrays, b: Block, v: int) -> float:
    """Return the binary logarithm of the entries of the table ``v`` would get now."""
    size = b.log2[b.open[v]]
    for t in range(_neighbours(g, b, v)):
        size += b.log2[b.open[b.found[t]]]
    return float(size)


@inlined
def _eliminate_next(g: GraphArrays, b: Block, v: int, members: int) -> None:
    """Make an undecided variable a member, and bring the tables of its neighbours up to date."""
    count = _neighbours(g, b, v)
    start = b.sep_ptr[members]
    end = start + count
    b.sep_ptr[members + 1] = end
    for t in range(count):
        b.sep[start + t] = b.found[t]
    q = b.node[v]
    while q >= 0:
        b.absorbed[b.element[q]] = True
        q = b.next[q]
    b.absorbed[members] = False
    b.order[members] = v
    b.turn[v] = members
    _decide(b, v, _IN)
    for t in range(start, end):
        q = b.counts[3]
        b.counts[3] += 1
        b.element[q] = members
        b.next[q] = b.node[b.sep[t]]
        b.node[b.sep[t]] = q
    for t in range(start, end):
        u = b.sep[t]
        b.size[u] = _table_size(g, b, u)
        _settle(b, u, b.place[u])


@lean_kernel
def grow(
    g: GraphArrays, b: Block, candidates: IntArray, log2_table: float, entries: int, seed: int
) -> int:
    """Choose a block among the candidates, with an order of elimination; return its size.

    The undecided variable whose table is smallest is eliminated, ties at random. Where all need
    more than ``2^log2_table`` entries, one is left out: that with the largest table of some drawn
    at random. When the tables have so many `entries` together, all that are undecided are left
    out. Candidates have their labels open; those with a single one are no members.
    """
    for p in range(b.counts[5]):
        b.state[b.order[p]] = _OUT
    b.counts[1] = 0
    b.counts[2] = 0
    b.counts[3] = 0
    b.counts[4] = seed
    for v in candidates:
        if b.open[v] > 1 and b.state[v] != _OPEN:
            b.state[v] = _OPEN
            b.node[v] = -1
            b.at[v] = b.counts[2]
            b.listed[b.counts[2]] = v
            b.counts[2] += 1
    for t in range(b.counts[2]):
        v = b.listed[t]
        b.size[v] = _table_size(g, b, v)
        b.tie[v] = _random(b)
        b.counts[1] += 1
        _sift_up(b, v, t)
    members = 0
    total = 0.0
    b.sep_ptr[0] = 0
    while b.counts[2] > 0:
        v = b.heap[0]
        if b.size[v] <= log2_table + 1e-9:
            total += 2.0 ** b.size[v]
            if total > entries or members == b.order.size:
                break
            _eliminate_next(g, b, v, members)
            members += 1
            continue
        v = b.listed[int(_random(b) * b.counts[2])]
        for _ in range(_TOURNAMENT - 1):
            u = b.listed[int(_random(b) * b.counts[2])]
            if b.size[u] > b.size[v]:
                v = u
        count = _neighbours(g, b, v)
        _decide(b, v, _OUT)
        for t in range(count):
            u = b.found[t]
            b.size[u] -= b.log2[b.open[v]]
            _sift_up(b, u, b.place[u])
    while b.counts[2] > 0:
        _decide(b, b.listed[b.counts[2] - 1], _OUT)
    b.counts[5] = members
    return members


@lean_kernel
def arrange(b: Block) -> None:
    """Sort the separators, without the variables left out later, and link the tables to a tree."""
    members = b.counts[5]
    for p in range(members):
        b.child[p] = -1
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
            b.sibling[p] = b.child[parent]
            b.child[parent] = p
        b.rows[p] = rows
        b.start[p] = total
        total += rows
    b.sep_ptr[members] = to


# ---------------------------------------------------------------------- exact solution


@inlined
def _half_cost(g: GraphArrays, h: int, a: int, c: int) -> float:
    """Return the cost of an edge with ``a`` at the end of half-edge ``h``, ``c`` at the other."""
    if h & 1 == 0:
        return edge_cost(g, h >> 1, a, c)
    return edge_cost(g, h >> 1, c, a)


@inlined
def _half_edge(g: GraphArrays, i: int, j: int) -> int:
    """Return the half-edge at ``i`` of its edge with ``j``, or -1."""
    for q in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
        if g.adj_var[q] == j:
            return int(g.adj_half[q])
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
def _add_to_sums(b: Block, term: float) -> None:
    b.sums[0] += term
    if not np.isinf(term):
        b.sums[2] += abs(term)


@inlined
def _fixed_costs(g: GraphArrays, x: IntArray, b: Block, p: int) -> None:
    """Fill the costs of each open label of member ``p`` given the variables outside the block.

    What the present labels cost, edges with later members included, goes to ``sums``.
    """
    i = b.order[p]
    cost = b.cost[g.unary_ptr[i] :]
    label = b.label[g.unary_ptr[i] :]
    for t in range(b.open[i]):
        cost[t] = g.unary[g.unary_ptr[i] + label[t]]
    _add_to_sums(b, g.unary[g.unary_ptr[i] + x[i]])
    for q in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
        j = g.adj_var[q]
        h = g.adj_half[q]
        if b.state[j] != _IN:
            for t in range(b.open[i]):
                cost[t] += _half_cost(g, h, label[t], x[j])
        elif b.turn[j] < p:
            continue
        _add_to_sums(b, _half_cost(g, h, x[i], x[j]))


@inlined
def _factor_strides(g: GraphArrays, x: IntArray, b: Block, f: int, p: int) -> int:
    """Fill a factor's strides along the axes of table ``p``; return where its slice begins."""
    lo, hi = b.sep_ptr[p], b.sep_ptr[p + 1]
    for axis in range(hi - lo + 1):
        b.strides[axis] = 0
    index = g.table_ptr[f]
    stride = 1
    for s in range(g.factor_ptr[f + 1] - 1, g.factor_ptr[f] - 1, -1):
        j = g.scopes[s]
        if b.state[j] != _IN:
            index += x[j] * stride
        elif j == b.order[p]:
            b.strides[0] = stride
        else:
            for t in range(lo, hi):
                if b.sep[t] == j:
                    b.strides[1 + t - lo] = stride
        stride *= g.cardinalities[j]
    return int(index)


@inlined
def _child_strides(b: Block, c: int, p: int) -> None:
    """Fill the strides of the message of table ``c`` along the axes of table ``p``, its parent."""
    lo = b.sep_ptr[p]
    axis = b.sep_ptr[p + 1] - lo
    stride = 1
    # Both are in order of elimination; the first of the child's separator is the parent itself.
    for s in range(b.sep_ptr[c + 1] - 1, b.sep_ptr[c], -1):
        while b.sep[lo + axis - 1] != b.sep[s]:
            b.strides[axis] = 0
            axis -= 1
        b.strides[axis] = stride
        stride *= b.open[b.sep[s]]
        axis -= 1
    for rest in range(1, axis + 1):
        b.strides[rest] = 0
    b.strides[0] = stride


@inlined
def _axis(b: Block, p: int, axis: int) -> int:
    """Return the variable of an axis of table ``p``."""
    return int(b.order[p] if axis == 0 else b.sep[b.sep_ptr[p] + axis - 1])


@inlined
def _offset(g: GraphArrays, b: Block, p: int, axis: int, digit: int, labelled: bool) -> int:
    """Return how far on in an input the entry of a label is: one of all, or of the open ones."""
    if labelled:
        digit = b.label[g.unary_ptr[_axis(b, p, axis)] + digit]
    return int(digit * b.strides[axis])


@inlined
def _accumulate(
    g: GraphArrays, b: Block, p: int, values: FloatArray, base: int, labelled: bool
) -> None:
    """Add an input, which has ``strides`` along the axes, to table ``p``."""
    split = b.sep_ptr[p + 1] - b.sep_ptr[p] + 1
    length = 1
    b.look_up[0] = 0
    while split > 1 and length * b.open[_axis(b, p, split - 1)] <= _LOOK_UP:
        split -= 1
        for c in range(b.open[_axis(b, p, split)] - 1, -1, -1):
            further = _offset(g, b, p, split, c, labelled)
            for t in range(length):
                b.look_up[c * length + t] = b.look_up[t] + further
        length *= b.open[_axis(b, p, split)]
    straight = True
    for t in range(length):
        straight = straight and b.look_up[t] == t
    blocks = 1
    for axis in range(split):
        b.digits[axis] = 0
        blocks *= b.open[_axis(b, p, axis)]
    for number in range(blocks):
        at = base
        for axis in range(split):
            at += _offset(g, b, p, axis, b.digits[axis], labelled)
        to = b.table[number * length :]
        if straight:
            for t in range(length):
                to[t] += values[at + t]
        else:
            for t in range(length):
                to[t] += values[at + b.look_up[t]]
        for axis in range(split - 1, -1, -1):
            b.digits[axis] += 1
            if b.digits[axis] < b.open[_axis(b, p, axis)]:
                break
            b.digits[axis] = 0


@inlined
def _write_pairs(g: GraphArrays, b: Block, p: int) -> None:
    """Write the table of member ``p`` from its own costs and its edges with later members.

    These are sums of a number an axis, so each axis is added by repeating what there is.
    """
    i = b.order[p]
    for t in range(b.open[i]):
        table = b.table[t * b.rows[p] :]
        table[0] = b.cost[g.unary_ptr[i] + t]
        a = b.label[g.unary_ptr[i] + t]
        length = 1
        for s in range(b.sep_ptr[p + 1] - 1, b.sep_ptr[p] - 1, -1):
            u = b.sep[s]
            h = _half_edge(g, i, u)
            for c in range(b.open[u] - 1, -1, -1):
                term = 0.0
                if h >= 0:
                    term = _half_cost(g, h, a, b.label[g.unary_ptr[u] + c])
                for r in range(length):
                    table[c * length + r] = table[r] + term
            length *= b.open[u]


@lean_kernel
def eliminate(g: GraphArrays, x: IntArray, b: Block, first: int, work: int) -> int:
    """Send the messages of the members from number `first` on; return the number of the next.

    Stops after about so much work. Sums up in ``sums``, which must be 0 at the beginning.
    """
    p = first
    while p < b.counts[5] and work > 0:
        i = b.order[p]
        lo, hi = b.sep_ptr[p], b.sep_ptr[p + 1]
        rows = b.rows[p]
        inputs = 2
        _fixed_costs(g, x, b, p)
        _write_pairs(g, b, p)
        for q in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
            f = g.slot_factor[g.inc_slot[q]]
            if _is_first(g, b, f, p):
                at = _factor_strides(g, x, b, f, p)
                _accumulate(g, b, p, g.tables, at, True)
                for axis in range(hi - lo + 1):
                    at += x[_axis(b, p, axis)] * b.strides[axis]
                _add_to_sums(b, g.tables[at])
                inputs += 1
        c = b.child[p]
        while c >= 0:
            _child_strides(b, c, p)
            _accumulate(g, b, p, b.messages, b.start[c], False)
            inputs += 1
            c = b.sibling[c]
        message = b.messages[b.start[p] :]
        for r in range(rows):
            message[r] = b.table[r]
        for t in range(1, b.open[i]):
            table = b.table[t * rows :]
            for r in range(rows):
                message[r] = min(message[r], table[r])
        if lo == hi:
            b.sums[1] += message[0]
        work -= 50 + inputs * (10 + b.open[i] * rows)
        p += 1
    return p


@lean_kernel
def decode(g: GraphArrays, x: IntArray, b: Block) -> None:
    """Give the members their best labels, from the last to the first; ties at random.

    Must follow upon `eliminate`. The costs of open labels are used up.
    """
    for p in range(b.counts[5] - 1, -1, -1):
        i = b.order[p]
        cost = b.cost[g.unary_ptr[i] :]
        label = b.label[g.unary_ptr[i] :]
        # Labels of later members are kept as positions among the open ones until the end.
        for s in range(b.sep_ptr[p], b.sep_ptr[p + 1]):
            u = b.sep[s]
            h = _half_edge(g, i, u)
            if h >= 0:
                for t in range(b.open[i]):
                    cost[t] += _half_cost(g, h, label[t], b.label[g.unary_ptr[u] + x[u]])
        for q in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
            f = g.slot_factor[g.inc_slot[q]]
            if _is_first(g, b, f, p):
                at = _factor_strides(g, x, b, f, p)
                for s in range(b.sep_ptr[p], b.sep_ptr[p + 1]):
                    u = b.sep[s]
                    at += b.label[g.unary_ptr[u] + x[u]] * b.strides[1 + s - b.sep_ptr[p]]
                for t in range(b.open[i]):
                    cost[t] += g.tables[at + label[t] * b.strides[0]]
        c = b.child[p]
        while c >= 0:
            _child_strides(b, c, p)
            at = b.start[c]
            for s in range(b.sep_ptr[p], b.sep_ptr[p + 1]):
                at += x[b.sep[s]] * b.strides[1 + s - b.sep_ptr[p]]
            for t in range(b.open[i]):
                cost[t] += b.messages[at + t * b.strides[0]]
            c = b.sibling[c]
        best = 0
        ties = 1
        for t in range(1, b.open[i]):
            if cost[t] < cost[best]:
                best = t
                ties = 1
            elif cost[t] == cost[best]:
                ties += 1
                if _random(b) * ties < 1.0:
                    best = t
        x[i] = best
    for p in range(b.counts[5]):
        x[b.order[p]] = b.label[g.unary_ptr[b.order[p]] + x[b.order[p]]]


# ---------------------------------------------------------------------- kicks


@lean_kernel
def assign(
    g: GraphArrays,
    x: IntArray,
    which: IntArray,
    labels: IntArray,
    cost: FloatArray,
    infinite: IntArray,
) -> float:
    """Give some variables labels, and return the change of energy; all costs are finite."""
    change = 0.0
    for t in range(which.size):
        i = which[t]
        local_costs(g, x, i, cost, infinite)
        change += cost[labels[t]] - cost[x[i]]
        x[i] = labels[t]
    return change


@lean_kernel
def surround(g: GraphArrays, inner: IntArray, stamp: int, seen: IntArray, out: IntArray) -> int:
    """Fill `out` with variables and all that share a term with one; return how many.

    `seen` holds the stamps of earlier calls, which must differ from this one's.
    """
    size = 0
    for i in inner:
        seen[i] = stamp
        out[size] = i
        size += 1
    for i in inner:
        for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
            j = g.adj_var[p]
            if seen[j] != stamp:
                seen[j] = stamp
                out[size] = j
                size += 1
        for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
            f = g.slot_factor[g.inc_slot[p]]
            for s in range(g.factor_ptr[f], g.factor_ptr[f + 1]):
                j = g.scopes[s]
                if seen[j] != stamp:
                    seen[j] = stamp
                    out[size] = j
                    size += 1
    return size


@dataclass(frozen=True)
class SubgraphSearch(Solver):
    """Exact moves over subgraphs of small treewidth (Hamze, de Freitas 2004; Selby 2014).

    A move draws a *block*, a random set of variables with an order of elimination whose tables stay
    small, and gives it its best labels given all others: variables are eliminated by rising table
    size, ties at random, and one is left out whenever the smallest table is too large. On a grid of
    two labels nearly 90% of all variables fit into a block with tables of 2^11 entries. Among
    equally good labels the choice is random. With many labels, every other block lets each variable
    keep its label or take one other: the same everywhere, or the next.

    After a descent by blocks, regions are *kicked*: connected sets of random place and size get
    random labels and descend again by blocks of their own. The result is *fused* with what was
    there before: blocks with larger tables over the variables in which the two differ, and their
    neighbours, pick the best of both. The result is never worse than either. When kicks gain
    nothing any more, the search begins anew from random labels, and its results are fused with the
    best so far.

    Labels that hard terms rule out (`inference_lab.algorithms.elimination.order.allowed_labels`)
    are removed first. Other hard terms count as finite costs above all others together.

    Parameters
    ----------
    table : int
        Most entries of a table when results are fused.
    descent_table : int
        Most entries of a table in a descent.
    rounds : int
        Rounds of kicks, in each as many as make every variable take part once on average.

    Guarantees
    ----------
    The energy never rises. Where a block with tables of `table` entries holds all variables, the
    answer is optimal with proof, or infeasibility is proved. No bound otherwise. `converged` says
    that all rounds were made.

    Complexity
    ----------
    A block costs O(entries) for the entries of all its tables and their inputs: at most `table`
    for each of 20,000 variables, and ``512 table``, or four million where that is more, together.
    Memory: 4 bytes an entry of a block, and some ``20 + 3 log2(table)`` numbers a variable. An
    iteration is a block.

    References
    ----------
    F. Hamze, N. de Freitas, "From fields to trees", UAI 2004.
    A. Selby, "Efficient subgraph-based sampling of Ising-type models with frustration",
    arXiv:1409.3934, 2014.
    R. Dechter, "Bucket elimination: a unifying framework for reasoning", Artificial Intelligence
    113, 1999.
    V. Lempitsky, C. Rother, S. Roth, A. Blake, "Fusion moves for Markov random field
    optimization", IEEE PAMI 32(8), 2010.

    Examples
    --------
    >>> import inference_lab as il
    >>> from inference_lab.registry.sources import as_problem
    >>> problem = as_problem("ising(size=12, coupling=5)")
    >>> s = il.solve(problem.graph, "subgraph-search")
    >>> s.energy == il.solve(problem.graph, "junction-tree").energy
    True
    """

    start_up: ClassVar[float] = 50.0

    table: int = setting(2**16, at_least=4)
    descent_table: int = setting(2**10, at_least=4)
    rounds: int = setting(300, at_least=0)

    def run(self, graph: FactorGraph, run: Run) -> Outcome:
        """Try to solve the whole, descend, then kick and fuse until the budget is spent."""
        domains = allowed_labels(graph)
        if not domains.feasible:
            return Outcome(infeasible=True)
        state = _Search(self, graph, run, domains)
        if state.solve_whole():
            return Outcome(
                converged=not state.infeasible, infeasible=state.infeasible, iterations=state.blocks
            )
        complete = state.descend_from_start() and state.kick_all()
        return Outcome(
            converged=complete,
            iterations=state.blocks,
            diagnostics={
                "kicks": state.kicks,
                "kicks_that_gained": state.gains,
                "mean_block": state.relabelled / max(1, state.blocks),
            },
        )


class _Search:
    """The labelling of a run and what is needed to change it."""

    def __init__(
        self, settings: SubgraphSearch, graph: FactorGraph, run: Run, domains: Domains
    ) -> None:
        self.graph, self.run, self.domains = graph, run, domains
        self.arrays = graph.arrays
        self.rounds = settings.rounds
        n, k = graph.n_variables, int(graph.cardinalities.max(initial=1))
        # A variable alone must fit.
        self.fine = math.log2(max(settings.table, k))
        self.coarse = math.log2(max(settings.descent_table, k))
        table = max(settings.table, settings.descent_table, k)
        self.entries = min(max(_LEAST_ENTRIES, _TABLES * table), table * min(n, _LARGEST))
        self.block = start_block(graph, table, self.entries)
        self.many = int(domains.sizes.max(initial=1)) > _MANY_LABELS
        self.cost, self.infinite = np.empty(k), np.zeros(k, dtype=np.int64)
        self.seen = np.zeros(n, dtype=np.int64)
        self.found = np.empty(n, dtype=np.int64)
        self.undecided = np.flatnonzero(domains.sizes > 1)
        self.allowed = np.zeros(graph.unary_values.size, dtype=np.bool_)
        owner = np.repeat(np.arange(n), domains.sizes)
        self.allowed[graph.unary_ptr[owner] + domains.labels] = True
        self.x = self._start(owner)
        self.tolerance = _RELATIVE_GAIN * cost_scale(graph) * (n + graph.n_edges + graph.n_factors)
        self.blocks = self.relabelled = self.kicks = self.gains = self.searches = 0
        self.infeasible = False
        run.offer(self.x)

    def _start(self, owner: IntArray) -> IntArray:
        """Return the start given, or the cheapest labels, of those that are left."""
        costs = self.graph.unary_values[self.graph.unary_ptr[owner] + self.domains.labels]
        ranked = self.domains.labels[np.lexsort((costs, owner))]
        cheapest = ranked[self.domains.ptr[:-1]]
        if self.run.initial is None:
            return cheapest
        given = self.allowed[self.graph.unary_ptr[:-1] + self.run.initial]
        return np.where(given, self.run.initial, cheapest)

    def solve_whole(self) -> bool:
        """Solve the problem exactly if one block holds it all; return whether it was solved."""
        if self.undecided.size > _LARGEST or self.run.should_stop(self.blocks):
            return False
        self._open_all(self.undecided)
        if self._grow(self.undecided, self.fine) < self.undecided.size or self._relabel() is None:
            return False
        self.infeasible = math.isinf(self.block.sums[1])
        if not self.infeasible:
            self.run.offer(self.x)
            # A start within rounding of the optimum is kept as it is.
            self.run.bound(self.run.best_energy - self.tolerance)
        return True

    def descend_from_start(self) -> bool:
        """Descend by blocks of all variables; return whether this ended before the budget."""
        if self.graph.has_infinite:
            # Costs above all others together: moves may lead through infeasible labellings.
            self.arrays = soften(self.graph)
        return self._descend_all()

    def _descend_all(self) -> bool:
        """Descend by blocks of all variables."""
        order = self.graph.breadth_first_order
        order = order[self.domains.sizes[order] > 1]
        parts = -(-order.size // _LARGEST)
        for _ in range(parts):
            # Overlapping parts, so that none ends where another does.
            order = np.roll(order, int(self.run.rng.integers(order.size)))
            change = self._descend(order[:_LARGEST])
            self.run.offer(self.x)
            if change is None:
                return False
        return True

    def kick_all(self) -> bool:
        """Make all rounds of kicks, with new starts; return whether the budget sufficed."""
        kicked, since = 0, 0
        best: IntArray | None = None
        while kicked < self.rounds * self.undecided.size:
            gains = self.gains
            size = self._kick()
            if size == 0:
                return False
            kicked += size
            since = 0 if self.gains > gains else since + size
            if since >= _STALE * self.undecided.size:
                since = 0
                best = self._next_start(best)
                if best is None:
                    return False
        return True

    def _next_start(self, best: IntArray | None) -> IntArray | None:
        """Fuse the present labelling with the best of those before, or begin anew.

        What the fusion gains is kicked further; without gain the next descent is from random
        labels. Returns the best so far, or None if the budget is spent.
        """
        if best is not None:
            differs = np.flatnonzero(self.x != best)
            other = self.x[differs]
            change = float(
                assign(self.arrays, self.x, differs, best[differs], self.cost, self.infinite)
            )
            if change > 0.0:
                # The present one is better, and the one to improve.
                self.x[differs], other = other, self.x[differs]
            gains = self.gains
            if not self._fuse(differs, other, 0.0):
                return None
            if self.gains > gains or change > self.tolerance:
                return self.x.copy()
        best = self.x.copy()
        sizes = self.domains.sizes
        drawn = self.domains.labels[self.domains.ptr[:-1] + self.run.rng.integers(0, sizes)]
        self.x[:] = drawn
        return best if self._descend_all() else None

    def _open_all(self, which: IntArray) -> None:
        open_all(self.arrays, self.block, self.domains.ptr, self.domains.labels, which)

    def _grow(self, candidates: IntArray, log2_table: float) -> int:
        """Grow a block; return its size."""
        seed = int(self.run.rng.integers(2**62))
        return int(grow(self.arrays, self.block, candidates, log2_table, self.entries, seed))

    def _relabel(self) -> float | None:
        """Give the block its best labels; return the change, or None if time ran out before."""
        b = self.block
        arrange(b)
        b.sums[:] = 0.0
        self.blocks += 1
        at = 0
        while at < b.counts[5]:
            if self.run.remaining <= 0.0:
                return None
            at = eliminate(self.arrays, self.x, b, at, _WORK)
        self.relabelled += int(b.counts[5])
        if math.isinf(b.sums[1]):
            return 0.0
        decode(self.arrays, self.x, b)
        return float(b.sums[1] - b.sums[0])

    def _move(self, candidates: IntArray, log2_table: float) -> float | None:
        """Relabel one block of candidates; return the change, or None if the budget is spent."""
        if self.run.should_stop(self.blocks):
            return None
        self._grow(candidates, log2_table)
        return self._relabel()

    def _other_labels(self, which: IntArray) -> IntArray:
        """Draw a label for each of some variables: one for all, or the next to their own."""
        rng, own = self.run.rng, self.x[which]
        if rng.random() < 0.5:
            other = np.full(which.size, rng.integers(self.cost.size))
        else:
            other = own + rng.choice([-1, 1])
        fits = (other >= 0) & (other < self.graph.cardinalities[which])
        fits[fits] = self.allowed[self.graph.unary_ptr[which[fits]] + other[fits]]
        return np.where(fits, other, own)

    def _descend(self, candidates: IntArray) -> float | None:
        """Relabel blocks until some in a row gain nothing; return the change of energy."""
        total, idle, turn = 0.0, 0, 0
        while idle < (2 * _IDLE if self.many else _IDLE):
            turn += 1
            if self.many and turn % 2:
                other = self._other_labels(candidates)
                open_two(self.arrays, self.block, self.x, other, candidates)
            else:
                self._open_all(candidates)
            change = self._move(candidates, self.coarse)
            if change is None:
                return None
            total += change
            idle = 0 if change < -_RELATIVE_GAIN * self.block.sums[2] else idle + 1
        return total

    def _kick(self) -> int:
        """Kick a region, descend and fuse; return its size, or 0 if the budget is spent."""
        rng, x = self.run.rng, self.x
        largest = min(self.undecided.size, _REGION)
        smallest = min(_SMALLEST, largest)
        size = int(smallest * (largest / smallest) ** rng.random())
        centre = int(rng.choice(self.undecided))
        self.searches += 1
        count = grow_region(self.arrays, centre, size, self.searches, self.seen, self.found)
        region = self.found[:count].copy()
        before = x[region]
        sizes = self.domains.sizes[region]
        drawn = self.domains.labels[self.domains.ptr[region] + rng.integers(0, sizes)]
        total = float(assign(self.arrays, x, region, drawn, self.cost, self.infinite))
        change = self._descend(region)
        if change is None:
            x[region] = before
            return 0
        self.kicks += 1
        total += change
        after = x[region]
        if total > 0.0:
            x[region] = before
            total, before, after = 0.0, after, before
        differs = before != after
        finished = not differs.any() or self._fuse(region[differs], before[differs], total)
        return count if finished else 0

    def _fuse(self, differs: IntArray, other: IntArray, total: float) -> bool:
        """Choose the best of two labellings that differ at some variables, and offer it.

        The present one has changed by `total`. Returns False if the budget is spent.
        """
        self.searches += 1
        count = surround(self.arrays, differs, self.searches, self.seen, self.found)
        around = self.found[:count].copy()
        change: float | None = 0.0
        for turn in range(2):
            if self.many and turn == 0:
                open_two(self.arrays, self.block, self.x, other, differs)
                change = self._move(differs, self.fine)
            else:
                self._open_all(around)
                change = self._move(around, self.fine)
            if change is None:
                break
            total += change
        if total < -self.tolerance:
            self.gains += 1
            self.run.offer(self.x)
        return change is not None
