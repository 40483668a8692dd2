"""Random graphs for the checks, and the reference `exhaustive`, which enumerates their energies.

The reference shares no code with the solvers or with `FactorGraph.energy`.
"""

from __future__ import annotations

import copy
import functools
import math
from dataclasses import dataclass

import numpy as np

from inference_lab.graph.arrays import FloatArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.random_graphs import random_graph
from inference_lab.graph.terms import DiagonalTerms, Unaries

#: Relative tolerance for numbers that should agree.
TOLERANCE = 1e-8

#: Families from which the checks with several runs take one graph each.
SAMPLED = (
    "potts",
    "diagonal",
    "own-tables",
    "ragged",
    "higher-order",
    "grid",
    "cannot-links",
    "mixed",
    "label-cost-sets",
)

#: Numbers of variables, edges and labels, largest first; the first supported size is used.
LARGE = ((30_000, 60_000, 5), (2_000, 4_000, 3), (24, 60, 2))


@dataclass(frozen=True)
class Exhaustive:
    """All energies of a small graph.

    Attributes
    ----------
    energies : array with one axis for each variable
        ``energies[tuple(x)]`` is the energy of labelling ``x``.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> from inference_lab.conformance import exhaustive
    >>> found = exhaustive(g)
    >>> found.optimum, found.scale
    (0.5, 2.1)
    """

    energies: FloatArray

    @functools.cached_property
    def optimum(self) -> float:
        """The least energy; ``inf`` if no labelling is feasible."""
        return float(self.energies.min())

    @functools.cached_property
    def scale(self) -> float:
        """The largest finite energy by absolute value, at least 1."""
        finite = np.abs(self.energies[np.isfinite(self.energies)])
        return max(1.0, float(finite.max(initial=0.0)))

    def log_partition(self, temperature: float) -> float:
        """Return ``log sum_x exp(-E(x) / T)``; ``-inf`` if no labelling is feasible.

        Parameters
        ----------
        temperature : float

        Returns
        -------
        float

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> round(exhaustive(g).log_partition(1.0), 6)
        0.498153
        """
        if math.isinf(self.optimum):
            return -math.inf
        weights = np.exp(-(self.energies - self.optimum) / temperature)
        return math.log(float(weights.sum())) - self.optimum / temperature

    def marginals(self, temperature: float) -> list[FloatArray]:
        """Return the marginals ``p(x_i = a)`` of ``exp(-E / T)`` of a feasible graph.

        Parameters
        ----------
        temperature : float

        Returns
        -------
        list of 1-D float64 arrays

        Examples
        --------
        >>> import inference_lab as il
        >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
        >>> [row.round(3).tolist() for row in exhaustive(g).marginals(1.0)]
        [[0.702, 0.298], [0.408, 0.592]]
        """
        weights = np.exp(-(self.energies - self.optimum) / temperature)
        weights /= weights.sum()
        axes = range(weights.ndim)
        return [weights.sum(axis=tuple(a for a in axes if a != i)) for i in axes]


def tolerance_of(graph: FactorGraph, energy: float) -> float:
    """Return the tolerance for comparisons with an energy of the graph."""
    if math.isinf(energy):
        return 0.0
    rounding = 2 * graph.resolution_at(energy)
    return TOLERANCE * max(min(1.0, graph.magnitude), abs(energy)) + rounding


#: What `with_offset` adds to a graph.
OFFSETS = (
    "2^30 added to all unaries",
    "-2^33 added to the unaries of a variable",
    "a cycle of penalties of 1e9, one of which must be paid",
)
#: Rounding errors of energies, `FactorGraph.resolution_at`, by which a result at an offset may
#: differ from the exact one: of the reference, and of the solver's own arithmetic.
ROUNDING_ERRORS = 10.0


def with_offset(graph: FactorGraph, offset: str) -> FactorGraph | None:
    """Return a graph with an offset that every labelling pays; None if it has no room for one."""
    values = graph.unary_values.copy()
    last = graph.unary_ptr[-2] if graph.n_variables else 0
    if offset == OFFSETS[0]:
        return graph.with_unary(values + 2.0**30)
    if offset == OFFSETS[1]:
        values[last:] -= 2.0**33
        return graph.with_unary(values)
    if graph.n_variables < 3:
        return None
    differ = DiagonalTerms([(0, 1), (1, 2)], same=0.0, differ=1e9)
    cycle = [differ, DiagonalTerms([(0, 2)], same=1e9, differ=0.0)]
    factors = [graph.higher_order(f) for f in range(graph.n_factors)]
    unaries = Unaries(graph.cardinalities, graph.unary_ptr, values)
    plain = FactorGraph.from_terms(unaries, [graph.edge_block, *cycle], factors, graph.constant)
    return plain.with_label_costs(sets=graph.label_costs.sets())


def exhaustive(graph: FactorGraph) -> Exhaustive:
    """Enumerate all labellings of a small graph, independently of the evaluator and the solvers.

    Parameters
    ----------
    graph : FactorGraph

    Returns
    -------
    Exhaustive

    Raises
    ------
    ValueError
        If there are more than a million labellings.

    Examples
    --------
    >>> import inference_lab as il
    >>> from inference_lab.conformance import exhaustive
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> exhaustive(g).energies
    array([[0.6, 0.5],
           [2.1, 1. ]])
    """
    shape = tuple(int(k) for k in graph.cardinalities)
    if graph.log2_states > math.log2(1e6):
        raise ValueError(f"2^{graph.log2_states:.0f} labellings are too many to enumerate")
    energies = np.full(shape, graph.constant)
    for scope, table in graph.factors():
        order = np.argsort(scope)
        sizes = [shape[v] if v in scope else 1 for v in range(len(shape))]
        energies = energies + np.transpose(table, order).reshape(sizes)
    labellings = np.indices(shape)
    for labels, cost in graph.label_costs.sets():
        energies = energies + cost * np.isin(labellings, labels).any(axis=0)
    return Exhaustive(energies)


@functools.lru_cache(maxsize=2048)
def pristine(family: str, seed: int) -> FactorGraph:
    """Draw a graph that is never passed to a solver."""
    return random_graph(family, seed)


def fresh(family: str, seed: int) -> FactorGraph:
    """Return a new copy of the graph of `pristine`, because a run may modify its graph."""
    return copy.deepcopy(pristine(family, seed))


@functools.lru_cache(maxsize=2048)
def reference(family: str, seed: int) -> Exhaustive:
    """Return all energies of the graph of `pristine`."""
    return exhaustive(pristine(family, seed))


def size_of(family: str, seed: int) -> tuple[float, int]:
    """Return the sort key of graphs, by which the smallest failing one is reported."""
    graph = pristine(family, seed)
    return graph.log2_states, graph.n_edges + graph.n_factors


def large_graph(n: int, m: int, k: int) -> FactorGraph:
    """Return a new copy of a random graph with Potts terms of mixed sign, as `fresh` does."""
    return copy.deepcopy(_drawn_large(n, m, k))


@functools.lru_cache(maxsize=4)
def _drawn_large(n: int, m: int, k: int) -> FactorGraph:
    rng = np.random.default_rng(0)
    first = rng.integers(0, n, size=m)
    second = (first + rng.integers(1, n, size=m)) % n
    return FactorGraph.from_terms(
        rng.normal(size=(n, k)),
        [DiagonalTerms(np.stack([first, second], axis=1), 0.0, rng.normal(size=m))],
    )
