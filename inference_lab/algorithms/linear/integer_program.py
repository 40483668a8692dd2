"""Solution of the integer linear program of a graph, without columns that no optimum needs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np
import numpy.typing as npt

from inference_lab.algorithms.linear.backends import load, run_highs
from inference_lab.algorithms.linear.model import EPSILON, LinearModel
from inference_lab.algorithms.linear.pulp_models import pulp_solver, to_pulp
from inference_lab.graph.arrays import FloatArray, starts_of

#: HiGHS's tolerance of feasibility, by which it also prunes.
_FEASIBILITY = 1e-9
#: Size of the largest cost after scaling: HiGHS's tolerance of dual feasibility is absolute, too.
_LARGEST_COST = 1e8
#: Size of the gap to be closed, after scaling.
_SCALED_GAP = 1e3
#: The absolute gap at which solvers that PuLP drives stop.
_PULP_GAP = 1e-6
#: HiGHS's code for a solution that satisfies all constraints.
_FEASIBLE = 2


@dataclass(frozen=True)
class Integral:
    """Result of solving the ILP: the best solution found, with its energy by the ILP solver.

    Without a solution, `x` is None and `value` is ``nan``. `bound` is the ILP solver's, ``nan``
    without one; `tolerance` is the error of it that the solver tolerates.
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
    gap: float = math.inf,
    time_limit: float = math.inf,
) -> Integral:
    """Solve the ILP without its forbidden columns; the optimum is within a known gap."""
    # HiGHS excludes solutions that are better by no more than its tolerance of feasibility. This is
    # a small share of the gap that is left to be closed, whatever the size of the energy.
    pruned = _pruned(model)
    largest = max(1e-300, float(np.abs(pruned.cost).max()))
    scale = 2.0 ** min(900, math.ceil(math.log2(_LARGEST_COST) - math.log2(largest)))
    if math.isfinite(gap) and gap > 0.0:
        scale = min(scale, 2.0 ** min(900, math.ceil(math.log2(_SCALED_GAP) - math.log2(gap))))
    tolerance = (_FEASIBILITY if backend == "highs" else _PULP_GAP) / scale
    if backend == "highs":
        result = _integer_with_highs(pruned, scale, tolerance, time_limit)
    else:
        result = _integer_with_pulp(pruned, backend, scale, tolerance, time_limit)
    if result.x is None or pruned is model:
        return result
    x = np.zeros(model.n_columns)
    x[model.upper > 0.0] = result.x
    return replace(result, x=x)


def _pruned(model: LinearModel) -> LinearModel:
    """Return the model without forbidden columns and without rows that have no other entries."""
    mask = model.upper > 0.0
    if mask.all():
        return model
    n_u = model.n_node_columns
    a_eq, a_ub = model.a_eq[:, mask], model.a_ub[:, mask]
    # An empty row with a right-hand side of 1 makes the model infeasible, and stays.
    rows_eq = (np.diff(a_eq.indptr) > 0) | (model.b_eq != 0.0)
    rows_ub = np.diff(a_ub.indptr) > 0
    position = starts_of(mask[:n_u])
    return replace(
        model,
        cost=model.cost[mask],
        a_eq=a_eq[rows_eq],
        b_eq=model.b_eq[rows_eq],
        a_ub=a_ub[rows_ub],
        b_ub=model.b_ub[rows_ub],
        upper=model.upper[mask],
        label_ptr=position[model.label_ptr],
    )


def _integer_with_highs(
    model: LinearModel, scale: float, tolerance: float, time_limit: float
) -> Integral:
    begin = perf_counter()
    solver = load(model, scale, integer=True)
    solver.setOptionValue("mip_rel_gap", 0.0)
    solver.setOptionValue("mip_abs_gap", 0.0)
    solver.setOptionValue("mip_feasibility_tolerance", _FEASIBILITY)
    # This heuristic does not check the clock (90 s on an image of 4,096 pixels) and is not needed,
    # because a labelling is known beforehand.
    solver.setOptionValue("mip_heuristic_run_feasibility_jump", False)
    # HiGHS does not check the clock while presolve probes binary variables, which takes 0.1 ms per
    # nonzero on E-steps.
    presolved = 2e-4 * model.n_nonzeros < time_limit
    solver.setOptionValue("presolve", "on" if presolved else "off")
    ended = run_highs(solver, time_limit - (perf_counter() - begin))
    if ended == "unknown" and presolved:
        # Presolve may not distinguish infeasible from unbounded (the model is bounded).
        solver.setOptionValue("presolve", "off")
        ended = run_highs(solver, time_limit - (perf_counter() - begin))
    info = solver.getInfo()
    nodes = max(0, int(info.mip_node_count))
    bound = math.nan
    if math.isfinite(info.mip_dual_bound):
        bound = float(info.mip_dual_bound) / scale + model.constant
    optimal = ended == "optimal"
    x = np.array(solver.getSolution().col_value, dtype=np.float64)
    if info.primal_solution_status != _FEASIBLE or x.size != model.n_columns:
        infeasible = ended == "infeasible"
        return Integral(None, math.nan, bound, tolerance, False, infeasible, nodes, ended)
    value = float(model.cost @ x) + model.constant
    return Integral(x, value, bound, tolerance, optimal, False, nodes, ended)


def _integer_with_pulp(
    model: LinearModel, backend: str, scale: float, tolerance: float, time_limit: float
) -> Integral:
    import pulp

    problem, columns = to_pulp(replace(model, cost=model.cost * scale))
    problem.solve(pulp_solver(backend, time_limit))
    infeasible = problem.status == pulp.LpStatusInfeasible
    message = pulp.LpSolution[problem.sol_status].lower()
    x = np.array([v.varValue for v in columns], dtype=np.float64)
    has_solution = problem.sol_status in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible)
    if not has_solution or np.isnan(x).any():
        return Integral(None, math.nan, math.nan, tolerance, False, infeasible, 0, message)
    optimal = problem.sol_status == pulp.LpSolutionOptimal
    value = float(model.cost @ x) + model.constant
    bound = value if optimal else math.nan
    return Integral(x, value, bound, tolerance, optimal, False, 0, message)


def fix_by_reduced_costs(
    model: LinearModel, dual_eq: npt.ArrayLike | None, dual_ub: npt.ArrayLike | None, energy: float
) -> LinearModel:
    """Forbid every column that no labelling better than `energy` can use."""
    # A labelling that uses a column costs at least the bound minus the minimum of the column's
    # group plus the column's reduced cost. If that exceeds `energy`, the column gets upper bound 0.
    # All labellings of at most `energy` stay feasible.
    if not math.isfinite(energy) or model.n_columns == 0:
        return model
    view = model.reparametrise(dual_eq, dual_ub)
    if not math.isfinite(view.bound):
        return model
    rise = view.reduced - np.repeat(view.minima, np.diff(model.group_ptr))
    slack = energy - view.bound + 16 * EPSILON * abs(energy)
    return replace(model, upper=np.where(rise > slack, 0.0, model.upper))
