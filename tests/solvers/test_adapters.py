"""Solvers of other packages, compared with ilp: guarantees beyond the contract's own suite."""

from __future__ import annotations

import importlib.util
import json
import math
import signal
import sys
import time

import numpy as np
import pytest
from click.testing import CliRunner
from strategies import frustrated, optimum, with_dear_label

import inference_lab as il
from inference_lab.cli import main
from inference_lab.conformance import solver_checks
from inference_lab.conformance.graphs import large_graph
from inference_lab.graph.grids import grid_edges
from inference_lab.graph.random_graphs import random_graph
from inference_lab.registry import descriptions
from inference_lab.registry.registry import solver_registry
from inference_lab.specs.extras import how_to_install

#: Solvers that need an extra package, and the package.
EXTRAS = {"toulbar2": "pytoulbar2", "ortools-cpsat": "ortools"}


def installed(name):
    return importlib.util.find_spec(EXTRAS[name]) is not None


def needs(name):
    return pytest.mark.skipif(not installed(name), reason=f"{EXTRAS[name]} is not installed")


EXACT = [pytest.param(name, marks=needs(name)) for name in EXTRAS]


# ---------------------------------------------------------------------- exact, by integers


@pytest.mark.parametrize("name", [*EXACT, "ilp"])
def test_penalties_that_are_never_paid(name):
    """The costs are 1e9 and 1e-3: the range of integers is spent on the costs that matter."""
    graph = frustrated(8, 3, 15, 1, weight=1e-3)
    s = il.solve(with_dear_label(graph, 1e9), name)
    assert s.energy == pytest.approx(optimum(graph), rel=1e-9)
    assert s.energy - s.lower_bound < 1e-9


@pytest.mark.parametrize("name", [*EXACT, "ilp"])
@pytest.mark.parametrize("limit", [0.1, 0.4])
def test_time_limit_leaves_incumbent_and_bound(name, limit):
    graph = frustrated(150, 4, 1200)
    il.solve(graph, name, time_limit=0.05)
    begin = time.perf_counter()
    s = il.solve(graph, name, time_limit=limit)
    assert time.perf_counter() - begin < limit + 1.5
    assert s.status == "limit"
    assert (
        0.0
        < graph.sum_of_minima
        <= s.lower_bound
        < s.energy
        <= graph.energy(graph.unary.argmin(axis=1))
    )


@pytest.mark.parametrize("name", EXACT)
def test_sizes_are_refused_with_the_figure(name):
    solver = solver_registry.make(name)
    large = il.FactorGraph.potts(np.zeros((2, 15_000)), [(0, 1)], 1.0)
    of_four = il.FactorGraph.from_factors([48] * 4, [((0, 1, 2, 3), np.zeros([48] * 4))])
    reasons = [solver.supports(graph, 0.0) for graph in (large, of_four)]
    if name == "toulbar2":
        assert "of 225000000 entries; at most 200000000 are" in reasons[0]
        assert "5308416 entries in tables of more than three variables" in reasons[1]
    else:
        assert reasons[0] is None and "5308416 clauses; at most 5000000 are" in reasons[1]


