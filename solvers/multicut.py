"""Multicut: partitions of a signed graph, where labels are only the names of clusters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from inference_lab.algorithms.iteration import IterativeSolver, Progress
from inference_lab.algorithms.multicut.bounds import packing_bound
from inference_lab.algorithms.multicut.branching import PartitionTree
from inference_lab.algorithms.multicut.local_search import (
    annealed,
    can_anneal,
    first_partition,
    improve,
)
from inference_lab.algorithms.multicut.signed_graph import (
    SignedGraph,
    as_signed_graph,
    why_no_partition,
)
from inference_lab.algorithms.parts import solve_parts
from inference_lab.contract import Outcome, Run
from inference_lab.graph.arrays import IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.precision import energy_step, next_energy
from inference_lab.specs.settings import setting

#: Share of the time limit after which branch and bound estimates the size of its tree.
_FIRST_SHARE = 0.3
#: Share of the remaining time for branch and bound, beside annealing, if a proof is in reach.
_SHARE = 0.8
#: A proof is in reach if its expected time is at most this multiple of the limit.
_FACTOR = 100.0
#: Branch and bound ends if it needs this many times the permitted splits, as far as bounds show.
_OUT_OF_REACH = 1000.0
#: Most variables for branch and bound: an iteration takes some 10 ms.
_MOST_VARIABLES = 250


@dataclass(frozen=True)
class Multicut(IterativeSolver["_Search"]):
    """Partition a signed graph: Potts terms of either sign, without preferred labels.

    This is clique partitioning, also known as correlation clustering, if there are as many labels
    as variables. The search is over partitions, so its cost does not depend on the number of
    labels. Fewer labels limit the number of clusters.

    The search alternates joins of clusters with moves of vertices. Then it anneals again and again,
    1000 sweeps times 1, 2, 1, 4, 1, 2, 1, 8, ..., so that every length gets the same share of the
    time; under a time limit the last one is shorter. A packing of triangles bounds the energy, for
    up to 250 variables improved by branch and bound with semidefinite relaxations, see
    `inference_lab.algorithms.multicut.branching.PartitionTree`.

    Parameters
    ----------
    anneals : int
        Number of anneals.
    splits : int
        Most subproblems that branch and bound splits; 0 for the first relaxation only. It ends
        early where 1000 times as many would not suffice if bounds kept falling as they did.
    parts : bool
        Solve components with cycles apart, small ones by elimination.

    Guarantees
    ----------
    Every bound is proved, with any number of labels. Bounds are rounded up to the next possible
    energy if all costs are multiples of a number. `converged` means that all anneals and branch and
    bound ended: no move of a vertex and no join of two clusters has a lower energy. It is optimal
    if branch and bound left no subproblem open.

    Iterations
    ----------
    Anneals.

    Diagnostics
    -----------
    ``clusters`` of the last partition; ``splits``; ``open``: subproblems that are left.

    Complexity
    ----------
    A proposal of an anneal costs O(1), an accepted one O(n); joins and moves take a few passes over
    the edges. Memory: 8 n (n + min(n, labels)) bytes for anneals; graphs that need more than 512 MB
    are not annealed. An iteration of a relaxation costs O(n^3); an open subproblem has some
    100 n^2 bytes, 256 MB in all.

    References
    ----------
    M. Grotschel, Y. Wakabayashi, "A cutting plane algorithm for a clustering problem", Mathematical
    Programming 45, 1989.
    B. Ghaddar, M. Anjos, F. Liers, "A branch-and-cut algorithm based on semidefinite programming
    for the minimum k-partition problem", Annals of OR 188, 2011.
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

    version: ClassVar[int] = 4
    startup_cost: ClassVar[float] = 20.0

    anneals: int = setting(16, at_least=0)
    splits: int = setting(1000, at_least=0)
    parts: bool = True

    def run(self, graph: FactorGraph, run: Run) -> Outcome:
        """Partition each component with cycles apart, or the whole graph."""
        outcome = None
        if self.parts:
            outcome = solve_parts(lambda part, inner, _: self.run(part, inner), graph, run)
        return outcome or super().run(graph, run)

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
        """Branch and bound up to its share of the time, but after the first anneal; then anneal."""
        annealing = state.can_anneal and done < self.anneals
        if done or not annealing:
            state.branch(run, annealing)
        if run.proved:
            return Progress(finished=True, iterations=0)
        if annealing:
            complete = state.anneal(done + 1, run)
            return Progress() if complete else None
        if state.bounded:
            return Progress(iterations=0, converged=run.remaining > 0.0, finished=True)
        return Progress(iterations=0)

    def decode(self, state: _Search, run: Run, done: int) -> IntArray:
        """Return the last partition."""
        return state.labels

    def finish(self, state: _Search, run: Run, outcome: Outcome) -> Outcome:
        """Add the number of clusters and of subproblems."""
        outcome.diagnostics = {
            "clusters": int(np.unique(state.labels).size),
            "splits": state.tree.split if state.tree else 0,
            "open": len(state.tree.open) if state.tree else 0,
        }
        return outcome


