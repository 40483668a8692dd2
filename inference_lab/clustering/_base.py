"""Base of all clusterers: reading data and constraints, predicting, scikit-learn's rules."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
from joblib import Parallel, delayed
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
)
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from inference_lab.clustering.distortions import (
    Distortion,
    Points,
    SquaredEuclidean,
    as_distortion,
    is_sparse,
)
from inference_lab.clustering.em import EStepSolver, Fit, HalfStep, maximise_expectation
from inference_lab.clustering.hmrf import HMRF, Violations, share_kept, violations
from inference_lab.clustering.initialisation import initial_centroids
from inference_lab.clustering.pair_weights import log_odds, watch_faults, watch_nothing
from inference_lab.clustering.supervision import (
    Supervision,
    has_pairs,
    read_supervision,
    refuse_pairs,
    take_frame,
)
from inference_lab.constraints import Constraints, SampleIds
from inference_lab.constraints.constraints import selected
from inference_lab.constraints.pair_arrays import Pairs
from inference_lab.formatting import warn
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.specs.settings import Range, check_settings, setting

#: Metadata of a field that holds a positive number, as `setting` makes them.
AT_LEAST_ONE = {"range": Range(at_least=1)}

#: Relative differences of objectives up to this size count as rounding.
_ROUNDING = 1e-10
#: Arguments that define the pairs.
_PAIRS = ("must_link", "cannot_link", "pairs", "sample_ids")
#: The same with weights, as arguments of ``fit``.
PAIR_ARGUMENTS = (*_PAIRS, "ml_weight", "cl_weight")

#: Largest absolute value of points; squared distances then stay below 1e100, the limit of costs.
LARGEST_VALUE = 1e48
#: Least size of the largest value of points that are not all zero. Below, squared distances lose
#: digits, and from 1e-162 on all of them are zero.
SMALLEST_VALUE = 1e-145


def check_word(name: str, value: str, allowed: Collection[str]) -> None:
    """Refuse a value that is not among the allowed words."""
    if value not in allowed:
        *first, last = allowed
        words = f"{', '.join(first)} or {last}" if first else last
        raise ValueError(f"{name} must be {words}, got {value!r}")


def refuse_sizes(points: Points) -> None:
    """Refuse values whose squared distances would overflow, or vanish."""
    most = max(abs(float(points.max())), abs(float(points.min()))) if min(points.shape) else 0.0
    if most > LARGEST_VALUE:
        raise ValueError(
            f"X holds a value of size {most:g}; values up to {LARGEST_VALUE:g} are allowed, so "
            "that costs stay numbers: scale the data"
        )
    if 0.0 < most < SMALLEST_VALUE:
        raise ValueError(
            f"X holds values up to {most:g} in size, whose squares vanish in double precision; the "
            f"largest must be at least {SMALLEST_VALUE:g}: scale the data"
        )


@dataclass(eq=False, repr=False, kw_only=True)
class SharedSettings:
    """Settings of the estimators with several starts."""

    n_clusters: int = field(default=3, kw_only=False, metadata=AT_LEAST_ONE)
    n_init: int = setting(1, at_least=1)
    n_jobs: int | None = None
    max_iter: int = setting(100, at_least=1)
    random_state: Any = None


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


class ConstrainedClusterer(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    LabellingMixin,
    BaseEstimator,  # type: ignore[misc]
):
    """Base of the estimators with centroids; `HMRFKMeans` documents their attributes."""

    labels_: IntArray
    cluster_centers_: FloatArray
    inertia_: float
    objective_: float
    n_iter_: int
    history_: list[HalfStep]
    converged_: bool
    responsibilities_: FloatArray
    n_clusters: int
    init: Any
    max_iter: int
    tol: float
    random_state: Any
    #: The distortion with the metric learnt; set by `fit`.
    metric_: Distortion
    #: Default weight of pairs in `fit`.
    _default_weight: ClassVar[float | Literal["auto"]] = 1.0
    #: Origin of the coordinates in which costs are computed, to avoid cancellation; None for zero.
    _origin: FloatArray | None = None

    def _fit_to(self, X: Any, **given: Any) -> Self:
        """Fit to the points of positive weight, and label the others by the fitted model."""
        self._check_settings()
        # A certificate belongs to the last fit only.
        self.__dict__.pop("certificate_", None)
        points, dtype = self._read_points(X, reset=True)
        n = points.shape[0]
        given = take_frame(given, X)
        for name in ("ml_weight", "cl_weight"):
            if given.get(name, 1.0) is None:
                given[name] = self._default_weight
        by_auto = [name for name in ("ml_weight", "cl_weight") if isinstance(given.get(name), str)]
        for name in by_auto:
            check_word(name, given[name], ("auto",))
            given[name] = 1.0
        supervision = read_supervision(n, self._label_limit(), **given)
        watch_faults(supervision.constraints, supervision.n_repeated)
        names = given.get("sample_ids")
        self._in_fold = isinstance(names, SampleIds) and names.size < names.everyone.size
        held = np.flatnonzero(supervision.sample_weight_or_ones > 0)
        if held.size < n:
            some = self._only(points, held)
            supervision = supervision.only(held)
        else:
            some = points
        some = self._centred(some, supervision.sample_weight_or_ones)
        self._check_number(some.shape[0])
        if by_auto and len(supervision.constraints):
            weights = self._auto_weights(some, supervision)
            chosen = {name: weights[name] for name in by_auto}
            watch_nothing(supervision.constraints, chosen)
            supervision = replace(
                supervision, constraints=supervision.constraints.with_weights(**chosen)
            )
        self._fit(some, supervision)
        if hasattr(self, "cluster_centers_"):
            self.cluster_centers_ = self.cluster_centers_.astype(dtype, copy=False)
        if hasattr(self, "metric_"):
            self.inertia_ = self._inertia(some, supervision.sample_weight_or_ones)
        if held.size < n:
            self._label_others(points, held)
        return self

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """Return the settings, and the gap of a certificate as a comment."""
        shown = str(super().__repr__(N_CHAR_MAX))
        certificate = getattr(self, "certificate_", None)
        return shown if certificate is None else f"{shown}  # gap {certificate.gap:.2%}"

    @abstractmethod
    def _fit(self, points: Points, supervision: Supervision) -> None:
        """Fit, and set all attributes."""

    def _auto_weights(
        self, points: Points, supervision: Supervision
    ) -> Mapping[str, float | FloatArray]:
        """Return the ``ml_weight`` and ``cl_weight`` of "auto", log-odds in the unit of costs."""
        odds = log_odds(supervision.constraints)
        return {
            name: odds * unit for name, unit in self._weight_of_odds(points, supervision).items()
        }

    def _weight_of_odds(self, points: Points, supervision: Supervision) -> dict[str, float]:
        """Return the ``ml_weight`` and ``cl_weight`` that equal a unit of log-probability."""
        raise ValueError(
            f"{type(self).__name__} has no scale for ml_weight='auto' and cl_weight='auto': its "
            "weights are not log-probabilities; give numbers"
        )

    def _label_limit(self) -> int | None:
        """Return the number of clusters that labels can name, None if unlimited."""
        return self.n_clusters

    def _only(self, points: Points, rows: IntArray) -> Points:
        """Return some of the points."""
        return points[rows]

    def _label_others(self, points: Points, held: IntArray) -> None:
        """Extend the attributes set by a fit to the rows `held` to all rows."""
        n = points.shape[0]
        left = np.setdiff1d(np.arange(n), held)
        costs = self._costs(points[left])
        labels = np.empty(n, dtype=np.int64)
        labels[held], labels[left] = self.labels_, costs.argmin(axis=1)
        self.labels_ = labels
        if hasattr(self, "responsibilities_"):
            from scipy.special import softmax

            temperature = np.append(1.0, getattr(self, "temperatures_", ()))[-1]
            shares = np.empty((n, costs.shape[1]))
            shares[held] = self.responsibilities_
            shares[left] = softmax(-costs / temperature, axis=1)
            self.responsibilities_ = shares

    def _centred(self, points: Points, sample_weight: FloatArray) -> Points:
        """Return the points minus their mean if the distortion is translation invariant."""
        distortion = self._distortion()
        if not distortion.translation_invariant or is_sparse(points):
            self._origin = None
            return points
        self._origin = sample_weight @ points / sample_weight.sum()
        return points - self._origin

    def _start(
        self,
        points: Points,
        supervision: Supervision,
        rng: np.random.Generator,
        distortion: Distortion | None = None,
        init: Any = None,
    ) -> FloatArray:
        """Return the initial centroids for `init`, by default the setting."""
        init = self.init if init is None else init
        if not isinstance(init, str) and self._origin is not None:
            given = np.asarray(init, dtype=np.float64)
            # `initial_centroids` raises the error for a wrong shape.
            init = given - self._origin if given.shape[-1:] == self._origin.shape else given
        return initial_centroids(
            points,
            supervision.constraints,
            self.n_clusters,
            distortion or self._distortion(),
            init,
            rng,
            known=supervision.known,
            sample_weight=supervision.sample_weight,
        )

    def _moved_back(self, centroids: FloatArray) -> FloatArray:
        """Return centroids in the coordinates of the data."""
        return centroids if self._origin is None else centroids + self._origin

    def _distortion(self) -> Distortion:
        """Return the distortion that the settings name."""
        return as_distortion(getattr(self, "distortion", "euclidean"))

    def _takes_sparse(self, distortion: Distortion) -> bool:
        return distortion.accepts_sparse

    def _read_points(self, X: Any, *, reset: bool) -> tuple[Points, np.dtype[Any]]:
        """Validate the data as scikit-learn does, and prepare it for the distortion.

        Points are in double precision; the returned type is the type of X, float32 or float64.
        """
        distortion = self._distortion()
        points = validate_data(
            self,
            X,
            reset=reset,
            accept_sparse="csr" if self._takes_sparse(distortion) else False,
            dtype=[np.float64, np.float32],
        )
        dtype = points.dtype
        points = points.astype(np.float64, copy=False)
        if is_sparse(points):
            from scipy.sparse import csr_array

            points = csr_array(points)
        refuse_sizes(points)
        distortion.check(points)
        return distortion.prepare(points), dtype

    def _check_settings(self) -> None:
        """Check the settings that can be checked without the data."""
        check_settings(self)

    def _check_number(self, n_points: int) -> None:
        """Check that there are at least as many points as clusters."""
        if self.n_clusters > n_points:
            raise ValueError(
                f"n_samples={n_points} should be >= n_clusters={self.n_clusters}: there cannot be "
                "more clusters than points"
            )

    def _generator(self) -> np.random.Generator:
        """Return a generator seeded by ``random_state`` in scikit-learn's sense."""
        state = self.random_state
        if isinstance(state, np.random.Generator):
            return state
        if state is None or isinstance(state, np.random.RandomState):
            return np.random.default_rng(check_random_state(state).randint(2**31))
        return np.random.default_rng(state)

    def _best_of(
        self,
        fit_once: Callable[..., Any],
        rng: np.random.Generator | None = None,
        inits: Sequence[Any] | None = None,
    ) -> Any:
        """Return the fit of least objective over ``n_init`` starts, or one for each of `inits`.

        `fit_once` is called with a generator, and with the element of `inits`, if there are any.
        """
        count = getattr(self, "n_init", 1) if inits is None else len(inits)
        starts = (rng or self._generator()).spawn(count)
        given = zip(starts) if inits is None else zip(starts, inits, strict=True)
        # Results are compared as they arrive, so that only one besides the best is in memory.
        shared = Parallel(n_jobs=getattr(self, "n_jobs", None), return_as="generator")
        fits = shared(delayed(fit_once)(*each) for each in given)
        best = next(fits)
        for fit in fits:
            # Among fits that differ only by rounding the first is kept, whatever the order of sums.
            # Among infinite objectives the fit that violates fewer hard pairs is kept.
            same = math.isclose(fit.objective, best.objective, rel_tol=_ROUNDING)
            fewer = getattr(fit, "unmet", 0) < getattr(best, "unmet", 0)
            better = fewer if same else fit.objective < best.objective
            if better:
                best = fit
        return best

    def _note(self, result: Any) -> None:
        """Set the attributes that describe the progress of a fit."""
        self.objective_ = result.objective
        self.n_iter_ = result.n_iter
        self.history_ = result.history
        self.converged_ = result.converged

    def _alternate(self, model: HMRF, e_step: EStepSolver) -> Fit[HMRF]:
        """Run the driver with the limits of the settings."""
        return Fit(model, maximise_expectation(model, e_step, max_iter=self.max_iter, tol=self.tol))

    def _take_hard(self, best: Fit[HMRF]) -> None:
        """Set the attributes that hard clusterers share."""
        self.labels_ = best.labels
        self.cluster_centers_ = self._moved_back(best.model.centroids)
        self.metric_ = best.model.metric
        self._note(best.result)

    def predict(self, X: Any) -> IntArray:
        """Return the cheapest cluster of each point on its own, without constraints.

        Parameters
        ----------
        X : (n, d) array-like or CSR matrix

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
        return np.asarray(self._costs_of(X).argmin(axis=1), dtype=np.int64)

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
        points, dtype = self._read_points(X, reset=False)
        return self._transformed(points).astype(dtype, copy=False)

    def _transformed(self, points: Points) -> FloatArray:
        """Return the result of `transform` for validated points; costs if there is no metric."""
        if not hasattr(self, "metric_"):
            return self._costs(points)
        points, centroids = self._around_origin(points)
        metric = self.metric_
        if not isinstance(metric, SquaredEuclidean):
            return metric.distances(points, centroids)
        # Differences are used, because inner products cancel if a point lies on a centroid.
        first = np.zeros(points.shape[0], np.int64)
        columns = [metric.own(points, centroid[np.newaxis], first) for centroid in centroids]
        return np.sqrt(np.maximum(np.stack(columns, axis=1), 0.0))

    def _costs_of(self, X: Any) -> FloatArray:
        """Return the cost of each point of the data in each cluster."""
        check_is_fitted(self)
        return self._costs(self._read_points(X, reset=False)[0])

    def _costs(self, points: Points) -> FloatArray:
        """Return the cost of each validated point in each cluster."""
        return self.metric_.distances(*self._around_origin(points))

    def _around_origin(self, points: Points) -> tuple[Points, FloatArray]:
        """Return validated points and centroids, both relative to the origin of the costs."""
        centroids = np.asarray(self.cluster_centers_, dtype=np.float64)
        if self._origin is None:
            return points, centroids
        return points - self._origin, centroids - self._origin

    def _inertia(self, points: Points, sample_weight: FloatArray) -> float:
        """Return the summed distortion of points, relative to the origin, to closest centroids."""
        centroids = self._around_origin(points)[1]
        # This avoids the (n, k) array of all distortions.
        closest = self.metric_.nearest(points, centroids, None)
        return float(sample_weight @ self.metric_.own(points, centroids, closest))

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
        return int(self.cluster_centers_.shape[0])

    def __sklearn_tags__(self) -> Any:
        """Return the tags of the data that scikit-learn may pass."""
        tags = super().__sklearn_tags__()
        try:
            distortion = self._distortion()
        except (TypeError, ValueError):
            return tags
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.input_tags.sparse = self._takes_sparse(distortion)
        tags.input_tags.positive_only = distortion.positive_only
        return tags


class PairwiseClusterer(ConstrainedClusterer):
    """Base of the estimators that are fitted to pairs; `HMRFKMeans` documents their attributes."""

    constraints_: Constraints
    violations_: Violations
    #: Whether pairs with rows of other folds were left out of the fit.
    _in_fold = False
    # With scikit-learn's metadata routing, searches then pass pairs on without a request.
    __metadata_request__fit: ClassVar = dict.fromkeys(PAIR_ARGUMENTS, True)
    # Pipelines pass `sample_weight` to ``score`` by name even where it is None.
    __metadata_request__score: ClassVar = dict.fromkeys(_PAIRS, True) | {"sample_weight": None}

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        must_link: Pairs | None = None,
        cannot_link: Pairs | None = None,
        pairs: Any = None,
        ml_weight: npt.ArrayLike | Literal["auto"] | None = None,
        cl_weight: npt.ArrayLike | Literal["auto"] | None = None,
        sample_ids: npt.ArrayLike | None = None,
        partial_labels: npt.ArrayLike | None = None,
        sample_weight: npt.ArrayLike | None = None,
    ) -> Self:
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
        ml_weight, cl_weight : float or (p,) and (q,) arrays, or "auto", optional
            Non-negative; ``inf`` makes a pair hard, if the estimator supports that. "auto" is the
            log-odds that a pair is right, on the scale of the costs. The share of wrong pairs is
            estimated from the checked pairs that others outvote (one in ten, if none is checked).
            The default is "auto" for `HMRFKMeans`, its special cases, mixtures, and the annealed
            estimators. `LCVQE`, `CVQE` and `MetricKMeans` have their own "auto": pairs that
            `PCKMeans` violates are left out. For others the default is 1, and "auto" is refused.
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
        refuse_pairs(y, X, self)
        return self._fit_to(
            X,
            y=y,
            must_link=must_link,
            cannot_link=cannot_link,
            pairs=pairs,
            ml_weight=ml_weight,
            cl_weight=cl_weight,
            sample_ids=sample_ids,
            partial_labels=partial_labels,
            sample_weight=sample_weight,
        )

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
            given = {
                "must_link": must_link,
                "cannot_link": cannot_link,
                "pairs": pairs,
                "sample_ids": sample_ids,
            }
            supervision = read_supervision(labels.size, None, **take_frame(given, X))
            return share_kept(supervision.constraints, labels)
        if self._in_fold:
            warn(
                "score was given no pairs and returns minus the cost, which falls with every "
                "further cluster. To choose settings by pairs that the fit has not seen, take "
                "ConstrainedClusterCV, or let scikit-learn pass them on by "
                "sklearn.set_config(enable_metadata_routing=True)",
            )
        return self._score_without_pairs(X)

    def _score_without_pairs(self, X: Any) -> float:
        """Return minus the summed cost of the points in their cheapest clusters."""
        return ConstrainedClusterer.score(self, X)

    def _judge(self, constraints: Constraints) -> None:
        """Store the constraints used, and count the violated ones."""
        self.constraints_ = constraints
        self.violations_ = violations(constraints, self.labels_)

    def _label_others(self, points: Points, held: IntArray) -> None:
        super()._label_others(points, held)
        self.constraints_ = selected(self.constraints_, place=held, n_points=points.shape[0])
