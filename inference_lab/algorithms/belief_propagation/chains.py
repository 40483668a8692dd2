"""The terms of a graph as trees along which messages are passed there and back: lines of grids."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from inference_lab.algorithms.belief_propagation.schedules import Trees
from inference_lab.graph.arrays import GraphArrays, starts_of
from inference_lab.graph.factor_graph import FactorGraph

#: As many directions have the terms of a picture with eight neighbours.
_MOST_DIRECTIONS = 4
#: Fewer variables look like a grid by chance.
_FEWEST = 16


def is_grid(graph: FactorGraph) -> bool:
    """Whether terms join variables at four distances of their numbers at most, as in a picture."""
    if graph.n_factors or graph.n_edges == 0 or graph.n_variables < _FEWEST:
        return False
    apart = np.abs(graph.edges[:, 1] - graph.edges[:, 0])
    # Most that are none are told by a few terms.
    if np.unique(apart[:1000]).size > _MOST_DIRECTIONS:
        return False
    earlier = int(np.bincount(graph.edges.max(axis=1)).max())
    return np.unique(apart).size <= min(_MOST_DIRECTIONS, earlier)


def make_trees(g: GraphArrays, along_grid: bool) -> tuple[Trees, list[tuple[int, int]]]:
    """Sort the pairwise terms into trees, and these into groups, each variable in one at most."""
    # Along a grid a group holds all terms of one direction: the rows, then the columns. Elsewhere
    # it holds the term of each variable with its first earlier neighbour, its second, and so on; in
    # a breadth-first order the first group is a spanning forest.
    owner = np.repeat(np.arange(g.cardinalities.size), np.diff(g.adj_ptr))
    back = np.flatnonzero(g.adj_var < owner)
    child, parent = owner[back], g.adj_var[back].astype(np.int64)
    if along_grid:
        group = np.unique(child - parent, return_inverse=True)[1]
    else:
        ranked = np.lexsort((parent, child))
        back, parent = back[ranked], parent[ranked]
        group = np.arange(back.size) - np.searchsorted(child, child)
    order = np.argsort(group, kind="stable")
    bounds = starts_of(np.bincount(group))
    back = back[order]
    return Trees(g.adj_reverse[back].astype(np.int64), back), list(pairwise(bounds.tolist()))
