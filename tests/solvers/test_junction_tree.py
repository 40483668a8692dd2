"""Junction tree: exact on everything that fits, and a clear refusal of everything else."""

from __future__ import annotations

import gc
import math
import re
import time
import tracemalloc

import numpy as np
import pytest
from strategies import random_pairs

import inference_lab as il
from inference_lab.algorithms.elimination import tree_passes
from inference_lab.algorithms.elimination.tree_passes import make_plan
from inference_lab.graph.grids import grid_edges
from inference_lab.graph.random_graphs import random_graph
from inference_lab.problems.instances import Instances, available_instances, find
from inference_lab.solvers import junction_tree
from inference_lab.solvers.junction_tree import JunctionTree

# ---------------------------------------------------------------------- larger than a block


def test_large_tables_of_many_labels_and_arities():
    """Blocks cut within axes of 9 labels, with factors of four variables: against a chain.

    Enumeration cannot go there, but a forest of larger variables can: pairs of variables of the
    graph are merged into the variables of a chain.
    """
    rng = np.random.default_rng(1)
    n, k = 12, 9
    tables = [rng.normal(size=(k, k, k, k)) for _ in range(n // 2 - 1)]
    unary = rng.normal(size=(n, k))
    scopes = [(2 * t, 2 * t + 1, 2 * t + 2, 2 * t + 3) for t in range(n // 2 - 1)]
    shuffled = [np.transpose(table, (2, 0, 3, 1)) for table in tables]
    graph = il.FactorGraph.from_terms(
        unary,
        factors=[
            ((c, a, d, b), table) for (a, b, c, d), table in zip(scopes, shuffled, strict=True)
        ],
    )
    pairs = (unary[0::2, :, None] + unary[1::2, None, :]).reshape(n // 2, k * k)
    merged = il.FactorGraph.pairwise(
        pairs,
        [(t, t + 1) for t in range(n // 2 - 1)],
        np.array([table.reshape(k * k, k * k) for table in tables]),
    )
    cold, chain = il.solve(graph, "junction-tree"), il.solve(merged, "trw-s")
    assert cold.diagnostics["width"] >= 3
    assert cold.energy == pytest.approx(chain.energy)
    assert (cold.labels[0::2] * k + cold.labels[1::2]).tolist() == chain.labels.tolist()
    warm = il.solve(graph, "junction-tree", temperature=1.0)
    chain = il.solve(merged, "loopy-bp", temperature=1.0)
    assert warm.log_partition == pytest.approx(chain.log_partition)
    expected = chain.marginals.reshape(-1, k, k)
    assert warm.marginals[0::2] == pytest.approx(expected.sum(axis=2), abs=1e-10)
    assert warm.marginals[1::2] == pytest.approx(expected.sum(axis=1), abs=1e-10)


# ---------------------------------------------------------------------- forests


def test_long_chains_equal_their_transfer_matrix():
    """The chain has 100,000 variables; log space prevents underflow."""
    n, coupling = 100_000, 0.8
    chain = [(i, i + 1) for i in range(n - 1)]
    graph = il.FactorGraph.potts(np.zeros((n, 4)), chain, coupling)
    s = il.solve(graph, "junction-tree", temperature=1.0)
    expected = math.log(4) + (n - 1) * math.log(1 + 3 * math.exp(-coupling))
    assert s.log_partition == pytest.approx(expected, rel=1e-14)
    assert s.marginals == pytest.approx(np.full((n, 4), 0.25))


# ---------------------------------------------------------------------- budget


def test_interrupted_run_keeps_finished_results(monkeypatch):
    monkeypatch.setattr(tree_passes, "_CHUNK", 1)
    graph = random_graph("grid", 1)
    whole = il.solve(graph, "junction-tree", temperature=1.0)
    early = il.solve(graph, "junction-tree", temperature=1.0, max_iterations=3)
    assert early.status == "limit"
    assert early.labels is not None
    assert early.log_partition is None and early.marginals is None
    late = il.solve(graph, "junction-tree", temperature=1.0, max_iterations=whole.iterations - 2)
    assert late.status == "limit"
    assert late.log_partition == whole.log_partition
    assert late.log_partition_kind == "exact"
    assert late.marginals is None
    cold = il.solve(graph, "junction-tree", max_iterations=3)
    assert cold.lower_bound == -math.inf
    assert cold.energy == graph.energy(cold.labels)


def test_the_time_limit_is_looked_at_within_a_table():
    """One table of 2^26 entries takes a second, of which the limit is a tenth."""
    n = 26
    rng = np.random.default_rng(0)
    edges = [(i, j) for i in range(n) for j in range(i)]
    graph = il.FactorGraph.potts(rng.normal(size=(n, 2)), edges, rng.normal(size=len(edges)))
    il.solve(random_graph("grid", 0), "junction-tree", temperature=1.0)
    s = il.solve(graph, "junction-tree", temperature=1.0, time_limit=0.1)
    assert s.status == "limit"
    assert s.seconds < 0.8
    assert s.iterations >= 1


# ---------------------------------------------------------------------- what does not fit


def test_large_treewidth_is_refused_with_the_best_order_found():
    edges = grid_edges(40, 40)
    graph = il.FactorGraph.potts(np.zeros((1600, 2)), edges, np.arange(1.0, 1 + len(edges)))
    s = il.solve(graph, "junction-tree")
    assert s.status == "unsupported"
    assert re.search(r"no elimination order .* over \d+ variables with 2\^\d+ entries", s.message)
    assert "max_bytes is 4294967296 (4 GiB)" in s.message


def test_proved_lower_bound_on_the_treewidth_is_reported():
    n = 40
    edges = [(i, j) for i in range(n) for j in range(i)]
    graph = il.FactorGraph.potts(np.zeros((n, 3)), edges, 1.0)
    reason = JunctionTree().supports(graph, 0.0)
    assert "every elimination order has a table of at least 2^63 entries, 2^66 bytes" in reason


def test_memory_is_judged_for_the_temperature():
    """The marginals need all messages at once, the best labelling a byte for each entry."""
    graph = il.FactorGraph.potts(np.zeros((144, 2)), grid_edges(12, 12), np.arange(1.0, 265.0))
    small = JunctionTree(max_bytes=2**20)
    assert small.supports(graph, 0.0) is None
    reason = small.supports(graph, 1.0)
    assert re.match(r"treewidth at most 1[2-5] \(.*\), for which the tables need .* MiB; ", reason)
    assert JunctionTree(max_bytes=2**23).supports(graph, 1.0) is None


def test_hundred_thousand_variables_are_refused_quickly():
    rng = np.random.default_rng(0)
    n = 100_000
    edges = random_pairs(rng, n, 2 * n)
    graph = il.FactorGraph.potts(np.zeros((n, 5)), edges[edges[:, 0] != edges[:, 1]], 1.0)
    s = il.solve(graph, "junction-tree")
    assert s.status == "unsupported" and "treewidth is too large" in s.message


def test_the_search_for_an_order_keeps_to_the_time_limit():
    """The search counts as run time: `supports` does not make it before the clock starts."""
    n = 60_000
    edges = np.random.default_rng(0).integers(0, n, size=(2 * n, 2))
    graph = il.FactorGraph.potts(np.zeros((n, 5)), edges[edges[:, 0] != edges[:, 1]], 1.0)
    solver = JunctionTree(max_bytes=2**40)
    began = time.process_time()
    assert solver.supports(graph, 0.0) is None
    assert time.process_time() - began < 0.1
    assert il.solve(graph, solver, time_limit=1e-3).status == "limit"


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_memory_estimate_covers_the_allocations(temperature):
    edges = grid_edges(14, 30)
    graph = il.FactorGraph.potts(np.zeros((420, 2)), edges, np.arange(1.0, 1 + len(edges)))
    il.solve(graph, "junction-tree", temperature=temperature)
    tracemalloc.start()
    s = il.solve(graph, "junction-tree", temperature=temperature)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0.5 * s.diagnostics["bytes"] < peak < 1.05 * s.diagnostics["bytes"] + 2**19


def test_plans_are_freed_with_their_graphs():
    graph = random_graph("grid", 0)
    gc.collect()
    before = len(junction_tree._plans)
    il.solve(graph, "junction-tree")
    assert len(junction_tree._plans) == before + 1
    del graph
    gc.collect()
    assert len(junction_tree._plans) == before


# ---------------------------------------------------------------------- numbers


def test_weights_far_apart_do_not_underflow():
    """Energies that differ by 10^5 at T = 1, in a cycle: ``exp`` of them is 0 in floats."""
    n = 30
    unary = np.zeros((n, 3))
    unary[:, 0] = 1e5
    unary[:, 2] = math.log(3.0)
    graph = il.FactorGraph.potts(unary, [(i, (i + 1) % n) for i in range(n)], 0.0 * np.arange(n))
    s = il.solve(graph, "junction-tree", temperature=1.0)
    assert s.log_partition == pytest.approx(n * math.log(4 / 3))
    assert s.marginals == pytest.approx(np.tile([0.0, 0.75, 0.25], (n, 1)))
    hard = il.FactorGraph.potts(unary, [(i, (i + 1) % n) for i in range(n)], math.inf)
    s = il.solve(hard, "junction-tree", temperature=1.0)
    assert s.log_partition == pytest.approx(math.log1p(3.0**-n))


def test_hard_links_make_a_dense_graph_small():
    """200 variables, all pairs linked, but evidence decides every one of them."""
    n = 200
    edges = [(i, j) for i in range(n) for j in range(i)]
    graph = il.FactorGraph.potts(np.zeros((n, 4)), edges, math.inf).with_evidence({7: 2})
    s = il.solve(graph, "junction-tree", temperature=1.0)
    assert s.diagnostics["undecided_variables"] == 0
    assert s.labels.tolist() == [2] * n
    assert s.log_partition == 0.0
    assert s.marginals.tolist() == np.tile([0.0, 0.0, 1.0, 0.0], (n, 1)).tolist()


# ---------------------------------------------------------------------- real instances

#: Instances whose tables have this many entries at most (binary logarithm) are solved here.
_MOST = 24.5


def fitting(folder, data_dir, temperature):
    """Yield the instances of a folder with graphs small enough, and their metadata."""
    solver = JunctionTree()
    for name in available_instances():
        if name.startswith(f"{folder}/"):
            graph, instance = Instances(name).build(data_dir).graph, find(name)
            if solver.supports(graph, temperature) is not None:
                assert temperature or "exact elimination" not in instance.proof, name
            elif junction_tree._plan(graph, solver._log2_limit).order.log2_total <= _MOST:
                yield graph, instance


def test_reference_marginals_and_log_partitions(data_dir):
    """`.MAR` has six significant digits, `.PR` log10 with six significant digits."""
    solved = 0
    for graph, instance in fitting("uai2014_mar", data_dir, 1.0):
        s = il.solve(graph, "junction-tree", temperature=1.0)
        stem = data_dir / "map" / instance.file.removesuffix(".gz")
        log10_z = float(stem.with_name(stem.name + ".PR").read_text().split()[1])
        assert s.log_partition / math.log(10) == pytest.approx(log10_z, rel=5e-6), instance.name
        words = stem.with_name(stem.name + ".MAR").read_text().split()
        at = 2
        for i in range(int(words[1])):
            k = int(words[at])
            expected = np.array(words[at + 1 : at + 1 + k], dtype=float)
            np.testing.assert_allclose(s.marginals[i], expected, rtol=0, atol=1e-6)
            at += 1 + k
        assert at == len(words)
        solved += 1
    assert solved >= 15


# ---------------------------------------------------------------------- estimates

GRID = il.FactorGraph.pairwise(
    np.random.default_rng(0).normal(size=(196, 2)),
    grid_edges(14, 14),
    0.5 * np.random.default_rng(1).normal(size=(grid_edges(14, 14).shape[0], 2, 2)),
)


def test_estimate_is_closer_than_belief_propagation():
    exact, messages = (
        il.solve(GRID, solver, temperature=1.0) for solver in ("junction-tree", "loopy-bp")
    )
    plan = make_plan(GRID, 30.0, math.inf)
    tight = JunctionTree(plan.n_bytes(plan.tree, False) - 1, estimate=True)
    s = il.solve(GRID, tight, temperature=1.0)
    assert s.log_partition_kind == "estimate" and s.status == "converged"
    assert s.diagnostics["copies"] > 0
    assert abs(s.log_partition - exact.log_partition) < 0.5 * abs(
        messages.log_partition - exact.log_partition
    )
    assert (
        np.abs(s.marginals - exact.marginals).max()
        < 0.5 * np.abs(messages.marginals - exact.marginals).max()
    )


def test_log_partition_is_exact_where_one_pass_fits():
    plan = make_plan(GRID, 30.0, math.inf)
    once = JunctionTree(plan.n_bytes(plan.tree, False), estimate=True)
    assert JunctionTree(once.max_bytes).supports(GRID, 1.0) is not None
    exact, s = (il.solve(GRID, solver, temperature=1.0) for solver in ("junction-tree", once))
    assert s.log_partition_kind == "lower" and s.diagnostics["log_partition_exact"]
    assert s.log_partition == pytest.approx(exact.log_partition)
    assert s.marginals == pytest.approx(exact.marginals, abs=0.05)


def test_estimate_keeps_to_the_time_limit():
    edges = grid_edges(40, 40)
    graph = il.FactorGraph.potts(np.zeros((1600, 2)), edges, np.linspace(-1.0, 1.0, len(edges)))
    solver = JunctionTree(estimate=True)
    il.solve(graph, solver, temperature=1.0, time_limit=0.1)
    began = time.process_time()
    s = il.solve(graph, solver, temperature=1.0, time_limit=1.0, clock="cpu")
    assert time.process_time() - began < 1.5
    assert s.log_partition_kind == "estimate" and s.marginals.sum(axis=1) == pytest.approx(1.0)
