"""Bring the costs of a graph into a range in which tolerances mean the same for every graph.

Solvers compare costs with absolute tolerances, and penalties that no good labelling pays take
digits from the costs that decide. So `scale_costs` prepares the graph of each run in two steps:

1. finite costs that no labelling near the minimum can pay are lowered to a cap that is still never
   paid;
2. if costs are very small or very large, all are multiplied by a power of two, which is exact.

Authors of solvers need not know of either: `Run` converts energies and bounds back.
"""

from __future__ import annotations

import math

import numpy as np

from inference_lab.contract import OPTIMALITY_TOLERANCE, ScaledGraph, energy_scale
from inference_lab.graph.factor_graph import FactorGraph, unary_minimum
from inference_lab.graph.feasibility import n_entries

#: Binary exponents of the mean cost of a term (0.001 to 10^12): such graphs keep their unit.
_SMALL, _LARGE = -10, 40
#: Largest exponent to multiply by: tables times small weights must not overflow.
_MAX_EXPONENT = 690

#: The cap, relative to all that a labelling near the minimum can pay. Sums in which larger costs
#: cancel lose digits: with 2^11, bounds were up to 2^10 times further above the optimum than
#: `FactorGraph.resolution` allows for.
_CAP_FACTOR = 2.0

#: Descents that look for a labelling without penalties: their number, the entries of the graph
#: that all of them together may begin with, and the sweeps of each.
_DESCENTS, _DESCENT_ENTRIES, _SWEEPS = 10, 1_000_000, 20

#: A labelling that pays less than this share of the magnitude of the graph pays nothing.
_NEGLIGIBLE_SHARE = 2.0**-550

#: A labelling this many temperatures above the minimum has a weight that underflows.
_NO_WEIGHT = 750.0


def scale_costs(graph: FactorGraph, temperature: float) -> ScaledGraph:
    """Return the graph with capped penalties in units in which costs are near 1. Linear time."""
    resolution = _resolution(graph)
    capped = _capped(graph, temperature, resolution)
    exponent = _exponent(capped, temperature)
    unit = 2.0**-exponent
    return ScaledGraph(capped.scaled(exponent) if exponent else capped, unit, resolution / unit)


def _tolerated(graph: FactorGraph) -> float:
    """Return the error that a proof may leave open, by what is known of the minimum so far."""
    least = max(energy_scale(graph), graph.sum_of_minima, -graph.unary_energy)
    return OPTIMALITY_TOLERANCE * least


def _resolution(graph: FactorGraph) -> float:
    """Return the rounding error of bounds on the minimum."""
    # The error grows with the penalties that the best known labelling pays. If those of the
    # cheapest unaries would leave no proof, descents look for a labelling that pays none.
    resolution, tolerated = graph.resolution, _tolerated(graph)
    if resolution <= tolerated:
        return resolution
    from inference_lab.kernels.descent import descend

    rng = np.random.default_rng(0)
    labels = unary_minimum(graph)
    for _ in range(max(1, min(_DESCENTS, _DESCENT_ENTRIES // n_entries(graph)))):
        descend(graph.arrays, labels, np.arange(labels.size), _SWEEPS)
        resolution = min(resolution, graph.resolution_at(graph.energy_of(labels)))
        if resolution <= tolerated:
            break
        labels = rng.integers(0, graph.cardinalities)
    return resolution


def _capped(graph: FactorGraph, temperature: float, resolution: float) -> FactorGraph:
    """Return the graph with costs that are too large to be paid lowered to a cap."""
    # A penalty of 1e90 stands for "never", yet in a sum it takes all digits from the costs that
    # decide. A lowered cost still exceeds what a known labelling pays in all; at T > 0 it has no
    # weight in marginals and partition function. Infinite costs stay. If even the largest costs
    # leave the digits of a proof, the graph stays, and with it energies bit for bit.
    largest_error = graph.magnitude * 2.0**-50
    if largest_error <= min(_tolerated(graph), OPTIMALITY_TOLERANCE * (temperature or math.inf)):
        return graph
    # All that such a labelling pays by absolute value, the least costs of all terms included.
    paid = resolution * 2.0**50
    if paid < _NEGLIGIBLE_SHARE * graph.magnitude:
        paid = min(1.0, graph.magnitude)
    states = graph.log2_states * math.log(2.0)
    cap = _CAP_FACTOR * paid + temperature * (_NO_WEIGHT + states)
    return graph if graph.magnitude <= cap else graph.capped(cap)


def _exponent(graph: FactorGraph, temperature: float) -> int:
    """Return the power of two that brings very small or very large costs near 1, else 0."""
    n_terms = max(1, graph.n_variables + graph.n_edges + graph.n_factors + graph.n_label_costs)
    # Costs far below the temperature hardly matter.
    size = max(graph.magnitude / n_terms, temperature)
    typical = math.frexp(size)[1]
    if size == 0.0 or _SMALL <= typical <= _LARGE:
        return 0
    return _LARGE - typical if typical > _LARGE else min(_MAX_EXPONENT, -typical)
