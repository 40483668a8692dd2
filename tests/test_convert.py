"""networkx and pgmpy: the same energy on both sides, judged by enumeration and by pgmpy itself."""

from __future__ import annotations

import math
import warnings
from typing import Any

import hypothesis.strategies as st
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from pgmpy.factors.discrete import DiscreteFactor, TabularCPD
from pgmpy.models import (
    DiscreteBayesianNetwork,
    DiscreteMarkovNetwork,
    JunctionTree,
)
from pgmpy.models import FactorGraph as PgmpyFactorGraph
from strategies import Recipe, labellings, recipes

import inference_lab as il
from inference_lab.convert import from_networkx, from_pgmpy, to_networkx, to_pgmpy

with warnings.catch_warnings():
    # pgmpy imports modules of its own that it has deprecated.
    warnings.simplefilter("ignore", FutureWarning)
    from pgmpy.inference import VariableElimination


#: Costs whose potentials are ordinary doubles.
ORDINARY = ("normal", "integers")

# ------------------------------------------------------------------ networkx


@given(recipes(min_variables=1, styles=ORDINARY).map(Recipe.build), st.booleans())
def test_networkx_there_and_back_is_the_same_energy(graph: il.FactorGraph, force: bool) -> None:
    there = to_networkx(graph, bipartite=True if force else None)
    again, order = from_networkx(there)
    assert order == list(range(graph.n_variables))
    assert again.constant == graph.constant
    assert again.cardinalities.tolist() == graph.cardinalities.tolist()
    x = labellings(graph)
    np.testing.assert_allclose(again.energy(x), graph.energy(x), rtol=1e-13, atol=1e-12)
    assert np.isin(again.edge_kinds, graph.edge_kinds).all()  # structure is kept


@given(
    recipes(min_variables=1, styles=ORDINARY).map(Recipe.build),
    st.randoms(use_true_random=False),
)
def test_networkx_nodes_of_any_name_in_any_order(graph: il.FactorGraph, random: Any) -> None:
    there = to_networkx(graph)
    names = {node: f"node {node}" for node in there if not isinstance(node, tuple)}
    renamed = nx.Graph(**there.graph)
    nodes = list(there.nodes(data=True))
    edges = list(there.edges(data=True))
    random.shuffle(nodes)
    random.shuffle(edges)

    def rename(data: dict[str, Any]) -> dict[str, Any]:
        if "scope" in data:
            return {**data, "scope": [names[v] for v in data["scope"]]}
        return data

    for node, data in nodes:
        renamed.add_node(names.get(node, node), **rename(data))
    for u, v, data in edges:
        if random.random() < 0.5:
            u, v = v, u
        renamed.add_edge(names.get(u, u), names.get(v, v), **rename(data))
    again, order = from_networkx(renamed)
    position = [order.index(names[i]) for i in range(graph.n_variables)]
    x = labellings(graph)
    y = np.empty_like(x)
    y[:, position] = x
    np.testing.assert_allclose(again.energy(y), graph.energy(x), rtol=1e-13, atol=1e-12)


def test_pairwise_form_of_each_family() -> None:
    graph = il.FactorGraph.from_terms(
        np.arange(8.0).reshape(4, 2),
        [
            il.DiagonalTerms([(0, 1)], 0.0, 0.5),
            il.DiagonalTerms([(1, 2)], 0.25, 0.0),
            il.DiagonalTerms([(0, 2)], [[1.0, 2.0]], 3.0),
            il.OwnTables([(3, 0)], [[[1.0, 2.0], [3.0, 5.0]]]),
        ],
        constant=7.0,
    )
    there = to_networkx(graph)
    assert there.graph["constant"] == 7.0
    assert there.nodes[2]["kind"] == "variable"
    np.testing.assert_array_equal(there.nodes[2]["unary"], [4.0, 5.0])
    assert there.edges[0, 1] == {"weight": 0.5}
    assert there.edges[1, 2] == {"weight": 0.0, "same": 0.25}
    np.testing.assert_array_equal(there.edges[0, 2]["same"], [1.0, 2.0])
    assert there.edges[0, 3]["scope"] == (3, 0)
    np.testing.assert_array_equal(there.edges[0, 3]["table"], [[1.0, 2.0], [3.0, 5.0]])


