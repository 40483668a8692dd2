"""The E-steps that the published comparison ran: three methods on three energies.

The code that the authors of "A comparison of inference techniques for semi-supervised clustering"
(Bilenko and Basu, 2004) released gives each method an energy of its own. To see how much of the
published ordering comes from that, these E-steps do the same.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from inference_lab.clustering import MPCKMeans
from inference_lab.clustering.cluster_model import Assignment, Model
from inference_lab.clustering.e_step import AssignmentStep, Expectation, LabelStep
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.terms import DiagonalTerms
from inference_lab.solving import solve

#: Factor of the exponents of constraints in belief propagation.
_HARDER = 1000.0
#: Entries of potentials are at least 1e-9.
_LARGEST_COST = -math.log(1e-9)


class ReleasedEStep:
    """An E-step as released; labels are taken as they come, also where they are worse.

    "bp" divides all costs by the largest distance, multiplies penalties by 1000 and cuts costs at
    ``-log 1e-9``, so that constraints are all but hard; "lp" takes distances instead of squared
    distances for the points, but squared ones in the penalties.
    """

    def __init__(self, inference: Literal["bp", "lp"], rng: np.random.Generator) -> None:
        self.inference = inference
        self.solver = "loopy-bp" if inference == "bp" else "lp-relaxation"
        self.rng = rng

    def __call__(self, model: Model, previous: Assignment | None) -> Expectation:
        """Return labels."""
        labels = model.nearest(None)
        coupling = model.coupling()
        rows = coupling.rows
        if rows.size == 0:
            return Expectation(labels)
        unary = model.costs(rows)
        terms = list(coupling.terms)
        if self.inference == "bp":
            scale = float(model.costs().max()) or 1.0
            unary = np.minimum(unary / scale, _LARGEST_COST)
            terms = [
                DiagonalTerms(
                    term.edges,
                    same=np.minimum(_HARDER * np.asarray(term.same) / scale, _LARGEST_COST),
                    differ=np.minimum(_HARDER * np.asarray(term.differ) / scale, _LARGEST_COST),
                )
                for term in terms
            ]
        else:
            unary = np.sqrt(np.maximum(unary, 0.0))
        graph = FactorGraph.from_terms(unary, terms)
        solution = solve(graph, self.solver, seed=int(self.rng.integers(2**31)))
        if solution.labels is not None:
            labels[rows] = solution.labels
        return Expectation(labels, status=str(solution.status))


class WekaUTKMeans(MPCKMeans):
    """MPCKMeans with one diagonal metric and the E-steps of the authors' released code."""

    def __init__(
        self,
        n_clusters: int = 3,
        *,
        inference: Literal["icm", "bp", "lp"] = "icm",
        init: Any = "neighbourhoods+perturbed",
        max_iter: int = 100,
        tol: float = 1e-6,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            n_clusters, init=init, max_iter=max_iter, tol=tol, random_state=random_state
        )
        self.inference = inference

    def _e_step(self, rng: np.random.Generator) -> AssignmentStep:
        """Return the E-step of a start; "icm" makes one sweep in the order of the points."""
        if self.inference == "icm":
            return LabelStep("icm(order=sequential, max_sweeps=1)", rng)
        if self.inference not in ("bp", "lp"):
            raise ValueError(
                f"inference = {self.inference!r} is unknown; allowed: 'icm', 'bp', 'lp'"
            )
        return ReleasedEStep(self.inference, rng)
