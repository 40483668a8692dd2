"""Models of clusters: the costs of points, their coupling by pairs, and the half-steps of EM."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from inference_lab.clustering.supervision import Supervision
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.graph.terms import DiagonalTerms

#: Labels, (n,) int64, at temperature zero, else shares in the clusters, (n, k) float64.
Assignment: TypeAlias = "IntArray | FloatArray"


def as_labels(assignment: Assignment) -> IntArray:
    """Return an assignment at temperature zero as labels, without a copy."""
    return np.asarray(assignment, dtype=np.int64)


class Model(ABC):
    """Parameters of clusters, the costs of points under them, and the steps that improve them.

    `alpha_weight` (n,) weights points in the objective at T > 0, and is equal for all coupled
    points; None for ones.
    """

    def __init__(self, supervision: Supervision, alpha_weight: FloatArray | None = None) -> None:
        constraints = supervision.constraints
        self.constraints = constraints
        #: Labels that no E-step changes, (n,), -1 elsewhere.
        self.partial_labels: IntArray = supervision.partial_labels
        self.sample_weight = supervision.sample_weight
        self.alpha_weight = alpha_weight
        #: The points that occur in pairs, and the pairs between them.
        self.rows: IntArray = constraints.touches(np.arange(constraints.n_points))
        self.pairs = constraints.restrict(self.rows, renumber=True)

    # -------------------------------------------------------------- the E-step

    @abstractmethod
    def nearest(self, previous: IntArray | None) -> IntArray:
        """Return the cheapest cluster of each point on its own; ties keep the previous label."""

    @abstractmethod
    def costs(self, rows: IntArray | None = None) -> FloatArray:
        """Return the cost of each point, or each of `rows`, in each cluster, shape (n, k)."""

    @abstractmethod
    def terms(self) -> Sequence[DiagonalTerms]:
        """Return the pairwise terms of `pairs` under the current parameters."""

    def coupling(self) -> Coupling:
        """Return the coupling of the points in pairs."""
        sample_weight = None if self.sample_weight is None else self.sample_weight[self.rows]
        alpha_weight = 1.0
        if self.alpha_weight is not None and self.rows.size:
            alpha_weight = float(self.alpha_weight[self.rows[0]])
        return Coupling(self.rows, self.terms(), sample_weight, alpha_weight)

    # -------------------------------------------------------------- the M-step

    @abstractmethod
    def maximise(self, assignment: Assignment) -> Iterator[str]:
        """Improve the parameters in place; yield the name of each half-step after it."""

    def parameters(self) -> tuple[FloatArray, ...]:
        """Return the arrays whose change shows that a step had an effect."""
        return ()

    # -------------------------------------------------------------- the objective

    @abstractmethod
    def objective(self, labels: IntArray) -> float:
        """Return the objective at temperature zero, from its definition."""

    def point_weight(self) -> FloatArray | None:
        """Return the product of sample and alpha weights, (n,), None for ones."""
        if self.alpha_weight is None or self.sample_weight is None:
            return self.sample_weight if self.alpha_weight is None else self.alpha_weight
        return self.alpha_weight * self.sample_weight

    # -------------------------------------------------------------- annealing

    def response(self) -> Callable[[FloatArray], FloatArray]:
        """Return the response of the costs to a change of the shares, for coinciding clusters.

        To first order: minus the change of a cluster's costs by its shares (n,), over the clusters.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot treat clusters that coincide")

    def push_apart(self, share: float, rng: np.random.Generator) -> None:
        """Move each cluster by a share of the way to a random point, so that none coincide."""
        raise NotImplementedError(f"{type(self).__name__} cannot treat clusters that coincide")


@dataclass(frozen=True)
class Coupling:
    """Coupling of points by pairs.

    ``rows`` are the points in ``terms``, which refer to them by their place in ``rows``. ``terms``
    stays the same object while unchanged, to reuse graphs. ``sample_weight`` is (c,) or None,
    ``alpha_weight`` the factor of these points in the free energy.
    """

    rows: IntArray
    terms: Sequence[DiagonalTerms]
    sample_weight: FloatArray | None = None
    alpha_weight: float = 1.0
