"""Potts model on a grid: random unaries, couplings of chosen strength and frustration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.grids import grid_edges
from inference_lab.problem import Problem, ProblemFamily


@dataclass(frozen=True)
class PottsGrid(ProblemFamily):
    """Energies ``sum_i u_i(x_i) + sum_ij w_ij [x_i != x_j]`` on a grid.

    Unaries are uniform on [0, field]; ``|w_ij|`` is uniform on [0, 2 coupling], so `coupling` is
    its mean. Each weight is negative (repulsive) with probability `frustration`.

    Parameters
    ----------
    height, width, labels : int
    coupling, field : float
    frustration : float in [0, 1]
        Share of repulsive terms; 0 is the attractive model, 0.5 the most frustrated.
    diagonals : bool
        8 neighbours instead of 4.
    wrap : bool
        Torus.
    seed : int

    Examples
    --------
    >>> PottsGrid(height=3, width=4).build().graph
    FactorGraph(12 variables x 4 labels; terms: 17 Potts)
    """

    height: int = 20
    width: int = 20
    labels: int = 4
    coupling: float = 1.0
    field: float = 1.0
    frustration: float = 0.0
    diagonals: bool = False
    wrap: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the settings."""
        for name in ("height", "width", "labels"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("coupling", "field"):
            if not 0.0 <= getattr(self, name) < np.inf:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        if not 0.0 <= self.frustration <= 1.0:
            raise ValueError(f"frustration must be between 0 and 1, got {self.frustration}")

    def build(self, data_dir: Path | None = None) -> Problem:
        """Draw the model; the same settings give the same model."""
        rng = np.random.default_rng(self.seed)
        unary = rng.uniform(0.0, self.field, (self.height * self.width, self.labels))
        edges = grid_edges(self.height, self.width, diagonals=self.diagonals, wrap=self.wrap)
        weights = rng.uniform(0.0, 2.0 * self.coupling, len(edges))
        weights[rng.random(len(edges)) < self.frustration] *= -1.0
        return Problem(self.spec, FactorGraph.potts(unary, edges, weights))
