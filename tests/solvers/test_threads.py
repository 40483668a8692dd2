"""Sweeps shared by threads: the same results for any number of them, and none left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import inference_lab as il
from inference_lab.algorithms import crew
from inference_lab.algorithms.crew import Crew
from inference_lab.algorithms.cuts import parts
from inference_lab.algorithms.cuts.maxflow import CutGraph, SharedSearch
from inference_lab.algorithms.cuts.roof_duality import LabelChoice
from inference_lab.conformance import Check, solver_checks
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.grids import grid_edges
from inference_lab.graph.random_graphs import FAMILIES, random_graph
from inference_lab.registry.registry import as_solver, solver_registry
from inference_lab.solvers.loopy_bp import LoopyBP, Passes
from inference_lab.solvers.mean_field import Rule, sequential_sweep

NAMES = [name for name in solver_registry.names() if hasattr(as_solver(name), "threads")]
#: Settings under which methods that often do not settle give up sooner.
BRIEF = {"loopy-bp": "loopy-bp(max_sweeps=50, threads=2)"}
CHECKS = [
    (name, check)
    for name in NAMES
    for check in solver_checks(BRIEF.get(name, f"{name}(threads=2)"), graphs_per_family=1)
]
#: Settings that sweeps depend on.
SPECS = (
    *("icm(order=random, restarts=1, {})", "icm(order=sequential, {})", "icm({})"),
    *("mean-field({})", "mean-field(damping=0.3, {})"),
    *("loopy-bp(max_sweeps=60, {})", "loopy-bp(damping=0.4, max_sweeps=60, {})"),
    *("trw-s(max_sweeps=60, {})", "trw-s(max_sweeps=9, order=breadth-first, tighten=cycles, {})"),
    "loopy-bp(schedule=chains, max_sweeps=60, {})",
    "loopy-bp(precision=single, max_sweeps=60, {})",
    *("alpha-expansion({})", "alpha-expansion(nonsubmodular=truncate, {})", "alpha-beta-swap({})"),
)


@pytest.fixture(autouse=True)
def nobody_left() -> Iterator[None]:
    """No thread of a run is there after it; those of others may come and go."""
    before = set(threading.enumerate())
    yield
    assert not [t for t in threading.enumerate() if t not in before and "ThreadPool" in t.name]


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Let threads share small graphs, too; the sizes of the crews that did so."""
    piece = crew._piece
    monkeypatch.setattr(crew, "_piece", lambda graph: piece(graph) if graph.n_variables > 99 else 1)
    monkeypatch.setattr(crew, "_LONGER", 1)
    monkeypatch.setattr(parts, "_FEWEST", 1)
    monkeypatch.setattr(parts, "_MOST", 1.0)
    sizes: list[int] = []
    share = Crew._share

    def noted(self: Crew, *arguments: object) -> int:
        sizes.append(self.size)
        return share(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Crew, "_share", noted)
    yield sizes


def told(solution: il.Solution) -> tuple[object, ...]:
    """Return all of a solution that does not tell the time."""
    marginals = solution.marginals
    if marginals is not None:
        marginals = [np.asarray(row).tolist() for row in marginals]
    labels = None if solution.labels is None else solution.labels.tolist()
    return (
        *(solution.status, labels, solution.energy, solution.lower_bound, solution.iterations),
        *(marginals, solution.log_partition, [p[1:] for p in solution.trace]),
    )


def medium(name: str) -> FactorGraph:
    """Return a graph that threads share as it is: pairs of points anywhere, or a picture."""
    rng = np.random.default_rng(0)
    if name == "pairs":
        edges = np.concatenate([rng.permutation(60_000).reshape(-1, 2) for _ in range(4)])
        return FactorGraph.potts(rng.normal(size=(60_000, 4)), edges, rng.normal(size=len(edges)))
    edges = grid_edges(150, 200)
    return FactorGraph.potts(rng.random((30_000, 16)), edges, rng.uniform(0, 0.5, len(edges)))


