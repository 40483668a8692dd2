"""Block ICM: relabel random induced forests, each jointly and exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from inference_lab._numba import inlined, lean_kernel
from inference_lab.contract import Outcome, Run, Solver
from inference_lab.graph.arrays import GraphArrays, IntArray
from inference_lab.graph.factor_graph import FactorGraph, unary_minimum
from inference_lab.graph.label_costs import LabelCosts
from inference_lab.kernels.forests import (
    RELATIVE_GAIN,
    Block,
    TreeCosts,
    best_at_root,
    fill_tree,
    grow,
    hand_down,
    relabel,
    soften,
    spread,
    start_block,
)
from inference_lab.kernels.label_costs import (
    add_prices,
    count_users,
    enter,
    leave,
    opening,
    priced_sweep,
)
from inference_lab.kernels.messages import cost_scale
from inference_lab.specs.settings import setting

#: Most variables of a block: some tens of milliseconds between two looks at the clock.
_LARGEST = 50_000


@inlined
def _leave_all(p: LabelCosts, used: IntArray, x: IntArray, b: Block, size: int) -> None:
    """Take the variables of the tree that was spread out of the counts."""
    for q in range(size):
        leave(p, used, x[b.tree[q]])


@inlined
def _enter_all(p: LabelCosts, used: IntArray, x: IntArray, b: Block, size: int) -> float:
    """Count the variables of the tree; return what they add to what is paid for labels."""
    price = 0.0
    for q in range(size):
        price += opening(p, used, x[b.tree[q]])
        enter(p, used, x[b.tree[q]])
    return price


@inlined
def _fill_priced(
    g: GraphArrays, p: LabelCosts, x: IntArray, used: IntArray, b: Block, size: int, stamp: int
) -> TreeCosts:
    """Fill the costs of labels in the tree; each use of a set that nobody counted uses costs."""
    tree = fill_tree(g, x, b, size, stamp)
    for q in range(size):
        i = b.tree[q]
        add_prices(p, used, g.cardinalities[i], b.cost[g.unary_ptr[i] :])
    return tree


@lean_kernel
def relabel_priced(
    g: GraphArrays,
    p: LabelCosts,
    x: IntArray,
    used: IntArray,
    b: Block,
    members: IntArray,
    stamp: int,
) -> int:
    """Give every tree of the block better labels given all others, in place, label costs included.

    As `forests.relabel`, but for each of some choices of sets whose costs are paid beforehand:
    none, those in use by the tree, and either with those of one more label. A set that others use
    is free; any other costs whoever uses it, so that a tree may come out dearer than it is, never
    cheaper. The best choice is taken if the energy falls.
    """
    changed = 0
    rounding = RELATIVE_GAIN * p.costs.sum()
    for root in members:
        if b.member[root] != stamp or b.met[root] == -stamp:
            continue
        size = spread(g, b, root, stamp)
        _leave_all(p, used, x, b, size)
        own = _enter_all(p, used, x, b, size)
        start = g.unary_ptr[root]
        least = np.inf
        kept = False
        extra = -1
        enough = np.inf
        for keeps in (True, False):
            if not keeps:
                _leave_all(p, used, x, b, size)
            elif size == 1:
                # One variable pays for each set once in any case.
                continue
            for a in range(-1, p.of_ptr.size - 1 if size > 1 else 0):
                price = own if keeps else 0.0
                if a >= 0:
                    more = opening(p, used, a)
                    if more == 0.0:
                        continue
                    price += more
                    enter(p, used, a)
                tree = _fill_priced(g, p, x, used, b, size, stamp)
                enough = tree.present + own - RELATIVE_GAIN * tree.scale - rounding
                value = price + b.cost[start + best_at_root(g, x, b, size)]
                if value < least:
                    least = value
                    kept = keeps
                    extra = a
                if a >= 0:
                    leave(p, used, a)
        # With an infinite cost before, every finite one is a gain, and no other.
        if least < enough:
            if kept:
                _enter_all(p, used, x, b, size)
            if extra >= 0:
                enter(p, used, extra)
            _fill_priced(g, p, x, used, b, size, stamp)
            if extra >= 0:
                leave(p, used, extra)
            if kept:
                _leave_all(p, used, x, b, size)
            hand_down(g, x, b, size, best_at_root(g, x, b, size))
            changed += 1
        _enter_all(p, used, x, b, size)
    return changed


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

    Label costs couple all variables, so that no block is relabelled exactly: a tree of it is, for
    each of some choices of what it pays beforehand (nothing, the sets it uses, either with those of
    one more label), while other sets that nobody else uses cost each of its variables. That is
    never less than the energy, and labels change if it falls. Single changes end each sweep.

    Parameters
    ----------
    patience : int
        Sweeps in a row without gain after which the search ends.

    Guarantees
    ----------
    The energy never rises. On a pairwise forest one block holds all variables, and the answer is
    optimal with proof, or infeasibility proved, if there are no label costs. `converged` says that
    `patience` sweeps changed nothing, after which no single change gains either. No bound on graphs
    with cycles.

    Complexity
    ----------
    A sweep costs O(k) a term for diagonal and truncated linear terms, O(k^2) for tables, O(k^2 +
    arity) for higher-order factors; on dense graphs O(edges + n^2), as n/2 blocks of two are
    needed. With label costs a tree of two variables or more takes this up to 2 (k + 1) times, for
    labels with a set that nobody else uses. Memory: one number a label and 12 a variable. An
    iteration is a block.

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

    start_up: ClassVar[float] = 13.4
    label_costs: ClassVar[bool] = True

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
        self.used = count_users(graph.label_costs, x) if graph.n_label_costs else None
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
            if self.used is None:
                changed = relabel(self.arrays, self.x, self.block, order, stamp)
            else:
                changed = relabel_priced(
                    self.arrays, self.graph.label_costs, self.x, self.used, self.block, order, stamp
                )
            self.relabelled += size
            self.note(changed)
            if size == n and self.used is None:
                # Solved exactly as a whole, hard terms with the precision of soft ones first.
                self.infeasible = self.soft
                self.solved = not soft
                if self.solved or self.infeasible:
                    return True
            left = left[self.block.member[left] != stamp]
        if self.used is not None:
            width = self.block.message.size
            self.note(
                priced_sweep(
                    self.arrays, self.graph.label_costs, self.x, self.used, order,
                    np.ones(n, dtype=np.bool_), np.empty(width), np.empty(width, dtype=np.int64),
                )
            )  # fmt: skip
        return True

    def note(self, changes: int) -> None:
        """Count changes, offer what they made, and go on to hard terms once none is violated."""
        self.changed += changes
        if changes:
            energy = self.run.offer(self.x)
            if self.soft and math.isfinite(energy):
                self.soft = False
                self.arrays = self.graph.arrays
