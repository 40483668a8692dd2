"""Kernighan-Lin moves: chains of best single moves, kept up to where they gain most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from inference_lab._numba import lean_kernel
from inference_lab.algorithms.iteration import IterativeSolver, Progress
from inference_lab.contract import Outcome, Run
from inference_lab.graph.arrays import FloatArray, GraphArrays, IntArray
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
    improve_by_chains,
    keep_better_parts,
    put,
    roll_back,
    start_chains,
)
from inference_lab.kernels.messages import with_tables
from inference_lab.kernels.regions import nearest
from inference_lab.specs.settings import setting

#: Terms and labels read between two checks of the clock: some tens of milliseconds.
_WORK = 500_000
#: Moves of a pass after its best state; more made no difference on grids and E-steps.
_PASS = 100


@lean_kernel
def kick(
    g: GraphArrays,
    x: IntArray,
    c: EjectionChains,
    ball: IntArray,
    size: int,
    uniforms: FloatArray,
    rules: Rules,
    tables: bool | None = True,
) -> int:
    """Draw labels in a ball, repair them by chains, keep parts that do not rise; 1 on a gain."""
    # ``ball[0]`` is its centre, the others are filled in here, nearest first.
    begin_kick(c)
    size = nearest(g, ball[0], size, c.seen, c.now[0].kick, ball)
    for q in range(size):
        put(g, x, c, ball[q], int(uniforms[q] * g.cardinalities[ball[q]]), tables)
    for q in range(size):
        chains_from(g, x, c, ball[q], rules, tables)
    return int(keep_better_parts(g, x, c, rules.tolerance, tables))


@dataclass(frozen=True)
class KernighanLin(IterativeSolver["_ChainSearch"]):
    """Chains of moves that may lead uphill on the way (Kernighan, Lin 1970).

    Descends by three kinds of moves in turn, until none gains:

    * *passes*: the best single move of all variables is made, each variable once at most, until
      100 moves bring nothing better; moves after the best state are undone (Fiduccia, Mattheyses
      1982);
    * *chains*: a variable is forced to one of its `branches` best labels, the best moves among its
      neighbours follow, then among theirs, until `chain` moves bring nothing better; moves after
      the best state are undone. Swaps with a neighbour are tried first;
    * *kicks*: the variables of a small ball get random labels, and chains repair the damage; the
      result stays if the energy did not rise (Martin, Otto, Felten 1991).

    Costs of all moves are kept up to date, so that a move costs O(degree). Violated hard terms
    count before costs.

    Parameters
    ----------
    chain : int
        Moves of a chain after its best state.
    branches : int
        Labels of a variable with which chains start, the cheapest ones.
    kicks : int
        Rounds of kicks, a kick a variable in each. Passes and chains follow each round.
    ball : int
        Most variables that a kick draws anew.

    Guarantees
    ----------
    The energy never rises from one outcome to the next. When `converged`, no change of one label
    and no swap of the labels of two variables with a common term has a lower energy, nor has any
    state along a chain. No bound.

    Complexity
    ----------
    A move costs O(k + log n) a neighbour, O(k) a table, O(arity (arity + k)) a factor. A pass makes
    at most n moves, a sweep of chains about n (k + `branches` `chain`). Memory: 2 numbers a label
    and 11 a variable. An iteration is a pass, a sweep of chains or a round of kicks.

    References
    ----------
    B. W. Kernighan, S. Lin, "An efficient heuristic procedure for partitioning graphs", Bell
    System Technical Journal 49(2), 1970.
    C. M. Fiduccia, R. M. Mattheyses, "A linear-time heuristic for improving network partitions",
    DAC 1982.
    M. Keuper, E. Levinkov, N. Bonneel, G. Lavoue, T. Brox, B. Andres, "Efficient decomposition of
    image and mesh graphs by lifted multicuts", ICCV 2015 (such chains for weights of both signs).
    O. Martin, S. W. Otto, E. W. Felten, "Large-step Markov chains for the traveling salesman
    problem", Complex Systems 5(3), 1991.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 0.3], [0.0, 0.3], [1.0, 0.0]], [(0, 1), (1, 2)], [2.0, 0.8])
    >>> il.solve(g, "icm", initial=[0, 0, 0]).energy
    0.8
    >>> il.solve(g, "kernighan-lin", initial=[0, 0, 0]).energy
    0.6
    """

    startup_cost: ClassVar[float] = 40.0

    chain: int = setting(20, at_least=1)
    branches: int = setting(3, at_least=1)
    kicks: int = setting(3, at_least=0)
    ball: int = setting(20, at_least=1)

    def start(self, graph: FactorGraph, run: Run) -> _ChainSearch | Outcome:
        """Offer the first labelling."""
        x = unary_minimum(graph) if run.initial is None else run.initial.copy()
        run.offer(x)
        if graph.n_variables == 0:
            return Outcome(converged=True)
        return _ChainSearch(self, graph, run, x)

    def step(self, state: _ChainSearch, run: Run, done: int) -> Progress:
        """Make a pass; after one without gain, chains; after these, kicks."""
        made = state.next
        gained = state.next()
        converged = False
        if made == state.kick_all or gained:
            state.next = state.make_pass
        elif made == state.make_pass:
            state.next = state.chain_pass
        elif state.rounds < self.kicks:
            state.rounds += 1
            state.next = state.kick_all
        else:
            converged = run.remaining > 0.0
        return Progress(converged)

    def decode(self, state: _ChainSearch, run: Run, done: int) -> IntArray:
        """Return the labelling."""
        return state.x

    def finish(self, state: _ChainSearch, run: Run, outcome: Outcome) -> Outcome:
        """Add the numbers of gains."""
        outcome.diagnostics = {
            "passes_that_gained": state.passes,
            "chains_that_gained": state.chains,
            "kicks_that_gained": state.kicks,
        }
        return outcome


class _ChainSearch:
    """The labelling of a run, the costs of its moves, and the counts of gains."""

    def __init__(self, settings: KernighanLin, graph: FactorGraph, run: Run, x: IntArray) -> None:
        self.settings = settings
        self.arrays = graph.arrays
        self.tables = with_tables(graph)
        self.run = run
        self.x = x
        self.n = graph.n_variables
        self.c = start_chains(graph)
        self.ball = np.empty(min(settings.ball, self.n), dtype=np.int64)
        self.passes = self.chains = self.kicks = 0
        # Rounds of kicks so far, and the kind of the next step.
        self.rounds = 0
        self.next = self.make_pass

    def refresh(self) -> Rules:
        """Recompute all costs, free of accumulated rounding; return the rules for gains."""
        scale = float(fill(self.arrays, self.x, self.c))
        return Rules(self.settings.chain, self.settings.branches, RELATIVE_GAIN * scale)

    def make_pass(self) -> bool:
        """Make a pass over all variables; return whether it gained."""
        tolerance = self.refresh().tolerance
        begin_pass(self.arrays, self.x, self.c)
        while extend(self.arrays, self.x, self.c, _PASS, tolerance, False, _WORK, self.tables) <= 0:
            if self.run.remaining <= 0.0:
                break
        roll_back(self.arrays, self.x, self.c, self.tables)
        gained = bool(self.c.now[0].best_moves > 0)
        self.passes += gained
        return gained

    def chain_pass(self) -> bool:
        """Start chains at all variables, in random order; return whether one gained."""
        rules = self.refresh()
        order = self.run.rng.permutation(self.n)
        self.c.now[0].gains = 0
        first = 0
        while first < self.n and self.run.remaining > 0.0:
            first = improve_by_chains(
                self.arrays, self.x, self.c, order, first, rules, _WORK, self.tables
            )
            self.run.offer(self.x)
        gained = int(self.c.now[0].gains)
        self.chains += gained
        return gained > 0

    def kick_all(self) -> bool:
        """Kick around each variable, in random order; return whether one gained."""
        rules = self.refresh()
        before = self.kicks
        rng = self.run.rng
        for centre in rng.permutation(self.n):
            if self.run.remaining <= 0.0:
                break
            self.ball[0] = centre
            size = int(rng.integers(1, self.ball.size + 1))
            uniforms = rng.random(self.ball.size)
            self.kicks += kick(
                self.arrays, self.x, self.c, self.ball, size, uniforms, rules, self.tables
            )
        return self.kicks > before
