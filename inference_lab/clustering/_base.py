"""What all clusterers share: reading data and constraints, predicting, and scikit-learn's rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
)
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from inference_lab.clustering._soft import SoftFit
from inference_lab.clustering.distortions import Distortion, Points, as_distortion, is_sparse
from inference_lab.clustering.em import HalfStep
from inference_lab.clustering.hmrf import Violations, violations
from inference_lab.constraints import Constraints
from inference_lab.graph.arrays import FloatArray, IntArray

__all__ = ["ConstrainedClusterer"]


def read_constraints(
    n_points: int,
    must_link: npt.ArrayLike | None,
    cannot_link: npt.ArrayLike | None,
    ml_weight: npt.ArrayLike,
    cl_weight: npt.ArrayLike,
    sample_ids: npt.ArrayLike | None = None,
) -> Constraints:
    """Turn the arguments of ``fit`` into constraints over rows.

    Raises
    ------
    ValueError, TypeError
        What `Constraints` refuses, and repeated `sample_ids`.
    """
    if sample_ids is not None:
        must_link, ml_weight = _by_ids(sample_ids, must_link, ml_weight, n_points, "must_link")
        cannot_link, cl_weight = _by_ids(
            sample_ids, cannot_link, cl_weight, n_points, "cannot_link"
        )
    constraints = Constraints(must_link, cannot_link, ml_weight, cl_weight, n_points=n_points)
    return constraints


def read_partial(partial_labels: npt.ArrayLike | None, n_points: int, n_clusters: int) -> IntArray:
    """Read labels of some points, -1 for all others.

    Raises
    ------
    ValueError, TypeError
        If there is not one integer between -1 and ``n_clusters - 1`` for each point.
    """
    if partial_labels is None:
        return np.full(n_points, -1, dtype=np.int64)
    known = np.asarray(partial_labels)
    if known.shape != (n_points,):
        raise ValueError(f"partial_labels must have shape ({n_points},), got {known.shape}")
    if known.dtype.kind not in "iu":
        raise TypeError(f"partial_labels must hold integers, got dtype {known.dtype}")
    wrong = np.flatnonzero((known < -1) | (known >= n_clusters))
    if wrong.size:
        raise ValueError(
            f"partial_labels[{wrong[0]}] = {known[wrong[0]]}; allowed are clusters 0 to "
            f"{n_clusters - 1}, and -1 for points that are not labelled"
        )
    return known.astype(np.int64)


def _by_ids(
    sample_ids: npt.ArrayLike,
    pairs: npt.ArrayLike | None,
    weight: npt.ArrayLike,
    n_points: int,
    name: str,
) -> tuple[npt.ArrayLike | None, npt.ArrayLike]:
    """Translate pairs of ids into pairs of rows, without those of ids that no row has."""
    ids = np.asarray(sample_ids)
    if ids.shape != (n_points,):
        raise ValueError(f"sample_ids must have shape ({n_points},), got {ids.shape}")
    order = np.argsort(ids, kind="stable")
    repeated = np.flatnonzero(ids[order[1:]] == ids[order[:-1]])
    if repeated.size:
        raise ValueError(f"sample_ids names {ids[order[repeated[0]]]!r} twice; ids are unique")
    if pairs is None or len(np.asarray(pairs)) == 0:
        return None, weight
    given = np.asarray(pairs)
    if given.ndim != 2 or given.shape[1] != 2:
        raise ValueError(f"{name} must have shape (p, 2), got {given.shape}")
    if len(given) == n_points:
        raise ValueError(
            f"{name} has as many pairs as there are samples ({n_points}), so cross-validation "
            "cannot tell it from a column of the data and may have cut it; repeat a pair to make "
            "the numbers differ"
        )
    place = np.searchsorted(ids, given, sorter=order)
    place = order[np.minimum(place, n_points - 1)]
    present = (ids[place] == given).all(axis=1)
    weights = np.asarray(weight, dtype=np.float64)
    return place[present], weights[present] if weights.ndim else weight


class ConstrainedClusterer(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]  # scikit-learn ships no types
    TransformerMixin,  # type: ignore[misc]
    ClusterMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Base of the estimators with centroids.

    Attributes
    ----------
    labels_ : (n,) int array
        Cluster of each point.
    cluster_centers_ : (k, d) array
    objective_ : float
        What the algorithm minimises, at the labels and centroids returned.
    n_iter_ : int
    history_ : list of HalfStep
        The objective after each half-step of the best start.
    violations_ : Violations
        Constraints that the labels violate.
    converged_ : bool
    """

    labels_: IntArray
    cluster_centers_: FloatArray
    objective_: float
    n_iter_: int
    history_: list[HalfStep]
    violations_: Violations
    converged_: bool
    n_clusters: int
    random_state: Any
    #: One metric, or one for each cluster; set by `fit`.
    metrics_: Sequence[Distortion]
    #: Where costs are worked out from, so that nothing cancels; None for the origin.
    _origin: FloatArray | None = None

    def _centred(self, points: Points) -> Points:
        """Return the points around their mean where that changes nothing but rounding."""
        distortion = self._distortion()
        if not distortion.translation_invariant or is_sparse(points):
            self._origin = None
            return points
        self._origin = points.mean(axis=0)
        return points - self._origin

    def _distortion(self) -> Distortion:
        """Return the distortion that the settings name."""
        return as_distortion(getattr(self, "distortion", "euclidean"))

    def _takes_sparse(self, distortion: Distortion) -> bool:
        return distortion.accepts_sparse

    def _read_points(self, X: Any, *, reset: bool) -> Points:
        """Validate the data as scikit-learn does, and prepare it for the distortion."""
        distortion = self._distortion()
        points = validate_data(
            self,
            X,
            reset=reset,
            accept_sparse="csr" if self._takes_sparse(distortion) else False,
            dtype=np.float64,
        )
        if is_sparse(points):
            from scipy.sparse import csr_array

            points = csr_array(points)
        distortion.check(points)
        return distortion.prepare(points)

    def _check_settings(self, n_points: int) -> None:
        """Check the settings that all clusterers have."""
        for name, smallest in (("n_clusters", 1), ("n_init", 1), ("max_iter", 1)):
            if not hasattr(self, name):
                continue
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
                raise TypeError(f"{name} must be an integer, got {value!r}")
            if value < smallest:
                raise ValueError(f"{name} must be at least {smallest}, got {value}")
        if self.n_clusters > n_points:
            raise ValueError(
                f"n_samples={n_points} should be >= n_clusters={self.n_clusters}: there cannot be "
                "more clusters than points"
            )
        tol = getattr(self, "tol", 0.0)
        if not (math.isfinite(tol) and tol >= 0):
            raise ValueError(f"tol must be finite and not negative, got {tol}")

    def _generator(self) -> np.random.Generator:
        """Return a generator seeded by ``random_state`` in scikit-learn's sense."""
        state = self.random_state
        if isinstance(state, np.random.Generator):
            return state
        if state is None or isinstance(state, np.random.RandomState):
            return np.random.default_rng(check_random_state(state).randint(2**31))
        return np.random.default_rng(state)

    def _best_of(self, fit_once: Callable[[np.random.Generator], Any]) -> Any:
        """Return the fit of least objective over ``n_init`` starts."""
        best: Any = None
        for child in self._generator().spawn(getattr(self, "n_init", 1)):
            found = fit_once(child)
            if best is None or found.objective < best.objective:
                best = found
        return best

    def _note(self, result: Any) -> None:
        """Set the attributes that say how a fit went."""
        self.objective_ = result.objective
        self.n_iter_ = result.n_iter
        self.history_ = result.history
        self.converged_ = result.converged

    def _take(self, best: SoftFit[Any], constraints: Constraints) -> None:
        """Set the attributes that soft clusterers share."""
        result = best.result
        shares = best.shares
        if shares is None:
            labels = result.assignment
            soft = labels.ndim == 2
            shares = np.asarray(labels if soft else np.eye(self.n_clusters)[labels])
        self.responsibilities_ = shares
        self.labels_ = best.labels
        self._note(result)
        self._count_violations(constraints)

    def _count_violations(self, constraints: Constraints) -> None:
        self.violations_ = violations(constraints, self.labels_)

    def predict(self, X: Any) -> IntArray:
        """Return the cheapest cluster of each point on its own, constraints left aside.

        Parameters
        ----------
        X : (n, d) array-like or CSR matrix

        Returns
        -------
        (n,) int array
        """
        costs = self.transform(X)
        return np.asarray(costs.argmin(axis=1), dtype=np.int64)

    def transform(self, X: Any) -> FloatArray:
        """Return the cost of each point in each cluster, under the metric learnt.

        Returns
        -------
        (n, k) float64 array
            Less the ``log det`` of each cluster's metric where clusters have their own.
        """
        check_is_fitted(self)
        return self._costs(self._read_points(X, reset=False))

    def _costs(self, points: Points) -> FloatArray:
        centroids = self.cluster_centers_
        if self._origin is not None:
            points, centroids = points - self._origin, centroids - self._origin
        if len(self.metrics_) == 1:
            return self.metrics_[0].distances(points, centroids)
        d = points.shape[1]
        columns = [
            m.distances(points, centroids[h : h + 1])[:, 0] - m.log_det(d)
            for h, m in enumerate(self.metrics_)
        ]
        return np.stack(columns, axis=1)

    def score(self, X: Any, y: Any = None) -> float:
        """Return minus the summed cost of the points in their cheapest clusters."""
        return -float(self.transform(X).min(axis=1).sum())

    @property
    def _n_features_out(self) -> int:
        return int(self.cluster_centers_.shape[0])

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn what data is taken."""
        tags = super().__sklearn_tags__()
        try:
            distortion = self._distortion()
        except (TypeError, ValueError):
            return tags
        tags.input_tags.sparse = self._takes_sparse(distortion)
        tags.input_tags.positive_only = distortion.positive_only
        return tags
