"""Simulated annealing: heat-bath sampling while the temperature falls, then descent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from inference_lab._numba import inlined, lean_kernel
from inference_lab.algorithms.iteration import IterativeSolver, Progress
from inference_lab.contract import Outcome, Run
from inference_lab.graph.arrays import TABLE, FloatArray, GraphArrays, IntArray
from inference_lab.graph.factor_graph import FactorGraph, unary_minimum
from inference_lab.graph.label_costs import LabelCosts
from inference_lab.kernels.descent import (
    KEEP,
    add_prices,
    count_users,
    enter,
    icm_sweep,
    label_cost_sweep,
    leave,
)
from inference_lab.kernels.messages import local_costs
from inference_lab.kernels.regions import nearest
from inference_lab.specs.settings import setting

#: Steps of a kernel between two checks of the clock: a few milliseconds.
_STEPS = 1_000_000
#: A label this many temperatures above the best is never drawn (probability 4e-18).
_CUTOFF = 40.0
#: The penalty of a violated hard term, in start temperatures of the anneal or reheat.
_PENALTY = 3.0
#: The share of reheats that start at lower temperatures, and the least of these as a share of the
#: highest. Costs of different size freeze at different temperatures.
_COOLER = 0.5
_COOLEST = 0.02
#: Share of the time of an anneal that is kept for the descent at its end.
_RESERVE = 0.1
#: Fewest variables of a region.
_SMALLEST = 8
#: Labellings offered during the cooling of each anneal.
_CHECKPOINTS = 10


@lean_kernel
def heat_bath(
    g: GraphArrays,
    p: LabelCosts,
    x: IntArray,
    used: IntArray,
    order: IntArray,
    start: int,
    uniforms: FloatArray,
    temperatures: FloatArray,
    penalty: float,
    cost: FloatArray,
    infinite: IntArray,
) -> tuple[float, int]:
    """Draw the label of one variable after another from its conditional, in place."""
    # The visits go round the variables in `order`, starting at ``order[start]``. Every violated
    # hard term counts as `penalty`. Returns the changes of the finite costs and of the number of
    # violated hard terms.
    at = start
    turn = 0
    change = 0.0
    violations = 0
    for v in range(uniforms.size):
        i = order[at]
        k = g.cardinalities[i]
        local_costs(g, x, i, cost, infinite)
        leave(p, used, x[i])
        add_prices(p, used, k, cost)
        minimum = np.inf
        for a in range(k):
            minimum = min(minimum, cost[a] + infinite[a] * penalty)
        change -= cost[x[i]]
        violations -= infinite[x[i]]
        total = 0.0
        for a in range(k):
            above = cost[a] + infinite[a] * penalty - minimum
            if above < _CUTOFF * temperatures[turn]:
                total += np.exp(-above / temperatures[turn])
        rest = uniforms[v] * total
        for a in range(k):
            above = cost[a] + infinite[a] * penalty - minimum
            if above < _CUTOFF * temperatures[turn]:
                # The last label with weight is the fallback if rounding leaves a rest.
                x[i] = a
                rest -= np.exp(-above / temperatures[turn])
                if rest < 0.0:
                    break
        enter(p, used, x[i])
        change += cost[x[i]]
        violations += infinite[x[i]]
        at += 1
        if at == order.size:
            at = 0
            turn += 1
    return change, violations


@lean_kernel
def fill_fields(
    g: GraphArrays, x: IntArray, cost: FloatArray, infinite: IntArray, fields: FloatArray
) -> None:
    """Fill the costs of all labels of each variable given the other labels, all finite."""
    for i in range(x.size):
        local_costs(g, x, i, cost, infinite)
        first = g.unary_ptr[i]
        for a in range(g.cardinalities[i]):
            fields[first + a] = cost[a]


@inlined
def relabel(g: GraphArrays, x: IntArray, i: int, new: int, fields: FloatArray) -> None:
    """Change the label of a variable, and update the costs of its neighbours."""
    old = x[i]
    x[i] = new
    for p in range(g.adj_ptr[i], g.adj_ptr[i + 1]):
        q = np.uint64(p)
        h = np.uint64(g.adj_half[q])
        j = np.uint64(g.adj_var[q])
        e = h >> np.uint64(1)
        k = g.cardinalities[j]
        first = g.unary_ptr[j]
        kind = g.kinds[e]
        weight = g.weights[e]
        at = g.offsets[e]
        if kind != TABLE:
            # `weight` is the cost of unequal labels.
            if old < k:
                fields[np.uint64(first + old)] -= g.pairwise[np.uint64(at + old * kind)] - weight
            if new < k:
                fields[np.uint64(first + new)] += g.pairwise[np.uint64(at + new * kind)] - weight
            continue
        # Strides for the rows of the two labels in the table, or for their columns.
        stride, step = (k, 1) if h & np.uint64(1) == np.uint64(0) else (1, g.cardinalities[i])
        for b in range(k):
            paid = g.pairwise[np.uint64(at + old * stride + b * step)]
            pays = g.pairwise[np.uint64(at + new * stride + b * step)]
            fields[np.uint64(first + b)] += weight * (pays - paid)


@lean_kernel
def put_back(
    g: GraphArrays, x: IntArray, order: IntArray, labels: IntArray, fields: FloatArray
) -> None:
    """Restore the labels of the variables in `order`."""
    for t in range(order.size):
        if x[order[t]] != labels[t]:
            relabel(g, x, order[t], labels[t], fields)


@lean_kernel
def heat_bath_by_fields(
    g: GraphArrays,
    x: IntArray,
    order: IntArray,
    start: int,
    uniforms: FloatArray,
    temperatures: FloatArray,
    fields: FloatArray,
    weights: FloatArray,
) -> float:
    """Run `heat_bath` on finite costs, with fields that are kept up to date."""
    # A visit without a change, as nearly all are at the end of an anneal, reads no neighbour.
    # Returns the change of the energy.
    at = start
    turn = 0
    change = 0.0
    beta = 1.0 / temperatures[0]
    for v in range(uniforms.size):
        i = order[at]
        k = g.cardinalities[i]
        first = g.unary_ptr[i]
        minimum = np.inf
        for a in range(k):
            minimum = min(minimum, fields[np.uint64(first + a)])
        total = 0.0
        for a in range(k):
            above = (fields[np.uint64(first + a)] - minimum) * beta
            weights[a] = np.exp(-above) if above < _CUTOFF else 0.0
            total += weights[a]
        rest = uniforms[v] * total
        new = x[i]
        for a in range(k):
            if weights[a] > 0.0:
                # The last label with weight is the fallback if rounding leaves a rest.
                new = a
                rest -= weights[a]
                if rest < 0.0:
                    break
        if new != x[i]:
            change += fields[np.uint64(first + new)] - fields[np.uint64(first + x[i])]
            relabel(g, x, i, new, fields)
        at += 1
        if at == order.size:
            at = 0
            turn += 1
            if turn < temperatures.size:
                beta = 1.0 / temperatures[turn]
    return change


@lean_kernel
def move_costs(
    g: GraphArrays,
    p: LabelCosts,
    x: IntArray,
    used: IntArray,
    cost: FloatArray,
    infinite: IntArray,
    out: FloatArray,
) -> None:
    """Fill ``out[i]``, the mean absolute finite change of energy when variable ``i`` moves."""
    for i in range(x.size):
        k = g.cardinalities[i]
        local_costs(g, x, i, cost, infinite)
        leave(p, used, x[i])
        add_prices(p, used, k, cost)
        enter(p, used, x[i])
        out[i] = 0.0
        for a in range(k):
            out[i] += abs(cost[a] - cost[x[i]]) / max(1, k - 1)


@dataclass(frozen=True)
class SimulatedAnnealing(IterativeSolver["_AnnealingState"]):
    """Simulated annealing (Kirkpatrick, Gelatt, Vecchi 1983; Geman, Geman 1984).

    Sweeps over the variables and draws each label from ``exp(-cost / T)`` given all others (heat
    bath) while T falls geometrically from `start_temperature` to `end_ratio` times it. A descent
    (`icm`) ends the anneal. Then random connected regions are reheated: annealed alone from at most
    `reheat_ratio` times the start temperature; the result stays if the energy did not rise.

    A violated hard term counts as a penalty of three start temperatures, so that paths between
    feasible labellings may cross infeasible ones; while the labelling is infeasible, reheats draw
    the penalty from a quarter to 16 times that. Descents and comparisons count violations before
    costs.

    Parameters
    ----------
    sweeps : int
        Sweeps of one anneal. Under a limit on time or iterations the temperature falls faster, so
        that half of it is left for reheats.
    reheats : int
        Rounds of reheating after each anneal; a round covers every variable once on average.
    restarts : int
        Further anneals with their reheats, from random labellings.
    start_temperature : float or None
        None takes the mean absolute cost of a move from a random labelling.
    end_ratio : float in (0, 1]
        The last temperature as a share of the first.
    reheat_ratio : float in (0, 1]
        Where a reheat starts at most, as a share of the start temperature; so does an anneal that
        starts from a labelling given to the run.
    reheat_sweeps : int
        Sweeps of one reheat over its region.
    region : int
        Largest number of variables in a region.

    Guarantees
    ----------
    The answer is a local minimum: no single change lowers its energy (unless time runs out). No
    bound. `converged` means that every anneal and reheat ran its full length.

    Complexity
    ----------
    A sweep costs O(k) a variable, O(degree) a change for diagonal terms, O(k) more a table. With
    infinite costs, factors or label costs: O(k + degree) a variable, O(k) more a table, O(k *
    arity) more a factor, and the size of the sets for label costs. Memory: n labels, orders and
    flags, and a copy of the unaries.

    References
    ----------
    S. Kirkpatrick, C. D. Gelatt, M. P. Vecchi, "Optimization by simulated annealing", Science
    220, 1983.
    S. Geman, D. Geman, "Stochastic relaxation, Gibbs distributions, and the Bayesian restoration
    of images", IEEE PAMI 6(6), 1984, sec. XI.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> il.solve(g, "simulated-annealing(sweeps=100)").energy
    0.5
    """

    label_costs: ClassVar[bool] = True

    sweeps: int = setting(2000, at_least=1)
    reheats: int = setting(100, at_least=0)
    restarts: int = setting(0, at_least=0)
    start_temperature: float | None = setting(None, above=0, below=math.inf)
    end_ratio: float = setting(0.1, above=0, at_most=1)
    reheat_ratio: float = setting(0.7, above=0, at_most=1)
    reheat_sweeps: int = setting(100, at_least=1)
    region: int = setting(100, at_least=1)

    def start(self, graph: FactorGraph, run: Run) -> _AnnealingState | Outcome:
        """Draw a labelling, and find the start temperature."""
        state = _AnnealingState(self, graph, run)
        if state.n == 0:
            return self.finish(state, run, Outcome(converged=True))
        # Offered first, because an anneal that is cut short may end above this energy.
        run.offer(unary_minimum(graph))
        return state

    def step(self, state: _AnnealingState, run: Run, done: int) -> Progress:
        """Anneal and reheat, from random labels after the first time."""
        if state.anneals:
            state.begin(state.random())
        warm = not state.anneals and run.initial is not None
        state.complete &= state.anneal(warm, self.restarts + 1 - state.anneals)
        state.anneals += 1
        finished = state.anneals > self.restarts
        return Progress(finished and state.complete, -math.inf, state.sweeps - done, finished)

    def finish(self, state: _AnnealingState, run: Run, outcome: Outcome) -> Outcome:
        """Add the temperature and the number of reheats."""
        outcome.diagnostics = {
            "start_temperature": state.first,
            "reheats": state.reheats,
            "reheats_that_gained": state.gains,
        }
        return outcome


class _AnnealingState:
    """The labelling of a run and the data to change it."""

    def __init__(self, settings: SimulatedAnnealing, graph: FactorGraph, run: Run) -> None:
        self.settings = settings
        self.graph = graph
        self.run = run
        self.n = graph.n_variables
        width = int(graph.cardinalities.max(initial=1))
        self.cost, self.infinite = np.empty(width), np.empty(width, dtype=np.int64)
        finite = not (graph.has_infinite or graph.n_factors or graph.n_label_costs)
        self.fields = np.empty(graph.unary_values.size) if finite else None
        self.order = np.arange(self.n, dtype=np.int64)
        mean_degree = float(graph.degrees.mean()) if self.n else 0.0
        self.block = max(1, int(_STEPS / (10.0 + width * (1.0 + mean_degree))))
        self.feasible = False
        # Whether all anneals and reheats so far had their full length.
        self.complete = True
        self.visits = self.anneals = self.reheats = self.gains = 0
        self.begin(self.random())
        sizes = np.empty(self.n)
        move_costs(
            graph.arrays, graph.label_costs, self.x, self.used, self.cost, self.infinite, sizes
        )
        moving = sizes[sizes > 0.0]
        scale = float(moving.mean()) if moving.size else 1.0
        self.first = scale
        if settings.start_temperature is not None:
            self.first = settings.start_temperature
        if run.initial is not None:
            self.begin(run.initial.copy())
        run.offer(self.x)

    def begin(self, x: IntArray) -> None:
        """Continue from this labelling."""
        self.x = x
        self.used = count_users(self.graph.label_costs, x)
        self.refresh()

    def refresh(self) -> None:
        """Recompute the fields after untracked changes."""
        if self.fields is not None:
            fill_fields(self.graph.arrays, self.x, self.cost, self.infinite, self.fields)

    @property
    def sweeps(self) -> int:
        """Sweeps so far: the number of visits for each variable, on average."""
        return self.visits // max(1, self.n)

    def random(self) -> IntArray:
        """Draw a labelling, shape (n,)."""
        return self.run.rng.integers(0, self.graph.cardinalities, dtype=np.int64)

    def visit(
        self, order: IntArray, start: int, size: int, temperatures: FloatArray, penalty: float
    ) -> tuple[float, int]:
        """Make `size` visits; return the changes of finite costs and violations."""
        self.visits += size
        arrays = self.graph.arrays
        uniforms = self.run.rng.random(size)
        if self.fields is not None:
            change = heat_bath_by_fields(
                arrays, self.x, order, start, uniforms, temperatures, self.fields, self.cost
            )
            return float(change), 0
        change, violations = heat_bath(
            arrays,
            self.graph.label_costs,
            self.x,
            self.used,
            order,
            start,
            uniforms,
            temperatures,
            penalty,
            self.cost,
            self.infinite,
        )
        return float(change), int(violations)

    def anneal(self, warm: bool, n_rounds: int) -> bool:
        """Cool down once and reheat, within the `n_rounds`-th part of the remaining budget."""
        settings, run = self.settings, self.run
        sweeps = settings.sweeps
        # Under a tight budget, the anneal of all variables gains more than reheats.
        first_share = 0.5 if settings.reheats else 1.0
        limit = math.inf
        if run.max_iterations is not None:
            granted = max(1, (run.max_iterations - self.sweeps) // n_rounds)
            limit = (self.sweeps + granted) * self.n
            sweeps = min(sweeps, max(1, int(granted * first_share)))
        time_left = run.remaining * (n_rounds - 1) / n_rounds
        span = (run.remaining - time_left) * (1.0 - _RESERVE)
        full = self.cool(warm, sweeps, span * first_share)
        stable = self.quench()
        self.judge()
        region = np.empty(min(settings.region, self.n), dtype=np.int64)
        seen = np.zeros(self.n, dtype=np.int64)
        largest = region.size * settings.reheat_sweeps
        for _ in range(settings.reheats):
            end = self.visits + self.n * settings.reheat_sweeps
            while self.visits < end:
                if self.visits + largest > limit or run.remaining <= time_left:
                    return False
                self.reheat(region, seen)
            stable = self.quench()
            self.judge()
        return full and stable and sweeps == settings.sweeps

    def cool(self, warm: bool, sweeps: int, seconds: float) -> bool:
        """Anneal all variables; return whether this took all of the sweeps."""
        settings, run = self.settings, self.run
        hot = self.first * (settings.reheat_ratio if warm else 1.0)
        cold = min(hot, self.first * settings.end_ratio)
        clock = run.remaining
        total = sweeps * self.n
        done = offered = 0
        while done < total:
            # The temperature also follows the time, if that advances faster than the sweeps.
            hurry = 0.0 if run.time_limit is None else (clock - run.remaining) / max(seconds, 1e-9)
            if hurry >= 1.0 or run.remaining <= 0.0:
                return False
            size = min(total - done, self.block)
            begun = done // self.n
            turns = (done % self.n + size - 1) // self.n + 1
            shares = [max(hurry, (begun + t) / sweeps) for t in range(turns)]
            temperatures = hot * (cold / hot) ** np.array(shares)
            self.visit(self.order, done % self.n, size, temperatures, _PENALTY * hot)
            done += size
            if _CHECKPOINTS * shares[-1] > offered + 1:
                offered = int(_CHECKPOINTS * shares[-1])
                run.offer(self.x)
        return True

    def reheat(self, region: IntArray, seen: IntArray) -> None:
        """Anneal one region and keep the result unless the energy rose."""
        settings, rng = self.settings, self.run.rng
        self.reheats += 1
        smallest = min(_SMALLEST, region.size)
        size = int(smallest * (region.size / smallest) ** rng.random())
        centre = int(rng.integers(self.n))
        size = nearest(self.graph.arrays, centre, size, seen, self.reheats, region)
        order = region[:size]
        before = self.x[order]
        users = self.used.copy()
        hot = self.first * settings.reheat_ratio
        penalty = _PENALTY if self.feasible else _PENALTY * 4.0 ** rng.uniform(-1.0, 2.0)
        if rng.random() < _COOLER:
            hot *= _COOLEST ** rng.random()
        cold = hot * settings.end_ratio / settings.reheat_ratio
        sweeps = settings.reheat_sweeps
        temperatures = hot * (cold / hot) ** (np.arange(sweeps) / sweeps)
        # The last round only descends, so that local minima are compared.
        temperatures[-1] = cold * 1e-6
        change, violations = self.visit(order, 0, size * sweeps, temperatures, penalty * hot)
        if violations > 0 or (violations == 0 and change > 0.0):
            self.used = users
            if self.fields is None:
                self.x[order] = before
            else:
                put_back(self.graph.arrays, self.x, order, before, self.fields)
        elif violations < 0 or change < 0.0:
            self.gains += 1

    def judge(self) -> None:
        """Offer the labelling."""
        self.feasible = math.isfinite(self.run.offer(self.x))

    def quench(self) -> bool:
        """Descend to a local minimum; return whether it was reached before time ran out."""
        dirty: npt.NDArray[np.bool_] = np.ones(self.n, dtype=np.bool_)
        while True:
            order = np.flatnonzero(dirty)
            if order.size == 0:
                self.refresh()
                return True
            for lo in range(0, order.size, self.block):
                block = order[lo : lo + self.block]
                if self.graph.n_label_costs:
                    label_cost_sweep(
                        self.graph.arrays,
                        self.graph.label_costs,
                        self.x,
                        self.used,
                        block,
                        dirty,
                        self.cost,
                        self.infinite,
                    )
                else:
                    icm_sweep(
                        self.graph.arrays, self.x, block, dirty, self.cost, self.infinite, KEEP
                    )
                if self.run.remaining <= 0.0:
                    return False
