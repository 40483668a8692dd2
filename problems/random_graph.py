"""Random sparse graph: any number of labels, coupling and frustration."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from inference_lab.constraints import sample_pairs
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.terms import DiagonalTerms, OwnTables, PairwiseTerms
from inference_lab.problem import Problem, ProblemFamily
from inference_lab.specs.settings import setting


@dataclass(frozen=True)
class RandomGraph(ProblemFamily):
    """Distinct random edges between variables with uniform unaries on [0, field].

    Parameters
    ----------
    variables, labels : int
    degree : float
        Mean number of pairwise terms at a variable.
    terms : {"potts", "tables"}
        Potts weights, or a random table each. Magnitudes are uniform on [0, 2 coupling].
    coupling, field : float
    frustration : float in [0, 1]
        Probability that a Potts weight is negative.
    seed : int

    Examples
    --------
    >>> RandomGraph(variables=10, degree=2.0).build().graph
    FactorGraph(10 variables x 3 labels; terms: 10 Potts)
    """

    variables: int = setting(200, at_least=1)
    labels: int = setting(3, at_least=1)
    degree: float = setting(4.0, at_least=0, below=math.inf)
    terms: Literal["potts", "tables"] = "potts"
    coupling: float = setting(1.0, at_least=0, below=math.inf)
    field: float = setting(1.0, at_least=0, below=math.inf)
    frustration: float = setting(0.0, at_least=0, at_most=1)
    seed: int = setting(0, at_least=0)

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        if self._n_edges > self.variables * (self.variables - 1) // 2:
            raise ValueError(
                f"degree {self.degree} asks for more edges than {self.variables} variables can have"
            )

    @property
    def _n_edges(self) -> int:
        return round(self.variables * self.degree / 2)

    def build(self, data_dir: Path | None = None) -> Problem:
        """Draw the model; the same settings give the same model."""
        rng = np.random.default_rng(self.seed)
        n, k = self.variables, self.labels
        unary = rng.uniform(0.0, self.field, (n, k))
        edges = sample_pairs(n, self._n_edges, rng)
        m = len(edges)

        size = 2.0 * self.coupling
        term: PairwiseTerms
        if self.terms == "potts":
            weights = rng.uniform(0.0, size, m)
            signs = np.where(rng.random(m) < self.frustration, -1.0, 1.0)
            term = DiagonalTerms(edges, 0.0, weights * signs)
        else:
            term = OwnTables(edges, rng.uniform(0.0, size, (m, k, k)))
        return Problem(self.spec, FactorGraph.from_terms(unary, [term]))
