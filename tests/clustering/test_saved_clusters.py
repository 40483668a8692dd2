"""Clusters saved as JSON: the labels of `predict` for later rows, and refusal of damaged files."""

from __future__ import annotations

import json
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from inference_lab.clustering import (
    BregmanKMeans,
    ConstrainedGaussianMixture,
    KernelHMRFKMeans,
    SavedClusters,
    SphericalKMeans,
    TVClust,
    cluster_cv,
    cluster_table,
)
from inference_lab.clustering.quadratic_costs import QuadraticCosts, quadratic_costs
from inference_lab.constraints import Constraints
from inference_lab.data.datasets import DataFormatError
from inference_lab.data.table_features import TableFeatures

WINE, CLASSES = load_wine(return_X_y=True)
PAIRS = Constraints.sample(CLASSES, 60, np.random.default_rng(0))
#: Rows between and beyond the points of the fit.
LATER = WINE[np.arange(1000) % 178] * np.random.default_rng(1).uniform(0.7, 1.3, (1000, 13))


def fitted(estimator) -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cluster_cv.fitted(clone(cluster_cv.prepared(estimator, 3, 0)), WINE, PAIRS)


@pytest.mark.parametrize("candidate", cluster_cv.default_candidates(), ids=lambda c: c.name)
def test_default_candidates_have_the_labels_of_predict(candidate) -> None:
    model = fitted(candidate.estimator)
    labels = quadratic_costs(model).labels(LATER)
    assert np.array_equal(labels, model.predict(LATER))
    assert len(set(labels.tolist())) > 1


@pytest.mark.parametrize(
    "estimator",
    [
        *(
            ConstrainedGaussianMixture(covariance_type=kind, reg_covar=1e-3)
            for kind in ("full", "tied", "diag", "spherical")
        ),
        TVClust(standardise=False),
    ],
)
def test_costs_are_those_of_the_model(estimator) -> None:
    model = fitted(estimator)
    np.testing.assert_allclose(
        quadratic_costs(model).of(LATER), model.transform(LATER), rtol=1e-8, atol=1e-6
    )


def test_clusters_of_other_forms_are_refused() -> None:
    for estimator in (SphericalKMeans(), KernelHMRFKMeans(), BregmanKMeans(distortion="kl")):
        with pytest.raises(TypeError, match=r"no quadratic costs|cannot be stored"):
            quadratic_costs(fitted(estimator))
    with pytest.raises(TypeError, match="MinMaxScaler cannot be stored"):
        quadratic_costs(fitted(make_pipeline(MinMaxScaler(), BregmanKMeans())))


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    """Enter a folder with a mixed table and pairs; compare two candidates."""
    monkeypatch.chdir(tmp_path)
    few = cluster_cv.default_candidates()[1:3]
    monkeypatch.setattr(cluster_cv, "default_candidates", lambda: few)
    frame = pd.DataFrame(WINE, columns=list("abcdefghijklm"))
    frame.insert(0, "bottle", [f"{row:03}" for row in range(178)])
    frame["colour"] = np.array(["red", "white", "rosé"])[CLASSES]
    frame.loc[5, "a"] = np.nan
    frame.to_csv("wine.csv", index=False)
    PAIRS.write_csv("pairs.csv", sample_ids=frame["bottle"])
    return frame


def test_a_table_is_assigned_as_by_predict(table: pd.DataFrame) -> None:
    report = cluster_table("wine.csv", "pairs.csv", 3, id="bottle")
    path = report.save("wine.json")
    clusters = SavedClusters.read(path)
    later = table.iloc[::-1].head(50)
    expected = report.search.predict(report.features.points_of(later)[0])
    labels = clusters.assign(later)
    assert labels["bottle"].tolist() == later["bottle"].tolist()
    assert labels["cluster"].tolist() == expected.tolist()
    # Names are from the index where they are no column, and from the column of a file.
    pd.testing.assert_frame_equal(clusters.assign(later.set_index("bottle")), labels)
    later.to_csv("later.csv", index=False)
    pd.testing.assert_frame_equal(clusters.assign("later.csv"), labels, check_dtype=False)
    pd.testing.assert_frame_equal(report.assign("later.csv"), labels, check_dtype=False)
    # A second writing is the same to the byte.
    again = clusters.write("again.json")
    assert again.read_bytes() == path.read_bytes()


