"""Steps between energies: a common divisor of all costs, and bounds raised to its multiples."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from inference_lab.graph.arrays import TABLE, FloatArray, blocks
from inference_lab.graph.factor_graph import FactorGraph

#: Sums of integers below this are exact.
_EXACT = 2.0**53
#: Steps that are a smaller share of the magnitude are lost in rounding.
_FINEST_STEP = 2.0**-46
#: Decimals that are tried, after integers: prices, and costs that other tools print.
_MOST_DECIMALS = 9
#: Costs that are looked at first, because almost all graphs of real costs fail there.
_SAMPLE = 64


def energy_step(graph: FactorGraph) -> float:
    """Return a common divisor of all differences of energies, or 0 if none is known.

    The divisor refers to the finite costs in units of a power of two, or of a decimal place;
    unaries count above the least one of their variable. Linear time; a few costs are enough where
    there is none.

    Parameters
    ----------
    graph : FactorGraph

    Returns
    -------
    float

    Examples
    --------
    >>> import inference_lab as il
    >>> energy_step(il.FactorGraph.potts([[1.0, 7.0], [4.0, 0.0]], [(0, 1)], [2.0]))
    2.0
    >>> energy_step(il.FactorGraph.potts([[0.0, 1.25], [0.4, 0.0]], [(0, 1)], [0.5]))
    0.05
    """
    # An entry of a table times an integer is a multiple of it; other weights are not followed.
    if (graph.edge_weights[graph.edge_kinds == TABLE] % 1.0).any():
        return 0.0
    # Units to a cost of 1: of integers, of the last place of all sums, and of decimal places.
    last_place = 2.0 ** min(900, 52 - math.frexp(graph.magnitude)[1])
    units = np.array([1.0, last_place, *(10.0**d for d in range(1, _MOST_DECIMALS + 1))])
    units = units[graph.magnitude * units < _EXACT]
    # A few costs are enough where there is no step, as in almost all graphs of real costs.
    units = units[_are_whole(*_costs(graph, slice(0, _SAMPLE)), units[:, None])]
    families = graph.cardinalities, graph.edges, graph.pairwise_values, graph.table_values
    longest = max(*(len(family) for family in families), graph.n_label_costs)
    for unit in units:
        divisor = 0
        for part in blocks(longest):
            costs, sizes = _costs(graph, part)
            if not _are_whole(costs, sizes, unit):
                break
            divisor = int(np.gcd.reduce(np.rint(costs * unit).astype(np.int64), initial=divisor))
        else:
            step = divisor / float(unit)
            return step if step > _FINEST_STEP * graph.magnitude else 0.0
    return 0.0


def _costs(graph: FactorGraph, part: slice) -> tuple[FloatArray, FloatArray]:
    """Return finite costs, a part of each kind, and the sizes their errors are relative to."""
    variables = slice(*part.indices(graph.n_variables)[:2])
    minima = np.repeat(_finite(graph.least_of(variables)), graph.cardinalities[variables])
    unary = graph.unary_values[graph.unary_ptr[variables.start] :][: minima.size]
    differ = graph.edge_weights[part][graph.edge_kinds[part] != TABLE]
    others = (
        graph.table_values[part],
        differ,
        graph.pairwise_values[part],
        graph.label_costs.costs[part],
    )
    costs = np.concatenate([unary - minima, *others])
    sizes = np.concatenate([np.abs(unary) + np.abs(minima), *map(np.abs, others)])
    finite = np.isfinite(costs)
    return costs[finite], sizes[finite]


def _finite(costs: FloatArray) -> FloatArray:
    """Return costs with 0 for infinite ones."""
    return np.where(np.isinf(costs), 0.0, costs)


def _are_whole(costs: FloatArray, sizes: FloatArray, units: Any) -> Any:
    """Whether costs are whole multiples of a unit, up to the rounding of decimal fractions."""
    multiples = costs * units
    return (np.abs(multiples - np.rint(multiples)) <= 2.0**-51 * units * sizes).all(axis=-1)


def next_energy(graph: FactorGraph, bound: float, step: float) -> float:
    """Return the least possible energy not below a lower bound.

    Parameters
    ----------
    graph : FactorGraph
    bound : float
    step : float
        `energy_step` of the graph; 0 leaves the bound as it is.

    Returns
    -------
    float

    Examples
    --------
    >>> import inference_lab as il
    >>> graph = il.FactorGraph.potts([[0.0, 6.0], [4.0, 0.0]], [(0, 1)], [2.0])
    >>> next_energy(graph, 0.5, energy_step(graph))
    2.0
    """
    if step == 0.0 or not math.isfinite(bound):
        return bound
    # A bound that exceeds a multiple by no more than rounding error is not raised to the next one.
    base = graph.constant + float(_finite(graph.least_unaries).sum())
    steps = (bound - base) / step
    rounding = 1e-6 + 2.0**-50 * (abs(bound) + abs(base)) / step
    return max(bound, math.ceil(steps - rounding) * step + base)


def typical_range(graph: FactorGraph) -> float:
    """Return the median range of the costs of a term, of those that have one; 0 without any.

    A constant changes nothing, and neither do a few large penalties.

    Parameters
    ----------
    graph : FactorGraph

    Returns
    -------
    float

    Examples
    --------
    >>> import inference_lab as il
    >>> typical_range(il.FactorGraph.potts([[0.0, 6.0], [4.0, 0.0], [1e9, 0]], [(0, 1)], [2.0]))
    5.0
    """
    low, high = graph.term_extremes()
    ranges = (high - low)[np.isfinite(low) & (high > low)]
    return float(np.median(ranges)) if ranges.size else 0.0
