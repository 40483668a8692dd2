"""Solution of the linear program of a graph by HiGHS."""

from __future__ import annotations

import math
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import highspy
import numpy as np

from inference_lab.algorithms.linear.model import MAX_NONZEROS, CsrArray, LinearModel, model_size
from inference_lab.contract import Solver
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.graph.factor_graph import FactorGraph


@dataclass(frozen=True)
class Relaxed:
    """Result of solving the relaxation; `x` and duals are None if there are none.

    `value` is the LP solver's, ``nan`` without a solution; `bound` is by `LinearModel.lower_bound`,
    ``-inf`` without duals. `residual` is what rounding and the LP solver leave between the two.
    """

    x: FloatArray | None
    dual_eq: FloatArray | None
    dual_ub: FloatArray | None
    value: float
    bound: float
    infeasible: bool
    iterations: int
    message: str
    residual: float = 0.0


def objective_scale(model: LinearModel) -> float:
    """Return the power of two by which costs are multiplied for the LP solver."""
    # LP solvers have an absolute tolerance of about 1e-7, so a typical cost is scaled to about 100.
    # Multiplication by a power of two is exact.
    sizes = np.abs(model.cost[model.cost != 0.0])
    if sizes.size == 0:
        return 1.0
    typical = max(float(np.median(sizes)), float(sizes.max()) * 1e-7)
    # Costs near the ends of the float range must not turn into 0 or inf.
    return 2.0 ** min(900, round(math.log2(100.0) - math.log2(typical)))


class _Silent(highspy.Highs):  # type: ignore[misc]  # highspy's stubs lack the methods
    """HiGHS without callbacks, because enabling them prints a banner."""

    def enableCallbacks(self) -> None:
        self.setOptionValue("output_flag", False)


def highs_solver(
    cost: FloatArray,
    rows: CsrArray,
    lower: FloatArray,
    upper: FloatArray,
    bounds: tuple[FloatArray, FloatArray],
    integrality: IntArray | None = None,
) -> Any:
    """Return a silent single-threaded HiGHS with the model ``lower <= rows x <= upper``."""
    # HiGHS keeps the scheduler of its first call, and a forked process would wait forever for the
    # threads of its parent.
    highspy.Highs.resetGlobalScheduler(False)
    solver = _Silent()
    solver.setOptionValue("threads", 1)
    status = solver.passModel(
        cost.size,
        rows.shape[0],
        rows.nnz,
        int(highspy.MatrixFormat.kRowwise),
        int(highspy.ObjSense.kMinimize),
        0.0,
        cost,
        *bounds,
        lower,
        upper,
        rows.indptr.astype(np.int32),
        rows.indices.astype(np.int32),
        rows.data,
        np.zeros(cost.size, dtype=np.int32) if integrality is None else integrality,
    )
    if status == highspy.HighsStatus.kError:
        raise RuntimeError("HiGHS rejects the model")
    return solver


def load(model: LinearModel, scale: float, *, integer: bool = False) -> Any:
    """Return HiGHS with a model whose costs are multiplied by `scale`."""
    from scipy.sparse import vstack

    return highs_solver(
        model.cost * scale,
        vstack([model.a_eq, model.a_ub], format="csr"),
        np.concatenate([model.b_eq, np.full(model.b_ub.size, -np.inf)]),
        np.concatenate([model.b_eq, model.b_ub]),
        (np.zeros(model.n_columns), model.upper),
        (np.arange(model.n_columns) < model.n_node_columns).astype(np.int32) if integer else None,
    )


def run_highs(solver: Any, time_limit: float) -> str:
    """Run HiGHS; return its outcome: optimal, infeasible, limit or unknown."""
    # HiGHS measures the total time of all runs of one object.
    solver.setOptionValue("time_limit", solver.getRunTime() + max(0.0, time_limit))
    solver.run()
    status = highspy.HighsModelStatus
    return {
        status.kOptimal: "optimal",
        status.kInfeasible: "infeasible",
        status.kTimeLimit: "limit",
        status.kIterationLimit: "limit",
    }.get(solver.getModelStatus(), "unknown")


class Relaxation:
    """Relaxation of a model, loaded into HiGHS."""

    def __init__(self, model: LinearModel) -> None:
        """Load a model with at least one column."""
        self.model = model
        self._scale = objective_scale(model)
        # Presolve does not check the clock.
        self._startup = seconds_to_start(model.n_nonzeros)
        self._load()

    def _load(self) -> None:
        self._solver = load(self.model, self._scale)
        self._solver.setOptionValue("solver", "simplex")
        # Presolve may not distinguish infeasible from unbounded (the model is bounded).
        self._doubtful = ["unknown"]

    def solve(self, time_limit: float = math.inf, max_iterations: int | None = None) -> Relaxed:
        """Solve the relaxation of the current model."""
        if max_iterations is not None:
            self._solver.setOptionValue("simplex_iteration_limit", max_iterations)
        begin = perf_counter()
        ended = run_highs(self._solver, time_limit - self._startup)
        if ended in self._doubtful:
            self._load()
            self._solver.setOptionValue("presolve", "off")
            ended = run_highs(self._solver, time_limit - (perf_counter() - begin))
        iterations = max(0, int(self._solver.getInfo().simplex_iteration_count))
        if ended == "infeasible":
            return Relaxed(None, None, None, math.nan, -math.inf, True, iterations, ended)
        solution = self._solver.getSolution()
        duals = np.array(solution.row_dual, dtype=np.float64) / self._scale
        at = self.model.b_eq.size
        if duals.size != self.model.n_rows:
            duals = np.zeros(self.model.n_rows)
        view = self.model.reparametrise(duals[:at], duals[at:])
        bound = view.bound
        if ended != "optimal":
            # The duals of an unfinished dual simplex run still give a bound.
            return Relaxed(None, None, None, math.nan, bound, False, iterations, f"{ended} reached")
        x = np.array(solution.col_value, dtype=np.float64)
        value = float(self.model.cost @ x) + self.model.constant
        residual = 2.0 * view.rounding + max(0.0, value - bound)
        return Relaxed(x, duals[:at], duals[at:], value, bound, False, iterations, ended, residual)


@dataclass(frozen=True)
class LinearSolver(Solver):
    """Base class of solvers that build the linear program of a graph."""

    def supports(self, graph: FactorGraph, temperature: float) -> str | None:
        """Return the reason to refuse: a temperature above 0, or more than 2^31 - 1 entries."""
        refusal = super().supports(graph, temperature)
        if refusal is not None:
            return refusal
        size = model_size(graph)
        if max(size) <= MAX_NONZEROS:
            return None
        return (
            f"the linear program would have {size.columns} columns and {size.nonzeros} nonzeros; "
            f"the LP solver counts to {MAX_NONZEROS}"
        )


def seconds_to_start(nonzeros: int) -> float:
    """Estimate the time before an LP solver first checks the clock: 1 us per nonzero."""
    # A twentieth of the time builds the model; the rest copies and checks it. Measured on an E-step
    # with 16 million nonzeros.
    return 1e-6 * nonzeros
