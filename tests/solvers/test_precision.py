"""Messages in single precision: nearly those of double, and only where they prove nothing."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
from numba import typeof, types

import inference_lab as il
from inference_lab.conformance import Check, solver_checks
from inference_lab.contract import Status
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.grids import grid_edges
from inference_lab.graph.random_graphs import FAMILIES, random_graph
from inference_lab.kernels import beliefs, messages
from inference_lab.registry.registry import as_solver
from inference_lab.solvers.loopy_bp import LoopyBP, Passes

SCHEDULES: tuple[Literal["sequential", "chains"], ...] = ("sequential", "chains")
CHECKS = solver_checks("loopy-bp(max_sweeps=100, precision=single)", graphs_per_family=3)


def grid(terms: str, labels: int = 5, height: int = 9, width: int = 8) -> FactorGraph:
    """Return a picture; all its costs are between zero and a few."""
    rng = np.random.default_rng(labels)
    edges = grid_edges(height, width)
    unary = 3.0 * rng.random((height * width, labels))
    low = -0.5 if terms == "either sign" else 0.0
    weights = rng.uniform(low, 0.5, size=len(edges))
    if terms == "linear":
        apart = np.abs(np.subtract.outer(np.arange(labels), np.arange(labels)))
        return FactorGraph.pairwise(unary, edges, np.minimum(apart, 3.0), weights)
    return FactorGraph.potts(unary, edges, weights)


def in_single(graph: FactorGraph, temperature: float = 0.0) -> bool:
    """Whether messages are stored in single precision where that is asked for."""
    return Passes(LoopyBP(precision="single"), graph, temperature).messages.dtype == np.float32


@pytest.mark.parametrize("check", [pytest.param(c, id=str(c)) for c in CHECKS])
def test_conformance(check: Check) -> None:
    """All promises of a solver are kept, on graphs on which the setting acts and on others."""
    check()


def test_the_setting_acts_where_nothing_is_proved_by_messages() -> None:
    for terms in ("attractive", "either sign", "linear"):
        assert in_single(grid(terms))
        assert not in_single(grid(terms), temperature=1.0)
        # Messages would overflow, or vanish.
        assert not any(in_single(grid(terms).scaled(power)) for power in (-200, 200))
    acts = {f: sum(in_single(random_graph(f, seed)) for seed in range(20)) for f in FAMILIES}
    assert min(acts[family] for family in ("potts", "estep", "grid", "truncated-linear")) > 5
    # Of forests everything is exact; the others have factors, tables or infinite costs.
    assert not any(acts[f] for f in ("forest", "higher-order", "own-tables", "must-links"))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("terms", ["attractive", "either sign", "linear"])
@pytest.mark.parametrize("labels", [2, 3, 5, 16, 21, 33])
def test_messages_are_nearly_those_of_double_precision(
    labels: int, terms: str, schedule: Literal["sequential", "chains"]
) -> None:
    """Whatever all labels of a variable cost alike; what is forbidden stays so."""
    graph = grid(terms, labels)
    rng = np.random.default_rng(0)
    unary = graph.unary + rng.choice([0.0, -1e9, 1e9], size=(graph.n_variables, 1))
    if labels > 2:
        unary[rng.random(unary.shape) < 0.1] = np.inf
        unary[:, 0] = 0.0
    graph = graph.with_unary(unary)
    double = Passes(LoopyBP(schedule=schedule), graph, 0.0)
    single = Passes(LoopyBP(schedule=schedule, precision="single"), graph, 0.0)
    for number in range(6):
        double.sweep(number)
        single.sweep(number)
        assert single.messages.dtype == np.float32
        np.testing.assert_allclose(single.messages, double.messages, atol=2e-6)
    assert single.change == pytest.approx(double.change, abs=1e-5)
    assert (single.labels() == double.labels()).all()
    assert single.messages.any()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_it_converges_to_a_tolerance_that_it_can_meet(schedule: str) -> None:
    spec = f"loopy-bp(schedule={schedule}, tolerance={{}}, precision=single)"
    for terms in ("attractive", "linear"):
        graph = grid(terms, height=40, width=40)
        fine, coarse = (il.solve(graph, spec.format(t)) for t in (0, 1e-6))
        assert fine.status == coarse.status == Status.CONVERGED
        assert fine.iterations == coarse.iterations
        double = il.solve(graph, f"loopy-bp(schedule={schedule})")
        assert coarse.energy == pytest.approx(double.energy, rel=1e-4)
        assert coarse.labels is not None
        assert coarse.energy == graph.energy(coarse.labels)


def test_damping_after_fifty_sweeps_stays_in_single_precision() -> None:
    """Kernels are compiled for one type of number, and would compute in the wider of two."""
    passes = Passes(LoopyBP(schedule="sequential", precision="single"), grid("attractive"), 0.0)
    passes.sweep(50)
    assert passes._step.damping == 0.5
    assert typeof(passes._step.damping) == types.float32


def test_arithmetic_is_in_single_precision() -> None:
    """A constant or a cost of double precision would make loops as slow as before."""
    passes = Passes(LoopyBP(precision="single"), grid("linear"), 0.0)
    assert {passes.net.links[name].dtype.name for name in ("rise", "cap")} == {"float32"}
    values, one = types.float32[::1], types.float32
    steps: list[tuple[Any, tuple[Any, ...]]] = [
        (messages.least, (types.int64, values)),
        (messages.greatest, (types.int64, values)),
        (messages.lower_envelope, (types.int64, one, values, values, values)),
        (messages.repulsive_message, (types.int64, one, values, values)),
        (beliefs.least_difference, (types.int64, values, values, types.uint64)),
    ]
    for step, kinds in steps:
        step.compile(kinds)
        assert step.overloads[kinds].signature.return_type == one, step


def test_forests_are_solved_exactly() -> None:
    """Where costs of a thousandth decide between those of millions, many of which are equal."""
    rng = np.random.default_rng(0)
    n = 200
    edges = [(int(rng.integers(0, i)), i) for i in range(1, n)]
    unary = 1e-3 * rng.random((n, 4)) + 1e6 * rng.integers(0, 3, size=(n, 4))
    forest = FactorGraph.potts(unary, edges, 1e6 * np.ones(n - 1))
    solution = il.solve(forest, "loopy-bp(precision=single)")
    assert solution.status == Status.OPTIMAL
    assert solution.energy == pytest.approx(il.solve(forest, "tree-dp").energy, rel=1e-12)


def test_marginals_are_those_of_double_precision() -> None:
    graph = grid("attractive")
    one, two = (
        il.solve(graph, f"loopy-bp(precision={p})", temperature=1.0) for p in ("double", "single")
    )
    np.testing.assert_array_equal(one.marginals, two.marginals)
    assert one.log_partition == two.log_partition


@pytest.mark.parametrize("schedule", ["residual", "synchronous"])
def test_schedules_that_keep_double_precision_say_so(schedule: str) -> None:
    says = f"single precision is for the sequential schedule and chains only, got .*{schedule}"
    with pytest.raises(ValueError, match=says):
        as_solver(f"loopy-bp(schedule={schedule}, precision=single)")
