"""Label costs as a running disjunction along the variables, one chain for each set of labels.

The chain is a function of the labelling, so that sums over all labellings stay the same at every
temperature. The variables of the graph keep their numbers, the auxiliary ones come after them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from inference_lab.graph.arrays import FloatArray, starts_of
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.terms import OwnTables, PairwiseTerms, Unaries


def chain(graph: FactorGraph) -> FactorGraph:
    """Encode label costs by a binary variable for each variable and set; the last one pays.

    ``o_i`` is 1 if the variable or one before it uses the set. O(n s) variables and ternary terms.
    """
    n = graph.n_variables
    unary: list[FloatArray] = []
    edges: list[tuple[int, int]] = []
    tables: list[FloatArray] = []
    factors: list[tuple[tuple[int, ...], FloatArray]] = []
    for labels, cost in graph.label_costs.sets():
        users = np.flatnonzero(graph.cardinalities > labels[0]).tolist()
        for place, i in enumerate(users):
            k = int(graph.cardinalities[i])
            uses = np.isin(np.arange(k), labels)
            indicator = n + len(unary)
            unary.append(np.array([0.0, cost if place == len(users) - 1 else 0.0]))
            if place == 0:
                edges.append((i, indicator))
                tables.append(np.where(uses[:, None] == np.array([False, True]), 0.0, np.inf))
            else:
                before = np.array([False, True])[:, None, None]
                now = np.array([False, True])
                table = np.where((before | uses[:, None]) == now, 0.0, np.inf)
                factors.append(((indicator - 1, i, indicator), table))
    terms = [OwnTables(np.array(edges), tables)] if edges else []
    return _extended(graph, unary, terms, factors)


def _extended(
    graph: FactorGraph,
    unary: list[FloatArray],
    terms: Sequence[PairwiseTerms],
    factors: Sequence[tuple[tuple[int, ...], FloatArray]],
) -> FactorGraph:
    """Return the graph without label costs, with further variables, terms and factors."""
    sizes = np.append(graph.cardinalities, np.array([row.size for row in unary], dtype=np.int64))
    higher = (graph.higher_order(f) for f in range(graph.n_factors))
    return FactorGraph.from_terms(
        Unaries(sizes, starts_of(sizes), np.concatenate([graph.unary_values, *unary])),
        [graph.edge_block, *terms],
        [*higher, *factors],
        graph.constant,
    )
