"""TRW-S: a plain implementation as referee, the theorems, and instances with proved optima."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import DATA
from strategies import assert_local_minimum, signed_grid

import inference_lab as il
from inference_lab.algorithms.dual.reparametrisation import dual_bound, make_scratch
from inference_lab.conformance import exhaustive
from inference_lab.contract import Run, Status
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.graph.grids import grid_edges
from inference_lab.graph.random_graphs import FAMILIES, random_graph
from inference_lab.kernels.messages import cost_scale
from inference_lab.problems.instances import Instances
from inference_lab.solvers.trw_s import TRWSPasses, one_pass

needs_data = pytest.mark.skipif(
    not (DATA / "map").is_dir(), reason=f"no instances in {DATA / 'map'}; see INFERENCE_LAB_DATA"
)

seeds = st.integers(0, 2**32 - 1)


def natural(graph: il.FactorGraph) -> IntArray:
    return np.arange(graph.n_variables)


def picture(seed: int) -> il.FactorGraph:
    """Return a small grid of truncated linear terms."""
    rng = np.random.default_rng(seed)
    edges, labels = grid_edges(5, 6), int(rng.integers(2, 20))
    apart = np.abs(np.subtract.outer(np.arange(labels), np.arange(labels)))
    weights = rng.uniform(0.0, 0.5, len(edges))
    return il.FactorGraph.pairwise(rng.random((30, labels)), edges, np.minimum(apart, 3), weights)


def plain_passes(graph: il.FactorGraph, order: IntArray, sweeps: int) -> Iterator[float]:
    """Yield the bound of each pass by the rule in plain numpy; pairwise only."""
    message: dict[tuple[int, int], FloatArray] = {}
    tables: dict[tuple[int, int], FloatArray] = {}
    for e, (i, j) in enumerate(graph.edges.tolist()):
        tables[i, j] = graph.edge_table(e)
        tables[j, i] = tables[i, j].T
        message[i, j] = np.zeros(graph.cardinalities[j])
        message[j, i] = np.zeros(graph.cardinalities[i])
    unaries = [graph.unary_of(i) for i in range(graph.n_variables)]
    for _ in range(sweeps):
        for along in (order.tolist(), order[::-1].tolist()):
            bound = graph.constant + one_pass(along, unaries, tables, message)
            yield bound
            if bound == math.inf:
                return


def kernel_passes(graph: il.FactorGraph, order: IntArray, sweeps: int) -> Iterator[float]:
    passes, run = TRWSPasses(graph, order), Run(graph)
    for _ in range(sweeps):
        for direction in (1, 0):
            bound = passes.directed_pass(direction, run)
            assert bound is not None
            yield bound
            if bound == math.inf:
                return


def tolerance(graph: il.FactorGraph) -> float:
    return 1e-9 * exhaustive(graph).scale


PAIRWISE = sorted(
    set(FAMILIES) - {"higher-order", "forest", "merged", "mixed", "hard-tables", "one-label"}
)


@given(family=st.sampled_from(PAIRWISE), seed=seeds, breadth_first=st.booleans())
def test_passes_equal_the_plain_implementation(family: str, seed: int, breadth_first: bool) -> None:
    """It tests every kernel and the message layout, pass by pass, infinite costs included."""
    graph = random_graph(family, seed)
    if graph.is_forest or graph.n_factors:
        return
    order = graph.breadth_first_order if breadth_first else natural(graph)
    expected = list(plain_passes(graph, order, 6))
    actual = list(kernel_passes(graph, order, 6))
    assert len(actual) == len(expected)
    assert actual == pytest.approx(expected, rel=1e-9, abs=1e-9 * cost_scale(graph))


@pytest.mark.parametrize("k", [3, 4, 7, 16, 33])
@pytest.mark.parametrize("family", ["potts", "linear", "quadratic", "hard"])
def test_passes_equal_the_plain_implementation_with_more_labels(family: str, k: int) -> None:
    """Compilers split loops over labels into blocks; all remainders occur."""
    rng = np.random.default_rng(k)
    edges = grid_edges(3, 4, diagonals=True)
    unary = rng.normal(size=(12, k))
    apart = np.abs(np.subtract.outer(np.arange(k), np.arange(k))).astype(np.float64)
    if family == "potts":
        graph = il.FactorGraph.potts(unary, edges, rng.normal(size=len(edges)))
    elif family == "hard":
        unary[rng.random(unary.shape) < 0.2] = np.inf
        unary[:, 0] = 0.0
        weights = rng.normal(size=len(edges))
        weights[::5] = np.inf
        graph = il.FactorGraph.potts(unary, edges, weights)
    else:
        table = np.minimum(apart if family == "linear" else apart**2, k / 3)
        graph = il.FactorGraph.pairwise(unary, edges, table, rng.uniform(size=len(edges)))
    expected = list(plain_passes(graph, natural(graph), 5))
    assert list(kernel_passes(graph, natural(graph), 5)) == pytest.approx(expected, rel=1e-10)


@given(family=st.sampled_from(sorted(FAMILIES)), seed=seeds, shuffled=st.booleans())
def test_bound_never_falls_nor_passes_the_optimum(family: str, seed: int, shuffled: bool) -> None:
    """It holds in every half sweep, for every family and any order of the variables."""
    graph = random_graph(family, seed)
    order = natural(graph)
    if shuffled:
        order = np.random.default_rng(seed).permutation(order)
    optimum, slack = exhaustive(graph).optimum, tolerance(graph)
    before = -math.inf
    for bound in kernel_passes(graph, order, 8):
        assert bound >= before - slack
        assert bound <= optimum + slack
        before = bound


def test_the_last_messages_give_a_labelling_however_seldom_labels_are_decoded() -> None:
    """On a tree that labelling is optimal, unlike the one before the first sweep."""
    rng = np.random.default_rng(0)
    edges = [(int(rng.integers(0, i)), i) for i in range(1, 100)]
    graph = il.FactorGraph.potts(rng.normal(size=(100, 3)), edges, rng.normal(size=99))
    assert Run(graph).offer(TRWSPasses(graph, graph.breadth_first_order).decode()) > (
        il.solve(graph, "trw-s").energy + 1.0
    )
    seldom = il.solve(graph, "trw-s(polish=false, decode_every=1000)")
    assert seldom.status == Status.OPTIMAL


@pytest.mark.parametrize(
    "family",
    [
        "potts",
        "grid",
        "diagonal",
        "truncated-linear",
        "own-tables",
        "ragged",
        "must-links",
        "picture",
    ],
)
def test_labels_are_chosen_given_earlier_labels(family: str) -> None:
    """Labelled neighbours contribute the costs of their labels, others messages (section 5)."""
    for seed in range(20):
        graph = picture(seed) if family == "picture" else random_graph(family, seed)
        order = np.random.default_rng(seed).permutation(graph.n_variables)
        passes, run = TRWSPasses(graph, order), Run(graph)
        for direction in (1, 0):
            passes.directed_pass(direction, run)
        x, labels = np.full(graph.n_variables, -1), passes.decode()
        start = dict(zip(passes.plan.half.tolist(), passes.plan.at.tolist(), strict=True))
        for i in order:
            finite, infinite = graph.unary_of(i).copy(), np.isinf(graph.unary_of(i)).astype(int)
            finite[infinite == 1] = 0.0
            for e, side in np.argwhere(graph.edges == i):
                j = graph.edges[e, 1 - side]
                if x[j] >= 0:
                    costs = np.take(graph.edge_table(e), x[j], axis=1 - side)
                else:
                    at = start[2 * e + 1 - side]
                    costs = passes.state.rows[at : at + finite.size]
                infinite += np.isinf(costs)
                finite += np.where(np.isinf(costs), 0.0, costs)
            best = np.where(infinite == infinite.min(), finite, np.inf)
            x[i] = labels[i]
            assert best[x[i]] <= best.min() + 1e-9 * cost_scale(graph)


def test_an_impossible_term_is_infeasible() -> None:
    """Both costs of the Potts term are infinite, so their difference is undefined."""
    terms = [
        il.DiagonalTerms([(0, 1), (1, 2)], 0.0, 1.0),
        il.DiagonalTerms([(0, 2)], np.inf, np.inf),
    ]
    graph = il.FactorGraph.from_terms(np.zeros((3, 2)), terms)
    assert list(kernel_passes(graph, natural(graph), 3)) == [math.inf]
    assert il.solve(graph, "trw-s").status == Status.INFEASIBLE


def test_polish_only_improves() -> None:
    for seed in range(10):
        graph = signed_grid(8, 8, 3, seed, weight=3.0)
        rough = il.solve(graph, "trw-s(polish=false)")
        fine = il.solve(graph, "trw-s")
        assert fine.energy <= rough.energy
        assert fine.lower_bound == rough.lower_bound
        assert_local_minimum(graph, fine.labels)


def test_memory_is_one_message_an_edge() -> None:
    edges = grid_edges(30, 30)
    graph = il.FactorGraph.potts(np.zeros((900, 5)), edges, np.ones(len(edges)))
    passes = TRWSPasses(graph, natural(graph))
    assert passes.state.rows.size == 5 * len(edges)
    assert passes.state.slots.size == 0


def test_bound_of_many_terms_is_summed_without_loss() -> None:
    """The plain sum of as many terms is off in the eleventh digit; this one in the last."""
    unary = np.random.default_rng(0).uniform(0.0, 1e6, size=(200_000, 1))
    graph = il.FactorGraph.potts(unary, np.empty((0, 2), dtype=np.int64), 0.0)
    exact = math.fsum(unary.ravel())
    assert abs(next(kernel_passes(graph, natural(graph), 1)) - exact) <= 4 * math.ulp(exact)


# ------------------------------------------------------------------ tightening


@given(
    family=st.sampled_from(sorted(FAMILIES)),
    seed=seeds,
    sweeps=st.integers(0, 5),
    shuffled=st.booleans(),
)
def test_reparametrisation_has_the_bound_of_the_next_pass(
    family: str, seed: int, sweeps: int, shuffled: bool
) -> None:
    """The bound handed to tightening is not below the last pass, and equals the next one."""
    graph = random_graph(family, seed)
    order = natural(graph)
    if shuffled:
        order = np.random.default_rng(seed).permutation(order)
    passes, run = TRWSPasses(graph, order), Run(graph)
    for _ in range(sweeps):
        for direction in (1, 0):
            if passes.directed_pass(direction, run) == math.inf:
                return
    bound, _ = dual_bound(graph, graph.arrays, passes.reparametrisation(), make_scratch(graph))
    again = TRWSPasses(graph, order)
    for direction in (*(1, 0) * sweeps, 1):
        expected = again.directed_pass(direction, run)
    assert expected is not None
    slack, optimum = tolerance(graph), exhaustive(graph).optimum
    if expected == math.inf:
        # The pass continued after the first label was lost, so it may have detected less.
        assert optimum == math.inf
    else:
        assert bound == pytest.approx(expected, abs=slack)


def test_no_tightening_by_default_nor_without_a_gap() -> None:
    graph = signed_grid(6, 6, 2, 0, weight=3.0)
    assert "clusters" not in il.solve(graph, "trw-s").diagnostics
    assert il.solve(graph, "trw-s(tighten=cycles)").diagnostics["clusters"] > 0
    tree = random_graph("forest", 0)
    assert "clusters" not in il.solve(tree, "trw-s(tighten=cycles)").diagnostics


@needs_data
def test_bounds_of_factors_equal_srmp() -> None:
    """After 1, 2 and 5 sweeps, of SRMP 1.0 with minimal edges and variables as separators."""
    graph = Instances("uai2014_map/Promedas_40").build(DATA).graph
    for sweeps, bound in ((1, 14.99701170), (2, 15.75460696), (5, 16.69507463)):
        solution = il.solve(graph, f"trw-s(max_sweeps={sweeps})")
        assert solution.lower_bound == pytest.approx(bound, abs=1e-8)
