"""Blocks of variables that form forests, relabelled jointly and exactly."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from inference_lab._numba import inlined, lean_kernel
from inference_lab.graph.arrays import TABLE, FloatArray, GraphArrays, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.kernels.messages import half_cost, min_sum_message
from inference_lab.kernels.union_find import find

#: A tree must gain more than this share of the costs it adds up, so that rounding cannot cycle.
RELATIVE_GAIN = 1e-12


class Block(NamedTuple):
    """A set of variables under construction or solution, and scratch for both.

    Stamps mark what belongs to the current block, so that starting the next costs nothing.

    * ``member``, ``touched``, ``closed`` (n,): stamps of the variables in the block, next to it,
      and of those that cannot join any more;
    * ``parent`` (n,): the union-find forest of the trees; ``first`` and ``links`` (n,): of touched
      variables, the first member they have a term with, and how many such terms there are;
    * ``met`` (n,): roots met by a test, stamped with its number in ``tests[0]``;
    * ``factor``, ``inside`` (f,): stamps of the factors with a member, and how many they have;
    * ``up``, ``link`` (n,): parent variable in the tree that is solved, and the adjacency position
      of the edge to it, or ``-1 - factor``; ``tree`` (n,): its variables, parents first;
    * ``cost`` (like the unaries): costs of labels, those of the subtree included; ``message``
      (largest k,): scratch.
    """

    member: IntArray
    touched: IntArray
    closed: IntArray
    parent: IntArray
    first: IntArray
    links: IntArray
    met: IntArray
    tests: IntArray
    factor: IntArray
    inside: IntArray
    up: IntArray
    link: IntArray
    tree: IntArray
    cost: FloatArray
    message: FloatArray


def start_block(graph: FactorGraph) -> Block:
    """Allocate the arrays for a graph."""
    n, f = graph.n_variables, graph.n_factors

    def ints(size: int) -> IntArray:
        return np.zeros(size, dtype=np.int64)

    return Block(
        member=ints(n),
        touched=ints(n),
        closed=ints(n),
        parent=ints(n),
        first=ints(n),
        links=ints(n),
        met=ints(n),
        tests=ints(1),
        factor=ints(f),
        inside=ints(f),
        up=ints(n),
        link=ints(n),
        tree=ints(n),
        cost=np.empty(graph.unary_values.size),
        message=np.empty(int(graph.cardinalities.max(initial=1))),
    )


@inlined
def _partner(g: GraphArrays, b: Block, f: int, i: int, stamp: int) -> int:
    """Return the member of the block other than ``i`` in factor ``f``, or -1."""
    if b.factor[f] == stamp:
        for slot in range(g.factor_ptr[f], g.factor_ptr[f + 1]):
            j = g.scopes[slot]
            if j != i and b.member[j] == stamp:
                return int(j)
    return -1


@inlined
def _joins_trees(g: GraphArrays, b: Block, i: int, stamp: int) -> bool:
    """Whether the terms of variable ``i`` with the block lead to a different tree each."""
    b.tests[0] += 1
    test = b.tests[0]
    for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
        j = g.adj_var[p]
        if b.member[j] == stamp:
            root = find(b.parent, j)
            if b.met[root] == test:
                return False
            b.met[root] = test
    for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
        j = _partner(g, b, g.slot_factor[g.inc_slot[p]], i, stamp)
        if j >= 0:
            root = find(b.parent, j)
            if b.met[root] == test:
                return False
            b.met[root] = test
    return True


@inlined
def _touch(b: Block, j: int, root: int, i: int, stamp: int) -> None:
    """Note that ``j``, outside the block, has a term with its member ``i`` of this root."""
    if b.touched[j] != stamp:
        b.touched[j] = stamp
        b.first[j] = i
        b.links[j] = 1
    elif find(b.parent, b.first[j]) == root:
        b.closed[j] = stamp
    else:
        b.links[j] += 1


@inlined
def _join(g: GraphArrays, b: Block, i: int, stamp: int) -> None:
    """Make a variable a member, merge the trees it links, and tell its neighbours."""
    b.member[i] = stamp
    b.parent[i] = i
    for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
        if b.member[g.adj_var[p]] == stamp:
            b.parent[find(b.parent, g.adj_var[p])] = i
    for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
        j = _partner(g, b, g.slot_factor[g.inc_slot[p]], i, stamp)
        if j >= 0:
            b.parent[find(b.parent, j)] = i
    for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
        if b.member[g.adj_var[p]] != stamp:
            _touch(b, g.adj_var[p], i, i, stamp)
    for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
        f = g.slot_factor[g.inc_slot[p]]
        if b.factor[f] != stamp:
            b.factor[f] = stamp
            b.inside[f] = 0
        b.inside[f] += 1
        for slot in range(g.factor_ptr[f], g.factor_ptr[f + 1]):
            j = g.scopes[slot]
            if b.member[j] != stamp:
                if b.inside[f] == 2:
                    b.closed[j] = stamp
                else:
                    _touch(b, j, i, i, stamp)


@lean_kernel
def grow(g: GraphArrays, b: Block, candidates: IntArray, stamp: int, size: int, most: int) -> int:
    """Let candidates join the block, in order, where it stays a forest; return its size."""
    # A factor of three variables or more is a term between the members it has, of which there may
    # be two at most.
    for i in candidates:
        if size == most:
            break
        if b.member[i] == stamp or b.closed[i] == stamp:
            continue
        if b.touched[i] == stamp and b.links[i] > 1 and not _joins_trees(g, b, i, stamp):
            b.closed[i] = stamp
            continue
        _join(g, b, i, stamp)
        size += 1
    return size


@inlined
def _fixed_costs(g: GraphArrays, x: IntArray, b: Block, i: int, stamp: int) -> float:
    """Fill the costs of each label of ``i`` given all variables outside; return their scale."""
    k = g.cardinalities[i]
    start = g.unary_ptr[i]
    cost = b.cost[start:]
    own = x[i]
    scale = 0.0
    for a in range(k):
        cost[a] = g.unary[start + a]
    if not np.isinf(cost[own]):
        scale = abs(cost[own])
    for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
        j = g.adj_var[p]
        if b.member[j] == stamp:
            continue
        h = g.adj_half[p]
        e = h >> 1
        other = x[j]
        weight = g.weights[e]
        if g.kinds[e] == TABLE:
            first = g.offsets[e] + other
            stride = g.cardinalities[j]
            if h & 1 == 1:
                first = g.offsets[e] + other * k
                stride = 1
            for a in range(k):
                cost[a] += weight * g.pairwise[first + a * stride]
            term = weight * g.pairwise[first + own * stride]
        else:
            same = g.pairwise[g.offsets[e]]
            if other < k:
                same = g.pairwise[g.offsets[e] + other * g.kinds[e]]
            for a in range(k):
                cost[a] += same if a == other else weight
            term = same if own == other else weight
        if not np.isinf(term):
            scale += abs(term)
    for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
        slot = g.inc_slot[p]
        f = g.slot_factor[slot]
        if b.inside[f] != 1:
            continue
        index = g.table_ptr[f]
        stride = 1
        step = 1
        for s in range(g.factor_ptr[f + 1] - 1, g.factor_ptr[f] - 1, -1):
            if s == slot:
                step = stride
            else:
                index += x[g.scopes[s]] * stride
            stride *= g.cardinalities[g.scopes[s]]
        for a in range(k):
            cost[a] += g.tables[index + a * step]
        term = g.tables[index + own * step]
        if not np.isinf(term):
            scale += abs(term)
    return scale


class _Slice(NamedTuple):
    """Where a factor's table begins, and the steps in it, when all but two labels are fixed."""

    base: int
    child: int
    parent: int


