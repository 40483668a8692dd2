"""Bucket elimination along an order: a tree of tables that are computed but never stored."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from inference_lab._numba import inlined, kernel, lean_kernel
from inference_lab.algorithms.elimination.arc_consistency import BoolArray, Domains
from inference_lab.algorithms.elimination.interactions import Interactions
from inference_lab.graph.arrays import FloatArray, GraphArrays, IntArray, starts_of
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.kernels.messages import edge_cost
from inference_lab.kernels.struct import One, record

#: Table entries processed at a time, because their data then fit the first-level cache.
BLOCK = 2048
#: Look-up positions kept for a block, over all inputs of a table.
_LOOK_UP = 1 << 22

ChoiceArray: TypeAlias = npt.NDArray[Any]


class Tree(NamedTuple):
    """Tree of tables, one for each undecided variable, children before their parents."""

    # The last axis of table ``p`` is its own variable. The other axes are its *separator*: tables
    # in descending order, so that the last one is the parent. Its message is over the separator,
    # row-major.

    #: (b,): the variable of each table.
    variables: IntArray
    #: (n,): the table of each variable, -1 for variables with a single label left.
    position: IntArray
    #: ``sep_ptr`` (b+1,), ``sep``.
    sep_ptr: IntArray
    sep: IntArray
    #: ``child_ptr`` (b+1,), ``children``.
    child_ptr: IntArray
    children: IntArray
    #: ``term_ptr`` (b+1,), ``terms``: edges, then factors (numbered from the number of edges on),
    #: each at the first of its variables to be eliminated.
    term_ptr: IntArray
    terms: IntArray
    #: ``label_ptr`` (n+1,), ``labels``: the remaining labels of each variable, see `Domains`.
    label_ptr: IntArray
    labels: IntArray
    #: (b,): labels of each table's variable.
    sizes: IntArray
    #: (b,): entries of each message.
    rows: IntArray
    #: ``at`` (b,), ``made_at`` (b,): start of each message where it is kept, and where it is
    #: computed.
    at: IntArray
    made_at: IntArray
    #: (b,): start of the best labels of the rows of each table.
    choice_at: IntArray


class PassPosition:
    """A position in a pass: the number of a table, and of a block of its entries."""

    table: int
    block: int


class TableWorkspace(NamedTuple):
    """Scratch arrays for one table at a time."""

    axis_of: IntArray  # (b,) axis of each table's variable in the current table
    shape: IntArray  # (axes,)
    strides: IntArray  # (inputs, axes) flat
    source: IntArray  # (inputs,) start of an input: in the messages, or negative in `dense`
    base: IntArray  # (inputs,) start of the current block of an input
    look_up: IntArray  # positions within a block, input after input
    digits: IntArray  # (axes,)
    first: FloatArray  # (block,) sum of the inputs that are the same in every block
    block: FloatArray  # (block,)
    dense: FloatArray  # the tables of the terms
    shift: FloatArray  # (b,) the least entry of each message
    now: One[PassPosition]  # at which a pass continues


def workspace(tree: Tree, scratch: tuple[int, int, int, int, int]) -> TableWorkspace:
    """Allocate scratch of the sizes that `scratch_sizes` returns."""
    axes, inputs, strides, dense, look_up = scratch
    block = max(BLOCK, int(tree.sizes.max(initial=1)))
    return TableWorkspace(
        axis_of=np.empty(tree.rows.size, dtype=np.int64),
        shape=np.empty(axes, dtype=np.int64),
        strides=np.empty(strides, dtype=np.int64),
        source=np.empty(inputs, dtype=np.int64),
        base=np.empty(inputs, dtype=np.int64),
        look_up=np.empty(look_up, dtype=np.int64),
        digits=np.empty(axes, dtype=np.int64),
        first=np.empty(block),
        block=np.empty(block),
        dense=np.empty(dense),
        shift=np.empty(tree.rows.size),
        now=record(PassPosition),
    )


# ---------------------------------------------------------------------- the tree


@kernel
def _separators(
    ptr: IntArray, neighbours: IntArray, position: IntArray, order: IntArray
) -> tuple[IntArray, IntArray]:
    """Eliminate symbolically; return each variable's later neighbours at its turn, descending."""
    n = order.size
    sep_ptr = np.zeros(n + 1, dtype=np.int64)
    sep = np.empty(max(16, neighbours.size), dtype=np.int64)
    mark = np.full(n, -1, dtype=np.int64)
    oldest = np.full(n, -1, dtype=np.int64)  # linked lists of children
    younger = np.full(n, -1, dtype=np.int64)
    for p in range(n):
        v = order[p]
        start = sep_ptr[p]
        end = start
        bound = ptr[v + 1] - ptr[v]
        c = oldest[p]
        while c >= 0:
            bound += sep_ptr[c + 1] - sep_ptr[c]
            c = younger[c]
        if start + bound > sep.size:
            larger = np.empty(2 * sep.size + bound, dtype=np.int64)
            for q in range(start):
                larger[q] = sep[q]
            sep = larger
        mark[p] = p
        for q in range(ptr[v], ptr[v + 1]):
            u = position[neighbours[q]]
            if u > p:
                mark[u] = p
                sep[end] = u
                end += 1
        c = oldest[p]
        while c >= 0:
            for q in range(sep_ptr[c], sep_ptr[c + 1]):
                u = sep[q]
                if mark[u] != p:
                    mark[u] = p
                    sep[end] = u
                    end += 1
            c = younger[c]
        sep_ptr[p + 1] = end
        for q in range(start + 1, end):
            u = sep[q]
            r = q
            while r > start and sep[r - 1] < u:
                sep[r] = sep[r - 1]
                r -= 1
            sep[r] = u
        if end > start:
            parent = sep[end - 1]
            younger[p] = oldest[parent]
            oldest[parent] = p
    return sep_ptr, sep[: sep_ptr[n]]


