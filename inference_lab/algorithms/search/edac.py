"""Branch and bound over integer cost functions, by existential directional arc consistency."""

from __future__ import annotations

from inference_lab._numba import inlined, lean_kernel
from inference_lab.algorithms.search.network import FORBIDDEN, HARD
from inference_lab.algorithms.search.state import (
    ALL,
    ARC,
    DIRECTIONAL,
    EXISTENTIAL,
    NEAR,
    Functions,
    SearchState,
)
from inference_lab.kernels.heap import pop, push

#: Passes of a propagation without a gain before it stops.
_PATIENCE = 20
#: A gain below ``2 ** -_SMALL_GAIN`` of the gap between bound and cutoff does not count.
_SMALL_GAIN = 10

#: Cost of checking a known support, in table entries.
_LOOK = 8

#: Outcomes of a propagation.
CONFLICT, CONSISTENT, INTERRUPTED = 0, 1, 2
#: Outcomes of a search.
DONE, OUT_OF_WORK, IMPROVED, FULL, AT_ROOT = range(5)
#: Outcome of `open_node` if the search goes on.
OPENED = -1


# ------------------------------------------------------------------------------- cells and domains


@inlined
def _put(s: SearchState, at: int, value: int) -> None:
    """Write a cell, and record its old value on the trail."""
    if s.stamp[at] != s.now[0].stamp:
        s.stamp[at] = s.now[0].stamp
        s.trail_at[s.now[0].trail] = at
        s.trail_old[s.now[0].trail] = s.cell[at]
        s.now[0].trail += 1
    s.cell[at] = value


@inlined
def _undo(s: SearchState, mark: int) -> None:
    """Restore all cells to their values at trail length `mark`, and begin a new node."""
    for q in range(s.now[0].trail - 1, mark - 1, -1):
        s.cell[s.trail_at[q]] = s.trail_old[q]
    s.now[0].trail = mark
    s.now[0].stamps += 1
    s.now[0].stamp = s.now[0].stamps


@inlined
def _alive(p: Functions, s: SearchState, i: int, a: int) -> bool:
    return bool(s.pos[p.ptr[i] + a] < s.size[i])


@inlined
def _swap_to(p: Functions, s: SearchState, i: int, a: int, place: int) -> None:
    """Move a label to a position of its sparse set."""
    begin = p.ptr[i]
    here = s.pos[begin + a]
    other = s.dom[begin + place]
    s.dom[begin + here] = other
    s.pos[begin + other] = here
    s.dom[begin + place] = a
    s.pos[begin + a] = place


@lean_kernel
def _drop(p: Functions, s: SearchState, i: int, a: int) -> None:
    """Rule a label out; an empty domain is a conflict."""
    _swap_to(p, s, i, a, s.size[i] - 1)
    _put(s, s.now[0].size_at + i, s.size[i] - 1)
    s.flags[i] |= ALL
    s.now[0].dropped += 1
    if s.size[i] == 0:
        s.now[0].conflict = True


@lean_kernel
def _raise_bound(p: Functions, s: SearchState, i: int) -> None:
    """Move the least unary cost of a variable to the bound."""
    begin = p.ptr[i]
    least = FORBIDDEN
    for r in range(s.size[i]):
        least = min(least, s.unary[begin + s.dom[begin + r]])
    if least > 0 and s.size[i] > 0:
        if s.low[0] + least >= s.now[0].cutoff:
            s.now[0].conflict = True
            return
        for r in range(s.size[i]):
            at = begin + s.dom[begin + r]
            _put(s, 1 + at, s.unary[at] - least)
        _put(s, 0, s.low[0] + least)


@lean_kernel
def _gain(p: Functions, s: SearchState, t: int, i: int, a: int, amount: int) -> None:
    """Project a cost of a function to a label, or drop the label if that reaches the cutoff."""
    at = p.ptr[i] + a
    if s.low[0] + s.unary[at] + amount >= s.now[0].cutoff:
        _drop(p, s, i, a)
        return
    if s.unary[at] == 0:
        s.flags[i] |= DIRECTIONAL | EXISTENTIAL | NEAR
    _put(s, s.now[0].shift_from + p.shift_at[t] + a, s.shift[p.shift_at[t] + a] + amount)
    _put(s, 1 + at, s.unary[at] + amount)


# ----------------------------------------------------------------------------------------- supports


