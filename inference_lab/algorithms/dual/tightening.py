"""Tightening of dual bounds by clusters of variables, added in rounds where they gain most.

`tighten` continues from any reparametrisation. See `inference_lab.algorithms.dual.clusters` and
`inference_lab.algorithms.dual.frustration`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from inference_lab.algorithms.dual.clusters import DualClusters
from inference_lab.algorithms.dual.frustration import find_cycles
from inference_lab.algorithms.dual.reparametrisation import Dual
from inference_lab.contract import Run
from inference_lab.formatting import counted
from inference_lab.graph.arrays import Int32Array
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.precision import energy_step, next_energy
from inference_lab.kernels.descent import descend
from inference_lab.kernels.messages import cost_scale

#: Entries that one sweep over the clusters of a round may visit.
_ROUND_WORK = 200_000_000
#: Most variables of a frustrated cycle, one limit after the other: longer cycles are searched when
#: shorter ones have run out, since many short cycles raise the bound faster than few long ones.
_LONGEST = (6, 8, 12)
#: Sweeps between two evaluations of the bound.
_BLOCK = 5
#: A round ends when a block of sweeps gains less than this share of the gain of the round.
_ROUND_ENDS = 0.1
#: Gains below this share of the mean cost count as none.
_NOTHING = 1e-12
#: Sweeps of the polish; ICM needs about ten.
_POLISH_SWEEPS = 100


@dataclass(frozen=True)
class Tightened:
    """Result of `tighten`."""

    #: The bound of the given reparametrisation.
    start_bound: float
    #: Rounds of adding clusters; clusters added; pairs added that had no term of their own; and
    #: sweeps made, including the earlier ones.
    rounds: int
    clusters: int
    pairs: int
    sweeps: int
    #: Stopping reason: "converged" (no cluster is left that promises a gain, and sweeps gain too
    #: little), "proved", "infeasible", "rounds", "memory", "sweeps" or "budget" (of the run).
    stopped_by: str

    @property
    def limit(self) -> str:
        """The limit of the method that ended it, empty if another reason did."""
        limits = {
            "rounds": f"{counted(self.rounds, 'round')} of added clusters",
            "memory": "the memory of added clusters",
            "sweeps": counted(self.sweeps, "sweep"),
        }
        return limits.get(self.stopped_by, "")


def tighten(
    graph: FactorGraph,
    run: Run,
    dual: Dual,
    *,
    per_round: int = 2000,
    max_rounds: int = 100,
    max_memory: float = 1e9,
    tolerance: float = 1e-6,
    sweeps: int = 0,
    max_sweeps: int = 10_000,
) -> Tightened:
    """Raise the bound of a reparametrisation by adding clusters."""
    # In rounds: sweep over variables, factors and clusters until the sweeps gain little, search for
    # clusters, and add the most promising ones: frustrated cycles cut into triangles (Sontag, Choe
    # and Li 2012). All parts passed on before stay, so the bound never falls.
    state = DualClusters(graph, dual)
    scale = cost_scale(graph)
    step = energy_step(graph)
    start = bound = state.bound()
    rounds = 0
    natural = np.arange(graph.n_variables)
    limits = list(_LONGEST)

    def report(reason: str) -> Tightened:
        return Tightened(start, rounds, state.count, state.new_pairs, sweeps, reason)

    def offer() -> None:
        for backwards in (False, True):
            x = state.decode(backwards)
            run.offer(x)
            descend(graph, x, natural, _POLISH_SWEEPS)
            run.offer(x)

    def block() -> bool:
        """Run a block of sweeps; return whether the budget is used up."""
        nonlocal sweeps
        for _ in range(_BLOCK):
            if sweeps >= max_sweeps or run.should_stop(sweeps):
                return True
            if not state.sweep(run, bool(sweeps % 2)):
                return True
            sweeps += 1
        return False

    run.bound(next_energy(graph, start, step), 2.0 * state.rounding)
    while True:
        before = bound
        while True:
            last = bound
            stopped = block()
            bound = state.bound()
            run.bound(next_energy(graph, bound, step), 2.0 * state.rounding)
            if math.isinf(bound):
                return report("infeasible")
            gain = bound - last
            small = max(tolerance * (bound - start + scale), _NOTHING * scale)
            if stopped or run.proved or gain <= max(small, _ROUND_ENDS * (bound - before)):
                break
        offer()
        if run.proved:
            return report("proved")
        if stopped:
            return report("sweeps" if sweeps >= max_sweeps else "budget")
        if rounds >= max_rounds:
            return report("rounds")
        state.redistribute_costs()
        candidates = find_cycles(state, limits[0], per_round, small, run)
        while len(candidates) == 0 and len(limits) > 1:
            del limits[0]
            candidates = find_cycles(state, limits[0], per_round, small, run)
        if run.should_stop(sweeps):
            return report("budget")
        if len(candidates) == 0:
            if gain <= small:
                return report("converged")
            continue
        batch = _that_fit(state, candidates, max_memory)[:per_round]
        if len(batch) == 0:
            return report("memory")
        state.add(batch)
        rounds += 1


def _that_fit(state: DualClusters, candidates: Int32Array, max_memory: float) -> Int32Array:
    """Return the leading clusters found that fit the work limit and the memory limit."""
    work, memory = state.cost_of(candidates)
    fits = np.cumsum(work) <= _ROUND_WORK
    fits[0] = True
    fits &= state.memory + np.cumsum(memory) <= max_memory
    return candidates[fits]