@kernel
def _post_order(sep_ptr: IntArray, sep: IntArray) -> IntArray:
    """Return the tables in an order that visits subtrees one after another, children first."""
    n = sep_ptr.size - 1
    parent = np.full(n, n, dtype=np.int64)
    size = np.ones(n + 1, dtype=np.int64)
    for p in range(n):
        if sep_ptr[p + 1] > sep_ptr[p]:
            parent[p] = sep[sep_ptr[p + 1] - 1]
        size[parent[p]] += size[p]
    order = np.empty(n, dtype=np.int64)
    end = np.full(n + 1, n, dtype=np.int64)  # of the places left below each table
    for p in range(n - 1, -1, -1):
        order[end[parent[p]] - 1] = p
        end[p] = end[parent[p]] - 1
        end[parent[p]] -= size[p]
    return order


@kernel
def _stack_places(
    child_ptr: IntArray, children: IntArray, rows: IntArray
) -> tuple[IntArray, IntArray]:
    """Return the stack positions at which each message is kept, and at which it is computed."""
    # A message is computed above the messages of its children, then moved to their place.
    n = rows.size
    at, made_at = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    top = 0
    for p in range(n):
        made_at[p] = top
        for q in range(child_ptr[p], child_ptr[p + 1]):
            top -= rows[children[q]]
        at[p] = top
        top += rows[p]
    return at, made_at


def _assign_terms(
    graph: FactorGraph, couples: BoolArray, position: IntArray, n_tables: int
) -> tuple[IntArray, IntArray]:
    """Assign each coupling term to the first of its variables to be eliminated."""
    turn = np.where(position >= 0, position, n_tables)
    first = turn[graph.edges].min(axis=1)
    if graph.n_factors:
        starts = graph.factor_ptr[:-1]
        first = np.concatenate([first, np.minimum.reduceat(turn[graph.factor_scopes], starts)])
    terms = np.flatnonzero(couples)
    terms = terms[np.argsort(first[terms], kind="stable")]
    ptr = starts_of(np.bincount(first[terms], minlength=n_tables))
    return ptr, terms


