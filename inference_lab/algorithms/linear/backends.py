"""Solve the linear program of a graph by HiGHS or through PuLP."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import highspy
import numpy as np

from inference_lab.algorithms.linear.model import model_size
from inference_lab.algorithms.linear.program import MAX_NONZEROS, CsrArray, LinearModel
from inference_lab.contract import Solver
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.graph.factor_graph import FactorGraph

#: If a warm-started solution takes more iterations than this share of the rows (of at least so many
#: rows), interior points are faster.
_MANY_ITERATIONS = 0.5
_MANY_ROWS = 5000


@dataclass(frozen=True)
class Relaxed:
    """The result of solving the relaxation.

    Attributes
    ----------
    x : (N,) float64 array, or None
        The optimal solution, if there is one.
    dual_eq, dual_ub : (R,) and (S,) float64 arrays, or None
    value : float
        The energy of the relaxation by the LP solver's account, ``nan`` without a solution.
    bound : float
        Lower bound by `LinearModel.lower_bound`, ``-inf`` without duals.
    infeasible : bool
    iterations : int
    message : str
    """

    x: FloatArray | None
    dual_eq: FloatArray | None
    dual_ub: FloatArray | None
    value: float
    bound: float
    infeasible: bool
    iterations: int
    message: str


def objective_scale(model: LinearModel) -> float:
    """Return the power of two by which costs are multiplied for the LP solver."""
    # LP solvers work to an absolute tolerance of about 1e-7, so a typical cost is scaled to about
    # 100. Multiplication by a power of two is exact.
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
    """Return a silent HiGHS of one thread with the model ``lower <= rows x <= upper``."""
    # HiGHS keeps the scheduler of its first call, and a forked process would wait for ever for the
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
    # HiGHS counts the time of all runs of one object.
    solver.setOptionValue("time_limit", solver.getRunTime() + max(0.0, time_limit))
    solver.run()
    status = highspy.HighsModelStatus
    return {
        status.kOptimal: "optimal",
        status.kInfeasible: "infeasible",
        status.kTimeLimit: "limit",
        status.kIterationLimit: "limit",
    }.get(solver.getModelStatus(), "unknown")


def solve_relaxation(
    model: LinearModel,
    backend: str = "highs",
    *,
    time_limit: float = math.inf,
    max_iterations: int | None = None,
) -> Relaxed:
    """Solve the LP relaxation of a model with at least one column."""
    return Relaxation(model, backend).solve(time_limit, max_iterations)


def _relax_with_pulp(model: LinearModel, backend: str, scale: float, time_limit: float) -> Relaxed:
    import pulp

    problem, columns, rows = replace(model, cost=model.cost * scale).to_pulp(integer=False)
    problem.solve(pulp_solver(backend, time_limit))
    message = pulp.LpStatus[problem.status].lower()
    infeasible = problem.status == pulp.LpStatusInfeasible
    x = np.array([v.varValue for v in columns], dtype=np.float64)
    if problem.status != pulp.LpStatusOptimal or np.isnan(x).any():
        return Relaxed(None, None, None, math.nan, -math.inf, infeasible, 0, message)
    duals = np.array([row.pi for row in rows], dtype=np.float64) / scale
    at = model.b_eq.size
    # Solvers differ in the sign of duals; either gives a valid bound, the right one a good one.
    bound, sign = max((model.lower_bound(s * duals[:at], s * duals[at:]), s) for s in (1.0, -1.0))
    value = float(model.cost @ x) + model.constant
    return Relaxed(x, sign * duals[:at], sign * duals[at:], value, bound, False, 0, message)


class Relaxation:
    """The relaxation of a model to which rows are added and from which they are dropped.

    HiGHS restarts the dual simplex method from the last basis, which is many times as fast as a
    cold start if the basis hardly changes. If it changes much, as in E-steps with five noisy
    constraints a point, later solutions use interior points: a round of cuts takes half as long,
    and cuts are deeper because the solution is in the middle of the optimal face. Other backends
    start cold.

    Attributes
    ----------
    model : LinearModel
        The current model; added rows are the last of its inequalities.
    """

    def __init__(self, model: LinearModel, backend: str = "highs") -> None:
        """Load a model with at least one column."""
        self.model = model
        self._backend = backend
        self._scale = objective_scale(model)
        self._solved = self._interior = False
        self._solver: Any = None
        if backend == "highs":
            self._solver = load(model, self._scale)
            self._solver.setOptionValue("solver", "simplex")

    def solve(self, time_limit: float = math.inf, max_iterations: int | None = None) -> Relaxed:
        """Solve the relaxation of the current model."""
        if self._solver is None:
            return _relax_with_pulp(self.model, self._backend, self._scale, time_limit)
        if max_iterations is not None:
            self._solver.setOptionValue("simplex_iteration_limit", max_iterations)
        begin = perf_counter()
        # Presolve does not check the clock.
        start = 0.0 if self._solved else seconds_to_start(self.model.n_nonzeros)
        ended = run_highs(self._solver, time_limit - start)
        # Interior points report infeasibility unreliably, and presolve may not distinguish
        # infeasible from unbounded (the model is bounded).
        if ended == "unknown" or (self._interior and ended == "infeasible"):
            self._solver = load(self.model, self._scale)
            self._solver.setOptionValue("solver", "simplex")
            self._solver.setOptionValue("presolve", "off")
            self._interior = False
            ended = run_highs(self._solver, time_limit - (perf_counter() - begin))
        iterations = max(0, int(self._solver.getInfo().simplex_iteration_count))
        many = _MANY_ITERATIONS * max(self.model.n_rows, _MANY_ROWS)
        if self._solved and iterations > many:
            self._use_interior_points()
        self._solved = True
        if ended == "infeasible":
            return Relaxed(None, None, None, math.nan, -math.inf, True, iterations, ended)
        solution = self._solver.getSolution()
        duals = np.array(solution.row_dual, dtype=np.float64) / self._scale
        at = self.model.b_eq.size
        if duals.size != self.model.n_rows:
            duals = np.zeros(self.model.n_rows)
        bound = self.model.lower_bound(duals[:at], duals[at:])
        if ended != "optimal":
            # The duals of an unfinished dual simplex run still give a bound.
            return Relaxed(None, None, None, math.nan, bound, False, iterations, f"{ended} reached")
        x = np.array(solution.col_value, dtype=np.float64)
        value = float(self.model.cost @ x) + self.model.constant
        return Relaxed(x, duals[:at], duals[at:], value, bound, False, iterations, ended)

    def _use_interior_points(self) -> None:
        """Solve by interior points from now on, without crossover to a vertex."""
        self._interior = True
        self._solver.setOptionValue("solver", "ipm")
        self._solver.setOptionValue("run_crossover", "off")

    def change(self, drop: IntArray, rows: CsrArray, rhs: FloatArray) -> None:
        """Drop inequalities, then add others as the last ones."""
        model = self.model
        if drop.size:
            kept = np.ones(model.b_ub.size, dtype=bool)
            kept[drop] = False
            model = replace(model, a_ub=model.a_ub[kept], b_ub=model.b_ub[kept])
        self.model = model.with_rows(rows, rhs)
        if self._solver is None:
            return
        at = model.b_eq.size
        if drop.size:
            self._solver.deleteRows(drop.size, np.asarray(at + drop, dtype=np.int32))
        self._solver.addRows(
            rhs.size,
            np.full(rhs.size, -np.inf),
            rhs,
            rows.nnz,
            rows.indptr[:-1].astype(np.int32),
            rows.indices.astype(np.int32),
            rows.data,
        )


def pulp_solver(backend: str = "PULP_CBC_CMD", time_limit: float = math.inf) -> Any:
    """Return a silent PuLP solver object by name."""
    import pulp

    settings: dict[str, Any] = {"msg": False}
    if math.isfinite(time_limit):
        settings["timeLimit"] = max(time_limit, 0.01)
    with warnings.catch_warnings():
        # PuLP 3.3 warns that CBC becomes an extra in 4.0; the dependency is pinned below 4.0.
        warnings.simplefilter("ignore", DeprecationWarning)
        return pulp.getSolver(backend, **settings)


@dataclass(frozen=True)
class LinearSolver(Solver):
    """Base of solvers that build the linear program of a graph for a backend of choice."""

    backend: str = "highs"

    def __post_init__(self) -> None:
        """Check the settings; the backend is ``"highs"`` or known to PuLP."""
        super().__post_init__()
        if self.backend == "highs":
            return
        import pulp

        known = pulp.listSolvers()
        if self.backend not in known:
            raise ValueError(
                f"backend must be highs or one of {', '.join(known)}, got {self.backend!r}"
            )

    def missing(self) -> str | None:
        """Return None if the backend is installed, else the reason and the available backends."""
        if self.backend == "highs":
            return None
        import pulp

        available = pulp.listSolvers(onlyAvailable=True)
        if self.backend in available:
            return None
        usable = ", ".join(["highs", *available])
        return f"backend {self.backend} is not installed here; available: {usable}"

    def supports(self, graph: FactorGraph, temperature: float) -> str | None:
        """Refuse a temperature above 0, and a matrix of more than 2^31 - 1 entries."""
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
    """Estimate the time before an LP solver first checks the clock, 1 us a nonzero."""
    # A twentieth of it builds the model; the rest copies and checks it. Measured on an E-step with
    # 16 million nonzeros.
    return 1e-6 * nonzeros
