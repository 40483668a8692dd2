"""Joint labels, messages and expected costs of higher-order factors.

Joint labels are enumerated in mixed radix, the last variable fastest, as in a factor's table:
``digits`` holds a label for each of ``scopes[lo:hi]``, from ``digits[0]`` on. Functions take only
the arrays that they read, because passing all arrays of a graph takes longer than a small message.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from inference_lab._numba import inlined, int64, lean_kernel, lean_minimum
from inference_lab.graph.arrays import FloatArray, GraphArrays, IntArray
from inference_lab.kernels.messages import least


@inlined
def entry_of(g: GraphArrays, f: int, digits: IntArray) -> int:
    """Return the index in ``tables`` of the cost of these labels of all variables of a factor."""
    lo = g.factor_ptr[f]
    at = 0
    for s in range(lo, g.factor_ptr[f + 1]):
        at = at * g.cardinalities[g.scopes[s]] + digits[s - lo]
    return int(g.table_ptr[f] + at)


@inlined
def next_labels(g: GraphArrays, lo: int, hi: int, digits: IntArray) -> bool:
    """Advance to the next labels; after the last ones reset to zeros and return False."""
    s = hi - 1
    while s >= lo:
        digits[s - lo] += 1
        if digits[s - lo] < g.cardinalities[g.scopes[s]]:
            return True
        digits[s - lo] = 0
        s -= 1
    return False


@inlined
def n_labels_at(ptr: IntArray, s: int) -> int:
    """Return the number of labels of the variable at a position of ``scopes``, see `slot_ptr`."""
    return int(ptr[np.uint64(s + 1)] - ptr[np.uint64(s)])


@inlined
def next_others(ptr: IntArray, lo: int, hi: int, fixed: int, digits: IntArray) -> bool:
    """Advance all labels but `fixed`; after the last ones reset them and return False."""
    s = hi - 1
    while s >= lo:
        if s != fixed:
            at = np.uint64(s - lo)
            digits[at] += 1
            if digits[at] < n_labels_at(ptr, s):
                return True
            digits[at] = 0
        s -= 1
    return False


@inlined
def _next_allowed(g: GraphArrays, i: int, allowed: npt.NDArray[Any], a: int) -> int:
    """Return the first allowed label from ``a`` on, or the number of labels."""
    start, k = g.unary_ptr[i], g.cardinalities[i]
    while a < k and not allowed[start + a]:
        a += 1
    return a


@inlined
def first_allowed_labels(
    g: GraphArrays, lo: int, hi: int, allowed: npt.NDArray[Any], digits: IntArray
) -> None:
    """Set each digit to the first allowed label of its variable, which must have one."""
    for s in range(lo, hi):
        digits[s - lo] = _next_allowed(g, g.scopes[s], allowed, int64(0))


@inlined
def next_allowed_labels(
    g: GraphArrays, lo: int, hi: int, allowed: npt.NDArray[Any], fixed: int, digits: IntArray
) -> bool:
    """Advance to the next allowed labels; after the last ones reset and return False."""
    # The position `fixed` of ``scopes`` keeps its label; -1 if there is none.
    s = hi - 1
    while s >= lo:
        if s != fixed:
            i = g.scopes[s]
            digits[s - lo] = _next_allowed(g, i, allowed, digits[s - lo] + 1)
            if digits[s - lo] < g.cardinalities[i]:
                return True
            digits[s - lo] = _next_allowed(g, i, allowed, int64(0))
        s -= 1
    return False


# ------------------------------------------------------------------ messages


class _Place(NamedTuple):
    """The factor and receiver of a message.

    The factor's costs begin at `start` of ``tables``, its variables are `lo` to `last` of
    ``scopes``; the receiver is the one at `slot`.
    """

    start: int
    lo: int
    last: int
    slot: int


@inlined
def _place(g: GraphArrays, slot: int) -> _Place:
    f = g.slot_factor[slot]
    return _Place(g.table_ptr[f], g.factor_ptr[f], g.factor_ptr[f + 1] - 1, slot)


@inlined
def _sent(
    ptr: IntArray, lo: int, hi: int, slot: int, incoming: FloatArray, digits: IntArray
) -> float:
    """Add up the messages of positions `lo` to before `hi`, without `slot`, at their labels."""
    total = 0.0
    for s in range(lo, hi):
        if s != slot:
            total += incoming[np.uint64(ptr[np.uint64(s)] + digits[np.uint64(s - lo)])]
    return total


@lean_minimum
def _least(
    tables: FloatArray,
    ptr: IntArray,
    place: _Place,
    incoming: FloatArray,
    out: FloatArray,
    digits: IntArray,
) -> None:
    """Write the minima over the labels of the other variables."""
    lo, last, slot = place.lo, place.last, place.slot
    rows, inner = n_labels_at(ptr, last - 1), n_labels_at(ptr, last)
    before, final = np.uint64(ptr[last - 1]), np.uint64(ptr[last])
    for b in range(n_labels_at(ptr, slot)):
        out[np.uint64(b)] = np.inf
    for s in range(last - 1 - lo):
        digits[np.uint64(s)] = 0
    line = np.uint64(place.start)
    more = True
    while more:
        base = _sent(ptr, lo, last - 1, slot, incoming, digits)
        best = np.inf
        for r in range(rows):
            row = np.uint64(r)
            if slot == last:
                sent = base + incoming[before + row]
                for b in range(inner):
                    c = np.uint64(b)
                    out[c] = min(out[c], tables[line + c] + sent)
            else:
                value = np.inf
                for b in range(inner):
                    c = np.uint64(b)
                    value = min(value, tables[line + c] + incoming[final + c])
                if slot == last - 1:
                    out[row] = min(out[row], value + base)
                else:
                    best = min(best, value + incoming[before + row])
            line += np.uint64(inner)
        if slot < last - 1:
            label = np.uint64(digits[np.uint64(slot - lo)])
            out[label] = min(out[label], best + base)
        more = next_others(ptr, lo, last - 1, -1, digits)


@lean_kernel
def _soften(
    tables: FloatArray,
    ptr: IntArray,
    place: _Place,
    temperature: float,
    incoming: FloatArray,
    out: FloatArray,
    digits: IntArray,
) -> None:
    """Turn the minima in `out` into ``-T log sum exp(-. / T)``, one exponential per entry."""
    lo, last, slot = place.lo, place.last, place.slot
    inner = n_labels_at(ptr, last)
    final = np.uint64(ptr[last])
    n_entries = 1.0
    for s in range(lo, last + 1):
        n_entries *= 1.0 if s == slot else n_labels_at(ptr, s)
    for s in range(last - lo):
        digits[np.uint64(s)] = 0
    for b in range(n_labels_at(ptr, slot)):
        lowest = out[np.uint64(b)]
        if lowest == np.inf:
            continue
        if slot < last:
            digits[np.uint64(slot - lo)] = b
        total = 0.0
        more = True
        while more:
            row = 0
            for s in range(lo, last):
                row = row * n_labels_at(ptr, s) + digits[np.uint64(s - lo)]
            line = np.uint64(place.start + row * inner)
            spare = lowest - _sent(ptr, lo, last, slot, incoming, digits)
            if slot == last:
                total += np.exp((spare - tables[line + np.uint64(b)]) / temperature)
            else:
                for a in range(inner):
                    c = np.uint64(a)
                    value = spare - tables[line + c] - incoming[final + c]
                    total += np.exp(value / temperature)
            more = next_others(ptr, lo, last, slot, digits)
        # The least entry has weight 1, the others at most 1. The rounding of costs of very many
        # temperatures could break this.
        total = min(max(total, 1.0), n_entries)
        out[np.uint64(b)] = lowest - temperature * np.log(total)


@inlined
def min_marginals(
    g: GraphArrays, slot: int, slots: FloatArray, ptr: IntArray, out: FloatArray, digits: IntArray
) -> float:
    """Write the min-sum message of a factor to one of its variables; return its smallest entry."""
    # ``out[b]`` is the minimum over the labels of the factor's other variables of its cost plus
    # their messages, which begin at ``ptr`` of their positions in `slots`.
    _least(g.tables, ptr, _place(g, slot), slots, out, digits)
    return least(n_labels_at(ptr, slot), out)


@inlined
def factor_message(
    g: GraphArrays,
    slot: int,
    temperature: float | None,
    incoming: FloatArray,
    ptr: IntArray,
    out: FloatArray,
    digits: IntArray,
) -> float:
    """Write the message at a temperature, ``-T log sum exp`` in place of the minimum."""
    # At temperature 0 or None this is `min_marginals`.
    smallest = min_marginals(g, slot, incoming, ptr, out, digits)
    if temperature is not None and temperature > 0.0:
        _soften(g.tables, ptr, _place(g, slot), temperature, incoming, out, digits)
        smallest = least(n_labels_at(ptr, slot), out)
    return smallest


@inlined
def add_expectation(
    g: GraphArrays, slot: int, q: FloatArray, cap: float, digits: IntArray, field: FloatArray
) -> None:
    """Add the expected cost of a factor for each label at one position of its scope to `field`."""
    # The other variables have the distributions `q`, laid out like the unaries. Larger costs than
    # `cap` count as `cap`.
    f = g.slot_factor[slot]
    lo, last = g.factor_ptr[f], g.factor_ptr[f + 1] - 1
    i, j = g.scopes[last - 1], g.scopes[last]
    before, final = np.uint64(g.unary_ptr[i]), np.uint64(g.unary_ptr[j])
    inner = g.cardinalities[j]
    for s in range(last - 1 - lo):
        digits[np.uint64(s)] = 0
    line = np.uint64(g.table_ptr[f])
    more = True
    while more:
        weight, total = 1.0, 0.0
        for s in range(lo, last - 1):
            if s != slot:
                weight *= q[np.uint64(g.unary_ptr[g.scopes[s]] + digits[np.uint64(s - lo)])]
        for r in range(g.cardinalities[i]):
            row = np.uint64(r)
            share = weight if slot == last - 1 else weight * q[before + row]
            # Skip zero weights, because zero times an infinite cost is NaN.
            if share > 0.0 and slot == last:
                for b in range(inner):
                    c = np.uint64(b)
                    field[c] += share * min(g.tables[line + c], cap)
            elif share > 0.0:
                value = 0.0
                for b in range(inner):
                    c = np.uint64(b)
                    if q[final + c] > 0.0:
                        value += q[final + c] * min(g.tables[line + c], cap)
                if slot == last - 1:
                    field[row] += share * value
                else:
                    total += share * value
            line += np.uint64(inner)
        if slot < last - 1:
            field[np.uint64(digits[np.uint64(slot - lo)])] += total
        more = next_labels(g, lo, last - 1, digits)
