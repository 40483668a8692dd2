"""Theorems that hold for several methods: each is stated once, with the solvers it holds for.

Conformance already checks every solver (bounds below the optimum, true proofs, best energies that
never rise). A theorem states more, of fewer solvers. Each check is a function that a broken solver
at the end of the file fails.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import Recipe, assert_local_minimum, random_pairs, recipes, signed_grid

import inference_lab as il
from inference_lab.conformance import exhaustive
from inference_lab.contract import Outcome, Run, Solver
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.grids import grid_edges
from inference_lab.graph.random_graphs import FAMILIES, HARD, LABEL_COSTS, random_graph
from inference_lab.graph.terms import DiagonalTerms, OwnTables, SharedTable
from inference_lab.problems.instances import Instances, find
from inference_lab.registry.registry import solver_registry
from inference_lab.registry.sources import as_problem
from inference_lab.specs.extras import how_to_install

INF = math.inf
FEASIBLE = [family for family in FAMILIES if family != "infeasible"]
SCHEDULES = ("auto", "sequential")
EXTREME = (1e-3, 0.1, 1.0, 30.0, 1e3)


def available(spec: str) -> bool:
    """Return whether a solver is one of ours, or the package that it needs is installed."""
    module = __import__(type(solver_registry.make(spec)).__module__, fromlist=["PACKAGE"])
    return not hasattr(module, "PACKAGE") or not how_to_install(module.PACKAGE, module.EXTRA)


def solvers(*specs: str) -> pytest.MarkDecorator:
    """Name the solvers that a theorem holds for."""
    return pytest.mark.parametrize(
        "solver",
        [
            pytest.param(
                spec, marks=pytest.mark.skipif(not available(spec), reason="not installed")
            )
            for spec in specs
        ],
    )


def applies(graph: FactorGraph, solver: str | Solver, temperature: float) -> bool:
    made = solver_registry.make(solver) if isinstance(solver, str) else solver
    return made.unsupported_reason(graph, temperature) is None


# ---------------------------------------------------------------------- descents


def check_descent(solver: str | Solver, families: list[str]) -> None:
    """Check that energies never rise, from any start, and that the end is a local minimum."""
    for family, seed in itertools.product(families, range(3)):
        graph = random_graph(family, seed)
        if not applies(graph, solver, 0.0):
            assert family in LABEL_COSTS or graph.n_factors
            continue
        start = np.random.default_rng(seed).integers(0, graph.cardinalities)
        for initial in (None, start):
            s = il.solve(graph, solver, initial=initial, seed=seed)
            assert s.status in ("converged", "optimal"), (family, seed)
            energies = [point.energy for point in s.trace]
            slack = 1e-9 * exhaustive(graph).scale
            # Between infinite energies the number of violated hard terms falls.
            assert all(b == INF == a or b <= a + slack for a, b in itertools.pairwise(energies))
            # The last labelling offered is the end of the descent.
            assert s.energy == energies[-1] or abs(s.energy - energies[-1]) <= slack
            if s.feasible:
                assert_local_minimum(graph, s.labels)


@solvers(
    *(
        f"icm(init={i}, order={o})"
        for i in ("unary", "random")
        for o in ("random", "sequential", "symmetric")
    ),
    "kernighan-lin",
    "kernighan-lin(kicks=0)",
    "alpha-expansion",
    "alpha-expansion(init=random)",
    "alpha-expansion(order=sequential, init=random)",
)
def test_descents_never_rise_and_end_in_local_minima(solver: str) -> None:
    """It holds also if moves are not submodular and leave variables open."""
    check_descent(solver, [*FEASIBLE, *LABEL_COSTS])


# ---------------------------------------------------------------------- exactness


def check_exact(graph: FactorGraph, solver: str | Solver, seed: int = 0) -> None:
    """Check for the least energy with its proof, or the proof of infeasibility."""
    exact = exhaustive(graph)
    s = il.solve(graph, solver, seed=seed)
    if math.isinf(exact.optimum):
        assert s.status == "infeasible" and s.lower_bound == INF
        return
    assert s.status == "optimal"
    assert s.energy == pytest.approx(exact.optimum, abs=1e-10 * exact.scale)
    if s.claimed_energy is not None:
        assert s.claimed_energy == pytest.approx(exact.optimum, abs=1e-8 * exact.scale)


def check_soft(
    graph: FactorGraph, solver: str | Solver, temperature: float, kind: str = "exact"
) -> None:
    """Check the log-partition and all marginals, and a labelling that hard terms allow."""
    exact = exhaustive(graph)
    s = il.solve(graph, solver, temperature=temperature)
    if math.isinf(exact.optimum):
        assert s.status == "infeasible"
        return
    assert math.isfinite(s.energy)
    assert s.log_partition_kind == kind
    assert s.log_partition == pytest.approx(
        exact.log_partition(temperature), rel=1e-11, abs=1e-11 * exact.scale / temperature
    )
    near = 1e-9 + 1e-14 * exact.scale / temperature
    for row, expected in zip(s.marginals, exact.marginals(temperature), strict=True):
        np.testing.assert_allclose(row, expected, rtol=0, atol=near)


@solvers(
    "brute-force",
    "junction-tree",
    "ilp",
    "ilp(backend=PULP_CBC_CMD)",
    "persistency(then=brute-force)",
    "ortools-cpsat",
    "toulbar2",
)
def test_exact_everywhere(solver: str) -> None:
    """It holds on every family, infeasible graphs included."""
    slow = "CBC" in solver  # a separate process for each run
    few = ("potts", "ragged", "hard-tables", "mixed")
    for family in few if slow else (*FAMILIES, *LABEL_COSTS):
        for seed in range(100, 102 if slow else 105):
            graph = random_graph(family, seed)
            if family not in LABEL_COSTS or applies(graph, solver, 0.0):
                check_exact(graph, solver, seed)


@solvers("brute-force", "junction-tree")
def test_marginals_are_exact_everywhere(solver: str) -> None:
    for family in (*FAMILIES, *LABEL_COSTS):
        for seed in range(100, 106):
            check_soft(random_graph(family, seed), solver, (0.2, 1.0, 5.0)[seed % 3])


FOREST_SOLVERS = ("junction-tree", "loopy-bp")


@solvers(*FOREST_SOLVERS, "loopy-bp(damping=0.7)", "lp-relaxation", "trw-s(max_sweeps=1)", "mplp")
@given(recipe=recipes(forest=True))
def test_exact_on_forests(solver: str, recipe: Recipe) -> None:
    """Terms of every kind, factors and infinite costs among them."""
    graph = recipe.build()
    assert graph.is_forest
    check_exact(graph, solver)


@solvers(*FOREST_SOLVERS, "loopy-bp(damping=0.7)", "trw-bp")
@given(recipe=recipes(forest=True), temperature=st.sampled_from(EXTREME))
def test_marginals_are_exact_on_forests(solver: str, recipe: Recipe, temperature: float) -> None:
    assume(temperature > 1e-14 * recipe.scale())  # below, rounding would decide
    # One forest of the convex combination holds the graph, and its bound is tight.
    kind = "upper" if solver == "trw-bp" else "exact"
    graph = recipe.build()
    assume(solver != "trw-bp" or not graph.n_factors)
    check_soft(graph, solver, temperature, kind)


@solvers("brute-force", "junction-tree")
@pytest.mark.parametrize("times", [1.0, 1e5])
def test_tiny_temperatures_put_all_weight_on_the_minimum(solver: str, times: float) -> None:
    graph = random_graph("own-tables", 2)
    s = il.solve(graph, solver, temperature=times * graph.resolution)
    assert s.labels.tolist() == il.solve(graph, solver).labels.tolist()
    assert s.marginals == pytest.approx(np.eye(graph.n_labels)[s.labels])


@solvers(*FOREST_SOLVERS)
def test_ties_on_a_forest_are_broken_consistently(solver: str) -> None:
    """All labels of a chain and of a star tie; independent choices would not alternate."""
    chain = FactorGraph.potts(np.zeros((51, 2)), [(i, i + 1) for i in range(50)], -1.0)
    hub = DiagonalTerms([(0, i) for i in range(1, 9)], same=INF)
    star = FactorGraph.from_terms(np.zeros((9, 3)), [hub])
    for graph, energy in ((chain, -50.0), (star, 0.0)):
        s = il.solve(graph, solver)
        assert (s.status, s.energy) == ("optimal", energy)


@solvers("trw-s", *(f"loopy-bp(schedule={s})" for s in SCHEDULES), "trw-bp")
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_orders_that_close_to_a_cycle_are_infeasible(solver: str, temperature: float) -> None:
    """Each label must exceed the last: no single term is contradictory, only messages detect it."""
    rising = np.where(np.arange(4)[:, None] < np.arange(4), 0.0, INF)
    graph = FactorGraph.pairwise(np.zeros((3, 4)), [(0, 1), (1, 2), (2, 0)], rising)
    if applies(graph, solver, temperature):
        assert il.solve(graph, solver, temperature=temperature).status == "infeasible"


# ---------------------------------------------------------------------- samples and descents


@solvers("gibbs")
@pytest.mark.parametrize("family", [f for f in FEASIBLE if f not in ("large", "empty")])
def test_sampled_marginals_are_within_their_standard_errors(solver: str, family: str) -> None:
    """Errors are at most 4.5 of them, if single changes reach all states."""
    for seed in range(6):
        graph, temperature = random_graph(family, seed), (1.0, 1.5, 2.5)[seed % 3]
        hard = np.isinf([*graph.edge_weights, *graph.pairwise_values]).any()
        if hard or graph.n_factors * graph.has_infinite or not applies(graph, solver, temperature):
            continue
        s = il.solve(graph, solver, seed=seed, temperature=temperature)
        exact = exhaustive(graph).marginals(temperature)
        for row, expected, error in zip(s.marginals, exact, s.diagnostics["stderr"], strict=True):
            assert (np.abs(row - expected) <= 4.5 * error + 1e-3).all(), (seed, row, expected)


@solvers(
    "kernighan-lin",
    "mean-field",
    "simulated-annealing(reheats=20)",
)
@pytest.mark.parametrize("family", [f for f in FEASIBLE if f != "empty"])
def test_small_graphs_are_mostly_solved(solver: str, family: str) -> None:
    solved = 0
    for seed in range(12):
        graph = random_graph(family, seed)
        exact = exhaustive(graph)
        solved += il.solve(graph, solver, seed=seed).energy <= exact.optimum + 1e-9 * exact.scale
    if solver == "mean-field":
        # If a variable follows from others, a factorised distribution is less useful.
        assert solved >= (4 if family == "inheritance" else 7)
    else:
        assert solved >= (12 if family not in HARD else 9 if family == "inheritance" else 11)


#: Solvers that check the clock between parts, and a limit on these that makes many of a run.
PARTS = {
    "brute-force": ("solvers.brute_force._BLOCK", 5),
    "junction-tree": ("algorithms.elimination.tree_passes._CHUNK", 1),
    "branch-and-bound": ("solvers.branch_and_bound._CHUNK", 2000),
    "kernighan-lin(kicks=1)": ("solvers.kernighan_lin._WORK", 1),
    "lp-relaxation(draws=20)": ("solvers.lp_relaxation._BLOCK_WORK", 1),
    "gibbs(sweeps=64, chains=1)": ("solvers.gibbs._STEPS", 1),
    "trw-s": ("algorithms.dual.reparametrisation._STRETCH", 10),
}


@solvers(*PARTS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    "family", ["forest", "grid", "mixed", "higher-order", "own-tables", "ragged"]
)
def test_parts_of_any_size_lead_to_the_same_answer(
    solver: str, family: str, temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(4):
        graph = random_graph(family, seed)
        if not applies(graph, solver, temperature):
            return
        whole = il.solve(graph, solver, temperature=temperature, seed=seed)
        with monkeypatch.context() as patch:
            place, value = PARTS[solver]
            patch.setattr(f"inference_lab.{place}", value)
            parts = il.solve(graph, solver, temperature=temperature, seed=seed)
        assert parts.labels.tolist() == whole.labels.tolist()
        assert (parts.energy, parts.status) == (whole.energy, whole.status)
        assert parts.lower_bound == pytest.approx(whole.lower_bound, rel=1e-12)
        if temperature:
            # Sums over other blocks are rounded in another order.
            assert parts.log_partition == pytest.approx(whole.log_partition, rel=1e-13, abs=1e-13)
            for row, other in zip(parts.marginals, whole.marginals, strict=True):
                assert row == pytest.approx(other, abs=1e-12)


@solvers("kernighan-lin")
@pytest.mark.parametrize("limit", [1e-4, 1e-3, 3e-3, 1e-2])
def test_moves_on_trial_are_taken_back_when_time_runs_out(
    solver: str, limit: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The energy is never above that of the start, nor above an earlier one."""
    monkeypatch.setattr("inference_lab.solvers.kernighan_lin._WORK", 10)
    graph = as_problem("potts-grid(height=30, width=30, labels=3, frustration=0.5)").graph
    start = np.random.default_rng(0).integers(0, 3, 900)
    s = il.solve(graph, solver, initial=start, time_limit=limit)
    energies = [point.energy for point in s.trace]
    assert s.status == "limit" and energies[-1] == s.energy
    assert all(b <= a + 1e-9 for a, b in itertools.pairwise(energies))


