"""Clique partitioning: clusters of a signed graph, as many as it takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from inference_lab.graph.arrays import FloatArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.terms import DiagonalTerms
from inference_lab.problem import Problem, ProblemFamily
from inference_lab.specs.settings import setting


@dataclass(frozen=True)
class CliquePartitioning(ProblemFamily):
    """Energies ``E(x) = - sum_ij w_ij [x_i = x_j]``: minus the weight within clusters.

    All pairs of vertices have a weight of either sign, and there are as many labels as vertices, so
    that any number of clusters is possible. It is also called correlation clustering, or the
    multicut problem of a complete graph, and is an E-step without centroids.

    The random graphs follow families of CP-Lib (with other random numbers). Its files are read by
    ``file(path=..., format=clique-partitioning)``.

    Parameters
    ----------
    vertices : int
    weights : {"uniform", "signs", "correlation"}
        Integers from `-span` to `span` (Charon and Hudry: ``rand``); -1 or 1 (``zahn``); or 100
        times the correlation of uniform random vectors of length `vertices`, rounded (``corr``).
    span : int
        Largest weight of "uniform".
    seed : int

    References
    ----------
    M. Grotschel, Y. Wakabayashi, "A cutting plane algorithm for a clustering problem", Mathematical
    Programming 45, 1989.
    M. M. Sorensen, A. N. Letchford, "CP-Lib: benchmark instances of the clique partitioning
    problem", Mathematical Programming Computation 16, 2024, sections 3.4 and 4.2.

    Examples
    --------
    >>> problem = CliquePartitioning(vertices=6, weights="signs").build()
    >>> problem.graph
    FactorGraph(6 variables x 6 labels; terms: 15 Potts)
    """

    vertices: int = setting(40, at_least=1)
    weights: Literal["uniform", "signs", "correlation"] = setting("uniform", always=True)
    span: int = setting(5, at_least=1)
    seed: int = setting(0, at_least=0)

    def build(self, data_dir: Path | None = None) -> Problem:
        """Draw the weights; the same settings give the same problem."""
        n = self.vertices
        edges = np.stack(np.triu_indices(n, 1), axis=1)
        weights = self._weights(edges.shape[0], np.random.default_rng(self.seed))
        graph = FactorGraph.from_terms(np.zeros((n, n)), [DiagonalTerms(edges, same=0.0 - weights)])
        return Problem(self.spec, graph)

    def _weights(self, m: int, rng: np.random.Generator) -> FloatArray:
        if self.weights == "signs":
            return np.asarray(2.0 * rng.integers(0, 2, m) - 1.0, dtype=np.float64)
        if self.weights == "uniform":
            return rng.integers(-self.span, self.span, m, endpoint=True).astype(np.float64)
        n = self.vertices
        if n == 1:
            return np.empty(0)
        correlations = np.asarray(np.corrcoef(rng.random((n, n)).T))
        return np.rint(100.0 * correlations[np.triu_indices(n, 1)])
