"""Graph colouring: colours for the vertices of a random or a DIMACS graph, without conflicts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from inference_lab.constraints import sample_pairs
from inference_lab.data.images import find_file
from inference_lab.graph.arrays import IntArray
from inference_lab.graph.factor_graph import FactorGraph
from inference_lab.graph.terms import DiagonalTerms
from inference_lab.io import FormatError
from inference_lab.io._files import read_bytes
from inference_lab.io._limits import MAX_FREE_LABELS
from inference_lab.problem import Problem, ProblemFamily
from inference_lab.problems.max_cut import regular_edges
from inference_lab.specs.settings import setting

#: Least bytes of a file for each end of an edge: ``e 1 2`` and the line end have six.
_BYTES_PER_END = 3


@dataclass(frozen=True)
class ColouringProblem(Problem):
    """A colouring problem."""

    def score(self, labels: npt.ArrayLike) -> dict[str, float]:
        """Count conflicts."""
        colours = self.graph.check_labels(labels)
        edges = self.graph.edges
        conflicts = float((colours[edges[:, 0]] == colours[edges[:, 1]]).sum())
        return {"conflicts": conflicts, **super().score(colours)}


@dataclass(frozen=True)
class GraphColouring(ProblemFamily):
    """Energies ``sum_i u_i(x_i) + weight sum_ij [x_i = x_j]`` over the edges of a graph.

    Without preferences ``u`` and with weight 1 the energy is the number of conflicts; a graph can
    be coloured if and only if the minimum is 0.

    Parameters
    ----------
    graph : {"random", "regular", "planted", "file"}
        "random" is G(n, p); "regular" has `degree` edges at each vertex; "planted" draws edges
        between vertices of different colours of a hidden colouring with classes of equal size,
        which is the ground truth; "file" reads `path`.
    vertices : int
    colours : int
    degree : float
        Mean number of edges at a vertex; an integer for regular graphs. Random graphs turn from
        colourable to not at about 4.69 (3 colours), 8.9 (4 colours) and 13.7 (5 colours).
    weight : float
        Cost of a conflict, ``inf`` to forbid them.
    preference : float
        ``u`` is uniform on [0, preference]. Without preferences all colours are alike, and
        methods that change one vertex at a time have nothing to start from.
    path : str, optional
        A graph in the DIMACS format (``.col``; ``.gz`` and ``.xz`` are unpacked), found as in
        `inference_lab.data.images.find_file`.
    seed : int
        Seeds the graph and the preferences, independently of each other.

    References
    ----------
    D. Johnson, M. Trick (eds.), "Cliques, coloring, and satisfiability: second DIMACS
    implementation challenge", 1996 (the format). L. Zdeborova, F. Krzakala, "Phase transitions in
    the coloring of random graphs", Phys. Rev. E 76, 2007 (thresholds).

    Examples
    --------
    >>> problem = GraphColouring(graph="planted", vertices=30, colours=3, degree=4).build()
    >>> problem.graph
    FactorGraph(30 variables x 3 labels; terms: 60 Potts)
    >>> problem.graph.energy(problem.truth)
    0.0
    """

    graph: Literal["random", "regular", "planted", "file"] = setting("random", always=True)
    vertices: int = setting(100, at_least=1)
    colours: int = setting(3, at_least=1)
    degree: float = 4.0
    weight: float = setting(1.0, at_least=0)
    preference: float = setting(0.0, at_least=0, below=math.inf)
    path: str | None = None
    seed: int = setting(0, at_least=0)

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        if (self.path is not None) != (self.graph == "file"):
            raise ValueError("graph=file needs the setting path, and only it has one")
        if self.graph == "file":
            return
        n = self.vertices
        if not 0.0 <= self.degree <= n - 1:
            raise ValueError(f"degree must be between 0 and {n - 1}, got {self.degree}")
        if self.graph == "regular" and (self.degree % 1 or n * self.degree % 2):
            raise ValueError(
                f"degree of a regular graph must be an integer, and even if the {n} vertices are "
                f"odd, got {self.degree}"
            )
        if self.graph == "planted" and round(n * self.degree / 2) > _between(n, self.colours):
            raise ValueError(
                f"degree {self.degree} asks for more edges than there are pairs of {n} vertices "
                f"in {self.colours} classes"
            )

    def build(self, data_dir: Path | None = None) -> ColouringProblem:
        """Draw or read the graph, and set up the energy."""
        draw, prefer = np.random.default_rng(self.seed).spawn(2)
        truth = None
        if self.graph == "file":
            place = find_file(self.path or "", data_dir, "graph")
            n, edges = parse_dimacs(read_bytes(place), str(place))
        else:
            n = self.vertices
            if self.graph == "planted":
                truth = draw.permutation(n) % self.colours
            edges = self._draw(truth, draw)
        unary = prefer.uniform(0.0, self.preference, (n, self.colours))
        # Without preferences, no labelling is better than one without conflicts.
        known = truth is not None and self.preference == 0.0
        return ColouringProblem(
            self.spec,
            FactorGraph.from_terms(unary, [DiagonalTerms(edges, self.weight, 0.0)]),
            truth=truth,
            optimum=0.0 if known else None,
            optimum_source="planted: a colouring without conflicts" if known else "",
            info={"degree": 2.0 * len(edges) / n},
        )

    def _draw(self, truth: IntArray | None, rng: np.random.Generator) -> IntArray:
        n = self.vertices
        if self.graph == "regular":
            return regular_edges(int(self.degree), n, rng)
        if truth is None:
            pairs = n * (n - 1) // 2
            p = self.degree / (n - 1) if n > 1 else 0.0
            # The number of edges of G(n, p) is drawn first, then a set of that size.
            return sample_pairs(n, int(rng.binomial(pairs, p)), rng)
        return _pairs_between(truth, round(n * self.degree / 2), rng)


def _between(n: int, k: int) -> int:
    """Return the number of pairs of different classes if n points are dealt to k classes."""
    small, larger = divmod(n, k)
    within = larger * (small + 1) * small // 2 + (k - larger) * small * (small - 1) // 2
    return n * (n - 1) // 2 - within


def _pairs_between(classes: IntArray, count: int, rng: np.random.Generator) -> IntArray:
    """Draw distinct pairs of points of different classes, every set equally likely."""
    n = classes.size
    if 2 * count > _between(n, int(classes.max(initial=0)) + 1):
        i, j = np.triu_indices(n, k=1)
        proper = np.flatnonzero(classes[i] != classes[j])
        chosen = rng.choice(proper, count, replace=False)
        return np.stack([i[chosen], j[chosen]], axis=1)
    keys = np.empty(0, dtype=np.int64)
    while keys.size < count:
        # At least half of the pairs are still free, so few rounds are needed.
        ends = np.sort(rng.integers(0, n, (2 * count + 8, 2)), axis=1)
        proper_ends = ends[classes[ends[:, 0]] != classes[ends[:, 1]]]
        drawn = np.concatenate([keys, proper_ends[:, 0] * n + proper_ends[:, 1]])
        # Duplicates keep their first place in the order of drawing.
        keys = drawn[np.sort(np.unique(drawn, return_index=True)[1])]
    return np.stack(np.divmod(keys[:count], n), axis=1)


def parse_dimacs(data: bytes, path: str) -> tuple[int, IntArray]:
    r"""Parse a graph in the DIMACS format for colouring."""
    # Lines ``c ...`` are comments; ``p edge <vertices> <edges>`` comes first (``p col`` also
    # occurs); each ``e <i> <j>`` is an edge, vertices being numbered from 1. Other lines (``n``,
    # ``d``, ``v``, ``x`` of extensions) are left out. Edges that are listed in both directions
    # count once; the number of edges in the header is often wrong and is ignored.
    n = -1
    # Limited by the size of the file, because vertices without edges take memory, too.
    most = MAX_FREE_LABELS + len(data) // _BYTES_PER_END
    ends: list[int] = []
    for number, line in enumerate(data.split(b"\n"), start=1):
        words = line.split()
        if not words or words[0] not in (b"p", b"e"):
            continue
        try:
            values = [int(word) for word in words[-2:]]
        except ValueError:
            values = []
        text = line.decode("ascii", "replace").strip()[:60]
        if words[0] == b"p":
            if n >= 0 or len(words) != 4 or words[1] not in (b"edge", b"edges", b"col"):
                raise FormatError(
                    f"{path}, line {number}: expected one line 'p edge <vertices> <edges>', "
                    f"got {text!r}"
                )
            if not values or not 1 <= values[0] <= most:
                raise FormatError(
                    f"{path}, line {number}: expected 1 to {most:,} vertices in a file of "
                    f"{len(data):,} bytes, got {text!r}"
                )
            n = values[0]
            continue
        if n < 0:
            raise FormatError(f"{path}, line {number}: an edge before the line 'p edge ...'")
        if len(words) != 3 or not values or not all(1 <= v <= n for v in values):
            raise FormatError(
                f"{path}, line {number}: expected 'e <i> <j>' with vertices 1 to {n}, got {text!r}"
            )
        if values[0] == values[1]:
            raise FormatError(
                f"{path}, line {number}: vertex {values[0]} is joined to itself, which no "
                "colouring allows"
            )
        ends += values
    if n < 0:
        raise FormatError(f"{path}: no line 'p edge <vertices> <edges>'")
    pairs = np.sort(np.array(ends, dtype=np.int64).reshape(-1, 2) - 1, axis=1)
    _, first = np.unique(pairs[:, 0] * n + pairs[:, 1], return_index=True)
    return n, pairs[np.sort(first)]
