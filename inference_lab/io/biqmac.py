"""Max-cut, QUBO and clique partitioning: formats of the Biq Mac library, G-set, qbsolv and CP-Lib.

A file of the first two lists the numbers of vertices and of entries, ``N M``, and then ``i j w``
for each entry, with vertices from 1. Most of these files have no suffix of their own, so the format
must be named: ``inference_lab.read(path, format="max-cut")`` or ``format="qubo"``.

* As *max-cut*, the task is to choose sides ``x`` so that the sum of ``w`` over the entries with
  ends on different sides is as large as possible. The energy is **minus the cut**:
  ``E(x) = - sum_ij w_ij [x_i != x_j]``. If all entries are lines ``i j`` without a weight, each
  weighs 1.
* As *QUBO*, the task is to minimise ``E(x) = sum_i q_ii x_i + 2 sum_{i<j} q_ij x_i x_j`` over
  ``x`` in {0, 1}: each entry off the diagonal is listed once and counts twice.

QUBO files of qbsolv have a line ``p qubo T N D M`` in place of ``N M``: the topology ``T``, which
is ignored, and the numbers of variables, of entries on the diagonal and of entries off it. Their
variables count from 0, and each entry counts **once**: ``E(x) = sum_{i<=j} q_ij x_i x_j``. Files
``.qubo`` are read as QUBO, and this line tells the layout.

Entries for the same pair are added up.

A file of ``format="clique-partitioning"`` lists the number of vertices ``N`` and the weights of
all pairs, ``w_12 w_13 ... w_1N w_23 ...``. The weight within clusters is to be as large as
possible, and the energy is **minus this weight**: ``E(x) = - sum_ij w_ij [x_i = x_j]`` with N
labels, so that any number of clusters is possible. These formats are read only.

References
----------
A. Wiegele, "Biq Mac Library: a collection of Max-Cut and quadratic 0-1 programming instances of
medium size", 2007.
M. Booth, S. P. Reinhardt, A. Roy, "Partitioning Optimization Problems for Hybrid Classical/Quantum
Execution", D-Wave Systems, 2017 (qbsolv, "qubo input file format").
M. M. Sorensen, A. N. Letchford, "CP-Lib: benchmark instances of the clique partitioning problem",
Mathematical Programming Computation 16, 2024.
"""

from __future__ import annotations

import math
import re

import numpy as np

import inference_lab.io._limits as _limits
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.terms import DiagonalTerms
from inference_lab.io._assembly import graph_of
from inference_lab.io._text import plain_text
from inference_lab.io._tokens import Tokens

#: The line that begins a file of qbsolv, up to its numbers.
_QBSOLV = re.compile(rb"\s*p[^\S\n]+qubo[^\S\n]+\S+", re.IGNORECASE)


def parse_max_cut(data: bytes, path: str) -> FactorGraph:
    """Parse a max-cut problem; the energy is minus the weight of the cut."""
    tokens = Tokens(plain_text(data, path), path)
    n, edges, weights = _entries(tokens, optional=True)
    # An edge from a vertex to itself is never cut.
    proper = edges[:, 0] != edges[:, 1]
    cut = DiagonalTerms(edges[proper], 0.0, 0.0 - weights[proper])
    return graph_of(path, np.zeros((n, 2)), [cut])


def parse_qubo(data: bytes, path: str) -> FactorGraph:
    """Parse a quadratic problem over binary variables, in the layout of Biq Mac or qbsolv."""
    data = plain_text(data, path)
    if _QBSOLV.match(data):
        n, edges, weights = _qbsolv_entries(Tokens(data, path, first=3))
        factor = 1.0
    else:
        n, edges, weights = _entries(Tokens(data, path))
        factor = 2.0
    proper = edges[:, 0] != edges[:, 1]
    unary = np.zeros((n, 2))
    np.add.at(unary[:, 1], edges[~proper, 0], weights[~proper])
    same = np.stack([np.zeros(int(proper.sum())), factor * weights[proper]], axis=1)
    return graph_of(path, unary, [DiagonalTerms(edges[proper], same, 0.0)])


