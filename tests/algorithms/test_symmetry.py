"""Interchangeable labels: found exactly, and numbering them loses no optimum."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import labellings

import inference_lab as il
import inference_lab.solvers.branch_and_bound as branch_and_bound
from inference_lab.algorithms.symmetry import break_symmetry
from inference_lab.graph.random_graphs import FAMILIES, random_graph

PAIRS = [(0, 1), (1, 2), (2, 3), (0, 3), (0, 2), (3, 4)]


def check(graph, symmetry):
    """Each labelling has a copy of equal energy, of allowed labels only."""
    allowed = symmetry.allowed(graph).reshape(graph.n_variables, -1)
    every = labellings(graph)
    for x in every:
        copy = symmetry.numbered(x)
        assert allowed[np.arange(x.size), copy].all()
        assert (symmetry.numbered(copy) == copy).all()
    copies = np.array([symmetry.numbered(x) for x in every])
    assert np.array_equal(graph.energy(copies), graph.energy(every))


def symmetric(kind, classes, seed):
    """Draw a graph with exactly the given classes of labels."""
    rng = np.random.default_rng(seed)
    k = sum(classes)
    of = np.repeat(np.arange(len(classes)), classes)
    unary = rng.random((5, len(classes)))[:, of]
    if kind == "diagonal":
        same = rng.random((len(PAIRS), len(classes)))[:, of]
        term = il.DiagonalTerms(PAIRS, same, rng.random(len(PAIRS)))
        return il.FactorGraph.from_terms(unary, [term])
    arity = 3 if kind == "factors" else 2
    blocks = rng.random([len(PAIRS)] + [len(classes)] * arity)
    tables = blocks[np.ix_(range(len(PAIRS)), *[of] * arity)]
    for labels in itertools.product(range(k), repeat=arity):
        # Equal labels cost differently from distinct labels of the same class.
        tables[(slice(None), *labels)] += 10.0 * len(set(labels))
    if kind == "tables":
        return il.FactorGraph.from_terms(unary, [il.OwnTables(PAIRS, tables)])
    scopes = [(i, j, (j + 1) % 5 if (j + 1) % 5 != i else (j + 2) % 5) for i, j in PAIRS]
    factors = [((i,), unary[i]) for i in range(5)]
    factors += list(zip(scopes, tables, strict=True))
    return il.FactorGraph.from_factors([k] * 5, factors)


@pytest.mark.parametrize("kind", ["diagonal", "tables", "factors"])
@pytest.mark.parametrize("classes", [(3,), (2, 1), (1, 2), (2, 2), (1, 3), (4,)])
def test_classes_are_found_and_no_optimum_is_lost(kind, classes):
    graph = symmetric(kind, classes, 3)
    symmetry = break_symmetry(graph)
    ends = np.cumsum(classes)
    wanted = [
        list(range(end - size, end)) for end, size in zip(ends, classes, strict=True) if size > 1
    ]
    assert [labels.tolist() for labels in symmetry.classes] == wanted
    assert len(set(symmetry.sequence)) == len(symmetry.sequence) == max(classes) - 1
    check(graph, symmetry)


@pytest.mark.parametrize("kind", ["diagonal", "tables", "factors"])
def test_labels_that_differ_anywhere_stay(kind):
    """One unary, diagonal, table or factor entry alone suffices to distinguish labels."""
    graph = symmetric(kind, (3,), 1)
    values = graph.unary_values.copy()
    values[4] += 1e-9
    assert [c.tolist() for c in break_symmetry(graph.with_unary(values)).classes] == [[0, 2]]
    assert break_symmetry(symmetric(kind, (1, 1, 1), 1)) is None
    if kind == "diagonal":
        same = np.ones((len(PAIRS), 3))
        same[2, 1] = 0.5
        term = il.DiagonalTerms(PAIRS, same, 0.0)
        other = il.FactorGraph.from_terms(np.zeros((5, 3)), [term])
    elif kind == "tables":
        tables = np.ones((len(PAIRS), 3, 3)) - np.eye(3)
        tables[2, 0, 1] = 0.5
        other = il.FactorGraph.from_terms(np.zeros((5, 3)), [il.OwnTables(PAIRS, tables)])
    else:
        table = np.zeros((3, 3, 3))
        table[1, 0, 2] = 1.0
        other = il.FactorGraph.from_factors([3] * 5, [((0, 1, 2), table)])
    symmetry = break_symmetry(other)
    assert symmetry is None or [c.tolist() for c in symmetry.classes] == [[0, 2]]


@given(st.sampled_from(sorted(FAMILIES)), st.integers(0, 300), st.booleans())
def test_random_graphs(family, seed, without_unaries):
    graph = random_graph(family, seed)
    if without_unaries:
        graph = graph.with_unary(np.zeros_like(graph.unary_values))
    symmetry = break_symmetry(graph)
    if symmetry is not None and graph.log2_states <= 14:
        check(graph, symmetry)


def test_unsupported_graphs_have_no_symmetry_breaking():
    unequal = il.FactorGraph.from_factors([2, 3], [((0, 1), np.zeros((2, 3)))])
    assert break_symmetry(unequal) is None
    graph = il.FactorGraph.potts(np.zeros((3, 3)), [(0, 1), (1, 2)], -1.0)
    assert break_symmetry(graph) is not None
    assert break_symmetry(graph.with_label_costs([1.0, 0.0, 0.0])) is None
    assert break_symmetry(il.FactorGraph.potts(np.zeros((0, 3)), [], [])) is None


def test_sequence_follows_repulsive_terms():
    """Hard and strong cannot-links come first, regardless of attractive terms."""
    edges = [(0, 1), (1, 2), (2, 3), (3, 4), (2, 4), (0, 4)]
    same = np.array([0.0, 1.0, np.inf, np.inf, np.inf, 0.0])
    graph = il.FactorGraph.from_terms(
        np.zeros((5, 4)), [il.DiagonalTerms(edges, same, np.where(same == 0.0, 50.0, 0.0))]
    )
    assert set(break_symmetry(graph).sequence) == {2, 3, 4}


def colouring(seed):
    rng = np.random.default_rng(seed)
    edges = np.array(list(itertools.combinations(range(14), 2)))
    cost = 0.5 + rng.random(len(edges))
    must = rng.random(len(edges)) < 0.3
    term = il.DiagonalTerms(edges, np.where(must, 0.0, cost), np.where(must, cost, 0.0))
    return il.FactorGraph.from_terms(np.zeros((14, 4)), [term])


def test_branch_and_bound_searches_less(monkeypatch):
    """Without symmetry breaking each labelling has 4! copies."""
    graph = colouring(0)
    search = il.solve(graph, "branch-and-bound")
    monkeypatch.setattr(branch_and_bound, "break_symmetry", lambda graph: None)
    without = il.solve(graph, "branch-and-bound")
    assert search.status.value == without.status.value == "optimal"
    assert search.energy == pytest.approx(without.energy)
    assert search.diagnostics["nodes"] < 0.5 * without.diagnostics["nodes"]


@pytest.mark.parametrize("reduce", ["true", "false"])
def test_relaxations_are_less_fractional(reduce):
    """Without symmetry breaking all labels at 1/4 cost nothing."""
    graph = colouring(0)
    assert il.solve(graph, "lp-relaxation").lower_bound == pytest.approx(0.0, abs=1e-6)
    s = il.solve(graph, f"ilp(reduce={reduce})")
    assert s.status.value == "optimal"
    assert s.diagnostics["lp_bound"] > 1.0
    assert s.energy == pytest.approx(il.solve(graph, "branch-and-bound").energy)
