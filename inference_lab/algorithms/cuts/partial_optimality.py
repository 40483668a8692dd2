"""Partial optimality: rule out labels that some optimal labelling does not use.

Two tests, each of which keeps an optimal labelling, are applied in turn:

* *dead-end elimination* (Goldstein 1994): label ``a`` of variable ``i`` is dropped for ``b`` if
  ``theta_i(b) - theta_i(a) + sum_f max_z (theta_f(b, z) - theta_f(a, z)) <= 0``;
* *roof duality* (Hammer, Hansen, Simeone 1984), once no variable has more than two labels, without
  higher-order factors.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from inference_lab.algorithms.cuts.dead_end_elimination import eliminate_dead_ends
from inference_lab.algorithms.cuts.reduction import (
    Reduction,
    settled,
    shrink,
    unchanged,
    with_forms,
)
from inference_lab.algorithms.cuts.roof_duality import LabelChoice
from inference_lab.graph.arrays import Flags, IntArray, starts_of
from inference_lab.graph.factor_graph import FactorGraph

#: Longest time to build the smaller graph, in energy evaluations, because the clock is not checked
#: meanwhile. Measured on chains, grids and E-steps of a million variables.
SHRINKING = 120.0

#: With more labels than this only the most promising label is tried as a replacement.
_MANY_LABELS = 16

#: Variables between two checks of the clock.
_BLOCK = 2000

#: Another round starts if the last one ruled out more than this share of the labels left.
_WORTHWHILE = 0.002

#: Least share of labels ruled out for which building the smaller graph saves time.
_WORTH_BUILDING = 0.01


class _LabelTests:
    """Labels left, with the tests that rule out more."""

    def __init__(self, graph: FactorGraph, should_stop: Callable[[], bool]) -> None:
        self.graph = graph
        self.should_stop = should_stop
        self.alive = np.ones(graph.unary_values.size, dtype=np.uint8)
        self.n_alive = graph.cardinalities.copy()
        self.infeasible = False
        self.optimum = -math.inf
        self._digits: IntArray | None = None
        if graph.n_factors:
            self._digits = np.zeros(int(np.diff(graph.factor_ptr).max()), dtype=np.int64)
        self._dirty: Flags = (self.n_alive > 1).astype(np.uint8)
        self._choice: LabelChoice | None = None
        # Labels left after the last call of roof duality.
        self._asked = -1

    def eliminate(self) -> int:
        """Eliminate dead ends until there are none; return the number of labels ruled out."""
        dropped = 0
        n = self.graph.n_variables
        while self._dirty.any():
            for begin in range(0, n, _BLOCK):
                if self.should_stop():
                    return dropped
                dropped += eliminate_dead_ends(
                    self.graph.arrays,
                    self.alive,
                    self.n_alive,
                    self._dirty,
                    begin,
                    min(n, begin + _BLOCK),
                    _MANY_LABELS,
                    self._digits,
                )
        return dropped

    def roof_duality(self) -> int:
        """Fix the variables that roof duality labels; return the number of labels ruled out."""
        if int(self.n_alive.max(initial=0)) > 2 or self.graph.n_factors:
            return 0
        if int(self.n_alive.sum()) == self._asked:
            return 0
        starts = self.graph.unary_ptr[:-1]
        places = np.flatnonzero(self.alive)
        first = starts_of(self.n_alive)[:-1]
        zero = places[first] - starts
        one = places[first + self.n_alive - 1] - starts
        if self._choice is None:
            self._choice = LabelChoice(self.graph)
        choice = self._choice.minimise(zero, one, bound=True, should_stop=self.should_stop)
        if choice is None:
            return 0
        self.infeasible = choice.bound == math.inf
        # With the allowance added back, the energy of a choice that labels all variables.
        self.optimum = choice.bound + self._choice.rounding
        fixed = np.flatnonzero((self.n_alive > 1) & (choice.taken >= 0))
        self._keep_only(fixed, np.where(choice.taken > 0, one, zero)[fixed])
        self._asked = int(self.n_alive.sum())
        return int(fixed.size)

    def _keep_only(self, variables: IntArray, labels: IntArray) -> None:
        """Rule out all labels of some variables but one; their neighbours become dirty."""
        graph = self.graph
        mask = np.zeros(graph.n_variables, dtype=bool)
        mask[variables] = True
        self.alive[np.repeat(mask, graph.cardinalities)] = 0
        self.alive[graph.unary_ptr[:-1][variables] + labels] = 1
        self.n_alive[variables] = 1
        if (self.n_alive == 1).all():
            return
        touched = mask[graph.edges]
        self._dirty[graph.edges[touched.any(axis=1)].ravel()] = 1
        for f in np.unique(graph.arrays.slot_factor[mask[graph.factor_scopes]]).tolist():
            scope = graph.factor_scopes[graph.factor_ptr[f] : graph.factor_ptr[f + 1]]
            self._dirty[scope] = 1
        self._dirty[self.n_alive <= 1] = 0


def reduce(
    graph: FactorGraph,
    should_stop: Callable[[], bool] | None = None,
    *,
    keep_forms: bool = False,
) -> Reduction:
    """Rule out labels that some optimal labelling does not use, and shrink the graph."""
    # Some optimal labelling uses only labels left, and every labelling of the reduced graph has the
    # energy of the labelling it represents. Both hold up to rounding: if energies differ by less,
    # either labelling may count as the better one. With `keep_forms`, labels are restored where a
    # Potts, diagonal or truncated term would become a table.
    search = _LabelTests(graph, should_stop if should_stop is not None else lambda: False)
    # With two labels, the first cut often labels all variables.
    if search.roof_duality() and (search.n_alive == 1).all():
        return settled(np.flatnonzero(search.alive) - graph.unary_ptr[:-1], search.optimum)
    rounds = 0
    # The cuts pay off again only if enough labels were ruled out since.
    while not search.infeasible and not search.should_stop():
        rounds += 1
        dropped = search.eliminate() + search.roof_duality()
        if dropped <= _WORTHWHILE * float(search.n_alive.sum()) or (search.n_alive == 1).all():
            break
    alive = search.alive.astype(bool)
    n_alive = search.n_alive

    def pays() -> bool:
        ruled_out = alive.size - int(np.count_nonzero(alive))
        return search.infeasible or ruled_out > _WORTH_BUILDING * alive.size

    if pays() and keep_forms:
        alive, n_alive = with_forms(graph, alive, n_alive)
    if not pays():
        return unchanged(graph, rounds)
    return shrink(graph, alive, n_alive, search.infeasible, rounds)
