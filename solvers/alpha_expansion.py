"""Alpha-expansion: let any set of variables switch to one label at a time, by minimum cuts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from inference_lab.algorithms.cuts.roof_duality import LabelChoice
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


class Expansions:
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
        n_labels: int,
    ) -> None:
        self.graph = graph
        self.run = run
        if run.initial is not None:
            self.x = run.initial.copy()
        elif init == "unary":
            self.x = unary_minimum(graph)
        else:
            self.x = run.rng.integers(0, graph.cardinalities, dtype=np.int64)
        # Whether the expansion of each label has failed or been exact since another one last
        # succeeded.
        self.settled = np.zeros(n_labels, dtype=bool)
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
            self.run.bound(choice.bound, 2.0 * self._choice.rounding)
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
class AlphaExpansion(IterativeSolver[Expansions]):
    """Local search in which a label may spread to any set of variables (Boykov et al. 2001).

    A move picks a label ``alpha``; each variable keeps its label or takes ``alpha``. The best of
    these labellings is a minimum cut where the move is submodular, that is, for each pairwise term
    and the labels ``a, b`` of its variables

    ``theta(a, b) + theta(alpha, alpha) <= theta(a, alpha) + theta(alpha, b)``,

    as for metrics (Potts with positive weights, truncated linear). All labels are tried in turn
    until none lowers the energy. Violated ``+inf`` terms count first, then finite costs. Label
    costs leave a submodular move submodular (Delong et al. 2012). Where a move is not submodular,
    roof duality labels some variables and the others keep their labels; cycles with such moves end
    in a descent by single changes (ICM).

    Parameters
    ----------
    init : {"unary", "random"}
        Start from the cheapest label of each variable, or from random labels. An initial labelling
        of the run takes precedence.
    order : {"random", "sequential"}
        Draw a new order of the labels for each cycle, or go by their numbers.
    max_cycles : int or None
        Limit on the cycles over all labels; None goes on until nothing changes.

    Guarantees
    ----------
    The energy never rises. If every move is submodular, the result is optimal within every
    expansion. If unaries are also not negative, the energy is at most ``2 c`` times the optimum,
    with ``c`` the largest ratio of a term's highest to its lowest cost of different labels (1 for
    Potts). Label costs ``h_L`` of sets ``L`` add at most ``sum_L h_L |L|``. With at most two labels
    the first move is the whole problem: a submodular one is solved exactly, else roof duality gives
    a lower bound (of the LP relaxation, for pairwise terms).

    Iterations
    ----------
    Cycles over all labels, in which labels that cannot have become better are left out.

    Diagnostics
    -----------
    ``moves``, ``successful_moves``, and ``nonsubmodular_share``: the share of interacting pairs
    that were not submodular.

    Complexity
    ----------
    A cycle takes one minimum cut for each label, in practice near linear in the graph. Roof duality
    doubles the network. Memory: linear in the graph.

    References
    ----------
    Y. Boykov, O. Veksler, R. Zabih, "Fast approximate energy minimization via graph cuts", PAMI
    23(11), 2001, theorem 6.1. V. Lempitsky, C. Rother, S. Roth, A. Blake, "Fusion moves for
    Markov random field optimization", PAMI 32(8), 2010 (roof duality in moves). A. Delong, A.
    Osokin, H. Isack, Y. Boykov, "Fast approximate energy minimization with label costs", IJCV 96,
    2012.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> s = il.solve(g, "alpha-expansion")
    >>> s.energy, s.labels.tolist(), s.status.value
    (0.5, [0, 1], 'optimal')
    """

    label_costs: ClassVar[bool] = True
    startup_cost: ClassVar[float] = 34.0
    iteration_setting: ClassVar[str] = "max_cycles"

    init: Literal["unary", "random"] = "unary"
    order: Literal["random", "sequential"] = "random"
    max_cycles: int | None = setting(None, at_least=1)

    def supports(self, graph: FactorGraph, temperature: float) -> str | None:
        """Return the reason to refuse a run: a temperature, or a higher-order factor."""
        if graph.n_factors:
            return "expansion moves cover terms of at most two variables"
        return super().supports(graph, temperature)

    def start(self, graph: FactorGraph, run: Run) -> Expansions | Outcome:
        """Offer the first labelling; with two labels, choose between all labellings."""
        n_labels = int(graph.cardinalities.max(initial=1))
        state = Expansions(graph, run, self.init, n_labels)
        if n_labels <= 2 and state.infeasible():
            return Outcome(infeasible=True, diagnostics=state.diagnostics())
        return state

    def step(self, state: Expansions, run: Run, done: int) -> Progress:
        """Expand the unsettled labels, and descend if one was not exact."""
        settled = state.settled
        sizes = run.graph.cardinalities
        number = settled.size
        for label in run.rng.permutation(number) if self.order == "random" else range(number):
            if settled[label]:
                continue
            moved = state.move(state.x, np.where(sizes > label, label, state.x))
            if moved is None or run.remaining <= 0.0:
                return Progress(finished=True)
            if moved.changed:
                settled[:] = False
            settled[label] = moved.exact or not moved.changed
        if state.polish():
            settled[:] = False
        return Progress(bool(settled.all()))

    def finish(self, state: Expansions, run: Run, outcome: Outcome) -> Outcome:
        """Add the counts of moves to the outcome."""
        outcome.converged |= run.proved
        outcome.diagnostics = state.diagnostics()
        return outcome