def make_tree(
    graph: FactorGraph, domains: Domains, couples: BoolArray, network: Interactions, order: IntArray
) -> Tree:
    """Build the tree of tables of an elimination order; messages are placed on a stack."""
    count = order.size
    labels = domains.sizes
    turn = np.searchsorted(network.variables, order)
    place = np.empty(count, dtype=np.int64)
    for last in (False, True):
        place[turn] = np.arange(count)
        sep_ptr, sep = _separators(network.ptr, network.neighbours, place, turn)
        if not last:
            # Reorder the same tables, subtree after subtree.
            turn = turn[_post_order(sep_ptr, sep)]
    sizes = labels[network.variables[turn]]
    rows = np.ones(count, dtype=np.int64)
    np.multiply.at(rows, np.repeat(np.arange(count), np.diff(sep_ptr)), sizes[sep])
    inner = np.flatnonzero(np.diff(sep_ptr) > 0)
    parent = sep[sep_ptr[inner + 1] - 1]
    children = inner[np.argsort(parent, kind="stable")]
    child_ptr = starts_of(np.bincount(parent, minlength=count))
    variables = network.variables[turn]
    position = np.full(graph.n_variables, -1, dtype=np.int64)
    position[variables] = np.arange(count)
    term_ptr, terms = _assign_terms(graph, couples, position, count)
    at, made_at = _stack_places(child_ptr, children, rows)
    return Tree(
        variables=variables,
        position=position,
        sep_ptr=sep_ptr,
        sep=sep,
        child_ptr=child_ptr,
        children=children,
        term_ptr=term_ptr,
        terms=terms,
        label_ptr=domains.ptr,
        labels=domains.labels,
        sizes=sizes,
        rows=rows,
        at=at,
        made_at=made_at,
        choice_at=np.cumsum(rows) - rows,
    )


def keep_all(tree: Tree) -> Tree:
    """Place all messages side by side, with the messages to one table contiguous."""
    at = np.empty_like(tree.at)
    roots = np.flatnonzero(np.diff(tree.sep_ptr) == 0)
    listed = np.concatenate([tree.children, roots])
    rows = tree.rows[listed]
    at[listed] = np.cumsum(rows) - rows
    return tree._replace(at=at, made_at=at)


@kernel
def scratch_sizes(g: GraphArrays, tree: Tree) -> tuple[int, int, int, int, int]:
    """Return the most axes, inputs, strides, entries of terms and look-ups of any table."""
    m = g.kinds.size
    axes, inputs, strides, dense, look_up = 1, 1, 1, 1, 1
    for p in range(tree.variables.size):
        count = tree.sep_ptr[p + 1] - tree.sep_ptr[p] + 1
        incoming = (
            tree.child_ptr[p + 1] - tree.child_ptr[p] + tree.term_ptr[p + 1] - tree.term_ptr[p]
        )
        entries = 0
        for q in range(tree.term_ptr[p], tree.term_ptr[p + 1]):
            t = tree.terms[q]
            product = 1
            if t < m:
                for side in range(2):
                    v = g.edges[t, side]
                    product *= tree.label_ptr[v + 1] - tree.label_ptr[v]
            else:
                for s in range(g.factor_ptr[t - m], g.factor_ptr[t - m + 1]):
                    v = g.scopes[s]
                    product *= tree.label_ptr[v + 1] - tree.label_ptr[v]
            entries += product
        axes = max(axes, count)
        inputs = max(inputs, incoming)
        strides = max(strides, incoming * count)
        dense = max(dense, entries)
        block = min(_block_limit(tree.sizes[p], incoming), tree.rows[p] * tree.sizes[p])
        look_up = max(look_up, incoming * block)
    return axes, inputs, strides, dense, look_up