def parse_clique_partitioning(data: bytes, path: str) -> FactorGraph:
    """Parse a clique partitioning problem; the energy is minus the weight within clusters."""
    tokens = Tokens(plain_text(data, path), path)
    limit = (1 + math.isqrt(1 + 8 * max(0, int(tokens.values.size) - 1))) // 2
    n = tokens.integer(0, "the number of vertices", low=1, high=limit)
    tokens.check_end(1 + n * (n - 1) // 2, f"the weights of all pairs of {n} vertices")
    edges = np.stack(np.triu_indices(n, 1), axis=1)
    weights = tokens.costs(
        1 + np.arange(len(edges)), lambda at: f"expected the weight of the pair {edges[at] + 1}"
    )
    return graph_of(path, np.zeros((n, n)), [DiagonalTerms(edges, 0.0 - weights)])


def _vertices(tokens: Tokens) -> int:
    """Return the number of vertices, the first number of the file."""
    n = tokens.integer(0, "the number of vertices")
    # The number of vertices is limited, because vertices without entries take memory, too.
    end = int(tokens.values.size)
    limit = _limits.MAX_FREE_LABELS + end
    if n > limit:
        raise tokens.error(0, f"{n} vertices; at most {limit} are read of a file of {end} numbers")
    return n


def _entries(tokens: Tokens, *, optional: bool = False) -> tuple[int, IntArray, FloatArray]:
    """Return the number of vertices, and the ends (from 0) and weight of each entry.

    The weights are 1 if they are `optional` and all entries are lines without one.
    """
    n = _vertices(tokens)
    end = int(tokens.values.size)
    if optional and _has_pairs_only(tokens):
        m = tokens.integer(1, "the number of entries")
        ends = _ends(tokens, 2 + 2 * np.arange(m), 1, n)
        return n, ends, np.ones(m)
    m = tokens.integer(1, "the number of entries", high=max(0, end - 2) // 3)
    tokens.check_end(2 + 3 * m, f"the {m} entries 'i j w'")
    starts = 2 + 3 * np.arange(m)
    return n, _ends(tokens, starts, 1, n), _weights(tokens, starts)


def _has_pairs_only(tokens: Tokens) -> bool:
    """Return whether all entries are lines of two numbers, as many as the file announces."""
    values = tokens.values
    m, odd = divmod(int(values.size) - 2, 2)
    if m < 1 or odd or values[1] != m:
        return False
    # Lines are compared, because a file of weights that was cut may have as many numbers.
    lines = tokens.lines()
    return bool((lines[2::2] == lines[3::2]).all() and (lines[4::2] > lines[3:-1:2]).all())


def _qbsolv_entries(tokens: Tokens) -> tuple[int, IntArray, FloatArray]:
    """Return the number of variables, and the ends and weight of each entry of a qbsolv file."""
    n = _vertices(tokens)
    room = max(0, int(tokens.values.size) - 3) // 3
    counts = [
        tokens.integer(1 + at, f"the number of entries {where} the diagonal", high=room)
        for at, where in enumerate(("on", "off"))
    ]
    m = sum(counts)
    if m > room:
        raise tokens.error(1, f"{m} entries 'i j w' are announced, but at most {room} are there")
    tokens.check_end(3 + 3 * m, f"the {m} entries 'i j w'")
    starts = 3 + 3 * np.arange(m)
    ends = _ends(tokens, starts, 0, n)
    n_diagonal = int((ends[:, 0] == ends[:, 1]).sum())
    if n_diagonal != counts[0]:
        raise tokens.error(
            1, f"{counts[0]} entries on the diagonal are announced, {n_diagonal} are there"
        )
    return n, ends, _weights(tokens, starts)


def _ends(tokens: Tokens, starts: IntArray, first: int, n: int) -> IntArray:
    """Return the two vertices of each entry, from 0; `first` is the file's number of vertex 0."""
    ends = tokens.integers(
        (starts[:, None] + np.arange(2)).ravel(),
        first,
        first + n,
        lambda at: f"entry {at // 2}: expected a vertex, {first} to {first + n - 1}",
    )
    return ends.reshape(-1, 2).astype(np.int64) - first


def _weights(tokens: Tokens, starts: IntArray) -> FloatArray:
    return tokens.costs(starts + 2, lambda entry: f"entry {entry}: expected its weight")
