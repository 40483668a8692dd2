"""Steps before a method runs: contradictions, trivial graphs, and the scale of costs.

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
import numpy.typing as npt

from inference_lab.contract import OPTIMALITY_TOLERANCE, Outcome, Run, ScaledGraph, energy_scale
from inference_lab.graph.arrays import DIAGONAL, POTTS, TABLE, IntArray, connected
from inference_lab.graph.factor_graph import FactorGraph, unary_minimum
from inference_lab.graph.terms import by_shape

#: Tables are checked in blocks of about this many entries.
_BLOCK = 4_000_000

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


def trivial_outcome(graph: FactorGraph, run: Run) -> Outcome | None:
    """Report the sum of the least costs as a bound; return the outcome of a trivial run."""
    # A graph is trivial if it has no variables, or if one term forbids every labelling.
    trivial = graph.sum_of_minima
    run.bound(trivial)
    if trivial == math.inf:
        return Outcome(infeasible=True)
    if graph.n_variables == 0:
        energy = run.offer(np.empty(0, dtype=np.int64))
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
    allowed = np.isfinite(graph.unary_values)
    empty = np.flatnonzero(~np.logical_or.reduceat(allowed, graph.unary_ptr[:-1]))
    if empty.size:
        return f"every label of variable {int(empty[0])} is forbidden"
    if graph.n_factors:
        forbidden = np.logical_and.reduceat(np.isinf(graph.table_values), graph.table_ptr[:-1])
        if forbidden.any():
            scope = graph.higher_order(int(np.flatnonzero(forbidden)[0]))[0]
            return f"every entry of the factor over {scope} is forbidden"
    e = _impossible_table(graph, allowed)
    if e is not None:
        i, j = (int(v) for v in graph.edges[e])
        return f"every pair of labels of variables {i} and {j} is forbidden"
    return _equality_contradiction(graph, allowed)


def _impossible_table(graph: FactorGraph, allowed: npt.NDArray[np.bool_]) -> int | None:
    """Return a table edge that leaves no pair of allowed labels, or None."""
    infinite = np.isinf(graph.pairwise_values)
    if not infinite.any():
        return None
    table = np.flatnonzero(graph.edge_kinds == TABLE)
    sizes = graph.cardinalities[graph.edges[table]]
    # The number of infinite entries before each place of the pool; most tables have none.
    before = np.concatenate([[0], np.cumsum(infinite)])
    start = graph.edge_offsets[table]
    hard = before[start + sizes.prod(axis=1)] > before[start]
    table, sizes = table[hard], sizes[hard]
    for (ki, kj), places in by_shape(sizes):
        members = table[places]
        for part in np.array_split(members, 1 + members.size * ki * kj // _BLOCK):
            entries = graph.edge_offsets[part, None] + np.arange(ki * kj)
            possible = np.isfinite(graph.pairwise_values[entries]).reshape(-1, ki, kj)
            rows = graph.unary_ptr[graph.edges[part]]
            possible &= allowed[rows[:, 0, None] + np.arange(ki)][:, :, None]
            possible &= allowed[rows[:, 1, None] + np.arange(kj)][:, None]
            lost = np.flatnonzero(~possible.any(axis=(1, 2)))
            if lost.size:
                return int(part[lost[0]])
    return None


def _equality_contradiction(graph: FactorGraph, allowed: npt.NDArray[np.bool_]) -> str | None:
    """Contract hard must-links and find a group without an allowed label."""
    diagonal = graph.edge_kinds != TABLE
    must = np.isinf(graph.edge_weights)
    if graph.cardinalities.min() < 2:
        # Two variables of one label each are always equal.
        must |= (graph.cardinalities[graph.edges] == 1).all(axis=1)
    equal = np.flatnonzero(diagonal & must)
    if equal.size == 0:
        return None
    n = graph.n_variables
    group = connected(n, graph.edges[equal])
    # Only groups that hold a must-link matter, so the table stays small.
    inside = np.unique(group[graph.edges[equal].ravel()])
    row_of_group = np.full(int(group.max()) + 1, -1)
    row_of_group[inside] = np.arange(inside.size)
    row: IntArray = row_of_group[group]
    members = np.flatnonzero(row >= 0)
    fewest = np.full(inside.size, np.iinfo(np.int64).max)
    np.minimum.at(fewest, row[members], graph.cardinalities[members])
    possible = np.arange(int(fewest.max())) < fewest[:, None]

    def forbid(rows: IntArray, labels: IntArray) -> None:
        shared = labels < fewest[rows]
        possible[rows[shared], labels[shared]] = False

    variable = np.repeat(np.arange(n), graph.cardinalities)
    banned = np.flatnonzero(~allowed & (row[variable] >= 0))
    forbid(row[variable[banned]], banned - graph.unary_ptr[variable[banned]])

    first, second = graph.edges[:, 0], graph.edges[:, 1]
    within = diagonal & (row[first] >= 0) & (row[first] == row[second])
    potts = np.flatnonzero(within & (graph.edge_kinds == POTTS))
    potts = potts[np.isinf(graph.pairwise_values[graph.edge_offsets[potts]])]
    possible[row[first[potts]]] = False
    each = np.flatnonzero(within & (graph.edge_kinds == DIAGONAL))
    for label in range(possible.shape[1]):
        having = each[label < graph.cardinalities[graph.edges[each]].min(axis=1)]
        hard = having[np.isinf(graph.pairwise_values[graph.edge_offsets[having] + label])]
        forbid(row[first[hard]], np.full(hard.size, label))
    lost = np.flatnonzero(~possible.any(axis=1))
    if lost.size == 0:
        return None
    found = np.flatnonzero(row == lost[0])
    shown = ", ".join(str(int(v)) for v in found[:5]) + (", ..." if found.size > 5 else "")
    return f"hard constraints make variables {shown} equal and leave them no label"


# ------------------------------------------------------------------ the scale of costs


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
        descend(graph, labels, np.arange(labels.size), _SWEEPS)
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
