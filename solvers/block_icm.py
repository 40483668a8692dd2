"""Block ICM: relabel random induced forests, each jointly and exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from inference_lab.contract import Outcome, Run, Solver
from inference_lab.graph.arrays import IntArray
from inference_lab.graph.factor_graph import FactorGraph, unary_minimum
from inference_lab.kernels.forests import RELATIVE_GAIN, grow, relabel, soften, start_block
from inference_lab.kernels.messages import cost_scale
from inference_lab.specs.settings import setting

#: Most variables of a block: some tens of milliseconds between two looks at the clock.
_LARGEST = 50_000


@dataclass(frozen=True)
class BlockICM(Solver):
    """Coordinate descent over blocks that form forests (Hamze, de Freitas 2004; Kelm et al. 2006).

    A block is a random set of variables whose terms with each other form a forest, grown until no
    other variable fits; given the labels of all others it is relabelled jointly and exactly by
    dynamic programming. A sweep draws blocks until every variable was in one, starting each with
    those that were not; the next sweep draws others. A factor of three variables or more takes
    part as a term between two members of a block, or as a unary of one.

    From a labelling of infinite energy, hard terms first count as finite costs above all others
    together, until none is violated.

    Parameters
    ----------
    patience : int
        Sweeps in a row without gain after which the search ends.

    Guarantees
    ----------
    The energy never rises. On a pairwise forest one block holds all variables, and the answer is
    optimal with proof, or infeasibility proved. `converged` says that `patience` sweeps changed
    nothing, after which no single change gains either. No bound on graphs with cycles.

    Complexity
    ----------
    A sweep costs O(k) a term for diagonal and truncated linear terms, O(k^2) for tables, O(k^2 +
    arity) for higher-order factors; on dense graphs O(edges + n^2), as n/2 blocks of two are
    needed. Memory: one number a label and 12 a variable. An iteration is a block.

    References
    ----------
    F. Hamze, N. de Freitas, "From fields to trees", UAI 2004.
    B. M. Kelm, N. Mueller, B. H. Menze, F. A. Hamprecht, "Bayesian estimation of smooth parameter
    maps for dynamic contrast-enhanced MR images with block-ICM", CVPR workshops, 2006.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 0.3], [0.0, 0.3], [1.0, 0.0]], [(0, 1), (1, 2)], [2.0, 0.8])
    >>> s = il.solve(g, "block-icm", initial=[0, 0, 0])
    >>> s.energy, s.status
    (0.6, <Status.OPTIMAL: 'optimal'>)
    """

    start_up: ClassVar[float] = 6.7

    patience: int = setting(10, at_least=1)

    def run(self, graph: FactorGraph, run: Run) -> Outcome:
        """Sweep until nothing changes any more or the budget is spent."""
        x = unary_minimum(graph) if run.initial is None else run.initial.copy()
        state = _State(graph, run, x)
        sweeps = idle = 0
        while not (state.solved or state.infeasible) and idle < self.patience:
            if run.should_stop(state.blocks) or not state.sweep():
                break
            sweeps += 1
            idle = 0 if state.changed else idle + 1
        if state.infeasible:
            return Outcome(infeasible=True, iterations=state.blocks)
        if state.solved:
            # A labelling within rounding of the optimum is kept as it is.
            terms = graph.n_variables + graph.n_edges + graph.n_factors
            run.bound(run.best_energy - RELATIVE_GAIN * cost_scale(graph) * terms)
        return Outcome(
            converged=state.solved or idle >= self.patience,
            iterations=state.blocks,
            diagnostics={
                "sweeps": sweeps,
                "mean_block": state.relabelled / max(1, state.blocks),
            },
        )


class _State:
    """The labelling of a run and the blocks drawn so far."""

    def __init__(self, graph: FactorGraph, run: Run, x: IntArray) -> None:
        self.graph = graph
        self.run = run
        self.x = x
        self.block = start_block(graph)
        self.blocks = 0
        self.relabelled = 0
        self.changed = 0
        self.soft = math.isinf(run.offer(x))
        self.arrays = soften(graph) if self.soft else graph.arrays
        self.solved = graph.n_variables == 0
        self.infeasible = False

    def sweep(self) -> bool:
        """Relabel blocks until each variable was in one; return whether time sufficed."""
        n = self.graph.n_variables
        order = self.run.rng.permutation(n)
        left = order
        self.changed = 0
        while left.size:
            if self.run.should_stop(self.blocks):
                return False
            self.blocks += 1
            stamp = self.blocks
            most = min(n, _LARGEST)
            size = grow(self.arrays, self.block, left, stamp, 0, most)
            if left.size < n:
                size = grow(self.arrays, self.block, order, stamp, size, most)
            soft = self.soft
            changed = relabel(self.arrays, self.x, self.block, order, stamp)
            self.relabelled += size
            self.changed += changed
            if changed:
                energy = self.run.offer(self.x)
                if self.soft and math.isfinite(energy):
                    self.soft = False
                    self.arrays = self.graph.arrays
            if size == n:
                # Solved exactly as a whole, hard terms with the precision of soft ones first.
                self.infeasible = self.soft
                self.solved = not soft
                if self.solved or self.infeasible:
                    return True
            left = left[self.block.member[left] != stamp]
        return True
