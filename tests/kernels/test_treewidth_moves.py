"""Labellings that violate hard terms cost more than all others after softening."""

from __future__ import annotations

import numpy as np
import pytest

from inference_lab.conformance import exhaustive
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.random_graphs import HARD, random_graph
from inference_lab.kernels.treewidth_moves import soften


@pytest.mark.parametrize("family", HARD)
def test_soft_energies_keep_the_order(family: str) -> None:
    """With finite penalties every feasible labelling stays below all infeasible ones."""
    for seed in range(5):
        graph = random_graph(family, seed)
        arrays = soften(graph)
        for name in ("unary", "weights", "pairwise", "tables"):
            assert np.isfinite(getattr(arrays, name)).all()
        soft = FactorGraph(
            cardinalities=graph.cardinalities, unary_ptr=graph.unary_ptr,
            unary_values=arrays.unary, edges=graph.edges, edge_kinds=graph.edge_kinds,
            edge_weights=arrays.weights, edge_offsets=graph.edge_offsets,
            pairwise_values=arrays.pairwise, factor_ptr=graph.factor_ptr,
            factor_scopes=graph.factor_scopes, table_ptr=graph.table_ptr,
            table_values=arrays.tables, constant=graph.constant,
        )  # fmt: skip
        hard, easy = exhaustive(graph).energies, exhaustive(soft).energies
        feasible = np.isfinite(hard)
        assert easy[feasible] == pytest.approx(hard[feasible])
        assert easy[~feasible].min(initial=np.inf) > easy[feasible].max()