@inlined
def _slice(g: GraphArrays, x: IntArray, f: int, child: int, parent: int) -> _Slice:
    index = g.table_ptr[f]
    stride = 1
    child_step = 0
    parent_step = 0
    for s in range(g.factor_ptr[f + 1] - 1, g.factor_ptr[f] - 1, -1):
        j = g.scopes[s]
        if j == child:
            child_step = stride
        elif j == parent:
            parent_step = stride
        else:
            index += x[j] * stride
        stride *= g.cardinalities[j]
    return _Slice(index, child_step, parent_step)


@inlined
def _link_cost(g: GraphArrays, x: IntArray, b: Block, i: int, a: int, other: int) -> float:
    """Return what label ``a`` of ``i`` costs with label ``other`` of its parent in the tree."""
    if b.link[i] < 0:
        cut = _slice(g, x, -1 - b.link[i], i, b.up[i])
        return float(g.tables[cut.base + a * cut.child + other * cut.parent])
    return half_cost(g, g.adj_half[b.link[i]], a, other)


@inlined
def spread(g: GraphArrays, b: Block, root: int, stamp: int) -> int:
    """List the tree of a root, parents first, and return its size; its stamps turn negative."""
    b.tree[0] = root
    b.up[root] = -1
    b.met[root] = -stamp
    head = 0
    size = 1
    while head < size:
        i = b.tree[head]
        head += 1
        for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
            j = g.adj_var[p]
            if b.member[j] == stamp and b.met[j] != -stamp:
                b.met[j] = -stamp
                b.up[j] = i
                b.link[j] = g.adj_reverse[p]
                b.tree[size] = j
                size += 1
        for p in range(g.inc_ptr[i], g.inc_ptr[i + 1]):
            f = g.slot_factor[g.inc_slot[p]]
            j = _partner(g, b, f, i, stamp)
            if j >= 0 and b.met[j] != -stamp:
                b.met[j] = -stamp
                b.up[j] = i
                b.link[j] = -1 - f
                b.tree[size] = j
                size += 1
    return size


