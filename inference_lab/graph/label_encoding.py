"""Label costs as ordinary terms with auxiliary variables, for formats and methods without them.

The variables of the graph keep their numbers, the auxiliary ones come after them: the first ``n``
labels of the encoding form a labelling of the graph. The *star* has one binary variable a
set, on which all variables with a label of it depend; `inference_lab.graph.label_cost_chain` has
another exact encoding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from inference_lab.graph.arrays import FloatArray, IntArray, starts_of
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.factors import Factors
from inference_lab.graph.terms import PairwiseTerms, SharedTable, Unaries

__all__ = ["Star", "extended", "star"]


class Star(NamedTuple):
    """A graph with a binary variable ``n + s`` for each set ``s``: 1 if a variable uses it.

    ``member`` (s, k) bool marks the labels in each set; ``n`` is the number of original variables.
    """

    graph: FactorGraph
    member: npt.NDArray[np.bool_]
    n: int

    def extended(self, labels: IntArray) -> IntArray:
        """Return a labelling of the encoded graph with the auxiliary labels that fit it best."""
        used = np.zeros(self.member.shape[1], dtype=bool)
        used[labels] = True
        return np.concatenate([labels, (self.member & used).any(axis=1).astype(np.int64)])


def star(graph: FactorGraph, temperature: float = 0.0, *, hard: bool = True) -> Star:
    """Encode label costs by a binary variable a set.

    ``z_s = 1`` costs ``h_s``; ``z_s = 0`` forbids the labels of the set. The least cost over ``z``
    is the energy. At ``T > 0``, as ``z_s = 1`` is possible without a user, ``z_s = 0`` costs
    ``-T log(1 - exp(-h_s / T))``, so that the two weights add up to 1: then the sum over ``z`` of
    ``exp(-E / T)`` is unchanged. Without `hard`, ``z_s = 0`` costs ``h_s`` per label of
    the set at T = 0 in place of ``inf``: the minimum is the same, and all costs are finite.
    """
    n, width = graph.n_variables, int(graph.cardinalities.max(initial=0))
    sets = graph.label_costs.sets()
    member = np.zeros((len(sets), width), dtype=bool)
    terms: list[PairwiseTerms] = []
    unary: list[FloatArray] = []
    for s, (labels, cost) in enumerate(sets):
        member[s, list(labels)] = True
        without = 0.0
        if temperature > 0:
            without = -temperature * math.log(-math.expm1(-cost / temperature))
        unary.append(np.array([without, cost]))
        for k in np.unique(graph.cardinalities).tolist():
            if not member[s, :k].any():
                continue
            users = np.flatnonzero(graph.cardinalities == k)
            table = np.zeros((k, 2))
            table[member[s, :k], 0] = np.inf if hard else cost
            terms.append(SharedTable(np.stack([users, np.full(users.size, n + s)], axis=1), table))
    return Star(extended(graph, unary, terms), member, n)


def extended(
    graph: FactorGraph,
    unary: list[FloatArray],
    terms: Sequence[PairwiseTerms],
    factors: Sequence[tuple[tuple[int, ...], FloatArray]] = (),
) -> FactorGraph:
    """Return the graph without label costs, with further variables, terms and factors."""
    sizes = np.append(graph.cardinalities, np.array([row.size for row in unary], dtype=np.int64))
    scopes = graph.factor_scopes.astype(np.int64)
    stored = Factors(graph.factor_ptr, scopes, graph.table_ptr, graph.table_values)
    own = (graph.higher_order(f) for f in range(graph.n_factors))
    return FactorGraph.from_terms(
        Unaries(sizes, starts_of(sizes), np.concatenate([graph.unary_values, *unary])),
        [graph.edge_block, *terms],
        [*own, *factors] if factors else stored,
        graph.constant,
    )
