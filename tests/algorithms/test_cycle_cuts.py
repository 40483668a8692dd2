"""Cycle cuts against enumeration: valid for every labelling, found if violated, exact if proved."""

from __future__ import annotations

import itertools
import math

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import labellings

import inference_lab as il
from inference_lab.algorithms.linear import cycle_cuts
from inference_lab.algorithms.linear.backends import Relaxation
from inference_lab.algorithms.linear.cycle_cuts import tighten
from inference_lab.algorithms.linear.incremental import IncrementalRelaxation
from inference_lab.algorithms.linear.label_pairs import ALWAYS, label_pairs
from inference_lab.algorithms.linear.model import build_linear_model
from inference_lab.graph.grids import grid_edges
from inference_lab.graph.random_graphs import FAMILIES, random_graph

NONEMPTY = [family for family in FAMILIES if random_graph(family, 0).n_variables]


def signed(n, k, m, seed, scale=0.3):
    """Must-links and cannot-links at random, with small unaries."""
    rng = np.random.default_rng(seed)
    pairs = np.array(list(itertools.combinations(range(n), 2)))
    edges = pairs[rng.choice(len(pairs), size=min(m, len(pairs)), replace=False)]
    w = 0.2 + rng.random(len(edges))
    must = rng.random(len(edges)) < 0.5
    term = il.DiagonalTerms(edges, np.where(must, 0.0, w), np.where(must, w, 0.0))
    return il.FactorGraph.from_terms(scale * rng.random((n, k)), [term])


def tightened(graph, interior=False):
    """Return the relaxation with its cuts, and its solutions, the first without cuts."""
    relaxation = IncrementalRelaxation(build_linear_model(graph))
    first = relaxation.solve()
    if interior:
        relaxation._use_interior_points()
    return relaxation, [first, *tighten(graph, relaxation, first)]


def solution_of(graph, model, x):
    """Return the columns of a labelling that cuts may use: nodes and both ends of label pairs."""
    out = np.zeros(model.n_columns)
    out[graph.unary_ptr[:-1] + x] = 1.0
    pairs = label_pairs(graph)
    joint = pairs.both >= 0
    out[pairs.both[joint]] = out[pairs.first[joint]] * out[pairs.second[joint]]
    return out


@given(st.sampled_from(NONEMPTY), st.integers(0, 1000))
def test_every_labelling_meets_every_cut(family, seed):
    graph = random_graph(family, seed)
    relaxation, solutions = tightened(graph)
    base = build_linear_model(graph)
    rows = relaxation.model.a_ub[base.b_ub.size :]
    rhs = relaxation.model.b_ub[base.b_ub.size :]
    every = labellings(graph)
    finite = np.isfinite(graph.energy(every))
    for x in every[finite][:300]:
        assert (rows @ solution_of(graph, base, x) <= rhs + 1e-9).all()
    if not finite.any():
        return
    assert not solutions[-1].infeasible
    best = float(graph.energy(every).min())
    values = [s.value for s in solutions if s.x is not None]
    assert all(b >= a - 1e-7 * max(1.0, abs(a)) for a, b in itertools.pairwise(values))
    for s in solutions:
        assert s.bound <= best + 1e-9 * max(1.0, abs(best))


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_cuts_of_signed_graphs_are_met_by_every_labelling(k, seed):
    """Cuts hold on graphs made to have many of them."""
    graph = signed(7, k, 14, seed)
    relaxation, _ = tightened(graph)
    base = build_linear_model(graph)
    rows = relaxation.model.a_ub[base.b_ub.size :]
    rhs = relaxation.model.b_ub[base.b_ub.size :]
    assert rhs.size > 0
    columns = np.stack([solution_of(graph, base, x) for x in labellings(graph)], axis=1)
    assert (rows @ columns <= rhs[:, None] + 1e-9).all()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("as_tables", [False, True])
def test_planar_graphs_without_field_are_solved(seed, as_tables):
    """The cut polytope of a planar graph is given by its cycles (Barahona, Mahjoub 1986)."""
    rng = np.random.default_rng(seed)
    edges = grid_edges(3, 4)
    weights = rng.choice([-1.0, 1.0], size=len(edges)) * (0.5 + rng.random(len(edges)))
    graph = il.FactorGraph.potts(np.zeros((12, 2)), edges, weights)
    if as_tables:
        tables = np.stack([graph.edge_table(e) for e in range(graph.n_edges)])
        # Not diagonal, but the same energy: the second end gets back the cost of the first one.
        tables += np.array([[0.0, 0.0], [0.25, 0.25]])
        paid_back = -0.25 * np.bincount(edges[:, 0], minlength=12)
        graph = il.FactorGraph.from_terms(
            np.stack([np.zeros(12), paid_back], axis=1), [il.OwnTables(edges, tables)]
        )
    _, solutions = tightened(graph)
    best = float(graph.energy(labellings(graph)).min())
    assert solutions[-1].value == pytest.approx(best, abs=1e-3)


