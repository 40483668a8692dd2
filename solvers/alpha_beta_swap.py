"""Alpha-beta swap: let the variables of two labels redistribute them, by minimum cuts."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from inference_lab.algorithms.cuts.moves import MoveSolver
from inference_lab.graph.arrays import IntArray
from inference_lab.graph.factor_graph import FactorGraph


@dataclass(frozen=True)
class AlphaBetaSwap(MoveSolver):
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

    def kinds(self, n_labels: int) -> list[tuple[int, int]]:
        """Return the pairs of labels."""
        return list(combinations(range(n_labels), 2))

    def candidates(
        self, graph: FactorGraph, x: IntArray, first: int, second: int
    ) -> tuple[IntArray, IntArray] | None:
        """Let each variable with one of the labels choose between them."""
        # Labels are ordered, so a variable that has the second has the first to choose, too.
        chooses = (x == second) | ((x == first) & (graph.cardinalities > second))
        if not chooses.any():
            return None
        return np.where(chooses, first, x), np.where(chooses, second, x)
