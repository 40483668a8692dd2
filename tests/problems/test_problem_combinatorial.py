"""Max-cut and side chains: energies by definition, and random draws."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import inference_lab as il
from inference_lab.problems.max_cut import MaxCut
from inference_lab.problems.protein_side_chains import RESIDUES, ProteinSideChains
from inference_lab.registry.sources import as_problem

# ---------------------------------------------------------------------- max-cut


@given(
    kind=st.sampled_from(["random", "torus"]),
    weights=st.sampled_from(["unit", "pm1", "integer", "gaussian"]),
    seed=st.integers(0, 10**6),
)
def test_energy_is_minus_the_cut(kind: str, weights: str, seed: int) -> None:
    family = MaxCut(
        kind,  # type: ignore[arg-type]
        vertices=8,
        side=3,
        weights=weights,  # type: ignore[arg-type]
        seed=seed,
    )
    problem = family.build()
    graph = problem.graph
    w = {
        tuple(sorted(e)): -x for e, x in zip(graph.edges.tolist(), graph.edge_weights, strict=True)
    }
    x = np.random.default_rng(seed).integers(0, 2, graph.n_variables)
    cut = sum(weight for (i, j), weight in w.items() if x[i] != x[j])
    assert graph.energy(x) == pytest.approx(-cut)
    assert problem.score(x) == {"cut": pytest.approx(cut)}
    assert graph.energy(1 - x) == graph.energy(x)
    # The Ising model of the docstring.
    s = 2 * x - 1
    total = problem.info["total_weight"]
    assert total - 2 * cut == pytest.approx(sum(v * s[i] * s[j] for (i, j), v in w.items()))
    assert total == pytest.approx(sum(w.values()))


def test_the_largest_cut_of_small_graphs() -> None:
    """Against the largest cut by enumeration of subsets; a 5-cycle has a cut of 4."""
    for spec, expected in (
        ("max-cut(vertices=6, density=1)", 9),
        ("max-cut(graph=torus, side=5, dimensions=1)", 4),
        ("max-cut(graph=torus, side=4)", 32),
    ):
        problem = as_problem(spec)
        graph = problem.graph
        best = max(
            sum((i in side) != (j in side) for i, j in graph.edges.tolist())
            for size in range(graph.n_variables // 2 + 1)
            for side in map(set, itertools.combinations(range(graph.n_variables), size))
        )
        assert best == expected
        assert il.solve(graph, "brute-force").energy == -expected


def test_weights_follow_the_requested_distribution() -> None:
    def drawn(**changes: object) -> np.ndarray:
        graph = MaxCut(vertices=200, **changes).build().graph  # type: ignore[arg-type]
        return -graph.edge_weights

    assert set(drawn()) == {1.0}
    assert set(drawn(weights="pm1")) == {-1.0, 1.0}
    integers = drawn(weights="integer")
    assert set(integers) == {float(w) for w in range(-10, 11) if w}
    counts = np.unique(integers, return_counts=True)[1]
    assert np.abs(counts - len(integers) / 20).max() < 5 * math.sqrt(len(integers) / 20)
    assert set(drawn(weights="integer", low=0, high=3)) == {1.0, 2.0, 3.0}
    assert set(drawn(weights="integer", low=2, high=4)) == {2.0, 3.0, 4.0}
    assert set(drawn(weights="integer", low=-2, high=0)) == {-2.0, -1.0}
    normal = drawn(weights="gaussian")
    assert normal.std() == pytest.approx(1e5, rel=0.03)
    assert (normal == np.rint(normal)).all()


def test_sizes_of_the_families_of_rudy() -> None:
    assert MaxCut(vertices=100, density=0.1).build().graph.n_edges == 495
    graph = MaxCut("torus", side=5, dimensions=3).build().graph
    assert (graph.n_variables, graph.n_edges) == (125, 375)
    assert (graph.degrees == 6).all()


# ---------------------------------------------------------------------- protein side chains


def test_residues_have_the_frequencies_of_proteins() -> None:
    assert len(RESIDUES) == 20
    assert sum(often for _, often, _ in RESIDUES.values()) == pytest.approx(100.0, abs=0.1)
    graph = ProteinSideChains(residues=400, diameter=0.5).build().graph
    assert set(graph.cardinalities) == {1, 3, 9, 27, 81}
    assert (graph.cardinalities == 81).mean() == pytest.approx(0.113, abs=0.05)
    few = ProteinSideChains(residues=100, max_rotamers=18).build().graph
    assert set(few.cardinalities) == {1, 3, 9, 18}


def test_energies_are_frequencies_and_repulsion() -> None:
    soft = ProteinSideChains(residues=40, clash=7.0).build().graph
    hard = ProteinSideChains(residues=40, clash=math.inf).build().graph
    for i in range(soft.n_variables):
        row = soft.unary_of(i)
        assert np.exp(-row).sum() == pytest.approx(1.0)
        assert (np.diff(row) >= 0).all()  # the most frequent rotamer comes first
    assert np.array_equal(soft.edges, hard.edges)
    clashes = 0
    for e in range(soft.n_edges):
        one, two = soft.edge_table(e), hard.edge_table(e)
        assert one.min() >= 0.0 and one.max() <= 7.0
        assert one.max() > 0.0
        full = np.isclose(one, 7.0)
        assert np.array_equal(np.isinf(two), full)
        # Allowed combinations have the same shape, on the scale of 10.
        assert np.allclose(one[~full] / 7.0, two[~full] / 10.0)
        clashes += int(full.sum())
    assert clashes > 0


@pytest.mark.parametrize("seed", range(5))
def test_hard_clashes_leave_the_native_rotamers(seed: int) -> None:
    problem = ProteinSideChains(residues=60, clash=math.inf, seed=seed).build()
    native = problem.info["native_energy"]
    assert math.isfinite(native)
    assert problem.graph.has_infinite
    solution = il.solve(problem.graph, "trw-s(max_sweeps=50)", seed=0)
    assert solution.lower_bound <= solution.energy
    assert solution.lower_bound <= native


def test_residues_have_as_many_contacts_as_in_proteins() -> None:
    """It is of the order of ten, in the middle of large and of small proteins."""
    means = [ProteinSideChains(residues=n).build().graph.degrees.mean() for n in (100, 800)]
    assert 4 < means[0] < 16
    assert means[1] < 2 * means[0]