@inlined
def _first(p: Functions, s: SearchState, f: int, fixed: int, a: int) -> int:
    """Set all slots of a function but `fixed` to their first labels; return the entry."""
    at = p.table_at[f]
    for t in range(p.slots[f], p.slots[f + 1]):
        i = p.scope[t]
        s.turns[t - p.slots[f]] = 0
        b = a if t == fixed else s.dom[p.ptr[i]]
        s.digits[t - p.slots[f]] = b
        at += b * p.stride[t]
    return int(at)


@inlined
def _next(p: Functions, s: SearchState, f: int, fixed: int, at: int) -> int:
    """Advance the labels of all slots but `fixed`; return the entry, -1 after the last."""
    for t in range(p.slots[f + 1] - 1, p.slots[f] - 1, -1):
        if t == fixed:
            continue
        i = p.scope[t]
        d = t - p.slots[f]
        s.turns[d] += 1
        more = s.turns[d] < s.size[i]
        if not more:
            s.turns[d] = 0
        b = s.dom[p.ptr[i] + s.turns[d]]
        at += (b - s.digits[d]) * p.stride[t]
        s.digits[d] = b
        if more:
            return int(at)
    return -1


@inlined
def _cost_at(p: Functions, s: SearchState, f: int, at: int, fixed: int, soft: int) -> int:
    """Return the cost of the current labels, plus the unary costs of other slots if `soft`."""
    cost = p.tables[at]
    for t in range(p.slots[f], p.slots[f + 1]):
        b = s.digits[t - p.slots[f]]
        cost -= s.shift[p.shift_at[t] + b]
        if soft and t != fixed:
            cost += s.unary[p.ptr[p.scope[t]] + b]
    return int(cost)


@lean_kernel
def _support(p: Functions, s: SearchState, t: int, a: int, soft: int) -> int:
    """Return the least cost of a function with label ``a`` at a slot, and update the hint."""
    f = p.function[t]
    lo = p.slots[f]
    own = p.shift_at[t] + a
    s.now[0].work += _LOOK
    if p.slots[f + 1] - lo == 2:
        u = 2 * lo + 1 - t
        j = p.scope[u]
        values, shifts, step = p.ptr[j], p.shift_at[u], p.stride[u]
        row = p.table_at[f] + a * p.stride[t]
        shifted = s.shift[own]
        b = s.hint[own]
        if (
            s.pos[values + b] < s.size[j]
            and p.tables[row + b * step] - shifted - s.shift[shifts + b] == 0
            and (soft == 0 or s.unary[values + b] == 0)
        ):
            return 0
        least = 4 * FORBIDDEN
        s.now[0].work += s.size[j]
        for r in range(s.size[j]):
            c = s.dom[values + r]
            cost = p.tables[row + c * step] - s.shift[shifts + c] + soft * s.unary[values + c]
            if cost < least:
                least = cost
                b = c
        s.hint[own] = b
        return int(least - shifted)
    # The hint is an entry of the table.
    at = s.hint[own]
    good = True
    for r in range(lo, p.slots[f + 1]):
        i = p.scope[r]
        b = (at - p.table_at[f]) // p.stride[r] % (p.ptr[i + 1] - p.ptr[i])
        s.digits[r - lo] = b
        good = good and _alive(p, s, i, b)
    if good and _cost_at(p, s, f, at, t, soft) == 0:
        return 0
    least = 4 * FORBIDDEN
    at = _first(p, s, f, t, a)
    while at >= 0:
        s.now[0].work += 4
        cost = _cost_at(p, s, f, at, t, soft)
        if cost < least:
            least = cost
            s.hint[own] = at
            if cost == 0:
                break
        at = _next(p, s, f, t, at)
    return int(least)


@lean_kernel
def _project(p: Functions, s: SearchState, t: int) -> None:
    """Project the min-marginals of a slot to unary costs, so that each label has a support."""
    i = p.scope[t]
    changed = False
    for r in range(s.size[i] - 1, -1, -1):
        a = s.dom[p.ptr[i] + r]
        least = _support(p, s, t, a, 0)
        if least > 0:
            _gain(p, s, t, i, a, least)
            changed = True
    if changed:
        _raise_bound(p, s, i)
        if s.now[0].conflict:
            s.weight[p.function[t]] += 1