def test_bipartite_form_is_bipartite() -> None:
    table = np.arange(8.0).reshape(2, 2, 2)
    graph = il.FactorGraph.from_factors(
        [2, 2, 2, 2], [((0, 1), [[0.0, 1.0], [2.0, 4.0]]), ((2, 0, 1), table)]
    )
    there = to_networkx(graph)
    variables, factors = nx.bipartite.sets(there.subgraph(set(there) - {3}))
    if ("factor", 0) in variables:
        variables, factors = factors, variables
    assert variables == {0, 1, 2}
    assert factors == {("factor", 0), ("factor", 1)}
    assert there.nodes[("factor", 1)]["kind"] == "factor"
    assert there.nodes[("factor", 1)]["scope"] == (2, 0, 1)
    assert there.degree[3] == 0
    with pytest.raises(ValueError, match="bipartite=False: the graph has 1 terms of three"):
        to_networkx(graph, bipartite=False)


def test_from_networkx_by_hand() -> None:
    g = nx.Graph(constant=1.0)
    g.add_node(("a", 1), unary=[0.0, 1.0])
    g.add_node(frozenset("b"), unary=np.array([2.0, 0.0, 1.0]))
    g.add_node("alone", unary=[5.0])
    table = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    g.add_edge(("a", 1), frozenset("b"), table=table, scope=(frozenset("b"), ("a", 1)))
    graph, order = from_networkx(g)
    assert order == [("a", 1), frozenset("b"), "alone"]
    assert graph.energy([1, 2, 0]) == 1.0 + 1.0 + 1.0 + 5.0 + 6.0


def test_from_networkx_adds_parallel_edges_and_mixes_forms() -> None:
    g = nx.MultiGraph()
    g.add_nodes_from("abc", unary=[0.0, 0.0])
    g.add_edge("a", "b", weight=1.0)
    g.add_edge("b", "a", weight=0.5)
    g.add_edge("b", "c", table=[[1.0, 0.0], [0.0, 2.0]])  # symmetric: no scope needed
    g.add_node("f", kind="factor", scope="cab", table=np.arange(8.0).reshape(2, 2, 2))
    g.add_edges_from([("f", "a"), ("f", "b"), ("f", "c")])
    graph, order = from_networkx(g)
    assert order == ["a", "b", "c"]
    assert graph.energy([0, 1, 1]) == 1.5 + 2.0 + 5.0
    assert graph.energy([1, 0, 0]) == 1.5 + 1.0 + 2.0


def _pair(**edge: Any) -> nx.Graph:
    g = nx.Graph()
    g.add_node("a", unary=[0.0, 0.0])
    g.add_node("b", unary=[0.0, 0.0, 0.0])
    g.add_edge("a", "b", **edge)
    return g


def _with_factor(scope: Any, **term: Any) -> nx.Graph:
    g = nx.Graph()
    g.add_nodes_from("abc", unary=[0.0, 0.0])
    g.add_node("f", kind="factor", scope=scope, **term)
    g.add_edges_from(("f", v) for v in "abc")
    return g


