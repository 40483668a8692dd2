"""Simulated annealing: heat-bath sampling while the temperature falls, then descent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from inference_lab._numba import lean_kernel
from inference_lab.contract import Outcome, Run, Solver
from inference_lab.factor_graph import FactorGraph, FloatArray, GraphArrays, IntArray
from inference_lab.kernels import local_costs
from inference_lab.solvers.icm import sweep as icm_sweep

#: Visits of variables between two looks at the clock: a few milliseconds.
_BLOCK = 65_536
#: A label this many temperatures above the best is never drawn (probability 4e-18).
_CUTOFF = 40.0
#: The least penalty of a violated hard term, in mean costs of a move.
_PENALTY = 8.0
#: Share of the time of an anneal that is kept for the descent at its end.
_RESERVE = 0.1
#: Labellings offered on the way down, in each anneal.
_CHECKPOINTS = 10


@lean_kernel
def heat_bath(
    g: GraphArrays,
    x: IntArray,
    start: int,
    uniforms: FloatArray,
    temperatures: FloatArray,
    penalty: float,
    cost: FloatArray,
    infinite: IntArray,
) -> None:
    """Draw the label of one variable after another from its conditional, in place.

    The visits go round the variables, the first being ``start``; ``uniforms`` holds a number of
    [0, 1) a visit and ``temperatures`` the temperature of each round. Every violated hard term
    counts as `penalty`. `cost` and `infinite` are scratch of the length of the largest
    cardinality.
    """
    i = start
    turn = 0
    for v in range(uniforms.size):
        k = g.cardinalities[i]
        local_costs(g, x, i, cost, infinite)
        least = np.inf
        for a in range(k):
            if infinite[a] > 0:
                cost[a] += infinite[a] * penalty
            least = min(least, cost[a])
        total = 0.0
        for a in range(k):
            above = (cost[a] - least) / temperatures[turn]
            cost[a] = np.exp(-above) if above < _CUTOFF else 0.0
            total += cost[a]
        rest = uniforms[v] * total
        for a in range(k):
            if cost[a] > 0.0:
                # The last label with weight is taken whatever rounding leaves of the rest.
                x[i] = a
                rest -= cost[a]
                if rest < 0.0:
                    break
        i += 1
        if i == x.size:
            i = 0
            turn += 1


@lean_kernel
def move_costs(
    g: GraphArrays, x: IntArray, cost: FloatArray, infinite: IntArray, out: FloatArray
) -> None:
    """Fill ``out[i]``, the mean absolute finite change of energy when variable ``i`` moves.

    The mean is over the other labels; hard terms are left out of account.
    """
    for i in range(x.size):
        k = g.cardinalities[i]
        local_costs(g, x, i, cost, infinite)
        out[i] = 0.0
        for a in range(k):
            out[i] += abs(cost[a] - cost[x[i]]) / max(1, k - 1)


@dataclass(frozen=True)
class SimulatedAnnealing(Solver):
    """Simulated annealing (Kirkpatrick, Gelatt, Vecchi 1983; Geman, Geman 1984).

    Sweeps over the variables and draws each label from ``exp(-cost / T)`` given all others (heat
    bath) while T falls from `start_temperature` to `end_ratio` times it; with ``s`` the share of
    the anneal that is done, out of ``S`` sweeps,

    * geometric: ``T = T0 r^s``;
    * linear: ``T = T0 (1 - s + s r)``;
    * logarithmic: ``T = T0 / (1 + (1/r - 1) log(1 + s S) / log(1 + S))``.

    Each anneal ends in a descent (`icm`). Reheats follow, from the best labelling so far.

    A violated hard term counts as a penalty that all but excludes it at the end, so that the way
    from one feasible labelling to the next may lead through infeasible ones; the descent counts
    violations before costs.

    Parameters
    ----------
    sweeps : int
        Sweeps of one anneal. Under a limit on time or iterations the temperature falls faster, so
        that every anneal is finished within it.
    restarts : int
        Further anneals, from random labellings.
    reheats : int
        Anneals that follow each of these, starting from the best labelling so far at
        `reheat_ratio` times the start temperature. An anneal that starts from a labelling given
        to the run begins at this temperature, too.
    schedule : {"geometric", "linear", "logarithmic"}
    start_temperature : float or None
        None takes the mean absolute cost of a move from a random labelling.
    end_ratio : float in (0, 1]
        The last temperature as a share of the first.
    reheat_ratio : float in (0, 1]

    Guarantees
    ----------
    The answer is a local minimum: no single change lowers its energy (unless time runs out in a
    descent). No bound. `converged` says that every anneal ran its full length.

    Complexity
    ----------
    A sweep costs O(k + degree) a variable for diagonal terms, O(k) more a table, O(k * arity)
    more a higher-order factor. Memory: n labels and flags.

    References
    ----------
    S. Kirkpatrick, C. D. Gelatt, M. P. Vecchi, "Optimization by simulated annealing", Science
    220, 1983.
    S. Geman, D. Geman, "Stochastic relaxation, Gibbs distributions, and the Bayesian restoration
    of images", IEEE PAMI 6(6), 1984, sec. XI (the logarithmic schedule).

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> il.solve(g, "simulated-annealing(sweeps=100)").energy
    0.5
    """

    sweeps: int = 2000
    restarts: int = 0
    reheats: int = 3
    schedule: Literal["geometric", "linear", "logarithmic"] = "geometric"
    start_temperature: float | None = None
    end_ratio: float = 0.02
    reheat_ratio: float = 0.3

    def __post_init__(self) -> None:
        """Check the settings."""
        if self.sweeps < 1:
            raise ValueError(f"sweeps must be at least 1, got {self.sweeps}")
        for name in ("restarts", "reheats"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        if self.start_temperature is not None and not 0.0 < self.start_temperature < np.inf:
            raise ValueError(
                f"start_temperature must be positive and finite, got {self.start_temperature}"
            )
        for name in ("end_ratio", "reheat_ratio"):
            if not 0.0 < getattr(self, name) <= 1.0:
                raise ValueError(
                    f"{name} must be above 0 and at most 1, got {getattr(self, name)}"
                )

    def temperature(self, first: float, last: float, done: float, sweeps: int) -> float:
        """Return the temperature when a share `done` of an anneal of so many sweeps is over."""
        ratio = last / first
        if self.schedule == "geometric":
            return float(first * ratio**done)
        if self.schedule == "linear":
            return float(first * (1.0 - done + done * ratio))
        slowness = math.log1p(done * sweeps) / math.log1p(sweeps)
        return float(first / (1.0 + (1.0 / ratio - 1.0) * slowness))

    def run(self, graph: FactorGraph, run: Run) -> Outcome:
        """Anneal, reheat and restart, each time down to a local minimum."""
        state = _State(self, graph, run)
        first = state.scale if self.start_temperature is None else self.start_temperature
        anneals = (self.restarts + 1) * (self.reheats + 1)
        finished = 0
        for anneal in range(anneals):
            if anneal and run.should_stop(state.sweeps):
                break
            fresh = anneal % (self.reheats + 1) == 0
            if anneal == 0:
                warm = run.initial is not None
            else:
                warm = not fresh
                state.x[:] = state.random(run) if fresh else state.best
            hot = first * (self.reheat_ratio if warm else 1.0)
            # A reheat that is allowed to start above the end is not turned into a heating.
            cold = min(hot, first * self.end_ratio)
            full = state.anneal(self, run, hot, cold, anneals - anneal)
            finished += full
        return Outcome(
            converged=finished == anneals,
            iterations=state.sweeps,
            diagnostics={"start_temperature": first, "anneals": finished},
        )


class _State:
    """The labelling of a run and what is needed to change it."""

    def __init__(self, settings: SimulatedAnnealing, graph: FactorGraph, run: Run) -> None:
        self.graph = graph
        self.n = graph.n_variables
        width = int(graph.cardinalities.max(initial=1))
        self.cost, self.infinite = np.empty(width), np.empty(width, dtype=np.int64)
        self.sweeps = 0
        self.x = self.random(run)
        sizes = np.empty(self.n)
        move_costs(graph.arrays, self.x, self.cost, self.infinite, sizes)
        moving = sizes[sizes > 0.0]
        self.scale = float(moving.mean()) if moving.size else 1.0
        # Violated terms must outweigh what a variable can gain by them, as far as one labelling
        # shows it; where they do not, the descent removes them.
        self.penalty = max(_PENALTY * self.scale, float(sizes.max(initial=0.0)))
        if run.initial is not None:
            self.x = run.initial.copy()
        self.best = self.x.copy()
        self.best_energy = run.offer(self.x)

    def random(self, run: Run) -> IntArray:
        """Draw a labelling, shape (n,)."""
        return run.rng.integers(0, self.graph.cardinalities, dtype=np.int64)

    def anneal(
        self, settings: SimulatedAnnealing, run: Run, hot: float, cold: float, left: int
    ) -> bool:
        """Cool down once, with at most the `left`-th part of the budget that is left.

        Returns whether the anneal had its full length, and its descent came to an end.
        """
        sweeps = settings.sweeps
        if run.max_iterations is not None:
            sweeps = min(sweeps, max(1, (run.max_iterations - self.sweeps) // left))
        time_at_start = run.remaining
        time_share = time_at_start / left * (1.0 - _RESERVE)
        visits = 0
        total = sweeps * self.n
        offered = 0
        while visits < total and not run.should_stop(self.sweeps):
            hurry = 0.0
            if run.time_limit is not None:
                spent = time_at_start - run.remaining
                hurry = spent / time_share if spent < time_share else 1.0
                # What is left of the sweeps is spread over what is left of the time.
                if hurry >= 1.0:
                    break
            start = visits % self.n
            size = min(total - visits, _BLOCK)
            turns = (start + size - 1) // self.n + 1
            begun = visits // self.n
            temperatures = np.array(
                [
                    settings.temperature(hot, cold, max(hurry, (begun + t) / sweeps), sweeps)
                    for t in range(turns)
                ]
            )
            heat_bath(
                self.graph.arrays,
                self.x,
                start,
                run.rng.random(size),
                temperatures,
                self.penalty,
                self.cost,
                self.infinite,
            )
            visits += size
            self.sweeps += visits // self.n - begun
            passed = int(_CHECKPOINTS * max(hurry, visits / total))
            if passed > offered:
                offered = passed
                self.offer(run)
        stable = self.quench(run)
        self.offer(run)
        return stable and sweeps == settings.sweeps and visits == total

    def quench(self, run: Run) -> bool:
        """Descend to a local minimum; return whether it was reached before time ran out."""
        dirty: npt.NDArray[np.bool_] = np.ones(self.n, dtype=np.bool_)
        while True:
            order = np.flatnonzero(dirty)
            if order.size == 0:
                return True
            for lo in range(0, order.size, _BLOCK):
                icm_sweep(
                    self.graph.arrays,
                    self.x,
                    order[lo : lo + _BLOCK],
                    dirty,
                    self.cost,
                    self.infinite,
                )
                if run.remaining <= 0.0:
                    return False

    def offer(self, run: Run) -> None:
        """Offer the labelling, and keep it if it is the best of this run."""
        energy = run.offer(self.x)
        if energy < self.best_energy:
            self.best_energy = energy
            self.best[:] = self.x
