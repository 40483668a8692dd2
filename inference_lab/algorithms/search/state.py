"""The state of a branch and bound: cost functions, moved costs, and open nodes.

Value ``a`` of variable ``i`` has number ``ptr[i] + a``; *slot* ``t`` is one place in the scope of a
function. Tables are never written: a cost is ``table[x] - sum_t shift[t, x_t]``. All changes of a
subtree are integers in one array, ``cell``. The *trail* records a cell before its first change at
a node. A domain is a sparse set, its labels the first of ``dom``. Hints (last known supports) are
checked when used and never undone. Open nodes of the best-first search are paths, replayed as a
single node. Memory is allocated once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from inference_lab.algorithms.search.network import FORBIDDEN, HARD, CostNetwork
from inference_lab.graph.arrays import IntArray, starts_of
from inference_lab.kernels.heap import Heap, empty_heap, push
from inference_lab.kernels.struct import One, record

#: Pending checks after a change at a variable: costs of larger neighbours (after the loss of a
#: label), full support of smaller neighbours, its own existential support, and the existential
#: support of larger neighbours.
ARC, DIRECTIONAL, EXISTENTIAL, NEAR = 1, 2, 4, 8
ALL = ARC | DIRECTIONAL | EXISTENTIAL | NEAR

#: Maximum backtracks of a depth-first search before the node of least bound is opened.
MOST_BACKTRACKS = 1 << 14

#: Capacity of the pool of open nodes and their paths.
_POOL = 1 << 19
#: Initial trail length per cell.
_TRAIL = 4


class Functions(NamedTuple):
    """The cost functions, which no search changes."""

    #: (n+1,): values of each variable.
    ptr: IntArray
    #: (f+1,): slots of each function.
    slots: IntArray
    #: ``scope``, ``stride``, ``shift_at``, ``function`` (s,): variable, table stride, first shift
    #: and function of each slot.
    scope: IntArray
    stride: IntArray
    shift_at: IntArray
    function: IntArray
    #: ``table_at`` (f,), ``tables``.
    table_at: IntArray
    tables: IntArray
    #: ``incident_ptr`` (n+1,), ``incident`` (s,): the slots of each variable.
    incident_ptr: IntArray
    incident: IntArray


class SearchNumbers:
    """The single numbers of a search, the fields of one record (`SearchState.now`).

    Costs are integers in units of the network. The *cutoff* is the least cost that is of no
    interest: the cost of the best labelling, less the gap that is accepted.
    """

    # ---- costs and bounds
    #: Cost of the best labelling, at first the cutoff that the search began with.
    best_cost: int
    #: Gap that is accepted as a proof.
    slack: int
    #: ``best_cost - slack``, at least 0: nodes and labels of this bound and more are ruled out.
    cutoff: int
    #: Bound and cutoff at which labels were last pruned by their unary costs.
    pruned_low: int
    pruned_cutoff: int
    #: Bound and cutoff at which the root was last propagated; a cutoff of -1 before the first time.
    root_low: int
    root_cutoff: int

    # ---- work, in table entries looked up
    #: Work since the caller set it to 0, and the amount at which the search returns to its caller.
    work: int
    most_work: int

    # ---- cells and the trail
    #: First cells of the views ``shift``, ``size`` and ``support`` (``unary`` begins at cell 1).
    shift_from: int
    size_at: int
    support_at: int
    #: Entries on the trail.
    trail: int
    #: Stamp of the node that is searched, and the largest stamp so far.
    stamp: int
    stamps: int

    # ---- propagation
    #: Whether the bound has reached the cutoff, or a domain is empty.
    conflict: bool
    #: Labels ruled out so far, those of undone nodes included.
    dropped: int
    #: Passes in a row without a gain; bound and ``dropped`` at the last gain.
    idle: int
    idle_low: int
    idle_dropped: int

    # ---- the open node, in which a depth-first search runs
    #: Whether there is one; whether the cells are those of the root.
    active: bool
    at_root: bool
    #: Its number in the pool, and its bound.
    node: int
    node_bound: int
    #: Nodes in the pool.
    pool: int
    #: Open nodes entered, and the decisions made again to reach them.
    dives: int
    replayed: int

    # ---- the depth-first search
    #: Decisions on the path from the open node.
    level: int
    #: Whether the last decision was impossible or led to a conflict.
    failed: bool
    #: Variable of the last decision that was reversed, branched on again while it is open; or -1.
    last: int
    #: Nodes propagated.
    nodes: int
    #: Backtracks since the open node was entered, and in the whole search.
    backtracks: int
    all_backtracks: int
    #: Backtracks after which the best open node is entered, and the maximum of this limit.
    limit: int
    most_backtracks: int
    #: Whether a better labelling was found since the search was continued.
    improved: bool


class SearchState(NamedTuple):
    """The state that a search changes.

    Shapes are in variables n, values v (of all variables), functions f, slots, shifts (one for each
    label of each slot), the largest arity r, levels v + 1, and nodes of the pool.
    """

    #: (1 + v + shifts + 2n,): all numbers that backtracking restores, in the order of the five
    #: views below.
    cell: IntArray
    #: (1,): the lower bound of the node.
    low: IntArray
    #: (v,): the unary cost of each value.
    unary: IntArray
    #: (shifts,): the cost moved from a function to each label of each slot.
    shift: IntArray
    #: (n,): the number of labels left.
    size: IntArray
    #: (n,): the existential support, a label whose extension by its neighbours costs nothing.
    support: IntArray
    #: (cells,): the stamp of the node at which each cell was last changed.
    stamp: IntArray
    #: (4 cells at first,): the cells that were changed, in this order, and their former values.
    trail_at: IntArray
    trail_old: IntArray
    #: (v,): the labels of each variable, the ones left first; and the position of each label.
    dom: IntArray
    pos: IntArray
    #: (shifts,): where the last support of a label was found: the other label for functions of two
    #: variables, else an entry of ``tables``.
    hint: IntArray
    #: (n,): the pending checks, a sum of ``ARC``, ``DIRECTIONAL``, ``EXISTENTIAL`` and ``NEAR``.
    flags: IntArray
    #: (n,): scratch, whether a function of the variable adds to the labelling of the supports.
    marked: IntArray
    #: (f,): one more than the conflicts at each function.
    weight: IntArray
    #: (largest domain,): scratch, the cost of the full support of each label.
    least: IntArray
    #: (r,): scratch, the labels of a scope, and their positions in the domains.
    digits: IntArray
    turns: IntArray
    #: (n,): the best labelling.
    best: IntArray
    #: (levels,): the decision of each level: its variable and label, the length of the trail and
    #: the bound before it, and whether the label has been ruled out after its branch was explored.
    var: IntArray
    label: IntArray
    mark: IntArray
    bound: IntArray
    right: IntArray
    #: (pool,): nodes of the best-first search: the node above, and the decision that leads here
    #: from there: a label that is assigned or ruled out.
    parent: IntArray
    decision_var: IntArray
    decision_label: IntArray
    decision_assigns: IntArray
    #: (pool,): the unexplored nodes, the least bound first, the deepest first of equal ones.
    open: Heap
    #: (1,): the single numbers.
    now: One[SearchNumbers]


def make_functions(network: CostNetwork, order: list[int], unit: int) -> tuple[Functions, IntArray]:
    """Return the cost functions of a network in units, and the unary costs."""
    rank = {v: r for r, v in enumerate(order)}
    sizes = [int(network.domains.sizes[v]) for v in order]
    ptr = starts_of(sizes)
    unary = np.zeros(ptr[-1], dtype=np.int64)
    slots, scope, stride, table_at, tables = [0], [], [], [], []
    known: dict[bytes, int] = {}
    filled = 0
    for variables, table in network.functions.items():
        if len(variables) == 1:
            r = rank[variables[0]]
            unary[ptr[r] : ptr[r + 1]] = table
            continue
        ranks = [rank[v] for v in variables]
        if ranks != sorted(ranks):
            table = table.transpose(np.argsort(ranks))
        table = np.ascontiguousarray(table)
        scope += sorted(ranks)
        stride += [step // table.itemsize for step in table.strides]
        slots.append(len(scope))
        content = table.tobytes()
        if content not in known:
            known[content] = filled
            tables.append(table.ravel())
            filled += table.size
        table_at.append(known[content])

    def ints(values: list[int]) -> IntArray:
        return np.array(values, dtype=np.int64)

    members = ints(scope)
    widths = np.diff(ptr)[members]
    function = np.repeat(np.arange(len(table_at)), np.diff(slots))
    functions = Functions(
        ptr=ptr,
        slots=ints(slots),
        scope=members,
        stride=ints(stride),
        shift_at=np.cumsum(widths) - widths,
        function=function,
        table_at=ints(table_at),
        tables=_in_units(np.concatenate([*tables, ints([])]), unit),
        incident_ptr=np.searchsorted(np.sort(members), np.arange(len(order) + 1)),
        incident=np.argsort(members, kind="stable"),
    )
    return functions, _in_units(unary, unit)


def _in_units(costs: IntArray, unit: int) -> IntArray:
    return np.where(costs >= HARD, FORBIDDEN, costs // unit)


def make_state(p: Functions, unary: IntArray, cutoff: int) -> SearchState:
    """Return the state at the root of the search, with nothing propagated."""
    n, values = p.ptr.size - 1, int(p.ptr[-1])
    widths = np.diff(p.ptr)
    of_slot = widths[p.scope]
    shifts = int(of_slot.sum())
    arity = int(np.diff(p.slots).max(initial=1))

    def ints(size: int) -> IntArray:
        return np.zeros(size, dtype=np.int64)

    cell = ints(1 + values + shifts + 2 * n)
    begin = [1, 1 + values, 1 + values + shifts, 1 + values + shifts + n]
    labels = np.arange(values) - np.repeat(p.ptr[:-1], widths)
    cell[1 : 1 + values] = unary
    cell[begin[2] : begin[3]] = widths
    # The hint of a function of two variables is a label of the other variable.
    own = np.arange(shifts) - np.repeat(p.shift_at, of_slot)
    entry = np.repeat(p.table_at[p.function], of_slot) + own * np.repeat(p.stride, of_slot)
    binary = np.diff(p.slots)[p.function] == 2
    depth = values + 1
    now = record(SearchNumbers)
    first = now[0]
    first.stamp = first.stamps = first.limit = first.pool = 1
    first.cutoff = first.best_cost = cutoff
    first.pruned_low = first.root_cutoff = first.last = -1
    first.shift_from, first.size_at, first.support_at = begin[1:]
    first.most_backtracks = MOST_BACKTRACKS
    first.at_root = True
    state = SearchState(
        cell=cell,
        low=cell[:1],
        unary=cell[begin[0] : begin[1]],
        shift=cell[begin[1] : begin[2]],
        size=cell[begin[2] : begin[3]],
        stamp=ints(cell.size),
        trail_at=ints(_TRAIL * cell.size),
        trail_old=ints(_TRAIL * cell.size),
        dom=labels.copy(),
        pos=labels,
        hint=np.where(np.repeat(binary, of_slot), 0, entry),
        support=cell[begin[3] :],
        flags=np.full(n, ALL, dtype=np.int64),
        marked=ints(n),
        weight=np.ones(p.table_at.size, dtype=np.int64),
        least=ints(int(widths.max(initial=1))),
        digits=ints(arity),
        turns=ints(arity),
        best=ints(n),
        var=ints(depth),
        label=ints(depth),
        mark=ints(depth),
        bound=ints(depth),
        right=ints(depth),
        parent=ints(_POOL),
        decision_var=ints(_POOL),
        decision_label=ints(_POOL),
        decision_assigns=ints(_POOL),
        open=empty_heap(ints(_POOL), ints(_POOL)),
        now=now,
    )
    push(state.open, 0)
    return state


def with_longer_trail(s: SearchState) -> SearchState:
    """Return the same state with room for twice as long a trail."""
    room = np.zeros_like(s.trail_at)
    return s._replace(
        trail_at=np.concatenate([s.trail_at, room]), trail_old=np.concatenate([s.trail_old, room])
    )


def least_bound(s: SearchState) -> int:
    """Return a lower bound on the cost of all unexplored labellings."""
    now = s.now[0]
    bounds = [int(now.cutoff)]
    if s.open.size[0]:
        bounds.append(int(s.open.key[s.open.items[0]]))
    if now.active:
        bounds.append(int(now.node_bound))
    return max(int(now.root_low), min(bounds))
