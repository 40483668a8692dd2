"""Relaxations whose rows can be added and dropped, solved by HiGHS or through PuLP."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from inference_lab.algorithms.linear.backends import Relaxation, Relaxed, objective_scale
from inference_lab.algorithms.linear.model import CsrArray, LinearModel
from inference_lab.algorithms.linear.pulp_models import pulp_solver, to_pulp
from inference_lab.graph.arrays import FloatArray, IntArray

#: Share of the rows (counted as at least `_MANY_ROWS`): if a warm-started solution takes more
#: iterations, interior points are faster.
_MANY_ITERATIONS = 0.5
_MANY_ROWS = 5000


def incremental_relaxation(model: LinearModel, backend: str = "highs") -> IncrementalRelaxation:
    """Load a model with at least one column into HiGHS, or keep it for a solver of PuLP."""
    return IncrementalRelaxation(model) if backend == "highs" else PulpRelaxation(model, backend)


class IncrementalRelaxation(Relaxation):
    """Relaxation that HiGHS solves again after rows have changed.

    HiGHS restarts the dual simplex method from the last basis, which is many times as fast as a
    cold start if the basis hardly changes. If it changes much, as in E-steps with five noisy
    constraints per point, later solutions use interior points: a round of cuts takes half as long,
    and cuts are deeper because the solution is in the middle of the optimal face.

    Added rows are the last inequalities of ``model``.
    """

    def solve(self, time_limit: float = math.inf, max_iterations: int | None = None) -> Relaxed:
        """Solve the relaxation of the current model, from the last basis if there is one."""
        again = self._startup == 0.0
        relaxed = super().solve(time_limit, max_iterations)
        if again and relaxed.iterations > _MANY_ITERATIONS * max(self.model.n_rows, _MANY_ROWS):
            self._use_interior_points()
        self._startup = 0.0
        return relaxed

    def _use_interior_points(self) -> None:
        """Solve by interior points from now on, without crossover to a vertex."""
        self._solver.setOptionValue("solver", "ipm")
        self._solver.setOptionValue("run_crossover", "off")
        # Interior points report infeasibility unreliably.
        self._doubtful = ["unknown", "infeasible"]

    def change(self, drop: IntArray, rows: CsrArray, rhs: FloatArray) -> None:
        """Drop inequalities, then append others."""
        at = self.model.b_eq.size
        self.model = _changed(self.model, drop, rows, rhs)
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


class PulpRelaxation(IncrementalRelaxation):
    """Relaxation solved through PuLP, with a cold start each time."""

    def __init__(self, model: LinearModel, backend: str) -> None:
        self.model, self._backend = model, backend
        self._scale = objective_scale(model)

    def solve(self, time_limit: float = math.inf, max_iterations: int | None = None) -> Relaxed:
        """Solve the relaxation of the current model."""
        import pulp

        model = self.model
        problem, columns, rows = to_pulp(
            replace(model, cost=model.cost * self._scale), integer=False
        )
        problem.solve(pulp_solver(self._backend, time_limit))
        message = pulp.LpStatus[problem.status].lower()
        infeasible = problem.status == pulp.LpStatusInfeasible
        x = np.array([v.varValue for v in columns], dtype=np.float64)
        if problem.status != pulp.LpStatusOptimal or np.isnan(x).any():
            return Relaxed(None, None, None, math.nan, -math.inf, infeasible, 0, message)
        duals = np.array([row.pi for row in rows], dtype=np.float64) / self._scale
        at = model.b_eq.size
        # Solvers differ in the sign of duals. Both signs give valid bounds, so the better is taken.
        both = [(model.lower_bound(s * duals[:at], s * duals[at:]), s) for s in (1.0, -1.0)]
        bound, sign = max(both)
        value = float(model.cost @ x) + model.constant
        return Relaxed(x, sign * duals[:at], sign * duals[at:], value, bound, False, 0, message)

    def change(self, drop: IntArray, rows: CsrArray, rhs: FloatArray) -> None:
        """Drop inequalities, then append others."""
        self.model = _changed(self.model, drop, rows, rhs)


def _changed(model: LinearModel, drop: IntArray, rows: CsrArray, rhs: FloatArray) -> LinearModel:
    """Return a model with other inequalities; every labelling must satisfy ``rows x <= rhs``."""
    from scipy.sparse import vstack

    kept = np.ones(model.b_ub.size, dtype=bool)
    kept[drop] = False
    return replace(
        model,
        a_ub=vstack([model.a_ub[kept], rows], format="csr"),
        b_ub=np.concatenate([model.b_ub[kept], rhs]),
    )