@pytest.mark.parametrize("check", [pytest.param(c, id=f"{name}-{c}") for name, c in CHECKS])
def test_conformance(check: Check, shared: list[int]) -> None:
    """All promises of a solver are kept where threads share its sweeps."""
    check()


@pytest.mark.parametrize("spec", SPECS)
def test_results_do_not_depend_on_the_number_of_threads(spec: str, shared: list[int]) -> None:
    for family in FAMILIES:
        graph = random_graph(family, 1)
        for temperature in (0.0, 0.7):
            if as_solver(spec.format("threads=1")).supports(graph, temperature) is not None:
                continue
            one, *others = (
                told(il.solve(graph, spec.format(f"threads={n}"), seed=3, temperature=temperature))
                for n in (1, 2, 4)
            )
            assert others == [one, one], (family, temperature)
    assert {2, 4} == set(shared)


@pytest.mark.parametrize("spec", ["icm({})", "mean-field({})", "loopy-bp({})", "trw-s({})"])
@pytest.mark.parametrize("name", ["pairs", "picture"])
def test_graphs_of_some_size(name: str, spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where thousands of variables are updated at once, by windows or by tiles."""
    graph = medium(name)
    asked: list[int] = []
    share = Crew._share
    monkeypatch.setattr(Crew, "_share", lambda self, *a: asked.append(1) or share(self, *a))
    one, *others = (
        told(il.solve(graph, spec.format(f"threads={n}"), seed=0, max_iterations=12))
        for n in (1, 2, 4)
    )
    assert others == [one, one]
    assert len(asked) >= 2


@pytest.mark.parametrize("name", ["pairs", "picture"])
def test_in_a_fixed_order_icm_does_what_it_does_without_threads(name: str) -> None:
    graph = medium(name)
    for order in ("sequential", "symmetric"):
        spec = f"icm(order={order}, {{}})"
        alone, shared = (il.solve(graph, spec.format(f"threads={n}")) for n in (None, 2))
        assert told(alone) == told(shared), order


def test_along_chains_the_results_are_those_without_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows at once, then columns at once; or trees, where they are many."""
    monkeypatch.setattr(crew, "_LONGER", 2)
    asked: list[int] = []
    share = Crew._share
    monkeypatch.setattr(Crew, "_share", lambda self, *a: asked.append(1) or share(self, *a))
    for name in ("pairs", "picture"):
        graph = medium(name)
        spec = "loopy-bp(schedule=chains, {})"
        alone, shared = (
            il.solve(graph, spec.format(f"threads={n}"), max_iterations=8) for n in (None, 2)
        )
        assert told(alone) == told(shared)
    assert len(asked) > 8 * 4, "both directions of rows and columns"


def test_belief_propagation_sends_what_it_sends_without_threads() -> None:
    """On forests nothing is skipped; elsewhere it settles at the same fixed point."""
    rng = np.random.default_rng(0)
    parents = [(int(rng.integers(0, i)), i) for i in range(1, 20_000)]
    forest = FactorGraph.potts(rng.normal(size=(20_000, 4)), parents, rng.normal(size=19_999))
    alone, shared = (il.solve(forest, f"loopy-bp(threads={n})", temperature=1.0) for n in (None, 2))
    assert (alone.marginals == shared.marginals).all()
    graph = medium("picture")
    alone, shared = (il.solve(graph, f"loopy-bp(threads={n})", temperature=1.0) for n in (None, 2))
    assert alone.status == shared.status == "converged"
    assert np.abs(alone.marginals - shared.marginals).max() < 1e-4


@pytest.mark.parametrize("name", ["pairs", "picture"])
def test_trw_s_does_what_it_does_without_threads(name: str) -> None:
    """But for rounding, since variables add their messages up in another order."""
    graph = medium(name)
    alone, shared = (il.solve(graph, f"trw-s(max_sweeps=30, threads={n})") for n in (None, 2))
    assert shared.lower_bound == pytest.approx(alone.lower_bound, rel=1e-9)
    assert shared.energy == pytest.approx(alone.energy, rel=1e-6)


@pytest.mark.parametrize("spec", ["loopy-bp", "trw-s"])
def test_forests_are_swept_from_the_roots_whatever_their_numbers(spec: str) -> None:
    """A comb that is cut into tiles across its teeth, these numbered from their ends."""
    n, rng = 251, np.random.default_rng(0)
    number = np.arange(n * n).reshape(n, n)
    number[:, 1:] = number[:, :0:-1].copy()
    teeth = np.stack([number[:, :-1].ravel(), number[:, 1:].ravel()], axis=1)
    edges = np.sort(np.concatenate([teeth, np.stack([number[:-1, 0], number[1:, 0]], axis=1)]))
    comb = FactorGraph.potts(0.02 * rng.random((n * n, 16)), edges, 1.0 + rng.random(len(edges)))
    alone, shared = (il.solve(comb, f"{spec}(threads={n})") for n in (None, 2))
    assert alone.status == shared.status == "optimal"
    assert shared.energy == pytest.approx(alone.energy, abs=1e-6)


@pytest.mark.parametrize("family", ["ragged", "higher-order", "own-tables", "mixed"])
def test_a_variable_is_due_or_not(family: str) -> None:
    """No sum of changes, which would depend on who comes first, or lose one."""
    graph = next(g for g in (random_graph(family, s) for s in range(50)) if not g.is_forest)
    passes = Passes(LoopyBP(threads=1), graph, 1.0)
    for number in range(4):
        passes.sweep(number)
        if graph.n_factors == 0:  # what these send back counts for the receiver only
            assert set(passes.priority.tolist()) <= {0.0, np.inf}
    sizes = graph.cardinalities
    q = np.repeat(1.0 / sizes, sizes)
    priority = np.full(graph.n_variables, np.inf)
    digits = np.empty(8, dtype=np.int64)
    rule = Rule(1.0, 0.0, 1e3, 1e-6, True)
    order = np.arange(graph.n_variables)
    field = np.empty(sizes.max())
    sequential_sweep(graph.arrays, order, rule, q, priority, field, digits, None)
    assert set(priority.tolist()) <= {0.0, np.inf} and np.inf in priority


@pytest.mark.parametrize("name", NAMES)
def test_a_limit_ends_it_with_what_it_has(name: str) -> None:
    graph = medium("pairs")
    solution = il.solve(graph, f"{name}(threads=2)", time_limit=0.01)
    assert solution.status == "limit"


@pytest.mark.parametrize("name", NAMES)
def test_runs_in_processes_of_their_own_have_threads_of_their_own(name: str) -> None:
    """After a run here, two runs forked from here."""
    graph, spec = medium("pairs"), f"{name}(max_sweeps=3, threads=2)"
    if name.startswith("alpha"):  # these share pictures
        graph, spec = medium("picture"), f"{name}(order=sequential, max_cycles=1, threads=2)"
    here = il.solve(graph, spec, seed=0)
    found = il.compare(il.Problem("some", graph), [spec], seeds=2)
    assert set(found.frame["status"]) <= {"limit", "converged"}
    assert found.frame["energy"].tolist() == [here.energy] * 2


@pytest.mark.parametrize("spec", ["icm({})", "icm(order=random, {})"])
def test_labels_spread_over_ties_whoever_sweeps(spec: str) -> None:
    rng = np.random.default_rng(0)
    unary = rng.integers(0, 3, size=(30_000, 16)).astype(float)
    graph = FactorGraph.potts(unary, grid_edges(150, 200), 1.0)
    one, *others = (told(il.solve(graph, spec.format(f"threads={n}"), seed=0)) for n in (1, 2, 4))
    assert others == [one, one]


def test_label_costs_are_for_one_thread() -> None:
    graph = medium("pairs").with_label_costs([1.0] * 4)
    alone, shared = (il.solve(graph, f"icm(threads={n})", seed=0) for n in (None, 2))
    assert told(alone) == told(shared)


def integral(name: str) -> FactorGraph:
    """Return a graph of integer costs, of which cuts are exact."""
    rng = np.random.default_rng(1)
    n, k = 2500, 4
    edges = grid_edges(50, 50)
    if name == "shuffled":
        edges = rng.permutation(n)[edges]
    if name == "estep":
        edges = np.sort(rng.integers(0, n, size=(900, 2)), axis=1)
        edges = edges[edges[:, 0] != edges[:, 1]]
    low = -4 if name in ("frustrated", "estep") else 0
    unary = rng.integers(0, 9, size=(n, k)).astype(float)
    if name == "linear":
        apart = np.abs(np.subtract.outer(np.arange(k), np.arange(k))).astype(float)
        return FactorGraph.pairwise(unary, edges, 2 * np.minimum(apart, 2))
    return FactorGraph.potts(unary, edges, 2.0 * rng.integers(low, 4, len(edges)))


@pytest.mark.parametrize("name", ["attractive", "frustrated", "shuffled", "estep", "linear"])
@pytest.mark.parametrize("solver", ["alpha-expansion", "alpha-beta-swap"])
@pytest.mark.parametrize("rule", ["qpbo", "truncate"])
def test_large_moves_are_those_without_threads(
    name: str, solver: str, rule: str, shared: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = integral(name)
    searched: list[int] = []
    solve = SharedSearch.solve

    def noted(self: SharedSearch, *stop: Callable[[], bool]) -> bool:
        searched.append(1)
        return solve(self, *stop)

    monkeypatch.setattr(SharedSearch, "solve", noted)
    alone, *others = (
        told(il.solve(graph, f"{solver}(nonsubmodular={rule}, threads={n})", seed=2))
        for n in (None, 1, 2, 3)
    )
    assert others == [alone] * 3
    assert len(searched) >= 18


@pytest.mark.parametrize("name", ["pairs", "picture"])
def test_costs_of_a_move_are_those_without_threads(
    name: str, shared: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last bit, though they are no integers."""
    graph = medium(name)
    rng = np.random.default_rng(0)
    zero, one = rng.integers(0, 4, size=(2, graph.n_variables))
    monkeypatch.setattr(CutGraph, "solve", lambda self, stop: False)
    monkeypatch.setattr(SharedSearch, "solve", lambda self, stop: False)
    with Crew(2) as two:
        choices = [LabelChoice(graph), LabelChoice(graph, two)]
        for choice in choices:
            assert choice.minimise(zero, one, rule="truncate") is None
        alone, apart = (choice.network.arrays for choice in choices)
        assert alone.excess.any() and alone.residual.any() and shared
        assert (alone.excess == apart.excess).all() and (alone.residual == apart.residual).all()
        assert choices[0].change(zero, one) == pytest.approx(choices[1].change(zero, one))


def test_parts_where_they_pay() -> None:
    """Bands of a picture however its pixels are numbered; not of few or of entangled variables."""
    picture, pairs = medium("picture"), medium("pairs")
    bands = parts.Parts.of_graph(picture)
    assert bands is not None and bands.between.size <= 201 * (len(bands.nodes) - 1)
    number = np.random.default_rng(0).permutation(picture.n_variables)
    shuffled = FactorGraph.potts(picture.unary_values.reshape(-1, 16), number[picture.edges], 1.0)
    found = parts.Parts.of_graph(shuffled)
    # Fronts of a search reach over no more pixels than a row and a column, with two terms each.
    assert found is not None and found.between.size < 700 * (len(found.nodes) - 1)
    assert np.sort(np.concatenate(found.nodes)).tolist() == list(range(picture.n_variables))
    assert parts.Parts.of_graph(pairs) is None
    small = FactorGraph.potts(np.zeros((900, 2)), grid_edges(30, 30), 1.0)
    assert parts.Parts.of_graph(small) is None


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("alpha-expansion(threads=0)", "threads must be at least 1, got 0"),
        ("icm(threads=0)", "threads must be at least 1, got 0"),
        ("loopy-bp(schedule=residual, threads=2)", "threads can share the sequential schedule"),
        ("mean-field(update=parallel, threads=1)", "threads can share sequential updates only"),
    ],
)
def test_settings_that_cannot_be(spec: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        as_solver(spec)
