"""The quadratic form of a Potts-like energy, the input of the semidefinite relaxation.

A pairwise energy of finite costs is split into *parts* that share no variable. Within a part it
reads

``E(x) = constant + sum_i u_i(x_i) + sum_ij c_ij [x_i = x_j]``

over labels ``0 .. k-1``, with ``c_ij`` of either sign. Any table over two labels has this form,
``f(x_i) + g(x_j) + c [x_i = x_j]``; with more labels, a term must be a cost for equal labels plus
unary costs. Variables with one label and, from the outside in, variables with one neighbour are
eliminated, which solves trees.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from inference_lab.algorithms.cuts.reduction import fold
from inference_lab.algorithms.semidefinite.edge_forms import (
    classify,
    eliminate,
    fold_potts,
    follow,
    is_potts,
)
from inference_lab.graph.arrays import TABLE, FloatArray, IntArray, connected
from inference_lab.graph.factor_graph import FactorGraph

#: Costs with this many binary places after the point at most are searched for a common quantum.
_BINARY_PLACES = 20
_EPSILON = float(np.finfo(np.float64).eps)


class PottsPart(NamedTuple):
    """A piece of the energy over ``n`` variables with ``k`` labels each."""

    #: (n,): its variables; the nodes of the relaxation.
    variables: IntArray
    #: (n, k): costs of labels.
    unary: FloatArray
    #: ``pairs`` (m, 2) with ``coupling`` (m,): cost of equal labels, each pair once.
    pairs: IntArray
    coupling: FloatArray
    constant: float
    #: All energies of the part are ``constant + unary[:, 0].sum() + coupling.sum()`` plus multiples
    #: of it; 0 if no such number is known.
    quantum: float

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return int(self.unary.shape[0])

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return int(self.unary.shape[1])

    @property
    def separable(self) -> bool:
        """Whether nothing couples the nodes."""
        return self.pairs.size == 0

    @property
    def has_terminals(self) -> bool:
        """Whether labels are distinguishable, so that the relaxation needs a vector for each."""
        return bool((self.unary != self.unary[:, :1]).any())

    @property
    def order(self) -> int:
        """Order of the matrix of the relaxation."""
        terminals = 1 if self.n_labels == 2 else self.n_labels
        return self.n_nodes + (terminals if self.has_terminals else 0)


@dataclass(frozen=True)
class PottsEnergy:
    """An energy split into parts, and the map back to labellings."""

    graph: FactorGraph
    parts: list[PottsPart]
    #: Energy of the eliminated terms, and constants of edges without coupling.
    constant: float
    #: Bound on the rounding error of parts plus constant.
    slack: float
    #: Eliminated variables in order, with the edge to the only neighbour at that time (-1: none).
    leaves: IntArray
    #: Costs of the labels of the eliminated variables at that time.
    unary: FloatArray

    def expand(self, labels: list[IntArray]) -> IntArray:
        """Return the labelling of the graph for labels of the nodes of each part."""
        x = np.zeros(self.graph.n_variables, dtype=np.int64)
        for part, node_labels in zip(self.parts, labels, strict=True):
            x[part.variables] = node_labels
        follow(self.graph.arrays, self.unary, self.leaves, x)
        return x

    def nodes_of(self, x: IntArray) -> list[IntArray]:
        """Return labels of the nodes of each part for a labelling of the graph."""
        return [x[part.variables] for part in self.parts]


def _binary_places(graph: FactorGraph) -> int | None:
    """Return the maximum number of binary places of all costs, if sums of them are exact."""
    # Weights of tables count twice, as they are multiplied. None if the costs have too many places.
    values = np.concatenate(
        [graph.unary_values, graph.pairwise_values, graph.edge_weights, [graph.constant]]
    )
    values = np.unique(np.abs(values))
    weighted = bool((graph.edge_weights[graph.edge_kinds == TABLE] != 1.0).any())
    for places in range(_BINARY_PLACES + 1):
        scaled = values * 2.0**places
        if scaled.max() >= 2.0**52:
            return None
        if (scaled == np.floor(scaled)).all():
            # Two more places, because intermediate results contain quarters.
            needed = (2 * places if weighted else places) + 2
            return needed if graph.magnitude * 2.0**needed < 2.0**52 else None
    return None


def _quantum(unary: FloatArray, pairs: IntArray, coupling: FloatArray, places: int) -> float:
    """Return the greatest number of which all differences of energies are multiples."""
    # The energy is a polynomial in indicators of the labels other than 0. Its coefficients are
    # ``u_i(a) - u_i(0) - sum_j c_ij``, and for pairs ``2 c_ij`` if the labels are equal, else
    # ``c_ij``, which occurs with more than two labels only.
    n = unary.shape[0]
    at_zero = np.bincount(pairs.ravel(), weights=np.repeat(coupling, 2), minlength=n)
    single = (unary - unary[:, :1] - at_zero[:, None])[:, 1:]
    double = coupling * (2.0 if unary.shape[1] == 2 else 1.0)
    whole = np.unique(np.abs(np.concatenate([single.ravel(), double])) * 2.0**places)
    return math.gcd(*(int(v) for v in whole)) / 2.0**places


def build_model(graph: FactorGraph) -> PottsEnergy | str:
    """Split an energy into parts; return a reason if it has no such form."""
    # Every labelling has the energy of its nodes in the parts plus the constant, up to
    # `PottsEnergy.slack`, with eliminated variables at their best. The slack is the sum over all
    # costs of the rounding error of the largest intermediate sum. It is 0 if costs have few enough
    # binary places that no sum is rounded.
    if graph.n_factors:
        return "the relaxation covers terms of one and two variables, not of three or more"
    if graph.has_infinite:
        return "the relaxation covers finite costs only; try persistency(then=semidefinite)"
    n = graph.n_variables
    sizes = graph.cardinalities
    edges = graph.edges
    if n == 0:
        none = np.empty((0, 2), dtype=np.int64)
        return PottsEnergy(graph, [], graph.constant, 0.0, none, np.empty(0))
    single = np.where(sizes == 1, 0, -1)
    unary = graph.unary_values.copy()
    constant = fold(graph.arrays, single, unary)
    leaves = np.empty((n, 2), dtype=np.int64)
    stripped, count = eliminate(graph.arrays, unary, single, leaves)
    eliminated = unary.copy()
    remains = single == -1
    inside = remains[edges].all(axis=1)
    fit = classify(graph, inside)
    wrong = np.flatnonzero(inside & ~fit.fits)
    if wrong.size:
        i, j = (int(v) for v in edges[wrong[0]])
        return (
            f"the term of variables {i} and {j} is not a cost for equal labels beside costs of the "
            "single labels; with more than two labels, only such (Potts-like) terms are covered"
        )
    constants = fold_potts(graph, inside, fit, unary)
    # Tables are divided by their numbers of labels.
    rounds = inside & ~is_potts(graph) & (sizes[edges] != 2).any(axis=1)
    places = None if rounds.any() else _binary_places(graph)
    slack = math.fsum(fit.residue[inside])
    if places is None:
        slack += 4.0 * (n + graph.n_edges + 16) * _EPSILON * graph.magnitude
    coupled = np.flatnonzero(fit.coupling)
    component = connected(n, edges[coupled])
    of_edge = component[edges[coupled, 0]]
    coupled = coupled[np.argsort(of_edge, kind="stable")]
    of_edge.sort()
    members = np.flatnonzero(remains)
    members = members[np.argsort(component[members], kind="stable")]
    starts = np.flatnonzero(np.diff(component[members], prepend=-1))
    number = np.zeros(n, dtype=np.int64)
    parts = []
    for variables in np.split(members, starts[1:]) if members.size else []:
        c = component[variables[0]]
        part_edges = coupled[
            np.searchsorted(of_edge, c) : np.searchsorted(of_edge, c, side="right")
        ]
        number[variables] = np.arange(variables.size)
        costs = unary[graph.unary_ptr[variables][:, None] + np.arange(sizes[variables[0]])]
        pairs, coupling = number[edges[part_edges]], fit.coupling[part_edges]
        quantum = 0.0 if places is None else _quantum(costs, pairs, coupling, places)
        own_constant = math.fsum(constants[part_edges])
        parts.append(PottsPart(variables, costs, pairs, coupling, own_constant, quantum))
    constants[coupled] = 0.0
    total = math.fsum([graph.constant, constant, stripped, *constants])
    return PottsEnergy(graph, parts, total, slack, leaves[:count].copy(), eliminated)
