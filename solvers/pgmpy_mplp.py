"""MPLP as pgmpy implements it: max-product linear programming, with a bound from its messages."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from inference_lab.algorithms.iteration import IterativeSolver, Progress
from inference_lab.algorithms.pgmpy_models import (
    Term,
    merged_terms,
    pgmpy_inference,
    pgmpy_model,
    surrogate_infinity,
)
from inference_lab.algorithms.presolve import trivial_outcome
from inference_lab.contract import Outcome, Run
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.graph.factor_graph import FactorGraph, unary_minimum
from inference_lab.specs.settings import setting

_EPS = float(np.finfo(np.float64).eps)
#: pgmpy compares all pairs of edges when it starts: a million in about a second.
_MAX_EDGES = 1500
#: Entries of a table; an update makes several copies of it.
_MAX_ENTRIES = 1_000_000


@dataclass(frozen=True)
class PgmpyMPLP(IterativeSolver["_Dual"]):
    """Maximise the dual of the local-polytope relaxation by pgmpy's ``Mplp``.

    pgmpy updates the messages. After each sweep the bound is computed anew from the messages and
    the true costs, and the labelling is read from the beliefs: pgmpy keeps only labellings of
    positive value, replaces infinite costs, and checks no limits. Triplets are not added, because
    pgmpy changes costs in place while it scores them.

    Parameters
    ----------
    sweeps : int
        Most updates of every factor.
    tolerance : float
        Stop when a sweep raises the bound by less than this share of ``max(1, |bound|)``.

    Guarantees
    ----------
    ``bound <= optimum`` for all messages. The bound never falls by more than
    rounding, and may stop short of the LP's value.

    Complexity
    ----------
    A sweep about 1 ms a factor, most of it overhead; starting O(edges^2), which is why graphs of
    more than 1500 edges are refused.

    References
    ----------
    A. Globerson, T. Jaakkola, "Fixing max-product: convergent message passing algorithms for MAP
    LP-relaxations", NIPS 2007.
    A. Ankan, J. Textor, "pgmpy: a Python toolkit for Bayesian networks", JMLR 25, 2024.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> s = il.solve(g, "pgmpy-mplp")
    >>> s.energy, s.labels.tolist(), round(s.lower_bound, 6)
    (0.5, [0, 1], 0.5)
    """

    sweeps: int = setting(200, at_least=1)
    tolerance: float = setting(1e-9, at_least=0)

    def supports(self, graph: FactorGraph, temperature: float) -> str | None:
        """Return the reason for a refusal: a temperature, or a graph too large for pgmpy."""
        refused = super().supports(graph, temperature)
        if refused:
            return refused
        arity = np.diff(graph.factor_ptr)
        edges = graph.n_edges + int((arity * (arity - 1) // 2).sum())
        if edges > _MAX_EDGES:
            return f"pgmpy compares all pairs of {edges} edges; at most {_MAX_EDGES} are tried"
        sizes = graph.cardinalities[graph.edges].prod(axis=1)
        largest = int(max(sizes.max(initial=0), np.diff(graph.table_ptr).max(initial=0)))
        if largest > _MAX_ENTRIES:
            return f"a table of {largest} entries; pgmpy copies each often, at most {_MAX_ENTRIES}"
        return None

    @property
    def most_iterations(self) -> float:
        """Limit on the sweeps."""
        return self.sweeps

    def start(self, graph: FactorGraph, run: Run) -> _Dual | Outcome:
        """Set up pgmpy's messages."""
        with run.paused():
            pgmpy_inference()
        outcome = trivial_outcome(graph, run)
        if outcome is not None:
            return outcome
        run.offer(unary_minimum(graph))
        terms = merged_terms(graph)
        if any(table.min() == math.inf for _, table in terms):
            # Terms over the same variables may forbid all labels only together.
            return Outcome(infeasible=True)
        # About a microsecond a pair of edges, and 0.1 ms a factor.
        if 1e-6 * graph.n_edges**2 + 1e-4 * len(terms) > run.remaining:
            return Outcome(diagnostics={"notes": ["no time to set up pgmpy"]})
        dual = _Dual(graph, terms)
        run.bound(dual.best)
        return dual

    def step(self, state: _Dual, run: Run, done: int) -> Progress | None:
        """Update the messages of every factor once."""
        if not state.sweep(run):
            return None
        before, state.best = state.best, state.bound()
        small = self.tolerance * max(1.0, abs(state.best))
        return Progress(state.best - before <= small, state.best)

    def decode(self, state: _Dual, run: Run, done: int) -> IntArray:
        """Return the labels of largest belief."""
        return state.labels()


