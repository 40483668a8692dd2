"""Label costs as ordinary terms with auxiliary variables, for formats and methods without them.

The variables of the graph keep their numbers, the auxiliary ones come after them: the first ``n``
labels of a labelling of the encoding are one of the graph. Two encodings, both exact:

* the *star*, one binary variable a set, on which all variables with a label of it depend;
* the *chain*, a running disjunction along the variables for each set, which is a function of the
  labelling, so that sums over all labellings stay the same at every temperature.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.label_costs import NO_LABEL_COSTS
from inference_lab.graph.terms import OwnTables, PairwiseTerms, SharedTable, freeze

__all__ = ["Star", "chain", "star"]


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
    is the energy. At ``T > 0``, where ``z_s = 1`` is possible without a user, ``z_s = 0`` costs
    ``-T log(1 - exp(-h_s / T))``, so that the two weights add up to 1: then the sum over ``z`` of
    ``exp(-E / T)`` is that of the energy. Without `hard`, ``z_s = 0`` costs ``h_s`` per label of
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
    return Star(_extended(graph, unary, terms, []), member, n)


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
            own = n + len(unary)
            unary.append(np.array([0.0, cost if place == len(users) - 1 else 0.0]))
            if place == 0:
                edges.append((i, own))
                tables.append(np.where(uses[:, None] == np.array([False, True]), 0.0, np.inf))
            else:
                before = np.array([False, True])[:, None, None]
                now = np.array([False, True])
                table = np.where((before | uses[:, None]) == now, 0.0, np.inf)
                factors.append(((own - 1, i, own), table))
    terms = [OwnTables(np.array(edges), tables)] if edges else []
    return _extended(graph, unary, terms, factors)


def _extended(
    graph: FactorGraph,
    unary: list[FloatArray],
    terms: Sequence[PairwiseTerms],
    factors: list[tuple[tuple[int, ...], FloatArray]],
) -> FactorGraph:
    """Return the graph without label costs, with further variables, terms and factors."""
    more = FactorGraph.from_terms(
        [*(np.zeros(k) for k in graph.cardinalities.tolist()), *unary], terms, factors
    )
    values = more.unary_values.copy()
    values[: graph.unary_values.size] = graph.unary_values
    return replace(
        graph,
        cardinalities=more.cardinalities,
        unary_ptr=more.unary_ptr,
        unary_values=freeze(values),
        edges=_joined(graph.edges, more.edges),
        edge_kinds=_joined(graph.edge_kinds, more.edge_kinds),
        edge_weights=_joined(graph.edge_weights, more.edge_weights),
        edge_offsets=_joined(graph.edge_offsets, more.edge_offsets + graph.pairwise_values.size),
        pairwise_values=_joined(graph.pairwise_values, more.pairwise_values),
        factor_ptr=_joined(graph.factor_ptr, more.factor_ptr[1:] + graph.factor_ptr[-1]),
        factor_scopes=_joined(graph.factor_scopes, more.factor_scopes),
        table_ptr=_joined(graph.table_ptr, more.table_ptr[1:] + graph.table_ptr[-1]),
        table_values=_joined(graph.table_values, more.table_values),
        label_costs=NO_LABEL_COSTS,
    )


def _joined(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return freeze(np.concatenate([first, second]))
