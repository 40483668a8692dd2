"""Elimination orders, and the table sizes that exact inference along them needs.

The largest table decides whether exact inference is possible, and is known before anything is
allocated. Its number of variables minus one is the *width*.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from inference_lab.algorithms.elimination.interactions import Interactions
from inference_lab.algorithms.elimination.min_fill import (
    AS_GIVEN,
    BY_FILL,
    BY_SIZE,
    DIGIT,
    contract,
    eliminate,
    reduce,
)
from inference_lab.graph.arrays import IntArray

#: Steps of the search for an order: about half a second.
_SEARCH_STEPS = 300_000_000
#: Additional steps of the search per variable, for large graphs.
_STEPS_PER_VARIABLE = 1_000
#: Steps of the search for a better order per table entry that it could save.
_STEPS_PER_ENTRY = 0.3
#: Number of steps, about a millisecond, up to which ten times as many steps per entry are allowed.
_CHEAP_STEPS = 300_000
#: Most random restarts.
_MAX_RESTARTS = 3000


@dataclass(frozen=True)
class Elimination:
    """Elimination order of the variables, and its costs."""

    #: The variables with two or more allowed labels; shorter if the search gave up.
    order: IntArray
    #: Name of the method that found the order.
    method: str
    #: False if every order tried has a table above the limit. The longest partial order is then
    #: kept, and the figures cover the part up to and including the table that is too large.
    complete: bool
    #: Variables in the largest table, minus one.
    width: int
    #: `log2_largest`, `log2_total`: binary logarithm of the number of entries of the largest table,
    #: and of all tables.
    log2_largest: float
    log2_total: float
    #: Proved lower bound on the largest table of every order (0 if none was computed).
    log2_needed: float
    #: Whether the search ran out of steps and might have found a better order with more.
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
    """Yield the ways to order a graph, greedy ones first: name, rule, weights, ties."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    n = graph.variables.size
    ones = np.ones(n, dtype=np.int64)
    digits = np.maximum(1, np.round(DIGIT * graph.log2_sizes)).astype(np.int64)
    plain = np.arange(n)
    ragged = bool((digits != digits[:1]).any())
    yield "min-fill", BY_FILL, ones, plain
    if ragged:
        yield "weighted min-fill", BY_FILL, digits, plain
    yield "min-degree", BY_SIZE, ones, plain
    if ragged:
        yield "min-size", BY_SIZE, digits, plain
    yield "as numbered", AS_GIVEN, ones, plain
    entries: Any = np.ones(graph.neighbours.size, dtype=np.int8)
    adjacency = csr_array((entries, graph.neighbours, graph.ptr), shape=(n, n))
    profile = np.empty(n, dtype=np.int64)
    profile[reverse_cuthill_mckee(adjacency, symmetric_mode=True)] = plain
    yield "reverse Cuthill-McKee", AS_GIVEN, ones, profile
    for restart in range(_MAX_RESTARTS):
        if ragged and restart % 4:
            yield "weighted min-fill, random ties", BY_FILL, digits, rng.permutation(n)
        else:
            yield "min-fill, random ties", BY_FILL, ones, rng.permutation(n)


def _search(graph: Interactions, log2_limit: float, most_steps: int) -> tuple[_Attempt, bool]:
    """Try candidates while it may pay; return the best order and whether it was cut short."""
    n = graph.variables.size
    best: _Attempt | None = None
    spent = 0
    cut_short = False
    for method, rule, weights, ties in _candidates(graph, np.random.default_rng(0)):
        allowance = most_steps - spent
        if best is None:
            allowance //= 2
        elif best.complete:
            # The best order bounds the savings, so a longer search than its cost cannot pay.
            saved = _STEPS_PER_ENTRY * best.entries
            allowance = min(allowance, int(max(min(10.0 * saved, _CHEAP_STEPS), saved)) - spent)
        if best is not None and allowance <= 0:
            cut_short = spent >= most_steps
            break
        entry_limit = best.entries if best is not None and best.complete else math.inf
        order, variables, largest, entries, steps = eliminate(
            graph, weights, rule, ties, log2_limit, entry_limit, max(allowance, 1)
        )
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
    """Find an order with small tables."""
    # Safe reductions come first (van den Eijkhof, Bodlaender and Koster 2007). The rest gets the
    # order of least total table size from these candidates: min-fill, min-fill weighted by the
    # number of labels, min-degree, the variables' own order, and reverse Cuthill-McKee (the last
    # two suit long, narrow graphs). Then min-fill with random ties is tried while a better order
    # could save more than the search costs (Bodlaender and Koster 2010, 2011). About 200 million
    # steps take a second.
    # The size of a table of the three variables with fewest labels; smaller graphs reduce to none.
    necessary = float(np.sort(graph.log2_sizes)[:3].sum())
    first, core, variables, largest, entries = reduce(graph, necessary)
    order = graph.variables[first]
    method = "safe reductions"
    complete = True
    needed = 0.0
    cut_short = False
    if core.variables.size:
        step_limit = int(min(most_steps, _SEARCH_STEPS + _STEPS_PER_VARIABLE * core.variables.size))
        needed = float(contract(core, log2_enough, step_limit // 4))
        if needed >= log2_enough:
            complete = False
        else:
            attempt, cut_short = _search(core, log2_limit, step_limit)
            order = np.concatenate([order, core.variables[attempt.order]])
            method, complete = attempt.method, attempt.complete
            variables = max(variables, attempt.variables)
            largest = max(largest, attempt.log2_largest)
            entries += attempt.entries
    return Elimination(
        order=order,
        method=method,
        complete=complete,
        width=max(0, variables - 1),
        log2_largest=largest,
        log2_total=math.log2(entries) if entries > 0 else 0.0,
        log2_needed=needed,
        cut_short=cut_short,
    )
