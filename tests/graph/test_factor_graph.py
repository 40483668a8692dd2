"""Factor graph: energies equal the given costs, and invalid input is refused."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
import pickle
import re
import sys
import tracemalloc

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import Recipe, random_pairs, recipes, truncated_linear

import inference_lab as il
from inference_lab.graph.arrays import (
    DIAGONAL,
    NO_FORM,
    POTTS,
    TABLE,
    TRUNCATED_LINEAR,
    TRUNCATED_QUADRATIC,
)
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.random_graphs import FAMILIES, SCALES, random_graph, scaled
from inference_lab.graph.terms import DiagonalTerms, OwnTables, SharedTable, by_shape

NAN, INF = math.nan, math.inf


def same_energies(g: FactorGraph, other: FactorGraph) -> bool:
    """Return whether two small graphs have equal energies for all labellings, up to rounding."""
    x = list(itertools.product(*(range(k) for k in g.cardinalities)))
    return np.allclose(g.energy(x), other.energy(x), rtol=1e-12, atol=1e-12)


# ---------------------------------------------------------------------- the evaluator


@given(recipes())
def test_energy_is_the_sum_over_the_raw_inputs(recipe: Recipe):
    """Check every family, with parallel edges in the input."""
    g = recipe.build()
    assert g.cardinalities.tolist() == recipe.cardinalities
    x = recipe.labellings()
    expected = recipe.energies()
    energies = g.energy(x)
    assert (np.isinf(energies) == np.isinf(expected)).all()
    finite = np.isfinite(expected)
    assert np.abs(energies[finite] - expected[finite]).max(initial=0) <= 1e-13 * recipe.scale()
    for labelling, energy in zip(x, energies, strict=True):
        assert g.energy(labelling) == energy
        assert type(g.energy(labelling)) is float


@pytest.mark.parametrize("layout", ["C", "F", "reversed", "list", "uint8", "int32"])
def test_batch_and_single_agree_to_the_last_bit(layout):
    """Sums are long enough to expose the order of summation."""
    rng = np.random.default_rng(0)
    n, m, k = 300, 1500, 4
    edges = random_pairs(rng, n, m)
    terms = [
        DiagonalTerms(edges[:500], rng.normal(size=500), rng.normal(size=500)),
        DiagonalTerms(edges[500:1000], rng.normal(size=(500, k)), rng.normal(size=500)),
        OwnTables(edges[1000:], rng.normal(size=(500, k, k))),
    ]
    scopes = [rng.choice(n, size=3, replace=False) for _ in range(100)]
    factors = [(scope, rng.normal(size=(k, k, k))) for scope in scopes]
    g = FactorGraph.from_terms(rng.normal(size=(n, k)), terms, factors, constant=rng.normal())
    x = rng.integers(0, k, size=(40, n))
    batch = {
        "C": x,
        "F": np.asfortranarray(x),
        "reversed": np.ascontiguousarray(x[:, ::-1])[:, ::-1],
        "list": x.tolist(),
        "uint8": x.astype(np.uint8),
        "int32": x.astype(np.int32),
    }[layout]
    assert g.energy(batch).tolist() == [g.energy(row) for row in x]


def test_a_large_batch_is_evaluated_in_blocks():
    g = random_graph("mixed", 0)
    x = np.random.default_rng(0).integers(0, g.cardinalities, size=(1000, g.n_variables))
    # More entries than a block holds.
    times = 5_000_000 // x.size
    assert (g.energy(np.tile(x, (times, 1))) == np.tile(g.energy(x), times)).all()


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 3, 0], "labels[1] = 3; variable 1 has labels 0 to 2"),
        ([0, 0, -1], "labels[2] = -1; variable 2 has labels 0 to 3"),
        ([[0, 0, 0], [2, 0, 0]], "labels[1, 0] = 2; variable 0 has labels 0 to 1"),
        ([0.0, 1.0, 2.0], "labels must be integers, got dtype float64"),
        ([True, False, True], "labels must be integers, got dtype bool"),
        ([0, 0], "labels must have shape (3,) or (b, 3), got (2,)"),
        ([[0, 0]], "labels must have shape (3,) or (b, 3), got (1, 2)"),
        (np.zeros((1, 1, 3), int), "labels must have shape (3,) or (b, 3), got (1, 1, 3)"),
        (0, "labels must have shape (3,) or (b, 3), got ()"),
    ],
)
def test_labels_that_do_not_fit_are_refused(labels, message):
    g = FactorGraph.from_factors([2, 3, 4], [])
    with pytest.raises(ValueError, match=re.escape(message)):
        g.energy(labels)


# ---------------------------------------------------------------------- what construction does


BLOCKS = {
    "potts": lambda e: DiagonalTerms([e], 1.5, -0.5),
    "diagonal": lambda e: DiagonalTerms([e], [[1.0, 2.0, 4.0]], 0.25),
    "shared": lambda e: SharedTable([e], np.arange(9.0).reshape(3, 3), [-2.0]),
    "own": lambda e: OwnTables([e], [np.arange(9.0).reshape(3, 3) ** 2]),
    "hard": lambda e: OwnTables([e], [[[0, INF, 1], [2, 3, 4], [5, 6, INF]]]),
    "must-link": lambda e: DiagonalTerms([e], 0.0, INF),
}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("first", "second"), list(itertools.product(BLOCKS, BLOCKS)))
def test_parallel_edges_are_added_up(first, second, reverse):
    """Edges are added across families and orientations; the first orientation is kept."""
    edge = (2, 0)
    again = edge[::-1] if reverse else edge
    terms = [BLOCKS["own"]((1, 2)), BLOCKS[first](edge), BLOCKS["potts"]((1, 0))]
    g = FactorGraph.from_terms(np.zeros((3, 3)), [*terms, BLOCKS[second](again)])
    assert g.edges.tolist() == [[1, 2], [2, 0], [1, 0]]
    a = FactorGraph.from_terms(np.zeros((3, 3)), [BLOCKS[first](edge)]).edge_table(0)
    b = FactorGraph.from_terms(np.zeros((3, 3)), [BLOCKS[second](again)]).edge_table(0)
    assert (g.edge_table(1) == a + (b.T if reverse else b)).all()
    alone = FactorGraph.from_terms(np.zeros((3, 3)), terms)
    assert (g.edge_table(0) == alone.edge_table(0)).all()
    assert (g.edge_table(2) == alone.edge_table(2)).all()


def test_many_parallel_edges_are_merged_in_blocks():
    """Tables have more entries than a block holds."""
    rng = np.random.default_rng(0)
    edges = random_pairs(rng, 6, 60)
    diagonals, apart, tables = (rng.normal(size=(60, *shape)) for shape in ((200,), (), (200, 200)))
    g = FactorGraph.from_terms(
        np.zeros((6, 200)), [DiagonalTerms(edges, diagonals, apart), OwnTables(edges, tables)]
    )
    assert g.n_edges <= 15
    expected = dict.fromkeys(map(frozenset, edges.tolist()), 0.0)
    for (i, j), *costs in zip(edges.tolist(), diagonals, apart, tables, strict=True):
        diagonal, other, table = costs
        dense = np.where(np.eye(200, dtype=bool), diagonal, other) + table
        expected[frozenset((i, j))] += dense if i < j else dense.T
    for number, (i, j) in enumerate(g.edges.tolist()):
        table = g.edge_table(number) if i < j else g.edge_table(number).T
        np.testing.assert_allclose(table, expected[frozenset((i, j))], atol=1e-12)


def test_structure_survives_merging():
    """Potts plus Potts is Potts; tables that cancel are Potts; diagonal terms stay diagonal."""
    table = np.arange(9.0).reshape(3, 3)

    def kind(*terms):
        return FactorGraph.from_terms(np.zeros((2, 3)), terms).edge_kinds.tolist()

    assert kind(BLOCKS["potts"]((0, 1)), BLOCKS["must-link"]((1, 0))) == [POTTS]
    assert kind(BLOCKS["potts"]((0, 1)), BLOCKS["diagonal"]((0, 1))) == [DIAGONAL]
    assert kind(BLOCKS["diagonal"]((0, 1)), BLOCKS["own"]((0, 1))) == [TABLE]
    assert kind(OwnTables([(0, 1), (1, 0)], [table, -table.T])) == [POTTS]


@pytest.mark.parametrize("family", BLOCKS)
def test_self_loops_are_refused(family):
    with pytest.raises(ValueError, match=r"edges\[0\] = \(1, 1\) joins a variable to itself"):
        FactorGraph.from_terms(np.zeros((2, 3)), [BLOCKS[family]((1, 1))])


@pytest.mark.parametrize("scope", [(0, 0), (1, 0, 1), (0, 2, 1, 2)])
def test_scopes_that_name_a_variable_twice_are_refused(scope):
    counts = (2, 3, 2)
    with pytest.raises(ValueError, match=r"factor 0 has scope .* names a variable twice"):
        FactorGraph.from_factors(counts, [(scope, np.zeros([counts[v] for v in scope]))])


POTTS_TABLE = np.where(np.eye(3) > 0, 1.0, 2.0)
DIAGONAL_TABLE = np.where(np.eye(3) > 0, [1.0, 2.0, 3.0], 0.5)
DENSE_TABLE = np.arange(9.0).reshape(3, 3)


@pytest.mark.parametrize("form", ["array", "list", "own", "factors", "shared", "weighted"])
@pytest.mark.parametrize(
    ("table", "kind"), [(POTTS_TABLE, POTTS), (DIAGONAL_TABLE, DIAGONAL), (DENSE_TABLE, TABLE)]
)
def test_diagonal_structure_is_recognised(table, kind, form):
    edges = [(0, 1), (1, 2)]
    unary = np.zeros((3, 3))
    g = {
        "array": lambda: FactorGraph.pairwise(unary, edges, np.array([table, table])),
        "list": lambda: FactorGraph.pairwise(unary, edges, [table.tolist(), table.tolist()]),
        "own": lambda: FactorGraph.from_terms(unary, [OwnTables(edges, [table, table])]),
        "factors": lambda: FactorGraph.from_factors([3] * 3, [(e, table) for e in edges]),
        "shared": lambda: FactorGraph.pairwise(unary, edges, table),
        "weighted": lambda: FactorGraph.pairwise(unary, edges, table, [1.0, 3.0]),
    }[form]()
    assert g.edge_kinds.tolist() == [kind, kind]
    assert (g.edge_table(0) == table).all()
    assert (g.edge_table(1) == (3 * table if form == "weighted" else table)).all()


@pytest.mark.parametrize("stacked", [True, False])
def test_structure_is_recognised_edge_by_edge(stacked):
    """One dense table does not make its neighbours dense."""
    tables = [DENSE_TABLE, POTTS_TABLE, DIAGONAL_TABLE, POTTS_TABLE + 1, DENSE_TABLE.T]
    edges = [(i, i + 1) for i in range(5)]
    g = FactorGraph.pairwise(np.zeros((6, 3)), edges, np.array(tables) if stacked else tables)
    assert g.edge_kinds.tolist() == [TABLE, POTTS, DIAGONAL, POTTS, TABLE]
    for e, table in enumerate(tables):
        assert (g.edge_table(e) == table).all()
    assert g.pairwise_values.size == 9 + 1 + 3 + 1 + 9


@pytest.mark.parametrize(
    ("shape", "kind"), [((1, 1), POTTS), ((1, 3), TABLE), ((3, 1), TABLE), ((2, 3), TABLE)]
)
def test_tables_of_odd_shapes(shape, kind):
    table = np.arange(float(np.prod(shape))).reshape(shape)
    g = FactorGraph.from_terms([np.zeros(k) for k in shape], [OwnTables([(0, 1)], [table])])
    assert g.edge_kinds.tolist() == [kind]
    assert (g.edge_table(0) == table).all()
    potts = np.where(np.eye(*shape) > 0, 2.0, 1.0)
    g = FactorGraph.from_terms([np.zeros(k) for k in shape], [OwnTables([(0, 1)], [potts])])
    assert g.edge_kinds.tolist() == [POTTS]
    assert (g.edge_table(0) == potts).all()


def test_shared_costs_are_stored_once():
    edges = [(i, i + 1) for i in range(99)]
    unary = np.zeros((100, 3))
    assert FactorGraph.pairwise(unary, edges, DENSE_TABLE).pairwise_values.size == 9
    assert FactorGraph.pairwise(unary, edges, DIAGONAL_TABLE).pairwise_values.size == 3
    assert FactorGraph.pairwise(unary, edges, POTTS_TABLE).pairwise_values.size == 1
    term = DiagonalTerms(edges, [[1.0, 2.0, 3.0]])
    assert FactorGraph.from_terms(unary, [term]).pairwise_values.size == 3


@given(recipes())
def test_guarantees_of_construction(recipe):
    """At most one term joins two variables, and none joins a variable to itself."""
    g = recipe.build()
    pairs = [tuple(sorted(e)) for e in g.edges.tolist()]
    assert len(set(pairs)) == len(pairs)
    assert all(i != j for i, j in pairs)
    for f in range(g.n_factors):
        scope, _ = g.higher_order(f)
        assert len(scope) == len(set(scope)) >= 3
    assert g.edge_kinds.max(initial=0) <= TABLE
    named = [
        tuple(sorted(e)) for t in recipe.terms for e in np.asarray(t.edges).tolist() if e[0] != e[1]
    ]
    named += [tuple(sorted(set(s))) for s, _ in recipe.factors if len(set(s)) == 2]
    assert pairs == list(dict.fromkeys(named)), "pairs keep the order in which they were named"


# ---------------------------------------------------------------------- bad input

U = np.zeros((3, 2))
E = [(0, 1), (1, 2)]
T = np.zeros((2, 2))


def dented(shape, place, value):
    array = np.zeros(shape)
    array[place] = value
    return array


@pytest.mark.parametrize("value", [NAN, -INF])
@pytest.mark.parametrize(
    ("build", "place"),
    [
        (lambda v: FactorGraph.potts(dented((3, 2), (2, 1), v), E, 1.0), "unary[2, 1]"),
        (lambda v: FactorGraph.potts([[0.0], [0.0, v]], [(0, 1)], 1.0), "unary[1][1]"),
        (lambda v: FactorGraph.potts(U, E, [0.0, v]), "weights[1]"),
        (lambda v: FactorGraph.potts(U, E, v), "weights"),
        (lambda v: FactorGraph.potts(U, E, 1.0, v), "constant"),
        (lambda v: FactorGraph.from_terms(U, [DiagonalTerms(E, [v, 0.0])]), "same[0]"),
        (
            lambda v: FactorGraph.from_terms(U, [DiagonalTerms(E, dented((2, 2), (1, 0), v))]),
            "same[1, 0]",
        ),
        (lambda v: FactorGraph.from_terms(U, [DiagonalTerms(E, 0.0, [0.0, v])]), "differ[1]"),
        (lambda v: FactorGraph.pairwise(U, E, dented((2, 2), (0, 1), v)), "table[0, 1]"),
        (lambda v: FactorGraph.pairwise(U, E, T, [v, 0.0]), "weights[0]"),
        (lambda v: FactorGraph.pairwise(U, E, dented((2, 2, 2), (1, 0, 1), v)), "tables[1, 0, 1]"),
        (lambda v: FactorGraph.pairwise(U, E, [T, dented((2, 2), (1, 1), v)]), "tables[1][1, 1]"),
        (
            lambda v: FactorGraph.from_factors(
                [2] * 3, [((0,), [0.0, 0.0]), ((0, 1, 2), dented((2, 2, 2), (0, 1, 0), v))]
            ),
            "factor 1[0, 1, 0]",
        ),
        (lambda v: random_graph("potts", 0).with_unary(np.full((4, 3), v)), "unary[0, 0]"),
    ],
)
def test_nan_and_minus_infinity_are_refused_by_place(build, place, value):
    with pytest.raises(ValueError, match=rf"^{re.escape(place)} is {value}; costs must be finite"):
        build(value)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: FactorGraph.potts(np.zeros(3), E, 1.0), "unary must have shape (n, k)"),
        (lambda: FactorGraph.potts(np.zeros((3, 0)), [], []), "unary has no labels"),
        (lambda: FactorGraph.potts([[0.0], []], [], []), "unary[1] must be a 1-D array"),
        (lambda: FactorGraph.potts([1.0, 2.0], [], []), "unary[0] must be a 1-D array"),
        (lambda: FactorGraph.potts([["a"]], [], []), "unary[0] must be an array of real numbers"),
        (lambda: FactorGraph.potts(U, [(0, 1, 2)], 1.0), "edges must have shape (m, 2)"),
        (lambda: FactorGraph.potts(U, [0, 1], 1.0), "edges must have shape (m, 2)"),
        (lambda: FactorGraph.potts(U, [(0.0, 1.0)], 1.0), "edges must hold integers"),
        (
            lambda: FactorGraph.potts(U, [(0, 1), (1, 3)], 1.0),
            "edges[1] = (1, 3) names a missing variable; the graph has variables 0 to 2",
        ),
        (lambda: FactorGraph.potts(U, [(0, 1), (-1, 0)], 1.0), "edges[1] = (-1, 0) names a miss"),
        (lambda: FactorGraph.potts(U, E, [1.0]), "weights must be a number or have shape (2,)"),
        (
            lambda: FactorGraph.from_terms(U, [DiagonalTerms(E, [1.0, 2.0, 3.0])]),
            "same must be a number or have shape (2,)",
        ),
        (
            lambda: FactorGraph.from_terms(U, [DiagonalTerms(E, np.zeros((2, 1)))]),
            "same must have shape (2, 2) or (1, 2)",
        ),
        (
            lambda: FactorGraph.from_terms(U, [DiagonalTerms(E, np.zeros((3, 2)))]),
            "same must have shape (2, 2) or (1, 2)",
        ),
        (lambda: FactorGraph.from_terms(U, [SharedTable(E, [0.0, 1.0])]), "table must have two"),
        (
            lambda: FactorGraph.pairwise([np.zeros(2), np.zeros(3)], [(0, 1)], T),
            "table has shape (2, 2), but edge 0 = (0, 1) joins variables with 2 and 3 labels",
        ),
        (lambda: FactorGraph.pairwise(U, E, np.zeros((2, 3, 2))), "tables[0] has shape (3, 2)"),
        (lambda: FactorGraph.pairwise(U, E, np.zeros((1, 2, 2))), "tables must have shape (2,"),
        (lambda: FactorGraph.pairwise(U, E, [T]), "1 tables for 2 edges"),
        (lambda: FactorGraph.pairwise(U, E, [T, np.zeros(2)]), "tables[1] must have two axes"),
        (
            lambda: FactorGraph.pairwise(U, E, [T, np.zeros((3, 2))]),
            "tables[1] has shape (3, 2), but edge 1 = (1, 2) joins variables with 2 and 2 labels",
        ),
        (lambda: FactorGraph.pairwise(U, E, [T, T], [1.0, 2.0]), "weights scale one shared"),
        (lambda: FactorGraph.pairwise(U, E, T, [1.0, INF]), "weights[1] is inf"),
        (
            lambda: FactorGraph.pairwise(U, E, [[0.0, INF], [0.0, 0.0]], [1.0, 0.0]),
            "weights[1] = 0.0: a table with +inf entries needs positive weights",
        ),
        (
            lambda: FactorGraph.pairwise(U, E, [[0.0, INF], [0.0, 0.0]], [-1.0, 1.0]),
            "weights[0] = -1.0: a table with +inf entries needs positive weights",
        ),
        (lambda: FactorGraph.potts(U, E, 1.0, INF), "constant is inf"),
        (lambda: FactorGraph.from_factors([2], [((), INF)]), "constant is inf"),
        (lambda: FactorGraph.from_factors([2, 0], []), "cardinalities[1] = 0"),
        (lambda: FactorGraph.from_factors([2.0], []), "cardinalities must be integers"),
        (lambda: FactorGraph.from_factors([[2]], []), "cardinalities must have shape (n,)"),
        (
            lambda: FactorGraph.from_factors([2, 2], [((0,), [0, 0]), ((0, 2), T)]),
            "factor 1 has scope (0, 2), which names a missing variable",
        ),
        (lambda: FactorGraph.from_factors([2], [((-1,), [0, 0])]), "factor 0 has scope (-1,)"),
        (
            lambda: FactorGraph.from_factors([2, 3], [((1, 0), np.zeros((2, 3)))]),
            "factor 0 over (1, 0) has a table of shape (2, 3), but its variables have (3, 2)",
        ),
        (lambda: FactorGraph.potts(U, E, 1.0).with_unary(np.zeros((2, 3))), "unary must hold 6"),
        (lambda: FactorGraph.potts(U, E, 1.0).with_unary(np.zeros(5)), "unary must hold 6"),
        (lambda: FactorGraph.potts(U, E, 1.0).with_unary(np.zeros((1, 3, 2))), "unary must hold"),
        (lambda: FactorGraph.potts(U, E, 1.0).with_evidence({3: 0}), "evidence names variable 3"),
        (lambda: FactorGraph.potts(U, E, 1.0).with_evidence({-1: 0}), "evidence names variable -1"),
        (
            lambda: FactorGraph.potts(U, E, 1.0).with_evidence({1: 2}),
            "evidence gives variable 1 label 2; it has 0 to 1",
        ),
        (lambda: FactorGraph.from_factors([2, 3], []).unary, "cardinalities differ"),
    ],
)
def test_bad_input_is_refused_with_its_place(build, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        build()


# ---------------------------------------------------------------------- edge cases


def test_empty_graph():
    for g in (
        FactorGraph.from_factors([], [], 1.5),
        FactorGraph.potts(np.empty((0, 3)), [], [], 1.5),
        FactorGraph.potts([], [], [], 1.5),
    ):
        assert g.energy([]) == 1.5
        assert g.energy(np.empty((2, 0), dtype=int)).tolist() == [1.5, 1.5]
        assert (g.n_variables, g.n_edges, g.n_factors) == (0, 0, 0)
        assert g.is_forest and g.components.size == 0 and g.breadth_first_order.size == 0
        assert g.arrays.adj_ptr.tolist() == [0] and g.log2_states == 0 and not g.has_infinite
        assert list(g.factors()) == [] and "0 variables" in repr(g)


@pytest.mark.parametrize("empty", [[], np.empty((0, 2), int), np.empty((0, 2))])
def test_terms_without_edges(empty):
    terms = [
        DiagonalTerms(empty),
        DiagonalTerms(empty, np.empty((0, 2)), []),
        SharedTable(empty, DENSE_TABLE),
        OwnTables(empty, []),
        OwnTables(empty, np.empty((0, 2, 2))),
    ]
    g = FactorGraph.from_terms(U, terms)
    assert g.n_edges == 0 and g.energy([0, 1, 0]) == 0.0


def test_degrees_and_numbers_of_labels():
    g = FactorGraph.from_factors(
        [2, 3, 4], [((0, 1), np.ones((2, 3))), ((0, 1, 2), np.ones((2, 3, 4)))]
    )
    assert g.n_labels is None and g.log2_states == pytest.approx(math.log2(24))
    assert g.degrees.tolist() == [2, 2, 1]
    assert FactorGraph.from_factors([3, 3], []).n_labels == 3
    assert FactorGraph.potts([[1.0, 2.0], [3.0, 4.0]], [], []).unary.tolist() == [[1, 2], [3, 4]]


def test_repr_counts_variables_and_terms():
    g = FactorGraph.from_terms(
        [[0.0] * 2, [0.0] * 3, [0.0] * 3],
        [DiagonalTerms([(0, 1)], [[1.0, 2.0]]), OwnTables([(1, 2)], [DENSE_TABLE])],
        [((0, 1, 2), np.ones((2, 3, 3)))],
    )
    assert repr(g) == (
        "FactorGraph(3 variables x 2-3 labels; terms: 1 diagonal, 1 table, 1 higher-order)"
    )
    assert (
        repr(FactorGraph.potts(U, E, 1.0)) == "FactorGraph(3 variables x 2 labels; terms: 2 Potts)"
    )
    assert "unary only" in repr(FactorGraph.potts(U, [], []))


@pytest.mark.parametrize("part", ["unary", "potts", "diagonal", "table", "factor", "none"])
def test_has_infinite(part):
    factor = np.zeros((2, 2, 2))
    factor[0, 1, 1] = INF if part == "factor" else 1.0
    g = FactorGraph.from_terms(
        [[0.0, INF if part == "unary" else 1.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]],
        [
            DiagonalTerms([(0, 1)], 0.0, INF if part == "potts" else 1.0),
            DiagonalTerms([(1, 2)], [[0.0, INF if part == "diagonal" else 1.0]]),
            OwnTables([(2, 3)], [[[0.0, 1.0], [INF if part == "table" else 2.0, 5.0]]]),
        ],
        [((0, 1, 2), factor)],
    )
    assert g.has_infinite == (part != "none")


# ---------------------------------------------------------------------- frozen

STORED = [f.name for f in dataclasses.fields(FactorGraph)]
ARRAYS = [name for name in STORED if name not in ("constant", "label_costs")]


def test_graphs_are_frozen():
    g = random_graph("mixed", 1)
    for name in STORED:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(g, name, getattr(g, name))
    derived = [*g.arrays, g.degrees, g.components, g.breadth_first_order, g.unary_of(0)]
    for array in [*(getattr(g, name) for name in ARRAYS), *derived]:
        assert not array.flags.writeable
        assert array.flags.c_contiguous
    with pytest.raises(ValueError, match="read-only"):
        g.unary_values[0] = 1.0


def test_input_arrays_stay_the_callers():
    """Arrays are neither frozen by the graph nor shared with it."""
    unary, weights, same = np.zeros((3, 2)), np.ones(2), np.ones((2, 2))
    edges, tables, factor = np.array(E), np.arange(8.0).reshape(2, 2, 2), np.ones((2, 2, 2))
    counts = np.array([2, 2, 2])
    g = FactorGraph.from_terms(
        unary,
        [DiagonalTerms(edges, same, weights), OwnTables(edges, tables)],
        [((0, 1, 2), factor)],
    )
    h = FactorGraph.from_factors(counts, [((0, 1, 2), factor)])
    shared = FactorGraph.from_terms(unary, [SharedTable(edges, tables[0], weights)])
    before = [x.content_hash for x in (g, h, shared)]
    rows = g.energy([[0, 1, 0], [1, 1, 1]]).tolist()
    for array in (unary, weights, same, edges, tables, factor, counts):
        array[...] = 1 - array
    assert g.energy([[0, 1, 0], [1, 1, 1]]).tolist() == rows
    again = [pickle.loads(pickle.dumps(x)).content_hash for x in (g, h, shared)]
    assert again == before


@pytest.mark.parametrize("family", FAMILIES)
def test_pickling_keeps_the_graph_and_freezes_it_again(family):
    g = random_graph(family, 2)
    lean = len(pickle.dumps(g))
    assert g.arrays is g.arrays and g.components is g.components
    assert len(pickle.dumps(g)) == lean, "what is derived does not travel"
    for again in (pickle.loads(pickle.dumps(g)), copy.deepcopy(g), copy.copy(g)):
        assert again.content_hash == g.content_hash
        for name in ARRAYS:
            assert not getattr(again, name).flags.writeable
        x = np.zeros(g.n_variables, dtype=int)
        assert again.energy(x) == g.energy(x)
        for a, b in zip(again.arrays, g.arrays, strict=True):
            assert (a == b).all() and a.dtype == b.dtype


def test_content_hash_is_that_of_the_content():
    def build(**change):
        parts = {
            "unary": np.arange(6.0).reshape(3, 2),
            "edges": [(0, 1), (1, 2)],
            "weights": [1.0, 2.0],
            "constant": 0.0,
            "factor": np.arange(8.0).reshape(2, 2, 2),
            **change,
        }
        return FactorGraph.from_terms(
            parts["unary"],
            [DiagonalTerms(parts["edges"], 0.5, parts["weights"])],
            [((0, 1, 2), parts["factor"])],
            parts["constant"],
        ).content_hash

    assert build() == build()
    assert re.fullmatch("[0-9a-f]{64}", build())
    changed = [
        build(unary=np.arange(6.0).reshape(3, 2) + np.eye(3, 2) * 1e-15),
        build(edges=[(0, 1), (2, 1)]),
        build(edges=[(1, 2), (0, 1)]),
        build(edges=[(0, 1), (0, 2)]),
        build(weights=[1.0, 2.5]),
        build(constant=1.0),
        build(factor=np.arange(8.0)[::-1].reshape(2, 2, 2)),
    ]
    assert len({build(), *changed}) == 1 + len(changed)
    # The same numbers split into variables differently are another graph.
    rows = [FactorGraph.potts([[0.0] * k for k in cut], [], []) for cut in ((2, 3), (3, 2))]
    assert rows[0].content_hash != rows[1].content_hash


# ---------------------------------------------------------------------- derived structure


@given(recipes())
def test_adjacency_is_the_naive_one(recipe):
    g = recipe.build()
    a = g.arrays
    position = {}
    for i in range(g.n_variables):
        halves = a.adj_half[a.adj_ptr[i] : a.adj_ptr[i + 1]].tolist()
        naive = [
            2 * e + s for e, ends in enumerate(g.edges.tolist()) for s in (0, 1) if ends[s] == i
        ]
        assert halves == naive
        position.update({h: int(a.adj_ptr[i]) + at for at, h in enumerate(halves)})
        slots = a.inc_slot[a.inc_ptr[i] : a.inc_ptr[i + 1]].tolist()
        assert slots == [s for s, v in enumerate(a.scopes.tolist()) if v == i]
    for h, at in position.items():
        assert a.adj_var[at] == g.edges[h // 2, 1 - h % 2]
        assert a.reverse_positions()[at] == position[h ^ 1]
    assert a.adj_ptr[-1] == 2 * g.n_edges == len(position)
    for f in range(g.n_factors):
        assert (a.slot_factor[a.factor_ptr[f] : a.factor_ptr[f + 1]] == f).all()
    assert (g.degrees == np.diff(a.adj_ptr) + np.diff(a.inc_ptr)).all()


def factor_graph_of(g: FactorGraph) -> nx.Graph:
    """Return the bipartite graph of variables and terms."""
    h = nx.Graph()
    h.add_nodes_from(range(g.n_variables))
    for name, (scope, _) in enumerate(g.factors()):
        h.add_edges_from((v, ("term", name)) for v in scope if len(scope) > 1)
    return h


def random_structure(seed: int) -> FactorGraph:
    """Draw a sparse graph of many components, some of them trees, some with factors."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 60))
    edges = random_pairs(rng, n, int(rng.integers(0, n)))
    scopes = [rng.permutation(n)[: rng.integers(3, 5)] for _ in range(rng.integers(0, n // 6 + 1))]
    return FactorGraph.from_terms(
        np.zeros((n, 2)),
        [DiagonalTerms(edges, 0.0, 1.0)],
        [(s, rng.normal(size=(2,) * len(s))) for s in scopes],
    )


def test_components_and_forests_agree_with_networkx():
    forests = 0
    for seed in range(150):
        g = random_structure(seed)
        reference = factor_graph_of(g)
        groups = [
            sorted(v for v in c if isinstance(v, int)) for c in nx.connected_components(reference)
        ]
        number = {v: rank for rank, group in enumerate(sorted(groups)) for v in group}
        assert g.components.tolist() == [number[v] for v in range(g.n_variables)]
        assert g.is_forest == nx.is_forest(reference)
        forests += g.is_forest
    assert 20 < forests < 130


def test_a_factor_next_to_an_edge_within_it_is_a_cycle():
    g = FactorGraph.from_terms(
        np.zeros((3, 2)), [DiagonalTerms([(0, 2)], 1.0)], [((0, 1, 2), np.ones((2, 2, 2)))]
    )
    assert not g.is_forest
    assert FactorGraph.from_factors([2] * 3, [((0, 1, 2), np.ones((2, 2, 2)))]).is_forest


def test_breadth_first_order():
    """A permutation, one component after another, by distance from the first variable."""
    for seed in range(100):
        g = random_structure(seed)
        reference = factor_graph_of(g)
        order = g.breadth_first_order.tolist()
        assert sorted(order) == list(range(g.n_variables))
        blocks = [list(b) for _, b in itertools.groupby(order, key=lambda v: g.components[v])]
        assert len(blocks) == len(set(g.components.tolist()))
        for block in blocks:
            distance = nx.single_source_shortest_path_length(reference, block[0])
            assert block[0] == min(block)
            assert [distance[v] for v in block] == sorted(distance[v] for v in block)


# ---------------------------------------------------------------------- variations


@given(recipes(min_variables=1), st.data())
def test_with_evidence_forbids_everything_else(recipe, data):
    g = recipe.build()
    observed = data.draw(st.sets(st.integers(0, g.n_variables - 1)))
    evidence = {v: data.draw(st.integers(0, int(g.cardinalities[v]) - 1)) for v in observed}
    conditioned = g.with_evidence(evidence)
    for x in recipe.labellings():
        agrees = all(x[v] == a for v, a in evidence.items())
        assert conditioned.energy(x) == (g.energy(x) if agrees else INF)
    assert not conditioned.unary_values.flags.writeable


@pytest.mark.parametrize("family", ["potts", "ragged", "higher-order", "mixed"])
@pytest.mark.parametrize("derived", [True, False])
def test_with_unary_shares_the_structure(family, derived):
    g = random_graph(family, 4)
    if derived:
        assert g.arrays and g.has_infinite in (True, False)
        assert g.components.size and g.is_forest in (True, False) and g.content_hash
    values = np.random.default_rng(0).normal(size=g.unary_values.size)
    h = g.with_unary(values)
    fresh = FactorGraph.from_factors(
        g.cardinalities,
        [((i,), v) for i, v in enumerate(np.split(values, g.unary_ptr[1:-1]))]
        + [f for f in g.factors() if len(f[0]) > 1],
        g.constant,
    )
    assert same_energies(h, fresh)
    assert (h.arrays.unary == values).all() and not h.arrays.unary.flags.writeable
    assert h.content_hash != g.content_hash
    assert (h.components == g.components).all() and h.is_forest == g.is_forest
    if derived:
        assert h.arrays.adj_half is g.arrays.adj_half, "the adjacency is not sorted again"
        assert h.components is g.components
    hard = g.with_unary(np.where(np.arange(values.size) == 0, INF, values))
    assert hard.has_infinite
    assert il.solve(h, "brute-force").energy == pytest.approx(il.solve(fresh, "brute-force").energy)


# ---------------------------------------------------------------------- closed forms

K4 = truncated_linear(4, 0.7, 1.6, -3.0)
ABS5 = np.abs(np.subtract.outer(np.arange(5.0), np.arange(5.0)))


@pytest.mark.parametrize(
    ("table", "weight", "form"),
    [
        (K4, 1.0, TRUNCATED_LINEAR),
        (K4, 0.0, TRUNCATED_LINEAR),
        (K4, 2.5, TRUNCATED_LINEAR),
        (K4, -1.0, NO_FORM),
        (1 / 3 * np.minimum(ABS5, 2) + 0.1, 1 / 7, TRUNCATED_LINEAR),
        (ABS5, 1.0, TRUNCATED_LINEAR),
        (np.where(ABS5 == 4, 3.5, ABS5), 1.0, TRUNCATED_LINEAR),
        (-ABS5, 1.0, NO_FORM),
        (ABS5**2, 1.0, TRUNCATED_QUADRATIC),
        (ABS5**2, -1.0, NO_FORM),
        (1 / 3 * np.minimum(ABS5**2, 5.5) + 0.1, 1 / 7, TRUNCATED_QUADRATIC),
        (ABS5**3, 1.0, NO_FORM),
        (np.sqrt(ABS5), 1.0, NO_FORM),
        (K4 + 1e-9 * (np.arange(16) == 6).reshape(4, 4), 1.0, NO_FORM),
        (K4 + 1e-9 * np.eye(4)[2], 1.0, NO_FORM),
        (ABS5**2 + 1e-9 * np.eye(5)[2], 1.0, NO_FORM),
        (np.triu(K4), 1.0, NO_FORM),
        (np.where(ABS5 == 4, 2.5, ABS5), 1.0, NO_FORM),
        (np.where(ABS5 > 1, INF, ABS5), 1.0, NO_FORM),
        (np.where(ABS5 == 4, INF, ABS5), 1.0, NO_FORM),
        (np.where(ABS5 == 4, INF, ABS5**2), 1.0, NO_FORM),
        (np.where(ABS5 == 0, INF, ABS5), 1.0, NO_FORM),
    ],
)
@pytest.mark.parametrize("shared", [True, False])
def test_closed_forms_are_recognised_and_nothing_else(table, weight, form, shared):
    k = len(table)
    edges = [(0, 1), (2, 1)]
    if shared or weight <= 0:
        g = FactorGraph.pairwise(np.zeros((3, k)), edges, table, [weight, weight])
    else:
        g = FactorGraph.pairwise(np.zeros((3, k)), edges, np.array([weight * table] * 2))
    assert g.edge_kinds.tolist() == [TABLE, TABLE]
    assert g.arrays.forms.tolist() == [form, form]


def test_forms_are_found_among_other_edges():
    """Ragged cardinalities, diagonal edges and tables without a form are in one graph."""
    terms = [
        OwnTables(
            [(0, 1), (1, 2), (3, 4), (4, 5)],
            [np.ones((2, 3)) + np.eye(2, 3, 1), truncated_linear(3, 1, 1.5), ABS5, ABS5**2],
        ),
        DiagonalTerms([(0, 5)], 1.0),
    ]
    g = FactorGraph.from_terms([np.zeros(k) for k in (2, 3, 3, 5, 5, 5)], terms)
    expected = [NO_FORM, TRUNCATED_LINEAR, TRUNCATED_LINEAR, TRUNCATED_QUADRATIC, NO_FORM]
    assert g.arrays.forms.tolist() == expected


# ---------------------------------------------------------------------- bulk


@pytest.mark.parametrize("kind", ["potts", "repeated", "diagonal", "shared", "own"])
def test_bulk_construction_has_no_python_loop_over_edges(kind):
    """200,000 edges: a fixed number of calls, and memory of the size of the arrays."""
    n, m, k = 50_000, 200_000, 3
    rng = np.random.default_rng(0)
    unary = rng.normal(size=(n, k))
    start = rng.integers(0, n - 1, size=m)
    edges = np.stack([start, start + 1 + rng.integers(0, n - 1 - start)], axis=1)
    if kind != "repeated":
        edges = np.unique(edges, axis=0)
    m = len(edges)
    term = {
        "potts": lambda: DiagonalTerms(edges, 0.0, rng.normal(size=m)),
        "repeated": lambda: DiagonalTerms(
            np.concatenate([edges, edges[:, ::-1]]), rng.normal(size=(2 * m, k))
        ),
        "diagonal": lambda: DiagonalTerms(edges, rng.normal(size=(m, k))),
        "shared": lambda: SharedTable(edges, DENSE_TABLE, rng.normal(size=m)),
        "own": lambda: OwnTables(edges, rng.normal(size=(m, k, k))),
    }[kind]()
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    tracemalloc.start()
    sys.setprofile(count)
    try:
        g = FactorGraph.from_terms(unary, [term])
        assert g.arrays.adj_half.size == 2 * g.n_edges
    finally:
        sys.setprofile(None)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert calls < 3000
    n_bytes = sum(getattr(g, name).nbytes for name in ARRAYS) + sum(a.nbytes for a in g.arrays)
    assert peak < 6 * n_bytes
    x = rng.integers(0, k, size=n)
    i, j = edges.T
    if kind == "potts":
        expected = unary[np.arange(n), x].sum() + term.differ[x[i] != x[j]].sum()
        assert g.energy(x) == pytest.approx(expected)


# ---------------------------------------------------------------------- what is taken, what not


@pytest.mark.parametrize("scope", [(0.0, 1.0), (True, False), "01", ("0", "1"), 0, (0, None)])
def test_scopes_are_sequences_of_integers(scope):
    with pytest.raises(
        ValueError, match=r"factor 0 has scope .* a scope is a sequence of integers"
    ):
        FactorGraph.from_factors([2, 2], [(scope, np.zeros((2, 2)))])


BAD_COSTS = {
    "complex": (np.array([1.0, 2j]), "dtype complex128"),
    "complex object": (np.array([1.0, 2j], dtype=object), "not all of them are real"),
    "masked": (np.ma.array([1.0, 2.0], mask=[False, True]), "is a masked array"),
    "none": ([1.0, None], "not all of them are real"),
    "text": (["1", "2"], "real numbers, got dtype <U1"),
    "object text": (np.array([1.0, "2"], dtype=object), "not all of them are real"),
    "long integer": ([0, 10**400], "must be an array of numbers"),
    "long double": (np.array([0, np.longdouble("1e300") ** 10]), "must not exceed|is inf"),
    "too large": ([0.0, -1.1e100], r"1\] is -1.1e\+100; costs must not exceed 1e\+100"),
}


@pytest.mark.parametrize("name", BAD_COSTS)
@pytest.mark.parametrize("where", ["unary", "row", "factor", "tables", "weights"])
def test_costs_are_real_numbers_of_a_size_that_can_be_added_up(name, where):
    costs, refusal = BAD_COSTS[name]
    if name == "long double" and np.finfo(np.longdouble).max == np.finfo(np.float64).max:
        pytest.skip("long doubles are doubles here")
    two = np.zeros((2, 2))
    build = {
        "unary": lambda: FactorGraph.from_terms([costs, [0.0, 0.0]]),
        "row": lambda: FactorGraph.potts([[0.0, 0.0], costs], [(0, 1)], 1.0),
        "factor": lambda: FactorGraph.from_factors([2, 2], [((1,), costs)]),
        "tables": lambda: (
            FactorGraph.from_terms(two, [DiagonalTerms([(0, 1)], [costs])])
            if not isinstance(costs, np.ndarray)
            else FactorGraph.from_terms(two, [DiagonalTerms([(0, 1)], costs[None])])
        ),
        "weights": lambda: FactorGraph.potts(two, [(0, 1), (1, 0)], costs),
    }
    with pytest.raises(ValueError, match=refusal):
        build[where]()


def test_costs_whose_sum_exceeds_the_limit_are_refused():
    two, limit = np.zeros((2, 2)), -1e100
    with pytest.raises(ValueError, match=r"sum of all terms on \(0, 1\)\[0, 1\] is -2e\+100"):
        FactorGraph.potts(two, [(0, 1), (1, 0)], [limit, limit])
    with pytest.raises(ValueError, match=r"sum of all terms on \(0, 1\)\[1, 1\] is -2e\+100"):
        FactorGraph.pairwise(two, [(0, 1), (0, 1)], [[[0.0, 1.0], [0.0, limit]]] * 2)
    with pytest.raises(ValueError, match=r"sum of unary and factors, flat,\[3\] is -2e\+100"):
        FactorGraph.from_factors([2, 2], [((1,), [0.0, limit])] * 2)
    with pytest.raises(ValueError, match="sum of all constants is -2e"):
        FactorGraph.from_factors([2], [((), limit)], constant=limit)
    with pytest.raises(ValueError, match=r"weights\[1\] = 1e\+60 times 1e\+50"):
        FactorGraph.pairwise(two, [(0, 1), (1, 0)], [[0.0, 1.0], [2.0, -1e50]], [1.0, 1e60])


def test_a_table_of_pandas_is_taken_as_its_values():
    pd = pytest.importorskip("pandas")
    unary, table = np.array([[0.0, 1.0], [2.0, 3.5]]), np.array([[0.0, 1.0], [2.0, 3.0]])
    edges = np.array([[0, 1]])
    expected = FactorGraph.pairwise(unary, edges, table).content_hash
    frame = pd.DataFrame(unary, columns=["a", "b"], index=[7, 8])
    ends = pd.DataFrame(edges, columns=["from", "to"])
    assert FactorGraph.pairwise(frame, ends, pd.DataFrame(table)).content_hash == expected
    factors = [((0, 1), pd.DataFrame(table)), ((0,), frame.loc[7]), ((1,), frame.loc[8])]
    taken = FactorGraph.from_factors(pd.Series([2, 2]), factors)
    assert taken.content_hash == expected
    before = unary.copy()
    FactorGraph.from_factors([2, 2], factors)
    assert (unary == before).all()


def test_magnitude_is_the_most_that_terms_can_cost():
    """Compare with dense tables, for terms of all kinds and infinite costs; scaling keeps it."""
    for family in {**FAMILIES, **SCALES}:
        for seed in range(3):
            graph = random_graph(family, seed)
            tables = [t[np.isfinite(t)] for _, t in graph.factors()]
            expected = abs(graph.constant) + sum(float(np.abs(t).max(initial=0.0)) for t in tables)
            slack = 0.0
            if (graph.cardinalities == 1).any():
                slack = float(np.abs(graph.edge_weights[np.isfinite(graph.edge_weights)]).sum())
            assert expected * (1 - 1e-12) <= graph.magnitude <= expected * (1 + 1e-12) + slack
            values = graph.unary_values
            assert graph.with_unary(values).magnitude == graph.magnitude
            if family in FAMILIES:
                small = scaled(graph, -7)
                assert small.magnitude == pytest.approx(graph.magnitude / 128)
                x = np.zeros(graph.n_variables, dtype=int)
                assert small.energy(x) == graph.energy(x) / 128


@pytest.mark.parametrize("largest", [3, 1000])
def test_shapes_are_grouped_by_first_appearance(largest):
    shapes = np.random.default_rng(0).integers(1, largest, (500, 3))
    groups = by_shape(shapes)
    expected: dict[tuple[int, ...], list[int]] = {}
    for place, shape in enumerate(shapes.tolist()):
        expected.setdefault(tuple(shape), []).append(place)
    assert [(shape, places.tolist()) for shape, places in groups] == list(expected.items())
    assert by_shape(shapes[:0]) == []


@pytest.mark.parametrize("n", [200, 300, 70_000])
def test_half_edges_lie_by_variable_in_rising_order(n):
    """The order holds for any naming of edges and scopes, with numbers of 8, 16 and more bits."""
    rng = np.random.default_rng(0)
    edges = random_pairs(rng, n, 2 * n)
    scopes = np.stack([rng.choice(n, size=3, replace=False) for _ in range(100)])
    tables = rng.normal(size=(100, 2, 2, 2))
    potts = DiagonalTerms(edges, 0.0, 1.0)
    g = FactorGraph.from_terms(np.zeros((n, 2)), [potts], [(scopes, tables)]).arrays
    for ends, places, ptr in (
        (g.edges.ravel(), g.adj_half, g.adj_ptr),
        (g.scopes, g.inc_slot, g.inc_ptr),
    ):
        expected = sorted(range(ends.size), key=lambda place, ends=ends: (ends[place], place))
        assert places.tolist() == expected
        assert np.diff(ptr).tolist() == np.bincount(ends, minlength=n).tolist()