def test_unknown_and_missing_values_are_assigned_with_a_word(table: pd.DataFrame) -> None:
    clusters = cluster_table("wine.csv", k=3, id="bottle").clusters()
    later = table.head(4).assign(colour=["red", "green", None, "red"])
    later.loc[3, "b"] = np.nan
    notes: list[str] = []
    assert len(clusters.assign(later, notes.append)) == 4
    assert notes == [
        "'colour': unknown categories are neutral, in 1 row: 'green'",
        "'colour': 1 missing value is neutral, because none was missing in the fit",
    ]
    with pytest.warns(UserWarning, match="'green'"):
        clusters.assign(later.drop(index=2))
    with pytest.raises(DataFormatError, match="lacks columns of the fit: 'b', 'colour'"):
        clusters.assign(later.drop(columns=["b", "colour"]))
    with pytest.raises(DataFormatError, match="cannot be compared"):
        clusters.assign(later.assign(b=1e200), notes.append)


def test_rows_without_names_are_numbered(table: pd.DataFrame) -> None:
    report = cluster_table("wine.csv", k=2, drop=["bottle"])
    report.save("wine.json")
    pd.testing.assert_frame_equal(SavedClusters.read("wine.json").assign("wine.csv"), report.labels)


def small() -> dict:
    """Return the entries of a file of clusters."""
    frame = pd.DataFrame({"height": [0.0, 1.0, 8.0, 9.0], "leaf": ["oak", "elm", "ash", "oak"]})
    features = TableFeatures().fit(frame)
    costs = QuadraticCosts(np.arange(8.0).reshape(2, 4), np.ones((1, 4)), np.zeros(2))
    with tempfile.TemporaryDirectory() as folder:
        path = SavedClusters(features, costs).write(Path(folder, "small.json"))
        return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "its format is 'other'"),
        ({"version": 2}, "version 2 of the format; this inference-lab reads version 1"),
        ({"version": "1"}, r"Expected `int`, got `str` - at `\$.version`"),
        ({"centres": [[0.0] * 4, [1.0] * 3]}, "inhomogeneous"),
        ({"centres": [[0.0] * 3] * 2}, "do not fit"),
        ({"centres": []}, r"must have shape \(k, d\)"),
        ({"offsets": [0.0]}, "do not fit"),
        ({"diagonals": [[1.0] * 3]}, "do not fit"),
        ({"diagonals": [[1.0] * 4] * 3}, "do not fit"),
        ({"diagonals": []}, "one of matrices and diagonals"),
        ({"matrices": [[[1.0]]]}, "one of matrices and diagonals"),
        ({"candidate": None}, "Expected `str`"),
        ({"command": "rm"}, "unknown field `command`"),
        ({"features": {"names": [], "columns": []}}, "length >= 1"),
    ],
)
def test_damaged_files_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.json").write_text(json.dumps(small() | change), encoding="utf-8")
    with pytest.raises(DataFormatError, match=message):
        SavedClusters.read("small.json")


def test_texts_that_are_no_clusters_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    entries = small()
    columns = entries["features"]["columns"]
    text = json.dumps(entries)
    for broken in (
        "",
        "[]",
        "{}",
        "null",
        "hello",
        "[" * 100_000,
        text[:-1],
        text.replace("0.5", "NaN"),
        text.replace("[0.0, 1.0, 2.0", "[1e999, 1.0, 2.0"),
        text.replace('"height"', '"leaf"'),
        json.dumps(entries | {"features": entries["features"] | {"columns": columns[:1]}}),
    ):
        assert broken != text
        Path("small.json").write_text(broken, encoding="utf-8")
        with pytest.raises(DataFormatError, match=r"small\.json holds no clusters"):
            SavedClusters.read("small.json")
    Path("small.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataFormatError, match="holds no clusters"):
        SavedClusters.read("small.json")
    with pytest.raises(FileNotFoundError):
        SavedClusters.read("absent.json")


junk = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just([])
)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=8), junk, st.booleans())
def test_random_damage_is_refused_or_read(path: list[int], value: object, delete: bool) -> None:
    """A changed entry anywhere is an error of one line, or a file that assigns or refuses rows."""
    entries = small()
    at, owner, key = entries, entries, "format"
    for step in path:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        if not keys:
            break
        owner, key = at, keys[step % len(keys)]
        at = owner[key]
        if not isinstance(at, dict | list):
            break
    if delete:
        del owner[key]
    else:
        owner[key] = value
    frame = pd.DataFrame({"height": [0.5, None, 7.0], "leaf": ["oak", "fir", None]})
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "damaged.json")
        file.write_text(json.dumps(entries), encoding="utf-8")
        try:
            clusters = SavedClusters.read(file)
            labels = clusters.assign(frame, lambda sentence: None)
        except DataFormatError as problem:
            assert str(problem)
            return
    assert labels["cluster"].isin(range(len(clusters.costs.offsets))).all()