def _nodes(**nodes: dict[str, Any]) -> nx.Graph:
    g = nx.path_graph(nodes)
    nx.set_node_attributes(g, nodes)
    return g


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (nx.path_graph(2), r"node 0 has no attribute 'unary'"),
        (_pair(), r"edge 'a' - 'b' has no cost: expected weight, same or table"),
        (_pair(table=np.ones((2, 3))), r"edge 'a' - 'b' has a table that is not symmetric"),
        (_pair(table=np.ones((2, 3)), scope="bc"), r"scope \('b', 'c'\), which are not its ends"),
        (_pair(table=np.ones((2, 3)), scope="ba"), r"has shape \(2, 3\); expected \(3, 2\)"),
        (_pair(table=np.ones((2, 3)), weight=1.0), r"a table and also weight"),
        (_pair(weight=math.nan), r"weight of edge 'a' - 'b' is nan; costs are finite or \+inf"),
        (_pair(weight="heavy"), r"weight of edge 'a' - 'b' must be numbers, got 'heavy'"),
        (_pair(weight=[1.0]), r"weight of edge 'a' - 'b' must be a number"),
        (_pair(same=[1.0] * 3), r"same of .* must be a number or have shape \(2,\), got \(3,\)"),
        (_pair(table=[[0, 1, 2], [0, -math.inf, 0]], scope="ab"), r"is -inf at \(1, 1\)"),
        (nx.DiGraph(), r"graph is directed"),
        (_with_factor("ab", table=np.ones((2, 2))), r"scope \('a', 'b'\), but is joined to"),
        (_with_factor("abc", weight=1.0), r"has weight or same, but 3 variables"),
        (_with_factor("abc", table=np.ones((2, 2))), r"shape \(2, 2\); expected \(2, 2, 2\)"),
        (_with_factor("abc"), r"factor 'f' has no cost"),
        (_nodes(a={"unary": []}), r"unary of node 'a' must be a 1-D array"),
        (_nodes(a={"unary": [0.0, math.nan]}), r"unary of node 'a' is nan at \(1,\)"),
        (_nodes(a={"unary": [0.0], "kind": "label"}), r"'a' has kind 'label'; expected 'variable'"),
        (_nodes(f={"kind": "factor"}), r"factor 'f' has no scope"),
        (_nodes(f={"kind": "factor"}, g={"kind": "factor"}), r"edge 'f' - 'g' joins two factors"),
    ],
)
def test_from_networkx_refuses(graph: nx.Graph, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_networkx(graph)


# ------------------------------------------------------------------ pgmpy


def pgmpy_energies(model: Any, x: np.ndarray) -> np.ndarray:
    """Multiply pgmpy's factors by hand, in the order of the names x0, x1, ..."""
    total = np.zeros(len(x))
    for factor in model.get_factors():
        axes = [int(name[1:]) for name in factor.variables]
        with np.errstate(divide="ignore"):
            total -= np.log(factor.values[tuple(x[:, axis] for axis in axes)])
    return total


@given(recipes(min_variables=1, styles=ORDINARY).map(Recipe.build))
def test_to_pgmpy_has_the_energy_up_to_the_offset(graph: il.FactorGraph) -> None:
    model, offset = to_pgmpy(graph)
    assert isinstance(model, DiscreteMarkovNetwork)
    assert model.check_model()
    x = labellings(graph)
    np.testing.assert_allclose(
        pgmpy_energies(model, x) + offset, graph.energy(x), rtol=1e-12, atol=1e-12
    )
    assert all(f.values.max() in (0.0, 1.0) for f in model.get_factors())
    again, variables, states = from_pgmpy(model)
    assert variables == [f"x{i}" for i in range(graph.n_variables)]
    assert states == [list(range(k)) for k in graph.cardinalities]
    np.testing.assert_allclose(again.energy(x) + offset, graph.energy(x), rtol=1e-12, atol=1e-12)


@settings(max_examples=15)
@given(recipes(hard=False, min_variables=1, styles=ORDINARY).map(Recipe.build))
def test_pgmpy_computes_our_marginals(graph: il.FactorGraph) -> None:
    model, _ = to_pgmpy(graph)
    x = labellings(graph)
    p = np.exp(graph.energy(x).min() - graph.energy(x))
    p /= p.sum()
    inference = VariableElimination(model)
    for i, k in enumerate(graph.cardinalities.tolist()):
        theirs = inference.query([f"x{i}"], show_progress=False).values
        ours = np.bincount(x[:, i], weights=p, minlength=k)
        # pgmpy leaves the result unchanged if no variable had to be eliminated.
        np.testing.assert_allclose(theirs / theirs.sum(), ours, atol=1e-10)


def test_huge_costs_of_one_factor_do_not_underflow() -> None:
    graph = il.FactorGraph.pairwise([[5000.0, 5001.0], [0.0, 0.0]], [(0, 1)], [np.eye(2) - 3000])
    model, offset = to_pgmpy(graph)
    assert offset == 2000.0
    x = labellings(graph)
    np.testing.assert_allclose(pgmpy_energies(model, x) + offset, graph.energy(x), rtol=1e-13)


def _sprinkler() -> DiscreteBayesianNetwork:
    model = DiscreteBayesianNetwork([("cloudy", "rain"), ("cloudy", "sprinkler"), ("rain", "wet")])
    model.add_edge("sprinkler", "wet")
    states = {
        "cloudy": ["no", "yes"],
        "rain": ["none", "light", "heavy"],
        "sprinkler": ["off", "on"],
        "wet": ["dry", "wet"],
    }
    wet = np.random.default_rng(3).dirichlet([1, 1], size=6).T

    def cpd(name: str, values: Any, parents: list[str]) -> TabularCPD:
        return TabularCPD(
            name,
            len(states[name]),
            values,
            evidence=parents or None,
            evidence_card=[len(states[p]) for p in parents] or None,
            state_names={v: states[v] for v in [name, *parents]},
        )

    model.add_cpds(
        cpd("cloudy", [[0.4], [0.6]], []),
        cpd("rain", [[0.7, 0.2], [0.2, 0.3], [0.1, 0.5]], ["cloudy"]),
        cpd("sprinkler", [[0.5, 1.0], [0.5, 0.0]], ["cloudy"]),
        cpd("wet", wet, ["rain", "sprinkler"]),
    )
    assert model.check_model()
    return model


def test_from_a_bayesian_network() -> None:
    model = _sprinkler()
    graph, variables, states = from_pgmpy(model)
    assert set(variables) == set(model.nodes)
    x = labellings(graph)
    p = np.exp(-graph.energy(x))
    assert p.sum() == pytest.approx(1.0, abs=1e-12)
    inference = VariableElimination(model)
    for i, name in enumerate(variables):
        theirs = inference.query([name], show_progress=False)
        assert list(theirs.state_names[name]) == states[i]
        ours = np.bincount(x[:, i], weights=p, minlength=len(states[i]))
        np.testing.assert_allclose(theirs.values, ours, atol=1e-12)
    i, s = variables.index("cloudy"), variables.index("sprinkler")
    forbidden = (x[:, i] == states[i].index("yes")) & (x[:, s] == states[s].index("on"))
    assert np.isposinf(graph.energy(x)[forbidden]).all()
    assert np.isfinite(graph.energy(x)[~forbidden]).all()


def test_from_a_bayesian_network_without_a_table() -> None:
    model = DiscreteBayesianNetwork([("a", "b")])
    model.add_cpds(TabularCPD("b", 2, [[0.5, 0.1], [0.5, 0.9]], evidence=["a"], evidence_card=[2]))
    with pytest.raises(ValueError, match="variable 'a' has no conditional probability table"):
        from_pgmpy(model)


def test_from_a_factor_graph() -> None:
    model = PgmpyFactorGraph()
    model.add_nodes_from(["a", "b", "c"])
    first = DiscreteFactor(["b", "a"], [3, 2], [1, 2, 3, 4, 5, 6])
    second = DiscreteFactor(["a", "c", "b"], [2, 2, 3], np.arange(12.0))
    model.add_factors(first, second)
    model.add_nodes_from([first, second])
    model.add_edges_from([("a", first), ("b", first), ("a", second), ("b", second), ("c", second)])
    graph, variables, _ = from_pgmpy(model)
    assert variables == ["a", "b", "c"]
    assert graph.cardinalities.tolist() == [2, 3, 2]
    for a, b, c in labellings(graph):
        value = first.values[b, a] * second.values[a, c, b]
        expected = math.inf if value == 0 else -math.log(value)
        assert graph.energy([a, b, c]) == pytest.approx(expected, abs=1e-13)


def test_states_in_another_order_are_put_right() -> None:
    model = DiscreteMarkovNetwork([("a", "b")])
    model.add_factors(
        DiscreteFactor(["a"], [3], [1, 2, 4], {"a": ["low", "mid", "high"]}),
        DiscreteFactor(
            ["b", "a"],
            [2, 3],
            [[1, 10, 100], [3, 30, 300]],
            {"a": ["high", "low", "mid"], "b": ["n", "y"]},
        ),
    )
    graph, _, states = from_pgmpy(model)
    assert states == [["low", "mid", "high"], ["n", "y"]]
    expected = {("low", "y"): 1 * 30, ("mid", "n"): 2 * 100, ("high", "n"): 4 * 1}
    for (a, b), value in expected.items():
        x = [states[0].index(a), states[1].index(b)]
        assert graph.energy(x) == pytest.approx(-math.log(value))
    model.add_factors(DiscreteFactor(["a"], [3], [1, 1, 1], {"a": ["low", "mid", "top"]}))
    with pytest.raises(ValueError, match=r"factor 2 gives variable 'a' the states .*'top'"):
        from_pgmpy(model)


def test_from_pgmpy_refuses() -> None:
    model = DiscreteMarkovNetwork([("a", "b")])
    model.add_factors(DiscreteFactor(["a"], [2], [1, 1]))
    with pytest.raises(ValueError, match="variable 'b' is in no factor"):
        from_pgmpy(model)
    model.add_factors(DiscreteFactor(["a", "b"], [2, 2], [1, 1, -0.5, 1]))
    with pytest.raises(ValueError, match=r"factor 1 over \['a', 'b'\] has the value -0.5 at \(1"):
        from_pgmpy(model)
    for other in (nx.Graph(), JunctionTree(), None):
        with pytest.raises(TypeError, match="model must be a pgmpy"):
            from_pgmpy(other)
