"""Relaxations whose rows can be added and dropped."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from inference_lab.algorithms.linear.backends import Relaxation, Relaxed
from inference_lab.algorithms.linear.model import CsrArray
from inference_lab.graph.arrays import FloatArray, IntArray

#: Share of the rows (counted as at least `_MANY_ROWS`): if a warm-started solution takes more
#: iterations, interior points are faster.
_MANY_ITERATIONS = 0.5
_MANY_ROWS = 5000


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
        """Drop inequalities, then append others; every labelling must satisfy ``rows x <= rhs``."""
        from scipy.sparse import vstack

        at = self.model.b_eq.size
        model = self.model
        mask = np.ones(model.b_ub.size, dtype=bool)
        mask[drop] = False
        self.model = replace(
            model,
            a_ub=vstack([model.a_ub[mask], rows], format="csr"),
            b_ub=np.concatenate([model.b_ub[mask], rhs]),
        )
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