@inlined
def _block_limit(size: int, inputs: int) -> int:
    """Return the most entries of a block: at least one row."""
    return int(max(size, min(BLOCK, _LOOK_UP // max(1, inputs))))


@kernel
def decided_cost(
    g: GraphArrays, couples: BoolArray, label_ptr: IntArray, labels: IntArray
) -> float:
    """Return the cost common to all choices: decided variables and constant terms."""
    m = g.kinds.size
    total = 0.0
    for i in range(g.cardinalities.size):
        if label_ptr[i + 1] - label_ptr[i] == 1:
            total += g.unary[g.unary_ptr[i] + labels[label_ptr[i]]]
    for t in range(couples.size):
        if couples[t]:
            continue
        if t < m:
            i, j = g.edges[t, 0], g.edges[t, 1]
            total += edge_cost(g, t, labels[label_ptr[i]], labels[label_ptr[j]])
        else:
            f = t - m
            at = g.table_ptr[f]
            stride = 1
            for s in range(g.factor_ptr[f + 1] - 1, g.factor_ptr[f] - 1, -1):
                at += stride * labels[label_ptr[g.scopes[s]]]
                stride *= g.cardinalities[g.scopes[s]]
            total += g.tables[at]
    return total


# ---------------------------------------------------------------------- tables


@inlined
def _spread(work: TableWorkspace, row: int, split: int, axes: int, to: int) -> None:
    """Write the offsets of an input's entries for all entries of a block, last axis fastest."""
    work.look_up[to] = 0
    length = 1
    for axis in range(axes - 1, split - 1, -1):
        step = work.strides[row + axis]
        for c in range(1, work.shape[axis]):
            for t in range(length):
                work.look_up[to + c * length + t] = work.look_up[to + t] + c * step
        length *= work.shape[axis]


@lean_kernel
def _write_term(g: GraphArrays, tree: Tree, t: int, work: TableWorkspace, to: int, row: int) -> int:
    """Write the dense table of a term over the labels left; return its length."""
    m = g.kinds.size
    if t < m:
        i, j = g.edges[t, 0], g.edges[t, 1]
        ki = tree.label_ptr[i + 1] - tree.label_ptr[i]
        kj = tree.label_ptr[j + 1] - tree.label_ptr[j]
        for a in range(ki):
            for b in range(kj):
                work.dense[to + a * kj + b] = edge_cost(
                    g, t, tree.labels[tree.label_ptr[i] + a], tree.labels[tree.label_ptr[j] + b]
                )
        if tree.position[i] >= 0:
            work.strides[row + work.axis_of[tree.position[i]]] = kj
        if tree.position[j] >= 0:
            work.strides[row + work.axis_of[tree.position[j]]] = 1
        return int(ki * kj)
    f = t - m
    # Variables are added from the last to the first: the entries so far are repeated for each
    # label. `dense` first holds positions in the table, which floats represent exactly.
    work.dense[to] = g.table_ptr[f]
    length, stride = 1, 1
    for s in range(g.factor_ptr[f + 1] - 1, g.factor_ptr[f] - 1, -1):
        v = g.scopes[s]
        first = tree.label_ptr[v]
        count = tree.label_ptr[v + 1] - first
        for c in range(count - 1, -1, -1):
            step = stride * tree.labels[first + c]
            for q in range(length):
                work.dense[to + c * length + q] = work.dense[to + q] + step
        if tree.position[v] >= 0:
            work.strides[row + work.axis_of[tree.position[v]]] = length
        length *= count
        stride *= g.cardinalities[v]
    for q in range(length):
        work.dense[to + q] = g.tables[int(work.dense[to + q])]
    return length


class Layout(NamedTuple):
    """Division of the current table into blocks, and its inputs."""

    axes: int
    split: int  # the first axis that varies within a block
    block: int  # entries of a block
    inputs: int  # inputs that are looked up for every block, terms before children
    first_child: int  # the input of the first child


@lean_kernel
def _prepare(g: GraphArrays, tree: Tree, p: int, work: TableWorkspace) -> Layout:
    """Set the workspace up for table ``p``."""
    # Inputs that are the same in every block, including its unary, are added up in ``first``.
    lo, hi = tree.sep_ptr[p], tree.sep_ptr[p + 1]
    axes = hi - lo + 1
    size = tree.sizes[p]
    for t in range(lo, hi):
        work.axis_of[tree.sep[t]] = t - lo
        work.shape[t - lo] = tree.sizes[tree.sep[t]]
    work.axis_of[p] = axes - 1
    work.shape[axes - 1] = size
    incoming = tree.child_ptr[p + 1] - tree.child_ptr[p] + tree.term_ptr[p + 1] - tree.term_ptr[p]
    limit = _block_limit(size, incoming)
    block, split = size, axes - 1
    while split > 0 and block * work.shape[split - 1] <= limit:
        split -= 1
        block *= work.shape[split]
    # Messages are relative to their least entry, so that they stay small in large graphs.
    base = 0.0
    for q in range(tree.child_ptr[p], tree.child_ptr[p + 1]):
        base -= work.shift[tree.children[q]]
    v = tree.variables[p]
    for a in range(size):
        value = base + g.unary[g.unary_ptr[v] + tree.labels[tree.label_ptr[v] + a]]
        for t in range(a, block, size):
            work.first[t] = value
    inputs, used = 0, 0
    for q in range(tree.term_ptr[p], tree.term_ptr[p + 1]):
        row, to = inputs * axes, inputs * block
        for axis in range(axes):
            work.strides[row + axis] = 0
        length = _write_term(g, tree, tree.terms[q], work, used, row)
        _spread(work, row, split, axes, to)
        varies = False
        for axis in range(split):
            varies = varies or work.strides[row + axis] != 0
        if varies:
            work.source[inputs] = -1 - used
            used += length
            inputs += 1
        else:
            for t in range(block):
                work.first[t] += work.dense[used + work.look_up[to + t]]
    first_child = inputs
    for q in range(tree.child_ptr[p], tree.child_ptr[p + 1]):
        c = tree.children[q]
        row = inputs * axes
        for axis in range(axes):
            work.strides[row + axis] = 0
        stride = 1
        for t in range(tree.sep_ptr[c + 1] - 1, tree.sep_ptr[c] - 1, -1):
            work.strides[row + work.axis_of[tree.sep[t]]] = stride
            stride *= tree.sizes[tree.sep[t]]
        _spread(work, row, split, axes, inputs * block)
        work.source[inputs] = tree.at[c]
        inputs += 1
    return Layout(axes, split, block, inputs, first_child)


@inlined
def _add_up(layout: Layout, number: int, messages: FloatArray, work: TableWorkspace) -> None:
    """Add the inputs of one block of the current table up in ``block``."""
    for axis in range(layout.split - 1, -1, -1):
        work.digits[axis] = number % work.shape[axis]
        number //= work.shape[axis]
    for t in range(layout.block):
        work.block[t] = work.first[t]
    for j in range(layout.inputs):
        row, to = j * layout.axes, j * layout.block
        base = work.source[j]
        inner = base < 0
        if inner:
            base = -1 - base
        for axis in range(layout.split):
            base += work.digits[axis] * work.strides[row + axis]
        work.base[j] = base
        if inner:
            for t in range(layout.block):
                work.block[t] += work.dense[base + work.look_up[to + t]]
        else:
            for t in range(layout.block):
                work.block[t] += messages[base + work.look_up[to + t]]


@lean_kernel
def upward(
    g: GraphArrays,
    tree: Tree,
    temperatures: FloatArray,
    messages: FloatArray,
    choice: ChoiceArray,
    work: TableWorkspace,
    budget: int,
) -> bool:
    """Send messages from the leaves towards the roots, for about `budget` additions."""
    # A message is the minimum (T = 0), or ``-T log sum exp(-. / T)``, of its table over the table's
    # own variable; `choice` keeps the best label of each row. Returns False if all entries of a
    # message are infinite, because then no labelling is feasible.
    now = work.now[0]
    while now.table < tree.variables.size and budget > 0:
        p = now.table
        temperature = temperatures[p]
        layout = _prepare(g, tree, p, work)
        size = tree.sizes[p]
        block = layout.block
        rows = block // size
        blocks = tree.rows[p] // rows
        if now.block == 0:
            work.shift[p] = np.inf
        minimum = work.shift[p]
        while now.block < blocks and budget > 0:
            number = now.block
            _add_up(layout, number, messages, work)
            to, choice_start = tree.made_at[p] + number * rows, tree.choice_at[p] + number * rows
            for r in range(rows):
                at = r * size
                best = work.block[at]
                label = 0
                for a in range(1, size):
                    if work.block[at + a] < best:
                        best = work.block[at + a]
                        label = a
                if temperature > 0.0 and best < np.inf:
                    total = 1.0
                    for a in range(size):
                        if a != label:
                            total += np.exp((best - work.block[at + a]) / temperature)
                    best -= temperature * np.log(total)
                messages[to + r] = best
                choice[choice_start + r] = label
                minimum = min(minimum, best)
            budget -= block * (layout.inputs + (16 if temperature > 0.0 else 3))
            now.block += 1
        work.shift[p] = minimum
        if now.block < blocks:
            return True
        if minimum == np.inf:
            return False
        if tree.at[p] != tree.made_at[p]:
            for t in range(tree.rows[p]):
                messages[tree.at[p] + t] = messages[tree.made_at[p] + t]
        now.table += 1
        now.block = 0
        budget -= 100 + tree.rows[p]
    return True


@lean_kernel
def downward(
    g: GraphArrays,
    tree: Tree,
    temperatures: FloatArray,
    messages: FloatArray,
    sums: FloatArray,
    marginals: FloatArray,
    work: TableWorkspace,
    budget: int,
) -> None:
    """Send probabilities from the roots towards the leaves, for about `budget` additions."""
    # Once the parent of a table is done, the table's message in ``messages`` is replaced by the
    # probabilities ``p(s)`` of its rows. Entries have probability ``p(s) p(a | s)``, where
    # ``p(a | s)`` is proportional to ``exp(-table(s, a) / T)``.
    now = work.now[0]
    while now.table >= 0 and budget > 0:
        p = now.table
        temperature = temperatures[p]
        layout = _prepare(g, tree, p, work)
        size = tree.sizes[p]
        block = layout.block
        rows = block // size
        blocks = tree.rows[p] // rows
        lo, hi = tree.child_ptr[p], tree.child_ptr[p + 1]
        # The messages of the children are contiguous.
        start = tree.at[tree.children[lo]] if hi > lo else 0
        end = tree.at[tree.children[hi - 1]] + tree.rows[tree.children[hi - 1]] if hi > lo else 0
        if now.block == 0:
            for t in range(end - start):
                sums[t] = 0.0
        label_start = tree.label_ptr[tree.variables[p]]
        while now.block < blocks and budget > 0:
            number = now.block
            _add_up(layout, number, messages, work)
            at = tree.at[p] + number * rows
            for r in range(rows):
                first = r * size
                share = messages[at + r]
                best = np.inf
                label = 0
                for a in range(size):
                    if work.block[first + a] < best:
                        best = work.block[first + a]
                        label = a
                # An infinite row has probability 0, and its entries must not reach `exp`.
                if not share > 0.0 or best == np.inf:
                    for a in range(size):
                        work.block[first + a] = 0.0
                    continue
                total = 1.0
                for a in range(size):
                    if a != label:
                        weight = np.exp((best - work.block[first + a]) / temperature)
                        work.block[first + a] = weight
                        total += weight
                work.block[first + label] = 1.0
                share /= total
                for a in range(size):
                    work.block[first + a] *= share
                    marginals[label_start + a] += work.block[first + a]
            for j in range(layout.first_child, layout.inputs):
                base = work.base[j] - start
                to = j * block
                for t in range(block):
                    sums[base + work.look_up[to + t]] += work.block[t]
            budget -= block * (2 * layout.inputs + 16)
            now.block += 1
        if now.block < blocks:
            return
        for t in range(end - start):
            messages[start + t] = sums[t]
        now.table -= 1
        now.block = 0
        budget -= 100 + end - start


@lean_kernel
def decode(tree: Tree, choice: ChoiceArray, x: IntArray) -> None:
    """Label the variables from the roots to the leaves by their best label given the separator."""
    for p in range(tree.variables.size - 1, -1, -1):
        row, stride = 0, 1
        for t in range(tree.sep_ptr[p + 1] - 1, tree.sep_ptr[p] - 1, -1):
            u = tree.sep[t]
            # Until the end, labels are positions among the labels left.
            row += stride * x[tree.variables[u]]
            stride *= tree.sizes[u]
        x[tree.variables[p]] = choice[tree.choice_at[p] + row]
    for i in range(x.size):
        if tree.position[i] >= 0:
            x[i] = tree.labels[tree.label_ptr[i] + x[i]]
