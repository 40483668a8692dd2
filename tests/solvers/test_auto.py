"""The portfolio: its choice of stages, its report, and no loss of a stage's result."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

import inference_lab as il
from inference_lab import solving
from inference_lab.constraints import sample_pairs
from inference_lab.contract import Status
from inference_lab.registry.sources import as_problem
from inference_lab.solvers import auto
from inference_lab.solvers.auto import Stage, plan, structure
from inference_lab.solvers.junction_tree import JunctionTree
from inference_lab.solving import solve


def names(graph):
    return [stage.solver.partition("(")[0] for stage in plan(graph)]


def potts(weights, labels=3, n=None, seed=0):
    rng = np.random.default_rng(seed)
    n = 12 if n is None else n
    edges = [(i, j) for i in range(n) for j in range(i)][: len(weights)]
    return il.FactorGraph.potts(rng.normal(size=(n, labels)), edges, weights)


@pytest.mark.parametrize(
    ("graph", "kind"),
    [
        (il.FactorGraph.potts(np.zeros((4, 3)), [(0, 1), (1, 2), (1, 3)], [1, -1, 2]), "forest"),
        (potts(np.ones(20)), "attractive"),
        (potts(np.resize([1.0, -1.0], 20)), "signed-potts"),
        (potts(np.resize([1.0, -1.0], 20), labels=2), "binary"),
        (
            il.FactorGraph.pairwise(
                np.zeros((4, 5)),
                [(0, 1), (1, 2), (2, 0), (2, 3)],
                np.minimum(np.abs(np.subtract.outer(np.arange(5), np.arange(5))), 2.0),
            ),
            "attractive",
        ),
        (
            il.FactorGraph.pairwise(
                np.zeros((3, 3)),
                [(0, 1), (1, 2), (2, 0)],
                np.random.default_rng(0).normal(size=(3, 3, 3)),
            ),
            "pairwise",
        ),
        (
            il.FactorGraph.from_factors([2, 2, 2], [((0, 1, 2), np.zeros((2, 2, 2)))]),
            "higher-order",
        ),
    ],
)
def test_structure(graph, kind):
    assert structure(graph) == kind


def test_the_plan_follows_the_structure():
    forest = il.FactorGraph.potts(np.zeros((4, 3)), [(0, 1), (1, 2)], [1, -1])
    assert names(forest) == ["junction-tree"]
    grid = as_problem("potts-grid(height=20, width=20, labels=4)").graph
    assert names(grid)[:3] == ["trw-s", "alpha-expansion", "trw-s"]
    assert "junction-tree" not in names(grid)[:3]
    spec = "estep(data=iris, constraints=700, noise=0.2, weight=30, centroids=constraints)"
    noisy = as_problem(spec).graph
    assert names(noisy)[:2] == ["trw-s", "memetic"]
    narrow = as_problem("potts-grid(height=4, width=200, labels=3)").graph
    assert names(narrow)[0] == "junction-tree"
    for graph in (grid, noisy, narrow):
        for stage in plan(graph):
            assert 0 < stage.share <= 1
            assert stage.why


def test_a_labelling_comes_before_the_bounds_and_a_likely_proof_before_the_others():
    """Stages planned late may not run within a second, so cheap and likely ones come first."""
    rng = np.random.default_rng(0)
    all_pairs = [(i, j) for i in range(12) for j in range(i)]
    tables = il.FactorGraph.pairwise(np.zeros((12, 9)), all_pairs, rng.normal(size=(66, 9, 9)))
    scopes = [rng.choice(40, size=3, replace=False).tolist() for _ in range(60)]
    higher = il.FactorGraph.from_factors(
        [2] * 40, [(scope, rng.normal(size=(2, 2, 2))) for scope in scopes]
    )
    frustrated = as_problem("ising(size=40, coupling=3.0)").graph
    loose = potts(rng.choice([-1.0, 1.0], size=400), labels=2, n=100)
    dense = potts(rng.choice([-1.0, 1.0], size=6000), labels=2, n=300)
    for graph, order in (
        (tables, ["branch-and-bound", "trw-s", "simulated-annealing", "memetic", "trw-s", "mplp"]),
        (higher, ["branch-and-bound", "trw-s", "subgraph-search", "memetic", "memetic", "ilp"]),
        (frustrated, ["mplp", "memetic", "subgraph-search", "mplp", "ilp"]),
        (loose, ["memetic", "ilp", "semidefinite", "mplp"]),
        (dense, ["simulated-annealing", "memetic", "semidefinite", "mplp"]),
    ):
        stages = [stage for stage in plan(graph) if not stage.solver.startswith("junction-tree")]
        assert [stage.solver.partition("(")[0] for stage in stages][: len(order)] == order
        assert stages[0].share <= 0.5


def test_where_labels_are_interchangeable_an_exact_search_comes_first():
    draw = np.random.default_rng(0).spawn(1)[0]
    edges = sample_pairs(50, int(draw.binomial(1225, 10.5 / 49)), draw)
    conflicts = [il.DiagonalTerms(edges, 1.0, 0.0)]
    graph, preferred = (
        il.FactorGraph.from_terms(unary, conflicts)
        for unary in (np.zeros((50, 4)), draw.uniform(0.0, 0.1, (50, 4)))
    )
    assert names(graph)[0] == "branch-and-bound"
    assert "branch-and-bound" not in names(preferred)
    s = solve(graph, "auto", time_limit=60)
    assert s.status == "optimal"
    assert s.energy == pytest.approx(3.0)
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=len(graph.edges))
    few = il.FactorGraph.potts(np.zeros((50, 4)), graph.edges, signs)
    assert names(few)[:2] == ["branch-and-bound", "multicut"]
    assert names(as_problem("clique-partitioning(vertices=30)").graph)[0] == "multicut"


def test_population_does_not_start_from_an_exact_search(monkeypatch):
    graph = as_problem("random-graph(variables=120, labels=6, degree=8, terms=tables)").graph
    given, found = {}, {}

    def watched(graph, solver, **settings):
        given.setdefault(solver, settings["initial"])
        # Replaced by a solver that certainly finds better labels in the time.
        stand_in = "simulated-annealing" if solver == "branch-and-bound" else solver
        solution = solve(graph, stand_in, **settings)
        # The plan merges repeated stages; a later search may find still better labels.
        found.setdefault(solver, solution.energy)
        return solution

    monkeypatch.setattr(auto, "solve", watched)
    s = il.solve(graph, "auto", time_limit=2.0, clock="cpu")
    first = graph.energy(given["branch-and-bound"])
    assert s.diagnostics["plan"][0]["solver"] == "branch-and-bound"
    assert found["branch-and-bound"] < first
    assert given["memetic(region=100, patience=0.3)"] is None
    assert graph.energy(given["trw-s(tighten=cycles)"]) <= found["branch-and-bound"]


@pytest.mark.parametrize(
    ("spec", "bound_by"),
    [
        ("estep(data=iris, constraints=700, noise=0.2, weight=30, centroids=constraints)", "trw-s"),
        ("ising(size=40, coupling=3.0)", "mplp"),
    ],
)
def test_next_stage_depends_on_the_open_variables(spec, bound_by):
    """The plan after a first bound and population; with more time, more variables may be open."""
    graph = as_problem(spec).graph
    entries = float(graph.cardinalities[graph.edges].prod(axis=1).sum())

    def then(left_open, seconds):
        first, second, third = itertools.islice(plan(graph, lambda: left_open, seconds), 3)
        assert (first.solver, second.solver, second.afresh) == (bound_by, "memetic", True)
        return third

    closed = auto._CLOSED_IN_A_SECOND[structure(graph)] / entries
    assert then(0.9 * closed, 1.0).solver == then(1.9 * closed, 4.0).solver == "ilp"
    far, further = then(1.1 * closed, 1.0), then(5.0 * closed, 1.0)
    assert far.solver == further.solver != "ilp"
    assert far.share < further.share


def test_a_proof_comes_first_where_the_relaxation_is_tight():
    spec = "estep(data=iris, constraints=300, noise=0, weight=10, centroids=kmeans)"
    s = il.solve(as_problem(spec).graph, "auto")
    assert s.status == "optimal"
    assert [done["solver"] for done in s.diagnostics["plan"]] == ["trw-s"]


def test_an_exact_search_over_tables_goes_on_where_it_has_left_little_open():
    graph = as_problem("random-graph(variables=120, labels=6, degree=12, terms=tables)").graph

    def next_solvers(left_open):
        return [stage.solver for stage in itertools.islice(plan(graph, lambda: left_open), 1, 4)]

    assert next_solvers(0.04)[0] == "branch-and-bound"
    assert next_solvers(0.06)[0] == "simulated-annealing"
    # Only the minima of the terms are known: a first bound, then labellings.
    assert next_solvers(1.0)[0] == "trw-s"


def test_an_elimination_comes_first_if_it_takes_less_than_half_a_second():
    narrow, wide = (
        as_problem(f"potts-grid(height={height}, width=40, labels=3)").graph for height in (4, 12)
    )
    assert JunctionTree().foreseen(narrow) < 0.5 < JunctionTree().foreseen(wide) < math.inf
    for graph, first in ((narrow, "junction-tree"), (wide, "trw-s")):
        stages = list(plan(graph))
        assert stages[0].solver == first
        (elimination,) = (stage for stage in stages if stage.solver == "junction-tree")
        assert elimination.begin == JunctionTree().foreseen(graph)
    # A stage that would exceed its share is not begun.
    s = il.solve(wide, "auto", time_limit=0.5, clock="cpu")
    assert "junction-tree" not in [done["solver"] for done in s.diagnostics["plan"]]


def test_in_large_graphs_messages_come_first_if_there_is_something_to_pass_on():
    """The search gains little over them in the same time."""
    large = "estep(data=gaussians-round, points=40000, constraints=80000, noise=0.1)"
    stage = next(plan(as_problem(large).graph))
    assert stage.solver == "loopy-bp(damping=0.5)" and "estep-scaling" in stage.why


def test_graph_too_large_for_any_stage_has_a_descent_and_a_bound():
    """Half a second for a million variables allows single changes only, until the time is up."""
    graph = as_problem("potts-grid(height=1000, width=1000, labels=4)").graph
    descent = il.solve(graph, "icm", max_iterations=2)
    s = il.solve(graph, "auto", time_limit=2.0 * descent.seconds + 0.5, clock="cpu")
    assert s.lower_bound >= graph.sum_of_minima - graph.resolution
    assert s.energy <= descent.energy


def test_diagnostics_name_the_stages_and_results_lose_nothing(monkeypatch):
    spec = "estep(data=iris, constraints=600, noise=0.2, weight=30, centroids=constraints)"
    graph = as_problem(spec).graph
    # A clock that counts its readings: the stages do the same work on a busy machine.
    monkeypatch.setitem(solving.CLOCKS, "cpu", itertools.count(0.0, 1e-3).__next__)
    monkeypatch.setitem(solving._COMPILED, "cpu", lambda: 0.0)
    s = il.solve(graph, "auto", seed=0, time_limit=4.0, clock="cpu")
    stages = s.diagnostics["plan"]
    assert {"memetic", "semidefinite", "ilp"} <= {stage["solver"] for stage in stages}
    shift = s.lower_bound - max(stage["lower_bound"] for stage in stages)
    # Costs of variables fixed before are in the constant, so energies are those of the whole.
    assert shift == pytest.approx(0.0, abs=1e-6)
    assert s.energy == pytest.approx(min(stage["energy"] for stage in stages))
    assert all(stage["why"] and stage["seconds"] >= 0 for stage in stages)
    plain = il.solve(graph, "lp-relaxation")
    assert s.energy - s.lower_bound <= 0.2 * (s.energy - plain.lower_bound)


@pytest.mark.parametrize(
    "spec",
    [
        "estep(data=iris, constraints=60)",
        "potts-grid(height=12, width=12, labels=3)",
        "ising(size=14, coupling=3.0)",
        "random-graph(variables=40, labels=4)",
    ],
)
def test_real_problems_are_proved(spec):
    graph = as_problem(spec).graph
    s = il.solve(graph, "auto", time_limit=60.0)
    assert s.status == "optimal", s.diagnostics


def test_marginals_of_large_graphs_come_with_bounds():
    graph = as_problem("ising(size=40, coupling=0.5)").graph
    s = il.solve(graph, "auto", temperature=1.0, time_limit=3.0, clock="cpu")
    found = s.diagnostics
    if s.log_partition_kind != "exact":
        assert found["log_partition_lower"] <= found["log_partition_upper"]
        assert found["log_partition_lower"] <= s.log_partition + 1e-6 * abs(s.log_partition)
    assert s.marginals.shape == (1600, 2)


def test_forest_of_any_size_is_solved_at_once():
    """No labels are ruled out first, which would take longer than the solution."""
    n = 50_000
    unary = np.random.default_rng(0).random((n, 3))
    graph = il.FactorGraph.potts(unary, np.stack([np.arange(n - 1), np.arange(1, n)], axis=1), 0.3)
    s = il.solve(graph, "auto", max_iterations=1)
    assert s.status == "optimal" and s.diagnostics["structure"] == "forest"
    assert s.energy == il.solve(graph, "trw-s").energy


def test_a_slow_stage_does_not_begin_at_the_end(monkeypatch):
    """Its code would take longer to compile than everything before."""
    graph = as_problem("random-graph(variables=20, labels=3)").graph
    stages = [
        Stage("icm", 0.01, "short"),
        Stage("semidefinite", 0.02, "too short"),
        Stage("trw-s(tighten=cycles)", 0.5, "long enough"),
        Stage("trw-s(tighten=cycles)", 0.01, "short, but loaded"),
    ]
    begun = []

    def skipped(graph, solver, **settings):
        begun.append(solver)
        return replace(solve(graph, "icm", **settings), status=Status.CONVERGED)

    monkeypatch.setattr(auto, "plan", lambda *arguments: iter(stages))
    monkeypatch.setattr(auto, "searches", lambda graph: [])
    monkeypatch.setattr(auto, "solve", skipped)
    # No label is ruled out.
    monkeypatch.setattr(auto, "_reduced", lambda graph, *_: auto.reduce(graph, lambda: True))
    il.solve(graph, "auto")
    # The first call is the descent.
    assert begun[1:] == ["icm", "trw-s(tighten=cycles)", "trw-s(tighten=cycles)"]
