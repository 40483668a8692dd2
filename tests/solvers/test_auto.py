"""The portfolio: its choice of stages, its report, and no loss of a stage's result."""

import itertools
import math
import re
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
from places import ROOT

import inference_lab as il
from inference_lab import solving
from inference_lab.constraints import sample_pairs
from inference_lab.contract import Status
from inference_lab.registry.registry import as_solver
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


#: A graph of each structure and size that the rules distinguish, by a spec or a function.
CASES = {
    "forest": lambda: il.FactorGraph.potts(np.zeros((4, 3)), [(0, 1), (1, 2)], [1, -1]),
    "attractive grid": lambda: as_problem("potts-grid(height=20, width=20, labels=4)").graph,
    "narrow grid": lambda: as_problem("potts-grid(height=4, width=200, labels=3)").graph,
    "wider grid": lambda: as_problem("potts-grid(height=12, width=40, labels=3)").graph,
    "spin glass": lambda: as_problem("ising(size=40, coupling=3.0)").graph,
    "loose, two labels": lambda: drawn_potts(100, 400, 2),
    "dense, two labels": lambda: drawn_potts(300, 6000, 2),
    "small and dense, two labels": lambda: drawn_potts(100, 600, 2),
    "either sign, dense": lambda: drawn_potts(150, 1200, 6),
    "either sign, sparse": lambda: drawn_potts(200, 400, 3),
    "either sign, large": lambda: drawn_potts(60_000, 60_000, 3),
    "either sign, vast": lambda: drawn_potts(600_000, 600_000, 3),
    "interchangeable labels": lambda: drawn_potts(100, 600, 3, field=0.0),
    "loose tables": lambda: (
        as_problem("random-graph(variables=120, labels=6, degree=8, terms=tables)").graph
    ),
    "sparse tables": lambda: (
        as_problem("random-graph(variables=150, labels=6, degree=4, terms=tables)").graph
    ),
    "dense tables": lambda: (
        as_problem("random-graph(variables=60, labels=6, degree=12, terms=tables)").graph
    ),
    "band, two labels": lambda: band(100, 22, 2, tables=False),
    "band, either sign": lambda: band(120, 13, 3, tables=False),
    "band of tables": lambda: band(120, 13, 3, tables=True),
    "higher order": lambda: drawn_factors(150, 200, 0),
    "higher order and pairs": lambda: drawn_factors(100, 60, 300),
}


def drawn_potts(n, m, labels, field=1.0):
    """Return Potts terms of either sign on a random graph."""
    rng = np.random.default_rng(0)
    edges = np.unique(np.sort(rng.integers(0, n, size=(m, 2)), axis=1), axis=0)
    edges = edges[edges[:, 0] < edges[:, 1]]
    signs = rng.choice([-1.0, 1.0], size=len(edges))
    return il.FactorGraph.potts(field * rng.random((n, labels)), edges, signs)


def band(n, width, labels, tables):
    """Return random terms between variables that are at most `width` apart."""
    rng = np.random.default_rng(0)
    edges = [(i, j) for i in range(n) for j in range(i + 1, min(n, i + width + 1))]
    unaries = rng.random((n, labels))
    if tables:
        costs = rng.normal(size=(len(edges), labels, labels))
        return il.FactorGraph.pairwise(unaries, edges, costs)
    return il.FactorGraph.potts(unaries, edges, rng.choice([-1.0, 1.0], size=len(edges)))


def drawn_factors(n, triples, pairs):
    """Return random tables of two and of three variables of two labels."""
    rng = np.random.default_rng(0)
    sizes = [3] * triples + [2] * pairs
    scopes = [rng.choice(n, size=size, replace=False).tolist() for size in sizes]
    return il.FactorGraph.from_factors(
        [2] * n, [(scope, rng.normal(size=(2,) * len(scope))) for scope in scopes]
    )


@cache
def case_graph(name):
    return CASES[name]()


def in_short(graph, open_part):
    """Return a plan as text: solvers without settings, with their shares in percent."""
    return ", ".join(
        f"{stage.solver.partition('(')[0]}{'*' * stage.afresh} {100 * stage.share:.0f}"
        for stage in plan(graph, lambda: open_part)
    )


