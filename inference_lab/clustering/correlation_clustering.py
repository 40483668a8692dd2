"""Correlation clustering: clusters from weighted pairs alone, their number left open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self, Unpack

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from inference_lab.algorithms.multicut.bounds import packing_bound
from inference_lab.algorithms.multicut.hard_edges import contracted, priced
from inference_lab.algorithms.multicut.local_search import annealed, can_anneal, first_partition
from inference_lab.clustering.fit_inputs import takes
from inference_lab.clustering.pair_warnings import watch_hard, watch_repeats
from inference_lab.clustering.prediction import LabellingMixin
from inference_lab.clustering.supervision import (
    PAIR_ARGUMENTS,
    PairArguments,
    names_in_pairs,
    refuse_pairs,
    supervision_of,
)
from inference_lab.clustering.violations import Violations, violations
from inference_lab.constraints import Constraints
from inference_lab.constraints.hard_pairs import contradiction, contradiction_within, infeasible
from inference_lab.graph.arrays import IntArray
from inference_lab.specs.settings import check_settings, setting


@dataclass(eq=False, repr=False, kw_only=True)
class CorrelationClustering(LabellingMixin, BaseEstimator):  # type: ignore[misc]
    """Clusters that violate pairs of the least total weight (Bansal, Blum, Chawla 2004).

    Only the pairs count: a must-link votes for a common cluster with its weight, a cannot-link
    against it. The number of clusters follows from the pairs. For weights from a classifier, take
    its log-odds that two points belong together: must-links of weight ``log(p / (1 - p))`` where
    p > 1/2, and cannot-links of minus that elsewhere. Pairs of weight ``inf`` hold in any case,
    such as cannot-links between the records of one source.

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
    sample_ids_ : (n,) array
        Names of the points, in the order of `labels_`; row numbers where they have no names.
    n_clusters_ : int
    objective_ : float
        Total weight of the violated pairs.
    lower_bound_ : float
        No partition that keeps all hard pairs violates less weight.
    violations_ : Violations
        Numbers of violated pairs, and their weight.
    constraints_ : Constraints

    Notes
    -----
    **Guarantees.** `lower_bound_` is a packing of triangles, up to rounding. No move of a point and
    no join of two clusters violates less weight. Hard must-links are contracted, so none is
    violated; neither is a hard cannot-link without `max_clusters`. For a closer bound, or a proof,
    give the problem ``clique-partitioning`` to a solver.

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

    A table of scored pairs is all that records need:

    >>> import pandas as pd
    >>> pairs = pd.DataFrame({"i": ["ann", "bob"], "j": ["anna", "ann"], "weight": [2.0, 3.0]})
    >>> pairs["kind"] = ["must-link", "cannot-link"]
    >>> model = CorrelationClustering(random_state=0).fit(None, pairs=pairs)
    >>> dict(zip(model.sample_ids_.tolist(), model.labels_.tolist()))
    {'ann': 0, 'anna': 0, 'bob': 1}
    """

    max_clusters: int | None = setting(None, at_least=1)
    anneals: int = setting(16, at_least=0)
    random_state: Any = None

    # With scikit-learn's metadata routing, pipelines then pass pairs on without a request.
    __metadata_request__fit: ClassVar = dict.fromkeys(PAIR_ARGUMENTS, True)

    @takes(PairArguments)
    def fit(self, X: Any = None, y: Any = None, **arguments: Unpack[PairArguments]) -> Self:
        """Partition the points.

        Parameters
        ----------
        X : (n, d) array-like or sparse, or None
            Only the number of rows and their index count. Without it, the points are `sample_ids`,
            or else all that the pairs name, in the order in which they occur.
        y : ignored
        must_link, cannot_link, pairs, sample_ids
            As in `PCKMeans.fit`.
        ml_weight, cl_weight : float or (p,) and (q,) arrays, optional
            Non-negative, 1 by default; ``inf`` makes a pair hard.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            If pairs or settings cannot be used.
        InfeasibleConstraintsError
            If hard pairs contradict each other.

        Warns
        -----
        ConstraintsNotMetWarning
            If no partition into `max_clusters` that keeps all hard pairs is found, and none is
            ruled out.
        RepeatedPairsWarning
            If pairs are listed more than once. Pairs that contradict each other are votes here.

        Examples
        --------
        >>> CorrelationClustering().fit([[0.0]] * 3, must_link=[(0, 2)]).labels_.tolist()
        [0, 1, 0]
        """
        check_settings(self)
        refuse_pairs(y, X, self)
        values: dict[str, Any] = dict.fromkeys(PAIR_ARGUMENTS) | dict(arguments)
        if X is None:
            values = names_in_pairs(values)
            n = len(values["sample_ids"])
        else:
            n = validate_data(self, X, accept_sparse="csr").shape[0]
        supervision = supervision_of(values["sample_ids"] if X is None else X, values)
        answers = supervision.constraints.answers
        if answers is not None and answers.group is not None:
            raise ValueError(
                "CorrelationClustering cannot judge groups of pairs, as it reads no data; leave "
                "out the column group"
            )
        watch_repeats(supervision.constraints, supervision.n_repeated)
        names = values["sample_ids"]
        if names is None and values["pairs"] is not None and hasattr(X, "iloc"):
            names = X.index
        self.sample_ids_ = np.arange(n) if names is None else np.asarray(names)
        self._partition(supervision.constraints, n)
        watch_hard(
            supervision.constraints,
            self.labels_,
            remedy="more clusters, or finite weights",
        )
        return self

    def __sklearn_tags__(self) -> Any:
        """Allow sparse data."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _partition(self, constraints: Constraints, n: int) -> None:
        """Set all attributes."""
        terms, names = constraints.terms(), self.sample_ids_
        reason = contradiction_within(terms, names)
        if self.max_clusters is not None and not reason:
            reason = contradiction(np.zeros((n, min(n, self.max_clusters))), terms, names)
        if reason:
            raise infeasible(reason)
        edges = np.concatenate([constraints.must_link, constraints.cannot_link])
        gains = np.concatenate([constraints.ml_weights, -constraints.cl_weights])
        units, unit = contracted(n, edges, gains)
        g = priced(units)
        limit = g.n if self.max_clusters is None else min(g.n, self.max_clusters)
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        partitions = [first_partition(g, limit)]
        if can_anneal(g, limit):
            partitions += [annealed(g, limit, a, rng)[0] for a in range(1, self.anneals + 1)]
        self.labels_ = in_order(max(partitions, key=g.value)[unit])
        self.n_clusters_ = int(self.labels_.max(initial=-1)) + 1
        self.constraints_ = constraints
        self.violations_: Violations = violations(constraints, self.labels_)
        self.objective_ = self.violations_.weight
        # Must-links between units count if these are apart, cannot-links within units always.
        inside = unit[edges[:, 0]] == unit[edges[:, 1]]
        lost = float(gains[~inside & (gains > 0.0)].sum() - gains[inside & (gains < 0.0)].sum())
        self.lower_bound_ = min(self.objective_, max(0.0, lost - packing_bound(units)))


def in_order(labels: IntArray) -> IntArray:
    """Return the same partition with clusters from 0 in the order of their first points."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse].astype(np.int64)
