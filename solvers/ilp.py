"""Integer linear program: the exact optimum by branch and bound, with a bound at any time."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from inference_lab.contract import Outcome, Run, Solver
from inference_lab.factor_graph import FactorGraph
from inference_lab.linear_model import (
    build_linear_model,
    check_backend,
    model_size,
    seconds_to_start,
    solve_integer,
    solve_relaxation,
    sum_of_minima,
    why_too_large,
    why_unavailable,
)
from inference_lab.solvers.icm import descend, unary_minimum

#: Sweeps of the descent that finds a first labelling; ICM needs about ten.
_SWEEPS = 200

#: Seconds a column that HiGHS takes before it looks at the clock, as measured on E-steps.
_SETUP_SECONDS = 1e-5


@dataclass(frozen=True)
class ILP(Solver):
    """Minimise the energy exactly as an integer linear program.

    The model is that of `lp-relaxation` (`inference_lab.linear_model.build_linear_model`) with
    binary node variables; everything else follows from them. The relaxation is solved first. If
    its rounding, after a descent by ICM, meets its bound, that is the answer; else the labels that
    cannot be part of anything better, by their reduced costs, are left out, and branch and bound
    solves the rest. Every labelling is evaluated on the graph.

    Parameters
    ----------
    backend : str
        ``"highs"`` solves with HiGHS through scipy; any other is the name of a solver in
        ``pulp.listSolvers()``, for instance ``"PULP_CBC_CMD"``.

    Guarantees
    ----------
    Exact when it ends before the time limit. Under one it gives the best labelling found and the
    larger of the bound of the relaxation and, with HiGHS, that of branch and bound. The latter
    cuts off what is within an absolute 1e-6; costs are scaled so that this is about 1e-9 of the
    energy, and it is taken off the bound. The bound of the relaxation holds whatever the LP solver
    does; that of branch and bound, and infeasibility, rely on the arithmetic of the solver.

    Iterations
    ----------
    One, if branch and bound is run. (HiGHS takes a limit on nodes and goes on beyond it.)

    Diagnostics
    -----------
    ``columns``, ``rows``, ``build_seconds``, ``lp_seconds``, ``lp_status``; where the relaxation
    does not settle it, ``columns_left`` (that are not left out), ``ilp_seconds``, ``ilp_status``,
    ``nodes`` (of the search tree, with HiGHS).

    Complexity
    ----------
    Exponential in the worst case; E-steps whose relaxation is integral end at the root node.

    References
    ----------
    Q. Huangfu, J. Hall, "Parallelizing the dual revised simplex method", Mathematical Programming
    Computation 10, 2018 (HiGHS).

    Examples
    --------
    >>> import inference_lab as il
    >>> g = il.FactorGraph.potts([[0.0, 1.0], [0.6, 0.0]], [(0, 1)], [0.5])
    >>> s = il.solve(g, "ilp")
    >>> s.energy, s.labels.tolist(), s.status.value
    (0.5, [0, 1], 'optimal')
    """

    backend: str = "highs"

    def __post_init__(self) -> None:
        """Check the settings."""
        check_backend(self.backend)

    def supports(self, graph: FactorGraph, temperature: float) -> str | None:
        """Say why not: a temperature, a backend that is not installed, or a matrix too large."""
        return (
            Solver.supports(self, graph, temperature)
            or why_unavailable(self.backend)
            or why_too_large(graph)
        )

    def run(self, graph: FactorGraph, run: Run) -> Outcome:
        """Build the model, hand it to the solver, report its labelling and its bound."""
        trivial = sum_of_minima(graph)
        run.bound(trivial)
        if trivial == math.inf:
            return Outcome(infeasible=True)
        if graph.n_variables == 0:
            energy = run.offer(np.empty(0, dtype=np.int64))
            return Outcome(converged=True, claimed_energy=energy)
        start = unary_minimum(graph)
        run.offer(start)
        if seconds_to_start(model_size(graph).nonzeros) > run.remaining:
            return Outcome(diagnostics={"lp_status": "no time for an LP of this size"})
        begin = time.perf_counter()
        model = build_linear_model(graph)
        built = time.perf_counter()
        # Half of the time at most for the relaxation, which may not end in time.
        relaxed = solve_relaxation(model, self.backend, time_limit=0.5 * run.remaining)
        diagnostics: dict[str, Any] = {
            "columns": model.n_columns,
            "rows": model.n_rows,
            "build_seconds": built - begin,
            "lp_seconds": time.perf_counter() - built,
            "lp_status": relaxed.message,
        }
        if relaxed.infeasible:
            return Outcome(infeasible=True, diagnostics=diagnostics)
        run.bound(relaxed.bound)
        labels = start if relaxed.x is None else model.labels(relaxed.x)
        descend(graph.arrays, labels, run.rng.permutation(graph.n_variables), _SWEEPS)
        run.offer(labels)
        if run.proved:
            return Outcome(converged=True, diagnostics=diagnostics)
        if relaxed.x is not None:
            model = model.without(relaxed.dual_eq, relaxed.dual_ub, run.best_energy)
        left = int((model.upper > 0.0).sum())
        diagnostics["columns_left"] = left
        if _SETUP_SECONDS * left > run.remaining:
            diagnostics["ilp_status"] = "no time to start branch and bound"
            return Outcome(diagnostics=diagnostics)
        begin = time.perf_counter()
        result = solve_integer(
            model,
            self.backend,
            # The optimum lies between the bound and the best energy.
            magnitude=max(1.0, run.lower_bound, -run.best_energy),
            time_limit=run.remaining,
        )
        diagnostics["ilp_seconds"] = time.perf_counter() - begin
        diagnostics["ilp_status"] = result.message
        diagnostics["nodes"] = result.nodes
        if result.infeasible and run.best_energy == math.inf:
            return Outcome(infeasible=True, iterations=1, diagnostics=diagnostics)
        claimed = None
        if result.x is not None:
            found = run.offer(model.labels(result.x))
            # Short of optimality the model's value may lie above the energy of its own labels:
            # the variables of the terms need not be the best for them.
            if result.optimal and found <= run.best_energy:
                claimed = result.value
        if not math.isnan(result.bound):
            # Labels were left out for being no better than the best labelling.
            run.bound(min(result.bound, run.best_energy) - result.tolerance)
        return Outcome(
            converged=result.optimal,
            iterations=1,
            claimed_energy=claimed,
            diagnostics=diagnostics,
        )
