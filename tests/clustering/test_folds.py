"""Folds are read from private variables of scikit-learn: those of the installed version.

If these tests fail after an update, scikit-learn has renamed what `folds.origin_of_rows` reads.
Until its constants follow, tables of pairs and row numbers are refused in folds, or mean other
rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    PredefinedSplit,
    RandomizedSearchCV,
    cross_val_predict,
    cross_val_score,
    cross_validate,
    learning_curve,
    permutation_test_score,
    validation_curve,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import inference_lab
from inference_lab.clustering import PCKMeans, folds
from inference_lab.clustering.folds import Origin, n_rows, origin_of_rows

X = np.random.default_rng(0).normal(size=(31, 2))
PAIRS = pd.DataFrame({"i": [0], "j": [1], "kind": ["must-link"]})
CV = KFold(3, shuffle=True, random_state=0)


class Call(NamedTuple):
    """A call of an estimator by scikit-learn."""

    method: str
    X: Any
    origin: Origin


class Spy(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Estimator that records where its rows come from."""

    calls: ClassVar[list[Call]] = []
    __metadata_request__fit: ClassVar = {"pairs": True}
    __metadata_request__score: ClassVar = {"pairs": True, "sample_weight": None}

    def __init__(self, width: int = 0) -> None:
        self.width = width

    def fit(self, X: Any, y: Any = None, pairs: Any = None) -> Spy:
        """Record a fit."""
        self.calls.append(Call("fit", X, origin_of_rows(n_rows(X), pairs)))
        self.labels_ = np.zeros(n_rows(X), dtype=np.int64)
        return self

    def predict(self, X: Any) -> Any:
        """Return one cluster."""
        return np.zeros(n_rows(X), dtype=np.int64)

    def score(self, X: Any, y: Any = None, pairs: Any = None) -> float:
        """Record a score."""
        self.calls.append(Call("score", X, origin_of_rows(n_rows(X), pairs)))
        return 0.0


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Begin and end without calls, with metadata routing, so that scores get the pairs."""
    Spy.calls.clear()
    with sklearn.config_context(enable_metadata_routing=True):
        yield
    Spy.calls.clear()


PARAMS: dict[str, Any] = {"cv": CV, "params": {"pairs": PAIRS}}
WIDTHS: dict[str, Any] = {"param_name": "width", "param_range": [0, 1]}
#: Public functions that fit folds, the number of their fits, and whether they pass pairs to scores.
WAYS: dict[str, tuple[Callable[[Any], object], int]] = {
    "cross_validate": (lambda X: cross_validate(Spy(), X, **PARAMS, return_train_score=True), 3),
    "cross_val_score": (lambda X: cross_val_score(Spy(), X, **PARAMS), 3),
    "cross_val_predict": (lambda X: cross_val_predict(Spy(), X, **PARAMS), 3),
    "validation_curve": (lambda X: validation_curve(Spy(), X, None, **WIDTHS, **PARAMS), 6),
    "learning_curve": (lambda X: learning_curve(Spy(), X, None, train_sizes=[0.5], **PARAMS), 3),
    "GridSearchCV": (lambda X: GridSearchCV(Spy(), {"width": [0]}, cv=CV).fit(X, pairs=PAIRS), 3),
    "RandomizedSearchCV": (
        lambda X: RandomizedSearchCV(Spy(), {"width": [0]}, n_iter=1, cv=CV).fit(X, pairs=PAIRS),
        3,
    ),
}
DATA: dict[str, Any] = {
    "array": X,
    "frame": pd.DataFrame(X, index=[f"row {i}" for i in range(len(X))]),
}


@pytest.mark.parametrize("data", DATA.values(), ids=DATA)
@pytest.mark.parametrize("way", WAYS)
def test_folds_of_the_installed_scikit_learn_are_read(way: str, data: Any) -> None:
    call, n_fits = WAYS[way]
    call(data)
    in_folds = [record for record in Spy.calls if n_rows(record.X) < len(X)]
    assert sum(record.method == "fit" for record in in_folds) == n_fits
    for record in in_folds:
        fold, split, _ = record.origin
        about = f"{record.method} of {way} in scikit-learn {sklearn.__version__}"
        assert fold is not None and split is not None, about
        assert fold.X is data, about
        np.testing.assert_array_equal(np.asarray(data)[fold.rows], np.asarray(record.X), about)
    # The fit to all data, after a search, is in no fold.
    whole = [record for record in Spy.calls if n_rows(record.X) == len(X)]
    assert len(whole) == way.endswith("SearchCV")
    assert all(part is None for record in whole for part in record.origin)
    assert way == "cross_val_predict" or any(record.method == "score" for record in in_folds)


def test_fits_of_a_permutation_test_are_read() -> None:
    y = np.arange(len(X)) % 2
    permutation_test_score(Spy(), X, y, cv=CV, n_permutations=1, params={"pairs": PAIRS})
    fits = [record for record in Spy.calls if record.method == "fit"]
    assert len(fits) == 6
    for record in fits:
        assert record.origin.fold is not None
        np.testing.assert_array_equal(X[record.origin.fold.rows], record.X)


def test_masks_and_inner_searches_are_read() -> None:
    halves = PredefinedSplit(np.arange(len(X)) % 2)
    masks = [(np.arange(len(X)) % 2 == 0, np.arange(len(X)) % 2 == 1)]
    inner = GridSearchCV(Spy(), {"width": [0]}, cv=2).set_params(error_score="raise")
    for cv in (halves, masks):
        cross_validate(inner, X, cv=cv, params={"pairs": PAIRS}, error_score="raise")
    assert len(Spy.calls) > 10
    for record in Spy.calls:
        assert record.origin.fold is not None and record.origin.fold.X is X
        np.testing.assert_array_equal(X[record.origin.fold.rows], record.X)


def test_data_frames_of_pipelines_are_read() -> None:
    frame = DATA["frame"]
    model = make_pipeline(StandardScaler(), make_pipeline(StandardScaler(), Spy()))
    model.fit(frame, pairs=PAIRS)
    model.score(frame, pairs=PAIRS)
    assert [record.method for record in Spy.calls] == ["fit", "score"]
    for record in Spy.calls:
        assert record.origin.fold is None and record.origin.split is None
        assert record.origin.piped is frame, f"scikit-learn {sklearn.__version__}"
    make_pipeline(StandardScaler(), Spy()).fit(X, pairs=PAIRS)
    assert Spy.calls[-1].origin.piped is None


@pytest.mark.parametrize("name", ["X", "train", "test"])
def test_renamed_variables_are_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the variables, pairs would mean other rows in silence."""
    renamed = [f"{variable}_" if variable == name else variable for variable in folds._SPLIT]
    monkeypatch.setattr(folds, "_SPLIT", tuple(renamed))
    expected = re.escape(
        f"rows that cross-validation passes cannot be read from scikit-learn {sklearn.__version__}"
    )
    for pairs in ({"pairs": PAIRS}, {"must_link": [(0, 1)]}):
        search = GridSearchCV(PCKMeans(random_state=0), {"n_clusters": [2]}, error_score="raise")
        with pytest.raises(ValueError, match=expected):
            search.fit(X, **pairs)
    PCKMeans(2, random_state=0).fit(X, must_link=[(0, 1)])


def test_one_module_of_the_room_reads_frames() -> None:
    room = Path(inference_lab.__file__).parent
    readers = [
        path.name
        for folder in ("clustering", "constraints")
        for path in sorted((room / folder).rglob("*.py"))
        if re.search(r"_getframe|f_locals|currentframe", path.read_text(encoding="utf-8"))
    ]
    assert readers == ["folds.py"]
