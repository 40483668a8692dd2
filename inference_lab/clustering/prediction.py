"""What fitted estimators share: attributes set after a fit, and predictions for new points."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Self, Unpack

import numpy as np
import numpy.typing as npt
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
)
from sklearn.utils.validation import check_is_fitted

from inference_lab.clustering.em import HalfStep, Result
from inference_lab.clustering.fit_inputs import FitInputs, PointFormat, takes
from inference_lab.clustering.large_data import batches
from inference_lab.clustering.quadratic_costs import QuadraticCosts, metric_costs
from inference_lab.clustering.supervision import (
    PAIR_ARGUMENTS,
    FitArguments,
    has_pairs,
    refuse_pairs,
    supervision_of,
)
from inference_lab.clustering.violations import Violations, share_kept, violations
from inference_lab.constraints import Constraints
from inference_lab.constraints.pair_arrays import Pairs
from inference_lab.distortions.distortions import Distortion, as_distortion
from inference_lab.distortions.points import Points
from inference_lab.formatting import warn
from inference_lab.graph.arrays import FloatArray, IntArray

#: Arguments of ``score`` that give pairs.
_SCORED = ("must_link", "cannot_link", "pairs", "sample_ids")


class LabellingMixin(ClusterMixin):  # type: ignore[misc]  # scikit-learn ships no types
    """``fit_predict`` of estimators whose second argument counts."""

    def fit_predict(self, X: Any, y: Any = None, **fit_params: Any) -> IntArray:
        """Cluster the points and return their labels.

        Parameters
        ----------
        X, y, **fit_params
            See `fit`.

        Returns
        -------
        (n,) int64 array
            ``labels_``.

        Raises
        ------
        ValueError, TypeError
            See `fit`.

        Examples
        --------
        >>> from inference_lab.clustering import SeededKMeans
        >>> SeededKMeans(2).fit_predict([[0.0], [1.0], [5.0], [6.0]], [1, -1, -1, 0]).tolist()
        [1, 1, 0, 0]
        """
        # scikit-learn's method ignores y, which may hold labels of some points.
        labels: IntArray = self.fit(X, y, **fit_params).labels_
        return labels


class CostPredictor(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    LabellingMixin,
    BaseEstimator,  # type: ignore[misc]
):
    """Predictions of an estimator whose clusters have costs; `HMRFKMeans` has the attributes."""

    labels_: IntArray
    objective_: float
    n_iter_: int
    history_: list[HalfStep]
    converged_: bool
    n_clusters: int
    #: Squared distances, unless a setting names another.
    distortion: str | Distortion = "euclidean"
    #: Whether sparse data are refused under every distortion.
    _dense: ClassVar[bool] = False
    #: How points are read; set by `read_fit`.
    _format: PointFormat
    #: Whether pairs with rows of other folds were left out of the fit; set by `read_fit`.
    _in_fold: bool = False

    @abstractmethod
    def _costs(self, points: Points) -> FloatArray:
        """Return the cost of each validated point in each cluster, shape (n, k)."""

    def _costs_of(self, X: Any) -> FloatArray:
        """Return the cost of each point of the data in each cluster."""
        check_is_fitted(self)
        return self._costs(self._format.read(self, X, reset=False)[0])

    def _set_progress(self, result: Result) -> None:
        """Set the attributes that describe the progress of a fit."""
        self.objective_ = result.objective
        self.n_iter_ = result.n_iter
        self.history_ = result.history
        self.converged_ = result.converged

    def predict(self, X: Any) -> IntArray:
        """Return the cheapest cluster of each point on its own, without constraints.

        Parameters
        ----------
        X : (n, d) array-like or CSR matrix
            Large data are read in batches of rows, so that no copy is made of a `numpy.memmap` or
            of a Dask array or frame.

        Returns
        -------
        (n,) int64 array

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError, TypeError
            If the data cannot be used, or have other features than the data of the fit.

        Examples
        --------
        >>> from inference_lab.clustering import HMRFKMeans
        >>> model = HMRFKMeans(2, random_state=0).fit([[0.0], [1.0], [8.0], [9.0]])
        >>> near, far = model.predict([[0.4], [8.4]])
        >>> bool(near == model.labels_[0]), bool(far == model.labels_[3])
        (True, True)
        """
        labels = [self._costs_of(batch).argmin(axis=1) for batch in batches(X)]
        return np.concatenate(labels).astype(np.int64, copy=False)

    def transform(self, X: Any) -> FloatArray:
        """Return the cost of each point in each cluster, without constraints.

        Parameters
        ----------
        X : (n, d) array-like or CSR matrix

        Returns
        -------
        (n, k) array of float64, or of float32 if X is

        Raises
        ------
        NotFittedError, ValueError, TypeError
            See `predict`.

        Examples
        --------
        >>> from inference_lab.clustering import ConstrainedGaussianMixture
        >>> model = ConstrainedGaussianMixture(2, random_state=0).fit([[0.0], [1.0], [5.0], [6.0]])
        >>> model.transform([[3.0]]).shape
        (1, 2)
        """
        check_is_fitted(self)
        points, dtype = self._format.read(self, X, reset=False)
        return self._costs(points).astype(dtype, copy=False)

    def score(self, X: Any, y: Any = None) -> float:
        """Return minus the summed cost of the points in their cheapest clusters.

        Parameters
        ----------
        X : (n, d) array-like or CSR matrix
        y : ignored

        Returns
        -------
        float

        Raises
        ------
        NotFittedError, ValueError, TypeError
            See `predict`.

        Examples
        --------
        >>> from inference_lab.clustering import HMRFKMeans
        >>> model = HMRFKMeans(2, random_state=0).fit([[0.0], [1.0], [8.0], [9.0]])
        >>> model.score([[0.5], [9.5]])
        -1.0
        """
        refuse_pairs(y, X, self, "score")
        return -float(self._costs_of(X).min(axis=1).sum())

    @property
    def _n_features_out(self) -> int:
        return self.n_clusters

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """Return the settings, and the gap of a certificate as a comment."""
        shown = str(super().__repr__(N_CHAR_MAX))
        certificate = vars(self).get("certificate_")
        return shown if certificate is None else f"{shown}  # gap {certificate.gap:.2%}"

    def __sklearn_tags__(self) -> Any:
        """Return the tags of the data that scikit-learn may pass."""
        tags = super().__sklearn_tags__()
        try:
            distortion = as_distortion(self.distortion)
        except (TypeError, ValueError):
            return tags
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.input_tags.sparse = distortion.accepts_sparse and not self._dense
        tags.input_tags.positive_only = distortion.positive_only
        return tags


class CentroidPredictor(CostPredictor):
    """Predictions of an estimator with centroids: the cost of a point is its distortion."""

    cluster_centers_: FloatArray
    inertia_: float
    #: The distortion with the metric learnt.
    metric_: Distortion

    def _set_centroids(self, inputs: FitInputs, centroids: FloatArray, metric: Distortion) -> None:
        """Set the centroids in the coordinates of the data, the metric, and the inertia."""
        self.cluster_centers_ = inputs.centres(centroids)
        self.metric_ = metric
        points, centroids = inputs.points, self._centred_centroids()
        # This avoids the (n, k) array of all distortions.
        closest = metric.nearest(points, centroids, None)
        weight = inputs.supervision.sample_weight_or_ones
        self.inertia_ = float(weight @ metric.own(points, centroids, closest))

    def _centred_centroids(self) -> FloatArray:
        """Return the centroids relative to the origin of the costs."""
        centroids = np.asarray(self.cluster_centers_, dtype=np.float64)
        return np.asarray(self._format.centred(centroids))

    def _costs(self, points: Points) -> FloatArray:
        centred = self._format.centred(points)
        return self.metric_.distances(centred, self._centred_centroids())

    def _quadratic_costs(self) -> QuadraticCosts:
        """Return the parameters of `predict`; refuse distortions that are not quadratic."""
        squared = self.metric_.squared
        if squared is None:
            raise TypeError(
                f"{type(self).__name__} with {type(self.metric_).__name__} has no quadratic costs"
            )
        return metric_costs(np.asarray(self.cluster_centers_, dtype=np.float64), squared.metric)

    def transform(self, X: Any) -> FloatArray:
        """Return the distance of each point to each centroid, under the metric learnt.

        Parameters
        ----------
        X : (n, d) array-like or CSR matrix

        Returns
        -------
        (n, k) array of float64, or of float32 if X is
            Euclidean distances, as in `sklearn.cluster.KMeans`, or values of another distortion.

        Raises
        ------
        NotFittedError, ValueError, TypeError
            See `predict`.

        Examples
        --------
        >>> from inference_lab.clustering import HMRFKMeans
        >>> model = HMRFKMeans(2, random_state=0).fit([[0.0], [1.0], [8.0], [9.0]], [0, 0, 1, 1])
        >>> sorted(model.transform([[0.5]])[0].tolist())
        [0.0, 8.0]
        """
        check_is_fitted(self)
        points, dtype = self._format.read(self, X, reset=False)
        points, centroids = self._format.centred(points), self._centred_centroids()
        return self.metric_.transformed(points, centroids).astype(dtype, copy=False)

    @property
    def _n_features_out(self) -> int:
        return int(self.cluster_centers_.shape[0])


class PairScore(CostPredictor):
    """Scores by pairs, and the attributes that describe the pairs of a fit."""

    constraints_: Constraints
    violations_: Violations
    # With scikit-learn's metadata routing, searches then pass pairs on without a request.
    __metadata_request__fit: ClassVar = dict.fromkeys(PAIR_ARGUMENTS, True)
    # Pipelines pass `sample_weight` to ``score`` by name even where it is None.
    __metadata_request__score: ClassVar = dict.fromkeys(_SCORED, True) | {"sample_weight": None}

    @takes(FitArguments)
    @abstractmethod
    def fit(self, X: Any, y: Any = None, **arguments: Unpack[FitArguments]) -> Self:
        """Cluster the points.

        Parameters
        ----------
        X : (n, d) array-like, or sparse where the distortion allows
        y : (n,) array of int, optional
            As `partial_labels`, in the form of `sklearn.semi_supervised`. A `y` without any -1 or
            missing label is ignored, because pipelines and searches pass the true classes of all
            points for scoring. Pairs are refused here.
        must_link, cannot_link : (p, 2) and (q, 2) arrays or iterables of int, optional
            Pairs of rows that should, and should not, share a cluster, as in `Constraints`.
        pairs : pandas.DataFrame, optional
            Alternative to these: a row for each pair, see `Constraints.from_frame`. Names refer to
            the index of `X`, or to `sample_ids`; without either, they are row numbers.
            In place of weights, pairs may have a ``confidence``, the probability that they are
            right, and a ``group``, whose reliability is estimated: ``pair_reliability_``.
        ml_weight, cl_weight : float or (p,) and (q,) arrays, or "auto", optional
            Non-negative; ``inf`` makes a pair hard, if the estimator supports that. "auto" is the
            log-odds that a pair is right, on the scale of the costs. The share of wrong pairs is
            estimated from the checked pairs that others outvote (one in ten, if none is checked).
            The default is "auto" for `HMRFKMeans`, its special cases, `KernelHMRFKMeans`, mixtures,
            and the annealed estimators. `LCVQE`, `CVQE` and `MetricKMeans` have their own "auto":
            pairs that `PCKMeans` violates are left out. For others the default is 1, and "auto" is
            refused.
        sample_ids : (n,) array, optional
            Names of the rows; the pairs then consist of these names. In cross-validation, pass
            `SampleIds`: pairs with rows of other folds are left out. `pairs` need no names there.
        partial_labels : (n,) array of int, optional
            Known clusters, -1 or missing elsewhere. They stay fixed, and their means are initial
            centroids.
        sample_weight : (n,) array of float, optional
            Weight of each point. A weight of m equals m rows joined by hard must-links. A point of
            weight zero takes no part in the fit, and is labelled as by `predict`.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            If data, constraints or settings cannot be used.
        InfeasibleConstraintsError
            If constraints of infinite weight contradict each other. If no labelling that keeps
            them is found, and none is ruled out, a `ConstraintsNotMetWarning` reports the number
            of violations.

        Warns
        -----
        ContradictoryPairsWarning
            If cannot-links join points that must-links connect.
        RepeatedPairsWarning
            If pairs are listed more than once, which count once.

        Examples
        --------
        >>> from inference_lab.clustering import HMRFKMeans
        >>> points = [[0.0], [1.0], [8.0], [9.0]]
        >>> model = HMRFKMeans(2, random_state=0).fit(points, cannot_link=[(0, 1)], cl_weight=100.0)
        >>> bool(model.labels_[0] != model.labels_[1]), model.violations_.cannot_link
        (True, 0)
        """

    def _set_labels(self, inputs: FitInputs, labels: IntArray, constraints: Constraints) -> None:
        """Set the labels of all points, the constraints used, and the number of violated ones."""
        self.labels_ = inputs.labels_of_all(labels, self._costs)
        self.constraints_ = inputs.constraints_of_all(constraints)
        self.violations_ = violations(constraints, labels)

    def score(
        self,
        X: Any,
        y: Any = None,
        *,
        must_link: Pairs | None = None,
        cannot_link: Pairs | None = None,
        pairs: Any = None,
        sample_ids: npt.ArrayLike | None = None,
    ) -> float:
        """Return the share of the given pairs that predictions keep; without pairs, minus the cost.

        The cost falls with every further cluster, so searches over the number of clusters need
        pairs. With ``sklearn.set_config(enable_metadata_routing=True)`` they pass them.

        Parameters
        ----------
        X : (n, d) array-like or CSR matrix
        y : ignored
        must_link, cannot_link : (p, 2) and (q, 2) arrays, optional
            Pairs of rows that were not used in the fit.
        pairs, sample_ids
            As in ``fit``.

        Returns
        -------
        float
            The mean of the shares of kept must-links and cannot-links, or the share of one kind if
            the other is absent. Without pairs, minus the summed cost of the points in their
            cheapest clusters; for mixtures, their mean log-likelihood.

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError, TypeError
            If data or pairs cannot be used, or no pair is among these rows.

        Examples
        --------
        >>> from inference_lab.clustering import HMRFKMeans
        >>> model = HMRFKMeans(2, random_state=0).fit([[0.0], [1.0], [8.0], [9.0]])
        >>> model.score([[0.0], [2.0], [9.0]], must_link=[(0, 1)], cannot_link=[(0, 1), (0, 2)])
        0.75
        """
        refuse_pairs(y, X, self, "score")
        if has_pairs(must_link) or has_pairs(cannot_link) or has_pairs(pairs):
            labels = self.predict(X)
            arguments = {
                "must_link": must_link,
                "cannot_link": cannot_link,
                "pairs": pairs,
                "sample_ids": sample_ids,
            }
            return share_kept(supervision_of(X, arguments).constraints, labels)
        if self._in_fold:
            warn(
                "score was given no pairs and returns minus the cost, which falls with every "
                "further cluster. To choose settings by pairs that the fit has not seen, take "
                "ConstrainedClusterCV, or let scikit-learn pass them on by "
                "sklearn.set_config(enable_metadata_routing=True)",
            )
        return super().score(X)
