"""Weights of points, labels of some of them, and the pairs of a fold, in all estimators."""

import inspect
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from clusterers import KINDS, PAIRED, estimator_of
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import inference_lab.clustering as clustering
from inference_lab.clustering import (
    CVQE,
    LCVQE,
    BregmanKMeans,
    ConstrainedGaussianMixture,
    ConstrainedKMeans,
    COPKMeans,
    DPMeans,
    HMRFKMeans,
    KernelHMRFKMeans,
    MPCKMeans,
    PCKMeans,
    RDPMeans,
    SeededKMeans,
    TVClust,
)
from inference_lab.constraints import Constraints, SampleIds

RNG = np.random.default_rng(3)
TRUTH = np.repeat([0, 1, 2], 8)
POINTS = RNG.normal(size=(24, 2)) + 4.0 * np.array([[0, 0], [1, 0], [0, 1]])[TRUTH] + 20.0
COUNTS = RNG.integers(1, 4, size=24)
START = POINTS[[0, 9, 17]] + 0.3
PAIRS = Constraints([[0, 1], [8, 9], [1, 4]], [[0, 9], [2, 17], [10, 20]], 2.0, 3.0, n_points=24)

#: Estimators that accept partial labels.
WEIGHTED = [k for k in KINDS if "sample_weight" in inspect.signature(k.fit).parameters]
LABELLED = [k for k in KINDS if "partial_labels" in inspect.signature(k.fit).parameters]
#: Estimators that can hold copies of a point together by must-links of infinite weight.
LINKED = {
    "hmrf": HMRFKMeans(3, e_step="ilp", init=START),
    "diagonal": MPCKMeans(3, e_step="ilp", init=START),
    "full": MPCKMeans(3, metric="full", e_step="ilp", init=START),
    "cosine": HMRFKMeans(3, distortion="cosine", metric="gradient", e_step="ilp", init=START),
    "i-divergence": HMRFKMeans(
        3, distortion="i-divergence", metric="gradient", e_step="ilp", init=START
    ),
    "cop": COPKMeans(3, order="given", init=START),
    "mixture": ConstrainedGaussianMixture(3, e_step="junction-tree", init=START),
    "chunklets": ConstrainedGaussianMixture(
        3, prior="chunklets", e_step="junction-tree", covariance_type="tied", init=START
    ),
    "alpha": ConstrainedGaussianMixture(
        3, alpha=0.3, alpha_mode="mean", e_step="junction-tree", covariance_type="diag", init=START
    ),
}
#: Estimators that need no links without pairs.
ALONE = {
    "bregman": BregmanKMeans(3, distortion="i-divergence", init=START),
    "kernel": KernelHMRFKMeans(3, kernel="linear", local_search=False),
    "lcvqe": LCVQE(3, init=START),
    "cvqe": CVQE(3, init=START),
    "tvclust": TVClust(5, random_state=0),
}


def repeated() -> tuple[np.ndarray, dict[str, Any], np.ndarray]:
    """Return the points repeated by their weights, with the implied pairs, and their rows."""
    rows = np.repeat(np.arange(24), COUNTS)
    first = np.searchsorted(rows, np.arange(24))
    copies = [
        (first[i], first[i] + c) for i in PAIRS.touches(np.arange(24)) for c in range(1, COUNTS[i])
    ]
    supervision = {
        "must_link": [*first[PAIRS.must_link].tolist(), *copies],
        "cannot_link": first[PAIRS.cannot_link],
        "ml_weight": [2.0] * len(PAIRS.must_link) + [np.inf] * len(copies),
        "cl_weight": 3.0,
    }
    return POINTS[rows], supervision, rows


