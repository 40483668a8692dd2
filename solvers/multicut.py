"""Multicut: partitions of a signed graph, where labels are only the names of clusters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from inference_lab.algorithms.dual.reparametrisation import energy_step, next_energy
from inference_lab.algorithms.iteration import IterativeSolver, Progress
from inference_lab.algorithms.multicut.bounds import CliqueRelaxation, packing_bound
from inference_lab.algorithms.multicut.local_search import (
    annealed,
    can_anneal,
    first_partition,
    improve,
)
from inference_lab.algorithms.multicut.signed_graph import (
    SignedGraph,
    as_signed_graph,
    signed_graph,
    why_no_partition,
)
from inference_lab.contract import Outcome, Run
from inference_lab.graph.arrays import IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.specs.settings import setting

#: Share of the time that linear programs take while annealing goes on.
_LP_SHARE = 0.5


@dataclass(frozen=True)
class Multicut(IterativeSolver["_Search"]):
    """Partition a signed graph: Potts terms of either sign, without preferred labels.

    This is clique partitioning, also known as correlation clustering, if there are as many labels
    as variables. The search is over partitions, so its cost does not depend on the number of
    labels. Fewer labels limit the number of clusters.

    The search alternates joins of clusters with moves of vertices. Then it anneals again and again,
    1000 sweeps times 1, 2, 1, 4, 1, 2, 1, 8, ..., so that every length gets the same share of the
    time; under a time limit the last one is shorter. A packing of triangles bounds the energy, for
    few variables improved by a linear program with triangle inequalities.

    Parameters
    ----------
    anneals : int
        Number of anneals.
    relaxation : int
        Most variables for which the linear program is solved; 0 for none.

    Guarantees
    ----------
    Every bound is proved, with any number of labels. Bounds are rounded up to the next possible
    energy if all costs are multiples of a number. `converged` means that all anneals and the linear
    program ended: no move of a vertex and no join of two clusters has a lower energy.

    Iterations
    ----------
    Anneals.

    Diagnostics
    -----------
    ``clusters``: clusters of the last partition; ``linear_programs``: their number.

    Complexity
    ----------
    A proposal of an anneal costs O(1), an accepted one O(n); joins and moves take a few passes over
    the edges. Memory: 8 n (n + min(n, labels)) bytes for anneals; graphs that need more than 512 MB
    are not annealed.

    References
    ----------
    M. Grotschel, Y. Wakabayashi, "A cutting plane algorithm for a clustering problem", Mathematical
    Programming 45, 1989.
    J. Gao et al., "Improving simulated annealing for clique partitioning problems", Journal of
    Artificial Intelligence Research 74, 2022.
    M. Keuper et al., "Efficient decomposition of image and mesh graphs by lifted multicuts", ICCV
    2015, algorithm 1 (joins).
    M. Luby, A. Sinclair, D. Zuckerman, "Optimal speedup of Las Vegas algorithms", Information
    Processing Letters 47, 1993 (lengths of runs).

    Examples
    --------
    >>> import inference_lab as il
    >>> edges, gains = [(0, 1), (1, 2), (0, 2), (2, 3)], [3.0, 2.0, -4.0, 1.0]
    >>> g = il.FactorGraph.potts([[0.0] * 4] * 4, edges, gains)
    >>> s = il.solve(g, "multicut", seed=0)
    >>> s.energy, s.lower_bound, len(set(s.labels))
    (-2.0, -2.0, 2)
    """

    version: ClassVar[int] = 2
    startup_cost: ClassVar[float] = 20.0

    anneals: int = setting(16, at_least=0)
    relaxation: int = setting(120, at_least=0)

    def supports(self, graph: FactorGraph, temperature: float) -> str | None:
        """Return the reason to refuse: anything but Potts terms and equal unaries."""
        return super().supports(graph, temperature) or why_no_partition(graph)

    def start(self, graph: FactorGraph, run: Run) -> _Search | Outcome:
        """Offer the result of joins and moves, and bound by a packing of triangles."""
        if graph.n_variables == 0:
            run.offer(np.empty(0, dtype=np.int64))
            return Outcome(converged=True)
        return _Search(self, graph, run, *as_signed_graph(graph))

    def step(self, state: _Search, run: Run, done: int) -> Progress | None:
        """Solve linear programs up to their share of the time, then anneal."""
        state.solve_relaxation(run)
        if run.proved:
            return Progress(finished=True, iterations=0)
        if state.can_anneal and done < self.anneals:
            complete = state.anneal(done + 1, run)
            return Progress() if complete else None
        if state.relaxed:
            return Progress(iterations=0, converged=run.remaining > 0.0, finished=True)
        return Progress(iterations=0)

    def decode(self, state: _Search, run: Run, done: int) -> IntArray:
        """Return the last partition."""
        return state.labels

    def finish(self, state: _Search, run: Run, outcome: Outcome) -> Outcome:
        """Add the number of clusters and of linear programs."""
        outcome.diagnostics = {
            "clusters": int(np.unique(state.labels).size),
            "linear_programs": state.solved,
        }
        return outcome


class _Search:
    """The last partition of a run, its relaxation, and the time they took."""

    def __init__(
        self, settings: Multicut, graph: FactorGraph, run: Run, gains: SignedGraph, constant: float
    ) -> None:
        self.graph, self.gains, self.constant = graph, gains, constant
        self.step = energy_step(graph)
        n = gains.n
        self.most = min(n, int(graph.cardinalities[0]))
        self.can_anneal = can_anneal(gains, self.most)
        if run.initial is None:
            self.labels = first_partition(gains, self.most)
        else:
            self.labels = improve(gains, run.initial, self.most)
        run.offer(self.labels)
        self.bound(run, packing_bound(gains))
        self.relaxed = n > settings.relaxation or n < 3
        self.relaxation = None if self.relaxed else CliqueRelaxation(gains)
        self.solved = 0
        self.lp_seconds = 0.0

    def bound(self, run: Run, value: float) -> None:
        """Report the bound on the energy that follows from a bound on the value."""
        run.bound(next_energy(self.graph, self.constant - value, self.step))

    def solve_relaxation(self, run: Run) -> None:
        """Solve linear programs, and round their solutions, within their share of the time."""
        begin = run.seconds
        while not (self.relaxed or run.proved or run.should_stop()):
            taken = self.lp_seconds + run.seconds - begin
            if self.can_anneal and taken > _LP_SHARE * run.seconds and self.solved:
                break
            assert self.relaxation is not None
            together = self.relaxation.round(run.remaining)
            self.solved += 1
            self.bound(run, self.relaxation.value)
            if together is None:
                self.relaxed = True
                break
            self.relaxed = self.relaxation.done
            i, j = np.triu_indices(self.gains.n, 1)
            likely = signed_graph(self.gains.n, np.stack([i, j], axis=1), together[i, j] - 0.5)
            self.labels = improve(self.gains, first_partition(likely, self.most), self.most)
            run.offer(self.labels)
        self.lp_seconds += run.seconds - begin

    def anneal(self, number: int, run: Run) -> bool:
        """Make an anneal; return whether it was complete."""
        left = run.remaining

        def spent() -> float:
            return 1.0 - run.remaining / left if 0.0 < left < math.inf else float(left <= 0.0)

        self.labels, complete = annealed(self.gains, self.most, number, run.rng, spent)
        run.offer(self.labels)
        return complete
