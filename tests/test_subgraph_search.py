"""Exact moves over subgraphs: against exhaustive search, elimination, and published grids."""

import csv
import itertools
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inference_lab as il
from inference_lab.problem import as_problem

DATA = Path(
    os.environ.get("INFERENCE_LAB_DATA", Path(__file__).parent.parent.parent / "shared/data")
)
GRIDS = DATA / "map" / "uai2014_map"


def least(graph):
    labels = list(itertools.product(*(range(int(k)) for k in graph.cardinalities)))
    return float(graph.energy(np.array(labels)).min())


@st.composite
def small_graphs(draw):
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    n = draw(st.integers(1, 6))
    sizes = rng.integers(1, 4, size=n)
    unary = [rng.normal(size=k) for k in sizes]
    factors = [((i,), costs) for i, costs in enumerate(unary)]
    for i, j in itertools.combinations(range(n), 2):
        if rng.random() < 0.6:
            table = rng.normal(size=(sizes[i], sizes[j])) * 2
            if rng.random() < 0.2:
                table[rng.random(table.shape) < 0.3] = np.inf
            factors.append(((i, j), table))
    if n >= 3 and rng.random() < 0.5:
        scope = tuple(int(v) for v in rng.permutation(n)[:3])
        factors.append((scope, rng.normal(size=tuple(sizes[list(scope)]))))
    return il.FactorGraph.from_factors(sizes.tolist(), factors)


@given(graph=small_graphs(), seed=st.integers(0, 100))
@settings(max_examples=120, deadline=None, derandomize=True)
def test_small_graphs_fit_into_one_block_and_are_solved(graph, seed):
    s = il.solve(graph, "subgraph-search", seed=seed)
    expected = least(graph)
    if np.isfinite(expected):
        assert s.status == "optimal"
        assert s.energy == pytest.approx(expected, abs=1e-9)
    else:
        assert s.status == "infeasible"


@given(seed=st.integers(0, 10**6), labels=st.integers(2, 4), table=st.sampled_from([4, 16, 64]))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_small_tables_never_raise_the_energy_nor_beat_the_optimum(seed, labels, table):
    rng = np.random.default_rng(seed)
    graph = as_problem(
        f"potts-grid(height=6, width=6, labels={labels}, frustration=0.5, seed={seed})"
    ).graph
    start = rng.integers(0, labels, size=36)
    spec = f"subgraph-search(table={table}, descent_table={table}, rounds=3)"
    s = il.solve(graph, spec, seed=seed, initial=start)
    optimum = il.solve(graph, "junction-tree").energy
    assert s.energy <= graph.energy(start) + 1e-9
    assert s.energy >= optimum - 1e-9
    best = [point.best_energy for point in s.trace]
    assert all(later <= earlier for earlier, later in itertools.pairwise(best))
    if s.status == "optimal":
        assert s.energy == pytest.approx(optimum, abs=1e-8)


def test_fresh_grids_mostly_reach_the_optimum_that_elimination_proves():
    # Tables of 2^16 entries do not hold a grid of 20 x 20, nor one of 14 x 14 with three labels.
    excess = []
    for spec in (
        "ising(size=20, coupling=8.0, field=0.3, seed={})",
        "ising(size=20, couplings=pm1, coupling=2.0, seed={})",
        "potts-grid(height=14, width=14, labels=3, frustration=0.5, seed={})",
    ):
        for seed in range(3):
            graph = as_problem(spec.format(seed)).graph
            optimum = il.solve(graph, "junction-tree").energy
            s = il.solve(graph, "subgraph-search", seed=seed)
            excess.append((s.energy - optimum) / abs(optimum))
    # A heuristic: one of nine stays 0.06 % above. Kernighan-Lin reaches three, annealing four.
    assert min(excess) > -1e-9
    assert sum(e < 1e-9 for e in excess) >= 8
    assert max(excess) < 1e-3


@pytest.mark.skipif(not GRIDS.is_dir(), reason=f"needs the UAI 2014 grids in {GRIDS}")
def test_published_grids_are_never_worse_than_the_references():
    # 20 x 20 to 40 x 40, couplings up to 15, wrapped ones among them.
    with (GRIDS / "reference.csv").open() as stream:
        rows = [row for row in csv.DictReader(stream) if row["file"].startswith("Grids")]
    assert len(rows) == 5
    better = []
    for row in rows:
        graph = as_problem(str(GRIDS / row["file"])).graph
        reference = float(row["map_energy_-lnP"])
        s = il.solve(graph, "subgraph-search", time_limit=60.0)
        assert s.energy <= reference + 1e-6 * abs(reference), row["file"]
        if s.energy < reference - 1e-6 * abs(reference):
            better.append(row["file"])
            assert row["status"] != "optimal"
    # Listed as best known, and it is not.
    assert better == ["Grids_23.uai.gz"]


def test_bad_settings():
    graph = il.FactorGraph.potts([[0.0, 1.0]], [], [])
    for spec in ("table=0", "descent_table=0", "rounds=-1"):
        with pytest.raises(il.SpecError, match=spec.partition("=")[0]):
            il.solve(graph, f"subgraph-search({spec})")
