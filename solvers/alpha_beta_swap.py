"""Alpha-beta swap: let the variables of two labels redistribute them, by minimum cuts."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar, Literal

import numpy as np

from inference_lab.algorithms.cuts.moves import MoveMaker
from inference_lab.algorithms.cuts.roof_duality import unsupported_arity
from inference_lab.contract import Outcome, Run, Solver
from inference_lab.graph.arrays import IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.specs.settings import setting


@dataclass(frozen=True)
class AlphaBetaSwap(Solver):
    """Local search in which two labels swap any sets of variables (Boykov et al. 2001).

    A move picks two labels; every variable that has one of them takes one of the two. The best
    of these exponentially many labellings is a minimum cut where the move is submodular: for each
    pairwise term,

    ``theta(alpha, alpha) + theta(beta, beta) <= theta(alpha, beta) + theta(beta, alpha)``,

    which holds for semi-metrics (truncated quadratic, which no expansion handles exactly). Other
    terms are handled as `nonsubmodular` says. All pairs of labels are tried in turn until none of
    them lowers the energy. Violated ``+inf`` terms count first, then finite costs. Label costs
    leave a submodular move submodular.

    Parameters
    ----------
    init : {"unary", "random"}
        Start from the cheapest label of each variable on its own, or from random labels. A
        labelling given to the run takes precedence.
    order : {"random", "sequential"}
        Draw a new order of the pairs for each cycle, or go by their numbers.
    nonsubmodular : {"qpbo", "truncate"}
        Where a move is not submodular, let roof duality decide for those variables it can decide
        for while the others keep their labels, or raise the costs of non-submodular terms (never
        that of the labels they have) until the move is submodular. Either may miss what a single
        change gains; a descent by single changes (ICM) follows each cycle with such moves.
    max_cycles : int or None
        Limit on the cycles over all pairs; None goes on until nothing changes.

    Guarantees
    ----------
    The energy never rises, whatever the terms. If every move is submodular, the result is optimal
    within every swap; how far from the optimum it is has no bound. With at most two labels the
    only move is the whole problem: where it is submodular it is solved exactly, and else roof
    duality gives a lower bound, that of the LP relaxation for pairwise terms.

    Iterations
    ----------
    Cycles over all pairs, in which pairs that cannot have become better are left out.

    Diagnostics
    -----------
    ``moves``, ``successful_moves``, and ``nonsubmodular_share``: the share of the interacting
    pairs of variables in all moves that were not submodular.

    Complexity
    ----------
    A cycle is a minimum cut for each of the ``k (k - 1) / 2`` pairs of labels, over the variables
    that have one of them, and O(n + m) more to set each up. Memory: as `alpha-expansion`.

    References
    ----------
    Y. Boykov, O. Veksler, R. Zabih, "Fast approximate energy minimization via graph cuts", PAMI
    23(11), 2001.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.pairwise(
    ...     [[0.0, 2.0, 9.0], [9.0, 1.0, 1.2], [9.0, 2.0, 0.0]],
    ...     [(0, 1), (1, 2)],
    ...     [[0.0, 1.0, 4.0], [1.0, 0.0, 1.0], [4.0, 1.0, 0.0]],
    ... )
    >>> s = il.solve(g, "alpha-beta-swap")
    >>> s.energy, s.labels.tolist()
    (3.0, [0, 1, 2])
    """

    label_costs: ClassVar[bool] = True
    start_up: ClassVar[float] = 34.0

    init: Literal["unary", "random"] = "unary"
    order: Literal["random", "sequential"] = "random"
    nonsubmodular: Literal["qpbo", "truncate"] = "qpbo"
    max_cycles: int | None = setting(None, at_least=1)

    def supports(self, graph: FactorGraph, temperature: float) -> str | None:
        """Say why not: a temperature, or a factor too large to be reduced to pairs."""
        return Solver.supports(self, graph, temperature) or unsupported_arity(graph)

    def run(self, graph: FactorGraph, run: Run) -> Outcome:
        """Swap the labels of one pair after the other until no swap lowers the energy."""
        maker = MoveMaker(graph, run, self.init, self.nonsubmodular)

        def swap(alpha: int, beta: int) -> tuple[IntArray, IntArray] | None:
            # Labels are ordered, so a variable that has beta has alpha to choose, too.
            chooses = (maker.x == beta) | ((maker.x == alpha) & (graph.cardinalities > beta))
            if not chooses.any():
                return None
            return np.where(chooses, alpha, maker.x), np.where(chooses, beta, maker.x)

        return maker.cycle_until_stable(
            list(combinations(range(maker.width), 2)), swap, self.max_cycles, self.order == "random"
        )
