"""Graph features that predict difficulty, measured in time linear in the size of the graph."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from inference_lab.graph.arrays import POTTS, TABLE, FloatArray, IntArray, connected
from inference_lab.graph.factor_graph import FactorGraph

#: Largest number of variables, and of pairs and factors, of a graph whose relaxation is solved
#: whole; for larger graphs, a sample is solved.
SAMPLE = 300
_PAIRS = 2_000


#: Lower limits of the classes by `Measures.frustration`, except the first class.
BREAKS = (0.0, 0.04, 0.5)


def class_of(frustration: float) -> int:
    """Return the number of the class that has this frustration."""
    return sum(frustration > threshold for threshold in BREAKS)


@dataclass(frozen=True)
class Measures:
    """Sizes of a graph, and features that predict its difficulty.

    Attributes
    ----------
    variables, pairs, factors : int
    labels : int
        The largest number of labels of a variable.
    mean_degree, max_degree : float, int
        Numbers of distinct neighbours.
    largest_component : float
        Share of the variables in the largest connected component.
    core : float
        Share of the variables in the 3-core, which is left when variables with less than three
        neighbours are removed repeatedly: elimination ends there.
    repulsive : float
        Share of the pairs that prefer different labels.
    frustrated : float
        Repulsive pairs per variable whose ends are connected by attractive pairs. Each closes a
        cycle in which no labelling satisfies all pairs, for any number of labels. With two labels,
        pairs per variable that a labelling along a spanning tree violates.
    weight_ratio : float
        Median size of the couplings over the median range of the costs of a variable.
    """

    variables: int
    pairs: int
    factors: int
    labels: int
    mean_degree: float
    max_degree: int
    largest_component: float
    core: float
    repulsive: float
    frustrated: float
    weight_ratio: float

    @property
    def frustration(self) -> float:
        """`frustrated` times `weight_ratio`: frustration relative to the costs of a variable.

        0 without frustrated pairs, for any weights; infinite if the variables have no unary costs.
        """
        if not self.frustrated:
            return 0.0
        return self.frustrated * (math.inf if math.isnan(self.weight_ratio) else self.weight_ratio)


def known_facts(info: Mapping[str, Any], measures: Measures) -> dict[str, float]:
    """Return the known facts of a graph's constraints: their number, noise and relative weight."""
    if not {"must_links", "cannot_links"} <= info.keys() or not measures.variables:
        return {}
    count = (info["must_links"] + info["cannot_links"]) / measures.variables
    facts = {"constraints_per_point": float(count)}
    if isinstance(noise := info.get("noise"), int | float):
        facts |= {"noise": float(noise), "constraints_noise": float(count * noise)}
    if isinstance(ratio := info.get("weight_over_calibrated"), int | float):
        facts["weight_over_calibrated"] = float(ratio)
    return facts


def couplings(graph: FactorGraph) -> FloatArray:
    """Return the coupling of each pair: mean cost of unequal labels minus that of equal labels."""
    g = graph.arrays
    strength = np.zeros(graph.n_edges)
    sizes = g.cardinalities[g.edges.astype(np.int64)]
    same_size = sizes[:, 0] == sizes[:, 1]
    with np.errstate(invalid="ignore", over="ignore"):
        for k in np.unique(sizes[same_size, 0]):
            if k < 2:
                continue
            mine = same_size & (sizes[:, 0] == k)
            diagonal = np.flatnonzero(mine & (g.kinds != TABLE))
            steps = np.where(g.kinds[diagonal] == POTTS, 0, 1)[:, None] * np.arange(k)
            equal = g.pairwise[g.offsets[diagonal][:, None] + steps].mean(axis=1)
            strength[diagonal] = g.weights[diagonal] - equal
            dense = np.flatnonzero(mine & (g.kinds == TABLE))
            # Distinct tables only, because pairs may share tables.
            offsets, which = np.unique(g.offsets[dense], return_inverse=True)
            tables = g.pairwise[offsets[:, None] + np.arange(k * k)].reshape(-1, k, k)
            on = np.trace(tables, axis1=1, axis2=2)
            off = (tables.sum(axis=(1, 2)) - on) / (k * k - k)
            if (~np.isfinite(off)).any():
                beside = ~np.eye(k, dtype=bool)
                off = tables[:, beside].mean(axis=1)
            strength[dense] = g.weights[dense] * (off - on / k)[which]
    return np.nan_to_num(strength, nan=0.0, posinf=np.inf, neginf=-np.inf)


