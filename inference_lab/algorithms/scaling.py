"""Scaling of the costs of a graph to a range in which absolute tolerances are comparable.

Solvers compare costs with absolute tolerances, and large penalties that no good labelling pays
reduce the precision of the relevant costs. So `scale_costs` prepares the graph in two steps:

1. finite costs that no labelling near the minimum can incur are lowered to a cap that it still
   cannot incur;
2. if costs are very small or very large, all are multiplied by a power of two, which is exact.

Solvers need no code for either step, because `Run` converts energies and bounds back.
"""

from __future__ import annotations

import math

import numpy as np

from inference_lab.contract import OPTIMALITY_TOLERANCE, ScaledGraph, energy_scale
from inference_lab.graph.factor_graph import FactorGraph, unary_minimum
from inference_lab.graph.feasibility import n_entries

#: Binary exponents of the mean cost of a term (0.001 to 10^12) between which no scaling is needed.
_SMALL, _LARGE = -10, 40
#: Largest exponent of the multiplier, because tables times small weights must not overflow.
_MAX_EXPONENT = 690

#: The cap, relative to the total cost that a labelling near the minimum can pay. Sums in which
#: larger costs cancel lose digits: with 2^11, bounds were up to 2^10 times further above the
#: optimum than `FactorGraph.resolution` allows for.
_CAP_FACTOR = 2.0

#: Limits of the descents that search for a labelling without penalties: their number, the table
#: entries of all of them together, and the sweeps of each.
_DESCENTS, _DESCENT_ENTRIES, _SWEEPS = 10, 1_000_000, 20

#: Costs below this share of the magnitude of the graph count as 0.
_NEGLIGIBLE_SHARE = 2.0**-550

#: Energy above the minimum, in temperatures, at which the weight of a labelling underflows.
_NO_WEIGHT = 750.0


def scale_costs(graph: FactorGraph, temperature: float) -> ScaledGraph:
    """Return the graph with capped penalties, in units in which costs are near 1. Linear time."""
    resolution = _resolution(graph)
    capped = _capped(graph, temperature, resolution)
    exponent = _exponent(capped, temperature)
    unit = 2.0**-exponent
    return ScaledGraph(capped.scaled(exponent) if exponent else capped, unit, resolution / unit)


def _tolerated(graph: FactorGraph) -> float:
    """Return the error that a proof may leave open, from the known bounds on the minimum."""
    least = max(energy_scale(graph), graph.sum_of_minima, -graph.unary_energy)
    return OPTIMALITY_TOLERANCE * least


def _resolution(graph: FactorGraph) -> float:
    """Return the rounding error of bounds on the minimum."""
    # The error grows with the penalties that the best known labelling pays. If the penalties of the
    # cheapest unaries prevent a proof, descents search for a labelling that pays none.
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
    # A penalty of 1e90 means "never", but in a sum it cancels all digits of the relevant costs. A
    # lowered cost still exceeds the total cost of a known labelling; at T > 0 it has no weight in
    # marginals and partition function. Infinite costs stay. If even the largest costs leave enough
    # digits for a proof, the graph is unchanged, so that energies keep every bit.
    largest_error = graph.magnitude * 2.0**-50
    if largest_error <= min(_tolerated(graph), OPTIMALITY_TOLERANCE * (temperature or math.inf)):
        return graph
    # Total absolute cost of such a labelling, including the least costs of all terms.
    paid = resolution * 2.0**50
    if paid < _NEGLIGIBLE_SHARE * graph.magnitude:
        paid = min(1.0, graph.magnitude)
    states = graph.log2_states * math.log(2.0)
    cap = _CAP_FACTOR * paid + temperature * (_NO_WEIGHT + states)
    return graph if graph.magnitude <= cap else graph.capped(cap)


def _exponent(graph: FactorGraph, temperature: float) -> int:
    """Return the power of two that brings very small or very large costs near 1, else 0."""
    n_terms = max(1, graph.n_variables + graph.n_edges + graph.n_factors + graph.n_label_costs)
    # The temperature counts, because costs far below it hardly matter.
    size = max(graph.magnitude / n_terms, temperature)
    typical = math.frexp(size)[1]
    if size == 0.0 or _SMALL <= typical <= _LARGE:
        return 0
    return _LARGE - typical if typical > _LARGE else min(_MAX_EXPONENT, -typical)
