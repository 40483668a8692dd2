"""Synthetic E-steps of any size for the benchmarks, and how they are timed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

import inference_lab as il

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class EStep(NamedTuple):
    """The arrays an E-step is built from, and the labels its points were drawn from.

    ``unary`` (n, k) float64 holds squared distances to the centroids; ``edges`` (m, 2) int64 the
    constrained pairs; ``same`` and ``differ`` (m,) float64 what a pair costs whose labels agree
    or differ; ``truth`` (n,) int64.
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
        # Solvers need the adjacency, and the graph derives it on first use.
        assert graph.arrays.adj_ptr[-1] == 2 * graph.n_edges
        return graph


def estep(
    points: int,
    clusters: int,
    constraints: int,
    *,
    must_link: float | None = None,
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
    must_link : float or None
        Share of the pairs whose points come from the same blob; None draws the pairs uniformly,
        which makes it about ``1 / clusters``.
    noise : float
        Share of the constraints that say the opposite of the labels.
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
    second = rng.integers(0, points, constraints)
    if must_link is not None:
        # Partners from the same blob: a random member of the stretch that the blob takes in the
        # order of labels.
        order = np.argsort(truth, kind="stable")
        ends = np.cumsum(np.bincount(truth, minlength=clusters))
        begins = np.concatenate([[0], ends[:-1]])
        linked = rng.random(constraints) < must_link
        blob = truth[first]
        partner = order[
            (begins[blob] + rng.random(constraints) * (ends - begins)[blob]).astype(int)
        ]
        second = np.where(linked, partner, second)
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
