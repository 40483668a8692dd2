"""Large moves: many variables at once choose between the label they have and another one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from inference_lab.algorithms.cuts.roof_duality import LabelChoice, Rule
from inference_lab.contract import Outcome, Run
from inference_lab.graph.arrays import IntArray
from inference_lab.graph.factor_graph import FactorGraph, unary_minimum
from inference_lab.graph.label_encoding import star
from inference_lab.kernels.priced_descent import descend_on

#: A move must gain more than this share of the costs it changes, so that rounding cannot cycle.
_RELATIVE_GAIN = 1e-13


#: Sweeps of the descent that follows a cycle.
_SWEEPS = 20


class Moved(NamedTuple):
    """The result of a move."""

    #: The energy fell, and the labelling changed.
    changed: bool
    #: No other choice between the two labels is better.
    exact: bool


class MoveMaker:
    """A labelling, and moves that are made where they lower its energy.

    Violated hard terms count first, then the finite costs. A cycle in which a move was not exact is
    followed by a descent by single changes, which such a move may miss.

    A label cost becomes a variable that says whether its set is in use, joined to all users (Delong
    et al. 2012). It chooses between what it is under the one labelling and under the other, which
    covers all between them and leaves an exact move exact: a set that a move can only empty has
    its users push for the same side, one that it can only fill pushes the other way.

    Attributes
    ----------
    x : (n,) int64 array
    width : int
        The largest number of labels.
    """

    def __init__(
        self,
        graph: FactorGraph,
        run: Run,
        init: Literal["unary", "random"],
        rule: Rule,
    ) -> None:
        self.graph = graph
        self.run = run
        self.rule: Rule = rule
        if run.initial is not None:
            self.x = run.initial.copy()
        elif init == "unary":
            self.x = unary_minimum(graph)
        else:
            self.x = run.rng.integers(0, graph.cardinalities, dtype=np.int64)
        self.width = int(graph.cardinalities.max(initial=1))
        self._inexact = False
        self._star = star(graph, hard=False) if graph.n_label_costs else None
        self._choice = LabelChoice(graph if self._star is None else self._star.graph)
        self._moves = self._successes = self._pairs = self._nonsubmodular = 0
        run.offer(self.x)

    def move(self, zero: IntArray, one: IntArray, *, bound: bool = False) -> Moved | None:
        """Choose between two labels at each variable, one of which it has; None if time ran out."""
        # With `bound` the choice covers all labellings, and its bound is reported.
        choice = self._choice.minimise(
            self._whole(zero),
            self._whole(one),
            current=self._whole(self.x),
            rule=self.rule,
            bound=bound,
            should_stop=lambda: self.run.remaining <= 0.0,
        )
        if choice is None:
            return None
        self._moves += 1
        self._inexact = self._inexact or not choice.exact
        self._pairs += choice.pairs
        self._nonsubmodular += choice.nonsubmodular
        if bound:
            self.run.bound(choice.bound)
        taken = choice.taken[: self.x.size]
        new = np.where(taken > 0, one, np.where(taken == 0, zero, self.x))
        infinite, finite, scale = self._choice.change(self._whole(self.x), self._whole(new))
        if infinite > 0 or (infinite == 0 and finite >= -_RELATIVE_GAIN * scale):
            return Moved(False, choice.exact)
        self.x = new
        self._successes += 1
        self.run.offer(new)
        return Moved(True, choice.exact)

    def _whole(self, labels: IntArray) -> IntArray:
        """Return a labelling with the variables of label costs, where there are any."""
        return labels if self._star is None else self._star.extended(labels)

    def _infeasible(self) -> bool:
        """Choose between all labellings of two labels; return whether none is finite."""
        one = np.minimum(self.graph.cardinalities - 1, 1)
        self.move(np.zeros_like(one), one, bound=True)
        return math.isinf(self.run.lower_bound) and self.run.lower_bound > 0

    def cycle_until_stable(
        self,
        labels: list[tuple[int, int]],
        candidates: Callable[[int, int], tuple[IntArray, IntArray] | None],
        max_cycles: int | None,
        shuffle: bool,
    ) -> Outcome:
        """Try every kind of move in turn until none of them lowers the energy."""
        # With two labels all labellings are chosen from first, which tells whether one is finite.
        if self.width <= 2 and self._infeasible():
            return Outcome(infeasible=True, diagnostics=self._diagnostics())
        # A kind is settled once it has failed, or been exact, since the last other success.
        settled = np.zeros(len(labels), dtype=bool)
        cycles = 0
        while not settled.all():
            if self.run.proved or self.run.should_stop(cycles) or cycles == max_cycles:
                break
            cycles += 1
            order = self.run.rng.permutation(len(labels)) if shuffle else np.arange(len(labels))
            if not self._cycle([labels[kind] for kind in order], candidates, settled, order):
                break
            if self._inexact and self._polish():
                settled[:] = False
        return Outcome(
            converged=bool(settled.all()) or self.run.proved,
            iterations=cycles,
            diagnostics=self._diagnostics(),
        )

    def _cycle(
        self,
        labels: list[tuple[int, int]],
        candidates: Callable[[int, int], tuple[IntArray, IntArray] | None],
        settled: npt.NDArray[np.bool_],
        order: IntArray,
    ) -> bool:
        """Try the kinds of move that are not settled, in this order; False if time ran out."""
        for kind, pair in zip(order, labels, strict=True):
            if settled[kind]:
                continue
            choice = candidates(*pair)
            moved = Moved(False, True) if choice is None else self.move(*choice)
            if moved is None or self.run.remaining <= 0.0:
                return False
            if moved.changed:
                settled[:] = False
            settled[kind] = moved.exact or not moved.changed
        return True

    def _polish(self) -> bool:
        """Descend by single changes; return whether there were any."""
        self._inexact = False
        new = self.x.copy()
        order = self.run.rng.permutation(new.size)
        descend_on(self.graph, new, order, _SWEEPS)
        if (new == self.x).all():
            return False
        self.x = new
        self.run.offer(new)
        return True

    def _diagnostics(self) -> dict[str, Any]:
        """Return the number of moves tried and made, and the share of non-submodular pairs."""
        return {
            "moves": self._moves,
            "successful_moves": self._successes,
            "nonsubmodular_share": self._nonsubmodular / max(1, self._pairs),
        }