class _Dual:
    """pgmpy's state, and the bound that follows from its messages."""

    def __init__(self, graph: FactorGraph, terms: list[Term]) -> None:
        self.graph = graph
        infinity = surrogate_infinity(terms)

        def log_potentials(table: FloatArray) -> FloatArray:
            # inf - inf would arise in the messages.
            finite = np.isfinite(table)
            top = float(table[finite].max()) if finite.any() else 0.0
            return np.negative(np.where(finite, table, top + infinity))

        terms = _without_leaves(graph, terms)
        self.unaries = {scope[0]: table for scope, table in terms if len(scope) == 1}
        self.tables = [(scope, table) for scope, table in terms if len(scope) > 1]
        self.mplp: Any = pgmpy_inference().Mplp(pgmpy_model(terms, log_potentials))
        self.clusters = [
            self.mplp.cluster_set[frozenset(f"x{i}" for i in scope)] for scope, _ in self.tables
        ]
        self.best = self.bound()

    def sweep(self, run: Run) -> bool:
        """Update the messages of every factor; False if time runs out."""
        for cluster in self.clusters:
            if run.remaining <= 0.0:
                return False
            self.mplp._update_message(cluster)
        return True

    def bound(self) -> float:
        """Return the bound of the messages, less an allowance for rounding."""
        # ``constant + sum_i min (theta_i - sum_f m_fi) + sum_f min (theta_f + sum_i m_fi)``.
        unaries = {i: table.copy() for i, table in self.unaries.items()}
        size = {i: np.abs(np.where(np.isfinite(t), t, 0.0)) for i, t in unaries.items()}
        parts = [self.graph.constant]
        rounded = 0.0
        for (scope, table), cluster in zip(self.tables, self.clusters, strict=True):
            left = table
            largest = 0.0
            for key, factor in cluster.message_from_cluster.items():
                (name,) = key
                i = int(name[1:])
                # pgmpy maximises minus the energy, so its messages have the other sign.
                message = -np.asarray(factor.values, dtype=np.float64)
                shape = [-1 if v == i else 1 for v in scope]
                left = left - message.reshape(shape)
                largest += float(np.abs(message).max())
                unaries[i] = unaries[i] + message
                size[i] = size[i] + np.abs(message)
            finite = np.abs(table[np.isfinite(table)])
            rounded += largest + float(finite.max(initial=0.0))
            parts.append(float(left.min()))
        parts += [float(table.min()) for table in unaries.values()]
        rounded += sum(float(s.max()) for s in size.values())
        if math.inf in parts:
            return math.inf
        return math.fsum(parts) - 32 * _EPS * (rounded + sum(map(abs, parts)))

    def labels(self) -> IntArray:
        """Return the labels of largest belief, and for leaves the best labels given these."""
        labels = np.zeros(self.graph.n_variables, dtype=np.int64)
        for i in range(labels.size):
            belief = self.mplp.objective[frozenset([f"x{i}"])].values
            labels[i] = int(np.argmax(belief))
        leaf = _leaves(self.graph)
        for scope, table in self.tables:
            loose = [i for i in scope if leaf[i]]
            if loose:
                given = tuple(slice(None) if leaf[i] else int(labels[i]) for i in scope)
                left = table[given]
                labels[loose] = np.unravel_index(int(np.argmin(left)), left.shape)
        return labels


def _leaves(graph: FactorGraph) -> npt.NDArray[np.bool_]:
    """Return a mask of the variables that are in one pairwise term and no other."""
    degree = np.bincount(graph.edges.ravel(), minlength=graph.n_variables)
    return np.asarray((degree == 1) & ~np.isin(np.arange(degree.size), graph.factor_scopes))


def _without_leaves(graph: FactorGraph, terms: list[Term]) -> list[Term]:
    """Add the costs of leaves to their terms: pgmpy sends messages to shared variables only."""
    leaf = _leaves(graph)
    own = {scope[0]: table for scope, table in terms if len(scope) == 1 and leaf[scope[0]]}
    out = []
    for scope, table in terms:
        if len(scope) == 1:
            if leaf[scope[0]]:
                table = np.zeros_like(table)
        else:
            for axis, i in enumerate(scope):
                if leaf[i]:
                    shape = [1] * table.ndim
                    shape[axis] = -1
                    table = table + own[i].reshape(shape)
        out.append((scope, table))
    return out