@pytest.mark.parametrize("arity", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("name", EXACT)
def test_tables_of_every_arity(name, arity):
    """Tables have forbidden entries, and an entry that all labellings share."""
    rng = np.random.default_rng(arity)
    sizes = [2, 3, 2, 4, 2]
    table = rng.normal(size=sizes[:arity])
    table[rng.random(table.shape) < 0.3] = math.inf
    table.flat[-1] = 0.5
    graph = il.FactorGraph.from_factors(
        sizes,
        [(tuple(range(arity)), table), *(((i,), rng.normal(size=sizes[i])) for i in range(5))],
    )
    s = il.solve(graph, name)
    assert s.status == "optimal" and s.energy == pytest.approx(optimum(graph))


@needs("toulbar2")
def test_toulbar2_finds_a_contradiction_while_the_network_is_made():
    """One term forbids a label, and the unary forbids the only other one."""
    unary, table = [[0.0], [0.0, np.inf]], [[np.inf, 0.0]]
    graph = il.FactorGraph.from_terms(unary, [il.OwnTables([(0, 1)], [table])])
    assert il.solve(graph, "toulbar2").status == "infeasible"


@needs("toulbar2")
def test_options_of_toulbar2_do_not_leak():
    """They are global; a new network resets only some, and changes by a search would persist."""
    from pytoulbar2.pytb2 import option

    graph = frustrated(30, 3, 90, 1)
    first = il.solve(graph, "toulbar2", time_limit=20)
    il.solve(graph, "toulbar2(search=dfs, vac=1)", time_limit=20)
    option.restart, option.lds, option.elimDegree = 10_000, 4, -1
    again = il.solve(graph, "toulbar2", time_limit=20)
    assert first.status == again.status == "optimal"
    assert first.diagnostics == again.diagnostics
    assert (option.restart, option.lds) == (-1, 0)


@needs("toulbar2")
def test_toulbar2_leaves_the_process_as_it_was():
    """No timer is left, and Ctrl-C interrupts Python again."""
    il.solve(frustrated(30, 3, 100), "toulbar2", time_limit=0.2)
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
        time.sleep(1.0)


@needs("toulbar2")
def test_variables_are_handed_over_in_linear_time():
    """The wrapper's own method takes O(n) for each, 25 s in all."""
    begin = time.perf_counter()
    il.solve(large_graph(30_000, 60_000, 5), "toulbar2", time_limit=0.5)
    assert time.perf_counter() - begin < 10.0


@needs("ortools-cpsat")
def test_cpsat_reports_on_the_way():
    """Labellings and bounds reach the trace before the end."""
    s = il.solve(frustrated(30, 3, 90, 1), "ortools-cpsat", time_limit=60)
    assert s.status == "optimal"
    assert len({point.best_energy for point in s.trace}) > 2
    assert len({point.lower_bound for point in s.trace}) > 3


@needs("ortools-cpsat")
def test_exceptions_of_listeners_pass_through_cpsat():
    graph = frustrated(30, 3, 90, 1)
    seen = []

    def listen(point):
        seen.append(point)
        if len(seen) == 6:
            raise KeyError("stop here")

    with pytest.raises(KeyError, match="stop here"):
        il.solve(graph, "ortools-cpsat", on_offer=listen, time_limit=60)


# ---------------------------------------------------------------------- packages that are missing


@pytest.fixture(params=sorted(EXTRAS))
def missing(request, monkeypatch):
    """Name a solver whose package cannot be imported."""
    package = EXTRAS[request.param]
    for module in [m for m in sys.modules if m.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError):
        importlib.import_module(package)
    return request.param


def advice(name):
    extra = {"toulbar2": "toulbar2", "ortools-cpsat": "ortools"}[name]
    return f'not installed: pip install -e ".[{extra}]" in the folder of inference-lab'


def test_missing_packages_are_listed_with_how_to_get_them(missing):
    lines = il.available_solvers()
    assert lines[missing].endswith(f"({advice(missing)})")
    assert "not installed" not in lines["icm"]
    run = CliRunner().invoke(main, ["list", "solvers"])
    (line,) = [text for text in run.output.splitlines() if text.startswith(missing)]
    assert advice(missing) in line
    run = CliRunner().invoke(main, ["list", "solvers", missing])
    assert run.exit_code == 0 and run.output.startswith(f"{missing} ({advice(missing)})\n")
    run = CliRunner().invoke(main, ["list", "solvers", "--json"])
    assert advice(missing) in json.loads(run.stdout)["solvers"][missing]["description"]


def test_missing_package_is_reported_with_its_install_command(missing, tmp_path):
    graph = random_graph("potts", 0)
    s = il.solve(graph, missing)
    assert (s.status, s.message) == ("not-installed", advice(missing))
    assert s.labels is None and np.isnan(s.energy)
    il.write(graph, tmp_path / "model.uai")
    run = CliRunner().invoke(main, ["solve", str(tmp_path / "model.uai"), "--solver", missing])
    assert run.exit_code == 1 and advice(missing) in run.output


def test_comparisons_go_on_without_a_missing_package(missing):
    comparison = il.compare(random_graph("potts", 0), [missing, "icm"])
    assert [r.status for r in comparison.records] == ["not-installed", "converged"]
    assert comparison.records[0].message == advice(missing)


def test_the_suite_does_not_blame_a_missing_package(missing):
    solver = solver_registry.make(missing)
    assert solver.missing() == advice(missing)
    for check in solver_checks(solver, graphs_per_family=1):
        try:
            check()
        except Exception as outcome:
            assert type(outcome).__name__ == "NotApplicable", f"{check}: {outcome}"


def test_packages_that_are_there_are_not_missing():
    assert how_to_install("numpy", "all") is None
    assert solver_registry.make("icm").missing() is None
    assert descriptions.missing(solver_registry, "icm") is None
    assert descriptions.missing(solver_registry, "no-such-solver") is None


# ---------------------------------------------------------------------- pgmpy


def test_junction_tree_of_pgmpy_adds_up_factors_over_the_same_variables():
    """Pgmpy forgets all but one of them, regardless of the order of their variables."""
    rng = np.random.default_rng(0)
    one, two = rng.normal(size=(2, 3, 2)), rng.normal(size=(2, 2, 3))
    graph = il.FactorGraph.from_factors([2, 3, 2], [((0, 1, 2), one), ((0, 2, 1), two)])
    s = il.solve(graph, "pgmpy-junction-tree")
    assert s.status == "optimal" and s.energy == pytest.approx(optimum(graph))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_junction_tree_of_pgmpy_agrees_with_ours(temperature):
    """On a grid too large to enumerate, next to a component of its own and a lone variable."""
    rng = np.random.default_rng(2)
    edges = np.concatenate([grid_edges(4, 5), [[20, 21], [21, 22], [20, 22]]])
    graph = il.FactorGraph.potts(rng.normal(size=(24, 3)), edges, rng.normal(size=len(edges)))
    ours = il.solve(graph, "junction-tree", temperature=temperature)
    theirs = il.solve(graph, "pgmpy-junction-tree", temperature=temperature)
    if temperature == 0.0:
        assert theirs.status == "optimal" and theirs.energy == pytest.approx(ours.energy)
    else:
        assert theirs.log_partition == pytest.approx(ours.log_partition, rel=1e-10)
        assert theirs.marginals == pytest.approx(ours.marginals, abs=1e-10)
    assert theirs.diagnostics["width"] == 4


@pytest.mark.parametrize("seed", range(4))
def test_junction_tree_of_pgmpy_with_costs_beyond_doubles(seed):
    """As potentials these costs are zeros; pgmpy cannot distinguish beliefs of 1e-8 and less."""
    rng = np.random.default_rng(seed)
    n = 7
    edges = [(i, (i + 1) % n) for i in range(n)]
    graph = il.FactorGraph.pairwise(
        1e5 * rng.random((n, 3)), edges, 1e5 * rng.random((n, 3, 3)) + 1e4
    )
    s = il.solve(graph, "pgmpy-junction-tree")
    assert s.status == "optimal" and s.energy == pytest.approx(optimum(graph), rel=1e-12)
    refused = il.solve(graph, "pgmpy-junction-tree", temperature=1.0)
    assert refused.status == "unsupported" and "temperatures" in refused.message


def test_junction_tree_of_pgmpy_refuses_by_size():
    clique = frustrated(16, 3, 120)
    s = il.solve(clique, "pgmpy-junction-tree")
    assert s.status == "unsupported"
    assert "a clique of 16 variables, tables of at least" in s.message
    many = il.FactorGraph.potts(np.zeros((400, 2)), [(i, i + 1) for i in range(399)], 1.0)
    assert "comparisons are tried" in il.solve(many, "pgmpy-junction-tree").message
    small = frustrated(6, 2, 15)
    assert il.solve(small, "pgmpy-junction-tree(max_entries=63)").status == "unsupported"
    assert il.solve(small, "pgmpy-junction-tree").status == "optimal"


def test_junction_tree_of_pgmpy_proves_infeasibility():
    edges = [(0, 1), (1, 2), (0, 2)]
    graph = il.FactorGraph.from_terms(np.zeros((3, 2)), [il.DiagonalTerms(edges, math.inf, 0.0)])
    assert il.solve(graph, "pgmpy-junction-tree").status == "infeasible"
    # Each table allows a labelling, but the two together allow none.
    one = np.full((2, 2, 2), math.inf)
    two = one.copy()
    one[0], two[1] = 0.0, 0.0
    both = il.FactorGraph.from_factors([2, 2, 2], [((0, 1, 2), one), ((0, 1, 2), two)])
    assert il.solve(both, "pgmpy-junction-tree").status == "infeasible"