@inlined
def _send_up(g: GraphArrays, x: IntArray, b: Block, i: int) -> None:
    """Add the least cost of the subtree of ``i`` to each label of its parent."""
    parent = b.up[i]
    k = g.cardinalities[i]
    start = g.unary_ptr[parent]
    below = b.cost[g.unary_ptr[i] :]
    if b.link[i] < 0:
        cut = _slice(g, x, -1 - b.link[i], i, parent)
        for c in range(g.cardinalities[parent]):
            least = np.inf
            for a in range(k):
                at = cut.base + a * cut.child + c * cut.parent
                least = min(least, g.tables[at] + below[a])
            b.message[c] = least
    else:
        min_sum_message(g, g.adj_half[b.link[i]] ^ 1, below, b.message)
    for c in range(g.cardinalities[parent]):
        b.cost[start + c] += b.message[c]


class TreeCosts(NamedTuple):
    """What a tree costs with its present labels, and the absolute terms of which that is made."""

    present: float
    scale: float


@inlined
def fill_tree(g: GraphArrays, x: IntArray, b: Block, size: int, stamp: int) -> TreeCosts:
    """Fill the costs of all labels of the tree that was spread, given all variables outside."""
    present = 0.0
    scale = 0.0
    for q in range(size):
        i = b.tree[q]
        scale += _fixed_costs(g, x, b, i, stamp)
        present += b.cost[g.unary_ptr[i] + x[i]]
        if q > 0:
            term = _link_cost(g, x, b, i, x[i], x[b.up[i]])
            present += term
            if not np.isinf(term):
                scale += abs(term)
    return TreeCosts(present, scale)


@inlined
def best_at_root(g: GraphArrays, x: IntArray, b: Block, size: int) -> int:
    """Add up least costs from the leaves to the root; return the root's best label."""
    for q in range(size - 1, 0, -1):
        _send_up(g, x, b, b.tree[q])
    root = b.tree[0]
    start = g.unary_ptr[root]
    best = x[root]
    for a in range(g.cardinalities[root]):
        if b.cost[start + a] < b.cost[start + best]:
            best = a
    return int(best)


@inlined
def hand_down(g: GraphArrays, x: IntArray, b: Block, size: int, label: int) -> None:
    """Give the root a label, and all below the best ones with it, in place."""
    x[b.tree[0]] = label
    for q in range(1, size):
        i = b.tree[q]
        start = g.unary_ptr[i]
        above = x[b.up[i]]
        best = x[i]
        least = b.cost[start + best] + _link_cost(g, x, b, i, best, above)
        for a in range(g.cardinalities[i]):
            value = b.cost[start + a] + _link_cost(g, x, b, i, a, above)
            if value < least:
                least = value
                best = a
        x[i] = best


@lean_kernel
def relabel(g: GraphArrays, x: IntArray, b: Block, members: IntArray, stamp: int) -> int:
    """Give every tree of the block its best labels, in place; return how many changed."""
    # Min-sum from the leaves to a root, then decisions from the root to the leaves; a tree that has
    # nothing to gain keeps its labels.
    changed = 0
    for root in members:
        if b.member[root] != stamp or b.met[root] == -stamp:
            continue
        size = spread(g, b, root, stamp)
        tree = fill_tree(g, x, b, size, stamp)
        best = best_at_root(g, x, b, size)
        # With an infinite cost before, every finite one is a gain, and no other.
        if b.cost[g.unary_ptr[root] + best] < tree.present - RELATIVE_GAIN * tree.scale:
            hand_down(g, x, b, size, best)
            changed += 1
    return changed


def soften(graph: FactorGraph) -> GraphArrays:
    """Return the arrays with a finite cost in place of ``+inf``, above all others together."""
    # Whatever violates fewer hard terms has then a lower energy (tables with different weights
    # apart, whose violations weigh more).
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