# ---------------------------------------------------------------------- duals


@solvers("trw-s", "mplp(tighten=none)")
def test_infinite_costs_are_propagated_to_the_only_labelling(solver: str) -> None:
    """A planted labelling that unit propagation finds: messages carry the infinities."""
    graph = FactorGraph.from_terms(
        [[0.0, INF, INF], [0.0] * 3, [0.0] * 3, [0.0] * 3],
        [
            DiagonalTerms([(0, 1), (0, 2), (1, 2), (2, 3), (1, 3)], INF, 0.0),
            OwnTables([(0, 3)], [[[5.0, 5.0, 5.0], [0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]]),
        ],
    )
    s = il.solve(graph, solver)
    assert s.status == "optimal"
    assert s.labels.tolist() in ([0, 1, 2, 0], [0, 2, 1, 0])


@solvers("trw-s", "mplp")
def test_no_time_still_gives_a_labelling(solver: str) -> None:
    s = il.solve(random_graph("grid", 0), solver, time_limit=1e-9)
    assert s.labels is not None and s.iterations == 0 and s.status == "limit"


@solvers("trw-s(tolerance=1e-9, patience=20)", "mplp(tighten=none)")
@pytest.mark.parametrize("family", ["potts", "own-tables", "ragged", "higher-order", "merged"])
def test_bound_is_at_most_that_of_the_local_polytope_and_mostly_near(
    solver: str, family: str
) -> None:
    """A fixed point can be below; on most random graphs it hardly is."""
    near = 0
    for seed in range(10):
        graph = random_graph(family, seed)
        lp = il.solve(graph, "lp-relaxation").lower_bound
        bound = il.solve(graph, solver).lower_bound
        assert bound <= lp + 1e-7
        near += bound >= lp - (1e-4 if "trw-s" in solver else 0.05 * exhaustive(graph).scale)
    assert near >= 8


@solvers("trw-s(tolerance=0)", "mplp(tighten=none, tolerance=1e-10, patience=20)")
@pytest.mark.parametrize("seed", range(8))
def test_bound_equals_that_of_the_local_polytope_with_two_labels(solver: str, seed: int) -> None:
    """True of weak tree agreement (Kolmogorov, Wainwright 2005) and of fixed points of MPLP.

    The latter by Globerson and Jaakkola 2007. An energy at the bound ends the sweeps.
    """
    rng = np.random.default_rng(seed)
    edges = grid_edges(4, 5, wrap=True)
    graph = FactorGraph.pairwise(
        rng.normal(size=(20, 2)), edges, rng.normal(size=(len(edges), 2, 2))
    )
    lp = il.solve(graph, "lp-relaxation").lower_bound
    assert il.solve(graph, solver).lower_bound == pytest.approx(lp, abs=1e-5)


@solvers("trw-s", "mplp(tighten=none)")
def test_patience_counts_sweeps_in_succession(solver: str) -> None:
    graph = signed_grid(5, 5, 3, 1, weight=3.0)
    method = solver_registry.make(solver)
    one, many = (il.solve(graph, replace(method, patience=p)) for p in (1, 40))
    assert one.status == many.status == "converged"
    assert one.iterations + 39 <= many.iterations


@solvers("trw-s", "mplp")
def test_clusters_close_a_gap_of_messages(solver: str) -> None:
    """Three variables with two labels all differ, as hard terms and as soft ones."""
    edges = [(0, 1), (1, 2), (2, 0)]
    soft = FactorGraph.potts(np.zeros((3, 2)), edges, -1.0, constant=3.0)
    hard = FactorGraph.from_terms(np.zeros((3, 2)), [DiagonalTerms(edges, INF, 0.0)])
    method = solver_registry.make(solver)
    for graph, energy in ((soft, 1.0), (hard, INF)):
        plain = il.solve(graph, replace(method, tighten=None))
        assert plain.status == "converged" and plain.energy == energy
        assert plain.lower_bound == pytest.approx(0.0, abs=1e-9)
        tight = il.solve(graph, replace(method, tighten="cycles"))
        assert tight.lower_bound == energy
        assert tight.status == ("infeasible" if energy == INF else "optimal")


@solvers("trw-s", "mplp")
@pytest.mark.parametrize("family", FAMILIES)
def test_tightening_never_loosens(solver: str, family: str) -> None:
    """It holds also if clusters are added before the plain sweeps converge, as in MPLP."""
    method = solver_registry.make(solver)
    share = 1e-9 if solver == "trw-s" else 1e-5
    for seed in range(6):
        graph = random_graph(family, seed)
        slack = share * exhaustive(graph).scale
        plain = il.solve(graph, replace(method, tighten=None))
        tight = il.solve(graph, replace(method, tighten="cycles"))
        assert tight.lower_bound >= plain.lower_bound - slack
        start = tight.diagnostics.get("start_bound", INF)
        assert start >= plain.lower_bound - slack or solver == "mplp"


#: Instances whose optimum the local polytope proves, and frustrated ones that clusters prove.
TIGHT = [
    *(f"uai2014_map/Segmentation_{number}" for number in (12, 14, 19)),
    "uai2014_map/ImageAlignment_12",
    "uai2008_protein/pdb1ajj",
    "uai2008_protein/pdb1mjc",
    "uai2008_protein/pdb2mcm",
    "small_ad3/10_14_s.binary",
    "small_ad3/Family2Dominant.1.5loci",
    "small_ad3/deer_rescaled_0034.K10.F1.25.model",
    "toulbar2/GeomSurf-7-gm256",
    "toulbar2/network",
]
FRUSTRATED = [
    *(f"uai2014_map/{name}" for name in ("Grids_26", "Grids_29", "Grids_30")),
    "toulbar2/CELAR7-SUB0",
    "toulbar2/example",
    "uai2012_protein/pdb1i24",
]
PROVED = {
    "trw-s": TIGHT,
    "trw-s(tighten=cycles)": [*FRUSTRATED, "uai2014_map/Promedas_65"],
    "mplp": [
        *FRUSTRATED,
        *TIGHT[:3],
        "uai2008_protein/pdb1mjc",
        "uai2014_map/wcsp_13",
        "small_pgmpy/grid4x4",
        "small_pgmpy/grid4x4_with_triplets",
        "small_ad3/grid3x3",
        "toulbar2/warehouse",
    ],
}


@pytest.mark.parametrize(("solver", "name"), [(s, name) for s in PROVED for name in PROVED[s]])
def test_known_optima_are_proved(solver: str, name: str, data_dir: Path) -> None:
    """The values come from exact elimination or toulbar2, as the registry states."""
    if not (data_dir / "map").is_dir():
        pytest.skip(f"no folder {data_dir / 'map'}")
    s = il.solve(Instances(name).build(data_dir).graph, solver, seed=0)
    assert (s.status, s.energy) == ("optimal", pytest.approx(find(name).energy, abs=2e-6))


# ---------------------------------------------------------------------- what must not matter


def easy(seed: int) -> FactorGraph:
    """Return a loopy graph of weak terms, which has a unique fixed point."""
    rng = np.random.default_rng(seed)
    n, k = 8, 3
    edges = random_pairs(rng, n, 14)
    cubes = [(tuple(rng.permutation(n)[:3]), 0.3 * rng.normal(size=(k, k, k))) for _ in range(2)]
    return FactorGraph.from_terms(
        rng.normal(size=(n, k)),
        [
            DiagonalTerms(edges[:6], 0.3 * rng.normal(size=6), 0.3 * rng.normal(size=6)),
            DiagonalTerms(edges[6:9], 0.3 * rng.normal(size=(3, k))),
            SharedTable(edges[9:], 0.3 * rng.normal(size=(k, k)), rng.normal(size=5)),
        ],
        cubes if seed % 2 else [],
    )


def pairs_of_runs(
    solver: str | Solver, change: Callable[[FactorGraph, int], FactorGraph], unit: float = 1.0
) -> Iterator[tuple[FactorGraph, il.Solution, il.Solution, int]]:
    """Yield runs on a graph and on the same graph changed, for solvers that support them."""
    for seed, temperature in itertools.product(range(3), (0.0, 1.0)):
        graph = easy(seed)
        if applies(graph, solver, temperature):
            one = il.solve(graph, solver, temperature=temperature)
            two = il.solve(change(graph, seed), solver, temperature=unit * temperature)
            yield graph, one, two, seed


def check_units(solver: str | Solver, unit: float) -> None:
    """Check that costs and temperature in another unit give the same answer in that unit."""

    def change(graph: FactorGraph, seed: int) -> FactorGraph:
        return FactorGraph.from_factors(
            graph.cardinalities, [(s, unit * t) for s, t in graph.factors()]
        )

    for _, one, two, _ in pairs_of_runs(solver, change, unit):
        assert two.energy == pytest.approx(unit * one.energy, rel=1e-9)
        assert two.status == one.status
        if one.marginals is not None:
            assert np.abs(one.marginals - two.marginals).max() < 1e-5


ALL = [name for name in solver_registry.names() if available(name)]


@pytest.mark.parametrize("unit", [1e-9, 1e9])
@pytest.mark.parametrize("solver", ALL)
def test_the_unit_of_costs_does_not_matter(solver: str, unit: float) -> None:
    """It holds for every solver; no tolerance is absolute."""
    check_units(solver, unit)


def check_permutations(solver: str | Solver) -> None:
    """Rename variables and labels and transpose terms: check for the same answer, renamed."""

    def names(seed: int) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(seed)
        return rng.permutation(8), rng.permutation(3)

    def change(graph: FactorGraph, seed: int) -> FactorGraph:
        name, label = names(seed)
        renamed = [(tuple(name[list(s)]), t[np.ix_(*[label] * len(s))]) for s, t in graph.factors()]
        return FactorGraph.from_factors(graph.cardinalities, renamed[::-1])

    judged = 0
    for _, one, two, seed in pairs_of_runs(solver, change):
        name, label = names(seed)
        judged += 1
        assert two.energy == pytest.approx(one.energy, rel=1e-10)
        assert two.lower_bound == pytest.approx(one.lower_bound, rel=1e-7)
        assert label[two.labels[name]].tolist() == one.labels.tolist()
        if one.marginals is not None:
            assert np.abs(two.marginals[name] - one.marginals[:, label]).max() < 1e-7
            assert two.log_partition == pytest.approx(one.log_partition, abs=1e-7)
    assert judged


@solvers(
    "loopy-bp(tolerance=1e-10)",
    "mean-field(tolerance=1e-10)",
    "brute-force",
    "junction-tree",
    "ilp",
)
def test_names_of_variables_and_labels_do_not_matter(solver: str) -> None:
    """It holds for methods with a unique fixed point, and for exact ones."""
    check_permutations(solver)


# ---------------------------------------------------------------------- the checks can fail


@dataclass(frozen=True)
class Guess(Solver):
    """Two random labellings, reported as the only ones."""

    def run(self, graph: FactorGraph, run: Run) -> Outcome:
        for _ in range(2):
            run.offer(run.rng.integers(0, graph.cardinalities))
        return Outcome(converged=True)


@dataclass(frozen=True)
class Absolute(Solver):
    """Labels from the digits of costs, and marginals from the number of a variable."""

    def supports(self, graph: FactorGraph, temperature: float) -> str | None:
        return None

    def run(self, graph: FactorGraph, run: Run) -> Outcome:
        n, k = graph.n_variables, int(graph.cardinalities.max(initial=1))
        run.offer((np.array([graph.unary_of(i)[0] for i in range(n)]) * 100 % 2).astype(np.int64))
        rows = np.arange(n)[:, None] ** np.arange(k)
        marginals = rows / rows.sum(axis=1, keepdims=True) if run.temperature else None
        claimed = {"log_partition": 0.0, "log_partition_kind": "exact"} if run.temperature else {}
        return Outcome(converged=True, marginals=marginals, **claimed)


@pytest.mark.parametrize(
    "check",
    [
        lambda: check_descent(Guess(), ["potts"]),
        lambda: check_exact(random_graph("potts", 0), Guess()),
        lambda: check_soft(random_graph("potts", 0), Absolute(), 1.0),
        lambda: check_units(Absolute(), 1e6),
        lambda: check_permutations(Absolute()),
    ],
)
def test_a_broken_solver_fails_the_check(check: Callable[[], None]) -> None:
    with pytest.raises(AssertionError):
        check()


def test_a_labelling_above_its_neighbours_is_no_local_minimum() -> None:
    graph = random_graph("no-edges", 0)
    best = il.solve(graph, "brute-force")
    assert_local_minimum(graph, best.labels)
    labels = best.labels.copy()
    labels[-1] = graph.unary[-1].argmax()
    with pytest.raises(AssertionError):
        assert_local_minimum(graph, labels)
