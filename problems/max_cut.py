"""Max-cut: two sides for the vertices of a graph, with as much weight between them as possible."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from inference_lab.constraints import sample_pairs
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.grids import lattice_edges
from inference_lab.problem import Problem, ProblemFamily
from inference_lab.specs.settings import setting


@dataclass(frozen=True)
class CutProblem(Problem):
    """A max-cut problem; its energy is minus the cut."""

    def score(self, labels: npt.ArrayLike) -> dict[str, float]:
        """Return ``cut``, the weight of the edges between the sides."""
        return {"cut": 0.0 - float(self.graph.energy(self.graph.check_labels(labels)))}


@dataclass(frozen=True)
class MaxCut(ProblemFamily):
    """Energies ``E(x) = - sum_ij w_ij [x_i != x_j]`` with sides 0 and 1: minus the cut.

    Exchanging the sides changes nothing, so optima come in pairs. As an Ising model with spins
    ``s = 2 x - 1`` and couplings ``J = -w``: ``sum w - 2 cut = sum_ij w_ij s_i s_j``.

    The graphs follow the generator rudy, on which the field compares methods (there with other
    random numbers): ``g05`` is ``max-cut(vertices=100, density=0.5)``, ``pm1s`` and ``pm1d``
    have ``weights=pm1`` and density 0.1 or 0.99, ``w`` and ``pw`` ``weights=integer`` with ``low``
    -10 or 0, ``t2g`` and ``t3g`` ``graph=torus`` and ``weights=gaussian``, and ``toruspm3``
    ``weights=pm1``. Files in that format are read by ``file(path=..., format=max-cut)``.

    Parameters
    ----------
    graph : {"random", "torus"}
        Random edges of the given density, or a periodic lattice.
    vertices : int
        Size of random graphs.
    density : float in [0, 1]
        Share of all pairs of vertices that random graphs join.
    side, dimensions : int
        A torus has ``side ** dimensions`` vertices.
    weights : {"unit", "pm1", "integer", "gaussian"}
        1; -1 or 1; uniform on the integers `low` to `high` without 0; or normal with deviation
        100,000, rounded to integers.
    low, high : int
        Range of integer weights.
    seed : int
        Seeds the graph and the weights, independently of each other.

    References
    ----------
    G. Rinaldi, "Rudy, a graph generator", 1998. A. Wiegele, "Biq Mac Library", 2007, sec. 2.
    F. Liers, M. Junger, G. Reinelt, G. Rinaldi, "Computing exact ground states of hard Ising spin
    glass problems by branch-and-cut", 2004, eq. 4 (Ising model).

    Examples
    --------
    >>> problem = MaxCut(graph="torus", side=4).build()
    >>> problem.graph
    FactorGraph(16 variables x 2 labels; terms: 32 Potts)
    >>> problem.score([0, 1, 0, 1, 1, 0, 1, 0] * 2)  # a chessboard cuts every edge
    {'cut': 32.0}
    """

    graph: Literal["random", "torus"] = setting("random", always=True)
    vertices: int = setting(100, at_least=1)
    density: float = setting(0.5, at_least=0, at_most=1)
    side: int = setting(10, at_least=1)
    dimensions: int = setting(2, at_least=1)
    weights: Literal["unit", "pm1", "integer", "gaussian"] = "unit"
    low: int = -10
    high: int = 10
    seed: int = setting(0, at_least=0)

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        if self.graph == "torus" and self.dimensions * math.log2(self.side) > 26:
            raise ValueError(
                f"side and dimensions must give at most 2^26 vertices, "
                f"got {self.side} ** {self.dimensions}"
            )
        if self.low > self.high or self.low == self.high == 0:
            raise ValueError(
                f"low must be at most high, with a number other than 0 between them, got "
                f"{self.low} and {self.high}"
            )

    def build(self, data_dir: Path | None = None) -> CutProblem:
        """Draw the graph and the weights; the same settings give the same problem."""
        draw, weigh = np.random.default_rng(self.seed).spawn(2)
        n, edges = self._graph(draw)
        weights = self._weights(len(edges), weigh)
        graph = FactorGraph.potts(np.zeros((n, 2)), edges, 0.0 - weights)
        return CutProblem(self.spec, graph, info={"total_weight": float(weights.sum())})

    def _graph(self, rng: np.random.Generator) -> tuple[int, IntArray]:
        if self.graph == "torus":
            shape = (self.side,) * self.dimensions
            return self.side**self.dimensions, lattice_edges(shape, wrap=True)
        n = self.vertices
        return n, sample_pairs(n, round(self.density * (n * (n - 1) // 2)), rng)

    def _weights(self, m: int, rng: np.random.Generator) -> FloatArray:
        if self.weights == "unit":
            return np.ones(m)
        if self.weights == "pm1":
            return np.asarray(2.0 * rng.integers(0, 2, m) - 1.0, dtype=np.float64)
        if self.weights == "gaussian":
            return np.asarray(np.rint(1e5 * rng.normal(size=m)), dtype=np.float64)
        # Without 0: the numbers above it move down by one before the draw, and back after it.
        spans_zero = self.low <= 0 <= self.high
        drawn = rng.integers(self.low, self.high + 1 - spans_zero, m)
        return np.asarray(drawn + (spans_zero & (drawn >= 0)), dtype=np.float64)
