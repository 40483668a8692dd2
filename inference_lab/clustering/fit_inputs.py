"""Input of a fit: validated points and supervision, and the way back from the fit to all rows."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, cast

import numpy as np
from scipy.sparse import csr_array, issparse
from sklearn.utils.validation import validate_data

from inference_lab.clustering.pair_odds import log_odds
from inference_lab.clustering.pair_reliability import judged
from inference_lab.clustering.pair_warnings import PairWeightWarning, watch_faults
from inference_lab.clustering.supervision import Supervision, refuse_pairs, supervision_of
from inference_lab.constraints import Constraints, SampleIds
from inference_lab.constraints.constraints import selected
from inference_lab.distortions.distortions import Distortion
from inference_lab.distortions.points import Points
from inference_lab.formatting import warn
from inference_lab.graph.arrays import FloatArray, IntArray
from inference_lab.specs.settings import check_settings

#: Largest absolute value of points; squared distances then stay below 1e100, the limit of costs.
LARGEST_VALUE = 1e48
#: Least size of the largest value of points that are not all zero. Below, squared distances lose
#: digits, and from 1e-162 on all of them are zero.
SMALLEST_VALUE = 1e-145

#: A weight of each pair or of all, by the name of the argument.
Weights = Mapping[str, float | FloatArray]


Method = TypeVar("Method", bound=Callable[..., Any])


def takes(arguments: Any) -> Callable[[Method], Method]:
    """Give a ``fit`` with ``**keywords`` the signature that lists them, all None by default.

    scikit-learn and `help` read the signature; type checkers read the annotation of the keywords.
    """

    def with_signature(method: Method) -> Method:
        @functools.wraps(method)
        def checked(self: Any, *data: Any, **keywords: Any) -> Any:
            unknown = [name for name in keywords if name not in signature.parameters]
            if unknown:
                raise TypeError(
                    f"{type(self).__name__}.fit() got an unexpected keyword argument {unknown[0]!r}"
                )
            return method(self, *data, **keywords)

        *first, _ = inspect.signature(method).parameters.values()
        named = [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint.__forward_arg__
            )
            for name, hint in inspect.get_annotations(arguments).items()
        ]
        signature = inspect.signature(method).replace(parameters=[*first, *named])
        checked.__signature__ = signature  # type: ignore[attr-defined]
        return cast(Method, checked)

    return with_signature


def read_fit(
    estimator: Any,
    X: Any,
    y: Any,
    arguments: Mapping[str, Any],
    distortion: Distortion,
    *,
    centred: bool = True,
    default_weight: float | Literal["auto"] = 1.0,
    labels_in_y: bool = True,
    any_label: bool = False,
    few_points: bool = False,
) -> FitInputs:
    """Validate settings, data and supervision of a fit, and drop the points of weight zero.

    Points are centred where that changes no cost. Without `labels_in_y`, `y` is ignored.
    `any_label` accepts labels of ``n_clusters`` and above, `few_points` fewer points than clusters.
    The format of the points is stored for `predict`.
    """
    check_settings(estimator)
    # A certificate belongs to the last fit only.
    vars(estimator).pop("certificate_", None)
    format_ = PointFormat(distortion, distortion.accepts_sparse and not estimator._dense)
    points, dtype = format_.read(estimator, X, reset=True)
    refuse_pairs(y, X, estimator)
    supervision = supervision_of(
        # Frames name their rows; other data may have no length before they are read.
        X if hasattr(X, "iloc") else points,
        {**arguments, "y": y if labels_in_y else None},
        n_clusters=None if any_label else estimator.n_clusters,
        default_weight=default_weight,
        allow_auto=True,
    )
    watch_faults(supervision.constraints, supervision.n_repeated)
    names = arguments.get("sample_ids")
    estimator._in_fold = isinstance(names, SampleIds) and names.size < names.everyone.size
    rows = np.flatnonzero(supervision.sample_weight_or_ones > 0)
    fit_points = points
    if rows.size < points.shape[0]:
        fit_points, supervision = points[rows], supervision.only(rows)
    if centred and distortion.translation_invariant and not issparse(points):
        weight = supervision.sample_weight_or_ones
        format_ = replace(format_, origin=weight @ fit_points / weight.sum())
    if not few_points and estimator.n_clusters > rows.size:
        raise ValueError(
            f"n_samples={rows.size} should be >= n_clusters={estimator.n_clusters}: there cannot "
            "be more clusters than points"
        )
    estimator._format = format_
    kind = type(estimator).__name__
    fit_points = format_.centred(fit_points)
    supervision = with_reliability(estimator, fit_points, supervision, estimator.n_clusters)
    return FitInputs(fit_points, supervision, format_, dtype, rows, points, kind)


def with_reliability(
    estimator: Any, points: Points, supervision: Supervision, n_clusters: int | str
) -> Supervision:
    """Replace confidences and groups of pairs by weights, and set ``pair_reliability_``."""
    vars(estimator).pop("pair_reliability_", None)
    supervision, table = judged(points, supervision, n_clusters)
    if table is not None:
        estimator.pair_reliability_ = table
    return supervision


@dataclass(frozen=True)
class PointFormat:
    """How an estimator reads points, in a fit and later.

    ``origin`` (d,) is subtracted before costs are computed, to avoid cancellation; None is zero.
    """

    distortion: Distortion
    sparse: bool
    origin: FloatArray | None = None

    def read(self, estimator: Any, X: Any, *, reset: bool) -> tuple[Points, np.dtype[Any]]:
        """Validate the data as scikit-learn does, and prepare it for the distortion.

        Points are in double precision; the returned type is the type of X, float32 or float64.
        """
        if not self.sparse:
            refuse_sparse(X, estimator)
        points = validate_data(
            estimator,
            X,
            reset=reset,
            accept_sparse="csr" if self.sparse else False,
            dtype=[np.float64, np.float32],
        )
        dtype = points.dtype
        points = points.astype(np.float64, copy=False)
        if issparse(points):
            points = csr_array(points)
        refuse_sizes(points)
        self.distortion.check(points)
        return self.distortion.prepare(points), dtype

    def centred(self, points: Any) -> Any:
        """Return the points minus the origin."""
        return points if self.origin is None else points - self.origin

    def moved_back(self, centroids: FloatArray) -> FloatArray:
        """Return centroids in the coordinates of the data."""
        return centroids if self.origin is None else centroids + self.origin


def refuse_sparse(X: Any, estimator: Any) -> None:
    """Refuse sparse data, and name the estimators that take them."""
    if issparse(X):
        raise TypeError(
            f"X is sparse, and {type(estimator).__name__} needs dense data. HMRFKMeans, PCKMeans "
            "and SphericalKMeans take sparse data; TruncatedSVD(100) of scikit-learn before this "
            "estimator, in a pipeline, reduces a TF-IDF matrix to 100 dense columns"
        )


def refuse_sizes(points: Points) -> None:
    """Refuse values whose squared distances would overflow, or vanish."""
    largest = max(abs(float(points.max())), abs(float(points.min()))) if min(points.shape) else 0.0
    if largest > LARGEST_VALUE:
        raise ValueError(
            f"X holds a value of size {largest:g}; values up to {LARGEST_VALUE:g} are allowed, so "
            "that costs stay numbers: scale the data"
        )
    if 0.0 < largest < SMALLEST_VALUE:
        raise ValueError(
            f"X holds values up to {largest:g} in size, whose squares vanish in double precision; "
            f"the largest must be at least {SMALLEST_VALUE:g}: scale the data"
        )


@dataclass(frozen=True)
class FitInputs:
    """Points of positive weight with their supervision; other points are labelled after the fit.

    ``points`` (m, d) are prepared and centred, ``rows`` (m,) their numbers among all points.
    ``all_points`` (n, d) are prepared. ``dtype`` is the type of the data, ``estimator`` the name of
    its class.
    """

    points: Points
    supervision: Supervision
    format: PointFormat
    dtype: np.dtype[Any]
    rows: IntArray
    all_points: Points
    estimator: str

    def weighed(
        self, weights: Callable[[Points, Supervision], Weights] | None = None
    ) -> Supervision:
        """Return the supervision with the weights that a function computes in place of "auto".

        Without one, weights are no log-probabilities, and "auto" is refused.
        """
        supervision = self.supervision
        if not supervision.auto or not len(supervision.constraints):
            return supervision
        if weights is None:
            raise ValueError(
                f"{self.estimator} has no scale for ml_weight='auto' and cl_weight='auto': its "
                "weights are not log-probabilities; give numbers"
            )
        all_weights = weights(self.points, supervision)
        auto_weights = {name: all_weights[name] for name in supervision.auto}
        if supervision.constraints.is_relative:
            for name in auto_weights:
                multiple = getattr(supervision.constraints, f"{name}s")
                auto_weights[name] = auto_weights[name] * multiple
        _watch_nothing(supervision.constraints, auto_weights)
        return replace(
            supervision, constraints=supervision.constraints.with_weights(**auto_weights)
        )

    def centred_init(self, init: Any) -> Any:
        """Return given initial centroids in the coordinates of the points; names stay."""
        origin = self.format.origin
        if isinstance(init, str) or origin is None:
            return init
        centroids = np.asarray(init, dtype=np.float64)
        # `initial_centroids` raises the error for a wrong shape.
        return centroids - origin if centroids.shape[-1:] == origin.shape else centroids

    def centres(self, centroids: FloatArray) -> FloatArray:
        """Return centroids in the coordinates and the type of the data."""
        return self.format.moved_back(centroids).astype(self.dtype, copy=False)

    def labels_of_all(self, labels: IntArray, costs: Callable[[Points], FloatArray]) -> IntArray:
        """Return the labels of all points; points of weight zero are in their cheapest cluster."""
        if self.is_whole:
            return labels
        result = np.empty(self.all_points.shape[0], dtype=np.int64)
        result[self.rows] = labels
        result[self._others] = costs(self.all_points[self._others]).argmin(axis=1)
        return result

    def shares_of_all(
        self,
        shares: FloatArray,
        costs: Callable[[Points], FloatArray],
        temperature: float = 1.0,
    ) -> FloatArray:
        """Return the shares of all points; points of weight zero have the softmax of costs."""
        from scipy.special import softmax

        if self.is_whole:
            return shares
        result = np.empty((self.all_points.shape[0], shares.shape[1]))
        result[self.rows] = shares
        result[self._others] = softmax(-costs(self.all_points[self._others]) / temperature, axis=1)
        return result

    def constraints_of_all(self, constraints: Constraints) -> Constraints:
        """Return constraints of the points as constraints of all points."""
        if self.is_whole:
            return constraints
        return selected(constraints, place=self.rows, n_points=self.all_points.shape[0])

    @property
    def is_whole(self) -> bool:
        """Whether all points have positive weight."""
        return bool(self.rows.size == self.all_points.shape[0])

    @property
    def _others(self) -> IntArray:
        return np.setdiff1d(np.arange(self.all_points.shape[0]), self.rows)


def _watch_nothing(constraints: Constraints, weights: Weights) -> None:
    """Warn if "auto" gives pairs no weight."""
    pairs = {"ml_weight": constraints.must_link, "cl_weight": constraints.cannot_link}
    idle = [name for name, weight in weights.items() if len(pairs[name]) and not np.any(weight)]
    if idle:
        why = (
            "as many pairs contradict others as agree with them"
            if log_odds(constraints) == 0.0
            else "points do not differ within clusters, or PCKMeans violates all of them"
        )
        warn(
            f"{' and '.join(idle)} = 'auto' is 0, since {why}: these pairs do not count; give "
            "numbers",
            PairWeightWarning,
        )


def check_word(name: str, value: str, allowed: Collection[str]) -> None:
    """Refuse a value that is not among the allowed words."""
    if value not in allowed:
        *first, last = allowed
        words = f"{', '.join(first)} or {last}" if first else last
        raise ValueError(f"{name} must be {words}, got {value!r}")
