"""Every registered solver keeps its promises.

Solvers are found through the registry, so a new file in ``solvers/`` is tested without a line here.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inference_lab.conformance import TOLERANCE, Check, checks, exhaustive, solver_checks
from inference_lab.contract import Solver, Status
from inference_lab.graph.random_graphs import FAMILIES, random_graph
from inference_lab.registry.registry import solver_registry
from inference_lab.solving import solve

NAMES = solver_registry.names()

#: Few by default, as everywhere; ``make test-thorough`` draws many.
GRAPHS = settings.default.max_examples // 8

#: Settings under which methods that rarely or never settle stop sooner.
BRIEF = {
    "loopy-bp": "loopy-bp(max_sweeps=100)",
}

#: Additional settings, for which bounds, energies and marginals are checked as well.
VARIANTS = (
    "loopy-bp(schedule=sequential, damping=0.3, max_sweeps=50)",
    "trw-s(order=breadth-first)",
    "trw-s(tighten=cycles)",
    "mplp(tighten=none)",
    "lp-relaxation(draws=5)",
)

CHECKS = [
    (name, check)
    for name in NAMES
    for check in solver_checks(BRIEF.get(name, name), graphs_per_family=GRAPHS)
]


@pytest.mark.parametrize(
    "check",
    [
        # The checks of a solver share its runs.
        pytest.param(check, id=f"{name}-{check}", marks=pytest.mark.xdist_group(name))
        for name, check in CHECKS
    ],
)
def test_conformance(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run one check, whose claim states the guarantee."""
    monkeypatch.setattr(checks, "TIME_LIMIT", 0.1)
    check()


@pytest.mark.parametrize("name", [*NAMES, *VARIANTS])
@settings(suppress_health_check=list(HealthCheck))
@given(
    family=st.sampled_from(sorted(FAMILIES)),
    seed=st.integers(min_value=10, max_value=2**32 - 1),
    temperature=st.sampled_from([0.0, 0.0, 0.0, 1e-3, 0.1, 3.0, 1e3]),
    limit=st.sampled_from([None, None, 1]),
)
def test_bound_optimum_energy(
    name: str, family: str, seed: int, temperature: float, limit: int | None
) -> None:
    """``bound <= optimum <= energy``, and claims about either are true."""
    graph = random_graph(family, seed)
    solver: Solver = solver_registry.make(name)
    if solver.supports(graph, temperature) is not None:
        assert solve(graph, solver, temperature=temperature).status == Status.UNSUPPORTED
        return
    reference = exhaustive(random_graph(family, seed))
    s = solve(graph, solver, seed=seed, temperature=temperature, max_iterations=limit)
    slack = TOLERANCE * reference.scale
    if s.status == Status.INFEASIBLE:
        assert reference.optimum == math.inf
        return
    assert s.lower_bound <= reference.optimum + slack
    assert s.energy >= reference.optimum - slack
    if s.labels is not None:
        exact = float(reference.energies[tuple(s.labels)])
        assert s.energy == exact or abs(s.energy - exact) <= slack
    if s.status == Status.OPTIMAL:
        assert s.energy <= reference.optimum + 2 * slack
    if temperature > 0 and reference.optimum < math.inf:
        log_z = reference.log_partition(temperature)
        loose = slack / min(1.0, temperature)
        if s.log_partition_kind in ("exact", "lower"):
            assert s.log_partition <= log_z + loose
        if s.log_partition_kind in ("exact", "upper"):
            assert s.log_partition >= log_z - loose
        # A limit may leave no labelling.
        for i, row in enumerate(s.marginals if s.marginals is not None else ()):
            assert np.sum(row) == pytest.approx(1.0)
            assert (np.asarray(row)[np.isinf(graph.unary_of(i))] == 0).all()
