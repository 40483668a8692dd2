"""Pairs in data frames: names of any type become rows, and unreadable entries are named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV

from inference_lab.clustering import DPMeans, PCKMeans
from inference_lab.constraints import Constraints, SampleIds

X, Y = load_iris(return_X_y=True)
PAIRS = Constraints.sample(Y, 150, np.random.default_rng(0))
INDICES = {
    "text": pd.Index([f"flower {i}" for i in range(150)]),
    "integer": pd.Index(np.arange(150)[::-1] + 7),
    "nullable": pd.Index(np.arange(150), dtype="Int64"),
    "number": pd.Index(np.arange(150) / 4),
    "date": pd.date_range("2024-01-01", periods=150),
    "category": pd.CategoricalIndex([f"{i:03}" for i in range(150)]),
    "two levels": pd.MultiIndex.from_product([["a", "b", "c"], range(50)]),
}


@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)
def test_frames_are_read_back(index: pd.Index) -> None:
    weights = np.random.default_rng(1).random(len(PAIRS.cannot_link))
    for pairs in (PAIRS, PAIRS.with_weights(2.0, weights)):
        frame = pairs.to_frame(index)
        mixed = frame.sample(frac=1.0, random_state=0)[["kind", "j", "weight", "i"]]
        mixed = pd.concat([mixed[::2], mixed[1::2].rename(columns={"i": "j", "j": "i"})])
        for table in (frame, mixed, pd.concat([mixed, frame])):
            assert Constraints.from_frame(table, index) == pairs
        plain = Constraints.from_frame(frame.drop(columns="weight"), index)
        assert plain == pairs.with_weights(1.0, 1.0)
        assert isinstance(plain.ml_weight, float)


def test_pairs_with_rows_outside_a_slice_are_omitted() -> None:
    index, part = INDICES["text"], np.arange(20, 120)
    constraints = Constraints.from_frame(PAIRS.to_frame(index), SampleIds(index)[part])
    assert constraints == PAIRS.restrict(part, renumber=True)


ONE = pd.DataFrame({"i": ["a"], "j": ["b"], "kind": ["must-link"]}, index=["first"])


def changed(**columns: Any) -> pd.DataFrame:
    return ONE.assign(**columns)


@pytest.mark.parametrize(
    ("frame", "index", "error", "message"),
    [
        ([("a", "b")], "abc", TypeError, "of type list; a pandas DataFrame with the columns i, j"),
        (ONE.drop(columns="kind"), "abc", ValueError, "must have the columns i, j, kind"),
        (
            changed(wieght=1.0),
            "abc",
            ValueError,
            "may have weight, or confidence and group; got i, j, kind, wieght",
        ),
        (changed(j="d"), "abc", ValueError, "pairs names 'd', which is not among the 3 "),
        (changed(j=1), "abc", ValueError, "hold int, .* are str: .* 1 is not '1'"),
        (changed(j=None), "abc", ValueError, "row 'first' of pairs .* names no point"),
        (changed(j="a"), "abc", ValueError, "row 'first' .*i='a', j='a'.* a point with itself"),
        (changed(kind="ML"), "abc", ValueError, "unknown kind; allowed: must-link, cannot-link"),
        (changed(weight=np.nan), "abc", ValueError, "row 'first' .* has no weight"),
        (changed(weight=-1.0), "abc", ValueError, "row 'first' .* has a negative weight"),
        (changed(weight="1"), "abc", TypeError, "real numbers are needed"),
        (ONE, "aba", ValueError, "names 'a' twice, at 0 and 2"),
        (ONE, ["a", "b", None], ValueError, r"sample_ids\[2\] is .*, which equals nothing"),
        (
            pd.concat([changed(weight=1.0), changed(weight=2.0)]),
            "abc",
            ValueError,
            r"pairs lists \('a', 'b'\) twice as one kind, with different weights",
        ),
    ],
)
def test_errors_in_frames_are_named(frame: Any, index: Any, error: type, message: str) -> None:
    names = index if isinstance(index, list) else list(index)
    with pytest.raises(error, match=message):
        Constraints.from_frame(frame, names)
    if len(set(names)) == 3 and None not in names:
        with pytest.raises(error, match=message):
            PCKMeans(1).fit(pd.DataFrame(np.eye(3), index=names), pairs=frame)


@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)
def test_a_fit_to_a_frame_is_that_to_arrays(index: pd.Index) -> None:
    """The number of pairs equals the number of rows, which is no reason to refuse them."""
    assert len(PAIRS) == len(X)
    expected = PCKMeans(3, random_state=0).fit(X, **PAIRS.fit_params())
    model = PCKMeans(3, random_state=0)
    model.fit(pd.DataFrame(X, index=index).add_prefix("x"), pairs=PAIRS.to_frame(index))
    assert model.constraints_ == expected.constraints_
    np.testing.assert_array_equal(model.labels_, expected.labels_)


def test_without_an_index_pairs_hold_numbers_of_rows() -> None:
    weighted = PAIRS.with_weights(2.0, 0.5)
    model = PCKMeans(3, random_state=0).fit(X, pairs=weighted.to_frame())
    assert model.constraints_ == weighted
    names = INDICES["text"]
    named = PCKMeans(3, random_state=0).fit(X, pairs=weighted.to_frame(names), sample_ids=names)
    assert named.constraints_ == weighted
    alone = PCKMeans(3, random_state=0).fit(X, pairs=PAIRS.to_frame(), ml_weight=3.0)
    assert alone.constraints_.ml_weight == 3.0
    assert model.score(X, pairs=PAIRS.to_frame()) == model.score(
        X, must_link=PAIRS.must_link, cannot_link=PAIRS.cannot_link
    )


def test_two_ways_at_once_are_refused() -> None:
    frame = PAIRS.to_frame()
    for arguments in ({"must_link": [(0, 1)]}, {"cannot_link": [(0, 1)]}):
        with pytest.raises(ValueError, match=f"pairs and {next(iter(arguments))} both give"):
            PCKMeans(3).fit(X, pairs=frame, **arguments)
    for arguments in ({"ml_weight": np.ones(5)}, {"cl_weight": [1.0]}):
        with pytest.raises(ValueError, match="must be a number or 'auto'"):
            PCKMeans(3).fit(X, pairs=frame, **arguments)
    with pytest.raises(ValueError, match="left out where that has weights"):
        PCKMeans(3).fit(X, pairs=frame.assign(weight=2.0), ml_weight=1.0)
    with pytest.raises(TypeError, match="RDPMeans does"):
        DPMeans(3).fit(X, pairs=frame)


def test_searches_take_frames_with_names() -> None:
    index = INDICES["text"]
    frame = pd.DataFrame(X, index=index)
    search = GridSearchCV(
        PCKMeans(random_state=0),
        {"n_clusters": [3]},
        scoring="adjusted_rand_score",
        error_score="raise",
    )
    with pytest.raises(ValueError, match="as many pairs as there are samples"):
        search.fit(frame, Y, pairs=PAIRS.to_frame(index), sample_ids=SampleIds(index))
    fewer = Constraints.from_frame(PAIRS.to_frame(index).iloc[:-1], index)
    search.fit(frame, Y, pairs=fewer.to_frame(index), sample_ids=SampleIds(index))
    by_frame = search.best_score_
    search.fit(frame, Y, **fewer.fit_params(sample_ids=index))
    assert by_frame == search.best_score_
    search.fit(frame, Y, pairs=fewer.to_frame(index))
    assert by_frame == search.best_score_