@pytest.mark.parametrize(("k", "seed"), [(2, 0), (2, 1), (3, 0), (3, 1), (3, 2)])
def test_no_violated_cycle_is_left(k, seed):
    """Check every simple cycle of every label with its most violated subset."""
    graph = signed(7, k, 10, seed)
    _, solutions = tightened(graph)
    x = solutions[-1].x
    pairs = label_pairs(graph)
    assert (pairs.both >= 0).all()
    z = np.clip(x[pairs.first] + x[pairs.second] - 2.0 * x[pairs.both], 0.0, 1.0)
    cycles = 0
    for label in range(k):
        of_label = np.flatnonzero(pairs.first % k == label)
        at = {frozenset(graph.edges[pairs.edge[c]].tolist()): c for c in of_label}
        network = nx.Graph(tuple(pair) for pair in at)
        for cycle in nx.simple_cycles(network):
            ring = [frozenset(p) for p in itertools.pairwise([*cycle, cycle[0]])]
            values = z[[at[pair] for pair in ring]]
            cycles += 1
            for odd in range(1, len(ring) + 1, 2):
                top = np.sort(values)[::-1]
                assert top[:odd].sum() - top[odd:].sum() <= odd - 1 + 2e-3
    assert cycles >= 20


def test_hard_links_take_part():
    """Hard must-links and hard cannot-links have no variables."""
    edges = [(0, 1), (1, 2), (2, 3), (0, 3)]
    same, differ = [0.0, 0.0, 0.0, 1.0], [math.inf, 1.0, math.inf, 0.0]
    graph = il.FactorGraph.from_terms(np.zeros((4, 3)), [il.DiagonalTerms(edges, same, differ)])
    assert (label_pairs(graph).both == ALWAYS).sum() == 6
    _, solutions = tightened(graph)
    assert solutions[0].value == pytest.approx(0.0, abs=1e-9)
    assert solutions[-1].value == pytest.approx(1.0)
    never = il.FactorGraph.from_terms(
        np.zeros((3, 2)), [il.DiagonalTerms([(0, 1), (1, 2), (0, 2)], math.inf, 0.0)]
    )
    _, solutions = tightened(never)
    assert solutions[-1].infeasible


@pytest.mark.parametrize("seed", range(3))
def test_starting_anew_gives_the_same(seed):
    """Without a warm basis only the time differs."""
    graph = signed(9, 3, 20, seed)
    relaxation, solutions = tightened(graph)
    warm = solutions[-1]
    assert Relaxation(relaxation.model).solve().value == pytest.approx(warm.value, rel=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_interior_points_give_the_same_bounds(seed):
    """They start after a long simplex solve, and bounds stay below the optimum."""
    graph = signed(9, 3, 20, seed)
    relaxation, by_simplex = tightened(graph)
    assert "infeasible" not in relaxation._doubtful
    relaxation, solutions = tightened(graph, interior=True)
    assert "infeasible" in relaxation._doubtful
    assert relaxation._solver is not None
    assert solutions[-1].value == pytest.approx(by_simplex[-1].value, rel=1e-3)
    best = float(graph.energy(labellings(graph)).min())
    for relaxed in solutions:
        assert relaxed.bound == pytest.approx(relaxed.value, rel=1e-6)
        assert relaxed.bound <= best + 1e-9
    # From the third round on there is no vertex, and hence no simplex iteration.
    assert {relaxed.iterations for relaxed in solutions[2:]} == {0}


def test_interior_points_do_not_end_a_search_by_themselves():
    """Infeasibility is decided by the simplex method."""
    never = il.FactorGraph.from_terms(
        np.zeros((3, 2)), [il.DiagonalTerms([(0, 1), (1, 2), (0, 2)], math.inf, 0.0)]
    )
    relaxation = IncrementalRelaxation(build_linear_model(never))
    relaxed = relaxation.solve()
    relaxation._use_interior_points()
    *_, last = tighten(never, relaxation, relaxed)
    assert last.infeasible
    assert "infeasible" not in relaxation._doubtful


def test_warm_solutions_follow_added_and_removed_rows():
    """After every change the warm solution equals that of the current model."""
    graph = signed(10, 3, 30, 4)
    relaxation = IncrementalRelaxation(build_linear_model(graph))
    first = relaxation.solve()
    base = relaxation.model.b_ub.size
    rounds = 0
    for relaxed in tighten(graph, relaxation, first):
        rounds += 1
        anew = Relaxation(relaxation.model).solve()
        assert relaxed.value == pytest.approx(anew.value, rel=1e-7)
        assert relaxed.bound == pytest.approx(relaxed.value, rel=1e-6)
        assert relaxation.model.b_ub.size > base
    assert rounds >= 3


def test_time_ends_the_rounds():
    graph = signed(40, 3, 300, 0)
    relaxation = IncrementalRelaxation(build_linear_model(graph))
    first = relaxation.solve()
    assert list(tighten(graph, relaxation, first, lambda: 0.0)) == []
    remaining_s = iter([1.0] * 3)
    assert len(list(tighten(graph, relaxation, first, lambda: next(remaining_s, 0.0)))) <= 1


def test_roots_are_searched_in_turn(monkeypatch):
    """A round that stops early is resumed in the next one, and no root is missed."""
    graph = signed(12, 3, 40, 1)
    whole = tightened(graph)[1][-1].value
    monkeypatch.setattr(cycle_cuts, "_STRETCH", 50)
    assert tightened(graph)[1][-1].value == pytest.approx(whole, rel=2e-2)
    monkeypatch.setattr(cycle_cuts, "_MOST_PAIRS", 12)
    assert tightened(graph)[1][-1].value > tightened(graph)[1][0].value