# In two features the cosine soon reaches its limit on the weight of one feature.
@pytest.mark.filterwarnings("ignore::inference_lab.clustering.DegenerateMetricWarning")
@pytest.mark.parametrize("name", [*LINKED, *ALONE])
def test_integer_weights_equal_repeated_points(name: str) -> None:
    points, supervision, rows = repeated()
    mine: dict[str, Any] = PAIRS.fit_params()
    one = clone(LINKED[name] if name in LINKED else ALONE[name])
    if name in ALONE:
        mine, supervision = {}, {}
    two = clone(one)
    if isinstance(one, KernelHMRFKMeans):
        one.set_params(init=TRUTH)
        two.set_params(init=TRUTH[rows])
    one.fit(POINTS, sample_weight=COUNTS, **mine)
    two.fit(points, **supervision)
    np.testing.assert_array_equal(two.labels_, one.labels_[rows])
    assert two.objective_ == pytest.approx(one.objective_, rel=1e-6)
    np.testing.assert_allclose(two.transform(POINTS), one.transform(POINTS), rtol=1e-4, atol=1e-8)


def test_clusters_open_for_all_copies_of_a_point_at_once():
    plain = DPMeans(cluster_cost=40.0, start="mean", order="sequential")
    model = clone(plain).fit(POINTS, sample_weight=COUNTS)
    point_costs = ((POINTS - model.cluster_centers_[model.labels_]) ** 2).sum(axis=1)
    assert model.objective_ == pytest.approx(COUNTS @ point_costs + 40.0 * model.n_clusters_)
    for h in range(model.n_clusters_):
        members = model.labels_ == h
        mean = COUNTS[members] @ POINTS[members] / COUNTS[members].sum()
        np.testing.assert_allclose(model.cluster_centers_[h], mean)
    assert plain.fit(POINTS).n_clusters_ < model.n_clusters_


@pytest.mark.parametrize("kind", WEIGHTED, ids=lambda k: k.__name__)
def test_a_point_of_no_weight_is_left_out_and_labelled(kind: Any) -> None:
    estimator = estimator_of(kind)
    rows = np.flatnonzero(np.arange(24) % 5 != 2)
    weights = (np.arange(24) % 5 != 2).astype(float)
    supervision, arguments = {}, {}
    if kind in PAIRED:
        supervision = PAIRS.fit_params()
        arguments = PAIRS.restrict(rows, renumber=True).fit_params()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", clustering.ConstraintsNotMetWarning)
        one = clone(estimator).fit(POINTS, sample_weight=weights, **supervision)
        two = clone(estimator).fit(POINTS[rows], **arguments)
    np.testing.assert_array_equal(one.labels_[rows], two.labels_)
    assert one.objective_ == pytest.approx(two.objective_)
    np.testing.assert_array_equal(one.labels_[weights == 0], two.predict(POINTS[weights == 0]))
    if supervision:
        assert set(one.constraints_.must_link.ravel()) <= set(rows)
        assert one.violations_ == two.violations_
    if hasattr(one, "responsibilities_"):
        np.testing.assert_allclose(one.responsibilities_.sum(axis=1), 1.0)


def test_precomputed_similarities_to_points_of_no_weight_are_left_out():
    weights = (np.arange(24) % 5 != 2).astype(float)
    matrix = POINTS @ POINTS.T
    one = KernelHMRFKMeans(3, kernel="precomputed", random_state=0)
    two = KernelHMRFKMeans(3, kernel="linear", random_state=0)
    one.fit(matrix, sample_weight=weights), two.fit(POINTS, sample_weight=weights)
    np.testing.assert_array_equal(one.labels_, two.labels_)
    np.testing.assert_array_equal(one.predict(matrix), two.predict(POINTS))


@pytest.mark.parametrize("kind", PAIRED, ids=lambda k: k.__name__)
def test_pairs_may_name_samples_and_fits_repeat(kind: Any) -> None:
    by_row = estimator_of(kind).fit(POINTS, **PAIRS.fit_params())
    by_name = estimator_of(kind).fit(
        POINTS, **PAIRS.fit_params(sample_ids=np.arange(24)[::-1] + 1000)
    )
    np.testing.assert_array_equal(by_row.labels_, by_name.labels_)
    assert by_row.objective_ == by_name.objective_