@lean_kernel
def _extend(p: Functions, s: SearchState, t: int) -> None:
    """Extend to a function the least unary costs that pay for ``least`` at a slot."""
    f = p.function[t]
    i = p.scope[t]
    for u in range(p.slots[f], p.slots[f + 1]):
        j = p.scope[u]
        if u == t:
            continue
        for q in range(s.size[j]):
            b = s.dom[p.ptr[j] + q]
            if s.unary[p.ptr[j] + b] == 0:
                continue
            needed = -FORBIDDEN
            if p.slots[f + 1] - p.slots[f] == 2:
                row = p.table_at[f] + b * p.stride[u]
                s.now[0].work += s.size[i]
                for r in range(s.size[i]):
                    a = s.dom[p.ptr[i] + r]
                    cost = p.tables[row + a * p.stride[t]] - s.shift[p.shift_at[t] + a]
                    needed = max(needed, s.least[a] - cost)
                needed += s.shift[p.shift_at[u] + b]
            else:
                at = _first(p, s, f, u, b)
                while at >= 0:
                    s.now[0].work += 4
                    cost = _cost_at(p, s, f, at, u, 0)
                    # Slots before `u` have been extended already.
                    for w in range(u + 1, p.slots[f + 1]):
                        if w != t:
                            cost += s.unary[p.ptr[p.scope[w]] + s.digits[w - p.slots[f]]]
                    needed = max(needed, s.least[s.digits[t - p.slots[f]]] - cost)
                    at = _next(p, s, f, u, at)
            if needed > 0:
                at = p.shift_at[u] + b
                _put(s, s.now[0].shift_from + at, s.shift[at] - needed)
                _put(s, 1 + p.ptr[j] + b, s.unary[p.ptr[j] + b] - needed)


@lean_kernel
def _project_fully(p: Functions, s: SearchState, t: int) -> None:
    """Give each label of a slot a full support, paid for by the unary costs of the others."""
    i = p.scope[t]
    changed = dropped = False
    for r in range(s.size[i]):
        a = s.dom[p.ptr[i] + r]
        least = _support(p, s, t, a, 1)
        s.least[a] = least
        changed |= least > 0
        dropped |= s.low[0] + s.unary[p.ptr[i] + a] + least >= s.now[0].cutoff
    if not changed:
        return
    if dropped:
        for r in range(s.size[i] - 1, -1, -1):
            a = s.dom[p.ptr[i] + r]
            if s.low[0] + s.unary[p.ptr[i] + a] + s.least[a] >= s.now[0].cutoff:
                _drop(p, s, i, a)
    if not s.now[0].conflict:
        _extend(p, s, t)
        for r in range(s.size[i] - 1, -1, -1):
            a = s.dom[p.ptr[i] + r]
            if s.least[a] > 0:
                _gain(p, s, t, i, a, s.least[a])
        _raise_bound(p, s, i)
    if s.now[0].conflict:
        s.weight[p.function[t]] += 1


@lean_kernel
def _supported(p: Functions, s: SearchState, i: int, a: int) -> bool:
    """Whether a label has zero unary cost and a full support in every function."""
    if s.unary[p.ptr[i] + a] > 0:
        return False
    for q in range(p.incident_ptr[i], p.incident_ptr[i + 1]):
        if _support(p, s, p.incident[q], a, 1) > 0:
            return False
    return True


@lean_kernel
def _choose(p: Functions, s: SearchState, i: int) -> None:
    """Choose a label of zero unary cost."""
    for r in range(s.size[i]):
        a = s.dom[p.ptr[i] + r]
        if s.unary[p.ptr[i] + a] == 0:
            _put(s, s.now[0].support_at + i, a)
            break


@lean_kernel
def _enforce_existential(p: Functions, s: SearchState, i: int) -> None:
    """Find a label with full supports everywhere, or raise the bound."""
    if s.size[i] == 0:
        return
    a = s.support[i]
    if _alive(p, s, i, a) and _supported(p, s, i, a):
        return
    for r in range(s.size[i]):
        a = s.dom[p.ptr[i] + r]
        if _supported(p, s, i, a):
            _put(s, s.now[0].support_at + i, a)
            return
    for q in range(p.incident_ptr[i], p.incident_ptr[i + 1]):
        _project_fully(p, s, p.incident[q])
        if s.now[0].conflict:
            return
    for q in range(p.incident_ptr[i], p.incident_ptr[i + 1]):
        f = p.function[p.incident[q]]
        for u in range(p.slots[f], p.slots[f + 1]):
            if p.scope[u] > i:
                s.flags[p.scope[u]] |= EXISTENTIAL
    _choose(p, s, i)


# -------------------------------------------------------------------------------------- propagation


