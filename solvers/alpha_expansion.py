"""Alpha-expansion: let any set of variables switch to one label at a time, by minimum cuts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from inference_lab.algorithms.cuts.moves import MoveSolver
from inference_lab.graph.arrays import IntArray
from inference_lab.graph.factor_graph import FactorGraph


@dataclass(frozen=True)
class AlphaExpansion(MoveSolver):
    """Local search in which a label may spread to any set of variables (Boykov et al. 2001).

    A move picks a label ``alpha``; each variable keeps its label or takes ``alpha``. The best of
    these labellings is a minimum cut where the move is submodular, that is, for each pairwise term
    and the labels ``a, b`` of its variables

    ``theta(a, b) + theta(alpha, alpha) <= theta(a, alpha) + theta(alpha, b)``,

    as for metrics (Potts with positive weights, truncated linear). All labels are tried in turn
    until none lowers the energy. Violated ``+inf`` terms count first, then finite costs. Label
    costs leave a submodular move submodular (Delong et al. 2012).

    Parameters
    ----------
    init : {"unary", "random"}
        Start from the cheapest label of each variable, or from random labels. An initial labelling
        of the run takes precedence.
    order : {"random", "sequential"}
        Draw a new order of the labels for each cycle, or go by their numbers.
    nonsubmodular : {"qpbo", "truncate"}
        If a move is not submodular, roof duality labels some variables and the others keep their
        labels; or the costs of non-submodular terms are raised, except at the present labels.
        Cycles with such moves end in a descent by single changes (ICM).
    max_cycles : int or None
        Limit on the cycles over all labels; None goes on until nothing changes.

    Guarantees
    ----------
    The energy never rises. If every move is submodular, the result is optimal within every
    expansion. If unaries are also not negative, the energy is at most ``2 c`` times the optimum,
    with ``c`` the largest ratio of a term's highest to its lowest cost of different labels (1 for
    Potts). Label costs ``h_L`` of sets ``L`` add at most ``sum_L h_L |L|``. With at most two labels
    the first move is the whole problem: a submodular one is solved exactly, else roof duality gives
    a lower bound (of the LP relaxation, for pairwise terms).

    Iterations
    ----------
    Cycles over all labels, in which labels that cannot have become better are left out.

    Diagnostics
    -----------
    ``moves``, ``successful_moves``, and ``nonsubmodular_share``: the share of interacting pairs
    that were not submodular.

    Complexity
    ----------
    A cycle takes one minimum cut for each label, in practice near linear in the graph. Roof duality
    doubles the network. Terms of r variables add about 2^r auxiliary variables and are refused
    above `inference_lab.algorithms.cuts.roof_duality.MAX_ARITY`. Memory: linear in the graph.

    References
    ----------
    Y. Boykov, O. Veksler, R. Zabih, "Fast approximate energy minimization via graph cuts", PAMI
    23(11), 2001, theorem 6.1. V. Lempitsky, C. Rother, S. Roth, A. Blake, "Fusion moves for
    Markov random field optimization", PAMI 32(8), 2010 (roof duality in moves). C. Rother, S.
    Kumar, V. Kolmogorov, A. Blake, "Digital tapestry", CVPR 2005 (truncation). A. Delong, A.
    Osokin, H. Isack, Y. Boykov, "Fast approximate energy minimization with label costs", IJCV 96,
    2012.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> s = il.solve(g, "alpha-expansion")
    >>> s.energy, s.labels.tolist(), s.status.value
    (0.5, [0, 1], 'optimal')
    """

    def kinds(self, n_labels: int) -> list[tuple[int, int]]:
        """Return the labels that may expand."""
        return [(label, label) for label in range(n_labels)]

    def candidates(
        self, graph: FactorGraph, x: IntArray, first: int, second: int
    ) -> tuple[IntArray, IntArray]:
        """Let each variable keep its label or take `first`."""
        return x, np.where(graph.cardinalities > first, first, x)
