"""Junction tree: exact labellings, marginals and log-partition where the treewidth is small."""

from __future__ import annotations

import math
import weakref
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from inference_lab._numba import inlined, kernel, lean_kernel
from inference_lab.contract import Marginals, Outcome, Run, Solver
from inference_lab.factor_graph import FactorGraph, FloatArray, GraphArrays, IntArray
from inference_lab.kernels import edge_cost, unflatten
from inference_lab.ordering import (
    BoolArray,
    Domains,
    Elimination,
    Interactions,
    allowed_labels,
    coupling_terms,
    elimination_order,
    interactions,
)

#: Table entries that are worked on at a time: what is needed of them fits the first-level cache.
_BLOCK = 2048
#: Look-up positions kept for a block, over all inputs of a table.
_LOOK_UP = 1 << 22
#: Additions between two looks at the clock: about 0.1 s.
_CHUNK = 1 << 25

ChoiceArray: TypeAlias = npt.NDArray[Any]


class Tree(NamedTuple):
    """The tree of tables, one for each undecided variable, children before their parents.

    Table ``p`` is over its own variable, the last axis, and its *separator*: tables whose
    variables are the other axes, falling, so that the parent is the smallest. Its message is over
    the separator, row-major.

    * ``variables`` (b,): the variable of each table; ``position`` (n,): the table of each variable,
      -1 where a single label is left;
    * ``sep_ptr`` (b+1,), ``sep``; ``child_ptr`` (b+1,), ``children``;
    * ``term_ptr`` (b+1,), ``terms``: edges, then (from the number of edges on) factors, each at the
      first of its variables to be eliminated;
    * ``label_ptr`` (n+1,), ``labels``: the labels left to each variable, see `Domains`;
    * ``sizes`` (b,): labels of each table's variable; ``rows`` (b,): entries of each message;
    * ``at`` (b,), ``made_at`` (b,): where each message is kept, and where it is written first;
    * ``choice_at`` (b,): where the best label of each row is kept.
    """

    variables: IntArray
    position: IntArray
    sep_ptr: IntArray
    sep: IntArray
    child_ptr: IntArray
    children: IntArray
    term_ptr: IntArray
    terms: IntArray
    label_ptr: IntArray
    labels: IntArray
    sizes: IntArray
    rows: IntArray
    at: IntArray
    made_at: IntArray
    choice_at: IntArray


class Workspace(NamedTuple):
    """Scratch arrays for one table at a time."""

    axis_of: IntArray  # (b,) axis of each table's variable in the current table
    shape: IntArray  # (axes,)
    strides: IntArray  # (inputs, axes) flat
    source: IntArray  # (inputs,) where an input starts: in the messages, or below 0 in `dense`
    base: IntArray  # (inputs,) where the current block of an input starts
    look_up: IntArray  # positions within a block, input after input
    digits: IntArray  # (axes,)
    first: FloatArray  # (block,) what is the same in every block
    block: FloatArray  # (block,)
    dense: FloatArray  # the tables of the terms
    shift: FloatArray  # (b,) the least entry of each message


# ---------------------------------------------------------------------- the tree


@kernel
def _separators(
    ptr: IntArray, neighbours: IntArray, position: IntArray, order: IntArray
) -> tuple[IntArray, IntArray]:
    """Eliminate symbolically: the later neighbours of each variable at its turn, falling.

    `order` are vertices of the graph, `position` is its inverse.
    """
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
        most = ptr[v + 1] - ptr[v]
        c = oldest[p]
        while c >= 0:
            most += sep_ptr[c + 1] - sep_ptr[c]
            c = younger[c]
        if start + most > sep.size:
            larger = np.empty(2 * sep.size + most, dtype=np.int64)
            larger[:start] = sep[:start]
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
        if end > start:
            found = np.sort(sep[start:end])
            sep[start:end] = found[::-1]
            parent = found[0]
            younger[p] = oldest[parent]
            oldest[parent] = p
    return sep_ptr, sep[: sep_ptr[n]]


