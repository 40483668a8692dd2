"""The quadratic form of a Potts-like energy, the input of the semidefinite relaxation.

A pairwise energy is split into *parts* that share no variable. Within a part it reads

``E(x) = constant + sum_i u_i(x_i) + sum_ij c_ij [x_i = x_j]``

over labels ``0 .. k-1``, with ``c_ij`` of either sign. Two sorts of energies have this form:

* *binary*: all variables of the part have two labels left. Any table over two labels is
  ``f(x_i) + g(x_j) + c [x_i = x_j]``, and the labels of each variable get the numbers 0 and 1;
* *Potts-like*: a term is a cost for equal labels plus unary costs.

Hard constraints are kept exactly. Labels without support are ruled out (arc consistency), and
variables that must agree (or, if binary, disagree) become one node. Nodes that must differ and
pairs of bits that exclude each other are listed. Variables with one label left and, from the
outside in, variables with one neighbour are eliminated, which solves trees.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from inference_lab.algorithms.cuts.reduction import fold
from inference_lab.algorithms.elimination.arc_consistency import allowed_labels
from inference_lab.algorithms.semidefinite.edge_forms import (
    ADDITIVE,
    APART,
    EQUAL,
    MATCHED,
    SOFT,
    classify,
    eliminate,
    fold_potts,
    follow,
    read_pairs,
)
from inference_lab.graph.arrays import POTTS, TABLE, FloatArray, IntArray, connected
from inference_lab.graph.factor_graph import FactorGraph

#: Costs with this many binary places after the point at most are searched for a common quantum.
_BINARY_PLACES = 20
_EPSILON = float(np.finfo(np.float64).eps)


class PottsPart(NamedTuple):
    """A piece of the energy over ``n`` nodes and ``k`` labels, on variables of its own."""

    #: (v,): its variables.
    variables: IntArray
    #: (v,): the node of each variable.
    node: IntArray
    #: (v, k): the label of the variable for each label of its node, -1 if there is none.
    labels: IntArray
    #: ``unary`` (n, k) costs, finite also for labels that are ``forbidden`` (n, k).
    unary: FloatArray
    forbidden: npt.NDArray[np.bool_]
    #: ``pairs`` (m, 2) with ``coupling`` (m,): cost of equal labels, each pair once.
    pairs: IntArray
    coupling: FloatArray
    #: (p, 2): pairs whose labels must differ (k > 2).
    apart: IntArray
    #: (q, 4): ``i, a, j, b`` such that labels ``a`` and ``b`` exclude each other (k = 2).
    excluded: IntArray
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
        return self.pairs.size == self.apart.size == self.excluded.size == 0

    @property
    def has_terminals(self) -> bool:
        """Whether labels are distinguishable, so that the relaxation needs a vector for each."""
        return bool(
            (self.unary != self.unary[:, :1]).any() or self.forbidden.any() or self.excluded.size
        )

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
    #: Energy of the eliminated terms.
    constant: float
    #: Bound on the rounding error of parts plus constant.
    slack: float
    #: The label of each variable with a single remaining label, -1 for the others.
    single: IntArray
    #: Eliminated variables in order, with the edge to the only neighbour at that time (-1: none).
    leaves: IntArray
    #: Costs of the labels of the eliminated variables at that time; ``+inf`` if ruled out.
    unary: FloatArray

    def expand(self, labels: list[IntArray]) -> IntArray:
        """Return the labelling of the graph for labels of the nodes of each part."""
        # A label that a variable does not have becomes its cheapest one.
        x = self.single.copy()
        for part, chosen in zip(self.parts, labels, strict=True):
            x[part.variables] = part.labels[np.arange(part.variables.size), chosen[part.node]]
        follow(self.graph.arrays, self.unary, self.leaves, x)
        return x

    def nodes_of(self, x: IntArray) -> list[IntArray]:
        """Return labels of the nodes of each part for a labelling of the graph."""
        # A node gets label 0 if its variables have labels that were ruled out.
        chosen = []
        for part in self.parts:
            labels = np.zeros(part.n_nodes, dtype=np.int64)
            labels[part.node] = (part.labels == x[part.variables][:, None]).argmax(axis=1)
            chosen.append(labels)
        return chosen


def _binary_places(graph: FactorGraph) -> int | None:
    """Return the maximum number of binary places of all costs, if sums of them are exact."""
    # Weights of tables count twice, as they are multiplied. None if the costs have too many places.
    values = np.concatenate(
        [graph.unary_values, graph.pairwise_values, graph.edge_weights, [graph.constant]]
    )
    values = np.unique(np.abs(values[np.isfinite(values)]))
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


def _merge(pairs: IntArray, coupling: FloatArray, n: int) -> tuple[IntArray, FloatArray, float]:
    """Add up couplings on the same pair; couplings of a node with itself become a constant."""
    loops = pairs[:, 0] == pairs[:, 1]
    constant = math.fsum(coupling[loops])
    low, high = pairs[~loops].min(axis=1), pairs[~loops].max(axis=1)
    keys, place = np.unique(low * n + high, return_inverse=True)
    summed = np.zeros(keys.size)
    np.add.at(summed, place, coupling[~loops])
    kept = summed != 0.0
    keys = keys[kept]
    return np.stack([keys // n, keys % n], axis=1), summed[kept], constant


class _Builder:
    """The graph after elimination, from which the parts are made."""

    def __init__(
        self,
        graph: FactorGraph,
        alive: npt.NDArray[np.bool_],
        unary: FloatArray,
        single: IntArray,
    ) -> None:
        self.graph = graph
        self.alive = alive
        self.unary = unary
        self.single = single
        n, m = graph.n_variables, graph.n_edges
        self.fit = classify(graph, alive, single == -1)
        edges = graph.edges
        inside = np.ones(m, dtype=np.bool_)
        if m:
            inside = (single[edges] == -1).all(axis=1)
        self.inside = np.flatnonzero(inside)
        self.coupled = np.flatnonzero(inside & (self.fit.kinds & ADDITIVE == 0))
        self.component = connected(n, edges[self.coupled])
        counts = np.add.reduceat(alive.astype(np.int64), graph.unary_ptr[:-1])
        widest = np.zeros(int(self.component.max(initial=-1)) + 1, dtype=np.int64)
        remaining = single == -1
        np.maximum.at(widest, self.component[remaining], counts[remaining])
        #: Whether each variable is in a component whose variables all have two labels.
        self.binary = (widest == 2)[self.component]

    def rounds(self) -> bool:
        """Whether tables are divided by numbers other than powers of two."""
        ends = self.graph.edges[self.inside]
        halves = self.binary[ends[:, 0]] & (
            self.component[ends[:, 0]] == self.component[ends[:, 1]]
        )
        soft = self.fit.kinds[self.inside] & SOFT > 0
        return bool((soft & ~halves & (self.graph.edge_kinds[self.inside] != POTTS)).any())

    def unsupported_reason(self) -> str | None:
        """Return a message naming the first edge that does not fit the form, or None."""
        e = self.coupled[~self.binary[self.graph.edges[self.coupled, 0]]]
        wrong = e[(self.fit.kinds[e] & (SOFT | EQUAL | APART)) == 0]
        if wrong.size == 0:
            return None
        i, j = (int(v) for v in self.graph.edges[wrong[0]])
        return (
            f"the term of variables {i} and {j} is not a cost for equal labels beside costs of the "
            "single labels; with more than two labels, only such (Potts-like) terms are covered"
        )

    def parts(self, places: int | None) -> tuple[list[PottsPart], float] | None:
        """Make the parts and the remaining constant; None if infeasible."""
        graph, n = self.graph, self.graph.n_variables
        joined = self.inside[
            np.where(
                self.binary[graph.edges[self.inside, 0]],
                self.fit.kinds[self.inside] & MATCHED,
                self.fit.kinds[self.inside] & EQUAL,
            )
            > 0
        ]
        bits = np.zeros((n, 2), dtype=np.int64)
        variable = np.repeat(np.arange(n), graph.cardinalities)
        slots = np.flatnonzero(self.alive & (self.single == -1)[variable])
        slots = slots[self.binary[variable[slots]]]
        # Two labels a variable, in order.
        bits[variable[slots[::2]], 0] = slots[::2] - graph.unary_ptr[variable[slots[::2]]]
        bits[variable[slots[1::2]], 1] = slots[1::2] - graph.unary_ptr[variable[slots[1::2]]]
        of_bits = self.binary[graph.edges[joined, 0]]
        odd = np.zeros(joined.size, dtype=np.bool_)
        odd[of_bits] = np.isinf(read_pairs(graph, joined[of_bits], bits)[:, 0, 0])
        united = _unite(n, graph.edges[joined], odd)
        if united is None:
            return None
        root, turned = united
        bits[turned] = bits[turned][:, ::-1]
        parts = []
        remaining = self.single == -1
        members = np.flatnonzero(remaining)
        by_component = members[np.argsort(self.component[members], kind="stable")]
        starts = np.flatnonzero(np.diff(self.component[by_component], prepend=-1))
        edges = self.inside[np.argsort(self.component[graph.edges[self.inside, 0]], kind="stable")]
        # An additive edge may join two components; it belongs to neither.
        crossing = self.component[graph.edges[edges, 0]] != self.component[graph.edges[edges, 1]]
        folded = np.zeros(graph.n_edges, dtype=np.bool_)
        folded[edges] = crossing | ~self.binary[graph.edges[edges, 0]]
        self.constants = fold_potts(graph, folded, self.fit, self.alive, self.unary)
        loose, edges = edges[crossing], edges[~crossing]
        of_edge = self.component[graph.edges[edges, 0]]
        for variables in np.split(by_component, starts[1:]) if by_component.size else []:
            c = self.component[variables[0]]
            own = edges[np.searchsorted(of_edge, c) : np.searchsorted(of_edge, c, side="right")]
            make = self._binary_part if self.binary[variables[0]] else self._potts_part
            part = make(variables, own, root, bits, places)
            if part is None:
                return None
            parts.append(part)
        return parts, math.fsum(self.constants[loose])

    def _potts_part(
        self,
        variables: IntArray,
        edges: IntArray,
        root: IntArray,
        bits: IntArray,
        places: int | None,
    ) -> PottsPart | None:
        graph = self.graph
        constant = math.fsum(self.constants[edges])
        tops, node = np.unique(root[variables], return_inverse=True)
        n = tops.size
        number = np.full(graph.n_variables, -1, dtype=np.int64)
        number[variables] = node
        sizes = graph.cardinalities[variables]
        slots = np.repeat(graph.unary_ptr[variables] - np.cumsum(sizes) + sizes, sizes)
        slots = slots + np.arange(slots.size)
        label = slots - np.repeat(graph.unary_ptr[variables], sizes)
        kept = self.alive[slots]
        values, at = np.unique(label[kept], return_inverse=True)
        k = values.size
        member = np.repeat(np.arange(variables.size), sizes)[kept]
        labels = np.full((variables.size, k), -1, dtype=np.int64)
        labels[member, at] = label[kept]
        unary = np.zeros((n, k))
        np.add.at(unary, (node[member], at), self.unary[slots[kept]])
        forbidden = np.zeros((n, k), dtype=np.bool_)
        missing = np.argwhere(labels < 0)
        forbidden[node[missing[:, 0]], missing[:, 1]] = True
        soft = edges[self.fit.kinds[edges] & (EQUAL | APART) == 0]
        pairs, coupling, loops = _merge(number[graph.edges[soft]], self.fit.coupling[soft], n)
        apart = number[graph.edges[edges[self.fit.kinds[edges] & APART > 0]]]
        if (apart[:, 0] == apart[:, 1]).any() or forbidden.all(axis=1).any():
            return None
        return _finish(
            variables, node, labels, unary, forbidden, pairs, coupling,
            np.unique(np.sort(apart, axis=1), axis=0), np.empty((0, 4), dtype=np.int64),
            constant + loops, places,
        )  # fmt: skip

    def _binary_part(
        self,
        variables: IntArray,
        edges: IntArray,
        root: IntArray,
        bits: IntArray,
        places: int | None,
    ) -> PottsPart | None:
        graph = self.graph
        tops, node = np.unique(root[variables], return_inverse=True)
        n = tops.size
        number = np.full(graph.n_variables, -1, dtype=np.int64)
        number[variables] = node
        tables = read_pairs(graph, edges, bits)
        ends = number[graph.edges[edges]]
        unary = np.zeros((n, 2))
        for p in range(2):
            np.add.at(
                unary[:, p], node, self.unary[graph.unary_ptr[variables] + bits[variables, p]]
            )
        forbidden = np.zeros((n, 2), dtype=np.bool_)
        banned = np.argwhere(np.isinf(tables))
        at = ends[banned[:, 0]]
        # Within one node, only equal bits can come together.
        loops = (at[:, 0] == at[:, 1]) & (banned[:, 1] == banned[:, 2])
        forbidden[at[loops, 0], banned[loops, 1]] = True
        proper = at[:, 0] != at[:, 1]
        excluded = np.stack([at[:, 0], banned[:, 1], at[:, 1], banned[:, 2]], axis=1)[proper]
        if forbidden.all(axis=1).any():
            return None
        # A forbidden entry may have any cost, because it never occurs. One forbidden entry gets the
        # cost that leaves no coupling. With two, the ends are one node, and the entries are copied.
        for p in range(2):
            for q in range(2):
                out = np.isinf(tables[:, p, q])
                lone = out & (np.isinf(tables).sum(axis=(1, 2)) == 1)
                tables[lone, p, q] = (
                    tables[lone, p, 1 - q] + tables[lone, 1 - p, q] - tables[lone, 1 - p, 1 - q]
                )
        for p in range(2):
            for q in range(2):
                out = np.isinf(tables[:, p, q])
                tables[out, p, q] = tables[out, p, 1 - q]
        rows, columns = tables.sum(axis=2), tables.sum(axis=1)
        mean = tables.sum(axis=(1, 2)) / 4.0
        coupling = (tables[:, 0, 0] + tables[:, 1, 1] - tables[:, 0, 1] - tables[:, 1, 0]) / 2.0
        for p in range(2):
            np.add.at(unary[:, p], ends[:, 0], rows[:, p] / 2.0 - mean)
            np.add.at(unary[:, p], ends[:, 1], columns[:, p] / 2.0 - mean)
        constant = math.fsum(mean - coupling / 2.0)
        pairs, summed, folded = _merge(ends, coupling, n)
        return _finish(
            variables, node, bits[variables], unary, forbidden, pairs, summed,
            np.empty((0, 2), dtype=np.int64), excluded, constant + folded, places,
        )  # fmt: skip


def _finish(
    variables: IntArray,
    node: IntArray,
    labels: IntArray,
    unary: FloatArray,
    forbidden: npt.NDArray[np.bool_],
    pairs: IntArray,
    coupling: FloatArray,
    apart: IntArray,
    excluded: IntArray,
    constant: float,
    places: int | None,
) -> PottsPart:
    """Give forbidden labels a finite cost, find the quantum, and make the part."""
    highest = np.where(forbidden, -np.inf, unary).max(axis=1, keepdims=True)
    unary = np.where(forbidden, highest, unary)
    quantum = 0.0 if places is None else _quantum(unary, pairs, coupling, places)
    return PottsPart(
        variables, node, labels, unary, forbidden, pairs, coupling, apart, excluded, constant,
        quantum,
    )  # fmt: skip


def build_model(
    graph: FactorGraph, alive: npt.NDArray[np.bool_] | None = None
) -> PottsEnergy | str | None:
    """Split an energy into parts; None if infeasible, a reason if it has no such form."""
    # Every labelling by the remaining labels has the energy of its nodes in the parts plus the
    # constant, up to `PottsEnergy.slack`, with eliminated variables at their best. The slack is
    # the sum over all costs of the rounding error of the largest intermediate sum. It is 0 if costs
    # have few enough binary places that no sum is rounded. Some optimal labelling must be among
    # `alive`.
    if graph.n_factors:
        return "the relaxation covers terms of one and two variables, not of three or more"
    n = graph.n_variables
    domains = allowed_labels(graph, alive)
    if not domains.feasible:
        return None
    single = np.full(n, -1, dtype=np.int64)
    decided = domains.sizes == 1
    single[decided] = domains.labels[domains.ptr[:-1][decided]]
    unary = np.where(domains.allowed, graph.unary_values, np.inf)
    constant = fold(graph.arrays, single, unary)
    leaves = np.empty((n, 2), dtype=np.int64)
    stripped, count = eliminate(graph.arrays, unary, single, leaves) if n else (0.0, 0)
    places = _binary_places(graph) if n else None
    eliminated = unary.copy()
    builder = _Builder(graph, domains.allowed, unary, single) if n else None
    parts: list[PottsPart] = []
    rest = 0.0
    slack = 0.0
    if builder is not None:
        why = builder.unsupported_reason()
        if why is not None:
            return why
        if builder.rounds():
            places = None
        made = builder.parts(places)
        if made is None:
            return None
        parts, rest = made
        slack = math.fsum(builder.fit.residue[builder.inside])
    if places is None:
        slack += 4.0 * (n + graph.n_edges + 16) * _EPSILON * graph.magnitude
    return PottsEnergy(
        graph,
        parts,
        math.fsum([graph.constant, constant, stripped, rest]),
        slack,
        np.where(single >= 0, single, -1),
        leaves[:count].copy(),
        eliminated,
    )


def _unite(
    n: int, ends: npt.NDArray[np.integer], differ: npt.NDArray[np.bool_]
) -> tuple[IntArray, npt.NDArray[np.bool_]] | None:
    """Return a root for each of `n` variables, and whether it differs from it; None if infeasible.

    ``ends`` (m, 2) are the pairs, ``differ`` (m,) marks pairs that must differ. The root is the
    first variable that determines the others; None means that the pairs contradict each other.
    """
    # A variable and its opposite are two nodes; nodes that must be equal are linked.
    i, j = ends[:, 0].astype(np.int64), ends[:, 1].astype(np.int64)
    crossed = n * differ
    arcs = np.concatenate([[i, j + crossed], [i + n, j + n - crossed]], axis=1).T
    group = connected(2 * n, arcs)
    own, opposite = group[:n], group[n:]
    if (own == opposite).any():
        return None
    _, first, which = np.unique(np.minimum(own, opposite), return_index=True, return_inverse=True)
    root = first[which].astype(np.int64)
    return root, own != own[root]
