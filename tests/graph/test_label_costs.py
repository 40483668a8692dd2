"""Label costs: energies by hand and by enumeration, refusals, and the exact encodings."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from strategies import labellings

import inference_lab as il
from inference_lab.algorithms.label_cost_encoding import star
from inference_lab.conformance import exhaustive, solver_checks
from inference_lab.conformance.verdicts import ConformanceFailure
from inference_lab.contract import Outcome, Solver, Status
from inference_lab.convert import from_networkx, from_pgmpy, to_networkx, to_pgmpy
from inference_lab.graph.label_cost_chain import chain
from inference_lab.graph.random_graphs import LABEL_COSTS, random_graph
from inference_lab.harness.warm_up import warm_up_graph
from inference_lab.solvers.brute_force import BruteForce
from inference_lab.solvers.icm import ICM

PAIR = il.FactorGraph.potts([[0.0, 1.0, 5.0], [0.6, 0.0, 5.0]], [(0, 1)], [0.5])

CASES = [(family, seed) for family in LABEL_COSTS for seed in range(6)]


# ------------------------------------------------------------------ the energy


@pytest.mark.parametrize(("family", "seed"), CASES)
def test_energies_follow_the_definition(family, seed):
    g = random_graph(family, seed)
    bare, sets = g.with_label_costs(), g.label_costs.sets()
    assert sets and bare.n_label_costs == 0
    for x in labellings(g)[:: max(1, int(2**g.log2_states) // 50)]:
        paid = sum(cost for labels, cost in sets if set(labels) & set(x.tolist()))
        assert g.energy(x) == pytest.approx(bare.energy(x) + paid, rel=1e-12, abs=1e-12)


def test_equal_sets_are_added_and_zeros_left_out():
    g = PAIR.with_label_costs([1.0, 0.0, 0.0], sets=[([0], 2.0), ([2, 1], 3.0), ((1, 2), 1.0)])
    assert g.label_costs.sets() == [((0,), 3.0), ((1, 2), 4.0)]
    again = PAIR.with_label_costs(sets=[((1, 2), 4.0), ([0], 3.0)])
    assert again.content_hash == g.content_hash != PAIR.content_hash
    assert PAIR.with_label_costs(0.0).content_hash == PAIR.content_hash


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        ((-1.0,), r"label costs is -1.0; label costs are finite and not negative"),
        (([0.0, np.inf, 0.0],), r"label costs\[1\] is inf"),
        (([0.0, np.nan, 0.0],), r"label costs\[1\] is nan"),
        (([1.0, 2.0],), r"must be a number or have shape \(3,\)"),
        ((0.0, [([0, 3], 1.0)]), r"sets\[0\] are \[0, 3\]; variables of this graph have labels 0"),
        ((0.0, [([0, 0], 1.0)]), r"each once"),
        ((0.0, [([], 1.0)]), r"each once"),
        ((0.0, [([0.5], 1.0)]), r"must be integers"),
        ((0.0, [([1], -2.0)]), r"the cost of sets\[0\] is -2.0"),
        ((0.0, [([1], [2.0])]), r"must be a number, got shape"),
        ((1e100, [([1], 1e100)]), r"must not exceed 1e\+100"),
    ],
)
def test_invalid_label_costs_are_refused(arguments, refusal):
    with pytest.raises(ValueError, match=refusal):
        PAIR.with_label_costs(*arguments)


def test_derived_quantities_include_label_costs():
    tree = il.FactorGraph.potts(np.zeros((3, 2)), [(0, 1)], 1.0)
    assert tree.is_forest and tree.components.tolist() == [0, 0, 1]
    g = tree.with_label_costs([0.25, 4.0])
    assert not g.is_forest and g.components.tolist() == [0, 0, 0]
    assert g.magnitude == tree.magnitude + 4.25
    assert g.with_label_costs().components.tolist() == [0, 0, 1]
    assert "2 label costs" in repr(g) and "label" not in repr(tree).split("terms")[1]
    conditioned = g.with_evidence({0: 1}).with_unary(g.unary_values)
    assert conditioned.energy([1, 1, 1]) == g.energy([1, 1, 1])
    assert warm_up_graph(g).n_label_costs == 2
    assert g.label_costs.least() == 0.25 and tree.label_costs.least() == 0.0


# ------------------------------------------------------------------ without them


@pytest.mark.parametrize(("family", "seed"), CASES)
def test_the_star_costs_the_same_at_its_best(family, seed):
    g = random_graph(family, seed)
    for hard in (True, False):
        code = star(g, hard=hard)
        n_sets = g.n_label_costs
        z = np.array(list(itertools.product((0, 1), repeat=n_sets)))
        for x in labellings(g)[:: max(1, int(2**g.log2_states) // 20)]:
            energies = code.graph.energy(np.concatenate([np.tile(x, (len(z), 1)), z], axis=1))
            expected = pytest.approx(g.energy(x), abs=1e-9)
            assert energies.min() == expected
            assert code.graph.energy(code.extended(x)) == expected
        assert np.isinf(code.graph.pairwise_values).any() >= hard


@pytest.mark.parametrize("seed", range(4))
def test_the_star_has_the_same_partition_function(seed):
    g = random_graph("open-clusters", seed)
    for temperature in (0.3, 1.0, 5.0):
        code = star(g, temperature).graph
        log_z = exhaustive(g).log_partition(temperature)
        assert il.solve(code, "brute-force", temperature=temperature).log_partition == (
            pytest.approx(log_z)
        )


@pytest.mark.parametrize(("family", "seed"), CASES)
def test_the_chain_is_a_function_of_the_labels(family, seed):
    g = random_graph(family, seed)
    code = chain(g)
    for x in labellings(g)[:: max(1, int(2**g.log2_states) // 5)]:
        fixed = code.with_evidence(dict(enumerate(x.tolist())))
        expected = g.energy(x)
        solution = il.solve(fixed, "junction-tree", temperature=1.0)
        if expected == np.inf:
            assert solution.status == Status.INFEASIBLE
        else:
            assert solution.log_partition == pytest.approx(-expected)


# ------------------------------------------------------------------ other libraries and files


@pytest.mark.parametrize(("family", "seed"), CASES)
def test_networkx_takes_them_there_and_back(family, seed):
    g = random_graph(family, seed)
    back, _ = from_networkx(to_networkx(g))
    assert back.label_costs.sets() == g.label_costs.sets()
    x = labellings(g)[-1]
    assert back.energy(x) == pytest.approx(g.energy(x))


def test_pgmpy_gets_auxiliary_variables():
    pytest.importorskip("pgmpy")
    g = PAIR.with_label_costs(0.5)
    model, offset = to_pgmpy(g)
    back = from_pgmpy(model).graph
    log_z = il.solve(back, "brute-force", temperature=1.0).log_partition - offset
    assert log_z == pytest.approx(exhaustive(g).log_partition(1.0))


def test_files_hold_an_exact_encoding(tmp_path):
    g = PAIR.with_label_costs([1.0, 2.0, 4.0], sets=[([0, 2], 8.0)])
    il.write(g, tmp_path / "pair.uai")
    back = il.read(tmp_path / "pair.uai")
    best = il.solve(back, "brute-force")
    assert g.energy(best.labels[:2]) == exhaustive(g).optimum
    assert best.energy == pytest.approx(exhaustive(g).optimum, abs=1e-6)
    log_z = il.solve(back, "brute-force", temperature=1.0).log_partition
    assert log_z == pytest.approx(exhaustive(g).log_partition(1.0))


# ------------------------------------------------------------------ solvers


@dataclass(frozen=True)
class Unaware(Solver):
    """Solver that ignores label costs and declares nothing; results are right without them."""

    def run(self, graph, run):
        x = graph.unary.argmin(axis=1)
        run.offer(x)
        run.bound(float(graph.unary.min(axis=1).sum()))
        return Outcome(converged=True)


@dataclass(frozen=True)
class Rewritten(ICM):
    """Solver that inherits declared support of label costs from a class with another `run`."""

    def run(self, graph, run):
        return Unaware.run(self, graph, run)


@dataclass(frozen=True)
class Renamed(ICM):
    """Solver that differs in its default only."""

    restarts: int = 3


@dataclass(frozen=True)
class Ignorant(BruteForce):
    """Solver that declares support of label costs, and ignores them."""

    label_costs = True

    def run(self, graph, run):
        return super().run(graph.with_label_costs(), run)


@pytest.mark.parametrize("solver", [Unaware(), Rewritten()])
def test_solver_without_declared_support_is_not_run(solver):
    s = il.solve(PAIR.with_label_costs(1.0), solver)
    assert s.status == Status.UNSUPPORTED
    assert s.message.endswith("does not support label costs, and this graph has some")
    assert s.labels is None
    assert il.solve(PAIR, solver).status != Status.UNSUPPORTED


def test_subclass_that_inherits_run_supports_label_costs():
    assert il.solve(PAIR.with_label_costs(1.0), Renamed()).energy == 1.6


def test_suite_catches_solvers_that_ignore_label_costs():
    checks = {check.name: check for check in solver_checks(Ignorant(), graphs_per_family=3)}
    with pytest.raises(ConformanceFailure, match="is above the optimum"):
        checks["bound-below-optimum"]()