@kernel
def _post_order(sep_ptr: IntArray, sep: IntArray, rows: IntArray) -> IntArray:
    """Return the tables in an order that visits subtrees one after another, children first.

    The children that need the most memory beyond what they leave go first, which keeps the stack
    of waiting messages as low as it can be (Liu 1986).
    """
    n = rows.size
    parent = np.full(n, -1, dtype=np.int64)
    count = np.zeros(n + 1, dtype=np.int64)
    for p in range(n):
        if sep_ptr[p + 1] > sep_ptr[p]:
            parent[p] = sep[sep_ptr[p + 1] - 1]
            count[parent[p] + 1] += 1
    ptr = np.cumsum(count)
    children = np.empty(ptr[n], dtype=np.int64)
    fill = ptr[:-1].copy()
    need = np.zeros(n, dtype=np.int64)
    for p in range(n):
        lo, hi = ptr[p], ptr[p + 1]
        mine = children[lo:hi]
        surplus = rows[mine] - need[mine]
        children[lo:hi] = mine[np.argsort(surplus, kind="mergesort")]
        held = 0
        for c in children[lo:hi]:
            need[p] = max(need[p], held + need[c])
            held += rows[c]
        need[p] = max(need[p], held + rows[p])
        if parent[p] >= 0:
            children[fill[parent[p]]] = p
            fill[parent[p]] += 1
    order = np.empty(n, dtype=np.int64)
    stack = np.empty(n, dtype=np.int64)
    done = n
    for root in range(n):
        if parent[root] >= 0:
            continue
        # Parents first, children from the last to the first, then turned round.
        top = 1
        stack[0] = root
        while top > 0:
            top -= 1
            p = stack[top]
            done -= 1
            order[done] = p
            for c in children[ptr[p] : ptr[p + 1]]:
                stack[top] = c
                top += 1
    return order


@kernel
def _stack_places(
    child_ptr: IntArray, children: IntArray, rows: IntArray
) -> tuple[IntArray, IntArray, int]:
    """Place messages on a stack: where each is made, where it is kept, and the stack's height.

    A message is made on top of those of its children, then takes their place.
    """
    n = rows.size
    at, made_at = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    top, height = 0, 0
    for p in range(n):
        made_at[p] = top
        height = max(height, top + rows[p])
        for q in range(child_ptr[p], child_ptr[p + 1]):
            top -= rows[children[q]]
        at[p] = top
        if rows[p] > 0:
            top += rows[p]
    return at, made_at, height


@kernel
def _assign_terms(
    g: GraphArrays, couples: BoolArray, position: IntArray, n_tables: int
) -> tuple[IntArray, IntArray]:
    """Hand each coupling term to the first of its variables to be eliminated."""
    m = g.kinds.size
    home = np.full(couples.size, -1, dtype=np.int64)
    ptr = np.zeros(n_tables + 1, dtype=np.int64)
    for t in range(couples.size):
        if not couples[t]:
            continue
        first = n_tables
        if t < m:
            for side in range(2):
                p = position[g.edges[t, side]]
                if p >= 0:
                    first = min(first, p)
        else:
            for s in range(g.factor_ptr[t - m], g.factor_ptr[t - m + 1]):
                p = position[g.scopes[s]]
                if p >= 0:
                    first = min(first, p)
        home[t] = first
        ptr[first + 1] += 1
    ptr = np.cumsum(ptr)
    fill = ptr[:-1].copy()
    terms = np.empty(ptr[n_tables], dtype=np.int64)
    for t in range(couples.size):
        if home[t] >= 0:
            terms[fill[home[t]]] = t
            fill[home[t]] += 1
    return ptr, terms


@kernel
def _scratch_sizes(g: GraphArrays, tree: Tree) -> tuple[int, int, int, int, int]:
    """Return the most axes, inputs, strides, entries of terms and look-ups that a table needs."""
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
    """Return how many entries a block may have: a row at least."""
    return max(size, min(_BLOCK, _LOOK_UP // max(1, inputs)))


@kernel
def _decided_cost(
    g: GraphArrays, couples: BoolArray, label_ptr: IntArray, labels: IntArray
) -> float:
    """Add up what no choice can change: decided variables, and terms that are constant."""
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
            at, stride = g.table_ptr[f], 1
            for s in range(g.factor_ptr[f + 1] - 1, g.factor_ptr[f] - 1, -1):
                at += stride * labels[label_ptr[g.scopes[s]]]
                stride *= g.cardinalities[g.scopes[s]]
            total += g.tables[at]
    return total


# ---------------------------------------------------------------------- tables


@inlined
def _spread(strides: IntArray, row: int, shape: IntArray, lo: int, hi: int, out: IntArray, to: int) -> int:  # fmt: skip
    """Write the positions of an input for all entries over axes ``lo .. hi - 1``; count them.

    They go to ``out[to:]``, the last axis fastest; the input's strides start at ``strides[row]``.
    """
    out[to] = 0
    length = 1
    for axis in range(hi - 1, lo - 1, -1):
        step = strides[row + axis]
        for c in range(1, shape[axis]):
            for t in range(length):
                out[to + c * length + t] = out[to + t] + c * step
        length *= shape[axis]
    return length


@lean_kernel
def _write_term(g: GraphArrays, tree: Tree, t: int, work: Workspace, to: int, row: int) -> int:
    """Write the dense table of a term over the labels that are left, and its strides.

    The table goes to ``dense[to:]``, its strides to ``strides[row:]``. Returns its length.
    """
    m = g.kinds.size
    axes = tree.label_ptr  # only for its type; see below
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
        return ki * kj
    f = t - m
    # One variable after the other, the last first: the entries so far are repeated for each label.
    # `dense` holds positions in the table first, which floats hold exactly.
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