@pytest.mark.parametrize("kind", PAIRED, ids=lambda k: k.__name__)
def test_labels_that_are_known_are_kept_beside_pairs(kind: Any) -> None:
    estimator = estimator_of(kind)
    partial_labels = np.full(24, -1)
    partial_labels[[0, 5]], partial_labels[[8, 13]], partial_labels[16] = 2, 0, 1
    # One of them in a place that it would not have without the label.
    partial_labels[20] = 0
    estimator.fit(POINTS, partial_labels=partial_labels, **PAIRS.fit_params())
    np.testing.assert_array_equal(
        estimator.labels_[partial_labels >= 0], partial_labels[partial_labels >= 0]
    )


@pytest.mark.parametrize("kind", LABELLED, ids=lambda k: k.__name__)
def test_a_y_with_points_marked_unlabelled_is_partial_labels(kind: Any) -> None:
    estimator = estimator_of(kind)
    # Without labels, a fit would match the numbering of at most one of the two shifts.
    for shift in (1, 2):
        partial_labels = np.where(np.arange(24) % 3 == 0, (TRUTH + shift) % 3, -1)
        by_name = clone(estimator).fit(POINTS, partial_labels=partial_labels)
        by_y = clone(estimator).fit(POINTS, partial_labels.tolist())
        np.testing.assert_array_equal(by_y.labels_, by_name.labels_)
        np.testing.assert_array_equal(
            by_y.labels_[partial_labels >= 0], partial_labels[partial_labels >= 0]
        )
        np.testing.assert_array_equal(
            clone(estimator).fit_predict(POINTS, partial_labels), by_y.labels_
        )


@pytest.mark.parametrize("kind", LABELLED, ids=lambda k: k.__name__)
def test_true_classes_as_y_are_allowed_beside_partial_labels(kind: Any) -> None:
    estimator = estimator_of(kind)
    partial_labels = np.where(np.arange(24) % 3 == 0, TRUTH, -1)
    one = clone(estimator).fit(POINTS, partial_labels=partial_labels)
    for classes in (TRUTH, TRUTH + 7, TRUTH.astype(float), np.array(["a", "b", "c"])[TRUTH]):
        two = clone(estimator).fit(POINTS, classes, partial_labels=partial_labels)
        np.testing.assert_array_equal(one.labels_, two.labels_)
    with pytest.raises(ValueError, match="y and partial_labels both hold labels"):
        clone(estimator).fit(POINTS, partial_labels, partial_labels=partial_labels)


@pytest.mark.parametrize("kind", [SeededKMeans, ConstrainedKMeans, PCKMeans])
def test_a_y_whose_labels_are_no_clusters_is_refused_by_its_name(kind: Any) -> None:
    partial_labels = np.where(np.arange(24) % 3 == 0, TRUTH, -1)
    with pytest.raises(ValueError, match=r"y\[18\] = 2 is not a cluster; 0 to .* = 1"):
        kind(2).fit(POINTS, partial_labels)
    with pytest.raises(TypeError, match=r"y\[1\] = -0.5 is not an integer; numbers of clusters"):
        kind(3).fit(POINTS, np.where(np.arange(24) == 1, -0.5, partial_labels))


@pytest.mark.parametrize("kind", [SeededKMeans, ConstrainedKMeans, PCKMeans])
def test_labels_of_some_points_may_be_floats_and_missing(kind: Any) -> None:
    partial_labels = np.where(np.arange(24) % 3 == 0, TRUTH, -1)
    expected = kind(3, random_state=0).fit(POINTS, partial_labels).labels_
    absent = np.where(partial_labels < 0, np.nan, partial_labels)
    columns = [pd.Series(absent), pd.Series(absent).astype("Int64"), absent.tolist()]
    for column in (partial_labels.astype(float), *columns):
        assert (kind(3, random_state=0).fit(POINTS, column).labels_ == expected).all()
        model = kind(3, random_state=0).fit(POINTS, partial_labels=column)
        assert (model.labels_ == expected).all()