def _neighbours(graph: FactorGraph) -> IntArray:
    """Return the distinct pairs of variables that share a term, shape (pairs, 2)."""
    parts = [np.asarray(graph.edges, dtype=np.int64)]
    scopes = np.asarray(graph.factor_scopes, dtype=np.int64)
    arity = np.diff(graph.factor_ptr)
    for size in np.unique(arity):
        rows = scopes[graph.factor_ptr[:-1][arity == size][:, None] + np.arange(size)]
        parts += [rows[:, list(pair)] for pair in combinations(range(size), 2)]
    pairs = np.sort(np.concatenate(parts), axis=1)
    n = max(1, graph.n_variables)
    # Pairs are encoded as one number, because that is sorted much faster than two.
    keys = np.unique(pairs[:, 0] * n + pairs[:, 1])
    return np.stack([keys // n, keys % n], axis=1)


def _core(pairs: IntArray, n: int, min_degree: int = 3) -> int:
    """Return the number of variables in the core of minimum degree `min_degree`."""
    there = np.ones(n, dtype=bool)
    while True:
        degrees = np.bincount(pairs.ravel(), minlength=n)
        gone = there & (degrees < min_degree)
        if not gone.any():
            return int(there.sum())
        there &= ~gone
        pairs = pairs[there[pairs].all(axis=1)]


def _frustrated(edges: IntArray, strength: FloatArray, n: int, two: bool) -> float:
    """Return the number of frustrated pairs per variable, see `Measures.frustrated`."""
    repulsive = strength < 0
    if not repulsive.any():
        return 0.0
    if not two:
        part = connected(n, edges[strength > 0])
        return float((part[edges[repulsive, 0]] == part[edges[repulsive, 1]]).sum() / n)
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import breadth_first_order

    signed = edges[strength != 0]
    sign = np.sign(strength[strength != 0])
    # A further variable connects the components, so that one search gives a spanning tree.
    _, roots = np.unique(connected(n, signed), return_index=True)
    ends = np.concatenate([signed, np.stack([np.full(len(roots), n), roots], axis=1)])
    links = coo_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(n + 1, n + 1))
    before = breadth_first_order(links.tocsr(), n, directed=False)[1].astype(np.int64)
    before[n] = n
    along = np.ones(n + 1)
    for this, other in ((0, 1), (1, 0)):
        tree = before[signed[:, this]] == signed[:, other]
        along[signed[tree, this]] = sign[tree]
    # Products of signs along the paths to the root, by pointer doubling.
    while (before != n).any():
        along = along * along[before]
        before = before[before]
    agree = along[signed[:, 0]] * along[signed[:, 1]]
    return float((agree != sign).sum() / n)


def measure(graph: FactorGraph) -> Measures:
    """Measure a graph, in time linear in its size, except for the sorting of its pairs.

    The 3-core is found in rounds; only graphs constructed for it need many.
    """
    n = graph.n_variables
    edges = np.asarray(graph.edges, dtype=np.int64)
    strength = couplings(graph)
    labels = int(graph.cardinalities.max(initial=0))
    two = labels == 2
    pairs = _neighbours(graph)
    degrees = np.bincount(pairs.ravel(), minlength=n)
    components = np.bincount(graph.components)
    return Measures(
        variables=n,
        pairs=graph.n_edges,
        factors=graph.n_factors,
        labels=labels,
        mean_degree=float(degrees.mean()) if n else 0.0,
        max_degree=int(degrees.max(initial=0)),
        largest_component=float(components.max() / n) if n else 0.0,
        core=_core(pairs, n) / n if n else 0.0,
        repulsive=float((strength < 0).mean()) if len(strength) else 0.0,
        frustrated=_frustrated(edges, strength, n, two),
        weight_ratio=_weight_ratio(graph, strength),
    )


def _weight_ratio(graph: FactorGraph, strength: FloatArray) -> float:
    """Return the median coupling over the median range of unary costs; NaN without either."""
    several = graph.cardinalities > 1
    starts = graph.unary_ptr[:-1][several]
    if not len(starts) or not len(strength):
        return math.nan
    # Unary costs are contiguous, so the starts alone delimit the variables.
    values = np.asarray(graph.unary_values, dtype=np.float64)
    finite = np.where(np.isfinite(values), values, np.nan)
    low = np.fmin.reduceat(finite, graph.unary_ptr[:-1])[several]
    high = np.fmax.reduceat(finite, graph.unary_ptr[:-1])[several]
    spread = float(np.nanmedian(high - low)) if np.isfinite(high - low).any() else math.nan
    coupling = float(np.median(np.abs(strength)))
    return coupling / spread if spread > 0 else math.inf if coupling > 0 else math.nan


def sample(graph: FactorGraph, size: int = SAMPLE, seed: int = 0) -> tuple[FactorGraph, bool]:
    """Return a small graph or a part around a variable, and whether that is the whole graph."""
    if graph.n_variables <= size and graph.n_edges + graph.n_factors <= _PAIRS:
        return graph, True
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import breadth_first_order

    n = graph.n_variables
    pairs = _neighbours(graph)
    ends = graph.edges.ravel() if graph.n_edges else graph.factor_scopes
    centre = int(np.random.default_rng(seed).choice(ends)) if len(ends) else 0
    links = coo_array((np.ones(len(pairs)), pairs.T), shape=(n, n)).tocsr()
    variables = breadth_first_order(links, centre, directed=False, return_predecessors=False)
    degrees = np.bincount(pairs.ravel(), minlength=n)
    limit = int(np.searchsorted(np.cumsum(degrees[variables]), 2 * _PAIRS)) + 1
    variables = variables[: min(size, limit)].astype(np.int64)
    place = np.full(n, -1)
    place[variables] = np.arange(variables.size)
    terms: list[tuple[Sequence[int], npt.ArrayLike]] = [
        ((at,), graph.unary_of(i)) for at, i in enumerate(variables.tolist())
    ]
    inside = place[np.asarray(graph.edges, dtype=np.int64)]
    for e in np.flatnonzero((inside >= 0).all(axis=1)).tolist():
        terms.append((inside[e].tolist(), graph.edge_table(e)))
    in_part = place[np.asarray(graph.factor_scopes, dtype=np.int64)] >= 0
    whole = np.logical_and.reduceat(in_part, graph.factor_ptr[:-1]) if graph.n_factors else in_part
    for f in np.flatnonzero(whole).tolist():
        scope, table = graph.higher_order(f)
        terms.append((place[list(scope)].tolist(), table))
    return FactorGraph.from_factors(graph.cardinalities[variables].tolist(), terms), False
