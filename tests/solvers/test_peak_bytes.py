"""Peak memory of runs: the estimates of the solvers, and what they take beside the costs."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import inference_lab as il
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.grids import grid_edges
from inference_lab.registry.registry import as_solver

SOLVERS = ("icm", "loopy-bp", "mean-field", "trw-s")

#: Bytes of a run, beside the graph and the messages or the distribution, for each variable and for
#: each pairwise term, as measured and rounded up.
MOST_BYTES = {"icm": (90, 20), "loopy-bp": (130, 80), "mean-field": (70, 40), "trw-s": (140, 60)}


def estep(n: int, k: int) -> FactorGraph:
    """Return a sparse E-step with two terms a variable."""
    rng = np.random.default_rng(0)
    edges = rng.integers(0, n, (2 * n, 2))
    edges = edges[edges[:, 0] != edges[:, 1]]
    agree = rng.random(len(edges)) < 0.5
    terms = il.DiagonalTerms(edges, np.where(agree, 0.0, 1.0), np.where(agree, 1.0, 0.0))
    return FactorGraph.from_terms(4.0 * rng.random((n, k)), [terms])


def grid(side: int, k: int) -> FactorGraph:
    """Return a grid of Potts terms."""
    edges = grid_edges(side, side)
    rng = np.random.default_rng(0)
    return FactorGraph.potts(rng.random((side**2, k)), edges, rng.random(len(edges)))


def tables(n: int, k: int) -> FactorGraph:
    """Return a graph of tables on variables with different numbers of labels."""
    rng = np.random.default_rng(0)
    edges = rng.integers(0, n, (2 * n, 2))
    edges = edges[edges[:, 0] < edges[:, 1]]
    unary = [rng.random(k - i % 2) for i in range(n)]
    shapes = k - edges % 2
    terms = il.OwnTables(edges, [rng.random(tuple(shape)) for shape in shapes])
    return FactorGraph.from_terms(unary, [terms])


def peak(graph: FactorGraph, solver: str, temperature: float) -> int:
    """Return the peak of the bytes that a run allocates."""
    # Small arrays first, so that no compiler allocates.
    il.solve(estep(200, 3), solver, temperature=temperature, max_iterations=3)
    il.solve(grid(20, 3), solver, temperature=temperature, max_iterations=3)
    il.solve(tables(40, 3), solver, temperature=temperature, max_iterations=3)
    tracemalloc.start()
    il.solve(graph, solver, temperature=temperature, max_iterations=2)
    n_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return n_bytes


@pytest.mark.parametrize(
    ("solver", "temperature"),
    [*((name, 0.0) for name in SOLVERS), ("loopy-bp", 1.0), ("mean-field", 1.0)],
)
@pytest.mark.parametrize(
    "make",
    [
        lambda: estep(200_000, 3),
        lambda: estep(100_000, 12),
        lambda: grid(400, 4),
        lambda: tables(30_000, 5),
    ],
    ids=["estep", "many labels", "grid", "tables"],
)
def test_estimates_of_memory_are_near_the_peak(make, solver, temperature):
    graph = make()
    estimate = as_solver(solver).peak_bytes(graph, temperature)
    assert 0.8 <= estimate / peak(graph, solver, temperature) <= 1.5


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_run_adds_few_bytes_a_term(solver):
    graph = estep(200_000, 2)
    entries = {
        "loopy-bp": 4 * graph.n_edges,
        "trw-s": 2 * graph.n_edges,
        "mean-field": graph.unary_values.size,
    }.get(solver, 0)
    variable, term = MOST_BYTES[solver]
    limit = variable * graph.n_variables + term * graph.n_edges
    assert peak(graph, solver, 0.0) - 8 * entries <= limit
