"""Synthetic E-steps of any size for the benchmarks, and how they are timed."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

import inference_lab as il

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class EStep(NamedTuple):
    """Arrays of an E-step, and the labels its points were drawn from.

    ``unary`` (n, k) float64 holds squared distances to the centroids; ``edges`` (m, 2) int64 the
    constrained pairs; ``same`` and ``differ`` (m,) float64 the costs of a pair with equal and with
    different labels; ``truth`` (n,) int64.
    """

    unary: FloatArray
    edges: IntArray
    same: FloatArray
    differ: FloatArray
    truth: IntArray

    def build(self) -> il.FactorGraph:
        """Build the graph from the arrays, adjacency included."""
        terms = il.DiagonalTerms(self.edges, same=self.same, differ=self.differ)
        graph = il.FactorGraph.from_terms(self.unary, [terms])
        # Solvers need the adjacency, which the graph derives on first use.
        assert graph.arrays.adj_ptr[-1] == 2 * graph.n_edges
        return graph


def estep(
    points: int,
    clusters: int,
    constraints: int,
    *,
    partners: Literal["any", "balanced", "nearby"] = "balanced",
    noise: float = 0.1,
    weight: float = 10.0,
    dimensions: int = 8,
    spread: float = 1.2,
    seed: int = 0,
) -> EStep:
    """Draw Gaussian blobs of unit variance, and constraints from their labels.

    Parameters
    ----------
    points, clusters, constraints : int
    partners : {"any", "balanced", "nearby"}
        A constraint joins any two points, of which about ``1 / clusters`` are from one blob; or in
        every other case two points of one blob; or two points whose numbers are at most 50 apart,
        so that data read together are close in memory.
    noise : float
        Share of the constraints that contradict the labels.
    weight : float
        Cost of a violated constraint, in squared distance.
    dimensions, spread
        The centroids are normal with this standard deviation in each dimension.
    seed : int
    """
    rng = np.random.default_rng(seed)
    centroids = rng.normal(scale=spread, size=(clusters, dimensions))
    truth = rng.integers(0, clusters, points)
    unary = np.empty((points, clusters))
    for start in range(0, points, 65_536):
        block = truth[start : start + 65_536]
        x = centroids[block] + rng.normal(size=(block.size, dimensions))
        unary[start : start + block.size] = (
            (x**2).sum(axis=1)[:, None] - 2 * x @ centroids.T + (centroids**2).sum(axis=1)
        )
    first = rng.integers(0, points, constraints)
    if partners == "nearby":
        first.sort()
        second = (first + rng.integers(1, 51, constraints)) % points
    else:
        second = rng.integers(0, points, constraints)
    if partners == "balanced":
        # Sorted by label, each blob is one interval; the partner is anywhere in it.
        order = np.argsort(truth, kind="stable")
        sizes = np.bincount(truth, minlength=clusters)
        blob = truth[first[::2]]
        place = np.cumsum(sizes)[blob] - 1 - rng.integers(0, sizes[blob])
        second[::2] = order[place]
    # A point is not constrained with itself; its successor takes its place.
    second = np.where(first == second, (second + 1) % points, second)
    agrees = (truth[first] == truth[second]) ^ (rng.random(constraints) < noise)
    return EStep(
        unary=unary,
        edges=np.stack([first, second], axis=1),
        same=np.where(agrees, 0.0, weight),
        differ=np.where(agrees, weight, 0.0),
        truth=truth,
    )
