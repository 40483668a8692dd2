"""LP relaxation of the energy with Kleinberg-Tardos rounding, and its value as a proved bound."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from inference_lab._numba import kernel
from inference_lab.algorithms.linear.backends import LinearSolver, Relaxation, seconds_to_start
from inference_lab.algorithms.linear.model import LinearModel, build_linear_model, model_size
from inference_lab.algorithms.presolve import trivial_outcome
from inference_lab.contract import Outcome, Run
from inference_lab.graph.arrays import FloatArray, GraphArrays, IntArray
from inference_lab.graph.factor_graph import FactorGraph, unary_minimum
from inference_lab.kernels.descent import descend
from inference_lab.solvers.icm import ICM
from inference_lab.specs.settings import setting

#: A variable with a label of at least this value counts as integral.
_INTEGRAL = 1.0 - 1e-7
#: After this many phases, variables without a label get their argmax (as in the released code).
_MAX_PHASES = 5000
#: Sweeps of the polish; ICM needs about ten.
_POLISH_SWEEPS = 200
#: Seconds for the polish after the time limit, because it gains much.
_AFTER_THE_END = 0.1
#: Evaluations of the energy that offering the polished labelling takes.
_OFFERED = 4.0
#: Number of the best rounded labellings that are polished.
_POLISHED = 4
#: Steps in a block of draws; the clock is checked between blocks.
_BLOCK_WORK = 4_000_000


def local_polytope(graph: FactorGraph) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return ``(cost, A, b, upper)`` of the LP in full: ``A x = b, 0 <= x <= upper``."""
    # Wainwright and Jordan 2008, sec. 4.1.1: a distribution over the entries of each term, with
    # ``sum_a u_ia = 1`` and ``sum_{y : y_i = a} P_f(y) = u_ia``. The solver uses a smaller LP.
    ptr = graph.unary_ptr
    costs, start = [graph.unary_values], int(ptr[-1])
    rows: list[tuple[IntArray, list[int], float]] = [
        (np.arange(ptr[i], ptr[i + 1]), [], 1.0) for i in range(graph.n_variables)
    ]
    for scope, table in graph.factors():
        if len(scope) > 1:
            columns = start + np.arange(table.size).reshape(table.shape)
            for axis, i in enumerate(scope):
                for a in range(table.shape[axis]):
                    entries = np.take(columns, a, axis).ravel()
                    rows.append((entries, [int(ptr[i]) + a], 0.0))
            costs.append(table.ravel())
            start += table.size
    matrix = np.zeros((len(rows), start))
    for row, (plus, minus, _) in zip(matrix, rows, strict=True):
        row[plus], row[minus] = 1.0, -1.0
    cost, rhs = np.concatenate(costs), np.array([value for _, _, value in rows])
    allowed = np.isfinite(cost)
    return np.where(allowed, cost, 0.0), matrix, rhs, np.where(allowed, 1.0, 0.0)


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
    left = np.empty(free.size, dtype=np.int64)
    width = 0
    for i in free:
        width = max(width, g.cardinalities[i])
    for d in range(rows.shape[0]):
        n_left = free.size
        for p in range(n_left):
            left[p] = p
        for _ in range(_MAX_PHASES):
            if n_left == 0:
                break
            h = int(rng.random() * width)
            alpha = 1.0 - rng.random()
            kept = 0
            for q in range(n_left):
                p = left[q]
                i = free[p]
                if h < g.cardinalities[i] and u[g.unary_ptr[i] + h] >= alpha:
                    rows[d, p] = h
                else:
                    left[kept] = p
                    kept += 1
            n_left = kept
        for q in range(n_left):
            i = free[left[q]]
            rows[d, left[q]] = np.argmax(u[g.unary_ptr[i] : g.unary_ptr[i + 1]])