def test_searches_cut_a_y_with_points_marked_unlabelled() -> None:
    names = (TRUTH + 1) % 3
    model = make_pipeline(StandardScaler(), ConstrainedKMeans(3, random_state=0))
    predictions = cross_val_predict(
        model, POINTS, np.where(np.arange(24) % 2 == 0, names, -1), cv=KFold(4)
    )
    assert (predictions == names).mean() > 0.9
    supervision = {"constrainedkmeans__partial_labels": np.where(np.arange(24) % 2 == 0, names, -1)}
    np.testing.assert_array_equal(
        cross_val_predict(model, POINTS, cv=KFold(4), params=supervision), predictions
    )


@pytest.mark.parametrize("solver", ["icm", "ilp"])
def test_open_clusters_keep_labels_with_any_e_step(solver: str) -> None:
    partial_labels = np.full(24, -1)
    partial_labels[[0, 20]], partial_labels[8] = 0, 1
    model = RDPMeans(cluster_cost=40.0, xi=1.0, e_step=solver, random_state=0)
    model.fit(POINTS, partial_labels=partial_labels, **PAIRS.fit_params())
    np.testing.assert_array_equal(
        model.labels_[partial_labels >= 0], partial_labels[partial_labels >= 0]
    )


def test_labels_that_contradict_pairs_are_reported():
    partial_labels = np.full(24, -1)
    partial_labels[[0, 4]] = [0, 1]
    with pytest.warns(
        clustering.ConstraintsNotMetWarning, match="no cluster is open to all of the points 0"
    ):
        COPKMeans(3).fit(POINTS, must_link=[(0, 4)], partial_labels=partial_labels)
    partial_labels[[0, 4]] = 1
    with pytest.warns(
        clustering.ConstraintsNotMetWarning, match="points 0 and 4 can be in cluster 1 only"
    ):
        COPKMeans(3).fit(POINTS, cannot_link=[(0, 4)], partial_labels=partial_labels)


# ------------------------------------------------------------------ folds


def test_pairs_of_rows_are_refused_where_a_fold_has_other_rows():
    search = GridSearchCV(PCKMeans(3), {"max_iter": [1, 2]}, cv=3)
    # Each pair refers by number to rows that every fold has.
    with pytest.raises(ValueError, match="name the rows by sample_ids"):
        search.fit(POINTS, must_link=[(0, 1)])
    with pytest.raises(ValueError, match="name the rows by sample_ids"):
        model = make_pipeline(StandardScaler(), PCKMeans(3))
        cross_val_predict(model, POINTS, params={"pckmeans__must_link": [(0, 1)]})
    # The default score ignores pairs, which searches over the number of clusters should use.
    with pytest.warns(UserWarning, match="enable_metadata_routing=True"):
        search.fit(POINTS, must_link=[(0, 1)], sample_ids=SampleIds(np.arange(24)))
    assert search.best_estimator_.labels_.size == 24


def test_pairs_of_rows_are_taken_where_rows_keep_their_numbers():
    rows = np.arange(24)
    search = GridSearchCV(PCKMeans(3), {"max_iter": [1, 2]}, cv=[(rows, rows)])
    assert search.fit(POINTS, must_link=[(0, 1)]).best_score_ < 0
    no_pairs = GridSearchCV(PCKMeans(3), {"max_iter": [1]}, cv=3)
    no_pairs.fit(POINTS, must_link=np.empty((0, 2), dtype=int), cannot_link=[])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_y_holds_labels_where_fit_takes_labels_only(kind: Any) -> None:
    """Elsewhere it is ignored, as by scikit-learn, also where it marks points without a label."""
    y = np.where(np.arange(24) % 5 == 0, 2 - TRUTH, -1)
    labels = estimator_of(kind, min_size=1).fit(POINTS, y).labels_
    if "partial_labels" in inspect.signature(kind.fit).parameters:
        expected = estimator_of(kind).fit(POINTS, partial_labels=y).labels_
    else:
        expected = estimator_of(kind).fit(POINTS).labels_
        # Values that are no clusters are no error there.
        assert (estimator_of(kind).fit(POINTS, 100 * y).labels_ == expected).all()
    assert labels.tolist() == expected.tolist()
