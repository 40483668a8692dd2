"""Columns of a table as features: kinds, weights, what is left out, and later rows."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from inference_lab.data.column_kinds import read_numbers, reading_of
from inference_lab.data.datasets import DataFormatError
from inference_lab.data.table_features import CategoryColumn, TableFeatures

N = 200


def mixed() -> pd.DataFrame:
    """Return a table with columns of all kinds."""
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "row": range(N),
            "customer_id": rng.permutation(10**6)[:N],
            "age": rng.integers(18, 80, N).astype(float),
            "city": rng.choice(list("ABCD"), N),
            "sex": rng.choice(["f", "m"], N),
            "joined": [f"{1 + row % 28:02}/{1 + row % 12:02}/2023" for row in range(N)],
            "mail": [f"u{row}@example.org" for row in range(N)],
            "country": ["DE"] * (N - 1) + ["FR"],
            "note": [None] * N,
            "price": [f"${row % 9 + 1},{row:03}" for row in range(N)],
            "paid": rng.random(N) > 0.5,
        }
    )


def test_kinds_are_recognised_and_useless_columns_are_named() -> None:
    features = TableFeatures().fit(mixed())
    assert features.left_out_ == {
        "row": "counts the rows",
        "customer_id": "is named like an identifier",
        "mail": "has 200 different texts in 200 rows",
        "country": "has one value in 99.5 % of the rows",
        "note": "is empty",
    }
    names = [column.name for column in features.columns_]
    assert names == ["age", "city", "sex", "joined", "price", "paid"]
    notes = "\n".join(features.notes_)
    assert "read as dates with the day first, in days: 'joined'" in notes
    assert "text read as numbers: 'price'" in notes
    assert "left out: 'row' (counts the rows), 'customer_id'" in notes and "--keep COLUMN" in notes


def test_each_column_has_the_variance_of_a_number() -> None:
    frame = mixed()
    features = TableFeatures().fit(frame)
    points = features.transform(frame)
    names = features.get_feature_names_out()
    assert names.tolist()[:6] == ["age", "city_A", "city_B", "city_C", "city_D", "sex_m"]
    for column in features.columns_:
        block = points[:, np.isin(names, column.features)]
        assert np.allclose(block.mean(axis=0), 0.0)
        assert block.var(axis=0).sum() == pytest.approx(1.0)
    # Each indicator of "onehot" has that variance.
    points = TableFeatures(encode="onehot").fit(frame).transform(frame)
    assert np.allclose(points.var(axis=0), 1.0) and points.shape[1] == len(names) + 1
    unscaled = TableFeatures(scale="none").fit(frame).transform(frame)
    assert set(unscaled[:, 1]) == {0.0, 1.0}
    assert unscaled[:, 0].tolist() == frame["age"].tolist()


def test_columns_are_kept_and_dropped_on_demand() -> None:
    frame = mixed()
    features = TableFeatures(keep=["row", "country"], drop=["age"]).fit(frame)
    names = [column.name for column in features.columns_]
    assert "row" in names and "country" in names and "age" not in names
    assert "age" not in features.left_out_
    # Each text occurs once, so all categories are rare.
    assert TableFeatures(keep=["mail"]).fit(frame).left_out_["mail"] == "has rare texts only"
    with pytest.raises(DataFormatError, match=r"no column 'citi'; did you mean 'city'\?"):
        TableFeatures(keep=["citi"]).fit(frame)
    with pytest.raises(DataFormatError, match=r"no column can be used: 'row' \(counts the rows\)"):
        TableFeatures().fit(frame[["row"]])


@pytest.mark.parametrize(
    ("texts", "reading", "first"),
    [
        (["2024-01-02", "2024-03-05"], "date", 19724.0),
        (["2024-01-02 12:00", "2024-03-05T01:02:03Z"], "date", 19724.5),
        (["2.1.2024", "5.3.2024"], "day-first date", 19724.0),
        (["1/2/2024", "3/5/2024"], "date", 19724.0),
        (["2/1/2024", "25/3/2024"], "day-first date", 19724.0),
        (["1.2.2024", "3.25.2024"], "date", 19724.0),
        (["2 Jan 2024", "March 5, 2024"], "date", 19724.0),
        (["2-Jan-24", "5-Mar-24"], "date", 19724.0),
        (["13:30", "1:45 pm"], "time", 13.5),
        (["1,234.5", "7"], "number", 1234.5),
        (["€ 12", "-$3"], "number", 12.0),
        (["12 %", "?"], "number", 12.0),
        (["true", "FALSE"], "number", 1.0),
        (["1e3", "inf"], "number", 1000.0),
        (["01067", "10115"], "words", None),
        (["1_000", "2_000"], "words", None),
        (["1.2.3", "1.2.4"], "words", None),
        (["45/99/2024", "a"], "words", None),
        (["A", "B"], "words", None),
    ],
)
def test_texts_are_read(texts: list[str], reading: str, first: float | None) -> None:
    column = pd.Series(texts)
    assert reading_of(column) == reading
    if first is not None:
        assert read_numbers(column, reading_of(column))[0] == pytest.approx(first)


def test_types_are_read() -> None:
    days = pd.date_range("2024-01-02", periods=30)
    frame = pd.DataFrame(
        {
            "stamp": days.tz_localize("Europe/Berlin"),
            "day": days.date,
            "compact": days.strftime("%Y%m%d").astype(int),
            "span": pd.to_timedelta(np.arange(30), unit="h"),
            "code": pd.Categorical(np.arange(30) % 3),
            "whole": pd.array([None, *range(1, 30)], dtype="Int64"),
        }
    )
    kinds = {name: reading_of(frame[name]) for name in frame}
    assert kinds == {
        "stamp": "date",
        "day": "date",
        "compact": "compact date",
        "span": "time",
        "code": "words",
        "whole": "number",
    }
    for name in ("day", "compact"):
        assert read_numbers(frame[name], kinds[name])[1] == 19725.0
    assert read_numbers(frame["span"], "time")[2] == 2.0
    assert np.isnan(read_numbers(frame["whole"], "number")[0])


def test_open_order_of_day_and_month_is_a_note() -> None:
    frame = pd.DataFrame({"day": [f"{1 + row % 12}/{1 + row % 11}/2024" for row in range(30)]})
    assert "1/2/2024 is read as 2 January" in "\n".join(TableFeatures().fit(frame).notes_)


def test_missing_values_are_replaced_or_refused() -> None:
    frame = mixed()
    frame.loc[[3, 7], "age"] = np.nan
    frame.loc[5, "city"] = None
    frame.loc[8, "price"] = "on request"
    features = TableFeatures().fit(frame)
    notes = "\n".join(features.notes_)
    assert "3 missing values replaced by the median of the column: 'age' (2), 'price' (1)" in notes
    assert "'price': 1 value could not be read, such as 'on request'" in notes
    assert "missing values are a category of their own: 'city' (1)" in notes
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        points = features.transform(frame)
    assert len(caught) == 1 and "'on request'" in str(caught[0].message)
    age = features.columns_[0]
    assert points[3, 0] == pytest.approx((frame["age"].median() - age.centre) / age.scale)
    for impute, value in (("mean", frame["age"].mean()), ("most_frequent", frame["age"].mode()[0])):
        assert TableFeatures(impute=impute).fit(frame).columns_[0].fill == pytest.approx(value)
    message = r"4 values missing in 'age', 'city', 'price' \(in rows 3, 5, 7, 8\): replace them"
    with pytest.raises(DataFormatError, match=message):
        TableFeatures(impute="none").fit(frame)
    strict = TableFeatures(impute="none").fit(mixed())
    with pytest.raises(DataFormatError, match=r"values missing in 'age' \(in rows 3, 7\)"):
        strict.transform(frame)
    with pytest.raises(DataFormatError, match="1 value missing in 'city'"):
        strict.transform(frame.drop(index=[3, 7, 8]))


def test_categories_are_refused_on_demand() -> None:
    message = r"'city', 'sex' hold values that are not numbers, such as '[A-D]' in row 0"
    with pytest.raises(DataFormatError, match=message):
        TableFeatures(encode="none").fit(mixed())


def test_rare_categories_are_one() -> None:
    common, rare = ["a"] * 150 + ["b"] * 60, [f"rare {row}" for row in range(8)]
    frame = pd.DataFrame({"kind": common + rare})
    features = TableFeatures().fit(frame)
    (column,) = features.columns_
    assert isinstance(column, CategoryColumn)
    assert column.categories == ["a", "b", "other"] and sorted(column.rare) == rare
    assert "'other': 'kind' (8 in 8 rows)" in features.notes_[0]
    # Rare categories of the fit are no news, unknown ones are.
    _, notes = features.points_of(pd.DataFrame({"kind": ["rare 1", "a", None]}))
    assert notes == []
    points, notes = features.points_of(pd.DataFrame({"kind": ["rare 1", "new"]}))
    assert notes == ["'kind': unknown categories count as 'other', in 1 row: 'new'"]
    assert np.array_equal(points[0], points[1])
    assert len(TableFeatures(encode="onehot").fit(frame).columns_[0].categories) == 10


def test_later_rows() -> None:
    frame = mixed()
    features = TableFeatures().fit(frame)
    # Other columns, another order and other types of the same values.
    rows = frame.head(5).assign(extra=1)[["extra", *frame.columns[::-1]]]
    rows["age"] = rows["age"].astype(int).astype(str)
    assert np.array_equal(features.transform(rows), features.transform(frame.head(5)))
    rows.loc[1, "city"], rows.loc[2, "city"] = "Z", None
    points, notes = features.points_of(rows)
    assert (points[1:3, 1:5] == 0.0).all()
    assert notes[0] == "'city': unknown categories are neutral, in 1 row: 'Z'"
    assert notes[1].startswith("'city': 1 missing value")
    with pytest.raises(DataFormatError, match="lacks columns of the fit: 'city', 'sex'"):
        features.transform(rows.drop(columns=["city", "sex"]))
    with pytest.raises(DataFormatError, match="'age' holds an infinite value"):
        features.transform(frame.assign(age=np.inf))
    with pytest.raises(TypeError, match=r"must be a pandas\.DataFrame, got ndarray"):
        features.transform(frame.to_numpy())


def test_categories_of_numbers_have_one_text() -> None:
    frame = pd.DataFrame({"code": pd.Categorical([1, 2, 3] * 10)})
    features = TableFeatures().fit(frame)
    for values in (["2"], [2], [2.0], pd.Categorical([2])):
        points, notes = features.points_of(pd.DataFrame({"code": values}))
        assert notes == [] and np.array_equal(points[0], features.transform(frame)[1])


@pytest.mark.parametrize(
    ("name", "values", "reason"),
    [
        ("id", [7 * row**2 for row in range(30)], "is named like an identifier"),
        ("storeID", [row % 5 for row in range(30)], "is named like an identifier"),
        ("paid", [7 * row**2 for row in range(30)], None),
        ("id", [row / 7 for row in range(30)], None),
        ("n", list(range(100, 130))[::-1], "counts the rows"),
        ("n", list(range(19)), None),
        ("x", [None] * 16 + [float(row**2) for row in range(14)], "misses 53.3 % of its values"),
        ("x", [1.0] * 30, "has one value"),
        ("text", ["a", "b", "c"] * 10, None),
        ("text", [f"a{row // 2}" for row in range(30)], None),
        ("text", [f"a{row * 2 // 3}" for row in range(30)], "has 20 different texts in 30 rows"),
    ],
)
def test_reasons(name: str, values: list, reason: str | None) -> None:
    frame = pd.DataFrame({name: values, "other": np.arange(len(values)) % 7})
    assert TableFeatures().fit(frame).left_out_.get(name) == reason


def test_settings_and_frames_are_checked() -> None:
    for setting in ({"impute": "zero"}, {"encode": "ordinal"}, {"scale": "log"}):
        with pytest.raises(ValueError, match="must be"):
            TableFeatures(**setting).fit(mixed())
    twice = pd.DataFrame([[1, 2]], columns=["a", "a"])
    with pytest.raises(DataFormatError, match="two columns have the name 'a'"):
        TableFeatures().fit(twice)
    with pytest.raises(DataFormatError, match="holds no points"):
        TableFeatures().fit(pd.DataFrame({"a": []}))
    with pytest.raises(DataFormatError, match="'a' holds an infinite value"):
        TableFeatures().fit(pd.DataFrame({"a": [1.0, np.inf]}))


def test_it_is_a_transformer_of_scikit_learn() -> None:
    from sklearn.cluster import KMeans

    features = clone(TableFeatures(keep=["row"]))
    model = make_pipeline(features, KMeans(2, random_state=0)).fit(mixed())
    assert model.predict(mixed()).shape == (N,)
    named = TableFeatures().set_output(transform="pandas").fit_transform(mixed())
    assert named.columns[0] == "age" and len(named) == N


def test_large_and_constant_numbers() -> None:
    frame = pd.DataFrame({"large": [1e300, -1e300, 2e300], "same": [0.1] * 3})
    points = TableFeatures().fit(frame).transform(frame)
    assert np.isfinite(points).all() and np.allclose(points[:, 0].var(), 1.0)
    assert np.allclose(points[:, 1], 0.0)


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**9), 10**9),
    st.floats(-1e9, 1e9),
    st.sampled_from(["", "a", "b", "1", "2.5", "?", "2024-01-02", "13:00", "1/2/2024", "missing"]),
    st.datetimes(),
)


@given(st.lists(st.lists(values, min_size=3, max_size=3), min_size=2, max_size=30))
def test_any_table_is_read_or_refused(rows: list[list]) -> None:
    frame = pd.DataFrame(rows, columns=["a", "b", "c"])
    before = frame.copy(deep=True)
    try:
        features = TableFeatures().fit(frame)
    except DataFormatError as problem:
        assert "no column can be used" in str(problem)
        return
    points, _ = features.points_of(frame)
    assert np.isfinite(points).all() and len(points) == len(frame)
    assert points.shape[1] == len(features.get_feature_names_out())
    pd.testing.assert_frame_equal(frame, before)
    again = TableFeatures.from_json(features.to_json())
    assert np.array_equal(again.points_of(frame)[0], points)
    assert again.to_json() == features.to_json()
    assert again.left_out_ == features.left_out_


def test_damaged_json_is_refused() -> None:
    text = TableFeatures().fit(mixed()).to_json()
    stored = json.loads(text)
    stored["columns"][0]["scale"] = 0.0
    for broken in (text[:-1], "[]", "{}", json.dumps(stored), "[" * 100_000, b"\xff"):
        with pytest.raises(DataFormatError, match="no features of a table"):
            TableFeatures.from_json(broken)
    stored = json.loads(text)
    stored["columns"][1]["centres"].pop()
    with pytest.raises(DataFormatError, match="'city' has 4 categories"):
        TableFeatures.from_json(json.dumps(stored))
