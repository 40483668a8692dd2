"""Max-product linear programming: a dual bound for any arity, tightened by clusters."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import ClassVar, Literal

import numpy as np

from inference_lab.algorithms.dual.reparametrisation import (
    decode,
    dual_bound,
    make_scratch,
    no_clusters,
    start_dual,
    stretches,
    update_edges,
    update_factors,
)
from inference_lab.algorithms.dual.standstill import Standstill
from inference_lab.algorithms.dual.tightening import tighten
from inference_lab.algorithms.iteration import IterativeSolver, Progress
from inference_lab.algorithms.parts import go_on_by_parts
from inference_lab.contract import Outcome, Run
from inference_lab.graph.arrays import TABLE, FloatArray, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.precision import energy_step, next_energy
from inference_lab.kernels.descent import descend
from inference_lab.kernels.messages import cost_scale
from inference_lab.specs.settings import setting

#: Before tightening, sweeps over the terms end when one gains less than this share of the whole
#: gain, because the sweeps over clusters continue them. With higher-order factors they would stop
#: at lower bounds, so there the sweeps over the terms converge first.
_ENOUGH = 1e-2
#: Sweeps of the polish; ICM needs about ten.
_POLISH_SWEEPS = 100


def shares_of_edge(
    theta: FloatArray, first: FloatArray, second: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the parts of its cost that an edge passes on to its two variables."""
    # The edge collects ``theta(a, b) + first(a) + second(b)``. The first variable gets half of its
    # min-marginal (MPLP, Globerson and Jaakkola 2007), the second its whole remaining min-marginal,
    # and the first then the remaining slack (the hand-over of MPLP++, Tourani et al. 2018). Parts
    # are added to the previous costs of the variables.
    to_first = 0.5 * ((theta + second).min(axis=1) - first)
    to_second = (theta - to_first[:, None]).min(axis=0)
    return (theta - to_second).min(axis=1), to_second


def shares_of_factor(table: FloatArray, costs: list[FloatArray]) -> list[FloatArray]:
    """Return the parts of its cost that a factor passes on to its variables, in the same way."""
    # Each variable gets an equal share of its min-marginal, then each in turn the remaining slack.
    # `costs` are the variables' costs without this factor's parts.
    axes = range(table.ndim)
    others = [tuple(s for s in axes if s != axis) for axis in axes]
    along = [np.expand_dims(costs[axis], others[axis]) for axis in axes]
    total = table + sum(along)
    parts = [total.min(others[s], keepdims=True) / table.ndim - along[s] for s in axes]
    for axis in axes:
        rest = table - sum(parts[s] for s in others[axis])
        parts[axis] = rest.min(others[axis], keepdims=True)
    return [part.ravel() for part in parts]


