"""Max-cut, QUBO and clique partitioning: text formats of the Biq Mac library, G-set and CP-Lib.

A file of the first two lists the numbers of vertices and of entries, ``N M``, and then ``i j w``
for each entry, with vertices from 1. The files have no common suffix, so the format must be named:
``inference_lab.read(path, format="max-cut")`` or ``format="qubo"``.

* As *max-cut*, the task is to choose sides ``x`` so that the sum of ``w`` over the entries with
  ends on different sides is as large as possible. The energy is **minus the cut**:
  ``E(x) = - sum_ij w_ij [x_i != x_j]``.
* As *QUBO*, the task is to minimise ``E(x) = sum_i q_ii x_i + 2 sum_{i<j} q_ij x_i x_j`` over
  ``x`` in {0, 1}: each entry off the diagonal is listed once and counts twice.

Entries for the same pair are added up.

A file of ``format="clique-partitioning"`` lists the number of vertices ``N`` and the weights of
all pairs, ``w_12 w_13 ... w_1N w_23 ...``. The weight within clusters is to be as large as
possible, and the energy is **minus this weight**: ``E(x) = - sum_ij w_ij [x_i = x_j]`` with N
labels, so that any number of clusters is possible. These formats are read only.

References
----------
A. Wiegele, "Biq Mac Library: a collection of Max-Cut and quadratic 0-1 programming instances of
medium size", 2007.
M. M. Sorensen, A. N. Letchford, "CP-Lib: benchmark instances of the clique partitioning problem",
Mathematical Programming Computation 16, 2024.
"""

from __future__ import annotations

import math

import numpy as np

import inference_lab.io._limits as _limits
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.terms import DiagonalTerms
from inference_lab.io._assembly import graph_of
from inference_lab.io._tokens import Tokens


def parse_max_cut(data: bytes, path: str) -> FactorGraph:
    """Parse a max-cut problem; the energy is minus the weight of the cut."""
    n, edges, weights = _entries(data, path)
    # An edge from a vertex to itself is never cut.
    proper = edges[:, 0] != edges[:, 1]
    cut = DiagonalTerms(edges[proper], 0.0, 0.0 - weights[proper])
    return graph_of(path, np.zeros((n, 2)), [cut])


def parse_qubo(data: bytes, path: str) -> FactorGraph:
    """Parse a quadratic problem over binary variables."""
    n, edges, weights = _entries(data, path)
    proper = edges[:, 0] != edges[:, 1]
    unary = np.zeros((n, 2))
    np.add.at(unary[:, 1], edges[~proper, 0], weights[~proper])
    same = np.stack([np.zeros(int(proper.sum())), 2.0 * weights[proper]], axis=1)
    return graph_of(path, unary, [DiagonalTerms(edges[proper], same, 0.0)])


def parse_clique_partitioning(data: bytes, path: str) -> FactorGraph:
    """Parse a clique partitioning problem; the energy is minus the weight within clusters."""
    tokens = Tokens(data, path)
    most = (1 + math.isqrt(1 + 8 * max(0, int(tokens.values.size) - 1))) // 2
    n = tokens.integer(0, "the number of vertices", low=1, high=most)
    tokens.check_end(1 + n * (n - 1) // 2, f"the weights of all pairs of {n} vertices")
    edges = np.stack(np.triu_indices(n, 1), axis=1)
    weights = tokens.costs(
        1 + np.arange(len(edges)), lambda at: f"expected the weight of the pair {edges[at] + 1}"
    )
    return graph_of(path, np.zeros((n, n)), [DiagonalTerms(edges, 0.0 - weights)])


def _entries(data: bytes, path: str) -> tuple[int, IntArray, FloatArray]:
    """Return the number of vertices, and the ends (from 0) and weight of each entry."""
    tokens = Tokens(data, path)
    end = int(tokens.values.size)
    n = tokens.integer(0, "the number of vertices")
    # The number of vertices is limited, because vertices without entries take memory, too.
    most = _limits.MAX_FREE_LABELS + end
    if n > most:
        raise tokens.error(0, f"{n} vertices; at most {most} are read of a file of {end} numbers")
    m = tokens.integer(1, "the number of entries", high=max(0, end - 2) // 3)
    tokens.check_end(2 + 3 * m, f"the {m} entries 'i j w'")
    places = 2 + 3 * np.repeat(np.arange(m), 2) + np.tile([0, 1], m)
    ends = tokens.integers(
        places, 1, n + 1, lambda at: f"entry {at // 2}: expected a vertex, 1 to {n}"
    )
    weights = tokens.costs(
        4 + 3 * np.arange(m), lambda entry: f"entry {entry}: expected its weight"
    )
    return n, ends.reshape(m, 2).astype(np.int64) - 1, weights
