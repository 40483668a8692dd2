"""Conversion of graphs for pgmpy's inference classes: one factor per scope, named variables."""

from __future__ import annotations

import importlib
import math
import warnings
from collections.abc import Callable, Iterable
from itertools import combinations
from typing import Any

import numpy as np

from inference_lab.graph.arrays import FloatArray
from inference_lab.graph.factor_graph import FactorGraph

#: A scope and its table of costs.
Term = tuple[tuple[int, ...], FloatArray]


def merged_terms(graph: FactorGraph) -> list[Term]:
    """List unaries, edges and factors; those over the same variables are added up."""
    # pgmpy looks factors up by the set of their variables and keeps only one per set.
    found: dict[frozenset[int], Term] = {
        frozenset([i]): ((i,), graph.unary_of(i)) for i in range(graph.n_variables)
    }
    terms: list[Term] = [
        (tuple(ends), graph.edge_table(e)) for e, ends in enumerate(graph.edges.tolist())
    ]
    terms += [graph.higher_order(f) for f in range(graph.n_factors)]
    for scope, table in terms:
        key = frozenset(scope)
        if key in found:
            first, before = found[key]
            table = before + np.transpose(table, [scope.index(i) for i in first])
            scope = first
        found[key] = (scope, table)
    return list(found.values())


def range_of(table: FloatArray) -> float:
    """Return the difference between the largest and the least finite cost, 0 without any."""
    finite = table[np.isfinite(table)]
    return float(finite.max() - finite.min()) if finite.size else 0.0


def pgmpy_model(terms: Iterable[Term], values: Callable[[FloatArray], FloatArray]) -> Any:
    """Build a ``DiscreteMarkovNetwork`` of the factors ``values(table)``."""
    # Variable ``i`` is the node ``"x{i}"``, because pgmpy treats a node ``0`` as missing.
    from pgmpy.factors.discrete import DiscreteFactor
    from pgmpy.models import DiscreteMarkovNetwork

    model: Any = DiscreteMarkovNetwork()
    factors = []
    for scope, table in terms:
        names = [f"x{i}" for i in scope]
        model.add_nodes_from(names)
        model.add_edges_from(combinations(names, 2))
        factors.append(DiscreteFactor(names, table.shape, values(table)))
    model.add_factors(*factors)
    return model


def pgmpy_inference() -> Any:
    """Import ``pgmpy.inference`` without warnings of pgmpy about its own deprecated modules."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return importlib.import_module("pgmpy.inference")


def surrogate_infinity(terms: Iterable[Term]) -> float:
    """Return a finite stand-in for ``+inf`` that exceeds any difference of energies."""
    return 2.0 * math.fsum(range_of(table) for _, table in terms) + 1.0