@dataclass(frozen=True)
class MPLP(IterativeSolver["_Sweeps"]):
    """Coordinate ascent on the dual of the local polytope, and on tighter ones (T = 0).

    Every term ``f`` passes a part ``d_fi(x_i)`` of its cost on to its variables; the bound is
    ``sum_i min (theta_i + sum_f d_fi) + sum_f min (theta_f - sum_i d_fi)``. One term at a time
    collects its variables' costs and gives each its share of the min-marginals, then the remaining
    slack (MPLP of Globerson and Jaakkola 2007, with the hand-over of MPLP++). When that gains
    little, clusters of three variables are added in rounds
    (`inference_lab.algorithms.dual.tightening`).

    Parameters
    ----------
    tighten : "cycles" or None
        Clusters to add: triangulations of frustrated cycles (Sontag, Choe and Li 2012), or none.
    tolerance : float
        A sweep counts as idle if the bound gains at most this share of its gain since the start
        plus the mean cost.
    patience : int
        The bound has converged after this many idle sweeps in succession.
    max_sweeps : int
        Limit on sweeps, including sweeps over clusters.
    parts : bool
        Solve components with cycles apart, small ones by elimination.

    Guarantees
    ----------
    The bound never falls. Without clusters it is at most the optimum of the local polytope, with
    equality at the fixed point for pairwise terms and two labels. Infeasibility is reported only if
    a bound of ``+inf`` proves it. `converged` means that the bound has stalled and no cluster
    promises a gain.

    Complexity
    ----------
    A sweep costs three messages an edge: O(k) each for diagonal and truncated terms, O(k^2) for
    other tables; O(table size * arity^2) a higher-order factor; O(k^3) a cluster. Memory: ``16 m
    k`` bytes; with clusters a copy of the pairwise tables, ``24 k^2`` a cluster and ``16 k^2`` a
    pair inside one.

    References
    ----------
    A. Globerson, T. Jaakkola, "Fixing max-product: convergent message passing algorithms for MAP
    LP-relaxations", NIPS 2007.
    S. Tourani, A. Shekhovtsov, C. Rother, B. Savchynskyy, "MPLP++: fast, parallel dual
    block-coordinate ascent for dense graphical models", ECCV 2018.
    D. Sontag, T. Meltzer, A. Globerson, T. Jaakkola, Y. Weiss, "Tightening LP relaxations for MAP
    using message passing", UAI 2008.
    D. Sontag, D. K. Choe, Y. Li, "Efficiently searching for frustrated cycles in MAP inference",
    UAI 2012.

    Examples
    --------
    Three variables that prefer to differ, with two labels: one pair must be equal, which the local
    polytope misses.

    >>> import inference_lab as il
    >>> edges = [(0, 1), (0, 2), (1, 2)]
    >>> g = il.FactorGraph.potts([[0.0, 0.0]] * 3, edges, -1.0, constant=3.0)
    >>> round(il.solve(g, "mplp(tighten=none)").lower_bound, 6)
    0.0
    >>> s = il.solve(g, "mplp")
    >>> s.energy, round(s.lower_bound, 6), s.status
    (1.0, 1.0, <Status.OPTIMAL: 'optimal'>)
    """

    version: ClassVar[int] = 4
    startup_cost: ClassVar[float] = 106.0

    tighten: Literal["cycles"] | None = "cycles"
    tolerance: float = setting(1e-6, at_least=0)
    patience: int = setting(5, at_least=1)
    max_sweeps: int = setting(5000, at_least=1)
    parts: bool = True

    def run(self, graph: FactorGraph, run: Run) -> Outcome:
        """Pass messages; where they prove nothing, go on with components with cycles apart."""
        outcome = super().run(graph, run)
        return go_on_by_parts(self.run, graph, run, outcome) if self.parts else outcome

    def start(self, graph: FactorGraph, run: Run) -> _Sweeps:
        """Start from the unchanged terms."""
        early = self.tighten is not None and graph.n_factors == 0
        enough = max(self.tolerance, _ENOUGH) if early else self.tolerance
        state = _Sweeps(graph)
        state.standstill = Standstill(enough, self.patience, cost_scale(graph))
        run.offer(state.decode(False))
        return state

    def step(self, state: _Sweeps, run: Run, done: int) -> Progress | None:
        """Update every term once."""
        if not state.sweep(bool(done % 2), run):
            return None
        bound = state.bound()
        state.converged = state.standstill.reached(bound)
        raised = next_energy(state.graph, bound, state.step)
        return Progress(state.converged, raised, residual=2.0 * state.rounding)

    def decode(self, state: _Sweeps, run: Run, done: int) -> IntArray | None:
        """Return the local minimum below the decoded labelling, in some of the sweeps."""
        # At growing intervals, because this costs about as much as a sweep.
        rarely = not state.converged and done & (done - 1)
        return None if rarely else state.polished(run, bool(done & 4))

    def finish(self, state: _Sweeps, run: Run, outcome: Outcome) -> Outcome:
        """Add clusters once the bound has stalled."""
        if self.tighten is None or run.proved or not outcome.converged:
            if not run.proved:
                run.offer(state.polished(run, False))
            outcome.diagnostics = {"bound": state.standstill.bound}
            return outcome
        tightened = tighten(
            state.graph,
            run,
            state.dual,
            tolerance=self.tolerance,
            sweeps=outcome.iterations,
            max_sweeps=self.max_sweeps,
        )
        return Outcome(
            converged=tightened.stopped_by == "converged",
            infeasible=tightened.stopped_by == "infeasible",
            stopped_by=tightened.limit,
            iterations=tightened.sweeps,
            diagnostics=asdict(tightened),
        )


class _Sweeps:
    """The dual of a run, and the sweeps over its terms."""

    standstill: Standstill

    def __init__(self, graph: FactorGraph) -> None:
        self.graph = graph
        self.converged = False
        self.step = energy_step(graph)
        self.dual = start_dual(graph)
        self.natural: IntArray = np.arange(graph.n_variables)
        self._work = make_scratch(graph)
        k = graph.cardinalities[graph.edges]
        table = graph.edge_kinds == TABLE
        self._edges = stretches(np.where(table, k.prod(axis=1), k.max(axis=1, initial=1)) + 10)
        self._factors = stretches(np.diff(graph.table_ptr) * np.diff(graph.factor_ptr) ** 2)

    def sweep(self, backwards: bool, run: Run) -> bool:
        """Update every term once; return False if the time ran out."""
        common = (backwards, self.dual, self.graph.has_infinite, self._work)
        for begin, end in self._edges[:: -1 if backwards else 1]:
            if run.should_stop():
                return False
            update_edges(self.graph.arrays, begin, end, *common)
        for begin, end in self._factors[:: -1 if backwards else 1]:
            if run.should_stop():
                return False
            update_factors(self.graph.arrays, begin, end, *common)
        return True

    def bound(self) -> float:
        """Return the lower bound."""
        bound, self.rounding = dual_bound(self.graph, self.graph.arrays, self.dual, self._work)
        return bound

    def decode(self, backwards: bool) -> IntArray:
        """Decode a labelling from the dual."""
        x = np.empty(self.graph.n_variables, dtype=np.int64)
        order = self.natural[::-1].copy() if backwards else self.natural
        decode(
            self.graph.arrays,
            order,
            self.dual,
            no_clusters(self.graph),
            self.graph.has_infinite,
            self._work,
            x,
        )
        return x

    def polished(self, run: Run, backwards: bool) -> IntArray:
        """Offer the decoded labelling; return the local minimum below it."""
        x = self.decode(backwards)
        run.offer(x)
        descend(self.graph, x, self.natural, _POLISH_SWEEPS)
        return x
