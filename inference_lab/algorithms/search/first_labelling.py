"""The start of tree searches: a labelling by ICM, and the size of the tables they store."""

from __future__ import annotations

from inference_lab.contract import Run
from inference_lab.graph.factor_graph import FactorGraph, unary_minimum
from inference_lab.kernels.descent import descend

#: Sweeps of the descent that finds a first labelling; ICM needs about ten.
_SWEEPS = 200


def n_table_entries(graph: FactorGraph) -> int:
    """Return the number of table entries of pairwise and larger terms, each with its own table."""
    sizes = graph.cardinalities[graph.edges]
    return int(sizes[:, 0] @ sizes[:, 1]) + graph.table_values.size


def initial_incumbent(graph: FactorGraph, run: Run) -> None:
    """Offer the cheapest labels, and the result of ICM from there."""
    labels = unary_minimum(graph)
    run.offer(labels)
    descend(graph, labels, run.rng.permutation(labels.size), _SWEEPS)
    run.offer(labels)
