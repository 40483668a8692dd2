"""Ising model: spins on a grid or a complete graph, from ferromagnet to spin glass."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.grids import grid_edges
from inference_lab.problem import Problem, ProblemFamily
from inference_lab.specs.settings import setting


@dataclass(frozen=True)
class Ising(ProblemFamily):
    """Energies ``E(s) = - sum_ij J_ij s_i s_j - sum_i h_i s_i`` with spins -1 (label 0) and +1.

    Parameters
    ----------
    size : int
        Side of the square grid, or number of spins of the complete graph.
    graph : {"grid", "torus", "complete"}
    couplings : {"gaussian", "uniform", "pm1"}
        Distribution of ``|J|`` before scaling: half-normal, uniform on [0, 1], or constant 1.
    coupling : float
        Scale of ``J``; on the complete graph it is divided by ``sqrt(size)``
        (Sherrington-Kirkpatrick).
    frustration : float in [0, 1]
        Probability that a coupling is antiferromagnetic (``J < 0``).
    field : float
        ``h`` is uniform on [-field, field].
    seed : int

    Examples
    --------
    >>> problem = Ising(size=2, couplings="pm1", frustration=0, field=0).build()
    >>> problem.graph.energy([1, 1, 1, 1])
    -4.0
    """

    size: int = setting(20, at_least=1)
    graph: Literal["grid", "torus", "complete"] = "grid"
    couplings: Literal["gaussian", "uniform", "pm1"] = "gaussian"
    coupling: float = setting(1.0, at_least=0, below=math.inf)
    frustration: float = setting(0.5, at_least=0, at_most=1)
    field: float = setting(0.1, at_least=0, below=math.inf)
    seed: int = setting(0, at_least=0)

    def build(self, data_dir: Path | None = None) -> Problem:
        """Draw the model; the same settings give the same model."""
        rng = np.random.default_rng(self.seed)
        if self.graph == "complete":
            n = self.size
            edges = np.stack(np.triu_indices(n, k=1), axis=1)
            scale = self.coupling / np.sqrt(n)
        else:
            n = self.size**2
            edges = grid_edges(self.size, self.size, wrap=self.graph == "torus")
            scale = self.coupling
        m = len(edges)
        if self.couplings == "gaussian":
            strength = np.abs(rng.normal(size=m))
        elif self.couplings == "uniform":
            strength = rng.uniform(size=m)
        else:
            strength = np.ones(m)
        coupling = scale * strength * np.where(rng.random(m) < self.frustration, -1.0, 1.0)
        field = rng.uniform(-self.field, self.field, n)
        # -J s s' is -J where the spins agree and +J where they do not.
        graph = FactorGraph.potts(
            np.stack([field, -field], axis=1),
            edges,
            2.0 * coupling,
            constant=-float(coupling.sum()),
        )
        return Problem(self.spec, graph)
