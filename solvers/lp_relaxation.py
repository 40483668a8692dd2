"""LP relaxation of the energy with Kleinberg-Tardos rounding, and its value as a proved bound."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from inference_lab._numba import kernel
from inference_lab.algorithms.linear.backends import LinearSolver, Relaxation, seconds_to_start
from inference_lab.algorithms.linear.model import LinearModel, build_linear_model, model_size
from inference_lab.algorithms.payable_costs import payable
from inference_lab.algorithms.presolve import trivial_outcome
from inference_lab.contract import Outcome, Run
from inference_lab.graph.arrays import FloatArray, GraphArrays, IntArray
from inference_lab.graph.factor_graph import FactorGraph, unary_minimum
from inference_lab.kernels.descent import descend
from inference_lab.specs.settings import setting

#: A variable with a label of at least this value counts as integral.
_INTEGRAL = 1.0 - 1e-7
#: After this many phases, variables without a label get their argmax (as in the released code).
_MAX_PHASES = 5000
#: Sweeps of the polish; ICM needs about ten.
_POLISH_SWEEPS = 200
#: Seconds for the polish after the time limit, because it gains much.
_AFTER_THE_END = 0.1
#: Time to offer the polished labelling, in evaluations of the energy.
_OFFERED = 4.0
#: Time of a sweep that polishes it, in evaluations of the energy.
_SWEEP = 2.0
#: Number of the best rounded labellings that are polished.
_POLISHED = 4
#: Steps in a block of draws; the clock is checked between blocks.
_BLOCK_WORK = 4_000_000


def node_distributions(model: LinearModel, x: FloatArray) -> FloatArray:
    """Return the node part of an LP solution as exact distributions, flat (sum k_i,)."""
    # Corrects negative values and sums within the LP solver's tolerance, and rounds variables that
    # are integral within 1e-7.
    u = np.clip(x[: model.n_node_columns], 0.0, 1.0)
    if u.size == 0:
        return u
    sizes = np.diff(model.label_ptr)
    u[u < 1.0 - _INTEGRAL] = 0.0
    top = np.repeat(np.maximum.reduceat(u, model.label_ptr[:-1]), sizes)
    total = np.repeat(np.add.reduceat(u, model.label_ptr[:-1]), sizes)
    u = np.where(top >= _INTEGRAL, u >= _INTEGRAL, u / total)
    return np.asarray(u, dtype=np.float64)


@kernel
def kleinberg_tardos(
    g: GraphArrays, u: FloatArray, free: IntArray, rng: np.random.Generator, rows: IntArray
) -> None:
    """Fill each row of `rows` with random labels of `free` by ``u``, see `LPRelaxation`."""
    # Repeat: draw a label h and a threshold alpha from (0, 1]; every variable without a label that
    # has ``u_ih >= alpha`` gets h; until all have one.
    unlabelled = np.empty(free.size, dtype=np.int64)
    width = 0
    for i in free:
        width = max(width, g.cardinalities[i])
    for d in range(rows.shape[0]):
        n_remaining = free.size
        for p in range(n_remaining):
            unlabelled[p] = p
        for _ in range(_MAX_PHASES):
            if n_remaining == 0:
                break
            h = int(rng.random() * width)
            alpha = 1.0 - rng.random()
            count = 0
            for q in range(n_remaining):
                p = unlabelled[q]
                i = free[p]
                if h < g.cardinalities[i] and u[g.unary_ptr[i] + h] >= alpha:
                    rows[d, p] = h
                else:
                    unlabelled[count] = p
                    count += 1
            n_remaining = count
        for q in range(n_remaining):
            i = free[unlabelled[q]]
            rows[d, unlabelled[q]] = np.argmax(u[g.unary_ptr[i] : g.unary_ptr[i + 1]])


@dataclass(frozen=True)
class LPRelaxation(LinearSolver):
    """Solve the local-polytope relaxation, round it, polish; its value is a proved lower bound.

    The LP is built by `inference_lab.algorithms.linear.model.build_linear_model`: the compact LP of
    constrained clustering for diagonal terms, the local polytope for all others. The lower bound
    holds for any dual vector and any tolerances of the LP solver; a rounded labelling that meets
    it is proved optimal.

    Parameters
    ----------
    draws : int
        Number of random roundings, in phases of Kleinberg and Tardos. The largest label of each
        variable is offered as well.
    polish : bool
        Descend by ICM from the best few labellings.

    Guarantees
    ----------
    ``lower bound <= optimum`` always. The relaxation is exact on forests and for pairwise
    submodular terms of two labels. For must-links only, with costs that are not negative, the
    expected energy of a random rounding is within twice the bound. With cannot-links there is no
    such factor: two linked points with equal ``u`` get the same label.

    Diagnostics
    -----------
    ``columns``, ``rows``, ``build_seconds``, ``lp_seconds``, ``lp_status``; ``lp_value`` (of the LP
    solver); ``fractional``, the number of variables without an integral label; ``argmax_energy``;
    of the random roundings the number of ``draws`` and of ``feasible`` ones, whose mean is
    ``mean_energy``.

    Complexity
    ----------
    The simplex method, typically a few iterations a constraint; rounding O(k n) a draw. Memory as
    in `inference_lab.algorithms.linear.model.LinearModel`.

    References
    ----------
    M. Bilenko, S. Basu, "A comparison of inference techniques for semi-supervised clustering with
    hidden Markov random fields", 2004; S. Basu, PhD thesis, 2005, eqs. (A.1)-(A.8).
    J. Kleinberg, E. Tardos, "Approximation algorithms for classification problems with pairwise
    relationships", JACM 49(5), 2002, section 2.

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> s = il.solve(g, "lp-relaxation")
    >>> s.energy, round(s.lower_bound, 9), s.status.value
    (0.5, 0.5, 'optimal')
    """

    label_costs: ClassVar[bool] = True
    version: ClassVar[int] = 4

    draws: int = setting(100, at_least=1)
    polish: bool = True

    def run(self, graph: FactorGraph, run: Run) -> Outcome:
        """Build, solve, bound, round, polish."""
        graph = payable(graph, run)
        outcome = trivial_outcome(graph, run)
        if outcome is not None:
            return outcome
        if seconds_to_start(model_size(graph).nonzeros) > run.remaining:
            return self._without_lp(graph, run, {"lp_status": "no time for an LP of this size"})
        begin = time.perf_counter()
        model = build_linear_model(graph)
        built = time.perf_counter()
        result = Relaxation(model).solve(run.remaining, run.max_iterations)
        diagnostics: dict[str, Any] = {
            "columns": model.n_columns,
            "rows": model.n_rows,
            "build_seconds": built - begin,
            "lp_seconds": time.perf_counter() - built,
            "lp_status": result.message,
        }
        if result.infeasible:
            return Outcome(infeasible=True, iterations=result.iterations, diagnostics=diagnostics)
        run.bound(result.bound, result.residual)
        if result.x is None:
            return self._without_lp(graph, run, diagnostics, result.iterations)
        diagnostics["lp_value"] = result.value
        finished = self._round(graph, run, model, result.x, diagnostics)
        return Outcome(finished, iterations=result.iterations, diagnostics=diagnostics)

    def _without_lp(
        self, graph: FactorGraph, run: Run, diagnostics: dict[str, Any], iterations: int = 0
    ) -> Outcome:
        """Offer the polished cheapest labels, if there is no LP solution to round."""
        labels = unary_minimum(graph)
        run.offer(labels)
        if self.polish:
            seconds = run.remaining + _AFTER_THE_END - run.estimated_seconds(_OFFERED)
            sweeps = min(_POLISH_SWEEPS, seconds / run.estimated_seconds(_SWEEP))
            descend(graph, labels, np.arange(labels.size), max(0, int(sweeps)))
            run.offer(labels)
        return Outcome(iterations=iterations, diagnostics=diagnostics)

    def _round(
        self,
        graph: FactorGraph,
        run: Run,
        model: LinearModel,
        solution: FloatArray,
        diagnostics: dict[str, Any],
    ) -> bool:
        """Round and polish; return whether every step was made."""
        u = node_distributions(model, solution)
        argmax = model.labels(u)
        shared = np.where(u[graph.unary_ptr[:-1] + argmax] == 1.0, argmax, -1)
        energies, best = self._draw(graph, run, u, shared)
        finite = energies[np.isfinite(energies)]
        diagnostics["fractional"] = int((shared < 0).sum())
        diagnostics["argmax_energy"] = run.offer(argmax)
        diagnostics["draws"], diagnostics["feasible"] = energies.size, finite.size
        if finite.size:
            # Relative to the best, so that equal energies have exactly that mean.
            diagnostics["mean_energy"] = float(finite.min() + (finite - finite.min()).mean())
        candidates = {x.tobytes(): (run.offer(x), x) for x in best}
        candidates[argmax.tobytes()] = diagnostics["argmax_energy"], argmax
        if self.polish and not run.proved:
            order = run.rng.permutation(graph.n_variables)
            for _, labels in sorted(candidates.values(), key=lambda pair: pair[0])[:_POLISHED]:
                if run.should_stop():
                    return False
                polished = labels.copy()
                descend(graph, polished, order, _POLISH_SWEEPS)
                run.offer(polished)
        return bool(energies.size == self.draws)

    def _draw(
        self, graph: FactorGraph, run: Run, u: FloatArray, shared: IntArray
    ) -> tuple[FloatArray, list[IntArray]]:
        """Round at random; return all energies and the best few labellings."""
        free = np.flatnonzero(shared < 0)
        if free.size == 0:
            return np.full(self.draws, graph.energy_of(shared)), [shared]
        # The clock is checked between blocks.
        work = graph.n_variables + graph.n_edges + 10 * free.size + graph.table_values.size
        block = max(1, min(self.draws, _BLOCK_WORK // work))
        energies = np.empty(0)
        best = np.empty((0, graph.n_variables), dtype=np.int64)
        values = np.empty(0)
        while energies.size < self.draws and not (energies.size and run.should_stop()):
            rows = np.empty((min(block, self.draws - energies.size), free.size), dtype=np.int64)
            kleinberg_tardos(graph.arrays, u, free, run.rng, rows)
            drawn = np.tile(shared, (len(rows), 1))
            drawn[:, free] = rows
            new = graph.energy(drawn)
            energies = np.append(energies, new)
            values = np.append(values, new)
            best = np.concatenate([best, drawn])
            first = np.argsort(values, kind="stable")[:_POLISHED]
            values, best = values[first], best[first]
        return energies, list(best)
