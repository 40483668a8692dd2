"""Costs of any size: no solver raises; energies, bounds, proofs and marginals are right."""

from __future__ import annotations

import dataclasses
import itertools
import math
from pathlib import Path

import numpy as np

import inference_lab as il
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.random_graphs import SCALES, random_graph
from inference_lab.registry.registry import as_solver, solver_registry

SHORT = 40
CASE_SECONDS = 60.0

#: Seconds of one run: what proves nothing searches on until they are over.
TIME_LIMIT = 0.5

STYLES = [*SCALES, "infeasible"]
SOLVERS = solver_registry.names()
#: Temperatures in units of the mean cost; the coldest is the least that is allowed.
SHARES = (0.0, 0.0, 1e6, 1.0, 1e-6, 1e-20)
#: Exact methods' numbers, and proofs, hold to this, beside the resolution of a graph.
TOLERANCE = 1e-8


class Referee:
    """All labellings of a small graph and their energies, rounded once."""

    def __init__(self, graph: FactorGraph) -> None:
        self.graph = graph
        tables = [(scope, table.tolist()) for scope, table in graph.factors()]
        self.labellings = list(itertools.product(*map(range, graph.cardinalities.tolist())))
        self.energies = np.array([self.energy(tables, x) for x in self.labellings])
        self.optimum = float(self.energies.min())

    def energy(self, tables: list, labels: tuple[int, ...]) -> float:
        """Add up what a labelling pays, as if in exact arithmetic."""
        paid = [self.graph.constant]
        for scope, table in tables:
            for v in scope:
                table = table[labels[v]]
            paid.append(table)
        return math.inf if math.inf in paid else math.fsum(paid)

    def marginals(self, temperature: float) -> tuple[list[np.ndarray], float]:
        """Return the marginals and the log-partition, less that of the optimum."""
        logs = -(self.energies - self.optimum) / temperature
        weights = np.exp(logs)
        total = weights.sum()
        labels = np.array(self.labellings).reshape(len(self.labellings), -1)
        rows = [
            np.bincount(labels[:, i], weights, minlength=k) / total
            for i, k in enumerate(self.graph.cardinalities.tolist())
        ]
        return rows, math.log(total)


def check(graph: FactorGraph, solver: str, share: float, seed: int) -> str:
    """Run a solver on a graph and judge all that it says; return the status."""
    terms = graph.n_variables + graph.n_edges + graph.n_factors
    temperature = min(max(share * graph.magnitude / max(1, terms), graph.resolution), 1e100)
    if share == 0.0 or temperature < 1e-290:
        temperature = 0.0
    if as_solver(solver).supports(graph, temperature) is not None:
        return "unsupported"
    exact = Referee(graph)
    found = il.solve(graph, solver, seed=seed, temperature=temperature, time_limit=TIME_LIMIT)
    optimum, energy, bound = exact.optimum, found.energy, found.lower_bound
    small = min(1.0, graph.magnitude) or 1.0
    resolution = graph.resolution_at(optimum) if math.isfinite(optimum) else graph.resolution
    found = dataclasses.replace(found, trace=[], diagnostics={})
    told = f"{found}, optimum {optimum!r}, resolution {resolution!r}"
    if found.labels is None:
        assert energy == math.inf, told
    else:
        own = exact.energies[exact.labellings.index(tuple(found.labels.tolist()))]
        # The resolution is that near the minimum; at T > 0 a labelling may pay more.
        rounding = resolution + 2.0**-50 * abs(own)
        assert energy == own or abs(energy - own) <= rounding, f"wrong energy, {own!r}: {told}"
    if found.status == "infeasible":
        assert optimum == math.inf, f"falsely infeasible: {told}"
        return "infeasible"
    slack = TOLERANCE * max(small, abs(optimum)) + resolution
    assert not math.isnan(bound), told
    assert bound <= optimum + slack, f"bound above the optimum by {bound - optimum}: {told}"
    if found.status == "optimal":
        assert energy <= optimum + 2 * slack, f"falsely optimal: {told}"
        assert resolution <= TOLERANCE * max(small, abs(energy)), f"not to be proved: {told}"
    claimed = found.claimed_energy
    if claimed is not None and claimed != energy:
        allowed = TOLERANCE * max(small, abs(energy)) + 4 * resolution
        assert abs(claimed - energy) <= allowed, f"false claim: {told}"
    if temperature and optimum < math.inf:
        _judge_soft(exact, found, temperature, told)
    return str(found.status.value)


def _judge_soft(exact: Referee, found: il.Solution, temperature: float, told: str) -> None:
    """Judge marginals and the log-partition."""
    rows, log_z = exact.marginals(temperature)
    rounding = 4 * exact.graph.resolution / temperature
    kind = found.log_partition_kind
    if found.log_partition is not None:
        off = found.log_partition - (log_z - exact.optimum / temperature)
        size = abs(exact.optimum) / temperature + abs(log_z)
        allowed = TOLERANCE * max(1.0, size) + rounding
        assert not math.isnan(off), told
        assert not (kind in ("exact", "lower") and off > allowed), f"log Z too large: {told}"
        assert not (kind in ("exact", "upper") and off < -allowed), f"log Z too small: {told}"
    if found.marginals is None:
        return
    for i, (row, right) in enumerate(zip(found.marginals, rows, strict=True)):
        assert np.isfinite(row).all() and (row >= 0.0).all(), f"marginals[{i}] = {row}: {told}"
        assert abs(row.sum() - 1.0) <= TOLERANCE, f"marginals[{i}] = {row}: {told}"
        assert not row[np.isinf(exact.graph.unary_of(i))].any(), f"marginals[{i}] = {row}: {told}"
        if kind == "exact":
            allowed = TOLERANCE + rounding
            assert np.abs(row - right).max() <= allowed, f"marginals[{i}] = {row}, {right}: {told}"


def drawn(style: str, number: int) -> FactorGraph:
    """Draw a graph of a style; without a labelling, too."""
    if style == "infeasible":
        return random_graph(style, number).scaled((-300, 0, 300)[number % 3])
    return random_graph(style, number)


def case(rng: np.random.Generator, folder: Path) -> None:
    """Draw a graph of a style and run one solver on it."""
    graph = drawn(str(rng.choice(STYLES)), int(rng.integers(2**31)))
    check(graph, str(rng.choice(SOLVERS)), float(rng.choice(SHARES)), int(rng.integers(100)))
