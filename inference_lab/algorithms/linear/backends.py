"""Solving the linear program of a graph: its relaxation, and the ILP, by HiGHS or through PuLP."""

from __future__ import annotations

import importlib
import math
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeVar

import numpy as np

from inference_lab.algorithms.linear.highs import keep_to_one_thread
from inference_lab.algorithms.linear.model import model_size
from inference_lab.algorithms.linear.program import MAX_NONZEROS, CsrArray, LinearModel
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.graph.factor_graph import FactorGraph

#: A solution that goes on from the last basis and takes more iterations than this share of so many
#: rows or more is no small step: interior points are faster then.
_MANY_ITERATIONS = 0.5
_MANY_ROWS = 5000

#: Entries of a matrix from which on a solver that has a time limit runs in a process of its own.
_LARGE = 300_000

_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class Relaxed:
    """What came of solving the relaxation.

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
    """Return the power of two by which costs are multiplied for the LP solver.

    LP solvers take costs apart at an absolute tolerance of about 1e-7, so a typical cost is
    brought to about 100. Multiplying by a power of two is exact.
    """
    sizes = np.abs(model.cost[model.cost != 0.0])
    if sizes.size == 0:
        return 1.0
    typical = max(float(np.median(sizes)), float(sizes.max()) * 1e-7)
    # Costs near the ends of the float range must not turn into 0 or inf.
    return 2.0 ** min(900, round(math.log2(100.0) - math.log2(typical)))


def solve_relaxation(
    model: LinearModel,
    backend: str = "highs",
    *,
    time_limit: float = math.inf,
    max_iterations: int | None = None,
) -> Relaxed:
    """Solve the LP relaxation.

    Parameters
    ----------
    model : LinearModel
        With at least one column.
    backend : str
        ``"highs"``, or the name of a solver that PuLP drives.
    time_limit : float
        Seconds; ``inf`` for none.
    max_iterations : int, optional
        Limit on simplex iterations, for HiGHS.
    """
    scale = objective_scale(model)
    if backend == "highs":
        late = Relaxed(None, None, None, math.nan, -math.inf, False, 0, "ended at the time limit")
        return _in_time(
            late, time_limit, _relax_with_highs, model, scale, time_limit, max_iterations
        )
    return _relax_with_pulp(model, backend, scale, time_limit)


def _in_time(
    late: _Answer, time_limit: float, function: Callable[..., _Answer], *arguments: Any
) -> _Answer:
    """Call a solver that may not heed its time limit, where it can be ended; `late` if it was.

    Presolve and the first factorisation of a large matrix do not look at the clock. Small ones are
    solved here, and all where other threads are, which a fork might leave waiting for ever.
    """
    from inference_lab.processes.isolation import End, can_isolate, isolated

    model = arguments[0]
    apart = can_isolate() and threading.active_count() == 1
    if not apart or math.isinf(time_limit) or model.n_nonzeros < _LARGE:
        return function(*arguments)
    # Once for all, and not in every copy of this process.
    importlib.import_module("scipy.optimize")
    ended = isolated(function, *arguments, wall_limit=max(0.05, 1.02 * time_limit))
    if ended.end == End.TIMEOUT:
        return late
    if ended.end != End.RETURNED:
        raise RuntimeError(f"the LP solver failed: {ended.message}")
    answer: _Answer = ended.value
    return answer


def _relax_with_highs(
    model: LinearModel, scale: float, time_limit: float, max_iterations: int | None
) -> Relaxed:
    from scipy.optimize import linprog

    keep_to_one_thread()
    options: dict[str, Any] = {"presolve": True}
    if math.isfinite(time_limit):
        options["time_limit"] = max(0.0, time_limit - seconds_to_start(model.n_nonzeros))
    if max_iterations is not None:
        options["maxiter"] = max_iterations
    bounds = np.stack([np.zeros(model.n_columns), model.upper], axis=1)

    def solve() -> Any:
        return linprog(
            model.cost * scale,
            model.a_ub,
            model.b_ub,
            model.a_eq,
            model.b_eq,
            bounds=bounds,
            method="highs-ds",
            options=options,
        )

    result = solve()
    if result.status not in (0, 1, 2):
        # Presolve may leave open whether there is no solution or no bound (there is one).
        options["presolve"] = False
        result = solve()
    if result.x is None or result.status != 0:
        infeasible = result.status == 2
        return Relaxed(
            None, None, None, math.nan, -math.inf, infeasible, result.nit, result.message
        )
    dual_eq, dual_ub = result.eqlin.marginals / scale, result.ineqlin.marginals / scale
    bound = model.lower_bound(dual_eq, dual_ub)
    value = float(model.cost @ result.x) + model.constant
    return Relaxed(result.x, dual_eq, dual_ub, value, bound, False, result.nit, "optimal")


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


@cache
def _highs() -> Any:
    """Return the bindings of HiGHS that scipy carries, None where they are not as known.

    scipy does not promise their names, so nothing depends on them but speed.
    """
    try:
        from scipy.optimize._highspy import _core

        for name in ("HighsLp", "HighsModelStatus", "HighsStatus", "MatrixFormat"):
            getattr(_core, name)
        for name in ("addRows", "deleteRows", "getRunTime", "passModel", "setOptionValue"):
            getattr(_core._Highs, name)
    except (ImportError, AttributeError):
        return None
    return _core


class Relaxation:
    """The relaxation of a model that changes: rows are added and dropped between solutions.

    HiGHS goes on from the last basis by the dual simplex method, which is many times as fast as
    starting anew, as long as that is a small step. Where cuts turn everything over, as in E-steps
    of five noisy constraints a point, what follows is solved by interior points: a round of cuts
    takes half as long, and its solution, in the middle of the optimal ones, is cut deeper. Other
    backends (and HiGHS, should a version of scipy hide its bindings) start anew.

    Attributes
    ----------
    model : LinearModel
        As it is now; rows that were added are the last of its inequalities.
    """

    def __init__(
        self, model: LinearModel, backend: str = "highs", time_limit: float = math.inf
    ) -> None:
        """Take a model with at least one column, and the seconds for all that is done with it."""
        self.model = model
        self._backend = backend
        self._scale = objective_scale(model)
        self._solver: Any = None
        self._solved = self._interior = False
        # What is large is solved where it can be ended, each time anew.
        large = math.isfinite(time_limit) and model.n_nonzeros >= _LARGE
        if backend == "highs" and _highs() is not None and not large:
            self._solver = self._start(model)

    def _start(self, model: LinearModel) -> Any:
        """Hand the model to HiGHS; None if it does not take it."""
        from scipy.sparse import vstack

        core = _highs()
        solver = core._Highs()
        for option, value in (
            ("output_flag", False),
            ("solver", "simplex"),
            ("parallel", "off"),
        ):
            solver.setOptionValue(option, value)
        rows = vstack([model.a_eq, model.a_ub], format="csr")
        lp = core.HighsLp()
        lp.num_col_, lp.num_row_ = model.n_columns, model.n_rows
        lp.col_cost_ = model.cost * self._scale
        lp.col_lower_, lp.col_upper_ = np.zeros(model.n_columns), model.upper
        lp.row_lower_ = np.concatenate([model.b_eq, np.full(model.b_ub.size, -np.inf)])
        lp.row_upper_ = np.concatenate([model.b_eq, model.b_ub])
        lp.a_matrix_.format_ = core.MatrixFormat.kRowwise
        lp.a_matrix_.num_col_, lp.a_matrix_.num_row_ = model.n_columns, model.n_rows
        lp.a_matrix_.start_, lp.a_matrix_.index_ = rows.indptr, rows.indices
        lp.a_matrix_.value_ = rows.data
        return None if solver.passModel(lp) == core.HighsStatus.kError else solver

    def solve(self, time_limit: float = math.inf) -> Relaxed:
        """Solve the relaxation as it is now.

        Parameters
        ----------
        time_limit : float
            Seconds; ``inf`` for none.
        """
        if self._solver is None:
            return solve_relaxation(self.model, self._backend, time_limit=time_limit)
        status = _highs().HighsModelStatus
        # The limit is on the time of all runs of one object together.
        self._solver.setOptionValue("time_limit", self._solver.getRunTime() + time_limit)
        self._solver.run()
        ended = self._solver.getModelStatus()
        known = (status.kOptimal, status.kTimeLimit, status.kInfeasible)
        # Interior points tell of infeasibility by signs only.
        if ended not in known or (self._interior and ended == status.kInfeasible):
            # Numerical trouble: start anew, with presolve, and go on without a basis from here.
            self._solver = None
            return solve_relaxation(self.model, self._backend, time_limit=time_limit)
        iterations = max(0, int(self._solver.getInfo().simplex_iteration_count))
        many = _MANY_ITERATIONS * max(self.model.n_rows, _MANY_ROWS)
        if self._solved and iterations > many:
            self._use_interior_points()
        self._solved = True
        if ended == status.kInfeasible:
            return Relaxed(None, None, None, math.nan, -math.inf, True, iterations, "infeasible")
        solution = self._solver.getSolution()
        duals = np.array(solution.row_dual, dtype=np.float64) / self._scale
        at = self.model.b_eq.size
        if duals.size != self.model.n_rows:
            duals = np.zeros(self.model.n_rows)
        bound = self.model.lower_bound(duals[:at], duals[at:])
        if ended == status.kTimeLimit:
            # The dual simplex method was on its way up: its duals are good for a bound.
            return Relaxed(None, None, None, math.nan, bound, False, iterations, "time limit")
        x = np.array(solution.col_value, dtype=np.float64)
        value = float(self.model.cost @ x) + self.model.constant
        return Relaxed(x, duals[:at], duals[at:], value, bound, False, iterations, "optimal")

    def _use_interior_points(self) -> None:
        """Solve by interior points from now on, without going on to a vertex."""
        self._interior = True
        self._solver.setOptionValue("solver", "ipm")
        self._solver.setOptionValue("run_crossover", "off")

    def change(self, drop: IntArray, rows: CsrArray, rhs: FloatArray) -> None:
        """Drop inequalities, then add others as the last ones.

        Parameters
        ----------
        drop : (D,) int64 array
            Numbers of inequalities.
        rows : (T, N) CSR array
        rhs : (T,) float64 array
            ``rows x <= rhs``, which every labelling meets.
        """
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


@dataclass(frozen=True)
class Integral:
    """What came of solving the ILP.

    Attributes
    ----------
    x : (N,) float64 array, or None
        The best solution found.
    value : float
        Its energy by the ILP solver's account, ``nan`` without a solution.
    bound : float
        The ILP solver's lower bound on the energy, ``nan`` if it gives none.
    tolerance : float
        By how much `bound` may be wrong by the ILP solver's own tolerance.
    optimal, infeasible : bool
    nodes : int
    message : str
    """

    x: FloatArray | None
    value: float
    bound: float
    tolerance: float
    optimal: bool
    infeasible: bool
    nodes: int
    message: str


def solve_integer(
    model: LinearModel,
    backend: str = "highs",
    *,
    magnitude: float = 1.0,
    time_limit: float = math.inf,
) -> Integral:
    """Solve the ILP; columns that are forbidden are left out.

    Parameters
    ----------
    model : LinearModel
        With at least one column.
    backend : str
        ``"highs"``, or the name of a solver that PuLP drives.
    magnitude : float
        The optimum is at least about this large, in absolute value. Costs are scaled by a power
        of two so that the absolute gap of 1e-6 at which HiGHS stops (and which scipy cannot
        change) is at most 1e-9 of it.
    time_limit : float
        Seconds; ``inf`` for none.
    """
    left = _pruned(model)
    largest = max(1e-300, float(np.abs(left.cost).max()))
    scale = 2.0 ** math.ceil(min(math.log2(1e3) - math.log2(magnitude), math.log2(1e10 / largest)))
    tolerance = 1e-6 / scale
    if backend == "highs":
        late = Integral(
            None, math.nan, math.nan, tolerance, False, False, 0, "ended at the time limit"
        )
        result = _in_time(late, time_limit, _integer_with_highs, left, scale, tolerance, time_limit)
    else:
        result = _integer_with_pulp(left, backend, scale, tolerance, time_limit)
    if result.x is None or left is model:
        return result
    x = np.zeros(model.n_columns)
    x[model.upper > 0.0] = result.x
    return replace(result, x=x)


def _pruned(model: LinearModel) -> LinearModel:
    """Leave out forbidden columns, and the rows that hold nothing else.

    The groups are not kept: the result serves only to be solved.
    """
    kept = model.upper > 0.0
    if kept.all():
        return model
    n_u = model.n_node_columns
    a_eq, a_ub = model.a_eq[:, kept], model.a_ub[:, kept]
    # An empty row with a right-hand side of 1 says that there is no solution, and stays.
    rows_eq = (np.diff(a_eq.indptr) > 0) | (model.b_eq != 0.0)
    rows_ub = np.diff(a_ub.indptr) > 0
    position = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept[:n_u])])
    return replace(
        model,
        cost=model.cost[kept],
        a_eq=a_eq[rows_eq],
        b_eq=model.b_eq[rows_eq],
        a_ub=a_ub[rows_ub],
        b_ub=model.b_ub[rows_ub],
        upper=model.upper[kept],
        label_ptr=position[model.label_ptr],
    )


def _integer_with_highs(
    model: LinearModel, scale: float, tolerance: float, time_limit: float
) -> Integral:
    from scipy.optimize import Bounds, LinearConstraint, milp

    keep_to_one_thread()
    integrality = np.zeros(model.n_columns)
    integrality[: model.n_node_columns] = 1
    options: dict[str, Any] = {"mip_rel_gap": 0.0}
    if math.isfinite(time_limit):
        options["time_limit"] = time_limit
        # HiGHS does not look at the clock while it probes binary variables in presolve, which
        # took 0.1 ms a nonzero on E-steps.
        options["presolve"] = 2e-4 * model.n_nonzeros < time_limit
    rows = [LinearConstraint(model.a_eq, model.b_eq, model.b_eq)]
    if model.b_ub.size:
        rows.append(LinearConstraint(model.a_ub, -np.inf, model.b_ub))

    def solve() -> Any:
        return milp(
            model.cost * scale,
            integrality=integrality,
            bounds=Bounds(0.0, model.upper),
            constraints=rows,
            options=options,
        )

    result = solve()
    if result.status not in (0, 1, 2):
        # Presolve may leave open whether there is no solution or no bound (there is one).
        options["presolve"] = False
        result = solve()
    nodes = int(result.mip_node_count or 0)
    bound = math.nan
    if result.mip_dual_bound is not None and math.isfinite(result.mip_dual_bound):
        bound = float(result.mip_dual_bound) / scale + model.constant
    optimal = result.status == 0
    message = "optimal" if optimal else str(result.message)
    if result.x is None:
        infeasible = result.status == 2
        return Integral(None, math.nan, bound, tolerance, False, infeasible, nodes, message)
    value = float(model.cost @ result.x) + model.constant
    return Integral(result.x, value, bound, tolerance, optimal, False, nodes, message)


def _integer_with_pulp(
    model: LinearModel, backend: str, scale: float, tolerance: float, time_limit: float
) -> Integral:
    import pulp

    problem, columns, _ = replace(model, cost=model.cost * scale).to_pulp()
    problem.solve(pulp_solver(backend, time_limit))
    infeasible = problem.status == pulp.LpStatusInfeasible
    message = pulp.LpSolution[problem.sol_status].lower()
    x = np.array([v.varValue for v in columns], dtype=np.float64)
    found = problem.sol_status in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible)
    if not found or np.isnan(x).any():
        return Integral(None, math.nan, math.nan, tolerance, False, infeasible, 0, message)
    optimal = problem.sol_status == pulp.LpSolutionOptimal
    value = float(model.cost @ x) + model.constant
    bound = value if optimal else math.nan
    return Integral(x, value, bound, tolerance, optimal, False, 0, message)


def pulp_solver(backend: str = "PULP_CBC_CMD", time_limit: float = math.inf) -> Any:
    """Return a silent PuLP solver object by name.

    Parameters
    ----------
    backend : str
        A name in ``pulp.listSolvers(onlyAvailable=True)``.
    time_limit : float
        Seconds; ``inf`` for none.
    """
    import pulp

    settings: dict[str, Any] = {"msg": False}
    if math.isfinite(time_limit):
        settings["timeLimit"] = max(time_limit, 0.01)
    with warnings.catch_warnings():
        # PuLP 3.3 announces that 4.0 will carry CBC as an extra; the pin keeps us below 4.0.
        warnings.simplefilter("ignore", DeprecationWarning)
        return pulp.getSolver(backend, **settings)


def check_backend(backend: str) -> None:
    """Check that a backend is ``"highs"`` or known to PuLP.

    Raises
    ------
    ValueError
        If it is neither; the message lists what is.
    """
    if backend == "highs":
        return
    import pulp

    known = pulp.listSolvers()
    if backend not in known:
        raise ValueError(f"backend must be highs or one of {', '.join(known)}, got {backend!r}")


def why_unavailable(backend: str) -> str | None:
    """Return None if a backend can be used here, else the reason and what can."""
    if backend == "highs":
        return None
    import pulp

    available = pulp.listSolvers(onlyAvailable=True)
    if backend in available:
        return None
    return f"backend {backend} is not installed here; available: {', '.join(['highs', *available])}"


def why_too_large(graph: FactorGraph) -> str | None:
    """Return None if the model's matrix can be numbered with 32 bits, else its size."""
    size = model_size(graph)
    if max(size) <= MAX_NONZEROS:
        return None
    return (
        f"the linear program would have {size.columns} columns and {size.nonzeros} nonzeros; "
        f"the LP solver counts to {MAX_NONZEROS}"
    )


def seconds_to_start(nonzeros: int) -> float:
    """Estimate the time before an LP solver looks at the clock, 1 us a nonzero.

    Building takes a twentieth of it; the rest is spent by scipy and HiGHS on copying and checking,
    as measured on an E-step with 16 million nonzeros.
    """
    return 1e-6 * nonzeros
