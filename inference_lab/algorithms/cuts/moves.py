"""Large moves: many variables choose at once between the current label and another one."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from inference_lab.algorithms.cuts.roof_duality import LabelChoice, Rule, unsupported_arity
from inference_lab.algorithms.iteration import IterativeSolver, Progress
from inference_lab.algorithms.label_cost_encoding import star
from inference_lab.contract import Outcome, Run
from inference_lab.graph.arrays import IntArray
from inference_lab.graph.factor_graph import FactorGraph, unary_minimum
from inference_lab.kernels.descent import descend
from inference_lab.specs.settings import setting

#: Least gain of a move, relative to the costs it changes, so that rounding cannot cause cycles.
_RELATIVE_GAIN = 1e-13


#: Sweeps of the descent that follows a cycle.
_SWEEPS = 20


class Moved(NamedTuple):
    """Result of a move."""

    #: Whether the energy fell and the labelling changed.
    changed: bool
    #: Whether no other choice between the two labels is better.
    exact: bool


class MoveMaker:
    """Labelling with moves that are accepted if they lower its energy.

    Violated hard terms count first, then the finite costs. A cycle in which a move was not exact is
    followed by a descent by single changes, which such a move may miss.

    A label cost becomes a variable that indicates whether its set is in use, linked to all users
    (Delong et al. 2012). It chooses between its values under the two labellings, which covers all
    labellings between them. Exact moves stay exact: all links push to one side for a set that the
    move can only empty, and to the other side for a set that it can only fill.
    """

    def __init__(
        self,
        graph: FactorGraph,
        run: Run,
        init: Literal["unary", "random"],
        rule: Rule,
        kinds: list[tuple[int, int]],
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
        # The labels of each kind of move, and whether it has failed or been exact since another
        # kind last succeeded.
        self.kinds = kinds
        self.settled = np.zeros(len(kinds), dtype=bool)
        self._inexact = False
        self._star = star(graph, hard=False) if graph.n_label_costs else None
        self._choice = LabelChoice(graph if self._star is None else self._star.graph)
        self._moves = self._successes = self._pairs = self._nonsubmodular = 0
        run.offer(self.x)

    def move(self, zero: IntArray, one: IntArray, *, bound: bool = False) -> Moved | None:
        """Choose between two labels, one the current, at each variable; None if time ran out."""
        # With `bound`, the choice covers all labellings, and its bound is reported.
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
        """Return a labelling extended by the variables of label costs, if any."""
        return labels if self._star is None else self._star.extended(labels)

    def infeasible(self) -> bool:
        """Choose between all labellings of two labels; return whether all are infinite."""
        one = np.minimum(self.graph.cardinalities - 1, 1)
        self.move(np.zeros_like(one), one, bound=True)
        return math.isinf(self.run.lower_bound) and self.run.lower_bound > 0

    def polish(self) -> bool:
        """Descend by single changes if moves since the last descent were not exact."""
        if not self._inexact:
            return False
        self._inexact = False
        new = self.x.copy()
        order = self.run.rng.permutation(new.size)
        descend(self.graph, new, order, _SWEEPS)
        if (new == self.x).all():
            return False
        self.x = new
        self.run.offer(new)
        return True

    def diagnostics(self) -> dict[str, Any]:
        """Return the number of moves tried and made, and the share of non-submodular pairs."""
        return {
            "moves": self._moves,
            "successful_moves": self._successes,
            "nonsubmodular_share": self._nonsubmodular / max(1, self._pairs),
        }


@dataclass(frozen=True)
class MoveSolver(IterativeSolver[MoveMaker]):
    """Base class of methods that try each kind of move in turn until none lowers the energy."""

    label_costs: ClassVar[bool] = True
    startup_cost: ClassVar[float] = 34.0

    init: Literal["unary", "random"] = "unary"
    order: Literal["random", "sequential"] = "random"
    nonsubmodular: Literal["qpbo", "truncate"] = "qpbo"
    max_cycles: int | None = setting(None, at_least=1)

    @abstractmethod
    def kinds(self, n_labels: int) -> list[tuple[int, int]]:
        """Return the pair of labels of each kind of move."""

    @abstractmethod
    def candidates(
        self, graph: FactorGraph, x: IntArray, first: int, second: int
    ) -> tuple[IntArray, IntArray] | None:
        """Return the two candidate labels of each variable, or None if `x` has neither label."""

    @property
    def most_iterations(self) -> float:
        """Most cycles over all kinds of move."""
        return math.inf if self.max_cycles is None else self.max_cycles

    def supports(self, graph: FactorGraph, temperature: float) -> str | None:
        """Return the reason to refuse a run: a temperature, or a factor too large for pairs."""
        return super().supports(graph, temperature) or unsupported_arity(graph)

    def start(self, graph: FactorGraph, run: Run) -> MoveMaker | Outcome:
        """Offer the first labelling; with two labels, choose between all labellings."""
        n_labels = int(graph.cardinalities.max(initial=1))
        maker = MoveMaker(graph, run, self.init, self.nonsubmodular, self.kinds(n_labels))
        infeasible = n_labels <= 2 and maker.infeasible()
        if infeasible or not maker.kinds:
            return Outcome(not infeasible, infeasible, diagnostics=maker.diagnostics())
        return maker

    def step(self, state: MoveMaker, run: Run, done: int) -> Progress:
        """Try the unsettled kinds of move, and descend if one was not exact."""
        settled, number = state.settled, len(state.kinds)
        for kind in run.rng.permutation(number) if self.order == "random" else range(number):
            if settled[kind]:
                continue
            choice = self.candidates(run.graph, state.x, *state.kinds[kind])
            moved = Moved(False, True) if choice is None else state.move(*choice)
            if moved is None or run.remaining <= 0.0:
                return Progress(finished=True)
            if moved.changed:
                settled[:] = False
            settled[kind] = moved.exact or not moved.changed
        if state.polish():
            settled[:] = False
        return Progress(bool(settled.all()))

    def finish(self, state: MoveMaker, run: Run, outcome: Outcome) -> Outcome:
        """Add the counts of moves to the outcome."""
        outcome.converged |= run.proved
        outcome.diagnostics = state.diagnostics()
        return outcome
