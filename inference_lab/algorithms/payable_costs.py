"""Penalties that are never paid, lowered inside a method so that sums keep their digits."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from inference_lab.contract import OPTIMALITY_TOLERANCE, Run, energy_scale
from inference_lab.graph.arrays import TABLE, FloatArray, freeze
from inference_lab.graph.factor_graph import FactorGraph, unary_minimum

#: The cap, relative to the total cost that a labelling near the minimum can pay. Sums in which
#: larger costs cancel lose digits: with 2^11, bounds were up to 2^10 times further above the
#: optimum than `FactorGraph.resolution` allows for.
_CAP_FACTOR = 2.0

#: Most sweeps of a descent that searches for a labelling without penalties, most descents, and
#: most costs that are read in all of them after the first.
_SWEEPS, _DESCENTS, _WORK = 20, 20, 2_000_000

#: Costs below this share of the magnitude of the graph count as 0.
_NEGLIGIBLE_SHARE = 2.0**-550

#: Energy above the minimum, in temperatures, at which the weight of a labelling underflows.
_NO_WEIGHT = 750.0


def payable(graph: FactorGraph, run: Run) -> FactorGraph:
    """Return the graph with costs that are too large to be paid lowered to a cap.

    A penalty of 1e90 means "never", but in a sum it cancels all digits of the other costs. The cap
    still exceeds the total cost of a known labelling; at T > 0 it has no weight in marginals and
    partition function. Energies of labellings near the minimum stay the same, and so do infinite
    costs. Bounds on the result are bounds on the graph, and the run is told of their finer
    resolution. Linear time.

    Parameters
    ----------
    graph : FactorGraph
        The graph of the run, or a part of it.
    run : Run

    Returns
    -------
    FactorGraph
        The graph itself if its largest costs leave enough digits for a proof, so that energies keep
        every bit.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1e90], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> payable(g, il.Run(g)).unary_of(0).tolist()
    [0.0, 1.0]
    """
    temperature, tolerated = run.temperature, _tolerated(graph)
    resolution = _resolution(graph, run, tolerated)
    if graph is run.graph:
        run.resolution = resolution
    if graph.largest_error <= min(tolerated, OPTIMALITY_TOLERANCE * (temperature or math.inf)):
        return graph
    # Total absolute cost of such a labelling, including the least costs of all terms.
    paid = resolution * 2.0**50
    if paid < _NEGLIGIBLE_SHARE * graph.magnitude:
        paid = min(1.0, graph.magnitude)
    states = graph.log2_states * math.log(2.0)
    cap = _CAP_FACTOR * paid + temperature * (_NO_WEIGHT + states)
    return graph if graph.magnitude <= cap else capped(graph, cap)


def _tolerated(graph: FactorGraph) -> float:
    """Return the error that a proof may leave open, from the known bounds on the minimum."""
    scale = max(energy_scale(graph), graph.sum_of_minima, -graph.unary_energy)
    return OPTIMALITY_TOLERANCE * scale


def _resolution(graph: FactorGraph, run: Run, tolerated: float) -> float:
    """Return the rounding error of bounds on the minimum."""
    # The error grows with the penalties that the best known labelling pays. If the penalties of the
    # cheapest unaries prevent a proof, descents search for a labelling that pays none.
    energy = graph.unary_energy
    if graph is run.graph:
        energy = min(energy, run.best_energy)
    if graph.resolution_at(energy) <= tolerated:
        return graph.resolution_at(energy)
    from inference_lab.kernels.descent import descend

    rng, labels = np.random.default_rng(0), unary_minimum(graph)
    entries = graph.unary_values.size + graph.pairwise_values.size + graph.table_values.size
    for _ in range(min(_DESCENTS, 1 + _WORK // (_SWEEPS * entries))):
        descend(graph, labels, np.arange(labels.size), _SWEEPS)
        energy = min(energy, graph.energy_of(labels))
        if graph.resolution_at(energy) <= tolerated:
            break
        labels = rng.integers(0, graph.cardinalities)
    return graph.resolution_at(energy)


def capped(graph: FactorGraph, cap: float) -> FactorGraph:
    """Return the graph with all finite costs above a cap lowered to it. Linear time.

    Parameters
    ----------
    graph : FactorGraph
    cap : float
        At least 0.

    Returns
    -------
    FactorGraph
        The graph itself where no cost is above.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1e9], [0.6, 0.0]], [(0, 1)], [1e90])
    >>> capped(g, 4.0).energy([1, 0]), capped(g, 1e100) is g
    (8.6, True)
    """
    costs = {
        "unary_values": _lowered(graph.unary_values, cap),
        "table_values": _lowered(graph.table_values, cap),
        **_capped_edges(graph, cap),
    }
    changes = {name: new for name, new in costs.items() if new is not getattr(graph, name)}
    if (graph.label_costs.costs > cap).any():
        lowered = _lowered(graph.label_costs.costs, cap)
        changes["label_costs"] = graph.label_costs._replace(costs=lowered)
    return replace(graph, **changes) if changes else graph


def _capped_edges(graph: FactorGraph, cap: float) -> dict[str, Any]:
    """Return the changed arrays of the pairwise terms when their costs are capped."""
    dear = np.flatnonzero(graph.edge_extremes()[1] > cap)
    if dear.size == 0:
        return {}
    table = graph.edge_kinds[dear] == TABLE
    factor = np.where(table, graph.edge_weights[dear], 1.0)
    lengths = graph.pool_sizes(dear)
    # These terms get new stretches at the end of the pool, with tables multiplied out. Terms of
    # the same stretch and weight share the new one.
    shared = np.stack([graph.edge_offsets[dear], lengths, factor.view(np.int64)], axis=1)
    _, first, which = np.unique(shared, axis=0, return_index=True, return_inverse=True)
    ends = np.cumsum(lengths[first])
    starts = ends - lengths[first]
    source = np.arange(ends[-1])
    source += np.repeat(graph.edge_offsets[dear[first]] - starts, lengths[first])
    tables = graph.pairwise_values[source] * np.repeat(factor[first], lengths[first])
    offsets, weights = graph.edge_offsets.copy(), graph.edge_weights.copy()
    offsets[dear] = graph.pairwise_values.size + starts[which.ravel()]
    weights[dear] = np.where(table, 1.0, _lowered(weights[dear], cap))
    return {
        "edge_weights": freeze(weights),
        "edge_offsets": freeze(offsets),
        "pairwise_values": freeze(np.append(graph.pairwise_values, _lowered(tables, cap))),
    }


def _lowered(costs: FloatArray, cap: float) -> FloatArray:
    """Return costs with finite ones lowered to a cap; the array itself if none exceeds it."""
    above = (costs > cap) & (costs < np.inf)
    return freeze(np.where(above, cap, costs)) if above.any() else costs
