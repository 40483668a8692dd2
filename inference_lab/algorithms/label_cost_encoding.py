"""Solvers without support for label costs, run on the star encoding of the graph.

The encoding preserves energies, bounds, marginals and partition functions. It has one binary
variable a set, after the graph's own, on which all variables with a label of the set depend;
`inference_lab.graph.label_cost_chain` has another exact encoding.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from inference_lab.contract import Marginals, Outcome, Run, Solver
from inference_lab.graph.arrays import FloatArray, IntArray, starts_of
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.factors import Factors
from inference_lab.graph.terms import PairwiseTerms, SharedTable, Unaries


class Star(NamedTuple):
    """A graph with a binary variable ``n + s`` for each set ``s``: 1 if a variable uses it.

    ``member`` (s, k) bool marks the labels in each set; ``n`` is the number of original variables.
    """

    graph: FactorGraph
    member: npt.NDArray[np.bool_]
    n: int

    def extended(self, labels: IntArray) -> IntArray:
        """Return a labelling of the encoded graph with the auxiliary labels that fit it best."""
        used = np.zeros(self.member.shape[1], dtype=bool)
        used[labels] = True
        return np.concatenate([labels, (self.member & used).any(axis=1).astype(np.int64)])


def star(graph: FactorGraph, temperature: float = 0.0, *, hard: bool = True) -> Star:
    """Encode label costs by a binary variable a set.

    ``z_s = 1`` costs ``h_s``; ``z_s = 0`` forbids the labels of the set. The least cost over ``z``
    is the energy. At ``T > 0``, as ``z_s = 1`` is possible without a user, ``z_s = 0`` costs
    ``-T log(1 - exp(-h_s / T))``, so that the two weights add up to 1: then the sum over ``z`` of
    ``exp(-E / T)`` is unchanged. Without `hard`, ``z_s = 0`` costs ``h_s`` per label of
    the set at T = 0 in place of ``inf``: the minimum is the same, and all costs are finite.
    """
    n, width = graph.n_variables, int(graph.cardinalities.max(initial=0))
    sets = graph.label_costs.sets()
    member = np.zeros((len(sets), width), dtype=bool)
    terms: list[PairwiseTerms] = []
    unary: list[FloatArray] = []
    for s, (labels, cost) in enumerate(sets):
        member[s, list(labels)] = True
        without = 0.0
        if temperature > 0:
            without = -temperature * math.log(-math.expm1(-cost / temperature))
        unary.append(np.array([without, cost]))
        for k in np.unique(graph.cardinalities).tolist():
            if not member[s, :k].any():
                continue
            users = np.flatnonzero(graph.cardinalities == k)
            table = np.zeros((k, 2))
            table[member[s, :k], 0] = np.inf if hard else cost
            terms.append(SharedTable(np.stack([users, np.full(users.size, n + s)], axis=1), table))
    sizes = np.append(graph.cardinalities, np.full(len(sets), 2))
    scopes = graph.factor_scopes.astype(np.int64)
    encoded = FactorGraph.from_terms(
        Unaries(sizes, starts_of(sizes), np.concatenate([graph.unary_values, *unary])),
        [graph.edge_block, *terms],
        Factors(graph.factor_ptr, scopes, graph.table_ptr, graph.table_values),
        graph.constant,
    )
    return Star(encoded, member, n)


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
            absolute_gap=outer.absolute_gap,
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
        original = np.asarray(labels)[: self._code.n]
        super().offer(self._code.extended(original))
        return self._outer.offer(original)

    def bound(self, value: float, residual: float = 0.0) -> None:
        """Forward a bound at ``T = 0`` only, because the costs of the star differ at ``T > 0``."""
        super().bound(value, residual)
        if self.temperature == 0:
            self._outer.bound(value, residual)


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
