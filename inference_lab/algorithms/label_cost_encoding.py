"""Solvers without support for label costs, run on the star encoding of the graph.

The encoding preserves energies, bounds, marginals and partition functions
(`inference_lab.graph.label_encoding.star`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from inference_lab.contract import Marginals, Outcome, Run, Solver
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.label_encoding import Star, star

__all__ = ["run_on_star"]


class ForwardingRun(Run):
    """Run of a solver on the star; forwards offers and bounds to the run on the graph."""

    def __init__(self, outer: Run, code: Star) -> None:
        self._outer = outer
        self._code = code
        initial = None if outer.initial is None else code.extended(outer.initial)
        super().__init__(
            code.graph,
            temperature=outer.temperature,
            seed=outer.rng,
            initial=initial,
            time_limit=outer.time_limit,
            clock=outer.clock,
            max_iterations=outer.max_iterations,
        )

    @property
    def remaining(self) -> float:
        """Seconds left to the run on the graph."""
        return self._outer.remaining

    @property
    def proved(self) -> bool:
        """Whether the incumbent of the run on the graph meets its bound."""
        return self._outer.proved

    def offer(self, labels: npt.ArrayLike) -> float:
        """Offer the labels of the graph's own variables; return the energy on the graph."""
        own = np.asarray(labels)[: self._code.n]
        super().offer(self._code.extended(own))
        return self._outer.offer(own)

    def bound(self, value: float) -> None:
        """Forward a bound at ``T = 0`` only, because the costs of the star differ at ``T > 0``."""
        super().bound(value)
        if self.temperature == 0:
            self._outer.bound(value)


def run_on_star(solver: Solver, graph: FactorGraph, run: Run) -> Outcome:
    """Run a solver on the star of a graph with label costs; return its outcome on the graph."""
    code = star(graph, run.temperature)
    outcome = solver.run(code.graph, ForwardingRun(run, code))
    if outcome.marginals is not None:
        outcome = replace(outcome, marginals=_own(outcome.marginals, graph))
    if run.temperature > 0:
        outcome = replace(outcome, claimed_energy=None)
    return outcome


def _own(marginals: Any, graph: FactorGraph) -> Marginals:
    """Return the marginals of the graph's own variables, as rows or an array."""
    rows = [np.asarray(row, dtype=np.float64) for row in marginals[: graph.n_variables]]
    if graph.n_labels is None:
        return rows
    # A row of a rectangular array may be longer than the number of labels of its variable.
    return np.array([row[: graph.n_labels] for row in rows])
