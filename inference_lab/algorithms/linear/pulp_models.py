"""Linear programs of graphs as PuLP models, for other MILP solvers or further modelling."""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple

import numpy as np

from inference_lab.algorithms.linear.model import LinearModel


class PulpModel(NamedTuple):
    """PuLP problem with its variables in the order of columns; constraints are in that of rows."""

    problem: Any
    columns: list[Any]


def to_pulp(model: LinearModel, *, integer: bool = True, name: str = "energy") -> PulpModel:
    """Convert a model to a PuLP problem."""
    import pulp

    problem = pulp.LpProblem(name, pulp.LpMinimize)
    # In late 3.x versions and 4.0, the problem creates its variables.
    variable = getattr(problem, "add_variable", pulp.LpVariable)
    n_u = model.n_node_columns
    owner = np.repeat(np.arange(model.n_variables), np.diff(model.label_ptr))
    label = np.arange(n_u) - model.label_ptr[owner]
    names = [f"u_{i}_{a}" for i, a in zip(owner.tolist(), label.tolist(), strict=True)]
    names += [f"p_{c}" for c in range(n_u, model.n_columns)]
    columns = [
        variable(text, 0, top, pulp.LpInteger if integer and c < n_u else pulp.LpContinuous)
        for c, (text, top) in enumerate(zip(names, model.upper.tolist(), strict=True))
    ]
    problem += pulp.LpAffineExpression(
        # Without any variable the objective would have no value.
        [
            (v, c)
            for number, (v, c) in enumerate(zip(columns, model.cost.tolist(), strict=True))
            if c != 0.0 or number < n_u
        ],
        constant=model.constant,
    )
    for matrix, rhs, sense, letter in (
        (model.a_eq, model.b_eq, pulp.LpConstraintEQ, "e"),
        (model.a_ub, model.b_ub, pulp.LpConstraintLE, "i"),
    ):
        indptr, indices, data = (
            matrix.indptr.tolist(),
            matrix.indices.tolist(),
            matrix.data.tolist(),
        )
        for r, value in enumerate(rhs.tolist()):
            entries = range(indptr[r], indptr[r + 1])
            row = pulp.LpAffineExpression([(columns[indices[p]], data[p]) for p in entries])
            problem.addConstraint(pulp.LpConstraint(row, sense, f"{letter}_{r}", value))
    return PulpModel(problem, columns)


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
