"""Branch and bound over partitions, with bounds from semidefinite relaxations."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from inference_lab.algorithms.multicut.local_search import first_partition, improve
from inference_lab.algorithms.multicut.signed_graph import SignedGraph, signed_graph
from inference_lab.algorithms.semidefinite.potts_energy import PottsPart
from inference_lab.algorithms.semidefinite.relaxation import SDPRelaxation
from inference_lab.graph.arrays import FloatArray, IntArray

#: Iterations between two checks of the bound.
_CHECK = 25
#: A subproblem is split if its bound fell by less than the share `_SLOW` of its gap in `_LOOKS`
#: checks, and in any case after `_PATIENCE * _LOOKS` checks.
_SLOW = 0.05
_LOOKS = 4
_PATIENCE = 6
#: Multiple of these checks for the first subproblem, whose multipliers all others inherit.
_FIRST = 2
#: Bytes of the open subproblems from which the last one comes next instead of the least bounded.
_MEMORY = 1 << 28


@dataclass(eq=False)
class Subproblem:
    """Partitions in which given pairs of vertices share a cluster, and others do not."""

    # Vertex v is in node ``node[v]`` of the graph ``gains`` (m, m) between merged vertices;
    # ``within`` is the gain inside of them. ``apart`` (m, m), below the diagonal. ``above``
    # is the bound of the problem that was split; ``bounds`` are those at all looks, which begin
    # above it. ``origin`` has the state of that problem, and its node i is node ``of[i]``.

    node: IntArray
    gains: FloatArray
    within: float
    apart: npt.NDArray[np.bool_]
    above: float
    origin: SDPRelaxation | None = None
    of: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    relaxation: SDPRelaxation | None = None
    bounds: list[float] = field(default_factory=list)

    @property
    def bound(self) -> float:
        """Upper bound on the value."""
        return min(self.above, *self.bounds[-1:], math.inf)

    def started(self, max_clusters: int, rng: np.random.Generator) -> SDPRelaxation:
        """Return the relaxation, which begins with the state of the problem that was split."""
        if self.relaxation is None:
            m = len(self.gains)
            low, high = np.nonzero(np.triu(self.gains, 1))
            part = PottsPart(
                variables=np.arange(m),
                unary=np.zeros((m, max_clusters)),
                pairs=np.stack([low, high], axis=1),
                coupling=-self.gains[low, high],
                constant=-self.within,
                quantum=0.0,
            )
            self.relaxation = SDPRelaxation(part, True, rng, boxed=True)
            self.relaxation.apart = self.apart
            if self.origin is not None:
                self.relaxation.inherit(self.origin, self.of)
                self.origin = None
        return self.relaxation

    def split(self, i: int, j: int) -> tuple[Subproblem, Subproblem]:
        """Return the subproblems in which nodes i > j are together, and apart."""
        m = len(self.gains)
        of = np.insert(np.arange(m - 1), i, j)
        merge = np.zeros((m - 1, m))
        merge[of, np.arange(m)] = 1.0
        gains = merge @ self.gains @ merge.T
        np.fill_diagonal(gains, 0.0)
        either = self.apart | self.apart.T
        apart = np.tril(merge @ either @ merge.T > 0.0)
        separate = self.apart.copy()
        separate[i, j] = True
        last = self.bound
        within = self.within + self.gains[i, j]
        identity = np.arange(m)
        return (
            Subproblem(of[self.node], gains, within, apart, last, self.relaxation, of),
            Subproblem(
                self.node, self.gains, self.within, separate, last, self.relaxation, identity
            ),
        )


class PartitionTree:
    """Branch and bound over partitions into at most `most` clusters, at least 2.

    A subproblem merges pairs of vertices and keeps others apart. Its bound is the semidefinite
    relaxation with violated inequalities, from the multipliers of the problem that was split. The
    subproblem with the highest bound comes next.

    Attributes
    ----------
    open : list of Subproblem
    split, closed : int
        Number of subproblems split and closed so far.

    References
    ----------
    B. Ghaddar, M. Anjos, F. Liers, "A branch-and-cut algorithm based on semidefinite programming
    for the minimum k-partition problem", Annals of OR 188, 2011.
    """

    def __init__(self, g: SignedGraph, max_clusters: int, rng: np.random.Generator) -> None:
        self.g, self.max_clusters, self.rng = g, max_clusters, rng
        edges, weights = g.edges()
        gains = np.zeros((g.n, g.n))
        gains[edges[:, 0], edges[:, 1]] = gains[edges[:, 1], edges[:, 0]] = weights
        apart = np.zeros((g.n, g.n), dtype=np.bool_)
        self.open = [Subproblem(np.arange(g.n), gains, 0.0, apart, math.inf)]
        self.split = self.closed = 0
        self._excluded = self._first = -math.inf
        self._fall = 0.0

    @property
    def value(self) -> float:
        """Upper bound on the values of all partitions."""
        return max([self._excluded, *(sub.bound for sub in self.open)])

    def step(
        self, best: float, closes: Callable[[float], bool], should_stop: Callable[[], bool]
    ) -> IntArray | None:
        """Tighten the bound of one subproblem, and split it if that is slow.

        `closes` decides whether a bound excludes values above `best`; a split gives rounded labels.
        """
        crowded = 100 * len(self.open) * self.g.n**2 > _MEMORY
        sub = self.open[-1] if crowded else max(self.open, key=lambda sub: sub.bound)
        free = ~sub.apart & np.tri(len(sub.gains), k=-1, dtype=np.bool_)
        if not free.any():
            self._close(
                sub, self.g.value(sub.node) if len(sub.gains) <= self.max_clusters else -math.inf
            )
            return sub.node if len(sub.gains) <= self.max_clusters else None
        relaxation = sub.started(self.max_clusters, self.rng)
        for _ in range(_CHECK):
            if should_stop():
                break
            relaxation.iterate()
        relaxation.improve_bound(None, 0.0)
        sub.bounds.append(-relaxation.raw_bound)
        last = sub.bound
        if closes(last):
            self._close(sub, last)
            return None
        looks = _LOOKS if self.split else _FIRST * _LOOKS
        done = len(sub.bounds)
        slow = done > looks and sub.bounds[-1 - looks] - sub.bounds[-1] < _SLOW * (last - best)
        if not (slow or done >= _PATIENCE * looks):
            relaxation.separate(should_stop)
            return None
        equal = relaxation.equal()
        # Branch on a heavy pair that is far from both values.
        weight = np.abs(sub.gains)
        score = np.minimum(equal, 1.0 - equal) * (weight + 1e-3 * weight.max() + 1e-300)
        i, j = divmod(int(np.argmax(np.where(free, score, -1.0))), len(score))
        self._leave(sub)
        self.open += sub.split(i, j)
        self.split += 1
        return self._rounded(sub, equal)

    def expected_size(self, best: float) -> float:
        """Return the number of subproblems if bounds keep falling as they did; nan at first."""
        # A complete tree: both subproblems of a split fall by the mean. The first few fall least,
        # so the first estimates are up to fifty times too large; hopeless ones are beyond 2^50.
        done = self.split + self.closed - 1
        if done < 2:
            return math.nan
        levels = (self._first - best) / max(self._fall / done, 1e-300)
        return float(2.0 ** min(levels + 1.0, 1000.0))

    def _leave(self, sub: Subproblem) -> None:
        """Remove a subproblem from the open ones, and note the fall of its bound."""
        self.open.remove(sub)
        if self.split + self.closed:
            self._fall += sub.above - sub.bound
        else:
            self._first = sub.bound

    def _close(self, sub: Subproblem, value: float) -> None:
        """Remove a subproblem whose partitions have at most this value."""
        self._leave(sub)
        self.closed += 1
        self._excluded = max(self._excluded, value)

    def _rounded(self, sub: Subproblem, equal: FloatArray) -> IntArray:
        """Return the labels of a partition near a relaxed solution."""
        i, j = np.triu_indices(self.g.n, 1)
        likely = signed_graph(
            self.g.n, np.stack([i, j], axis=1), equal[sub.node[i], sub.node[j]] - 0.5
        )
        return improve(self.g, first_partition(likely, self.max_clusters), self.max_clusters)
