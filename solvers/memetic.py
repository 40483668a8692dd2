"""Memetic search: a population of local optima, changed by regions and crossed part by part."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from inference_lab._numba import inlined, lean_kernel
from inference_lab.algorithms.iteration import IterativeSolver, Progress
from inference_lab.contract import Outcome, Run
from inference_lab.graph.arrays import TABLE, FloatArray, GraphArrays, IntArray
from inference_lab.graph.factor_graph import FactorGraph, unary_minimum
from inference_lab.kernels.ejection_chains import (
    RELATIVE_GAIN,
    EjectionChains,
    Rules,
    begin_kick,
    begin_pass,
    chains_from,
    extend,
    fill,
    keep_better_parts,
    put,
    roll_back,
    start_chains,
)
from inference_lab.kernels.messages import cost_scale, with_tables
from inference_lab.kernels.regions import nearest
from inference_lab.kernels.struct import One, record
from inference_lab.kernels.treewidth_moves import (
    Block,
    arrange,
    decode,
    eliminate,
    grow,
    soften,
    start_block,
)
from inference_lab.registry.registry import as_solver
from inference_lab.solving import solve
from inference_lab.specs.settings import setting

#: Blocks that repair a region, one after the other.
_BLOCKS = 2
#: Most table entries of a block.
_ENTRIES = 1 << 22
#: Work limit of a block, which is never interrupted.
_UNLIMITED = 1 << 62
#: Seeds that a uniform number yields.
_SEEDS = 1 << 53
#: Regions up to this size are repaired by chains from each of their variables, too.
_CHAINED = 30
#: Moves of such a chain after its best state.
_CHAIN = 10
#: Labels with which it begins.
_BRANCHES = 2
#: A pass over all variables ends this many moves after its best state.
_PASS = 100
#: Terms and labels visited between two checks of the clock.
_WORK = 500_000
#: Terms and labels visited by the chains of one mutation, after which it starts no more. Only
#: variables with very many terms reach this: the centre of a star, which each chain moves.
_CHAINS_WORK = 10_000_000
#: Uniform numbers of a mutation besides one per variable: centre, size, kind and two labels.
_HEAD = 5
#: Individuals that differ in a smaller share of the variables count as one.
_ALIKE = 0.02
#: Method that proposes the first labellings.
_PROPOSER = "loopy-bp(damping=0.5, max_sweeps=100)"
#: Noise on the unaries of belief propagation, in mean weights of terms.
_NOISE = 0.3
#: Largest bonus of the parent's labels, in the same unit.
_FAVOUR = 1.0
#: Share of grafts (regions of two individuals) among other children.
_GRAFTED = 0.5
#: Largest region of a graft, as a share of the variables.
_LARGEST = 0.5
#: Belief propagation takes at most this share of the remaining time.
_SHARE = 0.3


class RegionNumbers:
    """The single numbers of mutations."""

    #: Mutations, and those with a gain.
    mutations: int
    gains: int


class Region(NamedTuple):
    """The region of a mutation."""

    #: The variables: the centre, then its surroundings, which blocks use.
    near: IntArray
    #: (n,): the labels, which blocks change before the costs of moves follow.
    shadow: IntArray
    #: (1,): the single numbers.
    now: One[RegionNumbers]


@inlined
def _relabel_block(
    g: GraphArrays,
    soft: GraphArrays,
    x: IntArray,
    c: EjectionChains,
    b: Block,
    r: Region,
    count: int,
    uniform: float,
    tables: bool | None,
) -> int:
    """Relabel a random block of the variables in and around a region; return the work."""
    log2_entries = np.log2(b.tables.entries.size)
    grow(soft, b, r.near[:count], log2_entries, 2 * b.tables.messages.size, int(uniform * _SEEDS))
    arrange(b)
    eliminate(soft, r.shadow, b, 0, _UNLIMITED, tables)
    decode(soft, r.shadow, b, tables)
    work = 0
    for q in range(count):
        i = r.near[q]
        work += put(g, x, c, i, r.shadow[i], tables)
        work += g.adj_ptr[i + 1] - g.adj_ptr[i] + g.inc_ptr[i + 1] - g.inc_ptr[i]
    return work


@inlined
def _copy_changes(x: IntArray, c: EjectionChains, r: Region) -> None:
    for q in range(c.now[0].changed):
        r.shadow[c.journal[q]] = x[c.journal[q]]


@lean_kernel
def mutate(
    g: GraphArrays,
    soft: GraphArrays,
    x: IntArray,
    c: EjectionChains,
    b: Block,
    r: Region,
    mate: IntArray,
    uniforms: FloatArray,
    at: int,
    largest: int,
    rules: Rules,
    work: int,
    tables: bool | None = True,
) -> int:
    """Mutate regions with the uniform numbers from `at` on; return the next position."""
    # Stops after about `work` visits, or returns -1 when the numbers are used up. Counts the
    # successful mutations.
    #
    # A region gets random labels, one label, two labels swapped, or the labels of the mate. Chains
    # and blocks repair the damage. The connected parts of the changes that lower the energy stay.
    # `r.shadow` equals `x`, before and after.
    n_draws = _HEAD + largest + _BLOCKS
    while at + n_draws <= uniforms.size and work > 0:
        r.now[0].mutations += 1
        begin_kick(c)
        centre = int(uniforms[at] * x.size)
        size = int(float(largest) ** uniforms[at + 1])
        around = 2 * size + 10
        around = nearest(g, centre, around, c.seen, c.now[0].kick, r.near)
        size = min(size, around)
        kind = uniforms[at + 2]
        first = int(uniforms[at + 3] * g.cardinalities[centre])
        second = int(uniforms[at + 4] * g.cardinalities[centre])
        at += _HEAD
        for q in range(size):
            i = r.near[q]
            new = x[i]
            if kind < 0.4:
                new = int(uniforms[at + q] * g.cardinalities[i])
            elif kind < 0.6:
                new = first
            elif kind >= 0.8:
                new = mate[i]
            elif x[i] == first:
                new = second
            elif x[i] == second:
                new = first
            if new < g.cardinalities[i]:
                work -= put(g, x, c, i, new, tables)
        at += size
        chained = 0
        if size <= _CHAINED:
            for q in range(size):
                if chained < _CHAINS_WORK:
                    chained += chains_from(g, x, c, r.near[q], rules, tables)
        work -= chained
        _copy_changes(x, c, r)
        for _ in range(_BLOCKS):
            work -= _relabel_block(g, soft, x, c, b, r, around, uniforms[at], tables)
            at += 1
        r.now[0].gains += keep_better_parts(g, x, c, rules.tolerance, tables)
        _copy_changes(x, c, r)
    return at if at + n_draws <= uniforms.size else -1


@lean_kernel
def cross(
    g: GraphArrays,
    x: IntArray,
    c: EjectionChains,
    mate: IntArray,
    tolerance: float,
    tables: bool | None = True,
) -> int:
    """Adopt the parts of a mate that lower the energy; return whether there were any."""
    begin_kick(c)
    for i in range(x.size):
        put(g, x, c, i, mate[i], tables)
    return int(keep_better_parts(g, x, c, tolerance, tables))


@dataclass(frozen=True)
class Memetic(IterativeSolver["_Population"]):
    """Local search on a population, with mutations of regions and partition crossover.

    An individual is improved by *mutations*: a random connected region gets random labels, a single
    label, two labels swapped, or the labels of another individual. Kernighan-Lin chains and exact
    moves on random subgraphs of small treewidth repair the damage. Each connected part of the
    changed variables stays if it lowers the energy (partition crossover, Tinos et al. 2015). A
    mutation costs the size of its region, not of the graph.

    The first individuals are the cheapest labels and results of damped belief propagation on noisy
    unaries. Each generation crosses two individuals by parts, improves the child, and replaces the
    most similar individual or the worst.

    Violated hard terms count before costs.

    Parameters
    ----------
    population : int
        Individuals.
    region : int
        Most variables of a mutation.
    patience : float
        An individual is complete when this many mutations a variable have gained nothing.
    generations : int
        Children in a row without a better labelling after which the search ends. It also ends when
        all individuals have the same energy.

    Guarantees
    ----------
    The energy never rises from one outcome to the next. `converged` means that the search ended by
    itself. No bound.

    Complexity
    ----------
    A mutation costs O(k) a neighbour of each variable in its region, times the moves of chains.
    Memory: two numbers a label, some 30 a variable, and the individuals. An iteration is an
    individual.

    Diagnostics
    -----------
    ``mutations``; ``crossed``: children that crossing improved.

    References
    ----------
    P. Moscato, "On evolution, search, optimization, genetic algorithms and martial arts", Caltech
    report 826, 1989.
    R. Tinos, D. Whitley, F. Chicano, "Partition crossover for pseudo-Boolean optimization", FOGA
    2015.
    J. K. Hao, "Memetic algorithms in discrete optimization", in: Handbook of memetic algorithms,
    2012.

    Examples
    --------
    >>> import inference_lab as il
    >>> from inference_lab.registry.sources import as_problem
    >>> problem = as_problem("ising(size=12, coupling=5)")
    >>> s = il.solve(problem.graph, "memetic")
    >>> s.energy == il.solve(problem.graph, "junction-tree").energy
    True
    """

    startup_cost: ClassVar[float] = 50.0

    population: int = setting(8, at_least=2)
    region: int = setting(30, at_least=1)
    patience: float = setting(0.1, above=0, below=math.inf)
    generations: int = setting(100, at_least=0)

    def peak_bytes(self, graph: FactorGraph, temperature: float) -> int:
        """Count belief propagation on noisy unaries, and their copy."""
        return as_solver(_PROPOSER).peak_bytes(graph, temperature) + graph.unary_values.nbytes

    def start(self, graph: FactorGraph, run: Run) -> _Population | Outcome:
        """Offer the cheapest labels or the initial ones."""
        x = unary_minimum(graph) if run.initial is None else run.initial.copy()
        run.offer(x)
        if int(graph.cardinalities.max(initial=1)) == 1:
            return Outcome(converged=True)
        return _Population(self, graph, run, x)

    def step(self, state: _Population, run: Run, done: int) -> Progress:
        """Add one of the first individuals, or make a child."""
        complete = state.make_generation() if state.full else state.grow()
        return Progress(complete and state.settled, iterations=state.made - done)

    def finish(self, state: _Population, run: Run, outcome: Outcome) -> Outcome:
        """Add the numbers of mutations and crossings."""
        outcome.diagnostics = {
            "mutations": int(state.region.now[0].mutations),
            "crossed": state.crossed,
        }
        return outcome


class _Population:
    """The population of a run, and the data to improve an individual."""

    def __init__(self, settings: Memetic, graph: FactorGraph, run: Run, first: IntArray) -> None:
        self.settings, self.graph, self.run, self.first = settings, graph, run, first
        self.arrays = graph.arrays
        self.soft = soften(graph) if graph.has_infinite else graph.arrays
        self.tables = with_tables(graph)
        n = graph.n_variables
        self.largest = min(settings.region, n)
        self.region = Region(
            near=np.empty(2 * self.largest + 10, dtype=np.int64),
            shadow=np.empty(n, dtype=np.int64),
            now=record(RegionNumbers),
        )
        self.chains = start_chains(graph)
        members, labels = self.region.near.size, int(graph.cardinalities.max())
        table = min(labels**2, _ENTRIES)
        self.block = start_block(graph, members, table, min(members * table, _ENTRIES))
        # Enough for ten mutations, or more on large graphs, where evaluating a gain takes longer.
        self.uniforms = max(10 * (_HEAD + self.largest + _BLOCKS), n // 4)
        self.unit = _mean_weight(graph)
        self.individuals: list[IntArray] = []
        self.full = False
        self.energies: list[float] = []
        # `since`: children in a row without a better labelling.
        self.made = self.crossed = self.since = 0
        self.best_energy = math.inf
        terms = n + graph.n_edges + graph.n_factors
        self.tolerance = RELATIVE_GAIN * cost_scale(graph) * terms

    @property
    def settled(self) -> bool:
        """Whether children no longer gain, or all individuals have the same energy."""
        low, high = min(self.energies), max(self.energies)
        # Both may be infinite.
        equal = low == high or high - low <= self.tolerance
        return self.full and (equal or self.since >= self.settings.generations)

    def grow(self) -> bool:
        """Make and improve one of the first individuals; return whether the budget sufficed."""
        number = len(self.individuals)
        x = self.first
        if number:
            x = self.propose(noise=0.0 if number == 1 else _NOISE)
        if not self.improve(x):
            return False
        self._add(x, number)
        self.full = len(self.individuals) == self.settings.population
        return True

    def make_generation(self) -> bool:
        """Make a child, and a random individual if it copies one; return if the budget sufficed."""
        rng = self.run.rng
        best = min(self.energies)
        first, second = rng.choice(len(self.individuals), size=2, replace=False)
        x = self.child(self.individuals[first], self.individuals[second])
        if not self.improve(x):
            return False
        worst = int(np.argmax(self.energies))
        alike = [
            at
            for at, other in enumerate(self.individuals)
            if np.count_nonzero(other != x) < _ALIKE * x.size
        ]
        place = alike[0] if alike else worst
        if float(self.graph.energy(x)) < self.energies[place]:
            self._add(x, place)
        if alike:
            x = rng.integers(self.graph.cardinalities)
            if not self.improve(x):
                return False
            self._add(x, worst)
        self.since = 0 if min(self.energies) < best else self.since + 1
        return True

    def _add(self, x: IntArray, place: int) -> None:
        self.individuals[place : place + 1] = [x.copy()]
        self.energies[place : place + 1] = [float(self.graph.energy(x))]

    def child(self, first: IntArray, second: IntArray) -> IntArray:
        """Cross two individuals, or the first with a proposal near it."""
        x = first.copy()
        tolerance = self._refresh(x).tolerance
        if cross(self.arrays, x, self.chains, second, tolerance, self.tables):
            self.crossed += 1
            return x
        if self.run.rng.random() < _GRAFTED:
            return self._graft(first, second)
        proposal = self.propose(_NOISE, first)
        # A proposal without a better part may still lead to a better labelling.
        return (
            x if cross(self.arrays, x, self.chains, proposal, tolerance, self.tables) else proposal
        )

    def _graft(self, first: IntArray, second: IntArray) -> IntArray:
        """Return the first individual with labels of the second in a large region."""
        n = first.size
        rng = self.run.rng
        size = max(1, int(rng.random() * _LARGEST * n))
        ball, seen = np.empty(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
        inside = ball[: nearest(self.arrays, int(rng.integers(n)), size, seen, 1, ball)]
        x = first.copy()
        x[inside] = self._renamed(second, first)[inside]
        return x

    def propose(self, noise: float, parent: IntArray | None = None) -> IntArray:
        """Return the labels of belief propagation on noisy unaries that may favour a parent."""
        graph = self.graph
        rng = self.run.rng
        unary = graph.unary_values + noise * self.unit * rng.standard_normal(
            graph.unary_values.size
        )
        if parent is not None:
            unary[graph.unary_ptr[:-1] + parent] -= _FAVOUR * self.unit * rng.random()
        solution = solve(
            graph.with_unary(unary),
            _PROPOSER,
            time_limit=max(1e-3, _SHARE * self.run.remaining),
        )
        if solution.labels is None:
            return rng.integers(graph.cardinalities)
        return solution.labels.copy()

    def _refresh(self, x: IntArray) -> Rules:
        """Recompute all costs, free of accumulated rounding; return the rules for gains."""
        scale = float(fill(self.arrays, x, self.chains))
        return Rules(_CHAIN, _BRANCHES, RELATIVE_GAIN * scale)

    def improve(self, x: IntArray) -> bool:
        """Mutate an individual until nothing is gained; return whether the budget sufficed."""
        if self.run.should_stop(self.made):
            return False
        self.made += 1
        rules = self._refresh(x)
        self._descend(x, rules)
        self.region.shadow[:] = x
        n = x.size
        now = self.region.now[0]
        since = 0
        self.offer(x)
        while since < self.settings.patience * n:
            before = int(now.mutations)
            now.gains = 0
            uniforms = self.run.rng.random(self.uniforms)
            mate = self._mate(x)
            at = 0
            while at >= 0 and self.run.remaining > 0.0:
                at = mutate(
                    self.arrays,
                    self.soft,
                    x,
                    self.chains,
                    self.block,
                    self.region,
                    mate,
                    uniforms,
                    at,
                    self.largest,
                    rules,
                    _WORK,
                    self.tables,
                )
            since += int(now.mutations) - before
            if now.gains:
                since = 0
                self.offer(x)
            if at >= 0:
                return False
        return True

    def offer(self, x: IntArray) -> None:
        """Offer a labelling if it is the best so far."""
        energy = float(self.graph.energy(x))
        if energy < self.best_energy:
            self.best_energy = energy
            self.run.offer(x)

    def _descend(self, x: IntArray, rules: Rules) -> None:
        """Make passes of best moves over all variables until none gains."""
        while self.run.remaining > 0.0:
            begin_pass(self.arrays, x, self.chains)
            while (
                extend(
                    self.arrays, x, self.chains, _PASS, rules.tolerance, False, _WORK, self.tables
                )
                <= 0
            ):
                if self.run.remaining <= 0.0:
                    break
            roll_back(self.arrays, x, self.chains, self.tables)
            if self.chains.now[0].best_moves == 0:
                return

    def _mate(self, x: IntArray) -> IntArray:
        """Draw an individual, with its labels renamed to agree best with x."""
        if not self.individuals:
            return x.copy()
        return self._renamed(self.individuals[int(self.run.rng.integers(len(self.individuals)))], x)

    def _renamed(self, mate: IntArray, x: IntArray) -> IntArray:
        k = self.graph.n_labels
        if k is None:
            return mate
        agreement = np.bincount(mate * k + x, minlength=k * k).reshape(k, k)
        _, renamed = linear_sum_assignment(agreement, maximize=True)
        return np.asarray(renamed, dtype=np.int64)[mate]


def _mean_weight(graph: FactorGraph) -> float:
    """Return the mean spread of the costs of a term, without hard terms."""
    g = graph.arrays

    def spread(values: FloatArray) -> float:
        finite = values[np.isfinite(values)]
        return float(np.ptp(finite)) if finite.size else 0.0

    sizes = np.abs(g.weights) * np.where(g.kinds == TABLE, spread(g.pairwise), 1.0)
    sizes = np.append(sizes[np.isfinite(sizes)], np.full(graph.n_factors, spread(g.tables)))
    return float(sizes.mean()) if sizes.size else 0.0
