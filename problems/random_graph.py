"""Random sparse graph: any number of labels, term family, coupling and frustration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from inference_lab.constraints import sample_pairs
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.terms import DiagonalTerms, OwnTables, PairwiseTerms, SharedTable
from inference_lab.problem import Problem, ProblemFamily


@dataclass(frozen=True)
class RandomGraph(ProblemFamily):
    """Distinct random edges between variables with uniform unaries on [0, field].

    Parameters
    ----------
    variables, labels : int
    degree : float
        Mean number of pairwise terms at a variable.
    terms : {"potts", "diagonal", "truncated-linear", "tables"}
        Potts weights; a random diagonal each; one table ``min(|a - b|, 2)`` with random weights;
        a random table each. Magnitudes are uniform on [0, 2 coupling].
    coupling, field : float
    frustration : float in [0, 1]
        Probability that a Potts weight, a diagonal entry's pull or a table's weight is negative;
        tables of their own have no sign and are not affected.
    triples : int
        Further factors over three random variables each, uniform on [0, 2 coupling].
    seed : int

    Examples
    --------
    >>> RandomGraph(variables=10, degree=2.0, triples=1).build().graph
    FactorGraph(10 variables x 3 labels; terms: 10 Potts, 1 higher-order)
    """

    variables: int = 200
    labels: int = 3
    degree: float = 4.0
    terms: Literal["potts", "diagonal", "truncated-linear", "tables"] = "potts"
    coupling: float = 1.0
    field: float = 1.0
    frustration: float = 0.0
    triples: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the settings."""
        for name in ("variables", "labels"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("coupling", "field", "degree"):
            if not 0.0 <= getattr(self, name) < np.inf:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        if not 0.0 <= self.frustration <= 1.0:
            raise ValueError(f"frustration must be between 0 and 1, got {self.frustration}")
        if self.triples < 0 or (self.triples and self.variables < 3):
            raise ValueError(f"triples must fit at least 3 variables, got {self.triples}")
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

        def signed(shape: tuple[int, ...]) -> np.ndarray:
            size = rng.uniform(0.0, 2.0 * self.coupling, shape)
            return size * np.where(rng.random(shape) < self.frustration, -1.0, 1.0)

        term: PairwiseTerms
        if self.terms == "potts":
            term = DiagonalTerms(edges, 0.0, signed((m,)))
        elif self.terms == "diagonal":
            term = DiagonalTerms(edges, -signed((m, k)), 0.0)
        elif self.terms == "truncated-linear":
            distance = np.abs(np.subtract.outer(np.arange(k), np.arange(k)))
            term = SharedTable(edges, np.minimum(distance, 2.0), signed((m,)))
        else:
            term = OwnTables(edges, rng.uniform(0.0, 2.0 * self.coupling, (m, k, k)))
        factors = [
            (
                rng.choice(n, 3, replace=False).tolist(),
                rng.uniform(0.0, 2.0 * self.coupling, (k, k, k)),
            )
            for _ in range(self.triples)
        ]
        return Problem(self.spec, FactorGraph.from_terms(unary, [term], factors))
