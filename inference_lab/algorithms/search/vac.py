"""Virtual arc consistency: raise the bound wherever arc consistency proves that it can rise.

Costs of `theta` and more count as forbidden. If arc consistency rules out all labels of a variable,
its causes are traced back. The costs involved are moved to that variable and to the bound.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from inference_lab._numba import inlined, lean_kernel
from inference_lab.algorithms.search.state import Functions, SearchNumbers, SearchState
from inference_lab.graph.arrays import IntArray
from inference_lab.kernels.struct import One

#: Causes of a removal other than the slot of a function: none, or the unary cost.
_NOTHING, _UNARY = -1, -2
#: Largest amount moved at once, number of parts requested from a label, and size of a shift. With
#: these limits all sums fit 64 bits.
_MOST_MOVED, _MOST_PARTS, _MOST_SHIFTED = 1 << 50, 1 << 40, 1 << 57
#: The smallest threshold is ``2 ** -_SMALLEST`` of the gap between bound and cutoff.
_SMALLEST = 14
#: Cost of checking a known support, in table entries.
_LOOK = 2


class Virtual(NamedTuple):
    """The parts of a state that virtual arc consistency reads, and its scratch."""

    #: ``low``, ``unary``, ``shift``, ``size``, ``dom``, ``pos``, ``now``: arrays of the state.
    low: IntArray
    unary: IntArray
    shift: IntArray
    size: IntArray
    dom: IntArray
    pos: IntArray
    now: One[SearchNumbers]
    #: ``killer``, ``when`` (v,): cause and order number of the removal of each value.
    killer: IntArray
    when: IntArray
    #: (v,): removed values, in the order of their removal.
    order: IntArray
    #: (v,): parts requested from each value.
    asked: IntArray
    #: ``out``, ``into``: parts that a function gives to a label of a slot, and receives from it.
    out: IntArray
    into: IntArray
    #: The number of an entry, or a label of the other variable; like ``shift``.
    support: IntArray
    #: (v,): the variable of each value.
    owner: IntArray
    #: (n,): labels that are not ruled out.
    alive: IntArray
    #: ``queue``, ``queued`` (n,): variables with fewer labels than before.
    queue: IntArray
    queued: IntArray
    #: ``moved``, ``is_moved`` (f,): functions whose costs are moved.
    moved: IntArray
    is_moved: IntArray


def make_virtual(p: Functions, s: SearchState) -> Virtual:
    """Return the view of a state at its root that `raise_virtually` takes."""
    n, values, shifts = p.ptr.size - 1, int(p.ptr[-1]), s.shift.size
    sizes = {"killer when order asked": values, "out into support": shifts}
    sizes |= {"alive queue queued": n, "moved is_moved": p.table_at.size}
    scratch = {
        name: np.zeros(size, dtype=np.int64)
        for names, size in sizes.items()
        for name in names.split()
    }
    owner = np.repeat(np.arange(n), np.diff(p.ptr))
    return Virtual(s.low, s.unary, s.shift, s.size, s.dom, s.pos, s.now, owner=owner, **scratch)


@inlined
def _width(p: Functions, t: int) -> int:
    """Return the number of labels of a slot, including removed ones."""
    return int(p.ptr[p.scope[t] + 1] - p.ptr[p.scope[t]])


@inlined
def _label(p: Functions, t: int, e: int) -> int:
    """Return the label of a slot at an entry of the table."""
    return int(e // p.stride[t] % _width(p, t))


@inlined
def _entries(p: Functions, t: int) -> int:
    """Return the number of table entries that contain a given label of a slot."""
    first = p.slots[p.function[t]]
    return int(p.stride[first] * _width(p, first) // _width(p, t))


@inlined
def _entry(p: Functions, t: int, a: int, q: int) -> int:
    """Return entry number ``q`` among the table entries with label ``a`` at a slot."""
    step = p.stride[t]
    return int((q // step * _width(p, t) + a) * step + q % step)


@lean_kernel
def _cost(p: Functions, v: Virtual, f: int, e: int) -> int:
    """Return the cost of an entry; -1 if the search has ruled out one of its labels."""
    cost = p.tables[p.table_at[f] + e]
    for t in range(p.slots[f], p.slots[f + 1]):
        b = _label(p, t, e)
        if v.pos[p.ptr[p.scope[t]] + b] >= v.size[p.scope[t]]:
            return -1
        cost -= v.shift[p.shift_at[t] + b]
    return int(cost)


@lean_kernel
def _supports(p: Functions, v: Virtual, f: int, e: int, theta: int) -> bool:
    """Whether an entry costs less than `theta`, and none of its labels is ruled out."""
    cost = p.tables[p.table_at[f] + e]
    for t in range(p.slots[f], p.slots[f + 1]):
        b = _label(p, t, e)
        at = p.ptr[p.scope[t]] + b
        if v.pos[at] >= v.size[p.scope[t]] or v.killer[at] != _NOTHING:
            return False
        cost -= v.shift[p.shift_at[t] + b]
    return bool(cost < theta)


@lean_kernel
def _supported(p: Functions, v: Virtual, t: int, a: int, theta: int) -> bool:
    """Whether a label of a slot has a support; the last known one is checked first."""
    f = p.function[t]
    own = p.shift_at[t] + a
    lo = p.slots[f]
    v.now[0].work += _LOOK
    if p.slots[f + 1] - lo == 2:
        u = 2 * lo + 1 - t
        j = p.scope[u]
        values, shifts, step = p.ptr[j], p.shift_at[u], p.stride[u]
        row = p.table_at[f] + a * p.stride[t]
        room = theta + v.shift[own]
        b = v.support[own]
        if (
            v.pos[values + b] < v.size[j]
            and v.killer[values + b] == _NOTHING
            and p.tables[row + b * step] - v.shift[shifts + b] < room
        ):
            return True
        v.now[0].work += v.size[j]
        for r in range(v.size[j]):
            b = v.dom[values + r]
            if (
                v.killer[values + b] == _NOTHING
                and p.tables[row + b * step] - v.shift[shifts + b] < room
            ):
                v.support[own] = b
                return True
        return False
    if _supports(p, v, f, _entry(p, t, a, v.support[own]), theta):
        return True
    count = _entries(p, t)
    v.now[0].work += 4 * count
    for q in range(count):
        if _supports(p, v, f, _entry(p, t, a, q), theta):
            v.support[own] = q
            return True
    return False


@inlined
def _kill(v: Virtual, at: int, killer: int, killed: int) -> bool:
    """Rule a value out; return whether the domain of its variable is empty."""
    v.killer[at] = killer
    v.when[at] = killed
    v.order[killed] = at
    v.alive[v.owner[at]] -= 1
    return bool(v.alive[v.owner[at]] == 0)


@lean_kernel
def _close(p: Functions, v: Virtual, theta: int) -> int:
    """Rule values out by arc consistency; return their number, negative if a domain is empty."""
    n = p.ptr.size - 1
    killed = 0
    for i in range(n):
        v.alive[i] = v.size[i]
        v.queue[i] = i
        v.queued[i] = 1
        for r in range(v.size[i]):
            at = p.ptr[i] + v.dom[p.ptr[i] + r]
            v.asked[at] = 0
            v.killer[at] = _NOTHING
    for i in range(n):
        for r in range(v.size[i]):
            at = p.ptr[i] + v.dom[p.ptr[i] + r]
            if v.unary[at] >= theta:
                last = _kill(v, at, _UNARY, killed)
                killed += 1
                if last:
                    return -killed
    head = 0
    waiting = n
    while waiting > 0:
        j = v.queue[head]
        head = (head + 1) % n
        waiting -= 1
        v.queued[j] = 0
        for q in range(p.incident_ptr[j], p.incident_ptr[j + 1]):
            f = p.function[p.incident[q]]
            for t in range(p.slots[f], p.slots[f + 1]):
                if t == p.incident[q]:
                    continue
                i = p.scope[t]
                before = v.alive[i]
                v.now[0].work += _LOOK * v.size[i]
                for r in range(v.size[i]):
                    a = v.dom[p.ptr[i] + r]
                    at = p.ptr[i] + a
                    if v.killer[at] == _NOTHING and not _supported(p, v, t, a, theta):
                        last = _kill(v, at, t, killed)
                        killed += 1
                        if last:
                            return -killed
                if v.alive[i] < before and v.queued[i] == 0:
                    v.queue[(head + waiting) % n] = i
                    v.queued[i] = 1
                    waiting += 1
    return killed


@lean_kernel
def _ask(p: Functions, v: Virtual, at: int, theta: int) -> None:
    """Request the causes of a removal: large costs of a function, and earlier removals."""
    # The deficit of an entry below `theta` is requested from its label that was ruled out first.
    t = v.killer[at]
    f = p.function[t]
    a = at - p.ptr[v.owner[at]]
    v.out[p.shift_at[t] + a] = v.asked[at]
    count = _entries(p, t)
    v.now[0].work += 4 * count
    for q in range(count):
        e = _entry(p, t, a, q)
        cost = _cost(p, v, f, e)
        if cost < 0 or cost >= theta:
            continue
        lacks = 0
        first = at
        place = 0
        for u in range(p.slots[f], p.slots[f + 1]):
            b = _label(p, u, e)
            other = p.ptr[p.scope[u]] + b
            lacks += v.out[p.shift_at[u] + b] - v.into[p.shift_at[u] + b]
            if v.killer[other] != _NOTHING and v.when[other] < v.when[first]:
                first = other
                place = p.shift_at[u] + b
        if lacks > 0:
            v.into[place] += lacks
            v.asked[first] += lacks


@lean_kernel
def _most(p: Functions, v: Virtual, moved: int) -> int:
    """Return the largest part for which no cost of a function becomes negative."""
    part = _MOST_MOVED
    for q in range(moved):
        f = v.moved[q]
        for t in range(p.slots[f], p.slots[f + 1]):
            for r in range(v.size[p.scope[t]]):
                a = v.dom[p.ptr[p.scope[t]] + r]
                own = p.shift_at[t] + a
                parts = abs(v.out[own] - v.into[own])
                if parts > 0:
                    part = min(part, max(0, _MOST_SHIFTED - abs(v.shift[own])) // parts)
                # Costs only fall at entries whose label receives a part.
                count = _entries(p, t) if v.out[own] > 0 else 0
                v.now[0].work += 4 * count
                for w in range(count):
                    e = _entry(p, t, a, w)
                    cost = _cost(p, v, f, e)
                    parts = 0
                    for u in range(p.slots[f], p.slots[f + 1]):
                        at = p.shift_at[u] + _label(p, u, e)
                        parts += v.out[at] - v.into[at]
                    if cost >= 0 and parts > 0:
                        part = min(part, cost // parts)
    return int(part)


@lean_kernel
def _raise_once(p: Functions, v: Virtual, theta: int) -> int:
    """Raise the bound by the first proof that it can rise; return the increase, 0 for none."""
    last = -_close(p, v, theta) - 1
    if last < 0:
        return 0
    wiped = v.owner[v.order[last]]
    begin = p.ptr[wiped]
    for r in range(v.size[wiped]):
        v.asked[begin + v.dom[begin + r]] = 1
    part = _MOST_MOVED
    most = 1
    moved = 0
    for q in range(last, -1, -1):
        at = v.order[q]
        most = max(most, v.asked[at])
        if v.asked[at] == 0 or most > _MOST_PARTS:
            continue
        if v.killer[at] == _UNARY:
            part = min(part, v.unary[at] // v.asked[at])
            continue
        f = p.function[v.killer[at]]
        if v.is_moved[f] == 0:
            v.is_moved[f] = 1
            v.moved[moved] = f
            moved += 1
        _ask(p, v, at, theta)
    part = 0 if most > _MOST_PARTS else min(part, _MOST_MOVED // most)
    if part > 0:
        part = min(part, _most(p, v, moved))
    for q in range(moved):
        f = v.moved[q]
        v.is_moved[f] = 0
        for t in range(p.slots[f], p.slots[f + 1]):
            i = p.scope[t]
            for r in range(v.size[i]):
                a = v.dom[p.ptr[i] + r]
                at = p.shift_at[t] + a
                amount = part * (v.out[at] - v.into[at])
                v.shift[at] += amount
                v.unary[p.ptr[i] + a] += amount
                v.out[at] = v.into[at] = 0
    for r in range(v.size[wiped]):
        v.unary[begin + v.dom[begin + r]] -= part
    v.low[0] += part
    return int(part)


@lean_kernel
def raise_virtually(p: Functions, v: Virtual, theta: int, work: int) -> int:
    """Raise the bound while arc consistency proves that it can rise, at falling thresholds."""
    # Cooper et al., Artificial Intelligence 174, 2010. Returns the threshold to continue with, 0
    # when done; a bound of the cutoff or more proves that no labelling costs less.
    now = v.now[0]
    until = now.work + work
    lacks = min(now.cutoff - v.low[0], _MOST_MOVED)
    theta = min(theta, lacks)
    while theta > lacks >> _SMALLEST and v.low[0] < now.cutoff:
        if now.work > until:
            return int(theta)
        if _raise_once(p, v, theta) == 0:
            theta //= 2
    return 0
