"""Contraction of points that hard must-links connect into units with one label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from inference_lab.graph.arrays import FloatArray, IntArray, connected
from inference_lab.graph.terms import DiagonalTerms


@dataclass(frozen=True)
class Units:
    """Groups of points that share a label, with the remaining terms between and within them.

    ``of_point`` (c,) is the unit of each point, ``first`` (u,) a point of each unit, ``within``
    the costs of terms inside units. A labelling of units costs as much as the same labelling of
    points.
    """

    of_point: IntArray
    first: IntArray
    terms: list[DiagonalTerms]
    within: list[tuple[IntArray, FloatArray]]

    def unary(self, costs: FloatArray) -> FloatArray:
        """Return the cost of each unit in each cluster, given the cost of each point."""
        c = self.of_point.size
        members = csr_array((np.ones(c), (self.of_point, np.arange(c))), shape=(self.first.size, c))
        unit_costs = np.asarray(members @ costs)
        for units, added in self.within:
            np.add.at(unit_costs, units, added)
        return unit_costs


def units_of(terms: Sequence[DiagonalTerms], n_points: int) -> Units | None:
    """Return the units of points joined by hard must-links, None without hard must-links."""
    blocks = [_full(term) for term in terms]
    must_links = [edges[np.isposinf(differ) & np.isfinite(same)] for edges, same, differ in blocks]
    if not any(map(len, must_links)):
        return None
    of_point = connected(n_points, np.concatenate(must_links))
    between, within = [], []
    for edges, same, differ in blocks:
        ends = of_point[edges]
        inside = ends[:, 0] == ends[:, 1]
        within.append((ends[inside, 0], same[inside, np.newaxis]))
        between.append(DiagonalTerms(ends[~inside], same[~inside], differ[~inside]))
    return Units(of_point, np.unique(of_point, return_index=True)[1], between, within)


def _full(term: DiagonalTerms) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return pairs (m, 2), and their costs for equal and unequal labels, (m,)."""
    edges = np.asarray(term.edges, dtype=np.int64).reshape(-1, 2)
    same, differ = (np.asarray(costs, dtype=np.float64) for costs in (term.same, term.differ))
    return edges, np.broadcast_to(same, len(edges)), np.broadcast_to(differ, len(edges))
