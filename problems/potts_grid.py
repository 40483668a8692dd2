"""Potts model on a grid: random unaries, couplings of chosen strength and frustration."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.grids import grid_edges
from inference_lab.problem import Problem, ProblemFamily
from inference_lab.specs.settings import setting


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

    height: int = setting(20, at_least=1)
    width: int = setting(20, at_least=1)
    labels: int = setting(4, at_least=1)
    coupling: float = setting(1.0, at_least=0, below=math.inf)
    field: float = setting(1.0, at_least=0, below=math.inf)
    frustration: float = setting(0.0, at_least=0, at_most=1)
    diagonals: bool = False
    wrap: bool = False
    seed: int = setting(0, at_least=0)

    def build(self, data_dir: Path | None = None) -> Problem:
        """Draw the model; the same settings give the same model."""
        rng = np.random.default_rng(self.seed)
        unary = rng.uniform(0.0, self.field, (self.height * self.width, self.labels))
        edges = grid_edges(self.height, self.width, diagonals=self.diagonals, wrap=self.wrap)
        weights = rng.uniform(0.0, 2.0 * self.coupling, len(edges))
        weights[rng.random(len(edges)) < self.frustration] *= -1.0
        return Problem(self.spec, FactorGraph.potts(unary, edges, weights))
