"""Subgraph search: exact moves over random subgraphs of small treewidth, kicks and fusion."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from inference_lab._numba import lean_kernel
from inference_lab.algorithms.elimination.arc_consistency import Domains, allowed_labels
from inference_lab.algorithms.elimination.interactions import first_allowed
from inference_lab.algorithms.iteration import IterativeSolver, Progress
from inference_lab.contract import Outcome, Run
from inference_lab.graph.arrays import FloatArray, GraphArrays, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.traversal import reach
from inference_lab.kernels.messages import cost_scale, local_costs, with_tables
from inference_lab.kernels.regions import nearest
from inference_lab.kernels.treewidth_moves import (
    arrange,
    decode,
    eliminate,
    grow,
    open_all,
    open_two,
    soften,
    start_block,
)
from inference_lab.specs.settings import setting

#: Most candidates of a block, and most entries of its tables together: the larger of this many
#: tables of the largest size and this many entries.
_LARGEST = 20_000
_TABLES = 512
_LEAST_ENTRIES = 1 << 22
#: Table entries, times their inputs, between two checks of the clock: about 0.05 s.
_WORK = 1 << 25
#: Sizes of the smallest and the largest kicked region, and blocks in a row without gain that end
#: the descent in it.
_SMALLEST = 64
_REGION = 10_000
_IDLE = 3
#: A new start follows after this many rounds of kicks without gain.
_STALE = 3
#: With more labels than this, blocks of two labels a variable are made, too.
_MANY_LABELS = 4
#: A block must gain more than this share of the costs it adds up, so that rounding cannot cycle.
_RELATIVE_GAIN = 1e-12


@lean_kernel
def assign(
    g: GraphArrays,
    x: IntArray,
    which: IntArray,
    labels: IntArray,
    cost: FloatArray,
    infinite: IntArray,
) -> float:
    """Give some variables labels, and return the change of energy; all costs are finite."""
    change = 0.0
    for t in range(which.size):
        i = which[t]
        local_costs(g, x, i, cost, infinite)
        change += cost[labels[t]] - cost[x[i]]
        x[i] = labels[t]
    return change


@lean_kernel
def surround(g: GraphArrays, inner: IntArray, stamp: int, seen: IntArray, out: IntArray) -> int:
    """Fill `out` with variables and their neighbours; return the number of both."""
    size = inner.size
    for t in range(inner.size):
        seen[inner[t]] = stamp
        out[t] = inner[t]
    for i in inner:
        size = reach(g, i, seen, stamp, out, size, out.size)
    return size


@dataclass(frozen=True)
class SubgraphSearch(IterativeSolver["_BlockSearch"]):
    """Exact moves over subgraphs of small treewidth (Hamze, de Freitas 2004; Selby 2014).

    A move draws a *block*, a random set of variables with small elimination tables, and gives it
    its best labels given all others, ties at random. On a binary grid nearly 90% of the variables
    fit into a block with tables of 2^11 entries. With many labels, every other block is an
    expansion or a shift of labels.

    After a descent, regions are *kicked*: random connected sets get random labels and descend
    again. The result is *fused* with the former labelling by blocks around the differences, and is
    never worse than either. When kicks stop gaining, the search restarts from random labels.

    Arc consistency removes labels first. Other hard terms count as finite costs above all others
    together.

    Parameters
    ----------
    table : int
        Most entries of a table when results are fused.
    descent_table : int
        Most entries of a table in a descent.
    rounds : int
        Rounds of kicks; a round covers every variable once on average.

    Guarantees
    ----------
    The energy never rises. If a block with tables of `table` entries holds all variables, the
    answer is optimal with proof, or infeasibility is proved. No bound otherwise. `converged` means
    that all rounds were made.

    Complexity
    ----------
    A block costs O(entries) of its tables and their inputs: at most `table` for each of 20,000
    variables, and the larger of ``512 table`` and four million in all. Memory: 4 bytes an entry of
    a block, and some ``20 + 3 log2(table)`` numbers a variable. An iteration is a block.

    References
    ----------
    F. Hamze, N. de Freitas, "From fields to trees", UAI 2004.
    A. Selby, "Efficient subgraph-based sampling of Ising-type models with frustration",
    arXiv:1409.3934, 2014.
    R. Dechter, "Bucket elimination: a unifying framework for reasoning", Artificial Intelligence
    113, 1999.
    V. Lempitsky, C. Rother, S. Roth, A. Blake, "Fusion moves for Markov random field
    optimization", IEEE PAMI 32(8), 2010.

    Examples
    --------
    >>> import inference_lab as il
    >>> from inference_lab.registry.sources import as_problem
    >>> problem = as_problem("ising(size=12, coupling=5)")
    >>> s = il.solve(problem.graph, "subgraph-search")
    >>> s.energy == il.solve(problem.graph, "junction-tree").energy
    True
    """

    startup_cost: ClassVar[float] = 100.0

    table: int = setting(2**16, at_least=4)
    descent_table: int = setting(2**10, at_least=4)
    rounds: int = setting(300, at_least=0)

    def start(self, graph: FactorGraph, run: Run) -> _BlockSearch | Outcome:
        """Try to solve the whole problem by one block."""
        domains = allowed_labels(graph)
        if not domains.feasible:
            return Outcome(infeasible=True)
        state = _BlockSearch(self, graph, run, domains)
        if state.solve_whole():
            return Outcome(not state.infeasible, state.infeasible, iterations=state.blocks)
        return state

    def step(self, state: _BlockSearch, run: Run, done: int) -> Progress:
        """Descend from the start; then kick a region and fuse."""
        in_time = state.kick() if state.descended else state.descend_from_start()
        converged = in_time and state.kicked >= self.rounds * state.undecided.size
        return Progress(converged, -math.inf, state.blocks - done, finished=not in_time)

    def finish(self, state: _BlockSearch, run: Run, outcome: Outcome) -> Outcome:
        """Add the number of kicks and the size of blocks."""
        outcome.diagnostics = {
            "kicks": state.kicks,
            "kicks_that_gained": state.gains,
            "mean_block": state.relabelled / max(1, state.blocks),
        }
        return outcome


class _BlockSearch:
    """The labelling of a run and the data to change it."""

    def __init__(
        self, settings: SubgraphSearch, graph: FactorGraph, run: Run, domains: Domains
    ) -> None:
        self.graph, self.run, self.domains = graph, run, domains
        self.arrays = graph.arrays
        self.tables = with_tables(graph)
        n, k = graph.n_variables, int(graph.cardinalities.max(initial=1))
        # A block of one variable must fit.
        self.fine = math.log2(max(settings.table, k))
        self.coarse = math.log2(max(settings.descent_table, k))
        table = max(settings.table, settings.descent_table, k)
        self.entries = min(max(_LEAST_ENTRIES, _TABLES * table), table * min(n, _LARGEST))
        self.block = start_block(graph, _LARGEST, table, self.entries)
        self.many = int(domains.sizes.max(initial=1)) > _MANY_LABELS
        self.cost, self.infinite = np.empty(k), np.zeros(k, dtype=np.int64)
        self.seen = np.zeros(n, dtype=np.int64)
        self.region = np.empty(n, dtype=np.int64)
        self.undecided = np.flatnonzero(domains.sizes > 1)
        self.x = self._start()
        self.tolerance = _RELATIVE_GAIN * cost_scale(graph) * (n + graph.n_edges + graph.n_factors)
        self.blocks = self.relabelled = self.kicks = self.gains = self.searches = 0
        self.infeasible = self.descended = False
        # Kicked variables, in all and since the last gain, and the best labelling before the
        # current start.
        self.kicked = self.idle = 0
        self.best: IntArray | None = None
        run.offer(self.x)

    def _start(self) -> IntArray:
        """Return the cheapest allowed labels, or the given start where that is allowed."""
        cheapest = first_allowed(self.graph, self.domains)
        if self.run.initial is None:
            return cheapest
        is_allowed = self.domains.allowed[self.graph.unary_ptr[:-1] + self.run.initial]
        return np.where(is_allowed, self.run.initial, cheapest)

    def solve_whole(self) -> bool:
        """Solve the problem exactly if one block holds it all; return whether it was solved."""
        if self.undecided.size > _LARGEST or self.run.should_stop(self.blocks):
            return False
        self._open_all(self.undecided)
        if self._grow(self.undecided, self.fine) < self.undecided.size or self._relabel() is None:
            return False
        self.infeasible = math.isinf(self.block.now[0].after)
        if not self.infeasible:
            self.run.offer(self.x)
            # A start within rounding of the optimum is kept as it is.
            self.run.bound(self.run.best_energy - self.tolerance, self.tolerance)
        return True

    def descend_from_start(self) -> bool:
        """Descend by blocks of all variables; return whether this ended before the budget."""
        self.descended = True
        if self.graph.has_infinite:
            # Hard costs become finite but dominant, so that moves may lead through violations.
            self.arrays = soften(self.graph)
        return self._descend_all()

    def _descend_all(self) -> bool:
        """Descend by blocks of all variables."""
        order = self.graph.breadth_first_order
        order = order[self.domains.sizes[order] > 1]
        parts = -(-order.size // _LARGEST)
        for _ in range(parts):
            # Random parts overlap, so that each has other borders.
            order = np.roll(order, int(self.run.rng.integers(order.size)))
            change = self._descend(order[:_LARGEST])
            self.run.offer(self.x)
            if change is None:
                return False
        return True

    def kick(self) -> bool:
        """Kick a region, and restart after many without gain; return whether in time."""
        gains = self.gains
        size = self._kick()
        self.kicked += size
        self.idle = 0 if self.gains > gains else self.idle + size
        if size == 0 or self.idle < _STALE * self.undecided.size:
            return size > 0
        self.idle = 0
        self.best = self._next_start(self.best)
        return self.best is not None

    def _next_start(self, best: IntArray | None) -> IntArray | None:
        """Fuse the current labelling with the best one before, or restart."""
        # A fusion that gains is kicked further; without gain the next descent starts at
        # random labels. Returns the best labelling so far, or None if the budget is spent.
        if best is not None:
            differs = np.flatnonzero(self.x != best)
            other = self.x[differs]
            change = float(
                assign(self.arrays, self.x, differs, best[differs], self.cost, self.infinite)
            )
            if change > 0.0:
                # The current labelling is better, so that it is the one to improve.
                self.x[differs], other = other, self.x[differs]
            gains = self.gains
            if not self._fuse(differs, other, 0.0):
                return None
            if self.gains > gains or change > self.tolerance:
                return self.x.copy()
        best = self.x.copy()
        sizes = self.domains.sizes
        drawn = self.domains.labels[self.domains.ptr[:-1] + self.run.rng.integers(0, sizes)]
        self.x[:] = drawn
        return best if self._descend_all() else None

    def _open_all(self, which: IntArray) -> None:
        open_all(self.arrays, self.block, self.domains.ptr, self.domains.labels, which)

    def _grow(self, candidates: IntArray, log2_table: float) -> int:
        """Grow a block; return its size."""
        seed = int(self.run.rng.integers(2**62))
        return int(grow(self.arrays, self.block, candidates, log2_table, self.entries, seed))

    def _relabel(self) -> float | None:
        """Give the block its best labels; return the change, or None if time ran out before."""
        b = self.block
        arrange(b)
        self.blocks += 1
        at = 0
        while at < b.now[0].members:
            if self.run.remaining <= 0.0:
                return None
            at = eliminate(self.arrays, self.x, b, at, _WORK, self.tables)
        self.relabelled += int(b.now[0].members)
        if math.isinf(b.now[0].after):
            return 0.0
        decode(self.arrays, self.x, b, self.tables)
        return float(b.now[0].after - b.now[0].before)

    def _move(self, candidates: IntArray, log2_table: float) -> float | None:
        """Relabel one block of candidates; return the change, or None if the budget is spent."""
        if self.run.should_stop(self.blocks):
            return None
        self._grow(candidates, log2_table)
        return self._relabel()

    def _other_labels(self, which: IntArray) -> IntArray:
        """Draw one new label for all variables, or a neighbouring label for each of them."""
        rng = self.run.rng
        current = self.x[which]
        if rng.random() < 0.5:
            other = np.full(which.size, rng.integers(self.cost.size))
        else:
            other = current + rng.choice([-1, 1])
        fits = (other >= 0) & (other < self.graph.cardinalities[which])
        fits[fits] = self.domains.allowed[self.graph.unary_ptr[which[fits]] + other[fits]]
        return np.where(fits, other, current)

    def _descend(self, candidates: IntArray) -> float | None:
        """Relabel blocks until several in a row gain nothing; return the change of energy."""
        total, idle, turn = 0.0, 0, 0
        while idle < (2 * _IDLE if self.many else _IDLE):
            turn += 1
            if self.many and turn % 2:
                other = self._other_labels(candidates)
                open_two(self.arrays, self.block, self.x, other, candidates)
            else:
                self._open_all(candidates)
            change = self._move(candidates, self.coarse)
            if change is None:
                return None
            total += change
            idle = 0 if change < -_RELATIVE_GAIN * self.block.now[0].scale else idle + 1
        return total

    def _kick(self) -> int:
        """Kick a region, descend and fuse; return its size, or 0 if the budget is spent."""
        rng = self.run.rng
        x = self.x
        largest = min(self.undecided.size, _REGION)
        smallest = min(_SMALLEST, largest)
        size = int(smallest * (largest / smallest) ** rng.random())
        centre = int(rng.choice(self.undecided))
        self.searches += 1
        count = nearest(self.arrays, centre, size, self.seen, self.searches, self.region)
        region = self.region[:count].copy()
        before = x[region]
        sizes = self.domains.sizes[region]
        drawn = self.domains.labels[self.domains.ptr[region] + rng.integers(0, sizes)]
        total = float(assign(self.arrays, x, region, drawn, self.cost, self.infinite))
        change = self._descend(region)
        if change is None:
            x[region] = before
            return 0
        self.kicks += 1
        total += change
        after = x[region]
        if total > 0.0:
            x[region] = before
            total, before, after = 0.0, after, before
        differs = before != after
        finished = not differs.any() or self._fuse(region[differs], before[differs], total)
        return count if finished else 0

    def _fuse(self, differs: IntArray, other: IntArray, total: float) -> bool:
        """Fuse labellings that differ at some variables, offer a gain; return whether in time."""
        self.searches += 1
        count = surround(self.arrays, differs, self.searches, self.seen, self.region)
        around = self.region[:count].copy()
        change: float | None = 0.0
        for turn in range(2):
            if self.many and turn == 0:
                open_two(self.arrays, self.block, self.x, other, differs)
                change = self._move(differs, self.fine)
            else:
                self._open_all(around)
                change = self._move(around, self.fine)
            if change is None:
                break
            total += change
        if total < -self.tolerance:
            self.gains += 1
            self.run.offer(self.x)
        return change is not None
