"""Iterated conditional modes: change one label at a time while the energy falls."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from inference_lab.algorithms.iteration import IterativeSolver, Progress
from inference_lab.contract import Outcome, Run, run_bytes
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.graph.factor_graph import FactorGraph, unary_minimum
from inference_lab.kernels.descent import AWAIT, KEEP, SPREAD, CoordinateDescent
from inference_lab.specs.settings import setting

#: A labelling is offered, and so evaluated, when this share of the labels has changed.
_SHARE = 0.1

#: Variables count as numbered along their terms if the mean difference of numbers within a term is
#: at most this share of n. The share is a third in random graphs, and small on chains and pictures.
_NEAR = 0.125

#: Variables between two checks of the clock: some tens of milliseconds.
_STRETCH = 50_000


def renewed_label(
    unary: FloatArray, terms: Iterable[tuple[FloatArray, int, Sequence[int]]], label: int
) -> int:
    """Return the cheapest label of a variable given all other labels; `label` in a tie."""
    # Each term has its table, the position of the variable in its scope, and the labels of the
    # scope. Fewer infinite costs come first, then the sum of the others. The compiled sweep of
    # `inference_lab.kernels.descent` does the same, cheaper for terms of a simple form.
    slices = [np.moveaxis(table, s, -1)[(*x[:s], *x[s + 1 :])] for table, s, x in terms]
    rows = np.stack([unary, *slices])
    violations = np.isinf(rows).sum(axis=0)
    costs = np.where(np.isinf(rows), 0.0, rows).sum(axis=0)
    best = int(np.lexsort((costs, violations))[0])
    gains = (violations[best], costs[best]) < (violations[label], costs[label])
    return best if gains else label


@dataclass(frozen=True)
class ICM(IterativeSolver["RestartedDescent"]):
    """Coordinate descent on the energy (Besag 1986; spec of the E-step in Basu et al. 2004).

    Each sweep moves each variable to its cheapest label given all others, until a sweep changes
    nothing. The number of violated ``+inf`` terms is compared first, then the finite cost.

    Parameters
    ----------
    init : {"unary", "random"}
        Start from the cheapest label of each variable, or from random labels. An initial labelling
        of the run takes precedence.
    restarts : int
        Further descents, from random labellings; the best result is kept.
    order : {"auto", "random", "sequential", "symmetric"}
        Draw a new order for each sweep, use variable numbers, or alternate between both directions.
        By default symmetric if terms join variables of close numbers, as on chains and grids,
        where it needs fewer sweeps and gives lower minima; else random.
    ties : {"auto", "keep", "spread"}
        Keep the label if no other is better; or, while sweeps gain, take an equally cheap label of
        a neighbour. Spreading over plateaus gives lower minima where
        integer costs tie, as in stereo pairs. By default spread if variables are numbered along
        their terms. Both are the same with infinite costs, factors or label costs.
    max_sweeps : int or None
        Limit on the sweeps of one descent; None goes on until a sweep changes nothing.

    Guarantees
    ----------
    The energy never rises; at the end no single change lowers it (a local minimum). No bound.

    Complexity
    ----------
    A sweep costs O(k + degree) a variable for diagonal terms, O(k) more a table, and the size of
    the sets for label costs. Variables with unchanged neighbours are skipped. Memory: n labels and
    flags.

    References
    ----------
    J. Besag, "On the statistical analysis of dirty pictures", JRSS B 48(3), 1986.
    S. Basu, M. Bilenko, R. Mooney, "A probabilistic framework for semi-supervised clustering",
    KDD 2004, eq. (15).

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> il.solve(g, "icm(restarts=2)").energy
    0.5
    """

    label_costs: ClassVar[bool] = True

    init: Literal["unary", "random"] = "unary"
    restarts: int = setting(0, at_least=0)
    order: Literal["auto", "random", "sequential", "symmetric"] = "auto"
    ties: Literal["auto", "keep", "spread"] = "auto"
    max_sweeps: int | None = setting(None, at_least=1)

    @property
    def most_iterations(self) -> float:
        """No overall limit, because `max_sweeps` limits each descent."""
        return math.inf

    def peak_bytes(self, graph: FactorGraph, temperature: float) -> int:
        """Count flags and two orders of the variables."""
        return run_bytes(graph, 17 * graph.n_variables)

    def start(self, graph: FactorGraph, run: Run) -> RestartedDescent:
        """Begin the first descent."""
        first = run.initial
        if first is not None:
            first = first.copy()
        elif self.init == "unary":
            first = unary_minimum(graph)
        return RestartedDescent(self, graph, run, first)

    def step(self, state: RestartedDescent, run: Run, done: int) -> Progress:
        """Make one sweep, of a new descent if the last one is over."""
        if state.over:
            state.begin()
        state.sweep()
        if state.over:
            state.converged &= state.stable
        finished = state.over and state.begun > self.restarts
        return Progress(converged=finished and state.converged, finished=finished)

    def decode(self, state: RestartedDescent, run: Run, done: int) -> IntArray | None:
        """Return the labelling if many labels have changed, or a descent is over."""
        due = state.unseen > (0 if state.over else _SHARE * run.graph.n_variables)
        if not due:
            return None
        state.unseen = 0
        return state.x

    def finish(self, state: RestartedDescent, run: Run, outcome: Outcome) -> Outcome:
        """Offer the last labelling of a descent that was cut short."""
        if state.unseen:
            run.offer(state.x)
        outcome.diagnostics["descents"] = state.begun
        return outcome


class RestartedDescent:
    """The labelling of a run, the variables to visit, and the progress of the current descent."""

    def __init__(self, settings: ICM, graph: FactorGraph, run: Run, x: IntArray | None) -> None:
        self.graph, self.run, self.settings = graph, run, settings
        near = _numbered_along(self.graph)
        self.spread = settings.ties == "spread" or (settings.ties == "auto" and near)
        order = settings.order
        if order == "auto":
            order = "symmetric" if near else "random"
        forward = np.arange(self.graph.n_variables, dtype=np.int64)
        self.orders = {
            "random": [],
            "sequential": [forward],
            "symmetric": [forward, forward[::-1].copy()],
        }[order]
        self.begun = 0
        self.converged = True
        self.begin(x)

    def begin(self, x: IntArray | None = None) -> None:
        """Begin a descent, by default from random labels."""
        graph = self.graph
        if x is None:
            x = self.run.rng.integers(0, graph.cardinalities, dtype=np.int64)
        self.x = x
        self.run.offer(x)
        self.dirty = np.ones(graph.n_variables, dtype=np.bool_)
        self.descent = CoordinateDescent(graph, x)
        self.begun += 1
        # Sweeps of this descent, changes by the last one, and changes since the last offer.
        self.sweeps = self.changes = self.unseen = 0
        self.stable = False

    @property
    def over(self) -> bool:
        """Whether the current descent has ended."""
        return self.stable or self.sweeps == self.settings.max_sweeps

    def sweep(self) -> None:
        """Visit each variable that has something to gain."""
        ties = KEEP
        if self.spread:
            ties = SPREAD if self.changes else AWAIT
        self.changes = 0
        order = self.next_order()
        for first in range(0, order.size, _STRETCH):
            part = order[first : first + _STRETCH]
            self.changes += self.descent.sweep(self.x, part, self.dirty, ties)
            if self.run.remaining <= 0.0:
                break
        self.stable = self.changes == 0 and not self.dirty.any() and self.run.remaining > 0.0
        self.sweeps += 1
        self.unseen += self.changes

    def next_order(self) -> IntArray:
        """Return the order of a sweep, with all variables that are dirty."""
        # In a fixed order, a variable that becomes dirty is visited in the same sweep if its turn
        # is to come. A random order of all variables would take longer than the dirty ones.
        if self.orders:
            return self.orders[self.sweeps % len(self.orders)]
        return self.run.rng.permutation(np.flatnonzero(self.dirty))


def _numbered_along(graph: FactorGraph) -> bool:
    """Whether pairwise terms join variables with nearby numbers."""
    if not graph.n_edges:
        return False
    distance = np.abs(graph.edges[:, 0] - graph.edges[:, 1]).mean()
    return bool(distance <= _NEAR * graph.n_variables)