@lean_kernel
def _prune(p: Functions, s: SearchState) -> None:
    """Rule out all labels whose unary cost reaches the gap between bound and cutoff."""
    s.now[0].pruned_low = s.low[0]
    s.now[0].pruned_cutoff = s.now[0].cutoff
    room = s.now[0].cutoff - s.low[0]
    for i in range(p.ptr.size - 1):
        if s.size[i] > 1:
            begin = p.ptr[i]
            for r in range(s.size[i] - 1, -1, -1):
                if s.unary[begin + s.dom[begin + r]] >= room:
                    _drop(p, s, i, s.dom[begin + r])
        if s.now[0].conflict:
            return


@lean_kernel
def _spread(p: Functions, s: SearchState) -> None:
    """Flag the larger neighbours of variables whose costs rose, for their existential support."""
    for i in range(p.ptr.size - 1):
        if not s.flags[i] & NEAR:
            continue
        s.flags[i] &= ~NEAR
        for q in range(p.incident_ptr[i], p.incident_ptr[i + 1]):
            t = p.incident[q]
            f = p.function[t]
            for u in range(p.slots[f] + 1, p.slots[f + 1]):
                if u != t:
                    s.flags[p.scope[u]] |= EXISTENTIAL


@inlined
def _stalled(s: SearchState) -> bool:
    """Whether many passes have neither ruled out a label nor raised the bound noticeably."""
    # Between functions of three or more variables, costs can circulate for ever.
    gain = s.low[0] - s.now[0].idle_low
    if (
        s.now[0].dropped != s.now[0].idle_dropped
        or gain < 0
        or gain >= 1 + ((s.now[0].cutoff - s.low[0]) >> _SMALL_GAIN)
    ):
        s.now[0].idle = 0
        s.now[0].idle_low = s.low[0]
        s.now[0].idle_dropped = s.now[0].dropped
    s.now[0].idle += 1
    return bool(s.now[0].idle > _PATIENCE)


@lean_kernel
def _settle(p: Functions, s: SearchState) -> None:
    """Stop a propagation: let each variable choose a label of zero unary cost."""
    s.now[0].idle = 0
    for i in range(p.ptr.size - 1):
        s.flags[i] = 0
        if not _alive(p, s, i, s.support[i]) or s.unary[p.ptr[i] + s.support[i]] > 0:
            _choose(p, s, i)


@lean_kernel
def propagate(p: Functions, s: SearchState) -> int:
    """Enforce existential directional arc consistency; return `CONFLICT` at the cutoff."""
    n = p.ptr.size - 1
    s.now[0].conflict = s.low[0] >= s.now[0].cutoff
    # Not narrowed to False by type checkers, since steps of the loop set it.
    while not bool(s.now[0].conflict):
        if s.now[0].work > s.now[0].most_work:
            return INTERRUPTED
        if _stalled(s):
            _settle(p, s)
            return CONSISTENT
        if s.now[0].pruned_low != s.low[0] or s.now[0].pruned_cutoff != s.now[0].cutoff:
            _prune(p, s)
            continue
        _spread(p, s)
        s.now[0].work += n
        any_left = 0
        for i in range(n):
            any_left |= s.flags[i]
        if any_left == 0:
            return CONSISTENT
        if any_left & EXISTENTIAL:
            for i in range(n):
                if s.flags[i] & EXISTENTIAL:
                    s.flags[i] &= ~EXISTENTIAL
                    _enforce_existential(p, s, i)
                    if s.now[0].conflict or s.now[0].work > s.now[0].most_work:
                        break
            continue
        if any_left & DIRECTIONAL:
            for i in range(n - 1, -1, -1):
                if s.flags[i] & DIRECTIONAL == 0:
                    continue
                s.flags[i] &= ~DIRECTIONAL
                for q in range(p.incident_ptr[i], p.incident_ptr[i + 1]):
                    t = p.incident[q]
                    first = p.slots[p.function[t]]
                    if t != first:
                        _project_fully(p, s, first)
                        if s.now[0].conflict:
                            break
                if s.now[0].conflict or s.now[0].work > s.now[0].most_work:
                    break
            continue
        for i in range(n):
            if s.flags[i] & ARC == 0:
                continue
            s.flags[i] &= ~ARC
            for q in range(p.incident_ptr[i], p.incident_ptr[i + 1]):
                t = p.incident[q]
                f = p.function[t]
                for u in range(p.slots[f] + 1, p.slots[f + 1]):
                    if u != t:
                        _project(p, s, u)
                    if s.now[0].conflict:
                        break
                if s.now[0].conflict:
                    break
            if s.now[0].conflict or s.now[0].work > s.now[0].most_work:
                break
    for i in range(n):
        s.flags[i] = 0
    return CONFLICT