#: The plan of each case if all stays open, and if nothing is left open, where that differs;
#: "*" marks a stage that starts afresh.
PLANS = {
    "forest": ("junction-tree 100",),
    "attractive grid": (
        "trw-s 70, alpha-expansion 70, trw-s 70, ilp 60, junction-tree 80, toulbar2 90",
    ),
    "narrow grid": (
        "junction-tree 60, trw-s 70, alpha-expansion 70, trw-s 70, ilp 60, toulbar2 90",
    ),
    "wider grid": (
        "trw-s 70, alpha-expansion 70, trw-s 70, junction-tree 60, ilp 60, toulbar2 90",
    ),
    "spin glass": (
        "mplp 10, memetic* 20, subgraph-search 60, mplp 60, ilp 60, junction-tree 80, toulbar2 90",
        "mplp 10, memetic* 20, ilp 75, subgraph-search 40, mplp 60, ilp 60, junction-tree "
        "80, toulbar2 90",
    ),
    "loose, two labels": (
        "memetic 30, ilp 30, semidefinite 70, mplp 60, ilp 60, junction-tree 80, toulbar2 90",
    ),
    "dense, two labels": (
        "simulated-annealing 50, memetic 50, semidefinite 70, mplp 60, ilp 60, toulbar2 90",
    ),
    "small and dense, two labels": (
        "memetic 30, semidefinite 70, mplp 60, ilp 60, junction-tree 80, toulbar2 90",
    ),
    "either sign, dense": (
        "trw-s 10, memetic* 20, memetic 60, semidefinite 70, trw-s 60, ilp 60, toulbar2 90",
        "trw-s 10, memetic* 20, ilp 75, memetic 40, semidefinite 70, trw-s 60, ilp 60, toulbar2 90",
    ),
    "either sign, sparse": (
        "trw-s 10, memetic* 20, ilp 75, memetic 40, subgraph-search 20, trw-s 60, ilp 60, "
        "junction-tree 80, toulbar2 90",
    ),
    "either sign, large": ("loopy-bp 60, icm 100, trw-s 60, memetic 30, trw-s 60, toulbar2 90",),
    "either sign, vast": ("loopy-bp 85, icm 100, trw-s 60, memetic 30, trw-s 60, toulbar2 90",),
    "interchangeable labels": (
        "branch-and-bound 10, multicut 60, trw-s 10, memetic* 20, ilp 75, memetic 40, "
        "semidefinite 70, trw-s 60, ilp 60, toulbar2 90",
    ),
    "loose tables": (
        "branch-and-bound 25, trw-s 10, memetic* 75, memetic* 40, trw-s 50, mplp 40, ilp "
        "60, memetic 40, branch-and-bound 50, toulbar2 90",
        "branch-and-bound 25, branch-and-bound 70, memetic* 40, trw-s 50, mplp 40, ilp "
        "60, memetic 40, branch-and-bound 50, toulbar2 90",
    ),
    "sparse tables": (
        "branch-and-bound 25, trw-s 10, subgraph-search 30, memetic* 75, memetic* 40, "
        "trw-s 50, mplp 40, ilp 60, memetic 40, branch-and-bound 50, toulbar2 90",
        "branch-and-bound 25, branch-and-bound 70, subgraph-search 30, memetic* 40, trw-s "
        "50, mplp 40, ilp 60, memetic 40, branch-and-bound 50, toulbar2 90",
    ),
    "dense tables": (
        "branch-and-bound 25, trw-s 10, simulated-annealing 30, memetic* 40, trw-s 50, "
        "mplp 40, ilp 60, memetic 40, branch-and-bound 50, toulbar2 90",
        "branch-and-bound 25, branch-and-bound 70, simulated-annealing 30, memetic* 40, "
        "trw-s 50, mplp 40, ilp 60, memetic 40, branch-and-bound 50, toulbar2 90",
    ),
    "band, two labels": (
        "memetic 30, junction-tree 60, semidefinite 70, mplp 60, ilp 60, toulbar2 90",
    ),
    "band, either sign": (
        "trw-s 10, memetic* 20, junction-tree 60, memetic 40, semidefinite 70, trw-s 60, "
        "ilp 60, toulbar2 90",
        "trw-s 10, memetic* 20, ilp 75, junction-tree 60, memetic 40, semidefinite 70, "
        "trw-s 60, ilp 60, toulbar2 90",
    ),
    "band of tables": (
        "branch-and-bound 25, junction-tree 60, trw-s 10, simulated-annealing 30, "
        "memetic* 40, trw-s 50, mplp 40, ilp 60, memetic 40, branch-and-bound 50, "
        "toulbar2 90",
        "branch-and-bound 25, junction-tree 60, branch-and-bound 70, simulated-annealing "
        "30, memetic* 40, trw-s 50, mplp 40, ilp 60, memetic 40, branch-and-bound 50, "
        "toulbar2 90",
    ),
    "higher order": (
        "branch-and-bound 25, trw-s 25, subgraph-search 30, memetic* 75, memetic* 40, ilp "
        "60, trw-s 30, mplp 50, ilp 60, junction-tree 80, memetic 40, branch-and-bound "
        "50, toulbar2 90",
        "branch-and-bound 25, branch-and-bound 70, trw-s 25, subgraph-search 30, memetic* "
        "40, branch-and-bound 60, ilp 60, trw-s 30, mplp 50, ilp 60, junction-tree 80, "
        "memetic 40, branch-and-bound 50, toulbar2 90",
    ),
    "higher order and pairs": (
        "branch-and-bound 25, trw-s 25, memetic* 75, memetic* 40, ilp 30, trw-s 30, mplp "
        "50, ilp 60, junction-tree 80, memetic 40, branch-and-bound 50, toulbar2 90",
        "branch-and-bound 25, branch-and-bound 70, trw-s 25, memetic* 40, "
        "branch-and-bound 60, ilp 30, trw-s 30, mplp 50, ilp 60, junction-tree 80, "
        "memetic 40, branch-and-bound 50, toulbar2 90",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_plan_of_each_structure(name):
    graph = case_graph(name)
    plans = (in_short(graph, 1.0), in_short(graph, 0.0))
    assert tuple(dict.fromkeys(plans)) == PLANS[name]


def rules_of(entries):
    """Yield all rules of a list."""
    for entry in entries:
        for rule in entry.rules if isinstance(entry, auto.FirstOf) else (entry,):
            yield rule
            if rule.then is not None:
                yield rule.then


def test_each_rule_applies_somewhere():
    """A rule that no case reaches could be wrong, or was forgotten when another changed."""
    applied = {
        id(rule)
        for name in CASES
        for share in (0.0, 0.3, 1.0)
        for rule in auto.fired(
            auto.RULES, auto.GraphFacts(case_graph(name), partial(float, share), 10.0)
        )
    }
    idle = [rule for rule in rules_of(auto.RULES) if id(rule) not in applied]
    assert [(rule.when.text, rule.solver) for rule in idle] == []


def test_thresholds_name_the_records_that_set_them():
    """Conditions with a number, and constants, name a record that exists."""
    records = {path.name[:3] for path in (ROOT / "docs/decisions").glob("[0-9]*.md")}
    lists = (auto.RULES, auto.SEARCHES, auto.MARGINALS)
    parts = {
        part
        for rules in lists
        for rule in rules_of(rules)
        for part in rule.when.parts or (rule.when,)
    }
    numbered = [part for part in parts if re.search(r"\d", part.text)]
    assert len(numbered) > 10
    assert {part.record for part in numbered} | {p.record for p in parts if p.record} <= records
    source = (ROOT / "solvers/auto.py").read_text(encoding="utf-8")
    constants = re.findall(r"((?:^#:.*\n)+)^(_[A-Z_]+) = [\d{\"f]", source, flags=re.MULTILINE)
    named = {name: re.findall(r"records? (\d{3})", comment) for comment, name in constants}
    assert {"_ANNEALS", "_LEAST_SHARE", "_REDUCTION_SHARE", "_SECONDS_AN_ENTRY"} <= named.keys()
    assert {
        name for name, cited in named.items() if not records.issuperset(cited or ["none"])
    } == set()


def test_foreseen_rules_are_those_of_the_run():
    """Rules without a proviso are in every plan; those with one are in some."""
    for name in CASES:
        if name.endswith(("large", "vast")):
            continue
        graph = case_graph(name)
        foreseen = auto.foreseen(graph)
        certain = [rule.solver for rule in foreseen if not rule.proviso]
        possible = [rule.solver for rule in foreseen]
        for share in (0.0, 0.3, 1.0):
            stages = [
                stage.solver
                for stage in plan(graph, partial(float, share))
                if as_solver(stage.solver).supports(graph, 0.0) is None
            ]
            assert is_subsequence(certain, stages), name
            assert is_subsequence(stages, possible), name


def is_subsequence(part, whole):
    rest = iter(whole)
    return all(one in rest for one in part)


def test_both_populations_of_a_rule_follow():
    """They do so even if the first one closes most of the gap."""
    left_open = iter([1.0, 1.0, 0.9, *[0.01] * 50])
    graph = case_graph("loose tables")
    solvers = [stage.solver for stage in plan(graph, lambda: next(left_open))]
    assert solvers.count("memetic(region=100, patience=0.3)") == 2


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
    starts, energies = {}, {}

    def watched(graph, solver, **settings):
        starts.setdefault(solver, settings["initial"])
        # Replaced by a solver that certainly finds better labels in the time.
        stand_in = "simulated-annealing" if solver == "branch-and-bound" else solver
        solution = solve(graph, stand_in, **settings)
        # The plan merges repeated stages; a later search may find still better labels.
        energies.setdefault(solver, solution.energy)
        return solution

    monkeypatch.setattr(auto, "solve", watched)
    s = il.solve(graph, "auto", time_limit=2.0, clock="cpu")
    first = graph.energy(starts["branch-and-bound"])
    assert s.diagnostics["plan"][0]["solver"] == "branch-and-bound"
    assert energies["branch-and-bound"] < first
    assert starts["memetic(region=100, patience=0.3)"] is None
    assert graph.energy(starts["trw-s(tighten=cycles)"]) <= energies["branch-and-bound"]


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
    diagnostics = s.diagnostics
    if s.log_partition_kind != "exact":
        assert diagnostics["log_partition_lower"] <= diagnostics["log_partition_upper"]
        assert diagnostics["log_partition_lower"] <= s.log_partition + 1e-6 * abs(s.log_partition)
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
