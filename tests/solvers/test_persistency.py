"""Partial optimality: an optimum survives, energies map exactly, and no reduction is missed."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import labellings, signed_grid

import inference_lab as il
from inference_lab.algorithms.cuts import partial_optimality as persistency
from inference_lab.algorithms.cuts.partial_optimality import reduce
from inference_lab.algorithms.cuts.roof_duality import LabelChoice
from inference_lab.conformance import exhaustive
from inference_lab.contract import Run
from inference_lab.graph.arrays import POTTS
from inference_lab.graph.grids import grid_edges
from inference_lab.graph.random_graphs import FAMILIES, random_graph
from inference_lab.registry.registry import as_solver
from inference_lab.registry.sources import as_problem
from inference_lab.specs.grammar import SpecError

SEEDS = st.integers(0, 10_000)


def check(graph, reduction):
    """Enumerate both graphs, and check the two guarantees of `reduce`."""
    exact = exhaustive(graph)
    slack = 1e-9 * exact.scale
    if reduction.infeasible:
        assert exact.optimum == math.inf
        return
    small = labellings(reduction.graph)
    mapped = graph.energy(reduction.expand(small))
    energies = reduction.graph.energy(small)
    finite = np.isfinite(mapped)
    assert (np.isfinite(energies) == finite).all()
    assert np.abs(energies[finite] - mapped[finite]).max(initial=0.0) <= slack
    assert energies.min() <= exact.optimum + slack


@given(st.sampled_from(sorted(FAMILIES)), SEEDS)
def test_an_optimum_survives_and_energies_map(family, seed):
    graph = random_graph(family, seed)
    check(graph, reduce(graph))
    reduction = reduce(graph, keep_forms=True)
    check(graph, reduction)
    if graph.is_diagonal:
        assert reduction.graph.is_diagonal


def test_terms_keep_their_form_where_that_is_asked_for():
    """A label ruled out at one end alone makes a table of a Potts term, or is restored."""
    g = as_problem("estep(data=iris, constraints=250, noise=0.3, centroids=constraints)").graph
    plain, formed = reduce(g), reduce(g, keep_forms=True)
    assert not plain.graph.is_diagonal and formed.graph.is_diagonal
    assert (formed.fixed == plain.fixed).all() and (formed.fixed >= 0).any()
    assert set(formed.graph.cardinalities.tolist()) <= {2, 3}
    assert (plain.graph.cardinalities <= formed.graph.cardinalities).all()
    labels = np.random.default_rng(0).integers(
        formed.graph.cardinalities, size=(50, formed.graph.n_variables)
    )
    assert formed.graph.energy(labels) == pytest.approx(g.energy(formed.expand(labels)))


@given(st.sampled_from(sorted(FAMILIES)), SEEDS, st.sampled_from(["dead", "roof"]))
def test_each_test_alone_keeps_an_optimum(family, seed, alone):
    graph = random_graph(family, seed)
    with pytest.MonkeyPatch.context() as patch:
        if alone != "dead":
            patch.setattr(persistency._LabelTests, "eliminate", lambda _: 0)
        if alone != "roof":
            patch.setattr(persistency._LabelTests, "roof_duality", lambda _: 0)
        check(graph, reduce(graph))


@given(st.sampled_from(sorted(FAMILIES)), SEEDS, st.integers(0, 12))
def test_stopped_early_it_is_still_right(family, seed, asked):
    """Labels ruled out before the time ran out may be used."""
    graph = random_graph(family, seed)
    answers = iter([False] * asked)
    check(graph, reduce(graph, lambda: next(answers, True)))


def submodular(seed, hard):
    """Draw a graph of at most two labels whose terms are submodular once some labels are swapped.

    Terms have every form, with either end first; `hard` makes some costs infinite. Returns also
    whether labels were swapped.
    """
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 9))
    sizes = rng.choice([1, 2, 2, 2, 2], size=n)
    swapped = rng.random(n) < 0.4 if seed % 2 else np.zeros(n, dtype=bool)
    unary = [rng.normal(scale=3.0, size=k) for k in sizes]
    for row in unary:
        if hard and row.size == 2 and rng.random() < 0.2:
            row[rng.integers(2)] = math.inf
    terms = []
    pairs = [pair for pair in itertools.permutations(range(n), 2) if rng.random() < 0.3]
    for i, j in pairs:
        a, b, c, d = rng.normal(scale=2.0, size=4)
        # Unequal labels together cost at least as much as equal ones.
        table = np.array([[a, b], [a + c - b + abs(d), c]])
        if hard and rng.random() < 0.3:
            table[0, 1] = math.inf
        if hard and rng.random() < 0.2:
            table[1, 0] = math.inf
        for axis, end in enumerate((i, j)):
            if swapped[end]:
                table = np.flip(table, axis)
        weight = rng.exponential()
        alike = swapped[i] == swapped[j]
        form = rng.integers(4) if sizes[i] == sizes[j] == 2 else 0
        if form == 1:
            terms.append(il.SharedTable([(i, j)], np.where(table == math.inf, 9.0, table), weight))
        elif form == 2:
            weight = math.inf if hard and rng.random() < 0.3 else weight
            low, high = (0.0, weight) if alike else (weight, 0.0)
            terms.append(il.DiagonalTerms([(i, j)], low, high))
        elif form == 3 and alike:
            terms.append(il.DiagonalTerms([(i, j)], [[-weight, 0.5 * weight]], weight))
        else:
            terms.append(il.OwnTables([(i, j)], [table[: sizes[i], : sizes[j]]]))
    return il.FactorGraph.from_terms(unary, terms, constant=rng.normal()), bool(swapped.any())


@given(
    SEEDS,
    st.booleans(),
    st.sampled_from(["persistency(then=icm)", "auto", "alpha-expansion"]),
)
def test_two_labels_are_settled_by_the_first_cut(seed, hard, solver):
    """For a graph that is submodular after renaming labels, no other test is tried."""
    graph, swapped = submodular(seed, hard)
    exact = exhaustive(graph)
    with pytest.MonkeyPatch.context() as patch:
        if not swapped:
            patch.setattr(persistency._LabelTests, "eliminate", None)
        s = il.solve(graph, solver)
    if math.isinf(exact.optimum):
        assert s.status == "infeasible"
        return
    if not swapped:
        assert s.status == "optimal"
    if s.status == "optimal":
        assert s.energy == pytest.approx(exact.optimum, abs=1e-9 * exact.scale)
    assert s.lower_bound <= exact.optimum + 1e-9 * exact.scale


def evaluations(patch):
    """Return a list that records the labellings evaluated from now on."""
    evaluated, energies = [], il.FactorGraph._energies
    patch.setattr(il.FactorGraph, "_energies", lambda g, x: evaluated.append(x) or energies(g, x))
    return evaluated


def test_graphs_solved_by_one_cut_are_evaluated_once(monkeypatch):
    """A grid of one sign, and one whose signs are balanced, are evaluated once and no more."""
    rng = np.random.default_rng(3)
    edges = grid_edges(12, 12)
    side = rng.random(144) < 0.5
    weights = rng.exponential(size=len(edges))
    unary = rng.normal(size=(144, 2))
    signs = np.where(side[edges[:, 0]] == side[edges[:, 1]], 1.0, -1.0)
    for graph in (
        il.FactorGraph.potts(unary, edges, weights),
        il.FactorGraph.potts(unary, edges, signs * weights),
    ):
        expected = il.solve(graph, "ilp").energy
        assert graph.resolution > 0
        for solver in ("persistency(then=icm)", "auto"):
            with monkeypatch.context() as patch:
                evaluated = evaluations(patch)
                s = il.solve(graph, solver)
            assert (s.status, s.energy) == ("optimal", pytest.approx(expected, abs=1e-9))
            assert s.diagnostics["share_fixed"] == 1.0
            assert len(evaluated) == 1


@given(SEEDS)
def test_roof_duality_is_used_on_two_labels(seed):
    """Every variable that the roof dual labels is fixed to that label."""
    graph = signed_grid(3, 3, 2, seed, weight=1.5)
    zero = np.zeros(9, dtype=np.int64)
    taken = LabelChoice(graph).minimise(zero, zero + 1).taken
    fixed = reduce(graph).fixed
    assert (fixed[taken >= 0] == taken[taken >= 0]).all()


def test_fixed_variables_make_more_dead_ends():
    """The neighbours of a variable that was fixed are examined again."""
    graph = il.FactorGraph.potts([[0.0, 0.0], [0.0, 0.5]], [(0, 1)], [2.0])
    search = persistency._LabelTests(graph, lambda: False)
    assert search.eliminate() == 0
    search._keep_only(np.array([0]), np.array([1]))
    assert search.eliminate() == 1
    assert search.alive.tolist() == [0, 1, 0, 1]


def test_forbidden_combinations_are_no_obstacle():
    """A label whose combinations are all forbidden is ruled out; a needed one stays."""
    table = np.array([[math.inf, math.inf], [0.0, math.inf], [math.inf, 0.0]])
    graph = il.FactorGraph.from_terms(
        [[-9.0, 0.0, 5.0], [4.0, 0.0]], [il.OwnTables([(0, 1)], [table])]
    )
    reduction = reduce(graph)
    assert reduction.expand(labellings(reduction.graph)).tolist() == [[1, 0]]
    assert reduction.graph.constant == 4.0


def test_structure_is_kept():
    """Terms between variables that keep equal labels stay of their kind."""
    # A few variables lose all labels but one.
    clamped = signed_grid(6, 6, 4, 4, weight=2.0).with_evidence({0: 1, 7: 2, 35: 3})
    reduction = reduce(clamped)
    assert (reduction.fixed[[0, 7, 35]] == [1, 2, 3]).all()
    whole = np.flatnonzero(reduction.graph.cardinalities == 4)
    inside = np.isin(reduction.graph.edges, whole).all(axis=1)
    assert inside.sum() > 5
    assert (reduction.graph.edge_kinds[inside] == POTTS).all()


def test_small_reductions_keep_the_graph():
    """One variable in two hundred is fixed, on a ring that is frustrated everywhere else."""
    rng = np.random.default_rng(2)
    n = 200
    unary = rng.random((n, 2))
    unary[0] = 0.0, 100.0
    edges = np.concatenate([[(i, (i + d) % n) for i in range(n)] for d in (1, 2, 3)])
    graph = il.FactorGraph.potts(unary, edges, rng.choice([-5.0, 5.0], len(edges)))
    reduction = reduce(graph)
    assert reduction.rounds > 0
    assert reduction.graph is graph
    x = rng.integers(0, 2, n)
    assert (reduction.expand(x) == x).all()
    assert (reduction.restrict(x) == x).all()
    assert reduction.share_fixed == 0.0


def test_classes_of_labels_left_are_exact_beyond_a_word():
    """More labels than an integer has bits, left in sets that differ in the last ones."""
    k = 70
    unary = np.zeros((4, k))
    unary[:, :] = np.inf
    for i, labels in enumerate([(1, 2, 65), (1, 2, 65), (1, 2, 66), (33, 65, 66)]):
        unary[i, list(labels)] = np.arange(3.0) / (i + 1)
    edges = [(0, 1), (1, 2), (2, 3), (0, 3)]
    graph = il.FactorGraph.potts(unary, edges, [-2.0, -2.0, -2.0, -2.0])
    reduction = reduce(graph)
    for small in labellings(reduction.graph):
        energy = graph.energy(reduction.expand(small))
        assert reduction.graph.energy(small) == pytest.approx(energy, abs=1e-12)


def test_restrict_is_the_way_back():
    graph = random_graph("own-tables", 12)
    reduction = reduce(graph)
    assert reduction.variables.size > 0
    for small in labellings(reduction.graph):
        assert reduction.restrict(reduction.expand(small)).tolist() == small.tolist()
    assert (reduction.restrict(graph.cardinalities - 1) < reduction.graph.cardinalities).all()


def test_solver_hands_over_bound_start_and_seed():
    """Its bound is in the solution, and the energy is no worse than the start."""
    graph = signed_grid(7, 7, 3, 7, field=0.5)
    exact = il.solve(graph, "ilp")
    s = il.solve(graph, "persistency(then=lp-relaxation)", initial=exact.labels)
    assert s.energy == pytest.approx(exact.energy)
    assert -math.inf < s.lower_bound <= exact.energy + 1e-9
    assert "then_status" in s.diagnostics


def test_solver_for_the_rest_may_refuse():
    """The refusal of the other solver is reported, and the current labelling is returned."""
    s = il.solve(signed_grid(12, 12, 3, 8, field=0.0), "persistency(then=brute-force)")
    assert s.status == "limit"
    assert s.diagnostics["then_status"] == "unsupported"
    assert s.diagnostics["then_message"]
    assert math.isfinite(s.energy)


def test_unknown_solver_for_the_rest():
    with pytest.raises(SpecError, match="unknown solver 'no-such'"):
        il.solve(random_graph("potts", 0), "persistency(then=no-such)")


def test_a_limit_that_runs_out_at_any_moment_is_no_error():
    """The clock advances at each reading: a second check may find the time used up."""
    graph = random_graph("equal", 3)
    solver = as_solver("persistency")
    for limit in range(1, 60):
        run = Run(graph, time_limit=float(limit), clock=itertools.count().__next__)
        solver.run(graph, run)
        assert run.best_labels is not None or limit < 10
