"""Conversions to and from networkx graphs and pgmpy models.

Both packages are imported when a function is called, not with this module.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from inference_lab.graph.arrays import DIAGONAL, TABLE, FloatArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.label_cost_chain import chain
from inference_lab.graph.terms import DiagonalTerms, PairwiseTerms

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["FromPgmpy", "from_networkx", "from_pgmpy", "to_networkx", "to_pgmpy"]


def __dir__() -> list[str]:
    """List the public names."""
    return __all__


def _costs(values: Any, what: str) -> FloatArray:
    """Return an array of finite or ``+inf`` costs, or raise an error that names the entry."""
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{what} must be numbers, got {values!r}") from None
    bad = np.isnan(array) | np.isneginf(array)
    if bad.any():
        place = tuple(int(p) for p in np.argwhere(bad)[0])
        where = f" at {place}" if place else ""
        raise ValueError(f"{what} is {array[place]}{where}; costs are finite or +inf")
    return array


# ---------------------------------------------------------------------------- networkx


def to_networkx(graph: FactorGraph, *, bipartite: bool | None = None) -> nx.Graph[Any]:
    """Return the graph in networkx form, with all costs as attributes.

    Variable ``i`` is the node ``i``, with ``kind="variable"`` and ``unary``, its (k_i,) costs.
    ``graph.graph`` holds ``"constant"`` and, if there are any, ``"label_costs"``, a list of
    (labels, cost). Potts and diagonal terms have ``weight``, the cost of different labels, and
    ``same`` (a number, 0 by default, or one number a label). Others have ``table`` and ``scope``,
    the variables of its axes. In the *pairwise* form, terms are on edges; in the *bipartite* form,
    on nodes ``("factor", f)`` with ``kind="factor"``.

    Parameters
    ----------
    graph : FactorGraph
    bipartite : bool, optional
        The form; default: pairwise if there are no terms of three and more variables.

    Returns
    -------
    networkx.Graph
        The arrays in it may be read-only views of the graph's own.

    Raises
    ------
    ValueError
        If the pairwise form is requested and there are terms of three and more variables.

    Examples
    --------
    >>> g = FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> to_networkx(g).edges[0, 1]
    {'weight': 0.5}
    """
    import networkx as nx

    if bipartite is None:
        bipartite = graph.n_factors > 0
    elif not bipartite and graph.n_factors:
        raise ValueError(
            f"bipartite=False: the graph has {graph.n_factors} terms of three and more variables, "
            "which edges cannot hold"
        )
    result: nx.Graph[Any] = nx.Graph(constant=graph.constant)
    if graph.n_label_costs:
        result.graph["label_costs"] = graph.label_costs.sets()
    for i in range(graph.n_variables):
        result.add_node(i, kind="variable", unary=graph.unary_of(i))
    for f, (scope, term) in enumerate(_terms(graph)):
        if bipartite:
            node = ("factor", f)
            result.add_node(node, kind="factor", **{"scope": scope, **term})
            result.add_edges_from((node, variable) for variable in scope)
        else:
            result.add_edge(*scope, **term)
    return result


def _terms(graph: FactorGraph) -> Iterator[tuple[tuple[int, ...], dict[str, Any]]]:
    """Yield scope and attributes of all terms of two and more variables."""
    kinds = graph.edge_kinds.tolist()
    for e, (i, j) in enumerate(graph.edges.tolist()):
        scope: tuple[int, ...] = (i, j)
        if kinds[e] == TABLE:
            yield scope, {"table": graph.edge_table(e), "scope": scope}
            continue
        term: dict[str, Any] = {"weight": float(graph.edge_weights[e])}
        offset = int(graph.edge_offsets[e])
        if kinds[e] == DIAGONAL:
            k = int(graph.cardinalities[[i, j]].min())
            term["same"] = graph.pairwise_values[offset : offset + k]
        elif graph.pairwise_values[offset]:
            term["same"] = float(graph.pairwise_values[offset])
        yield scope, term
    for f in range(graph.n_factors):
        scope, table = graph.higher_order(f)
        yield scope, {"table": table, "scope": scope}


def from_networkx(graph: nx.Graph[Any]) -> tuple[FactorGraph, list[Hashable]]:
    """Build a factor graph from a networkx graph with the attributes that `to_networkx` writes.

    Nodes may be anything hashable, by default variables; both forms may be mixed. A Potts model is
    nodes with ``unary`` and edges with ``weight``: ``weight * [x_i != x_j]``.

    Parameters
    ----------
    graph : networkx.Graph or networkx.MultiGraph
        Parallel edges add up. Directed graphs are refused, because the direction has no meaning.

    Returns
    -------
    graph : FactorGraph
    order : list
        ``order[i]`` is the node that is variable ``i``: the variable nodes in the graph's order.

    Raises
    ------
    ValueError
        If a node has no ``unary``, an edge or factor not exactly one term, an asymmetric table
        no ``scope``, or if shapes or costs do not fit.

    Examples
    --------
    >>> import networkx as nx
    >>> g = nx.Graph()
    >>> g.add_node("a", unary=[0.0, 1.0])
    >>> g.add_node("b", unary=[0.6, 0.0])
    >>> g.add_edge("a", "b", weight=0.5)
    >>> energy, order = from_networkx(g)
    >>> order, energy.energy([0, 1])
    (['a', 'b'], 0.5)
    """
    if graph.is_directed():
        raise ValueError("graph is directed; give an undirected one, with scope where it matters")
    order: list[Hashable] = []
    factor_nodes: list[Hashable] = []
    for node, attributes in graph.nodes(data=True):
        kind = attributes.get("kind", "variable")
        if kind == "variable":
            order.append(node)
        elif kind == "factor":
            factor_nodes.append(node)
        else:
            raise ValueError(f"node {node!r} has kind {kind!r}; expected 'variable' or 'factor'")
    index = {node: i for i, node in enumerate(order)}
    unary = [_unary_of(node, graph.nodes[node]) for node in order]

    collected = _Terms(index, [row.size for row in unary])
    for u, v, data in graph.edges(data=True):
        if u in index and v in index:
            collected.add(f"edge {u!r} - {v!r}", data, (u, v), ordered=False)
        elif u not in index and v not in index:
            raise ValueError(f"edge {u!r} - {v!r} joins two factors")
    for node in factor_nodes:
        data = graph.nodes[node]
        if "scope" not in data:
            raise ValueError(f"factor {node!r} has no scope: the variables in the order of axes")
        scope = tuple(data["scope"])
        if set(scope) != set(graph.adj[node]):
            raise ValueError(
                f"factor {node!r} has scope {scope}, but is joined to {list(graph.adj[node])}"
            )
        collected.add(f"factor {node!r}", data, scope, ordered=True)
    constant = float(_costs(graph.graph.get("constant", 0.0), "graph.graph['constant']"))
    result = FactorGraph.from_terms(unary, collected.pairwise(), collected.factors, constant)
    sets = graph.graph.get("label_costs", [])
    return result.with_label_costs(sets=sets) if sets else result, order


def _unary_of(node: Hashable, data: Mapping[str, Any]) -> FloatArray:
    if "unary" not in data:
        have = ", ".join(map(repr, data)) or "none"
        raise ValueError(
            f"node {node!r} has no attribute 'unary', the costs of its labels (its attributes: "
            f"{have}); where labels cost nothing by themselves, give k zeros: "
            "nx.set_node_attributes(graph, [0.0] * k, 'unary')"
        )
    row = _costs(data["unary"], f"unary of node {node!r}")
    if row.ndim != 1 or row.size == 0:
        raise ValueError(
            f"unary of node {node!r} must be a 1-D array with at least one label, "
            f"got shape {row.shape}"
        )
    return row


class _Terms:
    """Terms of a networkx graph, collected so that each family is built in bulk."""

    def __init__(self, index: Mapping[Hashable, int], cardinalities: Sequence[int]) -> None:
        self.index = index
        self.cardinalities = cardinalities
        #: Edge, costs of equal labels (one for all, or one a label), and cost of different ones.
        self.diagonal: list[tuple[tuple[int, int], FloatArray, float]] = []
        self.factors: list[tuple[tuple[int, ...], FloatArray]] = []

    def add(
        self, what: str, data: Mapping[str, Any], ends: tuple[Hashable, ...], ordered: bool
    ) -> None:
        """Add the term in ``data``; with ``ordered``, ``ends`` are in the order of its axes."""
        if "table" in data:
            if "weight" in data or "same" in data:
                raise ValueError(f"{what} has a table and also weight or same; give one of them")
            self._add_table(what, data, ends, ordered)
        elif "weight" in data or "same" in data:
            if len(ends) != 2:
                raise ValueError(f"{what} has weight or same, but {len(ends)} variables, not 2")
            i, j = (self.index[end] for end in ends)
            width = min(self.cardinalities[i], self.cardinalities[j])
            same = _costs(data.get("same", 0.0), f"same of {what}")
            differ = _costs(data.get("weight", 0.0), f"weight of {what}")
            if same.shape not in ((), (width,)):
                raise ValueError(
                    f"same of {what} must be a number or have shape ({width},), got {same.shape}"
                )
            if differ.ndim:
                raise ValueError(f"weight of {what} must be a number, got shape {differ.shape}")
            self.diagonal.append(((i, j), same, float(differ)))
        else:
            raise ValueError(f"{what} has no cost: expected weight, same or table")

    def _add_table(
        self, what: str, data: Mapping[str, Any], ends: tuple[Hashable, ...], ordered: bool
    ) -> None:
        table = _costs(data["table"], f"table of {what}")
        if not ordered and "scope" in data:
            scope = tuple(data["scope"])
            if scope not in (ends, ends[::-1]):
                raise ValueError(f"{what} has scope {scope}, which are not its ends")
            ends = scope
        elif not ordered and not (table.shape == table.T.shape and (table == table.T).all()):
            raise ValueError(
                f"{what} has a table that is not symmetric, and no scope to order its axes"
            )
        numbers = tuple(self.index[end] for end in ends)
        expected = tuple(self.cardinalities[i] for i in numbers)
        if table.shape != expected:
            raise ValueError(f"table of {what} has shape {table.shape}; expected {expected}")
        self.factors.append((numbers, table))

    def pairwise(self) -> list[PairwiseTerms]:
        """Return the terms without tables as blocks."""
        blocks: list[PairwiseTerms] = []
        for by_label in (False, True):
            terms = [term for term in self.diagonal if bool(term[1].ndim) == by_label]
            if terms:
                edges, same, differ = zip(*terms, strict=True)
                rows = np.zeros((len(terms), max(costs.size for costs in same)))
                for row, costs in zip(rows, same, strict=True):
                    row[: costs.size] = costs
                blocks.append(DiagonalTerms(edges, rows if by_label else rows[:, 0], differ))
        return blocks


# ---------------------------------------------------------------------------- pgmpy


def to_pgmpy(graph: FactorGraph) -> tuple[Any, float]:
    """Return a pgmpy Markov network, and the energy that its factors leave out.

    Variable ``i`` is the node ``"x{i}"`` (pgmpy treats a node ``0`` as no node), label
    ``a`` the state ``a``. Each factor holds ``exp(-(theta - min theta))``, so that its largest
    value is 1; the minima and the constant add up to the offset:
    ``E(x) = offset - sum_f ln phi_f(x_f)``.

    Parameters
    ----------
    graph : FactorGraph

    Returns
    -------
    model : pgmpy.models.DiscreteMarkovNetwork
        One factor for each variable (of ones without unary costs) and each term, whose
        variables are joined by edges. Label costs come with auxiliary variables, numbered
        after the graph's (`inference_lab.graph.label_cost_chain`).
    offset : float

    Notes
    -----
    Costs more than 745 above the minimum of their factor become zero in double precision.

    Examples
    --------
    >>> g = FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5], constant=2.0)
    >>> model, offset = to_pgmpy(g)
    >>> model.check_model(), offset
    (True, 2.0)
    """
    from pgmpy.factors.discrete import DiscreteFactor
    from pgmpy.models import DiscreteMarkovNetwork

    if graph.n_label_costs:
        graph = chain(graph)
    names = [f"x{i}" for i in range(graph.n_variables)]
    model: Any = DiscreteMarkovNetwork()
    model.add_nodes_from(names)
    factors = []
    shifts = [graph.constant]
    terms: list[tuple[tuple[int, ...], FloatArray]] = [
        *(((i,), graph.unary_of(i)) for i in range(graph.n_variables)),
        *(term for term in graph.factors() if len(term[0]) > 1),
    ]
    for scope, table in terms:
        minimum = float(table.min())
        shift = minimum if math.isfinite(minimum) else 0.0
        shifts.append(shift)
        variables = [names[i] for i in scope]
        model.add_edges_from(combinations(variables, 2))
        factors.append(DiscreteFactor(variables, table.shape, np.exp(-(table - shift))))
    model.add_factors(*factors)
    return model, math.fsum(shifts)


class FromPgmpy(NamedTuple):
    """A pgmpy model as an energy.

    Attributes
    ----------
    graph : FactorGraph
    variables : list
        ``variables[i]`` is pgmpy's name of variable ``i``.
    states : list of list
        ``states[i][a]`` is pgmpy's name of label ``a`` of variable ``i``.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> from inference_lab.convert import from_pgmpy, to_pgmpy
    >>> found = from_pgmpy(to_pgmpy(g)[0])
    >>> found.graph.n_edges, len(found.variables)
    (1, 2)
    """

    graph: FactorGraph
    variables: list[Hashable]
    states: list[list[Any]]


def from_pgmpy(model: Any) -> FromPgmpy:
    """Build the energy ``- sum_f ln phi_f`` of a pgmpy model.

    Parameters
    ----------
    model : DiscreteMarkovNetwork, FactorGraph or DiscreteBayesianNetwork
        The conditional probability tables of a Bayesian network are its factors.

    Returns
    -------
    FromPgmpy
        Graph, names of variables in the order of the model's nodes, and names of states. Where
        factors list the states of a variable in different orders, the first factor decides.

    Raises
    ------
    TypeError
        If the model is of another kind.
    ValueError
        If a variable is in no factor, factors disagree about the states of a variable, or a
        potential is negative, infinite or NaN.

    Examples
    --------
    >>> from pgmpy.factors.discrete import DiscreteFactor
    >>> from pgmpy.models import DiscreteMarkovNetwork
    >>> model = DiscreteMarkovNetwork([("rain", "wet")])
    >>> model.add_factors(DiscreteFactor(["rain", "wet"], [2, 2], [9, 1, 0, 5]))
    >>> graph, variables, states = from_pgmpy(model)
    >>> variables, graph.energy([1, 0])
    (['rain', 'wet'], inf)
    """
    from pgmpy import models as kinds
    from pgmpy.factors.discrete import DiscreteFactor

    factors: list[Any]
    if isinstance(model, kinds.DiscreteBayesianNetwork):
        cpds = model.get_cpds()
        variables = list(model.nodes)
        missing = [node for node in variables if node not in {cpd.variable for cpd in cpds}]
        if missing:
            raise ValueError(f"variable {missing[0]!r} has no conditional probability table")
        factors = [cpd.to_factor() for cpd in cpds]
    elif isinstance(model, kinds.DiscreteMarkovNetwork | kinds.FactorGraph):
        factors = list(model.factors)
        variables = [node for node in model.nodes if not isinstance(node, DiscreteFactor)]
    else:
        raise TypeError(
            "model must be a pgmpy DiscreteMarkovNetwork, FactorGraph or DiscreteBayesianNetwork, "
            f"got {type(model).__name__}"
        )
    states: dict[Hashable, list[Any]] = {}
    for factor in factors:
        for variable in factor.variables:
            states.setdefault(variable, list(factor.state_names[variable]))
    for variable in variables:
        if variable not in states:
            raise ValueError(f"variable {variable!r} is in no factor, so its states are unknown")
    index = {variable: i for i, variable in enumerate(variables)}
    graph = FactorGraph.from_factors(
        [len(states[variable]) for variable in variables],
        [
            (
                tuple(index[variable] for variable in factor.variables),
                _energies(f, factor, states),
            )
            for f, factor in enumerate(factors)
        ],
    )
    return FromPgmpy(graph, variables, [states[variable] for variable in variables])


def _energies(f: int, factor: Any, states: Mapping[Hashable, list[Any]]) -> FloatArray:
    """Return the energies of a pgmpy factor, its states in the common order."""
    values = np.asarray(factor.values, dtype=np.float64)
    good = (values >= 0) & np.isfinite(values)
    if not good.all():
        place = tuple(int(p) for p in np.argwhere(~good)[0])
        raise ValueError(
            f"factor {f} over {factor.variables} has the value {values[place]} at {place}; "
            "potentials are finite numbers >= 0"
        )
    for axis, variable in enumerate(factor.variables):
        names = list(factor.state_names[variable])
        if names == states[variable]:
            continue
        position = {name: a for a, name in enumerate(names)}
        if set(position) != set(states[variable]):
            raise ValueError(
                f"factor {f} gives variable {variable!r} the states {names}, "
                f"another one {states[variable]}"
            )
        values = np.take(values, [position[name] for name in states[variable]], axis=axis)
    with np.errstate(divide="ignore"):
        return np.subtract(0.0, np.log(values))
