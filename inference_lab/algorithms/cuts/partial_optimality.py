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
from typing import NamedTuple

import numpy as np

from inference_lab.algorithms.cuts.dead_end_elimination import eliminate_dead_ends
from inference_lab.algorithms.cuts.reduction import (
    Reduction,
    settled,
    shrink,
    unchanged,
    with_forms,
)
from inference_lab.algorithms.cuts.roof_duality import Choice, LabelChoice
from inference_lab.graph.arrays import Flags, IntArray
from inference_lab.graph.factor_graph import FactorGraph

__all__ = ["SHRINKING", "Reduction", "reduce"]

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

    def __init__(
        self,
        graph: FactorGraph,
        should_stop: Callable[[], bool],
        whole: _WholeChoice | None = None,
    ) -> None:
        self.graph = graph
        self.should_stop = should_stop
        self.alive = np.ones(graph.unary_values.size, dtype=np.uint8)
        self.left = graph.cardinalities.copy()
        self.infeasible = False
        self._digits: IntArray | None = None
        if graph.n_factors:
            self._digits = np.zeros(int(np.diff(graph.factor_ptr).max()), dtype=np.int64)
        self._dirty: Flags = (self.left > 1).astype(np.uint8)
        self._choice: LabelChoice | None = None
        # Labels left after the last call of roof duality.
        self._asked = -1
        if whole is not None:
            self._choice = whole.chooser
            self._take(whole.choice, whole.zero, whole.one)

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
                    self.left,
                    self._dirty,
                    begin,
                    min(n, begin + _BLOCK),
                    _MANY_LABELS,
                    self._digits,
                )
        return dropped

    def roof_duality(self) -> int:
        """Fix the variables that roof duality labels; return the number of labels ruled out."""
        if int(self.left.max(initial=0)) > 2 or self.graph.n_factors:
            return 0
        if int(self.left.sum()) == self._asked:
            return 0
        starts = self.graph.unary_ptr[:-1]
        places = np.flatnonzero(self.alive)
        first = np.searchsorted(places, starts)
        zero = places[first] - starts
        one = places[first + self.left - 1] - starts
        if self._choice is None:
            self._choice = LabelChoice(self.graph)
        choice = self._choice.minimise(zero, one, bound=True, should_stop=self.should_stop)
        return 0 if choice is None else self._take(choice, zero, one)

    def _take(self, choice: Choice, zero: IntArray, one: IntArray) -> int:
        """Fix the labelled variables of a choice; return the number of labels ruled out."""
        self.infeasible = choice.bound == math.inf
        fixed = np.flatnonzero((self.left > 1) & (choice.taken >= 0))
        self._keep_only(fixed, np.where(choice.taken > 0, one, zero)[fixed])
        self._asked = int(self.left.sum())
        return int(fixed.size)

    def _keep_only(self, variables: IntArray, labels: IntArray) -> None:
        """Rule out all labels of some variables but one; their neighbours become dirty."""
        graph = self.graph
        rows = np.repeat(np.arange(graph.n_variables), graph.cardinalities)
        chosen = np.zeros(graph.n_variables, dtype=bool)
        chosen[variables] = True
        self.alive[chosen[rows]] = 0
        self.alive[graph.unary_ptr[:-1][variables] + labels] = 1
        self.left[variables] = 1
        touched = chosen[graph.edges]
        self._dirty[graph.edges[touched.any(axis=1)].ravel()] = 1
        for f in np.unique(graph.arrays.slot_factor[chosen[graph.factor_scopes]]).tolist():
            scope = graph.factor_scopes[graph.factor_ptr[f] : graph.factor_ptr[f + 1]]
            self._dirty[scope] = 1
        self._dirty[self.left <= 1] = 0


class _WholeChoice(NamedTuple):
    """Roof duality of a graph of at most two labels, `zero` and `one`."""

    chooser: LabelChoice
    choice: Choice
    zero: IntArray
    one: IntArray

    @property
    def labels(self) -> IntArray | None:
        """An optimum, or None if a variable is not labelled."""
        taken = self.choice.taken
        if ((taken < 0) & (self.zero != self.one)).any():
            return None
        return np.where(taken > 0, self.one, self.zero)


def _whole_choice(
    graph: FactorGraph, should_stop: Callable[[], bool] | None
) -> _WholeChoice | None:
    """Choose between all labellings; return None for more than two labels, or if stopped."""
    one = graph.cardinalities - 1
    if int(one.max(initial=0)) > 1 or graph.n_factors:
        return None
    zero = np.zeros_like(one)
    chooser = LabelChoice(graph)
    choice = chooser.minimise(zero, one, bound=True, should_stop=should_stop)
    return None if choice is None else _WholeChoice(chooser, choice, zero, one)


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
    # With two labels, the first cut often labels all variables.
    whole = _whole_choice(graph, should_stop)
    optimum = None if whole is None else whole.labels
    if whole is not None and optimum is not None:
        # The rounding allowance is added back, because this is the energy of a labelling.
        return settled(optimum, whole.choice.bound + whole.chooser.rounding)
    if should_stop is not None and should_stop():
        return unchanged(graph, 0)
    search = _LabelTests(graph, should_stop if should_stop is not None else lambda: False, whole)
    rounds = 0
    # The cuts pay off again only if enough labels were ruled out since.
    while not search.infeasible and not search.should_stop():
        rounds += 1
        dropped = search.eliminate() + search.roof_duality()
        if dropped <= _WORTHWHILE * float(search.left.sum()) or (search.left == 1).all():
            break
    alive, left = search.alive.astype(bool), search.left

    def pays() -> bool:
        ruled_out = alive.size - int(np.count_nonzero(alive))
        return search.infeasible or ruled_out > _WORTH_BUILDING * alive.size

    if pays() and keep_forms:
        alive, left = with_forms(graph, alive, left)
    if not pays():
        return unchanged(graph, rounds)
    return shrink(graph, alive, left, search.infeasible, rounds)