# ------------------------------------------------------------------------------------------- search


@lean_kernel
def complete(p: Functions, s: SearchState) -> int:
    """Evaluate the labelling of the supports; return the branching variable, -1 for none."""
    # There is none if the bound reaches the cutoff, so that the node is done.
    total = s.low[0]
    for i in range(p.ptr.size - 1):
        s.marked[i] = 0
    for f in range(p.slots.size - 1):
        at = p.table_at[f]
        for t in range(p.slots[f], p.slots[f + 1]):
            a = s.support[p.scope[t]]
            at += a * p.stride[t]
        cost = p.tables[at]
        for t in range(p.slots[f], p.slots[f + 1]):
            cost -= s.shift[p.shift_at[t] + s.support[p.scope[t]]]
        if cost > 0:
            total = min(FORBIDDEN, total + cost)
            for t in range(p.slots[f], p.slots[f + 1]):
                s.marked[p.scope[t]] = 1
    s.now[0].work += p.scope.size
    if total < s.now[0].best_cost:
        s.now[0].best_cost = total
        s.now[0].cutoff = max(0, total - s.now[0].slack)
        for i in range(p.ptr.size - 1):
            s.best[i] = s.support[i]
        s.now[0].improved = True
    if s.low[0] >= s.now[0].cutoff:
        return -1
    last = s.now[0].last
    if last >= 0 and s.size[last] > 1:
        return int(last)
    branch = -1
    best = 0.0
    for i in range(p.ptr.size - 1):
        if s.marked[i] == 0 or s.size[i] == 1:
            continue
        weight = 1
        for q in range(p.incident_ptr[i], p.incident_ptr[i + 1]):
            f = p.function[p.incident[q]]
            for t in range(p.slots[f], p.slots[f + 1]):
                if p.scope[t] != i and s.size[p.scope[t]] > 1:
                    weight += s.weight[f]
                    break
        s.now[0].work += p.incident_ptr[i + 1] - p.incident_ptr[i]
        score = weight / s.size[i]
        if branch < 0 or score > best:
            branch = i
            best = score
    return branch


@inlined
def _first_label(p: Functions, s: SearchState, i: int) -> int:
    """Return the label to try first: the support, or in every other dive the incumbent's."""
    # Better labellings often resemble the incumbent; the other dives find those that do not.
    a = s.best[i]
    if s.now[0].dives % 2 == 0 and s.now[0].best_cost < HARD and _alive(p, s, i, a):
        return int(a)
    return int(s.support[i])


@lean_kernel
def _decide(p: Functions, s: SearchState, i: int, a: int, assigns: int) -> None:
    """Assign a label, or rule it out."""
    if assigns:
        if _alive(p, s, i, a):
            _swap_to(p, s, i, a, 0)
            _put(s, s.now[0].size_at + i, 1)
            s.flags[i] |= ALL
        else:
            s.now[0].failed = True
    elif _alive(p, s, i, a):
        if s.size[i] == 1:
            s.now[0].failed = True
        else:
            _drop(p, s, i, a)
    if not s.now[0].failed:
        _raise_bound(p, s, i)
        s.now[0].failed = s.now[0].conflict


@inlined
def _new_node(s: SearchState, above: int, i: int, a: int, assigns: int) -> int:
    """Add a node to the pool."""
    node = s.now[0].pool
    s.now[0].pool += 1
    s.parent[node] = above
    s.decision_var[node] = i
    s.decision_label[node] = a
    s.decision_assigns[node] = assigns
    return int(node)


@lean_kernel
def _leave(s: SearchState) -> None:
    """Turn the unexplored branches of the depth-first search into open nodes."""
    above = s.now[0].node
    for level in range(s.now[0].level):
        i, a = s.var[level], s.label[level]
        if s.right[level] == 0:
            other = _new_node(s, above, i, a, 0)
            s.open.key[other] = max(s.bound[level], s.now[0].node_bound)
            s.open.tie[other] = -level
            push(s.open, other)
        above = _new_node(s, above, i, a, 1 - s.right[level])
    s.open.key[above] = max(s.low[0], s.now[0].node_bound)
    s.open.tie[above] = -s.now[0].level
    push(s.open, above)
    s.now[0].level = 0
    s.now[0].active = False