def _statistics(energies: FloatArray, bound: float) -> dict[str, Any]:
    """Summarise the energies of the draws."""
    finite = energies[np.isfinite(energies)]
    figures: dict[str, Any] = {"draws": int(energies.size), "feasible": int(finite.size)}
    if finite.size:
        figures |= {
            # Relative to the best, so that equal energies have exactly that mean.
            "mean": float(finite.min() + (finite - finite.min()).mean()),
            "std": float((finite - finite.min()).std()),
            "best": float(finite.min()),
        }
        if bound > 0:
            figures["mean_ratio"] = figures["mean"] / bound
            figures["best_ratio"] = figures["best"] / bound
    return figures


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
    solver); ``integral_share`` of the variables and ``fractional`` (number of the others);
    ``rounding``: ``draws``, ``feasible``, ``mean``, ``std``, ``best`` of the random draws,
    ``mean_ratio`` and ``best_ratio`` to a positive bound; ``argmax_energy``, ``polished_energy``;
    ``notes``.

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
    version: ClassVar[int] = 2

    draws: int = setting(100, at_least=1)
    polish: bool = True

    def run(self, graph: FactorGraph, run: Run) -> Outcome:
        """Build, solve, bound, round, polish."""
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
        run.bound(result.bound)
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
            local = Run(
                graph,
                seed=run.rng,
                initial=labels,
                clock=run.clock,
                time_limit=max(run.remaining - run.estimated_seconds(_OFFERED), _AFTER_THE_END),
                max_iterations=_POLISH_SWEEPS,
            )
            ICM().run(graph, local)
            if local.best_labels is not None:
                run.offer(local.best_labels)
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
        fractional = int((shared < 0).sum())
        diagnostics["fractional"] = fractional
        diagnostics["integral_share"] = 1.0 - fractional / graph.n_variables
        notes: list[str] = []
        found: dict[bytes, tuple[float, IntArray]] = {}

        def keep(labels: IntArray) -> float:
            found[labels.tobytes()] = run.offer(labels), labels
            return found[labels.tobytes()][0]

        diagnostics["argmax_energy"] = keep(argmax)
        energies = self._draw(graph, run, u, shared, keep)
        finished = energies.size == self.draws
        if not finished:
            notes.append(f"time for {energies.size} of {self.draws} draws")
        diagnostics["rounding"] = _statistics(energies, run.lower_bound)
        if self.polish and not run.proved:
            candidates = sorted(found.values(), key=lambda pair: pair[0])[:_POLISHED]
            order = run.rng.permutation(graph.n_variables)
            for _, start in candidates:
                if run.should_stop():
                    finished = False
                    notes.append("no time to polish all candidates")
                    break
                labels = start.copy()
                descend(graph, labels, order, _POLISH_SWEEPS)
                energy = keep(labels)
                diagnostics["polished_energy"] = min(
                    energy, diagnostics.get("polished_energy", math.inf)
                )
        if notes:
            diagnostics["notes"] = notes
        return finished

    def _draw(
        self,
        graph: FactorGraph,
        run: Run,
        u: FloatArray,
        shared: IntArray,
        keep: Any,
    ) -> FloatArray:
        """Round at random, pass the best few labellings to `keep`, and return all energies."""
        free = np.flatnonzero(shared < 0)
        if free.size == 0:
            return np.full(self.draws, keep(shared))
        # The clock is checked between blocks.
        work = graph.n_variables + graph.n_edges + 10 * free.size + graph.table_values.size
        block = max(1, min(self.draws, _BLOCK_WORK // work))
        energies: list[FloatArray] = []
        best: list[tuple[float, IntArray]] = []
        done = 0
        while done < self.draws and not (done and run.should_stop()):
            rows = np.empty((min(block, self.draws - done), free.size), dtype=np.int64)
            kleinberg_tardos(graph.arrays, u, free, run.rng, rows)
            drawn = np.tile(shared, (len(rows), 1))
            drawn[:, free] = rows
            values = graph.energy(drawn)
            energies.append(values)
            first = np.argsort(values, kind="stable")[:_POLISHED]
            best += [(float(values[d]), drawn[d].copy()) for d in first]
            best = sorted(best, key=lambda pair: pair[0])[:_POLISHED]
            done += len(rows)
        for _, labels in best:
            keep(labels)
        return np.concatenate(energies)
