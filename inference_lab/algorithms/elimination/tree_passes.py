"""Elimination along one order: the sizes of its tables, and the passes over them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from inference_lab.algorithms.elimination.arc_consistency import BoolArray, Domains, allowed_labels
from inference_lab.algorithms.elimination.bucket_elimination import (
    BLOCK,
    Tree,
    decided_cost,
    decode,
    downward,
    keep_all,
    make_tree,
    scratch_sizes,
    upward,
    workspace,
)
from inference_lab.algorithms.elimination.interactions import (
    Interactions,
    coupling_terms,
    interactions,
)
from inference_lab.algorithms.elimination.order import Elimination, elimination_order
from inference_lab.contract import Outcome, Run
from inference_lab.graph.arrays import FloatArray, GraphArrays, IntArray, starts_of
from inference_lab.graph.factor_graph import FactorGraph

#: Additions between two checks of the clock: about 0.1 s.
_CHUNK = 1 << 25


@dataclass(frozen=True)
class EliminationPlan:
    """The sizes known before anything large is allocated; holds no reference to the graph."""

    domains: Domains
    couples: BoolArray
    order: Elimination
    tree: Tree | None  # None if no order was found, or no labelling is feasible
    scratch: tuple[int, int, int, int, int]
    steps: float  # limit of the search for the order,
    hurried: bool  # and whether the limit cut it short

    @property
    def choice_type(self) -> np.dtype[Any]:
        """The smallest integers that hold a label's position."""
        largest = int(self.domains.sizes.max(initial=1)) - 1
        return np.dtype(np.uint8 if largest < 256 else np.uint16 if largest < 65536 else np.int64)

    def entries(self, tree: Tree, back: bool) -> tuple[int, int, int]:
        """Return the entries of the messages, of the choices, and of the sums for children."""
        # Marginals, from the way back, need all messages.
        n_choices = int(tree.rows.sum())
        if not back:
            return int((tree.made_at + tree.rows).max(initial=0)), n_choices, 0
        starts = starts_of(tree.rows[tree.children])
        return n_choices, n_choices, int(np.diff(starts[tree.child_ptr]).max(initial=0))

    def n_bytes(self, tree: Tree, back: bool) -> int:
        """Bytes of the arrays that a run allocates."""
        messages, choices, sums = self.entries(tree, back)
        axes, inputs, strides, dense, look_up = self.scratch
        fixed = 8 * (2 * axes + 2 * inputs + strides + dense + look_up + 2 * BLOCK)
        return 8 * (messages + sums) + choices * self.choice_type.itemsize + fixed


def make_plan(graph: FactorGraph, log2_limit: float, most_steps: float) -> EliminationPlan:
    """Return a plan with messages of at most ``2^log2_limit`` entries, if an order is found."""
    domains = allowed_labels(graph)
    couples = coupling_terms(graph, domains)
    network = interactions(graph, domains, couples)
    # A table is larger than its message by a factor: the number of labels of a variable.
    largest = float(network.log2_sizes.max(initial=0.0))
    order = elimination_order(network, log2_limit, log2_limit + largest + 1e-6, most_steps)
    return plan_along(graph, domains, couples, network, order, most_steps)


def plan_along(
    graph: FactorGraph,
    domains: Domains,
    couples: BoolArray,
    network: Interactions,
    order: Elimination,
    most_steps: float = math.inf,
) -> EliminationPlan:
    """Return the plan of an elimination order."""
    tree = None
    scratch = (1, 1, 1, 1, 1)
    if order.complete and domains.feasible:
        tree = make_tree(graph, domains, couples, network, order.order)
        scratch = scratch_sizes(graph.arrays, tree)
    hurried = order.cut_short and math.isfinite(most_steps)
    return EliminationPlan(domains, couples, order, tree, scratch, most_steps, hurried)


class TreePasses:
    """The arrays of a run along a plan, and its passes; each table may have a temperature."""

    def __init__(
        self, plan: EliminationPlan, tree: Tree, temperature: float | FloatArray, back: bool
    ) -> None:
        self.plan = plan
        self.heat = np.full(tree.rows.size, temperature)
        self.tree = keep_all(tree) if back else tree
        messages, choices, sums = plan.entries(self.tree, back)
        self.work = workspace(self.tree, plan.scratch)
        self.messages = np.empty(messages)
        self.choice = np.empty(choices, dtype=plan.choice_type)
        self.sums = np.empty(sums)

    def upward(self, g: GraphArrays, run: Run, outcome: Outcome) -> float:
        """Make the pass to the roots; return their sum, `inf` if infeasible, NaN if cut short."""
        tree = self.tree
        now = self.work.now[0]
        now.table = now.block = 0
        while now.table < tree.rows.size:
            if run.should_stop(outcome.iterations):
                return math.nan
            outcome.iterations += 1
            if not upward(g, tree, self.heat, self.messages, self.choice, self.work, _CHUNK):
                return math.inf
        decided = decided_cost(g, self.plan.couples, tree.label_ptr, tree.labels)
        # The root's messages are numbers; others are relative to their least entry.
        return math.fsum([decided, *self.work.shift.tolist()])

    def decoded(self) -> IntArray:
        """Return the labels after the pass to the roots."""
        tree = self.tree
        x = np.array(tree.labels[tree.label_ptr[:-1]])
        decode(tree, self.choice, x)
        return x

    def downward(self, g: GraphArrays, run: Run, outcome: Outcome) -> FloatArray | None:
        """Make the backward pass; return the marginals, flat, or None if it was cut short."""
        tree = self.tree
        now = self.work.now[0]
        shares = np.zeros(tree.labels.size)
        now.table = tree.rows.size - 1
        now.block = 0
        self.messages[tree.at[np.diff(tree.sep_ptr) == 0]] = 1.0
        while now.table >= 0:
            if run.should_stop(outcome.iterations):
                return None
            outcome.iterations += 1
            downward(g, tree, self.heat, self.messages, self.sums, shares, self.work, _CHUNK)
        sizes = np.diff(tree.label_ptr)
        owner = np.repeat(np.arange(sizes.size), sizes)
        shares[sizes[owner] == 1] = 1.0
        # The sums differ from 1 by rounding only.
        shares /= np.bincount(owner, shares, minlength=sizes.size)[owner]
        flat = np.zeros(g.unary.size)
        flat[g.unary_ptr[owner] + tree.labels] = shares
        return flat