@lean_kernel
def _enter(p: Functions, s: SearchState) -> None:
    """Go to the open node of least bound."""
    node = pop(s.open)
    s.now[0].node = node
    s.now[0].node_bound = s.open.key[node]
    s.now[0].active = True
    s.now[0].backtracks = 0
    s.now[0].dives += 1
    s.now[0].level = 0
    s.now[0].failed = s.now[0].node_bound >= s.now[0].cutoff
    s.now[0].conflict = False
    depth = 0
    while node > 0 and not s.now[0].failed:
        _decide(p, s, s.decision_var[node], s.decision_label[node], s.decision_assigns[node])
        node = s.parent[node]
        depth += 1
    s.now[0].replayed += depth


@lean_kernel
def open_node(p: Functions, s: SearchState) -> int:
    """Enter the open node of least bound: `OPENED`, or the outcome of the search."""
    if not s.now[0].at_root:
        _undo(s, 0)
        for i in range(p.ptr.size - 1):
            s.flags[i] = 0
        s.now[0].at_root = True
    if s.now[0].root_cutoff != s.now[0].cutoff:
        result = propagate(p, s)
        if result == INTERRUPTED:
            return OUT_OF_WORK
        if result == CONFLICT:
            _put(s, 0, s.now[0].cutoff)
            return DONE
        # Changes at the root are never undone, because they hold in the whole tree.
        first = s.now[0].root_cutoff < 0
        s.now[0].root_cutoff = s.now[0].cutoff
        s.now[0].root_low = s.low[0]
        s.now[0].trail = 0
        _undo(s, 0)
        if first:
            return AT_ROOT
    if s.open.size[0] == 0 or s.open.key[s.open.items[0]] >= s.now[0].cutoff:
        return DONE
    s.now[0].at_root = False
    _enter(p, s)
    return OPENED


@lean_kernel
def descend(p: Functions, s: SearchState, branch: int) -> bool:
    """Decide on a variable, or leave for the best open node; return False if memory is full."""
    level = s.now[0].level
    full = s.now[0].trail + s.cell.size > s.trail_at.size
    room = s.now[0].pool + 2 * level + 2 < s.parent.size
    if full and (level == 0 or not room):
        return False
    if (full or s.now[0].backtracks >= s.now[0].limit) and room and level > 0:
        _leave(s)
        # Depth-first searches get longer while too much of the work is to repeat decisions.
        if s.now[0].replayed * 10 > s.now[0].nodes:
            s.now[0].limit = min(2 * s.now[0].limit, s.now[0].most_backtracks)
        elif s.now[0].replayed * 20 < s.now[0].nodes:
            s.now[0].limit = max(1, s.now[0].limit // 2)
        return True
    s.var[level] = branch
    s.label[level] = _first_label(p, s, branch)
    s.mark[level] = s.now[0].trail
    s.bound[level] = s.low[0]
    s.right[level] = 0
    s.now[0].level = level + 1
    s.now[0].stamps += 1
    s.now[0].stamp = s.now[0].stamps
    _decide(p, s, branch, s.label[level], 1)
    return True


@lean_kernel
def backtrack(p: Functions, s: SearchState) -> None:
    """Reverse the last decision with an unexplored branch, or end the search of the open node."""
    level = s.now[0].level
    s.now[0].backtracks += 1
    s.now[0].all_backtracks += 1
    for i in range(p.ptr.size - 1):
        s.flags[i] = 0
    while level > 0 and (s.right[level - 1] == 1 or s.bound[level - 1] >= s.now[0].cutoff):
        level -= 1
    s.now[0].level = level
    if level == 0:
        s.now[0].active = False
        return
    level -= 1
    _undo(s, s.mark[level])
    s.right[level] = 1
    s.now[0].last = s.var[level]
    s.now[0].failed = s.now[0].conflict = False
    _decide(p, s, s.var[level], s.label[level], 0)


@lean_kernel
def search(p: Functions, s: SearchState) -> int:
    """Continue the search until it is done, out of work, or has found a better labelling."""
    s.now[0].improved = False
    while True:
        if s.now[0].work > s.now[0].most_work:
            return OUT_OF_WORK
        if s.now[0].improved:
            return IMPROVED
        if not s.now[0].active:
            outcome = open_node(p, s)
            if outcome != OPENED:
                return outcome
        result = CONFLICT
        if not s.now[0].failed:
            result = propagate(p, s)
            if result == INTERRUPTED:
                return OUT_OF_WORK
        s.now[0].nodes += 1
        branch = complete(p, s) if result == CONSISTENT else -1
        if branch < 0:
            backtrack(p, s)
        elif not descend(p, s, branch):
            return FULL
