"""Held-out pairs choose settings, and never reach the fit."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV, cross_val_score

from inference_lab.clustering import ConstraintCV, PCKMeans
from inference_lab.constraints import Constraints

POINTS, TRUTH = load_iris(return_X_y=True)
ROWS = np.arange(150)


@pytest.mark.parametrize("count", [20, 400])
def test_folds_part_the_constrained_points(count: int) -> None:
    pairs = Constraints.sample(TRUTH, count, np.random.default_rng(0))
    seen = []
    for train, test in ConstraintCV(pairs, 4).split(POINTS):
        np.testing.assert_array_equal(np.sort(np.r_[train, test]), ROWS)
        seen.append(test)
    np.testing.assert_array_equal(np.sort(np.concatenate(seen)), pairs.touches(ROWS))
    sizes = [len(test) for test in seen]
    assert max(sizes) - min(sizes) <= 6
    if count == 20:
        # If pairs connect few points, all pairs are used.
        assert sum(len(pairs.restrict(test)) for test in seen) == 20


def test_the_score_is_the_mean_share_of_either_kind() -> None:
    class Known:
        def predict(self, X):
            return np.array([0, 0, 0, 1])

    pairs = Constraints([[10, 11], [10, 13]], [[11, 12], [12, 13], [11, 13]], n_points=150)
    cv = ConstraintCV(pairs)
    assert cv.score(Known(), POINTS[10:14], [10, 11, 12, 13]) == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert cv.score(Known(), POINTS[:4], [11, 12, 13, 14]) == 0.0


def test_no_fit_sees_a_pair_that_judges_it() -> None:
    pairs = Constraints.sample(TRUTH, 60, np.random.default_rng(1))
    cv = ConstraintCV(pairs, 3)
    supervision = []

    class Watched(PCKMeans):
        def fit(self, X, y=None, **given):
            supervision.append((len(X), PCKMeans.fit(self, X, **given).constraints_))
            return self

    cross_val_score(
        Watched(3, random_state=0),
        POINTS,
        ROWS,
        cv=cv,
        scoring=cv.score,
        params=pairs.fit_params(sample_ids=ROWS) | {"ml_weight": 1.0, "cl_weight": 1.0},
    )
    for (n, seen), (train, test) in zip(supervision, cv.split(POINTS), strict=True):
        assert n == len(train)
        assert seen == pairs.restrict(train, renumber=True)
        assert len(seen) + len(pairs.restrict(test)) <= 60


def test_invalid_folds_are_refused() -> None:
    pairs = Constraints([[0, 1]], None, n_points=150)
    with pytest.raises(ValueError, match="holds none of the 1 pairs"):
        list(ConstraintCV(pairs, 2).split(POINTS))
    with pytest.raises(ValueError, match="X has 3 rows"):
        list(ConstraintCV(pairs, 2).split(POINTS[:3]))
    with pytest.raises(ValueError, match="n_splits must be at least 2"):
        ConstraintCV(pairs, 1)


@pytest.mark.parametrize("names", [[f"r{i}" for i in ROWS], list(ROWS + 1000)], ids=["str", "int"])
def test_an_index_of_pandas_names_the_rows_of_a_search(names: list) -> None:
    frame = pd.DataFrame(POINTS, index=names)
    pairs = Constraints.sample(TRUTH, 60, np.random.default_rng(0))
    model, grid = PCKMeans(random_state=0), {"n_clusters": [2, 3]}
    search = GridSearchCV(model, grid, scoring="adjusted_rand_score", error_score="raise")
    found = []
    for ids in (frame.index, ROWS):
        search.fit(POINTS, TRUTH, **pairs.fit_params(sample_ids=ids))
        found.append(search.cv_results_["mean_test_score"])
    np.testing.assert_array_equal(*found)
    # Whole fits accept it unchanged.
    supervision = pairs.fit_params(sample_ids=frame.index) | {"sample_ids": frame.index}
    labels = PCKMeans(3, random_state=0).fit(frame, **supervision).labels_
    by_row = PCKMeans(3, random_state=0).fit(POINTS, **pairs.fit_params())
    np.testing.assert_array_equal(labels, by_row.labels_)
