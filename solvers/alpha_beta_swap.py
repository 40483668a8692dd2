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

    A move picks two labels; each variable with one of them takes either. The best of these
    labellings is a minimum cut where the move is submodular, that is, for each pairwise term

    ``theta(alpha, alpha) + theta(beta, beta) <= theta(alpha, beta) + theta(beta, alpha)``,

    as for semi-metrics, such as truncated quadratic costs. All pairs of labels are tried in turn
    until none lowers the energy. Violated ``+inf`` terms count first, then finite costs. Label
    costs leave a submodular move submodular.

    Parameters
    ----------
    init : {"unary", "random"}
        Start from the cheapest label of each variable, or from random labels. An initial labelling
        of the run takes precedence.
    order : {"random", "sequential"}
        Draw a new order of the pairs for each cycle, or go by their numbers.
    nonsubmodular : {"qpbo", "truncate"}
        If a move is not submodular, roof duality labels some variables and the others keep their
        labels; or the costs of non-submodular terms are raised, except at the present labels.
        Cycles with such moves end in a descent by single changes (ICM).
    max_cycles : int or None
        Limit on the cycles over all pairs; None goes on until nothing changes.

    Guarantees
    ----------
    The energy never rises. If every move is submodular, the result is optimal within every swap,
    but its distance from the optimum has no bound. With at most two labels the only move is the
    whole problem: a submodular one is solved exactly, else roof duality gives a lower bound (of the
    LP relaxation, for pairwise terms).

    Iterations
    ----------
    Cycles over all pairs, in which pairs that cannot have become better are left out.

    Diagnostics
    -----------
    ``moves``, ``successful_moves``, and ``nonsubmodular_share``: the share of interacting pairs
    that were not submodular.

    Complexity
    ----------
    A cycle takes ``k (k - 1) / 2`` minimum cuts over the variables with one of two labels, and O(n
    + m) for each setup. Memory: as `alpha-expansion`.

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
    startup_cost: ClassVar[float] = 34.0

    init: Literal["unary", "random"] = "unary"
    order: Literal["random", "sequential"] = "random"
    nonsubmodular: Literal["qpbo", "truncate"] = "qpbo"
    max_cycles: int | None = setting(None, at_least=1)

    def supports(self, graph: FactorGraph, temperature: float) -> str | None:
        """Return why not: a temperature, or a factor too large to be reduced to pairs."""
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
