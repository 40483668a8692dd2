"""Correlation clustering: clusters from weighted pairs alone, their number left open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from inference_lab.algorithms.multicut.bounds import packing_bound
from inference_lab.algorithms.multicut.local_search import annealed, can_anneal, first_partition
from inference_lab.algorithms.multicut.signed_graph import signed_graph
from inference_lab.clustering.hmrf import Violations, violations
from inference_lab.clustering.supervision import read_side, refuse_hard, take_frame
from inference_lab.constraints import Constraints
from inference_lab.graph.arrays import IntArray
from inference_lab.specs.settings import check_settings, setting


@dataclass(eq=False, repr=False, kw_only=True)
class CorrelationClustering(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Clusters that violate pairs of the least total weight (Bansal, Blum, Chawla 2004).

    Only the pairs count: a must-link votes for a common cluster with its weight, a cannot-link
    against it. The number of clusters follows from the pairs. For weights from a classifier, take
    its log-odds that two points belong together: must-links of weight ``log(p / (1 - p))`` where
    p > 1/2, and cannot-links of minus that elsewhere.

    Parameters
    ----------
    max_clusters : int, optional
        Most clusters.
    anneals : int
        Number of anneals after a greedy start; up to about 5,600 points.
    random_state : int, Generator or RandomState, optional

    Attributes
    ----------
    labels_ : (n,) int64 array
        Clusters from 0 in the order of their first points. A point without pairs is a cluster of
        its own, if `max_clusters` allows.
    n_clusters_ : int
    objective_ : float
        Total weight of the violated pairs.
    lower_bound_ : float
        No partition violates less weight.
    violations_ : Violations
        Numbers of violated pairs, and their weight.
    constraints_ : Constraints

    Notes
    -----
    **Guarantees.** `lower_bound_` is a packing of triangles, up to rounding. No move of a point and
    no join of two clusters violates less weight. For a closer bound, or a proof, give the problem
    ``clique-partitioning`` to a solver.

    **Complexity.** See `inference_lab.solvers.multicut.Multicut`.

    References
    ----------
    N. Bansal, A. Blum, S. Chawla, "Correlation clustering", Machine Learning 56, 2004.

    Examples
    --------
    >>> must, cannot = [(0, 1), (1, 2), (3, 4)], [(0, 2), (2, 3)]
    >>> model = CorrelationClustering(random_state=0)
    >>> model = model.fit([[0.0]] * 5, must_link=must, cannot_link=cannot, ml_weight=2.0)
    >>> model.labels_.tolist(), model.objective_, round(model.lower_bound_, 9)
    ([0, 0, 0, 1, 1], 1.0, 1.0)
    """

    max_clusters: int | None = setting(None, at_least=1)
    anneals: int = setting(16, at_least=0)
    random_state: Any = None

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        must_link: npt.ArrayLike | None = None,
        cannot_link: npt.ArrayLike | None = None,
        pairs: Any = None,
        ml_weight: npt.ArrayLike | None = None,
        cl_weight: npt.ArrayLike | None = None,
        sample_ids: npt.ArrayLike | None = None,
    ) -> Self:
        """Partition the points.

        Parameters
        ----------
        X : (n, d) array-like or sparse
            Only the number of rows counts.
        y : ignored
        must_link, cannot_link, pairs, sample_ids
            As in `PCKMeans.fit`.
        ml_weight, cl_weight : float or (p,) and (q,) arrays, optional
            Finite and non-negative; 1 by default.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            If pairs or settings cannot be used.

        Examples
        --------
        >>> CorrelationClustering().fit([[0.0]] * 3, must_link=[(0, 2)]).labels_.tolist()
        [0, 1, 0]
        """
        check_settings(self)
        given = take_frame(
            {
                "must_link": must_link,
                "cannot_link": cannot_link,
                "pairs": pairs,
                "ml_weight": ml_weight,
                "cl_weight": cl_weight,
                "sample_ids": sample_ids,
            },
            X,
        )
        for name in ("ml_weight", "cl_weight"):
            given[name] = 1.0 if given[name] is None else given[name]
        n = validate_data(self, X, accept_sparse="csr").shape[0]
        constraints = read_side(n, None, **given).constraints
        refuse_hard(constraints)
        self._partition(constraints, n)
        return self

    def __sklearn_tags__(self) -> Any:
        """Allow sparse data."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _partition(self, constraints: Constraints, n: int) -> None:
        """Set all attributes."""
        edges = np.concatenate([constraints.must_link, constraints.cannot_link])
        gains = np.concatenate([constraints.ml_weights, -constraints.cl_weights])
        g = signed_graph(n, edges, gains)
        most = n if self.max_clusters is None else min(n, self.max_clusters)
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        found = [first_partition(g, most)]
        if can_anneal(g, most):
            found += [annealed(g, most, a, rng)[0] for a in range(1, self.anneals + 1)]
        self.labels_ = in_order(max(found, key=g.value))
        self.n_clusters_ = int(self.labels_.max(initial=-1)) + 1
        self.constraints_ = constraints
        self.violations_: Violations = violations(constraints, self.labels_)
        self.objective_ = self.violations_.weight
        bound = float(constraints.ml_weights.sum()) - packing_bound(g)
        self.lower_bound_ = min(self.objective_, max(0.0, bound))


def in_order(labels: IntArray) -> IntArray:
    """Return the same partition with clusters from 0 in the order of their first points."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse].astype(np.int64)
