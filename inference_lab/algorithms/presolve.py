"""Steps before a method runs: trivial graphs and contradictions."""

from __future__ import annotations

import math

import numpy as np

from inference_lab.contract import Outcome, Run
from inference_lab.formatting import listed
from inference_lab.graph.arrays import TABLE, connected
from inference_lab.graph.factor_graph import FactorGraph


def trivial_outcome(graph: FactorGraph, run: Run) -> Outcome | None:
    """Report the sum of the least costs as a bound; return the outcome of a trivial run."""
    # A graph is trivial if it has no variables, or if one term forbids every labelling.
    trivial = graph.sum_of_minima
    if trivial == math.inf:
        run.bound(trivial)
        return Outcome(infeasible=True)
    # The sum is lowered by 2^-46 of its terms, 16 times their rounding error.
    run.bound(trivial, 16.0 * graph.resolution_at(trivial))
    if graph.n_variables == 0:
        energy = run.offer(np.empty(0, dtype=np.int64))
        run.bound(energy)
        return Outcome(converged=True, claimed_energy=energy)
    return None


# ------------------------------------------------------------------ contradictions


def n_entries(graph: FactorGraph) -> int:
    """Return the number of entries of unaries, messages of edges and tables of factors."""
    if graph.n_labels is None:
        ends = int(graph.cardinalities[graph.edges].sum())
    else:
        ends = 2 * graph.n_edges * graph.n_labels
    return int(graph.unary_values.size + ends + graph.table_values.size)


def contradiction(graph: FactorGraph) -> str | None:
    """Return a reason of infeasibility that is found in linear time, else None.

    Checks single variables, single terms, and variables joined by hard must-links.
    """
    if not graph.has_infinite:
        return None
    empty = np.flatnonzero(np.isinf(graph.least_unaries))
    if empty.size:
        return f"every label of variable {int(empty[0])} is forbidden"
    if graph.sum_of_minima == math.inf:
        lost = np.flatnonzero(graph.edge_extremes()[0] == math.inf)
        higher = map(graph.higher_order, range(graph.n_factors))
        scope = (
            graph.edges[lost[0]].tolist()
            if lost.size
            else next(scope for scope, costs in higher if np.isinf(costs).all())
        )
        return f"every combination of labels of variables {listed([*map(str, scope)])} is forbidden"
    diagonal = graph.edge_kinds != TABLE
    equal = np.flatnonzero(diagonal & np.isinf(graph.edge_weights))
    if equal.size == 0:
        return None
    # Variables joined by must-links are contracted. A label is possible for a group if all of its
    # variables have it, and neither a unary nor a term within the group forbids it.
    group = connected(graph.n_variables, graph.edges[equal])
    owner = np.repeat(group, graph.cardinalities)
    width = int(graph.cardinalities.max())
    label = np.arange(owner.size) - np.repeat(graph.unary_ptr[:-1], graph.cardinalities)
    sizes = np.bincount(group)
    slots = (owner * width + label)[np.isfinite(graph.unary_values)]
    allowed = np.bincount(slots, minlength=sizes.size * width).reshape(-1, width)
    possible = allowed == sizes[:, None]
    within = np.flatnonzero(diagonal & (group[graph.edges[:, 0]] == group[graph.edges[:, 1]]))
    # Places beyond the labels of both ends are ignored, because no such label is possible.
    places = graph.edge_offsets[within, None] + graph.edge_kinds[within, None] * np.arange(width)
    edge, label = np.nonzero(np.isinf(graph.pairwise_values.take(places, mode="clip")))
    possible[group[graph.edges[within[edge], 0]], label] = False
    lost = np.flatnonzero(~possible.any(axis=1))
    if lost.size == 0:
        return None
    variables = np.flatnonzero(group == lost[0])
    shown = ", ".join(str(int(v)) for v in variables[:5]) + (", ..." if variables.size > 5 else "")
    return f"hard constraints make variables {shown} equal and leave them no label"