class _Search:
    """The last partition of a run, and its search tree with the time it took."""

    def __init__(
        self, settings: Multicut, graph: FactorGraph, run: Run, gains: SignedGraph, constant: float
    ) -> None:
        self.graph, self.gains, self.constant = graph, gains, constant
        self.step = energy_step(graph)
        n = gains.n
        self.max_clusters = min(n, int(graph.cardinalities[0]))
        self.can_anneal = can_anneal(gains, self.max_clusters)
        if run.initial is None:
            self.labels = first_partition(gains, self.max_clusters)
        else:
            self.labels = improve(gains, run.initial, self.max_clusters)
        run.offer(self.labels)
        run.bound(self.energy_bound(packing_bound(gains)))
        self.tree: PartitionTree | None = None
        if n <= _MOST_VARIABLES and self.max_clusters > 1:
            self.tree = PartitionTree(gains, self.max_clusters, run.rng)
        self.bounded = self.tree is None
        self.most_splits = settings.splits
        self.tree_seconds = 0.0

    def energy_bound(self, value: float) -> float:
        """Return the bound on the energy that follows from a bound on the value."""
        return next_energy(self.graph, self.constant - value, self.step)

    def branch(self, run: Run, annealing: bool) -> None:
        """Tighten, split and close subproblems, within their share while annealing goes on."""
        begin = run.seconds
        while self.tree is not None and not (self.bounded or run.proved or run.should_stop()):
            taken = self.tree_seconds + run.seconds - begin
            if annealing and not self.in_reach(taken, run):
                break
            labels = self.tree.step(
                self.constant - run.best_energy, lambda v: self.closes(v, run), run.should_stop
            )
            if labels is not None:
                self.labels = labels
                run.offer(labels)
            run.bound(self.energy_bound(self.tree.value))
            self.bounded = (
                not self.tree.open
                or self.tree.split > self.most_splits
                or self.size(run) > _OUT_OF_REACH * self.most_splits
            )
        self.tree_seconds += run.seconds - begin

    def size(self, run: Run) -> float:
        """Return the expected number of subproblems; nan at first."""
        assert self.tree is not None
        return self.tree.expected_size(self.constant - run.best_energy)

    def in_reach(self, taken: float, run: Run) -> bool:
        """Whether branch and bound goes on after this time, while anneals wait."""
        assert self.tree is not None
        limit = run.seconds + run.remaining
        size = self.size(run)
        if math.isnan(size):
            return taken <= _FIRST_SHARE * limit
        node_s = taken / (self.tree.closed + self.tree.split)
        return size * node_s <= _FACTOR * limit and taken <= _SHARE * run.seconds

    def closes(self, value: float, run: Run) -> bool:
        """Whether a bound on the value excludes lower energies than the best one."""
        bound = self.energy_bound(value)
        left_open = max(run.tolerance_at(run.best_energy), run.absolute_gap)
        return bound >= run.best_energy - left_open

    def anneal(self, number: int, run: Run) -> bool:
        """Make an anneal; return whether it was complete."""
        span = run.remaining

        def spent() -> float:
            return 1.0 - run.remaining / span if 0.0 < span < math.inf else float(span <= 0.0)

        self.labels, complete = annealed(self.gains, self.max_clusters, number, run.rng, spent)
        run.offer(self.labels)
        return complete
